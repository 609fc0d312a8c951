"""Which of the paper's assumptions a problem meets, with a counterexample for each that it does not.

All cases are tried if they are few (0/1 vectors of Bernoulli arms, small N and K). Otherwise a fixed number of cases is
drawn with a fixed seed, and the report says so. Dominance is checked between neighbours only: it is transitive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kofn.core import FloatArray, IntArray
from kofn.lab.problems.arms import Arms
from kofn.lab.problems.distributions import Bernoulli
from kofn.lab.problems.lipschitz import Lipschitz, estimate_lipschitz
from kofn.lab.problems.sampling import MOST_OUTCOMES, outcomes
from kofn.lab.rewards import Reward, cross_selling, maximum, mean, minimum, total

if TYPE_CHECKING:
    from kofn.lab.problems.problem import Problem

_TRIES = 10_000
"""Random cases per assumption. More of them find rarer counterexamples."""
_MOST_SWAPS = 20_000
"""Limit on the replacements of an arm that are tried in full; above it, random ones are tried."""
_SEED = 3
_SAME = 1e-12
"""Differences up to this are rounding, relative to the value."""

SYMMETRIC = "symmetric"
INCREASING = "strictly increasing"
EXPECTED = "increasing on average"
DOMINANCE = "dominance"


@dataclass(frozen=True)
class Finding:
    """Whether one assumption holds, with the evidence for it or a counterexample."""

    assumption: str
    holds: bool
    evidence: str


@dataclass(frozen=True)
class Check:
    """Which of the paper's assumptions a problem meets; true if it meets those that CMAB-SM needs.

    >>> from kofn.lab.problems import Bernoulli, Problem
    >>> from kofn.lab.rewards import maximum
    >>> check = Problem(Bernoulli([0.1, 0.5, 0.3]), maximum, k=2).check()
    >>> print(check)
    symmetric               yes  by definition
    strictly increasing     no   weakly: f(0, 1) = f(1, 1) = 1
    increasing on average   yes  all 3 ways to replace an arm by a better one
    dominance               yes  every two arms
    Lipschitz constant      U >= 2: arm 0 for 2 moves a mean by 0.2, the reward by 0.1 (worst of all 3 exchanges)
    >>> bool(check), check.holds["strictly increasing"]
    (True, False)

    The paper's sorting needs a symmetric reward, ordered arms, and an *expected* reward that rises with a better arm. A
    reward that rises strictly is sufficient for this, but not necessary: a maximum rises only weakly. `lipschitz` has
    what is known about U, the constant of the paper's bounds; it is None where single arms pay nothing.
    """

    findings: tuple[Finding, ...]
    lipschitz: Lipschitz | None = None

    @property
    def holds(self) -> dict[str, bool]:
        """Whether each assumption holds, by its name."""
        return {each.assumption: each.holds for each in self.findings}

    def __bool__(self) -> bool:
        return all(each.holds for each in self.findings if each.assumption != INCREASING)

    def __str__(self) -> str:
        lines = [f"{each.assumption:24}{'yes' if each.holds else 'no':5}{each.evidence}" for each in self.findings]
        return "\n".join(lines if self.lipschitz is None else [*lines, f"{'Lipschitz constant':24}{self.lipschitz}"])


def check_problem(problem: Problem) -> Check:
    """Check the four assumptions, and estimate the Lipschitz constant."""
    exchanges, every = _swaps(problem)
    return Check(
        (
            _symmetric(problem.arms, problem.reward, problem.k),
            _increasing(problem.arms, problem.reward, problem.k),
            _increasing_on_average(problem, exchanges, every=every),
            Finding(DOMINANCE, *dominance(problem.arms)),
        ),
        estimate_lipschitz(problem, exchanges, every=every),
    )


def _symmetric(arms: Arms, reward: Reward, k: int) -> Finding:
    if reward in (mean, total, maximum, minimum, cross_selling):
        return Finding(SYMMETRIC, True, "by definition")
    x, permuted, every = _permutations(arms, k)
    paid, again = reward(x), reward(permuted)
    differs = np.abs(paid - again) > _SAME * np.maximum(1, np.abs(paid))
    if differs.any():
        at = int(np.argmax(differs))
        return Finding(SYMMETRIC, False, f"{_call(x[at], paid[at])} but {_call(permuted[at], again[at])}")
    return Finding(SYMMETRIC, True, _extent(len(x), every, "permutations of rewards"))


def _permutations(arms: Arms, k: int) -> tuple[FloatArray, FloatArray, bool]:
    """Return vectors, a permutation of each (sorted, if all 0/1 vectors are tried), and whether these are all cases."""
    if isinstance(arms, Bernoulli) and 2**k <= MOST_OUTCOMES:
        x = outcomes(2, k).astype(np.float64)
        return x, np.sort(x, axis=1), True
    rng = np.random.default_rng(_SEED)
    x = _some_rewards(arms, k, rng)
    return x, rng.permuted(x, axis=1), False


def _increasing(arms: Arms, reward: Reward, k: int) -> Finding:
    if reward in (mean, total) or (reward == cross_selling and arms.low >= 0):
        return Finding(INCREASING, True, "by definition")
    x, raised, every = _raises(arms, k)
    paid, more = reward(x), reward(raised)
    rise = more - paid
    if (falls := rise < -_SAME * np.maximum(1, np.abs(paid))).any():
        at = int(np.argmax(falls))
        return Finding(INCREASING, False, f"{_call(x[at], paid[at])} but {_call(raised[at], more[at])}")
    if (rise == 0).any():
        at = int(np.argmax(rise == 0))
        vectors = f"f{_vector(x[at])} = f{_vector(raised[at])}"
        return Finding(INCREASING, False, f"weakly: {vectors} = {paid[at]:.4g}")
    return Finding(INCREASING, True, _extent(len(x), every, "raises of one arm"))


def _raises(arms: Arms, k: int) -> tuple[FloatArray, FloatArray, bool]:
    """Return vectors, the same vectors with one entry larger, and whether these are all cases."""
    if isinstance(arms, Bernoulli) and 2**k <= MOST_OUTCOMES:
        cases = outcomes(2, k).astype(np.float64)
        row, place = np.nonzero(cases == 0)
        x, larger, every = cases[row], np.ones(len(row)), True
    else:
        rng = np.random.default_rng(_SEED)
        x, other = _some_rewards(arms, k, rng), _some_rewards(arms, k, rng)
        place = rng.integers(k, size=len(x))
        larger, every = other[np.arange(len(x)), place], False
        rises = larger > x[np.arange(len(x)), place]
        x, place, larger = x[rises], place[rises], larger[rises]
    raised = x.copy()
    raised[np.arange(len(x)), place] = larger
    return x, raised, every


def _some_rewards(arms: Arms, k: int, rng: np.random.Generator) -> FloatArray:
    """Draw rewards of random arms, independently for each place."""
    tries = min(_TRIES, max(16, 2**22 // k))
    return arms.draw(rng.integers(arms.n_arms, size=(tries, k)), rng)


def _increasing_on_average(problem: Problem, groups: IntArray, *, every: bool) -> Finding:
    """Return whether a better arm in any place gives a better expected reward."""
    groups = _weaker_first(problem.arms, groups)
    if not len(groups):
        return Finding(EXPECTED, True, "no arm dominates another: nothing to compare")
    weak, strong = np.delete(groups, 1, axis=1), np.delete(groups, 0, axis=1)
    if not every:  # rotate the places from try to try, in case they matter
        places = (np.arange(problem.k) + np.arange(len(groups))[:, None]) % problem.k
        weak, strong = np.take_along_axis(weak, places, axis=1), np.take_along_axis(strong, places, axis=1)
    low, high = problem.value(weak), problem.value(strong)
    noise = 6 * problem.value_error + _SAME * np.maximum(1, np.abs(low))
    if (falls := high - low < -noise).any():
        at = int(np.argmax(falls))
        return Finding(EXPECTED, False, f"{_mean(weak[at], low[at])} but {_mean(strong[at], high[at])}")
    if not problem.value_error and (same := np.abs(high - low) <= noise).any():
        at = int(np.argmax(same))
        sides = f"{_mean(weak[at], low[at])} and {_mean(strong[at], high[at])}"
        return Finding(EXPECTED, False, f"weakly: {sides}")
    doubt = f", to within 6 standard errors of {problem.value_error:.1g}" if problem.value_error else ""
    return Finding(EXPECTED, True, _extent(len(groups), every, "ways to replace an arm by a better one") + doubt)


def _swaps(problem: Problem) -> tuple[IntArray, bool]:
    """Return rows of K+1 arms (each of the first two is played with the others), and whether these are all cases."""
    n_arms, k = problem.n_arms, problem.k
    sampled = bool(problem.value_error)
    if math.comb(n_arms, k + 1) * math.comb(k + 1, 2) <= _MOST_SWAPS and problem.reward.symmetric and not sampled:
        rows = [
            (i, j, *(arm for arm in group if arm not in (i, j)))
            for group in combinations(range(n_arms), k + 1)
            for i, j in combinations(group, 2)
        ]
        return np.array(rows), True
    tries = 100 if sampled else min(_TRIES, max(16, 2**22 // max(n_arms, k * k)))
    rng = np.random.default_rng(_SEED)
    return np.argsort(rng.random((tries, n_arms)), axis=1)[:, : k + 1], False


def _weaker_first(arms: Arms, groups: IntArray) -> IntArray:
    """Return the groups whose first two arms are ordered by dominance, the weaker one first."""
    i, j = groups[:, 0], groups[:, 1]
    strength = arms.strength
    if strength is not None:
        ahead = strength[j] - strength[i]
    else:
        some = min(len(groups), 1000)
        groups, i, j = groups[:some], i[:some], j[:some]
        crossing = [arms.crossing(a, b) is not None for a, b in zip(i.tolist(), j.tolist(), strict=True)]
        ahead = arms.mean[j] - arms.mean[i]
        ahead[np.array(crossing) | (np.abs(ahead) <= _SAME)] = 0
    ordered = groups.copy()
    ordered[ahead < 0, :2] = groups[ahead < 0, 1::-1]
    return np.asarray(ordered[ahead != 0])


def dominance(arms: Arms) -> tuple[bool, str]:
    """Return whether every two arms are ordered, with the evidence or a pair that is not."""
    order, crosses, equal = arms.ordering
    if crosses.any():
        return False, _crossing(arms, *_neighbours(order, crosses))
    if equal.any():
        i, j = _neighbours(order, equal)
        return False, f"arms {i} and {j} are equal"
    return True, "every two arms"


def _neighbours(order: IntArray, where: NDArray[np.bool_]) -> tuple[int, int]:
    at = int(np.argmax(where))
    i, j = sorted(order[at : at + 2].tolist())
    return i, j


def _crossing(arms: Arms, i: int, j: int) -> str:
    """Describe where arm i is ahead and where arm j is."""
    points = arms.crossing(i, j) or (arms.low, arms.high)
    curves = arms.survival(np.array(points), np.array([i, j]))
    here, there = (f"P(X >= {x:.4g}) is {a:.4g} and {b:.4g}" for x, a, b in zip(points, *curves, strict=True))
    return f"arms {i} and {j} cross: {here}, but {there}"


def _extent(cases: int, every: bool, what: str) -> str:
    return f"all {cases:,} {what}" if every else f"no counterexample in {cases:,} {what}"


def _call(x: FloatArray, paid: float) -> str:
    return f"f{_vector(x)} = {paid + 0.0:.4g}"  # + 0.0 turns -0 into 0


def _mean(subset: IntArray, value: float) -> str:
    return f"E f = {value:.6g} of arms {_vector(subset)}"


def _vector(x: NDArray[np.floating] | IntArray) -> str:
    """Format a vector; of a long one, the first eight numbers."""
    shown = [f"{each:.4g}" for each in x[:8].tolist()]
    return f"({', '.join(shown)}{', ...' if len(x) > 8 else ''})"
