"""The pairwise model of a subset's reward: a Gaussian process over subsets.

The log-odds of a subset's mean reward are a level, a weight for each arm, a weight for each pair of arms, and a rest
that belongs to this subset only. All are Gaussian with mean 0. So the log-odds of all subsets are a Gaussian process.
Its kernel depends on the overlap m of two subsets only: level + arms m + pairs m (m - 1) / 2, and the rest if they are
equal. The posterior needs one row for each distinct subset that was played, and no matrix over pairs of arms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import expit, log_expit

from kofn.core import FloatArray, IntArray
from kofn.core.fields import Fields, Part, number
from kofn.lab.rivals.linear_model import factor

LEVEL = 9.0
"""Prior variance of the level, in squared log-odds. Three standard deviations are 9: success rates above 1 in 8,000."""

USUAL = {"arms": 0.5, "pairs": 0.1, "rest": 0.03}
"""Centres of the prior of the scales: variances of what a subset gets from its arms, its pairs and its rest, in squared
log-odds. Higher: more exploration in short runs."""

SPREAD = 1.5
"""Standard deviation of the logarithm of a scale about its centre. Higher: scales follow the data sooner."""

SPREAD_OF_DISPERSION = 4.0
"""The same for the dispersion, whose centre is 1."""

FACTOR, LEAST, MOST = 2.0, 1e-7, 100.0
"""A scale moves by this factor at a time, and stays between these bounds."""

LARGEST = 10.0
"""Largest log-odds at which the likelihood is expanded. Beyond it, rounding errors dominate the curvature."""

LONGEST_STEP = 2.0
"""Longest Newton step of the log-odds of a row. Longer steps may overshoot where the likelihood is almost flat."""

STEPS, SETTLED = 10, 0.01
"""Most Newton steps, and the change of the log-odds that ends them. Two or three are usual: they start from the mode of
the plan before."""


@dataclass(frozen=True)
class Scales(Part):
    """Prior variances of the log-odds of a subset, by their source; and the dispersion of the rewards.

    The variance of a reward with mean p is `dispersion` times p (1 - p).
    """

    fields = Fields(arms=number(above=0), pairs=number(above=0), rest=number(above=0), dispersion=number(above=0))

    arms: float = USUAL["arms"]
    pairs: float = USUAL["pairs"]
    rest: float = USUAL["rest"]
    dispersion: float = 1.0

    @property
    def log_prior(self) -> float:
        """The logarithm of the prior density of these scales, up to a constant."""
        moved = [math.log(getattr(self, name) / usual) / SPREAD for name, usual in USUAL.items()]
        return -0.5 * (math.hypot(*moved, math.log(self.dispersion) / SPREAD_OF_DISPERSION)) ** 2

    def of_weights(self, k: int) -> tuple[float, float]:
        """Return the prior variances of the weight of one arm and of one pair."""
        return self.arms / k, self.pairs / max(1.0, k * (k - 1) / 2)

    def kernel(self, overlap: FloatArray, k: int) -> FloatArray:
        """Return the prior covariance of the log-odds of two subsets with this overlap, without the rest."""
        arm, pair = self.of_weights(k)
        return LEVEL + overlap * (arm - pair / 2 + (pair / 2) * overlap)


@dataclass(frozen=True)
class SubsetSums:
    """What is known of each distinct subset: its indicator, plays, mean reward, and squares about the mean."""

    x: FloatArray
    count: FloatArray
    mean: FloatArray
    within: FloatArray
    binary: bool  # all rewards are 0 or 1

    @cached_property
    def k(self) -> int:
        """The number of arms of a subset."""
        return int(self.x[0].sum())

    @cached_property
    def overlap(self) -> FloatArray:
        """The number of arms that two rows share."""
        return np.asarray(self.x @ self.x.T)


@dataclass(frozen=True)
class Functions:
    """Log-odds of subsets without their rests: level + u'x + x'Wx / 2, for each of several draws."""

    level: FloatArray
    u: FloatArray
    W: FloatArray

    def of(self, x: FloatArray) -> FloatArray:
        """Return the log-odds of the subsets x, a row for each draw."""
        return np.asarray(self.level[:, None] + self.u @ x.T + ((x @ self.W) * x).sum(axis=2) / 2)

    def __add__(self, other: Functions) -> Functions:
        return Functions(self.level + other.level, self.u + other.u, self.W + other.W)


@dataclass(frozen=True)
class PairPosterior:
    """The posterior of all log-odds: the likelihood of each row is replaced by a Gaussian at `expanded` (Laplace).

    The Gaussian is an observation `z` of the row's log-odds with variance `noise`.
    """

    rows: SubsetSums
    scales: Scales
    expanded: FloatArray

    @classmethod
    def near(cls, rows: SubsetSums, scales: Scales, start: FloatArray, steps: int = STEPS) -> Self:
        """Return the posterior expanded at its mode, which Newton's method finds from this start."""
        found = cls(rows, scales, start)
        for _ in range(steps):
            step = np.clip(found.mode - found.at, -LONGEST_STEP, LONGEST_STEP)
            found = cls(rows, scales, found.at + step)
            if np.abs(step).max() <= SETTLED:
                break
        return found

    @cached_property
    def noise(self) -> FloatArray:
        """The variance of the observation of each row."""
        p = expit(self.at)
        return np.asarray(self.scales.dispersion / (self.rows.count * p * (1 - p)))

    @cached_property
    def at(self) -> FloatArray:
        """Where the likelihood of each row is expanded."""
        return np.clip(self.expanded, -LARGEST, LARGEST)

    @cached_property
    def z(self) -> FloatArray:
        """The observation of each row's log-odds."""
        p = expit(self.at)
        return np.asarray(self.at + (self.rows.mean - p) / (p * (1 - p)))

    @cached_property
    def lower(self) -> FloatArray:
        """The Cholesky factor of the covariance of the observations."""
        covariance = self.scales.kernel(self.rows.overlap, self.rows.k)
        covariance.flat[:: len(covariance) + 1] += self.scales.rest + self.noise
        return factor(covariance)

    @cached_property
    def alpha(self) -> FloatArray:
        """The inverse of the covariance of the observations, times the observations."""
        return np.asarray(cho_solve((self.lower, True), self.z, check_finite=False))

    @property
    def mode(self) -> FloatArray:
        """The posterior mean of the log-odds of each row, rest included."""
        return np.asarray(self.z - self.noise * self.alpha)

    @property
    def evidence(self) -> float:
        """The logarithm of the density of the rewards, given the scales, times the prior of the scales.

        For coins it is Laplace's approximation. Other rewards are known by mean and variance only: their rows are taken
        as Gaussian, and so are the deviations from the row's mean.
        """
        determinant = float(np.log(self.lower.diagonal()).sum())
        if self.rows.binary:
            f = np.clip(self.mode, -LARGEST, LARGEST)
            likelihood = self.rows.count @ (self.rows.mean * log_expit(f) + (1 - self.rows.mean) * log_expit(-f))
            fit = float(likelihood - self.alpha @ self.mode / 2 + np.log(self.noise).sum() / 2)
        else:
            freedom = float(self.rows.count.sum()) - len(self.rows.count)
            p = expit(self.at)
            squares = float((self.rows.within / (p * (1 - p))).sum()) / self.scales.dispersion
            fit = -(float(self.z @ self.alpha) + squares + freedom * math.log(self.scales.dispersion)) / 2
        return fit - determinant + self.scales.log_prior

    def learned(self) -> PairPosterior:
        """Return the posterior after each scale has moved one step up or down, if the evidence grows."""
        found, evidence = self, self.evidence
        for name in Scales.fields:
            if name == "dispersion" and self.rows.binary:
                continue
            for by in (FACTOR, 1 / FACTOR):
                value = getattr(found.scales, name) * by
                if not LEAST < value < MOST:
                    continue
                other = PairPosterior.near(self.rows, replace(found.scales, **{name: value}), found.mode, 2)
                if (reached := other.evidence) > evidence:
                    found, evidence = other, reached
                    break
        return found

    def mean(self) -> Functions:
        """Return the posterior mean of the level and the weights."""
        return self._explained(self.alpha[None, :])

    def draw(self, draws: int, width: float, rng: np.random.Generator) -> Functions:
        """Draw the level and the weights from the posterior, with `width` times its standard deviations.

        Matheron's rule: a draw from the prior, corrected by what explains the difference between the observations and
        those that the draw would have made.
        """
        n_arms = self.rows.x.shape[1]
        arm, pair = self.scales.of_weights(self.rows.k)
        half = np.triu(rng.standard_normal((draws, n_arms, n_arms)), 1)
        prior = Functions(
            width * math.sqrt(LEVEL) * rng.standard_normal(draws),
            width * math.sqrt(arm) * rng.standard_normal((draws, n_arms)),
            width * math.sqrt(pair) * (half + half.transpose(0, 2, 1)),
        )
        apart = width * np.sqrt(self.scales.rest + self.noise) * rng.standard_normal((draws, len(self.noise)))
        missing = self.z - prior.of(self.rows.x) - apart
        return prior + self._explained(cho_solve((self.lower, True), missing.T, check_finite=False).T)

    def apart(self, x: FloatArray, incumbent: FloatArray) -> FloatArray:
        """Return the posterior variance of the difference between the log-odds of each x and of the incumbent."""
        scales, k = self.scales, self.rows.k
        seen = scales.kernel(x @ self.rows.x.T, k) - scales.kernel(incumbent @ self.rows.x.T, k)
        explained = solve_triangular(self.lower, seen.T, lower=True, check_finite=False)
        alone = scales.kernel(np.array(float(k)), k)
        return np.asarray(2 * (alone - scales.kernel(x @ incumbent, k)) - (explained**2).sum(axis=0))

    def _explained(self, alpha: FloatArray) -> Functions:
        """Return the level and the weights that the rows explain, by their `alpha`, a row for each draw."""
        x = self.rows.x
        arm, pair = self.scales.of_weights(self.rows.k)
        pairs = pair * ((x.T * alpha[:, None, :]) @ x)
        pairs[:, np.arange(x.shape[1]), np.arange(x.shape[1])] = 0.0
        return Functions(LEVEL * alpha.sum(axis=1), arm * (alpha @ x), pairs)


