"""Combinatorial Thompson sampling: each arm's own rewards, against plain Python; and what one number per play costs."""

from collections import Counter

import numpy as np
import pytest

from kofn import Bernoulli, Problem, Tally, simulate
from kofn.core import Subset
from kofn.lab.rivals import CUCB, CombinatorialThompson
from tests.cases import for_each
from tests.lab.rivals.test_shared_credit import drawn_plan

P = np.array([0.35, 0.9, 0.2, 0.6, 0.5, 0.1, 0.8])


@for_each("k", [1, 2, 3, 6])
def test_equal_to_plain_python_plan_by_plan(k: int) -> None:
    """The subset's reward is always a half: only the arms' own rewards count."""
    rng, policy = np.random.default_rng(k), CombinatorialThompson(7, k, seed=k)
    credit, t = [[0.0, 0.0] for _ in range(7)], 0
    for turn in range(110):
        plan: Counter[Subset] = drawn_plan(credit, k, t, k, turn)
        assert dict(policy.plan()) == plan
        played = policy.plan()
        arms = rng.binomial(played.times[:, None], P[played.subsets]).astype(float)
        for (subset, n), totals in zip(played, arms.tolist(), strict=True):
            for arm, total in zip(subset, totals, strict=True):
                credit[arm][0] += n
                credit[arm][1] += total
        policy.tell_plan(Tally(played.times.copy(), played.times / 2, played.times / 4, arms))
        t += plan.total()
    assert t > 5 * 10**4
    assert policy.best() == tuple(sorted(np.argsort(-P)[:k].tolist()))


@pytest.mark.slow
def test_it_loses_less_than_cucb() -> None:
    """The reference for what one number costs must not be weak: at most half of CUCB's regret on three problems."""
    lost = {CUCB: 0.0, CombinatorialThompson: 0.0}
    for seed in range(3):
        problem = Problem(Bernoulli(np.random.default_rng(seed).random(12)), "mean", 3)
        lost[CUCB] += simulate(CUCB(12, 3), problem, 10_000, seed).regret
        lost[CombinatorialThompson] += simulate(CombinatorialThompson(12, 3, seed=seed), problem, 10_000, seed).regret
    assert lost[CombinatorialThompson] < 0.5 * lost[CUCB]
