"""Any policies on any problem, under one protocol: the same instances, the same seeds, one table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.backends import Backend, Progress
from kofn.core import BadInput, KofnError, MissingExtra, whole
from kofn.curves import Band
from kofn.experiments.archive import Store, as_store
from kofn.experiments.contenders import (
    Contender,
    Contenders,
    Entry,
    Instances,
    Trial,
    contenders_for,
    instance_of,
    title,
)
from kofn.experiments.sweep import sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Comparison", "Standing", "compare"]


@dataclass(frozen=True, eq=False)
class Standing:
    """One policy's runs. A `reference` sees more than one number per play: it is shown, and never ranked."""

    name: str
    policy: str
    reference: bool
    trials: tuple[Trial, ...]

    @cached_property
    def band(self) -> Band:
        """The mean curve and its band."""
        return Band.over([trial.run.curve for trial in self.trials])

    @cached_property
    def finals(self) -> Any:
        """The regret of each run at the end."""
        return np.array([trial.run.regret for trial in self.trials])

    def to_dict(self) -> dict[str, Any]:
        """The row of the table, as plain values."""
        return {
            "name": self.name,
            "policy": self.policy,
            "reference": self.reference,
            "regret": float(self.finals.mean()),
            "low": max(0.0, float(self.band.low[-1])),
            "high": float(self.band.high[-1]),
            "worst": float(self.finals.max()),
            "found_best": float(np.mean([trial.run.optimal for trial in self.trials])),
            "decisions": float(np.mean([trial.run.decisions for trial in self.trials])),
            "seconds": float(np.mean([trial.seconds for trial in self.trials])),
            "state_bytes": max(trial.state_bytes for trial in self.trials),
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `compare` found: prints itself, plots itself, and is rows of plain values to everything else."""

    problem: str
    horizon: int
    runs: int
    seed: int
    standings: tuple[Standing, ...]
    skipped: dict[str, str]

    @property
    def ranked(self) -> list[Standing]:
        """The policies by mean regret, lowest first; references after them."""
        return sorted(self.standings, key=lambda each: (each.reference, float(each.finals.mean())))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row per policy, in that order."""
        return [standing.to_dict() for standing in self.ranked]

    def __str__(self) -> str:
        head = f"{self.problem}: regret after {self.horizon:,} plays, {self.runs} runs\n"
        names = ("policy", "regret", "95 % low", "high", "worst run", "found best", "decisions", "s per run", "state")
        lines = [names, *map(cells, self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
        body = "\n".join(
            "  ".join(
                cell.ljust(width) if column == 0 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )
        left_out = "".join(f"\nleft out: {name}: {why}" for name, why in self.skipped.items())
        return head + body + left_out

    def plot(self) -> Figure:
        """The mean curves with their bands."""
        from kofn.plots import draw_comparison

        return draw_comparison(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
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
        """The table as comma-separated values."""
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(self.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame."""
        try:
            import pandas as pd  # type: ignore[import-untyped,unused-ignore]
        except ImportError as missing:
            raise MissingExtra("pandas", "pandas") from missing
        return pd.DataFrame(self.rows)


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A row as it is printed."""
    return (
        row["name"] + (" (sees arms)" if row["reference"] else ""),
        f"{row['regret']:,.0f}",
        f"{row['low']:,.0f}",
        f"{row['high']:,.0f}",
        f"{row['worst']:,.0f}",
        f"{row['found_best']:.0%}",
        f"{row['decisions']:,.0f}",
        f"{row['seconds']:.3f}",
        f"{row['state_bytes']:,} B",
    )


def compare(
    policies: Contenders,
    problem: Instances,
    horizon: int = 10**6,
    runs: int = 30,
    seed: int = 2021,
    *,
    backend: Backend = "local",
    workers: int | None = None,
    store: Store | Path | str | None = None,
    progress: Progress | None = None,
    skip: bool = False,
) -> Comparison:
    """Let every policy play the same runs.

    `policies` are names, or a mapping from a label to a name, to `(name, parameters)`, or to a function that makes a
    policy from a seed. `problem` is one problem, a `Setting`, or a function that makes a problem from a seed, for a
    fresh one in each run. A policy that cannot play the problem is an error, or with `skip=True` left out and said so.
    With `backend="dask:ADDRESS"` the runs are done by the workers of a cluster; with a `store`, a folder, they are
    kept as they come, and not done again.

    >>> from kofn import Bernoulli, Problem
    >>> problem = Problem(Bernoulli([0.9, 0.8, 0.3, 0.2]), "mean", k=2)
    >>> result = compare(["uniform", "dart"], problem, horizon=10_000, runs=2, workers=1)
    >>> [standing.name for standing in result.ranked]
    ['dart', 'uniform']
    """
    runs, horizon, seed = whole("runs", runs), whole("horizon", horizon), whole("seed", seed, least=0)
    kept = as_store(store)
    entries, skipped = _entries(contenders_for(policies, problem, horizon, seed), kept=kept is not None, skip=skip)
    if not entries:
        raise BadInput(f"no policy can play this problem: {skipped or 'none was named'}")
    trials = sweep(entries, runs, backend=backend, workers=workers, store=kept, progress=progress)
    standings = tuple(map(standing, entries, trials))
    return Comparison(title(problem), horizon, runs, seed, standings, skipped)


def standing(entry: Entry, trials: Iterable[Trial]) -> Standing:
    """How an entry stands after these trials."""
    return Standing(entry.contender.label, entry.policy.name, "arms" in entry.policy.needs, tuple(trials))


def _entries(contenders: list[Contender], *, kept: bool, skip: bool) -> tuple[list[Entry], dict[str, str]]:
    """Who can play, and why others cannot; all on the same first instance."""
    entries: list[Entry] = []
    skipped: dict[str, str] = {}
    first = None
    for contender in contenders:
        if first is None:
            first = instance_of(contender.problem, contender.seeds(0)[0])
        try:
            entries.append(contender.tried(first, kept=kept))
        except KofnError as why:
            if not skip:
                raise
            skipped[contender.label] = str(why)
    return entries, skipped
