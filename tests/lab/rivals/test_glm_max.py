"""The model of the maximum against plain optimisation and exact posteriors, and on problems with answers."""

import math
from typing import Any, cast

import numpy as np
import pytest
from scipy.optimize import Bounds, minimize

import kofn
from kofn import Bernoulli, Problem, Tally
from kofn.lab.rivals import GLMMax
from kofn.lab.rivals.glm_max import mode
from kofn.lab.rivals.linear_model import Quadratic
from tests.cases import for_each


def prior(n_arms: int) -> Quadratic:
    return Quadratic(np.eye(n_arms), np.ones(n_arms))


def log_posterior(w: Any, rows: list[tuple[tuple[int, ...], float, float]]) -> float:
    """Of N(1, 1) weights, given successes and failures of subsets."""
    value = -0.5 * sum((each - 1) ** 2 for each in w)
    for subset, successes, failures in rows:
        eta = sum(w[arm] for arm in subset)
        value += (successes * math.log(1 - math.exp(-eta)) if successes else 0.0) - failures * eta
    return float(value)


@for_each("case", range(15))
def test_the_mode_is_that_of_plain_optimisation(case: int) -> None:
    rng = np.random.default_rng(case)
    n_arms = int(rng.integers(2, 6))
    k = int(rng.integers(1, n_arms))
    rows = []
    for _ in range(int(rng.integers(1, 12))):
        subset = tuple(sorted(rng.choice(n_arms, k, replace=False).tolist()))
        rows.append((subset, float(rng.integers(0, 5)), float(rng.integers(0, 9)) * 0.5))
    x = np.array([[float(arm in subset) for arm in range(n_arms)] for subset, _, _ in rows])
    seen = prior(n_arms)
    seen.b -= np.array([f for _, _, f in rows]) @ x
    found = mode(seen, x, np.array([s for _, s, _ in rows]), np.ones(n_arms))
    other = cast(Any, minimize)(
        lambda w: -log_posterior(w, rows),
        np.ones(n_arms),
        bounds=Bounds(1e-9, np.inf),
        method="L-BFGS-B",
        tol=1e-14,
    )
    assert (found >= 0).all()
    assert log_posterior(found, rows) >= -other.fun - 1e-9
    assert found == pytest.approx(other.x, abs=1e-3)


def test_one_plan_is_laplaces_approximation() -> None:
    """V is minus the second derivative of the log posterior at its mode, and b puts the mode where it is."""
    policy = GLMMax(4, 2, seed=1)
    plan = list(policy.plan())
    tally = [[1.0] * (n - n // 3) + [0.0] * (n // 3) for _, n in plan]
    rows = [(subset, float(n - n // 3), float(n // 3)) for subset, n in plan]
    policy.tell_plan(Tally.of(tally))
    w, h = np.array(policy.state()["mode"]), 1e-4
    assert (w > 0).all()
    second = np.empty((4, 4))
    for i in range(4):
        for j in range(4):
            at = [w + h * (a * np.eye(4)[i] + c * np.eye(4)[j]) for a in (1, -1) for c in (1, -1)]
            plus, minus, minus2, plus2 = (log_posterior(each, rows) for each in at)
            second[i, j] = (plus - minus - minus2 + plus2) / (4 * h * h)
    seen = policy._seen
    assert np.abs(seen.V + second).max() < 1e-4
    assert np.linalg.solve(seen.V, seen.b) == pytest.approx(w, abs=1e-6)


def test_an_arm_that_only_fails_is_held_at_zero_and_drawn_exponential() -> None:
    policy = GLMMax(3, 1, seed=1)
    plan = policy.plan()
    wins = np.where(plan.subsets[:, 0] == 2, 0, plan.times).astype(float)
    policy.tell_plan(Tally(plan.times.copy(), wins, wins))
    assert policy.state()["mode"][2] == 0
    drawn = policy._draw(100_000, np.random.default_rng(1))
    rate = 10 - 1  # ten failures, and the prior's slope of 1 at 0
    assert (drawn[:, 2] >= 0).all()
    assert drawn[:, 2].mean() == pytest.approx(1 / rate, rel=0.03)
    assert drawn[:, 2].std() == pytest.approx(1 / rate, rel=0.03)
    assert drawn[:, 0].mean() == pytest.approx(policy.state()["mode"][0], abs=0.02)
    assert drawn[:, 0].std() == pytest.approx(policy._seen.V[0, 0] ** -0.5, rel=0.03)


def test_finds_the_best_of_a_maximum() -> None:
    problem = Problem(Bernoulli([0.05, 0.5, 0.1, 0.4, 0.2, 0.25, 0.15, 0.3]), "maximum", 3)
    runs = kofn.simulate_many(lambda s: GLMMax(8, 3, seed=s), problem, 10**5, 10, 1, workers=1)
    assert sum(run.optimal for run in runs) >= 9
    assert np.mean([run.regret for run in runs]) < 500


def test_the_posterior_is_as_wide_as_its_errors() -> None:
    """Errors of -log(1 - p) in standard deviations are of size 1: over 40 runs, 0.7 to 1.4 for the arms that matter."""
    p = np.array([0.6, 0.5, 0.2, 0.1])
    errors = []
    for seed in range(40):
        policy, rng = GLMMax(4, 2, seed=seed), np.random.default_rng(seed)
        while policy.plays < 2_000:
            plan = policy.plan()
            wins = np.array([rng.binomial(n, 1 - (1 - p[list(s)]).prod()) for s, n in plan], float)
            policy.tell_plan(Tally(plan.times.copy(), wins, wins))
        deviation = np.sqrt(np.diag(np.linalg.inv(policy._seen.V)))
        errors.append((np.array(policy.state()["mode"]) + np.log(1 - p)) / deviation)
    size = np.sqrt(np.mean(np.square(errors), axis=0))
    assert ((size[:2] > 0.7) & (size[:2] < 1.4)).all()


def test_nothing_but_zeros_or_ones_is_survived() -> None:
    for reward in (0.0, 1.0):
        policy = GLMMax(6, 2, seed=1)
        while policy.plays < 10**6:
            plan = policy.plan()
            total = reward * plan.times.astype(float)
            policy.tell_plan(Tally(plan.times.copy(), total, total))
        assert len(policy.best()) == 2
