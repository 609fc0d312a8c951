"""What is known about single arms before the first play: old rates, an expert's ranking, or a campaign that has ended.

The default policy starts with: effect of arm i = scale * score i + residual i. Scores and the variances of the
residuals come from here, in units of the standard deviation of the effects. The scale is unknown: a click rate says
which arm is better, but not by how much it changes the reward of a subset. The policy learns it.
docs/guides/priors.md has the reasons and the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logit, ndtri

from kofn.core import BadInput, Direction, FloatArray, Insight, finite_numbers, subset_of
from kofn.core.checks import shown

SCALE = 0.5
"""Mean and standard deviation of the scale of the scores before the first play, in standard deviations of an effect in
the policy's own prior. That prior is wide: effects are smaller. Higher: the first plans follow the scores more."""

FLOOR, LATER_FLOOR, RELAXED_AFTER = 0.1, 0.3, 5.0
"""Least variance of an effect that a prior leaves, relative to the policy's own prior: at the start, and after
RELAXED_AFTER * N plays; it grows linearly between. Higher floors: a right prior saves less, and a wrong one is overcome
sooner. Higher RELAXED_AFTER: a right prior saves more at the start, a wrong one is overcome later."""

LARGEST_SCORE = 10.0
"""Largest score, in standard deviations of the effects: larger ones are a mistake of units."""

NORMAL_95 = 1.959963984540054
"""Half-width of a 95 % interval of a normal distribution, in standard deviations."""


