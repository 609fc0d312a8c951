"""Decisions one by one, for analysis elsewhere: what was shown, with which probability, and what it earned.

They are read in chunks, each in a separate transaction: however slowly they are used, no snapshot of the database is
held meanwhile, and the memory does not grow with the campaign.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import func, select

from kofn.campaigns.append import RECORD, REWARD
from kofn.campaigns.names import write_id
from kofn.campaigns.reports.view import View
from kofn.campaigns.roster import subset_from
from kofn.campaigns.settings import GROUPS
from kofn.campaigns.store.schema import DECISIONS, EVENTS
from kofn.core import BadInput
from kofn.core.checks import shown
from kofn.core.contexts import context_of
from kofn.core.responses import LoggedDecision, moment

CHUNK = 1000
"""Decisions that are read in one transaction. A higher value is faster, and holds more of them in memory."""

BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
"""The time 0 of a store."""

Read = Callable[[], AbstractContextManager[View]]

_D, _E = DECISIONS.c, EVENTS.c


def logged_decisions(read: Read, *, rewarded: bool = False, since: datetime | None = None) -> Iterator[LoggedDecision]:
    """Yield the stored decisions, oldest first, with their rewards: those that had been made when this was called.

    With `rewarded`, only those with a reward; with `since`, only those that were made at that time or later.
    """
    if not isinstance(since, datetime | None):
        raise BadInput(f"since must be a datetime; got {shown(since)}")
    if since is not None and since.tzinfo is None:
        since = since.replace(tzinfo=UTC)
    with read() as view:
        end = view.connection.execute(select(func.max(_D.number)).where(_D.campaign == view.id)).scalar() or 0
    return _decisions(read, end, rewarded, since or BEGIN)


def _decisions(read: Read, end: int, rewarded: bool, since: datetime) -> Iterator[LoggedDecision]:
    last, after = -1, (since - BEGIN) / timedelta(seconds=1) - 1e-6  # times are rounded to microseconds when read
    while True:
        with read() as view:
            chosen = select(DECISIONS).where(_D.campaign == view.id, _D.number > last, _D.number <= end, _D.at >= after)
            rows = view.connection.execute(chosen.order_by(_D.number).limit(CHUNK)).mappings().all()
            found = list(_logged(view, rows)) if rows else []
        if not rows:
            return
        yield from (each for each in found if each.at >= since and (each.reward is not None or not rewarded))
        last = rows[-1]["number"]


def _logged(view: View, rows: Any) -> Iterator[LoggedDecision]:
    first, last = rows[0]["number"], rows[-1]["number"]
    events: dict[int, list[Any]] = defaultdict(list)
    chosen = _E.campaign == view.id, _E.decision >= first, _E.decision <= last
    for event in view.connection.execute(select(EVENTS).where(*chosen).order_by(_E.number)):
        events[event.decision].append(event)
    secret, roster, settings = bytes.fromhex(view.row.secret), view.roster, view.settings
    calls = _calls(view, rows)
    for row in rows:
        subset, of = subset_from(row["subset"]), events[row["number"]]
        told = [event for event in of if event.kind != RECORD]
        if row["windowed"]:
            settled = row["due"] <= view.now
            counted = [event.value for event in told if event.counts]
            reward = sum(counted) if counted else settings.silence if settled else None
        else:
            settled = any(event.kind == REWARD for event in told)
            reward = sum(event.value for event in told) if told else None
        if reward is not None and settings.outside == "clip":
            reward = min(max(reward, settings.reward_range[0]), settings.reward_range[1])
        key, metadata = calls.get(row["call"], (None, None))
        yield LoggedDecision(
            id=write_id(secret, row["number"], row["salt"]),
            arms=roster.names_of(subset),
            subset=subset,
            at=moment(row["at"]),
            group=GROUPS[row["group"]],
            reward=reward,
            rewarded_at=moment(told[0].at) if told else moment(row["due"]) if settled else None,
            net_reward=None if reward is None else reward - settings.sign * row["cost"],
            propensity=row["propensity"],
            key=key,
            metadata=None if metadata is None else json.loads(metadata),
            context=None if row["context"] is None else context_of(row["context"]),
            settled=settled,
            metrics={event.name: event.value for event in of if event.kind == RECORD},
        )


def _calls(view: View, rows: Any) -> dict[int, tuple[str | None, str | None]]:
    """Return the key and the metadata of each call, which its first decision has."""
    found = {row["call"]: (row["key"], row["metadata"]) for row in rows if row["place"] == 0}
    if rows[0]["place"] > 0:  # the call began in the chunk before
        first = _D.campaign == view.id, _D.number < rows[0]["number"], _D.call == rows[0]["call"], _D.place == 0
        before = select(_D.key, _D.metadata).where(*first).order_by(_D.number.desc()).limit(1)
        for key, metadata in view.connection.execute(before):
            found[rows[0]["call"]] = key, metadata
    return found
