"""Problems with contexts: what a subset earns depends on the segment of the visitor it is played for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadInput, FloatArray, IntArray, Subset
from kofn.core.contexts import Attributes, key_of, words_of
from kofn.lab.problems.base import AbstractProblem
from kofn.lab.problems.expectation import top_subset
from kofn.lab.problems.sampling import Sums


@dataclass(frozen=True, eq=False)
class Segment:
    """All visitors with the same context: their share of the traffic, and what subsets earn from them."""

    context: Mapping[str, str]
    share: float
    problem: AbstractProblem


class ContextualProblem(AbstractProblem):
    """Segments of visitors, who come at random with the probabilities of their shares; each has its own problem.

    >>> from kofn.lab.problems import Bernoulli, Problem
    >>> phone = Problem(Bernoulli([0.9, 0.5, 0.1]), "mean", k=1)
    >>> laptop = Problem(Bernoulli([0.2, 0.5, 0.6]), "mean", k=1)
    >>> shop = ContextualProblem([Segment({"device": "phone"}, 0.7, phone), Segment({"device": "laptop"}, 0.3, laptop)])
    >>> shop.best_by_segment
    {'{"device":"phone"}': (0,), '{"device":"laptop"}': (2,)}
    >>> round(shop.optimum, 2)
    0.81

    For a policy that takes no context it is a problem as any other: a play is for a random visitor. `best` is the best
    subset for all, and `value` is the mean over the visitors. `optimum` is what the best subset of each segment earns,
    so gaps and regret are measured against that: the gap of `best` is what one subset for all loses.

    >>> shop.best, shop.gap([shop.best]).round(2)
    ((0,), array([0.12]))

    Shares are scaled to a sum of 1. All segments have the same arms, K and direction.
    """

    def __init__(self, segments: Iterable[Segment]) -> None:
        self.segments = _checked(segments)
        first = self.segments[0].problem
        self.shares: FloatArray = np.array([segment.share for segment in self.segments])
        self.contexts: tuple[dict[str, str], ...] = tuple(dict(segment.context) for segment in self.segments)
        low, high = zip(*(problem.reward_range for problem in self._problems), strict=True)
        fewer = all(problem.fewer for problem in self._problems)
        reward_range = min(low), max(high)
        super().__init__(first.n_arms, first.k, direction=first.direction, fewer=fewer, reward_range=reward_range)
        self.constraints = first.constraints

    @property
    def _problems(self) -> list[AbstractProblem]:
        return [segment.problem for segment in self.segments]

    @cached_property
    def best_by_segment(self) -> dict[str, Subset]:
        """The best subset of each segment, by the segment's key."""
        return {key_of(segment.context): segment.problem.best for segment in self.segments}

    @cached_property
    def optimum(self) -> float:
        """The expected reward of playing the best subset of each segment."""
        return float(self.shares @ [problem.optimum for problem in self._problems])

    @cached_property
    def value_error(self) -> float:
        """0.0 if values are exact, else the standard error of a value with the largest error in each segment."""
        return float(np.linalg.norm(self.shares * [problem.value_error for problem in self._problems]))

    @property
    def offers(self) -> frozenset[str]:
        """What all segments provide."""
        return frozenset.intersection(*(problem.offers for problem in self._problems))

    @property
    def seconds_per_play(self) -> float:
        """The mean time of a play that is drawn one by one."""
        return float(self.shares @ [problem.seconds_per_play for problem in self._problems])

    def play_best(self, plays: int, rng: np.random.Generator) -> float:
        """Return what these plays, each of the best subset of its visitor's segment, earn in total, drawn."""
        counts = rng.multinomial(plays, self.shares).tolist()
        return sum(problem.play_best(n, rng) for problem, n in zip(self._problems, counts, strict=True) if n)

    def under(self, constraints: Any) -> Self:
        """Return this problem under `constraints`, which hold for every segment."""
        found = super().under(constraints)
        vars(found).pop("best_by_segment", None)
        found.segments = tuple(replace(each, problem=each.problem.under(constraints)) for each in self.segments)
        return found

    def make_sampler(self) -> _Visitors:
        """Return the sampler of plays for random visitors."""
        return _Visitors(self)

    def make_expectation(self) -> _Visitors:
        """Return the mean over the visitors."""
        return _Visitors(self)

    def _arm_totals(self, rows: IntArray, count: NDArray[np.int64], rng: np.random.Generator) -> FloatArray:
        totals = np.zeros(rows.shape)
        for problem, some, n in _by_segment(self, count, rng):
            totals[some] += problem._arm_totals(rows[some], n, rng)
        return totals

    def _order(self) -> tuple[FloatArray | None, bool]:
        strengths, linear = zip(*(problem._order() for problem in self._problems), strict=True)
        if not all(linear):  # the sum of orders is no order, unless values are sums of strengths
            return None, False
        return self.shares @ np.array(strengths), True

    def _find_best(self) -> Subset:
        strength, _ = self._order()
        if strength is None:
            return self._search()
        return top_subset(strength if self.direction == "maximize" else -strength, self.k)

    @property
    def _most_tried(self) -> int:
        return min(problem._most_tried for problem in self._problems)

    def _summary(self) -> str:
        return f"{len(self.segments)} segments, {self.n_arms} arms"


