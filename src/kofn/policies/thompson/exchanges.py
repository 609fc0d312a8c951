"""Draws under constraints: exchange arms of the incumbent for stronger ones, so that the subset stays allowed.

Quotas of disjoint groups: the best exchange of two arms in each draw, or several of those that lead to the best subset
of the draw. It is exact: if no exchange improves a subset in a draw, no allowed subset is better in that draw. Other
rules: exchanges of one arm; exchanges of two arms that are not allowed one by one; and the best subset of a draw that
no such exchange improves. The last is exact where the allowed subsets are listed. Otherwise the solver finds it for
the means and for a few draws.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from kofn.constraints.allowed import Allowed
from kofn.core import FloatArray, IntArray
from kofn.policies.thompson.constants import Constants
from kofn.policies.thompson.posterior import Posterior
from kofn.policies.thompson.sampling import CELLS, _drawn, spread_factor

SOLVED = 2
"""Subsets that the solver finds for one plan: that of the means and those of draws. Higher: slower, and exchanges of
three or more arms are found sooner."""

MOST_PAIRS, PAIRS_TRIED = 2**10, 2**17
"""Most exchanges of two arms for two in one plan, and most that are tried: those with the highest expected gain,
relative to its standard deviation, stay. Higher: slower."""


def allowed_draws(
    posterior: Posterior,
    allowed: Allowed,
    draws: int,
    rng: np.random.Generator,
    constants: Constants,
    dispersion: float = 1.0,
) -> tuple[IntArray, IntArray]:
    """Return the numbers of the draws in which an allowed exchange improves the incumbent, and the subset of each."""
    edges = posterior.partners(allowed)
    stretch = spread_factor(posterior, inside_of(posterior), (edges, edges))
    weakest, strongest = posterior.edges(allowed)
    noise = math.sqrt(dispersion / float(expit(posterior.level) * expit(-posterior.level)))
    free = constants.free * noise
    several = weakest - strongest < free
    moves = _Moves(posterior, allowed) if not allowed.is_quotas else None
    found, each = [], max(1, CELLS // len(posterior.mean))
    for start in range(0, draws, each):
        values = all_drawn(posterior, stretch, min(each, draws - start), rng)
        if moves is not None:
            subsets = moves.best(values, constants.swaps if several else 1, free)
        elif several:
            subsets = _several(posterior, allowed, values, constants.swaps, free)
        else:
            subsets = _exchanged(posterior.incumbent, allowed.exchanges(posterior.incumbent), values)[0]
        found.append(subsets)
    subsets = np.concatenate(found)
    number = np.flatnonzero((subsets != posterior.incumbent).any(axis=1))
    return number, subsets[number]


def strongest_allowed(posterior: Posterior, allowed: Allowed, values: FloatArray) -> IntArray:
    """Return the best allowed subset of each draw; where only a solver finds it, that of the best exchange."""
    return allowed.best(values) if allowed.way.exact else _Moves(posterior, allowed).best(values, 1, 0.0)


def inside_of(posterior: Posterior) -> NDArray[np.bool_]:
    """Return which arms are in the incumbent."""
    inside = np.zeros(len(posterior.mean), bool)
    inside[posterior.incumbent] = True
    return inside


def all_drawn(posterior: Posterior, stretch: FloatArray, draws: int, rng: np.random.Generator) -> FloatArray:
    """Return draws of all effects, a row per draw."""
    contenders = posterior.contenders
    dense = _drawn(posterior.mean[contenders, None], stretch[contenders, None] * posterior.root[1:], draws, rng).T
    if len(contenders) == len(posterior.mean):
        return dense
    spread = stretch * np.sqrt(posterior.variance)
    values = posterior.mean + spread * rng.standard_normal((draws, len(posterior.mean)))
    values[:, contenders] = dense
    return np.asarray(values)


def _exchanged(subset: IntArray, may: NDArray[np.bool_], values: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the subset after the best allowed exchange of each draw, if it is a gain, and the gain.

    Arms that may be exchanged for the same arms are taken together.
    """
    partners, which = np.unique(may, axis=0, return_inverse=True)
    which = which.reshape(-1)
    rows = np.arange(len(values))
    gain, out, into = np.zeros(len(values)), np.full(len(values), -1), np.full(len(values), -1)
    for number, partner in enumerate(partners):
        others = np.flatnonzero(partner)
        if not len(others):
            continue
        own = np.flatnonzero(which == number)
        weakest = values[:, subset[own]].argmin(axis=1)
        strongest = values[:, others].argmax(axis=1)
        more = values[rows, others[strongest]] - values[rows, subset[own[weakest]]]
        better = more > gain
        gain[better], out[better], into[better] = more[better], own[weakest[better]], others[strongest[better]]
    found = np.repeat(subset[None, :], len(values), axis=0)
    improved = np.flatnonzero(out >= 0)
    found[improved, out[improved]] = into[improved]
    found.sort(axis=1)
    return found, gain


# Quotas: several exchanges in one draw.


