"""The model of all segments: what the rewards of each say, and what follows for each from all.

Model: log odds of a subset's reward in a segment = start + intercept of the segment + effects of the subset's arms in
the segment. pooling.py says how segments share them. A plan's rewards of all segments are learned together, by a
Laplace approximation at the mode.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
from scipy.special import expit

from kofn.constraints.allowed import Allowed
from kofn.core import BadRecord, FloatArray, IntArray, Policy, Subset
from kofn.core.contexts import context_of
from kofn.core.fields import Fields, Part, any_length, integer, integers, number, numbers, part, symmetric, text
from kofn.policies.contextual.pooling import Design, Pool, design_of
from kofn.policies.thompson.alarms import Alarms
from kofn.policies.thompson.constants import Constants
from kofn.policies.thompson.posterior import (
    CONVERGED,
    LONGEST_STEP,
    NEWTON_STEPS,
    TINY,
    Posterior,
    centred,
    rescaled,
    top,
)

SHARES = 10.0 ** np.arange(-3.0, 0.1, 0.5)
"""Shares of a kind of components, before they are divided by their sum. More: finer pooling, and slower."""


class Rows(NamedTuple):
    """Rows of plays: the number of each one's segment, its subset, mean reward and weight, in plays of a coin."""

    segment: IntArray
    subsets: IntArray
    rewards: FloatArray
    weights: FloatArray


@dataclass
class Segment(Part):
    """What is known about one segment alone, and its incumbent."""

    fields = Fields(
        key=text(),
        plays=integer(),
        incumbent=integers(any_length),
        highest_level=number(),
        precision=symmetric(np.tril_indices),
        vector=numbers(any_length),
        alarms=part(Alarms),
    )

    key: str
    plays: int
    incumbent: IntArray
    highest_level: float
    precision: FloatArray
    vector: FloatArray
    alarms: Alarms = field(default_factory=Alarms)

    @classmethod
    def new(cls, key: str, size: int, incumbent: IntArray, level: float) -> Self:
        """Return a segment without rewards."""
        return cls(key, 0, incumbent, level, np.zeros((size, size)), np.zeros(size))

    def _loaded(self, policy: Policy) -> None:
        context_of(self.key)
        size = policy.n_arms + 1
        if self.precision.shape != (size, size) or self.vector.shape != (size,):
            raise BadRecord(f"the evidence of a segment must have {size} coordinates")
        if len(self.incumbent) != policy.k or len(set(self.incumbent.tolist())) != policy.k:
            raise BadRecord(f"the incumbent of a segment must be {policy.k} different arms")
        if self.incumbent.max() >= policy.n_arms:
            raise BadRecord(f"the incumbent of a segment must be arms from 0 to {policy.n_arms - 1}")


