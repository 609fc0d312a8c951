"""Campaigns with a context: plans, propensities, learning, keys, control, arms, rules and shipping by segment."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from scipy.stats import binom
from sqlalchemy import select

import kofn
from kofn import Campaign
from kofn.campaigns import Decision, Store
from kofn.campaigns.decide import SHIPPED_FOR
from kofn.campaigns.decision_files import encoded
from kofn.campaigns.records import plan_rows
from kofn.campaigns.segments import best_of_segment
from kofn.campaigns.store.schema import PLANS
from kofn.constraints import AtMost, Never
from kofn.core.contexts import MOST_SEGMENTS, MOST_WITH_OTHER, OTHER, key_of
from tests.campaigns.tools import NAMES, Clock, checked, noise
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
        assert each.context is not None
        good = sum(each.subset) if each.context["device"] == "phone" else 21 - sum(each.subset)
        found[each.id] = max(0, min(96, round(96 * (good / 21 + noise(each.id.removeprefix("s"))) / 1.2))) / 8
    return found


def play(campaign: Campaign, calls: int, *, batch: int = 6, lost: int = 0) -> None:
    """Decide and reward: two phones to one desktop. The first `lost` decisions of each call have no reward."""
    for call in range(calls):
        decisions = campaign.decide(batch, context=PHONE if call % 3 else DESK)
        campaign.rewards(rewards_of(decisions[lost:]))


def plan_of(campaign: Campaign) -> list[Any]:
    """The rows of the plan as they are stored."""
    with campaign._read() as tx:
        return list(tx.execute(select(PLANS).where(PLANS.c.campaign == tx.id).order_by(PLANS.c.row)))


# Plans and learning.


@postgres_is_slow
def test_each_segment_has_plans_and_a_best_subset(store_url: str) -> None:
    campaign = create(store_url)
    play(campaign, 150)
    found = campaign.segments()
    assert [each.words for each in found.segments] == ["device phone", "device desktop"]
    assert [sorted(each.best) for each in found.segments] == [HIGH, LOW]
    assert found.segments[0].share == pytest.approx(2 / 3, abs=0.05)
    assert sum(each.plays for each in found.segments) == pytest.approx(900, rel=0.2)
    assert [each.attribute for each in found.attributes] == ["device"]
    assert found.attributes[0].values == ["desktop", "phone"]
    assert found.attributes[0].probability > 0.95
    assert found.attributes[0].gain > 0
    assert all(each.low <= each.value <= each.high for each in found.segments)  # type: ignore[operator]
    assert {key_of(each.context) for each in campaign.insight().plan if each.context} == {
        key_of(PHONE),
        key_of(DESK),
    }
    checked(campaign)


def test_a_planned_play_goes_to_its_segment_with_its_share_of_it(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    play(campaign, 60)
    planned = [row for row in plan_of(campaign) if row.times > 0]
    of_segment = Counter[str]()
    for row in planned:
        of_segment[row.context] += row.times
    seen = len(list(campaign.decisions()))
    for context in [PHONE, DESK, FRIDGE] * 30:
        campaign.decide(context=context)
    new = list(campaign.decisions())[seen:]
    times = Counter[tuple[str, str]]()
    for row in planned:
        times[row.context, row.subset] += row.times
    for each in new:
        assert each.context is not None
        key, subset = key_of(each.context), ",".join(map(str, each.subset))
        if each.propensity is not None:
            assert 0 < each.propensity <= times[key, subset] / of_segment[key] + 1e-12
        else:
            assert not times[key, subset]
    assert all(each.propensity is None for each in new if each.context == FRIDGE)  # nothing is planned for it
    free = Counter(row.context for row in plan_of(campaign) if row.times > row.count + row.in_flight)
    assert key_of(FRIDGE) not in free
    checked(campaign)


@pytest.mark.parametrize("batch", [1, 7])
def test_a_part_of_a_plan_has_each_row_in_proportion_whichever_segments_come(sqlite_store: str, batch: int) -> None:
    campaign = create(sqlite_store)
    play(campaign, 100)
    with campaign._read() as tx:
        plays = tx.snapshot.plays_of_segments
    for _ in range(min(plays.values()) // 2 // batch):
        campaign.decide(batch, context=PHONE)
        campaign.decide(batch, context=DESK)
    for key in map(key_of, (PHONE, DESK)):
        rows = [row for row in plan_of(campaign) if row.context == key and row.times > 0]
        handed_out = [row.in_flight + row.count for row in rows]
        assert sum(handed_out) > batch
        part = sum(handed_out) / sum(row.times for row in rows)
        assert all(abs(n - part * row.times) < 2 for n, row in zip(handed_out, rows, strict=True))


def test_other_processes_and_large_plans_decide_the_same(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of the plan are in memory, read as a whole, or read one by one."""

    def shown(name: str, *, reopen: bool) -> list[tuple[int, ...]]:
        found = []
        campaign = create(store_url, name=name)
        for call in range(50):
            if reopen and call % 3 == 2:
                campaign.store.close()
                campaign = Campaign.open(name, store=Store(store_url))
            decisions = campaign.decide(2, context=[PHONE, DESK, PHONE, FRIDGE][call % 4])
            found += [each.subset for each in decisions]
            values = {each.id: (sum(each.subset) + call % 5) / 4 for each in decisions[: 1 + call % 2]}
            campaign.rewards(values)
        checked(campaign)
        campaign.store.close()
        return found

    in_memory = shown("one", reopen=False)
    assert shown("two", reopen=True) == in_memory
    monkeypatch.setattr(plan_rows, "SMALL_PLAN", 0)
    assert shown("three", reopen=True) == in_memory


