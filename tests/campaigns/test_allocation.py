"""Who gets which subset: control, shipped subsets, keys; what it was worth, and what shipping will earn; settings."""

from __future__ import annotations

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
from kofn.campaigns import Decision, Rewarded, Store
from kofn.campaigns.evidence import Sums, lift
from kofn.campaigns.serving import MOST_PER_SOURCE, SHIPPED_FOR
from kofn.core.responses import Lift
from tests.campaigns.tools import NAMES, Clock, checked, create, play, rewards_for
from tests.cases import for_each, postgres_is_slow

CONTROL = ["a", "b", "c"]


def lift_of(campaign: Campaign) -> Lift:
    found = campaign.insight().lift
    assert found is not None
    return found


# The control.


@postgres_is_slow
def test_the_control_gets_its_share_and_is_compared_with(store_url: str) -> None:
    campaign = create(store_url, control=CONTROL, control_share=0.2)
    decisions = campaign.decide(3_000)
    groups = {name: [each for each in decisions if each.group == name] for name in ("learned", "control")}
    least, most = binom.interval(1 - 1e-6, 3_000, 0.2)
    assert least <= len(groups["control"]) <= most
    assert {tuple(each.arms) for each in groups["control"]} == {tuple(CONTROL)}
    campaign.rewards(rewards_for(decisions))
    found = campaign.insight()
    assert found.lift is not None
    assert found.sample_ratio is not None
    assert (found.lift.plays_learned, found.lift.plays_control) == tuple(map(len, groups.values()))
    for estimate, name in ((found.lift.learned, "learned"), (found.lift.control, "control")):
        assert estimate is not None
        assert estimate.mean == pytest.approx(np.mean(list(rewards_for(groups[name]).values())), rel=1e-12)
    assert found.sample_ratio.observed == len(groups["control"]) / 3_000
    assert sum(arm.plays for arm in found.arms) == 9_000  # plays of the control teach, too
    checked(campaign)


def test_uniform_control_plays_all_subsets_alike(sqlite_store: str) -> None:
    campaign = create(sqlite_store, control="uniform", control_share=0.5)
    subsets = [each.subset for each in campaign.decide(4_000) if each.group == "control"]
    seen = np.bincount(np.ravel(subsets), minlength=8)
    deviations = (seen - len(subsets) * 3 / 8) / math.sqrt(len(subsets) * 3 / 8 * 5 / 8)
    assert np.abs(deviations).max() < 5
    assert len(set(subsets)) == math.comb(8, 3)


def test_a_key_is_always_in_the_same_group(sqlite_store: str) -> None:
    keys = [f"visitor-{number}" for number in range(40)]
    groups: list[list[str]] = []
    for name in "xyz":
        campaign = create(sqlite_store, name, control=CONTROL, control_share=0.5, seed=7 if name < "z" else 8)
        campaign.decide(len(groups) + 1)
        groups.append([campaign.decide(key=key).group for key in keys])
    assert groups[0] == groups[1] != groups[2]  # it depends on the seed only


def test_the_order_of_many_decisions_says_nothing_about_their_group(sqlite_store: str) -> None:
    campaign = create(sqlite_store, control=CONTROL, control_share=0.3)
    groups = [[each.group for each in campaign.decide(10)] for _ in range(200)]
    by_position = [sum(group[position] == "control" for group in groups) for position in range(10)]
    least, most = binom.interval(1 - 1e-5, 200, 0.3)
    assert all(least <= number <= most for number in by_position)


