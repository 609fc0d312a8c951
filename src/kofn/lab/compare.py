"""Compare any policies on any problem: the same instances, the same seeds, one table."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.backends import Backend, Progress
from kofn.core import BadInput, KofnError, MissingExtra, whole
from kofn.core.checks import check_horizon
from kofn.lab.archive import RunArchive, as_archive
from kofn.lab.competitors import (
    Competitor,
    Entry,
    Instances,
    Policies,
    Trial,
    competitors_for,
    instance_of,
    title,
)
from kofn.lab.curves import Band
from kofn.lab.problems import AbstractProblem
from kofn.lab.problems.duration import warn_of_long_work
from kofn.lab.simulation import run_seeds
from kofn.lab.sweep import sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Comparison", "Standing", "compare"]

COLUMNS = {
    "policy": "{name}",
    "regret": "{regret:,.0f}",
    "95 % low": "{low:,.0f}",
    "high": "{high:,.0f}",
    "worst run": "{worst:,.0f}",
    "found best": "{found_best:.0%}",
    "final gap": "{final_gap:.2g}",
    "plan rows": "{plan_rows:,.0f}",
    "s per run": "{seconds:.3f}",
    "state": "{state_bytes:,} B",
}
"""The columns of the printed table, and the format of their cells."""


@dataclass(frozen=True, eq=False)
class Standing:
    """The runs of one policy. A `reference` observes more than one number per play: it is shown, but not ranked."""

    name: str
    policy: str
    reference: bool
    trials: tuple[Trial, ...]

    @cached_property
    def band(self) -> Band:
        """The mean regret curve with its confidence band."""
        return Band.over([trial.run.curve for trial in self.trials])

    @cached_property
    def finals(self) -> Any:
        """The final regret of each run."""
        return np.array([trial.run.regret for trial in self.trials])

    @cached_property
    def final_gap(self) -> float:
        """The expected regret per play of the final subset, in units of the reward: the mean over the runs."""
        return float(np.mean([trial.final_gap for trial in self.trials]))

    def to_dict(self) -> dict[str, Any]:
        """Return the row of the table as plain values."""
        return {
            "name": self.name,
            "policy": self.policy,
            "reference": self.reference,
            "regret": float(self.finals.mean()),
            "low": max(0.0, float(self.band.low[-1])),
            "high": float(self.band.high[-1]),
            "worst": float(self.finals.max()),
            "found_best": float(np.mean([trial.run.optimal for trial in self.trials])),
            "final_gap": self.final_gap,
            "plan_rows": float(np.mean([trial.run.plan_rows for trial in self.trials])),
            "seconds": float(np.mean([trial.seconds for trial in self.trials])),
            "state_bytes": max(trial.state_bytes for trial in self.trials),
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """The result of `compare`: `print` shows its table, `plot` draws it, and `rows` has it as plain values."""

    problem: str
    horizon: int
    runs: int
    seed: int
    standings: tuple[Standing, ...]
    skipped: dict[str, str]

    @property
    def ranked(self) -> list[Standing]:
        """The policies by mean regret, lowest first, followed by the references."""
        return sorted(self.standings, key=lambda each: (each.reference, float(each.finals.mean())))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per policy, in that order."""
        return [standing.to_dict() for standing in self.ranked]

    def __str__(self) -> str:
        head = f"{self.problem}: regret after {self.horizon:,} plays, {self.runs} runs\n"
        lines = [tuple(COLUMNS), *map(cells, self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
        body = "\n".join(
            "  ".join(
                cell.ljust(width) if column == 0 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )
        skipped = "".join(f"\nskipped: {name}: {why}" for name, why in self.skipped.items())
        return head + body + skipped

    def plot(self) -> Figure:
        """Draw the mean regret curves with their bands."""
        from kofn.lab.plots import draw_comparison

        return draw_comparison(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON."""
        return {
            "problem": self.problem,
            "horizon": self.horizon,
            "runs": self.runs,
            "seed": self.seed,
            "rows": self.rows,
            "curves": {standing.name: standing.band.to_dict() for standing in self.ranked},
            "skipped": self.skipped,
        }

    def to_csv(self) -> str:
        """Return the table as comma-separated values."""
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(self.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def to_frame(self) -> Any:
        """Return the table as a pandas DataFrame."""
        try:
            import pandas as pd  # type: ignore[import-untyped,unused-ignore]
        except ImportError as missing:
            raise MissingExtra("pandas", "pandas") from missing
        return pd.DataFrame(self.rows)


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Format a row for printing, in the order of COLUMNS."""
    name = row["name"] + (" (sees arms)" if row["reference"] else "")
    return tuple(text.format_map({**row, "name": name}) for text in COLUMNS.values())


def compare(
    policies: Policies,
    problem: Instances,
    horizon: int = 10**6,
    runs: int = 30,
    seed: int = 2021,
    *,
    backend: Backend = "local",
    workers: int | None = None,
    archive: RunArchive | Path | str | None = None,
    progress: Progress | None = None,
    skip: bool = False,
) -> Comparison:
    """Compare policies on the same runs.

    `policies` are names, or a mapping from a label to a name, to `(name, parameters)`, or to a function that makes a
    policy from a seed. `problem` is one problem, a `Setting`, or a function that makes a problem from a seed; the last
    two give a fresh problem in each run. A policy that cannot play the problem is an error; with `skip=True` it is left
    out, and `skipped` has the reason. With `backend="dask:ADDRESS"`, the workers of a cluster compute the runs. With an
    `archive`, a folder, each run is written when it is done and is not repeated.

    >>> from kofn import Bernoulli, Problem
    >>> problem = Problem(Bernoulli([0.9, 0.8, 0.3, 0.2]), "mean", k=2)
    >>> result = compare(["uniform", "dart"], problem, horizon=10_000, runs=2, workers=1)
    >>> [standing.name for standing in result.ranked]
    ['dart', 'uniform']
    """
    runs, horizon, seed = whole("runs", runs), check_horizon(horizon), whole("seed", seed, least=0)
    kept = as_archive(archive)
    entries, skipped = _entries(competitors_for(policies, problem, horizon, seed), archived=kept is not None, skip=skip)
    if not entries:
        raise BadInput(f"no policy can play this problem: {skipped or 'no policy was given'}")
    if isinstance(problem, AbstractProblem):
        plays = len(entries) * runs * horizon / (workers or os.cpu_count() or 1)
        warn_of_long_work("each worker", problem, plays, "use fewer runs or a shorter horizon")
    trials = sweep(entries, runs, backend=backend, workers=workers, archive=kept, progress=progress)
    standings = tuple(map(standing, entries, trials))
    if isinstance(problem, AbstractProblem) and problem.seconds_per_play:
        _ = problem.gap({trial.run.final for each in standings for trial in each.trials})  # warns of a better subset
    return Comparison(title(problem), horizon, runs, seed, standings, skipped)


def standing(entry: Entry, trials: Iterable[Trial]) -> Standing:
    """Return the standing of an entry after these trials."""
    return Standing(entry.competitor.label, entry.policy.name, "arms" in entry.policy.needs, tuple(trials))


def _entries(competitors: list[Competitor], *, archived: bool, skip: bool) -> tuple[list[Entry], dict[str, str]]:
    """Return the competitors that can play and, for the others, the reasons; all are checked on the first instance."""
    entries: list[Entry] = []
    skipped: dict[str, str] = {}
    first = None
    for competitor in competitors:
        if first is None:
            first = instance_of(competitor.problem, run_seeds(competitor.seed, 0).problem)
        try:
            entries.append(competitor.checked(first, archived=archived))
        except KofnError as why:
            if not skip:
                raise
            skipped[competitor.label] = str(why)
    return entries, skipped
