"""How a campaign learns: a copy of the policy observes the tallies of the plan, and its next plan replaces the old one.

Adding and retiring arms works the same way: the policy first learns from what was observed, then its arms change.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import bindparam, select

from kofn.campaigns.allocation import lift_of
from kofn.campaigns.records.names import arm_name
from kofn.campaigns.records.plan_rows import UNLEARNED, PlanRow, observed_rows, replace_plan
from kofn.campaigns.records.rows import CampaignRow, PolicySnapshot, Roster, record_text, subset_from, subset_text
from kofn.campaigns.records.rules import check_obeys, joined, policy_rules
from kofn.campaigns.records.transaction import Transaction
from kofn.campaigns.store.schema import ESTIMATES, ROSTERS, STATES
from kofn.campaigns.store.stamps import new_stamp
from kofn.campaigns.store.statements import Statement, chunks
from kofn.constraints import Constraints
from kofn.core import BadInput, Insight, NotRunning, Policy, Tally
from kofn.core.checks import shown
from kofn.core.contexts import context_of
from kofn.core.open_plan import MOST_UNPLANNED

ESTIMATE_GROWTH, ESTIMATE_AGE = 1.2, 60.0
"""An estimate is written if there are this many times the rewards of the last one, or after this many seconds. Lower:
the history is denser, and learning takes longer: an estimate costs about half as much as an update of the policy."""

MAX_ESTIMATES = 1000
"""Estimates that are kept. A million plays in one minute make about 60."""

MAX_EFFECTS = 200
"""Arms up to which estimates have the effect of each arm."""

MAX_NAMES = 10
"""Names of the best arms in the message of an event; more arms are counted only."""


_LAST_ESTIMATE = Statement(
    select(ESTIMATES.c.step, ESTIMATES.c.at, ESTIMATES.c.rewards)
    .where(ESTIMATES.c.campaign == bindparam("c"))
    .order_by(ESTIMATES.c.step.desc())
    .limit(1)
)
_INSERT_ESTIMATE = Statement(ESTIMATES.insert())
_DELETE_STATE = Statement(STATES.delete().where(STATES.c.campaign == bindparam("c")))
_INSERT_STATE = Statement(STATES.insert())


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
    write_estimate(tx)


def _note_new_best(tx: Transaction, before: PolicySnapshot, after: PolicySnapshot) -> None:
    """Record an event if the best subset has changed, or if the policy has learned for the first time."""
    best = after.policy.best()
    if best != before.policy.best() or before.policy.updates == 0 < after.policy.updates:
        names = after.roster.names_of(after.roster.to_numbers(best))
        tx.note("learned", f"after {tx.row.rewards:,} rewards, the best are {listed_names(names)}")


def listed_names(names: Sequence[str]) -> str:
    """Return the names of arms for a message; many are counted only."""
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def write_estimate(tx: Transaction) -> None:
    """Keep what is estimated now, for the history, unless little has changed since the last estimate."""
    for step, at, rewards in tx.driver.rows(_LAST_ESTIMATE, {"c": tx.id}):
        if tx.row.rewards < ESTIMATE_GROWTH * rewards and tx.now < at + ESTIMATE_AGE:
            return
        if step // 100 < tx.row.step // 100:
            _thin_estimates(tx)
    if (estimate := estimate_of(tx)) is not None:
        tx.driver.run(_INSERT_ESTIMATE, {"campaign": tx.id, "step": tx.row.step, **estimate})


def estimate_of(tx: Transaction) -> dict[str, Any] | None:
    """Return what is estimated now, as the table of estimates has it; None without an expected loss and a lift."""
    known, snapshot, lift = insight_of(tx.snapshot), tx.snapshot, lift_of(tx.row)
    if (known is None or known.expected_loss is None) and (lift is None or lift.difference is None):
        return None
    numbers: dict[str, float | None] = dict.fromkeys(("value", "low", "high", "loss", "lift", "lift_low", "lift_high"))
    effects = ""
    if known is not None:
        numbers |= {"value": known.value, "low": known.low, "high": known.high, "loss": known.expected_loss}
        if len(snapshot.roster.active) <= MAX_EFFECTS:
            pairs = zip(snapshot.roster.active, known.effects.tolist(), strict=True)
            effects = json.dumps({arm: float(f"{effect:.4g}") for arm, effect in pairs}, separators=(",", ":"))
    if lift is not None:
        numbers |= {"lift": lift.difference, "lift_low": lift.low, "lift_high": lift.high}
    at = {"at": tx.now, "rewards": tx.row.rewards}
    return at | numbers | {"best": subset_text(snapshot.best()), "effects": effects}


def _thin_estimates(tx: Transaction) -> None:
    """Delete every other one of the older half of the estimates while there are too many."""
    ours = ESTIMATES.c.campaign == tx.id
    steps = list(tx.execute(select(ESTIMATES.c.step).where(ours).order_by(ESTIMATES.c.step)).scalars())
    kept = steps
    while len(kept) > MAX_ESTIMATES:
        half = len(kept) // 2
        kept = kept[:half:2] + kept[half:]
    for some in chunks(sorted(set(steps) - set(kept))):
        tx.execute(ESTIMATES.delete().where(ours, ESTIMATES.c.step.in_(some)))


def insight_of(snapshot: PolicySnapshot) -> Insight | None:
    """Return what the policy knew at its last update."""
    if not snapshot.insight_known:
        snapshot.insight = snapshot.policy.insight()
        snapshot.insight_known = True
    return snapshot.insight


def tell_rows(policy: Policy, roster: Roster, rows: Iterable[PlanRow]) -> None:
    """Tell the policy what was observed: the planned rows at once, then the unplanned ones one by one.

    An unplanned row may have a planned subset that was played more often than planned; the policy sorts that out. A
    planned row counts as unplanned if the policy's plan has another one in its place: another kind of processor, which
    rounds otherwise, may have planned it.
    """
    plan = policy.plan()
    tally = Tally.zeros(len(plan))
    unplanned = []
    for row in rows:
        if row.times == UNLEARNED:
            continue
        subset = roster.to_indices(subset_from(row.subset))
        assert subset is not None  # rows with retired arms are UNLEARNED
        same = row.row < len(plan) and subset == plan.subset(row.row)
        same = same and (plan.segments is None or plan.segments[row.row] == row.context)
        if row.times > 0 and same and row.count <= plan.times[row.row]:
            tally.count[row.row] = row.count
            tally.total[row.row], tally.squares[row.row] = row.total, row.squares
        else:
            unplanned.append((subset, row))
    policy.tell_plan(tally)
    for subset, row in unplanned:
        context = None if row.context is None else context_of(row.context)
        policy.tell_total(subset, row.count, row.total, row.squares, context=context)


def plays_per_arm(snapshot: PolicySnapshot, rows: Sequence[PlanRow]) -> NDArray[np.int64]:
    """Return how often each arm has been played: up to the snapshot, and in these rows."""
    played = snapshot.played.copy()
    for row in rows:
        played[list(subset_from(row.subset))] += row.count
    return played


def write_snapshot(tx: Transaction, snapshot: PolicySnapshot) -> None:
    """Replace the policy's record and its plan."""
    state = {"record": record_text(snapshot.policy), "played": json.dumps(snapshot.played.tolist())}
    with tx.driver.pipeline():
        tx.driver.run(_DELETE_STATE, {"c": tx.id})
        tx.driver.run(_INSERT_STATE, state | {"campaign": tx.id})
        replace_plan(tx, planned_rows(snapshot.policy, snapshot.roster))
    begin_plan(tx.row, snapshot)
    tx.snapshot = snapshot


