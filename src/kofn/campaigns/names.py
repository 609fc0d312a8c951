"""Names of campaigns and arms, checked at the edge."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kofn.campaigns.head import Roster
from kofn.campaigns.ids import shown
from kofn.core import BadInput, Subset

LONGEST = 200
"""Characters of a name."""

MOST_ARMS = 1_000_000
_CAMPAIGN = re.compile(r"\w(?:[\w .:@+-]*\w)?")


def campaign_name(name: object) -> str:
    """The name of a campaign: it becomes part of addresses and file names, so it is plain."""
    if is_campaign_name(name):
        return str(name)
    raise BadInput(f"a campaign's name is letters and digits, with .:@+-_ or blanks between them, not {shown(name)}")


def is_campaign_name(name: object) -> bool:
    """Whether a campaign can have this name."""
    return isinstance(name, str) and len(name) <= LONGEST and _CAMPAIGN.fullmatch(name) is not None


def arm_name(name: object) -> str:
    """The name of an arm: any text that can be printed on one line."""
    if isinstance(name, str) and 0 < len(name) <= LONGEST and name.isprintable() and name == name.strip():
        return name
    raise BadInput(f"an arm's name is one line of text, {LONGEST} characters at the most, not {shown(name)}")


def arm_names(names: object) -> list[str]:
    """The names of all arms, each once."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise BadInput(f"arms are a list of names, not {shown(names)}")
    found = [arm_name(name) for name in names]
    if len(found) > MOST_ARMS:
        raise BadInput(f"a campaign has {MOST_ARMS:,} arms at the most, but {len(found):,} came")
    if len(set(found)) < len(found):
        twice = next(name for index, name in enumerate(found) if name in found[:index])
        raise BadInput(f"each arm has a name of its own, but {twice!r} came twice")
    return found


def arms_named(roster: Roster, arms: object) -> Subset:
    """Arms given by name, or by number, as a sorted subset of those that are there."""
    if isinstance(arms, str) or not isinstance(arms, Iterable):
        raise BadInput(f"a subset is a list of arms, not {shown(arms)}")
    given = list(arms)
    subset = tuple(sorted({_number(roster, arm) for arm in given}))
    if len(subset) < len(given):
        raise BadInput("a subset has different arms, but one came twice")
    return subset


def _number(roster: Roster, arm: Any) -> int:
    if isinstance(arm, str) and arm in roster.number:
        return roster.number[arm]
    if isinstance(arm, int | np.integer) and not isinstance(arm, bool) and _has(roster.active, int(arm)):
        return int(arm)
    raise BadInput(f"there is no arm {shown(arm)}{_like(roster)}")


def _has(active: Sequence[int], arm: int) -> bool:
    index = bisect_left(active, arm)
    return index < len(active) and active[index] == arm


def _like(roster: Roster) -> str:
    some = [roster.names[arm] for arm in roster.active[:3]]
    return f": there are {len(roster.active)}, such as {', '.join(map(repr, some))}"
