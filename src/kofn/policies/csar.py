"""CSAR: estimate single arms from the plays of a Hadamard matrix, accept and reject (Rejwan & Mansour, ALT 2020).

For rewards that are linear in the arms only (a mean, a sum). Choices are marked (a) to (c) and explained in
docs/reference/policies/csar.md.
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
)
from kofn.policies.elimination import ACCEPTED, Marks
from kofn.policies.hadamard import hadamard, largest_order
from kofn.policies.registry import register

LARGEST_ORDER = 512
"""Of a Hadamard matrix: blocks of more arms would make plans too large."""

MOST_CELLS = 2**22
"""Arms in one plan at the most, unless a single block has more: more blocks than that are played in several plans."""

Arms = NDArray[np.int64]


@register
class CSAR(Policy):
    """Play the two halves of 2K arms in 2K orthogonal ways, solve for the arms, accept and reject; for linear rewards.

    >>> policy = CSAR(n_arms=45, k=4, horizon=10**6)
    >>> policy.plan().subsets[:4].tolist()
    [[0, 1, 2, 3], [4, 5, 6, 7], [0, 2, 4, 6], [1, 3, 5, 7]]
    >>> len(policy.plan()), policy.plan().plays
    (96, 13536)

    Any K works; where there is no Hadamard matrix of order 2K, or fewer than 2K arms, at a higher price.
    """

    name = "csar"
    needs_horizon = True

    def __init__(
        self,
        n_arms: int,
        k: int,
        horizon: int,
        *,
        reward_range: tuple[float, float] = (0.0, 1.0),
        direction: Direction = "maximize",
    ) -> None:
        horizon = whole("horizon", horizon)
        super().__init__(n_arms, k, reward_range=reward_range, direction=direction, horizon=horizon)
        self.horizon = horizon
        self.order = largest_order(min(2 * self.k, 2 * (self.n_arms - self.k), LARGEST_ORDER))  # (a)
        self._marks = Marks.none(self.n_arms, self.k)
        self._theta: FloatArray = np.zeros(self.n_arms)
        self._r = 1
        self._block = 0  # the first of this round that is not estimated yet
        if (plays := self._round_plays()) > horizon:
            warnings.warn(self._too_short(plays), ShortHorizonWarning, stacklevel=2)
        self._begin()

    @property
    def exact(self) -> bool:
        """Whether the matrix has the order 2K, as in the paper."""
        return self.order == 2 * self.k

    def best(self) -> Subset:
        """The accepted arms and, of the undecided, those with the highest estimates."""
        return self._marks.best(self._theta)

    @property
    def committed(self) -> bool:
        """Whether K arms are left, or a single row of the next round would take the whole horizon."""
        return self._marks.decided or self._plays(self._r) >= self.horizon

    @property
    def _size(self) -> int:
        """The arms of a block that no other has, and the rows of the matrix that are played."""
        return self.order if self.exact else self.order - 1

    def _plays(self, r: int) -> int:
        """n_r: plays of each row in round r; (a) more where the estimates are noisier."""
        price = 1.0 if self.exact else 4 * self.k / self.order
        return math.ceil(price * 2 * math.log(self.n_arms * self.horizon) * int(4**r))

    def _round_plays(self) -> int:
        """The plays of the next round."""
        return len(self._blocks()) * 2 * self._size * self._plays(self._r)

    def _blocks(self) -> Arms:
        """The undecided arms in rows of 2K, the last one filled up; (a) with the pivot in front of each."""
        undecided = self._marks.undecided
        size = self._size
        pivot, arms = np.split(undecided, [self.order - size])
        last = np.append(pivot, arms[len(arms) - len(arms) % size :])
        if missing := -len(arms) % size:
            arms = np.append(arms, self._others(last, missing))
        blocks = arms.reshape(-1, size)
        return np.hstack([np.broadcast_to(pivot, (len(blocks), len(pivot))), blocks])

    def _others(self, block: Arms, number: int) -> Arms:
        """The arms to fill up with: (b) those that cost least, accepted ones and then by their last estimates."""
        order = np.lexsort((-self._theta, self._marks.mark != ACCEPTED))[: number + len(block)]
        return order[~np.isin(order, block)][:number]

    def _wanted(self) -> Arms:
        """The blocks of the next plan: those not estimated yet, as many as a plan may hold."""
        most = max(1, MOST_CELLS // (2 * self.order * self.k))
        return self._blocks()[self._block : self._block + most]

    def _next(self) -> Plan:
        if self.committed:
            return Plan.one(self.best(), self.horizon)
        blocks = self._wanted()
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
        """The columns with +1 and those with -1, for each row; for row 0, all of +1, the two halves."""
        h = hadamard(self.order)
        sides = np.stack([np.nonzero(h[1:] == sign)[1].reshape(-1, self.order // 2) for sign in (1, -1)], axis=1)
        return np.concatenate([np.arange(self.order).reshape(1, 2, -1), sides]) if self.exact else sides

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if self.committed:
            return
        blocks = self._wanted()
        means = (tally.total / tally.count).reshape(len(blocks), -1, 2)
        z = means[:, :, 0] - means[:, :, 1]
        h = hadamard(self.order).astype(float)
        if self.exact:
            z[:, 0] = means[:, 0].sum(axis=1)
            theta = z @ h / 2
        else:
            theta = z @ h[1:] * (self.k / self.order)
            theta += self._theta[blocks[:, :1]] - theta[:, :1]  # the pivot keeps its place
        arms = self._marks.undecided[self.order - self._size + self._block * self._size :]
        estimates = theta[:, -self._size :].ravel()[: len(arms)]  # what fills up the last block is left out
        self._theta[arms[: len(estimates)]] = estimates  # (c)
        self._block += len(blocks)
        if self._block == len(self._blocks()):
            self._marks.decide(self._theta, 2 * 2.0**-self._r)
            self._r, self._block = self._r + 1, 0

    def _too_short(self, plays: int) -> str:
        return (
            f"a horizon of {self.horizon:,} plays is too short for CSAR to decide anything about {self.n_arms} arms: "
            f"its first round takes {plays:,}"
        )

    def _state(self) -> dict[str, Any]:
        return {"mark": self._marks.mark.tolist(), "theta": self._theta.tolist(), "r": self._r, "block": self._block}

    def _load(self, state: Mapping[str, Any]) -> None:
        self._marks = Marks.load(state["mark"], self.n_arms, self.k)
        self._theta = finite_numbers("theta", state["theta"])
        if self._theta.shape != (self.n_arms,):
            raise BadRecord(f"its estimates are not one for each of the {self.n_arms} arms")
        self._r, self._block = whole("r", state["r"]), whole("block", state["block"], least=0)
        if self._block and (self.committed or self._block >= len(self._blocks())):
            raise BadRecord(f"its round has no block {self._block}")
