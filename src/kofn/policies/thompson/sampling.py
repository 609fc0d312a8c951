"""Thompson sampling from the posterior: draw all effects, swap the incumbent's weakest arms for stronger ones."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_ndtr, ndtri

from kofn.core import FloatArray, IntArray
from kofn.policies.thompson.constants import Constants
from kofn.policies.thompson.posterior import Posterior, cholesky

CELLS = 2**20
"""Most numbers drawn at once, 8 bytes each. Higher: more memory, fewer blocks."""

GROUPED_FROM = 2**15
"""Number of arms without a dense covariance from which on arms with equal mean and variance are drawn as one group. Of
a million arms, most are still indistinguishable."""

NEAREST, FARTHEST = 1e-3, 30.0
"""Range of differences in log odds for which the likelihood ratio is computed."""


def draw_swaps(
    posterior: Posterior, draws: int, rng: np.random.Generator, constants: Constants, dispersion: float = 1.0
) -> IntArray:
    """Return, for each draw of all effects, the incumbent with its weakest arm swapped for the strongest other arm.

    A draw also swaps the next weakest arm for the next strongest, and so on, as long as that is an improvement in that
    draw and costs next to nothing by the means. Arms are drawn block by block and only the extremes are kept, so
    memory does not grow with draws * N.
    """
    mean, incumbent, contenders = posterior.mean, posterior.incumbent, posterior.contenders
    place = np.full(len(mean), -1)  # in the incumbent
    place[incumbent] = np.arange(len(incumbent))
    inside = place >= 0
    sparse = np.ones(len(mean), bool)  # arms without a dense covariance
    sparse[contenders] = False
    stretch = spread_factor(posterior, inside)
    z = rng.standard_normal((draws, len(contenders))) @ cholesky(posterior.covariance[1:, 1:]).T
    dense = mean[contenders] + stretch[contenders] * z
    spread = stretch * np.sqrt(posterior.variance)
    most = min(constants.swaps, len(incumbent), len(mean) - len(incumbent))
    found = []
    for sign, side in ((-1.0, inside), (1.0, ~inside)):
        chosen = side[contenders]
        extremes = _Extremes(sign * dense[:, chosen], contenders[chosen], most)
        others = np.flatnonzero(side & sparse)
        see = _see_groups if len(others) > GROUPED_FROM else _see_each
        see(extremes, sign, others, mean, spread, rng)
        found.append(extremes)
    weakest, strongest = found
    subsets = np.repeat(incumbent[None, :], draws, axis=0)
    better = (strongest.highest > -weakest.highest).nonzero()[0]
    if len(better):
        noise = math.sqrt(dispersion / float(expit(posterior.level) * expit(-posterior.level)))
        free = float(mean[incumbent].min() - mean[~inside].max()) < constants.free * noise
        for extremes in found:
            extremes.rank(better, most if free else 1)
        swapped = strongest.value > -weakest.value
        lost = np.maximum(mean[weakest.arm[:, 1:]] - mean[strongest.arm[:, 1:]], 0.0).cumsum(axis=1)
        swapped[:, 1:] &= lost < constants.free * noise
        arms = np.where(np.logical_and.accumulate(swapped, axis=1), strongest.arm, weakest.arm)
        rows = subsets[better]
        rows[np.arange(len(better))[:, None], place[weakest.arm]] = arms
        rows.sort(axis=1)
        subsets[better] = rows
    return subsets


def spread_factor(posterior: Posterior, inside: NDArray[np.bool_]) -> FloatArray:
    """Return the factor by which each arm's draws are spread wider than its standard deviation.

    A draw matters where an arm passes the arm that it could be swapped with, at the incumbent's odds. The Gaussian at
    the mode puts that point too far away at high odds, and too near at low odds. The factor puts it as many standard
    deviations away as the square root of the likelihood ratio of n plays, 2 n KL(value, incumbent's value), says.

    The factor applies only as far as an arm has been played. Otherwise, of a hundred thousand arms, the strongest draw
    would nearly always be that of an unknown arm.
    """
    mean = posterior.mean
    weakest, strongest = mean[inside].min(), mean[~inside].max()
    below = np.clip(np.where(inside, mean - strongest, weakest - mean), NEAREST, FARTHEST)
    odds = posterior.level - below
    value, rest = expit(odds), expit(-odds)
    divergence = np.where(
        odds > 0,
        rest * below + np.log1p(rest * np.expm1(-below)),  # equal to the other form, without its rounding at high odds
        np.log1p(value * np.expm1(below)) - value * below,
    )
    stretch = np.sqrt(value * rest / (2 * divergence)) * below
    played = np.clip(1 - posterior.variance / posterior.prior_variance, 0.0, 1.0)
    return np.asarray(stretch**played, float)


class _Extremes:
    """The `most` largest values of each draw so far, and the arms that have them."""

    def __init__(self, value: FloatArray, arms: IntArray, most: int) -> None:
        """Start with these values, one arm per column; they are reduced to the largest when more are seen."""
        self.value = value
        self.arm = np.broadcast_to(arms, value.shape)
        self.most = most

    @property
    def highest(self) -> FloatArray:
        """The largest value of each draw."""
        return np.asarray(self.value.max(axis=1))

    def see(self, values: FloatArray, arms: IntArray) -> None:
        """Include the values of more arms, one per column; `arms` may differ between draws."""
        self.arm = np.hstack([self.arm, np.broadcast_to(arms, values.shape)])
        self.value = np.hstack([self.value, values])
        self._reduce()

    def rank(self, draws: IntArray, most: int) -> None:
        """Keep these draws only, with their `most` largest values in decreasing order."""
        self.value, self.arm, self.most = self.value[draws], self.arm[draws], most
        if most == 1:
            self._take(self.value.argmax(axis=1)[:, None])
        else:
            self._reduce()
            self._take((-self.value).argsort(axis=1))

    def _reduce(self) -> None:
        if self.value.shape[1] > self.most:
            self._take((-self.value).argpartition(self.most - 1, axis=1)[:, : self.most])

    def _take(self, column: IntArray) -> None:
        row = np.arange(len(column))[:, None]
        self.value, self.arm = self.value[row, column], self.arm[row, column]


def _see_each(
    extremes: _Extremes,
    sign: float,
    others: IntArray,
    mean: FloatArray,
    spread: FloatArray,
    rng: np.random.Generator,
) -> None:
    """Draw these arms one by one."""
    draws = len(extremes.value)
    for start in range(0, len(others), width := max(1, CELLS // draws)):
        arms = others[start : start + width]
        z = rng.standard_normal((draws, len(arms)))
        extremes.see(sign * (mean[arms] + z * spread[arms]), arms)


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
    draws, most = len(extremes.value), extremes.most
    _see_each(extremes, sign, order[np.repeat(sizes <= most, sizes)], mean, spread, rng)
    first, sizes = first[sizes > most], sizes[sizes > most]
    groups = _Extremes(np.empty((draws, 0)), np.empty(0, np.int64), most)
    for start in range(0, len(first), width := max(1, CELLS // draws)):
        part = slice(start, start + width)
        z = -ndtri(-np.expm1(np.log1p(-rng.random((draws, len(first[part])))) / sizes[part]))
        groups.see(sign * centre[first[part]] + z * wide[first[part]], np.arange(len(first))[part])
    if len(first):
        middle, scale = sign * centre[first[groups.arm]], wide[first[groups.arm]]
        left = sizes[groups.arm][..., None] - np.arange(most)
        largest = log_ndtr((groups.value - middle) / scale)[..., None]
        smaller = np.log1p(-rng.random((*groups.arm.shape, most - 1))) / left[..., 1:]
        z = -ndtri(-np.expm1(np.concatenate([largest, smaller], axis=2).cumsum(axis=2)))
        member = distinct_integers(rng.random(left.shape), left)
        arms = order[first[groups.arm][..., None] + member]
        extremes.see((middle[..., None] + z * scale[..., None]).reshape(draws, -1), arms.reshape(draws, -1))


def distinct_integers(uniform: FloatArray, left: IntArray) -> IntArray:
    """Return distinct integers along the last axis; `left` counts the integers that are still free at each place."""
    drawn = (uniform * left).astype(np.int64)
    for last in range(1, drawn.shape[-1]):
        for earlier in np.moveaxis(np.sort(drawn[..., :last], axis=-1), -1, 0):
            drawn[..., last] += drawn[..., last] >= earlier
    return drawn
