"""New arms start from what is known about the arms of their group."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import kofn
from kofn import BadInput, Constraints, Thompson
from kofn.constraints import Always, AtLeast, AtMost
from kofn.policies.thompson.new_arms import FLOOR, _Effects, start_of_new
from tests.campaigns.tools import NAMES, checked, create, play

GROUP = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2])


def test_the_likelihood_is_that_of_a_multivariate_normal() -> None:
    """With a flat prior of the mean of all arms: its integral adds the same constant to each."""
    rng = np.random.default_rng(1)
    value, error, group = rng.normal(size=7), rng.uniform(0.1, 1.0, 7), np.array([0, 0, 0, 2, 2, 5, 5])
    effects, wide = _Effects(value, error, group), 1e8
    same = group[:, None] == group
    found = []
    for within, between in itertools.product([0.05, 0.5], [0.0, 0.3, 2.0]):
        covariance = np.diag(within + error) + between * same + wide
        exact = multivariate_normal(np.zeros(7), covariance).logpdf(value)
        found.append(effects._likelihood(within, between)[0] - exact)
    assert np.ptp(found) < 1e-4


def start_for(value: Any, new_group: list[int], variance: float = 0.01) -> Any:
    part = 1 - variance  # of a prior variance of 1
    return start_of_new(part * np.asarray(value), np.full(12, variance), 1.0, GROUP, np.array(new_group))


def test_a_new_arm_starts_at_the_mean_of_its_group_if_groups_matter() -> None:
    own = np.tile([-0.1, 0.1, -0.05, 0.05], 3)
    start = start_for(np.array([1.0, 0.0, -1.0])[GROUP] + own, [0, 2, -1, 7])
    assert start.mean == pytest.approx([1.0, -1.0, 0.0, 0.0], abs=0.1)
    assert start.variance == pytest.approx([FLOOR, FLOOR, 1.0, 1.0])  # 7 is a group of new arms only


def test_a_new_arm_starts_as_an_average_one_if_groups_do_not_matter() -> None:
    value = np.tile([-0.6, 0.6, -0.3, 0.3], 3)
    start = start_for(value, [0, 1])
    assert start.mean == pytest.approx(0.0, abs=0.05)
    assert start.variance == pytest.approx(value.var(), rel=0.5)


def test_with_little_known_the_policys_own_prior_stays() -> None:
    for variance, n in ((0.95, 12), (0.01, 3)):
        start = start_of_new(np.ones(n), np.full(n, variance), 1.0, GROUP[:n], np.array([0]))
        assert (start.mean.tolist(), start.variance.tolist()) == ([0.0], [1.0])


def learned(**params: Any) -> Thompson:
    """A policy that has learned that arms of group 0 are good."""
    p = np.array([0.8, 0.3, 0.2])[GROUP]
    policy, rng = Thompson(12, 3, seed=1, **params), np.random.default_rng(1)
    while policy.plays < 3_000:
        plan = policy.plan()
        total = rng.binomial(plan.times, p[plan.subsets].mean(axis=1)).astype(float)
        policy.tell_plan(kofn.Tally(plan.times, total, total))
    return policy


def test_groups_are_given_or_those_of_the_rules() -> None:
    policy, keep = learned(), list(range(12))
    unknown = policy.with_arms(keep, 2)._posterior
    assert unknown.mean[12:].tolist() == [0.0, 0.0]
    given = policy.with_arms(keep, 2, groups=[*"aaaabbbbcccc", "a", "c"])._posterior
    assert given.mean[12] > given.mean[4:12].max() > given.mean[13] - 0.5
    assert given.mean[12] > given.mean[13] + 0.5
    rules = Constraints.by_group([*"aaaabbbbcccc", "a", "c"], at_most=2)
    ruled = policy.with_arms(keep, 2, constraints=rules)
    assert ruled._posterior.mean[12:] == pytest.approx(given.mean[12:])
    assert ruled.with_arms(list(range(14)))._posterior.mean.tolist() == ruled._posterior.mean.tolist()
    for wrong in ["abc", ["a"] * 13, 5]:
        with pytest.raises(BadInput, match="groups must be a list of 14 groups"):
            policy.with_arms(keep, 2, groups=wrong)  # type: ignore[arg-type]


def test_the_first_quota_about_an_arm_is_its_group() -> None:
    rules = Constraints(Always([0]), AtMost(1, [1, 2]), AtLeast(1, [2, 3]))
    assert rules.groups(6) == [None, 1, 1, 2, None, None]


def regret_after_growth(of_groups: float, within: float, with_groups: bool, seed: int) -> float:
    """Return the regret of 10,000 plays after six arms, one of each group, were added to thirty arms.

    `of_groups` and `within` are the standard deviations of the log odds of groups, and of arms within a group.
    """
    rng, group = np.random.default_rng([77, seed]), np.append(np.arange(30), np.arange(6)) % 6
    odds = of_groups * rng.normal(size=6)[group] + within * rng.normal(size=36)
    p = 1 / (1 + np.exp(-odds))
    policy, regret = kofn.Thompson(30, 4, seed=seed), 0.0
    kofn.simulate(policy, kofn.Problem(kofn.Bernoulli(p[:30]), "mean", 4), 10_000, rng)
    grown = policy.with_arms(list(range(30)), 6, groups=group.tolist() if with_groups else None)
    problem, end = kofn.Problem(kofn.Bernoulli(p), "mean", 4), grown.plays + 10_000
    while grown.plays < end:  # simulate() starts with new policies only
        plan = grown.plan().part(end - grown.plays, rng)
        grown.tell_plan(problem.play(plan.subsets, plan.times, rng))
        regret += float(problem.gap(plan.subsets) @ plan.times)
    return regret


@pytest.mark.slow
def test_groups_save_regret_when_they_matter_and_cost_little_when_not() -> None:
    """Differences have a standard error of 5 with these seeds: bounds are 3 of them away from the measured means."""
    for spread, most in (((1.0, 0.3), -5.0), ((0.0, 1.0), 20.0)):
        pairs = [[regret_after_growth(*spread, use, seed) for use in (True, False)] for seed in range(20)]
        assert np.mean([given - without for given, without in pairs]) < most


def test_an_arm_that_joins_a_rule_of_a_campaign_starts_from_its_group(tmp_path: Path) -> None:
    brands = [
        {"rule": "at-most", "count": 2, "arms": list("efgh"), "name": "good"},
        {"rule": "at-most", "count": 2, "arms": list("abcd"), "name": "bad"},
    ]
    campaign = create(f"sqlite:///{tmp_path / 'a.db'}", constraints=brands)
    play(campaign, 400, 8)
    campaign.add_arm("new", ["good"])
    campaign.add_arm("other", ["bad"])
    effects = {arm.name: arm.effect for arm in campaign.insight().arms}
    assert effects["new"] is not None
    assert effects["other"] is not None
    assert effects["new"] > effects["other"]
    play(campaign, 40, 8)
    checked(campaign)
    assert campaign.arms == [*NAMES, "new", "other"]
