"""Thompson sampling on a linear surrogate, with the full posterior (Agrawal & Goyal, ICML 2013).

The model: the reward of a subset is the sum of its arms' weights plus noise. Weights are drawn from their posterior,
and the K highest are played. Departures, with their reasons in docs/reference/policies/linear-thompson.md: the
posterior is frozen for a tenth of the plays so far; the noise is learned, and a plan's plays are weighted by its
precision; the prior comes from the first plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Unpack

import numpy as np
from scipy.linalg import solve_triangular

from kofn.core import Plan, Subset, Tally, whole
from kofn.core.fields import Fields, Part, integer, listed, number, part
from kofn.policies.batching import plan_of, tenth, top_k, top_subset
from kofn.policies.linear_model import Quadratic, factor, indicators, sweeps
from kofn.policies.randomised import Randomised, SeededOptions
from kofn.policies.registry import register

LEAST_NOISE = 1e-4
"""Floor of the variance of a reward: rewards that look noiseless may be lucky, or not quite linear. Higher: more
exploration."""

SHRINKAGE = 10
"""Shrinkage weight of the noise of the plan before, in plays. Higher: the noise changes more slowly."""


@dataclass
class Moments(Part):
    """Mean and variance of rewards."""

    fields = Fields(mean=number(above=0, most=1), variance=number(above=0))

    mean: float
    variance: float


@register
class LinearThompson(Randomised):
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
    linear_memory = False
    fields = Fields(
        learned=integer(), first=listed(Moments), noise=number(above=0, most=0.5), seen=part(Quadratic, flat=True)
    )

    def __init__(self, n_arms: int, k: int, *, draws: int = 256, **options: Unpack[SeededOptions]) -> None:
        super().__init__(n_arms, k, draws=whole("draws", draws), **options)
        self._seen = Quadratic.zeros(self.n_arms)  # V and b; each play is divided by the noise of its plan
        self._learned = 0
        self._first = Moments(0.5, 0.25)  # of the first plan's rewards
        self._noise = 0.25
        self._compute_posterior()
        self._begin()

    def best(self) -> Subset:
        """Return the K arms with the highest posterior means."""
        return top_subset(self._mean, self.k)

    def _next(self) -> Plan:
        rng = self._rng()
        if not self._learned:
            return sweeps(self.n_arms, self.k, 1, rng)
        plays = tenth(self._learned)
        z = rng.standard_normal((min(self._params["draws"], plays), self.n_arms))
        theta = self._mean + solve_triangular(self._factor, z.T, lower=True, trans="T").T
        return plan_of(top_k(theta, self.k), plays)

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if not self._learned:
            self._first = _moments(tally)
            self._noise = self._first.variance
        self._noise = _noise(tally, self._noise)
        precision = 1 / self._noise
        x = indicators(plan.subsets, self.n_arms)
        self._seen.add(x, precision * tally.count.astype(float), precision * tally.total)
        self._learned += plan.plays
        self._compute_posterior()

    def _compute_posterior(self) -> None:
        """Compute the posterior mean, and the factor of its precision."""
        prior = np.full(self.n_arms, self._first.mean / self.k)
        self._factor = factor(self._seen.V + np.diag(np.full(self.n_arms, self.k / self._first.variance)))
        residual = self._seen.b - self._seen.V @ prior
        half = solve_triangular(self._factor, residual, lower=True)
        self._mean = prior + solve_triangular(self._factor, half, lower=True, trans="T")

    def _loaded(self) -> None:
        self._compute_posterior()


def _moments(tally: Tally) -> Moments:
    """Return mean and variance of all rewards, with one more play that earned 1/2 and deviated from the mean by 1/2."""
    n, total, squares = int(tally.count.sum()), float(tally.total.sum()), float(tally.squares.sum())
    return Moments((total + 0.5) / (n + 1), (max(0.0, squares - total * total / n) + 0.25) / (n + 1))


def _noise(tally: Tally, before: float) -> float:
    """Return the variance of a subset's rewards in this plan: within rows, shrunk towards that of the plan before."""
    within = math.fsum(np.maximum(tally.squares - tally.total * tally.total / tally.count, 0.0))
    freedom = int(tally.count.sum()) - len(tally)
    return max(LEAST_NOISE, (within + SHRINKAGE * before) / (freedom + SHRINKAGE))
