"""What check() says of problems that meet the paper's assumptions, and of those that do not."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from kofn.lab.problems import ArctanExponential, Arms, Bernoulli, Beta, Empirical, Problem
from kofn.lab.rewards import cross_selling, maximum, mean, utility

P = [0.1, 0.6, 0.3, 0.8, 0.45]
SYMMETRIC, INCREASING, EXPECTED, DOMINANCE = "symmetric", "strictly increasing", "increasing on average", "dominance"


def evidence(problem: Problem, assumption: str) -> str:
    return next(each.evidence for each in problem.check().findings if each.assumption == assumption)


def first_twice(x: Any) -> Any:
    return 2 * x[..., 0] + x[..., 1:].sum(axis=-1)


@pytest.mark.parametrize(
    ("arms", "reward", "broken"),
    [
        (Bernoulli(P), mean, set()),
        (Bernoulli(P), cross_selling, set()),
        (Bernoulli(P), utility(np.sqrt), set()),
        (Bernoulli(P), maximum, {INCREASING}),
        (Bernoulli(P), first_twice, {SYMMETRIC}),
        (Bernoulli(P), lambda x: 2 * x[..., 0] - x[..., 1], {SYMMETRIC, INCREASING, EXPECTED}),
        (Bernoulli(P), lambda x: 0 * x[..., 0], {INCREASING, EXPECTED}),
        (Bernoulli([0.1, 0.6, 0.1, 0.8, 0.45]), mean, {DOMINANCE}),
        (Bernoulli([0.1, 1.0, 0.3, 0.8, 0.45]), maximum, {INCREASING, EXPECTED}),
        (ArctanExponential(P), utility(np.sqrt), set()),
        (ArctanExponential(P), first_twice, {SYMMETRIC}),
        (Beta([1, 2, 3, 4, 5], [1, 2, 3, 4, 5.5]), mean, {DOMINANCE}),
        (Beta([1, 2, 3, 4, 5], 2), mean, set()),
        (Empirical([[0, 3], [1, 1], [5, 6]]), mean, {DOMINANCE}),
        (Empirical([[-2, 1], [-1, 1], [0, 2]]), cross_selling, {INCREASING, EXPECTED}),
    ],
)
def test_what_holds(arms: Arms, reward: Any, broken: set[str]) -> None:
    check = Problem(arms, reward, 2).check()
    assert {name for name, holds in check.holds.items() if not holds} == broken
    assert bool(check) == (not broken - {INCREASING})
    assert list(check.holds) == [SYMMETRIC, INCREASING, EXPECTED, DOMINANCE]


def test_counterexamples_are_true() -> None:
    assert evidence(Problem(Bernoulli(P), maximum, 3), INCREASING) == "weakly: f(0, 0, 1) = f(1, 0, 1) = 1"
    assert evidence(Problem(Bernoulli(P), first_twice, 2), SYMMETRIC) == "f(1, 0) = 2 but f(0, 1) = 1"
    assert evidence(Problem(Bernoulli(P), lambda x: -x.sum(-1), 2), INCREASING) == "f(0, 0) = 0 but f(1, 0) = -1"
    assert evidence(Problem(Bernoulli([0.2, 0.5, 0.2]), mean, 2), DOMINANCE) == "arms 0 and 2 are equal"
    sure = Problem(Bernoulli([0.2, 0.5, 1.0]), maximum, 2)
    assert evidence(sure, EXPECTED) == "weakly: E f = 1 of arms (0, 2) and E f = 1 of arms (1, 2)"
    crossing = evidence(Problem(Empirical([[0, 3], [1, 1], [5, 6]]), mean, 2), DOMINANCE)
    assert crossing == "arms 0 and 1 cross: P(X >= 3) is 0.5 and 0, but P(X >= 1) is 0.5 and 1"


@pytest.mark.parametrize(
    "arms",
    [
        Bernoulli(np.random.default_rng(0).permutation(np.linspace(0.1, 0.2, 100_000))),
        Beta(np.linspace(1, 2, 100_000), 3.0),
    ],
)
def test_a_hundred_thousand_arms(arms: Arms) -> None:
    check = Problem(arms, mean, 10).check()
    assert check
    assert check.holds[DOMINANCE]


def test_one_crossing_among_many_is_found() -> None:
    a, b = np.linspace(1, 2, 5000), np.full(5000, 3.0)
    b[1234] = 2.9999
    check = Problem(Beta(a, b), mean, 10).check()
    assert not check.holds[DOMINANCE]
    assert "arms 1234 and 1235 cross" in str(check)


# The Lipschitz constant.


def test_it_is_known_for_a_mean_and_a_sum() -> None:
    for reward in ("mean", "sum"):
        found = Problem(Bernoulli(P), reward, 4).check().lipschitz
        assert found is not None
        assert (found.rise, found.fall, found.constant, found.exact) == (0.5, 4.0, 4.0, True)
        assert str(found).startswith("U = 4: replacing an arm changes the")


def test_it_is_the_worst_case_of_a_maximum() -> None:
    """E max = 1 - prod(1 - p): an exchange moves it by the product of the others' 1 - p, which brute force finds."""
    found = Problem(Bernoulli(P), maximum, 3).check().lipschitz
    assert found is not None
    q = 1 - np.array(P)
    rest = [q[list(others)].prod() for others in combinations(range(5), 2)]
    assert found.fall == pytest.approx(1 / min(rest))  # for any two others there are two arms to exchange
    assert max(rest) <= found.rise <= 3**0.5 * max(rest)
    assert not found.exact
    assert "worst of all 30 exchanges" in str(found)


def test_no_constant_if_an_arm_changes_nothing() -> None:
    found = Problem(Bernoulli([0.2, 0.5, 1.0]), maximum, 2).check().lipschitz
    assert found is not None
    assert found.constant == np.inf
    equal = Problem(Bernoulli([0.5] * 4), maximum, 2).check().lipschitz
    assert equal is not None
    assert equal.constant == 0
    assert "equal means" in str(equal)


@pytest.mark.slow
def test_sampled_values_give_a_lower_limit() -> None:
    """The square root of a sum has no closed form for Beta arms; its slope is between 0.35 and 1 here."""
    arms = Beta([1, 2, 3, 4], 1)
    exact, sampled = (Problem(arms, reward, 2).check().lipschitz for reward in (mean, utility(np.sqrt)))
    assert exact is not None
    assert sampled is not None
    assert 1 < sampled.fall < 3
    assert sampled.rise < 1.5


def test_ranges_do_not_change_it() -> None:
    """Rewards and arms count in units of their ranges."""
    one = Problem(Empirical([[0.0, 0.5], [0.25, 1.0], [0.0, 1.0, 1.0]]), maximum, 2).check().lipschitz
    ten = Problem(Empirical([[0, 5], [2.5, 10], [0, 10, 10]]), maximum, 2).check().lipschitz
    assert one is not None
    assert ten is not None
    assert one.constant == pytest.approx(ten.constant)
