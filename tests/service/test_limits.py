"""Strangers: large headers, bodies that are refused, too many connections, offers of other protocols, wrong tokens."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from httpx import Client

from kofn.campaigns import Store, store_at
from kofn.core import StoreError
from kofn.service import ServiceSettings, make_app
from kofn.service.monitoring.quiet_log import LOG_SECONDS, QuietLog
from kofn.service.security import auth, limits
from kofn.service.security.limits import Allowance
from kofn.service.security.tokens import create_token
from kofn.service.server import GracefulServer, listen, uvicorn_options
from tests.campaigns.tools import create
from tests.service.tools import TOKEN, bearer, error_detail, service
from tests.waiting import wait_until

FRONT = "/api/campaigns/front"
GET = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = GET.replace(b"Host: a\r\n", b"Host: a\r\nConnection: close\r\n")


@pytest.fixture(scope="module")
def store(module_store: str) -> Store:
    create(module_store, "front")
    return store_at(module_store)


@pytest.fixture(scope="module")
def api(store: Store, module_store: str) -> Iterator[Client]:
    with service(module_store) as client:
        yield client


def connect(api: Client) -> socket.socket:
    return socket.create_connection((api.base_url.host, api.base_url.port or 80), timeout=60)


def read_all(connection: socket.socket) -> bytes:
    """Return what the service sends until it closes the connection."""
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionError:
        pass  # it closed before it had read everything
    return received


def decisions(token: str, length: int) -> bytes:
    head = f"POST {FRONT}/decisions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode()


# Size.


@pytest.mark.parametrize("line", [b"X-A: " + b"a" * 1000 + b"\r\n", b"a" * 1000])
def test_endless_headers_are_refused(api: Client, line: bytes) -> None:
    with connect(api) as connection:
        sent = connection.send(b"GET /health HTTP/1.1\r\nHost: a\r\nX: ")
        try:
            while sent < 10_000_000:
                sent += connection.send(line)
        except ConnectionError:
            pass
        assert sent < 10_000_000
    assert api.get("/health", headers={"X-A": "a" * 15_000}).status_code == 200


def test_endless_trailers_are_refused(api: Client) -> None:
    with connect(api) as connection:
        connection.sendall(decisions(TOKEN, 12).replace(b"Content-Length: 12", b"Transfer-Encoding: chunked"))
        connection.sendall(b"c\r\n" + b'{"count": 2}' + b"\r\n0\r\n")
        sent = 0
        try:
            while sent < 10_000_000:
                sent += connection.send(b"X-A: a\r\n" * 100)
        except ConnectionError:
            pass
        assert sent < 10_000_000


def test_a_refused_body_does_not_end_the_connection(api: Client) -> None:
    """A client that sent a wrong token with a small body may use its connection again."""
    with connect(api) as connection:
        body = b"{}"
        head = f"POST {FRONT}/pause HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        for _ in range(3):
            connection.sendall(head)
            assert connection.recv(65536).startswith(b"HTTP/1.1 401")
            connection.sendall(body)


# Offers of another protocol.

OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
"""What Java's client sends with its first request on a connection."""


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_the_body_of_a_request_that_offers_another_protocol_is_read(api: Client, apart: bool, chunked: bool) -> None:
    """Also when it arrives after the headers; the next request on the connection is one of its own."""
    head, body = decisions(TOKEN, 12).replace(b"Host: a\r\n", b"Host: a\r\n" + OFFER), b'{"count": 2}'
    if chunked:
        head, body = head.replace(b"Content-Length: 12", b"Transfer-Encoding: chunked"), b"c\r\n%b\r\n0\r\n\r\n" % body
    with connect(api) as connection:
        for sent in (head, body) if apart else (head + body,):
            connection.sendall(sent)
            time.sleep(0.05)  # so that it is received on its own
        connection.sendall(GET.replace(b"Host: a\r\n", b"Host: a\r\n" + OFFER) + LAST)
        received = read_all(connection)
    assert received.count(b"HTTP/1.1 200 ") == received.count(b"HTTP/1.1 ") == 3
    assert received.count(b'"arms"') == 2


def test_a_body_is_never_the_next_request(api: Client) -> None:
    """A proxy that passes the offer on would give its response to another visitor."""
    with connect(api) as connection:
        connection.sendall(decisions(TOKEN, len(GET)).replace(b"Host: a\r\n", b"Host: a\r\n" + OFFER))
        time.sleep(0.05)
        connection.sendall(GET + LAST)
        received = read_all(connection)
    assert received.startswith(b"HTTP/1.1 422 ")
    assert received.count(b"HTTP/1.1 ") == 2


# Connections.


def test_connections_are_limited(store: Store, module_store: str) -> None:
    with service(module_store, max_connections=5) as client:
        assert client.get("/health").status_code == 200  # this connection stays open
        held = [connect(client) for _ in range(4)]

        def is_served() -> bool:
            with connect(client) as one_more:
                one_more.sendall(LAST)
                return read_all(one_more).startswith(b"HTTP/1.1 200 ")

        wait_until(lambda: not is_served(), "the fourth connection is accepted")
        held.pop().close()
        wait_until(is_served, "the place of a closed connection is given back")
        for each in held:
            each.close()


# Stopping.


