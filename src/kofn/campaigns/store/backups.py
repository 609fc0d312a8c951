"""Backups: a store as one file, made while servers write, and restored into SQLite or PostgreSQL.

A backup is a SQLite file with the tables of a store and one more, `kofn_backup`, which tells what it is and has a
checksum of each table. All rows are read in one transaction, so they belong to one moment. A restore writes all rows
in one transaction: other processes see the old store, then the restored one.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Table, create_engine, func, insert, select, text
from sqlalchemy.exc import DatabaseError, DBAPIError
from sqlalchemy.pool import NullPool

from kofn.campaigns.store import migrations, schema, sqlite_file
from kofn.campaigns.store.database import PATIENCE, Store, store_at
from kofn.campaigns.store.stamps import new_stamp
from kofn.core import BadRecord, StoreError
from kofn.core.responses import Response, moment

FORMAT = 1
"""The version of the file. Raise it when an older kofn cannot read a newer backup."""

CHUNK = 1000
"""Rows that are in memory at a time. A higher value is faster, and needs more memory for campaigns of many arms."""

Progress = Callable[[int, int], None]
"""Called with the number of rows that are done, and of all rows."""

_TABLES = [table for table in schema.METADATA.sorted_tables if table is not schema.VERSION]
_MASK = 2**256 - 1


@dataclass(frozen=True)
class Backup(Response):
    """What a backup contains. `store_version` is the version of its tables, `kofn` the release that made it."""

    file: str
    made: datetime
    kofn: str
    store_version: int
    campaigns: int
    tokens: int
    rows: int
    size: int  # of the file, in bytes


# Backup.


def backup(
    file: str | os.PathLike[str],
    store: str | Store | None = None,
    *,
    replace: bool = False,
    progress: Progress | None = None,
) -> Backup:
    """Write a store with its campaigns, tokens and settings to a file, and return what the file contains.

    Other processes may use the store meanwhile. The backup has everything that was acknowledged before the call, and
    nothing of any call in part. `replace` allows to replace another backup.
    """
    target, source = Path(file), store_at(store, create=False)
    _check_target(target, replace)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with _writing(target):
            _create_tables(part)
        made = _write(source, part, target, progress)
        with _writing(target):
            _to_disk(part)
            _publish(part, target, replace)
    finally:
        part.unlink(missing_ok=True)
    return made


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Name the backup in errors of its own file, such as that of a full disk. Errors of the store name the store."""
    try:
        yield
    except (sqlite3.Error, DBAPIError, OSError) as why:
        reason = getattr(why, "orig", None) or getattr(why, "strerror", None) or why
        raise StoreError(f"the backup {target} cannot be written: {reason}") from why


def _check_target(target: Path, replace: bool) -> None:
    if not target.parent.is_dir():
        raise StoreError(f"the backup {target} cannot be written: there is no folder {target.parent}")
    if target.exists() and not (replace and sqlite_file.is_backup(str(target))):
        advice = "only a backup can be replaced" if replace else "choose another name, or pass --replace (replace=True)"
        raise StoreError(f"the backup {target} cannot be written: the file exists; {advice}")


def _write(source: Store, part: Path, target: Path, progress: Progress | None) -> Backup:
    """Write all rows to a new file, which has its tables."""
    facts: dict[str, Any] = {"format": FORMAT, "kofn": _release(), "made": time.time(), "tables": {}}
    facts["store_version"] = len(migrations.MIGRATIONS)
    with closing(sqlite3.connect(part)) as out, source.read() as connection:
        out.execute("PRAGMA journal_mode = OFF")  # nobody sees the file before it is complete
        out.execute("PRAGMA synchronous = OFF")
        advance = _counter(progress, sum(_count(connection, table) for table in _TABLES))
        for table in _TABLES:
            columns = sorted(table.columns.keys())
            checksum = _Checksum()
            into = _insert(table.name, columns)
            for rows in _stream(connection, table, columns):
                checksum.add(rows)
                with _writing(target):
                    out.executemany(into, rows)
                advance(len(rows))
            facts["tables"][table.name] = checksum.facts()
        with _writing(target):
            _write_facts(out, facts)
    return _described(facts, target, part.stat().st_size)


