"""One transaction on one campaign: its locked row, and on demand its arms and its policy.

Every operation of a campaign is a function of a Transaction. It changes `tx.row`, reads and writes other tables with
`tx.execute`, and the row is written once, at the end.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from sqlalchemy import Connection, bindparam, select

from kofn.campaigns.rows import CampaignRow, PolicySnapshot, Roster, read_row, update_row
from kofn.campaigns.schema import BUCKETS, EVENTS, ROSTERS, STATES
from kofn.campaigns.store import Store
from kofn.policies.registry import restore

MAX_POINTS = 2000
"""Most slots of the history. When there are more, slots are made twice as wide until half as many are left."""

NARROWEST = 0.125
"""Width of the first slots in seconds. A power of two, so that slots merge exactly."""

MAX_EVENTS = 1000
"""Events that are kept; older ones are deleted."""

_COUNT = (
    BUCKETS.update()
    .where(BUCKETS.c.campaign == bindparam("c"), BUCKETS.c.slot == bindparam("s"))
    .values(
        decided=BUCKETS.c.decided + bindparam("d"),
        rewarded=BUCKETS.c.rewarded + bindparam("r"),
        total=BUCKETS.c.total + bindparam("t"),
    )
)

Slots = dict[int, tuple[int, int, float]]
"""Decisions, rewards and their sum, by number of the slot."""


class Transaction:
    """A transaction on one campaign."""

    def __init__(self, store: Store, connection: Connection, row: CampaignRow) -> None:
        self.store = store
        self.connection = connection
        self.execute = connection.execute
        self.row = row
        self.now = store.clock()
        self._roster: Roster | None = None
        self._snapshot: PolicySnapshot | None = None
        self._learned = False  # whether the snapshot is new; the store caches it after the commit only

    @property
    def id(self) -> int:
        """The campaign's id."""
        return self.row.id

    @property
    def roster(self) -> Roster:
        """The campaign's arms; read from the store only if they have changed since this process last read them."""
        if self._roster is None:
            cached = self.store.cache.get(self.id)
            roster = cached.roster if isinstance(cached, PolicySnapshot) else cached
            if isinstance(roster, Roster) and roster.version == self.row.roster_version:
                self._roster = roster
            else:
                self._roster = self._read_roster()
        return self._roster

    def _read_roster(self) -> Roster:
        chosen = select(ROSTERS.c.names, ROSTERS.c.active).where(ROSTERS.c.campaign == self.id)
        found = self.execute(chosen).one()
        roster = Roster(self.row.roster_version, json.loads(found.names), json.loads(found.active))
        self.store.remember(self.id, roster)
        return roster

    @property
    def snapshot(self) -> PolicySnapshot:
        """The policy as of its last update; read from the store only if this process does not have that step."""
        if self._snapshot is None:
            cached = self.store.cache.get(self.id)
            if isinstance(cached, PolicySnapshot) and cached.step == self.row.step:
                self._snapshot = cached
            else:
                self._snapshot = self._read_snapshot()
        return self._snapshot

    @snapshot.setter
    def snapshot(self, snapshot: PolicySnapshot) -> None:
        self._snapshot, self._roster, self._learned = snapshot, snapshot.roster, True

    def _read_snapshot(self) -> PolicySnapshot:
        found = self.execute(select(STATES).where(STATES.c.campaign == self.id)).one()
        played = np.array(json.loads(found.played), np.int64)
        snapshot = PolicySnapshot(self.row.step, self.roster, restore(json.loads(found.record)), played)
        self.store.remember(self.id, snapshot)
        return snapshot

    def note(self, kind: str, message: str = "") -> None:
        """Record an event."""
        self.row.events += 1
        event = {"campaign": self.id, "number": self.row.events, "at": self.now, "kind": kind, "message": message}
        self.execute(EVENTS.insert(), event)
        if self.row.events % 100 == 0:
            old = EVENTS.c.number <= self.row.events - MAX_EVENTS
            self.execute(EVENTS.delete().where(EVENTS.c.campaign == self.id, old))

    def count(self, *, decided: int = 0, rewarded: int = 0, total: float = 0.0) -> None:
        """Add plays and rewards to the history, in the current slot."""
        slot = math.floor(self.now / self.row.slot_width)
        if self.execute(_COUNT, {"c": self.id, "s": slot, "d": decided, "r": rewarded, "t": total}).rowcount:
            return
        self._insert_slots({slot: (decided, rewarded, total)})
        self.row.buckets += 1
        if self.row.buckets > MAX_POINTS:
            self._widen_slots()

    def slots(self) -> Slots:
        """Return the history, oldest slot first."""
        chosen = select(BUCKETS).where(BUCKETS.c.campaign == self.id).order_by(BUCKETS.c.slot)
        return {row.slot: (row.decided, row.rewarded, row.total) for row in self.execute(chosen)}

    def _insert_slots(self, slots: Slots) -> None:
        rows = [
            {"campaign": self.id, "slot": slot, "decided": decided, "rewarded": rewarded, "total": total}
            for slot, (decided, rewarded, total) in slots.items()
        ]
        self.execute(BUCKETS.insert(), rows)

    def _widen_slots(self) -> None:
        width, slots = merge_slots(self.slots(), MAX_POINTS // 2)
        self.row.slot_width *= width
        self.row.buckets = len(slots)
        self.execute(BUCKETS.delete().where(BUCKETS.c.campaign == self.id))
        self._insert_slots(slots)

    def write(self) -> None:
        """Write the campaign's row."""
        update_row(self.connection, self.row, self.now)

    def remember(self) -> None:
        """Cache the new snapshot, if there is one. Call this after the commit."""
        if self._learned:
            self.store.remember(self.id, self._snapshot)


def merge_slots(slots: Mapping[int, tuple[int, int, float]], most: int) -> tuple[int, Slots]:
    """Merge neighbouring slots, 2, 4, 8... at a time, until at most `most` are left; return that number too."""
    by, merged = 1, dict(slots)
    while len(merged) > most:
        by *= 2
        sums: dict[int, tuple[int, int, float]] = defaultdict(lambda: (0, 0, 0.0))
        for slot, (decided, rewarded, total) in slots.items():
            before = sums[slot // by]
            sums[slot // by] = before[0] + decided, before[1] + rewarded, before[2] + total
        merged = dict(sums)
    return by, merged


@contextmanager
def writing(store: Store, campaign: int) -> Iterator[Transaction]:
    """Lock the campaign, and write its row at the end: all of the block is stored, or nothing."""
    with store.write() as connection:
        tx = Transaction(store, connection, read_row(connection, campaign, lock=True))
        yield tx
        tx.write()
    tx.remember()


@contextmanager
def reading(store: Store, campaign: int) -> Iterator[Transaction]:
    """Read the campaign: all of the block sees the same moment."""
    with store.read() as connection:
        yield Transaction(store, connection, read_row(connection, campaign))
