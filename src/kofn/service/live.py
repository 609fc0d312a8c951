"""Live updates: the store is queried every half second for all viewers, and each change is sent as an event."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from starlette.concurrency import run_in_threadpool

from kofn.campaigns import Store, campaigns
from kofn.core import KofnError
from kofn.service.errors import ApiError

POLL_INTERVAL = 0.5
"""Seconds between two queries of the store. Lower values show changes sooner and query more often."""

KEEP_ALIVE_INTERVAL = 15.0
"""Seconds without an event after which a comment is sent, so that no proxy closes the connection as idle."""

MAX_STREAM_SECONDS = 600.0
"""Seconds after which a stream ends. The client reconnects, and its token is checked again."""

QUEUE_SIZE = 8
"""Changes that wait for a slow viewer. When the queue is full, further changes are dropped until it has room."""

log = logging.getLogger("kofn.service")

Changes = dict[str, dict[str, Any] | None]
"""Changed campaigns by name: the new summary, or None if the campaign was deleted."""


class LiveUpdates:
    """Sends changes of campaigns to all viewers. It queries the store only while there are viewers."""

    def __init__(self, store: Store, max_streams: int) -> None:
        self._store, self._max_streams = store, max_streams
        self._viewers: dict[asyncio.Queue[Changes | None], str | None] = {}
        self._latest: dict[str, dict[str, Any]] = {}
        self._polling: asyncio.Task[None] | None = None
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def stream(self, name: str | None) -> AsyncIterator[str]:
        """Yield server-sent events of one campaign, or of all: first the current state, then each change."""
        queue: asyncio.Queue[Changes | None] = asyncio.Queue(maxsize=QUEUE_SIZE)
        self._viewers[queue] = name
        self._loop = loop = asyncio.get_running_loop()
        deadline = loop.time() + MAX_STREAM_SECONDS
        try:
            if self._polling is None or self._polling.done():
                self._latest = await run_in_threadpool(self._query)
                self._polling = asyncio.create_task(self._poll())
            yield "retry: 2000\n\n"
            for event in _events({**self._latest}, name):
                yield event
            while not self._stopping and loop.time() < deadline:
                try:
                    changes = await asyncio.wait_for(queue.get(), KEEP_ALIVE_INTERVAL)
                except TimeoutError:
                    yield ": keep-alive\n\n"
                    continue
                if changes is None:
                    return
                for event in _events(changes, name):
                    yield event
        finally:
            self._viewers.pop(queue, None)

    def check_capacity(self) -> None:
        """Raise an `ApiError` with status 503 if no further stream may be opened."""
        if self._stopping or len(self._viewers) >= self._max_streams:
            detail = f"this process already has {self._max_streams} open streams: try again later, or poll"
            raise ApiError(503, "too-many-streams", detail, {"Retry-After": "5"})

    def _query(self) -> dict[str, dict[str, Any]]:
        return {each.name: each.to_dict() for each in campaigns(self._store)}

    async def _poll(self) -> None:
        while self._viewers and not self._stopping:
            await asyncio.sleep(POLL_INTERVAL)
            try:
                now = await run_in_threadpool(self._query)
            except KofnError as error:  # the next query may succeed
                log.warning("live updates: %s", error)
                continue
            before, self._latest = self._latest, now
            changes: Changes = {name: each for name, each in now.items() if before.get(name) != each}
            changes |= dict.fromkeys(before.keys() - now.keys())
            if changes:
                self._publish(changes)

    def _publish(self, changes: Changes) -> None:
        for queue, name in self._viewers.items():
            if (name is None or name in changes) and not queue.full():
                queue.put_nowait(changes)

    def stop(self) -> None:
        """End all streams, so that the server can shut down. Safe to call from any thread and from a signal handler."""
        self._stopping = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and its streams have ended
                self._loop.call_soon_threadsafe(self._end_streams)

    def _end_streams(self) -> None:
        for queue in self._viewers:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(None)

    def stop_on_signals(self) -> None:
        """End all streams on SIGINT and SIGTERM. Otherwise the server would wait for them before it stops."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            previous = signal.getsignal(number)
            if not callable(previous):
                continue

            def stop(given: int, frame: Any, previous: Any = previous) -> None:
                self.stop()
                previous(given, frame)

            signal.signal(number, stop)


def _events(changes: Changes, name: str | None) -> list[str]:
    selected = changes if name is None else {name: changes[name]} if name in changes else {}
    return [
        f"event: deleted\ndata: {json.dumps({'name': each})}\n\n"
        if summary is None
        else f"id: {summary['version']}\nevent: change\ndata: {json.dumps(summary, allow_nan=False)}\n\n"
        for each, summary in selected.items()
    ]
