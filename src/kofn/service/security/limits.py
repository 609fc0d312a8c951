"""Limits that protect a service from strangers: time, size and number of requests, connections, and wrong tokens.

uvicorn limits neither the headers of a request nor the time in which it must arrive, so a few hundred half-sent
requests would block a service. `LimitedProtocol` is uvicorn's protocol with these limits. Everything here happens
before a request reaches the application, and needs neither the store nor a thread.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from kofn.service.monitoring.quiet_log import quiet
from kofn.service.security.plain_parser import PlainParser
from kofn.service.settings import Settings

MAX_HEADER_BYTES = 64 * 1024
"""Size of a request's line and headers, in bytes, from which it is refused with status 431."""

MAX_HEADERS = 200
"""Headers of a request from which it is refused with status 431. It is checked after each `PIECE`. Short headers take
up to 40 times their size in memory, so a higher value lets strangers use more of it."""

MAX_PIPELINED = 10
"""Requests of a connection that may wait for the response to an earlier one. When there are more, these are answered
and the connection is closed. A higher value lets each connection use more memory."""

HEADER_SECONDS = 10.0
"""Seconds in which the headers of a request must arrive. Lower values free connections of strangers sooner, and
refuse clients with slow connections."""

BODY_SECONDS = 30.0
"""Seconds in which a body must arrive, plus the time that it takes at `BODY_RATE`."""

BODY_RATE = 64 * 1024
"""Lowest speed of a body, in bytes per second. A higher value frees slow connections sooner."""

WRITE_SECONDS = 60.0
"""Seconds after which a client that does not read its response is disconnected."""

MAX_DISCARDED = 256 * 1024
"""Bytes of a body that are read and discarded after the response, so that the client gets to read the response.
After that, or after `DISCARD_SECONDS`, the connection is closed."""

DISCARD_SECONDS = 5.0

LAME_DUCK_SECONDS = 0.5
"""Seconds for which idle connections are kept when the service stops. A request that arrives in that time is answered.
A lower value stops sooner, and resets connections on which a request is just arriving."""

STOPPING = "kofn_stopping"
"""Attribute of uvicorn's server state that is set when the service stops."""

PIECE = 8 * 1024
"""Bytes that are parsed at a time until the headers are complete. It bounds how far they can exceed their limit."""

ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
"""Start of a request target that names the host, as in `GET http://kofn.example.com/health`."""

FAILURES = 20
"""Wrong tokens of one address that are looked up at once. One more is allowed every `FAILURE_SECONDS`."""

FAILURE_SECONDS = 3.0

MAX_ADDRESSES = 10_000
"""Addresses whose wrong tokens or requests are counted. When there are more, the one counted least recently is
forgotten."""


def network(address: str | None) -> str:
    """Return the address whose wrong tokens and connections are counted together: of IPv6, the first 64 bits.

    >>> network("203.0.113.9"), network("2001:db8:1:2:3:4:5:6"), network("::ffff:203.0.113.9"), network(None)
    ('203.0.113.9', '2001:db8:1:2::', '203.0.113.9', 'unknown')
    """
    try:
        parsed = ipaddress.ip_address(address or "")
    except ValueError:
        return (address or "unknown")[:64]
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        if parsed.is_loopback:
            return str(parsed)
        return str(ipaddress.IPv6Address(int(parsed) >> 64 << 64))
    return str(parsed)


