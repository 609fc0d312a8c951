"""A quadratic form in one weight per arm, for the policies with a linear model.

A subset is the vector x with ones at its arms. All plays add up to a matrix V and a vector b, which are all that a
linear model, or a Gaussian approximation of another model, needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from kofn.core import BadInput, BadRecord, FloatArray, IntArray, Plan, finite_numbers
from kofn.policies.batching import plan_of
from kofn.subsets import MOST_BYTES

MOST_ARMS = math.isqrt(MOST_BYTES // (4 * 8))
"""Most arms for which V, its factor and two copies fit in memory, at 8 bytes a number."""


@dataclass
class Quadratic:
    """-w'Vw/2 + b'w, a log density of the weights w up to a constant."""

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

    def state(self) -> dict[str, list[float]]:
        """Return the upper triangle of V, row after row, and b."""
        return {"V": self.V[np.triu_indices(len(self.b))].tolist(), "b": self.b.tolist()}

    @classmethod
    def load(cls, state: Mapping[str, Any], n_arms: int, k: int) -> Self:
        """Return the form that `state` describes; V must be one that plays can have."""
        del k
        half, b = finite_numbers("V", state["V"]), finite_numbers("b", state["b"])
        if half.shape != (n_arms * (n_arms + 1) // 2,) or b.shape != (n_arms,):
            raise BadRecord(f"V and b must be an upper triangle and a number per arm, for {n_arms} arms")
        if (half < 0).any():
            raise BadRecord("V must not have negative numbers: it counts the plays of two arms together")
        upper = np.zeros((n_arms, n_arms))
        upper[np.triu_indices(n_arms)] = half
        return cls(upper + np.triu(upper, 1).T, b)


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


def sweeps(n_arms: int, k: int, times: int, rng: np.random.Generator) -> Plan:
    """Return a plan of random blocks with every arm `times` times; the last block is filled up from the first."""
    places = np.arange(-(-n_arms // k) * k) % n_arms
    blocks = np.concatenate([rng.permutation(n_arms)[places].reshape(-1, k) for _ in range(times)])
    return plan_of(np.sort(blocks, axis=1), len(blocks))


def number_above_zero(name: str, value: float, below: float = math.inf) -> float:
    """Return `value` as a float above 0 and below `below`, or raise BadInput."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise BadInput(f"{name} must be a number, not {value!r}")
    if not 0 < value < below:
        raise BadInput(f"{name} must be a number above 0 and below {below:g}, not {value!r}")
    return float(value)
