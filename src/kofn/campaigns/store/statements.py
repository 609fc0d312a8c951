"""Statements of the frequent transactions: compiled once, and executed by the database driver itself.

SQLAlchemy spends more time on a short statement than SQLite does. Decisions and rewards therefore compile their
statements once and pass them to the driver; everything else uses SQLAlchemy as usual.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import itemgetter
from typing import Any, TypeVar

from sqlalchemy import BindParameter, ClauseElement, Connection, Dialect, Table, bindparam, text

MAX_IN_LIST = 512
"""Values in one IN list. Both databases limit the parameters of a statement; more values need more statements."""

_NO_PIPELINE: AbstractContextManager[Any] = nullcontext()

T = TypeVar("T")
Values = Mapping[str, Any]


def chunks(values: list[T]) -> Iterable[list[T]]:
    """Split values into lists that one statement can take."""
    return (values[start : start + MAX_IN_LIST] for start in range(0, len(values), MAX_IN_LIST))


class Statement:
    """A statement, compiled once for each database. An INSERT or UPDATE may be of some `columns` only."""

    def __init__(self, clause: ClauseElement, columns: Sequence[str] | None = None) -> None:
        self._clause, self._columns = clause, columns
        self._compiled: dict[str, tuple[str, Callable[[Values], Any]]] = {}

    def compiled(self, dialect: Dialect) -> tuple[str, Callable[[Values], Any]]:
        """Return the text, and a function that returns the parameters for a row as the driver takes them."""
        found = self._compiled.get(dialect.name)
        if found is None:
            compiled: Any = self._clause.compile(dialect=dialect, column_keys=self._columns)
            constants = {key: value for key, value in compiled.params.items() if value is not None}
            bind = _binder(compiled.positiontup if compiled.positional else None, constants)
            found = self._compiled[dialect.name] = str(compiled), bind
        return found


def _binder(names: Sequence[str] | None, constants: Values) -> Callable[[Values], Any]:
    """Return a function that returns the parameters of a statement: by position if it has `names`, else by name."""
    if constants:
        bind = _binder(names, {})
        return lambda row: bind({**constants, **row})
    if names is None:
        return lambda row: row
    return itemgetter(*names) if len(names) > 1 else lambda row: [row[name] for name in names]


class Insert(Statement):
    """Inserts rows into a table. `many` takes all of them in one parameter, as JSON (PostgreSQL)."""

    def __init__(self, table: Table) -> None:
        super().__init__(table.insert())
        names = ", ".join(f'"{column.name}"' for column in table.columns)
        rows = f"json_populate_recordset(CAST(NULL AS {table.name}), CAST(:rows AS json))"
        self.many = Statement(text(f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {rows}"))


class ListStatement:
    """A statement with an IN list, compiled for 1, 2, 4, 8... values. A shorter list repeats its last value."""

    def __init__(self, clause: Callable[[list[BindParameter[Any]]], ClauseElement]) -> None:
        self._clause = clause
        self._statements: dict[int, Statement] = {}

    def of(self, values: Sequence[Any]) -> tuple[Statement, dict[str, Any]]:
        """Return the statement for a list of this length, and the parameters of the list."""
        if len(values) == 1 and 1 in self._statements:
            return self._statements[1], {"in_0": values[0]}
        size = 1 << (len(values) - 1).bit_length()
        if size not in self._statements:
            self._statements[size] = Statement(self._clause([bindparam(f"in_{index}") for index in range(size)]))
        padded = {f"in_{index}": values[min(index, len(values) - 1)] for index in range(size)}
        return self._statements[size], padded


class Driver:
    """The driver's own connection, inside a transaction of SQLAlchemy's."""

    def __init__(self, connection: Connection) -> None:
        pooled: Any = connection.connection
        self._raw = pooled.driver_connection
        self._cursor = self._raw.cursor()
        self._dialect = connection.dialect
        self.is_remote = connection.dialect.name == "postgresql"  # each query is a round trip, unless pipelined

    def pipeline(self) -> AbstractContextManager[Any]:
        """Open a block in which statements are sent without waiting for the response of the one before (PostgreSQL)."""
        return self._raw.pipeline() if self.is_remote else _NO_PIPELINE

    def ask(self, statement: Statement, values: Values) -> Callable[[], list[Any]]:
        """Send a query, and return a function that returns its rows. In a pipeline, several are sent at once."""
        query, bind = statement.compiled(self._dialect)
        if self.is_remote:
            return self._raw.cursor().execute(query, bind(values)).fetchall  # type: ignore[no-any-return]
        self._cursor.execute(query, bind(values))
        found: list[Any] = self._cursor.fetchall()  # at once: on SQLite, a query not read to its end keeps a lock
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
        query, bind = statement.compiled(self._dialect)
        self._cursor.execute(query, bind(values))

    def run_many(self, statement: Statement, rows: Sequence[Values]) -> None:
        """Execute a statement once per row."""
        if len(rows) == 1:
            self.run(statement, rows[0])
        elif self.is_remote and isinstance(statement, Insert):
            self.run(statement.many, {"rows": json.dumps(rows)})
        else:
            query, bind = statement.compiled(self._dialect)
            self._cursor.executemany(query, list(map(bind, rows)))
