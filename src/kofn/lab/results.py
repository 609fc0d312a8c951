"""Results as data: a CSV for each question that the pages answer, with the versions of the policies in it.

A file begins with lines `# key: value`: command, commit, date, seeds and policies. Then come plain rows, one for each
observation: `pandas.read_csv(file, comment="#")` reads it. A file is stale if a policy in it has another version today.
"""

from __future__ import annotations

import csv
import inspect
import io
import json
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kofn.backends import Progress, compute_unordered
from kofn.core import BadInput, KofnError
from kofn.lab.questions import QUESTIONS, Chart, Computing, Question
from kofn.policies.registry import POLICIES, policy_named

FOLDER = Path("results")
WORK = Path("build/results")
"""The folder of what an interrupted computation has finished, from which the same command resumes."""

Row = dict[str, Any]


def question_named(name: str) -> Question:
    """Return the question of this name."""
    if name not in QUESTIONS:
        raise BadInput(f"there are no results {name!r}; there are: {', '.join(QUESTIONS)}")
    return QUESTIONS[name]


@dataclass(frozen=True, eq=False)
class Results:
    """The file of one question: the lines of its head, and its rows as text."""

    question: Question
    head: dict[str, str]
    rows: tuple[dict[str, str], ...]

    @property
    def policies(self) -> dict[str, int]:
        """The policies in the file, and the versions with which it was made."""
        pairs = (each.split("=") for each in self.head["policies"].split(", ") if "=" in each)
        return {name: int(version) for name, version in pairs}

    @property
    def stale(self) -> str:
        """Which policies have another version today, as a sentence; an empty text if none has."""
        found = {name: (then, _present(name)) for name, then in self.policies.items()}
        changed = [
            f"{name} version {then}, current is {now or 'none'}" for name, (then, now) in found.items() if then != now
        ]
        return f"measured with {'; '.join(changed)}" if changed else ""

    def value(self, *cells: str) -> float:
        """Return the number in a column, of the one row that has all the other cells.

        The last cell names the column; `column=cell` says where a cell is. `a / b` in place of a cell is the quotient
        of the numbers of `a` and of `b`.

        >>> results.value("mean/N24-K5", "thompson", "regret")  # doctest: +SKIP
        185.0
        """
        *wanted, column = cells
        found = [row[column] for row in self.rows if row.get(column) and set(wanted) <= _cells(row)]
        if len(found) == 1:
            return float(found[0])
        for index, cell in enumerate(wanted):
            above, slash, below = cell.partition(" / ")
            if slash and not found:
                return self.value(*wanted[:index], above, *wanted[index + 1 :], column) / self.value(
                    *wanted[:index], below, *wanted[index + 1 :], column
                )
        raise BadInput(f"results/{self.question.name}.csv has {len(found)} rows with {' | '.join(cells)}: name one")

    def points(self, chart: Chart, *, every: bool = False) -> dict[str, dict[str, float]]:
        """Return the chart as numbers, by series and by x: means where several rows have the same place.

        The chart shows a few series; the table of the summary has `every` one.
        """
        found: dict[str, dict[str, list[float]]] = {} if every else {name: {} for name in chart.only}
        for row in self.rows:
            if all(row[column] == cell for column, cell in chart.where.items()) and not (
                chart.but and row["setting"].startswith(chart.but)
            ):
                for column, label in chart.values.items():
                    series = row[chart.series] if chart.series else label
                    if row[column] and (every or not chart.only or series in chart.only):
                        found.setdefault(series, {}).setdefault(row[chart.x], []).append(float(row[column]))
        return {series: {x: sum(all_) / len(all_) for x, all_ in by_x.items()} for series, by_x in found.items()}

    def table(self) -> list[list[str]]:
        """Return the summary: a head, then a row for each series, or for each x if there are more of these."""
        points = self.points(self.question.chart, every=True)
        places = list(dict.fromkeys(x for by_x in points.values() for x in by_x))
        if self.question.chart.lines:
            body = [[name, *(shown(by_x.get(x)) for x in places)] for name, by_x in points.items()]
            return [[self.question.chart.series or "", *(f"{float(x):,.10g}" for x in places)], *body]
        return [["", *points], *([x, *(shown(by_x.get(x)) for by_x in points.values())] for x in places)]


