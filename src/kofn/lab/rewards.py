"""Rewards: what a subset earns, as a function of what its K arms paid.

A reward takes an array whose last axis is K and returns one number per play. `Reward` wraps such a function with its
known properties, which save work: the best subset of a symmetric, increasing reward of arms that are ordered by
dominance is the K strongest arms. Any callable is accepted. Properties that are not declared are tested where that is
cheap, and never assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from kofn.core import BadInput, FloatArray

__all__ = [
    "Reward",
    "as_reward",
    "by_name",
    "cross_selling",
    "maximum",
    "mean",
    "minimum",
    "threshold",
    "total",
    "utility",
]

RewardFunction: TypeAlias = Callable[[FloatArray], Any]
Bounds: TypeAlias = Callable[[float, float, int], tuple[float, float]]
"""Returns the smallest and the largest reward, from the smallest and the largest value of an arm, and K."""


@dataclass(frozen=True)
class Reward:
    """A reward function with its name and properties: True, False, or None for not known.

    >>> second = Reward(lambda x: np.sort(x, axis=-1)[..., -2], "second best", symmetric=True, increasing=True)
    >>> second(np.array([[0.1, 0.7, 0.4], [0.0, 0.0, 1.0]]))
    array([0.4, 0. ])

    `increasing` means that the reward never falls when an arm pays more. `Problem.check` tests if it rises strictly.
    `bounds(low, high, k)` returns the smallest and the largest reward of K arms that pay from `low` to `high`. With it,
    a problem whose rewards are not in [0, 1] knows its `reward_range`.
    """

    fn: RewardFunction
    name: str
    symmetric: bool | None = None
    increasing: bool | None = None
    bounds: Bounds | None = None

    def __call__(self, x: FloatArray) -> FloatArray:
        """Return one reward per play: the shape of `x` without its last axis."""
        return np.asarray(self.fn(x), np.float64)

    def __repr__(self) -> str:
        return f"<reward {self.name}>"


def _mean(x: FloatArray) -> Any:
    return x.mean(axis=-1)


def _total(x: FloatArray) -> Any:
    return x.sum(axis=-1)


def _maximum(x: FloatArray) -> Any:
    return x.max(axis=-1)


def _minimum(x: FloatArray) -> Any:
    return x.min(axis=-1)


def _cross_selling(x: FloatArray) -> Any:
    k = x.shape[-1]
    total = x.sum(axis=-1)
    # The sum over i <= j is half of (the sum over all pairs + the diagonal).
    return (total * total + (x * x).sum(axis=-1)) / (k * (k + 1))


def _as_an_arm(low: float, high: float, k: int) -> tuple[float, float]:
    del k
    return low, high


def _as_k_arms(low: float, high: float, k: int) -> tuple[float, float]:
    return k * low, k * high


mean = Reward(_mean, "mean", symmetric=True, increasing=True, bounds=_as_an_arm)
"""The average of the arms."""

total = Reward(_total, "sum", symmetric=True, increasing=True, bounds=_as_k_arms)
"""The sum of the arms. It is named "sum"; K arms in [0, 1] earn from 0 to K."""

maximum = Reward(_maximum, "maximum", symmetric=True, increasing=True, bounds=_as_an_arm)
"""The maximum of the arms: a list is useful if one of its items is."""

minimum = Reward(_minimum, "minimum", symmetric=True, increasing=True, bounds=_as_an_arm)
"""The minimum of the arms: a chain is as strong as its weakest link."""

cross_selling = Reward(_cross_selling, "cross-selling", symmetric=True)
"""The paper's quadratic, 2 / (K (K+1)) times the sum of X_i X_j over i <= j. It increases if no arm is negative."""


@dataclass(frozen=True)
class _OfSum:
    """A function of the sum; a class instead of a closure, so that it can be pickled if `fn` can."""

    fn: Callable[[FloatArray], Any]

    def __call__(self, x: FloatArray) -> Any:
        return self.fn(x.sum(axis=-1))


def utility(fn: Callable[[FloatArray], Any], *, increasing: bool | None = None) -> Reward:
    """Return the reward `fn(sum of the arms)`.

    >>> utility(np.sqrt)(np.array([1.0, 1.0, 2.0]))
    array(2.)

    Pass `increasing=True` if `fn` is increasing: then the best subset of ordered arms needs no search.
    """
    if not callable(fn):
        raise BadInput(f"fn must be a function of the sum, for instance np.sqrt, not {fn!r}")
    return Reward(_OfSum(fn), f"utility {_name(fn)}", symmetric=True, increasing=increasing)


@dataclass(frozen=True)
class _AtLeast:
    share: float

    def __call__(self, x: FloatArray) -> Any:
        return x.sum(axis=-1) >= self.share * x.shape[-1] - 1e-9


threshold = Reward(_AtLeast(0.5), "threshold", symmetric=True, increasing=True)
"""1 if the arms pay at least half of their maximum, else 0."""


_NAMES = {
    "mean": mean,
    "sum": total,
    "maximum": maximum,
    "max": maximum,
    "minimum": minimum,
    "min": minimum,
    "cross-selling": cross_selling,
    "threshold": threshold,
}


def by_name(name: str) -> Reward:
    """Return the built-in reward of this name.

    >>> by_name("max")
    <reward maximum>
    """
    try:
        return _NAMES[name]
    except (KeyError, TypeError):
        raise BadInput(f"there is no reward {name!r}; the names are {', '.join(_NAMES)}") from None


def as_reward(reward: Reward | str | RewardFunction) -> Reward:
    """Return `reward` itself, the built-in reward of that name, or a callable wrapped without declared properties."""
    if isinstance(reward, Reward):
        return reward
    if isinstance(reward, str):
        return by_name(reward)
    if not callable(reward):
        raise BadInput(
            f"reward must be a function of an array whose last axis is K, or one of {', '.join(_NAMES)}, not {reward!r}"
        )
    return Reward(reward, _name(reward))


def _name(fn: object) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__))
