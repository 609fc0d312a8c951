"""How decisions are handed out: the rows of the plan round-robin, and fillers while the whole plan is in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from kofn.campaigns.batches import Batch
from kofn.campaigns.expiry import expire, plan_missing_again
from kofn.campaigns.names import write_id
from kofn.campaigns.rows import new_stamp, subset_from, subset_text
from kofn.campaigns.transaction import Transaction
from kofn.core import Conflict, NotRunning
from kofn.responses import Decision, moment

FILLER = -1
"""The row number of a batch that is not of the plan."""

_HINT = {"paused": "call resume() to decide again", "finished": "best() returns the subset that it found"}


@dataclass
class Share:
    """Plays of one subset that are handed out together."""

    row: int
    subset: str
    count: int


def request_of(secret: bytes, key: str) -> int:
    """Return the hash under which the decisions of a call with this key are found."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8, key=secret).digest(), signed=True)


def decide(tx: Transaction, count: int, key: str | None = None) -> list[Decision]:
    """Hand out `count` decisions and store them as batches. A call with a known key gets its decisions again."""
    row = tx.row
    request = None if key is None else request_of(row.key, key)
    if request is not None and (made := tx.batches.of_request(tx, request)):
        if (before := sum(batch.count for batch in made)) != count:
            raise Conflict(
                f"the key {key!r} is that of {before} decisions, and this call asks for {count}: use a new key"
            )
        return list(_decisions(tx, made))
    if row.state != "running":
        raise NotRunning(f"the campaign {row.name!r} is {row.state}: {_HINT[row.state]}")
    tx.changing()
    expire(tx)
    shares = _from_plan(tx, min(count, row.free))
    missing = count - sum(share.count for share in shares)
    if missing:
        plan_missing_again(tx)
        again = _from_plan(tx, min(missing, row.free))
        shares += again
        missing -= sum(share.count for share in again)
    if missing:
        shares += _fillers(tx, missing)
    salt, due = new_stamp(32), tx.now + row.expire_after
    made = []
    for share in shares:
        of_row = row.decided, share.count, share.count, salt, row.step, share.row, share.subset
        made.append(Batch(*of_row, tx.now, due, request))
        tx.batches.add(made[-1])
        row.decided += share.count
    row.in_flight += count
    row.next_due = due if row.next_due is None else min(row.next_due, due)
    tx.count(decided=count)
    return list(_decisions(tx, made))


def _from_plan(tx: Transaction, count: int) -> list[Share]:
    """Hand out free plays of the plan, round-robin from the row after the last one."""
    row = tx.row
    if not count:
        return []
    found = tx.plan.free_rows(tx, row.cursor + 1, row.plan_rows - 1, count)
    if len(found) < count and row.cursor >= 0:
        found += tx.plan.free_rows(tx, 0, row.cursor, count - len(found))
    shares = share_out([each.free for each in found], count)
    largest = max(shares)
    handed_out = []
    for each, share in zip(found, shares, strict=True):
        if share:
            tx.plan.fly(tx, each, share)
            handed_out.append(Share(each.row, each.subset, share))
            if share == largest:
                row.cursor = each.row
    return handed_out


def share_out(free: Sequence[int], count: int) -> list[int]:
    """Share `count` plays among rows as evenly as their free plays allow; a remainder goes to the first rows.

    >>> share_out([5, 1, 9, 0], 8)
    [4, 1, 3, 0]
    """
    shares = [0] * len(free)
    left = min(count, sum(free))
    open_rows = [i for i, most in enumerate(free) if most]
    while left:
        level = max(1, left // len(open_rows))
        for i in open_rows:
            more = min(level, free[i] - shares[i], left)
            shares[i] += more
            left -= more
        open_rows = [i for i in open_rows if shares[i] < free[i]]
    return shares


def _fillers(tx: Transaction, count: int) -> list[Share]:
    """Return plays for the time while the whole plan is in flight: draws of the policy, or its best subset."""
    snapshot = tx.snapshot
    fillers = Counter(snapshot.policy.filler(tx.row.fillers + i) for i in range(count))
    tx.row.fillers += count
    return [Share(FILLER, subset_text(snapshot.roster.to_numbers(subset)), n) for subset, n in fillers.items()]


def _decisions(tx: Transaction, batches: Sequence[Batch]) -> Iterator[Decision]:
    """Yield one decision of each batch in turn, so that playing them in order interleaves the batches."""
    secret, roster = tx.row.key, tx.roster
    subsets = [subset_from(batch.subset) for batch in batches]
    arms = [roster.names_of(subset) for subset in subsets]
    at = moment(batches[0].at)
    left = list(range(len(batches)))
    place = 0
    while left:
        for i in left:
            id = write_id(secret, batches[i].first, place, batches[i].salt)
            yield Decision(id, list(arms[i]), subsets[i], at)
        place += 1
        left = [i for i in left if batches[i].count > place]
