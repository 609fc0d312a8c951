"""Group commit: operations that wait are executed in one transaction and committed together.

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
"""Operations that may wait. More are refused at once: they would wait longer than their callers do."""

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
    """An operation, and what becomes of it. A heavy one is executed alone.

    `GroupCommit.run` sets `done`; `submit` delivers to the one that it was given.
    """

    heavy: bool = field(default=False, kw_only=True)
    done: Promise = field(default=NOWHERE, kw_only=True)


@dataclass(eq=False)
class _Queue:
    leader: object  # stands for the caller or the thread that executes
    expected: int = 0  # how many jobs the leader waits for
    enough: threading.Condition | None = None  # notified when that number wait
    jobs: deque[Job] = field(default_factory=deque)
    group: Sequence[Job] = ()  # what is being executed


class GroupCommit:
    """The operations that wait, and who executes them: `execute` takes a group, and returns the outcomes.

    An interrupt (Ctrl-C) may reach the main thread between any two steps. So whoever leads the queue is its leader
    until the next one is certain, and `_abandon` leads every state in between back to one that others can use.
    """

    def __init__(self, execute: Execute) -> None:
        self._execute = execute
        self._queue: _Queue | None = None
        self._mutex = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def run(self, job: Job) -> Any:
        """Execute a job, or wait until another thread has; return its result or raise its error."""
        job.done = done = _Awaited()
        try:
            if self._enqueue(job, job):
                self._lead(job, job)
            return done.result()
        except BaseException:
            self._abandon(job)
            raise

    def submit(self, job: Job) -> None:
        """Let another thread execute a job, which delivers its result to `job.done`."""
        leader = object()
        try:
            if self._enqueue(job, leader):
                with self._mutex:
                    self._start(leader)
        except BaseException:
            self._abandon(leader)
            raise

    def queued(self) -> int:
        """Return the number of operations that wait."""
        with self._mutex:
            return 0 if self._queue is None else len(self._queue.jobs)

    def close(self) -> None:
        """Stop the thread, after what has queued up is executed. It starts again on demand."""
        with self._mutex:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def _enqueue(self, job: Job, leader: object) -> bool:
        """Append a job; return whether the caller must see to the queue, which then has this leader."""
        with self._mutex:
            queue = self._queue
            if queue is None:
                queue = _Queue(leader)
                queue.jobs.append(job)
                self._queue = queue
                return True
            if len(queue.jobs) >= MAX_QUEUED:
                raise StoreError(f"the store is busy: {MAX_QUEUED:,} operations already wait for it")
            queue.jobs.append(job)
            if queue.enough is not None and len(queue.jobs) == queue.expected:
                queue.enough.notify()
            return False

    def _start(self, leader: object) -> None:
        """Let a thread execute what has queued up, as this leader. The caller has the mutex."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "kofn-commit")
        self._pool.submit(self._lead, leader)

    def _lead(self, leader: object, own: Job | None = None) -> None:
        """Execute groups until nothing waits. A caller leaves the rest to a thread when its own job is done."""
        while group := self._next_group(leader):
            began = time.monotonic()
            try:
                outcomes = self._execute(group)
            except Exception as why:
                outcomes = failed(why, len(group))
            taken, queued = time.monotonic() - began, self._queued_behind(outcomes)
            for job, (result, error) in zip(group, outcomes, strict=True):
                if error is None:
                    job.done.set_result(result)
                else:
                    job.done.set_exception(error)
            if own is not None and own.done.done():
                self._hand_over()
                return
            if own is None:
                self._linger(queued + len(group), min(taken, MAX_LINGER))

    def _queued_behind(self, outcomes: Sequence[Outcome]) -> int:
        """Return how many operations wait. If the store did not respond, fail them too: nobody waits twice."""
        broken = next((error for _, error in outcomes if type(error) is StoreError), None)
        queue = self._queue
        assert queue is not None
        with self._mutex:
            if broken is None:
                return len(queue.jobs)
            behind = list(queue.jobs)
            queue.group = [*queue.group, *behind]
            queue.jobs.clear()
        for job, (_, error) in zip(behind, failed(broken, len(behind)), strict=True):
            job.done.set_exception(error)
        return 0

    def _linger(self, expected: int, seconds: float) -> None:
        """Wait this long at most until the callers of the last group have returned, so that they share a commit."""
        until = time.monotonic() + seconds
        queue = self._queue
        assert queue is not None
        with self._mutex:
            queue.expected = min(expected, MAX_GROUP)
            queue.enough = queue.enough or threading.Condition(self._mutex)
            while len(queue.jobs) < queue.expected and (left := until - time.monotonic()) > 0:
                queue.enough.wait(left)
            queue.expected = 0

    def _next_group(self, leader: object) -> Sequence[Job]:
        """Take the next group; if there is none, the queue is left to the next caller.

        There is none for a leader that was replaced either: an interrupt may have started two threads for the queue.
        """
        with self._mutex:
            queue = self._queue
            if queue is None or queue.leader is not leader:
                return ()
            size = _group_size(queue.jobs)
            queue.group = list(islice(queue.jobs, size))
            for _ in range(size):
                queue.jobs.popleft()
            if not size:
                self._queue = None
            return queue.group

    def _hand_over(self) -> None:
        """Leave the queue to a thread if something waits, else to the next caller."""
        with self._mutex:
            queue = self._queue
            if queue is None or not queue.jobs:
                self._queue = None
                return
            leader = object()
            self._start(leader)  # the thread waits for the mutex
            queue.leader, queue.group = leader, ()

    def _abandon(self, leader: object) -> None:
        """Leave the queue to others, if this is its leader, whom an interrupt has stopped (Ctrl-C)."""
        with self._mutex:
            queue = self._queue
            if queue is None or queue.leader is not leader:
                return
            group = dict.fromkeys(queue.group)
            queue.jobs = deque(job for job in queue.jobs if job not in group)  # some may be in both
        for job in group:
            if not job.done.done():
                job.done.set_exception(StoreError("the thread that executed this operation was interrupted"))
        self._hand_over()


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
