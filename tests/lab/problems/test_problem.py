"""Problems: plays are exact draws, values are exact, the best is the best.

Statistical bounds are set beforehand: a z below 5.3 or a p-value above 1e-7 has a false-alarm probability of about 1e-7
per comparison; the seeds are fixed, so a failure stays one.
"""

from __future__ import annotations

import itertools
import math
import pickle
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from kofn.core import BadInput, Tally
from kofn.lab.problems import ArctanExponential, Arms, Bernoulli, Beta, Correlated, Empirical, Problem
from kofn.lab.problems.arms import CELLS
from kofn.lab.problems.expectation import KRONROD_COARSE, KRONROD_FINE, KRONROD_NODES, CurveProduct, MonteCarlo
from kofn.lab.problems.sampling import LARGE_K, CountSampler, OutcomeSampler, PlaySampler, poisson_binomial
from kofn.lab.rewards import Reward, cross_selling, maximum, mean, minimum, utility
from tests.cases import for_each

P = np.array([0.15, 0.5, 0.3, 0.8, 0.05, 0.6])
SUBSETS = np.array([[0, 1, 2], [1, 3, 5], [0, 4, 5]])


def weighted(x: Any) -> Any:
    return x @ np.array([0.5, 0.3, 0.2])


def at_least_two(x: Any) -> Any:
    return (x.sum(axis=-1) >= 2).astype(float)


def quarter_or_three(x: Any) -> Any:
    return 0.25 + 0.5 * x.max(axis=-1)


def brute_force(p: Any, reward: Callable[[Any], Any]) -> dict[float, float]:
    """The pmf of the reward, outcome by outcome."""
    pmf: dict[float, float] = {}
    for case in itertools.product((0.0, 1.0), repeat=len(p)):
        share = math.prod(q if one else 1 - q for one, q in zip(case, p, strict=True))
        value = round(float(reward(np.array(case))), 12)
        pmf[value] = pmf.get(value, 0) + share
    return pmf


BERNOULLI_REWARDS: list[Any] = [
    mean,
    maximum,
    minimum,
    cross_selling,
    utility(np.sqrt),
    at_least_two,
    quarter_or_three,
    weighted,
]


@for_each("reward", BERNOULLI_REWARDS)
def test_bernoulli_values_are_enumeration(reward: Any) -> None:
    problem = Problem(Bernoulli(P), reward, 3)
    exact = [sum(v * q for v, q in brute_force(P[row], reward).items()) for row in SUBSETS]
    np.testing.assert_allclose(problem.value(SUBSETS), exact, atol=1e-11)
    assert problem.value_error == 0.0


def test_laws_are_the_cheapest() -> None:
    arms = Bernoulli(P)
    for reward in BERNOULLI_REWARDS[:-1]:
        assert isinstance(Problem(arms, reward, 3)._sampler, CountSampler)
    assert isinstance(Problem(arms, weighted, 3)._sampler, OutcomeSampler)
    assert isinstance(Problem(Empirical([[0, 1, 2]] * 5), maximum, 3)._sampler, OutcomeSampler)
    assert isinstance(Problem(Beta(P, 1), maximum, 3)._sampler, PlaySampler)
    wrong = Reward(weighted, "said to be symmetric", symmetric=True)
    assert isinstance(Problem(arms, wrong, 3)._sampler, OutcomeSampler)


@for_each("k", [1, 2, 7, 40, 96, 97, 300])
def test_poisson_binomial(k: int) -> None:
    """Of few arms to many digits, also where it is tiny; of many to as many as a number near 1 has."""
    p = np.random.default_rng(k).random((2, k)) * 0.9
    pmf = poisson_binomial(p)
    same = poisson_binomial(np.full((1, k), 0.3))[0]
    least = 1e-15 if k > LARGE_K else 1e-300
    assert (pmf >= 0).all()
    np.testing.assert_allclose(same, stats.binom.pmf(np.arange(k + 1), k, 0.3), rtol=1e-9, atol=least)
    np.testing.assert_allclose(pmf.sum(axis=1), 1, rtol=1e-12)
    polynomial = np.array([1.0])
    for q in p[1]:
        polynomial = np.convolve(polynomial, [1 - q, q])
    np.testing.assert_allclose(pmf[1], polynomial, rtol=1e-9, atol=least)


