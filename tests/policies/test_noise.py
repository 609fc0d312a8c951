"""The noise: right on average for one play or two, and in the long run for rewards of every kind; the range."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from kofn import Tally
from kofn.policies.thompson.constants import Constants
from kofn.policies.thompson.noise import Noise, Range
from tests.cases import for_each

C = Constants()
LEAST, SHRINKAGE = C.least, C.shrinkage

DOUBTFUL = np.array([1e9])
"""So unsure of what was expected that how far off it was says nothing."""


def of(variation: float, largest: float, floor: float) -> Noise:
    return Noise(variation, largest, floor, Range(0.0, 1.0))


def learn(noise: Noise, tally: Tally, value: Any, doubt: Any) -> Any:
    mean, within = noise.range.scaled(tally)
    return noise.learn(tally.count, mean, within, value, doubt, C)


def learned(noise: Noise, rewards: Any, value: float, doubt: Any) -> tuple[float, float]:
    """What one row of these rewards adds to `variation` and to `largest`."""
    variation, largest = noise.variation, noise.largest_variation
    learn(noise, Tally.of([rewards]), np.array([value]), doubt)
    return noise.variation - variation, noise.largest_variation - largest


def average(outcomes: dict[float, float], n: int, dispersion: float, value: float, doubt: Any) -> Any:
    """The exact expectation of what a row of n plays adds, over all that they can earn."""
    total = np.zeros(2)
    for rewards in itertools.product(outcomes, repeat=n):
        chance = math.prod(outcomes[reward] for reward in rewards)
        total += chance * np.array(learned(of(dispersion, 1.0, 1e-9), rewards, value, doubt))
    return total


@for_each("n", [2, 3, 5])
@for_each("p", [0.5, 0.1, 0.02])
@for_each("places", [1, 2])
def test_the_scatter_within_a_row_is_right_on_average(n: int, p: float, places: int) -> None:
    """One Bernoulli arm, or the mean of two: a row of n plays is n - 1 times r(1 - r), and its part of that."""
    outcomes = {j / places: math.comb(places, j) * p**j * (1 - p) ** (places - j) for j in range(places + 1)}
    variation, largest = average(outcomes, n, 1 / places, 0.5, DOUBTFUL)
    assert largest == pytest.approx((n - 1) * p * (1 - p))
    assert variation == pytest.approx(largest / places)


@for_each("n, p", [(1, 0.5), (1, 0.3), (1, 0.02), (1, 0.999), (2, 0.5)])
def test_what_was_expected_is_compared_with_what_came(n: int, p: float) -> None:
    """One play says nothing within its row; about its expectation it varies by p(1 - p)."""
    variation, largest = average({1.0: p, 0.0: 1 - p}, n, 1.0, p, np.zeros(1))
    assert largest == pytest.approx(n * p * (1 - p))
    assert variation == pytest.approx(largest)


def test_one_play_of_which_nothing_was_expected_says_nothing() -> None:
    assert learned(of(1.0, 1.0, LEAST), [1.0], 0.5, DOUBTFUL) == pytest.approx((0.0, 0.0))


def test_what_was_doubtful_says_little() -> None:
    """Where the doubt is as large as the noise of the row's mean, a quarter of it counts; many plays are like 4."""
    sure, unsure = (learned(of(1.0, 1.0, LEAST), [1.0] * 4, 0.5, np.array([doubt])) for doubt in (0.0, 0.25 / 4))
    assert sure == pytest.approx((4 * 0.25, 0.25))
    assert unsure == pytest.approx((0.25, 0.25 / 4))
    assert learned(of(1.0, 1.0, LEAST), [1.0] * 400, 0.5, np.zeros(1)) == pytest.approx((4 * 0.25 + 1 / 400, 0.25))


