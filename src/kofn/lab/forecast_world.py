"""The random problems of `forecast`: N arms whose effects on the logarithm of the mean reward are normal and add up.

A random subset earns about `base`, and the best one `base` * (1 + `lift`). A reward is a click, or an amount: with a
standard deviation of at least its mean, it is a sale of always the same amount, or nothing; else it is normal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadInput, FloatArray, IntArray, Seed, generator
from kofn.lab.problems import AbstractProblem

SPREAD = 10.0
"""Distance of the ends of the range from the means of normal rewards, in standard deviations. Lower: rewards may fall
outside."""


def positive(name: str, value: float) -> float:
    """Return a number above 0, or raise BadInput."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < math.inf:
        raise BadInput(f"{name} must be a number above 0; got {value!r}")
    return float(value)


@dataclass(frozen=True)
class World:
    """A family of random problems in which the best subset earns `base` * (1 + `lift`).

    `sd` is the standard deviation of the rewards of a subset that earns `base`; None for clicks.
    """

    n_arms: int
    k: int
    base: float
    lift: float
    sd: float | None = None

    def __post_init__(self) -> None:
        for name in ("base", "lift") if self.sd is None else ("base", "lift", "sd"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        if self.sd is None and self.most >= 1:
            raise BadInput(
                f"a click rate must be below 1, but {self.base:g} with a lift of {self.lift:.0%} is {self.most:g}. If "
                "rewards are amounts, give sd, their standard deviation"
            )

    @property
    def most(self) -> float:
        """The mean reward of the best subset."""
        return self.base * (1 + self.lift)

    @property
    def amount(self) -> float:
        """What a play pays if it pays: 1 for clicks, and nan for normal rewards."""
        if self.sd is None:
            return 1.0
        if self.sd < self.base:
            return math.nan
        return max((self.sd**2 + self.base**2) / self.base, self.most)

    @property
    def reward_range(self) -> tuple[float, float]:
        """The range of rewards."""
        if self.sd is None or not math.isnan(self.amount):
            return 0.0, self.amount
        return -SPREAD * self.sd, self.most + SPREAD * self.sd

    def problem(self, seed: Seed) -> WorldProblem:
        """Make a random instance."""
        effects = generator(seed).standard_normal(self.n_arms)
        effects -= effects.mean()
        return WorldProblem(self, effects * math.log1p(self.lift) / np.sort(effects)[-self.k :].sum())


@dataclass(frozen=True, eq=False)
class WorldSampler:
    """Draws the rewards of subsets, and has their means."""

    world: World
    effects: FloatArray

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the mean reward of each row."""
        return np.asarray(self.world.base * np.exp(self.effects[subsets].sum(axis=1)))

    def play(
        self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Return the totals of the rewards and of their squares, from their exact distribution."""
        value, amount = self.value(subsets), self.world.amount
        if not math.isnan(amount):
            paid = rng.binomial(times, np.minimum(value / amount, 1.0)).astype(float)
            return amount * paid, amount**2 * paid
        assert self.world.sd is not None
        total = times * value + self.world.sd * np.sqrt(times) * rng.standard_normal(len(times))
        within = np.where(times > 1, self.world.sd**2 * rng.chisquare(np.maximum(times - 1, 1)), 0.0)
        return total, total * total / times + within


class WorldProblem(AbstractProblem):
    """One random problem: the effect of each arm on the logarithm of the mean reward."""

    def __init__(self, world: World, effects: FloatArray) -> None:
        self.sampler = WorldSampler(world, effects)
        best = np.argsort(-effects)[: world.k].tolist()
        super().__init__(world.n_arms, world.k, best=best, reward_range=world.reward_range)

    def make_sampler(self) -> WorldSampler:
        """Return the sampler."""
        return self.sampler

    def make_expectation(self) -> WorldSampler:
        """Return the sampler, which has the means too."""
        return self.sampler
