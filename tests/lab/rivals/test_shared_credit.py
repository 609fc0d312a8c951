"""Shared credit against plain Python, plan by plan; against a draw per play; and its two faces."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kofn import BadRecord, Bernoulli, Plan, Problem, Tally, simulate
from kofn.core import Subset
from kofn.lab.rivals import SharedCredit, SharedCreditUCB
from tests.cases import for_each

Rewards = Callable[[Subset, int], float]


def mean_of(case: int) -> Rewards:
    """A mean reward, always the same for a subset."""
    return lambda subset, _: float(np.random.default_rng([case, *subset]).random())


def told(plan: Plan, reward: Rewards) -> Tally:
    total = np.array([n * reward(subset, n) for subset, n in plan])
    return Tally(plan.times.copy(), total, total**2 / plan.times)


def take(credit: list[list[float]], plan: dict[Subset, int], reward: Rewards) -> None:
    """The whole reward to each arm: credit[arm] is [plays, wins]."""
    for subset, n in plan.items():
        for arm in subset:
            credit[arm][0] += n
            credit[arm][1] += n * reward(subset, n)


def drawn_plan(credit: list[list[float]], k: int, t: int, seed: int, turn: int) -> Counter[Subset]:
    """A tenth of the time in at most 200 draws, each to the top K of a Beta draw per arm."""
    plays = max(1, t // 10)
    draws = min(plays, 200)
    plan: Counter[Subset] = Counter()
    rng = np.random.default_rng([seed, turn])
    table = rng.beta([1 + wins for _, wins in credit], [1 + n - wins for n, wins in credit], (draws, len(credit)))
    for draw, theta in enumerate(table.tolist()):
        ranked = sorted(range(len(credit)), key=lambda arm: -theta[arm])
        plan[tuple(sorted(ranked[:k]))] += len(range(draw, plays, draws))
    return plan


def bounds_plan(credit: list[list[float]], k: int, t: int, factor: float) -> Counter[Subset]:
    """A tenth of the time in at most 32 moves, each to the top K of mean + sqrt(factor log t / n)."""
    plays = max(1, t // 10)
    moves = min(plays, 32)
    plan: Counter[Subset] = Counter()
    count = [n for n, _ in credit]
    for move in range(moves):
        bound = [wins / n + math.sqrt(factor * math.log(t) / m) for (n, wins), m in zip(credit, count, strict=True)]
        subset = tuple(sorted(sorted(range(len(credit)), key=lambda arm: -bound[arm])[:k]))
        times = len(range(move, plays, moves))
        plan[subset] += times
        for arm in subset:
            count[arm] += times
        t += times
    return plan


@for_each("case", range(6))
def test_thompson_is_equal_to_plain_python_plan_by_plan(case: int) -> None:
    rng = np.random.default_rng(case)
    n_arms = int(rng.integers(2, 12))
    k = int(rng.integers(1, n_arms))
    policy, credit, t = SharedCredit(n_arms, k, seed=case), [[0.0, 0.0] for _ in range(n_arms)], 0
    for turn in range(110):
        plan = drawn_plan(credit, k, t, case, turn)
        assert dict(policy.plan()) == plan
        policy.tell_plan(told(policy.plan(), mean_of(case)))
        take(credit, plan, mean_of(case))
        t += plan.total()
    assert t > 5 * 10**4
    means = [wins / max(n, 1) for n, wins in credit]
    assert policy.best() == tuple(sorted(sorted(range(n_arms), key=lambda arm: -means[arm])[:k]))


@for_each("case", range(6))
def test_ucb_is_equal_to_plain_python_plan_by_plan(case: int) -> None:
    rng = np.random.default_rng(case)
    n_arms = int(rng.integers(2, 12))
    k = int(rng.integers(1, n_arms))
    policy, credit = SharedCreditUCB(n_arms, k), [[0.0, 0.0] for _ in range(n_arms)]
    around = [*range(n_arms), *range(n_arms)]
    plan = Counter(tuple(sorted(around[start : start + k])) for start in range(0, n_arms, k))  # every arm once
    t = 0
    for _ in range(110):
        assert dict(policy.plan()) == plan
        policy.tell_plan(told(policy.plan(), mean_of(case)))
        take(credit, plan, mean_of(case))
        t += plan.total()
        plan = bounds_plan(credit, k, t, 2.0)
    assert t > 10**3


def regret_a_draw_per_play(p: Any, k: int, horizon: int, rng: np.random.Generator) -> Any:
    """Shared-credit Thompson sampling under a mean, a draw per play; a row of `p` is an instance."""
    runs = len(p)
    rows = np.arange(runs)[:, None]
    wins, losses, lost = np.ones(p.shape), np.ones(p.shape), np.zeros(runs)
    best = np.sort(p, axis=1)[:, -k:].mean(axis=1)
    for _ in range(horizon):
        chosen = np.argsort(-rng.beta(wins, losses), axis=1)[:, :k]
        reward = (rng.random((runs, k)) < p[rows, chosen]).mean(axis=1, keepdims=True)
        wins[rows, chosen] += reward
        losses[rows, chosen] += 1 - reward
        lost += best - p[rows, chosen].mean(axis=1)
    return lost


@pytest.mark.slow
def test_freezing_for_a_tenth_of_the_time_loses_almost_nothing() -> None:
    """40 instances of 2,000 plays; bound set beforehand: mean regrets within 5 standard errors and 25 %."""
    p = np.random.default_rng(5).random((40, 12))
    single = regret_a_draw_per_play(p, 3, 2000, np.random.default_rng(6))
    frozen = np.array(
        [
            simulate(SharedCredit(12, 3, seed=seed), Problem(Bernoulli(row), "mean", 3), 2000, seed).regret
            for seed, row in enumerate(p)
        ]
    )
    differ = frozen - single
    assert abs(differ.mean()) < 5 * differ.std() / math.sqrt(len(p))
    assert 0.75 < frozen.mean() / single.mean() < 1.25


@for_each("n_arms, k, reward, most, locked", [(24, 5, "maximum", 500, 0), (45, 8, "mean", 10**6, 3)])
def test_it_is_good_on_a_maximum_and_locks_in_on_a_mean(
    n_arms: int, k: int, reward: str, most: float, locked: int
) -> None:
    """Bounds set beforehand. A run that locks in loses at a constant pace, with a wrong subset: half of six runs."""
    runs = []
    for seed in range(6):
        p = np.random.default_rng([1 if reward == "maximum" else 2, seed]).random(n_arms)
        runs.append(simulate(SharedCredit(n_arms, k, seed=seed), Problem(Bernoulli(p), reward, k), 10**6, seed))
    assert np.mean([run.regret for run in runs]) < most
    assert sum(not run.optimal and run.regret > 6 * run.regret_at(10**5) for run in runs) >= locked


def test_ucb_locks_in_at_once_when_groups_of_k_share_everything() -> None:
    """N is a multiple of K: the arms of a first group are never told apart, whatever happens."""
    problem = Problem(Bernoulli([0.9, 0.1, 0.8, 0.2, 0.7, 0.3]), "mean", 2)
    policy = SharedCreditUCB(6, 2)
    run = simulate(policy, problem, 10**5, seed=1)
    assert run.final in {(0, 1), (2, 3), (4, 5)}
    assert run.regret > 0.3 * 10**5
    state = policy.state()
    assert state["count"][0::2] == state["count"][1::2]


@for_each("change", [{"count": [1, 1, 1, 0]}, {"count": [2, 0, 0, 0]}, {"total": [0.0, 0.0, 0.0, 0.5]}])
def test_a_state_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    policy = SharedCredit(4, 2, seed=1)
    with pytest.raises(BadRecord):
        policy.load(policy.state() | change)
