"""A watcher: it notes alarms of campaigns as events, every minute, in one of all processes on a store.

Alarms are computed from the posterior and the history, which takes milliseconds for each campaign. The watcher looks
at one campaign after another, and rests in between, so that requests have the processor.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from sqlalchemy import select

from kofn.campaigns import Campaign, Store
from kofn.campaigns.lease import Lease
from kofn.campaigns.serving import SERVING
from kofn.campaigns.store.schema import CAMPAIGNS
from kofn.core import KofnError, NoSuchCampaign
from kofn.service.monitoring.quiet_log import QuietLog

REST = 4.0
"""Rest after each campaign, as a multiple of the time that it took. 4: at most a fifth of a core. Lower values look at
many campaigns sooner."""

RECENT_SECONDS = 24 * 3600.0
"""Seconds since its last fold after which a campaign is no longer looked at. Higher: alarms of rare rewards are found
for longer, and idle campaigns take time."""

STOP_SECONDS = 2.0
"""Seconds that a background thread has to finish when the service stops."""

log = logging.getLogger("kofn.service")


class BackgroundLoop:
    """A thread that repeats some work. Errors are logged, and the work is tried again."""

    def __init__(self, name: str, work: Callable[[], float], pause: float) -> None:
        self._name, self._work, self._pause = name, work, pause
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._log = QuietLog()

    def start(self) -> None:
        """Start the thread. The work is done after the first pause."""
        self._thread = threading.Thread(target=self._run, name=f"kofn-{self._name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        pause = self._pause
        while not self._stopping.wait(pause):
            try:
                pause = self._work()
            except Exception as error:
                pause = self._pause
                if not self._stopping.is_set():
                    self._log.warning("error", "the %s failed, and tries again: %s", self._name, error)
                    if not isinstance(error, KofnError):
                        log.debug("the %s failed", self._name, exc_info=error)

    def stop(self) -> None:
        """Stop the thread. Do not wait for long: the work is repeated by another process, or after a restart."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)


class Watcher:
    """Notes alarms of campaigns. `step` looks at one campaign, and returns the seconds until the next."""

    def __init__(self, store: Store, interval: float) -> None:
        self._store, self._interval = store, interval
        self._lease = Lease(store, "alarms")
        self._due: deque[str] = deque()

    def step(self) -> float:
        """Look at one campaign that is due. Return the seconds until the next step."""
        if not self._lease.held():
            self._due.clear()
            return self._interval
        if not self._due:
            self._due.extend(self._find_due())
            if not self._due:
                return self._interval
        began = time.perf_counter()
        with suppress(NoSuchCampaign):
            Campaign.open(self._due.popleft(), self._store).note_alarms()
        return min(self._interval, REST * (time.perf_counter() - began) if self._due else self._interval)

    def _find_due(self) -> Sequence[str]:
        """Return the campaigns that have rewards, and were folded recently."""
        recent = CAMPAIGNS.c.cut > self._store.clock() - RECENT_SECONDS
        due = select(CAMPAIGNS.c.name).where(CAMPAIGNS.c.state.in_(SERVING), CAMPAIGNS.c.rewards > 0, recent)
        with self._store.read() as connection:
            return connection.execute(due).scalars().all()
