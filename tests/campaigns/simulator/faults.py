"""Connections that fail on demand: at a chosen statement or commit, before or after it took effect.

The store under test uses them without knowing: `installed` gives its engines connections of these classes. One fault is
armed for one operation. It is an error of the database, a lost connection, the death of the process, or a pause in
which another process does something.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import Any
from unittest.mock import patch

import sqlalchemy
from sqlalchemy import Engine, event

from kofn.campaigns.store import database as store

MAX_STATEMENT = 14
"""The last statement of an operation at which a fault is armed. Most operations have fewer, and then succeed."""


class Killed(BaseException):
    """The simulated process was killed: no handler of the code under test may stop this."""


@dataclass
class Fault:
    """What happens (error, lost, kill or pause), and where: before or after this statement or, if it is 0, the commit.

    In a pause, `meanwhile` is called: unless something was committed before, so it comes before all of the operation.
    """

    what: str
    when: str
    statement: int
    meanwhile: Callable[[], None] | None = None

    def __str__(self) -> str:
        return f"{self.what} {self.when} {f'statement {self.statement}' if self.statement else 'commit'}"


class Faults:
    """The fault that is armed, and what has become of it."""

    def __init__(self) -> None:
        self.arm(None)

    def arm(self, fault: Fault | None) -> None:
        """Start an operation, with a fault or without one."""
        self.armed: Fault | None = fault
        self.fired: Fault | None = None
        self.statements, self.commits = 0, 0

    def around(self, connection: Any, error: type[Exception], sql: object, run: Callable[[], Any]) -> Any:
        """Run a statement or a commit, and fail before or after it if the fault is armed for it."""
        if self.armed is None:
            return run()
        number = 0
        if sql != "COMMIT":
            self.statements += 1
            number = self.statements
        self._at(connection, error, "before", number)
        result = run()
        self.commits += sql == "COMMIT"
        self._at(connection, error, "after", number)
        return result

    def _at(self, connection: Any, error: type[Exception], when: str, number: int) -> None:
        fault = self.armed
        if fault is None or (fault.when, fault.statement) != (when, number):
            return
        self.armed = None
        if fault.meanwhile is not None:
            if not self.commits:
                self.fired = fault
                fault.meanwhile()
            return
        self.fired = fault
        if fault.what != "error":
            connection.drop()
        if fault.what == "kill":
            raise Killed
        raise error(f"simulated: {fault}")


def draw_fault(rng: Random, meanwhile: Callable[[], None]) -> Fault:
    """Return a random fault. A statement that took effect gives no error, but its answer can be lost."""
    statement = 0 if rng.random() < 0.4 else rng.randint(1, MAX_STATEMENT)
    if rng.random() < 0.3:
        return Fault("pause", "before", statement, meanwhile)
    when = rng.choice(["before", "after"])
    return Fault(rng.choice(["lost", "kill"] if when == "after" else ["error", "lost", "kill"]), when, statement)


FAULTS = Faults()
"""The faults of the simulation in this process, which runs one operation at a time."""


class _Cursor(sqlite3.Cursor):
    def execute(self, sql: str, *values: Any) -> Any:
        name = "COMMIT" if sql.upper() == "COMMIT" else sql
        run = lambda: super(_Cursor, self).execute(sql, *values)  # noqa: E731
        return FAULTS.around(self.connection, sqlite3.OperationalError, name, run)

    def executemany(self, sql: str, *values: Any) -> Any:
        run = lambda: super(_Cursor, self).executemany(sql, *values)  # noqa: E731
        return FAULTS.around(self.connection, sqlite3.OperationalError, sql, run)


class _Connection(sqlite3.Connection):
    """A connection that can fail. When it is closed, another process may get it: SQLite has compiled its statements."""

    file = ""

    def cursor(self, factory: Any = _Cursor) -> Any:
        return super().cursor(_Cursor)

    def close(self) -> None:
        try:
            self.rollback()
        except sqlite3.ProgrammingError:  # it was dropped
            return
        if self not in _idle[self.file]:
            _idle[self.file].append(self)

    def commit(self) -> None:
        FAULTS.around(self, sqlite3.OperationalError, "COMMIT", super().commit)

    def drop(self) -> None:
        """Close the connection. SQLite keeps a lock until the last cursor is gone, so end the transaction first."""
        self.rollback()
        super().close()


_idle: defaultdict[str, list[_Connection]] = defaultdict(list)
"""Connections that were closed, by file."""


def _sqlite(cargs: list[Any], cparams: dict[str, Any]) -> Any:
    file = cargs[0]
    if _idle[file]:
        return _idle[file].pop()
    # Nobody else runs while one waits for a lock.
    connection = sqlite3.connect(*cargs, **(cparams | {"factory": _Connection, "timeout": 0.0}))
    connection.file = file
    return connection


def _postgres(cargs: list[Any], cparams: dict[str, Any]) -> Any:
    import psycopg

    class Cursor(psycopg.Cursor[Any]):
        def execute(self, query: Any, *values: Any, **options: Any) -> Any:
            run = lambda: super(Cursor, self).execute(query, *values, **options)  # noqa: E731
            name = "COMMIT" if query.endswith("COMMIT") else query
            return FAULTS.around(self.connection, psycopg.OperationalError, name, run)

        def executemany(self, query: Any, *values: Any, **options: Any) -> None:
            run = lambda: super(Cursor, self).executemany(query, *values, **options)  # noqa: E731
            FAULTS.around(self.connection, psycopg.OperationalError, query, run)

    class Connection(psycopg.Connection[Any]):
        def commit(self) -> None:
            if self.info.transaction_status:
                FAULTS.around(self, psycopg.OperationalError, "COMMIT", super().commit)

        def drop(self) -> None:
            self.close()

    return Connection.connect(*cargs, **(cparams | {"cursor_factory": Cursor}))


_engines: dict[str, Engine] = {}


def _create_engine(url: Any, **options: Any) -> Engine:
    """Return a new engine with its own connections. Engines of one URL share their compiled statements, for speed."""
    name = f"{url} {sorted(options)}"
    if name not in _engines:
        made = _engines[name] = sqlalchemy.create_engine(url, **options)
        connect = _sqlite if url.get_backend_name() == "sqlite" else _postgres
        event.listen(made, "do_connect", lambda dialect, record, cargs, cparams: connect(cargs, cparams))
        made.connect().close()  # the dialect asks for the server's version once
        made.dispose()
    first = _engines[name]
    engine = Engine(first.pool.recreate(), first.dialect, first.url)
    engine._compiled_cache = first._compiled_cache
    return engine


@contextmanager
def installed() -> Iterator[None]:
    """Give all stores that are opened in this block connections that can fail."""
    FAULTS.arm(None)
    # They report lost connections.
    reporting = [logging.getLogger(name) for name in ("sqlalchemy.pool", "psycopg", "kofn.campaigns")]
    levels = [each.level for each in reporting]
    for each in reporting:
        each.setLevel(logging.CRITICAL + 1)
    try:
        with patch.object(store, "create_engine", _create_engine):
            yield
    finally:
        for each, level in zip(reporting, levels, strict=True):
            each.setLevel(level)
        FAULTS.arm(None)
        for engine in _engines.values():
            engine.dispose()
        _engines.clear()
        for connection in chain.from_iterable(_idle.values()):
            connection.drop()
        _idle.clear()
