"""Make the tables of docs/background/thompson-measurements.md: `python -m benchmarks.thompson regret` (`--help`).

Instances are those of the suite's settings with the given seed, which was not used for tuning (1000 to 6100 were).
`--quick` plays few settings, 200 plays of each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import kl_div

import kofn
from benchmarks.grid import SKETCHES
from benchmarks.tables import interval, line, paired, parser_for, table
from kofn.backends import compute
from kofn.lab.archive import RunArchive
from kofn.lab.competitors import competitors_for
from kofn.lab.problems import AbstractProblem
from kofn.lab.published import published
from kofn.lab.settings import Setting
from kofn.lab.suite import SUITE, run_suite
from kofn.policies.thompson.constants import Constants

RIVALS = ("linear-thompson", "shared-credit", "glm-max", "dart", "cmab-sm", "slots", "etcg")
"""The policies that win any setting of docs/background/leaderboard.md, and the paper's own."""

GRID = ("mean", "max", "cross-selling")


@dataclass(frozen=True)
class Scale:
    """How much is played: the defaults are those of the page, and QUICK is for tests."""

    horizon: int = 10**6
    settings: tuple[Setting, ...] = SUITE
    tail: float = 5.0  # `tails` looks at settings whose worst run is above this many means
    again: int = 20  # how often `tails` repeats such a run
    workers: int | None = None  # processes, by default one per core
    delays: tuple[tuple[int, int], ...] = ((100, 10**5), (1_000, 10**5), (10_000, 10**6))  # plays late, and played

    @property
    def small(self) -> tuple[Setting, ...]:
        return tuple(setting for setting in self.settings if setting.n_arms < 1000)

    @property
    def grid(self) -> tuple[Setting, ...]:
        """The settings of the paper."""
        return tuple(setting for setting in self.small if setting.family in GRID)


FULL = Scale()
QUICK = Scale(200, (Setting("mean", 12, 3), Setting("max", 12, 3)), tail=1.0, again=2, workers=1, delays=((2, 200),))


def instance(setting: Setting, seed: int, run: int) -> tuple[AbstractProblem, list[np.random.SeedSequence]]:
    """Return the problem of one run, and the seeds of its policy and its plays."""
    for_problem, *others = np.random.SeedSequence([seed, run]).spawn(3)
    return setting.problem(for_problem), others


# regret


def sketch_of(setting: Setting) -> float | None:
    for (family, n_arms), (ks, _, linear) in SKETCHES.items():
        if (family, n_arms) == (setting.family, setting.n_arms) and setting.k in ks:
            return float(linear[ks.index(setting.k)])
    return None


def published_of(setting: Setting) -> float | None:
    finals = [
        curve.final
        for (family, n_arms, k, _), curve in published().items()
        if (family, n_arms, k) == (setting.family, setting.n_arms, setting.k)
    ]
    return min(finals, default=None)


def finals_of(
    settings: Sequence[Setting], policies: Sequence[str], seed: int, runs: int, archive: str, scale: Scale
) -> dict[str, dict[str, list[float]]]:
    """Return the regret of each run, by setting and policy."""
    found: dict[str, dict[str, list[float]]] = {setting.name: {} for setting in settings}
    asked: dict[str, Any] = {"horizon": scale.horizon, "runs": runs, "seed": seed, "workers": scale.workers}
    for result in run_suite(RunArchive(Path(archive)), settings=settings, policies=policies, **asked):
        if "finals" in result:
            found[result["setting"]][result["policy"]] = result["finals"]
    return found


def regret(seed: int, runs: int, archive: str, scale: Scale = FULL) -> None:
    """Compare thompson with the sketch, the paper and the best other policy, on every setting up to N = 45."""
    found = finals_of(scale.small, ["thompson", *RIVALS], seed, runs, archive, scale)
    table("setting", "thompson", "worst / mean", "/ O(N) sketch", "/ published", "best rival", "its regret", "ratio")
    within = []
    for setting in scale.small:
        means = {name: float(np.mean(finals)) for name, finals in found[setting.name].items()}
        worst, ours = max(found[setting.name]["thompson"]), means.pop("thompson")
        rival = min(means, key=means.__getitem__)
        ratio = ours / means[rival] if means[rival] >= 1 else None
        if setting.family in GRID and ratio is not None:
            within.append(ratio)
        line(
            setting.name,
            f"{ours:,.0f}",
            f"{worst / ours:.1f}" if ours >= 1 else "",
            *(f"{ours / of:.3f}" if of else "" for of in (sketch_of(setting), published_of(setting))),
            rival,
            f"{means[rival]:,.0f}",
            "" if ratio is None else f"{ratio:.2f}",
        )
    print(
        f"\nOf the {len(within)} settings of the paper's grid: at most 1.5 times the best rival in "
        f"{sum(each <= 1.5 for each in within)}, at most {max(within):.2f} times in all."
    )
    grid = [found[setting.name] for setting in scale.grid]
    over = {name: sum(max(of[name]) > 5 * np.mean(of[name]) for of in grid) for name in ("thompson", *RIVALS[:3])}
    print("Worst run over 5 means:", ", ".join(f"{name} in {count}" for name, count in over.items()) + ".")


