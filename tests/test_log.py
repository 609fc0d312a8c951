"""Logs: read as written, refused when they contradict themselves, and played as problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import BadInput
from kofn.logs import Log
from kofn.problems import Bernoulli, Problem

PROBLEM = Problem(Bernoulli([0.2, 0.5, 0.8, 0.1]), "mean", 2)


def written(folder: Path, text: str) -> Path:
    path = folder / "log.csv"
    path.write_text(text)
    return path


def test_a_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    log = Log.simulate(PROBLEM, 500, seed=3)
    log.write(tmp_path / "log.csv")
    again = Log.read(tmp_path / "log.csv")
    assert (again.subsets == log.subsets).all()
    assert (again.rewards == log.rewards).all()
    assert again.propensity is not None
    np.testing.assert_allclose(again.propensity, 1 / 6)
    assert (again.n_arms, again.k, len(again)) == (4, 2, 500)


def test_arms_may_have_names(tmp_path: Path) -> None:
    log = Log.read(written(tmp_path, "subset,reward\ntea milk,1\ncake tea,0.5\nmilk cake,0\n"), uniform=True)
    assert log.names == ("cake", "milk", "tea")
    assert log.subsets.tolist() == [[1, 2], [0, 2], [0, 1]]
    assert log.subset_of_names(["tea", "cake"]) == (0, 2)
    log.write(tmp_path / "again.csv")
    assert Log.read(tmp_path / "again.csv").names == log.names


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    path = written(tmp_path, "when,shown,clicks,chance\n1,0 1,3,0.5\n2,1 2,0,0.25\n")
    log = Log.read(path, columns=("shown", "clicks", "chance"), n_arms=5)
    assert log.n_arms == 5
    assert log.rewards.tolist() == [3, 0]
    assert log.propensity is not None
    assert log.propensity.tolist() == [0.5, 0.25]


def test_a_log_of_a_problem_is_uniform() -> None:
    """Each of six subsets a sixth of 60,000 times: z below 5.3."""
    log = Log.simulate(PROBLEM, 60_000, seed=1)
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
        ("subset,reward\n0 1,\n", {}, "line 2: reward must be a number, not ''"),
        ("subset,reward\n0 1,nan\n0 2,1\n", {}, "rewards must be finite numbers; play 0 has nan"),
        ("subset,reward\n0 1,1\n0,1\n", {}, "line 3: a subset has 2 different arms, as in line 2"),
        ("subset,reward\n0 1,1\n2 2,1\n", {}, "line 3: a subset has 2 different arms"),
        ("subset,reward\n,1\n", {}, "line 2: a subset has 1 different arms"),
        ("subset,reward\n0 7,1\n", {"n_arms": 5}, "has arm 7, but n_arms=5 numbers arms from 0 to 4"),
        ("subset,reward\na b,1\nb c,1\n", {"n_arms": 5}, "has 3 named arms, but n_arms=5 was given"),
        ("subset,reward\n0 1,1\n", {}, "k must be less than n_arms"),
        (
            "subset,reward,propensity\n0 1,1,0\n0 2,1,1\n",
            {},
            "a propensity must be above 0 and at most 1; play 0",
        ),
        ("subset,reward,propensity\n0 1,1,2\n0 2,1,1\n", {}, "play 0 has 2"),
        ("subset,reward,propensity\n0 1,1,.1\n0 2,1,.2\n", {"uniform": True}, "the propensities of the log differ"),
        (
            "subset,reward\n" + "0 1,1\n" * 99 + "0 2,1\n",
            {"uniform": True},
            "not uniform: arm 2 is in 1 of 100",
        ),
    ],
)
def test_a_log_that_cannot_be_is_refused(tmp_path: Path, text: str, options: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Log.read(written(tmp_path, text), **options)


def test_unknown_arms_are_refused() -> None:
    log = Log.simulate(PROBLEM, 50, seed=1)
    with pytest.raises(BadInput, match="the log has no arm '9'"):
        log.subset_of_names([1, 9])
    with pytest.raises(BadInput, match="a subset must have 2 different arms; got"):
        log.subset_of_names([1, 2, 3])


# As a problem.


def test_a_logged_play_earns_what_was_earned() -> None:
    log = Log.simulate(PROBLEM, 3_000, seed=2)
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


def test_policies_play_a_log() -> None:
    run = kofn.simulate(kofn.Thompson(4, 2, seed=1), Log.simulate(PROBLEM, 3_000, seed=2).problem(), 5_000, seed=1)
    assert run.final == (1, 2)


def test_what_was_never_logged_cannot_be_played() -> None:
    log = Log(np.array([[0, 1], [1, 2]]), np.array([0.5, 7.0]), None, 4)
    problem = log.problem()
    assert problem.reward_range == (0.0, 7.0)
    assert problem.value([(1, 0)])[0] == 0.5
    for ask in (lambda: problem.value([(0, 2)]), lambda: problem.play([(0, 1), (2, 3)], [1, 1], 1)):
        with pytest.raises(BadInput, match=r"the log has no plays of \(\d, \d\)\. It has 2 subsets"):
            ask()
    assert not problem.check()