@postgres_is_slow
def test_late_rewards_expired_decisions_and_compaction(store_url: str) -> None:
    campaign = create(store_url, expire_after=60.0, keep_decisions=30)
    clock = Clock(campaign)
    late: list[Decision] = []
    for call in range(80):
        decisions = campaign.decide(4, context=PHONE if call % 3 else DESK)
        campaign.rewards(rewards_of(decisions[1:]))
        late += decisions[:1]
        clock.wait(9)
        if call % 20 == 19:
            campaign.rewards(rewards_of(late[:10]))
            del late[:10]
    assert campaign.summary().expired > 0
    assert campaign.verify().compared == ["counters"]
    assert [sorted(each.best) for each in campaign.segments().segments] == [HIGH, LOW]
    checked(campaign)


def test_rare_values_share_a_segment(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    contexts = [{"device": "phone" if visit % 2 else "desktop", "city": f"city {visit}"} for visit in range(70)]
    campaign.rewards(rewards_of([campaign.decide(context=context) for context in contexts]))
    found = campaign.segments().segments
    assert 64 < len(found) <= 70
    assert {each.context["device"] for each in found if each.context["city"] == "(other)"} == {"phone", "desktop"}
    late = campaign.decide(3, context={"device": "phone", "city": "the last"})
    assert late[0].context == {"city": "(other)", "device": "phone"}
    campaign.rewards(rewards_of(late))
    checked(campaign)


def test_without_a_context_a_decision_is_for_those_of_whom_nothing_is_known(sqlite_store: str) -> None:
    campaign = create(sqlite_store, params={"attributes": ["device", "country"]})
    missing = {"country": "(missing)", "device": "(missing)"}
    assert campaign.decide().context == missing
    assert campaign.decide(context={"device": "phone"}).context == {**missing, "device": "phone"}
    assert campaign.decide(context={"device": 7, "country": True}).context == {"country": "true", "device": "7"}
    assert [each.context for each in campaign.open_decisions()][-1] == missing
    plain = create_any(sqlite_store, "plain")
    assert plain.decide().context is None


def test_totals_count_for_their_segment(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    for day in range(10):
        for context, arms in ((PHONE, LOW), (PHONE, HIGH), (DESK, LOW), (DESK, HIGH)):
            good = (context == PHONE) == (arms == HIGH)
            campaign.reward_total(arms, 20, 200.0 if good else 40.0, key=f"{day} {context} {arms}", context=context)
    assert [sorted(each.best) for each in campaign.segments().segments] in ([HIGH, LOW], [LOW, HIGH])
    key = f"9 {DESK} {HIGH}"
    assert campaign.reward_total(HIGH, 20, 40.0, key=key, context=DESK).repeated == 20
    with pytest.raises(kofn.Conflict, match="another total, of 20 plays"):
        campaign.reward_total(HIGH, 20, 40.0, key=key, context=PHONE)
    checked(campaign)


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"size": "xl"}, "the context has size, which is not declared; the attributes are: device, country"),
        ({"device": "x" * 101}, "the value of 'device' must be 1 to 100 printable characters"),
        ({"device": 1.5}, "must be text, a whole number or true or false"),
        ("phone", "context must be a dict of attributes and their values; got 'phone'"),
    ],
)
def test_a_wrong_context_is_refused(sqlite_store: str, context: Any, message: str) -> None:
    campaign = create(sqlite_store, params={"attributes": ["device", "country"]})
    with pytest.raises(kofn.BadInput, match=message):
        campaign.decide(context=context)
    with pytest.raises(kofn.BadInput, match=message):
        campaign.reward_total(LOW, 1, 1.0, context=context)
    assert campaign.summary().plays == 0


