"""Group commit: operations that wait for the same lock are executed in one transaction and committed together.

An operation is acknowledged only after the commit. The first caller executes what has queued up, its own operation
included; when more has queued up meanwhile, a thread of the store takes over. So one thread alone works without
any other thread, and many callers share the cost of a commit.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from kofn.core import StoreError

MAX_GROUP = 256
"""Operations of one transaction. A higher value commits less often, and makes each commit's callers wait longer."""

MAX_QUEUED = 10_000
"""Operations that may wait for one lock. More are refused at once: they would wait longer than their callers do."""

MAX_LINGER = 0.005
"""Most seconds that a thread waits for the callers of its last group to return; never longer than the group took. A
higher value makes larger groups of slow callers, and others wait longer for callers that do not return."""

Outcome = tuple[Any, BaseException | None]
"""The result of an operation, or its error."""

Execute = Callable[[Sequence["Job"]], Sequence[Outcome]]
"""Executes a group in one transaction and returns the outcomes; if it raises, none of the operations took effect."""


class Promise(Protocol):
    """Where the result of an operation is delivered: a `concurrent.futures.Future`, or something like it."""

    def done(self) -> bool:
        """Return whether it has a result or an error."""

    def set_result(self, result: Any) -> None:
        """Deliver a result."""

    def set_exception(self, exception: BaseException | None) -> None:
        """Deliver an error."""


class _Awaited:
    """The promise of a thread that waits for its operation. It takes less time than a `Future`."""

    def __init__(self) -> None:
        self._outcome: Outcome | None = None
        self._pending = threading.Lock()
        self._pending.acquire()

    def done(self) -> bool:
        return self._outcome is not None

    def set_result(self, result: Any) -> None:
        self._outcome = result, None
        self._pending.release()

    def set_exception(self, exception: BaseException | None) -> None:
        self._outcome = None, exception
        self._pending.release()

    def result(self) -> Any:
        """Wait; then return the result, or raise the error."""
        self._pending.acquire()
        assert self._outcome is not None
        result, error = self._outcome
        if error is not None:
            raise error
        return result


NOWHERE: Promise = Future[Any]()
"""The promise of an operation that has not been queued."""


@dataclass(eq=False)
class Job:
    """An operation on a campaign, and what becomes of it. A heavy one is executed alone.

    `GroupCommit.run` sets `done`; `submit` delivers to the one that it was given.
    """

    campaign: int
    work: Callable[[Any], Any]
    heavy: bool = False
    done: Promise = NOWHERE
    batches: Collection[int] = ()  # numbers of the batches that it reads, so that a group reads them together
    requests: Collection[int] = ()  # likewise the keys of requests


@dataclass(eq=False)
class _Queue:
    leader: object  # stands for the caller or the thread that executes
    expected: int = 0  # how many jobs the leader waits for
    enough: threading.Condition | None = None  # notified when that number wait
    jobs: deque[Job] = field(default_factory=deque)
    group: Sequence[Job] = ()  # what is being executed
    led: bool = False  # whether its leader has begun


