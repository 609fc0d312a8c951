"""Settings that change while a campaign runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kofn.campaigns.allocation import restart_comparison
from kofn.campaigns.create import decisions_to_keep, seconds
from kofn.campaigns.expiry import compact_at
from kofn.campaigns.learn import change_params, check_not_archived, check_shipped_obey
from kofn.campaigns.records.costs import costs_text, most_cost, policy_costs
from kofn.campaigns.records.options import with_options
from kofn.campaigns.records.rules import policy_rules, rules_text
from kofn.campaigns.records.transaction import Transaction
from kofn.campaigns.store.stamps import new_stamp
from kofn.core import BadInput
from kofn.core.campaign_settings import ChangedSettings
from kofn.core.checks import check_range

_OF_POLICY = ("reward_range", "half_life", "guarantee")
_OF_ROW = ("expire_after", "keep_decisions")


def configure(tx: Transaction, given: Mapping[str, Any]) -> None:
    """Change the settings that are given. All of them are checked first."""
    if unknown := sorted(given.keys() - ChangedSettings.__annotations__.keys()):
        known = ", ".join(ChangedSettings.__annotations__)
        raise BadInput(f"there is no setting {', '.join(unknown)}; the settings are {known}")
    check_not_archived(tx)
    own = {name: value for name, value in given.items() if name not in (*_OF_POLICY, *_OF_ROW)}
    before = tx.options
    sizes = tx.snapshot.policy.fewest, tx.row.k
    options = with_options(before, tx.roster, sizes, own)
    if options.outside == "widen" != before.outside:
        tx.snapshot.policy.with_params(reward_range=tx.snapshot.policy.reward_range)
    params = _params(tx, given)
    if options.constraints != before.constraints:
        params["constraints"] = policy_rules(options.constraints, tx.roster, sizes)
        check_shipped_obey(tx, options.constraints)
    if options.costs != before.costs:
        params["costs"] = policy_costs(options.costs, tx.roster)
    if params:
        tx.snapshot.policy.with_params(**params)  # refused unless the policy can do it
    row: dict[str, Any] = {}
    if "expire_after" in given:
        row["expire_after"] = seconds(given["expire_after"])
    if "keep_decisions" in given:
        row["keep_decisions"] = decisions_to_keep(given["keep_decisions"])
    tx.changing()
    if tx.row.clipped and before.outside == "clip" and ("reward_range" in params or options.outside != "clip"):
        options = replace(options, clipped_to=(*before.clipped_to, (tx.row.low, tx.row.high)))
    if params:
        change_params(tx, **params)
    if "costs" in params:
        most = max(options.costs_most, most_cost(options.costs, tx.row.k))
        options = replace(options, costs_from=tx.row.step, costs_most=most)
    if (options.control, options.control_share) != (before.control, before.control_share):
        options = replace(options, control_from=tx.row.decided, seed=options.seed or new_stamp())
        restart_comparison(tx)
    if any(getattr(options, name) != getattr(before, name) for name in ("stop_when", "constraints", "costs")):
        tx.row.look = "{}"
    tx.row.options = options.to_text()
    for name, value in row.items():
        setattr(tx.row, name, value)
    tx.row.compact_at = compact_at(tx.row)
    if "constraints" in params:
        tx.note("changed", f"rules: {rules_text(options.constraints)}")
    if "costs" in params:
        tx.note("changed", f"costs: {costs_text(options.costs)}")
    if others := sorted({*own, *row} - {"constraints", "costs"}):
        tx.note("configured", ", ".join(others))


def _params(tx: Transaction, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changed parameters of the policy, checked."""
    policy = tx.snapshot.policy
    params = {name: given[name] for name in _OF_POLICY if name in given}
    if "reward_range" in params:
        low, high = params["reward_range"] = check_range(params["reward_range"])
        if low > tx.row.low or high < tx.row.high:
            raise BadInput(
                f"a range can be widened only: it is {tx.row.low:g} to {tx.row.high:g}, and rewards of all of it may "
                "have been recorded"
            )
    now = {**policy.params, "reward_range": policy.reward_range}
    return {name: value for name, value in params.items() if now.get(name) != value}
