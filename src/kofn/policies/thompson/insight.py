"""Loss of stopping now, from draws of all effects: its mean, and a limit above it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from kofn.constraints.allowed import Allowed
from kofn.core import FloatArray
from kofn.policies.thompson.exchanges import strongest_allowed
from kofn.policies.thompson.posterior import Posterior, cholesky

MOST_DRAWS, FEWEST_DRAWS, CELLS = 400, 16, 2**22
"""Draws of the expected loss: MOST_DRAWS, fewer if they had more than CELLS numbers. Higher: more precise, slower."""

LIMIT = 0.95
"""Part of the draws whose loss is below the limit, `Insight.loss_high`. Higher: campaigns are ready later, and lose
less. docs/background/evidence.md has the true losses with this value."""

FEW = 20
"""Effective rewards at which the variance of the effects is doubled for the limit: its factor is 1 + FEW / effective
rewards. The level is taken as it is: near the top of the range little can be gained, however few plays fail. There is
no limit before each arm has had FEW plays on average. Higher: safer while few plays have earned anything, and later."""


class Losses(NamedTuple):
    """The loss per play of stopping now: its mean, and a limit above it. Both are parts of the range of rewards."""

    mean: float
    high: float


def losses(
    posterior: Posterior, rng: np.random.Generator, effective: float = math.inf, allowed: Allowed | None = None
) -> Losses:
    """Return how much more the K strongest arms of a draw earn than the incumbent: on average, and the limit.

    `effective` is the number of plays that what is known rests on: for rare coins, the number of successes. Under
    constraints, the strongest allowed subset takes the place of the K strongest arms. Where only a solver finds it,
    it is the best of the exchanges that draws choose from (exchanges.py): then the loss is a lower limit.
    """
    n_arms, k = len(posterior.mean), len(posterior.incumbent)
    draws = min(MOST_DRAWS, max(FEWEST_DRAWS, CELLS // n_arms))
    root = cholesky(posterior.covariance)[1:]
    widths = 1.0, math.sqrt(1 + FEW / effective)
    found: tuple[list[FloatArray], list[FloatArray]] = [], []
    for part in np.array_split(np.arange(draws), -(-draws * n_arms // CELLS)):
        deviations = np.sqrt(posterior.variance) * rng.standard_normal((len(part), n_arms))
        deviations[:, posterior.contenders] = rng.standard_normal((len(part), root.shape[1])) @ root.T
        for width, each in zip(widths, found, strict=True):
            effects = posterior.mean + width * deviations
            if allowed is None:
                strongest = np.partition(effects, n_arms - k, axis=1)[:, n_arms - k :].sum(axis=1)
            else:
                strongest = np.take_along_axis(effects, strongest_allowed(posterior, allowed, effects), 1).sum(axis=1)
            gain = strongest - effects[:, posterior.incumbent].sum(axis=1)
            each.append(expit(posterior.level + gain) - expit(posterior.level))
    plain, wide = (np.concatenate(each) for each in found)
    mean = max(float(plain.mean()), 0.0)  # rounding; above the quantile if few draws have a loss
    return Losses(mean, max(mean, float(np.quantile(wide, LIMIT))))
