"""Safety of the default policy: base rewards, wide ranges, constants, time per plan and with many arms.

    python -m benchmarks.thompson_safety base --seed 9000 --runs 10

prints a table of docs/background/thompson-measurements.md. Every run has a fresh random instance. Policies play the
same instances, and differences are paired. Everything runs in this process. `--only` and `--policy` print a part of
`base`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from unittest import mock

import numpy as np
from scipy.special import expit

import kofn
from benchmarks.tables import interval, line, paired, parser_for, table
from kofn.core import FloatArray, IntArray
from kofn.lab.problems import AbstractProblem
from kofn.lab.problems.real.clicks import clicks
from kofn.lab.problems.real.files import installed
from kofn.lab.problems.sampling import poisson_binomial
from kofn.lab.settings import Setting
from kofn.lab.suite import SUITE
from kofn.lab.theory import affordable_resolution
from kofn.policies.thompson import sampling
from kofn.policies.thompson.constants import Constants

Values = Callable[[FloatArray], FloatArray]
Draw = Callable[[np.random.Generator], FloatArray]


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


def of_setting(family: str, n_arms: int, k: int) -> tuple[str, Callable[[np.random.Generator], AbstractProblem]]:
    setting = Setting(family, n_arms, k)
    return setting.name, setting.problem


MANY = (2**12, 2**14, 2**15, 2**16, 10**5)
RANGES = ((-1.0, 1.0), (0.0, 50.0), (0.0, 100.0), (-99.0, 1.0), (-50.0, 50.0))


@dataclass(frozen=True)
class Scale:
    """How much is played: the defaults are those of the page, and QUICK is for tests."""

    horizon: int = 10**6
    long: int = 10**7  # for `base`
    few: int | None = None  # rows of a table; all without it


FULL = Scale()
QUICK = Scale(300, 300, 1)


def play(policy: kofn.Policy, problem: AbstractProblem, horizon: int, rng: np.random.Generator) -> float:
    """Return the regret of a run; rewards are told unchanged, also if the policy has another reward_range."""
    played, lost = 0, 0.0
    while played < horizon:
        plan = policy.plan().part(horizon - played, rng)
        policy.tell_plan(problem.play(plan.subsets, plan.times, rng))
        lost += float(problem.gap(plan.subsets) @ plan.times)
        played += plan.plays
    return lost


def run(
    make: Callable[[np.random.Generator], AbstractProblem],
    name: str,
    horizon: int,
    seed: int,
    number: int,
    constants: Constants | None = None,
    **params: Any,
) -> tuple[float, float]:
    """Return the regret of one run, and the gap of its best subset."""
    for_problem, for_policy, for_plays = np.random.SeedSequence([seed, number]).spawn(3)
    problem = make(np.random.default_rng(for_problem))
    with warnings.catch_warnings():  # CMAB-SM with its printed resolution hardly explores: that is what is measured
        warnings.simplefilter("ignore", kofn.ShortHorizonWarning)
        policy = kofn.make_policy(name, problem.n_arms, problem.k, horizon=horizon, seed=for_policy, **params)
    if constants is not None:
        policy.constants = constants  # type: ignore[attr-defined]
    lost = play(policy, problem, horizon, np.random.default_rng(for_plays))
    return lost, float(problem.gap(np.array([policy.best()]))[0])


def as_recommended(n_arms: int, k: int, horizon: int) -> dict[str, Any]:
    """Return the resolution with which CMAB-SM explores in at most 2 % of the plays; its own hardly explores."""
    return {"resolution": affordable_resolution(n_arms, k, horizon, share=0.02)}


RIVALS: dict[str, Callable[[int, int, int], dict[str, Any]]] = {
    "thompson": lambda *_: {},
    "linear-thompson": lambda *_: {},
    "shared-credit": lambda *_: {},
    "dart": lambda *_: {},
    "cmab-sm": lambda *_: {},
    "cmab-sm that explores": as_recommended,
}
"""The policies of `base`, and their parameters for N, K and a horizon."""


def base(seed: int, runs: int, scale: Scale = FULL, only: Sequence[str] = (), policies: Sequence[str] = ()) -> None:
    """Print the regret on problems with a base reward, and in how many runs the best subset was found.

    If two policies are given, the last column is the paired ratio of their regrets.
    """
    names = policies or list(RIVALS)
    ratio = [f"{names[0]} / {names[1]}"] if len(names) == 2 else []
    table("problem", "plays", *(f"{name}{what}" for name in names for what in ("", ", found")), *ratio)
    for family in [each for each in BASE if not only or any(part in each.name for part in only)][: scale.few]:
        n_arms = family.problem(np.random.default_rng(0)).n_arms
        cells, lost = [], []
        for name in names:
            params = RIVALS[name](n_arms, family.k, scale.long)
            found = [run(family.problem, name.split()[0], scale.long, seed, each, **params) for each in range(runs)]
            lost.append([regret for regret, _ in found])
            cells += [interval(lost[-1]), f"{sum(gap < 1e-9 for _, gap in found)} of {runs}"]
        line(family.name, f"{scale.long:,}", *cells, *([paired(*lost)] if ratio else []))


def ranges(seed: int, runs: int, scale: Scale = FULL) -> None:
    """Print the regret with ranges that are too wide, relative to that with (0, 1)."""
    table("setting", "(0, 1)", *(f"({low:g}, {high:g})" for low, high in RANGES))
    for setting in [each for each in SUITE if each.family != "equal"][: scale.few]:
        make = setting.problem
        exact = [run(make, "thompson", scale.horizon, seed, number)[0] for number in range(runs)]
        cells = []
        for wide in RANGES:
            found = [run(make, "thompson", scale.horizon, seed, number, reward_range=wide)[0] for number in range(runs)]
            cells.append(paired(found, exact))
        line(setting.name, interval(exact), *cells)


def ablation(seed: int, runs: int, scale: Scale = FULL) -> None:
    """Print the regret with half and with double of each constant, relative to that of the default."""
    settings = [of_setting("mean", 24, 5), of_setting("max", 12, 3), of_setting("min", 24, 5)]
    problems = [*settings, *((family.name, family.problem) for family in (BASE[3], BASE[5]))][: scale.few]
    table("constant", *(name for name, _ in problems))
    default = [
        [run(make, "thompson", scale.horizon, seed, number)[0] for number in range(runs)] for _, make in problems
    ]
    line("default", *(interval(found) for found in default))
    for each in fields(Constants)[: scale.few]:
        value = getattr(Constants(), each.name)
        for by in (0.5, 2.0):
            changed = replace(Constants(), **{each.name: type(value)(value * by)})
            cells = []
            for (_, make), known in zip(problems, default, strict=True):
                found = [run(make, "thompson", scale.horizon, seed, number, changed)[0] for number in range(runs)]
                cells.append(paired(found, known))
            line(f"`{each.name}` {getattr(changed, each.name):g}", *cells)


def click_rates(rng: np.random.Generator) -> FloatArray:
    """Return the click rates of 80 items, log-uniform from 0.1 to 1.5 %."""
    return 0.01 * np.exp(rng.uniform(np.log(0.1), np.log(1.5), 80))


def items(reward: str, k: int, real: bool = False) -> Callable[[np.random.Generator], AbstractProblem]:
    """Return a function that draws the problem of K of 80 items; `real`: with the rates of the Open Bandit Data."""

    def problem(rng: np.random.Generator) -> AbstractProblem:
        rates = clicks(80, k).arms.mean if real else click_rates(rng)
        return kofn.Problem(kofn.Bernoulli(rates), reward, k)

    return problem


def nearly_sure(rng: np.random.Generator) -> AbstractProblem:
    """Return the minimum of 50 of 100 arms that nearly always pay: 1 if all do."""
    return kofn.Problem(kofn.Bernoulli(rng.uniform(0.95, 1, 100)), "minimum", 50)


RARE = (
    ("80 items, any of 3 clicked", items("maximum", 3)),
    ("80 items, mean of 3", items("mean", 3)),
    ("80 items, any of 8 clicked", items("maximum", 8)),
    ("80 real items, any of 3 clicked", items("maximum", 3, real=True)),
    ("80 real items, mean of 3", items("mean", 3, real=True)),
    ("80 real items, any of 8 clicked", items("maximum", 8, real=True)),
    of_setting("mean", 100, 50),
    ("minimum of 50 of 100 arms, p in [0.95, 1]", nearly_sure),
)


def rare(seed: int, runs: int, scale: Scale = FULL) -> None:
    """Print the regret on rare rewards with more arms than contenders; without the package obp, not on real items."""
    table("problem", "thompson", "linear-thompson", "thompson / linear-thompson")
    problems = [each for each in RARE if "real" not in each[0] or installed("obp")]
    for name, make in problems[: scale.few]:
        ours, theirs = (
            [run(make, policy, scale.horizon, seed, number)[0] for number in range(runs)]
            for policy in ("thompson", "linear-thompson")
        )
        line(name, interval(ours), interval(theirs), paired(ours, theirs))


def speed(seed: int, runs: int, scale: Scale = FULL) -> None:
    """Print the processor time of a plan of N = 24, K = 5, and of a run of 10^4 plays."""
    table("what", "median [ms]", "least [ms]")
    short = min(10**4, scale.horizon)
    plans: list[float] = []
    whole: list[float] = []
    for number in range(runs):
        for horizon, times in ((scale.horizon, plans), (short, whole)):
            problem = Setting("mean", 24, 5).problem(np.random.SeedSequence([seed, number]))
            policy, rng = kofn.Thompson(24, 5, seed=number), np.random.default_rng(number)
            start, spent, updates = time.process_time(), 0.0, 0
            while policy.plays < horizon:
                plan = policy.plan()
                tally = problem.play(plan.subsets, plan.times, rng)
                before = time.process_time()
                policy.tell_plan(tally)
                spent, updates = spent + time.process_time() - before, updates + 1
            times.append(1e3 * (spent / updates if times is plans else time.process_time() - start))
    for what, found in ((f"a plan, in a run of {scale.horizon:,} plays", plans), (f"a run of {short:,} plays", whole)):
        line(what, f"{np.median(found):.2f}", f"{min(found):.2f}")


def together(seed: int, runs: int, scale: Scale = FULL) -> None:
    """Print the processor time of a run with many arms, with and without drawing arms together that are alike."""
    horizon = scale.horizon // 10
    table("arms", "plays", "together [s]", "one by one [s]", "one by one / together", "regret, together", "one by one")
    for n_arms in MANY[: scale.few]:
        spent: dict[int, list[float]] = {}
        lost: dict[int, list[float]] = {}
        for grouped_from in (0, n_arms):
            with mock.patch.object(sampling, "GROUPED_FROM", grouped_from):
                for number in range(runs):
                    start = time.process_time()
                    found = run(Setting("mean", n_arms, 10).problem, "thompson", horizon, seed, number)
                    spent.setdefault(grouped_from, []).append(time.process_time() - start)
                    lost.setdefault(grouped_from, []).append(found[0])
        seconds = [f"{np.mean(each):.2f}" for each in spent.values()]
        line(f"{n_arms:,}", f"{horizon:,}", *seconds, paired(spent[n_arms], spent[0]), *map(interval, lost.values()))


TABLES: dict[str, Callable[..., None]] = {
    "base": base,
    "ranges": ranges,
    "ablation": ablation,
    "rare": rare,
    "speed": speed,
    "together": together,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_for(__doc__, TABLES, seed=9000, runs=10)
    parser.add_argument("--only", action="append", default=[], help="part of the name of a problem of `base`")
    parser.add_argument("--policy", action="append", default=[], help="a policy of `base`", choices=list(RIVALS))
    args = parser.parse_args(arguments)
    part = {"only": args.only, "policies": args.policy} if args.table == "base" else {}
    TABLES[args.table](args.seed, args.runs, scale=QUICK if args.quick else FULL, **part)


if __name__ == "__main__":
    main()
