"""Rewards: what a subset earns, as a function of what its K arms did.

A reward takes an array whose last axis is K and gives one number per play. `Reward` wraps such a function with what is
known of it, because what is known saves work: the best subset of a symmetric, increasing reward on arms that are
ordered by dominance is simply the K strongest arms. Any callable will do; what is not known of it is found out where
that is cheap, and never assumed.
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
    "utility",
]

RewardFunction: TypeAlias = Callable[[FloatArray], Any]


@dataclass(frozen=True)
class Reward:
    """One number per play, with what is known of the function: True, False, or None for not known.

    >>> second = Reward(lambda x: np.sort(x, axis=-1)[..., -2], "second best", symmetric=True, increasing=True)
    >>> second(np.array([[0.1, 0.7, 0.4], [0.0, 0.0, 1.0]]))
    array([0.4, 0. ])

    `increasing` means that no reward falls when an arm does better; whether it rises strictly is for `Problem.check`.
    """

    fn: RewardFunction
    name: str
    symmetric: bool | None = None
    increasing: bool | None = None

    def __call__(self, x: FloatArray) -> FloatArray:
        """One reward per play: `x` without its last axis."""
        return np.asarray(self.fn(x), np.float64)

    def __repr__(self) -> str:
        return f"<reward {self.name}>"


def _mean(x: FloatArray) -> Any:
    return x.mean(axis=-1)


def _maximum(x: FloatArray) -> Any:
    return x.max(axis=-1)


def _minimum(x: FloatArray) -> Any:
    return x.min(axis=-1)


def _cross_selling(x: FloatArray) -> Any:
    k = x.shape[-1]
    total = x.sum(axis=-1)
    return (total * total + (x * x).sum(axis=-1)) / (
        k * (k + 1)
    )  # sum over j >= i: half of the square, half of the diagonal


mean = Reward(_mean, "mean", symmetric=True, increasing=True)
"""The average of the arms."""

maximum = Reward(_maximum, "maximum", symmetric=True, increasing=True)
"""The best of the arms: a list is useful when one of its items is."""

minimum = Reward(_minimum, "minimum", symmetric=True, increasing=True)
"""The worst of the arms: a job is done when its slowest part is."""

cross_selling = Reward(_cross_selling, "cross-selling", symmetric=True)
"""The paper's quadratic, 2 / (K (K+1)) times the sum of X_i X_j over i <= j. It increases where no arm is negative."""


@dataclass(frozen=True)
class _OfSum:
    """A function of the sum; a class and not a closure, so that it pickles when `fn` does."""

    fn: Callable[[FloatArray], Any]

    def __call__(self, x: FloatArray) -> Any:
        return self.fn(x.sum(axis=-1))


def utility(fn: Callable[[FloatArray], Any], *, increasing: bool | None = None) -> Reward:
    """The reward that is `fn` of the sum of the arms.

    >>> utility(np.sqrt)(np.array([1.0, 1.0, 2.0]))
    array(2.)

    Say `increasing=True` if `fn` is: then the best subset of ordered arms is known without trying them all.
    """
    if not callable(fn):
        raise BadInput(f"utility takes a function of the sum, for instance np.sqrt, not {fn!r}")
    return Reward(_OfSum(fn), f"utility {_name(fn)}", symmetric=True, increasing=increasing)


@dataclass(frozen=True)
class _AtLeast:
    share: float

    def __call__(self, x: FloatArray) -> Any:
        return x.sum(axis=-1) >= self.share * x.shape[-1] - 1e-9


threshold = Reward(_AtLeast(0.5), "threshold", symmetric=True, increasing=True)
"""1 if the arms pay at least half of what they could, else 0."""


_NAMES = {
    "mean": mean,
    "maximum": maximum,
    "max": maximum,
    "minimum": minimum,
    "min": minimum,
    "cross-selling": cross_selling,
    "threshold": threshold,
}


def by_name(name: str) -> Reward:
    """The built-in reward of this name.

    >>> by_name("max")
    <reward maximum>
    """
    try:
        return _NAMES[name]
    except (KeyError, TypeError):
        raise BadInput(f"there is no reward {name!r}: the names are {', '.join(_NAMES)}") from None


def as_reward(reward: Reward | str | RewardFunction) -> Reward:
    """`reward` itself, the built-in one of that name, or a plain callable wrapped with nothing assumed of it."""
    if isinstance(reward, Reward):
        return reward
    if isinstance(reward, str):
        return by_name(reward)
    if not callable(reward):
        raise BadInput(
            f"a reward is a function of an array whose last axis is K, or one of {', '.join(_NAMES)}, not {reward!r}"
        )
    return Reward(reward, _name(reward))


def _name(fn: object) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__))
