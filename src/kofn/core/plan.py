"""Plans (subsets to play) and tallies (their rewards)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kofn.core.checks import FloatArray, IntArray, Subset, outside_range, whole
from kofn.core.errors import BadReward, BadTally

ROUNDING = 1e-9
"""Relative slack for totals that were added up in floating point."""

_COUNTS, _NUMBERS = np.dtype(np.int64), np.dtype(float)

Key: TypeAlias = Subset | tuple[str, Subset]
"""What plays are counted under: a subset, or a segment's key and a subset."""


def key_of_play(subset: Subset, segment: str | None) -> Key:
    """Return what a play of this subset, in this segment if there are segments, is counted under."""
    return subset if segment is None else (segment, subset)


def subset_of_key(key: Key) -> Subset:
    """Return the subset of a key."""
    return key[1] if isinstance(key[0], str) else key


@dataclass(frozen=True, eq=False)
class Plan:
    """The next plays of a policy: play `subsets[i]` `times[i]` times, in any order.

    >>> plan = Plan(np.array([[0, 1], [0, 2]]), np.array([30, 10]))
    >>> len(plan), plan.plays, list(plan)
    (2, 40, [((0, 1), 30), ((0, 2), 10)])
    >>> plan.part(20).times
    array([15,  5])

    A row of fewer than K arms is padded with -1 at its end; as a tuple it has its arms only. `segments` is for policies
    that take a context: the key of the segment that each row is for.
    """

    subsets: IntArray
    times: NDArray[np.int64]
    segments: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        self.subsets.flags.writeable = False
        self.times.flags.writeable = False

    @classmethod
    def one(cls, subset: Subset, times: int) -> Plan:
        """Return a plan of a single row; `times` is limited to what a 64-bit integer can hold."""
        return cls(np.array([subset]), np.array([min(times, 2**62)]))

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[tuple[Subset, int]]:
        return ((self.subset(row), int(n)) for row, n in enumerate(self.times))

    def subset(self, row: int) -> Subset:
        """Return the arms of one row."""
        subset: Subset = tuple(self.subsets[row].tolist())
        return subset if subset[-1] >= 0 else tuple(arm for arm in subset if arm >= 0)

    def key(self, row: int) -> Key:
        """Return what the plays of one row are counted under: its subset, or its segment and its subset."""
        return self.subset(row) if self.segments is None else (self.segments[row], self.subset(row))

    def keep(self, rows: IntArray) -> Plan:
        """Return a plan of these rows."""
        segments = None if self.segments is None else tuple(self.segments[row] for row in rows.tolist())
        return Plan(self.subsets[rows], self.times[rows], segments)

    @cached_property
    def plays(self) -> int:
        """The number of plays of the whole plan."""
        return int(self.times.sum())

    def part(self, plays: int, rng: np.random.Generator | None = None) -> Plan:
        """Return a plan of `plays` plays with the same rows, each cut in proportion.

        The remainder goes to random rows; without `rng`, to the first ones.
        """
        if whole("plays", plays, least=0) >= self.plays:
            return self
        times = np.floor(self.times * (plays / self.plays)).astype(np.int64)
        while missing := plays - int(times.sum()):  # floating point may leave either sign
            rows = np.flatnonzero(times < self.times if missing > 0 else times > 0)
            chosen = rows if rng is None else rng.permutation(rows)
            times[chosen[: abs(missing)]] += 1 if missing > 0 else -1
        return Plan(self.subsets, times, self.segments)


