"""What a policy has learned, in a form for people to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from kofn.core.checks import FloatArray


class Alarm(NamedTuple):
    """An alarm: its kind, "drift" or "misfit", and the number of plays after which it was raised."""

    kind: str
    since: int


@dataclass(frozen=True, eq=False)
class Insight:
    """The estimated reward of the best subset and the effect of each arm, with 95 % credible intervals.

    An arm's effect is the change in the best subset's reward if the arm takes the place of one at the boundary.
    `probability_best` is the probability that `best()` is the best subset. `expected_loss` is the loss per play of
    stopping now: how much less `best()` earns than the best subset, on average over the posterior; at least 0 in either
    direction. `loss_high` is a limit of that loss, which a stop rule compares with its threshold; None while arms have
    few plays. `alarms` lists what contradicts the estimates; None if the policy has no alarms. All rewards are in the
    user's range.
    """

    value: float
    low: float
    high: float
    effects: FloatArray
    lows: FloatArray
    highs: FloatArray
    probability_best: float
    expected_loss: float | None = None
    alarms: tuple[Alarm, ...] | None = None
    loss_high: float | None = None

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
