"""The demo: simulated campaigns of shops, a newsletter and servers, with delayed and lost rewards."""

from __future__ import annotations

import heapq
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlalchemy import select

from kofn.campaigns import Campaign, Decision, Store
from kofn.campaigns.store.schema import CAMPAIGNS
from kofn.core import CampaignExists, Direction, KofnError, NoSuchCampaign, NotRunning
from kofn.core.campaign_settings import CampaignOptions

log = logging.getLogger("kofn.service")

MARK = "demo"
"""`made_by` of the campaigns that the demo creates. It plays no others, whatever their names."""

EXPIRE_AFTER = 120.0
"""Seconds until a decision of the demo without a reward expires."""

GOODS = {
    "Copper kettle": 0.14,
    "Stoneware mug": 0.74,
    "Walnut tray": 0.11,
    "Linen napkins": 0.08,
    "Cast-iron pan": 0.34,
    "Chef's knife": 0.66,
    "Olive-wood board": 0.18,
    "Espresso cups": 0.58,
    "Pepper mill": 0.15,
    "Glass carafe": 0.10,
    "Wool throw": 0.40,
    "Desk lamp": 0.22,
    "Beeswax candles": 0.62,
    "Bread basket": 0.06,
    "Herb planter": 0.17,
    "Tea towels": 0.09,
    "Salad bowl": 0.12,
    "Wine glasses": 0.28,
    "Ceramic vase": 0.20,
    "Bath sheet": 0.07,
    "Picnic blanket": 0.10,
    "Cookbook": 0.52,
    "Storage jars": 0.24,
    "Rolling pin": 0.05,
}
"""Probability that a visitor likes each product."""

STORIES = {
    "Harbour tunnel opens": 0.30,
    "Why rents stopped rising": 0.52,
    "Election guide": 0.44,
    "The bakery that never closes": 0.38,
    "Storm warning": 0.48,
    "Derby report": 0.33,
    "Ten walks for autumn": 0.27,
    "Interview: the mayor": 0.15,
    "School places": 0.21,
    "Crossword": 0.41,
    "Concert review": 0.18,
    "Recipe: plum cake": 0.36,
}
"""Appeal of each story; a reader clicks it with 0.4 times this probability."""

SERVERS = {
    f"{place}-{number}": 60.0 + 9.0 * index
    for index, (place, number) in enumerate(
        (place, number) for number in (1, 2) for place in ("fra", "ams", "dub", "iad", "sin", "syd", "gru", "bom")
    )
}
"""Median response time of each server in milliseconds."""

OFFERS = ("Socks", "Scarf", "Phone case", "Earbuds", "Desk lamp", "Chair", "Shelf", "Espresso", "Mug", "Vase", "Bowl")
LIKES = {
    "phone": {"Socks": 0.4, "Phone case": 0.65, "Earbuds": 0.6},
    "desktop": {"Desk lamp": 0.6, "Chair": 0.65, "Shelf": 0.4},
    "it": {"Espresso": 0.65},
}
"""Probability that a visitor with this device, or from this country, likes each offer, in addition to LIKED_BY_ALL."""

LIKED_BY_ALL = 0.1
DEVICES = {"phone": 0.65, "desktop": 0.35}
COUNTRIES = {"de": 0.5, "fr": 0.3, "it": 0.2}
"""Shares of the visitors."""

Context = Mapping[str, str]
RewardFunction = Callable[[Sequence[str], Context | None, np.random.Generator], float]


def basket(arms: Sequence[str], _: Context | None, rng: np.random.Generator) -> float:
    """Return what a visitor spends on these products."""
    return _spent([GOODS.get(arm, 0.3) for arm in arms], rng)


def order(arms: Sequence[str], context: Context | None, rng: np.random.Generator) -> float:
    """Return what a visitor with this device and of this country spends on these offers."""
    likes = [LIKES.get(value, {}) for value in (context or {}).values()]
    return _spent([LIKED_BY_ALL + sum(each.get(arm, 0.0) for each in likes) for arm in arms], rng)


