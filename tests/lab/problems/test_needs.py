"""What problems offer beyond one reward per play: single arms, and fewer arms than K."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from kofn import BadInput, Problem, simulate
from kofn.lab.problems import ArctanExponential, Arms, Bernoulli, Beta, Empirical
from kofn.lab.problems.expectation import MonteCarlo
from kofn.lab.problems.sampling import CountSampler, OutcomeSampler, PlaySampler
from kofn.lab.rivals import CUCB
from kofn.lab.settings import Setting
from tests.cases import for_each

P = np.array([0.15, 0.5, 0.3, 0.8, 0.05, 0.6])
PADDED = np.array([[0, 1, 2], [1, 3, -1], [5, -1, -1], [-1, -1, -1]])


# Single arms, in problems.

FAMILIES: list[Arms] = [
    Bernoulli(P),
    Beta(1 + 9 * P, 3.0),
    ArctanExponential(0.1 + 3 * P),
    Empirical([[0.0, p, 1.0] for p in P]),
]


@pytest.mark.parametrize("arms", FAMILIES, ids=repr)
@pytest.mark.parametrize("reward", ["mean", "maximum"])
def test_each_arm_is_shown_with_its_own_law(arms: Arms, reward: str) -> None:
    """Mean and variance of the totals of 2,000 rows of 50 plays: z below 5.3, and a fifth of the variance."""
    rows, n = 2000, 50
    tally = Problem(arms, reward, 3).play(np.tile([1, 3, 4], (rows, 1)), np.full(rows, n), 3, arms=True)
    assert tally.arms is not None
    assert tally.arms.shape == (rows, 3)
    mean, variance = arms.mean[[1, 3, 4]], (arms.second_moment - arms.mean**2)[[1, 3, 4]]
    z = (tally.arms.mean(axis=0) - n * mean) / np.sqrt(n * variance / rows)
    assert np.abs(z).max() < 5.3
    np.testing.assert_allclose(tally.arms.var(axis=0), n * variance, rtol=0.2)
    assert np.abs(np.corrcoef(tally.arms.T) - np.eye(3)).max() < 5.3 / math.sqrt(rows)


def test_the_rewards_are_the_same_with_single_arms_and_without() -> None:
    problem = Problem(Bernoulli(P), "maximum", 3)
    rows = np.array([[0, 1, 2], [1, 3, 5]])
    plain, shown = problem.play(rows, [7, 0], 1), problem.play(rows, [7, 0], 1, arms=True)
    assert plain.arms is None
    assert shown.arms is not None
    assert (plain.total == shown.total).all()
    assert shown.arms[1].tolist() == [0, 0, 0]


def test_simulate_shows_single_arms_to_those_who_see_them() -> None:
    run = simulate(CUCB(6, 3), Problem(Bernoulli([0.0, 1.0, 0.0, 1.0, 0.0, 1.0]), "minimum", 3), 1000, seed=1)
    assert run.final == (1, 3, 5)


# Fewer arms, in problems.


def brute_force(p: list[float], reward: Any, absent: float) -> dict[float, float]:
    """The pmf of the reward of Bernoulli arms p, with `absent` in the empty places of three."""
    pmf: dict[float, float] = {}
    for case in itertools.product((0.0, 1.0), repeat=len(p)):
        share = math.prod(q if one else 1 - q for one, q in zip(case, p, strict=True))
        value = round(float(reward([*case, *[absent] * (3 - len(p))])), 12)
        pmf[value] = pmf.get(value, 0) + share
    return pmf


def cross(x: Any) -> float:
    return float(sum(a * b for a, b in itertools.combinations_with_replacement(x, 2)) / 6)


def weighted(x: Any) -> Any:
    return np.sort(x, axis=-1) @ np.array([0.5, 0.3, 0.2])


REWARDS: dict[str, Any] = {"mean": lambda x: sum(x) / 3, "maximum": max, "minimum": min, "cross-selling": cross}


@for_each("absent", [0.0, 1.0, 0.25])
@for_each("reward", [*REWARDS, "weighted"])
def test_padded_rows_of_bernoulli_arms_are_exact(reward: str, absent: float) -> None:
    """Values by enumeration; single plays by chi-square, p-value above 1e-7."""
    fn = REWARDS.get(reward, lambda x: float(weighted(np.array(x))))
    problem = Problem(Bernoulli(P), weighted if reward == "weighted" else reward, 3, absent=absent)
    assert problem.value_error == 0.0
    for row in PADDED:
        pmf = brute_force(P[row[row >= 0]].tolist(), fn, absent)
        assert problem.value(row[None])[0] == pytest.approx(sum(v * q for v, q in pmf.items()), abs=1e-11)
        for n in (1, 5000):  # few plays may be drawn one by one, many are not
            tally = problem.play(np.tile(row, (20_000 if n == 1 else 1, 1)), np.full(20_000 if n == 1 else 1, n), 5)
            if n == 1:
                found = np.abs(tally.total[:, None] - list(pmf)).argmin(axis=1)
                np.testing.assert_allclose(tally.total, np.array(list(pmf))[found], atol=1e-9)
                counts = np.bincount(found, minlength=len(pmf))
                likely = np.array(list(pmf.values())) > 0
                share = np.array(list(pmf.values()))[likely]
                assert counts[~likely].sum() == 0
                assert share.size == 1 or stats.chisquare(counts[likely], share * counts.sum()).pvalue > 1e-7
            else:
                mean, square = (sum(v**j * q for v, q in pmf.items()) for j in (1, 2))
                spread = math.sqrt(max(0.0, n * (square - mean**2)))
                assert abs(tally.total[0] - n * mean) <= 5.3 * spread + 1e-6
                assert tally.squares[0] >= tally.total[0] ** 2 / n - 1e-6


@pytest.mark.parametrize("absent", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("arms", [ArctanExponential(0.1 + 3 * P), Beta(1 + 9 * P, 3.0)], ids=repr)
def test_padded_extremes_of_continuous_arms_by_quad(arms: Arms, absent: float) -> None:
    """E max(a, X) = 1 - integral of the cdfs from a on; E min(a, X) = integral of the survivals up to a."""
    row = np.array([[1, 3, -1]])
    for reward, exact in (
        ("maximum", 1 - integrate.quad(lambda x: arms.cdf(x)[1] * arms.cdf(x)[3], absent, 1, epsabs=1e-12)[0]),
        ("minimum", integrate.quad(lambda x: arms.survival(x)[1] * arms.survival(x)[3], 0, absent, epsabs=1e-12)[0]),
    ):
        problem = Problem(arms, reward, 3, absent=absent)
        assert problem.value(row)[0] == pytest.approx(exact, abs=1e-9)
        tally = problem.play(row, [100_000], 1)
        spread = math.sqrt(max(0.0, tally.squares[0] / 1e5 - (tally.total[0] / 1e5) ** 2) / 1e5)
        assert abs(tally.total[0] / 1e5 - exact) <= 5.3 * spread + 1e-9


@pytest.mark.parametrize("arms", [ArctanExponential(0.1 + 3 * P), Empirical([[0, p] for p in P])], ids=repr)
@pytest.mark.parametrize("reward", ["mean", "cross-selling", "maximum"])
def test_padded_values_are_the_average_of_plays(arms: Arms, reward: str) -> None:
    problem = Problem(arms, reward, 3, absent=0.2 if arms.high > 0.2 else 0.0)
    tally = problem.play(PADDED, [200_000] * 4, 1)
    mean = tally.total / tally.count
    error = np.sqrt(np.maximum(tally.squares / tally.count - mean**2, 0) / tally.count)
    assert (np.abs(mean - problem.value(PADDED)) <= 5.3 * error + 1e-9).all()


def test_monte_carlo_values_of_padded_rows() -> None:
    problem = Problem(Beta(1 + 9 * P, 3.0), weighted, 3, absent=0.0)
    assert isinstance(problem._expectation, MonteCarlo)
    one = problem.arms.mean[5] * 0.2  # it comes last when sorted, after two zeros
    assert problem.value([(5,)])[0] == pytest.approx(one, abs=6 * problem.value_error)


@pytest.mark.parametrize("reward", ["mean", "maximum", "minimum", "cross-selling"])
@pytest.mark.parametrize("arms", FAMILIES, ids=repr)
def test_full_rows_do_not_care_what_an_empty_place_pays(arms: Arms, reward: str) -> None:
    rows = np.array([[0, 1, 2], [1, 3, 5]])
    plain, other = Problem(arms, reward, 3), Problem(arms, reward, 3, absent=0.0)
    np.testing.assert_allclose(other.value(rows), plain.value(rows), atol=1e-10)
    assert (other.best, other.n_arms) == (plain.best, 6)
    for n in (3, 5000):
        first, second = (problem.play(rows, [n, n], 4) for problem in (plain, other))
        np.testing.assert_allclose(first.total, second.total)
    kinds: tuple[type, ...] = (CountSampler, OutcomeSampler, PlaySampler)
    assert [isinstance(plain._sampler, kind) for kind in kinds] == [isinstance(other._sampler, kind) for kind in kinds]


def test_shorter_subsets_and_any_integers_are_welcome() -> None:
    problem = Problem(Bernoulli(P), "mean", 3, absent=0.0)
    expected = [P[3] / 3, (P[0] + P[1]) / 3]
    np.testing.assert_allclose(problem.value([(3,), (0, 1)]), expected)
    for dtype in (np.int8, np.int16, np.int64):
        np.testing.assert_allclose(problem.value(np.array([[3, -1, -1], [0, -1, 1]], dtype)), expected)
    many = Problem(Bernoulli(np.linspace(0, 1, 128)), "mean", 2, absent=0.0)
    np.testing.assert_allclose(many.value(np.array([[127, -1]], np.int8)), [0.5])
    assert problem.gap([(3,)])[0] == pytest.approx(problem.optimum - P[3] / 3)


@for_each(
    "absent, subsets, message",
    [
        (None, [[0, 1, -1]], r"row 0: \(0, 1, -1\). To play fewer arms, give what an empty place \(-1\) pays"),
        (None, [(0, 1)], "a subset has 3 arms; got rows of 2"),
        (0.0, [[0, 1, -2]], r"arms are numbered from 0 to 5; got row 0: \(0, 1, -2\)$"),
        (0.0, [[0, 1, 6]], r"from 0 to 5; got row 0: \(0, 1, 6\)$"),
        (0.0, [(0, 0, -1)], "a subset has 3 different arms"),
        (0.0, [(0, 0)], "a subset has 3 different arms"),
        (0.0, [(0, 1, 2, 3)], "a subset has 3 arms; got rows of 4"),
        (0.0, np.array([[0, 1]]), "a subset has 3 arms; got rows of 2"),
    ],
)
def test_what_is_no_padded_row_is_refused(absent: float | None, subsets: Any, message: str) -> None:
    problem = Problem(Bernoulli(P), "mean", 3, absent=absent)
    with pytest.raises(BadInput, match=message):
        problem.value(subsets)
    with pytest.raises(BadInput, match=message):
        problem.play(np.array(subsets) if absent is None and len(subsets[0]) == 3 else subsets, [1], 0)


@for_each("absent", [-0.1, 1.1, math.nan, "0", True, 1j])
def test_what_no_arm_could_pay_is_refused(absent: Any) -> None:
    with pytest.raises(BadInput, match="absent must be a number that an arm can pay, from 0 to 1"):
        Problem(Bernoulli(P), "mean", 3, absent=absent)


# What problems offer.


def test_a_problem_says_what_it_offers() -> None:
    assert Problem(Bernoulli(P), "mean", 3).offers == {"best", "arms"}
    assert Problem(Bernoulli(P), "mean", 3, absent=0.0).offers == {"best", "arms", "fewer"}
    fewer = {name: "fewer" in Setting(name, 6, 3).problem(1).offers for name in ("mean", "max", "cross-selling", "min")}
    assert fewer == {"mean": True, "max": True, "cross-selling": True, "min": False}


def test_a_need_that_a_problem_cannot_meet_is_named() -> None:
    class Blind(Problem):
        offers = frozenset({"best"})

    with pytest.raises(BadInput, match="cucb needs arms, which this problem does not provide"):
        simulate(CUCB(6, 3), Blind(Bernoulli(P), "mean", 3), 100, seed=1)