def _several(posterior: Posterior, allowed: Allowed, values: FloatArray, most: int, free: float) -> IntArray:
    """Return the incumbent after some of the exchanges that lead to the best subset of each draw.

    Arms that leave and arms that come are paired within their group, and the rest in any way: then any of the pairs
    can be exchanged alone. The pair with the largest gain in the draw is exchanged; further ones are, as long as that
    is free by the means.
    """
    incumbent, mean = posterior.incumbent, posterior.mean
    best = allowed.best(values)
    kept = (best[:, :, None] == incumbent).any(axis=1)  # which arms of the incumbent stay
    old = (best[:, :, None] == incumbent).any(axis=2)  # which arms of the best were there
    out, into = _paired(allowed, values, incumbent, kept, best, old)
    row = np.arange(len(values))[:, None]
    gain = np.where(out >= 0, values[row, into] - values[row, out], -np.inf)
    order = np.argsort(-gain, axis=1)[:, :most]
    out, into, gain = (np.take_along_axis(each, order, axis=1) for each in (out, into, gain))
    swapped = gain > 0
    lost = np.maximum(mean[out[:, 1:]] - mean[into[:, 1:]], 0.0)
    swapped[:, 1:] &= np.where(swapped[:, 1:], lost, 0.0).cumsum(axis=1) < free
    swapped = np.logical_and.accumulate(swapped, axis=1)
    found = np.repeat(incumbent[None, :], len(values), axis=0)
    which, place = np.nonzero(swapped)
    found[which, incumbent.searchsorted(out[which, place])] = into[which, place]
    found.sort(axis=1)
    return found


def _paired(
    allowed: Allowed,
    values: FloatArray,
    incumbent: IntArray,
    kept: NDArray[np.bool_],
    best: IntArray,
    old: NDArray[np.bool_],
) -> tuple[IntArray, IntArray]:
    """Return the arms that leave, -1 where one stays, and beside each the arm that comes, in every draw."""
    draws, k = kept.shape
    group = allowed.groups
    row = np.arange(draws)[:, None]
    leaving = _ranked_in_group(values[:, incumbent], np.broadcast_to(group[incumbent], kept.shape), ~kept)
    coming = _ranked_in_group(-values[row, best], group[best], ~old)
    same = (leaving[:, :, None] == coming[:, None, :]) & (leaving >= 0)[:, :, None]
    partner = np.where(same.any(axis=2), same.argmax(axis=2), -1)
    rest_out, rest_in = ~kept & (partner < 0), ~old & ~same.any(axis=1)
    first, second = (np.argsort(~rest, axis=1, kind="stable") for rest in (rest_out, rest_in))
    count = rest_out.sum(axis=1)
    which, place = np.nonzero(np.arange(k) < count[:, None])
    partner[which, first[which, place]] = second[which, place]
    out = np.where(kept, -1, incumbent)
    return out, np.where(kept, 0, np.take_along_axis(best, np.maximum(partner, 0), axis=1))


def _ranked_in_group(values: FloatArray, group: IntArray, chosen: NDArray[np.bool_]) -> IntArray:
    """Return a number for each chosen arm that says its group and its rank among the chosen arms of it; else -1."""
    k = values.shape[1]
    less = (values[:, None, :] < values[:, :, None]) & (group[:, None, :] == group[:, :, None]) & chosen[:, None, :]
    return np.where(chosen, group * k + less.sum(axis=2), -1)


# Other rules.


