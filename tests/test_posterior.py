"""The posterior against a dense posterior over all arms, in plain steps on the log density; what they draw and keep."""

import json
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, logit, ndtr, rel_entr

from kofn import Thompson
from kofn.core import BadInput, Subset
from kofn.policies.thompson.posterior import INCUMBENT_CONTENDERS, MAX_CONTENDERS, Posterior, _parts
from kofn.policies.thompson.sampling import distinct_integers, draw_swaps, spread_factor

Rows = tuple[Any, Any, Any]
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


def top(values: Any, k: int) -> set[int]:
    return set(sorted(range(len(values)), key=lambda arm: -values[arm])[:k])


class Dense:
    """All covariances of N arms, and of what a subset of nobody is worth: odds are that plus its arms' effects.

    There is no incumbent in it but for the doubt when its level climbs.
    """

    def __init__(self, n_arms: int, k: int, value: float, variance: float) -> None:
        self.n_arms, self.k, self.prior = n_arms, k, variance
        self.mean = np.array([logit(value)] + [0.0] * n_arms)
        self.covariance = np.diag([k * variance] + [variance] * n_arms)
        self.incumbent: set[int] = set()
        self.highest = float(logit(value))

    def learn(self, subsets: Any, rewards: Any, weights: Any) -> None:
        for start in range(0, len(subsets), 256):
            part = slice(start, start + 256)
            x = np.array([[1.0] + [float(arm in row) for arm in range(self.n_arms)] for row in subsets[part].tolist()])
            self.mean, self.covariance = laplace(self.mean, self.covariance, x, rewards[part], weights[part])
        self.incumbent = top(self.mean[1:], self.k)
        transform = self.level_and_effects()
        level, spread = float(transform[0] @ self.mean), transform @ self.covariance @ transform.T
        if level > self.highest:
            factor = math.exp(0.5 * (level - self.highest))
            grow = [math.sqrt(factor)]
            grow += [math.sqrt(min(factor, max(1.0, self.prior / v))) for v in np.diag(spread)[1:]]
            back = np.eye(self.n_arms + 1)
            back[0, [1 + arm for arm in self.incumbent]] = -1.0
            self.mean = back @ transform @ self.mean
            self.covariance = back @ (spread * np.outer(grow, grow)) @ back.T
            self.highest = level

    def level_and_effects(self) -> Any:
        """What makes, of nobody's worth and the effects, the incumbent's worth and effects about their average."""
        transform = np.eye(self.n_arms + 1)
        transform[0, [1 + arm for arm in self.incumbent]] = 1.0
        transform[1:, 1:] -= 1 / self.n_arms
        return transform


def differences(n_arms: int) -> Any:
    """Rows that leave the level as it is, and measure effects from that of arm 0."""
    rows = np.eye(n_arms + 1)
    rows[1:, 1] -= 1.0
    return rows[[0, *range(2, n_arms + 1)]]


def told_at_random(rng: np.random.Generator, n_arms: int, k: int, rows: int, near: Any = None) -> Rows:
    """Rows of any subsets, or of the subset `near` with some arms exchanged, a mean reward and a weight for each."""
    subsets = []
    for _ in range(rows):
        start = rng.permutation(n_arms)[:k] if near is None or not len(near) else rng.permutation(near)
        out = rng.permutation(np.setdiff1d(np.arange(n_arms), start))
        swaps = int(min(rng.choice([0, 1, 1, 1, 2, 3]), k, len(out)))
        subsets.append(sorted([*start[swaps:], *out[:swaps]]))
    rewards = rng.beta(0.5, 0.5, rows) * rng.choice([0.0, 1.0, 1.0, 1.0], rows)
    return np.array(subsets), rewards, rng.integers(1, 40, rows) / rng.choice([1.0, 0.2])


