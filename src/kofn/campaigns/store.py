"""The store: a database named by a URL, which many processes may open at once."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from kofn.campaigns import migrations, store_file
from kofn.core import BadInput, MissingExtra, StoreError

DEFAULT = "sqlite:///kofn.db"
PATIENCE = 60.0
"""Seconds to wait while another process writes to SQLite, or uses a PostgreSQL store that is to be migrated. After
that, StoreError is raised. A higher value tolerates longer transactions, and reports a stuck process later."""

MAX_CACHED = 64
"""Campaigns of one store whose policy is kept in memory. A higher value needs more memory, and reads less often."""

_stores: dict[str, Store] = {}
_opening = threading.Lock()


def store_at(url: str | Store | None = None, *, create: bool = True) -> Store:
    """Return the store of that URL, one object per process. The default is KOFN_STORE, else sqlite:///kofn.db.

    A store that does not exist is created; with `create=False`, StoreError is raised instead.
    """
    if isinstance(url, Store):
        return url
    url = url or os.environ.get("KOFN_STORE") or DEFAULT
    if not isinstance(url, str):
        raise BadInput(f"a store must be a URL such as {DEFAULT}; got {url!r}")
    with _opening:
        key = f"{os.getcwd()} {url}" if url.startswith("sqlite") else url  # paths may be relative
        if key not in _stores:
            _stores[key] = Store(url, create=create)
        return _stores[key]


class Store:
    """A database with kofn's tables, which are brought up to date when it is opened.

    On SQLite, an acknowledged write is on the disk (`synchronous=full`). With `?synchronous=normal` in the URL it is
    faster, but a power failure may lose the last writes. On PostgreSQL, the server's configuration decides.
    """

    def __init__(self, url: str, *, create: bool = True) -> None:
        self.url = _checked(url)
        self.clock: Callable[[], float] = time.time
        self.cache: OrderedDict[int, Any] = OrderedDict()
        self._sqlite = self.url.get_backend_name() == "sqlite"
        self._engine = _sqlite_engine(self.url, create) if self._sqlite else _postgres_engine(self.url)
        weakref.finalize(self, self._engine.dispose)  # an unused store leaves no connection open
        self._new_locks()
        _alive.add(self)
        with self._translated_errors():
            self._open(create)

    def _new_locks(self) -> None:
        # SQLite has one writer at a time. Threads wait for this lock instead of polling the file.
        self._lock = threading.Lock() if self._sqlite else nullcontext()
        self._caching = threading.Lock()

    def _open(self, create: bool) -> None:
        with self._engine.begin() as connection:
            version = migrations.version_of(connection)
        self._check_version(version)
        if version == 0 and not create:
            raise StoreError(store_file.no_store(f"database {self}"))
        if self._sqlite:
            self._write_ahead()
        if version < len(migrations.MIGRATIONS):
            self._migrate(version)

    def _check_version(self, version: int) -> None:
        """Raise StoreError if a newer kofn made the store."""
        if version > len(migrations.MIGRATIONS):
            raise StoreError(
                f"the store {self} has version {version}, and this kofn reads versions up to "
                f"{len(migrations.MIGRATIONS)}: install a newer kofn"
            )

    def _migrate(self, version: int) -> None:
        try:
            with self.write() as connection:
                found = migrations.migrate(connection, PATIENCE)
        except StoreError as why:
            steps = f"from version {version} to {len(migrations.MIGRATIONS)}"
            busy = any(reason in str(why) for reason in ("lock timeout", "database is locked", "deadlock"))
            advice = ". Stop the processes that use it, then open it again" if busy else ""
            raise StoreError(f"{why} (while it was migrated {steps}; it is unchanged){advice}") from why
        self._check_version(found)

    def _write_ahead(self) -> None:
        """Switch SQLite to its write-ahead log. This statement ignores the busy timeout, so retry here."""
        until = time.monotonic() + PATIENCE
        raw = self._engine.raw_connection()
        try:
            while True:
                try:
                    if raw.cursor().execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                        raw.cursor().execute("PRAGMA journal_mode = WAL")
                    return
                except Exception as busy:
                    if "locked" not in str(busy) or time.monotonic() > until:
                        raise StoreError(f"the store {self} cannot be opened: {busy}") from busy
                    time.sleep(0.01)
        finally:
            raw.close()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that writes: all of it is stored, or nothing."""
        with self._translated_errors(), self._lock, self._engine.begin() as connection:
            if self._sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that reads: all of it sees the same moment."""
        with self._translated_errors(), self._engine.connect() as connection:
            if not self._sqlite:
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                if self._sqlite:
                    connection.exec_driver_sql("BEGIN")
                yield connection

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raise errors of the database as StoreError."""
        try:
            yield
        except (DBAPIError, PoolTimeout) as why:
            reason = " ".join(str(getattr(why, "orig", None) or why).split())
            raise StoreError(f"the store {self} failed: {reason}") from why

    def remember(self, campaign: int, value: Any) -> None:
        """Cache what was read of a campaign; the least recently read campaign is dropped."""
        with self._caching:
            self.cache[campaign] = value
            self.cache.move_to_end(campaign)
            while len(self.cache) > MAX_CACHED:
                self.cache.popitem(last=False)

    def close(self) -> None:
        """Close all connections. They are opened again on demand."""
        self._engine.dispose()

    def forked(self) -> None:
        """Drop the connections after a fork without closing them: the parent process uses them."""
        self._engine.dispose(close=False)
        self._new_locks()

    def __str__(self) -> str:
        return self.url.render_as_string(hide_password=True)

    def __repr__(self) -> str:
        return f"Store({str(self)!r})"


_alive: weakref.WeakSet[Store] = weakref.WeakSet()


def _after_fork() -> None:
    global _opening
    _opening = threading.Lock()
    for store in list(_alive):
        store.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _checked(url: str) -> URL:
    """Return the URL of a supported database, or raise BadInput."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as why:
        raise BadInput(f"a store must be a URL such as {DEFAULT} or postgresql://user@host/name; got {url!r}") from why
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise BadInput(f"a store in memory would be lost with its process: name a file, such as {DEFAULT}")
        return parsed
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise BadInput(f"a store must be on SQLite ({DEFAULT}) or PostgreSQL (postgresql://user@host/name); got {backend}")


def _sqlite_engine(url: URL, create: bool) -> Engine:
    synchronous = url.query.get("synchronous", "full")
    if synchronous not in ("full", "normal"):
        raise BadInput(f"synchronous must be full or normal; got {synchronous!r}")
    file = url.database or ""
    folder = os.path.dirname(os.path.abspath(file))
    if not os.path.isdir(folder):
        raise StoreError(f"the store {url} cannot be opened: there is no folder {folder}")
    store_file.prepare(file, create=create)
    plain = url.set(query={}, database=os.path.abspath(file))
    engine = create_engine(plain, connect_args={"timeout": PATIENCE, "check_same_thread": False}, pool_size=8)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # `read` and `write` issue their own BEGIN
        connection.execute(f"PRAGMA synchronous = {synchronous.upper()}")

    return engine


def _postgres_engine(url: URL) -> Engine:
    try:
        return create_engine(
            url, pool_pre_ping=True, pool_size=8, max_overflow=24, isolation_level="READ COMMITTED"
        )  # whatever the server's default: after waiting for a locked row, a transaction must see what was written
    except ImportError as missing:
        raise MissingExtra("psycopg", "postgres") from missing
