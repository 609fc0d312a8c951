"""The posterior against plain steps on the log density; how its incumbent moves; what it draws and keeps."""

import json
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from kofn import Thompson
from kofn.core import BadInput
from kofn.policies.thompson.constants import Constants
from kofn.policies.thompson.posterior import Posterior
from kofn.policies.thompson.sampling import CELLS, FEWEST, drawn_effects, draws_that_swap, most_draws
from tests.cases import for_each

C = Constants(contenders=64)  # with 256, problems with more arms than that would take far longer

RelativeRows = tuple[Any, Any, Any]
"""Subsets, mean rewards, weights."""


def laplace(mean: Any, covariance: Any, x: Any, rewards: Any, weights: Any) -> tuple[Any, Any]:
    """Mode and curvature of prior times likelihood, by Newton steps that never go down.

    Parameters are mean + root @ z with z standard normal, so that a covariance may be singular; what rows tell is added
    to the precision of z. No gain and no block anywhere.
    """
    size, axes = np.linalg.eigh(covariance)
    root = axes * np.sqrt(np.maximum(size, 0.0))
    a, z = x @ root, np.zeros(len(size))

    def height(z: Any) -> float:
        odds = x @ mean + a @ z
        return float(weights @ (rewards * odds - np.logaddexp(0.0, odds)) - z @ z / 2)

    for _ in range(200):
        p = expit(x @ mean + a @ z)
        step = np.linalg.solve(
            np.eye(len(z)) + a.T @ (a * (weights * p * (1 - p))[:, None]), a.T @ (weights * (rewards - p)) - z
        )
        while np.abs(step).max() > 1e-9 and height(z + step) < height(z):
            step = step / 2
        z = z + step
    p = expit(x @ mean + a @ z)
    precision = np.eye(len(z)) + a.T @ (a * (weights * p * (1 - p))[:, None])
    return mean + root @ z, root @ np.linalg.inv(precision) @ root.T


def told_at_random(rng: np.random.Generator, n_arms: int, k: int, rows: int, near: Any = None) -> RelativeRows:
    """Rows of any subsets, or of the subset `near` with some arms exchanged, a mean reward and a weight for each."""
    subsets = []
    for _ in range(rows):
        start = rng.permutation(n_arms)[:k] if near is None or not len(near) else rng.permutation(near)
        out = rng.permutation(np.setdiff1d(np.arange(n_arms), start))
        swaps = int(min(rng.choice([0, 1, 1, 1, 2, 3]), k, len(out)))
        subsets.append(sorted([*start[swaps:], *out[:swaps]]))
    rewards = rng.beta(0.5, 0.5, rows) * rng.choice([0.0, 1.0, 1.0, 1.0], rows)
    return np.array(subsets), rewards, rng.integers(1, 40, rows) / rng.choice([1.0, 0.2])


def start(n_arms: int, k: int, value: float = 0.5, variance: float = 1.0) -> Posterior:
    return Posterior.at_start(n_arms, k, value, variance, C)


def learn(posterior: Posterior, subsets: Any, rewards: Any, weights: Any, constants: Constants = C) -> None:
    posterior.learn(subsets, posterior.predict(subsets), rewards, weights, constants)


def learned(n_arms: int = 12, k: int = 3, plans: int = 2, seed: int = 0) -> Posterior:
    rng = np.random.default_rng(seed)
    posterior = start(n_arms, k)
    for _ in range(plans):
        learn(posterior, *told_at_random(rng, n_arms, k, 2 * n_arms))
    return posterior


def dense(posterior: Posterior) -> tuple[Any, Any]:
    """The means of the level and all effects, and their covariances, which are mostly zeros for many arms."""
    n_arms = len(posterior.mean)
    covariance = np.diag(np.concatenate([[0.0], posterior.variance]))
    together = np.concatenate([[0], 1 + posterior.contenders])
    covariance[np.ix_(together, together)] = posterior.covariance
    assert covariance.shape == (n_arms + 1, n_arms + 1)
    return np.concatenate([[posterior.level], posterior.mean]), covariance


def design(posterior: Posterior, subsets: Any) -> Any:
    x = np.zeros((len(subsets), len(posterior.mean) + 1))
    x[:, 0] = 1.0
    for row, subset in enumerate(subsets.tolist()):
        x[row, [1 + arm for arm in set(subset) - set(posterior.incumbent.tolist())]] = 1.0
        x[row, [1 + arm for arm in set(posterior.incumbent.tolist()) - set(subset)]] = -1.0
    return x


