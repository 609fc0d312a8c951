"""What the benchmarks share: rows, means with their errors, and a command line that prints rows as CSV."""

import argparse
import csv
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from kofn.lab.curves import half_width

Row = dict[str, Any]
"""One result: plain values by the names of their columns. None is an empty cell."""

LEVEL = 0.95
"""Confidence level of the columns `..._error`, which are half the widths of Student's intervals."""


def with_error(name: str, values: Any) -> Row:
    """Return the columns of a mean and of its error."""
    found = np.asarray(values, float)
    return {name: float(found.mean()), f"{name}_error": float(half_width(found[:, None], LEVEL)[0])}


def seeds_of(seed: int, run: int) -> list[np.random.SeedSequence]:
    """Return the seeds of the problem, the policy and the plays of one run."""
    return np.random.SeedSequence([seed, run]).spawn(3)


def show(rows: Iterable[Row]) -> None:
    """Print rows as CSV while they are computed, with a new header when the columns change."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    columns: list[str] = []
    for row in rows:
        if list(row) != columns:
            columns = list(row)
            writer.writerow(columns)
        writer.writerow([f"{each:.6g}" if isinstance(each, float) else each for each in row.values()])
        sys.stdout.flush()


def run(rows: Callable[..., Iterable[Row]], doc: str | None, arguments: Sequence[str] | None = None) -> None:
    """Print the rows of a benchmark. The arguments of `rows` are the options of the command; all have defaults."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, each in inspect.signature(rows).parameters.items():
        option, default = f"--{name.replace('_', '-')}", each.default
        if isinstance(default, bool):
            parser.add_argument(option, action="store_true")
        elif isinstance(default, tuple):
            parser.add_argument(option, nargs="+", type=type(default[0]) if default else str, default=default)
        else:
            parser.add_argument(option, type=str if default is None else type(default), default=default)
    show(rows(**vars(parser.parse_args(arguments))))
