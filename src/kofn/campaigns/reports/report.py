"""What a campaign reports: what it has learned, its history, its journal, and its open decisions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, TypeVar

from sqlalchemy import and_, exists, or_, select

from kofn.campaigns.evidence import Sums, lift, sample_ratio
from kofn.campaigns.fold import MAX_POINTS, estimate_of, merge_slots
from kofn.campaigns.names import write_id
from kofn.campaigns.reports.alarms import ArrivalHistory, arrivals_of, raised
from kofn.campaigns.reports.view import View, summary
from kofn.campaigns.roster import Roster, subset_from, subset_text
from kofn.campaigns.settings import CONTROL, GROUPS, LEARNED, Guardrail
from kofn.campaigns.store.schema import DECISIONS, ESTIMATES, EVENTS, JOURNAL
from kofn.campaigns.store.statements import chunks
from kofn.campaigns.tally import merged
from kofn.core import BadInput, Insight, whole
from kofn.core.checks import shown
from kofn.core.contexts import context_of, words_of
from kofn.core.responses import (
    ArmInsight,
    AttributeReport,
    CampaignInsight,
    EstimatePoint,
    Event,
    MetricReport,
    OpenDecision,
    PlannedSubset,
    Point,
    SampleRatio,
    SegmentReport,
    Segments,
    StopReport,
    Winner,
    moment,
)

T = TypeVar("T")

HOUR, MONTH = 3600.0, 30.44 * 24 * 3600.0
"""Seconds. Traffic is not extrapolated from less than an hour."""

MAX_PLANNED = 20
"""Rows of the plan in an insight, those with most plays. A higher value makes the response longer."""

WRONG = 0.05
"""Probability that the interval of a best subset's lift is ever wrong, over all best subsets of a campaign: the j-th
one has WRONG / (j (j + 1)) of it."""

_D, _E = DECISIONS.c, EVENTS.c


def insight(view: View) -> CampaignInsight:
    """Return what the policy knew at its last learning step; plays are counted up to now."""
    row, progress, settings, known = view.row, view.progress, view.settings, view.insight
    arrivals, best = arrivals_of(view), view.best
    mean = progress.mean
    return CampaignInsight(
        summary=summary(row),
        best=view.roster.names_of(best),
        value=known.value if known else None,
        low=known.low if known else None,
        high=known.high if known else None,
        average=mean,
        gain=None if known is None or mean is None else settings.sign * (known.value - mean),
        probability_best=known.probability_best if known else None,
        expected_loss=known.expected_loss if known else None,
        alarms=raised(view, arrivals),
        updates=view.updates,
        arms=list(_arms(view, known, set(best))),
        plan=_plan(view),
        settings=settings.shown(view.roster),
        stop=_stop(view),
        lift=view.lift,
        sample_ratio=ratio_of(view),
        shipped=view.roster.names_of(settings.shipped[-1]) if row.state == "shipped" else None,
        plays_per_month=_plays_per_month(row.created, arrivals),
        clipped=progress.clipped,
        loss_high=known.loss_high if known else None,
        winner=winner(view),
        metrics=metrics(view),
        settles=_settles(view),
        failure=None if row.failure is None else row.failure["reason"],
    )


def ratio_of(view: View) -> SampleRatio | None:
    """Return whether the control got its share of the decisions; None without a control."""
    if view.settings.control is None:
        return None
    return sample_ratio(view.progress.learned_decided, view.progress.control_decided, view.settings.control_share)


def winner(view: View) -> Winner | None:
    """Return what shipping the best subset is estimated to earn beyond the control; None without a control.

    It counts only plays since the subset was first the best: those before helped to choose it. A subset is dropped when
    it disappoints, so the intervals of all best subsets so far share one probability of error.
    """
    progress, settings = view.progress, view.settings
    found = progress.candidates.get(progress.best)
    if settings.control is None or settings.takes_context or found is None:
        return None
    level = 1 - WRONG / (found.place * (found.place + 1))
    between = lift(
        found.sums, progress.control, reward_range=settings.net_range, direction=settings.direction, level=level
    )
    return Winner(view.roster.names_of(subset_from(progress.best)), moment(found.at), between)


def metrics(view: View) -> list[MetricReport]:
    """Return the metrics beside the reward."""
    limits = {rail.metric: rail for rail in map(Guardrail.parse, view.settings.guardrails)}
    found = []
    none = Sums(0, 0.0, 0.0)
    for name in sorted({*view.progress.metrics, *limits}):
        of = view.progress.metrics.get(name, {})
        learned, control = of.get(GROUPS[LEARNED], none), of.get(GROUPS[CONTROL], none)
        low = 0.0 if min(learned.total, control.total) >= 0 else -math.inf
        between = lift(learned, control, reward_range=(low, math.inf))
        compared = None if view.settings.control is None else between
        rail = limits.get(name)
        broken = rail is not None and compared is not None and is_broken(rail, compared)
        limit = None if rail is None else str(rail)
        found.append(MetricReport(name, between.learned, between.control, compared, limit, broken))
    return found


def is_broken(rail: Guardrail, found: Any) -> bool:
    """Return whether a guardrail is certainly broken."""
    low, high = (found.relative_low, found.relative_high) if rail.relative else (found.low, found.high)
    if rail.at_most:
        return low is not None and low > rail.limit
    return high is not None and high < rail.limit


def _settles(view: View) -> Any:
    if view.settings.window is None:
        return None
    rows = select(_D.due).where(_D.campaign == view.id, _D.due > view.now, _D.windowed == 1)
    due = view.connection.execute(rows.order_by(_D.due).limit(1)).scalar()
    return None if due is None else moment(due)


def _stop(view: View) -> StopReport | None:
    stop, look = view.settings.stop, view.progress.look
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


def segments(view: View) -> Segments:
    """Return what the policy knew about each segment and each attribute at its last learning step."""
    settings, roster = view.settings, view.roster
    if not settings.takes_context:
        raise BadInput(f"{settings.policy} does not take a context, so it has no segments; use contextual-thompson")
    found = []
    names = ("value", "low", "high", "probability_best", "expected_loss", "loss_high")
    for each in view.of_segments.get("segments", ()):
        key = each["key"]
        about: dict[str, Any] = {
            "context": context_of(key),
            "words": words_of(key),
            "best": roster.names_of(subset_from(each["best"])),
            "shipped": roster.names_of(settings.shipped_for(key)) if view.row.state == "shipped" else None,
            **{name: each[name] for name in ("plays", "share")},
            **(each["insight"] or dict.fromkeys(names)),
        }
        found.append(SegmentReport(**about))
    return Segments(found, [AttributeReport(*each) for each in view.of_segments.get("attributes", ())])


def estimates(view: View, points: int, arms: Sequence[str]) -> list[EstimatePoint]:
    """Return what was known after learning steps, oldest first, and what is known now: at most `points` items.

    Only the effects of `arms` are included: the effects of all arms at all times would be megabytes.
    """
    names = set(view.roster.names)
    if unknown := [arm for arm in arms if arm not in names]:
        raise BadInput(f"there is no arm {shown(unknown[0])}: arms must be names of the campaign's arms")
    ours = ESTIMATES.c.campaign == view.id
    steps = list(view.connection.execute(select(ESTIMATES.c.step).where(ours).order_by(ESTIMATES.c.step)).scalars())
    kept = spread(steps, whole("points", points) - 1)
    columns = [column for column in ESTIMATES.c if arms or column.name != "effects"]
    rows: list[Mapping[str, Any]] = []
    for some in chunks(kept):
        chosen = select(*columns).where(ours, ESTIMATES.c.step.in_(some)).order_by(ESTIMATES.c.step)
        rows += [dict(row) for row in view.connection.execute(chosen).mappings()]
    if not rows or rows[-1]["rewards"] < view.progress.rewards:
        known, best = view.plain_insight, subset_text(view.best)
        if (now := estimate_of(view.settings, view.progress, known, best, view.active)) is not None:
            rows.append(now | {"at": max(view.row.changed, view.row.created)})
    return [_estimate(view.roster, row, set(arms)) for row in rows]


def spread(items: Sequence[T], count: int) -> list[T]:
    """Return at most `count` items in their order, evenly spread from the first to the last; one alone is the last."""
    count = min(count, len(items))
    return [items[-1 - (len(items) - 1) * place // max(count - 1, 1)] for place in reversed(range(count))]


def _estimate(roster: Roster, row: Mapping[str, Any], arms: Set[str]) -> EstimatePoint:
    effects = json.loads(row["effects"] or "{}") if arms else {}
    named = ((roster.names[int(arm)], effect) for arm, effect in effects.items())
    names = "rewards", "value", "low", "high", "lift", "lift_low", "lift_high"
    return EstimatePoint(
        at=moment(row["at"]),
        expected_loss=row["loss"],
        best=roster.names_of(subset_from(row["best"])),
        effects={name: effect for name, effect in named if name in arms},
        **{name: row[name] for name in names},
    )


def _arms(view: View, known: Insight | None, best: set[int]) -> Iterable[ArmInsight]:
    """Yield all arms: the active ones by number, then the retired ones."""
    roster, played = view.roster, view.progress.played
    index = {arm: place for place, arm in enumerate(view.active)} if known is not None else {}
    for arm in roster.active:
        effect = low = high = None
        if known is not None and arm in index:
            effect, low, high = (float(each[index[arm]]) for each in (known.effects, known.lows, known.highs))
        plays = played.get(arm, 0)
        yield ArmInsight(roster.names[arm], effect, low, high, plays=plays, best=arm in best, retired=False)
    for arm in sorted(set(range(len(roster.names))) - set(roster.active)):
        if roster.names[arm] not in roster.number_of:  # else it is back as a new arm
            plays = played.get(arm, 0)
            yield ArmInsight(roster.names[arm], None, None, None, plays=plays, best=False, retired=True)


def _plan(view: View) -> list[PlannedSubset]:
    """Return the rows of the plan with most plays."""
    plan = view.tx.plan()
    settled = merged(view.tx.open_step(), view.new_plays)
    top = sorted(plan.rows, key=lambda row: -row[1])[:MAX_PLANNED]
    found = []
    for subset, times, context in top:
        observed = min(times, settled.get((subset, context), (0, 0.0, 0.0))[0])
        in_flight = min(times - observed, view.progress.in_flight.get((subset, context), 0))
        names = view.roster.names_of(subset_from(subset))
        found.append(PlannedSubset(names, times - observed, in_flight, observed, _context(context)))
    return found


def history(view: View, points: int) -> list[Point]:
    """Return the history in at most `points` points, oldest first; times without plays are left out."""
    by, slots = merge_slots(view.slots, min(whole("points", points), MAX_POINTS))
    width = view.progress.slot_width * by
    found, plays, rewards, sum_ = [], 0, 0, 0.0
    for slot, here in sorted(slots.items()):
        plays, rewards, sum_ = plays + here.decided, rewards + here.rewarded, sum_ + here.total
        found.append(
            Point(
                at=moment(slot * width),
                until=moment((slot + 1) * width),
                plays=here.decided,
                rewards=here.rewarded,
                mean=here.total / here.rewarded if here.rewarded else None,
                total_plays=plays,
                total_rewards=rewards,
                average=sum_ / rewards if rewards else None,
            )
        )
    return found


def journal(view: View, limit: int) -> list[Event]:
    """Return the latest entries of the journal, newest first."""
    chosen = select(JOURNAL).where(JOURNAL.c.campaign == view.id).order_by(JOURNAL.c.number.desc())
    rows = view.connection.execute(chosen.limit(whole("limit", limit)))
    return [Event(row.number, moment(row.at), row.kind, row.message) for row in rows]


def open_decisions(view: View, limit: int) -> list[OpenDecision]:
    """Return decisions whose reward is open, newest first."""
    same = _E.campaign == _D.campaign, _E.decision == _D.number, _E.kind == 0
    waits = or_(
        and_(_D.windowed == 1, _D.due > view.now),
        and_(_D.windowed == 0, ~exists().where(*same)),
    )
    rows = select(DECISIONS).where(_D.campaign == view.id, waits).order_by(_D.number.desc())
    found = []
    for row in view.connection.execute(rows.limit(whole("limit", limit))).mappings():
        subset = subset_from(row["subset"])
        about = moment(row["at"]), GROUPS[row["group"]], _context(row["context"])
        id = write_id(bytes.fromhex(view.row.secret), row["number"], row["salt"])
        found.append(OpenDecision(id, view.roster.names_of(subset), subset, *about, row["due"] <= view.now))
    return found


def _context(segment: str | None) -> dict[str, str] | None:
    return None if segment is None else context_of(segment)