# The update.


@for_each("n_arms, k", [(2, 1), (5, 2), (12, 3), (12, 11), (64, 5), (65, 1), (80, 3), (99, 60)])
def test_predictions_are_those_of_the_dense_matrices(n_arms: int, k: int) -> None:
    posterior, rng = learned(n_arms, k), np.random.default_rng(1)
    subsets = told_at_random(rng, n_arms, k, 30, posterior.incumbent)[0]
    mean, covariance = dense(posterior)
    x = design(posterior, subsets)
    predicted = posterior.predict(subsets)
    assert predicted.odds == pytest.approx(x @ mean, abs=1e-9)
    assert predicted.spread == pytest.approx(np.einsum("ra,ab,rb->r", x, covariance, x), rel=1e-9)
    x[:, 0] = 0.0
    alone = np.einsum("ra,ab,rb->r", x, covariance, x)
    assert predicted.apart == pytest.approx(alone, rel=1e-9, abs=1e-12)


@for_each("n_arms, k", [(2, 1), (5, 2), (12, 3), (12, 11), (64, 5)])
def test_few_arms_are_conditioned_exactly(n_arms: int, k: int) -> None:
    """The mode and the curvature there, as plain steps on the log density find them; steps end at 0.01."""
    posterior, rng = learned(n_arms, k), np.random.default_rng(n_arms)
    subsets, rewards, weights = told_at_random(rng, n_arms, k, 40, posterior.incumbent)
    x = design(posterior, subsets)
    mean, covariance = laplace(*dense(posterior), x, rewards, weights)
    posterior._learn_contenders(x, posterior.predict(subsets).odds, rewards, weights)
    assert x @ dense(posterior)[0] == pytest.approx(x @ mean, abs=1e-3)
    assert x @ posterior.covariance @ x.T == pytest.approx(x @ covariance @ x.T, rel=1e-2, abs=1e-4)


@pytest.mark.parametrize(("n_arms", "k"), [(90, 1), (80, 3), (99, 60)])
def test_of_many_arms_rows_with_others_teach_of_these_alone(n_arms: int, k: int) -> None:
    posterior, rng = learned(n_arms, k), np.random.default_rng(n_arms)
    subsets, rewards, weights = told_at_random(rng, n_arms, k, 40, posterior.incumbent)
    x, others = design(posterior, subsets), np.setdiff1d(np.arange(n_arms), posterior.contenders)
    mixed = (x[:, 1 + others] != 0).any(axis=1)
    before = dense(posterior)
    mean, covariance = laplace(*before, x[mixed], rewards[mixed], weights[mixed])
    part = np.flatnonzero(mixed)
    posterior._learn_arms(posterior.relative(subsets).only(part), rewards[part], weights[part])
    assert posterior.mean[others] == pytest.approx(mean[1 + others], abs=1e-3)
    assert posterior.variance[others] == pytest.approx(np.diag(covariance)[1 + others], rel=1e-2)
    assert (posterior.mean[posterior.contenders] == before[0][1 + posterior.contenders]).all()
    assert posterior.level == before[0][0]


def test_only_differences_of_effects_matter() -> None:
    """A shift of all effects, known or unknown, changes nothing that is predicted or learned."""
    rng = np.random.default_rng(4)
    posterior, shifted = start(12, 3), start(12, 3)
    plans = [told_at_random(rng, 12, 3, 20) for _ in range(3)]
    for each in (posterior, shifted):
        learn(each, *plans[0])
    shifted.mean = shifted.mean + 7.0
    shifted.covariance[1:, 1:] += 3.0
    for plan in plans[1:]:
        one, two = posterior.predict(plan[0]), shifted.predict(plan[0])
        assert one.odds == pytest.approx(two.odds, rel=1e-6)
        assert one.spread == pytest.approx(two.spread, rel=1e-6)
        for each in (posterior, shifted):
            learn(each, *plan)
    assert posterior.mean - posterior.mean[0] == pytest.approx(shifted.mean - shifted.mean[0], abs=1e-6)
    assert posterior.covariance == pytest.approx(shifted.covariance, abs=1e-6)  # centred: the unknown shift is gone


