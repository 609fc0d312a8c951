"""Statements of the frequent transactions: compiled once, and executed by the database driver itself.

SQLAlchemy spends more time on a short statement than SQLite does. Decisions and rewards therefore compile their
statements once and pass them to the driver; everything else uses SQLAlchemy as usual.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, TypeVar

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ClauseElement,
    ColumnElement,
    Connection,
    Dialect,
    Table,
    any_,
    bindparam,
    cast,
    func,
    select,
    text,
)

MAX_IN_LIST = 512
"""Values in one IN list. Both databases limit the parameters of a statement; more values need more statements."""

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
    """A statement with conditions that a column is among the values of a list, which is one parameter.

    `clause` gets a function that makes such a condition of a column and the name of the list.
    """

    def __init__(self, clause: Callable[[Among], ClauseElement]) -> None:
        self._local, self._remote = Statement(clause(_in_json)), Statement(clause(_in_array))

    def of(self, remote: bool, lists: Mapping[str, Iterable[int]]) -> tuple[Statement, Values]:
        """Return the statement, and its parameters."""
        if remote:
            return self._remote, {name: list(values) for name, values in lists.items()}
        return self._local, {name: json.dumps(list(values)) for name, values in lists.items()}


Among = Callable[[ColumnElement[Any], str], ColumnElement[bool]]


def _in_json(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    return column.in_(select(func.json_each(bindparam(name)).table_valued("value").c.value))


def _in_array(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    return column == any_(cast(bindparam(name), ARRAY(BigInteger)))


class _Batch:
    """Statements that are sent to PostgreSQL as one message."""

    def __init__(self, raw: Any) -> None:
        from psycopg import ClientCursor

        self._raw, self._bound = raw, ClientCursor(raw)
        self._texts: list[str] = []
        self._rows: list[list[Any]] = []

    def ask(self, query: str, values: Any) -> Callable[[], list[Any]]:
        """Append a statement, and return a function that returns its rows once they are sent."""
        number = len(self._texts)
        self._texts.append(self._bound.mogrify(query, values))
        return lambda: self._rows[number]

    def send(self, commit: bool) -> None:
        """Send all statements, and wait for their rows."""
        if commit:
            self._texts.append("COMMIT")
        if not self._texts:
            return
        cursor = self._raw.cursor()
        cursor.execute(";".join(self._texts), prepare=False)
        while True:
            self._rows.append([] if cursor.description is None else cursor.fetchall())
            if not cursor.nextset():
                return


class Driver:
    """The driver's own connection, inside a transaction of SQLAlchemy's."""

    def __init__(self, connection: Connection) -> None:
        pooled: Any = connection.connection
        self._raw = pooled.driver_connection
        self._cursor = self._raw.cursor()
        self._dialect = connection.dialect
        self._batch: _Batch | None = None
        self.is_remote = connection.dialect.name == "postgresql"  # each query is a round trip, unless in a batch

    @contextmanager
    def batch(self, *, commit: bool = False) -> Iterator[None]:
        """Open a block whose statements are sent as one message when it ends, and maybe committed (PostgreSQL).

        Their answers can be read after the block. The driver waits once, where it would for each statement even in a
        pipeline: after each wait, the thread needs Python's lock again, for which the threads of a service compete.
        """
        if not self.is_remote or self._batch is not None:
            yield
            return
        self._batch = batch = _Batch(self._raw)
        try:
            yield
        finally:
            self._batch = None
        batch.send(commit)

    def ask(self, statement: Statement, values: Values) -> Callable[[], list[Any]]:
        """Send a query, and return a function that returns its rows."""
        query, bind = statement.compiled(self._dialect)
        if self._batch is not None:
            return self._batch.ask(query, bind(values))
        self._cursor.execute(query, bind(values))
        found: list[Any] = self._cursor.fetchall()  # at once: on SQLite, a query not read to its end keeps a lock
        return lambda: found

    def ask_in(self, statement: ListStatement, **lists: Iterable[int]) -> Callable[[], list[Any]]:
        """Send a query about all values of these lists, and return a function that returns its rows."""
        return self.ask(*statement.of(self.is_remote, lists))

    def rows(self, statement: Statement, values: Values) -> list[Any]:
        """Execute a query and return its rows as tuples."""
        return self.ask(statement, values)()

    def run(self, statement: Statement, values: Values) -> None:
        """Execute a statement."""
        query, bind = statement.compiled(self._dialect)
        if self._batch is not None:
            self._batch.ask(query, bind(values))
        else:
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
