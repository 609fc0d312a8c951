"""Logs with contexts: files, and replays of a policy that takes a context."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import kofn
from kofn.cli import cli
from kofn.core.contexts import key_of
from kofn.lab.logs import DecisionLog
from kofn.lab.problems import Bernoulli, ContextualProblem, Problem, Segment

PHONE, LAPTOP = {"device": "phone"}, {"device": "laptop"}


def shop() -> ContextualProblem:
    p = {"phone": [0.9, 0.8, 0.1, 0.3], "laptop": [0.2, 0.3, 0.8, 0.6]}
    shares = {"phone": 0.7, "laptop": 0.3}
    return ContextualProblem(
        Segment({"device": device}, shares[device], Problem(Bernoulli(each), "mean", 2)) for device, each in p.items()
    )


def test_contexts_are_written_and_read(tmp_path: Path) -> None:
    log = DecisionLog.simulate(shop(), 300, seed=1)
    assert log.segments is not None
    log.write(tmp_path / "log.csv")
    again = DecisionLog.read(tmp_path / "log.csv")
    assert again.segments == log.segments
    assert (again.subsets == log.subsets).all()
    lines = ({"subset": "0 1", "reward": 1, "context": context} for context in (PHONE, None, {"device": 3}))
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    read = DecisionLog.read(tmp_path / "log.jsonl", n_arms=4)
    assert read.segments == (key_of(PHONE), "{}", '{"device":"3"}')
    (tmp_path / "flat.csv").write_text("subset,reward,device,age\n0 1,1,phone,18-25\n0 2,0,,18-25\n")
    flat = DecisionLog.read(tmp_path / "flat.csv", context=["device", "age"])
    assert flat.segments == ('{"age":"18-25","device":"phone"}', '{"age":"18-25","device":"(missing)"}')
    assert DecisionLog.read(tmp_path / "flat.csv").segments is None
    (tmp_path / "bad.csv").write_text('subset,reward,context\n0 1,1,"{"\n')
    with pytest.raises(kofn.BadInput, match="line 2: context must be JSON"):
        DecisionLog.read(tmp_path / "bad.csv")
    with pytest.raises(kofn.BadInput, match="has no column 'country'"):
        DecisionLog.read(tmp_path / "flat.csv", context=["country"])


def test_a_policy_with_contexts_is_replayed() -> None:
    """One play in 6 is used; the mean is at least that of the best subset for all, less 4 standard errors."""
    problem = shop()
    log = DecisionLog.simulate(problem, 20_000, seed=2)
    policy = kofn.ContextualThompson(4, 2, seed=1)
    found = kofn.replay(policy, log)
    assert 3_000 < found.plays < 3_700
    assert found.mean > problem.value([problem.best])[0] - 4 * found.error
    assert (policy.best(PHONE), policy.best(LAPTOP)) == ((0, 1), (2, 3))
    with pytest.raises(kofn.BadInput, match="which this log does not have: replay thompson"):
        kofn.replay(kofn.ContextualThompson(4, 2), DecisionLog(log.subsets, log.rewards, log.propensity, 4))


def test_the_command_line_replays_a_policy_with_contexts(tmp_path: Path) -> None:
    path = str(tmp_path / "log.csv")
    DecisionLog.simulate(shop(), 2_000, seed=1).write(path)
    said = CliRunner().invoke(cli, ["replay", path, "--policy", "contextual-thompson"])
    assert said.exit_code == 0, said.output
    assert "contextual-thompson replayed on the log" in said.output
