"""Choose the best K of N candidates by calling a function that scores a subset: one call, no policy needed.

`choose.py` has the two functions, `session.py` one call of them, `search.py` decides which subset is scored next and
when to stop, `space.py` has the subsets that can be chosen, `calls.py` calls the function (here, in threads, in
processes, on Dask or in an event loop), `search_file.py` keeps the scores, `repeats.py` finds out whether scores are
repeatable, `choice.py` has the result and `picture.py` its picture.
"""

from kofn.choosing.choice import Choice, Evaluation
from kofn.choosing.choose import choose, choose_async

__all__ = ["Choice", "Evaluation", "choose", "choose_async"]
