"""Files of decisions: CSV, JSON lines and Parquet, written piece by piece, and a data frame.

All have the same columns, in the order of `COLUMNS`. JSON lines have the values as `LoggedDecision.to_dict` gives them.
In CSV and Parquet, a subset is text, such as "0 3", and metadata, context and metrics are JSON; arms are a list in
Parquet, and JSON in CSV.
Text that a spreadsheet would take for a formula has an apostrophe before it in CSV.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any, Literal, get_args

from kofn.core import BadInput, MissingExtra
from kofn.core.checks import shown
from kofn.core.responses import Group, LoggedDecision

FileFormat = Literal["csv", "jsonl", "parquet"]
FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)

MEDIA_TYPES: dict[FileFormat, str] = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}

ROWS = 1000
"""Decisions that are written at once, as CSV or JSON lines. A higher value lets other threads wait for longer."""

ROW_GROUP = 20_000
"""Decisions of one row group of a Parquet file. A higher value makes smaller files, and needs more memory."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
"""Prefixes that CSV escapes with an apostrophe: spreadsheets evaluate formulas, and a visitor may choose a
key. Text that begins with an apostrophe gets another one, so that readers can remove one from each."""

_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""Characters that JSON allows in text, and that some readers of lines take for the end of a line."""


def subset_words(decision: LoggedDecision) -> str:
    """Return the numbers of the arms, separated by spaces."""
    return " ".join(map(str, decision.subset))


def _object(value: dict[str, Any] | None) -> str | None:
    return None if value is None else json_text(value)


_TIME = "datetime64[us, UTC]"
_TABLE: dict[str, tuple[str, str, Callable[[LoggedDecision], Any]]] = {
    "id": ("text", "string", lambda each: each.id),
    "at": ("time", _TIME, lambda each: each.at),
    "subset": ("text", "string", subset_words),
    "arms": ("list", "object", lambda each: each.arms),
    "group": ("text", "category", lambda each: each.group),
    "reward": ("number", "float64", lambda each: each.reward),
    "net_reward": ("number", "float64", lambda each: each.net_reward),
    "rewarded_at": ("time", _TIME, lambda each: each.rewarded_at),
    "propensity": ("number", "float64", lambda each: each.propensity),
    "key": ("text", "string", lambda each: each.key),
    "metadata": ("text", "object", lambda each: _object(each.metadata)),
    "context": ("text", "object", lambda each: _object(each.context)),
    "settled": ("flag", "bool", lambda each: each.settled),
    "metrics": ("text", "object", lambda each: _object(each.metrics)),
}
"""Each column: its type in Parquet, its type in a data frame, and its value for CSV and Parquet."""

COLUMNS = tuple(_TABLE)
_VALUES = [value for _, _, value in _TABLE.values()]


def encoded(decisions: Iterable[LoggedDecision], file_format: str) -> Iterator[bytes]:
    """Yield decisions as a file of this format, in pieces; raise BadInput or MissingExtra at once."""
    if file_format not in FORMATS:
        raise BadInput(f"there is no format {shown(file_format)}; there are: {', '.join(FORMATS)}")
    if file_format == "parquet":
        return _parquet(decisions, *_arrow())
    return (_csv if file_format == "csv" else _jsonl)(decisions)


def json_text(value: Any) -> str:
    """Return a value as JSON on one line. Text that UTF-8 cannot represent is escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_LINE_BREAKS)
    return text.encode("utf-8", "backslashreplace").decode()


def _jsonl(decisions: Iterable[LoggedDecision]) -> Iterator[bytes]:
    for some in _in_groups(decisions, ROWS):
        rows = ({column: row[column] for column in COLUMNS} for row in (each.to_dict() for each in some))
        yield "".join(f"{json_text(row)}\n" for row in rows).encode()


def _csv(decisions: Iterable[LoggedDecision]) -> Iterator[bytes]:
    yield (",".join(COLUMNS) + "\n").encode()
    for some in _in_groups(decisions, ROWS):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([_cell(value(each)) for value in _VALUES] for each in some)
        yield text.getvalue().encode()


def _cell(value: Any) -> Any:
    """Return a value as CSV has it. The writer turns None into nothing, and numbers into all their digits."""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    if isinstance(value, list | bool):
        return json_text(value)
    return value.isoformat() if isinstance(value, datetime) else value


def _in_groups(decisions: Iterable[LoggedDecision], size: int) -> Iterator[list[LoggedDecision]]:
    left = iter(decisions)
    while some := list(islice(left, size)):
        yield some


# Parquet.


class _Pieces(io.RawIOBase):
    """A file that can only be appended to, and whose content is taken out piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        self._size += len(self._pieces[-1])
        return len(self._pieces[-1])

    def tell(self) -> int:
        return self._size

    def take(self) -> bytes:
        taken, self._pieces = b"".join(self._pieces), []
        return taken


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as missing:
        raise MissingExtra("pyarrow", "parquet") from missing
    return pyarrow, parquet


def _parquet(decisions: Iterable[LoggedDecision], arrow: Any, parquet: Any) -> Iterator[bytes]:
    kinds = {"text": arrow.string(), "number": arrow.float64(), "time": arrow.timestamp("us", "UTC")}
    kinds |= {"list": arrow.list_(arrow.string()), "flag": arrow.bool_()}
    schema = arrow.schema([(name, kinds[kind]) for name, (kind, _, _) in _TABLE.items()])
    pieces = _Pieces()
    with parquet.ParquetWriter(pieces, schema) as writer:
        waiting: list[Any] = []
        for some in _in_groups(decisions, ROWS):
            columns = [[value(each) for each in some] for value in _VALUES]
            waiting.append(arrow.record_batch(columns, schema=schema))
            if len(waiting) * ROWS >= ROW_GROUP:
                writer.write_table(arrow.Table.from_batches(waiting, schema))
                waiting = []
                yield pieces.take()
        if waiting:
            writer.write_table(arrow.Table.from_batches(waiting, schema))
    yield pieces.take()


# A data frame.


def to_frame(decisions: Iterable[LoggedDecision]) -> Any:
    """Return decisions as a pandas DataFrame: times in UTC, groups as categories, NaN without a reward."""
    try:
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]
    except ImportError as missing:
        raise MissingExtra("pandas", "pandas") from missing
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for each in decisions:
        for name in COLUMNS:
            columns[name].append(subset_words(each) if name == "subset" else getattr(each, name))
    kinds = {name: kind for name, (_, kind, _) in _TABLE.items()} | {"group": pd.CategoricalDtype(get_args(Group))}
    return pd.DataFrame({name: pd.Series(values, dtype=kinds[name]) for name, values in columns.items()})
