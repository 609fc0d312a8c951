"""Who gets which subset: control, shipped subsets, sticky keys; what learning was worth; rewards as they are."""

from __future__ import annotations

import json
import math
from concurrent.futures import Future
from datetime import timedelta
from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import kofn
from kofn import Campaign
from kofn.campaigns.allocation import GROUPS
from kofn.campaigns.decide import SHIPPED_FOR
from tests.campaigns.tools import NAMES, Clock, checked, create, play, rewards_for
from tests.cases import postgres_is_slow

CONTROL = ["a", "b", "c"]


def in_group(campaign: Campaign, plays: int, group: str) -> list[kofn.core.Subset]:
    return [each.subset for each in campaign.decide(plays) if each.group == group]


# Control.


@postgres_is_slow
def test_the_control_gets_its_share(store_url: str) -> None:
    campaign = create(store_url, control=CONTROL, control_share=0.2)
    decisions = campaign.decide(3_000)
    control = [each for each in decisions if each.group == "control"]
    least, most = binom.interval(1 - 1e-6, 3_000, 0.2)
    assert least <= len(control) <= most
    assert {tuple(each.arms) for each in control} == {tuple(CONTROL)}
    assert {each.group for each in decisions} == {"learned", "control"}
    campaign.rewards(rewards_for(decisions))
    found = campaign.insight()
    assert found.lift is not None
    assert found.sample_ratio is not None
    assert (found.lift.plays_learned, found.lift.plays_control) == (3_000 - len(control), len(control))
    assert found.lift.control is not None
    assert found.lift.learned is not None
    earned = rewards_for(control)
    assert found.lift.control.mean == pytest.approx(sum(earned.values()) / len(earned), rel=1e-12)
    assert found.sample_ratio.observed == len(control) / 3_000
    checked(campaign)


def test_control_plays_teach_the_policy(sqlite_store: str) -> None:
    campaign = create(sqlite_store, control=CONTROL, control_share=0.5)
    decisions = campaign.decide(2)
    while not any(each.group == "control" for each in decisions):
        decisions = campaign.decide(2)
    played = {arm.name: arm.plays for arm in campaign.insight().arms}
    control = next(each for each in decisions if each.group == "control")
    campaign.reward(control.id, 1.0)
    with campaign._read() as tx:
        assert tx.row.observed == 1
    now = {arm.name: arm.plays for arm in campaign.insight().arms}
    assert {name for name in NAMES if now[name] > played[name]} == set(control.arms)


def test_uniform_control_plays_all_subsets_alike(sqlite_store: str) -> None:
    campaign = create(sqlite_store, control="uniform", control_share=0.5)
    subsets = [subset for _ in range(4) for subset in in_group(campaign, 1_000, "control")]
    seen = np.bincount(np.ravel(subsets), minlength=8)
    deviations = (seen - len(subsets) * 3 / 8) / math.sqrt(len(subsets) * 3 / 8 * 5 / 8)
    assert np.abs(deviations).max() < 5
    assert len(set(subsets)) == math.comb(8, 3)


def test_the_same_seed_gives_the_control_the_same_decisions(sqlite_store: str) -> None:
    groups = []
    for name in "xyz":
        campaign = create(sqlite_store, name, control=CONTROL, control_share=0.3, seed=7 if name < "z" else 8)
        groups.append([campaign.decide().group for _ in range(60)])
    assert groups[0] == groups[1] != groups[2]


def test_a_key_is_always_in_the_same_group(sqlite_store: str) -> None:
    one, two = (create(sqlite_store, name, control=CONTROL, control_share=0.5) for name in "xy")
    two.decide(5)
    keys = [f"visitor-{number}" for number in range(40)]
    assert [one.decide(key=key).group for key in keys] == [two.decide(key=key).group for key in keys]


@postgres_is_slow
def test_a_new_control_starts_a_new_comparison(store_url: str) -> None:
    campaign = create(store_url, control=CONTROL, control_share=0.5)
    late = campaign.decide(40)
    play(campaign, 200, batch=20)
    campaign.configure(control=["f", "g", "h"])
    campaign.rewards(rewards_for(late))
    found = campaign.insight().lift
    assert found is not None
    assert (found.plays_learned, found.plays_control) == (0, 0)
    play(campaign, 100, batch=20)
    found = campaign.insight().lift
    assert found is not None
    assert found.plays_learned + found.plays_control == 100
    campaign.configure(control=None)
    assert campaign.insight().lift is None
    assert {each.group for each in campaign.decide(100)} == {"learned"}
    checked(campaign)