def _spent(likes: Sequence[float], rng: np.random.Generator) -> float:
    """Return what is spent. It grows with the number of products that are liked, with diminishing returns."""
    liked = int((rng.random(len(likes)) < likes).sum())
    return round(float(min(40.0, 40.0 * (1 - math.exp(-0.45 * liked)) * rng.uniform(0.7, 1.0))), 2)


def click(arms: Sequence[str], _: Context | None, rng: np.random.Generator) -> float:
    """Return 1.0 if the reader of a newsletter with these stories clicks any, else 0.0."""
    return float((rng.random(len(arms)) < [0.4 * STORIES.get(arm, 0.3) for arm in arms]).any())


def slowest(arms: Sequence[str], _: Context | None, rng: np.random.Generator) -> float:
    """Return the response time of the slowest of these servers in milliseconds."""
    medians = np.array([SERVERS.get(arm, 100.0) for arm in arms])
    return round(float(min(400.0, (medians * rng.lognormal(0, 0.25, len(arms))).max())), 1)


@dataclass(frozen=True)
class DemoCampaign:
    """One simulated campaign: its arms, its reward function, and the timing of decisions and rewards."""

    name: str
    arms: Sequence[str]
    k: int
    reward: RewardFunction
    reward_range: tuple[float, float] = (0.0, 1.0)
    direction: Direction = "maximize"
    per_second: float = 20.0  # decisions
    delay: float = 3.0  # mean delay of a reward, in seconds
    lost: float = 0.02  # share of decisions that never get a reward
    returned: float | None = None  # share of orders that come back, in a shop that reports orders and returns only
    options: CampaignOptions = field(default_factory=CampaignOptions)
    policy: str = "thompson"
    attributes: Mapping[str, Mapping[str, float]] | None = None  # of contexts: values, and their shares of the visitors

    def create_or_open(self, store: Store) -> Campaign | None:
        """Return the campaign, created if it does not exist. None if another than the demo created it."""
        attributes = {name: list(values) for name, values in (self.attributes or {}).items()}
        try:
            made = Campaign.create(
                self.name,
                self.arms,
                self.k,
                policy=self.policy,
                params={"attributes": attributes} if attributes else None,
                reward_range=self.reward_range,
                direction=self.direction,
                store=store,
                expire_after=EXPIRE_AFTER,
                **self.options,
            )
        except CampaignExists:
            return self._open(store)
        with store.write() as connection:
            connection.execute(CAMPAIGNS.update().where(CAMPAIGNS.c.id == made._id).values(made_by=MARK))
        return made

    def context(self, rng: np.random.Generator) -> Context | None:
        """Return the context of the next visitors; None if nobody asks who they are."""
        if self.attributes is None:
            return None
        return {name: str(rng.choice(list(of), p=list(of.values()))) for name, of in self.attributes.items()}

    def _open(self, store: Store) -> Campaign | None:
        campaign = Campaign.open(self.name, store)
        with store.read() as connection:  # by id: another campaign may take the name meanwhile
            made_by = connection.execute(select(CAMPAIGNS.c.made_by).where(CAMPAIGNS.c.id == campaign._id)).scalar()
        if made_by == MARK:
            return campaign
        log.warning("demo: the campaign %r is left alone, because the demo did not create it", self.name)
        return None


