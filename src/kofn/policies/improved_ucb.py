"""Improved UCB over all C(N, K) subsets (Auer & Ortner 2010): the rival of the paper's figures.

Round m plays every remaining subset until it has n_m plays, deletes those that are surely worse than another, and
halves the gap it looks for. No structure is assumed, so all subsets are kept, as arrays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from kofn.core import (
    BadInput,
    BadRecord,
    Direction,
    FloatArray,
    IntArray,
    Plan,
    Policy,
    Subset,
    Tally,
    finite_numbers,
    whole,
    whole_numbers,
)
from kofn.policies.registry import register
from kofn.subsets import all_subsets
from kofn.theory.checks import check_plays

Form: TypeAlias = Literal["printed", "figures"]
FACTOR: dict[Form, int] = {"printed": 2, "figures": 1}
"""n_m = FACTOR log(T Delta_m^2) / Delta_m^2: Auer and Ortner's, and the one that the paper's figures show."""


@register
class ImprovedUCB(Policy):
    """Every subset is an arm of its own: play all, delete the worse ones, round after round.

    >>> policy = ImprovedUCB(n_arms=12, k=2, horizon=10**6)
    >>> len(policy.plan()), policy.plan().plays
    (66, 1848)

    `schedule="figures"` plays half as often for the same radius, as the CMAB-SM paper seems to do
    (docs/background/paper.md).
    """

    name = "improved-ucb"
    needs_horizon = True
    linear_memory = False
    keeps_subsets = True

    def __init__(
        self,
        n_arms: int,
        k: int,
        horizon: int,
        *,
        schedule: Form = "printed",
        reward_range: tuple[float, float] = (0.0, 1.0),
        direction: Direction = "maximize",
    ) -> None:
        horizon = check_plays(horizon)
        super().__init__(n_arms, k, reward_range=reward_range, direction=direction, horizon=horizon, schedule=schedule)
        if schedule not in tuple(FACTOR):
            raise BadInput(f"a schedule is 'printed' or 'figures', not {schedule!r}")
        self.horizon = horizon
        self._alive: IntArray = all_subsets(self.n_arms, self.k)  # B_m
        self._total: FloatArray = np.zeros(len(self._alive))
        self._m = 0
        self._begin()

    @property
    def rounds(self) -> int:
        """The number of rounds: m = 0 .. floor(log2(T/e)/2)."""
        return max(0, math.floor(math.log2(self.horizon / math.e) / 2) + 1) if self.horizon > math.e else 0

    @property
    def committed(self) -> bool:
        """Whether one subset is left, or no round."""
        return len(self._alive) == 1 or self._m >= self.rounds

    def best(self) -> Subset:
        """The remaining subset with the highest mean."""
        return tuple(self._alive[np.argmax(self._total)].tolist())

    def _plays(self, m: int) -> int:
        """n_m: plays of each remaining subset by the end of round m."""
        return math.ceil(FACTOR[self._params["schedule"]] * self._log(m) * 4**m) if m >= 0 else 0

    def _log(self, m: int) -> float:
        """log(T Delta_m^2), with Delta_m = 2^-m."""
        return math.log(self.horizon / 4**m)

    def _next(self) -> Plan:
        if self.committed:
            return Plan.one(self.best(), self.horizon)
        return Plan(self._alive, np.full(len(self._alive), self._plays(self._m) - self._plays(self._m - 1)))

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if self.committed:
            return
        self._total = self._total + tally.total
        n = self._plays(self._m)
        means = self._total / n
        radius = math.sqrt(
            FACTOR[self._params["schedule"]] * self._log(self._m) / (4 * n)
        )  # Delta_m / 2, or a bit less
        keep = means + radius >= means.max() - radius
        self._alive, self._total = self._alive[keep], self._total[keep]
        self._m += 1

    def _state(self) -> dict[str, Any]:
        return {"m": self._m, "alive": self._alive.tolist(), "total": self._total.tolist()}

    def _load(self, state: Mapping[str, Any]) -> None:
        self._m = whole("m", state["m"], least=0)
        alive = whole_numbers("alive", state["alive"])
        total = finite_numbers("total", state["total"])
        if alive.shape != (len(total), self.k) or not len(total):
            raise BadRecord(f"its subsets are not rows of {self.k} arms, a total for each")
        if alive.max() >= self.n_arms or (np.diff(alive, axis=1) <= 0).any():
            raise BadRecord(f"its subsets are not of different arms from 0 to {self.n_arms - 1}")
        if len(np.unique(alive, axis=0)) != len(alive):
            raise BadRecord("it has a subset twice")
        if not ((total >= 0) & (total <= self._plays(self._m - 1))).all():
            raise BadRecord("its totals do not fit its rounds")
        self._alive, self._total = alive.astype(self._alive.dtype), total
