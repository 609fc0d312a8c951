"""How rewards are recorded: a call is checked as a whole and written as a whole, then the policy learns if it is due.

Rewards arrive one per decision, in batches, or as totals: the sum of several plays of one subset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import bindparam, select

from kofn.campaigns.expiry import compact
from kofn.campaigns.learn import learn_if_due
from kofn.campaigns.names import DecisionPlace, read_id
from kofn.campaigns.plan_rows import PlanRows, chunks
from kofn.campaigns.rows import CampaignRow, subset_text
from kofn.campaigns.schema import BATCHES, REWARDS, TOTALS
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

_BATCHES = select(
    *(BATCHES.c[name] for name in ("first", "count", "open", "salt", "step", "row", "subset", "due"))
).where(BATCHES.c.campaign == bindparam("c"), BATCHES.c.first.in_(bindparam("firsts", expanding=True)))
_KNOWN = select(REWARDS.c.first, REWARDS.c.place, REWARDS.c.value).where(
    REWARDS.c.campaign == bindparam("c"), REWARDS.c.first.in_(bindparam("firsts", expanding=True))
)
_UPDATE_BATCH = (
    BATCHES.update()
    .where(BATCHES.c.campaign == bindparam("c"), BATCHES.c.first == bindparam("f"))
    .values(open=bindparam("o"), due=bindparam("d"))
)
_INSERT = REWARDS.insert()


@dataclass
class _Batch:
    """A batch of decisions, with the changes of this call."""

    first: int
    count: int
    open: int
    salt: int
    step: int
    row: int
    subset: str
    due: float | None


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


def record_rewards(tx: Transaction, batch: RewardBatch) -> Rewarded:
    """Record every new reward of the batch, or refuse the whole batch; learn if it is due."""
    batches = _batches_of(tx, batch)
    new = _new_rewards(tx, batches, batch)
    if new:
        _record(tx, batches, new)
    _after(tx)
    return Rewarded(len(new), len(batch) - len(new))


def _after(tx: Transaction) -> None:
    learn_if_due(tx)
    compact(tx)


def _batches_of(tx: Transaction, rewards: RewardBatch) -> dict[int, _Batch]:
    """Return the batches of these decisions. A batch that is no longer stored was rewarded completely."""
    found: dict[int, _Batch] = {}
    for some in chunks(sorted({place.first for place in rewards})):
        rows = tx.execute(_BATCHES, {"c": tx.id, "firsts": some})
        found.update((row[0], _Batch(*row)) for row in rows)
    for place, (id, _) in rewards.items():
        batch = found.get(place.first)
        if batch is None:
            known = place.first < tx.row.decided
        else:
            known = batch.salt == place.salt and place.place < batch.count
        if not known:
            raise UnknownDecision(
                f"{id} is not a decision of this campaign, or it was made after the backup that was restored"
            )
    return found


def _new_rewards(
    tx: Transaction, batches: Mapping[int, _Batch], rewards: RewardBatch
) -> list[tuple[DecisionPlace, float]]:
    """Return the rewards that are not recorded yet; a decision with another recorded reward is refused."""
    known: dict[tuple[int, int], float] = {}
    for some in chunks(sorted(first for first, batch in batches.items() if batch.open < batch.count)):
        rows = tx.execute(_KNOWN, {"c": tx.id, "firsts": some})
        known.update(((row.first, row.place), row.value) for row in rows)
    new = []
    for place, (id, value) in rewards.items():
        before = known.get(place[:2])
        if before is not None and before != value:
            raise Conflict(f"the decision {id} already has the reward {before:g}; got {value:g}")
        if before is None and place.first in batches:
            new.append((place, value))
    return new


def _record(tx: Transaction, batches: Mapping[int, _Batch], new: list[tuple[DecisionPlace, float]]) -> None:
    """Write the rewards, and update the batches, the plan and the campaign."""
    plan = PlanRows(tx)
    current = {first for first, batch in batches.items() if batch.step == tx.row.step and batch.row >= 0}
    plan.load(batches[first].row for first in current)
    plan.load_subsets(batch.subset for first, batch in batches.items() if first not in current)
    rows, touched = [], set()
    for place, value in new:
        batch = batches[place.first]
        planned = batch.row if place.first in current else None
        if planned is not None and batch.due is not None:
            plan.landed(planned)
        row = plan.observe(batch.subset, 1, value, value * value, planned)
        rows.append(
            {"campaign": tx.id, "first": place.first, "place": place.place, "value": value}
            | {"at": tx.now, "step": tx.row.step, "row": row}
        )
        touched.add(place.first)
        batch.open -= 1
        if batch.due is None:
            tx.row.expired -= 1
        else:
            tx.row.in_flight -= 1
    plan.write()
    tx.execute(_INSERT, rows)
    changed = [batches[first] for first in sorted(touched)]
    tx.execute(
        _UPDATE_BATCH,
        [{"c": tx.id, "f": each.first, "o": each.open, "d": each.due if each.open else None} for each in changed],
    )
    total = sum(value for _, value in new)
    tx.row.rewarded += len(rows)
    tx.row.kept += len(rows)
    tx.row.total += total
    tx.count(rewarded=len(rows), total=total)


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
        _after(tx)
        return Rewarded(0, count)
    plan = PlanRows(tx)
    if not policy.accepts_unplanned and plan.with_room(text, count) is None:
        raise BadTally(
            f"{policy.name} learns from its plan only, and {count} plays of {arms} are more than its plan has left"
        )
    number = plan.observe(text, count, total, squares)
    plan.write()
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
    if not (isinstance(key, str) and 0 < len(key) <= 200 and key.isprintable()):
        raise BadInput(f"a key must be text of 1 to 200 printable characters; got {shown(key)}")
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
