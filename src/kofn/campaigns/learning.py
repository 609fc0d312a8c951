"""How a campaign learns: a copy of the policy is told the tallies of the plan, and its next plan takes their place."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from sqlalchemy import Connection, select

from kofn.campaigns.head import Base, Head, Roster, record_of, subset_from, subset_key, subset_text
from kofn.campaigns.schema import PLANS, STATES
from kofn.core import Policy, Tally
from kofn.core.open_plan import MOST_UNPLANNED

UNLEARNED = -1
"""The `times` of a row that is counted, but that the policy cannot learn from; as a row, one that counts nowhere."""


@dataclass(frozen=True)
class Told:
    """What plays of one subset earned since the policy last learned."""

    row: int
    subset: str
    times: int
    count: int
    total: float
    squares: float


def told_rows(connection: Connection, head: Head) -> list[Told]:
    """The rows that have been told of, planned ones first."""
    columns = (PLANS.c[each.name] for each in fields(Told))
    chosen = select(*columns).where(PLANS.c.campaign == head.id, PLANS.c.count > 0).order_by(PLANS.c.row)
    return [Told(*row) for row in connection.execute(chosen)]


def feed(policy: Policy, roster: Roster, rows: Iterable[Told]) -> None:
    """Tell the policy all of it: the planned rows at once, then the others one by one.

    A row that is not planned may be of a subset that is, told more often than wanted: the policy finds its place.
    """
    tally = Tally.zeros(len(policy.plan()))
    others = []
    for told in rows:
        if told.times > 0:
            tally.count[told.row] = told.count
            tally.total[told.row], tally.squares[told.row] = told.total, told.squares
        elif told.times != UNLEARNED:
            others.append(told)
    policy.tell_plan(tally)
    for told in others:
        subset = roster.inside(subset_from(told.subset))
        assert subset is not None  # retired arms are in rows that are not learned from
        policy.tell_total(subset, told.count, told.total, told.squares)


def due_to_learn(head: Head) -> bool:
    """Whether enough has been told."""
    return head.told >= head.wanted or head.others >= MOST_UNPLANNED


def learn(connection: Connection, head: Head, base: Base) -> Base:
    """The base after the policy has learned from what was told."""
    rows = told_rows(connection, head)
    policy = copy.deepcopy(base.policy)
    feed(policy, base.roster, rows)
    fresh = Base(head.step + 1, base.roster, policy, played_by(base, rows))
    write_base(connection, head, fresh)
    return fresh


def played_by(base: Base, rows: Sequence[Told]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """How often each arm has been played, with these rows."""
    played = base.played.copy()
    for told in rows:
        played[list(subset_from(told.subset))] += told.count
    return played


def write_base(connection: Connection, head: Head, base: Base) -> None:
    """Put the policy's record and plan in the place of those before."""
    connection.execute(STATES.delete().where(STATES.c.campaign == head.id))
    state = {"campaign": head.id, "record": record_of(base.policy), "played": json.dumps(base.played.tolist())}
    connection.execute(STATES.insert(), state)
    connection.execute(PLANS.delete().where(PLANS.c.campaign == head.id))
    begin_plan(head, base)
    rows = [
        {"campaign": head.id, "row": row, "key": subset_key(text), "subset": text, "times": times}
        | {"out": 0, "count": 0, "total": 0.0, "squares": 0.0}
        for row, (subset, times) in enumerate(base.policy.plan())
        for text in [subset_text(base.roster.outside(subset))]
    ]
    connection.execute(PLANS.insert(), rows)


def begin_plan(head: Head, base: Base) -> None:
    """Set the counters of a plan that nothing is out of."""
    policy, plan = base.policy, base.policy.plan()
    counted = sum(other[1] for other in policy.state().get("unplanned", ())) if policy.accepts_unplanned else 0
    head.step = base.step
    head.rows = len(plan)
    head.unasked = plan.plays
    head.wanted = plan.plays - counted
    head.told = head.others = head.spared = 0
    head.cursor = -1