@postgres_is_slow
def test_a_new_control_starts_a_new_comparison(store_url: str) -> None:
    campaign = create(store_url, control=CONTROL, control_share=0.5, sticky=1e6)
    late = campaign.decide(40)
    key = next(f"v{n}" for n in count() if campaign.decide(key=f"v{n}").group == "control")
    campaign.reward(campaign.decide(key=key), 1.0)
    play(campaign, 200, batch=20)
    campaign.configure(control=["f", "g", "h"])
    campaign.rewards(rewards_for(late))
    found = campaign.insight()
    assert (lift_of(campaign).plays_learned, lift_of(campaign).plays_control) == (0, 0)
    assert found.sample_ratio is not None
    assert found.sample_ratio.observed is None
    again = campaign.decide(key=key)
    assert (again.group, again.arms) == ("control", ["f", "g", "h"])  # not what the key had under the old one
    play(campaign, 100, batch=20)
    assert lift_of(campaign).plays_learned + lift_of(campaign).plays_control == 100
    campaign.configure(control=None)
    assert campaign.insight().lift is None
    assert {each.group for each in campaign.decide(100)} == {"learned"}
    checked(campaign)


def test_lift_is_claimed_where_it_is_and_the_breaker_trips_where_it_is_not(store_url: str) -> None:
    good = create(store_url, "good", control=CONTROL, control_share=0.3, breaker=True)
    play(good, 1_500, batch=100)
    assert lift_of(good).claimed
    assert good.state == "running"
    bad = create(store_url, "bad", control=["f", "g", "h"], control_share=0.3, breaker=True)
    for number in range(100):
        decisions = bad.decide(50)
        bad.rewards({each.id: 6.0 * (each.group == "control") + number % 2 for each in decisions})
        if bad.state == "shipped":
            break
    assert bad.insight().shipped == ["f", "g", "h"]
    assert [event.kind for event in bad.events()][:2] == ["shipped", "breaker"]
    assert {tuple(each.arms) for each in bad.decide(20)} == {("f", "g", "h")}


def test_one_visitor_does_not_decide_a_comparison(sqlite_store: str) -> None:
    """Of one address, a process compares MOST_PER_SOURCE decisions; all of them count otherwise."""
    campaign = create(sqlite_store, control=CONTROL, control_share=0.5, breaker=True)

    def decided(source: str | None, number: int) -> list[Decision]:
        found = []
        for _ in range(number):
            done: Future[list[Decision]] = Future()
            campaign.submit_decide(done, 1, source=source)
            found += done.result(30)
        return found

    campaign.rewards({each.id: 6.0 for source in range(300) for each in decided(f"10.0.0.{source}", 1)})
    for _ in range(5):
        evil = decided("127.0.0.1", 30)
        campaign.rewards({each.id: 12.0 * (each.group == "control") for each in evil})
    found = lift_of(campaign)
    assert found.plays_learned + found.plays_control == 300 + MOST_PER_SOURCE
    assert campaign.state == "running"
    assert campaign.summary().rewards == 450
    campaign.rewards({each.id: 6.0 for each in decided(None, 20)})  # of a server: without an address
    assert lift_of(campaign).plays_learned + lift_of(campaign).plays_control == 340
    checked(campaign)


def test_huge_rewards_have_a_lift(sqlite_store: str) -> None:
    campaign = create(sqlite_store, control=CONTROL, control_share=0.5, reward_range=(0, 1e139), breaker=True)
    for _ in range(5):
        campaign.rewards({each.id: 1e138 * (1 + (each.group == "learned")) for each in campaign.decide(20)})
    assert lift_of(campaign).relative == pytest.approx(1.0)


# The winner.


def winner_of(campaign: Campaign) -> kofn.core.responses.Winner:
    found = campaign.insight().winner
    assert found is not None
    return found


