"""Elimination: arms are accepted and rejected until K are left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kofn.constraints.allowed import Allowed
from kofn.core import BadRecord, FloatArray, Policy, Subset
from kofn.core.fields import Fields, Part, integers, of_policy
from kofn.policies.batching import top_subset

UNDECIDED, ACCEPTED, REJECTED = 0, 1, 2


@dataclass
class Elimination(Part):
    """The status of each arm: undecided, accepted (among the best K) or rejected, with high probability.

    >>> elimination = Elimination.at_start(n_arms=4, k=2)
    >>> elimination.decide(np.array([0.9, 0.5, 0.4, 0.1]), gap=0.3)
    >>> elimination.accepted, elimination.undecided, elimination.places
    (array([0]), array([1, 2]), 1)
    """

    fields = Fields(status=integers(most=REJECTED), k=of_policy())

    status: NDArray[np.int64]
    k: int

    @classmethod
    def at_start(cls, n_arms: int, k: int, allowed: Allowed | None = None) -> Elimination:
        """Return the elimination before the first decision: arms are undecided, unless constraints decide them."""
        status = np.zeros(n_arms, np.int64)
        if allowed is not None:
            status[allowed.always], status[allowed.never] = ACCEPTED, REJECTED
        return cls(status, k)

    @property
    def accepted(self) -> NDArray[np.int64]:
        """The accepted arms."""
        return np.flatnonzero(self.status == ACCEPTED)

    @property
    def undecided(self) -> NDArray[np.int64]:
        """The undecided arms."""
        return np.flatnonzero(self.status == UNDECIDED)

    @property
    def places(self) -> int:
        """The number of arms still to be accepted."""
        return self.k - int(np.count_nonzero(self.status == ACCEPTED))

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
        self.status[undecided[accept]] = ACCEPTED
        self.status[undecided[reject]] = REJECTED

    def _loaded(self, policy: Policy) -> None:
        if not len(self.accepted) <= self.k <= np.count_nonzero(self.status != REJECTED):
            raise BadRecord(f"status must leave {self.k} arms to play: 0 is undecided, 1 accepted, 2 rejected")
