"""Posterior of N arms in linear memory: the effect of each arm on the log odds of a subset's reward.

Model: log odds of a subset's reward = log odds of the incumbent subset (the level) + effects of the arms swapped in
- effects of the arms swapped out. Effects are Gaussian, with a mean and a variance per arm. The level and the
contenders, the few arms nearest to the boundary of the top K, also have a dense covariance matrix: the reward of a
subset does not tell which of its arms earned it, and for these arms that matters most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, logit

from kofn.core import BadRecord, FloatArray, IntArray, finite_numbers, subset_of, whole_numbers
from kofn.policies.batching import top_subset

MAX_CONTENDERS = 64
"""Largest number of contenders. The covariance has 65 * 66 / 2 numbers. Higher: more precise, and slower."""

INCUMBENT_CONTENDERS = 8
"""Arms of the incumbent that are always contenders: a swap between contenders needs one of them. Higher leaves fewer
places for arms outside the incumbent."""

ROWS_AT_ONCE = 256
"""Most rows of a plan in one update. More rows are learned in several updates. Higher: fewer updates, larger matrices.
"""

MATRIX_CELLS = 2**23
"""Most numbers in the matrix of one update, 8 bytes each. Subsets of many arms are learned in smaller updates."""

SWAP_SHARE = 10
"""A draw swaps up to K / SWAP_SHARE arms, and at least one: among a hundred arms, the effect of one is lost in the
noise. Higher: fewer swaps in a draw."""

LEVEL_DOUBT = 0.5
"""Growth of the log variances for each unit by which the level exceeds its maximum so far. Effects depend on the level:
in a mean of two arms, an arm that always pays has an effect of 1.1 at even odds, and of 2.4 beside an arm that almost
always pays. Higher: more exploration after each improvement."""

NEWTON_STEPS, LONGEST_STEP, CONVERGED = 25, 2.0, 1e-6
"""Newton's method: the most steps, the longest step and the step that ends it, both in log odds."""

TINY = 1e-12
"""Relative floor that keeps slopes and variances above zero."""


