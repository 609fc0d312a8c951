"""A watcher: it notes alarms of campaigns as events, every minute, in one of all processes on a store.

Alarms are computed from the posterior and the history, which takes milliseconds for each campaign. The watcher looks
only at campaigns that have changed, one after another, and rests in between, so that requests have the processor.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from sqlalchemy import select

from kofn.campaigns import Campaign, Store
from kofn.campaigns.records.rows import SERVING
from kofn.campaigns.reports.alarms import MATURE
from kofn.campaigns.store.schema import CAMPAIGNS
from kofn.core import KofnError, NoSuchCampaign
from kofn.campaigns.lease import Lease
from kofn.service.monitoring.quiet_log import QuietLog

REST = 4.0
"""Rest after each campaign, as a multiple of the time that it took. 4: at most a fifth of a core. Lower values look at
many campaigns sooner."""

RECENT_SECONDS = 24 * 3600.0
"""After its start, a watcher looks at campaigns that changed in these last seconds. Others were looked at before."""

STOP_SECONDS = 2.0
"""Seconds that a background thread has to finish when the service stops."""

log = logging.getLogger("kofn.service")

_C = CAMPAIGNS.c


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
    """Notes alarms of campaigns that changed. `step` looks at one campaign, and returns the seconds until the next."""

    def __init__(self, store: Store, interval: float) -> None:
        self._store, self._interval = store, interval
        self._lease = Lease(store, "alarms")
        self._checked: dict[int, tuple[int, float]] = {}  # id: version and time of the last look
        self._due: deque[tuple[int, str, int]] = deque()  # id, name and version

    def step(self) -> float:
        """Look at one campaign that is due. Return the seconds until the next step."""
        if not self._due:
            self._due.extend(self._find_due())
        if not self._due or not self._lease.held():
            self._due.clear()
            return self._interval
        id, name, version = self._due.popleft()
        began, now = time.perf_counter(), self._store.clock()
        with suppress(NoSuchCampaign):
            Campaign.open(name, self._store).note_alarms()
        self._checked[id] = version, now
        return min(self._interval, REST * (time.perf_counter() - began) if self._due else self._interval)

    def _find_due(self) -> list[tuple[int, str, int]]:
        """Return the campaigns that changed since the last look, or whose latest decisions have come of age since."""
        now, due, known = self._store.clock(), [], {}
        columns = _C.id, _C.name, _C.version, _C.changed, _C.waited, _C.rewarded, _C.slot_width
        serving = select(*columns).where(_C.state.in_(SERVING), _C.rewarded + _C.totalled > 0)
        with self._store.read() as connection:
            found = connection.execute(serving).all()
        for id, name, version, changed, waited, rewarded, width in found:
            settled = changed + MATURE * waited / max(rewarded, 1) + width
            seen, at = self._checked.get(id, (version, now - RECENT_SECONDS))
            known[id] = seen, at
            if seen != version or at <= settled:
                due.append((id, name, version))
        self._checked = known
        return due
