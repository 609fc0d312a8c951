"""Statements of the frequent transactions: compiled once, and executed by the database driver itself.

SQLAlchemy spends more time on a short statement than SQLite does. Decisions and rewards therefore compile their
statements once and pass them to the driver; everything else uses SQLAlchemy as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from sqlalchemy import BindParameter, ClauseElement, Connection, bindparam

MAX_IN_LIST = 512
"""Values in one IN list. Both databases limit the parameters of a statement; more values need more statements."""

T = TypeVar("T")
Values = Mapping[str, Any]


def chunks(values: list[T]) -> Iterable[list[T]]:
    """Split values into lists that one statement can take."""
    return (values[start : start + MAX_IN_LIST] for start in range(0, len(values), MAX_IN_LIST))


class Statement:
    """A statement, compiled once for each database."""

    def __init__(self, clause: ClauseElement) -> None:
        self._clause = clause
        self._compiled: dict[str, tuple[str, list[str] | None, dict[str, Any]]] = {}

    def bind(self, connection: Connection, rows: Sequence[Values]) -> tuple[str, Sequence[Any]]:
        """Return the text, and the parameters for each row as the driver takes them."""
        name = connection.dialect.name
        if name not in self._compiled:
            compiled: Any = self._clause.compile(dialect=connection.dialect)
            constants = {key: value for key, value in compiled.params.items() if value is not None}
            self._compiled[name] = str(compiled), compiled.positiontup if compiled.positional else None, constants
        text, names, constants = self._compiled[name]
        if constants:
            rows = [{**constants, **row} for row in rows]
        return text, rows if names is None else [[row[name] for name in names] for row in rows]


class ListStatement:
    """A statement with an IN list, compiled for 1, 2, 4, 8... values. A shorter list repeats its last value."""

    def __init__(self, clause: Callable[[list[BindParameter[Any]]], ClauseElement]) -> None:
        self._clause = clause
        self._statements: dict[int, Statement] = {}

    def of(self, values: Sequence[Any]) -> tuple[Statement, dict[str, Any]]:
        """Return the statement for a list of this length, and the parameters of the list."""
        size = 1 << (len(values) - 1).bit_length()
        if size not in self._statements:
            self._statements[size] = Statement(self._clause([bindparam(f"in_{index}") for index in range(size)]))
        padded = {f"in_{index}": values[min(index, len(values) - 1)] for index in range(size)}
        return self._statements[size], padded


class Driver:
    """The driver's own connection, inside a transaction of SQLAlchemy's."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cursor: Any = connection.connection.cursor()
        self._pipelined = connection.dialect.name == "postgresql"

    def pipeline(self) -> AbstractContextManager[Any]:
        """Open a block in which statements are sent without waiting for the response of the one before (PostgreSQL)."""
        raw: Any = self._connection.connection.driver_connection
        return raw.pipeline() if self._pipelined else nullcontext()

    def ask(self, statement: Statement, values: Values) -> Callable[[], list[Any]]:
        """Send a query, and return a function that returns its rows. In a pipeline, several are sent at once."""
        cursor: Any = self._connection.connection.cursor()
        text, (bound,) = statement.bind(self._connection, [values])
        cursor.execute(text, bound)
        if self._pipelined:
            return cursor.fetchall  # type: ignore[no-any-return]
        found: list[Any] = cursor.fetchall()  # at once: on SQLite, a query that is not read to its end keeps a lock
        return lambda: found

    def ask_in(self, statement: ListStatement, values: Values, listed: Iterable[int]) -> list[Callable[[], list[Any]]]:
        """Send a query for all values of a list, in several statements if they are many."""
        asked = []
        for some in chunks(sorted(set(listed))):
            query, padded = statement.of(some)
            asked.append(self.ask(query, {**values, **padded}))
        return asked

    def rows(self, statement: Statement, values: Values) -> list[Any]:
        """Execute a query and return its rows as tuples."""
        return self.ask(statement, values)()

    def rows_in(self, statement: ListStatement, values: Values, listed: Iterable[int]) -> list[Any]:
        """Execute a query for all values of a list, and return its rows."""
        return [row for answer in self.ask_in(statement, values, listed) for row in answer()]

    def run(self, statement: Statement, values: Values) -> None:
        """Execute a statement."""
        text, (bound,) = statement.bind(self._connection, [values])
        self._cursor.execute(text, bound)

    def run_many(self, statement: Statement, rows: Sequence[Values]) -> None:
        """Execute a statement once per row."""
        text, bound = statement.bind(self._connection, rows)
        if len(bound) == 1:
            self._cursor.execute(text, bound[0])
        else:
            self._cursor.executemany(text, bound)
