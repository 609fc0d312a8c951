"""What the arms of a campaign cost, by name, and rewards net of that.

Rewards are reported and stored without costs (gross). The policy subtracts the present costs from what it learns from,
also from rewards of decisions that were made before costs changed: it learns what subsets earn now. All that is counted
(means, the history, the comparison with the control) is net of the costs at the step at which a play was decided. The
options have the present costs; the log of the policy's changes has the costs of earlier steps.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from kofn.campaigns.store.schema import ROSTERS
from kofn.core import BadInput, check_costs
from kofn.core.checks import shown

if TYPE_CHECKING:
    from kofn.campaigns.records.options import Options
    from kofn.campaigns.records.rows import Roster
    from kofn.campaigns.records.transaction import Transaction

MAX_TEXT = 500
"""Longest text of costs in an event, in characters."""

Log = Callable[[], tuple[str, str]]
"""Reads the first record of a campaign's policy, and the changes of the policy since, both as JSON."""


def named_costs(given: Any, roster: Roster) -> dict[str, float] | None:
    """Return the costs that a user gave, by names of arms, checked; None if there are none.

    They are a dict, in which arms that are left out cost nothing, or a list in the order of the active arms. Arms that
    are retired may have a cost: they have it again when they come back.
    """
    if given is None:
        return None
    if not isinstance(given, Mapping):
        names = roster.names_of(tuple(roster.active))
        return dict(zip(names, check_costs(given, len(names)).tolist(), strict=True))
    known = set(roster.names)
    for name in given:
        if name not in known:
            some = ", ".join(map(repr, roster.names_of(tuple(roster.active[:3]))))
            raise BadInput(f"costs name the arm {shown(name)}, which the campaign does not have; it has {some}...")
    if any(isinstance(cost, bool | str) or cost is None for cost in given.values()):
        raise BadInput(f"costs must be numbers of at least 0, by names of arms; got {shown(dict(given))}")
    return dict(zip(given, check_costs(list(given.values()), len(given)).tolist(), strict=True))


def policy_costs(costs: Mapping[str, float] | None, roster: Roster) -> list[float] | None:
    """Return the costs of the active arms as the policy takes them."""
    return None if costs is None else [costs.get(name, 0.0) for name in roster.names_of(tuple(roster.active))]


def most_cost(costs: Mapping[str, float] | None, k: int) -> float:
    """Return an upper limit of what K arms cost."""
    return sum(sorted((costs or {}).values())[-k:])


def costs_text(costs: Mapping[str, float] | None) -> str:
    """Return the costs for an event."""
    return ", ".join(f"{name} {cost:g}" for name, cost in (costs or {}).items() if cost)[:MAX_TEXT] or "no costs"


def net_limits(low: float, high: float, direction: str, most: float) -> tuple[float, float]:
    """Return a range that rewards net of costs are in, if a subset costs `most` at most."""
    return (low - most, high) if direction == "maximize" else (low, high + most)


class Costs:
    """What subsets cost at each step of a campaign."""

    def __init__(self, options: Options, names: Sequence[str], direction: str, log: Log) -> None:
        self._now, self._since = options.costs or {}, options.costs_from
        self._names, self._sign, self._log = names, (1.0 if direction == "maximize" else -1.0), log

    @classmethod
    def read(cls, tx: Transaction) -> Costs:
        """Return the costs of a campaign; costs of earlier steps are read when they are needed."""

        def log() -> tuple[str, str]:
            chosen = select(ROSTERS.c.origin, ROSTERS.c.changes).where(ROSTERS.c.campaign == tx.id)
            origin, changes = tx.execute(chosen).one()
            return origin, changes

        names = tx.roster.names if tx.options.costs else ()
        return cls(tx.options, names, tx.row.direction, log)

    def net(self, reward: float, subset: str, step: int) -> float:
        """Return a reward net of what its subset cost at this step; costs are added to rewards to be minimised."""
        if step >= self._since:
            if not self._now:
                return reward
            cost = sum(self._now.get(self._names[int(arm)], 0.0) for arm in subset.split(","))
        else:
            starts, costs = self._epochs
            then = costs[bisect_right(starts, step) - 1]
            cost = sum(then.get(int(arm), 0.0) for arm in subset.split(","))
        return reward - self._sign * cost

    @cached_property
    def _epochs(self) -> tuple[list[int], list[dict[int, float]]]:
        """The steps at which costs or arms changed, and the cost of each arm, by number, from then on."""
        origin, changes = map(json.loads, self._log())
        costs = dict(enumerate(origin["params"].get("costs") or ()))
        active = list(range(origin["params"]["n_arms"]))
        starts, found = [0], [dict(costs)]
        for change in changes:
            if "retired" in change:
                active.remove(change["retired"])
            elif "added" in change:
                active.append(change["added"])
                costs[change["added"]] = (change.get("costs") or [0.0])[0]
            elif "costs" in change["params"]:
                costs = dict(zip(active, change["params"]["costs"] or (), strict=False))
            starts.append(change["step"] + 1)
            found.append(dict(costs))
        return starts, found
