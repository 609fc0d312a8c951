"""Windows: what settles when, silence, several events of a decision; metrics beside the reward, and guardrails."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import Campaign
from kofn.campaigns import Rewarded
from kofn.campaigns.append import MAX_EVENTS
from kofn.core.responses import MetricReport
from tests.campaigns.tools import NAMES, Clock, checked, create
from tests.cases import postgres_is_slow

CONTROL = ["a", "b", "c"]


def rewards_of(campaign: Campaign) -> list[float | None]:
    return [each.reward for each in campaign.decisions()]


def test_nothing_settles_before_the_window_ends(store_url: str) -> None:
    campaign = create(store_url, window="30m", silence=1.0)
    clock = Clock(campaign)
    silent, rewarded, ordered, returned = decisions = campaign.decide(4)
    assert campaign.reward(rewarded, 6) == Rewarded(1, 0)
    orders = [(ordered.id, 4.0, "order-1"), (ordered.id, 2.0, "order-2"), (returned.id, 5.0, "order-1")]
    assert campaign.adds(orders) == Rewarded(3, 0)
    clock.wait(1799)
    assert campaign.add(returned, -5, event="return-1") == Rewarded(1, 0)
    assert not campaign.learn()
    insight = campaign.insight()
    summary = insight.summary
    assert (summary.plays, summary.rewards, summary.in_flight, summary.mean) == (4, 0, 4, None)
    assert insight.settles == silent.at + timedelta(minutes=30)
    assert {each.id for each in campaign.open_decisions()} == {each.id for each in decisions}
    assert rewards_of(campaign) == [None, 6, 6, 0]
    assert not any(each.settled for each in campaign.decisions())
    checked(campaign)
    clock.wait(1)
    summary = campaign.summary()  # counted before it is folded, too
    assert (summary.rewards, summary.in_flight, summary.expired, summary.mean) == (4, 0, 0, 13 / 4)
    checked(campaign)
    assert campaign.insight().settles is None
    assert campaign.open_decisions() == []
    late = [(silent.id, 9.0, "order-9"), (ordered.id, 2.0, "order-2"), (returned.id, 5.0, "order-7")]
    assert campaign.adds(late) == Rewarded(0, 1, late=2)
    assert campaign.adds(late) == Rewarded(0, 3)
    assert campaign.reward(silent, 3).late == 1
    assert campaign.summary().mean == 13 / 4
    assert rewards_of(campaign) == [1, 6, 6, 0]
    assert all(each.settled and each.rewarded_at is not None for each in campaign.decisions())
    assert [(point.plays, point.rewards) for point in campaign.history()] == [(4, 0), (0, 4)]
    checked(campaign)


def test_an_event_counts_once_with_one_value(store_url: str) -> None:
    campaign = create(store_url, window=60)
    decision, other = campaign.decide(2)
    assert campaign.adds([(decision.id, 2, "order"), (decision.id, 2.0, "order")]) == Rewarded(1, 0)
    assert campaign.add(decision, 2, event="order") == Rewarded(0, 1)
    for wrong, message in (
        ([(decision.id, 3, "order")], "already has the event 'order' with 2; got 3"),
        ([(other.id, 1, "order"), (other.id, 2, "order")], "two values"),
        ([(other.id, 1, "order"), ("nonsense", 1, "order")], "'nonsense' is not a decision"),
    ):
        with pytest.raises((kofn.Conflict, kofn.UnknownDecision), match=message):
            campaign.adds(wrong)
    assert campaign.adds([(other.id, 1, "order"), ("nonsense", 1, "order")], partial=True).accepted == 1
    assert campaign.reward(other, 4).accepted == 1
    with pytest.raises(kofn.Conflict, match="already has the reward 4; got 5"):
        campaign.reward(other, 5)
    assert rewards_of(campaign) == [2, 5]
    for malformed in ([(decision.id, 1)], [decision.id], 7, [(decision.id, 1, "")], [(decision.id, 1, "a\nb")]):
        with pytest.raises(kofn.BadInput, match=r"triples \(id, value, event\)|event must be text"):
            campaign.adds(malformed)  # type: ignore[arg-type]


@pytest.mark.parametrize(("outside", "least", "most"), [("refuse", 0, 12), ("clip", 0, 12), ("widen", -8, 20)])
def test_sums_outside_the_range(sqlite_store: str, outside: str, least: float, most: float) -> None:
    """The sum counts, in one call or in many: not each event."""
    campaign = create(sqlite_store, window=60, outside=outside)
    clock = Clock(campaign)
    high, low, both = campaign.decide(3)
    campaign.adds([(high.id, 10, "one"), (both.id, 10, "one"), (both.id, -7, "back")])
    more: list[list[tuple[str, float, str]]] = [
        [(high.id, 10, "two")],
        [(low.id, -8, "back")],
        [(both.id, 6, "two"), (both.id, 6, "three")],
    ]
    for each in more:
        if outside == "refuse":
            with pytest.raises(kofn.BadReward, match="must be between 0 and 12"):
                campaign.adds(each)
        else:
            assert campaign.adds(each).accepted == len(each)
    clock.wait(60)
    campaign.learn()
    assert campaign.summary().mean == (10 + 0 + 3 if outside == "refuse" else most + least + min(most, 15)) / 3
    assert campaign.insight().clipped == (3 if outside == "clip" else 0)
    low_end, high_end = campaign.summary().reward_range
    assert (low_end, high_end) == (0, 12) if outside != "widen" else (low_end <= -8 and high_end >= 20)
    assert campaign.verify().ok


def test_a_decision_has_a_limited_number_of_events(sqlite_store: str) -> None:
    campaign = create(sqlite_store, window=60)
    decision, other = campaign.decide(2)
    assert campaign.adds([(decision.id, 0.0, f"e{number}") for number in range(MAX_EVENTS - 1)]).accepted == 99
    campaign.record(decision, "returns", 1.0)
    with pytest.raises(kofn.BadInput, match="has 100 events already"):
        campaign.record(decision, "visits", 1.0)
    assert campaign.add(decision, 0.0, event="e5").repeated == 1
    with pytest.raises(kofn.BadInput, match="has 100 events already"):
        campaign.adds([(other.id, 0.0, f"e{number}") for number in range(MAX_EVENTS + 1)])
    assert campaign.add(other, 1.0, event="order").accepted == 1


def test_windows_may_change_while_decisions_are_open(store_url: str) -> None:
    """A decision keeps the window that it was made with."""
    campaign = create(store_url, expire_after=1000)
    clock = Clock(campaign)
    none = campaign.decide()
    with pytest.raises(kofn.BadInput, match="add needs a window, after which the sum settles"):
        campaign.add(none, 1.0, event="order")
    campaign.configure(window=timedelta(minutes=1))
    long = campaign.decide()
    with pytest.raises(kofn.BadInput, match="add needs a window"):
        campaign.add(none, 1.0, event="order")
    campaign.configure(window="10s")
    short = campaign.decide()
    for each in (long, short):
        campaign.add(each, 2.0, event="order")
    campaign.reward(none, 3.0)
    assert campaign.summary().rewards == 1  # without a window, a reward settles
    clock.wait(10)
    assert campaign.summary().rewards == 2
    assert campaign.add(short, 1.0, event="late").late == 1
    campaign.configure(window=None)
    assert campaign.add(long, 1.0, event="second").accepted == 1  # its window is still open
    clock.wait(50)
    assert (campaign.summary().rewards, campaign.summary().mean) == (3, 8 / 3)
    last = campaign.decide()
    clock.wait(60)
    assert campaign.summary().in_flight == 1  # it waits for a reward
    assert campaign.reward(last, 4.0).accepted == 1
    checked(campaign)


def test_silence_counts_as_it_was_when_it_settled(sqlite_store: str) -> None:
    campaign = create(sqlite_store, window=10)
    clock = Clock(campaign)
    for silence, mean in ((0.0, 0.0), (3.0, 1.5)):
        campaign.configure(silence=silence)
        campaign.decide(4)
        clock.wait(10)
        campaign.learn()
        assert campaign.summary().mean == mean
    found = campaign.verify()
    assert found.ok
    assert found.reason == "silence or the range has changed, so the sums of rewards were not compared with the log"
    assert Campaign.import_(campaign.export(), store=sqlite_store, name="copy").summary().mean == 1.5
    with pytest.raises(kofn.BadInput, match="silence must be a reward between 0 and 12"):
        campaign.configure(silence=13)


def test_decisions_that_are_not_stored_are_in_no_mean_under_a_window(store_url: str) -> None:
    """Nobody sees the silence of the others."""
    campaign = create(store_url, window=60)
    clock = Clock(campaign)
    campaign.ship(["a", "b", "c"], store=False)
    first, second, third = (campaign.decide() for _ in range(3))
    assert campaign.adds([(first.id, 2.0, "one"), (first.id, 3.0, "two")]).accepted == 2
    assert campaign.add(first, 3.0, event="three").accepted == 1
    assert campaign.add(first, 3.0, event="two").repeated == 1
    assert campaign.records([(second.id, "returns", 1.0), (second.id, "visits", 3.0)]).accepted == 2
    assert campaign.rewards([(second.id, 4.0), (third.id, 4.0)]).accepted == 2
    clock.wait(60)
    campaign.learn()
    summary = campaign.summary()
    assert (summary.plays, summary.rewards, summary.mean) == (3, 0, None)
    assert rewards_of(campaign) == [8, 4, 4]
    assert campaign.verify().ok


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_silence_teaches_as_much_as_zeros(sqlite_store: str, seed: int) -> None:
    """9 of 10 visitors do nothing; 500 plays are in flight."""
    silent = create(sqlite_store, "silent", window=500, reward_range=(0, 1), seed=seed)
    told = create(sqlite_store, "told", reward_range=(0, 1), seed=seed)
    clock = Clock(silent)
    for campaign in (silent, told):
        rng, waiting = np.random.default_rng(seed), []
        for _ in range(120):
            made = campaign.decide(50)
            ordered = rng.random(50) < [0.02 + 0.06 * len(set(each.arms) & {"f", "g", "h"}) for each in made]
            waiting.append([(each.id, float(bought)) for each, bought in zip(made, ordered, strict=True)])
            clock.wait(50)
            if campaign is silent:
                campaign.adds([(id, value, "order") for id, value in waiting[-1] if value])
            elif len(waiting) >= 10:
                campaign.rewards(waiting.pop(0))
        assert 0.08 < (campaign.summary().mean or 0) < 0.2
        assert campaign.best() == ["f", "g", "h"]
        assert campaign.summary().in_flight == 450


# Metrics and guardrails.


def metrics_of(campaign: Campaign) -> dict[str, MetricReport]:
    return {each.name: each for each in campaign.insight().metrics}


@postgres_is_slow
def test_metrics_have_means_of_each_group_and_a_lift(store_url: str) -> None:
    campaign = create(store_url, control=CONTROL, control_share=0.4, metric_window="1h")
    clock = Clock(campaign)
    known: dict[str, list[float]] = {"learned": [], "control": []}
    for _ in range(8):
        decisions = campaign.decide(50)
        campaign.rewards({each.id: 6.0 for each in decisions})
        assert campaign.record(decisions[0], "returns", 0.25) == Rewarded(1, 0)
        assert campaign.record(decisions[0], "returns", 0.25) == Rewarded(0, 1)
        with pytest.raises(kofn.Conflict, match="already has the metric 'returns' with"):
            campaign.record(decisions[0], "returns", 0.5)
        values = {each.id: 0.25 + 0.5 * (each.group == "learned") for each in decisions[1::2]}
        assert campaign.records([(id, "returns", value) for id, value in values.items()]).accepted == 25
        values[decisions[0].id] = 0.25
        for each in decisions:  # nothing recorded is 0
            known[each.group].append(values.get(each.id, 0.0))
        clock.wait(600)
    clock.wait(3600)
    campaign.learn()
    assert campaign.record(decisions[1], "visits", 1.0).late == 1
    found = metrics_of(campaign)
    assert found.keys() == {"returns"}
    returns = found["returns"]
    assert returns.learned is not None
    assert returns.control is not None
    assert returns.lift is not None
    assert returns.learned.mean == pytest.approx(np.mean(known["learned"]))
    assert returns.control.mean == pytest.approx(np.mean(known["control"]))
    assert returns.lift.difference == pytest.approx(np.mean(known["learned"]) - np.mean(known["control"]))
    assert (returns.guardrail, returns.broken) == (None, False)
    logged = next(each for each in campaign.decisions() if each.id == decisions[0].id)
    assert (logged.metrics, logged.reward) == ({"returns": 0.25}, 6.0)  # beside the reward: the mean of all is 6
    assert campaign.summary().mean == 6.0
    campaign.configure(control=["f", "g", "h"])  # a new comparison
    assert metrics_of(campaign) == {}
    checked(campaign)


def test_metrics_settle_when_their_own_window_ends(sqlite_store: str) -> None:
    campaign = create(sqlite_store, window=10, metric_window=100)
    clock = Clock(campaign)
    decisions = campaign.decide(10)
    campaign.record(decisions[0], "returns", 5.0)
    campaign.learn()
    clock.wait(99)
    campaign.learn()
    assert campaign.summary().rewards == 10
    assert metrics_of(campaign)["returns"].learned is None
    assert campaign.record(decisions[1], "returns", 5.0).accepted == 1
    clock.wait(1)
    assert campaign.record(decisions[2], "returns", 5.0).late == 1
    campaign.learn()
    found = metrics_of(campaign)["returns"]
    assert found.learned is not None
    assert (found.learned.mean, found.control, found.lift) == (1.0, None, None)
    for malformed in ([(decisions[3].id, 1.0)], [(decisions[3].id, "x" * 51, 1.0)], [(decisions[3].id, "a<", 1.0)]):
        with pytest.raises(kofn.BadInput, match=r"triples \(id, name, value\)|the name of a metric must be"):
            campaign.records(malformed)  # type: ignore[arg-type]
    checked(campaign)


@pytest.mark.parametrize(
    ("guardrail", "rate", "broken"),
    [
        ("returns<=+2%", 0.6, True),
        ("returns<=+2%", 0.2, False),
        ("returns<=+2%", 0.1, False),
        ("returns<=+400%", 0.6, False),
        ("returns <= 0.1", 0.6, True),
        ("returns<=0.9", 0.6, False),
        ("returns>=-5%", 0.02, True),
        ("returns>=-5%", 0.3, False),
        ("returns>=-0.05", 0.02, True),
    ],
)
def test_a_guardrail_is_broken_only_when_that_is_certain(
    sqlite_store: str, guardrail: str, rate: float, broken: bool
) -> None:
    """The control returns 1 in 5."""
    campaign = create(sqlite_store, control=CONTROL, control_share=0.5, metric_window=60, guardrails=[guardrail])
    clock, rng, looks = Clock(campaign), np.random.default_rng(3), []
    for _ in range(40):
        decisions = campaign.decide(50)
        back = rng.random(50) < [0.2 if each.group == "control" else rate for each in decisions]
        campaign.records([(each.id, "returns", 1.0) for each, b in zip(decisions, back, strict=True) if b])
        clock.wait(60)
        campaign.learn()
        looks.append(metrics_of(campaign)["returns"].broken)
    assert not any(looks[:3])  # by chance, there is always a difference
    assert looks[-1] == broken
    assert broken or not any(looks)
    found = [each for each in campaign.note_alarms() if each.kind == "guardrail"]
    assert [each.arm for each in found] == ["returns"] * broken
    if broken:
        assert str(metrics_of(campaign)["returns"].guardrail) in found[0].message
        assert [each.kind for each in campaign.events() if "guardrail" in each.message] == ["alarm"]
        campaign.configure(guardrails=[])
        assert campaign.insight().alarms == []


def test_guardrails_are_settings(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    with pytest.raises(kofn.BadInput, match="a guardrail compares a metric with the control's"):
        campaign.configure(guardrails=["returns<=+2%"])
    given: dict[str, Any] = {
        "guardrails": ["returns<=2 %", "visits >= -0.5"],
        "control": CONTROL,
        "metric_window": "30d",
    }
    found = campaign.configure(**given)
    assert (found.guardrails, found.metric_window) == (["returns<=+2%", "visits>=-0.5"], 30 * 86400.0)
    with pytest.raises(kofn.BadInput, match="a guardrail compares"):
        campaign.configure(control=None)
    assert [(each.name, each.learned, each.broken) for each in campaign.insight().metrics] == [
        ("returns", None, False),
        ("visits", None, False),
    ]
    assert set(NAMES) > set(campaign.best())
