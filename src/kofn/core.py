"""Plans, tallies, the policy that ties them together, and every error kofn raises.

A policy wants a **plan** (subsets, and how many times each) and is told **tallies** (what the plays earned). The
plan can be played in any order, by anyone, split in any way; when all of it has been told, the policy learns from it
and wants the next one.

The errors::

    KofnError
    ├── BadInput            an argument that cannot work (also a ValueError)
    │   ├── BadReward       a reward that is not a number, or outside `reward_range`
    │   ├── BadTally        told of plays that the plan does not want
    │   └── BadRecord       a saved state of another policy, shape or version
    ├── TooManySubsets      a policy over all C(N, K) subsets that would not fit in memory
    └── MissingExtra        an optional library is not installed (also an ImportError)

    ShortHorizonWarning     a horizon in which nothing can be learned (a UserWarning)
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, SupportsIndex, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

Subset: TypeAlias = tuple[int, ...]
Seed: TypeAlias = int | np.random.SeedSequence | np.random.Generator | None
Direction: TypeAlias = Literal["maximize", "minimize"]
IntArray: TypeAlias = NDArray[np.integer[Any]]
FloatArray: TypeAlias = NDArray[np.float64]

__all__ = [
    "BadInput",
    "BadRecord",
    "BadReward",
    "BadTally",
    "KofnError",
    "MissingExtra",
    "Plan",
    "Policy",
    "ShortHorizonWarning",
    "Tally",
    "TooManySubsets",
]

ROUNDING = 1e-9
"""Relative slack for totals that were added up in floating point."""


class KofnError(Exception):
    """Every error that kofn raises on purpose."""


class BadInput(KofnError, ValueError):
    """An argument that cannot work; the message says what would."""


class BadReward(BadInput):
    """A reward that is not a number, or lies outside the policy's `reward_range`."""


class BadTally(BadInput):
    """Told of plays that the plan does not want."""


class BadRecord(BadInput):
    """A saved state of another policy, shape or version."""


class TooManySubsets(KofnError):
    """A policy over all C(N, K) subsets that would not fit in memory."""


class MissingExtra(KofnError, ImportError):
    """An optional library is not installed; the message says how to install it."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"{library} is not installed: pip install 'kofn[{extra}]'")


class ShortHorizonWarning(UserWarning):
    """A horizon in which nothing can be learned."""


def whole(name: str, value: SupportsIndex, *, least: int = 1) -> int:
    """`value` as an int of at least `least`, or BadInput that names it; 1e6 is welcome, 2.5 and True are not."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    try:
        number = operator.index(value)
    except TypeError:
        raise BadInput(f"{name} must be a whole number, not {value!r}") from None
    if isinstance(value, bool | np.bool_) or number < least:
        raise BadInput(f"{name} must be a whole number of at least {least}, not {value!r}")
    return number


def check_sizes(n_arms: SupportsIndex, k: SupportsIndex) -> tuple[int, int]:
    """N and K as ints with 1 <= K < N, or BadInput."""
    n_arms, k = whole("n_arms", n_arms), whole("k", k)
    if k >= n_arms:
        raise BadInput(f"k must be less than n_arms, but k={k} and n_arms={n_arms}: there is nothing to choose")
    return n_arms, k


def subset_of(arms: Iterable[SupportsIndex], n_arms: int, k: int) -> Subset:
    """`arms` as a sorted tuple of k different arms, or BadInput."""
    try:
        subset = tuple(sorted(operator.index(arm) for arm in arms))
    except TypeError:
        raise BadInput(f"a subset is {k} arms from 0 to {n_arms - 1}, not {arms!r}") from None
    if len(set(subset)) != k or len(subset) != k:
        raise BadInput(f"a subset has {k} different arms, but {subset} came")
    if subset[0] < 0 or subset[-1] >= n_arms:
        raise BadInput(f"arms are numbered from 0 to {n_arms - 1}, but {subset} came")
    return subset


