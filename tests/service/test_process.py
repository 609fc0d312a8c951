"""The service as a process: it loses nothing when stopped or killed, and may have several workers."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

import kofn
from kofn import Campaign
from kofn.campaigns.names import read_id
from kofn.campaigns.store.schema import EVENTS
from kofn.service.server import NOTICE_SECONDS
from tests.campaigns.tools import NAMES, checked, create, noise
from tests.service.tools import TOKEN, Served, bearer
from tests.waiting import wait_until


def value_of(decision: Any) -> float:
    """The reward of a decision: eighths, so that sums are exact in any order. It follows from the id."""
    return round(8 * 12 * (sum(map(NAMES.index, decision.arms)) / 21 + noise(decision.id)) / 1.2) / 8


class Visitors:
    """Threads that decide and report rewards until stopped, and record what was acknowledged."""

    def __init__(self, url: str, threads: int = 3, token: str | None = None) -> None:
        self.acknowledged: dict[str, float] = {}
        self.failed: list[BaseException] = []
        self._url, self._token = url, token
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(seed,), daemon=True) for seed in range(threads)]

    def _work(self, seed: int) -> None:
        rng = random.Random(seed)
        try:
            with kofn.Client(self._url, self._token, timeout=20, retry_for=90) as client:
                campaign = client.campaign("front")
                waiting: list[Any] = []
                while not self._stop.is_set():
                    waiting += campaign.decide(rng.randint(1, 20))
                    rng.shuffle(waiting)
                    now = {each.id: value_of(each) for each in (waiting.pop() for _ in range(len(waiting) // 2 + 1))}
                    rewarded = campaign.rewards(now)
                    assert rewarded.accepted + rewarded.repeated == len(now)
                    self.acknowledged |= now
        except BaseException as why:
            self.failed.append(why)

    def __enter__(self) -> Visitors:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
        assert self.failed == []


def all_there(campaign: Campaign, acknowledged: dict[str, float]) -> None:
    """Every acknowledged reward is in the store once, and the state is the one that the log leads to."""
    with campaign.store.read() as connection:
        rows = connection.execute(select(EVENTS)).all()
    kept = {row.decision: row.value for row in rows}
    assert len(kept) == len(rows) == campaign.summary().rewards
    for id, value in acknowledged.items():
        assert kept[read_id(campaign._secret, id)[0]] == value
    checked(campaign)


def crash(store: str, kills: int) -> None:
    campaign = create(store)
    served, rng = Served(store), random.Random(kills)
    served.start()
    try:
        with Visitors(served.url) as visitors:
            for _ in range(kills):
                before = len(visitors.acknowledged)
                wait_until(
                    lambda: len(visitors.acknowledged) > before or visitors.failed,  # noqa: B023  (called at once)
                    "something is acknowledged",
                    seconds=90,
                )
                time.sleep(rng.uniform(0, 0.3))
                served.kill()
                served.start()
        assert len(visitors.acknowledged) > 10 * kills
        all_there(campaign, visitors.acknowledged)
    finally:
        served.__exit__()


def test_killed_at_random_moments_it_loses_nothing(sqlite_store: str) -> None:
    crash(sqlite_store, kills=1)


@pytest.mark.slow
def test_killed_a_hundred_times_it_loses_nothing(store_url: str) -> None:
    crash(store_url, kills=100)


class Callers:
    """Threads that send requests on connections that are kept alive, without retries, until they are refused."""

    def __init__(self, port: int) -> None:
        self.done = 0
        self.lost: list[str] = []
        self._connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for _ in range(6)]
        self._threads = [threading.Thread(target=self._work, args=(each,)) for each in self._connections]

    def _work(self, connection: http.client.HTTPConnection) -> None:
        answered, in_time = time.monotonic(), True
        try:
            while True:
                in_time = time.monotonic() - answered < NOTICE_SECONDS / 2
                connection.request("GET", "/api/campaigns/front", headers=bearer(TOKEN))
                response = connection.getresponse()
                assert response.status == 200
                response.read()
                answered = time.monotonic()
                self.done += 1
                if response.will_close:
                    return  # it says that it stops
        except (OSError, http.client.HTTPException) as why:
            if in_time:  # not a request that a busy machine sent late
                self.lost.append(repr(why))

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join(60)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_asked_to_stop_it_answers_what_has_begun(sqlite_store: str, workers: int) -> None:
    campaign = create(sqlite_store)
    with Served(sqlite_store, "--workers", str(workers)) as served:
        with Visitors(served.url) as visitors:
            while len(visitors.acknowledged) < 200 and not visitors.failed:
                time.sleep(0.01)
            assert stopped_among_callers(served) == []
            served.stderr()
            served.start()  # so that the visitors can finish
        all_there(campaign, visitors.acknowledged)


def stopped_among_callers(served: Served) -> list[str]:
    """Stop the service while it is called, and return what was lost."""
    with Callers(served.port) as callers:
        while callers.done < 20 and not callers.lost:
            time.sleep(0.01)
        code = served.stop()
    assert code in (0, -signal.SIGTERM)
    return callers.lost


def test_asked_to_stop_two_workers_reset_no_connection(sqlite_store: str) -> None:
    create(sqlite_store)
    with Served(sqlite_store, "--workers", "2") as served:
        assert stopped_among_callers(served) == []


def test_a_process_that_dies_is_said_and_replaced(sqlite_store: str) -> None:
    """As when the kernel kills one that needs too much memory."""
    create(sqlite_store)
    with Served(sqlite_store, "--workers", "2", "--log-format", "json") as served:
        before = served.workers()
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)

        def is_replaced() -> bool:
            now = served.workers()  # one look: the killed one may end between two
            return len(now) == 2 and before[0] not in now

        wait_until(is_replaced, "another worker takes its place")
        assert served.client.get("/api/campaigns/front").status_code == 200
        assert served.stop() == 0
        lines = [json.loads(line) for line in served.stderr().splitlines()]
    (error,) = (line for line in lines if line["level"] == "error")
    assert f"process {before[0]} was killed by SIGKILL" in error["message"]


@pytest.mark.slow
def test_busy_processes_are_not_killed(sqlite_store: str) -> None:
    """uvicorn's own supervisor kills a process that computes for 5 seconds, such as one that parses a large body."""
    with Served(sqlite_store, "--workers", "2") as served:
        before = served.workers()
        for each in before:
            os.kill(each, signal.SIGSTOP)
        time.sleep(8)
        for each in before:
            os.kill(each, signal.SIGCONT)
        assert served.workers() == before


