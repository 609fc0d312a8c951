"""The range and the variance of rewards, estimated from the count, sum and sum of squares of each row of plays."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kofn.core import FloatArray, IntArray, Tally
from kofn.core.fields import Fields, Part, number, part
from kofn.policies.thompson.constants import Constants

ROUNDING = 1e-12
"""Relative variances up to which rewards count as equal: sums are rounded."""

RESOLUTION = 1e-7
"""Differences of rewards, relative to the highest one, up to which they count as equal: the squares of such differences
are lost in the rounding of sums of squares."""

SLACK = 1e-6
"""Relative growth of the range that counts as rounding."""


@dataclass
class Range(Part):
    """The smallest range that the rewards seen so far can have; the model works on rewards scaled by it.

    So a `reward_range` that is too wide changes nothing. A row with mean m and variance v of its rewards needs a range
    with (high - m)(m - low) >= v (Bhatia and Davis); equality holds if all rewards are at its ends, as for coins.
    """

    fields = Fields(low=number(), high=number())

    low: float = 1.0  # above high: no reward seen
    high: float = 0.0

    @property
    def seen(self) -> bool:
        """Whether any reward was seen."""
        return self.high >= self.low

    @property
    def width(self) -> float:
        """0 until two different rewards were seen."""
        return max(self.high - self.low, 0.0)

    def moved(self, shift: float, factor: float) -> Range:
        """Return the range in another unit, in which each reward is shift + factor * reward."""
        return Range(shift + factor * self.low, shift + factor * self.high) if self.seen else self

    def extended(self, tally: Tally) -> Range:
        """Return the range that includes the rewards of these rows."""
        if self.width > 0 and self._includes(tally):
            return self
        mean = tally.total / tally.count
        variance = tally.squares / tally.count - mean * mean
        variance[variance <= ROUNDING * tally.squares / tally.count] = 0.0
        low, high = self._ends(mean, variance)
        if high - low <= RESOLUTION * high:
            return Range(low, low)
        rounded = self.width > 0 and max(self.low - low, high - self.high) <= SLACK * (high - low)
        return self if rounded else Range(low, high)

    def _includes(self, tally: Tally) -> bool:
        """Return whether the range stays the same: no row has a positive sum of (r - low)(r - high)."""
        low, high = self.low, self.high
        if low == 0.0 and high == 1.0:
            return True
        outside = tally.squares - (low + high) * tally.total + (low * high) * tally.count
        return bool(outside.max() <= ROUNDING * (high - low) ** 2)

    def _ends(self, mean: FloatArray, variance: FloatArray) -> tuple[float, float]:
        """Return the ends that these rows need; where either end could move, the one that moves less does."""
        equal = mean[variance == 0]  # rewards, not only their means
        if not self.seen and not len(equal):
            row = int(variance.argmax())
            m, deviation = float(mean[row]), math.sqrt(float(variance[row]))
            low, high = max(m - deviation, 0.0), min(m + deviation, 1.0)
        else:
            low, high = (self.low, self.high) if self.seen else (float(equal[0]), float(equal[0]))
        low, high = min(low, float(mean.min())), max(high, float(mean.max()))
        for _ in range(len(mean)):  # each step mends a row and spoils none
            slack = (high - mean) * (mean - low) - variance
            row = int(slack.argmin())
            if slack[row] >= -ROUNDING * (high - low) ** 2:
                break
            m, v = float(mean[row]), float(variance[row])
            up = m + v / (m - low) if m > low else math.inf
            down = m - v / (high - m) if m < high else -math.inf
            if up <= 1 and (up - high <= low - down or down < 0):
                high = up
            else:
                low = max(down, 0.0)
        return low, high

    def scaled(self, tally: Tally) -> tuple[FloatArray, FloatArray]:
        """Return the mean reward of each row as a part of the range, and its sum of squared deviations from it."""
        mean, width = tally.total / tally.count, self.width
        within = np.maximum(tally.squares - tally.total * mean, 0.0)
        return np.minimum(np.maximum((mean - self.low) / width, 0.0), 1.0), within / width**2


def first_rewards(seen: Range, tally: Tally, equal: float, plays: int) -> tuple[float, float]:
    """Return the mean and the variance of all first rewards as parts of the range, shrunk a little.

    The first rewards are `plays` rewards that were all `equal`, and then the rewards of `tally`.
    """
    n = int(tally.count.sum()) + plays
    total = float(tally.total.sum()) + equal * plays
    squares = float(tally.squares.sum()) + equal * equal * plays
    low, width = seen.low, seen.width
    value = ((total - n * low) / width + 0.5) / (n + 1)
    centre = low + width * value
    squared = (squares - 2 * centre * total + n * centre * centre) / width**2
    return value, (squared + value * (1 - value)) / (n + 1)


@dataclass
class Noise(Part):
    """The range of rewards, and their dispersion in it.

    The dispersion is the variance of a row's rewards divided by r(1 - r), the largest that rewards in [0, 1] can have.
    A Bernoulli reward has dispersion 1, the mean of K of them about 1/K. The estimate is a ratio of sums over all rows,
    `variation` / `largest_variation`, and at least `floor`.
    """

    fields = Fields(
        variation=number(above=0), largest_variation=number(above=0), floor=number(above=0), range=part(Range)
    )

    variation: float
    largest_variation: float
    floor: float
    range: Range

    @classmethod
    def at_start(cls, value: float, variance: float, known: Range, constants: Constants) -> Noise:
        """Return the noise after the first rewards, which have this mean and variance."""
        return cls(1.0, 1.0, constants.least * min(1.0, variance / (value * (1 - value))), known)

    @property
    def dispersion(self) -> float:
        """The pooled dispersion of all rows."""
        return min(1.0, max(self.floor, self.variation / self.largest_variation))

    def learn(
        self,
        n: IntArray,
        mean: FloatArray,
        within: FloatArray,
        value: FloatArray,
        uncertainty: FloatArray,
        constants: Constants,
    ) -> FloatArray:
        """Include rows with the expected mean `value` and its variance `uncertainty`; return each row's dispersion."""
        pooled = self.dispersion
        largest = n * mean * (1 - mean) * (n - 1) / np.maximum(n - pooled, 0.5)
        binomial = np.maximum(value * (1 - value), 1e-4)
        # A row with an uncertain mean has little information about the noise.
        trust = (1 + n * uncertainty / (pooled * binomial)) ** -2.0
        squared = np.minimum(n * (mean - value) ** 2, 4 * binomial + 1 / n)
        self.variation += float(within.sum() + trust.dot(squared))
        self.largest_variation += float(largest.sum() + trust.dot(binomial))
        dispersion: FloatArray = (within + constants.shrinkage * self.dispersion) / (largest + constants.shrinkage)
        return dispersion

    def rescale(self, variance: float, largest: float) -> None:
        """Change the unit of rewards: multiply variances and largest variances by these factors.

        `largest` is the factor at the level. It exceeds 1 where the level is near an end of the range before, which
        after a few plays is chance, and rows elsewhere do not follow it: the dispersion would vanish.
        """
        largest = min(largest, 1.0)
        self.variation *= variance
        self.largest_variation *= largest
        self.floor *= variance / largest

    def forget(self, factor: float) -> None:
        """Multiply the weight of all rows so far by `factor`."""
        self.variation *= factor
        self.largest_variation *= factor
