"""Whether arms have one order: what CMAB-SM needs, for problems in which arms pay nothing by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kofn.core import FloatArray, IntArray
from kofn.problems.assumptions import EXPECTED, Finding

if TYPE_CHECKING:
    from kofn.problems.problem import Problem

PAIRS, COMPANIES = 200, 20
_SEED = 3
_SAME = 1e-12


def one_order(problem: Problem) -> Finding:
    """Whether of two arms the same one is the better in all company, or a pair for which it is not."""
    if problem.k == 1:
        return Finding(EXPECTED, True, "an arm has no company if K is 1")
    pairs, company = _cases(problem.n_arms, problem.k)
    ahead = _ahead(problem, pairs, company)
    noise = 6 * 2**0.5 * problem.value_error + _SAME
    flips = (ahead.max(axis=1) > noise) & (ahead.min(axis=1) < -noise)
    if not flips.any():
        doubt = f", to within 6 standard errors of {problem.value_error:.1g}" if problem.value_error else ""
        return Finding(EXPECTED, True, f"no counterexample in {ahead.size:,} exchanges of two arms{doubt}")
    pair = int(np.argmax(np.where(flips, np.minimum(ahead.max(axis=1), -ahead.min(axis=1)), -np.inf)))
    (i, j), most, least = pairs[pair].tolist(), int(np.argmax(ahead[pair])), int(np.argmin(ahead[pair]))
    beside = [_arms(company[pair, at]) for at in (most, least)]
    return Finding(
        EXPECTED,
        False,
        f"arm {i} is better than {j} by {ahead[pair, most]:.4g} beside {beside[0]}, but worse by "
        f"{-ahead[pair, least]:.4g} beside {beside[1]}",
    )


def _cases(n_arms: int, k: int) -> tuple[IntArray, IntArray]:
    """Pairs of arms, and for each pair some companies of K - 1 others."""
    rng = np.random.default_rng(_SEED)
    pairs, company = np.empty((PAIRS, 2), np.int64), np.empty((PAIRS, COMPANIES, k - 1), np.int64)
    for pair in range(PAIRS):
        some = [rng.choice(n_arms, k + 1, replace=False)]
        some += [rng.choice(n_arms, min(k + 1, n_arms), replace=False) for _ in range(COMPANIES - 1)]
        pairs[pair] = some[0][:2]
        for at, arms in enumerate(some):
            company[pair, at] = arms[~np.isin(arms, pairs[pair])][: k - 1]
    return pairs, company


def _ahead(problem: Problem, pairs: IntArray, company: IntArray) -> FloatArray:
    """By how much the first arm of each pair is better than the second, in each company."""
    values = []
    for which in (0, 1):
        arm = np.broadcast_to(pairs[:, None, which, None], (*company.shape[:2], 1))
        rows = np.sort(np.concatenate([company, arm], axis=2), axis=2).reshape(-1, problem.k)
        values.append(problem.value(rows).reshape(company.shape[:2]))
    sign = 1.0 if problem.direction == "maximize" else -1.0
    return np.asarray(sign * (values[0] - values[1]))


def _arms(company: IntArray) -> str:
    shown = [str(arm) for arm in np.sort(company)[:6].tolist()]
    return f"({', '.join(shown)}{', ...' if len(company) > 6 else ''})"
