"""CUCB: each arm's own rewards, the paper's bounds; and what seeing single arms is worth."""

from collections import Counter

import numpy as np
import pytest

from kofn import Bernoulli, Problem, Tally, simulate
from kofn.core import Subset
from kofn.lab.rivals import CUCB, SharedCreditUCB
from tests.cases import for_each
from tests.lab.rivals.test_shared_credit import bounds_plan

P = np.array([0.35, 0.9, 0.2, 0.6, 0.5, 0.1, 0.8])


def totals(policy: CUCB, rng: np.random.Generator) -> Tally:
    plan = policy.plan()
    arms = rng.binomial(plan.times[:, None], P[plan.subsets]).astype(float)
    half = plan.times / 2
    return Tally(plan.times.copy(), half, half / 2, arms)


@for_each("k", [1, 2, 3, 6])
def test_equal_to_plain_python_plan_by_plan(k: int) -> None:
    """The subset's reward is always a half: only the arms' own rewards count."""
    rng, policy = np.random.default_rng(k), CUCB(7, k)
    credit, t = [[0.0, 0.0] for _ in range(7)], 0
    around = [*range(7), *range(7)]
    plan: Counter[Subset] = Counter(tuple(sorted(around[start : start + k])) for start in range(0, 7, k))
    for _ in range(120):
        assert dict(policy.plan()) == plan
        tally = totals(policy, rng)
        assert tally.arms is not None
        for (subset, n), arms in zip(policy.plan(), tally.arms.tolist(), strict=True):
            for arm, total in zip(subset, arms, strict=True):
                credit[arm][0] += n
                credit[arm][1] += total
        policy.tell_plan(tally)
        t += plan.total()
        plan = bounds_plan(credit, k, t, 1.5)
    assert policy.best() == tuple(sorted(np.argsort(-P)[:k].tolist()))


@pytest.mark.parametrize("reward", ["mean", "maximum", "minimum"])
def test_it_finds_the_best_where_shared_credit_cannot(reward: str) -> None:
    problem = Problem(Bernoulli([0.9, 0.1, 0.8, 0.2, 0.7, 0.3]), reward, 2)
    seen = simulate(CUCB(6, 2), problem, 10**6, seed=1)
    unseen = simulate(SharedCreditUCB(6, 2), problem, 10**6, seed=1)
    assert seen.optimal
    assert not unseen.optimal
    assert seen.regret < 0.05 * unseen.regret
