"""Quotas of disjoint groups: the fewest and the most arms of each.

The allowed subsets are the bases of a matroid (0/1 points of a base polytope: Murota, Discrete Convex Analysis, 2003,
section 4.4), so the greedy choice has the highest sum, and a subset that no allowed exchange of two arms improves is
the best. tests/constraints/test_constraints.py compares both with brute force.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kofn.core import FloatArray, IntArray


class Quotas:
    """Disjoint groups of arms with the fewest and the most arms of each; arms in no group are a group without quota."""

    exact = True

    def __init__(self, group: NDArray[np.int64], low: NDArray[np.int64], high: NDArray[np.int64], places: int) -> None:
        self.group, self.low, self.high, self.places = group, low, high, places
        self.size = np.bincount(group, minlength=len(low))
        of_column = np.repeat(np.arange(len(low)), self.size)
        rank = np.arange(len(group)) - (np.cumsum(self.size) - self.size)[of_column]
        self._of_column, self._rank = of_column, rank
        self._must = np.flatnonzero(rank < low[of_column])
        self._may = np.flatnonzero((rank >= low[of_column]) & (rank < high[of_column]))

    @property
    def trivial(self) -> bool:
        """Whether no quota excludes anything."""
        return len(self.low) <= 1

    @property
    def feasible(self) -> bool:
        """Whether there is an allowed subset."""
        high = np.minimum(self.high, self.size)
        return bool((self.low <= high).all() and self.low.sum() <= self.places <= high.sum())

    def best(self, scores: FloatArray) -> IntArray | None:
        """Return the subset with the highest sum of each row of scores: first the quotas, then the highest.

        Arms are sorted by group, and within it by decreasing score, in one pass: then the columns that a quota
        demands, and those that it admits, are the same in every row.
        """
        if not self.feasible:
            return None
        lowest, highest = (float(scores.min()), float(scores.max())) if scores.size else (0.0, 0.0)
        key = 2.0 * self.group - (scores - lowest) / ((highest - lowest) or 1.0)
        order = key.argsort(axis=1)
        chosen, more = order[:, self._must], order[:, self._may]
        left = self.places - chosen.shape[1]
        if left < more.shape[1]:
            row = np.arange(len(scores))[:, None]
            more = more[row, (-scores[row, more]).argpartition(left, axis=1)[:, :left]]
        return np.sort(np.hstack([chosen, more]), axis=1)

    @cached_property
    def _ways(self) -> list[list[int]] | None:
        """The number of ways to fill 0, 1, 2... places from a group and those after it; None if that takes too long."""
        if len(self.low) * self.places * min(self.places, int(self.size.max(initial=0))) > MOST_STEPS:
            return None
        ways = [[1] + [0] * self.places]
        for least, most, size in zip(*(each[::-1].tolist() for each in (self.low, self.high, self.size)), strict=True):
            counts = range(least, min(most, size) + 1)
            after = ways[0]
            ways.insert(
                0, [sum(math.comb(size, n) * after[m - n] for n in counts if n <= m) for m in range(self.places + 1)]
            )
        return ways

    @property
    def number(self) -> int | None:
        """How many subsets are allowed; None if counting them takes too long."""
        return None if self._ways is None else self._ways[0][self.places]

    def random(self, count: int, rng: np.random.Generator) -> IntArray:
        """Return random subsets, each with the same probability if their `number` is known."""
        scores = rng.random((count, len(self.group)))
        if self._ways is None:
            found = self.best(scores)
            assert found is not None
            return found
        share = np.zeros((count, len(self.low)), np.int64)  # places of each group
        left = np.full(count, self.places)
        for group, after in enumerate(self._ways[1:]):
            for m in np.unique(left).tolist():
                counts = range(int(self.low[group]), min(int(self.high[group]), int(self.size[group]), m) + 1)
                ways = [math.comb(int(self.size[group]), n) * after[m - n] for n in counts]
                rows = np.flatnonzero(left == m)
                chances = [each / sum(ways) for each in ways]
                share[rows, group] = counts.start + rng.choice(len(ways), len(rows), p=chances)
            left = left - share[:, group]
        order = (2.0 * self.group - scores).argsort(axis=1)
        return np.sort(order[self._rank < share[:, self._of_column]].reshape(count, self.places), axis=1)


MOST_STEPS = 10**6
"""Most steps to count the allowed subsets. Higher: random subsets of more arms are drawn with equal probabilities."""


def quotas(matrix: FloatArray, low: FloatArray, high: FloatArray, places: int) -> Quotas | None:
    """Return inequalities as quotas of disjoint groups; None if they are anything else."""
    bounds: dict[bytes, tuple[NDArray[np.bool_], int, int]] = {}
    for row, least, most in zip(matrix, low, high, strict=True):
        member = row != 0
        size = int(member.sum())
        each = float(row[member][0]) if size else 1.0
        if each < 0 or (row[member] != each).any():
            return None
        fewest = max(0, int(np.ceil(least / each)))
        largest = min(size, places, int(np.floor(most / each)) if np.isfinite(most) else size)
        _, before, until = bounds.get(member.tobytes(), (member, 0, size))
        bounds[member.tobytes()] = member, max(before, fewest), min(until, largest)
    groups = list(bounds.values())
    members = np.array([member for member, _, _ in groups], bool).reshape(len(groups), matrix.shape[1])
    if (members.sum(axis=0) > 1).any():
        return None
    group = np.where(members.any(axis=0), 1 + members.argmax(axis=0) if groups else 0, 0)
    fewest_of = np.array([0, *(least for _, least, _ in groups)])
    most_of = np.array([matrix.shape[1], *(most for _, _, most in groups)])
    return Quotas(group.astype(np.int64), fewest_of, most_of, places)
