"""Alarms of a campaign: each is raised by its cause, says what was seen and what to do, and ends with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kofn import Campaign
from kofn.campaigns.fold import Transaction
from kofn.campaigns.reports.alarms import EXPECTED, NOTE_AGAIN, ArrivalHistory, Period
from tests.campaigns.tools import Clock, create, play, rewards_for
from tests.cases import for_each, postgres_is_slow

HOUR = 3600.0


def kinds(campaign: Campaign) -> list[str]:
    return [alarm.kind for alarm in campaign.insight().alarms or []]


def hours(count: int, *, start: int = 0, decided: int = 200, rate: float = 0.5, delay: float = 60.0) -> list[Period]:
    rewarded = round(decided * rate)
    return [
        Period(HOUR * (start + hour), HOUR * (start + hour + 1), decided, rewarded, rewarded * delay)
        for hour in range(count)
    ]


def alarms_of(parts: list[Period]) -> list[str]:
    return [alarm.kind for alarm in ArrivalHistory(parts, parts[-1].end + 600).alarms()]


def test_a_steady_history_raises_nothing() -> None:
    assert alarms_of(hours(100)) == []


@pytest.mark.parametrize(
    ("kind", "after"),
    [
        ("silence", {"rate": 0.0}),
        ("delay", {"delay": 400.0}),
        ("missing", {"rate": 0.2}),
    ],
)
def test_a_change_raises_its_alarm(kind: str, after: dict[str, Any]) -> None:
    history = hours(50)
    for length in range(1, 30):
        found = alarms_of(history + hours(length, start=50, **after))
        if kind in found:
            break
    assert kind in found
    assert length <= 10
    if kind != "silence":
        assert alarms_of(history + hours(30, start=50, **after) + hours(200, start=80)) == []


@for_each("after", [{"rate": 0.45}, {"delay": 100.0}, {"decided": 2000}, {"decided": 20}])
def test_small_changes_and_other_traffic_raise_nothing(after: dict[str, Any]) -> None:
    history = hours(50)
    for length in range(1, 30):
        assert alarms_of(history + hours(length, start=50, **after)) == []


def test_late_rewards_are_not_missing_and_not_slower() -> None:
    """At the start, only fast rewards have arrived: neither the rate nor the delay of then is the usual one."""
    rng = np.random.default_rng(1)
    decided = np.sort(rng.uniform(0, 400 * HOUR, 40_000))
    arrived = decided + rng.exponential(24 * HOUR, len(decided))
    for now in np.arange(24, 400, 24) * HOUR:
        parts = []
        for hour in range(int(now // HOUR)):
            here = (arrived >= hour * HOUR) & (arrived < (hour + 1) * HOUR)
            made = int(((decided >= hour * HOUR) & (decided < (hour + 1) * HOUR)).sum())
            waited = float((arrived - decided)[here].sum())
            parts.append(Period(hour * HOUR, (hour + 1) * HOUR, made, int(here.sum()), waited))
        assert list(ArrivalHistory(parts, float(now)).alarms()) == []


def arrived(days: int, delays: Any, seed: int = 0) -> list[Period]:
    """Return a history in hours of decisions with a daily cycle, of which 30 % get a reward after these delays."""
    rng = np.random.default_rng(seed)
    cycle = 1 + 0.8 * np.sin(2 * np.pi * np.arange(24 * days) / 24)
    made = rng.poisson(125 * cycle)
    decided = HOUR * (np.repeat(np.arange(24 * days), made) + rng.random(made.sum()))
    takes = delays(rng, decided)
    slot = ((decided + takes) // HOUR).astype(int)
    inside = (slot < 24 * days) & (rng.random(len(slot)) < 0.3)
    rewarded = np.bincount(slot[inside], minlength=24 * days)
    waited = np.bincount(slot[inside], takes[inside], minlength=24 * days)
    return [
        Period(HOUR * hour, HOUR * (hour + 1), int(made[hour]), int(rewarded[hour]), float(waited[hour]))
        for hour in range(24 * days)
    ]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_few_very_late_rewards_are_no_change_of_the_delay(seed: int) -> None:
    """The delays have a heavy tail: a single one may double the mean of hundreds."""
    history = arrived(20, lambda rng, at: HOUR / 4 * rng.lognormal(-1.125, 1.5, len(at)), seed)
    for length in range(12, len(history) + 1, 12):
        assert alarms_of(history[:length]) == []


def test_longer_delays_of_days_are_seen() -> None:
    day = 24 * HOUR
    history = arrived(50, lambda rng, at: rng.exponential(np.where(at > 30 * day, 3 * day, day)))
    assert alarms_of(history[: 24 * 30]) == []
    assert alarms_of(history[: 24 * 45]) == ["delay"]


@pytest.mark.parametrize("window", [None, "5m"])
@postgres_is_slow
def test_a_campaign_whose_rewards_stop_says_since_when(store_url: str, window: str | None) -> None:
    """With a window, decisions settle all the same: what counts is whether anything is reported about them."""
    campaign = create(store_url, window=window)
    clock = Clock(campaign)
    for _ in range(10):
        decisions = campaign.decide(20)
        clock.wait(10)
        campaign.rewards(rewards_for(decisions[:10]))
        clock.wait(50)
    assert kinds(campaign) == []
    assert campaign.note_alarms() == []
    last = clock.now
    for _ in range(3):
        campaign.decide(int(EXPECTED))
        clock.wait(60)
    (alarm,) = campaign.note_alarms()
    assert alarm.kind == "silence"
    assert alarm.at is not None
    assert abs(alarm.at.timestamp() - last) < 120
    assert f"decisions without a reward since {alarm.at:%Y-%m-%d}" in alarm.message
    assert "rewards are still sent" in alarm.advice
    assert campaign.summary().alarms == 1
    assert campaign.note_alarms() == [alarm]
    campaign.rewards(rewards_for(campaign.decide(5)))
    assert campaign.note_alarms() == []
    clock.wait(NOTE_AGAIN)
    campaign.rewards(rewards_for(campaign.decide(5)))
    campaign.note_alarms()
    noted = [(each.kind, each.message) for each in campaign.events() if each.kind.startswith("alarm")]
    assert noted == [("alarm over", "silence"), ("alarm", f"silence: {alarm.message}. Advice: {alarm.advice}")]
    assert campaign.summary().alarms == 0


@postgres_is_slow
def test_an_arm_whose_decisions_get_no_reward_is_named(store_url: str) -> None:
    campaign = create(store_url)
    clock = Clock(campaign)
    for _ in range(20):
        decisions = campaign.decide(20)
        clock.wait(10)
        campaign.rewards(rewards_for([each for each in decisions if "a" not in each.arms]))
        clock.wait(60)
    found = [alarm for alarm in campaign.insight().alarms or [] if alarm.kind == "arm"]
    assert len(found) == 1
    assert "'a'" in found[0].message
    campaign.retire_arm("a")
    assert "arm" not in kinds(campaign)


@pytest.mark.parametrize("rates", [(0.02, 0.02), (0.04, 0.3)])
def test_arms_that_sell_little_are_not_broken(sqlite_store: str, rates: tuple[float, float]) -> None:
    """A shop reports orders only: most decisions have none, and the control has still fewer."""
    campaign = create(sqlite_store, window=60, control=["a", "b", "c"], control_share=0.3)
    clock, rng = Clock(campaign), np.random.default_rng(5)
    for _ in range(20):
        decisions = campaign.decide(200)
        ordered = rng.random(200) < [rates[each.group == "learned"] for each in decisions]
        clock.wait(10)
        campaign.adds([(each.id, 6.0, "order") for each, order in zip(decisions, ordered, strict=True) if order])
        clock.wait(50)
    assert "arm" not in kinds(campaign)


def test_a_control_that_does_not_get_its_share_is_seen(sqlite_store: str) -> None:
    campaign = create(sqlite_store, control=["a", "b", "c"], control_share=0.5)
    play(campaign, 2_000, batch=50)
    assert "ratio" not in kinds(campaign)

    with campaign.store.write() as connection:
        tx = Transaction.open(campaign.store, connection, campaign._id)
        tx.row.progress.control_decided -= 200
        tx.write()
    assert "ratio" in kinds(campaign)


@pytest.mark.parametrize(
    ("reward_range", "direction", "seen"),
    [
        ((0, 1e16), "maximize", False),
        ((0, 1e16), "minimize", True),
        ((-1e9, 1e9), "maximize", True),
        ((-1e6, 1e6), "maximize", False),
    ],
)
def test_a_range_in_which_rewards_cannot_be_told_apart_is_seen(
    sqlite_store: str, reward_range: tuple[float, float], direction: Any, seen: bool
) -> None:
    campaign = create(sqlite_store, reward_range=reward_range, direction=direction)
    play(campaign, 400, batch=20)
    assert kinds(campaign) == (["range"] if seen else [])
    assert (campaign.insight().expected_loss is None) == seen
    equal = create(sqlite_store, "equal", reward_range=(0, 1))
    equal.rewards({each.id: 0.1 for each in equal.decide(300)})
    assert kinds(equal) == []


def test_alarms_of_the_policy_say_what_to_do(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    play(campaign, 4_000, batch=100)
    assert kinds(campaign) == []
    for _ in range(60):
        decisions = campaign.decide(100)
        campaign.rewards({id: 12 - value for id, value in rewards_for(decisions).items()})
    drift = next(alarm for alarm in campaign.insight().alarms or [] if alarm.kind == "drift")
    assert drift.since is not None
    assert drift.since > 4_000
    assert "half_life" in drift.advice
    campaign.configure(half_life=500)
    assert "drift" not in kinds(campaign)
