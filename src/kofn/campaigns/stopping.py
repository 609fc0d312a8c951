"""What the posterior and the rewards say now: whether a campaign is ready to ship, and whether to return to control."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from kofn.campaigns.allocation import lift_of
from kofn.campaigns.evidence import Look
from kofn.campaigns.learn import insight_of, listed_names
from kofn.campaigns.records.rows import CampaignRow
from kofn.campaigns.records.transaction import Transaction
from kofn.campaigns.segments import best_of_segment, best_of_segments
from kofn.core import Subset
from kofn.core.contexts import bounded

MAX_SHIPPED = 100
"""Shipped subsets that are kept, and as many to segments as these need at most. Rewards of decisions of older ones that
are not stored are refused."""


def assess(tx: Transaction) -> None:
    """Apply the stop rule after an update of the policy, and the breaker after rewards of the control."""
    if tx.row.state != "running":
        return
    if tx.options.stop_when is not None:
        _look(tx)
    if tx.options.breaker and (found := lift_of(tx.row)) is not None and found.harmful:
        control = tx.options.control
        assert isinstance(control, tuple)
        tx.note("breaker", f"learning loses at least {-(found.high or 0.0):.4g} per play against the control")
        ship(tx, control)


def _look(tx: Transaction) -> None:
    """Look once per update of the policy; note when the campaign becomes ready, and ship if it is to."""
    stop, row = tx.options.stop, tx.row
    before = look_of(row)
    if stop is None or (before is not None and before.plays >= tx.snapshot.policy.plays):
        return
    now = stop.look(insight_of(tx.snapshot), tx.snapshot.policy.plays, before)
    row.look = json.dumps(now.to_dict())
    if now.ready and not (before is not None and before.ready):
        tx.note("ready", now.reason)
    if now.ready and tx.options.ship_when_ready:
        ship(tx, tx.snapshot.best(), best_of_segments(tx.snapshot))


def look_of(row: CampaignRow) -> Look | None:
    """Return the latest look of the stop rule."""
    found = json.loads(row.look)
    return Look.from_dict(found) if found else None


def ship(
    tx: Transaction, subset: Subset, of_segments: Mapping[str, Subset] | None = None, *, store: bool = True
) -> None:
    """Give everyone this subset from now on, or each segment its own. The second time, nothing changes."""
    known, to = tx.options, tuple((of_segments or {}).items())
    before = tuple(each for each in known.shipped if each != subset)
    before_to = tuple(each for each in (*known.shipped_before, *known.shipped_to) if each not in to)
    options = replace(
        known,
        shipped=(*before, subset)[-MAX_SHIPPED:],
        by_segment=bool(to),
        shipped_to=to,
        shipped_before=before_to[-MAX_SHIPPED:],
        store_shipped=store,
    )
    if tx.row.state == "shipped" and options == known:
        return
    tx.changing()
    tx.row.options = options.to_text()
    tx.row.state = "shipped"
    of = f"; each of {len(to)} segments gets its own best subset" if to else ""
    tx.note("shipped", listed_names(tx.roster.names_of(subset)) + of)


def ship_to(tx: Transaction, segment: str | None) -> str | None:
    """Return the segment as which a shipped campaign serves this one; None if there are no segments.

    A segment that comes for the first time gets a subset for good: what the policy expects to be best for it, or what
    everyone gets. So ids of decisions that are not stored name its segment too.
    """
    options = tx.options
    if segment is None:
        return None
    known = [key for key, _ in options.shipped_to]
    served = bounded(segment, known)
    if served not in known:
        subset = best_of_segment(tx.snapshot, served) if options.by_segment else options.shipped[-1]
        tx.changing()
        tx.row.options = replace(options, shipped_to=(*options.shipped_to, (served, subset))).to_text()
    return served
