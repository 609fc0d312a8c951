"""`kofn replay`: a table, JSON, a policy in the log, and one line for what cannot be said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kofn.lab.logs import DecisionLog, evaluate
from kofn.lab.problems import Bernoulli, Problem
from tests.cli.test_cli import Kofn, answer  # noqa: F401

PROBLEM = Problem(Bernoulli([0.2, 0.5, 0.8, 0.1]), "mean", 2)


@pytest.fixture
def log(tmp_path: Path) -> DecisionLog:
    made = DecisionLog.simulate(PROBLEM, 3_000, seed=1)
    made.write(tmp_path / "log.csv")
    (tmp_path / "plain.csv").write_text(
        re.sub(r",[^,\n]*$", "", (tmp_path / "log.csv").read_text(), flags=re.MULTILINE)
    )
    return made


def test_the_best_subsets_as_a_table(answer: Kofn, log: DecisionLog) -> None:  # noqa: F811
    code, out, err = answer("replay", "log.csv", "--top", "3")
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines() if re.match(r"\s*\d \d ", line)]
    assert len(rows) == 3
    assert rows[0][:2] == ["1", "2"]
    found = evaluate(log, (1, 2))
    assert rows[0][2] == str(found.plays)
    assert rows[0][3:6] == [f"{found.dr.value:.3g}", "±", f"{found.dr.error:.2g}"]
    assert "log of 3,000 plays, 2 of 4 arms" in out
    assert "all 6 subsets at once" in out


def test_one_subset_as_json(answer: Kofn, log: DecisionLog) -> None:  # noqa: F811
    code, out, _ = answer("replay", "plain.csv", "--uniform", "--subset", "2 1", "--subset", "0 3", "--json")
    assert code == 0
    first, second = json.loads(out)
    expected = evaluate(log, (1, 2))
    assert first["subset"] == [1, 2]
    assert first["dr"]["value"] == pytest.approx(expected.dr.value)
    assert first["interval"] == pytest.approx(list(expected.dr.interval(of=2)))
    assert second["subset"] == [0, 3]


@pytest.mark.usefixtures("log")
def test_small_is_better_if_one_says_so(answer: Kofn) -> None:  # noqa: F811
    _, out, _ = answer("replay", "log.csv", "--minimize", "--top", "1", "--json")
    assert json.loads(out)[0]["subset"] == [0, 3]


@pytest.mark.usefixtures("log")
def test_a_policy_in_the_log(answer: Kofn) -> None:  # noqa: F811
    code, out, err = answer("replay", "log.csv", "--policy", "thompson", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["policy"] == "thompson"
    assert found["events"] == 3_000
    assert 300 < found["plays"] < 700
    code, out, _ = answer("replay", "log.csv", "--policy", "thompson")
    assert code == 0
    assert f"{found['plays']:,} of 3,000 plays" in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nowhere.csv"], "nowhere.csv"),
        (["plain.csv"], "the log has no propensities"),
        (["log.csv", "--subset", "1 9"], "the log has no arm '9'"),
        (["log.csv", "--subset", "1"], "a subset must have 2 different arms; got (1,)"),
        (["plain.csv", "--policy", "thompson"], "a replay needs propensities"),
        (["log.csv", "--policy", "etcg"], "etcg needs fewer"),
    ],
)
@pytest.mark.usefixtures("log")
def test_what_cannot_be_said_is_one_line(argv: list[str], message: str, answer: Kofn) -> None:  # noqa: F811
    code, out, err = answer("replay", *argv)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
