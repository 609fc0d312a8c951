"""Cross-selling with a weight for each pair of products.

The paper's quadratic reward treats all pairs alike. Here each pair has a weight, an entry of a matrix W: the reward is
2 / (K (K+1)) times the sum of W_ij X_i X_j over i <= j. A matrix of ones gives the paper's reward. Products with a
negative weight take sales from each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kofn.core import BadInput, FloatArray, IntArray
from kofn.lab.problems.arms import CELLS, Arms, Support
from kofn.lab.problems.assumptions import DOMINANCE, INCREASING, SYMMETRIC, Finding, dominance
from kofn.lab.problems.base import AbstractProblem
from kofn.lab.problems.distributions import with_empty_place
from kofn.lab.problems.expectation import in_blocks
from kofn.lab.problems.sampling import MOST_OUTCOMES, OutcomeSampler, Sampler, Sums, sum_drawn_plays
from kofn.lab.rewards import mean


class Interactions(AbstractProblem):
    """Arms that pay more, or less, together with certain others.

    >>> from kofn.lab.problems import Bernoulli
    >>> weights = [[1.0, 0.0, 0.8], [0.0, 1.0, 0.0], [0.8, 0.0, 1.0]]
    >>> problem = Interactions(Bernoulli([0.5, 0.6, 0.5]), weights, k=2)
    >>> problem.best, problem.value([(0, 1), (0, 2)])
    ((0, 2), array([0.36666667, 0.4       ]))

    `weights` is a symmetric N x N matrix; its diagonal has the weight of each arm alone. Arms must pay from 0 to 1,
    independently of each other. `reward_range` is computed from the extreme entries.
    """

    def __init__(self, arms: Arms, weights: ArrayLike, k: int, *, best: Iterable[int] | None = None) -> None:
        if not isinstance(arms, Arms) or not arms.independent or arms.low < 0 or arms.high > 1:
            raise BadInput(f"arms must pay from 0 to 1 independently, such as Bernoulli([0.2, 0.7]), not {arms!r}")
        self.arms, self.weights = arms, _matrix(weights, arms.n_arms)
        super().__init__(arms.n_arms, k, best=best, fewer=True)
        self.reward_range = _range(self.weights, self.k)

    def _summary(self) -> str:
        return repr(self.arms)

    @cached_property
    def _pairs(self) -> _PairSampler:
        return _PairSampler(with_empty_place(self.arms, 0.0), np.pad(self.weights, (0, 1)))  # arm N is an empty place

    def make_sampler(self) -> Sampler:
        """Return a sampler that enumerates outcomes if they are few, else one that draws every play."""
        support = self._pairs.arms.support
        if support is not None and support[0].shape[1] ** self.k <= MOST_OUTCOMES:
            return _PairOutcomeSampler(self._pairs, self.k, support)
        return self._pairs

    def make_expectation(self) -> _PairSampler:
        """Return the exact expected rewards."""
        return self._pairs

    def assumptions(self) -> tuple[Finding, ...]:
        """Return what follows from the weights and the arms for the paper's assumptions."""
        alike = bool((self.weights == self.weights[0, 0]).all())
        falls = self.weights < 0
        increasing = "no entry of the matrix is negative"
        if falls.any():
            i, j = (int(each) for each in np.argwhere(falls)[0])
            increasing = f"arms {i} and {j} have a negative weight: {self.weights[i, j]:.4g}"
        elif not (self.weights.diagonal() > 0).all():
            falls, increasing = ~falls, "weakly: an arm has weight 0 by itself"
        return (
            Finding(SYMMETRIC, alike, "all weights are equal" if alike else "pairs have different weights"),
            Finding(INCREASING, not falls.any(), increasing),
            Finding(DOMINANCE, *dominance(self.arms)),
        )


class _PairSampler:
    """Draws every play, and computes exact expected rewards."""

    def __init__(self, arms: Arms, weights: FloatArray) -> None:
        self.arms, self.weights = arms, weights
        self._mean, self._second = arms.mean, arms.second_moment

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """Draw `times[i]` rewards per row and add them up."""
        size = max(1, CELLS // subsets.shape[1] ** 2)
        return sum_drawn_plays(lambda arms: self.reward(arms, self.arms.draw(arms, rng)), subsets, times, size)

    def reward(self, subsets: IntArray, x: FloatArray) -> FloatArray:
        """Return the reward of arms that paid x: the sum over i <= j is half of (all pairs + the diagonal)."""
        k = subsets.shape[-1]
        weights = self.weights[subsets[..., :, None], subsets[..., None, :]]
        every = np.einsum("...i,...ij,...j->...", x, weights, x)
        own = (self.weights[subsets, subsets] * x * x).sum(axis=-1)
        return np.asarray((every + own) / (k * (k + 1)))

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the expected reward of each row: independent arms have E X_i X_j = E X_i E X_j."""
        return in_blocks(self._rows, subsets, subsets.shape[1] ** 2)

    def _rows(self, subsets: IntArray) -> FloatArray:
        k, first = subsets.shape[1], self._mean[subsets]
        extra = self._second[subsets] - first * first  # E X^2 in place of (E X)^2, on the diagonal
        own = (self.weights[subsets, subsets] * extra).sum(axis=1)
        return np.asarray(self.reward(subsets, first) + 2 * own / (k * (k + 1)))


class _PairOutcomeSampler(OutcomeSampler):
    """The same for arms with few values: a row of many plays is one multinomial draw over all outcomes."""

    def __init__(self, pairs: _PairSampler, k: int, support: Support) -> None:
        super().__init__(pairs.arms, mean, k, support)
        self._pairs = pairs
        self._play_sampler = pairs  # type: ignore[assignment]  # rows of few plays are drawn here

    def _rewards_of(self, subsets: IntArray) -> FloatArray:
        rows = np.broadcast_to(subsets[:, None, :], (len(subsets), *self._outcomes.shape))
        return self._pairs.reward(rows, self._values[subsets[:, None, :], self._outcomes[None]])


def _matrix(weights: ArrayLike, n_arms: int) -> FloatArray:
    expected = f"weights must be a symmetric {n_arms} x {n_arms} matrix of finite numbers"
    try:
        matrix = np.array(weights, np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"{expected}, not {weights!r}") from None
    if matrix.shape != (n_arms, n_arms):
        raise BadInput(f"{expected}; got shape {matrix.shape}")
    if not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T, rtol=1e-12, atol=0):
        raise BadInput(f"{expected}; it is not {'finite' if not np.isfinite(matrix).all() else 'symmetric'}")
    if not matrix.any():
        raise BadInput("weights must not be all zeros: every subset would earn 0")
    matrix.flags.writeable = False
    return matrix


def _range(weights: FloatArray, k: int) -> tuple[float, float]:
    """Return bounds of the reward, from the extreme entries of the diagonal and of the rest."""
    own, rest = weights.diagonal(), weights[~np.eye(len(weights), dtype=bool)]
    scale, pairs = 2 / (k * (k + 1)), k * (k - 1) / 2
    low = scale * (k * min(0.0, own.min()) + pairs * min(0.0, rest.min()))
    high = scale * (k * max(0.0, own.max()) + pairs * max(0.0, rest.max()))
    return float(low), float(high) if high > low else float(low) + 1.0
