"""Contextual problems, and simulations in which visitors come with their contexts."""

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import kofn
from kofn.cli import cli
from kofn.constraints import NeverTogether
from kofn.core.contexts import key_of
from kofn.core.open_plan import OpenPlan
from kofn.core.plan import Plan
from kofn.lab.arrivals import Visitors, first_plays
from kofn.lab.problems import Bernoulli, ContextualProblem, Problem, Segment, contextual_problem
from kofn.lab.problems.contextual_kinds import KINDS
from kofn.lab.settings import ContextualSetting, Setting
from kofn.lab.suite import settings_named
from tests.cases import for_each
from tests.lab.problems.contextual_policy import ContextualScript

PHONE, LAPTOP, WATCH = ({"device": device} for device in ("phone", "laptop", "watch"))
P = {"phone": [0.9, 0.5, 0.1, 0.3], "laptop": [0.2, 0.5, 0.8, 0.6], "watch": [0.3, 0.4, 0.3, 0.9]}
SHARES = {"phone": 0.5, "laptop": 0.4, "watch": 0.1}


def shop(reward: str = "mean", **options: Any) -> ContextualProblem:
    return ContextualProblem(
        Segment({"device": device}, 2 * SHARES[device], Problem(Bernoulli(p), reward, 2, **options))
        for device, p in P.items()
    )


def test_values_and_regret_are_those_of_the_segments() -> None:
    problem = shop("maximum")
    subsets = np.array(list(combinations(range(4), 2)))
    by_hand = np.zeros(len(subsets))
    best = 0.0
    for device, p in P.items():
        values = 1 - np.prod(1 - np.array(p)[subsets], axis=1)
        by_hand += SHARES[device] * values
        best += SHARES[device] * values.max()
    assert problem.value(subsets) == pytest.approx(by_hand)
    assert problem.optimum == pytest.approx(best)
    assert problem.gap(subsets) == pytest.approx(best - by_hand)
    assert problem.best == tuple(subsets[by_hand.argmax()])
    assert problem.best_by_segment == {key_of(PHONE): (0, 1), key_of(LAPTOP): (2, 3), key_of(WATCH): (1, 3)}
    assert shop("mean").best == (0, 1)  # 0.56 and 0.49 on average
    assert problem.value_error == 0.0
    assert problem.offers == {"best", "arms"}
    ruled = problem.under([NeverTogether([0, 1])])
    assert ruled.best_by_segment[key_of(PHONE)] == (0, 3)
    assert ruled.optimum < problem.optimum


def test_plays_for_random_visitors_have_the_exact_mean_and_variance() -> None:
    """For one play of the mean, in 200,000 draws: means and squares within 5 standard errors."""
    problem = shop()
    rows, draws = np.array([[0, 1], [2, 3]]), 200_000
    tally = problem.play(np.repeat(rows, draws, axis=0), np.ones(2 * draws, np.int64), rng=1, arms=True)
    totals = tally.total.reshape(2, draws)
    assert np.abs(totals.mean(axis=1) - problem.value(rows)).max() < 5 * 0.5 / np.sqrt(draws)
    assert np.abs(tally.arms[:draws].mean(axis=0) - [0.56, 0.49]).max() < 5 * 0.5 / np.sqrt(draws)  # type: ignore[index]
    many = problem.play(rows, [10**6, 10**6], rng=2)
    assert np.abs(many.total / 1e6 - problem.value(rows)).max() < 5 * 0.5e-3
    mean_of_squares = np.mean(totals**2, axis=1)
    assert np.abs(many.squares / 1e6 - mean_of_squares).max() < 5 * 0.5 / np.sqrt(draws)
    assert problem.play_best(10**6, np.random.default_rng(1)) == pytest.approx(problem.optimum * 1e6, abs=2_500)


@for_each("family", KINDS)
def test_families_differ_as_they_say(family: str) -> None:
    problem = contextual_problem(family, 6, 12, 3, "mean", seed=4)
    p = np.array([segment.problem.arms.p for segment in problem.segments])  # type: ignore[attr-defined]
    again = contextual_problem(family, 6, 12, 3, "mean", seed=4)
    assert np.array_equal(problem.shares, again.shares)
    assert problem.contexts[4] == {"country": "c1", "device": "d1"}
    equal_arms = int((np.ptp(p, axis=0) == 0).sum())
    assert equal_arms == {"alike": 12, "some": 9}.get(family, 0)
    alike = sum(np.array_equal(p[i], p[j]) for i, j in combinations(range(6), 2))
    assert alike == {"alike": 15, "attribute": 6}.get(family, 0)
    if family in ("part", "different"):  # of 50 segments and 200 arms, by Fisher's z, to 5 standard errors or so
        wide = contextual_problem(family, 50, 200, 3, "mean", seed=1)
        p = np.array([segment.problem.arms.p for segment in wide.segments])  # type: ignore[attr-defined]
        mean_correlation = (np.corrcoef(p).sum() - 50) / (50 * 49)
        assert mean_correlation == pytest.approx({"part": 0.73, "different": 0.0}[family], abs=0.08)


