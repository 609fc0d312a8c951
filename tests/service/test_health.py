"""Health, readiness, HEAD and metrics: what operators look at, also while the store does not respond."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import Connection

import kofn
from kofn import Campaign
from kofn.campaigns import Store, learner, store_at
from kofn.campaigns.store import database as store_module
from kofn.core import StoreError
from kofn.service import ServiceSettings, make_app
from kofn.service.monitoring import health, metrics, metrics_route
from kofn.service.monitoring.metrics import Metrics
from kofn.service.security.tokens import create_token
from tests.service.tools import HERE, NAMES, NEW, copy_rows, error_detail, service
from tests.waiting import wait_until

MANY = httpx.Limits(max_connections=None)

SECRET = "the store postgresql://kofn@secret-host/db failed: no"


@pytest.fixture
def app(sqlite_store: str, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    monkeypatch.setattr(health, "CACHED_SECONDS", 0.0)
    return make_app(ServiceSettings(store=sqlite_store, open=True))


@pytest.fixture
def store(sqlite_store: str) -> Store:
    return store_at(sqlite_store)


Get = Callable[..., httpx.Response]


@pytest.fixture
def get(app: FastAPI) -> Get:
    """Send requests to the app, without a server."""

    async def send(method: str, paths: tuple[str, ...], **options: Any) -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HERE) as client:
            return [await client.request(method, path, **options) for path in paths]

    def request(*paths: str, method: str = "GET", **options: Any) -> httpx.Response:
        return asyncio.run(send(method, paths, **options))[-1]

    return request


def _broken(_: Store) -> None:
    raise StoreError(SECRET)


@pytest.fixture
def no_store(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, the store of the app does not respond."""
    monkeypatch.setattr(Store, "read", _broken)
    monkeypatch.setattr(Store, "write", _broken)


def test_health_does_not_ask_the_store(get: Get, no_store: None) -> None:
    answer = get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "version": kofn.__version__})


def test_ready_writes_to_the_store(get: Get, store: Store) -> None:
    assert get("/ready").json() == {"status": "ready", "version": kofn.__version__, "failing": 0}
    with store.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM kofn_settings WHERE name = 'ready'").scalar() == 1
    assert get("/ready").status_code == 200


def test_a_store_that_was_migrated_meanwhile_is_not_ready(
    get: Get, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE kofn_schema SET version = '99.1'")
    error_detail(get("/ready"), 503, "not-ready")
    assert "another version of kofn has upgraded it" in caplog.text


def test_ready_says_that_a_write_fails(get: Get, no_store: None, caplog: pytest.LogCaptureFixture) -> None:
    answer = get("/ready", "/ready")
    detail = error_detail(answer, 503, "not-ready")
    assert detail == "the store refused a write: see the log of the service"
    assert answer.headers["retry-after"] == "1"
    assert [each.message for each in caplog.records if SECRET in each.message] == [
        f"not ready: the store refused a write: {SECRET}"
    ]


def test_ready_waits_for_a_write_for_a_limited_time(
    app: FastAPI, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "WRITE_LIMIT", 0.05)
    entered = 0
    release = threading.Event()
    write = Store.write

    @contextmanager
    def slow(self: Store) -> Iterator[Connection]:
        nonlocal entered
        entered += 1
        assert release.wait(30)
        with write(self) as connection:
            yield connection

    monkeypatch.setattr(Store, "write", slow)
    readiness = health.Readiness(store)

    async def probes() -> None:
        assert await readiness.reason_not_ready() == "the store did not accept a write within 0.05 seconds"
        assert await readiness.reason_not_ready() is not None
        assert entered == 1  # the second probe did not start another write
        release.set()
        while await readiness.reason_not_ready() is not None:
            await asyncio.sleep(0.01)

    asyncio.run(probes())


def test_probes_share_a_result_for_a_while(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CACHED_SECONDS", 60.0)
    readiness = health.Readiness(store)

    async def probes() -> None:
        assert await readiness.reason_not_ready() is None
        monkeypatch.setattr(Store, "write", _broken)
        assert await readiness.reason_not_ready() is None

    asyncio.run(probes())


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the size of files")
def test_a_disk_that_takes_no_more_is_not_ready(get: Get) -> None:
    import resource

    assert get("/ready").status_code == 200
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))  # every file of this process is full
    try:
        answer = get("/ready")
        alive = get("/health")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    error_detail(answer, 503, "not-ready")
    assert alive.status_code == 200
    assert get("/ready").status_code == 200


