"""The pairwise model against explicit weights, plain optimisation and enumeration; the policy on known answers."""

import itertools
import json
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logsumexp

import kofn
from kofn import BadInput, BadRecord, Tally
from kofn.core import FloatArray
from kofn.lab.rivals import PairwiseThompson, pairwise_thompson
from kofn.lab.rivals.pairwise_model import LEVEL, Functions, PairPosterior, Scales, SubsetSums, climb
from tests.cases import for_each

N, K = 6, 3
ALL = np.array(list(itertools.combinations(range(N), K)))
SCALES = Scales(arms=0.7, pairs=0.4, rest=0.05, dispersion=0.3)


def indicator(subsets: Any) -> FloatArray:
    return np.array([[float(arm in subset) for arm in range(N)] for subset in subsets])


def features(subsets: Any, scales: Scales) -> FloatArray:
    """A column for the level, each arm, each pair and each subset, so that all weights have a standard normal prior."""
    pairs = list(itertools.combinations(range(N), 2))
    columns: list[Any] = [np.full(len(subsets), LEVEL**0.5)]
    columns += [(scales.arms / K) ** 0.5 * indicator(subsets)[:, arm] for arm in range(N)]
    columns += [[(scales.pairs / 3) ** 0.5 * ({i, j} <= set(each)) for each in subsets.tolist()] for i, j in pairs]
    columns += [[scales.rest**0.5 * (tuple(each) == tuple(one)) for each in subsets.tolist()] for one in ALL]
    return np.array(columns, float).T


def some_rows(seed: int, number: int = 12, most: int = 30, *, binary: bool = False) -> tuple[Any, SubsetSums]:
    rng = np.random.default_rng(seed)
    subsets = ALL[rng.permutation(len(ALL))[:number]]
    count = rng.integers(1, most, number).astype(float)
    mean = rng.binomial(count.astype(int), 0.4) / count
    return subsets, SubsetSums(indicator(subsets), count, mean, 0.1 * count * rng.random(number), binary)


@for_each("seed", range(4))
def test_the_posterior_is_that_of_a_regression_on_arms_and_pairs(seed: int) -> None:
    """The Gaussian process is equal to Bayesian linear regression with a weight for each arm, pair and subset."""
    subsets, rows = some_rows(seed)
    posterior = PairPosterior(rows, SCALES, np.linspace(-2, 1, len(subsets)))
    design = features(subsets, SCALES) / np.sqrt(posterior.noise)[:, None]
    covariance = np.linalg.inv(design.T @ design + np.eye(design.shape[1]))
    weights = covariance @ design.T @ (posterior.z / np.sqrt(posterior.noise))
    assert posterior.mode == pytest.approx(features(subsets, SCALES) @ weights, abs=1e-8)
    smooth = features(ALL, SCALES)
    smooth[:, -len(ALL) :] = 0.0  # without the rest
    assert posterior.mean().of(indicator(ALL))[0] == pytest.approx(smooth @ weights, abs=1e-8)


@pytest.mark.parametrize("width", [1.0, 0.5])
def test_draws_have_the_mean_and_the_covariance_of_the_posterior(width: float) -> None:
    """Of 20,000 draws: a mean is within 5 standard errors, a covariance within 0.06 of the largest variance."""
    subsets, rows = some_rows(7)
    posterior = PairPosterior(rows, SCALES, np.zeros(len(subsets)))
    design = features(subsets, SCALES) / np.sqrt(posterior.noise)[:, None]
    smooth = features(ALL, SCALES)
    smooth[:, -len(ALL) :] = 0.0
    exact = width**2 * smooth @ np.linalg.inv(design.T @ design + np.eye(design.shape[1])) @ smooth.T
    drawn = posterior.draw(20_000, width, np.random.default_rng(1)).of(indicator(ALL))
    error = np.abs(drawn.mean(axis=0) - posterior.mean().of(indicator(ALL))[0])
    assert (error < 5 * np.sqrt(exact.diagonal() / 20_000)).all()
    assert np.abs(np.cov(drawn.T) - exact).max() < 0.06 * exact.max()


@for_each("seed", range(4))
def test_the_mode_is_that_of_plain_optimisation(seed: int) -> None:
    """Also if almost all rewards are 0, where Newton's method could overshoot."""
    subsets, rows = some_rows(seed, binary=True)
    if seed % 2:
        rows = replace(rows, mean=np.where(np.arange(len(subsets)) == 3, 1 / rows.count, 0.0))
    scales, design = replace(SCALES, dispersion=1.0), features(subsets, replace(SCALES, dispersion=1.0))

    def loss(weights: FloatArray) -> float:
        odds = design @ weights
        fit = rows.count @ (np.logaddexp(0, odds) - rows.mean * odds)
        return float(fit + weights @ weights / 2)

    other = cast(Any, minimize)(loss, np.zeros(design.shape[1]), tol=1e-10)
    found = PairPosterior.near(rows, scales, np.full(len(subsets), 4.0), steps=50).mode
    assert found == pytest.approx(design @ other.x, abs=0.02)