@pytest.mark.parametrize("together", [0.0, 0.5])
def test_few_plays_of_many_arms_follow_the_exact_distribution(together: float) -> None:
    """Rows of one play of 100 arms are drawn arm by arm: how many pay, by chi-square, p-value above 1e-7.

    Among them rows of many plays, which are not, and whose mean is within 5 standard errors.
    """
    p = np.random.default_rng(3).random(110)
    problem = Problem(Correlated(p, together) if together else Bernoulli(p), mean, 100)
    subsets = np.tile(np.arange(5, 105), (20_100, 1))
    times = np.where(np.arange(20_100) % 201 == 7, 10_000, 1)
    tally = problem.play(subsets, times, 5)
    single = times == 1
    assert isinstance(problem._sampler, CountSampler)
    pmf = problem._sampler._pmf(subsets[:1])[0]
    counts = np.bincount(np.rint(tally.total[single] * 100).astype(int), minlength=101)
    np.testing.assert_allclose(tally.squares[single], tally.total[single] ** 2, atol=1e-12)
    place = np.where(pmf * single.sum() >= 5, np.arange(101), 101)  # what is rare is counted together
    seen, expected = np.bincount(place, counts), np.bincount(place, pmf * single.sum())
    assert stats.chisquare(seen[expected > 0], expected[expected > 0]).pvalue > 1e-7
    spread = np.sqrt(pmf @ (np.arange(101) / 100) ** 2 - problem.value(subsets[:1]) ** 2).item()
    means = tally.total[~single] / 10_000
    assert np.abs(means - problem.value(subsets[:1])).max() < 5 * spread / 100


def outcome_counts(tally: Tally, values: list[float]) -> Any:
    """How often rows of one play paid each value."""
    found = np.abs(tally.total[:, None] - values).argmin(axis=1)
    np.testing.assert_allclose(tally.total, np.array(values)[found], atol=1e-9)
    np.testing.assert_allclose(tally.squares, tally.total**2, atol=1e-9)
    return np.bincount(found, minlength=len(values))


@for_each("reward", BERNOULLI_REWARDS)
def test_single_plays_follow_the_exact_distribution(reward: Any) -> None:
    """Chi-square against the brute-force pmf, p-value above 1e-7."""
    pmf = brute_force(P[SUBSETS[1]], reward)
    tally = Problem(Bernoulli(P), reward, 3).play(np.repeat(SUBSETS[1:2], 40_000, axis=0), np.ones(40_000, int), 5)
    counts = outcome_counts(tally, list(pmf))
    assert stats.chisquare(counts, 40_000 * np.array(list(pmf.values()))).pvalue > 1e-7


@for_each("reward", BERNOULLI_REWARDS)
@for_each("n", [5, 1000])
def test_rows_of_many_plays_are_distributed_as_plain_simulation(reward: Any, n: int) -> None:
    """Total and squares of rows of n plays against n drawn plays per row: two-sample Kolmogorov-Smirnov and moments."""
    rows, rng = 1500, np.random.default_rng(17)
    tally = Problem(Bernoulli(P), reward, 3).play(np.repeat(SUBSETS[:1], rows, axis=0), np.full(rows, n), rng)
    plain = reward((rng.random((rows, n, 3)) < P[SUBSETS[0]]).astype(float))
    for exact, drawn in ((tally.total, plain.sum(axis=1)), (tally.squares, (plain * plain).sum(axis=1))):
        assert stats.ks_2samp(exact.round(9), drawn.round(9)).pvalue > 1e-7
    pmf = brute_force(P[SUBSETS[0]], reward)
    m1, m2, m3 = (sum(v**j * q for v, q in pmf.items()) for j in (1, 2, 3))
    spread = math.sqrt(n * (m2 - m1 * m1) / rows)
    assert abs(tally.total.mean() - n * m1) < 5.3 * spread
    covariance = np.cov(tally.total, tally.squares)[0, 1] / n
    m4 = sum(v**4 * q for v, q in pmf.items())
    width = math.sqrt(2 * (m2 - m1 * m1) * (m4 - m2 * m2) / rows) + 1e-12
    assert abs(covariance - (m3 - m1 * m2)) < 7 * width  # near-normal, so its own error is at most this wide
    assert (tally.count == n).all()


