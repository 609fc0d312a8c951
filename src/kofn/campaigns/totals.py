"""Rewards that come as sums: what some plays of one subset earned together, for nightly logs."""

from __future__ import annotations

from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from kofn.campaigns.head import Head, Roster, read_base, subset_text
from kofn.campaigns.history import happened
from kofn.campaigns.ids import shown
from kofn.campaigns.ledger import Ledger
from kofn.campaigns.names import arms_named
from kofn.campaigns.schema import TOTALS
from kofn.campaigns.store import Store
from kofn.core import BadInput, BadReward, BadTally, Conflict, Plan, Tally, whole
from kofn.core.plan import check_tally

MOST = 2**53
"""Plays of one total at the most: beyond, floating point no longer counts one by one."""


def take_total(
    store: Store,
    connection: Connection,
    head: Head,
    arms: object,
    count: int,
    total: float,
    squares: float | None,
    key: str | None,
    now: float,
) -> bool:
    """Count the plays, unless they were told before under the same key; whether they are new."""
    base = read_base(store, connection, head)
    subset = _subset(base.roster, arms, head.k)
    count, total, squares = _sums(subset, count, total, squares, head)
    text = subset_text(subset)
    if key is not None and (before := _before(connection, head, key)):
        if before == (text, count, total, squares):
            return False
        raise Conflict(f"a total of {before[1]} plays was told under the key {key!r} before, and it was another")
    ledger = Ledger(store, connection, head)
    if not base.policy.accepts_unplanned and ledger.wanting(text, count) is None:
        raise BadTally(f"{base.policy.name} learns from its plan only, and that does not want {count} plays of {arms}")
    row = ledger.take(text, count, total, squares)
    ledger.write()
    connection.execute(
        TOTALS.insert(),
        {"campaign": head.id, "number": head.totals, "key": key, "subset": text, "count": count, "total": total}
        | {"squares": squares, "at": now, "step": head.step, "row": row},
    )
    head.totals += 1
    head.totalled += count
    head.total += total
    happened(connection, head, now, decided=count, rewarded=count, total=total)
    return True


def _before(connection: Connection, head: Head, key: str) -> tuple[Any, ...] | None:
    if not (isinstance(key, str) and 0 < len(key) <= 200 and key.isprintable()):
        raise BadInput(f"a key is a text of 1 to 200 characters, not {shown(key)}")
    same = TOTALS.c.campaign == head.id, TOTALS.c.key == key
    columns = TOTALS.c.subset, TOTALS.c["count"], TOTALS.c.total, TOTALS.c.squares
    row = connection.execute(select(*columns).where(*same)).one_or_none()
    return None if row is None else tuple(row)


def _subset(roster: Roster, arms: object, k: int) -> tuple[int, ...]:
    subset = arms_named(roster, arms)
    if len(subset) != k:
        raise BadInput(f"a subset has {k} different arms, but {len(subset)} came")
    return subset


def _sums(
    subset: tuple[int, ...], count: int, total: float, squares: float | None, head: Head
) -> tuple[int, float, float]:
    """The sums, if rewards of the campaign's range can have them. Without squares, the most that they can be."""
    low, high = head.low, head.high
    count = whole("count", count)
    if count > MOST:
        raise BadInput(f"a total is of {MOST} plays at the most, not {count}")
    try:
        total = float(total + 0.0)
        squares = (low + high) * total - low * high * count if squares is None else float(squares + 0.0)
    except (TypeError, ValueError, OverflowError):
        raise BadReward(f"total and squares are numbers, not {shown(total)} and {shown(squares)}") from None
    tally = Tally(np.array([count]), np.array([total]), np.array([squares]))
    check_tally(tally, Plan.one(subset, count), Tally.zeros(1), low, high)
    return count, total, squares