def test_the_evidence_of_coins_is_close_to_the_integral() -> None:
    """Of two subsets with 60 plays each, up to a constant that does not depend on the scales: within 0.05."""
    x, axis = indicator([(0, 1, 2), (0, 1, 3)]), np.linspace(-4, 4, 401)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    rows = SubsetSums(x, np.array([60.0, 60.0]), np.array([0.3, 0.6]), np.zeros(2), binary=True)
    gaps = []
    for scales in (Scales(1.0, 0.3, 0.1), Scales(0.1, 0.1, 0.01)):
        covariance = features(np.array([(0, 1, 2), (0, 1, 3)]), scales)
        prior = stats.multivariate_normal(np.zeros(2), covariance @ covariance.T)
        posterior = PairPosterior.near(rows, scales, np.zeros(2), steps=50)

        like = sum(
            n * (y * log_expit(odds) + (1 - y) * log_expit(-odds))
            for n, y, odds in zip(rows.count, rows.mean, (grid[..., 0], grid[..., 1]), strict=True)
        )
        exact = logsumexp(like + prior.logpdf(grid))
        gaps.append(posterior.evidence - scales.log_prior - exact)
    assert gaps[0] == pytest.approx(gaps[1], abs=0.05)


def test_the_evidence_of_other_rewards_is_their_gaussian_density() -> None:
    """Up to a constant that does not depend on the scales: the rows' observations, and deviations from rows' means."""
    subsets, rows = some_rows(3)
    gaps = []
    for scales in (SCALES, Scales(0.2, 0.1, 0.3, 0.8)):
        posterior = PairPosterior(rows, scales, np.zeros(len(subsets)))  # p = 1/2
        covariance = features(subsets, scales) @ features(subsets, scales).T + np.diag(posterior.noise)
        density = stats.multivariate_normal(np.zeros(len(subsets)), covariance).logpdf(posterior.z)
        variance, freedom = scales.dispersion / 4, rows.count.sum() - len(subsets)
        density -= rows.within.sum() / (2 * variance) + freedom * np.log(variance) / 2
        gaps.append(posterior.evidence - scales.log_prior - density)
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-8)


def random_functions(seed: int) -> Functions:
    rng = np.random.default_rng(seed)
    half = np.triu(rng.standard_normal((5, N, N)), 1)
    return Functions(rng.standard_normal(5), rng.standard_normal((5, N)), half + half.transpose(0, 2, 1))


@for_each("seed", range(5))
def test_a_climb_takes_the_best_swap_and_ends_where_none_gains(seed: int) -> None:
    functions, start = random_functions(seed), np.tile([0, 2, 4], (5, 1))
    values = functions.of(indicator(ALL))
    near = {tuple(each): [len(set(each) & set(other)) >= K - 1 for other in ALL.tolist()] for each in ALL.tolist()}
    once, end = climb(functions, start, 1), climb(functions, start, 100)
    for draw in range(5):
        best = np.where(near[0, 2, 4], values[draw], -np.inf).argmax()
        assert once[draw].tolist() == ALL[best].tolist()
        reached = values[draw][(end[draw] == ALL).all(axis=1)][0]
        assert reached == np.where(near[tuple(end[draw].tolist())], values[draw], -np.inf).max()
    assert start.tolist() == [[0, 2, 4]] * 5


@pytest.mark.parametrize("what", ["arms", "pairs"])
def test_it_learns_whether_arms_or_pairs_decide(what: str) -> None:
    """After 16,000 plays of all 20 subsets."""
    rng = np.random.default_rng(1)
    weights = rng.standard_normal(N) if what == "arms" else 2 * rng.choice([-1.0, 1.0], (N, N))
    policy = PairwiseThompson(N, K, seed=1)
    for _ in range(8):
        for subset in ALL.tolist():
            odds = weights[subset].sum() if what == "arms" else np.triu(weights[np.ix_(subset, subset)], 1).sum()
            policy.tell_total(subset, 100, float(rng.binomial(100, expit(odds))))
    scales = policy.state()["scales"]
    other = "pairs" if what == "arms" else "arms"
    assert scales[what] > 2 * scales[other]


