"""Shared credit: every arm of a subset is credited with the whole reward. Common practice.

Two policies over the same two numbers per arm: Beta Thompson sampling and UCB. Neither has a paper or a guarantee.
"""

from __future__ import annotations

from kofn.core import Plan
from kofn.policies.credit import Credited, beta_plan, optimistic_plan
from kofn.policies.randomised import Randomised

UCB_FACTOR = 2.0
"""UCB1's mean + sqrt(2 log t / n) (Auer, Cesa-Bianchi and Fischer 2002)."""


class SharedCredit(Randomised, Credited):
    """Thompson sampling with shared credit: draw every arm from its Beta posterior, play the top K.

    >>> policy = SharedCredit(n_arms=24, k=5, seed=1)
    >>> policy.tell(policy.ask(), 0.25)         # each of the five arms: 0.25 to its wins, 0.75 to its losses
    >>> policy.best()
    (1, 13, 16, 19, 23)

    The posterior is frozen for a tenth of the time elapsed, with at most 200 draws.
    """

    name = "shared-credit"
    consistent = False

    def _next(self) -> Plan:
        return beta_plan(self._credit, self.k, self._rng())


class SharedCreditUCB(Credited):
    """UCB with shared credit: the top K of mean + sqrt(2 log t / n).

    >>> policy = SharedCreditUCB(n_arms=7, k=3)
    >>> list(policy.plan())                     # first, every arm once
    [((0, 1, 2), 1), ((3, 4, 5), 1), ((0, 1, 6), 1)]

    Means are frozen for a tenth of the time elapsed; counts grow as plays are planned.
    """

    name = "shared-credit-ucb"
    consistent = False

    def _next(self) -> Plan:
        return optimistic_plan(self._credit, self.k, UCB_FACTOR)
