"""Rewards: their formulas, their names, and what they carry."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kofn.core import BadInput
from kofn.rewards import Reward, as_reward, by_name, cross_selling, maximum, mean, minimum, utility

NOTHING: Any = None


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=7))
def test_formulas(values: list[float]) -> None:
    x, k = np.array(values), len(values)
    pairs = sum(values[i] * values[j] for i in range(k) for j in range(i, k))
    assert cross_selling(x) == pytest.approx(2 / (k * (k + 1)) * pairs, abs=1e-12)
    assert mean(x) == pytest.approx(sum(values) / k, abs=1e-12)
    assert maximum(x) == max(values)
    assert minimum(x) == min(values)
    assert utility(np.exp)(x) == pytest.approx(np.exp(sum(values)))


def test_cross_selling_of_ones_is_one() -> None:
    assert cross_selling(np.ones((4, 9))).tolist() == [1.0] * 4


@pytest.mark.parametrize("reward", [mean, maximum, minimum, cross_selling, utility(np.sqrt)])
def test_the_last_axis_goes(reward: Reward) -> None:
    x = np.random.default_rng(0).random((2, 3, 4))
    paid = reward(x)
    assert paid.shape == (2, 3)
    assert paid[1, 2] == pytest.approx(float(reward(x[1, 2])))


@pytest.mark.parametrize("reward", [mean, maximum, minimum, cross_selling, utility(np.sqrt, increasing=True)])
def test_it_pickles_to_an_equal_one(reward: Reward) -> None:
    assert pickle.loads(pickle.dumps(reward)) == reward


@pytest.mark.parametrize(
    ("name", "reward"),
    [
        ("max", maximum),
        ("maximum", maximum),
        ("min", minimum),
        ("minimum", minimum),
        ("mean", mean),
        ("cross-selling", cross_selling),
    ],
)
def test_by_name(name: str, reward: Reward) -> None:
    assert by_name(name) is reward
    assert as_reward(name) is reward


def test_a_plain_callable_has_nothing_assumed() -> None:
    reward = as_reward(np.ptp)
    assert (reward.name, reward.symmetric, reward.increasing) == ("ptp", None, None)
    assert as_reward(reward) is reward


@pytest.mark.parametrize(
    ("make", "message"),
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
