"""Quotas of disjoint groups: at least so many and at most so many arms of each.

The allowed subsets are the bases of a matroid (0/1 points of a base polytope: Murota, Discrete Convex Analysis, 2003,
section 4.4), so the greedy choice has the highest sum, and a subset that no allowed exchange of two arms improves is
the best. tests/test_constraints.py compares both with brute force.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kofn.core import FloatArray, IntArray


class Quotas:
    """Disjoint groups of arms with the fewest and the most arms of each; arms in no group are a group without quota."""

    exact = True

    def __init__(self, group: NDArray[np.int64], low: NDArray[np.int64], high: NDArray[np.int64], places: int) -> None:
        self.group, self.low, self.high, self.places = group, low, high, places
        self.size = np.bincount(group, minlength=len(low))

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
        """Return the subset with the highest sum of each row of scores: first the quotas, then the highest."""
        if not self.feasible:
            return None
        order = np.argsort(-scores, axis=1, kind="stable")
        rank = self._ranks(order)
        group = self.group[order]
        must, may = rank < self.low[group], rank < self.high[group]
        rest = may & ~must
        rest &= rest.cumsum(axis=1) <= self.places - int(self.low.sum())
        chosen = order[must | rest].reshape(len(scores), self.places)
        return np.sort(chosen, axis=1)

    def _ranks(self, order: IntArray) -> IntArray:
        """Return the rank of each arm within its group; arms are listed by decreasing score."""
        group = self.group[order]
        by_group = np.argsort(group, axis=1, kind="stable")
        start = np.concatenate([[0], np.cumsum(self.size)[:-1]])
        rank = np.empty_like(order)
        places = np.arange(order.shape[1]) - start[np.take_along_axis(group, by_group, axis=1)]
        np.put_along_axis(rank, by_group, places, axis=1)
        return rank


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