def test_the_propensity_is_that_of_the_mixture(sqlite_store: str) -> None:
    campaign = create(sqlite_store, control=CONTROL, control_share=0.25)
    play(campaign, 600, batch=20)
    with campaign._read() as tx:
        plan = dict(tx.snapshot.policy.plan())
    total = sum(plan.values())
    campaign.decide(total)
    new = [each for each in campaign.decisions() if each.reward is None]
    for each in new:
        expected = 0.75 * plan.get(each.subset, 0) / total + 0.25 * (each.arms == CONTROL)
        assert each.propensity == (pytest.approx(expected) if expected else None)
    assert {each.group for each in new} == {"learned", "control"}


def test_lift_is_claimed_where_it_is_and_the_breaker_trips_where_it_is_not(sqlite_store: str) -> None:
    good = create(sqlite_store, "good", control=CONTROL, control_share=0.3, breaker=True)
    play(good, 2_000, batch=50)
    found = good.insight().lift
    assert found is not None
    assert found.claimed
    assert good.state == "running"
    bad = create(sqlite_store, "bad", control=["f", "g", "h"], control_share=0.3, breaker=True)
    for number in count():
        decisions = bad.decide(50)
        bad.rewards({each.id: 6.0 * (each.group == "control") + number % 2 for each in decisions})
        if bad.state == "shipped":
            break
        assert number < 100
    assert bad.insight().shipped == ["f", "g", "h"]
    assert [event.kind for event in bad.events()][:2] == ["shipped", "breaker"]
    assert {tuple(each.arms) for each in bad.decide(20)} == {("f", "g", "h")}


# Ready and shipped.


@postgres_is_slow
def test_a_campaign_becomes_ready_and_ships_by_itself(store_url: str) -> None:
    campaign = create(store_url, stop_when="loss<0.2", ship_when_ready=True, unit="EUR")
    stop = campaign.insight().stop
    assert stop is not None
    assert not stop.ready
    assert stop.threshold == 0.2
    while campaign.state == "running":
        play(campaign, 100, batch=50)
        assert campaign.summary().plays < 50_000
    assert campaign.insight().shipped == ["f", "g", "h"]
    stop = campaign.insight().stop
    assert stop is not None
    assert stop.ready
    assert stop.bound is not None
    assert stop.bound < 0.2
    assert {"ready", "shipped"} <= {event.kind for event in campaign.events()}
    checked(campaign)


def test_a_ready_campaign_goes_on_unless_it_is_told_to_ship(sqlite_store: str) -> None:
    campaign = create(sqlite_store, stop_when="value<2000 over 10000")
    while not (campaign.insight().stop or pytest.fail("no stop rule")).ready:
        play(campaign, 200, batch=50)
    assert campaign.state == "running"
    assert sum(event.kind == "ready" for event in campaign.events()) == 1


@postgres_is_slow
def test_a_shipped_campaign_serves_the_winner_and_counts_rewards(store_url: str) -> None:
    campaign = create(store_url)
    play(campaign, 300, batch=20)
    best, before = campaign.best(), campaign.summary()
    campaign.ship()
    decisions = campaign.decide(30)
    assert {(tuple(each.arms), each.group) for each in decisions} == {(tuple(best), "shipped")}
    assert {each.propensity for each in list(campaign.decisions())[-30:]} == {1.0}
    campaign.rewards(rewards_for(decisions))
    assert campaign.summary().rewards == before.rewards + 30
    checked(campaign)
    campaign.resume()
    assert {each.group for each in campaign.decide(20)} == {"learned"}
    campaign.ship(["a", "b", "c"])
    assert campaign.decide().arms == ["a", "b", "c"] == campaign.insight().shipped
    events = campaign.events()
    campaign.ship(["a", "b", "c"])  # the second time, nothing changes
    assert campaign.events() == events
    campaign.ship(["a", "b", "c"], store=False)
    assert campaign.events()[0].number == events[0].number + 1
    campaign.ship(["a", "b", "c"])
    with pytest.raises(kofn.BadInput, match="it is in a subset that was shipped"):
        campaign.retire_arm("a")
    campaign.stop()
    with pytest.raises(kofn.NotRunning, match="is stopped"):
        campaign.ship()


