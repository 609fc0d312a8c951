"""Make the table of short runs: regret, and the gap of `best()`, after 100 to 10,000 plays of the whole suite.

    python -m benchmarks.pick --page docs/background/short-runs.md

Every policy plays every setting of the suite that it can play, with each budget as its horizon; run 7 of all policies
is on the same instance. The seed, 9500, was not used to tune any policy. With --archive, runs are kept and not
repeated, so that the table can be made in pieces: first with some --policy or --setting, then as a whole. `--quick`
plays three settings with three policies.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from kofn.core import generator
from kofn.lab.archive import as_archive
from kofn.lab.real import BUDGETS, Facts, RealTable, Task, play_all, tasks_of
from kofn.lab.real_page import WHAT, head, ratio_lines, shown
from kofn.lab.settings import Setting
from kofn.lab.simulation import run_seeds
from kofn.lab.suite import settings_named
from kofn.policies.registry import POLICIES

MOST_ARMS = {"pairwise-thompson": 24}
"""Arms with which a policy still plays. With 45, a run of 10,000 plays of `pairwise-thompson` takes 5 to 20 seconds."""
RANDOM_SUBSETS = 200
"""Random subsets of each instance, whose mean gap is that of a setting."""
QUICK = {
    "settings": ["close/N12-K3", "max/N12-K3", "equal/N12-K3"],
    "policies": ["thompson", "shared-credit", "uniform"],
}


def facts_of(setting: Setting, seed: int, runs: int) -> Facts:
    """Return what is known about the instances of a setting without plays."""
    gaps, optima = [], []
    for run in range(runs):
        problem = setting.problem(run_seeds(seed, run).problem)
        rng = generator(run)
        random = [rng.choice(problem.n_arms, problem.k, replace=False) for _ in range(RANDOM_SUBSETS)]
        gaps.append(float(problem.gap(np.array(random)).mean()))
        optima.append(problem.optimum)
    return Facts(
        setting.name, setting.n_arms, setting.k, float(np.mean(optima)), (), "", float(np.mean(gaps)), rules={}
    )


def measured(settings: Sequence[Setting], policies: Sequence[str], args: argparse.Namespace) -> RealTable:
    """Play what is not archived, and return the table. Settings in which all subsets are equally good are left out."""
    known = [facts_of(setting, args.seed, args.runs) for setting in settings]
    facts = tuple(each for each in known if each.random_gap > 0)
    budgets = (20, 60) if args.quick else BUDGETS
    tasks: list[Task] = []
    skipped: dict[str, str] = {}
    for each in facts:
        able = [name for name in policies if each.n_arms <= MOST_ARMS.get(name, math.inf)]
        more, cannot = tasks_of({each.problem: settings_named([each.problem])[0]}, able, budgets, args.seed)
        tasks, skipped = tasks + more, skipped | cannot
    cells = play_all(tasks, args.runs, math.inf, as_archive(args.archive), "local", args.workers, None)
    return RealTable(facts, cells, budgets, args.runs, args.seed, skipped)


def page(table: RealTable, command: str) -> Iterator[str]:
    """Yield the lines of the Markdown page."""
    yield from ("# Short runs: the table", "")
    yield (
        "Regret, and the gap of the pick: what a play of `best()` loses, after 100 to 10,000 plays of settings of "
        f"[the suite](../guides/compare.md#the-suite). Means over {table.runs} runs (seed {table.seed}), each with a "
        "fresh random problem, the same for all policies, with half the width of 95 % intervals. "
        "[Measurements of Thompson](thompson-measurements.md#the-pick) says what the table shows. Policies that "
        "cannot play a setting, or would take too long, are left out there."
    )
    yield from ("", f"Made by `{command}`.", "", "## Over all settings", "")
    yield (
        "Regret, or the gap of the pick, divided by that of the best policy of the setting: the geometric mean over "
        "the settings that a policy played. Chance makes the lowest of many means too low, so the second number is too "
        "high. The first is too low: there, the best is chosen by the even runs and measured by the odd ones, and vice "
        "versa. Gaps below 1 % of those of random subsets count as 1 %. Equal arms have no gap and are left out."
    )
    for what, title in WHAT.items():
        yield from ("", f"### {title}, relative to the best", "", *ratio_lines(table, what))
    for fact in table.facts:
        yield from ("", f"## {fact.problem}", "", f"A random subset loses {fact.random_gap:.4f} on average.")
        for what, title in WHAT.items():
            yield from ("", *head(title, table))
            for policy in table.policies(fact.problem):
                cells = [table.cell(fact.problem, policy, budget) for budget in table.budgets]
                yield f"| `{policy}` | {' | '.join(shown(cell, what) for cell in cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=9500)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--setting", action="append", help="a setting or family of the suite; by default all")
    parser.add_argument("--policy", action="append", help="by default all policies")
    parser.add_argument("--without", action="append", default=[], help="all policies but this one")
    parser.add_argument("--archive", type=Path, help="the folder of the runs")
    parser.add_argument("--page", type=Path, help="write the page; without it, it is printed")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that the benchmark works")
    args = parser.parse_args(arguments)
    settings = settings_named(QUICK["settings"] if args.quick else args.setting or [])
    policies = QUICK["policies"] if args.quick else args.policy or sorted(POLICIES)
    table = measured(settings, [name for name in policies if name not in args.without], args)
    named = [f" --{name} {each}" for name in ("setting", "policy", "without") for each in getattr(args, name) or []]
    where = f" --page {args.page}" if args.page else ""
    command = f"python -m benchmarks.pick --seed {args.seed} --runs {args.runs}{''.join(named)}{where}"
    text = "\n".join(page(table, command)) + "\n"
    if args.page:
        args.page.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