def test_the_winner_is_compared_by_its_own_plays_since_it_became_the_best(sqlite_store: str) -> None:
    campaign = create(sqlite_store, control=CONTROL, control_share=0.3, seed=8)
    assert campaign.insight().winner is None  # nothing is known
    clock = Clock(campaign)
    for step in range(30):
        made = campaign.decide(25 if step else 300)
        clock.wait(1)
        campaign.rewards(rewards_for(made))
    found = winner_of(campaign)
    assert found.arms == campaign.best() == ["f", "g", "h"]
    logged = list(campaign.decisions())
    own = [each for each in logged if each.group == "learned" and each.arms == found.arms and each.at >= found.since]
    control = [each for each in logged if each.group == "control"]
    assert 100 < len(own) < sum(each.arms == found.arms for each in logged)
    assert (found.lift.plays_learned, found.lift.plays_control) == (len(own), len(control))
    ours, theirs = (Sums.of(each.reward or 0.0 for each in some) for some in (own, control))
    expected = [
        lift(ours, theirs, reward_range=(0, 12), level=1 - 0.05 / (place * (place + 1))) for place in range(1, 41)
    ]
    assert found.lift in expected  # the j-th best subset has 0.05 / (j (j + 1)) of the errors
    plain = lift(ours, theirs, reward_range=(0, 12))
    assert found.lift.low is not None
    assert plain.low is not None
    assert found.lift.low < plain.low
    assert found.lift.claimed
    assert (found.lift.difference or 0) > (lift_of(campaign).difference or 0)  # which has all that was tried
    campaign.configure(control=["d", "e", "f"])
    assert campaign.insight().winner is None
    play(campaign, 200, batch=25)
    assert winner_of(campaign).lift.plays_control == lift_of(campaign).plays_control
    campaign.configure(control=None)
    assert campaign.insight().winner is None


@pytest.mark.slow
def test_a_winner_that_earns_no_more_is_rarely_claimed(sqlite_store: str) -> None:
    """All arms are equal, and the best subset changes often. If 5 % are wrong, 5 or more of 20 are with 0.3 %."""
    wrong = 0
    for number in range(20):
        campaign = create(sqlite_store, f"c{number}", control="uniform", control_share=0.3, reward_range=(0, 1))
        rng, claimed = np.random.default_rng(number), False
        for _ in range(25):
            campaign.rewards({each.id: float(rng.random() < 0.2) for each in campaign.decide(40)})
            winner = campaign.insight().winner
            claimed |= winner is not None and winner.lift.claimed
        wrong += claimed
    assert wrong < 5


# Ready and shipped.


@postgres_is_slow
def test_a_campaign_becomes_ready_and_ships_if_it_is_told_to(store_url: str) -> None:
    both = [
        create(store_url, name, stop_when="loss<0.3", ship_when_ready=name == "ships") for name in ("ships", "asks")
    ]
    for campaign in both:
        stop = campaign.insight().stop
        assert stop is not None
        assert (stop.ready, stop.threshold, stop.reason) == (False, 0.3, "nothing has been learned yet")
        while not stop.ready:
            play(campaign, 100, batch=50)
            assert campaign.summary().plays < 20_000
            stop = campaign.insight().stop
            assert stop is not None
        assert stop.bound is not None
        assert stop.bound < 0.3
        assert sum(event.kind == "ready" for event in campaign.events()) == 1
    assert [campaign.state for campaign in both] == ["shipped", "running"]
    assert both[0].insight().shipped == ["f", "g", "h"]
    assert [event.kind for event in both[0].events()][:2] == ["shipped", "ready"]
    checked(both[0])


@postgres_is_slow
def test_a_shipped_campaign_serves_the_winner_and_counts_rewards(store_url: str) -> None:
    campaign = create(store_url)
    with pytest.raises(kofn.BadInput, match="no best subset before the first reward"):
        campaign.ship()
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
    campaign.ship(CONTROL)
    assert campaign.decide().arms == CONTROL == campaign.insight().shipped
    events = campaign.events()
    campaign.ship(CONTROL)  # the second time, nothing changes
    assert campaign.events() == events
    campaign.ship(CONTROL, store=False)
    assert campaign.events()[0].number == events[0].number + 1
    with pytest.raises(kofn.BadInput, match="it is in a subset that was shipped"):
        campaign.retire_arm("a")
    checked(campaign)


@postgres_is_slow
def test_decisions_of_a_shipped_campaign_need_not_be_stored(store_url: str) -> None:
    campaign = create(store_url)
    clock = Clock(campaign)
    play(campaign, 300, batch=20)
    campaign.ship(store=False)
    campaign.decide()
    before = campaign.summary()
    with pytest.MonkeyPatch.context() as patched:  # the store is not asked at all
        patched.setattr(Store, "read", lambda _: pytest.fail("it asked the store"))
        patched.setattr(Store, "transact", lambda *_: pytest.fail("it asked the store"))
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
    assert other.reward(decisions[0].id, 3.0) == Rewarded(1, 0)
    assert campaign.reward(decisions[0].id, 3.0) == Rewarded(0, 1)
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
    assert campaign.reward(decisions[30].id, 1.0) == Rewarded(0, 0, forgotten=1)


