"""Off-policy evaluation: what a subset would earn if it were always played, with standard errors.

Play t of the log earned r_t, and its subset was chosen with probability p_t. The estimates for a subset S are:

- inverse propensity: the mean of 1[S_t = S] r_t / p_t. Unbiased.
- self-normalised: the same, divided by the mean of 1[S_t = S] / p_t, which is 1 on average. Little bias, less noise.
- doubly robust: q(S) plus the mean of 1[S_t = S] (r_t - q(S)) / p_t, with an additive model q of the arms. Unbiased
  for any model if the propensities are right; the better the model, the less noise. Each half of the log is compared
  with a model that was fitted to the other half.

All three need plays of S. Without any, there is no estimate.
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
from kofn.logs.log import Log

FEWEST = 10
"""Plays of a subset below which its standard error is unreliable and a warning is given."""
_RIDGE = 1.0
"""Penalty of the additive model, in plays. A larger one pulls every arm's effect closer to 0."""
_FOLDS = 2
"""Parts of the log, each evaluated with a model that is fitted to the others."""


@dataclass(frozen=True)
class Estimate:
    """A value and its standard error."""

    value: float
    error: float

    def interval(self, level: float = 0.95, of: int = 1) -> tuple[float, float]:
        """Return a confidence interval; with `of=n`, n such intervals hold at once (Bonferroni)."""
        reach = float(special.ndtri(1 - (1 - level) / (2 * of))) * self.error
        return self.value - reach, self.value + reach


@dataclass(frozen=True)
class Evaluation:
    """The estimates for one subset. `weight` is 1 to within its error if the propensities are right."""

    subset: Subset
    plays: int
    weight: Estimate
    ips: Estimate
    snips: Estimate
    dr: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        estimates = {name: vars(getattr(self, name)) for name in ("weight", "ips", "snips", "dr")}
        return {"subset": list(self.subset), "plays": self.plays, **estimates}


def evaluate(log: Log, subset: Iterable[int]) -> Evaluation:
    """Return estimates of what always playing `subset` would earn; BadInput if the log has fewer than two plays of it.

    >>> from kofn.problems import Bernoulli, Problem
    >>> log = Log.simulate(Problem(Bernoulli([0.2, 0.5, 0.8, 0.1]), "mean", k=2), plays=6_000, seed=1)
    >>> found = evaluate(log, (1, 2))
    >>> found.plays, round(found.dr.value, 2), round(found.dr.error, 3)   # the truth is 0.65
    (1020, 0.65, 0.01)
    """
    subset = subset_of(subset, log.n_arms, log.k)
    sums = _Sums(log)
    match = np.flatnonzero((log.groups.subsets == subset).all(axis=1))
    plays = int(log.groups.plays[match[0]]) if match.size else 0
    if plays < 2:
        guess = float(np.mean([model @ _features(subset, log.n_arms) for model in sums.models]))
        raise BadInput(
            f"the log has {'one play' if plays else 'no play'} of {_names(log, subset)}; an estimate with an error "
            f"needs two. An additive model of the arms predicts {guess:.4g}, which may be wrong"
        )
    found = sums.evaluation(int(match[0]))
    _warn(log, found)
    return found


def evaluate_all(log: Log) -> list[Evaluation]:
    """Return the estimates for every subset with at least two plays, the largest doubly robust value first.

    The largest of many estimates is biased upwards: use intervals that hold for all of them (`Estimate.interval`).
    """
    sums = _Sums(log)
    found = [sums.evaluation(int(row)) for row in np.flatnonzero(log.groups.plays >= 2)]
    if not found:
        raise BadInput("the log has no subset with two plays, so no estimate has an error: a longer log is needed")
    return sorted(found, key=lambda each: -each.dr.value)


class _Sums:
    """Sums over the plays of each subset in each half of the log; all estimates are computed from them."""

    def __init__(self, log: Log) -> None:
        if log.propensity is None:
            raise BadInput(
                "the log has no propensities: give it a column with the probability of each choice, or pass "
                "uniform=True if all subsets were equally likely"
            )
        self._log = log
        fold = np.arange(len(log)) % _FOLDS
        self._n = np.bincount(fold, minlength=_FOLDS).astype(float)
        self.models = [_fitted(log, fold != each) for each in range(_FOLDS)]
        cell, weight, r = log.groups.which * _FOLDS + fold, 1 / log.propensity, log.rewards
        size = len(log.groups.subsets) * _FOLDS
        # For each subset and fold, the sums of w, w r, w^2, w^2 r, w^2 r^2.
        sums = [np.bincount(cell, weight**i * r**j, size) for i, j in ((1, 0), (1, 1), (2, 0), (2, 1), (2, 2))]
        self._sums = np.stack(sums).reshape(5, -1, _FOLDS)

    def evaluation(self, row: int) -> Evaluation:
        log = self._log
        arms, plays = log.groups.subsets[row], int(log.groups.plays[row])
        w, wr, ww, wwr, wwrr = self._sums[:, row]
        n, features = self._n, _features(tuple(arms.tolist()), log.n_arms)
        total = float(n.sum())
        q = np.array([model @ features for model in self.models])
        gain = wr - q * w  # the sum of w (r - q); below, of its squares
        squares = wwrr - 2 * q * wwr + q * q * ww
        ratio = float(wr.sum() / w.sum())
        spread = float((wwrr - 2 * ratio * wwr + ratio**2 * ww).sum())
        return Evaluation(
            tuple(arms.tolist()),
            plays,
            weight=_mean(w.sum(), ww.sum(), total),
            ips=_mean(wr.sum(), wwrr.sum(), total),
            snips=Estimate(ratio, math.sqrt(max(spread, 0.0) * plays / (plays - 1)) / float(w.sum())),
            dr=_in_folds(q, gain, squares, n),
        )


def _mean(total: float, squares: float, n: float) -> Estimate:
    """Return the mean of n terms with this total and total of squares, and its standard error."""
    mean = float(total / n)
    return Estimate(mean, math.sqrt(max(float(squares) / n - mean**2, 0.0) / max(n - 1, 1)))


def _in_folds(q: FloatArray, gain: FloatArray, squares: FloatArray, n: FloatArray) -> Estimate:
    """Return the mean of q + w (r - q) over all plays; the error is from the variance within folds."""
    shares = n / n.sum()
    variance = np.maximum(squares / n - (gain / n) ** 2, 0.0) / np.maximum(n - 1, 1)
    return Estimate(float(shares @ (q + gain / n)), float(np.sqrt(shares**2 @ variance)))


def _fitted(log: Log, used: Any) -> FloatArray:
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


def _names(log: Log, subset: Subset) -> str:
    return f"({', '.join(map(log.name, subset))})"


def _warn(log: Log, found: Evaluation) -> None:
    named = _names(log, found.subset)
    if found.plays < FEWEST:
        _thin(f"the log has only {found.plays} plays of {named}: the standard error is unreliable")
    elif found.snips.error == 0:
        _thin(f"all {found.plays} plays of {named} have the same reward: the error of 0 is not meaningful")
    if abs(found.weight.value - 1) > 6 * max(found.weight.error, 1e-12) and found.plays >= FEWEST:
        _thin(
            f"the propensities of {named} do not match the log: the mean weight should be 1, but is "
            f"{found.weight.value:.3g} ± {found.weight.error:.2g}"
        )


def _thin(message: str) -> None:
    warnings.warn(message, ThinLogWarning, stacklevel=4)
