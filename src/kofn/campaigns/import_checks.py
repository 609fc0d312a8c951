"""What an imported campaign must fulfil: all of it may be made up.

What follows from other rows is computed from them: the plan, and what the policy knows. All else is compared with the
log as far as that is there, and has the types and limits that this kofn would give it. So an import that is accepted
fails nowhere later.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from sqlalchemy import BigInteger, Column, Double, Integer, Table, select, update

from kofn.campaigns.append import MAX_EVENTS, check_event_name, metadata_text
from kofn.campaigns.fold import Transaction, read_record, states_of
from kofn.campaigns.learning import Job, Learned, learn
from kofn.campaigns.names import arm_name, arm_names, check_key
from kofn.campaigns.progress import Progress
from kofn.campaigns.reports.verify import Comparison, Log, read_log, verify
from kofn.campaigns.roster import Roster, subset_from, subset_text
from kofn.campaigns.serving import ServedPlan
from kofn.campaigns.settings import GROUPS, OF_POLICY, UNIFORM, Settings, metric_name, policy_costs, policy_rules
from kofn.campaigns.store.schema import ARMS, DECISIONS, ESTIMATES, EVENTS, FOLDS, HISTORY, JOURNAL, STATES, TOTALS
from kofn.constraints import Constraints
from kofn.core import BadRecord, check_sizes
from kofn.core.campaign_settings import ChangedSettings
from kofn.core.checks import LARGEST_REWARD
from kofn.core.contexts import context_of, key_of
from kofn.policies.registry import restore

MAX_COUNTER = 2**59
"""Largest number of an import, so that it can grow without overflow."""

MAX_TIME = 1e11
"""Latest time of an import, in seconds since 1970: a date that a calendar can show."""

SECRET_BYTES = 16
"""Length of a secret."""

_TIMES = ("at", "due", "created", "changed", "cut", "next_due")
_DRAWN = ("salt", "call", "request", "stamp", "arms_version")
"""Columns whose numbers are drawn at random, and may be of any size."""

# Types.


def check_value(column: Column[Any], value: Any) -> Any:
    """Return a value that the column of a table can have, or raise BadRecord."""
    kind = int if isinstance(column.type, Integer | BigInteger) else float if isinstance(column.type, Double) else str
    if value is None and column.nullable:
        return None
    if kind is int and column.name in _DRAWN and type(value) is int and -(2**63) <= value < 2**63:
        return value
    if column.name == "secret" and not isinstance(value, str):
        raise BadRecord("secret cannot be what it is")
    check_type(column.name, "a secret" if column.name == "secret" else value, kind)
    _check(kind is not int or 0 <= value <= MAX_COUNTER, column.name, value)
    _check(column.name not in _TIMES or 0 <= value < MAX_TIME, column.name, value)
    return float(value) if kind is float else value


def check_type(what: str, value: Any, kind: Any) -> None:
    """Raise BadRecord unless a value is of a type, with all that is in it, and its numbers are in their limits."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any or (kind is type(None) and value is None):
        return
    if origin in (Union, UnionType):
        plain = [each for each in inner if each is not type(None)]
        if value is None and len(plain) < len(inner):
            return
        _check_one_of(what, value, plain)
    elif origin is Literal:
        _check(value in inner, what, value)
    elif kind in (int, bool):
        _check(type(value) is kind and abs(value) < 2**63, what, value)
    elif kind is float:
        _check(type(value) in (int, float) and math.isfinite(value) and abs(value) < 1e300, what, value)
    elif kind is str:
        _check(_is_text(value), what, value)
    elif origin in (list, tuple):
        _check(isinstance(value, origin), what, value)
        kinds = inner[:1] * len(value) if origin is list or inner[-1:] == (...,) else inner
        _check(len(kinds) == len(value), what, value)
        for each, its in zip(value, kinds, strict=True):
            check_type(what, each, its)
    elif origin is not None and issubclass(origin, Mapping):
        _check(isinstance(value, Mapping), what, value)
        for key, each in value.items():
            check_type(what, key, inner[0])
            check_type(f"{what}.{key!s:.60}", each, inner[1])
    else:
        _check(isinstance(value, kind), what, value)
        if is_dataclass(kind) and kind is not Constraints:  # rules are checked when they are made
            for name, its in get_type_hints(kind).items():
                check_type(f"{what}.{name}", getattr(value, name), its)


