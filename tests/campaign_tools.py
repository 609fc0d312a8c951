"""What the tests of campaigns share: a small campaign, a way to play it, and a check that all of it fits together."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from sqlalchemy import select

from kofn.campaigns import Campaign, Decision
from kofn.campaigns.head import read_base, read_head
from kofn.campaigns.replay import rebuilt
from kofn.campaigns.schema import PLANS, REWARDS, RUNS, STATES

NAMES = list("abcdefgh")


def create(store: str, name: str = "front", **settings: Any) -> Campaign:
    """A campaign of 8 arms in 3 places, of which the last are the best."""
    given: dict[str, Any] = {"seed": 7, "reward_range": (0, 12), "store": store} | settings
    return Campaign.create(name, NAMES, 3, **given)


def rewards_for(decisions: Iterable[Decision]) -> dict[str, float]:
    """The reward of each decision: eighths, so that sums are exact in any order. It follows from the id."""
    return {each.id: min(96, round(96 * (sum(each.subset) / 21 + noise(each.id)) / 1.2)) / 8 for each in decisions}


def noise(id: str) -> float:
    """Something between 0 and 0.2."""
    return int(id.rpartition("-")[0].replace("-", ""), 16) * 7919 % 101 / 505


def play(campaign: Campaign, plays: int, batch: int) -> None:
    """Decide and tell, so many at a time."""
    for _ in range(plays // batch):
        campaign.rewards(rewards_for(campaign.decide(batch)))


def checked(campaign: Campaign) -> None:
    """All that the store says of a campaign fits together, and its state is the one that its log leads to."""
    with campaign.store.read() as connection:
        head = read_head(connection, campaign._id)
        base = read_base(campaign.store, connection, head)
        runs = connection.execute(select(RUNS).where(RUNS.c.campaign == head.id)).mappings().all()
        rewards = connection.execute(select(REWARDS).where(REWARDS.c.campaign == head.id)).mappings().all()
        plan = connection.execute(select(PLANS).where(PLANS.c.campaign == head.id)).mappings().all()
        if not head.compacted:
            record, told = rebuilt(connection, head)
            assert record == json.loads(connection.execute(_record(head.id)).scalar_one())
            sums = {row["row"]: (row["count"], row["total"], row["squares"]) for row in plan if row["times"] >= 0}
            assert told == {row: each for row, each in sums.items() if each[0]}
    assert head.in_flight == sum(run["open"] for run in runs if run["due"] is not None)
    assert head.expired == sum(run["open"] for run in runs if run["due"] is None)
    assert head.kept == len(rewards)
    assert head.rewarded == head.kept + head.compacted
    answered = Counter(reward["first"] for reward in rewards)
    assert all(run["count"] - run["open"] == answered[run["first"]] for run in runs)
    planned = [row for row in plan if row["row"] < head.rows]
    assert len(planned) == head.rows == len(base.policy.plan())
    assert head.unasked == sum(max(0, row["times"] - row["count"] - row["out"]) for row in planned)
    assert head.told == sum(row["count"] for row in plan if row["times"] >= 0) < head.wanted
    out: Counter[int] = Counter()
    for run in runs:
        if run["step"] == head.step and run["row"] >= 0 and run["due"] is not None:
            out[run["row"]] += run["open"]
    assert {row["row"]: row["out"] for row in planned if row["out"]} == dict(+out)
    assert all(0 <= row["count"] <= row["times"] for row in planned)


def _record(campaign: int) -> Any:
    return select(STATES.c.record).where(STATES.c.campaign == campaign)
