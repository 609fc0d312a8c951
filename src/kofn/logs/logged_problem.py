"""A log as a problem: what was earned once can be earned again."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadInput, Direction, FloatArray, IntArray, Subset
from kofn.logs.log import Log
from kofn.problems.assumptions import DOMINANCE, INCREASING, SYMMETRIC, Check, Finding
from kofn.problems.expectation import Estimated
from kofn.problems.sampling import Sums
from kofn.problems.simulated import Simulated


class Logged(Simulated):
    """Plays of a subset draw from its logged rewards, with replacement; a subset that was never logged is refused.

    It holds if rewards do not depend on when a subset was played, or on what made it be chosen. Values are the means of
    the logged rewards, known to their standard errors; the best is that of the logged means, and its value is too good
    by about as much as `value_error` if many subsets are nearly as good.
    """

    def __init__(self, log: Log, *, direction: Direction = "maximize") -> None:
        self.log = log
        low, high = min(0.0, float(log.rewards.min())), max(1.0, float(log.rewards.max()))
        super().__init__(log.n_arms, log.k, direction=direction, reward_range=(low, high))

    def __repr__(self) -> str:
        return f"Logged({self.log!r})"

    @cached_property
    def best(self) -> Subset:
        """The logged subset with the best mean."""
        subsets = self.log.groups.subsets
        means = self._samples.means if self.direction == "maximize" else -self._samples.means
        return tuple(subsets[int(np.argmax(means))].tolist())

    @cached_property
    def value_error(self) -> float:
        """The largest standard error of a subset that was logged."""
        return float(self._samples.deviations.max())

    def check(self) -> Check:
        """A log says nothing of arms one by one, and so nothing of the assumptions."""
        return Check(self._assumptions())

    @cached_property
    def _samples(self) -> _Samples:
        return _Samples(self.log)

    def _make_law(self) -> _Samples:
        return self._samples

    def _make_expectation(self) -> _Samples:
        return self._samples

    def _assumptions(self) -> tuple[Finding, ...]:
        why = "a log holds rewards of whole subsets only"
        return tuple(Finding(name, False, why) for name in (SYMMETRIC, INCREASING, DOMINANCE))


class _Samples(Estimated):
    """The rewards of each logged subset, one after another."""

    def __init__(self, log: Log) -> None:
        subsets, which, self._plays = log.groups
        self._row = {tuple(arms): row for row, arms in enumerate(subsets.tolist())}
        self._rewards = log.rewards[np.argsort(which, kind="stable")]
        self._starts = np.cumsum(self._plays) - self._plays
        total, squares = (np.bincount(which, log.rewards**power) for power in (1, 2))
        self.means = total / self._plays
        variance = np.maximum(squares / self._plays - self.means**2, 0.0)
        self.deviations = np.sqrt(variance / np.maximum(self._plays - 1, 1))

    def value(self, subsets: IntArray) -> FloatArray:
        """The mean of each row's logged rewards."""
        return np.asarray(self.means[self._rows(subsets)])

    def errors(self, subsets: IntArray) -> FloatArray:
        """The standard error of that mean."""
        return np.asarray(self.deviations[self._rows(subsets)])

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """Per row, how often each logged reward is drawn: one multinomial."""
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
                f"the log never played {missing[0]}: it says nothing of it. It has {len(self._row):,} subsets; a "
                "policy that may play any subset needs all of them"
            )
        return np.array([self._row[key] for key in keys], np.int64)