class Allowance:
    """Counts what addresses do, in bounded memory: each may do it `at_once` times, then once every `seconds`."""

    def __init__(self, at_once: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._at_once, self._seconds, self._clock = at_once, seconds, clock
        self._until: OrderedDict[str, float] = OrderedDict()  # when all that an address did is forgotten

    def limits(self) -> tuple[int, float]:
        """Return how often it may be done at once, and the seconds until once more."""
        return self._at_once, self._seconds

    def wait(self, address: str) -> float:
        """Return the seconds until this address may do it again; 0: now."""
        at_once, seconds = self.limits()
        debt = self._until.get(address, 0.0) - self._clock()
        return max(0.0, debt - (at_once - 1) * seconds)

    def add(self, address: str) -> None:
        """Count what an address did."""
        now = self._clock()
        self._until[address] = max(self._until.pop(address, now), now) + self.limits()[1]
        while len(self._until) > MAX_ADDRESSES:
            self._until.popitem(last=False)

    def __len__(self) -> int:
        return len(self._until)


class FailedTokens(Allowance):
    """Counts wrong tokens by address: `FAILURES` at once, then one per `FAILURE_SECONDS`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(FAILURES, FAILURE_SECONDS, clock)

    def limits(self) -> tuple[int, float]:
        """Return how many are looked up at once, and the seconds until one more."""
        return FAILURES, FAILURE_SECONDS


RESPOND = "kofn.respond"
"""Name of the extension in the scope of a request that sends a whole response at once (`LimitedProtocol.respond`)."""


class _Ignored(list[tuple[bytes, bytes]]):
    """Headers that nobody reads: trailers, which follow a chunked body, when the request is already running."""

    def append(self, _: tuple[bytes, bytes]) -> None:
        """Drop a header."""


_TRAILERS = _Ignored()


class TooManyRequests(Exception):
    """A request was pipelined after `MAX_PIPELINED` others. It stops the parser."""


_CLOSE = b"connection", b"close"


def _close_after(cycle: Any) -> None:
    """Close the connection after the response of a cycle, and announce it: uvicorn does so from version 0.39 on."""
    if cycle.keep_alive:
        cycle.keep_alive = False
        cycle.default_headers = [*cycle.default_headers, _CLOSE]


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits. The number of connections is that of this process."""

    settings: ClassVar[Settings | None] = None
    """Settings of the service; None: those in the environment."""

    _by_address: ClassVar[Counter[str]] = Counter()

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.parser: Any = PlainParser(self)
        cls = type(self)
        if cls.settings is None:
            cls.settings = Settings.from_environment()
        self._limits: Settings = cls.settings
        self._address: str | None = None  # None: this connection is refused
        self._in_headers = self._in_body = self._stopping = False
        self._ending = False  # nothing more is parsed: the connection is closed after the last response
        self._progress = False  # the parser found headers or a part of a body in this piece
        self._header_bytes = self._body_bytes = self._discarded = 0
        self._trailer_bytes = 0  # bytes since the last part of the body: chunk sizes and trailers
        self._running: Any = None  # cycle of the request that is being answered; `self.cycle` is the latest one
        self._since: float | None = None  # when the present phase began; None: its time is not limited
        self._timer: asyncio.TimerHandle | None = None  # it outlives short phases: to start and stop one takes time
        self._discarding: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._extensions: Any = {RESPOND: self.respond}

    # Connections.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or refuse it if there are too many."""
        peer = transport.get_extra_info("peername")
        address = network(str(peer[0]) if isinstance(peer, tuple) and peer else None)
        too_many = self._too_many(address)
        if too_many:
            self.transport = transport
            quiet.warning("connections", "refused a connection from %s: %s", address, too_many)
            self._respond(503, "too-many-connections", f"{too_many}: try again later", b"retry-after: 5\r\n")
            return
        self._address = address
        self._by_address[address] += 1
        super().connection_made(transport)
        self._begin()
        if getattr(self.server_state, STOPPING, False):  # it was accepted at the last moment
            self.shutdown()

    def _too_many(self, address: str) -> str:
        """Return why no further connection of an address is accepted, or an empty string."""
        limit, own = self._limits.max_connections, self._limits.max_connections // 4
        if len(self.connections) >= limit:
            return f"this process already has {limit} connections"
        if self._by_address[address] >= max(1, own) and not self._is_trusted(address):
            return f"{address} already has {own} connections"
        return ""

    def _is_trusted(self, address: str) -> bool:
        """Return whether an address may use all connections, because it stands for many clients."""
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return parsed.is_loopback or any(parsed in ipaddress.ip_network(each) for each in self._limits.trusted_proxies)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        for timer in (self._timer, self._discarding, self._writing):
            if timer is not None:
                timer.cancel()
        self._extensions.clear()  # it refers to this object, which would stay in memory until garbage is searched for
        if self._address is None:
            self.parser = None  # for the same reason
            return
        self._by_address[self._address] -= 1
        if self._by_address[self._address] <= 0:
            del self._by_address[self._address]
        self._address = None
        self.pipeline.clear()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True  # uvicorn tells only the latest request, and this one would fail
            self._running.message_event.set()
        super().connection_lost(exc)

    # Time and size.

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, and refuse the request if it is too large."""
        while data and self._address is not None and not self.transport.is_closing():
            if self._ending:
                self.flow.pause_reading()
                return
            piece, data = (data, b"") if self._in_body else (data[:PIECE], data[PIECE:])
            self._feed(piece)

    def _feed(self, piece: bytes) -> None:
        was_in_body, self._progress = self._in_body, False
        super().data_received(piece)
        if self.transport.is_closing() or self._ending:
            return
        if self._in_body and was_in_body:
            self._count_in_body(len(piece))
        elif self._in_headers or self._idle():
            self._count_in_headers(len(piece))

    def _count_in_body(self, size: int) -> None:
        if self.cycle.response_complete:
            self._discarded += size
            if self._discarded > MAX_DISCARDED:
                self._close("bodies", "the body of a refused request does not end")
            return
        self._trailer_bytes = 0 if self._progress else self._trailer_bytes + size
        if self._trailer_bytes > MAX_HEADER_BYTES:
            limit = f"the trailers and each chunk header of a body must be at most {MAX_HEADER_BYTES:,} bytes"
            self._refuse(431, "headers-too-large", limit)

    def _count_in_headers(self, size: int) -> None:
        if not self._in_headers:  # empty lines before a request
            self._begin()
        self._header_bytes += size
        if self._header_bytes > MAX_HEADER_BYTES:
            limit = f"the request line and headers must be at most {MAX_HEADER_BYTES:,} bytes"
            self._refuse(431, "headers-too-large", limit)
        elif self._in_headers and len(self.headers) > MAX_HEADERS:
            self._refuse(431, "headers-too-large", f"a request must have at most {MAX_HEADERS} headers")

    def _idle(self) -> bool:
        return not self._in_body and (self.cycle is None or bool(self.cycle.response_complete))

    def _begin(self) -> None:
        """Start the clock of a phase, unless it runs: waiting for the headers, or for the body."""
        if self._since is None:
            self._since = self.loop.time()
            if self._timer is None:
                self._timer = self.loop.call_later(HEADER_SECONDS, self._check_time)

    def _check_time(self) -> None:
        self._timer = None
        if self._since is None or self.transport.is_closing():
            return
        if self._in_body:
            limit = BODY_SECONDS + self._body_bytes / BODY_RATE
        elif self._in_headers or (self._idle() and self.timeout_keep_alive_task is None):
            limit = HEADER_SECONDS
        else:  # a running request, or one that uvicorn's timer of idle connections covers
            self._since = None
            return
        left = self._since + limit - self.loop.time()
        if left > 0.01:
            self._timer = self.loop.call_later(left, self._check_time)
        elif self._in_headers or self._in_body:
            what = "body" if self._in_body else "headers"
            self._refuse(408, "request-timeout", f"the {what} of the request did not arrive within {limit:.0f} seconds")
        else:
            self.transport.close()  # nothing was asked, so nothing is answered

    # What the parser found.

    def on_message_begin(self) -> None:
        """Note that a request has begun, unless too many are waiting."""
        if len(self.pipeline) >= MAX_PIPELINED:
            raise TooManyRequests
        self._in_headers, self._header_bytes = True, 0
        self._since = None
        self._begin()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Note that the headers are complete, and run the request."""
        if self.parser.should_upgrade():
            return
        absolute = None if self.url.startswith(b"/") else ABSOLUTE.match(self.url)
        if absolute:  # RFC 9112, section 3.2.2: the target replaces the header Host
            others = [each for each in self.headers if each[0] != b"host"]
            self.headers[:] = [(b"host", absolute[1]), *others]
        waiting = len(self.pipeline)
        self.scope["extensions"] = self._extensions
        super().on_headers_complete()
        self.headers = _TRAILERS  # the scope has the list of the headers
        if len(self.pipeline) == waiting:
            self._running = self.cycle
        self._in_headers, self._in_body, self._progress = False, True, True
        self._body_bytes = self._trailer_bytes = self._discarded = 0
        self._since = None
        self._begin()
        if self.cycle is not None and (self._stopping or getattr(self.server_state, STOPPING, False)):
            _close_after(self.cycle)

    def on_body(self, body: bytes) -> None:
        """Count the bytes of the body."""
        self._body_bytes += len(body)
        self._progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is complete."""
        if self.parser.should_upgrade():
            return
        self._in_body, self._since = False, None
        if self._discarding is not None:
            self._discarding.cancel()
            self._discarding = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Run the next request. Give the rest of a body little time, once the response is sent."""
        if self.pipeline:
            self._running = self.pipeline[-1][0]
        super().on_response_complete()
        if self._in_body and not self.transport.is_closing():
            self._since = None
            why = "a body was sent too slowly"
            self._discarding = self.loop.call_later(DISCARD_SECONDS, self._close, "bodies", why)

    def respond(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send a whole response to the running request. It takes less time than the two messages of an application.

        Return False, and send nothing, if it must wait for the client, or if the client is gone.
        """
        cycle = self._running
        if self.flow.write_paused or cycle.disconnected or cycle.response_started:
            return False
        if not cycle.keep_alive and _CLOSE not in cycle.default_headers:
            headers = [*headers, _CLOSE]
        lines = [STATUS_LINE[status]]
        for name, value in (*cycle.default_headers, *headers):
            lines += name, b": ", value, b"\r\n"
        lines += b"\r\n", body
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        self.transport.write(b"".join(lines))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    # Clients that do not read.

    def pause_writing(self) -> None:
        """Start the clock of a client that does not read its response."""
        super().pause_writing()
        self._writing = self.loop.call_later(WRITE_SECONDS, self._abort)

    def resume_writing(self) -> None:
        """Stop that clock."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        super().resume_writing()

    def _abort(self) -> None:
        quiet.warning("readers", "closed the connection of %s: it does not read its response", self._address)
        self.transport.abort()

    # Stopping.

    def shutdown(self) -> None:
        """Answer what is running or just arriving, then close."""
        self._stopping = True
        if self.cycle is not None and not self.cycle.response_complete:
            _close_after(self.cycle)
        elif not self.transport.is_closing():
            self.loop.call_later(LAME_DUCK_SECONDS, self._close_after_reading)

    def _close_after_reading(self) -> None:
        """Close after the next turn of the event loop, which reads what has arrived while the process was busy."""
        self.loop.call_soon(self.loop.call_soon, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self._idle() and not self._in_headers and not self.transport.is_closing():
            self.transport.close()

    # Refusals.

    def _refuse(self, status: int, name: str, detail: str) -> None:
        quiet.warning(name, "refused a request of %s with status %d: %s", self._address, status, detail)
        cycle: Any = self.cycle  # None before the first request
        if self._in_body:
            unanswered = not cycle.response_started and not self.pipeline
        else:
            unanswered = cycle is None or cycle.response_complete
        if unanswered:
            self._respond(status, name, detail)
        else:  # another response is being sent
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser does not accept, but not in the middle of the response to an earlier request."""
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete:
            super().send_400_response(msg)
        elif not self._in_body:
            self._end()
        elif cycle.response_started or self.pipeline:
            self.transport.close()
        else:
            super().send_400_response(msg)

    def _end(self) -> None:
        """Close the connection after the response to the latest request. Nothing more is parsed."""
        if len(self.pipeline) >= MAX_PIPELINED:
            closing = "answering the last requests of %s and closing the connection: more than %d were waiting"
            quiet.warning("pipelines", closing, self._address, MAX_PIPELINED)
        _close_after(self.cycle)
        self._ending, self._in_headers, self._since = True, False, None
        self.flow.pause_reading()

    def _close(self, kind: str, why: str) -> None:
        quiet.warning(kind, "closed the connection of %s: %s", self._address, why)
        self.transport.close()

    def _respond(self, status: int, name: str, detail: str, headers: bytes = b"") -> None:
        """Send problem details without the application, and close the connection."""
        title = name.replace("-", " ").capitalize()
        body = json.dumps({"type": f"urn:kofn:{name}", "title": title, "status": status, "detail": detail}).encode()
        self.transport.write(
            STATUS_LINE[status]
            + f"content-type: application/problem+json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n".encode()
            + headers
            + b"\r\n"
            + body
        )
        self.transport.close()


def stop_serving(state: ServerState) -> None:
    """End every connection after its next response, also those that are still to be accepted."""
    setattr(state, STOPPING, True)


def protocol_for(settings: Settings) -> type[LimitedProtocol]:
    """Return the protocol of a service that runs in this process with these settings."""
    return type("LimitedProtocol", (LimitedProtocol,), {"settings": settings, "_by_address": Counter()})