def test_widening_stops_at_the_prior() -> None:
    posterior = learned(80)
    posterior.prior_variance = 1.0
    known, strangers = posterior.contenders[:5], np.setdiff1d(np.arange(80), posterior.contenders)[:5]
    posterior.variance[strangers] = [0.01, 0.2, 0.25, 0.4, 1.5]
    scale = np.ones(len(posterior.covariance))
    scale[1:6] = np.sqrt([0.01, 0.2, 0.25, 0.4, 1.5] / posterior.variance[known])
    posterior.covariance = posterior.covariance * np.outer(scale, scale)
    posterior.variance[known] = [0.01, 0.2, 0.25, 0.4, 1.5]
    block = posterior.covariance.copy()
    posterior.widen(4.0)
    for arms in (known, strangers):
        assert posterior.variance[arms].tolist() == pytest.approx([0.04, 0.8, 1.0, 1.0, 1.5])
    assert posterior.covariance[0, 0] == pytest.approx(4.0 * block[0, 0])
    before, after = np.sqrt(block.diagonal()), np.sqrt(posterior.covariance.diagonal())
    assert posterior.covariance / np.outer(after, after) == pytest.approx(block / np.outer(before, before))


def test_another_range_changes_no_reward_at_the_level() -> None:
    """What one swap earns more, to first order, and its standard deviation are the same in the user's units."""
    posterior = learned()
    posterior.level = 0.0
    before = posterior.level, posterior.mean.copy(), posterior.variance.copy()
    largest = posterior.rescale((0.2, 0.7), (0.1, 1.1))
    then, now = expit(before[0]), expit(posterior.level)
    assert 0.1 + 1.0 * now == pytest.approx(0.2 + 0.5 * then)
    slopes = 0.5 * then * (1 - then), 1.0 * now * (1 - now)
    assert posterior.mean * slopes[1] == pytest.approx(before[1] * slopes[0])
    assert np.sqrt(posterior.variance) * slopes[1] == pytest.approx(np.sqrt(before[2]) * slopes[0])
    assert largest == pytest.approx(now * (1 - now) / (then * (1 - then)))


def test_effects_do_not_shrink_more_than_the_range_grows() -> None:
    """At the top of the old range their slope was next to nothing; in the new one they would seem to be nothing."""
    posterior = learned()
    posterior.level = 6.0
    mean, prior = posterior.mean.copy(), posterior.prior_variance
    posterior.rescale((0.0, 0.5), (0.0, 1.0))
    assert posterior.mean == pytest.approx(mean / 2)
    assert posterior.prior_variance == pytest.approx(prior / 4)


# The incumbent.


def held(effects: dict[int, float]) -> Posterior:
    """Six arms, K = 2, the incumbent (0, 1), and these effects; all is known well."""
    posterior = learned(6, 2)
    posterior.change_incumbent(np.array([0, 1]))
    posterior.level, posterior.highest_level, posterior.mean = 0.0, 9.0, np.zeros(6)
    posterior.covariance = 1e-4 * np.eye(7)
    posterior.variance = np.full(6, 1e-4)
    for arm, effect in effects.items():
        posterior.mean[arm] = effect
    return posterior


@for_each(
    "effects, played, incumbent",
    [
        ({4: 1.0, 5: 2.0}, [[0, 1]], [0, 1]),  # better ones that nobody has played
        ({4: 1.0, 5: 2.0}, [[0, 4]], [0, 4]),
        ({4: 1.0, 5: 2.0}, [[0, 4], [0, 5]], [0, 5]),  # both replace the same arm
        ({4: 1.0, 5: 2.0}, [[0, 4], [1, 5]], [4, 5]),  # each pays alone, so both pay together
        ({4: 1.0, 5: 2.0}, [[4, 5]], [4, 5]),  # several at once were played
        ({4: -1.0, 5: -2.0}, [[0, 4], [1, 5]], [0, 1]),
    ],
)
def test_the_incumbent_moves_to_what_was_played(
    effects: dict[int, float], played: list[list[int]], incumbent: list[int]
) -> None:
    posterior = held(effects)
    subsets = np.array(played)
    posterior.move(subsets, posterior.predict(subsets).odds, None)
    assert posterior.incumbent.tolist() == incumbent
    worth = posterior.predict(np.array([incumbent])).odds[0]
    assert posterior.level == pytest.approx(worth)
    assert worth == pytest.approx(sum(effects.get(arm, 0.0) for arm in incumbent))


