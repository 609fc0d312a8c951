"""A log: past decisions, their rewards, and the probability of each decision.

The file is comma-separated, with a header and a row per play::

    subset,reward,propensity
    3 7 12,0.25,0.004
    1 7 9,1,0.004

A subset is K arms separated by spaces: numbers from 0, or names. The propensity is the probability with which that
whole subset was chosen. The column may be left out if all subsets were equally likely.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadInput, Direction, FloatArray, IntArray, Seed, Subset, check_sizes, generator, subset_of, whole
from kofn.problems.base import AbstractProblem

if TYPE_CHECKING:
    from kofn.logs.logged_problem import LoggedProblem

_MOST_DEVIATIONS = 6.0
"""Standard deviations by which an arm's count may differ from a uniform log's. Beyond 6, once in a billion per arm."""


class Groups(NamedTuple):
    """The distinct subsets of a log, the index of each play's subset, and the plays of each."""

    subsets: IntArray
    which: IntArray
    plays: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Log:
    """Plays in the order in which they were made, with their rewards.

    >>> from kofn.problems import Bernoulli, Problem
    >>> log = Log.simulate(Problem(Bernoulli([0.2, 0.5, 0.8, 0.1]), "mean", k=2), plays=6_000, seed=1)
    >>> len(log), log.n_arms, log.k, len(log.groups.subsets)
    (6000, 4, 2, 6)

    `propensity` is None if it is not known how subsets were chosen. Such a log can be played, but not evaluated.
    """

    subsets: IntArray
    rewards: FloatArray
    propensity: FloatArray | None
    n_arms: int
    names: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        plays = len(self.rewards)
        if not plays or self.subsets.shape[:1] != (plays,) or self.subsets.ndim != 2:
            raise BadInput(f"a log has a subset and a reward per play; got {self.subsets.shape} and {plays} rewards")
        check_sizes(self.n_arms, self.k)
        if not np.isfinite(self.rewards).all():
            wrong = int(np.argmin(np.isfinite(self.rewards)))
            raise BadInput(f"rewards must be finite numbers; play {wrong} has {self.rewards[wrong]}")
        propensity = np.ones(1) if self.propensity is None else self.propensity
        if not (fine := (propensity > 0) & (propensity <= 1)).all():
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
    ) -> Log:
        """Read a log from a CSV file; `uniform=True` declares that all subsets were equally likely.

        `columns` are the names of the three columns. Give `n_arms` if the last of the numbered arms were never played.
        """
        with Path(path).open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            have = rows.fieldnames or []
            if missing := [name for name in columns[:2] if name not in have]:
                raise BadInput(f"{path} has no column {missing[0]!r}; it has: {', '.join(have) or 'none'}")
            known = columns[2] in have
            arms, rewards, propensity = [], [], []
            for line, row in enumerate(rows, start=2):
                arms.append((row[columns[0]] or "").split())
                rewards.append(_number(row[columns[1]], columns[1], path, line))
                if known:
                    propensity.append(_number(row[columns[2]], columns[2], path, line))
        if not rewards:
            raise BadInput(f"{path} has a header but no plays")
        numbered, names = _numbered(arms, n_arms, path)
        log = cls(numbered, np.array(rewards), np.array(propensity) if known else None, len(names), names)
        return log.as_uniform() if uniform else log

    @classmethod
    def simulate(cls, problem: AbstractProblem, plays: int, seed: Seed = None) -> Log:
        """Return a log of uniformly random plays of a problem."""
        plays, rng = whole("plays", plays), generator(seed)
        subsets = np.argpartition(rng.random((plays, problem.n_arms)), problem.k, axis=1)[:, : problem.k]
        subsets = np.sort(subsets, axis=1)
        rewards = problem.play(subsets, np.ones(plays, np.int64), rng).total
        names = tuple(map(str, range(problem.n_arms)))
        return cls(subsets, rewards, None, problem.n_arms, names).as_uniform()

    def as_uniform(self) -> Log:
        """Return the log with the propensities of uniform choice, 1 / C(N, K); refuse if its plays contradict that."""
        if self.propensity is not None and np.ptp(self.propensity) > 0:
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
        return Log(self.subsets, self.rewards, np.full(len(self), propensity), self.n_arms, self.names)

    def write(self, path: str | Path) -> None:
        """Write the log to a CSV file that `read` reads."""
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["subset", "reward"] + ["propensity"] * (self.propensity is not None))
            for at, (arms, reward) in enumerate(zip(self.subsets.tolist(), self.rewards.tolist(), strict=True)):
                propensity = [] if self.propensity is None else [repr(float(self.propensity[at]))]
                writer.writerow([" ".join(map(self.name, arms)), repr(reward), *propensity])

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

    def name(self, arm: int) -> str:
        """Return the name of an arm in the file."""
        return self.names[arm] if self.names else str(arm)

    def subset_of_names(self, arms: Iterable[Any]) -> Subset:
        """Return the subset of the arms with these names; arms without names are given by number."""
        given = [str(arm) for arm in arms]
        number = {self.name(arm): arm for arm in range(self.n_arms)}
        if unknown := [arm for arm in given if arm not in number]:
            raise BadInput(f"the log has no arm {unknown[0]!r}")
        return subset_of([number[arm] for arm in given], self.n_arms, self.k)

    def problem(self, *, direction: Direction = "maximize") -> LoggedProblem:
        """Return the log as a problem: a play of a subset earns the reward of one of its logged plays."""
        from kofn.logs.logged_problem import LoggedProblem

        return LoggedProblem(self, direction=direction)

    def __repr__(self) -> str:
        return f"<log of {len(self):,} plays, {self.k} of {self.n_arms} arms>"


def _number(text: str | None, column: str, path: str | Path, line: int) -> float:
    try:
        return float(text or "")
    except ValueError:
        raise BadInput(f"{path}, line {line}: {column} must be a number, not {text!r}") from None


def _numbered(arms: list[list[str]], n_arms: int | None, path: str | Path) -> tuple[IntArray, tuple[str, ...]]:
    """Return the arms of each play as sorted numbers, and the name of each number."""
    k = len(arms[0])
    for line, row in enumerate(arms, start=2):
        if len(set(row)) != k or len(row) != k or not k:
            raise BadInput(f"{path}, line {line}: a subset has {max(k, 1)} different arms, as in line 2; got {row}")
    used = {arm for row in arms for arm in row}
    if all(arm.isdecimal() for arm in used):
        most = max(map(int, used)) + 1
        if n_arms is not None and n_arms < most:
            raise BadInput(f"{path} has arm {most - 1}, but n_arms={n_arms} numbers arms from 0 to {n_arms - 1}")
        names = tuple(map(str, range(n_arms or most)))
        return np.sort(np.array([[int(arm) for arm in row] for row in arms], np.int64), axis=1), names
    names = tuple(sorted(used))
    if n_arms is not None and n_arms != len(names):
        raise BadInput(f"{path} has {len(names)} named arms, but n_arms={n_arms} was given: leave it out")
    number = {arm: at for at, arm in enumerate(names)}
    return np.sort(np.array([[number[arm] for arm in row] for row in arms], np.int64), axis=1), names


def _log_subsets(n_arms: int, k: int) -> float:
    return math.lgamma(n_arms + 1) - math.lgamma(k + 1) - math.lgamma(n_arms - k + 1)
