"""Plays in flight: plays of earlier plans whose rewards had not arrived when the plan ended.

If rewards are late, rewards of earlier plays complete a plan, and the next one begins while most of it is in flight.
Without an account of them, every plan would explore the same swaps again until the first reward of a swap arrives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from kofn.core import BadRecord, FloatArray, IntArray, Policy
from kofn.core.fields import Fields, Part, any_length, numbers, subsets
from kofn.core.open_plan import OpenPlan
from kofn.core.plan import Key, subset_of_key

MOST = 256
"""Most different subsets in flight that are kept: those with the most plays. Higher: a larger record."""

LEAST = 0.5
"""Plays of a subset below which it is dropped."""


@dataclass
class InFlight(Part):
    """How many plays of each subset are in flight. Counts fade, so that rewards that never arrive block nothing."""

    fields = Fields(subsets=subsets(), count=numbers(any_length, above=0))

    subsets: IntArray = field(default_factory=lambda: np.empty((0, 0), np.int64))
    count: FloatArray = field(default_factory=lambda: np.empty(0))

    @classmethod
    def of(cls, plays: Mapping[Key, float]) -> InFlight:
        """Return the account of these plays in flight."""
        ranked = sorted((-count, subset_of_key(key)) for key, count in plays.items() if count >= LEAST)[:MOST]
        if not ranked:
            return cls()
        return cls(np.array([subset for _, subset in ranked]), -np.array([count for count, _ in ranked]))

    def __len__(self) -> int:
        return len(self.count)

    def after(self, ended: OpenPlan, kept: float) -> InFlight:
        """Return what is in flight after a plan; of what was in flight before it, the part `kept` still counts.

        A plan has as many plays as the policy learns from before the next one. So never more plays are in flight than
        were learned from, however many rewards never arrive.
        """
        rows = ended.rows_in_flight()
        if not len(self) and not len(rows):
            return self
        left: dict[Key, float] = dict(zip(map(tuple, self.subsets.tolist()), (kept * self.count).tolist(), strict=True))
        for row in rows:
            key = ended.plan.key(row)
            left[key] = left.get(key, 0.0) + float(ended.in_flight[row])
        for key, (count, *_) in ended.unplanned.items():
            if key in left:
                left[key] -= count
        return InFlight.of(left)

    def forget(self, factor: float) -> None:
        """Multiply all counts by `factor`."""
        self.count = self.count * factor

    def _loaded(self, policy: Policy) -> None:
        del policy
        if len(self.subsets) != len(self.count):
            raise BadRecord(f"count must have {len(self.subsets)} numbers, one per subset; got {len(self.count)}")
        self.subsets = self.subsets.astype(np.int64)
