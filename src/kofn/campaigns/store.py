"""The store: a database by its URL, opened safely by many processes at once."""

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

from kofn.campaigns import schema
from kofn.core import BadInput, MissingExtra, StoreError

DEFAULT = "sqlite:///kofn.db"
PATIENCE = 60.0
"""Seconds to wait for another process to finish writing to SQLite."""

MOST_CACHED = 64
"""Campaigns whose policy is kept in memory, of one store."""

_stores: dict[str, Store] = {}
_opening = threading.Lock()


def store_at(url: str | Store | None = None) -> Store:
    """The store of that URL, one per process; without a URL, that of the environment's KOFN_STORE, or kofn.db."""
    if isinstance(url, Store):
        return url
    url = url or os.environ.get("KOFN_STORE") or DEFAULT
    if not isinstance(url, str):
        raise BadInput(f"a store is a URL such as {DEFAULT}, not {url!r}")
    with _opening:
        key = f"{os.getcwd()} {url}" if url.startswith("sqlite") else url  # paths may be relative
        if key not in _stores:
            _stores[key] = Store(url)
        return _stores[key]


class Store:
    """A database with kofn's tables in it, brought up to date when it is opened.

    On SQLite, acknowledged means on the disk (`synchronous=full`); `?synchronous=normal` in the URL gives up the last
    moments before a power failure for more speed. PostgreSQL does as its server is told.
    """

    def __init__(self, url: str) -> None:
        self.url = _checked(url)
        self.clock: Callable[[], float] = time.time
        self.cache: OrderedDict[int, Any] = OrderedDict()
        self._sqlite = self.url.get_backend_name() == "sqlite"
        self._engine = _sqlite_engine(self.url) if self._sqlite else _postgres_engine(self.url)
        weakref.finalize(self, self._engine.dispose)  # a store that nobody holds leaves no connection open
        self._fresh()
        _alive.add(self)
        with self._said():
            self._open()

    def _fresh(self) -> None:
        # SQLite lets one write at a time. Threads that wait for each other here need not poll the file.
        self._lock = threading.Lock() if self._sqlite else nullcontext()
        self._caching = threading.Lock()

    def _open(self) -> None:
        with self._engine.begin() as connection:
            version = schema.version_of(connection)
        if version > len(schema.MIGRATIONS):
            raise StoreError(
                f"the store {self} has version {version}, but this kofn knows up to {len(schema.MIGRATIONS)}: "
                "install a newer kofn"
            )
        if self._sqlite:
            self._write_ahead()
        if version < len(schema.MIGRATIONS):
            with self.write() as connection:
                schema.migrate(connection)

    def _write_ahead(self) -> None:
        """Switch SQLite to its write-ahead log. It does not wait for others on its own here, so we do."""
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
        """One transaction that writes: all of it, or nothing."""
        with self._said(), self._lock, self._engine.begin() as connection:
            if self._sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One transaction that reads: what it sees is of one moment."""
        with self._said(), self._engine.connect() as connection:
            if not self._sqlite:
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                if self._sqlite:
                    connection.exec_driver_sql("BEGIN")
                yield connection

    @contextmanager
    def _said(self) -> Iterator[None]:
        """What the database says, as an error of ours."""
        try:
            yield
        except (DBAPIError, PoolTimeout) as why:
            reason = " ".join(str(getattr(why, "orig", None) or why).split())
            raise StoreError(f"the store {self} says: {reason}") from why

    def remember(self, campaign: int, thing: Any) -> None:
        """Keep what was read of a campaign, and let go of what was not used for longest."""
        with self._caching:
            self.cache[campaign] = thing
            self.cache.move_to_end(campaign)
            while len(self.cache) > MOST_CACHED:
                self.cache.popitem(last=False)

    def close(self) -> None:
        """Close all connections; they are opened again when they are needed."""
        self._engine.dispose()

    def forked(self) -> None:
        """Leave the connections to the process that this one was forked from."""
        self._engine.dispose(close=False)
        self._fresh()

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
    """The URL, of a database that we know, or BadInput."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as why:
        raise BadInput(f"a store is a URL such as {DEFAULT} or postgresql://user@host/name, not {url!r}") from why
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise BadInput(f"a campaign outlives its process: give its store a file, such as {DEFAULT}")
        return parsed
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise BadInput(f"a store is on SQLite ({DEFAULT}) or PostgreSQL (postgresql://user@host/name), not on {backend}")


def _sqlite_engine(url: URL) -> Engine:
    synchronous = url.query.get("synchronous", "full")
    if synchronous not in ("full", "normal"):
        raise BadInput(f"synchronous is full or normal, not {synchronous!r}")
    file = url.database or ""
    folder = os.path.dirname(os.path.abspath(file))
    if not os.path.isdir(folder):
        raise StoreError(f"the store {url} cannot be opened: there is no folder {folder}")
    plain = url.set(query={}, database=os.path.abspath(file))
    engine = create_engine(plain, connect_args={"timeout": PATIENCE, "check_same_thread": False}, pool_size=8)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves, and of which kind
        connection.execute(f"PRAGMA synchronous = {synchronous.upper()}")

    return engine


def _postgres_engine(url: URL) -> Engine:
    try:
        return create_engine(
            url, pool_pre_ping=True, pool_size=8, max_overflow=24, isolation_level="READ COMMITTED"
        )  # not what the server may be set to: whoever waited for the campaign's row must see what the other wrote
    except ImportError as missing:
        raise MissingExtra("psycopg", "postgres") from missing
