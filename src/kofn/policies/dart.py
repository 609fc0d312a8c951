"""DART: accept and reject arms by what random groups earn (Agarwal, Aggarwal, Umrawal, Quinn, AAAI 2021).

A sweep shuffles the undecided arms C, cuts them into blocks of k' = K - |A|, and plays the accepted arms A with each
block once. In a random block the averages of two arms differ by f = (|C| - k') / (|C| - 1) times the effect of
exchanging one for the other, so each arm averages reward / f. Departures are marked (a) to (d) and explained in
docs/reference/policies/dart.md.
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
    Seed,
    ShortHorizonWarning,
    Subset,
    Tally,
    finite_numbers,
    whole,
    whole_numbers,
)
from kofn.policies.elimination import UNDECIDED, Marks
from kofn.policies.randomised import Randomised
from kofn.policies.registry import register

FEWEST_ROWS = 1024
"""Different subsets in one plan, at the most, unless there are more arms: what is told of a plan stays linear in N."""

PART = 20
"""A plan takes this part of the time elapsed at the most; half as many plans would cost some 4 % more regret."""

MOST_CELLS = 2**20
"""Arms shuffled for one plan of few different subsets, at the most."""

LARGEST = 2**22
"""Arms of one plan of many different subsets, at the most, unless one sweep has more: memory stays linear in N."""


@register
class DART(Randomised):
    """Accept the arms that are surely among the best K, reject those that surely are not, by plays of random groups.

    >>> policy = DART(n_arms=10, k=2, horizon=10**6, seed=1)
    >>> policy.plan().plays, round(policy.resolution, 4)
    (5, 0.009)

    Without a seed, a new one is drawn.
    """

    name = "dart"
    needs_horizon = True

    def __init__(
        self,
        n_arms: int,
        k: int,
        horizon: int,
        *,
        seed: Seed = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        direction: Direction = "maximize",
    ) -> None:
        horizon = whole("horizon", horizon)
        super().__init__(n_arms, k, reward_range=reward_range, direction=direction, horizon=horizon, seed=seed)
        self.horizon = horizon
        self._log = math.log(self.n_arms * horizon)
        self.resolution = math.sqrt(self.n_arms * self._log / (horizon * self.k))
        if self.resolution > 1:
            warnings.warn(self._too_short(), ShortHorizonWarning, stacklevel=2)
        self._marks = Marks.none(self.n_arms, self.k)  # A and C of the paper, and k' = marks.places
        self._count = np.zeros(self.n_arms, np.int64)
        self._total: FloatArray = np.zeros(self.n_arms)  # of reward / f
        self._r = 0
        self._t = 0
        self._begin()

    def best(self) -> Subset:
        """The accepted arms and, of the undecided, those with the highest averages."""
        return self._marks.best(self._means())

    @property
    def committed(self) -> bool:
        """Whether K arms are left, or no round."""
        return self._marks.decided or 2.0**-self._r < self.resolution

    def _means(self) -> FloatArray:
        return self._total / np.maximum(self._count, 1)

    def _round_ends(self, r: int, arms: int, places: int) -> int:
        """The play after which round r is over, if so many arms are undecided: n_r a block."""
        return math.floor(int(4**r) * self._log) * -(-arms // places)

    def _next(self) -> Plan:
        if self.committed:
            return Plan.one(self.best(), self.horizon)
        undecided, places = self._marks.undecided, self._marks.places
        arms = len(undecided)
        few = arms < 63 and math.comb(arms, places) <= max(self.n_arms, FEWEST_ROWS)  # so few that they come again
        shuffled = self._rng().permuted(np.tile(np.arange(arms), (self._sweeps(few), 1)), axis=1)
        blocks = _cut(shuffled, places)
        blocks, times = _counted(blocks) if few else (blocks, np.ones(len(blocks), np.int64))
        accepted = np.broadcast_to(self._marks.accepted, (len(blocks), self.k - places))
        return Plan(np.sort(np.hstack([accepted, undecided[blocks]]), axis=1), times)

    def _sweeps(self, few: bool) -> int:
        """How many sweeps to plan: to the end of the round, or a twentieth of the time elapsed if that is less."""
        arms, places = len(self._marks.undecided), self._marks.places
        blocks = -(-arms // places)
        until = min(self._t // PART, self._round_ends(self._r, arms, places) + 1 - self._t)  # (a)
        most = (MOST_CELLS if few else min(LARGEST, max(self.n_arms, FEWEST_ROWS) * places)) // (blocks * places)
        return max(1, min(-(-until // blocks), most))

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if self.committed:
            return
        arms, places = len(self._marks.undecided), self._marks.places
        f = (arms - places) / (arms - 1)
        rows = plan.subsets[self._marks.mark[plan.subsets] == UNDECIDED].reshape(
            -1, places
        )  # (b) accepted arms learn nothing
        for sums, told in ((self._count, tally.count), (self._total, tally.total / f)):
            sums += np.bincount(rows.ravel(), np.repeat(told, places), self.n_arms).astype(sums.dtype)
        self._t += plan.plays
        if self._r:  # (c) in round 0 nothing can be told apart
            self._marks.decide(self._means(), 2 * 2.0**-self._r)  # (d) C alone is ranked
        if (places := self._marks.places) and self._t > self._round_ends(self._r, len(self._marks.undecided), places):
            self._r += 1

    def _too_short(self) -> str:
        return (
            f"a horizon of {self.horizon:,} plays is too short for DART to explore {self.n_arms} arms: it will play an "
            f"arbitrary subset. Its resolution, sqrt(N log(NT) / (TK)), is {self.resolution:.3g} and must be at most 1"
        )

    def _state(self) -> dict[str, Any]:
        return {
            "mark": self._marks.mark.tolist(),
            "count": self._count.tolist(),
            "total": self._total.tolist(),
            "r": self._r,
            "t": self._t,
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        marks = Marks.load(state["mark"], self.n_arms, self.k)
        count, total = whole_numbers("count", state["count"]), finite_numbers("total", state["total"])
        if not count.shape == total.shape == (self.n_arms,):
            raise BadRecord(f"its counts and totals are not one for each of the {self.n_arms} arms")
        if not ((total >= 0) & (total <= (self.k + 1e-6) * count)).all():  # 1/f is at most K
            raise BadRecord("its totals do not fit its counts")
        self._marks, self._count, self._total = marks, count, total
        self._r, self._t = whole("r", state["r"], least=0), whole("t", state["t"], least=0)


def _cut(shuffled: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Each row in blocks of `size`; a short last block is filled from the one before."""
    whole_ones = shuffled.shape[1] // size * size
    blocks = shuffled[:, :whole_ones].reshape(-1, size)
    return blocks if whole_ones == shuffled.shape[1] else np.concatenate([blocks, shuffled[:, -size:]])


def _counted(blocks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The different blocks, and how often each comes; its numbers are below 63, so that a block is a set of bits."""
    _, first, times = np.unique((1 << blocks).sum(axis=1), return_index=True, return_counts=True)
    return blocks[first], times
