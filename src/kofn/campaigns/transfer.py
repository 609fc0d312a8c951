"""A campaign as plain values, and back. What comes in is checked before any of it is written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Double, Integer, Table, select

from kofn.campaigns.creating import check_free
from kofn.campaigns.head import Head, insert_head
from kofn.campaigns.names import campaign_name
from kofn.campaigns.schema import OF_CAMPAIGN, ROSTERS, STATES
from kofn.campaigns.sound import check_sound
from kofn.core import BadInput, BadRecord

FORMAT = 1
"""The version of an export; it changes when an older kofn could not read a newer one."""

Rows = dict[str, list[dict[str, Any]]]


def export(connection: Connection, head: Head) -> dict[str, Any]:
    """The campaign's row, and the rows of each table as lists under their columns."""
    tables: dict[str, dict[str, list[Any]]] = {}
    for table in OF_CAMPAIGN:
        columns = _columns(table)
        chosen = select(*columns).where(table.c.campaign == head.id)
        ordered = chosen.order_by(*(column for column in table.primary_key if column.name != "campaign"))
        names = [column.name for column in columns]
        tables[_short(table)] = {"columns": names, "rows": [list(row) for row in connection.execute(ordered)]}
    settings = {name: value for name, value in asdict(head).items() if name != "id"}
    roster, state = (tables.pop(_short(table)) for table in (ROSTERS, STATES))
    names = roster["columns"] + state["columns"]
    plain = {name: json.loads(text) for name, text in zip(names, roster["rows"][0] + state["rows"][0], strict=True)}
    return {"kofn": "campaign", "format": FORMAT, "name": head.name, "campaign": settings, **plain, "tables": tables}


def read(exported: Mapping[str, Any], name: str | None) -> tuple[Head, Callable[[Connection], None]]:
    """The row of an exported campaign, and what writes all of it; what does not fit is refused."""
    if not isinstance(exported, Mapping) or exported.get("kofn") != "campaign":
        raise BadRecord("an exported campaign is what Campaign.export() gives")
    if type(exported.get("format")) is not int or exported["format"] != FORMAT:
        raise BadRecord(f"this export has format {exported.get('format')!r}, but this kofn reads format {FORMAT}")
    try:
        head = _head(exported["campaign"])
        head.name = campaign_name(head.name if name is None else name)
        rows = {_short(table): _rows(table, exported["tables"][_short(table)]) for table in OF_CAMPAIGN[2:]}
        for table in (ROSTERS, STATES):
            texts = {column.name: json.dumps(exported[column.name], allow_nan=False) for column in _columns(table)}
            rows[_short(table)] = [texts]
        check_sound(head, exported, rows)
    except KeyError as why:
        raise BadRecord(f"this is not a sound campaign: {why.args[0]!r} is missing") from why
    except (BadInput, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as why:
        raise BadRecord(f"this is not a sound campaign: {why}") from why
    return head, lambda connection: _insert(connection, head, rows)


def _insert(connection: Connection, head: Head, rows: Rows) -> None:
    check_free(connection, head.name)
    insert_head(connection, head)
    for table in OF_CAMPAIGN:
        if theirs := rows[_short(table)]:
            connection.execute(table.insert(), [row | {"campaign": head.id} for row in theirs])


def _columns(table: Table) -> list[Column[Any]]:
    return [column for column in table.columns if column.name != "campaign"]


def _short(table: Table) -> str:
    return table.name.removeprefix("kofn_")


def _head(settings: Mapping[str, Any]) -> Head:
    values: dict[str, Any] = {"id": 0}
    for each in fields(Head)[1:]:
        kind = {"int": int, "float": float, "str": str}.get(str(each.type).removesuffix(" | None"))
        assert kind is not None
        values[each.name] = _value(each.name, settings[each.name], kind, nullable="None" in str(each.type))
    bytes.fromhex(values["secret"])
    return Head(**values)


def _rows(table: Table, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    columns = _columns(table)
    names = [column.name for column in columns]
    if given["columns"] != names:
        raise BadRecord(f"{_short(table)} has the columns {', '.join(names)}")
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
    """A value that the store can hold, or BadRecord."""
    if value is None and nullable:
        return None
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind is int and type(value) is int and -(2**63) <= value < 2**63:
        return value
    if kind is str and isinstance(value, str) and (value.isprintable() or not value):
        return value
    raise BadRecord(f"{name} cannot be {value!r:.60}")
