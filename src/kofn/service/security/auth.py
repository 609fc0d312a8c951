"""Authentication, authorization and body limits of every API route.

All of it happens before the body is read, so that a client without a token cannot make the service read data.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from anyio import CapacityLimiter, to_thread
from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import Message

from kofn.campaigns import Store
from kofn.core import KofnError
from kofn.service.messages.bodies import refuse_surrogates
from kofn.service.messages.errors import ApiError
from kofn.service.monitoring.quiet_log import quiet
from kofn.service.security.limits import Allowance, network
from kofn.service.security.tokens import Token, find_hash, has_expired, mark_used, token_hash
from kofn.service.settings import ServiceSettings, is_loopback

TOKEN_CACHE_SECONDS = 5.0
"""Seconds for which a process caches a valid token. A revoked token works for at most this long; 0: no cache."""

TOKEN_CACHE_SIZE = 1000
"""Number of cached tokens. The cache is cleared when it is full. Invalid tokens are not cached."""

LOOKUP_THREADS = 4
"""Threads that look up tokens. They do nothing else, so other work cannot starve them."""

LOOKUP_SECONDS = 10.0
"""Seconds after which a request whose token could not be looked up gets status 503."""

MAX_LOOKUPS = 200
"""Tokens that may wait to be looked up. When there are more, requests with further tokens get status 503 at once."""

FAILURES, FAILURE_SECONDS = 20, 3.0
"""Wrong tokens of one address that are looked up at once, and seconds after which one more is allowed."""

LAST_USED_INTERVAL = 600.0
"""Minimum seconds between two writes of a token's last use. Lower values are more exact and write more often."""

SESSION = "session"
"""Name of the token that `kofn serve` prints. It is valid until the service stops."""

READ_METHODS = {"GET", "HEAD", "OPTIONS"}

BROWSER_ROUTES = ("/decisions", "/rewards", "/events", "/records")
"""Ends of the routes to which a token with scope `browser` may post. It may use no others, and read nothing."""

DECIDE_ROUTES = (*BROWSER_ROUTES, "/totals")
"""Ends of the routes to which a token with scope `decide` may post."""

HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?", re.ASCII)
"""A header Host: a name or an address, and maybe a port."""

