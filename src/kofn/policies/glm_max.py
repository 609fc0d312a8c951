"""Thompson sampling for the maximum of independent Bernoulli arms, by its own model: complementary log-log.

The maximum is 0 when all arms are: P(r = 0) = prod (1 - p_i) = exp(-sum w_i), with w_i = -log(1 - p_i) >= 0. So the
weights add up, and the K highest are best. The posterior of w is approximated plan by plan (online Laplace): failures
are linear in w and kept as they are, successes are expanded to second order at the mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular

from kofn.core import BadRecord, Direction, FloatArray, Plan, Seed, Subset, Tally, finite_numbers, whole
from kofn.policies.batching import plan_of, tenth, top_k, top_subset
from kofn.policies.linear_model import Quadratic, factor, indicators, sweeps
from kofn.policies.randomised import Randomised
from kofn.policies.registry import register

SWEEPS = 10
"""Plays of each arm in the first plan: expanded at a mode that one or two plays have made, successes count too much."""

AWAY = 1e-3
"""Newton starts no closer to zero than this, since the logarithm of zero is not defined."""

STEPS = 100
"""Newton steps at the most; some ten are enough."""

ALMOST = 1e-10
"""A step that moves no weight further than this is the last."""


@register
class GLMMax(Randomised):
    """Draw the arms' weights -log(1 - p) from their posterior, play the K highest.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> p = np.linspace(0.05, 0.75, 8)
    >>> policy = GLMMax(n_arms=8, k=2, seed=1)
    >>> for _ in range(5_000):
    ...     subset = policy.ask()
    ...     policy.tell(subset, (rng.random(2) < p[list(subset)]).max())
    >>> policy.best()
    (6, 7)

    A plan plays the winners of up to `draws` draws, each in proportion to how often it won. Rewards between 0 and 1
    count as so much of a success. Memory grows with N^2.
    """

    name = "glm-max"
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
        self._seen = Quadratic.zeros(self.n_arms)
        self._seen.V += np.eye(self.n_arms)  # p uniform in [0, 1] makes w exponential, of mean 1 and variance 1
        self._seen.b += 1.0
        self._mode = np.ones(self.n_arms)
        self._learned = 0
        self._begin()

    def best(self) -> Subset:
        """The K highest weights at the mode."""
        return top_subset(self._mode, self.k)

    def _next(self) -> Plan:
        rng = self._rng()
        if not self._learned:
            return sweeps(self.n_arms, self.k, SWEEPS, rng)
        plays = tenth(self._learned)
        return plan_of(top_k(self._draw(min(self._params["draws"], plays), rng), self.k), plays)

    def _draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Weights from the posterior near its mode: Gaussian where the mode is inside, exponential where it is 0."""
        slope = self._seen.b - self._seen.V @ self._mode
        held = _held(self._mode, slope)
        free = ~held
        w = rng.standard_exponential((draws, self.n_arms)) / np.where(held, -slope, 1.0)
        z = rng.standard_normal((draws, self.n_arms))[:, free]
        lower = factor(self._seen.V[np.ix_(free, free)])
        w[:, free] = self._mode[free] + solve_triangular(lower, z.T, lower=True, trans="T").T
        return w

    def _learn(self, plan: Plan, tally: Tally) -> None:
        x = indicators(plan.subsets, self.n_arms)
        successes, failures = tally.total, tally.count - tally.total
        self._seen.b -= failures @ x
        self._mode = mode(self._seen, x, successes, self._mode)
        slope, curvature = _success(x @ self._mode, successes)
        self._seen.add(x, curvature, slope + curvature * (x @ self._mode))
        self._learned += plan.plays

    def _state(self) -> dict[str, Any]:
        return {"learned": self._learned, "mode": self._mode.tolist(), **self._seen.state()}

    def _load(self, state: Mapping[str, Any]) -> None:
        self._learned = whole("learned", state["learned"], least=0)
        self._mode = finite_numbers("mode", state["mode"])
        if self._mode.shape != (self.n_arms,) or (self._mode < 0).any():
            raise BadRecord(f"its mode is not {self.n_arms} numbers of at least 0")
        self._seen.load(state)
        factor(self._seen.V)


def mode(seen: Quadratic, x: FloatArray, successes: FloatArray, start: FloatArray) -> FloatArray:
    """The w >= 0 with the highest -w'Vw/2 + b'w + sum of successes * log(1 - exp(-x'w)), by projected Newton."""
    w = np.maximum(start, AWAY)
    height = _height(seen, x, successes, w)
    for _ in range(STEPS):
        slope, curvature = _success(x @ w, successes)
        gradient = seen.b - seen.V @ w + slope @ x
        free = ~_held(w, gradient)
        hessian = seen.V + (x * curvature[:, None]).T @ x
        step = np.zeros_like(w)
        step[free] = cho_solve((factor(hessian[np.ix_(free, free)]), True), gradient[free])
        moved, height = _climb(seen, x, successes, w, step, height)
        if np.abs(moved - w).max() <= ALMOST:
            return moved
        w = moved
    return w


def _climb(
    seen: Quadratic, x: FloatArray, successes: FloatArray, w: FloatArray, step: FloatArray, height: float
) -> tuple[FloatArray, float]:
    """The first of w + step, w + step/2, ... (negative weights made 0) that is higher, and its height; else w."""
    while np.abs(step).max() > ALMOST:
        moved = np.maximum(w + step, 0.0)
        reached = _height(seen, x, successes, moved)
        if reached > height:
            return moved, reached
        step = step / 2
    return w, height


def _height(seen: Quadratic, x: FloatArray, successes: FloatArray, w: FloatArray) -> float:
    eta = x @ w
    with np.errstate(divide="ignore"):  # a success of weights that are all 0 is impossible: minus infinity
        logs = np.log(-np.expm1(-eta[successes > 0]))
    return float(seen.b @ w - w @ seen.V @ w / 2 + successes[successes > 0] @ logs)


def _success(eta: FloatArray, successes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The first derivative of successes * log(1 - exp(-eta)), and minus the second."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slope = np.where(successes > 0, successes / np.expm1(eta), 0.0)
        curvature = np.where(successes > 0, successes / (4 * np.sinh(eta / 2) ** 2), 0.0)
    return slope, curvature


def _held(w: FloatArray, gradient: FloatArray) -> NDArray[np.bool_]:
    """Which weights are kept at zero by their bound."""
    return (w <= 0) & (gradient < 0)
