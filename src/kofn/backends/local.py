"""Runs in processes of this machine, by joblib."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from typing import Any

from kofn.backends import Task
from kofn.core import BadBackend

LOSSES = 3
"""How often processes may be lost before it is no accident; as many as Dask allows a task."""


def on_this_machine(
    function: Callable[..., Any], tasks: Sequence[Task], workers: int | None = None
) -> Generator[tuple[int, Any], None, None]:
    """The number and the result of each task, as they come; with one worker, in this process."""
    left = dict(enumerate(tasks))
    for _ in range(LOSSES + 1):
        try:
            with closing(_attempt(function, left, workers or os.cpu_count() or 1)) as results:
                for number, result in results:
                    del left[number]
                    yield number, result
        except BrokenProcessPool:
            continue
        return
    raise BadBackend(
        f"worker processes were killed {LOSSES + 1} times, as by a system that is out of memory: use fewer workers"
    )


def _attempt(
    function: Callable[..., Any], left: dict[int, Task], workers: int
) -> Generator[tuple[int, Any], None, None]:
    import joblib

    calls = [joblib.delayed(_numbered)(number, function, task) for number, task in left.items()]
    parallel = joblib.Parallel(min(workers, len(calls)), return_as="generator_unordered", max_nbytes=None)
    results = parallel(calls)
    try:
        for each in results:  # noqa: UP028  # `yield from` would close them first, with joblib's warning
            yield each
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            results.close()


def _numbered(number: int, function: Callable[..., Any], task: Task) -> tuple[int, Any]:
    return number, function(*task)