@pytest.mark.parametrize(("n_arms", "k"), [(2, 1), (5, 2), (12, 3), (12, 11), (64, 5)])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_equal_to_the_dense_posterior_of_few_arms(n_arms: int, k: int, seed: int) -> None:
    rng = np.random.default_rng([seed, n_arms])
    posterior, dense = Posterior.at_start(n_arms, k, 0.4, 0.7), Dense(n_arms, k, 0.4, 0.7)
    for rows in (8, 30, 1, 300, 20):  # of which one is more than a block
        plan = told_at_random(rng, n_arms, k, rows, None if rng.random() < 0.3 else posterior.incumbent)
        posterior.learn(*plan)
        dense.learn(*plan)
        assert set(posterior.incumbent.tolist()) == dense.incumbent
        transform, apart = dense.level_and_effects(), differences(n_arms)
        ours = np.concatenate([[posterior.level], posterior.mean])
        assert apart @ ours == pytest.approx(apart @ transform @ dense.mean, abs=1e-4)
        theirs = apart @ transform @ dense.covariance @ transform.T @ apart.T
        assert apart @ posterior.covariance @ apart.T == pytest.approx(theirs, rel=1e-4, abs=1e-6)
        assert posterior.highest_level == pytest.approx(dense.highest, abs=1e-4)
        value, doubt = posterior.predict(plan[0])
        x = np.array([[1.0] + [float(arm in row) for arm in range(n_arms)] for row in plan[0].tolist()])
        assert value == pytest.approx(expit(x @ dense.mean), abs=1e-4)
        spread = np.einsum("ra,ab,rb->r", x, dense.covariance, x)
        assert doubt == pytest.approx(spread * (value * (1 - value)) ** 2, rel=1e-3, abs=1e-7)


def test_only_differences_of_effects_matter() -> None:
    """A shift of all effects, known or unknown, changes nothing that is predicted or learned."""
    rng = np.random.default_rng(4)
    posterior, shifted = (Posterior.at_start(12, 3, 0.5, 1.0) for _ in range(2))
    plans = [told_at_random(rng, 12, 3, 20) for _ in range(3)]
    for each in (posterior, shifted):
        each.learn(*plans[0])
    shifted.mean = shifted.mean + 7.0
    shifted.covariance[1:, 1:] += 3.0
    for plan in plans[1:]:
        for one, two in zip(posterior.predict(plan[0]), shifted.predict(plan[0]), strict=True):
            assert one == pytest.approx(two, rel=1e-6)
        for each in (posterior, shifted):
            each.learn(*plan)
    assert posterior.mean - posterior.mean[0] == pytest.approx(shifted.mean - shifted.mean[0], abs=1e-6)
    assert posterior.covariance == pytest.approx(shifted.covariance, abs=1e-6)  # centred: the unknown shift is gone


