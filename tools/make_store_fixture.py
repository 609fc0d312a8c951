"""Make tests/data/store-version-N.db and .json, a store of the present version and what its campaigns report.

    python -m tools.make_store_fixture

Run it before a table is changed: the tests of the next migration open these files. N is the length of MIGRATIONS. The
command refuses to replace files, because those of an older version cannot be made again.
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from kofn.campaigns import Campaign, Store
from kofn.campaigns.store.migrations import MIGRATIONS
from kofn.service.security.tokens import create_token

DATA = Path(__file__).parents[1] / "tests" / "data"
GOODS = ["kettle", "mug", "tray", "pan", "pot", "lid"]


class Clock:
    """A clock that moves only when it is told to, so that the files do not depend on the time of day."""

    def __init__(self) -> None:
        self.now = 1_760_000_000.0

    def __call__(self) -> float:
        return self.now


def main() -> None:
    """Write both files, and print their names."""
    for path in make(DATA):
        print(path.relative_to(DATA.parents[1]))


def make(folder: Path) -> list[Path]:
    """Write both files to the folder and return them."""
    files = [folder / f"store-version-{len(MIGRATIONS)}{suffix}" for suffix in (".db", ".json")]
    if found := [str(path) for path in files if path.exists()]:
        sys.exit(f"{', '.join(found)} exists: delete it only if no test uses it")
    store, clock = Store(f"sqlite:///{files[0]}"), Clock()
    store.clock = clock
    campaigns = [_shop(store, clock), _servers(store, clock), _news(store, clock)]
    token, _ = create_token(store, "reader", scope="read")
    known: dict[str, Any] = {campaign.name: _report(campaign) for campaign in campaigns}
    known |= {"open_id": campaigns[0].open_decisions(1)[0].id, "token": token, "clock": clock.now}
    store.close()
    connection = sqlite3.connect(files[0])
    connection.execute("PRAGMA journal_mode = DELETE")  # one file, without a write-ahead log beside it
    connection.close()
    files[1].write_text(json.dumps(known, indent=0) + "\n")
    return files


def _shop(store: Store, clock: Clock) -> Campaign:
    """Return a running campaign of thompson: rewards, expired decisions, a total, an arm added and one retired."""
    campaign = Campaign.create(
        "shop", arms=GOODS, k=2, reward_range=(0, 4), seed=3, expire_after=timedelta(minutes=1), store=store
    )
    rng = random.Random(1)
    _play(campaign, clock, 25, lambda: rng.randrange(33) / 8, rng)
    campaign.reward_total(["mug", "pan"], count=10, total=21.5, key="2026-11-14")
    campaign.add_arm("jug")
    _play(campaign, clock, 15, lambda: rng.randrange(33) / 8, rng)
    campaign.retire_arm("tray")
    _play(campaign, clock, 15, lambda: rng.randrange(33) / 8, rng)
    return campaign


def _servers(store: Store, clock: Clock) -> Campaign:
    """Return a paused campaign of a policy with a horizon, to be minimised."""
    names = [f"s{number}" for number in range(5)]
    options: dict[str, Any] = {"policy": "dart", "params": {"horizon": 1_000}, "seed": 5, "direction": "minimize"}
    campaign = Campaign.create("servers", arms=names, k=2, reward_range=(0, 250), store=store, **options)
    rng = random.Random(2)
    _play(campaign, clock, 12, lambda: float(rng.randrange(250)), rng)
    campaign.pause()
    return campaign


def _news(store: Store, clock: Clock) -> Campaign:
    """Return a stopped campaign that keeps 20 decisions, so that most rewards are sums."""
    campaign = Campaign.create(
        "news", arms=GOODS, k=3, policy="linear-thompson", seed=7, keep_decisions=20, store=store
    )
    rng = random.Random(3)
    _play(campaign, clock, 70, lambda: float(rng.random() < 0.4), rng)
    campaign.stop()
    return campaign


def _play(campaign: Campaign, clock: Clock, calls: int, reward: Callable[[], float], rng: random.Random) -> None:
    """Make decisions, and reward about four of five."""
    for _ in range(calls):
        clock.now += 7
        decided = campaign.decide(rng.randint(1, 5))
        campaign.rewards([(each.id, reward()) for each in decided if rng.random() < 0.8])


def _report(campaign: Campaign) -> dict[str, Any]:
    """Return what the campaign reports, as plain values."""
    insight, summary = campaign.insight(), campaign.summary()
    counts = ("plays", "rewards", "mean", "in_flight", "expired", "state")
    return {
        "best": campaign.best(),
        "value": insight.value,
        "probability_best": insight.probability_best,
        **{each: getattr(summary, each) for each in counts},
        "arms": [[arm.name, arm.effect, arm.plays, arm.retired] for arm in insight.arms],
        "events": [[event.number, event.kind, event.message] for event in campaign.events()],
        "points": len(campaign.history()),
        "export": campaign.export(with_secret=True),
    }


if __name__ == "__main__":
    main()
