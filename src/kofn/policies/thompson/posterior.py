"""Posterior of N arms in linear memory: the effect of each arm on the log odds of a subset's reward.

Model: log odds of a subset's reward = log odds of the incumbent subset (the level) + effects of the arms swapped in
- effects of the arms swapped out. Effects are Gaussian, with a mean and a variance per arm. The level and the
contenders, the few arms nearest to the boundary of the top K, also have a dense covariance matrix: the reward of a
subset does not show which of its arms earned it, and for these arms that matters most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dtrsm, idamax
from scipy.linalg.lapack import dposv, dpotrf, dpotrs
from scipy.special import expit, logit

from kofn.constraints.allowed import Allowed
from kofn.core import BadRecord, FloatArray, IntArray, Policy, subset_of
from kofn.core.fields import Fields, Part, any_length, integers, number, numbers, symmetric
from kofn.policies.batching import top_subset
from kofn.policies.thompson.constants import Constants
from kofn.policies.thompson.new_arms import Start, start_of_new

NEWTON_STEPS, LONGEST_STEP, CONVERGED = 25, 2.0, 0.01
"""Newton's method: the most steps, the longest step and the step that ends it, both in log odds. Steps converge
quadratically: after a step of 0.01, about 0.0001 is missing."""

ROWS_AT_ONCE = 256
"""Most rows with arms that are not contenders in one update; the matrix of an update has a row and a column for each.
Higher: fewer updates, larger matrices."""

TINY = 1e-12
"""Relative floor that keeps slopes and variances above zero."""

FARTHEST_LEVEL = 14.0
"""Limit of the level when the range of rewards changes, in log odds: a part of 10^-6 from an end of the range."""

LEAST_PART = 0.01
"""Least part of the range between a subset's reward and the ends after a change of costs, unless the incumbent was
nearer. Lower: a gain that costs promise and no play has shown can be larger."""

UNSURE = 1.0
"""Standard deviation that a change of an arm's cost adds to its effect, relative to the change of the effect. Higher:
arms whose costs have changed are explored more."""


NO_ARMS, NO_SIGNS = np.empty(0, np.int64), np.empty(0)
EVERY_ARM = slice(None)


class RelativeRows(NamedTuple):
    """Subsets relative to the incumbent.

    `x` has a column for the level (1) and each contender (1 if it is swapped in, -1 if out). The other arms that are
    swapped are listed: the arm `arm[i]` is swapped in (`sign[i]` = 1) or out (-1) in row `row[i]`.
    """

    x: FloatArray
    row: IntArray
    arm: IntArray
    sign: FloatArray

    def only(self, rows: IntArray) -> RelativeRows:
        """Return these rows; they are sorted."""
        number = np.full(len(self.x), -1)
        number[rows] = np.arange(len(rows))
        kept = number[self.row] >= 0
        return RelativeRows(self.x[rows], number[self.row[kept]], self.arm[kept], self.sign[kept])

    def plus(self, of_contenders: FloatArray, of_arms: FloatArray) -> FloatArray:
        """Return the sum of both parts of each row; `of_arms` has a number for each of the listed arms."""
        return of_contenders + np.bincount(self.row, of_arms, len(self.x))


class Prediction(NamedTuple):
    """Subsets relative to the incumbent, with the mean and the variance of their log odds.

    `apart` is the variance of the difference between their log odds and the incumbent's.
    """

    rows: RelativeRows
    odds: FloatArray
    spread: FloatArray
    apart: FloatArray


@dataclass
class Posterior(Part):
    """Posterior of the level and of all effects.

    Row 0 of `covariance` belongs to the level, the other rows to the contenders, in order. A changed posterior has a
    new array as covariance: what is computed from it is kept as long as the array is the same.
    """

    fields = Fields(
        incumbent=integers(any_length),
        level=number(),
        highest_level=number(),
        prior_variance=number(above=0),
        mean=numbers(),
        variance=numbers(above=0),
        contenders=integers(any_length),
        covariance=symmetric(np.tril_indices),
    )

    incumbent: IntArray
    level: float
    highest_level: float
    prior_variance: float  # of an effect
    mean: FloatArray
    variance: FloatArray
    contenders: IntArray
    covariance: FloatArray
    _rooted: tuple[FloatArray, FloatArray] | None = field(default=None, init=False, repr=False)
    _predicted: tuple[IntArray, FloatArray, Prediction] | None = field(default=None, init=False, repr=False)

    @classmethod
    def at_start(cls, n_arms: int, k: int, value: float, variance: float, constants: Constants) -> Posterior:
        """Return the prior: no incumbent, every subset earns `value`, each effect has this variance, if not less."""
        variance = min(variance, constants.spread**2 / k)
        level, none = float(logit(value)), np.empty(0, np.int64)
        contenders = np.arange(n_arms) if n_arms <= constants.contenders else none
        covariance = np.diag(np.full(len(contenders) + 1, variance))
        covariance[0, 0] *= k
        variances = np.full(n_arms, variance)
        return cls(none, level, level, variance, np.zeros(n_arms), variances, contenders, covariance)

    def expect(self, expected: FloatArray, residual: FloatArray) -> None:
        """Add what is known about single arms to the prior: effect = scale * expected + residual.

        Both are in units of the prior without it. The scale has mean and variance 1. As far as arms are contenders, it
        is learned with the effects, through their covariance.
        """
        by, own = math.sqrt(self.prior_variance) * expected, self.prior_variance * residual
        self.mean, self.variance = by, own + by * by
        covariance, dense = self.covariance.copy(), by[self.contenders]
        covariance[1:, 1:] = np.diag(own[self.contenders]) + np.outer(dense, dense)
        self.covariance = covariance

    def relax(self, before: FloatArray, after: FloatArray) -> None:
        """Weaken what is known about single arms from before the first play: their residuals grow.

        The variance of an arm becomes what its plays would have left of the larger one.
        """
        own = np.maximum(1 / self.variance - 1 / (self.prior_variance * before), 0.0)
        by = np.maximum(1 / (own + 1 / (self.prior_variance * after)) - self.variance, 0.0)
        self._add(by)

    # What is predicted.

    def relative(self, subsets: IntArray) -> RelativeRows:
        """Return subsets relative to the incumbent."""
        count, size = len(subsets), len(self.contenders)
        every_row = np.arange(count)[:, None]
        if size == len(self.mean):
            x = np.zeros((count, size + 1))
            x[:, 1:][every_row, subsets] = 1.0
            x -= self._indicator
            return RelativeRows(x, NO_ARMS, NO_ARMS, NO_SIGNS)
        column = np.full(len(self.mean), size + 1)  # the last column collects the arms that are not contenders
        column[self.contenders] = np.arange(1, size + 1)
        x = np.zeros((count, size + 2))
        x[every_row, column[subsets]] = 1.0
        x[:, column[self.incumbent]] -= 1.0
        x[:, 0] = 1.0
        place = np.full(len(self.mean), -1)
        place[self.incumbent] = np.arange(len(self.incumbent))
        places = place[subsets]
        absent = np.ones((count, len(self.incumbent)), bool)
        row, at = np.nonzero(places >= 0)
        absent[row, places[row, at]] = False
        row_in, at = np.nonzero((places < 0) & (column[subsets] > size))
        row_out, gone = np.nonzero(absent & (column[self.incumbent] > size))
        arm = np.concatenate([subsets[row_in, at], self.incumbent[gone]])
        sign = np.concatenate([np.ones(len(row_in)), np.full(len(row_out), -1.0)])
        return RelativeRows(x[:, :-1], np.concatenate([row_in, row_out]), arm, sign)

    @property
    def _indicator(self) -> FloatArray:
        """A row with 1 in the incumbent's columns and -1 in the level's column, if all arms are contenders."""
        row = np.zeros(len(self.mean) + 1)
        row[1:][self.incumbent] = 1.0
        row[0] = -1.0
        return row

    @property
    def _dense(self) -> IntArray | slice:
        """The contenders as an index of arms; a slice of all, which is faster, if all arms are contenders."""
        return EVERY_ARM if len(self.contenders) == len(self.mean) else self.contenders

    def odds(self, rows: RelativeRows) -> FloatArray:
        """Return the mean log odds of each row."""
        dense = rows.x[:, 1:].dot(self.mean[self._dense]) + self.level
        return rows.plus(dense, rows.sign * self.mean[rows.arm]) if len(rows.row) else dense

    def predict(self, subsets: IntArray) -> Prediction:
        """Return what is known about these subsets; computed once for a plan."""
        if self._predicted is None or self._predicted[0] is not subsets or self._predicted[1] is not self.covariance:
            rows = self.relative(subsets)
            x, of_level = rows.x[:, 1:], self.covariance[0]
            apart = (x.dot(self.covariance[1:, 1:]) * x).sum(axis=1)
            if len(rows.row):
                apart = rows.plus(apart, self.variance[rows.arm])
            spread = apart + 2 * x.dot(of_level[1:]) + of_level[0]
            self._predicted = subsets, self.covariance, Prediction(rows, self.odds(rows), spread, apart)
        return self._predicted[2]

    @property
    def root(self) -> FloatArray:
        """A root of the covariance: the matrix R with covariance = R R^T that is lower triangular."""
        if self._rooted is None or self._rooted[0] is not self.covariance:
            self._rooted = self.covariance, cholesky(self.covariance)
        return self._rooted[1]

    def edges(self, allowed: Allowed | None = None) -> tuple[float, float]:
        """Return the mean effects of the incumbent's weakest arm and of the strongest other arm.

        Under constraints, the two arms are the pair whose allowed exchange is expected to gain the most.
        """
        if allowed is not None:
            _, weakest, strongest = self.partners(allowed)
            return weakest, strongest
        others = self.mean.copy()
        others[self.incumbent] = -math.inf
        return float(self.mean[self.incumbent].min()), float(others.max())

    def partners(self, allowed: Allowed) -> tuple[FloatArray, float, float]:
        """Return, for each arm, the mean effect of the arm that an allowed exchange would compare it with.

        For an arm of the incumbent, it is the strongest that may take its place; for another, the weakest whose place
        it may take. Arms without an allowed exchange have the edges of the incumbent. Also return the mean effects of
        the two arms whose exchange is expected to gain the most.
        """
        barred, own = allowed.exchanges(self.incumbent).barred, self.mean[self.incumbent]
        partner = (own[:, None] - barred).min(axis=0)
        strongest = (self.mean + barred).max(axis=1)
        place = int((strongest - own).argmax())
        partner[self.incumbent] = strongest
        edges = float(own[place]), float(strongest[place])
        if math.isinf(edges[1]):  # no exchange of two arms is allowed
            edges = self.edges()
        if not (finite := np.isfinite(partner)).all():
            edge = np.full(len(partner), edges[0])
            edge[self.incumbent] = edges[1]
            partner = np.where(finite, partner, edge)
        return partner, *edges

    def boundary(self, allowed: Allowed | None = None) -> float:
        """Return the effect halfway between the incumbent's weakest arm and the strongest other arm."""
        weakest, strongest = self.edges(allowed)
        return (weakest + strongest) / 2

    # The update.

    def learn(
        self,
        subsets: IntArray,
        predicted: Prediction,
        rewards: FloatArray,
        weights: FloatArray,
        constants: Constants,
        allowed: Allowed | None = None,
        coming: IntArray = NO_ARMS,
        arms_change: bool = False,
    ) -> None:
        """Update with the mean reward of each subset, weighted in plays of a Bernoulli arm; update the incumbent.

        `coming` are other subsets of the plan, whose rewards are late: the incumbent may move to them, too.
        With `arms_change`, rows that earn less than predicted raise doubt, too. Without it they do not: a subset is
        played because it looked best, which is in part luck.
        """
        before, spread = predicted.odds, predicted.spread
        start = None if len(self.incumbent) else (self.level, self.mean.copy())
        odds = self._condition(predicted, rewards, weights)
        moved = abs(odds - before) if arms_change else odds - before
        surprise = float((moved - constants.surprise * np.sqrt(spread)).max())
        if len(coming) and start is None:
            subsets = np.concatenate([subsets, coming])
            odds = np.concatenate([odds, self.odds(self.relative(coming))])
        self.move(subsets, odds, allowed)
        if start is not None:  # what the prior expects of the first incumbent is no surprise
            expected = start[0] + float(start[1][self.incumbent].sum())
            self.highest_level = max(self.highest_level, min(self.level, expected))
        if self.level > self.highest_level:
            self.widen(math.exp(constants.climb * (self.level - self.highest_level)))
            self.highest_level = self.level
        if surprise > 0:
            self._add_variance((constants.doubt * surprise) ** 2)
        ahead = max(self.edges(allowed)[0] - float(self.mean.mean()), 0.0)
        self.raise_prior((ahead / constants.reach) ** 2)
        self._choose_contenders(constants, allowed)

    def _condition(self, predicted: Prediction, rewards: FloatArray, weights: FloatArray) -> FloatArray:
        """Condition the level and all effects on rows; return the log odds of the rows.

        A row with an arm that is not a contender updates only such arms. The contenders' covariance is too precise to
        be mixed with variances alone: the same information would be counted again with every plan.
        """
        rows, before = predicted.rows, predicted.odds
        self._predicted = None
        if not len(rows.row):
            return self._learn_contenders(rows.x, before, rewards, weights)
        mixed = self.learn_mixed(rows, rewards, weights)
        if len(dense := np.setdiff1d(np.arange(len(before)), mixed)):
            self._learn_contenders(rows.x[dense], before[dense], rewards[dense], weights[dense])
        return self.odds(rows)

    def expecting(self, subsets: IntArray, weights: FloatArray) -> Posterior:
        """Return the posterior if plays of these subsets earn what is expected of them; this one does not change.

        The means stay the same, and the variances become smaller.
        """
        other = replace(self, mean=self.mean.copy(), variance=self.variance.copy())
        predicted = other.predict(subsets)
        other._condition(predicted, expit(predicted.odds), weights)
        return other

    def learn_mixed(self, rows: RelativeRows, rewards: FloatArray, weights: FloatArray) -> IntArray:
        """Update the arms that are not contenders with the rows that have some; return the numbers of these rows."""
        mixed = np.unique(rows.row)
        for start in range(0, len(mixed), ROWS_AT_ONCE):
            part = mixed[start : start + ROWS_AT_ONCE]
            self._learn_arms(rows.only(part), rewards[part], weights[part])
        return mixed

    def _learn_contenders(
        self, x: FloatArray, before: FloatArray, rewards: FloatArray, weights: FloatArray
    ) -> FloatArray:
        """Condition the level and the contenders on rows without other arms, by a Laplace approximation at the mode.

        The level and the effects are their means + root z, with z standard normal before the rows. Return the log odds
        of the rows at the mode.
        """
        root = self.root
        a, one = x.dot(root), _identity(len(root))
        z, odds = np.zeros(len(root)), before
        for _ in range(NEWTON_STEPS):
            value = expit(odds)
            curvature = weights * np.maximum(value * (1 - value), TINY)
            precision = (a * curvature[:, None]).T.dot(a)
            precision += one
            # The precision is symmetric, and its transpose is in LAPACK's order.
            factor, step, _ = dposv(precision.T, (weights * (rewards - value)).dot(a) - z, lower=1, overwrite_a=1)
            by = a.dot(step)
            longest = abs(float(by[idamax(by)]))
            if longest > LONGEST_STEP:
                step, by = step * (LONGEST_STEP / longest), by * (LONGEST_STEP / longest)
            z, odds = z + step, odds + by
            if longest < CONVERGED:
                break
        shift = root.dot(z)
        # Not LAPACK's dtrtrs: OpenBLAS wakes all threads for it, which then spin for longer than all of this takes.
        half = dtrsm(1.0, factor, root.T, lower=1)
        self.level += float(shift[0])
        self.mean[self._dense] += shift[1:]
        self._set_covariance(half)
        return odds

    def _set_covariance(self, half: FloatArray) -> None:
        """Set the covariance to half^T half; if all arms are contenders, centre the effects at their average first.

        A shift of all effects changes no swap. Before there is an incumbent, it changes the level.
        """
        if len(self.incumbent) and len(self.contenders) == len(self.mean):
            half = half.dot(_centring(len(half)))
        self.covariance = half.T @ half
        self.variance[self._dense] = np.maximum(self.covariance.diagonal()[1:], TINY * self.prior_variance)

    def _learn_arms(self, rows: RelativeRows, rewards: FloatArray, weights: FloatArray) -> None:
        """Condition the arms that are not contenders on rows that have some; the others stay, with their uncertainty.

        (Schmidt, 1966.)
        """
        arms, which = np.unique(rows.arm, return_inverse=True)
        swapped = np.zeros((len(rows.x), len(arms)))
        swapped[rows.row, which] = rows.sign
        with_arms = swapped * self.variance[arms]
        among = rows.x @ self.covariance @ rows.x.T + with_arms @ swapped.T
        before = odds = self.odds(rows)
        for _ in range(NEWTON_STEPS):
            value = expit(odds)
            slope = np.maximum(value * (1 - value), TINY)
            total = among.copy()
            total.flat[:: len(total) + 1] += 1 / (weights * slope)
            factor, _ = dpotrf(total, lower=1)
            pull, _ = dpotrs(factor, odds + (rewards - value) / slope - before, lower=1)
            step = np.clip(before + among @ pull - odds, -LONGEST_STEP, LONGEST_STEP)
            odds = odds + step
            if np.abs(step).max() < CONVERGED:
                break
        half = dtrsm(1.0, factor, with_arms, lower=1)
        self.mean[arms] += pull @ with_arms
        variance = self.variance[arms]
        self.variance[arms] = np.maximum(variance - (half * half).sum(axis=0), TINY * variance)

    # The incumbent.

    def move(self, subsets: IntArray, odds: FloatArray, allowed: Allowed | None) -> None:
        """Move the incumbent to the best of the subsets that were just played, or make all single swaps that pay.

        A swap that was not played is not made: it would compare two arms that were seen beside different arms. Swaps
        that pay one by one also pay together, if replacing an arm by a better one improves every subset. Under
        constraints, only allowed subsets count: what was played may be forbidden since.
        """
        if not len(self.incumbent):
            self.change_incumbent(top(self.mean, subsets.shape[1], allowed))
            self._set_covariance(self.root.T)
            return
        gain = odds - self.level
        pays = (gain > 0).nonzero()[0]
        if allowed is not None:
            pays = pays[allowed.allows(subsets[pays])]
        if not len(pays):
            return
        pays = pays[(-gain[pays]).argsort()]
        held, total = set(self.incumbent.tolist()), 0.0
        together = held.copy()
        for subset, gained in zip(map(set, subsets[pays].tolist()), gain[pays].tolist(), strict=True):
            out, new = held - subset, subset - held
            if len(out) == 1 and out <= together and not new & together:
                more = together - out | new
                if allowed is None or allowed.allows([sorted(more)])[0]:
                    together = more
                    total += gained
        best = subsets[pays[0]].tolist() if gain[pays[0]] >= total else together
        self.change_incumbent(np.array(sorted(best)))

    def change_incumbent(self, incumbent: IntArray) -> None:
        """Move the level to a new incumbent."""
        new = self.predict(incumbent[None, :])
        with_level = new.rows.x[0].dot(self.covariance)
        self.covariance = self.covariance.copy()
        self.covariance[0], self.covariance[:, 0] = with_level, with_level
        self.covariance[0, 0] = new.spread[0]
        self.level, self.incumbent = float(new.odds[0]), incumbent

    def beside(self, incumbent: IntArray) -> Posterior:
        """Return the same posterior with another incumbent; this one does not change."""
        other = replace(self)
        if (incumbent != self.incumbent).any():
            other.change_incumbent(incumbent)
        return other

    def _add_variance(self, added: float) -> None:
        """Add to the variance of each effect, up to the prior's."""
        self._add(np.clip(self.prior_variance - self.variance, 0.0, added))

    def _add(self, by: FloatArray) -> None:
        """Add to the variance of each effect."""
        self.variance = self.variance + by
        self.covariance = self.covariance + np.diag(np.concatenate([[0.0], by[self.contenders]]))

    def widen(self, factor: float) -> None:
        """Multiply each variance by `factor`, up to the prior's variance."""
        by = np.sqrt(np.clip(self.prior_variance / self.variance, 1.0, factor))
        self.variance = self.variance * by * by
        scale = np.concatenate([[math.sqrt(factor)], by[self._dense]])
        self.covariance = self.covariance * (scale[:, None] * scale)

    def rescale(self, before: tuple[float, float], after: tuple[float, float]) -> float:
        """Change the range of rewards from `before` to `after`, which includes it; keep what one reward is worth.

        Return the factor by which r(1 - r) changes at the level.
        """
        level, factor, slope = rescaled(self.level, before, after)
        self.highest_level += level - self.level
        self.level = level
        self.mean = self.mean * factor
        self.variance, self.covariance = self.variance * factor**2, self.covariance * factor**2
        self.prior_variance *= factor**2
        return slope

    def raise_prior(self, variance: float) -> None:
        """Raise the prior's variance of an effect to at least `variance`, and all variances with it."""
        if variance > self.prior_variance:
            factor, self.prior_variance = variance / self.prior_variance, variance
            self.widen(factor)

    def charge(
        self, by: FloatArray, before: tuple[float, float], after: tuple[float, float], allowed: Allowed | None
    ) -> float:
        """Lower the reward of each subset by the sum of its arms' `by`, while the range of rewards changes.

        Effects become those on the reward: what exchanges with the arms on the boundary earn at the means. There they
        change by `by`, the best subset by them is the incumbent, and exchanges with the arms on its boundary say what
        they are on the log odds. A change adds to the standard deviation of an effect, `UNSURE` times as much. Return
        the factor by which r(1 - r) changes at the level.
        """
        k, width, new_width = len(self.incumbent), before[1] - before[0], after[1] - after[0]
        sign, partner = self._exchanges_at(self.mean, self.incumbent)
        value = expit(self.level + sign * (self.mean - self.mean[partner]))
        start = float(expit(self.level))
        earns = width * sign * (value - start)
        earns[self.incumbent] += earns[partner[self.incumbent]]
        charged = earns - by
        old, incumbent = self.incumbent, top(charged, k, allowed)
        level = before[0] + width * start + charged[incumbent].sum() - earns[old].sum()
        if (incumbent != old).any():
            self.change_incumbent(incumbent)
        least = min(LEAST_PART, float(expit(-abs(self.level))))

        def odds(rewards: FloatArray | float) -> FloatArray:
            return np.asarray(logit(np.clip((rewards - after[0]) / new_width, least, 1 - least)))

        sign, partner = self._exchanges_at(charged, incumbent)
        rewards = level + sign * (charged - charged[partner])
        deviation = width * value * (1 - value) * np.sqrt(self.variance)
        factor = np.maximum(odds(rewards + deviation) - odds(rewards - deviation), TINY) / np.sqrt(4 * self.variance)
        now = float(odds(level))
        slope = float(expit(now) * expit(-now)) / (start * (1 - start))
        at_level = width / new_width / slope
        gains = odds(rewards) - now
        change = gains - odds(rewards + sign * (by - by[partner])) + now
        self.mean = sign * gains
        self.mean[incumbent] += gains[partner[incumbent]]
        self.variance = self.variance * factor**2
        scale = np.append(at_level, factor[self.contenders])
        self.covariance = self.covariance * np.outer(scale, scale)
        self.prior_variance *= (max(1 / slope, 1.0) * width / new_width) ** 2
        self.highest_level += now - self.level
        self.level = now
        self._add((UNSURE * change) ** 2)
        return slope

    @staticmethod
    def _exchanges_at(score: FloatArray, subset: IntArray) -> tuple[FloatArray, IntArray]:
        """Return, for each arm, the arm on the boundary that it is exchanged with, and -1 if it leaves, else 1."""
        others = score.copy()
        others[subset] = -math.inf
        partner = np.full(len(score), subset[score[subset].argmin()])
        partner[subset] = others.argmax()
        sign = np.ones(len(score))
        sign[subset] = -1.0
        return sign, partner

    # Arms.

    def start(self, added: int, keep: IntArray, groups: IntArray | None) -> Start:
        """Return the prior of new arms; with the `groups` of the kept arms and the new ones, what these say."""
        if groups is None:
            groups = np.full(len(keep) + added, -1)
        own, new = groups[: len(keep)], groups[len(keep) :]
        return start_of_new(self.mean[keep], self.variance[keep], self.prior_variance, own, new)

    def change_arms(self, keep: IntArray, start: Start, constants: Constants, allowed: Allowed | None = None) -> None:
        """Keep these arms, numbered from 0 in this order, and add arms with the mean and variance of `start`.

        `allowed` are the subsets of all arms after the change.
        """
        k, before, added = len(self.incumbent), len(self.mean), len(start.mean)
        stays = np.concatenate([keep, np.arange(before, before + added)])
        self.mean = np.concatenate([self.mean, start.mean])
        self.variance = np.concatenate([self.variance, start.variance])
        number = np.full(before + added, -1)
        number[stays] = np.arange(len(stays))
        left = number[self.incumbent]
        if (left < 0).any() or (allowed is not None and not allowed.allows(left[None, :])[0]):
            self.change_incumbent(np.sort(stays[top(self.mean[stays], k, allowed)]))
        self.mean, self.variance = self.mean[stays], self.variance[stays]
        self.incumbent = np.sort(number[self.incumbent])
        kept = np.flatnonzero(number[self.contenders] >= 0)
        kept = kept[np.argsort(number[self.contenders[kept]])]
        self.contenders = number[self.contenders[kept]]
        rows = np.concatenate([[0], 1 + kept])
        self.covariance = self.covariance[np.ix_(rows, rows)]
        self._choose_contenders(constants, allowed)

    def _choose_contenders(self, constants: Constants, allowed: Allowed | None) -> None:
        """Make contenders of the arms that are the fewest standard deviations away from the boundary."""
        if len(self.contenders) == len(self.mean):
            return
        nearest, most = np.arange(len(self.mean)), constants.contenders
        if len(self.mean) > most:
            nearest = np.sort(np.argpartition(self.distances(constants, allowed), most)[:most])
        _, new, old = np.intersect1d(nearest, self.contenders, assume_unique=True, return_indices=True)
        new, old = np.concatenate([[0], 1 + new]), np.concatenate([[0], 1 + old])
        covariance = np.diag(np.concatenate([self.covariance[0, :1], self.variance[nearest]]))
        covariance[np.ix_(new, new)] = self.covariance[np.ix_(old, old)]
        self.contenders, self.covariance = nearest, covariance

    def distances(self, constants: Constants, allowed: Allowed | None) -> FloatArray:
        """Return by how many standard deviations each arm is off the boundary; -1 for a few of the incumbent's."""
        boundary = self.boundary() if allowed is None else self.partners(allowed)[0]
        distance = np.abs(self.mean - boundary) / np.sqrt(self.variance)
        if allowed is not None:
            distance[allowed.never | allowed.always] = math.inf
        inside = distance[self.incumbent]
        distance[self.incumbent[np.argsort(inside)[: constants.inside]]] = -1.0
        return np.asarray(distance, float)

    def _loaded(self, policy: Policy) -> None:
        """Check the fields against each other. A prior has an empty incumbent."""
        if len(self.incumbent):
            self.incumbent = np.array(subset_of(self.incumbent.tolist(), policy.n_arms, policy.k))
        if not ((np.diff(self.contenders) > 0).all() and (self.contenders < policy.n_arms).all()):
            raise BadRecord("contenders must be different arms, sorted")
        size = len(self.contenders)
        if len(self.covariance) != size + 1:
            raise BadRecord(f"covariance must be the lower triangle of a matrix of {size + 1} rows")
        try:
            cholesky(self.covariance)
        except np.linalg.LinAlgError:
            raise BadRecord("covariance must be positive definite") from None


