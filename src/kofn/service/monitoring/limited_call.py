"""Calls with a time limit, each in its own thread: they never wait behind the requests of the service."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class LimitedCall(Generic[T]):
    """Calls a function in a separate thread, once at a time, and gives up waiting after a time limit.

    A call that has not returned continues in its thread. Until it ends, further calls wait for it.
    """

    def __init__(self, work: Callable[[], T], seconds: float) -> None:
        self._work, self._seconds = work, seconds
        self._running: asyncio.Future[T] | None = None

    async def __call__(self) -> T:
        """Return the result of the function, or raise its error or a TimeoutError."""
        if self._running is None or self._running.done():
            loop = asyncio.get_running_loop()
            self._running = loop.create_future()
            self._running.add_done_callback(_mark_retrieved)
            threading.Thread(target=self._run, args=(loop, self._running), daemon=True).start()
        running = self._running
        await asyncio.wait([running], timeout=self._seconds)
        if not running.done():
            raise TimeoutError(f"no result after {self._seconds:g} seconds")
        return running.result()

    def _run(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]) -> None:
        try:
            result = self._work()
        except Exception as error:
            _report(loop, lambda error=error: future.set_exception(error))  # type: ignore[misc]
        else:
            _report(loop, lambda: future.set_result(result))


def _report(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody is waiting
        loop.call_soon_threadsafe(what)


def _mark_retrieved(future: asyncio.Future[T]) -> None:
    """Read the error of a future, so that asyncio does not report it if nobody waited that long."""
    if not future.cancelled():
        future.exception()
