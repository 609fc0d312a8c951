"""Logs: read as written, refused when they contradict themselves, and played as problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import BadInput
from kofn.lab.logs import DecisionLog
from kofn.lab.problems import Bernoulli, Problem

PROBLEM = Problem(Bernoulli([0.2, 0.5, 0.8, 0.1]), "mean", 2)


def written(folder: Path, text: str) -> Path:
    path = folder / "log.csv"
    path.write_text(text)
    return path


def test_a_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    log = DecisionLog.simulate(PROBLEM, 500, seed=3)
    log.write(tmp_path / "log.csv")
    again = DecisionLog.read(tmp_path / "log.csv")
    assert (again.subsets == log.subsets).all()
    assert (again.rewards == log.rewards).all()
    assert again.propensity is not None
    np.testing.assert_allclose(again.propensity, 1 / 6)
    assert (again.n_arms, again.k, len(again)) == (4, 2, 500)


def test_arms_may_have_names(tmp_path: Path) -> None:
    log = DecisionLog.read(written(tmp_path, "subset,reward\ntea milk,1\ncake tea,0.5\nmilk cake,0\n"), uniform=True)
    assert log.names == ("cake", "milk", "tea")
    assert log.subsets.tolist() == [[1, 2], [0, 2], [0, 1]]
    assert log.subset_of_names(["tea", "cake"]) == (0, 2)
    log.write(tmp_path / "again.csv")
    assert DecisionLog.read(tmp_path / "again.csv").names == log.names


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    path = written(tmp_path, "when,shown,clicks,chance\n1,0 1,3,0.5\n2,1 2,0,0.25\n")
    log = DecisionLog.read(path, columns=("shown", "clicks", "chance"), n_arms=5)
    assert log.n_arms == 5
    assert log.rewards.tolist() == [3, 0]
    assert log.propensity is not None
    assert log.propensity.tolist() == [0.5, 0.25]


def test_a_log_of_a_problem_is_uniform() -> None:
    """Each of six subsets a sixth of 60,000 times: z below 5.3."""
    log = DecisionLog.simulate(PROBLEM, 60_000, seed=1)
    assert (np.abs(log.groups.plays - 10_000) < 5.3 * (60_000 / 6 * 5 / 6) ** 0.5).all()
    means = np.bincount(log.groups.which, log.rewards) / log.groups.plays
    np.testing.assert_allclose(means, PROBLEM.value(log.groups.subsets), atol=5.3 * 0.5 / 100)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("subset\n0 1\n", {}, "has no column 'reward'; it has: subset"),
        ("", {}, "has no column 'subset'; it has: none"),
        ("subset,reward\n", {}, "has a header but no plays"),
        ("subset,reward\n0 1,x\n", {}, "line 2: reward must be a number, not 'x'"),
        ("subset,reward\n0 1,\n", {}, "log.csv has 1 plays, but none with a reward"),
        ("subset,reward\n0 1,nan\n0 2,1\n", {}, "rewards must be finite numbers; play 0 has nan"),
        ("subset,reward\n0 1,1\n0,1\n", {}, "line 3: a subset has 2 different arms, as in the first play"),
        ("subset,reward\n0 7,1\n", {"n_arms": 5}, "has arm 7, but n_arms=5 numbers arms from 0 to 4"),
        ("subset,reward\n0 12345678,1\n", {}, "has arm 12345678: number arms from 0, below 1,000,000"),
        ("subset,reward,arms\n0 1,1,x\n", {}, "line 2: arms must be a JSON list of 2 names; got 'x'"),
        ('{"subset": [0, 1], "reward": 1}\n[]\n', {}, r"line 2 is not a JSON object, but \[\]"),
        ('{"subset": [0, 1], "reward": 1}\nx\n', {}, "line 2 is not a JSON object: a log has one per line"),
        ('[{"subset": [0, 1], "reward": 1}]\n', {}, "is a JSON list: write one JSON object per line"),
        ("subset,reward\na b,1\nb c,1\n", {"n_arms": 5}, "has 3 named arms, but n_arms=5 was given"),
        ("subset,reward\n0 1,1\n", {}, "k must be less than n_arms"),
        (
            "subset,reward,propensity\n0 1,1,2\n0 2,1,1\n",
            {},
            "propensity must be above 0 and at most 1; play 0 has 2",
        ),
        ("subset,reward,propensity\n0 1,1,.1\n0 2,1,.2\n", {"uniform": True}, "the propensities of the log differ"),
        ("subset,reward\n" + "0 1,1\n" * 99 + "0 2,1\n", {"uniform": True}, "not uniform: arm 2 is in 1 of 100"),
    ],
)
def test_a_log_that_cannot_be_is_refused(tmp_path: Path, text: str, options: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        DecisionLog.read(written(tmp_path, text), **options)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b'{\n  "kofn": "exported campaign", "campaign": {"secret": "5ec4e7"}}',
            "is an exported campaign, which is for",
        ),
        (b"SQLite format 3\x00 5ec4e7", "is a SQLite database. If it is a store, export a campaign's decisions"),
        (b"\x1f\x8b\x08 5ec4e7", "is compressed with gzip"),
        (b"PK\x03\x04 5ec4e7", "is a ZIP archive"),
        (b"\x00\x01 5ec4e7", "is a binary file: a log is a CSV file, JSON lines or a Parquet file"),
        (b"subset,reward\n0 1,\xff 5ec4e7\n", "is not text in UTF-8"),
        (b"x" * 200_000 + b"5ec4e7,reward\n0 1,1\n", "has no column 'subset'|field larger than field limit"),
        (
            b",".join(b"column %d" % at for at in range(9_999)) + b"\n1\n",
            "has: column 0, .*, column 11 and 9987 more",
        ),
        (b"subset,reward\n0 1," + b"x" * 99_999 + b"5ec4e7\n", "line 2: reward must be a number"),
        (b"subset,reward\n" + b"1 " * 99 + b",1\n" + b"5ec4e7 " * 9_999 + b",1\n", "a subset has"),
        (b"PAR1 5ec4e7", "is not a complete Parquet file"),
    ],
)
def test_a_file_of_another_kind_is_refused_without_repeating_it(tmp_path: Path, content: bytes, message: str) -> None:
    if content.startswith(b"PAR1"):
        pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'kofn[parquet]'")
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=message) as refused:
        DecisionLog.read(path)
    assert "5ec4e7" not in str(refused.value)
    assert len(str(refused.value)) < 500 + len(str(path))


def test_rows_without_a_reward_are_counted_and_names_are_read(tmp_path: Path) -> None:
    text = """subset,arms,reward,propensity
