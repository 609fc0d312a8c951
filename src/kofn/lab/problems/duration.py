"""Warnings of work that takes long, with the estimated time."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from kofn.core import ProblemWarning

if TYPE_CHECKING:
    from kofn.lab.problems.base import AbstractProblem

PATIENCE = 60.0
"""Seconds of work from which a warning states the estimated time. A lower limit warns more often."""


def warn_of_long_work(what: str, problem: AbstractProblem, plays: float, way_out: str) -> None:
    """Warn if this number of plays of the problem, drawn one by one, takes more than a minute."""
    seconds = plays * problem.seconds_per_play
    if seconds > PATIENCE:
        warnings.warn(
            f"{what} takes up to {plays:,.0f} calls, about {duration(seconds)} at {duration(problem.seconds_per_play)} "
            f"per call: {way_out}",
            ProblemWarning,
            stacklevel=3,
        )


def duration(seconds: float) -> str:
    """Return a time with its unit, to two digits.

    >>> duration(0.0123), duration(7_200)
    ('12 ms', '2 hours')
    """
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "min"), (1, "s"), (1e-3, "ms")):
        if seconds >= 2 * size or (unit == "s" and seconds >= 1):
            return f"{float(f'{seconds / size:.2g}'):g} {unit}"
    return f"{float(f'{1e6 * seconds:.2g}'):g} µs"
