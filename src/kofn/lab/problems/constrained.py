"""Problems under constraints: the best allowed subset."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from kofn.constraints import Constraints
from kofn.constraints.allowed import Allowed
from kofn.core import BadInput, FloatArray, IntArray, Subset
from kofn.lab.problems.expectation import best_subset

if TYPE_CHECKING:
    from kofn.lab.problems.base import AbstractProblem

STARTS = 20
"""Random subsets from which the search for the best begins, where there are too many to try all. Higher: slower, and
the best is found more often."""

P = TypeVar("P", bound="AbstractProblem")
Value = Callable[[IntArray], FloatArray]


def under(problem: P, constraints: Any) -> P:
    """Return a copy of a problem in which only the allowed subsets can be played."""
    found = copy.copy(problem)
    for name in ("best", "optimum"):
        vars(found).pop(name, None)
    found.constraints = Constraints.of(constraints)
    found.constraints.allowed(problem.n_arms + problem.empties, problem.k)
    found._given_best = None
    return found


def check_allowed(problem: AbstractProblem, rows: IntArray) -> None:
    """Raise BadInput if a subset breaks a rule of the problem."""
    if problem.constraints is None or not len(rows):
        return
    n_arms = problem.n_arms
    empty = rows == n_arms
    places = np.where(empty, n_arms - 1 + empty.cumsum(axis=1), rows)  # each empty place is an arm of its own
    fits = problem.constraints.allows(places, n_arms + problem.empties, problem.k)
    if not fits.all():
        subset = tuple(arm for arm in rows[int(np.argmin(fits))].tolist() if arm < n_arms)
        broken = "; ".join(map(str, problem.constraints.broken(subset)))
        raise BadInput(
            f"{subset} is not allowed: it breaks {broken}. Give the policy the problem's rules, "
            "constraints=problem.constraints"
        )


def best_allowed(problem: AbstractProblem, strength: FloatArray | None, linear: bool, most: int) -> Subset:
    """Return the best allowed subset; without rules, of all.

    Places that may be empty are further arms here, numbered from N on.

    `strength` is a number per arm such that replacing an arm by a stronger one never lowers the reward; None if no
    such number is known. With it the best is exact if the reward is `linear` in it, or under quotas of disjoint groups:
    the greedy subset has, place by place, an arm at least as strong as any other allowed subset. Otherwise all subsets
    are tried if there are at most `most`. If there are more, exchanges of one arm climb from STARTS subsets, and the
    best subset found is taken: it may not be the best.
    """
    n_arms, rules = problem.n_arms, problem.constraints or Constraints()
    allowed = rules.allowed(n_arms + problem.empties, problem.k)
    sign = 1.0 if problem.direction == "maximize" else -1.0

    def value(rows: IntArray) -> FloatArray:
        return np.asarray(sign * problem.value(np.where(rows < n_arms, rows, -1)))

    if strength is not None and (linear or allowed.is_quotas):
        best = tuple(allowed.top(sign * strength).tolist())
    elif math.comb(allowed.n_arms, problem.k) <= most:
        best = best_subset(value, allowed.n_arms, problem.k, allowed.only)
    else:
        starts = [*allowed.random(STARTS, np.random.default_rng(0))]
        if strength is not None:
            starts.append(allowed.top(sign * strength))
        best = max(_climbed(value, allowed, start) for start in starts)[1]
    return tuple(arm for arm in best if arm < n_arms)


def _climbed(value_of: Value, allowed: Allowed, subset: IntArray) -> tuple[float, Subset]:
    """Return the value of the subset in which allowed exchanges of one arm end that improve this one, and it."""
    value = float(value_of(subset[None, :])[0])
    while True:
        out, into = np.nonzero(allowed.exchanges(subset).may)
        rows = np.repeat(subset[None, :], len(out), axis=0)
        rows[np.arange(len(out)), out] = into
        rows.sort(axis=1)
        values = value_of(rows) if len(rows) else np.empty(0)
        if not len(values) or values.max() <= value:
            return value, tuple(subset.tolist())
        subset, value = rows[int(values.argmax())], float(values.max())
