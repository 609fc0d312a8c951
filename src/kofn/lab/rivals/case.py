"""CASE: challenger arm sampling for exemplar selection (Purohit, Venktesh, Bhattacharya and Anand, ICML 2025).

A stochastic linear bandit whose arms are subsets. A short list of challengers is kept beside the best subset; the most
ambiguous challenger, by a gap index, decides which subset of the list is played. The paper identifies the top m subsets
and stops; here m = 1, and the best subset is played while no challenger can be better. docs/reference/policies/case.md
explains the departures.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np
from scipy.linalg import cho_solve

from kofn.core import BadRecord, FloatArray, Plan, Subset, Tally, whole
from kofn.core.fields import Fields, each, integer, part, subset
from kofn.lab.rivals.linear_model import Quadratic, factor, indicators, number_above_zero
from kofn.policies.batching import shares, sweeps, tenth, top_subset
from kofn.policies.randomised import Randomised, SeededOptions

SIGMA = 0.5
"""Standard deviation of the noise in the gap index: rewards in [0, 1] are 1/2-sub-Gaussian, and so is the authors'."""

REGULARISATION = 1.0
"""Prior precision of each weight, as in the authors' code."""

STEPS = 32
"""Most steps of the algorithm within one plan. Higher: closer to a step per play, slower."""

DIGITS = 9
"""Digits of weights and gap indices that count, so that equal ones are told apart by their order and not by rounding.
"""


class CASE(Randomised):
    """Play the best subset by a linear model, or what tells it from the most ambiguous of a few challengers.

    >>> policy = CASE(n_arms=8, k=2, seed=1)
    >>> policy.plan().plays                                     # every arm once
    4

    `challengers` is the length of the list, and `delta` the error probability of the gap index. Memory grows with N^2.
    """

    name = "case"
    linear_memory = False
    fields = Fields(learned=integer(), challengers=each(subset()), seen=part(Quadratic, flat=True))

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        challengers: int = 5,
        delta: float = 0.05,
        **options: Unpack[SeededOptions],
    ) -> None:
        challengers, delta = whole("challengers", challengers), number_above_zero("delta", delta, below=1.0)
        super().__init__(n_arms, k, challengers=challengers, delta=delta, **options)
        self._seen = Quadratic.zeros(self.n_arms)
        self._learned = 0
        self._challengers: list[Subset] = []  # N_t
        self._compute_estimate()

    def best(self) -> Subset:
        """Return the K arms with the highest estimated weights."""
        return top_subset(self._theta, self.k)

    def _next(self) -> Plan:
        rng = self._rng()
        self._planned = _Steps(self, rng)
        if not self._learned:
            return sweeps(self.n_arms, self.k, 1, rng)
        plays = tenth(self._learned)
        found: dict[Subset, int] = {}
        for times in shares(plays, min(plays, STEPS)).tolist():
            chosen = self._planned.step(times)
            found[chosen] = found.get(chosen, 0) + times
        return Plan(np.array(list(found)), np.array(list(found.values())))

    def _learn(self, plan: Plan, tally: Tally) -> None:
        self._seen.add(indicators(plan.subsets, self.n_arms), tally.count.astype(float), tally.total)
        self._learned += plan.plays
        self._challengers = self._planned.challengers
        self._compute_estimate()

    def _compute_estimate(self) -> None:
        """Compute theta, and the inverse of V + lambda I."""
        lower = factor(self._seen.V + REGULARISATION * np.eye(self.n_arms))
        self._covariance: FloatArray = cho_solve((lower, True), np.eye(self.n_arms))
        self._theta: FloatArray = np.round(cho_solve((lower, True), self._seen.b), DIGITS)

    def _loaded(self) -> None:
        if len(self._challengers) > self._params["challengers"] or len(set(self._challengers)) < len(self._challengers):
            most = self._params["challengers"]
            raise BadRecord(f"challengers must be at most {most} subsets, all different; got {self._challengers}")
        if (self._seen.b < 0).any() or (self._seen.b > np.diag(self._seen.V)).any():
            raise BadRecord("b must be between 0 and the number of plays of each arm")
        self._compute_estimate()


class _Steps:
    """The steps of one plan: weights are frozen, and the covariance shrinks with each planned play."""

    def __init__(self, policy: CASE, rng: np.random.Generator) -> None:
        self.most, self.delta = policy.params["challengers"], policy.params["delta"]
        self.theta, self.covariance, self.t, self.rng = policy._theta, policy._covariance.copy(), policy._learned, rng
        self.challengers = policy._challengers
        self.best = policy.best()  # b_t
        self.others = [arm for arm in range(policy.n_arms) if arm not in self.best]
        self.best_x = indicators(np.array([self.best]), policy.n_arms)

    def step(self, times: int) -> Subset:
        """Return the subset of the next `times` plays."""
        rivals = [each for each in dict.fromkeys([*self.challengers, *self._exchanges()]) if each != self.best]
        x = indicators(np.array(rivals), len(self.theta))
        apart = x - self.best_x
        reach = apart @ self.covariance
        index = self._gap_index(apart @ self.theta, (reach * apart).sum(axis=1))
        kept = np.sort(np.argsort(-index, kind="stable")[: self.most])
        self.challengers = [rivals[place] for place in kept]
        strongest = kept[np.argmax(index[kept])]  # s_t
        chosen = self.best_x[0]
        if index[strongest] > 0:  # it may be better than b_t: play what shrinks |x_b - x_s| most
            listed = np.vstack([self.best_x, x[kept]])
            gain = (listed @ reach[strongest]) ** 2 / (1 + (listed @ self.covariance * listed).sum(axis=1))
            chosen = listed[np.argmax(np.round(gain, DIGITS))]
        self._plan(chosen, times)
        return tuple(np.flatnonzero(chosen).tolist())

    def _exchanges(self) -> list[Subset]:
        """Draw new challengers: b_t with one arm exchanged."""
        out, into = (self.rng.integers(len(arms), size=self.most).tolist() for arms in (self.best, self.others))
        return [
            tuple(sorted([*self.best[:place], *self.best[place + 1 :], self.others[arm]]))
            for place, arm in zip(out, into, strict=True)
        ]

    def _gap_index(self, gap: FloatArray, square: FloatArray) -> FloatArray:
        """Return B(i, b): how much better than b_t each challenger may be."""
        beta = math.log((math.log(self.t) + 1) / self.delta)
        return np.round(gap + SIGMA * np.sqrt(2 * beta * np.maximum(square, 0.0)), DIGITS)

    def _plan(self, x: FloatArray, times: int) -> None:
        reach = self.covariance @ x
        self.covariance -= np.outer(reach, reach) * (times / (1 + times * float(reach @ x)))
        self.t += times
