"""Thompson sampling on a linear surrogate, with the full posterior (Agrawal & Goyal, ICML 2013).

The model: the reward of a subset is the sum of its arms' weights plus noise. Weights are drawn from their posterior,
and the K highest are played. Departures, with their reasons in docs/reference/policies/linear-thompson.md: the
posterior is frozen for a tenth of the plays so far; the noise is learned, in units of r(1 - r), and a plan's plays are
weighted by its precision; the prior comes from the first plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Unpack

import numpy as np
from scipy.linalg import solve_triangular

from kofn.core import FloatArray, Plan, Tally
from kofn.core.fields import Fields, Part, integer, listed, number, part
from kofn.lab.rivals.linear_model import Quadratic, WeightOptions, WeightThompson, factor, gaussian, indicators

LEAST_NOISE = 1e-4
"""Floor of the variance of a reward: rewards that look noiseless may be lucky, or not quite linear. Higher: more
exploration."""

SHRINKAGE = 0.5
"""Shrinkage weight of the dispersion of the first plan, in units of the sum of r(1 - r): as much as two plays that
earn 1/2. Higher: the dispersion is learned more slowly."""


@dataclass
class RewardMoments(Part):
    """Mean and variance of rewards."""

    fields = Fields(mean=number(above=0, most=1), variance=number(above=0))

    mean: float
    variance: float


@dataclass
class Dispersion(Part):
    """The dispersion: the variance of rewards in units of r(1 - r), where r is the mean reward. It is 1 for coins."""

    fields = Fields(squares=number(above=0), units=number(above=0))

    squares: float  # of deviations from what was expected
    units: float  # sum of r(1 - r)

    @classmethod
    def of(cls, variance: float, mean: float) -> Dispersion:
        """Return the noise at the beginning, from the variance of a few rewards with this mean."""
        return cls(SHRINKAGE * variance / (mean * (1 - mean)), SHRINKAGE)

    def variance(self, tally: Tally) -> float:
        """Return the variance of one reward of this plan."""
        return max(LEAST_NOISE, self.squares / self.units * _unit(tally))

    def add(self, tally: Tally, squares: float, freedom: float) -> None:
        """Add the squared deviations of a plan, and their degrees of freedom."""
        self.squares += squares
        self.units += freedom * _unit(tally)


class LinearThompson(WeightThompson):
    """Draw a weight per arm from the posterior of a linear model, play the K highest.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> p = np.linspace(0.02, 0.98, 8)
    >>> policy = LinearThompson(n_arms=8, k=2, seed=1)
    >>> for _ in range(5_000):
    ...     subset = policy.ask()
    ...     policy.tell(subset, rng.random() < p[list(subset)].mean())
    >>> policy.best()
    (6, 7)

    A plan plays the top K of up to `draws` draws. Memory grows with N^2.
    """

    name = "linear-thompson"
    fields = Fields(
        learned=integer(), first=listed(RewardMoments), noise=listed(Dispersion), seen=part(Quadratic, flat=True)
    )

    def __init__(self, n_arms: int, k: int, **options: Unpack[WeightOptions]) -> None:
        super().__init__(n_arms, k, **options)  # in V and b, each play is divided by the noise of its plan
        self._first = RewardMoments(0.5, 0.25)  # of the first plan's rewards
        self._noise = Dispersion(SHRINKAGE, SHRINKAGE)
        self._compute_posterior()

    def _draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        return gaussian(self._mode, self._factor, draws, rng)

    def _learn(self, plan: Plan, tally: Tally) -> None:
        x = indicators(plan.subsets, self.n_arms)
        if self._learned:
            self._noise.add(tally, *self._deviations(x, tally))
        else:
            self._first = _moments(tally)
            self._noise = Dispersion.of(self._first.variance, self._first.mean)
        precision = 1 / self._noise.variance(tally)
        self._seen.add(x, precision * tally.count.astype(float), precision * tally.total)
        self._learned += plan.plays
        self._compute_posterior()

    def _deviations(self, x: FloatArray, tally: Tally) -> tuple[float, float]:
        """Return the squared deviations of rewards, and their degrees of freedom.

        Rewards deviate from the mean of their row, and the mean of a row from its prediction. A prediction is uncertain
        too, so the second part is scaled to one variance per row, and counts as much as noise has a share in it.
        """
        n, noise = tally.count, self._noise.variance(tally)
        within = np.maximum(tally.squares - tally.total * tally.total / n, 0.0)
        doubt = (solve_triangular(self._factor, x.T, lower=True) ** 2).sum(axis=0)  # x' V^-1 x
        share = noise / (noise + n * doubt)
        between = share * n * (tally.total / n - x @ self._mode) ** 2
        return math.fsum(within) + math.fsum(share * between), math.fsum(n - 1 + share)

    def _compute_posterior(self) -> None:
        """Compute the posterior mean, and the factor of its precision."""
        prior = np.full(self.n_arms, self._first.mean / self.k)
        self._factor = factor(self._seen.V + np.diag(np.full(self.n_arms, self.k / self._first.variance)))
        residual = self._seen.b - self._seen.V @ prior
        half = solve_triangular(self._factor, residual, lower=True)
        self._mode = prior + solve_triangular(self._factor, half, lower=True, trans="T")

    def _loaded(self) -> None:
        self._compute_posterior()


def _moments(tally: Tally) -> RewardMoments:
    """Return mean and variance of all rewards, with one more play that earned 1/2 and deviated from the mean by 1/2."""
    n, total, squares = int(tally.count.sum()), float(tally.total.sum()), float(tally.squares.sum())
    return RewardMoments((total + 0.5) / (n + 1), (max(0.0, squares - total * total / n) + 0.25) / (n + 1))


def _unit(tally: Tally) -> float:
    """Return r(1 - r) for the mean reward r of a plan, with one more play that earned 1/2."""
    r = (float(tally.total.sum()) + 0.5) / (int(tally.count.sum()) + 1)
    return r * (1 - r)
