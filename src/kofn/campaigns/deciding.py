"""How decisions are handed out: rows of the plan in turn, counting what is out, and spares when all of it is."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, select

from kofn.campaigns.head import Base, Head, Roster, read_base, read_roster, subset_from, subset_text
from kofn.campaigns.history import happened
from kofn.campaigns.ids import write_id
from kofn.campaigns.schema import PLANS, RUNS
from kofn.campaigns.store import Store
from kofn.campaigns.upkeep import expire
from kofn.core import NotRunning
from kofn.responses import Decision, moment

SPARE = -1
"""The row of a run that is not of the plan."""

_WANTING = (
    select(PLANS.c.row, PLANS.c.subset, (PLANS.c.times - PLANS.c.count - PLANS.c.out).label("free"))
    .where(PLANS.c.campaign == bindparam("campaign"), PLANS.c.row.between(bindparam("start"), bindparam("end")))
    .where(PLANS.c.times > PLANS.c.count + PLANS.c.out)
    .order_by(PLANS.c.row)
    .limit(bindparam("most"))
)
_HAND_OUT = (
    PLANS.update()
    .where(PLANS.c.campaign == bindparam("c"), PLANS.c.row == bindparam("r"))
    .values(out=PLANS.c.out + bindparam("n"))
)
_INSERT = RUNS.insert()


@dataclass
class Run:
    """Plays of one subset that are handed out together."""

    row: int
    subset: str
    count: int


def hand_out(store: Store, connection: Connection, head: Head, count: int, now: float) -> list[Decision]:
    """So many decisions, and the rows that remember them."""
    if head.state != "running":
        raise NotRunning(f"the campaign {head.name!r} is {head.state}: {_WAY_OUT[head.state]}")
    expire(connection, head, now)
    roster = read_roster(store, connection, head)
    runs = _planned(connection, head, min(count, head.unasked))
    missing = count - sum(run.count for run in runs)
    if missing:
        runs += _spares(read_base(store, connection, head), head, missing)
    salt, due = secrets.randbits(32), now + head.expire_after
    rows = []
    for run in runs:
        rows.append(
            {"campaign": head.id, "first": head.decided, "count": run.count, "open": run.count, "salt": salt}
            | {"step": head.step, "row": run.row, "subset": run.subset, "at": now, "due": due}
        )
        head.decided += run.count
    connection.execute(_INSERT, rows)
    head.in_flight += count
    head.next_due = due if head.next_due is None else min(head.next_due, due)
    happened(connection, head, now, decided=count)
    firsts = [int(str(row["first"])) for row in rows]
    return list(_decisions(head, roster, runs, firsts, salt, now))


_WAY_OUT = {"paused": "resume() it to decide again", "finished": "best() says what it found"}


def _planned(connection: Connection, head: Head, count: int) -> list[Run]:
    """Plays of the plan that nobody has been given, from the row after the last one on, round and round."""
    if not count:
        return []
    after = {"campaign": head.id, "start": head.cursor + 1, "end": head.rows - 1, "most": count}
    wanting: list[Any] = list(connection.execute(_WANTING, after))
    if len(wanting) < count and head.cursor >= 0:
        before = {"campaign": head.id, "start": 0, "end": head.cursor, "most": count - len(wanting)}
        wanting += connection.execute(_WANTING, before)
    shares = share_out([free for _, _, free in wanting], count)
    runs = [Run(row, subset, share) for (row, subset, _), share in zip(wanting, shares, strict=True) if share]
    connection.execute(_HAND_OUT, [{"c": head.id, "r": run.row, "n": run.count} for run in runs])
    head.unasked -= count
    last = max(shares)
    head.cursor = [run.row for run in runs if run.count == last][-1]
    return runs


def share_out(free: Sequence[int], count: int) -> list[int]:
    """`count` plays shared out as evenly as what is free allows; what is over goes to the first.

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


def _spares(base: Base, head: Head, count: int) -> list[Run]:
    """What the policy makes of the time while all of its plan is out: draws of its own, or the best subset."""
    wanted = Counter(base.policy.filler(head.spared + i) for i in range(count))
    head.spared += count
    return [Run(SPARE, subset_text(base.roster.outside(subset)), n) for subset, n in wanted.items()]


def _decisions(
    head: Head, roster: Roster, runs: Sequence[Run], firsts: Sequence[int], salt: int, now: float
) -> Iterator[Decision]:
    """The decisions, one of each run in turn, so that whoever plays them in order plays the runs side by side."""
    at, secret = moment(now), head.key
    subsets = [subset_from(run.subset) for run in runs]
    arms = [roster.called(subset) for subset in subsets]
    left = list(range(len(runs)))
    place = 0
    while left:
        for i in left:
            yield Decision(write_id(secret, firsts[i], place, salt), list(arms[i]), subsets[i], at)
        place += 1
        left = [i for i in left if runs[i].count > place]
