"""The applications by name: instances that come again with their seed, and policies that play them."""

from __future__ import annotations

import numpy as np
import pytest

import kofn
from kofn import BadInput
from kofn.lab.applications import APPLICATIONS
from kofn.lab.settings import FAMILIES, Setting

ROWS = np.array([[0, 1, 2], [3, 5, 7]])
each_name = pytest.mark.parametrize("name", sorted(APPLICATIONS))


def setting(name: str) -> Setting:
    return Setting(name, 34 if name == "karate" else 10, 3)


@each_name
def test_an_instance_is_made_again_by_its_seed(name: str) -> None:
    first, again, other = (setting(name).problem(seed) for seed in (5, 5, 6))
    assert (first.n_arms, first.k) == (setting(name).n_arms, 3)
    assert first.value(ROWS).tolist() == again.value(ROWS).tolist()
    assert (first.value(ROWS).tolist() == other.value(ROWS).tolist()) == (name == "karate")
    assert first.best == again.best


@each_name
def test_rewards_lie_in_the_range_that_policies_are_told(name: str) -> None:
    problem = setting(name).problem(1)
    low, high = problem.reward_range
    rows = np.array([np.random.default_rng(seed).choice(problem.n_arms, 3, replace=False) for seed in range(300)])
    earned = problem.play(rows, np.ones(300, int), 2).total
    assert low <= earned.min() <= earned.max() <= high
    assert not name.startswith("influence") or earned.min() >= 3 / problem.n_arms - 1e-12  # the seeds themselves


@each_name
def test_thompson_does_better_than_chance(name: str) -> None:
    """Influence is noisy: after 5,000 plays, 4 of 10 runs have lost more than half of what chance loses."""
    horizon, runs = (20_000, 3) if name == "influence" else (5_000, 1)
    result = kofn.compare(["thompson", "uniform"], setting(name), horizon=horizon, runs=runs, seed=4, workers=1)
    regret = {standing.name: standing.finals.mean() for standing in result.standings}
    assert 0 <= regret["thompson"] < 0.5 * regret["uniform"]


def test_the_karate_club_has_its_size() -> None:
    with pytest.raises(BadInput, match="the karate club has 34 people, so n_arms must be 34; got 24"):
        Setting("karate", 24, 5).problem(1)


def test_names_are_no_others() -> None:
    assert not set(APPLICATIONS) & set(FAMILIES)
    assert all(each.name == name and each.description for name, each in APPLICATIONS.items())
    with pytest.raises(BadInput, match=r"there is no problem 'nope'. Available: mean, .*, karate"):
        Setting("nope", 10, 2)
