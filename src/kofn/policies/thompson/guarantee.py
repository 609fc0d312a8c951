"""Comparisons of arms that need no model, only the paper's assumptions, from plays of random subsets.

In a random subset, arm i averages more than arm j exactly if swapping j for i pays, for every reward function that is
symmetric and increasing in better arms. So averages over random subsets, with Hoeffding's confidence intervals, prove
that one arm is better than another. A subset that has an arm proved worse than one outside is corrected.
docs/reference/policies/thompson.md has the bound on regret that follows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kofn.core import FloatArray, IntArray, Plan, Tally
from kofn.core.fields import Fields, Part, part
from kofn.policies.credit import Credit

RANDOM_SHARE = 1 / 20
"""After t plays, RANDOM_SHARE * t^(2/3) of them are random. Higher: earlier proofs, and more regret by random plays."""


def random_plays(plays: int) -> int:
    """Return the number of random plays among the first `plays` plays."""
    return math.ceil(RANDOM_SHARE * math.pow(plays, 2 / 3))


@dataclass
class Guarantee(Part):
    """The rewards of each arm in random subsets: every arm of a subset gets the whole reward."""

    fields = Fields(credit=part(Credit, flat=True))

    credit: Credit

    @classmethod
    def blank(cls, n_arms: int) -> Guarantee:
        """Return a guarantee without plays."""
        return cls(Credit.zeros(n_arms))

    def subsets(self, plays: int, k: int, rng: np.random.Generator) -> IntArray:
        """Return `plays` random subsets."""
        n_arms = len(self.credit.count)
        rows = [rng.choice(n_arms, k, replace=False, shuffle=False) for _ in range(plays)]
        return np.sort(np.array(rows, np.int64).reshape(plays, k), axis=1)

    def learn(self, subsets: IntArray, tally: Tally) -> None:
        """Include plays of random subsets."""
        self.credit.take(Plan(subsets, tally.count), tally.total[:, None], tally.count)

    def bounds(self, plays: int) -> tuple[FloatArray, FloatArray]:
        """Return intervals that hold for all arms and all numbers of random plays with probability 1 - 1 / plays."""
        n = np.maximum(self.credit.count, 1)
        radius = np.sqrt(math.log(2 * len(n) * max(plays, 2) ** 2) / (2 * n))
        radius = np.where(self.credit.count > 0, radius, np.inf)
        return self.credit.means - radius, self.credit.means + radius

    def corrected(self, subsets: IntArray, plays: int) -> IntArray:
        """Return the subsets, with each arm that is proved worse than an arm outside swapped for it."""
        low, high = self.bounds(plays)
        if high.min() >= low.max():
            return subsets
        return np.array([self._correct(row, low, high) for row in subsets])

    def _correct(self, subset: IntArray, low: FloatArray, high: FloatArray) -> NDArray[np.int64]:
        outside = np.ones(len(low), bool)
        outside[subset] = False
        chosen = subset.copy()
        for _ in range(len(subset)):
            worst = int(high[chosen].argmin())
            best = int(np.where(outside, low, -np.inf).argmax())
            if high[chosen[worst]] >= low[best]:
                break
            outside[chosen[worst]], outside[best] = True, False
            chosen[worst] = best
        return np.sort(chosen)
