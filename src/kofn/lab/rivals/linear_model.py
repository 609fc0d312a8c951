"""A quadratic form in one weight per arm, for the policies with a linear model.

A subset is the vector x with ones at its arms. All plays add up to a matrix V and a vector b, which are all that a
linear model, or a Gaussian approximation of another model, needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import solve_triangular

from kofn.core import BadInput, BadRecord, FloatArray, IntArray, Plan, Policy
from kofn.core.fields import Fields, Part, numbers, symmetric
from kofn.core.subsets import MOST_BYTES
from kofn.policies.batching import plan_of, top_k

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


def plan_of_draws(
    mean: FloatArray, lower: FloatArray, k: int, draws: int, plays: int, rng: np.random.Generator
) -> Plan:
    """Return a plan of the K highest weights of up to `draws` draws; the precision of weights is lower lower^T."""
    z = rng.standard_normal((min(draws, plays), len(mean)))
    return plan_of(top_k(mean + solve_triangular(lower, z.T, lower=True, trans="T").T, k), plays)
