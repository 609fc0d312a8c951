"""A campaign as plain values, and back. An import is checked in a store of its own before any of it is written."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Column, Connection, Table, func, select, text

from kofn.campaigns.change import insert_row
from kofn.campaigns.fold import Row, Transaction
from kofn.campaigns.import_checks import check_campaign, check_value, try_campaign
from kofn.campaigns.names import campaign_name
from kofn.campaigns.store.database import Store
from kofn.campaigns.store.schema import CAMPAIGNS, DECISIONS, EVENTS, OF_CAMPAIGN
from kofn.campaigns.store.stamps import new_stamp
from kofn.core import BadRecord, CampaignExists
from kofn.core.checks import shown

FORMAT = 1
"""The version of an export. Raise it when an older kofn cannot read a newer export."""

KIND = "exported campaign"
"""What an export is, as its key `kofn` says."""

MAX_REASON = 300
"""Longest reason why an import is refused, in characters. It may repeat a part of the import."""

_LOCAL = ("id", "stamp", "made_by", "notified")
"""Columns of a campaign that belong to its store, and are not exported."""

Tables = list[tuple[Table, list[dict[str, Any]]]]


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
    row, tables = _checked(store, exported, name)

    def work(connection: Connection) -> Row:
        insert_row(connection, row)
        for table, rows in tables:
            if rows:
                connection.execute(table.insert(), [{**each, "campaign": row.id} for each in rows])
        _reserve(connection, row)
        return row

    return store.transact(work)


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


def _checked(store: Store, exported: Mapping[str, Any], name: str | None) -> tuple[Row, Tables]:
    """Return the campaign's row and the rows of its tables, checked; or raise BadRecord.

    That may take long, so it happens in a temporary store, where nobody waits for it.
    """
    with TemporaryDirectory(prefix="kofn-import-") as folder:
        scratch = Store(f"sqlite:///{Path(folder).as_posix()}/import.db?synchronous=normal")
        scratch.clock = store.clock

        def work(connection: Connection) -> tuple[Row, Tables]:
            row = _row(exported["campaign"], name)
            insert_row(connection, row)
            for table, rows in _tables(exported["tables"]):
                if rows:
                    connection.execute(table.insert(), [{**each, "campaign": row.id} for each in rows])
            tx = Transaction.open(scratch, connection, row.id)
            check_campaign(tx)
            tx.note("imported", f"{row.settings.n_arms} arms, {row.settings.k} places, {row.settings.policy}")
            tx.write()
            written = export(connection, tx.row, with_secret=True)["tables"]
            return tx.row, _tables(written)

        try:
            checked = scratch.transact(work)
            try_campaign(scratch, checked[0].id)
            return checked
        except Exception as why:
            if isinstance(why, CampaignExists) or _is_full(why):
                raise
            raise BadRecord(f"this export is not valid: {_reason(why)[:MAX_REASON]}") from why
        finally:
            scratch.close()


def _reason(why: Exception) -> str:
    if isinstance(why, KeyError):
        return f"{why.args[0]!r} is missing"
    of_database = getattr(why.__cause__, "orig", None)
    return f"its rows contradict each other: {of_database}" if of_database is not None else str(why)


def _is_full(why: Exception) -> bool:
    """Return whether the temporary store has failed, and not the export: that breaks rules of the tables at most."""
    of_database = getattr(why.__cause__, "orig", None)
    return of_database is not None and not isinstance(of_database, sqlite3.IntegrityError)


def _columns(table: Table) -> list[Column[Any]]:
    return [column for column in table.columns if column.name != "campaign"]


def _short(table: Table) -> str:
    return table.name.removeprefix("kofn_")


def _row(given: Mapping[str, Any], name: str | None) -> Row:
    """Return the row of an exported campaign. Without its secret it gets a new one."""
    known = {"secret": secrets.token_hex(16), **given, "id": 0, "stamp": new_stamp(), "made_by": "", "notified": 0}
    values = {each.name: check_value(each, known[each.name]) for each in CAMPAIGNS.columns}
    values["name"] = campaign_name(values["name"] if name is None else name)
    return Row.of(values)


def _tables(given: Mapping[str, Any]) -> Tables:
    """Return the rows of all tables, each value of its column's type."""
    found = []
    for table in OF_CAMPAIGN:
        columns, rows = _columns(table), given[_short(table)]
        names = [column.name for column in columns]
        if rows["columns"] != names:
            raise BadRecord(f"{_short(table)} must have the columns {', '.join(names)}")
        pairs = (zip(columns, each, strict=True) for each in rows["rows"])
        found.append((table, [{column.name: check_value(column, value) for column, value in each} for each in pairs]))
    return found


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
