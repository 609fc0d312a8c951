"""The subsets that can be chosen: how many there are, the swaps of one, and random ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection

import numpy as np

from kofn.constraints.allowed import Allowed
from kofn.core import IntArray, Subset

MOST_SWAPS = 10_000
"""Most swaps of a subset that are listed; of more, this number is drawn at random. Higher: slower with many arms."""

TRIED, AT_ONCE = 1_024, 64
"""Random subsets that are drawn to find one without a score, where the number of allowed subsets is unknown, and how
many of them at once. Higher: the search continues longer where rules allow few subsets."""


class Space:
    """All subsets of K of N arms, or those that rules allow."""

    def __init__(self, n_arms: int, k: int, allowed: Allowed | None) -> None:
        self.n_arms, self.k, self.allowed = n_arms, k, allowed

    @property
    def number(self) -> int | None:
        """How many subsets there are; None if that is unknown."""
        return math.comb(self.n_arms, self.k) if self.allowed is None else self.allowed.number

    @property
    def swaps_suffice(self) -> bool:
        """Whether swaps of one arm can reach every subset from every other; always true without rules."""
        return self.allowed is None or self.allowed.is_quotas

    def swaps(self, subset: Subset, rng: np.random.Generator, but: Collection[Subset], most: int) -> list[Subset]:
        """Return up to `most` swaps of one arm of this subset, in a random order, except the subsets in `but`."""
        leave, come = self._swaps_of(np.array(subset))
        size = len(leave)
        order = rng.permutation(size) if size <= MOST_SWAPS else rng.integers(size, size=MOST_SWAPS)
        places = ((subset[leave[index]], int(come[index])) for index in order.tolist())
        swaps = (tuple(sorted({*subset, new} - {old})) for old, new in places)
        return list(itertools.islice((each for each in swaps if each not in but), most))

    def _swaps_of(self, subset: IntArray) -> tuple[IntArray, IntArray]:
        """Return the place that each swap empties, and the arm that takes it."""
        if self.allowed is not None:
            leave, come = np.nonzero(self.allowed.exchanges(subset).may)
            return leave, come
        others = np.delete(np.arange(self.n_arms), subset)
        return np.repeat(np.arange(self.k), len(others)), np.tile(others, self.k)

    def random(self, rng: np.random.Generator, but: Collection[Subset]) -> Subset | None:
        """Return a random subset that is not in `but`; None if none was found."""
        if self.allowed is None or self.number is not None:
            while len(but) < (self.number or 0):
                found = self._random(rng, 1)[0]
                if found not in but:
                    return found
            return None
        drawn = (each for _ in range(TRIED // AT_ONCE) for each in self._random(rng, AT_ONCE))
        return next((each for each in drawn if each not in but), None)

    def _random(self, rng: np.random.Generator, count: int) -> list[Subset]:
        if self.allowed is None:
            return [tuple(sorted(rng.choice(self.n_arms, self.k, replace=False).tolist())) for _ in range(count)]
        return [tuple(row) for row in self.allowed.random(count, rng).tolist()]
