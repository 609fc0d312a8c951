"""Greedy rounds for submodular rewards: each plays the chosen arms with every other arm, and chooses the best.

Rounds before the last play fewer than K arms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadRecord, FloatArray, Plan, Subset, Tally
from kofn.core.fields import Fields, Part, arms, integer, numbers
from kofn.policies.batching import MOST_PLAN_CELLS, top_subset


@dataclass
class Greedy(Part):
    """The chosen arms, and the candidates of the open round."""

    fields = Fields(chosen=arms(), tried=integer(), total=numbers())

    chosen: list[int]  # S, in the order of choice
    tried: int  # number of candidates of this round that have been played
    total: FloatArray  # of each candidate, in this round or in the round before

    @classmethod
    def at_start(cls, n_arms: int) -> Greedy:
        """Return the state before the first round."""
        return cls([], 0, np.zeros(n_arms))

    @property
    def free(self) -> NDArray[np.int64]:
        """The arms that are not chosen."""
        free = np.ones(len(self.total), bool)
        free[self.chosen] = False
        return np.flatnonzero(free)

    def best(self, k: int) -> Subset:
        """Return the chosen arms, filled up with the candidates that earned most when last played."""
        others = self.total.copy()
        others[self.chosen] = -1
        return tuple(sorted([*self.chosen, *top_subset(others, k - len(self.chosen))]))

    def plan(self, k: int, m: int) -> Plan:
        """Return m plays of the chosen arms with each of the next candidates; rows have k places."""
        candidates = self._candidates(k)
        size = len(self.chosen) + 1
        rows = np.full((len(candidates), k), -1)
        rows[:, : size - 1] = self.chosen
        rows[:, size - 1] = candidates
        rows[:, :size] = np.sort(rows[:, :size], axis=1)
        return Plan(rows, np.full(len(rows), m))

    def learn(self, k: int, tally: Tally) -> None:
        """Learn from the plan; at the end of the round, choose the candidate whose set earned most."""
        candidates = self._candidates(k)
        self.total[candidates] = tally.total
        self.tried += len(candidates)
        if self.tried == len(self.total) - len(self.chosen):
            self.total[self.chosen] = -1
            self.chosen.append(int(np.argmax(self.total)))
            self.total[self.chosen] = 0
            self.tried = 0

    def _candidates(self, k: int) -> NDArray[np.int64]:
        """Return the next candidates of this round, up to the size of a plan."""
        return self.free[self.tried :][: max(1, MOST_PLAN_CELLS // k)]

    def check(self, rounds: int, m: int) -> None:
        """Raise BadRecord unless this is a state of at most `rounds` rounds with m plays of each candidate."""
        if len(self.chosen) > rounds:
            raise BadRecord(f"chosen must be at most {rounds} arms; got {self.chosen}")
        if self.tried >= len(self.total) - len(self.chosen) or (len(self.chosen) == rounds and self.tried):
            raise BadRecord(f"tried must be less than the candidates of its round; got {self.tried}")
        if not ((self.total >= 0) & (self.total <= m * (1 + 1e-9))).all():
            raise BadRecord(f"a total must be between 0 and {m}, the plays of a candidate")


def candidates_of(n_arms: int, rounds: int) -> int:
    """Return the number of candidates of all rounds: N + (N-1) + ...

    >>> candidates_of(10, 2)
    19
    """
    return n_arms * rounds - rounds * (rounds - 1) // 2
