"""Lift and sample ratio: the closed forms against other ways to compute them, and the promised rates in simulations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import binom

from kofn import BadInput
from kofn.campaigns.evidence import Sums, lift, sample_ratio
from kofn.campaigns.evidence.lift import FEW, INTENDED_PLAYS, boundary
from kofn.campaigns.evidence.ratio import ALPHA
from kofn.core import BadReward, FloatArray
from kofn.core.responses import Lift
from tests.cases import for_each


def coins(count: int, successes: float) -> Sums:
    return Sums(count, float(successes), float(successes))


# The boundary.


@for_each("plays", [1, 50, 1_000, 10_000, 10**6])
@for_each("alpha", [0.05, 0.001])
def test_the_boundary_is_where_the_mixture_is_one_over_alpha(plays: int, alpha: float) -> None:
    """The likelihood ratio of N(0, rho^2) means against 0, integrated numerically, at a mean on the boundary."""
    evidence = -2 * math.log(alpha)
    rho = math.sqrt((evidence + math.log1p(evidence)) / INTENDED_PLAYS)
    total = math.sqrt(plays * boundary(plays, alpha))

    def density(mean: float) -> float:
        log = mean * total - mean * mean * plays / 2 - (mean / rho) ** 2 / 2
        return math.exp(log) / (rho * math.sqrt(2 * math.pi))

    peak = total / (plays + rho**-2)
    width = 12 / math.sqrt(plays + rho**-2)
    mixture, _ = quad(density, peak - width, peak + width)
    assert mixture == pytest.approx(1 / alpha, rel=1e-6)


def test_the_boundary_is_nearly_the_narrowest_at_the_intended_number_of_plays() -> None:
    """The best rho for n plays, over a fine grid."""
    evidence = -2 * math.log(0.05)
    spread = np.exp(np.linspace(-3, 6, 10_001))
    narrowest = float(((1 + 1 / spread) * (evidence + np.log1p(spread))).min())
    assert boundary(INTENDED_PLAYS, 0.05) == pytest.approx(narrowest, rel=1e-3)


def test_a_normal_mean_stays_inside_the_boundary() -> None:
    """Looked at after every play of 3,000: at most 5 % of 2,000 runs ever leave it, here with the variance known."""
    rng = np.random.default_rng(1)
    n = np.arange(1, 3_001)
    most = np.array([boundary(each, 0.05) for each in n.tolist()])
    left = sum(bool((np.cumsum(rng.standard_normal(3_000)) ** 2 > n * most).any()) for _ in range(2_000))
    assert left <= 2_000 * 0.05


# Intervals.


@given(
    st.integers(2, 10**6), st.floats(0, 1), st.integers(2, 10**6), st.floats(0, 1), st.sampled_from([0.5, 0.95, 0.999])
)
def test_limits_are_in_order_and_in_the_range(n: int, p: float, m: int, q: float, level: float) -> None:
    found = lift(coins(n, round(n * p)), coins(m, round(m * q)), level=level)
    for each in (found.learned, found.control):
        assert each is not None
        assert each.low is not None
        assert each.high is not None
        assert -1e-12 <= each.low <= each.mean <= each.high <= 1 + 1e-12
    assert found.difference is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.difference <= found.high
    assert not (found.claimed and found.harmful)
    if found.relative is not None:
        assert found.relative_low is not None
        assert -1 <= found.relative_low <= found.relative + 1e-9
        assert found.relative_high is None or found.relative <= found.relative_high + 1e-9
        if abs(found.low) > 1e-9:
            assert (found.relative_low > 0) == found.claimed


def test_the_limit_of_a_mean_has_the_variance_of_that_mean() -> None:
    """Wilson's equation: n (p - mean)^2 = boundary * p (1 - p), with the factor for few successes."""
    n, successes = 20_000, 400
    found = lift(coins(n, successes), Sums(0, 0, 0)).learned
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    noise = n / (n - 1) * (1 + FEW / successes)
    for limit in (found.low, found.high):
        squared = n * (limit - found.mean) ** 2 / (noise * limit * (1 - limit))
        assert squared == pytest.approx(boundary(n, 0.05), rel=1e-9)


def test_many_plays_give_the_interval_of_a_normal_mean() -> None:
    rng = np.random.default_rng(2)
    first, second = Sums.of(rng.normal(5, 2, 10**6)), Sums.of(rng.normal(4, 2, 10**5))
    found = lift(first, second, reward_range=(-math.inf, math.inf))
    error = 2 * math.sqrt(1e-6 + 1e-5) * math.sqrt(boundary(1 / (1e-6 + 1e-5), 0.05))
    assert found.low == pytest.approx(1 - error, abs=0.02)
    assert found.high == pytest.approx(1 + error, abs=0.02)
    assert found.relative is None


