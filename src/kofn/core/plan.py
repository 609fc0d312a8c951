"""Plans and tallies: what is wanted, and what it earned."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kofn.core.checks import FloatArray, IntArray, Subset, whole
from kofn.core.errors import BadReward, BadTally

ROUNDING = 1e-9
"""Relative slack for totals that were added up in floating point."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What a policy wants next: `subsets[i]` is to be played `times[i]` times, in any order.

    >>> plan = Plan(np.array([[0, 1], [0, 2]]), np.array([30, 10]))
    >>> len(plan), plan.plays, list(plan)
    (2, 40, [((0, 1), 30), ((0, 2), 10)])
    >>> plan.part(20).times
    array([15,  5])

    A row of fewer than K arms ends in places of -1, which are empty; as a tuple it has its arms only.
    """

    subsets: IntArray
    times: NDArray[np.int64]

    def __post_init__(self) -> None:
        self.subsets.flags.writeable = False
        self.times.flags.writeable = False

    @classmethod
    def one(cls, subset: Subset, times: int) -> Plan:
        """A single row; more plays than a 64-bit integer counts are cut to what it does."""
        return cls(np.array([subset]), np.array([min(times, 2**62)]))

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[tuple[Subset, int]]:
        return ((self.subset(row), int(n)) for row, n in enumerate(self.times))

    def subset(self, row: int) -> Subset:
        """The arms of one row."""
        subset: Subset = tuple(self.subsets[row].tolist())
        return subset if subset[-1] >= 0 else tuple(arm for arm in subset if arm >= 0)

    @cached_property
    def plays(self) -> int:
        """How many plays the whole plan has."""
        return int(self.times.sum())

    def part(self, plays: int, rng: np.random.Generator | None = None) -> Plan:
        """A plan of `plays` plays with the same rows, each cut in proportion.

        What cannot be divided goes to random rows; without `rng`, to the first ones.
        """
        if whole("plays", plays, least=0) >= self.plays:
            return self
        times = np.floor(self.times * (plays / self.plays)).astype(np.int64)
        while missing := plays - int(times.sum()):  # floating point may leave either sign
            rows = np.flatnonzero(times < self.times if missing > 0 else times > 0)
            chosen = rows if rng is None else rng.permutation(rows)
            times[chosen[: abs(missing)]] += 1 if missing > 0 else -1
        return Plan(self.subsets, times)


@dataclass(frozen=True, eq=False)
class Tally:
    """What plays earned, a row per subset: how many plays, the total of their rewards, the total of the squares.

    >>> tally = Tally.of([[1, 0, 1], [0.5]])
    >>> tally.count, tally.total, tally.squares
    (array([3, 1]), array([2. , 0.5]), array([2.  , 0.25]))

    `arms` is for the few policies that see single arms: the total of each place of each row, in the shape of the plan.
    """

    count: NDArray[np.int64]
    total: FloatArray
    squares: FloatArray
    arms: FloatArray | None = None

    def __post_init__(self) -> None:
        for name, kinds, dtype in (("count", "iu", np.int64), ("total", "iuf", float), ("squares", "iuf", float)):
            array = np.asarray(getattr(self, name))
            if array.dtype.kind not in kinds and array.size:
                kind = "whole numbers" if kinds == "iu" else "numbers"
                raise BadTally(f"a tally's {name} must be {kind}, one per row, not {array!r}")
            object.__setattr__(self, name, array.astype(dtype, copy=False))
        if self.arms is not None:
            arms = np.asarray(self.arms)
            if arms.dtype.kind not in "iuf" or arms.ndim != 2:
                raise BadTally(f"a tally's arms are numbers, a row per subset and a column per place, not {arms!r}")
            object.__setattr__(self, "arms", arms.astype(float, copy=False))

    @classmethod
    def zeros(cls, rows: int, places: int | None = None) -> Tally:
        """No plays yet; with `places`, of single arms too."""
        arms = None if places is None else np.zeros((rows, places))
        return cls(np.zeros(rows, np.int64), np.zeros(rows), np.zeros(rows), arms)

    @classmethod
    def of(cls, rewards: Sequence[ArrayLike]) -> Tally:
        """The tally of the given rewards, one sequence of them per row."""
        try:
            rows = [np.asarray(row, float) for row in rewards]
        except (TypeError, ValueError):
            raise BadReward(f"rewards are numbers, a sequence of them per row, not {rewards!r}") from None
        return cls(
            np.array([row.size for row in rows], np.int64),
            np.array([row.sum() for row in rows], float),
            np.array([(row * row).sum() for row in rows], float),
        )

    def __len__(self) -> int:
        return len(self.count)

    def add(self, other: Tally) -> None:
        """Count the other tally's plays too."""
        self.count[:] += other.count
        self.total[:] += other.total
        self.squares[:] += other.squares
        if self.arms is not None and other.arms is not None:
            self.arms[:] += other.arms