@postgres_is_slow
def test_decisions_of_a_shipped_campaign_need_not_be_stored(store_url: str) -> None:
    campaign = create(store_url)
    clock = Clock(campaign)
    play(campaign, 300, batch=20)
    campaign.ship(store=False)
    campaign.decide()
    before = campaign.summary()
    with pytest.MonkeyPatch.context() as patched:  # the store is not asked at all
        patched.setattr("kofn.campaigns.records.transaction.run", lambda *_: pytest.fail("it asked the store"))
        decisions = campaign.decide(50)
        for wrong in ({"key": ""}, {"key": 7}, {"metadata": [1]}, {"metadata": {"a": "x" * 3000}}):
            with pytest.raises(kofn.BadInput, match=r"key must be|metadata must be"):
                campaign.decide(**wrong)
            with pytest.raises(kofn.BadInput, match=r"key must be|metadata must be"):
                campaign.submit_decide(Future(), 1, **wrong)
    assert campaign.summary() == before
    assert len({each.id for each in decisions}) == 50
    other = Campaign.open("front", store=store_url)
    other.store.clock = campaign.store.clock
    assert other.reward(decisions[0].id, 3.0).accepted == 1
    assert campaign.reward(decisions[0].id, 3.0).repeated == 1
    with pytest.raises(kofn.Conflict, match="already has the reward 3"):
        campaign.reward(decisions[0].id, 4.0)
    assert campaign.rewards({each.id: 1.0 for each in decisions[1:20]}).accepted == 19
    after = campaign.summary()
    assert (after.plays, after.rewards) == (before.plays + 20, before.rewards + 20)
    assert (after.in_flight, after.expired) == (before.in_flight, before.expired)
    checked(campaign)
    with pytest.raises(kofn.UnknownDecision):
        campaign.reward(decisions[0].id[:-1] + ("0" if decisions[0].id[-1] != "0" else "1"), 3.0)
    clock.wait(8 * 24 * 3600)
    assert campaign.reward(decisions[30].id, 1.0).forgotten == 1


def test_another_process_ends_unstored_decisions_within_a_second(sqlite_store: str) -> None:
    campaign, other = create(sqlite_store), Campaign.open("front", store=sqlite_store)
    clock = Clock(campaign)
    campaign.ship(["a", "b", "c"], store=False)
    assert campaign.decide().group == "shipped"
    other.resume()
    assert campaign.decide().group == "shipped"
    clock.wait(SHIPPED_FOR)
    assert campaign.decide().group == "learned"


def test_an_archived_campaign_takes_nothing_and_is_not_listed(store_url: str) -> None:
    campaign = create(store_url)
    decision = campaign.decide()
    campaign.archive()
    for call in (campaign.decide, lambda: campaign.reward(decision.id, 1.0), campaign.resume, campaign.ship):
        with pytest.raises(kofn.NotRunning, match="is archived"):
            call()
    with pytest.raises(kofn.NotRunning, match="is archived"):
        campaign.reward_total(CONTROL, 2, 3.0)
    from kofn.campaigns.reports.listing import list_page

    assert list_page(campaign.store, limit=10).summaries == []
    assert [each.name for each in list_page(campaign.store, limit=10, state="archived").summaries] == ["front"]
    checked(campaign)


# Sticky keys and metadata.


def test_a_sticky_key_gets_new_decisions_of_a_shipped_campaign(sqlite_store: str) -> None:
    """The simulator found it: a visitor got the decision back that had a reward, and the next reward was refused."""
    campaign = create(sqlite_store, sticky=60.0)
    first = campaign.decide(key="ann")
    campaign.reward(first.id, 1.0)
    campaign.ship(first.arms)
    second = campaign.decide(key="ann")
    assert second.id != first.id
    assert (second.arms, second.group) == (first.arms, "shipped")
    assert campaign.decide(key="ann").id == second.id  # a repeated call, before there is a reward
    assert campaign.reward(second.id, 0.0).accepted == 1
    checked(campaign)


