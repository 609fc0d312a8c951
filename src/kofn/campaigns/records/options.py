"""The options of a campaign that say who gets which subset, which rewards are taken, and when it is ready."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args

from kofn.campaigns.evidence import Stop
from kofn.campaigns.records.costs import named_costs
from kofn.campaigns.records.rules import check_obeys, named_rules
from kofn.constraints import Constraints
from kofn.core import BadInput, Subset
from kofn.core.campaign_settings import Outside
from kofn.core.checks import shown
from kofn.core.responses import CampaignSettings

if TYPE_CHECKING:
    from kofn.campaigns.records.rows import Roster

UNIFORM = "uniform"
"""The control that gives each visitor random arms."""

MAX_UNIT = 20
"""Longest name of the reward's unit, in characters."""


_HIDDEN = (
    *("control_from", "seed", "shipped", "store_shipped", "by_segment", "shipped_to", "shipped_before"),
    *("clipped_to", "unstored_after", "alarms", "alarms_noted", "costs_from", "costs_most"),
)
"""Options that users do not see among the settings."""


@dataclass(frozen=True)
class Options:
    """The options of a campaign, as the store has them. Arms are numbers."""

    control: Subset | str | None = None
    control_share: float = 0.1
    control_from: int = 0  # number of the first decision that is compared with the control
    seed: int = 0  # of the coin that chooses the control
    sticky: float | None = None  # seconds for which a key keeps its arms
    outside: Outside = "refuse"
    stop_when: str | None = None
    ship_when_ready: bool = False
    breaker: bool = False
    unit: str = ""
    constraints: Constraints | None = None  # rules by names of arms
    costs: Mapping[str, float] | None = None  # what arms cost, by name; others cost nothing
    costs_from: int = 0  # the first step with these costs; the log of the policy's changes has those before
    costs_most: float = 0.0  # upper limit of what a subset has cost so far
    store_shipped: bool = True  # whether decisions of a shipped subset are stored when they are made
    shipped: tuple[Subset, ...] = ()  # the subsets that were shipped; the last one is served
    by_segment: bool = False  # whether each segment gets its own best subset, or all get the same one
    shipped_to: tuple[tuple[str, Subset], ...] = ()  # what is served to segments, by their keys
    shipped_before: tuple[tuple[str, Subset], ...] = ()  # what was served to segments before
    clipped_to: tuple[tuple[float, float], ...] = ()  # earlier ranges to which rewards were clipped
    unstored_after: float = 0.0  # rewards of earlier decisions that were not stored may have been counted
    alarms: tuple[str, ...] = ()  # alarms that have an event "alarm" and none that they are over (`alarms.note`)
    alarms_noted: tuple[tuple[str, float], ...] = ()  # alarms with recent events, and the time of the latest one

    def to_text(self) -> str:
        """Return the options as JSON, without those that have their default."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        given["constraints"] = None if self.constraints is None else self.constraints.to_list()
        return json.dumps({name: value for name, value in given.items() if value != getattr(Options, name)})

    @property
    def stop(self) -> Stop | None:
        """The stop rule."""
        return None if self.stop_when is None else Stop.parse(self.stop_when)

    @property
    def served(self) -> list[Subset]:
        """The subsets that a shipped campaign serves: one for everyone, and the subsets of segments."""
        return [self.shipped[-1], *(subset for _, subset in self.shipped_to)]

    def shipped_for(self, segment: str | None) -> Subset:
        """Return the subset that a shipped campaign serves to a segment."""
        return next((subset for key, subset in self.shipped_to if key == segment), self.shipped[-1])

    def settings(self, names: Roster, more: Mapping[str, Any]) -> CampaignSettings:
        """Return the options as users see them, together with settings that are stored elsewhere."""
        own = asdict(self)
        for hidden in _HIDDEN:
            del own[hidden]
        if isinstance(self.control, tuple):
            own["control"] = names.names_of(self.control)
        own["constraints"] = [] if self.constraints is None else self.constraints.to_list()
        own["costs"] = {name: cost for name, cost in (self.costs or {}).items() if name in names.number_of}
        return CampaignSettings(**own, **more)


@lru_cache(maxsize=1024)
def options_from(text: str) -> Options:
    """Return the options that `to_text` wrote."""
    given = json.loads(text)
    if isinstance(given.get("control"), list):
        given["control"] = tuple(given["control"])
    for name in ("shipped", "clipped_to", "alarms_noted"):
        if name in given:
            given[name] = tuple(map(tuple, given[name]))
    for name in ("shipped_to", "shipped_before"):
        if name in given:
            given[name] = tuple((segment, tuple(subset)) for segment, subset in given[name])
    if given.get("constraints") is not None:
        given["constraints"] = Constraints.of(given["constraints"])
    if "alarms" in given:
        given["alarms"] = tuple(given["alarms"])
    return Options(**given)


def with_options(options: Options, roster: Roster, sizes: tuple[int, int], given: Mapping[str, Any]) -> Options:
    """Return the options with what the caller gave, checked; or raise BadInput.

    `sizes` are the fewest and the most arms of a subset.
    """
    values = dict(given)
    if "control" in values:
        values["control"] = _control(values["control"], roster, *sizes)
    if "control_share" in values:
        values["control_share"] = _share(values["control_share"])
    if "sticky" in values:
        values["sticky"] = None if values["sticky"] is None else duration("sticky", values["sticky"])
    if "outside" in values and values["outside"] not in get_args(Outside):
        raise BadInput(f"outside must be one of {', '.join(get_args(Outside))}; got {shown(values['outside'])}")
    if "stop_when" in values:
        values["stop_when"] = _stop(values["stop_when"])
    for name in ("ship_when_ready", "breaker"):
        if not isinstance(values.get(name, False), bool):
            raise BadInput(f"{name} must be True or False; got {shown(values[name])}")
    unit = values.get("unit", "")
    if not (isinstance(unit, str) and len(unit) <= MAX_UNIT and (unit.isprintable() or not unit)):
        raise BadInput(f"unit must be text of at most {MAX_UNIT} characters; got {shown(unit)}")
    if "constraints" in values:
        values["constraints"] = named_rules(values["constraints"], roster)
    if "costs" in values:
        values["costs"] = named_costs(values["costs"], roster)
    new = replace(options, **values)
    if isinstance(new.control, tuple):
        check_obeys(new.constraints, roster.names_of(new.control), "the control", "Change the control or the rule")
    if new.ship_when_ready and new.stop_when is None:
        raise BadInput("ship_when_ready needs a stop rule: give stop_when, such as 'loss<0.01'")
    if new.breaker and not isinstance(new.control, tuple):
        raise BadInput("a breaker needs a control to return to: give control, a list of arms")
    return new


def _control(control: Any, roster: Roster, fewest: int, k: int) -> Subset | str | None:
    if control is None or control == UNIFORM:
        return control  # type: ignore[no-any-return]
    if isinstance(control, str) or not isinstance(control, Sequence):
        raise BadInput(f"control must be a list of {k} arms, 'uniform' or None; got {shown(control)}")
    return roster.subset_of(control, k, fewest, "the control")


def _share(share: Any) -> float:
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise BadInput(f"control_share must be a number between 0 and 1; got {shown(share)}")
    return float(share)


def duration(name: str, given: Any, *, least: float = 0.0) -> float:
    """Return a duration in seconds, above 0 and at least `least`, or raise BadInput."""
    length = given.total_seconds() if isinstance(given, timedelta) else given
    number = isinstance(length, int | float) and not isinstance(length, bool)
    if not (number and 0 < length < 1e10 and length >= least):
        raise BadInput(f"{name} must be a timedelta or a number of seconds above 0; got {shown(given)}")
    return float(length)


def _stop(stop: Any) -> str | None:
    if stop is None:
        return None
    if not isinstance(stop, str):
        raise BadInput(f"the stop rule (stop_when) must be text such as 'loss<0.01'; got {shown(stop)}")
    Stop.parse(stop)
    return stop
