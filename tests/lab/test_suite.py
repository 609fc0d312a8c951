"""The suite: a fixed list of settings, results that are kept whole, and rows of them."""

import math
from pathlib import Path
from typing import Any

import pytest

import kofn
from kofn import BadInput
from kofn.lab import suite
from kofn.lab.archive import RunArchive
from kofn.lab.competitors import Competitor, Trial
from kofn.lab.settings import FAMILIES, Setting
from kofn.lab.suite import SUITE, Leaderboard, run_suite, settings_named, versus
from kofn.policies.registry import POLICIES

NAMES = """
    mean/N12-K2 mean/N12-K3 mean/N12-K5 mean/N24-K2 mean/N24-K3 mean/N24-K5 mean/N24-K7 mean/N24-K11
    mean/N45-K2 mean/N45-K4 mean/N45-K8
    max/N12-K2 max/N12-K3 max/N12-K5 max/N24-K2 max/N24-K3 max/N24-K5 max/N24-K7 max/N24-K11
    max/N45-K2 max/N45-K4 max/N45-K8
    cross-selling/N12-K2 cross-selling/N12-K3 cross-selling/N12-K5 cross-selling/N24-K2 cross-selling/N24-K3
    cross-selling/N24-K5 cross-selling/N24-K7 cross-selling/N24-K11 cross-selling/N45-K2 cross-selling/N45-K4
    cross-selling/N45-K8
    close/N12-K3 close/N24-K5 rare/N12-K3 rare/N24-K5 dominant/N12-K3 dominant/N24-K5 equal/N12-K3 equal/N24-K5
    min/N12-K3 min/N24-K5 likely-min/N12-K3 likely-min/N24-K5 threshold/N12-K3 threshold/N24-K5
    correlated/N12-K3 correlated/N24-K5
    mean/N1000-K10 mean/N10000-K10 max/N1000-K10 max/N10000-K10
"""
MIN, RARE = Setting("min", 12, 3), Setting("rare", 12, 3)
SMALL: dict[str, Any] = {"horizon": 200, "runs": 2, "seed": 3, "workers": 1}


# The settings.


def test_the_settings_are_fixed() -> None:
    """Results of different versions can be compared because this list does not change: add to it, at the end."""
    assert [setting.name for setting in SUITE] == NAMES.split()
    assert {setting.family for setting in SUITE} == set(FAMILIES)


def test_settings_by_name_and_by_family() -> None:
    assert settings_named([]) == list(SUITE)
    assert [each.name for each in settings_named(["rare", "max/N12-K3"])] == [
        "max/N12-K3",
        "rare/N12-K3",
        "rare/N24-K5",
    ]
    with pytest.raises(
        BadInput,
        match=r"there is no setting 'median': did you mean 'mean'\? Available: mean, max, ",
    ):
        settings_named(["median", "max", "max/N13-K3"])


# The archive.


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """The runs that are really done."""
    made: list[tuple[str, str, int]] = []

    def counted(competitor: Competitor, run: int) -> Trial:
        assert isinstance(competitor.problem, Setting)
        made.append((competitor.problem.name, competitor.label, run))
        return play(competitor, run)

    play = Competitor.play
    monkeypatch.setattr(Competitor, "play", counted)
    return made


def run(archive: RunArchive, policies: tuple[str, ...] = ("uniform", "oracle", "etcg"), **options: Any) -> list[Any]:
    return list(run_suite(archive, settings=[MIN, RARE], policies=policies, **SMALL | options))


def test_what_is_in_the_store_is_not_run_again(tmp_path: Path, calls: list[tuple[str, str, int]]) -> None:
    archive = RunArchive(tmp_path)
    first = run(archive)
    pairs = [(setting, policy) for setting in ("min/N12-K3", "rare/N12-K3") for policy in ("uniform", "oracle", "etcg")]
    assert [(each["setting"], each["policy"]) for each in first] == pairs
    played = [(*pair, number) for pair in pairs if pair != ("min/N12-K3", "etcg") for number in range(2)]
    assert calls == played
    assert run(archive) == first
    assert calls == played  # nothing more
    (path,) = tmp_path.glob(f"{kofn.__version__}/rare/N12-K3/uniform-*.jsonl")
    path.unlink()
    again = run(archive)
    assert calls == [*played, ("rare/N12-K3", "uniform", 0), ("rare/N12-K3", "uniform", 1)]
    assert again[3]["finals"] == first[3]["finals"]  # the same seed


def test_a_result_has_what_was_asked_its_row_and_its_runs(tmp_path: Path) -> None:
    uniform, _, etcg, *_ = run(RunArchive(tmp_path))
    asked = {"setting": "min/N12-K3", "policy": "uniform", "horizon": 200, "runs": 2, "seed": 3}
    assert uniform.items() >= asked.items()
    compared = kofn.compare(["uniform"], MIN, **SMALL).standings[0]
    assert uniform["finals"] == compared.finals.tolist()
    assert uniform["row"]["regret"] == compared.to_dict()["regret"]
    assert etcg["skipped"].startswith("etcg plays fewer than K arms")  # what cannot play comes with its reason
    assert "row" not in etcg


@pytest.mark.parametrize("other", [{"runs": 0}, {"horizon": 1.5}, {"seed": -1}, {"policies": ["nope"]}])
def test_wrong_input_is_refused_before_anything_runs(
    other: dict[str, Any], tmp_path: Path, calls: list[tuple[str, str, int]]
) -> None:
    with pytest.raises(BadInput):
        run(RunArchive(tmp_path), **other)
    assert calls == []
    assert list(tmp_path.iterdir()) == []