def _cells(row: dict[str, str]) -> set[str]:
    return {*row.values(), *(f"{column}={cell}" for column, cell in row.items())}


def shown(value: float | None) -> str:
    """Return a number as pages show it: three digits, or all in front of the point; an empty text without one."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _present(name: str) -> int | None:
    try:
        return policy_named(name).version
    except KofnError:
        return None


def read(name: str, folder: Path = FOLDER) -> Results:
    """Read the file of a question."""
    question = question_named(name)
    path = folder / f"{name}.csv"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as why:
        raise BadInput(f"cannot read {path} ({why.strerror}): results are in a checkout of kofn, see --folder") from why
    count = sum(line.startswith("# ") for line in lines)
    head = dict(line[2:].split(": ", 1) for line in lines[:count])
    if missing := {"command", "commit", "date", "seeds", "policies"} - head.keys():
        raise BadInput(f"the head of {path} has no {', '.join(sorted(missing))}")
    return Results(question, head, tuple(csv.DictReader(lines[count:])))


def write(question: Question, rows: Sequence[Row], folder: Path = FOLDER) -> Path:
    """Write the file of a question, with a head that says how it was made."""
    named = {str(row["policy"]).split()[0] for row in rows if row.get("policy")} & set(POLICIES) or {"thompson"}
    head = {
        "command": f"kofn lab results --run {question.name}",
        "commit": _commit(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "seeds": str(question.computing.options.get("seed", "set by the benchmark")),
        "policies": ", ".join(f"{name}={_present(name)}" for name in sorted(named)),
    }
    text = io.StringIO()
    text.writelines(f"# {key}: {value}\n" for key, value in head.items())
    columns = list(dict.fromkeys(column for row in rows for column in row))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: f"{each:.6g}" if isinstance(each, float) else each for key, each in row.items()})
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{question.name}.csv"
    path.with_suffix(".part").write_text(text.getvalue(), encoding="utf-8")
    return path.with_suffix(".part").replace(path)


def _commit() -> str:
    """Return the present commit; "-dirty" says that code differs from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "benchmarks")
    return f"{git('rev-parse', '--short', 'HEAD') or 'unknown'}{'-dirty' if changed else ''}"


def run(
    question: Question, work: Path = WORK, workers: int | None = None, progress: Progress | None = None
) -> list[Row]:
    """Compute a question; what is finished is kept in the folder `work`, and not computed again."""
    how = question.computing
    if reason := cannot_run(question):
        raise BadInput(reason)
    function = getattr(import_module(how.module), how.function)
    if not how.split:
        kept = {"archive": work / question.name, "workers": workers, "progress": progress}
        taken = inspect.signature(function).parameters
        return list(function(**how.options, **{key: value for key, value in kept.items() if key in taken}))
    parts = [getattr(part, "name", part) for part in getattr(import_module(how.module), how.parts)]
    done = _finished(work / f"{question.name}.jsonl", question)
    missing = [part for part in parts if part not in done]
    tasks = [(how, part) for part in missing]
    for number, rows in compute_unordered(rows_of, tasks, workers=1 if how.alone else workers):
        done[missing[number]] = rows
        with (work / f"{question.name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps([missing[number], rows]) + "\n")
        if progress:
            progress(len(done), len(parts))
    return [row for part in parts for row in done[part]]


def cannot_run(question: Question) -> str:
    """Return why a question cannot be computed here, as a sentence; an empty text if it can."""
    how = question.computing
    missing = [name for name in (how.module.split(".")[0], *how.imports) if find_spec(name) is None]
    why = f"{question.name} cannot be computed here without {', '.join(missing)}: it needs {question.needs}"
    return why if missing else ""


def rows_of(how: Computing, part: str) -> list[Row]:
    """Compute one part of a question; worker processes call this."""
    rows: Iterable[Row] = getattr(import_module(how.module), how.function)(**how.options, **{how.split: (part,)})
    return list(rows)


def _finished(path: Path, question: Question) -> dict[str, list[Row]]:
    """Return the finished parts in a file; begin it anew if its first line is of other versions or options."""
    first = json.dumps([{name: _present(name) for name in POLICIES}, dict(question.computing.options)])
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    if lines[:1] != [first]:
        lines = [first]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")  # without a last line that an interrupt cut off
    return dict(json.loads(line) for line in lines[1:])
