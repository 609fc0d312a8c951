"""Transactions that write, as context managers: all of a block is stored, or nothing.

An interrupt (Ctrl-C) may arrive at any moment, also just before a block is left. `end` undoes what is left of the
transaction, whatever that is, and may be called again.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from typing import Any

from sqlalchemy import Connection, Engine

from kofn.campaigns.store import sqlite_file
from kofn.core import StoreError


class Writer(ABC):
    """A transaction that writes."""

    def __enter__(self) -> Connection:
        """Begin."""
        try:
            return self._begin()
        except BaseException:
            self.end()
            raise

    def __exit__(self, kind: object, why: BaseException | None, _: object) -> None:
        """Commit; after an error, undo everything."""
        try:
            if why is None:
                self._commit()
        finally:
            self.end()

    @abstractmethod
    def _begin(self) -> Connection:
        """Wait for other writers, and begin."""

    @abstractmethod
    def _commit(self) -> None:
        """Commit."""

    @abstractmethod
    def end(self) -> None:
        """Undo what is not committed, if anything is, and let others write."""


class SqliteWriter(Writer):
    """The connection that writes to an SQLite file: it stays open, and one thread at a time uses it.

    SQLite has one writer at a time. Threads wait for a lock instead of polling the file.
    """

    def __init__(self, engine: Engine, name: str, patience: float) -> None:
        self._engine, self._name, self._patience = engine, name, patience
        self.waited = 0.0  # seconds that the latest transaction waited for others
        self._lock: Any = threading.RLock()
        self._connection: Connection | None = None
        self._raw: Any = None
        self._files: sqlite_file.OpenedFiles | None = None  # of the connection
        self._open = False  # whether something may have to be undone

    def _begin(self) -> Connection:
        """Wait for other threads and processes, and begin."""
        began = time.monotonic()
        if not self._lock.acquire(timeout=self._patience):
            waited = f"another thread has written to it for {self._patience:g} seconds"
            raise StoreError(f"the store {self._name} is busy: {waited}")
        self._open = True
        connection = self._connection
        if connection is None:
            connection = self._connection = self._engine.connect()
            self._raw = connection.connection.driver_connection
            self._files = connection.info[sqlite_file.OPENED]
        self._raw.execute("BEGIN IMMEDIATE")
        self.waited = time.monotonic() - began
        return connection

    def _check_files(self) -> None:
        """Raise StoreError if the connection writes to a file that nobody will open again."""
        assert self._files is not None
        path = self._files.missing()
        if path is not None:
            what = "deleted or moved" if sqlite_file.identity(path) is None else "replaced by another file"
            raise StoreError(
                f"the file {path} of the store {self._name} was {what} while this process uses it, so nothing is "
                "written. Stop all its processes; put the file back with those beside it (-wal, -shm), or restore "
                "a backup; start them again"
            )

    def _commit(self) -> None:
        self._check_files()
        self._raw.commit()
        assert self._connection is not None
        self._connection.commit()  # of SQLAlchemy's own transaction, if a statement has begun one
        self._open = False

    def end(self) -> None:
        """Undo what is not committed, if anything is, and let other threads write."""
        if not self._lock._is_owned():
            return
        try:
            if self._open:
                self._undo()
        finally:
            self._lock.release()

    def _undo(self) -> None:
        connection = self._connection
        if connection is not None:
            try:
                self._raw.rollback()
                connection.rollback()
            except (sqlite3.Error, AttributeError):  # SQLAlchemy drops the connection of an interrupted statement
                self._connection = self._raw = None
                connection.invalidate()
                connection.close()
        self._open = False

    def close(self) -> None:
        """Close the connection, when no other thread uses it. It is opened again on demand."""
        with self._lock:
            connection, self._connection, self._raw = self._connection, None, None
            if connection is not None:
                connection.invalidate()
                connection.close()

    def close_after_fork(self) -> None:
        """Close the connection in a child process, unless a thread of the parent used it at that moment."""
        if self._lock.acquire(blocking=False) and not self._open and self._raw is not None:
            self._raw.close()


class PostgresWriter(Writer):
    """A transaction on one of the connections to PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None

    def _begin(self) -> Connection:
        self._connection = self._engine.connect()
        self._connection.begin()
        return self._connection

    def _commit(self) -> None:
        """Commit without SQLAlchemy, which would not undo a transaction whose commit has failed."""
        assert self._connection is not None
        self._connection.connection.commit()

    def end(self) -> None:
        """Give the connection back, which undoes what is not committed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
