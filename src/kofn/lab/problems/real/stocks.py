"""Stocks: K of 20 shares in equal parts for a random month, and a reward of return minus risk. Very noisy."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable

import numpy as np

from kofn.core import FloatArray, IntArray
from kofn.lab.problems.real.files import data_file
from kofn.lab.problems.real.table import TableProblem

MONTH = 21
"""Trading days of a month."""
AVERSION = 2.0
"""Utility is r - AVERSION / 2 * r^2 of the month's return r. A higher one prefers shares that move apart."""
RANGE = (-0.3, 0.3)
"""The utilities that become rewards of 0 and 1; those outside count as the nearer end."""


class Portfolio(TableProblem):
    """K assets in equal parts; a play draws a period and pays the utility of its return, scaled to [0, 1].

    `returns[i, t]` is the return of arm i in period t. An empty place is cash: its return is 0.
    """

    def __init__(self, arms: Iterable[str], returns: FloatArray, k: int) -> None:
        super().__init__(arms, k, returns.shape[1], binary=False)
        self._returns = np.vstack([returns, np.zeros_like(returns[:1])])

    def outcomes(self, subsets: IntArray) -> FloatArray:
        """Return the scaled utility of each row in each period."""
        gain = self._returns[subsets].mean(axis=1)
        low, high = RANGE
        utility = np.clip((gain - AVERSION / 2 * gain**2 - low) / (high - low), 0.0, 1.0)
        return np.asarray(utility)


def stocks(k: int) -> Portfolio:
    """Return the choice among the shares of skfolio's table of prices, 1990 to 2022."""
    with gzip.open(data_file("skfolio", "datasets", "data", "sp500_dataset.csv.gz"), "rt", newline="") as file:
        head, *rows = csv.reader(file)
    prices = np.array([row[1:] for row in rows], float)[::MONTH]
    return Portfolio(head[1:], (prices[1:] / prices[:-1] - 1).T, k)
