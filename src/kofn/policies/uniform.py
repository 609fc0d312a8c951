"""Uniform: random subsets for ever, the floor of every comparison."""

from __future__ import annotations

from kofn.core import Direction, Plan, Seed
from kofn.policies.batching import draws_for, plan_of, tenth, top_k
from kofn.policies.credit import Credit, Credited
from kofn.policies.randomised import Randomised
from kofn.policies.registry import register


@register
class Uniform(Credited, Randomised):
    """Plays subsets at random, whatever they earn. What it would play if it cared, `best()` knows.

    >>> policy = Uniform(n_arms=24, k=5, seed=1)
    >>> policy.ask()
    (1, 3, 6, 13, 23)

    In random subsets the arms' average rewards are ordered as the arms are, if the reward is symmetric and increasing.
    """

    name = "uniform"
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
        plays = tenth(self._credit.plays(self.k))
        rows = draws_for(plays, self.n_arms)
        return plan_of(top_k(self._rng().random((rows, self.n_arms)), self.k), plays)
