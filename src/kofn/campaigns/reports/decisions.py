"""Decisions one by one, for analysis elsewhere: what was shown, with which probability, and what it earned.

They are read in chunks, each in a separate transaction: however slowly they are used, no snapshot of the database is
held meanwhile, and the memory does not grow with the campaign.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import select, tuple_

from kofn.campaigns.allocation import GROUPS
from kofn.campaigns.records.costs import Costs
from kofn.campaigns.records.names import write_id
from kofn.campaigns.records.rows import subset_from
from kofn.campaigns.records.transaction import Transaction
from kofn.campaigns.store.schema import BATCHES, REWARDS
from kofn.core import BadInput
from kofn.core.checks import shown
from kofn.core.contexts import context_of
from kofn.core.responses import LoggedDecision, moment

CHUNK = 1000
"""Decisions that are read in one transaction. A higher value is faster, and holds more of them in memory."""

BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
"""The time 0 of a store."""

Read = Callable[[], AbstractContextManager[Transaction]]


class _Part(NamedTuple):
    """The decisions of a batch from place `start` to `stop`."""

    batch: Any
    start: int
    stop: int


def logged_decisions(read: Read, *, rewarded: bool = False, since: datetime | None = None) -> Iterator[LoggedDecision]:
    """Yield the stored decisions, oldest first, with their rewards: those that had been made when this was called.

    With `rewarded`, only those with a reward; with `since`, only those that were made at that time or later.
    """
    if not isinstance(since, datetime | None):
        raise BadInput(f"since must be a datetime; got {shown(since)}")
    if since is not None and since.tzinfo is None:
        since = since.replace(tzinfo=UTC)
    with read() as tx:
        end = tx.row.decided
    return _decisions(read, end, rewarded, since or BEGIN)


def _decisions(read: Read, end: int, rewarded: bool, since: datetime) -> Iterator[LoggedDecision]:
    first = place = 0
    after = (since - BEGIN) / timedelta(seconds=1) - 1e-6  # times are rounded to microseconds when they are read
    while True:
        with read() as tx:
            parts = _parts(tx, first, place, end, rewarded, after)
            found = list(_logged(tx, parts)) if parts else []
        if not parts:
            return
        yield from (each for each in found if each.at >= since and (each.reward is not None or not rewarded))
        batch, _, place = parts[-1]
        first, place = (batch.first, place) if place < batch.count else (batch.first + 1, 0)


def _parts(tx: Transaction, first: int, place: int, end: int, rewarded: bool, after: float) -> list[_Part]:
    """Return the next decisions, at most `CHUNK` of them. A large batch comes in several parts."""
    chosen = select(BATCHES).where(BATCHES.c.campaign == tx.id, BATCHES.c.first >= first, BATCHES.c.first < end)
    chosen = chosen.where(BATCHES.c.at >= after)
    if rewarded:
        chosen = chosen.where(BATCHES.c.open < BATCHES.c.count)
    parts, left = [], CHUNK
    for batch in tx.execute(chosen.order_by(BATCHES.c.first).limit(CHUNK)).all():
        start = place if batch.first == first else 0
        parts.append(_Part(batch, start, min(batch.count, start + left)))
        left -= parts[-1].stop - start
        if left <= 0:
            break
    return parts


def _logged(tx: Transaction, parts: list[_Part]) -> Iterator[LoggedDecision]:
    where = tuple_(REWARDS.c.first, REWARDS.c.place)
    low, high = (parts[0].batch.first, parts[0].start), (parts[-1].batch.first, parts[-1].stop)
    chosen = select(REWARDS).where(REWARDS.c.campaign == tx.id, where >= tuple_(*low), where < tuple_(*high))
    rewards = {(row.first, row.place): row for row in tx.execute(chosen)}
    secret, roster, costs = tx.row.key, tx.roster, Costs.read(tx)
    for batch, start, stop in parts:
        subset = subset_from(batch.subset)
        at, metadata = moment(batch.at), batch.metadata
        for place in range(start, stop):
            reward = rewards.get((batch.first, place))
            yield LoggedDecision(
                id=write_id(secret, batch.first, place, batch.salt),
                arms=roster.names_of(subset),
                subset=subset,
                at=at,
                group=GROUPS[batch.group],
                reward=None if reward is None else reward.value,
                rewarded_at=None if reward is None else moment(reward.at),
                net_reward=None if reward is None else costs.net(reward.value, batch.subset, batch.step),
                propensity=batch.propensity,
                key=batch.key,
                metadata=None if metadata is None else json.loads(metadata),
                context=None if batch.context is None else context_of(batch.context),
            )
