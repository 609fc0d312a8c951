"""The databases of a simulation: made once, set back for each seed, looked at from outside, backed up and restored.

Triggers copy every decision, reward and total that is inserted into tables of their own. Nothing deletes from these
tables, so they are the complete record of a campaign, also after the store has compacted its own.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol
from unittest.mock import patch

from kofn.campaigns import Campaign
from kofn.campaigns.store import stamps
from kofn.campaigns.store.database import Store

START = 1_000_000.0
"""The time at which all campaigns were created, in seconds."""

EXPIRE_AFTER = 60.0

RECORDED = {
    "batches": (
        *("campaign", "first", "count", "salt", "step", "row", "subset", "at", "context"),
        *("request", "metadata"),
    ),
    "rewards": ("campaign", "first", "place", "value", "at", "step", "row"),
    "totals": ("campaign", "number", "key", "subset", "count", "total", "squares", "at", "step", "row", "context"),
}
"""The columns that triggers copy from kofn_batches to record_batches, and so on."""


class Setting(NamedTuple):
    """A campaign of the template."""

    policy: str
    n_arms: int
    k: int
    reward_range: tuple[float, float]
    direction: str
    keep: int
    params: dict[str, Any]

    weight: int = 1  # how often a seed takes it
    control: tuple[int, ...] | None = None
    options: dict[str, Any] | None = None  # of the campaign; with them, workers do more than in the others

    @property
    def name(self) -> str:
        """The campaign's name."""
        name = f"{self.policy} {self.n_arms} {self.k} {self.direction} {self.keep}"
        return name if self.options is None else f"{name} {' '.join(self.options)}"

    def option(self, name: str) -> Any:
        """Return an option of the campaign, if it is set."""
        return (self.options or {}).get(name)

    @property
    def learns_from_all(self) -> bool:
        """Whether the policy learns from unplanned plays too. These policies also take new arms."""
        return self.policy in ("thompson", "thompson-sizes", CONTEXTUAL.policy) or bool(self.params.get("unplanned"))


SETTINGS = [
    Setting("simulated", 4, 2, (0.0, 1.0), "maximize", 0, {"unplanned": True}, weight=6),
    Setting("simulated", 5, 2, (-2.0, 6.0), "minimize", 10, {"unplanned": True}, weight=6),
    Setting("simulated", 6, 3, (0.0, 8.0), "maximize", 1000, {"unplanned": True}, weight=6, control=(0, 1, 2)),
    Setting("simulated", 5, 2, (0.0, 4.0), "maximize", 20, {"unplanned": False}, weight=6),
    Setting("simulated", 4, 2, (-1.0, 1.0), "minimize", 1000, {"unplanned": False}, weight=6, control=(1, 2)),
    Setting("thompson", 4, 2, (0.0, 1.0), "maximize", 0, {}),
    Setting("thompson", 5, 2, (-2.0, 6.0), "minimize", 10, {}),
    Setting("thompson", 6, 3, (0.0, 8.0), "maximize", 1000, {}),
    Setting("linear-thompson", 5, 2, (0.0, 1.0), "maximize", 20, {}),
    Setting("cmab-sm", 4, 2, (0.0, 4.0), "maximize", 1000, {"horizon": 30, "resolution": 0.45}),
    Setting("dart", 5, 2, (-1.0, 1.0), "minimize", 1000, {"horizon": 500}),
]
"""Each seed plays one or two of these campaigns in one store. Bounds are whole numbers, so that sums are exact. Real
policies are slower than the simulated one, and the store does the same with each: most seeds take the simulated one."""


CONTEXTUAL = Setting("contextual-thompson", 5, 2, (0.0, 4.0), "maximize", 20, {})
"""A campaign whose decisions have contexts, which some seeds take instead of their first one."""

_ANY = {"unplanned": True}
OPTIONAL = [
    Setting("simulated", 4, 2, (0.0, 1.0), "maximize", 1000, _ANY, weight=6, options={"sticky": 20.0}),
    Setting("simulated", 5, 2, (-2.0, 6.0), "minimize", 10, _ANY, 6, (0, 1), {"sticky": 40.0, "outside": "clip"}),
    Setting("simulated", 5, 2, (0.0, 4.0), "maximize", 20, {"unplanned": False}, 6, None, {"outside": "clip"}),
    Setting("simulated", 4, 2, (0.0, 1.0), "maximize", 0, _ANY, weight=6, options={"outside": "refuse"}),
    Setting("thompson", 5, 2, (0.0, 8.0), "maximize", 1000, {}, options={"outside": "widen"}),
    Setting("thompson-sizes", 5, 2, (0.0, 4.0), "minimize", 20, {}, options={"costs": {"arm 0": 0.5, "arm 3": 0.25}}),
    Setting("thompson-sizes", 4, 2, (0.0, 4.0), "maximize", 1000, {}, options={"costs": {"arm 1": 1.0}}),
]
"""Campaigns with sticky keys, rewards outside the range, or costs, which some seeds take instead of their first one. In
these, decisions have metadata, some rewards are partial or of unknown decisions, and subsets are shipped without a
store too."""