# the worst runs


def _again(setting: Setting, seed: int, run: int, number: int, horizon: int) -> float:
    """Return the regret on the instance of a run of the suite, with other random numbers."""
    (competitor,) = competitors_for(["thompson"], setting, horizon, seed)
    for_policy, for_plays = np.random.SeedSequence([seed, run, number]).spawn(2)
    policy = kofn.Thompson(setting.n_arms, setting.k, seed=for_policy)
    problem = setting.problem(competitor.seeds(run)[0])
    return kofn.simulate(policy, problem, horizon, np.random.default_rng(for_plays)).regret


def tails(seed: int, runs: int, archive: str, scale: Scale = FULL) -> None:
    """Repeat the worst runs of the paper's grid that are over 5 means: was it bad luck, or a hard instance?"""
    found = finals_of(scale.grid, ["thompson"], seed, runs, archive, scale)
    table(
        "setting", "mean", "worst / mean", f"the same instance {scale.again} times more: mean / mean", "least", "most"
    )
    for setting in scale.grid:
        ours = found[setting.name]["thompson"]
        mean, run = float(np.mean(ours)), int(np.argmax(ours))
        if ours[run] > scale.tail * mean:
            tasks = [(setting, seed, run, number, scale.horizon) for number in range(scale.again)]
            again = np.array(compute(_again, tasks, workers=scale.workers))
            cells = (ours[run], again.mean(), again.min(), again.max())
            line(setting.name, f"{mean:,.0f}", *(f"{cell / mean:.1f}" for cell in cells))


# the least possible regret


def _least(setting: Setting, seed: int, run: int, horizon: int) -> float:
    """Return the least regret needed to distinguish each arm from the one it replaces: Lai and Robbins' gap ln T / KL.

    For 0-1 rewards, in the place where this is least, and at most the regret of always playing the arm.
    """
    problem, _ = instance(setting, seed, run)
    best = np.array(problem.best)
    others = np.setdiff1d(np.arange(setting.n_arms), best)
    swaps = np.array([[np.append(best[best != out], arm) for out in best] for arm in others])
    value = problem.value(swaps.reshape(-1, setting.k)).reshape(swaps.shape[:2])
    gap = problem.optimum - value
    apart = kl_div(value, problem.optimum) + kl_div(1 - value, 1 - problem.optimum)
    return float(np.minimum(gap * horizon, gap * np.log(horizon) / np.maximum(apart, 1e-300)).min(axis=1).sum())


def least(seed: int, runs: int, scale: Scale = FULL) -> None:
    """Print the least regret on the maximum, and how often the worst of 30 instances must exceed 5 times the mean."""
    table("setting", "least regret, mean", "median", "worst of 30 over 5 means")
    rng = np.random.default_rng(seed)
    for setting in scale.small:
        if setting.family == "max":
            found = np.array([_least(setting, seed, run, scale.horizon) for run in range(runs)])
            some = found[rng.integers(runs, size=(4_000, 30))]
            over = float((some.max(axis=1) > 5 * some.mean(axis=1)).mean())
            line(setting.name, f"{found.mean():,.1f}", f"{np.median(found):,.1f}", f"{over:.0%}")


# anytime


def anytime(seed: int, runs: int, scale: Scale = FULL) -> None:
    """Print the regret after 10^3, 10^4 and 10^5 plays; CMAB-SM and DART are given that horizon."""
    horizons = sorted({min(each, scale.horizon) for each in (10**3, 10**4, 10**5)})
    names = ("thompson", "cmab-sm", "dart")
    table("setting", *(f"{name}, T = {horizon:,}" for horizon in horizons for name in names))
    for setting in scale.settings:
        few = runs if setting.n_arms < 1000 else 3
        cells = []
        for horizon in horizons:
            each = kofn.compare(list(names), setting, horizon, few, seed, workers=scale.workers)
            by = {standing.name: float(standing.finals.mean()) for standing in each.standings}
            lost = by["thompson"] > min(by.values()) and by["thompson"] >= 1
            cells += [f"{'**' if lost else ''}{by['thompson']:,.0f}{'**' if lost else ''}"]
            cells += [f"{by[name]:,.0f}" for name in names[1:]]
        line(setting.name, *cells)


# late rewards