class Stated:
    """The approximation for many arms as it is stated, on a dense covariance that is mostly zeros."""

    def __init__(self, n_arms: int, k: int, contenders_expected: int, value: float, variance: float) -> None:
        self.n_arms, self.k, self.contenders_expected, self.prior = n_arms, k, contenders_expected, variance
        self.mean = np.array([logit(value)] + [0.0] * n_arms)
        self.covariance = np.diag([k * variance] + [variance] * n_arms)
        self.incumbent: set[int] = set()
        self.contenders: list[int] = []
        self.highest = float(logit(value))

    def keep(self, covariance: Any) -> Any:
        """Variances, and the covariances of the level and the contenders only."""
        together = [0] + [1 + arm for arm in self.contenders]
        kept = np.diag(np.diag(covariance))
        kept[np.ix_(together, together)] = covariance[np.ix_(together, together)]
        return kept

    def contend(self) -> None:
        effects = self.mean[1:]
        inside, outside = sorted(self.incumbent), [arm for arm in range(self.n_arms) if arm not in self.incumbent]
        boundary = (min(effects[inside]) + max(effects[outside])) / 2
        far = [
            abs(effects[arm] - boundary) / math.sqrt(self.covariance[1 + arm, 1 + arm]) for arm in range(self.n_arms)
        ]
        surely = sorted(inside, key=lambda arm: far[arm])[:INCUMBENT_CONTENDERS]
        rest = sorted(set(range(self.n_arms)) - set(surely), key=lambda arm: far[arm])
        self.contenders = sorted((surely + rest)[: self.contenders_expected])
        self.covariance = self.keep(self.covariance)

    def row(self, subset: list[int]) -> Any:
        x = np.zeros(self.n_arms + 1)
        x[0] = 1.0
        for arm in set(subset) - self.incumbent:
            x[1 + arm] = 1.0
        for arm in self.incumbent - set(subset):
            x[1 + arm] = -1.0
        return x

    def learn(self, subsets: Any, rewards: Any, weights: Any) -> None:
        if self.incumbent:
            self.contend()
        for start in range(0, len(subsets), 256):
            part = slice(start, start + 256)
            x = np.array([self.row(subset) for subset in subsets[part].tolist()])
            worth, earned = weights[part], rewards[part]
            others = [1 + arm for arm in range(self.n_arms) if arm not in self.contenders]
            mixed = (x[:, others] != 0).any(axis=1)
            for rows in (~mixed, mixed):
                if not rows.any():
                    continue
                mean, covariance = laplace(self.mean, self.covariance, x[rows], earned[rows], worth[rows])
                if rows is mixed:  # of others alone
                    self.mean[others] = mean[others]
                    self.covariance[others, others] = covariance[others, others]
                else:
                    self.mean, self.covariance = mean, covariance
        self.choose_contenders()
        if self.mean[0] > self.highest:
            self.doubt(math.exp(0.5 * (self.mean[0] - self.highest)))
            self.highest = self.mean[0]

    def choose_contenders(self) -> None:
        new, into = top(self.mean[1:], self.k), np.eye(self.n_arms + 1)
        for arm in new - self.incumbent:
            into[0, 1 + arm] = 1.0
        for arm in self.incumbent - new:
            into[0, 1 + arm] = -1.0
        self.mean, self.covariance = into @ self.mean, self.keep(into @ self.covariance @ into.T)
        self.incumbent = new

    def doubt(self, factor: float) -> None:
        grow = [math.sqrt(factor)]
        grow += [math.sqrt(min(factor, max(1.0, self.prior / v))) for v in np.diag(self.covariance)[1:]]
        self.covariance = self.covariance * np.outer(grow, grow)


@pytest.mark.parametrize(
    ("n_arms", "k", "contenders_expected"), [(65, 1, 64), (80, 3, 64), (90, 20, 64), (100, 30, 42), (99, 60, 21)]
)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_equal_to_the_stated_approximation_for_many_arms(
    n_arms: int, k: int, contenders_expected: int, seed: int
) -> None:
    """Contenders are 64, and where more than two arms are swapped at once (a tenth of K) 128 by so many."""
    rng = np.random.default_rng([seed, n_arms])
    posterior, stated = Posterior.at_start(n_arms, k, 0.4, 0.7), Stated(n_arms, k, contenders_expected, 0.4, 0.7)
    posterior.mean = rng.normal(0.0, 0.01, n_arms)  # no two alike
    stated.mean[1:] = posterior.mean
    for rows in (30, 20, 60, 270, 40):
        plan = told_at_random(rng, n_arms, k, rows, posterior.incumbent)
        posterior.learn(*plan)
        stated.learn(*plan)
        assert set(posterior.incumbent.tolist()) == stated.incumbent
        assert posterior.contenders.tolist() == stated.contenders
        assert posterior.level == pytest.approx(stated.mean[0], abs=1e-4)
        assert posterior.mean == pytest.approx(stated.mean[1:], abs=1e-4)
        assert posterior.variance == pytest.approx(np.diag(stated.covariance)[1:], rel=1e-4)
        together = [0] + [1 + arm for arm in stated.contenders]
        assert posterior.covariance == pytest.approx(stated.covariance[np.ix_(together, together)], rel=1e-6, abs=1e-5)
    assert len(stated.contenders) == contenders_expected


def learned(n_arms: int = 12, k: int = 3, plans: int = 2, seed: int = 0) -> Posterior:
    rng = np.random.default_rng(seed)
    posterior = Posterior.at_start(n_arms, k, 0.5, 1.0)
    for _ in range(plans):
        posterior.learn(*told_at_random(rng, n_arms, k, 2 * n_arms))
    return posterior