def _check(right: bool, what: str, value: Any) -> None:
    if not right:
        raise BadRecord(f"{what} cannot be {value!r:.60}")


def _is_text(value: Any) -> bool:
    """Return whether both databases can store it."""
    try:
        return isinstance(value, str) and "\0" not in value and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _check_one_of(what: str, value: Any, kinds: list[Any]) -> None:
    for kind in kinds:
        try:
            check_type(what, value, kind)
        except BadRecord:
            continue
        return
    raise BadRecord(f"{what} cannot be {value!r:.60}")


# The campaign.


def check_campaign(tx: Transaction) -> None:
    """Raise BadRecord, or another error, unless everything follows from the log. Write what does."""
    row, roster = tx.row, _roster(tx)
    settings, progress = row.settings, row.progress
    _check_settings(tx, roster)
    check_type("progress", progress, Progress)
    _check(
        row.state in ("running", "paused", "shipped", "stopped", "archived")
        and (row.state != "shipped" or bool(settings.shipped)),
        "state",
        row.state,
    )
    _check(len(bytes.fromhex(row.secret)) == SECRET_BYTES, "secret", "what it is")
    check_type("failure", row.failure or {}, dict[str, str])
    _check(row.failure is None or row.failure.keys() == {"reason", "kofn"}, "failure", row.failure)
    _check_steps(tx, roster)
    subsets = _Subsets(settings, len(roster.names))
    _check_decisions(tx, subsets)
    _check_totals(tx, subsets)
    _check_progress(tx, subsets)
    _check_reports(tx, subsets, len(roster.names))
    log = read_log(tx)
    _check_record(log.record, roster)
    _check_record(log.base, roster)
    found = verify(log)
    if not found.ok:
        raise BadRecord("; ".join(found.differences))
    learned = _learned(tx, log)
    _check_policy(learned, settings, roster)
    states = states_of(learned) if row.step > 1 else {"insight": None, "segments": None}
    tx.connection.execute(update(STATES).values(step=row.step - 1, **states))
    tx.serve(ServedPlan(row.step - 1, after=row.cut.decisions, **learned.plan))
    due = select(DECISIONS.c.due).where(DECISIONS.c.due > row.cut.time).order_by(DECISIONS.c.due).limit(1)
    row.next_due = tx.connection.execute(due).scalar()


def _rows(tx: Transaction, table: Table) -> Iterator[Mapping[Any, Any]]:
    yield from tx.connection.execute(select(table).where(table.c.campaign == tx.row.id)).mappings()


def _json(what: str, text: str, kind: Any) -> Any:
    found = json.loads(text)
    check_type(what, found, kind)
    return found


def _roster(tx: Transaction) -> Roster:
    (arms,) = _rows(tx, ARMS)
    names, active = _json("names", arms["names"], list[str]), _json("active", arms["active"], list[int])
    _check_active(active, len(names))
    roster = Roster(names, active)
    for name in names:
        arm_name(name)
    arm_names(roster.names_of(tuple(active)))
    return roster


def _check_active(active: Any, arms: int) -> None:
    check_type("active", active, list[int])
    _check(bool(active) and active == sorted(set(active)) and 0 <= active[0] <= active[-1] < arms, "active", active)


def _check_settings(tx: Transaction, roster: Roster) -> None:
    """Check the settings as `create` and `configure` do."""
    settings = tx.row.settings
    check_type("settings", settings, Settings)
    check_sizes(settings.n_arms, settings.k)
    _check(len(roster.active) == settings.n_arms, "n_arms", settings.n_arms)
    _check(1 <= settings.fewest <= settings.k, "fewest", settings.fewest)
    _check(settings.seed >= 0, "seed", settings.seed)
    settings.changed({name: getattr(settings, name) for name in ChangedSettings.__annotations__}, roster)
    _check(settings.costs_most >= 0, "costs_most", settings.costs_most)
    subsets = _Subsets(settings, len(roster.names))
    for subset in settings.shipped:
        subsets.check(subset_text(subset))
    for segment, subset in (*settings.shipped_to, *settings.shipped_before):
        subsets.check(subset_text(subset), segment)


