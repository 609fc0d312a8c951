"""Uniform: random subsets only, the lower end of every comparison."""

from __future__ import annotations

from kofn.core import Plan
from kofn.policies.batching import draws_for, plan_of, tenth, top_k
from kofn.policies.credit import Credited
from kofn.policies.randomised import Randomised
from kofn.policies.registry import register


@register
class Uniform(Randomised, Credited):
    """Play random subsets, whatever their rewards. `best()` still reports the top K by average reward.

    >>> policy = Uniform(n_arms=24, k=5, seed=1)
    >>> policy.ask()
    (1, 3, 6, 13, 23)

    If the reward is symmetric and increasing, the averages over random subsets rank the arms correctly.
    """

    name = "uniform"
    consistent = False

    def _next(self) -> Plan:
        plays = tenth(self._credit.plays(self.k))
        rows = draws_for(plays, self.n_arms)
        return plan_of(top_k(self._rng().random((rows, self.n_arms)), self.k), plays)
