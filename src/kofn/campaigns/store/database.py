"""The store: a database named by a URL, which many processes may open at once."""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import Pool

from kofn.campaigns.store import sqlite_file, version
from kofn.campaigns.store.group_commit import GroupCommit, Job, Outcome
from kofn.campaigns.store.statements import Driver
from kofn.campaigns.store.writers import PostgresWriter, SqliteWriter, Writer
from kofn.core import BadInput, MissingExtra, StoreError

if TYPE_CHECKING:
    from kofn.campaigns.serving import Serving

T = TypeVar("T")

LOCKS = 5266418
"""The class of the advisory locks of campaigns on PostgreSQL."""

DEFAULT = "sqlite:///kofn.db"
PATIENCE = 60.0
"""Seconds to wait for other processes when a store is opened or upgraded. After that, StoreError is raised."""

LOCK_TIMEOUT = 10.0
"""Seconds that a transaction waits for another one: for the lock of an SQLite file, or of a campaign on PostgreSQL.
After that, StoreError is raised. A higher value tolerates longer transactions, and reports a stuck process later."""

IDLE_TIMEOUT = 15.0
"""Seconds after which PostgreSQL ends a transaction whose process does nothing, such as a stopped one. Its lock is free
then, and nothing of it is stored."""

POOL = 10
"""Connections of one process to PostgreSQL; `?pool=` in the URL sets another number. More allow more transactions at
once; all processes together must stay below the server's `max_connections`."""

FRESH = 1.0
"""Seconds after the start of its last use in which a connection to PostgreSQL is used again without a test."""

MAX_CACHED = 256
"""Campaigns of one store whose settings and plan are kept in memory. A higher value needs more memory, and reads less
often."""

DATABASE_ERRORS: list[type[Exception]] = [DBAPIError, PoolTimeout, sqlite3.Error]
"""Errors of SQLAlchemy and of the drivers; psycopg's error is added when a PostgreSQL store is opened."""

_stores: dict[str, Store] = {}
_opening = threading.Lock()


def store_url(url: str | None) -> str:
    """Return the URL of a store; the default is KOFN_STORE, else sqlite:///kofn.db."""
    return url or os.environ.get("KOFN_STORE") or DEFAULT