def planned_rows(policy: Policy, roster: Roster) -> list[PlanRow]:
    """Return the rows of the policy's plan, of which nothing is in flight."""
    plan = policy.plan()
    segments = plan.segments or (None,) * len(plan)
    return [
        PlanRow(number, subset_text(roster.to_numbers(subset)), times, context=segment)
        for number, ((subset, times), segment) in enumerate(zip(plan, segments, strict=True))
    ]


def begin_plan(row: CampaignRow, snapshot: PolicySnapshot) -> None:
    """Set the counters of a plan of which nothing is in flight."""
    policy, plan = snapshot.policy, snapshot.policy.plan()
    counted = sum(sums[-3] for sums in policy.state().get("unplanned", ())) if policy.accepts_unplanned else 0
    row.step, row.stamp = snapshot.step, new_stamp()
    row.plan_rows = len(plan)
    row.free = row.plan_total = plan.plays
    row.plan_plays = plan.plays - counted
    row.observed = row.unplanned = row.fillers = row.overtaken = 0
    row.cursor = -1


def check_not_archived(tx: Transaction) -> None:
    """Raise NotRunning if the campaign is archived: then it changes no more."""
    if tx.row.state == "archived":
        raise NotRunning(f"the campaign {tx.row.name!r} is archived: it cannot be changed")


def check_shipped_obey(tx: Transaction, rules: Constraints | None) -> None:
    """Raise BadInput if the campaign is shipped, and a subset that it serves breaks these rules."""
    if tx.row.state == "shipped":
        for shipped in map(tx.roster.names_of, tx.options.served):
            check_obeys(rules, shipped, "the subset that is shipped", "Resume first, or change the rule")


