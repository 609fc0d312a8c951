"""Campaigns with a context: plans, propensities, learning, keys, control, arms, rules and shipping by segment."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from scipy.stats import binom

import kofn
from kofn import Campaign
from kofn.campaigns import Decision, Store
from kofn.campaigns.fold import Transaction
from kofn.campaigns.learning import FALLBACKS
from kofn.campaigns.serving import SHIPPED_FOR, ServedPlan
from kofn.constraints import AtMost, Never
from kofn.core.contexts import MOST_SEGMENTS, MOST_WITH_OTHER, key_of
from tests.campaigns import tools
from tests.campaigns.tools import Clock, noise
from tests.campaigns.tools import create as create_any
from tests.cases import postgres_is_slow

PHONE, DESK, FRIDGE = ({"device": device} for device in ("phone", "desktop", "fridge"))
LOW, HIGH = ["a", "b", "c"], ["f", "g", "h"]


def create(store: str | Store, **settings: Any) -> Campaign:
    """A campaign with 8 arms and k=3: the last three arms are the best for phones, the first three for desks."""
    return create_any(store, **{"policy": "contextual-thompson", **settings})


def rewards_of(decisions: Iterable[Decision]) -> dict[str, float]:
    """The reward of each decision, in eighths: a function of its id, of its arms and of its device."""
    found = {}
    for each in decisions:
        good = sum(each.subset) if (each.context or {}).get("device") == "phone" else 21 - sum(each.subset)
        found[each.id] = max(0, min(96, round(96 * (good / 21 + noise(each.id)) / 1.2))) / 8
    return found


def play(campaign: Campaign, calls: int, *, batch: int = 6, lost: int = 0) -> None:
    """Decide and reward: two phones to one desktop. The first `lost` decisions of each call have no reward."""
    for call in range(calls):
        decisions = campaign.decide(batch, context=PHONE if call % 3 else DESK)
        campaign.rewards(rewards_of(decisions[lost:]))


def plan_of(campaign: Campaign) -> ServedPlan:
    with campaign.store.read() as connection:
        return Transaction.open(campaign.store, connection, campaign._id).plan()


def best_of(campaign: Campaign) -> dict[str, list[str]]:
    return {each.words: sorted(each.best) for each in campaign.segments().segments}


def checked(campaign: Campaign) -> None:
    """Check the campaign; the sums of the policy depend on their order."""
    tools.checked(campaign, exact=False)


# Plans and learning.


@pytest.mark.parametrize("window", [None, 60])
@postgres_is_slow
def test_each_segment_has_plans_and_a_best_subset(store_url: str, window: float | None) -> None:
    campaign = create(store_url, window=window)
    clock = Clock(campaign)
    for _ in range(25):
        play(campaign, 6)
        clock.wait(60)
    campaign.learn()
    found = campaign.segments()
    assert [each.words for each in found.segments] == ["device phone", "device desktop"]
    assert best_of(campaign) == {"device phone": HIGH, "device desktop": LOW}
    assert found.segments[0].share == pytest.approx(2 / 3, abs=0.05)
    assert sum(each.plays for each in found.segments) == pytest.approx(900, rel=0.2)
    assert [each.attribute for each in found.attributes] == ["device"]
    assert found.attributes[0].values == ["desktop", "phone"]
    assert found.attributes[0].probability > 0.95
    assert found.attributes[0].gain > 0
    assert all(each.low <= each.value <= each.high for each in found.segments)  # type: ignore[operator]
    assert {key_of(each.context) for each in campaign.insight().plan if each.context} == {key_of(PHONE), key_of(DESK)}
    assert campaign.insight().winner is None  # there is no one winner
    checked(campaign)


def test_a_segment_that_the_plan_does_not_know_gets_rows_for_everyone(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    play(campaign, 60)
    plan = plan_of(campaign)
    everyone = [subset for subset, segment in plan.fallback if segment is None]
    assert len(everyone) == FALLBACKS
    seen = len(list(campaign.decisions()))
    made = campaign.decide(200, context=FRIDGE)
    assert {each.context["device"] for each in made if each.context} == {"fridge"}
    for each in list(campaign.decisions())[seen:]:
        assert each.propensity == pytest.approx(everyone.count(",".join(map(str, each.subset))) / FALLBACKS)
    campaign.rewards(rewards_of(made))
    play(campaign, 30)
    assert best_of(campaign)["device fridge"] == LOW
    assert key_of(FRIDGE) in plan_of(campaign).segments
    checked(campaign)


@postgres_is_slow
def test_late_rewards_and_expired_decisions_are_of_their_segment(store_url: str) -> None:
    campaign = create(store_url, expire_after=60.0, keep_decisions=30)
    clock, late = Clock(campaign), list[Decision]()
    for call in range(80):
        decisions = campaign.decide(4, context=PHONE if call % 3 else DESK)
        campaign.rewards(rewards_of(decisions[1:]))
        late += decisions[:1]
        clock.wait(9)
        if call % 20 == 19:
            campaign.rewards(rewards_of(late[:10]))
            del late[:10]
    assert campaign.summary().expired > 0
    assert best_of(campaign) == {"device phone": HIGH, "device desktop": LOW}
    checked(campaign)


def test_rare_values_share_a_segment(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    contexts = [{"device": "phone" if visit % 2 else "desktop", "city": f"city {visit}"} for visit in range(300)]
    made = [campaign.decide(context=context) for context in contexts]
    campaign.rewards(rewards_of(made[:40]))
    assert len(plan_of(campaign).fallback) <= (MOST_SEGMENTS + 1) * FALLBACKS  # not for all that are in flight
    campaign.rewards(rewards_of(made[40:]))
    assert MOST_SEGMENTS < len(campaign.segments().segments) <= MOST_WITH_OTHER
    late = campaign.decide(3, context={"device": "phone", "city": "the last"})
    assert late[0].context == {"city": "(other)", "device": "phone"}
    campaign.rewards(rewards_of(late))
    checked(campaign)


def test_what_a_context_may_be(sqlite_store: str) -> None:
    campaign = create(sqlite_store, params={"attributes": ["device", "country"]})
    missing = {"country": "(missing)", "device": "(missing)"}
    assert campaign.decide().context == missing
    assert campaign.decide(context={"device": "phone"}).context == {**missing, "device": "phone"}
    assert campaign.decide(context={"device": 7, "country": True}).context == {"country": "true", "device": "7"}
    assert [each.context for each in campaign.open_decisions()][-1] == missing
    wrong: list[tuple[Any, str]] = [
        ({"size": "xl"}, "the context has size, which is not declared; the attributes are: device, country"),
        ({"device": "x" * 101}, "the value of 'device' must be 1 to 100 printable characters"),
        ({"device": 1.5}, "must be text, a whole number or true or false"),
        ("phone", "context must be a dict of attributes and their values; got 'phone'"),
    ]
    for context, message in wrong:
        with pytest.raises(kofn.BadInput, match=message):
            campaign.decide(context=context)
        with pytest.raises(kofn.BadInput, match=message):
            campaign.reward_total(LOW, 1, 1.0, context=context)
    assert campaign.summary().plays == 3


def test_a_policy_without_context_says_so(sqlite_store: str) -> None:
    campaign = create_any(sqlite_store)
    assert campaign.decide().context is None
    with pytest.raises(kofn.BadInput, match="thompson does not take a context; use contextual-thompson"):
        campaign.decide(context=PHONE)
    with pytest.raises(kofn.BadInput, match="thompson does not take a context, so it has no segments"):
        campaign.segments()
    campaign.ship(LOW, store=False)
    assert campaign.decide().arms == LOW
    with pytest.raises(kofn.BadInput, match="thompson does not take a context"):
        campaign.decide(context=PHONE)


def test_totals_count_for_their_segment(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    for day in range(10):
        for context, arms in ((PHONE, LOW), (PHONE, HIGH), (DESK, LOW), (DESK, HIGH)):
            good = (context == PHONE) == (arms == HIGH)
            campaign.reward_total(arms, 20, 200.0 if good else 40.0, key=f"{day} {context} {arms}", context=context)
    assert best_of(campaign) == {"device phone": HIGH, "device desktop": LOW}
    key = f"9 {DESK} {HIGH}"
    assert campaign.reward_total(HIGH, 20, 40.0, key=key, context=DESK).repeated == 20
    with pytest.raises(kofn.Conflict, match="another total, of 20 plays"):
        campaign.reward_total(HIGH, 20, 40.0, key=key, context=PHONE)
    checked(campaign)


# Keys and control.


def test_a_key_keeps_its_arms_in_its_segment(sqlite_store: str) -> None:
    campaign = create(sqlite_store, sticky=timedelta(days=1))
    play(campaign, 90)
    first = campaign.decide(key="ann", context=PHONE)
    assert campaign.decide(key="ann", context=DESK) == first  # while it is open
    campaign.rewards(rewards_of([first]))
    again = campaign.decide(key="ann", context=PHONE)
    assert (again.arms, again.id == first.id) == (first.arms, False)
    campaign.rewards(rewards_of([again]))
    other = campaign.decide(key="ann", context=DESK)
    assert other.context == DESK
    assert sum(other.subset) < sum(first.subset)
    campaign.rewards(rewards_of([other]))
    campaign.ship()
    shown = campaign.decide(key="bob", context=DESK)
    assert sorted(shown.arms) == LOW
    assert campaign.decide(key="bob", context=PHONE) == shown  # while it is open
    campaign.rewards(rewards_of([shown]))
    phone = campaign.decide(key="bob", context=PHONE)
    assert (sorted(phone.arms), phone.group) == (HIGH, "shipped")
    checked(campaign)


@postgres_is_slow
def test_the_control_gets_its_share_of_each_segment(store_url: str) -> None:
    campaign = create(store_url, control=["a", "d", "h"], control_share=0.25)
    play(campaign, 60)
    for context in (PHONE, DESK):
        decisions = campaign.decide(800, context=context)
        control = [each for each in decisions if each.group == "control"]
        least, most = binom.interval(1 - 1e-6, 800, 0.25)
        assert least <= len(control) <= most
        assert {tuple(each.arms) for each in control} == {("a", "d", "h")}
        campaign.rewards(rewards_of(decisions))
    assert all((each.propensity or 0) >= 0.25 for each in campaign.decisions() if each.group == "control")
    found = campaign.insight()
    assert found.lift is not None
    assert found.lift.claimed
    checked(campaign)


def test_a_uniform_control_obeys_the_rules_in_each_segment(sqlite_store: str) -> None:
    campaign = create(sqlite_store, control="uniform", control_share=0.5, constraints=[AtMost(1, ["a", "h"])])
    play(campaign, 60)
    decisions = campaign.decide(200, context=PHONE) + campaign.decide(200, context=FRIDGE)
    assert not [each for each in decisions if {"a", "h"} <= set(each.arms)]
    assert len({each.subset for each in decisions if each.group == "control"}) > 20
    campaign.rewards(rewards_of(decisions))
    checked(campaign)


# Arms and rules.


def test_arms_come_and_go_and_rules_change(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    play(campaign, 60)
    waiting = campaign.decide(5, context=PHONE)
    campaign.retire_arm("h")
    campaign.add_arm("i")
    campaign.rewards(rewards_of(waiting))
    for call in range(120):
        decisions = campaign.decide(4, context=PHONE if call % 3 else DESK)
        assert all("h" not in each.arms for each in decisions)
        campaign.rewards(rewards_of(decisions))
    best = best_of(campaign)
    assert "i" in best["device phone"]
    assert "i" not in best["device desktop"]
    checked(campaign)
    campaign.configure(constraints=[AtMost(1, ["g", "i"]), Never(["a"])])
    for context in (PHONE, DESK, FRIDGE):
        for each in campaign.decide(100, context=context):
            assert len({"g", "i"} & set(each.arms)) <= 1
            assert "a" not in each.arms
    play(campaign, 60)
    campaign.ship()
    shipped = sorted(campaign.decide(context=DESK).arms)
    assert not {"a", "h"} & set(shipped)
    with pytest.raises(kofn.BadInput, match="the subset that is shipped breaks the rule"):
        campaign.configure(constraints=[Never(shipped[:1])])
    with pytest.raises(kofn.BadInput, match="it is in a subset that was shipped"):
        campaign.retire_arm(shipped[0])
    checked(campaign)


# Shipping.


@postgres_is_slow
def test_each_segment_gets_its_own_winners(store_url: str) -> None:
    campaign = create(store_url)
    play(campaign, 120)
    best_for_all = campaign.best()
    campaign.ship()
    assert sorted(campaign.decide(context=PHONE).arms) == HIGH
    assert sorted(campaign.decide(context=DESK).arms) == LOW
    unknown = campaign.decide(context=FRIDGE)
    assert (unknown.group, unknown.context) == ("shipped", FRIDGE)  # it gets a prediction
    campaign.rewards({each.id: 0.0 for each in campaign.decide(30, context=FRIDGE)})
    assert campaign.decide(context=FRIDGE).arms == unknown.arms  # what is shipped stays
    assert [sorted(each.shipped or []) for each in campaign.segments().segments][:2] == [HIGH, LOW]
    assert campaign.insight().shipped == best_for_all
    assert "segments gets its own best subset" in campaign.events(1)[0].message
    campaign.rewards(rewards_of(campaign.decide(30, context=PHONE)))
    campaign.ship(["a", "d", "h"])
    assert all(campaign.decide(context=each).arms == ["a", "d", "h"] for each in (PHONE, DESK, FRIDGE))
    campaign.resume()
    play(campaign, 6)
    checked(campaign)


@postgres_is_slow
def test_shipped_decisions_that_are_not_stored_know_their_segment(store_url: str) -> None:
    campaign = create(store_url)
    clock = Clock(campaign)
    play(campaign, 120)
    campaign.ship(store=False)
    before = campaign.summary().plays
    decisions = [campaign.decide(context=each) for each in (PHONE, DESK, FRIDGE) * 2]
    assert [sorted(each.arms) for each in decisions[:2]] == [HIGH, LOW]
    other = {"device": "(other)"}
    assert [each.context for each in decisions[:3]] == [PHONE, DESK, other]
    with pytest.raises(kofn.BadInput, match="context must be a dict"):
        campaign.decide(context="phone")  # type: ignore[call-overload]
    assert campaign.summary().plays == before
    campaign.ship(store=False)  # what was shipped before is known
    clock.wait(SHIPPED_FOR)
    assert campaign.rewards(rewards_of(decisions)).accepted == 6
    assert [each.context for each in list(campaign.decisions())[-6:]] == [PHONE, DESK, other] * 2
    assert campaign.summary().rewards == before + 6
    moved = Campaign.import_(campaign.export(with_secret=True), store=campaign.store, name="moved")
    assert sorted(moved.decide(context=DESK).arms) == LOW
    assert campaign.verify().ok
    assert moved.verify().ok


def test_it_ships_by_itself_when_it_is_ready(sqlite_store: str) -> None:
    campaign = create(sqlite_store, stop_when="loss<6", ship_when_ready=True)
    play(campaign, 120)
    assert campaign.state == "shipped"
    assert sorted(campaign.decide(context=PHONE).arms) == HIGH
    assert sorted(campaign.decide(context=DESK).arms) == LOW
