"""The command `kofn lab results`: what was measured, as data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kofn.cli.options import AS_JSON, WORKERS
from kofn.cli.output import echo_json, new_table, progress_bar, resumable, show, write_picture

if TYPE_CHECKING:
    from kofn.lab.results import Results


@click.group()
def lab() -> None:
    """What researchers measure with."""


@lab.command()
@click.argument("names", nargs=-1)
@click.option("--run", is_flag=True, help="Compute these results; without NAMES, those that are stale.")
@click.option("--plot", type=click.Path(path_type=Path), help="Write the chart of NAME to this file, as PNG and SVG.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("results"),
    show_default=True,
    help="The folder of the files.",
)
@WORKERS
@AS_JSON
def results(
    names: tuple[str, ...], run: bool, plot: Path | None, folder: Path, workers: int | None, as_json: bool
) -> None:
    """List what was measured; with NAMES, show a summary of each; with --run, compute it.

    Each file in results/ answers one question, and names the versions of the policies in it: it is stale when one of
    them has another version today. An interrupted --run keeps what is finished in build/results, and the same command
    resumes from there.

    \b
    kofn lab results
    kofn lab results leaderboard --plot leaderboard.png
    kofn lab results real-data --json
    kofn lab results --run short-runs
    """
    from kofn.core import BadInput
    from kofn.lab.questions import QUESTIONS
    from kofn.lab.results import question_named, read

    asked = [question_named(name).name for name in dict.fromkeys(names)]
    if run:
        _run(asked, folder, workers)
        return
    if not asked:
        _list([read(name, folder) for name in QUESTIONS], as_json)
        return
    found = [read(name, folder) for name in asked]
    if plot:
        from kofn.lab.plots import draw_results

        if len(found) > 1:
            raise BadInput(f"--plot draws one question; got {len(found)}")
        write_picture(draw_results(found[0]), plot)
    if as_json:
        echo_json({each.question.name: {**each.head, "stale": each.stale, "rows": each.rows} for each in found})
        return
    for each in found:
        head, *body = each.table()
        table = new_table(f"{each.question.asks} ({each.question.chart.label})", *head)
        for row in body:
            table.add_row(*row)
        show(
            table, f"{each.head['date']}, by {each.head['command']}", *([f"stale: {each.stale}"] if each.stale else [])
        )


def _list(found: list[Results], as_json: bool) -> None:
    if as_json:
        echo_json([{"name": each.question.name, **each.head, "stale": each.stale} for each in found])
        return
    table = new_table("results", "name", "date", "policies", "state")
    for each in found:
        few = ", ".join(f"{name} {version}" for name, version in each.policies.items())
        policies = few if len(each.policies) < 4 else f"{len(each.policies)} policies"
        table.add_row(each.question.name, each.head["date"], policies, each.stale or "current")
    show(table)


def _run(asked: list[str], folder: Path, workers: int | None) -> None:
    from kofn.lab.questions import QUESTIONS
    from kofn.lab.results import WORK, cannot_run, read, run, write

    sys.path.insert(0, str(Path.cwd()))  # a checkout has benchmarks/ beside results/
    for name in [] if asked else [name for name in QUESTIONS if read(name, folder).stale]:
        if why := cannot_run(QUESTIONS[name]):
            click.echo(f"stale, but {why}", err=True)
        else:
            asked.append(name)
    for name in asked:
        with resumable(WORK), progress_bar(name) as progress:
            rows = run(QUESTIONS[name], workers=workers, progress=progress)
        click.echo(f"wrote {write(QUESTIONS[name], rows, folder)}", err=True)
        (WORK / f"{name}.jsonl").unlink(missing_ok=True)  # a second run measures again, with its own date and commit
    if not asked:
        click.echo("nothing to compute", err=True)
