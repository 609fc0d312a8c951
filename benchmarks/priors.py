"""Make the tables of docs/guides/priors.md: `python -m benchmarks.priors regret` (`--help`).

`regret` compares the regret of Thompson without a prior and with: old rates of 10 or 10,000 trials of each arm alone,
the true ranking, and three wrong ones. It also counts the runs whose best subset at the end is the true one. All ways
play the same problems with the same seeds. `many` is the same with 100 arms. `arms` adds arms to a policy that has
learned, with and without their groups. `--quick` plays few plays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import kofn
from benchmarks.tables import NORMAL_95, line, parser_for, table
from benchmarks.thompson import instance
from kofn.core import FloatArray, IntArray
from kofn.lab.problems import AbstractProblem
from kofn.lab.settings import Setting


@dataclass(frozen=True)
class Scale:
    """How much is played: the defaults are those of the page, and QUICK is for tests."""

    times: tuple[int, ...] = (300, 3_000, 30_000)
    settings: tuple[Setting, ...] = tuple(
        Setting(family, n, k) for n, k in ((24, 5), (45, 4)) for family in ("mean", "max", "cross-selling")
    )


SCALES = {"regret": Scale(), "many": Scale(settings=(Setting("mean", 100, 5),))}
QUICK = Scale((100, 300), (Setting("mean", 12, 3),))

Make = Callable[[FloatArray, np.random.Generator], kofn.Prior | None]
"""Make a prior from the true means of the arms."""


def without(means: FloatArray, rng: np.random.Generator) -> None:
    """Return no prior."""
    del means, rng


def rates(trials: int) -> Make:
    """Return the prior of old rates: each arm was tried alone, `trials` times, and succeeded with its mean."""

    def make(means: FloatArray, rng: np.random.Generator) -> kofn.Prior:
        return kofn.Prior.from_rates((rng.binomial(trials, means) / trials).tolist(), [trials] * len(means))

    return make


def ranking(order: Callable[[FloatArray, np.random.Generator], IntArray], weight: float) -> Make:
    """Return the prior of a ranking, the best first."""

    def make(means: FloatArray, rng: np.random.Generator) -> kofn.Prior:
        return kofn.Prior.from_ranking(order(means, rng).tolist(), weight=weight)

    return make


def true(means: FloatArray, rng: np.random.Generator) -> IntArray:
    """Return the true order."""
    del rng
    return np.argsort(-means)


def wrong(means: FloatArray, rng: np.random.Generator) -> IntArray:
    """Return the reversed order."""
    del rng
    return np.argsort(means)


def unrelated(means: FloatArray, rng: np.random.Generator) -> IntArray:
    """Return a random order."""
    return rng.permutation(len(means))


def misleading(means: FloatArray, rng: np.random.Generator) -> IntArray:
    """Return the true order, but with the best five arms last."""
    del rng
    return np.roll(np.argsort(-means), -5)


WAYS: dict[str, Make] = {
    "none": without,
    "rates, 10 trials": rates(10),
    "rates, 10,000 trials": rates(10_000),
    "true ranking, weight 0.3": ranking(true, 0.3),
    "true ranking, weight 1": ranking(true, 1.0),
    "reversed ranking, weight 1": ranking(wrong, 1.0),
    "random ranking, weight 1": ranking(unrelated, 1.0),
    "the best five last, weight 0.3": ranking(misleading, 0.3),
    "the best five last, weight 1": ranking(misleading, 1.0),
}


def means_of(problem: AbstractProblem) -> FloatArray:
    """Return the mean of each arm alone."""
    return np.array(problem.arms.mean)  # type: ignore[attr-defined]


def played(setting: Setting, make: Make, seed: int, runs: int, times: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Return the regret of each run at these times, and whether the best subset was found at the end."""
    regrets, found = [], []
    for run in range(runs):
        problem, (for_policy, for_plays) = instance(setting, seed, run)
        prior = make(means_of(problem), np.random.default_rng([seed, run]))
        policy = kofn.Thompson(setting.n_arms, setting.k, prior=prior, seed=for_policy)
        done = kofn.simulate(policy, problem, times[-1], np.random.default_rng(for_plays))
        regrets.append(np.interp(times, done.curve.plays, done.curve.regret))
        found.append(problem.gap(np.array([policy.best()]))[0] <= 1e-9)
    return np.array(regrets), np.array(found)


