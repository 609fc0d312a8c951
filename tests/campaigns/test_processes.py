"""Many processes at once, and processes that are killed: no reward is lost, and none is counted twice."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from kofn import Campaign
from kofn.campaigns import campaigns, store_at
from kofn.campaigns.names import Place, read_id
from kofn.campaigns.store.schema import DECISIONS, EVENTS
from tests.campaigns.tools import checked, create, play, rewards_for
from tests.campaigns.workers import open_and_play, play_until_killed, run, start, tell_all
from tests.waiting import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture
def sqlite_store(new_sqlite_store: str) -> str:
    """Here, stores are created by the code under test."""
    return new_sqlite_store


@pytest.mark.parametrize("processes", [12, pytest.param(32, marks=pytest.mark.slow)])
def test_processes_open_the_same_new_store_at_once(store_url: str, processes: int) -> None:
    run(open_and_play, [(store_url, seed, 4) for seed in range(processes)])
    assert [each.name for each in campaigns(store_url)] == ["front"]
    campaign = Campaign.open("front", store=store_url)
    summary = campaign.summary()
    assert summary.in_flight == 0
    assert summary.plays == summary.rewards >= processes * 4
    checked(campaign)


def test_processes_learn_together(store_url: str) -> None:
    create(store_url)
    run(open_and_play, [(store_url, seed, 60) for seed in range(4)])
    campaign = Campaign.open("front", store=store_url)
    assert campaign.best() == list("fgh")
    assert campaign.insight().updates > 10
    checked(campaign)


def test_what_many_processes_tell_counts_once(store_url: str) -> None:
    campaign = create(store_url)
    rewards = rewards_for(campaign.decide(200))
    run(tell_all, [(store_url, rewards)] * 4)
    assert campaign.summary().rewards == 200
    checked(campaign)


def test_threads_share_a_campaign(store_url: str) -> None:
    campaign = create(store_url)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(15):
                play(campaign, 20, batch=10)
                campaign.insight()
                campaign.history()
        except BaseException as why:
            failed.append(why)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert campaign.summary().rewards == 6 * 15 * 20
    checked(campaign)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_campaign_lives_through_a_fork(store_url: str) -> None:
    campaign = create(store_url)
    play(campaign, 100, batch=10)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            play(campaign, 100, batch=10)
            code = 0
        finally:
            os._exit(code)
    play(campaign, 100, batch=10)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert campaign.summary().rewards == 300
    checked(campaign)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_child_goes_on_when_its_parent_closes_the_store(store_url: str) -> None:
    """The last connection to a SQLite file deletes its log: the child's must be known as one that is still open."""
    campaign = create(store_url)
    play(campaign, 20, batch=10)
    (ready, told), (wait, go) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            play(campaign, 20, batch=10)
            os.write(told, b".")
            os.read(wait, 1)
            play(campaign, 20, batch=10)
            code = 0
        finally:
            os._exit(code)
    os.close(told)
    assert os.read(ready, 1) == b"."
    store_at(store_url).close()
    os.write(go, b".")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for each in (ready, wait, go):
        os.close(each)
    assert campaign.summary().rewards == 60
    checked(campaign)


def lines_of(log: Path) -> list[dict[str, Any]]:
    """What a process has been told. It may have been killed while it wrote the last line."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("window", [None, "1s"])
def test_killed_at_random_moments_it_loses_nothing(
    store_url: str, tmp_path: Path, kills: int, window: str | None
) -> None:
    """Two processes run at once, in which each fourth one only reports; each goes on where one was killed."""
    campaign = create(store_url, window=window, control=list("abc"))
    logs = [tmp_path / f"{number}.jsonl" for number in range(2)]
    rng = random.Random(5)
    for kill in range(kills):
        counts = [len(lines_of(log)) for log in logs]
        processes = [start(play_until_killed, store_url, str(log), kill) for log in logs]
        for log, count in zip(logs, counts, strict=True):
            wait_until(lambda: len(lines_of(log)) > count + 1, f"the process records something in {log.name}")  # noqa: B023
        time.sleep(rng.uniform(0, 0.15))
        for process in processes:
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
        for process in processes:
            process.join()
            assert process.exitcode == -signal.SIGKILL
    told = [line for log in logs for line in lines_of(log)]
    rewards = {id: value for line in told for id, value in line["rewards"].items()}
    keys = {line["key"]: line["ids"] for line in told}
    assert len(rewards) > 5 * kills
    with campaign.store.read() as connection:
        decided = Counter(connection.execute(select(DECISIONS.c.number)).scalars())
        kept = Counter((row.decision, row.value) for row in connection.execute(select(EVENTS)))
    for id, value in rewards.items():
        assert kept[place_of(campaign, id), value] == 1
    for key, ids in keys.items():
        assert [each.id for each in campaign.decide(len(ids), key=key)] == ids
        assert all(decided[place_of(campaign, id)] == 1 for id in ids)
    assert campaign.rewards(rewards).repeated == len(rewards)
    assert len({decision for decision, _ in kept}) == sum(kept.values())
    if window is not None:
        time.sleep(1.1)
    checked(campaign)
    assert campaign.insight().updates > 0
    play(campaign, 50, batch=10)
    checked(campaign)


def place_of(campaign: Campaign, id: str) -> int:
    """The number of a decision in the store."""
    place = read_id(campaign._secret, id)
    assert isinstance(place, Place)
    return place.number