def climb(functions: Functions, start: IntArray, most: int) -> IntArray:
    """Return the subsets that the best swaps lead to, at most `most` of them; each draw starts from its row of `start`.

    A swap of arm i for arm j gains g_j - g_i - W_ij, with the gradient g = u + Wx.
    """
    chosen = start.copy()
    draws, n_arms = functions.u.shape
    inside = np.zeros((draws, n_arms))
    np.put_along_axis(inside, chosen, 1.0, axis=1)
    gradient = functions.u + (functions.W @ inside[:, :, None])[:, :, 0]
    moving = np.arange(draws)
    for _ in range(most):
        arms, g = chosen[moving], gradient[moving]
        gains = g[:, None, :] - np.take_along_axis(g, arms, axis=1)[:, :, None] - functions.W[moving[:, None], arms]
        gains[np.broadcast_to(inside[moving, None, :] > 0, gains.shape)] = -np.inf
        best = gains.reshape(len(moving), -1).argmax(axis=1)
        gaining = np.take_along_axis(gains.reshape(len(moving), -1), best[:, None], axis=1)[:, 0] > 0
        if not gaining.any():
            break
        moving, (place, after) = moving[gaining], np.divmod(best[gaining], n_arms)
        before = chosen[moving, place]
        chosen[moving, place] = after
        inside[moving, before], inside[moving, after] = 0.0, 1.0
        gradient[moving] += functions.W[moving, after] - functions.W[moving, before]
    return np.sort(chosen, axis=1)
