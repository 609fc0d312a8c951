"""Limits of what web pages store. Everyone can read the token of a page, and may send whatever it allows."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kofn.core import BadInput
from kofn.service.messages.errors import ApiError
from kofn.service.messages.models import DecisionRequest
from kofn.service.monitoring.quiet_log import quiet
from kofn.service.security.limits import Allowance
from kofn.service.settings import MIB, ServiceSettings

BATCH = 10
"""Most decisions or reports of a request. More lets strangers invent more at once."""

METADATA, KEY = 500, 100
"""Longest metadata, in characters of JSON, and longest key or name. Longer ones let strangers store more."""

DECISION_BYTES, REPORT_BYTES = 700, 500
"""Bytes that count for a decision and for a report, besides their texts: no less than the databases need for them, with
all indexes. Lower values let strangers store more than `browser_storage`."""

METRICS = 20
"""Most different metrics of a campaign that web pages report, per process. More let strangers invent more."""

DAY = 86400.0

OPEN_SECONDS = 2.0
"""Seconds for which the number of open decisions of a campaign is not read again. Higher values let strangers exceed
`browser_open` by more."""


class PageLimits:
    """Checks requests with tokens of scope browser: their size, and what their address and their campaign may store."""

    def __init__(self, settings: ServiceSettings, open_decisions: Callable[[str], Awaitable[int]]) -> None:
        self._most_bytes, self._most_open = settings.browser_storage * MIB, settings.browser_open
        self._open_decisions = open_decisions
        self._known: dict[str, tuple[float, int]] = {}  # by campaign: when it was read, and the open decisions then
        self._metrics: dict[str, set[str]] = {}  # by campaign
        half = max(1, self._most_bytes // 2)
        self._stored = Allowance(half, DAY / half)  # half of it at once, and the other half over the day

    async def check_decisions(self, campaign: str, address: str, body: DecisionRequest) -> None:
        """Raise an error if a page asks for too many decisions, or says too much about them."""
        metadata = "" if body.metadata is None else json.dumps(body.metadata, separators=(",", ":"))
        key = body.key or ""
        self._check_texts({"metadata": (len(metadata), METADATA), "a key": (len(key), KEY)})
        self._check_batch(body.count)
        await self._check_open(campaign)
        self._store(address, body.count * DECISION_BYTES + len(metadata) + len(key.encode()))

    def check_reports(self, campaign: str, address: str, kind: str, items: Sequence[tuple[Any, ...]]) -> None:
        """Raise an error if a page reports too much."""
        names = [each for item in items for each in item[1:] if isinstance(each, str)]
        self._check_texts({"a name": (max(map(len, names), default=0), KEY)})
        self._check_batch(len(items))
        if kind == "record":
            known = self._metrics.get(campaign, set()) | set(names)
            if len(known) > METRICS:
                raise BadInput(
                    f"web pages may record at most {METRICS} different metrics of a campaign; got {names[0]!r}"
                )
            self._metrics[campaign] = known
        self._store(address, len(items) * REPORT_BYTES + sum(len(each.encode()) for each in names))

    @staticmethod
    def _check_batch(count: int) -> None:
        if count > BATCH:
            raise BadInput(
                f"a request of a web page may have at most {BATCH} decisions or reports; got {count:,}. Split the batch"
            )

    @staticmethod
    def _check_texts(lengths: dict[str, tuple[int, int]]) -> None:
        for what, (length, most) in lengths.items():
            if length > most:
                raise BadInput(f"{what} of a web page must be at most {most} characters; got {length:,}")

    def _store(self, address: str, size: int) -> None:
        """Count what an address stores."""
        if not (self._most_bytes and address):
            return
        wait = self._stored.wait(address)
        if wait > 0:
            most = f"{self._most_bytes // MIB:,} MiB"
            quiet.warning("storage", "refused a request of a web page from %s: it stored %s in a day", address, most)
            detail = f"web pages may store {most} a day from one address: try again in {math.ceil(wait)} seconds"
            raise ApiError(429, "too-much-stored", detail, {"Retry-After": str(math.ceil(wait))})
        self._stored.add(address, size)

    async def _check_open(self, campaign: str) -> None:
        if not self._most_open:
            return
        at, number = self._known.get(campaign, (-math.inf, 0))
        if time.monotonic() - at >= OPEN_SECONDS:
            number = await self._open_decisions(campaign)
            self._known[campaign] = time.monotonic(), number
        if number >= self._most_open:
            quiet.warning("open", "refused decisions of web pages: %r has %d open ones", campaign, number)
            detail = (
                f"{number:,} decisions of this campaign are open, and from {self._most_open:,} on, web pages get none: "
                "try again when some have a reward or have expired (`kofn serve --browser-open`)"
            )
            raise ApiError(429, "too-many-open-decisions", detail, {"Retry-After": "60"})
