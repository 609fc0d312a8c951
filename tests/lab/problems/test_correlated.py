"""Correlated arms and the threshold reward: exact distributions against draws and against all outcomes, one by one."""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats

from kofn import BadInput, Problem
from kofn.lab.problems import Bernoulli, Correlated
from kofn.lab.problems.expectation import JointMonteCarlo
from kofn.lab.problems.sampling import CorrelatedCountSampler, CountSampler, PlaySampler
from kofn.lab.rewards import Reward, threshold, utility
from tests.cases import for_each

P = np.array([0.15, 0.5, 0.3, 0.8, 0.05, 0.6])
REWARDS = ["mean", "maximum", "minimum", "cross-selling", "threshold"]


def outcome_shares(p: Any, together: float) -> dict[tuple[int, ...], float]:
    """The probability of every outcome, by the definition: one luck for all, or one for each."""
    shares = {}
    for outcome in itertools.product((0, 1), repeat=len(p)):
        apart = np.prod([q if pays else 1 - q for q, pays in zip(p, outcome, strict=True)])
        least = min([q for q, pays in zip(p, outcome, strict=True) if pays], default=1.0)
        most = max([q for q, pays in zip(p, outcome, strict=True) if not pays], default=0.0)
        shares[outcome] = (1 - together) * float(apart) + together * max(0.0, least - most)  # most <= luck < least
    return shares


def brute_force(p: Any, together: float, reward: Reward) -> float:
    shares = outcome_shares(p, together)
    return sum(share * float(reward(np.array(outcome, float))) for outcome, share in shares.items())


# Draws.


@pytest.mark.parametrize("together", [0.0, 0.3, 1.0])
def test_draws_have_the_shares_of_the_definition(together: float) -> None:
    """Chi-square over the outcomes of 3 arms in 20,000 plays, p-value above 1e-6; the seed is fixed."""
    arms = np.array([1, 3, 2])
    drawn = Correlated(P, together).draw(np.broadcast_to(arms, (20_000, 3)), np.random.default_rng(7))
    shares = outcome_shares(P[arms], together)
    seen = dict.fromkeys(shares, 0)
    for row in drawn.astype(int).tolist():
        seen[tuple(row)] += 1
    possible = [outcome for outcome, share in shares.items() if share > 0]
    assert sum(seen[outcome] for outcome in possible) == 20_000
    expected = [20_000 * shares[outcome] for outcome in possible]
    assert stats.chisquare([seen[outcome] for outcome in possible], expected).pvalue > 1e-6


# The distribution.


@for_each("reward", REWARDS)
@for_each("together", [0.0, 0.35, 1.0])
def test_values_are_those_of_all_outcomes(reward: str, together: float) -> None:
    problem = Problem(Correlated(P, together), reward, k=3)
    assert isinstance(problem._sampler, CorrelatedCountSampler)
    assert problem.value_error == 0.0
    subsets = list(itertools.combinations(range(6), 3))
    expected = [brute_force(P[list(subset)], together, problem.reward) for subset in subsets]
    assert problem.value(subsets) == pytest.approx(expected, abs=1e-12)
    assert problem.value([problem.best])[0] == pytest.approx(max(expected), abs=1e-12)


@for_each("reward", REWARDS)
def test_sums_of_many_plays_have_the_law_of_single_ones(reward: str) -> None:
    """Totals of 40 plays, 4,000 of them by the distribution and by draws: Kolmogorov-Smirnov, p-value above 1e-6."""
    arms, rows, times = Correlated(P, 0.9), np.tile([1, 2, 3], (4_000, 1)), np.full(4_000, 40)
    problem = Problem(arms, reward, k=3)
    totals, squares = problem._sampler.play(rows, times, np.random.default_rng(1))
    drawn = PlaySampler(arms, problem.reward).play(rows, times, np.random.default_rng(2))
    assert stats.ks_2samp(totals, drawn[0]).pvalue > 1e-6
    assert stats.ks_2samp(squares, drawn[1]).pvalue > 1e-6
    independent = Problem(Bernoulli(P), reward, k=3)._sampler.play(rows, times, np.random.default_rng(3))[0]
    assert stats.ks_2samp(totals, independent).pvalue < 1e-6  # arms that share a draw have another distribution


