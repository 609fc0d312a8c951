"""Runs in processes of this machine, by joblib."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from kofn.backends import Task
from kofn.core import BadBackend

LOSSES = 3
"""How often processes may be lost before it is no accident; as many as Dask allows a task."""


def on_this_machine(
    function: Callable[..., Any], tasks: Sequence[Task], workers: int | None = None
) -> Iterator[tuple[int, Any]]:
    """The number and the result of each task, as they come; with one worker, in this process."""
    left = dict(enumerate(tasks))
    for _ in range(LOSSES + 1):
        try:
            for number, result in _attempt(function, left, workers or os.cpu_count() or 1):
                del left[number]
                yield number, result
        except BrokenProcessPool:
            continue
        return
    raise BadBackend(
        f"worker processes were killed {LOSSES + 1} times, as by a system that is out of memory: use fewer workers"
    )


def _attempt(function: Callable[..., Any], left: dict[int, Task], workers: int) -> Iterator[tuple[int, Any]]:
    import joblib

    calls = [joblib.delayed(_numbered)(number, function, task) for number, task in left.items()]
    parallel = joblib.Parallel(min(workers, len(calls)), return_as="generator_unordered", max_nbytes=None)
    yield from parallel(calls)


def _numbered(number: int, function: Callable[..., Any], task: Task) -> tuple[int, Any]:
    return number, function(*task)
