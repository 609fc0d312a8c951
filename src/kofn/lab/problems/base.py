"""The base class of all problems, and the one to subclass for a problem of your own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kofn.constraints import Constraints
from kofn.core import (
    BadInput,
    Direction,
    FloatArray,
    IntArray,
    Seed,
    Subset,
    Tally,
    check_range,
    check_sizes,
    generator,
    subset_of,
)
from kofn.lab.problems.arm_order import check_arm_order
from kofn.lab.problems.assumptions import Check, Finding
from kofn.lab.problems.constrained import best_allowed, check_allowed, under
from kofn.lab.problems.expectation import Expectation, SampledExpectation, best_subset
from kofn.lab.problems.rows import Subsets, play_counts, subset_rows
from kofn.lab.problems.sampling import Sampler

if TYPE_CHECKING:
    from kofn.lab.problems.costs import NetOfCosts

RegretMeter: TypeAlias = Callable[[IntArray, NDArray[np.int64]], float]

MOST_SUBSETS = 2_000_000
"""Limit on the subsets tried to find the best one, where values are exact. A higher limit costs time."""
MOST_SUBSETS_BY_MONTE_CARLO = 20_000
"""The same limit where values are sampled, which takes much longer per subset."""
_SLACK = 1e-9
"""By how much, relative to the optimum, a subset may beat a given `best` before that is an error: rounding."""


class AbstractProblem(ABC):
    """Something to learn whose answer is known: N arms, subsets of K, and one reward per play.

    To write your own problem, subclass it and implement `make_sampler` (draws plays) and `make_expectation` (computes
    expected rewards); one object may do both. `simulate`, `compare` and everything else that takes a problem accept it.

    >>> class CloseArms:
    ...     "The reward is 1 with probability 1 / (the distance of the two arms), else 0."
    ...     def value(self, subsets):
    ...         return 1 / np.ptp(subsets, axis=1)
    ...     def play(self, subsets, times, rng):
    ...         total = rng.binomial(times, self.value(subsets)).astype(float)
    ...         return total, total                                     # sums of rewards and of their squares
    >>> class Close(AbstractProblem):
    ...     def make_sampler(self):
    ...         return CloseArms()
    ...     def make_expectation(self):
    ...         return CloseArms()
    >>> problem = Close(n_arms=6, k=2)
    >>> problem.best, problem.value([(0, 4), (2, 4)])
    ((0, 1), array([0.25, 0.5 ]))

    `best` is computed when it is needed, unless it is given. With `fewer=True`, subsets of fewer than K arms can be
    played: the sampler and the expectation receive an empty place as arm N. Policies that are made by name are given
    `direction` and `reward_range`.
    """

    constraints: Constraints | None = None
    """The rules that every subset obeys; see `under`."""

    empties: int = 0
    """The most places that may be empty, where arms cost something; see `with_costs`."""

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        direction: Direction = "maximize",
        best: Iterable[int] | None = None,
        fewer: bool = False,
        reward_range: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        if direction not in ("maximize", "minimize"):
            raise BadInput(f"direction must be 'maximize' or 'minimize', not {direction!r}")
        self.direction: Direction = direction
        self.n_arms, self.k = check_sizes(n_arms, k)
        self.reward_range = check_range(reward_range)
        self.fewer = fewer
        self._given_best = None if best is None else subset_of(best, self.n_arms, self.k)

    # Methods to implement.

    @abstractmethod
    def make_sampler(self) -> Sampler:
        """Return the object that draws plays. It is made once, when it is first needed."""

    @abstractmethod
    def make_expectation(self) -> Expectation:
        """Return the object that computes expected rewards. It is made once, when it is first needed."""

    def assumptions(self) -> tuple[Finding, ...]:
        """Return what is known about the paper's assumptions without trying cases; nothing by default."""
        return ()

    # Plays.

    @property
    def seconds_per_play(self) -> float:
        """The time of a play that is drawn one by one, in seconds; 0.0 if plays take no noticeable time."""
        return 0.0

    @property
    def offers(self) -> frozenset[str]:
        """What the problem provides beyond one reward per play, for policies that need it: see `Policy.needs`."""
        return frozenset({"best", "fewer"} if self.fewer else {"best"})

    def play(self, subsets: Subsets, times: ArrayLike, rng: Seed, *, arms: bool = False) -> Tally:
        """Return what `times[i]` plays of each row earn, drawn from the exact distribution.

        Subsets in an integer array are only checked for their shape and the range of arms, not for repeated arms: such
        an array may have millions of rows. With `arms`, the tally also has what each arm paid. That is drawn from the
        exact distribution of the arm's own sum, but independently of the row's reward: the two are not from the same
        plays.
        """
        rows = self._rows(subsets)
        check_allowed(self, rows)
        count, least = play_counts(times, len(rows))
        if not isinstance(rng, np.random.Generator):
            rng = generator(rng)
        if least > 0 and not arms:
            return Tally(count, *self._sampler.play(rows, count, rng))
        tally = Tally(count, np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(rows.shape) if arms else None)
        live = np.flatnonzero(count)
        if live.size:
            tally.total[live], tally.squares[live] = self._sampler.play(rows[live], count[live], rng)
            if tally.arms is not None:
                tally.arms[live] = self._arm_totals(rows[live], count[live], rng)
        return tally

    def play_best(self, plays: int, rng: np.random.Generator) -> float:
        """Return what these plays of the best subset earn in total, drawn."""
        return float(self.play([self.best], np.array([plays]), rng).total[0])

    def _arm_totals(self, rows: IntArray, count: NDArray[np.int64], rng: np.random.Generator) -> FloatArray:
        raise BadInput("in this problem single arms pay nothing, only whole subsets do: leave out arms=True")

    # Expected rewards.

    def value(self, subsets: Subsets) -> FloatArray:
        """Return the expected reward of each row; it is exact unless `value_error` is above 0."""
        return self._expectation.value(self._rows(subsets))

    def gap(self, subsets: Subsets) -> FloatArray:
        """Return how much worse than the optimum the expected reward of each row is: at least 0 in both directions."""
        gap = self._best_value - self.value(subsets)
        if self.direction == "minimize":
            gap = -gap
        if self._given_best is not None and not self.value_error and gap.size and gap.min() < -self._slack:
            better = tuple(sorted(self._rows(subsets)[int(np.argmin(gap))].tolist()))
            raise BadInput(
                f"best={self._given_best} was given, but {better} is better by {-gap.min():g}: give the best subset"
            )
        return np.maximum(gap, 0.0)

    def regret_meter(self) -> RegretMeter:
        """Return a function of subsets and times that returns the expected regret of these plays; one per run."""
        return lambda subsets, times: float(self.gap(subsets) @ times)

    @property
    def _best_value(self) -> float:
        """The value from which gaps are measured."""
        return self.optimum

    @property
    def _slack(self) -> float:
        return _SLACK * max(1.0, abs(self.optimum))

    def under(self, constraints: Any) -> Self:
        """Return this problem under `constraints`: `best` is the best allowed subset, and others cannot be played.

        >>> from kofn import Bernoulli, Constraints, Problem
        >>> from kofn.constraints import NeverTogether
        >>> problem = Problem(Bernoulli([0.1, 0.5, 0.3, 0.2]), "maximum", k=2)
        >>> problem.under(Constraints(NeverTogether([1, 2]))).best
        (1, 3)

        The best is exact if the arms are ordered and the rules are quotas of disjoint groups, if the reward is a mean,
        or if there are few enough subsets to try all. Otherwise it is the best that exchanges of one arm find.
        """
        return under(self, constraints)

    def with_costs(self, costs: Sequence[float] | FloatArray, *, fewest: int | None = None) -> NetOfCosts:
        """Return this problem with rewards net of what each arm costs, for subsets of `fewest` to K arms (default: K).

        >>> from kofn import Bernoulli, Problem
        >>> Problem(Bernoulli([0.9, 0.5, 0.2]), "sum", k=2, absent=0.0).with_costs([0.1, 0.6, 0.3], fewest=1).best
        (0,)
        """
        from kofn.lab.problems.costs import NetOfCosts

        return NetOfCosts(self, costs, fewest)

    def additions(self) -> FloatArray | None:
        """Return what each arm, and then an empty place, adds to the reward; None if that depends on the others."""
        return None

    @cached_property
    def best(self) -> Subset:
        """The subset with the best expected reward; of equal ones, the first in lexicographic order."""
        if self.constraints is not None:
            return best_allowed(self, *self._order(), self._most_tried)
        return self._find_best() if self._given_best is None else self._given_best

    def _find_best(self) -> Subset:
        return self._search()

    @property
    def best_evidence(self) -> str:
        """How the best subset was found: given, computed, or the effort of a search."""
        return "computed" if self._given_best is None else "given"

    def _order(self) -> tuple[FloatArray | None, bool]:
        """Return a strength per arm, None if none is known, and whether the reward is linear in it."""
        return None, False

    @cached_property
    def optimum(self) -> float:
        """The expected reward of the best subset."""
        return float(self.value([self.best])[0])

    @cached_property
    def value_error(self) -> float:
        """0.0 if values are exact, else the largest standard error of a value among 32 random subsets."""
        if not isinstance(self._expectation, SampledExpectation):
            return 0.0
        rng = np.random.default_rng(0)
        some = np.array([rng.choice(self.n_arms, self.k, replace=False) for _ in range(32)])
        return float(self._expectation.errors(some).max())

    def check(self) -> Check:
        """Return which of the paper's assumptions hold; whether arms have one order is tried on random exchanges."""
        return Check((*self.assumptions(), check_arm_order(self)))

    def __repr__(self) -> str:
        direction = "" if self.direction == "maximize" else ", direction='minimize'"
        return f"{type(self).__name__}({self._summary()}, k={self.k}{direction})"

    def _summary(self) -> str:
        return f"{self.n_arms} arms"

    # Implementation.

    @cached_property
    def _sampler(self) -> Sampler:
        return self.make_sampler()

    @cached_property
    def _expectation(self) -> Expectation:
        return self.make_expectation()

    def _rows(self, subsets: Subsets) -> IntArray:
        return subset_rows(subsets, self.n_arms, self.k, fewer=self.fewer)

    @property
    def _most_tried(self) -> int:
        sampled = isinstance(self._expectation, SampledExpectation)
        return MOST_SUBSETS_BY_MONTE_CARLO if sampled else MOST_SUBSETS

    def _search(self) -> Subset:
        """Return the best of all subsets, by trying them; refuse if there are too many."""
        subsets = math.comb(self.n_arms, self.k)
        exact, most = not isinstance(self._expectation, SampledExpectation), self._most_tried
        if subsets > most:
            raise BadInput(
                f"there are {subsets:,} subsets, and at most {most:,} are tried to find the best one"
                f"{'' if exact else ' by Monte Carlo'}: give it as best=. If the arms are ordered by dominance, "
                "declaring the reward is enough: Reward(fn, name, symmetric=True, increasing=True)"
            )
        sign = 1.0 if self.direction == "maximize" else -1.0
        return best_subset(lambda rows: sign * self._expectation.value(rows), self.n_arms, self.k)
