"""One transaction on one campaign: its locked row, and on demand its arms, its policy, its plan and its decisions.

Every operation of a campaign is a function of a Transaction. It changes `tx.row`, `tx.plan` and `tx.batches`, which are
written once, at the end; other tables are read and written with `tx.execute`. Operations that wait for the same lock
share a transaction (`group_commit`).
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from sqlalchemy import Connection, bindparam, select

from kofn.campaigns.records.batches import Batches
from kofn.campaigns.records.options import Options, options_from
from kofn.campaigns.records.plan_rows import PlanRows
from kofn.campaigns.records.rows import CampaignRow, PolicySnapshot, Roster, ask_row, read_row, update_row
from kofn.campaigns.store.database import Store
from kofn.campaigns.store.group_commit import Job, Outcome, failed
from kofn.campaigns.store.schema import BUCKETS, EVENTS, ROSTERS, STATES
from kofn.campaigns.store.statements import Driver, Insert, Statement
from kofn.core import KofnError, StoreError
from kofn.policies.registry import restore

T = TypeVar("T")

MAX_POINTS = 2000
"""Most slots of the history. When there are more, slots are made twice as wide until half as many are left."""

NARROWEST = 0.125
"""Width of the first slots in seconds. A power of two, so that slots merge exactly."""

MAX_EVENTS = 1000
"""Events that are kept; older ones are deleted."""

HEAVY = 1000
"""Decisions or rewards from which a call has a separate transaction, so that small calls do not wait for it."""

_COUNT = Statement(
    BUCKETS.update()
    .where(BUCKETS.c.campaign == bindparam("c"), BUCKETS.c.slot == bindparam("s"))
    .values(
        decided=BUCKETS.c.decided + bindparam("d"),
        rewarded=BUCKETS.c.rewarded + bindparam("r"),
        total=BUCKETS.c.total + bindparam("t"),
        waited=BUCKETS.c.waited + bindparam("w"),
    )
)
_FIND_SLOT = Statement(
    select(BUCKETS.c.slot).where(BUCKETS.c.campaign == bindparam("c"), BUCKETS.c.slot == bindparam("s"))
)
_INSERT_SLOT = Insert(BUCKETS)
_ROSTER = Statement(select(ROSTERS.c.names, ROSTERS.c.active).where(ROSTERS.c.campaign == bindparam("c")))
_STATE = Statement(select(STATES.c.record, STATES.c.played).where(STATES.c.campaign == bindparam("c")))
_INSERT_EVENT = Statement(EVENTS.insert())

Slot = tuple[int, int, float, float]
Slots = dict[int, Slot]
"""Decisions, rewards, their sum, and the seconds that they took, by number of the slot."""

EMPTY_SLOT: Slot = (0, 0, 0.0, 0.0)


@dataclass
class Working:
    """What a process keeps of a campaign after a transaction; valid until another process writes to the campaign."""

    row: CampaignRow
    plan: PlanRows
    slot: int | None


class Transaction:
    """A transaction on one campaign."""

    def __init__(
        self,
        store: Store,
        connection: Connection,
        row: CampaignRow,
        known: Working | None = None,
        driver: Driver | None = None,
        batches: Batches | None = None,
    ) -> None:
        self.store = store
        self.connection = connection
        self.driver = driver or Driver(connection)
        self.row = row
        self.plan = known.plan if known else PlanRows()
        self._slot = known.slot if known else None  # a slot of the history that is known to exist
        self.batches = batches or Batches()
        self.now = store.clock()
        self.changes = 0  # grows when an operation begins to change something
        self.after_commit: list[Callable[[], None]] = []
        self._added = EMPTY_SLOT
        self._roster: Roster | None = None
        self._snapshot: PolicySnapshot | None = None

    @property
    def id(self) -> int:
        """The campaign's id."""
        return self.row.id

    @property
    def options(self) -> Options:
        """The campaign's options."""
        return options_from(self.row.options)

    def changing(self) -> None:
        """Announce a change. An operation that fails before it leaves the transaction as it was."""
        self.changes += 1

    def execute(self, statement: Any, values: Any = None) -> Any:
        """Execute a statement of SQLAlchemy's, after everything that is not yet written has been written."""
        self.flush()
        return self.connection.execute(statement, values)

    @property
    def roster(self) -> Roster:
        """The campaign's arms; read from the store only if they may have changed since this process last read them."""
        if self._roster is None:
            self._recall()
        if self._roster is None:
            ((names, active),) = self.driver.rows(_ROSTER, {"c": self.id})
            self._roster = Roster(self.row.roster_version, json.loads(names), json.loads(active))
            self._remember_reading()
        return self._roster

    @property
    def snapshot(self) -> PolicySnapshot:
        """The policy as of its last update; read from the store only if this process does not have that update."""
        if self._snapshot is None:
            self._recall()
        if self._snapshot is None:
            ((record, counts),) = self.driver.rows(_STATE, {"c": self.id})
            played = np.array(json.loads(counts), np.int64)
            self._snapshot = PolicySnapshot(self.row.step, self.roster, restore(json.loads(record)), played)
            self._remember_reading()
        return self._snapshot

    @snapshot.setter
    def snapshot(self, snapshot: PolicySnapshot) -> None:
        self._snapshot, self._roster = snapshot, snapshot.roster
        self._learned = True

    _learned = False  # whether the snapshot is new: other transactions see it after the commit only

    def _recall(self) -> None:
        """Use what this process has read of the same update of the policy."""
        found = self.store.recall(self.id, self.row.stamp)
        if found is not None:
            self._roster, self._snapshot = found

    def _remember_reading(self) -> None:
        if not self._learned:
            self.store.remember(self.id, self.row.stamp, self._roster, self._snapshot)

    def note(self, kind: str, message: str = "") -> None:
        """Record an event."""
        self.row.events += 1
        event = {"campaign": self.id, "number": self.row.events, "at": self.now, "kind": kind, "message": message}
        self.driver.run(_INSERT_EVENT, event)
        if self.row.events % 100 == 0:
            old = EVENTS.c.number <= self.row.events - MAX_EVENTS
            self.execute(EVENTS.delete().where(EVENTS.c.campaign == self.id, old))

    def count(self, *, decided: int = 0, rewarded: int = 0, total: float = 0.0, waited: float = 0.0) -> None:
        """Add plays and rewards to the history, in the current slot."""
        self._added = _added(self._added, (decided, rewarded, total, waited))

    def _make_slot(self) -> None:
        """Make the current slot of the history, unless it is there; make slots wider if there are too many."""
        slot = self._current_slot()
        if slot == self._slot or self._added == EMPTY_SLOT:
            return
        if not self.driver.rows(_FIND_SLOT, {"c": self.id, "s": slot}):
            self._insert_slots({slot: EMPTY_SLOT})
            self.row.buckets += 1
            if self.row.buckets > MAX_POINTS:
                self._widen_slots()
        self._slot = self._current_slot()

    def _current_slot(self) -> int:
        return math.floor(self.now / self.row.slot_width)

    def _write_history(self) -> None:
        if self._added != EMPTY_SLOT:
            decided, rewarded, total, waited = self._added
            added = {"d": decided, "r": rewarded, "t": total, "w": waited}
            self.driver.run(_COUNT, {"c": self.id, "s": self._slot, **added})
            self._added = EMPTY_SLOT

    def slots(self) -> Slots:
        """Return the history, oldest slot first."""
        chosen = select(BUCKETS).where(BUCKETS.c.campaign == self.id).order_by(BUCKETS.c.slot)
        return {row.slot: (row.decided, row.rewarded, row.total, row.waited) for row in self.execute(chosen)}

    def _insert_slots(self, slots: Slots) -> None:
        names = "decided", "rewarded", "total", "waited"
        rows = [
            {"campaign": self.id, "slot": slot, **dict(zip(names, sums, strict=True))} for slot, sums in slots.items()
        ]
        self.driver.run_many(_INSERT_SLOT, rows)

    def _widen_slots(self) -> None:
        width, slots = merge_slots(self.slots(), MAX_POINTS // 2)
        self.row.slot_width *= width
        self.row.buckets = len(slots)
        self.execute(BUCKETS.delete().where(BUCKETS.c.campaign == self.id))
        self._insert_slots(slots)

    def flush(self) -> None:
        """Write the plan and the batches that have changed."""
        self.batches.write(self)
        self.plan.write(self)

    def forget_batches(self) -> None:
        """Read batches again: rows were deleted."""
        self.flush()
        self.batches = Batches()

    def write(self, *, commit: bool = False) -> None:
        """Write everything, and the campaign's row at the end; with `commit`, all of it is sent with the commit."""
        self._make_slot()
        with self.driver.pipeline():
            self.flush()
            self._write_history()
            update_row(self.driver, self.row, self.now)
            if commit:
                self.connection.connection.commit()

    def remember(self) -> None:
        """Keep what the next transactions can use. Call this after the commit."""
        if self._learned:
            self.store.remember(self.id, self.row.stamp, self._roster, self._snapshot)
        self.store.keep_working(self.id, Working(self.row, self.plan, self._slot))
        for each in self.after_commit:
            each()


def _added(one: Slot, other: Slot) -> Slot:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]


