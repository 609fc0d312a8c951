"""Accept and reject arms on direct comparisons with one pivot arm, under the paper's assumptions, without a model.

Exchanging a worse arm for a better one improves every subset. So rewards of two subsets that differ in one exchange of
the pivot for arm i show which of the two is better, whatever the other K - 1 arms are. A part of each plan plays such
pairs, one exchange away from the incumbent, for every arm that is not yet distinguished from the pivot. Arms that are
proved better than the pivot are in every subset that is played, arms that are proved worse are in none. When K arms
are proved better than the pivot, or N - K arms worse, the pivot and all arms on its other side are decided for good,
and another pivot follows. docs/background/guarantee.md has the theorem and its proof; its symbols are those used here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kofn.constraints.allowed import Allowed
from kofn.core import BadInput, BadRecord, FloatArray, IntArray, Plan, Policy, Tally
from kofn.core.fields import Fields, Part, integer, integers, number, numbers, part
from kofn.policies.batching import tenth, top_subset
from kofn.policies.elimination import ACCEPTED, REJECTED, Elimination

SHARE = 1 / 10
"""Part of the plays that compare arms with the pivot, while arms are undecided. Higher: earlier proofs and a smaller
bound; more plays of arms that the model has given up."""

FAILURE = 0.01
"""Probability that any decision is ever wrong. Lower: decisions need more plays, in proportion to its logarithm."""

WARM_UP = 25
"""Plays per arm before the first pivot is chosen. Higher: a better first pivot, and a later start."""

MOST_COMPARED = 256
"""Most arms compared in one plan; those with the fewest comparisons come first. Higher: longer plans of many rows."""

SLACK = 3
"""Comparisons by which the least compared arm may lag behind SHARE * plays / N: plans have whole numbers of plays."""

ROUNDINGS = 1.001
"""Factor of the bound for plans of later pivots, which begin at other plays than plans of the first pivot."""

LEVELS = np.arange(64)
"""Levels k of the confidence bound; level k is the tightest at a variance of 2^(k - 1)."""


class Comparisons(NamedTuple):
    """The rows of a plan that compare arms with the pivot. Row 0 is the incumbent."""

    plan: Plan
    arms: IntArray
    row: IntArray  # of each arm
    base: IntArray  # the row that each arm is compared with
    sign: FloatArray  # 1 if the row has the arm and the base the pivot, -1 the other way round


@dataclass
class Guarantee(Part):
    """What is proved about the arms: decisions, and comparisons of the undecided arms with the pivot."""

    fields = Fields(
        elimination=part(Elimination, flat=True),
        pivot=integer(-1),
        pivots=integer(),
        plays=integer(),
        compared=integer(),
        level=number(above=-1e-9, most=1 + 1e-9),
        count=integers(),
        gain=numbers(),
        variance=numbers(least=0.0),
    )

    elimination: Elimination
    pivot: int  # -1 before the first pivot and after the last
    pivots: int  # number of pivots so far
    plays: int  # with this pivot
    compared: int  # of these, plays that compare arms
    level: float  # the mean reward of the incumbent in the last plan
    count: NDArray[np.int64]  # comparisons of each arm with the pivot
    gain: FloatArray  # sum over comparisons of the reward with the arm minus the reward with the pivot
    variance: FloatArray  # sum of squared deviations of these rewards from what was expected

    @classmethod
    def blank(cls, n_arms: int, k: int, allowed: Allowed | None = None) -> Guarantee:
        """Return a guarantee without plays; arms that constraints fix are decided from the start."""
        none, elimination = np.zeros(n_arms), Elimination.at_start(n_arms, k, allowed)
        return cls(elimination, -1, 0, 0, 0, 0.5, np.zeros(n_arms, np.int64), none, none.copy())

    @property
    def decided(self) -> bool:
        """Whether the best K arms are proved."""
        return self.elimination.decided

    def proved(self) -> tuple[IntArray, IntArray]:
        """Return the undecided arms that are proved better, and those that are proved worse, than the pivot."""
        undecided = self.elimination.undecided
        if self.pivot < 0:
            return undecided[:0], undecided[:0]
        gain = self.gain[undecided]
        far = np.abs(gain) > radius(self.count[undecided], self.variance[undecided], len(self.count), self.pivots)
        return undecided[far & (gain > 0)], undecided[far & (gain < 0)]

    def allowed(self, subsets: IntArray, ranking: FloatArray) -> IntArray:
        """Return the subsets with all arms proved to be in and without those proved to be out.

        What is left over of a subset is filled up, or cut, by `ranking`.
        """
        status = self.elimination.status
        better, worse = self.proved()
        required, banned = status == ACCEPTED, status == REJECTED
        required[better], banned[worse] = True, True
        most = int(np.count_nonzero(required))
        wrong = banned[subsets].any(axis=1) | (required[subsets].sum(axis=1) < most)
        if not wrong.any():
            return subsets
        k = subsets.shape[1]
        inside = np.flatnonzero(required)
        free = np.flatnonzero(~(required | banned))
        fill = free[list(top_subset(ranking[free], min(k - most, len(free))))]
        found = subsets.copy()
        for row in np.flatnonzero(wrong):
            own = subsets[row][~(required | banned)[subsets[row]]]
            own = own[np.argsort(-ranking[own], kind="stable")][: k - most]
            others = fill[~np.isin(fill, own)]
            others = others[np.argsort(-ranking[others], kind="stable")][: k - most - len(own)]
            found[row] = np.sort(np.concatenate([inside, own, others]))
        return found

    def longest(self, plays: int) -> int:
        """Return the longest plan after `plays` plays: a tenth of the plays with this pivot, or one of each arm."""
        if self.pivot < 0:
            return plays
        return max(tenth(self.plays), len(self.elimination.undecided))

    def comparisons(self, incumbent: IntArray, ranking: FloatArray, plays: int) -> Comparisons | None:
        """Return the comparisons of a plan of `plays` plays beside an allowed incumbent; None if none are due."""
        due = min(math.floor(SHARE * (self.plays + plays)) - self.compared, plays // 2)
        if self.pivot < 0 or due < 2:
            return None
        inside = np.zeros(len(ranking), bool)
        inside[incumbent] = True
        unresolved = self._unresolved()
        arms = unresolved[np.argsort(self.count[unresolved], kind="stable")][: min(due - 1, MOST_COMPARED)]
        times = due // (len(arms) + 1)
        out, into = self._exchange(unresolved, inside, ranking)
        subsets, row = [incumbent, _swapped(incumbent, out, into)], np.ones(len(arms), np.int64)
        for each, arm in enumerate(arms.tolist()):
            if arm not in (out, into):
                row[each] = len(subsets)
                subsets.append(_swapped(incumbent, *((arm, into) if inside[arm] else (out, arm))))
        base = np.where(inside[arms] == inside[self.pivot], 1, 0)
        sign = np.where(inside[arms], -1.0, 1.0)
        counts = np.full(len(subsets), times)
        counts[0] = min(plays - times * (len(subsets) - 1) - 1, times * math.isqrt(4 * len(arms)))
        return Comparisons(Plan(np.array(subsets), counts), arms, row, base, sign)

    def _unresolved(self) -> IntArray:
        undecided = self.elimination.undecided
        known = np.concatenate([*self.proved(), [self.pivot]])
        return undecided[~np.isin(undecided, known)]

    def _exchange(self, arms: IntArray, inside: NDArray[np.bool_], ranking: FloatArray) -> tuple[int, int]:
        """Return the arms of the second base: the incumbent with `out` exchanged for `into`; one is the pivot."""
        if inside[self.pivot]:
            outside = arms[~inside[arms]]
            return self.pivot, int(outside[ranking[outside].argmax()])
        arms = arms[inside[arms]]
        return int(arms[ranking[arms].argmin()]), self.pivot

    def learn(self, found: Comparisons | None, plan: Plan, tally: Tally, learned: int, ranking: FloatArray) -> None:
        """Include the tally of a plan whose last rows are these comparisons, then decide what is proved."""
        if self.pivot >= 0:
            self.plays += int(tally.count.sum())
        if found is not None:
            self._compare(found, _pooled(plan.subsets, tally, len(found.plan)))
        self._decide()
        if self.pivot < 0 and not self.decided and learned >= WARM_UP * len(ranking):
            self._choose_pivot(ranking)

    def _compare(self, found: Comparisons, tally: Tally) -> None:
        n, mean = tally.count, tally.total / tally.count
        expected = np.full(len(n), self.level)
        expected[found.row] += found.sign * self.gain[found.arms] / np.maximum(self.count[found.arms], 1)
        expected = np.clip(expected, 0.0, 1.0)
        squares = tally.squares - 2 * expected * tally.total + n * expected**2
        times = found.plan.times[found.row]
        weights = [(times / n[rows]) ** 2 for rows in (found.row, found.base)]  # at most 1: no row has more plays
        self.count[found.arms] += times
        self.gain[found.arms] += found.sign * times * (mean[found.row] - mean[found.base])
        self.variance[found.arms] += np.maximum(weights[0] * squares[found.row] + weights[1] * squares[found.base], 0.0)
        self.compared += int(found.plan.times[1:].sum())
        self.level = float(min(max(mean[0], 0.0), 1.0))

    def _decide(self) -> None:
        """Decide the pivot and the arms on one side of it, if enough arms are proved on the other."""
        better, worse = self.proved()
        places, undecided = self.elimination.places, len(self.elimination.undecided)
        if self.pivot < 0 or (len(better) < places and len(worse) < undecided - places):
            return
        side, status = (worse, REJECTED) if len(better) >= places else (better, ACCEPTED)
        self.elimination.status[side] = status
        self.elimination.status[self.pivot] = status
        self.pivot = -1

    def _choose_pivot(self, ranking: FloatArray) -> None:
        """Take an arm on the boundary of the top K as the pivot, and forget comparisons with the last one.

        It is on the side with fewer arms. Each pivot decides at least itself, so few pivots follow.
        """
        undecided, places = self.elimination.undecided, self.elimination.places
        order = undecided[np.argsort(-ranking[undecided], kind="stable")]
        self.pivot = int(order[places - 1 if len(undecided) >= 2 * places else places])
        self.pivots += 1
        self.plays = self.compared = 0
        self.count, self.gain, self.variance = np.zeros_like(self.count), 0 * self.gain, 0 * self.variance

    def _loaded(self, policy: Policy) -> None:
        if self.pivot >= policy.n_arms or (self.pivot >= 0 and self.elimination.status[self.pivot]):
            raise BadRecord(f"pivot must be an undecided arm or -1; got {self.pivot}")
        if (self.pivot >= 0 and not self.pivots) or self.compared > self.plays:
            raise BadRecord("pivots must count the pivot, and plays the compared plays")
        if (np.abs(self.gain) > self.count * (1 + 1e-9)).any():
            raise BadRecord("a gain must be between -1 and 1 times its count of comparisons")


def radius(count: IntArray, variance: FloatArray, n_arms: int, pivots: int) -> FloatArray:
    """Return the bounds on |gain - its expectation| that hold for all arms, pivots and numbers of comparisons at once.

    Each is the least of two bounds: by Hoeffding, for independent rewards in [0, 1], and by the squared deviations.
    """
    x = np.log(4 * n_arms * pivots * (pivots + 1) * (LEVELS + 1.0) * (LEVELS + 2.0) / FAILURE)
    scale = np.sqrt(2.0 ** (LEVELS - 1) / (2 * x))
    steep = 1 / (1 + scale)
    slope = (-np.log1p(-steep) - steep) / steep
    bernstein = (x / steep)[:, None] + slope[:, None] * np.asarray(variance, float)
    hoeffding = (x * scale)[:, None] + np.asarray(count, float) / (4 * scale)[:, None]
    return np.asarray(np.minimum(bernstein, hoeffding).min(axis=0), float)


def regret_bound(n_arms: int, k: int, plays: int, *, comparability: float = 1.0, pivots: int = 1) -> float:
    """Return the bound on the regret of this number of plays; it holds for all numbers at once, with probability 0.99.

    `comparability` is the largest ratio of the gains by the same exchange of arms beside different arms: 1 for a mean.
    `pivots` is the number of pivots used, at most N. With more than MOST_COMPARED arms there is no useful bound.
    """
    if n_arms > MOST_COMPARED:
        raise BadInput(f"the bound holds for at most {MOST_COMPARED} arms; got {n_arms:,}")
    if not comparability >= 1:
        raise BadInput(f"comparability must be at least 1; got {comparability!r}")
    part, total = -(-plays // pivots), 0.0
    done, length, swaps = 0, n_arms, min(k, n_arms - k)
    while done < part:
        length = min(max(done // 10, n_arms), part - done)
        count = max(math.floor(SHARE * done / n_arms) - SLACK, 1)
        [spread] = radius(np.array([count]), np.array([math.inf]), n_arms, pivots)
        total += length * min(1.0, 4 * comparability * swaps * spread / count)
        done += length
    return min(float(plays), math.ceil(1.1 * WARM_UP * n_arms) + ROUNDINGS * pivots * total)


def _pooled(subsets: IntArray, tally: Tally, last: int) -> Tally:
    """Return the sums of the last rows. Each includes the sums of all rows with the same subset.

    The row in which a reward is counted may depend on when it arrives, and the arrival on the reward.
    """
    _, which = np.unique(subsets, axis=0, return_inverse=True)
    which = which.reshape(-1)
    rows = which[len(which) - last :]
    count, total, squares = (
        np.bincount(which, sums).astype(float)[rows] for sums in (tally.count, tally.total, tally.squares)
    )
    return Tally(count.astype(np.int64), total, squares)


def _swapped(subset: IntArray, out: int, into: int) -> IntArray:
    swapped = subset.copy()
    swapped[np.searchsorted(subset, out)] = into
    return np.sort(swapped)
