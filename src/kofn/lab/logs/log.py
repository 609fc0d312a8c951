"""A log: past decisions, their rewards, and the probability of each decision.

The file is comma-separated, with a header and a row per play (or JSON lines or Parquet, with the same columns)::

    subset,reward,propensity
    3 7 12,0.25,0.004
    1 7 9,1,0.004

A subset is K arms separated by spaces: numbers from 0, or names. The propensity is the probability with which that
whole subset was chosen. The column may be left out if all subsets were equally likely. `kofn campaign decisions` writes
such a file; its column `arms` has the names of numbered arms, and its column `context` the contexts, as JSON.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadInput, Direction, FloatArray, IntArray, Seed, Subset, check_sizes, generator, subset_of, whole
from kofn.core.checks import shown
from kofn.core.contexts import Attributes, key_of
from kofn.lab.logs.files import read_rows
from kofn.lab.problems import AbstractProblem, ContextualProblem

if TYPE_CHECKING:
    from kofn.lab.logs.logged_problem import LoggedProblem

_MOST_DEVIATIONS = 6.0
"""Standard deviations by which an arm's count may differ from a uniform log's. Beyond 6, once in a billion per arm."""

MAX_ARMS = 1_000_000
"""Limit on the numbers of arms in a file. A log keeps a name for each number."""

_EXPORT = {"id", "group", "reward", "rewarded_at", "propensity"}
"""Columns by which an export of a campaign's decisions is recognised."""


