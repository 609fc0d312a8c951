"""Thompson sampling over all subsets: the plan's shares are the posterior's, drawn subset by subset; and it learns."""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats

from kofn import BadRecord, Bernoulli, Beta, Plan, Problem, Tally, simulate
from kofn.core import Direction
from kofn.lab.rivals import ThompsonSubsets
from tests.cases import for_each

PAIRS = list(itertools.combinations(range(4), 2))


def told(plan: Plan, rewards: dict[Any, list[float]]) -> Tally:
    return Tally.of([(rewards[subset] * n)[:n] for subset, n in plan])


def knowing(count: list[int], total: list[float], squares: list[float], seed: int = 1) -> ThompsonSubsets:
    """A policy of 2 of 4 arms that has seen this of the six pairs."""
    policy = ThompsonSubsets(4, 2, seed=seed)
    state = policy.state() | {"plays": sum(count), "count": count, "total": total, "squares": squares}
    policy.load(state)
    return policy


def leaders(policy: ThompsonSubsets) -> Any:
    """How many plays each of the six pairs is given."""
    given = dict(policy.plan())
    return np.array([given.get(pair, 0) for pair in PAIRS])


def expected(values: Any) -> Any:
    """The share of draws in which each subset leads; a row is a draw."""
    return np.bincount(np.argmax(values, axis=1), minlength=len(PAIRS)) / len(values)


@pytest.mark.parametrize(
    ("count", "total"),
    [
        ([20, 20, 20, 0, 0, 0], [12, 12, 15, 0, 0, 0]),  # two alike, three never played
        pytest.param([900, 1000, 30, 30, 30, 10], [600, 650, 18, 18, 18, 7], marks=pytest.mark.slow),
        pytest.param([10, 10, 10, 10, 10, 10], [5, 5, 5, 5, 5, 5], marks=pytest.mark.slow),  # all alike
        ([1000, 1000, 1000, 90, 80, 70], [700, 655, 400, 20, 20, 20]),  # one leads once in a hundred times
    ],
)
def test_binary_rewards_give_each_subset_the_share_of_beta_draws_in_which_it_leads(
    count: list[int], total: list[float]
) -> None:
    """Draws of 150 plans against 10^6 draws, each of all subsets: chi-square, p-value above 1e-7."""
    rng = np.random.default_rng(3)
    share = expected(rng.beta(1 + np.array(total), 1 + np.array(count) - total, (10**6, 6)))
    plans = [leaders(knowing(count, total, total, seed)) for seed in range(150)]
    draws = min(max(1, sum(count) // 10), 2**13)
    assert all(plan.sum() == draws for plan in plans)
    likely = share * draws * 150 > 5
    found = np.sum(plans, axis=0)
    assert stats.chisquare(found[likely], share[likely] / share[likely].sum() * found[likely].sum()).pvalue > 1e-7
    assert found[~likely].sum() < 40


@pytest.mark.parametrize(
    "count",
    [
        [20, 20, 20, 0, 0, 0],
        pytest.param([300, 300, 20, 20, 20, 40], marks=pytest.mark.slow),
        pytest.param([8, 8, 8, 8, 8, 8], marks=pytest.mark.slow),
    ],
)
def test_other_rewards_give_each_subset_its_share_of_gaussian_draws(count: list[int]) -> None:
    total = [0.55 * n for n in count]
    squares = [(0.55**2 + 0.04) * n for n in count]
    policy = knowing(count, total, squares)
    n = np.array(count)
    noise = (1 / 12 + 0.04 * sum(count)) / (1 + sum(each - 1 for each in count if each))
    assert policy.noise == pytest.approx(noise)
    precision = 12 + n / noise
    mean = (6 + np.array(total) / noise) / precision
    share = expected(np.random.default_rng(4).normal(mean, precision**-0.5, (10**6, 6)))
    found = np.sum([leaders(knowing(count, total, squares, seed)) for seed in range(400)], axis=0)
    assert stats.chisquare(found, share * found.sum()).pvalue > 1e-7


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_zeros_and_ones_of_any_range_are_binary(direction: Direction) -> None:
    policy = ThompsonSubsets(4, 2, seed=1, reward_range=(10.1, 10.7), direction=direction)
    for step in range(60):
        plan = policy.plan()
        high = (plan.times + step % 2) // 3
        low = plan.times - high
        policy.tell_plan(Tally(plan.times.copy(), 10.7 * high + 10.1 * low, 114.49 * high + 102.01 * low))
    state = policy.state()
    assert sum(state["total"]) > sum(state["squares"])  # by rounding only
    assert policy.binary


@for_each("n_arms, k", [(2, 1), (5, 2), (7, 3), (9, 8), (24, 4)])
def test_what_is_told_of_a_subset_is_kept_in_its_place(n_arms: int, k: int) -> None:
    every = list(itertools.combinations(range(n_arms), k))
    policy = ThompsonSubsets(n_arms, k, seed=3)
    seen: dict[Any, list[float]] = {}
    for _ in range(60):
        plan = policy.plan()
        for subset, n in plan:
            seen[subset] = [seen.get(subset, [0, 0])[0] + n, seen.get(subset, [0, 0])[1] + n * (sum(subset) % 2)]
        policy.tell_plan(told(plan, {subset: [float(sum(subset) % 2)] for subset, _ in plan}))
    state = policy.state()
    assert {every[i]: [n, state["total"][i]] for i, n in enumerate(state["count"]) if n} == seen


@pytest.mark.parametrize("reward", ["mean", "maximum", "minimum"])
def test_it_finds_the_best_of_few_subsets(reward: str) -> None:
    for arms in (Bernoulli([0.2, 0.9, 0.4, 0.7, 0.5]), Beta([2, 9, 4, 7, 5], 5)):
        run = simulate(ThompsonSubsets(5, 2, seed=1), Problem(arms, reward, 2), 10**5, seed=1)
        assert run.final == (1, 3)
        assert run.regret < 0.02 * 10**5


@pytest.mark.slow
def test_two_and_a_half_million_subsets_work() -> None:
    policy = ThompsonSubsets(24, 11, seed=1)
    seen = set()
    for _ in range(12):
        plan = policy.plan()
        seen |= {subset for subset, _ in plan}
        policy.tell_plan(told(plan, {subset: [1.0] for subset, _ in plan}))
    assert len(seen) > 8  # nearly every draw is of one that was never played
    assert policy.best() in seen


@for_each("count, total, squares", [(0, 0.5, 0.0), (0, 0.0, 0.5), (1, 0.5, 0.6), (1, 0.5, 0.2)])
def test_a_state_that_cannot_be_is_refused(count: int, total: float, squares: float) -> None:
    with pytest.raises(BadRecord):
        knowing([count] + [0] * 5, [total] + [0.0] * 5, [squares] + [0.0] * 5)
