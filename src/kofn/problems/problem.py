"""A problem: arms, a reward and K. Something to play, and to know the answer of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kofn.core import (
    BadInput,
    Direction,
    FloatArray,
    IntArray,
    Seed,
    Subset,
    Tally,
    check_range,
    check_sizes,
    generator,
    subset_of,
)
from kofn.problems.arms import Arms
from kofn.problems.assumptions import Check, check_problem
from kofn.problems.distributions import with_absent
from kofn.problems.expectation import Estimated, Expectation, expectation_of
from kofn.problems.sampling import Counts, Law, arm_totals, law_of
from kofn.rewards import Reward, RewardFunction, as_reward, cross_selling, mean
from kofn.subsets import subset_blocks

Subsets: TypeAlias = IntArray | Sequence[int] | Sequence[Sequence[int]] | Iterable[Iterable[int]]

MOST_SUBSETS = 2_000_000
"""How many subsets are tried for the best one, when their values are exact."""
MOST_SUBSETS_BY_MONTE_CARLO = 20_000
_SLACK = 1e-9


class Problem:
    """N arms, K of them at a time, and what these K earn together.

    >>> from kofn.problems import Bernoulli
    >>> from kofn.rewards import maximum
    >>> problem = Problem(Bernoulli([0.1, 0.5, 0.3, 0.2]), maximum, k=2)
    >>> problem.best, problem.optimum
    ((1, 2), 0.65)
    >>> tally = problem.play([(0, 1), (1, 2)], [1_000_000, 1_000_000], rng=1)
    >>> (tally.total / tally.count).round(2)
    array([0.55, 0.65])
    >>> problem.gap([(0, 1), (1, 2)])
    array([0.1, 0. ])

    `best` is worked out when it is asked for, or given. `absent` is what an empty place pays, as if an arm stood there
    that always paid so much; it makes fewer than K arms playable, in rows that end in -1.

    >>> Problem(Bernoulli([0.1, 0.5, 0.3, 0.2]), "mean", k=2, absent=0.0).value([(1,), (1, 2)])
    array([0.25, 0.4 ])

    `reward_range` is for rewards outside of [0, 1], such as milliseconds: policies made by name are told of it.
    """

    def __init__(
        self,
        arms: Arms,
        reward: Reward | str | RewardFunction,
        k: int,
        *,
        direction: Direction = "maximize",
        best: Iterable[int] | None = None,
        absent: float | None = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        if not isinstance(arms, Arms):
            raise BadInput(f"arms must be Arms, for instance kofn.problems.Bernoulli([0.2, 0.7, 0.4]), not {arms!r}")
        self._sized(arms.n_arms, k, direction, best, reward_range)
        self.arms, self.reward = arms, as_reward(reward)
        self.absent = None if absent is None else _absent(absent, arms)
        self._places = arms if self.absent is None else with_absent(arms, self.absent)  # arm N is an empty place
        _try_out(self.reward, arms, self.k)

    def _sized(
        self,
        n_arms: int,
        k: int,
        direction: Direction,
        best: Iterable[int] | None,
        reward_range: tuple[float, float],
    ) -> None:
        """Take what every problem has, whatever its rewards come from."""
        if direction not in ("maximize", "minimize"):
            raise BadInput(f"direction must be 'maximize' or 'minimize', not {direction!r}")
        self.direction: Direction = direction
        self.n_arms, self.k = check_sizes(n_arms, k)
        self.reward_range = check_range(reward_range)
        self._given = None if best is None else subset_of(best, self.n_arms, self.k)

    # To play.

    @property
    def offers(self) -> frozenset[str]:
        """What a policy may need beyond one reward per play, and find here: see `Policy.needs`."""
        return frozenset({"best", "arms"} if self.absent is None else {"best", "arms", "fewer"})

    def play(self, subsets: Subsets, times: ArrayLike, rng: Seed, *, arms: bool = False) -> Tally:
        """What `times[i]` plays of each row earn: a draw from the exact distribution.

        Subsets that come as an integer array are only checked for their range: whoever makes millions of rows knows
        that their arms differ. With `arms`, the tally says what each arm paid, too. That is drawn from the exact
        distribution of the arm's own sum, but apart from the row's reward: the two do not belong to the same plays.
        """
        rows = self._rows(subsets)
        count, least = _times(times, len(rows))
        if not isinstance(rng, np.random.Generator):
            rng = generator(rng)
        if least > 0 and not arms:
            return Tally(count, *self._law.play(rows, count, rng))
        tally = Tally(count, np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(rows.shape) if arms else None)
        live = np.flatnonzero(count)
        if live.size:
            tally.total[live], tally.squares[live] = self._law.play(rows[live], count[live], rng)
            if tally.arms is not None:
                tally.arms[live] = self._arm_totals(rows[live], count[live], rng)
        return tally

    def _arm_totals(self, rows: IntArray, count: NDArray[np.int64], rng: np.random.Generator) -> FloatArray:
        return arm_totals(self._places, rows, count, rng)

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
        if not isinstance(self._expectation, Estimated):
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
        law = law_of(self._places, self.reward, self.k)
        if isinstance(law, Counts) and not np.isfinite(law.pays).all():
            count = int(np.argmin(np.isfinite(law.pays)))
            raise BadInput(
                f"a reward is a finite number, but {self.reward!r} gives {law.pays[count]} if {count} arms pay"
            )
        return law

    @cached_property
    def _expectation(self) -> Expectation:
        return expectation_of(self._places, self.reward, self.k, self._law)

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
        exact = not isinstance(self._expectation, Estimated)
        most = MOST_SUBSETS if exact else MOST_SUBSETS_BY_MONTE_CARLO
        if subsets > most:
            raise BadInput(
                f"the best of {subsets:,} subsets is not known beforehand, and at most {most:,} are tried"
                f"{'' if exact else ' by Monte Carlo'}: give it as best=, or say of the reward what is true of it"
                " (Reward(fn, name, symmetric=True, increasing=True)) if the arms are ordered by dominance"
            )
        sign = 1.0 if self.direction == "maximize" else -1.0
        best, top = (), -math.inf
        for rows in subset_blocks(self.n_arms, self.k):
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
            rows = self._filled(rows)
        return rows

    def _filled(self, rows: IntArray) -> IntArray:
        """The rows with arm N in their empty places, or BadInput if there may be none, or that is not what is wrong."""
        empty = rows == -1
        wrong = ((rows < 0) | (rows >= self.n_arms)) & ~(empty & (self.absent is not None))
        if wrong.any():
            row = int(np.argmax(wrong.any(axis=1)))
            way_out = ": to play fewer arms, say what an empty place (-1) pays: Problem(..., absent=0.0)"
            raise BadInput(
                f"arms are numbered from 0 to {self.n_arms - 1}, but row {row} is {tuple(rows[row].tolist())}"
                f"{way_out if empty[row].any() and self.absent is None else ''}"
            )
        return np.where(empty, np.int64(self.n_arms), rows)

    def _kindly(self, subsets: Any) -> IntArray:
        """Lists, tuples, a single subset: made an array, each row checked to have K different arms."""
        expected = f"subsets are an (m, {self.k}) array of arms, or a list of subsets"
        if not isinstance(subsets, np.ndarray):
            subsets = [tuple(each) if isinstance(each, Iterable) else each for each in _listed(subsets, expected)]
            if self.absent is not None:
                subsets = [each + (-1,) * (self.k - len(each)) if isinstance(each, tuple) else each for each in subsets]
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
        if (repeated := ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != -1)).any(axis=1)).any():
            first = tuple(rows[int(np.argmax(repeated))].tolist())
            raise BadInput(f"a subset has {self.k} different arms, but {first} came")
        return rows


_NATIVE = frozenset(np.dtype(kind + size) for kind in "iu" for size in "1248")
_UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


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


def _absent(absent: float, arms: Arms) -> float:
    """What an empty place pays, checked to be something that an arm could pay."""
    number = isinstance(absent, int | float | np.integer | np.floating) and not isinstance(absent, bool)
    if not number or not arms.low <= absent <= arms.high:
        raise BadInput(f"absent must be a number from {arms.low:g} to {arms.high:g}, as an arm pays, not {absent!r}")
    return float(absent)


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