@for_each(
    "segments, message",
    [
        ([], "at least one segment"),
        ([Segment(PHONE, 0.0, Problem(Bernoulli([0.1, 0.2]), "mean", 1))], "device phone must be above 0"),
        ([Segment(PHONE, 1.0, Problem(Bernoulli([0.1, 0.2]), "mean", 1))] * 2, "device phone is given twice"),
        (
            [
                Segment(PHONE, 1.0, Problem(Bernoulli([0.1, 0.2]), "mean", 1)),
                Segment(LAPTOP, 1.0, Problem(Bernoulli([0.1, 0.2, 0.3]), "mean", 1)),
            ],
            "same n_arms; got 2 and 3",
        ),
        ([(PHONE, 1.0)], "must be Segment"),
    ],
)
def test_bad_segments_are_refused(segments: Any, message: str) -> None:
    with pytest.raises(kofn.BadInput, match=message):
        ContextualProblem(segments)


# Visitors.

ROWS = [(PHONE, (0, 1), 3), (PHONE, (0, 2), 1), (LAPTOP, (2, 3), 4), (PHONE, (1, 2), 2)]
FILLERS = [(0, 3), (1, 3), (2, 3)]


def asked_and_told(policy: ContextualScript, problem: ContextualProblem, rng: np.random.Generator) -> None:
    """Let visitors come one by one until a plan is complete."""
    while not policy.learned:
        segment = problem.segments[rng.choice(len(problem.segments), p=problem.shares)]
        subset = policy.ask(segment.context)
        reward = float(segment.problem.play([subset], [1], rng).total[0])
        policy.tell(subset, reward, context=segment.context)


