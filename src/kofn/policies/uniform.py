"""Uniform: random subsets only, the lower end of every comparison."""

from __future__ import annotations

from kofn.core import Plan, Subset
from kofn.policies.batching import draws_for, plan_of, tenth, top_k
from kofn.policies.constrained import Constrained
from kofn.policies.credit import Credited
from kofn.policies.randomised import Randomised


class Uniform(Constrained, Randomised, Credited):
    """Play random subsets, whatever their rewards. `best()` still reports the top K by average reward.

    >>> policy = Uniform(n_arms=24, k=5, seed=1)
    >>> policy.ask()
    (1, 3, 6, 13, 23)

    If the reward is symmetric and increasing, the averages over random subsets rank the arms correctly. Under
    constraints it plays random allowed subsets.
    """

    name = "uniform"
    purpose = "Learns nothing: every decision has random arms. For A/A tests, and to collect unbiased data."
    consistent = False

    def _next(self) -> Plan:
        plays = tenth(self._credit.plays(self.k))
        rows = draws_for(plays, self.n_arms)
        if self._allowed is not None:
            return plan_of(self._allowed.random(rows, self._rng()), plays)
        return plan_of(top_k(self._rng().random((rows, self.n_arms)), self.k), plays)

    def best(self) -> Subset:
        """Return the K arms with the highest average reward that are allowed together."""
        if self._allowed is None:
            return super().best()
        return tuple(self._allowed.top(self._credit.means).tolist())
