"""The base class of arms: what a distribution must provide, and what follows from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kofn.core import BadInput, FloatArray, IntArray

Support: TypeAlias = tuple[FloatArray, FloatArray]
"""Values and probabilities, a row per arm; short rows are padded with values of probability 0."""

CELLS = 2**20
"""Numbers in a block of work. A larger block needs more memory."""


class Ordering(NamedTuple):
    """The arms, weakest first, and whether neighbours cross or are equal; dominance is transitive, so that suffices."""

    order: IntArray
    crosses: NDArray[np.bool_]
    equal: NDArray[np.bool_]


class Arms(ABC):
    """N arms of one distribution. A subclass implements `draw`, the moments, `cdf` and `survival`."""

    continuous: bool = False
    independent: bool = True  # arms pay independently of each other
    n_arms: int
    low: float = 0.0
    high: float = 1.0

    @abstractmethod
    def draw(self, arms: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw one reward for each entry of `arms`; the result has its shape."""

    @property
    @abstractmethod
    def mean(self) -> FloatArray:
        """E X of each arm."""

    @property
    @abstractmethod
    def second_moment(self) -> FloatArray:
        """E X^2 of each arm."""

    @abstractmethod
    def cdf(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        """Return P(X <= x): a row per arm (all, or the given ones), each in the shape of `x`."""

    @abstractmethod
    def survival(self, x: ArrayLike, arms: IntArray | None = None) -> FloatArray:
        """Return P(X >= x): a row per arm (all, or the given ones), each in the shape of `x`."""

    @property
    def support(self) -> Support | None:
        """The values of each arm and their probabilities, if they are few, else None."""
        return None

    @cached_property
    def ordering(self) -> Ordering:
        """The arms by mean, and which neighbours cross or are equal."""
        order = np.argsort(self.mean, kind="stable")
        signs = [self._signs(i, j)[0] for i, j in pairwise(order.tolist())]
        crosses = [above and below for above, below in signs]
        equal = [not above and not below for above, below in signs]
        return Ordering(order, np.array(crosses, np.bool_), np.array(equal, np.bool_))

    @property
    def strength(self) -> FloatArray | None:
        """A number per arm, larger for an arm that dominates another, equal for equal arms; None if any two cross."""
        order, crosses, equal = self.ordering
        if crosses.any():
            return None
        ranks = np.zeros(self.n_arms)
        ranks[order[1:]] = np.cumsum(~equal)
        return ranks

    def crossing(self, i: int, j: int) -> tuple[float, float] | None:
        """Return an x where P(X_i >= x) is larger and one where P(X_j >= x) is, or None if one arm dominates."""
        (above, below), (x, y) = self._signs(i, j)
        return (x, y) if above and below else None

    def _signs(self, i: int, j: int) -> tuple[tuple[bool, bool], tuple[float, float]]:
        x = self._points(i, j)
        first, second = self.survival(x, np.array([i, j]))
        ahead = first - second
        here, there = int(np.argmax(ahead)), int(np.argmin(ahead))
        noise = 1e-12 if self.continuous else 0.0
        return (bool(ahead[here] > noise), bool(ahead[there] < -noise)), (float(x[here]), float(x[there]))

    def _points(self, i: int, j: int) -> FloatArray:
        """Return where the survival functions of two arms are compared."""
        return np.linspace(self.low, self.high, 1025)

    def __len__(self) -> int:
        return self.n_arms

    def __repr__(self) -> str:
        return f"<{self.n_arms} {type(self).__name__} arms>"


class ArmsByMoments(Arms):
    """Arms whose moments have a formula: a subclass implements `_moment`."""

    @cached_property
    def mean(self) -> FloatArray:
        """E X of each arm, to about 1e-15."""
        return self._moment(1)

    @cached_property
    def second_moment(self) -> FloatArray:
        """E X^2 of each arm, to about 1e-15."""
        return self._moment(2)

    @abstractmethod
    def _moment(self, power: int) -> FloatArray:
        """Return E X^power of each arm."""


def blocks(rows: int, width: int) -> Iterator[slice]:
    """Return slices that cover `rows` rows, each of about a million cells; a row has `width` cells."""
    size = max(1, CELLS // max(1, width))
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def numbers(name: str, values: ArrayLike) -> FloatArray:
    """Return a read-only array of the values, checked to be finite numbers."""
    try:
        array = np.array(values, np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"{name} must be a list of numbers, not {values!r}") from None
    if array.ndim != 1 or not array.size:
        raise BadInput(f"{name} must be a list of at least one number; got an array of shape {array.shape}")
    require(name, array, np.isfinite(array), "finite numbers")
    array.flags.writeable = False
    return array


def two_parameters(one: str, first: ArrayLike, other: str, second: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return two parameters per arm as arrays; a single number applies to all arms."""
    try:
        both = np.broadcast_arrays(np.atleast_1d(first), np.atleast_1d(second))
    except ValueError:
        raise BadInput(
            f"{one} and {other} must have one number per arm; got {np.size(first)} and {np.size(second)} numbers"
        ) from None
    return numbers(one, both[0]), numbers(other, both[1])


def require(name: str, values: FloatArray, fine: NDArray[np.bool_], what: str) -> None:
    """Raise BadInput for the first value that is not fine."""
    if not fine.all():
        worst = int(np.argmin(fine))
        raise BadInput(f"{name} must be {what}; {name}[{worst}] is {values[worst]:g}")


def column(x: ArrayLike, first: FloatArray, arms: IntArray | None, *more: FloatArray) -> tuple[FloatArray, ...]:
    """Return x and the parameters of the chosen arms, shaped so that the first axis is the arm."""
    x = np.asarray(x, np.float64)
    chosen = [each if arms is None else each[arms] for each in (first, *more)]
    return (x, *(each.reshape(-1, *[1] * x.ndim) for each in chosen))
