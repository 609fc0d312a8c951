"""Learning: how subsets are drawn, exact counts, what is never in the way, failures, records of other versions."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

import kofn
from kofn import Campaign, Thompson
from kofn.campaigns import Decision, Rewarded, Store, fold, learning
from kofn.core import StateError, StoreError
from kofn.policies import registry
from tests.campaigns.tools import Clock, checked, create, play, rewards_for
from tests.cases import for_each, postgres_is_slow

CONTROL = ["a", "b", "c"]
PHONE, DESK = {"device": "phone"}, {"device": "desktop"}

KINDS: dict[str, dict[str, Any]] = {
    "plan": {},
    "control": {"control": CONTROL, "control_share": 0.3},
    "random control": {"control": "uniform", "control_share": 0.3},
    "segments": {"policy": "contextual-thompson", "control": CONTROL, "control_share": 0.3},
    "sizes": {"policy": "thompson-sizes", "params": {"fewest": 1}, "costs": {"a": 1.0}, "control": "uniform"},
}


# Propensities.


@pytest.mark.parametrize("kind", KINDS)
def test_the_propensity_is_the_share_in_the_long_run(sqlite_store: str, kind: str) -> None:
    """3,000 calls, each as if by a process that has just started: systematic sampling draws from a random start."""
    campaign = create(sqlite_store, **KINDS[kind])
    context = PHONE if kind == "segments" else None
    for _ in range(10):
        made = campaign.decide(30, context=context)
        campaign.rewards({each.id: sum(each.subset) / 2 for each in made})
    seen = campaign.summary().plays
    campaign.store.learns_inline = False
    for number in range(1_500):
        campaign.store.drop(campaign._id)
        campaign.decide(2, context=context)
        if kind == "segments" and number % 3 == 0:
            campaign.decide(context=DESK)
    logged = [each for each in list(campaign.decisions())[seen:] if each.context in (None, PHONE)]
    propensities = {each.subset: each.propensity for each in logged}
    assert len({(each.subset, each.propensity) for each in logged}) == len(propensities)
    counts = Counter(each.subset for each in logged)
    rest = 1 - sum(each or 0 for each in propensities.values())
    assert -1e-9 < rest < 0.01
    expected = {subset: 3_000 * (each or 0) for subset, each in propensities.items()}
    common = [subset for subset, times in expected.items() if times >= 5]
    pairs = [(counts[subset], expected[subset]) for subset in common]
    pairs.append((3_000 - sum(one for one, _ in pairs), 3_000 - sum(two for _, two in pairs) + 1e-9))
    statistic = sum((one - two) ** 2 / two for one, two in pairs if two > 1)
    assert statistic < chi2.isf(1e-4, len(pairs) - 1)


@pytest.mark.parametrize("batch", [1, 7, 60])
def test_a_part_of_a_plan_has_each_row_in_proportion_whichever_segments_come(sqlite_store: str, batch: int) -> None:
    """A process that stays visits its plan evenly."""
    campaign = create(sqlite_store, policy="contextual-thompson")
    for step in range(40):
        made = campaign.decide(20, context=PHONE if step % 3 else DESK)
        campaign.rewards({each.id: sum(each.subset) / 2 for each in made})
    for context in (PHONE, DESK):
        rows = {tuple(row.arms): row.remaining for row in campaign.insight().plan if row.context == context}
        half = min(sum(rows.values()) // 2, 200)
        shown = Counter[tuple[str, ...]]()
        while shown.total() < half:
            shown.update(tuple(each.arms) for each in campaign.decide(batch, context=context))
            campaign.decide(batch, context=DESK if context == PHONE else PHONE)
        for arms, times in rows.items():
            assert abs(shown[arms] - shown.total() * times / sum(rows.values())) < 4


def test_beyond_the_plan_further_draws_of_the_policy_are_shown(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    play(campaign, 300, batch=30)
    planned = sum(row.remaining for row in campaign.insight().plan)
    before = campaign.summary().plays
    campaign.decide(planned + 300)
    more = list(campaign.decisions())[before + planned :]
    assert len({each.subset for each in more}) > 1
    shares = Counter(each.subset for each in more)
    for each in more:
        assert each.propensity is not None
        assert shares[each.subset] / 300 == pytest.approx(each.propensity, abs=0.05)


# Exact counts.


def plan_of(policy: str) -> Counter[kofn.core.Subset]:
    if policy == "dart":
        return Counter(dict(registry.make_policy("dart", 8, 3, horizon=10**6, seed=7).plan()))
    return Counter(dict(kofn.CMABSM(8, 3, 10**6, resolution=0.3, seed=7).plan()))


EXACT: dict[str, dict[str, Any]] = {
    "cmab-sm": {"policy": "cmab-sm", "params": {"horizon": 10**6, "resolution": 0.3}},
    "dart": {"policy": "dart", "params": {"horizon": 10**6}},
}


@pytest.mark.parametrize("policy", EXACT)
def test_exact_counts_are_handed_out_once_then_the_best(store_url: str, policy: str) -> None:
    campaign = create(store_url, **EXACT[policy])
    planned = plan_of(policy)
    made = [campaign.decide() for _ in range(2)]
    made += campaign.decide(planned.total() - 2)
    assert Counter(each.subset for each in made) == planned
    more = campaign.decide(30)
    assert [each.arms for each in more] == [campaign.best()] * 30
    campaign.rewards(rewards_for(more))  # counted, and at most the average of the plan's subset is learned
    assert campaign.summary().rewards == 30
    campaign.rewards(rewards_for(made))
    assert campaign.insight().updates == 1
    assert sum(arm.plays for arm in campaign.insight().arms) == 3 * (planned.total() + 30)
    checked(campaign)


@pytest.mark.parametrize("policy", EXACT)
def test_exact_counts_are_completed_though_rewards_are_lost_and_late(sqlite_store: str, policy: str) -> None:
    """Two processes hand out the same plan. Of all rewards, 20 % are lost, and 20 % come 30 times later."""
    campaign = create(sqlite_store, **EXACT[policy])
    clock, rng = Clock(campaign), np.random.default_rng(1)
    other = Store(sqlite_store)
    other.clock = campaign.store.clock
    both, late = [campaign, Campaign.open("front", store=other)], list[list[Decision]]()
    for step in range(300 if policy == "cmab-sm" else 120):
        made = [each for process in both for each in process.decide(5)]
        clock.wait(1)
        fate = rng.random(10)
        campaign.rewards(rewards_for(each for each, chance in zip(made, fate, strict=True) if chance < 0.6))
        late.append([each for each, chance in zip(made, fate, strict=True) if chance > 0.8])
        if step >= 30:
            both[1].rewards(rewards_for(late.pop(0)))
    assert campaign.insight().updates >= (1 if policy == "cmab-sm" else 5)
    summary = campaign.summary()
    assert summary.in_flight == pytest.approx(0.2 * summary.plays + 60, rel=0.3)
    checked(campaign)
    other.close()


def test_what_expires_without_any_reward_is_planned_again(sqlite_store: str) -> None:
    campaign = create(sqlite_store, expire_after=60, **EXACT["cmab-sm"])
    clock, planned = Clock(campaign), plan_of("cmab-sm")
    first = campaign.decide(planned.total())
    clock.wait(59)
    assert {tuple(each.arms) for each in campaign.decide(5)} == {tuple(campaign.best())}
    clock.wait(2)
    second = campaign.decide(planned.total())
    assert Counter(each.subset for each in second) == Counter(each.subset for each in first)
    campaign.rewards(rewards_for(second))
    assert campaign.insight().updates == 1
    assert campaign.rewards(rewards_for(first)).accepted == planned.total()  # late, and ignored for learning
    checked(campaign)


# What learning is not in the way of.


def fails(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("float division by zero")


def test_no_policy_is_in_the_way_of_decisions_and_rewards(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even of the first decision of a new process, of an unknown segment, or of a window that ends."""
    create(store_url, policy="contextual-thompson", control="uniform", window=10, sticky=100)
    monkeypatch.setattr(learning, "restore", fails)
    monkeypatch.setattr("kofn.campaigns.settings.policy_rules", fails)
    store = Store(store_url)
    store.learns_inline = False
    campaign = Campaign.open("front", store)
    clock = Clock(store)
    for number in range(30):
        made = campaign.decide(50, context={"device": f"d{number}"}, key=f"k{number % 7}-{number // 14}")
        campaign.adds([(each.id, 1.0, "order") for each in made])
        clock.wait(1)
    decided: Future[list[Decision]] = Future()
    rewarded: Future[Rewarded] = Future()
    campaign.submit_decide(decided, 2, context=PHONE)
    campaign.submit_events(rewarded, "add", [(each.id, 2.0, "order") for each in decided.result(30)])
    assert rewarded.result(30) == Rewarded(2, 0)
    assert campaign.summary().rewards > 0
    assert campaign.best()
    store.close()


