"""Shared by the tests of campaigns: a small campaign, a way to play it, and a check that its state is consistent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kofn.campaigns import Campaign, Decision, Store

NAMES = list("abcdefgh")


def create(store: str | Store, name: str = "front", **settings: Any) -> Campaign:
    """Create a campaign with 8 arms and k=3; the last three arms are the best."""
    given: dict[str, Any] = {"seed": 7, "reward_range": (0, 12), "store": store} | settings
    return Campaign.create(name, NAMES, 3, **given)


class Clock:
    """A clock that advances on `wait` only."""

    def __init__(self, campaign: Campaign) -> None:
        self.now = 1_000_000.0
        campaign.store.clock = lambda: self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def rewards_for(decisions: Iterable[Decision]) -> dict[str, float]:
    """Return the reward of each decision, a function of its id. Rewards are eighths: sums are exact in any order."""
    return {each.id: min(96, round(96 * (sum(each.subset) / 21 + noise(each.id)) / 1.2)) / 8 for each in decisions}


def noise(id: str) -> float:
    """Return a number between 0 and 0.2 that depends on the id."""
    return int(id.rpartition("-")[0].replace("-", ""), 16) * 7919 % 101 / 505


def play(campaign: Campaign, plays: int, batch: int) -> None:
    """Decide and reward, `batch` decisions at a time."""
    for _ in range(plays // batch):
        campaign.rewards(rewards_for(campaign.decide(batch)))


def checked(campaign: Campaign) -> None:
    """Check that the counters match the rows, and that the state follows from the log, to the last digit."""
    verified = campaign.verify()
    assert verified.differences == []
    assert verified.ok
    assert verified.deviation == 0.0  # rewards are eighths: their sums are exact
