"""Make the tables of docs/background/calibration.md: `python -m benchmarks.calibration suite` (`--help`).

`suite` compares what `insight()` says with the truth, on settings of the suite: the probability that the best subset is
right, the interval of its value, the expected loss, and alarms, which are all false there. `drift` and `synergy`
play problems on which alarms should be raised. `--quick` plays one setting, a few plays.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import kofn
from benchmarks.tables import line, parser_for, table
from benchmarks.thompson import instance
from kofn.lab.settings import Setting
from kofn.lab.suite import BEYOND

FAMILIES = ("mean", "max", "cross-selling", *BEYOND)


@dataclass(frozen=True)
class Scale:
    """How much is played: the defaults are those of the page, and QUICK is for tests."""

    marks: tuple[int, ...] = (300, 1000, 3000, 10**4, 10**5, 10**6)
    settings: tuple[Setting, ...] = tuple(Setting(family, n, k) for family in FAMILIES for n, k in ((12, 3), (24, 5)))
    change: int = 20_000  # the play at which `drift` changes all arms
    synergy: int = 10**5


FULL = Scale()
QUICK = Scale((100, 300), (Setting("mean", 12, 3),), 400, 400)


def suite(seed: int, runs: int, scale: Scale) -> None:
    """Print what was said / what is true, averaged over runs with an estimate; and the runs with a false alarm."""
    table("setting", "what", *(f"{mark:,}" for mark in scale.marks))
    false = {"drift": 0, "misfit": 0}
    for setting in scale.settings:
        found = np.array([_said(setting, seed, run, scale.marks, false) for run in range(runs)])
        said, true, loss, gap, covered = np.nanmean(found, axis=0).T
        line(setting.name, "probability best", *(f"{a:.2f} / {b:.2f}" for a, b in zip(said, true, strict=True)))
        line("", "expected loss", *(f"{a:.4f} / {b:.4f}" for a, b in zip(loss, gap, strict=True)))
        line("", "interval holds", *(f"{each:.0%}" for each in covered))
    counts = ", ".join(f"{count} {kind}" for kind, count in false.items())
    print(f"\nFalse alarms in {len(scale.settings) * runs} runs of {scale.marks[-1]:,} plays: {counts}.")


def _said(setting: Setting, seed: int, run: int, marks: tuple[int, ...], false: dict[str, int]) -> list[Any]:
    problem, (for_policy, for_plays) = instance(setting, seed, run)
    rng = np.random.default_rng(for_plays)
    policy = kofn.Thompson(setting.n_arms, setting.k, seed=for_policy)
    most = problem.value([problem.best])[0]
    found: list[Any] = []
    for mark in marks:
        while policy.plays < mark:
            plan = policy.plan().part(mark - policy.plays, rng)
            tally = problem.play(plan.subsets, plan.times, rng)
            policy.tell_plan(kofn.Tally(plan.times, tally.total, tally.squares))
        insight, value = policy.insight(), problem.value([policy.best()])[0]
        gap = most - value
        if insight is None:  # all rewards so far were equal
            found.append([math.nan] * 5)
            continue
        holds = insight.low <= value <= insight.high
        found.append([insight.probability_best, gap < 1e-9, insight.expected_loss, gap, holds])
    for alarm in (insight.alarms if insight else None) or ():
        false[alarm.kind] += 1
    return found


Values = Callable[[Any, int], Any]
"""The mean reward of each row of subsets, after this number of plays."""


def watched(policy: kofn.Thompson, values: Values, plays: int, rng: np.random.Generator) -> dict[str, int]:
    """Play coins; return when each alarm was raised."""
    while policy.plays < plays:
        plan = policy.plan()
        total = rng.binomial(plan.times, values(plan.subsets, policy.plays)).astype(float)
        policy.tell_plan(kofn.Tally(plan.times, total, total))
    return dict(policy._alarms.raised())


def drift(seed: int, runs: int, scale: Scale) -> None:
    """Print how long after a change of all arms an alarm is raised; before it, none may be."""
    table("problem", "changed best subset", "before the change", "drift", "misfit", "either", "median delay", "longest")
    for n_arms, k in ((10, 2), (24, 5)):
        before, raised, delays, moved = 0, {"drift": 0, "misfit": 0}, [], 0
        for run in range(runs):
            rng = np.random.default_rng([seed, run])
            old, new = rng.random(n_arms), rng.random(n_arms)
            policy = kofn.Thompson(n_arms, k, seed=run)

            def values(subsets: Any, plays: int, old: Any = old, new: Any = new) -> Any:
                return (old if plays < scale.change else new)[subsets].mean(axis=1)

            alarms = watched(policy, values, 2 * scale.change, rng)
            moved += set(np.argsort(-new)[:k]) != set(np.argsort(-old)[:k])
            before += any(since <= scale.change for since in alarms.values())
            for kind in alarms:
                raised[kind] += 1
            if alarms:
                delays.append(min(alarms.values()) - scale.change)
        shown = [f"{int(np.median(delays)):,}", f"{max(delays):,}"] if delays else ["", ""]
        name = f"mean, N = {n_arms}, K = {k}"
        line(name, f"{moved} of {runs}", before, raised["drift"], raised["misfit"], len(delays), *shown)


def synergy(seed: int, runs: int, scale: Scale) -> None:
    """Print alarms on a pair of arms that pays only together: 0.2 without, 0.7 with it."""
    table("problem", "pair", "runs", "alarms", "probability best, mean", "plays of the pair, most")
    for n_arms, k in ((10, 2), (20, 4), (30, 3)):
        found: dict[bool, list[tuple[bool, float, int]]] = {False: [], True: []}
        for run in range(runs):
            rng, pair = np.random.default_rng([seed, run]), 0

            def values(subsets: Any, plays: int) -> Any:
                del plays
                return 0.2 + 0.5 * (np.isin(subsets, (0, 1)).sum(axis=1) == 2)

            policy = kofn.Thompson(n_arms, k, seed=run)
            while policy.plays < scale.synergy:
                plan = policy.plan()
                pair += int(plan.times[values(plan.subsets, 0) > 0.5].sum())
                alarms = watched(policy, values, policy.plays + 1, rng)
            insight = policy.insight()
            assert insight is not None
            found[{0, 1} <= set(policy.best())].append((bool(alarms), insight.probability_best, pair))
        for in_best, cases in found.items():
            if cases:
                name, which = f"N = {n_arms}, K = {k}", "found" if in_best else "not found"
                raised, said = sum(case[0] for case in cases), np.mean([case[1] for case in cases])
                line(name, which, len(cases), raised, f"{said:.2f}", f"{max(case[2] for case in cases):,}")


TABLES: dict[str, Callable[[int, int, Scale], None]] = {"suite": suite, "drift": drift, "synergy": synergy}


def main(arguments: Sequence[str] | None = None) -> None:
    args = parser_for(__doc__, TABLES, seed=9000, runs=20).parse_args(arguments)
    TABLES[args.table](args.seed, args.runs, QUICK if args.quick else FULL)


if __name__ == "__main__":
    main()
