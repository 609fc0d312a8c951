"""Authentication, authorization and body limits of every API route.

All of it happens before the body is read, so that a client without a token cannot make the service read data.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Message

from kofn.campaigns import Store
from kofn.service.errors import ApiError
from kofn.service.settings import Settings, is_loopback
from kofn.service.tokens import Token, find_token, has_expired, mark_used, token_hash

TOKEN_CACHE_SECONDS = 5.0
"""Seconds for which a process caches a valid token. A revoked token works for at most this long; 0: no cache."""

TOKEN_CACHE_SIZE = 1000
"""Number of cached tokens. The cache is cleared when it is full. Invalid tokens are not cached."""

LAST_USED_INTERVAL = 600.0
"""Minimum seconds between two writes of a token's last use. Lower values are more exact and write more often."""

SESSION = "session"
"""Name of the token that `kofn serve` prints. It is valid until the service stops."""

READ_METHODS = {"GET", "HEAD", "OPTIONS"}


@dataclass(frozen=True)
class Access:
    """What the sender of a request may do."""

    scope: str  # "read" or "full"
    campaign: str | None = None  # the only campaign, or None for all
    token: str | None = None  # the token's name, or None when no token is required


class Authenticator:
    """Checks tokens, and decides which requests need none."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._cache: dict[str, tuple[float, Token]] = {}
        self._last_used: dict[int, float] = {}
        self._lock = threading.Lock()

    async def access(self, request: Request) -> Access:
        """Return what the sender of a request may do, or raise an `ApiError` with status 401."""
        header = request.headers.get("authorization")
        if header is None:
            return self._without_token(request)
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise _unauthorized("the Authorization header must have the form `Bearer <token>`")
        if self._is_session(token.strip()):
            return Access("full", None, SESSION)
        known = self._cached(token.strip()) or await run_in_threadpool(self._look_up, token.strip())
        if known is None:
            raise _unauthorized("the token is unknown, revoked or expired")
        return Access(known.scope, known.campaign, known.name)

    def _is_session(self, token: str) -> bool:
        session = self._settings.session
        return session is not None and hmac.compare_digest(token_hash(token), session)

    def _without_token(self, request: Request) -> Access:
        """Grant full access to local requests of a demo.

        Requests of web pages of other origins, and requests that a proxy forwarded, are not local.
        """
        if not self._settings.open:
            raise _unauthorized("a token is required: send `Authorization: Bearer <token>` (`kofn token create`)")
        if not _is_local(request):
            raise _unauthorized("without a token, only local requests are accepted: use `kofn token create`")
        return Access("full")

    def _cached(self, token: str) -> Token | None:
        at, known = self._cache.get(token, (0.0, None))
        if known is None or time.monotonic() - at >= TOKEN_CACHE_SECONDS or has_expired(known, self._store.clock()):
            return None
        return known

    def _look_up(self, token: str) -> Token | None:
        known = find_token(self._store, token)
        with self._lock:
            if known is None:
                self._cache.pop(token, None)
                return None
            if len(self._cache) >= TOKEN_CACHE_SIZE:
                self._cache.clear()
            now = time.monotonic()
            self._cache[token] = now, known
            due = now - self._last_used.get(known.id, -LAST_USED_INTERVAL) >= LAST_USED_INTERVAL
            if due:
                self._last_used[known.id] = now
        if due:
            mark_used(self._store, known.id)
        return known


def _is_local(request: Request) -> bool:
    """Return whether a request names this machine, and neither a page of another origin nor a proxy sent it."""
    headers = request.headers
    if "x-forwarded-for" in headers or "forwarded" in headers:
        return False
    host, origin = headers.get("host", ""), headers.get("origin")
    try:
        local = is_loopback(urlsplit(f"//{host}").hostname or "")
        return local and (origin is None or urlsplit(origin).netloc == host)
    except ValueError:  # a malformed address, such as `[`
        return False


def _unauthorized(detail: str) -> ApiError:
    return ApiError(401, "unauthorized", detail, {"WWW-Authenticate": "Bearer"})


def check_scope(access: Access, request: Request) -> None:
    """Raise an `ApiError` with status 403 if the token does not allow the request.

    Read requests that name no campaign are always allowed: their routes return only what the token may see.
    """
    name, reads = request.path_params.get("name"), request.method in READ_METHODS
    if access.campaign is not None and name != access.campaign and not (name is None and reads):
        raise ApiError(403, "forbidden", f"this token is valid for the campaign {access.campaign!r} only")
    if access.scope != "full" and not reads:
        raise ApiError(403, "forbidden", "this token is read only: use a token with scope full")


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

    return Request(request.scope, receive_limited)


class AuthenticatedRoute(APIRoute):
    """A route that checks the token and the size of the body before it reads the body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route, preceded by the checks."""
        inner = super().get_route_handler()
        is_import = self.path.endswith("/import")

        async def handler(request: Request) -> Response:
            state = request.app.state
            access = await state.authenticator.access(request)
            check_scope(access, request)
            request.state.access = access
            settings: Settings = state.settings
            return await inner(limit_body(request, settings.max_import if is_import else settings.max_body))

        return handler
