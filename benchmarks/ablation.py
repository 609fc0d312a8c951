"""What each mechanism of `thompson` is worth: regret with the mechanism off, beside regret with all of them.

    python -m benchmarks.ablation --runs 24 --families prod coverage

Runs are paired: run 7 of all variants has the same instance and seeds. The seed was not used to choose any constant.
`ratio` is the quotient of mean regrets, `ratio_error` half the width of its 95 % interval (delta method), and
`found_best` the number of runs that end with the best subset.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import kofn
from benchmarks.base_families import BASE, INTERACTIONS, RARE, CoinSampler, Make, OfMeans
from benchmarks.rows import Row, run, seeds_of, with_error
from kofn.core import FloatArray, IntArray
from kofn.lab.settings import Setting
from kofn.policies.thompson.constants import Constants

OFF: dict[str, dict[str, Any]] = {
    "all on": {},
    "narrow": {"narrow": 1.0},
    "spread": {"spread": math.inf},
    "doubt": {"doubt": 0.0},
    "climb": {"climb": 0.0},
    "free": {"swaps": 1},
    "information": {"information": math.inf},
    "reach": {"reach": math.inf},
    "contenders": {"contenders": 16},
    "shrinkage": {"shrinkage": 1e9},
    "draws": {"draws": 32},
    "fade": {"fade": math.inf},
}
"""The mechanisms, and the constants that switch each of them off."""


@dataclass(frozen=True)
class Case:
    """A family of problems, and how it is played."""

    name: str
    make: Make
    plays: int = 10**6
    delay: int = 0


def of_setting(family: str, n_arms: int, k: int) -> Case:
    """Return a setting of the suite."""
    setting = Setting(family, n_arms, k)
    return Case(setting.name, lambda rng: setting.problem(int(rng.integers(2**31))))


class Sure(CoinSampler):
    """Rewards without noise."""

    def play(self, subsets: IntArray, times: IntArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        value = self.value(subsets)
        return times * value, times * value * value


def without_noise(n_arms: int, k: int, value: Callable[[FloatArray], FloatArray]) -> Make:
    """Return a function that draws a problem of equally spaced arms without noise."""
    return lambda rng: OfMeans(k, Sure(rng.permutation(np.linspace(0.05, 0.95, n_arms)), value))


SUITE = tuple(
    of_setting(*each)
    for each in (
        ("mean", 12, 3),
        ("mean", 24, 5),
        ("max", 12, 3),
        ("max", 24, 5),
        ("max", 45, 4),
        ("cross-selling", 24, 5),
        ("min", 24, 5),
        ("rare", 24, 5),
        ("close", 24, 5),
        ("mean", 300, 150),
    )
)
CASES: tuple[Case, ...] = (
    *SUITE,
    *(Case(family.name, family.problem) for family in BASE),
    *(Case(name, make) for name, make in RARE if "real" not in name),
    *(Case(name, make) for name, make in INTERACTIONS),
    Case("no noise: mean, N=32, K=4", without_noise(32, 4, lambda p: p.mean(axis=1)), 30_000),
    Case("no noise: minimum, N=32, K=4", without_noise(32, 4, lambda p: p.min(axis=1)), 30_000),
    Case("no noise: maximum, N=100, K=2", without_noise(100, 2, lambda p: p.max(axis=1)), 30_000),
    Case("1,000 plays: mean, N=24, K=5", SUITE[1].make, 1_000),
    Case("1,000 plays: minimum, N=24, K=5", SUITE[6].make, 1_000),
    Case("rewards 500 plays late: mean, N=24, K=5", SUITE[1].make, 20_000, delay=500),
)
NAMES = tuple(case.name for case in CASES)


def regret_of(case: Case, off: dict[str, Any], seed: int, number: int) -> tuple[float, float]:
    """Return the regret of one run, and the gap of its best subset."""
    for_problem, for_policy, for_plays = seeds_of(seed, number)
    problem = case.make(np.random.default_rng(for_problem))

    class Variant(kofn.Thompson):
        constants = replace(Constants(), **off)

    policy = Variant(problem.n_arms, problem.k, seed=for_policy)
    found = kofn.simulate(policy, problem, case.plays, np.random.default_rng(for_plays), delay=case.delay)
    return found.regret, float(problem.gap(np.array([policy.best()]))[0])


def ratio_error(regret: FloatArray, base: FloatArray) -> float:
    """Return half the width of the 95 % interval of a ratio of paired means."""
    ratio = regret.mean() / base.mean()
    return float(1.96 * (regret - ratio * base).std(ddof=1) / math.sqrt(len(base)) / base.mean())


def rows(
    seed: int = 9700,
    runs: int = 24,
    families: tuple[str, ...] = (),
    mechanisms: tuple[str, ...] = (),
    quick: bool = False,
) -> Iterator[Row]:
    """Yield a row for each family and variant."""
    chosen = [case for case in CASES if not families or any(part in case.name for part in families)]
    if quick:
        chosen, runs, mechanisms = [replace(SUITE[0], plays=300)], 2, ("doubt",)
    for case in chosen:
        base: FloatArray | None = None
        for name, off in OFF.items():
            if off and mechanisms and not any(part in name for part in mechanisms):
                continue
            found = [regret_of(case, off, seed, number) for number in range(runs)]
            regret = np.array([lost for lost, _ in found])
            base = regret if base is None else base
            same = not base.mean()
            yield {
                "problem": case.name,
                "off": name,
                "plays": case.plays,
                "runs": runs,
                **with_error("regret", regret),
                "ratio": None if same else float(regret.mean() / base.mean()),
                "ratio_error": None if same else ratio_error(regret, base),
                "found_best": sum(gap < 1e-9 for _, gap in found),
            }


if __name__ == "__main__":
    run(rows, __doc__)
