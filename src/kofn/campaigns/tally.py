"""What the log has between two cuts: decisions that arrived, settled or expired, their rewards, totals and metrics.

Without a window, a decision settles with its first reward, by the number of that event; it expires at `due`. With a
window, it settles at `due`, with the sum of its events or with silence. So rows are never marked: what is counted
follows from two cuts. Folds read it to count for good, and reports to add what is not folded yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, case, cast, exists, func, literal, or_, select
from sqlalchemy.types import BigInteger

from kofn.campaigns.append import RECORD, REWARD
from kofn.campaigns.progress import Arrived, Play, Progress, Settled
from kofn.campaigns.settings import CONTROL, GROUPS, LEARNED, Settings
from kofn.campaigns.store.schema import DECISIONS, EVENTS, TOTALS

_D, _E, _T = DECISIONS.c, EVENTS.c, TOTALS.c


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


def newest(connection: Connection, campaign: int, before: Cut, time: float) -> Cut:
    """Return the present end of the log."""

    def last(table: Any, least: int) -> int:
        found = connection.execute(select(func.max(table.c.number)).where(table.c.campaign == campaign)).scalar()
        return max(least, found or 0)

    decisions, events = last(DECISIONS, before.decisions), last(EVENTS, before.events)
    return Cut(decisions, events, last(TOTALS, before.totals), max(time, before.time))


def tally(
    connection: Connection, campaign: int, settings: Settings, progress: Progress, before: Cut, after: Cut
) -> Tally:
    """Return what the log has between two cuts."""
    found = Tally()
    reader = _Reader(connection, campaign, settings, progress, before, after)
    if after.decisions > before.decisions:
        reader.read_arrived(found)
    if after.events > before.events:
        reader.read_rewarded(found)
        reader.read_delays(found)
    if after.time > before.time:
        reader.read_due(found)
        reader.read_expired(found)
    if after.totals > before.totals:
        reader.read_totals(found)
    reader.read_metrics(found)
    return found


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
        self._connection, self._settings, self._progress = connection, settings, progress
        self._campaign, self._before, self._after = campaign, before, after
        self._remote = connection.dialect.name == "postgresql"
        self._compared = case((and_(_D.compared == 1, _D.number > settings.control_from), 1), else_=0)
        fresh = [(and_(_D.subset == subset, _D.number > each.since), 1) for subset, each in progress.candidates.items()]
        self._fresh: Any = case(*fresh, else_=0) if fresh else literal(0)

    def _slot(self, at: Any) -> ColumnElement[Any]:
        slot = at / self._progress.slot_width
        return cast(func.floor(slot) if self._remote else slot, BigInteger)

    def _ours(self, *more: ColumnElement[bool]) -> ColumnElement[bool]:
        return and_(_D.campaign == self._campaign, *more)

    def read_arrived(self, found: Tally) -> None:
        """Read new decisions."""
        number = self._ours(_D.number > self._before.decisions, _D.number <= self._after.decisions)
        by = _D.subset, _D.context, _D.group, self._compared
        query = select(*by, func.count()).where(number).group_by(*by)
        found.arrived += [Arrived(*row) for row in self._connection.execute(query)]
        slot = self._slot(_D.at)
        for at, count in self._connection.execute(select(slot, func.count()).where(number).group_by(slot)):
            found.slots[at] += Slot(decided=count)

    def read_rewarded(self, found: Tally) -> None:
        """Read decisions without a window that got their reward."""
        joined = and_(_D.campaign == _E.campaign, _D.number == _E.decision)
        chosen = and_(
            *(_E.campaign == self._campaign, _E.kind == REWARD, _E.counts == 1, _D.windowed == 0),
            *(_E.number > self._before.events, _E.number <= self._after.events),
        )
        overdue = case((_D.due <= self._before.time, 1), else_=0)
        rows = select(*self._keys(overdue, self._slot(_E.at)), _E.value.label("value"), _D.cost.label("cost"))
        self._settle(found, rows.join_from(EVENTS, DECISIONS, joined).where(chosen).subquery())

    def read_due(self, found: Tally) -> None:
        """Read decisions whose window has ended."""
        reported = (
            select(func.sum(_E.value))
            .where(_E.campaign == _D.campaign, _E.decision == _D.number, _E.kind != RECORD, _E.counts == 1)
            .correlate(DECISIONS)
            .scalar_subquery()
        )
        value = func.coalesce(reported, self._settings.silence).label("value")
        rows = select(*self._keys(literal(0), self._slot(_D.due)), value, _D.cost.label("cost"))
        self._settle(found, rows.where(self._due, _D.windowed == 1).subquery())

    @property
    def _due(self) -> ColumnElement[bool]:
        """What was due between the cuts."""
        due = _D.due > self._before.time, _D.due <= self._after.time
        return self._ours(*due, _D.number <= self._after.decisions)

    def _keys(self, overdue: Any, slot: Any) -> list[Any]:
        named = {"compared": self._compared, "fresh": self._fresh, "overdue": overdue, "slot": slot}
        return [_D.subset, _D.context, _D["group"], *(each.label(name) for name, each in named.items())]

    def _settle(self, found: Tally, rows: Any) -> None:
        """Sum up rows of settled decisions."""
        c, (low, high) = rows.c, self._settings.reward_range
        gross: Any = c.value
        if self._settings.outside != "widen":
            gross = case((c.value < low, low), (c.value > high, high), else_=c.value)
        net = gross - self._settings.sign * c.cost
        by = [c[name] for name in ("subset", "context", "group", "compared", "fresh", "overdue", "slot")]
        sums = [func.sum(each) for each in (gross, gross * gross, net, net * net)]
        outside = func.sum(case((or_(c.value < low, c.value > high), 1), else_=0))
        merged: dict[tuple[Any, ...], Settled] = {}
        query = select(*by, func.count(), *sums, outside, func.min(c.value), func.max(c.value)).group_by(*by)
        for *key, slot, count, total, squares, nets, net_squares, clipped, least, most in self._connection.execute(
            query
        ):
            new = Settled(*key, count, total, squares, nets, net_squares)
            old = merged.get(tuple(key))
            merged[tuple(key)] = (
                new if old is None else Settled(*key, *(a + b for a, b in zip(old[6:], new[6:], strict=True)))
            )
            found.slots[slot] += Slot(rewarded=count, total=nets)
            found.clipped += clipped if self._settings.outside == "clip" else 0
            found.least = least if found.least is None else min(found.least, least)
            found.most = most if found.most is None else max(found.most, most)
        found.settled += merged.values()

    def read_delays(self, found: Tally) -> None:
        """Read the first events of decisions, and how long they took."""
        other = EVENTS.alias()
        same = other.c.campaign == _E.campaign, other.c.decision == _E.decision
        earlier = exists().where(*same, other.c.kind != RECORD, other.c.number < _E.number)
        joined = and_(_D.campaign == _E.campaign, _D.number == _E.decision)
        slot, waited = self._slot(_E.at), case((_E.at > _D.at, _E.at - _D.at), else_=0.0)
        query = select(slot, func.count(), func.sum(waited)).join_from(EVENTS, DECISIONS, joined)
        query = query.where(_E.campaign == self._campaign, _E.kind != RECORD, _E.counts == 1, ~earlier)
        query = query.where(_E.number > self._before.events, _E.number <= self._after.events).group_by(slot)
        for at, count, seconds in self._connection.execute(query):
            found.slots[at] += Slot(arrived=count, waited=seconds)

    def read_expired(self, found: Tally) -> None:
        """Read decisions without a window and without a reward that are overdue."""
        rewarded = exists().where(
            *(_E.campaign == _D.campaign, _E.decision == _D.number, _E.kind == REWARD),
            *(_E.counts == 1, _E.number <= self._after.events),
        )
        by = _D.subset, _D.context, _D["group"], self._compared
        query = select(*by, func.count()).where(self._due, _D.windowed == 0, ~rewarded).group_by(*by)
        found.expired += [Arrived(*row) for row in self._connection.execute(query)]

    def read_totals(self, found: Tally) -> None:
        """Read totals."""
        columns = (_T["count" if name == "plays" else name] for name in Total._fields)
        number = _T.number > self._before.totals, _T.number <= self._after.totals
        for row in self._connection.execute(select(*columns).where(_T.campaign == self._campaign, *number)):
            found.totals.append(each := Total(*row))
            net = each.total - self._settings.sign * each.plays * each.cost
            found.slots[int(each.at // self._progress.slot_width)] += Slot(each.plays, each.plays, total=net)
            mean = each.total / each.plays  # rewards are at least as far apart as their mean and variance need
            found.least = mean if found.least is None else min(found.least, mean)
            found.most = mean if found.most is None else max(found.most, mean)

    def read_metrics(self, found: Tally) -> None:
        """Read metrics that have settled, if any was ever recorded."""
        progress, end = self._progress, self._after.decisions
        new = _E.campaign == self._campaign, _E.number > self._before.events, _E.number <= self._after.events
        begins = not progress.metrics
        if begins and not self._connection.execute(select(_E.number).where(*new, _E.kind == RECORD).limit(1)).first():
            return
        young = self._ours(_D.number > progress.matured, _D.at > self._after.time - self._settings.metrics_after)
        first = self._connection.execute(select(_D.number).where(young).order_by(_D.number).limit(1)).scalar()
        found.matured = end if first is None else min(first - 1, end)
        if begins:  # what has settled before the first record was not measured
            names = self._connection.execute(select(_E.name).where(*new, _E.kind == RECORD).distinct()).scalars()
            found.mature_sums = {name: {} for name in names}
            found.mature_counts = {GROUPS[LEARNED]: 0, GROUPS[CONTROL]: 0}
            return
        number = _D.number > progress.matured, _D.number <= found.matured, self._compared == 1
        counted = select(_D["group"], func.count()).where(self._ours(*number)).group_by(_D["group"])
        found.mature_counts = {GROUPS[group]: count for group, count in self._connection.execute(counted)}
        joined = and_(_D.campaign == _E.campaign, _D.number == _E.decision, _E.kind == RECORD, _E.counts == 1)
        by = _E.name, _D["group"]
        summed = select(*by, func.sum(_E.value), func.sum(_E.value * _E.value)).join_from(DECISIONS, EVENTS, joined)
        for name, group, total, squares in self._connection.execute(summed.where(self._ours(*number)).group_by(*by)):
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
