"""Random lives of campaigns: whatever happens in whatever order, all that is counted follows from the log."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

import kofn
from kofn import Campaign
from kofn.campaigns import Decision, fold
from tests.campaigns.tools import Clock, checked, create, rewards_for
from tests.cases import postgres_is_slow

KINDS: dict[str, dict[str, Any]] = {
    "reward": {},
    "window": {"window": "30s", "silence": 0.5, "control": ["a", "b", "c"]},
    "exact": {"policy": "linear-thompson", "sticky": 100},
    "few": {"keep_decisions": 30, "control": "uniform", "costs": {"b": 0.5}, "policy": "thompson-sizes"},
}


class Life:
    """A campaign, a clock, and what is in flight."""

    def __init__(self, campaign: Campaign, seed: int) -> None:
        self.campaign = campaign
        self.rng = random.Random(seed)
        self.clock = Clock(campaign)
        self.window = campaign.settings().window
        self.in_flight: list[Decision] = []
        self.told: dict[str, float] = {}
        self.plays = self.totals = 0

    def decide(self) -> None:
        count, key = self.rng.choice([1, 3, 20, 60]), self.rng.choice([None, f"call {self.rng.random()}"])
        made = self.campaign.decide(count, key=key)
        assert key is None or self.campaign.decide(count, key=key) == made
        self.in_flight += made
        self.plays += count

    def reward(self) -> None:
        self.rng.shuffle(self.in_flight)
        many = self.rng.randint(0, len(self.in_flight))
        now, self.in_flight = self.in_flight[:many], self.in_flight[many:]
        done = self.campaign.rewards(rewards_for(now))
        assert done.accepted + done.late + done.forgotten == len(now)
        assert self.window is not None or not done.late
        self.told |= rewards_for(now)

    def add(self) -> None:
        for each in self.in_flight[:5]:
            value, name = self.rng.choice([0.25, -0.125]), self.rng.choice("xy")
            try:
                self.campaign.add(each, value, event=name)
            except (kofn.Conflict, kofn.BadInput):  # another value, below the range, or without a window
                continue
            assert self.campaign.add(each, value, event=name).accepted == 0
            self.campaign.record(each, "returned", 1.0)

    def retry(self) -> None:
        some = self.rng.sample(sorted(self.told), min(10, len(self.told)))
        done = self.campaign.rewards({id: self.told[id] for id in some})
        assert done.repeated + done.forgotten == len(some)

    def wait(self) -> None:
        self.clock.wait(self.rng.choice([1, 20, 100]))

    def total(self) -> None:
        arms, count = sorted(self.rng.sample(self.campaign.arms, 3)), self.rng.choice([1, 7, 300])
        try:
            self.campaign.reward_total(arms, count, count * self.rng.randint(0, 12))
            self.totals += count
        except kofn.BadTally:
            assert self.campaign.summary().policy == "linear-thompson"

    def change(self) -> None:
        arms, kind = self.campaign.arms, self.rng.random()
        try:
            if kind < 0.4 and len(arms) > 6:
                self.campaign.retire_arm(self.rng.choice(arms[3:]))
            elif kind < 0.7:
                self.campaign.add_arm(f"new {kind}")
            elif kind < 0.9:
                self.campaign.configure(control_share=round(0.1 + kind / 10, 3))
            else:
                self.campaign.ship(store=self.rng.random() < 0.5)
                self.campaign.resume()
        except kofn.BadInput:
            assert self.campaign.summary().policy == "linear-thompson" or not self.campaign.summary().rewards

    def move(self) -> None:
        exported = json.loads(json.dumps(self.campaign.export(with_secret=True)))
        store = self.campaign.store
        self.campaign.delete()
        self.campaign = Campaign.import_(exported, store=store)


@postgres_is_slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("seed", "every"), [(2, 4), *(pytest.param(seed, 1, marks=pytest.mark.slow) for seed in range(6))]
)
def test_whatever_happens_all_of_it_fits_together(
    store_url: str, kind: str, seed: int, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check reads the whole log, so `make test` has one after every fourth step, and `make test-slow` after each."""
    limits = {"MOST_ROWS": 50, "CHECKPOINT": 4, "MAX_STEPS": 8, "MAX_POINTS": 20, "LEAST_SLACK": 0, "MAX_ESTIMATES": 10}
    for name, value in limits.items():
        monkeypatch.setattr(fold, name, value)
    life = Life(create(store_url, expire_after=60, **KINDS[kind]), seed)
    usual = [life.decide, life.decide, life.reward, life.reward, life.retry, life.wait, life.add]
    for step in range(80):
        life.rng.choice([*usual, life.total, life.change] if life.rng.random() < 0.5 else usual)()
        if life.rng.random() < 0.05:
            life.move()
        if step % every == every - 1:
            checked(life.campaign)
    life.clock.wait(1000)
    checked(life.campaign)
    summary = life.campaign.summary()
    assert (summary.plays, summary.in_flight) == (life.plays + life.totals, 0)
    if kind == "window":
        assert summary.rewards == summary.plays
    elif kind != "few":
        assert summary.rewards == len(life.told) + life.totals
    assert life.campaign.insight().updates > 0
