"""The stop rule: what is compared, how long it must hold, and how it is written."""

from __future__ import annotations

import json
import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import kofn
from kofn import Alarm, BadInput, Insight, Tally
from kofn.campaigns.evidence import Look, Stop
from kofn.campaigns.evidence.stop_rule import GROWTH
from kofn.lab.settings import Setting
from kofn.policies.thompson.constants import Constants
from kofn.policies.thompson.insight import FEW, LIMIT, losses
from kofn.policies.thompson.policy import FOR_LOSS
from kofn.policies.thompson.posterior import Posterior
from tests.cases import for_each


def known(loss_high: float | None, *alarms: Alarm) -> Insight:
    none = np.empty(0)
    return Insight(0.5, 0.4, 0.6, none, none, none, lambda: 0.5, 0.0, alarms, loss_high)


def test_it_must_stay_below_the_threshold_while_plays_grow() -> None:
    stop = Stop(loss=0.01)
    first = stop.look(known(0.009), 1_000)
    assert (first.ready, first.since) == (False, 1_000)
    assert "until play 1,250" in first.reason
    assert not stop.look(known(0.009), 1_249, first).ready
    later = stop.look(known(0.009), round(GROWTH * 1_000), first)
    assert later.ready
    assert later.since == 1_000
    assert stop.look(known(0.002), 5_000, later).ready


@for_each("interruption", [known(0.01), known(0.5), known(0.001, Alarm("drift", 5)), known(None), None])
def test_an_interruption_begins_again(interruption: Insight | None) -> None:
    stop = Stop(loss=0.01)
    before = stop.look(known(0.009), 1_000)
    between = stop.look(interruption, 1_150, before)
    assert (between.ready, between.since) == (False, None)
    after = stop.look(known(0.009), 1_300, between)
    assert (after.ready, after.since) == (False, 1_300)


def test_reasons_are_sentences() -> None:
    stop = Stop(loss=0.01)
    reasons = [
        stop.look(None, 10).reason,
        stop.look(known(0.02), 10).reason,
        stop.look(known(0.001, Alarm("drift", 5), Alarm("misfit", 7)), 10).reason,
        stop.look(known(0.001), 1_250, stop.look(known(0.001), 1_000)).reason,
    ]
    assert reasons == [
        "There is no limit of the loss: arms have few plays yet, or the policy gives none.",
        "The loss per play may still be 0.02, not below 0.01.",
        "Rewards contradict the estimates (alarm: drift and misfit).",
        "The loss per play has been below 0.01 since play 1,000.",
    ]


def test_a_look_survives_json() -> None:
    for look in (Stop(loss=0.01).look(known(0.001), 77), Stop(loss=0.01).look(None, 77)):
        assert Look.from_dict(json.loads(json.dumps(look.to_dict()))) == look


@for_each(
    "text, stop",
    [
        ("loss<0.01", Stop(loss=0.01)),
        (" loss < 1e-3 ", Stop(loss=0.001)),
        ("value<500 over 100000", Stop(value=500, horizon=100_000)),
        ("value < 20 over 1e6 plays", Stop(value=20, horizon=10**6)),
        ("value<20 over 1,000,000", Stop(value=20, horizon=10**6)),
    ],
)
def test_rules_can_be_written(text: str, stop: Stop) -> None:
    assert Stop.parse(text) == stop
    assert Stop.parse(str(stop)) == stop


def test_the_value_of_a_horizon_is_a_loss_per_play() -> None:
    assert Stop(value=500, horizon=100_000).threshold == 0.005
    assert Stop(value=500, horizon=100_000).look(known(0.004), 10).since == 10
    assert Stop(value=500, horizon=100_000).look(known(0.006), 10).since is None


@for_each(
    "text",
    ["loss", "loss<", "loss<x", "loss>0.01", "loss<0.01 over 50", "value<5", "gain<3", "", None, "loss<-1", "loss<nan"],
)
def test_what_is_not_a_rule_is_refused(text: Any) -> None:
    with pytest.raises(BadInput):
        Stop.parse(text)


