"""Loss of stopping now, from draws of all effects: its mean, and a limit above it."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from kofn.core import FloatArray
from kofn.policies.thompson.posterior import Posterior, cholesky

MOST_DRAWS, FEWEST_DRAWS, CELLS = 400, 16, 2**22
"""Draws of the expected loss: MOST_DRAWS, fewer if they had more than CELLS numbers. Higher: more precise, slower."""


LIMIT = 0.95
"""Part of the draws whose loss is below the limit, `Insight.loss_high`. Higher: campaigns are ready later, and lose
less. docs/background/evidence.md has the true losses with this value."""


def expected_loss(posterior: Posterior, rng: np.random.Generator) -> float:
    """Return how much more the K strongest arms of a draw earn than the incumbent, on average over draws."""
    return float(draw_losses(posterior, rng).mean())


def draw_losses(posterior: Posterior, rng: np.random.Generator) -> FloatArray:
    """Return for each draw how much more its K strongest arms earn than the incumbent."""
    n_arms, k = len(posterior.mean), len(posterior.incumbent)
    draws = min(MOST_DRAWS, max(FEWEST_DRAWS, CELLS // n_arms))
    root = cholesky(posterior.covariance)
    losses = []
    for part in np.array_split(np.arange(draws), -(-draws * n_arms // CELLS)):
        effects = posterior.mean + np.sqrt(posterior.variance) * rng.standard_normal((len(part), n_arms))
        dense = rng.standard_normal((len(part), len(root))) @ root.T
        effects[:, posterior.contenders] = posterior.mean[posterior.contenders] + dense[:, 1:]
        level = posterior.level + dense[:, 0]
        strongest = np.partition(effects, n_arms - k, axis=1)[:, n_arms - k :].sum(axis=1)
        gain = strongest - effects[:, posterior.incumbent].sum(axis=1)
        losses.append(expit(level + gain) - expit(level))
    return np.concatenate(losses)
