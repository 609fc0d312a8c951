"""Calls the score for the subsets of a round: in this thread, in threads, in processes, on Dask or in an event loop."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

from kofn.backends import Backend, check_backend, open_backend
from kofn.backends.local import interrupts_ignored
from kofn.core import BadBackend, BadInput, Subset


class ScoreCall(NamedTuple):
    """A call of the score: its number, the arms, and the candidates that the score gets."""

    number: int
    arms: Subset
    subset: list[Any]


class Outcome(NamedTuple):
    """What a call returned and the seconds it took, or the exception that it raised."""

    value: Any
    seconds: float
    error: Exception | None = None


Submit = Callable[[Callable[..., Any], list[Any]], "Future[Outcome]"]
Done = Callable[[ScoreCall, Outcome], bool]
"""Called in the main thread when a call has ended; returns whether further calls may start."""


def measured(score: Callable[..., Any], subset: list[Any]) -> Outcome:
    """Call the score, and return its value or its exception, with the seconds it took."""
    start = time.perf_counter()
    try:
        value, error = score(subset), None
    except Exception as why:
        value, error = None, why
    return Outcome(value, time.perf_counter() - start, error)


async def measured_async(score: Callable[..., Awaitable[Any]], subset: list[Any]) -> Outcome:
    """Await the score, and return its value or its exception, with the seconds it took."""
    start = time.perf_counter()
    try:
        value, error = await score(subset), None
    except Exception as why:
        value, error = None, why
    return Outcome(value, time.perf_counter() - start, error)


def measured_elsewhere(score: Callable[..., Any], subset: list[Any]) -> Outcome:
    """Call the score in another process; an exception that cannot be sent back becomes its text."""
    outcome = measured(score, subset)
    if outcome.error is None:
        return outcome
    try:
        pickle.loads(pickle.dumps(outcome.error))
    except Exception:
        return outcome._replace(error=RuntimeError(f"{type(outcome.error).__name__}: {outcome.error}"))
    return outcome


@contextmanager
def open_executor(backend: Backend, workers: int) -> Iterator[Submit | None]:
    """Yield a function that submits a call to threads, processes or Dask; None for calls in this thread."""
    if backend == "threads" and workers == 1:
        yield None
    elif backend == "threads":
        with ThreadPoolExecutor(workers, thread_name_prefix="kofn-score") as threads:
            yield lambda score, subset: threads.submit(measured, score, subset)
    elif backend == "processes":
        from joblib.externals.loky import get_reusable_executor

        processes = get_reusable_executor(workers)

        def submit(score: Callable[..., Any], subset: list[Any]) -> Future[Outcome]:
            with interrupts_ignored():  # worker processes start here, and inherit it
                found: Future[Outcome] = processes.submit(measured_elsewhere, score, subset)
                return found

        try:
            yield submit
        except KeyboardInterrupt:
            processes.shutdown(wait=False, kill_workers=True)
            raise
    else:
        with open_backend(backend, workers if backend == "dask" else None) as (client, _):
            cluster = cast(Any, client).get_executor(pure=False)  # pure would call once for the same subset
            yield lambda score, subset: cluster.submit(measured_elsewhere, score, subset)


def check_choose_backend(backend: Any) -> None:
    """Refuse an unknown backend."""
    if backend in ("threads", "processes"):
        return
    try:
        if backend == "local":
            raise BadInput("local")
        check_backend(backend)
    except BadInput:
        raise BadInput(
            f"backend must be 'threads', 'processes', 'dask', the address of a cluster such as "
            f"'dask:tcp://10.0.0.1:8786', or a distributed.Client, not {backend!r}"
        ) from None


def call_round(
    submit: Submit | None, score: Callable[..., Any], calls: Sequence[ScoreCall], workers: int, done: Done
) -> None:
    """Call the score for these subsets in order, with at most `workers` in flight, until `done` returns False."""
    if submit is None:
        for call in calls:
            if not done(call, measured(score, call.subset)):
                return
        return
    waiting, going = list(reversed(calls)), True
    in_flight: dict[Future[Outcome], ScoreCall] = {}
    while in_flight or (waiting and going):
        while waiting and going and len(in_flight) < workers:
            call = waiting.pop()
            in_flight[submit(score, call.subset)] = call
        for future in wait(in_flight, return_when=FIRST_COMPLETED).done:
            going = done(in_flight.pop(future), _result(future)) and going


def _result(future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except BrokenExecutor as why:
        raise BadBackend("a worker process was killed, perhaps for lack of memory: use fewer workers") from why
    except (pickle.PicklingError, TypeError, AttributeError) as why:
        raise BadBackend(f"the score or its candidates cannot be sent to other processes ({why}): use threads") from why


async def call_round_async(
    score: Callable[..., Awaitable[Any]], calls: Sequence[ScoreCall], workers: int, done: Done
) -> None:
    """Await the score for these subsets in order, with at most `workers` in flight, until `done` returns False."""
    waiting, going = list(reversed(calls)), True
    in_flight: dict[asyncio.Task[Outcome], ScoreCall] = {}
    try:
        while in_flight or (waiting and going):
            while waiting and going and len(in_flight) < workers:
                call = waiting.pop()
                in_flight[asyncio.create_task(measured_async(score, call.subset))] = call
            for task in (await asyncio.wait(in_flight, return_when=asyncio.FIRST_COMPLETED))[0]:
                going = done(in_flight.pop(task), task.result()) and going
    finally:
        for task in in_flight:
            task.cancel()
