"""Common practice: search with repeated evaluations, then keep the best. Each spends all of its plays on the search.

They are ordinary policies that are compared with the others on real problems, but not offered by name. Greedy forward
selection with m evaluations per candidate is what ETCG does, so `greedy` is ETCG with the m that uses up the horizon.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from kofn.core import FloatArray, IntArray, Plan, Subset, Tally
from kofn.core.fields import Fields, integer, number, subset
from kofn.lab.problems import AbstractProblem
from kofn.lab.rivals import ETCG
from kofn.policies.randomised import Randomised


class BaselineSearch(Randomised):
    """Evaluate subsets, each `repeats` times, and keep the one with the highest mean; then play it.

    `repeats` is a quarter of the root of the horizon: the noise of a mean and the number of subsets that are tried
    both improve with the horizon.
    """

    needs_horizon = True
    consistent = False
    fields = Fields(kept=subset(), mean=number(), tried=integer())

    def __init__(self, n_arms: int, k: int, horizon: int, **options: Any) -> None:
        super().__init__(n_arms, k, horizon=horizon, **options)
        self.repeats = max(1, round(math.sqrt(self.horizon) / 4))
        self._kept: Subset = tuple(range(self.k))
        self._mean, self._tried = -1.0, 0

    def best(self) -> Subset:
        """Return the subset with the highest mean so far."""
        return self._kept

    @property
    def committed(self) -> bool:
        """Whether too few plays remain to evaluate another subset."""
        return (self._tried + 1) * self.repeats > self.horizon

    def _next(self) -> Plan:
        if self.committed:
            return Plan.one(self._kept, self.horizon)
        rows = self._candidates()
        return Plan(np.sort(rows, axis=1), np.full(len(rows), self.repeats))

    def _candidates(self) -> IntArray:
        raise NotImplementedError

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if self.committed:
            return
        means: FloatArray = tally.total / np.maximum(tally.count, 1)
        leader = int(np.argmax(means))
        self._tried += len(plan)
        if means[leader] > self._mean:
            self._kept, self._mean = plan.subset(leader), float(means[leader])


class RandomSearch(BaselineSearch):
    """Evaluate random subsets."""

    name = "random-search"

    def _candidates(self) -> IntArray:
        rows = self.horizon // self.repeats
        return np.argsort(self._rng().random((rows, self.n_arms)), axis=1)[:, : self.k]


class SwapSearch(BaselineSearch):
    """Climb a hill: exchange a random arm of the best subset so far for another, and keep what has a higher mean."""

    name = "swap-search"

    def _candidates(self) -> IntArray:
        order = self._rng().permutation(self.n_arms)
        if not self._tried:
            return order[None, : self.k]
        new = order[~np.isin(order, self._kept)][:1]
        rest = self._rng(1).permutation(self._kept)[1:]
        return np.concatenate([rest, new])[None, :]


def greedy(n_arms: int, k: int, horizon: int, **options: Any) -> ETCG:
    """Return greedy forward selection that uses up the horizon; with one evaluation each if that is too short."""
    options.pop("seed", None)
    candidates = n_arms * k - k * (k - 1) // 2
    return ETCG(n_arms, k, horizon, m=max(1, horizon // candidates), **options)


Make: TypeAlias = Callable[..., BaselineSearch | ETCG]
BASELINES: dict[str, Make] = {"greedy": greedy, "random-search": RandomSearch, "swap-search": SwapSearch}


def baseline(make: Make, problem: AbstractProblem, horizon: int, seed: np.random.SeedSequence) -> BaselineSearch | ETCG:
    """Make a baseline for a problem."""
    fit: dict[str, Any] = {"direction": problem.direction, "reward_range": problem.reward_range, "seed": seed}
    return make(problem.n_arms, problem.k, horizon, **fit)
