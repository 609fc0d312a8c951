"""Learned plays compared with those of the control: what learning earns, and whether the control gets its share."""

from __future__ import annotations

from functools import lru_cache

from kofn.campaigns.costs import net_limits
from kofn.campaigns.options import options_from
from kofn.campaigns.rows import CampaignRow
from kofn.core import Direction
from kofn.evidence import Lift, SampleRatio, Sums, lift, sample_ratio


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
