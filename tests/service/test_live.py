"""Live views: one watcher for all, the last state for slow viewers, and no stream without a valid token."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any

import pytest
from httpx import Client

from kofn import Campaign
from kofn.campaigns import Store, store_at
from kofn.campaigns.reports.listing import Watch
from kofn.service.api import live
from kofn.service.api.live import LiveUpdates
from kofn.service.security.tokens import create_token, revoke_token
from tests.service.tools import error_detail, service

QUICK = 0.02
"""Seconds between two looks and two checks of tokens, so that tests do not wait."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "POLL_INTERVAL", QUICK)
    monkeypatch.setattr(live, "CHECK_INTERVAL", QUICK)


@pytest.fixture
def store(sqlite_store: str) -> Store:
    return store_at(sqlite_store)


def create(store: Store, name: str) -> Campaign:
    return Campaign.create(name, ["a", "b", "c"], 2, store=store, seed=1)


def data(event: bytes) -> dict[str, Any]:
    (line,) = (line for line in event.splitlines() if line.startswith(b"data: "))
    found: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
    return found


async def until(true: Any) -> None:
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen within ten seconds")


# Watching.


def test_many_viewers_share_one_watcher_which_ends_with_the_last(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    create(store, "front")
    updates = LiveUpdates(store, 500)
    original, running, most = LiveUpdates._watch, 0, 0

    async def counted(self: LiveUpdates, *args: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            await original(self, *args)
        finally:
            running -= 1

    monkeypatch.setattr(LiveUpdates, "_watch", counted)

    async def main() -> None:
        streams = [updates.stream("front") for _ in range(100)]
        firsts = await asyncio.gather(*(_events(each, 2) for each in streams))
        assert {data(each[1])["name"] for each in firsts} == {"front"}
        assert (running, most) == (1, 1)
        for each in streams:
            await each.aclose()  # type: ignore[attr-defined]
        await until(lambda: running == 0)
        again = updates.stream("front")
        await _events(again, 2)
        assert (running, most) == (1, 1)
        await again.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())


async def _events(stream: Any, count: int) -> list[bytes]:
    return [await anext(stream) for _ in range(count)]


def test_a_slow_viewer_gets_the_last_state(store: Store) -> None:
    campaign = create(store, "front")

    async def main() -> None:
        updates = LiveUpdates(store, 10)
        slow, quick = updates.stream("front"), updates.stream("front")
        await _events(slow, 2)
        await _events(quick, 2)
        for plays in range(1, 31):  # the quick viewer sees every change, the slow one reads nothing meanwhile
            await asyncio.to_thread(campaign.decide)
            await asyncio.to_thread(campaign.learn)  # lists and live updates have what is folded
            assert data(await anext(quick))["plays"] == plays
        seen = data(await anext(slow))
        while seen["plays"] < 30:
            seen = data(await asyncio.wait_for(anext(slow), 1))
        await slow.aclose()  # type: ignore[attr-defined]
        await quick.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())


def test_a_store_that_fails_for_a_while_is_watched_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    campaign = create(store, "front")

    async def main() -> None:
        stream = LiveUpdates(store, 10).stream("front")
        await _events(stream, 2)
        looks, look = 0, Watch.look

        def broken(self: Watch) -> Any:
            nonlocal looks
            looks += 1
            raise RuntimeError("gone")

        monkeypatch.setattr(Watch, "look", broken)
        campaign.decide()
        await until(lambda: looks > 3)
        monkeypatch.setattr(Watch, "look", look)
        assert data(await anext(stream))["plays"] == 1
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())
    assert len([each for each in caplog.records if "live updates" in each.message]) == 1  # once, not at each look


# What has changed.


def seen(watch: Watch) -> dict[str, int | None]:
    return {name: None if each is None else each.plays for name, each in watch.look().items()}


def test_a_look_finds_all_changes(store_url: str) -> None:
    store = store_at(store_url)
    a, b, c = (create(store, name) for name in "abc")
    watch = Watch(store)
    watch.start()
    assert seen(watch) == {}
    a.decide()
    create(store, "d")
    assert seen(watch) == {"a": 1, "d": 0}
    b.delete()
    assert seen(watch) == {"b": None}
    c.delete()
    create(store, "c").decide(2)
    assert seen(watch) == {"c": 2}  # made anew
    store.clock = lambda: time.time() - 3600  # a machine whose clock is an hour late
    e = create(store, "e")
    assert seen(watch) == {"e": 0}
    e.decide(3)
    assert seen(watch) == {"e": 3}
    assert seen(watch) == {}


