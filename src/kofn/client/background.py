"""How clients work in the background: the synchronous one in threads, the other in tasks. Also forks, and exits."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet

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

    def forget(self) -> None:
        """Forget the work that was started: in the child of a fork there are no such threads."""
        self._threads = WeakSet()

    def finish(self) -> None:
        """Wait until the work is done, but not for long."""
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join(JOIN_SECONDS)

    def exit(self, client: AnyClient) -> None:
        """Close a client when the program ends."""
        client._retry_for = min(client._retry_for, EXIT_SECONDS)
        try:
            client.close()
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

    def forget(self) -> None:
        """Forget the work that was started: it is the parent's."""
        self._tasks = set()

    async def finish(self) -> None:
        """Cancel the work."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def exit(self, client: AnyClient) -> None:
        """Report what is lost when the program ends: there is no event loop any more."""
        log.error("the program ends, and %d rewards in the buffer are lost: close the client", client.waiting_rewards)


class Alarm:
    """Ends the wait of a thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def ring(self) -> None:
        """End the wait under way, or the next one."""
        self._event.set()

    def wait(self, seconds: float) -> None:
        """Wait for some seconds, or until the alarm rings."""
        self._event.wait(seconds)
        self._event.clear()


class AsyncAlarm:
    """Ends the wait of a task."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """End the wait under way, or the next one."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Wait for some seconds, or until the alarm rings."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
        self._event.clear()


# Forks and exits.


class AnyClient(Protocol):
    """What a client of either kind does when the process forks or ends."""

    _retry_for: float
    _background: Any

    @property
    def waiting_rewards(self) -> int:
        """The number of rewards in the buffer."""

    def close(self) -> Any:
        """Send them, and close the connections."""

    def _forked(self) -> None: ...


_clients: WeakSet[AnyClient] = WeakSet()


def remember(client: AnyClient) -> None:
    """Have a client told when the process forks or ends."""
    _clients.add(client)


def _forked() -> None:
    for each in list(_clients):
        each._forked()


def _exited() -> None:
    for each in list(_clients):
        if each.waiting_rewards:
            each._background.exit(each)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forked)
atexit.register(_exited)
