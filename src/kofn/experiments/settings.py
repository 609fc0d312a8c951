"""Settings: what is played, as data. A setting makes a fresh random instance of its problem from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kofn.core import BadInput, Seed, check_sizes, generator
from kofn.problems import ArctanExponential, Arms, Bernoulli, Problem


def _bernoulli(n_arms: int, rng: np.random.Generator) -> Arms:
    return Bernoulli(rng.random(n_arms))


def _arctan_exponential(n_arms: int, rng: np.random.Generator) -> Arms:
    return ArctanExponential(10 * (1 - rng.random(n_arms)))  # in (0, 10]


@dataclass(frozen=True)
class Family:
    """Problems of one kind: how arms are drawn, and the reward of a subset."""

    name: str
    says: str
    arms: Callable[[int, np.random.Generator], Arms]
    reward: str
    absent: float | None = None  # what an empty place pays, if that makes sense


FAMILIES = {
    family.name: family
    for family in (
        Family("mean", "the mean of Bernoulli arms, p uniform in [0, 1]", _bernoulli, "mean", absent=0.0),
        Family("max", "the maximum of Bernoulli arms, p uniform in [0, 1]", _bernoulli, "maximum", absent=0.0),
        Family("min", "the minimum of Bernoulli arms, p uniform in [0, 1]", _bernoulli, "minimum"),
        Family(
            "cross-selling",
            "the paper's quadratic reward of arctan-exponential arms, scale uniform in (0, 10]",
            _arctan_exponential,
            "cross-selling",
            absent=0.0,
        ),
    )
}


def family_named(name: str) -> Family:
    """The family of that name."""
    try:
        return FAMILIES[name]
    except (KeyError, TypeError):
        raise BadInput(f"there is no problem {name!r}; there are: {', '.join(FAMILIES)}") from None


@dataclass(frozen=True)
class Setting:
    """One cell of an experiment: a family at one N and K.

    >>> setting = Setting("max", n_arms=24, k=5)
    >>> setting.name
    'max/N24-K5'
    >>> setting.problem(seed=1).n_arms
    24
    """

    family: str
    n_arms: int
    k: int
    horizon: int = 10**6
    runs: int = 30

    def __post_init__(self) -> None:
        family_named(self.family)
        check_sizes(self.n_arms, self.k)

    @property
    def name(self) -> str:
        """A name that says it all, for tables and files."""
        return f"{self.family}/N{self.n_arms}-K{self.k}"

    def problem(self, seed: Seed) -> Problem:
        """A random instance."""
        family = family_named(self.family)
        return Problem(family.arms(self.n_arms, generator(seed)), family.reward, self.k, absent=family.absent)
