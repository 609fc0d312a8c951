"""CUCB: UCB on arms that are seen one by one (Chen, Wang and Yuan, ICML 2013). A reference line, not a rival.

Everyone else here sees one number per play; CUCB sees K. The distance to it is what seeing single arms is worth.
"""

from __future__ import annotations

from kofn.core import Direction, Plan, Tally
from kofn.policies.credit import Credit, Credited, optimistic_plan
from kofn.policies.registry import register

FACTOR = 1.5
"""Algorithm 1, line 6: the adjusted mean is mean_i + sqrt(3 log t / (2 n_i))."""


@register
class CUCB(Credited):
    """The top K of each arm's own mean + sqrt(3 log t / (2 n)).

    >>> policy = CUCB(n_arms=5, k=2)
    >>> policy.ask()
    (0, 1)
    >>> policy.tell((0, 1), 0.5, arms=[1.0, 0.0])

    Top K is the best subset for the estimated means under any reward that increases with the arms' means. Means are
    frozen for a tenth of the time elapsed; the counts go on growing as plays are planned.
    """

    name = "cucb"
    needs = frozenset({"arms"})

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        reward_range: tuple[float, float] = (0.0, 1.0),
        direction: Direction = "maximize",
    ) -> None:
        super().__init__(n_arms, k, reward_range=reward_range, direction=direction)
        self._credit = Credit.zeros(self.n_arms)
        self._begin()

    def _next(self) -> Plan:
        return optimistic_plan(self._credit, self.k, FACTOR)

    def _learn(self, plan: Plan, tally: Tally) -> None:
        assert tally.arms is not None
        self._credit.take(plan, tally.arms, tally.count)
