"""What folds have counted: everything that reports need of the log without reading it again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from kofn.campaigns.evidence import Look, Sums
from kofn.campaigns.settings import CONTROL, LEARNED

MOST_IN_FLIGHT = 1000
"""Different subsets in flight that are counted: those with the most plays. Higher: a larger record."""

Play = tuple[str, str | None]
"""What plays are counted under: a subset, and the key of a segment if the policy takes a context."""


class Settled(NamedTuple):
    """Settled plays of one subset, segment and group, and the sums of their rewards, gross and net of costs."""

    subset: str
    context: str | None
    group: int
    compared: int  # whether they count in the comparison with the control
    fresh: int  # whether they were decided since this subset has first been the best
    overdue: int  # whether they had expired
    plays: int
    total: float
    squares: float
    net: float
    net_squares: float


class Arrived(NamedTuple):
    """New decisions (or such that expired) of one subset, segment and group."""

    subset: str
    context: str | None
    group: int
    compared: int
    plays: int


MOST_CANDIDATES = 20
"""Subsets that have been the best and whose plays are counted from then on: the latest ones."""


@dataclass
class Candidate:
    """A subset that has been the best: since when, and what its plays have earned from then on.

    `step` is that of the first plan since then. `place` is 1 for the first best subset, 2 for the second...
    """

    step: int
    at: float
    place: int
    sums: Sums = field(default_factory=lambda: Sums(0, 0.0, 0.0))


@dataclass
class Progress:
    """The counters of a campaign up to its last fold, and what was noted about it."""

    decided: int = 0
    rewarded: int = 0  # settled decisions
    totalled: int = 0  # plays reported as totals
    expired: int = 0
    total: float = 0.0  # of rewards, net of costs
    waited: float = 0.0  # seconds between decisions and their first events
    arrived: int = 0  # first events
    clipped: int = 0
    learned_decided: int = 0
    control_decided: int = 0
    learned: Sums = field(default_factory=lambda: Sums(0, 0.0, 0.0))
    control: Sums = field(default_factory=lambda: Sums(0, 0.0, 0.0))
    best: str = ""  # the best subset
    chosen: int = 0  # how many subsets have been the best since the control was set
    candidates: dict[str, Candidate] = field(default_factory=dict)  # the latest ones, the best one last
    matured: int = 0  # metrics of decisions up to this number have settled
    metrics: dict[str, dict[str, Sums]] = field(default_factory=dict)  # by name and group
    in_flight: dict[Play, int] = field(default_factory=dict)
    played: dict[int, int] = field(default_factory=dict)  # settled plays of each arm
    slot_width: float = 0.125  # seconds; a power of two, so that slots merge exactly
    slots: int = 0
    last_slot: int = -1
    planned: int = 0  # plays of the plan
    plan_rows: int = 0
    deleted: int = 0  # decisions that are no longer stored
    undeletable: int = 0  # decisions beyond `keep_decisions` that were still open at the last deletion
    revalued: bool = False  # the log has other sums: settings that settle rewards have changed
    kept_at: float = 0.0  # decisions that were made until then may have been deleted
    look: Look | None = None
    alarms: tuple[str, ...] = ()  # alarms that have an entry "alarm" in the journal, and none that they are over
    alarms_noted: dict[str, float] = field(default_factory=dict)  # alarms with recent entries, and when

    def to_text(self) -> str:
        """Return the progress as JSON, without what has its default."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        given["in_flight"] = [[*play, count] for play, count in self.in_flight.items()]
        given["look"] = None if self.look is None else self.look.to_dict()
        return json.dumps({name: value for name, value in given.items() if value}, default=_plain, allow_nan=False)

    @classmethod
    def from_text(cls, text: str) -> Progress:
        """Return the progress that `to_text` wrote."""
        given = json.loads(text)
        for name in ("learned", "control"):
            if name in given:
                given[name] = Sums(*given[name])
        given["candidates"] = {
            subset: Candidate(**{**each, "sums": Sums(*each["sums"])})
            for subset, each in given.get("candidates", {}).items()
        }
        metrics = given.get("metrics", {}).items()
        given["metrics"] = {name: {group: Sums(*sums) for group, sums in of.items()} for name, of in metrics}
        given["in_flight"] = {(subset, context): count for subset, context, count in given.get("in_flight", ())}
        given["played"] = {int(arm): count for arm, count in given.get("played", {}).items()}
        given["alarms"] = tuple(given.get("alarms", ()))
        given["look"] = None if given.get("look") is None else Look.from_dict(given["look"])
        return cls(**given)

    @property
    def plays(self) -> int:
        """Decisions, and plays reported as totals."""
        return self.decided + self.totalled

    @property
    def rewards(self) -> int:
        """Plays with a known reward."""
        return self.rewarded + self.totalled

    @property
    def open(self) -> int:
        """Decisions that may still get a reward."""
        return self.decided - self.rewarded - self.expired

    @property
    def mean(self) -> float | None:
        """The average reward, net of costs."""
        return self.total / self.rewards if self.rewards else None

    @property
    def delay(self) -> float | None:
        """The mean seconds between a decision and its first event."""
        return self.waited / self.arrived if self.arrived else None

    # What a fold counts.

    def decide(self, arrived: Iterable[Arrived]) -> None:
        """Count new decisions."""
        for subset, context, group, compared, count in arrived:
            self.decided += count
            self._fly((subset, context), count)
            if compared and group == LEARNED:
                self.learned_decided += count
            elif compared and group == CONTROL:
                self.control_decided += count

    def expire(self, expired: Iterable[Arrived]) -> None:
        """Count decisions whose reward is no longer expected."""
        for subset, context, _, _, count in expired:
            self.expired += count
            self._fly((subset, context), -count)

    def settle(self, settled: Iterable[Settled]) -> None:
        """Count settled decisions."""
        for each in settled:
            self.rewarded += each.plays
            self.total += each.net
            if each.overdue:
                self.expired -= each.plays
            else:
                self._fly((each.subset, each.context), -each.plays)
            self._play(each.subset, each.plays)
            sums = Sums(each.plays, each.net, max(each.net_squares, 0.0))
            if each.compared and each.group == LEARNED:
                self.learned += sums
                if each.fresh and each.subset in self.candidates:
                    self.candidates[each.subset].sums += sums
            elif each.compared and each.group == CONTROL:
                self.control += sums

    def add_total(self, subset: str, count: int, net: float) -> None:
        """Count plays that were reported as a total."""
        self.totalled += count
        self.total += net
        self._play(subset, count)

    def mature(self, counts: Mapping[str, int], sums: Mapping[str, Mapping[str, tuple[float, float]]]) -> None:
        """Count settled metrics: decisions by group, and the total and squares by name and group.

        A metric counts from the fold on in which it was recorded first.
        """
        for name in {*self.metrics, *sums}:
            of = self.metrics.setdefault(name, {})
            for group, count in counts.items():
                total, squares = sums.get(name, {}).get(group, (0.0, 0.0))
                of[group] = of.get(group, Sums(0, 0.0, 0.0)) + Sums(count, total, squares)

    def compare_again(self) -> None:
        """Begin to compare with the control again: it has changed."""
        self.learned_decided = self.control_decided = 0
        self.learned = self.control = Sums(0, 0.0, 0.0)
        self.metrics, self.candidates, self.chosen, self.best = {}, {}, 0, ""

    def plan(self, rows: Sequence[tuple[str, int, str | None]]) -> None:
        """Remember how long the plan is."""
        self.planned, self.plan_rows = sum(times for _, times, _ in rows), len(rows)

    def choose(self, subset: str, step: int, now: float) -> None:
        """Remember which subset is the best; the first time, begin to count its plays."""
        self.best = subset
        known = self.candidates.pop(subset, None)
        if known is None:
            self.chosen += 1
            known = Candidate(step, now, self.chosen)
        self.candidates[subset] = known
        while len(self.candidates) > MOST_CANDIDATES:
            del self.candidates[next(iter(self.candidates))]

    def _fly(self, play: Play, count: int) -> None:
        now = self.in_flight.get(play, 0) + count
        if now > 0:
            self.in_flight[play] = now
        else:
            self.in_flight.pop(play, None)

    def _play(self, subset: str, count: int) -> None:
        for arm in subset.split(","):
            self.played[int(arm)] = self.played.get(int(arm), 0) + count

    def prune(self) -> None:
        """Forget the rarest of too many subsets in flight."""
        if len(self.in_flight) > MOST_IN_FLIGHT:
            ranked = sorted(self.in_flight.items(), key=lambda each: -each[1])
            self.in_flight = dict(ranked[: MOST_IN_FLIGHT // 2])


def _plain(value: Any) -> Any:
    if isinstance(value, Sums):
        return [value.count, value.total, value.squares]
    assert isinstance(value, Candidate)
    return vars(value)
