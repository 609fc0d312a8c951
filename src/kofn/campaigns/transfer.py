"""A campaign as plain values, and back. An import is checked before any of it is written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import BigInteger, Column, Double, Integer, Table, select

from kofn.campaigns.create import check_free
from kofn.campaigns.migrations import RENAMED_COLUMNS_3, RENAMED_TABLES_3, upgraded_record
from kofn.campaigns.names import campaign_name
from kofn.campaigns.rows import CampaignRow, insert_row
from kofn.campaigns.schema import OF_CAMPAIGN, ROSTERS, STATES
from kofn.campaigns.transaction import Transaction
from kofn.campaigns.validate_import import validate
from kofn.core import BadInput, BadRecord

FORMAT = 2
"""The version of an export. Raise it when an older kofn cannot read a newer export, and upgrade older ones below."""

Rows = dict[str, list[dict[str, Any]]]


def export(tx: Transaction) -> dict[str, Any]:
    """Return the campaign's row, and the rows of each table as lists with their columns."""
    tables: dict[str, dict[str, list[Any]]] = {}
    for table in OF_CAMPAIGN:
        columns = _columns(table)
        chosen = select(*columns).where(table.c.campaign == tx.id)
        ordered = chosen.order_by(*(column for column in table.primary_key if column.name != "campaign"))
        names = [column.name for column in columns]
        tables[_short(table.name)] = {"columns": names, "rows": [list(row) for row in tx.execute(ordered)]}
    settings = {name: value for name, value in asdict(tx.row).items() if name != "id"}
    roster, state = (tables.pop(_short(table.name)) for table in (ROSTERS, STATES))
    names = roster["columns"] + state["columns"]
    plain = {name: json.loads(text) for name, text in zip(names, roster["rows"][0] + state["rows"][0], strict=True)}
    return {"kofn": "campaign", "format": FORMAT, "name": tx.row.name, "campaign": settings, **plain, "tables": tables}


def read_export(exported: Mapping[str, Any], name: str | None) -> tuple[CampaignRow, Callable[[Transaction], None]]:
    """Return the row of an exported campaign, and a function that writes it all; or raise BadRecord."""
    if not isinstance(exported, Mapping) or exported.get("kofn") != "campaign":
        raise BadRecord("this is not an exported campaign: pass what Campaign.export() returned")
    if type(exported.get("format")) is not int or exported["format"] not in (1, FORMAT):
        raise BadRecord(
            f"this export has format {exported.get('format')!r}; this kofn reads the formats 1 and {FORMAT}"
        )
    try:
        if exported["format"] == 1:
            exported = _from_format_1(exported)
        campaign = _campaign(exported["campaign"])
        campaign.name = campaign_name(campaign.name if name is None else name)
        tables = exported["tables"]
        rows = {_short(table.name): _rows(table, tables[_short(table.name)]) for table in OF_CAMPAIGN[2:]}
        for table in (ROSTERS, STATES):
            texts = {column.name: json.dumps(exported[column.name], allow_nan=False) for column in _columns(table)}
            rows[_short(table.name)] = [texts]
        validate(campaign, exported, rows)
    except KeyError as why:
        raise BadRecord(f"this export is not valid: {why.args[0]!r} is missing") from why
    except (BadInput, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as why:
        raise BadRecord(f"this export is not valid: {why}") from why
    return campaign, lambda tx: _insert(tx, rows)


def _from_format_1(exported: Mapping[str, Any]) -> dict[str, Any]:
    """Return an export of format 1 as format 2: the renaming of version 3 of the store, and upgraded records."""
    settings = RENAMED_COLUMNS_3["kofn_campaigns"]
    tables = {}
    for short, table in exported["tables"].items():
        renamed = RENAMED_COLUMNS_3.get(f"kofn_{short}", {})
        columns = [renamed.get(column, column) for column in table["columns"]]
        name = _short(RENAMED_TABLES_3.get(f"kofn_{short}", f"kofn_{short}"))
        tables[name] = {"columns": columns, "rows": table["rows"]}
    return {
        **exported,
        "format": 2,
        "campaign": {settings.get(name, name): value for name, value in exported["campaign"].items()},
        "origin": upgraded_record(exported["origin"]),
        "record": upgraded_record(exported["record"]),
        "tables": tables,
    }


def _insert(tx: Transaction, rows: Rows) -> None:
    check_free(tx.connection, tx.row.name)
    insert_row(tx.connection, tx.row)
    for table in OF_CAMPAIGN:
        if theirs := rows[_short(table.name)]:
            tx.execute(table.insert(), [row | {"campaign": tx.id} for row in theirs])


def _columns(table: Table) -> list[Column[Any]]:
    return [column for column in table.columns if column.name != "campaign"]


def _short(table: str) -> str:
    return table.removeprefix("kofn_")


def _campaign(settings: Mapping[str, Any]) -> CampaignRow:
    values: dict[str, Any] = {"id": 0}
    for each in fields(CampaignRow)[1:]:
        kind = {"int": int, "float": float, "str": str}.get(str(each.type).removesuffix(" | None"))
        assert kind is not None
        values[each.name] = _value(each.name, settings[each.name], kind, nullable="None" in str(each.type))
    bytes.fromhex(values["secret"])
    return CampaignRow(**values)


def _rows(table: Table, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    columns = _columns(table)
    names = [column.name for column in columns]
    if given["columns"] != names:
        raise BadRecord(f"{_short(table.name)} must have the columns {', '.join(names)}")
    kinds = [(column.name, _kind(column), bool(column.nullable)) for column in columns]
    return [
        {
            name: _value(name, value, kind, nullable=nullable)
            for (name, kind, nullable), value in zip(kinds, row, strict=True)
        }
        for row in given["rows"]
    ]


def _kind(column: Column[Any]) -> type[int] | type[float] | type[str]:
    if isinstance(column.type, Integer | BigInteger):
        return int
    return float if isinstance(column.type, Double) else str


def _value(name: str, value: Any, kind: type, *, nullable: bool) -> Any:
    """Return a value that the store can hold, or raise BadRecord."""
    if value is None and nullable:
        return None
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind is int and type(value) is int and -(2**63) <= value < 2**63:
        return value
    if kind is str and isinstance(value, str) and (value.isprintable() or not value):
        return value
    raise BadRecord(f"{name} cannot be {value!r:.60}")
