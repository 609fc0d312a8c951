"""What stands before every route of the API: who asks, what they may do, and how much they may send.

All of it is checked before the body is read, so that a stranger cannot make the service take in anything.
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
from kofn.service.errors import Problem
from kofn.service.settings import Settings, is_loopback
from kofn.service.tokens import Token, any_token, find_token, mark_used

MEMORY = 5.0
"""Seconds for which a process believes what it knows of a token: a revoked one works no longer than that."""

MOST_KNOWN = 1000
"""Tokens that a process remembers; those that do not exist are not among them."""

USED_EVERY = 600.0
"""Seconds between two notes of when a token was last used: it is a write."""

READING = {"GET", "HEAD", "OPTIONS"}


@dataclass(frozen=True)
class Access:
    """What whoever asks may do: read or all, in one campaign or in any."""

    scope: str
    campaign: str | None = None
    token: str | None = None  # its name; None when none is needed


class Doorman:
    """Knows tokens, and who may come in without one."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._known: dict[str, tuple[float, Token]] = {}
        self._noted: dict[int, float] = {}
        self._open: tuple[float, bool] = (-MEMORY, False)
        self._lock = threading.Lock()

    async def access(self, request: Request) -> Access:
        """What whoever asks may do, or a problem."""
        given = request.headers.get("authorization")
        if given is None:
            return await self._without_token(request)
        kind, _, token = given.partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise _unauthorized("give the token as `Authorization: Bearer <token>`")
        known = self._remembered(token.strip()) or await run_in_threadpool(self._look_up, token.strip())
        if known is None:
            raise _unauthorized("this token is not known, or has been revoked")
        return Access(known.scope, known.campaign, known.name)

    async def _without_token(self, request: Request) -> Access:
        """Full access on this machine while there is no token; not for pages of others in this machine's browser."""
        if not self._settings.loopback:
            raise _unauthorized("a token is needed (`kofn token create`): send `Authorization: Bearer <token>`")
        if not await self._is_open():
            raise _unauthorized("a token is needed, for this store has some: send `Authorization: Bearer <token>`")
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        foreign = not is_loopback(urlsplit(f"//{host}").hostname or "")
        if foreign or (origin is not None and urlsplit(origin).netloc != host) or _forwarded(request):
            raise _unauthorized("without a token only this machine may ask: `kofn token create` makes one")
        return Access("full")

    def _remembered(self, token: str) -> Token | None:
        at, known = self._known.get(token, (0.0, None))
        return known if time.monotonic() - at < MEMORY else None

    def _look_up(self, token: str) -> Token | None:
        known = find_token(self._store, token)
        with self._lock:
            if known is None:
                self._known.pop(token, None)
                return None
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            now = time.monotonic()
            self._known[token] = now, known
            note = now - self._noted.get(known.id, -USED_EVERY) >= USED_EVERY
            if note:
                self._noted[known.id] = now
        if note:
            mark_used(self._store, known.id)
        return known

    async def _is_open(self) -> bool:
        at, is_open = self._open
        if time.monotonic() - at >= MEMORY:
            is_open = not await run_in_threadpool(any_token, self._store)
            self._open = time.monotonic(), is_open
        return is_open


def _forwarded(request: Request) -> bool:
    return "x-forwarded-for" in request.headers or "forwarded" in request.headers


def _unauthorized(detail: str) -> Problem:
    return Problem(401, "unauthorized", detail, {"WWW-Authenticate": "Bearer"})


def check_scope(access: Access, request: Request) -> None:
    """Refuse what the token is not for. A route that names no campaign answers a reader with what is theirs."""
    name, reads = request.path_params.get("name"), request.method in READING
    if access.campaign is not None and name != access.campaign and not (name is None and reads):
        raise Problem(403, "forbidden", f"this token is for the campaign {access.campaign!r} only")
    if access.scope != "full" and not reads:
        raise Problem(403, "forbidden", "this token may read only: a full one is needed")


def limited(request: Request, most: int) -> Request:
    """The same request, whose body cannot be longer."""
    too_long = Problem(413, "body-too-large", f"a body has {most:,} bytes at the most: send less at a time")
    length = request.headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or int(length[:20]) > most:
        raise too_long
    seen, receive = 0, request.receive

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise too_long
        return message

    return Request(request.scope, counted)


class Guarded(APIRoute):
    """A route of the API: it asks the doorman before it reads anything."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's own handler, behind the guard."""
        inner = super().get_route_handler()
        imports = self.path.endswith("/import")

        async def handler(request: Request) -> Response:
            state = request.app.state
            access = await state.doorman.access(request)
            check_scope(access, request)
            request.state.access = access
            settings: Settings = state.settings
            return await inner(limited(request, settings.max_import if imports else settings.max_body))

        return handler
