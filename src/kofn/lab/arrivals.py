"""Visitors who come to a policy with their contexts, and which plays of its plan they take.

Each visitor takes a planned play of their segment, or a filler if none remains, as `ask` hands them out. All visitors
of a plan are drawn at once: how many of each segment, and the order of those who get a filler. So the cost grows with
the number of rows, not of plays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kofn.core import FloatArray, IntArray, Plan, Policy, Subset, Tally
from kofn.core.open_plan import MOST_UNPLANNED, turn
from kofn.lab.problems import AbstractProblem, ContextualProblem
from kofn.lab.problems.base import RegretMeter
from kofn.lab.problems.contextual import Segment, segments_of

PRECISION = 50
"""Steps of the search for the time by which a number of plays is due. Plays that more steps would tell apart go to the
rows that are due first."""


@dataclass(frozen=True, eq=False)
class Group:
    """The visitors that the policy takes for one segment: what they earn may be a mixture of several segments."""

    key: str
    context: Mapping[str, str]
    share: float
    problem: AbstractProblem

    @cached_property
    def regret_of(self) -> RegretMeter:
        """The function that measures the regret of the group's plays."""
        return self.problem.regret_meter()


class Played(NamedTuple):
    """What the visitors of one plan played: plays, rows with plays, expected regret, and the total of the rewards."""

    plays: int
    rows: int
    regret: float
    earned: float


class Visitors:
    """The visitors of a problem; in a problem without segments, all have an empty context."""

    def __init__(self, policy: Policy, problem: AbstractProblem) -> None:
        self._policy, self._segments = policy, segments_of(problem)
        self._groups: dict[tuple[str | None, ...], list[Group]] = {}

    def play(self, most: int, rng: np.random.Generator) -> Played:
        """Let the visitors of one plan come, at most `most` of them; tell the policy what they earned."""
        plan, groups = self._policy.plan(), self._now()
        rows = _rows_by_segment(plan)
        planned = np.array([int(plan.times[rows[group.key]].sum()) for group in groups])
        size = min(plan.plays, most)
        arrived = rng.multinomial(size, [group.share for group in groups])
        taken = np.minimum(arrived, planned)
        fillers, cut = self._fillers(groups, planned, arrived, rng)
        if cut is not None:
            taken = cut.taken(planned, arrived, rng)
        tally, told, regret, played_rows = Tally.zeros(len(plan)), [], 0.0, 0
        for number, group in enumerate(groups):
            here, extra = rows[group.key], fillers.get(number, {})
            times = first_plays(here, plan.times[here], int(taken[number]))
            here, times = here[times > 0], times[times > 0]
            subsets = np.concatenate([plan.subsets[here], np.array(list(extra), np.int64).reshape(-1, self._policy.k)])
            times = np.append(times, np.array(list(extra.values()), np.int64))
            if not len(times):
                continue
            earned = group.problem.play(subsets, times, rng)
            regret += group.regret_of(subsets, times)
            played_rows += len(times)
            for name in ("count", "total", "squares"):
                getattr(tally, name)[here] = getattr(earned, name)[: len(here)]
            sums = zip(extra, times[len(here) :], earned.total[len(here) :], earned.squares[len(here) :], strict=True)
            told += [(group.context, *each) for each in sums]
        earned_total = float(tally.total.sum()) + sum(total for _, _, _, total, _ in told)
        plays = int(tally.count.sum()) + sum(int(n) for _, _, n, _, _ in told)
        self._policy.tell_plan(tally)
        for context, subset, n, total, squares in told:
            self._policy.tell_total(subset, int(n), float(total), float(squares), context=context)
        return Played(plays, played_rows, regret, earned_total)

    def _now(self) -> list[Group]:
        """Return the groups of visitors that the policy distinguishes at this time."""
        keys = tuple(self._policy.segment(segment.context) for segment in self._segments)
        if keys not in self._groups:
            found: dict[str, list[Segment]] = defaultdict(list)
            for key, segment in zip(keys, self._segments, strict=True):
                found[str(key)].append(segment)
            self._groups[keys] = [_group(key, segments) for key, segments in found.items()]
        return self._groups[keys]

    def _fillers(
        self, groups: list[Group], planned: IntArray, arrived: IntArray, rng: np.random.Generator
    ) -> tuple[dict[int, dict[Subset, int]], Cut | None]:
        """Return how often each group plays which filler, and where too many different ones cut the plan short.

        Visitors come at uniformly random times from 0 to 1. Those with a filler are the last of their group: the last
        planned play of the group is at a time with a beta distribution, and they come after it.
        """
        extra = np.maximum(arrived - planned, 0)
        last = np.where(planned > 0, rng.beta(np.maximum(planned, 1), extra + 1), 0.0)
        who = np.repeat(np.arange(len(groups)), extra)
        at = last[who] + (1 - last[who]) * rng.random(len(who))
        found: dict[int, dict[Subset, int]] = defaultdict(lambda: defaultdict(int))
        different = 0
        for index, place in enumerate(np.argsort(at).tolist()):
            number = int(who[place])
            subset = self._policy.filler(index, groups[number].key)
            different += subset not in found[number]
            found[number][subset] += 1
            if different == MOST_UNPLANNED:
                return found, Cut(float(at[place]), last)
        return found, None


@dataclass(frozen=True, eq=False)
class Cut:
    """The time at which a plan ends early, and the time of the last planned play of each group that takes them all."""

    at: float
    last: FloatArray

    def taken(self, planned: IntArray, arrived: IntArray, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return how many planned plays each group has taken by then."""
        takes_all = arrived > planned
        others = np.where(takes_all, np.maximum(planned - 1, 0), arrived)  # all but the last one, whose time is known
        until = np.where(takes_all, np.maximum(self.last, self.at), 1.0)  # they come at random times from 0 to here
        taken = rng.binomial(others, self.at / until)
        return np.where(takes_all & (self.last <= self.at), planned, taken)


def _group(key: str, segments: list[Segment]) -> Group:
    first, *others = segments
    problem = ContextualProblem(segments) if others else first.problem
    return Group(key, first.context, sum(segment.share for segment in segments), problem)


def first_plays(rows: IntArray, times: NDArray[np.int64], plays: int) -> NDArray[np.int64]:
    """Return how often each of these rows of a segment is played by its first `plays` visitors.

    >>> first_plays(np.arange(3), np.array([1, 5, 3]), 6)
    array([1, 3, 2])
    """
    if plays >= times.sum():
        return times
    first = turn(rows, 0, times)  # when the first play of each row is due
    low, high, found = 0.0, 1.0, np.zeros_like(times)
    for _ in range(PRECISION):
        until = (low + high) / 2
        due = np.clip(np.ceil((until - first) * times), 0, times).astype(np.int64)
        if due.sum() > plays:
            high = until
        else:
            low, found = until, due
    next_due = np.where(found < times, turn(rows, found, times), np.inf)
    found[np.argsort(next_due, kind="stable")[: plays - int(found.sum())]] += 1  # due at the same time
    return found


def _rows_by_segment(plan: Plan) -> dict[str, IntArray]:
    found: dict[str, list[int]] = defaultdict(list)
    for row, key in enumerate(plan.segments or ()):
        found[key].append(row)
    return defaultdict(lambda: np.zeros(0, np.int64), {key: np.array(rows) for key, rows in found.items()})
