"""The learner of a service: what its process does, and what goes on while that is slow, fails or dies."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kofn import Campaign
from kofn.campaigns import Store, learner, settings
from kofn.campaigns.fold import Transaction, publish
from kofn.campaigns.learner import Learner
from kofn.campaigns.store.schema import STATES
from kofn.constraints import AtMost
from kofn.core import StateError, StoreError
from tests.campaigns import workers
from tests.campaigns.tools import Clock, checked, create, play, rewards_for
from tests.campaigns.workers import append_and_die, start
from tests.waiting import wait_until


@contextmanager
def learner_of(url: str) -> Iterator[Learner]:
    """The learner of a store, whose process starts faster than with "spawn"."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(learner, "LONGEST", 0.0)
        patched.setattr(multiprocessing, "get_context", lambda _: workers.CONTEXT)
        store = Store(url)
        found = Learner(store)
        yield found
        found.stop()
        store.close()


@pytest.fixture
def learning(sqlite_store: str) -> Iterator[Learner]:
    with learner_of(sqlite_store) as found:
        yield found


@pytest.fixture
def anywhere(store_url: str) -> Iterator[Learner]:
    with learner_of(store_url) as found:
        yield found


def step_until(learning: Learner, condition: Callable[[], object], expected: str) -> None:
    """Let the learner do its work until something is true."""

    def step() -> object:
        learning.step()
        return condition()

    wait_until(step, expected)


def learned(campaign: Campaign) -> int:
    return campaign.insight().updates


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Learning waits for this file."""
    monkeypatch.setattr(learner, "learn", partial(workers.learn_when_told, str(tmp_path / "go")))
    return tmp_path / "go"


def began(go: Path) -> bool:
    return go.with_name("go.began").exists()


def test_it_learns_what_others_report(anywhere: Learner) -> None:
    store = anywhere._store
    campaign, other = create(store), create(store, "other", policy="linear-thompson")
    for _ in range(4):
        updates = [learned(each) for each in (campaign, other)]
        for each in (campaign, other):
            play(each, 200, batch=50)
            assert learned(each) in updates  # the callers of a service learn nothing
        for each, before in zip((campaign, other), updates, strict=True):
            step_until(anywhere, lambda each=each, before=before: learned(each) > before, "it learns")  # type: ignore[misc]
    assert campaign.best() == list("fgh")
    for each in (campaign, other):
        checked(each)
    assert len([event for event in campaign.events() if event.kind == "learned"]) >= 1


def test_windows_settle_by_themselves(learning: Learner) -> None:
    clock = Clock(learning._store)
    campaign = create(learning._store, window="1h")
    for _ in range(10):
        for each in campaign.decide(20)[::2]:
            campaign.add(each, 6.0, event="order")
    for _ in range(3):
        learning.step()
    assert learned(campaign) == 0
    clock.wait(3600)
    step_until(learning, lambda: learned(campaign), "it learns when the windows have ended")
    assert (campaign.summary().rewards, campaign.summary().mean) == (200, 3.0)
    checked(campaign)


def test_everything_goes_on_while_a_policy_learns(anywhere: Learner, go: Path) -> None:
    """Decisions, rewards, folds, reports and changes, of its campaign and of another one."""
    store = anywhere._store
    campaign, other = create(store), create(store, "other")
    play(campaign, 200, batch=50)
    step_until(anywhere, lambda: began(go), "it begins to learn")
    for number in range(1, 4):
        for each in (campaign, other):
            play(each, 50, batch=10)
        anywhere.step()
        with store.read() as connection:
            rows = [Transaction.open(store, connection, each._id).row for each in (campaign, other)]
        assert [row.progress.rewards for row in rows] == [200 + 50 * number, 50 * number]
        assert campaign.summary().rewards == 200 + 50 * number
    assert learned(campaign) == 0
    other.retire_arm("a")
    assert not any("a" in each.arms for each in other.decide(50))
    assert not anywhere._learning.keys() - {campaign._id, other._id}
    go.touch()
    for each in (campaign, other):
        step_until(anywhere, lambda each=each: learned(each), "both have learned")  # type: ignore[misc]
        step_until(anywhere, lambda: not anywhere._learning, "nothing is being learned")
        checked(each)


def test_what_changes_while_a_policy_learns_is_learned_again(learning: Learner, go: Path) -> None:
    campaign = create(learning._store)
    play(campaign, 200, batch=50)
    step_until(learning, lambda: began(go), "it begins to learn")
    campaign.configure(constraints=[AtMost(0, ["h"])])
    go.touch()
    step_until(learning, lambda: learned(campaign), "it learns")
    assert "h" not in campaign.best()
    assert not any("h" in each.arms for each in campaign.decide(100))
    checked(campaign)


@pytest.mark.parametrize("when", ["while it learns", "while it does nothing"])
def test_a_process_that_is_killed_is_replaced(
    learning: Learner, go: Path, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    campaign = create(learning._store)
    if when == "while it does nothing":
        go.touch()
    play(campaign, 200, batch=50)
    step_until(learning, lambda: began(go) and (learned(campaign) or not go.exists()), "it begins to learn")
    assert learning._pool is not None
    for pid in list(vars(learning._pool)["_processes"]):
        os.kill(pid, signal.SIGKILL)
    updates = learned(campaign)
    go.touch()
    play(campaign, 400, batch=50)
    step_until(learning, lambda: learned(campaign) > updates, "another process learns")
    assert not campaign.summary().failing
    checked(campaign)


def test_a_policy_whose_process_always_dies_stops_no_other(
    learning: Learner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as one that needs more memory than there is. It comes first each time."""
    deadly, fine = create(learning._store, policy="linear-thompson"), create(learning._store, "fine")
    monkeypatch.setattr(learner, "learn", workers.die_of_some)
    for each in (deadly, fine):
        play(each, 200, batch=50)
    step_until(learning, lambda: learned(fine) and deadly.summary().failing, "one learns, and the other one fails")
    assert caplog.text.count("the process that learns has ended") == learner.MOST_CRASHES
    assert not fine.summary().failing


