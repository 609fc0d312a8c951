"""Cross-selling with a given matrix: how much two products that sell together are worth.

The paper's quadratic reward treats all pairs alike. Here pair i, j counts with its own entry of a matrix: 2 / (K (K+1))
times the sum of W_ij X_i X_j over i <= j. A matrix of ones is the paper's; entries below zero are products that take
sales from each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kofn.core import BadInput, FloatArray, IntArray
from kofn.problems.check import DOMINANCE, INCREASING, SYMMETRIC, Finding, dominance
from kofn.problems.expectation import in_blocks
from kofn.problems.family import CELLS, Arms
from kofn.problems.laws import Sums
from kofn.problems.simulated import Simulated


class Interactions(Simulated):
    """Arms that pay more, or less, beside some others.

    >>> from kofn.problems import Bernoulli
    >>> together = [[1.0, 0.0, 0.8], [0.0, 1.0, 0.0], [0.8, 0.0, 1.0]]
    >>> problem = Interactions(Bernoulli([0.5, 0.6, 0.5]), together, k=2)
    >>> problem.best, problem.value([(0, 1), (0, 2)])
    ((0, 2), array([0.36666667, 0.4       ]))

    `worth` is symmetric, an N x N matrix; its diagonal says what an arm is worth by itself. Arms must pay from 0 to 1,
    independently of each other. `reward_range` is worked out from the extreme entries.
    """

    def __init__(self, arms: Arms, worth: ArrayLike, k: int, *, best: Iterable[int] | None = None) -> None:
        if not isinstance(arms, Arms) or not arms.independent or arms.low < 0 or arms.high > 1:
            raise BadInput(f"arms must pay from 0 to 1, independently, such as Bernoulli([0.2, 0.7]), not {arms!r}")
        self.arms, self.worth = arms, _matrix(worth, arms.n_arms)
        super().__init__(arms.n_arms, k, best=best, fewer=True)
        self.reward_range = _range(self.worth, self.k)

    def __repr__(self) -> str:
        return f"Interactions({self.arms!r}, k={self.k})"

    @cached_property
    def _padded(self) -> FloatArray:
        """The matrix with a row and a column of zeros: arm N is an empty place."""
        return np.pad(self.worth, (0, 1))

    def _make_law(self) -> _Law:
        return _Law(self.arms, self._padded)

    def _make_expectation(self) -> _Value:
        return _Value(self.arms, self._padded)

    def _assumptions(self) -> tuple[Finding, ...]:
        alike = bool((self.worth == self.worth[0, 0]).all())
        falls = self.worth < 0
        increasing = "no entry of the matrix is negative"
        if falls.any():
            i, j = (int(each) for each in np.argwhere(falls)[0])
            increasing = f"arms {i} and {j} take from each other: {self.worth[i, j]:.4g}"
        elif not (self.worth.diagonal() > 0).all():
            falls, increasing = ~falls, "weakly: an arm that is worth nothing by itself"
        return (
            Finding(SYMMETRIC, alike, "all pairs are worth the same" if alike else "pairs are worth different amounts"),
            Finding(INCREASING, not falls.any(), increasing),
            Finding(DOMINANCE, *dominance(self.arms)),
        )


class _Law:
    """Every play is drawn: what the K arms pay, and what that is worth together."""

    def __init__(self, arms: Arms, padded: FloatArray) -> None:
        self._arms, self._padded = arms, padded

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """The sums of n drawn rewards per row."""
        total, squares = np.zeros(len(subsets)), np.zeros(len(subsets))
        for row, subset in enumerate(subsets):
            worth, absent = _upper(self._padded, subset), subset == self._arms.n_arms
            at = np.where(absent, 0, subset)
            size = max(1, CELLS // len(subset))
            for start in range(0, int(times[row]), size):
                plays = min(size, int(times[row]) - start)
                x = self._arms.draw(np.broadcast_to(at, (plays, len(at))), rng)
                paid = ((x @ worth) * x).sum(axis=1)
                total[row] += paid.sum()
                squares[row] += paid @ paid
        return total, squares


class _Value:
    """The exact expected reward: independent arms have E X_i X_j = E X_i E X_j."""

    def __init__(self, arms: Arms, padded: FloatArray) -> None:
        self._mean, self._second = np.append(arms.mean, 0.0), np.append(arms.second_moment, 0.0)
        self._padded = padded

    def value(self, subsets: IntArray) -> FloatArray:
        """The expected reward of each row."""
        return in_blocks(self._rows, subsets, subsets.shape[1] ** 2)

    def _rows(self, subsets: IntArray) -> FloatArray:
        k = subsets.shape[1]
        first, second = self._mean[subsets], self._second[subsets]
        own = self._padded[subsets, subsets]
        every = np.einsum("mi,mij,mj->m", first, self._padded[subsets[:, :, None], subsets[:, None, :]], first)
        pairs = (every - (own * first * first).sum(axis=1)) / 2
        return np.asarray(2 * ((own * second).sum(axis=1) + pairs) / (k * (k + 1)))


def _upper(padded: FloatArray, subset: IntArray) -> FloatArray:
    """The weights of X_i X_j for i <= j, scaled; zeros below."""
    k = len(subset)
    return np.asarray(np.triu(padded[np.ix_(subset, subset)]) * 2 / (k * (k + 1)))


def _matrix(worth: ArrayLike, n_arms: int) -> FloatArray:
    expected = f"worth must be a symmetric {n_arms} x {n_arms} matrix of finite numbers"
    try:
        matrix = np.array(worth, np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"{expected}, not {worth!r}") from None
    if matrix.shape != (n_arms, n_arms):
        raise BadInput(f"{expected}, but one of shape {matrix.shape} came")
    if not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T, rtol=1e-12, atol=0):
        raise BadInput(f"{expected}, but it is not {'finite' if not np.isfinite(matrix).all() else 'symmetric'}")
    if not matrix.any():
        raise BadInput("worth has nothing but zeros: every subset earns nothing")
    matrix.flags.writeable = False
    return matrix


def _range(worth: FloatArray, k: int) -> tuple[float, float]:
    """Bounds of the reward: K times the extreme of the diagonal, and of the rest for all pairs."""
    own, rest = worth.diagonal(), worth[~np.eye(len(worth), dtype=bool)]
    scale, pairs = 2 / (k * (k + 1)), k * (k - 1) / 2
    low = scale * (k * min(0.0, own.min()) + pairs * min(0.0, rest.min()))
    high = scale * (k * max(0.0, own.max()) + pairs * max(0.0, rest.max()))
    return float(low), float(high) if high > low else float(low) + 1.0
