"""Draws under constraints: exchange arms of the incumbent for stronger ones, so that the subset stays allowed.

Quotas of disjoint groups: the best exchange of two arms in each draw. It is exact: if no exchange improves a subset in
a draw, no allowed subset is better in that draw. Several exchanges at once would explore in all groups together, and
cost more than they show. Other rules: exchanges of one arm; exchanges of two arms that are not allowed one by one; and
the best subset of a draw that no such exchange improves. The last is exact where the allowed subsets are listed.
Otherwise the solver finds it for the means and for a few draws.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from kofn.constraints.allowed import Allowed
from kofn.core import FloatArray, IntArray
from kofn.policies.thompson.constants import Constants
from kofn.policies.thompson.posterior import Posterior
from kofn.policies.thompson.sampling import drawn_effects, noise_at

SOLVED = 2
"""Subsets that the solver finds for one plan: one for the means, the others for draws. Higher: slower, but finds
exchanges of three or more arms sooner."""

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
    _, weakest, strongest = posterior.partners(allowed)
    free = constants.free * noise_at(posterior, dispersion)
    swaps = constants.swaps if weakest - strongest < free else 1  # under other rules than quotas
    moves = None if allowed.is_quotas else _Moves(posterior, allowed)
    values = drawn_effects(posterior, draws, rng, constants.narrow).T
    if moves is None:
        rows, subsets, _ = _exchanged(posterior, allowed, values)
        return rows, subsets
    return moves.best(values, swaps, free)


def strongest_allowed(posterior: Posterior, allowed: Allowed, values: FloatArray) -> IntArray:
    """Return the best allowed subset of each draw, or the best exchange where only a solver could find that subset."""
    if allowed.way.exact:
        return allowed.best(values)
    found = posterior.incumbent[None, :].repeat(len(values), axis=0)
    rows, subsets = _Moves(posterior, allowed).best(values, 1, 0.0)
    found[rows] = subsets
    return found


def _exchanged(posterior: Posterior, allowed: Allowed, values: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the draws in which an allowed exchange is a gain, the incumbent after the best one, and the gain."""
    rows, gain, out, into = allowed.exchanges(posterior.incumbent).best(values)
    found = posterior.incumbent[None, :].repeat(len(rows), axis=0)
    found[np.arange(len(rows)), out] = into
    found.sort(axis=1)
    return rows, found, gain


def _all_free(posterior: Posterior, allowed: Allowed, values: FloatArray, found: IntArray, free: float) -> IntArray:
    """Return the best subset of each draw where all but the first exchange are free by the means, else `found`."""
    best, mean = allowed.best(values), posterior.mean
    lost = mean[found].sum(axis=1) - mean[best].sum(axis=1)
    return np.where((lost < free)[:, None], best, found)


# Other rules.


class _Moves:
    """The exchanges that a plan's draws choose from."""

    def __init__(self, posterior: Posterior, allowed: Allowed) -> None:
        self.posterior, self.allowed = posterior, allowed
        self.may = allowed.exchanges(posterior.incumbent).may
        self.pairs = self._find_pairs()
        self.solved = 0

    def best(self, values: FloatArray, swaps: int, free: float) -> tuple[IntArray, IntArray]:
        """Return the draws in which an exchange is a gain, and the incumbent after the best one."""
        found = self.posterior.incumbent[None, :].repeat(len(values), axis=0)
        gain = np.zeros(len(values))
        rows, exchanged, gains = _exchanged(self.posterior, self.allowed, values)
        found[rows], gain[rows] = exchanged, gains
        found, gain = self._better(found, gain, values, self.pairs)
        stuck = np.flatnonzero(gain <= 0)
        if len(stuck):
            found[stuck], gain[stuck] = self._beyond(found[stuck], gain[stuck], values[stuck])
        better = np.flatnonzero(gain > 0)
        subsets = found[better]
        if swaps > 1 and len(better):
            if self.allowed.way.exact:
                subsets = _all_free(self.posterior, self.allowed, values[better], subsets, free)
            else:
                self._further(subsets, values[better], free, swaps)
        return better, subsets

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

    def _further(self, found: IntArray, values: FloatArray, free: float, swaps: int) -> None:
        """Make further exchanges in each draw, while one is allowed, a gain in the draw and free by the means.

        Each step looks at all exchanges of one arm of all draws at once.
        """
        mean, allowed = self.posterior.mean, self.allowed
        matrix, low, high = allowed.rows
        active, lost = np.arange(len(values)), np.zeros(len(values))
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
        may, (x, y) = self.may[outs], ins.T
        one_by_one = (may[:, 0, x] & may[:, 1, y]) | (may[:, 0, y] & may[:, 1, x])
        fits = ~one_by_one & allowed.rows.hold_after(incumbent, incumbent[outs], ins)
        out, into = fits.nonzero()
        (a, b), (x, y) = outs[out].T, ins[into].T
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