@postgres_is_slow
def test_a_sticky_key_keeps_its_arms(store_url: str) -> None:
    campaign = create(store_url, sticky=timedelta(days=1))
    clock = Clock(campaign)
    play(campaign, 100, batch=20)
    first = campaign.decide(key="visitor-42")
    assert campaign.decide(key="visitor-42") == first  # a retry
    campaign.reward(first.id, 1.0)
    play(campaign, 300, batch=20)
    clock.wait(3600)
    second = campaign.decide(key="visitor-42")
    assert second.id != first.id
    assert second.arms == first.arms
    assert campaign.decide(key="visitor-42") == second
    campaign.reward(second.id, 2.0)
    checked(campaign)
    campaign.retire_arm(second.arms[0])
    assert second.arms[0] not in campaign.decide(key="visitor-42").arms


def test_stickiness_ends(sqlite_store: str) -> None:
    campaign = create(sqlite_store, sticky=60)
    clock = Clock(campaign)
    arms = set()
    for _ in range(12):
        decision = campaign.decide(key="visitor-42")
        campaign.reward(decision.id, 1.0)
        clock.wait(61)
        arms.add(tuple(decision.arms))
    assert len(arms) > 1


def test_without_stickiness_a_key_has_one_decision(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    first = campaign.decide(key="order-1")
    campaign.reward(first.id, 1.0)
    assert campaign.decide(key="order-1") == first


def test_metadata_keys_and_rewards_come_back(store_url: str) -> None:
    campaign = create(store_url)
    decisions = campaign.decide(3, key="visitor-42", metadata={"page": "home", "n": [1, 2]})
    campaign.reward(decisions[1].id, 2.5)
    found = {each.id: each for each in campaign.decisions()}
    assert {each.id for each in decisions} == found.keys()
    for each in decisions:
        logged = found[each.id]
        assert (logged.arms, logged.subset, logged.at, logged.group) == (each.arms, each.subset, each.at, "learned")
        assert (logged.key, logged.metadata) == ("visitor-42", {"page": "home", "n": [1, 2]})
        assert logged.reward == (2.5 if each.id == decisions[1].id else None)
        assert (logged.rewarded_at is None) == (logged.reward is None)
    for wrong in ([1], "x", {"x": object()}, {"x": math.nan}, {"x": "y" * 2000}):
        with pytest.raises(kofn.BadInput, match="metadata must be"):
            campaign.decide(metadata=wrong)  # type: ignore[arg-type]


def test_all_decisions_come_in_order_whatever_their_number(sqlite_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kofn.campaigns.reports.decisions.CHUNK", 3)
    campaign = create(sqlite_store)
    made = [each.id for _ in range(20) for each in campaign.decide(5)]
    assert sorted(each.id for each in campaign.decisions()) == sorted(made)
    times = [each.at for each in campaign.decisions()]
    assert times == sorted(times)


# Rewards as they are.


@pytest.mark.parametrize("change", [{"reward_range": (0, 50)}, {"outside": "refuse"}, {"outside": "widen"}])
def test_a_clipped_reward_can_be_repeated_after_the_range_has_changed(sqlite_store: str, change: Any) -> None:
    campaign = create(sqlite_store, outside="clip", reward_range=(0, 40))
    decision, other = campaign.decide(2)
    campaign.rewards({decision.id: 41.0, other.id: 7.0})
    for settings in (change, {"reward_range": (-1, 60)}):
        campaign.configure(**settings)
        again = campaign.rewards({decision.id: 41.0, other.id: 7.0})
        assert (again.accepted, again.repeated) == (0, 2)
        with pytest.raises(kofn.Conflict, match="already has the reward 40; got 39"):
            campaign.reward(decision.id, 39.0)
    copy = Campaign.import_(campaign.export(with_secret=True), store=sqlite_store, name="copy")
    assert copy.reward(decision.id, 41.0).repeated == 1


def test_rewards_outside_the_range_can_be_clipped(store_url: str) -> None:
    campaign = create(store_url, outside="clip")
    decisions = campaign.decide(4)
    values = dict(zip((each.id for each in decisions), (41.0, -3.0, math.inf, 5.0), strict=True))
    assert campaign.rewards(values).accepted == 4
    assert campaign.rewards(values).repeated == 4
    assert sorted(each.reward for each in campaign.decisions() if each.reward is not None) == [0.0, 5.0, 12.0, 12.0]
    assert campaign.insight().clipped == 3
    with pytest.raises(kofn.BadReward):
        campaign.reward(campaign.decide().id, math.nan)
    checked(campaign)


def test_one_bad_reward_can_be_left_out(store_url: str) -> None:
    campaign = create(store_url)
    decisions = campaign.decide(5)
    campaign.reward(decisions[4].id, 2.0)
    given: list[tuple[Any, Any]] = [(each.id, 1.0) for each in decisions[:2]]
    given += [(decisions[2].id, 41.0), ("nonsense", 1.0), (decisions[3].id, "x"), (decisions[4].id, 3.0)]
    with pytest.raises(kofn.KofnError):
        campaign.rewards(given)
    assert campaign.summary().rewards == 1
    done = campaign.rewards(given, partial=True)
    assert (done.accepted, done.repeated, done.forgotten) == (2, 0, 0)
    assert [each.id for each in done.refused] == ["nonsense", decisions[3].id, decisions[2].id, decisions[4].id]
    assert "between 0 and 12" in done.refused[2].reason
    assert done.refused[2].reason.endswith("Set outside='clip' to clip such rewards, or widen reward_range")
    assert "already has the reward 2" in done.refused[3].reason
    again = campaign.rewards(given, partial=True)
    assert (again.accepted, again.repeated, len(again.refused)) == (0, 2, 4)
    checked(campaign)


@postgres_is_slow
def test_the_range_can_be_widened_and_keeps_what_was_learned(store_url: str) -> None:
    campaign = create(store_url)
    play(campaign, 1_000, batch=50)
    before = campaign.insight()
    campaign.configure(reward_range=(-10, 100))
    after = campaign.insight()
    assert after.best == before.best
    assert after.value == pytest.approx(before.value, rel=0.05)
    assert campaign.summary().reward_range == (-10, 100)
    play(campaign, 200, batch=50)
    assert campaign.reward(campaign.decide().id, 99.0).accepted == 1
    with pytest.raises(kofn.BadInput, match="can be widened only"):
        campaign.configure(reward_range=(0, 100))
    assert campaign.verify().ok


@postgres_is_slow
def test_the_range_can_be_learned(store_url: str) -> None:
    campaign = create(store_url, reward_range=None)
    for batch in range(20):
        decisions = campaign.decide(50)
        scale = 1 if batch < 10 else -7
        campaign.rewards({id: scale * value for id, value in rewards_for(decisions).items()})
    low, high = campaign.summary().reward_range
    assert low < -84
    assert high > 12
    assert sum(event.kind == "changed" for event in campaign.events()) <= 8
    assert campaign.verify().ok
    campaign.reward_total(["a", "b", "c"], 10, 5_000.0, 3_000_000.0)
    assert campaign.summary().reward_range[1] > 600
    assert campaign.verify().ok


def test_a_policy_that_needs_a_range_says_so(sqlite_store: str) -> None:
    with pytest.raises(kofn.BadInput, match="linear-thompson cannot change reward_range"):
        create(sqlite_store, policy="linear-thompson", reward_range=None)
    campaign = create(sqlite_store, policy="linear-thompson", outside="clip")
    assert campaign.reward(campaign.decide().id, 99.0).accepted == 1
    with pytest.raises(kofn.BadInput, match="use thompson"):
        campaign.configure(half_life=100)


# Settings, arms, estimates.


@postgres_is_slow
def test_settings_change_while_it_runs(store_url: str) -> None:
    campaign = create(store_url)
    play(campaign, 400, batch=20)
    changes: dict[str, Any] = {
        "half_life": 500,
        "sticky": 60.0,
        "outside": "clip",
        "stop_when": "loss<0.5",
        "unit": "EUR",
        "expire_after": 30.0,
        "keep_decisions": 10,
    }
    campaign.configure(**changes)
    settings = Campaign.open("front", store=store_url).settings()
    assert {name: getattr(settings, name) for name in changes} == changes
    play(campaign, 400, batch=20)
    campaign.configure(half_life=None)
    campaign.configure(guarantee=True)
    assert (campaign.settings().half_life, campaign.settings().guarantee) == (None, True)
    play(campaign, 400, batch=20)
    assert campaign.verify().ok


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"other": 1}, "there is no setting other; the settings are control,"),
        ({"control": ["a", "b"]}, "must have 3 different arms"),
        ({"control": "random"}, "control must be a list of 3 arms, 'uniform' or None"),
        ({"control_share": 1.0}, "control_share must be a number between 0 and 1"),
        ({"sticky": 0}, "sticky must be a timedelta"),
        ({"outside": "drop"}, "outside must be one of refuse, clip, widen"),
        ({"stop_when": "loss>1"}, r"a stop rule \(stop_when\) must be like"),
        ({"ship_when_ready": True}, "ship_when_ready needs a stop rule"),
        ({"breaker": True}, "a breaker needs a control"),
        ({"breaker": 1}, "breaker must be True or False"),
        ({"unit": "x" * 21}, "unit must be text of at most 20 characters"),
        ({"half_life": 0}, "half_life"),
        ({"half_life": 10, "guarantee": True}, "a guarantee holds only if"),
        ({"reward_range": (1, 0)}, "range"),
        ({"expire_after": -1}, "expire_after must be"),
        ({"keep_decisions": -1}, "keep_decisions"),
    ],
)
def test_wrong_settings_change_nothing(sqlite_store: str, settings: dict[str, Any], message: str) -> None:
    campaign = create(sqlite_store)
    before = campaign.export()
    with pytest.raises(kofn.BadInput, match=message):
        campaign.configure(**settings)
    assert campaign.export() == before
    if "half_life" not in settings and "reward_range" not in settings:
        with pytest.raises((kofn.BadInput, TypeError)):
            create(sqlite_store, "other", **settings)


