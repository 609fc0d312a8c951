"""Whether the arms have one order, as CMAB-SM needs, in problems where single arms pay nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kofn.core import FloatArray, IntArray
from kofn.lab.problems.assumptions import EXPECTED, Finding

if TYPE_CHECKING:
    from kofn.lab.problems.base import AbstractProblem

PAIRS, CONTEXTS = 200, 20
"""Pairs of arms that are compared, and with how many sets of K - 1 other arms each. More of either find rarer flips."""
_SEED = 3
_SAME = 1e-12


def check_arm_order(problem: AbstractProblem, pairs: int = PAIRS, contexts: int = CONTEXTS) -> Finding:
    """Return whether the better of two arms is better with any other arms, or a pair for which it is not.

    `pairs` pairs of arms are compared, each with `contexts` sets of others.
    """
    if problem.k == 1:
        return Finding(EXPECTED, True, "K is 1: an arm is played alone")
    arms, others = _cases(problem.n_arms, problem.k, pairs, contexts)
    ahead = _ahead(problem, arms, others)
    noise = 6 * 2**0.5 * problem.value_error + _SAME
    flips = (ahead.max(axis=1) > noise) & (ahead.min(axis=1) < -noise)
    if not flips.any():
        doubt = f", to within 6 standard errors of {problem.value_error:.1g}" if problem.value_error else ""
        return Finding(EXPECTED, True, f"no counterexample in {ahead.size:,} exchanges of two arms{doubt}")
    pair = int(np.argmax(np.where(flips, np.minimum(ahead.max(axis=1), -ahead.min(axis=1)), -np.inf)))
    (i, j), most, least = arms[pair].tolist(), int(np.argmax(ahead[pair])), int(np.argmin(ahead[pair]))
    shown = [_arms(others[pair, at]) for at in (most, least)]
    return Finding(
        EXPECTED,
        False,
        f"arm {i} is better than {j} by {ahead[pair, most]:.4g} with {shown[0]}, but worse by "
        f"{-ahead[pair, least]:.4g} with {shown[1]}",
    )


def _cases(n_arms: int, k: int, n_pairs: int, contexts: int) -> tuple[IntArray, IntArray]:
    """Return random pairs of arms, and for each pair some sets of K - 1 other arms."""
    rng = np.random.default_rng(_SEED)
    pairs, others = np.empty((n_pairs, 2), np.int64), np.empty((n_pairs, contexts, k - 1), np.int64)
    for pair in range(n_pairs):
        some = [rng.choice(n_arms, k + 1, replace=False)]
        some += [rng.choice(n_arms, min(k + 1, n_arms), replace=False) for _ in range(contexts - 1)]
        pairs[pair] = some[0][:2]
        for at, arms in enumerate(some):
            others[pair, at] = arms[~np.isin(arms, pairs[pair])][: k - 1]
    return pairs, others


def _ahead(problem: AbstractProblem, pairs: IntArray, others: IntArray) -> FloatArray:
    """Return by how much the first arm of each pair is better than the second, with each set of others."""
    values = []
    for which in (0, 1):
        arm = np.broadcast_to(pairs[:, None, which, None], (*others.shape[:2], 1))
        rows = np.sort(np.concatenate([others, arm], axis=2), axis=2).reshape(-1, problem.k)
        values.append(problem.value(rows).reshape(others.shape[:2]))
    sign = 1.0 if problem.direction == "maximize" else -1.0
    return np.asarray(sign * (values[0] - values[1]))


def _arms(others: IntArray) -> str:
    shown = [str(arm) for arm in np.sort(others)[:6].tolist()]
    return f"({', '.join(shown)}{', ...' if len(others) > 6 else ''})"
