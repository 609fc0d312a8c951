"""A campaign in one process: decisions, rewards, and what it reports."""

from __future__ import annotations

import math
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import Campaign
from kofn.campaigns import Decision, campaigns, store_at
from tests.campaigns.tools import NAMES, checked, create, play, rewards_for
from tests.cases import for_each, postgres_is_slow


def test_a_decision_has_k_different_arms_and_an_id_of_its_own(store_url: str) -> None:
    campaign = create(store_url)
    decisions = [campaign.decide(), *campaign.decide(50)]
    assert len({decision.id for decision in decisions}) == 51
    for decision in decisions:
        assert len(set(decision.arms)) == 3
        assert decision.arms == [NAMES[arm] for arm in decision.subset]
    assert campaign.summary().in_flight == 51
    checked(campaign)


def test_all_rows_of_the_plan_are_handed_out_before_any_filler(store_url: str) -> None:
    campaign = create(store_url, policy="cmab-sm", params={"horizon": 10**6, "resolution": 0.3})
    plan = kofn.CMABSM(8, 3, 10**6, resolution=0.3, seed=7).plan()
    planned = Counter(dict(plan))
    half = plan.plays // 2
    decisions = [
        *campaign.decide(half),
        *(campaign.decide() for _ in range(7)),
        *campaign.decide(plan.plays - half - 7),
    ]
    assert Counter(decision.subset for decision in decisions) == planned
    best = tuple(NAMES.index(name) for name in campaign.best())
    assert {decision.subset for decision in campaign.decide(5)} == {best}
    checked(campaign)


def test_single_decisions_go_through_the_rows_in_turn(store_url: str) -> None:
    campaign = create(store_url, policy="cmab-sm", params={"horizon": 10**6, "resolution": 0.3})
    rows = [subset for subset, _ in kofn.CMABSM(8, 3, 10**6, resolution=0.3, seed=7).plan()]
    assert [campaign.decide().subset for _ in range(2 * len(rows))] == rows + rows


@postgres_is_slow
def test_it_learns_and_says_what_it_knows(store_url: str) -> None:
    campaign = create(store_url)
    play(campaign, 2_000, batch=50)
    insight = campaign.insight()
    assert campaign.best() == insight.best == NAMES[-3:]
    assert insight.value is not None
    assert insight.gain == pytest.approx(insight.value - (insight.average or math.nan))
    assert insight.gain is not None
    assert insight.gain > 0
    assert insight.low is not None
    assert insight.high is not None
    assert insight.low < 12 * (18 / 21 + 50 / 505) / 1.2 < insight.high
    assert insight.probability_best is not None
    assert insight.probability_best > 0.9
    assert insight.updates > 10
    assert [arm.name for arm in insight.arms] == NAMES
    assert [arm.best for arm in insight.arms] == [False] * 5 + [True] * 3
    assert sum(arm.plays for arm in insight.arms) == 3 * 2_000
    assert insight.arms[7].plays > insight.arms[0].plays
    for arm in insight.arms:
        assert arm.effect is not None
        assert arm.low is not None
        assert arm.high is not None
        assert arm.low <= arm.effect <= arm.high
    assert insight.summary.rewards == 2_000
    assert insight.plan
    checked(campaign)


@postgres_is_slow
def test_costs_are_minimised_and_gains_are_still_good(store_url: str) -> None:
    campaign = create(store_url, direction="minimize")
    play(campaign, 2_000, batch=50)
    insight = campaign.insight()
    assert insight.best == NAMES[:3]
    assert insight.gain is not None
    assert insight.gain > 0
    assert insight.value is not None
    assert insight.average is not None
    assert insight.value < insight.average


def test_what_is_answered_is_plain_for_json(store_url: str) -> None:
    import json

    campaign = create(store_url)
    play(campaign, 200, batch=20)
    campaign.decide(3)
    answers: list[Any] = [campaign.insight(), campaign.summary(), campaign.decide(), *campaign.open_decisions()]
    answers += [*campaign.history(), *campaign.events()]
    for answer in answers:
        assert json.loads(json.dumps(answer.to_dict(), allow_nan=False)) == answer.to_dict()


# Rewards.


def test_a_reward_may_be_told_again_but_not_otherwise(store_url: str) -> None:
    campaign = create(store_url)
    decision = campaign.decide()
    assert campaign.reward(decision.id, 5).accepted == 1
    again = campaign.reward(decision.id, 5.0)
    assert (again.accepted, again.repeated) == (0, 1)
    with pytest.raises(kofn.Conflict, match=r"already has the reward 5; got 6"):
        campaign.reward(decision.id, 6)
    assert campaign.summary().rewards == 1
    checked(campaign)


def test_a_batch_is_taken_whole_or_not_at_all(store_url: str) -> None:
    campaign = create(store_url)
    first, *others = campaign.decide(6)
    campaign.reward(first.id, 1)
    before = campaign.export()
    good = {decision.id: 2.0 for decision in others}
    wrong: list[tuple[Any, type[kofn.KofnError], str]] = [
        ({**good, first.id: 2.0}, kofn.Conflict, "already has the reward 1"),
        ({**good, "nonsense": 2.0}, kofn.UnknownDecision, "'nonsense' is not a decision of this campaign"),
        ({**good, others[0].id[:-1] + "g": 2.0}, kofn.UnknownDecision, "is not a decision"),
        ({**good, others[0].id: math.nan}, kofn.BadReward, "one number"),
        ({**good, others[0].id: 12.5}, kofn.BadReward, "between 0 and 12"),
        ({**good, others[0].id: "3"}, kofn.BadReward, "one number"),
        ({**good, others[0].id: None}, kofn.BadReward, "one number"),
        ([*good.items(), (others[0].id, 3.0)], kofn.Conflict, "two rewards"),
        ([*good], kofn.BadInput, "pairs"),
        (5, kofn.BadInput, "pairs"),
        ([(7, 1.0)], kofn.UnknownDecision, "7 is not a decision"),
    ]
    for batch, error, message in wrong:
        with pytest.raises(error, match=message):
            campaign.rewards(batch)
        assert campaign.export() == before
    result = campaign.rewards([*good.items(), *good.items(), (first.id, 1.0)])
    assert (result.accepted, result.repeated) == (5, 1)
    assert campaign.rewards({}).accepted == 0
    checked(campaign)


