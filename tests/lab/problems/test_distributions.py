"""Families of arms: draws, moments and curves agree with each other and with scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special, stats

from kofn.core import BadInput
from kofn.lab.problems import ArctanExponential, Arms, Bernoulli, Beta, Empirical
from tests.cases import for_each

FAMILIES: list[Arms] = [
    Bernoulli([0.0, 0.2, 0.7, 1.0]),
    ArctanExponential([0.01, 0.5, 1.0, 30.0]),
    Beta([0.5, 2.0, 5.0, 40.0], [0.5, 3.0, 1.0, 2.0]),
    Empirical([[-1.0, 0.5], [0.2, 0.2, 0.9], [3.0], [0.1, 0.4, 0.7, 2.0]]),
]
each_family = pytest.mark.parametrize("arms", FAMILIES, ids=lambda arms: type(arms).__name__)


@each_family
def test_draws_have_the_moments(arms: Arms) -> None:
    """z below 5.6 for 8 moments: a false alarm has probability 2e-7."""
    n = 200_000
    x = arms.draw(np.broadcast_to(np.arange(4), (n, 4)), np.random.default_rng(11))
    for power, exact in ((1, arms.mean), (2, arms.second_moment)):
        drawn = x**power
        error = drawn.std(axis=0) / np.sqrt(n)
        assert (np.abs(drawn.mean(axis=0) - exact) <= 5.6 * error + 1e-12).all()


@each_family
def test_draws_follow_the_curves(arms: Arms) -> None:
    """The share of draws at and above x is binomial: 5.6 standard deviations, as above, with >= and not >."""
    n = 100_000
    x = arms.draw(np.broadcast_to(np.arange(4), (n, 4)), np.random.default_rng(12))
    points = np.unique(np.concatenate([np.linspace(arms.low, arms.high, 9), [0.0, 1.0, 0.2, 0.5]]))
    for drawn, exact in (
        ((x[:, :, None] >= points).mean(axis=0), arms.survival(points)),
        ((x[:, :, None] <= points).mean(axis=0), arms.cdf(points)),
    ):
        assert exact.shape == (4, points.size)
        assert (np.abs(drawn - exact) <= 5.6 * np.sqrt(exact * (1 - exact) / n) + 1e-12).all()


@each_family
def test_curves_of_some_arms_and_outside_the_bounds(arms: Arms) -> None:
    points = np.array([arms.low - 1, arms.low, arms.high, arms.high + 1])
    assert (arms.survival(points)[:, [0, 1, 3]] == [1, 1, 0]).all()
    assert (arms.cdf(points)[:, [0, 2, 3]] == [0, 1, 1]).all()
    some = np.array([2, 0])
    assert (arms.cdf(points, some) == arms.cdf(points)[some]).all()
    assert (arms.survival(0.3, some) == arms.survival(0.3)[some]).all()
    assert arms.survival(0.3).shape == (4,)


@for_each("scale", [1e-4, 0.03, 0.5, 1.0, 7.0, 1e4])
def test_arctan_moments_by_quadrature_and_closed_form(scale: float) -> None:
    arms = ArctanExponential([scale])
    z = 1 / scale
    si, ci = special.sici(z)
    if z < 100:  # beyond, the closed form cancels
        assert arms.mean[0] == pytest.approx(2 / np.pi * (ci * np.sin(z) + (np.pi / 2 - si) * np.cos(z)), rel=1e-11)
    for power, exact in ((1, arms.mean), (2, arms.second_moment)):
        found = integrate.quad(
            lambda u, p=power: (2 / np.pi * np.arctan(scale * np.exp(u))) ** p * np.exp(u - np.exp(u)),
            -45,
            5,
            epsabs=1e-14,
            epsrel=1e-12,
            limit=500,
        )[0]
        assert exact[0] == pytest.approx(found, rel=1e-10)


def test_beta_is_scipys() -> None:
    arms = Beta([0.5, 3.0], [2.0, 1.5])
    x = np.linspace(0, 1, 11)
    for i in range(2):
        other = stats.beta(arms.a[i], arms.b[i])
        np.testing.assert_allclose(arms.cdf(x)[i], other.cdf(x), atol=1e-14)
        assert arms.mean[i] == pytest.approx(other.mean())
        assert arms.second_moment[i] == pytest.approx(other.moment(2))


def test_strength_orders_by_dominance() -> None:
    assert Bernoulli([0.5, 0.1, 0.5]).strength == pytest.approx([1, 0, 1])
    assert ArctanExponential([3.0, 1.0, 2.0]).strength == pytest.approx([2, 0, 1])
    assert Beta([2, 1, 3], [1, 1, 0.5]).strength == pytest.approx([1, 0, 2])
    assert Beta(2, [3, 1, 2]).strength == pytest.approx([0, 2, 1])
    assert Empirical([[0, 2], [0, 1], [0, 1, 0, 1], [5, 2]]).strength == pytest.approx([1, 0, 0, 2])
    assert Beta([1, 2], [1, 2]).strength is None
    assert Empirical([[0, 3], [1, 1]]).strength is None


@pytest.mark.parametrize("arms", [Beta([2, 5], [2, 6]), Beta([1.0, 1.1], [30, 31]), Empirical([[0, 3], [1, 1]])])
def test_crossing_shows_both_sides(arms: Arms) -> None:
    found = arms.crossing(0, 1)
    assert found is not None
    first, second = arms.survival(np.array(found))
    assert first[0] > second[0]
    assert first[1] < second[1]
    assert arms.crossing(1, 0) == (found[1], found[0])


@given(st.lists(st.tuples(st.floats(0.2, 9), st.floats(0.2, 9)), min_size=2, max_size=2, unique=True))
def test_beta_dominance_is_what_the_curves_say(pairs: list[tuple[float, float]]) -> None:
    a, b = np.array(pairs).T
    arms = Beta(a, b)
    if arms.strength is not None:
        weak, strong = np.argsort(arms.strength)
        curves = arms.survival(np.linspace(0, 1, 101))
        assert (curves[strong] >= curves[weak] - 1e-12).all()


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=2, max_size=4))
def test_empirical_dominance_is_what_every_pair_says(samples: list[list[int]]) -> None:
    arms = Empirical(samples)
    curves = arms.survival(np.arange(4))
    ordered = all(
        (curves[i] >= curves[j]).all() or (curves[i] <= curves[j]).all() for i in range(len(arms)) for j in range(i)
    )
    assert (arms.strength is not None) == ordered


def test_empirical_support() -> None:
    support = Empirical([[1, 1, 3], [2]]).support
    assert support is not None
    np.testing.assert_allclose(support[1], np.array([[2 / 3, 1 / 3], [1.0, 0.0]]))
    assert support[0].tolist() == [[1, 3], [2, 2]]
    assert Empirical([np.arange(65)]).support is None


def test_parameters_are_copied_and_frozen() -> None:
    p = np.array([0.1, 0.2])
    arms = Bernoulli(p)
    p[0] = 0.9
    assert arms.mean[0] == 0.1
    with pytest.raises(ValueError, match="read-only"):
        arms.p[0] = 0.5


@for_each(
    "make, message",
    [
        (lambda: Bernoulli([0.2, 1.2]), r"p must be probabilities from 0 to 1; p\[1\] is 1.2"),
        (lambda: Bernoulli([0.2, np.nan]), r"p must be finite numbers; p\[1\] is nan"),
        (lambda: Bernoulli([]), r"p must be a list of at least one number; got an array of shape \(0,\)"),
        (lambda: Bernoulli([[0.3]]), r"got an array of shape \(1, 1\)"),
        (lambda: Bernoulli(["many"]), r"p must be a list of numbers, not \['many'\]"),
        (lambda: ArctanExponential([1.0, 0.0]), r"scale must be means of exponentials, above 0; scale\[1\] is 0"),
        (lambda: Beta([1, 2], [1, 2, 3]), r"a and b must have one number per arm; got 2 and 3 numbers"),
        (lambda: Beta([1, -2], 1), r"a must be numbers above 0; a\[1\] is -2"),
        (lambda: Empirical([]), r"samples must be a list with one array of numbers per arm, not \[\]"),
        (lambda: Empirical([[1.0], []]), r"samples\[1\] must be a list of at least one number"),
    ],
)
def test_bad_parameters(make: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make()


def test_the_parameter_is_the_scale() -> None:
    arms = ArctanExponential([0.2, 2.0])
    y = stats.expon(scale=2.0).sf(np.tan(np.pi / 2 * 0.6))
    assert arms.survival(0.6)[1] == pytest.approx(y, rel=1e-14)
    assert arms.mean[0] < arms.mean[1]
