"""Curves between their breakpoints, and the band of their mean: against SciPy, and against what it promises."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from kofn import BadInput, Band, Curve
from kofn.lab.curves import MOST_POINTS
from tests.cases import for_each


def curve(*points: tuple[float, float]) -> Curve:
    plays, regret = zip(*points, strict=True)
    return Curve(np.array(plays, float), np.array(regret, float))


BENT = curve((0, 0), (10, 5), (20, 6))


# One curve.


@for_each("plays, regret", [(0, 0), (1, 0.5), (10, 5), (12.5, 5.25), (19, 5.9), (20, 6)])
def test_a_curve_is_straight_between_breakpoints(plays: float, regret: float) -> None:
    assert BENT.at(plays) == pytest.approx(regret)
    assert BENT.final == 6.0


@for_each("plays", [-1, 20.5, math.nan, math.inf, [0, 21]])
def test_a_curve_does_not_guess_outside_its_run(plays: float) -> None:
    with pytest.raises(BadInput, match=r"plays must be from 0 to 20, the length of the run; got "):
        BENT.at(plays)


@pytest.mark.parametrize("plays", ["soon", [[1], [2, 3]], {}])
def test_what_is_not_a_number_of_plays_is_refused(plays: object) -> None:
    with pytest.raises(BadInput, match="plays must be numbers from 0 to 20, not "):
        BENT.at(plays)  # type: ignore[arg-type]


# Many.


def ends(*finals: float, horizon: float = 100) -> list[Curve]:
    return [curve((0, 0), (horizon, final)) for final in finals]


def test_the_mean_of_curves_with_other_breakpoints() -> None:
    band = Band.over([BENT, curve((0, 0), (20, 20))], points=5)
    assert band.plays.tolist() == [0, 5, 10, 15, 20]
    assert band.mean.tolist() == [0, (2.5 + 5) / 2, (5 + 10) / 2, (5.5 + 15) / 2, (6 + 20) / 2]
    assert band.runs == 2


@for_each("level", [0.5, 0.95, 0.999])
@for_each("runs", [2, 3, 10, 40])
def test_the_band_is_students_interval(runs: int, level: float) -> None:
    finals = np.random.default_rng(runs).gamma(2, 50, runs)
    band = Band.over(ends(*finals), level=level, points=2)
    low, high = stats.t.interval(level, runs - 1, finals.mean(), stats.sem(finals))
    assert (band.low[-1], band.mean[-1], band.high[-1]) == pytest.approx((low, finals.mean(), high))


def test_the_band_covers_as_often_as_it_says() -> None:
    # Normal curves: the mean lies inside with probability 0.95 exactly, so 1,900 times of 2,000, give or take 9.7.
    trials, runs, rng = 2_000, 5, np.random.default_rng(6)
    inside = 0
    for finals in rng.normal(100, 30, (trials, runs)):
        band = Band.over(ends(*finals), points=2)
        inside += bool(band.low[-1] <= 100 <= band.high[-1])
    assert abs(inside - 0.95 * trials) < 4.5 * math.sqrt(trials * 0.95 * 0.05)


def test_one_run_has_no_width() -> None:
    band = Band.over([BENT], points=3)
    assert band.mean.tolist() == band.low.tolist() == band.high.tolist() == [0, 5, 6]
    assert band.runs == 1


def test_runs_of_other_lengths_are_compared_where_all_have_played() -> None:
    band = Band.over([*ends(10, horizon=100), *ends(30, horizon=60)], points=4)
    assert band.plays.tolist() == [0, 20, 40, 60]
    assert band.mean[-1] == pytest.approx((6 + 30) / 2)


def test_a_band_is_ready_for_json() -> None:
    said = json.loads(json.dumps(Band.over(ends(8, 12), points=2).to_dict(), allow_nan=False))
    assert list(said) == ["runs", "level", "plays", "mean", "low", "high"]
    assert (said["runs"], said["level"], said["plays"], said["mean"]) == (2, 0.95, [0, 100], [0, 10])
    assert said["low"][1] + said["high"][1] == pytest.approx(20)


# Refusals.


@for_each("points", [1, 0, -5, MOST_POINTS + 1, 2.5, "many", None, True])
def test_too_few_or_too_many_points_are_refused(points: int) -> None:
    with pytest.raises(BadInput, match="points must be"):
        Band.over(ends(1, 2), points=points)


@for_each("level", [0, 1, 0.0, 1.0, -0.5, 95, math.nan, "high", None])
def test_a_level_is_a_probability(level: float) -> None:
    with pytest.raises(BadInput, match=r"level must be a probability such as 0\.95, not "):
        Band.over(ends(1, 2), level=level)


def test_no_curves_have_no_band() -> None:
    with pytest.raises(BadInput, match="at least one curve"):
        Band.over([])
