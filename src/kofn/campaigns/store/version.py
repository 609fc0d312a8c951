"""The version of a store: that of its tables, and of the records in them.

Two builds of kofn that read each other's tables, but not each other's records of policies, must not write to one store
at the same time. So the version has both numbers, and every transaction compares it. A newer kofn opens the store of
the one before it: it writes its own version, and rebuilds the policies from their folds (`kofn.campaigns.learning`).
"""

from __future__ import annotations

import re

from sqlalchemy import Connection, Table, Text, select, text

from kofn.campaigns.store.schema import DECISIONS, EVENTS, METADATA, VERSION
from kofn.core import StoreError
from kofn.policies.registry import FORMAT

TABLES = 1
"""The version of the tables. A kofn with a higher one has to change the tables of older stores in `upgrade`."""


def present() -> str:
    """Return the version of the stores that this kofn writes: the tables, then the records of policies."""
    return f"{TABLES}.{FORMAT}"


def _tell_planner(connection: Connection) -> None:
    """Tell the planner what tables of campaigns will look like: many rows per campaign, few for the next columns.

    Without statistics, it reads all rows of a campaign to find those of one decision.
    """
    if connection.dialect.name == "postgresql":
        for table in (DECISIONS, EVENTS):
            _tell_postgres(connection, table)
        return
    connection.exec_driver_sql("ANALYZE")  # of empty tables: it makes the table of statistics
    for table in (DECISIONS, EVENTS):
        _tell_sqlite(connection, table)
    connection.exec_driver_sql("ANALYZE sqlite_master")  # this connection reads them, too


def _tell_sqlite(connection: Connection, table: Table) -> None:
    indexes = connection.exec_driver_sql(f"SELECT name FROM pragma_index_list('{table.name}')").scalars().all()
    for index in indexes:
        columns = connection.exec_driver_sql(f"SELECT count(*) FROM pragma_index_info('{index}')").scalar_one()
        rows = " ".join(["1000000 100000", *["2"] * (columns - 1)])
        values = {"table": table.name, "index": index, "rows": rows}
        connection.execute(text("INSERT INTO sqlite_stat1 VALUES (:table, :index, :rows)"), values)


def _tell_postgres(connection: Connection, table: Table) -> None:
    connection.exec_driver_sql(f"ALTER TABLE {table.name} ALTER COLUMN campaign SET (n_distinct = 10)")
    filled = [column for column in table.columns if not column.nullable]
    names = ", ".join(f'"{column.name}"' for column in filled)
    values = ", ".join("''" if isinstance(column.type, Text) else "i" for column in filled)
    rows = f"SELECT {values} FROM generate_series(1, 1000) AS i"
    connection.exec_driver_sql(f"INSERT INTO {table.name} ({names}) {rows}")
    connection.exec_driver_sql(f"ANALYZE {table.name}")
    connection.exec_driver_sql(f"TRUNCATE {table.name}")  # statistics of the columns stay


def version_of(connection: Connection) -> str | None:
    """Return the version of a store; None if it has no tables of kofn, "" if it was made before the first release."""
    has = connection.dialect.has_table
    if has(connection, VERSION.name):
        return str(connection.execute(select(VERSION.c.version)).scalar_one())
    return "" if has(connection, "kofn_version") else None


class OtherVersion(StoreError):
    """A store that this kofn cannot read."""


def check_readable(store: object, version: str | None) -> None:
    """Raise OtherVersion if this kofn cannot read a store of that version."""
    if version is None:
        return
    if not re.fullmatch(r"\d+\.\d+", version):
        made = "was made by a development version of kofn, before the first release"
    elif tuple(map(int, version.split("."))) > tuple(map(int, present().split("."))):
        made = f"has version {version}, of a newer kofn"
    else:
        return
    raise OtherVersion(
        f"the store {store} {made}, and this kofn reads version {present()}: create a new store, or open this one with "
        "the kofn that made it"
    )


def check_version(version: str | None) -> None:
    """Raise StoreError if the store has another version: another kofn has opened it since this process did."""
    if version != present():
        raise StoreError(
            f"the store has version {version}, and this process uses version {present()}: another version of "
            "kofn has upgraded it. Restart this process with that version"
        )


def check(connection: Connection) -> None:
    """Raise StoreError if the store has another version than this process uses."""
    check_version(connection.execute(select(VERSION.c.version)).scalar())


def upgrade(connection: Connection, patience: float) -> str | None:
    """Create the tables, or bring a store to the present version, and return the version that it had.

    Only one process at a time does this. PostgreSQL waits for a lock for at most `patience` seconds.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = {max(1, round(1000 * patience))}"))  # milliseconds
        connection.execute(text("SELECT pg_advisory_xact_lock(5266417)"))
    version = version_of(connection)
    if version is None:
        METADATA.create_all(connection)
        _tell_planner(connection)
        connection.execute(VERSION.insert(), {"version": present()})
    elif version and tuple(map(int, version.split("."))) < tuple(map(int, present().split("."))):
        connection.execute(VERSION.update().values(version=present()))
    return version