class Groups(NamedTuple):
    """The distinct subsets of a log, the index of each play's subset, and the plays of each."""

    subsets: IntArray
    which: IntArray
    plays: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DecisionLog:
    """Plays in the order in which they were made, with their rewards.

    >>> from kofn.lab.problems import Bernoulli, Problem
    >>> log = DecisionLog.simulate(Problem(Bernoulli([0.2, 0.5, 0.8, 0.1]), "mean", k=2), plays=6_000, seed=1)
    >>> len(log), log.n_arms, log.k, len(log.groups.subsets)
    (6000, 4, 2, 6)

    `propensity` is None if it is not known how subsets were chosen, and NaN for single plays of unknown probability. A
    log is `adaptive` if the choices depended on earlier rewards, as in a campaign: not every subset was possible in
    every play. `unrewarded` counts rows that were left out because they had no reward. `segments` has the key of the
    segment of each play; None if the log has no contexts.
    """

    subsets: IntArray
    rewards: FloatArray
    propensity: FloatArray | None
    n_arms: int
    names: tuple[str, ...] = field(default=())
    adaptive: bool = False
    unrewarded: int = 0
    segments: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        plays = len(self.rewards)
        if not plays or self.subsets.shape[:1] != (plays,) or self.subsets.ndim != 2:
            raise BadInput(f"a log has a subset and a reward per play; got {self.subsets.shape} and {plays} rewards")
        if self.segments is not None and len(self.segments) != plays:
            raise BadInput(f"a log has a segment per play; got {len(self.segments):,} for {plays:,} plays")
        check_sizes(self.n_arms, self.k)
        if not np.isfinite(self.rewards).all():
            wrong = int(np.argmin(np.isfinite(self.rewards)))
            raise BadInput(f"rewards must be finite numbers; play {wrong} has {self.rewards[wrong]}")
        propensity = np.ones(1) if self.propensity is None else self.propensity
        if not (fine := (propensity > 0) & (propensity <= 1) | np.isnan(propensity)).all():
            wrong = int(np.argmin(fine))
            raise BadInput(f"a propensity must be above 0 and at most 1; play {wrong} has {propensity[wrong]:g}")

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        uniform: bool = False,
        n_arms: int | None = None,
        columns: Sequence[str] = ("subset", "reward", "propensity"),
        adaptive: bool | None = None,
        context: Sequence[str] | None = None,
    ) -> DecisionLog:
        """Read a log from a CSV, JSON lines or Parquet file; `uniform=True` if all subsets were equally likely.

        `columns` are the names of the three columns. Give `n_arms` if the last of the numbered arms were never played.
        Rows without a reward are left out, and counted. An export of a campaign is `adaptive`; say so for other logs
        whose choices depended on earlier rewards. `context` are the columns that are attributes of contexts; without
        it, contexts are in the column `context`, if there is one.
        """
        have, rows = read_rows(path, [*columns[:2], *(context or ())])
        reader = _Contexts(context) if context or "context" in have else None
        plays = _Plays(columns, known=columns[2] in have, named="arms" in have, contexts=reader)
        for where, row in rows:
            plays.add(row, f"{path}, {where}")
        if not plays.rewards:
            left_out = (
                f"{plays.unrewarded:,} plays, but none with a reward" if plays.unrewarded else "a header but no plays"
            )
            raise BadInput(f"{path} has {left_out}")
        numbered, names = _numbered(plays.arms, n_arms, path, plays.names)
        propensity = np.array(plays.propensity)
        given = None if not plays.known or np.isnan(propensity).all() else propensity
        is_adaptive = set(have) >= _EXPORT if adaptive is None else adaptive
        segments = tuple(reader.keys) if reader is not None and reader.any else None
        log = cls(numbered, np.array(plays.rewards), given, len(names), names, is_adaptive, plays.unrewarded, segments)
        return log.as_uniform() if uniform else log

    @classmethod
    def simulate(cls, problem: AbstractProblem, plays: int, seed: Seed = None) -> DecisionLog:
        """Return a log of uniformly random plays of a problem, with the contexts of its visitors if it has any."""
        plays, rng = whole("plays", plays), generator(seed)
        subsets = np.argpartition(rng.random((plays, problem.n_arms)), problem.k, axis=1)[:, : problem.k]
        subsets = np.sort(subsets, axis=1)
        names = tuple(map(str, range(problem.n_arms)))
        if not isinstance(problem, ContextualProblem):
            rewards = problem.play(subsets, np.ones(plays, np.int64), rng).total
            return cls(subsets, rewards, None, problem.n_arms, names).as_uniform()
        who, rewards = rng.choice(len(problem.segments), plays, p=problem.shares), np.zeros(plays)
        for number, segment in enumerate(problem.segments):
            some = np.flatnonzero(who == number)
            rewards[some] = segment.problem.play(subsets[some], np.ones(len(some), np.int64), rng).total
        keys = [key_of(segment.context) for segment in problem.segments]
        segments = tuple(keys[number] for number in who.tolist())
        return cls(subsets, rewards, None, problem.n_arms, names, segments=segments).as_uniform()

    def as_uniform(self) -> DecisionLog:
        """Return the log with the propensities of uniform choice, 1 / C(N, K); refuse if its plays contradict that."""
        if self.propensity is not None and np.nanmax(self.propensity) > np.nanmin(self.propensity):
            raise BadInput("the propensities of the log differ, so its choices were not uniform: leave out uniform")
        seen, expected = np.bincount(self.subsets.ravel(), minlength=self.n_arms), self.k / self.n_arms
        z = (seen - len(self) * expected) / math.sqrt(len(self) * expected * (1 - expected))
        arm = int(np.argmax(np.abs(z)))
        if abs(z[arm]) > _MOST_DEVIATIONS:
            raise BadInput(
                f"the log was not uniform: arm {self.name(arm)} is in {seen[arm]:,} of {len(self):,} plays; about "
                f"{len(self) * expected:,.0f} are expected. Give the log a column of propensities"
            )
        propensity = math.exp(-_log_subsets(self.n_arms, self.k))
        return replace(self, propensity=np.full(len(self), propensity), adaptive=False)

    def write(self, path: str | Path) -> None:
        """Write the log to a CSV file that `read` reads. Names with spaces are written into a separate column."""
        spaced = any(" " in name for name in self.names)
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            propensity, context = self.propensity is not None, self.segments is not None
            writer.writerow(
                ["subset", "reward", *["propensity"] * propensity, *["context"] * context, *["arms"] * spaced]
            )
            for at, (arms, reward) in enumerate(zip(self.subsets.tolist(), self.rewards.tolist(), strict=True)):
                row = [" ".join(map(str if spaced else self.name, arms)), repr(reward)]
                if self.propensity is not None:
                    row.append("" if np.isnan(self.propensity[at]) else repr(float(self.propensity[at])))
                if self.segments is not None:
                    row.append(self.segments[at])
                writer.writerow([*row, json.dumps([self.name(arm) for arm in arms])] if spaced else row)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which plays have a known propensity."""
        return np.zeros(len(self), bool) if self.propensity is None else ~np.isnan(self.propensity)

    @property
    def k(self) -> int:
        """The number of arms in a subset."""
        return int(self.subsets.shape[1])

    @property
    def reward_range(self) -> tuple[float, float]:
        """The range of the logged rewards, widened to contain [0, 1]."""
        return min(0.0, float(self.rewards.min())), max(1.0, float(self.rewards.max()))

    def __len__(self) -> int:
        return len(self.rewards)

    @cached_property
    def groups(self) -> Groups:
        """The distinct subsets that were played, in lexicographic order."""
        subsets, which, plays = np.unique(self.subsets, axis=0, return_inverse=True, return_counts=True)
        return Groups(subsets, which.reshape(-1), plays)

    def part(self, plays: IntArray) -> DecisionLog:
        """Return the log of these plays only, given by their numbers."""
        return replace(
            self,
            subsets=self.subsets[plays],
            rewards=self.rewards[plays],
            propensity=None if self.propensity is None else self.propensity[plays],
            segments=None if self.segments is None else tuple(self.segments[at] for at in plays.tolist()),
            unrewarded=0,
        )

    def name(self, arm: int) -> str:
        """Return the name of an arm in the file."""
        return self.names[arm] if self.names else str(arm)

    def label(self, subset: Iterable[int]) -> str:
        """Return the names of a subset's arms, separated by spaces, or by commas if names have spaces."""
        names = [self.name(arm) for arm in subset]
        return (", " if any(" " in name for name in self.names) else " ").join(names)

    def subset_of_names(self, arms: Iterable[Any]) -> Subset:
        """Return the subset of the arms with these names or numbers."""
        given = [str(arm) for arm in arms]
        number = {str(arm): arm for arm in range(self.n_arms)} | {self.name(arm): arm for arm in range(self.n_arms)}
        if unknown := [arm for arm in given if arm not in number]:
            raise BadInput(f"the log has no arm {shown(unknown[0])}")
        return subset_of([number[arm] for arm in given], self.n_arms, self.k)

    def problem(self, *, direction: Direction = "maximize") -> LoggedProblem:
        """Return the log as a problem: a play of a subset earns the reward of one of its logged plays."""
        from kofn.lab.logs.logged_problem import LoggedProblem

        return LoggedProblem(self, direction=direction)

    def __repr__(self) -> str:
        return f"<log of {len(self):,} plays, {self.k} of {self.n_arms} arms>"