def test_a_gain_that_surprises_brings_doubt_and_a_loss_only_if_arms_change() -> None:
    """The row is moved by 1, less two of its standard deviations: that much is added to all others' deviation."""
    cases = ((1.0, False, True), (0.0, False, False), (-1.0, False, False), (-1.0, True, True), (0.0, True, False))
    for moved, arms_change, surprised in cases:
        posterior = held({})
        predicted, row = posterior.predict(np.array([[0, 1]])), np.array([[0, 1]])
        reward, weight = np.array([float(expit(moved))]), np.array([1e9])
        posterior.learn(row, predicted, reward, weight, C, arms_change=arms_change)
        added = (1.0 - C.surprise * math.sqrt(predicted.spread[0])) ** 2 if surprised else 0.0
        expected = np.minimum(1.0, 1e-4 * 5 / 6 + added)  # centred: of six, one is not free
        assert posterior.variance == pytest.approx(np.full(6, expected), rel=1e-3)
        assert posterior.covariance.diagonal()[1:] == pytest.approx(posterior.variance)


def test_a_level_that_climbs_widens_and_one_that_falls_does_not() -> None:
    for climb in (1.0, -1.0):
        posterior = learned(seed=5)
        posterior.prior_variance = 1e9
        best, highest = posterior.incumbent[None, :], posterior.level
        posterior.highest_level = highest
        variance = posterior.variance.copy()
        trusting = Constants(surprise=1e9)
        learn(posterior, best, expit(np.array([highest + climb])), np.array([1e6]), trusting)
        factor = math.exp(C.climb * (posterior.level - highest)) if climb > 0 else 1.0
        assert posterior.level == pytest.approx(highest + climb, abs=0.05)
        assert posterior.variance.max() <= factor * variance.max() * 1.0001
        assert posterior.highest_level == max(highest, posterior.level)
        assert (factor > 2.5) == (climb > 0)


def test_arms_that_nobody_looks_at_stay_as_unknown_as_they_were() -> None:
    """However often the contenders change: what is not played grows neither more nor less certain."""
    rng, posterior = np.random.default_rng(2), learned(300)
    idle = np.setdiff1d(np.arange(300), posterior.incumbent)[:50]
    posterior.mean[idle] = -9.0
    posterior._choose_contenders(C, None)  # of which none is idle
    before = posterior.variance[idle]
    posterior.highest_level = 100.0
    for _ in range(20):
        busy = np.setdiff1d(rng.permutation(300), idle)[:30]
        rows = [np.sort(np.append(posterior.incumbent[1:], arm)) for arm in np.setdiff1d(busy, posterior.incumbent)]
        weights = np.full(len(rows), 5.0)
        learn(posterior, np.array(rows), rng.random(len(rows)), weights, Constants(surprise=1e9, reach=1e9))
    assert posterior.variance[idle] == pytest.approx(before)


# Draws.


