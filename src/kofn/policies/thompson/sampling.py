"""Thompson sampling from the posterior: draw all effects, swap the incumbent's weakest arms for stronger ones."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from kofn.core import FloatArray, IntArray
from kofn.policies.thompson.constants import Constants
from kofn.policies.thompson.posterior import Posterior

CELLS, FEWEST = 2**21, 16
"""Most numbers drawn for one plan, 8 bytes each, and the fewest draws all the same. More cells: more different subsets
in a plan where there are many thousands of arms, more memory and time."""

SORTED_AT_ONCE = 32
"""Most values of a draw that are sorted without first looking for the largest; it affects speed only."""


def draws_that_swap(
    posterior: Posterior, draws: int, rng: np.random.Generator, constants: Constants, dispersion: float = 1.0
) -> tuple[IntArray, IntArray]:
    """Return the numbers of the draws in which the strongest other arm is better than the incumbent's weakest arm, and
    the subset of each: the incumbent with these two arms swapped.

    A draw also swaps the next weakest arm for the next strongest, and so on, as long as that is an improvement in that
    draw and costs next to nothing by the means.
    """
    mean, incumbent = posterior.mean, posterior.incumbent
    values = drawn_effects(posterior, draws, rng, constants.narrow)
    others = np.delete(np.arange(len(mean)), incumbent)
    own, other = values[incumbent], values[others]
    better = (other.max(axis=0) > own.min(axis=0)).nonzero()[0]
    own, other = own[:, better], other[:, better]
    free = constants.free * noise_at(posterior, dispersion)
    close = mean[incumbent].min() - mean[others].max() < free
    most = min(constants.swaps, len(incumbent), len(others)) if close else 1
    leave, come = _lowest(own, most), _lowest(-other, most)
    column = np.arange(len(better))
    pays = other[come, column] > own[leave, column]
    # Values are ranked and losses add up, so no swap follows one that is not made.
    lost = np.maximum(mean[incumbent[leave[1:]]] - mean[others[come[1:]]], 0.0).cumsum(axis=0)
    pays[1:] &= lost < free
    subsets = incumbent[:, None].repeat(len(better), axis=1)
    subsets[leave, column] = np.where(pays, others[come], incumbent[leave])
    return better, np.sort(subsets.T, axis=1)


def drawn_effects(posterior: Posterior, draws: int, rng: np.random.Generator, narrow: float) -> FloatArray:
    """Return draws of all effects, a row per arm and a column per draw.

    Half of the draws deviate from the mean `narrow` times as far as the others. The second half of the columns mirrors
    the first about the mean (antithetic): half the work, and averages over all draws vary less.
    """
    first = (draws + 1) // 2
    contenders, deviation = (
        posterior.contenders,
        posterior.root[1:].dot(rng.standard_normal((len(posterior.root), first))),
    )
    if len(contenders) < len(posterior.mean):
        dense = deviation
        deviation = rng.standard_normal((len(posterior.mean), first))
        deviation *= np.sqrt(posterior.variance)[:, None]
        deviation[contenders] = dense
    deviation[:, rng.permutation(first)[: first // 2]] *= narrow
    drawn = np.empty((len(posterior.mean), draws))
    np.add(posterior.mean[:, None], deviation, out=drawn[:, :first])
    np.subtract(posterior.mean[:, None], deviation[:, : draws - first], out=drawn[:, first:])
    return drawn


def most_draws(draws: int, n_arms: int) -> int:
    """Return `draws`, or fewer where there are many arms."""
    return min(draws, max(FEWEST, CELLS // n_arms))


def noise_at(posterior: Posterior, dispersion: float) -> float:
    """Return the standard deviation of one reward of the incumbent, in log odds."""
    return math.sqrt(dispersion / float(expit(posterior.level) * expit(-posterior.level)))


def _lowest(values: FloatArray, most: int) -> NDArray[np.int64]:
    """Return the rows of the `most` lowest values of each column, in increasing order."""
    if most == 1:
        return np.asarray(values.argmin(axis=0))[None, :]
    if len(values) <= SORTED_AT_ONCE:
        return np.asarray(values.argsort(axis=0)[:most])
    rows = np.ascontiguousarray(values.T)  # the values of a draw next to each other: partitions are faster
    few = rows.argpartition(most - 1, axis=1)[:, :most]
    order = np.take_along_axis(rows, few, axis=1).argsort(axis=1)
    return np.asarray(np.take_along_axis(few, order, axis=1).T)
