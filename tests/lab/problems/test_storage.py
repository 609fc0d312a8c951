"""Heavy-tailed latencies, clipped at a timeout: against quadrature of scipy's own distributions, and by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from kofn import BadInput
from kofn.lab.problems import Bernoulli, Lognormal, Pareto, storage
from tests.cases import for_each

FASTEST, TAIL, TIMEOUT = np.array([10.0, 20.0, 15.0, 30.0, 12.0]), np.array([1.2, 4.0, 3.0, 6.0, 2.0]), 300.0
PARETO = Pareto(FASTEST, TAIL, TIMEOUT)
LOGNORMAL = Lognormal(FASTEST, 1 / TAIL, TIMEOUT)
THEIRS: dict[Any, Any] = {
    PARETO: [stats.pareto(tail, scale=fastest) for fastest, tail in zip(FASTEST, TAIL, strict=True)],
    LOGNORMAL: [stats.lognorm(1 / tail, scale=fastest) for fastest, tail in zip(FASTEST, TAIL, strict=True)],
}
each_family = pytest.mark.parametrize("arms", [PARETO, LOGNORMAL], ids=lambda arms: type(arms).__name__)


@each_family
@pytest.mark.parametrize("power", [1, 2])
def test_moments_are_those_of_clipped_latencies(arms: Any, power: int) -> None:
    found = arms.mean if power == 1 else arms.second_moment
    for arm, theirs in enumerate(THEIRS[arms]):
        tail = integrate.quad(
            lambda y, of: power * y ** (power - 1) * of.sf(y), 0, TIMEOUT, (theirs,), limit=200, points=[FASTEST[arm]]
        )
        assert found[arm] == pytest.approx(tail[0], rel=1e-7)


def test_a_tail_equal_to_the_power_is_a_logarithm() -> None:
    arms = Pareto([10.0, 10.0], [1.0, 2.0], 100.0)
    assert arms.mean[0] == pytest.approx(10 * (1 + np.log(10)), rel=1e-12)
    assert arms.second_moment[1] == pytest.approx(100 * (1 + 2 * np.log(10)), rel=1e-12)


@each_family
def test_curves_are_those_of_scipy_up_to_the_timeout(arms: Any) -> None:
    x = np.array([0.0, 5.0, 10.0, 12.5, 31.0, 299.0])
    for arm, theirs in enumerate(THEIRS[arms]):
        np.testing.assert_allclose(arms.cdf(x)[arm], theirs.cdf(x), atol=1e-12)
        np.testing.assert_allclose(arms.survival(x)[arm], theirs.sf(x), atol=1e-12)
        assert arms.timeouts[arm] == pytest.approx(theirs.sf(TIMEOUT), rel=1e-9)
    assert (arms.cdf(TIMEOUT) == 1).all()
    assert (arms.survival(TIMEOUT + 1) == 0).all()
    assert (arms.survival(TIMEOUT) > 0).all()


@each_family
def test_draws_have_that_distribution(arms: Any) -> None:
    """Kolmogorov and Smirnov up to the timeout, and a z of the atom there below 5.3."""
    n = 40_000
    drawn = arms.draw(np.tile(np.arange(5), (n, 1)), np.random.default_rng(2))
    assert drawn.max() <= TIMEOUT
    for arm, theirs in enumerate(THEIRS[arms]):
        late = theirs.sf(TIMEOUT)
        assert abs((drawn[:, arm] == TIMEOUT).mean() - late) <= 5.3 * (late * (1 - late) / n) ** 0.5 + 1e-12
        inside = drawn[drawn[:, arm] < TIMEOUT, arm]
        uniform = theirs.cdf(inside) / (1 - late)
        assert stats.kstest(uniform, "uniform").pvalue > 1e-7


@each_family
def test_the_slowest_of_k_has_its_exact_value(arms: Any) -> None:
    problem = storage(arms, 3)
    assert problem.value_error == 0.0
    rows = list(itertools.combinations(range(5), 3))
    expected = []
    for row in rows:
        servers = [THEIRS[arms][arm] for arm in row]
        below = integrate.quad(
            lambda y, of: np.prod([each.cdf(y) for each in of]),
            0,
            TIMEOUT,
            (servers,),
            limit=400,
            points=sorted(FASTEST[list(row)]),
        )
        expected.append(TIMEOUT - below[0])
    np.testing.assert_allclose(problem.value(rows), expected, rtol=1e-7)
    assert problem.best == rows[int(np.argmin(expected))]
    assert problem.direction == "minimize"
    assert problem.reward_range == (0.0, TIMEOUT)


def test_the_timeout_decides_who_is_best() -> None:
    """A server with rare but endless delays is fine for those who do not wait, and bad for those who do."""
    latencies = [Pareto([10.0, 30.0, 10.0], [1.1, 50.0, 50.0], timeout) for timeout in (60.0, 100_000.0)]
    assert [storage(each, 2).best for each in latencies] == [(0, 2), (1, 2)]


def test_the_check_says_that_tails_cross() -> None:
    check = storage(PARETO, 2).check()
    assert not check.holds["dominance"]
    assert "cross" in str(check)
    assert storage(Pareto(FASTEST, 2.0, TIMEOUT), 2).check().holds["dominance"]


@for_each(
    "make, message",
    [
        (lambda: Pareto([1, 2], 2.0, 0), "timeout must be a finite number above 0"),
        (lambda: Pareto([1, 20], 2.0, 10), r"fastest must be above 0, below timeout; fastest\[1\] is 20"),
        (lambda: Pareto([1, 2], [1, 0], 10), r"tail must be above 0; tail\[1\] is 0"),
        (lambda: Lognormal([0, 2], 1.0, 10), r"median must be above 0; median\[0\] is 0"),
        (lambda: storage(Bernoulli([0.1, 0.2]), 1), "latencies must be Pareto or Lognormal arms"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_work_is_refused(make: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make()