class _Moves:
    """The exchanges that a plan's draws choose from."""

    def __init__(self, posterior: Posterior, allowed: Allowed) -> None:
        self.posterior, self.allowed = posterior, allowed
        self.may = allowed.exchanges(posterior.incumbent)
        self.pairs = self._find_pairs()
        self.solved = 0

    def best(self, values: FloatArray, swaps: int, free: float) -> IntArray:
        """Return the incumbent after the best exchange of each draw that is a gain."""
        incumbent = self.posterior.incumbent
        found, gain = _exchanged(incumbent, self.may, values)
        own = values[:, incumbent].sum(axis=1)
        found, gain = self._better(found, gain, values, self.pairs)
        stuck = np.flatnonzero(gain <= 0)
        if len(stuck):
            found[stuck], gain[stuck] = self._beyond(found[stuck], gain[stuck], values[stuck])
        if swaps > 1:
            self._further(found, gain, values, own, free, swaps)
        return found

    def _better(
        self, found: IntArray, gain: FloatArray, values: FloatArray, subsets: IntArray
    ) -> tuple[IntArray, FloatArray]:
        """Return the best of these subsets in each draw where it is better than what was found."""
        if not len(subsets):
            return found, gain
        indicator = np.zeros((values.shape[1], len(subsets)))
        indicator[subsets.T, np.arange(len(subsets))] = 1.0
        indicator[self.posterior.incumbent] -= 1.0
        gains = values @ indicator
        best = gains.argmax(axis=1)
        most = gains[np.arange(len(values)), best]
        better = most > np.maximum(gain, 0.0)
        found[better], gain[better] = subsets[best[better]], most[better]
        return found, gain

    def _beyond(self, found: IntArray, gain: FloatArray, values: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return the best subsets of draws that no exchange of one or two arms improves."""
        if self.allowed.way.exact:
            return self._better_each(found, gain, values, self.allowed.best(values))
        left = SOLVED - self.solved
        if left <= 0:
            return found, gain
        asked = np.vstack([self.posterior.mean[None, :], values])[:left] if not self.solved else values[:left]
        self.solved += len(asked)
        return self._better(found, gain, values, np.unique(self.allowed.best(asked), axis=0))

    def _better_each(
        self, found: IntArray, gain: FloatArray, values: FloatArray, subsets: IntArray
    ) -> tuple[IntArray, FloatArray]:
        incumbent = self.posterior.incumbent
        more = np.take_along_axis(values, subsets, axis=1).sum(axis=1) - values[:, incumbent].sum(axis=1)
        better = (more > 0) & (subsets != incumbent).any(axis=1)
        return np.where(better[:, None], subsets, found), np.where(better, more, gain)

    def _further(
        self, found: IntArray, gain: FloatArray, values: FloatArray, own: FloatArray, free: float, swaps: int
    ) -> None:
        """Make further exchanges in each draw, as long as they are allowed, a gain in the draw and free by the means.

        Each step looks at all exchanges of one arm of all draws at once.
        """
        mean, allowed = self.posterior.mean, self.allowed
        matrix, low, high = allowed.rows
        active, lost = np.flatnonzero(gain > 0), np.zeros(len(values))
        for _ in range(1, swaps):
            if not len(active) or len(active) * found.shape[1] * len(mean) * max(1, len(matrix)) > MOST_CHECKED:
                return
            subsets, drawn = found[active], values[active]
            more = drawn[:, None, :] - np.take_along_axis(drawn, subsets, axis=1)[:, :, None]
            more[:, :, allowed.never] = 0.0
            more[allowed.always[subsets]] = 0.0
            more[np.arange(len(active))[:, None, None], :, subsets[:, :, None]] = 0.0
            more[more <= 0] = 0.0
            sums = matrix.T[subsets].sum(axis=1)
            for row in range(len(matrix)):
                after = (sums[:, row, None] - matrix[row][subsets])[:, :, None] + matrix[row]
                more[(after < low[row]) | (after > high[row])] = 0.0
            flat = more.reshape(len(active), -1)
            best = flat.argmax(axis=1)
            out, into = np.divmod(best, len(mean))
            leaving = subsets[np.arange(len(active)), out]
            lost[active] += np.maximum(mean[leaving] - mean[into], 0.0)
            go = (flat[np.arange(len(active)), best] > 0) & (lost[active] < free)
            active, out, into = active[go], out[go], into[go]
            found[active, out] = into
            found[active] = np.sort(found[active], axis=1)

    def _find_pairs(self) -> IntArray:
        """Return allowed subsets with two other arms that are not the result of two exchanges allowed one by one."""
        posterior, allowed = self.posterior, self.allowed
        incumbent, k = posterior.incumbent, len(posterior.incumbent)
        inside = np.array([i for i in range(k) if not allowed.always[incumbent[i]]], np.int64)
        outside = allowed.free[~np.isin(allowed.free, incumbent)]
        if len(inside) < 2 or len(outside) < 2:
            return np.empty((0, k), np.int64)
        outs = np.array(list(itertools.combinations(inside.tolist(), 2)))
        room = max(2, math.isqrt(2 * PAIRS_TRIED // len(outs)))
        if len(outside) > room:  # the arms with the highest upper limits
            reach = posterior.mean[outside] + 2 * np.sqrt(posterior.variance[outside])
            outside = np.sort(outside[np.argsort(-reach)[:room]])
        ins = outside[np.array(list(itertools.combinations(range(len(outside)), 2)))]
        out, into = (each.ravel() for each in np.indices((len(outs), len(ins))))
        a, b, x, y = outs[out, 0], outs[out, 1], ins[into, 0], ins[into, 1]
        one_by_one = (self.may[a, x] & self.may[b, y]) | (self.may[a, y] & self.may[b, x])
        a, b, x, y = (each[~one_by_one] for each in (a, b, x, y))
        matrix = allowed.rows.matrix
        sums = matrix[:, incumbent].sum(axis=1)
        columns = matrix.T
        fits = allowed.rows.hold(sums - columns[incumbent[a]] - columns[incumbent[b]] + columns[x] + columns[y])
        a, b, x, y = (each[fits] for each in (a, b, x, y))
        if len(a) > MOST_PAIRS:
            mean, variance = posterior.mean, posterior.variance
            four = [incumbent[a], incumbent[b], x, y]
            gain = mean[x] + mean[y] - mean[four[0]] - mean[four[1]]
            best = np.argsort(-gain / np.sqrt(sum(variance[each] for each in four)))[:MOST_PAIRS]
            a, b, x, y = (each[best] for each in (a, b, x, y))
        subsets = np.repeat(incumbent[None, :], len(a), axis=0)
        row = np.arange(len(a))
        subsets[row, a], subsets[row, b] = x, y
        return np.sort(subsets, axis=1)


MOST_CHECKED = 2**24
"""Most numbers that one step of several exchanges looks at under other rules than quotas; above, a draw has one
exchange. Higher: slower."""
