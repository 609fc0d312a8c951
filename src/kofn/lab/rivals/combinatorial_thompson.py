"""Combinatorial Thompson sampling with the reward of each single arm (Wang and Chen, ICML 2018). A reference.

Like CUCB it observes K numbers per play, where the competitors observe one. It is the stronger of the two references:
its distance to a policy shows what one number per play costs.
"""

from __future__ import annotations

from kofn.core import Plan, Tally
from kofn.policies.credit import Credited, beta_plan
from kofn.policies.randomised import Randomised


class CombinatorialThompson(Randomised, Credited):
    """Draw the mean of each arm from the Beta posterior of its own rewards, play the K highest.

    >>> policy = CombinatorialThompson(n_arms=5, k=2, seed=1)
    >>> policy.ask()
    (1, 4)
    >>> policy.tell((1, 4), 0.5, arms=[1.0, 0.0])

    The top K is the best subset for the drawn means under any reward that increases with the arms' means. The posterior
    is frozen for a tenth of the time elapsed, with at most 200 draws.
    """

    name = "combinatorial-thompson"
    needs = frozenset({"arms"})

    def _next(self) -> Plan:
        return beta_plan(self._credit, self.k, self._rng())

    def _learn(self, plan: Plan, tally: Tally) -> None:
        assert tally.arms is not None
        self._credit.take(plan, tally.arms, tally.count)
