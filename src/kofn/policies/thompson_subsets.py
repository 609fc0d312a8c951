"""Thompson sampling over all C(N, K) subsets: every subset is an arm of its own (Thompson 1933).

The naive baseline that people try first. No structure is assumed, so all subsets are kept, as arrays. Those with the
same count and total, such as all that were never played, have the same posterior, and are drawn as one: the largest of
g draws from it is one draw from the distribution of the largest, and it belongs to a random one of the g.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from kofn.core import (
    BadRecord,
    Direction,
    FloatArray,
    IntArray,
    Plan,
    Seed,
    Subset,
    Tally,
    finite_numbers,
    whole_numbers,
)
from kofn.policies.batching import shares, tenth
from kofn.policies.randomised import Randomised
from kofn.policies.registry import register
from kofn.subsets import all_subsets

MEAN, VARIANCE = 1 / 2, 1 / 12
"""The prior of a subset's mean in the Gaussian model: as wide as the Beta model's. The noise starts there, too."""

MOST_DRAWS = 2**13
"""Draws in one plan at the most; more plays than that are shared out evenly among the draws."""

MOST_ROWS = 2**16
"""Rows in one plan at the most."""

CELLS = 2**17
"""Numbers drawn for one plan at the most: draws times different posteriors."""

NEVER = 1e-12
"""Posteriors whose chance to lead is below this are not drawn."""

COST_OF_QUANTILE = 10
"""What the largest of several Beta draws costs: it takes a quantile, as slow as so many draws."""

ROUNDING = 1e-9


@register
class ThompsonSubsets(Randomised):
    """Draw the mean of every subset from its posterior, play the subset whose draw is the highest.

    >>> policy = ThompsonSubsets(n_arms=12, k=3, seed=1)
    >>> policy.ask()
    (0, 2, 11)

    The posterior is Beta as long as all rewards are 0 or 1, and Gaussian from the first other one, with a noise that is
    learned from all subsets together. It is frozen for a tenth of the time elapsed.
    """

    name = "thompson-subsets"
    linear_memory = False
    keeps_subsets = True

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        seed: Seed = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        direction: Direction = "maximize",
    ) -> None:
        super().__init__(n_arms, k, seed=seed, reward_range=reward_range, direction=direction)
        self._subsets: IntArray = all_subsets(self.n_arms, self.k)
        self._count: NDArray[np.int64] = np.zeros(len(self._subsets), np.int64)
        self._total: FloatArray = np.zeros(len(self._subsets))
        self._squares: FloatArray = np.zeros(len(self._subsets))
        self._begin()

    def best(self) -> Subset:
        """The subset, of those played, with the highest posterior mean."""
        played = np.flatnonzero(self._count)
        if not played.size:
            return tuple(self._subsets[0].tolist())
        uniform = (1 + self._total[played]) / (2 + self._count[played])
        means = uniform if self.binary else self._gaussian(played)[0]
        return tuple(self._subsets[played[np.argmax(means)]].tolist())

    @property
    def binary(self) -> bool:
        """Whether all rewards seen are 0 or 1: then their squares add up to what they do."""
        return bool(self._total.sum() - self._squares.sum() <= ROUNDING * self._count.sum())

    @property
    def noise(self) -> float:
        """The variance of rewards around the mean of their subset, pooled over all subsets."""
        played = np.flatnonzero(self._count)
        n, total = self._count[played], self._total[played]
        around = np.maximum(self._squares[played] - total * total / n, 0.0)
        return float((VARIANCE + around.sum()) / (1 + (n - 1).sum()))

    def _next(self) -> Plan:
        members, starts, sizes = self._contenders()
        plays = tenth(int(self._count.sum()))
        cost = np.where(sizes > 1, COST_OF_QUANTILE, 1).sum() if self.binary else len(sizes)
        draws = max(1, min(plays, MOST_DRAWS, CELLS // int(cost)))
        rng = self._rng()
        group = np.argmax(self._highest(members[starts], sizes, draws, rng), axis=1)
        group = np.resize(group, min(plays, MOST_ROWS))  # a draw's plays go to many of those that are alike
        drawn = members[starts[group] + rng.integers(sizes[group])]
        leaders, which = np.unique(drawn, return_inverse=True)
        return Plan(self._subsets[leaders], np.bincount(which, shares(plays, len(group))).astype(np.int64))

    def _contenders(self) -> tuple[IntArray, IntArray, IntArray]:
        """The groups (all subsets, where each group starts among them, its size), without those that never lead."""
        members, starts = self._groups()
        sizes = np.diff(np.append(starts, len(members)))
        some = members[starts]
        least = self._quantile(some, -np.expm1(math.log(NEVER) / sizes)).max()  # some group's highest is above it
        lead = sizes * self._tail(some, least) > NEVER
        return members, starts[lead], sizes[lead]

    def _groups(self) -> tuple[IntArray, IntArray]:
        """All subsets, those with the same count and total side by side, and where each such group starts."""
        played = np.flatnonzero(self._count)
        played = played[np.lexsort((self._total[played], self._count[played]))]
        members = np.concatenate([np.flatnonzero(self._count == 0), played])
        count, total = self._count[members], self._total[members]
        return members, np.flatnonzero(np.append(True, (np.diff(count) != 0) | (np.diff(total) != 0)))

    def _highest(self, subsets: IntArray, sizes: IntArray, draws: int, rng: np.random.Generator) -> FloatArray:
        """The largest of `sizes[i]` draws from the posterior of each subset: a row for each of so many draws."""
        beyond = -np.expm1(np.log1p(-rng.random((draws, len(subsets)))) / sizes)  # the chance that one draw is larger
        if not self.binary:
            return self._quantile(subsets, beyond)
        highest, alike = rng.beta(*self._beta(subsets), beyond.shape), sizes > 1
        highest[:, alike] = self._quantile(subsets[alike], beyond[:, alike])
        return highest

    def _quantile(self, subsets: IntArray, beyond: FloatArray) -> FloatArray:
        """What a draw from each subset's posterior exceeds with this chance."""
        if self.binary:
            return np.asarray(special.betainccinv(*self._beta(subsets), beyond))
        mean, deviation = self._gaussian(subsets)
        return np.asarray(mean - deviation * special.ndtri(beyond))

    def _tail(self, subsets: IntArray, value: float) -> FloatArray:
        """The chance that a draw from each subset's posterior exceeds a value."""
        if self.binary:
            return np.asarray(special.betaincc(*self._beta(subsets), value))
        mean, deviation = self._gaussian(subsets)
        return np.asarray(special.ndtr((mean - value) / deviation))

    def _beta(self, subsets: IntArray) -> tuple[FloatArray, FloatArray]:
        """Wins and losses of each posterior in the Beta model, one each to begin with."""
        return 1 + self._total[subsets], 1 + self._count[subsets] - self._total[subsets]

    def _gaussian(self, subsets: IntArray) -> tuple[FloatArray, FloatArray]:
        """The mean and the standard deviation of each posterior in the Gaussian model."""
        noise = self.noise
        precision = 1 / VARIANCE + self._count[subsets] / noise
        return (MEAN / VARIANCE + self._total[subsets] / noise) / precision, 1 / np.sqrt(precision)

    def _learn(self, plan: Plan, tally: Tally) -> None:
        rows = self._places(plan.subsets)
        self._count[rows] += tally.count
        self._total[rows] += tally.total
        self._squares[rows] += tally.squares

    def _places(self, subsets: IntArray) -> IntArray:
        """Where these subsets stand among all of them: in lexicographic order, subset after subset."""
        n, k = self.n_arms, self.k
        # Those that come after a subset have, for some place i, the same arms before i and a larger one at i.
        after = special.comb(n - 1 - subsets.astype(np.int64), k - np.arange(k), exact=False)
        return np.asarray(len(self._subsets) - 1 - np.rint(after).astype(np.int64).sum(axis=1))

    def _state(self) -> dict[str, Any]:
        return {"count": self._count.tolist(), "total": self._total.tolist(), "squares": self._squares.tolist()}

    def _load(self, state: Mapping[str, Any]) -> None:
        count = whole_numbers("count", state["count"])
        total, squares = finite_numbers("total", state["total"]), finite_numbers("squares", state["squares"])
        if not count.shape == total.shape == squares.shape == self._count.shape:
            raise BadRecord(f"it does not have a count, a total and squares for each of {len(self._count):,} subsets")
        slack = ROUNDING * count
        fits = (total >= -slack) & (total <= count + slack) & (squares <= total + slack)
        if not (fits & (count * squares >= total * total - count * slack)).all():
            raise BadRecord("its totals and squares do not fit its counts")
        self._count, self._total, self._squares = count, total, squares
