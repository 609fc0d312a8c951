"""Make the tables of docs/guides/constraints.md: `python -m benchmarks.constraints ways` (`--help`).

`ways` compares the regret of three ways to obey rules that forbid the best subset: Thompson with constraints, a list of
all allowed subsets (thompson-subsets), and repair: Thompson without constraints, of whose subsets what is not allowed
is dropped, and filled up with the best that is. `price` compares Thompson with and without rules that allow the best
subset. `repair` compares constraints with repair over a longer time (`--horizon`), and what both lose per play at its
end; `explored` counts how many plays of both are not of the subset that a plan plays most, and what that subset of the
last plan loses. `time` measures plans. `picture` draws the regret curves of `ways` into a file.
`--quick` plays few plays.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import kofn
from benchmarks.tables import NORMAL_95, interval, line, parser_for, table
from benchmarks.thompson import instance
from kofn.constraints import AtMost, Budget, Constraints, NeverTogether
from kofn.lab.problems import AbstractProblem
from kofn.lab.settings import Setting


@dataclass(frozen=True)
class Scale:
    """How much is played: the defaults are those of the page, and QUICK is for tests."""

    horizon: int = 10**6
    settings: tuple[Setting, ...] = tuple(Setting(family, 24, 5) for family in ("mean", "max"))
    sizes: tuple[tuple[int, int], ...] = ((24, 5), (40, 5), (64, 10))
    plans: int = 10**6  # plays of a run whose plans are timed


FULL = Scale()
QUICK = Scale(2_000, (Setting("mean", 12, 3),), ((12, 3),), 3_000)

Rules = Callable[[AbstractProblem, np.random.Generator, bool], Constraints]
"""Rules for a problem; the last argument is whether they allow the best subset."""


def brands(problem: AbstractProblem, rng: np.random.Generator, harmless: bool) -> Constraints:
    """Return brands of 4 arms, of which a subset has at most one."""
    n, k = problem.n_arms, problem.k
    order = rng.permutation(n)
    if harmless:  # the best arms are of different brands
        best = list(problem.best)
        order = np.array([*best, *(arm for arm in order.tolist() if arm not in best)])
    groups = -(-n // 4)
    rules = [AtMost(1, np.sort(order[group::groups]).tolist()) for group in range(groups)]
    assert groups >= k
    return Constraints(*rules)


def conflicts(problem: AbstractProblem, rng: np.random.Generator, harmless: bool) -> Constraints:
    """Return pairs of arms that are never together: as many as arms; harmful ones are pairs of good arms."""
    n, best = problem.n_arms, set(problem.best)
    pairs = [(a, b) for a in range(n) for b in range(a)]
    if harmless:
        pairs = [pair for pair in pairs if not best.issuperset(pair)]
    chosen = [pairs[which] for which in rng.permutation(len(pairs))[:n].tolist()]
    if not harmless:
        first, *others = sorted(best)
        chosen += [(first, other) for other in others if (other, first) not in chosen]
    return Constraints(*(NeverTogether(pair) for pair in chosen))


def budgets(problem: AbstractProblem, rng: np.random.Generator, harmless: bool) -> Constraints:
    """Return costs from 1 to 5, and a budget: what the best costs, or three quarters of it, if K arms can cost that."""
    cost = rng.uniform(1, 5, problem.n_arms).round(1)
    price, least = cost[list(problem.best)].sum(), np.sort(cost)[: problem.k].sum()
    most = price if harmless else max(0.75 * price, 1.1 * least)
    return Constraints(Budget(round(float(most), 1), dict(enumerate(cost.tolist()))))


KINDS: dict[str, Rules] = {"brands": brands, "conflicts": conflicts, "budgets": budgets}

Play = Callable[[AbstractProblem, int, Any, np.random.Generator], list[tuple[int, float]]]
"""Play a problem under constraints; return the plays and the regret after each plan."""


def constrained(problem: AbstractProblem, horizon: int, seed: Any, rng: np.random.Generator) -> list[tuple[int, float]]:
    """Play Thompson with constraints."""
    return _played(
        kofn.Thompson(problem.n_arms, problem.k, constraints=problem.constraints, seed=seed), problem, horizon, rng
    )


def listed(problem: AbstractProblem, horizon: int, seed: Any, rng: np.random.Generator) -> list[tuple[int, float]]:
    """Play Thompson sampling over the list of all allowed subsets."""
    policy = kofn.lab.rivals.ThompsonSubsets(problem.n_arms, problem.k, constraints=problem.constraints, seed=seed)
    return _played(policy, problem, horizon, rng)


def repaired(problem: AbstractProblem, horizon: int, seed: Any, rng: np.random.Generator) -> list[tuple[int, float]]:
    """Play Thompson without constraints, and repair each of its subsets; it learns from what was played."""
    policy = kofn.Thompson(problem.n_arms, problem.k, seed=seed)
    curve, regret = [(0, 0.0)], 0.0
    for rows, times in _plays(policy, problem, horizon, rng):
        regret += float(problem.gap(rows) @ times)
        curve.append((policy.plays, regret))
    return curve


def _plays(
    policy: kofn.Thompson, problem: AbstractProblem, horizon: int, rng: np.random.Generator
) -> Iterator[tuple[Any, Any]]:
    """Play plan by plan, and yield what was played; subsets of a policy without constraints are repaired."""
    assert problem.constraints is not None
    allowed = problem.constraints.allowed(problem.n_arms, problem.k)
    while policy.plays < horizon:
        plan = policy.plan().part(horizon - policy.plays, rng)
        mean = policy._posterior.mean
        rows = np.array([_repaired(row, mean, allowed) for row in plan.subsets])
        tally = problem.play(rows, plan.times, rng)
        for row, count, total, squares in zip(rows, plan.times.tolist(), tally.total, tally.squares, strict=True):
            if count:
                policy.tell_total(row.tolist(), count, total, squares)
        yield rows, plan.times


def _repaired(subset: Any, mean: Any, allowed: Any) -> Any:
    """Return an allowed subset: the best arms of this one that are allowed together, filled up with the best others."""
    if allowed.allows(subset[None, :])[0]:
        return subset
    first, others = subset[np.argsort(-mean[subset], kind="stable")], np.argsort(-mean, kind="stable")
    kept: list[int] = []
    matrix, _, high = allowed.rows
    total = np.zeros(len(matrix))
    for arm in [*first.tolist(), *others.tolist()]:
        if arm not in kept and len(kept) < len(subset) and (total + matrix[:, arm] <= high).all():
            kept.append(arm)
            total = total + matrix[:, arm]
    row = np.sort(kept)
    if len(row) == len(subset):
        return row
    inside = np.isin(np.arange(len(mean)), subset)
    return allowed.best((inside + 0.001 * mean)[None, :])[0]  # a greedy choice can spend the budget too early


def _played(policy: Any, problem: AbstractProblem, horizon: int, rng: np.random.Generator) -> list[tuple[int, float]]:
    run = kofn.simulate(policy, problem, horizon, rng)
    return list(zip(run.curve.plays.tolist(), run.curve.regret.tolist(), strict=True))


WAYS: dict[str, Play] = {"constraints": constrained, "list of subsets": listed, "repair": repaired}


def runs_of(setting: Setting, kind: str, harmless: bool, way: Play, seed: int, runs: int, horizon: int) -> list[Any]:
    """Return the curves of one way on all runs; each run has its own problem and rules."""
    found = []
    for run in range(runs):
        problem, (for_policy, for_plays) = instance(setting, seed, run)
        ruled = problem.under(KINDS[kind](problem, np.random.default_rng([seed, run]), harmless))
        found.append(way(ruled, horizon, for_policy, np.random.default_rng(for_plays)))
    return found


def ways(seed: int, runs: int, scale: Scale, kinds: Sequence[str]) -> None:
    """Print the regret of each way, under rules that forbid the best subset."""
    table("rules", "problem", *WAYS)
    for kind in kinds:
        for setting in scale.settings:
            ends = {
                name: [curve[-1][1] for curve in runs_of(setting, kind, False, way, seed, runs, scale.horizon)]
                for name, way in WAYS.items()
            }
            line(kind, setting.name, *map(interval, ends.values()))


def repair(seed: int, runs: int, scale: Scale, kinds: Sequence[str]) -> None:
    """Print the regret with constraints and with repair over time, and the loss per play in the last tenth of it.

    Both play the same problems: the difference has its own interval.
    """
    times = [10**power for power in range(4, 10) if 10**power <= scale.horizon] or [scale.horizon]
    table("rules", "problem", "way", *(f"{time:,} plays" for time in times), "loss at the end, per 10^9 plays")
    for kind in kinds:
        for setting in scale.settings:
            found = {}
            for name in ("constraints", "repair"):
                curves = [np.array(each).T for each in runs_of(setting, kind, False, WAYS[name], seed, runs, times[-1])]
                lost = np.array([np.interp(times, *curve) for curve in curves])
                late = [curve[1][-1] - np.interp(0.9 * times[-1], *curve) for curve in curves]
                found[name] = np.column_stack([lost, np.array(late) * 1e10 / times[-1]])
            found["difference"] = found["constraints"] - found["repair"]
            for name, values in found.items():
                line(kind, setting.name, name, *map(interval, values.T))


def explored(seed: int, runs: int, scale: Scale, kinds: Sequence[str]) -> None:
    """Print the plays off the main subset of each plan, and what the main subset of the last plan loses."""
    table("rules", "problem", "way", "plays off the main subset", "loss of 10^9 plays of the last main subset")
    for kind in kinds:
        for setting in scale.settings:
            found: dict[str, list[tuple[float, float]]] = {"constraints": [], "repair": []}
            for run in range(runs):
                problem, (for_policy, for_plays) = instance(setting, seed, run)
                ruled = problem.under(KINDS[kind](problem, np.random.default_rng([seed, run]), False))
                for name, of_run in found.items():
                    rules = ruled.constraints if name == "constraints" else None
                    policy = kofn.Thompson(problem.n_arms, problem.k, constraints=rules, seed=for_policy)
                    of_run.append(_off_main(policy, ruled, scale.horizon, np.random.default_rng(for_plays)))
            for name, of_run in found.items():
                line(kind, setting.name, name, *map(interval, np.array(of_run).T))
            differences = np.array(found["constraints"]) - np.array(found["repair"])
            line(kind, setting.name, "difference", *map(interval, differences.T))


def _off_main(
    policy: kofn.Thompson, problem: AbstractProblem, horizon: int, rng: np.random.Generator
) -> tuple[float, float]:
    off = 0
    for rows, times in _plays(policy, problem, horizon, rng):
        subsets, which = np.unique(rows, axis=0, return_inverse=True)
        count = np.bincount(which.reshape(-1), times)
        off += int(count.sum() - count.max())
        main = subsets[[int(count.argmax())]]
    return off, 1e9 * float(problem.gap(main)[0])


def free(problem: AbstractProblem, horizon: int, seed: Any, rng: np.random.Generator) -> list[tuple[int, float]]:
    """Play Thompson without constraints."""
    unruled = problem.under([])
    return _played(kofn.Thompson(problem.n_arms, problem.k, seed=seed), unruled, horizon, rng)


def price(seed: int, runs: int, scale: Scale, kinds: Sequence[str]) -> None:
    """Print the regret with rules that allow the best subset, and without; the ratio has a 95 % interval."""
    table("rules", "problem", "without rules", "with rules", "ratio")
    for kind in kinds:
        for setting in scale.settings:
            without, with_rules = (
                np.array([curve[-1][1] for curve in runs_of(setting, kind, True, way, seed, runs, scale.horizon)])
                for way in (free, constrained)
            )
            ratio = with_rules.mean() / without.mean()
            deviation = with_rules - ratio * without
            width = NORMAL_95 * deviation.std(ddof=1) / math.sqrt(runs) / without.mean()
            line(kind, setting.name, interval(without), interval(with_rules), f"{ratio:.2f} ± {width:.2f}")


def times(seed: int, runs: int, scale: Scale, kinds: Sequence[str]) -> None:
    """Print the CPU time per plan, without rules and with them; runs take turns, and the median is shown."""
    del kinds
    table("arms", "without rules, ms", "quotas, ms", "ratio", "conflicts, ms", "a budget, ms")
    for n_arms, k in scale.sizes:
        problem = kofn.Problem(kofn.Bernoulli(np.linspace(0.1, 0.9, n_arms)), "mean", k)
        quotas = Constraints.by_group(np.arange(n_arms) % (2 * k), at_most=1)
        pairs = Constraints(
            *(NeverTogether([arm, (arm + 1) % n_arms]) for arm in range(0, n_arms, 4)),
            *(NeverTogether([arm, arm + 2]) for arm in range(0, n_arms - 2, 4)),
        )
        cost = np.random.default_rng(seed).uniform(1, 5, n_arms).round(1).tolist()
        budget = Constraints(Budget(2.2 * k, dict(enumerate(cost))))
        found = np.array(
            [
                [_per_plan(problem, rules, scale.plans, seed + run) for rules in (None, quotas, pairs, budget)]
                for run in range(runs)
            ]
        )
        without, with_quotas, *others = np.median(found, axis=0).tolist()
        ratio = np.median(found[:, 1] / found[:, 0])
        line(
            f"{k} of {n_arms:,}",
            f"{without:.2f}",
            f"{with_quotas:.2f}",
            f"{ratio:.2f}",
            *(f"{each:.1f}" for each in others),
        )


def _per_plan(problem: AbstractProblem, rules: Constraints | None, plays: int, seed: int) -> float:
    """Return the CPU time of a plan and its update, in milliseconds."""
    policy = kofn.Thompson(problem.n_arms, problem.k, constraints=rules, seed=seed)
    start = time.process_time()
    kofn.simulate(policy, problem, plays, seed)
    return 1000 * (time.process_time() - start) / policy.updates


def picture(seed: int, runs: int, scale: Scale, kinds: Sequence[str], path: Path) -> None:
    """Draw the mean regret of each way over time."""
    import matplotlib.pyplot as plt

    figure, [axes] = plt.subplots(1, len(kinds), figsize=(4 * len(kinds), 3.6), sharey=True, squeeze=False)
    at = np.geomspace(30, scale.horizon, 60)
    setting = scale.settings[0]
    for axis, kind in zip(axes, kinds, strict=True):
        for name, way in WAYS.items():
            curves = runs_of(setting, kind, False, way, seed, runs, scale.horizon)
            lost = np.array([np.interp(at, *np.array(curve).T) for curve in curves])
            mean, half = lost.mean(axis=0), NORMAL_95 * lost.std(axis=0, ddof=1) / math.sqrt(runs)
            axis.plot(at, mean, label=name)
            axis.fill_between(at, mean - half, mean + half, alpha=0.2)
        axis.set(xscale="log", yscale="log", title=kind, xlabel="plays")
    axes[0].set_ylabel(f"regret ({setting.name})")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


TABLES = {"ways": ways, "price": price, "repair": repair, "explored": explored, "time": times}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one of the tables, or draw the picture."""
    parser = parser_for(__doc__, [*TABLES, "picture"], seed=2026, runs=20)
    parser.add_argument("--rules", choices=list(KINDS), help="only these rules")
    parser.add_argument("--horizon", type=float, help="plays of a run")
    parser.add_argument("--problem", choices=["mean", "max"], help="only this problem")
    parser.add_argument("--out", type=Path, default=Path("docs/images/constraints.png"))
    given = parser.parse_args(arguments)
    kinds = [given.rules] if given.rules else list(KINDS)
    scale = QUICK if given.quick else FULL
    if given.horizon:
        scale = replace(scale, horizon=int(given.horizon))
    if given.problem:
        scale = replace(scale, settings=tuple(each for each in scale.settings if each.family == given.problem))
    if given.table == "picture":
        picture(given.seed, given.runs, scale, kinds, given.out)
    else:
        TABLES[given.table](given.seed, given.runs, scale, kinds)


if __name__ == "__main__":
    main()
