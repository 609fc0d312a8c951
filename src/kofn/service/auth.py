"""Authentication, authorization and body limits of every API route.

All of it happens before the body is read, so that a client without a token cannot make the service read data.
"""

from __future__ import annotations

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
from kofn.service.tokens import Token, find_token, has_tokens, mark_used

TOKEN_CACHE_SECONDS = 5.0
"""Seconds for which a process caches a valid token. A revoked token works for at most this long; 0: no cache."""

TOKEN_CACHE_SIZE = 1000
"""Number of cached tokens. The cache is cleared when it is full. Invalid tokens are not cached."""

LAST_USED_INTERVAL = 600.0
"""Minimum seconds between two writes of a token's last use. Lower values are more exact and write more often."""

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
        self._open: tuple[float, bool] = (-TOKEN_CACHE_SECONDS, False)
        self._lock = threading.Lock()

    async def access(self, request: Request) -> Access:
        """Return what the sender of a request may do, or raise an `ApiError` with status 401."""
        header = request.headers.get("authorization")
        if header is None:
            return await self._without_token(request)
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise _unauthorized("the Authorization header must have the form `Bearer <token>`")
        known = self._cached(token.strip()) or await run_in_threadpool(self._look_up, token.strip())
        if known is None:
            raise _unauthorized("the token is unknown or revoked")
        return Access(known.scope, known.campaign, known.name)

    async def _without_token(self, request: Request) -> Access:
        """Grant full access to local requests while the store has no tokens.

        Requests of web pages of other origins, and requests that a proxy forwarded, are not local.
        """
        if not self._settings.loopback:
            raise _unauthorized("a token is required (`kofn token create`): send `Authorization: Bearer <token>`")
        if not await self._is_open():
            raise _unauthorized("a token is required, as the store has tokens: send `Authorization: Bearer <token>`")
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        foreign = not is_loopback(urlsplit(f"//{host}").hostname or "")
        if foreign or (origin is not None and urlsplit(origin).netloc != host) or _forwarded(request):
            raise _unauthorized("without a token, only local requests are accepted: use `kofn token create`")
        return Access("full")

    def _cached(self, token: str) -> Token | None:
        at, known = self._cache.get(token, (0.0, None))
        return known if time.monotonic() - at < TOKEN_CACHE_SECONDS else None

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

    async def _is_open(self) -> bool:
        at, is_open = self._open
        if time.monotonic() - at >= TOKEN_CACHE_SECONDS:
            is_open = not await run_in_threadpool(has_tokens, self._store)
            self._open = time.monotonic(), is_open
        return is_open


def _forwarded(request: Request) -> bool:
    return "x-forwarded-for" in request.headers or "forwarded" in request.headers


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
