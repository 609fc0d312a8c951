"""Coverage: the reward is 1 if any of the K arms hits a random context, a visitor, an event or a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from kofn.core import FloatArray, IntArray, Subset
from kofn.lab.problems.real.search import BestSearch, cover
from kofn.lab.problems.real.table import TableProblem


class Coverage(TableProblem):
    """K rows of a table of hits; a play draws a column and pays 1 if any of the K rows has a hit there.

    >>> problem = Coverage("abc", np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], bool), k=2)
    >>> problem.best, problem.optimum, problem.searched.effort
    ((0, 2), 1.0, 'integer program (HiGHS), optimal')
    """

    def __init__(
        self, arms: Iterable[str], hits: NDArray[np.bool_], k: int, domain: Mapping[str, Subset] | None = None
    ) -> None:
        super().__init__(arms, k, hits.shape[1], binary=True, domain=domain)
        self.hits = hits
        self._bits = np.packbits(np.vstack([hits, np.zeros_like(hits[:1])]), axis=1)  # the last row: an empty place

    def outcomes(self, subsets: IntArray) -> NDArray[np.uint8]:
        """Return 1 where an arm of the row has a hit."""
        return np.unpackbits(self._held(subsets), axis=1, count=self.contexts)

    def means(self, subsets: IntArray) -> FloatArray:
        """Return the fraction of contexts with a hit."""
        return np.asarray(np.bitwise_count(self._held(subsets)).sum(axis=1, dtype=np.int64) / self.contexts)

    def _held(self, subsets: IntArray) -> NDArray[np.uint8]:
        held = self._bits[subsets[:, 0]]
        for place in range(1, subsets.shape[1]):
            held |= self._bits[subsets[:, place]]
        return np.asarray(held)

    def _find(self) -> BestSearch:
        return cover(self.hits, self.k)
