"""Priors: what is known about single arms before the first play."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import kofn
from kofn.policies.thompson.constants import Constants
from kofn.policies.thompson.posterior import Posterior
from kofn.policies.thompson.prior import FLOOR, LATER_FLOOR, RELAXED_AFTER, SCALE
from tests.campaigns.tools import NAMES, checked, create, play
from tests.cases import for_each

RIGHT = kofn.Prior.from_ranking(range(12), weight=0.9)


def problem_of(n_arms: int = 12, k: int = 3) -> kofn.Problem:
    """Return a problem whose arms are worse one by one."""
    return kofn.Problem(kofn.Bernoulli(np.linspace(0.9, 0.1, n_arms)), "mean", k)


def played(policy: kofn.Policy, plays: int, seed: int) -> kofn.Run:
    return kofn.simulate(policy, problem_of(policy.n_arms, policy.k), plays, seed)


def test_rates_are_shrunk_as_by_hand() -> None:
    rates, counts = np.array([0.1, 0.2, 0.4, 0.7]), np.array([50, 100, 20, 400])
    hits, misses = rates * counts + 0.5, (1 - rates) * counts + 0.5
    odds, variance = np.log(hits / misses), 1 / hits + 1 / misses
    between = odds.var(ddof=1) - variance.mean()
    precision = 1 / (between + variance)
    centre = (precision * odds).sum() / precision.sum()
    prior = kofn.Prior.from_rates(rates.tolist(), counts.tolist(), weight=0.49)
    # The posterior mean and variance of N(centre, between), after a measurement with this variance.
    mean = (centre / between + odds / variance) / (1 / between + 1 / variance)
    left = 1 / (1 / between + 1 / variance)
    assert np.allclose(prior.scores, 0.7 * (mean - centre) / np.sqrt(between))
    assert np.allclose(prior.trust, 0.49 * (1 - left / between))


def test_arms_without_trials_are_unknown_and_many_trials_are_trusted() -> None:
    prior = kofn.Prior.from_rates([0.1, 0.9, 0.5, 0.3], [10**6, 10**6, 10**6, 0])
    assert prior.scores[3] == prior.trust[3] == 0.0
    assert min(prior.trust[:3]) > 0.999
    exact = np.log(np.array([1 / 9, 9.0, 1.0]))
    assert np.allclose(prior.scores[:3], (exact - exact.mean()) / exact.std(ddof=1), atol=1e-3)


@pytest.mark.parametrize("rates", [[0.5] * 6, [0.5, 0.4, 0.6, 0.5, 0.5, 0.5]])
def test_differences_that_may_be_chance_say_nothing(rates: list[float]) -> None:
    prior = kofn.Prior.from_rates(rates, [10] * 6)
    assert prior.scores == prior.trust == (0.0,) * 6


def test_a_ranking_has_normal_scores_with_standard_deviation_1() -> None:
    prior = kofn.Prior.from_ranking([2, 0, 1, 3], weight=1)
    scores = norm.ppf([5 / 8, 3 / 8, 7 / 8, 1 / 8])
    assert np.allclose(prior.scores, scores / np.std(scores))
    tied = kofn.Prior.from_ranking([2, [0, 1], 3], weight=0.25)
    assert tied.scores[0] == tied.scores[1]
    assert np.std(tied.scores) == pytest.approx(0.5)
    assert tied.trust == (0.25,) * 4
    assert kofn.Prior.from_ranking([[0, 1, 2]], weight=1).scores == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_an_insight_orders_the_arms_for_the_next_policy(direction: Any) -> None:
    rng, cost = np.random.default_rng(1), np.linspace(0.1, 0.9, 8)
    policy = kofn.Thompson(8, 2, direction=direction, seed=1)
    for _ in range(2_000):
        subset = policy.ask()
        policy.tell(subset, float(rng.random() < cost[list(subset)].mean()))
    insight = policy.insight()
    assert insight is not None
    prior = kofn.Prior.from_insight(insight, direction=direction)
    assert prior == kofn.Prior.from_insight(json.loads(json.dumps(insight.to_dict())), direction=direction)
    assert kofn.Thompson(8, 2, direction=direction, prior=prior).best() == policy.best()
    assert kofn.Prior.from_insight(insight, weight=0, direction=direction).trust == (0.0,) * 8


def test_the_start_is_a_scale_times_the_scores_plus_a_residual() -> None:
    """The covariance equals that of draws of the scale and the residuals; 5 standard errors: below 1 in 10^4."""
    prior = kofn.Prior([1.0, -0.5, -0.5, 0.0], [0.99, 0.5, 0.2, 0.0])
    posterior = Posterior.at_start(4, 2, 0.3, 0.64, Constants())
    level = posterior.covariance[0].copy()
    posterior.expect(prior.expected, prior.residual())
    rng = np.random.default_rng(5)
    scale = rng.normal(SCALE, SCALE, 200_000)
    residual = rng.standard_normal((200_000, 4)) * np.sqrt([FLOOR, 0.5, 0.8, 1.0])
    draws = 0.8 * (scale[:, None] * np.array(prior.scores) + residual)
    error = 5 / np.sqrt(200_000)
    assert np.allclose(posterior.mean, draws.mean(axis=0), atol=error)
    assert np.allclose(posterior.covariance[1:, 1:], np.cov(draws.T), atol=2 * error)
    assert np.allclose(posterior.variance, posterior.covariance.diagonal()[1:])
    assert (posterior.covariance[0] == level).all()


def test_a_prior_that_says_nothing_changes_only_the_first_plan() -> None:
    posterior = Posterior.at_start(6, 2, 0.3, 0.64, Constants())
    same = Posterior.at_start(6, 2, 0.3, 0.64, Constants())
    same.expect(np.zeros(6), np.ones(6))
    assert same.state() == posterior.state()


def test_best_and_the_first_plan_use_it() -> None:
    policy = kofn.Thompson(12, 3, prior=kofn.Prior.from_ranking(range(11, -1, -1), weight=0.5), seed=1)
    assert policy.best() == (9, 10, 11)
    plan = policy.plan()
    assert [9, 10, 11] in plan.subsets.tolist()
    assert set(plan.subsets.ravel().tolist()) == set(range(12))


def test_it_obeys_constraints() -> None:
    rules = kofn.Constraints(kofn.constraints.AtMost(1, [0, 1, 2]))
    policy = kofn.Thompson(12, 3, prior=RIGHT, constraints=rules, seed=1)
    assert policy.best() == (0, 3, 4)
    assert rules.allowed(12, 3).allows(policy.plan().subsets).all()


def ends(n_arms: int, order: Any) -> Any:
    """Return the regret of 12 runs of 300 plays."""
    prior = None if order is None else kofn.Prior.from_ranking(order, weight=0.9)
    runs = [played(kofn.Thompson(n_arms, 3, prior=prior, seed=run), 300, 100 + run) for run in range(12)]
    return np.array([run.curve.regret[-1] for run in runs])


@pytest.mark.parametrize("n_arms", [12, 70])
def test_a_right_prior_saves_regret(n_arms: int) -> None:
    """If priors did nothing, this would pass by chance once in 30,000: it needs 4 standard errors."""
    without, right = ends(n_arms, None), ends(n_arms, range(n_arms))
    error = np.sqrt((without.var(ddof=1) + right.var(ddof=1)) / 12)
    assert without.mean() - right.mean() > 4 * error


def test_a_wrong_prior_is_overcome() -> None:
    """Regret is below twice that without a prior by over 4 standard errors, so a right program passes with others."""
    without, wrong = ends(12, None), ends(12, range(11, -1, -1))
    error = np.sqrt((4 * without.var(ddof=1) + wrong.var(ddof=1)) / 12)
    assert wrong.mean() + 4 * error < 2 * without.mean()


def test_scores_are_believed_less_after_more_plays() -> None:
    prior = kofn.Prior([1.0, -1.0, 0.5, 0.0], [1.0, 0.8, 0.5, 0.0])
    assert prior.residual().tolist() == pytest.approx([FLOOR, 0.2, 0.5, 1.0])
    assert prior.residual(4 * int(RELAXED_AFTER)).tolist() == pytest.approx([LATER_FLOOR, LATER_FLOOR, 0.5, 1.0])
    assert prior.residual(2 * int(RELAXED_AFTER))[0] == pytest.approx((FLOOR + LATER_FLOOR) / 2)


def test_weaker_scores_leave_the_variance_that_plays_would_have_left() -> None:
    """With a direct measurement of each effect, relaxing equals starting with the larger residuals."""
    before, after, noise = np.array([0.1, 0.2, 1.0]), np.array([0.3, 0.3, 1.0]), np.array([0.5, 0.01, 3.0])
    posterior = Posterior.at_start(3, 1, 0.5, 1.5, Constants())
    posterior.variance = 1 / (1 / (1.5 * before) + 1 / noise)
    posterior.covariance = np.diag([1.0, *posterior.variance])
    posterior.relax(before, after)
    assert posterior.variance == pytest.approx(1 / (1 / (1.5 * after) + 1 / noise))
    assert posterior.covariance.diagonal()[1:] == pytest.approx(posterior.variance)


def test_a_guarantee_plays_the_same_first_plan() -> None:
    policy, proved = (of(12, 3, prior=RIGHT, seed=1) for of in (kofn.Thompson, kofn.ThompsonGuaranteed))
    assert policy.plan().subsets.tolist() == proved.plan().subsets.tolist()
    played(proved, 2_000, 1)
    assert proved.best() == (0, 1, 2)


def test_the_record_keeps_it() -> None:
    policy = kofn.Thompson(12, 3, prior=RIGHT, seed=3)
    played(policy, 40, 1)
    record = json.loads(json.dumps(kofn.save(policy)))
    assert record["params"]["prior"] == RIGHT.to_dict()
    other = kofn.restore(record)
    assert other.params == policy.params
    assert other.plan().subsets.tolist() == policy.plan().subsets.tolist()
    assert "prior" not in kofn.Thompson(12, 3, seed=3).params


def test_arms_that_leave_take_it_along_and_new_ones_are_unknown() -> None:
    fresh = kofn.Thompson(12, 3, prior=RIGHT, seed=3).with_arms([1, 4, 7, 11], added=2)
    scores = fresh.params["prior"]["scores"]
    assert scores == [RIGHT.scores[arm] for arm in (1, 4, 7, 11)] + [0.0, 0.0]
    assert fresh.params["prior"]["trust"] == [0.9] * 4 + [0.0] * 2
    assert fresh.best() == (0, 1, 4)


def test_a_campaign_takes_it_as_a_parameter(tmp_path: Path) -> None:
    ranking = ["h", "g", "f", "e", "d", "c", "b", "a"]
    prior = kofn.Prior.from_ranking([NAMES.index(name) for name in ranking], weight=0.5)
    campaign = create(f"sqlite:///{tmp_path / 'a.db'}", params={"prior": prior.to_dict()})
    assert campaign.best() == ["f", "g", "h"]
    play(campaign, 60, 6)
    campaign.add_arm("i")
    campaign.retire_arm("a")
    play(campaign, 60, 6)
    checked(campaign)
    insight = campaign.insight()
    learned = kofn.Prior.from_insight(insight.to_dict())
    assert [arm.name for arm in insight.arms] == [*"bcdefghi", "a"]
    assert learned.scores[-1] == learned.trust[-1] == 0.0  # retired
    assert min(learned.trust[:-1]) > 0.0


@for_each(
    "make, message",
    [
        (lambda: kofn.Prior([1.0], [0.5, 0.5]), "a score and a trust for each arm; got 1 scores and 2"),
        (lambda: kofn.Prior([], []), "a score and a trust for each arm"),
        (lambda: kofn.Prior([11.0], [0.5]), "scores must be from -10 to 10"),
        (lambda: kofn.Prior([1.0], [1.5]), "trust must be from 0 to 1; got 1.5"),
        (lambda: kofn.Prior([float("nan")], [0.5]), "scores must be finite numbers"),
        (lambda: kofn.Prior([[1.0]], [0.5]), "scores must be a list of numbers"),  # type: ignore[list-item]
        (lambda: kofn.Prior("ab", [0.5]), "scores must be a list of numbers"),  # type: ignore[arg-type]
        (lambda: kofn.Prior.from_rates([0.5], [1, 2]), "the same length; got 1 and 2"),
        (lambda: kofn.Prior.from_rates([1.5], [1]), "rates must be from 0 to 1"),
        (lambda: kofn.Prior.from_rates([0.5], [-1]), "counts must be at least 0; got -1"),
        (lambda: kofn.Prior.from_rates([0.5], [1], weight=2), "weight must be from 0"),
        (lambda: kofn.Prior.from_ranking([], weight=1), "ranking must be a list of all arms"),
        (lambda: kofn.Prior.from_ranking([0, 2], weight=1), "arm"),
        (lambda: kofn.Prior.from_ranking([0, 0], weight=1), "arm"),
        (lambda: kofn.Prior.from_insight({"value": 1}), "insight must come from a policy"),
        (lambda: kofn.Prior.from_insight(None), "insight must come from a policy"),  # type: ignore[arg-type]
        (lambda: kofn.Thompson(5, 2, prior=RIGHT), "prior must have all 5 arms; it has 12"),
        (
            lambda: kofn.Thompson(5, 2, prior={"rates": [1]}),
            "prior must be a kofn.Prior, or a dict of scores and trust",
        ),
    ],
)
def test_what_is_refused(make: Any, message: str) -> None:
    with pytest.raises(kofn.BadInput, match=message):
        make()
