"""Cases of tests: many small ones in one test, and PostgreSQL where it takes long.

Each test of pytest costs several milliseconds, of which most are for its report.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

postgres_is_slow = pytest.mark.parametrize(
    "store_url", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True
)
"""Run a test on PostgreSQL in `make test-slow` only: shorter tests send all of its statements to PostgreSQL, too."""


def for_each(names: str, cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with each case in turn, and name the one that fails. `pytest.mark.parametrize` for slower cases.

    >>> for_each("a, b", [(1, 1), (1, 2)])(lambda a, b: print(a == b))()
    True
    False
    """
    given = [name.strip() for name in names.split(",")]
    every = [case if len(given) > 1 else (case,) for case in cases]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            assert every
            for case in every:
                values = dict(zip(given, case, strict=True))
                try:
                    test(**fixtures, **values)
                except BaseException as error:
                    error.add_note(f"with {values}")
                    raise

        signature = inspect.signature(test)
        fixtures = [each for each in signature.parameters.values() if each.name not in given]
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return decorate