@pytest.mark.parametrize("n_arms", [12, 80])
@pytest.mark.parametrize("swaps", [0, 1, 2, 3])
def test_a_row_counts_in_full_whatever_it_swaps(n_arms: int, swaps: int) -> None:
    """6 plays teach as much as 6 of a Bernoulli arm: checked on what the row itself earns."""
    posterior = learned(n_arms)
    posterior.highest_level = 100.0  # no doubt here
    posterior._choose_contenders()
    strangers = np.setdiff1d(posterior.contenders, posterior.incumbent)
    row = np.sort(np.append(posterior.incumbent[swaps:], strangers[:swaps]))[None, :]
    x, arms = posterior._design(row)
    odds, spread = float((x @ posterior._means(arms))[0]), float((x @ posterior._covariances(x, arms))[0, 0])
    value = float(expit(odds))
    posterior.learn(row, np.array([value]), np.array([6.0]))  # as expected: only variances shrink
    now = posterior.predict(row)[1][0] / (value * (1 - value)) ** 2
    assert 1 / now == pytest.approx(1 / spread + 6 * value * (1 - value), rel=1e-6)


@pytest.mark.parametrize("n_arms", [12, 80])
def test_what_is_known_of_a_swap_is_doubled_by_as_many_plays(n_arms: int) -> None:
    posterior = learned(n_arms)
    posterior.highest_level = 100.0  # no doubt here
    posterior._choose_contenders()
    stranger = np.setdiff1d(posterior.contenders, posterior.incumbent)[0]
    swap = np.sort(np.append(posterior.incumbent[1:], stranger))[None, :]
    value, known = posterior.predict(swap)[0], posterior.known_plays(swap)
    posterior.covariance[0], posterior.covariance[:, 0] = 0.0, 0.0  # the incumbent itself is known
    held = posterior.incumbent
    posterior.learn(swap, value, known)  # as expected: only variances shrink
    assert (posterior.incumbent == held).all()
    assert posterior.known_plays(swap) == pytest.approx(2 * known, rel=1e-6)


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
    assert posterior.covariance.diagonal()[1:] == pytest.approx(posterior.variance[posterior.contenders])
    before, after = np.sqrt(block.diagonal()), np.sqrt(posterior.covariance.diagonal())
    assert posterior.covariance / np.outer(after, after) == pytest.approx(block / np.outer(before, before))


def test_a_level_that_climbs_brings_doubt_and_one_that_falls_brings_none() -> None:
    """To the level's own variance and that of all effects, while they are below their prior."""
    for climb in (1.0, -1.0):
        posterior, plain = learned(seed=5), learned(seed=5)
        plain.highest_level = 100.0
        for each in (posterior, plain):
            each.prior_variance = 1e9
        best, start = posterior.incumbent[None, :], posterior.level
        posterior.highest_level = start
        for each in (posterior, plain):
            each.learn(best, expit(np.array([start + climb])), np.array([1e6]))
        assert (posterior.incumbent == best).all()
        assert posterior.level == pytest.approx(start + climb, abs=0.01)
        factor = math.exp(0.5) if climb > 0 else 1.0
        assert posterior.covariance == pytest.approx(factor * plain.covariance, rel=0.01, abs=1e-9)
        assert posterior.variance == pytest.approx(factor * plain.variance, rel=0.01)
        assert posterior.highest_level == max(start, posterior.level)


def test_centring_leaves_differences_as_they_were() -> None:
    posterior = learned()
    posterior.covariance[1:, 1:] += 2.5  # all of them shift together
    posterior.variance += 2.5
    before, mean = posterior.covariance.copy(), posterior.mean.copy()
    posterior._centre()
    apart = differences(12)
    assert apart @ posterior.covariance @ apart.T == pytest.approx(apart @ before @ apart.T, abs=1e-12)
    assert posterior.mean.tolist() == mean.tolist()
    assert posterior.covariance[:, 1:].sum(axis=1) == pytest.approx(0.0, abs=1e-12)
    assert posterior.variance == pytest.approx(posterior.covariance.diagonal()[1:])


