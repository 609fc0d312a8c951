"""The logistic model of a slate: against plain optimisation, exact derivatives, and problems with known answers."""

import math
from typing import Any, cast

import numpy as np
import pytest
from scipy.optimize import minimize

import kofn
from kofn import Bernoulli, Plan, Problem, Tally
from kofn.lab.rivals import SlateGLM
from tests.cases import for_each

Row = tuple[tuple[int, ...], float, float]


def log_posterior(w: Any, rows: list[Row]) -> float:
    """Of N(0, 1) weights, given successes and failures of subsets, written without the policy's functions."""
    value = -0.5 * sum(each * each for each in w)
    for subset, successes, failures in rows:
        eta = sum(w[arm] for arm in subset)
        value -= successes * math.log1p(math.exp(-eta)) + failures * math.log1p(math.exp(eta))
    return float(value)


def first_plan(case: int) -> tuple[SlateGLM, list[Row]]:
    """Return a policy after its first plan, with random rewards, some of them fractions."""
    rng = np.random.default_rng(case)
    n_arms = int(rng.integers(2, 6))
    policy = SlateGLM(n_arms, int(rng.integers(1, n_arms)), seed=case)
    plan = list(policy.plan())
    rewards = [rng.integers(0, 5, n) / 4 for _, n in plan]
    policy.tell_plan(Tally.of(rewards))
    return policy, [(s, float(r.sum()), float(n - r.sum())) for (s, n), r in zip(plan, rewards, strict=True)]


@for_each("case", range(12))
def test_the_mode_is_that_of_plain_optimisation(case: int) -> None:
    policy, rows = first_plan(case)
    found = np.array(policy.state()["mode"])
    other = cast(Any, minimize)(lambda w: -log_posterior(w, rows), np.zeros(policy.n_arms), tol=1e-12)
    assert log_posterior(found, rows) >= -other.fun - 1e-9
    assert found == pytest.approx(other.x, abs=1e-4)


@for_each("case", range(6))
def test_one_plan_is_laplaces_approximation(case: int) -> None:
    """V is minus the second derivative of the log posterior at its mode, and b puts the mode where it is."""
    policy, rows = first_plan(case)
    w, h, unit = np.array(policy.state()["mode"]), 1e-3, np.eye(policy.n_arms)
    second = np.empty((policy.n_arms, policy.n_arms))
    for i, one in enumerate(unit):
        for j, two in enumerate(unit):
            corners = [(a * c, log_posterior(w + h * (a * one + c * two), rows)) for a in (1, -1) for c in (1, -1)]
            second[i, j] = sum(sign * value for sign, value in corners) / (4 * h * h)
    assert np.abs(policy._seen.V + second).max() < 1e-5
    assert np.linalg.solve(policy._seen.V, policy._seen.b) == pytest.approx(w, abs=1e-8)


def test_a_second_plan_starts_from_the_posterior_of_the_first() -> None:
    """The new mode maximises the likelihood of the new plays plus the old Gaussian: its gradient is zero."""
    policy, _ = first_plan(3)
    precision, old = policy._seen.V.copy(), np.array(policy.state()["mode"])
    subset = policy.ask()
    policy.tell(subset, 1.0)
    new = np.array(policy.state()["mode"])
    x = np.isin(np.arange(policy.n_arms), subset).astype(float)
    odds = 1 / (1 + math.exp(-x @ new))
    assert precision @ (new - old) == pytest.approx((1 - odds) * x, abs=1e-8)
    assert np.abs(policy._seen.V - precision - odds * (1 - odds) * np.outer(x, x)).max() < 1e-12


def test_it_finds_the_best_of_logistic_rewards() -> None:
    """In all of 4 runs: neighbouring weights are 0.3 apart, several standard deviations after 30,000 plays."""
    weights = np.linspace(-1.2, 1.2, 9)
    found = []
    for seed in range(4):
        policy, rng = SlateGLM(9, 3, seed=seed), np.random.default_rng(seed)
        while policy.plays < 30_000:
            plan = policy.plan()
            odds = 1 / (1 + np.exp(-weights[plan.subsets].sum(axis=1)))
            total = rng.binomial(plan.times, odds).astype(float)
            policy.tell_plan(Tally(plan.times.copy(), total, total))
        found.append(policy.best() == (6, 7, 8))
    assert found == [True] * 4


def test_extreme_rewards_leave_finite_weights() -> None:
    problem = Problem(Bernoulli([1.0, 1.0, 0.0, 0.0, 1.0]), "minimum", 2)
    policy = SlateGLM(5, 2, seed=1)
    kofn.simulate(policy, problem, 10**5, seed=1)
    assert np.isfinite(policy.state()["mode"]).all()
    assert set(policy.best()) < {0, 1, 4}
    assert isinstance(policy.plan(), Plan)
