"""Problems on a finite table of contexts: visitors, queries, days, splits or samples, one of which each play draws."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kofn.core import FloatArray, IntArray, Subset
from kofn.lab.problems.base import AbstractProblem
from kofn.lab.problems.expectation import in_blocks
from kofn.lab.problems.real.search import BestSearch, best_singles, greedy, search
from kofn.lab.problems.rows import Subsets
from kofn.lab.problems.sampling import Sums, sum_drawn_plays

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
    def outcomes(self, subsets: IntArray) -> NDArray[Any]:
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
    def searched(self) -> BestSearch:
        """The best subset that was found, and what was done to find it."""
        return self._find()

    @cached_property
    def references(self) -> dict[str, Subset]:
        """Subsets that people choose without plays: by a rule of the field, or greedily if they knew all values."""
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

    def _find(self) -> BestSearch:
        return search(self._table.value, self.n_arms, self.k)

    def _find_best(self) -> Subset:
        return self.searched.best


class Table:
    """Draws plays and computes values from the outcomes of subsets, which are computed once and kept."""

    def __init__(self, problem: TableProblem) -> None:
        self._problem = problem
        self._values: dict[bytes, float] = {}
        self._outcomes: dict[bytes, NDArray[np.float32]] = {}

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the mean outcome of each row."""
        keys = _keys(subsets)
        if new := [row for row, key in enumerate(keys) if key not in self._values]:
            means = in_blocks(self._problem.means, subsets[new], self._problem.width)
            self._keep([keys[row] for row in new], keys, means)
        return np.array([self._values[key] for key in keys])

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """Draw a context for each play; if rewards are 0 or 1, draw the number of ones."""
        if self._problem.binary:
            total = rng.binomial(times, np.clip(self.value(subsets), 0.0, 1.0)).astype(float)
            return total, total
        outcomes = self._rows(subsets)

        def draw(rows: IntArray) -> FloatArray:
            return outcomes[rows[:, 0], rng.integers(self._problem.contexts, size=len(rows))].astype(float)

        return sum_drawn_plays(draw, np.arange(len(subsets))[:, None], times, PLAYS)

    def _rows(self, subsets: IntArray) -> NDArray[np.float32]:
        """Return the outcomes of each row, and keep their means."""
        keys = _keys(subsets)
        kept = self._outcomes
        if new := [row for row, key in enumerate(keys) if key not in kept]:
            if (len(kept) + len(new)) * self._problem.contexts > MOST_OUTCOMES:
                self._outcomes = kept = {key: kept[key] for key in keys if key in kept}
            computed = in_blocks(self._problem.outcomes, subsets[new], self._problem.width)
            names = [keys[row] for row in new]
            kept.update(zip(names, computed.astype(np.float32), strict=True))
            self._keep(names, keys, computed.mean(axis=1))
        return np.array([kept[key] for key in keys])

    def _keep(self, names: list[bytes], used: list[bytes], means: FloatArray) -> None:
        """Keep new values; if they are too many, forget all others that are not in use."""
        if len(self._values) + len(names) > MOST_VALUES:
            self._values = {key: self._values[key] for key in used if key in self._values}
        self._values.update(zip(names, means.tolist(), strict=True))


def _keys(subsets: IntArray) -> list[bytes]:
    return [row.tobytes() for row in np.sort(subsets.astype(np.int64, copy=False), axis=1)]