def test_arms_that_nobody_looks_at_stay_as_unknown_as_they_were() -> None:
    """However often the contenders change: what is not played grows neither more nor less certain."""
    rng, posterior = np.random.default_rng(2), learned(300)
    idle = np.setdiff1d(np.arange(300), posterior.incumbent)[:50]
    posterior.mean[idle] = -9.0
    before = posterior.variance[idle]
    posterior.highest_level = 100.0  # no doubt here
    for _ in range(20):
        busy = np.setdiff1d(rng.permutation(300), idle)[:30]
        rows = [np.sort(np.append(posterior.incumbent[1:], arm)) for arm in np.setdiff1d(busy, posterior.incumbent)]
        posterior.learn(np.array(rows), rng.random(len(rows)), np.full(len(rows), 5.0))
    assert posterior.variance[idle] == pytest.approx(before)


# Draws.


def stretched(posterior: Posterior) -> Any:
    """For each arm, Wald's distance to where it is swapped in parts of the root of the likelihood ratio's."""
    inside = set(posterior.incumbent.tolist())
    weakest = min(posterior.mean[arm] for arm in inside)
    strongest = max(posterior.mean[arm] for arm in range(len(posterior.mean)) if arm not in inside)
    found = []
    for arm, mean in enumerate(posterior.mean):
        below = mean - strongest if arm in inside else weakest - mean
        if below < 0.01:  # as good as even
            found.append(1.0)
            continue
        here, there = expit(posterior.level - below), expit(posterior.level)
        information = 2 * (rel_entr(here, there) + rel_entr(1 - here, 1 - there))
        found.append(math.sqrt(here * (1 - here) * below**2 / information))
    return np.array(found)


def test_of_many_arms_only_what_has_been_played_is_drawn_wider() -> None:
    """An arm that has its prior is drawn as that says, one that is known as the likelihood ratio says."""
    posterior = learned(80)
    posterior.level, posterior.mean = 3.0, -np.linspace(0.1, 3.0, 80)
    posterior.incumbent, inside = np.arange(3), np.arange(80) < 3
    posterior.variance = np.where(np.arange(80) % 2, 1e-9, posterior.prior_variance)
    wide = spread_factor(posterior, inside)
    assert wide[6::2] == pytest.approx(1.0)
    assert wide[7::2] == pytest.approx(stretched(posterior)[7::2], rel=1e-6)
    assert (wide[7::2] > 1).all()


@pytest.mark.parametrize(
    ("held", "n", "paid"), [(0.95, 10, 6), (0.95, 100, 80), (0.99, 30, 25), (0.999, 20, 17), (0.8, 20, 9), (0.3, 40, 4)]
)
def test_an_arm_with_bad_luck_comes_back_as_often_as_its_exact_posterior_says(held: float, n: int, paid: int) -> None:
    """K = 1, an incumbent that is known, and one other arm: the chance that it is better, by an integral.

    Within a factor of 2. A Gaussian at the mode would give up to 10^8 times too little, and too much of rare rewards.
    """
    level, prior = float(logit(held)), 9.0
    variance, arms = np.array([1e-9, prior]), np.arange(2)
    posterior = Posterior(arms[:1], level, 99.0, prior, np.zeros(2), variance, arms, np.diag([1e-9, *variance]))
    posterior.learn(np.array([[1]]), np.array([paid / n]), np.array([float(n)]))
    apart = np.array([-1.0, 1.0])
    away = (apart @ posterior.mean) / math.sqrt(apart @ posterior.covariance[1:, 1:] @ apart)
    drawn, plain = ndtr(away / spread_factor(posterior, np.array([True, False]))[1]), ndtr(away)

    def density(effect: float) -> float:
        odds = level + effect
        return math.exp(n - effect**2 / 2 / prior - paid * np.logaddexp(0, -odds) - (n - paid) * np.logaddexp(0, odds))

    better, worse = quad(density, 0, 40)[0], quad(density, -40, 0, points=[-5, -3, -2, -1])[0]
    assert better / 2 < drawn * (better + worse) < 2 * better
    assert plain * (better + worse) < better / 1.4 if held > 0.5 else plain * (better + worse) > 2 * better


