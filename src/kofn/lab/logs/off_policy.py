"""Off-policy evaluation: what a subset would earn if it were always played, with standard errors.

Play t of the log earned r_t, and its subset was chosen with probability p_t. The estimates for a subset S are:

- inverse propensity: the mean of 1[S_t = S] r_t / p_t. Unbiased.
- self-normalised: the same, divided by the mean of 1[S_t = S] / p_t, which is 1 on average. Little bias, less noise.
- doubly robust: q(S) plus the mean of 1[S_t = S] (r_t - q(S)) / p_t, with an additive model q of the arms. Unbiased
  for any model if the propensities are right; the better the model, the less noise. Each half of the log is compared
  with a model that was fitted to the other half.

All three need plays of S. Without any, there is no estimate. The first and the last are right only if S was possible in
every play. Otherwise the log is adaptive, like the log of a campaign, whose plan has only some subsets. Then

- the mean of the rewards of S is right, if rewards do not depend on time: whatever the choice of S depended on, the
  reward of S has the same distribution. It uses no propensities. Its interval holds a little less often than it says:
  a subset that was unlucky gets no more plays, so its mean stays too low.
- the self-normalised estimate is right in the limit, but where a few plays have most of the weight, its error is
  understated.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from kofn.core import BadInput, FloatArray, Subset, ThinLogWarning, subset_of
from kofn.lab.logs.log import DecisionLog

FEWEST = 10
"""Plays of a subset below which its standard error is unreliable and a warning is given."""
_RIDGE = 1.0
"""Penalty of the additive model, in plays. A larger one pulls every arm's effect closer to 0."""
_FOLDS = 2
"""Parts of the log, each evaluated with a model that is fitted to the others."""

_POOLED = 20
"""Weight of the variance within all subsets in the variance of a subset, in plays. A larger value makes the errors of
means of few plays more alike. Without it, a subset that earned nothing in its few plays would have an error of 0."""


@dataclass(frozen=True)
class ValueWithError:
    """A value and its standard error."""

    value: float
    error: float

    def interval(self, level: float = 0.95, of: int = 1) -> tuple[float, float]:
        """Return a confidence interval; with `of=n`, n such intervals hold at once (Bonferroni)."""
        reach = float(special.ndtri(1 - (1 - level) / (2 * of))) * self.error
        return self.value - reach, self.value + reach


