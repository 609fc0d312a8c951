"""Improved UCB against its formulas and against plain Python, play by play."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from kofn import Plan, Tally, TooManySubsets
from kofn.core import Subset
from kofn.lab.rivals import ImprovedUCB
from tests.cases import for_each

Draw = Callable[[Subset, int], float]


def told(plan: Plan, draw: Draw) -> Tally:
    """The tally of rewards that are 0 or 1: `draw` says how many of n plays earned 1."""
    ones = np.array([draw(subset, n) for subset, n in plan])
    return Tally(plan.times.copy(), ones, ones)


def reference(n_arms: int, k: int, horizon: int, draw: Draw) -> tuple[Subset, list[list[tuple[Subset, int]]]]:
    """Improved UCB (Auer & Ortner 2010, Figure 1) in plain Python: the subset found, and the plays of each round."""
    alive = list(itertools.combinations(range(n_arms), k))
    count, total = dict.fromkeys(alive, 0), dict.fromkeys(alive, 0.0)
    log: list[list[tuple[Subset, int]]] = []
    delta, m = 1.0, 0
    while len(alive) > 1 and horizon > math.e and m <= math.floor(math.log2(horizon / math.e) / 2):
        n = math.ceil(2 * math.log(horizon * delta**2) / delta**2)
        log.append([(subset, n - count[subset]) for subset in alive])
        for subset, more in log[-1]:
            total[subset] += draw(subset, more)
            count[subset] += more
        width = math.sqrt(math.log(horizon * delta**2) / (2 * n))
        bar = max(total[subset] / n - width for subset in alive)
        alive = [subset for subset in alive if not total[subset] / n + width < bar]
        delta, m = delta / 2, m + 1
    return max(alive, key=lambda subset: total[subset]), log


@for_each("case", range(60))
def test_equal_to_plain_python_play_by_play(case: int) -> None:
    rng = np.random.default_rng(case)
    n_arms = int(rng.integers(2, 8))
    k = int(rng.integers(1, n_arms))
    horizon = int(10 ** rng.uniform(0, 6))
    worth = rng.random(n_arms)

    def draw(subset: Subset, n: int) -> float:
        return float(np.random.default_rng([case, n, *subset]).binomial(n, worth[list(subset)].mean()))

    best, rounds = reference(n_arms, k, horizon, draw)
    policy = ImprovedUCB(n_arms, k, horizon)
    for rows in rounds:
        assert not policy.committed
        assert list(policy.plan()) == rows
        policy.tell_plan(told(policy.plan(), draw))
    assert policy.committed
    assert policy.best() == best
    assert list(policy.plan()) == [(best, horizon)]
    policy.tell_plan(told(policy.plan(), draw))
    assert list(policy.plan()) == [(best, horizon)]


@pytest.mark.parametrize(("total", "left"), [(0.001, 3), (0.0, 2)])
def test_a_subset_is_deleted_when_it_is_surely_worse(total: float, left: int) -> None:
    """T is a little less than e^8, so n_0 = 16 and the radius a little less than 1/2: 0 and 1 are just told apart."""
    policy = ImprovedUCB(n_arms=3, k=1, horizon=2980)
    n = int(policy.plan().times[0])
    assert n == 16
    assert math.sqrt(math.log(2980) / (2 * n)) == pytest.approx(0.49999, abs=1e-5)
    policy.tell_plan(told(policy.plan(), lambda subset, _: total if subset == (2,) else 16.0))
    assert len(policy.plan()) == left


def test_too_many_subsets_are_refused_with_their_number() -> None:
    with pytest.raises(TooManySubsets, match=r"8 of 45 arms make 215,553,195 subsets") as error:
        ImprovedUCB(n_arms=45, k=8, horizon=10**6)
    assert "cmab-sm" in str(error.value)


@pytest.mark.parametrize(("n_arms", "k"), [(2000, 500), (10**5, 500)])
def test_numbers_of_subsets_beyond_floats_are_refused_too(n_arms: int, k: int) -> None:
    with pytest.raises(TooManySubsets, match=f"{k} of {n_arms} arms"):
        ImprovedUCB(n_arms, k, horizon=10**6)


@pytest.mark.slow
def test_two_and_a_half_million_subsets_work() -> None:
    policy = ImprovedUCB(n_arms=24, k=11, horizon=10**6)
    plan = policy.plan()
    assert len(plan) == math.comb(24, 11) == 2_496_144
    assert plan.subsets.dtype.itemsize == 1
    part = plan.part(10**6)
    ones = (part.subsets[:, -1] == 23) * part.times.astype(float)
    policy.tell_plan(Tally(part.times, ones, ones))
    assert policy.plays == 10**6
    assert policy.plan().plays == plan.plays - 10**6
    rest = policy.plan().times
    ones = (plan.subsets[:, -1] == 23) * rest.astype(float)
    policy.tell_plan(Tally(rest.copy(), ones, ones))
    assert policy.plays == plan.plays
    assert policy.best()[-1] == 23
    first = policy.ask()
    policy.tell(first, 1)
