"""How decisions are handed out: the rows of the plan in turn, and fillers while the whole plan is in flight."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from kofn.campaigns.allocation import (
    CONTROL,
    FILLER,
    GROUPS,
    Share,
    control_plays,
    control_shares,
    count_decided,
    planned_propensity,
    shipment_of,
    shipped_shares,
)
from kofn.campaigns.expiry import expire, plan_missing_again
from kofn.campaigns.records.batches import Batch
from kofn.campaigns.records.names import UnstoredPlace, write_id, write_unstored_id
from kofn.campaigns.records.plan_rows import PlanRow, Play
from kofn.campaigns.records.rows import SERVING, subset_from, subset_text
from kofn.campaigns.records.transaction import Transaction
from kofn.campaigns.store.stamps import new_stamp
from kofn.core import BadInput, Conflict, NotRunning, Policy, Subset
from kofn.core.checks import shown
from kofn.core.contexts import bounded, context_of
from kofn.core.responses import Decision, moment

MAX_METADATA = 2000
"""Longest metadata of a decision, in characters of JSON. The export has it with each decision."""

SHIPPED_FOR = 1.0
"""Seconds for which a process goes on without asking the store after a subset was shipped with `store=False`."""

_HINT = {
    "paused": "resume it to decide again",
    "stopped": "it makes no more decisions, and still reports the best subset that it found",
    "archived": "it makes no more decisions, and still reports the best subset that it found",
}


def request_of(secret: bytes, key: str) -> int:
    """Return the hash under which the decisions of a call with this key are found."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8, key=secret).digest(), signed=True)


