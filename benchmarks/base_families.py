"""Regret on problems with a base reward or rare rewards, and how often the best subset is found.

    python -m benchmarks.base_families --groups base --families prod --policies thompson dart

Problems of `base` and `rare` are under the paper's assumptions: symmetric and increasing. In `interactions`, arms are
worth more or less beside certain others. Every run has a fresh random instance, the same for all policies. `base` plays
10^7 plays, the others 10^6. `--families` are parts of names.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

import kofn
from benchmarks.rows import Row, run, seeds_of, with_error
from kofn.core import FloatArray, IntArray
from kofn.lab.problems import AbstractProblem
from kofn.lab.problems.real.clicks import clicks
from kofn.lab.problems.real.files import installed
from kofn.lab.problems.sampling import poisson_binomial
from kofn.lab.settings import Setting
from kofn.lab.theory import affordable_resolution

Values = Callable[[FloatArray], FloatArray]
Draw = Callable[[np.random.Generator], FloatArray]
Make = Callable[[np.random.Generator], AbstractProblem]


class CoinSampler:
    """A coin per play; its mean is a function of the chosen arms' p."""

    def __init__(self, p: FloatArray, mean: Values) -> None:
        self.p, self.mean = p, mean

    def value(self, subsets: IntArray) -> FloatArray:
        return self.mean(self.p[subsets])

    def play(self, subsets: IntArray, times: Any, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        total = rng.binomial(times, self.value(subsets)).astype(float)
        return total, total.copy()


class RevenueSampler(CoinSampler):
    """Mostly zero, else log-normal with sigma 1.5, at most 1: the range is about 1,000 times the mean."""

    def __init__(self, p: FloatArray, mean: Values) -> None:
        super().__init__(p, mean)
        drawn = np.random.default_rng(0).standard_normal(2**18)
        self.amounts = np.minimum(0.01 * np.exp(1.5 * drawn), 1.0)

    def value(self, subsets: IntArray) -> FloatArray:
        return super().value(subsets) * float(self.amounts.mean())

    def play(self, subsets: IntArray, times: Any, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        sales = rng.binomial(times, self.mean(self.p[subsets]))
        paid = self.amounts[rng.integers(len(self.amounts), size=int(sales.sum()))]
        row = np.repeat(np.arange(len(subsets)), sales)
        total, squares = (np.bincount(row, each, len(subsets)).astype(float) for each in (paid, paid * paid))
        return total, squares


class OfMeans(AbstractProblem):
    """N arms with p, and a sampler that depends on the chosen p: increasing and symmetric."""

    def __init__(self, k: int, sampler: CoinSampler) -> None:
        super().__init__(len(sampler.p), k, best=np.sort(np.argsort(-sampler.p)[:k]).tolist())
        self.sampler = sampler

    def make_sampler(self) -> CoinSampler:
        return self.sampler

    def make_expectation(self) -> CoinSampler:
        return self.sampler


class SubsetSampler(CoinSampler):
    """A coin per play; its mean is any function of the subset."""

    def __init__(self, of_subsets: Callable[[IntArray], FloatArray]) -> None:
        self.of_subsets = of_subsets

    def value(self, subsets: IntArray) -> FloatArray:
        return np.asarray(self.of_subsets(subsets))


class OfSubsets(AbstractProblem):
    """A problem whose best subset is found by looking at all."""

    def __init__(self, n_arms: int, k: int, value: Callable[[IntArray], FloatArray]) -> None:
        every = np.array(list(itertools.combinations(range(n_arms), k)))
        super().__init__(n_arms, k, best=every[int(value(every).argmax())].tolist())
        self.sampler = SubsetSampler(value)

    def make_sampler(self) -> CoinSampler:
        return self.sampler

    def make_expectation(self) -> CoinSampler:
        return self.sampler


def coverage(rng: np.random.Generator) -> AbstractProblem:
    """Return K = 4 of 30 items, of which each serves two of twelve tastes: similar items add little to each other."""
    shares, misses = rng.dirichlet(np.ones(12)), np.zeros((30, 12))
    for own in misses:
        own[rng.choice(12, 2, replace=False)] = np.log1p(-rng.uniform(0.2, 0.9, 2))

    def value(subsets: IntArray) -> FloatArray:
        return np.asarray(-0.6 * np.expm1(misses[subsets].sum(axis=1)) @ shares)

    return OfSubsets(30, 4, value)


def pairs(rng: np.random.Generator) -> AbstractProblem:
    """Return K = 4 of 20 items, among them three pairs with a bonus of 0.25."""
    p, bonus, paired = rng.uniform(0, 1, 20), np.zeros((20, 20)), rng.permutation(20)[:6].reshape(3, 2)
    bonus[paired[:, 0], paired[:, 1]] = bonus[paired[:, 1], paired[:, 0]] = 0.25

    def value(subsets: IntArray) -> FloatArray:
        together = bonus[subsets[:, :, None], subsets[:, None, :]].sum(axis=(1, 2)) / 2
        return np.asarray(np.minimum(p[subsets].mean(axis=1) / 2 + together, 1.0))

    return OfSubsets(20, 4, value)


def fresh_items(n_arms: int, k: int, reward: str, rates: Draw) -> Make:
    """Return a function that draws a problem of items with these click rates."""
    return lambda rng: kofn.Problem(kofn.Bernoulli(rates(rng)), reward, k)


def revenue_of_60(rng: np.random.Generator) -> AbstractProblem:
    """Return K = 5 of 60 products that are bought in some 3 % of the views, for amounts that differ much."""
    return OfMeans(5, RevenueSampler(rng.beta(1, 30, 60), lambda p: 1 - (1 - p).prod(axis=1)))


def few(n_arms: int, good: int, low: float) -> Draw:
    """Return arms of which `good` are uniform in [0.5, 1], the others in [0, low]."""

    def draw(rng: np.random.Generator) -> FloatArray:
        p = rng.uniform(0, low, n_arms)
        p[rng.permutation(n_arms)[:good]] = rng.uniform(0.5, 1, good)
        return p

    return draw


def uniform(n_arms: int, low: float = 0.0) -> Draw:
    """Return arms uniform in [low, 1]."""
    return lambda rng: rng.uniform(low, 1, n_arms)


@dataclass(frozen=True)
class Family:
    """A family of random problems under the paper's assumptions."""

    name: str
    k: int
    arms: Draw
    mean: Values
    sampler: type[CoinSampler] = CoinSampler

    def problem(self, rng: np.random.Generator) -> AbstractProblem:
        return OfMeans(self.k, self.sampler(self.arms(rng), self.mean))


BASE = (
    Family("0.2 + 0.8 prod, 5 of 45 good, K=3", 3, few(45, 5, 0.1), lambda p: 0.2 + 0.8 * p.prod(axis=1)),
    Family("0.5 + 0.5 prod, 4 of 100 good, K=2", 2, few(100, 4, 0.05), lambda p: 0.5 + 0.5 * p.prod(axis=1)),
    Family("0.5 + 0.5 prod, 6 of 200 good, K=2", 2, few(200, 6, 0.05), lambda p: 0.5 + 0.5 * p.prod(axis=1)),
    Family("0.1 + 0.9 prod, 6 of 24 good, K=4", 4, few(24, 6, 0.2), lambda p: 0.1 + 0.9 * p.prod(axis=1)),
    Family("0.3 + 0.7 prod, N=40, K=8", 8, uniform(40, 0.3), lambda p: 0.3 + 0.7 * p.prod(axis=1)),
    Family("0.3 + 0.5 min, N=24, K=5", 5, uniform(24), lambda p: 0.3 + 0.5 * p.min(axis=1)),
    Family("0.5 + 0.5 mean, N=24, K=5", 5, uniform(24), lambda p: 0.5 + 0.5 * p.mean(axis=1)),
    Family("sigmoid of the sum, N=30, K=6", 6, uniform(30), lambda p: expit(12 * (p.mean(axis=1) - 0.75))),
    Family(
        "0.1 + 0.6 steep sigmoid, N=60, K=3", 3, uniform(60), lambda p: 0.1 + 0.6 * expit(40 * (p.mean(axis=1) - 0.8))
    ),
    Family("0.2 + 0.6 steps, N=30, K=4", 4, uniform(30), lambda p: 0.2 + 0.6 * np.floor(8 * p.mean(axis=1)) / 8),
    Family(
        "0.2 + 0.7 at least K-1 pay, N=24, K=4",
        4,
        uniform(24),
        lambda p: 0.2 + 0.7 * poisson_binomial(p)[:, -2:].sum(axis=1),
    ),
    Family("revenue, mean, N=24, K=5", 5, uniform(24), lambda p: 0.1 * p.mean(axis=1), RevenueSampler),
    Family("revenue, product, N=24, K=3", 3, uniform(24), lambda p: 0.1 * np.sqrt(p.prod(axis=1)), RevenueSampler),
)


def click_rates(rng: np.random.Generator) -> FloatArray:
    """Return the click rates of 80 items, log-uniform from 0.1 to 1.5 %."""
    return 0.01 * np.exp(rng.uniform(np.log(0.1), np.log(1.5), 80))


def items(reward: str, k: int, real: bool = False) -> Make:
    """Return a function that draws the problem of K of 80 items; `real`: with the rates of the Open Bandit Data."""

    def problem(rng: np.random.Generator) -> AbstractProblem:
        rates = clicks(80, k).arms.mean if real else click_rates(rng)
        return kofn.Problem(kofn.Bernoulli(rates), reward, k)

    return problem


def nearly_sure(rng: np.random.Generator) -> AbstractProblem:
    """Return the minimum of 50 of 100 arms that nearly always pay: 1 if all do."""
    return kofn.Problem(kofn.Bernoulli(rng.uniform(0.95, 1, 100)), "minimum", 50)


RARE: tuple[tuple[str, Make], ...] = (
    ("80 items, any of 3 clicked", items("maximum", 3)),
    ("80 items, mean of 3", items("mean", 3)),
    ("80 items, any of 8 clicked", items("maximum", 8)),
    ("80 real items, any of 3 clicked", items("maximum", 3, real=True)),
    ("80 real items, mean of 3", items("mean", 3, real=True)),
    ("80 real items, any of 8 clicked", items("maximum", 8, real=True)),
    ("mean/N100-K50", Setting("mean", 100, 50).problem),
    ("minimum of 50 of 100 arms, p in [0.95, 1]", nearly_sure),
    ("34 items, any of 3 clicked", fresh_items(34, 3, "maximum", lambda rng: np.exp(rng.uniform(-6.9, -3.9, 34)))),
    ("150 items, any of 10 clicked", fresh_items(150, 10, "maximum", lambda rng: rng.beta(1, 60, 150))),
    ("60 products with revenue, K=5", revenue_of_60),
)

INTERACTIONS: tuple[tuple[str, Make], ...] = (
    ("coverage, N=30, K=4", coverage),
    ("three pairs with a bonus, N=20, K=4", pairs),
)


def as_recommended(n_arms: int, k: int, horizon: int) -> dict[str, Any]:
    """Return the resolution with which CMAB-SM explores in at most 2 % of the plays; its own hardly explores."""
    return {"resolution": affordable_resolution(n_arms, k, horizon, share=0.02)}


POLICIES: dict[str, Callable[[int, int, int], dict[str, Any]]] = {
    "thompson": lambda *_: {},
    "linear-thompson": lambda *_: {},
    "shared-credit": lambda *_: {},
    "dart": lambda *_: {},
    "cmab-sm": lambda *_: {},
    "cmab-sm that explores": as_recommended,
}
"""The policies, and their parameters for N, K and a horizon."""


GROUPS: dict[str, tuple[int, tuple[tuple[str, Make], ...], tuple[str, ...]]] = {
    "base": (10**7, tuple((family.name, family.problem) for family in BASE), tuple(POLICIES)),
    "rare": (10**6, RARE, ("thompson", "linear-thompson")),
    "interactions": (10**6, INTERACTIONS, ("thompson", "linear-thompson")),
}
"""The plays of a run, the problems, and the policies that play them."""
NAMES = tuple(name for _, problems, _ in GROUPS.values() for name, _ in problems)


def played(make: Make, policy: str, horizon: int, seed: int, number: int) -> tuple[float, float]:
    """Return the regret of one run, and the gap of its best subset."""
    for_problem, for_policy, for_plays = seeds_of(seed, number)
    problem, rng = make(np.random.default_rng(for_problem)), np.random.default_rng(for_plays)
    n_arms, k = problem.n_arms, problem.k
    params = POLICIES[policy](n_arms, k, horizon)
    with warnings.catch_warnings():  # CMAB-SM with its printed resolution hardly explores: that is what is measured
        warnings.simplefilter("ignore", kofn.ShortHorizonWarning)
        player = kofn.make_policy(policy.split()[0], n_arms, k, horizon=horizon, seed=for_policy, **params)
    regret = kofn.simulate(player, problem, horizon, rng).regret
    return regret, float(problem.gap(np.array([player.best()]))[0])


def rows(
    seed: int = 9000,
    runs: int = 10,
    groups: tuple[str, ...] = tuple(GROUPS),
    families: tuple[str, ...] = (),
    policies: tuple[str, ...] = (),
    quick: bool = False,
) -> Iterator[Row]:
    """Yield a row for each problem and policy. Problems with real items need the package obp."""
    for group in groups:
        plays, problems, players = GROUPS[group]
        if quick:
            plays, problems, runs = 300, problems[:1], min(runs, 2)
        for name, make in problems:
            if (families and not any(part in name for part in families)) or ("real" in name and not installed("obp")):
                continue
            for policy in policies or players:
                found = [played(make, policy, plays, seed, number) for number in range(runs)]
                yield {
                    "group": group,
                    "problem": name,
                    "policy": policy,
                    "plays": plays,
                    "runs": runs,
                    **with_error("regret", [regret for regret, _ in found]),
                    "found_best": sum(gap < 1e-9 for _, gap in found),
                }


if __name__ == "__main__":
    run(rows, __doc__)
