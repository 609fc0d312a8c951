"""A problem with its arms in a random order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kofn.core import FloatArray, IntArray, Subset
from kofn.lab.problems.base import AbstractProblem
from kofn.lab.problems.rows import Subsets
from kofn.lab.problems.sampling import Sums


class Shuffled(AbstractProblem):
    """The same problem, whose arm i is arm `order[i]` of the other.

    Computed values are kept by the other problem, so all orders share them.
    """

    def __init__(self, problem: AbstractProblem, rng: np.random.Generator) -> None:
        super().__init__(
            problem.n_arms,
            problem.k,
            direction=problem.direction,
            fewer=problem.fewer,
            reward_range=problem.reward_range,
        )
        self.problem, self.order = problem, rng.permutation(problem.n_arms)
        self._place_of = np.append(self.order, problem.n_arms)  # an empty place stays one

    @property
    def offers(self) -> frozenset[str]:
        """What the other problem offers."""
        return self.problem.offers

    def make_sampler(self) -> _Shuffled:
        """Return the sampler of the other problem, for its own arms."""
        return _Shuffled(self.problem, self._place_of)

    def make_expectation(self) -> _Shuffled:
        """Return the expectation of the other problem, for its own arms."""
        return _Shuffled(self.problem, self._place_of)

    def gap(self, subsets: Subsets) -> FloatArray:
        """Return the gaps that the other problem gives, unless this one has constraints."""
        if self.constraints is not None:
            return super().gap(subsets)
        rows = self._place_of[self._rows(subsets)]
        return self.problem.gap(np.where(rows == self.n_arms, -1, rows))

    def _find_best(self) -> Subset:
        return tuple(sorted(np.argsort(self.order)[list(self.problem.best)].tolist()))

    def _arm_totals(self, rows: IntArray, count: NDArray[np.int64], rng: np.random.Generator) -> FloatArray:
        return self.problem._arm_totals(self._place_of[rows], count, rng)

    def _summary(self) -> str:
        return f"{self.problem!r} in a random order"


class _Shuffled:
    """Plays and values subsets of another order."""

    def __init__(self, problem: AbstractProblem, order: IntArray) -> None:
        self._problem, self._order = problem, order

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        return self._problem._sampler.play(self._order[subsets], times, rng)

    def value(self, subsets: IntArray) -> FloatArray:
        return self._problem._expectation.value(self._order[subsets])
