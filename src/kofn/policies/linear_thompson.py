"""Thompson sampling on a linear surrogate, with the full posterior (Agrawal & Goyal, ICML 2013).

The reward of a subset is taken for the sum of its arms' weights plus noise. Weights are drawn from their posterior, and
the K highest are played. Departures, with their reasons in docs/reference/policies/linear-thompson.md: the posterior is
frozen for a plan of a tenth of the plays so far; the noise is learned, and a plan's plays count by its precision; the
prior comes from the first plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from kofn.core import BadRecord, Direction, Plan, Seed, Subset, Tally, finite_numbers, whole
from kofn.policies.batching import plan_of, tenth, top_k, top_subset
from kofn.policies.linear_model import Quadratic, factor, indicators, sweeps
from kofn.policies.randomised import Randomised
from kofn.policies.registry import register

LEAST_NOISE = 1e-4
"""The variance that a reward has at least: what looks noiseless may have been lucky, or not quite linear."""

SHRINKAGE = 10
"""The noise of a plan is estimated as if the plan before had lent it so many plays."""


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

    A plan plays the winners of up to `draws` draws, each in proportion to how often it won. Memory grows with N^2.
    """

    name = "linear-thompson"
    linear_memory = False

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        draws: int = 256,
        seed: Seed = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        direction: Direction = "maximize",
    ) -> None:
        draws = whole("draws", draws)
        super().__init__(n_arms, k, seed=seed, draws=draws, reward_range=reward_range, direction=direction)
        self._seen = Quadratic.zeros(self.n_arms)  # V and b, each play divided by the noise of its plan
        self._learned = 0
        self._first = 0.5, 0.25  # mean and variance of the first plan's rewards
        self._noise = 0.25
        self._update()
        self._begin()

    def best(self) -> Subset:
        """The K highest posterior means."""
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
            self._noise = self._first[1]
        self._noise = _noise(tally, self._noise)
        precision = 1 / self._noise
        x = indicators(plan.subsets, self.n_arms)
        self._seen.add(x, precision * tally.count.astype(float), precision * tally.total)
        self._learned += plan.plays
        self._update()

    def _update(self) -> None:
        """The posterior: mean, and the factor of its precision."""
        mean, variance = self._first
        prior = np.full(self.n_arms, mean / self.k)
        self._factor = factor(self._seen.V + np.diag(np.full(self.n_arms, self.k / variance)))
        residual = self._seen.b - self._seen.V @ prior
        half = solve_triangular(self._factor, residual, lower=True)
        self._mean = prior + solve_triangular(self._factor, half, lower=True, trans="T")

    def _state(self) -> dict[str, Any]:
        return {"learned": self._learned, "first": list(self._first), "noise": self._noise, **self._seen.state()}

    def _load(self, state: Mapping[str, Any]) -> None:
        self._learned = whole("learned", state["learned"], least=0)
        first, noise = finite_numbers("first", state["first"]), finite_numbers("noise", state["noise"])
        if first.shape != (2,) or noise.shape != () or not (0 < first[0] < 1 and first[1] > 0 and 0 < noise <= 0.5):
            raise BadRecord("first is a mean in (0, 1) and a variance above 0, and noise is in (0, 0.5]")
        self._first, self._noise = (float(first[0]), float(first[1])), float(noise)
        self._seen.load(state)
        self._update()


def _moments(tally: Tally) -> tuple[float, float]:
    """Mean and variance of all rewards, as if one more play had earned 1/2 and differed from the mean by 1/2."""
    n, total, squares = int(tally.count.sum()), float(tally.total.sum()), float(tally.squares.sum())
    return (total + 0.5) / (n + 1), (max(0.0, squares - total * total / n) + 0.25) / (n + 1)


def _noise(tally: Tally, before: float) -> float:
    """The variance of a subset's rewards in this plan: within rows, shrunk to that of the plan before."""
    within = math.fsum(np.maximum(tally.squares - tally.total * tally.total / tally.count, 0.0))
    freedom = int(tally.count.sum()) - len(tally)
    return max(LEAST_NOISE, (within + SHRINKAGE * before) / (freedom + SHRINKAGE))
