"""The paper's figures as data: settings, published curves, and what running a figure again says."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kofn import ArctanExponential, BadInput, Bernoulli, Curve, Problem, Run, ShortHorizonWarning, make_policy
from kofn.lab.paper import (
    FIGURES,
    Cell,
    Dominance,
    Panel,
    PanelPolicy,
    PanelResult,
    figures_named,
    run_panel,
)
from kofn.lab.problems import AbstractProblem, Correlated
from kofn.lab.published import published
from kofn.lab.readings import ReadingInstances
from kofn.lab.settings import FAMILIES, Setting, family_named
from tests.cases import for_each

# Settings.


def made(setting: Setting, seed: int) -> Problem:
    problem = setting.problem(seed)
    assert isinstance(problem, Problem)
    return problem


KINDS: list[tuple[str, str, type]] = [
    ("mean", "mean", Bernoulli),
    ("max", "maximum", Bernoulli),
    ("min", "minimum", Bernoulli),
    ("cross-selling", "cross-selling", ArctanExponential),
    ("close", "mean", Bernoulli),
    ("rare", "maximum", Bernoulli),
    ("dominant", "mean", Bernoulli),
    ("equal", "mean", Bernoulli),
    ("likely-min", "minimum", Bernoulli),
    ("threshold", "threshold", Bernoulli),
    ("correlated", "maximum", Correlated),
]


@for_each("name, reward, arms", KINDS)
def test_each_family_makes_its_problem(name: str, reward: str, arms: type) -> None:
    assert [name for name, *_ in KINDS] == list(FAMILIES)
    problem = made(Setting(name, n_arms=30, k=4), 1)
    assert isinstance(problem.arms, arms)
    assert problem.reward.name == reward
    assert (problem.n_arms, problem.k, problem.direction) == (30, 4, "maximize")
    assert family_named(name).name == name
    assert problem.absent == (None if reward == "minimum" else 0.0)  # a minimum with an empty place is always 0


@for_each(
    "name, low, high",
    [("mean", 0.0, 1.0), ("max", 0.0, 1.0), ("close", 0.45, 0.55), ("rare", 0.0, 0.02), ("likely-min", 0.5, 1.0)],
)
def test_arms_are_drawn_from_the_range_of_their_family(name: str, low: float, high: float) -> None:
    p = made(Setting(name, 1_000, 2), 1).arms.mean
    assert low <= p.min() < low + 0.02 * (high - low)
    assert high - 0.02 * (high - low) < p.max() <= high
    assert p.mean() == pytest.approx((low + high) / 2, abs=0.05 * (high - low))  # 5 standard deviations


@for_each("name", sorted(FAMILIES))
def test_an_instance_is_made_again_by_its_seed(name: str) -> None:
    setting = Setting(name, 8, 3)
    first, again, other = (made(setting, seed) for seed in (5, 5, 6))
    assert first.arms.mean.tolist() == again.arms.mean.tolist() != other.arms.mean.tolist()


@for_each("family, n_arms, k", [("nope", 5, 2), (["max"], 5, 2), ("max", 5, 5), ("max", 5, 0)])
def test_a_setting_that_cannot_be_is_refused(family: str, n_arms: int, k: int) -> None:
    with pytest.raises(BadInput):
        Setting(family, n_arms, k)


# What the paper printed.

FINALS = {  # read off the paper's figures, not from the file that is tested
    ("mean", 45, "cmab-sm"): {2: 129_634, 4: 209_295, 8: 232_886},
    ("mean", 45, "csar"): {2: 122_254, 4: 114_751, 8: 137_933},
    ("mean", 45, "ucb"): {2: 58_980, 4: 454_308},
    ("max", 12, "cmab-sm"): {2: 49_359, 3: 12_909, 5: 4_284},
    ("max", 12, "ucb"): {2: 10_775, 3: 29_854, 5: 24_606},
    ("cross-selling", 12, "cmab-sm"): {2: 73_967, 3: 9_705, 5: 6_208},
    ("cross-selling", 12, "ucb"): {2: 10_478, 3: 48_899, 5: 35_761},
}


def test_every_printed_curve_is_there_with_its_final_regret() -> None:
    finals = {(family, n, k, name): end for (family, n, name), ends in FINALS.items() for k, end in ends.items()}
    assert {key: round(curve.final) for key, curve in published().items()} == finals
    assert len(finals) == 20


# Figures by name.


@for_each(
    "name, found",
    [
        (None, list(FIGURES)),
        ("max", ["max-12", "max-24"]),
        ("max-24", ["max-24"]),
        ("mean", ["mean-45"]),
        ("cross-selling", ["cross-selling-12", "cross-selling-24"]),
        ("dominance", ["dominance-bernoulli", "dominance-exponential"]),
    ],
)
def test_figures_by_name(name: str | None, found: list[str]) -> None:
    assert [figure.name for figure in figures_named(name)] == found


@for_each("name", ["maximum", "max-45", "", "MAX"])
def test_an_unknown_figure_is_refused_with_the_list(name: str) -> None:
    with pytest.raises(BadInput) as refused:
        figures_named(name)
    assert repr(name) in str(refused.value)
    assert all(each in str(refused.value) for each in FIGURES)


def test_the_figures_are_those_of_the_paper() -> None:
    panels = {name: figure for name, figure in FIGURES.items() if isinstance(figure, Panel)}
    assert {name: (each.family, each.n_arms, each.ks, each.runs) for name, each in panels.items()} == {
        "cross-selling-12": ("cross-selling", 12, (2, 3, 5), 30),
        "cross-selling-24": ("cross-selling", 24, (2, 3, 5, 7, 11), 30),
        "max-12": ("max", 12, (2, 3, 5), 30),
        "max-24": ("max", 24, (2, 3, 5, 7, 11), 30),
        "mean-45": ("mean", 45, (2, 4, 8), 25),
    }
    for panel in panels.values():
        for k in panel.ks:
            names = {line.published for line in panel.policies(k)}
            printed = {key[3] for key in published() if key[:3] == (panel.family, panel.n_arms, k)}
            assert printed <= names
            assert ("csar" in names) == (panel.family == "mean")  # the only linear reward
    assert [figure.name for figure in FIGURES.values() if isinstance(figure, Dominance)] == [
        "dominance-bernoulli",
        "dominance-exponential",
    ]


# Cells.


def run_of(plays: list[float], regret: list[float], *, optimal: bool = True, exploration: int = 0) -> Run:
    curve = Curve(np.array(plays), np.array(regret))
    return Run("p", int(plays[-1]), (0, 1), optimal, 7, exploration, curve)


def cell_of(policy: str, final: float, printed: float | None, *, k: int = 2, schedule: str = "figures") -> Cell:
    curve = None if printed is None else Curve(np.array([0.0, 800.0]), np.array([0.0, printed]))
    line = PanelPolicy(policy, schedule, {"cmab-sm": "cmab-sm", "improved-ucb": "ucb"}[policy])
    return Cell.of(k, line, [run_of([0, 1_000], [0, final])], curve)


def test_a_cell_is_the_mean_of_its_runs() -> None:
    runs = [run_of([0, 100], [0, 10], exploration=40), run_of([0, 100], [0, 30], optimal=False, exploration=60)]
    cell = Cell.of(2, PanelPolicy("cmab-sm", "printed", "cmab-sm"), runs, None)
    assert (cell.final, cell.found, cell.exploration, cell.plan_rows) == (20, 0.5, 50, 7)
    assert (cell.ratio, cell.policy.name) == (None, "cmab-sm (printed)")
    said = cell.to_dict()
    assert (said["k"], said["final"], said["found_best"], said["published"], said["compared_at"]) == (
        (2, 20, 0.5, None, None)
    )
    assert said["final_low"] == cell.band.low[-1] < 20 < cell.band.high[-1] == said["final_high"]


@for_each("horizon, at, published", [(400, 400, 20), (900, 800, 40)])
def test_a_shorter_run_is_compared_at_its_own_end(horizon: float, at: float, published: float) -> None:
    printed = Curve(np.array([0.0, 200.0, 800.0]), np.array([0.0, 10, 40]))
    cell = Cell.of(2, PanelPolicy("cmab-sm", "figures", "cmab-sm"), [run_of([0, horizon], [0, 20])], printed)
    assert cell.compared_at == at
    assert cell.theirs == pytest.approx(published)
    assert cell.ours == pytest.approx(20 * at / horizon)
    assert cell.ratio == pytest.approx(20 * at / horizon / published)
    said = cell.to_dict()
    assert (said["compared_at"], said["published"], said["ours"]) == (cell.compared_at, cell.theirs, cell.ours)


def test_orders_are_of_the_figures_schedule() -> None:
    cells = (
        cell_of("cmab-sm", 50, 300),
        cell_of("cmab-sm", 999, 300, schedule="printed"),
        cell_of("improved-ucb", 100, 200),
        cell_of("cmab-sm", 1, 1, k=3),
        cell_of("improved-ucb", 5, None, k=3),
    )
    panel = FIGURES["max-12"]
    assert isinstance(panel, Panel)
    result = PanelResult(panel, 1_000, 1, 1, cells)
    assert result.orders(2) == (["cmab-sm", "ucb"], ["ucb", "cmab-sm"])
    assert result.orders(3) == (["cmab-sm"], ["cmab-sm"])
    assert result.orders(5) == ([], [])
    assert result.at(3) == list(cells[3:])


# A figure, run again.

SMALL = Panel("max-12", "Maximum, N = 12", "max", 12, (2, 3), 3, (2,))


@pytest.fixture(scope="module")
def small() -> PanelResult:
    return run_panel(SMALL, horizon=3_000, workers=1, seed=5)


def test_a_panel_has_a_cell_for_each_k_and_line(small: PanelResult) -> None:
    assert [(cell.k, cell.policy.name) for cell in small.cells] == [
        (2, "cmab-sm (figures)"),
        (2, "cmab-sm (printed)"),
        (2, "improved-ucb (figures)"),
        (2, "improved-ucb (printed)"),
        (2, "thompson"),
        (3, "cmab-sm (figures)"),
        (3, "cmab-sm (printed)"),
        (3, "thompson"),
    ]
    assert (small.horizon, small.runs, small.seed) == (3_000, 3, 5)
    for cell in small.cells:
        assert cell.band.runs == 3
        assert cell.band.plays[-1] == 3_000
        assert 0 < cell.final < 3_000
        assert cell.printed is published().get(("max", 12, cell.k, cell.policy.published))


def test_all_policies_play_the_same_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[float] = []
    original = Setting.problem

    def problem(setting: Setting, seed: np.random.SeedSequence) -> AbstractProblem:
        made.append(original(setting, seed).optimum)
        return original(setting, seed)

    monkeypatch.setattr(Setting, "problem", problem)
    run_panel(Panel("max-12", "", "max", 12, (2,), 3, (2,)), horizon=100, workers=1)
    tried, played = made[:5], made[5:]
    assert tried == played[:1] * 5  # each of five lines is tried out on the first instance
    assert played == played[:3] * 5  # and has three runs
    assert len(set(made)) == 3


def test_a_shorter_horizon_is_compared_with_the_published_curve_at_that_play() -> None:
    result = run_panel(Panel("max-12", "", "max", 12, (3,), 2, ()), horizon=30_000, workers=1)
    assert result.compared_at == result.to_dict()["compared_at"] == 30_000
    at_30_000 = float(published()["max", 12, 3, "cmab-sm"].at(30_000))
    for cell in result.cells[:2]:
        assert cell.theirs == at_30_000 < 12_909.17
        assert cell.ratio == pytest.approx(cell.final / at_30_000)
    assert result.published_values(3) == {"ucb": float(published()["max", 12, 3, "ucb"].at(30_000))}


def test_a_panel_is_ready_for_json(small: PanelResult) -> None:
    said = json.loads(json.dumps(small.to_dict(), allow_nan=False))
    assert {name: said[name] for name in ("figure", "family", "n_arms", "horizon", "runs", "seed")} == {
        "figure": "max-12",
        "family": "max",
        "n_arms": 12,
        "horizon": 3_000,
        "runs": 3,
        "seed": 5,
    }
    assert [(cell["policy"], cell["schedule"]) for cell in said["cells"][:2]] == [
        ("cmab-sm", "figures"),
        ("cmab-sm", "printed"),
    ]
    assert said["cells"][0]["published"] is said["cells"][0]["compared_at"] is said["compared_at"] is None
    assert said["cells"][0]["final"] == said["cells"][0]["curve"]["mean"][-1]
    assert said["only_published"] == {"2": {}, "3": {}}


def test_a_panel_is_the_same_on_any_number_of_workers(small: PanelResult) -> None:
    assert run_panel(SMALL, horizon=3_000, workers=2, seed=5).to_dict() == small.to_dict()
    assert run_panel(SMALL, horizon=3_000, workers=1, seed=6).to_dict() != small.to_dict()


def test_progress_counts_the_runs_of_the_whole_figure() -> None:
    seen: list[tuple[int, int]] = []
    run_panel(SMALL, horizon=100, runs=2, workers=1, progress=lambda *at: seen.append(at))
    assert seen == [(done, 16) for done in range(1, 17)]


def test_a_line_plays_with_its_schedule_and_without_a_note(tmp_path: Path) -> None:
    panel = Panel("mean-45", "", "mean", 45, (2,), 1, ())
    run_panel(panel, horizon=1_000, workers=1, archive=tmp_path)  # warnings are errors here
    files = {path.stem.rpartition("-")[0]: path for path in tmp_path.rglob("*.jsonl")}
    assert set(files) == {"cmab-sm-figures", "cmab-sm-printed", "csar", "thompson"}
    heads = {name: json.loads(path.read_text().splitlines()[0]) for name, path in files.items()}
    assert {head["policy"] for head in heads.values()} == {"cmab-sm", "csar", "thompson"}
    assert heads["cmab-sm-figures"]["digest"] != heads["cmab-sm-printed"]["digest"]
    assert PanelPolicy("cmab-sm", "printed").params == {"schedule": "printed"}
    assert (PanelPolicy("csar").params, PanelPolicy("csar").name) == ({}, "csar")
    with pytest.warns(ShortHorizonWarning):
        make_policy("cmab-sm", 45, 2, horizon=1_000)


@for_each("horizon, runs", [(1, 2), (0, 2), (100, 0), (100, -1), (2.5, 1)])
def test_a_panel_that_cannot_be_run_is_refused(horizon: int, runs: int) -> None:
    with pytest.raises(BadInput, match="must be a whole number"):
        run_panel(SMALL, horizon=horizon, runs=runs, workers=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["max-12", "mean-45"])
def test_the_figures_come_out_as_published(name: str) -> None:
    panel = FIGURES[name]
    assert isinstance(panel, Panel)
    result = run_panel(panel, horizon=10**6, runs=30)
    for k in panel.ks:
        ours, theirs = result.orders(k)
        assert ours == theirs
    ratios = {(cell.k, cell.policy.name): cell.ratio for cell in result.cells if cell.policy.schedule == "figures"}
    assert all(ratio is not None and 0.5 <= ratio <= 2 for ratio in ratios.values()), ratios


# Readings of cross-selling.


@for_each(
    "name, low, high, factor",
    [
        ("scale", 0, 10, 1),
        ("rate", 0.1, np.inf, 1),
        ("scale-1", 0, 1, 1),
        ("rate-1", 1, np.inf, 1),
        ("factor", 0, 1, 0.6),
    ],
)
def test_a_reading_makes_its_problem(name: str, low: float, high: float, factor: float) -> None:
    problem = ReadingInstances(name, 1_000, 5)(np.random.SeedSequence(1))
    arms: Any = vars(problem.__dict__.get("_problem", problem))["arms"]
    assert low <= arms.scale.min() < arms.scale.max() <= high
    median = {"scale": 5, "rate": 0.2, "scale-1": 0.5, "rate-1": 2, "factor": 0.5}[name]
    assert np.median(arms.scale) == pytest.approx(median, rel=0.2)  # 6 standard errors of a uniform median
    plain = Problem(arms, "cross-selling", 5)
    rows = [(1, 2, 3, 4, 5)]
    np.testing.assert_allclose(problem.value(rows), factor * plain.value(rows))
    one, other = problem.play(rows, [100], 1), plain.play(rows, [100], 1)
    np.testing.assert_allclose(one.total, factor * other.total)
    np.testing.assert_allclose(one.squares, factor**2 * other.squares)
    assert problem.best == plain.best


def test_other_readings_are_for_cross_selling() -> None:
    assert [figure.name for figure in figures_named(None, "rate")] == ["cross-selling-12-rate", "cross-selling-24-rate"]
    assert figures_named("max", "scale") == figures_named("max")
    for name in ("max-12", "dominance-bernoulli", None):
        with pytest.raises(BadInput, match=r"only the cross-selling figures have other readings|no reading 'nope'"):
            figures_named(name, "rate" if name else "nope")


def test_a_reading_is_run_and_compared() -> None:
    (panel,) = figures_named("cross-selling-12", "rate")
    assert isinstance(panel, Panel)
    found = run_panel(panel, horizon=20_000, runs=2, workers=1).to_dict()
    assert (found["figure"], found["reading"], found["family"]) == ("cross-selling-12-rate", "rate", "cross-selling")
    cell = found["cells"][0]
    assert cell["ratio_low"] < cell["ratio"] < cell["ratio_high"]


def test_deviations_are_between_runs() -> None:
    """Finals 100 and 300: mean 200, standard deviation 141.4; 500 published is 2.12 of them above."""
    printed = Curve(np.array([0.0, 10.0]), np.array([0.0, 500.0]))
    cell = Cell.of(2, PanelPolicy("cmab-sm"), [run_of([0, 10], [0, end]) for end in (100.0, 300.0)], printed)
    assert cell.deviations == pytest.approx(300 / np.std([100, 300], ddof=1))
    assert cell.ratio_interval is not None
    assert np.mean(cell.ratio_interval) == pytest.approx(cell.ratio)


def test_the_default_reading_is_the_family() -> None:
    seed = np.random.SeedSequence(4)
    family = made(Setting("cross-selling", 12, 3), 4).arms
    assert isinstance(family, ArctanExponential)
    reading = ReadingInstances("scale", 12, 3)(seed)
    assert isinstance(reading, Problem)
    assert isinstance(reading.arms, ArctanExponential)
    assert reading.arms.scale.tolist() == family.scale.tolist()
