"""Distributions of arms: N random rewards of one distribution, as one object.

`cdf` and `survival` return a row per arm. `survival` is P(X >= x), with >=, as in the paper's definition of dominance.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from kofn.core import BadInput, FloatArray, IntArray
from kofn.lab.problems.arms import (
    Arms,
    ArmsByMoments,
    Ordering,
    Support,
    blocks,
    column,
    numbers,
    require,
    two_parameters,
)

_MOST_VALUES = 64
"""Limit on the distinct samples of an arm whose outcomes are enumerated; above it, every play is drawn."""


class _OneParameter(Arms):
    """Arms with one parameter each; the arm with the larger one dominates."""

    _parameter: FloatArray

    @cached_property
    def ordering(self) -> Ordering:
        order = np.argsort(self._parameter, kind="stable")
        equal = np.diff(self._parameter[order]) == 0
        return Ordering(order, np.zeros_like(equal), equal)

    def crossing(self, i: int, j: int) -> tuple[float, float] | None:
        return None


class Bernoulli(_OneParameter):
    """Arms that pay 1 with probability p, else 0.

    >>> arms = Bernoulli([0.2, 0.7])
    >>> arms.survival([0.0, 0.5, 1.0])
    array([[1. , 0.2, 0.2],
           [1. , 0.7, 0.7]])
    """

    def __init__(self, p: ArrayLike) -> None:
        self.p = self._parameter = numbers("p", p)
        require("p", self.p, (self.p >= 0) & (self.p <= 1), "probabilities from 0 to 1")
        self.n_arms = self.p.size

    def draw(self, arms: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw ones and zeros."""
        return (rng.random(arms.shape) < self.p[arms]).astype(np.float64)

    @property
    def mean(self) -> FloatArray:
        """The probabilities p."""
        return self.p

    @property
    def second_moment(self) -> FloatArray:
        """The probabilities p: 1 squared is 1."""
        return self.p

    def cdf(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        """Return P(X <= x): 0 below 0, 1 - p below 1, then 1."""
        x, p = column(x, self.p, arms)
        return np.where(x < 0, 0.0, np.where(x < 1, 1 - p, 1.0))

    def survival(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        """Return P(X >= x): 1 up to 0, p up to 1, then 0."""
        x, p = column(x, self.p, arms)
        return np.where(x <= 0, 1.0, np.where(x <= 1, p, 0.0))

    @property
    def support(self) -> Support:
        """The values 0 and 1 with their probabilities."""
        return np.broadcast_to([0.0, 1.0], (self.n_arms, 2)), np.stack([1 - self.p, self.p], axis=1)


class Correlated(Bernoulli):
    """Correlated Bernoulli arms: in a fraction `together` of the plays, one random number decides for all arms.

    In those plays, whenever an arm pays, every arm with a higher p pays too.

    >>> Correlated([0.2, 0.7], together=0.5).mean
    array([0.2, 0.7])
    """

    independent = False

    def __init__(self, p: ArrayLike, together: float) -> None:
        super().__init__(p)
        if not isinstance(together, int | float) or not 0 <= together <= 1:
            raise BadInput(f"together must be a fraction of the plays, from 0 to 1, not {together!r}")
        self.together = float(together)

    def draw(self, arms: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw ones and zeros; the last axis holds the arms of one play."""
        u = rng.random(arms.shape)
        shared = rng.random((*arms.shape[:-1], 1)) < self.together
        return (np.where(shared, u[..., :1], u) < self.p[arms]).astype(np.float64)

    @property
    def support(self) -> None:  # type: ignore[override]
        """None: the probability of an outcome of several arms is not a product."""
        return None


class ArctanExponential(_OneParameter, ArmsByMoments):
    """Arms X = (2/pi) arctan(Y) with Y exponential of mean `scale`: the paper's continuous arms.

    The paper calls it the "parameter" and says that the larger one dominates, so it is the scale, not the rate.

    >>> arms = ArctanExponential([0.5, 1.0, 2.0])
    >>> arms.mean.round(4)
    array([0.254 , 0.3956, 0.5478])
    """

    continuous = True

    def __init__(self, scale: ArrayLike) -> None:
        self.scale = self._parameter = numbers("scale", scale)
        require("scale", self.scale, self.scale > 0, "means of exponentials, above 0")
        self.n_arms = self.scale.size

    def draw(self, arms: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw numbers in [0, 1)."""
        y = rng.standard_exponential(arms.shape)
        y *= self.scale[arms]
        x: FloatArray = np.arctan(y, out=y)
        x *= 2 / np.pi
        return x

    def _moment(self, power: int) -> FloatArray:
        # With Y = scale * e^u the integrand is analytic for |Im u| < pi/2 and decays at both ends, so the error of the
        # trapezoid rule is of order exp(-pi^2 / h): below double precision at h = 1/8.
        h = 0.125
        u = np.arange(-40, 4.5, h)
        weights = h * np.exp(u - np.exp(u))
        moments = np.empty(self.n_arms)
        for part in blocks(self.n_arms, u.size):
            moments[part] = (2 / np.pi * np.arctan(self.scale[part, None] * np.exp(u))) ** power @ weights
        return moments

    def cdf(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        """Return P(X <= x): 1 - exp(-tan(pi x / 2) / scale) in [0, 1)."""
        return self._curve(x, arms, lambda y: -np.expm1(-y), 0.0, 1.0)

    def survival(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        """Return P(X >= x): exp(-tan(pi x / 2) / scale) in [0, 1)."""
        return self._curve(x, arms, lambda y: np.exp(-y), 1.0, 0.0)

    def _curve(self, x: ArrayLike, arms: IntArray | None, inside: Any, before: float, after: float) -> FloatArray:
        x, scale = column(x, self.scale, arms)
        with np.errstate(over="ignore"):  # far in the tail of a small scale
            y = np.tan(np.pi / 2 * np.clip(x, 0, 1)) / scale
        return np.where(x <= 0, before, np.where(x >= 1, after, inside(y)))


class Beta(Arms):
    """Arms with Beta(a, b) rewards in [0, 1]; a single number applies to all arms.

    >>> arms = Beta([1, 2, 3], 2)
    >>> arms.mean
    array([0.33333333, 0.5       , 0.6       ])

    One arm dominates another exactly if its a is at least as large and its b at most as large: a decides near 0, b near
    1.
    """

    continuous = True

    def __init__(self, a: ArrayLike, b: ArrayLike) -> None:
        self.a, self.b = two_parameters("a", a, "b", b)
        require("a", self.a, self.a > 0, "numbers above 0")
        require("b", self.b, self.b > 0, "numbers above 0")
        self.n_arms = self.a.size

    def draw(self, arms: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw numbers in [0, 1]."""
        return rng.beta(self.a[arms], self.b[arms])

    @cached_property
    def mean(self) -> FloatArray:
        """a / (a + b)."""
        return np.asarray(self.a / (self.a + self.b))

    @cached_property
    def second_moment(self) -> FloatArray:
        """a (a + 1) / ((a + b) (a + b + 1))."""
        return np.asarray(self.mean * (self.a + 1) / (self.a + self.b + 1))

    def cdf(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        """Return P(X <= x): the regularised incomplete beta function."""
        x, a, b = column(x, self.a, arms, self.b)
        return np.asarray(special.betainc(a, b, np.clip(x, 0, 1)))

    def survival(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        """Return P(X >= x): the complement of `cdf`."""
        x, a, b = column(x, self.a, arms, self.b)
        return np.asarray(special.betaincc(a, b, np.clip(x, 0, 1)))

    @cached_property
    def ordering(self) -> Ordering:
        """The arms by increasing a, then by decreasing b."""
        order = np.lexsort((-self.b, self.a))
        up, more = np.diff(self.a[order]), np.diff(self.b[order])
        return Ordering(order, more > 0, (up == 0) & (more == 0))

    def crossing(self, i: int, j: int) -> tuple[float, float] | None:
        """Return two x at which the order of the arms differs, or None."""
        if (self.a[i] - self.a[j]) * (self.b[i] - self.b[j]) <= 0:
            return None
        return self._signs(i, j)[1]

    def _points(self, i: int, j: int) -> FloatArray:
        near = np.logspace(-15, -2, 200)  # the order may flip very close to an end
        return np.concatenate([near, np.linspace(0.01, 0.99, 981), 1 - near[::-1]])


class Empirical(Arms):
    """Arms that draw from given samples, each with equal probability; any real numbers.

    >>> arms = Empirical([[0.1, 0.4], [0.2, 0.2, 0.5]])
    >>> arms.mean, arms.high
    (array([0.25, 0.3 ]), 0.5)
    """

    def __init__(self, samples: Sequence[ArrayLike] | NDArray[Any]) -> None:
        if isinstance(samples, str) or not isinstance(samples, Sequence | np.ndarray) or not len(samples):
            raise BadInput(f"samples must be a list with one array of numbers per arm, not {samples!r}")
        self.samples = [np.sort(numbers(f"samples[{i}]", each)) for i, each in enumerate(samples)]
        self.n_arms = len(self.samples)
        self._sizes = np.array([each.size for each in self.samples])
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._all = np.concatenate(self.samples)
        self.low, self.high = float(self._all.min()), float(self._all.max())

    def draw(self, arms: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw samples with replacement."""
        return np.asarray(self._all[self._starts[arms] + rng.integers(0, self._sizes[arms])])

    @cached_property
    def mean(self) -> FloatArray:
        """The mean of each arm's samples."""
        return np.array([each.mean() for each in self.samples])

    @cached_property
    def second_moment(self) -> FloatArray:
        """The mean of each arm's squared samples."""
        return np.array([(each * each).mean() for each in self.samples])

    def cdf(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        """Return P(X <= x): the fraction of samples up to x."""
        return np.stack([np.searchsorted(each, x, "right") / each.size for each in self._chosen(arms)])

    def survival(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        """Return P(X >= x): the fraction of samples from x on."""
        return np.stack([(each.size - np.searchsorted(each, x, "left")) / each.size for each in self._chosen(arms)])

    def _chosen(self, arms: IntArray | None) -> list[FloatArray]:
        return self.samples if arms is None else [self.samples[i] for i in arms.tolist()]

    @cached_property
    def support(self) -> Support | None:
        """The distinct samples of each arm, if no arm has more than 64, else None."""
        found = []
        for each in self.samples:
            found.append(np.unique(each, return_counts=True))
            if found[-1][0].size > _MOST_VALUES:
                return None
        width = max(values.size for values, _ in found)
        values = np.stack([np.pad(each, (0, width - each.size), mode="edge") for each, _ in found])
        shares = np.stack([np.pad(counts / counts.sum(), (0, width - counts.size)) for _, counts in found])
        return values, shares

    def points(self, arms: IntArray | None = None) -> FloatArray:
        """Return all distinct samples of the given arms, sorted: between them, `cdf` and `survival` are constant."""
        return np.unique(self._all if arms is None else np.concatenate(self._chosen(arms)))

    def _points(self, i: int, j: int) -> FloatArray:
        return self.points(np.array([i, j]))


def with_empty_place(arms: Arms, absent: float) -> Arms:
    """Return the arms and one more, arm N, that always pays `absent`: it represents an empty place."""
    if isinstance(arms, Correlated) and absent in (0.0, 1.0):
        return Correlated(np.append(arms.p, absent), arms.together)
    if isinstance(arms, Bernoulli) and absent in (0.0, 1.0):
        return Bernoulli(np.append(arms.p, absent))
    if isinstance(arms, Empirical):
        return Empirical([*arms.samples, [absent]])
    return _WithEmptyPlace(arms, absent)


class _WithEmptyPlace(Arms):
    """Arms of any distribution, and one more that always pays the same.

    If the others are continuous, quadrature refines its panels around the jump of the added arm.
    """

    def __init__(self, arms: Arms, absent: float) -> None:
        self._arms, self._absent = arms, absent
        self.n_arms, self.low, self.high = arms.n_arms + 1, arms.low, arms.high
        self.independent, self.continuous = arms.independent, arms.continuous

    def _present(self, arms: IntArray) -> IntArray:
        """Replace the added arm by any other, so that the wrapped arms accept it."""
        return np.minimum(arms, self.n_arms - 2)

    def draw(self, arms: IntArray, rng: np.random.Generator) -> FloatArray:
        absent = arms == self.n_arms - 1
        if not absent.any():
            return self._arms.draw(arms, rng)
        return np.where(absent, self._absent, self._arms.draw(self._present(arms), rng))

    @cached_property
    def mean(self) -> FloatArray:
        return np.append(self._arms.mean, self._absent)

    @cached_property
    def second_moment(self) -> FloatArray:
        return np.append(self._arms.second_moment, self._absent**2)

    def cdf(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        return self._curve(self._arms.cdf, np.asarray(x) >= self._absent, x, arms)

    def survival(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        return self._curve(self._arms.survival, np.asarray(x) <= self._absent, x, arms)

    def _curve(self, curve: Any, step: NDArray[np.bool_], x: ArrayLike, arms: IntArray | None) -> FloatArray:
        arms = np.arange(self.n_arms) if arms is None else np.asarray(arms)
        curves: FloatArray = curve(x, self._present(arms))
        curves[arms == self.n_arms - 1] = step
        return curves

    @property
    def support(self) -> Support | None:
        if (support := self._arms.support) is None:
            return None
        values, shares = support
        always = np.eye(1, values.shape[1])
        return np.vstack([values, np.full_like(always, self._absent)]), np.vstack([shares, always])
