"""The search for the best subset, with its proof of effort."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kofn.core import FloatArray, IntArray, Subset
from kofn.lab.problems.expectation import best_subset, top_subset

MOST_TRIED = 30_000
"""Subsets up to which all of them are tried. A higher limit proves more and takes longer at first use."""
MOST_STARTS, REACHED = 200, 5
"""A swap search starts at random subsets until REACHED starts have ended in the best value, but at most MOST_STARTS
times. Higher numbers make a missed optimum less likely and take longer at first use."""
SECONDS = 20.0
"""Most seconds of the integer program. If it is not done then, its upper bound is reported instead of a proof."""
_SEED = 17
_EQUAL = 1e-12
"""Difference below which values count as equal: rounding."""

Value = Callable[[IntArray], FloatArray]


@dataclass(frozen=True)
class BestSearch:
    """The best subset that was found; `proven` if no subset can be better; `effort` says what was done."""

    best: Subset
    value: float
    proven: bool
    effort: str


def search(value: Value, n_arms: int, k: int) -> BestSearch:
    """Try all subsets if they are few, else climb from many random starts and from the greedy choice."""
    subsets = math.comb(n_arms, k)
    if subsets <= MOST_TRIED:
        best = best_subset(value, n_arms, k)
        return BestSearch(best, _one(value, best), True, f"all {subsets:,} subsets tried")
    return climb(value, n_arms, k)


def climb(value: Value, n_arms: int, k: int) -> BestSearch:
    """Improve random subsets and the greedy choice by the best exchange of one arm until none helps."""
    rng = np.random.default_rng(_SEED)
    best = improved(value, n_arms, greedy(value, n_arms, k))
    top, starts, reached = _one(value, best), 0, 0
    while starts < MOST_STARTS and reached < REACHED:
        end = improved(value, n_arms, rng.choice(n_arms, k, replace=False).tolist())
        found = _one(value, end)
        if found > top + _EQUAL:
            best, top, reached = end, found, 0
        reached += found >= top - _EQUAL
        starts += 1
    ends = f"{reached} end in this value" if reached != 1 else "1 ends in this value"
    return BestSearch(
        best, top, False, f"swap search from the greedy choice and {starts} random subsets, of which {ends}"
    )


def improved(value: Value, n_arms: int, start: list[int] | Subset) -> Subset:
    """Return a subset that no exchange of one arm improves."""
    chosen = np.sort(np.array(start, np.int64))
    top = _one(value, chosen)
    while True:
        rows = _exchanges(chosen, n_arms)
        values = value(rows)
        leader = int(np.argmax(values))
        if values[leader] <= top + _EQUAL:
            return tuple(chosen.tolist())
        chosen, top = np.sort(rows[leader]), float(values[leader])


def greedy(value: Value, n_arms: int, k: int) -> Subset:
    """Return the greedy choice by exact values: K times, the arm that adds most. Empty places are arm N."""
    chosen: list[int] = []
    for place in range(k):
        free = np.setdiff1d(np.arange(n_arms), chosen)
        rows = np.full((len(free), k), n_arms)
        rows[:, :place] = chosen
        rows[:, place] = free
        chosen.append(int(free[np.argmax(value(rows))]))
    return tuple(sorted(chosen))


def best_singles(value: Value, n_arms: int, k: int) -> Subset:
    """Return the K arms with the highest values alone."""
    rows = np.full((n_arms, k), n_arms)
    rows[:, 0] = np.arange(n_arms)
    return top_subset(value(rows), k)


def cover(hits: NDArray[np.bool_], k: int) -> BestSearch:
    """Return the K rows of `hits` that cover most columns, by an integer program (HiGHS).

    Columns that the same rows cover are one column with a weight. x is the choice of rows; y, at most 1, is whether a
    column is covered: y_c <= sum of x_i over the rows i that cover c.
    """
    from scipy import sparse  # imported here, so that naming a problem is fast
    from scipy.optimize import Bounds, LinearConstraint, milp

    n = len(hits)
    columns, weight = np.unique(hits.T[hits.any(axis=0)], axis=0, return_counts=True)
    m = len(columns)
    covers = sparse.hstack([sparse.csr_array(columns.astype(float)), -sparse.eye_array(m)])
    size = np.concatenate([np.ones(n), np.zeros(m)])[None, :]
    found = milp(
        np.concatenate([np.zeros(n), -weight / hits.shape[1]]),
        integrality=np.concatenate([np.ones(n), np.zeros(m)]),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(covers, 0, np.inf), LinearConstraint(size, k, k)],
        options={"time_limit": SECONDS, "mip_rel_gap": 0.0},
    )
    assert found.x is not None, found.message  # a choice exists, and HiGHS finds one at once
    best = top_subset(found.x[:n], k)
    value = float(hits[list(best)].any(axis=0).mean())
    bound = -float(found.mip_dual_bound or 0.0)
    proven = bound <= value + (1 - 1e-6) / hits.shape[1]  # values are multiples of 1 / contexts
    effort = "integer program (HiGHS), optimal" if proven else f"integer program (HiGHS), upper bound {bound:.4f}"
    return BestSearch(best, value, proven, effort)


def _exchanges(chosen: IntArray, n_arms: int) -> IntArray:
    """Return all subsets that differ in one arm."""
    free = np.setdiff1d(np.arange(n_arms), chosen)
    rows = np.repeat(chosen[None, :], len(chosen) * len(free), axis=0)
    rows[np.arange(len(rows)), np.repeat(np.arange(len(chosen)), len(free))] = np.tile(free, len(chosen))
    return rows


def _one(value: Value, subset: IntArray | Subset) -> float:
    return float(value(np.array([subset], np.int64))[0])