CONTEXTS = [None, {"device": "phone"}, {"device": "desktop"}, {"device": "phone", "country": "de"}]


class World(Protocol):
    """A database, as the simulation uses it beside the stores under test."""

    url: str

    def reset(self) -> None:
        """Set the database back to the template. No store is open."""

    def rows(self, sql: str, *values: Any) -> Sequence[Any]:
        """Return the rows of a query, outside of all stores. Parameters are written as ?."""

    def write(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement for each of these rows, outside of all stores."""

    def backup(self) -> Any:
        """Return a backup of the database."""

    def restore(self, backup: Any) -> None:
        """Restore a backup, under the open connections of the stores."""


@contextmanager
def seeded_secrets(seed: object) -> Iterator[None]:
    """Draw salts, stamps and secrets from a seed, too: a run is then the same each time."""
    rng = Random(f"secrets {seed}")
    with (
        patch.object(secrets, "randbits", rng.getrandbits),
        patch.object(secrets, "token_hex", lambda size=32: rng.randbytes(size).hex()),
        patch.object(stamps, "_random", rng),
    ):
        yield


@seeded_secrets("template")
def create_campaigns(url: str) -> None:
    """Create the campaigns of the template."""
    store = Store(url)
    store.clock = lambda: START
    for number, each in enumerate([*SETTINGS, CONTEXTUAL, *OPTIONAL]):
        create_campaign(store, each, number)
    store.close()


def create_campaign(store: Store, setting: Setting, seed: int) -> Campaign:
    """Create one campaign."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a horizon that is too short for a good policy
        return Campaign.create(
            setting.name,
            [f"arm {arm}" for arm in range(setting.n_arms)],
            setting.k,
            policy=setting.policy,
            params=setting.params,
            reward_range=setting.reward_range,
            direction=setting.direction,  # type: ignore[arg-type]
            seed=seed,
            store=store,
            expire_after=EXPIRE_AFTER,
            keep_decisions=setting.keep,
            control=None if setting.control is None else [f"arm {arm}" for arm in setting.control],
            control_share=0.3,
            **(setting.options or {}),
        )


class SqliteWorld:
    """A SQLite file. It is never synchronised with the disk: a power failure is not simulated."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "simulated.db"
        self.url = f"sqlite:///{self.file}?synchronous=normal"
        create_campaigns(self.url)
        with contextlib.closing(sqlite3.connect(self.file)) as connection:
            for table, columns in RECORDED.items():
                connection.execute(f"CREATE TABLE record_{table} ({', '.join(columns)})")
                copied = ", ".join(f"new.{column}" for column in columns)
                connection.execute(
                    f"CREATE TRIGGER keep_{table} AFTER INSERT ON kofn_{table} "
                    f"BEGIN INSERT INTO record_{table} VALUES ({copied}); END"
                )
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("VACUUM INTO ?", [str(folder / "template.db")])
        self._look = sqlite3.connect(self.file, timeout=0.2, isolation_level=None, cached_statements=1000)
        self._look.execute("ATTACH ? AS template", [str(folder / "template.db")])
        tables = [name for (name,) in self._look.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table'")]
        filled = [name for name in tables if self._look.execute(f"SELECT 1 FROM template.{name}").fetchone()]
        self._reset = [f"DELETE FROM main.{name}" for name in tables]
        self._reset += [f"INSERT INTO main.{name} SELECT * FROM template.{name}" for name in filled]

    def reset(self) -> None:
        """Replace all rows by those of the template. Connections, which know the tables, stay open."""
        self._look.execute("BEGIN IMMEDIATE")
        for statement in self._reset:
            self._look.execute(statement)
        self._look.execute("COMMIT")

    def rows(self, sql: str, *values: Any) -> Sequence[Any]:
        """Return the rows of a query."""
        return self._look.execute(sql, values).fetchall()

    def write(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement for each of these rows."""
        self._look.executemany(sql, rows)

    def backup(self) -> sqlite3.Connection:
        """Copy the database, online."""
        copy = sqlite3.connect(":memory:")
        self._look.backup(copy)
        return copy

    def restore(self, backup: sqlite3.Connection) -> None:
        """Write the backup into the database in one transaction."""
        backup.backup(self._look)

    def close(self) -> None:
        """Close the connection."""
        self._look.close()


_COPIED = [f"kofn_{each}" for each in ("campaigns", "rosters", "states", "plans", "batches", "rewards", "totals")]
_COPIED += ["kofn_buckets", "kofn_events", "kofn_estimates", *(f"record_{table}" for table in RECORDED)]


class PostgresWorld:
    """A schema of a PostgreSQL database, with the template and the backups in schemas beside it."""

    def __init__(self, url: str, name: str = "simulated") -> None:
        import psycopg

        self.name, self._backups = name, 0
        self._look: Any = psycopg.connect(url, autocommit=True)
        for schema in (name, f"{name}_template"):
            self._look.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")
        self._look.execute(f"SET search_path = {name}")
        self.url = f"{url}?options=-csearch_path%3D{name}"
        create_campaigns(self.url)
        for table, columns in RECORDED.items():
            self._look.execute(f"CREATE TABLE record_{table} AS SELECT {', '.join(columns)} FROM kofn_{table} LIMIT 0")
            copied = ", ".join(f"new.{column}" for column in columns)
            self._look.execute(
                f"CREATE FUNCTION keep_{table}() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN INSERT INTO record_{table} VALUES ({copied}); RETURN NULL; END $$"
            )
            self._look.execute(
                f"CREATE TRIGGER keep AFTER INSERT ON kofn_{table} FOR EACH ROW EXECUTE FUNCTION keep_{table}()"
            )
        self._copy(name, f"{name}_template")

    def _copy(self, source: str, target: str) -> None:
        for table in _COPIED:
            self._look.execute(f"CREATE TABLE {target}.{table} AS SELECT * FROM {source}.{table}")

    def _replace(self, source: str) -> None:
        with self._look.transaction():
            self._look.execute("SET LOCAL session_replication_role = replica")  # no triggers
            self._look.execute(f"TRUNCATE {', '.join(_COPIED)}")
            for table in _COPIED:
                self._look.execute(f"INSERT INTO {table} SELECT * FROM {source}.{table}")

    def reset(self) -> None:
        """Replace all rows by those of the template, and drop the backups."""
        for number in range(self._backups):
            self._look.execute(f"DROP SCHEMA {self.name}_backup_{number} CASCADE")
        self._backups = 0
        self._replace(f"{self.name}_template")

    def rows(self, sql: str, *values: Any) -> Sequence[Any]:
        """Return the rows of a query."""
        return list(self._look.execute(sql.replace("?", "%s"), values).fetchall())

    def write(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement for each of these rows."""
        with self._look.cursor() as cursor:
            cursor.executemany(sql.replace("?", "%s"), rows)

    def backup(self) -> str:
        """Copy all tables into a new schema."""
        name = f"{self.name}_backup_{self._backups}"
        self._backups += 1
        self._look.execute(f"CREATE SCHEMA {name}")
        self._copy(self.name, name)
        return name

    def restore(self, backup: str) -> None:
        """Replace all rows by those of the backup."""
        self._replace(backup)

    def close(self) -> None:
        """Close the connection."""
        self._look.close()


Records = dict[str, list[tuple[Any, ...]]]
"""The complete record of a campaign: the rows of each table without the campaign's id, which is the first column."""


def records_of(world: World, campaign: int) -> Records:
    """Return the complete record of a campaign."""
    found = {table: world.rows(f"SELECT * FROM record_{table} WHERE campaign = ?", campaign) for table in RECORDED}
    return {table: [tuple(row[1:]) for row in rows] for table, rows in found.items()}


def set_records(world: World, campaign: int, records: Records) -> None:
    """Replace the complete record of a campaign: an import contains only what the store had not compacted."""
    for table, columns in RECORDED.items():
        world.write(f"DELETE FROM record_{table} WHERE campaign = ?", [[campaign]])
        insert = f"INSERT INTO record_{table} VALUES ({', '.join('?' * len(columns))})"
        world.write(insert, [[campaign, *row] for row in records.get(table, [])])


@contextmanager
def sqlite_world() -> Iterator[SqliteWorld]:
    """Make a SQLite world in memory if the machine has a folder for that, else in the folder for temporary files."""
    memory = "/dev/shm"
    place = TemporaryDirectory(prefix="kofn-", dir=memory if os.access(memory, os.W_OK) else None)
    with place as folder, contextlib.closing(SqliteWorld(Path(folder))) as world:
        yield world