@dataclass(frozen=True, eq=False)
class Tally:
    """The rewards of plays, a row per subset: number of plays, total of the rewards, total of the squared rewards.

    >>> tally = Tally.of([[1, 0, 1], [0.5]])
    >>> tally.count, tally.total, tally.squares
    (array([3, 1]), array([2. , 0.5]), array([2.  , 0.25]))

    `arms` is for the policies that need the rewards of single arms: the total of each place of each row of the plan.
    """

    count: NDArray[np.int64]
    total: FloatArray
    squares: FloatArray
    arms: FloatArray | None = None

    def __post_init__(self) -> None:
        for name, kinds, dtype in (("count", "iu", _COUNTS), ("total", "iuf", _NUMBERS), ("squares", "iuf", _NUMBERS)):
            given = getattr(self, name)
            if isinstance(given, np.ndarray) and given.dtype == dtype:
                continue
            array = np.asarray(given)
            if array.dtype.kind not in kinds and array.size:
                kind = "whole numbers" if kinds == "iu" else "numbers"
                raise BadTally(f"a tally's {name} must be {kind}, one per row, not {array!r}")
            object.__setattr__(self, name, array.astype(dtype, copy=False))
        if self.arms is not None:
            arms = np.asarray(self.arms)
            if arms.dtype.kind not in "iuf" or arms.ndim != 2:
                raise BadTally(f"a tally's arms must be numbers, a row per subset and a column per place, not {arms!r}")
            object.__setattr__(self, "arms", arms.astype(float, copy=False))

    @classmethod
    def zeros(cls, rows: int, places: int | None = None) -> Tally:
        """Return a tally without plays; with `places`, also for single arms."""
        arms = None if places is None else np.zeros((rows, places))
        return cls(np.zeros(rows, np.int64), np.zeros(rows), np.zeros(rows), arms)

    @classmethod
    def of(cls, rewards: Sequence[ArrayLike]) -> Tally:
        """Return the tally of these rewards, one sequence of them per row."""
        try:
            rows = [np.asarray(row, float) for row in rewards]
        except (TypeError, ValueError):
            raise BadReward(f"rewards must be numbers, a sequence of them per row, not {rewards!r}") from None
        return cls(
            np.array([row.size for row in rows], np.int64),
            np.array([row.sum() for row in rows], float),
            np.array([(row * row).sum() for row in rows], float),
        )

    def __len__(self) -> int:
        return len(self.count)

    def add(self, other: Tally) -> None:
        """Add the plays of another tally."""
        self.count[:] += other.count
        self.total[:] += other.total
        self.squares[:] += other.squares
        if self.arms is not None and other.arms is not None:
            self.arms[:] += other.arms


class SettledPlays(NamedTuple):
    """Plays of one subset, in one segment if there are segments, and the sums of their rewards."""

    subset: Subset
    segment: str | None
    plays: int
    total: float
    squares: float


def check_tally(tally: Tally, plan: Plan, observed: Tally | None, low: float, high: float) -> None:
    """Raise BadTally for counts above what is remaining, BadReward for sums that no rewards in the range can have."""
    remaining = plan.times if observed is None else plan.times - observed.count
    n, total, squares = tally.count, tally.total, tally.squares
    rows = (len(plan),)
    if not n.shape == total.shape == squares.shape == rows:
        raise BadTally(f"a tally must have one row for each of the {rows[0]} rows of the plan; got shape {n.shape}")
    size = max(abs(low), abs(high))
    slack = (ROUNDING * size * size) * n
    fits = (n >= 0) & (n <= remaining)
    if size > high - low:  # else it follows from the squares, up to rounding
        fits &= total >= (low - ROUNDING * size) * n
        fits &= total <= (high + ROUNDING * size) * n
    fits &= squares - slack <= (low + high) * total - (low * high) * n  # since (x - low)(high - x) >= 0
    fits &= n * (squares + slack) >= total * total
    if not fits.all():
        row = int(np.argmin(fits))
        subset = plan.subset(row)
        raise _unfit(subset, int(n[row]), int(remaining[row]), float(total[row]), float(squares[row]), low, high)
    if tally.arms is not None:
        _check_arms(tally.arms, n[:, None], plan, low, high)


def _check_arms(arms: FloatArray, n: NDArray[np.int64], plan: Plan, low: float, high: float) -> None:
    """Raise for totals that no rewards of single arms from `low` to `high` can have."""
    if arms.shape != plan.subsets.shape:
        raise BadTally(
            f"totals of arms must have the shape of the plan's subsets, {plan.subsets.shape}; got {arms.shape}"
        )
    slack = ROUNDING * max(abs(low), abs(high)) * n
    fits = (arms >= low * n - slack) & (arms <= high * n + slack)
    if not fits.all():
        row, place = np.unravel_index(int(np.argmin(fits)), fits.shape)
        where = f"for arm {plan.subsets[row, place]} in {int(n[row, 0])} plays of {plan.subset(int(row))}"
        raise outside_range(low, high, f"{arms[row, place]:g} {where}")


def _unfit(
    subset: Subset, n: int, remaining: int, total: float, squares: float, low: float, high: float
) -> BadTally | BadReward:
    """Return the error for a row that does not fit."""
    if n < 0:
        return BadTally(f"a count must be at least 0; got {n} plays of {subset}")
    if n > remaining:
        return BadTally(f"only {remaining} plays of {subset} are remaining; got {n}")
    if not (math.isfinite(total) and math.isfinite(squares)):
        return BadReward(f"totals and squares must be finite numbers; got {total} and {squares} for {subset}")
    if not low * n <= total <= high * n:
        mean = f", on average {total / n:g}" if n else ""
        return outside_range(low, high, f"{total:g}{mean} for {n} plays of {subset}")
    return BadReward(
        f"{n} rewards from {low:g} to {high:g} that add up to {total:g} cannot have squares that add up to "
        f"{squares:g} (subset {subset})"
    )