@pytest.mark.parametrize("plans", [250, pytest.param(3_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("attributes", "most_unplanned"), [(None, 1024), (None, 2), ({"device": ["phone"]}, 1024)])
def test_visitors_drawn_at_once_are_those_who_come_one_by_one(
    attributes: Any, most_unplanned: int, plans: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each segment and subset: mean and mean square of plays and of rewards over all plans, to 5 standard errors.

    A plan may be cut short by different fillers, and segments may be one for the policy.
    """
    monkeypatch.setattr("kofn.lab.arrivals.MOST_UNPLANNED", most_unplanned)
    monkeypatch.setattr("kofn.core.open_plan.MOST_UNPLANNED", most_unplanned)
    problem = shop()
    found: list[list[Any]] = [[], []]
    rng = np.random.default_rng(7)
    for _ in range(plans):
        for number in range(2):
            policy = ContextualScript(4, ROWS, FILLERS, attributes)
            if number:
                played = Visitors(policy, problem).play(10**6, rng)
                assert played.plays == policy.plays
            else:
                asked_and_told(policy, problem, rng)
            assert len(policy.learned) == 1
            found[number].append(policy.learned[0])
    keys = sorted({key for each in found[0] for key in each})
    assert keys == sorted({key for each in found[1] for key in each})
    assert len(keys) > len(ROWS)
    numbers = np.array([[[each.get(key, (0, 0, 0)) for key in keys] for each in way] for way in found])
    for power in (1, 2):
        values = numbers**power
        spread = np.sqrt(values.var(axis=1).sum(axis=0) / plans)
        apart = np.abs(values.mean(axis=1)[0] - values.mean(axis=1)[1])
        assert (apart <= 5 * spread + 1e-9).all()


def test_each_row_is_handed_out_in_proportion_to_its_plays() -> None:
    rng, subsets = np.random.default_rng(3), np.array(list(combinations(range(5), 2)))
    for _ in range(50):
        times, segments = rng.integers(1, 40, size=10), tuple("ab"[at] for at in rng.integers(0, 2, size=10))
        plan = OpenPlan(Plan(subsets, times, segments), {})
        here = np.flatnonzero(np.array(segments) == "a")
        plays = int(rng.integers(0, times[here].sum() + 2))
        for _ in range(plays):
            plan.hand_out("a")
        handed_out = plan.in_flight[here]
        assert first_plays(here, times[here], plays).tolist() == handed_out.tolist()
        assert handed_out.sum() == min(plays, times[here].sum()) == plan.in_flight.sum()
        if len(here) and plays < times[here].sum():
            expected = plays * times[here] / times[here].sum()
            assert abs(handed_out - expected).max() < 2  # a row of one play has its turn early or late


def test_half_a_plan_explores_half_as_much() -> None:
    """Of segments with one row that explores and one that does not, on average over the places in a plan."""
    segments, explored = 2_000, 0
    names = tuple(f"{row // 2}" for row in range(2 * segments))
    plan = OpenPlan(Plan(np.array([[0, 1], [0, 2]] * segments), np.array([1, 9] * segments), names), {})
    for segment in range(segments):
        explored += sum(plan.hand_out(f"{segment}") == (0, 1) for _ in range(5))
    assert abs(explored - segments / 2) <= 3 * np.sqrt(segments / 4)  # phases are more even than random ones


def test_a_simulation_with_contexts_counts_all_plays() -> None:
    problem = shop()
    run = kofn.simulate(ContextualScript(4, ROWS, FILLERS), problem, 1_005, seed=1, realised=True)
    assert run.curve.plays[-1] == 1_005
    assert run.by_segment == dict.fromkeys(problem.best_by_segment, (0, 3))
    assert run.final_gap(problem) == pytest.approx(problem.gap([(0, 3)])[0])
    assert run.realised is not None
    assert run.realised.final == pytest.approx(run.regret, abs=5 * 0.5 * np.sqrt(2 * 1_005))
    assert run.to_dict()["by_segment"][key_of(PHONE)] == [0, 3]
    longer = [(context, subset, 20 * times) for context, subset, times in ROWS]  # a delay of 7 plays changes little
    regret = [kofn.simulate(ContextualScript(4, longer, FILLERS), problem, 4_005, 1, delay=d).regret for d in (0, 7)]
    assert regret[1] == pytest.approx(regret[0], rel=0.1)
    plain = kofn.simulate(
        ContextualScript(4, [({}, (0, 1), 3)], FILLERS), Problem(Bernoulli(P["laptop"]), "mean", 2), 30
    )
    assert plain.by_segment == {}


# Comparisons.


def test_contextual_problems_by_name() -> None:
    setting = ContextualSetting.named("context/some-4", 8, 2, "mean")
    assert setting.name == "context/some-4-mean/N8-K2"
    assert setting.problem(1).value([(0, 1)]) == pytest.approx(
        contextual_problem("some", 4, 8, 2, "mean", seed=1).value([(0, 1)])
    )
    for wrong, message in (("part", "context/part-6; got 'part'"), ("all-6", "no contextual problem 'all'")):
        with pytest.raises(kofn.BadInput, match=message):
            ContextualSetting.named(wrong, 8, 2)
    assert [each.name for each in settings_named(["context"])][:2] == [
        "context/alike-6/N12-K3",
        "context/alike-6-mean/N24-K5",
    ]


def test_a_comparison_with_contexts(tmp_path: Path) -> None:
    """What the two lose after 4,000 plays in 3 different segments: the one that knows the context loses less."""
    setting = ContextualSetting.named("different-3", 6, 2, "mean")
    names = ["contextual-thompson", "thompson"]
    result = kofn.compare(names, setting, horizon=4_000, runs=2, seed=1, workers=1, archive=tmp_path)
    pooled, plain = result.standings
    assert pooled.finals.mean() < 0.7 * plain.finals.mean()
    assert pooled.final_gap < plain.final_gap
    again = kofn.compare(names, setting, horizon=4_000, runs=2, seed=1, workers=2, archive=tmp_path)
    assert [row["regret"] for row in again.rows] == [row["regret"] for row in result.rows]
    assert [row["final_gap"] for row in again.rows] == [row["final_gap"] for row in result.rows]


def test_a_policy_with_contexts_is_left_out_where_there_are_none() -> None:
    names = ["contextual-thompson", "uniform"]
    result = kofn.compare(names, Setting("mean", 6, 2), horizon=20, runs=1, workers=1, skip=True)
    assert "is for problems with contexts" in result.skipped["contextual-thompson"]
    with pytest.raises(kofn.BadInput, match="use thompson, or a problem such as context/part-6"):
        kofn.compare(names, Setting("mean", 6, 2), horizon=20, runs=1, workers=1)


def test_contextual_problems_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--problem", "context/different-2", "--arms", "6", "-k", "2", "--horizon", "300"]
    said = CliRunner().invoke(cli, ["run", "contextual-thompson", *options])
    assert said.exit_code == 0, said.output
    assert re.search(r"best of a segment +found in [012] of 2", said.output)
    said = CliRunner().invoke(cli, ["compare", "contextual-thompson", "uniform", *options, "--runs", "1", "--csv"])
    assert said.exit_code == 0, said.output
    assert said.output.count("\n") == 3


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(kofn.BadInput, match=r"did you mean .alike"):
        contextual_problem("alikee", 6, 12, 3)