def test_a_lost_connection_is_no_failure_of_the_policy(
    learning: Learner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    campaign, lost = create(learning._store), iter([StoreError("the connection is lost")])

    def publish_later(*arguments: Any) -> bool:
        for why in lost:
            raise why
        return publish(*arguments)

    monkeypatch.setattr(learner, "publish", publish_later)
    play(campaign, 200, batch=50)
    step_until(learning, lambda: learned(campaign), "it learns again")
    assert "what campaign 1 has learned is not stored: the connection is lost" in caplog.text
    assert not [event for event in campaign.events() if event.kind == "policy failed"]


def test_one_process_learns_until_it_dies(learning: Learner, sqlite_store: str) -> None:
    clock = Clock(learning._store)
    campaign = create(learning._store)
    with learner_of(sqlite_store) as second:
        second._store.clock = learning._store.clock
        play(campaign, 200, batch=50)
        step_until(learning, lambda: learned(campaign), "the first one learns")
        play(campaign, 400, batch=50)
        second._store.touch([campaign._id])
        for _ in range(3):
            second.step()
        assert campaign.summary().rewards == 600
        assert not second._learning
        learning.stop()
        clock.wait(learner.LEASE + 1)
        step_until(second, lambda: learned(campaign) > 1, "the second one takes over")
    checked(campaign)


def test_a_policy_that_fails_refuses_nothing_and_says_so(
    learning: Learner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    campaign = create(learning._store)
    with monkeypatch.context() as patched:
        patched.setattr(learner, "learn", workers.fail_to_learn)
        play(campaign, 200, batch=50)
        step_until(learning, lambda: campaign.summary().failing, "the policy fails")
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "Traceback" in caplog.text
    play(campaign, 200, batch=50)
    assert "division by zero" in str(campaign.insight().failure)
    assert "policy" in {alarm.kind for alarm in campaign.note_alarms()}
    (event,) = [event for event in campaign.events() if event.kind == "policy failed"]
    assert "division by zero" in event.message
    for _ in range(3):
        learning.step()
    assert campaign.summary().failing  # it tries again after a change of settings
    campaign.configure(unit="EUR")
    step_until(learning, lambda: learned(campaign), "it learns all that has come meanwhile")
    assert campaign.insight().failure is None
    checked(campaign)


@pytest.mark.parametrize("folds", [False, True])
def test_what_a_dead_process_has_left_is_learned_by_the_next(anywhere: Learner, store_url: str, folds: bool) -> None:
    campaign = create(anywhere._store)
    process = start(append_and_die, store_url, folds)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    anywhere._store.take_touched()  # only a look at all campaigns finds it
    step_until(anywhere, lambda: learned(campaign), "it learns")
    assert campaign.summary().rewards == 200
    checked(campaign)


def test_a_campaign_whose_state_cannot_be_read_stops_no_other(
    learning: Learner, caplog: pytest.LogCaptureFixture
) -> None:
    store = learning._store
    broken, fine = create(store), create(store, "fine")
    for each in (broken, fine):
        play(each, 200, batch=50)
    with store.write() as connection:
        connection.execute(STATES.update().where(STATES.c.campaign == broken._id).values(record="{"))
    step_until(learning, lambda: learned(fine), "the other one learns")
    with pytest.raises(StateError):
        broken.ship()
    assert broken.summary().failing
    assert len(broken.decide(5)) == 5
    assert broken.rewards(rewards_for(broken.decide(5))).accepted == 5
    assert "campaign 1" in caplog.text


def test_rules_that_take_long_to_solve_stop_nobody(learning: Learner, monkeypatch: pytest.MonkeyPatch) -> None:
    store = learning._store
    campaign, other = create(store), create(store, "other")
    solving, go_on = threading.Event(), threading.Event()
    rules = settings.policy_rules

    def slow(*arguments: Any) -> Any:
        solving.set()
        assert go_on.wait(60)
        return rules(*arguments)

    monkeypatch.setattr("kofn.campaigns.change.policy_rules", slow)
    with ThreadPoolExecutor(1) as thread:
        change = thread.submit(campaign.configure, constraints=[AtMost(1, ["g", "h"])])
        assert solving.wait(60)
        for each in (campaign, other):
            play(each, 50, batch=10)
        other.configure(control=list("abc"))
        other.pause()
        learning.step()
        assert not change.done()
        go_on.set()
        assert change.result(60).constraints
    assert not any({"g", "h"} <= set(each.arms) for each in campaign.decide(50))
    checked(campaign)
