"""The policy's record, made again from the log alone: proof that no reward was lost and none counted twice."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from sqlalchemy import Connection, select

from kofn.campaigns.head import Head, Roster
from kofn.campaigns.learning import Told, feed
from kofn.campaigns.schema import REWARDS, ROSTERS, RUNS, TOTALS
from kofn.core import CampaignError, Policy
from kofn.policies.registry import restore, save

Sums = dict[int, dict[int, tuple[str, int, float, float]]]


def rebuilt(connection: Connection, head: Head) -> tuple[dict[str, Any], dict[int, tuple[int, float, float]]]:
    """The record of the policy when it last learned, and what each row of its plan was told since.

    Sums are exact where the rewards are, as whole numbers and eighths are; others may differ in the last digit.
    """
    if head.compacted:
        raise CampaignError(f"{head.compacted:,} rewards of {head.name!r} are kept as sums only: the log is not whole")
    sums = _sums(connection, head)
    row = connection.execute(select(ROSTERS).where(ROSTERS.c.campaign == head.id)).one()
    names, changes = json.loads(row.names), {change["step"]: change for change in json.loads(row.changes)}
    policy = restore(json.loads(row.origin))
    roster = Roster(0, names, list(range(policy.n_arms)))
    for step in range(head.step):
        planned = len(policy.plan())
        rows = sorted(sums[step].items())
        told = [Told(row, text, int(row < planned), n, total, squares) for row, (text, n, total, squares) in rows]
        feed(policy, roster, told)
        if step in changes:
            policy, roster = _changed(policy, roster, changes[step])
    return save(policy), {row: each[1:] for row, each in sums[head.step].items()}


def _sums(connection: Connection, head: Head) -> Sums:
    """What each row of each step was told, by the log."""
    sums: Sums = defaultdict(dict)
    same = REWARDS.c.campaign == RUNS.c.campaign, REWARDS.c.first == RUNS.c.first
    rewards = select(REWARDS.c.step, REWARDS.c.row, RUNS.c.subset, REWARDS.c.value).join(RUNS, same[0] & same[1])
    for step, row, subset, value in connection.execute(rewards.where(REWARDS.c.campaign == head.id)):
        _add(sums, step, row, (subset, 1, value, value * value))
    columns = (TOTALS.c[name] for name in ("step", "row", "subset", "count", "total", "squares"))
    for step, row, *rest in connection.execute(select(*columns).where(TOTALS.c.campaign == head.id)):
        _add(sums, step, row, tuple(rest))
    return sums


def _add(sums: Sums, step: int, row: int, more: tuple[str, int, float, float]) -> None:
    if row < 0:
        return
    _, count, total, squares = sums[step].get(row, ("", 0, 0.0, 0.0))
    sums[step][row] = more[0], count + more[1], total + more[2], squares + more[3]


def _changed(policy: Policy, roster: Roster, change: dict[str, int]) -> tuple[Policy, Roster]:
    active = roster.active
    if "added" in change:
        return policy.with_arms(list(range(len(active))), 1), Roster(0, roster.names, [*active, change["added"]])
    keep = [index for index, arm in enumerate(active) if arm != change["retired"]]
    return policy.with_arms(keep), Roster(0, roster.names, [active[index] for index in keep])
