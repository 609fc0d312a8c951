"""State that all requests of a process share: the store, open campaigns, limits, metrics and live updates."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from kofn.campaigns import Campaign, Store
from kofn.campaigns.names import campaign_name
from kofn.core import BadInput, NoSuchCampaign
from kofn.service.errors import ApiError
from kofn.service.live import LiveUpdates
from kofn.service.metrics import Metrics
from kofn.service.settings import Settings

MAX_OPEN_CAMPAIGNS = 256
"""Number of campaigns kept open per process. Opening another one closes the oldest, which costs one query to reopen."""

T = TypeVar("T")


class Context:
    """State that all requests of a process share."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store, self.settings = store, settings
        self.metrics = Metrics(store)
        self.live = LiveUpdates(store, settings.max_streams)
        self._open: OrderedDict[str, Campaign] = OrderedDict()
        self._verifying = threading.Lock()

    def with_campaign(self, name: str, work: Callable[[Campaign], T]) -> T:
        """Return `work(campaign)`. A campaign that was deleted and created again is reopened."""
        campaign = self._open.get(name)
        if campaign is not None:
            try:
                return work(campaign)
            except NoSuchCampaign:
                self._open.pop(name, None)
        return work(self._open_campaign(name))

    async def submit(self, name: str, work: Callable[[Campaign], Future[T]]) -> T:
        """Return the result of the future `work(campaign)`, without occupying a thread while it waits for the store."""
        campaign = self._open.get(name)
        if campaign is not None:
            try:
                return await asyncio.wrap_future(work(campaign))
            except NoSuchCampaign:
                self._open.pop(name, None)
        return await asyncio.wrap_future(work(await run_in_threadpool(self._open_campaign, name)))

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

    async def check_exists(self, name: str) -> None:
        """Raise `NoSuchCampaign` if there is no campaign of that name."""
        await run_in_threadpool(self.with_campaign, name, Campaign.summary)

    def check_batch(self, count: int) -> None:
        """Raise `BadInput` if a batch exceeds the limit."""
        if count > self.settings.max_batch:
            limit = self.settings.max_batch
            raise BadInput(f"a request may have at most {limit:,} decisions or rewards; got {count:,}. Split the batch")
