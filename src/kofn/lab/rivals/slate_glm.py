"""Thompson sampling with a joint logistic model: Slate-GLM-TS (Goyal and Sinha, UAI 2025), for one pool of arms.

The log-odds of a success are the sum of the arms' weights. The posterior of the weights is Gaussian and updated online:
the new mode is the best compromise between the new plays and the old posterior, and the plays add the curvature of
their likelihood at that mode. The paper has a pool of items for each slot and draws each slot by itself; with one pool
the K highest weights of one draw are its best subset. docs/reference/policies/slate-glm.md lists all departures.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np
from scipy.linalg import cho_solve
from scipy.special import expit, log_expit

from kofn.core import FloatArray, Plan, Tally
from kofn.core.fields import Fields, integer, numbers, part
from kofn.lab.rivals.linear_model import Quadratic, WeightOptions, WeightThompson, factor, gaussian, indicators

NEWTON_STEPS = 100
"""Most Newton steps; about five are usual."""

CONVERGED = 1e-10
"""Change of the weights that ends Newton's method."""


class SlateGLM(WeightThompson):
    """Draw a weight per arm from the posterior of a logistic model, play the K highest.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> weights = np.linspace(-1, 1, 8)
    >>> policy = SlateGLM(n_arms=8, k=2, seed=1)
    >>> for _ in range(5_000):
    ...     subset = policy.ask()
    ...     policy.tell(subset, rng.random() < 1 / (1 + np.exp(-weights[list(subset)].sum())))
    >>> policy.best()
    (6, 7)

    A plan plays the top K of up to `draws` draws. A reward r between 0 and 1 counts as r successes. Memory grows with
    N^2.
    """

    name = "slate-glm"
    accepts_unplanned = True
    fields = Fields(learned=integer(), mode=numbers(), seen=part(Quadratic, flat=True))

    def __init__(self, n_arms: int, k: int, **options: Unpack[WeightOptions]) -> None:
        super().__init__(n_arms, k, **options)
        self._seen.V += np.eye(self.n_arms)  # the prior: mean 0, variance 1
        self._mode = np.zeros(self.n_arms)

    def _draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        return gaussian(self._mode, factor(self._seen.V), draws, rng)

    def _learn(self, plan: Plan, tally: Tally) -> None:
        x, count = indicators(plan.subsets, self.n_arms), tally.count.astype(float)
        self._mode = mode(self._seen, x, count, tally.total, self._mode)
        slope, curvature = _derivatives(x @ self._mode, count, tally.total)
        self._seen.add(x, curvature, slope + curvature * (x @ self._mode))
        self._learned += plan.plays

    def _loaded(self) -> None:
        factor(self._seen.V)


def mode(seen: Quadratic, x: FloatArray, count: FloatArray, successes: FloatArray, start: FloatArray) -> FloatArray:
    """Return the weights w with the highest -w'Vw/2 + b'w + log likelihood of the rows x, by Newton's method."""
    w = start
    for _ in range(NEWTON_STEPS):
        slope, curvature = _derivatives(x @ w, count, successes)
        gradient = seen.b - seen.V @ w + slope @ x
        step = cho_solve((factor(seen.V + (x * curvature[:, None]).T @ x), True), gradient)
        height = _height(seen, x, count, successes, w)
        while np.abs(step).max() > CONVERGED and _height(seen, x, count, successes, w + step) < height:
            step = step / 2
        w = w + step
        if np.abs(step).max() <= CONVERGED:
            break
    return w


def _derivatives(eta: FloatArray, count: FloatArray, successes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the first derivative of each row's log likelihood by its log-odds, and minus the second."""
    mean = expit(eta)
    return successes - count * mean, count * mean * (1 - mean)


def _height(seen: Quadratic, x: FloatArray, count: FloatArray, successes: FloatArray, w: FloatArray) -> float:
    eta = x @ w
    likelihood = successes @ log_expit(eta) + (count - successes) @ log_expit(-eta)
    return float(seen.b @ w - w @ seen.V @ w / 2 + likelihood)
