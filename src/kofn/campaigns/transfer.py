"""A campaign as plain values, and back. An import is checked before any of it stays."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Mapping
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Double, Integer, Table, func, select, text

from kofn.campaigns.append import metadata_text
from kofn.campaigns.change import insert_row
from kofn.campaigns.fold import MAX_ESTIMATES, MAX_JOURNAL, MAX_POINTS, Row, Transaction
from kofn.campaigns.learning import changed, restored, served
from kofn.campaigns.names import arm_name, arm_names, campaign_name
from kofn.campaigns.progress import Progress
from kofn.campaigns.reports import report
from kofn.campaigns.reports.verify import Comparison, read_log, verify
from kofn.campaigns.reports.view import View
from kofn.campaigns.roster import Roster, subset_from, subset_text
from kofn.campaigns.serving import ServedPlan
from kofn.campaigns.settings import UNIFORM, Settings, policy_costs, policy_rules
from kofn.campaigns.store.database import DATABASE_ERRORS, Store
from kofn.campaigns.store.schema import CAMPAIGNS, DECISIONS, EVENTS, OF_CAMPAIGN, TOTALS
from kofn.campaigns.store.stamps import new_stamp
from kofn.core import BadRecord, Policy
from kofn.core.campaign_settings import ChangedSettings
from kofn.core.checks import shown
from kofn.core.contexts import context_of

FORMAT = 1
"""The version of an export. Raise it when an older kofn cannot read a newer export."""

KIND = "exported campaign"
"""What an export is, as its key `kofn` says."""

MAX_COUNTER = 2**59
"""Largest number of an import, so that it can grow without overflow."""

MAX_REASON = 300
"""Longest reason why an import is refused, in characters. It may repeat a part of the import."""

MAX_TIME = 1e11
"""Latest time of an import, in seconds since 1970: a date that a calendar can show."""

_SECRET = re.compile(r"[0-9a-f]{32}")

_LOCAL = ("id", "stamp", "made_by", "notified")
"""Columns of a campaign that belong to its store, and are not exported."""


def export(connection: Connection, row: Row, *, with_secret: bool) -> dict[str, Any]:
    """Return the campaign's row, and the rows of each table as lists with their columns."""
    tables: dict[str, dict[str, list[Any]]] = {}
    for table in OF_CAMPAIGN:
        columns = _columns(table)
        chosen = select(*columns).where(table.c.campaign == row.id)
        ordered = chosen.order_by(*(column for column in table.primary_key if column.name != "campaign"))
        names = [column.name for column in columns]
        tables[_short(table)] = {"columns": names, "rows": [list(each) for each in connection.execute(ordered)]}
    hidden = _LOCAL if with_secret else (*_LOCAL, "secret")
    own = connection.execute(select(CAMPAIGNS).where(CAMPAIGNS.c.id == row.id)).mappings().one()
    campaign = {name: value for name, value in own.items() if name not in hidden}
    return {"kofn": KIND, "format": FORMAT, "name": row.name, "campaign": campaign, "tables": tables}


def import_(store: Store, exported: Mapping[str, Any], name: str | None) -> Row:
    """Create the campaign of an export; or raise BadRecord, and create nothing."""
    _check_format(exported)

    def work(connection: Connection) -> Row:
        row = _row(exported["campaign"], name)
        insert_row(connection, row)  # CampaignExists is no fault of the export
        try:
            _insert(connection, row, exported)
            tx = Transaction.open(store, connection, row.id)
            _check(tx)
            _reserve(connection, tx.row)
            tx.note("imported", f"{row.settings.n_arms} arms, {row.settings.k} places, {row.settings.policy}")
            tx.write()
        except Exception as why:  # nothing but the export is read here
            if _is_of_store(why):
                raise
            raise _Refused(why) from why
        return row

    try:
        return store.transact(work)
    except KeyError as why:
        raise BadRecord(f"this export is not valid: {why.args[0]!r} is missing") from why
    except _Refused as why:
        reason = why.args[0]
        said = f"{reason.args[0]!r} is missing" if isinstance(reason, KeyError) else str(reason)
        raise BadRecord(f"this export is not valid: {said[:MAX_REASON]}") from why


class _Refused(Exception):
    """An export that is not valid."""


def _is_of_store(why: Exception) -> bool:
    """Return whether the database has failed, and not the export: that breaks rules of the tables at most."""
    kinds = {kind.__name__ for kind in type(getattr(why, "orig", None) or why).__mro__}
    return isinstance(why, tuple(DATABASE_ERRORS)) and not kinds & {"IntegrityError", "DataError"}


def _check_format(exported: Any) -> None:
    """Raise BadRecord unless this is an export of the present format."""
    if not isinstance(exported, Mapping) or exported.get("kofn") != KIND:
        raise BadRecord("this is not an exported campaign: pass what Campaign.export() returned")
    written = exported.get("format")
    if type(written) is not int or written != FORMAT:
        raise BadRecord(
            f"this export has format {shown(written)}, and this kofn reads format {FORMAT}: import it with the kofn "
            "that made it, or create a new campaign"
        )


