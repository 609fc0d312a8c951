"""Reads the rows of a log from a file: CSV, JSON lines or Parquet, by what the file contains.

An error never repeats the content of a file at length: it may be large, or secret.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from kofn.core import BadInput, MissingExtra
from kofn.core.checks import shown

Row = Mapping[str, Any]

_START = 4096
"""Bytes of a file by which its kind is recognised."""

_BINARY = {
    b"SQLite format 3": "a SQLite database. If it is a store, export a campaign's decisions: "
    "`kofn campaign decisions NAME --store sqlite:///{path} --out log.csv`",
    b"\x1f\x8b": "compressed with gzip: decompress it first",
    b"PK\x03\x04": "a ZIP archive, such as a spreadsheet: save it as CSV first",
}
"""How files begin that are not a log, and what to say about them."""

_CAMPAIGN = re.compile(rb'\{\s*"kofn"\s*:\s*"exported campaign"')
_SHOWN_COLUMNS = 12


def read_rows(path: str | Path, needed: Sequence[str]) -> tuple[list[str], Iterator[tuple[str, Row]]]:
    """Return the columns of a log, and its rows, each with its place for errors; refuse other files."""
    file = Path(path)
    with file.open("rb") as opened:
        start = opened.read(_START).removeprefix(codecs.BOM_UTF8).lstrip()
    if start.startswith(b"PAR1"):
        have, rows = _parquet_rows(file)
    else:
        _refuse_others(file, start)
        have, rows = _json_rows(file) if start.startswith(b"{") else _csv_rows(file)
    if missing := [name for name in needed if name not in have]:
        raise BadInput(f"{path} has no column {missing[0]!r}; it has: {_listed(have)}")
    return have, rows


def _refuse_others(file: Path, start: bytes) -> None:
    for magic, what in _BINARY.items():
        if start.startswith(magic):
            raise BadInput(f"{file} is {what.format(path=file)}")
    if b"\x00" in start:
        raise BadInput(f"{file} is a binary file: a log is a CSV file, JSON lines or a Parquet file")
    if _CAMPAIGN.match(start):
        raise BadInput(
            f"{file} is an exported campaign, which is for `kofn campaign import`: use "
            "`kofn campaign decisions NAME --out log.csv`, which writes a log"
        )
    if start.startswith(b"["):
        raise BadInput(f"{file} is a JSON list: write one JSON object per line instead")


def _csv_rows(file: Path) -> tuple[list[str], Iterator[tuple[str, Row]]]:
    reader = csv.DictReader(_lines(file, newline=""))

    def rows() -> Iterator[tuple[str, Row]]:
        try:
            yield "", dict.fromkeys(reader.fieldnames or [])
            yield from ((f"line {number}", row) for number, row in enumerate(reader, start=2))
        except csv.Error as why:
            raise BadInput(f"{file} is not a CSV file: {why}") from None

    _, columns = next(found := rows())
    return list(columns), found


def _json_rows(file: Path) -> tuple[list[str], Iterator[tuple[str, Row]]]:
    lines = enumerate(_lines(file, newline="\n"), start=1)
    rows = ((f"line {number}", _json_row(file, number, line)) for number, line in lines if line.strip())
    first = list(islice(rows, 1))
    return [name for _, row in first for name in row], chain(first, rows)


def _json_row(file: Path, number: int, line: str) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise BadInput(f"{file}, line {number} is not a JSON object: a log has one per line") from None
    if not isinstance(row, dict):
        raise BadInput(f"{file}, line {number} is not a JSON object, but {shown(row)}")
    return row


def _parquet_rows(file: Path) -> tuple[list[str], Iterator[tuple[str, Row]]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as missing:
        raise MissingExtra("pyarrow", "parquet") from missing
    try:
        opened = parquet.ParquetFile(file)
        have = list(opened.schema_arrow.names)
    except (pyarrow.ArrowException, OSError) as why:
        raise BadInput(f"{file} is not a complete Parquet file: {str(why)[:200]}") from None

    def rows() -> Iterator[tuple[str, Row]]:
        number = 0
        with opened:
            for batch in opened.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row

    return have, rows()


def _lines(file: Path, newline: str) -> Iterator[str]:
    try:
        with file.open(newline=newline, encoding="utf-8-sig") as opened:
            yield from opened
    except UnicodeDecodeError as why:
        raise BadInput(f"{file} is not text in UTF-8: {why.reason} at byte {why.start}") from None


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_COLUMNS} more" if len(names) > _SHOWN_COLUMNS else ""
    return (", ".join(shown(name)[1:-1] for name in names[:_SHOWN_COLUMNS]) or "none") + more
