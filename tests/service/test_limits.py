"""Strangers: half-sent requests, endless headers and bodies, too many connections, and wrong tokens by the thousand."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from httpx import Client
from uvicorn import Config
from uvicorn.server import ServerState

from kofn.campaigns import Store, store_at
from kofn.core import StoreError
from kofn.service.api import fast_path
from kofn.service.monitoring.quiet_log import LOG_SECONDS, QuietLog
from kofn.service.security import auth, limits
from kofn.service.security.limits import FailedTokens, protocol_for
from kofn.service.security.tokens import create_token
from kofn.service.server import GracefulServer, listen
from kofn.service.settings import Settings
from tests.campaigns.tools import create
from tests.service.tools import TOKEN, bearer, error_detail, service
from tests.waiting import wait_until

FRONT = "/api/campaigns/front"


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


def problem(received: bytes, status: int, name: str) -> str:
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), received
    assert json.loads(body)["type"] == f"urn:kofn:{name}"
    return str(json.loads(body)["detail"])


# Time. A limit that the rest of a test must keep is long enough for a machine that does other things for a second.


def test_half_sent_requests_are_ended(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEADER_SECONDS", 1.0)
    connections = []
    for sent in [b"", b"G", b"GET /health HTTP/1.1\r\nHost: a\r\nX-", b"\r\n"] * 15:
        connections.append((sent, connect(api)))
        connections[-1][1].sendall(sent)
    for sent, each in connections:
        with each:
            received = read_all(each)
            assert received == b"" or "headers" in problem(received, 408, "request-timeout")
            assert (received == b"") == (sent.strip() == b"")
    assert api.get("/health").status_code == 200


def test_drops_of_a_request_gain_no_time(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then, as slowloris sends them; after a complete request, and before the first."""
    for first in (b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n", b""):
        with connect(api) as connection:
            connection.sendall(first)
            if first:
                assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            monkeypatch.setattr(limits, "HEADER_SECONDS", 0.2)
            begun = time.monotonic()
            try:
                while time.monotonic() - begun < 60:
                    connection.sendall(b"X" if first else b"\r\n")
                    time.sleep(0.03)
                pytest.fail("the connection was never closed")
            except ConnectionError:
                pass


def test_the_time_of_a_request_counts_from_its_first_byte() -> None:
    """The timer of an earlier phase may still run when the request begins, and must not end it."""

    class Clock:
        now = 100.0

        def __init__(self) -> None:
            self.timers: list[tuple[float, Callable[[], None]]] = []

        def time(self) -> float:
            return self.now

        def call_later(self, delay: float, call: Callable[[], None]) -> None:
            self.timers.append((self.now + delay, call))

        def advance(self, seconds: float) -> None:
            self.now += seconds
            due = [call for at, call in self.timers if at <= self.now]
            self.timers = [each for each in self.timers if each[0] > self.now]
            for call in due:
                call()

    async def scenario() -> None:
        protocol, transport, clock = make_protocol(), Transport("203.0.113.9"), Clock()
        protocol.loop = clock
        protocol.connection_made(transport)
        clock.advance(0.6 * limits.HEADER_SECONDS)
        protocol.data_received(b"GET /he")
        clock.advance(0.6 * limits.HEADER_SECONDS)
        assert not transport.sent
        clock.advance(0.5 * limits.HEADER_SECONDS)
        problem(transport.sent, 408, "request-timeout")

    asyncio.run(scenario())


def test_a_half_sent_request_spoils_no_response(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream is being sent when the next request begins and does not end."""
    with connect(api) as connection:
        head = f"GET {FRONT}/stream HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        monkeypatch.setattr(limits, "HEADER_SECONDS", 0.15)
        connection.sendall(b"GET /he")
        assert b"408" not in read_all(connection)


@pytest.mark.parametrize("token", [TOKEN, "wrong"])
def test_half_a_body_is_ended(api: Client, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setattr(limits, "HEADER_SECONDS", 1.0)  # how soon a running body is looked at
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.1)
    monkeypatch.setattr(limits, "DISCARD_SECONDS", 0.1)
    with connect(api) as connection:
        connection.sendall(decisions(token, 1000) + b'{"count"')
        received = read_all(connection)
    if token == TOKEN:
        assert "body" in problem(received, 408, "request-timeout")
    else:
        problem(received, 401, "unauthorized")


def test_drops_of_a_refused_body_gain_no_time(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The response is sent; each byte of the body after it would restart the clock of idle connections."""
    monkeypatch.setattr(limits, "DISCARD_SECONDS", 0.1)
    with connect(api) as connection:
        connection.sendall(decisions("wrong", 1_000_000))
        problem(connection.recv(65536), 401, "unauthorized")
        begun = time.monotonic()
        try:
            while time.monotonic() - begun < 60:
                connection.sendall(b" ")
                time.sleep(0.03)
            pytest.fail("the connection was never closed")
        except ConnectionError:
            pass


def test_a_body_that_arrives_fast_enough_is_awaited(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEADER_SECONDS", 1.0)
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.03)
    monkeypatch.setattr(limits, "BODY_RATE", 0.1)  # 8 bytes may take 80 seconds
    with connect(api) as connection:
        connection.sendall(decisions(TOKEN, 10) + b'{"count"')
        time.sleep(1.2)
        connection.sendall(b": 1}"[:2])
        assert connection.recv(65536).startswith(b"HTTP/1.1 422")  # `{"count": ` is not JSON


def decisions(token: str, length: int) -> bytes:
    head = f"POST {FRONT}/decisions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode()


def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITE_SECONDS", 0.01)
    aborted = []

    async def scenario() -> None:
        protocol = make_protocol()
        transport = Transport("203.0.113.9")
        transport.abort = lambda: aborted.append(1)  # type: ignore[method-assign]
        protocol.connection_made(transport)
        protocol.pause_writing()
        protocol.resume_writing()
        await asyncio.sleep(0.03)
        assert not aborted
        protocol.pause_writing()
        await asyncio.sleep(0.03)
        protocol.connection_lost(None)

    asyncio.run(scenario())
    assert aborted == [1]


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
    with connect(api) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\nX-A: " + b"a" * (limits.MAX_HEADER_BYTES + 1))
        problem(read_all(connection), 431, "headers-too-large")
    large = {"X-A": "a" * (limits.MAX_HEADER_BYTES - 2 * limits.PIECE)}
    assert api.get("/health", headers=large).status_code == 200


def test_an_endless_body_of_a_stranger_is_not_read(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_DISCARDED", 100_000)
    with connect(api) as connection:
        head = "POST /api/import HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        sent = 0
        try:
            while sent < 100_000_000:
                connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
                sent += 65536
        except ConnectionError:
            pass
        assert sent < 100_000_000


def test_a_refused_body_does_not_end_the_connection(api: Client) -> None:
    """A client that sent a wrong token with a small body may use its connection again."""
    with connect(api) as connection:
        body = b"{}"
        head = f"POST {FRONT}/pause HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        for _ in range(3):
            connection.sendall(head)
            assert connection.recv(65536).startswith(b"HTTP/1.1 401")
            connection.sendall(body)


@pytest.mark.parametrize("trailer", [b"a: b\r\n", b"a"])
def test_endless_trailers_are_refused(trailer: bytes) -> None:
    """After a chunked body: many trailers, and one that does not end."""

    async def scenario() -> None:
        protocol, transport = connected()
        protocol.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        protocol.data_received(b"2\r\n{}\r\n")
        protocol.data_received(b"0\r\n" + (b"" if len(trailer) > 1 else b"a: "))
        sent, piece = 0, trailer * 1000
        while not transport.closed and sent < 2 * limits.MAX_HEADER_BYTES:
            protocol.data_received(piece)
            sent += len(piece)
        assert sent <= limits.MAX_HEADER_BYTES + len(piece)
        assert "trailers" in problem(transport.sent, 431, "headers-too-large")
        assert len(protocol.scope["headers"]) == 2  # trailers are not headers of the request

    asyncio.run(scenario())


def test_a_body_of_many_small_chunks_is_accepted() -> None:
    """Its chunk headers are larger than the limit of headers in sum."""

    async def scenario() -> None:
        protocol, transport = connected()
        protocol.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(200):
            protocol.data_received(b"1\r\n \r\n" * 200)
        protocol.data_received(b"0\r\nX-Checksum: 1\r\n\r\n")
        assert not transport.closed
        assert (len(protocol.cycle.body), protocol.cycle.more_body) == (40_000, False)

    asyncio.run(scenario())


def test_a_request_with_thousands_of_headers_is_refused() -> None:
    async def scenario() -> None:
        protocol, transport = connected()
        protocol.data_received(b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 8000)
        assert "200 headers" in problem(transport.sent, 431, "headers-too-large")

    asyncio.run(scenario())


# Pipelining.

GET = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"


def test_pipelined_requests_are_limited(
    api: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "quiet", QuietLog())
    with connect(api) as connection, caplog.at_level(logging.WARNING, "kofn.service"):
        connection.sendall(GET * 100)
        received = read_all(connection)  # it is closed
    assert received.count(b"HTTP/1.1 200 ") == 1 + limits.MAX_PIPELINED == received.count(b"HTTP/1.1 ")
    assert received.count(b"connection: close") == 1
    assert [each.getMessage() for each in caplog.records] == [
        "answering the last requests of 127.0.0.1 and closing the connection: more than 10 were waiting"
    ]


def test_some_pipelined_requests_are_answered(api: Client) -> None:
    with connect(api) as connection:
        for _ in range(3):
            connection.sendall(GET * limits.MAX_PIPELINED)
            received = b""
            while received.count(b"HTTP/1.1 200 ") < limits.MAX_PIPELINED or not received.endswith(b"}"):
                received += connection.recv(65536)


def test_a_decision_that_is_sent_at_once_is_like_any_other(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of some pipelined requests closes the connection. Without the fast way, the responses are the same."""
    lines = f"POST {FRONT}/decisions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\nX-Request-Id: one\r\n"
    lines += "Content-Type: application/json\r\nContent-Length: 12\r\n"
    body = '{"count": 1}'
    sent = []
    for name in (limits.RESPOND, "of nobody"):
        monkeypatch.setattr(fast_path, "RESPOND", name)
        with connect(api) as connection:
            connection.sendall(f"{lines}\r\n{body}{lines}Connection: close\r\n\r\n{body}".encode())
            received = read_all(connection)
        assert received.count(b"HTTP/1.1 200 ") == 2
        assert received.count(b"connection: close") == 1
        assert b"x-request-id: one\r\n" in received
        sent.append(sorted(received.partition(b"\r\n\r\n")[0].splitlines()))
    assert [each.partition(b":")[0] for each in sent[0]] == [each.partition(b":")[0] for each in sent[1]]


def test_a_flood_of_requests_is_not_queued() -> None:
    """Also not after a body, and not while a response takes long."""

    async def scenario() -> None:
        for first in (b"", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n"):
            protocol, transport = connected()
            protocol.data_received(first)
            protocol.data_received((b"{}" if first else b"") + GET * 3000)
            for _ in range(3):
                assert len(protocol.pipeline) == limits.MAX_PIPELINED
                assert transport.paused
                protocol.flow.resume_reading()  # as an application does that waits for the client to leave
                protocol.data_received(GET * 3000)
            assert not protocol.cycle.keep_alive
            protocol.connection_lost(None)
            assert not protocol.pipeline

    asyncio.run(scenario())


def test_garbage_after_a_request_spoils_no_response(api: Client) -> None:
    with connect(api) as connection:
        connection.sendall(GET + b"\x00garbage\r\n\r\n")
        received = read_all(connection)
    assert received.startswith(b"HTTP/1.1 200 ")
    assert received.count(b"HTTP/1.1 ") == 1
    with connect(api) as connection:
        connection.sendall(b"\x00garbage\r\n\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 400 ")


def test_a_client_that_leaves_with_requests_queued_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """The request that runs learns of it, and writes nothing; the others do not run."""
    ran = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        ran.append((await receive())["type"])
        ran.append((await receive())["type"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    async def scenario() -> None:
        protocol, transport = connected(app)
        protocol.data_received(GET * 3)
        await asyncio.sleep(0)
        transport.close()
        protocol.connection_lost(None)
        await asyncio.wait(protocol.tasks, timeout=10)
        assert not protocol.pipeline
        assert transport.sent == b""

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert ran == ["http.request", "http.disconnect"]
    assert not caplog.records


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
        connection.sendall(GET.replace(b"Host: a\r\n", b"Host: a\r\nConnection: close\r\n" + OFFER))
        received = read_all(connection)
    assert received.count(b"HTTP/1.1 200 ") == received.count(b"HTTP/1.1 ") == 2
    assert received.count(b'"arms"') == 2


def test_a_body_is_never_the_next_request(api: Client) -> None:
    """A proxy that passes the offer on would give its response to another visitor."""
    last = GET.replace(b"Host: a\r\n", b"Host: a\r\nConnection: close\r\n")
    with connect(api) as connection:
        connection.sendall(decisions(TOKEN, len(GET)).replace(b"Host: a\r\n", b"Host: a\r\n" + OFFER))
        time.sleep(0.05)
        connection.sendall(GET + last)
        received = read_all(connection)
    assert received.startswith(b"HTTP/1.1 422 ")
    assert received.count(b"HTTP/1.1 ") == 2


def test_some_offers_are_pipelined() -> None:
    async def scenario() -> None:
        protocol, transport = connected(answering)
        protocol.data_received(GET.replace(b"Host: a\r\n", b"Host: a\r\n" + OFFER) * 3)
        while protocol.tasks:
            await asyncio.sleep(0)
        assert transport.sent.count(b"HTTP/1.1 200 ") == 3

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_tunnel_is_refused(api: Client) -> None:
    with connect(api) as connection:
        connection.sendall(b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: a\r\n\r\n" + GET)
        received = read_all(connection)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert received.count(b"HTTP/1.1 ") == 1


# Stopping.


async def answering(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


def test_a_request_that_arrives_while_it_stops_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an idle connection, whose client does not know yet that the service stops."""
    monkeypatch.setattr(limits, "LAME_DUCK_SECONDS", 60.0)

    async def scenario() -> None:
        protocol, transport = connected(answering)
        protocol.shutdown()
        assert not transport.closed
        protocol.data_received(GET)
        await asyncio.wait(protocol.tasks, timeout=10)
        assert transport.sent.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close\r\n" in transport.sent
        assert transport.closed

    asyncio.run(scenario())


def test_connections_that_wait_to_be_accepted_are_answered_when_it_stops() -> None:
    async def scenario() -> None:
        config = Config(answering, http=protocol_for(Settings()), lifespan="off", ws="none", log_config=None)
        config.load()
        server, listener = GracefulServer(config), listen("127.0.0.1", 0)
        server.lifespan = config.lifespan_class(config)
        await server.startup([listener])
        clients = [socket.create_connection(listener.getsockname(), timeout=60) for _ in range(5)]
        for each in clients:
            each.sendall(GET)
        await server.shutdown([listener])  # until here, the event loop had no turn to accept them
        for each in clients:
            with each:
                assert read_all(each).startswith(b"HTTP/1.1 200 ")

    asyncio.run(scenario())


# Connections.


def test_connections_are_limited(
    store: Store, module_store: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "quiet", QuietLog())
    with service(module_store, max_connections=5) as client, caplog.at_level(logging.WARNING, "kofn.service"):
        assert client.get("/health").status_code == 200  # this connection stays open
        held = [connect(client) for _ in range(4)]
        with connect(client) as one_more:
            assert "5 connections" in problem(read_all(one_more), 503, "too-many-connections")
        with connect(client) as another:
            read_all(another)
        assert client.get("/health").status_code == 200
        held.pop().close()

        def is_served() -> bool:
            with connect(client) as later:
                later.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                return read_all(later).startswith(b"HTTP/1.1 200")

        wait_until(is_served, "the place of a closed connection is given back")
        for each in held:
            each.close()
    assert [each.getMessage() for each in caplog.records].count(
        "refused a connection from 127.0.0.1: this process already has 5 connections"
    ) == 1


class Transport:
    """A transport of asyncio, as far as the protocol uses it."""

    def __init__(self, address: str) -> None:
        self._address, self.sent, self.closed, self.paused = address, b"", False, False

    def get_extra_info(self, name: str) -> Any:
        return (self._address, 50_000) if name in ("peername", "sockname") else None

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


async def unused(scope: Any, receive: Any, send: Any) -> None: ...


def make_protocol(
    cls: type[limits.LimitedProtocol] | None = None, state: ServerState | None = None, app: Any = unused
) -> Any:
    cls = cls or protocol_for(Settings())
    return cls(Config(app, log_config=None), state or ServerState(), {}, asyncio.get_running_loop())


def connected(app: Any = unused) -> tuple[Any, Transport]:
    protocol, transport = make_protocol(app=app), Transport("203.0.113.9")
    protocol.connection_made(transport)
    return protocol, transport


@pytest.mark.parametrize("refused", [False, True])
def test_a_connection_leaves_no_garbage(refused: bool) -> None:
    """Its memory is free at once: a service searches for cyclic garbage seldom, and strangers open many connections."""

    async def scenario() -> None:
        protocol = make_protocol(protocol_for(Settings(max_connections=0 if refused else 8)), app=answering)
        protocol.connection_made(Transport("203.0.113.9"))
        protocol.data_received(GET)
        while protocol.tasks:
            await asyncio.sleep(0)
        assert (protocol.cycle is None) == refused
        protocol.connection_lost(None)
        alive = weakref.ref(protocol)
        del protocol
        assert alive() is None

    gc.disable()
    try:
        asyncio.run(scenario())
    finally:
        gc.enable()


def test_one_address_gets_a_quarter_of_the_connections() -> None:
    async def scenario() -> None:
        cls, state = protocol_for(Settings(max_connections=8, trusted_proxies=("10.1.0.0/16",))), ServerState()

        def accepted(address: str) -> bool:
            transport, protocol = Transport(address), make_protocol(cls, state)
            protocol.connection_made(transport)
            if not transport.closed:
                made.append(protocol)
            return not transport.closed

        made: list[Any] = []
        assert [accepted("203.0.113.9") for _ in range(3)] == [True, True, False]
        assert accepted("203.0.113.10")
        assert [accepted("10.1.2.3") for _ in range(4)] == [True] * 4  # the proxy
        assert [accepted("2001:db8::1")] == [True]
        assert not accepted("2001:db9::1")  # all are taken
        for each in made:
            each.connection_lost(None)
        assert not cls._by_address
        assert [accepted("2001:db8::1"), accepted("2001:db8::2"), accepted("2001:db8::3")] == [True, True, False]

    asyncio.run(scenario())


# Wrong tokens.


@pytest.fixture
def fresh(store: Store, module_store: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A service that has seen no wrong tokens, and caches none. It believes a proxy on this machine."""
    monkeypatch.setattr(auth, "TOKEN_CACHE_SECONDS", 0.0)
    with service(module_store, trusted_proxies=("127.0.0.1",)) as client:
        yield client


def test_wrong_tokens_are_limited_by_address(
    fresh: Client, store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FAILURES", 5)
    monkeypatch.setattr(limits, "FAILURE_SECONDS", 1000.0)
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
    failed = FailedTokens(lambda: now)
    for _ in range(limits.FAILURES):
        assert failed.wait("a") == 0
        failed.add("a")
    assert failed.wait("a") == limits.FAILURE_SECONDS
    assert failed.wait("b") == 0
    now = limits.FAILURE_SECONDS
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
