"""Request bodies, and the few responses that are not in `kofn.core.responses`: lists and facts about the service.

Types and lengths are checked here; everything else is checked by the campaign.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kofn.core import responses

MAX_NAME = 200
"""Longest name of a campaign or an arm, in characters."""

Name = Annotated[str, Field(max_length=MAX_NAME)]
Range = Annotated[list[float], Field(min_length=2, max_length=2)]
Duration = (
    Annotated[float, Field(gt=0, lt=1e10)] | Annotated[str, Field(max_length=20, pattern=r"^[0-9]+(\.[0-9]+)?[smhd]$")]
)
"""Seconds, or text such as 30m or 7d."""

Cost = Annotated[float, Field(ge=0, lt=1e100)]


# Requests.


class RequestBody(BaseModel):
    """Base class of request bodies. Unknown fields and other types are rejected: `true` and "7" are not numbers."""

    model_config = ConfigDict(extra="forbid", strict=True)


Arm = Name | Annotated[int, Field(ge=0, le=1_000_000)]
"""An arm of a rule: its name, or its number."""

Arms = Annotated[list[Arm], Field(min_length=1, max_length=10_000, examples=[["mug", "cup"]])]
RuleName = Annotated[str, Field(max_length=MAX_NAME, examples=["Acme"], description="For people.")]


class CountRule(RequestBody):
    """A rule about how many of some arms a subset has."""

    rule: Literal["at-most", "at-least"]
    count: int = Field(ge=0, le=1_000_000, examples=[1])
    arms: Arms
    name: RuleName = ""


class ArmsRule(RequestBody):
    """A rule about arms that are always in, never in, never together or only together."""

    rule: Literal["always", "never", "never-together", "only-together"]
    arms: Arms
    name: RuleName = ""


class BudgetRule(RequestBody):
    """A rule about the sum of the costs of a subset's arms. Arms without a cost are free."""

    rule: Literal["budget"]
    most: float = Field(ge=0, examples=[20.0])
    costs: list[Annotated[tuple[Arm, Cost], Field(strict=False)]] = Field(
        min_length=1, max_length=10_000, examples=[[["mug", 3.5], ["cup", 2.0]]], description="Pairs of arm and cost."
    )
    name: RuleName = ""


Rule = Annotated[CountRule | ArmsRule | BudgetRule, Field(discriminator="rule")]


class OptionsBody(RequestBody):
    """Options of a campaign that can be changed while it runs. Fields that are left out keep their value."""

    control: list[Name] | Literal["uniform"] | None = Field(
        None, examples=[["kettle", "mug"]], description="Arms of the control group; `uniform` for random arms."
    )
    control_share: float = Field(0.1, gt=0, lt=1, description="Share of the decisions that the control gets.")
    sticky: Duration | None = Field(
        None, examples=["30d"], description="How long a key keeps its arms: seconds, or text such as 30d."
    )
    window: Duration | None = Field(
        None,
        examples=["30m"],
        description="How long after a decision its events count; then its reward is fixed. Null: the first reward is.",
    )
    silence: float = Field(0.0, description="Reward of a decision without events when its window ends.")
    guardrails: list[Annotated[str, Field(max_length=300)]] | None = Field(
        None,
        max_length=100,
        examples=[["returns<=+2%"]],
        description="Limits of metrics beside the control's, in % of them or as a difference; null for none.",
    )
    metric_window: Duration | None = Field(
        None,
        examples=["30d"],
        description="How long after a decision its metrics count; null: as long as its window, or `expire_after`.",
    )
    outside: Literal["refuse", "clip", "widen"] = Field(
        "refuse", description="What happens to rewards outside the range; `widen` learns the range."
    )
    stop_when: str | None = Field(
        None,
        max_length=100,
        examples=["loss<0.01"],
        description="When the campaign is ready: a loss per play, or `value<500 over 100000` plays.",
    )
    ship_when_ready: bool = Field(False, description="Whether the campaign ships by itself when it is ready.")
    breaker: bool = Field(
        False, description="Whether the campaign returns to the control when learning certainly loses."
    )
    unit: str = Field("", max_length=20, examples=["EUR"], description="Unit of the reward.")
    constraints: list[Rule] | None = Field(
        None, max_length=10_000, description="Rules that every subset obeys; null or an empty list for none."
    )
    costs: dict[Name, Cost] | list[Cost] | None = Field(
        None,
        max_length=1_000_000,
        examples=[{"mug": 0.5}],
        description="What arms cost, by name or in their order, for the policy thompson-sizes; null for nothing.",
    )
    expire_after: Duration = Field(
        7 * 24 * 3600,
        examples=["7d"],
        description="When a decision without a reward expires, unless there is a window: seconds, or text such as 7d.",
    )
    keep_decisions: int = Field(
        100_000,
        ge=0,
        lt=2**53,
        description="Number of rewarded decisions that are stored individually. Older ones are stored as totals.",
    )

    def given(self) -> dict[str, Any]:
        """Return the fields that the request has, as `Campaign` takes them."""
        found = {name: getattr(self, name) for name in self.model_fields_set}
        if found.get("constraints") is not None:
            found["constraints"] = [rule.model_dump(exclude_unset=True) for rule in found["constraints"]]
        if found.get("reward_range") is not None:
            found["reward_range"] = tuple(found["reward_range"])
        return found


