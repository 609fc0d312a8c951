"""What comes in and goes out, as the OpenAPI document describes it. Numbers are checked by the campaign itself."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(max_length=200)]
Range = Annotated[list[float], Field(min_length=2, max_length=2)]


class In(BaseModel):
    """What comes in: a field that is not known is a mistake, and is said."""

    model_config = ConfigDict(extra="forbid")


class NewCampaign(In):
    """A campaign to be."""

    name: Name = Field(examples=["front-page"], description="Letters and digits, with .:@+-_ or blanks between them.")
    arms: list[Name] = Field(examples=[["kettle", "mug", "tray", "pan", "lamp"]], max_length=1_000_000)
    k: int = Field(5, ge=1, le=1_000_000, examples=[2], description="How many arms a decision has.")
    policy: str = Field("thompson", max_length=100, description="One of GET /api/policies.")
    params: dict[str, Any] = Field(default_factory=dict, description="The policy's own parameters.")
    reward_range: Range = Field([0.0, 1.0], examples=[[0, 40]], description="Rewards lie in it.")
    direction: Literal["maximize", "minimize"] = "maximize"
    seed: int | None = Field(None, ge=0, lt=2**63, description="The same seed gives the same decisions.")
    expire_after: float = Field(
        7 * 24 * 3600, gt=0, lt=1e10, description="Seconds until a decision without a reward is wanted again."
    )
    keep_decisions: int = Field(100_000, ge=0, lt=2**53, description="Answered decisions that are kept one by one.")


class Ask(In):
    """How many decisions are wanted."""

    count: int = Field(1, ge=1, examples=[10])


class Reward(In):
    """What a decision earned."""

    id: str = Field(max_length=100, examples=["1a-0-5f3c0d2e9b1c4a7d6e8f0a1b"])
    reward: float = Field(examples=[12.5])


class Rewards(In):
    """What some decisions earned. All of it is taken, or nothing."""

    rewards: list[Reward]


class Total(In):
    """What plays of one subset earned together."""

    arms: list[Name] = Field(examples=[["mug", "tray"]], max_length=1_000_000)
    count: int = Field(ge=1, le=2**53, examples=[1200])
    total: float = Field(examples=[8423.5])
    squares: float | None = Field(None, description="The sum of the squares, if it is known.")
    key: str | None = Field(
        None, min_length=1, max_length=200, examples=["2026-11-15"], description="Under one key a total counts once."
    )


class NewArm(In):
    """An arm to be."""

    name: Name = Field(examples=["jug"])


class Imported(In):
    """An exported campaign, and the name that it gets; its own without."""

    campaign: dict[str, Any] = Field(description="What GET /api/campaigns/{name}/export gave.")
    name: Name | None = None


class Problem(BaseModel):
    """What is wrong, as RFC 9457 has it."""

    type: str = Field(examples=["urn:kofn:no-such-campaign"])
    title: str = Field(examples=["No such campaign"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["there is no campaign 'front'"])


class Session(BaseModel):
    """What whoever asks may do here."""

    version: str = Field(description="Of kofn.", examples=["0.1.0"])
    scope: Literal["read", "full"]
    campaign: str | None = Field(description="The only campaign that the token is for; null: all.")
    token: str | None = Field(description="The token's name; null when none is needed.")
    max_batch: int


class PolicyFact(BaseModel):
    """A policy that can run a campaign."""

    name: str
    says: str
    needs_horizon: bool


class Policies(BaseModel):
    """The policies that can run a campaign."""

    policies: list[PolicyFact]


class Summary(BaseModel):
    """A campaign at a glance. `version` changes with every change."""

    name: str
    state: Literal["running", "paused", "finished"]
    policy: str
    arms: int
    k: int
    reward_range: Range
    direction: Literal["maximize", "minimize"]
    plays: int
    rewards: int
    mean: float | None
    in_flight: int
    expired: int
    created: datetime
    changed: datetime
    version: int


class Campaigns(BaseModel):
    """Campaigns by name; `count` is how many there are in all."""

    campaigns: list[Summary]
    count: int


class Decision(BaseModel):
    """Show these arms, and tell the reward under this id."""

    id: str = Field(examples=["1a-0-5f3c0d2e9b1c4a7d6e8f0a1b"])
    arms: list[str] = Field(examples=[["mug", "tray"]])


class Decisions(BaseModel):
    """Decisions handed out."""

    decisions: list[Decision]


class OpenDecision(Decision):
    """A decision without a reward. An expired one is wanted again; its reward still counts."""

    at: datetime
    expired: bool


class OpenDecisions(BaseModel):
    """Decisions without a reward, the newest first."""

    decisions: list[OpenDecision]


class Rewarded(BaseModel):
    """How many rewards were new, and how many had been told before."""

    accepted: int = Field(examples=[2])
    repeated: int = Field(examples=[0])


class ArmInsight(BaseModel):
    """One arm: what it adds to a subset in place of a borderline arm, between low and high with 95 %."""

    name: str
    effect: float | None
    low: float | None
    high: float | None
    plays: int
    best: bool
    retired: bool


class PlannedSubset(BaseModel):
    """A subset of the plan: plays still wanted, of those out, and told."""

    arms: list[str]
    remaining: int
    in_flight: int
    observed: int


class Insight(BaseModel):
    """What a campaign knows: the best subset and its value, what learning gains per play, how sure it is."""

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


class Point(BaseModel):
    """What happened between `at` and `until`, and in all up to then."""

    at: datetime
    until: datetime
    plays: int
    rewards: int
    mean: float | None
    total_plays: int
    total_rewards: int
    average: float | None


class History(BaseModel):
    """Plays and rewards over time, the oldest first."""

    points: list[Point]


class Event(BaseModel):
    """Something that happened to a campaign."""

    number: int
    at: datetime
    kind: str
    message: str


class Events(BaseModel):
    """What happened, the newest first."""

    events: list[Event]


class Health(BaseModel):
    """The service answers, and so does its store."""

    status: Literal["ok"]
    version: str