# Rewards for which it matters which arm pays.


def weighted(x: Any) -> Any:
    return (3 * x[..., 0] + x[..., 1] * x[..., 2]) / 4


def test_any_other_reward_is_drawn_and_valued_together() -> None:
    """Values within 5 standard errors of all outcomes: drawn arm by arm, they would be off by a tenth."""
    problem = Problem(Correlated(P, 0.7), weighted, k=3)
    assert isinstance(problem._sampler, PlaySampler)
    assert isinstance(problem._expectation, JointMonteCarlo)
    for subset in [(0, 1, 2), (1, 3, 5), (2, 3, 4)]:
        exact = brute_force(P[list(subset)], 0.7, problem.reward)
        assert problem.value([subset])[0] == pytest.approx(exact, abs=5 * problem.value_error)
        assert problem.play([subset], [50_000], rng=2).total[0] / 50_000 == pytest.approx(exact, abs=0.01)
    assert 0 < problem.value_error < 0.002


# Empty places.


def test_empty_places_pay_nothing_whatever_the_luck() -> None:
    problem = Problem(Correlated(P, 0.5), "maximum", k=3, absent=0.0)
    found = problem.value([(1,), (1, 3), (1, 3, 5)])
    expected = [brute_force(P[list(arms)], 0.5, problem.reward) for arms in ([1], [1, 3], [1, 3, 5])]
    assert found == pytest.approx(expected)
    assert problem.play([(1,)], [10**9], rng=1).total[0] / 10**9 == pytest.approx(P[1], abs=1e-3)


def test_places_that_pay_something_keep_the_others_together() -> None:
    arms = Correlated([0.5, 0.5, 0.5], together=1.0)
    problem = Problem(arms, "cross-selling", k=2, absent=0.5)  # (x^2 + y^2 + xy) / 3, and x = y
    assert problem.value([(0, 1)])[0] == pytest.approx(0.5, abs=5 * problem.value_error)
    assert problem.value([(0,)])[0] == pytest.approx((0.5 + 0.25 + 0.25) / 3, abs=5 * problem.value_error)
    assert Problem(arms, "mean", k=2, absent=0.5).value([(0,)])[0] == 0.5


@for_each("together", [-0.1, 1.1, float("nan"), "0.5", None])
def test_togetherness_is_a_share(together: Any) -> None:
    with pytest.raises(BadInput, match="together must be a fraction of the plays, from 0 to 1, not "):
        Correlated(P, together)


# Threshold.


@for_each("k, least", [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (11, 6)])
def test_threshold_asks_for_half_of_the_arms(k: int, least: int) -> None:
    paid = threshold(np.tri(k + 1, k, -1))  # 0, 1, ..., K arms pay
    assert paid.tolist() == [float(count >= least) for count in range(k + 1)]


def test_a_threshold_is_valued_exactly_and_any_other_is_a_utility() -> None:
    problem = Problem(Bernoulli(P), "threshold", k=4)
    assert isinstance(problem._sampler, CountSampler)
    assert problem.best == (1, 2, 3, 5)
    assert problem.value([(0, 1, 3, 5)])[0] == pytest.approx(brute_force(P[[0, 1, 3, 5]], 0.0, threshold))
    two_of_three = Problem(Bernoulli(P), utility(lambda total: total >= 2, increasing=True), k=3)
    same = Problem(Bernoulli(P), "threshold", k=3)
    assert two_of_three.value([(1, 3, 5)]) == pytest.approx(same.value([(1, 3, 5)]))
    assert two_of_three.best == same.best == (1, 3, 5)


def test_a_threshold_of_arms_that_pay_parts_is_half_of_what_they_could() -> None:
    assert threshold(np.array([[0.5, 0.5], [0.9, 0.05], [1.0, 0.0]])).tolist() == [1.0, 0.0, 1.0]
