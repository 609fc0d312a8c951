"""How much rewards vary, learned beside what they are: rows of plays carry the total of their squares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kofn.core import FloatArray, Tally

FIRM = 25.0
"""A row's own dispersion is trusted as much as all others' when its rewards vary like so many coin tosses times 4."""

LEAST = 1e-5
"""The dispersion never falls below this part of what the first plan's rewards had in all."""


@dataclass
class Noise:
    """The dispersion: the variance of a row's rewards in parts of r(1 - r), the most that rewards in [0, 1] can have.

    One Bernoulli reward has 1, the mean of K of them about 1/K. It is a ratio of sums: `varied` over `possible`.
    """

    varied: float
    possible: float
    least: float

    @property
    def dispersion(self) -> float:
        """The dispersion of all rows together."""
        return min(1.0, max(self.least, self.varied / self.possible))

    def learn(self, tally: Tally, value: FloatArray, doubt: FloatArray) -> FloatArray:
        """Take in rows that were expected to earn `value`, give or take `doubt`; return the dispersion of each."""
        n, mean = tally.count, tally.total / tally.count
        phi = self.dispersion
        within = np.maximum(tally.squares - tally.total * mean, 0.0)
        possible = np.where(n > 1, n * mean * (1 - mean) * (n - 1) / np.maximum(n - phi, 0.5), 0.0)
        self.varied += float(within.sum())
        self.possible += float(possible.sum())
        binomial = np.maximum(value * (1 - value), 1e-4)
        trust = (1 + n * doubt / (phi * binomial)) ** -2.0  # what was doubtful says little of the noise
        self.varied += float(trust @ np.minimum(n * (mean - value) ** 2, 4 * binomial + 1 / n))
        self.possible += float(trust @ binomial)
        return (within + FIRM * self.dispersion) / (possible + FIRM)
