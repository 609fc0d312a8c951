"""What a campaign answers: plain values, frozen, ready for JSON by `to_dict`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from kofn.core import Subset


def moment(seconds: float) -> datetime:
    """A time of the store, in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


class Answer:
    """What all answers share."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; times as ISO 8601."""
        return {name: _plain(value) for name, value in asdict(self).items()}  # type: ignore[call-overload]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Decision(Answer):
    """One play handed out: show these arms, and tell the reward under this id.

    `subset` has the arms by number. An arm keeps its number when others go, and new ones get the next.
    """

    id: str
    arms: list[str]
    subset: Subset
    at: datetime


@dataclass(frozen=True)
class OpenDecision(Decision):
    """A decision that has no reward yet; an expired one is wanted again, but its reward still counts."""

    expired: bool


@dataclass(frozen=True)
class Rewarded(Answer):
    """How many rewards of a batch were new, and how many had been told before."""

    accepted: int
    repeated: int


@dataclass(frozen=True)
class Summary(Answer):
    """A campaign at a glance.

    `plays` are decisions and plays told as totals, `rewards` those of them that have been told, `mean` what they earned
    on average. `version` changes with every change.
    """

    name: str
    state: str
    policy: str
    arms: int
    k: int
    reward_range: tuple[float, float]
    direction: str
    plays: int
    rewards: int
    mean: float | None
    in_flight: int
    expired: int
    created: datetime
    changed: datetime
    version: int


@dataclass(frozen=True)
class ArmInsight(Answer):
    """One arm: what it adds to the best subset in place of a borderline arm, between `low` and `high` with 95 %.

    Rewards are in the user's range, so with direction="minimize" a good arm has an effect below 0. The effect is None
    while the policy cannot say, and for retired arms.
    """

    name: str
    effect: float | None
    low: float | None
    high: float | None
    plays: int
    best: bool
    retired: bool


@dataclass(frozen=True)
class Trying(Answer):
    """One row of the plan: how often this subset is wanted, is out, and has been told."""

    arms: list[str]
    wanted: int
    in_flight: int
    told: int


@dataclass(frozen=True)
class CampaignInsight(Answer):
    """What a campaign knows.

    `value` is the estimated reward of the best subset, `average` what all plays earned so far on average, and `gain`
    the difference in the good direction: what learning is worth per play from here on. `sure` is the probability that
    the best subset is right.
    """

    summary: Summary
    best: list[str]
    value: float | None
    low: float | None
    high: float | None
    average: float | None
    gain: float | None
    sure: float | None
    learned: int
    arms: list[ArmInsight]
    trying: list[Trying]


@dataclass(frozen=True)
class Point(Answer):
    """What happened between `at` and `until`, and in all up to then.

    `mean` is the mean reward of that time, None if there was none; `average` that of all time until then.
    """

    at: datetime
    until: datetime
    plays: int
    rewards: int
    mean: float | None
    all_plays: int
    all_rewards: int
    average: float | None


@dataclass(frozen=True)
class Event(Answer):
    """Something that happened to a campaign: created, paused, learned, arm added..."""

    number: int
    at: datetime
    kind: str
    says: str
