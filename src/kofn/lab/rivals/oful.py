"""OFUL: optimism on a linear model (Abbasi-Yadkori, Pal & Szepesvari, NeurIPS 2011), rarely switching.

The model: the reward of a subset is the sum of its arms' weights plus noise. OFUL plays the subset that would be best
if the weights were as high as their confidence ellipsoid allows.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np
from scipy.linalg import cho_solve

from kofn.core import BadInput, BadRecord, FloatArray, Plan, Policy, PolicyOptions, Subset, Tally
from kofn.core.fields import Fields, part
from kofn.core.subsets import all_subsets
from kofn.lab.rivals.linear_model import Quadratic, factor, indicators, number_above_zero
from kofn.policies.batching import top_subset

R = 0.5
"""Rewards in [0, 1] are 1/2-sub-Gaussian, by Hoeffding."""

MOST_CELLS = 2**18
"""Most subsets times arms for which all subsets are compared. Above, OFUL uses a local search."""

LEAST_GAIN = 1e-12
"""Smallest improvement of the upper bound for which the local search exchanges an arm: rounding could lead in circles.
"""

LEAST_SQUARE = 1e-15
"""Floor of |x|^2: smaller values are rounding errors."""


class OFUL(Policy):
    """Play the subset with the highest upper confidence bound, until det V has grown by a factor of `growth`.

    >>> policy = OFUL(n_arms=8, k=2)
    >>> list(policy.plan())
    [((0, 1), 1)]
    >>> policy.tell((0, 1), 1.0)
    >>> list(policy.plan())                                     # the played arms are better known than the others
    [((2, 3), 1)]

    The confidence ellipsoid holds for all times at once with probability 1 - `delta`, if rewards are linear.
    `regularisation` is the paper's lambda. Memory grows with N^2.
    """

    name = "oful"
    linear_memory = False
    fields = Fields(seen=part(Quadratic, flat=True))

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        regularisation: float = 1.0,
        delta: float = 0.05,
        growth: float = 2.0,
        **options: Unpack[PolicyOptions],
    ) -> None:
        regularisation = number_above_zero("regularisation", regularisation)
        delta, growth = number_above_zero("delta", delta, below=1.0), number_above_zero("growth", growth)
        super().__init__(n_arms, k, regularisation=regularisation, delta=delta, growth=growth, **options)
        if not growth > 1:
            raise BadInput(f"growth must be above 1: it is the factor by which det V grows; got {growth!r}")
        self._seen = Quadratic.zeros(self.n_arms)
        self._all = math.comb(self.n_arms, self.k) * self.n_arms <= MOST_CELLS
        self._compute_estimate()

    def best(self) -> Subset:
        """Return the K arms with the highest estimated weights."""
        return top_subset(self._theta, self.k)

    @property
    def width(self) -> float:
        """sqrt(beta_t), the radius of the confidence ellipsoid."""
        regularisation, delta = self._params["regularisation"], self._params["delta"]
        log_ratio = self._log_det - self.n_arms * math.log(regularisation)  # log(det V / det(lambda I))
        norm = math.sqrt(self.n_arms) / self.k  # S, of weights from 0 to 1/K
        return R * math.sqrt(log_ratio + 2 * math.log(1 / delta)) + math.sqrt(regularisation) * norm

    def _next(self) -> Plan:
        subset = self._most_optimistic()
        square = max(LEAST_SQUARE, float(self._covariance[np.ix_(subset, subset)].sum()))  # |x|^2
        plays = math.ceil((self._params["growth"] - 1) / square)  # det(V + n xx') = det(V) (1 + n |x|^2)
        return Plan.one(subset, plays)

    def _most_optimistic(self) -> Subset:
        """Return the subset with the highest upper bound, theta'x + width |x|.

        If there are too many subsets to compare, return the better of two that no exchange of one arm improves.
        """
        if self._all:
            subsets = all_subsets(self.n_arms, self.k)
            bound = self._upper_bound(indicators(subsets, self.n_arms))
            return tuple(subsets[np.argmax(bound)].tolist())
        alone = self._theta + self.width * np.sqrt(np.diag(self._covariance))
        climbed = [self._climbed(top_subset(start, self.k)) for start in (alone, self._theta)]
        return climbed[int(np.argmax(self._upper_bound(indicators(np.array(climbed), self.n_arms))))]

    def _upper_bound(self, x: FloatArray) -> FloatArray:
        squares = np.einsum("ij,ij->i", x @ self._covariance, x)
        return np.asarray(x @ self._theta + self.width * np.sqrt(np.maximum(squares, 0.0)))

    def _climbed(self, subset: Subset) -> Subset:
        """Return the subset after exchanging one arm at a time, always by the best exchange, while it helps."""
        chosen = np.isin(np.arange(self.n_arms), subset)
        theta, covariance, width = self._theta, self._covariance, self.width
        diagonal = np.diag(covariance)
        for _ in range(self.n_arms):
            out, into = np.flatnonzero(chosen), np.flatnonzero(~chosen)
            reach = covariance @ chosen
            square, mean = reach[out].sum(), theta[out].sum()
            without, within = diagonal[out] - 2 * reach[out], diagonal[into] + 2 * reach[into]
            squares = square + without[:, None] + within - 2 * covariance[np.ix_(out, into)]
            bound = mean - theta[out][:, None] + theta[into] + width * np.sqrt(np.maximum(squares, 0.0))
            i, j = divmod(int(np.argmax(bound)), len(into))
            if bound[i, j] <= mean + width * math.sqrt(max(square, 0.0)) + LEAST_GAIN:
                break
            chosen[out[i]], chosen[into[j]] = False, True
        return tuple(np.flatnonzero(chosen).tolist())

    def _learn(self, plan: Plan, tally: Tally) -> None:
        x = indicators(plan.subsets, self.n_arms)
        self._seen.add(x, tally.count.astype(float), tally.total)
        self._compute_estimate()

    def _compute_estimate(self) -> None:
        """Compute theta, the inverse of V + lambda I, and the logarithm of its determinant."""
        lower = factor(self._seen.V + np.diag(np.full(self.n_arms, self._params["regularisation"])))
        self._covariance = cho_solve((lower, True), np.eye(self.n_arms))
        self._theta = cho_solve((lower, True), self._seen.b)
        self._log_det = 2 * float(np.log(np.diag(lower)).sum())

    def _loaded(self) -> None:
        if (self._seen.b < 0).any() or (self._seen.b > np.diag(self._seen.V)).any():
            raise BadRecord("b must be between 0 and the number of plays of each arm")
        self._compute_estimate()