def test_connections_that_wait_to_be_accepted_are_answered_when_it_stops(store: Store, module_store: str) -> None:
    async def scenario() -> None:
        settings, listener = ServiceSettings(store=module_store), listen("127.0.0.1", 0)
        server = GracefulServer(uvicorn.Config(make_app(settings), **uvicorn_options(settings)))
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup([listener])
        clients = [socket.create_connection(listener.getsockname(), timeout=60) for _ in range(5)]
        for each in clients:
            each.sendall(GET)
        await server.shutdown([listener])  # until here, the event loop had no turn to accept them
        for each in clients:
            with each:
                assert read_all(each).startswith(b"HTTP/1.1 200 ")

    asyncio.run(scenario())


# Wrong tokens.


@pytest.fixture
def fresh(store: Store, module_store: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A service that has seen no wrong tokens, and caches none. It believes a proxy on this machine."""
    monkeypatch.setattr(auth, "TOKEN_CACHE_SECONDS", 0.0)
    monkeypatch.setattr(auth, "FAILURES", 5)
    monkeypatch.setattr(auth, "FAILURE_SECONDS", 1000.0)
    with service(module_store, trusted_proxies=("127.0.0.1",)) as client:
        yield client


def test_wrong_tokens_are_limited_by_address(
    fresh: Client, store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "quiet", QuietLog())
    proven, new = (create_token(store, "shop")[0] for _ in range(2))

    def status(token: str, address: str) -> int:
        return fresh.get(FRONT, headers=bearer(token) | {"X-Forwarded-For": address}).status_code

    assert status(proven, "203.0.113.9") == 200
    with caplog.at_level(logging.WARNING, "kofn.service"):
        assert [status(f"kofn_{i}", "203.0.113.9") for i in range(8)] == [401] * 5 + [429] * 3
    answer = fresh.get(FRONT, headers=bearer("kofn_x") | {"X-Forwarded-For": "203.0.113.9"})
    assert "too many wrong tokens" in error_detail(answer, 429, "too-many-wrong-tokens")
    assert 0 < int(answer.headers["retry-after"]) <= 1000
    assert status(proven, "203.0.113.9") == 200  # it was valid before, so a neighbour cannot lock it out
    assert status(new, "203.0.113.10") == 200
    assert status("kofn_x", "203.0.113.10") == 401
    assert status(new, "203.0.113.9") == 200  # proven at another address
    logged = [each.getMessage() for each in caplog.records if each.name == "kofn.service"]
    assert logged == [
        "wrong token from 203.0.113.9",
        "refused a token of 203.0.113.9: too many wrong tokens",
    ]


def test_wrong_tokens_are_forgiven_and_forgotten() -> None:
    now = 0.0
    failed = Allowance(5, 3.0, lambda: now)
    for _ in range(5):
        assert failed.wait("a") == 0
        failed.add("a")
    assert failed.wait("a") == 3.0
    assert failed.wait("b") == 0
    now = 3.0
    assert failed.wait("a") == 0
    failed.add("a")
    assert failed.wait("a") > 0
    for number in range(limits.MAX_ADDRESSES + 10):
        failed.add(str(number))
    assert len(failed) == limits.MAX_ADDRESSES


def test_a_flood_of_refusals_is_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    quiet = QuietLog(lambda: now)
    with caplog.at_level(logging.WARNING, "kofn.service"):
        for number in range(1000):
            quiet.warning("kind", "number %d", number)
        now = LOG_SECONDS
        quiet.warning("kind", "the last of %d", 1001)
    assert [each.getMessage() for each in caplog.records] == [
        "number 0",
        "the last of 1001 (999 similar lines were left out)",
    ]


# Checking tokens does not wait for other work.


def test_work_that_waits_keeps_no_token_from_being_checked(
    fresh: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All threads of the service wait for the store; tokens are checked by threads of their own."""
    from kofn.campaigns import Campaign

    go, waiting = threading.Event(), threading.Semaphore(0)

    def slow(campaign: Campaign, *_: object) -> Any:
        waiting.release()
        assert go.wait(30)
        raise StoreError("slow")

    monkeypatch.setattr(Campaign, "history", slow)
    token = create_token(store, "shop")[0]

    connections = [connect(fresh) for _ in range(45)]
    for each in connections:
        each.sendall(f"GET {FRONT}/history HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    try:
        for _ in range(40):  # the threads that anyio has by default
            assert waiting.acquire(timeout=30)
        assert fresh.get("/api/session", headers=bearer(token)).status_code == 200
        assert fresh.get("/api/session", headers=bearer("kofn_wrong")).status_code == 401
    finally:
        go.set()
        for each in connections:
            assert each.recv(65536).startswith(b"HTTP/1.1 503")
            each.close()


def test_a_store_that_hangs_is_said_in_time(fresh: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(auth, "LOOKUP_SECONDS", 0.05)
    monkeypatch.setattr(auth, "MAX_LOOKUPS", 2)
    monkeypatch.setattr(auth, "find_hash", lambda *_: go.wait(30) and None)
    try:
        for number in range(4):
            answer = fresh.get("/api/session", headers=bearer(f"kofn_{number}"))
            assert "cannot be checked" in error_detail(answer, 503, "store-error")
            assert answer.headers["retry-after"] == "1"
    finally:
        go.set()
