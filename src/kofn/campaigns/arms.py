"""Arms that come and go while a campaign runs. Nothing that was learned of the others is lost."""

from __future__ import annotations

import copy
import json

import numpy as np
from sqlalchemy import Connection, select

from kofn.campaigns.head import Base, Head, Roster, read_base
from kofn.campaigns.ids import shown
from kofn.campaigns.learning import feed, played_by, told_rows, write_base
from kofn.campaigns.names import arm_name
from kofn.campaigns.schema import ROSTERS
from kofn.campaigns.store import Store
from kofn.core import BadInput


def add(store: Store, connection: Connection, head: Head, name: str) -> Base:
    """The base with another arm, which is tried as the first ones were."""
    base = read_base(store, connection, head)
    roster = base.roster
    if arm_name(name) in roster.names:
        there = "there is an arm" if name in roster.number else "there was an arm"
        raise BadInput(f"{there} {name!r} already: take another name")
    changed = Roster(head.roster + 1, [*roster.names, name], [*roster.active, len(roster.names)])
    return _change(connection, head, base, changed, list(range(len(roster.active))), {"added": len(roster.names)})


def retire(store: Store, connection: Connection, head: Head, name: str) -> Base:
    """The base without this arm. Decisions that have it may still be rewarded; they are counted, not learned from."""
    base = read_base(store, connection, head)
    roster = base.roster
    if not isinstance(name, str) or name not in roster.number:
        raise BadInput(f"there is no arm {shown(name)} to retire")
    if len(roster.active) <= head.k + 1:
        raise BadInput(f"{len(roster.active)} arms are left for {head.k} places: add one before you retire {name!r}")
    gone = roster.number[name]
    keep = [index for index, arm in enumerate(roster.active) if arm != gone]
    changed = Roster(head.roster + 1, roster.names, [roster.active[index] for index in keep])
    return _change(connection, head, base, changed, keep, {"retired": gone})


def _change(
    connection: Connection, head: Head, base: Base, roster: Roster, keep: list[int], change: dict[str, int]
) -> Base:
    ours, new = ROSTERS.c.campaign == head.id, int("added" in change)
    rows = told_rows(connection, head)
    policy = copy.deepcopy(base.policy)
    feed(policy, base.roster, rows)
    policy = policy.with_arms(keep, new)
    played = np.concatenate([played_by(base, rows), np.zeros(new, np.int64)])
    fresh = Base(head.step + 1, roster, policy, played)
    changes = json.loads(connection.execute(select(ROSTERS.c.changes).where(ours)).scalar_one())
    changes.append({"step": head.step, **change})
    head.roster = roster.version
    head.n_arms = len(roster.active)
    lists = {"names": json.dumps(roster.names), "active": json.dumps(roster.active), "changes": json.dumps(changes)}
    connection.execute(ROSTERS.update().where(ours).values(lists))
    write_base(connection, head, fresh)
    return fresh