@for_each(
    "given",
    [
        {},
        {"loss": 0.01, "value": 5, "horizon": 10},
        {"value": 5},
        {"loss": 0.1, "horizon": 5},
        {"loss": 0},
        {"loss": True},
    ],
)
def test_a_rule_is_a_loss_or_a_value_over_a_horizon(given: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Stop(**given)


def policy_after(plays: int) -> kofn.Thompson:
    problem = Setting("mean", 12, 3).problem(1)
    policy, rng = kofn.Thompson(12, 3, seed=1, reward_range=(0, 40)), np.random.default_rng(1)
    while policy.plays < plays:
        plan = policy.plan()
        tally = problem.play(plan.subsets, plan.times, rng)
        policy.tell_plan(Tally(plan.times, 40 * tally.total, 1600 * tally.squares))
    return policy


def test_the_limit_is_that_of_the_draws() -> None:
    policy = policy_after(500)
    insight = policy.insight()
    assert insight is not None
    found = losses(policy._posterior, policy._rng(FOR_LOSS), policy._effective_plays())
    span = 40 * policy._range.width
    assert insight.expected_loss == pytest.approx(span * found.mean)
    assert insight.loss_high == pytest.approx(span * found.high)
    assert insight.to_dict()["loss_high"] == insight.loss_high


def test_there_is_no_limit_before_each_arm_has_some_plays() -> None:
    for plays, there in ((70, False), (100, True)):
        insight = policy_after(plays).insight()
        assert insight is not None
        assert insight.expected_loss is not None
        assert (insight.loss_high is not None) == there


def test_the_limit_is_the_quantile_of_a_swap() -> None:
    """Two arms, K = 1: the loss is that of the difference of two normal effects, if it is positive."""
    posterior = Posterior.at_start(2, 1, 0.5, 0.09, Constants())
    posterior.incumbent, posterior.covariance[0, 0] = np.array([0]), 1e-12
    for effective in (math.inf, 20.0):
        width = math.sqrt(2 * 0.09 * (1 + FEW / effective))
        expected = expit(NormalDist(0, width).inv_cdf(LIMIT)) - 0.5
        found = [losses(posterior, np.random.default_rng(seed), effective).high for seed in range(40)]
        assert np.mean(found) == pytest.approx(expected, rel=0.05)


def test_rewards_at_the_top_of_their_range_leave_nothing_to_gain() -> None:
    """Every play of the best subset pays: no failure is known, and none is needed."""
    policy = kofn.Thompson(8, 2, seed=1)
    while policy.plays < 3_000:
        plan = policy.plan()
        total = (plan.times * (plan.subsets < 4).any(axis=1)).astype(float)
        policy.tell_plan(Tally(plan.times, total, total))
    policy._posterior.level = 50.0
    insight = policy.insight()
    assert insight is not None
    assert insight.loss_high == pytest.approx(0, abs=1e-9)


def test_few_effective_rewards_raise_the_limit() -> None:
    """Of coins, the effective plays are the rarer of successes and failures."""
    policy, rng = kofn.Thompson(10, 2, seed=1), np.random.default_rng(1)
    successes = 0.0
    while policy.plays < 3_000:
        plan = policy.plan()
        total = rng.binomial(plan.times, 0.02).astype(float)
        successes += float(total.sum())
        policy.tell_plan(Tally(plan.times, total, total))
    assert policy._effective_plays() == pytest.approx(successes, rel=0.7)  # the best subset looks better than it is
    seen = [losses(policy._posterior, np.random.default_rng(3), each) for each in (5.0, 50.0, math.inf)]
    assert seen[0].high > seen[1].high > seen[2].high
    assert seen[0].mean == seen[1].mean == seen[2].mean