def rescaled(level: float, before: tuple[float, float], after: tuple[float, float]) -> tuple[float, float, float]:
    """Return a level after a change of the range of rewards, and the factors of effects there and of r(1 - r)."""
    part = (before[0] + (before[1] - before[0]) * float(expit(level)) - after[0]) / (after[1] - after[0])
    moved = float(np.clip(logit(part), -FARTHEST_LEVEL, FARTHEST_LEVEL))
    slopes = [float(expit(odds) * expit(-odds)) for odds in (level, moved)]
    # At the top of a range that was too narrow, effects looked smaller than they are: they do not shrink for that.
    factor = max(slopes[0] / slopes[1], 1.0) * (before[1] - before[0]) / (after[1] - after[0])
    return moved, factor, slopes[1] / slopes[0]


def top(mean: FloatArray, k: int, allowed: Allowed | None) -> IntArray:
    """Return the arms with the highest means that are allowed together."""
    return np.array(top_subset(mean, k)) if allowed is None else allowed.top(mean)


@lru_cache
def _identity(size: int) -> FloatArray:
    return np.identity(size)


@lru_cache
def _centring(size: int) -> FloatArray:
    """Return the matrix that makes effects relative to their average, and leaves the level."""
    centring = np.identity(size)
    centring[1:, 1:] -= 1 / (size - 1)
    return centring


def centred(covariance: FloatArray) -> FloatArray:
    """Return the covariance of the level, and of the effects relative to their average."""
    centring = _centring(len(covariance))
    return np.asarray(centring.T @ covariance @ centring)


def cholesky(covariance: FloatArray) -> FloatArray:
    """Return a factor of the covariance, after lifting eigenvalues that rounding has left slightly below zero."""
    lifted = covariance.copy("F")  # LAPACK's order: no further copy
    diagonal = lifted.reshape(-1, order="F")[:: len(lifted) + 1]
    diagonal *= 1 + TINY
    factor, failed = dpotrf(lifted, lower=1, clean=1, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("the covariance is not positive definite")
    return np.asarray(factor, float)
