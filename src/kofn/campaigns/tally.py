"""What the log has between two cuts: decisions that arrived, settled or expired, their rewards, totals and metrics.

Without a window, a decision settles with its first reward, by the number of that event; it expires at `due`. With a
window, it settles at `due`, with the sum of its events or with silence. So rows are never marked: what is counted
follows from two cuts. Folds read it to count for good, and reports to add what is not folded yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Double,
    and_,
    bindparam,
    case,
    cast,
    exists,
    func,
    literal_column,
    or_,
    select,
)

from kofn.campaigns.append import RECORD, REWARD
from kofn.campaigns.progress import Arrived, Play, Progress, Settled
from kofn.campaigns.settings import CONTROL, GROUPS, LEARNED, Settings
from kofn.campaigns.store.schema import DECISIONS, EVENTS, TOTALS
from kofn.campaigns.store.statements import Driver, Statement

_D, _E, _T = DECISIONS.c, EVENTS.c, TOTALS.c

MOST = 1e300
"""What no reward exceeds: where they are not clipped."""


class Cut(NamedTuple):
    """A moment of the log: the numbers of the last decision, event and total, and the time."""

    decisions: int
    events: int
    totals: int
    time: float


class Slot(NamedTuple):
    """What happened in a slot of the history."""

    decided: int = 0
    rewarded: int = 0
    arrived: int = 0
    total: float = 0.0
    waited: float = 0.0

    def __add__(self, other: Any) -> Slot:
        return Slot(*(one + more for one, more in zip(self, other, strict=True)))


class Total(NamedTuple):
    """Plays of one subset that were reported together."""

    subset: str
    context: str | None
    plays: int
    total: float
    squares: float
    cost: float
    at: float


@dataclass
class Tally:
    """What the log has between two cuts."""

    arrived: list[Arrived] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    expired: list[Arrived] = field(default_factory=list)
    totals: list[Total] = field(default_factory=list)
    slots: dict[int, Slot] = field(default_factory=lambda: defaultdict(Slot))
    clipped: int = 0
    least: float | None = None  # the extremes of the rewards, before they are clipped
    most: float | None = None
    matured: int | None = None  # metrics of decisions up to this number have settled
    mature_counts: dict[str, int] = field(default_factory=dict)
    mature_sums: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)
    next_due: float | None = None  # when the next decision settles or expires

    def plays(self) -> dict[Play, tuple[int, float, float]]:
        """Return what the policy learns: count, sum and sum of squares of the rewards, gross, by subset and segment."""
        sums: dict[Play, tuple[int, float, float]] = {}
        rows = [(each.subset, each.context, each.plays, each.total, each.squares) for each in self.settled]
        rows += [(each.subset, each.context, each.plays, each.total, each.squares) for each in self.totals]
        for subset, context, count, total, squares in rows:
            before = sums.get((subset, context), (0, 0.0, 0.0))
            sums[subset, context] = before[0] + count, before[1] + total, before[2] + squares
        return sums

    def add_to(self, progress: Progress, sign: float) -> None:
        """Count all of it."""
        progress.decide(self.arrived)
        progress.settle(self.settled)
        progress.expire(self.expired)
        for each in self.totals:
            progress.add_total(each.subset, each.plays, each.total - sign * each.plays * each.cost)
        progress.clipped += self.clipped
        progress.arrived += sum(slot.arrived for slot in self.slots.values())
        progress.waited += sum(slot.waited for slot in self.slots.values())
        if self.matured is not None:
            progress.matured = self.matured
            progress.mature(self.mature_counts, self.mature_sums)
        progress.prune()


def tally(
    connection: Connection, campaign: int, settings: Settings, progress: Progress, before: Cut, after: Cut
) -> Tally:
    """Return what the log has between two cuts."""
    found, reader = Tally(), _Reader(connection, campaign, settings, progress, before, after)
    asked = ["next"] if progress.metrics else ["next", "recorded"]
    asked += ["arrived", "made"] if after.decisions > before.decisions else []
    asked += ["rewarded", "delays"] if after.events > before.events else []
    asked += ["ended", "expired"] if after.time > before.time else []
    asked += ["totals"] if after.totals > before.totals else []
    with reader.driver.batch():
        answers = {name: reader.ask(name) for name in asked}
    rows = defaultdict[str, list[Any]](list, {name: answer() for name, answer in answers.items()})
    found.arrived = [Arrived(*row) for row in rows["arrived"]]
    found.expired = [Arrived(*row) for row in rows["expired"]]
    found.next_due = rows["next"][0][0] if rows["next"] else None
    for slot, count in rows["made"]:
        found.slots[slot] += Slot(decided=count)
    for slot, count, seconds in rows["delays"]:  # the first events of decisions, and how long they took
        found.slots[slot] += Slot(arrived=count, waited=seconds)
    reader.settle(found, rows["rewarded"])
    reader.settle(found, rows["ended"])
    reader.add_totals(found, rows["totals"])
    reader.read_metrics(found, [row[0] for row in rows["recorded"]])
    return found


# The queries. Their parameters: c campaign, d0 to d1 decisions, e0 to e1 events, s0 to s1 totals, t0 to t1 times, from
# the first decision that is compared with the control, width of a slot, low and high reward, sign of costs, silence.

_B = bindparam
_COMPARED = case((and_(_D.compared == 1, _D.number > _B("since")), 1), else_=0).label("compared")
_NEW_DECISIONS = and_(_D.campaign == _B("c"), _D.number > _B("d0"), _D.number <= _B("d1"))
_NEW_EVENTS = and_(_E.campaign == _B("c"), _E.number > _B("e0"), _E.number <= _B("e1"))
_DUE = and_(_D.campaign == _B("c"), _D.due > _B("t0"), _D.due <= _B("t1"), _D.number <= _B("d1"))
_JOINED = and_(_D.campaign == _E.campaign, _D.number == _E.decision)
NEWEST = Statement(
    select(*(select(func.max(c.number)).where(c.campaign == _B("c")).scalar_subquery() for c in (_D, _E, _T)))
)
_BY = _D.subset, _D.context, _D["group"], _COMPARED
_TOTALS = Statement(
    select(*(_T["count" if name == "plays" else name] for name in Total._fields)).where(
        _T.campaign == _B("c"), _T.number > _B("s0"), _T.number <= _B("s1")
    )
)
_NEXT_DUE = Statement(select(_D.due).where(_D.campaign == _B("c"), _D.due > _B("t1")).order_by(_D.due).limit(1))
_RECORDED = Statement(select(_E.name).where(_NEW_EVENTS, _E.kind == RECORD, _E.counts == 1).distinct())
_YOUNG = Statement(
    select(_D.number)
    .where(_D.campaign == _B("c"), _D.number > _B("m0"), _D.at > _B("young"))
    .order_by(_D.number)
    .limit(1)
)
_MATURE = and_(_D.campaign == _B("c"), _D.number > _B("m0"), _D.number <= _B("m1"), _COMPARED == 1)
_MATURE_COUNTS = Statement(select(_D["group"], func.count()).where(_MATURE).group_by(_D["group"]))
_MATURE_SUMS = Statement(
    select(_E.name, _D["group"], func.sum(_E.value), func.sum(_E.value * _E.value))
    .join_from(DECISIONS, EVENTS, and_(_JOINED, _E.kind == RECORD, _E.counts == 1))
    .where(_MATURE)
    .group_by(_E.name, _D["group"])
)


@cache
def _queries(remote: bool) -> dict[str, Statement]:
    """Return the queries that need the slot of a time, which each database computes in its own way."""

    def slot(at: Any) -> ColumnElement[Any]:
        exact = at / _B("width", type_=Double)
        return cast(func.floor(exact) if remote else exact, BigInteger).label("slot")

    def settled(values: Any, slot: Any, overdue: Any, *more: Any) -> Statement:
        """Return the sums of settled decisions, whose rewards are a column `value`."""
        columns = *_BY, _D.step, _D.cost, overdue.label("overdue"), slot, values.label("value")
        c = select(*columns).where(*more).offset(0).subquery().c  # with an offset, it is computed once
        gross = case((c.value < _B("low"), _B("low")), (c.value > _B("high"), _B("high")), else_=c.value)
        net = gross - _B("sign", type_=Double) * c.cost
        by = [c[name] for name in ("subset", "context", "group", "compared", "overdue", "step", "slot")]
        sums = [func.sum(each) for each in (gross, gross * gross, net, net * net)]
        outside = func.sum(case((or_(c.value < _B("low"), c.value > _B("high")), 1), else_=0))
        return Statement(select(*by, func.count(), *sums, outside, func.min(c.value), func.max(c.value)).group_by(*by))

    reported = (
        select(func.sum(_E.value))
        .where(_E.campaign == _D.campaign, _E.decision == _D.number, _E.kind != RECORD, _E.counts == 1)
        .correlate(DECISIONS)
        .scalar_subquery()
    )
    other = EVENTS.alias()
    earlier = exists().where(
        *(other.c.campaign == _E.campaign, other.c.decision == _E.decision),
        *(other.c.kind != RECORD, other.c.number < _E.number),
    )
    rewarded = exists().where(_JOINED, _E.kind == REWARD, _E.counts == 1, _E.number <= _B("e1"))
    made, first = slot(_D.at), slot(_E.at)
    waited = case((_E.at > _D.at, _E.at - _D.at), else_=0.0)
    return {
        "totals": _TOTALS,
        "recorded": _RECORDED,
        "next": _NEXT_DUE,
        "arrived": Statement(select(*_BY, func.count()).where(_NEW_DECISIONS).group_by(*_BY)),
        "made": Statement(select(made, func.count()).where(_NEW_DECISIONS).group_by(made)),
        "rewarded": settled(
            _E.value,
            slot(_E.at),
            case((_D.due <= _B("t0"), 1), else_=0),
            *(_NEW_EVENTS, _JOINED, _E.kind == REWARD, _E.counts == 1, _D.windowed == 0),
        ),
        "ended": settled(
            func.coalesce(reported, _B("silence", type_=Double)),
            slot(_D.due),
            literal_column("0"),
            _DUE,
            _D.windowed == 1,
        ),
        "expired": Statement(select(*_BY, func.count()).where(_DUE, _D.windowed == 0, ~rewarded).group_by(*_BY)),
        "delays": Statement(
            select(first, func.count(), func.sum(waited))
            .join_from(EVENTS, DECISIONS, _JOINED)
            .where(_NEW_EVENTS, _E.kind != RECORD, _E.counts == 1, ~earlier)
            .group_by(first)
        ),
    }


class _Reader:
    """The queries of one tally."""

    def __init__(
        self,
        connection: Connection,
        campaign: int,
        settings: Settings,
        progress: Progress,
        before: Cut,
        after: Cut,
    ) -> None:
        self.driver, self._settings, self._progress = Driver(connection), settings, progress
        self._after = after
        low, high = (-MOST, MOST) if settings.outside == "widen" else settings.reward_range
        self._values = {
            "c": campaign,
            **dict(zip(("d0", "e0", "s0", "t0"), before, strict=True)),
            **dict(zip(("d1", "e1", "s1", "t1"), after, strict=True)),
            "since": settings.control_from,
            "width": progress.slot_width,
            "low": low,
            "high": high,
            "sign": settings.sign,
            "silence": settings.silence,
        }

    def ask(self, name: str) -> Callable[[], list[Any]]:
        """Send a query, and return a function that returns its rows."""
        return self.driver.ask(_queries(self.driver.is_remote)[name], self._values)

    def _own(self, statement: Statement, **more: Any) -> list[Any]:
        return self.driver.rows(statement, {**self._values, **more})

    def settle(self, found: Tally, rows: Iterable[Any]) -> None:
        """Add the sums of settled decisions."""
        settled: dict[tuple[Any, ...], Settled] = {}
        candidates = self._progress.candidates
        for *key, step, slot, plays, total, squares, net, net_squares, outside, least, most in rows:
            candidate = candidates.get(key[0])
            fresh = int(candidate is not None and step >= candidate.step)
            of = *key[:4], fresh, key[4]
            sums = plays, total, squares, net, net_squares
            before = settled.get(of)
            if before is not None:
                sums = tuple(one + more for one, more in zip(before[6:], sums, strict=True))
            settled[of] = Settled._make((*of, *sums))
            found.slots[slot] += Slot(rewarded=plays, total=net)
            found.clipped += outside if self._settings.outside == "clip" else 0
            found.least = least if found.least is None else min(found.least, least)
            found.most = most if found.most is None else max(found.most, most)
        found.settled += settled.values()

    def add_totals(self, found: Tally, rows: list[Any]) -> None:
        """Add totals."""
        for row in rows:
            found.totals.append(each := Total(*row))
            net = each.total - self._settings.sign * each.plays * each.cost
            found.slots[int(each.at // self._progress.slot_width)] += Slot(each.plays, each.plays, total=net)
            mean = each.total / each.plays  # rewards are at least as far apart as their mean and variance need
            found.least = mean if found.least is None else min(found.least, mean)
            found.most = mean if found.most is None else max(found.most, mean)

    def read_metrics(self, found: Tally, first: list[str]) -> None:
        """Read metrics that have settled, if any was ever recorded; `first` are the first ones."""
        progress, end = self._progress, self._after.decisions
        found.mature_sums = {name: {} for name in first}
        if not progress.metrics and not found.mature_sums:
            return
        young = self._after.time - self._settings.metrics_after
        too_young = self._own(_YOUNG, m0=progress.matured, young=young)
        found.matured = min(too_young[0][0] - 1, end) if too_young else end
        if not progress.metrics:  # what has settled before the first record was not measured
            found.mature_counts = {GROUPS[LEARNED]: 0, GROUPS[CONTROL]: 0}
            return
        between = {"m0": progress.matured, "m1": found.matured}
        found.mature_counts = {GROUPS[group]: count for group, count in self._own(_MATURE_COUNTS, **between)}
        for name, group, total, squares in self._own(_MATURE_SUMS, **between):
            found.mature_sums.setdefault(name, {})[GROUPS[group]] = total, squares


def written(plays: Mapping[Play, tuple[int, float, float]]) -> list[list[Any]]:
    """Return what a policy learns as plain values."""
    return [[*play, *sums] for play, sums in sorted(plays.items(), key=lambda each: (each[0][0], each[0][1] or ""))]


def merged(one: Iterable[Any], more: Mapping[Play, tuple[int, float, float]]) -> dict[Play, tuple[int, float, float]]:
    """Return the sum of what was written and of further plays."""
    sums = {(subset, context): (count, total, squares) for subset, context, count, total, squares in one}
    for play, (count, total, squares) in more.items():
        before = sums.get(play, (0, 0.0, 0.0))
        sums[play] = before[0] + count, before[1] + total, before[2] + squares
    return sums
