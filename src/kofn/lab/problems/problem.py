"""A problem made of arms, a reward function and K."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadInput, Direction, FloatArray, IntArray, Subset, check_range
from kofn.lab.problems.arms import Arms
from kofn.lab.problems.assumptions import Check, check_problem
from kofn.lab.problems.base import AbstractProblem
from kofn.lab.problems.distributions import with_empty_place
from kofn.lab.problems.expectation import Expectation, choose_expectation, top_subset
from kofn.lab.problems.function import FunctionProblem
from kofn.lab.problems.sampling import CountSampler, Sampler, arm_totals, choose_sampler
from kofn.lab.rewards import Reward, RewardFunction, as_reward, cross_selling, mean, total


class Problem(AbstractProblem):
    """N arms, K of them at a time, and the reward that these K earn together.

    >>> from kofn.lab.problems import Bernoulli
    >>> from kofn.lab.rewards import maximum
    >>> problem = Problem(Bernoulli([0.1, 0.5, 0.3, 0.2]), maximum, k=2)
    >>> problem.best, problem.optimum
    ((1, 2), 0.65)
    >>> tally = problem.play([(0, 1), (1, 2)], [1_000_000, 1_000_000], rng=1)
    >>> (tally.total / tally.count).round(2)
    array([0.55, 0.65])
    >>> problem.gap([(0, 1), (1, 2)])
    array([0.1, 0. ])

    `best` is computed when it is needed, unless it is given. `absent` is what an empty place pays; with it, subsets of
    fewer than K arms can be played, as rows that end in -1.

    >>> Problem(Bernoulli([0.1, 0.5, 0.3, 0.2]), "mean", k=2, absent=0.0).value([(1,), (1, 2)])
    array([0.25, 0.4 ])

    `reward_range` is for rewards outside [0, 1], such as milliseconds. Policies that are made by name are given it. By
    default it is [0, 1] if all rewards are in it. If not, it is computed for rewards that have `bounds`, as a mean, a
    sum, a maximum and a minimum do.

    >>> Problem(Bernoulli([0.1, 0.5, 0.3, 0.2]), "sum", k=3).reward_range
    (0.0, 3.0)

    `Problem.of(f, n_arms, k)` makes a problem from any function of a subset: see `FunctionProblem`.
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
        reward_range: tuple[float, float] | None = None,
    ) -> None:
        if not isinstance(arms, Arms):
            raise BadInput(
                f"arms must be Arms, for instance kofn.lab.problems.Bernoulli([0.2, 0.7, 0.4]), not {arms!r}"
            )
        self.arms, self.reward = arms, as_reward(reward)
        super().__init__(arms.n_arms, k, direction=direction, best=best, fewer=absent is not None)
        self.reward_range = _range(self.reward, arms, self.k) if reward_range is None else check_range(reward_range)
        self.absent = None if absent is None else _check_absent(absent, arms)
        self._places = arms if self.absent is None else with_empty_place(arms, self.absent)
        _check_reward(self.reward, arms, self.k)

    of = FunctionProblem

    @property
    def offers(self) -> frozenset[str]:
        """The best subset and the rewards of single arms; fewer than K arms if `absent` was given."""
        return super().offers | {"arms"}

    def make_sampler(self) -> Sampler:
        """Return the cheapest exact sampler; refuse a reward that is not finite."""
        sampler = choose_sampler(self._places, self.reward, self.k)
        if isinstance(sampler, CountSampler) and not (finite := np.isfinite(sampler.pays)).all():
            count = int(np.argmin(finite))
            raise BadInput(
                f"a reward must be a finite number; {self.reward!r} gives {sampler.pays[count]} if {count} arms pay"
            )
        return sampler

    def make_expectation(self) -> Expectation:
        """Return the first exact way to compute expected rewards, or Monte Carlo."""
        return choose_expectation(self._places, self.reward, self.k, self._sampler)

    def check(self) -> Check:
        """Return which of the paper's assumptions hold, with a counterexample for each that does not."""
        return check_problem(self)

    def _summary(self) -> str:
        return f"{self.arms!r}, {self.reward!r}"

    def _arm_totals(self, rows: IntArray, count: NDArray[np.int64], rng: np.random.Generator) -> FloatArray:
        return arm_totals(self._places, rows, count, rng)

    def _find_best(self) -> Subset:
        strength = self._strength()
        if strength is None:
            return self._search()
        return top_subset(strength if self.direction == "maximize" else -strength, self.k)

    def additions(self) -> FloatArray | None:
        """Return what each arm and an empty place add to a mean or a sum."""
        if self.reward not in (mean, total):
            return None
        return np.append(self.arms.mean, self.absent or 0.0) / (self.k if self.reward == mean else 1)

    def _order(self) -> tuple[FloatArray | None, bool]:
        return self._strength(), self.reward == mean

    def _strength(self) -> FloatArray | None:
        """Return a number per arm such that the K largest make the best subset; None if no such number is known.

        Under a mean or a sum it is the arm's mean. If the reward is symmetric and increasing, replacing an arm by one
        that dominates it never lowers the expected reward, so no subset is better than the K strongest arms.
        """
        if self.reward in (mean, total):
            return self.arms.mean
        increasing = self.reward.increasing or (self.reward == cross_selling and self.arms.low >= 0)
        if (self.reward.symmetric and increasing) or (
            isinstance(self._sampler, CountSampler) and self._sampler.increasing
        ):
            return self.arms.strength
        return None


def _range(reward: Reward, arms: Arms, k: int) -> tuple[float, float]:
    """Return [0, 1] if no reward is outside or if the bounds of the reward are not known, else the bounds."""
    if reward.bounds is None:
        return 0.0, 1.0
    low, high = reward.bounds(arms.low, arms.high, k)
    unbounded = not (math.isfinite(low) and math.isfinite(high))
    return (0.0, 1.0) if unbounded or (low >= 0 and high <= 1) else check_range((low, high))


def _check_absent(absent: float, arms: Arms) -> float:
    """Return `absent` as a float if an arm could pay it."""
    number = isinstance(absent, int | float | np.integer | np.floating) and not isinstance(absent, bool)
    if not number or not arms.low <= absent <= arms.high:
        raise BadInput(
            f"absent must be a number that an arm can pay, from {arms.low:g} to {arms.high:g}, not {absent!r}"
        )
    return float(absent)


def _check_reward(reward: Reward, arms: Arms, k: int) -> None:
    """Refuse a reward that does not give one finite number per play, before a simulation starts."""
    x = arms.draw(np.broadcast_to(np.arange(k), (3, k)), np.random.default_rng(0))
    expected = f"a reward takes an array whose last axis is K={k} and returns one number per play"
    try:
        paid = reward(x)
    except Exception as why:
        raise BadInput(f"{expected}, but {reward!r} raised {type(why).__name__}: {why}") from why
    if paid.shape != (3,):
        raise BadInput(f"{expected}, but {reward!r} turned shape {x.shape} into {paid.shape}: reduce axis=-1 only")
    if not np.isfinite(paid).all():
        raise BadInput(f"{expected}, but {reward!r} returned {paid[~np.isfinite(paid)][0]} for an array of draws")
