"""Thompson sampling for the maximum of independent Bernoulli arms, with a complementary log-log model.

The maximum is 0 when all arms are: P(r = 0) = prod (1 - p_i) = exp(-sum w_i), with w_i = -log(1 - p_i) >= 0. So the
weights add up, and the K highest are best. The posterior of w is approximated plan by plan (online Laplace): failures
are linear in w and kept exactly, successes are expanded to second order at the mode.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular

from kofn.core import FloatArray, Plan, Tally
from kofn.core.fields import Fields, integer, numbers, part
from kofn.lab.rivals.linear_model import Quadratic, WeightOptions, WeightThompson, factor, indicators

START = 1e-3
"""Smallest weight at which Newton's method starts, since the logarithm of zero is not defined."""

NEWTON_STEPS = 100
"""Most Newton steps; about ten are usual."""

CONVERGED = 1e-10
"""Change of the weights that ends Newton's method."""


class GLMMax(WeightThompson):
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

    A plan plays the top K of up to `draws` draws. A reward r between 0 and 1 counts as r successes. Memory grows with
    N^2.
    """

    name = "glm-max"
    first_sweeps = 10  # with one or two, the mode is so rough that successes would count too much
    fields = Fields(learned=integer(), mode=numbers(least=0), seen=part(Quadratic, flat=True))

    def __init__(self, n_arms: int, k: int, **options: Unpack[WeightOptions]) -> None:
        super().__init__(n_arms, k, **options)
        self._seen.V += np.eye(self.n_arms)  # p uniform in [0, 1]: w is exponential, with mean 1 and variance 1
        self._seen.b += 1.0
        self._mode = np.ones(self.n_arms)

    def _draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw weights from the posterior near its mode: Gaussian if the mode is inside, exponential if it is 0."""
        slope = self._seen.b - self._seen.V @ self._mode
        held = _held(self._mode, slope)
        free = ~held
        w = rng.standard_exponential((draws, self.n_arms)) / np.where(held, -slope, 1.0)
        z = rng.standard_normal((draws, self.n_arms))[:, free]
        if free.any():  # SciPy 1.13 refuses an empty system
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

    def _loaded(self) -> None:
        factor(self._seen.V)


def mode(seen: Quadratic, x: FloatArray, successes: FloatArray, start: FloatArray) -> FloatArray:
    """Return the w >= 0 with the highest -w'Vw/2 + b'w + sum of successes * log(1 - exp(-x'w)), by projected Newton."""
    w = np.maximum(start, START)
    height = _height(seen, x, successes, w)
    for _ in range(NEWTON_STEPS):
        slope, curvature = _success(x @ w, successes)
        gradient = seen.b - seen.V @ w + slope @ x
        free = ~_held(w, gradient)
        hessian = seen.V + (x * curvature[:, None]).T @ x
        step = np.zeros_like(w)
        if free.any():  # SciPy 1.13 refuses an empty system
            step[free] = cho_solve((factor(hessian[np.ix_(free, free)]), True), gradient[free])
        moved, height = _climb(seen, x, successes, w, step, height)
        if np.abs(moved - w).max() <= CONVERGED:
            return moved
        w = moved
    return w


def _climb(
    seen: Quadratic, x: FloatArray, successes: FloatArray, w: FloatArray, step: FloatArray, height: float
) -> tuple[FloatArray, float]:
    """Return the first of w + step, w + step/2, ... (cut at 0) that is higher, and its height; otherwise w."""
    while np.abs(step).max() > CONVERGED:
        moved = np.maximum(w + step, 0.0)
        reached = _height(seen, x, successes, moved)
        if reached > height:
            return moved, reached
        step = step / 2
    return w, height


def _height(seen: Quadratic, x: FloatArray, successes: FloatArray, w: FloatArray) -> float:
    eta = x @ w
    with np.errstate(divide="ignore"):  # a success is impossible if all weights are 0: minus infinity
        logs = np.log(-np.expm1(-eta[successes > 0]))
    return float(seen.b @ w - w @ seen.V @ w / 2 + successes[successes > 0] @ logs)


def _success(eta: FloatArray, successes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the first derivative of successes * log(1 - exp(-eta)), and minus the second."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slope = np.where(successes > 0, successes / np.expm1(eta), 0.0)
        curvature = np.where(successes > 0, successes / (4 * np.sinh(eta / 2) ** 2), 0.0)
    return slope, curvature


def _held(w: FloatArray, gradient: FloatArray) -> NDArray[np.bool_]:
    """Return which weights are held at their bound, zero."""
    return (w <= 0) & (gradient < 0)
