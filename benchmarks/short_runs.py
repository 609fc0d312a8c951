"""Regret, and the gap of `best()`, after 100 to 10,000 plays of every setting of the suite.

    python -m benchmarks.short_runs --archive out/short-runs

Every policy plays every setting that it can play, with each budget as its horizon; run 7 of all policies is on the same
instance. The seed, 9500, was not used to tune any policy. With `--archive`, runs are kept and not repeated, so that the
table can be made in pieces. Settings in which all subsets are equally good are left out.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.rows import Row, run
from kofn.backends import Progress
from kofn.core import generator
from kofn.lab.archive import as_archive
from kofn.lab.competitors import Entry
from kofn.lab.real import BUDGETS, Facts, RealTable, entries_of, play_all
from kofn.lab.settings import Setting
from kofn.lab.simulation import run_seeds
from kofn.lab.suite import settings_named
from kofn.policies.registry import POLICIES

MOST_ARMS = {"pairwise-thompson": 24}
"""Arms with which a policy still plays. With 45, a run of 10,000 plays of `pairwise-thompson` takes 5 to 20 seconds."""
RANDOM_SUBSETS = 200
"""Random subsets of each instance, whose mean gap is that of a setting."""
QUICK = ("close/N12-K3", "max/N12-K3", "equal/N12-K3"), ("thompson", "shared-credit", "uniform"), (20, 60)


def facts_of(setting: Setting, seed: int, runs: int) -> Facts:
    """Return what is known about the instances of a setting without plays."""
    gaps, optima = [], []
    for number in range(runs):
        problem = setting.problem(run_seeds(seed, number).problem)
        rng = generator(number)
        random = [rng.choice(problem.n_arms, problem.k, replace=False) for _ in range(RANDOM_SUBSETS)]
        gaps.append(float(problem.gap(np.array(random)).mean()))
        optima.append(problem.optimum)
    return Facts(
        setting.name, setting.n_arms, setting.k, float(np.mean(optima)), (), "", float(np.mean(gaps)), rules={}
    )


def table(
    settings: tuple[str, ...],
    policies: tuple[str, ...],
    budgets: tuple[int, ...] = BUDGETS,
    *,
    seed: int = 9500,
    runs: int = 10,
    workers: int | None = 1,
    archive: Path | str | None = None,
    progress: Progress | None = None,
) -> RealTable:
    """Play what is not archived, and return the table, whose `summary()` compares policies over all settings."""
    known = [facts_of(setting, seed, runs) for setting in settings_named(list(settings))]
    facts = tuple(each for each in known if each.random_gap > 0)
    entries: list[Entry] = []
    skipped: dict[str, str] = {}
    for each in facts:
        able = [name for name in policies if each.n_arms <= MOST_ARMS.get(name, math.inf)]
        more, cannot = entries_of(settings_named([each.problem]), able, budgets, seed)
        entries, skipped = entries + more, skipped | cannot
    cells = play_all(entries, runs, math.inf, as_archive(archive), "local", workers, progress)
    return RealTable(facts, cells, budgets, runs, seed, skipped)


def results(
    archive: Path, seed: int, runs: int, without: Sequence[str], workers: int | None, progress: Progress | None
) -> Iterator[Row]:
    """Play everything, and yield the rows of results/short-runs.csv."""
    names = tuple(name for name in sorted(POLICIES) if name not in without)
    return table((), names, seed=seed, runs=runs, workers=workers, archive=archive, progress=progress).rows()


def rows(
    seed: int = 9500,
    runs: int = 10,
    workers: int = 1,
    settings: tuple[str, ...] = (),
    policies: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    archive: Path | str | None = None,
    quick: bool = False,
) -> Iterator[Row]:
    """Yield the ratios to the best policy over all settings, as the setting "all"; then each setting and budget.

    By default all settings and policies play; policies in `without` do not.
    """
    budgets: tuple[int, ...] = BUDGETS
    if quick:
        settings, policies, budgets = QUICK
    names = tuple(name for name in policies or sorted(POLICIES) if name not in without)
    played = table(settings, names, budgets, seed=seed, runs=runs, workers=workers, archive=archive)
    yield from played.rows()


if __name__ == "__main__":
    run(rows, __doc__)
