"""Slots: find the best arm for one place at a time, the others held fixed.

The CMAB-SM paper (Agarwal, Aggarwal, Quinn, Umrawal, ALT 2021) lists this among "other design options" and argues that
it takes K times as long. There is no pseudo-code; rounds, n_r and lambda are taken from CMAB-SM.
"""

from __future__ import annotations

import warnings
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from kofn.core import (
    BadRecord,
    FloatArray,
    Plan,
    ShortHorizonWarning,
    Subset,
    Tally,
    subset_of,
)
from kofn.core.fields import Fields, arms, check_totals, flags, integer, integers, numbers
from kofn.policies.batching import MOST_PLAN_CELLS, averages
from kofn.policies.randomised import shuffled_arms
from kofn.policies.schedule import Scheduled, ScheduledOptions


class Slots(Scheduled):
    """Hold K-1 arms fixed, find the best arm for the place that is left, keep it; once for each of the K places.

    >>> policy = Slots(n_arms=5, k=3, horizon=10**6)
    >>> policy.plan().subsets.tolist()
    [[0, 1, 2], [1, 2, 3], [1, 2, 4]]

    The first subset is arbitrary: the first K arms, or K drawn with `seed`. `resolution` and `schedule` work as
    in CMABSM.
    """

    name = "slots"
    fields = Fields(places=arms(), j=integer(), r=integer(1), alive=flags(), count=integers(), total=numbers())

    def __init__(self, n_arms: int, k: int, horizon: int, **options: Unpack[ScheduledOptions]) -> None:
        super().__init__(n_arms, k, horizon, **options)
        if not self.schedule.rounds:
            warnings.warn(self.schedule.no_round(self.name), ShortHorizonWarning, stacklevel=2)
        self._places: list[int] = shuffled_arms(self.n_arms, self._params["seed"])[: self.k].tolist()
        self._open_place(0)
        self._advance()

    def best(self) -> Subset:
        """Return the arms in their places; in the open place, the candidate with the highest mean."""
        places = self._places
        if not self.committed and self._count.any():
            places = [*places[: self._j], self._leader(), *places[self._j + 1 :]]
        return tuple(sorted(places))

    @property
    def committed(self) -> bool:
        """Whether every place has its arm."""
        return self._j == self.k

    def _open_place(self, j: int) -> None:
        """Open place j: every arm that has no other place is a candidate."""
        self._j, self._r = j, 1
        self._alive = np.ones(self.n_arms, bool)
        self._alive[self._fixed()] = False
        self._count = np.zeros(self.n_arms, np.int64)
        self._total: FloatArray = np.zeros(self.n_arms)

    def _fixed(self) -> list[int]:
        return self._places[: self._j] + self._places[self._j + 1 :]

    def _advance(self) -> None:
        """Continue to the next plays, through the rounds of a place and from place to place."""
        s = self.schedule
        while not self.committed:
            while self._r <= s.rounds and np.count_nonzero(self._alive) > 1:
                if self._missing().any():
                    return
                means = self._means()
                self._alive &= means >= means[self._alive].max() - 2 * s.radius[self._r]
                self._r += 1
            self._places[self._j] = self._leader()
            self._open_place(self._j + 1)

    def _missing(self) -> NDArray[np.bool_]:
        """Return which candidates have not been played n_r times."""
        return self._alive & (self._count < self.schedule.plays[self._r])

    def _means(self) -> FloatArray:
        return averages(self._total, self._count)

    def _leader(self) -> int:
        """Return the candidate with the highest mean; of equal ones, the lowest."""
        return int(np.argmax(np.where(self._alive, self._means(), -1.0)))

    def _next(self) -> Plan:
        if self.committed:
            return Plan.one(self.best(), self.horizon)
        candidates = np.flatnonzero(self._missing())[: max(1, MOST_PLAN_CELLS // self.k)]
        fixed = np.broadcast_to(np.array(self._fixed(), np.int64), (len(candidates), self.k - 1))
        subsets = np.sort(np.hstack([fixed, candidates[:, None]]), axis=1)
        return Plan(subsets, self.schedule.plays[self._r] - self._count[candidates])

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if self.committed:
            return
        candidates = np.flatnonzero(self._missing())[: len(plan)]
        self._count[candidates] += tally.count
        self._total[candidates] += tally.total
        self._advance()

    def _loaded(self) -> None:
        subset_of(self._places, self.n_arms, self.k)
        if self._j > self.k:
            raise BadRecord(f"j must be at most {self.k}, the number of places; got {self._j}")
        if self._alive[self._fixed()].any() or not (self._alive.any() or self.committed):
            raise BadRecord("alive must mark candidates that have no place yet, at least one")
        check_totals(self._count, self._total)
        self._advance()
