"""Whether attributes matter: what is gained if each value of an attribute has its own subset."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from kofn.core import AttributeInsight, FloatArray, IntArray
from kofn.core.contexts import MISSING, context_of
from kofn.policies.contextual.model import Model

DRAWS = 400
"""Draws of all effects of all segments. Higher: more precise, slower."""


def attribute_insights(model: Model, unit: float, rng: np.random.Generator) -> tuple[AttributeInsight, ...]:
    """Return how much each attribute matters, the one that gains the most first; `unit` is that of the rewards."""
    contexts = [context_of(key) for key in model.keys]
    plays = np.array([segment.plays for segment in model.segments], float)
    share, drawn = plays / plays.sum(), model.pool.draws(DRAWS, rng)
    for_all = _value(model, drawn, [np.array(model.best_for(range(len(contexts))))] * len(contexts))
    found = []
    for name in sorted({name for context in contexts for name in context}):
        values = [context.get(name, MISSING) for context in contexts]
        best = {
            value: np.array(model.best_for([at for at, each in enumerate(values) if each == value]))
            for value in dict.fromkeys(values)
        }
        gain = (_value(model, drawn, [best[value] for value in values]) - for_all) @ share
        mean = max(0.0, float(gain.mean()))
        found.append(AttributeInsight(name, tuple(sorted(best)), float((gain > 0).mean()), unit * mean))
    return tuple(sorted(found, key=lambda each: -each.gain))


def _value(model: Model, drawn: FloatArray, subsets: list[IntArray]) -> FloatArray:
    """Return the reward of a subset for each segment in each draw, as a part of the range of rewards."""
    odds = [
        model.odds(place, subset[None, :]) + (drawn[:, place] - model.pool.means[place]) @ model.coordinates(subset)
        for place, subset in enumerate(subsets)
    ]
    return np.asarray(expit(np.stack(odds, axis=1)))
