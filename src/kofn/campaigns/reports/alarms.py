"""Alarms: what makes a campaign's numbers doubtful. Some come from the policy, others from how rewards arrive.

The latter compare recent slots of the history with the slots before them. docs/guides/experiments.md has what each
alarm means, and docs/background/alarms.md how late they are raised and how often in error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import islice

from scipy.special import bdtr
from sqlalchemy import exists, select

from kofn.campaigns.evidence import sample_ratio
from kofn.campaigns.fold import Transaction
from kofn.campaigns.reports.view import View
from kofn.campaigns.roster import subset_from
from kofn.campaigns.serving import SERVING
from kofn.campaigns.store.schema import DECISIONS, EVENTS
from kofn.core import Alarm
from kofn.core.responses import RaisedAlarm, moment

MATURE = 5.0
"""Mean delays after which a decision is expected to have its reward. Higher: alarms come later, and fewer in error."""

EXPECTED = 14.0
"""Rewards that must be expected, and none seen, before rewards count as stopped: e^-14 is one in a million."""

RECENT, RECENT_DELAYS, BEFORE = 20.0, 10.0, 10.0
"""Least lengths of parts of the history, in mean delays: the recent part that is checked for missing rewards, so that
decisions and rewards in it match; the recent part that is checked for longer delays; and the part before either."""

MIN_RECENT = 500
"""Decisions that the recent part and the part before it have at least; more if rewards are rare: then as many as have
MIN_RECENT / 5 rewards."""

FACTORS = (1, 4)
"""Sizes of the recent part in which missing rewards are looked for, in units of the smallest one."""

MISSING_CHANGE, DELAY_CHANGE = 0.25, 2.0
"""The rate of decisions with a reward must fall by this part, and delays grow by this factor, to raise an alarm."""

DEVIATIONS = 6.0
"""Standard deviations by which the rate or the delay must have changed. Higher: later, and fewer in error."""

DAY, PART_OF_HISTORY = 86400.0, 0.25
"""Delays are compared over at least a day, or this part of a history that is shorter. When decisions are rare, as at
night, most of the rewards that arrive are late ones. Longer: later, and fewer in error."""

HARDLY, MIN_ARM = 0.05, 30
"""An arm fails if at least MIN_ARM decisions with it have at most this part of the rewards that others have. Higher:
more alarms about arms that only sell little."""

RECENT_DECISIONS = 5000
"""Decisions in which arms that fail are looked for, the latest ones."""

TOO_CLOSE, DIFFERENT = 5e-8, 1e-6
"""Rewards are too close if their standard deviation is less than the first part of their distance to the end of the
range that is worst; a policy loses it in the rounding of squares. Below the second part of their mean, it may itself be
rounding."""

NOTE_AGAIN = 3600.0
"""Seconds between two events of the same alarm at least. Lower: an alarm that comes and goes makes more events."""

ADVICE = ". Advice: "
"""What separates the message of an alarm from its advice, in the message of an event."""

_POLICY = {
    "drift": (
        "rewards of the best subset have changed",
        "set half_life, the number of plays after which a reward counts half",
    ),
    "misfit": (
        "rewards of other subsets are not as the policy predicted",
        "some arms may work only together: compare with another policy, such as thompson-subsets if there are few arms",
    ),
}


@dataclass(frozen=True)
class Period:
    """A part of the history: when it begins and ends, and its sums."""

    begin: float = math.inf
    end: float = -math.inf
    decided: int = 0
    rewarded: int = 0
    waited: float = 0.0

    def __add__(self, other: Period) -> Period:
        sums = self.decided + other.decided, self.rewarded + other.rewarded, self.waited + other.waited
        return Period(min(self.begin, other.begin), max(self.end, other.end), *sums)

    @property
    def rate(self) -> float:
        """Rewards per decision."""
        return self.rewarded / self.decided if self.decided else 0.0

    @property
    def delay(self) -> float:
        """Mean seconds between a decision and its reward."""
        return self.waited / self.rewarded if self.rewarded else 0.0


@dataclass(frozen=True)
class ArrivalHistory:
    """How decisions and rewards arrived, oldest part first, as seen at a time."""

    parts: Sequence[Period]
    now: float

    @cached_property
    def all(self) -> Period:
        """All of the history."""
        return _sum(self.parts)

    @property
    def mature(self) -> float:
        """The time before which decisions are expected to have their reward."""
        return self.now - MATURE * self.all.delay

    def split(self, seconds: float, factor: int = 1) -> tuple[Sequence[Period], Sequence[Period]]:
        """Return the history before, and its recent part: it lasts at least `seconds`, with enough decisions.

        With a larger `factor` it has more decisions, so that smaller changes are seen, later. The first plays are left
        out: at first, only fast rewards have arrived.
        """
        recent, at = Period(), len(self.parts)
        enough = factor * (MIN_RECENT if self.all.rate >= 0.2 else MIN_RECENT / 5 / max(self.all.rate, 1e-9))
        while at and (recent.decided < enough or recent.end - recent.begin < seconds):
            at -= 1
            recent += self.parts[at]
        young = self.parts[0].begin + MATURE * max(recent.delay, self.all.delay)
        before = [part for part in self.parts[:at] if part.begin >= young]
        long = bool(before) and before[-1].end - before[0].begin >= BEFORE * self.all.delay
        return before if long else [], self.parts[at:]

    def alarms(self) -> Iterator[RaisedAlarm]:
        """Yield the alarms of how rewards arrive."""
        if self.all.rewarded:
            yield from _silence(self)
            day = min(DAY, PART_OF_HISTORY * (self.all.end - self.all.begin))
            yield from _delay(*self.split(max(RECENT_DELAYS * self.all.delay, day)))
            found = (alarm for factor in FACTORS for alarm in _missing(*self.split(RECENT * self.all.delay, factor)))
            yield from islice(found, 1)


def raised(view: View, arrivals: ArrivalHistory) -> list[RaisedAlarm]:
    """Return all alarms, the policy's first."""
    known = view.insight
    found = [_of_policy(alarm) for alarm in (known.alarms if known and known.alarms else ())]
    if view.row.failure is not None:
        found.append(
            _alarm(
                "policy",
                f"the policy cannot learn: {view.row.failure['reason']}",
                "decisions follow the last plan, and rewards are recorded. Change a setting, or upgrade kofn: then it "
                "tries again",
            )
        )
    if view.row.state in SERVING and view.progress.rewarded:
        found += [*arrivals.alarms(), *_failing_arms(view, arrivals.mature), *_ratio(view), *_range(view)]
    if view.row.state in SERVING:
        found += _guardrails(view)
    return found