def test_a_live_view_is_told_of_changes_and_does_not_keep_it_from_stopping(sqlite_store: str) -> None:
    campaign = create(sqlite_store)
    with (
        Served(sqlite_store) as served,
        served.client.stream("GET", "/api/stream") as all_campaigns,
        served.client.stream("GET", "/api/campaigns/front/stream") as answer,
    ):
        lines = answer.iter_lines()
        seen = (json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:"))
        assert next(seen)["plays"] == 0
        campaign.decide(5)  # by another process
        assert next(seen)["plays"] == 5
        campaign.delete()
        assert next(seen) == {"name": "front"}
        begun, still_open = time.monotonic(), all_campaigns.iter_lines()
        assert next(still_open) == "retry: 2000"
        served.stop()
        assert time.monotonic() - begun < 25
        list(still_open)  # it ends


def test_workers_share_the_work_and_the_numbers(postgres_store: str) -> None:
    campaign = create(postgres_store)
    with Served(postgres_store, "--workers", "2") as served:
        with Visitors(served.url) as visitors:
            while len(visitors.acknowledged) < 300 and not visitors.failed:
                time.sleep(0.01)
        lines = served.client.get("/metrics").text.splitlines()
        rewarded = next(float(line.split()[-1]) for line in lines if line.startswith("kofn_decisions_total"))
        assert rewarded == campaign.summary().plays
        memory = [line for line in lines if line.startswith("process_resident_memory_bytes{pid=")]
        assert sys.platform != "linux" or len(memory) == 2
    all_there(campaign, visitors.acknowledged)


def test_no_module_of_the_working_folder_is_executed(
    sqlite_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kofn` does not look there, and neither do the processes that it starts: two that serve, and one that learns."""
    (tmp_path / "signal.py").write_text("raise SystemExit('this is executed')")
    monkeypatch.chdir(tmp_path)
    campaign = create(sqlite_store)
    served = Served(sqlite_store, "--workers", "2")
    served._command[:3] = [str(Path(sys.executable).with_name("kofn"))]
    with served:
        rewards = [{"id": each.id, "reward": 6.0} for each in campaign.decide(200)]
        served.client.post("/api/campaigns/front/rewards", json={"rewards": rewards}).raise_for_status()
        wait_until(lambda: campaign.insight().updates > 0, "the policy has learned")


def test_the_demo_fills_itself_and_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Served(None, "--demo") as served:

        def has_learned() -> bool:
            insight = httpx.get(f"{served.url}/api/campaigns/demo-front-page/insight").json()
            return bool(insight["updates"] > 1 and insight["summary"]["rewards"] > 50)

        wait_until(has_learned, "the demo learns", every=0.1)
        assert len(httpx.get(f"{served.url}/api/campaigns").json()["campaigns"]) == 4
        assert len(list(tmp_path.glob("kofn-demo-*"))) == 1
        assert served.stop() == 0
        assert list(tmp_path.iterdir()) == []  # its store is removed


def test_without_tokens_it_prints_a_link(sqlite_store: str) -> None:
    create(sqlite_store)
    with Served(sqlite_store, token=None) as served:
        link = next(line for line in served.lines() if "dashboard" in line)
        found = re.search(r"KOFN_URL=(\S+) KOFN_TOKEN=(\S+)", next(served.lines()))
        assert found
        assert f"{served.url}/#token={found[2]}" in link
        with kofn.Client(found[1], found[2]) as client:
            assert client.campaign("front").decide().arms
        assert served.client.get("/api/campaigns").status_code == 401  # with another token
        assert httpx.get(f"{served.url}/api/campaigns").status_code == 401


def test_with_json_every_line_is_an_object(tmp_path: Path) -> None:
    with Served(f"sqlite:///{tmp_path}/new.db", "--log-format", "json", token=None) as served:
        assert served.stop() == 0
        lines = [json.loads(line)["message"] for line in served.stderr().splitlines()]
    assert lines[0] == f"kofn: note: creating the store {tmp_path}/new.db"
    assert f"{served.url}/#token=kofn_" in lines[3]