@dataclass(frozen=True)
class OffPolicyEstimate:
    """The estimates for one subset, and `mean`, the average reward of its plays.

    `weight` is 1 to within its error if the propensities are right and the subset was possible in every play. In an
    adaptive log it is the share of plays in which it was possible; NaN, like the other estimates but the mean, if fewer
    than two plays have a propensity.
    """

    subset: Subset
    plays: int
    weight: ValueWithError
    ips: ValueWithError
    snips: ValueWithError
    dr: ValueWithError
    mean: ValueWithError
    adaptive: bool = False

    @property
    def estimate(self) -> ValueWithError:
        """The estimate to use: the mean in an adaptive log, else the doubly robust one."""
        return self.mean if self.adaptive else self.dr

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; None for NaN."""
        estimates = {name: _plain(getattr(self, name)) for name in ("weight", "ips", "snips", "dr", "mean")}
        return {"subset": list(self.subset), "plays": self.plays, **estimates, "adaptive": self.adaptive}


def _plain(estimate: ValueWithError) -> dict[str, float | None]:
    numbers = {"value": estimate.value, "error": estimate.error}
    return {name: None if math.isnan(number) else number for name, number in numbers.items()}


def evaluate(log: DecisionLog, subset: Iterable[int]) -> OffPolicyEstimate:
    """Return estimates of what always playing `subset` would earn; BadInput if the log has fewer than two plays of it.

    >>> from kofn.lab.problems import Bernoulli, Problem
    >>> log = DecisionLog.simulate(Problem(Bernoulli([0.2, 0.5, 0.8, 0.1]), "mean", k=2), plays=6_000, seed=1)
    >>> found = evaluate(log, (1, 2))
    >>> found.plays, round(found.dr.value, 2), round(found.dr.error, 3)   # the truth is 0.65
    (1020, 0.65, 0.01)
    """
    subset = subset_of(subset, log.n_arms, log.k)
    sums = _Sums(log)
    match = np.flatnonzero((log.groups.subsets == subset).all(axis=1))
    plays = int(sums.plays[match[0]]) if match.size else 0
    if plays < 2:
        guess = float(np.mean([model @ _features(subset, log.n_arms) for model in sums.models]))
        raise BadInput(
            f"the log has {'one play' if plays else 'no play'} of {_names(log, subset)}; an estimate with an error "
            f"needs two. An additive model of the arms predicts {guess:.4g}, which may be wrong"
        )
    found = sums.estimate(int(match[0]))
    _warn(log, found)
    return found


def evaluate_all(log: DecisionLog) -> list[OffPolicyEstimate]:
    """Return the estimates for every subset with at least two plays, the largest value first.

    Of an adaptive log, only subsets with at least ten plays, if there are any: the others were hardly tried, and one of
    them often has the largest mean by luck.

    The largest of many estimates is biased upwards: use intervals that hold for all of them, `estimate.interval(of=n)`.
    """
    sums = _Sums(log)
    fewest = FEWEST if log.adaptive and sums.plays.max() >= FEWEST else 2
    found = [sums.estimate(int(row)) for row in np.flatnonzero(sums.plays >= fewest)]
    if not found:
        raise BadInput("the log has no subset with two plays, so no estimate has an error: a longer log is needed")
    return sorted(found, key=lambda each: -each.estimate.value)


class _Sums:
    """Sums over the plays of each subset in each half of the log; all estimates are computed from them.

    `plays` counts the plays of each subset that its estimate uses.
    """

    def __init__(self, log: DecisionLog) -> None:
        if log.propensity is None and not log.adaptive:
            raise BadInput(
                "the log has no propensities: give it a column with the probability of each choice, or pass "
                "uniform=True if all subsets were equally likely"
            )
        self._log = log
        known, which, r = log.known, log.groups.which, log.rewards
        fold = np.maximum(np.cumsum(known) - 1, 0) % _FOLDS  # plays without a propensity belong to no fold
        self._n = np.bincount(fold[known], minlength=_FOLDS).astype(float)
        fitted_to = known if known.any() else ~known
        self.models = [_fitted(log, fitted_to & (fold != each)) for each in range(_FOLDS)]
        weight = np.zeros(len(log))
        weight[known] = 1 / log.propensity[known] if log.propensity is not None else 0.0
        cell, size = which * _FOLDS + fold, len(log.groups.subsets) * _FOLDS
        # For each subset and fold, the sums of w, w r, w^2, w^2 r, w^2 r^2.
        sums = [np.bincount(cell, weight**i * r**j, size) for i, j in ((1, 0), (1, 1), (2, 0), (2, 1), (2, 2))]
        self._sums = np.stack(sums).reshape(5, -1, _FOLDS)
        self._known = np.bincount(which, known).astype(np.int64)
        self.plays = log.groups.plays if log.adaptive else self._known
        self._means = np.bincount(which, r) / log.groups.plays
        self._deviations = np.bincount(which, (r - self._means[which]) ** 2)
        self._pooled = float(self._deviations.sum() / max((log.groups.plays - 1).sum(), 1))

    def estimate(self, row: int) -> OffPolicyEstimate:
        log = self._log
        subset, plays = tuple(log.groups.subsets[row].tolist()), int(log.groups.plays[row])
        weight, ips, snips, dr = self._weighted(row) if self._known[row] >= 2 else (_UNKNOWN,) * 4
        return OffPolicyEstimate(subset, plays, weight, ips, snips, dr, self._mean(row, plays), log.adaptive)

    def _mean(self, row: int, plays: int) -> ValueWithError:
        variance = (self._deviations[row] + _POOLED * self._pooled) / (plays - 1 + _POOLED)
        return ValueWithError(float(self._means[row]), math.sqrt(variance / plays))

    def _weighted(self, row: int) -> tuple[ValueWithError, ValueWithError, ValueWithError, ValueWithError]:
        """Return the mean weight, and the estimates by inverse propensity, self-normalised and doubly robust."""
        w, wr, ww, wwr, wwrr = self._sums[:, row]
        plays, n = self._known[row], self._n
        total = float(n.sum())
        features = _features(tuple(self._log.groups.subsets[row].tolist()), self._log.n_arms)
        q = np.array([model @ features for model in self.models])
        gain = wr - q * w  # the sum of w (r - q); below, of its squares
        squares = wwrr - 2 * q * wwr + q * q * ww
        ratio = float(wr.sum() / w.sum())
        spread = float((wwrr - 2 * ratio * wwr + ratio**2 * ww).sum())
        return (
            _mean(w.sum(), ww.sum(), total),
            _mean(wr.sum(), wwrr.sum(), total),
            ValueWithError(ratio, math.sqrt(max(spread, 0.0) * plays / (plays - 1)) / float(w.sum())),
            _in_folds(q, gain, squares, n),
        )


_UNKNOWN = ValueWithError(math.nan, math.nan)


def _mean(total: float, squares: float, n: float) -> ValueWithError:
    """Return the mean of n terms with this total and total of squares, and its standard error."""
    mean = float(total / n)
    return ValueWithError(mean, math.sqrt(max(float(squares) / n - mean**2, 0.0) / max(n - 1, 1)))


def _in_folds(q: FloatArray, gain: FloatArray, squares: FloatArray, n: FloatArray) -> ValueWithError:
    """Return the mean of q + w (r - q) over all plays; the error is from the variance within folds."""
    shares = n / n.sum()
    variance = np.maximum(squares / n - (gain / n) ** 2, 0.0) / np.maximum(n - 1, 1)
    return ValueWithError(float(shares @ (q + gain / n)), float(np.sqrt(shares**2 @ variance)))


def _fitted(log: DecisionLog, used: Any) -> FloatArray:
    """Fit an additive model of the arms to part of the log, by ridge regression."""
    subsets, rewards = log.subsets[used], log.rewards[used]
    if not len(rewards):
        return np.zeros(log.n_arms + 1)
    middle = float(rewards.mean())
    counts = np.zeros((log.n_arms, log.n_arms))
    for i in range(log.k):
        for j in range(log.k):
            np.add.at(counts, (subsets[:, i], subsets[:, j]), 1.0)
    share = log.k / log.n_arms
    seen = counts.diagonal()
    # Features are 1[arm is in the subset] - K/N, centred, so that the penalty shrinks towards the overall mean.
    centred = counts - share * (seen[:, None] + seen[None, :]) + share**2 * len(rewards)
    pull = (
        np.bincount(subsets.ravel(), np.repeat(rewards - middle, log.k), log.n_arms) - share * (rewards - middle).sum()
    )
    parts = np.linalg.solve(centred + _RIDGE * np.eye(log.n_arms), pull)
    return np.append(parts, middle)


def _features(subset: Subset, n_arms: int) -> FloatArray:
    features = np.full(n_arms + 1, -len(subset) / n_arms)
    features[list(subset)] += 1.0
    features[-1] = 1.0
    return features


def _names(log: DecisionLog, subset: Subset) -> str:
    return f"({', '.join(map(log.name, subset))})"


def _warn(log: DecisionLog, found: OffPolicyEstimate) -> None:
    named = _names(log, found.subset)
    if found.plays < FEWEST:
        _thin(f"the log has only {found.plays} plays of {named}: the standard error is unreliable")
    elif (found.mean if found.adaptive else found.snips).error == 0:
        _thin(f"all {found.plays} plays of {named} have the same reward: the error of 0 is not meaningful")
    if found.adaptive:
        return
    if abs(found.weight.value - 1) > 6 * max(found.weight.error, 1e-12) and found.plays >= FEWEST:
        _thin(
            f"the propensities of {named} do not match the log: the mean weight should be 1, but is "
            f"{found.weight.value:.3g} ± {found.weight.error:.2g}"
        )


def _thin(message: str) -> None:
    warnings.warn(message, ThinLogWarning, stacklevel=4)
