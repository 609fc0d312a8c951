"""Problems whose reward is no function of numbers that single arms pay: a law of their own, and what they share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadInput, Direction, FloatArray, IntArray
from kofn.problems.arm_order import one_order
from kofn.problems.assumptions import Check, Finding
from kofn.problems.expectation import Expectation
from kofn.problems.problem import Problem
from kofn.problems.sampling import Law


class Simulated(Problem):
    """A problem with its own law and its own expected values. Arms pay nothing by themselves, only together.

    A subclass has `_make_law`, `_make_expectation` and `_assumptions`. Where fewer than K arms make sense, an empty
    place comes to the law as arm N, which is to add nothing.
    """

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        direction: Direction = "maximize",
        best: Iterable[int] | None = None,
        fewer: bool = False,
        reward_range: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        self._sized(n_arms, k, direction, best, reward_range)
        self.absent = 0.0 if fewer else None

    @abstractmethod
    def _make_law(self) -> Law:
        """How plays are drawn."""

    @abstractmethod
    def _make_expectation(self) -> Expectation:
        """How values are worked out."""

    @abstractmethod
    def _assumptions(self) -> tuple[Finding, ...]:
        """What is known of the paper's assumptions, without trying."""

    @cached_property
    def _law(self) -> Law:
        return self._make_law()

    @cached_property
    def _expectation(self) -> Expectation:
        return self._make_expectation()

    @property
    def offers(self) -> frozenset[str]:
        """The best subset, and fewer arms where these make sense; never single arms."""
        return frozenset({"best"} if self.absent is None else {"best", "fewer"})

    def check(self) -> Check:
        """Which of the paper's assumptions hold; whether arms have one order in any company is tried out."""
        return Check((*self._assumptions(), one_order(self)))

    def _strength(self) -> FloatArray | None:
        return None

    def _arm_totals(self, rows: IntArray, count: NDArray[np.int64], rng: np.random.Generator) -> FloatArray:
        raise BadInput("in this problem arms pay nothing by themselves: leave out arms=True")
