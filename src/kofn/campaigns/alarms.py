"""Alarms: what makes a campaign's numbers doubtful. Those of the policy, and those of how rewards arrive.

The latter compare recent slots of the history with the slots before them. docs/guides/experiments.md has what each
alarm means, and docs/background/alarms.md how late they are raised and how often in error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import select

from kofn.campaigns.assess import ratio_of
from kofn.campaigns.rows import subset_from
from kofn.campaigns.schema import BATCHES
from kofn.campaigns.transaction import Transaction
from kofn.core import Alarm, Insight
from kofn.responses import RaisedAlarm, moment

MATURE = 5.0
"""Mean delays after which a decision is expected to have its reward. Higher: alarms come later, and fewer in error."""

EXPECTED = 14.0
"""Rewards that must be expected, and none seen, before rewards count as stopped: e^-14 is one in a million."""

RECENT = 20.0
"""Mean delays that the recent part of the history has at least, so that decisions and rewards in it match."""

MIN_RECENT = 500
"""Decisions, and MIN_RECENT / 5 rewards, that the recent part and the part before it have at least."""

MISSING_CHANGE, DELAY_CHANGE = 0.25, 2.0
"""The rate of decisions with a reward must fall by this part, and delays grow by this factor, to raise an alarm."""

DEVIATIONS = 6.0
"""Standard deviations by which the rate must have changed. Higher: later, and fewer in error."""

ALWAYS, MIN_ARM = 0.95, 30
"""An arm fails if this part of at least so many decisions with it have no reward."""

RECENT_BATCHES = 5000
"""Batches of decisions in which arms that fail are looked for, the latest ones."""

SERVING = ("running", "shipped")
"""States of a campaign that serves decisions."""

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
class _Part:
    """A part of the history: when it begins, and its sums."""

    begin: float = math.inf
    end: float = -math.inf
    decided: int = 0
    rewarded: int = 0
    waited: float = 0.0

    def with_slot(self, begin: float, end: float, slot: tuple[int, int, float, float]) -> _Part:
        decided, rewarded, _, waited = slot
        sums = self.decided + decided, self.rewarded + rewarded, self.waited + waited
        return _Part(min(self.begin, begin), max(self.end, end), *sums)

    @property
    def rate(self) -> float:
        """Rewards per decision."""
        return self.rewarded / self.decided if self.decided else 0.0

    @property
    def delay(self) -> float:
        """Mean seconds between a decision and its reward."""
        return self.waited / self.rewarded if self.rewarded else 0.0


def raised(tx: Transaction, known: Insight | None) -> list[RaisedAlarm]:
    """Return all alarms, those of the policy first."""
    found = [_of_policy(alarm) for alarm in (known.alarms if known and known.alarms else ())]
    if tx.row.state not in SERVING or not tx.row.rewarded:
        return found
    parts = _parts(tx)
    found += _silence(tx, parts)
    found += _delay(*_split(tx, parts))
    found += _missing(*_split(tx, parts))
    found += _failing_arms(tx)
    found += _ratio(tx)
    return found


def note(tx: Transaction, found: Sequence[RaisedAlarm]) -> None:
    """Record an event for each alarm that is new, and for each that is over, of a campaign that serves decisions."""
    before, now = tx.options.alarms, {_name(alarm): alarm for alarm in found}
    if tx.row.state not in SERVING or set(before) == now.keys():
        return
    tx.changing()
    for name, alarm in now.items():
        if name not in before:
            tx.note("alarm", f"{name}: {alarm.message}{ADVICE}{alarm.advice}")
    for name in before:
        if name not in now:
            tx.note("alarm over", name)
    tx.row.options = replace(tx.options, alarms=tuple(now)).to_text()


def are_noted(tx: Transaction, found: Sequence[RaisedAlarm]) -> bool:
    """Return whether `note` would record nothing."""
    return tx.row.state not in SERVING or set(tx.options.alarms) == set(map(_name, found))


def _name(alarm: RaisedAlarm) -> str:
    """Return what identifies an alarm while it is raised."""
    return alarm.kind if alarm.arm is None else f"{alarm.kind} {alarm.arm}"


def _of_policy(alarm: Alarm) -> RaisedAlarm:
    message, advice = _POLICY[alarm.kind]
    return RaisedAlarm(alarm.kind, alarm.since, None, message, advice)


def _parts(tx: Transaction) -> list[_Part]:
    width = tx.row.slot_width
    none = _Part()
    return [none.with_slot(slot * width, (slot + 1) * width, sums) for slot, sums in sorted(tx.slots().items())]


def _sum(parts: list[_Part]) -> _Part:
    total = _Part()
    for part in parts:
        total = total.with_slot(part.begin, part.end, (part.decided, part.rewarded, 0.0, part.waited))
    return total


def _split(tx: Transaction, parts: list[_Part]) -> tuple[_Part, _Part]:
    """Return the history before, and its recent part: long enough for the delays, with enough decisions.

    The first plays are left out: at first, only fast rewards have arrived.
    """
    recent = _Part()
    at = len(parts)
    while at and (
        recent.decided < MIN_RECENT
        or recent.rewarded < MIN_RECENT / 5 <= MIN_RECENT * tx.row.rewarded / max(tx.row.decided, 1)
        or recent.end - recent.begin < RECENT * tx.row.waited / tx.row.rewarded
    ):
        at -= 1
        recent = _sum([parts[at], recent]) if recent.decided or recent.rewarded else parts[at]
    young = tx.row.created + MATURE * max(recent.delay, tx.row.waited / tx.row.rewarded)
    return _sum([part for part in parts[:at] if part.begin >= young]), recent


def _silence(tx: Transaction, parts: list[_Part]) -> Iterator[RaisedAlarm]:
    last = max((index for index, part in enumerate(parts) if part.rewarded), default=-1)
    before, mature = _sum(parts[: last + 1]), tx.now - MATURE * tx.row.waited / tx.row.rewarded
    decided = sum(part.decided for part in parts[last + 1 :] if part.end <= mature)
    if last >= 0 and decided * before.rate >= EXPECTED:
        since = moment(parts[last].end)
        yield RaisedAlarm(
            "silence",
            None,
            since,
            f"{decided:,} decisions without a reward since {since:%Y-%m-%d %H:%M} UTC; about "
            f"{decided * before.rate:,.0f} rewards were expected",
            "check that rewards are still sent: the job or the page that reports them",
        )


def _enough(before: _Part, recent: _Part) -> bool:
    return min(before.decided, recent.decided) >= MIN_RECENT


def _delay(before: _Part, recent: _Part) -> Iterator[RaisedAlarm]:
    enough = _enough(before, recent) and min(before.rewarded, recent.rewarded) >= MIN_RECENT / 5
    if enough and recent.delay > DELAY_CHANGE * before.delay and recent.delay > before.delay + 1:
        yield RaisedAlarm(
            "delay",
            None,
            moment(recent.begin),
            f"rewards take {recent.delay:,.0f} s on average, {before.delay:,.0f} s before",
            "check what reports them; decisions expire after expire_after",
        )


def _missing(before: _Part, recent: _Part) -> Iterator[RaisedAlarm]:
    if not _enough(before, recent):
        return
    pooled = (before.rewarded + recent.rewarded) / (before.decided + recent.decided)
    variance = max(pooled * (1 - pooled), 0.0) * (1 / before.decided + 1 / recent.decided)
    fall = before.rate - recent.rate
    if fall > MISSING_CHANGE * before.rate and fall > DEVIATIONS * math.sqrt(variance):
        yield RaisedAlarm(
            "missing",
            None,
            moment(recent.begin),
            f"{recent.rate:.0%} of recent decisions have a reward, {before.rate:.0%} before",
            "check whether some rewards are lost: learning is biased if the lost ones differ from the others",
        )


def _failing_arms(tx: Transaction) -> Iterator[RaisedAlarm]:
    """Yield an alarm for each arm whose decisions hardly ever get a reward, while others do."""
    columns = BATCHES.c.subset, BATCHES.c["count"], BATCHES.c.open
    mature = BATCHES.c.at < tx.now - MATURE * tx.row.waited / tx.row.rewarded
    latest = select(*columns).where(BATCHES.c.campaign == tx.id, mature).order_by(BATCHES.c.first.desc())
    decided: Counter[int] = Counter()
    missing: Counter[int] = Counter()
    all_decided = all_missing = 0
    for subset, count, open_ in tx.execute(latest.limit(RECENT_BATCHES)):
        all_decided += count
        all_missing += open_
        for arm in subset_from(subset):
            decided[arm] += count
            missing[arm] += open_
    for arm, count in decided.items():
        others = all_decided - count
        if count < MIN_ARM or missing[arm] < ALWAYS * count or others < MIN_ARM or arm not in tx.roster.active:
            continue
        usual = (all_missing - missing[arm]) / others
        if usual <= 0 or missing[arm] * math.log(usual) < -EXPECTED - math.log(len(decided)):
            name = tx.roster.names[arm]
            yield RaisedAlarm(
                "arm",
                None,
                None,
                f"{missing[arm]:,} of {count:,} decisions with {name!r} have no reward; {usual:.0%} of the others",
                f"look at {name!r}: what shows it may be broken. Retire it until it works",
                name,
            )


def _ratio(tx: Transaction) -> Iterator[RaisedAlarm]:
    found = ratio_of(tx)
    if found is not None and found.rejected and found.observed is not None:
        yield RaisedAlarm(
            "ratio",
            None,
            None,
            f"the control gets {found.observed:.2%} of the decisions instead of {found.share:.0%}",
            "do not trust the lift: check whether keys are spread evenly and decisions of both groups are played",
        )