def drawn(posterior: Posterior, draws: int, dispersion: float) -> Any:
    """How often each arm is in a draw, one by one: swap the weakest for the strongest while better and, but for the
    first, free. Half of the draws are narrower."""
    n_arms, k = len(posterior.mean), len(posterior.incumbent)
    _, covariance = dense(posterior)
    effects = np.random.default_rng(2).multivariate_normal(np.zeros(n_arms), covariance[1:, 1:], draws, method="eigh")
    effects[: draws // 2] *= C.narrow
    effects += posterior.mean
    inside = np.isin(np.arange(n_arms), posterior.incumbent)
    noise = math.sqrt(dispersion / (expit(posterior.level) * expit(-posterior.level)))
    found = np.zeros(n_arms)
    for draw in effects:
        leave = sorted(np.flatnonzero(inside), key=lambda arm: draw[arm])
        come = sorted(np.flatnonzero(~inside), key=lambda arm: -draw[arm])
        chosen, lost = inside.copy(), 0.0
        for number, (out, into) in enumerate(zip(leave[: C.swaps], come[: C.swaps], strict=False)):
            lost += max(0.0, posterior.mean[out] - posterior.mean[into]) if number else 0.0
            if draw[into] <= draw[out] or (number and lost >= C.free * noise):
                break
            chosen[out], chosen[into] = False, True
        found += chosen
    assert found.sum() == k * draws
    return found


@for_each("n_arms, k, dispersion", [(6, 2, 1.0), (70, 3, 1e-9), (70, 3, 100.0), (24, 20, 1e3)])
def test_draws_swap_the_weakest_for_the_strongest(n_arms: int, k: int, dispersion: float) -> None:
    """Each arm as often as draws of all effects do: within 5 standard errors. Much noise makes many swaps free."""
    posterior, draws = learned(n_arms, k, plans=2, seed=3), 4_000
    rows = posterior.incumbent[None, :].repeat(draws, axis=0)
    better, swapped = draws_that_swap(posterior, draws, np.random.default_rng(1), C, dispersion)
    rows[better] = swapped
    ours, theirs = np.bincount(rows.ravel(), minlength=n_arms), drawn(posterior, draws, dispersion)
    assert (np.abs(ours - theirs) <= 5 * np.sqrt(np.minimum(ours + theirs, 2 * draws - ours - theirs)) + 1).all()
    changed = (~np.isin(rows, posterior.incumbent)).sum(axis=1)
    assert (changed[better] > 0).all()
    assert changed.astype(bool).sum() == len(better)
    assert dispersion < 1 or changed.max() > 1
    assert all(len(set(row)) == k for row in rows[:100].tolist())
    assert (np.diff(rows, axis=1) > 0).all()


@for_each("narrow", [0.5, 1.0])
@for_each("n_arms, draws", [(12, 20_000), (80, 10_001)])
def test_half_of_the_draws_are_narrower(n_arms: int, draws: int, narrow: float) -> None:
    """Their covariance is that of all effects times (1 + narrow^2) / 2; each is near its own length."""
    posterior = learned(n_arms)
    effects = drawn_effects(posterior, draws, np.random.default_rng(1), narrow)
    away, first = effects - posterior.mean[:, None], (draws + 1) // 2
    assert effects.shape == (n_arms, draws)
    np.testing.assert_allclose(away[:, first:], -away[:, : draws - first], atol=1e-12)  # antithetic
    z = np.linalg.solve(np.linalg.cholesky(dense(posterior)[1][1:, 1:] + 1e-12 * np.eye(n_arms)), away[:, :first])
    if n_arms <= C.contenders:
        z = z[:-1]  # effects are centred: one direction has no variance
    error = 5 / math.sqrt(first)
    expected = (1 + narrow**2) / 2
    assert np.abs(z @ z.T / first - expected * np.eye(len(z))).max() < 2 * error
    lengths = (z**2).mean(axis=0)  # of many arms: near 1, or near narrow^2
    assert np.count_nonzero(lengths < (1 + narrow**2) / 2) / first == pytest.approx(0.5, abs=0.1)


@for_each("n_arms, draws", [(2, 256), (8_192, 256), (8_193, 255), (10**5, 20), (10**6, 16), (10**7, 16)])
def test_very_many_arms_have_fewer_draws_in_a_plan(n_arms: int, draws: int) -> None:
    assert most_draws(256, n_arms) == draws
    assert draws == FEWEST or draws * n_arms <= CELLS
    assert most_draws(7, n_arms) == 7  # a shorter plan has no more draws than plays


def test_draws_of_many_arms_are_bounded_in_memory() -> None:
    """The draws are at most 34 MB, however many arms; up to four arrays of that size exist at once."""
    posterior, n_arms = start(30_000, 10), 30_000
    rng = np.random.default_rng(1)
    subsets = np.sort(rng.permutation(n_arms).reshape(-1, 10), axis=1)
    learn(posterior, subsets, rng.random(len(subsets)), np.ones(len(subsets)))
    tracemalloc.start()
    better, rows = draws_that_swap(posterior, most_draws(256, n_arms), rng, C)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows.shape == (len(better), 10)
    assert peak < 4 * 8 * CELLS


# The prior.


@for_each("k", [1, 4, 20])
def test_the_prior_of_a_subset_has_a_bounded_spread(k: int) -> None:
    """The effects of K arms together deviate by at most `spread`; a smaller variance stays."""
    wide, small = (Posterior.at_start(30, k, 0.3, variance, C) for variance in (50.0, 0.01))
    assert math.sqrt(k * wide.prior_variance) == pytest.approx(C.spread)
    assert wide.variance.tolist() == [wide.prior_variance] * 30
    assert wide.covariance.diagonal() == pytest.approx([k * wide.prior_variance, *[wide.prior_variance] * 30])
    assert small.prior_variance == 0.01


def test_a_raised_prior_widens_all_variances_alike() -> None:
    posterior = learned(80)
    before, variance, covariance = posterior.prior_variance, posterior.variance.copy(), posterior.covariance.copy()
    posterior.raise_prior(before / 2)
    assert posterior.prior_variance == before
    posterior.raise_prior(4 * before)
    assert posterior.prior_variance == 4 * before
    assert posterior.variance == pytest.approx(4 * variance)
    assert posterior.covariance == pytest.approx(4 * covariance)


def test_an_incumbent_far_ahead_raises_the_prior() -> None:
    """Its weakest arm is at most `reach` standard deviations of the prior ahead of the average arm."""
    posterior = held({0: 20.0, 1: 30.0})
    row = np.array([[0, 1]])
    learn(posterior, row, expit(np.array([0.0])), np.array([1.0]))
    ahead = posterior.mean[[0, 1]].min() - posterior.mean.mean()
    assert ahead > 10
    assert math.sqrt(posterior.prior_variance) == pytest.approx(ahead / C.reach)


# Arms that come and go.


@pytest.mark.parametrize("n_arms", [12, 80])
def test_kept_arms_keep_their_differences(n_arms: int) -> None:
    posterior, old = learned(n_arms), learned(n_arms)
    keep = np.setdiff1d(np.arange(n_arms), [1, old.incumbent[0], 7])
    posterior.change_arms(keep, posterior.start(2, keep, None), C)
    assert posterior.mean.tolist() == [*old.mean[keep].tolist(), 0.0, 0.0]
    assert posterior.variance.tolist() == [*old.variance[keep].tolist(), *[old.prior_variance] * 2]
    subsets = np.array([[0, 1, 2], [3, 4, 5]])
    before, after = old.predict(keep[subsets]), posterior.predict(subsets)
    assert after.odds == pytest.approx(before.odds)
    if n_arms <= C.contenders:  # else the level forgets what it shares with arms that have no covariances
        assert after.spread == pytest.approx(before.spread)


def test_an_incumbent_of_kept_arms_stays() -> None:
    posterior = learned()
    incumbent = posterior.incumbent.copy()
    gone = np.setdiff1d(np.arange(12), incumbent)[0]
    keep = np.setdiff1d(np.arange(12), [gone])
    posterior.change_arms(keep, posterior.start(1, keep, None), C)
    assert keep[posterior.incumbent].tolist() == incumbent.tolist()


@for_each("before, keep, new", [(60, 60, 20), (80, 40, 4), (80, 40, 60), (12, 4, 0), (12, 3, 1)])
def test_the_number_of_contenders_follows_the_number_of_arms(before: int, keep: int, new: int) -> None:
    posterior = learned(before, 3)
    kept = np.arange(before - keep, before)
    posterior.change_arms(kept, posterior.start(new, kept, None), C)
    assert len(posterior.mean) == keep + new
    assert len(posterior.contenders) == min(keep + new, C.contenders)
    assert posterior.covariance.shape == (len(posterior.contenders) + 1,) * 2
    assert posterior.covariance.diagonal()[1:] == pytest.approx(posterior.variance[posterior.contenders])
    Posterior.load(json.loads(json.dumps(posterior.state())), Thompson(keep + new, 3))
    learn(posterior, *told_at_random(np.random.default_rng(1), keep + new, 3, 20))


# To keep.


@for_each("n_arms", [12, 80])
@for_each("plans", [0, 1, 2])
def test_beliefs_are_kept_to_the_last_digit(n_arms: int, plans: int) -> None:
    """With more arms than contenders there are none after the first plan: there was no boundary before it."""
    posterior = learned(n_arms, plans=plans)
    again = Posterior.load(json.loads(json.dumps(posterior.state())), Thompson(n_arms, 3))
    assert again.state() == posterior.state()
    assert np.array_equal(again.covariance, posterior.covariance)


@for_each(
    "name, value",
    [
        ("incumbent", [0, 1]),
        ("incumbent", [0, 1, 12]),
        ("incumbent", [0, 1, 1]),
        ("contenders", []),
        ("contenders", list(range(1, 12))),
        ("contenders", [*range(11), 12]),
        ("contenders", [1, 0, *range(2, 12)]),
        ("mean", [0.0] * 11),
        ("mean", [math.nan] * 12),
        ("variance", [0.0] * 12),
        ("variance", [1.0] * 13),
        ("prior_variance", 0.0),
        ("prior_variance", math.inf),
        ("level", None),
        ("level", [1.0]),
        ("highest_level", "high"),
        ("covariance", [1.0] * 90),
        ("covariance", [1.0, *[0.0] * 90]),
        ("covariance", [1.0, 5.0, *[1.0] * 89]),
    ],
)
def test_what_are_no_beliefs_is_refused(name: str, value: Any) -> None:
    state = learned().state()
    with pytest.raises((BadInput, TypeError)):
        Posterior.load({**state, name: value}, Thompson(12, 3))