def metadata_text(metadata: Mapping[str, Any] | None) -> str | None:
    """Return the metadata of a decision as the store writes it, or raise BadInput."""
    if metadata is None:
        return None
    try:
        if not isinstance(metadata, Mapping):
            raise TypeError
        text = json.dumps(dict(metadata), separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise BadInput(f"metadata must be a dict that JSON can represent; got {shown(metadata)}") from None
    if len(text) > MAX_METADATA:
        raise BadInput(f"metadata must be at most {MAX_METADATA:,} characters of JSON; got {len(text):,}")
    return text


def decide(
    tx: Transaction, count: int, key: str | None = None, metadata: str | None = None, segment: str | None = None
) -> list[Decision]:
    """Hand out `count` decisions, for a segment if there are segments, and store them as batches.

    A call with a known key gets its decisions again. If they have all their rewards and keys are sticky, it gets new
    decisions with the same arms. A key does not keep arms that were retired, a subset that the rules now forbid, or
    others than those that are shipped. It does not keep arms in another segment either.
    """
    row = tx.row
    if row.state not in SERVING:
        raise NotRunning(f"the campaign {row.name!r} is {row.state}: {_HINT[row.state]}")
    request = None if key is None else request_of(row.key, key)
    made = [] if request is None else tx.batches.of_request(tx, request)
    if made and not _is_over(tx, made):
        if (before := sum(batch.count for batch in made)) != count:
            raise Conflict(
                f"the key {key!r} was used for {before} decisions, and this call asks for {count}: use a new key"
            )
        return _decisions(tx, made)
    tx.changing()
    expire(tx)
    shares = shipped_shares(tx, count, segment) if row.state == "shipped" else _shares(tx, count, key, made, segment)
    if made:
        tx.batches.release_request(made)
    count_decided(tx, shares)
    salt, due = new_stamp(32), tx.now + row.expire_after
    new = []
    for share in shares:
        of_row = row.decided, share.count, share.count, salt, row.step, share.row, share.subset
        new.append(Batch(*of_row, tx.now, due, request, share.group, share.propensity, key, metadata, segment))
        tx.batches.add(new[-1])
        row.decided += share.count
    row.in_flight += count
    row.next_due = due if row.next_due is None else min(row.next_due, due)
    tx.count(decided=count)
    return _decisions(tx, new)


Served = tuple[Subset, list[str], int]
"""What is shipped: the subset, the names of its arms, and the hash in the ids of its decisions."""


@dataclass(frozen=True)
class ShippedSubset:
    """A shipped subset whose decisions are not stored when they are made, and when that was last seen.

    `policy` says to which segment a context belongs, and is None if it takes no context.
    """

    secret: bytes
    everyone: Served
    of_segments: Mapping[str, Served]
    policy: Policy | None
    seen: float

    def is_known(self, now: float, context: Mapping[str, Any] | None) -> bool:
        """Return whether this was seen a short time ago, and whether the context can be judged here."""
        return self.seen <= now < self.seen + SHIPPED_FOR and (context is None or self.policy is not None)

    def decisions(self, count: int, now: float, context: Mapping[str, Any] | None) -> list[Decision] | None:
        """Return decisions without a store; None for a segment that has no subset yet."""
        segment, served = None if self.policy is None else self.policy.segment(context), self.everyone
        if segment is not None:
            segment = bounded(segment, self.of_segments)
            if segment not in self.of_segments:
                return None
            served = self.of_segments[segment]
        subset, arms, shipment = served
        at, milliseconds = moment(now), int(now * 1000)
        places = (UnstoredPlace(shipment, milliseconds, new_stamp(64)) for _ in range(count))
        ids = (write_unstored_id(self.secret, place) for place in places)
        return [Decision(id, list(arms), subset, at, "shipped", _context(segment)) for id in ids]


def shipped_subset(tx: Transaction) -> ShippedSubset:
    """Return the shipped subset for the decisions of the next second."""
    options = tx.options

    def served(subset: Subset, segment: str | None = None) -> Served:
        return subset, tx.roster.names_of(subset), shipment_of(subset, segment)

    of_segments = {segment: served(subset, segment) for segment, subset in options.shipped_to}
    policy = tx.snapshot.policy if tx.row.takes_context else None
    return ShippedSubset(tx.row.key, served(options.shipped[-1]), of_segments, policy, tx.now)


def _context(segment: str | None) -> dict[str, str] | None:
    return None if segment is None else context_of(segment)


def _is_over(tx: Transaction, made: Sequence[Batch]) -> bool:
    """Return whether a call with the key of these decisions gets new ones."""
    if tx.options.sticky is not None and not any(batch.open for batch in made):
        return True
    if tx.row.state == "shipped":
        return any(batch.subset != subset_text(tx.options.shipped_for(batch.context)) for batch in made)
    return not all(_may_be_shown(tx, subset) for subset in {batch.subset for batch in made})


def _may_be_shown(tx: Transaction, text: str) -> bool:
    """Return whether a subset has active arms only, and obeys the rules."""
    subset, rules = subset_from(text), tx.options.constraints
    if tx.roster.to_indices(subset) is None:
        return False
    return rules is None or not rules.broken(tx.roster.names_of(subset))


def _shares(tx: Transaction, count: int, key: str | None, made: Sequence[Batch], segment: str | None) -> list[Share]:
    """Return what a running campaign hands out."""
    if made and (again := _sticky_shares(tx, count, made, segment)):
        return again
    to_control = control_plays(tx, count, key)
    shares = control_shares(tx, to_control, segment)
    count -= to_control
    shares += _from_plan(tx, min(count, tx.row.free), segment)
    missing = count + to_control - sum(share.count for share in shares)
    if missing:
        plan_missing_again(tx)
        again = _from_plan(tx, min(missing, tx.row.free), segment)
        shares += again
        missing -= sum(share.count for share in again)
    if missing:
        shares += _fillers(tx, missing, segment)
    return shares


def _sticky_shares(tx: Transaction, count: int, made: Sequence[Batch], segment: str | None) -> list[Share]:
    """Return plays of the arms that this key had before.

    None if that was too long ago or in another segment, an arm is retired, the rules forbid them, or the control has
    changed since.
    """
    sticky, last = tx.options.sticky, made[-1]
    old = sticky is None or tx.now - last.at > sticky or last.first < tx.options.control_from
    if old or last.context != segment or not _may_be_shown(tx, last.subset):
        return []
    return [Share(FILLER, last.subset, count, last.group, last.propensity)]


def _from_plan(tx: Transaction, count: int, segment: str | None) -> list[Share]:
    """Hand out free plays of the plan: its rows round-robin, or this segment's rows in proportion to their plays."""
    row = tx.row
    if not count:
        return []
    if segment is not None:
        found = tx.plan.free_of_segment(tx, segment, count)
        shares = plays_due(found, count)
    else:
        found = tx.plan.free_rows(tx, row.cursor + 1, row.plan_rows - 1, count)
        if len(found) < count and row.cursor >= 0:
            found += tx.plan.free_rows(tx, 0, row.cursor, count - len(found))
        shares = share_out([each.free for each in found], count)
    largest = max(shares, default=0)
    handed_out = []
    for each, share in zip(found, shares, strict=True):
        if share:
            tx.plan.hand_out(tx, each, share)
            propensity = planned_propensity(tx, each.play, each.times)
            handed_out.append(Share(each.row, each.subset, share, propensity=propensity))
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


def plays_due(rows: Sequence[PlanRow], count: int) -> list[int]:
    """Return how many of the next `count` plays of a segment are of each of its rows."""
    shares = [0] * len(rows)
    turns = [(each.due(), each.row, place) for place, each in enumerate(rows)]
    heapify(turns)
    for _ in range(min(count, sum(each.free for each in rows))):
        _, number, place = heappop(turns)
        shares[place] += 1
        if shares[place] < rows[place].free:
            heappush(turns, (rows[place].due(shares[place]), number, place))
    return shares


def _fillers(tx: Transaction, count: int, segment: str | None) -> list[Share]:
    """Return plays for the time while the whole plan is in flight: draws of the policy, or its best subset.

    A segment that the plan has no plays for gets them too.
    """
    snapshot = tx.snapshot
    fillers = Counter(snapshot.policy.filler(tx.row.fillers + i, segment) for i in range(count))
    tx.row.fillers += count
    numbered = ((subset_text(snapshot.roster.to_numbers(subset)), n) for subset, n in fillers.items())
    return [Share(FILLER, subset, n, propensity=_filler_propensity(tx, (subset, segment))) for subset, n in numbered]


def _filler_propensity(tx: Transaction, play: Play) -> float | None:
    """Return the propensity of a filler: as for a planned play if the plan has its subset, otherwise None (unknown)."""
    times = tx.plan.times_of(tx, play)
    return planned_propensity(tx, play, times) if times else None


def _decisions(tx: Transaction, batches: Sequence[Batch]) -> list[Decision]:
    """Return the decisions: one of each batch in turn, so that playing them in order interleaves the batches.

    If some are of the control, the order is random: whoever plays a part of them must not choose between the groups.
    """
    decisions = list(_in_turn(tx, batches))
    if len(batches) == 1 or not any(batch.group == CONTROL for batch in batches):
        return decisions
    order = np.random.default_rng([tx.options.seed, 2, batches[0].first]).permutation(len(decisions))
    return [decisions[index] for index in order]


def _in_turn(tx: Transaction, batches: Sequence[Batch]) -> Iterator[Decision]:
    secret, roster = tx.row.key, tx.roster
    subsets = [subset_from(batch.subset) for batch in batches]
    arms = [roster.names_of(subset) for subset in subsets]
    groups = [GROUPS[batch.group] for batch in batches]
    contexts = [_context(batch.context) for batch in batches]
    at = moment(batches[0].at)
    left = list(range(len(batches)))
    place = 0
    while left:
        for i in left:
            id = write_id(secret, batches[i].first, place, batches[i].salt)
            yield Decision(id, list(arms[i]), subsets[i], at, groups[i], contexts[i])
        place += 1
        left = [i for i in left if batches[i].count > place]
