"""Comparisons: the same runs for every policy, the right numbers in the table, and clear words for what cannot be."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import BadInput, Bernoulli, Comparison, Curve, MissingExtra, Policy, Problem, Run, Standing, compare
from kofn.lab.competitors import Trial
from kofn.lab.problems import Beta
from kofn.lab.settings import Setting
from kofn.policies.registry import POLICIES
from tests.cases import for_each

SETTING = Setting("max", n_arms=6, k=2)
PROBLEM = Problem(Bernoulli([0.9, 0.2, 0.4, 0.8, 0.1, 0.3]), "mean", k=2)


def without_seconds(result: Comparison) -> dict[str, Any]:
    """All that does not depend on the clock."""
    said = result.to_dict()
    for row in said["rows"]:
        assert row.pop("seconds") >= 0
    return said


def finals(result: Comparison, name: str) -> list[float]:
    (standing,) = (each for each in result.standings if each.name == name)
    return [trial.run.regret for trial in standing.trials]


# The same runs for all.


def test_policies_meet_the_same_problems_with_the_same_seeds() -> None:
    problems: list[tuple[int, ...]] = []
    seeds: dict[str, list[tuple[int, ...]]] = {"first": [], "second": []}

    def problem(seed: np.random.SeedSequence) -> kofn.lab.problems.AbstractProblem:
        problems.append(tuple(seed.generate_state(4).tolist()))
        return SETTING.problem(seed)

    def factory(label: str) -> Any:
        def make(seed: np.random.SeedSequence) -> Policy:
            seeds[label].append(tuple(seed.generate_state(4).tolist()))
            return kofn.make_policy("shared-credit", 6, 2, seed=seed)

        return make

    result = compare({label: factory(label) for label in seeds}, problem, 500, runs=4, workers=1)
    assert seeds["first"] == seeds["second"]
    assert seeds["first"][0] == seeds["first"][1]  # tried out first, with the seed of the first run
    assert len(set(seeds["first"])) == 4
    assert problems[1:5] == problems[5:]
    assert problems[0] == problems[1]
    assert len(set(problems)) == 4
    assert not set(problems) & set(seeds["first"])
    assert finals(result, "first") == finals(result, "second")  # so the plays have the same seeds, too
    assert len(set(finals(result, "first"))) == 4


def test_any_number_of_workers_gives_the_same_numbers() -> None:
    class Unknown(kofn.Uniform):
        name = "not registered"

    policies: dict[str, Any] = {
        "by name": "dart",
        "coarse": ("cmab-sm", {"resolution": 0.3}),
        "fine": ("cmab-sm", {"resolution": 0.2}),
        "mine": lambda seed: Unknown(6, 2, seed=seed),
    }
    one, two = (compare(policies, SETTING, 20_000, runs=3, workers=workers) for workers in (1, 2))
    assert without_seconds(one) == without_seconds(two)
    assert [each.policy for each in one.standings] == ["dart", "cmab-sm", "cmab-sm", "not registered"]
    coarse, fine = (each.trials[0].run.exploration for each in one.standings[1:3])
    assert 0 < coarse < fine


def test_a_policy_that_a_program_has_registered_plays_on_all_workers(tmp_path: Path) -> None:
    program = tmp_path / "mine.py"
    program.write_text(
        "import kofn\n"
        "@kofn.register\n"
        "class Mine(kofn.Uniform):\n"
        "    name = 'mine'\n"
        "    consistent = False\n"
        "if __name__ == '__main__':\n"
        "    problem = kofn.Problem(kofn.Bernoulli([0.9, 0.2, 0.4]), 'mean', k=2)\n"
        "    result = kofn.compare(['mine', 'uniform'], problem, 100, runs=2, workers=2)\n"
        "    print([row['policy'] for row in result.rows])\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("['mine', 'uniform']\n", "")


# What may be compared, and on what.


def test_parameters_come_before_what_the_problem_says() -> None:
    policies: dict[str, Any] = {"right": "cmab-sm", "told less": ("cmab-sm", {"horizon": 10})}
    right, less = compare(policies, PROBLEM, 10**6, runs=1, workers=1).standings
    assert less.trials[0].run.exploration == 0 < right.trials[0].run.exploration
    with pytest.raises(BadInput, match="the policy has direction='minimize', but the problem has direction='maximize'"):
        compare({"mine": ("dart", {"direction": "minimize"})}, PROBLEM, 100, runs=1, workers=1)


def test_the_oracle_is_told_the_best_and_a_problem_of_costs_is_minimised() -> None:
    problem = Problem(Beta([2, 3, 4, 5, 6], 3), "mean", k=2, direction="minimize")
    result = compare(["oracle", "uniform", "linear-thompson"], problem, 20_000, runs=3, workers=1)
    regret = {row["name"]: row["regret"] for row in result.rows}
    assert regret["oracle"] == 0
    assert 0 < regret["linear-thompson"] < regret["uniform"] / 5
    assert all(trial.run.final == (0, 1) for trial in result.standings[2].trials)


@for_each(
    "problem, title",
    [
        (PROBLEM, "Problem(<6 Bernoulli arms>, <reward mean>, k=2)"),
        (SETTING, "max/N6-K2"),
        (SETTING.problem, "problem"),
    ],
)
def test_what_is_played(problem: Any, title: str) -> None:
    result = compare(["uniform"], problem, 50, runs=2, workers=1)
    assert result.problem == title
    assert str(result).startswith(f"{title}: regret after 50 plays, 2 runs\n")


# What cannot play.


def test_what_cannot_play_is_an_error_or_left_out_with_its_reason() -> None:
    setting = Setting("min", n_arms=60, k=20)  # fewer arms are not offered, and there are too many subsets
    names = ["etcg", "uniform", "improved-ucb"]
    with pytest.raises(BadInput, match="etcg plays fewer than K arms"):
        compare(names, setting, 100, runs=1, workers=1)
    result = compare(names, setting, 100, runs=1, workers=1, skip=True)
    assert [each.name for each in result.standings] == ["uniform"]
    assert list(result.skipped) == ["etcg", "improved-ucb"]
    assert result.skipped["improved-ucb"].startswith("20 of 60 arms make ")
    *_, first, second = str(result).splitlines()
    assert first.startswith("skipped: etcg: etcg plays fewer than K arms")
    assert second == f"skipped: improved-ucb: {result.skipped['improved-ucb']}"
    assert result.to_dict()["skipped"] == result.skipped


def test_nothing_is_run_when_one_policy_cannot_play(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kofn.lab.sweep.compute_unordered", lambda *_, **__: pytest.fail("something was run"))
    with pytest.raises(BadInput, match="etcg plays fewer"):
        compare(["uniform", "etcg"], PROBLEM, 100, runs=1, workers=1)


@for_each(
    "policies, problem, options, message",
    [
        ("dart", PROBLEM, {}, "policies must be a list of names, such as .*; got 'dart'"),
        ([], PROBLEM, {}, "no policy can play this problem: no policy was given"),
        (["dart-2"], PROBLEM, {"skip": True}, "there is no policy 'dart-2': did you mean 'dart'"),
        ({"mine": kofn.Uniform}, PROBLEM, {}, r"a policy must be a name, \(name, parameters\), or a function"),
        ({"mine": ("dart", 3)}, PROBLEM, {}, r"a policy must be a name, .*; got \('dart', 3\)"),
        ({"mine": lambda seed: 7}, PROBLEM, {}, "policy must be a Policy, for instance .*, not 7"),
        ({"mine": ("dart", {"epsilon": 1})}, PROBLEM, {}, "dart does not take epsilon"),
        (["dart"], "max", {"skip": True}, "a problem must be a Problem, a Setting, or a function .*; got 'max'"),
        (["dart"], lambda seed: 3, {}, "a problem must be a Problem, a Setting, or a function .*; got 3"),
        (["dart"], PROBLEM, {"horizon": 0}, "horizon must be a whole number of at least 1, not 0"),
        (["dart"], PROBLEM, {"runs": 0}, "runs must be a whole number of at least 1, not 0"),
        (["dart"], PROBLEM, {"seed": -1}, "seed must be a whole number of at least 0, not -1"),
    ],
)
def test_wrong_input_is_refused_in_words(policies: Any, problem: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=f"^{message}"):
        compare(policies, problem, **{"horizon": 100, "runs": 1, "workers": 1} | options)


# The table, from runs made by hand.


def trial(regret: float, optimal: bool, plan_rows: int, seconds: float, state_bytes: int) -> Trial:
    curve = Curve(np.array([0.0, 1000.0]), np.array([0.0, regret]))
    return Trial(
        Run("p", 1000, (0, 1), optimal, plan_rows, 1000, curve), seconds, state_bytes, 0.0 if optimal else 0.25
    )


@pytest.fixture
def by_hand() -> Comparison:
    standings = (
        Standing("slow", "cmab-sm", False, (trial(900, True, 10, 0.5, 1_234), trial(1100, False, 20, 1.5, 0))),
        Standing("sees", "cucb", True, (trial(1, True, 5, 0.1, 50), trial(3, True, 5, 0.1, 0))),
        Standing("quick", "dart", False, (trial(10, True, 30, 0.25, 80), trial(10, True, 31, 0.25, 0))),
    )
    return Comparison("by hand", 1000, 2, 2021, standings, {"other": "too large"})


def test_the_rows_are_ranked_and_a_reference_never_is(by_hand: Comparison) -> None:
    assert [each.name for each in by_hand.ranked] == ["quick", "slow", "sees"]
    quick, slow, sees = by_hand.rows
    assert slow.pop("low") == 0  # 1,000 - 12.706 * 100, and regret is not negative
    assert slow.pop("high") == pytest.approx(1000 + 12.7062 * 100, abs=0.01)  # Student's t, 1 degree of freedom
    assert slow == {
        "name": "slow",
        "policy": "cmab-sm",
        "reference": False,
        "regret": 1000.0,
        "worst": 1100.0,
        "found_best": 0.5,
        "final_gap": 0.125,
        "plan_rows": 15.0,
        "seconds": 1.0,
        "state_bytes": 1_234,
    }
    assert (quick["low"], quick["high"], quick["plan_rows"]) == (10, 10, 30.5)
    assert (sees["reference"], sees["regret"]) == (True, 2.0)


def test_the_final_gap_is_that_of_the_subsets_that_were_found() -> None:
    result = compare(["uniform", "oracle"], PROBLEM, 100, runs=3, workers=1)
    for standing in result.standings:
        gaps = [float(PROBLEM.gap(np.array([each.run.final]))[0]) for each in standing.trials]
        assert standing.final_gap == pytest.approx(np.mean(gaps))
        assert [gap <= 1e-12 for gap in gaps] == [each.run.optimal for each in standing.trials]


def test_it_prints_itself(by_hand: Comparison) -> None:
    lines = str(by_hand).splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "by hand: regret after 1,000 plays, 2 runs",
        "policy regret 95 % low high worst run found best final gap plan rows s per run state",
        "quick 10 10 10 10 100% 0 30 0.250 80 B",
        "slow 1,000 0 2,271 1,100 50% 0.12 15 1.000 1,234 B",
        "sees (sees arms) 2 0 15 3 100% 0 5 0.100 50 B",
        "skipped: other: too large",
    ]
    assert len({len(line) for line in lines[1:5]}) == 1  # columns


def test_as_json_csv_and_rows_it_is_the_same(by_hand: Comparison) -> None:
    said = json.loads(json.dumps(by_hand.to_dict(), allow_nan=False))
    assert said["rows"] == by_hand.rows
    assert {key: said[key] for key in ("problem", "horizon", "runs", "seed", "skipped")} == {
        "problem": "by hand",
        "horizon": 1000,
        "runs": 2,
        "seed": 2021,
        "skipped": {"other": "too large"},
    }
    assert list(said["curves"]) == ["quick", "slow", "sees"]
    assert (said["curves"]["slow"]["mean"][0], said["curves"]["slow"]["mean"][-1]) == (0, 1000)
    rows = list(csv.DictReader(io.StringIO(by_hand.to_csv())))
    assert [{key: str(value) for key, value in row.items()} for row in by_hand.rows] == rows


def test_as_a_data_frame_if_pandas_is_installed(by_hand: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    assert by_hand.to_frame().to_dict("records") == by_hand.rows
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"pandas is not installed: pip install 'kofn\[pandas\]'"):
        by_hand.to_frame()


# The picture.


def test_it_plots_itself_with_references_dotted(by_hand: Comparison) -> None:
    figure = by_hand.plot()
    (ax,) = figure.axes
    assert ax.get_title() == "by hand: expected regret, mean of 2 runs"
    assert [(line.get_label(), line.get_linestyle()) for line in ax.lines] == [
        ("quick  10", "-"),
        ("slow  1,000", "-"),
        ("sees  2", ":"),
    ]
    for line, standing in zip(ax.lines, by_hand.ranked, strict=True):
        t, regret = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
        assert regret == pytest.approx(t / 1000 * standing.finals.mean())  # the curves made by hand are straight
        assert t[-1] == 1000
    assert len({line.get_color() for line in ax.lines}) == 3
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")  # 10 and 1,000 would not be seen together
    assert len(ax.collections) == 0
    nothing = Standing("oracle", "oracle", False, (trial(0, True, 1, 0.1, 10),))
    (ax,) = Comparison("alone", 1000, 1, 1, (nothing,), {}).plot().axes
    assert [line.get_label() for line in ax.lines] == ["oracle  0"]


def test_regrets_of_one_size_are_drawn_to_scale_with_their_bands(by_hand: Comparison) -> None:
    slow = by_hand.standings[0]
    (ax,) = Comparison("alike", 1000, 2, 1, (slow, slow), {}).plot().axes
    assert (ax.get_xscale(), ax.get_yscale()) == ("linear", "linear")
    assert np.array_equal(np.asarray(ax.lines[0].get_ydata()), slow.band.mean)
    assert len(ax.collections) == 2
    top = max(np.asarray(path.vertices)[:, 1].max() for path in ax.collections[0].get_paths())
    assert top == pytest.approx(slow.band.high[-1])


def test_every_policy_can_be_told_apart_in_the_picture(by_hand: Comparison) -> None:
    many = tuple(Standing(f"policy {i}", "dart", False, by_hand.standings[2].trials) for i in range(len(POLICIES)))
    (ax,) = Comparison("many", 1000, 2, 1, many, {}).plot().axes
    assert len({(line.get_color(), line.get_linestyle()) for line in ax.lines}) == len(many)


# What sees single arms.


def test_what_sees_single_arms_is_a_reference() -> None:
    result = compare(["cucb", "uniform", "oracle"], SETTING, 2_000, runs=2, workers=1)
    assert [(row["name"], row["reference"]) for row in result.rows] == [
        ("oracle", False),
        ("uniform", False),
        ("cucb", True),
    ]


def test_a_function_that_makes_no_problem_is_named() -> None:
    def broken(seed: Any) -> Problem:
        raise RuntimeError(f"no luck with {seed!r}"[:12])

    with pytest.raises(BadInput, match=r"broken\(seed\) failed: RuntimeError: no luck"):
        kofn.compare(["uniform"], broken, 100, 1, workers=1)