def test_another_unit_or_zero_changes_nothing() -> None:
    rng = np.random.default_rng(3)
    rewards = rng.random(5_000) ** 4, rng.random(700) ** 5
    plain = lift(*(Sums.of(each) for each in rewards))
    moved = lift(*(Sums.of(20 * each - 7) for each in rewards), reward_range=(-7, 13))
    assert plain.low is not None
    assert moved.low == pytest.approx(20 * plain.low)
    assert moved.relative is None  # rewards may be negative
    assert plain.relative is not None


def test_minimize_is_maximize_of_the_opposite() -> None:
    rng = np.random.default_rng(4)
    rewards = rng.random(5_000) ** 2, rng.random(700)
    up = lift(*(Sums.of(1 - each) for each in rewards))
    down = lift(*(Sums.of(each) for each in rewards), direction="minimize")
    assert (up.claimed, down.claimed) == (True, True)
    for name in ("difference", "low", "high"):
        assert getattr(down, name) == pytest.approx(getattr(up, name))
    assert down.relative is not None
    assert down.relative_low is not None
    assert 0 < down.relative_low < down.relative < 1  # a third of 0.5 less


def test_a_range_that_is_too_wide_changes_little() -> None:
    plain, wide = (lift(coins(90_000, 1_980), coins(10_000, 180), reward_range=(0, high)) for high in (1.0, 1_000.0))
    assert wide.low == pytest.approx(plain.low or 0, rel=0.05)
    endless = lift(coins(90_000, 1_980), coins(10_000, 180), reward_range=(0, math.inf))
    assert endless.low == pytest.approx(wide.low or 0, rel=1e-3)


def test_the_mirror_image_of_a_half_open_range() -> None:
    rng = np.random.default_rng(5)
    rewards = rng.exponential(2, 3_000), rng.exponential(1, 300)
    up = lift(*(Sums.of(each) for each in rewards), reward_range=(0, math.inf))
    down = lift(*(Sums.of(-each) for each in rewards), reward_range=(-math.inf, 0), direction="minimize")
    assert down.low == pytest.approx(up.low or 0)
    assert down.high == pytest.approx(up.high or 0)


def test_without_plays_nothing_is_said() -> None:
    nothing = lift(coins(0, 0), coins(0, 0)).to_dict()
    assert {name for name, value in nothing.items() if value is not None} == {
        "plays_learned",
        "plays_control",
        "claimed",
        "harmful",
    }
    assert not any(nothing.values())
    found = lift(coins(100, 20), coins(0, 0))
    assert found.learned is not None
    assert found.control is None
    assert found.low is None


@pytest.mark.parametrize("rewards", [0.0, 0.3, 1.0])
def test_equal_rewards_exclude_nothing(rewards: float) -> None:
    """The scale of rewards is not known yet."""
    same = Sums.of([rewards] * 50)
    found = lift(same, same)
    assert found.learned is not None
    assert list(found.learned.to_dict().values()) == pytest.approx([rewards, 0, 1])
    assert not found.claimed
    unbounded = lift(same, same, reward_range=(-math.inf, math.inf))
    assert unbounded.low is None
    assert unbounded.learned is not None
    assert (unbounded.learned.low, unbounded.learned.high) == (None, None)


def test_a_control_that_earned_nothing() -> None:
    found = lift(coins(10_000, 500), coins(1_000, 0))
    assert found.claimed
    assert found.control is not None
    assert found.control.high is not None
    assert 0 < found.control.high < 0.05
    assert found.relative is None
    assert found.relative_high is None


def test_responses_survive_json() -> None:
    found = lift(coins(10_000, 500), coins(1_000, 20))
    assert Lift.from_dict(found.to_dict()) == found


@for_each(
    "call, message",
    [
        (lambda: lift(coins(1, 1), coins(1, 1), level=95), "level must be between 0 and 1"),
        (lambda: lift(coins(1, 1), coins(1, 1), reward_range=(1, 0)), "low < high"),
        (lambda: lift(coins(1, 1), coins(1, 1), direction="up"), "direction must be"),  # type: ignore[arg-type]
        (lambda: lift(Sums(2, 5.0, 25.0), coins(1, 1)), "got a mean of 2.5"),
        (lambda: Sums(-1, 0, 0), "count must be a whole number"),
        (lambda: Sums(1, math.nan, 0), "must be finite"),
        (lambda: Sums(0, 1.0, 1.0), "0 plays have no rewards"),
        (lambda: sample_ratio(1, 1, 1.0), "share must be between 0 and 1"),
        (lambda: sample_ratio(-1, 1, 0.5), "learned must be a whole number"),
    ],
)
def test_bad_input_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises((BadInput, BadReward), match=message):
        call()