def store_at(url: str | Store | None = None, *, create: bool = True) -> Store:
    """Return the store of this URL, one object per process. The default comes from `store_url`.

    A store that does not exist is created; with `create=False`, StoreError is raised instead.
    """
    if isinstance(url, Store):
        return url
    url = store_url(url)
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
        self._servings: OrderedDict[int, Serving] = OrderedDict()
        self._touched: set[int] = set()  # campaigns to which something was appended since the last look
        self.learns_inline = True  # whether `Campaign` learns in the thread that reports rewards; a service does not
        self.observe_wait: Callable[[float], object] = lambda _: None  # called with the seconds that a write waited
        self._sqlite = self.url.get_backend_name() == "sqlite"
        self._pool = _pool_size(self.url)
        self._engine = _sqlite_engine(self.url, create) if self._sqlite else _postgres_engine(self.url, self._pool)
        weakref.finalize(self, self._engine.dispose)  # an unused store leaves no connection open
        self._new_locks()
        _alive.add(self)
        self._translated_errors = _TranslatedErrors(str(self))
        try:
            with self._translated_errors:
                self._open(create)
        except BaseException:
            self._engine.dispose()  # an open connection would keep others from restoring a backup
            raise

    def _new_locks(self) -> None:
        self._writer = SqliteWriter(self._engine, str(self), LOCK_TIMEOUT) if self._sqlite else None
        self._caching = threading.Lock()
        self.groups = GroupCommit(self._execute)

    def _execute(self, jobs: Sequence[Job]) -> Sequence[Outcome]:
        from kofn.campaigns.append import execute

        return execute(self, jobs)

    @property
    def uses_server_clock(self) -> bool:
        """Whether times are PostgreSQL's: of several machines, each may have another clock."""
        return not self._sqlite and self.clock is time.time

    def now(self, connection: Connection) -> float:
        """Return the time."""
        if not self.uses_server_clock:
            return self.clock()
        return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())

    def _open(self, create: bool) -> None:
        with self._engine.begin() as connection:
            found = version.version_of(connection)
        version.check_readable(self, found)
        if found is None and not create:
            raise sqlite_file.NoStore(f"database {self}")
        if self._sqlite:
            self._write_ahead()
        if found != version.present():
            self._upgrade(found)

    def _upgrade(self, found: str | None) -> None:
        try:
            found = self.transact(lambda connection: version.upgrade(connection, PATIENCE))
        except StoreError as why:
            busy = any(reason in str(why) for reason in ("lock timeout", "database is locked", "deadlock"))
            advice = ". Stop the processes that use it, then open it again" if busy else ""
            raise StoreError(
                f"{why} (while it was brought to version {version.present()}; it is unchanged){advice}"
            ) from why
        version.check_readable(self, found)

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
            raw.invalidate()  # it may have been opened before there was a log; the next one knows which log it has

    def transact(self, work: Callable[[Connection], T]) -> T:
        """Execute `work` in a transaction that writes. At whatever moment an interrupt arrives, nothing stays open."""
        with self._translated_errors:
            writer = self._new_writer()
            try:
                with writer as connection:
                    self._observe_wait()
                    return work(connection)
            except BaseException as why:
                writer.end()  # the interrupt may have arrived before the block could be left
                if self._writer is not None and not isinstance(why, Exception):
                    self._writer.close()  # a query that was not read to its end would keep the connection at its moment
                raise

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that writes: all of it is stored, or nothing."""
        with self._translated_errors, self._new_writer() as connection:
            self._observe_wait()
            version.check(connection)
            yield connection

    def _observe_wait(self) -> None:
        if self._writer is not None:  # on PostgreSQL, a transaction waits when it locks a campaign
            self.observe_wait(self._writer.waited)

    def _new_writer(self) -> Writer:
        return PostgresWriter(self._engine) if self._writer is None else self._writer

    @property
    def pool(self) -> Pool:
        """The pool of connections, for metrics."""
        return self._engine.pool

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that reads: all of it sees the same moment."""
        with self._translated_errors, self._engine.connect() as connection:
            if not self._sqlite:
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            connection.begin()
            if self._sqlite:
                connection.connection.cursor().execute("BEGIN")
            try:
                yield connection
                if not self._sqlite:
                    connection.connection.commit()  # after a rollback, psycopg would prepare all statements again
            except BaseException as why:
                if not isinstance(why, Exception):  # an interrupt: see `transact`
                    connection.invalidate()
                raise

    def locked(self, campaign: int, work: Callable[[Connection], T]) -> T:
        """Execute `work` in a transaction during which nothing is appended to this campaign's log."""

        def alone(connection: Connection) -> T:
            if not self._sqlite:
                connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCKS}, {campaign:d})"))
            return work(connection)

        return self.transact(alone)

    def known(self, campaign: int) -> Serving | None:
        """Return a campaign as this process last served it, without asking the store."""
        with self._caching:
            return self._servings.get(campaign)

    def serving(self, campaign: int, *, again: bool = False) -> Serving:
        """Return a campaign as this process serves it; `again` reads it from the store."""
        from kofn.campaigns.serving import Serving

        known = self.known(campaign)
        if known is not None and not again and not known.must_count(self.clock()):
            return known
        with self.read() as connection:
            driver = Driver(connection)
            found = Serving.read(driver, campaign, known, self.clock())
            if found.is_exhausted:
                found.count_exact(driver)
        with self._caching:
            self._servings[campaign] = found
            self._servings.move_to_end(campaign)
            while len(self._servings) > MAX_CACHED:
                self._servings.popitem(last=False)
        return found

    def touch(self, campaigns: Iterable[int]) -> None:
        """Remember that something was appended to these campaigns, or that they have changed."""
        with self._caching:
            self._touched.update(campaigns)

    def take_touched(self) -> set[int]:
        """Return the campaigns to which something was appended since the last call."""
        with self._caching:
            taken, self._touched = self._touched, set()
        return taken

    def drop(self, campaign: int) -> None:
        """Keep nothing of a campaign that was deleted or replaced."""
        with self._caching:
            self._servings.pop(campaign, None)

    def close(self) -> None:
        """Finish what has queued up and close all connections. They are opened again on demand."""
        self.groups.close()
        if self._writer is not None:
            self._writer.close()
        self._engine.dispose()

    def forked(self) -> None:
        """Drop the connections after a fork: the parent process uses them.

        SQLite counts its locks of a file per process, and a child inherits the count: as long as one of the parent's
        connections is open here, new ones take no lock. Others would then delete the log in which this process writes.
        So idle connections are closed, without the locks of the pool, which another thread of the parent may have held.
        """
        self._parents = self._writer  # never used here: a transaction of the parent would be undone
        if self._writer is not None:
            self._writer.close_after_fork()
            for idle in list(self._engine.pool._pool.queue):  # type: ignore[attr-defined]  # of QueuePool
                idle.dbapi_connection.close()
        self._engine.dispose(close=False)
        self._new_locks()

    def __str__(self) -> str:
        return self.url.render_as_string(hide_password=True)

    def __repr__(self) -> str:
        return f"Store({str(self)!r})"


