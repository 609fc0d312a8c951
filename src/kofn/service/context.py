"""What all requests share: the store, the campaigns that are open, the limits, the numbers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from kofn.campaigns import Campaign, Store
from kofn.campaigns.names import campaign_name
from kofn.core import BadInput, NoSuchCampaign
from kofn.service.live import Live
from kofn.service.metrics import Metrics
from kofn.service.settings import Settings

MOST_OPEN = 256
"""Campaigns that are kept open."""

T = TypeVar("T")


class Desk:
    """Where requests are served."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store, self.settings = store, settings
        self.metrics = Metrics(store)
        self.live = Live(store, settings.max_streams)
        self._open: OrderedDict[str, Campaign] = OrderedDict()

    def with_campaign(self, name: str, work: Callable[[Campaign], T]) -> T:
        """What `work` makes of the campaign. One that was deleted and made anew is opened again."""
        campaign = self._open.get(name)
        if campaign is not None:
            try:
                return work(campaign)
            except NoSuchCampaign:
                self._open.pop(name, None)
        return work(self._opened(name))

    def _opened(self, name: str) -> Campaign:
        try:
            campaign_name(name)
        except BadInput as why:
            raise NoSuchCampaign(str(why)) from None
        campaign = Campaign.open(name, self.store)
        self._open[name] = campaign
        while len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)
        return campaign

    async def find(self, name: str) -> None:
        """Refuse a campaign that does not exist."""
        await run_in_threadpool(self.with_campaign, name, Campaign.summary)

    def check_batch(self, count: int) -> None:
        """Refuse more than a request may have."""
        if count > self.settings.max_batch:
            raise BadInput(f"a request has {self.settings.max_batch:,} decisions at the most, not {count:,}: split it")
