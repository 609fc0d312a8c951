"""A campaign as plain values, and back. An import is checked before any of it stays."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Double, Integer, Table, func, select, text

from kofn.campaigns.change import insert_row
from kofn.campaigns.fold import Row, Transaction
from kofn.campaigns.learning import record_from, restored, served
from kofn.campaigns.names import arm_names, campaign_name
from kofn.campaigns.reports.verify import Comparison, read_log, verify
from kofn.campaigns.roster import subset_from, subset_text
from kofn.campaigns.serving import ServedPlan
from kofn.campaigns.settings import UNIFORM
from kofn.campaigns.store.database import DATABASE_ERRORS, Store
from kofn.campaigns.store.schema import CAMPAIGNS, DECISIONS, EVENTS, OF_CAMPAIGN
from kofn.campaigns.store.stamps import new_stamp
from kofn.core import BadRecord
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
        bytes.fromhex(values["secret"])
        if values["state"] not in ("running", "paused", "shipped", "stopped", "archived"):
            raise BadRecord(f"there is no state {shown(values['state'])}")
        return Row.of(values)
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
    settings = row.settings
    arm_names(roster.names_of(tuple(roster.active)))
    if sorted(set(roster.active)) != roster.active or len(roster.active) != settings.n_arms:
        raise BadRecord("active must be ascending numbers of its arms, as many as its settings say")
    for column in ("decisions", "events", "totals"):
        _check_rows(tx, column, len(roster.names))
    for served_subset in (
        *settings.shipped,
        *(subset for _, subset in (*settings.shipped_to, *settings.shipped_before)),
    ):
        _check_subset(subset_text(served_subset), len(roster.names))
    log = read_log(tx)
    found = verify(log)
    if not found.ok:
        raise BadRecord("; ".join(found.differences))
    settings._check(roster)
    policy, known = restored(*record_from(json.dumps({"record": log.record[0], "active": log.record[1]})))
    own = policy.name, policy.k, policy.direction, policy.takes_context
    if own != (settings.policy, settings.k, settings.direction, settings.takes_context):
        raise BadRecord("its policy does not match its settings")
    if type(policy).needs and not policy.takes_fewest:
        raise BadRecord(f"{policy.name} cannot run a campaign")
    if log.learned == row.step - 1:
        comparison = Comparison()
        comparison.same("reward_range", list(settings.reward_range), list(policy.reward_range))
        comparison.same("active arms", roster.active, known.active)
        if comparison.found:
            raise BadRecord("; ".join(comparison.found))
        plan = ServedPlan(
            log.learned, after=row.cut.decisions, **served(policy, known, set(), settings.control == UNIFORM)
        )
        tx.serve(plan)


def _check_rows(tx: Transaction, name: str, arms: int) -> None:
    """Check the subsets, segments and values of a table."""
    table = next(each for each in OF_CAMPAIGN if _short(each) == name)
    for row in tx.connection.execute(select(table).where(table.c.campaign == tx.row.id)).mappings():
        if "subset" in row:
            _check_subset(row["subset"], arms)
        if row.get("context") is not None:
            context_of(row["context"])
        if row.get("metadata") is not None and not isinstance(json.loads(row["metadata"]), dict):
            raise BadRecord("metadata must be a dict")
        if row.get("group", 0) not in (0, 1, 2):
            raise BadRecord("a decision has a wrong group")
        if row.get("count", 1) < 1:
            raise BadRecord("a total has no plays")


def _check_subset(text: str, arms: int) -> None:
    subset = subset_from(text)
    if subset_text(subset) != text or list(subset) != sorted(set(subset)) or not 0 <= subset[0] <= subset[-1] < arms:
        raise BadRecord(f"{text!r:.60} is not a subset of its arms")