class _Subsets:
    """Checks subsets and segments."""

    def __init__(self, settings: Settings, arms: int) -> None:
        self._settings, self._arms = settings, arms
        self._known: set[tuple[str, str | None]] = set()

    def check(self, text: str, segment: str | None = None) -> None:
        """Raise BadRecord unless this is a subset of the campaign's arms, and the key of a segment."""
        if (text, segment) in self._known:
            return
        subset, settings = subset_from(text), self._settings
        known = settings.fewest <= len(subset) <= settings.k and 0 <= subset[0] <= subset[-1] < self._arms
        if not known or subset_text(subset) != text or list(subset) != sorted(set(subset)):
            raise BadRecord(f"{text!r:.60} is not a subset of its arms")
        if segment is not None:
            _check(settings.takes_context and key_of(context_of(segment)) == segment, "a segment", segment)
        self._known.add((text, segment))

    def check_play(self, text: str, segment: str | None) -> None:
        """Raise BadRecord unless this is a subset, with a segment if there are segments."""
        _check((segment is not None) == self._settings.takes_context, "a segment", segment)
        self.check(text, segment)


# The log.


def _check_decisions(tx: Transaction, subsets: _Subsets) -> None:
    row, counted, numbers = tx.row, 0, set()
    for each in _rows(tx, DECISIONS):
        subsets.check_play(each["subset"], each["context"])
        _check(each["group"] < len(GROUPS), "group", each["group"])
        _check(each["compared"] < 2 and each["windowed"] < 2, "compared or windowed", each["compared"])
        _check(each["propensity"] is None or 0 <= each["propensity"] <= 1 + 1e-9, "propensity", each["propensity"])
        _check(0 <= each["cost"] <= LARGEST_REWARD, "cost", each["cost"])
        _check(each["at"] <= each["due"], "due", each["due"])
        _check((each["request"] is None) == (each["turn"] is None), "turn", each["turn"])
        if each["key"] is not None:
            check_key(each["key"])
        if each["metadata"] is not None:
            metadata_text(_json("metadata", each["metadata"], dict[str, Any]))
        counted += each["number"] <= row.cut.decisions
        numbers.add(each["number"])
    _check(counted == row.progress.decided - row.progress.deleted, "decided", row.progress.decided)
    events = Counter[int]()
    for each in _rows(tx, EVENTS):
        _check(each["decision"] in numbers, "the decision of an event", each["decision"])
        _check(each["kind"] < 3 and each["counts"] < 2, "kind or counts", each["kind"])
        check_event_name(each["kind"], each["name"])
        _check(abs(each["value"]) <= LARGEST_REWARD, "value", each["value"])
        events[each["decision"]] += 1
    _check(max(events.values(), default=0) <= MAX_EVENTS, "the number of events of a decision", events)


def _check_totals(tx: Transaction, subsets: _Subsets) -> None:
    for each in _rows(tx, TOTALS):
        subsets.check_play(each["subset"], each["context"])
        _check(each["count"] >= 1, "count", each["count"])
        _check(0 <= each["cost"] <= LARGEST_REWARD, "cost", each["cost"])
        if each["key"] is not None:
            check_key(each["key"])


# What follows from it.


def _check_steps(tx: Transaction, roster: Roster) -> None:
    """Check that the learning steps are consecutive from one with a record on, and that they name arms that exist."""
    row, arms = tx.row, len(roster.names)
    steps = sorted(_rows(tx, FOLDS), key=lambda each: int(each["step"]))
    numbers = [each["step"] for each in steps]
    first, end = numbers[0], row.step + (numbers[-1] == row.step)
    _check(numbers == list(range(first, first + len(numbers))) and numbers[-1] + 1 == end, "step", row.step)
    _check(steps[0]["record"] is not None and first < row.step, "the first step", first)
    (learned,) = tx.connection.execute(select(STATES.c.step)).scalars()
    _check(first <= learned < row.step, "the step of the policy", learned)
    subsets = _Subsets(row.settings, arms)
    for each in steps:
        for play, segment, count, _, squares in _json("tallies", each["tallies"], list[list[Any]]):
            check_type("tallies", (play, segment, count, squares), tuple[str, str | None, int, float])
            _check(count > 0 and squares >= 0, "tallies", count)
            subsets.check(play, segment)
        change = {} if each["change"] is None else _json("change", each["change"], dict[str, Any])
        for name in change.keys() & {"added", "retired"}:
            _check(type(change[name]) is int and 0 <= change[name] < arms, name, change[name])