def test_a_program_learns_in_the_thread_that_reports(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    play(campaign, 200, batch=20)
    assert campaign.insight().updates > 3
    other_process = Store(sqlite_store)
    other_process.learns_inline = False
    other = Campaign.open("front", store=other_process)
    updates = campaign.insight().updates
    play(other, 400, batch=100)
    assert campaign.insight().updates == updates
    assert campaign.learn()  # what others have reported
    assert campaign.insight().updates > updates
    assert not campaign.learn()
    other_process.close()
    checked(campaign)


def test_the_policy_knows_what_is_in_flight(sqlite_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list[dict[Any, float]]()
    monkeypatch.setattr(Thompson, "expect", lambda self, plays: expected.append(dict(plays)))
    campaign = create(sqlite_store)
    waiting = campaign.decide(70)
    play(campaign, 100, batch=20)
    campaign.rewards(rewards_for(waiting[:30]))
    campaign.learn()
    play(campaign, 300, batch=50)
    assert sum(expected[-1].values()) == 40 == campaign.summary().in_flight
    assert Counter(expected[-1].values()).total() <= 40
    checked(campaign)


# Folds and policies that fail, and records of other versions.


def test_a_fold_that_fails_refuses_nothing_that_is_stored(store_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """It comes after the commit: an error would tell the caller that the call was refused."""

    def locked(_: object) -> Any:
        raise StoreError("database is locked")

    campaign = create(store_url)
    play(campaign, 200, batch=20)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fold.Row, "of", locked)
        play(campaign, 200, batch=20)
    assert "campaign 'front' does not learn: database is locked" in caplog.text
    play(campaign, 200, batch=20)
    assert campaign.summary().rewards == 600
    checked(campaign)


@for_each("method", ["_learn", "_next", "best", "state"])
def test_whatever_fails_in_a_policy_refuses_no_reward(sqlite_store: str, method: str) -> None:
    campaign = create(sqlite_store, method.strip("_"))
    play(campaign, 200, batch=20)
    before = campaign.insight()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Thompson, method, fails)
        play(campaign, 400, batch=20)
        campaign.pause()
        campaign.resume()
        insight = campaign.insight()
        assert insight.summary.rewards == 600
        assert insight.summary.failing
        assert insight.failure == "ZeroDivisionError: float division by zero"
        assert (insight.updates, insight.best) == (before.updates, before.best)
        assert [alarm.kind for alarm in insight.alarms or []] == ["policy"]
        assert len([each for each in campaign.events() if each.kind == "policy failed"]) == 3  # again after a change
        for change in (lambda: campaign.configure(half_life=500), campaign.ship):
            with suppress(StateError):  # and no other error
                change()
        campaign.ship(["f", "g", "h"])
        assert campaign.decide().arms == ["f", "g", "h"]
    campaign.resume()
    assert campaign.insight().failure is None
    assert campaign.insight().updates > before.updates
    assert [alarm.kind for alarm in campaign.insight().alarms or []] == []
    play(campaign, 200, batch=20)
    checked(campaign)


@postgres_is_slow
def test_a_record_of_another_version_is_replaced_by_a_replay(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer kofn opens the store: its policies learn again from the steps since the campaign began."""
    one = create(store_url, "one")
    play(one, 300, batch=20)
    one.add_arm("i")
    one.retire_arm("a")
    play(one, 300, batch=20)
    one.configure(half_life=400)
    play(one, 300, batch=20)
    two = Campaign.import_(one.export(), store=store_url, name="two")
    before = one.insight()
    for module in ("policies.registry", "campaigns.store.version"):
        monkeypatch.setattr(f"kofn.{module}.FORMAT", 2)
    newer = Store(store_url)
    one, two = (Campaign.open(name, store=newer) for name in ("one", "two"))
    assert one.insight().to_dict() == before.to_dict()
    two.configure(sticky=60)
    for each in (one, two):
        assert each.verify().ok
        assert each.best() == before.best
        each.add_arm("j")
        each.configure(half_life=500)
        play(each, 300, batch=20)
        assert each.insight().updates > before.updates
        checked(each)
    assert set(one.best()) <= set("ghij")
    one.ship()
    assert one.decide().arms == one.best()
    newer.close()


def test_learning_is_a_function_of_plain_values(sqlite_store: str) -> None:
    """It needs no store, so that it can run in another process; the same job gives the same result."""
    import pickle

    campaign = create(sqlite_store)
    campaign.store.learns_inline = False
    play(campaign, 300, batch=50)
    assert fold.fold(campaign.store, campaign._id)
    task = fold.read_task(campaign.store, campaign._id)
    assert task is not None
    found = [vars(learning.learn(pickle.loads(pickle.dumps(task.job)))) for _ in range(2)]
    for each in found:
        assert each.pop("seconds") > 0
    assert found[0] == found[1]
