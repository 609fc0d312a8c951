"""The tables of a store.

A campaign is a log: `decisions` and `events` are appended, and never changed. What follows from them is written by
folds (`kofn.campaigns.fold`): the counters in `campaigns`, the tallies of each learning step in `folds`, and the
policy's `states`.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, Sequence, Table, Text, UniqueConstraint

METADATA = MetaData()


def _table(name: str, *columns: Column[object] | UniqueConstraint | Index) -> Table:
    """Return a table that SQLite stores in the order of its primary key."""
    return Table(f"kofn_{name}", METADATA, *columns, sqlite_with_rowid=False)


def _key(name: str, kind: type[Integer] | type[BigInteger] = BigInteger) -> Column[object]:
    return Column(name, kind, primary_key=True, autoincrement=False)


def _whole(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, BigInteger, nullable=nullable)


def _number(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, Double, nullable=nullable)


def _text(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, Text, nullable=nullable)


VERSION = Table("kofn_schema", METADATA, _text("version"))
"""One row: the version of these tables, and of the records in them (`version`)."""

NUMBERS = Sequence("kofn_numbers", metadata=METADATA)
"""On PostgreSQL, the numbers of decisions and events. On SQLite, which has one writer, they are counted."""

CAMPAIGNS = Table(
    "kofn_campaigns",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    *map(_text, ("state", "secret", "settings")),
    *map(_whole, ("version", "stamp", "arms_version")),
    *map(_number, ("created", "changed", "cut")),
    _number("next_due", nullable=True),
    *map(_whole, ("step", "cut_decisions", "cut_events", "cut_totals")),
    *map(_whole, ("plays", "rewards", "in_flight", "expired", "journal", "notified", "folds")),
    _text("progress"),
    _text("failure", nullable=True),
    _text("made_by"),
    sqlite_autoincrement=True,  # the id of a deleted campaign is never used again: other processes may hold it
)
"""One row per campaign. Changes of settings and new plans raise `version` and draw a new random `stamp`: a decision is
stored only if both are those that it was drawn from. `arms_version` is a new random number after each change of arms: a
restored backup repeats numbers that are counted. A fold sets `cut` (its time), up to which number decisions, events
and totals are counted (`cut_...`), and `progress` (`progress.Progress`); it raises `folds`. `step` is the number of the
open fold, `next_due` when the next window ends, and `failure` why the policy cannot learn."""

ARMS = _table("arms", _key("campaign", Integer), *map(_text, ("names", "active")))
"""The names of all arms that a campaign ever had, and the numbers of the active ones; both as JSON."""

PLANS = _table("plans", _key("campaign", Integer), _text("plan"))
"""What is played: the rows of the policy's plan, and those to play once these are in flight (`serving.ServedPlan`)."""

DECISIONS = _table(
    "decisions",
    _key("campaign", Integer),
    _key("number"),
    *map(_whole, ("salt", "call", "place")),
    *(_whole(name, nullable=True) for name in ("request", "turn")),
    _whole("step"),
    _text("subset"),
    *map(_whole, ("group", "compared", "windowed")),
    _number("propensity", nullable=True),
    *map(_number, ("cost", "at", "due")),
    *(_text(name, nullable=True) for name in ("context", "key", "metadata")),
)
"""One row per decision. `call` is the same random number for all decisions of a call, and `place` their order; the
first has the call's `key` and `metadata`. `request` is a hash of the key, and `turn` counts its calls with new
decisions.
`step` is that of the plan. `group` says who chose the subset (`settings.GROUPS`), `compared` whether it counts in the
comparison with the control, and `propensity` with which probability it was chosen; NULL if that is not known. `cost` is
what its arms cost then. It settles at `due` if it is `windowed`, else it expires then. `context` is the key of its
segment, if there are segments."""

DECISIONS_DUE = Index("kofn_decisions_due", DECISIONS.c.campaign, DECISIONS.c.due)

_KEYED = DECISIONS.c.request.is_not(None)
DECISIONS_BY_REQUEST = Index(
    "kofn_decisions_by_request",
    *(DECISIONS.c[name] for name in ("campaign", "request", "turn", "place")),
    unique=True,
    sqlite_where=_KEYED,
    postgresql_where=_KEYED,
)

EVENTS = _table(
    "events",
    _key("campaign", Integer),
    _key("number"),
    *map(_whole, ("decision", "kind")),
    _text("name"),
    *map(_number, ("value", "at")),
    _whole("counts"),
    UniqueConstraint("campaign", "decision", "kind", "name"),
)
"""What was reported about decisions: rewards (kind 0, no name), what is added to them (1, the name of the event), and
metrics beside them (2, the name of the metric). `counts` is 0 if it came after the decision's window."""

TOTALS = _table(
    "totals",
    _key("campaign", Integer),
    _key("number"),
    _text("key", nullable=True),
    _text("subset"),
    _whole("count"),
    *map(_number, ("total", "squares", "cost", "at")),
    _text("context", nullable=True),
    UniqueConstraint("campaign", "key"),
)
"""What several plays of one subset, in one segment if there are segments, earned together, reported as a total."""

FOLDS = _table(
    "folds",
    _key("campaign", Integer),
    _key("step"),
    _number("at"),
    _text("tallies"),
    *(_text(name, nullable=True) for name in ("change", "record")),
)
"""The learning steps: what was settled since the step before (`tallies`: subset, segment, count, sum, sum of squares),
then what changed in the policy (`change`), both as JSON. The last one is open. `record` is the policy's record after
the step, at the first step and at some later ones."""

STATES = _table(
    "states",
    _key("campaign", Integer),
    _whole("step"),
    _text("record"),
    *(_text(name, nullable=True) for name in ("insight", "segments")),
)
"""The policy's record after a learning step, and what it knew then; all as JSON."""

HISTORY = _table(
    "history",
    _key("campaign", Integer),
    _key("slot"),
    *map(_whole, ("decided", "rewarded", "arrived")),
    *map(_number, ("total", "waited")),
)
"""Slots of `Progress.slot_width` seconds: decisions, settled rewards and their sum, and first events of decisions with
the seconds that they took, summed."""

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
"""What was known after a learning step: the value of the best subset and the expected loss, NULL if the policy does not
estimate them; as JSON, the effects of the arms by number, unless there are too many; and the lift over the control with
its interval, NULL without a control."""

JOURNAL = _table("journal", _key("campaign", Integer), _key("number"), _number("at"), *map(_text, ("kind", "message")))
"""What happened to a campaign: created, paused, learned, alarms..."""

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

OF_CAMPAIGN = (ARMS, PLANS, DECISIONS, EVENTS, TOTALS, FOLDS, STATES, HISTORY, ESTIMATES, JOURNAL)
"""The tables whose rows belong to one campaign."""
