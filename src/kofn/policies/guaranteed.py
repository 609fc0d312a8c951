"""The default policy with a bound on its regret: arms are accepted and rejected on proofs that need no model.

Exchanging a worse arm for a better one improves every subset. So rewards of two subsets that differ in one exchange of
the pivot for arm i show which of the two is better, whatever the other K - 1 arms are. A part of each plan plays such
pairs, one exchange away from the incumbent, for every arm that is not yet distinguished from the pivot. Arms that are
proved better than the pivot are in every subset that is played, arms that are proved worse are in none. When K arms
are proved better than the pivot, or N - K arms worse, the pivot and all arms on its other side are decided for good,
and another pivot follows. The rest of each plan is drawn by the default policy, which learns from all plays.
docs/background/guarantee.md has the theorem and its proof; its symbols are those used here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Unpack

import numpy as np

from kofn.core import BadInput, BadRecord, FloatArray, Insight, IntArray, Plan, Subset, Tally
from kofn.core.fields import Fields, inner_policy, integer, integers, number, numbers, part
from kofn.policies.batching import tenth, top_subset
from kofn.policies.constrained import Constrained
from kofn.policies.elimination import ACCEPTED, REJECTED, Elimination
from kofn.policies.randomised import Randomised, SeededOptions
from kofn.policies.thompson import Prior, Thompson

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


class ThompsonGuaranteed(Constrained, Randomised):
    """The default policy with a bound on its regret: a tenth of the plays prove which arms are the best.

    >>> policy = ThompsonGuaranteed(n_arms=12, k=3, seed=1)
    >>> while policy.plays < 15_000:
    ...     subset = policy.ask()
    ...     policy.tell(subset, sum(arm > 8 for arm in subset) / 3)
    >>> policy.best(), policy.decided
    ((9, 10, 11), True)

    Under the paper's assumptions, no decision about an arm is ever wrong, with probability 0.99. `prior` is what is
    known about single arms (`kofn.Prior`); no proof depends on it. `constraints` can only say which arms are always in
    or never in.
    """

    name = "thompson-guaranteed"
    takes_constraints = "fixed"
    refuses_constraints = "it compares arms by exchanges that rules may forbid"
    fields = Fields(
        inner=inner_policy(),
        elimination=part(Elimination, flat=True),
        pivot=integer(-1),
        pivots=integer(),
        since=integer(),
        compared=integer(),
        level=number(above=-1e-9, most=1 + 1e-9),
        count=integers(),
        gain=numbers(),
        variance=numbers(least=0.0),
    )

    def __init__(
        self, n_arms: int, k: int, *, prior: Prior | Mapping[str, Any] | None = None, **options: Unpack[SeededOptions]
    ) -> None:
        super().__init__(n_arms, k, prior=None if prior is None else Prior.of(prior).to_dict(), **options)
        self._inner = Thompson(**self.params)
        self._elimination = Elimination.at_start(self.n_arms, self.k, self._allowed)
        self._pivot = -1  # before the first pivot and after the last
        self._pivots = 0  # number of pivots so far
        self._since = 0  # plays with this pivot, or before the first one
        self._compared = 0  # of these, plays that compare arms
        self._level = 0.5  # the mean reward of the incumbent in the last plan
        self._forget()

    def _forget(self) -> None:
        self._count = np.zeros(self.n_arms, np.int64)  # comparisons of each arm with the pivot
        self._gain = np.zeros(self.n_arms)  # sum over comparisons of the reward with the arm minus with the pivot
        self._variance = np.zeros(self.n_arms)  # sum of squared deviations of these rewards from what was expected

    @property
    def decided(self) -> bool:
        """Whether the best K arms are proved."""
        return self._elimination.decided

    def best(self) -> Subset:
        """Return the incumbent of the default policy, corrected by what is proved."""
        return tuple(self._corrected(np.array([self._inner.best()]), self._ranking)[0].tolist())

    def insight(self) -> Insight | None:
        """Return what the default policy knows about its incumbent and each arm."""
        return self._inner.insight()

    @property
    def _ranking(self) -> FloatArray:
        """The effects of all arms by the model."""
        return self._inner._posterior.mean

    def _next(self) -> Plan:
        drawn = self._inner.plan()
        plays = drawn.plays
        if self._pivot >= 0:
            plays = min(plays, max(tenth(self._since), len(self._elimination.undecided)))
        found = self._comparisons(np.array(self.best()), self._ranking, plays)
        drawn = drawn.part(plays - (found.plan.plays if found else 0), self._rng())
        drawn = drawn.keep(drawn.times.nonzero()[0])
        subsets = self._corrected(drawn.subsets, self._ranking)
        if found is None:
            return Plan(subsets, drawn.times)
        return Plan(np.concatenate([subsets, found.plan.subsets]), np.append(drawn.times, found.plan.times))

    def _learn(self, plan: Plan, tally: Tally) -> None:
        found = self._comparisons(np.array(self.best()), self._ranking, plan.plays)
        self._inner._learn_from(plan, tally)
        self._since += plan.plays
        if found is not None:
            self._compare(found, _pooled(plan.subsets, tally, len(found.plan)))
        self._decide()
        if self._pivot < 0 and not self.decided and (self._pivots or self._since >= WARM_UP * self.n_arms):
            self._choose_pivot()

    def _proved(self) -> tuple[IntArray, IntArray]:
        """Return the undecided arms that are proved better, and those that are proved worse, than the pivot."""
        undecided = self._elimination.undecided
        if self._pivot < 0:
            return undecided[:0], undecided[:0]
        gain = self._gain[undecided]
        far = np.abs(gain) > radius(self._count[undecided], self._variance[undecided], self.n_arms, self._pivots)
        return undecided[far & (gain > 0)], undecided[far & (gain < 0)]

    def _corrected(self, subsets: IntArray, ranking: FloatArray) -> IntArray:
        """Return the subsets with all arms proved to be in and without those proved to be out.

        What is left over of a subset is filled up, or cut, by `ranking`.
        """
        required, banned = (self._elimination.status == each for each in (ACCEPTED, REJECTED))
        required[(proved := self._proved())[0]], banned[proved[1]] = True, True
        wrong = banned[subsets].any(axis=1) | (required[subsets].sum(axis=1) < np.count_nonzero(required))
        if not wrong.any():
            return subsets
        order = np.argsort(np.argsort(ranking)) + 2.0 * self.n_arms * (required.astype(int) - banned)
        corrected = subsets.copy()
        for row in np.flatnonzero(wrong):
            score = order.copy()
            score[subsets[row]] += self.n_arms
            corrected[row] = top_subset(score, self.k)
        return corrected

    def _unresolved(self) -> IntArray:
        """Return the undecided arms that are not yet distinguished from the pivot."""
        return np.setdiff1d(self._elimination.undecided, np.concatenate([*self._proved(), [self._pivot]]))

    def _comparisons(self, incumbent: IntArray, ranking: FloatArray, plays: int) -> Comparisons | None:
        """Return the last rows of a plan: comparisons beside an allowed incumbent. None if none are due.

        An arm on the other side of the incumbent's boundary than the pivot is exchanged with it. An arm on the same
        side is exchanged with the best `other` on the other side, and compared with the same exchange of the pivot.
        """
        due = min(math.floor(SHARE * (self._since + plays)) - self._compared, plays // 2)
        if self._pivot < 0 or due < 2:
            return None
        inside = np.zeros(self.n_arms, bool)
        inside[incumbent] = True
        unresolved, within = self._unresolved(), inside[self._pivot]
        arms = unresolved[np.argsort(self._count[unresolved], kind="stable")][: min(due - 1, MOST_COMPARED)]
        across = unresolved[inside[unresolved] != within]
        other = across[(ranking[across] if within else -ranking[across]).argmax()]
        base = (inside[arms] == within).astype(int)
        rest, row = arms != other, np.ones(len(arms), np.int64)
        row[rest] = np.arange(2, 2 + np.count_nonzero(rest))
        pairs = [(self._pivot, other), *zip(arms[rest], np.where(base, other, self._pivot)[rest], strict=True)]
        subsets = [incumbent, *(np.setxor1d(incumbent, pair) for pair in pairs)]
        times = due // (len(arms) + 1)
        counts = np.full(len(subsets), times)
        counts[0] = min(plays - times * (len(subsets) - 1) - 1, times * math.isqrt(4 * len(arms)))
        return Comparisons(Plan(np.array(subsets), counts), arms, row, base, np.where(inside[arms], -1.0, 1.0))

    def _compare(self, found: Comparisons, tally: Tally) -> None:
        """Add the rewards of comparisons."""
        n, mean = tally.count, tally.total / tally.count
        expected = np.full(len(n), self._level)
        expected[found.row] += found.sign * self._gain[found.arms] / np.maximum(self._count[found.arms], 1)
        expected = np.clip(expected, 0.0, 1.0)
        squares = np.maximum(tally.squares - 2 * expected * tally.total + n * expected**2, 0.0)
        times = found.plan.times[found.row]
        for rows in (found.row, found.base):
            self._variance[found.arms] += (times / n[rows]) ** 2 * squares[rows]  # times <= n, the pooled plays
        self._gain[found.arms] += found.sign * times * (mean[found.row] - mean[found.base])
        self._count[found.arms] += times
        self._compared += int(found.plan.times[1:].sum())
        self._level = float(min(max(mean[0], 0.0), 1.0))

    def _decide(self) -> None:
        """Decide the pivot and the arms on one side of it, if enough arms are proved on the other."""
        better, worse = self._proved()
        places, undecided = self._elimination.places, len(self._elimination.undecided)
        if self._pivot < 0 or (len(better) < places and len(worse) < undecided - places):
            return
        side, status = (worse, REJECTED) if len(better) >= places else (better, ACCEPTED)
        self._elimination.status[[*side, self._pivot]] = status
        self._pivot = -1

    def _choose_pivot(self) -> None:
        """Take an arm on the boundary of the top K as the pivot, and forget comparisons with the last one.

        It is on the side with fewer arms. Each pivot decides at least itself, so few pivots follow.
        """
        undecided, places = self._elimination.undecided, self._elimination.places
        order = undecided[np.argsort(-self._ranking[undecided], kind="stable")]
        self._pivot = int(order[places - 1 if len(undecided) >= 2 * places else places])
        self._pivots += 1
        self._since = self._compared = 0
        self._forget()

    def _loaded(self) -> None:
        if self._pivot >= self.n_arms or (self._pivot >= 0 and self._elimination.status[self._pivot]):
            raise BadRecord(f"pivot must be an undecided arm or -1; got {self._pivot}")
        if (self._pivot >= 0 and not self._pivots) or self._compared > self._since:
            raise BadRecord("pivots must count the pivot, and since the compared plays")
        if (np.abs(self._gain) > self._count * (1 + 1e-9)).any():
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