def check_tally(tally: Tally, plan: Plan, got: Tally, low: float, high: float) -> None:
    """Refuse counts that are not wanted, and sums that no rewards from `low` to `high` can have."""
    n, total, squares = tally.count, tally.total, tally.squares
    rows = (len(plan),)
    if not n.shape == total.shape == squares.shape == rows:
        raise BadTally(f"the plan has {rows[0]} rows, but tallies of shape {n.shape} came: one per row")
    wanted = plan.times - got.count
    size = max(abs(low), abs(high))
    slack = ROUNDING * size * n
    most = (low + high) * total - low * high * n  # since (x - low)(high - x) >= 0
    fits = (n >= 0) & (n <= wanted)
    fits &= (total >= low * n - slack) & (total <= high * n + slack)
    slack *= size
    fits &= (squares <= most + slack) & (n * squares >= total * total - n * slack)
    if not fits.all():
        row = int(np.argmin(fits))
        subset = plan.subset(row)
        raise _unfit(subset, int(n[row]), int(wanted[row]), float(total[row]), float(squares[row]), low, high)
    if tally.arms is not None:
        _check_arms(tally.arms, n[:, None], plan, low, high)


def _check_arms(arms: FloatArray, n: NDArray[np.int64], plan: Plan, low: float, high: float) -> None:
    """Refuse totals that no rewards of single arms from `low` to `high` can have."""
    if arms.shape != plan.subsets.shape:
        raise BadTally(f"the plan's subsets have shape {plan.subsets.shape}, but totals of arms of {arms.shape} came")
    slack = ROUNDING * max(abs(low), abs(high)) * n
    fits = (arms >= low * n - slack) & (arms <= high * n + slack)
    if not fits.all():
        row, place = np.unravel_index(int(np.argmin(fits)), fits.shape)
        raise BadReward(
            f"a reward lies from {low:g} to {high:g} (reward_range), but arm {plan.subsets[row, place]} is told to "
            f"have earned {arms[row, place]:g} in {int(n[row, 0])} plays of {plan.subset(int(row))}"
        )


def _unfit(
    subset: Subset, n: int, wanted: int, total: float, squares: float, low: float, high: float
) -> BadTally | BadReward:
    """The error for a row that does not fit."""
    if n < 0:
        return BadTally(f"told of {n} plays of {subset}: a count is at least 0")
    if n > wanted:
        return BadTally(f"told of {n} plays of {subset}, but only {wanted} are wanted")
    if not (math.isfinite(total) and math.isfinite(squares)):
        return BadReward(f"totals and squares are finite numbers, but {subset} has {total} and {squares}")
    if not low * n <= total <= high * n:
        mean = f", on average {total / n:g}" if n else ""
        return BadReward(
            f"a reward lies from {low:g} to {high:g} (reward_range), but {n} plays of {subset} earned {total:g}{mean}"
        )
    return BadReward(
        f"{n} rewards from {low:g} to {high:g} that add up to {total:g} cannot have squares that add up to "
        f"{squares:g}, as told of {subset}"
    )
