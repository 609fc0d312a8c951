"""What a campaign reports: what it has learned, its history, its events, and its open decisions."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import select

from kofn.campaigns import transaction
from kofn.campaigns.learn import plays_per_arm
from kofn.campaigns.names import write_id
from kofn.campaigns.plan_rows import observed_rows
from kofn.campaigns.rows import PolicySnapshot, subset_from
from kofn.campaigns.schema import BATCHES, EVENTS, PLANS, REWARDS
from kofn.campaigns.transaction import Transaction, merge_slots
from kofn.core import Insight, whole
from kofn.responses import ArmInsight, CampaignInsight, Event, OpenDecision, PlannedSubset, Point, RaisedAlarm, moment

MAX_PLANNED = 20
"""Rows of the plan in an insight, those with most plays. A higher value makes the response longer."""


def insight(tx: Transaction) -> CampaignInsight:
    """Return what the policy knew at its last update; plays are counted up to now."""
    row, snapshot = tx.row, tx.snapshot
    known = _insight_of(snapshot)
    best = snapshot.best()
    sign = 1.0 if row.direction == "maximize" else -1.0
    gain = None if known is None or row.mean is None else sign * (known.value - row.mean)
    return CampaignInsight(
        summary=row.summary(),
        best=snapshot.roster.names_of(best),
        value=known.value if known else None,
        low=known.low if known else None,
        high=known.high if known else None,
        average=row.mean,
        gain=gain,
        probability_best=known.probability_best if known else None,
        expected_loss=known.expected_loss if known else None,
        alarms=_alarms(known),
        updates=snapshot.policy.updates,
        arms=list(_arms(tx, known, set(best))),
        plan=_plan(tx),
    )


def _insight_of(snapshot: PolicySnapshot) -> Insight | None:
    if not snapshot.insight_known:
        snapshot.insight = snapshot.policy.insight()
        snapshot.insight_known = True
    return snapshot.insight


def _alarms(known: Insight | None) -> list[RaisedAlarm] | None:
    return None if known is None or known.alarms is None else [RaisedAlarm(*alarm) for alarm in known.alarms]


def _arms(tx: Transaction, known: Insight | None, best: set[int]) -> Iterable[ArmInsight]:
    """Yield all arms: the active ones by number, then the retired ones."""
    roster = tx.roster
    plays = plays_per_arm(tx.snapshot, observed_rows(tx)).tolist()
    for index, arm in enumerate(roster.active):
        numbers = (None, None, None)
        if known is not None:
            numbers = known.effects[index].item(), known.lows[index].item(), known.highs[index].item()
        yield ArmInsight(roster.names[arm], *numbers, plays=plays[arm], best=arm in best, retired=False)
    for arm in sorted(set(range(len(roster.names))) - set(roster.active)):
        yield ArmInsight(roster.names[arm], None, None, None, plays=plays[arm], best=False, retired=True)


def _plan(tx: Transaction) -> list[PlannedSubset]:
    roster = tx.roster
    columns = PLANS.c.subset, PLANS.c.times, PLANS.c.in_flight, PLANS.c["count"]
    rows = select(*columns).where(PLANS.c.campaign == tx.id, PLANS.c.times > 0)
    rows = rows.order_by(PLANS.c.times.desc(), PLANS.c.row).limit(MAX_PLANNED)
    return [
        PlannedSubset(roster.names_of(subset_from(subset)), times - observed, in_flight, observed)
        for subset, times, in_flight, observed in tx.execute(rows)
    ]


def history(tx: Transaction, points: int) -> list[Point]:
    """Return the history in at most `points` points, oldest first; times without plays are left out."""
    by, slots = merge_slots(tx.slots(), min(whole("points", points), transaction.MAX_POINTS))
    width = tx.row.slot_width * by
    found, plays, rewards, sum_ = [], 0, 0, 0.0
    for slot, (decided, rewarded, total) in sorted(slots.items()):
        plays, rewards, sum_ = plays + decided, rewards + rewarded, sum_ + total
        found.append(
            Point(
                at=moment(slot * width),
                until=moment((slot + 1) * width),
                plays=decided,
                rewards=rewarded,
                mean=total / rewarded if rewarded else None,
                total_plays=plays,
                total_rewards=rewards,
                average=sum_ / rewards if rewards else None,
            )
        )
    return found


def events(tx: Transaction, limit: int) -> list[Event]:
    """Return the latest events, newest first."""
    chosen = select(EVENTS).where(EVENTS.c.campaign == tx.id).order_by(EVENTS.c.number.desc())
    rows = tx.execute(chosen.limit(whole("limit", limit)))
    return [Event(row.number, moment(row.at), row.kind, row.message) for row in rows]


def open_decisions(tx: Transaction, limit: int) -> list[OpenDecision]:
    """Return decisions without a reward, newest first."""
    roster, key = tx.roster, tx.row.key
    columns = (BATCHES.c[name] for name in ("first", "count", "open", "salt", "subset", "at", "due"))
    chosen = select(*columns).where(BATCHES.c.campaign == tx.id, BATCHES.c.open > 0).order_by(BATCHES.c.first.desc())
    found: list[OpenDecision] = []
    limit = whole("limit", limit)
    for first, count, open_, salt, text, at, due in tx.execute(chosen.limit(limit)):
        rewarded = _rewarded_places(tx, first) if open_ < count else set()
        subset = subset_from(text)
        for place in range(count - 1, -1, -1):
            if len(found) == limit:
                return found
            if place not in rewarded:
                id = write_id(key, first, place, salt)
                found.append(OpenDecision(id, roster.names_of(subset), subset, moment(at), due is None))
    return found


def _rewarded_places(tx: Transaction, first: int) -> set[int]:
    same = REWARDS.c.campaign == tx.id, REWARDS.c.first == first
    return set(tx.execute(select(REWARDS.c.place).where(*same)).scalars())
