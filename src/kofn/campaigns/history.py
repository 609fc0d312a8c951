"""What happened when: slots of time that grow wider as a campaign grows older, so that there are never many."""

from __future__ import annotations

import math
from collections import defaultdict

from sqlalchemy import Connection, bindparam, select

from kofn.campaigns.head import Head
from kofn.campaigns.schema import BUCKETS, EVENTS
from kofn.core import whole
from kofn.responses import Event, Point, moment

MOST_POINTS = 2000
"""Slots at the most; then they are made twice as wide."""

NARROWEST = 0.125
"""Seconds of the first slots. A power of two, so that slots merge exactly."""

MOST_EVENTS = 1000
"""Events that are kept, the latest of them."""

_ADD = (
    BUCKETS.update()
    .where(BUCKETS.c.campaign == bindparam("c"), BUCKETS.c.slot == bindparam("s"))
    .values(
        decided=BUCKETS.c.decided + bindparam("d"),
        rewarded=BUCKETS.c.rewarded + bindparam("r"),
        total=BUCKETS.c.total + bindparam("t"),
    )
)


def happened(
    connection: Connection, head: Head, now: float, *, decided: int = 0, rewarded: int = 0, total: float = 0.0
) -> None:
    """Count plays and rewards in the slot of this moment."""
    slot = math.floor(now / head.width)
    row = {"c": head.id, "s": slot, "d": decided, "r": rewarded, "t": total}
    if connection.execute(_ADD, row).rowcount:
        return
    values = {"campaign": head.id, "slot": slot, "decided": decided, "rewarded": rewarded, "total": total}
    connection.execute(BUCKETS.insert(), values)
    head.buckets += 1
    if head.buckets > MOST_POINTS:
        _widen(connection, head)


def _widen(connection: Connection, head: Head) -> None:
    slots = _slots(connection, head)
    by = 1
    while head.buckets > MOST_POINTS // 2:
        by *= 2
        merged = _merged(slots, by)
        head.buckets = len(merged)
    head.width *= by
    connection.execute(BUCKETS.delete().where(BUCKETS.c.campaign == head.id))
    rows = [
        {"campaign": head.id, "slot": slot, "decided": d, "rewarded": r, "total": t}
        for slot, (d, r, t) in merged.items()
    ]
    connection.execute(BUCKETS.insert(), rows)


Slots = dict[int, tuple[int, int, float]]


def _slots(connection: Connection, head: Head) -> Slots:
    chosen = select(BUCKETS).where(BUCKETS.c.campaign == head.id).order_by(BUCKETS.c.slot)
    return {row.slot: (row.decided, row.rewarded, row.total) for row in connection.execute(chosen)}


def _merged(slots: Slots, by: int) -> Slots:
    merged: dict[int, tuple[int, int, float]] = defaultdict(lambda: (0, 0, 0.0))
    for slot, (d, r, t) in slots.items():
        before = merged[slot // by]
        merged[slot // by] = before[0] + d, before[1] + r, before[2] + t
    return dict(merged)


def points_of(connection: Connection, head: Head, most: int) -> list[Point]:
    """The history in `most` points or fewer, oldest first; times in which nothing happened are left out."""
    most = min(whole("points", most), MOST_POINTS)
    slots, by = _slots(connection, head), 1
    merged = slots
    while len(merged) > most:
        by *= 2
        merged = _merged(slots, by)
    width = head.width * by
    found, plays, rewards, total = [], 0, 0, 0.0
    for slot, (d, r, t) in sorted(merged.items()):
        plays, rewards, total = plays + d, rewards + r, total + t
        found.append(
            Point(
                at=moment(slot * width),
                until=moment((slot + 1) * width),
                plays=d,
                rewards=r,
                mean=t / r if r else None,
                total_plays=plays,
                total_rewards=rewards,
                average=total / rewards if rewards else None,
            )
        )
    return found


def note(connection: Connection, head: Head, now: float, kind: str, says: str = "") -> None:
    """Remember that something happened; the oldest is forgotten when there is too much."""
    head.events += 1
    connection.execute(
        EVENTS.insert(), {"campaign": head.id, "number": head.events, "at": now, "kind": kind, "says": says}
    )
    if head.events % 100 == 0:
        old = EVENTS.c.number <= head.events - MOST_EVENTS
        connection.execute(EVENTS.delete().where(EVENTS.c.campaign == head.id, old))


def events(connection: Connection, head: Head, limit: int) -> list[Event]:
    """The latest events, the newest first."""
    chosen = select(EVENTS).where(EVENTS.c.campaign == head.id).order_by(EVENTS.c.number.desc())
    rows = connection.execute(chosen.limit(whole("limit", limit)))
    return [Event(row.number, moment(row.at), row.kind, row.says) for row in rows]
