"""Who gets which subset: the policy's plan, the control, or the subset that was shipped; and how the groups compare.

A decision belongs to one of three groups. While a campaign runs, a coin gives a share of the decisions to the control;
the same key always falls on the same side. After it has been shipped, everyone gets the shipped subset.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import cast, get_args

import numpy as np

from kofn.campaigns.evidence import Lift, SampleRatio, Sums, lift, sample_ratio
from kofn.campaigns.records.costs import net_limits
from kofn.campaigns.records.options import options_from
from kofn.campaigns.records.plan_rows import Play
from kofn.campaigns.records.rows import CampaignRow, subset_from, subset_key, subset_text
from kofn.campaigns.records.transaction import Transaction
from kofn.constraints.allowed import Allowed
from kofn.core import Direction, Subset
from kofn.core.responses import Group

GROUPS: tuple[Group, ...] = get_args(Group)
LEARNED, CONTROL, SHIPPED = range(3)

FILLER = -1
"""The row number of plays that are not of the plan."""


@dataclass
class Share:
    """Plays of one subset that are handed out together: the row of the plan, if any, and who chose them."""

    row: int
    subset: str
    count: int
    group: int = LEARNED
    propensity: float | None = None


def control_plays(tx: Transaction, count: int, key: str | None) -> int:
    """Return how many of the next `count` decisions the control gets."""
    options = tx.options
    if options.control is None:
        return 0
    coin = tx.row.decided if key is None else int.from_bytes(blake2b(key.encode(), digest_size=8).digest())
    return int(_rng(tx, 0, coin).binomial(count, options.control_share))


def control_shares(tx: Transaction, count: int, segment: str | None) -> list[Share]:
    """Return plays of the control. A segment gets the same ones as all others."""
    if not count:
        return []
    options, roster, k = tx.options, tx.roster, tx.row.k
    if isinstance(options.control, tuple):
        return [Share(FILLER, subset_text(options.control), count, CONTROL, _mixed(tx, options.control, segment))]
    rng, allowed = _rng(tx, 1, tx.row.decided), _allowed(tx)
    if allowed is None:
        places = len(roster.active) + k - tx.snapshot.policy.fewest
        drawn = Counter(_random_subset(rng, places, k) for _ in range(count))
    else:
        drawn = Counter(tuple(subset) for subset in allowed.random(count, rng).tolist())
    shown = Counter[Subset]()
    for places_filled, n in drawn.items():  # an arm beyond the last one is an empty place
        shown[tuple(arm for arm in places_filled if arm < len(roster.active))] += n
    numbered = ((roster.to_numbers(subset), n) for subset, n in shown.items())
    return [Share(FILLER, subset_text(subset), n, CONTROL, _mixed(tx, subset, segment)) for subset, n in numbered]


def shipped_shares(tx: Transaction, count: int, segment: str | None) -> list[Share]:
    """Return plays of the subset that was shipped, to this segment if there are segments."""
    return [Share(FILLER, subset_text(tx.options.shipped_for(segment)), count, SHIPPED, 1.0)]


def shipment_of(subset: Subset, segment: str | None = None) -> int:
    """Return the hash by which ids of decisions that are not stored name what was shipped, and to which segment."""
    return subset_key(subset_text(subset), segment) % 2**32


@lru_cache(maxsize=256)
def shipments(options: str) -> dict[int, Play]:
    """Return all that was shipped, by the hash in the ids of decisions that are not stored. `options` is as JSON."""
    known = options_from(options)
    found: dict[int, Play] = {shipment_of(subset): (subset_text(subset), None) for subset in known.shipped}
    for segment, subset in (*known.shipped_before, *known.shipped_to):
        found[shipment_of(subset, segment)] = subset_text(subset), segment
    return found


def planned_propensity(tx: Transaction, play: Play, times: int) -> float | None:
    """Return the probability of a subset with `times` plays in the plan: its share of the plan, and the control's.

    If there are segments, it is the probability within the segment. None if the plan has no plays of the segment, or
    if the control draws random subsets under rules, and their number is not known.
    """
    subset, segment = play
    plays = tx.row.plan_total if segment is None else tx.snapshot.plays_of_segments[segment]
    if not plays:
        return None
    share = times / plays
    options = tx.options
    if options.control is None:
        return share
    by_control = _by_control(tx, subset)
    return None if by_control is None else (1 - options.control_share) * share + options.control_share * by_control


def _mixed(tx: Transaction, subset: Subset, segment: str | None) -> float | None:
    play = subset_text(subset), segment
    return planned_propensity(tx, play, tx.plan.times_of(tx, play))


def _by_control(tx: Transaction, subset: str) -> float | None:
    """Return the probability with which the control chooses a subset; None if it is not known."""
    control = tx.options.control
    if isinstance(control, tuple):
        return float(subset_text(control) == subset)
    allowed, k, empties = _allowed(tx), tx.row.k, tx.row.k - tx.snapshot.policy.fewest
    number = math.comb(tx.row.n_arms + empties, k) if allowed is None else allowed.number
    ways = math.comb(empties, k - len(subset_from(subset)))  # to choose the places that stay empty
    return None if number is None else ways / number


def _allowed(tx: Transaction) -> Allowed | None:
    """Return the subsets that the rules allow, by the policy's numbers of arms; None without rules.

    Higher numbers are places that stay empty.
    """
    policy = tx.snapshot.policy
    if policy.constraints is None:
        return None
    found: Allowed = policy.constraints.allowed(policy.n_arms, policy.k, fewest=policy.fewest)
    return found


def restart_comparison(tx: Transaction) -> None:
    """Compare from the next decision on: the control has changed."""
    row = tx.row
    for group in ("learned", "control"):
        for name, zero in (("decided", 0), ("rewarded", 0), ("total", 0.0), ("squares", 0.0)):
            setattr(row, f"{group}_{name}", zero)


def count_decided(tx: Transaction, shares: Iterable[Share]) -> None:
    """Count the decisions of each group."""
    for share in shares:
        if share.group == CONTROL:
            tx.row.control_decided += share.count
        elif share.group == LEARNED:
            tx.row.learned_decided += share.count


def count_reward(tx: Transaction, group: int, first: int, value: float) -> None:
    """Count a reward for the comparison of the policy with the control."""
    row = tx.row
    if first < tx.options.control_from:
        return
    if group == CONTROL:
        row.control_rewarded += 1
        row.control_total += value
        row.control_squares += value * value
    elif group == LEARNED:
        row.learned_rewarded += 1
        row.learned_total += value
        row.learned_squares += value * value


def _rng(tx: Transaction, purpose: int, coin: int) -> np.random.Generator:
    return np.random.default_rng([tx.options.seed, purpose, coin])


def _random_subset(rng: np.random.Generator, n_arms: int, k: int) -> Subset:
    return cast(Subset, tuple(np.sort(rng.choice(n_arms, k, replace=False, shuffle=False)).tolist()))


def lift_of(row: CampaignRow) -> Lift | None:
    """Return what learning earns beyond the control; None without a control."""
    options = options_from(row.options)
    if options.control is None:
        return None
    direction: Direction = "maximize" if row.direction == "maximize" else "minimize"
    limits = net_limits(row.low, row.high, direction, options.costs_most)
    return _lift(row.sums("learned"), row.sums("control"), limits, direction)


@lru_cache(maxsize=1000)
def _lift(learned: Sums, control: Sums, reward_range: tuple[float, float], direction: Direction) -> Lift:
    return lift(learned, control, reward_range=reward_range, direction=direction)


def ratio_of(row: CampaignRow) -> SampleRatio | None:
    """Return whether the control got its share of the decisions; None without a control."""
    options = options_from(row.options)
    if options.control is None:
        return None
    return sample_ratio(row.learned_decided, row.control_decided, options.control_share)