def test_money_and_truth_are_numbers(store_url: str) -> None:
    campaign = create(store_url)
    values = [Decimal("1.25"), True, np.float32(2.5), np.int64(3), 4]
    decisions = campaign.decide(len(values))
    campaign.rewards([(each.id, value) for each, value in zip(decisions, values, strict=True)])  # type: ignore[misc]
    assert campaign.summary().mean == pytest.approx((1.25 + 1 + 2.5 + 3 + 4) / 5)
    for wrong in (Decimal("NaN"), Decimal("1e999"), 10**400, 1j, [1.0]):
        with pytest.raises(kofn.BadReward):
            campaign.reward(campaign.decide().id, wrong)  # type: ignore[arg-type]


def test_another_campaigns_decision_is_unknown(store_url: str) -> None:
    ours, theirs = create(store_url, "ours"), create(store_url, "theirs")
    decision = theirs.decide()
    ours.decide()
    with pytest.raises(kofn.UnknownDecision):
        ours.reward(decision.id, 1)


@postgres_is_slow
def test_rewards_in_any_order_and_much_later(store_url: str) -> None:
    campaign = create(store_url)
    rng = np.random.default_rng(3)
    in_flight: list[Decision] = []
    for _ in range(100):
        in_flight += campaign.decide(20)
        rng.shuffle(in_flight)
        now, in_flight = in_flight[:15], in_flight[15:]
        campaign.rewards(rewards_for(now))
    campaign.rewards(rewards_for(in_flight))
    assert campaign.summary().in_flight == 0
    assert campaign.summary().rewards == 2_000
    assert campaign.best() == NAMES[-3:]
    checked(campaign)


def test_a_policy_that_learns_from_its_plan_only_counts_the_rest(store_url: str) -> None:
    campaign = create(store_url, policy="cmab-sm", params={"horizon": 10**6, "resolution": 0.3})
    plan = kofn.CMABSM(8, 3, 10**6, resolution=0.3, seed=7).plan()
    first, fillers = campaign.decide(plan.plays), campaign.decide(30)
    campaign.rewards(rewards_for(fillers))
    assert campaign.summary().rewards == 30
    checked(campaign)
    campaign.rewards(rewards_for(first))
    assert campaign.insight().updates >= 1
    assert sum(arm.plays for arm in campaign.insight().arms) == 3 * (plan.plays + 30)
    checked(campaign)


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
    checked(campaign)


def test_a_total_with_a_key_counts_once(store_url: str) -> None:
    campaign = create(store_url)
    assert campaign.reward_total([0, 1, 2], 10, 50.0, key="monday").accepted == 10
    assert campaign.reward_total(NAMES[:3], 10, 50.0, key="monday").repeated == 10
    with pytest.raises(kofn.Conflict, match="monday"):
        campaign.reward_total([0, 1, 2], 11, 50.0, key="monday")
    assert campaign.summary().rewards == 10
    checked(campaign)


@pytest.mark.parametrize(
    ("arguments", "message"),
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
    before = campaign.export()
    with pytest.raises(kofn.BadInput, match=message):
        campaign.reward_total(*arguments)
    assert campaign.export() == before


def test_a_total_beyond_the_plan_is_refused_by_a_policy_that_cannot_learn_from_it(sqlite_store: str) -> None:
    campaign = create(sqlite_store, policy="cmab-sm", params={"horizon": 10**6, "resolution": 0.3})
    subset, times = next(iter(kofn.CMABSM(8, 3, 10**6, resolution=0.3, seed=7).plan()))
    with pytest.raises(kofn.BadTally, match="more than its plan has left"):
        campaign.reward_total(subset, times + 1, 1.0)
    campaign.reward_total(subset, times, 1.0)
    checked(campaign)


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
        ({"expire_after": 0}, "expire_after"),
        ({"expire_after": math.nan}, "expire_after"),
        ({"expire_after": timedelta(seconds=-1)}, "expire_after"),
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


def test_sql_in_names_is_a_name(store_url: str) -> None:
    arms = ["'; DROP TABLE kofn_campaigns; --", "<script>alert(1)</script>", '"', "%s", ":x", "?"]
    campaign = Campaign.create("it-s:fine", arms, 2, store=store_url)
    assert campaign.arms == arms
    campaign.rewards({decision.id: 1.0 for decision in campaign.decide(20)})
    assert [each.name for each in campaigns(store_url)] == ["it-s:fine"]


def test_the_store_may_come_from_the_environment(sqlite_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOFN_STORE", sqlite_store)
    Campaign.create("front", NAMES, 3)
    assert Campaign.open("front").name == "front"
    assert [each.name for each in campaigns(sqlite_store)] == ["front"]


@postgres_is_slow
def test_the_same_seed_gives_the_same_decisions(store_url: str) -> None:
    one, two = create(store_url, "one"), create(store_url, "two")
    for campaign in (one, two):
        play(campaign, 300, batch=10)
    assert [each.subset for each in one.decide(50)] == [each.subset for each in two.decide(50)]
    assert one.insight().arms == two.insight().arms
