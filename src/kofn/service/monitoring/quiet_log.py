"""Log lines that strangers can cause, at a limited rate."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable

log = logging.getLogger("kofn.service")

LOG_SECONDS = 10.0
"""Seconds between two log lines about the same kind of refusal. The next line says how many were left out."""


class QuietLog:
    """Logs refusals, each kind at most once per `LOG_SECONDS`, so that strangers cannot fill the log."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()

    def warning(self, kind: str, message: str, *args: object) -> None:
        """Log a line, unless one of the same kind was logged just before."""
        now = self._clock()
        if now - self._last.get(kind, -math.inf) < LOG_SECONDS:
            self._left_out[kind] += 1
            return
        self._last[kind] = now
        more = self._left_out.pop(kind, 0)
        log.warning(message + (f" ({more} similar lines were left out)" if more else ""), *args)


quiet = QuietLog()
