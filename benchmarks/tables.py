"""What the benchmarks of the default policy share: Markdown tables, and a command line that prints one of them."""

import argparse
from collections.abc import Iterable
from typing import Any

import numpy as np

NORMAL_95 = 1.96


def line(*cells: object) -> None:
    """Print a row."""
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def table(*heads: str) -> None:
    """Print the head of a table."""
    line(*heads)
    line(*["---", *["---:"] * (len(heads) - 1)])


def interval(values: Any) -> str:
    """Return the mean and the half-width of its 95 % interval."""
    width = NORMAL_95 * np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):,.0f} ± {width:,.0f}"


def paired(values: Any, base: Any) -> str:
    """Return the ratio of two means over the same instances, and the half-width of its 95 % interval."""
    ours, theirs = np.array(values), np.array(base)
    ratio = ours.mean() / theirs.mean()
    error = (ours - ratio * theirs).std(ddof=1) / np.sqrt(len(ours)) / theirs.mean()
    return f"{ratio:.2f} ± {NORMAL_95 * error:.2f}"


def parser_for(doc: str | None, tables: Iterable[str], *, seed: int, runs: int) -> argparse.ArgumentParser:
    """Return the parser of a command that prints one of these tables."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=list(tables))
    parser.add_argument("--seed", type=int, default=seed)
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that the benchmark works")
    return parser
