"""The regret curves that the paper published."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

import numpy as np

from kofn.lab.curves import Curve


@cache
def published() -> dict[tuple[str, int, int, str], Curve]:
    """Return every published curve, by figure, N, K and algorithm.

    >>> published()["max", 12, 3, "cmab-sm"].final
    12909.17
    """
    points: dict[tuple[str, int, int, str], list[tuple[float, float]]] = {}
    with files("kofn.lab").joinpath("published_curves.csv").open() as lines:
        for row in csv.DictReader(lines):
            key = row["figure"], int(row["N"]), int(row["K"]), row["algorithm"]
            points.setdefault(key, []).append((float(row["t"]), float(row["W"])))
    return {key: Curve(*np.array(curve).T) for key, curve in points.items()}
