"""The variance of rewards, estimated from the sums of squares of each row of plays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kofn.core import FloatArray, Tally
from kofn.core.fields import Fields, Part, number

SHRINKAGE = 25.0
"""Shrinkage weight of the pooled dispersion, in units of the sum of r(1 - r). Higher: a row's own rewards count less.
"""

LEAST = 1e-5
"""Floor of the dispersion, as a part of the dispersion of the first plan's rewards. Higher: more exploration of nearly
noiseless problems."""


@dataclass
class Noise(Part):
    """The dispersion: the variance of a row's rewards divided by r(1 - r), the largest that rewards in [0, 1] can have.

    A Bernoulli reward has dispersion 1, the mean of K of them about 1/K. The estimate is a ratio of sums over all rows,
    `variation` / `largest_variation`, and at least `floor`.
    """

    fields = Fields(variation=number(above=0), largest_variation=number(above=0), floor=number(above=0))

    variation: float
    largest_variation: float
    floor: float

    @property
    def dispersion(self) -> float:
        """The pooled dispersion of all rows."""
        return min(1.0, max(self.floor, self.variation / self.largest_variation))

    def learn(self, tally: Tally, value: FloatArray, uncertainty: FloatArray) -> FloatArray:
        """Include rows with the expected mean `value` and its variance `uncertainty`; return each row's dispersion."""
        n, mean = tally.count, tally.total / tally.count
        pooled = self.dispersion
        within = np.maximum(tally.squares - tally.total * mean, 0.0)
        largest = np.where(n > 1, n * mean * (1 - mean) * (n - 1) / np.maximum(n - pooled, 0.5), 0.0)
        self.variation += float(within.sum())
        self.largest_variation += float(largest.sum())
        binomial = np.maximum(value * (1 - value), 1e-4)
        trust = (
            1 + n * uncertainty / (pooled * binomial)
        ) ** -2.0  # a row with an uncertain mean has little information about the noise
        self.variation += float(trust @ np.minimum(n * (mean - value) ** 2, 4 * binomial + 1 / n))
        self.largest_variation += float(trust @ binomial)
        return (within + SHRINKAGE * self.dispersion) / (largest + SHRINKAGE)

    def forget(self, factor: float) -> None:
        """Multiply the weight of all rows so far by `factor`."""
        self.variation *= factor
        self.largest_variation *= factor
