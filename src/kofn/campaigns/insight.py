"""What a campaign knows, as data."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, select

from kofn.campaigns.head import Base, Head, read_base, read_roster, subset_from
from kofn.campaigns.ids import write_id
from kofn.campaigns.learning import played_by, told_rows
from kofn.campaigns.schema import PLANS, REWARDS, RUNS
from kofn.campaigns.store import Store
from kofn.core import Insight, whole
from kofn.responses import ArmInsight, CampaignInsight, OpenDecision, PlannedSubset, moment

MOST_TRYING = 20
"""Rows of the plan that are shown, those with most plays."""


def insight(store: Store, connection: Connection, head: Head) -> CampaignInsight:
    """What is known, from what the policy learned last; plays are counted to this moment."""
    base = read_base(store, connection, head)
    known = _known(base)
    best = base.roster.outside(base.policy.best())
    good = 1.0 if head.direction == "maximize" else -1.0
    gain = None if known is None or head.mean is None else good * (known.value - head.mean)
    return CampaignInsight(
        summary=head.summary(),
        best=base.roster.called(best),
        value=known.value if known else None,
        low=known.low if known else None,
        high=known.high if known else None,
        average=head.mean,
        gain=gain,
        probability_best=known.probability_best if known else None,
        updates=base.policy.updates,
        arms=list(_arms(connection, head, base, known, set(best))),
        plan=_plan(connection, head, base),
    )


def _known(base: Base) -> Insight | None:
    if not base.known:
        base.insight = base.policy.insight()
        base.known = True
    return base.insight


def _arms(
    connection: Connection, head: Head, base: Base, known: Insight | None, best: set[int]
) -> Iterable[ArmInsight]:
    """All arms: those that are there by number, then the retired."""
    roster = base.roster
    played = played_by(base, told_rows(connection, head)).tolist()
    for index, arm in enumerate(roster.active):
        numbers = (None, None, None)
        if known is not None:
            numbers = known.effects[index].item(), known.lows[index].item(), known.highs[index].item()
        yield ArmInsight(roster.names[arm], *numbers, plays=played[arm], best=arm in best, retired=False)
    for arm in sorted(set(range(len(roster.names))) - set(roster.active)):
        yield ArmInsight(roster.names[arm], None, None, None, plays=played[arm], best=False, retired=True)


def _plan(connection: Connection, head: Head, base: Base) -> list[PlannedSubset]:
    columns = PLANS.c.subset, PLANS.c.times, PLANS.c.out, PLANS.c["count"]
    rows = select(*columns).where(PLANS.c.campaign == head.id, PLANS.c.times > 0)
    rows = rows.order_by(PLANS.c.times.desc(), PLANS.c.row).limit(MOST_TRYING)
    return [
        PlannedSubset(base.roster.called(subset_from(subset)), times - count, out, count)
        for subset, times, out, count in connection.execute(rows)
    ]


def open_decisions(store: Store, connection: Connection, head: Head, limit: int) -> list[OpenDecision]:
    """Decisions without a reward, the newest first."""
    roster = read_roster(store, connection, head)
    columns = (RUNS.c[name] for name in ("first", "count", "open", "salt", "subset", "at", "due"))
    chosen = select(*columns).where(RUNS.c.campaign == head.id, RUNS.c.open > 0).order_by(RUNS.c.first.desc())
    found: list[OpenDecision] = []
    limit = whole("limit", limit)
    for first, count, open_, salt, text, at, due in connection.execute(chosen.limit(limit)):
        answered = _answered(connection, head, first) if open_ < count else set()
        subset = subset_from(text)
        for place in range(count - 1, -1, -1):
            if len(found) == limit:
                return found
            if place not in answered:
                id = write_id(head.key, first, place, salt)
                found.append(OpenDecision(id, roster.called(subset), subset, moment(at), due is None))
    return found


def _answered(connection: Connection, head: Head, first: int) -> set[int]:
    same = REWARDS.c.campaign == head.id, REWARDS.c.first == first
    return set(connection.execute(select(REWARDS.c.place).where(*same)).scalars())