DEMO_CAMPAIGNS = (
    DemoCampaign(
        "demo-front-page",
        list(GOODS),
        5,
        basket,
        (0.0, 40.0),
        per_second=60.0,
        delay=3.0,
        returned=0.1,
        options={
            "unit": "EUR",
            "control": list(GOODS)[:5],
            "stop_when": "loss<0.05",
            "window": "15s",
            "silence": 0.0,
            "metric_window": "60s",
            "guardrails": ["returns<=+0.05"],
        },
    ),
    DemoCampaign(
        "demo-newsletter",
        list(STORIES),
        3,
        click,
        per_second=25.0,
        delay=6.0,
        options={"unit": "clicks", "control": "uniform", "stop_when": "loss<0.002"},
    ),
    DemoCampaign(
        "demo-edge-servers",
        list(SERVERS),
        4,
        slowest,
        (0.0, 400.0),
        "minimize",
        per_second=30.0,
        delay=0.5,
        options={"unit": "ms", "control": list(SERVERS)[2:6], "breaker": True},
    ),
    DemoCampaign(
        "demo-three-countries",
        OFFERS,
        3,
        order,
        (0.0, 40.0),
        per_second=12.0,
        delay=2.0,
        options={"unit": "EUR", "control": "uniform", "stop_when": "loss<0.2"},
        policy="contextual-thompson",
        attributes={"device": DEVICES, "country": COUNTRIES},
    ),
)
"""A shop that reports orders and returns only, a newsletter whose control is random, servers with a breaker, and a shop
whose visitors have phones and desktops in three countries."""

RETURN_DELAY = 10.0
"""Mean seconds until an order comes back."""


@contextmanager
def ignore_errors() -> Iterator[None]:
    """Keep the demo running when a user pauses or deletes a campaign. Log other errors of the store."""
    try:
        yield
    except (NotRunning, NoSuchCampaign):
        pass
    except KofnError as error:
        log.warning("demo: %s", error)


class Demo:
    """Plays the campaigns of the demo in a thread."""

    def __init__(self, store: Store, seed: int | None = None) -> None:
        self._rng = np.random.default_rng(seed)
        found = [(each, each.create_or_open(store)) for each in DEMO_CAMPAIGNS]
        self._campaigns = [(each, campaign) for each, campaign in found if campaign is not None]
        self._due: list[tuple[float, int, Campaign, str, tuple[str | float, ...]]] = []  # the method, and what it takes
        self._count = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kofn-demo", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(0.25):
            now = time.monotonic()
            self.step(now, now - last)
            last = now

    def step(self, now: float, elapsed: float) -> None:
        """Simulate the decisions of the elapsed seconds, and report the rewards that are due."""
        for settings, campaign in self._campaigns:
            visitors = int(self._rng.poisson(settings.per_second * elapsed * (1 + 0.3 * math.sin(now / 20))))
            context = settings.context(self._rng)  # the same for all of them: one call per step is cheap
            with ignore_errors():
                for decision in campaign.decide(min(visitors, 1000), context=context) if visitors else []:
                    self._schedule_reports(settings, campaign, decision, now)
        due: dict[tuple[str, str], tuple[Campaign, list[Any]]] = {}
        while self._due and self._due[0][0] <= now:
            _, _, campaign, method, item = heapq.heappop(self._due)
            due.setdefault((campaign.name, method), (campaign, []))[1].append(item)
        for (_, method), (campaign, items) in due.items():
            with ignore_errors():
                getattr(campaign, method)(items)

    def _schedule_reports(self, settings: DemoCampaign, campaign: Campaign, decision: Decision, now: float) -> None:
        """Schedule what is reported about a decision: its reward, or an order if there is one, and maybe its return."""
        if self._rng.random() < settings.lost:
            return
        at = now + float(self._rng.exponential(settings.delay))
        value = settings.reward(decision.arms, decision.context, self._rng)
        if settings.returned is None:
            self._schedule(at, campaign, "rewards", (decision.id, value))
        elif value:
            self._schedule(at, campaign, "adds", (decision.id, value, "order"))
            if self._rng.random() < settings.returned:
                at += float(self._rng.exponential(RETURN_DELAY))
                self._schedule(at, campaign, "records", (decision.id, "returns", 1.0))

    def _schedule(self, at: float, campaign: Campaign, method: str, item: tuple[str | float, ...]) -> None:
        self._count += 1
        heapq.heappush(self._due, (at, self._count, campaign, method, item))
