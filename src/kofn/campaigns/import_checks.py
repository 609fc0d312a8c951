"""What an imported campaign must fulfil: all of it may be made up.

What follows from other rows is computed from them: the plan, and what the policy knows. The policy and the counters
must follow from the learning steps and the log (`verify`). Everything else has the types and limits that this kofn
would give it, and is tried: all reports are made of it. So an import that is accepted fails nowhere later.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from sqlalchemy import BigInteger, Column, Double, Integer, Table, exists, func, select, update

from kofn.campaigns.fold import MAX_ESTIMATES, MAX_JOURNAL, MAX_POINTS, Transaction, read_record, states_of
from kofn.campaigns.learning import Job, Learned, learn
from kofn.campaigns.names import arm_name, arm_names
from kofn.campaigns.progress import Progress
from kofn.campaigns.reports import report
from kofn.campaigns.reports.decisions import logged_decisions
from kofn.campaigns.reports.verify import Comparison, Log, read_log, verify
from kofn.campaigns.reports.view import View
from kofn.campaigns.roster import Roster, subset_from, subset_text
from kofn.campaigns.serving import SERVING, ServedPlan
from kofn.campaigns.settings import OF_POLICY, UNIFORM, Settings, policy_costs, policy_rules
from kofn.campaigns.store.database import Store
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

STATES_OF_LIFE = ("running", "paused", "shipped", "stopped", "archived")

LIMITS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("compared", "windowed", "counts"), (0, 1)),
    **dict.fromkeys(("group", "kind"), (0, 2)),
    **dict.fromkeys(("at", "due", "created", "changed", "cut", "next_due"), (0, MAX_TIME)),
    **dict.fromkeys(("salt", "call", "request", "stamp", "arms_version"), (-(2**63), 2**63 - 1)),  # drawn at random
    "propensity": (0, 1 + 1e-9),
    "cost": (0, LARGEST_REWARD),
    "value": (-LARGEST_REWARD, LARGEST_REWARD),
    "count": (1, MAX_COUNTER),
}
"""Least and largest value of columns; others have whole numbers up to MAX_COUNTER, or any number."""

# Types.


def check_value(column: Column[Any], value: Any) -> Any:
    """Return a value that the column of a table can have, or raise BadRecord."""
    kind = int if isinstance(column.type, Integer | BigInteger) else float if isinstance(column.type, Double) else str
    if value is None and column.nullable:
        return None
    if column.name == "secret" and not isinstance(value, str):
        raise BadRecord("secret cannot be what it is")
    check_type(column.name, "a secret" if column.name == "secret" else value, kind)
    if kind is str:
        return value
    low, high = LIMITS.get(column.name, (0, MAX_COUNTER) if kind is int else (-math.inf, math.inf))
    _check(low <= value <= high, column.name, value)
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
    _check(row.state in STATES_OF_LIFE and (row.state != "shipped" or bool(settings.shipped)), "state", row.state)
    _check(len(bytes.fromhex(row.secret)) == SECRET_BYTES, "secret", "what it is")
    check_type("failure", row.failure or {}, dict[str, str])
    _check(row.failure is None or row.failure.keys() == {"reason", "kofn"}, "failure", row.failure)
    _check_steps(tx, roster)
    _check_log(tx, len(roster.names))
    _check_progress(progress)
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
    progress.slots, last = tx.connection.execute(select(func.count(), func.max(HISTORY.c.slot))).one()
    progress.last_slot = -1 if last is None else last
    row.journal = max(row.journal, tx.connection.execute(select(func.max(JOURNAL.c.number))).scalar() or 0)


def try_campaign(store: Store, campaign: int) -> None:
    """Make all reports about a campaign, and draw a decision; or raise an error."""

    @contextmanager
    def read() -> Iterator[View]:
        with store.read() as connection:
            yield View(store, connection, campaign)

    with read() as view:
        found: list[Any] = [report.insight(view), *report.history(view, MAX_POINTS), *report.open_decisions(view, 100)]
        found += [*report.journal(view, 2 * MAX_JOURNAL), *report.estimates(view, MAX_ESTIMATES, view.roster.names)]
        found += [report.segments(view)] if view.settings.takes_context else []
        state = view.row.state
    for each in (*found, *logged_decisions(read)):
        json.dumps(each.to_dict(), allow_nan=False)
    if state in SERVING:
        serving = store.serving(campaign)
        serving.draw(2, None, serving.segment_of(None))


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
    settings, arms = tx.row.settings, len(roster.names)
    check_type("settings", settings, Settings)
    check_sizes(settings.n_arms, settings.k)
    _check(len(roster.active) == settings.n_arms, "n_arms", settings.n_arms)
    _check(1 <= settings.fewest <= settings.k, "fewest", settings.fewest)
    _check(settings.seed >= 0, "seed", settings.seed)
    settings.changed({name: getattr(settings, name) for name in ChangedSettings.__annotations__}, roster)
    _check(settings.costs_most >= 0, "costs_most", settings.costs_most)
    for subset in settings.shipped:
        _check_subset(settings, arms, subset_text(subset))
    for segment, subset in (*settings.shipped_to, *settings.shipped_before):
        _check_subset(settings, arms, subset_text(subset), segment)


def _check_subset(settings: Settings, arms: int, text: str, segment: str | None = None) -> None:
    """Raise BadRecord unless this is a subset of the campaign's arms, and the key of a segment."""
    subset = subset_from(text)
    known = settings.fewest <= len(subset) <= settings.k and 0 <= subset[0] <= subset[-1] < arms
    if not known or subset_text(subset) != text or list(subset) != sorted(set(subset)):
        raise BadRecord(f"{text!r:.60} is not a subset of its arms")
    if segment is not None:
        _check(settings.takes_context and key_of(context_of(segment)) == segment, "a segment", segment)