@postgres_is_slow
def test_a_retired_arm_comes_back(store_url: str) -> None:
    campaign = create(store_url)
    play(campaign, 300, batch=20)
    old = campaign.decide(40)
    campaign.retire_arm("h")
    play(campaign, 100, batch=20)
    campaign.add_arm("h")
    assert [arm.name for arm in campaign.insight().arms] == [*"abcdefg", "h"]
    assert [event.kind for event in campaign.events()][:2] == ["arm back", "arm retired"]
    campaign.rewards(rewards_for(old))
    play(campaign, 2_000, batch=50)
    assert "h" in campaign.best()
    checked(campaign)
    assert Campaign.import_(json.loads(json.dumps(campaign.export())), store=store_url, name="copy").verify().ok


def test_an_arm_of_the_control_is_not_retired(sqlite_store: str) -> None:
    campaign = create(sqlite_store, control=CONTROL)
    with pytest.raises(kofn.BadInput, match=r"it is in the control\. Change the control first"):
        campaign.retire_arm("a")


def test_estimates_are_kept_over_time(store_url: str) -> None:
    campaign = create(store_url)
    play(campaign, 1_000, batch=20)
    found = campaign.estimates(arms=NAMES)
    insight = campaign.insight()
    assert len(found) >= 5
    assert [each.rewards for each in found] == sorted(each.rewards for each in found)
    assert (found[-1].expected_loss, found[-1].value) == (insight.expected_loss, insight.value)
    assert found[-1].effects.keys() == set(NAMES)
    assert found[-1].best == insight.best
    assert (found[-1].expected_loss or 0.0) < (found[0].expected_loss or 0.0)
    assert {each.lift for each in found} == {None}
    assert [each.effects for each in campaign.estimates(arms=["a"])] == [{"a": each.effects["a"]} for each in found]
    assert not any(each.effects for each in campaign.estimates())
    with pytest.raises(kofn.BadInput, match="there is no arm 'z'"):
        campaign.estimates(arms=["z"])
    few = campaign.estimates(4)
    assert (few[0].rewards, few[-1].rewards, len(few)) == (found[0].rewards, found[-1].rewards, 4)
    assert [each.rewards for each in campaign.estimates(1)] == [1_000]


