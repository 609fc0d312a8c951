"""How rewards are recorded: a call is checked as a whole and written as a whole, then the policy learns if it is due.

Rewards arrive one per decision, in batches, or as totals: the sum of several plays of one subset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from sqlalchemy import select

from kofn.campaigns.batches import Batch
from kofn.campaigns.expiry import compact
from kofn.campaigns.learn import learn_if_due
from kofn.campaigns.names import DecisionPlace, read_id
from kofn.campaigns.rows import CampaignRow, subset_text
from kofn.campaigns.schema import TOTALS
from kofn.campaigns.transaction import Transaction
from kofn.core import BadInput, BadReward, BadTally, Conflict, Plan, Subset, Tally, UnknownDecision, whole
from kofn.core.checks import outside_range, reward_number, shown
from kofn.core.plan import ROUNDING, check_tally
from kofn.responses import Rewarded

Rewards = Mapping[str, float] | Iterable[tuple[str, float]]
RewardBatch = Mapping[DecisionPlace, tuple[str, float]]
"""The id and the reward of each decision, by its place."""

MAX_COUNT = 2**53
"""Most plays of one total: above it, floating-point numbers no longer count one by one."""

# One reward per decision.


def read_rewards(rewards: Rewards, secret: bytes, low: float, high: float) -> RewardBatch:
    """Return the rewards by place. Each number is checked; two different rewards for one decision are refused."""
    pairs = rewards.items() if isinstance(rewards, Mapping) else rewards
    batch: dict[DecisionPlace, tuple[str, float]] = {}
    try:
        for id, reward in pairs:
            value = in_range(reward, low, high)
            place = read_id(secret, id)
            if batch.setdefault(place, (id, value))[1] != value:
                raise Conflict(f"the batch has two rewards for the decision {id}: {batch[place][1]:g} and {value:g}")
    except (TypeError, ValueError) as why:
        if isinstance(why, BadInput):
            raise
        raise BadInput("rewards must be a dict {id: reward} or pairs (id, reward)") from None
    return batch


def in_range(reward: Any, low: float, high: float) -> float:
    """Return the reward as a float in its range; a rounding error beyond the range is clipped."""
    value, slack = reward_number(reward), ROUNDING * (high - low)
    if not low - slack <= value <= high + slack:
        raise outside_range(low, high, shown(reward))
    return min(max(value, low), high)


def record_rewards(tx: Transaction, rewards: RewardBatch) -> Rewarded:
    """Record every new reward of the batch, or refuse the whole batch; learn if it is due."""
    batches = tx.batches.load(tx, {place.first for place in rewards})
    new, forgotten = _new_rewards(tx, batches, rewards)
    if new:
        tx.changing()
        _record(tx, batches, new)
        _after(tx)
    return Rewarded(len(new), len(rewards) - len(new) - forgotten, forgotten)


def _after(tx: Transaction) -> None:
    learn_if_due(tx)
    compact(tx)


def _new_rewards(
    tx: Transaction, batches: Mapping[int, Batch], rewards: RewardBatch
) -> tuple[list[tuple[DecisionPlace, float]], int]:
    """Return the rewards that are not recorded yet, and the number of decisions that are no longer stored.

    A decision with another recorded reward is refused, and one that was never made. Of a batch that is no longer
    stored nobody knows whether it was rewarded, so its rewards are not called repeated.
    """
    known = tx.batches.rewards_of(tx, batches.values())
    new, forgotten = [], 0
    for place, (id, value) in rewards.items():
        batch = batches.get(place.first)
        if batch is None and place.first < tx.row.decided:
            forgotten += 1
        elif batch is None or batch.salt != place.salt or place.place >= batch.count:
            raise UnknownDecision(
                f"{id} is not a decision of this campaign, or it was made after the backup that was restored"
            )
        elif (before := known.get(place.first, {}).get(place.place)) is None:
            new.append((place, value))
        elif before != value:
            raise Conflict(f"the decision {id} already has the reward {before:g}; got {value:g}")
    return new, forgotten


def _record(tx: Transaction, batches: Mapping[int, Batch], new: list[tuple[DecisionPlace, float]]) -> None:
    """Write the rewards, and update the batches, the plan and the campaign."""
    row, plan = tx.row, tx.plan
    current = {first for first, batch in batches.items() if batch.step == row.step and batch.row >= 0}
    plan.load(tx, {batches[first].row for first in current})
    plan.load_subsets(tx, (batch.subset for first, batch in batches.items() if first not in current))
    total = 0.0
    for place, value in new:
        batch = batches[place.first]
        planned = batch.row if place.first in current else None
        if planned is not None and batch.due is not None:
            plan.landed(tx, planned)
        if batch.due is None:
            row.expired -= 1
        else:
            row.in_flight -= 1
        counted = plan.observe(tx, batch.subset, 1, value, value * value, planned)
        row.overtaken += batch.step == row.step and planned is None
        row.waited += max(0.0, tx.now - batch.at)
        tx.batches.reward(tx, batch, place.place, value, counted)
        total += value
    row.rewarded += len(new)
    row.kept += len(new)
    row.total += total
    tx.count(rewarded=len(new), total=total)


# Totals.


def record_total(
    tx: Transaction, arms: object, count: int, total: float, squares: float | None, key: str | None
) -> Rewarded:
    """Record the total of `count` plays, unless it is recorded under this key already; learn if it is due."""
    row, policy = tx.row, tx.snapshot.policy
    subset = tx.roster.subset_of(arms, row.k)
    count, total, squares = _checked_sums(row, subset, count, total, squares)
    text = subset_text(subset)
    if key is not None and (before := _total_under(tx, key)):
        if before != (text, count, total, squares):
            raise Conflict(
                f"another total, of {before[1]} plays, is already recorded under the key {key!r}: use a new key"
            )
        return Rewarded(0, count)
    if not policy.accepts_unplanned and tx.plan.with_room(tx, text, count) is None:
        raise BadTally(
            f"{policy.name} learns from its plan only, and {count} plays of {arms} are more than its plan has left"
        )
    tx.changing()
    number = tx.plan.observe(tx, text, count, total, squares)
    tx.execute(
        TOTALS.insert(),
        {"campaign": tx.id, "number": row.totals, "key": key, "subset": text, "count": count, "total": total}
        | {"squares": squares, "at": tx.now, "step": row.step, "row": number},
    )
    row.totals += 1
    row.totalled += count
    row.total += total
    tx.count(decided=count, rewarded=count, total=total)
    _after(tx)
    return Rewarded(count, 0)


def _total_under(tx: Transaction, key: str) -> tuple[Any, ...] | None:
    columns = TOTALS.c.subset, TOTALS.c["count"], TOTALS.c.total, TOTALS.c.squares
    row = tx.execute(select(*columns).where(TOTALS.c.campaign == tx.id, TOTALS.c.key == key)).one_or_none()
    return None if row is None else tuple(row)


def _checked_sums(
    row: CampaignRow, subset: Subset, count: int, total: float, squares: float | None
) -> tuple[int, float, float]:
    """Return the sums if rewards in the campaign's range can have them. Squares default to their largest value."""
    low, high = row.low, row.high
    count = whole("count", count)
    if count > MAX_COUNT:
        raise BadInput(f"a total can be of at most {MAX_COUNT:,} plays; got {count:,}")
    try:
        total = float(total + 0.0)
        squares = (low + high) * total - low * high * count if squares is None else float(squares + 0.0)
    except (TypeError, ValueError, OverflowError):
        raise BadReward(f"total and squares must be numbers; got {shown(total)} and {shown(squares)}") from None
    tally = Tally(np.array([count]), np.array([total]), np.array([squares]))
    check_tally(tally, Plan.one(subset, count), Tally.zeros(1), low, high)
    return count, total, squares
