"""A campaign over its life: expiry, arms that come and go, states, what is kept, export and import."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import select

import kofn
from kofn import Campaign
from kofn.campaigns import Rewarded, campaigns
from kofn.campaigns.fold import MAX_JOURNAL
from kofn.campaigns.reports.listing import list_page
from kofn.campaigns.store.schema import DECISIONS, EVENTS, OF_CAMPAIGN
from tests.campaigns.tools import NAMES, Clock, checked, create, play, rewards_for
from tests.cases import for_each, postgres_is_slow


@pytest.fixture
def campaign(store_url: str) -> Campaign:
    return create(store_url, expire_after=timedelta(minutes=1))


@pytest.fixture
def clock(campaign: Campaign) -> Clock:
    return Clock(campaign)


# Expiry.


def test_a_late_reward_still_counts(campaign: Campaign, clock: Clock) -> None:
    first = campaign.decide(40)
    campaign.rewards(rewards_for(first[:10]))
    assert {each.id for each in campaign.open_decisions()} == {each.id for each in first[10:]}
    assert [each.id for each in campaign.open_decisions(5)] == [each.id for each in reversed(first[-5:])]
    clock.wait(61)
    second = campaign.decide(40)
    summary = campaign.summary()
    assert (summary.plays, summary.rewards, summary.in_flight, summary.expired) == (80, 10, 40, 30)
    assert {each.id for each in campaign.open_decisions() if each.expired} == {each.id for each in first[10:]}
    checked(campaign)
    assert campaign.rewards(rewards_for(first)) == Rewarded(30, 10)
    assert campaign.summary().expired == 0
    checked(campaign)
    campaign.rewards(rewards_for(second))
    summary = campaign.summary()
    assert (summary.plays, summary.rewards, summary.in_flight, summary.expired) == (80, 80, 0, 0)
    assert sum(arm.plays for arm in campaign.insight().arms) == 3 * 80
    assert campaign.open_decisions() == []
    checked(campaign)


# Arms.


@postgres_is_slow
def test_arms_come_and_go_and_keep_their_numbers(campaign: Campaign) -> None:
    play(campaign, 600, batch=50)
    assert campaign.best() == list("fgh")
    before = campaign.decide(40)
    assert any("h" in each.arms for each in before)
    campaign.retire_arm("h")
    campaign.retire_arm("a")
    assert not {"a", "h"} & set(campaign.best())  # at once
    campaign.add_arm("i")
    assert campaign.arms == list("bcdefgi")
    checked(campaign)
    assert campaign.rewards(rewards_for(before)) == Rewarded(40, 0)  # counted, but those of h teach nothing
    for _ in range(30):
        decisions = campaign.decide(50)
        for each in decisions:
            assert each.arms == [[*NAMES, "i"][arm] for arm in each.subset]
            assert not {0, 7} & set(each.subset)
        campaign.rewards(rewards_for(decisions))
    assert campaign.best() == list("fgi")
    assert campaign.reward_total(["b", "d", "i"], 5, 20.0).accepted == 5
    for unknown in (["a", "d", "i"], [0, 3, 4], ["d", "h", "i"]):
        with pytest.raises(kofn.BadInput, match="no arm"):
            campaign.reward_total(unknown, 5, 20.0)
    insight = campaign.insight()
    assert [arm.name for arm in insight.arms if arm.retired] == ["a", "h"]
    assert all(arm.plays > 0 for arm in insight.arms)
    assert sum(arm.plays for arm in insight.arms) == 3 * campaign.summary().rewards
    checked(campaign)


@postgres_is_slow
def test_a_retired_arm_comes_back_as_a_new_one(campaign: Campaign, store_url: str) -> None:
    play(campaign, 300, batch=20)
    old = campaign.decide(40)
    campaign.retire_arm("h")
    play(campaign, 100, batch=20)
    campaign.add_arm("h")
    assert [arm.name for arm in campaign.insight().arms] == [*"abcdefg", "h"]
    assert [event.kind for event in campaign.events() if event.kind != "learned"][:2] == ["arm back", "arm retired"]
    campaign.rewards(rewards_for(old))
    play(campaign, 1_500, batch=50)
    assert "h" in campaign.best()
    checked(campaign)
    assert Campaign.import_(json.loads(json.dumps(campaign.export())), store=store_url, name="copy").verify().ok


def test_arms_that_cannot_come_or_go(sqlite_store: str) -> None:
    campaign = create(sqlite_store, control=["e", "f", "g"])
    for name, message in (("a", "already has an arm 'a'"), ("", "one line"), ("x\n", "one line")):
        with pytest.raises(kofn.BadInput, match=message):
            campaign.add_arm(name)
    with pytest.raises(kofn.BadInput, match="no arm 'z' to retire"):
        campaign.retire_arm("z")
    with pytest.raises(kofn.BadInput, match=r"it is in the control\. Change the control first"):
        campaign.retire_arm("e")
    for name in "abcd":
        campaign.retire_arm(name)
    campaign.configure(control=None)
    with pytest.raises(kofn.BadInput, match="has 4 arms and needs more than k=3"):
        campaign.retire_arm("e")
    campaign.add_arm("a")
    assert campaign.arms == [*"efgh", "a"]
    other = create(sqlite_store, "other", policy="cmab-sm", params={"horizon": 10**6, "resolution": 0.3})
    with pytest.raises(kofn.BadInput, match="fixed set of arms"):
        other.add_arm("i")
    checked(other)


# States.


def test_a_paused_campaign_takes_rewards_only(campaign: Campaign) -> None:
    decisions = campaign.decide(10)
    campaign.pause()
    campaign.pause()
    assert campaign.state == "paused"
    with pytest.raises(kofn.NotRunning, match=r"'front' is paused: resume it"):
        campaign.decide()
    assert campaign.rewards(rewards_for(decisions)).accepted == 10
    campaign.resume()
    campaign.decide()
    assert [event.kind for event in campaign.events() if event.kind != "learned"] == ["resumed", "paused", "created"]


def test_a_stopped_campaign_stays_stopped(campaign: Campaign) -> None:
    decision = campaign.decide()
    campaign.stop()
    with pytest.raises(kofn.NotRunning, match="is stopped"):
        campaign.decide(3)
    for again in (campaign.pause, campaign.resume, campaign.ship):
        with pytest.raises(kofn.NotRunning, match="is stopped, which is final"):
            again()
    campaign.stop()
    campaign.reward(decision.id, 3)
    assert len(campaign.best()) == 3


def test_an_archived_campaign_takes_nothing_and_is_not_listed(campaign: Campaign) -> None:
    decision = campaign.decide()
    campaign.archive()
    for call in (
        campaign.decide,
        lambda: campaign.reward(decision.id, 1.0),
        lambda: campaign.record(decision.id, "returns", 1.0),
        lambda: campaign.reward_total(["a", "b", "c"], 2, 3.0),
        campaign.resume,
        campaign.ship,
        lambda: campaign.configure(unit="USD"),
        lambda: campaign.add_arm("x"),
        lambda: campaign.retire_arm("a"),
    ):
        with pytest.raises(kofn.NotRunning, match="is archived"):
            call()
    assert list_page(campaign.store, limit=10).summaries == []
    assert [each.name for each in list_page(campaign.store, limit=10, state="archived").summaries] == ["front"]
    checked(campaign)


def test_a_deleted_campaign_leaves_nothing(campaign: Campaign, store_url: str) -> None:
    play(campaign, 100, batch=10)
    campaign.reward_total(NAMES[:3], 5, 20.0)
    other = create(store_url, "other")
    campaign.delete()
    assert [each.name for each in campaigns(store_url)] == ["other"]
    with other.store.read() as connection:
        for table in OF_CAMPAIGN:
            assert set(connection.execute(select(table.c.campaign)).scalars()) <= {other._id}
    calls = (campaign.decide, campaign.insight, campaign.delete, campaign.best, campaign.pause, campaign.export)
    for use in (*calls, campaign.verify, campaign.learn, lambda: campaign.reward_total(NAMES[:3], 5, 20.0)):
        with pytest.raises(kofn.NoSuchCampaign, match="deleted"):
            use()
    create(store_url).decide()  # a new one of that name is another
    for use in calls:
        with pytest.raises(kofn.NoSuchCampaign):
            use()


# What is kept.


@postgres_is_slow
def test_settled_decisions_beyond_keep_decisions_are_deleted(store_url: str) -> None:
    campaign = create(store_url, keep_decisions=200)
    waiting = campaign.decide(5)
    early = campaign.decide(2)
    campaign.rewards(rewards_for(early))
    play(campaign, 1_500, batch=20)
    checked(campaign)
    assert campaign.verify().reason is not None
    with campaign.store.read() as connection:
        kept = set(connection.execute(select(DECISIONS.c.number)).scalars())
        events = set(connection.execute(select(EVENTS.c.decision)).scalars())
    assert 200 <= len(kept) <= 200 * 1.1 + 100 + 20 + 5
    assert events <= kept
    insight = campaign.insight()
    assert (insight.summary.plays, insight.summary.rewards, insight.summary.in_flight) == (1_507, 1_502, 5)
    assert sum(arm.plays for arm in insight.arms) == 3 * 1_502
    assert sum(point.plays for point in campaign.history()) == 1_507
    assert campaign.rewards(rewards_for(early)) == Rewarded(0, 0, forgotten=2)  # a late retry
    assert campaign.rewards(rewards_for(waiting)) == Rewarded(5, 0)
    assert campaign.summary().rewards == 1_507
    assert Campaign.import_(campaign.export(), store=store_url, name="copy").insight().arms == campaign.insight().arms


@pytest.mark.parametrize("window", [None, 10])
def test_decisions_that_nothing_was_reported_about_are_deleted_too(sqlite_store: str, window: float | None) -> None:
    campaign = create(sqlite_store, keep_decisions=100, expire_after=10, window=window)
    clock = Clock(campaign)
    first = campaign.decide(150)
    campaign.rewards(rewards_for(first[:10]))
    for _ in range(2):
        clock.wait(11)
        campaign.decide(150)
        campaign.learn()
    stored = {each.id for each in campaign.decisions()}
    assert 100 <= len(stored) < 300
    summary = campaign.summary()
    assert (summary.plays, summary.in_flight) == (450, 150)
    assert (summary.rewards, summary.expired) == ((300, 0) if window else (10, 290))
    gone = next(each for each in first[10:] if each.id not in stored)
    assert campaign.reward(gone, 1.0) == Rewarded(0, 0, forgotten=1)
    checked(campaign)


@postgres_is_slow
def test_the_history_grows_coarser_not_longer(
    campaign: Campaign, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 200
    monkeypatch.setattr("kofn.campaigns.fold.MAX_POINTS", most)
    for _ in range(most + 30):
        clock.wait(0.25)
        decision = campaign.decide()
        campaign.learn()
    campaign.reward(decision.id, 3.0)
    campaign.reward_total(NAMES[:3], 10, 50.0)
    points = campaign.history()
    assert most // 4 < len(points) <= most
    assert sum(point.plays for point in points) == most + 40 == points[-1].total_plays
    assert points[-1].rewards == points[-1].total_rewards == 11
    assert points[-1].mean == points[-1].average == pytest.approx(53 / 11)
    assert points[0].mean is None
    assert all(one.until <= two.at for one, two in pairwise(points))
    few = campaign.history(50)
    assert 12 < len(few) <= 50
    assert sum(point.plays for point in few) == most + 40
    with pytest.raises(kofn.BadInput):
        campaign.history(0)


def test_the_journal_is_limited(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    for _ in range(MAX_JOURNAL // 2 + 60):
        campaign.pause()
        campaign.resume()
    events = campaign.events(10 * MAX_JOURNAL)
    assert MAX_JOURNAL <= len(events) <= MAX_JOURNAL + 100
    assert events[0].kind == "resumed"
    assert len(campaign.events(3)) == 3


def test_learning_steps_are_merged(sqlite_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kofn.campaigns.fold.CHECKPOINT", 8)
    monkeypatch.setattr("kofn.campaigns.fold.MAX_STEPS", 16)
    campaign = create(sqlite_store, params={"half_life": 50})
    play(campaign, 400, batch=4)
    campaign.add_arm("i")
    play(campaign, 400, batch=4)
    assert campaign.insight().updates > 50
    steps = campaign.export()["tables"]["folds"]["rows"]
    assert 16 <= len(steps) <= 16 + 2 * 8
    checked(campaign)
    assert Campaign.import_(campaign.export(), store=sqlite_store, name="copy").best() == campaign.best()


# Export and import (test_transfer has more).


def test_an_export_without_the_secret_is_of_no_use_for_forging(store_url: str) -> None:
    campaign = create(store_url)
    play(campaign, 100, batch=20)
    decision = campaign.decide()
    moved = campaign.export(with_secret=True)
    exported = json.dumps(campaign.export())
    assert moved["campaign"]["secret"] not in exported
    copy = Campaign.import_(json.loads(exported), store=store_url, name="copy")
    with pytest.raises(kofn.UnknownDecision):
        copy.reward(decision.id, 1.0)
    assert Campaign.import_(moved, store=store_url, name="moved").reward(decision.id, 1.0).accepted == 1
    for wrong in ("not hexadecimal", "5ec4e7\n", ["5ec4e7"], "zz5ec4e7"):
        moved["campaign"]["secret"] = wrong
        with pytest.raises(kofn.BadRecord) as refused:
            Campaign.import_(moved, store=store_url, name="again")
        assert "5ec4e7" not in str(refused.value)
        assert "not hexa" not in str(refused.value)


@for_each("thing", [None, [], {}, {"kofn": "exported campaign", "format": 1}, "x"])
def test_what_is_no_export_is_refused(sqlite_store: str, thing: Any) -> None:
    with pytest.raises(kofn.BadRecord):
        Campaign.import_(thing, store=sqlite_store)
