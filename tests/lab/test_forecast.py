"""Forecasts: the simulated problems are as asked for, and the answer does not depend on the number of workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kofn import BadInput, forecast
from kofn.lab.forecast import Forecast
from kofn.lab.forecast_world import World
from kofn.lab.plots import draw_forecast
from tests.cases import for_each
from tests.cli.tools import invoke

SMALL: dict[str, Any] = {"base": 0.2, "lift": 0.5, "per_day": 5_000, "loss": 0.02, "runs": 2, "seed": 1}


@pytest.fixture(scope="module")
def small() -> Forecast:
    return forecast(10, 2, **SMALL, workers=1)


@for_each("base, lift, sd", [(0.02, 0.1, None), (0.3, 1.5, None), (1.5, 0.2, 12.0), (30.0, 0.1, 10.0)])
def test_the_best_subset_has_the_lift(base: float, lift: float, sd: float | None) -> None:
    world = World(20, 4, base, lift, sd)
    for seed in range(5):
        problem = world.problem(seed)
        assert problem.optimum == pytest.approx(base * (1 + lift))
        rng = np.random.default_rng(seed)
        some = np.array([np.sort(rng.permutation(20)[:4]) for _ in range(400)])
        assert np.exp(np.log(problem.value(some)).mean()) == pytest.approx(base, rel=0.25)
        assert (problem.gap(some) >= 0).all()


@pytest.mark.parametrize(("base", "sd"), [(0.02, None), (1.5, 12.0), (30.0, 10.0)])
def test_rewards_have_the_mean_and_the_deviation(base: float, sd: float | None) -> None:
    """In 200,000 plays of one subset: a z below 5. The deviation of sales grows with their mean."""
    world = World(6, 2, base, 0.1, sd)
    problem, n = world.problem(1), 200_000
    subset = np.array([problem.best])
    tally = problem.play(subset, [n], np.random.default_rng(1))
    mean = float(tally.total[0]) / n
    deviation = (float(tally.squares[0]) / n - mean**2) ** 0.5
    expected = (world.most * (1 - world.most)) ** 0.5 if sd is None else sd
    assert deviation == pytest.approx(expected, rel=0.1)
    assert abs(mean - world.most) < 5 * deviation / n**0.5
    one = problem.play(np.repeat(subset, 1_000, axis=0), np.ones(1_000, np.int64), np.random.default_rng(2))
    assert one.squares == pytest.approx(one.total**2)
    low, high = problem.reward_range
    assert ((low <= one.total) & (one.total <= high)).all()


def test_the_answer_is_complete(small: Forecast) -> None:
    assert small.ready == 1.0
    assert small.days_10 is not None
    assert small.days_50 is not None
    assert small.days_90 is not None
    assert 0 < small.days_10 <= small.days_50 <= small.days_90 < 365
    assert small.true_loss is not None
    assert 0 <= small.true_loss < 0.04
    assert 0.3 < small.lift_shipped < 0.51
    assert small.lift_on_the_way < small.lift_shipped
    days = [point.day for point in small.curve]
    assert days == sorted(days)
    assert days[-1] == pytest.approx(365)
    assert small.curve[-1].true_loss == pytest.approx(small.true_loss)
    assert small.message.startswith("Ready after about ")
    json.dumps(small.to_dict(), allow_nan=False)


@pytest.mark.process
def test_any_number_of_workers_gives_the_same(small: Forecast) -> None:
    assert forecast(10, 2, **SMALL, workers=2) == small
    assert forecast(10, 2, **{**SMALL, "seed": 2}, workers=1) != small


def test_what_is_not_ready_in_time_is_said() -> None:
    found = forecast(10, 2, base=0.02, lift=0.1, per_day=100, days=2, runs=2, workers=1)
    assert (found.ready, found.days_50, found.true_loss) == (0.0, None, None)
    assert abs(found.lift_shipped) < 0.11
    assert found.loss == pytest.approx(0.0002)
    assert found.message.startswith("After 2 days, no campaign is ready: ")


@for_each(
    "given, message",
    [
        ({"base": 0.9, "lift": 0.5}, "a click rate must be below 1"),
        ({"base": -1.0}, "base must be a number above 0"),
        ({"lift": 0.0}, "lift must be a number above 0"),
        ({"sd": -2.0}, "sd must be a number above 0"),
        ({"loss": 0}, "loss must be a number above 0"),
        ({"per_day": 0}, "per_day must be a whole number"),
        ({"runs": 0}, "runs must be a whole number"),
    ],
)
def test_bad_input_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        forecast(10, 2, **{**SMALL, **given})


def test_the_picture_has_the_curves(small: Forecast) -> None:
    (ax,) = draw_forecast(small).axes
    labels = ax.get_legend_handles_labels()[1]
    assert labels == ["limit of the loss, as estimated", "true loss", "ready below 0.02", "80 % become ready here"]


COMMAND = ["forecast", "--arms", "10", "--k", "2", "--base", "20%", "--lift", "0.5", "--per-day", "5,000"]


def test_the_command_prints_the_answer(small: Forecast, tmp_path: Path) -> None:
    done = invoke(
        *COMMAND, "--loss", "10%", "--runs", "2", "--seed", "1", "--workers", "1", "--out", f"{tmp_path}/plan"
    )
    assert done.exit_code == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.png", "plan.svg"]
    assert "100% of 2 campaigns" in " ".join(done.stdout.split())
    assert small.message in " ".join(done.stdout.split())


def test_the_command_prints_json(small: Forecast) -> None:
    done = invoke(*COMMAND, "--loss", "0.02", "--runs", "2", "--seed", "1", "--workers", "1", "--json")
    assert json.loads(done.stdout) == small.to_dict()


@for_each("lift", ["0", "-10%", "much", "nan", "inf"])
def test_a_lift_that_is_none_is_refused(lift: str) -> None:
    done = invoke(*COMMAND[:7], f"--lift={lift}", *COMMAND[9:])
    assert done.exit_code == 2
    assert "is not a number above 0, such as 0.1 or 10%" in done.stderr
