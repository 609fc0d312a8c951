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
import time
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress

from sqlalchemy import exists, or_, select

from kofn.campaigns.fold import Task, fail, fold, publish, read_task
from kofn.campaigns.learning import Learned, learn
from kofn.campaigns.lease import Lease
from kofn.campaigns.store.database import Store
from kofn.campaigns.store.schema import CAMPAIGNS, DECISIONS, EVENTS, STATES, TOTALS
from kofn.core import KofnError, NoSuchCampaign

INTERVAL = 0.5
"""Seconds between two folds of a campaign. Lower: reports are more recent, and folds take more of the processor."""

SOON = 0.02
"""Seconds until the next look while a policy is learning."""

SWEEP = 20.0
"""Seconds between two looks at all campaigns, for what a process has left that died before it folded."""

LEASE = 10.0
"""Seconds after which another process learns in place of one that has died."""

NICENESS = 15
"""How much the process that learns gives way to others: 19 is most. Beside a busy learner, the 99th percentile of the
time of a decision was 2.1 times as long without it, and 1.1 to 1.3 times with it."""

log = logging.getLogger("kofn.campaigns")

_C = CAMPAIGNS.c


class Learner:
    """Folds and learns. `step` does what is due, and returns the seconds until the next step."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pool: ProcessPoolExecutor | None = None
        self._learning: dict[int, tuple[Task, Future[Learned]]] = {}
        self._lease = Lease(store, "learner", LEASE)
        self._started = False
        self._folded = self._swept = -SWEEP
        store.learns_inline = False

    def step(self) -> float:
        """Publish what was learned, fold what has changed, and begin to learn what is due."""
        self._publish()
        now = time.monotonic()
        if now - self._folded >= INTERVAL:
            self._folded = now
            self._fold(self._changed(now))
            self._begin()
        return SOON if self._learning else max(SOON, self._folded + INTERVAL - time.monotonic())

    def stop(self) -> None:
        """End the process that learns."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

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
            except KofnError as why:
                log.error("campaign %d cannot be folded: %s", campaign, why)
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
            with suppress(NoSuchCampaign):
                task = read_task(self._store, campaign)
                if task is not None:
                    self._learning[campaign] = task, self._submit(task)

    def _submit(self, task: Task) -> Future[Learned]:
        try:
            return self._process().submit(learn, task.job)
        except BrokenProcessPool:  # it was killed while it did nothing
            self._pool = None
            return self._submit(task)

    def _process(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _give_way)
        return self._pool

    def _publish(self) -> None:
        for campaign, (task, future) in list(self._learning.items()):
            if not future.done():
                continue
            del self._learning[campaign]
            self._store.touch([campaign])
            try:
                publish(self._store, task, future.result())
            except NoSuchCampaign:
                continue
            except BrokenProcessPool:  # killed, or out of memory: another one tries again
                log.error("the process that learns has ended: starting another")
                self._pool = None
            except Exception as why:
                log.error("the policy of campaign %d failed", campaign, exc_info=why)
                with suppress(KofnError):
                    fail(self._store, task, why)


def _be_ready() -> None:
    """Load what policies need."""
    import kofn.policies.contextual
    import kofn.policies.thompson  # noqa: F401


def _give_way() -> None:
    """Let other processes have the processor first."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
