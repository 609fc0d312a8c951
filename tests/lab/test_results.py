"""Results are data: files that say how they were made, and pages that cannot show a stale number unseen."""

import csv
import importlib
import inspect
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kofn
from kofn.core import BadInput
from kofn.lab.questions import QUESTIONS, Chart, Computing, Question
from kofn.lab.results import Results, read, run, write
from kofn.policies.registry import policy_named
from tests.cases import for_each
from tests.cli.tools import invoke
from tests.test_docs import PAGES, ROOT
from tools import results_in_pages

FOLDER = ROOT / "results"
SMALL = Question("small", "Which?", Chart("setting", {"regret": "regret"}, "policy", lines=False), Computing("small"))


# The files.


@for_each("name", QUESTIONS)
def test_every_question_has_its_file_with_a_chart_and_a_table(name: str) -> None:
    found = read(name, FOLDER)
    assert all(found.head[key] for key in ("command", "commit", "date", "seeds", "policies"))
    points = found.points(found.question.chart)
    assert 1 <= len(points) <= 8
    assert all(points.values())
    head, *body = found.table()
    assert body
    assert all(len(row) == len(head) for row in body)


def test_every_file_has_its_question() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(QUESTIONS)


def test_pandas_reads_a_file() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(FOLDER / "leaderboard.csv", comment="#")
    assert frame[(frame.setting == "mean/N24-K5") & (frame.policy == "thompson")].regret.tolist() == [
        read("leaderboard", FOLDER).value("mean/N24-K5", "thompson", "regret")
    ]


def made(rows: str, policies: str = f"dart=1, thompson={kofn.Thompson.version}") -> Results:
    lines = ["setting,policy,plays,regret", *rows.split()]
    head = {"command": "c", "commit": "abc", "date": "2026-01-01", "seeds": "1", "policies": policies}
    return Results(SMALL, head, tuple(csv.DictReader(lines)))


def test_a_number_is_found_by_the_cells_beside_it() -> None:
    found = made("a,thompson,10,3 a,dart,10,6 b,dart,20,10")
    assert found.value("a", "dart", "regret") == 6
    assert found.value("plays=20", "regret") == 10
    assert found.value("a", "dart / thompson", "regret") == 2
    with pytest.raises(BadInput, match=r"has 2 rows with dart \| regret: name one"):
        found.value("dart", "regret")
    with pytest.raises(BadInput, match=r"has 0 rows with c \| regret"):
        found.value("c", "regret")


def test_a_chart_has_means_over_what_it_does_not_distinguish() -> None:
    found = made("a,thompson,10,3 a,thompson,20,5 b,dart,20,10")
    assert found.points(SMALL.chart) == {"thompson": {"a": 4}, "dart": {"b": 10}}
    assert found.table() == [["", "thompson", "dart"], ["a", "4", ""], ["b", "", "10"]]
    assert found.points(replace(SMALL.chart, only=("dart",))) == {"dart": {"b": 10}}


def test_a_file_is_stale_if_a_policy_in_it_has_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert made("a,dart,1,1").stale == ""
    monkeypatch.setattr(policy_named("dart"), "version", 3)
    assert made("a,dart,1,1").stale == "measured with dart version 1, current is 3"
    assert made("a,gone,1,1", "gone=1").stale == "measured with gone version 1, current is none"
    assert made("", "none").stale == ""


def test_a_written_file_says_how_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(QUESTIONS, "small", SMALL)
    rows: list[dict[str, Any]] = [
        {"setting": "a", "policy": "dart", "regret": 1 / 3},
        {"setting": "a", "policy": "thompson (pick)", "gap": None},
    ]
    found = read(write(SMALL, rows, tmp_path).stem, tmp_path)
    assert found.head["command"] == "kofn lab results --run small"
    assert found.policies == {"dart": 1, "thompson": kofn.Thompson.version}
    assert found.rows[0] == {"setting": "a", "policy": "dart", "regret": "0.333333", "gap": ""}


# Computing.


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> tuple[Question, list[str]]:
    """A benchmark of three parts, the second of which fails the first time; and the parts that were computed."""
    computed: list[str] = []

    def rows(settings: tuple[str, ...], runs: int) -> Iterator[dict[str, Any]]:
        computed.extend(settings)
        if computed == ["a", "b"]:
            raise KeyboardInterrupt
        yield {"setting": settings[0], "policy": "thompson", "regret": runs}

    module = ModuleType("small")
    module.__spec__ = ModuleSpec("small", None)
    module.rows, module.SETTINGS = rows, ("a", "b", "c")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "small", module)
    return replace(SMALL, computing=Computing("small", {"runs": 4}, "settings", "SETTINGS")), computed


