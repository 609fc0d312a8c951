"""Uniform: random subsets, all equally likely, and what they teach of the arms."""

import itertools
from collections import Counter

import numpy as np
from scipy import stats

from kofn import Bernoulli, Plan, Problem, Tally, Uniform, simulate
from kofn.policies.batching import MOST_ROWS, draws_for, plan_of, shares, tenth, top_k


def earning(plan: Plan, reward: float) -> Tally:
    """The same reward in every play."""
    count = plan.times.copy()
    return Tally(count, np.asarray(reward * count, float), np.asarray(reward**2 * count, float))


def test_every_subset_is_equally_likely() -> None:
    """Chi-square over the 35 subsets of the first plays of 1,000 seeds, p-value above 1e-7; seeds are fixed."""
    seen = Counter(Uniform(n_arms=7, k=3, seed=seed).ask() for seed in range(1000))
    every = list(itertools.combinations(range(7), 3))
    assert set(seen) <= set(every)
    assert stats.chisquare([seen[subset] for subset in every]).pvalue > 1e-7


def test_it_plays_a_tenth_of_the_time_elapsed_in_few_rows() -> None:
    policy, plays = Uniform(n_arms=200, k=50, seed=3), 0
    for _ in range(140):
        plan = policy.plan()
        assert plan.plays == max(1, plays // 10)
        assert len(plan) <= MOST_ROWS
        assert plan.times.max() - plan.times.min() <= 1  # of so many subsets none is drawn twice
        policy.tell_plan(earning(plan, 0.5))
        plays += plan.plays
    assert plays > 10**6


def test_plans_differ_whatever_is_told() -> None:
    policies = [Uniform(n_arms=9, k=3, seed=1) for _ in range(2)]
    for _ in range(20):
        first, second = (policy.plan() for policy in policies)
        assert list(first) == list(second)  # rewards are nothing to it
        policies[0].tell_plan(earning(first, 0.0))
        policies[1].tell_plan(earning(second, 1.0))
    assert Uniform(n_arms=9, k=3, seed=2).ask() != Uniform(n_arms=9, k=3, seed=1).ask()


def test_its_regret_is_the_average_gap() -> None:
    """Within 5 standard deviations of the mean gap over all subsets: plays of one row of at most 200 are alike."""
    problem = Problem(Bernoulli([0.9, 0.7, 0.5, 0.3, 0.1, 0.2]), "maximum", 3)
    gaps = problem.gap(np.array(list(itertools.combinations(range(6), 3))))
    runs = [simulate(Uniform(6, 3, seed=seed), problem, 20_000, seed) for seed in range(10)]
    assert abs(np.mean([run.regret for run in runs]) / 20_000 - gaps.mean()) < 5 * gaps.std() / np.sqrt(10 * 200)
    assert all(run.optimal for run in runs)  # it knows better than it plays


def test_the_parts_of_a_drawn_plan() -> None:
    assert [tenth(plays) for plays in (0, 9, 19, 20, 10**6)] == [1, 1, 1, 2, 10**5]
    assert shares(7, 3).tolist() == [3, 2, 2]
    assert draws_for(5, 10) == 5
    assert draws_for(10**6, 10) == MOST_ROWS
    assert draws_for(10**6, 10**7) == 1
    assert top_k(np.array([[0.1, 0.9, 0.5], [3.0, 2.0, 1.0]]), 2).tolist() == [[1, 2], [0, 1]]
    assert list(plan_of(np.array([[1, 2], [0, 1], [1, 2]]), 10)) == [((0, 1), 3), ((1, 2), 7)]