PROXY_HEADERS = {"via", "forwarded", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip", "cdn-loop"}
PROXY_PREFIXES = ("x-forwarded", "x-original-", "x-envoy-", "cf-", "fastly-", "x-amzn-", "x-azure-", "x-appengine-")
"""Headers of proxies, and their beginnings. A request to a demo that has one is not local."""

log = logging.getLogger("kofn.service")


@dataclass(frozen=True)
class Access:
    """What the sender of a request may do."""

    scope: str  # "browser", "read", "decide" or "full"
    campaign: str | None = None  # the only campaign, or None for all
    token: str | None = None  # the token's name, or None when no token is required
    address: str = ""  # of the visitor of a web page, if it is known


class Authenticator:
    """Checks tokens, and decides which requests need none."""

    def __init__(self, store: Store, settings: ServiceSettings) -> None:
        self._store, self._settings = store, settings
        self._cache: dict[str, tuple[float, Token]] = {}
        self._proven: OrderedDict[str, None] = OrderedDict()  # hashes of tokens that were valid
        self._last_used: dict[int, float] = {}
        self._used: deque[int] = deque()  # tokens whose last use is to be recorded
        self._lock, self._marking = threading.Lock(), threading.Lock()
        self._failed = Allowance(FAILURES, FAILURE_SECONDS)
        self._pages = Allowance(settings.browser_rate, 60.0 / max(settings.browser_rate, 1))
        self._lookups: dict[str, asyncio.Task[Token | None]] = {}
        self._threads: CapacityLimiter | None = None

    async def access(self, request: Request, *, again: bool = False) -> Access:
        """Return what the sender of a request may do, or raise an `ApiError` with status 401, 429 or 503.

        `again` is for a request that was allowed and is still running. Such checks are not limited, and a token that
        is no longer valid does not count as a wrong one.
        """
        header = request.headers.get("authorization")
        if header is None:
            return self._without_token(request)
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise _unauthorized("the Authorization header must have the form `Bearer <token>`")
        hashed = token_hash(token.strip())
        if self._settings.session is not None and hmac.compare_digest(hashed, self._settings.session):
            return Access("full", None, SESSION)
        known = self._cached(hashed) or await self._look_up(hashed, None if again else _address(request))
        if known.scope != "browser":
            return Access(known.scope, known.campaign, known.name)
        address = _address(request)
        if is_loopback(address):  # of a proxy: it stands for many visitors
            address = ""
        self._limit_page(address)
        return Access(known.scope, known.campaign, known.name, address)

    def _limit_page(self, address: str) -> None:
        """Raise an `ApiError` with status 429 if an address sent too many requests with tokens of web pages.

        Everyone can read these tokens.
        """
        if not (self._settings.browser_rate and address):
            return
        wait = self._pages.wait(address)
        if wait > 0:
            quiet.warning("pages", "refused a request of a web page from %s: too many", address)
            detail = f"too many requests of web pages from {address}: try again in {math.ceil(wait)} seconds"
            raise ApiError(429, "too-many-requests", detail, {"Retry-After": str(math.ceil(wait))})
        self._pages.add(address)

    def _without_token(self, request: Request) -> Access:
        """Grant full access to local requests of a demo.

        Requests of web pages of other origins, and requests that a proxy forwarded, are not local.
        """
        if not self._settings.open:
            raise _unauthorized("a token is required: send `Authorization: Bearer <token>` (`kofn token create`)")
        if not _is_local(request):
            raise _unauthorized("without a token, only local requests are accepted: use `kofn token create`")
        return Access("full")

    def _cached(self, hashed: str) -> Token | None:
        at, known = self._cache.get(hashed, (0.0, None))
        if known is None or time.monotonic() - at >= TOKEN_CACHE_SECONDS or has_expired(known, self._store.clock()):
            return None
        return known

    async def _look_up(self, hashed: str, address: str | None) -> Token:
        """Return a token of the store. Addresses that sent many wrong tokens must wait, except with a proven token.

        With None instead of an address, nothing is limited or counted.
        """
        wait = 0.0 if address is None else self._failed.wait(address)
        if wait > 0 and hashed not in self._proven:
            quiet.warning("tokens", "refused a token of %s: too many wrong tokens", address)
            detail = f"too many wrong tokens from {address}: try again in {math.ceil(wait)} seconds"
            raise ApiError(429, "too-many-wrong-tokens", detail, {"Retry-After": str(math.ceil(wait))})
        known = await self._find(hashed)
        if known is None:
            if address is not None:
                self._failed.add(address)
                quiet.warning("wrong token", "wrong token from %s", address)
            raise _unauthorized("the token is unknown, revoked or expired")
        return known

    async def _find(self, hashed: str) -> Token | None:
        """Query the store in a separate thread. Requests with the same token share a query.

        These threads do no other work, so requests that wait for the store cannot keep others from being checked.
        """
        task = self._lookups.get(hashed)
        if task is None:
            if len(self._lookups) >= MAX_LOOKUPS:
                raise _busy()
            self._threads = self._threads or CapacityLimiter(LOOKUP_THREADS)
            task = asyncio.create_task(to_thread.run_sync(self._query, hashed, limiter=self._threads))
            self._lookups[hashed] = task
            task.add_done_callback(lambda done: self._finish(hashed, done))
        try:
            return await asyncio.wait_for(asyncio.shield(task), LOOKUP_SECONDS)
        except TimeoutError:
            raise _busy() from None

    def _finish(self, hashed: str, done: asyncio.Task[Token | None]) -> None:
        self._lookups.pop(hashed, None)
        if not done.cancelled():
            done.exception()  # the requests that wait for it report it

    def _query(self, hashed: str) -> Token | None:
        known = find_hash(self._store, hashed)
        with self._lock:
            if known is None:
                self._cache.pop(hashed, None)
                self._proven.pop(hashed, None)
                return None
            if len(self._cache) >= TOKEN_CACHE_SIZE:
                self._cache.clear()
            now = time.monotonic()
            self._cache[hashed] = now, known
            self._proven[hashed] = None
            self._proven.move_to_end(hashed)
            if len(self._proven) > TOKEN_CACHE_SIZE:
                self._proven.popitem(last=False)
            due = now - self._last_used.get(known.id, -LAST_USED_INTERVAL) >= LAST_USED_INTERVAL
            if due:
                self._last_used[known.id] = now
                self._used.append(known.id)
        if due and self._marking.acquire(blocking=False):
            threading.Thread(target=self._mark_used, name="kofn-last-used", daemon=True).start()
        return known

    def _mark_used(self) -> None:
        """Record the last use of tokens in a thread that nobody waits for: the store may be locked for long."""
        try:
            while self._used:
                mark_used(self._store, self._used.popleft())
        except KofnError as error:
            log.warning("the last use of a token was not recorded: %s", error)
        finally:
            self._marking.release()


def _address(request: Request) -> str:
    return network(request.client.host if request.client else None)


def _busy() -> ApiError:
    detail = "the store does not respond, so the token cannot be checked: try again"
    return ApiError(503, "store-error", detail, {"Retry-After": "1"})


def _is_local(request: Request) -> bool:
    """Return whether a request names this machine, and neither a page of another origin nor a proxy sent it."""
    headers = request.headers
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not HOST.fullmatch(hosts[0]) or any(_is_of_proxy(name) for name in headers):
        return False
    try:
        local = is_loopback(urlsplit(f"//{hosts[0]}").hostname or "")
        return local and all(urlsplit(origin).netloc == hosts[0] for origin in headers.getlist("origin"))
    except ValueError:  # a malformed address, such as `[`
        return False


def _is_of_proxy(header: str) -> bool:
    """Return whether proxies and content delivery networks add a header, so that the client may be far away."""
    return header in PROXY_HEADERS or header.startswith(PROXY_PREFIXES)


def _unauthorized(detail: str) -> ApiError:
    return ApiError(401, "unauthorized", detail, {"WWW-Authenticate": "Bearer"})


def check_scope(access: Access, request: Request, route: str) -> None:
    """Raise an `ApiError` with status 403 if the token does not allow the request. `route` is the template of its path.

    Read requests that name no campaign are always allowed: their routes return only what the token may see.
    """
    name, reads = request.path_params.get("name"), request.method in READ_METHODS
    if access.scope == "browser" and (request.method != "POST" or not route.endswith(BROWSER_ROUTES)):
        raise ApiError(403, "forbidden", "this token may only decide and reward: use a token with another scope")
    if access.campaign is not None and name != access.campaign and not (name is None and reads):
        raise ApiError(403, "forbidden", f"this token is valid for the campaign {access.campaign!r} only")
    if access.scope == "full" or reads:
        return
    if access.scope == "read":
        raise ApiError(403, "forbidden", "this token is read only: use a token with scope decide or full")
    if access.scope == "decide" and (request.method != "POST" or not route.endswith(DECIDE_ROUTES)):
        raise ApiError(403, "forbidden", "this token may only read, decide and reward: use a token with scope full")


class _CheckedRequest(Request):
    """A request whose JSON has no lone surrogates, which neither the store nor a response can represent."""

    async def json(self) -> Any:
        parsed = await super().json()
        refuse_surrogates(await self.body(), parsed)
        return parsed


def limit_body(request: Request, max_bytes: int) -> Request:
    """Return the request with a body that raises an `ApiError` with status 413 when it exceeds `max_bytes`."""
    too_large = ApiError(413, "body-too-large", f"the body must be at most {max_bytes:,} bytes: send smaller batches")
    length = request.headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or int(length[:20]) > max_bytes:
        raise too_large
    received, receive = 0, request.receive

    async def receive_limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > max_bytes:
            raise too_large
        return message

    return _CheckedRequest(request.scope, receive_limited)


class AuthenticatedRoute(APIRoute):
    """A route that checks the token and the size of the body before it reads the body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route, preceded by the checks."""
        inner = super().get_route_handler()
        is_import = self.path.endswith("/import")

        async def handler(request: Request) -> Response:
            state = request.app.state
            access = await state.authenticator.access(request)
            check_scope(access, request, self.path)
            request.state.access = access
            settings: ServiceSettings = state.settings
            return await inner(limit_body(request, settings.max_import if is_import else settings.max_body))

        return handler
