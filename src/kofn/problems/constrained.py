"""Problems under constraints: the best allowed subset."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from kofn.constraints import Constraints
from kofn.constraints.allowed import Allowed
from kofn.core import BadInput, FloatArray, IntArray, Subset
from kofn.subsets import subset_blocks

if TYPE_CHECKING:
    from kofn.problems.base import AbstractProblem

STARTS = 20
"""Random subsets from which the search for the best begins, where there are too many to try all. Higher: slower, and
the best is found more often."""

P = TypeVar("P", bound="AbstractProblem")


def under(problem: P, constraints: Any) -> P:
    """Return a copy of a problem in which only the allowed subsets can be played."""
    found = copy.copy(problem)
    for name in ("best", "optimum"):
        vars(found).pop(name, None)
    found.constraints = Constraints.of(constraints)
    found.constraints.allowed(problem.n_arms, problem.k)
    found._given_best = None
    return found


def check_allowed(problem: AbstractProblem, rows: IntArray) -> None:
    """Raise BadInput if a subset breaks a rule of the problem."""
    if problem.constraints is None or not len(rows):
        return
    fits = problem.constraints.allows(rows, problem.n_arms, problem.k)
    if not fits.all():
        subset = tuple(rows[int(np.argmin(fits))].tolist())
        broken = "; ".join(map(str, problem.constraints.broken(subset)))
        raise BadInput(
            f"{subset} is not allowed: it breaks {broken}. Give the policy the problem's rules, "
            "constraints=problem.constraints"
        )


def best_allowed(problem: AbstractProblem, strength: FloatArray | None, linear: bool, most: int) -> Subset:
    """Return the best allowed subset.

    `strength` is a number per arm such that replacing an arm by a stronger one never lowers the reward; None if no
    such number is known. With it the best is exact if the reward is `linear` in it, or under quotas of disjoint groups:
    the greedy subset has, place by place, an arm at least as strong as any other allowed subset. Otherwise all subsets
    are tried if there are at most `most`. If there are more, exchanges of one arm climb from STARTS subsets, and the
    best subset found is taken: it may not be the best.
    """
    assert problem.constraints is not None
    allowed = problem.constraints.allowed(problem.n_arms, problem.k)
    sign = 1.0 if problem.direction == "maximize" else -1.0
    if strength is not None and (linear or allowed.is_quotas):
        return tuple(allowed.top(sign * strength).tolist())
    if math.comb(problem.n_arms, problem.k) <= most:
        return _tried(problem, allowed, sign)
    rng = np.random.default_rng(0)
    starts = [*allowed.random(STARTS, rng)]
    if strength is not None:
        starts.append(allowed.top(sign * strength))
    found = [_climbed(problem, allowed, start, sign) for start in starts]
    return max(found)[1]


def _tried(problem: AbstractProblem, allowed: Allowed, sign: float) -> Subset:
    """Return the best of all allowed subsets; of equal ones, the first in lexicographic order."""
    best, value = None, -math.inf
    for block in subset_blocks(problem.n_arms, problem.k):
        rows = allowed.only(block)
        if len(rows):
            values = sign * problem.value(rows)
            place = int(values.argmax())
            if values[place] > value:
                best, value = tuple(rows[place].tolist()), float(values[place])
    assert best is not None
    return best


def _climbed(problem: AbstractProblem, allowed: Allowed, subset: IntArray, sign: float) -> tuple[float, Subset]:
    """Return the value of the subset in which allowed exchanges of one arm end that improve this one, and it."""
    value = sign * float(problem.value(subset[None, :])[0])
    while True:
        out, into = np.nonzero(allowed.exchanges(subset).may)
        rows = np.repeat(subset[None, :], len(out), axis=0)
        rows[np.arange(len(out)), out] = into
        rows.sort(axis=1)
        values = sign * problem.value(rows) if len(rows) else np.empty(0)
        if not len(values) or values.max() <= value:
            return value, tuple(subset.tolist())
        subset, value = rows[int(values.argmax())], float(values.max())
