"""Marks: which arms are surely among the best K, which surely are not, for policies that accept and reject."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadRecord, FloatArray, Subset, whole_numbers

UNDECIDED, ACCEPTED, REJECTED = 0, 1, 2


@dataclass
class Marks:
    """A mark per arm.

    >>> marks = Marks.none(n_arms=4, k=2)
    >>> marks.decide(np.array([0.9, 0.5, 0.4, 0.1]), gap=0.3)
    >>> marks.accepted, marks.undecided, marks.places
    (array([0]), array([1, 2]), 1)
    """

    mark: NDArray[np.int64]
    k: int

    @classmethod
    def none(cls, n_arms: int, k: int) -> Marks:
        """Nothing decided."""
        return cls(np.zeros(n_arms, np.int64), k)

    @property
    def accepted(self) -> NDArray[np.int64]:
        """The arms that are surely among the best K."""
        return np.flatnonzero(self.mark == ACCEPTED)

    @property
    def undecided(self) -> NDArray[np.int64]:
        """The arms that may be."""
        return np.flatnonzero(self.mark == UNDECIDED)

    @property
    def places(self) -> int:
        """How many of the K are still open."""
        return self.k - int(np.count_nonzero(self.mark == ACCEPTED))

    @property
    def decided(self) -> bool:
        """Whether there is nothing left to choose."""
        return not self.places or len(self.undecided) <= self.places

    def best(self, estimates: FloatArray) -> Subset:
        """The accepted arms and, of the undecided, those with the highest estimates."""
        undecided = self.undecided
        chosen = undecided[np.argsort(-estimates[undecided], kind="stable")[: self.places]]
        return tuple(sorted([*self.accepted.tolist(), *chosen.tolist()]))

    def decide(self, estimates: FloatArray, gap: float) -> None:
        """Accept and reject, of the undecided, what is more than `gap` away from the other side of the border."""
        undecided, places = self.undecided, self.places
        estimates = estimates[undecided]
        order = np.sort(estimates)[::-1]
        accept, reject = estimates - order[places] > gap, order[places - 1] - estimates > gap
        self.mark[undecided[accept]] = ACCEPTED
        self.mark[undecided[reject]] = REJECTED

    @classmethod
    def load(cls, mark: Any, n_arms: int, k: int) -> Marks:
        """The marks of a state, or BadRecord."""
        marks = cls(whole_numbers("mark", mark), k)
        if marks.mark.shape != (n_arms,):
            raise BadRecord(f"its marks are not one for each of the {n_arms} arms")
        if marks.mark.max() > REJECTED:
            raise BadRecord("a mark is 0 (undecided), 1 (accepted) or 2 (rejected)")
        if not len(marks.accepted) <= k <= np.count_nonzero(marks.mark != REJECTED):
            raise BadRecord(f"its marks do not leave {k} arms to play")
        return marks
