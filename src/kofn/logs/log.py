"""A log: past decisions, what each earned, and with which probability it was made.

The file is comma-separated, with a header and a row per play::

    subset,reward,propensity
    3 7 12,0.25,0.004
    1 7 9,1,0.004

A subset is K arms with spaces between: numbers from 0, or names. The propensity is the probability with which that
whole subset was chosen then, out of all that could have been; without such a column, say that the choice was uniform.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadInput, Direction, FloatArray, IntArray, Seed, Subset, check_sizes, generator, subset_of, whole
from kofn.problems.problem import Problem

_SURPRISE = 6.0
"""Standard deviations at which a log that is said to be uniform is not believed: one in a billion per arm."""


class Groups(NamedTuple):
    """The different subsets of a log, and which of them each play is."""

    subsets: IntArray
    which: IntArray
    plays: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Log:
    """Plays in the order in which they were made.

    >>> from kofn.problems import Bernoulli, Problem
    >>> log = Log.of(Problem(Bernoulli([0.2, 0.5, 0.8, 0.1]), "mean", k=2), plays=6_000, seed=1)
    >>> len(log), log.n_arms, log.k, len(log.groups.subsets)
    (6000, 4, 2, 6)

    `propensity` is None if nothing is known of how subsets were chosen: then nothing can be weighted.
    """

    subsets: IntArray
    rewards: FloatArray
    propensity: FloatArray | None
    n_arms: int
    names: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        plays = len(self.rewards)
        if not plays or self.subsets.shape[:1] != (plays,) or self.subsets.ndim != 2:
            raise BadInput(f"a log has a subset and a reward per play, but {self.subsets.shape} and {plays} came")
        check_sizes(self.n_arms, self.k)
        if not np.isfinite(self.rewards).all():
            wrong = int(np.argmin(np.isfinite(self.rewards)))
            raise BadInput(f"rewards are finite numbers, but that of play {wrong} is {self.rewards[wrong]}")
        chances = np.ones(1) if self.propensity is None else self.propensity
        if not (fine := (chances > 0) & (chances <= 1)).all():
            wrong = int(np.argmin(fine))
            raise BadInput(f"a propensity is a probability above 0, but that of play {wrong} is {chances[wrong]:g}")

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        uniform: bool = False,
        n_arms: int | None = None,
        columns: Sequence[str] = ("subset", "reward", "propensity"),
    ) -> Log:
        """The log in that file; `uniform=True` if every subset was as likely as any other.

        `columns` are the names of the three columns. `n_arms` is for numbered arms of which the last were never played.
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
            raise BadInput(f"{path} has no plays, only a header")
        numbered, names = _numbered(arms, n_arms, path)
        log = cls(numbered, np.array(rewards), np.array(propensity) if known else None, len(names), names)
        return log.as_uniform() if uniform else log

    @classmethod
    def of(cls, problem: Problem, plays: int, seed: Seed = None) -> Log:
        """A log of uniformly random plays of a problem."""
        plays, rng = whole("plays", plays), generator(seed)
        subsets = np.argpartition(rng.random((plays, problem.n_arms)), problem.k, axis=1)[:, : problem.k]
        subsets = np.sort(subsets, axis=1)
        rewards = problem.play(subsets, np.ones(plays, np.int64), rng).total
        names = tuple(map(str, range(problem.n_arms)))
        return cls(subsets, rewards, None, problem.n_arms, names).as_uniform()

    def as_uniform(self) -> Log:
        """The log with the propensities of uniform choice, 1 / C(N, K); refused if its plays contradict that."""
        if self.propensity is not None and np.ptp(self.propensity) > 0:
            raise BadInput("the log has propensities that differ: it was not uniform")
        seen, expected = np.bincount(self.subsets.ravel(), minlength=self.n_arms), self.k / self.n_arms
        z = (seen - len(self) * expected) / math.sqrt(len(self) * expected * (1 - expected))
        arm = int(np.argmax(np.abs(z)))
        if abs(z[arm]) > _SURPRISE:
            raise BadInput(
                f"the log was not uniform: arm {self.name(arm)} is in {seen[arm]:,} of {len(self):,} plays, where "
                f"{len(self) * expected:,.0f} are expected. Give the propensities that it was played with"
            )
        chance = math.exp(-_log_subsets(self.n_arms, self.k))
        return Log(self.subsets, self.rewards, np.full(len(self), chance), self.n_arms, self.names)

    def write(self, path: str | Path) -> None:
        """Write the log as `read` reads it."""
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["subset", "reward"] + ["propensity"] * (self.propensity is not None))
            for at, (arms, reward) in enumerate(zip(self.subsets.tolist(), self.rewards.tolist(), strict=True)):
                chance = [] if self.propensity is None else [repr(float(self.propensity[at]))]
                writer.writerow([" ".join(map(self.name, arms)), repr(reward), *chance])

    @property
    def k(self) -> int:
        """K."""
        return int(self.subsets.shape[1])

    def __len__(self) -> int:
        return len(self.rewards)

    @cached_property
    def groups(self) -> Groups:
        """The different subsets that were played, in lexicographic order."""
        subsets, which, plays = np.unique(self.subsets, axis=0, return_inverse=True, return_counts=True)
        return Groups(subsets, which.reshape(-1), plays)

    def name(self, arm: int) -> str:
        """What the file calls that arm."""
        return self.names[arm] if self.names else str(arm)

    def named(self, arms: Iterable[Any]) -> Subset:
        """The subset of these arms, given by name or, if they have none, by number."""
        given = [str(arm) for arm in arms]
        number = {self.name(arm): arm for arm in range(self.n_arms)}
        if unknown := [arm for arm in given if arm not in number]:
            raise BadInput(f"the log has no arm {unknown[0]!r}")
        return subset_of([number[arm] for arm in given], self.n_arms, self.k)

    def problem(self, *, direction: Direction = "maximize") -> Problem:
        """The log as a problem: a play of a subset earns what one of its logged plays earned."""
        from kofn.logs.logged_problem import Logged

        return Logged(self, direction=direction)

    def __repr__(self) -> str:
        return f"<log of {len(self):,} plays, {self.k} of {self.n_arms} arms>"


