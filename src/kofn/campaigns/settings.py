"""The settings of a campaign: what `create` and `configure` take, checked, and as the store has them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from kofn.campaigns.evidence import Stop
from kofn.constraints import Constraints
from kofn.core import BadInput, Direction, Subset, check_costs, check_range, whole
from kofn.core.campaign_settings import ChangedSettings, Outside
from kofn.core.checks import shown, unknown_name
from kofn.core.responses import CampaignSettings, Group

if TYPE_CHECKING:
    from kofn.campaigns.roster import Roster

GROUPS: tuple[Group, ...] = get_args(Group)
LEARNED, CONTROL, SHIPPED = range(3)

UNIFORM = "uniform"
"""The control that gives each visitor random arms."""

WEEK = 7 * 24 * 3600.0
"""Default of `expire_after`, in seconds."""

KEEP, MAX_KEEP = 100_000, 10**12
"""Default and largest value of `keep_decisions`."""

MAX_UNIT = 20
"""Longest name of the reward's unit, in characters."""

MAX_SHIPPED = 100
"""Shipped subsets that are kept, and as many to segments as these need at most. Rewards of decisions of older ones that
are not stored are refused."""

MAX_GUARDRAILS = 20
"""Most guardrails of a campaign."""

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Seconds of each unit of a duration."""

OF_POLICY = ("reward_range", "half_life", "constraints", "costs")
"""Settings that are parameters of the policy, too."""

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*")
_GUARDRAIL = re.compile(r"\s*([^\s<>=][^<>=]*?)\s*(<=|>=)\s*([+-]?\d+(?:\.\d+)?(?:e-?\d+)?)\s*(%?)\s*")

_HIDDEN = (
    *("policy", "n_arms", "k", "fewest", "direction", "attributes", "takes_context", "learns_from_all", "seed"),
    *("shipped", "store_shipped", "by_segment", "shipped_to", "shipped_before", "control_from", "costs_most"),
)
"""Settings that users do not see among those that `configure` changes."""


class Guardrail(NamedTuple):
    """A limit of a metric: how much more (or less) than the control's its mean may be, in parts or absolutely."""

    metric: str
    at_most: bool
    limit: float
    relative: bool

    @classmethod
    def parse(cls, text: Any) -> Guardrail:
        """Return the guardrail that a text such as "returns<=+2%" describes."""
        found = _GUARDRAIL.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise BadInput(f"a guardrail must be like 'returns<=+2%' or 'margin>=-0.5'; got {shown(text)}")
        limit = float(found[3]) / (100.0 if found[4] else 1.0)
        return cls(metric_name(found[1]), found[2] == "<=", limit, bool(found[4]))

    def __str__(self) -> str:
        number = f"{100 * self.limit:+g}%" if self.relative else f"{self.limit:+g}"
        return f"{self.metric}{'<=' if self.at_most else '>='}{number}"


