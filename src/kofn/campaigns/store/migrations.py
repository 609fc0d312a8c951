"""The version of a store, and the steps that bring an older store up to date.

Version 1 has the tables of `schema`, which a new store gets at once. To change a table, change `schema` and append a
step to MIGRATIONS. A step that has been released never changes again, so it uses nothing of `schema`.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, select, text

from kofn.campaigns.store.schema import METADATA, VERSION
from kofn.core import StoreError

MIGRATIONS: list[Callable[[Connection], None]] = []
"""The step at index i changes a store of version i + 1, on SQLite or PostgreSQL, into one of version i + 2."""

UNRELEASED = -1
"""The version of a store that was made before the first release: it has a table `kofn_version`."""


def newest() -> int:
    """Return the version of the stores that this kofn makes."""
    return 1 + len(MIGRATIONS)


def version_of(connection: Connection) -> int:
    """Return the version of a store; 0 if it has no tables of kofn, or UNRELEASED."""
    if connection.dialect.has_table(connection, VERSION.name):
        return int(connection.execute(select(VERSION.c.version)).scalar_one())
    return UNRELEASED if connection.dialect.has_table(connection, "kofn_version") else 0


class OtherVersion(StoreError):
    """A store that this kofn cannot read."""


def check_readable(store: object, version: int) -> None:
    """Raise OtherVersion if this kofn cannot read a store of that version. An older one can be migrated."""
    if version == UNRELEASED:
        made = "was made by a development version of kofn, before the first release"
    elif version > newest():
        made = f"has version {version}, of a newer kofn"
    else:
        return
    accepted = "version 1" if newest() == 1 else f"versions 1 to {newest()}"
    raise OtherVersion(
        f"the store {store} {made}, and this kofn reads {accepted}: create a new store, or open this one with the kofn "
        "that made it"
    )


def check_version(version: int | None) -> None:
    """Raise StoreError if the store has another version: another kofn has migrated it since this process opened it."""
    if version != newest():
        raise StoreError(
            f"the store has version {version}, and this process uses version {newest()}: another version of "
            "kofn has migrated it. Restart this process with that version"
        )


def migrate(connection: Connection, patience: float) -> int:
    """Create the tables, or bring them up to date, in the transaction of `connection`; return the previous version.

    Only one process at a time does this. PostgreSQL waits for a lock for at most `patience` seconds.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = {max(1, round(1000 * patience))}"))  # milliseconds
        connection.execute(text("SELECT pg_advisory_xact_lock(5266417)"))
    version = version_of(connection)
    if not 0 <= version < newest():
        return version
    if version == 0:
        METADATA.create_all(connection)
    else:
        for step in MIGRATIONS[version - 1 :]:
            step(connection)
        connection.execute(VERSION.delete())
    connection.execute(VERSION.insert(), {"version": newest()})
    return version
