"""A log as a problem: plays draw from the logged rewards."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadInput, Direction, FloatArray, IntArray, Subset
from kofn.lab.logs.log import DecisionLog
from kofn.lab.problems.assumptions import DOMINANCE, INCREASING, SYMMETRIC, Check, Finding
from kofn.lab.problems.base import AbstractProblem
from kofn.lab.problems.expectation import SampledExpectation
from kofn.lab.problems.sampling import Sums


class LoggedProblem(AbstractProblem):
    """A problem whose plays draw from the logged rewards of a subset, with replacement; other subsets are refused.

    It is valid if rewards depend neither on when a subset was played nor on why it was chosen. Values are the means of
    the logged rewards, with standard errors. `best` has the best logged mean; if many subsets are nearly as good, that
    mean is too good by about `value_error`.
    """

    def __init__(self, log: DecisionLog, *, direction: Direction = "maximize") -> None:
        self.log = log
        super().__init__(log.n_arms, log.k, direction=direction, reward_range=log.reward_range)

    def _summary(self) -> str:
        return repr(self.log)

    def _find_best(self) -> Subset:
        """Return the logged subset with the best mean."""
        subsets = self.log.groups.subsets
        means = self._samples.means if self.direction == "maximize" else -self._samples.means
        return tuple(subsets[int(np.argmax(means))].tolist())

    @cached_property
    def value_error(self) -> float:
        """The largest standard error among the logged subsets."""
        return float(self._samples.deviations.max())

    def check(self) -> Check:
        """Report that no assumption can be checked: a log has no rewards of single arms."""
        return Check(self.assumptions())

    @cached_property
    def _samples(self) -> _Samples:
        return _Samples(self.log)

    def make_sampler(self) -> _Samples:
        """Return the logged rewards by subset."""
        return self._samples

    def make_expectation(self) -> _Samples:
        """Return the logged rewards by subset."""
        return self._samples

    def assumptions(self) -> tuple[Finding, ...]:
        """Report that none of the assumptions can be checked."""
        why = "a log has rewards of whole subsets only"
        return tuple(Finding(name, False, why) for name in (SYMMETRIC, INCREASING, DOMINANCE))


class _Samples(SampledExpectation):
    """The logged rewards, grouped by subset."""

    def __init__(self, log: DecisionLog) -> None:
        subsets, which, self._plays = log.groups
        self._row = {tuple(arms): row for row, arms in enumerate(subsets.tolist())}
        self._rewards = log.rewards[np.argsort(which, kind="stable")]
        self._starts = np.cumsum(self._plays) - self._plays
        total, squares = (np.bincount(which, log.rewards**power) for power in (1, 2))
        self.means = total / self._plays
        variance = np.maximum(squares / self._plays - self.means**2, 0.0)
        self.deviations = np.sqrt(variance / np.maximum(self._plays - 1, 1))

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the mean of each row's logged rewards."""
        return np.asarray(self.means[self._rows(subsets)])

    def errors(self, subsets: IntArray) -> FloatArray:
        """Return the standard error of that mean."""
        return np.asarray(self.deviations[self._rows(subsets)])

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """Draw logged rewards with replacement; for many plays of a row, by one multinomial draw."""
        total, squares = np.empty(len(subsets)), np.empty(len(subsets))
        for at, row in enumerate(self._rows(subsets).tolist()):
            rewards = self._rewards[self._starts[row] : self._starts[row] + self._plays[row]]
            if times[at] < len(rewards):
                drawn = rewards[rng.integers(len(rewards), size=times[at])]
                total[at], squares[at] = drawn.sum(), drawn @ drawn
            else:
                counts = rng.multinomial(times[at], np.full(len(rewards), 1 / len(rewards)))
                total[at], squares[at] = counts @ rewards, counts @ (rewards * rewards)
        return total, squares

    def _rows(self, subsets: IntArray) -> IntArray:
        keys = [tuple(arms) for arms in np.sort(subsets, axis=1).tolist()]
        if missing := [key for key in keys if key not in self._row]:
            raise BadInput(
                f"the log has no plays of {missing[0]}. It has {len(self._row):,} subsets; a policy that may play any "
                "subset needs all of them"
            )
        return np.array([self._row[key] for key in keys], np.int64)
