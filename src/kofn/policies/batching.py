"""What the policies that freeze their knowledge for a tenth of the time share: how many plays, and of what."""

from __future__ import annotations

import numpy as np

from kofn.core import FloatArray, IntArray, Plan, Subset

MOST_ROWS = 200
"""Draws in one plan at the most; more plays than that are shared out evenly among the draws."""

CELLS = 2**18
"""Numbers drawn for one plan at the most."""


def tenth(plays: int) -> int:
    """How long knowledge is frozen after so many plays: a tenth of the time elapsed, at least one play."""
    return max(1, plays // 10)


def draws_for(plays: int, width: int) -> int:
    """How many draws of `width` numbers each a plan of so many plays is made of."""
    return max(1, min(plays, MOST_ROWS, CELLS // max(1, width)))


def shares(plays: int, draws: int) -> IntArray:
    """The plays of each draw: as even as whole numbers can be."""
    return plays // draws + (np.arange(draws) < plays % draws)


def top_k(values: FloatArray, k: int) -> IntArray:
    """The k largest of each row, sorted by arm."""
    return np.sort(np.argpartition(-values, k - 1, axis=1)[:, :k], axis=1)


def top_subset(values: FloatArray, k: int) -> Subset:
    """The arms of the k largest values; of equal ones, the lowest.

    >>> top_subset(np.array([0.1, 0.9, 0.4, 0.4]), 2)
    (1, 2)
    """
    least = np.partition(values, -k)[-k]
    above, level = np.flatnonzero(values > least), np.flatnonzero(values == least)
    return tuple(sorted([*above.tolist(), *level[: k - len(above)].tolist()]))


def plan_of(subsets: IntArray, plays: int) -> Plan:
    """A plan of `plays` plays, shared out evenly among the rows; rows of the same subset are made one.

    >>> list(plan_of(np.array([[0, 1], [0, 2], [0, 1]]), 7))
    [((0, 1), 5), ((0, 2), 2)]
    """
    rows, which = np.unique(subsets, axis=0, return_inverse=True)
    return Plan(rows, np.bincount(which.ravel(), shares(plays, len(subsets))).astype(np.int64))
