"""A problem: arms, a reward and K. Something to play, and to know the answer of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, combinations, islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kofn.core import BadInput, Direction, FloatArray, IntArray, Seed, Subset, Tally, check_sizes, generator, subset_of
from kofn.problems.check import Check, check_problem
from kofn.problems.expectation import Expectation, MonteCarlo, expectation_of
from kofn.problems.family import CELLS, Arms
from kofn.problems.laws import Counts, Law, law_of
from kofn.problems.rewards import Reward, RewardFunction, as_reward, cross_selling, mean

Subsets: TypeAlias = IntArray | Sequence[int] | Sequence[Sequence[int]] | Iterable[Iterable[int]]

MOST_SUBSETS = 2_000_000
"""How many subsets are tried for the best one, when their values are exact."""
MOST_SUBSETS_BY_MONTE_CARLO = 20_000
_SLACK = 1e-9


class Problem:
    """N arms, K of them at a time, and what these K earn together.

    >>> from kofn.problems import Bernoulli, maximum
    >>> problem = Problem(Bernoulli([0.1, 0.5, 0.3, 0.2]), maximum, k=2)
    >>> problem.best, problem.optimum
    ((1, 2), 0.65)
    >>> tally = problem.play([(0, 1), (1, 2)], [1_000_000, 1_000_000], rng=1)
    >>> (tally.total / tally.count).round(2)
    array([0.55, 0.65])
    >>> problem.gap([(0, 1), (1, 2)])
    array([0.1, 0. ])

    `best` is worked out when it is asked for, or given.
    """

    def __init__(
        self,
        arms: Arms,
        reward: Reward | str | RewardFunction,
        k: int,
        *,
        direction: Direction = "maximize",
        best: Iterable[int] | None = None,
    ) -> None:
        if not isinstance(arms, Arms):
            raise BadInput(f"arms must be Arms, for instance kofn.problems.Bernoulli([0.2, 0.7, 0.4]), not {arms!r}")
        if direction not in ("maximize", "minimize"):
            raise BadInput(f"direction must be 'maximize' or 'minimize', not {direction!r}")
        self.arms, self.reward, self.direction = arms, as_reward(reward), direction
        self.n_arms, self.k = check_sizes(arms.n_arms, k)
        self._given = None if best is None else subset_of(best, self.n_arms, self.k)
        _try_out(self.reward, arms, self.k)

    # To play.

    def play(self, subsets: Subsets, times: ArrayLike, rng: Seed) -> Tally:
        """What `times[i]` plays of each row earn: a draw from the exact distribution.

        Subsets that come as an integer array are only checked for their range: whoever makes millions of rows knows
        that their arms differ.
        """
        rows = self._rows(subsets)
        count, least = _times(times, len(rows))
        if not isinstance(rng, np.random.Generator):
            rng = generator(rng)
        if least > 0:
            return Tally(count, *self._law.play(rows, count, rng))
        tally = Tally(count, np.zeros(len(rows)), np.zeros(len(rows)))
        live = np.flatnonzero(count)
        if live.size:
            tally.total[live], tally.squares[live] = self._law.play(rows[live], count[live], rng)
        return tally

    # To know.

    def value(self, subsets: Subsets) -> FloatArray:
        """The expected reward of each row; exact unless `value_error` is above 0."""
        return self._expectation.value(self._rows(subsets))

    def gap(self, subsets: Subsets) -> FloatArray:
        """How much worse than the optimum each row is on average, at least 0 whatever the direction."""
        gap = self.optimum - self.value(subsets)
        if self.direction == "minimize":
            gap = -gap
        if self._given is not None and not self.value_error and gap.size and gap.min() < -_SLACK * self._scale:
            better = tuple(sorted(self._rows(subsets)[int(np.argmin(gap))].tolist()))
            raise BadInput(f"best={self._given} was given, but {better} is better by {-gap.min():g}: give the best one")
        return np.maximum(gap, 0.0)

    @cached_property
    def best(self) -> Subset:
        """The subset with the best expected reward; of equal ones, the one with the lowest arms."""
        if self._given is not None:
            return self._given
        strength = self._strength()
        if strength is None:
            return self._search()
        key = -strength if self.direction == "maximize" else strength
        return tuple(sorted(np.argsort(key, kind="stable")[: self.k].tolist()))

    @cached_property
    def optimum(self) -> float:
        """The expected reward of the best subset."""
        return float(self.value([self.best])[0])

    @cached_property
    def value_error(self) -> float:
        """0.0 when values are exact, else the largest Monte Carlo standard error among 32 arbitrary subsets."""
        if not isinstance(self._expectation, MonteCarlo):
            return 0.0
        rng = np.random.default_rng(0)
        some = np.array([rng.choice(self.n_arms, self.k, replace=False) for _ in range(32)])
        return float(self._expectation.errors(some).max())

    def check(self) -> Check:
        """Which of the paper's assumptions hold, with a counterexample for each that does not."""
        return check_problem(self)

    def __repr__(self) -> str:
        turn = "" if self.direction == "maximize" else ", direction='minimize'"
        return f"Problem({self.arms!r}, {self.reward!r}, k={self.k}{turn})"

    # How.

    @cached_property
    def _law(self) -> Law:
        law = law_of(self.arms, self.reward, self.k)
        if isinstance(law, Counts) and not np.isfinite(law.pays).all():
            count = int(np.argmin(np.isfinite(law.pays)))
            raise BadInput(
                f"a reward is a finite number, but {self.reward!r} gives {law.pays[count]} if {count} arms pay"
            )
        return law

    @cached_property
    def _expectation(self) -> Expectation:
        return expectation_of(self.arms, self.reward, self.k, self._law)

    @property
    def _scale(self) -> float:
        return max(1.0, abs(self.optimum))

    def _strength(self) -> FloatArray | None:
        """A number per arm such that the K largest are the best to have, if it is known that there is one.

        The means decide under a mean. If the reward is symmetric and increasing, replacing an arm by one that dominates
        it never lowers the expected reward, so the K strongest cannot be beaten.
        """
        if self.reward == mean:
            return self.arms.mean
        increasing = self.reward.increasing or (self.reward == cross_selling and self.arms.low >= 0)
        if (self.reward.symmetric and increasing) or (isinstance(self._law, Counts) and self._law.increasing):
            return self.arms.strength
        return None

    def _search(self) -> Subset:
        """The best of all subsets, by trying them."""
        subsets = math.comb(self.n_arms, self.k)
        exact = not isinstance(self._expectation, MonteCarlo)
        most = MOST_SUBSETS if exact else MOST_SUBSETS_BY_MONTE_CARLO
        if subsets > most:
            raise BadInput(
                f"the best of {subsets:,} subsets is not known beforehand, and at most {most:,} are tried"
                f"{'' if exact else ' by Monte Carlo'}: give it as best=, or say of the reward what is true of it"
                " (Reward(fn, name, symmetric=True, increasing=True)) if the arms are ordered by dominance"
            )
        sign = 1.0 if self.direction == "maximize" else -1.0
        best, top = (), -math.inf
        for rows in every_subset(self.n_arms, self.k):
            values = sign * self._expectation.value(rows)
            leader = int(np.argmax(values))
            if values[leader] > top:
                best, top = tuple(rows[leader].tolist()), float(values[leader])
        return best

    # The edge.

    def _rows(self, subsets: Subsets) -> IntArray:
        """The subsets as a checked (m, K) integer array."""
        if isinstance(subsets, np.ndarray) and subsets.ndim == 2 and subsets.dtype in _NATIVE:
            rows = subsets
        else:
            rows = self._kindly(subsets)
        if rows.shape[1] != self.k:
            raise BadInput(f"a subset has {self.k} arms, but rows of {rows.shape[1]} came")
        # Read as unsigned, a negative arm is a huge one: a single pass finds both ends of the range.
        if rows.size and rows.view(_UNSIGNED[rows.dtype.itemsize]).max() >= self.n_arms:
            wrong = int(np.argmax(((rows < 0) | (rows >= self.n_arms)).any(axis=1)))
            raise BadInput(
                f"arms are numbered from 0 to {self.n_arms - 1}, but row {wrong} is {tuple(rows[wrong].tolist())}"
            )
        return rows

    def _kindly(self, subsets: Any) -> IntArray:
        """Lists, tuples, a single subset: made an array, each row checked to have K different arms."""
        expected = f"subsets are an (m, {self.k}) array of arms, or a list of subsets"
        if not isinstance(subsets, np.ndarray):
            subsets = [tuple(each) if isinstance(each, Iterable) else each for each in _listed(subsets, expected)]
        try:
            rows = np.array(subsets, np.int64 if len(subsets) == 0 else None)
        except (ValueError, TypeError):
            raise BadInput(f"{expected}, but rows of different lengths came") from None
        if rows.size == 0 and rows.ndim == 1:
            rows = rows.reshape(0, self.k)
        rows = rows[None] if rows.ndim == 1 else rows
        if rows.ndim != 2 or rows.dtype.kind not in "iu":
            raise BadInput(f"{expected}, but {rows.dtype} of shape {rows.shape} came")
        rows = rows.astype(np.int64)
        ordered = np.sort(rows, axis=1)
        if (repeated := (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)).any():
            first = tuple(rows[int(np.argmax(repeated))].tolist())
            raise BadInput(f"a subset has {self.k} different arms, but {first} came")
        return rows


