"""What a campaign reports: what it has learned, its history, its events, and its open decisions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, TypeVar

from sqlalchemy import select

from kofn.campaigns.allocation import GROUPS, lift_of, ratio_of
from kofn.campaigns.learn import estimate_of, insight_of, plays_per_arm
from kofn.campaigns.records import transaction
from kofn.campaigns.records.names import write_id
from kofn.campaigns.records.plan_rows import observed_rows
from kofn.campaigns.records.rows import Roster, subset_from
from kofn.campaigns.records.transaction import Transaction, merge_slots
from kofn.campaigns.reports.alarms import ArrivalHistory, arrivals_of, raised
from kofn.campaigns.stopping import look_of
from kofn.campaigns.store.schema import BATCHES, ESTIMATES, EVENTS, PLANS, REWARDS
from kofn.campaigns.store.statements import chunks
from kofn.core import BadInput, Insight, whole
from kofn.core.checks import shown
from kofn.core.contexts import context_of
from kofn.core.responses import (
    ArmInsight,
    CampaignInsight,
    CampaignSettings,
    EstimatePoint,
    Event,
    OpenDecision,
    PlannedSubset,
    Point,
    StopReport,
    moment,
)

T = TypeVar("T")

HOUR, MONTH = 3600.0, 30.44 * 24 * 3600.0
"""Seconds. Traffic is not extrapolated from less than an hour."""

MAX_PLANNED = 20
"""Rows of the plan in an insight, those with most plays. A higher value makes the response longer."""


def insight(tx: Transaction) -> CampaignInsight:
    """Return what the policy knew at its last update; plays are counted up to now."""
    row, snapshot = tx.row, tx.snapshot
    known, options, arrivals = insight_of(snapshot), tx.options, arrivals_of(tx)
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
        alarms=raised(tx, known, arrivals),
        updates=snapshot.policy.updates,
        arms=list(_arms(tx, known, set(best))),
        plan=_plan(tx),
        settings=settings(tx),
        stop=_stop(tx),
        lift=lift_of(row),
        sample_ratio=ratio_of(row),
        shipped=tx.roster.names_of(options.shipped[-1]) if row.state == "shipped" else None,
        plays_per_month=_plays_per_month(row.created, arrivals),
        clipped=row.clipped,
        loss_high=known.loss_high if known else None,
    )


def settings(tx: Transaction) -> CampaignSettings:
    """Return the settings that can be changed."""
    row, params = tx.row, tx.snapshot.policy.params
    own = {"reward_range": (row.low, row.high), "expire_after": row.expire_after, "keep_decisions": row.keep_decisions}
    return tx.options.settings(tx.roster, own | {name: params.get(name) for name in ("half_life", "guarantee")})


def _stop(tx: Transaction) -> StopReport | None:
    stop, look = tx.options.stop, look_of(tx.row)
    if stop is None:
        return None
    if look is None:
        return StopReport(False, None, stop.threshold, "nothing has been learned yet")
    return StopReport(look.ready, look.bound, stop.threshold, look.reason)


def _plays_per_month(created: float, arrivals: ArrivalHistory) -> float | None:
    """Return the plays of the last month; of a younger campaign, what its plays per second would be in a month."""
    age = arrivals.now - created
    if age < HOUR:
        return None
    begin = arrivals.now - min(age, MONTH)
    plays = sum(part.decided for part in arrivals.parts if part.end > begin)
    return plays * MONTH / min(age, MONTH)


def estimates(tx: Transaction, points: int, arms: Sequence[str]) -> list[EstimatePoint]:
    """Return what was known after updates of the policy, oldest first, and what is known now: at most `points` items.

    Only the effects of `arms` are included: the effects of all arms at all times would be megabytes.
    """
    names = set(tx.roster.names)
    if unknown := [arm for arm in arms if arm not in names]:
        raise BadInput(f"there is no arm {shown(unknown[0])}: arms must be names of the campaign's arms")
    ours = ESTIMATES.c.campaign == tx.id
    steps = list(tx.execute(select(ESTIMATES.c.step).where(ours).order_by(ESTIMATES.c.step)).scalars())
    kept = spread(steps, whole("points", points) - 1)
    columns = [column for column in ESTIMATES.c if arms or column.name != "effects"]
    rows: list[Mapping[str, Any]] = []
    for some in chunks(kept):
        chosen = select(*columns).where(ours, ESTIMATES.c.step.in_(some)).order_by(ESTIMATES.c.step)
        rows += [row._mapping for row in tx.execute(chosen)]
    newer = not rows or rows[-1]["rewards"] < tx.row.rewards
    if newer and (now := estimate_of(tx)) is not None:
        rows.append(now | {"at": tx.row.changed})
    return [_estimate(tx.roster, row, set(arms)) for row in rows]


def spread(items: Sequence[T], count: int) -> list[T]:
    """Return at most `count` items in their order, evenly spread from the first to the last; one alone is the last."""
    count = min(count, len(items))
    return [items[-1 - (len(items) - 1) * place // max(count - 1, 1)] for place in reversed(range(count))]


def _estimate(roster: Roster, row: Mapping[str, Any], arms: Set[str]) -> EstimatePoint:
    effects = json.loads(row["effects"] or "{}") if arms else {}
    named = ((roster.names[int(arm)], effect) for arm, effect in effects.items())
    return EstimatePoint(
        moment(row["at"]),
        row["rewards"],
        row["value"],
        row["low"],
        row["high"],
        row["loss"],
        roster.names_of(subset_from(row["best"])),
        {name: effect for name, effect in named if name in arms},
        row["lift"],
        row["lift_low"],
        row["lift_high"],
    )


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
        if roster.names[arm] in roster.number_of:  # it is back as a new arm
            continue
        yield ArmInsight(roster.names[arm], None, None, None, plays=plays[arm], best=False, retired=True)


def _plan(tx: Transaction) -> list[PlannedSubset]:
    roster = tx.roster
    columns = (PLANS.c[name] for name in ("subset", "times", "in_flight", "count", "context"))
    rows = select(*columns).where(PLANS.c.campaign == tx.id, PLANS.c.times > 0)
    rows = rows.order_by(PLANS.c.times.desc(), PLANS.c.row).limit(MAX_PLANNED)
    return [
        PlannedSubset(roster.names_of(subset_from(subset)), times - observed, in_flight, observed, _context(context))
        for subset, times, in_flight, observed, context in tx.execute(rows)
    ]


def history(tx: Transaction, points: int) -> list[Point]:
    """Return the history in at most `points` points, oldest first; times without plays are left out."""
    by, slots = merge_slots(tx.slots(), min(whole("points", points), transaction.MAX_POINTS))
    width = tx.row.slot_width * by
    found, plays, rewards, sum_ = [], 0, 0, 0.0
    for slot, (decided, rewarded, total, _) in sorted(slots.items()):
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
    names = "first", "count", "open", "salt", "subset", "at", "due", "group", "context"
    columns = (BATCHES.c[name] for name in names)
    chosen = select(*columns).where(BATCHES.c.campaign == tx.id, BATCHES.c.open > 0).order_by(BATCHES.c.first.desc())
    found: list[OpenDecision] = []
    limit = whole("limit", limit)
    for first, count, open_, salt, text, at, due, group, context in tx.execute(chosen.limit(limit)):
        rewarded = _rewarded_places(tx, first) if open_ < count else set()
        subset = subset_from(text)
        for place in range(count - 1, -1, -1):
            if len(found) == limit:
                return found
            if place not in rewarded:
                id = write_id(key, first, place, salt)
                arms = roster.names_of(subset)
                about = moment(at), GROUPS[group], _context(context), due is None
                found.append(OpenDecision(id, arms, subset, *about))
    return found


def _context(segment: str | None) -> dict[str, str] | None:
    return None if segment is None else context_of(segment)


def _rewarded_places(tx: Transaction, first: int) -> set[int]:
    same = REWARDS.c.campaign == tx.id, REWARDS.c.first == first
    return set(tx.execute(select(REWARDS.c.place).where(*same)).scalars())
