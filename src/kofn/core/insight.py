"""What a policy has learned, in a form for people to read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from kofn.core.checks import FloatArray, Subset


class Alarm(NamedTuple):
    """An alarm: its kind, "drift" or "misfit", and the number of plays after which it was raised."""

    kind: str
    since: int


@dataclass(frozen=True, eq=False)
class Insight:
    """The estimated reward of the best subset and the effect of each arm, with 95 % credible intervals.

    The subset that looks best is overstated while others are close to it, so `low` is the end of its interval minus
    `expected_loss`.

    An arm's effect is the change in the best subset's reward if the arm takes the place of one at the boundary.
    `expected_loss` is the loss per play of stopping now: how much less `best()` earns than the best subset, on average
    over the posterior; at least 0 in either direction. `loss_high` is a limit of that loss, which a stop rule compares
    with its threshold; None while arms have few plays. `alarms` lists what contradicts the estimates; None if the
    policy has no alarms. All rewards are in the user's range. `estimate_probability` computes `probability_best`.
    """

    value: float
    low: float
    high: float
    effects: FloatArray
    lows: FloatArray
    highs: FloatArray
    estimate_probability: Callable[[], float] = field(repr=False)
    expected_loss: float | None = None
    alarms: tuple[Alarm, ...] | None = None
    loss_high: float | None = None

    @cached_property
    def probability_best(self) -> float:
        """The probability that no swap of two arms improves `best()`.

        Where replacing an arm by a better one improves every subset, `best()` is then the best subset. Where arms
        interact, it need not be.

        It is computed when it is first read: with many arms, that takes longer than everything else.
        """
        return self.estimate_probability()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "probability_best": self.probability_best,
            "expected_loss": self.expected_loss,
            "loss_high": self.loss_high,
            "alarms": None if self.alarms is None else [alarm._asdict() for alarm in self.alarms],
            "arms": [
                {"effect": effect, "low": low, "high": high}
                for effect, low, high in zip(
                    self.effects.tolist(), self.lows.tolist(), self.highs.tolist(), strict=True
                )
            ],
        }


class SegmentInsight(NamedTuple):
    """What a policy has learned about one segment: its context, its plays and their share of all, and its best subset.

    `insight` is about the segment's best subset; None while nothing is known.
    """

    context: dict[str, str]
    plays: int
    share: float
    best: Subset
    insight: Insight | None


class AttributeInsight(NamedTuple):
    """Whether an attribute matters for what is best.

    `gain` is how much more is earned per play if each value of the attribute has its own subset, compared with one
    subset for all: the mean over the posterior. `probability` is the probability that this earns more at all; 0
    if all its values have the same best subset.
    """

    attribute: str
    values: tuple[str, ...]
    probability: float
    gain: float


def averaged(insights: Sequence[tuple[float, Insight]]) -> Insight:
    """Return what is known about all segments together: averages, weighted by the first numbers of the pairs.

    Intervals are averaged too: that is exact if all segments err together, and too wide if they do not.
    """
    weights = np.array([weight for weight, _ in insights])
    weights = weights / weights.sum()
    each = [insight for _, insight in insights]

    def mean(values: Iterable[Any]) -> Any:
        return sum(weight * value for weight, value in zip(weights.tolist(), values, strict=True))

    losses = [insight.expected_loss for insight in each if insight.expected_loss is not None]
    limits = [insight.loss_high for insight in each if insight.loss_high is not None]
    alarms = {alarm.kind: alarm for insight in each for alarm in insight.alarms or ()}
    return Insight(
        mean(insight.value for insight in each),
        mean(insight.low for insight in each),
        mean(insight.high for insight in each),
        mean(insight.effects for insight in each),
        mean(insight.lows for insight in each),
        mean(insight.highs for insight in each),
        lambda: mean(insight.probability_best for insight in each),
        mean(losses) if len(losses) == len(each) else None,
        tuple(alarms.values()),
        mean(limits) if len(limits) == len(each) else None,
    )