@for_each(
    "arms, reward",
    [
        (ArctanExponential([0.3, 1.0, 2.0, 5.0]), cross_selling),
        (Beta([1.0, 2.0, 3.0, 0.5], 2.0), maximum),
        (Empirical([np.arange(70.0), np.arange(5.0), [1.0], [2.0, 90.0]]), minimum),
        (Empirical([[0.0, 1.0, 1.0], [0.5], [0.2, 0.9], [0.0, 0.3]]), weighted),
        (Bernoulli(P[:4]), weighted),
    ],
)
def test_drawn_rows_have_their_mean_and_variance(arms: Arms, reward: Any) -> None:
    """z-tests of row totals and squares against an independent plain simulation and the exact value; z below 5.3."""
    problem = Problem(arms, reward, 3)
    rows, times = np.array([[0, 1, 2], [3, 1, 0], [1, 2, 3]]), np.array([300_000, 40_000, 7])
    tally = problem.play(rows, times, 3)
    assert (tally.count == times).all()
    many = problem.play(np.repeat(rows[2:], 30_000, axis=0), np.full(30_000, 7), 4)
    for row, n, total, squares in [
        (rows[0], 300_000, tally.total[0], tally.squares[0]),
        (rows[1], 40_000, tally.total[1], tally.squares[1]),
        (rows[2], 210_000, many.total.sum(), many.squares.sum()),
    ]:
        plain = reward(arms.draw(np.broadcast_to(row, (200_000, 3)), np.random.default_rng(8)))
        error = plain.std() / math.sqrt(n) + 1e-12
        assert abs(total / n - problem.value([row])[0]) < 5.3 * error
        second = plain * plain
        assert abs(squares / n - second.mean()) < 5.3 * second.std() * math.sqrt(1 / n + 1 / 200_000) + 1e-9
    spread = many.total.var() / 7
    assert spread == pytest.approx(plain.var(), rel=0.08, abs=1e-12)


@pytest.mark.parametrize("arms", [Bernoulli(P), Beta(1 + P, 1.0), Empirical([[0, i, 2] for i in range(6)])])
@given(
    counts=st.lists(st.integers(0, 40), max_size=12),
    dtype=st.sampled_from(["i1", "u1", "i2", "i4", "u4", "i8", "u8"]),
    k=st.integers(1, 5),
)
@settings(max_examples=40)
def test_shapes(arms: Arms, counts: list[int], dtype: str, k: int) -> None:
    problem = Problem(arms, maximum, k)
    rows = np.array([np.arange(i, i + k) % 6 for i in range(len(counts))], dtype).reshape(-1, k)
    tally = problem.play(rows, counts, np.random.default_rng(0))
    assert tally.count.tolist() == counts
    assert tally.count.dtype == np.int64
    assert tally.total.shape == tally.squares.shape == problem.value(rows).shape == problem.gap(rows).shape
    assert (tally.total[tally.count == 0] == 0).all()
    assert (tally.total >= arms.low * tally.count).all()
    assert (tally.total <= arms.high * tally.count).all()
    assert (problem.gap(rows) >= 0).all()


def test_one_subset_and_lists_are_welcome() -> None:
    problem = Problem(Bernoulli(P), mean, 2)
    assert problem.value((0, 1)) == pytest.approx([0.325])
    assert problem.value([0, 1]) == pytest.approx([0.325])
    assert problem.value([(0, 1), {3, 1}]) == pytest.approx([0.325, 0.65])
    assert problem.value(np.array([0, 1], np.int8)) == pytest.approx([0.325])
    assert problem.value(np.array([[0, 1]], ">i4")) == pytest.approx([0.325])
    assert problem.value([]).shape == (0,)
    assert len(problem.play([], [], 0)) == 0


