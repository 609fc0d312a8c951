"""The sums of a group of plays: all that is known of their rewards."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kofn.core import BadReward, whole


@dataclass(frozen=True)
class Sums:
    """The plays of one group with known rewards: their number, the total and the total of squares of their rewards.

    >>> Sums.of([0, 1, 1]) + Sums(10, 2.0, 2.0)
    Sums(count=13, total=4.0, squares=4.0)
    """

    count: int
    total: float
    squares: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", whole("count", self.count, least=0))
        if not (math.isfinite(self.total) and math.isfinite(self.squares) and self.squares >= 0):
            raise BadReward(f"totals must be finite, and squares at least 0; got {self.total} and {self.squares}")
        if not self.count and (self.total or self.squares):
            raise BadReward(f"0 plays have no rewards; got a total of {self.total} and squares of {self.squares}")

    @classmethod
    def of(cls, rewards: Iterable[float]) -> Sums:
        """Return the sums of these rewards."""
        array = np.asarray(list(rewards), float)
        return cls(array.size, float(array.sum()), float((array * array).sum()))

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.count + other.count, self.total + other.total, self.squares + other.squares)

    @property
    def mean(self) -> float:
        """The average reward; there must be a play."""
        return self.total / self.count

    @property
    def deviations(self) -> float:
        """The sum of the squared deviations from the mean; there must be a play."""
        return max(self.squares - self.total * self.total / self.count, 0.0)