def note(tx: Transaction, found: Sequence[RaisedAlarm]) -> None:
    """Write an entry of the journal for each alarm that is new, and for each that is over, while decisions are served.

    The next entry of the same alarm comes after NOTE_AGAIN seconds at the earliest, however often it comes and goes.
    """
    if are_noted(tx, found):
        return
    raised_now = {_name(alarm): alarm for alarm in found}
    changes = _to_note(tx, raised_now)
    for name in changes:
        if name in raised_now:
            tx.note("alarm", f"{name}: {raised_now[name].message}{ADVICE}{raised_now[name].advice}")
        else:
            tx.note("alarm over", name)
    progress = tx.row.progress
    recent = {name: at for name, at in progress.alarms_noted.items() if tx.now - at < NOTE_AGAIN}
    progress.alarms_noted = recent | dict.fromkeys(changes, tx.now)
    progress.alarms = tuple(sorted(set(progress.alarms) ^ set(changes)))


def are_noted(tx: Transaction, found: Sequence[RaisedAlarm]) -> bool:
    """Return whether `note` would write nothing."""
    return tx.row.state not in SERVING or not _to_note(tx, map(_name, found))


def _to_note(tx: Transaction, now: Iterable[str]) -> list[str]:
    """Return the names of alarms that are new or over, unless they have a recent entry."""
    noted, changed = tx.row.progress.alarms_noted, set(now) ^ set(tx.row.progress.alarms)
    return sorted(name for name in changed if tx.now - noted.get(name, -math.inf) >= NOTE_AGAIN)


