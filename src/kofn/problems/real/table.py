"""Problems on a finite table of contexts: visitors, queries, days, splits or samples, one of which each play draws."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kofn.core import FloatArray, IntArray, Subset
from kofn.problems.base import AbstractProblem
from kofn.problems.expectation import in_blocks
from kofn.problems.real.search import Search, best_singles, greedy, search
from kofn.problems.rows import Subsets
from kofn.problems.sampling import Sums, sum_drawn_plays

MOST_VALUES = 2**18
"""Subsets whose value is kept, so that it is computed once. A value takes about 150 bytes."""
MOST_OUTCOMES = 2**23
"""Outcomes that are kept beside, in numbers of 4 bytes, for rewards that are not 0 or 1."""
PLAYS = 2**16
"""Plays that are drawn at a time. More plays take more memory."""


class TableProblem(AbstractProblem):
    """A problem whose plays draw a context from a finite table of real data, so that values are exact means.

    A subclass computes `outcomes`: the reward of each subset in each context. `binary` says that these are 0 or 1.
    `arms` names the arms. `domain` has subsets that people would choose by the rules of their field.
    """

    def __init__(
        self,
        arms: Iterable[str],
        k: int,
        contexts: int,
        *,
        binary: bool,
        domain: Mapping[str, Subset] | None = None,
    ) -> None:
        self.arms: tuple[str, ...] = tuple(arms)
        self.contexts, self.binary, self._domain = contexts, binary, domain or {}
        self.width = contexts * k  # numbers in memory while a subset is valued, which limits how many are at a time
        super().__init__(len(self.arms), k, fewer=True)

    @abstractmethod
    def outcomes(self, subsets: IntArray) -> NDArray[np.generic]:
        """Return the reward of each row in each context, in [0, 1]; arm N is an empty place."""

    def means(self, subsets: IntArray) -> FloatArray:
        """Return the mean outcome of each row."""
        return np.asarray(self.outcomes(subsets).mean(axis=1, dtype=float))

    def make_sampler(self) -> Table:
        """Return the table."""
        return self._table

    def make_expectation(self) -> Table:
        """Return the table."""
        return self._table

    @cached_property
    def _table(self) -> Table:
        return Table(self)

    @cached_property
    def searched(self) -> Search:
        """The best subset that was found, and what was done to find it."""
        return self._find()

    @cached_property
    def references(self) -> dict[str, Subset]:
        """Subsets that people would choose without plays: by a rule of the field, or greedily if they knew all values."""
        value = self._table.value
        return {
            **self._domain,
            "best single arms (knows the data)": best_singles(value, self.n_arms, self.k),
            "greedy (knows the data)": greedy(value, self.n_arms, self.k),
        }

    def gap(self, subsets: Subsets) -> FloatArray:
        """Return how much worse than the optimum the expected reward of each row is; warn of a better subset."""
        values = self.value(subsets)
        if values.size and values.max() > self.optimum + self._slack and not self.searched.proven:
            better = tuple(sorted(self._rows(subsets)[int(np.argmax(values))].tolist()))
            warnings.warn(f"{better} is better than the best known subset, {self.best}: report it", stacklevel=2)
        return np.maximum(self.optimum - values, 0.0)

    def _find(self) -> Search:
        return search(self._table.value, self.n_arms, self.k)

    def _find_best(self) -> Subset:
        return self.searched.best


class Table:
    """Draws plays and computes values from the outcomes of subsets, which are computed once and kept."""

    def __init__(self, problem: TableProblem) -> None:
        self._problem = problem
        self._values: dict[bytes, float] = {}
        self._outcomes: dict[bytes, FloatArray] = {}

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the mean outcome of each row."""
        keys = _keys(subsets)
        known = self._values
        new = [row for row, key in enumerate(keys) if key not in known]
        if not new:
            return np.array([known[key] for key in keys])
        rows = np.array(new)
        means = in_blocks(self._problem.means, subsets[rows], self._problem.width)
        if len(new) == len(keys):
            values = means
        else:
            values = np.array([known.get(key, 0.0) for key in keys])
            values[rows] = means
        if len(known) + len(new) > MOST_VALUES:
            known.clear()
        known.update(zip((keys[row] for row in new), means.tolist(), strict=True))
        return np.asarray(values, float)

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """Draw a context for each play; if rewards are 0 or 1, draw the number of ones."""
        if self._problem.binary:
            total = rng.binomial(times, np.clip(self.value(subsets), 0.0, 1.0)).astype(float)
            return total, total
        outcomes = self._rows(subsets)

        def draw(rows: IntArray) -> FloatArray:
            return outcomes[rows[:, 0], rng.integers(self._problem.contexts, size=len(rows))].astype(float)

        return sum_drawn_plays(draw, np.arange(len(subsets))[:, None], times, PLAYS)

    def _rows(self, subsets: IntArray) -> FloatArray:
        """Return the outcomes of each row, and keep their means."""
        keys = _keys(subsets)
        new = [row for row, key in enumerate(keys) if key not in self._outcomes]
        if new:
            computed = in_blocks(
                lambda each: self._problem.outcomes(each).astype(np.float32), subsets[new], self._problem.width
            )
            if (len(self._outcomes) + len(new)) * self._problem.contexts > MOST_OUTCOMES:
                self._outcomes = {key: self._outcomes[key] for key in keys if key in self._outcomes}
            for row, outcomes in zip(new, computed, strict=True):
                self._outcomes[keys[row]] = outcomes
        return np.array([self._outcomes[key] for key in keys])


def _keys(subsets: IntArray) -> list[bytes]:
    return [row.tobytes() for row in np.sort(subsets.astype(np.int64, copy=False), axis=1)]
