"""CSAR: estimate single arms from the plays of a Hadamard matrix, accept and reject (Rejwan & Mansour, ALT 2020).

For rewards that are linear in the arms only (a mean, a sum). Departures from the paper are marked (a) to (c) and
explained in docs/reference/policies/csar.md.
"""

from __future__ import annotations

import math
import warnings
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadRecord, FloatArray, Plan, Policy, PolicyOptions, ShortHorizonWarning, Subset, Tally
from kofn.core.fields import Fields, integer, numbers, part
from kofn.lab.rivals.hadamard import hadamard, largest_order
from kofn.policies.batching import MOST_PLAN_CELLS
from kofn.policies.elimination import ACCEPTED, Elimination

LARGEST_ORDER = 512
"""Largest order of the Hadamard matrix. Larger blocks would make plans too large."""

Arms = NDArray[np.int64]


class CSAR(Policy):
    """Play the two halves of 2K arms in 2K orthogonal ways, solve for the arms, accept and reject; for linear rewards.

    >>> policy = CSAR(n_arms=45, k=4, horizon=10**6)
    >>> policy.plan().subsets[:4].tolist()
    [[0, 1, 2, 3], [4, 5, 6, 7], [0, 2, 4, 6], [1, 3, 5, 7]]
    >>> len(policy.plan()), policy.plan().plays
    (96, 13536)

    Any K works. Without a Hadamard matrix of order 2K, or with fewer than 2K arms, it needs more plays.
    """

    name = "csar"
    needs_horizon = True
    fields = Fields(elimination=part(Elimination, flat=True), theta=numbers(), r=integer(1), block=integer())

    def __init__(self, n_arms: int, k: int, horizon: int, **options: Unpack[PolicyOptions]) -> None:
        super().__init__(n_arms, k, horizon=horizon, **options)
        self.order = largest_order(min(2 * self.k, 2 * (self.n_arms - self.k), LARGEST_ORDER))  # (a)
        self._elimination = Elimination.at_start(self.n_arms, self.k)
        self._theta: FloatArray = np.zeros(self.n_arms)
        self._r = 1
        self._block = 0  # the first block of this round that is not estimated yet
        if (plays := self._round_plays()) > self.horizon:
            warnings.warn(self._too_short(plays), ShortHorizonWarning, stacklevel=2)

    @property
    def exact(self) -> bool:
        """Whether the matrix has the order 2K, as in the paper."""
        return self.order == 2 * self.k

    def best(self) -> Subset:
        """Return the accepted arms and the undecided arms with the highest estimates."""
        return self._elimination.best(self._theta)

    @property
    def committed(self) -> bool:
        """Whether K arms are left, or a single row of the next round would take the whole horizon."""
        return self._elimination.decided or self._plays(self._r) >= self.horizon

    @property
    def _size(self) -> int:
        """The number of arms that are in one block only; also the number of rows of the matrix that are played."""
        return self.order if self.exact else self.order - 1

    def _plays(self, r: int) -> int:
        """Return n_r, the plays of each row in round r; (a) more if the estimates are noisier."""
        price = 1.0 if self.exact else 4 * self.k / self.order
        return math.ceil(price * 2 * math.log(self.n_arms * self.horizon) * int(4**r))

    def _round_plays(self) -> int:
        """Return the number of plays of the next round."""
        return len(self._blocks()) * 2 * self._size * self._plays(self._r)

    def _blocks(self) -> Arms:
        """Return the undecided arms in rows of 2K, the last one filled up; (a) with the pivot in front of each."""
        undecided = self._elimination.undecided
        size = self._size
        pivot, arms = np.split(undecided, [self.order - size])
        last = np.append(pivot, arms[len(arms) - len(arms) % size :])
        if missing := -len(arms) % size:
            arms = np.append(arms, self._others(last, missing))
        blocks = arms.reshape(-1, size)
        return np.hstack([np.broadcast_to(pivot, (len(blocks), len(pivot))), blocks])

    def _others(self, block: Arms, number: int) -> Arms:
        """Return arms to fill up a block: (b) those with the least regret, accepted arms first, then by estimate."""
        order = np.lexsort((-self._theta, self._elimination.status != ACCEPTED))[: number + len(block)]
        return order[~np.isin(order, block)][:number]

    def _planned(self) -> Arms:
        """Return the blocks of the next plan: those not estimated yet, up to the size of a plan."""
        most = max(1, MOST_PLAN_CELLS // (2 * self.order * self.k))
        return self._blocks()[self._block : self._block + most]

    def _next(self) -> Plan:
        if self.committed:
            return Plan.one(self.best(), self.horizon)
        blocks = self._planned()
        halves = blocks[:, self._halves()]  # block, row of the matrix, side, arm
        if self.exact:
            subsets = halves.reshape(-1, self.k)
        else:
            missing = self.k - self.order // 2
            fill = np.array([self._others(block, missing) for block in blocks]).reshape(len(blocks), 1, 1, missing)
            fill = np.broadcast_to(fill, (*halves.shape[:3], missing))
            subsets = np.concatenate([halves, fill], axis=3).reshape(-1, self.k)
        return Plan(np.sort(subsets, axis=1), np.full(len(subsets), self._plays(self._r)))

    def _halves(self) -> Arms:
        """Return the columns with +1 and with -1 of each row; of row 0, which is all +1, the two halves."""
        h = hadamard(self.order)
        sides = np.stack([np.nonzero(h[1:] == sign)[1].reshape(-1, self.order // 2) for sign in (1, -1)], axis=1)
        return np.concatenate([np.arange(self.order).reshape(1, 2, -1), sides]) if self.exact else sides

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if self.committed:
            return
        blocks = self._planned()
        means = (tally.total / tally.count).reshape(len(blocks), -1, 2)
        z = means[:, :, 0] - means[:, :, 1]
        h = hadamard(self.order).astype(float)
        if self.exact:
            z[:, 0] = means[:, 0].sum(axis=1)
            theta = z @ h / 2
        else:
            theta = z @ h[1:] * (self.k / self.order)
            theta += self._theta[blocks[:, :1]] - theta[:, :1]  # the pivot keeps its estimate
        arms = self._elimination.undecided[self.order - self._size + self._block * self._size :]
        estimates = theta[:, -self._size :].ravel()[: len(arms)]  # without the arms that fill up the last block
        self._theta[arms[: len(estimates)]] = estimates  # (c)
        self._block += len(blocks)
        if self._block == len(self._blocks()):
            self._elimination.decide(self._theta, 2 * 2.0**-self._r)
            self._r, self._block = self._r + 1, 0

    def _too_short(self, plays: int) -> str:
        return (
            f"a horizon of {self.horizon:,} plays is too short for CSAR to decide anything about {self.n_arms} arms: "
            f"its first round takes {plays:,}"
        )

    def _loaded(self) -> None:
        if self._block and (self.committed or self._block >= len(self._blocks())):
            raise BadRecord(
                f"block must be less than {len(self._blocks())}, the blocks of its round; got {self._block}"
            )
