"""DART: accept and reject arms by what random groups earn (Agarwal, Aggarwal, Umrawal, Quinn, AAAI 2021).

A sweep shuffles the undecided arms C, cuts them into blocks of k' = K - |A|, and plays the accepted arms A with each
block once. In a random block the averages of two arms differ by f = (|C| - k') / (|C| - 1) times the effect of
exchanging one for the other, so each arm averages reward / f. Departures from the paper are marked (a) to (d) and
explained in docs/reference/policies/dart.md.
"""

from __future__ import annotations

import math
import warnings
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from kofn.core import FloatArray, Plan, ShortHorizonWarning, Subset, Tally
from kofn.core.fields import Fields, check_totals, integer, integers, numbers, part
from kofn.policies.batching import MOST_PLAN_CELLS, averages
from kofn.policies.constrained import Constrained
from kofn.policies.elimination import UNDECIDED, Elimination
from kofn.policies.randomised import Randomised, SeededOptions

FEWEST_ROWS = 1024
"""Limit on the different subsets of one plan; with more arms than this, the limit is N. So the open plan stays linear
in N."""

PLAN_SHARE = 20
"""A plan takes at most 1 / PLAN_SHARE of the time elapsed. Lower: longer and fewer plans; half of it costs about 4 %
more regret."""

MOST_SHUFFLED = 2**20
"""Most arms shuffled for one plan of few different subsets."""


class DART(Constrained, Randomised):
    """Play random groups; accept arms that are clearly among the best K, reject arms that clearly are not.

    >>> policy = DART(n_arms=10, k=2, horizon=10**6, seed=1)
    >>> policy.plan().plays, round(policy.resolution, 4)
    (5, 0.009)

    It takes constraints that say which arms are always in or never in: these are accepted or rejected from the start.
    """

    name = "dart"
    needs_horizon = True
    takes_constraints = "fixed"
    refuses_constraints = "it compares arms by the averages of random groups, in which all arms must be alike"
    fields = Fields(
        elimination=part(Elimination, flat=True), count=integers(), total=numbers(), r=integer(), t=integer()
    )

    def __init__(self, n_arms: int, k: int, horizon: int, **options: Unpack[SeededOptions]) -> None:
        super().__init__(n_arms, k, horizon=horizon, **options)
        self._elimination = Elimination.at_start(self.n_arms, self.k, self._allowed)  # A, C, and k' = places
        n, k = len(self._elimination.undecided), max(1, self._elimination.places)  # N and K, without fixed arms
        self._log = math.log(max(1, n) * self.horizon)
        self.resolution = math.sqrt(n * self._log / (self.horizon * k))
        if self.resolution > 1:
            warnings.warn(self._too_short(), ShortHorizonWarning, stacklevel=2)
        self._count = np.zeros(self.n_arms, np.int64)
        self._total: FloatArray = np.zeros(self.n_arms)  # of reward / f
        self._r = 0
        self._t = 0

    def best(self) -> Subset:
        """Return the accepted arms and the undecided arms with the highest averages."""
        return self._elimination.best(self._means())

    @property
    def committed(self) -> bool:
        """Whether K arms are left, or all rounds are over."""
        return self._elimination.decided or 2.0**-self._r < self.resolution

    def _means(self) -> FloatArray:
        return averages(self._total, self._count)

    def _round_ends(self, r: int, arms: int, places: int) -> int:
        """Return the last play of round r with `arms` undecided arms: n_r plays per block."""
        return math.floor(int(4**r) * self._log) * -(-arms // places)

    def _next(self) -> Plan:
        if self.committed:
            return Plan.one(self.best(), self.horizon)
        undecided, places = self._elimination.undecided, self._elimination.places
        arms = len(undecided)
        few = arms < 63 and math.comb(arms, places) <= max(self.n_arms, FEWEST_ROWS)  # so few that they repeat
        shuffled = self._rng().permuted(np.tile(np.arange(arms), (self._sweeps(few), 1)), axis=1)
        blocks = _cut(shuffled, places)
        blocks, times = _counted(blocks) if few else (blocks, np.ones(len(blocks), np.int64))
        accepted = np.broadcast_to(self._elimination.accepted, (len(blocks), self.k - places))
        return Plan(np.sort(np.hstack([accepted, undecided[blocks]]), axis=1), times)

    def _sweeps(self, few: bool) -> int:
        """Return the number of sweeps: to the end of the round, or a twentieth of the time elapsed if that is less."""
        arms, places = len(self._elimination.undecided), self._elimination.places
        blocks = -(-arms // places)
        until = min(self._t // PLAN_SHARE, self._round_ends(self._r, arms, places) + 1 - self._t)  # (a)
        most = (MOST_SHUFFLED if few else min(MOST_PLAN_CELLS, max(self.n_arms, FEWEST_ROWS) * places)) // (
            blocks * places
        )
        return max(1, min(-(-until // blocks), most))

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if self.committed:
            return
        arms, places = len(self._elimination.undecided), self._elimination.places
        f = (arms - places) / (arms - 1)
        rows = plan.subsets[self._elimination.status[plan.subsets] == UNDECIDED]  # (b) accepted arms learn nothing
        for sums, observed in ((self._count, tally.count), (self._total, tally.total / f)):
            sums += np.bincount(rows, np.repeat(observed, places), self.n_arms).astype(sums.dtype)
        self._t += plan.plays
        if self._r:  # (c) in round 0 no two arms can be distinguished
            self._elimination.decide(self._means(), 2 * 2.0**-self._r)  # (d) C alone is ranked
        if (places := self._elimination.places) and self._t > self._round_ends(
            self._r, len(self._elimination.undecided), places
        ):
            self._r += 1

    def _too_short(self) -> str:
        return (
            f"a horizon of {self.horizon:,} plays is too short for DART to explore {self.n_arms} arms: it will play an "
            f"arbitrary subset. Its resolution, sqrt(N log(NT) / (TK)), is {self.resolution:.3g} and must be at most 1"
        )

    def _loaded(self) -> None:
        check_totals(self._count, self._total, most=self.k + 1e-6)  # 1/f is at most K


def _cut(shuffled: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the rows in blocks of `size`; a short last block is filled up from the block before."""
    complete = shuffled.shape[1] // size * size
    blocks = shuffled[:, :complete].reshape(-1, size)
    return blocks if complete == shuffled.shape[1] else np.concatenate([blocks, shuffled[:, -size:]])


def _counted(blocks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the different blocks and their frequencies; numbers are below 63, so that a block fits a bit set."""
    _, first, times = np.unique((1 << blocks).sum(axis=1), return_index=True, return_counts=True)
    return blocks[first], times
