"""The table of the benchmark on real data as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from kofn.lab.problems.real import real_named
from kofn.lab.real import Facts, RealCell, RealTable

WHAT = {"regret": "Regret", "gap": "Gap of the pick"}


def as_markdown(table: RealTable, command: str) -> str:
    """Return the table as a Markdown page."""
    fewer = sorted({f"`{cell.policy}`" for cell in table.cells if cell.runs < table.runs})
    slow = f" Policies that are slow per play made fewer runs, as noted: {', '.join(fewer)}." if fewer else ""
    lines = [
        "# Real data: the table",
        "",
        f"Means over {table.runs} runs (seed {table.seed}), with half the width of 95 % intervals.{slow} "
        "[Real data](real.md) explains the problems and what the table shows.",
        "",
        f"Made by `{command}`.",
        "",
        "## Over all problems",
        "",
        "Regret, or the gap of the pick, divided by that of the best policy or baseline on the problem: the geometric "
        "mean over the problems that a policy played. Chance makes the lowest of many means too low, so the second "
        "number is too high. The first is too low: there, the best is chosen by the even runs and measured by the odd "
        "ones, and vice versa. Gaps below 1 % of those of random subsets count as 1 %.",
    ]
    for what, title in WHAT.items():
        lines += ["", f"### {title}, relative to the best", "", *ratio_lines(table, what)]
    for fact in table.facts:
        lines += ["", f"## {fact.problem}", "", *_problem(table, fact)]
    return "\n".join(lines) + "\n"


def head(first: str, table: RealTable) -> Iterator[str]:
    """Yield the head of a table with a column for each budget."""
    yield f"| {first} | {' | '.join(f'T = {budget:,}' for budget in table.budgets)} |"
    yield f"| --- |{' ---: |' * len(table.budgets)}"


def ratio_lines(table: RealTable, what: str) -> Iterator[str]:
    """Yield a table with the ratios of each ranked policy to the best."""
    yield from head("policy (problems)", table)
    for row in table.summary():
        yield f"| `{row['policy']}` ({row['problems']}) | {' | '.join(map(ratio, row[what]))} |"


def ratio(each: list[float] | None) -> str:
    """Return the limits of a ratio; nothing if the policy did not play."""
    return "" if each is None else f"{each[0]:.2f} to {each[1]:.2f}"


def _problem(table: RealTable, fact: Facts) -> Iterator[str]:
    described = real_named(fact.problem)
    yield f"{described.description} N = {fact.n_arms}, K = {fact.k}. Data: {described.data}"
    yield ""
    yield (
        f"Optimum {fact.optimum:.4f} ({fact.effort}); a random subset loses {fact.random_gap:.4f} on average. "
        + " ".join(f"{name[0].upper()}{name[1:]}: gap {gap:.4f}." for name, gap in fact.rules.items())
    )
    for what, title in WHAT.items():
        yield ""
        yield from head(title, table)
        for policy in table.policies(fact.problem):
            cells = [table.cell(fact.problem, policy, budget) for budget in table.budgets]
            kind = next(cell.kind for cell in cells if cell is not None)
            note = "" if kind == "policy" else f" ({kind})"
            yield f"| `{policy}`{note} | {' | '.join(_with_runs(cell, what, table.runs) for cell in cells)} |"


def _with_runs(cell: RealCell | None, what: str, runs: int) -> str:
    """Return a mean with its error, and the number of runs if they are fewer."""
    few = "" if cell is None or cell.runs == runs else f" ({cell.runs} runs)"
    return shown(cell, what) + few


def shown(cell: RealCell | None, what: str) -> str:
    """Return a mean with its error, in the digits that it deserves."""
    if cell is None:
        return ""
    value, error = (cell.regret, cell.regret_error) if what == "regret" else (cell.gap, cell.gap_error)
    digits = (0 if value >= 100 else 1) if what == "regret" else 4
    return f"{value:,.{digits}f} ± {error:,.{digits}f}"
