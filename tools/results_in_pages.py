"""Fill pages with what is in results/: `make docs` calls it, and a test fails when a page or a picture is out of date.

    <!-- results: leaderboard -->        the chart, the file and its command
    <!-- results: leaderboard table -->  the numbers of the chart, of every policy
    <!-- /results -->                    ends both
    <!-- result: leaderboard | thompson | mean/N24-K5 | regret -->185<!-- /result -->

The last names cells of a row and then a column, perhaps with a format (`| .2f`). A result with another version of a
policy than today's is marked where readers see it: below the chart, or after each number on a page without the chart.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from pathlib import Path

from kofn.lab.plots import draw_results
from kofn.lab.questions import QUESTIONS
from kofn.lab.results import Results, read, shown

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(<!-- results: (\S+?)( table)? -->\n).*?(<!-- /results -->)", re.DOTALL)
NUMBER = re.compile(r"(<!-- result: ([^|]+?) \| (.*?) -->).*?(<!-- /result -->)", re.DOTALL)
FORMAT = re.compile(r",?(\.\d+)?[fg%]")
results = cache(lambda name: read(name, ROOT / "results"))


def main() -> None:
    """Draw the charts that are out of date, and fill the pages."""
    for name in QUESTIONS:
        if not is_current(name):
            picture(name).parent.mkdir(exist_ok=True)
            draw_results(results(name)).savefig(picture(name), dpi=150, metadata={"Source": digest(name)})
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        if (text := page.read_text(encoding="utf-8")) != (new := filled(text, page)):
            page.write_text(new, encoding="utf-8")


def picture(name: str) -> Path:
    """Return the file of a chart."""
    return ROOT / "docs" / "images" / f"results-{name}.png"


def digest(name: str) -> str:
    """Return a digest of the numbers of a chart and of how they are drawn, which is kept in the picture."""
    return hashlib.sha256(
        repr((QUESTIONS[name].chart, results(name).points(QUESTIONS[name].chart))).encode()
    ).hexdigest()


def is_current(name: str) -> bool:
    """Return whether the picture is of the present numbers."""
    return picture(name).exists() and digest(name).encode() in picture(name).read_bytes()


def filled(text: str, page: Path) -> str:
    """Return a page with the present results between its markers."""
    blocks = {found[2] for found in BLOCK.finditer(text)}
    text = BLOCK.sub(lambda found: f"{found[1]}{block(results(found[2]), page, bool(found[3]))}\n{found[4]}", text)
    return NUMBER.sub(lambda found: f"{found[1]}{number(found[2], found[3].split(' | '), blocks)}{found[4]}", text)


def block(found: Results, page: Path, as_table: bool) -> str:
    """Return the summary of a question as a table, or its chart, with a note if it is stale."""
    question = found.question
    if as_table:
        head, *body = (f"| {' | '.join(row)} |" for row in found.table())
        lines = [head, "| --- |" + " ---: |" * (head.count("|") - 2), *body]
    else:
        image, file = (
            Path(os.path.relpath(each, page.parent)).as_posix()
            for each in (picture(question.name), csv_of(question.name))
        )
        made = f"{found.head['date']}, commit {found.head['commit']}, seeds {found.head['seeds']}"
        lines = [
            f"![{question.asks}]({image})",
            "",
            f"Data: [results/{question.name}.csv]({file}), by `{found.head['command']}` ({made}).",
        ]
    return "\n".join([*lines, *(["", f"**Stale: {found.stale}.**"] if found.stale else [])])


def csv_of(name: str) -> Path:
    """Return the file of a question."""
    return ROOT / "results" / f"{name}.csv"


def number(name: str, cells: list[str], blocks: set[str]) -> str:
    """Return one number, with a note if it is stale and no block of the page says so."""
    spec = cells.pop() if FORMAT.fullmatch(cells[-1]) else ""
    value = results(name).value(*cells)
    note = results(name).stale if name not in blocks else ""
    return (format(value, spec) if spec else shown(value)) + (f" ({note})" if note else "")
