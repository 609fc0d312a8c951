"""The model of all segments: what the rewards of each say, and what follows for each from all.

Model: log odds of a subset's reward in a segment = start + intercept of the segment + effects of the subset's arms in
the segment. pooling.py says how segments share them. The rewards of a plan are learned for all segments together, by
a Laplace approximation at the mode.

As in thompson's posterior, only the contenders, arms near the boundary of the top K of some segment, have evidence
about pairs. The other arms are pooled one by one, and rows with such arms update only them. Effects of other arms that
are in an incumbent count as part of its segment's intercept.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from kofn.constraints.allowed import Allowed
from kofn.core import BadRecord, FloatArray, IntArray, Subset
from kofn.core.fields import Fields, any_length, by_name, each, integers, number, part
from kofn.policies.contextual.pooling import ALL, Design, Pool, design_of, pooled_arms, prior_covariance
from kofn.policies.contextual.segment import SegmentEvidence
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

SHARES = np.concatenate([[1e-8], 10.0 ** np.arange(-3.0, 0.1, 0.5)])
"""Shares of a kind of components in the prior's variance that are tried. The first one says that there are no such
components. More: finer pooling, and slower."""

PRIOR = np.concatenate([[0.5], np.full(len(SHARES) - 1, 0.5 / (len(SHARES) - 1))])
"""Probabilities of the shares before they are learned. A higher first one: segments that are alike are pooled sooner,
and those that differ later."""

SAFETY = 4.0
"""Factor of the shares that were learned, up to 1. Higher: less pooling."""


class PlayRows(NamedTuple):
    """Rows of plays: the number of each one's segment, its subset, mean reward and weight, in plays of a coin."""

    segment: IntArray
    subsets: IntArray
    rewards: FloatArray
    weights: FloatArray

    def only(self, rows: NDArray[np.bool_]) -> PlayRows:
        """Return these rows."""
        return PlayRows(self.segment[rows], self.subsets[rows], self.rewards[rows], self.weights[rows])


