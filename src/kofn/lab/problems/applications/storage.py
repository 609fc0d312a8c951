"""Erasure-coded storage: K of N servers are asked, and a request takes as long as the slowest of them.

Latencies have heavy tails and no upper bound, so they are clipped at a timeout: every reward is in [0, timeout]. Values
and the best subset refer to the clipped latencies. Unclipped latencies may have another best subset.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from kofn.core import BadInput, FloatArray, IntArray
from kofn.lab.problems.arms import ArmsByMoments, column, require, two_parameters
from kofn.lab.problems.problem import Problem
from kofn.lab.rewards import maximum


class Latencies(ArmsByMoments):
    """Arms that pay min(Y, timeout), with Y of a heavy-tailed distribution."""

    continuous = True  # except for an atom at the timeout, where the range ends

    def __init__(self, n_arms: int, timeout: float) -> None:
        if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not 0 < timeout < math.inf:
            raise BadInput(f"timeout must be a finite number above 0, not {timeout!r}")
        self.n_arms, self.timeout = n_arms, float(timeout)
        self.low, self.high = 0.0, self.timeout

    @property
    def timeouts(self) -> FloatArray:
        """The fraction of requests that each server does not answer before the timeout."""
        return self.survival(self.timeout)

    def _points(self, i: int, j: int) -> FloatArray:
        near = np.geomspace(self.timeout * 1e-6, self.timeout, 1500)  # heavy tails differ at all scales
        return np.unique(np.concatenate([[0.0], near, np.linspace(0, self.timeout, 1025)]))


class Pareto(Latencies):
    """Latencies with P(Y >= y) = (fastest / y)^tail for y >= `fastest`: a smaller `tail` is heavier.

    >>> arms = Pareto([10, 20], tail=[1.5, 3.0], timeout=200)
    >>> arms.mean.round(2), arms.timeouts.round(4)
    (array([25.53, 29.9 ]), array([0.0112, 0.001 ]))
    """

    def __init__(self, fastest: ArrayLike, tail: ArrayLike, timeout: float) -> None:
        self.fastest, self.tail = two_parameters("fastest", fastest, "tail", tail)
        super().__init__(self.fastest.size, timeout)
        require("fastest", self.fastest, (self.fastest > 0) & (self.fastest < self.timeout), "above 0, below timeout")
        require("tail", self.tail, self.tail > 0, "above 0")

    def draw(self, arms: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw numbers from `fastest` to `timeout`."""
        y = np.exp(rng.standard_exponential(arms.shape) / self.tail[arms])
        return np.minimum(y * self.fastest[arms], self.timeout)

    def _moment(self, power: int) -> FloatArray:
        # fastest^q plus the integral of q y^(q-1) (fastest / y)^tail from fastest to timeout. exprel also covers
        # q = tail, where the integral is a logarithm.
        log = np.log(self.timeout / self.fastest)
        return np.asarray(self.fastest**power * (1 + power * log * special.exprel((power - self.tail) * log)))

    def cdf(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        """Return P(X <= x): 1 - (fastest / x)^tail from `fastest` on, 1 from `timeout` on."""
        x, fastest, tail = column(x, self.fastest, arms, self.tail)
        inside = -np.expm1(-tail * np.log(np.maximum(x, fastest) / fastest))
        return np.where(x >= self.timeout, 1.0, inside)

    def survival(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        """Return P(X >= x): (fastest / x)^tail from `fastest` on, 0 above `timeout`."""
        x, fastest, tail = column(x, self.fastest, arms, self.tail)
        inside = np.exp(-tail * np.log(np.maximum(x, fastest) / fastest))
        return np.where(x > self.timeout, 0.0, inside)

    def _points(self, i: int, j: int) -> FloatArray:
        return np.unique(np.concatenate([super()._points(i, j), self.fastest[[i, j]]]))


class Lognormal(Latencies):
    """Latencies whose logarithm is normal with standard deviation `spread`; half of them are below `median`.

    >>> arms = Lognormal([10, 20], spread=[1.0, 0.5], timeout=200)
    >>> arms.mean.round(2), arms.timeouts.round(6)
    (array([16.38, 22.66]), array([1.369e-03, 2.000e-06]))
    """

    def __init__(self, median: ArrayLike, spread: ArrayLike, timeout: float) -> None:
        self.median, self.spread = two_parameters("median", median, "spread", spread)
        super().__init__(self.median.size, timeout)
        require("median", self.median, self.median > 0, "above 0")
        require("spread", self.spread, self.spread > 0, "above 0")

    def draw(self, arms: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw numbers from 0 to `timeout`."""
        y = np.exp(rng.standard_normal(arms.shape) * self.spread[arms])
        return np.minimum(y * self.median[arms], self.timeout)

    def _moment(self, power: int) -> FloatArray:
        z, shift = np.log(self.timeout / self.median) / self.spread, power * self.spread
        inside = self.median**power * np.exp(shift**2 / 2) * special.ndtr(z - shift)
        return np.asarray(inside + self.timeout**power * special.ndtr(-z))

    def cdf(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        """Return P(X <= x): normal in log x, 1 from `timeout` on."""
        x, z = self._z(x, arms)
        return np.where(x >= self.timeout, 1.0, special.ndtr(z))

    def survival(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        """Return P(X >= x): the complement, 0 above `timeout`."""
        x, z = self._z(x, arms)
        return np.where(x > self.timeout, 0.0, special.ndtr(-z))

    def _z(self, x: ArrayLike, arms: IntArray | None) -> tuple[FloatArray, FloatArray]:
        x, median, spread = column(x, self.median, arms, self.spread)
        with np.errstate(divide="ignore"):  # log 0 = -inf is right here
            return x, np.log(np.maximum(x, 0) / median) / spread


def storage(latencies: Latencies, k: int, *, best: Iterable[int] | None = None) -> Problem:
    """Return the problem of asking K servers, where the slowest one counts: minimise a latency in [0, timeout].

    >>> problem = storage(Pareto([10, 20, 15, 30], tail=[1.2, 4.0, 3.0, 6.0], timeout=1_000), k=2)
    >>> problem.best, round(problem.optimum, 2)
    ((1, 2), 29.48)
    """
    if not isinstance(latencies, Latencies):
        raise BadInput(f"latencies must be Pareto or Lognormal arms, as Pareto([10, 20], 2.0, 500), not {latencies!r}")
    return Problem(latencies, maximum, k, direction="minimize", best=best, reward_range=(latencies.low, latencies.high))
