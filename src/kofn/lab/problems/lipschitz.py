"""An estimate of U, the constant in the paper's bounds: how a change of arms' means changes the expected reward.

With d the change of the arms' means and D the change of the expected reward, the paper assumes a number U such that

- D <= U |d| for any two subsets; |d| is the Euclidean distance of their means, matched in order (Assumption 4), and
- |d| <= U D if one arm is replaced (Assumption 5).

Rewards and the arms' payments are divided by the widths of their ranges, as policies do: the paper has both in [0, 1].
The largest ratios that are seen are lower limits of U. Under a mean or a sum, U is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kofn.core import FloatArray, IntArray
from kofn.lab.rewards import mean, total

if TYPE_CHECKING:
    from kofn.lab.problems.problem import Problem

_PAIRS = 1_000
"""Random pairs of subsets that are compared. More of them find larger ratios."""
_SEED = 4
_SAME = 1e-12
"""Differences up to this, in units of the range, are rounding."""
_ERRORS = 6 * 2**0.5
"""Standard errors of a value by which a difference is moved towards the smaller ratio, where values are sampled."""


@dataclass(frozen=True)
class Lipschitz:
    """What is known about U of the paper's Assumptions 4 and 5: U = max(rise, fall).

    `rise` is the largest change of the expected reward per change of the arms' means (U_1 of the paper), and `fall` the
    largest change of an arm's mean per change of the expected reward (U_2), infinite if an arm may change nothing.
    If `exact` is false, they are the largest ratios seen: lower limits. `theory.regret_bound` and `kofn budget` take
    the constant as `lipschitz`.
    """

    rise: float
    fall: float
    exact: bool
    evidence: str

    @property
    def constant(self) -> float:
        """U, or a lower limit of it."""
        return max(self.rise, self.fall)

    def __str__(self) -> str:
        sign = "=" if self.exact else ">="
        return f"U {sign} {self.constant:.4g}: {self.evidence}"


def estimate_lipschitz(problem: Problem, exchanges: IntArray, *, every: bool) -> Lipschitz:
    """Return U if it is known, else its lower limit: the worst case of exchanges of one arm and of random pairs.

    In `exchanges`, each of the first two arms of a row is played with the others of the row. `every` says that these
    are all cases.
    """
    root = math.sqrt(problem.k)
    if problem.reward in (mean, total):
        name = problem.reward.name
        why = f"replacing an arm changes the {name}, relative to its range, by 1/K of the change of the arm's mean"
        return Lipschitz(1 / root, float(problem.k), True, why)
    one, other = np.delete(exchanges, 1, axis=1), np.delete(exchanges, 0, axis=1)
    moved, changed = np.abs(_means(problem)[one[:, 0]] - _means(problem)[other[:, 0]]), _changes(problem, one, other)
    if not (apart := moved > _SAME).any():
        return Lipschitz(0.0, 0.0, False, "the arms of all exchanges have equal means: nothing to compare")
    one, other, moved, changed = one[apart], other[apart], moved[apart], changed[apart]
    noise = _ERRORS * problem.value_error / _width(problem)
    seen = changed + noise > _SAME
    fall = np.where(seen, moved / np.where(seen, changed + noise, 1.0), np.inf)
    rise = max(_rise(problem, one, other, noise), _rise(problem, *_random_pairs(problem), noise))
    worst, extent = int(np.argmax(fall)), f"worst of {'all ' if every else ''}{len(moved):,} exchanges"
    if fall[worst] < rise:
        return Lipschitz(rise, float(fall[worst]), False, f"the largest change of the reward ({extent})")
    arms = f"arm {one[worst, 0]} for {other[worst, 0]} moves a mean by {moved[worst]:.4g}"
    evidence = f"{arms}, the reward by {changed[worst]:.4g} ({extent})"
    return Lipschitz(rise, float(fall[worst]), False, evidence)


def _rise(problem: Problem, one: IntArray, other: IntArray, noise: float) -> float:
    """Return the largest change of the reward per change of the arms' means, over pairs of subsets."""
    means = _means(problem)
    apart = np.sort(means[one], axis=1) - np.sort(means[other], axis=1)  # sorted means are the closest match
    moved, changed = np.sqrt((apart * apart).sum(axis=1)), _changes(problem, one, other)
    ratios = np.maximum(changed - noise, 0)[moved > _SAME] / moved[moved > _SAME]
    return float(ratios.max(initial=0.0))


def _random_pairs(problem: Problem) -> tuple[IntArray, IntArray]:
    rng = np.random.default_rng(_SEED)
    pairs = 50 if problem.value_error else min(_PAIRS, max(16, 2**22 // max(problem.n_arms, problem.k**2)))
    one, other = (np.argsort(rng.random((pairs, problem.n_arms)), axis=1)[:, : problem.k] for _ in range(2))
    return one, other


def _means(problem: Problem) -> FloatArray:
    """Return the arms' means, in units of their range."""
    return np.asarray(problem.arms.mean / ((problem.arms.high - problem.arms.low) or 1.0))


def _changes(problem: Problem, one: IntArray, other: IntArray) -> FloatArray:
    """Return the differences of the expected rewards, in units of their range."""
    return np.abs(problem.value(one) - problem.value(other)) / _width(problem)


def _width(problem: Problem) -> float:
    low, high = problem.reward_range
    return high - low
