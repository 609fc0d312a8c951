"""Verification: the policy's state and the counters are rebuilt from the log of rewards, and compared with the store.

If they agree, no reward was lost and none was counted twice.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Table, bindparam, select

from kofn.campaigns.allocation import CONTROL, LEARNED
from kofn.campaigns.learn import planned_rows, tell_rows, with_arms
from kofn.campaigns.records.costs import Costs
from kofn.campaigns.records.options import options_from
from kofn.campaigns.records.plan_rows import UNLEARNED, PlanRow
from kofn.campaigns.records.rows import CampaignRow, Roster
from kofn.campaigns.records.transaction import Transaction
from kofn.campaigns.store.schema import BATCHES, PLANS, REWARDS, ROSTERS, STATES, TOTALS
from kofn.core import KofnError, Policy
from kofn.core.responses import Verification
from kofn.policies.registry import restore, save

TOLERANCE = 1e-6
"""Largest relative deviation of a number that passes. Sums of the same rewards in another order differ in their last
digits. A higher value would hide small differences; a lower one reports rounding errors as differences."""

SMALL = 1e-3
"""Numbers below this size are compared by their absolute deviation, relative to this size."""

MAX_DIFFERENCES = 20
"""Differences that are listed; more are counted only."""

Sums = dict[int, dict[int, PlanRow]]
"""What the log has for each step and row of its plan."""


@dataclass
class StoredPlays:
    """All rows of a campaign that take part in a verification."""

    campaign: CampaignRow
    roster: Any  # None if the store has no such row
    record: Any  # None likewise, or if it is not JSON
    plan: Sequence[Any]
    batches: Sequence[Any]
    rewards: Sequence[Any]
    totals: Sequence[Any]

    @property
    def complete(self) -> bool:
        """Whether every reward is stored one by one."""
        return not self.campaign.compacted and len(self.totals) == self.campaign.totals


@dataclass
class _Comparison:
    """Compares stored values with rebuilt ones."""

    found: list[str] = field(default_factory=list)
    deviation: float = 0.0

    def same(self, what: str, stored: Any, rebuilt: Any) -> None:
        """Compare two plain values, lists and dicts element by element."""
        if isinstance(stored, float) and isinstance(rebuilt, float):
            self._close(what, stored, rebuilt)
        elif isinstance(stored, dict) and isinstance(rebuilt, dict) and stored.keys() == rebuilt.keys():
            for name, value in stored.items():
                self.same(f"{what}.{name}", value, rebuilt[name])
        elif isinstance(stored, list) and isinstance(rebuilt, list) and len(stored) == len(rebuilt):
            for index, value in enumerate(stored):
                self.same(f"{what}[{index}]", value, rebuilt[index])
        elif stored != rebuilt:
            self.found.append(f"{what}: the store has {stored!r:.80}, the log gives {rebuilt!r:.80}")

    def _close(self, what: str, stored: float, rebuilt: float) -> None:
        if stored == rebuilt:
            return
        deviation = abs(stored - rebuilt) / max(abs(stored), abs(rebuilt), SMALL)
        if deviation <= TOLERANCE:
            self.deviation = max(self.deviation, deviation)
        else:
            self.found.append(f"{what}: the store has {stored!r}, the log gives {rebuilt!r}")

    def differences(self) -> list[str]:
        """Return the differences, shortened."""
        more = len(self.found) - MAX_DIFFERENCES
        return [*self.found[:MAX_DIFFERENCES], *([f"and {more:,} more differences"] if more > 0 else [])]


_ORDERS: dict[Table, tuple[str, ...]] = {
    ROSTERS: (),
    STATES: (),
    PLANS: ("row",),
    BATCHES: ("first",),
    REWARDS: ("at", "first", "place"),
    TOTALS: ("number",),
}
_ROWS = {
    table: select(table).where(table.c.campaign == bindparam("c")).order_by(*(table.c[name] for name in order))
    for table, order in _ORDERS.items()
}
"""The rows of a campaign, in the order in which they are compared."""


def read_log(tx: Transaction) -> StoredPlays:
    """Read all rows that take part."""

    def rows(table: Table) -> Any:
        return tx.execute(_ROWS[table], {"c": tx.id})

    return StoredPlays(
        campaign=tx.row,
        roster=rows(ROSTERS).one_or_none(),
        record=_record(rows(STATES).one_or_none()),
        plan=rows(PLANS).all(),
        batches=rows(BATCHES).all(),
        rewards=rows(REWARDS).all(),
        totals=rows(TOTALS).all(),
    )


def _record(state: Any) -> Any:
    try:
        return None if state is None else json.loads(state.record)
    except ValueError:
        return None


def verify(log: StoredPlays) -> Verification:
    """Compare the counters with the rows; if the log is complete, the policy and its plan with those it leads to."""
    comparison, campaign = _Comparison(), log.campaign
    _compare_counters(comparison, log)
    compared, reason = ["counters"], None
    if log.complete:
        compared += ["policy", "plan"]
        _compare_policy(comparison, log)
    else:
        totals = campaign.totals - len(log.totals)
        sums = f"{campaign.compacted:,} rewards" + (f" and {totals:,} totals" if totals else "")
        reason = (
            f"the log is not complete: {sums} are stored as sums only (keep_decisions is {campaign.keep_decisions:,}), "
            "so only the counters were compared"
        )
    return Verification(
        ok=not comparison.found,
        compared=compared,
        rewards=len(log.rewards) + sum(total.count for total in log.totals),
        steps=campaign.step if "policy" in compared else 0,
        deviation=comparison.deviation,
        differences=comparison.differences(),
        reason=reason,
    )


def _compare_counters(comparison: _Comparison, log: StoredPlays) -> None:
    """Compare the counters of the campaign, its batches and its plan with the rows that they count."""
    row, batches = log.campaign, log.batches
    planned = [each for each in log.plan if each.row < row.plan_rows]
    counted = {
        "in_flight": sum(batch.open for batch in batches if batch.due is not None),
        "expired": sum(batch.open for batch in batches if batch.due is None),
        "kept": len(log.rewards),
        "rewarded": len(log.rewards) + row.compacted,
        "plan_rows": len(planned),
        "unplanned": len(log.plan) - len(planned),
        "free": sum(max(0, each.times - each.count - each.in_flight) for each in planned),
        "observed": sum(each.count for each in log.plan if each.times != UNLEARNED),
    }
    since = options_from(row.options).control_from
    if log.complete:
        counted["totalled"] = sum(total.count for total in log.totals)
        earned, totals = _net_rewards(log)
        comparison.same("total", row.total, sum(earned, 0.0) + sum(totals, 0.0))
        for group, stored in (("learned", LEARNED), ("control", CONTROL)):
            compared = {batch.first for batch in batches if batch.group == stored and batch.first >= since}
            pairs = zip(log.rewards, earned, strict=True)
            theirs = [net for reward, net in pairs if reward.first in compared]
            counted[f"{group}_rewarded"] = len(theirs)
            comparison.same(f"{group}_total", getattr(row, f"{group}_total"), sum(theirs, 0.0))
    for name, value in counted.items():
        comparison.same(name, getattr(row, name), value)
    rewarded = Counter(reward.first for reward in log.rewards)
    known = {batch.first for batch in batches}
    comparison.same("rewards without a batch", 0, sum(n for first, n in rewarded.items() if first not in known))
    in_flight: Counter[int] = Counter()
    for batch in batches:
        comparison.same(f"rewards of batch {batch.first}", batch.count - batch.open, rewarded[batch.first])
        if batch.step == row.step and batch.row >= 0 and batch.due is not None:
            in_flight[batch.row] += batch.open
    for each in planned:
        comparison.same(f"plays in flight of plan row {each.row}", each.in_flight, in_flight[each.row])


def _net_rewards(log: StoredPlays) -> tuple[list[float], list[float]]:
    """Return the stored rewards and totals net of costs."""
    row, roster = log.campaign, log.roster
    names = [] if roster is None else json.loads(roster.names)
    costs = Costs(options_from(row.options), names, row.direction, lambda: (roster.origin, roster.changes))
    plays = {batch.first: (batch.subset, batch.step) for batch in log.batches}
    rewards = [costs.net(each.value, *plays[each.first]) if each.first in plays else each.value for each in log.rewards]
    totals = [each.total + each.count * costs.net(0.0, each.subset, each.step) for each in log.totals]
    return rewards, totals


def _compare_policy(comparison: _Comparison, log: StoredPlays) -> None:
    """Compare the policy's record and its plan with those that the log leads to."""
    sums = _sums(log)
    try:
        policy, roster = _rebuilt(log, sums)
    except (KofnError, AssertionError, ValueError, LookupError, TypeError, AttributeError) as why:  # a damaged row
        comparison.found.append(f"policy: it cannot be rebuilt from the log: {why}")
        return
    rebuilt = json.loads(json.dumps(save(policy)))
    comparison.same("policy", log.record, rebuilt)
    plan = [[each.subset, each.context, each.times] for each in planned_rows(policy, roster)]
    comparison.same("plan", [[each.subset, each.context, each.times] for each in log.plan[: len(plan)]], plan)
    stored = {each.row: [each.count, each.total, each.squares] for each in log.plan if each.times >= 0 and each.count}
    current = {row: [each.count, each.total, each.squares] for row, each in sums[log.campaign.step].items()}
    comparison.same("observed plays", stored, current)


