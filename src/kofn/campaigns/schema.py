"""The tables of a store, and the steps that bring an older store up to date.

A table is listed with the version that brought it. What is released stays as it is: a later version adds tables here,
or alters them in its own step, so that a new store and an old one end up the same.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    inspect,
    select,
    text,
)

METADATA = MetaData()


def _table(name: str, *columns: Column[object] | UniqueConstraint | Index) -> Table:
    """A table whose rows lie in the order of their key, also on SQLite."""
    return Table(f"kofn_{name}", METADATA, *columns, sqlite_with_rowid=False)


def _key(name: str, kind: type[Integer] | type[BigInteger] = BigInteger) -> Column[object]:
    return Column(name, kind, primary_key=True, autoincrement=False)


def _whole(name: str) -> Column[object]:
    return Column(name, BigInteger, nullable=False)


def _number(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, Double, nullable=nullable)


def _text(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, Text, nullable=nullable)


VERSION = Table("kofn_version", METADATA, Column("version", Integer, nullable=False))

CAMPAIGNS = Table(
    "kofn_campaigns",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    *map(_text, ("state", "policy", "direction", "secret")),
    *map(_number, ("low", "high", "expire_after", "created", "changed", "total", "width")),
    _number("next_due", nullable=True),
    *map(_whole, ("k", "n_arms", "keep_decisions", "version", "roster", "step", "decided", "cursor", "rows", "others")),
    *map(_whole, ("wanted", "told", "unasked", "spared", "in_flight", "expired", "rewarded", "totalled", "totals")),
    *map(_whole, ("kept", "compact_at", "compacted", "forgotten", "buckets", "events")),
    sqlite_autoincrement=True,  # the number of a deleted campaign is never given again: others may still hold it
)
"""A row per campaign: its settings and its counters. Whoever writes to a campaign locks this row first."""

ROSTERS = _table("rosters", _key("campaign", Integer), *map(_text, ("names", "active", "origin", "changes")))
"""The names of all arms that a campaign ever had, the numbers of those it has, the policy it began with, and the steps
at which arms came and went."""

STATES = _table("states", _key("campaign", Integer), *map(_text, ("record", "played")))
"""The policy's record when it last learned, and how often each arm had been played by then."""

PLANS = _table(
    "plans",
    _key("campaign", Integer),
    _key("row"),
    _whole("key"),
    _text("subset"),
    *map(_whole, ("times", "out", "count")),
    *map(_number, ("total", "squares")),
)
"""The plan on its way, a row per subset: how often it is wanted, out, and told. After its rows come those of subsets
that were told without being planned: wanted 0 times, or -1 times if the policy cannot learn from them."""

PLANS_BY_SUBSET = Index("kofn_plans_by_subset", PLANS.c.campaign, PLANS.c.key)

RUNS = _table(
    "runs",
    _key("campaign", Integer),
    _key("first"),
    *map(_whole, ("count", "open", "salt", "step", "row")),
    _text("subset"),
    _number("at"),
    _number("due", nullable=True),
)
"""Decisions handed out: `count` of the same subset, numbered from `first`, of which `open` have no reward. `due` is
when they expire, and empty when they have expired or been answered."""

RUNS_DUE = Index(
    "kofn_runs_due",
    RUNS.c.campaign,
    RUNS.c.due,
    sqlite_where=RUNS.c.due.is_not(None),
    postgresql_where=RUNS.c.due.is_not(None),
)

REWARDS = _table(
    "rewards",
    _key("campaign", Integer),
    _key("first"),
    _key("place"),
    *map(_number, ("value", "at")),
    *map(_whole, ("step", "row")),
)
"""The reward of a decision, and where it counted: in which row of the plan of which step; -1 for nowhere."""

TOTALS = _table(
    "totals",
    _key("campaign", Integer),
    _key("number"),
    _text("key", nullable=True),
    _text("subset"),
    _whole("count"),
    *map(_number, ("total", "squares", "at")),
    *map(_whole, ("step", "row")),
    UniqueConstraint("campaign", "key"),
)
"""What plays earned together that were told as a sum."""

BUCKETS = _table(
    "buckets", _key("campaign", Integer), _key("slot"), *map(_whole, ("decided", "rewarded")), _number("total")
)
"""What happened in each slot of `width` seconds."""

EVENTS = _table("events", _key("campaign", Integer), _key("number"), _number("at"), *map(_text, ("kind", "says")))

TOKENS = Table(
    "kofn_tokens",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("hash", Text, nullable=False, unique=True),
    *map(_text, ("name", "scope")),
    _text("campaign", nullable=True),
    _number("created"),
    _number("used", nullable=True),
)
"""Who may use the service: a token's hash, its scope (read or full) and, if it is for one only, the campaign."""

OF_CAMPAIGN = (ROSTERS, STATES, PLANS, RUNS, REWARDS, TOTALS, BUCKETS, EVENTS)
"""The tables whose rows belong to one campaign."""


def _first(connection: Connection) -> None:
    METADATA.create_all(connection, [CAMPAIGNS, *OF_CAMPAIGN])


def _tokens(connection: Connection) -> None:
    METADATA.create_all(connection, [TOKENS])


MIGRATIONS: list[Callable[[Connection], None]] = [_first, _tokens]
"""The step at index i leads to version i + 1."""


def version_of(connection: Connection) -> int:
    """The version of a store; 0 for one without our tables."""
    if not inspect(connection).has_table(VERSION.name):
        return 0
    return connection.execute(select(VERSION.c.version)).scalar() or 0


def migrate(connection: Connection) -> None:
    """Bring a store up to date, in the transaction of `connection`, which keeps all others out."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(5266417)"))
    version = version_of(connection)
    if version == 0:
        VERSION.create(connection, checkfirst=True)
    for step in MIGRATIONS[version:]:
        step(connection)
    if version < len(MIGRATIONS):
        connection.execute(VERSION.delete())
        connection.execute(VERSION.insert().values(version=len(MIGRATIONS)))
