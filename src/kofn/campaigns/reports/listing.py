"""Many campaigns at once: pages of their summaries, sums over all, and what has changed since the last look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select

from kofn.campaigns.fold import Row
from kofn.campaigns.reports.view import summary
from kofn.campaigns.store.database import Store
from kofn.campaigns.store.schema import CAMPAIGNS
from kofn.core.responses import State, Summary

LOOK_BACK = 10.0
"""Seconds. A look first reads the campaigns that changed this long before the latest change that it knows, or later. A
higher value reads more rows; a lower value more often compares the versions of all campaigns."""

IDS_PER_QUERY = 500
"""Campaigns that one statement reads by their ids. SQLite limits the number of parameters."""

_C = CAMPAIGNS.c


@dataclass(frozen=True)
class Page:
    """A page of campaigns, ordered by name, and how many there are.

    `count` is the number of all campaigns that match, and `states` the number in each state, whichever state was asked
    for.
    """

    summaries: list[Summary]
    count: int
    states: dict[str, int]


def list_page(
    store: Store,
    *,
    limit: int,
    offset: int = 0,
    search: str = "",
    state: State | None = None,
    name: str | None = None,
) -> Page:
    """Return a page of the campaigns whose names contain `search`, in that state; with `name`, of that campaign only.

    Archived campaigns are listed only if they are asked for. ASCII letters match in either case.
    """
    if not search.isprintable():  # no campaign has such a name, and not every database accepts such a text
        return Page([], 0, {})
    chosen: list[ColumnElement[bool]] = [] if name is None else [_C.name == name]
    if search:
        chosen.append(_C.name.icontains(search, autoescape=True))
    of_state = [_C.state != "archived"] if state is None else [_C.state == state]
    with store.read() as connection:
        counted = connection.execute(select(_C.state, func.count()).where(*chosen).group_by(_C.state))
        states: dict[str, int] = {row[0]: int(row[1]) for row in counted}
        query = select(CAMPAIGNS).where(*chosen, *of_state).order_by(_C.name).limit(limit).offset(offset)
        found = [_summary(row) for row in connection.execute(query).mappings()]
    shown = sum(states.values()) - states.get("archived", 0)
    return Page(found, shown if state is None else states.get(state, 0), states)


def recent_rows(connection: Connection, limit: int) -> list[Row]:
    """Return the campaigns that changed last, at most `limit`, the latest first."""
    query = select(CAMPAIGNS).order_by(_C.changed.desc(), _C.id).limit(limit)
    return [Row.of(row) for row in connection.execute(query).mappings()]


def totals(connection: Connection) -> dict[str, dict[str, float]]:
    """Return, for each state, the number of campaigns and the sums of their plays, rewards and open decisions."""
    sums = {
        "campaigns": func.count(),
        "plays": func.sum(_C.plays),
        "rewards": func.sum(_C.rewards),
        "in_flight": func.sum(_C.in_flight),
        "expired": func.sum(_C.expired),
    }
    found = connection.execute(select(_C.state, *sums.values()).group_by(_C.state))
    return {row[0]: dict(zip(sums, map(float, row[1:]), strict=True)) for row in found}


class Watch:
    """Finds what has changed since the last look, at little cost: three sums tell whether anything has.

    Versions, with the numbers of folds, only grow, and ids are never used again. So the number of campaigns, the sum of
    their versions and the highest id change whenever a campaign is created, changed or deleted. If they have, recently
    changed rows are read.
    If these do not account for the sums (a campaign was deleted, clocks differ, or a backup was restored), the versions
    of all campaigns are compared.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[int, tuple[str, int]] = {}  # id: name, version
        self._sums: tuple[int, int, int] = (0, 0, 0)
        self._latest = 0.0

    def start(self) -> None:
        """Take the present state as known."""
        with self._store.read() as connection:
            self._known = _versions(connection)
            self._sums, self._latest = _sums(connection)

    def look(self) -> dict[str, Summary | None]:
        """Return the campaigns that were created, changed or deleted (None) since the last look, by name."""
        with self._store.read() as connection:
            sums, latest = _sums(connection)
            if sums == self._sums:
                return {}
            newer = select(CAMPAIGNS).where(_C.changed >= self._latest - LOOK_BACK)
            rows = self._unknown([dict(row) for row in connection.execute(newer).mappings()])
            known = self._known | {row["id"]: (row["name"], _version(row)) for row in rows}
            if _sums_of(known) != sums:
                now = _versions(connection)
                rows = self._unknown(_rows(connection, [id for id, seen in now.items() if self._known.get(id) != seen]))
                known = now
        gone = {name: None for id, (name, _) in self._known.items() if id not in known}
        self._known, self._sums, self._latest = known, sums, latest
        return gone | {row["name"]: _summary(row) for row in rows}

    def _unknown(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if self._known.get(row["id"]) != (row["name"], _version(row))]


def _sums(connection: Connection) -> tuple[tuple[int, int, int], float]:
    found = select(func.count(), func.sum(_C.version + _C.folds), func.max(_C.id), func.max(_C.changed)).select_from(
        CAMPAIGNS
    )
    count, versions, last, latest = connection.execute(found).one()
    return (int(count), int(versions or 0), int(last or 0)), float(latest or 0.0)


def _sums_of(known: dict[int, tuple[str, int]]) -> tuple[int, int, int]:
    return len(known), sum(version for _, version in known.values()), max(known, default=0)


def _versions(connection: Connection) -> dict[int, tuple[str, int]]:
    found = connection.execute(select(_C.id, _C.name, _C.version + _C.folds))
    return {int(id): (name, int(version)) for id, name, version in found}


def _rows(connection: Connection, ids: list[int]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for at in range(0, len(ids), IDS_PER_QUERY):
        query = select(CAMPAIGNS).where(_C.id.in_(ids[at : at + IDS_PER_QUERY]))
        found += [dict(row) for row in connection.execute(query).mappings()]
    return found


def _version(row: Any) -> int:
    return int(row["version"] + row["folds"])


def _summary(row: Any) -> Summary:
    return summary(Row.of(row))
