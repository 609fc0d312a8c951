"""A certificate that needs only the paper's assumptions: which arms are worse than which, from random subsets alone.

In a subset drawn at random, arm i averages more than arm j exactly if exchanging j for i pays, whatever the reward
function: symmetric, and monotone in better arms. So averages over random subsets, with Hoeffding's intervals, certify
that one arm is better than another; and a subset that has the worse of two certified arms without the better one is
mended. docs/reference/policies/thompson.md has the bound on regret that follows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kofn.core import FloatArray, IntArray, Plan, Tally
from kofn.policies.credit import Credit

SHARE = 1 / 20
"""After t plays, t^(2/3) of them times this have been random."""


def random_plays(plays: int) -> int:
    """How many of so many plays are random."""
    return math.ceil(SHARE * math.pow(plays, 2 / 3))


@dataclass
class Certificate:
    """What each arm has earned in random subsets: the whole reward, for each arm of the subset."""

    credit: Credit

    @classmethod
    def blank(cls, n_arms: int) -> Certificate:
        """Nothing is certified."""
        return cls(Credit.zeros(n_arms))

    def subsets(self, plays: int, k: int, rng: np.random.Generator) -> IntArray:
        """So many random subsets."""
        n_arms = len(self.credit.count)
        rows = [rng.choice(n_arms, k, replace=False, shuffle=False) for _ in range(plays)]
        return np.sort(np.array(rows, np.int64).reshape(plays, k), axis=1)

    def learn(self, subsets: IntArray, tally: Tally) -> None:
        """Take in plays of random subsets."""
        self.credit.take(Plan(subsets, tally.count), tally.total[:, None], tally.count)

    def bounds(self, plays: int) -> tuple[FloatArray, FloatArray]:
        """Intervals that hold for all arms and numbers of random plays up to now, but with probability 1 / plays."""
        n = np.maximum(self.credit.count, 1)
        radius = np.sqrt(math.log(2 * len(n) * max(plays, 2) ** 2) / (2 * n))
        radius = np.where(self.credit.count > 0, radius, np.inf)
        return self.credit.means - radius, self.credit.means + radius

    def mended(self, subsets: IntArray, plays: int) -> IntArray:
        """The subsets, with every arm exchanged that is certified to be worse than one outside."""
        low, high = self.bounds(plays)
        if high.min() >= low.max():
            return subsets
        return np.array([self._mend(row, low, high) for row in subsets])

    def _mend(self, subset: IntArray, low: FloatArray, high: FloatArray) -> NDArray[np.int64]:
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

    def state(self) -> dict[str, Any]:
        """The fields as lists of plain numbers."""
        return self.credit.state()

    @classmethod
    def load(cls, state: Mapping[str, Any], n_arms: int, k: int) -> Certificate:
        """The certificate that `state` describes."""
        return cls(Credit.load(state, n_arms, k))