@pytest.mark.parametrize("policy", ["thompson", "linear-thompson"])
@postgres_is_slow
def test_the_lift_is_kept_over_time(store_url: str, policy: str) -> None:
    campaign = create(store_url, policy=policy, control=CONTROL, control_share=0.3)
    for _ in range(8):
        play(campaign, 150, batch=10)
        lift, now = campaign.insight().lift, campaign.estimates()[-1]
        assert lift is not None
        assert (now.lift, now.lift_low, now.lift_high) == (lift.difference, lift.low, lift.high)
    found = campaign.estimates()
    assert len(found) >= 8
    assert all((each.expected_loss is None) == (policy == "linear-thompson") for each in found)
    known = [(each.lift, each.lift_low, each.lift_high) for each in found if each.lift is not None]
    assert len(known) >= len(found) - 2  # the first rewards may be those of one group
    assert all(low is not None and high is not None and low <= lift <= high for lift, low, high in known)
    copied = Campaign.import_(json.loads(json.dumps(campaign.export())), store=store_url, name="copy")
    assert copied.estimates()[:-1] == found[:-1]
    campaign.configure(control="uniform")  # a new comparison
    assert campaign.estimates()[: len(found) - 1] == found[:-1]
    play(campaign, 20, batch=10)
    assert campaign.estimates()[-1].lift != found[-1].lift


