"""How results look in a terminal: tables and JSON."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from kofn.lab.compare import Comparison
    from kofn.lab.paper import PanelResult
    from kofn.lab.theory import ThompsonBudget

PIPED_WIDTH = 120
"""Width of tables in a file or pipe, in characters, if the environment variable COLUMNS is not set."""


def progress_bar(title: str) -> AbstractContextManager[Callable[[int, int], None]]:
    """Show a progress bar on stderr, only at a terminal."""
    from kofn.core import progress  # here, so that `--help` does not import NumPy

    return progress.progress_bar(title)


def echo_json(value: Any) -> None:
    """Print the value as JSON on stdout."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def new_table(title: str, *columns: str, names: int = 1) -> Table:
    """Return an empty table. Its first `names` columns are never wrapped or cut."""
    from rich import box
    from rich.table import Table

    table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        justify: Any = "left" if index == 0 or not title else "right"
        table.add_column(column, justify=justify, no_wrap=index < names, overflow="fold")
    return table


def pairs(title: str, rows: Mapping[str, str | None]) -> Table:
    """Return a table of names and values, one row each; rows whose value is None are left out."""
    table = new_table("", title, "")
    for name, value in rows.items():
        if value is not None:
            table.add_row(name, value)
    return table


def panel_table(result: PanelResult) -> Table:
    """Return a figure of the paper as a table."""
    title = f"{result.panel.title}: regret after {result.horizon:,} plays, mean of {result.runs} runs"
    table = new_table(title, "policy", "K", "regret", "± 95 %", *PUBLISHED, "found best", "explored")
    for k in result.panel.ks:
        for cell in result.at(k):
            table.add_row(
                cell.policy.name,
                str(k),
                f"{cell.final:,.0f}",
                f"{cell.band.high[-1] - cell.final:,.0f}",
                f"{cell.theirs:,.0f}" if cell.theirs is not None else "",
                f"{cell.ratio:.2f}" if cell.ratio is not None else "",
                "{:.2f} to {:.2f}".format(*cell.ratio_interval) if cell.ratio_interval else "",
                f"{cell.deviations:+.1f}" if cell.deviations is not None else "",
                f"{cell.found:.0%}",
                f"{cell.exploration:,.0f}",
            )
        for name, regret in result.published_values(k).items():
            table.add_row(f"{name} (published)", str(k), "", "", f"{regret:,.0f}", "", "", "", "", "")
        table.add_section()
    if result.compared_at is None:
        _remove(table, PUBLISHED)
    return table


def forecast_table(forecast: ThompsonBudget, size: str) -> Table:
    """Return what `thompson` is expected to lose and find, one row for each family of problems."""
    close = f"within {forecast.close:g} of best after"
    names = ("random problems", "regret", "± 95 %", "per play", "found best", "final gap", close)
    table = new_table(f"thompson, {size}", *names)
    for each in forecast.families:
        after = each.settled_90
        table.add_row(
            each.family,
            _two_digits(each.regret),
            _two_digits(each.regret_error),
            f"{each.regret / forecast.horizon:.2g}",
            f"{each.found_best:.0%}",
            f"{each.final_gap:.2g}",
            f"{after:,} plays" if after is not None else "more plays",
        )
    return table


