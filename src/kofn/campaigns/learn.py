"""How a campaign learns: a copy of the policy observes the tallies of the plan, and its next plan replaces the old one.

Adding and retiring arms works the same way: the policy first learns from what was observed, then its arms change.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select

from kofn.campaigns.names import arm_name
from kofn.campaigns.plan_rows import UNLEARNED, PlanRow, observed_rows, replace_plan
from kofn.campaigns.rows import CampaignRow, PolicySnapshot, Roster, new_stamp, record_text, subset_from, subset_text
from kofn.campaigns.schema import ROSTERS, STATES
from kofn.campaigns.transaction import Transaction
from kofn.core import BadInput, Policy, Tally
from kofn.core.checks import shown
from kofn.core.open_plan import MOST_UNPLANNED

MAX_NAMES = 10
"""Names of the best arms in the message of an event; more arms are counted only."""


def learn_if_due(tx: Transaction) -> None:
    """Update the policy if the plan is complete, or if it has collected too many unplanned subsets."""
    if tx.row.observed < tx.row.plan_plays and tx.row.unplanned < MOST_UNPLANNED:
        return
    before = tx.snapshot
    rows = observed_rows(tx)
    policy = copy.deepcopy(before.policy)
    tell_rows(policy, before.roster, rows)
    write_snapshot(tx, PolicySnapshot(tx.row.step + 1, before.roster, policy, plays_per_arm(before, rows)))
    _note_new_best(tx, before, tx.snapshot)


def _note_new_best(tx: Transaction, before: PolicySnapshot, after: PolicySnapshot) -> None:
    """Record an event if the best subset has changed, or if the policy has learned for the first time."""
    best = after.policy.best()
    if best != before.policy.best() or before.policy.updates == 0 < after.policy.updates:
        names = after.roster.names_of(after.roster.to_numbers(best))
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        tx.note("learned", f"after {tx.row.rewards:,} rewards, the best are {', '.join(names[:MAX_NAMES])}{more}")


def tell_rows(policy: Policy, roster: Roster, rows: Iterable[PlanRow]) -> None:
    """Tell the policy what was observed: the planned rows at once, then the unplanned ones one by one.

    An unplanned row may have a planned subset that was played more often than planned; the policy sorts that out. A
    row that an older version of the policy planned is unplanned, if the policy's plan is another one now.
    """
    plan = policy.plan()
    tally = Tally.zeros(len(plan))
    unplanned = []
    for row in rows:
        if row.times == UNLEARNED:
            continue
        subset = roster.to_indices(subset_from(row.subset))
        assert subset is not None  # rows with retired arms are UNLEARNED
        if row.times > 0 and row.row < len(plan) and subset == tuple(plan.subsets[row.row].tolist()):
            tally.count[row.row] = row.count
            tally.total[row.row], tally.squares[row.row] = row.total, row.squares
        else:
            unplanned.append((subset, row))
    policy.tell_plan(tally)
    for subset, row in unplanned:
        policy.tell_total(subset, row.count, row.total, row.squares)


def plays_per_arm(snapshot: PolicySnapshot, rows: Sequence[PlanRow]) -> NDArray[np.int64]:
    """Return how often each arm has been played: up to the snapshot, and in these rows."""
    played = snapshot.played.copy()
    for row in rows:
        played[list(subset_from(row.subset))] += row.count
    return played


def write_snapshot(tx: Transaction, snapshot: PolicySnapshot) -> None:
    """Replace the policy's record and its plan."""
    tx.execute(STATES.delete().where(STATES.c.campaign == tx.id))
    state = {"record": record_text(snapshot.policy), "played": json.dumps(snapshot.played.tolist())}
    tx.execute(STATES.insert(), state | {"campaign": tx.id})
    subsets = ((subset_text(snapshot.roster.to_numbers(subset)), times) for subset, times in snapshot.policy.plan())
    replace_plan(tx, (PlanRow(number, subset, times) for number, (subset, times) in enumerate(subsets)))
    begin_plan(tx.row, snapshot)
    tx.snapshot = snapshot


def begin_plan(row: CampaignRow, snapshot: PolicySnapshot) -> None:
    """Set the counters of a plan of which nothing is in flight."""
    policy, plan = snapshot.policy, snapshot.policy.plan()
    counted = sum(sums[1] for sums in policy.state().get("unplanned", ())) if policy.accepts_unplanned else 0
    row.step, row.stamp = snapshot.step, new_stamp()
    row.plan_rows = len(plan)
    row.free = plan.plays
    row.plan_plays = plan.plays - counted
    row.observed = row.unplanned = row.fillers = row.overtaken = 0
    row.cursor = -1


def add_arm(tx: Transaction, name: str) -> None:
    """Add an arm. The policy keeps what it has learned about the others."""
    roster = tx.roster
    if arm_name(name) in roster.names:
        state = "already has" if name in roster.number_of else "already had"
        raise BadInput(f"the campaign {state} an arm {name!r}: choose another name")
    number = len(roster.names)
    changed = Roster(roster.version + 1, [*roster.names, name], [*roster.active, number])
    tx.changing()
    _change_arms(tx, changed, list(range(len(roster.active))), {"added": number})
    tx.note("arm added", name)


def retire_arm(tx: Transaction, name: str) -> None:
    """Retire an arm. Rewards of decisions that show it are still counted, but ignored for learning."""
    roster, k = tx.roster, tx.row.k
    if not isinstance(name, str) or name not in roster.number_of:
        raise BadInput(f"there is no arm {shown(name)} to retire")
    if len(roster.active) <= k + 1:
        raise BadInput(
            f"cannot retire {name!r}: the campaign has {len(roster.active)} arms and needs more than k={k}. Add an arm "
            "first"
        )
    number = roster.number_of[name]
    keep = [index for index, arm in enumerate(roster.active) if arm != number]
    changed = Roster(roster.version + 1, roster.names, [roster.active[index] for index in keep])
    tx.changing()
    _change_arms(tx, changed, keep, {"retired": number})
    tx.note("arm retired", name)


def _change_arms(tx: Transaction, roster: Roster, keep: list[int], change: dict[str, int]) -> None:
    """Let the policy learn, change its arms, and log the change with the step at which it happened."""
    added, before, rows = int("added" in change), tx.snapshot, observed_rows(tx)
    policy = copy.deepcopy(before.policy)
    tell_rows(policy, before.roster, rows)
    policy = policy.with_arms(keep, added)
    played = np.concatenate([plays_per_arm(before, rows), np.zeros(added, np.int64)])
    ours = ROSTERS.c.campaign == tx.id
    changes = json.loads(tx.execute(select(ROSTERS.c.changes).where(ours)).scalar_one())
    changes.append({"step": tx.row.step, **change})
    tx.row.roster_version = roster.version
    tx.row.n_arms = len(roster.active)
    lists = {"names": json.dumps(roster.names), "active": json.dumps(roster.active), "changes": json.dumps(changes)}
    tx.execute(ROSTERS.update().where(ours).values(lists))
    write_snapshot(tx, PolicySnapshot(tx.row.step + 1, roster, policy, played))
