"""Computes tasks in processes of this machine, with joblib."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, nullcontext
from typing import Any

from kofn.backends import Task
from kofn.core import BadBackend

MOST_LOSSES = 3
"""How often lost processes are replaced before it is an error; Dask allows a task the same number."""


def compute_locally(
    function: Callable[..., Any], tasks: Sequence[Task], workers: int | None = None
) -> Generator[tuple[int, Any], None, None]:
    """Yield the number and the result of each task, as tasks finish; one worker means this process."""
    left = dict(enumerate(tasks))
    for _ in range(MOST_LOSSES + 1):
        try:
            with closing(_compute_once(function, left, workers or os.cpu_count() or 1)) as results:
                for number, result in results:
                    del left[number]
                    yield number, result
        except BrokenProcessPool:
            continue
        return
    raise BadBackend(
        f"worker processes were killed {MOST_LOSSES + 1} times, perhaps for lack of memory: use fewer workers"
    )


def _compute_once(
    function: Callable[..., Any], left: dict[int, Task], workers: int
) -> Generator[tuple[int, Any], None, None]:
    import joblib

    calls = [joblib.delayed(_numbered)(number, function, task) for number, task in left.items()]
    parallel = joblib.Parallel(min(workers, len(calls)), return_as="generator_unordered", max_nbytes=None)
    with interrupts_ignored() if min(workers, len(calls)) > 1 else nullcontext():  # worker processes start here
        results = parallel(calls)
    try:
        for each in results:  # noqa: UP028  # `yield from` would close the generator first, with joblib's warning
            yield each
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            results.close()


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Ignore SIGINT; a process that starts in this block inherits that for its whole life.

    Ctrl-C reaches all processes of a terminal. Only the parent handles it: a worker would print a traceback.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread may change signals
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _numbered(number: int, function: Callable[..., Any], task: Task) -> tuple[int, Any]:
    return number, function(*task)