def _columns(table: Table) -> list[Column[Any]]:
    return [column for column in table.columns if column.name != "campaign"]


def _short(table: Table) -> str:
    return table.name.removeprefix("kofn_")


def _row(given: Mapping[str, Any], name: str | None) -> Row:
    """Return the row of an exported campaign. Without its secret it gets a new one."""
    try:
        known = {"secret": secrets.token_hex(16), **given, "id": 0, "stamp": new_stamp(), "made_by": "", "notified": 0}
        values = {each.name: _value(each, known[each.name]) for each in CAMPAIGNS.columns}
        values["name"] = campaign_name(values["name"] if name is None else name)
        if not _SECRET.fullmatch(values["secret"]):
            raise BadRecord("its secret is not one of kofn")
        if values["state"] not in ("running", "paused", "shipped", "stopped", "archived"):
            raise BadRecord(f"there is no state {shown(values['state'])}")
        row = Row.of(values)
        for each in CAMPAIGNS.columns:
            _value(each, row.values()[each.name])
        return row
    except KeyError:
        raise
    except Exception as why:
        raise BadRecord(f"this export is not valid: {str(why)[:MAX_REASON]}") from why


def _value(column: Column[Any], value: Any) -> Any:
    """Return a value that the store can hold, or raise BadRecord."""
    kind = int if isinstance(column.type, Integer | BigInteger) else float if isinstance(column.type, Double) else str
    if value is None and column.nullable:
        return None
    if kind is float and type(value) in (int, float) and math.isfinite(value) and abs(value) < 1e300:
        if column.name in ("at", "due", "created", "changed", "cut", "next_due") and not 0 <= value < MAX_TIME:
            raise BadRecord(f"{column.name} must be a time; got {value!r:.60}")
        return float(value)
    if kind is int and type(value) is int and -(2**63) <= value < 2**63:
        counts = column.name not in ("salt", "call", "request", "stamp", "arms_version")
        if counts and not -1 <= value <= MAX_COUNTER:
            raise BadRecord(f"{column.name} cannot be {value!r:.60}")
        return value
    if kind is str and isinstance(value, str) and "\0" not in value:
        value.encode()
        return value
    raise BadRecord(f"{column.name} cannot be {'what it is' if column.name == 'secret' else f'{value!r:.60}'}")


def _insert(connection: Connection, row: Row, exported: Mapping[str, Any]) -> None:
    """Write the rows of all tables."""
    for table in OF_CAMPAIGN:
        given, columns = exported["tables"][_short(table)], _columns(table)
        names = [column.name for column in columns]
        if given["columns"] != names:
            raise BadRecord(f"{_short(table)} must have the columns {', '.join(names)}")
        rows = [
            {column.name: _value(column, value) for column, value in zip(columns, each, strict=True)}
            for each in given["rows"]
        ]
        if rows:
            connection.execute(table.insert(), [each | {"campaign": row.id} for each in rows])


