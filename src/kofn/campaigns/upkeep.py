"""What a campaign does now and then: let decisions expire, and forget what it has in sums."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import Connection, bindparam, func, select

from kofn.campaigns.head import Head
from kofn.campaigns.schema import PLANS, REWARDS, RUNS, TOTALS

SLACK = 0.1
"""How far the number of kept decisions may grow beyond what is wanted before it is cut, so that this is seldom."""

_DUE = select(RUNS.c.first, RUNS.c.open, RUNS.c.step, RUNS.c.row).where(
    RUNS.c.campaign == bindparam("c"), RUNS.c.due <= bindparam("now")
)
_EXPIRED = RUNS.update().where(RUNS.c.campaign == bindparam("c"), RUNS.c.due <= bindparam("now")).values(due=None)
_ROW = PLANS.c.campaign == bindparam("c"), PLANS.c.row == bindparam("r")
_FREE = PLANS.c.times - PLANS.c.count - PLANS.c.out


def expire(connection: Connection, head: Head, now: float) -> None:
    """Want again what was handed out too long ago. Its reward still counts, if it comes."""
    if head.next_due is None or now < head.next_due:
        return
    runs = connection.execute(_DUE, {"c": head.id, "now": now}).all()
    if runs:
        connection.execute(_EXPIRED, {"c": head.id, "now": now})
        over = sum(run.open for run in runs)
        head.in_flight -= over
        head.expired += over
        back: Counter[int] = Counter()
        for run in runs:
            if run.step == head.step and run.row >= 0:
                back[run.row] += run.open
        for row, count in back.items():
            head.unasked += _take_back(connection, head, row, count)
        forget(connection, head)
    head.next_due = connection.execute(select(func.min(RUNS.c.due)).where(RUNS.c.campaign == head.id)).scalar()


def _take_back(connection: Connection, head: Head, row: int, count: int) -> int:
    """Plays of a row that are no longer out; how many more of them are wanted now."""
    place = {"c": head.id, "r": row}
    before = int(connection.execute(select(_FREE).where(*_ROW), place).scalar_one())
    connection.execute(PLANS.update().where(*_ROW).values(out=PLANS.c.out - bindparam("n")), place | {"n": count})
    return max(0, before + count) - max(0, before)


def compact(connection: Connection, head: Head) -> None:
    """Drop the oldest answered decisions, if there are too many; their sums are in the campaign."""
    keep = head.keep_decisions
    if head.kept < head.compact_at:
        return
    ours = REWARDS.c.campaign == head.id
    newest = select(REWARDS.c.first).where(ours).order_by(REWARDS.c.first.desc(), REWARDS.c.place.desc())
    cut = connection.execute(newest.offset(keep).limit(1)).scalar()
    answered = RUNS.c.campaign == head.id, RUNS.c.first <= cut, RUNS.c.open == 0
    done = select(RUNS.c.first).where(*answered)
    old = REWARDS.delete().where(ours, REWARDS.c.first <= cut, REWARDS.c.first.in_(done))
    dropped = connection.execute(old).rowcount
    connection.execute(RUNS.delete().where(*answered))
    head.kept -= dropped
    head.compacted += dropped
    head.compact_at = look_again_at(head)
    connection.execute(TOTALS.delete().where(TOTALS.c.campaign == head.id, TOTALS.c.number < head.totals - keep))


def look_again_at(head: Head) -> int:
    """How many rewards may be kept before it is time to drop some; more, if those there are wait for others."""
    return max(head.kept, head.keep_decisions) + int(SLACK * head.keep_decisions) + 100


def forget(connection: Connection, head: Head) -> None:
    """Drop the oldest expired decisions, if there are too many. A reward of these comes too late."""
    keep = head.keep_decisions
    if head.expired <= keep * (1 + SLACK) + 100:
        return
    waits = RUNS.c.campaign == head.id, RUNS.c.open > 0, RUNS.c.due.is_(None)
    left, drop = head.expired - keep, []
    for run in connection.execute(select(RUNS.c.first, RUNS.c.open).where(*waits).order_by(RUNS.c.first)):
        if run.open > left:
            break
        drop.append(run.first)
        left -= run.open
    if not drop:
        return
    old = REWARDS.c.campaign == head.id, REWARDS.c.first <= drop[-1]
    gone = select(RUNS.c.first).where(*waits, RUNS.c.first <= drop[-1])
    answered = connection.execute(REWARDS.delete().where(*old, REWARDS.c.first.in_(gone))).rowcount
    connection.execute(RUNS.delete().where(*waits, RUNS.c.first <= drop[-1]))
    dropped = head.expired - keep - left
    head.expired -= dropped
    head.forgotten += dropped
    head.kept -= answered
    head.compacted += answered
