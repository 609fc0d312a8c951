"""A quadratic form in one weight per arm, for the policies with a linear model.

A subset is the vector x with ones at its arms. All plays add up to a matrix V and a vector b, which are all that a
linear model, or a Gaussian approximation of another model, needs.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self, Unpack

import numpy as np
from scipy.linalg import solve_triangular

from kofn.core import BadInput, BadRecord, FloatArray, IntArray, Plan, Policy, Subset, whole
from kofn.core.fields import Fields, Part, numbers, symmetric
from kofn.core.subsets import MOST_BYTES
from kofn.policies.batching import plan_of, sweeps, tenth, top_k, top_subset
from kofn.policies.randomised import Randomised, SeededOptions

MOST_ARMS = math.isqrt(MOST_BYTES // (4 * 8))
"""Most arms for which V, its factor and two copies fit in memory, at 8 bytes a number."""


@dataclass
class Quadratic(Part):
    """-w'Vw/2 + b'w, a log density of the weights w up to a constant."""

    fields = Fields(V=symmetric(np.triu_indices), b=numbers())

    V: FloatArray
    b: FloatArray

    @classmethod
    def zeros(cls, n_arms: int) -> Self:
        """Return the form before the first play; refused if the matrix does not fit in memory."""
        if n_arms > MOST_ARMS:
            raise BadInput(
                f"a number for each pair of {n_arms:,} arms does not fit in {MOST_BYTES / 2**30:.0f} GiB: give at most "
                f"{MOST_ARMS:,} arms, or use a policy with linear memory, such as cmab-sm"
            )
        return cls(np.zeros((n_arms, n_arms)), np.zeros(n_arms))

    def add(self, x: FloatArray, curvature: FloatArray, slope: FloatArray) -> None:
        """Add rows x: each adds `curvature` times xx' to V and `slope` times x to b."""
        upper = np.triu((x * curvature[:, None]).T @ x)  # V stays exactly symmetric
        self.V += upper + np.triu(upper, 1).T
        self.b += slope @ x

    def _loaded(self, policy: Policy) -> None:
        if len(self.V) != len(self.b):
            raise BadRecord(f"V must be the upper triangle of a matrix of {len(self.b)} rows; it has {len(self.V)}")
        if (self.V < 0).any():
            raise BadRecord("V must not have negative numbers: it counts the plays of two arms together")


def factor(precision: FloatArray) -> FloatArray:
    """Return the lower Cholesky factor; BadInput if the matrix is not positive definite."""
    try:
        return np.asarray(np.linalg.cholesky(precision))
    except np.linalg.LinAlgError:
        raise BadInput("V is not positive definite") from None


def indicators(subsets: IntArray, n_arms: int) -> FloatArray:
    """Return a row of zeros and ones for each subset."""
    x = np.zeros((len(subsets), n_arms))
    np.put_along_axis(x, subsets.astype(np.int64), 1.0, axis=1)
    return x


def number_above_zero(name: str, value: float, below: float = math.inf) -> float:
    """Return `value` as a float above 0 and below `below`, or raise BadInput."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise BadInput(f"{name} must be a number, not {value!r}")
    if not 0 < value < below:
        raise BadInput(f"{name} must be a number above 0 and below {below:g}, not {value!r}")
    return float(value)


class WeightOptions(SeededOptions, total=False):
    """The options of all policies with random draws, and the most draws of a plan."""

    draws: int


class WeightThompson(Randomised):
    """Thompson sampling with a weight per arm: a plan plays the K highest of up to `draws` draws of the weights.

    The posterior is frozen for a tenth of the plays so far. The first plan has every arm `first_sweeps` times.
    """

    linear_memory = False
    first_sweeps: ClassVar[int] = 1
    _mode: FloatArray  # the most likely weights

    def __init__(self, n_arms: int, k: int, *, draws: int = 256, **options: Unpack[SeededOptions]) -> None:
        super().__init__(n_arms, k, draws=whole("draws", draws), **options)
        self._seen = Quadratic.zeros(self.n_arms)
        self._learned = 0

    def best(self) -> Subset:
        """Return the K arms with the highest weights."""
        return top_subset(self._mode, self.k)

    def _next(self) -> Plan:
        rng = self._rng()
        if not self._learned:
            return sweeps(self.n_arms, self.k, self.first_sweeps, rng)
        plays = tenth(self._learned)
        return plan_of(top_k(self._draw(min(self._params["draws"], plays), rng), self.k), plays)

    @abstractmethod
    def _draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Return draws of all weights from the posterior, a row for each."""


def gaussian(mean: FloatArray, lower: FloatArray, draws: int, rng: np.random.Generator) -> FloatArray:
    """Return draws of Gaussian weights, a row for each; their precision is lower lower^T."""
    z = rng.standard_normal((draws, len(mean)))
    return np.asarray(mean + solve_triangular(lower, z.T, lower=True, trans="T").T)
