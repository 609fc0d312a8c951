"""Uniform: random subsets only, the lower end of every comparison."""

from __future__ import annotations

from typing import Unpack

from kofn.core import Plan
from kofn.policies.batching import draws_for, plan_of, tenth, top_k
from kofn.policies.credit import Credited
from kofn.policies.randomised import Randomised, SeededOptions
from kofn.policies.registry import register


@register
class Uniform(Credited, Randomised):
    """Play random subsets, whatever their rewards. `best()` still reports the top K by average reward.

    >>> policy = Uniform(n_arms=24, k=5, seed=1)
    >>> policy.ask()
    (1, 3, 6, 13, 23)

    If the reward is symmetric and increasing, the averages over random subsets rank the arms correctly.
    """

    name = "uniform"
    consistent = False

    def __init__(self, n_arms: int, k: int, **options: Unpack[SeededOptions]) -> None:
        super().__init__(n_arms, k, **options)

    def _next(self) -> Plan:
        plays = tenth(self._credit.plays(self.k))
        rows = draws_for(plays, self.n_arms)
        return plan_of(top_k(self._rng().random((rows, self.n_arms)), self.k), plays)
