"""Liveness and readiness: whether the process runs, and whether its store accepts a write."""

from __future__ import annotations

import logging
import os
import time
from asyncio import get_running_loop

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from sqlalchemy import func, select, text

from kofn import __version__
from kofn.campaigns import Store
from kofn.campaigns.store.schema import CAMPAIGNS, SETTINGS
from kofn.campaigns.store.version import check_version, version_of
from kofn.core import KofnError, StoreError
from kofn.service.messages import models
from kofn.service.messages.errors import ApiError
from kofn.service.messages.openapi import ERROR_CONTENT, operation_id
from kofn.service.monitoring.limited_call import LimitedCall

WRITE_LIMIT = 2.0
"""Seconds that a write may take until the service counts as not ready. Higher values tolerate a slower store."""

CACHED_SECONDS = 1.0
"""Seconds for which the result of a check is used again, so that probes cause at most one write per second."""

MIN_FREE_BYTES = 1024 * 1024
"""Free space on the disk of a SQLite store below which the service is not ready. A small write may still succeed then,
because SQLite reuses its log."""

PROBE = "ready"
"""Name of the row in the table of settings that a check writes."""

_WRITE = text(
    f"INSERT INTO {SETTINGS.name} (name, value) VALUES (:name, :value) "
    "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)

log = logging.getLogger("kofn.service")

health_router = APIRouter(generate_unique_id_function=operation_id, tags=["service"])


class Readiness:
    """Checks that the store accepts a write. Results are cached briefly, and all requests share one check."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._write = LimitedCall(self._probe, WRITE_LIMIT)
        self._checked: tuple[float, str | None] | None = None  # when, and why the service is not ready
        self.failing = 0
        """The number of campaigns whose policy cannot learn, at the last check."""

    async def reason_not_ready(self) -> str | None:
        """Return why the service is not ready, or None if it is."""
        now = get_running_loop().time
        if self._checked is None or now() - self._checked[0] >= CACHED_SECONDS:
            before = self._checked
            found = await self._check()
            self._checked = now(), found
            if found is not None and (before is None or before[1] is None):
                log.error("not ready: %s", found)
        why = self._checked[1]
        return None if why is None else why.partition(":")[0]  # the rest may name hosts and files

    async def _check(self) -> str | None:
        try:
            await self._write()
        except TimeoutError:
            return f"the store did not accept a write within {WRITE_LIMIT:g} seconds"
        except (KofnError, OSError) as error:
            return f"the store refused a write: {error}"
        return None

    def _probe(self) -> None:
        self._check_disk()
        with self._store.write() as connection:
            check_version(version_of(connection))  # of a store that another version has migrated, no call is answered
            value = str(time.time_ns())  # always another one: SQLite does not write a row that stays the same
            connection.execute(_WRITE, {"name": PROBE, "value": value})
        with self._store.read() as connection:
            failing = select(func.count()).select_from(CAMPAIGNS).where(CAMPAIGNS.c.failure.is_not(None))
            self.failing = connection.execute(failing).scalar_one()

    def _check_disk(self) -> None:
        url = self._store.url
        if url.get_backend_name() == "sqlite" and hasattr(os, "statvfs"):
            disk = os.statvfs(os.path.dirname(os.path.abspath(url.database or "")))
            if disk.f_bavail * disk.f_frsize < MIN_FREE_BYTES:
                raise StoreError(f"the store {self._store} has less than {MIN_FREE_BYTES:,} bytes left on its disk")


@health_router.get("/health", response_model=models.Health)
async def get_health() -> Response:
    """Check that the process responds. It does not use the store, and no token is required."""
    return JSONResponse({"status": "ok", "version": __version__})


@health_router.get(
    "/ready",
    response_model=models.Ready,
    responses={503: {"description": "The store does not accept a write.", "content": ERROR_CONTENT}},
)
async def get_ready(request: Request) -> Response:
    """Check that the store accepts a write. No token is required. The result is cached for a second.

    `failing` is no reason to send requests elsewhere: these campaigns go on, and every process has the same ones.
    """
    readiness: Readiness = request.app.state.readiness
    if why := await readiness.reason_not_ready():
        raise ApiError(503, "not-ready", f"{why}: see the log of the service", {"Retry-After": "1"})
    return JSONResponse({"status": "ready", "version": __version__, "failing": readiness.failing})