@dataclass(frozen=True, eq=False)
class Plan:
    """What a policy wants next: `subsets[i]` is to be played `times[i]` times, in any order.

    >>> plan = Plan(np.array([[0, 1], [0, 2]]), np.array([30, 10]))
    >>> len(plan), plan.plays, list(plan)
    (2, 40, [((0, 1), 30), ((0, 2), 10)])
    >>> plan.part(20).times
    array([15,  5])
    """

    subsets: IntArray
    times: NDArray[np.int64]

    def __post_init__(self) -> None:
        self.subsets.flags.writeable = False
        self.times.flags.writeable = False

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[tuple[Subset, int]]:
        return ((tuple(row.tolist()), int(n)) for row, n in zip(self.subsets, self.times, strict=True))

    @property
    def plays(self) -> int:
        """How many plays the whole plan has."""
        return int(self.times.sum())

    def part(self, plays: int, rng: np.random.Generator | None = None) -> Plan:
        """A plan of `plays` plays with the same rows, each cut in proportion.

        What cannot be divided goes to random rows; without `rng`, to the first ones.
        """
        if plays >= self.plays:
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
    """

    count: NDArray[np.int64]
    total: FloatArray
    squares: FloatArray

    @classmethod
    def zeros(cls, rows: int) -> Tally:
        """No plays yet."""
        return cls(np.zeros(rows, np.int64), np.zeros(rows), np.zeros(rows))

    @classmethod
    def of(cls, rewards: Sequence[ArrayLike]) -> Tally:
        """The tally of the given rewards, one sequence of them per row."""
        rows = [np.asarray(row, float) for row in rewards]
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


class Policy(ABC):
    """Chooses subsets. Play its plan, tell what it earned.

    People use `ask` and `tell`, a play at a time; machines use `plan` and `tell_plan`, thousands at a time. A policy
    is a subclass with `_next` (the plan it wants), `_learn` (from a plan that has been played to the end), `best`,
    `_state` and `_load`. Rewards reach it in [0, 1], to be maximised: `reward_range` and `direction` end here.
    """

    _now: _Progress

    name: ClassVar[str]
    needs_horizon: ClassVar[bool] = False
    linear_memory: ClassVar[bool] = True

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        reward_range: tuple[float, float] = (0.0, 1.0),
        direction: Direction = "maximize",
        **params: Any,
    ) -> None:
        """Keep what all policies share; `params` are the policy's own parameters, kept for its record."""
        self.n_arms, self.k = check_sizes(n_arms, k)
        self.reward_range = _check_range(reward_range)
        if direction not in ("maximize", "minimize"):
            raise BadInput(f"direction must be 'maximize' or 'minimize', not {direction!r}")
        self.direction: Direction = direction
        self.plays = 0
        self._params = params

    # What a policy says of itself.

    @abstractmethod
    def best(self) -> Subset:
        """The best guess now, by estimated mean."""

    @property
    def committed(self) -> bool:
        """Whether exploration is over for good: the policy will play `best()` whatever it is told."""
        return False

    @abstractmethod
    def _next(self) -> Plan:
        """The plan that follows from what has been learned; the same whenever it is called on the same state."""

    @abstractmethod
    def _learn(self, plan: Plan, tally: Tally) -> None:
        """Take in what all plays of `plan` earned, in [0, 1]."""

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """What has been learned, as plain numbers."""

    @abstractmethod
    def _load(self, state: Mapping[str, Any]) -> None:
        """Take over what `_state` said; anything that does not fit raises. Called on a new object only."""

    # For machines.

    def plan(self) -> Plan:
        """What is still wanted. Its rows stay, and `times` shrinks, until all has been told. Reads only."""
        now = self._now
        return now.plan if now.untold == now.size else Plan(now.plan.subsets, now.plan.times - now.got.count)

    def tell_plan(self, tallies: Tally) -> None:
        """Tell what plays of the plan earned, one tally per row; part of the counts is welcome."""
        self._take(self._inside(tallies))

    # For people.

    def ask(self) -> Subset:
        """The next subset to play. Many may be asked for before the first is told; when all of the plan is out, it is
        `best()`, so that nobody ever waits."""
        return self._now.hand_out() or self._now.extra(self.best())

    def tell(self, subset: Iterable[SupportsIndex], reward: float) -> None:
        """Tell what one play of `subset` earned."""
        now = self._now
        if not isinstance(subset, tuple) or subset not in now.rows:
            subset = subset_of(subset, self.n_arms, self.k)
        value = self._scaled(reward)
        if (row := now.row_of(subset)) is not None:
            now.take_one(row, value)
            self.plays += 1
            if not now.untold:
                self._turn()
        elif now.extras.get(subset):
            now.extras[subset] -= 1
            self.plays += 1
        else:
            raise BadTally(now.refusal(subset))

    def release(self) -> None:
        """Want again what was asked for and not told, for instance because a worker died."""
        self._now.release()

    # To keep.

    @property
    def params(self) -> dict[str, Any]:
        """The arguments that make this policy again, as plain values."""
        return {
            "n_arms": self.n_arms,
            "k": self.k,
            **self._params,
            "reward_range": list(self.reward_range),
            "direction": self.direction,
        }

    @classmethod
    def from_params(cls, **params: Any) -> Self:
        """The policy that `params` describe."""
        return cls(**params)

    def state(self) -> dict[str, Any]:
        """All that the policy knows, as plain numbers ready for JSON: a fresh copy, O(N)."""
        got = self._now.got
        rows = np.flatnonzero(got.count)
        told = {"rows": rows, "count": got.count[rows], "total": got.total[rows], "squares": got.squares[rows]}
        return {"plays": self.plays, "told": {name: each.tolist() for name, each in told.items()}, **self._state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over a state; one that does not fit is refused and changes nothing."""
        fresh = type(self).from_params(**self.params)
        try:
            fresh._load(state)
            fresh._begin()
            fresh._load_told(state["told"])
            fresh.plays = whole("plays", state["plays"], least=0)
        except (BadInput, KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as why:
            reason = f"{why.args[0]!r} is missing" if isinstance(why, KeyError) else str(why)
            raise BadRecord(f"this state does not fit {self!r}: {reason}") from why
        vars(self).update(vars(fresh))

    def _load_told(self, told: Mapping[str, Any]) -> None:
        rows = np.asarray(told["rows"], np.int64)
        if rows.size and (rows.min() < 0 or rows.max() >= len(self._now.plan) or np.unique(rows).size != rows.size):
            raise BadTally("it tells of rows that the plan does not have")
        part = Tally.zeros(len(self._now.plan))
        for name in ("count", "total", "squares"):
            getattr(part, name)[rows] = np.asarray(told[name])
        self._check_sums(part, 0.0, 1.0)
        self._now.take(part)
        if not self._now.untold:
            raise BadTally("it tells of a plan that is already complete")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.params.items())})"

    # The engine: one plan after another.

    def _begin(self) -> None:
        """Start on the next plan. Each policy calls it at the end of its `__init__`."""
        extras = self._now.extras if "_now" in vars(self) else {}
        self._now = _Progress(self._next(), extras)

    def _turn(self) -> None:
        self._learn(self._now.plan, self._now.got)
        self._begin()

    def _take(self, tally: Tally) -> None:
        """Count a checked tally in [0, 1]; learn when the plan is complete."""
        self._now.take(tally)
        self.plays += int(tally.count.sum())
        if not self._now.untold:
            self._turn()

    # The edge: rewards in the user's scale, turned into [0, 1] to be maximised.

    def _scaled(self, reward: float) -> float:
        low, high = self.reward_range
        try:
            value = (float(reward) - low) / (high - low)
        except (TypeError, ValueError, OverflowError):
            raise BadReward(f"a reward is one number, not {reward!r}") from None
        if not 0.0 <= value <= 1.0:
            raise BadReward(f"a reward lies from {low:g} to {high:g} (reward_range), but {reward!r} came")
        return value if self.direction == "maximize" else 1.0 - value

    def _inside(self, tallies: Tally) -> Tally:
        """The tallies in [0, 1], checked against the plan."""
        if not isinstance(tallies, Tally):
            raise BadTally(f"tell_plan takes a Tally, not {type(tallies).__name__}: Tally.of([rewards of row 0, ...])")
        count, total, squares = (np.asarray(each, float) for each in (tallies.count, tallies.total, tallies.squares))
        rows = (len(self._now.plan),)
        if not count.shape == total.shape == squares.shape == rows:
            raise BadTally(f"the plan has {rows[0]} rows, but tallies of shape {count.shape} came: one per row")
        low, high = self.reward_range
        n = tallies.count
        self._check_sums(tallies, low, high)
        if (low, high) != (0.0, 1.0):
            span = high - low
            squares = (squares - 2 * low * total + n * low * low) / (span * span)
            total = (total - n * low) / span
        if self.direction == "minimize":
            squares = n - 2 * total + squares
            total = n - total
        return Tally(n.astype(np.int64), np.clip(total, 0, n), np.clip(squares, 0, n))

    def _check_sums(self, tally: Tally, low: float, high: float) -> None:
        n, total, squares = tally.count, tally.total, tally.squares
        wanted = self._now.plan.times - self._now.got.count
        if not (np.isfinite(total).all() and np.isfinite(squares).all()):
            raise BadReward("totals and squares must be finite numbers, but NaN or infinity came")
        if not np.issubdtype(n.dtype, np.integer) or (n < 0).any():
            raise BadTally("counts are whole numbers of plays, at least 0")
        if (n > wanted).any():
            row = int(np.argmax(n > wanted))
            subset = tuple(self._now.plan.subsets[row].tolist())
            raise BadTally(f"told of {n[row]} plays of {subset}, but only {wanted[row]} are wanted")
        slack = ROUNDING * n * max(abs(low), abs(high), high - low)
        if (bad := (total < n * low - slack) | (total > n * high + slack)).any():
            row = int(np.argmax(bad))
            mean = total[row] / n[row] if n[row] else total[row]
            raise BadReward(f"a reward lies from {low:g} to {high:g} (reward_range), but row {row} averages {mean:g}")
        most = n * (low + high) * (total / np.maximum(n, 1)) - n * low * high  # of (x-low)(high-x) >= 0
        slack = ROUNDING * n * max(abs(low), abs(high)) ** 2
        if (bad := (squares * n < total * total - slack * n) | (squares > most + slack)).any():
            row = int(np.argmax(bad))
            raise BadReward(
                f"row {row}: {n[row]} rewards from {low:g} to {high:g} with the total {total[row]:g} cannot have "
                f"squares that add up to {squares[row]:g}"
            )


class _Progress:
    """One plan on its way: what has been handed out, what has been told."""

    def __init__(self, plan: Plan, extras: dict[Subset, int]) -> None:
        self.plan = plan
        self.size = plan.plays
        self.untold = self.size
        self.got = Tally.zeros(len(plan))
        self.rows: dict[Subset, list[int]] = {}  # of the subsets handed out, or of all once one is told unasked
        self.extras = extras  # plays of best() handed out while the whole plan was out; they outlive it
        self.release()

    def release(self) -> None:
        self.out = np.zeros(len(self.plan), np.int64)  # handed out and not told
        self.unasked = self.untold
        self.sweep: list[int] = []

    def hand_out(self) -> Subset | None:
        """A play of the plan that is not out yet: row after row, round and round, so that rows see the same weather."""
        while self.unasked:
            if not self.sweep:
                self.sweep = np.flatnonzero(self.plan.times > self.got.count + self.out)[::-1].tolist()
            row = self.sweep.pop()
            if self.plan.times[row] > self.got.count[row] + self.out[row]:
                self.out[row] += 1
                self.unasked -= 1
                return self._known(row)
        return None

    def _known(self, row: int) -> Subset:
        subset: Subset = tuple(self.plan.subsets[row].tolist())
        rows = self.rows.setdefault(subset, [])
        if row not in rows:
            rows.append(row)
        return subset

    def extra(self, subset: Subset) -> Subset:
        self.extras[subset] = self.extras.get(subset, 0) + 1
        return subset

    def row_of(self, subset: Subset) -> int | None:
        """A row of this subset that wants another play; of several, one that is out, or it would stay out for ever."""
        rows = self.rows.get(subset, ())
        for row in rows:
            if self.out[row]:
                return row
        for row in rows:
            if self.got.count[row] < self.plan.times[row]:
                return row
        if len(self.rows) < len(self.plan) and not self.extras.get(subset):
            matches = np.flatnonzero((self.plan.subsets == np.array(subset)).all(axis=1))
            for row in matches.tolist():
                self._known(row)
            return next((row for row in matches.tolist() if self.got.count[row] < self.plan.times[row]), None)
        return None

    def refusal(self, subset: Subset) -> str:
        if subset in self.rows:
            wanted = int(self.plan.times[self.rows[subset]].sum())
            return f"told of one more play of {subset}, but all {wanted} that were wanted have been told"
        return f"told of a play of {subset}, which is not in the plan: play what ask() or plan() gives"

    def take_one(self, row: int, value: float) -> None:
        got = self.got
        got.count[row] += 1
        got.total[row] += value
        got.squares[row] += value * value
        self.untold -= 1
        if self.out[row]:
            self.out[row] -= 1
        else:
            self.unasked -= 1

    def take(self, tally: Tally) -> None:
        self.got.add(tally)
        n = int(tally.count.sum())
        self.untold -= n
        back = np.minimum(self.out, tally.count)
        self.out -= back
        self.unasked -= n - int(back.sum())


def _check_range(reward_range: Sequence[float]) -> tuple[float, float]:
    try:
        low, high = (float(each) for each in reward_range)
    except (TypeError, ValueError):
        raise BadInput(f"reward_range is two numbers (low, high), not {reward_range!r}") from None
    if not (low < high and math.isfinite(low) and math.isfinite(high)):
        raise BadInput(f"reward_range needs two finite numbers with low < high, not ({low:g}, {high:g})")
    return low, high


def generator(seed: Seed) -> np.random.Generator:
    """The generator that a seed means: an int, a SeedSequence or a Generator, as everywhere in kofn."""
    if isinstance(seed, bool) or not (
        seed is None or isinstance(seed, int | np.integer | np.random.SeedSequence | np.random.Generator)
    ):
        raise BadInput(f"seed must be an int, a SeedSequence or a Generator, not {seed!r}")
    if isinstance(seed, int | np.integer) and seed < 0:
        raise BadInput(f"seed must be at least 0, not {seed}")
    return np.random.default_rng(cast(Any, seed))
