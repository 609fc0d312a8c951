"""A new campaign: its settings checked, its policy made, its first plan written."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any, SupportsIndex

import numpy as np
from sqlalchemy import Connection, select

from kofn.campaigns.head import Base, Head, Roster, insert_head, record_of
from kofn.campaigns.history import NARROWEST
from kofn.campaigns.learning import write_base
from kofn.campaigns.schema import CAMPAIGNS, ROSTERS
from kofn.campaigns.upkeep import look_again_at
from kofn.core import BadInput, CampaignExists, Policy, Seed, whole
from kofn.policies.registry import make_policy, policy_named

WEEK = 7 * 24 * 3600.0
"""Seconds after which a decision without a reward is wanted again."""

KEEP, MOST_KEPT = 100_000, 10**12
"""Answered decisions that are kept one by one, and how many that may be."""


def seconds(after: timedelta | float) -> float:
    """A duration as seconds, at least a thousandth of one."""
    length = after.total_seconds() if isinstance(after, timedelta) else after
    if isinstance(length, bool) or not isinstance(length, int | float) or not 1e-3 <= length < 1e10:
        raise BadInput(f"expire_after is a timedelta or a number of seconds above 0, not {after!r}")
    return float(length)


def keeping(decisions: SupportsIndex) -> int:
    """How many answered decisions are kept."""
    if (number := whole("keep_decisions", decisions, least=0)) > MOST_KEPT:
        raise BadInput(f"keep_decisions is {MOST_KEPT:,} at the most, not {number:,}")
    return number


def policy_for(
    name: str,
    n_arms: int,
    k: int,
    params: Mapping[str, Any] | None,
    seed: Seed,
    reward_range: tuple[float, float],
    direction: str,
) -> Policy:
    """The policy of a new campaign; one that needs more than a reward per play is refused."""
    if needs := policy_named(name).needs:
        raise BadInput(f"{name} cannot run a campaign, which has one reward per play: it also needs {', '.join(needs)}")
    if params is not None and not isinstance(params, Mapping):
        raise BadInput(f"params are a dict of the policy's own parameters, not {params!r}")
    own = dict(params or {})
    if taken := own.keys() & {"n_arms", "k", "seed", "reward_range", "direction", "name"}:
        raise BadInput(f"params are the policy's own parameters: give {', '.join(sorted(taken))} to create() itself")
    own |= {"reward_range": reward_range, "direction": direction}
    policy = make_policy(name, n_arms, k, seed=seed, **own)
    if not math.isfinite((policy.reward_range[1] - policy.reward_range[0]) ** 2):
        raise BadInput(f"reward_range is too wide to add up squares: {reward_range}")
    return policy


def new_head(name: str, policy: Policy, now: float, expire_after: float, keep_decisions: int) -> Head:
    """The row of a campaign in which nothing has happened."""
    low, high = policy.reward_range
    counters = [each.name for each in fields(Head) if each.type == "int"]
    head = Head(
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
        width=NARROWEST,
        next_due=None,
        k=policy.k,
        n_arms=policy.n_arms,
        keep_decisions=keep_decisions,
        **{each: 0 for each in counters if each not in ("k", "n_arms", "keep_decisions")},
    )
    head.compact_at = look_again_at(head)
    return head


def check_free(connection: Connection, name: str) -> None:
    """Refuse a name that is taken."""
    if connection.execute(select(CAMPAIGNS.c.id).where(CAMPAIGNS.c.name == name)).first():
        raise CampaignExists(f"there is a campaign {name!r} already: open it, or take another name")


def insert(connection: Connection, head: Head, names: list[str], policy: Policy) -> Base:
    """Write all of a new campaign."""
    check_free(connection, head.name)
    insert_head(connection, head)
    active = list(range(len(names)))
    lists = {"names": json.dumps(names), "active": json.dumps(active), "origin": record_of(policy), "changes": "[]"}
    connection.execute(ROSTERS.insert(), lists | {"campaign": head.id})
    base = Base(0, Roster(0, names, active), policy, np.zeros(len(names), np.int64))
    write_base(connection, head, base)
    return base
