"""What the service answers, typed. Times are ISO 8601, in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict


class Decision(NamedTuple):
    """Show these arms, and tell the reward under this id."""

    id: str
    arms: list[str]


@dataclass(frozen=True)
class Rewarded:
    """How many rewards were new, and how many had been told before."""

    accepted: int
    repeated: int


class Summary(TypedDict):
    """A campaign at a glance. `version` changes with every change."""

    name: str
    state: str
    policy: str
    arms: int
    k: int
    reward_range: list[float]
    direction: str
    plays: int
    rewards: int
    mean: float | None
    in_flight: int
    expired: int
    created: str
    changed: str
    version: int


class ArmInsight(TypedDict):
    """One arm: what it adds to a subset in place of a borderline arm, between low and high with 95 %."""

    name: str
    effect: float | None
    low: float | None
    high: float | None
    plays: int
    best: bool
    retired: bool


class PlannedSubset(TypedDict):
    """A subset of the plan: plays still wanted, of those out, and told."""

    arms: list[str]
    remaining: int
    in_flight: int
    observed: int


class Insight(TypedDict):
    """What a campaign knows."""

    summary: Summary
    best: list[str]
    value: float | None
    low: float | None
    high: float | None
    average: float | None
    gain: float | None
    probability_best: float | None
    updates: int
    arms: list[ArmInsight]
    plan: list[PlannedSubset]


class Point(TypedDict):
    """What happened between `at` and `until`, and in all up to then."""

    at: str
    until: str
    plays: int
    rewards: int
    mean: float | None
    total_plays: int
    total_rewards: int
    average: float | None


class Event(TypedDict):
    """Something that happened to a campaign."""

    number: int
    at: str
    kind: str
    message: str


class OpenDecision(TypedDict):
    """A decision without a reward. An expired one is wanted again; its reward still counts."""

    id: str
    arms: list[str]
    at: str
    expired: bool


def read_decisions(body: Any) -> list[Decision]:
    """The decisions of an answer."""
    return [Decision(each["id"], each["arms"]) for each in body["decisions"]]


def read_rewarded(body: Any) -> Rewarded:
    """The counts of an answer."""
    return Rewarded(body["accepted"], body["repeated"])
