"""State that all requests of a process share: the store, open campaigns, limits, metrics and live updates."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool

from kofn.campaigns import Campaign, Store
from kofn.campaigns.store.group_commit import Promise
from kofn.core import BadInput, NoSuchCampaign
from kofn.core.checks import campaign_name
from kofn.core.responses import Summary
from kofn.service.api.live import LiveUpdates
from kofn.service.messages.errors import ApiError
from kofn.service.monitoring.metrics import Metrics
from kofn.service.security.pages import PageLimits
from kofn.service.settings import ServiceSettings

MAX_OPEN_CAMPAIGNS = 256
"""Number of campaigns kept open per process. Opening another one closes the oldest, which costs one query to reopen."""

MAX_REOPENED = 3
"""How often a request opens a campaign again that was replaced, as by a restored backup, after it was opened."""

MAX_CHANGES = 20
"""Changes of campaigns that may wait for the store at the same time, each in a thread; further ones wait without one. A
value near 40, the number of all threads, lets changes keep reports waiting while the store is locked."""

T = TypeVar("T")


class Delivery:
    """Results of other threads for the futures of an event loop, which is woken once for many of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._results: list[tuple[asyncio.Future[Any], Any, BaseException | None]] = []
        self._lock = threading.Lock()

    def add(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        """Deliver a result or an error to a future. Call this from any thread."""
        with self._lock:
            self._results.append((future, result, error))
            if len(self._results) > 1:
                return
        with suppress(RuntimeError):  # the loop is closed: nobody is waiting
            self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            results, self._results = self._results, []
        for future, result, error in results:
            if future.done():  # its request was cancelled
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


class _LoopPromise:
    """Delivers one result to a future of an event loop."""

    def __init__(self, delivery: Delivery, future: asyncio.Future[Any]) -> None:
        self._delivery, self._future, self._done = delivery, future, False

    def done(self) -> bool:
        return self._done

    def set_result(self, result: Any) -> None:
        self._done = True
        self._delivery.add(self._future, result, None)

    def set_exception(self, exception: BaseException | None) -> None:
        self._done = True
        self._delivery.add(self._future, None, exception)


class AppState:
    """State that all requests of a process share."""

    def __init__(self, store: Store, settings: ServiceSettings) -> None:
        self.store, self.settings = store, settings
        self.metrics = Metrics(store)
        self.live = LiveUpdates(store, settings.max_streams)
        self.pages = PageLimits(settings, self._open_decisions)
        self.changing = asyncio.Semaphore(MAX_CHANGES)
        self._open: OrderedDict[str, Campaign] = OrderedDict()
        self._verifying = threading.Lock()
        self._delivery: Delivery | None = None

    def with_campaign(self, name: str, work: Callable[[Campaign], T]) -> T:
        """Return `work(campaign)`. A campaign that was deleted and created again, or restored, is reopened."""
        for _ in range(MAX_REOPENED):
            campaign = self._open.get(name) or self._open_campaign(name)
            try:
                return work(campaign)
            except NoSuchCampaign:
                self._open.pop(name, None)
        return work(self._open_campaign(name))

    async def submit(self, name: str, work: Callable[[Campaign, Promise], None], *, in_thread: bool = False) -> Any:
        """Return what `work(campaign, promise)` delivers. No thread waits for the store.

        With `in_thread`, a thread calls `work`, because that takes long.
        """
        for _ in range(MAX_REOPENED):
            campaign = self._open.get(name)
            if campaign is None:
                campaign = await run_in_threadpool(self._open_campaign, name)
            try:
                return await self._delivered(work, campaign, in_thread)
            except NoSuchCampaign:
                self._open.pop(name, None)
        return await self._delivered(work, await run_in_threadpool(self._open_campaign, name), in_thread)

    async def _delivered(self, work: Callable[[Campaign, Promise], None], campaign: Campaign, in_thread: bool) -> Any:
        delivery = self._delivery
        if delivery is None or delivery.loop is not asyncio.get_running_loop():
            self._delivery = delivery = Delivery(asyncio.get_running_loop())
        future: asyncio.Future[Any] = delivery.loop.create_future()
        promise = _LoopPromise(delivery, future)
        if in_thread:
            await run_in_threadpool(work, campaign, promise)
        else:
            work(campaign, promise)
        return await future

    def _open_campaign(self, name: str) -> Campaign:
        try:
            campaign_name(name)
        except BadInput as error:
            raise NoSuchCampaign(str(error)) from None
        campaign = Campaign.open(name, self.store)
        self._open[name] = campaign
        while len(self._open) > MAX_OPEN_CAMPAIGNS:
            self._open.popitem(last=False)
        return campaign

    @contextmanager
    def one_verification(self) -> Iterator[None]:
        """Raise an `ApiError` with status 503 if this process is verifying a campaign already: it reads a whole log."""
        if not self._verifying.acquire(blocking=False):
            detail = "this process is verifying another campaign, one at a time: try again later"
            raise ApiError(503, "too-many-verifications", detail, {"Retry-After": "5"})
        try:
            yield
        finally:
            self._verifying.release()

    async def summary(self, name: str) -> Summary:
        """Return the summary of a campaign, or raise `NoSuchCampaign`."""
        return await run_in_threadpool(self.with_campaign, name, Campaign.summary)

    async def _open_decisions(self, name: str) -> int:
        return (await self.summary(name)).in_flight

    def check_batch(self, count: int) -> None:
        """Raise `BadInput` if a batch exceeds the limit."""
        if count > self.settings.max_batch:
            most = f"{self.settings.max_batch:,}"
            raise BadInput(f"a request may have at most {most} decisions or rewards; got {count:,}. Split the batch")
