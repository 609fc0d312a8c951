"""Live updates: one task per process looks at the store for all viewers, and each change is sent as an event.

A viewer has the latest event of each campaign that it has not been sent yet. A slow viewer therefore misses states in
between, but never the last one.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

from anyio import CapacityLimiter, to_thread
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from kofn.campaigns import Store, Summary
from kofn.campaigns.reports.listing import Watch, list_page
from kofn.core import KofnError
from kofn.service.messages.errors import ApiError

POLL_INTERVAL = 0.5
"""Seconds between two looks at the store. Lower values show changes sooner and query more often."""

KEEP_ALIVE_INTERVAL = 15.0
"""Seconds without an event after which a comment is sent, so that no proxy closes the connection as idle."""

CHECK_INTERVAL = 2.0
"""Seconds between two checks of a viewer's token. Lower values end the streams of a revoked token sooner."""

RETRY_MILLISECONDS = 2000
"""Milliseconds after which a browser reconnects when a stream has ended."""

MAX_STREAM_SECONDS = 600.0
"""Seconds after which a stream ends. The client reconnects."""

MAX_STREAMS_PER_TOKEN = 100
"""Open streams of one token, per process. Higher values let one token take the place of others."""

log = logging.getLogger("kofn.service")

Check = Callable[[], Awaitable[bool]]
"""Returns whether a viewer may still see what it sees."""


class Viewer:
    """One open stream: what it shows, whose it is, and the events that it has not been sent yet."""

    def __init__(self, campaign: str | None, token: str | None) -> None:
        self.campaign, self.token = campaign, token
        self.pending: dict[str, bytes] = {}
        self.woken = asyncio.Event()

    def add(self, events: dict[str, bytes]) -> None:
        """Replace the pending events of these campaigns."""
        mine = events if self.campaign is None else {n: text for n, text in events.items() if n == self.campaign}
        if mine:
            self.pending.update(mine)
            self.woken.set()

    def take(self) -> list[bytes]:
        """Return the pending events, which count as sent from now on."""
        taken, self.pending = list(self.pending.values()), {}
        self.woken.clear()
        return taken


class LiveUpdates:
    """Sends changes of campaigns to all viewers. It looks at the store only while there are viewers."""

    def __init__(self, store: Store, max_streams: int) -> None:
        self._store, self._max_streams = store, max_streams
        self._viewers: set[Viewer] = set()
        self._watching: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] | None = None
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._limiter: CapacityLimiter | None = None

    async def stream(
        self, campaign: str | None, token: str | None = None, check: Check | None = None
    ) -> AsyncIterator[bytes]:
        """Yield server-sent events of one campaign, or of all, until `check` fails.

        The first event of one campaign is its current state. The first event of all campaigns is `ready`: changes after
        it are sent.
        """
        viewer = Viewer(campaign, token)
        if not self._has_room(token):
            return
        self._viewers.add(viewer)
        try:
            yield format_sse_event(retry=RETRY_MILLISECONDS)
            try:
                await self._watch_started()
                first = await self._first_event(campaign)
            except KofnError:  # the client reconnects
                return
            if not viewer.pending:
                yield first
            async for event in self._follow(viewer, check):
                yield event
        finally:
            self._viewers.discard(viewer)

    async def _follow(self, viewer: Viewer, check: Check | None) -> AsyncIterator[bytes]:
        time = asyncio.get_running_loop().time
        deadline, checked, sent = time() + MAX_STREAM_SECONDS, time(), time()
        while not self._stopping and time() < deadline:
            with suppress(TimeoutError):
                await asyncio.wait_for(viewer.woken.wait(), min(CHECK_INTERVAL, KEEP_ALIVE_INTERVAL))
            if check is not None and time() - checked >= CHECK_INTERVAL:
                if not await check():
                    return
                checked = time()
            events = viewer.take()
            if not events and time() - sent >= KEEP_ALIVE_INTERVAL:
                events = [KEEPALIVE_COMMENT]
            for event in events:
                yield event
                sent = time()

    async def _first_event(self, campaign: str | None) -> bytes:
        if campaign is None:
            return format_sse_event(event="ready", data_str="{}")
        found = await self._in_thread(lambda: list_page(self._store, limit=1, name=campaign).summaries)
        return _event(campaign, found[0] if found else None)

    def check_capacity(self, token: str | None = None) -> None:
        """Raise an `ApiError` if no further stream may be opened: 503 in this process, 429 with this token."""
        if self._stopping or len(self._viewers) >= self._max_streams:
            detail = f"this process already has {self._max_streams} open streams: try again later, or poll"
            raise ApiError(503, "too-many-streams", detail, {"Retry-After": "5"})
        if not self._has_room(token):
            detail = f"this token already has {MAX_STREAMS_PER_TOKEN} open streams: close some, or poll"
            raise ApiError(429, "too-many-streams", detail, {"Retry-After": "5"})

    def _has_room(self, token: str | None) -> bool:
        mine = 0 if token is None else sum(each.token == token for each in self._viewers)
        return len(self._viewers) < self._max_streams and mine < MAX_STREAMS_PER_TOKEN

    async def _watch_started(self) -> None:
        """Wait until changes are watched. The first viewer starts it; nothing is awaited between test and start."""
        if self._watching is None or self._watching.done():
            self._loop = asyncio.get_running_loop()
            self._limiter = CapacityLimiter(1)  # its own: it does not queue behind requests
            self._started = self._loop.create_future()
            self._watching = asyncio.create_task(self._watch(self._started))
        assert self._started is not None
        await asyncio.shield(self._started)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await to_thread.run_sync(work, limiter=self._limiter)

    async def _watch(self, started: asyncio.Future[None]) -> None:
        watch, begun, failing = Watch(self._store), False, False
        while self._viewers and not self._stopping:
            try:
                if begun:
                    self._publish(await self._in_thread(watch.look))
                else:
                    await self._in_thread(watch.start)
                    begun = True
                    started.set_result(None)
                failing = False
            except Exception as error:  # the next look may succeed
                if not failing:
                    log.warning("live updates: %s", error, exc_info=not isinstance(error, KofnError))
                failing = True
            await asyncio.sleep(POLL_INTERVAL)
        if not started.done():  # the streams end
            started.set_result(None)

    def _publish(self, changes: dict[str, Summary | None]) -> None:
        events = {name: _event(name, summary) for name, summary in changes.items()}
        for viewer in self._viewers:
            viewer.add(events)

    def stop(self) -> None:
        """End all streams, so that the server can shut down. Safe to call from any thread and from a signal handler."""
        self._stopping = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and its streams have ended
                self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        for viewer in self._viewers:
            viewer.woken.set()


def _event(name: str, summary: Summary | None) -> bytes:
    if summary is None:
        return format_sse_event(event="deleted", data_str=json.dumps({"name": name}))
    data = json.dumps(summary.to_dict(), allow_nan=False)
    return format_sse_event(event="change", data_str=data, id=str(summary.version))
