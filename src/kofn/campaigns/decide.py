"""How decisions are handed out: the rows of the plan round-robin, and fillers while the whole plan is in flight."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select

from kofn.campaigns.expiry import expire
from kofn.campaigns.names import write_id
from kofn.campaigns.rows import subset_from, subset_text
from kofn.campaigns.schema import BATCHES, PLANS
from kofn.campaigns.transaction import Transaction
from kofn.core import NotRunning
from kofn.responses import Decision, moment

FILLER = -1
"""The row number of a batch that is not of the plan."""

_HINT = {"paused": "call resume() to decide again", "finished": "best() returns the subset that it found"}
_FREE = (
    select(PLANS.c.row, PLANS.c.subset, (PLANS.c.times - PLANS.c.count - PLANS.c.in_flight).label("free"))
    .where(PLANS.c.campaign == bindparam("campaign"), PLANS.c.row.between(bindparam("start"), bindparam("end")))
    .where(PLANS.c.times > PLANS.c.count + PLANS.c.in_flight)
    .order_by(PLANS.c.row)
    .limit(bindparam("most"))
)
_HAND_OUT = (
    PLANS.update()
    .where(PLANS.c.campaign == bindparam("c"), PLANS.c.row == bindparam("r"))
    .values(in_flight=PLANS.c.in_flight + bindparam("n"))
)
_INSERT = BATCHES.insert()


@dataclass
class Batch:
    """Plays of one subset that are handed out together; `first` is the number of the first decision."""

    row: int
    subset: str
    count: int
    first: int = 0


def decide(tx: Transaction, count: int) -> list[Decision]:
    """Hand out `count` decisions and store them as batches."""
    row = tx.row
    if row.state != "running":
        raise NotRunning(f"the campaign {row.name!r} is {row.state}: {_HINT[row.state]}")
    expire(tx)
    batches = _from_plan(tx, min(count, row.free))
    missing = count - sum(batch.count for batch in batches)
    if missing:
        batches += _fillers(tx, missing)
    salt, due = secrets.randbits(32), tx.now + row.expire_after
    rows = []
    for batch in batches:
        batch.first = row.decided
        rows.append(
            {"campaign": row.id, "first": batch.first, "count": batch.count, "open": batch.count, "salt": salt}
            | {"step": row.step, "row": batch.row, "subset": batch.subset, "at": tx.now, "due": due}
        )
        row.decided += batch.count
    tx.execute(_INSERT, rows)
    row.in_flight += count
    row.next_due = due if row.next_due is None else min(row.next_due, due)
    tx.count(decided=count)
    return list(_decisions(tx, batches, salt))


def _from_plan(tx: Transaction, count: int) -> list[Batch]:
    """Hand out free plays of the plan, round-robin from the row after the last one."""
    row = tx.row
    if not count:
        return []
    after = {"campaign": row.id, "start": row.cursor + 1, "end": row.plan_rows - 1, "most": count}
    found: list[Any] = list(tx.execute(_FREE, after))
    if len(found) < count and row.cursor >= 0:
        before = {"campaign": row.id, "start": 0, "end": row.cursor, "most": count - len(found)}
        found += tx.execute(_FREE, before)
    shares = share_out([free for _, _, free in found], count)
    batches = [Batch(number, subset, share) for (number, subset, _), share in zip(found, shares, strict=True) if share]
    tx.execute(_HAND_OUT, [{"c": row.id, "r": batch.row, "n": batch.count} for batch in batches])
    row.free -= count
    largest = max(shares)
    row.cursor = [batch.row for batch in batches if batch.count == largest][-1]
    return batches


def share_out(free: Sequence[int], count: int) -> list[int]:
    """Share `count` plays among rows as evenly as their free plays allow; a remainder goes to the first rows.

    >>> share_out([5, 1, 9, 0], 8)
    [4, 1, 3, 0]
    """
    shares = [0] * len(free)
    left = min(count, sum(free))
    open_rows = [i for i, most in enumerate(free) if most]
    while left:
        level = max(1, left // len(open_rows))
        for i in open_rows:
            more = min(level, free[i] - shares[i], left)
            shares[i] += more
            left -= more
        open_rows = [i for i in open_rows if shares[i] < free[i]]
    return shares


def _fillers(tx: Transaction, count: int) -> list[Batch]:
    """Return plays for the time while the whole plan is in flight: draws of the policy, or its best subset."""
    snapshot = tx.snapshot
    fillers = Counter(snapshot.policy.filler(tx.row.fillers + i) for i in range(count))
    tx.row.fillers += count
    return [Batch(FILLER, subset_text(snapshot.roster.to_numbers(subset)), n) for subset, n in fillers.items()]


def _decisions(tx: Transaction, batches: Sequence[Batch], salt: int) -> Iterator[Decision]:
    """Yield one decision of each batch in turn, so that playing them in order interleaves the batches."""
    at, secret, roster = moment(tx.now), tx.row.key, tx.roster
    subsets = [subset_from(batch.subset) for batch in batches]
    arms = [roster.names_of(subset) for subset in subsets]
    left = list(range(len(batches)))
    place = 0
    while left:
        for i in left:
            yield Decision(write_id(secret, batches[i].first, place, salt), list(arms[i]), subsets[i], at)
        place += 1
        left = [i for i in left if batches[i].count > place]
