"""A new campaign: its settings are checked, its policy is made, its first plan is written."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any, SupportsIndex

import numpy as np
from sqlalchemy import Connection, select

from kofn.campaigns.expiry import compact_at
from kofn.campaigns.learn import write_snapshot
from kofn.campaigns.records.costs import most_cost
from kofn.campaigns.records.options import Options, duration, with_options
from kofn.campaigns.records.rows import CampaignRow, PolicySnapshot, Roster, insert_row, record_text
from kofn.campaigns.records.transaction import NARROWEST, Transaction
from kofn.campaigns.store.schema import CAMPAIGNS, ROSTERS
from kofn.core import BadInput, CampaignExists, Policy, Seed, seed_number, whole
from kofn.core.campaign_settings import CampaignOptions
from kofn.policies.registry import make_policy, policy_named

WEEK = 7 * 24 * 3600.0
"""Default of `expire_after`, in seconds."""

KEEP, MAX_KEEP = 100_000, 10**12
"""Default and largest value of `keep_decisions`."""


def seconds(expire_after: timedelta | float) -> float:
    """Return `expire_after` in seconds, at least 0.001, or raise BadInput."""
    return duration("expire_after", expire_after, least=1e-3)


def decisions_to_keep(number: SupportsIndex) -> int:
    """Return `keep_decisions`, or raise BadInput."""
    if (keep := whole("keep_decisions", number, least=0)) > MAX_KEEP:
        raise BadInput(f"keep_decisions must be at most {MAX_KEEP:,}; got {keep:,}")
    return keep


def policy_for(
    name: str,
    n_arms: int,
    k: int,
    params: Mapping[str, Any] | None,
    seed: Seed,
    reward_range: tuple[float, float],
    direction: str,
    constraints: list[dict[str, Any]] | None = None,
    costs: list[float] | None = None,
) -> Policy:
    """Make the policy of a new campaign; one that needs more than a reward per play is refused."""
    if needs := policy_named(name).needs:
        raise BadInput(
            f"{name} cannot run a campaign, which has one reward per play: it also needs {', '.join(needs)}. Choose "
            "another policy"
        )
    if params is not None and not isinstance(params, Mapping):
        raise BadInput(f"params must be a dict of the policy's own parameters; got {params!r}")
    own = dict(params or {})
    if taken := own.keys() & {"n_arms", "k", "seed", "reward_range", "direction", "constraints", "costs", "name"}:
        raise BadInput(
            f"params must be the policy's own parameters: pass {', '.join(sorted(taken))} to create() itself"
        )
    own |= {"reward_range": reward_range, "direction": direction}
    own |= {} if constraints is None else {"constraints": constraints}
    if costs is not None:
        if "costs" not in policy_named(name).__signature__.parameters:
            raise BadInput(f"{name} does not take costs. Use thompson-sizes, which learns net of them")
        own["costs"] = costs
    return make_policy(name, n_arms, k, seed=seed, **own)


def fewest_of(
    name: str,
    n_arms: int,
    k: int,
    params: Mapping[str, Any] | None,
    seed: Seed,
    reward_range: tuple[float, float],
    direction: str,
) -> int:
    """Return the fewest arms of a subset of this policy."""
    if not policy_named(name).takes_fewest:
        return k
    return policy_for(name, n_arms, k, params, seed, reward_range, direction).fewest


def options_for(roster: Roster, sizes: tuple[int, int], seed: Seed, given: Mapping[str, Any]) -> Options:
    """Return the options of a new campaign, checked. The same seed chooses the control for the same decisions."""
    if unknown := sorted(given.keys() - CampaignOptions.__annotations__.keys()):
        known = ", ".join(CampaignOptions.__annotations__)
        raise BadInput(f"there is no option {', '.join(unknown)}; the options are {known}")
    coin = secrets.randbits(62) if seed is None else seed_number(seed) % 2**62
    options = with_options(Options(seed=coin), roster, sizes, given)
    return replace(options, costs_most=most_cost(options.costs, sizes[1]))


def new_row(
    name: str, policy: Policy, now: float, expire_after: float, keep_decisions: int, options: Options
) -> CampaignRow:
    """Return the row of a campaign in which nothing has happened."""
    low, high = policy.reward_range
    counters = [each.name for each in fields(CampaignRow) if each.type == "int"]
    row = CampaignRow(
        name=name,
        state="running",
        policy=policy.name,
        direction=policy.direction,
        secret=secrets.token_hex(16),
        low=low,
        high=high,
        expire_after=expire_after,
        created=now,
        changed=now,
        total=0.0,
        slot_width=NARROWEST,
        next_due=None,
        k=policy.k,
        n_arms=policy.n_arms,
        keep_decisions=keep_decisions,
        waited=0.0,
        made_by="",
        options=options.to_text(),
        look="{}",
        learned_total=0.0,
        learned_squares=0.0,
        control_total=0.0,
        control_squares=0.0,
        **{each: 0 for each in counters if each not in ("k", "n_arms", "keep_decisions")},
    )
    row.compact_at = compact_at(row)
    return row


def check_free(connection: Connection, name: str) -> None:
    """Raise CampaignExists if the name is taken."""
    if connection.execute(select(CAMPAIGNS.c.id).where(CAMPAIGNS.c.name == name)).first():
        raise CampaignExists(f"a campaign named {name!r} already exists: open it, or choose another name")


def insert(tx: Transaction, roster: Roster, policy: Policy) -> None:
    """Write all rows of a new campaign."""
    check_free(tx.connection, tx.row.name)
    insert_row(tx.connection, tx.row)
    arms = {"names": json.dumps(roster.names), "active": json.dumps(roster.active)}
    tx.execute(ROSTERS.insert(), {**arms, "origin": record_text(policy), "changes": "[]", "campaign": tx.id})
    write_snapshot(tx, PolicySnapshot(0, roster, policy, np.zeros(len(roster.names), np.int64)))
