"""The tables of a store, as the code uses them.

A new store gets these tables. To change one, change it here and add a step to `migrations`, which changes older stores.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, Table, Text, UniqueConstraint

METADATA = MetaData()


def _table(name: str, *columns: Column[object] | UniqueConstraint | Index) -> Table:
    """Return a table that SQLite stores in the order of its primary key."""
    return Table(f"kofn_{name}", METADATA, *columns, sqlite_with_rowid=False)


def _key(name: str, kind: type[Integer] | type[BigInteger] = BigInteger) -> Column[object]:
    return Column(name, kind, primary_key=True, autoincrement=False)


def _whole(name: str) -> Column[object]:
    return Column(name, BigInteger, nullable=False)


def _number(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, Double, nullable=nullable)


def _text(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, Text, nullable=nullable)


VERSION = Table("kofn_schema", METADATA, Column("version", Integer, nullable=False))
"""One row: the version of these tables (`migrations`)."""

CAMPAIGNS = Table(
    "kofn_campaigns",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    *map(_text, ("state", "policy", "direction", "secret")),
    *map(_number, ("low", "high", "expire_after", "created", "changed", "total", "slot_width")),
    _number("next_due", nullable=True),
    *map(_whole, ("k", "n_arms", "keep_decisions", "version", "roster_version", "step", "decided", "cursor")),
    *map(_whole, ("plan_rows", "unplanned", "plan_plays", "observed", "free", "fillers")),
    *map(_whole, ("in_flight", "expired", "rewarded", "totalled", "totals")),
    *map(_whole, ("kept", "compact_at", "compacted", "forgotten", "buckets", "events")),
    *map(_whole, ("stamp", "mark", "overtaken")),
    _number("waited"),
    _text("made_by"),
    *map(_text, ("options", "look")),
    *map(_whole, ("plan_total", "clipped", "notified")),
    *map(_whole, ("learned_decided", "learned_rewarded", "control_decided", "control_rewarded")),
    *map(_number, ("learned_total", "learned_squares", "control_total", "control_squares")),
    sqlite_autoincrement=True,  # the id of a deleted campaign is never used again: other processes may hold it
)
"""One row per campaign: its settings and counters (`rows.CampaignRow`). Every writing transaction locks this row."""

ROSTERS = _table("rosters", _key("campaign", Integer), *map(_text, ("names", "active", "origin", "changes")))
"""The names of all arms that a campaign ever had, the numbers of the active ones, the record of the policy at the
start, and the steps at which arms were added and retired; all as JSON."""

STATES = _table("states", _key("campaign", Integer), *map(_text, ("record", "played")))
"""The policy's record as of its last update, and how often each arm had been played by then; both as JSON."""

PLANS = _table(
    "plans",
    _key("campaign", Integer),
    _key("row"),
    _whole("key"),
    _text("subset"),
    *map(_whole, ("times", "in_flight", "count")),
    *map(_number, ("total", "squares")),
    _text("context", nullable=True),
)
"""The open plan, a row per subset: how often it is planned (`times`), in flight, and observed (`count`), and what it
earned. Rows from `plan_rows` on are unplanned subsets: planned 0 times, or -1 times if the policy cannot learn from
them. If the policy takes a context, `context` is the key of the row's segment, else NULL. `key` is a hash of both."""

PLANS_BY_SUBSET = Index("kofn_plans_by_subset", PLANS.c.campaign, PLANS.c.key)

BATCHES = _table(
    "batches",
    _key("campaign", Integer),
    _key("first"),
    *map(_whole, ("count", "open", "salt", "step", "row")),
    _text("subset"),
    _number("at"),
    _number("due", nullable=True),
    Column("request", BigInteger),
    _whole("group"),
    _number("propensity", nullable=True),
    *(_text(name, nullable=True) for name in ("key", "metadata", "context")),
)
"""Decisions of one subset that were handed out together: `count` of them, numbered from `first`, of which `open` have
no reward. `due` is when they expire; it is NULL when they have expired or all have a reward. `request` is a hash of the
`key` of the call that made them, or NULL. `group` says who chose the subset (`allocation.GROUPS`), and `propensity`
with which probability, or NULL if that is not known. `metadata` is the caller's, as JSON. `context` is the key of the
segment that the decisions are for; NULL if the policy takes no context, or if the segment is no longer known."""

BATCHES_DUE = Index(
    "kofn_batches_due",
    BATCHES.c.campaign,
    BATCHES.c.due,
    sqlite_where=BATCHES.c.due.is_not(None),
    postgresql_where=BATCHES.c.due.is_not(None),
)

BATCHES_BY_REQUEST = Index(
    "kofn_batches_by_request",
    BATCHES.c.campaign,
    BATCHES.c.request,
    sqlite_where=BATCHES.c.request.is_not(None),
    postgresql_where=BATCHES.c.request.is_not(None),
)

REWARDS = _table(
    "rewards",
    _key("campaign", Integer),
    _key("first"),
    _key("place"),
    *map(_number, ("value", "at")),
    *map(_whole, ("step", "row")),
)
"""The reward of a decision, and where it was counted: the step and the row of its plan, or row -1 for nowhere."""

TOTALS = _table(
    "totals",
    _key("campaign", Integer),
    _key("number"),
    _text("key", nullable=True),
    _text("subset"),
    _whole("count"),
    *map(_number, ("total", "squares", "at")),
    *map(_whole, ("step", "row")),
    _text("context", nullable=True),
    UniqueConstraint("campaign", "key"),
)
"""What several plays of one subset, in one segment if there are segments, earned together, reported as a total."""

BUCKETS = _table(
    "buckets",
    _key("campaign", Integer),
    _key("slot"),
    *map(_whole, ("decided", "rewarded")),
    *map(_number, ("total", "waited")),
)
"""The history: decisions and rewards in each slot of `slot_width` seconds, and the seconds between the two, summed."""

ESTIMATES = _table(
    "estimates",
    _key("campaign", Integer),
    _key("step"),
    _number("at"),
    _whole("rewards"),
    *(_number(name, nullable=True) for name in ("value", "low", "high", "loss")),
    *map(_text, ("best", "effects")),
    *(_number(name, nullable=True) for name in ("lift", "lift_low", "lift_high")),
)
"""What was known after an update of the policy: the value of the best subset and the expected loss, NULL if the policy
does not estimate them; as JSON, the effects of the arms by number, unless there are too many; and the lift over the
control with its interval, NULL without a control."""

EVENTS = _table("events", _key("campaign", Integer), _key("number"), _number("at"), *map(_text, ("kind", "message")))

TOKENS = Table(
    "kofn_tokens",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("hash", Text, nullable=False, unique=True),
    *map(_text, ("name", "scope")),
    _text("campaign", nullable=True),
    _number("created"),
    _number("used", nullable=True),
    _number("expires", nullable=True),
)
"""Who may use the service: the hash of a token, its scope (`kofn.service.security.tokens`), the campaign if it is
limited to one, and when it expires."""

SETTINGS = Table(
    "kofn_settings", METADATA, Column("name", Text, primary_key=True), Column("value", Text, nullable=False)
)
"""Facts about the whole store. `tokens` is `required` once the store has had a token."""

OF_CAMPAIGN = (ROSTERS, STATES, PLANS, BATCHES, REWARDS, TOTALS, BUCKETS, EVENTS, ESTIMATES)
"""The tables whose rows belong to one campaign."""