@dataclass(frozen=True)
class Settings:
    """The settings of a campaign. Arms are numbers in subsets, and names in rules and costs."""

    policy: str
    n_arms: int  # active ones
    k: int
    fewest: int  # arms of the smallest subset
    direction: Direction
    reward_range: tuple[float, float]
    seed: int  # of the coin that chooses the control for a key
    takes_context: bool = False
    learns_from_all: bool = True  # whether the policy learns from plays that it has not planned
    attributes: Any = None  # the declared attributes of contexts
    half_life: int | None = None
    expire_after: float = WEEK
    keep_decisions: int = KEEP
    window: float | None = None
    silence: float = 0.0
    metric_window: float | None = None
    guardrails: tuple[str, ...] = ()
    control: Subset | str | None = None
    control_share: float = 0.1
    control_from: int = 0  # decisions up to this number are not compared with the control: it has changed since
    sticky: float | None = None  # seconds for which a key keeps its arms
    outside: Outside = "refuse"
    stop_when: str | None = None
    ship_when_ready: bool = False
    breaker: bool = False
    unit: str = ""
    constraints: Constraints | None = None  # rules by names of arms
    costs: Mapping[str, float] | None = None  # what arms cost, by name; others cost nothing
    costs_most: float = 0.0  # upper limit of what a subset has cost so far
    store_shipped: bool = True  # whether decisions of a shipped subset are stored when they are made
    shipped: tuple[Subset, ...] = ()  # the subsets that were shipped; the last one is served
    by_segment: bool = False  # whether each segment gets its own best subset, or all get the same one
    shipped_to: tuple[tuple[str, Subset], ...] = ()  # what is served to segments, by their keys
    shipped_before: tuple[tuple[str, Subset], ...] = ()  # what was served to segments before

    def to_text(self) -> str:
        """Return the settings as JSON, without those that have their default."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        given["constraints"] = None if self.constraints is None else self.constraints.to_list()
        return json.dumps({name: value for name, value in given.items() if value != _DEFAULTS.get(name, given)})

    @property
    def sign(self) -> float:
        """1.0 if rewards are maximised, else -1.0."""
        return 1.0 if self.direction == "maximize" else -1.0

    @property
    def stop(self) -> Stop | None:
        """The stop rule."""
        return None if self.stop_when is None else Stop.parse(self.stop_when)

    @property
    def metrics_after(self) -> float:
        """Seconds after a decision when its metrics settle."""
        return self.metric_window or self.window or self.expire_after

    @property
    def net_range(self) -> tuple[float, float]:
        """A range that rewards net of costs are in."""
        (low, high), most = self.reward_range, self.costs_most
        return (low - most, high) if self.direction == "maximize" else (low, high + most)

    @property
    def served(self) -> list[Subset]:
        """The subsets that a shipped campaign serves: one for everyone, and the subsets of segments."""
        return [self.shipped[-1], *(subset for _, subset in self.shipped_to)]

    def shipped_for(self, segment: str | None) -> Subset:
        """Return the subset that a shipped campaign serves to a segment."""
        return next((subset for key, subset in self.shipped_to if key == segment), self.shipped[-1])

    def cost_of(self, names: Sequence[str], subset: Subset) -> float:
        """Return what a subset costs now."""
        return sum(self.costs.get(names[arm], 0.0) for arm in subset) if self.costs else 0.0

    def shown(self, roster: Roster) -> CampaignSettings:
        """Return the settings as users see them."""
        own = {name: value for name, value in asdict(self).items() if name not in _HIDDEN}
        own["control"] = roster.names_of(self.control) if isinstance(self.control, tuple) else self.control
        own["constraints"] = [] if self.constraints is None else self.constraints.to_list()
        own["costs"] = {name: cost for name, cost in (self.costs or {}).items() if name in roster.number_of}
        own["guardrails"] = list(self.guardrails)
        return CampaignSettings(**own)

    def changed(self, given: Mapping[str, Any], roster: Roster) -> Settings:
        """Return the settings with what the caller gave, checked; or raise BadInput."""
        values = {name: _CHECKS[name](value) if name in _CHECKS else value for name, value in given.items()}
        for name in values.keys() - ChangedSettings.__annotations__.keys():
            raise BadInput(unknown_name("setting", name, ChangedSettings.__annotations__))
        if "control" in values:
            values["control"] = _control(values["control"], roster, self.fewest, self.k)
        if "constraints" in values:
            values["constraints"] = named_rules(values["constraints"], roster)
        if "costs" in values:
            values["costs"] = costs = named_costs(values["costs"], roster)
            values["costs_most"] = max(self.costs_most, sum(sorted((costs or {}).values())[-self.k :]))
        new = replace(self, **values)
        new._check(roster)
        if "reward_range" in values:
            (low, high), (least, most) = self.reward_range, new.reward_range
            if least > low or most < high:
                raise BadInput(
                    f"a range can be widened only: it is {low:g} to {high:g}, and rewards of all of it may have been "
                    "recorded"
                )
        return new

    def _check(self, roster: Roster) -> None:
        """Raise BadInput if settings do not go together."""
        if isinstance(self.control, tuple):
            check_obeys(
                self.constraints, roster.names_of(self.control), "the control", "Change the control or the rule"
            )
        if self.ship_when_ready and self.stop_when is None:
            raise BadInput("ship_when_ready needs a stop rule: give stop_when, such as 'loss<0.01'")
        if self.breaker and not isinstance(self.control, tuple):
            raise BadInput("a breaker needs a control to return to: give control, a list of arms")
        if self.guardrails and self.control is None:
            raise BadInput(
                "a guardrail compares a metric with the control's: give control, a list of arms or 'uniform'"
            )
        low, high = self.reward_range
        if self.window is not None and not low <= self.silence <= high and self.outside != "widen":
            raise BadInput(
                f"silence must be a reward between {low:g} and {high:g} (reward_range); got {self.silence:g}"
            )


_DEFAULTS = {each.name: each.default for each in fields(Settings)}


@lru_cache(maxsize=1024)
def settings_from(text: str) -> Settings:
    """Return the settings that `to_text` wrote."""
    found = json.loads(text)
    given = {name: value if name in ("attributes", "constraints") else _frozen(value) for name, value in found.items()}
    if given.get("constraints") is not None:
        given["constraints"] = Constraints.of(given["constraints"])
    return Settings(**given)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


# Checks of single settings.


def duration(name: str, given: Any, *, least: float = 0.0) -> float:
    """Return a duration in seconds, above 0 and at least `least`, or raise BadInput.

    >>> duration("window", "30m"), duration("window", timedelta(days=1))
    (1800.0, 86400.0)
    """
    length = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(length, str) and (found := _DURATION.fullmatch(length)):
        length = float(found[1]) * UNITS[found[2]]
    number = isinstance(length, int | float) and not isinstance(length, bool)
    if not (number and 0 < length < 1e10 and length >= least):
        raise BadInput(
            f"{name} must be a duration above 0: text such as '30m' or '7d', a timedelta, or seconds; got "
            f"{shown(given)}"
        )
    return float(length)


def _optional_duration(name: str) -> Any:
    return lambda given: None if given is None else duration(name, given)


def _flag(name: str) -> Any:
    def check(given: Any) -> bool:
        if not isinstance(given, bool):
            raise BadInput(f"{name} must be True or False; got {shown(given)}")
        return given

    return check


def _share(share: Any) -> float:
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise BadInput(f"control_share must be a number between 0 and 1; got {shown(share)}")
    return float(share)


def _silence(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        raise BadInput(f"silence must be a number, the reward of a decision without events; got {shown(given)}")
    return float(given)


def _outside(given: Any) -> Any:
    if given not in get_args(Outside):
        raise BadInput(f"outside must be one of {', '.join(get_args(Outside))}; got {shown(given)}")
    return given


def _stop(stop: Any) -> str | None:
    if stop is None:
        return None
    if not isinstance(stop, str):
        raise BadInput(f"the stop rule (stop_when) must be text such as 'loss<0.01'; got {shown(stop)}")
    Stop.parse(stop)
    return stop


def _unit(unit: Any) -> str:
    if not (isinstance(unit, str) and len(unit) <= MAX_UNIT and (unit.isprintable() or not unit)):
        raise BadInput(f"unit must be text of at most {MAX_UNIT} characters; got {shown(unit)}")
    return unit


def _keep(number: Any) -> int:
    if (keep := whole("keep_decisions", number, least=0)) > MAX_KEEP:
        raise BadInput(f"keep_decisions must be at most {MAX_KEEP:,}; got {keep:,}")
    return keep


def _guardrails(given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) > MAX_GUARDRAILS:
        raise BadInput(
            f"guardrails must be a list of at most {MAX_GUARDRAILS} texts like 'returns<=+2%'; got {shown(given)}"
        )
    return tuple(str(Guardrail.parse(each)) for each in given)


def _control(control: Any, roster: Roster, fewest: int, k: int) -> Subset | str | None:
    if control is None or control == UNIFORM:
        return control  # type: ignore[no-any-return]
    if isinstance(control, str) or not isinstance(control, Sequence):
        raise BadInput(f"control must be a list of {k} arms, 'uniform' or None; got {shown(control)}")
    return roster.subset_of(control, k, fewest, "the control")


def _half_life(given: Any) -> int | None:
    return None if given is None else whole("half_life", given)


_CHECKS = {
    "reward_range": check_range,
    "half_life": _half_life,
    "control_share": _share,
    "sticky": _optional_duration("sticky"),
    "window": _optional_duration("window"),
    "metric_window": _optional_duration("metric_window"),
    "expire_after": lambda given: duration("expire_after", given, least=1e-3),
    "keep_decisions": _keep,
    "silence": _silence,
    "guardrails": _guardrails,
    "outside": _outside,
    "stop_when": _stop,
    "ship_when_ready": _flag("ship_when_ready"),
    "breaker": _flag("breaker"),
    "unit": _unit,
}


def metric_name(name: object) -> str:
    """Return the name of a metric, or raise BadInput."""
    if isinstance(name, str) and 0 < len(name) <= 50 and name.isprintable() and name == name.strip(" <>="):
        return name
    raise BadInput(
        f"the name of a metric must be 1 to 50 printable characters, and not end with <, > or =; got {shown(name)}"
    )


# Rules and costs, by names of arms.


def named_rules(given: Any, roster: Roster) -> Constraints | None:
    """Return the constraints that a user gave, by names of arms, checked; None if there are no rules.

    Rules may name arms that are retired: those obey when they come back.
    """
    if given is None:
        return None
    from kofn.constraints import Always

    known = set(roster.names)

    def name_of(arm: int | str) -> str:
        if isinstance(arm, str) and arm in known:
            return arm
        if isinstance(arm, int) and 0 <= arm < len(roster.names):
            return roster.names[arm]
        some = ", ".join(repr(roster.names[active]) for active in roster.active[:3])
        raise BadInput(f"a rule names the arm {shown(arm)}, which the campaign does not have; it has {some}...")

    rules = Constraints(*(rule.renamed(name_of) for rule in Constraints.of(given)))
    for rule in rules:
        retired = [arm for arm in rule.listed if arm not in roster.number_of]
        if isinstance(rule, Always) and retired:
            raise BadInput(f"arm {retired[0]!r} is retired, so it cannot be always in: add it again first ({rule})")
    return rules if len(rules) else None


SLOWEST = 1.0
"""Most seconds of processor time in which the solver finds a subset. Most rules take milliseconds. A plan asks the
solver some times. Higher: a campaign learns seldom, and keeps the learner of a service busy."""


def policy_rules(rules: Constraints | None, roster: Roster, settings: Settings) -> list[dict[str, Any]] | None:
    """Return the rules about the active arms as the policy takes them: by its numbers, as plain values.

    Rules that cannot all hold are refused, with the names of their arms, and so are rules that are too slow to solve.
    """
    if rules is None:
        return None
    active = roster.names_of(tuple(roster.active))
    found = rules.kept(active).numbered(active)
    allowed = found.allowed(len(active), settings.k, active, fewest=settings.fewest)
    if (seconds := allowed.seconds) > SLOWEST:
        raise BadInput(
            f"these rules are too hard for a campaign: to find one subset took {seconds:.1f} seconds, and at most "
            f"{SLOWEST:g} are allowed. Use fewer rules, or one rule about many arms in place of many about two"
        )
    return found.to_list()


def joined(rules: Constraints | None, arm: str, groups: Sequence[str]) -> Constraints | None:
    """Return the rules after adding a new arm to the rules with these names, such as the quota of its brand."""
    from kofn.constraints import Budget
    from kofn.constraints.rules import rule_of

    if isinstance(groups, str) or not isinstance(groups, Sequence):
        raise BadInput(f"groups must be a list of names of rules; got {shown(groups)}")
    by_name = {str(rule.to_dict().get("name", "")): rule for rule in rules or () if not isinstance(rule, Budget)}
    for group in groups:
        if not group or group not in by_name:
            there = ", ".join(repr(name) for name in by_name if name) or "none"
            raise BadInput(f"no rule about arms has the name {shown(group)}; names of rules: {there}")
    if rules is None or not groups:
        return rules

    def with_arm(rule: Any) -> Any:
        data = rule.to_dict()
        if isinstance(rule, Budget) or data.get("name", "") not in groups or arm in rule.listed:
            return rule
        return rule_of({**data, "arms": [*rule.listed, arm]})

    return Constraints(*map(with_arm, rules))


def check_obeys(rules: Constraints | None, arms: Sequence[str], what: str, remedy: str) -> None:
    """Raise BadInput, naming the rules, if a subset of arms breaks some."""
    if rules is not None and (broken := rules.broken(arms)):
        rule = "rule" if len(broken) == 1 else "rules"
        raise BadInput(f"{what} breaks the {rule} {'; '.join(map(str, broken))}. {remedy}")


def named_costs(given: Any, roster: Roster) -> dict[str, float] | None:
    """Return the costs that a user gave, by names of arms, checked; None if there are none.

    They are a dict, in which arms that are left out cost nothing, or a list in the order of the active arms. Arms that
    are retired may have a cost: they have it again when they come back.
    """
    if given is None:
        return None
    if not isinstance(given, Mapping):
        names = roster.names_of(tuple(roster.active))
        return dict(zip(names, check_costs(given, len(names)).tolist(), strict=True))
    known = set(roster.names)
    for name in given:
        if name not in known:
            some = ", ".join(map(repr, roster.names_of(tuple(roster.active[:3]))))
            raise BadInput(f"costs name the arm {shown(name)}, which the campaign does not have; it has {some}...")
    if any(isinstance(cost, bool | str) or cost is None for cost in given.values()):
        raise BadInput(f"costs must be numbers of at least 0, by names of arms; got {shown(dict(given))}")
    return dict(zip(given, check_costs(list(given.values()), len(given)).tolist(), strict=True))


def policy_costs(costs: Mapping[str, float] | None, roster: Roster) -> list[float] | None:
    """Return the costs of the active arms as the policy takes them."""
    return None if costs is None else [costs.get(name, 0.0) for name in roster.names_of(tuple(roster.active))]


MAX_TEXT = 500
"""Longest text of rules or costs in an entry of the journal, in characters."""


def rules_text(rules: Constraints | None) -> str:
    """Return the rules for the journal."""
    return "no rules" if rules is None else "; ".join(map(str, rules))[:MAX_TEXT]


def costs_text(costs: Mapping[str, float] | None) -> str:
    """Return the costs for the journal."""
    return ", ".join(f"{name} {cost:g}" for name, cost in (costs or {}).items() if cost)[:MAX_TEXT] or "no costs"


MAX_NAMES = 10
"""Names of the best arms in an entry of the journal; more arms are counted only."""


def listed_names(names: Iterable[str]) -> str:
    """Return the names of arms for the journal; many are counted only."""
    listed = list(names)
    more = f" and {len(listed) - MAX_NAMES} more" if len(listed) > MAX_NAMES else ""
    return ", ".join(listed[:MAX_NAMES]) + more
