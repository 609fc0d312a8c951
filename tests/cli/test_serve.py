"""`kofn token`, the demo, and the errors of the command line when the service cannot start."""

from __future__ import annotations

import json
import socket
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from kofn import BadInput
from kofn.campaigns import Campaign, store_at
from kofn.campaigns.store.schema import CAMPAIGNS
from kofn.core import StoreError
from kofn.service import server
from kofn.service.background import demo
from kofn.service.security.tokens import find_token
from kofn.service.server import listen
from kofn.service.settings import ServiceSettings
from tests.campaigns.tools import checked, create
from tests.cli.tools import invoke as run


def test_tokens_are_made_listed_and_revoked(sqlite_store: str) -> None:
    create(sqlite_store)
    assert "kofn token create" in run("token", "list", "--store", sqlite_store).stdout
    made = run("token", "create", "shop", "--store", sqlite_store)
    known = find_token(store_at(sqlite_store), made.stdout.strip())
    assert known is not None
    assert (known.name, known.scope, known.campaign) == ("shop", "full", None)
    assert "not shown again" in made.stderr
    options = ("--scope", "read", "--campaign", "front", "--expires", "30d", "--json", "--store", sqlite_store)
    second = json.loads(run("token", "create", "screen", *options).stdout)
    assert second["token"].startswith("kofn_")
    assert datetime.fromisoformat(second["expires"]) - datetime.fromisoformat(second["created"]) == timedelta(days=30)
    listed = json.loads(run("token", "list", "--json", "--store", sqlite_store).stdout)
    assert [(each["name"], each["scope"], each["campaign"]) for each in listed] == [
        ("shop", "full", None),
        ("screen", "read", "front"),
    ]
    limited = run("token", "create", "app", "--scope", "decide", "--expires", "12h", "--store", sqlite_store)
    assert "decide, all campaigns, until 20" in limited.stderr
    table = run("token", "list", "--store", sqlite_store).stdout
    assert "screen" in table
    assert second["token"] not in table
    assert "revoked token 1 of shop" in run("token", "revoke", "1", "--store", sqlite_store).stdout
    with pytest.raises(BadInput, match="no token with the number 1"):
        run("token", "revoke", "1", "--store", sqlite_store)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--host", "0.0.0.0"), "kofn token create"),
        (("--port", "TAKEN"), "cannot listen on"),
        (("--port", "TAKEN", "--demo"), "cannot listen on"),
        ((), "KOFN_TOKEN must have"),
    ],
)
def test_a_service_that_is_refused_creates_no_store(
    options: tuple[str, ...], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kofn.service.monitoring.logs.configure", lambda _: None)  # it is of the whole process
    monkeypatch.setenv("KOFN_TOKEN", "x" * (16 if options else 3))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        given = [port if each == "TAKEN" else each for each in options]
        with pytest.raises(BadInput, match=why):
            run("serve", *given, "--store", f"sqlite:///{tmp_path}/new.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "warned"),
    [(("--host", "0.0.0.0"), True), (("--host", "0.0.0.0", "--trust-proxy", "10.0.0.7"), False), ((), False)],
)
def test_a_public_address_without_a_proxy_warns_that_there_is_no_tls(
    options: tuple[str, ...], warned: bool, sqlite_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kofn.service.monitoring.logs.configure", lambda _: None)  # it is of the whole process
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(server, "serve", lambda *_, **__: 0)
    run("token", "create", "shop", "--store", sqlite_store)
    said = run("serve", "--port", "0", *options, "--store", sqlite_store).stderr
    assert ("it has no TLS" in said) == warned


def test_a_refused_service_leaves_an_empty_database_empty(postgres_store: str) -> None:
    with pytest.raises(BadInput, match="kofn token create"):
        server.session_token("0.0.0.0", ServiceSettings(store=postgres_store))
    with pytest.raises(StoreError, match="there is no store in the database"):
        store_at(postgres_store, create=False)


@pytest.mark.parametrize(
    "options", [("shop", "--campaign", "front"), ("shop", "--scope", "browser"), ("shop", "--expires", "40000d")]
)
def test_a_refused_token_creates_no_store(options: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises((BadInput, StoreError)):
        run("token", "create", *options, "--store", f"sqlite:///{tmp_path}/new.db")
    assert list(tmp_path.iterdir()) == []


def test_an_address_that_does_not_exist_is_named() -> None:
    with pytest.raises(BadInput, match=r"cannot listen on nosuch\.invalid, port 80: "):
        listen("nosuch.invalid", 80)


def test_settings_travel_to_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOFN_SERVICE", "{}")
    assert ServiceSettings.from_environment() == ServiceSettings()
    there = ServiceSettings(
        store="sqlite:///x.db", open=True, trusted_proxies=("10.0.0.7",), allow_origins=("http://a", "http://b")
    )
    there.to_environment()
    assert ServiceSettings.from_environment() == there


def unreachable() -> StoreError:
    error = StoreError("the store postgresql://db/shop failed: connection refused")
    error.__cause__ = OperationalError("", {}, Exception())
    return error


def test_it_waits_for_its_database(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """As when PostgreSQL starts at the same time and takes longer."""
    now, answers = [0.0], [unreachable(), unreachable(), unreachable(), "the store"]

    def store_at(_: Any, **options: Any) -> Any:
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    monkeypatch.setattr(server, "store_at", store_at)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    assert str(server.wait_for_store("postgresql://db/shop", 60)) == "the store"
    assert ["Trying again for" in each.getMessage() for each in caplog.records] == [True] * 3
    answers[:] = [unreachable() for _ in range(100)]
    with pytest.raises(StoreError, match="connection refused"):
        server.wait_for_store("postgresql://db/shop", 60)
    assert now[0] == pytest.approx(61.75, abs=0.1)
    answers[:] = [StoreError("install a newer kofn")]
    with pytest.raises(StoreError, match="newer"):
        server.wait_for_store("postgresql://db/shop", 60)


def test_a_process_that_is_replaced_creates_no_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As when the file was moved: the service created its store before it started processes."""
    monkeypatch.setenv("KOFN_SERVICE", json.dumps({"store": f"sqlite:///{tmp_path}/shop.db"}))
    monkeypatch.setattr("kofn.service.monitoring.logs.configure", lambda _: None)
    with socket.socket() as listener, pytest.raises(StoreError, match=r"there is no store in the file .*shop\.db"):
        server.run_server(listener)
    assert list(tmp_path.iterdir()) == []


def test_the_command_waits_for_its_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first that it does with the store is to wait for it."""
    asked = []

    def wait(store: str, seconds: float, **_: object) -> None:
        asked.append((store, seconds))
        raise unreachable()

    monkeypatch.setattr(server, "wait_for_store", wait)
    monkeypatch.setattr(server, "store_at", pytest.fail)
    monkeypatch.setattr("kofn.service.monitoring.logs.configure", lambda _: None)
    with pytest.raises(StoreError, match="connection refused"):
        run("serve", "--store", "postgresql://db/shop", "--wait-for-store", "7")
    assert asked == [("postgresql://db/shop", 7.0)]


def test_a_process_that_is_replaced_waits_for_its_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when one of several dies while PostgreSQL restarts. One that ended at once would count as a failed start."""
    done: list[str] = []
    monkeypatch.setattr(server, "wait_for_store", lambda *_, **__: done.append("waited"))
    monkeypatch.setattr("kofn.service.monitoring.logs.configure", lambda _: None)  # it is of the whole process
    monkeypatch.setattr(server, "app_from_environment", lambda: done.append("loaded"))
    monkeypatch.setattr("uvicorn.Server.run", lambda *_: None)
    with socket.socket() as listener:
        server.run_server(listener)
    assert done == ["waited", "loaded"]


@pytest.mark.parametrize("option", [("--trust-proxy", "nginx"), ("--root-path", "kofn")])
def test_options_of_a_proxy_are_checked(option: tuple[str, str], sqlite_store: str) -> None:
    with pytest.raises(BadInput, match=option[0]):
        run("serve", *option, "--store", sqlite_store)


# The demo.


def test_what_the_demo_earns_lies_in_its_range() -> None:
    rng = np.random.default_rng(1)
    for each in demo.DEMO_CAMPAIGNS:
        earned = [each.reward(list(each.arms)[: each.k], each.context(rng), rng) for _ in range(200)]
        assert each.reward_range[0] <= min(earned) < max(earned) <= each.reward_range[1]


@pytest.mark.slow
def test_the_demo_learns_within_a_minute(sqlite_store: str) -> None:
    """A minute of visitors, without waiting for it."""
    now, store = time.time(), store_at(sqlite_store)
    store.clock = lambda: now
    played = demo.Demo(store, seed=3)
    for tick in range(400):
        played.step(tick / 4, 0.25)
        now += 0.25
    campaign = Campaign.open("demo-front-page", sqlite_store)
    insight = campaign.insight()
    assert [each.name for each in insight.metrics] == ["returns"]
    assert "guardrail" not in [each.kind for each in insight.alarms or ()]
    likes = sorted(demo.GOODS.values())
    assert insight.summary.rewards > 2000
    assert insight.gain is not None
    assert insight.gain > 1.0
    assert sum(demo.GOODS[arm] for arm in insight.best) > 0.9 * sum(likes[-5:])
    device, country = Campaign.open("demo-three-countries", sqlite_store).segments().attributes
    assert (device.attribute, country.attribute) == ("device", "country")
    assert device.probability > 0.99
    checked(Campaign.open("demo-newsletter", sqlite_store))  # of zeros and ones, so that sums are exact in any order


def test_the_demo_outlives_what_people_do_to_it(sqlite_store: str) -> None:
    played = demo.Demo(store_at(sqlite_store), seed=3)
    played.step(0.0, 1.0)
    Campaign.open("demo-newsletter", sqlite_store).pause()
    Campaign.open("demo-front-page", sqlite_store).retire_arm("Cookbook")
    Campaign.open("demo-front-page", sqlite_store).add_arm("Teapot")
    Campaign.open("demo-edge-servers", sqlite_store).delete()
    for second in range(1, 5):
        played.step(float(second), 1.0)
    again = demo.Demo(store_at(sqlite_store), seed=4)  # as after a restart with the same store
    again.step(10.0, 1.0)
    assert Campaign.open("demo-front-page", sqlite_store).summary().plays > 100


def row_of(name: str, store: str) -> Any:
    with store_at(store).read() as connection:
        return connection.execute(select(CAMPAIGNS).where(CAMPAIGNS.c.name == name)).mappings().one()


@pytest.mark.parametrize("prefix", ["", "demo-"])
def test_the_demo_never_touches_what_it_did_not_create(
    sqlite_store: str, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A real campaign of a name that the docs use, and one of the demo's own name."""
    goods = list(demo.GOODS)
    real = Campaign.create(f"{prefix}front-page", goods, 5, reward_range=(0, 40), store=sqlite_store)
    before = real.export()
    played = demo.Demo(store_at(sqlite_store), seed=3)
    for second in range(5):
        played.step(float(second), 1.0)
    assert real.export() == before
    assert row_of(f"{prefix}front-page", sqlite_store)["made_by"] == ""
    assert Campaign.open("demo-newsletter", sqlite_store).summary().plays > 20
    left_alone = "the campaign 'demo-front-page' is left alone, because the demo did not create it"
    assert (left_alone in caplog.text) == bool(prefix)


def test_the_demo_leaves_a_real_campaign_alone_that_took_the_name_of_its_own(sqlite_store: str) -> None:
    store = store_at(sqlite_store)
    played = demo.Demo(store, seed=3)
    played.step(0.0, 1.0)
    assert row_of("demo-front-page", sqlite_store)["made_by"] == "demo"
    Campaign.open("demo-front-page", sqlite_store).delete()
    real = Campaign.create("demo-front-page", list(demo.GOODS), 5, reward_range=(0, 40), store=sqlite_store)
    before = real.export()
    for second in range(1, 30):  # rewards of decisions of the deleted campaign become due
        played.step(float(second), 1.0)
    again = demo.Demo(store, seed=4)  # after a restart
    for second in range(3):
        again.step(float(second), 1.0)
    assert real.export() == before