def _name(alarm: RaisedAlarm) -> str:
    """Return what identifies an alarm while it is raised."""
    return alarm.kind if alarm.arm is None else f"{alarm.kind} {alarm.arm}"


def _alarm(kind: str, message: str, advice: str, *, at: datetime | None = None, arm: str | None = None) -> RaisedAlarm:
    return RaisedAlarm(kind, None, at, message, advice, arm)


def _of_policy(alarm: Alarm) -> RaisedAlarm:
    message, advice = _POLICY[alarm.kind]
    return RaisedAlarm(alarm.kind, alarm.since, None, message, advice)


def arrivals_of(view: View) -> ArrivalHistory:
    """Return the campaign's history of decisions and of the first events about them."""
    width = view.progress.slot_width
    return ArrivalHistory(
        [
            Period(slot * width, (slot + 1) * width, here.decided, here.arrived, here.waited)
            for slot, here in view.slots.items()
        ],
        view.now,
    )


def _sum(parts: Sequence[Period]) -> Period:
    """Return all of these parts as one; they are in order."""
    if not parts:
        return Period()
    decided, rewarded = sum(part.decided for part in parts), sum(part.rewarded for part in parts)
    return Period(parts[0].begin, parts[-1].end, decided, rewarded, sum(part.waited for part in parts))


def _silence(arrivals: ArrivalHistory) -> Iterator[RaisedAlarm]:
    parts = arrivals.parts
    last = max(index for index, part in enumerate(parts) if part.rewarded)
    before = _sum(parts[: last + 1])
    decided = sum(part.decided for part in parts[last + 1 :] if part.end <= arrivals.mature)
    if decided * before.rate >= EXPECTED:
        since = moment(parts[last].end)
        yield _alarm(
            "silence",
            f"{decided:,} decisions without a reward since {since:%Y-%m-%d %H:%M} UTC; about "
            f"{decided * before.rate:,.0f} rewards were expected",
            "check that rewards are still sent: the job or the page that reports them",
            at=since,
        )


def _enough(before: Period, recent: Period) -> bool:
    return min(before.decided, recent.decided) >= MIN_RECENT and before.rewarded >= MIN_RECENT / 5


def _delay(parts_before: Sequence[Period], parts_recent: Sequence[Period]) -> Iterator[RaisedAlarm]:
    before, recent = _sum(parts_before), _sum(parts_recent)
    if not _enough(before, recent) or recent.rewarded < MIN_RECENT / 5:
        return
    least = max(1.0, DEVIATIONS * _delay_error(parts_before, parts_recent))
    if recent.delay > DELAY_CHANGE * before.delay and recent.delay > before.delay + least:
        yield _alarm(
            "delay",
            f"rewards take {recent.delay:,.0f} s on average, {before.delay:,.0f} s before",
            "check what reports them; decisions expire after expire_after",
            at=moment(recent.begin),
        )


def _delay_error(*both: Sequence[Period]) -> float:
    """Return the standard error of the difference of the mean delays of two parts of the history.

    The variance is that between slots of the history. It includes delays with a heavy tail, and those that depend on
    the hour.
    """
    sums = [_sum(parts) for parts in both]
    squares = sum(
        (part.waited - part.rewarded * known.delay) ** 2
        for parts, known in zip(both, sums, strict=True)
        for part in parts
    )
    return math.sqrt(squares / sum(known.rewarded for known in sums) * sum(1 / known.rewarded for known in sums))


