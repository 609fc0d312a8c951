"""The learner of a service: it folds campaigns that have changed, and lets their policies learn in another process.

Every process of a service has one, and folds what it has appended: folds are short transactions. One of them, which
has the lease, lets policies learn. That may take seconds: it happens in a process of low priority without access to the
store. If that process or this one dies, what was to be learned is still closed in the store, and is learned by the next
one that has the lease.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress

from sqlalchemy import exists, or_, select

from kofn.campaigns.fold import Task, fail, fold, is_of_store, publish, read_task
from kofn.campaigns.learning import Learned, learn
from kofn.campaigns.lease import Lease
from kofn.campaigns.store.database import Store
from kofn.campaigns.store.schema import CAMPAIGNS, DECISIONS, EVENTS, STATES, TOTALS
from kofn.core import KofnError, NoSuchCampaign

INTERVAL, LONGEST, SHARE = 0.5, 0.9, 0.1
"""Least and most seconds between two folds of a campaign; between them, folds take this share of the time. Shorter:
reports are more recent, and appending many campaigns waits more often."""

SOON = 0.02
"""Seconds until the next look while a policy is learning."""

SWEEP = 20.0
"""Seconds between two looks at all campaigns, for what a process has left that died before it folded."""

LEASE = 10.0
"""Seconds after which another process learns in place of one that has died."""

MOST_CRASHES = 3
"""Processes that may end while they learn a campaign, before its policy is taken for the reason. Higher: a policy that
needs too much memory keeps others from learning for longer."""

NICENESS = 15
"""How much the process that learns gives way to others; 19 is most. Lower: decisions take longer beside a policy that
learns. Linux's idle scheduling would be more, but then nothing is learned while all processors are busy."""

log = logging.getLogger("kofn.campaigns")

_C = CAMPAIGNS.c


class Learner:
    """Folds and learns. `step` does what is due, and returns the seconds until the next step."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pool: Executor | None = None
        self._learning: dict[int, tuple[Task, Future[Learned]]] = {}
        self._crashes: Counter[int] = Counter()  # processes in a row that have ended while they learned a campaign
        self._lease = Lease(store, "learner", LEASE)
        self._started = False
        self._swept = self._next = -SWEEP
        self._spent = 0.0  # seconds since the last fold
        store.learns_inline = False

    def step(self) -> float:
        """Publish what was learned, fold what has changed, and begin to learn what is due."""
        began = time.monotonic()
        self._publish()
        if folds := began >= self._next:
            self._fold(self._changed(began))
            self._begin()
        now = time.monotonic()
        self._spent += now - began
        if folds:
            self._next, self._spent = began + min(LONGEST, max(INTERVAL, self._spent / SHARE)), 0.0
        return SOON if self._learning else max(SOON, self._next - now)

    def stop(self) -> None:
        """End the process that learns, and leave learning to others."""
        self._store.learns_inline = True
        pool, self._pool = self._pool, None
        self._learning.clear()
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
        with suppress(KofnError):
            self._lease.release()

    def _changed(self, now: float) -> Iterable[int]:
        """Return the campaigns that may have something to fold."""
        found = self._store.take_touched()
        with self._store.read() as connection:
            due = select(_C.id).where(_C.next_due <= self._store.now(connection))
            found.update(connection.execute(due).scalars())
            if now - self._swept >= SWEEP:
                self._swept = now
                newer = [
                    exists().where(table.c.campaign == _C.id, table.c.number > cut)
                    for table, cut in (
                        (DECISIONS, _C.cut_decisions),
                        (EVENTS, _C.cut_events),
                        (TOTALS, _C.cut_totals),
                    )
                ]
                found.update(connection.execute(select(_C.id).where(or_(*newer))).scalars())
        return found

    def _fold(self, campaigns: Iterable[int]) -> None:
        for campaign in campaigns:
            try:
                fold(self._store, campaign)
            except NoSuchCampaign:
                continue
            except Exception as why:  # the others are folded
                unexpected = None if isinstance(why, KofnError) else why
                log.error("campaign %d cannot be folded: %s", campaign, why, exc_info=unexpected)
                self._store.touch([campaign])

    def _begin(self) -> None:
        """Give the policies that have something to learn to the process that learns."""
        if not self._lease.held():
            return
        if not self._started:  # the process takes a second to start
            self._started = True
            self._process().submit(_be_ready)
        behind = select(_C.id).join(STATES, STATES.c.campaign == _C.id).where(STATES.c.step < _C.step - 1)
        with self._store.read() as connection:
            waiting = set(connection.execute(behind).scalars())
        for campaign in sorted(waiting - self._learning.keys()):
            try:
                task = read_task(self._store, campaign)
                if task is not None:
                    self._learning[campaign] = task, self._submit(task)
            except Exception as why:  # the others learn
                self._fail(campaign, None, why)

    def _submit(self, task: Task) -> Future[Learned]:
        try:
            return self._process().submit(learn, task.job)
        except BrokenProcessPool:  # it was killed while it did nothing
            self._pool = None
            return self._submit(task)

    def _process(self) -> Executor:
        if self._pool is None:
            self._pool = new_process(NICENESS)
        return self._pool

    def _publish(self) -> None:
        for campaign, (task, future) in list(self._learning.items()):
            if not future.done():
                continue
            del self._learning[campaign]
            self._store.touch([campaign])
            try:
                publish(self._store, task, future.result())
                self._crashes.pop(campaign, None)
            except BrokenProcessPool as why:  # killed, or out of memory: another one tries again
                if self._pool is None:
                    continue  # it waited for the process
                log.error("the process that learns has ended: starting another")
                self._pool = None
                self._crashes[campaign] += 1
                if self._crashes[campaign] >= MOST_CRASHES:
                    self._fail(campaign, task, why)
            except Exception as why:
                self._fail(campaign, task, why)

    def _fail(self, campaign: int, task: Task | None, why: Exception) -> None:
        if isinstance(why, NoSuchCampaign):
            return
        if is_of_store(why):  # what was learned is lost, and is learned again
            log.error("what campaign %d has learned is not stored: %s", campaign, why)
            return
        log.error("the policy of campaign %d failed", campaign, exc_info=why)
        with suppress(KofnError):
            fail(self._store, campaign, task, why)


def new_process(niceness: int = 0) -> Executor:
    """Return a process for work that takes long, such as learning."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(niceness,))


def _be_ready() -> None:
    """Load what policies need."""
    import kofn.policies.contextual
    import kofn.policies.thompson  # noqa: F401


def _begin(niceness: int) -> None:
    """Let other processes have the processor first, leave Ctrl-C to the service, and end when it dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(niceness)


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