class ChangedSettingsBody(OptionsBody):
    """Settings to change. Fields that are left out keep their value."""

    reward_range: Range = Field([0.0, 1.0], examples=[[0, 100]], description="A wider range of rewards.")
    half_life: int | None = Field(
        None, ge=1, lt=2**53, description="Plays after which a reward counts half; null to forget nothing."
    )


class Shipment(RequestBody):
    """What to ship."""

    arms: list[Name] | None = Field(
        None,
        max_length=1_000_000,
        examples=[["mug", "tray"]],
        description="Arms; by default the best subset, or the best of each segment if the policy takes a context.",
    )
    store: bool = Field(
        True, description="Whether decisions are stored when they are made; else with their rewards only."
    )


class NewCampaign(OptionsBody):
    """A campaign to create."""

    name: Name = Field(
        examples=["front-page"], description="Letters and digits; also .:@+-_ and spaces, but not at either end."
    )
    arms: list[Name] = Field(
        examples=[["kettle", "mug", "tray", "pan", "lamp"]], max_length=1_000_000, description="Names of the arms."
    )
    k: int = Field(5, ge=1, le=1_000_000, examples=[2], description="Number of arms per decision.")
    policy: str = Field("thompson", max_length=100, description="One of GET /api/policies.")
    params: dict[str, Any] = Field(default_factory=dict, description="Parameters of the policy.")
    reward_range: Range | None = Field(
        [0.0, 1.0], examples=[[0, 40]], description="Lowest and highest reward; null to learn them."
    )
    direction: Literal["maximize", "minimize"] = Field(
        "maximize", description="Whether higher or lower rewards are better."
    )
    seed: int | None = Field(None, ge=0, lt=2**63, description="Seed of the policy, for reproducible decisions.")


class DecisionRequest(RequestBody):
    """A request for decisions."""

    count: int = Field(1, ge=1, examples=[10], description="Number of decisions.")
    key: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        examples=["order-1042"],
        description="Idempotency key, or the visitor's: the same key returns the same decisions.",
    )
    metadata: dict[str, Any] | None = Field(
        None, examples=[{"page": "home"}], description="Small; it comes back in the export of decisions."
    )
    context: dict[str, Any] | None = Field(
        None,
        examples=[{"device": "phone", "country": "de"}],
        description="For whom: attributes and their values, for a policy that takes a context.",
    )


class OfDecision(RequestBody):
    """What is reported about one decision."""

    id: str = Field(max_length=100, examples=["1a-0-5f3c0d2e9b1c4a7d6e8f0a1b"], description="Id of the decision.")


class RewardItem(OfDecision):
    """The reward of one decision."""

    reward: float = Field(examples=[12.5])


class EventItem(OfDecision):
    """What one event, such as an order, adds to the reward of a decision."""

    value: float = Field(examples=[12.5])
    event: str = Field(
        min_length=1, max_length=MAX_NAME, examples=["order-17"], description="The same event counts once."
    )


class RecordItem(OfDecision):
    """A metric of one decision, beside its reward."""

    name: str = Field(min_length=1, max_length=MAX_NAME, examples=["returns"], description="Name of the metric.")
    value: float = Field(examples=[1.0])


class ReportBody(RequestBody):
    """A batch of reports. It is recorded completely or not at all."""

    partial: bool = Field(False, description="Record the others if some are refused; the response lists those.")


class Rewards(ReportBody):
    """Rewards of decisions. The batch is recorded completely or not at all."""

    rewards: list[RewardItem]


class AddedEvents(ReportBody):
    """Events that add to rewards of decisions. The batch is recorded completely or not at all."""

    events: list[EventItem]


