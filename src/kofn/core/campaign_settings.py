"""The settings of campaigns, as `Campaign` and the clients take them; `responses.CampaignSettings` describes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from kofn.core import Direction

if TYPE_CHECKING:  # the rules need SciPy, which takes long to import
    from kofn.constraints import Constraints, Rule

Outside = Literal["refuse", "clip", "widen"]
"""What happens to rewards outside the range."""


Duration = timedelta | float | str
"""A duration: a timedelta, seconds, or text such as "30m" or "7d"."""


class CampaignOptions(TypedDict, total=False):
    """Options of a new campaign that can be changed while it runs."""

    control: Sequence[str] | str | None
    control_share: float
    sticky: Duration | None
    outside: Outside
    stop_when: str | None
    ship_when_ready: bool
    breaker: bool
    unit: str
    constraints: Constraints | Sequence[Rule | Mapping[str, Any]] | None
    costs: Mapping[str, float] | Sequence[float] | None
    window: Duration | None
    silence: float
    metric_window: Duration | None
    guardrails: Sequence[str] | None


class ChangedSettings(CampaignOptions, total=False):
    """What `configure` takes."""

    reward_range: tuple[float, float]
    half_life: int | None
    expire_after: Duration
    keep_decisions: int


class CreationSettings(CampaignOptions, total=False):
    """What a client's `create` takes."""

    policy: str
    params: Mapping[str, Any]
    reward_range: tuple[float, float] | None
    direction: Direction
    seed: int
    expire_after: Duration
    keep_decisions: int