def merge_slots(slots: Mapping[int, Slot], most: int) -> tuple[int, Slots]:
    """Merge neighbouring slots, 2, 4, 8... at a time, until at most `most` are left; return that number too."""
    by, merged = 1, dict(slots)
    while len(merged) > most:
        by *= 2
        sums: Slots = defaultdict(lambda: EMPTY_SLOT)
        for slot, here in slots.items():
            sums[slot // by] = _added(sums[slot // by], here)
        merged = dict(sums)
    return by, merged


# Operations.


def run(store: Store, job: Job) -> Any:
    """Execute an operation, together with others that wait: all of it is stored, or nothing."""
    return store.groups.run(store.lock_of(job.campaign), job, partial(_execute, store))


def submit(store: Store, job: Job) -> None:
    """Let a thread of the store execute an operation, which delivers its result to `job.done`."""
    store.groups.submit(store.lock_of(job.campaign), job, partial(_execute, store))


def _execute(store: Store, jobs: Sequence[Job]) -> list[Outcome]:
    """Execute operations in one transaction. One that fails does not fail the others."""
    try:
        return _attempt(store, jobs)
    except StoreError:
        raise
    except Exception:
        if len(jobs) == 1:
            raise
    outcomes: list[Outcome] = []  # one of them failed after it had changed something, and nothing is stored
    for job in jobs:
        try:
            outcomes += _attempt(store, [job])
        except StoreError as why:
            return outcomes + failed(why, len(jobs) - len(outcomes))
        except Exception as why:
            outcomes.append((None, why))
    return outcomes


def _attempt(store: Store, jobs: Sequence[Job]) -> list[Outcome]:
    """Execute operations in one transaction and commit it; return the result or the error of each."""
    outcomes: list[Outcome] = []
    opened: dict[int, Transaction] = {}

    def execute(connection: Connection) -> None:
        for job in jobs:
            try:
                tx = opened.get(job.campaign) or _begin(store, connection, job.campaign, jobs)
            except KofnError as why:
                if isinstance(why, StoreError):
                    raise
                outcomes.append((None, why))
                continue
            opened[job.campaign] = tx
            before = tx.changes
            try:
                outcomes.append((job.work(tx), None))
            except KofnError as why:
                if tx.changes != before or isinstance(why, StoreError):
                    raise
                outcomes.append((None, why))
        for tx in opened.values():
            if tx.changes:
                tx.write(commit=store.locks_campaigns)

    store.transact(execute)
    for tx in opened.values():
        tx.remember()
    return outcomes


def _begin(store: Store, connection: Connection, campaign: int, jobs: Sequence[Job]) -> Transaction:
    """Lock a campaign, and read together what its operations would read one after another.

    If no other process has written to it, continue with the row and the plan of this process.
    """
    known: Working | None = store.take_working(campaign)
    ours = [job for job in jobs if job.campaign == campaign]
    firsts = {first for job in ours for first in job.batches}
    requests = {request for job in ours for request in job.requests}
    driver, batches, began = Driver(connection), Batches(), time.monotonic()
    with driver.pipeline():  # all of it is sent at once
        answer = ask_row(driver, campaign, known.row if known else None, lock=True)
        keep = batches.ask(driver, campaign, firsts, requests)
        row = answer()
        keep()
    if store.locks_campaigns:
        store.observe_wait(time.monotonic() - began)
    return Transaction(store, connection, row, known if known and row is known.row else None, driver, batches)


@contextmanager
def reading(store: Store, campaign: int) -> Iterator[Transaction]:
    """Read the campaign: all of the block sees the same moment."""
    with store.read() as connection:
        yield Transaction(store, connection, read_row(Driver(connection), campaign))
