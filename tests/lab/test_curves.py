"""Curves between their breakpoints, and the band of their mean: against SciPy, and against what it promises."""

import json
import math
from typing import Any

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
    assert BENT.at([[0, 5], [10, 15]]).tolist() == [[0, 2.5], [5, 5.5]]


@for_each(
    "plays, message",
    [
        *((each, "from 0 to 20, the length of the run; got ") for each in (-1, 20.5, math.nan, math.inf)),
        ([3, 1_234, 5_678], "the length of the run; got 1,234"),
        ("soon", "numbers from 0 to 20, not 'soon'"),
    ],
)
def test_a_curve_does_not_guess_outside_its_run(plays: Any, message: str) -> None:
    with pytest.raises(BadInput, match=f"plays must be .*{message}"):
        BENT.at(plays)


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
    assert (band.low[0], band.high[0]) == (0, 0)
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


@for_each(
    "options, message",
    [
        *(({"points": points}, "points must be") for points in (1, MOST_POINTS + 1, 2.5, True)),
        *(({"level": level}, r"level must be a probability such as 0\.95, not ") for level in (0, 1.0, 95, "high")),
    ],
)
def test_a_band_is_refused_in_words(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Band.over(ends(1, 2), **options)
    with pytest.raises(BadInput, match="at least one curve"):
        Band.over([])
