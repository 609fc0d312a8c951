"""A list of recommendations: against a user that is simulated step by step, enumeration, and known answers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kofn import BadInput
from kofn.lab.problems import Recommendations
from tests.cases import for_each

P = np.array([0.15, 0.5, 0.3, 0.8, 0.05, 0.6])
ROWS = list(itertools.combinations(range(6), 3))


def enumerated(shown: Any, examine: Any) -> float:
    """Over how far the user would look, and which items are useful."""
    value = 0.0
    depths = -np.diff([*examine, 0.0])  # the probability that she looks at exactly so many places
    for depth, share in enumerate(depths, start=1):
        value += share * (1 - np.prod([1 - p for p in shown[:depth]]))
    return float(value)


def stepwise(shown: Any, patience: float, rng: np.random.Generator) -> int:
    for p in shown:
        if rng.random() < p:
            return 1
        if rng.random() >= patience:
            return 0
    return 0


@pytest.mark.parametrize("order", ["best", "number"])
def test_values_are_enumeration(order: Any) -> None:
    examine = [0.9, 0.6, 0.1]
    problem = Recommendations(P, 3, examine=examine, order=order)
    lists = [sorted(P[list(row)], reverse=True) if order == "best" else P[list(row)] for row in ROWS]
    exact = [enumerated(shown, examine) for shown in lists]
    np.testing.assert_allclose(problem.value(ROWS), exact, atol=1e-12)
    assert problem.best == ROWS[int(np.argmax(exact))]
    assert problem.optimum == pytest.approx(max(exact))


def test_a_user_who_loses_patience_is_the_one_who_walks_step_by_step() -> None:
    problem, rng = Recommendations(P, 3, patience=0.7, order="number"), np.random.default_rng(3)
    n = 40_000
    clicks = sum(stepwise(P[[0, 2, 5]], 0.7, rng) for _ in range(n))
    value = problem.value([(0, 2, 5)])[0]
    assert abs(clicks / n - value) < 5.3 * (value * (1 - value) / n) ** 0.5


def test_plays_are_coins_with_that_value() -> None:
    problem, n = Recommendations(P, 3, patience=0.7), 200
    tally = problem.play(np.tile((0, 1, 2), (5_000, 1)), np.full(5_000, n), 1)
    assert (tally.total == tally.squares).all()
    value = problem.value([(0, 1, 2)])[0]
    expected = stats.binom.pmf(np.arange(n + 1), n, value) * 5_000
    bins = np.digitize(np.arange(n + 1), np.arange(100, 160, 4))
    seen, expect = np.bincount(bins[tally.total.astype(int)], minlength=16), np.bincount(bins, expected)
    kept = expect > 5
    assert kept.sum() > 5
    assert stats.chisquare(seen[kept], expect[kept] * seen[kept].sum() / expect[kept].sum()).pvalue > 1e-7


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_recursion_finds_the_best_of_all(data: st.DataObject) -> None:
    n_arms = data.draw(st.integers(2, 8))
    k = data.draw(st.integers(1, n_arms - 1))
    chance = st.floats(0, 1, allow_nan=False)
    p = data.draw(st.lists(chance, min_size=n_arms, max_size=n_arms))
    examine = sorted(data.draw(st.lists(chance, min_size=k, max_size=k)), reverse=True)
    problem = Recommendations(p, k, examine=examine, order="number")
    every = problem.value(list(itertools.combinations(range(n_arms), k)))
    assert len(problem.best) == k
    assert problem.optimum == pytest.approx(every.max(), abs=1e-12)


def test_the_check_depends_on_who_makes_the_order() -> None:
    assert Recommendations(P, 3, patience=0.5).check()
    fixed = Recommendations(P, 3, patience=0.5, order="number").check()
    assert not fixed
    assert not fixed.holds["symmetric"]
    assert not fixed.holds["increasing on average"]
    assert Recommendations(P, 3, patience=1.0, order="number").check().holds["symmetric"]


@for_each(
    "options, message",
    [
        ({}, "give either patience=0.8, or examine="),
        ({"patience": 0.5, "examine": [1, 1]}, "give either patience=0.8, or examine="),
        ({"patience": 1.5}, "patience must be a probability from 0 to 1, not 1.5"),
        ({"examine": [1.0]}, "examine must have 2 probabilities that do not rise"),
        ({"examine": [0.5, 0.6]}, "do not rise"),
        ({"examine": [1.5, 0.6]}, "examine must be probabilities"),
        ({"patience": 0.5, "order": "worst"}, "order must be 'best' or 'number', not 'worst'"),
    ],
)
def test_what_cannot_work_is_refused(options: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Recommendations([0.1, 0.2, 0.3], 2, **options)