def _rebuilt(log: StoredPlays, sums: Sums) -> tuple[Policy, Roster]:
    """Return the policy and its arms after all steps of the log."""
    names, origin = json.loads(log.roster.names), json.loads(log.roster.origin)
    changes = {change["step"]: change for change in json.loads(log.roster.changes)}
    policy = restore(origin)
    roster = Roster(0, names, list(range(policy.n_arms)))
    for step in range(log.campaign.step):
        planned = len(policy.plan())
        for row in sums[step].values():
            row.times = int(row.row < planned)  # tell_rows asks only whether it is planned
        tell_rows(policy, roster, [row for _, row in sorted(sums[step].items())])
        if step in changes:
            policy, roster = with_change(policy, roster, changes[step])
    return policy, roster


def _sums(log: StoredPlays) -> Sums:
    """Return what the log has for each row of each plan; plays that were not learned from are left out."""
    sums: Sums = defaultdict(dict)
    batches = {batch.first: (batch.subset, batch.context) for batch in log.batches}
    unknown = "", None
    plays = [(each, batches.get(each.first, unknown), 1, each.value, each.value * each.value) for each in log.rewards]
    plays += [(each, (each.subset, each.context), each.count, each.total, each.squares) for each in log.totals]
    for where, (subset, context), count, total, squares in plays:
        if where.row != UNLEARNED:
            row = sums[where.step].setdefault(where.row, PlanRow(where.row, subset, 0, context=context))
            row.count += count
            row.total += total
            row.squares += squares
    return sums


def with_change(policy: Policy, roster: Roster, change: dict[str, Any]) -> tuple[Policy, Roster]:
    """Return the policy and its arms after one arm was added or retired, or its parameters were changed."""
    active = roster.active
    if "params" in change:
        return policy.with_params(**change["params"]), roster
    if "added" in change:
        every = list(range(len(active)))
        return with_arms(policy, every, change), Roster(0, roster.names, [*active, change["added"]])
    keep = [index for index, arm in enumerate(active) if arm != change["retired"]]
    return with_arms(policy, keep, change), Roster(0, roster.names, [active[index] for index in keep])
