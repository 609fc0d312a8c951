"""`kofn choose`: what it prints, and what it says about wrong scripts and files."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import kofn
from tests.cases import for_each
from tests.cli.tools import invoke

SCRIPT = """
import helper

def score(team):
    return sum(helper.SKILL[name] for name in team)

def by_number(arms):
    return sum(arms)

async def later(team):
    return score(team)

def broken(team):
    raise RuntimeError("no match today")

NUMBER = 3
"""
HELPER = 'SKILL = {"Ada": 9, "Bob": 3, "Cleo": 7, "Dan": 5, "Eve": 8, "Finn": 2}\n'
CHOOSE = ["choose", "script.py:score", "--candidates", "items.txt", "-k", "2", "--budget", "12", "--seed", "1"]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.delitem(sys.modules, "helper", raising=False)
    Path("script.py").write_text(SCRIPT)
    Path("helper.py").write_text(HELPER)
    Path("items.txt").write_text("Ada\nBob\n\nCleo\nDan\nEve\nFinn\n")


def run(*arguments: str) -> Result:
    return invoke(*arguments, catch=True)


def test_a_table_of_the_choice() -> None:
    result = run(*CHOOSE)
    assert result.exit_code == 0, result.output
    words = result.output.split()
    assert words.index("Ada") < words.index("Eve")
    assert "17 (exact: the score is repeatable)" in result.output
    assert "the budget of 12 evaluations is spent" in result.output


def test_json_is_the_choice_of_the_library() -> None:
    found = json.loads(run(*CHOOSE, "--json").stdout)
    skill = {"Ada": 9, "Bob": 3, "Cleo": 7, "Dan": 5, "Eve": 8, "Finn": 2}
    choice = kofn.choose(list(skill), 2, lambda s: sum(skill[each] for each in s), budget=12, seed=1).to_dict()
    for each in (found, choice):
        each["history"] = [evaluation["arms"] for evaluation in each["history"]]
    assert found == choice


def test_a_module_an_async_score_and_numbers() -> None:
    for score in ("script:score", "script.py:later"):
        assert json.loads(run("choose", score, *CHOOSE[2:], "--json").stdout)["subset"] == ["Ada", "Eve"]
    result = run("choose", "script.py:by_number", "--arms", "6", "-k", "2", "--minimize", "--seed", "1", "--json")
    assert json.loads(result.stdout)["arms"] == [0, 1]


def test_rules_by_text_and_from_a_file() -> None:
    Path("rules.json").write_text('[{"rule": "never", "arms": ["Cleo"]}]')
    rules = ["--rule", "never together Ada, Eve", "--constraints", "rules.json", "--budget", "40"]
    found = run(*CHOOSE, *rules, "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["subset"] == ["Ada", "Dan"]
    refused = run(*CHOOSE, *rules, "--rule", "always Cleo")
    assert "always (Cleo); never (Cleo)" in str(refused.exception)


def test_a_search_is_resumed_from_its_file() -> None:
    first = run(*CHOOSE, "--file", "search.jsonl", "--json")
    again = run("choose", "script.py:score", "--candidates", "items.txt", "-k", "2", "--budget", "12", "--json",
                "--file", "search.jsonl", "--workers", "2")  # fmt: skip
    assert again.stdout == first.stdout
    assert len(Path("search.jsonl").read_text().splitlines()) == 13


def test_a_score_that_fails_leaves_the_file() -> None:
    result = run("choose", "script.py:broken", *CHOOSE[2:], "--file", "search.jsonl")
    assert isinstance(result.exception, kofn.BadScore)
    assert "raised RuntimeError: no match today (script.py, line 14)" in str(result.exception)
    assert "the scores so far are in search.jsonl: the same command resumes from there" in result.stderr


def test_a_picture() -> None:
    result = run(*CHOOSE, "--plot", "pictures/search.png")
    assert "wrote pictures/search.png, pictures/search.svg" in result.stderr
    assert Path("pictures/search.png").stat().st_size > 1000
    noisy = "import random\nrng = random.Random(1)\ndef score(s): return len(''.join(s)) + rng.random()\n"
    Path("script.py").write_text(noisy)
    assert run(*CHOOSE[:-4], "--budget", "30", "--plot", "noisy").exit_code == 0
    assert "its 95 % interval" in Path("noisy.svg").read_text()


@for_each(
    "score, message",
    [
        ("script.py:scores", "script.py defines no `scores`; it defines broken, by_number, later, score"),
        ("script.py:NUMBER", "the score must be a function of a list of candidates; script.py:NUMBER is 3"),
        ("scrip.py:score", "there is no file scrip.py"),
        (
            "script.py",
            "'script.py' must be script.py:name or package.module:name, such as shop.py:clicks",
        ),
        ("nothing_here:score", "there is no module nothing_here"),
        ("bad.py:score", "bad.py failed: ZeroDivisionError: division by zero"),
    ],
)
def test_wrong_scores(score: str, message: str) -> None:
    Path("bad.py").write_text("1 / 0\n")
    result = run("choose", score, *CHOOSE[2:])
    assert isinstance(result.exception, kofn.BadInput)
    assert message in str(result.exception)


@for_each(
    "options, message",
    [
        (["--candidates", "twice.txt", "-k", "1"], "twice.txt, line 4: 'Ada' is listed twice, first in line 1"),
        (["--candidates", "binary", "-k", "1"], "binary is not a text file in UTF-8"),
        (["--candidates", "items.txt", "-k", "6"], "k must be less than the number of candidates; got k=6 and 6"),
        (["--candidates", "none.txt", "-k", "1"], "No such file or directory: 'none.txt'"),
    ],
)
def test_wrong_candidates(options: list[str], message: str) -> None:
    Path("twice.txt").write_text("Ada\nBob\n\n Ada \n")
    Path("binary").write_bytes(b"\xff\xfe\x00")
    assert message in str(run("choose", "script.py:score", *options).exception)


@pytest.mark.parametrize("options", [["-k", "2"], ["-k", "2", "--arms", "6", "--candidates", "items.txt"]])
def test_candidates_or_arms(options: list[Any]) -> None:
    result = run("choose", "script.py:score", *options)
    assert result.exit_code == 2
    assert "give either --candidates FILE or --arms N" in result.stderr
