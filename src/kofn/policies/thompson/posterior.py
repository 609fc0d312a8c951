"""Beliefs on N arms in linear memory: what each is worth in place of another, on the scale of log odds.

The log odds of a subset's reward are taken for those of an incumbent subset (the level), plus the effects of the arms
that are swapped in, minus those of the arms that are swapped out. Effects are Gaussian, a mean and a variance per arm.
The level and the few arms nearest to the boundary, the contenders, have all their covariances as well: it is between
these that the reward of a subset does not say who earned it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, log_ndtr, logit, ndtri

from kofn.core import BadRecord, FloatArray, IntArray, finite_numbers, subset_of, whole_numbers
from kofn.policies.batching import top_subset

CONTENDERS = 64
"""Arms with covariances at the most: 65 * 66 / 2 numbers, whatever N is."""

SEATED = 8
"""Arms of the incumbent that are always contenders: a swap between contenders needs one of them."""

ROWS = 256
"""Rows learned at once, at the most; more of them are learned block after block."""

LARGEST = 2**23
"""Numbers in the matrix of the rows learned at once, so that subsets of a thousand arms fit too."""

CELLS = 2**20
"""Numbers drawn at once."""

ONE_IN = 10
"""A draw swaps one arm of the incumbent, or one in so many: beside a hundred others, one arm is lost in the noise."""

MANY = 2**15
"""Arms from which on those that are alike are drawn together: of a million, most have never been told apart."""

DOUBT = 0.5
"""When the level climbs by one, variances grow by e to this: effects are not the same at every level. In a mean of two,
an arm that always pays is worth 1.1 in the middle, and 2.4 beside another that almost does."""

STEPS, LONGEST, ALMOST = 25, 2.0, 1e-6
"""Newton steps at the most, the longest move of one in log odds, and the move that ends them."""

TINY = 1e-12
"""What keeps a slope of the log odds, or the smallest variance of a block, above zero."""

NEAR, FAR = 1e-3, 30.0
"""Differences in log odds within which likelihood ratios are taken."""


def at_once(k: int) -> int:
    """Arms of an incumbent of k that one draw swaps at the most."""
    return max(1, k // ONE_IN)


def seats(k: int) -> int:
    """Contenders for an incumbent of k: where many arms are swapped at once, few swaps are among contenders alone."""
    return min(CONTENDERS, max(SEATED, 2 * CONTENDERS // at_once(k)))


@dataclass
class Beliefs:
    """The posterior. Row 0 of `block` has the level's covariances, the rows after it those of the contenders."""

    incumbent: IntArray
    level: float
    highest: float  # the level, at its highest
    prior: float  # the variance that effects had at first
    mean: FloatArray
    variance: FloatArray
    contenders: IntArray
    block: FloatArray

    @classmethod
    def at_first(cls, n_arms: int, k: int, value: float, variance: float) -> Beliefs:
        """All arms are alike and nobody is incumbent: any subset earns `value`, each arm shifts it by this variance."""
        level, nobody = float(logit(value)), np.empty(0, np.int64)
        contenders = np.arange(n_arms) if n_arms <= seats(k) else nobody
        block = np.diag(np.full(len(contenders) + 1, variance))
        block[0, 0] *= k
        variances = np.full(n_arms, variance)
        return cls(nobody, level, level, variance, np.zeros(n_arms), variances, contenders, block)

    def predict(self, subsets: IntArray) -> tuple[FloatArray, FloatArray]:
        """The mean reward of each subset, and how sure that is, as a variance."""
        value, spread = self._rewards(subsets, alone=True)
        return value, spread * (value * (1 - value)) ** 2

    def known(self, subsets: IntArray) -> FloatArray:
        """What is known of each subset beside the incumbent, in plays of a Bernoulli arm."""
        value, spread = self._rewards(subsets, alone=False)
        return np.asarray(1 / np.maximum(spread * value * (1 - value), TINY * TINY), float)

    @property
    def unknown(self) -> float:
        """Plays of a Bernoulli arm that would tell as much of a swap of two arms as was known of it at first."""
        value = float(expit(self.level))
        return 1 / max(2 * self.prior * value * (1 - value), TINY * TINY)

    def learn(self, subsets: IntArray, rewards: FloatArray, weights: FloatArray) -> None:
        """Take in the mean reward of each subset, worth so many plays of a Bernoulli arm; the best K become incumbent.

        A swap that involves others teaches of these alone: what contenders know of each other is too precise to be
        mixed with what is kept without covariances, and would be counted again with every plan.
        """
        self._contend()
        for part in _parts(subsets):
            x, arms = self._design(subsets[part])
            others = 1 + np.flatnonzero(~np.isin(arms, self.contenders))
            mixed = x[:, others].any(axis=1)
            for rows, learners in ((~mixed, self._together(arms)), (mixed, others)):
                if rows.any():
                    self._condition(x[rows], arms, rewards[part][rows], weights[part][rows], learners)
        self._seat(np.array(top_subset(self.mean, subsets.shape[1])))
        self._centre()
        if self.level > self.highest:
            self.widen(math.exp(DOUBT * (self.level - self.highest)))
            self.highest = self.level

    @property
    def boundary(self) -> float:
        """The effect halfway between the incumbent's weakest arm and the strongest other."""
        outside = np.ones(len(self.mean), bool)
        outside[self.incumbent] = False
        return float(self.mean[self.incumbent].min() + self.mean[outside].max()) / 2

    def change(self, keep: IntArray, new: int) -> None:
        """Drop all arms but those to keep, which are numbered anew in that order, and add new ones of the prior."""
        k, before = len(self.incumbent), len(self.mean)
        stays = np.concatenate([keep, np.arange(before, before + new)])
        self.mean = np.concatenate([self.mean, np.zeros(new)])
        self.variance = np.concatenate([self.variance, np.full(new, self.prior)])
        self._seat(stays[list(top_subset(self.mean[stays], k))])
        number = np.full(before + new, -1)
        number[stays] = np.arange(len(stays))
        self.mean, self.variance = self.mean[stays], self.variance[stays]
        self.incumbent = np.sort(number[self.incumbent])
        held = np.flatnonzero(number[self.contenders] >= 0)
        held = held[np.argsort(number[self.contenders[held]])]
        self.contenders = number[self.contenders[held]]
        rows = np.concatenate([[0], 1 + held])
        self.block = self.block[np.ix_(rows, rows)]
        self._contend()

    def widen(self, factor: float) -> None:
        """Make each variance `factor` times as large, but not larger than it was at first."""
        by = np.sqrt(np.clip(self.prior / self.variance, 1.0, factor))
        self.variance = self.variance * by * by
        scale = np.concatenate([[np.sqrt(factor)], by[self.contenders]])
        self.block = self.block * np.outer(scale, scale)

    def swaps(self, draws: int, rng: np.random.Generator, most: int = 1) -> IntArray:
        """For each draw of all effects, the incumbent with its weakest swapped for the strongest other, if better.

        And the next for the next, up to `most` of them.

        Arms are drawn block by block, and only the extremes are kept: memory does not grow with draws * N.
        """
        inside = np.zeros(len(self.mean), bool)
        inside[self.incumbent] = True
        alone = np.ones(len(self.mean), bool)
        alone[self.contenders] = False
        stretch = self._stretch(inside)
        z = rng.standard_normal((draws, len(self.contenders))) @ _root(self.block[1:, 1:]).T
        together = self.mean[self.contenders] + stretch[self.contenders] * z
        spread = stretch * np.sqrt(self.variance)
        most = min(most, len(self.mean) - len(self.incumbent))
        found = []
        for sign, side in ((-1.0, inside), (1.0, ~inside)):
            chosen = side[self.contenders]
            extremes = _Extremes(draws, most)
            extremes.see(sign * together[:, chosen], self.contenders[chosen])
            others = np.flatnonzero(side & alone)
            see = self._see_alike if len(others) > MANY else self._see_each
            see(extremes, sign, others, spread, rng)
            found.append(extremes)
        weakest, strongest = found
        arms = np.where(strongest.value > -weakest.value, strongest.arm, weakest.arm)
        subsets = np.tile(self.incumbent, (draws, 1))
        np.put_along_axis(subsets, np.searchsorted(self.incumbent, weakest.arm), arms, axis=1)
        return np.sort(subsets, axis=1)

    def _stretch(self, inside: NDArray[np.bool_]) -> FloatArray:
        """How much wider each arm is drawn than its variance says.

        What counts in a draw is where an arm passes the one that it could be swapped with, at the incumbent's odds. A
        Gaussian at the mode puts that too far away where odds are high, and too near where they are low. Here it is as
        many standard deviations away as the root of the likelihood ratio says: of n plays, 2 n KL(value, incumbent's).
        If not all arms are contenders, only as far as they have been played: drawn wider than their prior, the
        strongest of a hundred thousand would nearly always be one that is not known.
        """
        weakest, strongest = self.mean[inside].min(), self.mean[~inside].max()
        below = np.clip(np.where(inside, self.mean - strongest, weakest - self.mean), NEAR, FAR)
        odds = self.level - below
        value, rest = expit(odds), expit(-odds)
        apart = np.where(
            odds > 0,
            rest * below + np.log1p(rest * np.expm1(-below)),  # the same as the other, without rounding where odds
            np.log1p(value * np.expm1(below)) - value * below,  # are high
        )
        stretch = np.sqrt(value * rest / (2 * apart)) * below
        many = len(self.contenders) < len(self.mean)
        played = np.clip(1 - self.variance / self.prior, 0.0, 1.0) if many else 1.0
        return np.asarray(stretch**played, float)

    def _see_each(
        self, extremes: _Extremes, sign: float, others: IntArray, spread: FloatArray, rng: np.random.Generator
    ) -> None:
        draws = len(extremes.value)
        for start in range(0, len(others), width := max(1, CELLS // draws)):
            arms = others[start : start + width]
            z = rng.standard_normal((draws, len(arms)))
            extremes.see(sign * (self.mean[arms] + z * spread[arms]), arms)

    def _see_alike(
        self, extremes: _Extremes, sign: float, others: IntArray, spread: FloatArray, rng: np.random.Generator
    ) -> None:
        """The same for very many arms: of n that are alike only the few strongest matter, and few draws give them.

        The largest of n uniform numbers is the n-th root of one, the next is that times the root of the next degree,
        and so on; whose they are, is anybody's turn. The strongest of all are in the groups with the strongest first.
        """
        order = others[np.lexsort((spread[others], self.mean[others]))]
        mean, wide = self.mean[order], spread[order]
        first = np.flatnonzero(np.concatenate([[True], (np.diff(mean) != 0) | (np.diff(wide) != 0)]))
        sizes = np.diff(np.append(first, len(order)))
        draws, most = extremes.value.shape
        self._see_each(extremes, sign, order[np.repeat(sizes <= most, sizes)], spread, rng)
        first, sizes = first[sizes > most], sizes[sizes > most]
        groups = _Extremes(draws, min(most, len(first)))
        for start in range(0, len(first), width := max(1, CELLS // draws)):
            part = slice(start, start + width)
            z = -ndtri(-np.expm1(np.log1p(-rng.random((draws, len(first[part])))) / sizes[part]))
            groups.see(sign * mean[first[part]] + z * wide[first[part]], np.arange(len(first))[part])
        if len(first):
            middle, scale = sign * mean[first[groups.arm]], wide[first[groups.arm]]
            left = sizes[groups.arm][..., None] - np.arange(most)
            largest = log_ndtr((groups.value - middle) / scale)[..., None]
            smaller = np.log1p(-rng.random((*groups.arm.shape, most - 1))) / left[..., 1:]
            z = -ndtri(-np.expm1(np.concatenate([largest, smaller], axis=2).cumsum(axis=2)))
            turn = _different(rng.random(left.shape), left)
            arms = order[first[groups.arm][..., None] + turn]
            extremes.see((middle[..., None] + z * scale[..., None]).reshape(draws, -1), arms.reshape(draws, -1))

    # The filter.

    def _design(self, subsets: IntArray) -> tuple[FloatArray, IntArray]:
        """Which arms matter here, and a row per subset: 1 for the level, then 1 for an arm in, -1 for an arm out."""
        seat = np.full(len(self.mean), -1)
        seat[self.incumbent] = np.arange(len(self.incumbent))
        stays = seat[subsets] >= 0
        row_in, place = np.nonzero(~stays)
        comes = subsets[row_in, place]
        there = np.zeros((len(subsets), len(self.incumbent)), bool)
        there[np.nonzero(stays)[0], seat[subsets[stays]]] = True
        row_out, gone = np.nonzero(~there)
        goes = self.incumbent[gone]
        arms = np.unique(np.concatenate([comes, goes, self.contenders]))
        x = np.zeros((len(subsets), 1 + len(arms)))
        x[:, 0] = 1.0
        x[row_in, 1 + np.searchsorted(arms, comes)] = 1.0
        x[row_out, 1 + np.searchsorted(arms, goes)] = -1.0
        return x, arms

    def _means(self, arms: IntArray) -> FloatArray:
        return np.concatenate([[self.level], self.mean[arms]])

    def _together(self, arms: IntArray) -> IntArray:
        """The columns of the level and the contenders."""
        return np.concatenate([[0], 1 + np.searchsorted(arms, self.contenders)])

    def _covariances(self, x: FloatArray, arms: IntArray) -> FloatArray:
        """Of the level and these arms with the log odds of each row."""
        covariances = np.concatenate([[0.0], self.variance[arms]])[:, None] * x.T
        together = self._together(arms)
        covariances[together] = self.block @ x[:, together].T
        return covariances

    def _rewards(self, subsets: IntArray, *, alone: bool) -> tuple[FloatArray, FloatArray]:
        """The mean reward of each subset, and the variance of its log odds, alone or beside the incumbent's."""
        values, spreads = [], []
        for part in _parts(subsets):
            x, arms = self._design(subsets[part])
            values.append(expit(x @ self._means(arms)))
            x[:, 0] = float(alone)
            spreads.append(np.einsum("ra,ar->r", x, self._covariances(x, arms)))
        return np.concatenate(values), np.concatenate(spreads)

    def _condition(
        self, x: FloatArray, arms: IntArray, rewards: FloatArray, weights: FloatArray, learners: IntArray
    ) -> None:
        """The posterior of the learners' columns after these rows, near its mode (Laplace)."""
        covariances = self._covariances(x, arms)
        among = x @ covariances
        before = odds = x @ self._means(arms)
        for _ in range(STEPS):
            value = expit(odds)
            slope = np.maximum(value * (1 - value), TINY)
            factor = cho_factor(among + np.diag(1 / (weights * slope)), lower=True)
            pull = cho_solve(factor, odds + (rewards - value) / slope - before)
            move = np.clip(before + among @ pull - odds, -LONGEST, LONGEST)
            odds = odds + move
            if np.abs(move).max() < ALMOST:
                break
        covariances = covariances[learners]
        shift, gain = covariances @ pull, cho_solve(factor, covariances.T)
        if learners[0] == 0:
            self.level += float(shift[0])
            self.block = _symmetric(self.block - covariances @ gain)
            covariances, shift, gain, learners = covariances[1:], shift[1:], gain[:, 1:], learners[1:]
        who = arms[learners - 1]
        self.mean[who] += shift
        known = np.einsum("ar,ra->a", covariances, gain)
        self.variance[who] = np.maximum(self.variance[who] - known, TINY * self.variance[who])

    def _seat(self, incumbent: IntArray) -> None:
        """Give the level to a new incumbent."""
        into = np.eye(len(self.contenders) + 1)
        apart = 0.0
        for arms, sign in (
            (np.setdiff1d(incumbent, self.incumbent), 1.0),
            (np.setdiff1d(self.incumbent, incumbent), -1.0),
        ):
            self.level += sign * float(self.mean[arms].sum())
            known = np.isin(arms, self.contenders)
            into[0, 1 + np.searchsorted(self.contenders, arms[known])] = sign
            apart += float(self.variance[arms[~known]].sum())
        self.block = _symmetric(into @ self.block @ into.T)
        self.block[0, 0] += apart
        self.incumbent = incumbent

    def _centre(self) -> None:
        """Measure effects from their average, if all arms are contenders: what shifts all of them alike is nothing."""
        if len(self.contenders) < len(self.mean):
            return
        centre = np.eye(len(self.block))
        centre[1:, 1:] -= 1 / len(self.contenders)
        self.block = _symmetric(centre @ self.block @ centre)
        self.variance = np.maximum(self.block.diagonal()[1:], TINY)

    def _contend(self) -> None:
        """Choose the contenders anew: the arms with the fewest standard deviations to the boundary."""
        if not len(self.incumbent) or len(self.contenders) == len(self.mean):
            return
        nearest = np.arange(len(self.mean))
        most = seats(len(self.incumbent))
        if len(self.mean) > most:
            distance = np.abs(self.mean - self.boundary) / np.sqrt(self.variance)
            inside = distance[self.incumbent]
            distance[self.incumbent[np.argsort(inside)[:SEATED]]] = -1.0
            nearest = np.sort(np.argpartition(distance, most)[:most])
        _, new, old = np.intersect1d(nearest, self.contenders, assume_unique=True, return_indices=True)
        new, old = np.concatenate([[0], 1 + new]), np.concatenate([[0], 1 + old])
        block = np.diag(np.concatenate([self.block[0, :1], self.variance[nearest]]))
        block[np.ix_(new, new)] = self.block[np.ix_(old, old)]
        self.contenders, self.block = nearest, block

    # To keep.

    def state(self) -> dict[str, Any]:
        """The fields as lists of plain numbers; of the block, the lower triangle."""
        return {
            "incumbent": self.incumbent.tolist(),
            "level": self.level,
            "highest": self.highest,
            "prior": self.prior,
            "mean": self.mean.tolist(),
            "variance": self.variance.tolist(),
            "contenders": self.contenders.tolist(),
            "block": self.block[np.tril_indices(len(self.block))].tolist(),
        }

    @classmethod
    def load(cls, state: Mapping[str, Any], n_arms: int, k: int) -> Beliefs:
        """The beliefs that `state` describes; with k=0, those of a prior."""
        incumbent = whole_numbers("incumbent", state["incumbent"])
        if k or len(incumbent):
            incumbent = np.array(subset_of(incumbent.tolist(), n_arms, k))
        contenders = whole_numbers("contenders", state["contenders"])
        mean, variance, triangle = (finite_numbers(name, state[name]) for name in ("mean", "variance", "block"))
        level, highest, prior = (float(finite_numbers(name, state[name])) for name in ("level", "highest", "prior"))
        size = len(contenders)  # none of many arms before the second plan, and fewer in old records
        if size > CONTENDERS or not ((np.diff(contenders) > 0).all() and (contenders < n_arms).all()):
            raise BadRecord(f"its contenders are not at most {CONTENDERS} different arms, sorted")
        if not (mean.shape == variance.shape == (n_arms,) and (variance > 0).all() and prior > 0):
            raise BadRecord(
                f"it does not have a mean and a variance above 0 for each of {n_arms} arms, and before them"
            )
        if triangle.shape != ((size + 1) * (size + 2) // 2,):
            raise BadRecord(f"its block is not the lower triangle of {size + 1} rows")
        block = np.zeros((size + 1, size + 1))
        block[np.tril_indices(size + 1)] = triangle
        block = block + np.tril(block, -1).T
        try:
            _root(block)
        except np.linalg.LinAlgError:
            raise BadRecord("its block is not one of covariances") from None
        return cls(incumbent, level, highest, prior, mean, variance, contenders, block)


class _Extremes:
    """The largest values of each draw so far, the largest first, and whose they are."""

    def __init__(self, draws: int, most: int) -> None:
        self.value = np.full((draws, most), -np.inf)
        self.arm = np.full((draws, most), -1)

    def see(self, values: FloatArray, arms: IntArray) -> None:
        """Look at more arms, a column each; whose a column is may differ from draw to draw."""
        if not arms.size:
            return
        most = self.value.shape[1]
        if most == 1:
            column = values.argmax(axis=1)[:, None]
        else:
            column = np.argpartition(-values, min(most, values.shape[1]) - 1, axis=1)[:, :most]
        arms = np.broadcast_to(arms, values.shape)
        value = np.hstack([self.value, np.take_along_axis(values, column, axis=1)])
        arm = np.hstack([self.arm, np.take_along_axis(arms, column, axis=1)])
        order = np.argsort(-value, axis=1, kind="stable")[:, :most]
        self.value, self.arm = (np.take_along_axis(kept, order, axis=1) for kept in (value, arm))


def _different(uniform: FloatArray, left: IntArray) -> IntArray:
    """Different whole numbers along the last axis, each from as many as are left when those before it are gone."""
    turn = (uniform * left).astype(np.int64)
    for last in range(1, turn.shape[-1]):
        for earlier in np.moveaxis(np.sort(turn[..., :last], axis=-1), -1, 0):
            turn[..., last] += turn[..., last] >= earlier
    return turn


def _parts(subsets: IntArray) -> Iterator[slice]:
    """Rows to be learned at once: each brings arms of its own, so that the matrix grows with their square."""
    rows, k = subsets.shape
    step = min(ROWS, max(1, math.isqrt(LARGEST // k)))
    return (slice(start, start + step) for start in range(0, rows, step))


def _symmetric(matrix: FloatArray) -> FloatArray:
    return (matrix + matrix.T) / 2


def _root(block: FloatArray) -> FloatArray:
    """A factor of covariances; rounding may have left the smallest a little below zero."""
    return np.asarray(np.linalg.cholesky(block + np.diag(TINY * block.diagonal())), float)