def test_a_policy_without_context_says_so(sqlite_store: str) -> None:
    campaign = create_any(sqlite_store)
    with pytest.raises(kofn.BadInput, match="thompson does not take a context; use contextual-thompson"):
        campaign.decide(context=PHONE)
    with pytest.raises(kofn.BadInput, match="thompson does not take a context, so it has no segments"):
        campaign.segments()
    campaign.ship(LOW, store=False)
    assert campaign.decide().arms == LOW
    with pytest.raises(kofn.BadInput, match="thompson does not take a context"):
        campaign.decide(context=PHONE)


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
    for each in campaign.decisions():
        if each.group == "control" and each.propensity is not None:
            assert each.propensity >= 0.25
    found = campaign.insight()
    assert found.lift is not None
    assert found.lift.claimed
    checked(campaign)


def test_a_uniform_control_obeys_the_rules_in_each_segment(sqlite_store: str) -> None:
    rules = [AtMost(1, ["a", "h"])]
    campaign = create(sqlite_store, control="uniform", control_share=0.5, constraints=rules)
    play(campaign, 60)
    decisions = campaign.decide(200, context=PHONE) + campaign.decide(200, context=FRIDGE)
    assert not [each for each in decisions if {"a", "h"} <= set(each.arms)]
    assert len({each.subset for each in decisions if each.group == "control"}) > 20
    campaign.rewards(rewards_of(decisions))
    checked(campaign)


# Arms and rules.


def test_arms_come_and_go(sqlite_store: str) -> None:
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
    best = {each.words: set(each.best) for each in campaign.segments().segments}
    assert "i" in best["device phone"]
    assert "i" not in best["device desktop"]
    checked(campaign)