def shown(values: FloatArray) -> str:
    """Return the mean and the half-width of its 95 % interval."""
    return f"{values.mean():,.1f} ± {NORMAL_95 * values.std(ddof=1) / np.sqrt(len(values)):,.1f}"


def regret(seed: int, runs: int, scale: Scale) -> None:
    """Print the regret of each way at each time, and how often the best subset is found."""
    table("problem", "prior", *(f"{time:,} plays" for time in scale.times), "best found")
    for setting in scale.settings:
        for name, make in WAYS.items():
            regrets, found = played(setting, make, seed, runs, scale.times)
            line(setting.name, name, *map(shown, regrets.T), f"{found.sum()} of {runs}")


@dataclass(frozen=True)
class Growth:
    """Arms that are added after some plays, one to each group: how much is played, before and after."""

    before: tuple[int, ...] = (1_000, 10_000)
    times: tuple[int, ...] = (1_000, 3_000, 10_000)
    arms: int = 30
    groups: int = 6
    k: int = 4


GROUP_EFFECTS = {"strong": (1.0, 0.3), "half": (0.7, 0.7), "none": (0.0, 1.0)}
"""Standard deviations of the log odds of groups, and of arms within a group."""


def grown(growth: Growth, kind: str, before: int, with_groups: bool, seed: Sequence[int]) -> FloatArray:
    """Return the regret at these times after arms were added."""
    rng, new = np.random.default_rng(seed), growth.groups
    group = np.concatenate([np.arange(growth.arms), np.arange(new)]) % growth.groups
    of_groups, within = GROUP_EFFECTS[kind]
    odds = of_groups * rng.normal(size=growth.groups)[group] + within * rng.normal(size=len(group))
    p = 1 / (1 + np.exp(-odds))
    old = kofn.Thompson(growth.arms, growth.k, seed=seed[-1])
    _regret(old, kofn.Problem(kofn.Bernoulli(p[: growth.arms]), "mean", growth.k), before, rng)
    groups = group.tolist() if with_groups else None
    policy = old.with_arms(list(range(growth.arms)), new, groups=groups)
    curve = _regret(policy, kofn.Problem(kofn.Bernoulli(p), "mean", growth.k), growth.times[-1], rng)
    return np.asarray(np.interp(growth.times, *np.array(curve).T))


def _regret(
    policy: kofn.Policy, problem: AbstractProblem, plays: int, rng: np.random.Generator
) -> list[tuple[int, float]]:
    """Play on; return the plays and the regret after each plan."""
    curve = [(0, 0.0)]
    while (done := curve[-1][0]) < plays:
        plan = policy.plan().part(plays - done, rng)
        policy.tell_plan(problem.play(plan.subsets, plan.times, rng))
        curve.append((done + plan.plays, curve[-1][1] + float(problem.gap(plan.subsets) @ plan.times)))
    return curve


def added_arms(seed: int, runs: int, growth: Growth) -> None:
    """Print the regret after arms were added, without and with their groups, and the mean difference."""
    table("groups matter", "plays before", "groups", *(f"{time:,} plays" for time in growth.times))
    for kind in GROUP_EFFECTS:
        for before in growth.before:
            without, given = (
                np.array([grown(growth, kind, before, use, [seed, run]) for run in range(runs)])
                for use in (False, True)
            )
            line(kind, f"{before:,}", "unknown", *map(shown, without.T))
            line(kind, f"{before:,}", "given", *map(shown, given.T))
            line(kind, f"{before:,}", "difference", *map(shown, (given - without).T))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    args = parser_for(__doc__, [*SCALES, "arms"], seed=1851, runs=30).parse_args(arguments)
    if args.table == "arms":
        added_arms(args.seed, args.runs, Growth((200,), (100, 300), 12, 4, 3) if args.quick else Growth())
        return
    regret(args.seed, args.runs, QUICK if args.quick else SCALES[args.table])


if __name__ == "__main__":
    main()