class Records(ReportBody):
    """Metrics of decisions. The batch is recorded completely or not at all."""

    records: list[RecordItem]


class Total(RequestBody):
    """The total reward of several plays of one subset."""

    arms: list[Name] = Field(examples=[["mug", "tray"]], max_length=1_000_000, description="The subset.")
    count: int = Field(ge=1, le=2**53, examples=[1200], description="Number of plays.")
    total: float = Field(examples=[8423.5], description="Sum of their rewards.")
    squares: float | None = Field(None, description="Sum of the squares of their rewards, if known.")
    key: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        examples=["2026-11-15"],
        description="Idempotency key: a total with the same key is recorded once.",
    )
    context: dict[str, Any] | None = Field(
        None, examples=[{"device": "phone"}], description="For whom the plays were, for a policy that takes a context."
    )


class NewArm(RequestBody):
    """An arm to add."""

    name: Name = Field(examples=["jug"])
    groups: list[Name] = Field(
        default_factory=list, max_length=1000, examples=[["Acme"]], description="Names of the rules that it joins."
    )


class RetiredArm(RequestBody):
    """An arm to retire."""

    name: Name = Field(examples=["mug"])


class ImportedCampaign(RequestBody):
    """An exported campaign to import."""

    campaign: dict[str, Any] = Field(description="The response of GET /api/campaigns/{name}/export.")
    name: Name | None = Field(None, description="A new name; by default the campaign keeps its own.")


# Responses.


class FieldError(BaseModel):
    """An invalid field of a request."""

    where: str = Field(examples=["body.count"])
    message: str = Field(examples=["Input should be greater than or equal to 1"])


class ProblemDetails(BaseModel):
    """An error (RFC 9457)."""

    type: str = Field(examples=["urn:kofn:no-such-campaign"], description="Identifies the kind of error.")
    title: str = Field(examples=["No such campaign"], description="The kind of error, for people to read.")
    status: int = Field(examples=[404], description="The HTTP status.")
    detail: str = Field(
        examples=["there is no campaign 'front'"], description="What was received, what is accepted, and what to do."
    )
    errors: list[FieldError] | None = Field(None, description="The invalid fields of a malformed request.")


class SessionInfo(BaseModel):
    """What the sender of the request may do."""

    version: str = Field(description="Version of kofn.", examples=["0.1.0"])
    scope: Literal["read", "decide", "full"] = Field(description="What the token may do.")
    campaign: str | None = Field(description="The only campaign of the token; null for all.")
    token: str | None = Field(description="Name of the token; null when no token is required.")
    max_batch: int = Field(description="Largest number of decisions or rewards in a request.")


class PolicyInfo(BaseModel):
    """A policy that can run a campaign."""

    name: str = Field(examples=["thompson"])
    description: str = Field(description="What it is for.")
    offered: bool = Field(description="Whether it is for practitioners. The others are for research.")
    needs_horizon: bool = Field(description="Whether the parameter `horizon` is required.")
    takes_context: bool = Field(description="Whether what is best may depend on the context of a decision.")
    settings: list[str] = Field(examples=[["half_life"]], description="Settings that only some policies have.")


class Policies(BaseModel):
    """The policies that can run a campaign."""

    policies: list[PolicyInfo]


class Campaigns(BaseModel):
    """A page of the campaigns, ordered by name."""

    campaigns: list[responses.Summary]
    count: int = Field(description="Number of all campaigns that match.")
    states: dict[str, int] = Field(
        examples=[{"running": 2, "stopped": 1}],
        description="Number of campaigns whose name matches, by state; other states have none.",
    )


class Decisions(BaseModel):
    """New decisions."""

    decisions: list[responses.Decision]


class OpenDecisions(BaseModel):
    """Decisions without a reward, newest first."""

    decisions: list[responses.OpenDecision]


class History(BaseModel):
    """Plays and rewards over time, oldest first."""

    points: list[responses.Point]


class Events(BaseModel):
    """Events of a campaign, newest first."""

    events: list[responses.Event]


class Estimates(BaseModel):
    """What was known over time, oldest first."""

    estimates: list[responses.EstimatePoint]


class Health(BaseModel):
    """The process responds."""

    status: Literal["ok"]
    version: str


class Ready(BaseModel):
    """The store accepts writes."""

    status: Literal["ready"]
    version: str
    failing: int = Field(description="Number of campaigns whose policy cannot learn. They serve their last plan.")
