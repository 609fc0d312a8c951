"""Thompson sampling over all C(N, K) subsets: every subset is an independent arm (Thompson 1933).

The naive baseline that people try first. It assumes no structure, so it keeps all subsets, as arrays. Subsets with the
same count and total, such as all that were never played, have the same posterior and are drawn as one group: the
largest of g draws is one draw from the distribution of the largest, and a random subset of the group has it.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy import special

from kofn.core import BadRecord, FloatArray, IntArray, Plan, Subset, Tally
from kofn.core.fields import Fields, integers, numbers
from kofn.core.plan import ROUNDING
from kofn.core.subsets import all_subsets
from kofn.policies.batching import shares, tenth
from kofn.policies.constrained import Constrained
from kofn.policies.randomised import Randomised, SeededOptions

MEAN, VARIANCE = 1 / 2, 1 / 12
"""Prior mean and variance of a subset's mean in the Gaussian model, as in the Beta model. The noise starts with this
variance, too."""

MOST_DRAWS = 2**13
"""Most draws in one plan; more plays are divided evenly among the draws."""

MOST_ROWS = 2**16
"""Most rows in one plan."""

CELLS = 2**17
"""Most numbers drawn for one plan: draws times different posteriors."""

NEGLIGIBLE = 1e-12
"""Probability of being the largest below which a posterior is not drawn. Higher: faster, less exact."""

COST_OF_QUANTILE = 10
"""Cost of drawing the largest of several Beta draws, which takes a quantile, in units of one draw."""


def _per_subset(policy: Any) -> tuple[int, ...]:
    """Return the shape of an array with a number for each subset that is kept."""
    return (len(policy._subsets),)


class ThompsonSubsets(Constrained, Randomised):
    """Draw the mean of every subset from its posterior, play the subset whose draw is the highest.

    >>> policy = ThompsonSubsets(n_arms=12, k=3, seed=1)
    >>> policy.ask()
    (0, 2, 11)

    The posterior is Beta as long as all rewards are 0 or 1, and Gaussian after the first other reward, with noise
    pooled over all subsets. It is frozen for a tenth of the time elapsed. Under constraints it keeps the allowed
    subsets only.
    """

    name = "thompson-subsets"
    linear_memory = False
    keeps_subsets = True
    fields = Fields(count=integers(_per_subset), total=numbers(_per_subset), squares=numbers(_per_subset))

    def __init__(self, n_arms: int, k: int, **options: Unpack[SeededOptions]) -> None:
        super().__init__(n_arms, k, **options)
        self._subsets = every = all_subsets(self.n_arms, self.k)
        self._places: IntArray | None = None  # of the kept subsets in the lexicographic order of all
        if self._allowed is not None:
            self._subsets = self._allowed.only(every)
            self._places = self._lexicographic(self._subsets)
        self._count: NDArray[np.int64] = np.zeros(len(self._subsets), np.int64)
        self._total: FloatArray = np.zeros(len(self._subsets))
        self._squares: FloatArray = np.zeros(len(self._subsets))

    def best(self) -> Subset:
        """Return the subset with the highest posterior mean among the subsets that were played."""
        played = np.flatnonzero(self._count)
        if not played.size:
            return tuple(self._subsets[0].tolist())
        uniform = (1 + self._total[played]) / (2 + self._count[played])
        means = uniform if self.binary else self._gaussian(played)[0]
        return tuple(self._subsets[played[np.argmax(means)]].tolist())

    @property
    def binary(self) -> bool:
        """Whether all rewards are 0 or 1: then their squares have the same total."""
        return bool(self._total.sum() - self._squares.sum() <= ROUNDING * self._count.sum())

    @property
    def noise(self) -> float:
        """The variance of rewards around the mean of their subset, pooled over all subsets."""
        played = np.flatnonzero(self._count)
        n, total = self._count[played], self._total[played]
        around = np.maximum(self._squares[played] - total * total / n, 0.0)
        return float((VARIANCE + around.sum()) / (1 + (n - 1).sum()))

    def _next(self) -> Plan:
        members, starts, sizes = self._candidates()
        plays = tenth(int(self._count.sum()))
        cost = np.where(sizes > 1, COST_OF_QUANTILE, 1).sum() if self.binary else len(sizes)
        draws = max(1, min(plays, MOST_DRAWS, CELLS // int(cost)))
        rng = self._rng()
        group = np.argmax(self._highest(members[starts], sizes, draws, rng), axis=1)
        group = np.resize(group, min(plays, MOST_ROWS))  # the plays of a draw go to many subsets of its group
        drawn = members[starts[group] + rng.integers(sizes[group])]
        leaders, which = np.unique(drawn, return_inverse=True)
        return Plan(self._subsets[leaders], np.bincount(which, shares(plays, len(group))).astype(np.int64))

    def _candidates(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return the groups (all subsets, start and size of each group), without those that are negligible."""
        members, starts = self._groups()
        sizes = np.diff(np.append(starts, len(members)))
        some = members[starts]
        least = self._quantile(
            some, -np.expm1(math.log(NEGLIGIBLE) / sizes)
        ).max()  # the largest draw of some group is above it
        lead = sizes * self._tail(some, least) > NEGLIGIBLE
        return members, starts[lead], sizes[lead]

    def _groups(self) -> tuple[IntArray, IntArray]:
        """Return all subsets, grouped by equal count and total, and the start of each group."""
        played = np.flatnonzero(self._count)
        played = played[np.lexsort((self._total[played], self._count[played]))]
        members = np.concatenate([np.flatnonzero(self._count == 0), played])
        count, total = self._count[members], self._total[members]
        return members, np.flatnonzero(np.append(True, (np.diff(count) != 0) | (np.diff(total) != 0)))

    def _highest(self, subsets: IntArray, sizes: IntArray, draws: int, rng: np.random.Generator) -> FloatArray:
        """Return the largest of `sizes[i]` draws from the posterior of each subset, in `draws` rows."""
        beyond = -np.expm1(
            np.log1p(-rng.random((draws, len(subsets)))) / sizes
        )  # the probability that one draw is larger
        if not self.binary:
            return self._quantile(subsets, beyond)
        highest, alike = rng.beta(*self._beta(subsets), beyond.shape), sizes > 1
        highest[:, alike] = self._quantile(subsets[alike], beyond[:, alike])
        return highest

    def _quantile(self, subsets: IntArray, beyond: FloatArray) -> FloatArray:
        """Return the value that a draw from each subset's posterior exceeds with this probability."""
        if self.binary:
            return np.asarray(special.betainccinv(*self._beta(subsets), beyond))
        mean, deviation = self._gaussian(subsets)
        return np.asarray(mean - deviation * special.ndtri(beyond))

    def _tail(self, subsets: IntArray, value: float) -> FloatArray:
        """Return the probability that a draw from each subset's posterior exceeds `value`."""
        if self.binary:
            return np.asarray(special.betaincc(*self._beta(subsets), value))
        mean, deviation = self._gaussian(subsets)
        return np.asarray(special.ndtr((mean - value) / deviation))

    def _beta(self, subsets: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the parameters of each posterior in the Beta model; the prior is uniform."""
        return 1 + self._total[subsets], 1 + self._count[subsets] - self._total[subsets]

    def _gaussian(self, subsets: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the standard deviation of each posterior in the Gaussian model."""
        noise = self.noise
        precision = 1 / VARIANCE + self._count[subsets] / noise
        return (MEAN / VARIANCE + self._total[subsets] / noise) / precision, 1 / np.sqrt(precision)

    def _learn(self, plan: Plan, tally: Tally) -> None:
        rows = self._positions(plan.subsets)
        self._count[rows] += tally.count
        self._total[rows] += tally.total
        self._squares[rows] += tally.squares

    def _positions(self, subsets: IntArray) -> IntArray:
        """Return the positions of these subsets among those that are kept."""
        places = self._lexicographic(subsets)
        return places if self._places is None else self._places.searchsorted(places)

    def _lexicographic(self, subsets: IntArray) -> IntArray:
        """Return the positions of these subsets in the lexicographic order of all."""
        n, k = self.n_arms, self.k
        # The subsets after a given one have, for some i, the same arms before place i and a larger arm at i.
        after = special.comb(n - 1 - subsets.astype(np.int64), k - np.arange(k), exact=False)
        return np.asarray(math.comb(n, k) - 1 - np.rint(after).astype(np.int64).sum(axis=1))

    def _loaded(self) -> None:
        count, total, squares = self._count, self._total, self._squares
        slack = ROUNDING * count
        fits = (total >= -slack) & (total <= count + slack) & (squares <= total + slack)
        if not (fits & (count * squares >= total * total - count * slack)).all():
            raise BadRecord("a total and its squares must be possible for its count of rewards in [0, 1]")