class GroupCommit:
    """The operations that wait for each lock, and who executes them.

    An interrupt (Ctrl-C) may reach the main thread between any two steps. So whoever leads a queue is its leader until
    the next one is certain, and `_abandon` leads every state in between back to one that others can use.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._queues: dict[int, _Queue] = {}
        self._mutex = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def run(self, lock: int, job: Job, execute: Execute) -> Any:
        """Execute a job, or wait until another thread has; return its result or raise its error."""
        job.done = done = _Awaited()
        try:
            if self._enqueue(lock, job, job):
                self._lead(lock, job, execute, job)
            return done.result()
        except BaseException:
            self._abandon(lock, job, execute)
            raise

    def submit(self, lock: int, job: Job, execute: Execute) -> None:
        """Let another thread execute a job, which delivers its result to `job.done`."""
        leader = object()
        try:
            if self._enqueue(lock, job, leader):
                with self._mutex:
                    self._start(lock, leader, execute)
        except BaseException:
            self._abandon(lock, leader, execute)
            raise

    def queued(self) -> int:
        """Return the number of operations that wait."""
        with self._mutex:
            return sum(len(queue.jobs) for queue in self._queues.values())

    def close(self) -> None:
        """Stop the threads, after what has queued up is executed. They start again on demand."""
        with self._mutex:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def _enqueue(self, lock: int, job: Job, leader: object) -> bool:
        """Append a job; return whether the caller must see to the queue, which then has this leader."""
        with self._mutex:
            queue = self._queues.get(lock)
            if queue is None:
                queue = _Queue(leader)
                queue.jobs.append(job)
                self._queues[lock] = queue
                return True
            if len(queue.jobs) >= MAX_QUEUED:
                raise StoreError(f"the store is busy: {MAX_QUEUED:,} operations already wait for it")
            queue.jobs.append(job)
            if queue.enough is not None and len(queue.jobs) == queue.expected:
                queue.enough.notify()
            return False

    def _start(self, lock: int, leader: object, execute: Execute) -> None:
        """Let a thread execute what has queued up, as this leader. The caller has the mutex."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "kofn-commit")
        self._pool.submit(self._lead, lock, leader, execute)

    def _lead(self, lock: int, leader: object, execute: Execute, own: Job | None = None) -> None:
        """Execute groups until nothing waits. A caller leaves the rest to a thread when its own job is done.

        A thread leaves it to the next free one if other queues wait for a thread: they take turns.
        """
        while group := self._next_group(lock, leader):
            began = time.monotonic()
            try:
                outcomes = execute(group)
            except Exception as why:
                outcomes = failed(why, len(group))
            taken, queued = time.monotonic() - began, self._queued_behind(lock, outcomes)
            for job, (result, error) in zip(group, outcomes, strict=True):
                if error is None:
                    job.done.set_result(result)
                else:
                    job.done.set_exception(error)
            if self._others_wait() if own is None else own.done.done():
                self._hand_over(lock, execute)
                return
            if own is None:
                self._linger(lock, queued + len(group), min(taken, MAX_LINGER))

    def _queued_behind(self, lock: int, outcomes: Sequence[Outcome]) -> int:
        """Return how many operations wait. If the store did not respond, fail them too: nobody waits twice."""
        broken = next((error for _, error in outcomes if isinstance(error, StoreError)), None)
        with self._mutex:
            queue = self._queues[lock]
            if broken is None:
                return len(queue.jobs)
            behind = list(queue.jobs)
            queue.group = [*queue.group, *behind]
            queue.jobs.clear()
        for job, (_, error) in zip(behind, failed(broken, len(behind)), strict=True):
            job.done.set_exception(error)
        return 0

    def _others_wait(self) -> bool:
        """Return whether a queue waits for a thread."""
        with self._mutex:
            return any(not queue.led for queue in self._queues.values())

    def _linger(self, lock: int, expected: int, seconds: float) -> None:
        """Wait this long at most until the callers of the last group have returned, so that they share a commit."""
        until = time.monotonic() + seconds
        with self._mutex:
            queue = self._queues[lock]
            queue.expected = min(expected, MAX_GROUP)
            queue.enough = queue.enough or threading.Condition(self._mutex)
            while len(queue.jobs) < queue.expected and (left := until - time.monotonic()) > 0:
                queue.enough.wait(left)
            queue.expected = 0

    def _next_group(self, lock: int, leader: object) -> Sequence[Job]:
        """Take the next group; if there is none, the queue is left to the next caller.

        There is none for a leader that was replaced either: an interrupt may have started two threads for one queue.
        """
        with self._mutex:
            queue = self._queues.get(lock)
            if queue is None or queue.leader is not leader:
                return ()
            queue.led, size = True, _group_size(queue.jobs)
            queue.group = list(islice(queue.jobs, size))
            for _ in range(size):
                queue.jobs.popleft()
            if not size:
                del self._queues[lock]
            return queue.group

    def _hand_over(self, lock: int, execute: Execute) -> None:
        """Leave the queue to a thread if something waits, else to the next caller."""
        with self._mutex:
            queue = self._queues[lock]
            if not queue.jobs:
                del self._queues[lock]
                return
            leader = object()
            self._start(lock, leader, execute)  # the thread waits for the mutex
            queue.leader, queue.group, queue.led = leader, (), False

    def _abandon(self, lock: int, leader: object, execute: Execute) -> None:
        """Leave the queue to others, if this is its leader, whom an interrupt has stopped (Ctrl-C)."""
        with self._mutex:
            queue = self._queues.get(lock)
            if queue is None or queue.leader is not leader:
                return
            group = dict.fromkeys(queue.group)
            queue.jobs = deque(job for job in queue.jobs if job not in group)  # some may be in both
        for job in group:
            if not job.done.done():
                job.done.set_exception(StoreError("the thread that executed this operation was interrupted"))
        self._hand_over(lock, execute)


def _group_size(jobs: Collection[Job]) -> int:
    """Return how many of the first jobs are executed together: a heavy one is alone."""
    size = 0
    for job in islice(jobs, MAX_GROUP):
        if job.heavy:
            return size or 1
        size += 1
    return size


def failed(error: Exception, count: int) -> list[Outcome]:
    """Return the outcomes of operations that failed together: an error for each, since raising it adds a traceback."""
    errors = [copy(error) for _ in range(count)]
    for each in errors:
        each.__cause__ = error
    return [(None, each) for each in errors]
