"""Alarms for drift and misfit: rewards against what was expected of them, valid at whatever time one looks.

Each completed plan gives one e-value: a number that is at most 1 on average if nothing is wrong. Products of e-values
that begin at plan j = 1, 2, ... are multiplied by weights that add up to 1, and added up. By Ville's inequality, the
sum ever exceeds 1 / ALPHA with probability ALPHA at most. A change that comes late is found as fast as an early one.

*Drift*: rewards of the incumbent against its own earlier rewards. *Misfit*: rewards of all other subsets against
the model's prediction before the plan. docs/background/calibration.md has the measured rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kofn.core import Alarm, FloatArray, IntArray, Plan, Tally
from kofn.core.fields import Fields, Part, any_length, integer, integers, listed, number

ALPHA = 0.01
"""Probability of ever raising an alarm if nothing is wrong. Lower: alarms come later."""

ALTERNATIVE = 9.0
"""Variance of a deviation if something is wrong, in units of its variance if not. Higher: finds large deviations
earlier, and small ones later."""

GAIN, PRICE = ALTERNATIVE / (1 + ALTERNATIVE) / 2, math.log1p(ALTERNATIVE) / 2
"""The log e-value of a deviation of d standard deviations is GAIN d^2 - PRICE."""

INFLATION = 1.5
"""Factor of the variances of deviations, for estimated variances and a posterior that is too narrow. Higher: fewer
false alarms, later alarms."""

PLANS = 128
"""Number of plans over which the weights are nearly equal: plan j has m / ((j + m - 1) (j + m)), m = PLANS. A million
plays take 135 plans. Higher: late changes are found earlier, early ones later."""

TINY = 1e-300
"""Added to variances before dividing by them: rewards that are all alike have none, and no deviation."""

LARGEST = 600.0
"""Largest logarithm of an e-value, so that numbers stay in the range of floats."""


def log_e_values(deviation: Any, variance: Any, count: Any, width: float = 1.0) -> Any:
    """Return the log e-values of deviations of means of `count` rewards: N(0, 1 + ALTERNATIVE) against N(0, 1).

    The term |deviation| width / (2 count) is like Bernstein's: means of few or rare rewards have heavy tails. `width`
    is the width of the observed reward range.
    """
    scale = INFLATION * variance + abs(deviation) * (width / 2) / count + TINY
    return np.minimum(GAIN * (deviation * deviation / scale) - PRICE, LARGEST)


@dataclass
class Evidence(Part):
    """The sum of the products of e-values that have begun, and when it first exceeded 1 / ALPHA."""

    fields = Fields(steps=integer(), log_sum=number(most=2 * LARGEST), since=integer())

    steps: int = 0
    log_sum: float = -2 * LARGEST
    since: int = 0  # plays; 0 if the alarm is not raised

    def include(self, log_e: float, plays: int) -> None:
        """Include the e-value of the plan that ended after `plays` plays."""
        self.steps += 1
        weight = math.log(PLANS / ((self.steps + PLANS - 1) * (self.steps + PLANS)))
        begun = max(self.log_sum, weight) + math.log1p(math.exp(-abs(self.log_sum - weight)))
        self.log_sum = min(max(begun + log_e, -2 * LARGEST), 2 * LARGEST)
        if not self.since and self.log_sum > -math.log(ALPHA):
            self.since = plays


@dataclass
class Alarms(Part):
    """The evidence of drift and misfit, and the rewards of the incumbent since it became one."""

    fields = Fields(
        drift=listed(Evidence),
        misfit=listed(Evidence),
        incumbent=integers(any_length),
        count=integer(),
        total=number(),
        squares=number(),
    )

    drift: Evidence = field(default_factory=Evidence)
    misfit: Evidence = field(default_factory=Evidence)
    incumbent: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def raised(self) -> tuple[Alarm, ...]:
        """Return the alarms that have been raised."""
        found = {"drift": self.drift, "misfit": self.misfit}
        return tuple(Alarm(kind, evidence.since) for kind, evidence in found.items() if evidence.since)

    def learn(
        self,
        plan: Plan,
        tally: Tally,
        expected: FloatArray,
        variance: FloatArray,
        noise: FloatArray,
        plays: int,
        width: float = 1.0,
    ) -> None:
        """Include a completed plan.

        `expected` is the predicted mean reward of each row, `variance` the variance of that prediction, and `noise` the
        variance of one reward. `plays` counts all plays so far, and `width` is the width of the observed reward range.
        """
        if not len(self.incumbent):
            return
        own = (plan.subsets == self.incumbent).all(axis=1)
        mine = own.nonzero()[0]
        if len(mine):
            count, total, squares = (sum(sums[mine].tolist()) for sums in (tally.count, tally.total, tally.squares))
            self._test_drift(count, total, squares, plays, width)
        if len(mine) < len(own):
            rows = (~own).nonzero()[0]
            n = tally.count[rows]
            deviation = tally.total[rows] / n - expected[rows]
            log_e = log_e_values(deviation, variance[rows] + noise[rows] / n, n, width)
            # Rows may depend on each other; their average is still an e-value.
            self.misfit.include(math.log(float(n.dot(np.exp(log_e)) / n.sum())), plays)

    def _test_drift(self, count: float, total: float, squares: float, plays: int, width: float) -> None:
        before = self.count, self.total
        self.count, self.total, self.squares = self.count + int(count), self.total + total, self.squares + squares
        if before[0]:
            noise = max(self.squares - self.total**2 / self.count, 0.25 * width**2) / self.count
            deviation = total / count - before[1] / before[0]
            variance, fewer = noise * (1 / count + 1 / before[0]), min(count, before[0])
            self.drift.include(float(log_e_values(deviation, variance, fewer, width)), plays)

    def rescale(self, shift: float, factor: float) -> None:
        """Express the rewards in another unit: each one becomes shift + factor * reward."""
        n, total = self.count, self.total
        self.total = shift * n + factor * total
        self.squares = shift * shift * n + 2 * shift * factor * total + factor * factor * self.squares

    def follow(self, incumbent: IntArray) -> None:
        """Begin again with a new incumbent."""
        if incumbent is not self.incumbent and not np.array_equal(incumbent, self.incumbent):
            self.count, self.total, self.squares = 0, 0.0, 0.0
        self.incumbent = incumbent
