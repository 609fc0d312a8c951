"""A demo that fills itself: shops and servers that do not exist, with rewards that come late, as they do."""

from __future__ import annotations

import heapq
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from kofn.campaigns import Campaign, Decision, Store
from kofn.core import CampaignExists, KofnError, NoSuchCampaign, NotRunning

log = logging.getLogger("kofn.service")

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
"""How likely a visitor likes each of them; what sells is what is liked."""

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

SERVERS = {
    f"{place}-{number}": 60.0 + 9.0 * index
    for index, (place, number) in enumerate(
        (place, number) for number in (1, 2) for place in ("fra", "ams", "dub", "iad", "sin", "syd", "gru", "bom")
    )
}
"""Milliseconds that each takes, by median."""

Earned = Callable[[Sequence[str], np.random.Generator], float]


def basket(arms: Sequence[str], rng: np.random.Generator) -> float:
    """What a visitor spends who saw these goods: more likes, more bought, but nobody buys everything."""
    liked = int((rng.random(len(arms)) < [GOODS.get(arm, 0.3) for arm in arms]).sum())
    return round(float(min(40.0, 40.0 * (1 - math.exp(-0.45 * liked)) * rng.uniform(0.7, 1.0))), 2)


def click(arms: Sequence[str], rng: np.random.Generator) -> float:
    """Whether the reader of a newsletter with these stories clicks on any."""
    return float((rng.random(len(arms)) < [0.4 * STORIES.get(arm, 0.3) for arm in arms]).any())


def slowest(arms: Sequence[str], rng: np.random.Generator) -> float:
    """Milliseconds until the slowest of these servers has answered."""
    medians = np.array([SERVERS.get(arm, 100.0) for arm in arms])
    return round(float(min(400.0, (medians * rng.lognormal(0, 0.25, len(arms))).max())), 1)


@dataclass(frozen=True)
class Story:
    """One campaign of the demo: what it chooses from, what that earns, how fast and how late."""

    name: str
    arms: Sequence[str]
    k: int
    earned: Earned
    reward_range: tuple[float, float] = (0.0, 1.0)
    direction: str = "maximize"
    per_second: float = 20.0
    delay: float = 3.0  # seconds, on average
    never: float = 0.02  # share of decisions whose reward never comes

    def opened(self, store: Store) -> Campaign:
        """The campaign, made if it is not there."""
        try:
            return Campaign.create(
                self.name,
                self.arms,
                self.k,
                store=store,
                reward_range=self.reward_range,
                expire_after=120.0,
                direction="minimize" if self.direction == "minimize" else "maximize",
            )
        except CampaignExists:
            return Campaign.open(self.name, store)


STORY = (
    Story("front-page", list(GOODS), 5, basket, (0.0, 40.0), per_second=60.0, delay=3.0),
    Story("newsletter", list(STORIES), 3, click, per_second=25.0, delay=6.0),
    Story("edge-servers", list(SERVERS), 4, slowest, (0.0, 400.0), "minimize", per_second=30.0, delay=0.5),
)
"""The campaigns of the demo."""


@contextmanager
def others_go_on() -> Iterator[None]:
    """Where a campaign that somebody paused or deleted, or a busy store, does not stop the demo."""
    try:
        yield
    except (NotRunning, NoSuchCampaign):
        pass
    except KofnError as why:
        log.warning("demo: %s", why)


class Demo:
    """Plays the demo's campaigns in a thread, until it is stopped."""

    def __init__(self, store: Store, seed: int | None = None, stories: Sequence[Story] = STORY) -> None:
        self._rng = np.random.default_rng(seed)
        self._stories = [(story, story.opened(store)) for story in stories]
        self._due: list[tuple[float, int, Campaign, str, float]] = []
        self._count = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kofn-demo", daemon=True)

    def start(self) -> None:
        """Begin to play."""
        self._thread.start()

    def stop(self) -> None:
        """Play no more."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(0.25):
            now = time.monotonic()
            self.step(now, now - last)
            last = now

    def step(self, now: float, passed: float) -> None:
        """Visitors of the seconds that passed come, and rewards that are due are told."""
        for story, campaign in self._stories:
            visitors = int(self._rng.poisson(story.per_second * passed * (1 + 0.3 * math.sin(now / 20))))
            with others_go_on():
                for decision in campaign.decide(min(visitors, 1000)) if visitors else []:
                    self._visit(story, campaign, decision, now)
        told: dict[str, tuple[Campaign, list[tuple[str, float]]]] = {}
        while self._due and self._due[0][0] <= now:
            _, _, campaign, id, value = heapq.heappop(self._due)
            told.setdefault(campaign.name, (campaign, []))[1].append((id, value))
        for campaign, pairs in told.values():
            with others_go_on():
                campaign.rewards(pairs)

    def _visit(self, story: Story, campaign: Campaign, decision: Decision, now: float) -> None:
        if self._rng.random() < story.never:
            return
        self._count += 1
        due = now + float(self._rng.exponential(story.delay))
        value = story.earned(decision.arms, self._rng)
        heapq.heappush(self._due, (due, self._count, campaign, decision.id, value))
