"""How rewards are recorded: a call is checked as a whole and written as a whole, then the policy learns if it is due.

Rewards arrive one per decision, in batches, or as totals: the sum of several plays of one subset.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlalchemy import select

from kofn.campaigns.allocation import FILLER, LEARNED, SHIPPED, count_reward, shipments
from kofn.campaigns.expiry import compact
from kofn.campaigns.learn import change_params, learn_if_due
from kofn.campaigns.records.batches import Batch
from kofn.campaigns.records.costs import Costs
from kofn.campaigns.records.names import DecisionPlace, UnstoredPlace, read_id
from kofn.campaigns.records.rows import CampaignRow, subset_text
from kofn.campaigns.records.transaction import Transaction
from kofn.campaigns.segments import segment_of
from kofn.campaigns.stopping import assess
from kofn.campaigns.store.schema import TOTALS
from kofn.campaigns.store.stamps import new_stamp
from kofn.core import (
    BadInput,
    BadReward,
    BadTally,
    Conflict,
    KofnError,
    NotRunning,
    Plan,
    StoreError,
    Subset,
    Tally,
    UnknownDecision,
    whole,
)
from kofn.core.checks import LARGEST_REWARD, MAX_LENGTH, outside_range, reward_number, shown
from kofn.core.plan import ROUNDING, check_tally
from kofn.core.responses import Refusal, Rewarded

Rewards = Mapping[str, float] | Iterable[tuple[str, float]]
Place = DecisionPlace | UnstoredPlace

WIDEST = 1e6
"""Times the range by which a reward may be outside it, if the range is learned. A higher value lets one wrong reward
make all others look alike."""

MAX_COUNT = 2**53
"""Most plays of one total: above it, floating-point numbers no longer count one by one."""

# One reward per decision.


@dataclass
class RewardBatch:
    """Rewards as they were given: the id and the number of each decision by its place, and those that are refused.

    With `partial`, the others are recorded although some are refused.
    """

    partial: bool = False
    given: dict[Place, tuple[str, float]] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)
    firsts: set[int] = field(default_factory=set)  # numbers of the batches of decisions
    requests: set[int] = field(default_factory=set)  # hashes of decisions that were not stored when they were made

    def refuse(self, id: object, why: KofnError) -> None:
        """Refuse one reward for this reason; without `partial`, raise the error."""
        if not self.partial or isinstance(why, StoreError):
            raise why
        self.refused.append(Refusal(str(id)[:MAX_LENGTH], str(why)))

    def add(self, id: str, value: float, place: Place) -> None:
        """Add a reward; another one of the same decision is refused."""
        first = self.given.setdefault(place, (id, value))[1]
        if first != value:
            raise Conflict(f"the batch has two rewards for the decision {id}: {first:g} and {value:g}")
        if isinstance(place, DecisionPlace):
            self.firsts.add(place.first)
        else:
            self.requests.add(request_of_unstored(place))

    @property
    def size(self) -> int:
        """The number of rewards."""
        return len(self.given) + len(self.refused)


def read_rewards(rewards: Rewards, secret: bytes, *, partial: bool = False) -> RewardBatch:
    """Return the rewards by place. Each number is checked; two different rewards for one decision are refused."""
    pairs = rewards.items() if isinstance(rewards, Mapping) else rewards
    batch = RewardBatch(partial)
    try:
        for id, reward in pairs:
            try:
                value, place = reward_number(reward), read_id(secret, id)
                if math.isnan(value):
                    raise BadReward("a reward must be one number; got nan")
                batch.add(id, value, place)
            except KofnError as why:
                batch.refuse(id, why)
    except (TypeError, ValueError) as why:
        if isinstance(why, BadInput):
            raise
        raise BadInput("rewards must be a dict {id: reward} or pairs (id, reward)") from None
    return batch


def request_of_unstored(place: UnstoredPlace) -> int:
    """Return the hash under which a decision is found that was not stored when it was made."""
    return place.nonce - (place.nonce >> 63 << 64)


@dataclass
class _New:
    """A reward that is not recorded yet."""

    place: Place
    value: float
    clipped: bool


def record_rewards(tx: Transaction, rewards: RewardBatch) -> Rewarded:
    """Record every new reward of the batch, or refuse the whole batch; learn if it is due."""
    _check_takes_rewards(tx)
    batches = tx.batches.load(tx, rewards.firsts)
    refused = RewardBatch(rewards.partial, refused=list(rewards.refused))
    new, forgotten = _new_rewards(tx, batches, rewards, refused)
    if new:
        tx.changing()
        if tx.options.outside == "widen":
            _widen(tx, [each.value for each in new])
        _record(tx, batches, new)
        _after(tx)
    repeated = rewards.size - len(new) - forgotten - len(refused.refused)
    return Rewarded(len(new), repeated, forgotten, refused.refused)


def _check_takes_rewards(tx: Transaction) -> None:
    if tx.row.state == "archived":
        raise NotRunning(f"the campaign {tx.row.name!r} is archived: it takes no rewards")


def _after(tx: Transaction) -> None:
    learn_if_due(tx)
    assess(tx)
    compact(tx)


def _new_rewards(
    tx: Transaction, batches: dict[int, Batch], rewards: RewardBatch, refused: RewardBatch
) -> tuple[list[_New], int]:
    """Return the rewards that are not recorded yet, and the number of decisions that are no longer stored.

    A decision with another recorded reward is refused, and one that was never made. Of a batch that is no longer
    stored nobody knows whether it was rewarded, so its rewards are not called repeated.
    """
    known = tx.batches.rewards_of(tx, batches.values())
    new, forgotten = [], 0
    for place, (id, given) in rewards.given.items():
        try:
            if isinstance(place, UnstoredPlace):
                before, is_forgotten = _unstored_reward(tx, id, place)
            else:
                before, is_forgotten = _stored_reward(tx, id, place, batches, known)
            if before is not None and _was_clipped(tx, given, before):
                continue
            value = _taken(tx, id, given)
            if is_forgotten:
                forgotten += 1
            elif before is None:
                new.append(_New(place, value, value != given and tx.options.outside == "clip"))
            elif before != value:
                raise Conflict(f"the decision {id} already has the reward {before:g}; got {value:g}")
        except KofnError as why:
            refused.refuse(id, why)
    return new, forgotten


def _stored_reward(
    tx: Transaction,
    id: str,
    place: DecisionPlace,
    batches: Mapping[int, Batch],
    known: Mapping[int, Mapping[int, float]],
) -> tuple[float | None, bool]:
    """Return the recorded reward of a decision, if it has one, and whether the decision is no longer stored."""
    batch = batches.get(place.first)
    if batch is None and place.first < tx.row.decided:
        return None, True
    if batch is None or batch.salt != place.salt or place.place >= batch.count:
        raise UnknownDecision(
            f"{id} is not a decision of this campaign, or it was made after the backup that was restored"
        )
    return known.get(place.first, {}).get(place.place), False


def _unstored_reward(tx: Transaction, id: str, place: UnstoredPlace) -> tuple[float | None, bool]:
    """Return the same for a decision that was not stored when it was made."""
    if place.shipment not in shipments(tx.row.options):
        raise UnknownDecision(f"{id} is of a subset that this campaign did not ship, or it was made after the backup")
    made = tx.batches.of_request(tx, request_of_unstored(place))
    if made:
        return tx.batches.rewards_of(tx, made)[made[0].first].get(0), False
    made_at = place.milliseconds / 1000
    return None, tx.now - made_at > tx.row.expire_after or made_at <= tx.options.unstored_after


def _taken(tx: Transaction, id: str, reward: float) -> float:
    """Return the reward as it is recorded; or raise BadReward, if the campaign refuses rewards outside its range."""
    low, high = tx.row.low, tx.row.high
    if low <= reward <= high:
        return reward
    slack = ROUNDING * (high - low)
    if tx.options.outside == "widen":
        _check_widening(tx, reward)
        return reward
    if tx.options.outside == "refuse" and not low - slack <= reward <= high + slack:
        way_out = "Set outside='clip' to clip such rewards, or widen reward_range"
        raise outside_range(low, high, f"{shown(reward)} for {id}. {way_out}")
    return min(max(reward, low), high)


def _was_clipped(tx: Transaction, given: float, recorded: float) -> bool:
    """Return whether the recorded reward is this one, clipped to a range that the campaign had before."""
    return any(min(max(given, low), high) == recorded for low, high in tx.options.clipped_to)


def _check_widening(tx: Transaction, reward: float) -> None:
    """Raise BadReward for a reward that is too far outside the range: it is more likely wrong than rare."""
    low, high = tx.row.low, tx.row.high
    most = WIDEST if tx.row.rewards else LARGEST_REWARD
    beyond = max(low - reward, reward - high)
    if not (abs(reward) <= LARGEST_REWARD and beyond <= most * (high - low)):
        raise BadReward(
            f"a reward must be at most {WIDEST:,.0f} times the range outside it, which is {low:g} to {high:g} now; got "
            f"{shown(reward)}. Widen it with configure(reward_range=...) if that is right"
        )


def _widen(tx: Transaction, rewards: Sequence[float]) -> None:
    """Widen the range to rewards outside it, and as far again, so that it is rarely widened."""
    low, high = tx.row.low, tx.row.high
    least, most = min(rewards), max(rewards)
    if least < low or most > high:
        span = max(most, high) - min(least, low)
        new_low = low if least >= low else max(least - span, -LARGEST_REWARD)
        new_high = high if most <= high else min(most + span, LARGEST_REWARD)
        change_params(tx, reward_range=(new_low, new_high))


def _record(tx: Transaction, batches: dict[int, Batch], new: Sequence[_New]) -> None:
    """Write the rewards, and update the batches, the plan and the campaign."""
    row, plan = tx.row, tx.plan
    places = [(_stored_place(tx, batches, each.place), each) for each in new]
    current = {first for first, batch in batches.items() if batch.step == row.step and batch.row >= 0}
    plan.load(tx, {batches[first].row for first in current})
    plan.load_plays(tx, (batch.play for first, batch in batches.items() if first not in current))
    total, waited, costs = 0.0, 0.0, Costs.read(tx)
    for place, each in places:
        batch, value = batches[place.first], each.value
        planned = batch.row if place.first in current else None
        if planned is not None and batch.due is not None:
            plan.release(tx, planned)
        if batch.due is None:
            row.expired -= 1
        else:
            row.in_flight -= 1
        counted = plan.observe(tx, batch.play, 1, value, value * value, planned)
        row.overtaken += batch.step == row.step and planned is None and batch.group == LEARNED
        net = costs.net(value, batch.subset, batch.step)
        count_reward(tx, batch.group, batch.first, net)
        waited += max(0.0, tx.now - batch.at)
        tx.batches.reward(tx, batch, place.place, value, counted)
        total += net
        row.clipped += each.clipped
    row.rewarded += len(new)
    row.kept += len(new)
    row.total += total
    row.waited += waited
    tx.count(rewarded=len(new), total=total, waited=waited)


def _stored_place(tx: Transaction, batches: dict[int, Batch], place: Place) -> DecisionPlace:
    """Return where a decision is stored; one that was not stored when it was made is stored now."""
    if isinstance(place, DecisionPlace):
        return place
    row = tx.row
    subset, segment = shipments(row.options)[place.shipment]
    of_row = row.decided, 1, 1, new_stamp(32), row.step, FILLER, subset
    request = request_of_unstored(place)
    batch = Batch(*of_row, place.milliseconds / 1000, tx.now, request, SHIPPED, 1.0, context=segment)
    tx.batches.add(batch)
    batches[batch.first] = batch
    row.decided += 1
    row.in_flight += 1
    tx.count(decided=1)
    return DecisionPlace(batch.first, 0, batch.salt)


# Totals.


def record_total(
    tx: Transaction,
    arms: object,
    count: int,
    total: float,
    squares: float | None,
    key: str | None,
    context: Mapping[str, Any] | None,
) -> Rewarded:
    """Record the total of `count` plays, unless it is recorded under this key already; learn if it is due."""
    row = tx.row
    _check_takes_rewards(tx)
    subset = tx.roster.subset_of(arms, row.k, tx.snapshot.policy.fewest)
    segment = segment_of(tx, context)
    _widen_to_total(tx, count, total, squares)
    given = squares
    count, total, squares = _checked_sums(row, subset, count, total, squares)
    text = subset_text(subset)
    play = text, segment
    if key is not None and (before := _total_under(tx, key)):
        if before[:4] != (text, segment, count, total) or (given is not None and before[4] != squares):
            raise Conflict(
                f"another total, of {before[2]} plays, is already recorded under the key {key!r}: use a new key"
            )
        return Rewarded(0, count)
    policy = tx.snapshot.policy
    if not policy.accepts_unplanned and tx.plan.with_room(tx, play, count) is None:
        raise BadTally(
            f"{policy.name} learns from its plan only, and {count} plays of {arms} are more than its plan has left"
        )
    tx.changing()
    number = tx.plan.observe(tx, play, count, total, squares)
    tx.execute(
        TOTALS.insert(),
        {"campaign": tx.id, "number": row.totals, "key": key, "subset": text, "count": count, "total": total}
        | {"squares": squares, "at": tx.now, "step": row.step, "row": number, "context": segment},
    )
    row.totals += 1
    row.totalled += count
    net = total + count * Costs.read(tx).net(0.0, text, row.step)
    row.total += net
    tx.count(decided=count, rewarded=count, total=net)
    _after(tx)
    return Rewarded(count, 0)


def _widen_to_total(tx: Transaction, count: Any, total: Any, squares: Any) -> None:
    """Widen the range to what these sums need, if the campaign does so. Wrong sums are refused later."""
    if tx.options.outside != "widen":
        return
    try:
        mean = total / count
        variance = 0.0 if squares is None else squares / count - mean * mean
        most = mean + variance / (mean - tx.row.low) if mean > tx.row.low else mean
        needed = [number for number in (mean, most) if math.isfinite(number)]
    except (TypeError, ValueError, ArithmeticError):
        return
    for number in needed:
        _check_widening(tx, number)
    if needed and not tx.row.low <= min(needed) <= max(needed) <= tx.row.high:
        tx.changing()
        _widen(tx, needed)


def _total_under(tx: Transaction, key: str) -> tuple[Any, ...] | None:
    columns = (TOTALS.c[name] for name in ("subset", "context", "count", "total", "squares"))
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
    if not (math.isfinite(total) and math.isfinite(squares)):
        raise BadReward(f"total and squares must be finite numbers; got {total:g} and {squares:g}")
    tally = Tally(np.array([count]), np.array([total]), np.array([squares]))
    check_tally(tally, Plan.one(subset, count), Tally.zeros(1), low, high)
    return count, total, squares