def most_swaps(k: int) -> int:
    """Return the largest number of arms that one draw swaps in an incumbent of k arms."""
    return max(1, k // SWAP_SHARE)


def contender_count(k: int) -> int:
    """Return the number of contenders: fewer if a draw swaps many arms, since few such swaps are among contenders."""
    return min(MAX_CONTENDERS, max(INCUMBENT_CONTENDERS, 2 * MAX_CONTENDERS // most_swaps(k)))


@dataclass
class Posterior:
    """Posterior of the level and of all effects.

    Row 0 of `covariance` belongs to the level, the other rows to the contenders, in order.
    """

    incumbent: IntArray
    level: float
    highest_level: float
    prior_variance: float  # of an effect
    mean: FloatArray
    variance: FloatArray
    contenders: IntArray
    covariance: FloatArray

    @classmethod
    def at_start(cls, n_arms: int, k: int, value: float, variance: float) -> Posterior:
        """Return the prior: no incumbent, every subset earns `value`, each effect has this variance."""
        level, nobody = float(logit(value)), np.empty(0, np.int64)
        contenders = np.arange(n_arms) if n_arms <= contender_count(k) else nobody
        covariance = np.diag(np.full(len(contenders) + 1, variance))
        covariance[0, 0] *= k
        variances = np.full(n_arms, variance)
        return cls(nobody, level, level, variance, np.zeros(n_arms), variances, contenders, covariance)

    def predict(self, subsets: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the mean reward of each subset, and the variance of that mean."""
        value, spread = self._rewards(subsets, with_level=True)
        return value, spread * (value * (1 - value)) ** 2

    def known_plays(self, subsets: IntArray) -> FloatArray:
        """Return what is known of each subset relative to the incumbent, in plays of a Bernoulli arm."""
        value, spread = self._rewards(subsets, with_level=False)
        return np.asarray(1 / np.maximum(spread * value * (1 - value), TINY * TINY), float)

    @property
    def prior_plays(self) -> float:
        """The plays of a Bernoulli arm that are worth as much as the prior of a swap of two arms."""
        value = float(expit(self.level))
        return 1 / max(2 * self.prior_variance * value * (1 - value), TINY * TINY)

    def learn(self, subsets: IntArray, rewards: FloatArray, weights: FloatArray) -> None:
        """Update with the mean reward of each subset, weighted in plays of a Bernoulli arm; choose the incumbent anew.

        A row with an arm that is not a contender updates only such arms. The contenders' covariance is too precise to
        be mixed with variances alone: the same information would be counted again with every plan.
        """
        self._choose_contenders()
        for part in _parts(subsets):
            x, arms = self._design(subsets[part])
            others = 1 + np.flatnonzero(~np.isin(arms, self.contenders))
            mixed = x[:, others].any(axis=1)
            for rows, columns in ((~mixed, self._dense_columns(arms)), (mixed, others)):
                if rows.any():
                    self._condition(x[rows], arms, rewards[part][rows], weights[part][rows], columns)
        self._change_incumbent(np.array(top_subset(self.mean, subsets.shape[1])))
        self._centre()
        if self.level > self.highest_level:
            self.widen(math.exp(LEVEL_DOUBT * (self.level - self.highest_level)))
            self.highest_level = self.level

    @property
    def boundary(self) -> float:
        """The effect halfway between the incumbent's weakest arm and the strongest other arm."""
        outside = np.ones(len(self.mean), bool)
        outside[self.incumbent] = False
        return float(self.mean[self.incumbent].min() + self.mean[outside].max()) / 2

    def change_arms(self, keep: IntArray, added: int) -> None:
        """Keep these arms, numbered from 0 in this order, and add arms with the prior's mean and variance."""
        k, before = len(self.incumbent), len(self.mean)
        stays = np.concatenate([keep, np.arange(before, before + added)])
        self.mean = np.concatenate([self.mean, np.zeros(added)])
        self.variance = np.concatenate([self.variance, np.full(added, self.prior_variance)])
        self._change_incumbent(stays[list(top_subset(self.mean[stays], k))])
        number = np.full(before + added, -1)
        number[stays] = np.arange(len(stays))
        self.mean, self.variance = self.mean[stays], self.variance[stays]
        self.incumbent = np.sort(number[self.incumbent])
        kept = np.flatnonzero(number[self.contenders] >= 0)
        kept = kept[np.argsort(number[self.contenders[kept]])]
        self.contenders = number[self.contenders[kept]]
        rows = np.concatenate([[0], 1 + kept])
        self.covariance = self.covariance[np.ix_(rows, rows)]
        self._choose_contenders()

    def widen(self, factor: float) -> None:
        """Multiply each variance by `factor`, up to the prior's variance."""
        by = np.sqrt(np.clip(self.prior_variance / self.variance, 1.0, factor))
        self.variance = self.variance * by * by
        scale = np.concatenate([[np.sqrt(factor)], by[self.contenders]])
        self.covariance = self.covariance * np.outer(scale, scale)

    # The update. Column 0 of a design matrix is the level, the other columns are arms.

    def _design(self, subsets: IntArray) -> tuple[FloatArray, IntArray]:
        """Return the design matrix (per subset: 1 for the level, 1 for an arm in, -1 for an arm out) and its arms."""
        position = np.full(len(self.mean), -1)
        position[self.incumbent] = np.arange(len(self.incumbent))
        stays = position[subsets] >= 0
        row_in, place = np.nonzero(~stays)
        arms_in = subsets[row_in, place]
        present = np.zeros((len(subsets), len(self.incumbent)), bool)
        present[np.nonzero(stays)[0], position[subsets[stays]]] = True
        row_out, absent = np.nonzero(~present)
        arms_out = self.incumbent[absent]
        arms = np.unique(np.concatenate([arms_in, arms_out, self.contenders]))
        x = np.zeros((len(subsets), 1 + len(arms)))
        x[:, 0] = 1.0
        x[row_in, 1 + np.searchsorted(arms, arms_in)] = 1.0
        x[row_out, 1 + np.searchsorted(arms, arms_out)] = -1.0
        return x, arms

    def _means(self, arms: IntArray) -> FloatArray:
        return np.concatenate([[self.level], self.mean[arms]])

    def _dense_columns(self, arms: IntArray) -> IntArray:
        """Return the columns of the level and the contenders."""
        return np.concatenate([[0], 1 + np.searchsorted(arms, self.contenders)])

    def _covariances(self, x: FloatArray, arms: IntArray) -> FloatArray:
        """Return the covariances of the level and these arms with the log odds of each row."""
        covariances = np.concatenate([[0.0], self.variance[arms]])[:, None] * x.T
        dense = self._dense_columns(arms)
        covariances[dense] = self.covariance @ x[:, dense].T
        return covariances

    def _rewards(self, subsets: IntArray, *, with_level: bool) -> tuple[FloatArray, FloatArray]:
        """Return the mean reward of each subset, and the variance of its log odds, with or without the level's."""
        values, spreads = [], []
        for part in _parts(subsets):
            x, arms = self._design(subsets[part])
            values.append(expit(x @ self._means(arms)))
            x[:, 0] = float(with_level)
            spreads.append(np.einsum("ra,ar->r", x, self._covariances(x, arms)))
        return np.concatenate(values), np.concatenate(spreads)

    def _condition(
        self, x: FloatArray, arms: IntArray, rewards: FloatArray, weights: FloatArray, columns: IntArray
    ) -> None:
        """Condition these columns on the rows, by a Laplace approximation at the mode."""
        covariances = self._covariances(x, arms)
        among = x @ covariances
        before = odds = x @ self._means(arms)
        for _ in range(NEWTON_STEPS):
            value = expit(odds)
            slope = np.maximum(value * (1 - value), TINY)
            factor = cho_factor(among + np.diag(1 / (weights * slope)), lower=True)
            pull = cho_solve(factor, odds + (rewards - value) / slope - before)
            step = np.clip(before + among @ pull - odds, -LONGEST_STEP, LONGEST_STEP)
            odds = odds + step
            if np.abs(step).max() < CONVERGED:
                break
        covariances = covariances[columns]
        shift, gain = covariances @ pull, cho_solve(factor, covariances.T)
        if columns[0] == 0:
            self.level += float(shift[0])
            self.covariance = _symmetric(self.covariance - covariances @ gain)
            covariances, shift, gain, columns = covariances[1:], shift[1:], gain[:, 1:], columns[1:]
        updated = arms[columns - 1]
        self.mean[updated] += shift
        explained = np.einsum("ar,ra->a", covariances, gain)
        self.variance[updated] = np.maximum(self.variance[updated] - explained, TINY * self.variance[updated])

    def _change_incumbent(self, incumbent: IntArray) -> None:
        """Make the level that of a new incumbent."""
        into = np.eye(len(self.contenders) + 1)
        independent = 0.0
        for arms, sign in (
            (np.setdiff1d(incumbent, self.incumbent), 1.0),
            (np.setdiff1d(self.incumbent, incumbent), -1.0),
        ):
            self.level += sign * float(self.mean[arms].sum())
            dense = np.isin(arms, self.contenders)
            into[0, 1 + np.searchsorted(self.contenders, arms[dense])] = sign
            independent += float(self.variance[arms[~dense]].sum())
        self.covariance = _symmetric(into @ self.covariance @ into.T)
        self.covariance[0, 0] += independent
        self.incumbent = incumbent

    def _centre(self) -> None:
        """Measure effects from their average, if all arms are contenders: a shift of all effects changes no swap."""
        if len(self.contenders) < len(self.mean):
            return
        centre = np.eye(len(self.covariance))
        centre[1:, 1:] -= 1 / len(self.contenders)
        self.covariance = _symmetric(centre @ self.covariance @ centre)
        self.variance = np.maximum(self.covariance.diagonal()[1:], TINY)

    def _choose_contenders(self) -> None:
        """Make contenders of the arms that are the fewest standard deviations away from the boundary."""
        if not len(self.incumbent) or len(self.contenders) == len(self.mean):
            return
        nearest = np.arange(len(self.mean))
        most = contender_count(len(self.incumbent))
        if len(self.mean) > most:
            distance = np.abs(self.mean - self.boundary) / np.sqrt(self.variance)
            inside = distance[self.incumbent]
            distance[self.incumbent[np.argsort(inside)[:INCUMBENT_CONTENDERS]]] = -1.0
            nearest = np.sort(np.argpartition(distance, most)[:most])
        _, new, old = np.intersect1d(nearest, self.contenders, assume_unique=True, return_indices=True)
        new, old = np.concatenate([[0], 1 + new]), np.concatenate([[0], 1 + old])
        covariance = np.diag(np.concatenate([self.covariance[0, :1], self.variance[nearest]]))
        covariance[np.ix_(new, new)] = self.covariance[np.ix_(old, old)]
        self.contenders, self.covariance = nearest, covariance

    # The record.

    def state(self) -> dict[str, Any]:
        """Return the fields as lists of plain numbers; of the covariance, the lower triangle."""
        return {
            "incumbent": self.incumbent.tolist(),
            "level": self.level,
            "highest_level": self.highest_level,
            "prior_variance": self.prior_variance,
            "mean": self.mean.tolist(),
            "variance": self.variance.tolist(),
            "contenders": self.contenders.tolist(),
            "covariance": self.covariance[np.tril_indices(len(self.covariance))].tolist(),
        }

    @classmethod
    def load(cls, state: Mapping[str, Any], n_arms: int, k: int) -> Posterior:
        """Return the posterior that `state` describes; k=0 for one without an incumbent."""
        incumbent = whole_numbers("incumbent", state["incumbent"])
        if k or len(incumbent):
            incumbent = np.array(subset_of(incumbent.tolist(), n_arms, k))
        contenders = whole_numbers("contenders", state["contenders"])
        mean, variance, triangle = (finite_numbers(name, state[name]) for name in ("mean", "variance", "covariance"))
        numbers = [finite_numbers(name, state[name]) for name in ("level", "highest_level", "prior_variance")]
        if any(each.ndim for each in numbers):
            raise BadRecord("level, highest_level and prior_variance must be single numbers, not lists")
        level, highest_level, prior_variance = map(float, numbers)
        size = len(contenders)  # 0 for many arms before the second plan, and fewer than the maximum in old records
        if size > MAX_CONTENDERS or not ((np.diff(contenders) > 0).all() and (contenders < n_arms).all()):
            raise BadRecord(f"contenders must be at most {MAX_CONTENDERS} different arms, sorted")
        if not (mean.shape == variance.shape == (n_arms,) and (variance > 0).all() and prior_variance > 0):
            raise BadRecord(f"mean and variance must have a number per arm ({n_arms}), and variances must be above 0")
        if triangle.shape != ((size + 1) * (size + 2) // 2,):
            raise BadRecord(f"covariance must be the lower triangle of a matrix of {size + 1} rows")
        covariance = np.zeros((size + 1, size + 1))
        covariance[np.tril_indices(size + 1)] = triangle
        covariance = covariance + np.tril(covariance, -1).T
        try:
            cholesky(covariance)
        except np.linalg.LinAlgError:
            raise BadRecord("covariance must be positive definite") from None
        return cls(incumbent, level, highest_level, prior_variance, mean, variance, contenders, covariance)


def cholesky(covariance: FloatArray) -> FloatArray:
    """Return a factor of the covariance, after lifting eigenvalues that rounding has left slightly below zero."""
    return np.asarray(np.linalg.cholesky(covariance + np.diag(TINY * covariance.diagonal())), float)


def _parts(subsets: IntArray) -> Iterator[slice]:
    """Cut the rows into updates of bounded size: each row may add arms, and the matrix grows with their square."""
    rows, k = subsets.shape
    step = min(ROWS_AT_ONCE, max(1, math.isqrt(MATRIX_CELLS // k)))
    return (slice(start, start + step) for start in range(0, rows, step))


def _symmetric(matrix: FloatArray) -> FloatArray:
    return (matrix + matrix.T) / 2