# Rates.


def looks(rewards: Callable[[int, np.random.Generator], FloatArray], share: float, seed: int) -> Iterator[Lift]:
    """Yield the lift at looks that are 5 % apart, in an A/A campaign of 20,000 plays."""
    rng, groups, plays = np.random.default_rng(seed), [Sums(0, 0, 0), Sums(0, 0, 0)], 0
    while plays < 20_000:
        more = max(10, plays // 20)
        control = int(rng.binomial(more, share))
        for group, count in enumerate((more - control, control)):
            groups[group] += Sums.of(rewards(count, rng))
        plays += more
        yield lift(groups[0], groups[1])


def revenue(count: int, rng: np.random.Generator) -> FloatArray:
    """Mostly zero, else log-normal, at most 1; the mean is 0.003."""
    return np.where(rng.random(count) < 0.1, np.minimum(0.01 * np.exp(1.5 * rng.standard_normal(count)), 1.0), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize(
    "rewards",
    [
        lambda count, rng: rng.random(count) < 0.01,
        lambda count, rng: rng.random(count) < 0.2,
        revenue,
        lambda count, rng: rng.beta(2, 5, count),
    ],
    ids=["clicks 1 %", "clicks 20 %", "revenue", "unit interval"],
)
def test_a_lift_that_is_not_there_is_rarely_claimed(rewards: Callable[..., FloatArray], share: float) -> None:
    """At any of the looks, in 400 campaigns; 5 % and 3 standard errors are 33 campaigns."""
    wrong = sum(any(look.claimed or look.harmful for look in looks(rewards, share, seed)) for seed in range(400))
    assert wrong <= 33


def test_a_mean_that_rises_is_covered() -> None:
    """The average of the expected rewards so far, of clicks at 1 % that rise to 3 %: 5 % of 300 and 3 errors are 26."""
    wrong = 0
    rates = np.linspace(0.01, 0.03, 20_000)
    for seed in range(300):
        clicks = np.cumsum(np.random.default_rng(seed).random(20_000) < rates)
        average = np.cumsum(rates) / np.arange(1, 20_001)
        for n in np.unique(np.geomspace(20, 20_000, 60).astype(int)).tolist():
            found = lift(coins(n, int(clicks[n - 1])), coins(0, 0)).learned
            assert found is not None
            assert found.low is not None
            assert found.high is not None
            if not found.low <= average[n - 1] <= found.high:
                wrong += 1
                break
    assert wrong <= 26


# The sample ratio.


@for_each("share", [0.01, 0.1, 0.5])
@for_each("plays", [1, 20, 300])
def test_the_evidence_is_one_on_average_if_the_share_is_right(share: float, plays: int) -> None:
    control = np.arange(plays + 1)
    evidence = [sample_ratio(plays - each, each, share).evidence for each in control.tolist()]
    assert float(binom.pmf(control, plays, share) @ evidence) == pytest.approx(1, rel=1e-6)


def test_a_right_share_is_not_rejected_and_a_wrong_one_is() -> None:
    """Looked at 200 times in each of 150 campaigns of 100,000 plays: 0.15 rejections are expected at most."""
    times = np.unique(np.geomspace(10, 100_000, 200).astype(int))
    rejected = {0.1: 0, 0.105: 0}
    for seed in range(150):
        for share in rejected:
            steps = np.random.default_rng(seed).binomial(np.diff(times, prepend=0), share)
            each = zip(times.tolist(), np.cumsum(steps).tolist(), strict=True)
            rejected[share] += any(sample_ratio(n - control, control, 0.1).rejected for n, control in each)
    assert rejected[0.1] <= 2
    assert rejected[0.105] >= 100


def test_evidence_stays_a_number() -> None:
    assert sample_ratio(0, 0, 0.1).evidence == 1.0
    assert sample_ratio(0, 0, 0.1).observed is None
    found = sample_ratio(0, 10**9, 0.1)
    assert found.evidence == 1e300
    assert found.rejected
    assert found.p_value < ALPHA
    assert sample_ratio(9 * 10**8, 10**8, 0.1).p_value == 1.0