class _Plays:
    """The plays of a file, row by row."""

    def __init__(self, columns: Sequence[str], *, known: bool, named: bool, contexts: _Contexts | None) -> None:
        self.columns, self.known, self._named, self._contexts = columns, known, named, contexts
        self.arms: list[list[str]] = []
        self.rewards: list[float] = []
        self.propensity: list[float] = []
        self.names: dict[str, str] = {}  # of arms that the file numbers and names
        self.unrewarded = 0

    def add(self, row: Mapping[str, Any], here: str) -> None:
        subset, reward, propensity = self.columns
        if _is_missing(row.get(reward)):
            self.unrewarded += 1
            return
        arms = _words(row.get(subset))
        k = len(self.arms[0]) if self.arms else len(arms)
        if len(set(arms)) != k or len(arms) != k or not k:
            raise BadInput(f"{here}: a subset has {max(k, 1)} different arms, as in the first play; got {shown(arms)}")
        self.arms.append(arms)
        self.rewards.append(_number(row[reward], reward, here))
        if self.known:
            given = row.get(propensity)
            self.propensity.append(math.nan if _is_missing(given) else _number(given, propensity, here))
        if self._contexts is not None:
            self._contexts.add(row, here)
        if self._named:
            self.names.update(zip(arms, _names(row.get("arms"), k, here), strict=True))


