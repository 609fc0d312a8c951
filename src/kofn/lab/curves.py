"""Regret curves: breakpoints of one run, and the mean of many runs with a confidence band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from kofn.core import BadInput, FloatArray, whole

__all__ = ["Band", "Curve"]

MOST_POINTS = 2000
"""Limit on the points of a band."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Regret over plays, linear between breakpoints: `regret[i]` after `plays[i]` plays.

    The plays of a plan may come in any order, so the expected regret grows linearly within a plan: one breakpoint per
    plan is enough.

    >>> curve = Curve(np.array([0.0, 10.0, 20.0]), np.array([0.0, 5.0, 6.0]))
    >>> curve.final, curve.at(15)
    (6.0, array(5.5))
    """

    plays: FloatArray
    regret: FloatArray

    @property
    def final(self) -> float:
        """The regret at the end of the run."""
        return float(self.regret[-1])

    def at(self, plays: ArrayLike) -> FloatArray:
        """Return the regret after the given numbers of plays, each within the run."""
        try:
            t = np.asarray(plays, float)
        except (TypeError, ValueError):
            raise BadInput(f"plays must be numbers from 0 to {self.plays[-1]:,.0f}, not {plays!r}") from None
        if not (inside := (t >= 0) & (t <= self.plays[-1])).all():
            first = float(t[~inside].flat[0])
            raise BadInput(f"plays must be from 0 to {self.plays[-1]:,.0f}, the length of the run; got {first:,.15g}")
        return np.asarray(np.interp(t, self.plays, self.regret))


@dataclass(frozen=True, eq=False)
class Band:
    """The mean curve of several runs, and the confidence interval of that mean (Student's t) at `level`."""

    plays: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    level: float
    runs: int

    @classmethod
    def over(cls, curves: Sequence[Curve], *, level: float = 0.95, points: int = 201) -> Band:
        """Return the mean of the curves and its band, at `points` evenly spaced numbers of plays.

        >>> curves = [Curve(np.array([0.0, 100.0]), np.array([0.0, end])) for end in (8.0, 12.0)]
        >>> band = Band.over(curves, points=2)
        >>> band.mean
        array([ 0., 10.])
        """
        if not curves:
            raise BadInput("a band needs at least one curve; got none")
        if not (isinstance(level, float) and 0 < level < 1):
            raise BadInput(f"level must be a probability such as 0.95, not {level!r}")
        if (points := whole("points", points, least=2)) > MOST_POINTS:
            raise BadInput(f"points must be from 2 to {MOST_POINTS}, not {points}")
        grid = np.linspace(0, min(curve.plays[-1] for curve in curves), points)
        values = np.array([curve.at(grid) for curve in curves])
        mean = values.mean(axis=0)
        half = half_width(values, level)
        return cls(grid, mean, mean - half, mean + half, level, len(curves))

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, ready for JSON."""
        arrays = {name: getattr(self, name).tolist() for name in ("plays", "mean", "low", "high")}
        return {"runs": self.runs, "level": self.level, **arrays}


def half_width(values: FloatArray, level: float) -> FloatArray:
    """Return half the width of Student's interval for the mean over the runs, the rows; 0 for a single run."""
    runs = len(values)
    if runs == 1:
        return np.zeros(values.shape[1])
    error = values.std(axis=0, ddof=1) / np.sqrt(runs)
    return np.asarray(special.stdtrit(runs - 1, (1 + level) / 2) * error)
