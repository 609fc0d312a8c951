"""Decisions one by one, for analysis elsewhere: what was shown, with which probability, and what it earned."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from sqlalchemy import select

from kofn.campaigns.groups import GROUPS
from kofn.campaigns.names import write_id
from kofn.campaigns.rows import subset_from
from kofn.campaigns.schema import BATCHES, REWARDS
from kofn.campaigns.transaction import Transaction
from kofn.responses import LoggedDecision, moment

CHUNK = 500
"""Batches that are read in one transaction. A higher value holds more decisions in memory."""


def logged_decisions(read: Callable[[], AbstractContextManager[Transaction]]) -> Iterator[LoggedDecision]:
    """Yield the stored decisions, oldest first, with their rewards. Each chunk is read in its own transaction."""
    last = -1
    while True:
        with read() as tx:
            found = list(_chunk(tx, last))
        if not found:
            return
        for first, decisions in found:
            yield from decisions
            last = first


def _chunk(tx: Transaction, after: int) -> Iterator[tuple[int, list[LoggedDecision]]]:
    ours = BATCHES.c.campaign == tx.id, BATCHES.c.first > after
    batches = tx.execute(select(BATCHES).where(*ours).order_by(BATCHES.c.first).limit(CHUNK)).all()
    if not batches:
        return
    theirs = REWARDS.c.campaign == tx.id, REWARDS.c.first.between(batches[0].first, batches[-1].first)
    rewards = {(row.first, row.place): row for row in tx.execute(select(REWARDS).where(*theirs))}
    secret, roster = tx.row.key, tx.roster
    for batch in batches:
        subset = subset_from(batch.subset)
        decisions = []
        for place in range(batch.count):
            reward = rewards.get((batch.first, place))
            decisions.append(
                LoggedDecision(
                    id=write_id(secret, batch.first, place, batch.salt),
                    arms=roster.names_of(subset),
                    subset=subset,
                    at=moment(batch.at),
                    group=GROUPS[batch.group],
                    reward=None if reward is None else reward.value,
                    rewarded_at=None if reward is None else moment(reward.at),
                    propensity=batch.propensity,
                    key=batch.key,
                    metadata=None if batch.metadata is None else json.loads(batch.metadata),
                )
            )
        yield batch.first, decisions