def _write_facts(out: sqlite3.Connection, facts: dict[str, Any]) -> None:
    """Write what a backup contains, and make the file a backup."""
    out.execute("CREATE TABLE kofn_backup (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
    out.executemany("INSERT INTO kofn_backup VALUES (?, ?)", [(name, json.dumps(facts[name])) for name in facts])
    out.execute(f"PRAGMA application_id = {sqlite_file.BACKUP_ID}")
    out.commit()


def _create_tables(file: Path) -> None:
    """Bring the tables of a file up to date; a file that does not exist is created, for its owner only."""
    sqlite_file.create_private(str(file))
    where = URL.create("sqlite", database=str(file.absolute()))  # made of parts: in a text, ? would end the path
    engine = create_engine(where, poolclass=NullPool)
    with engine.begin() as connection:
        migrations.migrate(connection, PATIENCE)


def _count(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def _stream(connection: Connection, table: Table, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of a table, some at a time. The server keeps the rest."""
    chosen = select(*(table.c[name] for name in columns))
    found = connection.execute(chosen, execution_options={"stream_results": True, "yield_per": CHUNK})
    for rows in found.partitions(CHUNK):
        yield [tuple(row) for row in rows]


def _insert(table: str, columns: Sequence[str]) -> str:
    names, places = ", ".join(f'"{name}"' for name in columns), ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({names}) VALUES ({places})"


def _publish(part: Path, target: Path, replace: bool) -> None:
    """Give the complete file its name, in one step."""
    if replace:
        os.replace(part, target)
    else:
        _rename_new(part, target)
    _to_disk(target.parent)


def _rename_new(part: Path, target: Path) -> None:
    """Rename a file, and refuse to replace one that another process has made meanwhile."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise StoreError(f"{target} cannot be written: another process has made it meanwhile") from None
    except OSError:  # a file system without hard links
        os.rename(part, target)
    part.unlink(missing_ok=True)


def _to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    with suppress(PermissionError):  # Windows does not open folders
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _Checksum:
    """The number of rows of a table, and the sum of their hashes, which does not depend on their order."""

    def __init__(self) -> None:
        self.rows, self.sum = 0, 0

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            written = json.dumps(list(row), separators=(",", ":")).encode()
            self.sum = self.sum + int.from_bytes(sha256(written).digest()) & _MASK
            self.rows += 1

    def facts(self) -> dict[str, Any]:
        return {"rows": self.rows, "checksum": f"{self.sum:064x}"}


def _counter(progress: Progress | None, of: int) -> Callable[[int], None]:
    done = 0

    def advance(rows: int) -> None:
        nonlocal done
        done += rows
        if progress is not None:
            progress(done, max(done, of))

    advance(0)
    return advance


def _release() -> str:
    from kofn import __version__

    return __version__


def _described(facts: dict[str, Any], file: Path, size: int) -> Backup:
    counts = {name: table["rows"] for name, table in facts["tables"].items()}
    return Backup(
        file=str(file),
        made=moment(facts["made"]),
        kofn=facts["kofn"],
        store_version=facts["store_version"],
        campaigns=counts["kofn_campaigns"],
        tokens=counts.get("kofn_tokens", 0),
        rows=sum(counts.values()),
        size=size,
    )


# Restore.


def restore(
    file: str | os.PathLike[str],
    store: str | Store | None = None,
    *,
    replace: bool = False,
    progress: Progress | None = None,
) -> Backup:
    """Write a backup to a store, and return what it contains.

    The store must be new or empty; `replace` allows to replace all that it has. An error, or a killed process, leaves
    the store as it was. Servers that use the store continue with the restored campaigns, and with nothing that they had
    in memory.
    """
    source = Path(file)
    made = _checked(source)
    with _migrated(source, made.store_version) as rows:
        where = None if isinstance(store, Store) else sqlite_file.missing_file(_url(store))
        if where is None:
            _fill(store_at(store), rows, replace, progress)
        else:
            _create(Path(where), rows, progress)
    return made


def _url(store: str | None) -> str:
    from kofn.campaigns.store.database import DEFAULT

    return store or os.environ.get("KOFN_STORE") or DEFAULT


def _checked(file: Path) -> Backup:
    """Return what a backup contains, or raise BadRecord: it is no backup, too new, or damaged.

    The checksums cover every value of every row. They do not cover unused bytes, and indexes, which are not restored.
    """
    if not file.is_file():
        raise BadRecord(f"there is no backup {file}: check the path")
    if not sqlite_file.is_backup(str(file)):
        raise BadRecord(f"{file} is not a backup: `kofn backup` makes one, also of a SQLite file of a store")
    try:
        with _opened(file) as connection:
            facts = _facts(connection)
            _check_readable(file, facts)
            tables = _columns(connection)
            if tables != _columns_of(facts["store_version"]) or tables.keys() != facts["tables"].keys():
                raise ValueError("its tables are not those of its version")
            for table, columns in tables.items():
                checksum = _Checksum()
                for rows in _chunks(connection, table, columns):
                    checksum.add(rows)
                if checksum.facts() != facts["tables"][table]:
                    raise BadRecord(
                        f"the backup {file} is damaged: {table} is not as it was written. Use another backup"
                    )
            return _described(facts, file, file.stat().st_size)
    except (sqlite3.DatabaseError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as why:
        if isinstance(why, BadRecord):
            raise
        raise BadRecord(f"the backup {file} is damaged: {why}. Use another backup") from why


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a file for reading. `immutable` writes nothing beside it, so that it may lie in a read-only folder."""
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        yield connection


def _facts(connection: sqlite3.Connection) -> dict[str, Any]:
    facts = {name: json.loads(value) for name, value in connection.execute("SELECT name, value FROM kofn_backup")}
    version = connection.execute("SELECT version FROM kofn_version").fetchone()[0]
    if not isinstance(facts["format"], int) or version != facts["store_version"]:
        raise ValueError("its description does not match its tables")
    return facts


def _columns(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Return the sorted columns of the tables with checksums."""
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    kept = sorted(set(names) - {"kofn_version", "kofn_backup", "sqlite_sequence"})
    columns = "SELECT name FROM pragma_table_info(?) ORDER BY name"
    return {each: [row[0] for row in connection.execute(columns, [each])] for each in kept}


def _columns_of(version: int) -> dict[str, list[str]]:
    """Return the sorted columns of the tables of a version, as its migrations make them."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        for step in migrations.MIGRATIONS[:version]:
            step(connection)
        made = connection.connection.driver_connection
        assert isinstance(made, sqlite3.Connection)
        found = _columns(made)
    engine.dispose()
    return found


def _check_readable(file: Path, facts: dict[str, Any]) -> None:
    newest = len(migrations.MIGRATIONS)
    if facts["format"] > FORMAT or facts["store_version"] > newest:
        raise BadRecord(
            f"the backup {file} was made by kofn {facts['kofn']} (format {facts['format']}, store version "
            f"{facts['store_version']}), and this kofn reads format {FORMAT} and versions up to {newest}: install a "
            "newer kofn"
        )


def _chunks(connection: sqlite3.Connection, table: str, columns: Sequence[str]) -> Iterator[list[Any]]:
    names = ", ".join(f'{table}."{name}"' for name in columns)  # SQLite takes an unknown "name" alone for text
    found = connection.execute(f"SELECT {names} FROM {table}")
    while rows := found.fetchmany(CHUNK):
        yield rows


@contextmanager
def _migrated(file: Path, version: int) -> Iterator[sqlite3.Connection]:
    """Open a backup with the present tables. One of an older version is copied and migrated; the file never changes."""
    if version == len(migrations.MIGRATIONS):
        with _opened(file) as connection:
            yield connection
        return
    with tempfile.TemporaryDirectory(prefix="kofn-restore-") as folder:
        copy = Path(folder) / "store.db"
        shutil.copyfile(file, copy)
        try:
            _create_tables(copy)
        except DatabaseError as why:  # of SQLAlchemy; a damaged index, which no checksum covers
            raise BadRecord(f"the backup {file} is damaged: {why.orig}. Use another backup") from why
        with _opened(copy) as connection:
            yield connection


def _create(target: Path, rows: sqlite3.Connection, progress: Progress | None) -> None:
    """Restore into a SQLite file that does not exist. It gets its name when it is complete."""
    if not target.parent.is_dir():
        raise StoreError(f"the store {target} cannot be created: there is no folder {target.parent}")
    sqlite_file.check_nothing_beside(str(target))
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        new = Store(f"sqlite:///{part}?synchronous=normal")
        try:
            _fill(new, rows, False, progress)
        finally:
            new.close()
        with closing(sqlite3.connect(part)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # all of it is in the file, not in the log beside it
        _to_disk(part)
        sqlite_file.check_nothing_beside(str(target))
        _rename_new(part, target)
        _to_disk(target.parent)
    finally:
        for suffix in ("", *sqlite_file.BESIDE):
            part.with_name(part.name + suffix).unlink(missing_ok=True)


def _fill(store: Store, source: sqlite3.Connection, replace: bool, progress: Progress | None) -> None:
    """Write all rows of a backup to a store, in one transaction."""
    count = "SELECT count(*) FROM {} NOT INDEXED"  # an index may be damaged: no checksum covers it
    total = sum(source.execute(count.format(table.name)).fetchone()[0] for table in _TABLES)
    advance = _counter(progress, total)
    with store.write() as connection:
        _lock(connection)
        _check_empty(connection, store, replace)
        tokens_required = _tokens_required(connection)
        new_ids = _new_ids(connection, source)
        for table in reversed(_TABLES):
            connection.execute(table.delete())
        for table in _TABLES:
            columns = sorted(table.columns.keys())
            for rows in _chunks(source, table.name, columns):
                values = [dict(zip(columns, row, strict=True)) for row in rows]
                connection.execute(insert(table), _renumbered(table, values, new_ids))
                advance(len(rows))
        if tokens_required:
            connection.execute(schema.SETTINGS.delete().where(schema.SETTINGS.c.name == "tokens"))
            connection.execute(schema.SETTINGS.insert(), {"name": "tokens", "value": "required"})
        _reset_sequences(connection)


def _lock(connection: Connection) -> None:
    """Keep other processes from writing to the store. On SQLite, the transaction does this."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = {round(1000 * PATIENCE)}"))  # milliseconds
        first = sorted(_TABLES, key=lambda table: table is not schema.CAMPAIGNS)  # the order of all transactions
        names = ", ".join(table.name for table in first)
        connection.execute(text(f"LOCK TABLE {names} IN EXCLUSIVE MODE"))


def _check_empty(connection: Connection, store: Store, replace: bool) -> None:
    campaigns, tokens = _count(connection, schema.CAMPAIGNS), _count(connection, schema.TOKENS)
    if (campaigns or tokens) and not replace:
        raise StoreError(
            f"the store {store} is not empty: it has {campaigns:,} campaigns and {tokens:,} tokens. Restore into a new "
            "store, or pass --replace (replace=True) to replace all of it"
        )


def _tokens_required(connection: Connection) -> bool:
    """Return whether the store has or once had a token. It must not work without one again."""
    setting = connection.execute(select(schema.SETTINGS.c.value).where(schema.SETTINGS.c.name == "tokens")).scalar()
    return setting == "required" or _count(connection, schema.TOKENS) > 0


def _new_ids(connection: Connection, source: sqlite3.Connection) -> dict[int, int]:
    """Return an id for each campaign that the store never used: a server must not take it for one that it knows."""
    used = _highest_id(connection)
    found = source.execute("SELECT id FROM kofn_campaigns NOT INDEXED ORDER BY id")
    return {old: used + number for number, (old,) in enumerate(found, start=1)}


def _highest_id(connection: Connection) -> int:
    """Return the highest id that a campaign of the store ever had."""
    if connection.dialect.name == "sqlite":
        query = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'kofn_campaigns'"
    else:
        query = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM kofn_campaigns_id_seq"
    return int(connection.execute(text(query)).scalar_one())


def _renumbered(table: Table, rows: list[dict[str, Any]], new_ids: dict[int, int]) -> list[dict[str, Any]]:
    """Give the rows their campaign's new id. A campaign gets a new stamp: no server has a policy of that stamp."""
    for row in rows:
        if table is schema.CAMPAIGNS:
            row |= {"id": new_ids[row["id"]], "stamp": new_stamp()}
        elif table in schema.OF_CAMPAIGN:
            row["campaign"] = new_ids[row["campaign"]]
    return rows


def _reset_sequences(connection: Connection) -> None:
    """Let new campaigns and tokens on PostgreSQL have ids above those that were written."""
    if connection.dialect.name == "postgresql":
        for table in (schema.CAMPAIGNS, schema.TOKENS):
            highest = select(func.max(table.c.id)).scalar_subquery()
            sequence = f"{table.name}_id_seq"
            last = text(f"(SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence})")
            if connection.execute(select(highest)).scalar() is not None:
                connection.execute(select(func.setval(sequence, func.greatest(highest, last))))