def test_unstored_decisions_count_once_and_for_what_was_shown(sqlite_store: str) -> None:
    campaign = create(sqlite_store, keep_decisions=0)
    clock = Clock(campaign)
    backup = campaign.export(with_secret=True)
    campaign.ship(CONTROL, store=False)
    first, shown = campaign.decide(), campaign.decide()
    assert campaign.reward(first.id, 1.0).accepted == 1
    for _ in range(150):
        clock.wait(1)
        campaign.reward(campaign.decide().id, 1.0)
    assert campaign.reward(first.id, 1.0) == Rewarded(0, 0, forgotten=1)  # it is no longer stored
    assert campaign.summary().rewards == 151
    checked(campaign)
    restored = Campaign.import_(backup, store=sqlite_store, name="restored")
    restored.ship(["f", "g", "h"], store=False)
    with pytest.raises(kofn.UnknownDecision, match="did not ship"):
        restored.reward(shown.id, 1.0)


def test_shipping_and_stopping_take_effect_at_once_and_elsewhere_within_a_second(sqlite_store: str) -> None:
    campaign, elsewhere = create(sqlite_store), Store(sqlite_store)
    clock, other = Clock(campaign), Campaign.open("front", store=elsewhere)
    elsewhere.clock = campaign.store.clock
    for arms in (CONTROL, ["f", "g", "h"]):
        campaign.ship(arms, store=False)
        assert campaign.decide().arms == arms
    assert other.decide().group == "shipped"
    campaign.resume()
    assert campaign.decide().group == "learned"
    assert other.decide().group == "shipped"
    clock.wait(SHIPPED_FOR)
    assert other.decide().group == "learned"
    campaign.ship(CONTROL, store=False)
    assert other.decide().group == "shipped"
    clock.wait(-3600)  # a clock that was set back does not keep it alive
    campaign.stop()
    for each in (campaign, other):
        with pytest.raises(kofn.NotRunning):
            each.decide()
    elsewhere.close()


# Keys.


@pytest.mark.parametrize("window", [None, 600])
@postgres_is_slow
def test_a_sticky_key_keeps_its_arms_until_that_ends(store_url: str, window: float | None) -> None:
    campaign = create(store_url, sticky=timedelta(days=1), window=window)
    clock = Clock(campaign)
    play(campaign, 100, batch=20)
    first = campaign.decide(key="visitor-42")
    assert campaign.decide(key="visitor-42") == first  # a retry
    campaign.reward(first.id, 1.0)
    if window is not None:
        assert campaign.decide(key="visitor-42") == first  # it has not settled
    play(campaign, 300, batch=20)
    clock.wait(3600)
    second = campaign.decide(key="visitor-42")
    assert second.id != first.id
    assert (second.arms, second.group) == (first.arms, first.group)
    assert campaign.decide(key="visitor-42") == second
    campaign.reward(second.id, 2.0)
    checked(campaign)
    campaign.retire_arm(second.arms[0])
    assert second.arms[0] not in campaign.decide(key="visitor-42").arms


def test_stickiness_ends(sqlite_store: str) -> None:
    campaign = create(sqlite_store, sticky=60)
    clock, arms = Clock(campaign), set()
    for _ in range(12):
        decision = campaign.decide(key="visitor-42")
        campaign.reward(decision.id, 1.0)
        clock.wait(61)
        arms.add(tuple(decision.arms))
    assert len(arms) > 1


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


# Rewards as they are.