@dataclass(frozen=True)
class Prior:
    """What is known about each arm: its expected effect, and how far that can be trusted.

    `scores` are expected effects in standard deviations of the effects of all arms: 0 for an average arm, higher for a
    better one, in both directions of optimisation. `trust` is the part of an arm's variance that its score explains,
    from 0 (nothing is known) to 1. Most users call `from_rates`, `from_ranking` or `from_insight`.

    >>> prior = Prior.from_rates([0.02, 0.05, 0.03, 0.04], counts=[5000, 5000, 200, 0])
    >>> [round(score, 1) for score in prior.scores], [round(trust, 1) for trust in prior.trust]
    ([-1.1, 1.1, 0.0, 0.0], [0.9, 1.0, 0.5, 0.0])
    """

    scores: Sequence[float]
    trust: Sequence[float]

    def __post_init__(self) -> None:
        scores, trust = (_numbers(name, getattr(self, name)) for name in ("scores", "trust"))
        if len(scores) != len(trust) or not len(scores):
            raise BadInput(
                f"a prior needs a score and a trust for each arm; got {len(scores)} scores and {len(trust)} of trust"
            )
        if (abs(scores) > LARGEST_SCORE).any():
            raise BadInput(
                f"scores must be from -{LARGEST_SCORE:g} to {LARGEST_SCORE:g}, in standard deviations of the effects; "
                f"got {scores[abs(scores).argmax()]:g}. Use Prior.from_rates for rates"
            )
        if (trust < 0).any() or (trust > 1).any():
            raise BadInput(f"trust must be from 0 to 1; got {trust[abs(trust - 0.5).argmax()]:g}")
        object.__setattr__(self, "scores", tuple(scores.tolist()))
        object.__setattr__(self, "trust", tuple(trust.tolist()))

    @classmethod
    def of(cls, value: Any) -> Prior:
        """Return a prior unchanged, or make one from its plain values."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping) or value.keys() != {"scores", "trust"}:
            raise BadInput(
                "prior must be a kofn.Prior, or a dict of scores and trust, as Prior.to_dict returns it; got "
                f"{shown(value)}"
            )
        return cls(value["scores"], value["trust"])

    @classmethod
    def from_rates(cls, rates: Sequence[float], counts: Sequence[float], *, weight: float = 1.0) -> Prior:
        """Return what old rates say, such as the click rate of each arm alone; a higher rate is better.

        `counts` has the number of trials of each rate; an arm with 0 is unknown. Rates count as far as they differ by
        more than chance. `weight`, from 0 to 1, is the part of the differences (of their variance) that is expected to
        hold for the new rewards.
        """
        share, trials = _numbers("rates", rates), _numbers("counts", counts)
        if len(share) != len(trials):
            raise BadInput(f"rates and counts must have the same length; got {len(share)} and {len(trials)}")
        if (share < 0).any() or (share > 1).any():
            raise BadInput("rates must be from 0 to 1: pass the part of the trials that were a success")
        if (trials < 0).any():
            raise BadInput(f"counts must be at least 0; got {trials.min():g}")
        hits, misses = share * trials + 0.5, (1 - share) * trials + 0.5  # half a trial each, so that odds are finite
        variance = np.where(trials > 0, 1 / hits + 1 / misses, math.inf)
        return cls._shrunk(np.asarray(logit(hits / (hits + misses))), variance, weight)

    @classmethod
    def from_ranking(cls, ranking: Sequence[int | Sequence[int]], *, weight: float) -> Prior:
        """Return what a ranking of all arms says, the best first; a list within it has arms that are tied.

        `weight`, from 0 to 1, is the part of the differences between arms (of their variance) that the ranking is
        expected to explain.

        >>> [round(score, 2) for score in Prior.from_ranking([2, [0, 3], 1], weight=0.25).scores]
        [0.0, -0.71, 0.71, 0.0]
        """
        if not isinstance(ranking, Sequence) or not ranking:
            raise BadInput(f"ranking must be a list of all arms, the best first; got {shown(ranking)}")
        tied = [list(each) if isinstance(each, Sequence) else [each] for each in ranking]
        arms = [arm for group in tied for arm in group]
        subset_of(arms, len(arms), len(arms))
        normal = ndtri(1 - (np.arange(len(arms)) + 0.5) / len(arms))
        scores, start = np.zeros(len(arms)), 0
        for group in tied:
            scores[group] = normal[start : start + len(group)].mean()
            start += len(group)
        part = _part(weight)
        spread = float(np.std(scores)) or 1.0  # all arms tied
        return cls((math.sqrt(part) * scores / spread).tolist(), [part] * len(arms))

    @classmethod
    def from_insight(
        cls, insight: Insight | Mapping[str, Any], *, weight: float = 1.0, direction: Direction = "maximize"
    ) -> Prior:
        """Return what another policy or campaign has learned about the same arms, in the same order.

        `insight` comes from a policy (`policy.insight()`, or its plain values) or from a campaign
        (`campaign.insight().to_dict()`). Retired arms are unknown. Arms count as far as their intervals tell them
        apart. `weight`, from 0 to 1, is the part of the differences (of their variance) that is expected to hold for
        the new rewards. `direction` is the direction of the other policy.
        """
        if isinstance(insight, Insight):
            insight = insight.to_dict()
        try:
            arms = insight["arms"]
            known = np.array([arm["effect"] is not None for arm in arms])
            effect, low, high = (
                _numbers(name, [0.0 if arm["effect"] is None else arm[name] for arm in arms])
                for name in ("effect", "low", "high")
            )
        except (KeyError, TypeError):
            raise BadInput(
                "insight must come from a policy after two different rewards, with effect, low and high of each arm; "
                f"got {shown(insight)}"
            ) from None
        sign = -1.0 if direction == "minimize" else 1.0
        variance = np.where(known, ((high - low) / (2 * NORMAL_95)) ** 2, math.inf)
        return cls._shrunk(sign * effect, variance, weight)

    @classmethod
    def _shrunk(cls, values: FloatArray, variance: FloatArray, weight: float) -> Prior:
        """Return values with errors of these variances as a prior, shrunk to their mean (empirical Bayes).

        The variance between arms is the variance of the values minus the mean variance of their errors.
        """
        part, known = _part(weight), np.isfinite(variance)
        if known.sum() < 2:
            return cls([0.0] * len(values), [0.0] * len(values))
        between = float(np.var(values[known], ddof=1) - variance[known].mean())
        if between <= 0:  # no more than chance
            return cls([0.0] * len(values), [0.0] * len(values))
        reliability = between / (between + variance)
        centre = float(np.average(values[known], weights=reliability[known]))
        scores = math.sqrt(part) * reliability * np.where(known, values - centre, 0.0) / math.sqrt(between)
        return cls(np.clip(scores, -LARGEST_SCORE, LARGEST_SCORE).tolist(), (part * reliability).tolist())

    @property
    def expected(self) -> FloatArray:
        """The expected effect of each arm, in standard deviations of an effect in the policy's own prior."""
        return np.asarray(SCALE * (np.array(self.scores) - np.mean(self.scores)))

    def residual(self, plays: int = 0) -> FloatArray:
        """Return the variance of each effect that the scores do not explain, relative to the policy's own prior.

        After more plays, less of the scores is believed: an arm that they call bad, and that was hardly played, is
        tried again.
        """
        floor = FLOOR + (LATER_FLOOR - FLOOR) * min(1.0, plays / (RELAXED_AFTER * len(self.trust)))
        return np.asarray(np.maximum(1 - np.array(self.trust), floor))

    def with_arms(self, keep: Sequence[int], added: int = 0) -> Prior:
        """Return the prior of these arms, followed by new ones of which nothing is known."""
        kept = ([values[arm] for arm in keep] + [0.0] * added for values in (self.scores, self.trust))
        return Prior(*kept)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {"scores": list(self.scores), "trust": list(self.trust)}


def _numbers(name: str, values: Any) -> FloatArray:
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise BadInput(f"{name} must be a list of numbers, one for each arm; got {shown(values)}")
    numbers = finite_numbers(name, values)
    if numbers.ndim != 1:
        raise BadInput(f"{name} must be a list of numbers, one for each arm; got {shown(values)}")
    return numbers


def _part(weight: float) -> float:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= 1:
        raise BadInput(f"weight must be from 0 (ignore it) to 1 (it holds in full); got {weight!r}")
    return float(weight)