def _reserve(connection: Connection, row: Row) -> None:
    """Let new numbers be higher than those of the import: PostgreSQL has one sequence for all campaigns."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE kofn_schema IN EXCLUSIVE MODE"))  # one import at a time
        last = max(row.cut.decisions, row.cut.events)
        for column in (DECISIONS.c, EVENTS.c):
            highest = select(func.max(column.number)).where(column.campaign == row.id)
            last = max(last, connection.execute(highest).scalar() or 0)
        if last > connection.execute(text("SELECT nextval('kofn_numbers')")).scalar_one():
            connection.execute(text("SELECT setval('kofn_numbers', :last)"), {"last": last})


def _check(tx: Transaction) -> None:
    """Raise BadRecord unless everything follows from the log; make the plan again from the policy."""
    row, roster = tx.row, tx.roster()
    settings, numbers = row.settings, list(range(len(roster.names)))
    for name in roster.names if isinstance(roster.names, list) else [roster.names, ""]:
        arm_name(name)
    arm_names(roster.names_of(tuple(roster.active)))
    ascending = [each for each in numbers if each in set(roster.active)]
    if ascending != roster.active or any(isinstance(each, bool) for each in roster.active):
        raise BadRecord("active must be ascending numbers of its arms")
    shipped = [*settings.shipped, *(subset for _, subset in (*settings.shipped_to, *settings.shipped_before))]
    for subset in shipped:
        _check_subset(subset_text(subset), numbers, settings)
        if not all(type(arm) is int for arm in subset):
            raise BadRecord("shipped must be numbers of its arms")
    for key, _ in (*settings.shipped_to, *settings.shipped_before):
        context_of(key)
    if row.state == "shipped" and not set().union(*settings.served) <= set(roster.active):
        raise BadRecord("it has shipped an arm that is retired")
    if row.failure is not None and not {"reason", "kofn"} <= row.failure.keys():
        raise BadRecord("its failure has no reason")
    _check_progress(row.progress, numbers, settings)
    for table in (DECISIONS, EVENTS, TOTALS):
        _check_rows(tx, table, numbers)
    log = read_log(tx)
    found = verify(log)
    if not found.ok or log.learned >= row.step:
        raise BadRecord("; ".join(found.differences) or "its policy has learned a step that is not there")
    policy, known = restored(*log.record)
    for step in log.steps:
        if step.step > log.learned and step.change is not None:
            policy, known = changed(policy, known, step.change)
    _check_settings(settings, roster, policy, known)
    tx.serve(ServedPlan(log.learned, after=row.cut.decisions, **served(policy, known, (), settings.control == UNIFORM)))
    view = View(tx.store, tx.connection, row.id)  # all reports can be made
    reports = [report.insight(view), *report.history(view, MAX_POINTS), *report.journal(view, MAX_JOURNAL)]
    reports += [*report.estimates(view, MAX_ESTIMATES, roster.names)]
    reports += [report.segments(view)] if settings.takes_context else []
    json.dumps([each.to_dict() for each in reports], allow_nan=False)


def _check_progress(progress: Progress, numbers: list[int], settings: Settings) -> None:
    """Raise BadRecord unless folds can go on from these counters."""
    counters = [each for each in vars(Progress()).items() if isinstance(each[1], int | float)]
    values = [*(each.values() for each in (progress.played, progress.in_flight, progress.alarms_noted))]
    for name, default in counters:
        value = getattr(progress, name)
        if type(value) not in (type(default), int) or not (value >= 0 or name in ("total", "last_slot")):
            raise BadRecord(f"{name} cannot be {value!r:.60}")
    if not all(type(value) in (int, float) and value >= 0 for some in values for value in some):
        raise BadRecord("its counters must be numbers of at least 0")
    candidates = progress.candidates.items()
    for subset in (*(play[0] for play in progress.in_flight), *(each for each, _ in candidates), progress.best):
        if subset or progress.candidates:
            _check_subset(subset, numbers, settings)
    if not progress.played.keys() <= set(numbers) or not progress.slot_width > 0:
        raise BadRecord("it has plays of other arms, or no history")
    if any(type(each) is not int or each < 1 for _, one in candidates for each in (one.place, one.step + 1)):
        raise BadRecord("its best subsets must have numbers")
    if (look := progress.look) is not None:
        numbers_of_look = [each for each in (look.plays, look.bound, look.since) if each is not None]
        if not all(type(each) in (int, float) for each in numbers_of_look) or look.plays is None:
            raise BadRecord("the plays of its last look must be numbers")


def _check_settings(settings: Settings, roster: Roster, policy: Policy, known: Roster) -> None:
    """Raise BadRecord unless the settings are valid, and those of the policy."""
    given = {name: getattr(settings, name) for name in ChangedSettings.__annotations__}
    if settings.changed(given, roster).to_text() != settings.to_text():
        raise BadRecord("its settings are not as kofn writes them")
    own = policy.params
    of_policy = {
        "policy": policy.name,
        "n_arms": policy.n_arms,
        "k": policy.k,
        "fewest": policy.fewest,
        "direction": policy.direction,
        "reward_range": policy.reward_range,
        "takes_context": policy.takes_context,
        "learns_from_all": policy.accepts_unplanned,
        **{name: own.get(name) for name in ("attributes", "half_life", "guarantee")},
    }
    if type(settings.seed) is not int or not 0 <= settings.seed < 2**62:
        raise BadRecord(f"seed cannot be {settings.seed!r:.60}")
    comparison = Comparison()
    for name, value in of_policy.items():
        comparison.same(name, getattr(settings, name), value)
    comparison.same("active arms", roster.active, known.active)
    comparison.same("constraints", policy_rules(settings.constraints, roster, settings), own.get("constraints"))
    comparison.same("costs", policy_costs(settings.costs, roster), own.get("costs"))
    if comparison.found:
        raise BadRecord("; ".join(comparison.differences()))
    if type(policy).needs and not policy.takes_fewest:
        raise BadRecord(f"{policy.name} cannot run a campaign")


def _check_rows(tx: Transaction, table: Table, numbers: list[int]) -> None:
    """Check the subsets, segments and values of a table."""
    settings = tx.row.settings
    for row in tx.connection.execute(select(table).where(table.c.campaign == tx.row.id)).mappings():
        if "subset" in row:
            _check_subset(row["subset"], numbers, settings)
        if row.get("context") is not None:
            context_of(row["context"])
            if not settings.takes_context:
                raise BadRecord(f"{settings.policy} does not take a context")
        if row.get("metadata") is not None and metadata_text(json.loads(row["metadata"])) is None:
            raise BadRecord("metadata must be a dict")
        if row.get("group", 0) not in (0, 1, 2) or row.get("kind", 0) not in (0, 1, 2):
            raise BadRecord("a decision has a wrong group, or an event a wrong kind")
        if row.get("count", 1) < 1:
            raise BadRecord("a total has no plays")


def _check_subset(text: str, numbers: list[int], settings: Settings) -> None:
    subset = subset_from(text)
    own = subset_text(subset) == text and [each for each in numbers if each in set(subset)] == list(subset)
    if not own or not settings.fewest <= len(subset) <= settings.k:
        raise BadRecord(f"{text!r:.60} is not a subset of its arms")
