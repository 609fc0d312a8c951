"""Which policy loses least in 100 to 10,000 plays: thompson and the rivals for small budgets.

    python -m benchmarks.small_budgets interactions --seed 9100 --runs 20

prints the rows of one family in the table of docs/reference/policies/pairwise-thompson.md; `--policies` compares
others. Every run has a fresh random instance. Policies play the same instances, and ratios are paired. Regret is in
units of the reward range. Everything runs in this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

import kofn
from benchmarks.tables import line, paired, parser_for, table
from kofn.core import FloatArray, IntArray
from kofn.lab.problems import AbstractProblem
from kofn.lab.settings import Setting

HORIZONS = (100, 300, 1_000, 3_000, 10_000)
POLICIES = ("thompson", "linear-thompson", "pairwise-thompson", "slate-glm")
BONUS, PAIRS = 0.25, 3


class PairSampler:
    """A coin per play; its mean is half the mean of the arms' p, and a bonus for each of three pairs in the subset."""

    def __init__(self, p: FloatArray, pairs: IntArray) -> None:
        self.p, self.pairs = p, pairs

    def value(self, subsets: IntArray) -> FloatArray:
        inside = (subsets[:, :, None] == self.pairs.ravel()).any(axis=1).reshape(len(subsets), -1, 2)
        return np.asarray(self.p[subsets].mean(axis=1) / 2 + BONUS * inside.all(axis=2).sum(axis=1))

    def play(self, subsets: IntArray, times: IntArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        total = rng.binomial(times, self.value(subsets)).astype(float)
        return total, total.copy()


class PairBonus(AbstractProblem):
    """Arms with p uniform in [0, 1], of which three pairs, without a common arm, have a bonus."""

    def __init__(self, n_arms: int, k: int, rng: np.random.Generator) -> None:
        self.sampler = PairSampler(rng.random(n_arms), rng.permutation(n_arms)[: 2 * PAIRS].reshape(PAIRS, 2))
        super().__init__(n_arms, k)

    def make_sampler(self) -> PairSampler:
        return self.sampler

    def make_expectation(self) -> PairSampler:
        return self.sampler


Make = Callable[[np.random.Generator], AbstractProblem]
SIZES = ((12, 3), (24, 5))
FAMILIES: dict[str, dict[str, Make]] = {
    family: {each.name: each.problem for each in (Setting(family, *size) for size in sizes)}
    for family, sizes in {
        "mean": SIZES,
        "max": SIZES,
        "min": SIZES,
        "cross-selling": SIZES,
        "interactions": SIZES,
        "rare": SIZES[1:],
    }.items()
}
FAMILIES["pairs"] = {"three pairs with a bonus/N20-K4": lambda rng: PairBonus(20, 4, rng)}


class Played(NamedTuple):
    """One run: regret and gap of best() at each horizon, in units of the reward range, and processor time."""

    regret: list[float]
    gap: list[float]
    seconds: float


def play(make: Make, name: str, horizons: Sequence[int], seed: int, number: int) -> Played:
    """Play one run; a plan that passes a horizon is cut there and then continued."""
    for_problem, for_policy, for_plays = np.random.SeedSequence([seed, number]).spawn(3)
    problem, rng = make(np.random.default_rng(for_problem)), np.random.default_rng(for_plays)
    low, high = problem.reward_range
    policy = kofn.make_policy(
        name, problem.n_arms, problem.k, horizon=horizons[-1], seed=for_policy, reward_range=(low, high)
    )
    lost, regret, gap, begun = 0.0, [], [], time.process_time()
    for horizon in horizons:
        while policy.plays < horizon:
            plan = policy.plan().part(horizon - policy.plays, rng)
            lost += float(problem.gap(plan.subsets) @ plan.times) / (high - low)
            policy.tell_plan(problem.play(plan.subsets, plan.times, rng))
        regret.append(lost)
        gap.append(float(problem.gap(np.array([policy.best()]))[0]) / (high - low))
    return Played(regret, gap, time.process_time() - begun)


def compare(
    problems: dict[str, Make], seed: int, runs: int, policies: Sequence[str] = POLICIES, quick: bool = False
) -> None:
    """Print the regret of the first policy, the ratio of the others' to it, and the gap of best() at 1,000 plays."""
    horizons = HORIZONS[:1] if quick else HORIZONS
    look = min(2, len(horizons) - 1)
    table("problem", "policy", *(f"{each:,}" for each in horizons), f"gap of best() at {horizons[look]:,}", "seconds")
    for problem, make in problems.items():
        base: FloatArray | None = None
        for name in policies:
            played = [play(make, name, horizons, seed, number) for number in range(runs)]
            regret = np.array([each.regret for each in played]).T
            if base is None:
                base, cells = regret, [f"{each.mean():,.1f}" for each in regret]
            else:
                cells = [paired(ours.tolist(), theirs.tolist()) for ours, theirs in zip(regret, base, strict=True)]
            gap, seconds = (np.mean([each.gap[look] for each in played]), np.mean([each.seconds for each in played]))
            line(problem, f"`{name}`", *cells, f"{gap:.4f}", f"{seconds:.2f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_for(__doc__, FAMILIES, seed=9100, runs=20)
    parser.add_argument("--policies", nargs="+", default=POLICIES, help="the first is the one to compare with")
    args = parser.parse_args(arguments)
    compare(FAMILIES[args.table], args.seed, args.runs, args.policies, args.quick)


if __name__ == "__main__":
    main()
