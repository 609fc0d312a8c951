"""One BLAS thread while kofn computes.

The matrices of policies are small: BLAS takes longer to wake its threads than to compute, with OpenBLAS and some
hundred arms up to a hundred times as long. With one thread, digits and speed do not depend on the number of cores.

Most BLAS libraries have one number of threads for the whole process, so the limit counts who is inside. Code of users
that runs inside, such as the function of a `FunctionProblem`, has one BLAS thread too; the score of `choose` runs
outside.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from functools import cached_property
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class OneThread(ContextDecorator):
    """A context, and a decorator of functions, in which BLAS uses one thread.

    The first thread of Python that enters sets the limit, and the last one that leaves removes it. Contexts may be
    nested, and a process may fork inside.
    """

    def __init__(self) -> None:
        self._here = threading.local()  # of this thread: how often it has entered, and its own limit
        self._lock = threading.Lock()
        self._inside = 0  # threads that are inside
        self._before: list[int] = []  # numbers of threads of the shared libraries, to be restored

    def __call__(self, function: Function) -> Function:
        """Return the function, with the limit during each call."""
        if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
            raise TypeError(f"{function.__qualname__} computes after its call has returned: use `with` inside it")
        return super().__call__(function)

    def __enter__(self) -> None:
        if not self._depth:
            shared, own = self._libraries
            self._here.before = _set_threads(own, [1] * len(own))
            with self._lock:
                before = _set_threads(shared, [1] * len(shared))  # also if others are inside: a user may have set it
                if not self._inside:
                    self._before = before
                self._inside += 1
        self._here.depth = self._depth + 1

    def __exit__(self, *error: object) -> None:
        self._here.depth = self._depth - 1
        if not self._depth:
            with self._lock:
                self._inside -= 1
                self._remove_if_empty()
            _set_threads(self._libraries[1], self._here.before)

    @property
    def _depth(self) -> int:
        return getattr(self._here, "depth", 0)

    @cached_property
    def _libraries(self) -> tuple[list[Any], list[Any]]:
        """BLAS libraries with one number of threads for the process, and those with one for each thread of Python."""
        import scipy.linalg  # noqa: F401  # it loads SciPy's own BLAS, which must be found, too
        from threadpoolctl import ThreadpoolController

        found = ThreadpoolController().select(user_api="blas").lib_controllers
        own = [each for each in found if "openmp" in str(each.threading_layer) or each.internal_api == "mkl"]
        return [each for each in found if each not in own], own

    def _remove_if_empty(self) -> None:
        if not self._inside and self._before:
            _set_threads(self._libraries[0], self._before)
            self._before = []

    def survive_forks(self) -> None:
        """Make forks safe: in the child there is only the thread that forked, so the others have left."""

        def only_this_thread() -> None:
            self._inside = min(1, self._depth)
            self._remove_if_empty()
            self._lock.release()

        if hasattr(os, "register_at_fork"):  # not on Windows
            os.register_at_fork(
                before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=only_this_thread
            )


def _set_threads(libraries: Sequence[Any], numbers: Sequence[int]) -> list[int]:
    """Set the number of threads of each library, and return the numbers before."""
    before = [each.num_threads for each in libraries]
    for each, number in zip(libraries, numbers, strict=True):
        # Without this, threadpoolctl ignores all threads of Python but the first one that set a number.
        release = getattr(each, "clear_controlling_thread", lambda force: None)
        release(force=True)
        each.set_num_threads(number)
        release(force=True)
    return before


ONE_THREAD = OneThread()
ONE_THREAD.survive_forks()
