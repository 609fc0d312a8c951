"""Backups of SQLite stores, by SQLite's own backup: consistent, and made while other processes write.

A backup is a complete store in one file. PostgreSQL has pg_dump and pg_restore.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from sqlalchemy import Connection, create_engine, func, make_url, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from kofn.campaigns.store import schema, sqlite_file, version
from kofn.campaigns.store.database import Store, store_at, store_url
from kofn.core import BadInput, BadRecord, StoreError


def backup(file: str | os.PathLike[str], store: str | Store | None = None, *, replace: bool = False) -> Path:
    """Copy a SQLite store with its campaigns, tokens and settings to a file, and return the path of the file.

    Other processes may use the store meanwhile. The backup has everything that was acknowledged before the call, and
    nothing of any call in part. `replace` allows to replace a file that is not in use.
    """
    _check_kind(store, "back it up with pg_dump")
    target, source = Path(file), store_at(store, create=False)
    _check_target(target, replace)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with source.read() as connection, _writing(target):
            sqlite_file.create_private(str(part))
            with closing(sqlite3.connect(part)) as copy:
                _sqlite(connection).backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a write-ahead log beside it
            _to_disk(part)
            os.replace(part, target)
            _to_disk(target.parent)
    finally:
        for suffix in ("", *sqlite_file.BESIDE):
            part.with_name(part.name + suffix).unlink(missing_ok=True)
    return target


def restore(file: str | os.PathLike[str], store: str | Store | None = None, *, replace: bool = False) -> None:
    """Replace a SQLite store, which no process uses, by a backup. A store that does not exist is created.

    `replace` allows to replace a store that has campaigns or tokens. What was decided after the backup is unknown from
    then on: rewards of these decisions are refused. An error, or a killed process, leaves the store as it was.
    """
    _check_kind(store, "restore it with pg_restore")
    with _opened(Path(file)) as backup:
        path = _file_to_replace(store, replace)
        if os.path.samefile(path, file):
            raise BadInput(f"{file} is the store itself: name a backup of it, and the store with --store (store=)")
        try:
            with closing(sqlite3.connect(path)) as into:
                into.execute("PRAGMA journal_mode = DELETE")  # applies the write-ahead log; refused if another uses it
                _sqlite(backup).backup(into)
        except sqlite3.Error as why:
            advice = ". Stop all processes that use it" if "locked" in str(why) else ""
            raise StoreError(f"the store {path} cannot be restored, and is unchanged: {why}{advice}") from why


def _check_kind(store: str | Store | None, instead: str) -> None:
    if str(store if isinstance(store, Store) else store_url(store)).startswith("postgres"):
        raise BadInput(
            f"this store is on PostgreSQL, and kofn copies SQLite stores only: {instead}, as docs/guides/deployment.md "
            "shows. `kofn campaign export` and `import` move a campaign between stores"
        )


def _check_target(target: Path, replace: bool) -> None:
    reason = None
    if not target.parent.is_dir():
        reason = f"there is no folder {target.parent}"
    elif target.is_dir():
        reason = "it is a folder; name a file in it"
    elif target.exists() and not replace:
        reason = "the file exists; choose another name, or pass --replace (replace=True)"
    elif any(os.path.exists(os.path.realpath(target) + suffix) for suffix in sqlite_file.BESIDE):
        reason = "a store of this name is in use"
    if reason:
        raise StoreError(f"the backup {target} cannot be written: {reason}")


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Name the backup in errors, such as the error of a full disk."""
    try:
        yield
    except (sqlite3.Error, OSError) as why:
        reason = getattr(why, "strerror", None) or why
        raise StoreError(f"the backup {target} cannot be written: {reason}") from why


@contextmanager
def _opened(file: Path) -> Iterator[Connection]:
    """Open a backup for reading, and check that it is a sound store which this kofn reads."""
    if not file.is_file():
        raise BadRecord(f"there is no backup {file}: check the path")

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)

    try:
        with create_engine("sqlite://", creator=connect, poolclass=NullPool).connect() as connection:
            found = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
            if found != "ok":
                raise BadRecord(f"the backup {file} is damaged: {found}. Use another backup")
            made = version.version_of(connection)
            if made is None:
                raise BadRecord(f"{file} is not a backup: it has no tables of kofn. `kofn backup` makes one")
            version.check_readable(file, made)
            yield connection
    except DBAPIError as why:
        raise BadRecord(f"the backup {file} is damaged: {why.orig}. Use another backup") from why


def _file_to_replace(given: str | Store | None, replace: bool) -> str:
    """Return the path of a store's file, which this process has closed. Without `replace`, the store must be empty."""
    try:
        store = store_at(given)
    except version.OtherVersion:
        if not replace or isinstance(given, Store):
            raise
        return os.path.abspath(make_url(store_url(given)).database or "")  # the way back after an upgrade
    with store.read() as connection:
        named = "SELECT file FROM pragma_database_list WHERE name = 'main'"  # absolute, even if the URL's is not
        path: str = connection.exec_driver_sql(named).scalar_one()
        tables = (schema.CAMPAIGNS, schema.TOKENS)
        campaigns, tokens = (connection.scalar(select(func.count()).select_from(table)) for table in tables)
    if (campaigns or tokens) and not replace:
        raise StoreError(
            f"the store {store} is not empty: it has {campaigns:,} campaigns and {tokens:,} tokens. Restore into a new "
            "store, or pass --replace (replace=True) to replace all of it"
        )
    store.close()
    return path


def _sqlite(connection: Connection) -> sqlite3.Connection:
    """Return SQLite's own connection."""
    found = connection.connection.driver_connection
    assert isinstance(found, sqlite3.Connection)
    return found


def _to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    with suppress(PermissionError):  # Windows does not open folders
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
