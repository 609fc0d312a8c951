"""Logs with contexts: files, estimates by segment, and replays of a policy that takes a context."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import kofn
from kofn.campaigns.decision_files import encoded
from kofn.cli import cli
from kofn.core.contexts import key_of
from kofn.lab.logs import Log, evaluate_by_segment
from kofn.lab.problems import Bernoulli, ContextualProblem, Problem, Segment

PHONE, LAPTOP = {"device": "phone"}, {"device": "laptop"}


def shop() -> ContextualProblem:
    p = {"phone": [0.9, 0.8, 0.1, 0.3], "laptop": [0.2, 0.3, 0.8, 0.6]}
    shares = {"phone": 0.7, "laptop": 0.3}
    return ContextualProblem(
        Segment({"device": device}, shares[device], Problem(Bernoulli(each), "mean", 2)) for device, each in p.items()
    )


def test_contexts_are_written_and_read(tmp_path: Path) -> None:
    log = Log.simulate(shop(), 300, seed=1)
    assert log.segments is not None
    log.write(tmp_path / "log.csv")
    again = Log.read(tmp_path / "log.csv")
    assert again.segments == log.segments
    assert (again.subsets == log.subsets).all()
    lines = ({"subset": "0 1", "reward": 1, "context": context} for context in (PHONE, None, {"device": 3}))
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    read = Log.read(tmp_path / "log.jsonl", n_arms=4)
    assert read.segments == (key_of(PHONE), "{}", '{"device":"3"}')
    (tmp_path / "flat.csv").write_text("subset,reward,device,age\n0 1,1,phone,18-25\n0 2,0,,18-25\n")
    flat = Log.read(tmp_path / "flat.csv", context=["device", "age"])
    assert flat.segments == ('{"age":"18-25","device":"phone"}', '{"age":"18-25","device":"(missing)"}')
    assert Log.read(tmp_path / "flat.csv").segments is None
    (tmp_path / "bad.csv").write_text('subset,reward,context\n0 1,1,"{"\n')
    with pytest.raises(kofn.BadInput, match="line 2: context must be JSON"):
        Log.read(tmp_path / "bad.csv")
    with pytest.raises(kofn.BadInput, match="has no column 'country'"):
        Log.read(tmp_path / "flat.csv", context=["country"])


def test_estimates_by_segment_are_unbiased_and_their_errors_right() -> None:
    """In 60 logs of 600 plays: the mean z of value and gain within 4 standard errors, and their spread near 1."""
    problem, found = shop(), []
    values = {key_of(segment.context): segment.problem.value for segment in problem.segments}
    for seed in range(60):
        each = evaluate_by_segment(Log.simulate(problem, 600, seed=seed))
        gains = [
            (segment.share, values[segment.segment]([segment.best])[0] - values[segment.segment]([each.for_all])[0])
            for segment in each.segments
            if segment.best is not None
        ]
        truth = sum(share * gain for share, gain in gains)
        found.append([(each.value.value - problem.value([each.for_all])[0]) / each.value.error])
        if each.gain.error:
            found[-1].append((each.gain.value - truth) / each.gain.error)
    z = np.array([each for each in found if len(each) == 2])
    assert len(z) > 40
    assert np.abs(z.mean(axis=0)).max() < 4 / math.sqrt(len(z))
    assert np.abs(z.std(axis=0) - 1).max() < 0.35


def test_what_is_not_known_is_said() -> None:
    log = Log.simulate(shop(), 2_000, seed=1)
    assert log.segments is not None
    rare = tuple('{"device":"watch"}' if at % 50 == 0 else key for at, key in enumerate(log.segments))
    found = evaluate_by_segment(Log(log.subsets, log.rewards, log.propensity, 4, segments=rare))
    watch = next(each for each in found.segments if "watch" in each.segment)
    assert (watch.best, watch.value, watch.gain) == (None, None, None)
    assert found.unknown == pytest.approx(0.02)
    assert found.for_all == (0, 1)
    assert found.gain.interval()[0] > 0
    costs = evaluate_by_segment(log, direction="minimize")
    assert costs.for_all == (2, 3)
    with pytest.raises(kofn.BadInput, match="the log has no contexts"):
        evaluate_by_segment(Log(log.subsets, log.rewards, log.propensity, 4))
    with pytest.raises(kofn.BadInput, match="a longer log is needed"):
        evaluate_by_segment(log.part(np.arange(30)))


def campaign_log(path: Path, plays: int, seed: int) -> Log:
    """The decisions of a campaign with contexts, in a shop where the subset of phones is the best for phones only."""
    problem, rng = shop(), np.random.default_rng(seed)
    campaign = kofn.Campaign.create(
        "shop", list("abcd"), 2, policy="contextual-thompson", seed=seed, store=f"sqlite:///{path.parent}/shop.db"
    )
    for _ in range(plays // 20):
        segment = problem.segments[int(rng.random() > 0.7)]
        decisions = campaign.decide(20, context=segment.context)
        earned = segment.problem.play([each.subset for each in decisions], [1] * 20, rng).total
        campaign.rewards({each.id: float(total) for each, total in zip(decisions, earned, strict=True)})
    path.write_bytes(b"".join(encoded(campaign.decisions(), "csv")))
    return Log.read(path)


def test_in_the_log_of_a_campaign_one_subset_for_all_is_valued_within_segments(tmp_path: Path) -> None:
    """Laptops hardly get what phones like: the mean of those who got it is not what all would earn."""
    problem = shop()
    log = campaign_log(tmp_path / "log.csv", 6_000, 3)
    assert log.adaptive
    found = evaluate_by_segment(log)
    values = {key_of(each.context): each.problem.value for each in problem.segments}
    known = [each for each in found.segments if each.gain is not None]
    truth = sum(each.share * values[each.segment]([found.for_all])[0] for each in known) / sum(
        each.share for each in known
    )
    assert found.unknown == pytest.approx(1 - sum(each.share for each in known))
    assert abs(found.value.value - truth) < 4 * found.value.error
    assert {each.segment: each.best for each in found.segments} == {key_of(PHONE): (0, 1), key_of(LAPTOP): (2, 3)}
    for each in found.segments:
        assert each.best is not None
        assert each.value is not None
        assert abs(each.value.value - values[each.segment]([each.best])[0]) < 4 * each.value.error


def test_a_policy_with_contexts_is_replayed() -> None:
    """One play in 6 is used; the mean is at least that of the best subset for all, less 4 standard errors."""
    problem = shop()
    log = Log.simulate(problem, 20_000, seed=2)
    policy = kofn.ContextualThompson(4, 2, seed=1)
    found = kofn.replay(policy, log)
    assert 3_000 < found.plays < 3_700
    assert found.mean > problem.value([problem.best])[0] - 4 * found.error
    assert (policy.best(PHONE), policy.best(LAPTOP)) == ((0, 1), (2, 3))
    with pytest.raises(kofn.BadInput, match="which this log does not have: replay thompson"):
        kofn.replay(kofn.ContextualThompson(4, 2), Log(log.subsets, log.rewards, log.propensity, 4))


def test_the_command_line_shows_segments(tmp_path: Path) -> None:
    path = str(tmp_path / "log.csv")
    Log.simulate(shop(), 2_000, seed=1).write(path)
    said = CliRunner().invoke(cli, ["replay", path, "--by-segment"])
    assert said.exit_code == 0, said.output
    assert "device laptop" in said.output
    assert "beyond the one for all" in said.output
    said = CliRunner().invoke(cli, ["replay", path, "--by-segment", "--json"])
    assert json.loads(said.output)["for_all"] == [0, 1]
    said = CliRunner().invoke(cli, ["replay", path, "--policy", "contextual-thompson"])
    assert said.exit_code == 0, said.output
    few = CliRunner().invoke(cli, ["replay", path, "--by-segment", "--context", "reward"])
    assert few.exit_code == 2 or "cannot say" in few.output
