"""ETCG: greedy explore-then-commit (Nie, Agarwal, Umrawal, Aggarwal and Quinn, UAI 2022), for submodular rewards.

K rounds; each plays what has been chosen together with every arm that has not, m times, and chooses the best. So it
plays fewer than K arms, and a problem must say what these earn.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kofn.core import (
    BadRecord,
    Direction,
    FloatArray,
    Plan,
    Policy,
    ShortHorizonWarning,
    Subset,
    Tally,
    finite_numbers,
    whole,
    whole_numbers,
)
from kofn.policies.batching import top_subset
from kofn.policies.registry import register

MOST_CELLS = 2**22
"""Arms in one plan at the most: a round that has more is played in several plans."""


@register
class ETCG(Policy):
    """Choose one arm after another, each time the one that adds most; then play what was chosen.

    >>> policy = ETCG(n_arms=10, k=2, horizon=10**6)
    >>> policy.m, list(policy.plan())[:2]
    (829, [((0,), 829), ((1,), 829)])

    `m` is how often each candidate is played; by default the paper's.
    """

    name = "etcg"
    needs_horizon = True
    needs = frozenset({"fewer"})

    def __init__(
        self,
        n_arms: int,
        k: int,
        horizon: int,
        *,
        m: int | None = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        direction: Direction = "maximize",
    ) -> None:
        horizon = whole("horizon", horizon)
        m = None if m is None else whole("m", m)
        super().__init__(n_arms, k, reward_range=reward_range, direction=direction, horizon=horizon, m=m)
        self.horizon = horizon
        self.m = m or printed_m(self.n_arms, self.k, horizon)
        if self.exploration >= horizon:
            warnings.warn(self._too_short(), ShortHorizonWarning, stacklevel=2)
        self._chosen: list[int] = []  # S, in the order of choice
        self._tried = 0  # candidates of this round that have been played
        self._total: FloatArray = np.zeros(self.n_arms)  # of each candidate: of this round, or else of the last one
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
        """The arms chosen, filled up with those whose candidates earned most when last tried."""
        others = self._total.copy()
        others[self._chosen] = -1
        more = self.k - len(self._chosen)
        return tuple(sorted([*self._chosen, *(top_subset(others, more) if more else ())]))

    def _next(self) -> Plan:
        if self.committed:
            return Plan.one(self.best(), self.horizon)
        arms = self._candidates()
        rows = np.full((len(arms), self.k), -1)
        rows[:, : len(self._chosen)] = self._chosen
        rows[:, len(self._chosen)] = arms
        size = len(self._chosen) + 1
        rows[:, :size] = np.sort(rows[:, :size], axis=1)
        return Plan(rows, np.full(len(rows), self.m))

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if self.committed:
            return
        arms = self._candidates()
        self._total[arms] = tally.total
        self._tried += len(arms)
        if self._tried == self.n_arms - len(self._chosen):
            self._total[self._chosen] = -1
            self._chosen.append(int(np.argmax(self._total)))
            self._total[self._chosen] = 0
            self._tried = 0

    def _candidates(self) -> NDArray[np.int64]:
        """The arms to be tried next in this round, as many as a plan may hold."""
        free = np.ones(self.n_arms, bool)
        free[self._chosen] = False
        return np.flatnonzero(free)[self._tried :][: max(1, MOST_CELLS // self.k)]

    def _too_short(self) -> str:
        says = f"etcg explores for {self.exploration:,} plays, and the horizon is {self.horizon:,}: it will not commit"
        if self._params["m"] is not None:
            return f"{says}. Give a smaller m, or leave it out"
        return f"{says}. The shortest useful horizon is {shortest_horizon(self.n_arms, self.k):,}; or set m yourself"

    def _state(self) -> dict[str, Any]:
        return {"chosen": list(self._chosen), "tried": self._tried, "total": self._total.tolist()}

    def _load(self, state: Mapping[str, Any]) -> None:
        chosen = whole_numbers("chosen", state["chosen"])
        if chosen.ndim != 1 or chosen.size > self.k or np.unique(chosen).size != chosen.size:
            raise BadRecord(f"its chosen arms are not up to {self.k} different ones")
        if chosen.size and chosen.max() >= self.n_arms:
            raise BadRecord(f"its chosen arms are not from 0 to {self.n_arms - 1}")
        self._chosen = chosen.tolist()
        self._tried = whole("tried", state["tried"], least=0)
        if self._tried >= self.n_arms - len(self._chosen) or (self.committed and self._tried):
            raise BadRecord("its round is already over")
        self._total = finite_numbers("total", state["total"])
        most = self.m * (1 + 1e-9)
        if self._total.shape != (self.n_arms,) or not ((self._total >= 0) & (self._total <= most)).all():
            raise BadRecord(f"it does not have a total from 0 to {self.m} for each of the {self.n_arms} arms")


def printed_m(n_arms: int, k: int, horizon: int) -> int:
    """The paper's plays per candidate: ceil((T sqrt(2 log T) / (n + 2 n k sqrt(2 log T)))^(2/3)).

    >>> [printed_m(10, 2, 10**power) for power in (3, 4, 5, 6)]
    [9, 39, 179, 829]
    """
    root = math.sqrt(2 * math.log(horizon))
    exact: float = (horizon * root / (n_arms + 2 * n_arms * k * root)) ** (2 / 3)
    return max(1, math.ceil(exact))


def shortest_horizon(n_arms: int, k: int) -> int:
    """The shortest horizon that is longer than its exploration."""
    horizon = 1
    while (explored := printed_m(n_arms, k, horizon) * _candidates(n_arms, k)) >= horizon:
        horizon = explored + 1
    return horizon


def _candidates(n_arms: int, k: int) -> int:
    return n_arms * k - k * (k - 1) // 2
