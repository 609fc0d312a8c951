"""When to stop: the campaign is ready if the loss of shipping the best subset now is below a threshold.

What is compared with the threshold is not the expected loss but a limit above it, `Insight.loss_high`, and it must stay
below the threshold while the number of plays grows by GROWTH - 1. Both are needed because the rule is evaluated after
every plan: of many looks, the one that looks best is chosen. docs/background/evidence.md has the measured true losses.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from kofn.core import BadInput, Insight, whole
from kofn.core.checks import shown
from kofn.core.responses import Response

GROWTH = 1.25
"""Factor by which plays must grow while the limit stays below the threshold. Higher: later, and safer."""

RULE = re.compile(r"\s*(loss|value)\s*<\s*([^\s<]+)(?:\s+over\s+(\S+)(?:\s+plays)?)?\s*")


@dataclass(frozen=True)
class Look(Response):
    """Whether a campaign is ready to ship its best subset, as seen after `plays` plays.

    `bound` is what is compared with the threshold: a limit of the loss per play of shipping now; None without an
    estimate. `since` is the number of plays after which it began to be below the threshold without interruption; None
    if it is not below it. `reason` is a sentence for people.
    """

    plays: int
    bound: float | None
    since: int | None
    ready: bool
    reason: str


@dataclass(frozen=True)
class Stop:
    """When a campaign is ready: the loss per play is below `loss`, or below `value` over `horizon` plays.

    >>> Stop(loss=0.01).threshold
    0.01
    >>> Stop(value=500, horizon=100_000).threshold
    0.005
    >>> Stop.parse("value<500 over 100000") == Stop(value=500, horizon=100_000)
    True

    `horizon` is the number of plays for which the shipped subset will be used, and `value` what better choices could
    still gain in them, in the unit of the reward.
    """

    loss: float | None = None
    value: float | None = None
    horizon: int | None = None

    def __post_init__(self) -> None:
        if (self.loss is None) == (self.value is None) or (self.value is None) != (self.horizon is None):
            raise BadInput(
                f"give loss=, or both value= and horizon=; got loss={self.loss}, value={self.value}, "
                f"horizon={self.horizon}"
            )
        if self.horizon is not None:
            object.__setattr__(self, "horizon", whole("horizon", self.horizon))
        name, limit = ("loss", self.loss) if self.value is None else ("value", self.value)
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit < math.inf:
            raise BadInput(f"{name} must be a number above 0; got {shown(limit)}")

    @classmethod
    def parse(cls, text: str) -> Stop:
        """Return the rule that a text such as "loss<0.01" or "value<500 over 100000" describes."""
        found = RULE.fullmatch(text) if isinstance(text, str) else None
        try:
            if found is None or (found[1] == "loss") != (found[3] is None):
                raise ValueError
            limit = float(found[2])
            if found[1] == "loss":
                return cls(loss=limit)
            horizon = float(found[3].replace(",", ""))
            return cls(value=limit, horizon=whole("horizon", int(horizon) if horizon.is_integer() else 0))
        except ValueError:
            raise BadInput(
                f"a stop rule (stop_when) must be like 'loss<0.01' or 'value<500 over 100000'; got {shown(text)}"
            ) from None

    def __str__(self) -> str:
        return f"loss<{self.loss:g}" if self.value is None else f"value<{self.value:g} over {self.horizon}"

    @property
    def threshold(self) -> float:
        """The loss per play below which the campaign is ready."""
        if self.value is not None and self.horizon is not None:
            return self.value / self.horizon
        assert self.loss is not None
        return self.loss

    def look(self, insight: Insight | None, plays: int, before: Look | None = None) -> Look:
        """Return whether the campaign is ready after this number of plays.

        Call it after every update of the policy, with the policy's `insight` and the result of the previous look.
        """
        if insight is None or insight.loss_high is None:
            return Look(
                plays,
                None,
                None,
                False,
                "There is no limit of the loss: arms have few plays yet, or the policy gives none.",
            )
        high, limit = insight.loss_high, self.threshold
        if insight.alarms:
            kinds = " and ".join(alarm.kind for alarm in insight.alarms)
            return Look(plays, high, None, False, f"Rewards contradict the estimates (alarm: {kinds}).")
        if high >= limit:
            return Look(plays, high, None, False, f"The loss per play may still be {high:.3g}, not below {limit:.3g}.")
        since = before.since if before is not None and before.since is not None else plays
        until = math.ceil(GROWTH * since)
        if plays < until:
            reason = f"The loss per play is below {limit:.3g}; ready if it stays there until play {until:,}."
            return Look(plays, high, since, False, reason)
        return Look(plays, high, since, True, f"The loss per play has been below {limit:.3g} since play {since:,}.")
