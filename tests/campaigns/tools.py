"""Shared by the tests of campaigns: a small campaign, a way to play it, and a check that its state is consistent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from sqlalchemy import select

from kofn.campaigns import Campaign, Decision, Store
from kofn.campaigns.records.transaction import reading
from kofn.campaigns.store.schema import BATCHES, PLANS, REWARDS

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
    with reading(campaign.store, campaign._id) as tx:
        row = tx.row
        batches = tx.execute(select(BATCHES).where(BATCHES.c.campaign == row.id)).mappings().all()
        rewards = tx.execute(select(REWARDS).where(REWARDS.c.campaign == row.id)).mappings().all()
        plan = tx.execute(select(PLANS).where(PLANS.c.campaign == row.id)).mappings().all()
        planned_rows = len(tx.snapshot.policy.plan())
    assert verified.compared == (["counters"] if row.compacted else ["counters", "policy", "plan"])
    assert row.in_flight == sum(batch["open"] for batch in batches if batch["due"] is not None)
    assert row.expired == sum(batch["open"] for batch in batches if batch["due"] is None)
    assert row.kept == len(rewards)
    assert row.rewarded == row.kept + row.compacted
    rewarded = Counter(reward["first"] for reward in rewards)
    assert all(batch["count"] - batch["open"] == rewarded[batch["first"]] for batch in batches)
    planned = [each for each in plan if each["row"] < row.plan_rows]
    assert len(planned) == row.plan_rows == planned_rows
    assert row.free == sum(max(0, each["times"] - each["count"] - each["in_flight"]) for each in planned)
    assert row.observed == sum(each["count"] for each in plan if each["times"] >= 0) < row.plan_plays
    in_flight: Counter[int] = Counter()
    for batch in batches:
        if batch["step"] == row.step and batch["row"] >= 0 and batch["due"] is not None:
            in_flight[batch["row"]] += batch["open"]
    assert {each["row"]: each["in_flight"] for each in planned if each["in_flight"]} == dict(+in_flight)
    assert all(0 <= each["count"] <= each["times"] for each in planned)
