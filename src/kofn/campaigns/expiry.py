"""What a campaign lets go of: decisions that expire, and old rows whose sums are kept."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import bindparam, func, select

from kofn.campaigns.rows import CampaignRow
from kofn.campaigns.schema import BATCHES, PLANS, REWARDS, TOTALS
from kofn.campaigns.transaction import Transaction

SLACK = 0.1
"""Share of `keep_decisions` by which stored decisions may exceed it before they are deleted. A higher value deletes
less often, and more rows at once."""

_IS_DUE = BATCHES.c.campaign == bindparam("c"), BATCHES.c.due <= bindparam("now")
_DUE = select(BATCHES.c.first, BATCHES.c.open, BATCHES.c.step, BATCHES.c.row).where(*_IS_DUE)
_EXPIRE = BATCHES.update().where(*_IS_DUE).values(due=None)
_ROW = PLANS.c.campaign == bindparam("c"), PLANS.c.row == bindparam("r")
_FREE = PLANS.c.times - PLANS.c.count - PLANS.c.in_flight


def expire(tx: Transaction) -> None:
    """Plan the plays of overdue decisions again. Their rewards still count if they arrive."""
    row = tx.row
    if row.next_due is None or tx.now < row.next_due:
        return
    batches = tx.execute(_DUE, {"c": row.id, "now": tx.now}).all()
    if batches:
        tx.execute(_EXPIRE, {"c": row.id, "now": tx.now})
        expired = sum(batch.open for batch in batches)
        row.in_flight -= expired
        row.expired += expired
        landed: Counter[int] = Counter()
        for batch in batches:
            if batch.step == row.step and batch.row >= 0:
                landed[batch.row] += batch.open
        for number, count in landed.items():
            row.free += _take_back(tx, number, count)
        forget(tx)
    row.next_due = tx.execute(select(func.min(BATCHES.c.due)).where(BATCHES.c.campaign == row.id)).scalar()


def _take_back(tx: Transaction, number: int, count: int) -> int:
    """Count plays of a row as no longer in flight; return how many of them are free again."""
    place = {"c": tx.id, "r": number}
    before = int(tx.execute(select(_FREE).where(*_ROW), place).scalar_one())
    landed = PLANS.update().where(*_ROW).values(in_flight=PLANS.c.in_flight - bindparam("n"))
    tx.execute(landed, place | {"n": count})
    return max(0, before + count) - max(0, before)


def compact(tx: Transaction) -> None:
    """Delete the oldest rewarded decisions if there are too many. Their sums stay in the campaign."""
    row, keep = tx.row, tx.row.keep_decisions
    if row.kept < row.compact_at:
        return
    ours = REWARDS.c.campaign == row.id
    newest = select(REWARDS.c.first).where(ours).order_by(REWARDS.c.first.desc(), REWARDS.c.place.desc())
    cut = tx.execute(newest.offset(keep).limit(1)).scalar()
    complete = BATCHES.c.campaign == row.id, BATCHES.c.first <= cut, BATCHES.c.open == 0
    old = REWARDS.c.first <= cut, REWARDS.c.first.in_(select(BATCHES.c.first).where(*complete))
    deleted = tx.execute(REWARDS.delete().where(ours, *old)).rowcount
    tx.execute(BATCHES.delete().where(*complete))
    row.kept -= deleted
    row.compacted += deleted
    row.compact_at = compact_at(row)
    tx.execute(TOTALS.delete().where(TOTALS.c.campaign == row.id, TOTALS.c.number < row.totals - keep))


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
    tx.execute(BATCHES.delete().where(*forgotten))
    deleted = row.expired - keep - left
    row.expired -= deleted
    row.forgotten += deleted
    row.kept -= rewards
    row.compacted += rewards
