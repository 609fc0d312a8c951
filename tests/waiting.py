"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 60.0
"""Seconds after which a test fails: far more than is needed, because a busy machine is no defect."""


def wait_until(condition: Callable[[], object], expected: str, seconds: float = PATIENCE, every: float = 0.005) -> None:
    """Return when the condition is true; fail with what was `expected` if it is not true in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} seconds: {expected}"
        time.sleep(every)
