"""Runs in processes of this machine, by joblib."""

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
    with _interrupts_ignored() if min(workers, len(calls)) > 1 else nullcontext():  # worker processes start here
        results = parallel(calls)
    try:
        for each in results:  # noqa: UP028  # `yield from` would close them first, with joblib's warning
            yield each
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            results.close()


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
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
