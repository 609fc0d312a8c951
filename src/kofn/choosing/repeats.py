"""Find out whether a score is repeatable: whether the same subset always has the same score.

Nothing is scored again for this purpose: the policy asks for some subsets again, and the first of these evaluations
decide. One that differs shows noise. One that is equal may be chance, if scores have few different values (clicks, the
accuracy on 50 rows). The chance is estimated by how often different subsets have equal scores.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kofn.core import Subset

CHANCE = 0.01
"""Probability that all repeated scores are equal by chance below which a score counts as repeatable. Higher: fewer
evaluations are repeated, and noisy scores with few values are taken for repeatable ones more often."""

ROUNDING = 1e-9
"""Difference of two scores that counts as rounding, relative to the range of scores seen."""


@dataclass
class Repeats:
    """The first score of each subset, how many repeated scores were equal, and `known`: whether they always are."""

    known: bool | None = None
    first: dict[Subset, float] = field(default_factory=dict)
    equal: int = 0

    def include(self, arms: Subset, value: float) -> None:
        """Include an evaluation."""
        if arms not in self.first:
            self.first[arms] = value
            return
        if self.known is not None:
            return
        before = self.first[arms]
        seen = [value, *self.first.values()]
        if abs(value - before) > ROUNDING * (max(seen) - min(seen)):
            self.known = False
            return
        self.equal += 1
        if self._coincidence() ** self.equal <= CHANCE:
            self.known = True

    def _coincidence(self) -> float:
        """Return an upper estimate of the probability that scores of two different subsets are equal."""
        n = len(self.first)
        same = sum(count * (count - 1) for count in Counter(self.first.values()).values())
        return (same + 2) / (n * (n - 1) + 2)
