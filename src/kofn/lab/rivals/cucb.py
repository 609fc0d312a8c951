"""CUCB: UCB with the reward of each single arm (Chen, Wang and Yuan, ICML 2013). A reference, not a competitor.

The other policies observe one number per play; CUCB observes K. The difference in regret is the value of observing
single arms.
"""

from __future__ import annotations

from kofn.core import Plan, Tally
from kofn.policies.credit import Credited, optimistic_plan

FACTOR = 1.5
"""Algorithm 1, line 6: the adjusted mean is mean_i + sqrt(3 log t / (2 n_i))."""


class CUCB(Credited):
    """The top K of each arm's own mean + sqrt(3 log t / (2 n)).

    >>> policy = CUCB(n_arms=5, k=2)
    >>> policy.ask()
    (0, 1)
    >>> policy.tell((0, 1), 0.5, arms=[1.0, 0.0])

    The top K is the best subset for the estimated means under any reward that increases with the arms' means. Means are
    frozen for a tenth of the time elapsed; counts grow as plays are planned.
    """

    name = "cucb"
    needs = frozenset({"arms"})

    def _next(self) -> Plan:
        return optimistic_plan(self._credit, self.k, FACTOR)

    def _learn(self, plan: Plan, tally: Tally) -> None:
        assert tally.arms is not None
        self._credit.take(plan, tally.arms, tally.count)
