"""Settings: families of random problems, as data. A setting makes a fresh random instance from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from kofn.core import BadInput, Seed, check_sizes, generator, whole
from kofn.core.checks import unknown_name
from kofn.lab.applications import APPLICATIONS, Application
from kofn.lab.problems import AbstractProblem, ArctanExponential, Arms, Bernoulli, Correlated, Problem
from kofn.lab.problems.contextual_kinds import KINDS, contextual_problem
from kofn.lab.problems.real import REAL, RealProblem, load, real_named
from kofn.lab.rewards import by_name, minimum


def _bernoulli(low: float = 0.0, high: float = 1.0) -> Callable[[int, np.random.Generator], Arms]:
    return lambda n_arms, rng: Bernoulli(rng.uniform(low, high, n_arms))


def _dominant(n_arms: int, rng: np.random.Generator) -> Arms:
    p = rng.uniform(0.1, 0.3, n_arms)
    p[rng.integers(n_arms)] = 0.9
    return Bernoulli(p)


@dataclass(frozen=True)
class Family:
    """A family of random problems: how arms are drawn, and the reward of a subset."""

    name: str
    description: str
    arms: Callable[[int, np.random.Generator], Arms]
    reward: str
    absent: float | None = 0.0  # what an empty place pays; None if fewer than K arms cannot be played

    def problem(self, n_arms: int, k: int, rng: np.random.Generator) -> Problem:
        """Make a random instance."""
        return Problem(self.arms(n_arms, rng), self.reward, k, absent=self.absent)

    def with_reward(self, reward: str) -> Family:
        """Return the family with another reward of the same arms."""
        absent = None if by_name(reward) == minimum else 0.0  # a minimum with an empty place is always 0
        return replace(self, reward=reward, absent=absent)


FAMILIES = {
    family.name: family
    for family in (
        Family("mean", "the mean of Bernoulli arms, p uniform in [0, 1]", _bernoulli(), "mean"),
        Family("max", "the maximum of Bernoulli arms, p uniform in [0, 1]", _bernoulli(), "maximum"),
        Family("min", "the minimum of Bernoulli arms, p uniform in [0, 1]", _bernoulli(), "minimum", absent=None),
        Family(
            "cross-selling",
            "the paper's quadratic reward of arctan-exponential arms, scale uniform in (0, 10]",
            lambda n_arms, rng: ArctanExponential(10 * (1 - rng.random(n_arms))),
            "cross-selling",
        ),
        Family("close", "the mean of Bernoulli arms, p uniform in [0.45, 0.55]", _bernoulli(0.45, 0.55), "mean"),
        Family("rare", "the maximum of Bernoulli arms, p uniform in [0, 0.02]", _bernoulli(0.0, 0.02), "maximum"),
        Family(
            "dominant",
            "the mean of Bernoulli arms, one with p = 0.9, the others uniform in [0.1, 0.3]",
            _dominant,
            "mean",
        ),
        Family(
            "equal",
            "the mean of Bernoulli arms with equal p",
            lambda n_arms, rng: Bernoulli(np.full(n_arms, rng.uniform(0.2, 0.8))),
            "mean",
        ),
        Family(
            "likely-min",
            "the minimum of Bernoulli arms, p uniform in [0.5, 1]",
            _bernoulli(0.5, 1.0),
            "minimum",
            absent=None,
        ),
        Family(
            "threshold",
            "1 if at least half of the Bernoulli arms of the subset pay, p uniform in [0, 1]",
            _bernoulli(),
            "threshold",
        ),
        Family(
            "correlated",
            "the maximum of Bernoulli arms, p uniform in [0, 1], with a shared draw in half of the plays",
            lambda n_arms, rng: Correlated(rng.random(n_arms), together=0.5),
            "maximum",
        ),
    )
}


def family_named(name: str) -> Family | Application:
    """Return the family or application of that name."""
    known: dict[str, Family | Application] = {**FAMILIES, **APPLICATIONS}
    try:
        return known[name]
    except (KeyError, TypeError):
        raise BadInput(unknown_name("problem", name, known)) from None


@dataclass(frozen=True)
class Setting:
    """A family of random problems at one N and K; `reward` is another reward for the same arms, such as "sum".

    >>> setting = Setting("max", n_arms=24, k=5)
    >>> setting.name
    'max/N24-K5'
    >>> setting.problem(seed=1).n_arms
    24
    """

    family: str
    n_arms: int
    k: int
    reward: str | None = None

    def __post_init__(self) -> None:
        _ = self._made
        for name, size in zip(("n_arms", "k"), check_sizes(self.n_arms, self.k), strict=True):
            object.__setattr__(self, name, size)

    @property
    def name(self) -> str:
        """The name in tables and files."""
        return f"{self.family}{f'-{self.reward}' if self.reward else ''}/N{self.n_arms}-K{self.k}"

    @property
    def _made(self) -> Family | Application:
        family = family_named(self.family)
        if self.reward is None:
            return family
        if not isinstance(family, Family):
            raise BadInput(f"the problem {self.family} has its own reward: leave out reward={self.reward!r}")
        return family.with_reward(self.reward)

    def problem(self, seed: Seed) -> AbstractProblem:
        """Make a random instance."""
        return self._made.problem(self.n_arms, self.k, generator(seed))


@dataclass(frozen=True)
class RealSetting(Setting):
    """A problem on real data: the same in every run, except for the order of its arms.

    >>> setting = RealSetting.named("influence-karate")
    >>> setting.name, setting.n_arms, setting.k
    ('real/influence-karate', 34, 3)
    """

    which: str = ""

    def __post_init__(self) -> None:
        real_named(self.which)

    @classmethod
    def named(cls, which: str) -> RealSetting:
        """Return the setting of that problem, with or without `real/` before its name."""
        described = real_named(which.removeprefix("real/"))
        return cls("real", described.n_arms, described.k, which=described.name)

    @property
    def name(self) -> str:
        """The name in tables and files."""
        return f"{self.family}/{self.which}"

    @property
    def described(self) -> RealProblem:
        """What is known about it without loading its data."""
        return real_named(self.which)

    def problem(self, seed: Seed) -> AbstractProblem:
        """Return the problem, with its arms in a random order."""
        return load(self.which, generator(seed))


@dataclass(frozen=True)
class ContextualSetting(Setting):
    """A kind of random contextual problems at one N and K, with a number of segments; the reward is "max" by default.

    >>> setting = ContextualSetting.named("part-6", n_arms=12, k=3)
    >>> setting.name, len(setting.problem(seed=1).segments)
    ('context/part-6/N12-K3', 6)
    """

    kind: str = "part"
    segments: int = 6

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(unknown_name("contextual problem", self.kind, KINDS))
        by_name(self.reward or "max")
        whole("segments", self.segments)
        check_sizes(self.n_arms, self.k)

    @classmethod
    def named(cls, which: str, n_arms: int, k: int, reward: str | None = None) -> ContextualSetting:
        """Return the setting of a name such as part-6, with or without `context/` before it."""
        kind, _, segments = which.removeprefix("context/").rpartition("-")
        if not segments.isdecimal():
            raise BadInput(
                f"a contextual problem is a kind and a number of segments, such as context/part-6; got {which!r}. "
                f"The kinds are: {', '.join(KINDS)}"
            )
        return cls("context", n_arms, k, reward, kind=kind, segments=int(segments))

    @property
    def name(self) -> str:
        """The name in tables and files."""
        reward = f"-{self.reward}" if self.reward else ""
        return f"{self.family}/{self.kind}-{self.segments}{reward}/N{self.n_arms}-K{self.k}"

    def problem(self, seed: Seed) -> AbstractProblem:
        """Make a random instance."""
        return contextual_problem(self.kind, self.segments, self.n_arms, self.k, self.reward or "max", seed)


CONTEXTUAL_SETTINGS = tuple(
    ContextualSetting.named(f"{kind}-6", n_arms, k, reward)
    for kind in KINDS
    for n_arms, k, reward in ((12, 3, None), (24, 5, "mean"))
)

REAL_SETTINGS = tuple(RealSetting.named(name) for name in REAL)
