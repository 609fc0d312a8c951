"""Marks for policies that accept and reject arms, until K are left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadRecord, FloatArray, Subset, whole_numbers
from kofn.policies.batching import top_subset

UNDECIDED, ACCEPTED, REJECTED = 0, 1, 2


@dataclass
class Marks:
    """A mark per arm: undecided, accepted (clearly among the best K) or rejected (clearly not).

    >>> marks = Marks.none(n_arms=4, k=2)
    >>> marks.decide(np.array([0.9, 0.5, 0.4, 0.1]), gap=0.3)
    >>> marks.accepted, marks.undecided, marks.places
    (array([0]), array([1, 2]), 1)
    """

    mark: NDArray[np.int64]
    k: int

    @classmethod
    def none(cls, n_arms: int, k: int) -> Marks:
        """Return marks of undecided arms."""
        return cls(np.zeros(n_arms, np.int64), k)

    @property
    def accepted(self) -> NDArray[np.int64]:
        """The accepted arms."""
        return np.flatnonzero(self.mark == ACCEPTED)

    @property
    def undecided(self) -> NDArray[np.int64]:
        """The undecided arms."""
        return np.flatnonzero(self.mark == UNDECIDED)

    @property
    def places(self) -> int:
        """The number of arms still to be accepted."""
        return self.k - int(np.count_nonzero(self.mark == ACCEPTED))

    @property
    def decided(self) -> bool:
        """Whether the K arms are determined."""
        return not self.places or len(self.undecided) <= self.places

    def best(self, estimates: FloatArray) -> Subset:
        """Return the accepted arms and the undecided arms with the highest estimates; of equal ones, the lowest."""
        undecided = self.undecided
        chosen = undecided[list(top_subset(estimates[undecided], min(self.places, len(undecided))))]
        return tuple(sorted([*self.accepted.tolist(), *chosen.tolist()]))

    def decide(self, estimates: FloatArray, gap: float) -> None:
        """Accept and reject undecided arms whose estimates are more than `gap` beyond the boundary of the top K."""
        undecided, places = self.undecided, self.places
        estimates = estimates[undecided]
        order = np.sort(estimates)[::-1]
        accept, reject = estimates - order[places] > gap, order[places - 1] - estimates > gap
        self.mark[undecided[accept]] = ACCEPTED
        self.mark[undecided[reject]] = REJECTED

    def state(self) -> list[int]:
        """Return the marks as plain numbers."""
        plain: list[int] = self.mark.tolist()
        return plain

    @classmethod
    def load(cls, state: Any, n_arms: int, k: int) -> Marks:
        """Return the marks that `state` describes, or raise BadRecord."""
        marks = cls(whole_numbers("marks", state), k)
        if marks.mark.shape != (n_arms,):
            raise BadRecord(f"marks must have {n_arms:,} numbers; got shape {marks.mark.shape}")
        if marks.mark.max() > REJECTED:
            raise BadRecord("a mark must be 0 (undecided), 1 (accepted) or 2 (rejected)")
        if not len(marks.accepted) <= k <= np.count_nonzero(marks.mark != REJECTED):
            raise BadRecord(f"marks must leave {k} arms to play")
        return marks
