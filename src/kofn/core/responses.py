"""What campaigns return: frozen values, the same in this process, over HTTP and from the clients.

Each class is declared here and nowhere else. `to_dict` gives plain values for JSON, and `from_dict` reads them back.
The service's OpenAPI document takes its descriptions from the docstrings and its examples from the fields' metadata.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import Any, Literal, Self, Union, cast, get_args, get_origin, get_type_hints

from kofn.core import Direction, Subset

State = Literal["running", "paused", "shipped", "stopped", "archived"]
Group = Literal["learned", "control", "shipped"]


def moment(seconds: float) -> datetime:
    """Return a time of the store, in seconds since 1970, as a datetime in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


class Response:
    """Base class of all responses: conversion to and from plain values."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; times as ISO 8601."""
        names, values_of, converters = _reader(cast(Hashable, type(self)))
        values = dict(zip(names, values_of(self), strict=True))
        for name, convert in converters:
            values[name] = convert(values[name])
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the response that `to_dict` described. Unknown fields are ignored: a newer service may send more."""
        kinds = _field_types(cast(Hashable, cls))
        required = {each.name for each in fields(cast(Any, cls)) if each.default is each.default_factory is MISSING}
        given = {name: kind for name, kind in kinds.items() if name in values or name in required}
        return cls(**{name: _read(kind, values[name]) for name, kind in given.items()})


@cache
def _field_types(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {each.name: hints[each.name] for each in fields(cls)}


@cache
def _reader(cls: Any) -> tuple[list[str], Callable[[Any], tuple[Any, ...]], list[tuple[str, Callable[[Any], Any]]]]:
    """Return the names of the fields, a function that returns their values, and what makes some of them plain."""
    kinds = _field_types(cls)
    names = list(kinds)
    values_of = attrgetter(*names) if len(names) > 1 else lambda each: (getattr(each, names[0]),)
    return names, values_of, [(name, _converter(kind)) for name, kind in kinds.items() if not _is_plain(kind)]


def _converter(kind: Any) -> Callable[[Any], Any]:
    """Return what makes a value of a type plain that may not be."""
    if get_origin(kind) in (list, tuple) and all(_is_plain(each) or each is ... for each in get_args(kind)):
        return list
    return datetime.isoformat if kind is datetime else _plain


def _is_plain(kind: Any) -> bool:
    if get_origin(kind) in (Union, types.UnionType):
        return all(map(_is_plain, get_args(kind)))
    return kind in (str, int, float, bool, type(None)) or get_origin(kind) is Literal


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Response):
        return value.to_dict()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _read(kind: Any, value: Any) -> Any:
    """Return a plain value as the type that a field has."""
    origin = get_origin(kind)
    if value is None:
        return None
    if origin in (Union, types.UnionType):
        kinds = [each for each in get_args(kind) if each is not type(None)]
        return value if isinstance(value, str) and str in kinds else _read(kinds[0], value)
    if origin is list:
        return [_read(get_args(kind)[0], each) for each in value]
    if origin is tuple:
        return tuple(value)
    if kind is datetime:
        return datetime.fromisoformat(value)
    return kind.from_dict(value) if isinstance(kind, type) and issubclass(kind, Response) else value


@dataclass(frozen=True, slots=True)
class Decision(Response):
    """One play handed out: show these arms, and report the reward under this id.

    `subset` has the arms by number. An arm keeps its number when others are retired; a new arm gets the next number.
    `group` says who chose the arms: the policy ("learned"), the control, or whoever shipped them. `context` describes
    the segment that the decision is for; None if the policy takes no context.
    """

    id: str = field(metadata={"examples": ["1a-0-5f3c0d2e9b1c4a7d6e8f0a1b"]})
    arms: list[str] = field(metadata={"examples": [["mug", "tray"]]})
    subset: Subset = field(metadata={"examples": [[1, 2]]})
    at: datetime
    group: Group = field(default="learned", metadata={"examples": ["learned"]})
    context: dict[str, str] | None = field(default=None, metadata={"examples": [{"device": "phone"}]})


@dataclass(frozen=True)
class OpenDecision(Decision):
    """A decision whose reward is open. If it `expired` (without a window), its reward still counts when it comes."""

    expired: bool = False


@dataclass(frozen=True)
class LoggedDecision(Decision):
    """A decision as the export has it.

    `propensity` is the probability with which these arms were chosen, None if it is not known; `reward` and
    `rewarded_at` are None without a reward. `reward` is as it was reported, `net_reward` net of what the arms cost when
    the decision was made; they are equal if arms cost nothing. `key` and `metadata` were given with the call, for its
    first decision. `settled` says whether the reward is final, and `metrics` are those that were recorded.
    """

    reward: float | None = None
    rewarded_at: datetime | None = None
    propensity: float | None = None
    key: str | None = None
    metadata: dict[str, Any] | None = None
    net_reward: float | None = None
    settled: bool = False
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Refusal(Response):
    """A reward of a batch that was refused, and why."""

    id: str
    reason: str


@dataclass(frozen=True)
class Rewarded(Response):
    """How many rewards of a batch were new, and how many had been recorded before.

    `forgotten` counts rewards of decisions that are no longer stored. This call did not record them; whether one had
    been recorded before is no longer known. `late` counts those of decisions whose window is over: they are kept for
    the export, but not learned from. `refused` lists the rewards that a partial batch left out.
    """

    accepted: int = field(metadata={"examples": [2]})
    repeated: int = field(metadata={"examples": [0]})
    forgotten: int = field(default=0, metadata={"examples": [0]})
    refused: list[Refusal] = field(default_factory=list)
    late: int = field(default=0, metadata={"examples": [0]})


@dataclass(frozen=True)
class Buffered(Rewarded):
    """How many rewards a client put into its buffer. They are not recorded yet, and are lost if the client dies."""

    buffered: int = 1


@dataclass(frozen=True)
class Summary(Response):
    """A campaign at a glance.

    `plays` counts decisions and plays reported as totals, `rewards` those that are settled, and `mean` is their
    average reward, net of costs. `in_flight` decisions may still get a reward; with a window, theirs is open.
    `version` grows with every change. `alarms` counts the raised alarms, as of the last
    look of the service or of `Campaign.note_alarms`. `takes_context` says whether what is best may depend on the
    context of a decision, so that the campaign has segments. `failing` says that the policy cannot learn: decisions
    follow the last plan, and rewards are recorded.
    """

    name: str
    state: State
    policy: str
    arms: int
    k: int
    reward_range: tuple[float, float]
    direction: Direction
    plays: int
    rewards: int
    mean: float | None
    in_flight: int
    expired: int
    created: datetime
    changed: datetime
    version: int
    unit: str = ""
    alarms: int = 0
    takes_context: bool = False
    failing: bool = False


@dataclass(frozen=True)
class ArmInsight(Response):
    """One arm: its effect on the reward of the best subset, compared with a borderline arm, and a 95 % interval.

    Effects are in the unit of the reward, so with direction="minimize" a good arm has a negative effect. The effect is
    None while the policy has no estimate, and for retired arms.
    """

    name: str
    effect: float | None
    low: float | None
    high: float | None
    plays: int
    best: bool
    retired: bool


@dataclass(frozen=True)
class PlannedSubset(Response):
    """One row of the current plan: plays of this subset that remain, are in flight, and are observed.

    `context` describes the segment that they are for; None if the policy takes no context.
    """

    arms: list[str]
    remaining: int
    in_flight: int
    observed: int
    context: dict[str, str] | None = None


@dataclass(frozen=True)
class RaisedAlarm(Response):
    """Something that makes a campaign's numbers doubtful: what was seen, since when, and what to do.

    Of the policy: "drift" (the best subset's rewards changed) and "misfit" (other subsets' rewards are not as
    predicted); `since` is the number of rewards after which it was raised, and it stays raised. Of the campaign:
    "silence" (rewards stopped coming), "delay" (they take longer), "missing" (fewer decisions get one), "arm" (those
    with the arm `arm` hardly ever get one), "ratio" (the control does not get its share), "range" (it is so wide that
    rewards cannot be told apart), "guardrail" (a metric certainly breaks its limit), "policy" (it cannot learn); they
    end with their cause.
    """

    kind: str = field(metadata={"examples": ["drift"]})
    since: int | None = field(metadata={"examples": [22475]})
    at: datetime | None = None
    message: str = field(default="", metadata={"examples": ["rewards of the best subset have changed"]})
    advice: str = field(default="", metadata={"examples": ["set half_life, so that older rewards count less"]})
    arm: str | None = None


@dataclass(frozen=True)
class CampaignSettings(Response):
    """The settings of a campaign that can be changed while it runs (`Campaign.configure`).

    `control` is a list of arms, or "uniform" for random arms; it gets `control_share` of the decisions. `sticky` is
    for how many seconds a key keeps its arms. `outside` says what happens to rewards outside the range: "refuse",
    "clip" or "widen" (the range is learned). `stop_when` is the stop rule, such as "loss<0.01"; with `ship_when_ready`
    the campaign ships when it holds. With `breaker`, it returns to the control when learning certainly loses. `unit` is
    the unit of rewards. `half_life` is None if the policy lacks it. `constraints` are the rules that every subset
    obeys, as `kofn.Constraints.to_list` writes them, with names of arms. `costs` has what arms cost, by name; all that
    is reported about rewards is net of costs, except `reward_range` and rewards of single decisions.
    With a `window` (seconds), a decision settles when it ends: its reward is the sum of its events, or `silence` if
    there were none. `metric_window` is when metrics settle (None: with the window, or after `expire_after`), and
    `guardrails` are limits of metrics beside the control's, such as "returns<=+2%".
    """

    control: list[str] | str | None
    control_share: float
    sticky: float | None
    outside: str
    stop_when: str | None
    ship_when_ready: bool
    breaker: bool
    unit: str
    reward_range: tuple[float, float]
    expire_after: float
    keep_decisions: int
    half_life: int | None
    constraints: list[dict[str, Any]] = field(
        default_factory=list,
        metadata={"examples": [[{"rule": "at-most", "count": 1, "arms": ["mug", "cup"], "name": "Acme"}]]},
    )
    costs: dict[str, float] = field(default_factory=dict, metadata={"examples": [{"mug": 0.5}]})
    window: float | None = field(default=None, metadata={"examples": [1800.0]})
    silence: float = 0.0
    metric_window: float | None = None
    guardrails: list[str] = field(default_factory=list, metadata={"examples": [["returns<=+2%"]]})


@dataclass(frozen=True)
class StopReport(Response):
    """What the stop rule says: whether the campaign is ready to ship.

    `bound` is the loss per play of shipping the best subset now, as the rule computes it; `threshold` is the largest
    that it allows.
    """

    ready: bool
    bound: float | None
    threshold: float
    reason: str


@dataclass(frozen=True)
class EstimatePoint(Response):
    """What was known after an update of the policy: the best subset, its value, the expected loss per play, the lift.

    What the policy does not estimate is None. `effects` has the effects of the requested arms; campaigns with more than
    200 arms do not keep them. `lift` is what learning had earned per play beyond the control, with its interval, as
    `Lift.difference`; None without a control.
    """

    at: datetime
    rewards: int
    value: float | None
    low: float | None
    high: float | None
    expected_loss: float | None
    best: list[str]
    effects: dict[str, float]
    lift: float | None = field(default=None, metadata={"examples": [0.005]})
    lift_low: float | None = field(default=None, metadata={"examples": [0.0002]})
    lift_high: float | None = field(default=None, metadata={"examples": [0.0091]})


@dataclass(frozen=True)
class CampaignInsight(Response):
    """What a campaign has learned.

    `value` is the estimated reward of the best subset, `average` the mean reward of all plays so far, and `gain`
    the improvement of the first over the second: what learning is worth per play from here on. `probability_best`
    is the probability that no swap of two arms improves the best subset, `expected_loss` the estimated loss per
    play of shipping it now, and `loss_high` a limit of that loss. `alarms` lists what contradicts these estimates.
    `updates` counts how often the policy has learned. What the policy does not estimate is None.

    `stop` is what the stop rule says, `lift` what learning has earned beyond the control so far, and `sample_ratio`
    whether the control gets its share; None without a stop rule or a control. `winner` is what shipping the best subset
    is estimated to earn beyond the control. `metrics` are those beside the reward. `shipped` is the subset that
    everyone gets, in a shipped campaign. `plays_per_month` is the present traffic, and `clipped` counts rewards outside
    the range. `settles` is when the next open window ends. `failure` is why the policy cannot learn.
    """

    summary: Summary
    best: list[str]
    value: float | None
    low: float | None
    high: float | None
    average: float | None
    gain: float | None
    probability_best: float | None
    expected_loss: float | None
    alarms: list[RaisedAlarm] | None
    updates: int
    arms: list[ArmInsight]
    plan: list[PlannedSubset]
    settings: CampaignSettings | None = None
    stop: StopReport | None = None
    lift: Lift | None = None
    sample_ratio: SampleRatio | None = None
    shipped: list[str] | None = None
    plays_per_month: float | None = None
    clipped: int = 0
    loss_high: float | None = None
    winner: Winner | None = None
    metrics: list[MetricReport] = field(default_factory=list)
    settles: datetime | None = None
    failure: str | None = None


@dataclass(frozen=True)
class SegmentReport(Response):
    """One segment: all contexts with the same values of their attributes, and what is best for it.

    `words` is the context for people to read, `plays` its plays with a known reward, and `share` their share of
    all. `best` is the best subset for it, `value` its estimated reward with a 95 % interval, `probability_best` the
    probability that no swap of two arms improves it, `expected_loss` the loss per play of shipping it now, and
    `loss_high` a limit of that loss; None while they are not estimated. `shipped` is what the segment gets, in a
    shipped campaign.
    """

    context: dict[str, str] = field(metadata={"examples": [{"country": "de", "device": "phone"}]})
    words: str = field(metadata={"examples": ["country de, device phone"]})
    plays: int = field(metadata={"examples": [1200]})
    share: float = field(metadata={"examples": [0.3]})
    best: list[str] = field(metadata={"examples": [["mug", "tray"]]})
    value: float | None = field(metadata={"examples": [0.12]})
    low: float | None = field(metadata={"examples": [0.1]})
    high: float | None = field(metadata={"examples": [0.14]})
    probability_best: float | None = field(metadata={"examples": [0.9]})
    expected_loss: float | None = field(metadata={"examples": [0.001]})
    loss_high: float | None = field(metadata={"examples": [0.004]})
    shipped: list[str] | None = None


@dataclass(frozen=True)
class AttributeReport(Response):
    """One attribute of contexts: the probability that it matters for what is best, and what it is worth.

    `values` are the values seen so far. `gain` is how much more per play the best subset of each value earns than one
    subset for all.
    """

    attribute: str = field(metadata={"examples": ["device"]})
    values: list[str] = field(metadata={"examples": [["desktop", "phone"]]})
    probability: float = field(metadata={"examples": [0.97]})
    gain: float = field(metadata={"examples": [0.01]})


@dataclass(frozen=True)
class Segments(Response):
    """What a campaign has learned about segments, those with most plays first, and about the attributes."""

    segments: list[SegmentReport]
    attributes: list[AttributeReport]


@dataclass(frozen=True)
class Point(Response):
    """Plays and rewards between `at` and `until`, and in total up to `until`.

    `mean` is the mean reward of the interval, None without rewards; `average` is the mean of all rewards up to `until`.
    """

    at: datetime
    until: datetime
    plays: int
    rewards: int
    mean: float | None
    total_plays: int
    total_rewards: int
    average: float | None


@dataclass(frozen=True)
class Event(Response):
    """Something that happened to a campaign: created, paused, learned, arm added..."""

    number: int
    at: datetime
    kind: str
    message: str


@dataclass(frozen=True)
class Verification(Response):
    """Whether what a campaign knows follows from its log of rewards.

    `compared` names what was compared: always the counters; the policy and its plan if every reward is still stored one
    by one, else `reason` says why not. `rewards` and `steps` are the plays and the policy updates of the log.
    `deviation` is the largest relative deviation of a number that passed: 0.0 means equal to the last digit.
    """

    ok: bool
    compared: list[str]
    rewards: int
    steps: int
    deviation: float
    differences: list[str]
    reason: str | None


@dataclass(frozen=True)
class MeanEstimate(Response):
    """The mean reward of a group of plays, with an interval that is valid at any time.

    A limit is None if the range of rewards has none on that side, and nothing else is known yet.
    """

    mean: float = field(metadata={"examples": [0.024]})
    low: float | None = field(metadata={"examples": [0.0221]})
    high: float | None = field(metadata={"examples": [0.0262]})


@dataclass(frozen=True)
class Lift(Response):
    """What learning is worth: the mean reward of learned plays, compared with the mean reward of control plays.

    `difference` is the improvement per play, positive if learned plays are better in the campaign's direction, and
    `low` and `high` are its 95 % interval. It is valid however often you check. `relative` is the
    difference divided by the control's mean; None if rewards may be negative or the control has earned nothing.
    `relative_high` is None while the control's mean may be 0. `learned` and `control` are None for a group without
    plays. `claimed` says that learned plays are better (`low` is above 0), `harmful` that they are worse (`high` is
    below 0).
    """

    learned: MeanEstimate | None
    control: MeanEstimate | None
    difference: float | None = field(metadata={"examples": [0.005]})
    low: float | None = field(metadata={"examples": [0.0002]})
    high: float | None = field(metadata={"examples": [0.0091]})
    relative: float | None = field(metadata={"examples": [0.26]})
    relative_low: float | None = field(metadata={"examples": [0.01]})
    relative_high: float | None = field(metadata={"examples": [0.6]})
    plays_learned: int = field(metadata={"examples": [90000]})
    plays_control: int = field(metadata={"examples": [10000]})
    claimed: bool
    harmful: bool


@dataclass(frozen=True)
class SampleRatio(Response):
    """Whether control gets its share of the plays.

    `share` is the intended one, and `observed` the actual one, None without plays. `evidence` against the intended
    share is at most 1 on average if that share is right, however often you check. `p_value` is its inverse, at most
    1, and also valid then. `rejected` says that it is below 0.001: plays or rewards of one group are lost, or plays
    are not assigned at random.
    """

    share: float = field(metadata={"examples": [0.1]})
    observed: float | None = field(metadata={"examples": [0.0979]})
    evidence: float = field(metadata={"examples": [0.9]})
    p_value: float = field(metadata={"examples": [1.0]})
    rejected: bool


@dataclass(frozen=True)
class Winner(Response):
    """What shipping the best subset is estimated to earn beyond the control, per play.

    `lift` compares the plays of these `arms` since they became the best (`since`) with the control's plays. Earlier
    plays, which helped to choose them, are left out. Its interval allows for every change of the best subset so far.
    """

    arms: list[str] = field(metadata={"examples": [["mug", "tray"]]})
    since: datetime
    lift: Lift


@dataclass(frozen=True)
class MetricReport(Response):
    """A metric beside the reward, such as returns: its mean per decision and its lift over the control.

    Decisions about which nothing was recorded count as 0. `guardrail` is its limit, and `broken` whether it is
    certainly broken. `lift.difference` is the mean of learned plays minus the control's, and `lift.relative` the same
    divided by the control's mean.
    """

    name: str = field(metadata={"examples": ["returns"]})
    learned: MeanEstimate | None
    control: MeanEstimate | None
    lift: Lift | None
    guardrail: str | None = field(default=None, metadata={"examples": ["returns<=+2%"]})
    broken: bool = False