def _late(setting: Setting, seed: int, run: int, horizon: int, delay: int) -> float:
    problem, (for_policy, for_plays) = instance(setting, seed, run)
    policy = kofn.Thompson(setting.n_arms, setting.k, seed=for_policy)
    return kofn.simulate(policy, problem, horizon, np.random.default_rng(for_plays), delay=delay).regret


def _blind(setting: Setting, seed: int, run: int, delay: int) -> float:
    """Return the regret of the plays before the first reward: those of random subsets."""
    problem, _ = instance(setting, seed, run)
    rng = np.random.default_rng(run)
    subsets = [np.sort(rng.choice(setting.n_arms, setting.k, replace=False)) for _ in range(2_000)]
    return float(problem.gap(np.array(subsets)).mean()) * delay


def delay(seed: int, runs: int, scale: Scale = FULL) -> None:
    """Print the regret if every reward arrives late, and the part of it that is not that of the blind plays."""
    table("setting", "plays late", "plays", "no delay", "late", "of these, blind", "rest / no delay")
    for late, horizon in scale.delays:
        for name in ("mean", "max", "cross-selling", "likely-min"):
            setting = Setting(name, 24, 5)
            tasks = [(setting, seed, run, horizon, each) for each in (0, late) for run in range(runs)]
            prompt, found = np.array(compute(_late, tasks, workers=scale.workers)).reshape(2, runs)
            blind = np.array([_blind(setting, seed, run, late) for run in range(runs)])
            cells = (interval(prompt), interval(found), f"{blind.mean():,.0f}", paired(found - blind, prompt))
            line(setting.name, f"{late:,}", f"{horizon:,}", *cells)


# drift


def _drifting(half_life: int | None, seed: int, run: int, span: int, spans: int) -> float:
    """Return the regret if all arms are redrawn every `span` plays."""
    setting = Setting("mean", 24, 5)
    policy = kofn.Thompson(24, 5, half_life=half_life, seed=run)
    rng = np.random.default_rng([seed, run])
    lost = 0.0
    for number in range(spans):
        problem = setting.problem(np.random.SeedSequence([seed, run, number]))
        played = 0
        while played < span:
            plan = policy.plan().part(span - played, rng)
            policy.tell_plan(problem.play(plan.subsets, plan.times, rng))
            lost += float(problem.gap(plan.subsets) @ plan.times)
            played += plan.plays
    return lost


def drift(seed: int, runs: int, scale: Scale = FULL) -> None:
    """Print the regret if the best subset changes four times, after every tenth of the horizon: 500,000 plays."""
    span, spans = scale.horizon // 10, 5
    table("half_life", f"regret of {span * spans:,} plays", "uniform would lose")
    setting = Setting("mean", 24, 5)
    uniform = np.mean([_blind(setting, seed, run, span * spans) for run in range(runs)])
    for half_life in (None, 2_000, 5_000, 10_000, 20_000, 50_000):
        tasks = [(half_life, seed, run, span, spans) for run in range(runs)]
        found = compute(_drifting, tasks, workers=scale.workers)
        line(half_life or "none", f"{np.mean(found):,.0f}", f"{uniform:,.0f}")


# the guard


def _guarded(climb: float, setting: Setting, seed: int, run: int, horizon: int) -> float:
    problem, (for_policy, for_plays) = instance(setting, seed, run)
    policy = kofn.Thompson(setting.n_arms, setting.k, seed=for_policy)
    policy.constants = replace(Constants(), climb=climb)
    return kofn.simulate(policy, problem, horizon, np.random.default_rng(for_plays)).regret


def guard(seed: int, runs: int, scale: Scale = FULL) -> None:
    """Print a case that needs the guard: without it, an arm that was tried beside bad arms is not tried again."""
    table("growth of variances per climb of 1", "mean regret", "median", "the worst three")
    setting = Setting("mean", 100, 2)
    for climb, label in ((0.0, "none"), (1.0, "e")):
        tasks = [(climb, setting, seed, run, scale.horizon) for run in range(runs)]
        found = sorted(compute(_guarded, tasks, workers=scale.workers))
        line(
            label,
            f"{np.mean(found):,.0f}",
            f"{np.median(found):,.0f}",
            " / ".join(f"{each:,.0f}" for each in found[-3:]),
        )


TABLES: dict[str, Callable[..., None]] = {
    "regret": regret,
    "tails": tails,
    "least": least,
    "anytime": anytime,
    "delay": delay,
    "drift": drift,
    "guard": guard,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_for(__doc__, TABLES, seed=77, runs=30)
    parser.add_argument("--archive", default="suite-30", help="archive of the runs of `regret` and `tails`")
    args = parser.parse_args(arguments)
    more = {"archive": args.archive} if args.table in ("regret", "tails") else {}
    TABLES[args.table](args.seed, args.runs, **more, scale=QUICK if args.quick else FULL)


if __name__ == "__main__":
    main()