0 2,"[""Red mug"",""pan""]",1,0.5
0 1,"[""Red mug"",""tray""]",,0.5
1 2,"[""tray"",""pan""]",0.5,
2 3,"[""pan"",""tray""]",0,0.25
"""
    log = DecisionLog.read(written(tmp_path, text), n_arms=5)
    assert (len(log), log.unrewarded, log.adaptive) == (3, 1, False)
    assert log.names == ("Red mug", "tray", "pan", "tray (3)", "4")  # the second tray was retired and is back
    assert log.known.tolist() == [True, False, True]
    assert log.label((0, 2)) == "Red mug, pan"
    assert log.subset_of_names(["Red mug", "3"]) == log.subset_of_names([0, "tray (3)"]) == (0, 3)
    log.write(tmp_path / "again.csv")
    again = DecisionLog.read(tmp_path / "again.csv", n_arms=5)
    assert (again.names, again.known.tolist()) == (log.names, log.known.tolist())
    assert (again.subsets == log.subsets).all()


def test_json_lines_are_read_like_csv(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(
        '\ufeff{"subset": [0, 2], "reward": 1, "propensity": 0.5, "arms": ["a\u2028b", "c"]}\n\n'
        '{"subset": "1 2", "reward": 0.5, "arms": ["b", "c"]}\n{"subset": [0, 1], "reward": null, "arms": null}\n',
        encoding="utf-8",
    )
    log = DecisionLog.read(path)
    assert (log.subsets.tolist(), log.rewards.tolist(), log.unrewarded) == ([[0, 2], [1, 2]], [1, 0.5], 1)
    assert log.names == ("a\u2028b", "b", "c")
    assert log.propensity is not None
    np.testing.assert_array_equal(log.propensity, [0.5, np.nan])


# As a problem.


def test_a_logged_play_earns_what_was_earned() -> None:
    log = DecisionLog.simulate(PROBLEM, 3_000, seed=2)
    problem = log.problem()
    rewards = {tuple(row): log.rewards[log.groups.which == at] for at, row in enumerate(log.groups.subsets.tolist())}
    for subset, earned in rewards.items():
        assert problem.value([subset])[0] == pytest.approx(earned.mean())
        n = 40_000
        tally = problem.play([subset, subset], [n, 1], 5)
        assert abs(tally.total[0] / n - earned.mean()) < 5.3 * earned.std() / n**0.5
        assert abs(tally.squares[0] / n - (earned**2).mean()) < 5.3 * (earned**2).std() / n**0.5
        assert tally.total[1] in earned
    assert problem.best == (1, 2)
    assert problem.value_error == pytest.approx(
        max(each.std(ddof=1) / len(each) ** 0.5 for each in rewards.values()), rel=0.01
    )
    assert log.problem(direction="minimize").best == (0, 3)
    assert kofn.simulate(kofn.Thompson(4, 2, seed=1), problem, 5_000, seed=1).final == (1, 2)


def test_what_was_never_logged_cannot_be_played() -> None:
    log = DecisionLog(np.array([[0, 1], [1, 2]]), np.array([0.5, 7.0]), None, 4)
    problem = log.problem()
    assert problem.reward_range == (0.0, 7.0)
    assert problem.value([(1, 0)])[0] == 0.5
    for ask in (lambda: problem.value([(0, 2)]), lambda: problem.play([(0, 1), (2, 3)], [1, 1], 1)):
        with pytest.raises(BadInput, match=r"the log has no plays of \(\d, \d\)\. It has 2 subsets"):
            ask()
    assert not problem.check()