@pytest.mark.slow
def test_it_finds_a_pair_that_no_arm_shows() -> None:
    """In all of 4 runs of 1,000 plays: only arms 2 and 5 together earn more."""
    found = 0
    for seed in range(4):
        policy, rng = PairwiseThompson(8, 3, seed=seed), np.random.default_rng(seed)
        while policy.plays < 1_000:
            plan = policy.plan()
            both = (plan.subsets == 2).any(axis=1) & (plan.subsets == 5).any(axis=1)
            total = rng.binomial(plan.times, np.where(both, 0.9, 0.3)).astype(float)
            policy.tell_plan(Tally(plan.times.copy(), total, total))
        found += {2, 5} <= set(policy.best())
    assert found == 4


def test_it_learns_from_unplanned_plays() -> None:
    policy = PairwiseThompson(6, 2, seed=1)
    policy.tell_plan(Tally.of([[0.2] * n for _, n in policy.plan()]))
    for _ in range(30):
        policy.tell((1, 4), 0.9)
    assert policy.best() == (1, 4)


def test_the_subsets_that_were_played_least_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairwise_thompson, "MOST_SUBSETS", 4)
    policy = PairwiseThompson(6, 2, seed=1)
    for subset, count in {(0, 1): 50, (2, 3): 30, (4, 5): 60, (0, 2): 70, (1, 3): 80}.items():
        policy.tell_total(subset, count, 10.0)  # more than a plan, which ends with it
    state = policy.state()
    assert np.reshape(state["subsets"], (4, 2)).tolist() == [[0, 1], [4, 5], [0, 2], [1, 3]]
    assert (sum(state["count"]), sum(state["seen"])) == (260, 2 * 290)
    assert kofn.restore(json.loads(json.dumps(kofn.save(policy)))).state() == state


@pytest.mark.slow
def test_a_row_gets_at_most_the_plays_that_double_its_information() -> None:
    """The rest of a long plan goes to the incumbent; variances are those of explicit weights."""
    subsets, rows = some_rows(5)
    posterior = PairPosterior(rows, SCALES, np.zeros(len(subsets)))
    design = features(subsets, SCALES) / np.sqrt(posterior.noise)[:, None]
    smooth = features(ALL, SCALES)
    smooth[:, -len(ALL) :] = 0.0
    apart = smooth - smooth[3]
    exact = (apart @ np.linalg.inv(design.T @ design + np.eye(design.shape[1])) * apart).sum(axis=1)
    found = posterior.apart(indicator(ALL), indicator(ALL)[3])
    assert found == pytest.approx(exact, abs=1e-8)
    policy, rng = PairwiseThompson(N, K, seed=1), np.random.default_rng(1)
    while policy.plays < 5_000:
        plan = policy.plan()
        total = rng.binomial(plan.times, 0.2 + 0.1 * plan.subsets.mean(axis=1)).astype(float)
        policy.tell_plan(Tally(plan.times.copy(), total, total))
    of, x = policy._posterior, indicator(policy.plan().subsets)
    assert of is not None
    p = expit(of.mean().of(x)[0])
    most = np.ceil(1 / np.maximum(of.apart(x, indicator([policy.best()])[0]) * p * (1 - p), 1e-12))
    assert (policy.plan().times <= most).all()
    assert policy.plan().plays == policy.plays // 10


def test_too_many_arms_are_refused() -> None:
    with pytest.raises(BadInput, match="give at most 200 arms, not 201, or use a policy with linear memory"):
        PairwiseThompson(201, 5)


@for_each("n_arms, k", [(2, 1), (5, 1), (5, 4), (200, 100)])
def test_all_sizes_play(n_arms: int, k: int) -> None:
    policy = PairwiseThompson(n_arms, k, seed=1)
    for _ in range(5):
        plan = policy.plan()
        assert plan.subsets.shape[1] == k
        policy.tell_plan(Tally.of([[0.0, 1.0] * (n // 2) + [1.0] * (n % 2) for _, n in plan]))


@for_each(
    "key, value",
    [
        ("subsets", [0, 1]),
        ("subsets", [1, 0, 0, 2, 1, 2]),
        ("subsets", [0, 1, 0, 1, 1, 2]),
        ("count", [1, 0, 1]),
        ("count", [9, 9, 9]),
        ("total", [1.0, 5.0, 0.0]),
        ("expanded", [0.0]),
    ],
)
def test_a_state_that_no_plays_make_is_refused(key: str, value: Any) -> None:
    policy = PairwiseThompson(4, 2, seed=1)
    for subset in ((0, 1), (0, 2), (1, 2)):
        policy.tell_total(subset, 1, 1.0)
    policy.tell_plan(Tally.of([[1.0] * n for _, n in policy.plan()]))
    before = policy.state()
    with pytest.raises(BadRecord):
        policy.load({**before, key: value})
    assert policy.state() == before
