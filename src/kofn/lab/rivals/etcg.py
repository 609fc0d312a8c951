"""ETCG: greedy explore-then-commit (Nie, Agarwal, Umrawal, Aggarwal and Quinn, UAI 2022), for submodular rewards.

K rounds; each plays the arms chosen so far together with every other arm, m times, and chooses the best. So it plays
fewer than K arms, and a problem must define the reward of fewer.
"""

from __future__ import annotations

import math
import warnings
from typing import Unpack

from kofn.core import Plan, Policy, PolicyOptions, ShortHorizonWarning, Subset, Tally, whole
from kofn.core.fields import Fields, part
from kofn.lab.rivals.greedy import Greedy, candidates_of


class ETCG(Policy):
    """Choose one arm after another, each time the arm that adds most; then play the chosen arms.

    >>> policy = ETCG(n_arms=10, k=2, horizon=10**6)
    >>> policy.m, list(policy.plan())[:2]
    (829, [((0,), 829), ((1,), 829)])

    `m` is the number of plays of each candidate; the default is the paper's.
    """

    name = "etcg"
    needs_horizon = True
    needs = frozenset({"fewer"})
    fields = Fields(greedy=part(Greedy, flat=True))

    def __init__(
        self, n_arms: int, k: int, horizon: int, *, m: int | None = None, **options: Unpack[PolicyOptions]
    ) -> None:
        m = None if m is None else whole("m", m)
        super().__init__(n_arms, k, horizon=horizon, m=m, **options)
        self.m = m or printed_m(self.n_arms, self.k, self.horizon)
        if self.exploration >= self.horizon:
            warnings.warn(self._too_short(), ShortHorizonWarning, stacklevel=2)
        self._greedy = Greedy.at_start(self.n_arms)

    @property
    def exploration(self) -> int:
        """Plays until it commits: m for each of N + (N-1) + ... + (N-K+1) candidates."""
        return self.m * candidates_of(self.n_arms, self.k)

    @property
    def committed(self) -> bool:
        """Whether K arms have been chosen."""
        return len(self._greedy.chosen) == self.k

    def best(self) -> Subset:
        """Return the chosen arms, filled up with the candidates that earned most when last played."""
        return self._greedy.best(self.k)

    def _next(self) -> Plan:
        return Plan.one(self.best(), self.horizon) if self.committed else self._greedy.plan(self.k, self.m)

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if not self.committed:
            self._greedy.learn(self.k, tally)

    def _too_short(self) -> str:
        short = f"etcg explores for {self.exploration:,} plays, and the horizon is {self.horizon:,}: it will not commit"
        if self._params["m"] is not None:
            return f"{short}. Give a smaller m, or leave it out"
        return f"{short}. The shortest useful horizon is {shortest_horizon(self.n_arms, self.k):,}; or set m yourself"

    def _loaded(self) -> None:
        self._greedy.check(self.k, self.m)


def printed_m(n_arms: int, k: int, horizon: int) -> int:
    """Return the paper's plays per candidate: ceil((T sqrt(2 log T) / (n + 2 n k sqrt(2 log T)))^(2/3)).

    >>> [printed_m(10, 2, 10**power) for power in (3, 4, 5, 6)]
    [9, 39, 179, 829]
    """
    root = math.sqrt(2 * math.log(horizon))
    exact: float = (horizon * root / (n_arms + 2 * n_arms * k * root)) ** (2 / 3)
    return max(1, math.ceil(exact))


def shortest_horizon(n_arms: int, k: int) -> int:
    """Return the shortest horizon that is longer than its exploration."""
    horizon = 1
    while (explored := printed_m(n_arms, k, horizon) * candidates_of(n_arms, k)) >= horizon:
        horizon = explored + 1
    return horizon
