"""Rewards: their formulas, their names, and what they carry."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kofn
from kofn.core import BadInput
from kofn.lab.problems import Bernoulli, Empirical, Problem
from kofn.lab.rewards import as_reward, by_name, cross_selling, maximum, mean, minimum, total, utility
from tests.cases import for_each
from tests.cli.tools import invoke

NOTHING: Any = None


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=7))
def test_formulas(values: list[float]) -> None:
    x, k = np.array(values), len(values)
    pairs = sum(values[i] * values[j] for i in range(k) for j in range(i, k))
    assert cross_selling(x) == pytest.approx(2 / (k * (k + 1)) * pairs, abs=1e-12)
    assert mean(x) == pytest.approx(sum(values) / k, abs=1e-12)
    assert total(x) == pytest.approx(sum(values), abs=1e-12)
    assert maximum(x) == max(values)
    assert minimum(x) == min(values)
    assert utility(np.exp)(x) == pytest.approx(np.exp(sum(values)))


def test_a_plain_callable_has_nothing_assumed() -> None:
    reward = as_reward(np.ptp)
    assert (reward.name, reward.symmetric, reward.increasing) == ("ptp", None, None)
    assert as_reward(reward) is reward


@for_each(
    "make, message",
    [
        (
            lambda: by_name("median"),
            "no reward 'median'; the names are mean, sum, maximum, max, minimum, min, cross-selling",
        ),
        (lambda: as_reward("median"), "the names are"),
        (
            lambda: as_reward(NOTHING),
            "reward must be a function of an array whose last axis is K, or one of mean, .*, not None",
        ),
        (lambda: utility(NOTHING), "fn must be a function of the sum, for instance np.sqrt, not None"),
    ],
)
def test_bad_rewards(make: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make()


def test_a_sum_is_played_like_a_mean_of_k_times_the_range() -> None:
    arms = Bernoulli([0.1, 0.5, 0.3, 0.8, 0.6])
    one, other = Problem(arms, "mean", 3), Problem(arms, "sum", 3)
    assert other.reward_range == (0.0, 3.0)
    assert other.best == one.best
    np.testing.assert_allclose(other.value([(0, 1, 2)]), [0.9])
    assert other.value_error == 0.0
    rows = [kofn.compare(["thompson", "cmab-sm"], each, horizon=2_000, runs=2, workers=1).rows for each in (one, other)]
    assert [3 * row["regret"] for row in rows[0]] == pytest.approx([row["regret"] for row in rows[1]])


@for_each(
    "arms, reward, found",
    [
        (Bernoulli([0.1, 0.5, 0.3]), "mean", (0.0, 1.0)),
        (Empirical([[0.2, 0.4], [0.3], [0.5]]), "sum", (0.0, 1.0)),
        (Empirical([[0.2, 4], [-3], [0.5]]), "sum", (-6.0, 8.0)),
        (Empirical([[0.2, 4], [-3], [0.5]]), "max", (-3.0, 4.0)),
        (Empirical([[0.2, 4], [-3], [0.5]]), lambda x: x.sum(axis=-1), (0.0, 1.0)),
    ],
)
def test_a_problem_knows_the_range_of_rewards_with_bounds(arms: Any, reward: Any, found: tuple[float, float]) -> None:
    assert Problem(arms, reward, 2).reward_range == found
    assert Problem(arms, reward, 2, reward_range=(-9, 9)).reward_range == (-9.0, 9.0)


def test_another_reward_on_the_command_line() -> None:
    found = invoke(
        "run",
        "thompson",
        "--problem",
        "mean",
        "--reward",
        "sum",
        "--arms",
        "6",
        "-k",
        "2",
        "--horizon",
        "300",
        "--json",
    )
    assert 1 < json.loads(found.stdout)["optimum"] <= 2
    with pytest.raises(BadInput, match="the problem karate has its own reward"):
        invoke("run", "thompson", "--problem", "karate", "--reward", "sum")