def _missing(parts_before: Sequence[Period], parts_recent: Sequence[Period]) -> Iterator[RaisedAlarm]:
    before, recent = _sum(parts_before), _sum(parts_recent)
    if not _enough(before, recent):
        return
    pooled = (before.rewarded + recent.rewarded) / (before.decided + recent.decided)
    variance = max(pooled * (1 - pooled), 0.0) * (1 / before.decided + 1 / recent.decided)
    fall = before.rate - recent.rate
    if fall > MISSING_CHANGE * before.rate and fall > DEVIATIONS * math.sqrt(variance):
        yield _alarm(
            "missing",
            f"{recent.rate:.0%} of recent decisions have a reward, {before.rate:.0%} before",
            "check whether some rewards are lost: learning is biased if the lost ones differ from the others",
            at=moment(recent.begin),
        )


def _failing_arms(view: View, mature: float) -> Iterator[RaisedAlarm]:
    """Yield an alarm for each arm about whose decisions hardly anything is reported, while it is about others."""
    made, event = DECISIONS.c, EVENTS.c
    reported = exists().where(event.campaign == made.campaign, event.decision == made.number, event.kind < 2)
    chosen = select(made.subset, reported).where(made.campaign == view.id, made.at < mature)
    decided: Counter[int] = Counter()
    missing: Counter[int] = Counter()
    all_decided = all_missing = 0
    for subset, has_events in view.connection.execute(chosen.order_by(made.number.desc()).limit(RECENT_DECISIONS)):
        all_decided += 1
        all_missing += not has_events
        for arm in subset_from(subset):
            decided[arm] += 1
            missing[arm] += not has_events
    for arm, count in decided.items():
        others = all_decided - count
        if count < MIN_ARM or others < MIN_ARM or arm not in view.roster.active:
            continue
        usual, rewarded = (all_missing - missing[arm]) / others, count - missing[arm]
        by_chance = bdtr(rewarded, count, 1 - usual)
        if rewarded <= HARDLY * (1 - usual) * count and by_chance * len(decided) < math.exp(-EXPECTED):
            name = view.roster.names[arm]
            yield _alarm(
                "arm",
                f"{missing[arm]:,} of {count:,} decisions with {name!r} have no reward; {usual:.0%} of the others",
                f"look at {name!r}: what shows it may be broken. Retire it until it works",
                arm=name,
            )


def _guardrails(view: View) -> Iterator[RaisedAlarm]:
    """Yield an alarm for each guardrail that is certainly broken."""
    from kofn.campaigns.reports.report import metrics

    for each in metrics(view):
        if each.broken and each.learned is not None and each.control is not None:
            yield _alarm(
                "guardrail",
                f"{each.guardrail} is broken: {each.name} is {each.learned.mean:.3g} per decision, and "
                f"{each.control.mean:.3g} with the control",
                "look at what the best subset does to it; ship the control, or change what may be shown",
                arm=each.name,
            )


def _ratio(view: View) -> Iterator[RaisedAlarm]:
    if view.settings.control is None:
        return
    progress, share = view.progress, view.settings.control_share
    found = sample_ratio(progress.learned_decided, progress.control_decided, share)
    if found.rejected and found.observed is not None:
        yield _alarm(
            "ratio",
            f"the control gets {found.observed:.2%} of the decisions instead of {found.share:.0%}",
            "do not trust the lift: check whether keys are spread evenly and decisions of both groups are played",
        )


def _range(view: View) -> Iterator[RaisedAlarm]:
    """Yield an alarm if the range is so wide that a policy cannot tell the rewards apart."""
    settings, sums = view.settings, view.progress.learned
    low, high = settings.reward_range
    if sums.count < MIN_ARM:
        return
    deviation = math.sqrt(sums.deviations / sums.count)
    distance = sums.mean - low if settings.direction == "maximize" else high - sums.mean
    if DIFFERENT * abs(sums.mean) < deviation < TOO_CLOSE * distance:
        yield _alarm(
            "range",
            f"rewards differ by about {deviation:.2g}, too little to be told apart in a range of {low:g} to {high:g}",
            "create a campaign with a narrower range, or with a learned one (reward_range=None)",
        )