def _number(text: str | None, column: str, path: str | Path, line: int) -> float:
    try:
        return float(text or "")
    except ValueError:
        raise BadInput(f"{path}, line {line}: {column} must be a number, not {text!r}") from None


def _numbered(arms: list[list[str]], n_arms: int | None, path: str | Path) -> tuple[IntArray, tuple[str, ...]]:
    """The arms of each play as sorted numbers, and the name of each number."""
    k = len(arms[0])
    for line, row in enumerate(arms, start=2):
        if len(set(row)) != k or len(row) != k or not k:
            raise BadInput(f"{path}, line {line}: a subset is {max(k, 1)} different arms, as in line 2, not {row}")
    used = {arm for row in arms for arm in row}
    if all(arm.isdecimal() for arm in used):
        most = max(map(int, used)) + 1
        if n_arms is not None and n_arms < most:
            raise BadInput(f"{path} plays arm {most - 1}, but arms are numbered from 0 to {n_arms - 1}")
        names = tuple(map(str, range(n_arms or most)))
        return np.sort(np.array([[int(arm) for arm in row] for row in arms], np.int64), axis=1), names
    names = tuple(sorted(used))
    if n_arms is not None and n_arms != len(names):
        raise BadInput(f"{path} has {len(names)} named arms, not {n_arms}: leave the number out")
    number = {arm: at for at, arm in enumerate(names)}
    return np.sort(np.array([[number[arm] for arm in row] for row in arms], np.int64), axis=1), names


def _log_subsets(n_arms: int, k: int) -> float:
    return math.lgamma(n_arms + 1) - math.lgamma(k + 1) - math.lgamma(n_arms - k + 1)
