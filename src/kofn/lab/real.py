"""The benchmark on real data: regret and the gap of the pick of every policy, at several budgets.

Every policy plays every problem with every budget as its horizon. Running, summarising and drawing are apart:
`run_real` returns a `RealTable`, which only has numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from kofn.backends import Backend, Progress, check_backend, open_backend
from kofn.core import BadInput, FloatArray, whole
from kofn.core.checks import check_horizon
from kofn.lab.archive import RunArchive, as_archive
from kofn.lab.baselines import BASELINES, baseline
from kofn.lab.competitors import Competitor, Entry, Policies, Trial, competitors_for, title
from kofn.lab.curves import Curve, half_width
from kofn.lab.problems import AbstractProblem
from kofn.lab.problems.real import load
from kofn.lab.settings import REAL_SETTINGS, RealSetting, Setting
from kofn.lab.suite import FLOOR_AND_CEILING, entry_or_reason
from kofn.lab.sweep import archived, play_missing
from kofn.policies.registry import POLICIES

__all__ = ["RealCell", "RealTable", "run_real"]

BUDGETS = (100, 300, 1_000, 3_000, 10_000)
"""Plays at which policies are compared."""
SECONDS = 10.0
"""Most seconds for the runs of one policy at one budget of one problem, estimated from its first run."""
LEAST_RUNS = 2
"""Runs that also a slow policy makes."""
FLOOR = 0.01
"""Gaps of picks below this fraction of the gap of random subsets count as equal to it in ratios: they are near 0."""
RANDOM_SUBSETS = 2_000
CHOOSE: dict[str, tuple[str, dict[str, str]]] = {"choose": ("thompson", {"goal": "pick"})}
"""The policy with which `kofn.choose` searches if scores are noisy, by its name in the table. There, all plays are for
the search; `choose` keeps a tenth of its calls to measure the pick."""
Measure: TypeAlias = Literal["regret", "gap"]
MEASURES: tuple[Measure, ...] = ("regret", "gap")


@dataclass(frozen=True)
class RealCell:
    """One policy on one problem at one budget: the regret of each run, and what a play of each run's pick loses.

    `kind` is "policy", "baseline" (a search that people use today) or "reference" (not ranked: `uniform`, `oracle`, and
    policies that see the reward of each arm). `seconds` is the mean time of a run. `regret_error` and `gap_error` are
    half the widths of 95 % intervals of the means, `regret` and `gap`.
    """

    problem: str
    policy: str
    kind: str
    budget: int
    regrets: tuple[float, ...]
    gaps: tuple[float, ...]
    seconds: float

    @property
    def runs(self) -> int:
        """The number of runs."""
        return len(self.regrets)

    @property
    def regret(self) -> float:
        """The mean regret."""
        return float(np.mean(self.regrets))

    @property
    def regret_error(self) -> float:
        """Half the width of the 95 % interval of the mean regret (Student's t)."""
        return _half_width(self.regrets)

    @property
    def gap(self) -> float:
        """The mean gap of the pick."""
        return float(np.mean(self.gaps))

    @property
    def gap_error(self) -> float:
        """Half the width of the 95 % interval of the mean gap."""
        return _half_width(self.gaps)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON, with means and errors."""
        means = {name: getattr(self, name) for name in ("runs", "regret", "regret_error", "gap", "gap_error")}
        return {**asdict(self), **means}


def _half_width(values: tuple[float, ...]) -> float:
    return float(half_width(np.array(values)[:, None], 0.95)[0])


class Ratio(NamedTuple):
    """A mean relative to the best policy's mean, which is known up to chance: the ratio is from `low` to `high`.

    `high` divides by the lowest of all means, which is too low by chance, the more so the more policies there are. For
    `low`, the best policy is chosen by the even runs and measured by the odd ones, and vice versa: that mean is too
    high, because half of the runs may choose a policy that is not the best. With more runs, both come closer.
    """

    low: float
    high: float
    problems: int


@dataclass(frozen=True)
class Facts:
    """What is known about a problem without plays: the optimum and how it was found, random subsets, and subsets that
    people would choose by a rule, with their gaps."""

    problem: str
    n_arms: int
    k: int
    optimum: float
    best: tuple[int, ...]
    effort: str
    random_gap: float
    rules: dict[str, float]


@dataclass(frozen=True, eq=False)
class RealTable:
    """The result of `run_real`."""

    facts: tuple[Facts, ...]
    cells: tuple[RealCell, ...]
    budgets: tuple[int, ...]
    runs: int
    seed: int
    skipped: dict[str, str]

    @cached_property
    def _at(self) -> dict[tuple[str, str, int], RealCell]:
        return {(cell.problem, cell.policy, cell.budget): cell for cell in self.cells}

    def cell(self, problem: str, policy: str, budget: int) -> RealCell | None:
        """Return a cell; None if the policy did not play there."""
        return self._at.get((problem, policy, budget))

    def policies(self, problem: str) -> list[str]:
        """Return the policies that played a problem, the lowest regret at the largest budget first."""
        here = [cell for cell in self.cells if cell.problem == problem and cell.budget == max(self.budgets)]
        return [cell.policy for cell in sorted(here, key=lambda cell: cell.regret)]

    def ratios(self, what: Measure, budget: int) -> dict[str, Ratio]:
        """Return, for each ranked policy, its regret or gap relative to the best policy on the problem: the
        geometric mean over the problems that it played."""
        logs: dict[str, list[tuple[float, float]]] = {}
        for fact in self.facts:
            least = FLOOR * fact.random_gap * (budget if what == "regret" else 1)
            here = {
                cell.policy: np.array(cell.regrets if what == "regret" else cell.gaps)
                for cell in self.cells
                if cell.problem == fact.problem and cell.budget == budget and cell.kind != "reference"
            }
            if not here:  # only references played
                continue
            bests = [math.log(max(least, best)) for best in _bests(list(here.values()))]
            for name, values in here.items():
                mean = math.log(max(least, float(values.mean())))
                logs.setdefault(name, []).append((mean - bests[1], mean - bests[0]))
        means = {name: np.exp(np.mean(each, axis=0)).tolist() for name, each in logs.items()}
        return {name: Ratio(low, high, len(logs[name])) for name, (low, high) in means.items()}

    def summary(self) -> list[dict[str, Any]]:
        """Return a row per ranked policy: its ratios of regret and of the gap of the pick, [low, high] by budget."""
        ratios = {what: [self.ratios(what, budget) for budget in self.budgets] for what in MEASURES}
        rows: list[dict[str, Any]] = []
        for name in sorted({name for each in ratios["regret"] for name in each}):
            row: dict[str, Any] = {"policy": name}
            row["problems"] = max(each[name].problems for each in ratios["regret"] if name in each)
            for what, by_budget in ratios.items():
                row[what] = [[each[name].low, each[name].high] if name in each else None for each in by_budget]
            rows.append(row)
        return sorted(
            rows, key=lambda row: (-row["problems"], math.prod(each[1] if each else 1.0 for each in row["regret"]))
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield plain rows for a CSV: the ratios over all problems, as the setting "all", then cells, then rules."""
        for each in self.summary():
            for index, budget in enumerate(self.budgets):
                limits = {
                    f"{what}_{end}": each[what][index][place]
                    for what in MEASURES
                    if each[what][index]
                    for place, end in enumerate(("low", "high"))
                }
                yield (
                    self._row("all", each["policy"], None, budget, self.runs) | {"problems": each["problems"]} | limits
                )
        for cell in self.cells:
            means = {key: getattr(cell, key) for key in ("regret", "regret_error", "gap", "gap_error")}
            yield self._row(cell.problem, cell.policy, cell.kind, cell.budget, cell.runs) | means
        for fact in self.facts:
            for rule, gap in {"random subset": fact.random_gap, **fact.rules}.items():
                yield self._row(fact.problem, rule, "rule", None, None) | {"gap": gap}

    @staticmethod
    def _row(setting: str, policy: str, kind: str | None, plays: int | None, runs: int | None) -> dict[str, Any]:
        empty = dict.fromkeys(("regret", "regret_error", "gap", "gap_error"))
        return {"setting": setting, "policy": policy, "kind": kind, "plays": plays, "runs": runs, **empty}

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON."""
        return {
            "runs": self.runs,
            "seed": self.seed,
            "budgets": list(self.budgets),
            "problems": [asdict(fact) for fact in self.facts],
            "cells": [cell.to_dict() for cell in self.cells],
            "summary": self.summary(),
            "skipped": self.skipped,
        }


def run_real(
    policies: Policies | None = None,
    problems: Sequence[str] | None = None,
    *,
    budgets: Sequence[int] = BUDGETS,
    runs: int = 10,
    seed: int = 2021,
    seconds: float = SECONDS,
    archive: RunArchive | Path | str | None = None,
    backend: Backend = "local",
    workers: int | None = None,
    progress: Progress | None = None,
) -> RealTable:
    """Let policies play problems on real data.

    `policies` are names or a mapping, as for `compare`; names of baselines are accepted too, and "choose", which is
    thompson as `kofn.choose` uses it. Default: all policies and baselines that can play. `problems` are names of
    `kofn.lab.problems.real.REAL`; default: all whose data is installed. A policy that would take more than `seconds`
    for its runs at one budget of one problem makes fewer, at least two.
    With an `archive`, a folder, each run is written when it is done and is not repeated.

    >>> table = run_real(["thompson", "uniform"], ["influence-karate"], budgets=[100, 300], runs=2, workers=1)
    >>> [(row["policy"], row["problems"]) for row in table.summary()]
    [('thompson', 1)]
    """
    settings, missing = _settings(problems)
    budgets = tuple(sorted({check_horizon(each) for each in budgets}))
    if not budgets:
        raise BadInput(f"budgets must have at least one number of plays, such as {list(BUDGETS)}")
    runs, seed = whole("runs", runs), whole("seed", seed, least=0)
    check_backend(backend, workers)
    kept = as_archive(archive)
    entries, skipped = entries_of(settings, policies, budgets, seed)
    skipped = missing | skipped
    if not entries:
        raise BadInput(f"no policy can play these problems: {skipped or 'none was given'}")
    with open_backend(backend, workers) as (ready, processes):
        cells = play_all(entries, runs, seconds, kept, ready, processes, progress)
    return RealTable(tuple(map(facts, settings)), cells, budgets, runs, seed, skipped)


def rows(
    archive: Path,
    *,
    seed: int,
    runs: int,
    seconds: float,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Iterator[dict[str, Any]]:
    """Play all problems, and yield the rows of results/real-data.csv: of all policies, then of three with more runs."""
    kept: dict[str, Any] = {"seed": seed, "archive": archive, "workers": workers, "progress": progress}
    yield from run_real(runs=runs, seconds=seconds, **kept).rows()
    for row in run_real([*CHOOSE, "thompson", "linear-thompson"], runs=2 * runs, seconds=math.inf, **kept).rows():
        if row["setting"] == "all":
            yield row | {"setting": "all, three policies"}


def _settings(problems: Sequence[str] | None) -> tuple[list[RealSetting], dict[str, str]]:
    """Return the problems to play and, for those whose data is not installed, the reasons; a named one must be."""
    if problems:
        named = [RealSetting.named(name) for name in dict.fromkeys(problems)]
        for setting in named:
            if why := setting.described.missing():
                raise why
        return named, {}
    missing = {setting.which: setting.described.missing() for setting in REAL_SETTINGS}
    found = [setting for setting in REAL_SETTINGS if missing[setting.which] is None]
    return found, {which: str(why) for which, why in missing.items() if why is not None}


def entries_of(
    settings: Iterable[Setting], policies: Policies | None, budgets: Sequence[int], seed: int
) -> tuple[list[Entry], dict[str, str]]:
    """Return what is to be played in settings of any kind, and who cannot play and why."""
    entries, skipped = [], {}
    for setting, budget in product(settings, budgets):
        for competitor in _competitors(policies, setting, budget, seed):
            entry = entry_or_reason(competitor)
            if isinstance(entry, str):
                skipped[f"{competitor.label} on {_name(competitor)}"] = entry
            else:
                entries.append(entry)
    return entries, skipped


def _name(competitor: Competitor) -> str:
    """Return the name of a competitor's problem in the table."""
    return title(competitor.problem).removeprefix("real/")


def _kind(entry: Entry) -> str:
    if entry.competitor.label in BASELINES:
        return "baseline"
    return "reference" if "arms" in entry.policy.needs or entry.policy.name in FLOOR_AND_CEILING else "policy"


def _competitors(policies: Policies | None, setting: Setting, budget: int, seed: int) -> list[Competitor]:
    if isinstance(policies, str | Mapping):
        return competitors_for(policies, setting, budget, seed)
    names = [*sorted(POLICIES), *CHOOSE, *BASELINES] if policies is None else list(policies)
    ours = {name: CHOOSE.get(name, name) for name in names if name not in BASELINES}
    searches = [
        Competitor(name, partial(baseline, BASELINES[name]), setting, budget, seed)
        for name in names
        if name in BASELINES
    ]
    return competitors_for(ours, setting, budget, seed) + searches


def play_all(
    entries: list[Entry],
    runs: int,
    seconds: float,
    archive: RunArchive | None,
    backend: Backend,
    workers: int | None,
    progress: Progress | None,
) -> tuple[RealCell, ...]:
    """Play run 0 of all entries, then as many runs of each as its time allows; return a cell for each entry."""
    found = [archived(archive, entry, runs) for entry in entries]

    def play(limits: Sequence[int], progress: Progress | None) -> None:
        for _ in play_missing(entries, limits, found, backend, workers, archive, progress, measure):
            pass

    play([1] * len(entries), progress and (lambda done, of: progress(done, of * runs)))
    limits = [max(min(LEAST_RUNS, runs), int(min(runs, seconds / max(each[0].seconds, 1e-9)))) for each in found]
    play(limits, progress)
    trials = ([each[run] for run in range(limit)] for each, limit in zip(found, limits, strict=True))
    return tuple(map(_cell, entries, trials))


def measure(competitor: Competitor, run: int) -> Trial:
    """Play one run and return it with the ends of its curve only; workers call this."""
    trial = competitor.play(run)
    ends = Curve(np.array([0.0, competitor.horizon]), np.array([0.0, trial.run.regret]))
    return replace(trial, run=replace(trial.run, curve=ends))


def _cell(entry: Entry, trials: list[Trial]) -> RealCell:
    of = entry.competitor
    return RealCell(
        problem=_name(of),
        policy=of.label,
        kind=_kind(entry),
        budget=of.horizon,
        regrets=tuple(trial.run.regret for trial in trials),
        gaps=tuple(trial.final_gap for trial in trials),
        seconds=float(np.mean([trial.seconds for trial in trials])),
    )


def _bests(runs: list[FloatArray]) -> tuple[float, float]:
    """Return the mean of the best row, too low and too high: see `Ratio`."""
    lowest = min(float(each.mean()) for each in runs)
    if min(map(len, runs)) < 2:
        return lowest, lowest
    halves = [[float(each[half::2].mean()) for each in runs] for half in (0, 1)]
    return lowest, sum(halves[1 - half][int(np.argmin(halves[half]))] for half in (0, 1)) / 2


def facts(setting: RealSetting) -> Facts:
    """Return what is known about a problem without plays."""
    problem = load(setting.which)
    rng = np.random.default_rng(0)
    random = np.array([rng.choice(problem.n_arms, problem.k, replace=False) for _ in range(RANDOM_SUBSETS)])
    rules = getattr(problem, "references", {})
    return Facts(
        setting.which,
        problem.n_arms,
        problem.k,
        problem.optimum,
        problem.best,
        _effort(problem),
        float(problem.gap(random).mean()),
        {name: float(problem.gap([subset])[0]) for name, subset in rules.items()},
    )


def _effort(problem: AbstractProblem) -> str:
    searched = getattr(problem, "searched", None)
    return searched.effort if searched is not None else "the K arms with the highest rates, which is exact"