@pytest.mark.parametrize(("n_arms", "k"), [(6, 2), (70, 3)])
def test_draws_swap_the_weakest_for_the_strongest(n_arms: int, k: int) -> None:
    """As often as draws of all effects do that are as wide: within 5 standard errors for every subset."""
    posterior, draws = learned(n_arms, k, plans=2, seed=3), 20_000
    ours = [tuple(row) for row in draw_swaps(posterior, draws, np.random.default_rng(1)).tolist()]
    covariance = np.diag(posterior.variance)
    covariance[np.ix_(posterior.contenders, posterior.contenders)] = posterior.covariance[1:, 1:]
    effects = np.random.default_rng(2).multivariate_normal(np.zeros(n_arms), covariance, draws, method="eigh")
    effects = posterior.mean + stretched(posterior) * effects
    inside = posterior.incumbent.tolist()
    outside = [arm for arm in range(n_arms) if arm not in inside]
    theirs: list[Subset] = []
    for draw in effects:
        weak, strong = min(inside, key=lambda arm: draw[arm]), max(outside, key=lambda arm: draw[arm])
        swapped = draw[strong] > draw[weak]
        theirs.append(tuple(sorted([*(set(inside) - {weak}), strong])) if swapped else tuple(inside))
    assert len(set(theirs)) >= 5
    for subset in {*ours, *theirs}:
        one, two = ours.count(subset) / draws, theirs.count(subset) / draws
        assert abs(one - two) <= 5 * math.sqrt((one + two) / draws)


@pytest.mark.parametrize(("n_arms", "k", "most"), [(60, 20, 3), (40, 30, 3), (32, 30, 2)])
def test_a_draw_can_swap_several(n_arms: int, k: int, most: int) -> None:
    """The weakest for the strongest, the next for the next, where better: each arm as often as in draws of all effects.

    Up to 3, within 5 standard errors; never more swaps than there are arms to come in.
    """
    posterior, draws = learned(n_arms, k, plans=2, seed=3), 10_000
    rng, inside = np.random.default_rng(2), np.isin(np.arange(n_arms), posterior.incumbent)
    posterior.mean = np.where(inside, 1.2, -1.2) * np.sqrt(posterior.variance.mean())
    rows = draw_swaps(posterior, draws, np.random.default_rng(1), 3)
    covariance = np.diag(posterior.variance)
    covariance[np.ix_(posterior.contenders, posterior.contenders)] = posterior.covariance[1:, 1:]
    effects = rng.multivariate_normal(np.zeros(n_arms), covariance, draws, method="eigh")
    effects = posterior.mean + stretched(posterior) * effects
    theirs = np.zeros(n_arms)
    for draw in effects:
        leave = sorted(np.flatnonzero(inside), key=lambda arm: draw[arm])[:most]
        come = sorted(np.flatnonzero(~inside), key=lambda arm: -draw[arm])[:most]
        swapped = [(out, into) for out, into in zip(leave, come, strict=True) if draw[into] > draw[out]]
        theirs += inside
        theirs[[out for out, _ in swapped]] -= 1
        theirs[[into for _, into in swapped]] += 1
    ours = np.bincount(rows.ravel(), minlength=n_arms)
    changed = (~np.isin(rows, posterior.incumbent)).sum(axis=1)
    assert set(changed.tolist()) == set(range(most + 1))
    assert all(len(set(row)) == k for row in rows[:100].tolist())
    assert (np.abs(ours - theirs) <= 5 * np.sqrt(np.minimum(ours + theirs, 2 * draws - ours - theirs)) + 1).all()


def test_whose_turn_it_is_is_anybodys_and_never_the_same_twice() -> None:
    """Each ordered triple of five, within 5 standard errors."""
    turns = distinct_integers(np.random.default_rng(1).random((60_000, 1, 3)), np.array([[5, 4, 3]]))
    found, times = np.unique(turns[:, 0], axis=0, return_counts=True)
    assert len(found) == 60
    assert (np.abs(times - 1000) < 5 * math.sqrt(1000)).all()


