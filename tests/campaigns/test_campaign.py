"""A campaign in one process: decisions, rewards, totals, and what it reports."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import Campaign
from kofn.campaigns import Rewarded, campaigns, store_at
from tests.campaigns.tools import NAMES, checked, create, play
from tests.cases import for_each, postgres_is_slow

PLAN_ONLY: dict[str, Any] = {"policy": "cmab-sm", "params": {"horizon": 10**6, "resolution": 0.3}}


def test_a_decision_has_k_different_arms_and_an_id_of_its_own(store_url: str) -> None:
    campaign = create(store_url)
    decisions = [campaign.decide(), *campaign.decide(50)]
    assert len({decision.id for decision in decisions}) == 51
    for decision in decisions:
        assert len(set(decision.arms)) == 3
        assert decision.arms == [NAMES[arm] for arm in decision.subset]
    assert campaign.summary().in_flight == 51
    for wrong in (0, -1, 1.5, True, 100_001):
        with pytest.raises(kofn.BadInput):
            campaign.decide(wrong)  # type: ignore[arg-type]
    checked(campaign)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@postgres_is_slow
def test_it_learns_and_reports_what_it_knows(store_url: str, direction: Any) -> None:
    campaign = create(store_url, direction=direction)
    play(campaign, 1_500, batch=50)
    insight = campaign.insight()
    best = NAMES[-3:] if direction == "maximize" else NAMES[:3]
    assert campaign.best() == insight.best == best
    assert insight.gain is not None
    assert insight.average is not None
    assert insight.value is not None
    assert insight.low is not None
    assert insight.high is not None
    assert insight.gain == pytest.approx(abs(insight.value - insight.average))
    true = 12 * (sum(map(NAMES.index, best)) / 21 + 50 / 505) / 1.2
    assert insight.low < true < insight.high
    assert (insight.probability_best or 0) > 0.9
    assert insight.updates > 10
    assert [arm.name for arm in insight.arms] == NAMES
    assert [arm.name for arm in insight.arms if arm.best] == best
    assert sum(arm.plays for arm in insight.arms) == 3 * 1_500
    for arm in insight.arms:
        assert arm.effect is not None
        assert arm.low is not None
        assert arm.high is not None
        assert arm.low <= arm.effect <= arm.high
    assert insight.plan
    assert (insight.winner, insight.lift, insight.failure, insight.settles, insight.metrics) == (*[None] * 4, [])
    checked(campaign)


def test_what_is_reported_is_plain_for_json(store_url: str) -> None:
    campaign = create(store_url, control=NAMES[:3], window="1h")
    made = campaign.decide(20)
    campaign.record(made[0].id, "returns", 1.0)
    answers: list[Any] = [campaign.insight(), campaign.summary(), campaign.decide(), campaign.settings()]
    answers += [*campaign.history(), *campaign.events(), *campaign.open_decisions(), *campaign.decisions()]
    for answer in answers:
        assert json.loads(json.dumps(answer.to_dict(), allow_nan=False)) == answer.to_dict()
        assert type(answer).from_dict(answer.to_dict()).to_dict() == answer.to_dict()


# Rewards.


def test_rewards_are_recorded_once_and_all_or_none(store_url: str) -> None:
    campaign = create(store_url)
    first, *others = campaign.decide(6)
    assert campaign.reward(first, 1) == Rewarded(1, 0)
    assert campaign.reward(first.id, 1.0) == Rewarded(0, 1)
    good = {decision.id: 2.0 for decision in others}
    wrong: list[tuple[Any, type[kofn.KofnError], str]] = [
        ({**good, first.id: 2.0}, kofn.Conflict, "already has the reward 1; got 2"),
        ({**good, "nonsense": 2.0}, kofn.UnknownDecision, "'nonsense' is not a decision of this campaign"),
        ({**good, others[0].id[:-1] + "g": 2.0}, kofn.UnknownDecision, "is not a decision"),
        ({**good, others[0].id: math.nan}, kofn.BadReward, "one number"),
        ({**good, others[0].id: 12.5}, kofn.BadReward, "between 0 and 12"),
        ({**good, others[0].id: "3"}, kofn.BadReward, "one number"),
        ([*good.items(), (others[0].id, 3.0)], kofn.Conflict, "two values"),
        ([*good], kofn.BadInput, "pairs"),
        (5, kofn.BadInput, "pairs"),
        ([(7, 1.0)], kofn.UnknownDecision, "7 is not a decision"),
    ]
    for batch, error, message in wrong:
        with pytest.raises(error, match=message):
            campaign.rewards(batch)
        assert campaign.summary().rewards == 1
    assert campaign.rewards([*good.items(), *good.items(), (first.id, 1.0)]) == Rewarded(5, 1)
    assert campaign.rewards({}) == Rewarded(0, 0)
    checked(campaign)


def test_one_bad_reward_can_be_left_out(store_url: str) -> None:
    campaign = create(store_url)
    decisions = campaign.decide(5)
    campaign.reward(decisions[4].id, 2.0)
    given: list[tuple[Any, Any]] = [(each.id, 1.0) for each in decisions[:2]]
    given += [(decisions[2].id, 41.0), ("nonsense", 1.0), (decisions[3].id, "x"), (decisions[4].id, 3.0)]
    done = campaign.rewards(given, partial=True)
    assert (done.accepted, done.repeated, done.forgotten) == (2, 0, 0)
    assert [each.id for each in done.refused] == ["nonsense", decisions[3].id, decisions[2].id, decisions[4].id]
    assert "between 0 and 12" in done.refused[2].reason
    assert done.refused[2].reason.endswith("Set outside='clip' to clip such rewards, or widen reward_range")
    assert "already has the reward 2" in done.refused[3].reason
    again = campaign.rewards(given, partial=True)
    assert (again.accepted, again.repeated, len(again.refused)) == (0, 2, 4)
    checked(campaign)


def test_money_and_truth_are_numbers(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    values = [Decimal("1.25"), True, np.float32(2.5), np.int64(3), 4]
    decisions = campaign.decide(len(values))
    campaign.rewards([(each.id, value) for each, value in zip(decisions, values, strict=True)])  # type: ignore[misc]
    assert campaign.summary().mean == pytest.approx((1.25 + 1 + 2.5 + 3 + 4) / 5)
    for wrong in (Decimal("NaN"), Decimal("1e999"), 10**400, 1j, [1.0], None):
        with pytest.raises(kofn.BadReward):
            campaign.reward(campaign.decide().id, wrong)  # type: ignore[arg-type]


def test_another_campaigns_decision_is_unknown(store_url: str) -> None:
    ours, theirs = create(store_url, "ours"), create(store_url, "theirs")
    decision = theirs.decide()
    ours.decide()
    with pytest.raises(kofn.UnknownDecision):
        ours.reward(decision.id, 1)


# Totals.


@postgres_is_slow
def test_totals_teach_as_much_as_single_rewards(store_url: str) -> None:
    campaign = create(store_url)
    rng = np.random.default_rng(1)
    for _ in range(60):
        arms = sorted(rng.choice(8, 3, replace=False).tolist())
        campaign.reward_total([NAMES[arm] for arm in arms], 100, 100 * 12 * sum(arms) / 21)
    assert campaign.best() == NAMES[-3:]
    assert campaign.summary().plays == campaign.summary().rewards == 6_000
    assert campaign.verify().ok


def test_a_total_with_a_key_counts_once(store_url: str) -> None:
    campaign = create(store_url)
    assert campaign.reward_total([0, 1, 2], 10, 50.0, key="monday") == Rewarded(10, 0)
    assert campaign.reward_total(NAMES[:3], 10, 50.0, key="monday") == Rewarded(0, 10)
    with pytest.raises(kofn.Conflict, match="monday"):
        campaign.reward_total([0, 1, 2], 11, 50.0, key="monday")
    campaign.configure(reward_range=(0, 100))  # the default of the squares is another one, and is not compared
    assert campaign.reward_total([0, 1, 2], 10, 50.0, key="monday") == Rewarded(0, 10)
    assert campaign.summary().rewards == 10
    assert campaign.verify().ok


@for_each(
    "arguments, message",
    [
        ((["a", "b"], 1, 1.0), "3 different arms; got 2"),
        ((["a", "a", "b"], 1, 1.0), "arm 'a' is listed twice"),
        ((["a", "b", "z"], 1, 1.0), "no arm 'z': the campaign has 8 arms"),
        (([0, 1, 99], 1, 1.0), "no arm 99"),
        (("abc", 1, 1.0), "a list of arms"),
        ((["a", "b", "c"], 0, 1.0), "at least 1"),
        ((["a", "b", "c"], 2, 25.0), "between 0 and 12 "),
        ((["a", "b", "c"], 2, math.nan), "finite"),
        ((["a", "b", "c"], 2, 2.0, 1.0), "squares"),
        ((["a", "b", "c"], 2, "2"), "numbers"),
        ((["a", "b", "c"], 10**30, 1.0), "at most"),
    ],
)
def test_wrong_totals_are_refused(sqlite_store: str, arguments: Any, message: str) -> None:
    campaign = create(sqlite_store)
    with pytest.raises(kofn.BadInput, match=message):
        campaign.reward_total(*arguments)
    assert campaign.summary().plays == 0
    campaign.delete()


def test_a_total_beyond_the_plan_is_refused_by_a_policy_that_cannot_learn_from_it(sqlite_store: str) -> None:
    campaign = create(sqlite_store, **PLAN_ONLY)
    subset, times = next(iter(kofn.CMABSM(8, 3, 10**6, resolution=0.3, seed=7).plan()))
    with pytest.raises(kofn.BadTally, match="more than its plan has left"):
        campaign.reward_total(subset, times + 1, 1.0)
    campaign.reward_total(subset, times, 1.0)
    assert campaign.verify().ok


# Creating.


@for_each(
    "arguments, message",
    [
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": "<script>"}, "name"),
        ({"name": 5}, "name"),
        ({"arms": "abc"}, "a list of names"),
        ({"arms": []}, "a campaign must have more arms than k; got none"),
        ({"arms": ["a", "a", "b", "c"]}, "arm 'a' is listed twice"),
        ({"arms": ["a", "b", "c", ""]}, "one line"),
        ({"arms": ["a", "b", "c", "d\n"]}, "one line"),
        ({"arms": ["a", "b", "c", "\ud800"]}, "one line"),
        ({"arms": ["a", "b", "c", 4]}, "one line"),
        ({"arms": ["a", "b", "c"]}, "k must be less than n_arms"),
        ({"policy": "nobody"}, "no policy"),
        ({"policy": "cucb"}, "needs arms"),
        ({"params": {"colour": 1}}, "does not take colour"),
        ({"params": {"seed": 1}}, "create"),
        ({"params": 7}, "dict"),
        ({"reward_range": (1, 0)}, "low < high"),
        ({"direction": "up"}, "direction"),
        ({"expire_after": 0}, "expire_after must be a duration above 0"),
        ({"expire_after": math.nan}, "expire_after"),
        ({"expire_after": timedelta(seconds=-1)}, "expire_after"),
        ({"expire_after": "a week"}, "text such as '30m' or '7d'"),
        ({"window": "0m"}, "window must be a duration above 0"),
        ({"window": True}, "window"),
        ({"silence": "none"}, "silence must be a number"),
        ({"silence": -1, "window": "1d"}, "silence must be a reward between 0 and 1"),
        ({"guardrails": ["returns<=+2%"]}, "a guardrail compares a metric with the control's: give control"),
        ({"guardrails": "returns<=+2%"}, "must be a list"),
        ({"guardrails": ["returns<2"], "control": "uniform"}, "a guardrail must be like"),
        ({"keep_decisions": -1}, "keep_decisions"),
        ({"keep_decisions": 10**30}, "keep_decisions"),
        ({"store": "mysql://host/x"}, "SQLite"),
        ({"store": "nonsense"}, "URL"),
        ({"store": "sqlite://"}, "file"),
        ({"store": "sqlite:///x.db?synchronous=off"}, "synchronous"),
        ({"store": 7}, "URL"),
    ],
)
def test_wrong_settings_are_refused(sqlite_store: str, arguments: dict[str, Any], message: str) -> None:
    right: dict[str, Any] = {"name": "front", "arms": NAMES, "k": 3, "store": sqlite_store}
    with pytest.raises(kofn.BadInput, match=message):
        Campaign.create(**(right | arguments))
    assert campaigns(store_at(sqlite_store)) == []


def test_a_name_is_taken_once(store_url: str) -> None:
    create(store_url)
    with pytest.raises(kofn.CampaignExists, match="already"):
        create(store_url)
    for name in ("back", "a/b", "nul\x00", "\ud800", "", "x" * 10_000):
        with pytest.raises(kofn.NoSuchCampaign, match="there are: front"):
            Campaign.open(name, store=store_url)


def test_the_store_may_come_from_the_environment(sqlite_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOFN_STORE", sqlite_store)
    Campaign.create("front", NAMES, 3)
    assert Campaign.open("front").name == "front"
    assert [each.name for each in campaigns(sqlite_store)] == ["front"]


def test_the_same_seed_gives_the_same_plans(sqlite_store: str) -> None:
    """What is drawn from them is random: many processes draw from the same plan."""
    campaigns = [create(sqlite_store, name) for name in ("one", "two")]
    for step in range(20):
        for each in campaigns:
            each.reward_total([step % 6, 6, 7], 30, 150.0 + step)
    one, two = (each.insight() for each in campaigns)
    assert one.updates > 5
    assert (one.plan, one.arms) == (two.plan, two.arms)
