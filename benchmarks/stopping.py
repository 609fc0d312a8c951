"""Make the tables of docs/background/evidence.md on stopping: `python -m benchmarks.stopping suite` (`--help`).

Each run plays a fresh random instance with the default policy and applies the stop rule after every plan, for several
thresholds x at once, each a part of the best subset's reward. It ends when all of them are ready, or after 100,000
plays. `suite` has the settings of the suite, `base` other families under the paper's assumptions. `large` has the
settings with 1,000 arms, and up to 30,000 plays. `--quick` plays little.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import kofn
from benchmarks.tables import NORMAL_95, line, parser_for, table
from benchmarks.thompson_safety import BASE
from kofn.campaigns.evidence import Look, Stop
from kofn.lab.problems import AbstractProblem
from kofn.lab.suite import SUITE

Make = Callable[[Any], AbstractProblem]
LARGE = 1_000


@dataclass(frozen=True)
class Scale:
    """How much is played: the defaults are those of the page, and QUICK is for tests."""

    parts: tuple[float, ...] = (0.05, 0.02, 0.01)
    plays: int = 100_000
    large: int = 30_000
    few: int | None = None  # rows of a table; all without it


FULL = Scale()
QUICK = Scale((0.2, 0.1), 300, 300, 1)


def stopped(make: Make, parts: Sequence[float], plays: int, seed: int, run: int) -> list[tuple[float, float]]:
    """Return for each threshold the true loss relative to it, and the number of plays; nan if it is not ready."""
    for_problem, for_policy, for_plays = np.random.SeedSequence([seed, run]).spawn(3)
    problem, rng = make(np.random.default_rng(for_problem)), np.random.default_rng(for_plays)
    policy = kofn.Thompson(problem.n_arms, problem.k, seed=for_policy)
    stops = [Stop(loss=part * problem.optimum) for part in parts]
    looks: list[Look | None] = [None] * len(stops)
    found = [(math.nan, math.nan)] * len(stops)
    while policy.plays < plays and any(math.isnan(each) for each, _ in found):
        plan = policy.plan()
        policy.tell_plan(problem.play(plan.subsets, plan.times, rng))
        insight = policy.insight()
        for number, stop in enumerate(stops):
            look = looks[number] = stop.look(insight, policy.plays, looks[number])
            if look.ready and math.isnan(found[number][0]):
                loss = float(problem.gap(np.array([policy.best()]))[0])
                found[number] = loss / stop.threshold, policy.plays
    return found


def print_table(problems: Sequence[tuple[str, Make]], seed: int, runs: int, parts: Sequence[float], plays: int) -> None:
    heads = [f"{part:.1%}: {what}" for part in parts for what in ("true loss / x", "plays", "not ready")]
    table("setting", *heads)
    everything = []
    for name, make in problems:
        found = np.array([stopped(make, parts, plays, seed, run) for run in range(runs)])
        everything.append(found)
        line(name, *(cell for number in range(len(parts)) for cell in cells(found[:, number])))
    ratios = [_means(np.array(everything)[:, :, number, 0]) for number in range(len(parts))]
    for part, each in zip(parts, ratios, strict=True):
        print(
            f"\nx = {part:.1%}: of {len(problems)} settings, {int((each > 1).sum())} have a mean true loss above x. "
            + (f"The mean over settings is {each.mean():.2f} x." if len(each) else "None is ready.")
        )


def cells(found: Any) -> tuple[str, str, str]:
    """Return the mean true loss relative to the threshold, the median of the plays, and the part that is not ready."""
    losses, plays = found[~np.isnan(found[:, 0])].T
    if not len(losses):
        return "", "", "100%"
    error = f" ± {NORMAL_95 * np.std(losses, ddof=1) / len(losses) ** 0.5:.2f}" if len(losses) > 1 else ""
    return f"{losses.mean():.2f}{error}", f"{int(np.median(plays)):,}", f"{1 - len(losses) / len(found):.0%}"


def _means(losses: Any) -> Any:
    """Return the mean of each row without nan, of the rows that have one."""
    return np.array([np.nanmean(row) for row in losses if not np.isnan(row).all()])


def suite(seed: int, runs: int, scale: Scale) -> None:
    settings = [(setting.name, setting.problem) for setting in SUITE if setting.n_arms < LARGE]
    print_table(settings[: scale.few], seed, runs, scale.parts, scale.plays)


def base(seed: int, runs: int, scale: Scale) -> None:
    families = [(family.name, family.problem) for family in BASE]
    print_table(families[: scale.few], seed, runs, scale.parts, scale.plays)


def large(seed: int, runs: int, scale: Scale) -> None:
    settings = [(setting.name, setting.problem) for setting in SUITE if setting.n_arms == LARGE]
    print_table(settings[: scale.few], seed, runs, scale.parts, scale.large)


TABLES: dict[str, Callable[[int, int, Scale], None]] = {"suite": suite, "base": base, "large": large}


def main(arguments: Sequence[str] | None = None) -> None:
    args = parser_for(__doc__, TABLES, seed=2028, runs=40).parse_args(arguments)
    TABLES[args.table](args.seed, args.runs, QUICK if args.quick else FULL)


if __name__ == "__main__":
    main()