@for_each("change", [{"reward_range": (0, 50)}, {"outside": "refuse"}, {"outside": "widen"}])
def test_a_clipped_reward_can_be_repeated_after_the_range_has_changed(sqlite_store: str, change: Any) -> None:
    campaign = create(sqlite_store, outside="clip", reward_range=(0, 40))
    decision, other = campaign.decide(2)
    campaign.rewards({decision.id: 41.0, other.id: 7.0})
    campaign.learn()
    for settings in (change, {"reward_range": (-1, 60)}):
        campaign.configure(**settings)
        assert campaign.rewards({decision.id: 41.0, other.id: 7.0}) == Rewarded(0, 2)
        with pytest.raises(kofn.Conflict, match="already has the reward 41; got 39"):
            campaign.reward(decision.id, 39.0)
        assert campaign.summary().mean == 47 / 2
        assert campaign.verify().ok
    copy = Campaign.import_(campaign.export(with_secret=True), store=sqlite_store, name="copy")
    assert copy.reward(decision.id, 41.0).repeated == 1
    for each in (campaign, copy):
        each.delete()


def test_rewards_outside_the_range_can_be_clipped(store_url: str) -> None:
    campaign = create(store_url, outside="clip")
    values = dict(zip((each.id for each in campaign.decide(4)), (41.0, -3.0, 1e100, 5.0), strict=True))
    assert campaign.rewards(values) == Rewarded(4, 0)
    assert campaign.rewards(values) == Rewarded(0, 4)
    assert sorted(each.reward for each in campaign.decisions() if each.reward is not None) == [0.0, 5.0, 12.0, 12.0]
    assert campaign.insight().clipped == 3
    for wrong in (math.nan, math.inf, 1e200):
        with pytest.raises(kofn.BadReward):
            campaign.reward(campaign.decide().id, wrong)
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
    assert low < -60
    assert high > 11
    assert sum(event.kind == "changed" for event in campaign.events()) <= 8
    assert campaign.verify().ok
    campaign.reward_total(CONTROL, 10, 5_000.0, 3_000_000.0)
    campaign.learn()
    assert campaign.summary().reward_range[1] > 600
    assert campaign.verify().ok
    good, bad = campaign.decide(2)
    for wrong in (1e24, math.inf, -math.inf, 1e200):  # one absurd reward does not become the range
        with pytest.raises(kofn.BadReward):
            campaign.reward(bad.id, wrong)
        with pytest.raises(kofn.KofnError):
            campaign.reward_total(CONTROL, 1, wrong)
        done = campaign.rewards([(good.id, 1.0), (bad.id, wrong)], partial=True)
        assert (done.accepted + done.repeated, [each.id for each in done.refused]) == (1, [bad.id])
    assert campaign.summary().reward_range[1] < 1e4


def test_a_policy_that_needs_a_range_says_so(sqlite_store: str) -> None:
    with pytest.raises(kofn.BadInput, match="linear-thompson cannot change reward_range"):
        create(sqlite_store, policy="linear-thompson", reward_range=None)
    campaign = create(sqlite_store, policy="linear-thompson", outside="clip")
    assert campaign.reward(campaign.decide().id, 99.0).accepted == 1
    with pytest.raises(kofn.BadInput, match="linear-thompson cannot change reward_range"):
        campaign.configure(outside="widen")
    with pytest.raises(kofn.BadInput, match="use thompson"):
        campaign.configure(half_life=100)


# Settings and estimates.


@postgres_is_slow
def test_settings_change_while_it_runs(store_url: str) -> None:
    campaign = create(store_url)
    play(campaign, 400, batch=20)
    changes: dict[str, Any] = {
        "half_life": 500,
        "sticky": "1m",
        "outside": "clip",
        "stop_when": "loss<0.5",
        "unit": "EUR",
        "expire_after": timedelta(seconds=30),
        "keep_decisions": 10,
        "window": "12h",
        "silence": 1,
        "metric_window": "1.5d",
    }
    campaign.configure(**changes)
    settings = Campaign.open("front", store=store_url).settings()
    seconds = {"sticky": 60.0, "expire_after": 30.0, "window": 43_200.0, "metric_window": 129_600.0}
    assert {name: getattr(settings, name) for name in changes} == changes | seconds
    campaign.configure(window=None, metric_window=None, half_life=None)
    settings = campaign.settings()
    assert (settings.half_life, settings.window) == (None, None)
    play(campaign, 400, batch=20)
    assert campaign.verify().ok
    assert [each.message for each in campaign.events() if each.kind == "configured"] == [
        "metric_window, window",
        "expire_after, keep_decisions, metric_window, outside, silence, sticky, stop_when, unit, window",
    ]


