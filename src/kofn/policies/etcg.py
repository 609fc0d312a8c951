"""ETCG: greedy explore-then-commit (Nie, Agarwal, Umrawal, Aggarwal and Quinn, UAI 2022), for submodular rewards.

K rounds; each plays the arms chosen so far together with every other arm, m times, and chooses the best. So it plays
fewer than K arms, and a problem must define the reward of fewer.
"""

from __future__ import annotations

import math
import warnings
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadRecord, FloatArray, Plan, Policy, PolicyOptions, ShortHorizonWarning, Subset, Tally, whole
from kofn.core.fields import Fields, arms, integer, numbers
from kofn.policies.batching import MOST_PLAN_CELLS, top_subset
from kofn.policies.registry import register


@register
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
    fields = Fields(chosen=arms(), tried=integer(), total=numbers())

    def __init__(
        self, n_arms: int, k: int, horizon: int, *, m: int | None = None, **options: Unpack[PolicyOptions]
    ) -> None:
        m = None if m is None else whole("m", m)
        super().__init__(n_arms, k, horizon=horizon, m=m, **options)
        self.m = m or printed_m(self.n_arms, self.k, self.horizon)
        if self.exploration >= self.horizon:
            warnings.warn(self._too_short(), ShortHorizonWarning, stacklevel=2)
        self._chosen: list[int] = []  # S, in the order of choice
        self._tried = 0  # number of candidates of this round that have been played
        self._total: FloatArray = np.zeros(self.n_arms)  # of each candidate, in this round or in the round before
        self._begin()

    @property
    def exploration(self) -> int:
        """Plays until it commits: m for each of N + (N-1) + ... + (N-K+1) candidates."""
        return self.m * _candidates(self.n_arms, self.k)

    @property
    def committed(self) -> bool:
        """Whether K arms have been chosen."""
        return len(self._chosen) == self.k

    def best(self) -> Subset:
        """Return the chosen arms, filled up with the candidates that earned most when last played."""
        others = self._total.copy()
        others[self._chosen] = -1
        more = self.k - len(self._chosen)
        return tuple(sorted([*self._chosen, *top_subset(others, more)]))

    def _next(self) -> Plan:
        if self.committed:
            return Plan.one(self.best(), self.horizon)
        candidates = self._candidates()
        rows = np.full((len(candidates), self.k), -1)
        rows[:, : len(self._chosen)] = self._chosen
        rows[:, len(self._chosen)] = candidates
        size = len(self._chosen) + 1
        rows[:, :size] = np.sort(rows[:, :size], axis=1)
        return Plan(rows, np.full(len(rows), self.m))

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if self.committed:
            return
        candidates = self._candidates()
        self._total[candidates] = tally.total
        self._tried += len(candidates)
        if self._tried == self.n_arms - len(self._chosen):
            self._total[self._chosen] = -1
            self._chosen.append(int(np.argmax(self._total)))
            self._total[self._chosen] = 0
            self._tried = 0

    def _candidates(self) -> NDArray[np.int64]:
        """Return the next candidates of this round, up to the size of a plan."""
        free = np.ones(self.n_arms, bool)
        free[self._chosen] = False
        return np.flatnonzero(free)[self._tried :][: max(1, MOST_PLAN_CELLS // self.k)]

    def _too_short(self) -> str:
        short = f"etcg explores for {self.exploration:,} plays, and the horizon is {self.horizon:,}: it will not commit"
        if self._params["m"] is not None:
            return f"{short}. Give a smaller m, or leave it out"
        return f"{short}. The shortest useful horizon is {shortest_horizon(self.n_arms, self.k):,}; or set m yourself"

    def _loaded(self) -> None:
        if self._tried >= self.n_arms - len(self._chosen) or (self.committed and self._tried):
            raise BadRecord(f"tried must be less than the candidates of its round; got {self._tried}")
        if not ((self._total >= 0) & (self._total <= self.m * (1 + 1e-9))).all():
            raise BadRecord(f"a total must be between 0 and {self.m}, the plays of a candidate")


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
    while (explored := printed_m(n_arms, k, horizon) * _candidates(n_arms, k)) >= horizon:
        horizon = explored + 1
    return horizon


def _candidates(n_arms: int, k: int) -> int:
    return n_arms * k - k * (k - 1) // 2