def test_a_disk_that_is_nearly_full_is_not_ready(get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MIN_FREE_BYTES", 2**70)
    error_detail(get("/ready"), 503, "not-ready")


# HEAD.


def test_every_get_route_answers_head(app: FastAPI, get: Get, store: Store) -> None:
    Campaign.create("front", list("abc"), 2, policy="contextual-thompson", store=store)
    paths = [path.replace("{name}", "front") for path, each in app.openapi()["paths"].items() if "get" in each]
    assert len(paths) > 12
    for path in [*paths, "/", "/api/openapi.json"]:
        answer = get(path, method="HEAD")
        assert (answer.status_code, answer.content) == (200, b""), path
        if not path.endswith("/stream"):  # a stream does not end
            assert answer.headers["content-type"] == get(path).headers["content-type"]
    error_detail(get("/api/campaigns", method="PUT"), 405, "method-not-allowed")
    assert get("/api/campaigns/back", method="HEAD").status_code == 404


# Metrics.


def values(text: str) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def test_metrics_have_numbers_of_the_process_the_pool_and_the_lock(get: Get, store: Store) -> None:
    Campaign.create("front", list("abc"), 2, store=store)
    found = values(get("/metrics").text)
    assert found["kofn_store_up"] == 1
    assert found["kofn_store_wait_seconds_count"] >= 1
    assert found['kofn_store_connections{state="idle"}'] + found['kofn_store_connections{state="in_use"}'] >= 1
    if sys.platform == "linux":
        assert found["process_resident_memory_bytes"] > 1e7
        assert found["process_open_fds"] > 3


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_metrics_have_numbers_of_each_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(metrics.MULTIPROCESS_DIR, str(tmp_path))
    for pid in (os.getpid(), os.getppid()):
        (tmp_path / f"counter_{pid}.db").touch()
    found = [sample for family in metrics._Processes().collect() for sample in family.samples]
    memory = {each.labels["pid"]: each.value for each in found if each.name == "process_resident_memory_bytes"}
    assert set(memory) == {str(os.getpid()), str(os.getppid())}


def test_metrics_are_there_without_the_store(get: Get, no_store: None) -> None:
    answer = get("/health", "/metrics")
    assert answer.status_code == 200
    found = values(answer.text)
    assert found["kofn_store_up"] == 0
    if sys.platform == "linux":
        assert found["process_cpu_seconds_total"] > 0


def test_metrics_are_there_while_the_store_hangs(app: FastAPI, get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    assert get("/metrics").status_code == 200  # no token is required, which is remembered
    monkeypatch.setattr(metrics_route, "STORE_LIMIT", 0.05)
    release = threading.Event()
    monkeypatch.setattr(Metrics, "text", lambda self: release.wait(30) and b"")
    app.state._state.pop("read_metrics")
    found = values(get("/metrics").text)
    release.set()
    assert found["kofn_store_up"] == 0
    assert found['kofn_requests_total{method="GET",route="/metrics",status="200"}'] == 1


def test_without_the_store_no_token_opens_more_than_the_process(
    get: Get, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_token(store, "somebody")
    assert get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
    monkeypatch.setattr(Store, "read", _broken)
    text = get("/metrics", headers={"Authorization": "Bearer wrong"}).text
    assert {name.partition("_")[0] for name in values(text)} <= {"process", "kofn"}
    assert [name for name in values(text) if name.startswith("kofn")] == ["kofn_store_up"]


def test_metrics_do_not_grow_with_the_campaigns(get: Get, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_CAMPAIGNS", 3)
    campaign = Campaign.create("front", list("abc"), 2, store=store)
    campaign.decide(4)
    copy_rows(store, "front", 500)
    found = values(get("/metrics").text)
    assert len([name for name in found if name.startswith("kofn_campaign_plays")]) == 3
    assert found['kofn_campaign_plays{campaign="front",state="running"}'] == 4  # it changed last
    assert found['kofn_store_campaigns{state="running"}'] == 501
    assert found['kofn_store_plays{state="running"}'] == 501 * 4


# Lists.


def names(answer: httpx.Response) -> tuple[list[str], int]:
    body = answer.json()
    return [each["name"] for each in body["campaigns"]], body["count"]


def test_campaigns_are_found_by_name_and_state(get: Get, store: Store) -> None:
    for name in ("Shop 1+1", "shop_b", "news", "shoe"):
        Campaign.create(name, list("abc"), 2, store=store)
    Campaign.open("shop_b", store).pause()
    assert names(get("/api/campaigns?limit=1&offset=1"))[1] == 4
    found, count = names(get("/api/campaigns?q=SHO"))
    assert (sorted(found), count) == (["Shop 1+1", "shoe", "shop_b"], 3)
    assert names(get("/api/campaigns?q=shop_")) == (["shop_b"], 1)  # not a wildcard
    assert names(get("/api/campaigns?q=1%2B1")) == (["Shop 1+1"], 1)
    assert names(get("/api/campaigns?q=%25")) == ([], 0)
    assert names(get("/api/campaigns?state=paused")) == (["shop_b"], 1)
    assert names(get("/api/campaigns?q=zzz")) == ([], 0)
    assert names(get("/api/campaigns?q=%00")) == ([], 0)
    assert get("/api/campaigns?q=sho&state=paused").json()["states"] == {"running": 2, "paused": 1}
    assert get("/api/campaigns?state=asleep").status_code == 422


def test_changes_that_wait_for_a_locked_store_do_not_stop_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More changes wait than the service has threads; pages, lists and health respond meanwhile."""
    monkeypatch.setattr(store_module, "LOCK_TIMEOUT", 120.0)
    with service(f"sqlite:///{tmp_path}/shop.db") as client:
        assert client.post("/api/campaigns", json=NEW).status_code == 201
        other = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        total = {"arms": NAMES[:3], "count": 2, "total": 1.0}
        with (
            httpx.Client(base_url=client.base_url, headers=client.headers, timeout=180, limits=MANY) as caller,
            ThreadPoolExecutor(100) as pool,
        ):
            waiting = [pool.submit(caller.post, "/api/campaigns/front/totals", json=total) for _ in range(60)]
            waiting += [pool.submit(caller.post, "/api/campaigns/front/pause") for _ in range(40)]
            for path in ("/health", "/api/campaigns", "/api/campaigns/front", "/api/campaigns/front/insight"):
                assert client.get(path, timeout=100).status_code == 200, path  # less than the store's patience
            assert not any(future.done() for future in waiting)
            other.execute("COMMIT")
            other.close()
            assert {future.result(180).status_code for future in waiting} <= {200, 409}
        assert client.get("/api/campaigns/front").json()["plays"] > 0


# Campaigns that cannot learn, or cannot be read.


def test_a_policy_that_fails_refuses_nothing_and_is_said_everywhere(
    sqlite_store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: object) -> None:
        raise ZeroDivisionError("of the tests")

    monkeypatch.setattr(learner, "learn", fails)
    monkeypatch.setattr(health, "CACHED_SECONDS", 0.0)
    with service(sqlite_store) as client:
        client.post("/api/campaigns", json=NEW)
        told = 0

        def play() -> None:
            nonlocal told
            decisions = client.post("/api/campaigns/front/decisions", json={"count": 100}).json()["decisions"]
            rewards = [{"id": each["id"], "reward": 1.0} for each in decisions]
            told += client.post("/api/campaigns/front/rewards", json={"rewards": rewards}).json()["accepted"]

        def is_failing() -> bool:
            play()
            return bool(client.get("/ready").json()["failing"])

        wait_until(is_failing, "the policy fails")
        play()
        assert client.get("/ready").status_code == 200
        assert 'kofn_campaign_failing{campaign="front",state="running"} 1.0' in client.get("/metrics").text
        insight = client.get("/api/campaigns/front/insight").json()
        assert insight["failure"] == "ZeroDivisionError: of the tests"
        assert (insight["summary"]["failing"], insight["summary"]["rewards"]) == (True, told)
        assert "policy" in [each["kind"] for each in insight["alarms"]]
        assert "policy failed" in [each["kind"] for each in client.get("/api/campaigns/front/events").json()["events"]]
    assert "Traceback" in caplog.text
    assert "ZeroDivisionError: of the tests" in caplog.text


@pytest.mark.parametrize("column", ["settings", "progress"])
def test_what_a_campaign_cannot_read_of_itself_is_no_fault_of_the_request(
    sqlite_store: str, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    with service(sqlite_store) as client:
        assert client.post("/api/campaigns", json=NEW).status_code == 201
        with store_at(sqlite_store).write() as connection:
            connection.exec_driver_sql(f"UPDATE kofn_campaigns SET {column} = '[]', version = version + 1")
        requests: list[tuple[str, str, dict[str, Any] | None]] = [("GET", "/insight", None), ("GET", "", None)]
        requests += [("POST", "/pause", None)]
        requests += [("POST", "/decisions", {})] if column == "settings" else []
        for method, path, body in requests:
            answer = client.request(method, f"/api/campaigns/front{path}", json=body)
            assert "see the log" in error_detail(answer, 503, "state-error")
        assert client.get("/ready").status_code == 200  # other campaigns go on
    assert "of the campaign 'front' cannot be read" in caplog.text or "'front' has stored cannot be read" in caplog.text