@for_each(
    "settings, message",
    [
        ({"other": 1}, "there is no setting 'other'. Available: control,"),
        ({"control": ["a", "b"]}, "must have 3 different arms"),
        ({"control": "random"}, "control must be a list of 3 arms, 'uniform' or None"),
        ({"control_share": 1.0}, "control_share must be a number between 0 and 1"),
        ({"sticky": 0}, "sticky must be a duration above 0"),
        ({"window": "soon"}, "window must be a duration above 0"),
        ({"silence": math.inf}, "silence must be a number"),
        ({"outside": "drop"}, "outside must be one of refuse, clip, widen"),
        ({"stop_when": "loss>1"}, r"a stop rule \(stop_when\) must be like"),
        ({"ship_when_ready": True}, "ship_when_ready needs a stop rule"),
        ({"breaker": True}, "a breaker needs a control"),
        ({"breaker": 1}, "breaker must be True or False"),
        ({"unit": "x" * 21}, "unit must be text of at most 20 characters"),
        ({"half_life": 0}, "half_life"),
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
    campaign.delete()


@pytest.mark.parametrize("policy", ["thompson", "linear-thompson"])
@postgres_is_slow
def test_estimates_are_kept_over_time(store_url: str, policy: str) -> None:
    campaign = create(store_url, policy=policy, control=CONTROL, control_share=0.3)
    for _ in range(8):
        play(campaign, 150, batch=10)
        now, last = campaign.insight(), campaign.estimates()[-1]
        assert (last.lift, last.lift_low, last.lift_high) == (
            lift_of(campaign).difference,
            lift_of(campaign).low,
            lift_of(campaign).high,
        )
        assert (last.expected_loss, last.value, last.best) == (now.expected_loss, now.value, now.best)
    found = campaign.estimates(arms=NAMES)
    assert len(found) >= 8
    assert [each.rewards for each in found] == sorted(each.rewards for each in found)
    if policy == "thompson":
        assert found[-1].effects.keys() == set(NAMES)
        assert (found[-1].expected_loss or 0.0) < (found[0].expected_loss or 0.0)
        assert [each.effects for each in campaign.estimates(arms=["a"])] == [{"a": each.effects["a"]} for each in found]
    else:
        assert {each.expected_loss for each in found} == {None}
    assert not any(each.effects for each in campaign.estimates())
    with pytest.raises(kofn.BadInput, match="there is no arm 'z'"):
        campaign.estimates(arms=["z"])
    few = campaign.estimates(4)
    assert (few[0].rewards, few[-1].rewards) == (found[0].rewards, found[-1].rewards)
    assert 3 <= len(few) <= 4
    assert [each.rewards for each in campaign.estimates(1)] == [1_200]


def test_estimates_are_written_when_much_has_changed_and_thinned(
    sqlite_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kofn.campaigns.fold.ESTIMATE_AGE", 1e9)
    campaign = create(sqlite_store, params={"half_life": 10})
    play(campaign, 400, batch=4)
    *kept, now = campaign.estimates()
    assert campaign.insight().updates > 3 * len(kept)
    assert all(later.rewards >= 1.2 * earlier.rewards for earlier, later in pairwise(kept))
    assert now.rewards == 400
    monkeypatch.setattr("kofn.campaigns.fold.ESTIMATE_AGE", 0.0)
    monkeypatch.setattr("kofn.campaigns.fold.MAX_ESTIMATES", 20)
    steps = campaign.insight().updates
    play(campaign, 1_000, batch=4)
    assert campaign.insight().updates > steps + 150
    assert 20 <= len(campaign.estimates()) <= 20 + 100
    assert campaign.estimates()[-1].rewards > 1_390