def test_the_same_seed_is_the_same_play_and_counts_are_a_copy() -> None:
    problem, times = Problem(Bernoulli(P), mean, 3), np.array([10, 0, 5])
    one, two = problem.play(SUBSETS, times, 1), problem.play(SUBSETS, times, np.random.default_rng(1))
    assert (one.total == two.total).all()
    one.add(two)
    assert times.tolist() == [10, 0, 5]


def test_a_trillion_plays() -> None:
    for reward in (mean, maximum, weighted):
        problem, n = Problem(Bernoulli(P), reward, 3), 10**12
        tally = problem.play(SUBSETS, [n] * 3, 2)
        assert (np.abs(tally.total / n - problem.value(SUBSETS)) < 5.3 * 0.5 / math.sqrt(n)).all()


@given(times=st.lists(st.integers(1, 9), min_size=1, max_size=9), cells=st.integers(1, 20))
def test_no_play_is_lost_between_blocks(times: list[int], cells: int) -> None:
    """Arms that always pay their own number: whatever the blocks, each row earns its own."""
    sampler = PlaySampler(Empirical([[float(i)] for i in range(10)]), mean)
    rows = np.arange(len(times))[:, None] + np.arange(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kofn.lab.problems.sampling.CELLS", cells)
        total, squares = sampler.play(rows, np.array(times), np.random.default_rng(0))
    assert total == pytest.approx((np.arange(len(times)) + 0.5) * times)
    assert squares == pytest.approx((np.arange(len(times)) + 0.5) ** 2 * times)


# Values.


@pytest.mark.parametrize(
    "arms",
    [
        ArctanExponential([0.001, 0.5, 1.0, 2.0, 1e4]),
        Beta([0.02, 1.0, 400.0, 3.0, 9000.0], [0.03, 1.0, 700.0, 1.0, 100.0]),
    ],
)
@pytest.mark.parametrize("k", [1, 2, 4])
def test_extremes_of_continuous_arms_by_quad(arms: Arms, k: int) -> None:
    rows = np.array(list(itertools.combinations(range(5), k)))
    top, bottom = Problem(arms, maximum, k).value(rows), Problem(arms, minimum, k).value(rows)
    ends = np.concatenate([np.logspace(-13, -1, 13), np.linspace(0.1, 0.9, 17)[1:-1], 1 - np.logspace(-1, -13, 13)])
    ends = np.concatenate([[0.0], ends, [1.0]])
    for row, high, low in zip(rows, top, bottom, strict=True):

        def below(x: float, row: Any = row) -> float:
            return float(arms.cdf(x, row).prod())

        def above(x: float, row: Any = row) -> float:
            return float(arms.survival(x, row).prod())

        parts = [[integrate.quad(f, *e, epsabs=1e-14)[0] for e in itertools.pairwise(ends)] for f in (below, above)]
        assert high == pytest.approx(1 - math.fsum(parts[0]), abs=1e-10)
        assert low == pytest.approx(math.fsum(parts[1]), abs=1e-10)


def test_the_extreme_of_alike_arms_in_closed_form() -> None:
    k = 7
    uniform = Beta(np.ones(9), 1.0)
    assert Problem(uniform, maximum, k).optimum == pytest.approx(k / (k + 1), abs=1e-13)
    assert Problem(uniform, minimum, k).optimum == pytest.approx(1 / (k + 1), abs=1e-13)
    assert Problem(Beta(np.ones(1001), 1.0), maximum, 1000).optimum == pytest.approx(1000 / 1001, abs=1e-11)


def test_a_row_that_the_common_panels_do_not_fit_gets_its_own() -> None:
    """One narrow arm among thousands is not among those that the panels were made for."""
    a, b = np.ones(2000), np.ones(2000)
    a[7], b[7] = 2e6, 3e6
    value = Problem(Beta(a, b), maximum, 2).value([(7, 8)])[0]
    assert value == pytest.approx((0.4**2 + 0.24 / 5e6 + 1) / 2, abs=1e-9)  # E (X^2 + 1) / 2, X of mean 0.4


def test_the_value_of_a_row_does_not_depend_on_the_others() -> None:
    problem = Problem(ArctanExponential(np.linspace(0.1, 3, 300)), maximum, 4)
    rows = np.array([np.random.default_rng(i).choice(300, 4, replace=False) for i in range(2000)])
    np.testing.assert_array_almost_equal_nulp(problem.value(rows)[1234:1236], problem.value(rows[1234:1236]), 4)
    assert isinstance(problem._expectation, CurveProduct)
    whole = problem.value(rows)
    problem._expectation.__dict__["_table"] = None  # as for more arms than a table should hold
    np.testing.assert_allclose(problem.value(rows), whole, rtol=1e-14)


def test_the_kronrod_table_is_exact_for_polynomials() -> None:
    for power in range(24):
        exact = 2 / (power + 1) if power % 2 == 0 else 0.0
        assert KRONROD_FINE @ KRONROD_NODES**power == pytest.approx(exact, abs=1e-15)
        if power < 14:
            assert KRONROD_COARSE @ KRONROD_NODES**power == pytest.approx(exact, abs=1e-15)


def test_empirical_extremes_by_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [[-1.0, 0.5, 4.0], [0.2, 0.2, 0.9], [3.0], [0.1, 0.4, 0.7, 2.0]]
    rows = np.array(list(itertools.combinations(range(4), 3)))
    for limit in (CELLS, 1):  # with the table of all arms, and row by row
        monkeypatch.setattr("kofn.lab.problems.expectation.CELLS", limit)
        for reward, fold in ((maximum, max), (minimum, min)):
            exact = [np.mean([fold(case) for case in itertools.product(*(samples[i] for i in row))]) for row in rows]
            np.testing.assert_allclose(Problem(Empirical(samples), reward, 3).value(rows), exact, rtol=1e-12)


def test_monte_carlo_reports_its_error_and_is_the_same_everywhere() -> None:
    """utility(s^2) has a closed form to compare with: z below 5.3."""
    arms = Beta([1.0, 2.0, 3.0, 4.0], 2.0)
    problem = Problem(arms, utility(np.square), 2)
    rows = np.array([[0, 1], [1, 3], [2, 3]])
    exact = arms.second_moment[rows].sum(axis=1) + 2 * arms.mean[rows].prod(axis=1)
    assert isinstance(problem._expectation, MonteCarlo)
    assert 0 < problem.value_error < 0.01
    assert (np.abs(problem.value(rows) - exact) < 5.3 * problem.value_error).all()
    assert (Problem(arms, utility(np.square), 2).value(rows[1:]) == problem.value(rows)[1:]).all()
    assert problem.best == (2, 3)


def test_monte_carlo_of_many_arms_is_that_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The draws of an arm are its own, kept or made again."""
    arms, rows = Beta(np.arange(1, 6), 2.0), np.array([[0, 3], [1, 4]])
    kept = Problem(arms, _spread, 2).value(rows)
    monkeypatch.setattr("kofn.lab.problems.expectation.CELLS", 1)
    assert (Problem(arms, _spread, 2).value(rows) == kept).all()


def _spread(x: Any) -> Any:
    return np.ptp(x, axis=-1)


# The best.


@for_each("direction", ["maximize", "minimize"])
@for_each(
    "arms, reward",
    [
        (Bernoulli(P), maximum),
        (Bernoulli(P), minimum),
        (Bernoulli(P), weighted),
        (Bernoulli(P), lambda x: np.abs(x.sum(-1) - 2.0)),
        (ArctanExponential(5 * P), cross_selling),
        (Beta([1, 2, 3, 4, 5, 6], [6, 1, 5, 2, 4, 3]), maximum),
        (Beta([1, 2, 3, 4, 5, 6], [6, 1, 5, 2, 4, 3]), mean),
        (Empirical([[-3, -2], [-2, -1], [0, 0], [0, 1], [1, 1], [1, 2]]), cross_selling),
        (Empirical([[-3, 1], [0, 1], [2, -2], [1, 1], [5, -4], [0, 0]]), cross_selling),
    ],
)
def test_the_best_is_the_best_of_all(arms: Arms, reward: Any, direction: Any) -> None:
    problem = Problem(arms, reward, 3, direction=direction)
    rows = np.array(list(itertools.combinations(range(6), 3)))
    values = problem.value(rows) * (1 if direction == "maximize" else -1)
    assert values[rows.tolist().index(list(problem.best))] == pytest.approx(values.max(), abs=1e-12)
    assert problem.gap(rows).min() == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(problem.gap(rows), values.max() - values, atol=1e-12)


def test_ties_go_to_the_lowest_arms() -> None:
    assert Problem(Bernoulli([0.2, 0.5, 0.5, 0.5]), maximum, 2).best == (1, 2)
    assert Problem(Bernoulli([0.2, 0.5, 0.4] * 400), maximum, 20).best == tuple(range(1, 60, 3))
    assert Problem(Bernoulli([0.9, 0.5, 0.5, 0.5]), maximum, 2, direction="minimize").best == (1, 2)
    assert Problem(Bernoulli([0.2, 0.5, 0.5, 0.5]), weighted, 3).best == (1, 2, 3)


def test_too_many_subsets_to_try() -> None:
    problem = Problem(Beta(np.linspace(1, 5, 30), np.linspace(1, 4, 30)), maximum, 15)
    with pytest.raises(BadInput, match=r"there are 155,117,520 subsets.*give it as best="):
        _ = problem.best
    given = Problem(problem.arms, maximum, 15, best=range(15))
    assert given.best == tuple(range(15))
    assert given.gap([range(15, 30)])[0] > 0


def test_a_best_that_is_not() -> None:
    problem = Problem(Bernoulli(P), mean, 2, best=(0, 1))
    with pytest.raises(BadInput, match=r"best=\(0, 1\) was given, but \(3, 5\) is better by 0.375"):
        problem.gap([(0, 2), (5, 3)])
    assert problem.gap([(0, 4)])[0] > 0


def test_it_pickles() -> None:
    problem = Problem(Bernoulli(P), utility(np.sqrt), 3)
    again = pickle.loads(pickle.dumps(problem))
    assert again.best == problem.best
    assert (again.play(SUBSETS, [9, 9, 9], 1).total == problem.play(SUBSETS, [9, 9, 9], 1).total).all()


# Bounded memory.


def peak(work: Callable[[], object]) -> float:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("arms", "reward", "rows", "k", "times"),
    [
        (ArctanExponential(1 + np.arange(24.0)), maximum, 1, 5, 3_000_000),
        (Bernoulli(np.linspace(0, 1, 24)), mean, 800_000, 11, 100),
        (Bernoulli(np.linspace(0, 1, 2000)), mean, 1500, 1000, 5),
        (Bernoulli(np.linspace(0, 1, 24)), lambda x: x @ np.arange(12.0), 300, 12, 5000),
    ],
)
def test_blocks_bound_the_memory_of_a_play(arms: Arms, reward: Any, rows: int, k: int, times: int) -> None:
    """Beside what goes in and comes out (24 bytes a row, twice while it is put together), less than 120 MB."""
    problem = Problem(arms, reward, k)
    subsets = np.broadcast_to(np.arange(k, dtype=np.int16), (rows, k))
    counts = np.full(rows, times)
    assert peak(lambda: problem.play(subsets, counts, 0)) < 120 + rows * 48 / 2**20


@pytest.mark.parametrize(
    ("arms", "reward", "rows", "k"),
    [
        (Bernoulli(np.linspace(0, 1, 24)), lambda x: x.sum(-1) ** 3, 1_000_000, 5),
        (Beta(np.arange(1, 20_001), 3.0), cross_selling, 200_000, 30),
        (Beta(np.arange(1, 20_001), 3.0), minimum, 20, 300),
    ],
)
def test_blocks_bound_the_memory_of_values(arms: Arms, reward: Any, rows: int, k: int) -> None:
    problem = Problem(arms, reward, k)
    subsets = np.broadcast_to(np.arange(k), (rows, k))
    assert peak(lambda: problem.value(subsets)) < 160 + rows * 16 / 2**20


# Bad input.

BAD_PLAYS: list[tuple[Any, Any, Any, str]] = [
    ([(0, 1)], [1], 0, "a subset has 3 arms; got rows of 2"),
    (np.array([[0, 1, 6]]), [1], 0, r"arms are numbered from 0 to 5; got row 0: \(0, 1, 6\)"),
    (np.array([[0, 1, 2], [0, -1, 2]]), [1, 1], 0, r"from 0 to 5; got row 1: \(0, -1, 2\)"),
    ([(0, 1, 1)], [1], 0, r"a subset has 3 different arms; got \(0, 1, 1\)"),
    ([(0, 1, 2), (0, 1)], [1, 1], 0, r"subsets must be an \(m, 3\) array of arms, .* got rows of different lengths"),
    (np.array([[0.0, 1.0, 2.0]]), [1], 0, r"got float64 of shape \(1, 3\)"),
    (7, [1], 0, r"subsets must be an \(m, 3\) array of arms, or a list of subsets, not 7"),
    (SUBSETS, [1, 2], 0, r"times must have one number per row, shape \(3,\); got \(2,\)"),
    (SUBSETS, [1, -4, 2], 0, "times must be at least 0; row 1 has -4"),
    (SUBSETS, [1.5, 1, 1], 0, "times must be whole numbers of plays; got float64"),
    (SUBSETS, [1, 1, 1], "dice", "seed must be an int, a SeedSequence or a Generator, not 'dice'"),
]


@for_each("subsets, times, rng, message", BAD_PLAYS)
def test_bad_plays_change_nothing(subsets: Any, times: Any, rng: Any, message: str) -> None:
    problem = Problem(Bernoulli(P), maximum, 3)
    before = problem.play(SUBSETS, [7, 8, 9], 1).total, problem.value(SUBSETS), dict(vars(problem))
    with pytest.raises(BadInput, match=message):
        problem.play(subsets, times, rng)
    assert vars(problem) == before[2]
    assert (problem.play(SUBSETS, [7, 8, 9], 1).total == before[0]).all()
    assert (problem.value(SUBSETS) == before[1]).all()


def _loud(x: Any) -> Any:
    raise RuntimeError("no such thing")


@for_each(
    "make, message",
    [
        (lambda: Problem([0.1, 0.2], mean, 1), r"arms must be Arms, for instance .*Bernoulli.*, not \[0.1, 0.2\]"),  # type: ignore[arg-type]
        (lambda: Problem(Bernoulli(P), mean, 6), "k must be less than n_arms; got k=6 and n_arms=6"),
        (lambda: Problem(Bernoulli(P), "median", 2), "there is no reward 'median'"),
        (lambda: Problem(Bernoulli(P), mean, 2, direction="up"), "'maximize' or 'minimize', not 'up'"),  # type: ignore[arg-type]
        (lambda: Problem(Bernoulli(P), mean, 2, best=(1, 1)), r"a subset must have 2 different arms; got \(1, 1\)"),
        (lambda: Problem(Bernoulli(P), np.sum, 2), r"turned shape \(3, 2\) into \(\): reduce axis=-1 only"),
        (lambda: Problem(Bernoulli(P), _loud, 2), "raised RuntimeError: no such thing"),
        (lambda: Problem(Bernoulli(P), lambda x: x[..., 0] + np.nan, 2), "returned nan for an array of draws"),
        (
            lambda: Problem(Bernoulli(P / 99), lambda x: np.where(x.sum(-1) == 2, np.inf, 0), 2).value((0, 1)),
            "a reward must be a finite number; <reward <lambda>> gives inf if 2 arms pay",
        ),
    ],
)
def test_bad_problems(make: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make()


def test_sure_arms_are_sure() -> None:
    problem = Problem(Bernoulli([0.0, 1.0, 1.0, 0.0]), mean, 2)
    tally = problem.play([(0, 1), (1, 2), (0, 3)], [10**12] * 3, 0)
    assert tally.total.tolist() == [0.5e12, 1e12, 0]
    constant = Problem(Bernoulli(P), lambda x: 0 * x.sum(-1) + 0.25, 3).play([(0, 1, 2)], [8], 0)
    assert (constant.total[0], constant.squares[0]) == (2.0, 0.5)
