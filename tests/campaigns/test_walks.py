"""Random lives of campaigns: whatever happens in whatever order, the state is consistent after each step."""

from __future__ import annotations

import json
import random

import pytest

import kofn
from kofn import Campaign
from kofn.campaigns import Decision
from tests.campaigns.tools import checked, create, rewards_for


class Life:
    """A campaign, a clock, and what is in flight."""

    def __init__(self, campaign: Campaign, seed: int) -> None:
        self.campaign = campaign
        self.rng = random.Random(seed)
        self.in_flight: list[Decision] = []
        self.rewarded: dict[str, float] = {}
        self.totals = 0
        self.now = 1e6
        campaign.store.clock = lambda: self.now

    def decide(self) -> None:
        self.in_flight += self.campaign.decide(self.rng.choice([1, 3, 20, 150]))

    def reward(self) -> None:
        self.rng.shuffle(self.in_flight)
        many = self.rng.randint(0, len(self.in_flight))
        now, self.in_flight = self.in_flight[:many], self.in_flight[many:]
        self.rewarded |= rewards_for(now)
        self.campaign.rewards(rewards_for(now))

    def retry(self) -> None:
        some = self.rng.sample(sorted(self.rewarded), min(10, len(self.rewarded)))
        result = self.campaign.rewards({id: self.rewarded[id] for id in some})
        assert (result.accepted, result.repeated) == (0, len(some))

    def wait(self) -> None:
        self.now += self.rng.choice([1, 30, 100])

    def total(self) -> None:
        arms, count = sorted(self.rng.sample(self.campaign.arms, 3)), self.rng.choice([1, 7, 300])
        try:
            self.campaign.reward_total(arms, count, count * self.rng.randint(0, 12))
            self.totals += count
        except kofn.BadTally:
            assert self.campaign.summary().policy != "thompson"

    def change(self) -> None:
        arms = self.campaign.arms
        try:
            if len(arms) > 6:
                self.campaign.retire_arm(self.rng.choice(arms))
            else:
                self.campaign.add_arm(f"new {self.rng.random()}")
        except kofn.BadInput:
            assert self.campaign.summary().policy != "thompson"

    def move(self) -> None:
        exported = json.loads(json.dumps(self.campaign.export(with_secret=True)))
        store = self.campaign.store
        self.campaign.delete()
        self.campaign = Campaign.import_(exported, store=store)


@pytest.mark.parametrize(
    ("seed", "every"),
    [(2, 4), (3, 4), *(pytest.param(seed, 1, marks=pytest.mark.slow) for seed in range(6))],
)
@pytest.mark.parametrize("policy", ["thompson", "linear-thompson"])
def test_whatever_happens_all_of_it_fits_together(sqlite_store: str, policy: str, seed: int, every: int) -> None:
    """A check reads the whole log, so `make test` has one after every fourth step, and `make test-slow` after each."""
    life = Life(create(sqlite_store, policy=policy, expire_after=60), seed)
    usual = [life.decide, life.decide, life.reward, life.reward, life.retry, life.wait]
    for step in range(80):
        life.rng.choice([*usual, life.total, life.change] if life.rng.random() < 0.5 else usual)()
        if life.rng.random() < 0.05:
            life.move()
        if step % every == every - 1:
            checked(life.campaign)
    summary = life.campaign.summary()
    assert summary.rewards == len(life.rewarded) + life.totals
    assert summary.in_flight + summary.expired == len(life.in_flight)
    assert life.campaign.insight().updates > 0
