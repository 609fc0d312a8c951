"""What a campaign lets go of: decisions that expire, and old rows whose sums are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import ColumnElement, exists, func, or_, select

from kofn.campaigns.allocation import SHIPPED
from kofn.campaigns.records.batches import Batch
from kofn.campaigns.records.rows import CampaignRow
from kofn.campaigns.records.transaction import Transaction
from kofn.campaigns.store.schema import BATCHES, REWARDS, TOTALS

SLACK = 0.1
"""Share of `keep_decisions` by which stored decisions may exceed it before they are deleted. A higher value deletes
less often, and more rows at once."""

MIN_TOTALS = 1000
"""Totals that are stored one by one whatever `keep_decisions` is, so that a repeated one is recognized by its key."""

OVERTAKEN = 30
"""Fillers with a reward after which planned plays that are still missing may be planned again. A higher value waits
longer for late rewards; a lower one plays more subsets twice."""

LATE = 5.0
"""Missing plays are planned again if they are in flight for more than this many times the mean delay of a reward."""


_OTHER = BATCHES.alias()
_WHOLE_REQUEST = or_(
    BATCHES.c.request.is_(None),
    ~exists().where(_OTHER.c.campaign == BATCHES.c.campaign, _OTHER.c.request == BATCHES.c.request, _OTHER.c.open > 0),
)
"""Batches of a call with a key are kept while a decision of that call is open: the call may be repeated."""


def expire(tx: Transaction) -> None:
    """Plan the plays of overdue decisions again. Their rewards still count if they arrive."""
    row = tx.row
    if row.next_due is None or tx.now < row.next_due:
        return
    if batches := tx.batches.due(tx):
        _give_up(tx, batches)
        forget(tx)
    row.next_due = tx.batches.next_due(tx)


def plan_missing_again(tx: Transaction) -> None:
    """Plan plays again that are missing from the plan, while rewards of many later decisions have arrived.

    Only for a policy that learns from its plan alone: otherwise one lost reward would stop it until the decision
    expires. A reward that arrives nevertheless is counted like the reward of an expired decision.
    """
    row = tx.row
    if row.overtaken < OVERTAKEN or tx.snapshot.policy.accepts_unplanned:
        return
    row.overtaken = 0
    delay = row.waited / row.rewarded if row.rewarded else 0.0
    _give_up(tx, tx.batches.of_plan(tx, tx.now - LATE * delay))


def _give_up(tx: Transaction, batches: Sequence[Batch]) -> None:
    """Count decisions as expired, and their plays as free."""
    row = tx.row
    tx.plan.load(tx, {batch.row for batch in batches if batch.step == row.step and batch.row >= 0})
    for batch in batches:
        batch.due = None
        tx.batches.change(batch)
        row.in_flight -= batch.open
        row.expired += batch.open
        if batch.step == row.step and batch.row >= 0:
            tx.plan.release(tx, batch.row, batch.open)


def compact(tx: Transaction) -> None:
    """Delete the oldest rewarded decisions if there are too many. Their sums stay in the campaign."""
    row, keep = tx.row, tx.row.keep_decisions
    if row.kept < row.compact_at:
        return
    ours = REWARDS.c.campaign == row.id
    newest = select(REWARDS.c.first).where(ours).order_by(REWARDS.c.first.desc(), REWARDS.c.place.desc())
    cut = tx.execute(newest.offset(keep).limit(1)).scalar()
    complete = BATCHES.c.campaign == row.id, BATCHES.c.first <= cut, BATCHES.c.open == 0, _WHOLE_REQUEST
    old = REWARDS.c.first <= cut, REWARDS.c.first.in_(select(BATCHES.c.first).where(*complete))
    deleted = tx.execute(REWARDS.delete().where(ours, *old)).rowcount
    _forget_unstored(tx, complete)
    _delete_batches(tx, complete)
    row.kept -= deleted
    row.compacted += deleted
    row.compact_at = compact_at(row)
    kept = max(keep, MIN_TOTALS)
    tx.execute(TOTALS.delete().where(TOTALS.c.campaign == row.id, TOTALS.c.number < row.totals - kept))


def _forget_unstored(tx: Transaction, chosen: Sequence[ColumnElement[bool]]) -> None:
    """Remember up to when rewards of decisions that were not stored when they were made may have been counted."""
    if tx.options.shipped:
        latest = tx.execute(select(func.max(BATCHES.c.at)).where(*chosen, BATCHES.c.group == SHIPPED)).scalar()
        if latest is not None:
            after = max(tx.options.unstored_after, latest)
            tx.row.options = replace(tx.options, unstored_after=after).to_text()


def _delete_batches(tx: Transaction, chosen: Sequence[ColumnElement[bool]]) -> None:
    """Delete batches. The others of the same calls lose their keys: a key has all of its decisions, or none."""
    requests = select(BATCHES.c.request).where(*chosen, BATCHES.c.request.is_not(None)).correlate(None)
    partly = BATCHES.c.campaign == tx.id, BATCHES.c.request.in_(requests)
    tx.execute(BATCHES.update().where(*partly).values(request=None))
    tx.execute(BATCHES.delete().where(*chosen))
    tx.forget_batches()


def compact_at(row: CampaignRow) -> int:
    """Return the number of stored rewards at which to compact again.

    It grows with the rewards that could not be deleted because other decisions of their batch are open.
    """
    return max(row.kept, row.keep_decisions) + int(SLACK * row.keep_decisions) + 100


def forget(tx: Transaction) -> None:
    """Delete the oldest expired decisions if there are too many. Their rewards are no longer counted."""
    row, keep = tx.row, tx.row.keep_decisions
    if row.expired <= keep * (1 + SLACK) + 100:
        return
    waiting = BATCHES.c.campaign == row.id, BATCHES.c.open > 0, BATCHES.c.due.is_(None)
    left, last = row.expired - keep, None
    for batch in tx.execute(select(BATCHES.c.first, BATCHES.c.open).where(*waiting).order_by(BATCHES.c.first)):
        if batch.open > left:
            break
        last = batch.first
        left -= batch.open
    if last is None:
        return
    forgotten = *waiting, BATCHES.c.first <= last
    old = REWARDS.c.first <= last, REWARDS.c.first.in_(select(BATCHES.c.first).where(*forgotten))
    rewards = tx.execute(REWARDS.delete().where(REWARDS.c.campaign == row.id, *old)).rowcount
    _delete_batches(tx, forgotten)
    deleted = row.expired - keep - left
    row.expired -= deleted
    row.forgotten += deleted
    row.kept -= rewards
    row.compacted += rewards