def _check_record(record: tuple[Any, Any], roster: Roster) -> None:
    """Check what would take long, or much memory, to find out in another way."""
    written, active = record
    _check_active(active, len(roster.names))
    check_type("record", written, dict[str, Any])
    check_type("params", written["params"], dict[str, Any])
    _check(written["params"]["n_arms"] == len(active), "n_arms", written["params"]["n_arms"])


def _check_progress(tx: Transaction, subsets: _Subsets) -> None:
    progress = tx.row.progress
    counts = [value for value in vars(progress).values() if type(value) is int]
    counts += [*progress.in_flight.values(), *progress.played.values()]
    _check(all(-1 <= count <= MAX_COUNTER for count in counts), "a counter", counts)
    for subset, segment in progress.in_flight:
        subsets.check_play(subset, segment)
    for subset in (*progress.candidates, *filter(None, [progress.best])):
        subsets.check(subset)
    for each in progress.candidates.values():
        _check(0 <= each.at < MAX_TIME and each.place >= 1, "a candidate", each)
    for name, groups in progress.metrics.items():
        metric_name(name)
        _check(groups.keys() <= set(GROUPS), "the groups of a metric", list(groups))
    mantissa, exponent = math.frexp(progress.slot_width)
    _check(mantissa == 0.5 and -20 < exponent < 40, "slot_width", progress.slot_width)
    _check(0 <= progress.kept_at < MAX_TIME, "kept_at", progress.kept_at)


def _check_reports(tx: Transaction, subsets: _Subsets, arms: int) -> None:
    """Check the history, the estimates and the journal."""
    row, progress = tx.row, tx.row.progress
    slots = list(_rows(tx, HISTORY))
    _check(progress.slots <= len(slots), "slots", progress.slots)  # late rewards may be in slots that it does not count
    _check(max((each["slot"] for each in slots), default=-1) == progress.last_slot, "last_slot", progress.last_slot)
    _check((progress.last_slot + 1) * progress.slot_width < MAX_TIME, "last_slot", progress.last_slot)
    comparison = Comparison()
    for name, stored in (("decided", progress.plays), ("rewarded", progress.rewards), ("arrived", progress.arrived)):
        comparison.same(f"history.{name}", sum(each[name] for each in slots), stored)
    for name, earned in (("total", progress.total), ("waited", progress.waited)):
        comparison.same(f"history.{name}", sum(each[name] for each in slots), earned)
    if comparison.found:
        raise BadRecord("; ".join(comparison.found))
    for each in _rows(tx, ESTIMATES):
        _check(each["step"] <= row.step, "the step of an estimate", each["step"])
        subsets.check(each["best"])
        if each["effects"]:
            effects = _json("effects", each["effects"], dict[str, float])
            _check(all(arm.isdecimal() and int(arm) < arms for arm in effects), "effects", list(effects))
    for each in _rows(tx, JOURNAL):
        _check(1 <= each["number"] <= row.journal, "the number of an event", each["number"])


# The policy.


def _learned(tx: Transaction, log: Log) -> Learned:
    """Return what the policy has learned, after the steps that it has still to learn."""
    record, active, before = read_record(tx.connection, tx.row.id, log.record, log.learned)
    steps = before + [each for each in log.steps if log.learned < each.step < tx.row.step]
    return learn(Job(record, active, steps, dict(tx.row.progress.in_flight), tx.row.settings.control == UNIFORM))


def _check_policy(learned: Learned, settings: Settings, roster: Roster) -> None:
    """Check that the policy is the one of the settings."""
    policy, params, comparison = restore(learned.record), learned.record["params"], Comparison()
    comparison.same("policy", settings.policy, policy.name)
    comparison.same("active arms", roster.active, learned.active)
    comparison.same("fewest", settings.fewest, policy.fewest)
    comparison.same("takes_context", settings.takes_context, policy.takes_context)
    comparison.same("learns_from_all", settings.learns_from_all, policy.accepts_unplanned)
    expected: dict[str, Any] = {name: getattr(settings, name) for name in ("k", "direction", *OF_POLICY, "attributes")}
    expected["reward_range"] = list(settings.reward_range)
    expected["constraints"] = policy_rules(settings.constraints, roster, settings)
    expected["costs"] = policy_costs(settings.costs, roster)
    for name, value in expected.items():
        comparison.same(name, value, json.loads(json.dumps(params.get(name))))
    if comparison.found:
        raise BadRecord("its policy does not match its settings: " + "; ".join(comparison.found))
    if type(policy).needs:
        raise BadRecord(f"{policy.name} cannot run a campaign")
