"""The paper's figures as data, and how to reproduce them.

Each run has a fresh random instance, the same for all policies. The paper's own instances cannot be recovered, so the
results are compared with its curves in shape, order and size. Regret is expected regret, which has the same mean as
the paper's realised regret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from kofn.backends import Backend, Progress
from kofn.core import BadInput, whole
from kofn.core.checks import check_horizon
from kofn.lab.archive import RunArchive, as_archive
from kofn.lab.competitors import Competitor, Instances, competitors_for
from kofn.lab.curves import Band, Curve
from kofn.lab.published import published
from kofn.lab.readings import DEFAULT, ReadingInstances, reading_named
from kofn.lab.settings import Setting
from kofn.lab.simulation import Run
from kofn.lab.sweep import sweep


@dataclass(frozen=True)
class PanelPolicy:
    """One policy of a figure; `published` is its name in the published curves, if it has one."""

    policy: str
    schedule: str | None = None
    published: str = ""

    @property
    def name(self) -> str:
        """The label in the legend."""
        return f"{self.policy} ({self.schedule})" if self.schedule else self.policy

    @property
    def params(self) -> dict[str, Any]:
        """The policy's own parameters, in addition to the setting's."""
        return {"schedule": self.schedule} if self.schedule else {}


SCHEDULES = ("figures", "printed")
CMAB_SM = tuple(PanelPolicy("cmab-sm", schedule, "cmab-sm") for schedule in SCHEDULES)
UCB = tuple(PanelPolicy("improved-ucb", schedule, "ucb") for schedule in SCHEDULES)
CSAR = (PanelPolicy("csar", published="csar"),)
OURS = (PanelPolicy("thompson"),)


@dataclass(frozen=True)
class Panel:
    """One figure of the paper: a family at one N for several K, with the policies that play it."""

    name: str
    title: str
    family: str
    n_arms: int
    ks: tuple[int, ...]
    runs: int
    ucb_ks: tuple[int, ...]
    reading: str = DEFAULT

    def read_as(self, reading: str) -> Panel:
        """Return the panel with another reading of its arms; only cross-selling has several."""
        known = reading_named(reading)
        if reading == self.reading:
            return self
        if self.family != "cross-selling":
            raise BadInput(f"only the cross-selling figures have other readings; {self.name} has none")
        title = f"{self.title}, {known.description}"
        return replace(self, name=f"{self.name}-{reading}", title=title, reading=reading)

    def instances(self, k: int) -> Instances:
        """Return what makes the problem of each run."""
        if self.reading == DEFAULT:
            return Setting(self.family, self.n_arms, k)
        return ReadingInstances(self.reading, self.n_arms, k)

    def policies(self, k: int) -> tuple[PanelPolicy, ...]:
        """Return the policies that play this K."""
        linear = self.family == "mean"  # CSAR assumes a linear reward
        return CMAB_SM + UCB * (k in self.ucb_ks) + CSAR * linear + OURS


@dataclass(frozen=True)
class Dominance:
    """A figure of P(X >= x) for five arms, each of which dominates the one before."""

    name: str
    title: str
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


def figures_named(name: str | None, reading: str = DEFAULT) -> list[Panel | Dominance]:
    """Return the figures of that name or with that prefix; all figures for None.

    With another `reading` of cross-selling, None means the cross-selling figures, and other figures are refused.
    """
    if reading != DEFAULT:
        panels = (figure for figure in figures_named(name or "cross-selling") if isinstance(figure, Panel))
        if read := [panel.read_as(reading) for panel in panels]:
            return list(read)
        raise BadInput(f"only the cross-selling figures have other readings; {name!r} has none")
    found = [figure for figure in FIGURES.values() if name in (None, figure.name, figure.name.rpartition("-")[0])]
    if not found:
        raise BadInput(f"the paper has no figure {name!r}; it has: {', '.join(FIGURES)}")
    return found


@dataclass(frozen=True, eq=False)
class Cell:
    """One policy at one K: its mean curve and, if the paper has one, the published curve."""

    k: int
    policy: PanelPolicy
    band: Band
    found: float
    exploration: float
    plan_rows: float
    printed: Curve | None

    @classmethod
    def of(cls, k: int, policy: PanelPolicy, runs: Sequence[Run], printed: Curve | None) -> Cell:
        """Summarise the runs."""
        return cls(
            k=k,
            policy=policy,
            band=Band.over([run.curve for run in runs]),
            found=float(np.mean([run.optimal for run in runs])),
            exploration=float(np.mean([run.exploration for run in runs])),
            plan_rows=float(np.mean([run.plan_rows for run in runs])),
            printed=printed,
        )

    @property
    def final(self) -> float:
        """The mean regret at the horizon."""
        return float(self.band.mean[-1])

    @property
    def compared_at(self) -> float | None:
        """The play at which the curves are compared: the end of the shorter one.

        None if there is no published curve, or if the runs end before its first point after 0.
        """
        if self.printed is None or self.band.plays[-1] < self.printed.plays[1]:
            return None
        return float(min(self.printed.plays[-1], self.band.plays[-1]))

    @property
    def ours(self) -> float | None:
        """The mean regret of our runs at that play."""
        at = self.compared_at
        return None if at is None else float(np.interp(at, self.band.plays, self.band.mean))

    @property
    def theirs(self) -> float | None:
        """The published regret at that play, interpolated between the published points."""
        at = self.compared_at
        return None if self.printed is None or at is None else float(self.printed.at(at))

    @property
    def ratio(self) -> float | None:
        """Our regret divided by the published one, both at that play; None if they are not compared."""
        return self.ours / self.theirs if self.ours is not None and self.theirs else None

    @property
    def ratio_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of that ratio, from the interval of our mean."""
        at, theirs = self.compared_at, self.theirs
        if at is None or not theirs:
            return None
        low, high = (float(np.interp(at, self.band.plays, side)) / theirs for side in (self.band.low, self.band.high))
        return low, high

    @property
    def deviations(self) -> float | None:
        """The published regret minus ours, in standard deviations between our runs.

        If the published curve is of one instance, it is as far from our mean as one of our instances may be.
        """
        interval, ours, theirs = self.ratio_interval, self.ours, self.theirs
        runs = self.band.runs
        if interval is None or ours is None or theirs is None or runs < 2:
            return None
        half = (interval[1] - interval[0]) / 2 * theirs
        deviation = half * runs**0.5 / float(special.stdtrit(runs - 1, (1 + self.band.level) / 2))
        return (theirs - ours) / deviation if deviation else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        low, high = self.ratio_interval or (None, None)
        return {
            "k": self.k,
            "policy": self.policy.policy,
            "schedule": self.policy.schedule,
            "final": self.final,
            "final_low": float(self.band.low[-1]),
            "final_high": float(self.band.high[-1]),
            "compared_at": self.compared_at,
            "ours": self.ours,
            "published": self.theirs,
            "ratio": self.ratio,
            "ratio_low": low,
            "ratio_high": high,
            "deviations": self.deviations,
            "found_best": self.found,
            "exploration": self.exploration,
            "plan_rows": self.plan_rows,
            "curve": self.band.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class PanelResult:
    """A reproduced figure."""

    panel: Panel
    horizon: int
    runs: int
    seed: int
    cells: tuple[Cell, ...]

    def at(self, k: int) -> list[Cell]:
        """Return the cells of one K."""
        return [cell for cell in self.cells if cell.k == k]

    @property
    def compared_at(self) -> float | None:
        """The play at which cells are compared with published curves; None if none is compared."""
        return next((cell.compared_at for cell in self.cells if cell.compared_at is not None), None)

    def only_published(self, k: int) -> dict[str, Curve]:
        """Return the published curves of algorithms that were not run here."""
        ours = {cell.policy.published for cell in self.at(k)}
        return {
            algorithm: curve
            for (family, n_arms, curve_k, algorithm), curve in published().items()
            if (family, n_arms, curve_k) == (self.panel.family, self.panel.n_arms, k) and algorithm not in ours
        }

    def orders(self, k: int) -> tuple[list[str], list[str]]:
        """Return the algorithms by regret, lowest first: in our runs (without `printed` schedules), and as published.

        Both orders are taken at the play at which the curves are compared.
        """
        both = [cell for cell in self.at(k) if cell.policy.schedule != "printed"]
        ours = {cell.policy.published: cell.ours for cell in both if cell.ours is not None}
        theirs = {cell.policy.published: cell.theirs for cell in both if cell.theirs is not None}
        return sorted(ours, key=ours.__getitem__), sorted(theirs, key=theirs.__getitem__)

    def published_values(self, k: int) -> dict[str, float]:
        """Return the published regret of algorithms that were not run here, at the horizon or at the curve's end."""
        curves = {name: each for name, each in self.only_published(k).items() if self.horizon >= each.plays[1]}
        return {name: float(curve.at(min(self.horizon, curve.plays[-1]))) for name, curve in curves.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "figure": self.panel.name,
            "family": self.panel.family,
            "reading": self.panel.reading if self.panel.family == "cross-selling" else None,
            "n_arms": self.panel.n_arms,
            "horizon": self.horizon,
            "runs": self.runs,
            "seed": self.seed,
            "cells": [cell.to_dict() for cell in self.cells],
            "compared_at": self.compared_at,
            "only_published": {str(k): self.published_values(k) for k in self.panel.ks},
        }


def run_panel(
    panel: Panel,
    *,
    horizon: int = 10**6,
    runs: int | None = None,
    seed: int = 2021,
    backend: Backend = "local",
    workers: int | None = None,
    archive: RunArchive | Path | str | None = None,
    progress: Progress | None = None,
) -> PanelResult:
    """Reproduce a figure. `progress` receives the number of finished runs and of all runs of the figure."""
    runs = whole("runs", panel.runs if runs is None else runs)
    horizon, seed = check_horizon(horizon, least=2), whole("seed", seed, least=0)
    kept = as_archive(archive)
    todo = [(k, policy) for k in panel.ks for policy in panel.policies(k)]
    entries = [_competitor(panel, *each, horizon, seed).checked(archived=kept is not None) for each in todo]
    trials = sweep(entries, runs, backend=backend, workers=workers, archive=kept, progress=progress)
    cells = []
    for (k, policy), each in zip(todo, trials, strict=True):
        printed = published().get((panel.family, panel.n_arms, k, policy.published))
        cells.append(Cell.of(k, policy, [trial.run for trial in each], printed))
    return PanelResult(panel, horizon, runs, seed, tuple(cells))


def _competitor(panel: Panel, k: int, policy: PanelPolicy, horizon: int, seed: int) -> Competitor:
    policies = {policy.name: (policy.policy, policy.params)}
    (competitor,) = competitors_for(policies, panel.instances(k), horizon, seed)
    return competitor
