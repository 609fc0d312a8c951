"""Thompson sampling from the posterior: draw all effects, swap the incumbent's weakest arms for stronger ones."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_ndtr, ndtri

from kofn.core import FloatArray, IntArray
from kofn.policies.thompson.constants import Constants
from kofn.policies.thompson.posterior import Posterior

CELLS = 2**20
"""Most numbers drawn at once, 8 bytes each. Higher: more memory, fewer blocks."""

GROUPED_FROM = 2**15
"""Number of arms without a dense covariance from which on arms with equal mean and variance are drawn as one group. Of
a million arms, most are still indistinguishable."""

SORTED_AT_ONCE = 32
"""Most values of a draw that are sorted without first looking for the largest; it affects speed only."""

NEAREST, FARTHEST = 1e-3, 30.0
"""Range of differences in log odds for which the likelihood ratio is computed."""


def draw_swaps(
    posterior: Posterior, draws: int, rng: np.random.Generator, constants: Constants, dispersion: float = 1.0
) -> IntArray:
    """Return, for each draw of all effects, the incumbent with its weakest arm swapped for the strongest other arm."""
    subsets = posterior.incumbent[None, :].repeat(draws, axis=0)
    better, swapped = draws_that_swap(posterior, draws, rng, constants, dispersion)
    subsets[better] = swapped
    return subsets


def draws_that_swap(
    posterior: Posterior, draws: int, rng: np.random.Generator, constants: Constants, dispersion: float = 1.0
) -> tuple[IntArray, IntArray]:
    """Return the numbers of the draws in which the strongest other arm is better than the incumbent's weakest arm, and
    the subset of each: the incumbent with these two arms swapped.

    A draw also swaps the next weakest arm for the next strongest, and so on, as long as that is an improvement in that
    draw and costs next to nothing by the means. Arms are drawn block by block and only the extremes are kept, so
    memory does not grow with draws * N.
    """
    mean, incumbent = posterior.mean, posterior.incumbent
    inside = np.zeros(len(mean), bool)
    inside[incumbent] = True
    edges = posterior.edges()
    stretch = spread_factor(posterior, inside, edges, constants.stretch)
    most = min(constants.swaps, len(incumbent), len(mean) - len(incumbent))
    weakest, strongest = _drawn_extremes(posterior, inside, stretch, most, draws, rng)
    better = (strongest.highest > -weakest.highest).nonzero()[0]
    if not len(better):
        return better, incumbent[None, :].repeat(0, axis=0)
    noise = math.sqrt(dispersion / float(expit(posterior.level) * expit(-posterior.level)))
    most = most if edges[0] - edges[1] < constants.free * noise else 1
    leave, come = weakest.ranked(better, most), strongest.ranked(better, most)
    arms = come.arm if most == 1 else _paying_arms(leave, come, mean, constants.free * noise)
    if most < len(incumbent):
        arms, changed = incumbent[:, None].repeat(len(better), axis=1), arms
        arms[incumbent.searchsorted(leave.arm), np.arange(len(better))] = changed
    return better, np.sort(arms.T, axis=1)


def _paying_arms(leave: _Extremes, come: _Extremes, mean: FloatArray, free: float) -> IntArray:
    """Return the arms that take the places of those that may leave: others, as long as that pays and is free.

    Values are ranked and losses add up, so no swap follows one that is not made.
    """
    swapped = come.value > -leave.value
    lost = np.maximum(mean[leave.arm[1:]] - mean[come.arm[1:]], 0.0).cumsum(axis=0)
    swapped[1:] &= lost < free
    return np.where(swapped, come.arm, leave.arm)


def _drawn_extremes(
    posterior: Posterior,
    inside: NDArray[np.bool_],
    stretch: FloatArray,
    most: int,
    draws: int,
    rng: np.random.Generator,
) -> tuple[_Extremes, _Extremes]:
    """Return the weakest arms of the incumbent in each draw, their values negated, and the strongest other arms."""
    mean, contenders = posterior.mean, posterior.contenders
    dense = _drawn(mean[contenders, None], stretch[contenders, None] * posterior.root[1:], draws, rng)
    within = inside[contenders]
    own, others = within.nonzero()[0], (~within).nonzero()[0]
    weakest = _Extremes(-dense.take(own, axis=0), contenders[own], most)
    strongest = _Extremes(dense.take(others, axis=0), contenders[others], most)
    if len(contenders) < len(mean):
        sparse = np.ones(len(mean), bool)  # arms without a dense covariance
        sparse[contenders] = False
        spread = stretch * np.sqrt(posterior.variance)
        for sign, side, extremes in ((-1.0, inside, weakest), (1.0, ~inside, strongest)):
            others = (side & sparse).nonzero()[0]
            see = _see_groups if len(others) > GROUPED_FROM else _see_each
            see(extremes, sign, others, mean, spread, rng)
    return weakest, strongest


def _drawn(mean: FloatArray, root: FloatArray, draws: int, rng: np.random.Generator) -> FloatArray:
    """Return draws from N(mean, root root^T), a column per draw.

    The second half of the draws mirrors the first half about the mean (antithetic): half the work, and averages over
    all draws vary less.
    """
    first = (draws + 1) // 2
    deviation = root.dot(rng.standard_normal((root.shape[1], first)))
    drawn = np.empty((len(mean), draws))
    np.add(mean, deviation, out=drawn[:, :first])
    np.subtract(mean, deviation[:, : draws - first], out=drawn[:, first:])
    return drawn


def spread_factor(
    posterior: Posterior,
    inside: NDArray[np.bool_],
    edges: tuple[float, float] | tuple[FloatArray, FloatArray],
    exponent: float = 1.0,
) -> FloatArray:
    """Return the factor by which each arm's draws are spread wider than its standard deviation.

    A draw matters where an arm passes the arm that it could be swapped with, at the incumbent's odds. The Gaussian at
    the mode puts that point too far away at high odds, and too near at low odds. The factor puts it as many standard
    deviations away as the square root of the likelihood ratio of n plays, 2 n KL(value, incumbent's value), says.

    The factor applies only as far as an arm has been played. Otherwise, among a hundred thousand arms, an unknown
    arm would nearly always have the strongest draw. `exponent` is `Constants.stretch`; at 0, all factors are 1.
    """
    mean, (weakest, strongest) = posterior.mean, edges
    below = np.where(inside, mean - strongest, weakest - mean)
    below = np.minimum(np.maximum(below, NEAREST), FARTHEST)
    # At a high level, failures are counted instead: equal, but rounding would hide differences between values near 1.
    sign = -1.0 if posterior.level > 0 else 1.0
    below *= sign
    odds = sign * posterior.level - below
    value = expit(odds)
    divergence = np.log1p(value * np.expm1(below)) - value * below
    stretch = np.sqrt(value * expit(-odds) / (2 * divergence)) * (sign * below)
    played = np.maximum(1 - posterior.variance / posterior.prior_variance, 0.0)
    return np.asarray(stretch ** (exponent * played), float)


class _Extremes:
    """The `most` largest values of each draw so far, and the arms that have them; a column per draw.

    Operations along the draws take a fraction of the time of those along the few arms.
    """

    def __init__(self, value: FloatArray, arm: IntArray, most: int) -> None:
        """Start with these values, one arm per row; they are reduced to the largest when more are seen.

        `arm` has the arm of each row, or of each value.
        """
        self.value, self.arm, self.most = value, arm, most

    @property
    def highest(self) -> FloatArray:
        """The largest value of each draw."""
        return np.asarray(self.value.max(axis=0))

    def see(self, values: FloatArray, arms: IntArray) -> None:
        """Include the values of more arms, one per row; `arms` may differ between draws."""
        # Many arms: the values of a draw are next to each other in memory, so that the largest are found faster.
        self.arm = np.hstack([_of_each(self.arm, self.value).T, _of_each(arms, values).T]).T
        self.value = np.hstack([self.value.T, values.T]).T
        self._reduce()

    def ranked(self, draws: IntArray, most: int) -> _Extremes:
        """Return the `most` largest values of these draws, in decreasing order."""
        arm = self.arm if self.arm.ndim == 1 else self.arm.take(draws, axis=1)
        kept = _Extremes(self.value.take(draws, axis=1), arm, most)
        if most == 1:
            kept._take(kept.value.argmax(axis=0)[None, :])
        else:
            if len(kept.value) > SORTED_AT_ONCE:
                kept._reduce()
            kept._take((-kept.value).argsort(axis=0)[:most])
        return kept

    def _reduce(self) -> None:
        if len(self.value) > self.most:
            self._take((-self.value.T).argpartition(self.most - 1, axis=1)[:, : self.most].T)

    def _take(self, row: IntArray) -> None:
        column = np.arange(row.shape[1])
        self.value = self.value[row, column]
        self.arm = self.arm[row] if self.arm.ndim == 1 else self.arm[row, column]


def _of_each(arm: IntArray, value: FloatArray) -> IntArray:
    """Return the arm of each value, from that or from the arm of each row."""
    return np.broadcast_to(arm[:, None] if arm.ndim == 1 else arm, value.shape)


def _see_each(
    extremes: _Extremes,
    sign: float,
    others: IntArray,
    mean: FloatArray,
    spread: FloatArray,
    rng: np.random.Generator,
) -> None:
    """Draw these arms one by one."""
    draws = extremes.value.shape[1]
    for start in range(0, len(others), width := max(1, CELLS // draws)):
        arms = others[start : start + width]
        z = rng.standard_normal((draws, len(arms)))
        extremes.see(sign * (mean[arms] + z * spread[arms]).T, arms)


def _see_groups(
    extremes: _Extremes,
    sign: float,
    others: IntArray,
    mean: FloatArray,
    spread: FloatArray,
    rng: np.random.Generator,
) -> None:
    """Draw very many arms by groups of equal mean and spread: only the few largest draws of a group matter.

    The largest of n uniform numbers is distributed as u^(1/n), the next as that times u^(1/(n-1)), and so on. The
    arms that have them are drawn uniformly from the group. The largest draws of all are in the groups with the largest
    first draws.
    """
    order = others[np.lexsort((spread[others], mean[others]))]
    centre, wide = mean[order], spread[order]
    first = np.flatnonzero(np.concatenate([[True], (np.diff(centre) != 0) | (np.diff(wide) != 0)]))
    sizes = np.diff(np.append(first, len(order)))
    draws, most = extremes.value.shape[1], extremes.most
    _see_each(extremes, sign, order[np.repeat(sizes <= most, sizes)], mean, spread, rng)
    first, sizes = first[sizes > most], sizes[sizes > most]
    groups = _Extremes(np.empty((0, draws)), np.empty(0, np.int64), most)
    for start in range(0, len(first), width := max(1, CELLS // draws)):
        part = slice(start, start + width)
        z = -ndtri(-np.expm1(np.log1p(-rng.random((draws, len(first[part])))) / sizes[part]))
        groups.see((sign * centre[first[part]] + z * wide[first[part]]).T, np.arange(len(first))[part])
    if len(first):
        group = groups.arm.T
        middle, scale = sign * centre[first[group]], wide[first[group]]
        left = sizes[group][..., None] - np.arange(most)
        largest = log_ndtr((groups.value.T - middle) / scale)[..., None]
        smaller = np.log1p(-rng.random((*group.shape, most - 1))) / left[..., 1:]
        z = -ndtri(-np.expm1(np.concatenate([largest, smaller], axis=2).cumsum(axis=2)))
        member = distinct_integers(rng.random(left.shape), left)
        arms = order[first[group][..., None] + member]
        extremes.see((middle[..., None] + z * scale[..., None]).reshape(draws, -1).T, arms.reshape(draws, -1).T)


def distinct_integers(uniform: FloatArray, left: IntArray) -> IntArray:
    """Return distinct integers along the last axis; `left` counts the integers that are still free at each place."""
    drawn = (uniform * left).astype(np.int64)
    for last in range(1, drawn.shape[-1]):
        for earlier in np.moveaxis(np.sort(drawn[..., :last], axis=-1), -1, 0):
            drawn[..., last] += drawn[..., last] >= earlier
    return drawn