class _Contexts:
    """The contexts of a file, row by row: columns that are attributes, or else the column `context`."""

    def __init__(self, columns: Sequence[str] | None) -> None:
        self._columns = columns
        self._known: dict[str, str] = {}  # the key of each text: few contexts are different
        self.keys: list[str] = []
        self.any = False

    def add(self, row: Mapping[str, Any], here: str) -> None:
        """Add the context of a row."""
        values = row.get("context") if self._columns is None else [row.get(column) for column in self._columns]
        self.any = self.any or not _is_missing(values)
        text = str(values)
        if text not in self._known:
            self._known[text] = self._key(values, here)
        self.keys.append(self._known[text])

    def _key(self, values: Any, here: str) -> str:
        try:
            if self._columns is not None:
                present = dict(zip(self._columns, values, strict=True))
                given = {name: None if _is_missing(value) else value for name, value in present.items()}
            else:
                given = json.loads(values) if isinstance(values, str) and values else values or {}
            return key_of(Attributes().complete(given))
        except (ValueError, BadInput) as why:
            raise BadInput(f"{here}: {why if isinstance(why, BadInput) else 'context must be JSON'}") from None


def _is_missing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _words(subset: Any) -> list[str]:
    """Return the arms of a subset, which a file has as text or as a list."""
    return [str(arm) for arm in subset] if isinstance(subset, list | tuple) else str(subset or "").split()


def _names(given: Any, k: int, here: str) -> list[str]:
    """Return the names of the arms of a play, which a file has as a list or as JSON."""
    try:
        names = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        names = None
    if not (isinstance(names, list) and len(names) == k and all(isinstance(name, str) for name in names)):
        raise BadInput(f"{here}: arms must be a JSON list of {k} names; got {shown(given)}")
    return names


def _number(value: Any, column: str, here: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise BadInput(f"{here}: {column} must be a number, not {shown(value)}") from None


def _numbered(
    arms: list[list[str]], n_arms: int | None, path: str | Path, known: Mapping[str, str]
) -> tuple[IntArray, tuple[str, ...]]:
    """Return the arms of each play as sorted numbers, and the name of each number."""
    used = {arm for row in arms for arm in row}
    if all(arm.isdecimal() for arm in used):
        most = max(int(arm[:20]) for arm in used) + 1
        if most > MAX_ARMS:
            raise BadInput(f"{path} has arm {shown(most - 1)}: number arms from 0, below {MAX_ARMS:,}")
        if n_arms is not None and n_arms < most:
            raise BadInput(f"{path} has arm {most - 1}, but n_arms={n_arms} numbers arms from 0 to {n_arms - 1}")
        named = _distinct([known.get(str(arm), str(arm)) for arm in range(n_arms or most)])
        return np.sort(np.array([[int(arm) for arm in row] for row in arms], np.int64), axis=1), named
    names = tuple(sorted(used))
    if n_arms is not None and n_arms != len(names):
        raise BadInput(f"{path} has {len(names)} named arms, but n_arms={n_arms} was given: leave it out")
    number = {arm: at for at, arm in enumerate(names)}
    return np.sort(np.array([[number[arm] for arm in row] for row in arms], np.int64), axis=1), names


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, with the number of an arm whose name an earlier one has: it was retired and is back."""
    found: dict[str, None] = {}
    for number, name in enumerate(names):
        while name in found:
            name = f"{name} ({number})"
        found[name] = None
    return tuple(found)


def _log_subsets(n_arms: int, k: int) -> float:
    return math.lgamma(n_arms + 1) - math.lgamma(k + 1) - math.lgamma(n_arms - k + 1)
