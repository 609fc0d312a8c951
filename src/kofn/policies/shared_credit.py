"""Shared credit: the whole reward given to every arm of the subset, as if each had earned it. What people do today.

Two policies over the same two numbers per arm: Beta Thompson sampling, and UCB. Neither has a paper or a guarantee.
"""

from __future__ import annotations

from kofn.core import Direction, Plan, Seed
from kofn.policies.batching import draws_for, plan_of, tenth, top_k
from kofn.policies.credit import Credit, Credited, optimistic_plan
from kofn.policies.randomised import Randomised
from kofn.policies.registry import register

UCB_FACTOR = 2.0
"""UCB1's mean + sqrt(2 log t / n) (Auer, Cesa-Bianchi and Fischer 2002)."""


@register
class SharedCredit(Credited, Randomised):
    """Thompson sampling on arms that share all credit: draw every arm from its Beta posterior, play the top K.

    >>> policy = SharedCredit(n_arms=24, k=5, seed=1)
    >>> policy.tell(policy.ask(), 0.25)         # each of the five arms: 0.25 to its wins, 0.75 to its losses
    >>> policy.best()
    (1, 13, 16, 19, 23)

    The posterior is frozen for a tenth of the time elapsed, in which at most 200 draws are made.
    """

    name = "shared-credit"
    consistent = False

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        seed: Seed = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        direction: Direction = "maximize",
    ) -> None:
        super().__init__(n_arms, k, seed=seed, reward_range=reward_range, direction=direction)
        self._credit = Credit.zeros(self.n_arms)
        self._begin()

    def _next(self) -> Plan:
        credit = self._credit
        plays = tenth(credit.plays(self.k))
        shape = draws_for(plays, self.n_arms), self.n_arms
        return plan_of(top_k(self._rng().beta(1 + credit.total, 1 + credit.count - credit.total, shape), self.k), plays)


@register
class SharedCreditUCB(Credited):
    """UCB on arms that share all credit: the top K of mean + sqrt(2 log t / n).

    >>> policy = SharedCreditUCB(n_arms=7, k=3)
    >>> list(policy.plan())                     # first of all, every arm once
    [((0, 1, 2), 1), ((3, 4, 5), 1), ((0, 1, 6), 1)]

    Means are frozen for a tenth of the time elapsed; the counts go on growing as plays are planned.
    """

    name = "shared-credit-ucb"
    consistent = False

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
        return optimistic_plan(self._credit, self.k, UCB_FACTOR)
