"""Batching: how many plays a plan has and how they are divided, for policies that learn only between plans."""

from __future__ import annotations

import numpy as np

from kofn.core import FloatArray, IntArray, Plan, Subset

MOST_ROWS = 200
"""Most draws in one plan; more plays are divided evenly among the draws. Higher: closer to a draw per play, slower."""

CELLS = 2**18
"""Most numbers drawn for one plan, 8 bytes each. Many arms get fewer draws."""

MOST_PLAN_CELLS = 2**22
"""Most arms in one plan of a policy with rounds, so that memory stays linear in N. A longer round takes several plans.
"""


def tenth(plays: int) -> int:
    """Return the length of the next plan after `plays` plays: a tenth of the time elapsed, at least one play."""
    return max(1, plays // 10)


def draws_for(plays: int, width: int) -> int:
    """Return the number of draws, of `width` numbers each, in a plan of `plays` plays."""
    return max(1, min(plays, MOST_ROWS, CELLS // max(1, width)))


def shares(plays: int, draws: int) -> IntArray:
    """Return the plays of each draw: equal, up to the remainder."""
    return plays // draws + (np.arange(draws) < plays % draws)


def averages(total: FloatArray, count: IntArray) -> FloatArray:
    """Return total / count, and 0 where the count is 0."""
    return np.asarray(total / np.maximum(count, 1))


def top_k(values: FloatArray, k: int) -> IntArray:
    """Return the arms of the k largest values of each row, sorted; for drawn values, whose ties are negligible."""
    return np.sort(np.argpartition(-values, k - 1, axis=1)[:, :k], axis=1)


def top_subset(values: FloatArray, k: int) -> Subset:
    """Return the arms of the k largest values; of equal values, the lowest arms.

    >>> top_subset(np.array([0.1, 0.9, 0.4, 0.4]), 2)
    (1, 2)
    """
    if not k:
        return ()
    least = np.partition(values, -k)[-k]
    above, level = np.flatnonzero(values > least), np.flatnonzero(values == least)
    return tuple(sorted([*above.tolist(), *level[: k - len(above)].tolist()]))


def plan_of(subsets: IntArray, plays: int) -> Plan:
    """Return a plan of `plays` plays, divided evenly among the rows; rows of the same subset are merged.

    >>> list(plan_of(np.array([[0, 1], [0, 2], [0, 1]]), 7))
    [((0, 1), 5), ((0, 2), 2)]
    """
    rows, which = np.unique(subsets, axis=0, return_inverse=True)
    return Plan(rows, np.bincount(which.ravel(), shares(plays, len(subsets))).astype(np.int64))


def sweeps(n_arms: int, k: int, times: int, rng: np.random.Generator) -> Plan:
    """Return a plan of random blocks with every arm `times` times; the last block is filled up from the first."""
    places = np.arange(-(-n_arms // k) * k) % n_arms
    blocks = np.concatenate([rng.permutation(n_arms)[places].reshape(-1, k) for _ in range(times)])
    return plan_of(np.sort(blocks, axis=1), len(blocks))
