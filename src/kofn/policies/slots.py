"""Slots: find the best arm for one place at a time, the others held fixed.

The CMAB-SM paper (Agarwal, Aggarwal, Quinn, Umrawal, ALT 2021) names this among "other design options" and argues that
it takes K times as long. It has no pseudo-code; rounds, n_r and lambda are those of CMAB-SM.
"""

from __future__ import annotations

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
    Seed,
    ShortHorizonWarning,
    Subset,
    Tally,
    finite_numbers,
    generator,
    seed_number,
    subset_of,
    whole,
    whole_numbers,
)
from kofn.policies.registry import register
from kofn.theory.schedule import Form, Schedule

MOST_CELLS = 2**22
"""Arms in one plan at the most: more candidates than that are played in several plans."""


@register
class Slots(Policy):
    """Hold K-1 arms fixed, find the best arm for the place that is left, keep it; once for each of the K places.

    >>> policy = Slots(n_arms=5, k=3, horizon=10**6)
    >>> policy.plan().subsets.tolist()
    [[0, 1, 2], [1, 2, 3], [1, 2, 4]]

    The first subset is arbitrary: the first K arms, or K drawn with `seed`. `resolution` and `schedule` are those of
    CMABSM.
    """

    name = "slots"
    needs_horizon = True

    def __init__(
        self,
        n_arms: int,
        k: int,
        horizon: int,
        *,
        resolution: float | None = None,
        schedule: Form = "printed",
        seed: Seed = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        direction: Direction = "maximize",
    ) -> None:
        super().__init__(
            n_arms,
            k,
            reward_range=reward_range,
            direction=direction,
            horizon=whole("horizon", horizon),
            resolution=resolution,
            schedule=schedule,
            seed=None if seed is None else seed_number(seed),
        )
        self.horizon: int = self._params["horizon"]
        self.schedule = Schedule(self.n_arms, self.k, self.horizon, resolution, schedule)
        if not self.schedule.rounds:
            warnings.warn(self.schedule.no_round(self.name), ShortHorizonWarning, stacklevel=2)
        seed = self._params["seed"]
        arms = np.arange(self.n_arms) if seed is None else generator(seed).permutation(self.n_arms)
        self._places: list[int] = arms[: self.k].tolist()
        self._open(0)
        self._advance()
        self._begin()

    def best(self) -> Subset:
        """The arms in their places; in the one that is open, the candidate with the highest mean so far."""
        places = self._places
        if not self.committed and self._count.any():
            places = [*places[: self._j], self._leader(), *places[self._j + 1 :]]
        return tuple(sorted(places))

    @property
    def committed(self) -> bool:
        """Whether every place has its arm."""
        return self._j == self.k

    def _open(self, j: int) -> None:
        """Make every arm that has no other place a candidate for the j-th."""
        self._j, self._r = j, 1
        self._alive = np.ones(self.n_arms, bool)
        self._alive[self._fixed()] = False
        self._count = np.zeros(self.n_arms, np.int64)
        self._total: FloatArray = np.zeros(self.n_arms)

    def _fixed(self) -> list[int]:
        return self._places[: self._j] + self._places[self._j + 1 :]

    def _advance(self) -> None:
        """Walk on to the next plays that are wanted, through the rounds of a place and from place to place."""
        s = self.schedule
        while not self.committed:
            while self._r <= s.rounds and np.count_nonzero(self._alive) > 1:
                if self._missing().any():
                    return
                means = self._means()
                self._alive &= means >= means[self._alive].max() - 2 * s.radius[self._r]
                self._r += 1
            self._places[self._j] = self._leader()
            self._open(self._j + 1)

    def _missing(self) -> NDArray[np.bool_]:
        """The candidates that have not been played n_r times."""
        return self._alive & (self._count < self.schedule.plays[self._r])

    def _means(self) -> FloatArray:
        return self._total / np.maximum(self._count, 1)

    def _leader(self) -> int:
        """The candidate with the highest mean; of equal ones the first."""
        return int(np.argmax(np.where(self._alive, self._means(), -1.0)))

    def _next(self) -> Plan:
        if self.committed:
            return Plan.one(self.best(), self.horizon)
        arms = np.flatnonzero(self._missing())[: max(1, MOST_CELLS // self.k)]
        fixed = np.broadcast_to(np.array(self._fixed(), np.int64), (len(arms), self.k - 1))
        subsets = np.sort(np.hstack([fixed, arms[:, None]]), axis=1)
        return Plan(subsets, self.schedule.plays[self._r] - self._count[arms])

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if self.committed:
            return
        arms = np.flatnonzero(self._missing())[: len(plan)]
        self._count[arms] += tally.count
        self._total[arms] += tally.total
        self._advance()

    def _state(self) -> dict[str, Any]:
        return {
            "places": list(self._places),
            "j": self._j,
            "r": self._r,
            "alive": self._alive.astype(int).tolist(),
            "count": self._count.tolist(),
            "total": self._total.tolist(),
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        places = whole_numbers("places", state["places"]).tolist()
        subset_of(places, self.n_arms, self.k)
        j, r = whole("j", state["j"], least=0), whole("r", state["r"])
        alive = whole_numbers("alive", state["alive"])
        count, total = whole_numbers("count", state["count"]), finite_numbers("total", state["total"])
        if not alive.shape == count.shape == total.shape == (self.n_arms,) or alive.max() > 1:
            raise BadRecord(f"its marks, counts and totals are not one for each of the {self.n_arms} arms")
        self._places = places
        if j > self.k:
            raise BadRecord(f"it has no place {j} of {self.k}")
        self._j, self._r = j, r
        if alive[self._fixed()].any() or not (alive.any() or self.committed):
            raise BadRecord("its candidates have a place already, or there are none")
        if not ((total >= 0) & (total <= count)).all():
            raise BadRecord("its totals do not fit its counts")
        self._alive, self._count, self._total = alive == 1, count, total
        self._advance()