@pytest.mark.parametrize(("k", "most"), [(3, 1), (40, 4)])
def test_arms_that_are_alike_are_drawn_together(k: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as one by one: within 5 standard errors for each group's share, and for each arm's within its group."""
    draws, posterior = 40_000, learned(150, k, plans=2)
    alone = np.setdiff1d(np.arange(150), [*posterior.contenders, *posterior.incumbent])
    weakest = posterior.mean[posterior.incumbent].min()
    posterior.mean[alone], posterior.variance[alone] = weakest - 1.5, 0.9
    posterior.mean[alone[:4]] = weakest - 1.2
    posterior.variance[alone[4:9]] = 1.2  # three groups, of 4, of 5 and of the rest
    posterior.mean[alone[-1]] = weakest - 1.3  # and one arm that is like no other
    shares = []
    for many in (2**15, 0):
        monkeypatch.setattr("kofn.policies.thompson.sampling.GROUPED_FROM", many)
        rows = draw_swaps(posterior, draws, np.random.default_rng(many + 1), most)
        shares.append(np.bincount(rows.ravel(), minlength=150) / draws)
    one, two = shares
    assert all(one[arms].sum() > 0.01 for arms in (alone[:4], alone[4:9], alone[9:]))
    for arms in (*np.arange(150)[:, None], alone[:4], alone[4:9], alone[9:]):
        a, b = one[arms].sum(), two[arms].sum()
        assert abs(a - b) <= 5 * math.sqrt((a + b) / draws)


@pytest.mark.parametrize(
    ("rows", "k", "largest"), [(1, 3, 1), (256, 3, 256), (700, 100, 256), (700, 1000, 91), (5, 10**6, 2)]
)
def test_rows_are_learned_in_blocks_of_bounded_size(rows: int, k: int, largest: int) -> None:
    """All rows, none twice; at most 256, and 2^23 numbers: 91 * 91 * 1,000 and 2 * 2 * 10^6 fit, 92 and 3 do not."""
    parts = list(_parts(np.broadcast_to(np.int64(0), (rows, k))))
    sizes = [len(range(*part.indices(rows))) for part in parts]
    assert sum(sizes) == rows
    assert [part.start for part in parts] == np.cumsum([0, *sizes[:-1]]).tolist()
    assert max(sizes) == largest


def test_draws_of_many_arms_are_bounded_in_memory() -> None:
    """256 draws of 20,000 effects are 41 MB at once; they come in blocks of 8 MB, with a few copies on the way."""
    posterior = Posterior.at_start(20_000, 10, 0.5, 1.0)
    rng = np.random.default_rng(1)
    subsets = rng.permutation(20_000).reshape(-1, 10)
    posterior.learn(np.sort(subsets, axis=1), rng.random(2000), np.ones(2000))
    tracemalloc.start()
    rows = draw_swaps(posterior, 256, rng)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows.shape == (256, 10)
    assert peak < 30e6


def test_draws_do_not_depend_on_the_size_of_their_blocks_but_by_luck(monkeypatch: pytest.MonkeyPatch) -> None:
    """An arm that is surely the strongest is found in whatever block it lies."""
    for arm in (0, 37, 60):
        posterior = learned(61)
        posterior.incumbent = np.array([10, 20, 30])
        posterior.contenders, posterior.covariance = np.arange(1, 33), np.eye(33)
        posterior.mean, posterior.variance = np.zeros(61), np.full(61, 1e-6)
        posterior.mean[[arm, 20]] = 9.0, -9.0
        posterior.covariance *= 1e-6
        monkeypatch.setattr("kofn.policies.thompson.sampling.CELLS", 100)
        assert draw_swaps(posterior, 10, np.random.default_rng(1)).tolist() == [sorted([10, 30, arm])] * 10


def test_draws_are_as_wide_as_their_variance_where_there_is_no_difference() -> None:
    """And never nothing or without end, however high or low the odds are."""
    posterior = learned()
    inside = np.isin(np.arange(12), posterior.incumbent)
    for level in (-60.0, -20.0, -1.0, 0.0, 3.0, 20.0, 60.0):
        posterior.level, posterior.mean = level, np.where(inside, 1.0, 1.0 - 1e-9)
        assert spread_factor(posterior, inside) == pytest.approx(1.0, abs=1e-3)
        posterior.mean = np.where(inside, 1.0, 1.0 - np.linspace(0.0, 80.0, 12))
        assert ((spread_factor(posterior, inside) > 1e-6) & (spread_factor(posterior, inside) < 5.0)).all()


# Arms that come and go.


@pytest.mark.parametrize("n_arms", [12, 80])
def test_kept_arms_keep_their_differences(n_arms: int) -> None:
    posterior, old = learned(n_arms), learned(n_arms)
    keep = np.setdiff1d(np.arange(n_arms), [1, old.incumbent[0], 7])
    posterior.change_arms(keep, 2)
    assert posterior.mean.tolist() == [*old.mean[keep].tolist(), 0.0, 0.0]
    assert posterior.variance.tolist() == [*old.variance[keep].tolist(), 1.0, 1.0]
    assert {*posterior.incumbent.tolist()} == top(posterior.mean, 3)
    old_rows = {arm: 1 + row for row, arm in enumerate(old.contenders.tolist())}
    now_rows = {int(keep[arm]): 1 + row for row, arm in enumerate(posterior.contenders.tolist()) if arm < len(keep)}
    both = sorted(old_rows.keys() & now_rows.keys())
    assert len(both) > 5
    then, now = [old_rows[arm] for arm in both], [now_rows[arm] for arm in both]
    assert posterior.covariance[np.ix_(now, now)] == pytest.approx(old.covariance[np.ix_(then, then)])
    subsets = np.array([[0, 1, 2], [3, 4, 5]])
    before, after = old.predict(keep[subsets]), posterior.predict(subsets)
    assert after[0] == pytest.approx(before[0])
    if n_arms <= MAX_CONTENDERS:  # else the level forgets what it shares with arms that have no covariances
        assert after[1] == pytest.approx(before[1])


@pytest.mark.parametrize(("before", "keep", "new"), [(60, 60, 20), (80, 40, 4), (80, 40, 60), (12, 4, 0), (12, 3, 1)])
def test_the_number_of_contenders_follows_the_number_of_arms(before: int, keep: int, new: int) -> None:
    posterior = learned(before, 3)
    posterior.change_arms(np.arange(before - keep, before), new)
    assert len(posterior.mean) == keep + new
    assert len(posterior.contenders) == min(keep + new, MAX_CONTENDERS)
    assert posterior.covariance.shape == (len(posterior.contenders) + 1,) * 2
    assert posterior.covariance.diagonal()[1:] == pytest.approx(posterior.variance[posterior.contenders])
    Posterior.load(json.loads(json.dumps(posterior.state())), Thompson(keep + new, 3))
    posterior.learn(*told_at_random(np.random.default_rng(1), keep + new, 3, 20))


# To keep.


@pytest.mark.parametrize("n_arms", [12, 80])
@pytest.mark.parametrize("plans", [0, 1, 2])
def test_beliefs_are_kept_to_the_last_digit(n_arms: int, plans: int) -> None:
    """Of more than 64 arms there are no contenders after the first plan, for there was no boundary before it."""
    posterior = learned(n_arms, plans=plans)
    again = Posterior.load(json.loads(json.dumps(posterior.state())), Thompson(n_arms, 3))
    assert again.state() == posterior.state()
    assert np.array_equal(again.covariance, posterior.covariance)


def test_old_records_have_fewer_contenders() -> None:
    """They are read, and have as many as others after the next plan."""
    posterior = learned(80)
    held = np.sort(np.argsort(np.abs(posterior.mean - posterior.boundary))[:32])
    rows = np.concatenate([[0], 1 + np.searchsorted(posterior.contenders, held[np.isin(held, posterior.contenders)])])
    posterior.contenders, posterior.covariance = (
        held[np.isin(held, posterior.contenders)],
        posterior.covariance[np.ix_(rows, rows)],
    )
    again = Posterior.load(json.loads(json.dumps(posterior.state())), Thompson(80, 3))
    assert draw_swaps(again, 10, np.random.default_rng(1)).shape == (10, 3)
    again.learn(*told_at_random(np.random.default_rng(1), 80, 3, 20))
    assert len(again.contenders) == MAX_CONTENDERS


@pytest.mark.parametrize(
    ("name", "value"),
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
