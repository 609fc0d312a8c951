"""Erasure-coded storage: K of N servers are asked, and a request takes as long as the slowest of them.

Latencies have heavy tails, so that nothing bounds them; but nobody waits for ever. What takes longer than the timeout
counts as the timeout, and is a reward in [0, timeout] like any other: values are those of the clipped latencies, and so
is the best subset, which may differ from that of latencies that are never cut.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from kofn.core import BadInput, FloatArray, IntArray
from kofn.problems.arms import Arms, column, numbers, require
from kofn.problems.problem import Problem
from kofn.rewards import maximum


class Latencies(Arms):
    """Arms that take min(Y, timeout), with Y of a heavy-tailed family."""

    continuous = True  # but for an atom at the timeout, where the range ends

    def __init__(self, n_arms: int, timeout: float) -> None:
        if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not 0 < timeout < math.inf:
            raise BadInput(f"timeout is the longest that anybody waits, a finite number above 0, not {timeout!r}")
        self.n_arms, self.timeout = n_arms, float(timeout)
        self.low, self.high = 0.0, self.timeout

    @cached_property
    def mean(self) -> FloatArray:
        """E min(Y, timeout)."""
        return self._moment(1)

    @cached_property
    def second_moment(self) -> FloatArray:
        """E min(Y, timeout)^2."""
        return self._moment(2)

    @abstractmethod
    def _moment(self, power: int) -> FloatArray:
        """E min(Y, timeout)^power."""

    @property
    def timeouts(self) -> FloatArray:
        """The share of requests that each arm does not answer in time."""
        return self.survival(self.timeout)

    def _points(self, i: int, j: int) -> FloatArray:
        near = np.geomspace(self.timeout * 1e-6, self.timeout, 1500)  # curves of heavy tails differ at all scales
        return np.unique(np.concatenate([[0.0], near, np.linspace(0, self.timeout, 1025)]))


class Pareto(Latencies):
    """Latencies with P(Y >= y) = (fastest / y)^tail from `fastest` on: the smaller the tail, the heavier.

    >>> arms = Pareto([10, 20], tail=[1.5, 3.0], timeout=200)
    >>> arms.mean.round(2), arms.timeouts.round(4)
    (array([25.53, 29.9 ]), array([0.0112, 0.001 ]))
    """

    def __init__(self, fastest: ArrayLike, tail: ArrayLike, timeout: float) -> None:
        self.fastest, self.tail = _both("fastest", fastest, "tail", tail)
        super().__init__(self.fastest.size, timeout)
        require("fastest", self.fastest, (self.fastest > 0) & (self.fastest < self.timeout), "above 0, below timeout")
        require("tail", self.tail, self.tail > 0, "above 0")

    def draw(self, arms: IntArray, rng: np.random.Generator) -> FloatArray:
        """Numbers from fastest to timeout."""
        y = np.exp(rng.standard_exponential(arms.shape) / self.tail[arms])
        return np.minimum(y * self.fastest[arms], self.timeout)

    def _moment(self, power: int) -> FloatArray:
        # fastest^q + the integral of q y^(q-1) (fastest / y)^tail from fastest to timeout; by exprel, since q = tail
        # is a logarithm.
        log = np.log(self.timeout / self.fastest)
        return np.asarray(self.fastest**power * (1 + power * log * special.exprel((power - self.tail) * log)))

    def cdf(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        """1 - (fastest / x)^tail from fastest on, 1 from timeout on."""
        x, fastest, tail = column(x, self.fastest, arms, self.tail)
        inside = -np.expm1(-tail * np.log(np.maximum(x, fastest) / fastest))
        return np.where(x >= self.timeout, 1.0, inside)

    def survival(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        """(fastest / x)^tail from fastest on, 0 beyond timeout."""
        x, fastest, tail = column(x, self.fastest, arms, self.tail)
        inside = np.exp(-tail * np.log(np.maximum(x, fastest) / fastest))
        return np.where(x > self.timeout, 0.0, inside)

    def _points(self, i: int, j: int) -> FloatArray:
        return np.unique(np.concatenate([super()._points(i, j), self.fastest[[i, j]]]))


class Lognormal(Latencies):
    """Latencies whose logarithm is normal: half of them below `median`, and `spread` the deviation of the logarithm.

    >>> arms = Lognormal([10, 20], spread=[1.0, 0.5], timeout=200)
    >>> arms.mean.round(2), arms.timeouts.round(6)
    (array([16.38, 22.66]), array([1.369e-03, 2.000e-06]))
    """

    def __init__(self, median: ArrayLike, spread: ArrayLike, timeout: float) -> None:
        self.median, self.spread = _both("median", median, "spread", spread)
        super().__init__(self.median.size, timeout)
        require("median", self.median, self.median > 0, "above 0")
        require("spread", self.spread, self.spread > 0, "above 0")

    def draw(self, arms: IntArray, rng: np.random.Generator) -> FloatArray:
        """Numbers from 0 to timeout."""
        y = np.exp(rng.standard_normal(arms.shape) * self.spread[arms])
        return np.minimum(y * self.median[arms], self.timeout)

    def _moment(self, power: int) -> FloatArray:
        z, shift = np.log(self.timeout / self.median) / self.spread, power * self.spread
        inside = self.median**power * np.exp(shift**2 / 2) * special.ndtr(z - shift)
        return np.asarray(inside + self.timeout**power * special.ndtr(-z))

    def cdf(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        """The normal distribution of the logarithm, 1 from timeout on."""
        x, z = self._z(x, arms)
        return np.where(x >= self.timeout, 1.0, special.ndtr(z))

    def survival(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        """Its complement, 0 beyond timeout."""
        x, z = self._z(x, arms)
        return np.where(x > self.timeout, 0.0, special.ndtr(-z))

    def _z(self, x: ArrayLike, arms: IntArray | None) -> tuple[FloatArray, FloatArray]:
        x, median, spread = column(x, self.median, arms, self.spread)
        with np.errstate(divide="ignore"):  # the logarithm of 0 is where it should be
            return x, np.log(np.maximum(x, 0) / median) / spread


def storage(latencies: Latencies, k: int, *, best: Iterable[int] | None = None) -> Problem:
    """The problem in which K servers are asked and the slowest counts: to be minimised, in [0, timeout].

    >>> problem = storage(Pareto([10, 20, 15, 30], tail=[1.2, 4.0, 3.0, 6.0], timeout=1_000), k=2)
    >>> problem.best, round(problem.optimum, 2)
    ((1, 2), 29.48)
    """
    if not isinstance(latencies, Latencies):
        raise BadInput(f"storage takes latencies with a timeout, such as Pareto([10, 20], 2.0, 500), not {latencies!r}")
    return Problem(latencies, maximum, k, direction="minimize", best=best, reward_range=(latencies.low, latencies.high))


def _both(one: str, first: Any, other: str, second: Any) -> tuple[FloatArray, FloatArray]:
    """Two parameters per arm; a number stands for all arms."""
    try:
        both = np.broadcast_arrays(np.atleast_1d(first), np.atleast_1d(second))
    except ValueError:
        raise BadInput(
            f"{one} and {other} need one number per arm: {np.size(first)} and {np.size(second)} came"
        ) from None
    return numbers(one, both[0]), numbers(other, both[1])
