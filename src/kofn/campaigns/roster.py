"""The arms of a campaign, and subsets of them as text."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np

from kofn.core import BadInput, Subset
from kofn.core.checks import shown


class Roster:
    """All arms that the campaign ever had, by number, and the active ones in the order of the policy's indices.

    An arm keeps its number when others are retired, so decisions in flight keep their meaning.
    """

    def __init__(self, names: list[str], active: list[int], version: int = 0) -> None:
        self.names, self.active, self.version = names, active, version
        self.identical = active == list(range(len(active)))  # whether numbers are the policy's indices
        self.number_of = {names[arm]: arm for arm in active}
        self._index = {} if self.identical else {arm: index for index, arm in enumerate(active)}

    @classmethod
    def read(cls, names: str, active: str, version: int) -> Roster:
        """Return the roster of a row of the store."""
        return cls(json.loads(names), json.loads(active), version)

    def to_numbers(self, subset: Subset) -> Subset:
        """Return a subset of the policy's indices as arm numbers."""
        return subset if self.identical else tuple(self.active[index] for index in subset)

    def to_indices(self, subset: Subset) -> Subset | None:
        """Return a subset of arm numbers as the policy's indices; None if one of the arms is retired."""
        if self.identical:
            return subset if subset[-1] < len(self.active) else None
        found = tuple(self._index.get(arm, -1) for arm in subset)
        return None if -1 in found else found

    def names_of(self, subset: Subset) -> list[str]:
        """Return the names of these arms."""
        return [self.names[arm] for arm in subset]

    def subset_of(self, arms: object, k: int, fewest: int | None = None, what: str = "a subset") -> Subset:
        """Return K active arms, given by name or number, as a sorted subset of numbers; or raise BadInput.

        With `fewest`, a subset may have fewer arms than K. `what` is the subject of the error.
        """
        if isinstance(arms, str) or not isinstance(arms, Iterable):
            raise BadInput(f"{what} must be a list of arms; got {shown(arms)}")
        given = [self._number(arm) for arm in arms]
        subset = tuple(sorted(set(given)))
        if len(subset) < len(given):
            twice = next(arm for index, arm in enumerate(given) if arm in given[:index])
            raise BadInput(f"arm {self.names[twice]!r} is listed twice in {what}")
        if not (fewest or k) <= len(subset) <= k:
            sizes = f"{fewest} to {k}" if fewest and fewest < k else f"{k}"
            raise BadInput(f"{what} must have {sizes} different arms; got {len(subset)}")
        return subset

    def _number(self, arm: Any) -> int:
        if isinstance(arm, str) and arm in self.number_of:
            return self.number_of[arm]
        if isinstance(arm, int | np.integer) and not isinstance(arm, bool) and self._is_active(int(arm)):
            return int(arm)
        some = ", ".join(repr(self.names[active]) for active in self.active[:3])
        raise BadInput(f"there is no arm {shown(arm)}: the campaign has {len(self.active)} arms, such as {some}")

    def _is_active(self, arm: int) -> bool:
        index = bisect_left(self.active, arm)
        return index < len(self.active) and self.active[index] == arm


def subset_text(subset: Subset) -> str:
    """Return a subset as the store writes it.

    >>> subset_text((1, 4, 7))
    '1,4,7'
    """
    return ",".join(map(str, subset))


def subset_from(text: str) -> Subset:
    """Return the subset that `subset_text` wrote."""
    return tuple(map(int, text.split(",")))


def shipment_of(subset: Subset, segment: str | None = None) -> int:
    """Return the hash by which ids of decisions that are not stored name what was shipped, and to which segment."""
    text = subset_text(subset) if segment is None else f"{subset_text(subset)} {segment}"
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest())