def test_all_policies_play_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "entry_or_reason", lambda _: "not here")
    found = list(run_suite(RunArchive(tmp_path), settings=[MIN]))
    assert [each["policy"] for each in found] == sorted(POLICIES)
    assert (found[0]["horizon"], found[0]["runs"], found[0]["seed"]) == (10**6, 10, 2021)


def test_what_would_take_too_long_is_not_tried(tmp_path: Path, calls: list[tuple[str, str, int]]) -> None:
    large, many = Setting("mean", 1_000, 10), Setting("mean", 45, 8)
    assert math.comb(45, 8) > suite.MAX_SUBSETS > math.comb(45, 4)
    names = ["improved-ucb", "linear-thompson", "uniform"]
    found = list(run_suite(RunArchive(tmp_path), settings=[large, many], policies=names, horizon=10, runs=1, workers=1))
    quadratic = "with more than 500 arms, the suite runs only policies with memory linear in N"
    subsets = "with more than 200,000 subsets, the suite runs no policy that keeps a number for each subset"
    assert [each.get("skipped") for each in found] == [quadratic, quadratic, None, subsets, None, None]
    assert [each[:2] for each in calls] == [
        ("mean/N1000-K10", "uniform"),
        ("mean/N45-K8", "linear-thompson"),
        ("mean/N45-K8", "uniform"),
    ]


# Two versions.


def result(setting: str, policy: str, regret: float | None, **asked: int) -> dict[str, Any]:
    """A result made by hand; one that cannot play without a regret."""
    end = {"skipped": "cannot"} if regret is None else {"row": {"regret": regret}, "finals": [regret]}
    return {"setting": setting, "policy": policy, "horizon": 1000, "runs": 1, "seed": 2021} | asked | end


def test_two_versions_side_by_side(tmp_path: Path) -> None:
    before, now = RunArchive(tmp_path, "0.0.9"), RunArchive(tmp_path)
    then = run(before, ("uniform", "oracle"))
    found = run(now, ("uniform", "etcg"))
    assert now.versions == ["0.0.9", kofn.__version__]
    regret = [each["row"]["regret"] for each in (then[0], then[2])]
    assert versus(found, now.of_version("0.0.9")) == [
        {"setting": "min/N12-K3", "policy": "uniform", "before": regret[0], "after": regret[0]},
        {"setting": "rare/N12-K3", "policy": "uniform", "before": regret[1], "after": regret[1]},
    ]
    for other in ({"seed": 4}, {"horizon": 100}, {"runs": 3}):  # not the same runs
        with pytest.raises(BadInput, match=r".* has none of these runs of version 0\.0\.9: run its suite first"):
            versus(run(now, ("uniform",), **other), before)
    fewer = versus(run(now, ("uniform",), runs=1), before)
    assert fewer[0]["before"] == fewer[0]["after"] == then[0]["finals"][0]
    with pytest.raises(BadInput, match=r"has no results of version '0\.0\.8'; it has: 0\.0\.9, "):
        now.of_version("0.0.8")
    with pytest.raises(BadInput, match="it has: none"):
        RunArchive(tmp_path / "empty").of_version("0.0.9")


# The leaderboard, from results made by hand.

BOARD = Leaderboard(
    (
        *(result("max/N12-K3", policy, regret) for policy, regret in [("dart", 100.0), ("slots", 400.0)]),
        *(result("max/N12-K3", policy, regret) for policy, regret in [("uniform", 9e4), ("oracle", 0.0)]),
        *(result("max/N12-K3", policy, regret) for policy, regret in [("cucb", 10.0), ("etcg", None)]),
        *(result("max/N24-K5", policy, regret) for policy, regret in [("dart", 300.0), ("slots", 200.0)]),
        *(result("equal/N12-K3", policy, regret) for policy, regret in [("dart", 0.0), ("slots", 0.0)]),
        *(result("rare/N12-K3", policy, regret) for policy, regret in [("dart", 10.0), ("oracle", 0.0)]),
    )
)


def test_standings_count_wins_and_ratios_of_rivals_only() -> None:
    assert BOARD.settings == ["max/N12-K3", "max/N24-K5", "rare/N12-K3", "equal/N12-K3"]  # as in the suite
    assert BOARD.ranked("max/N12-K3") == {"dart": 100, "slots": 400}
    assert BOARD.standings() == [
        {"policy": "dart", "settings": 3, "wins": 2, "median_ratio": 1.0, "worst_ratio": 1.5},
        {"policy": "slots", "settings": 2, "wins": 1, "median_ratio": 2.5, "worst_ratio": 4.0},
    ]


def test_rows_have_the_standings_and_every_result() -> None:
    first, second, *rest = BOARD.rows()
    assert first == {
        "setting": "all", "policy": "dart", "plays": 1000, "runs": 1, "regret": None,
        "settings": 3, "best_in": 2, "median_ratio": 1.0, "worst_ratio": 1.5,
    }  # fmt: skip
    assert second["policy"] == "slots"
    assert rest[0] == {"setting": "max/N12-K3", "policy": "dart", "plays": 1000, "runs": 1, "regret": 100.0}
    assert len(rest) == sum("row" in each for each in BOARD.results)
