"""The paper's figures as data, and how they are run again.

Each run has a fresh random instance, the same for all policies: the paper's own instances cannot be recovered, so ours
are compared with its curves in shape, order and size. Regret is the expected one, whose mean is that of the paper's
realised regret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kofn.backends import Backend, Progress
from kofn.core import BadInput, whole
from kofn.curves import Band, Curve
from kofn.experiments.archive import Store, as_store
from kofn.experiments.contenders import Contender, contenders_for
from kofn.experiments.published import published
from kofn.experiments.settings import Setting
from kofn.experiments.sweep import sweep
from kofn.simulation import Run


@dataclass(frozen=True)
class Line:
    """A policy in a figure; `published` is its name in the published curves, if there. Not every one has schedules."""

    policy: str
    schedule: str | None = None
    published: str = ""

    @property
    def name(self) -> str:
        """What the legend says."""
        return f"{self.policy} ({self.schedule})" if self.schedule else self.policy

    @property
    def params(self) -> dict[str, Any]:
        """What the policy is told beyond the setting."""
        return {"schedule": self.schedule} if self.schedule else {}


SCHEDULES = ("figures", "printed")
CMAB_SM = tuple(Line("cmab-sm", schedule, "cmab-sm") for schedule in SCHEDULES)
UCB = tuple(Line("improved-ucb", schedule, "ucb") for schedule in SCHEDULES)
CSAR = (Line("csar", published="csar"),)
OURS = (Line("thompson"),)


@dataclass(frozen=True)
class Panel:
    """One figure of the paper: a family at one N for several K, with the policies that play it."""

    name: str
    says: str
    family: str
    n_arms: int
    ks: tuple[int, ...]
    runs: int
    ucb_ks: tuple[int, ...]

    def lines(self, k: int) -> tuple[Line, ...]:
        """The policies that play this K."""
        linear = self.family == "mean"  # what CSAR is for
        return CMAB_SM + UCB * (k in self.ucb_ks) + CSAR * linear + OURS


@dataclass(frozen=True)
class Dominance:
    """P(X >= x) of five arms, each dominating the one before."""

    name: str
    says: str
    arms: str
    symbol: str
    parameters: tuple[float, ...]


KS = {12: (2, 3, 5), 24: (2, 3, 5, 7, 11), 45: (2, 4, 8)}
FIGURES: dict[str, Panel | Dominance] = {
    figure.name: figure
    for figure in (
        Panel("cross-selling-12", "Cross-selling, N = 12", "cross-selling", 12, KS[12], 30, KS[12]),
        Panel("cross-selling-24", "Cross-selling, N = 24", "cross-selling", 24, KS[24], 30, KS[24]),
        Panel("max-12", "Maximum, N = 12", "max", 12, KS[12], 30, KS[12]),
        Panel("max-24", "Maximum, N = 24", "max", 24, KS[24], 30, KS[24]),
        Panel("mean-45", "Mean, N = 45", "mean", 45, KS[45], 25, (2, 4)),
        Dominance("dominance-bernoulli", "Bernoulli arms", "bernoulli", "p", (0.1, 0.3, 0.5, 0.7, 0.9)),
        Dominance("dominance-exponential", "Arctan-exponential arms", "arctan-exponential", "scale", (1, 3, 5, 7, 9)),
    )
}


def figures_named(name: str | None) -> list[Panel | Dominance]:
    """The figures whose name is, or begins with, the given one; all without one."""
    found = [figure for figure in FIGURES.values() if name in (None, figure.name, figure.name.rpartition("-")[0])]
    if not found:
        raise BadInput(f"the paper has no figure {name!r}; it has: {', '.join(FIGURES)}")
    return found


@dataclass(frozen=True, eq=False)
class Cell:
    """One policy at one K: the mean curve, and the published one where there is one."""

    k: int
    line: Line
    band: Band
    found: float
    exploration: float
    decisions: float
    printed: Curve | None

    @classmethod
    def of(cls, k: int, line: Line, runs: Sequence[Run], printed: Curve | None) -> Cell:
        """The summary of the runs."""
        return cls(
            k=k,
            line=line,
            band=Band.over([run.curve for run in runs]),
            found=float(np.mean([run.optimal for run in runs])),
            exploration=float(np.mean([run.exploration for run in runs])),
            decisions=float(np.mean([run.decisions for run in runs])),
            printed=printed,
        )

    @property
    def final(self) -> float:
        """The mean regret at the end."""
        return float(self.band.mean[-1])

    @property
    def ratio(self) -> float | None:
        """Ours over the published regret, both at the last play that was published."""
        if self.printed is None or self.printed.plays[-1] > self.band.plays[-1]:
            return None
        return float(np.interp(self.printed.plays[-1], self.band.plays, self.band.mean) / self.printed.final)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "k": self.k,
            "policy": self.line.policy,
            "schedule": self.line.schedule,
            "final": self.final,
            "final_low": float(self.band.low[-1]),
            "final_high": float(self.band.high[-1]),
            "published": None if self.printed is None else self.printed.final,
            "published_at": None if self.printed is None else float(self.printed.plays[-1]),
            "ratio": self.ratio,
            "found_best": self.found,
            "exploration": self.exploration,
            "decisions": self.decisions,
            "curve": self.band.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class PanelResult:
    """A figure, run again."""

    panel: Panel
    horizon: int
    runs: int
    seed: int
    cells: tuple[Cell, ...]

    def at(self, k: int) -> list[Cell]:
        """The cells of one K."""
        return [cell for cell in self.cells if cell.k == k]

    def only_published(self, k: int) -> dict[str, Curve]:
        """Published curves of algorithms that were not run here."""
        ours = {cell.line.published for cell in self.at(k)}
        return {
            algorithm: curve
            for (family, n_arms, curve_k, algorithm), curve in published().items()
            if (family, n_arms, curve_k) == (self.panel.family, self.panel.n_arms, k) and algorithm not in ours
        }

    def orders(self, k: int) -> tuple[list[str], list[str]]:
        """The algorithms by final regret, lowest first: by our runs (not `printed` ones), and as published."""
        both = [cell for cell in self.at(k) if cell.printed is not None and cell.line.schedule != "printed"]
        ours = {cell.line.published: cell.final for cell in both}
        theirs = {cell.line.published: cell.printed.final for cell in both if cell.printed}
        return sorted(ours, key=ours.__getitem__), sorted(theirs, key=theirs.__getitem__)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "figure": self.panel.name,
            "family": self.panel.family,
            "n_arms": self.panel.n_arms,
            "horizon": self.horizon,
            "runs": self.runs,
            "seed": self.seed,
            "cells": [cell.to_dict() for cell in self.cells],
            "only_published": {
                str(k): {name: curve.final for name, curve in self.only_published(k).items()} for k in self.panel.ks
            },
        }


def run_panel(
    panel: Panel,
    *,
    horizon: int = 10**6,
    runs: int | None = None,
    seed: int = 2021,
    backend: Backend = "local",
    workers: int | None = None,
    store: Store | Path | str | None = None,
    progress: Progress | None = None,
) -> PanelResult:
    """Run a figure again; `progress` is told of the runs done, of all runs of the figure."""
    runs = whole("runs", panel.runs if runs is None else runs)
    horizon, seed = whole("horizon", horizon, least=2), whole("seed", seed, least=0)
    kept = as_store(store)
    todo = [(k, line) for k in panel.ks for line in panel.lines(k)]
    entries = [_contender(panel, k, line, horizon, seed).tried(kept=kept is not None) for k, line in todo]
    trials = sweep(entries, runs, backend=backend, workers=workers, store=kept, progress=progress)
    cells = []
    for (k, line), each in zip(todo, trials, strict=True):
        printed = published().get((panel.family, panel.n_arms, k, line.published))
        cells.append(Cell.of(k, line, [trial.run for trial in each], printed))
    return PanelResult(panel, horizon, runs, seed, tuple(cells))


def _contender(panel: Panel, k: int, line: Line, horizon: int, seed: int) -> Contender:
    policies = {line.name: (line.policy, line.params)}
    (contender,) = contenders_for(policies, Setting(panel.family, panel.n_arms, k), horizon, seed)
    return contender
