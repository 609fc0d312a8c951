"""Totals: what several plays of one subset earned together, from logs that hold sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select

from kofn.campaigns.append import WIDEST
from kofn.campaigns.fold import Transaction
from kofn.campaigns.roster import subset_from, subset_text
from kofn.campaigns.serving import Serving
from kofn.campaigns.settings import Settings
from kofn.campaigns.store.database import Store
from kofn.campaigns.store.schema import TOTALS
from kofn.core import BadInput, BadReward, BadTally, Conflict, NoSuchCampaign, NotRunning, Plan, Subset, Tally, whole
from kofn.core.checks import LARGEST_REWARD, shown
from kofn.core.plan import check_tally
from kofn.core.responses import Rewarded

MAX_COUNT = 2**53
"""Most plays of one total: above it, floating-point numbers no longer count one by one."""

_T = TOTALS.c


def record_total(
    store: Store,
    serving: Serving,
    secret: bytes,
    arms: object,
    count: int,
    total: float,
    squares: float | None,
    key: str | None,
    context: Mapping[str, Any] | None,
) -> Rewarded:
    """Append the total of `count` plays, unless it is recorded under this key already."""
    settings, roster = serving.settings, serving.roster
    if serving.secret != secret:
        raise NoSuchCampaign(f"the campaign {serving.name!r} has been deleted, or its store replaced: open it again")
    if serving.state == "archived":
        raise NotRunning(f"the campaign {serving.name!r} is archived: it takes no rewards")
    subset = roster.subset_of(arms, settings.k, settings.fewest)
    segment = serving.segment_of(context)
    given = squares
    count, total, squares = _checked_sums(_range_for(settings, count, total, squares), subset, count, total, squares)
    text = subset_text(subset)
    if not settings.learns_from_all and not any(row[0] == text and row[1] >= count for row in serving.plan.rows):
        raise BadTally(
            f"{settings.policy} learns from its plan only, and {count} plays of {arms} are more than its plan has left"
        )

    def work(connection: Connection) -> Rewarded:
        tx = Transaction.open(store, connection, serving.id)
        if key is not None:
            columns = _T.subset, _T.context, _T.count, _T.total, _T.squares
            found = select(*columns).where(_T.campaign == serving.id, _T.key == key)
            before = connection.execute(found).one_or_none()
            if before is not None:
                if before[:4] != (text, segment, count, total) or (given is not None and before[4] != squares):
                    raise Conflict(
                        f"another total, of {before[2]} plays, is already recorded under the key {key!r}: use a new key"
                    )
                return Rewarded(0, count)
        last = connection.execute(select(func.max(_T.number)).where(_T.campaign == serving.id)).scalar()
        values = {"number": max(last or 0, tx.row.cut.totals) + 1, "key": key, "subset": text, "count": count}
        values |= {"total": total, "squares": squares, "at": tx.now, "context": segment}
        values["cost"] = settings.cost_of(roster.names, subset_from(text))
        connection.execute(TOTALS.insert(), {"campaign": serving.id, **values})
        return Rewarded(count, 0)

    done = store.locked(serving.id, work)
    store.touch([serving.id])
    return done


def _range_for(settings: Settings, count: Any, total: Any, squares: Any) -> tuple[float, float]:
    """Return the range that the sums must fit: a campaign that learns its range takes more. A fold widens it."""
    low, high = settings.reward_range
    if settings.outside != "widen":
        return low, high
    try:
        mean = total / count
        variance = 0.0 if squares is None else squares / count - mean * mean
        most = mean + variance / (mean - low) if mean > low else mean
        needed = [number for number in (mean, most) if math.isfinite(number)]
    except (TypeError, ValueError, ArithmeticError):
        return low, high
    for number in needed:
        beyond = max(low - number, number - high)
        if not (abs(number) <= LARGEST_REWARD and beyond <= WIDEST * (high - low)):
            raise BadReward(f"a reward must be at most {WIDEST:,.0f} times the range outside it; got {shown(number)}")
    return min([low, *needed]), max([high, *needed])


def _checked_sums(
    limits: tuple[float, float], subset: Subset, count: int, total: float, squares: float | None
) -> tuple[int, float, float]:
    """Return the sums if rewards in the campaign's range can have them. Squares default to their largest value."""
    low, high = limits
    count = whole("count", count)
    if count > MAX_COUNT:
        raise BadInput(f"a total can be of at most {MAX_COUNT:,} plays; got {count:,}")
    try:
        total = float(total + 0.0)
        squares = (low + high) * total - low * high * count if squares is None else float(squares + 0.0)
    except (TypeError, ValueError, OverflowError):
        raise BadReward(f"total and squares must be numbers; got {shown(total)} and {shown(squares)}") from None
    if not (math.isfinite(total) and math.isfinite(squares)):
        raise BadReward(f"total and squares must be finite numbers; got {total:g} and {squares:g}")
    tally = Tally(np.array([count]), np.array([total]), np.array([squares]))
    check_tally(tally, Plan.one(subset, count), Tally.zeros(1), low, high)
    return count, total, squares
