"""Live views: one look at the store every half second, however many are watching, and a message when it changed."""

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
from kofn.service.errors import Problem

EVERY = 0.5
"""Seconds between two looks."""

KEEP_ALIVE = 15.0
"""Seconds of silence after which a comment is sent, so that nothing on the way closes the stream."""

LONGEST = 600.0
"""Seconds of one stream: then it ends and the viewer, whose token is looked at again, comes back."""

log = logging.getLogger("kofn.service")

News = dict[str, dict[str, Any] | None]
"""By campaign: its summary, or None for one that is gone."""


class Live:
    """Tells viewers what changed. Looks at the store only while somebody is watching."""

    def __init__(self, store: Store, most: int) -> None:
        self._store, self._most = store, most
        self._viewers: dict[asyncio.Queue[News | None], str | None] = {}
        self._seen: dict[str, dict[str, Any]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def stream(self, name: str | None) -> AsyncIterator[str]:
        """Server-sent events of one campaign, or of all: each change as `event: change` with the summary."""
        queue: asyncio.Queue[News | None] = asyncio.Queue(maxsize=8)
        self._viewers[queue] = name
        self._loop = loop = asyncio.get_running_loop()
        until = loop.time() + LONGEST
        try:
            if self._watching is None or self._watching.done():
                self._seen = await run_in_threadpool(self._look)
                self._watching = asyncio.create_task(self._watch())
            yield "retry: 2000\n\n"
            for message in _messages({**self._seen}, name):
                yield message
            while not self._stopping and loop.time() < until:
                try:
                    news = await asyncio.wait_for(queue.get(), KEEP_ALIVE)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if news is None:
                    return
                for message in _messages(news, name):
                    yield message
        finally:
            self._viewers.pop(queue, None)

    def check_room(self) -> None:
        """Refuse a viewer too many."""
        if self._stopping or len(self._viewers) >= self._most:
            detail = f"{self._most} live views are open, the most of one process: ask again, or poll"
            raise Problem(503, "too-many-streams", detail, {"Retry-After": "5"})

    def _look(self) -> dict[str, dict[str, Any]]:
        return {each.name: each.to_dict() for each in campaigns(self._store)}

    async def _watch(self) -> None:
        while self._viewers and not self._stopping:
            await asyncio.sleep(EVERY)
            try:
                now = await run_in_threadpool(self._look)
            except KofnError as why:  # a store that comes back is looked at again
                log.warning("live views: %s", why)
                continue
            before, self._seen = self._seen, now
            news: News = {name: each for name, each in now.items() if before.get(name) != each}
            news |= dict.fromkeys(before.keys() - now.keys())
            if news:
                self._tell(news)

    def _tell(self, news: News) -> None:
        for queue, name in self._viewers.items():
            if (name is None or name in news) and not queue.full():  # who is slow misses steps, not the last state
                queue.put_nowait(news)

    def stop(self) -> None:
        """End all streams, so that the server can stop. Any thread may say so, and a signal too."""
        self._stopping = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has been closed, and its streams with it
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        for queue in self._viewers:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(None)

    def stop_on_signals(self) -> None:
        """End all streams as soon as the server is told to stop: it waits for every answer to end before it does."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.getsignal(number)
            if not callable(before):
                continue

            def stop(given: int, frame: Any, before: Any = before) -> None:
                self.stop()
                before(given, frame)

            signal.signal(number, stop)


def _messages(news: News, name: str | None) -> list[str]:
    wanted = news if name is None else {name: news[name]} if name in news else {}
    return [
        f"event: gone\ndata: {json.dumps({'name': each})}\n\n"
        if summary is None
        else f"id: {summary['version']}\nevent: change\ndata: {json.dumps(summary, allow_nan=False)}\n\n"
        for each, summary in wanted.items()
    ]