# Over HTTP.


@pytest.fixture
def api(store: Store, sqlite_store: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of a service that looks up one wrong token of an address."""
    monkeypatch.setattr("kofn.service.security.auth.FAILURES", 1)
    monkeypatch.setattr("kofn.service.security.auth.FAILURE_SECONDS", 1000.0)
    create(store, "front")
    with service(sqlite_store) as client:
        yield client


def headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_revoked_token_loses_its_stream(api: Client, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kofn.service.security.auth.TOKEN_CACHE_SECONDS", QUICK)
    monkeypatch.setattr(live, "KEEP_ALIVE_INTERVAL", QUICK)  # a stream that goes on sends lines
    token, known = create_token(store, "screen", "read")
    other, _ = create_token(store, "other", "read")
    with ExitStack() as stack:
        streams = [
            stack.enter_context(api.stream("GET", path, headers=headers(each), timeout=60))
            for path in ("/api/campaigns/front/stream", "/api/stream")
            for each in (token, other)
        ]
        lines = [each.iter_lines() for each in streams]
        for each in lines:
            assert next(each) == "retry: 2000"
            next(line for line in each if line.startswith("data:"))
        revoke_token(store, known.id)
        for each in (lines[0], lines[2]):
            assert len(list(islice(each, 1000))) < 1000  # it ends
        Campaign.open("front", store).decide()
        for each in (lines[1], lines[3]):
            assert json.loads(next(line for line in each if line.startswith("data:"))[5:])["plays"] == 1


@pytest.mark.parametrize("limited", [False, True])
def test_the_end_of_a_token_counts_as_no_wrong_token(
    api: Client, store: Store, monkeypatch: pytest.MonkeyPatch, limited: bool
) -> None:
    """All its streams end, also while the address may send no further wrong token, and they use up none of these."""
    monkeypatch.setattr("kofn.service.security.auth.TOKEN_CACHE_SECONDS", QUICK)
    token, known = create_token(store, "screen", "read")

    def wrong() -> int:
        return api.get("/api/campaigns/front", headers=headers("kofn_x")).status_code

    with ExitStack() as stack:
        path, given = "/api/campaigns/front/stream", headers(token)
        answers = [stack.enter_context(api.stream("GET", path, headers=given, timeout=60)) for _ in range(3)]
        streams = [each.iter_lines() for each in answers]
        assert [next(each) for each in streams] == ["retry: 2000"] * 3
        if limited:
            assert [wrong(), wrong()] == [401, 429]
        revoke_token(store, known.id)
        for each in streams:
            list(each)  # it ends
    assert [wrong(), wrong()] == [429 if limited else 401, 429]


def test_streams_are_limited_per_token(api: Client, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_STREAMS_PER_TOKEN", 1)
    mine, theirs = (headers(create_token(store, name, "read")[0]) for name in ("mine", "theirs"))
    with opened(api, mine) as first, opened(api, theirs) as second:
        lines = [first.iter_lines(), second.iter_lines()]  # an iterator that is dropped closes its stream
        assert [next(each) for each in lines] == ["retry: 2000"] * 2
        with opened(api, mine) as refused:
            assert refused.status_code == 429  # a stream that is not refused does not end
            refused.read()
        assert "this token" in error_detail(refused, 429, "too-many-streams")


def opened(api: Client, headers: dict[str, str]) -> Any:
    return api.stream("GET", "/api/campaigns/front/stream", headers=headers)


def test_a_stream_of_all_starts_with_ready_and_has_changes_only(api: Client, store: Store) -> None:
    campaign = Campaign.open("front", store)
    with api.stream("GET", "/api/stream", timeout=60) as answer:
        lines = (line for line in answer.iter_lines() if line)
        assert [next(lines) for _ in range(3)] == ["retry: 2000", "event: ready", "data: {}"]
        campaign.decide()
        assert next(line for line in lines if line.startswith("event:")) == "event: change"