def _check_log(tx: Transaction, arms: int) -> None:
    """Check what folds and calls with keys need of decisions, events and totals."""
    row, connection = tx.row, tx.connection
    for table in (DECISIONS, TOTALS):
        plays = select(table.c.subset, table.c.context).where(table.c.campaign == row.id).distinct()
        for subset, segment in connection.execute(plays):
            _check((segment is not None) == row.settings.takes_context, "a segment", segment)
            _check_subset(row.settings, arms, subset, segment)
    made = DECISIONS.c
    without_turn = select(made.number).where(made.request.is_(None) != made.turn.is_(None))
    of_nothing = select(EVENTS.c.decision).where(~exists().where(made.number == EVENTS.c.decision))
    for what, wrong in {"turn": without_turn, "the decision of an event": of_nothing}.items():
        number = connection.execute(wrong.limit(1)).scalar()
        _check(number is None, what, number)
    counted = connection.execute(select(func.count()).where(made.number <= row.cut.decisions)).scalar()
    _check(counted == row.progress.decided - row.progress.deleted, "decided", row.progress.decided)
    last = connection.execute(select(func.max(ESTIMATES.c.step))).scalar() or 0
    _check(last <= row.step, "the step of an estimate", last)


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
    plays = set[tuple[str, str | None]]()
    for each in steps:
        for play, segment, count, _, squares in _json("tallies", each["tallies"], list[list[Any]]):
            check_type("tallies", (play, segment, count, squares), tuple[str, str | None, int, float])
            _check(count > 0 and squares >= 0, "tallies", count)
            plays.add((play, segment))
        change = {} if each["change"] is None else _json("change", each["change"], dict[str, Any])
        for name in change.keys() & {"added", "retired"}:
            _check(type(change[name]) is int and 0 <= change[name] < arms, name, change[name])
    for play, segment in plays:
        _check_subset(row.settings, arms, play, segment)


def _check_record(record: tuple[Any, Any], roster: Roster) -> None:
    """Check what would take long, or much memory, to find out in another way."""
    written, active = record
    _check_active(active, len(roster.names))
    check_type("record", written, dict[str, Any])
    check_type("params", written["params"], dict[str, Any])
    _check(written["params"]["n_arms"] == len(active), "n_arms", written["params"]["n_arms"])


def _check_progress(progress: Progress) -> None:
    check_type("progress", progress, Progress)
    counts = [value for value in vars(progress).values() if type(value) is int]
    counts += [*progress.in_flight.values(), *progress.played.values()]
    _check(all(-1 <= count <= MAX_COUNTER for count in counts), "a counter", counts)
    mantissa, exponent = math.frexp(progress.slot_width)
    _check(mantissa == 0.5 and -20 < exponent < 40, "slot_width", progress.slot_width)


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
