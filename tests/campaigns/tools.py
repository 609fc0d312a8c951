"""Shared by the tests of campaigns: a small campaign, a way to play it, and a check that its state is consistent."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from sqlalchemy import select

from kofn.campaigns import Campaign, Decision, Store
from kofn.campaigns.append import RECORD
from kofn.campaigns.fold import Transaction, read_slots, read_steps
from kofn.campaigns.store.schema import CAMPAIGNS, DECISIONS, EVENTS, TOTALS

NAMES = list("abcdefgh")


def create(store: str | Store, name: str = "front", **settings: Any) -> Campaign:
    """Create a campaign with 8 arms and k=3; the last three arms are the best."""
    given: dict[str, Any] = {"seed": 7, "reward_range": (0, 12), "store": store} | settings
    return Campaign.create(name, NAMES, 3, **given)


class Clock:
    """A clock that advances on `wait` only, from a time after the present one: a store never goes back."""

    def __init__(self, of: Campaign | Store) -> None:
        self.now = 4_000_000_000.0
        (of if isinstance(of, Store) else of.store).clock = lambda: self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def rewards_for(decisions: Iterable[Decision]) -> dict[str, float]:
    """Return the reward of each decision, a function of its id. Rewards are eighths: sums are exact in any order."""
    return {each.id: min(96, round(96 * (sum(each.subset) / 21 + noise(each.id)) / 1.2)) / 8 for each in decisions}


def noise(id: str) -> float:
    """Return a number between 0 and 0.2 that depends on the id."""
    return int(id.rpartition("-")[0].replace("-", "").lstrip("s"), 16) * 7919 % 101 / 505


def play(campaign: Campaign, plays: int, batch: int) -> None:
    """Decide and reward, `batch` decisions at a time."""
    for _ in range(plays // batch):
        campaign.rewards(rewards_for(campaign.decide(batch)))


def checked(campaign: Campaign, *, exact: bool = True) -> None:
    """Fold what is new; check that the counters and the policy follow from the log, if `exact` to the last digit."""
    campaign.learn()
    verified = campaign.verify()
    assert verified.differences == []
    assert verified.ok
    assert verified.deviation <= (0.0 if exact else 1e-9)  # rewards are eighths: their sums are exact
    assert verified.compared == (["policy", "counters", "steps"] if verified.reason is None else ["policy"])
    if verified.reason is None:
        _compare_with_rows(campaign)


def _compare_with_rows(campaign: Campaign) -> None:
    """Compare what folds have counted with what each row says, decision by decision."""
    with campaign.store.read() as connection:
        row = Transaction.open(campaign.store, connection, campaign._id).row
        columns = connection.execute(select(CAMPAIGNS).where(CAMPAIGNS.c.id == row.id)).one()
        decisions, events, totals = (
            list[Any](connection.execute(select(table).where(table.c.campaign == row.id)))
            for table in (DECISIONS, EVENTS, TOTALS)
        )
        steps, slots = read_steps(connection, row.id, -1, row.step), read_slots(connection, row.id).values()
    assert max((each.number for each in decisions), default=0) <= row.cut.decisions
    assert max((each.number for each in events), default=0) <= row.cut.events
    reported = defaultdict(list)
    for each in events:
        if each.kind != RECORD and each.counts:
            reported[each.decision].append(each.value)
    low, high = row.settings.reward_range
    rewards, expired, in_flight, plays = [], 0, Counter[Any](), defaultdict[Any, list[float]](list)
    for each in decisions:
        found, over = reported[each.number], each.due <= row.cut.time
        if over if each.windowed else found:
            value = sum(found) if found else row.settings.silence
            gross = value if row.settings.outside == "widen" else min(max(value, low), high)
            plays[each.subset, each.context].append(gross)
            rewards.append(gross - row.settings.sign * each.cost)
        elif over:
            expired += 1
        else:
            in_flight[each.subset, each.context] += 1
    progress, totalled = row.progress, sum(each.count for each in totals)
    assert (progress.decided, progress.rewarded, progress.expired) == (len(decisions), len(rewards), expired)
    assert progress.in_flight == in_flight
    assert progress.total == sum(rewards) + sum(t.total - row.settings.sign * t.count * t.cost for t in totals)
    assert progress.totalled == totalled
    assert (columns.plays, columns.rewards) == (len(decisions) + totalled, len(rewards) + totalled)
    assert (columns.in_flight, columns.expired) == (len(decisions) - len(rewards) - expired, expired)
    later = [each.due for each in decisions if each.due > row.cut.time]
    assert columns.next_due == min(later, default=None)
    for each in totals:
        plays[each.subset, each.context] += [each.total / each.count] * each.count
    told: dict[Any, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for step in steps:
        for subset, segment, count, total, _ in step.tallies:
            told[subset, segment] = told[subset, segment][0] + count, told[subset, segment][1] + total
    played = Counter[int]()
    for (subset, _), found in plays.items():
        played.update(dict.fromkeys(map(int, subset.split(",")), len(found)))
    assert progress.played == played
    assert told.keys() == plays.keys()
    for play, found in plays.items():
        assert told[play][0] == len(found)
        assert abs(told[play][1] - sum(found)) < 1e-6 * max(1, sum(found))
    assert sum(each.decided for each in slots) == columns.plays
    assert sum(each.rewarded for each in slots) == columns.rewards
    assert sum(each.total for each in slots) == progress.total
