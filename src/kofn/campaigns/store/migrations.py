"""The steps that bring a store up to date. A new store takes all of them, so it ends like a migrated one.

A step that has been released never changes again, and uses nothing of `schema`: the tables of versions 1 and 2 are
written out below as they were. To change a table, change `schema` and append a step.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import Any

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
    text,
)

from kofn.core import StoreError
from kofn.policies import registry

# Version 1: campaigns.

_V1 = MetaData()


def _numbers(*names: str) -> list[Column[Any]]:
    return [Column(name, Double, nullable=False) for name in names]


def _counters(*names: str) -> list[Column[Any]]:
    return [Column(name, BigInteger, nullable=False) for name in names]


def _texts(*names: str) -> list[Column[Any]]:
    return [Column(name, Text, nullable=False) for name in names]


def _v1(name: str, *columns: Column[Any] | UniqueConstraint, key: str = "") -> Table:
    campaign = Column("campaign", Integer, primary_key=True, autoincrement=False)
    keys = [Column(each, BigInteger, primary_key=True, autoincrement=False) for each in key.split()]
    return Table(f"kofn_{name}", _V1, campaign, *keys, *columns, sqlite_with_rowid=False)


Table(
    "kofn_campaigns",
    _V1,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    *_texts("state", "policy", "direction", "secret"),
    *_numbers("low", "high", "expire_after", "created", "changed", "total", "width"),
    Column("next_due", Double),
    *_counters("k", "n_arms", "keep_decisions", "version", "roster", "step", "decided", "cursor", "rows", "others"),
    *_counters("wanted", "told", "unasked", "spared", "in_flight", "expired", "rewarded", "totalled", "totals"),
    *_counters("kept", "compact_at", "compacted", "forgotten", "buckets", "events"),
    sqlite_autoincrement=True,
)
_v1("rosters", *_texts("names", "active", "origin", "changes"))
_v1("states", *_texts("record", "played"))
_plans = _v1(
    "plans",
    *_counters("key"),
    *_texts("subset"),
    *_counters("times", "out", "count"),
    *_numbers("total", "squares"),
    key="row",
)
Index("kofn_plans_by_subset", _plans.c.campaign, _plans.c.key)
_runs = _v1(
    "runs",
    *_counters("count", "open", "salt", "step", "row"),
    *_texts("subset"),
    *_numbers("at"),
    Column("due", Double),
    key="first",
)
_due = _runs.c.due.is_not(None)
Index("kofn_runs_due", _runs.c.campaign, _runs.c.due, sqlite_where=_due, postgresql_where=_due)
_v1("rewards", *_numbers("value", "at"), *_counters("step", "row"), key="first place")
_v1(
    "totals",
    Column("key", Text),
    *_texts("subset"),
    *_counters("count"),
    *_numbers("total", "squares", "at"),
    *_counters("step", "row"),
    UniqueConstraint("campaign", "key"),
    key="number",
)
_v1("buckets", *_counters("decided", "rewarded"), *_numbers("total"), key="slot")
_v1("events", *_numbers("at"), *_texts("kind", "says"), key="number")


def _to_version_1(connection: Connection) -> None:
    _V1.create_all(connection)


# Version 2: tokens of the service.

_V2 = MetaData()
Table(
    "kofn_tokens",
    _V2,
    Column("id", Integer, primary_key=True),
    Column("hash", Text, nullable=False, unique=True),
    *_texts("name", "scope"),
    Column("campaign", Text),
    *_numbers("created"),
    Column("used", Double),
)


def _to_version_2(connection: Connection) -> None:
    _V2.create_all(connection)


# Version 3: one word for one thing; records of policies in format 2.

RENAMED_TABLES_3 = {"kofn_runs": "kofn_batches"}
RENAMED_COLUMNS_3 = {
    "kofn_campaigns": {
        "width": "slot_width",
        "roster": "roster_version",
        "rows": "plan_rows",
        "others": "unplanned",
        "wanted": "plan_plays",
        "told": "observed",
        "unasked": "free",
        "spared": "fillers",
    },
    "kofn_plans": {"out": "in_flight"},
    "kofn_events": {"says": "message"},
}
_RECORDS_3 = {"kofn_rosters": "origin", "kofn_states": "record"}


def upgraded_record(record: Any) -> Any:
    """Return a policy's record of format 1 in the present format."""
    return registry.upgraded(record)