def add_arm(tx: Transaction, name: str, groups: Sequence[str] = ()) -> None:
    """Add an arm, or bring a retired one back as a new arm. The policy keeps what it has learned about the others.

    It joins the rules whose names are in `groups`.
    """
    check_not_archived(tx)
    roster = tx.roster
    if arm_name(name) in roster.number_of:
        raise BadInput(f"the campaign already has an arm {name!r}: choose another name")
    number = len(roster.names)
    changed = Roster(roster.version + 1, [*roster.names, name], [*roster.active, number])
    rules = joined(tx.options.constraints, name, groups)
    if isinstance(tx.options.control, tuple):
        check_obeys(rules, roster.names_of(tx.options.control), "the control", "Change the control or the rule")
    check_shipped_obey(tx, rules)
    tx.changing()
    tx.row.options = replace(tx.options, constraints=rules).to_text()
    _change_arms(tx, changed, list(range(len(roster.active))), {"added": number})
    tx.note("arm back" if name in roster.names else "arm added", name)


def retire_arm(tx: Transaction, name: str) -> None:
    """Retire an arm. Rewards of decisions that show it are still counted, but ignored for learning."""
    check_not_archived(tx)
    roster, k = tx.roster, tx.row.k
    if not isinstance(name, str) or name not in roster.number_of:
        raise BadInput(f"there is no arm {shown(name)} to retire")
    if len(roster.active) <= k + 1:
        raise BadInput(
            f"cannot retire {name!r}: the campaign has {len(roster.active)} arms and needs more than k={k}. Add an arm "
            "first"
        )
    number = roster.number_of[name]
    if isinstance(tx.options.control, tuple) and number in tx.options.control:
        raise BadInput(f"cannot retire {name!r}: it is in the control. Change the control first")
    if tx.row.state == "shipped" and any(number in subset for subset in tx.options.served):
        raise BadInput(f"cannot retire {name!r}: it is in a subset that was shipped. Ship another one first")
    keep = [index for index, arm in enumerate(roster.active) if arm != number]
    changed = Roster(roster.version + 1, roster.names, [roster.active[index] for index in keep])
    tx.changing()
    _change_arms(tx, changed, keep, {"retired": number})
    tx.note("arm retired", name)


def _change_arms(tx: Transaction, roster: Roster, keep: list[int], change: dict[str, Any]) -> None:
    """Let the policy learn and change its arms."""
    rules = policy_rules(tx.options.constraints, roster, (tx.snapshot.policy.fewest, tx.row.k))
    logged = change if rules is None else {**change, "constraints": rules}
    if "added" in change and tx.options.costs is not None:
        logged = {**logged, "costs": [tx.options.costs.get(roster.names[change["added"]], 0.0)]}
    _change_policy(tx, roster, logged, lambda policy: with_arms(policy, keep, logged))


def with_arms(policy: Policy, keep: list[int], change: Mapping[str, Any]) -> Policy:
    """Return the policy after a logged change of its arms: one is added, or others than `keep` leave."""
    more = {name: change[name] for name in ("constraints", "costs") if name in change}
    return policy.with_arms(keep, int("added" in change), **more)


def change_params(tx: Transaction, **changes: Any) -> None:
    """Let the policy learn and change its parameters, such as its reward range."""
    _change_policy(tx, tx.roster, {"params": changes}, lambda policy: policy.with_params(**changes))
    tx.row.low, tx.row.high = tx.snapshot.policy.reward_range
    if own := [_changed(name, value) for name, value in changes.items() if name not in ("constraints", "costs")]:
        tx.note("changed", ", ".join(own))


def _changed(name: str, value: Any) -> str:
    """Return a parameter and its new value, for people to read."""
    return f"{name} is {value[0]:g} to {value[1]:g}" if name == "reward_range" else f"{name} is {value}"


def _change_policy(
    tx: Transaction, roster: Roster, change: dict[str, Any], change_of: Callable[[Policy], Policy]
) -> None:
    """Let the policy learn, change it, and log the change with the step at which it happened."""
    before, rows = tx.snapshot, observed_rows(tx)
    policy = copy.deepcopy(before.policy)
    tell_rows(policy, before.roster, rows)
    policy = change_of(policy)
    new_arms = len(roster.names) - len(before.roster.names)
    played = np.concatenate([plays_per_arm(before, rows), np.zeros(new_arms, np.int64)])
    ours = ROSTERS.c.campaign == tx.id
    changes = json.loads(tx.execute(select(ROSTERS.c.changes).where(ours)).scalar_one())
    changes.append({"step": tx.row.step, **change})
    tx.row.roster_version = roster.version
    tx.row.n_arms = len(roster.active)
    lists = {"names": json.dumps(roster.names), "active": json.dumps(roster.active), "changes": json.dumps(changes)}
    tx.execute(ROSTERS.update().where(ours).values(lists))
    write_snapshot(tx, PolicySnapshot(tx.row.step + 1, roster, policy, played))
