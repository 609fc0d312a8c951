"""What the policies with a model of one weight per arm share: a quadratic form in those weights.

A subset is the vector x with ones at its arms. Plays add up in a matrix V and a vector b, which is all that a linear
model, or a Gaussian approximation of another one, has to keep.
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
"""V, its factor and two copies on the way, at 8 bytes a number, still fit."""


@dataclass
class Quadratic:
    """-w'Vw/2 + b'w, a log density up to a constant: the plays' information on the weights."""

    V: FloatArray
    b: FloatArray

    @classmethod
    def zeros(cls, n_arms: int) -> Self:
        """No plays yet; refused if the matrix would not fit in memory."""
        if n_arms > MOST_ARMS:
            raise BadInput(
                f"a number for each pair of {n_arms:,} arms does not fit in {MOST_BYTES / 2**30:.0f} GiB: give at most "
                f"{MOST_ARMS:,} arms, or choose a policy with linear memory, such as cmab-sm"
            )
        return cls(np.zeros((n_arms, n_arms)), np.zeros(n_arms))

    def add(self, x: FloatArray, curvature: FloatArray, slope: FloatArray) -> None:
        """Count rows x: each adds `curvature` times xx' to V and `slope` times x to b."""
        upper = np.triu((x * curvature[:, None]).T @ x)  # mirrored, so that half of it says all of it, to the last bit
        self.V += upper + np.triu(upper, 1).T
        self.b += slope @ x

    def state(self) -> dict[str, list[float]]:
        """The upper triangle of V, row after row, and b."""
        return {"V": self.V[np.triu_indices(len(self.b))].tolist(), "b": self.b.tolist()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` said; V must be one that plays can have."""
        n_arms = len(self.b)
        half, b = finite_numbers("V", state["V"]), finite_numbers("b", state["b"])
        if half.shape != (n_arms * (n_arms + 1) // 2,) or b.shape != (n_arms,):
            raise BadRecord(f"V and b are not those of {n_arms} arms: an upper triangle, and a number per arm")
        upper = np.zeros((n_arms, n_arms))
        upper[np.triu_indices(n_arms)] = half
        self.V, self.b = upper + np.triu(upper, 1).T, b
        if (half < 0).any():
            raise BadRecord("V has a negative number, but it adds up plays of two arms together")


def factor(precision: FloatArray) -> FloatArray:
    """The lower Cholesky factor, or BadInput if there is none: then this is no precision of anything."""
    try:
        return np.asarray(np.linalg.cholesky(precision))
    except np.linalg.LinAlgError:
        raise BadInput("V is not positive definite") from None


def indicators(subsets: IntArray, n_arms: int) -> FloatArray:
    """A row of zeros and ones for each subset."""
    x = np.zeros((len(subsets), n_arms))
    np.put_along_axis(x, subsets.astype(np.int64), 1.0, axis=1)
    return x


def sweeps(n_arms: int, k: int, times: int, rng: np.random.Generator) -> Plan:
    """Random subsets that have every arm so many times, in blocks; the last block is filled up from the first."""
    places = np.arange(-(-n_arms // k) * k) % n_arms
    blocks = np.concatenate([rng.permutation(n_arms)[places].reshape(-1, k) for _ in range(times)])
    return plan_of(np.sort(blocks, axis=1), len(blocks))


def number_above_zero(name: str, value: float, below: float = math.inf) -> float:
    """`value` as a float above zero and below `below`, or BadInput that names it."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise BadInput(f"{name} must be a number, not {value!r}")
    if not 0 < value < below:
        raise BadInput(f"{name} must be a number above 0 and below {below:g}, not {value!r}")
    return float(value)
