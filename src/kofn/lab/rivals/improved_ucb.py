"""Improved UCB over all C(N, K) subsets (Auer & Ortner 2010): the competitor in the paper's figures.

Round m plays every remaining subset until it has n_m plays, deletes those that are clearly worse than another, and
halves the gap that it resolves. It assumes no structure, so it keeps all subsets, as arrays.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, Unpack

import numpy as np

from kofn.core import (
    BadInput,
    BadRecord,
    FloatArray,
    IntArray,
    Plan,
    PolicyOptions,
    Subset,
    Tally,
)
from kofn.core.fields import Fields, any_length, integer, numbers, subsets
from kofn.core.formula_checks import check_plays
from kofn.core.subsets import all_subsets
from kofn.policies.constrained import Constrained

Form: TypeAlias = Literal["printed", "figures"]
FACTOR: dict[Form, int] = {"printed": 2, "figures": 1}
"""n_m = FACTOR log(T Delta_m^2) / Delta_m^2: Auer and Ortner's, and the factor that the paper's figures show."""


class ImprovedUCB(Constrained):
    """Treat every subset as an independent arm: play all, delete the worse ones, round after round.

    >>> policy = ImprovedUCB(n_arms=12, k=2, horizon=10**6)
    >>> len(policy.plan()), policy.plan().plays
    (66, 1848)

    `schedule="figures"` plays half as often for the same radius, as the CMAB-SM paper seems to do
    (docs/background/paper.md). Under constraints it plays the allowed subsets only.
    """

    name = "improved-ucb"
    needs_horizon = True
    linear_memory = False
    keeps_subsets = True
    fields = Fields(m=integer(), alive=subsets(), total=numbers(any_length))

    def __init__(
        self, n_arms: int, k: int, horizon: int, *, schedule: Form = "printed", **options: Unpack[PolicyOptions]
    ) -> None:
        super().__init__(n_arms, k, horizon=check_plays(horizon), schedule=schedule, **options)
        if schedule not in tuple(FACTOR):
            raise BadInput(f"schedule must be 'printed' or 'figures', not {schedule!r}")
        every = all_subsets(self.n_arms, self.k)
        self._alive: IntArray = every if self._allowed is None else self._allowed.only(every)  # B_m
        self._total: FloatArray = np.zeros(len(self._alive))
        self._m = 0

    @property
    def rounds(self) -> int:
        """The number of rounds: m = 0 .. floor(log2(T/e)/2)."""
        return max(0, math.floor(math.log2(self.horizon / math.e) / 2) + 1) if self.horizon > math.e else 0

    @property
    def committed(self) -> bool:
        """Whether one subset is left, or all rounds are over."""
        return len(self._alive) == 1 or self._m >= self.rounds

    def best(self) -> Subset:
        """Return the remaining subset with the highest mean."""
        return tuple(self._alive[np.argmax(self._total)].tolist())

    def _plays(self, m: int) -> int:
        """Return n_m, the plays of each remaining subset by the end of round m."""
        return math.ceil(FACTOR[self._params["schedule"]] * self._log(m) * 4**m) if m >= 0 else 0

    def _log(self, m: int) -> float:
        """Return log(T Delta_m^2), with Delta_m = 2^-m."""
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
        factor = FACTOR[self._params["schedule"]]
        radius = math.sqrt(factor * self._log(self._m) / (4 * n))  # Delta_m / 2, or slightly less
        keep = means + radius >= means.max() - radius
        self._alive, self._total = self._alive[keep], self._total[keep]
        self._m += 1

    def _loaded(self) -> None:
        if self._total.shape != (len(self._alive),):
            raise BadRecord(f"total must have {len(self._alive):,} numbers; got shape {self._total.shape}")
        if not ((self._total >= 0) & (self._total <= self._plays(self._m - 1))).all():
            raise BadRecord("a total must be between 0 and the plays of the rounds before")
        if self._allowed is not None and not self._allowed.allows(self._alive).all():
            raise BadRecord("alive must be subsets that obey the constraints")