def _two_digits(value: float) -> str:
    """Return a number with at least two digits, and no decimals where two digits do not need them."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.2g}"


PUBLISHED = ("published", "ours / published", "its 95 %", "deviations")


def panel_notes(result: PanelResult) -> Iterator[str]:
    """Yield at which play the runs are compared with the paper, and for each K the order of the algorithms."""
    if result.compared_at is not None:
        yield f"Published values, ratios and orders are those after {result.compared_at:,.0f} plays."
        yield "deviations: published minus ours, in standard deviations between our runs."
    else:
        yield "Not compared with the paper: it has no curve here, or none of its points is within this horizon."
    for k in result.panel.ks:
        ours, theirs = result.orders(k)
        if len(ours) > 1:
            verdict = "as published" if ours == theirs else f"published: {' < '.join(theirs)}"
            yield f"K = {k}: {' < '.join(ours)} ({verdict})"


def show(*parts: Any, optional: Sequence[str] = ()) -> None:
    """Print tables and text, as wide as the terminal.

    If a table is too wide, its `optional` columns are left out, the first of them first, and a note names them.
    """
    from rich.console import Console
    from rich.table import Table

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # the reader closed the pipe: main() ends without a message

    as_given: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}  # [/] or :bug: may be a name
    console = Piped(**as_given, soft_wrap=False)
    if not console.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        console = Piped(**as_given, width=PIPED_WIDTH)
    for part in parts:
        if part == "":
            continue
        left_out = _narrowed(part, console, optional) if isinstance(part, Table) else []
        console.print(part)
        if left_out:
            console.print(f"Not shown at this width: {', '.join(left_out)}. Use a wider terminal or --json.")


def _narrowed(table: Table, console: Console, optional: Sequence[str]) -> list[str]:
    """Remove optional columns until the table fits, and return their names."""
    from rich.measure import Measurement

    left_out: list[str] = []
    unlimited = console.options.update(max_width=10_000)
    for name in optional:
        if Measurement.get(console, unlimited, table).maximum <= console.width:
            break
        _remove(table, [name])
        left_out.append(name)
    return left_out


def _remove(table: Table, names: Sequence[str]) -> None:
    """Remove the columns of these names."""
    table.columns[:] = [column for column in table.columns if column.header not in names]


def picture(out: Path | None, name: str, *, for_people: bool) -> Path | None:
    """Return the path of the picture: OUT, or else a file in the folder out if the output is for people.

    Without matplotlib, a note is printed and no picture is drawn.
    """
    if out is not None or not for_people:
        return out
    if find_spec("matplotlib") is None:
        click.echo("kofn: note: no picture, because matplotlib is missing: pip install 'kofn[plots]'", err=True)
        return None
    return Path("out") / name


def write_picture(figure: Any, out: Path) -> None:
    """Write a figure to OUT.png and OUT.svg, and print their names on stderr."""
    from kofn.core.pictures import save_figure

    out.parent.mkdir(parents=True, exist_ok=True)
    click.echo(f"wrote {', '.join(map(str, save_figure(figure, out)))}", err=True)


def write_whole(out: Path, pieces: Iterable[bytes], *, private: bool = False) -> None:
    """Write a file completely or not at all, unless it is a link or a device.

    A new file that is `private` can be read by its owner only.
    """
    whole = not out.is_symlink() and (out.is_file() or not out.exists())
    target = out.with_name(f".{out.name}.{secrets.token_hex(4)}.part") if whole else out
    mode = 0o600 if private else 0o666
    try:
        with open(target, "xb" if whole else "wb", opener=lambda path, flags: os.open(path, flags, mode)) as file:
            file.writelines(pieces)
        if whole:
            os.replace(target, out)
    except OSError as why:
        why.filename = str(out)  # instead of the part, or of nothing when the disk is full
        raise
    finally:
        if whole:
            target.unlink(missing_ok=True)


@contextmanager
def resumable(place: Path | None, what: str = "the finished runs") -> Iterator[None]:
    """Run a block; if it is interrupted or fails, print on stderr where the results so far are.

    A command that is refused (BadInput) has no results.
    """
    from kofn.core import BadInput

    try:
        yield
    except BaseException as why:
        if place is not None and place.exists() and not isinstance(why, BadInput | SystemExit | GeneratorExit):
            click.echo(f"kofn: {what} are in {place}: the same command resumes from there", err=True)
        raise


OPTIONAL = ("state", "s per run", "plan rows", "worst run", "high", "95 % low")
"""Columns of a comparison that a narrow terminal does not show; the first is left out first."""


def comparison_table(result: Comparison) -> Table:
    """Return a comparison as a table, best policy first."""
    from kofn.lab.compare import COLUMNS, cells

    title = f"{result.problem}: regret after {result.horizon:,} plays, {result.runs} runs"
    table = new_table(title, *COLUMNS)
    for row in result.rows:
        table.add_row(*cells(row))
    return table