def _to_version_3(connection: Connection) -> None:
    for table, columns in RENAMED_COLUMNS_3.items():
        for old, new in columns.items():
            connection.execute(text(f'ALTER TABLE {table} RENAME COLUMN "{old}" TO "{new}"'))
    connection.execute(text("DROP INDEX kofn_runs_due"))  # SQLite cannot rename an index
    for old, new in RENAMED_TABLES_3.items():
        connection.execute(text(f"ALTER TABLE {old} RENAME TO {new}"))
        if connection.dialect.name == "postgresql":
            connection.execute(text(f"ALTER INDEX {old}_pkey RENAME TO {new}_pkey"))
    connection.execute(text("CREATE INDEX kofn_batches_due ON kofn_batches (campaign, due) WHERE due IS NOT NULL"))
    for table, column in _RECORDS_3.items():
        update = text(f"UPDATE {table} SET {column} = :record WHERE campaign = :campaign")
        for campaign, old in connection.execute(text(f"SELECT campaign, {column} FROM {table}")).all():
            try:
                new = json.dumps(upgraded_record(json.loads(old)), separators=(",", ":"), allow_nan=False)
            except (ValueError, TypeError, KeyError) as why:
                raise StoreError(f"{column} of campaign {campaign} in {table} is not a policy's record: {why}") from why
            connection.execute(update, {"record": new, "campaign": campaign})


# Version 4: stamps of policies, idempotent decisions, plans that do not get stuck, tokens that expire.

ADDED_COLUMNS_4: dict[str, dict[str, Any]] = {
    "kofn_campaigns": {"overtaken": 0, "waited": 0.0},
    "kofn_batches": {"request": None},
}
_V4 = MetaData()
_SETTINGS_4 = Table("kofn_settings", _V4, Column("name", Text, primary_key=True), *_texts("value"))


def _to_version_4(connection: Connection) -> None:
    double = "DOUBLE PRECISION" if connection.dialect.name == "postgresql" else "DOUBLE"
    for column in (
        "kofn_campaigns ADD COLUMN stamp BIGINT NOT NULL DEFAULT 0",
        "kofn_campaigns ADD COLUMN mark BIGINT NOT NULL DEFAULT 0",
        "kofn_campaigns ADD COLUMN overtaken BIGINT NOT NULL DEFAULT 0",
        f"kofn_campaigns ADD COLUMN waited {double} NOT NULL DEFAULT 0",
        "kofn_campaigns ADD COLUMN made_by TEXT NOT NULL DEFAULT ''",
        "kofn_batches ADD COLUMN request BIGINT",
        f"kofn_tokens ADD COLUMN expires {double}",
    ):
        connection.execute(text(f"ALTER TABLE {column}"))
    for (campaign,) in connection.execute(text("SELECT id FROM kofn_campaigns")).all():
        stamp = {"stamp": secrets.randbits(62), "id": campaign}
        connection.execute(text("UPDATE kofn_campaigns SET stamp = :stamp WHERE id = :id"), stamp)
    connection.execute(
        text(
            "CREATE INDEX kofn_batches_by_request ON kofn_batches (campaign, request) WHERE request IS NOT NULL",
        )
    )
    _V4.create_all(connection)
    if connection.execute(text("SELECT count(*) FROM kofn_tokens")).scalar():
        connection.execute(_SETTINGS_4.insert(), {"name": "tokens", "value": "required"})


# Version 5: experiments. Who gets which subset, what the policy estimated over time, and stopped instead of finished.

ADDED_COLUMNS_5: dict[str, dict[str, Any]] = {
    "kofn_campaigns": {
        **dict.fromkeys(("options", "look"), "{}"),
        **dict.fromkeys(("plan_total", "clipped", "notified"), 0),
        **{f"{group}_{name}": 0 for group in ("learned", "control") for name in ("decided", "rewarded")},
        **{f"{group}_{name}": 0.0 for group in ("learned", "control") for name in ("total", "squares")},
    },
    "kofn_batches": {"group": 0, "propensity": None, "key": None, "metadata": None},
    "kofn_buckets": {"waited": 0.0},
}
STATES_5 = {"finished": "stopped"}
_V5 = MetaData()
Table(
    "kofn_estimates",
    _V5,
    Column("campaign", Integer, primary_key=True, autoincrement=False),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    *_numbers("at"),
    *_counters("rewards"),
    *_numbers("value", "low", "high", "loss"),
    *_texts("best", "effects"),
    sqlite_with_rowid=False,
)


