"""What the synchronous client does in threads, and the other in tasks. Also forks, and exits.

Everything else of the synchronous client is generated from the asyncio client.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")

log = logging.getLogger("kofn.client")

EXIT_SECONDS = 5.0
"""Most seconds for which a client that was not closed tries to send its rewards when the program ends."""

JOIN_SECONDS = 1.0
"""Most seconds for which closing a client waits for requests in the background. Their threads are daemons."""


class Background:
    """Work in threads. They are daemons, so they never keep a program alive."""

    def __init__(self) -> None:
        self._threads: WeakSet[threading.Thread] = WeakSet()

    def start(self, work: Callable[..., None], *args: Any) -> None:
        """Call `work(*args)` in a thread; here, if no thread can be started, as when the program ends."""
        thread = threading.Thread(target=work, args=args, daemon=True, name="kofn-client")
        try:
            thread.start()
        except RuntimeError:
            work(*args)
        else:
            self._threads.add(thread)

    def within(self, seconds: float, work: Callable[[], T]) -> T:
        """Return `work()`, or raise TimeoutError after some seconds: its thread then continues."""
        result: Future[T] = Future()

        def call() -> None:
            try:
                result.set_result(work())
            except BaseException as error:
                result.set_exception(error)

        self.start(call)
        return result.result(seconds)

    def finish(self) -> None:
        """Wait until the work is done, but not for long."""
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def exit(self, client: Any) -> None:
        """Close a client when the program ends."""
        try:
            client.close(EXIT_SECONDS)
        except Exception as error:
            log.error("the program ends: %s", error)


class AsyncBackground:
    """Work in tasks of the running event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Run `work(*args)` in a task."""
        task = asyncio.get_running_loop().create_task(work(*args))
        self._tasks.add(task)  # the loop itself only has a weak reference
        task.add_done_callback(self._tasks.discard)

    async def within(self, seconds: float, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return `await work()`, or cancel it and raise TimeoutError after some seconds."""
        async with asyncio.timeout(seconds):
            return await work()

    async def finish(self) -> None:
        """Cancel the work."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def exit(self, client: Any) -> None:
        """Report what is lost when the program ends and the event loop is gone."""
        log.error("the program ends, and %d rewards in the buffer are lost: close the client", client.waiting_rewards)


class Wakeup(threading.Event):
    """Ends the wait of a thread."""

    def sleep(self, seconds: float) -> None:
        """Wait for some seconds, or until `set` is called."""
        self.wait(seconds)


class AsyncWakeup(asyncio.Event):
    """Ends the wait of a task."""

    async def sleep(self, seconds: float) -> None:
        """Wait for some seconds, or until `set` is called."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait()


# Forks and exits.

_clients: WeakSet[Any] = WeakSet()


def remember(client: Any) -> None:
    """Have a client of either kind told when the process forks or ends."""
    _clients.add(client)


def _forked() -> None:
    for each in list(_clients):
        each._reset()


def _exited() -> None:
    for each in list(_clients):
        if each.waiting_rewards:
            each._background.exit(each)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forked)
atexit.register(_exited)
