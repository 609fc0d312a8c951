"""How results look in a terminal: tables, JSON, a progress bar."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.table import Table

    from kofn.experiments.compare import Comparison
    from kofn.experiments.paper import PanelResult


def echo_json(value: Any) -> None:
    """The value as JSON, on stdout."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def new_table(title: str, *columns: str) -> Table:
    """An empty table."""
    from rich import box
    from rich.table import Table

    table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 or not title else "right")
    return table


def pairs(title: str, rows: Mapping[str, str | None]) -> Table:
    """Names and values, a row each; what is None is left out."""
    table = new_table("", title, "")
    for name, value in rows.items():
        if value is not None:
            table.add_row(name, value)
    return table


def panel_table(result: PanelResult) -> Table:
    """A figure of the paper as a table."""
    title = f"{result.panel.says}: regret after {result.horizon:,} plays, mean of {result.runs} runs"
    table = new_table(
        title, "policy", "K", "regret", "± 95 %", "published", "ours / published", "found best", "explored"
    )
    for k in result.panel.ks:
        for cell in result.at(k):
            ratio = f"{cell.ratio:.2f}" if cell.ratio is not None else ""
            table.add_row(
                cell.line.name,
                str(k),
                f"{cell.final:,.0f}",
                f"{cell.band.high[-1] - cell.final:,.0f}",
                f"{cell.printed.final:,.0f}" if cell.printed else "",
                ratio,
                f"{cell.found:.0%}",
                f"{cell.exploration:,.0f}",
            )
        for name, curve in result.only_published(k).items():
            table.add_row(f"{name} (published)", str(k), "", "", f"{curve.final:,.0f}", "", "", "")
        table.add_section()
    return table


def order_lines(result: PanelResult) -> Iterator[str]:
    """For each K, the algorithms by regret, and whether the paper has them in that order."""
    for k in result.panel.ks:
        ours, theirs = result.orders(k)
        if len(ours) > 1:
            verdict = "as published" if ours == theirs else f"published: {' < '.join(theirs)}"
            yield f"K = {k}: {' < '.join(ours)} ({verdict})"


def show(*parts: Any) -> None:
    """Print tables and text, as wide as the terminal."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # whoever reads has seen enough: main() ends quietly

    console = Piped(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Piped(highlight=False, width=120)
    for part in parts:
        console.print(part)


def picture(out: Path | None, name: str, *, for_people: bool) -> Path | None:
    """Where the picture goes: where it was wanted or, for people, into the folder out; said if it cannot be drawn."""
    if out is not None or not for_people:
        return out
    if find_spec("matplotlib") is None:
        click.echo("kofn: note: no picture, for matplotlib is not installed: pip install 'kofn[plots]'", err=True)
        return None
    return Path("out") / name


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr with the time left, only at a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn(title), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(
        *columns,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not sys.stderr.isatty(),  # console.is_terminal is true of a file, too, with FORCE_COLOR
    ) as bar:
        waiting = bar.add_task(title)
        tasks: list[Any] = []

        def progress(done: int, of: int) -> None:
            if not tasks:  # a task of its own from here: what a store had at the start says nothing of the speed
                bar.remove_task(waiting)
                tasks.append(bar.add_task(title, total=of, completed=done))
            bar.update(tasks[0], completed=done, total=of)

        yield progress


@contextmanager
def resumable(store: Path | None) -> Iterator[None]:
    """A block that, stopped or failed, says on stderr that what has been done is not lost."""
    try:
        yield
    except BaseException as why:
        if store is not None and store.is_dir() and not isinstance(why, SystemExit | GeneratorExit):
            click.echo(f"kofn: the runs done so far are in {store}: the same command goes on from there", err=True)
        raise


def comparison_table(result: Comparison) -> Table:
    """A comparison as a table, best first."""
    from kofn.experiments.compare import cells

    title = f"{result.problem}: regret after {result.horizon:,} plays, {result.runs} runs"
    table = new_table(
        title, "policy", "regret", "95 % low", "high", "worst run", "found best", "decisions", "s per run", "state"
    )
    for row in result.rows:
        table.add_row(*cells(row))
    return table
