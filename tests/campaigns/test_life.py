"""A campaign over its life: expiry, arms added and retired, pause, ship and stop, compaction, export and import."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import select

import kofn
from kofn import Campaign
from kofn.campaigns import Decision, Rewarded, campaigns
from kofn.campaigns.records.transaction import MAX_EVENTS
from kofn.campaigns.store.schema import BATCHES, CAMPAIGNS, OF_CAMPAIGN, PLANS
from tests.campaigns.tools import NAMES, Clock, checked, create, play, rewards_for
from tests.cases import for_each, postgres_is_slow


@pytest.fixture
def campaign(store_url: str) -> Campaign:
    return create(store_url, expire_after=timedelta(minutes=1))


@pytest.fixture
def clock(campaign: Campaign) -> Clock:
    return Clock(campaign)


def plan_policy(store: str, **settings: Any) -> Campaign:
    """Create a campaign whose policy learns from its plan only."""
    return create(store, policy="cmab-sm", params={"horizon": 10**6, "resolution": 0.3}, **settings)


# Expiry.


def test_what_expires_is_planned_again(store_url: str) -> None:
    campaign = plan_policy(store_url, expire_after=60)
    clock = Clock(campaign)
    plays = kofn.CMABSM(8, 3, 10**6, resolution=0.3).plan().plays
    first = campaign.decide(plays)
    campaign.rewards(rewards_for(first[:10]))
    clock.wait(59)
    campaign.expire()
    assert campaign.summary().in_flight == plays - 10
    clock.wait(1)
    second = campaign.decide(plays - 10)
    assert campaign.summary().expired == campaign.summary().in_flight == plays - 10
    assert sorted(each.subset for each in second) == sorted(each.subset for each in first[10:])
    checked(campaign)
    campaign.rewards(rewards_for(second))
    assert campaign.insight().updates == 1
    checked(campaign)


@postgres_is_slow
def test_a_late_reward_still_counts_and_what_took_its_place_is_not_lost(store_url: str) -> None:
    for campaign in (plan_policy(store_url, name="one", expire_after=60), create(store_url, "two", expire_after=60)):
        clock = Clock(campaign)
        first = campaign.decide(40)
        clock.wait(61)
        second = campaign.decide(40)
        assert campaign.rewards(rewards_for(first)).accepted == 40
        assert campaign.summary().expired == 0
        checked(campaign)
        campaign.rewards(rewards_for(second))
        assert campaign.summary().rewards == 80
        assert campaign.summary().in_flight == 0
        assert sum(arm.plays for arm in campaign.insight().arms) == 3 * 80
        checked(campaign)


@postgres_is_slow
def test_part_of_a_batch_may_expire(campaign: Campaign, clock: Clock) -> None:
    play(campaign, 1_000, batch=100)
    decisions = campaign.decide(200)
    campaign.rewards(rewards_for(decisions[::2]))
    clock.wait(61)
    campaign.expire()
    assert campaign.summary().expired == 100
    assert {each.id for each in campaign.open_decisions(1_000)} == {each.id for each in decisions[1::2]}
    assert all(each.expired for each in campaign.open_decisions())
    checked(campaign)
    campaign.rewards(rewards_for(decisions))
    assert campaign.summary().expired == 0
    assert campaign.open_decisions() == []
    checked(campaign)


def test_open_decisions_are_the_newest_first_and_can_be_told(campaign: Campaign) -> None:
    decisions = campaign.decide(30)
    seen: list[Decision] = list(campaign.open_decisions(10))
    assert len(seen) == 10
    assert {each.id for each in seen} <= {each.id for each in decisions}
    assert not any(each.expired for each in campaign.open_decisions())
    assert campaign.rewards(rewards_for(seen)).accepted == 10


# Arms that are added and retired.


@postgres_is_slow
def test_a_new_arm_is_found_to_be_the_best(campaign: Campaign) -> None:
    play(campaign, 500, batch=50)
    before = campaign.decide(20)
    campaign.add_arm("i")
    assert campaign.arms == [*NAMES, "i"]
    assert campaign.best() == list("fgh")  # nothing is forgotten
    checked(campaign)
    campaign.rewards(rewards_for(before))
    play(campaign, 2_000, batch=50)
    assert campaign.best() == list("ghi")
    assert [arm.plays > 0 for arm in campaign.insight().arms] == [True] * 9
    checked(campaign)


@postgres_is_slow
def test_a_retired_arm_is_never_shown_again(campaign: Campaign) -> None:
    play(campaign, 1_000, batch=50)
    before = campaign.decide(40)
    assert any("h" in each.arms for each in before)
    campaign.retire_arm("h")
    assert campaign.best() == list("efg")
    checked(campaign)
    assert campaign.rewards(rewards_for(before)).accepted == 40  # counted, but ignored for learning
    assert campaign.summary().rewards == 1_040
    checked(campaign)
    play(campaign, 500, batch=50)
    after = campaign.decide(100)
    assert not any("h" in each.arms for each in after)
    insight = campaign.insight()
    assert insight.best == list("efg")
    assert [arm.name for arm in insight.arms if arm.retired] == ["h"]
    assert insight.arms[-1].plays > 0
    assert sum(arm.plays for arm in insight.arms) == 3 * campaign.summary().rewards
    checked(campaign)


@postgres_is_slow
def test_numbers_stay_when_arms_go(campaign: Campaign) -> None:
    play(campaign, 100, batch=50)
    campaign.retire_arm("a")
    campaign.add_arm("i")
    campaign.retire_arm("c")
    assert campaign.arms == list("bdefghi")
    for decision in campaign.decide(50):
        assert [*NAMES, "i"][decision.subset[0]] == decision.arms[0]
        assert not {0, 2} & set(decision.subset)
    campaign.reward_total(["b", "d", "i"], 5, 20.0)
    with pytest.raises(kofn.BadInput, match="no arm 'a'"):
        campaign.reward_total(["a", "d", "i"], 5, 20.0)
    with pytest.raises(kofn.BadInput, match="no arm 0"):
        campaign.reward_total([0, 3, 4], 5, 20.0)
    play(campaign, 1_000, batch=50)
    assert campaign.best() == list("ghi")
    checked(campaign)


def test_arms_that_cannot_come_or_go(campaign: Campaign, store_url: str) -> None:
    for name, message in (("a", "already has an arm 'a'"), ("", "one line"), ("x\n", "one line")):
        with pytest.raises(kofn.BadInput, match=message):
            campaign.add_arm(name)
    with pytest.raises(kofn.BadInput, match="no arm 'z' to retire"):
        campaign.retire_arm("z")
    for name in "abcd":
        campaign.retire_arm(name)
    with pytest.raises(kofn.BadInput, match="has 4 arms and needs more than k=3"):
        campaign.retire_arm("e")
    campaign.add_arm("a")
    assert campaign.arms == [*"efgh", "a"]
    with pytest.raises(kofn.BadInput, match="fixed set of arms"):
        plan_policy(store_url, name="other").add_arm("i")


# Pause, ship, stop and archive.


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
    for again in (campaign.pause, campaign.resume):
        with pytest.raises(kofn.NotRunning, match="is stopped, which is final"):
            again()
    campaign.stop()
    campaign.reward(decision.id, 3)
    assert len(campaign.best()) == 3


def test_a_deleted_campaign_leaves_nothing(campaign: Campaign, store_url: str) -> None:
    play(campaign, 100, batch=10)
    campaign.reward_total(NAMES[:3], 5, 20.0)
    other = create(store_url, "other")
    campaign.delete()
    assert [each.name for each in campaigns(store_url)] == ["other"]
    with other.store.read() as connection:
        for table in OF_CAMPAIGN:
            assert set(connection.execute(select(table.c.campaign)).scalars()) <= {other._id}
    for use in (campaign.decide, campaign.insight, campaign.delete, campaign.best, campaign.pause, campaign.export):
        with pytest.raises(kofn.NoSuchCampaign, match="deleted"):
            use()
    create(store_url).decide()  # a new one of that name is another
    with pytest.raises(kofn.NoSuchCampaign):
        campaign.decide()


# Compaction.


def test_answered_decisions_are_compacted(store_url: str) -> None:
    whole, small = create(store_url, "whole"), create(store_url, "small", keep_decisions=200)
    waiting = {campaign.name: campaign.decide(5) for campaign in (whole, small)}
    early = small.decide(2)
    small.rewards(rewards_for(early))
    whole.rewards(rewards_for(whole.decide(2)))
    for campaign in (whole, small):
        play(campaign, 1_500, batch=20)
        checked(campaign)
    with small.store.read() as connection:
        rows = {row.name: row for row in connection.execute(select(CAMPAIGNS))}
        batches = connection.execute(select(BATCHES.c.first).where(BATCHES.c.campaign == small._id)).scalars().all()
    assert rows["whole"].compacted == 0
    assert rows["small"].kept < 200 * 1.1 + 100 + 20
    assert rows["small"].kept + rows["small"].compacted == 1_502
    assert len(batches) < 300
    assert [each.plays for each in whole.insight().arms] == [each.plays for each in small.insight().arms]
    assert whole.insight().arms == small.insight().arms
    late = small.rewards(rewards_for(early))  # a late retry: these decisions are no longer stored
    assert late == Rewarded(0, 0, forgotten=2)
    assert small.rewards(rewards_for(waiting["small"])).accepted == 5
    assert small.summary().rewards == 1_507


def test_expired_decisions_are_forgotten_when_there_are_too_many(store_url: str) -> None:
    campaign = create(store_url, keep_decisions=100, expire_after=10)
    clock = Clock(campaign)
    first = campaign.decide(150)
    campaign.rewards(rewards_for(first[:10]))
    clock.wait(11)
    campaign.decide(150)
    clock.wait(11)
    campaign.expire()
    summary = campaign.summary()
    assert 100 <= summary.expired < 150
    waiting = campaign.open_decisions(1_000)
    assert len(waiting) == summary.expired
    gone = next(each for each in first[10:] if each.id not in {other.id for other in waiting})
    assert campaign.rewards(rewards_for([gone])) == Rewarded(0, 0, forgotten=1)  # never said to be recorded
    assert campaign.rewards(rewards_for(waiting)).accepted == len(waiting)
    assert campaign.summary().rewards == 10 + len(waiting)
    checked(campaign)


@postgres_is_slow
def test_the_history_grows_coarser_not_longer(
    campaign: Campaign, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 200
    monkeypatch.setattr("kofn.campaigns.records.transaction.MAX_POINTS", most)
    for _ in range(most + 30):
        clock.wait(0.25)
        decision = campaign.decide()
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


def test_events_are_limited(campaign: Campaign) -> None:
    for _ in range(MAX_EVENTS // 2 + 60):
        campaign.pause()
        campaign.resume()
    events = campaign.events(10 * MAX_EVENTS)
    assert MAX_EVENTS <= len(events) <= MAX_EVENTS + 100
    assert events[0].kind == "resumed"
    assert len(campaign.events(3)) == 3


# Export and import.


def busy(store: str) -> Campaign:
    """Create a campaign with rows in every table."""
    campaign = create(store, expire_after=3600)
    play(campaign, 300, batch=20)
    campaign.decide(7)
    campaign.retire_arm("a")
    campaign.add_arm("i")
    play(campaign, 100, batch=20)
    campaign.rewards(rewards_for(campaign.decide(30)[:11]))
    campaign.decide(400)
    campaign.reward_total(["b", "c", "d"], 4, 12.0, key="monday")
    return campaign


@pytest.fixture(scope="module")
def busy_store(module_store: str) -> tuple[str, str]:
    """A store with one busy campaign, and its export as JSON. Tests leave the store unchanged."""
    return module_store, json.dumps(busy(module_store).export(with_secret=True))


@postgres_is_slow
def test_an_imported_campaign_goes_on_where_it_was(store_url: str, sqlite_store: str) -> None:
    campaign = busy(store_url)
    exported = campaign.export(with_secret=True)
    text = json.dumps(exported, allow_nan=False)
    copy = Campaign.import_(json.loads(text), store=sqlite_store, name="copy")
    checked(copy)
    assert copy.insight().arms == campaign.insight().arms
    assert copy.history() == campaign.history()
    assert [event.message for event in copy.events()][1:] == [event.message for event in campaign.events()]
    waiting = campaign.open_decisions(1_000)
    assert copy.open_decisions(1_000) == waiting
    for each in (campaign, copy):
        assert each.rewards(rewards_for(waiting)).accepted == len(waiting)
        assert each.reward_total(["b", "c", "d"], 4, 12.0, key="monday").repeated == 4
    one, two = (each.export(with_secret=True) for each in (campaign, copy))
    assert (one["record"], one["played"]) == (two["record"], two["played"])
    theirs = copy.decide()  # a copy makes its own decisions
    campaign.decide()
    with pytest.raises(kofn.UnknownDecision):
        campaign.reward(theirs.id, 1)
    checked(campaign)
    checked(copy)


@postgres_is_slow
def test_an_import_does_not_take_the_place_of_another(store_url: str) -> None:
    exported = busy(store_url).export(with_secret=True)
    with pytest.raises(kofn.CampaignExists):
        Campaign.import_(exported, store=store_url)


def _set(exported: Any, path: str, value: Any) -> None:
    *names, last = path.split(".")
    for name in names:
        exported = exported[int(name) if isinstance(exported, list) else name]
    exported[int(last) if isinstance(exported, list) else last] = value


@for_each(
    "path, value",
    [
        ("kofn", "other"),
        ("format", 7),
        ("format", True),
        ("campaign", None),
        ("campaign.state", "sleeping"),
        ("campaign.secret", "xyz"),
        ("campaign.name", "a/b"),
        ("campaign.low", math.nan),
        ("campaign.low", -5.0),
        ("campaign.k", 4),
        ("campaign.decided", 3),
        ("campaign.decided", 2**70),
        ("campaign.slot_width", 0.0),
        ("campaign.expire_after", -1.0),
        ("names", ["a"]),
        ("names", "abcdefghi"),
        ("names.1", "c"),
        ("active", [0, 1]),
        ("active", [5, 4, 3, 2, 1]),
        ("active.0", 99),
        ("played", [1]),
        ("played.0", -1),
        ("record", {}),
        ("record.policy", "uniform"),
        ("record.state.updates", -1),
        ("origin", None),
        ("tables", {}),
        ("tables.batches.columns", ["first"]),
        ("tables.batches.rows.0", [1]),
        ("tables.batches.rows.0.0", "1"),
        ("tables.batches.rows.0.1", 10**6),
        ("tables.batches.rows.0.2", 10**6),
        ("tables.batches.rows.0.6", "1; DROP TABLE kofn_batches"),
        ("tables.batches.rows.0.6", "0,1,99"),
        ("tables.batches.rows.0.6", "3,2,1"),
        ("tables.rewards.rows.0.0", 10**9),
        ("tables.rewards.rows.0.2", 99.0),
        ("tables.rewards.rows.1", None),
        ("tables.rewards.rows", []),
        ("tables.plans.rows", []),
        ("tables.plans.rows.0.3", 10**6),
        ("tables.plans.rows.0.5", -1),
        ("tables.plans.rows.0.6", 1e9),
        ("tables.buckets.rows.0.0", -(2**62)),
        ("tables.totals.rows.0.0", 5),
        ("tables.events.rows.0.3", "\x00"),
        ("tables.events.rows.0.1", 1e300),
        ("tables.events.rows.0.0", 2),
        ("tables.batches.rows.0.7", -1.0),
        ("campaign.created", -1e9),
        ("campaign.version", 2**62),
        ("campaign.keep_decisions", 2**62),
        ("campaign.state", "shipped"),
        ("campaign.options", "{"),
        ("campaign.options", '{"control": [0, 1]}'),
        ("campaign.options", '{"control": [0, 1, 99]}'),
        ("campaign.options", '{"control_share": 2}'),
        ("campaign.options", '{"seed": -1}'),
        ("campaign.options", '{"other": 1}'),
        ("campaign.look", '{"ready": true}'),
        ("campaign.look", '{"plays": "x", "bound": null, "since": null, "ready": true, "reason": ""}'),
        ("campaign.options", '{"shipped": [["0", "1", "2"]]}'),
        ("campaign.options", '{"alarms": [["x"]]}'),
        ("campaign.learned_total", 1e300),
        ("tables.batches.rows.0.13", '{"a": NaN}'),
        ("tables.batches.rows.0.13", '{"a": "' + 5000 * "x" + '"}'),
        ("tables.batches.rows.0.12", 5000 * "x"),
        ("tables.estimates.rows.0.8", "no JSON"),
        ("tables.estimates.rows.0.8", '{"99": 1}'),
        ("tables.estimates.rows.0.8", '{"1": NaN}'),
        ("tables.estimates.rows.0.0", 2),
        ("campaign.control_rewarded", -1),
        ("campaign.control_total", 1.0),
        ("tables.batches.rows.0.10", 3),
        ("tables.batches.rows.0.11", 2.0),
        ("tables.batches.rows.0.13", "[1]"),
        ("tables.buckets.rows.0.4", -1.0),
        ("tables.estimates.rows.0.7", "0,99"),
    ],
)
def test_an_unsound_import_is_refused(busy_store: tuple[str, str], path: str, value: Any) -> None:
    store, text = busy_store
    exported = json.loads(text)
    _set(exported, path, value)
    with pytest.raises(kofn.BadInput):
        Campaign.import_(exported, store=store, name="a/b" if path == "campaign.name" else "copy")
    assert [each.name for each in campaigns(store)] == ["front"]


def test_the_same_import_without_a_change_is_accepted(busy_store: tuple[str, str], sqlite_store: str) -> None:
    """So that each refusal above is due to its change."""
    checked(Campaign.import_(json.loads(busy_store[1]), store=sqlite_store))


@pytest.mark.parametrize("thing", [None, [], {}, {"kofn": "exported campaign", "format": 1}, "x"])
def test_what_is_no_export_is_refused(sqlite_store: str, thing: Any) -> None:
    with pytest.raises(kofn.BadRecord):
        Campaign.import_(thing, store=sqlite_store)


def test_no_row_of_the_plan_is_left_behind(campaign: Campaign) -> None:
    play(campaign, 500, batch=25)
    with campaign.store.read() as connection:
        rows = connection.execute(select(PLANS.c.row)).scalars().all()
    assert len(rows) < 200