class Model:
    """All segments together; `fields` are written to the policy's record."""

    fields: ClassVar[Fields] = Fields(
        start=number(),
        variance=number(above=0),
        shares=by_name(),
        contenders=integers(any_length),
        segments=each(part(SegmentEvidence)),
    )

    def __init__(
        self,
        n_arms: int,
        k: int,
        start: float,
        variance: float,
        constants: Constants,
        allowed: Allowed | None = None,
    ) -> None:
        """Return the model without rewards: each subset earns the log odds `start`, each effect has this variance."""
        self.n_arms, self.k, self.start, self.variance = n_arms, k, start, variance
        self.constants, self.allowed = constants, allowed
        self.contenders: IntArray = np.arange(min(n_arms, constants.contenders))
        self.segments: list[SegmentEvidence] = []
        self.shares: dict[str, float] = {}
        self._changed()

    def _changed(self, pool: Pool | None = None) -> None:
        """Compute again what follows from the evidence; `pool` is what is known of it already."""
        self._pooled = pool
        self._arms: tuple[FloatArray, FloatArray] | None = None
        self._posteriors: dict[int, Posterior] = {}

    @property
    def keys(self) -> list[str]:
        """The keys of the segments."""
        return [segment.key for segment in self.segments]

    @property
    def is_dense(self) -> bool:
        """Whether all arms are contenders."""
        return len(self.contenders) == self.n_arms

    @property
    def _column(self) -> IntArray:
        """The coordinate of each arm, 0 for those that are not contenders."""
        column = np.zeros(self.n_arms, np.int64)
        column[self.contenders] = np.arange(1, len(self.contenders) + 1)
        return column

    def _rows(self, subsets: IntArray) -> FloatArray:
        """Return the coordinates of subsets: 1 for the intercept and for each of their contenders."""
        x = np.zeros((len(subsets), len(self.contenders) + 1))
        x[np.arange(len(subsets))[:, None], self._column[subsets]] = 1.0
        x[:, 0] = 1.0
        return x

    def coordinates(self, subset: IntArray) -> FloatArray:
        """Return the coordinates of one subset."""
        return np.asarray(self._rows(subset[None, :])[0])

    def check(self) -> None:
        """Raise BadRecord unless all parts of a record fit."""
        size, arms = min(self.n_arms, self.constants.contenders) + 1, 0 if self.is_dense else self.n_arms
        unsorted = (np.diff(self.contenders) <= 0).any() or self.contenders.max(initial=-1) >= self.n_arms
        if unsorted or len(self.contenders) != size - 1:
            raise BadRecord(f"contenders must be {size - 1} different arms from 0 to {self.n_arms - 1}, sorted")
        for segment in self.segments:
            if segment.precision.shape != (size, size) or segment.vector.shape != (size,):
                raise BadRecord(f"the evidence of a segment must have {size} coordinates")
            if segment.arm_precision.shape != (arms,) or segment.arm_vector.shape != (arms,):
                raise BadRecord(f"the evidence of a segment about single arms must have {arms} numbers")

    # The pool.

    @property
    def pool(self) -> Pool:
        """The posterior of the contenders in all segments."""
        if self._pooled is None:
            precision = np.stack([segment.precision for segment in self.segments])
            vector = np.stack([segment.vector for segment in self.segments])
            design = design_of(self.keys)
            self._pooled = Pool(design, self._variances(design), precision, vector)
        return self._pooled

    @property
    def _of_arms(self) -> tuple[FloatArray, FloatArray]:
        """The means and the variances of all arms that are not contenders, a row for each segment."""
        if self._arms is None:
            precision = np.stack([segment.arm_precision for segment in self.segments])
            vector = np.stack([segment.arm_vector for segment in self.segments])
            design = self.pool.design
            self._arms = pooled_arms(design, self._variances(design)[:, -1], precision, vector)
        return self._arms

    def _variances(self, design: Design, shares: FloatArray | None = None) -> FloatArray:
        """Return the variances of components: a row for each kind, a column for each coordinate.

        Intercepts have K times the prior's variance for each kind: segments that earn different amounts may still agree
        on what is best.
        """
        if shares is None:
            shares = np.minimum(SAFETY * self._known_shares(design), 1.0)
        variances = np.repeat(self.variance * shares[:, None], len(self.contenders) + 1, axis=1)
        variances[:, 0] = self.variance * self.k
        return variances

    def _known_shares(self, design: Design) -> FloatArray:
        """Return the share of each kind, as far as it is learned; that of a single segment is 1."""
        if len(design.kinds) == 1:
            return np.ones(1)
        return np.array([self.shares.get(kind, 1.0 if kind == ALL else typical_share(PRIOR)) for kind in design.kinds])

    def _learn_share(self, turn: int) -> None:
        """Set the share of one kind of components, each in its turn, to the typical one of its posterior.

        The others are given. All of them at every update would take several times as long, and gain nothing.
        """
        design = self.pool.design
        if len(design.kinds) == 1:
            return
        kind, known = turn % len(design.kinds), self._known_shares(design)
        base, log_evidence = self.pool.with_variance(self._variances(design, known)), np.empty(len(SHARES))
        for at, share in enumerate(SHARES.tolist()):
            known[kind] = share
            log_evidence[at] = base.with_variance(self._variances(design, known)).log_evidence
        weight = PRIOR * np.exp(log_evidence - log_evidence.max())
        self.shares[design.kinds[kind]] = typical_share(weight / weight.sum())
        self._changed()

    # What is known about a segment.

    def number_of(self, key: str) -> int:
        """Return the number of the segment; add it if it is new."""
        keys = self.keys
        if key not in keys:
            self.segments.append(self._new(key))
            self._changed()
            return len(keys)
        return keys.index(key)

    def _new(self, key: str) -> SegmentEvidence:
        return SegmentEvidence.new(key, len(self.contenders) + 1, 0 if self.is_dense else self.n_arms)

    def with_segment(self, key: str) -> Model:
        """Return a model with one more segment, predicted from the others; both share all other segments."""
        other, new = copy.copy(self), self._new(key)
        other.segments = [*self.segments, new]
        other._changed()
        new.incumbent = top(other.means(-1), self.k, self.allowed)
        return other

    def means(self, place: int) -> FloatArray:
        """Return the mean effect of each arm in a segment."""
        dense: FloatArray = self.pool.means[place, 1:]
        if self.is_dense:
            return dense.copy()
        means = self._of_arms[0][place].copy()
        means[self.contenders] = dense
        return np.asarray(means)

    def level(self, place: int, coordinates: FloatArray | None = None) -> float:
        """Return the mean log odds of a segment's incumbent, or those with other coordinates."""
        own = self.pool.means[place] if coordinates is None else coordinates
        incumbent = self.segments[place].incumbent
        return self.start + float(self.coordinates(incumbent) @ own)

    @property
    def levels(self) -> FloatArray:
        """The mean log odds of the incumbent of each segment."""
        return np.array([self.level(place) for place in range(len(self.segments))])

    @property
    def typical_level(self) -> float:
        """The average of the levels over all plays."""
        return float(np.average(self.levels, weights=[max(segment.plays, 1) for segment in self.segments]))

    def posterior(self, place: int) -> Posterior:
        """Return the posterior of one segment as thompson has it: relative to its incumbent."""
        if place not in self._posteriors:
            self._posteriors[place] = self._relative(place)
        return copy.copy(self._posteriors[place])

    def _relative(self, place: int) -> Posterior:
        segment, relative = self.segments[place], self.pool.covariances[place]
        level = self.level(place)
        if len(segment.incumbent):
            to_level = np.eye(len(relative))
            to_level[0] = self.coordinates(segment.incumbent)
            relative = to_level @ relative @ to_level.T
            if self.is_dense:
                relative = centred(relative)
        variance = np.empty(self.n_arms) if self.is_dense else self._of_arms[1][place].copy()
        variance[self.contenders] = np.maximum(relative.diagonal()[1:], TINY * self.variance)
        return Posterior(
            segment.incumbent,
            level,
            level,  # a climb of the level matters to thompson's own updates only
            self.variance,
            self.means(place),
            variance,
            self.contenders,
            relative,
        )

    def odds(self, place: int, subsets: IntArray) -> FloatArray:
        """Return the mean log odds of subsets in a segment."""
        means, incumbent = self.means(place), self.segments[place].incumbent
        return np.asarray(self.level(place) - means[incumbent].sum() + means[subsets].sum(axis=1))

    def best_for(self, places: Iterable[int]) -> Subset:
        """Return the one subset that earns the most over these segments, by the posterior means.

        It is one of their incumbents, or has the highest means: weighted by plays, and by how much a reward changes.
        """
        chosen = list(places)
        plays = np.maximum([float(self.segments[place].plays) for place in chosen], 1.0)
        subsets = [self.segments[place].incumbent for place in chosen]
        if len({tuple(subset.tolist()) for subset in subsets}) > 1:
            levels = self.levels[chosen]
            slope = np.maximum(expit(levels) * expit(-levels), TINY)
            averages = np.average([self.means(place) for place in chosen], axis=0, weights=plays * slope)
            subsets.append(top(averages, self.k, self.allowed))
        rows = np.unique(np.stack(subsets), axis=0)
        earned = [weight * expit(self.odds(place, rows)) for weight, place in zip(plays, chosen, strict=True)]
        return tuple(rows[int(np.sum(earned, axis=0).argmax())].tolist())

    def predict(self, segment: IntArray, subsets: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the variance of the log odds of rows."""
        odds, spread = np.empty(len(subsets)), np.empty(len(subsets))
        for place in np.unique(segment).tolist():
            rows = segment == place
            predicted = self.posterior(place).predict(subsets[rows])
            odds[rows], spread[rows] = predicted.odds, predicted.spread
        return odds, spread

    # The update.

    def learn(self, rows: PlayRows, before: FloatArray, turn: int) -> None:
        """Learn from rows of plays of which log odds `before` were expected.

        `turn` is the number of the update. Each update learns a share, in turn. If there are more arms than contenders,
        every other update chooses contenders instead.
        """
        chooses = not self.is_dense and turn % 2 == 0
        known = [self.posterior(place) for place in range(len(self.segments))] if chooses else []
        dense = np.ones(len(before), bool) if self.is_dense else self._learn_arms(rows)
        if dense.any():
            self._learn_rows(rows.only(dense), before[dense])
        if not chooses:
            self._learn_share(turn if self.is_dense else turn // 2)
        new = [place for place, segment in enumerate(self.segments) if not len(segment.incumbent)]
        for place in new:
            self.segments[place].incumbent = top(self.means(place), self.k, self.allowed)
        levels = [self.level(place) if place in new else self._move(place, rows) for place in range(len(self.segments))]
        if not self.is_dense:  # arms of an incumbent that are no contenders count as part of the intercept
            self._shift(np.array(levels) - self.levels)
        if chooses:
            self._choose_contenders(known)

    def _learn_arms(self, rows: PlayRows) -> NDArray[np.bool_]:
        """Learn about arms that are not contenders from the rows that have some; return which rows have none."""
        dense = np.ones(len(rows.rewards), bool)
        for place in np.unique(rows.segment).tolist():
            mine, segment = np.flatnonzero(rows.segment == place), self.segments[place]
            posterior = self.posterior(place)
            before = posterior.mean, posterior.variance
            posterior.mean, posterior.variance = posterior.mean.copy(), posterior.variance.copy()
            relative = posterior.relative(rows.subsets[mine])
            mixed = posterior.learn_mixed(relative, rows.rewards[mine], rows.weights[mine])
            dense[mine[mixed]] = False
            more = 1 / posterior.variance - 1 / before[1]
            segment.arm_precision = np.maximum(segment.arm_precision + more, 0.0)
            segment.arm_vector = segment.arm_vector + posterior.mean / posterior.variance - before[0] / before[1]
        self._changed(self._pooled)
        return dense

    def _learn_rows(self, rows: PlayRows, before: FloatArray) -> None:
        """Add what rows of contenders say to the evidence of their segments."""
        pool, x, odds = self.pool, self._rows(rows.subsets), before
        means, other = pool.means, before - self.start - (x * pool.means[rows.segment]).sum(axis=1)
        for _ in range(NEWTON_STEPS):
            value = expit(odds)
            slope = np.maximum(value * (1 - value), TINY)
            weight = rows.weights * slope
            target = odds - self.start - other + (rows.rewards - value) / slope
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
        self._changed(found)

    def _move(self, place: int, rows: PlayRows) -> float:
        """Move the incumbent to the best of the subsets that were just played, or to another segment's incumbent.

        Return its log odds.
        """
        segment = self.segments[place]
        others = np.stack([each.incumbent for each in self.segments])
        subsets = np.concatenate([segment.incumbent[None, :], rows.subsets[rows.segment == place], others])
        if self.allowed is not None:
            subsets = subsets[self.allowed.allows(subsets)]
        odds = self.odds(place, subsets)
        best = int(odds.argmax())
        segment.incumbent = subsets[best]
        return float(odds[best])

    def _shift(self, moves: FloatArray) -> None:
        """Raise the intercept of each segment by these log odds: what its rewards say, and the prior's mean with it.

        Segments share a part of their intercepts, so the prior of all of them is shifted at once. If each shifted the
        prior that it has alone, the shared part would move by the sum of all moves, far beyond what plays can show.
        """
        design = design_of(self.keys)
        prior = np.linalg.solve(prior_covariance(design, self._variances(design)[:, 0]), moves)
        for segment, move, more in zip(self.segments, moves, prior, strict=True):
            segment.vector = segment.vector + segment.precision[:, 0] * move
            segment.vector[0] += more
        self._changed(self.pool.with_vector(np.stack([segment.vector for segment in self.segments])))

    def bound_levels(self, plays: float) -> None:
        """Limit levels to the log odds that this number of plays can show.

        If all of n plays win, Jeffreys' estimate of the rate is (n + 1/2) / (n + 1): log odds of log(2n + 1). The sums
        that levels are computed from have no such limit: incumbents are chosen because they look best.
        """
        levels, most = self.levels, math.log1p(2 * plays)
        if abs(levels).max() > most:
            self._shift(np.clip(levels, -most, most) - levels)

    @property
    def _prior(self) -> FloatArray:
        """The prior's precision of the coordinates of a segment that shares nothing."""
        prior = np.full(len(self.contenders) + 1, 1 / self.variance)
        prior[0] /= self.k
        return prior

    def forget(self, factor: float) -> None:
        """Divide what all rewards so far count by `factor`."""
        for segment in self.segments:
            segment.discount(factor, self._prior)
        self._changed()

    def rescale(self, before: tuple[float, float], after: tuple[float, float]) -> float:
        """Change the range of rewards from `before` to `after`, which includes it; see `Posterior.rescale`."""
        _, factor, slope = rescaled(self.typical_level, before, after)
        levels = [self.level(place, segment.means(self._prior)) for place, segment in enumerate(self.segments)]
        self.start = rescaled(self.start, before, after)[0]
        self.variance *= factor**2
        for place, (segment, level) in enumerate(zip(self.segments, levels, strict=True)):
            segment.rescale(factor)
            means = segment.means(self._prior)
            means[0] += rescaled(level, before, after)[0] - self.level(place, means)
            segment.keep(means, self._prior)
        self._changed()
        return slope

    # Arms.

    def _choose_contenders(self, known: Sequence[Posterior]) -> None:
        """Make contenders of the arms that are near the boundary of the top K of some segment.

        `known` has a recent posterior of each segment. Only its variances count: computing them again takes longer than
        all else.
        """
        nearest = np.full(self.n_arms, math.inf)
        for place, (segment, posterior) in enumerate(zip(self.segments, known, strict=True)):
            now = replace(posterior, incumbent=segment.incumbent, mean=self.means(place))
            nearest = np.minimum(nearest, now.distances(self.constants, self.allowed))
        chosen = np.sort(np.argsort(nearest, kind="stable")[: self.constants.contenders])
        if not np.array_equal(chosen, self.contenders):
            self._renumber(np.arange(self.n_arms), chosen)

    def change_arms(self, keep: IntArray, added: int, allowed: Allowed | None) -> None:
        """Keep these arms, numbered from 0 in this order, and add arms of which nothing is known."""
        arms = np.concatenate([keep, np.full(added, -1)])
        self.allowed = allowed
        most = self.constants.contenders
        first = np.argsort(~np.isin(arms, self.contenders), kind="stable")[:most]  # contenders stay so if possible
        self._renumber(arms, np.sort(first))
        if not self.is_dense:
            self._choose_contenders([self.posterior(place) for place in range(len(self.segments))])

    def _renumber(self, arms: IntArray, chosen: IntArray) -> None:
        """Change the numbers of arms, and which of them are contenders; `arms` has their numbers before, or -1.

        The means of effects stay, as far as segments do not share them. Incumbents that lack arms, or that rules
        forbid, are replaced.
        """
        expected = [self.means(place) for place in range(len(self.segments))]
        alone = [self._alone(place) for place in range(len(self.segments))]
        levels = [self.level(place, segment.means(self._prior)) for place, segment in enumerate(self.segments)]
        columns, number = self._column, np.full(self.n_arms, -1)
        number[arms[arms >= 0]] = np.flatnonzero(arms >= 0)
        self.n_arms, self.contenders = len(arms), chosen
        moves = np.empty(len(self.segments))
        for place, segment in enumerate(self.segments):
            segment.renumber(columns, arms, chosen, self.variance)
            before, segment.incumbent = alone[place][segment.incumbent].sum(), np.sort(number[segment.incumbent])
            effects, likely = (np.where(arms >= 0, each[place][arms], 0.0) for each in (alone, expected))
            self._replace(segment, likely)
            level = levels[place] + float(effects[segment.incumbent].sum() - before)
            means = np.concatenate([[segment.means(self._prior)[0]], effects[chosen]])
            moves[place] = level - self.level(place, means)
            segment.keep(means, self._prior)
        self._changed()
        self._shift(moves)

    def _alone(self, place: int) -> FloatArray:
        """Return the mean effect of each arm by the evidence of one segment alone."""
        segment = self.segments[place]
        dense = segment.means(self._prior)[1:]
        if self.is_dense:
            return dense
        means = segment.arm_vector / (segment.arm_precision + 1 / self.variance)
        means[self.contenders] = dense
        return np.asarray(means)

    def _replace(self, segment: SegmentEvidence, effects: FloatArray) -> None:
        """Replace an incumbent that lacks arms, or that rules forbid."""
        whole = segment.incumbent.min() >= 0
        if not whole or (self.allowed is not None and not self.allowed.allows(segment.incumbent[None, :])[0]):
            segment.incumbent, segment.alarms = top(effects, self.k, self.allowed), Alarms()

    def obey(self, allowed: Allowed | None) -> None:
        """Replace incumbents that the rules do not allow by the best subsets that they allow."""
        self.allowed = allowed
        self._renumber(np.arange(self.n_arms), self.contenders)


def typical_share(probability: FloatArray) -> float:
    """Return the share with the mean standard deviation; `probability` has that of each of SHARES."""
    return float(probability @ np.sqrt(SHARES)) ** 2