_NATIVE = frozenset(np.dtype(kind + size) for kind in "iu" for size in "1248")
_UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def every_subset(n_arms: int, k: int) -> Iterator[IntArray]:
    """All K-subsets of 0..N-1 in lexicographic order, in blocks of rows."""
    every = combinations(range(n_arms), k)
    rows = max(1, CELLS // k)
    while (block := np.fromiter(chain.from_iterable(islice(every, rows)), np.int64)).size:
        yield block.reshape(-1, k)


def _times(times: ArrayLike, rows: int) -> tuple[NDArray[np.int64], int]:
    """A fresh int64 copy of the counts, and the least of them (0 if there are none)."""
    count = np.array(times)
    if count.size == 0 and rows == 0:
        return np.zeros(0, np.int64), 0
    if count.dtype.kind not in "iu":
        raise BadInput(f"times are whole numbers of plays, but {count.dtype} came")
    if count.shape != (rows,):
        raise BadInput(f"times need one number per row: shape ({rows},), but {count.shape} came")
    least = int(count.min())
    if least < 0:
        raise BadInput(f"times must be at least 0, but row {int(np.argmin(count))} has {least}")
    return count.astype(np.int64, copy=False), least


def _listed(subsets: Any, expected: str) -> list[Any]:
    try:
        return list(subsets)
    except TypeError:
        raise BadInput(f"{expected}, not {subsets!r}") from None


def _try_out(reward: Reward, arms: Arms, k: int) -> None:
    """Refuse a reward that does not give one finite number per play, at once and not in the middle of a run."""
    x = arms.draw(np.broadcast_to(np.arange(k), (3, k)), np.random.default_rng(0))
    expected = f"a reward takes an array whose last axis is K={k} and gives one number per play"
    try:
        paid = reward(x)
    except Exception as why:
        raise BadInput(f"{expected}, but {reward!r} raised {type(why).__name__}: {why}") from why
    if paid.shape != (3,):
        raise BadInput(f"{expected}, but {reward!r} turned shape {x.shape} into {paid.shape}: reduce axis=-1 only")
    if not np.isfinite(paid).all():
        raise BadInput(f"{expected}, but {reward!r} gave {paid[~np.isfinite(paid)][0]} for an array of draws")