class Model:
    """All segments together."""

    def __init__(self, n_arms: int, k: int, start: float, variance: float, allowed: Allowed | None = None) -> None:
        """Return the model without rewards: each subset earns the log odds `start`, each effect has this variance."""
        self.n_arms, self.k, self.start, self.variance, self.allowed = n_arms, k, start, variance, allowed
        self.segments: list[Segment] = []
        self.shares: dict[str, float] = {}
        self._pooled: Pool | None = None

    # The pool.

    @property
    def keys(self) -> list[str]:
        """The keys of the segments."""
        return [segment.key for segment in self.segments]

    @property
    def pool(self) -> Pool:
        """The posterior of all segments; it is computed anew after each change."""
        if self._pooled is None:
            precision = np.stack([segment.precision for segment in self.segments])
            vector = np.stack([segment.vector for segment in self.segments])
            design = design_of(self.keys)
            self._pooled = Pool(design, self._variances(design), precision, vector)
        return self._pooled

    def _variances(self, design: Design, shares: dict[str, float] | None = None) -> FloatArray:
        """Return the variances of components: a row for each kind, a column for each coordinate.

        Effects have the prior's variance in total. Intercepts have K times that for each kind: how much segments differ
        in what they earn says nothing about how much they differ in what is best.
        """
        known = self.shares if shares is None else shares
        share = np.array([known.get(kind, 1.0) for kind in design.kinds])
        variances = np.repeat(self.variance * share[:, None] / share.sum(), self.n_arms + 1, axis=1)
        variances[:, 0] = self.variance * self.k
        return variances

    def _learn_shares(self) -> None:
        """Set the share of each kind of components to its posterior mean, on a grid, given the others."""
        pool = self.pool
        design = pool.design
        if len(design.kinds) == 1:
            return
        for kind in (*design.kinds[1:], design.kinds[0]):
            tried = [
                Pool(design, self._variances(design, {**self.shares, kind: float(share)}), pool.precision, pool.vector)
                for share in SHARES
            ]
            log_evidence = np.array([each.log_evidence for each in tried])
            weight = np.exp(log_evidence - log_evidence.max())
            self.shares[kind] = float(weight @ SHARES / weight.sum())
        self._pooled = None

    def share_of(self, kind: str) -> float:
        """Return the share of a kind of components in the variance of the effects."""
        kinds = self.pool.design.kinds
        return self.shares.get(kind, 1.0) / sum(self.shares.get(each, 1.0) for each in kinds)

    # Segments.

    def number_of(self, key: str) -> int:
        """Return the number of the segment; add it if it is new."""
        keys = self.keys
        if key not in keys:
            self.segments.append(self.expected(key))
            self._pooled = None
            return len(keys)
        return keys.index(key)

    def expected(self, key: str) -> Segment:
        """Return a new segment as the others let expect it."""
        if not self.segments:
            none = np.empty(0, np.int64)
            return Segment.new(key, self.n_arms + 1, none, self.start)
        trial = self.with_segment(Segment.new(key, self.n_arms + 1, np.arange(self.k), self.start))
        means = trial.pool.means[-1]
        incumbent = top(means[1:], self.k, self.allowed)
        return Segment.new(key, self.n_arms + 1, incumbent, self._level(means, incumbent))

    def with_segment(self, segment: Segment) -> Model:
        """Return a model with one more segment; both share all other segments."""
        other = Model(self.n_arms, self.k, self.start, self.variance, self.allowed)
        other.segments, other.shares = [*self.segments, segment], self.shares
        return other

    def _level(self, means: FloatArray, subset: IntArray) -> float:
        return self.start + float(means[0] + means[subset + 1].sum())

    def posterior(self, place: int) -> Posterior:
        """Return the posterior of one segment as thompson has it: relative to its incumbent."""
        segment, means, covariance = self.segments[place], self.pool.means[place], self.pool.covariance(place)
        to_level = np.eye(self.n_arms + 1)
        to_level[0, segment.incumbent + 1] = 1.0
        relative = centred(to_level @ covariance @ to_level.T)
        variance = np.maximum(relative.diagonal()[1:], TINY * self.variance)
        level = self._level(means, segment.incumbent)
        return Posterior(
            segment.incumbent,
            level,
            segment.highest_level,
            self.variance,
            means[1:].copy(),
            variance.copy(),
            np.arange(self.n_arms),
            relative,
        )

    @property
    def levels(self) -> FloatArray:
        """The mean log odds of the incumbent of each segment."""
        means = self.pool.means
        return np.array([self._level(means[at], segment.incumbent) for at, segment in enumerate(self.segments)])

    @property
    def typical_level(self) -> float:
        """The average of the levels over all plays."""
        return float(np.average(self.levels, weights=[max(segment.plays, 1) for segment in self.segments]))

    def best_for(self, numbers: Iterable[int]) -> Subset:
        """Return the one subset that earns the most over these segments, by the posterior means.

        It is one of their incumbents, or has the highest means: weighted by plays, and by how much a reward changes.
        """
        chosen = list(numbers)
        means, plays = self.pool.means[chosen], np.array([self.segments[at].plays for at in chosen], float)
        plays = np.maximum(plays, 1.0)
        slope = expit(self.levels[chosen]) * expit(-self.levels[chosen])
        averages = np.average(means[:, 1:], axis=0, weights=plays * np.maximum(slope, TINY))
        subsets = [self.segments[at].incumbent for at in chosen]
        if len({tuple(subset.tolist()) for subset in subsets}) > 1:
            subsets.append(top(averages, self.k, self.allowed))
        x = design_rows(np.stack(subsets), self.n_arms)
        value = expit(self.start + x @ means.T) @ plays
        return tuple(subsets[int(value.argmax())].tolist())

    def predict(self, segment: IntArray, subsets: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the variance of the log odds of rows."""
        x = design_rows(subsets, self.n_arms)
        odds = self.start + (x * self.pool.means[segment]).sum(axis=1)
        spread = np.empty(len(odds))
        for place in np.unique(segment).tolist():
            rows = segment == place
            spread[rows] = ((x[rows] @ self.pool.covariance(place)) * x[rows]).sum(axis=1)
        return odds, spread

    # The update.

    def learn(self, rows: Rows, before: FloatArray, spread: FloatArray, constants: Constants) -> None:
        """Learn from rows of plays of which log odds `before` with the variance `spread` were expected."""
        x = design_rows(rows.subsets, self.n_arms)
        odds = self._learn_rows(rows, x, before)
        self._learn_shares()
        first = [place for place, segment in enumerate(self.segments) if not len(segment.incumbent)]
        for place in first:
            self.segments[place].incumbent = top(self.pool.means[place, 1:], self.k, self.allowed)
        doubts = {}
        excess = abs(odds - before) - constants.surprise * np.sqrt(spread)
        for place in np.unique(rows.segment).tolist():
            doubts[place] = float(excess[rows.segment == place].max())
        for place in range(len(self.segments)):
            if place not in first:
                self._move(place, rows)
        self._widen(doubts, constants)

    def _learn_rows(self, rows: Rows, x: FloatArray, before: FloatArray) -> FloatArray:
        """Add what the rows say to the evidence of their segments; return their log odds at the mode."""
        pool, odds = self.pool, before
        means = pool.means
        for _ in range(NEWTON_STEPS):
            value = expit(odds)
            slope = np.maximum(value * (1 - value), TINY)
            weight = rows.weights * slope
            target = odds - self.start + (rows.rewards - value) / slope
            precision, vector = pool.precision.copy(), pool.vector.copy()
            for place in np.unique(rows.segment).tolist():
                mine = rows.segment == place
                weighted = x[mine] * weight[mine, None]
                precision[place] += weighted.T @ x[mine]
                vector[place] += target[mine] @ weighted
            found = Pool(pool.design, self._variances(pool.design), precision, vector)
            by = (x * (found.means - means)[rows.segment]).sum(axis=1)
            longest = float(abs(by).max())
            part = min(1.0, LONGEST_STEP / longest) if longest else 1.0
            means, odds = means + part * (found.means - means), odds + part * by
            if longest < CONVERGED:
                break
        for place, segment in enumerate(self.segments):
            segment.precision, segment.vector = precision[place], vector[place]
        self._pooled = found
        return odds

    def _move(self, place: int, rows: Rows) -> None:
        """Move the incumbent to the best of the subsets that were just played, or to another segment's incumbent."""
        segment = self.segments[place]
        others = np.stack([each.incumbent for each in self.segments])
        subsets = np.concatenate([rows.subsets[rows.segment == place], others])
        odds = self.start + (design_rows(subsets, self.n_arms) * self.pool.means[place]).sum(axis=1)
        view = self.posterior(place)
        view.move(subsets, odds, self.allowed)
        segment.incumbent = view.incumbent

    def _widen(self, doubts: dict[int, float], constants: Constants) -> None:
        """Trust less what segments said whose level has climbed, or whose rewards were a surprise; keep all means."""
        means, changed = self.pool.means, False
        for place, segment in enumerate(self.segments):
            level = self._level(means[place], segment.incumbent)
            if level > segment.highest_level:
                factor = math.exp(constants.climb * (level - segment.highest_level))
                segment.precision = segment.precision / factor
                segment.highest_level, changed = level, True
            if (surprise := doubts.get(place, 0.0)) > 0:
                segment.precision = doubted(segment.precision, (constants.doubt * surprise) ** 2)
                changed = True
        if changed:
            self._keep(means)

    def _keep(self, means: FloatArray) -> None:
        """Set the evidence so that the posterior has these means."""
        self._pooled = None
        vector = self.pool.vector_for(means)
        for place, segment in enumerate(self.segments):
            segment.vector = vector[place]
        self._pooled = None

    def forget(self, factor: float) -> None:
        """Divide what all rewards so far count by `factor`; keep all means."""
        means = self.pool.means
        for segment in self.segments:
            segment.precision = segment.precision / factor
        self._keep(means)

    def rescale(self, before: tuple[float, float], after: tuple[float, float]) -> float:
        """Change the range of rewards from `before` to `after`, which includes it; see `Posterior.rescale`."""
        means, levels = self.pool.means, self.levels.tolist()
        _, factor, slope = rescaled(self.typical_level, before, after)
        self.start = rescaled(self.start, before, after)[0]
        self.variance *= factor**2
        means = means * factor
        for place, (segment, level) in enumerate(zip(self.segments, levels, strict=True)):
            moved = rescaled(level, before, after)[0]
            segment.highest_level += moved - level
            segment.precision = segment.precision / factor**2
            means[place, 0] += moved - self._level(means[place], segment.incumbent)
        self._keep(means)
        return slope

    def raise_prior(self, variance: float) -> None:
        """Raise the prior's variance of an effect to at least `variance`, and all variances with it."""
        if variance > self.variance:
            means, factor = self.pool.means, variance / self.variance
            self.variance = variance
            for segment in self.segments:
                segment.precision = segment.precision / factor
            self._keep(means)

    def change_arms(self, keep: IntArray, added: int, allowed: Allowed | None) -> None:
        """Keep these arms, numbered from 0 in this order, and add arms of which nothing is known."""
        gone = np.setdiff1d(np.arange(self.n_arms), keep)
        stays, leaves = np.concatenate([[0], keep + 1]), gone + 1
        size = len(keep) + added + 1
        for segment in self.segments:
            precision, vector = np.zeros((size, size)), np.zeros(size)
            known = np.linalg.solve(
                segment.precision[np.ix_(leaves, leaves)] + np.eye(len(leaves)) / self.variance,
                np.column_stack([segment.precision[np.ix_(leaves, stays)], segment.vector[leaves]]),
            )
            through = segment.precision[np.ix_(stays, leaves)] @ known
            within = np.arange(len(stays))
            precision[np.ix_(within, within)] = segment.precision[np.ix_(stays, stays)] - through[:, :-1]
            vector[within] = segment.vector[stays] - through[:, -1]
            segment.precision, segment.vector = (precision + precision.T) / 2, vector
            new = {arm: at for at, arm in enumerate(keep.tolist())}
            left = [new[arm] for arm in segment.incumbent.tolist() if arm in new]
            segment.incumbent = np.array(sorted(left), np.int64)
        self.n_arms, self.allowed, self._pooled = len(keep) + added, allowed, None
        self.obey(allowed)

    def obey(self, allowed: Allowed | None) -> None:
        """Replace incumbents that lack arms or that the rules do not allow by the best subsets that they allow."""
        self.allowed = allowed
        means = self.pool.means if self.segments else np.empty((0, 0))
        for place, segment in enumerate(self.segments):
            whole = len(segment.incumbent) == self.k
            if whole and (allowed is None or allowed.allows(segment.incumbent[None, :])[0]):
                continue
            segment.incumbent, segment.alarms = top(means[place, 1:], self.k, allowed), Alarms()


def design_rows(subsets: IntArray, n_arms: int) -> FloatArray:
    """Return the coordinates of subsets: 1 for the intercept and for each arm."""
    x = np.zeros((len(subsets), n_arms + 1))
    x[np.arange(len(subsets))[:, None], subsets + 1] = 1.0
    x[:, 0] = 1.0
    return x


def doubted(precision: FloatArray, variance: float) -> FloatArray:
    """Return the precision of evidence about effects to which independent errors of this variance were added."""
    effects = precision[1:, 1:] + np.eye(len(precision) - 1) / variance
    through = precision[:, 1:] @ np.linalg.solve(effects, precision[1:])
    return np.asarray(precision - (through + through.T) / 2)
