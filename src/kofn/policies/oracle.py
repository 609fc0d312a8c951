"""Oracle: the best subset from the first play on, the ceiling of every comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from kofn.core import BadInput, BadRecord, Direction, Plan, Policy, Subset, Tally, subset_of
from kofn.policies.registry import register

PLAYS = 1_000_000
"""Plays of one plan: any number would do, nothing is learned from them."""


@register
class Oracle(Policy):
    """Plays the subset that it was told is the best.

    >>> policy = Oracle(n_arms=24, k=3, best=(2, 7, 19))
    >>> policy.ask()
    (2, 7, 19)
    """

    name = "oracle"
    needs = frozenset({"best"})

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        best: Iterable[int] | None = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        direction: Direction = "maximize",
    ) -> None:
        super().__init__(n_arms, k, reward_range=reward_range, direction=direction)
        if best is None:
            raise BadInput("oracle must be told the best subset: give it as best=, for instance best=problem.best")
        self._best = subset_of(best, self.n_arms, self.k)
        self._params["best"] = list(self._best)
        self._begin()

    def best(self) -> Subset:
        """What it was told."""
        return self._best

    @property
    def committed(self) -> bool:
        """Always: there is nothing to explore."""
        return True

    def _next(self) -> Plan:
        return Plan(np.array([self._best]), np.array([PLAYS]))

    def _learn(self, plan: Plan, tally: Tally) -> None:
        """Nothing."""

    def _state(self) -> dict[str, Any]:
        return {"best": list(self._best)}

    def _load(self, state: Mapping[str, Any]) -> None:
        if subset_of(state["best"], self.n_arms, self.k) != self._best:
            raise BadRecord(f"it is of an oracle that plays {tuple(state['best'])}, not {self._best}")