def test_estimates_are_written_when_much_has_changed(sqlite_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kofn.campaigns.learn.ESTIMATE_AGE", 1e9)
    campaign = create(sqlite_store, params={"half_life": 10})
    play(campaign, 1_000, batch=4)
    *kept, now = campaign.estimates()
    assert campaign.insight().updates > 5 * len(kept)
    assert all(later.rewards >= 1.2 * earlier.rewards for earlier, later in pairwise(kept))
    assert now.rewards == 1_000
    monkeypatch.setattr("kofn.campaigns.learn.ESTIMATE_AGE", 0.0)
    steps = campaign.insight().updates
    play(campaign, 100, batch=4)
    assert len(campaign.estimates()) >= len(kept) + campaign.insight().updates - steps


def test_estimates_are_thinned(sqlite_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kofn.campaigns.learn.MAX_ESTIMATES", 20)
    monkeypatch.setattr("kofn.campaigns.learn.ESTIMATE_AGE", 0.0)
    campaign = create(sqlite_store, params={"half_life": 10})
    play(campaign, 1_400, batch=4)
    steps = campaign.insight().updates
    assert steps > 200
    assert len(campaign.estimates()) <= 20 + 100
    assert campaign.estimates()[-1].rewards > 1_390


def test_groups_have_names() -> None:
    assert GROUPS == ("learned", "control", "shipped")


def test_an_export_without_the_secret_is_of_no_use_for_forging(store_url: str) -> None:
    campaign = create(store_url)
    play(campaign, 100, batch=20)
    decision = campaign.decide()
    with campaign._read() as tx:
        secret = tx.row.secret
    exported = json.dumps(campaign.export())
    assert secret not in exported
    copy = Campaign.import_(json.loads(exported), store=store_url, name="copy")
    with pytest.raises(kofn.UnknownDecision):
        copy.reward(decision.id, 1.0)
    assert copy.summary().in_flight == 0
    assert copy.summary().expired == 1
    moved = Campaign.import_(campaign.export(with_secret=True), store=store_url, name="moved")
    assert moved.reward(decision.id, 1.0).accepted == 1


# What an attack and a fresh user found.


@postgres_is_slow
def test_a_key_does_not_escape_what_was_shipped_paused_or_retired(store_url: str) -> None:
    campaign = create(store_url)
    play(campaign, 200, batch=20)
    old = campaign.decide(key="visitor-1")
    others = [arm for arm in NAMES if arm not in old.arms][:3]
    campaign.ship(others)
    shipped = campaign.decide(key="visitor-1")
    assert shipped.arms == others
    assert campaign.decide(key="visitor-1") == shipped
    campaign.pause()
    with pytest.raises(kofn.NotRunning, match="is paused"):
        campaign.decide(key="visitor-1")
    campaign.resume()
    campaign.retire_arm(others[0])
    assert others[0] not in campaign.decide(key="visitor-1").arms
    checked(campaign)


def test_the_order_of_many_decisions_says_nothing_about_their_group(sqlite_store: str) -> None:
    campaign = create(sqlite_store, control=CONTROL, control_share=0.3)
    groups = [[each.group for each in campaign.decide(10)] for _ in range(200)]
    by_position = [sum(group[position] == "control" for group in groups) for position in range(10)]
    least, most = binom.interval(1 - 1e-5, 200, 0.3)
    assert all(least <= count <= most for count in by_position)
    again = campaign.decide(10, key="mail")
    assert campaign.decide(10, key="mail") == again


def test_nothing_is_shipped_before_anything_is_known(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    with pytest.raises(kofn.BadInput, match="no best subset before the first reward"):
        campaign.ship()


def test_an_unstored_decision_counts_for_what_was_shown(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    campaign.ship(["a", "b", "c"], store=False)
    shown = campaign.decide()

    def restore(tx: Any) -> None:
        tx.changing()
        tx.row.options, tx.row.state = "{}", "running"

    campaign._write(restore)  # as if a backup had been restored
    campaign.ship(["f", "g", "h"], store=False)
    with pytest.raises(kofn.UnknownDecision, match="did not ship"):
        campaign.reward(shown.id, 1.0)


def test_an_unstored_decision_counts_once_also_after_compaction(store_url: str) -> None:
    campaign = create(store_url, keep_decisions=0)
    clock = Clock(campaign)
    campaign.ship(["a", "b", "c"], store=False)
    first = campaign.decide()
    assert campaign.reward(first.id, 1.0).accepted == 1
    for _ in range(150):
        clock.wait(1)
        campaign.reward(campaign.decide().id, 1.0)
    assert campaign.reward(first.id, 1.0) == kofn.campaigns.Rewarded(0, 0, 1)
    assert campaign.summary().rewards == 151
    assert campaign.verify().ok


def test_shipping_and_stopping_take_effect_at_once_in_the_same_process(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    clock = Clock(campaign)
    campaign.ship(["a", "b", "c"], store=False)
    assert campaign.decide().arms == ["a", "b", "c"]
    campaign.ship(["f", "g", "h"], store=False)
    assert campaign.decide().arms == ["f", "g", "h"]
    clock.wait(-3600)  # a clock that was set back does not keep it alive
    Campaign.open("front", store=campaign.store).stop()
    with pytest.raises(kofn.NotRunning):
        campaign.decide()


def test_a_sticky_key_does_not_carry_an_old_control_into_a_new_comparison(sqlite_store: str) -> None:
    campaign = create(sqlite_store, control=CONTROL, control_share=0.5, sticky=1e6)
    key = next(f"v{n}" for n in count() if campaign.decide(key=f"v{n}").group == "control")
    campaign.reward(campaign.decide(key=key).id, 1.0)
    campaign.configure(control=["f", "g", "h"])
    decision = campaign.decide(key=key)
    assert (decision.group, decision.arms) == ("control", ["f", "g", "h"])


def test_a_total_can_be_repeated_after_the_range_was_widened(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    assert campaign.reward_total(CONTROL, 10, 5.0, key="k").accepted == 10
    campaign.configure(reward_range=(0, 100))
    assert campaign.reward_total(CONTROL, 10, 5.0, key="k").repeated == 10


@pytest.mark.parametrize("wrong", [1e24, math.inf, -math.inf, 1e200])
def test_one_absurd_reward_does_not_become_the_range(sqlite_store: str, wrong: float) -> None:
    campaign = create(sqlite_store, reward_range=None)
    play(campaign, 100, batch=20)
    good, bad = campaign.decide(2)
    with pytest.raises(kofn.BadReward):
        campaign.reward(bad.id, wrong)
    done = campaign.rewards([(good.id, 1.0), (bad.id, wrong)], partial=True)
    assert (done.accepted, [each.id for each in done.refused]) == (1, [bad.id])
    with pytest.raises(kofn.KofnError):
        campaign.reward_total(CONTROL, 1, wrong)
    assert campaign.summary().reward_range[1] < 100


def test_an_archived_campaign_is_not_changed(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    campaign.archive()
    for change in (
        lambda: campaign.configure(unit="USD"),
        lambda: campaign.add_arm("x"),
        lambda: campaign.retire_arm("a"),
    ):
        with pytest.raises(kofn.NotRunning, match="is archived"):
            change()


def test_huge_rewards_have_a_lift(sqlite_store: str) -> None:
    campaign = create(sqlite_store, control=CONTROL, control_share=0.5, reward_range=(0, 1e139), breaker=True)
    for _ in range(5):
        campaign.rewards({each.id: 1e138 * (1 + (each.group == "learned")) for each in campaign.decide(20)})
    lift = campaign.insight().lift
    assert lift is not None
    assert lift.relative == pytest.approx(1.0)