def in_the_long_run(draw: Any, rows: int = 4000, doubt: float = 0.002) -> Noise:
    """What is learned of rows of 1 to 20 plays, each of a value of its own that is known roughly."""
    rng = np.random.default_rng(5)
    noise = of(1.0, 1.0, LEAST)
    for _ in range(rows // 100):
        n, value = rng.integers(1, 21, 100), rng.uniform(0.1, 0.9, 100)
        tally = Tally.of([draw(m, v, rng) for m, v in zip(n, value, strict=True)])
        guess = np.clip(value + math.sqrt(doubt) * rng.standard_normal(100), 0.01, 0.99)
        learn(noise, tally, guess, np.full(100, doubt))
    return noise


def test_bernoulli_rewards_have_a_dispersion_of_1() -> None:
    noise = in_the_long_run(lambda n, v, rng: rng.random(n) < v)
    assert noise.variation / noise.largest_variation == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("k", [2, 5, 20])
def test_means_of_k_have_a_kth_of_it(k: int) -> None:
    assert in_the_long_run(lambda n, v, rng: rng.binomial(k, v, n) / k).dispersion == pytest.approx(1 / k, rel=0.15)


def test_constant_rewards_have_the_least() -> None:
    noise = of(1.0, 1.0, 3e-6)
    for value in np.linspace(0.1, 0.9, 20):
        own = learn(noise, Tally.of([np.full(10**5, value)]), np.array([value]), np.zeros(1))
    assert noise.dispersion == 3e-6
    assert 0 < own[0] < 1e-6  # many plays speak for themselves


def test_the_dispersion_is_never_above_1() -> None:
    noise = of(1.0, 1.0, LEAST)
    learn(noise, Tally.of([[1.0]] * 30), np.full(30, 0.3), np.zeros(30))
    assert noise.variation > noise.largest_variation
    assert noise.dispersion == 1.0


def test_a_row_has_the_dispersion_of_all_until_it_has_its_own() -> None:
    """A row of constant rewards among Bernoulli ones: one play is nothing; 100 plays of 1/2 weigh like SHRINKAGE."""
    rows = [np.full(1, 0.5), np.full(101, 0.5), np.full(10**6, 0.5), np.arange(1000) % 2]
    noise = of(1e4, 1e4, LEAST)
    one, some, many, coin = learn(noise, Tally.of(rows), np.full(4, 0.5), np.full(4, 1e9))
    phi = noise.dispersion
    assert phi < 1e4 / (1e4 + 0.24 * 10**6) + 0.01
    assert one == pytest.approx(phi)
    assert some == pytest.approx(phi / 2, rel=0.02)
    assert many == pytest.approx(SHRINKAGE * phi / (0.25 * 10**6), rel=0.01)
    assert coin == pytest.approx((250 + SHRINKAGE * phi) / (250 + SHRINKAGE), rel=0.01)


def test_a_range_that_grows_at_the_level_does_not_hide_the_noise() -> None:
    """At an end of the range r(1 - r) is small, and grows ninefold as the range doubles; rewards elsewhere were no more
    precise for that. A range that grows elsewhere leaves coins what they are: both sums shrink alike."""
    noise = of(1.1, 1.2, LEAST)
    noise.rescale(0.25, 9.0)
    assert noise.dispersion == pytest.approx(0.25 * 1.1 / 1.2)
    assert noise.floor == pytest.approx(0.25 * LEAST)
    noise = of(1.0, 1.0, LEAST)
    noise.rescale(0.25, 0.25)
    assert (noise.dispersion, noise.floor) == pytest.approx((1.0, LEAST))


# The range.


def seen(*plans: Any) -> Range:
    found = Range()
    for rows in plans:
        found = found.extended(Tally.of(rows))
    return found


def test_nothing_seen_has_no_range() -> None:
    assert (Range().seen, Range().width) == (False, 0.0)
    assert (seen([[0.3]]).seen, seen([[0.3], [0.3, 0.3]]).width) == (True, 0.0)
    assert seen([[0.1 + 0.2], [0.3]]).width == 0.0  # equal but for rounding


@for_each(
    "plans",
    [
        [[[0.2], [0.7]]],
        [[[0.2]], [[0.7]]],
        [[[0.2]], [[0.2, 0.2, 0.7]]],  # the other end follows from the variance
        [[[0.7]], [[0.2, 0.2, 0.7]]],
        [[[0.2, 0.7]]],
        [[[0.2, 0.7], [0.2, 0.2, 0.7]]],
    ],
)
def test_coins_have_the_range_of_their_two_rewards(plans: Any) -> None:
    found = seen(*plans, [[0.2] * 5 + [0.7] * 90, [0.7, 0.7]])
    assert (found.low, found.high) == pytest.approx((0.2, 0.7))


def test_other_rewards_widen_it() -> None:
    for plans in ([[[0.2], [0.4], [0.7]]], [[[0.2], [0.4]], [[0.7]]], [[[0.2, 0.4, 0.7], [0.2], [0.7]]]):
        found = seen(*plans)
        assert (found.low, found.high) == pytest.approx((0.2, 0.7))


@for_each("seed", range(5))
def test_no_row_varies_more_than_its_range_allows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = Range()
    for _ in range(5):
        tally = Tally.of([rng.beta(0.3, 3, n) for n in rng.integers(1, 30, 20)])
        found = found.extended(tally)
        mean, within = found.scaled(tally)
        assert (within <= tally.count * mean * (1 - mean) * (1 + 1e-6) + 1e-9).all()
        assert 0 <= found.low < found.high <= 1
