"""Cross-selling with a matrix: against enumeration by hand, the paper's reward, and known answers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from kofn import BadInput
from kofn.lab.problems import Arms, Bernoulli, Beta, Correlated, Empirical, Interactions, Problem
from tests.cases import for_each

P = np.array([0.15, 0.5, 0.3, 0.8, 0.6])
WORTH = np.array(
    [
        [0.5, 0.1, 0.9, -0.4, 0.0],
        [0.1, 1.0, 0.2, 0.3, 0.6],
        [0.9, 0.2, 0.7, 0.0, -0.2],
        [-0.4, 0.3, 0.0, 0.2, 0.8],
        [0.0, 0.6, -0.2, 0.8, 0.4],
    ]
)
ROWS = list(itertools.combinations(range(5), 3))


def paid(row: Any, x: Any) -> float:
    """The reward, pair by pair."""
    pairs = itertools.combinations_with_replacement(range(len(row)), 2)
    return float(2 / (len(row) * (len(row) + 1)) * sum(WORTH[row[i], row[j]] * x[i] * x[j] for i, j in pairs))


def distribution(row: Any) -> dict[float, float]:
    pmf: dict[float, float] = {}
    for case in itertools.product((0.0, 1.0), repeat=len(row)):
        share = math.prod(P[arm] if x else 1 - P[arm] for arm, x in zip(row, case, strict=True))
        value = round(float(paid(row, case)), 12)
        pmf[value] = pmf.get(value, 0.0) + share
    return pmf


def test_values_are_enumeration() -> None:
    problem = Interactions(Bernoulli(P), WORTH, 3)
    exact = [sum(value * share for value, share in distribution(row).items()) for row in ROWS]
    np.testing.assert_allclose(problem.value(ROWS), exact, atol=1e-12)
    assert problem.best == ROWS[int(np.argmax(exact))]
    assert problem.value_error == 0.0


@pytest.mark.parametrize("n", [1, 5_000])
def test_plays_are_draws_of_that_law(n: int) -> None:
    """One play at a time, drawn; many at a time, by outcomes."""
    problem = Interactions(Bernoulli(P), WORTH, 3)
    pmf = distribution((0, 2, 3))
    values = np.array(sorted(pmf))
    shares = np.array([pmf[value] for value in values])
    if n == 1:
        tally = problem.play(np.tile((0, 2, 3), (30_000, 1)), np.ones(30_000, int), 4)
        at = np.abs(tally.total[:, None] - values).argmin(axis=1)
        np.testing.assert_allclose(tally.total, values[at], atol=1e-12)
        assert stats.chisquare(np.bincount(at, minlength=len(values)), 30_000 * shares).pvalue > 1e-7
        return
    tally = problem.play(np.tile((0, 2, 3), (2_000, 1)), np.full(2_000, n), 5)
    mean, second = shares @ values, shares @ values**2
    z = (tally.total - n * mean) / (n * (second - mean**2)) ** 0.5
    assert stats.kstest(z, "norm").pvalue > 1e-7
    assert abs(tally.squares.mean() / n - second) < 5.3 * (second / (n * 2_000)) ** 0.5


@pytest.mark.parametrize("arms", [Bernoulli(P), Beta(1 + 4 * P, 2.0), Empirical([[0.0, p, 1.0] for p in P])], ids=repr)
def test_a_matrix_of_ones_is_the_papers_reward(arms: Arms) -> None:
    ours, papers = Interactions(arms, np.ones((5, 5)), 3), Problem(arms, "cross-selling", 3, absent=0.0)
    np.testing.assert_allclose(ours.value(ROWS), papers.value(ROWS), atol=1e-12)
    assert ours.reward_range == pytest.approx((0.0, 1.0))
    np.testing.assert_allclose(ours.value([(1, 3), (4,)]), papers.value([(1, 3), (4,)]), atol=1e-12)
    n = 40_000
    tally = ours.play([(0, 1, 2), (1, 3)], [n, n], 1)
    expected, mean = ours.value([(0, 1, 2), (1, 3)]), tally.total / n
    assert (np.abs(mean - expected) < 5.3 * np.sqrt((tally.squares / n - mean**2) / n)).all()


def test_all_plays_lie_in_the_range() -> None:
    low, high = Interactions(Bernoulli(P), WORTH, 3).reward_range
    every = [value for row in ROWS for value in distribution(row)]
    assert low < min(every)
    assert max(every) <= high
    rivals = Interactions(Bernoulli([1.0, 1.0, 1.0]), [[0.1, -1, 0], [-1, 0.1, 0], [0, 0, 0.3]], 2)
    assert rivals.reward_range == pytest.approx((-1 / 3, 0.2))
    assert rivals.value([(0, 1)])[0] == pytest.approx((0.1 + 0.1 - 1) / 3)
    assert rivals.best == (0, 2)


def test_the_check_names_arms_that_depend_on_their_company() -> None:
    check = Interactions(Bernoulli(P), WORTH, 3).check()
    assert not check
    assert check.holds == {
        "symmetric": False,
        "strictly increasing": False,
        "dominance": True,
        "increasing on average": False,
    }
    assert Interactions(Bernoulli(P), np.ones((5, 5)), 3).check()


@for_each(
    "make, message",
    [
        (lambda: Interactions(Bernoulli(P), np.ones((4, 4)), 2), r"got shape \(4, 4\)"),
        (lambda: Interactions(Bernoulli(P), np.triu(np.ones((5, 5))), 2), "it is not symmetric"),
        (lambda: Interactions(Bernoulli(P), np.full((5, 5), np.nan), 2), "it is not finite"),
        (lambda: Interactions(Bernoulli(P), np.zeros((5, 5)), 2), "must not be all zeros"),
        (lambda: Interactions(Bernoulli(P), "x", 2), "weights must be a symmetric 5 x 5 matrix"),
        (lambda: Interactions(Correlated(P, 0.5), np.ones((5, 5)), 2), "independently"),
        (lambda: Interactions(Empirical([[0, 2], [1, 3]]), np.ones((2, 2)), 1), "arms must pay from 0 to 1"),
        (lambda: Interactions(P, np.ones((5, 5)), 2), "arms must pay from 0 to 1"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_work_is_refused(make: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make()