def test_an_interrupted_computation_resumes(
    benchmark: tuple[Question, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question, computed = benchmark
    with pytest.raises(KeyboardInterrupt):
        run(question, tmp_path, workers=1)
    with (tmp_path / "small.jsonl").open("a") as file:
        file.write('["b", [{"cut')  # the machine failed during a write
    done: list[tuple[int, int]] = []
    rows = run(question, tmp_path, workers=1, progress=lambda *each: done.append(each))
    assert [row["setting"] for row in rows] == ["a", "b", "c"]
    assert computed == ["a", "b", "b", "c"]
    assert done == [(2, 3), (3, 3)]
    assert run(question, tmp_path, workers=1) == rows
    assert len(computed) == 4
    monkeypatch.setattr(kofn.Thompson, "version", 99)  # what another version has finished is computed again
    assert run(question, tmp_path, workers=1) == rows
    assert computed[4:] == ["a", "b", "c"]


def test_what_cannot_be_computed_here_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"small cannot be computed here without no_such: it needs a checkout of kofn"):
        run(replace(SMALL, computing=Computing("json", imports=("no_such",))), tmp_path)


@for_each("name", QUESTIONS)
def test_every_question_names_a_function_that_takes_its_options(name: str) -> None:
    how = QUESTIONS[name].computing
    if how is not None:
        module = importlib.import_module(how.module)
        inspect.signature(getattr(module, how.function)).bind_partial(
            **how.options, **({how.split: ()} if how.split else {})
        )
        assert not how.split or list(getattr(module, how.parts))


# The command.


def test_the_command_lists_and_shows(tmp_path: Path) -> None:
    folder = ("--folder", str(FOLDER))
    listed = {each["name"]: each for each in json.loads(invoke("lab", "results", *folder, "--json").stdout)}
    assert list(listed) == list(QUESTIONS)
    stale = f"measured with thompson version 0, current is {kofn.Thompson.version}"
    assert listed["scale"]["stale"] == stale
    assert "leaderboard" in invoke("lab", "results", *folder).stdout
    shown = invoke("lab", "results", "scale", *folder).stdout
    assert f"stale: {stale}" in shown
    rows = json.loads(invoke("lab", "results", "scale", *folder, "--json").stdout)["scale"]["rows"]
    assert len(rows) == len(read("scale", FOLDER).rows)
    assert invoke("lab", "results", "scale", *folder, "--plot", str(tmp_path / "scale.png")).exit_code == 0
    assert (tmp_path / "scale.png").stat().st_size > 10_000
    with pytest.raises(BadInput, match="there are no results 'no'; there are: leaderboard,"):
        invoke("lab", "results", "no", *folder)
    with pytest.raises(BadInput, match=r"cannot read .*leaderboard\.csv \(No such file"):
        invoke("lab", "results", "--folder", str(tmp_path))


def test_the_command_computes_what_is_stale(
    benchmark: tuple[Question, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question, computed = benchmark
    computed.append("first")
    monkeypatch.chdir(tmp_path)
    for name in list(QUESTIONS):
        monkeypatch.delitem(QUESTIONS, name)
    monkeypatch.setitem(QUESTIONS, "small", question)
    for _ in range(2):  # the head has the date and the commit of today, so finished results are computed again
        assert invoke("lab", "results", "--run", "small", "--workers", "1").stderr == "wrote results/small.csv\n"
    assert computed == ["first", *"abc", *"abc"]
    assert invoke("lab", "results", "--run").stderr == "nothing to compute\n"
    monkeypatch.setattr(kofn.Thompson, "version", 99)
    assert invoke("lab", "results", "--run", "--workers", "1").stderr == "wrote results/small.csv\n"
    assert read("small").policies == {"thompson": 99}


# Pages.


def test_pages_have_the_present_results() -> None:
    filled = results_in_pages.filled
    stale = [page.name for page in PAGES if page.read_text() != filled(page.read_text(), page)]
    assert stale == [], "run: make docs"


def test_pictures_are_of_the_present_results_and_all_are_used() -> None:
    assert [name for name in QUESTIONS if not results_in_pages.is_current(name)] == [], "run: make docs"
    text = "".join(page.read_text() for page in PAGES)
    pictures = [path.name for path in (ROOT / "docs/images").iterdir()]
    assert [name for name in pictures if name not in text] == []


PAGE = """\
<!-- results: leaderboard -->
<!-- /results -->
<!-- result: leaderboard | thompson | mean/N24-K5 | regret -->0<!-- /result -->
<!-- result: real-data | all | thompson | 100 | regret_low | .1f -->0<!-- /result -->
"""


def cells() -> tuple[str, str]:
    """What the markers of the page show."""
    regret = read("leaderboard", FOLDER).value("thompson", "mean/N24-K5", "regret")
    return f"{regret:.0f}", f"{read('real-data', FOLDER).value('all', 'thompson', '100', 'regret_low'):.1f}"


def test_markers_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Results, "stale", "")  # as after all were computed
    regret, low = cells()
    text = results_in_pages.filled(PAGE, ROOT / "docs/background/it.md")
    assert "(../images/results-leaderboard.png)" in text
    assert "[results/leaderboard.csv](../../results/leaderboard.csv)" in text
    assert f"| regret -->{regret}<!-- /result -->" in text
    assert f"| .1f -->{low}<!-- /result -->" in text
    assert "tale" not in text
    assert results_in_pages.filled(text, ROOT / "docs/background/it.md") == text


def test_a_stale_result_is_marked_where_readers_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kofn.Thompson, "version", 99)
    regret, low = cells()
    before = [read(name, FOLDER).policies["thompson"] for name in ("leaderboard", "real-data")]
    text = results_in_pages.filled(PAGE, ROOT / "docs/background/it.md")
    assert f"\n**Stale: measured with thompson version {before[0]}, current is 99.**\n" in text
    assert f"| regret -->{regret}<!-- /result -->" in text  # the chart of the same page says it
    assert f"| .1f -->{low} (measured with thompson version {before[1]}, current is 99)<!-- /result -->" in text


def test_a_table_is_filled() -> None:
    text = results_in_pages.filled("<!-- results: calibration table -->\n<!-- /results -->", ROOT / "it.md")
    assert text.splitlines()[1:3] == [
        "|  | 300 | 1,000 | 3,000 | 10,000 | 100,000 | 1,000,000 |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