def _to_version_5(connection: Connection) -> None:
    double = "DOUBLE PRECISION" if connection.dialect.name == "postgresql" else "DOUBLE"
    kinds = {int: "BIGINT", float: double, str: "TEXT"}
    nullable = {"propensity": double, "key": "TEXT", "metadata": "TEXT"}
    for table, columns in ADDED_COLUMNS_5.items():
        for name, default in columns.items():
            kind = nullable[name] if default is None else f"{kinds[type(default)]} NOT NULL DEFAULT {default!r}"
            connection.execute(text(f'ALTER TABLE {table} ADD COLUMN "{name}" {kind}'))
    planned = "SELECT coalesce(sum(times), 0) FROM kofn_plans WHERE campaign = kofn_campaigns.id AND times > 0"
    connection.execute(text(f"UPDATE kofn_campaigns SET plan_total = ({planned})"))
    for old, new in STATES_5.items():
        connection.execute(text("UPDATE kofn_campaigns SET state = :new WHERE state = :old"), {"old": old, "new": new})
    later = "'{\"control_from\": ' || CAST(decided AS TEXT) || '}'"  # rewards of before are not in the new sums
    connection.execute(text(f"UPDATE kofn_campaigns SET notified = events, options = {later}"))
    _V5.create_all(connection)


# Version 6: contexts. The segment of each row of a plan, of decisions and of totals.

ADDED_COLUMNS_6: dict[str, dict[str, Any]] = {
    "kofn_campaigns": {},
    **{f"kofn_{name}": {"context": None} for name in ("plans", "batches", "totals")},
}


def _to_version_6(connection: Connection) -> None:
    for table, columns in ADDED_COLUMNS_6.items():
        for name in columns:
            connection.execute(text(f"ALTER TABLE {table} ADD COLUMN {name} TEXT"))


# Version 7: the lift over the control with the estimates, also of policies that estimate nothing else.

ADDED_COLUMNS_7: dict[str, dict[str, Any]] = {
    "kofn_campaigns": {},
    "kofn_estimates": dict.fromkeys(("lift", "lift_low", "lift_high")),
}
_V7 = MetaData()
_ESTIMATES_7 = Table(
    "kofn_estimates_7",
    _V7,
    Column("campaign", Integer, primary_key=True, autoincrement=False),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    *_numbers("at"),
    *_counters("rewards"),
    *(Column(name, Double) for name in ("value", "low", "high", "loss")),
    *_texts("best", "effects"),
    *(Column(name, Double) for name in ADDED_COLUMNS_7["kofn_estimates"]),
    sqlite_with_rowid=False,
)


def _to_version_7(connection: Connection) -> None:
    _V7.create_all(connection)  # SQLite cannot make a column nullable
    old = "campaign, step, at, rewards, value, low, high, loss, best, effects"
    connection.execute(text(f"INSERT INTO kofn_estimates_7 ({old}) SELECT {old} FROM kofn_estimates"))
    connection.execute(text("DROP TABLE kofn_estimates"))
    connection.execute(text("ALTER TABLE kofn_estimates_7 RENAME TO kofn_estimates"))
    if connection.dialect.name == "postgresql":
        connection.execute(text("ALTER INDEX kofn_estimates_7_pkey RENAME TO kofn_estimates_pkey"))


MIGRATIONS: list[Callable[[Connection], None]] = [
    _to_version_1,
    _to_version_2,
    _to_version_3,
    _to_version_4,
    _to_version_5,
    _to_version_6,
    _to_version_7,
]
"""The step at index i leads to version i + 1."""


def version_of(connection: Connection) -> int:
    """Return the version of a store; 0 if it has no tables of kofn."""
    if not connection.dialect.has_table(connection, "kofn_version"):
        return 0
    return connection.execute(text("SELECT version FROM kofn_version")).scalar() or 0


def check_version(version: int | None) -> None:
    """Raise StoreError if the store has another version: another kofn has migrated it since this process opened it."""
    if version != len(MIGRATIONS):
        raise StoreError(
            f"the store has version {version}, and this process uses version {len(MIGRATIONS)}: another version of "
            "kofn has migrated it. Restart this process with that version"
        )


def migrate(connection: Connection, patience: float) -> int:
    """Bring a store up to date in the transaction of `connection`, and return the version that it had.

    Only one process at a time does this. PostgreSQL waits for a lock for at most `patience` seconds.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = {max(1, round(1000 * patience))}"))  # milliseconds
        connection.execute(text("SELECT pg_advisory_xact_lock(5266417)"))
    version = version_of(connection)
    if version == 0:
        connection.execute(text("CREATE TABLE IF NOT EXISTS kofn_version (version INTEGER NOT NULL)"))
    for step in MIGRATIONS[version:]:
        step(connection)
    if version < len(MIGRATIONS):
        connection.execute(text("DELETE FROM kofn_version"))
        connection.execute(text("INSERT INTO kofn_version (version) VALUES (:version)"), {"version": len(MIGRATIONS)})
    return version
