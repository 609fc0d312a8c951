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
from kofn.problems.arms import CELLS, Arms, Support
from kofn.problems.assumptions import DOMINANCE, INCREASING, SYMMETRIC, Finding, dominance
from kofn.problems.distributions import with_absent
from kofn.problems.expectation import in_blocks
from kofn.problems.sampling import MOST_OUTCOMES, Law, Outcomes, Sums, in_turn
from kofn.problems.simulated import Simulated
from kofn.rewards import mean


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
    def _together(self) -> _Together:
        return _Together(with_absent(self.arms, 0.0), np.pad(self.worth, (0, 1)))  # arm N is an empty place

    def _make_law(self) -> Law:
        support = self._together.arms.support
        if support is not None and support[0].shape[1] ** self.k <= MOST_OUTCOMES:
            return _Outcomes(self._together, self.k, support)
        return self._together

    def _make_expectation(self) -> _Together:
        return self._together

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


class _Together:
    """What arms are worth together: every play is drawn, values are exact."""

    def __init__(self, arms: Arms, worth: FloatArray) -> None:
        self.arms, self.worth = arms, worth
        self._mean, self._second = arms.mean, arms.second_moment

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """The sums of n drawn rewards per row."""
        total, squares = np.zeros(len(subsets)), np.zeros(len(subsets))
        for row in in_turn(times, max(1, CELLS // subsets.shape[1] ** 2)):
            arms = subsets[row]
            paid = self.pay(arms, self.arms.draw(arms, rng))
            total += np.bincount(row, paid, len(subsets))
            squares += np.bincount(row, paid * paid, len(subsets))
        return total, squares

    def pay(self, subsets: IntArray, x: FloatArray) -> FloatArray:
        """What arms that paid x earn together: over pairs, half of the square and half of the diagonal."""
        k = subsets.shape[-1]
        worth = self.worth[subsets[..., :, None], subsets[..., None, :]]
        every = np.einsum("...i,...ij,...j->...", x, worth, x)
        own = (self.worth[subsets, subsets] * x * x).sum(axis=-1)
        return np.asarray((every + own) / (k * (k + 1)))

    def value(self, subsets: IntArray) -> FloatArray:
        """The expected reward of each row: independent arms have E X_i X_j = E X_i E X_j."""
        return in_blocks(self._rows, subsets, subsets.shape[1] ** 2)

    def _rows(self, subsets: IntArray) -> FloatArray:
        k, first = subsets.shape[1], self._mean[subsets]
        extra = self._second[subsets] - first * first  # E X^2 in place of (E X)^2, on the diagonal
        own = (self.worth[subsets, subsets] * extra).sum(axis=1)
        return np.asarray(self.pay(subsets, first) + 2 * own / (k * (k + 1)))


class _Outcomes(Outcomes):
    """The same for arms with few values: rows of many plays are one multinomial draw over all outcomes."""

    def __init__(self, together: _Together, k: int, support: Support) -> None:
        super().__init__(together.arms, mean, k, support)
        self._together = together
        self._drawn = together  # type: ignore[assignment]  # plays are drawn by our own law

    def _pay(self, subsets: IntArray) -> FloatArray:
        rows = np.broadcast_to(subsets[:, None, :], (len(subsets), *self._which.shape))
        return self._together.pay(rows, self._values[subsets[:, None, :], self._which[None]])


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