def test_rules_can_change_while_it_runs(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    play(campaign, 90)
    campaign.configure(constraints=[AtMost(1, ["g", "h"]), Never(["a"])])
    for context in (PHONE, DESK, FRIDGE):
        for each in campaign.decide(40, context=context):
            assert len({"g", "h"} & set(each.arms)) <= 1
            assert "a" not in each.arms
    play(campaign, 60)
    campaign.ship()
    assert sorted(campaign.decide(context=DESK).arms) == ["b", "c", "d"]
    with pytest.raises(kofn.BadInput, match="the subset that is shipped breaks the rule"):
        campaign.configure(constraints=[Never(["b"])])
    with pytest.raises(kofn.BadInput, match="it is in a subset that was shipped"):
        campaign.retire_arm("b")
    checked(campaign)


# Shipping.


@postgres_is_slow
def test_each_segment_gets_its_own_winners(store_url: str) -> None:
    campaign = create(store_url)
    play(campaign, 120)
    best_for_all = campaign.best()
    campaign.ship()
    with campaign._read() as tx:
        expected = tx.roster.names_of(best_of_segment(tx.snapshot, key_of(FRIDGE)))
    assert sorted(campaign.decide(context=PHONE).arms) == HIGH
    assert sorted(campaign.decide(context=DESK).arms) == LOW
    unknown = campaign.decide(context=FRIDGE)
    assert (unknown.arms, unknown.group, unknown.context) == (expected, "shipped", FRIDGE)
    campaign.rewards({each.id: 0.0 for each in campaign.decide(30, context=FRIDGE)})
    assert campaign.decide(context=FRIDGE).arms == expected  # what is shipped stays
    assert [sorted(each.shipped or []) for each in campaign.segments().segments][:2] == [HIGH, LOW]
    assert campaign.insight().shipped == best_for_all
    assert "each of 2 segments gets its own best subset" in campaign.events(1)[0].message
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
    assert [each.context for each in decisions[:3]] == [PHONE, DESK, FRIDGE]
    with pytest.raises(kofn.BadInput, match="context must be a dict"):
        campaign.decide(context="phone")  # type: ignore[call-overload]
    assert campaign.summary().plays == before
    campaign.ship(store=False)  # what was shipped before is known
    clock.wait(SHIPPED_FOR)
    assert campaign.rewards(rewards_of(decisions)).accepted == 6
    logged = list(campaign.decisions())[-6:]
    assert [each.context for each in logged] == [PHONE, DESK, FRIDGE] * 2
    with campaign._read() as tx:
        assert tx.row.rewarded == before + 6
    moved = Campaign.import_(campaign.export(with_secret=True), store=campaign.store, name="moved")
    assert sorted(moved.decide(context=DESK).arms) == LOW
    checked(campaign)
    checked(moved)


def test_segments_that_come_after_shipping_are_bounded_and_learned_from(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    play(campaign, 6)
    campaign.ship(["a", "d", "h"], store=False)
    cities = [campaign.decide(context={"device": "phone", "city": f"c{number}"}) for number in range(100)]
    assert {tuple(each.arms) for each in cities} == {("a", "d", "h")}
    seen = {key_of(each.context or {}) for each in cities}
    assert len(seen) <= MOST_WITH_OTHER
    assert cities[-1].context == {"city": OTHER, "device": "phone"}
    campaign.rewards(rewards_of(cities))
    campaign.resume()
    play(campaign, 40)
    assert len(campaign.segments().segments) > MOST_SEGMENTS
    checked(campaign)


def test_it_ships_by_itself_when_it_is_ready(sqlite_store: str) -> None:
    campaign = create(sqlite_store, stop_when="loss<6", ship_when_ready=True)
    play(campaign, 120)
    assert campaign.state == "shipped"
    assert sorted(campaign.decide(context=PHONE).arms) == HIGH
    assert sorted(campaign.decide(context=DESK).arms) == LOW


# Export.


@postgres_is_slow
def test_an_export_has_the_segments(store_url: str) -> None:
    campaign = create(store_url)
    play(campaign, 40, lost=1)
    exported = json.loads(json.dumps(campaign.export(with_secret=True)))
    moved = Campaign.import_(exported, store=campaign.store, name="moved")
    open_ones = {each.id: each for each in campaign.open_decisions(1000)}
    assert {each.id: each.context for each in moved.open_decisions(1000)} == {
        id: each.context for id, each in open_ones.items()
    }
    for each in (campaign, moved):
        each.rewards(rewards_of(open_ones.values()))
        play(each, 20)
        checked(each)
    assert [each.subset for each in campaign.decide(30, context=DESK)] == [
        each.subset for each in moved.decide(30, context=DESK)
    ]


@pytest.mark.parametrize("table", ["plans", "batches"])
@pytest.mark.parametrize("key", ["{", '{"device": "phone"}', '{"device":"phone","a":"b"}', "[]"])
def test_an_export_with_a_wrong_segment_is_refused(sqlite_store: str, table: str, key: str) -> None:
    campaign = create(sqlite_store)
    campaign.decide(3, context=PHONE)
    exported = campaign.export()
    exported["tables"][table]["rows"][0][-1] = key
    with pytest.raises(kofn.BadRecord, match="segment's key must be a context"):
        Campaign.import_(exported, store=sqlite_store, name="moved")
    plain = create_any(sqlite_store, "plain")
    plain.decide()
    exported = plain.export()
    exported["tables"][table]["rows"][0][-1] = key_of(PHONE)
    with pytest.raises(kofn.BadRecord, match="thompson does not take a context"):
        Campaign.import_(exported, store=sqlite_store, name="moved")


def test_files_of_decisions_have_the_context(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    campaign.decide(2, context={"device": "phone", "country": "de"})
    lines = b"".join(encoded(campaign.decisions(), "jsonl")).splitlines()
    assert json.loads(lines[0])["context"] == {"country": "de", "device": "phone"}
    rows = list(csv.DictReader(io.StringIO(b"".join(encoded(campaign.decisions(), "csv")).decode())))
    assert [json.loads(row["context"]) for row in rows] == [{"country": "de", "device": "phone"}] * 2
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(io.BytesIO(b"".join(encoded(campaign.decisions(), "parquet"))))
    assert table["context"].to_pylist() == ['{"country":"de","device":"phone"}'] * 2
    assert campaign.to_frame()["context"][0] == {"country": "de", "device": "phone"}


# Threads.


def test_threads_decide_and_read_at_once(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    play(campaign, 60)
    expected = {each.words: each for each in campaign.segments().segments}

    def decide(context: dict[str, str]) -> None:
        for _ in range(20):
            campaign.decide(5, context=context)

    def read() -> list[Any]:
        return [campaign.segments() for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        decided = [pool.submit(decide, context) for context in (PHONE, DESK)]
        found = [pool.submit(read) for _ in range(2)]
        for each in decided:
            each.result()
        for reading in found:
            for known in reading.result():
                assert {each.words: each for each in known.segments} == expected
    assert set(NAMES) >= set(campaign.best())