def segments_of(problem: AbstractProblem) -> tuple[Segment, ...]:
    """Return the segments of a problem; all visitors of a problem without segments have an empty context."""
    return problem.segments if isinstance(problem, ContextualProblem) else (Segment({}, 1.0, problem),)


class _Visitors:
    """Plays for random visitors, and their mean."""

    def __init__(self, problem: ContextualProblem) -> None:
        self._problem = problem

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the expected reward of each row, the mean over the visitors."""
        values = [problem._expectation.value(subsets) for problem in self._problem._problems]
        return self._problem.shares @ np.array(values)

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """Draw the visitors of each row, then what they pay."""
        total, squares = np.zeros(len(subsets)), np.zeros(len(subsets))
        for problem, some, n in _by_segment(self._problem, times, rng):
            more = problem._sampler.play(subsets[some], n, rng)
            total[some] += more[0]
            squares[some] += more[1]
        return total, squares


def _by_segment(
    problem: ContextualProblem, times: NDArray[np.int64], rng: np.random.Generator
) -> Iterator[tuple[AbstractProblem, IntArray, NDArray[np.int64]]]:
    """Draw the visitors of each row: yield the problem of each segment, the rows that it plays, and how often."""
    counts = rng.multinomial(times, problem.shares)
    for segment, n in zip(problem.segments, counts.T, strict=True):
        some = np.flatnonzero(n)
        if some.size:
            yield segment.problem, some, n[some]


def _checked(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Return the segments with complete contexts, or raise BadInput."""
    found: dict[str, Segment] = {}
    for segment in segments:
        if not isinstance(segment, Segment) or not isinstance(segment.problem, AbstractProblem):
            raise BadInput(f"a segment must be Segment(context, share, problem); got {segment!r}")
        context = Attributes().complete(segment.context)
        if not segment.share > 0 or segment.share == float("inf"):
            raise BadInput(f"the share of {words_of(key_of(context))} must be above 0; got {segment.share!r}")
        if key_of(context) in found:
            raise BadInput(f"the segment {words_of(key_of(context))} is given twice")
        found[key_of(context)] = replace(segment, context=context)
    if not found:
        raise BadInput("a contextual problem needs at least one segment")
    first, *others = found.values()
    for other in others:
        for what in ("n_arms", "k", "direction"):
            ours, theirs = getattr(first.problem, what), getattr(other.problem, what)
            if ours != theirs:
                raise BadInput(f"all segments must have the same {what}; got {ours!r} and {theirs!r}")
        if _rules(other.problem) != _rules(first.problem):
            raise BadInput("all segments must have the same constraints: give them to the whole, problem.under(...)")
    total = sum(segment.share for segment in found.values())
    return tuple(replace(segment, share=float(segment.share / total)) for segment in found.values())


def _rules(problem: AbstractProblem) -> list[Any] | None:
    return None if problem.constraints is None else problem.constraints.to_list()