class _TranslatedErrors:
    """Raises errors of the database as StoreError. Entering it takes less time than a generator does."""

    def __init__(self, store: str) -> None:
        self._store = store

    def __enter__(self) -> None:
        """Begin to translate errors."""

    def __exit__(self, kind: object, why: BaseException | None, _: object) -> None:
        if isinstance(why, tuple(DATABASE_ERRORS)):
            reason = " ".join(str(getattr(why, "orig", None) or why).split())
            raise StoreError(f"the store {self._store} failed: {reason}") from why


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
    sqlite_file.prepare(file, create=create)
    path = os.path.abspath(file)
    # With mode=rw, a file that was deleted meanwhile is not created again.
    where = url.set(database=Path(path).as_uri(), query={"uri": "true", "mode": "rw"})
    options = {"timeout": LOCK_TIMEOUT, "check_same_thread": False}
    engine = create_engine(where, connect_args=options, pool_size=8, pool_timeout=LOCK_TIMEOUT)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # `read` and `write` issue their own BEGIN
        connection.execute(f"PRAGMA synchronous = {synchronous.upper()}")
        connection.execute("PRAGMA schema_version").fetchall()  # the first read opens the write-ahead log
        record.info[sqlite_file.OPENED] = sqlite_file.OpenedFiles(path)

    return engine


def _pool_size(url: URL) -> int:
    given = url.query.get("pool", str(POOL))
    if not (isinstance(given, str) and given.isascii() and given.isdigit() and 1 <= int(given) <= 1000):
        raise BadInput(f"pool must be a number of connections from 1 to 1,000; got {given!r}")
    return int(given)


def _postgres_engine(url: URL, pool: int) -> Engine:
    try:
        import psycopg
    except ImportError as missing:
        raise MissingExtra("psycopg", "postgres") from missing
    if psycopg.Error not in DATABASE_ERRORS:
        DATABASE_ERRORS.append(psycopg.Error)
    limits = {"lock_timeout": LOCK_TIMEOUT, "idle_in_transaction_session_timeout": IDLE_TIMEOUT}
    given = {name: value for name, value in url.query.items() if name != "pool"}
    own = " ".join(f"-c {name}={round(1000 * seconds)}" for name, seconds in limits.items())
    options: dict[str, Any] = {"connect_timeout": round(LOCK_TIMEOUT), "tcp_user_timeout": round(1000 * IDLE_TIMEOUT)}
    arguments = {name: value for name, value in options.items() if name not in given}
    arguments["options"] = f"{own} {given.pop('options', '')}".strip()
    engine = create_engine(
        url.set(query=given),
        connect_args=arguments,
        pool_size=pool,
        max_overflow=0,
        pool_use_lifo=True,  # a connection that is often used has its statements prepared
        pool_timeout=LOCK_TIMEOUT,
        isolation_level="READ COMMITTED",
    )  # whatever the server's default: after waiting for a locked row, a transaction must see what was written

    @event.listens_for(engine, "checkout")
    def ping(connection: Any, record: Any, _: Any) -> None:
        """Test a connection. There is nothing to do at its return: an interrupt there would lose it to the pool."""
        used, record.info["used"] = record.info.get("used", -math.inf), time.monotonic()
        if record.info["used"] - used < FRESH:
            return
        try:
            engine.dialect.do_ping(connection)
        except psycopg.Error as gone:  # the pool then opens another connection
            raise DisconnectionError from gone

    return engine
