"""One thread for the linear algebra of policies.

Their matrices are small: BLAS takes longer to wake its threads than to compute, with OpenBLAS and some hundred arms up
to a hundred times as long. One thread also gives the same digits on
any number of cores.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, TypeVar

MANY = 30
"""Arms from which products are large enough for several threads. To set their number takes as long as a tenth of a
plan of 24 arms. It affects speed only."""

Method = TypeVar("Method", bound=Callable[..., Any])


class OneThread:
    """A context in which BLAS uses one thread in this process.

    The number is that of the process, and libraries accept changes from one thread at a time: of several threads that
    are inside, the first sets the number, and restores it when it leaves.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._depth = 0
        self._limit: Any = None

    @cached_property
    def _blas(self) -> Any:
        import scipy.linalg  # noqa: F401  # it loads SciPy's own BLAS, which must be found, too
        from threadpoolctl import ThreadpoolController

        return ThreadpoolController().select(user_api="blas")

    def __enter__(self) -> None:
        here = threading.get_ident()
        with self._lock:
            if self._owner is None:
                self._limit = self._blas.limit(limits=1)
                self._limit.__enter__()
                self._owner = here
            if self._owner == here:
                self._depth += 1

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            if self._owner != threading.get_ident():
                return
            self._depth -= 1
            if not self._depth:
                self._owner = None
                self._limit.__exit__(*error)


ONE_THREAD = OneThread()


def one_thread(method: Method) -> Method:
    """Return a method of a policy that uses one thread of BLAS, unless the matrices of the policy are tiny."""

    @wraps(method)
    def limited(policy: Any, *given: Any, **named: Any) -> Any:
        if policy.n_arms < MANY and not policy.takes_context:
            return method(policy, *given, **named)
        with ONE_THREAD:
            return method(policy, *given, **named)

    return limited  # type: ignore[return-value]
