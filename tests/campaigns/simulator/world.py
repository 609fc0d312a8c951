"""The databases of a simulation: made once, set back for each seed, looked at from outside, backed up and restored.

Triggers copy every decision, event and total that is inserted into tables of their own. Nothing deletes from these
tables, so they are the complete record of a campaign, also after the store has deleted its own rows.
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
from kofn.campaigns.store.schema import DECISIONS, EVENTS, METADATA, TOTALS

START = 1_000_000.0
"""The time at which all campaigns were created, in seconds."""

EXPIRE_AFTER = 60.0

RECORDED = {table.name: [column.name for column in table.columns] for table in (DECISIONS, EVENTS, TOTALS)}
"""The columns that triggers copy from kofn_decisions to record_decisions, and so on."""


class Setting(NamedTuple):
    """A campaign of the template. Bounds are whole numbers and their distance a power of 2, so sums are exact."""

    policy: str
    n_arms: int
    k: int
    reward_range: tuple[float, float]
    direction: str
    weight: int  # how often a seed takes it
    options: dict[str, Any]  # of the campaign

    @property
    def name(self) -> str:
        """The campaign's name."""
        return f"{self.policy} {self.n_arms} {self.k} {' '.join(self.options)}"

    @property
    def learns_from_all(self) -> bool:
        """Whether the policy learns from unplanned plays too."""
        return self.policy != "cmab-sm" and self.options.get("params") != EXACT

    @property
    def takes_context(self) -> bool:
        """Whether decisions have a context."""
        return self.policy == "contextual-thompson"


EXACT = {"unplanned": False}
_FIRST = ["arm 0", "arm 1"]
SETTINGS = [
    Setting("simulated", 4, 2, (0.0, 1.0), "maximize", 6, {"keep_decisions": 0}),
    Setting("simulated", 5, 2, (-2.0, 6.0), "minimize", 6, {"window": 20.0, "silence": 1.0, "keep_decisions": 8}),
    Setting("simulated", 5, 2, (0.0, 4.0), "maximize", 6, {"window": 8.0, "control": _FIRST, "outside": "clip"}),
    Setting("simulated", 5, 2, (0.0, 4.0), "maximize", 4, {"control": _FIRST, "sticky": 20.0, "metric_window": 9.0}),
    Setting("simulated", 4, 2, (0.0, 1.0), "maximize", 4, {"window": 15.0, "sticky": 40.0, "keep_decisions": 4}),
    Setting("simulated", 5, 2, (0.0, 8.0), "maximize", 4, {"params": EXACT, "keep_decisions": 10}),
    Setting("simulated", 4, 2, (-1.0, 1.0), "minimize", 4, {"params": EXACT, "window": 10.0}),
    Setting("simulated", 4, 2, (0.0, 1.0), "maximize", 2, {"outside": "widen", "window": 12.0}),
    Setting("thompson", 5, 2, (-2.0, 6.0), "minimize", 1, {"keep_decisions": 8, "window": 10.0}),
    Setting("thompson-sizes", 4, 2, (0.0, 4.0), "maximize", 1, {"costs": {"arm 0": 0.5, "arm 3": 0.25}}),
    Setting("contextual-thompson", 5, 2, (0.0, 4.0), "maximize", 1, {"window": 15.0}),
    Setting("cmab-sm", 4, 2, (0.0, 4.0), "maximize", 1, {"params": {"horizon": 30, "resolution": 0.45}}),
]
"""Each seed plays one or two of these campaigns in one store. Real policies are slower than the simulated one, and the
store does the same with each: most seeds take the simulated one."""

CONTEXTS = [None, {"device": "phone"}, {"device": "desktop"}, {"device": "phone", "country": "de"}]


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
    for number, each in enumerate(SETTINGS):
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
            reward_range=setting.reward_range,
            direction=setting.direction,  # type: ignore[arg-type]
            seed=seed,
            store=store,
            expire_after=EXPIRE_AFTER,
            control_share=0.3,
            **setting.options,
        )


class World(Protocol):
    """A database, as the simulation uses it beside the stores under test."""

    url: str

    def reset(self) -> None:
        """Set the database back to the template. No store is open."""

    def rows(self, sql: str, *values: Any) -> Sequence[Any]:
        """Return the rows of a query, outside of all stores. Parameters are written as ?."""

    def backup(self) -> Any:
        """Return a backup of the database."""

    def restore(self, backup: Any) -> None:
        """Restore a backup, under the open connections of the stores."""


def _quoted(columns: Sequence[str], prefix: str = "") -> str:
    return ", ".join(f'{prefix}"{column}"' for column in columns)


class SqliteWorld:
    """A SQLite file. It is never synchronised with the disk: a power failure is not simulated."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "simulated.db"
        self.url = f"sqlite:///{self.file}?synchronous=normal"
        create_campaigns(self.url)
        with contextlib.closing(sqlite3.connect(self.file)) as connection:
            for table, columns in RECORDED.items():
                record = table.replace("kofn", "record")
                connection.execute(f"CREATE TABLE {record} (seq INTEGER PRIMARY KEY, {_quoted(columns)})")
                connection.execute(
                    f"CREATE TRIGGER keep_{table} AFTER INSERT ON {table} BEGIN "
                    f"INSERT INTO {record} ({_quoted(columns)}) VALUES ({_quoted(columns, 'new.')}); END"
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
        return self._look.execute(sql, values).fetchall()

    def backup(self) -> sqlite3.Connection:
        """Copy the database, online."""
        copy = sqlite3.connect(":memory:")
        self._look.backup(copy)
        return copy

    def restore(self, backup: sqlite3.Connection) -> None:
        """Write the backup into the database in one transaction."""
        backup.backup(self._look)

    def close(self) -> None:
        self._look.close()


_COPIED = [*METADATA.tables, *(table.replace("kofn", "record") for table in RECORDED)]
_SEQUENCES = ["kofn_numbers", "kofn_campaigns_id_seq"]


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
            record = table.replace("kofn", "record")
            self._look.execute(f"CREATE TABLE {record} AS SELECT 0::bigint AS seq, {_quoted(columns)} FROM {table}")
            identity = "ALTER seq SET NOT NULL, ALTER seq ADD GENERATED BY DEFAULT AS IDENTITY"
            self._look.execute(f"ALTER TABLE {record} {identity}")
            self._look.execute(
                f"CREATE FUNCTION keep_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                f"INSERT INTO {record} ({_quoted(columns)}) VALUES ({_quoted(columns, 'new.')}); RETURN NULL; END $$"
            )
            self._look.execute(
                f"CREATE TRIGGER keep AFTER INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION keep_{table}()"
            )
        self._template = self._copy(f"{name}_template")

    def _copy(self, target: str) -> tuple[str, list[Any]]:
        for table in _COPIED:
            self._look.execute(f"CREATE TABLE {target}.{table} AS SELECT * FROM {self.name}.{table}")
        return target, [self.rows(f"SELECT last_value, is_called FROM {each}")[0] for each in _SEQUENCES]

    def restore(self, backup: tuple[str, list[Any]]) -> None:
        source, sequences = backup
        with self._look.transaction():
            self._look.execute("SET LOCAL session_replication_role = replica")  # no triggers
            self._look.execute(f"TRUNCATE {', '.join(_COPIED)}")
            for table in _COPIED:
                self._look.execute(f"INSERT INTO {table} SELECT * FROM {source}.{table}")
            for name, (last, called) in zip(_SEQUENCES, sequences, strict=True):
                self._look.execute(f"SELECT setval('{name}', {last}, {called})")

    def reset(self) -> None:
        """Replace all rows by those of the template, and drop the backups."""
        self._drop_backups()
        self.restore(self._template)

    def _drop_backups(self) -> None:
        for number in range(self._backups):
            self._look.execute(f"DROP SCHEMA {self.name}_backup_{number} CASCADE")
        self._backups = 0

    def rows(self, sql: str, *values: Any) -> Sequence[Any]:
        return list(self._look.execute(sql.replace("?", "%s"), values).fetchall())

    def backup(self) -> tuple[str, list[Any]]:
        """Copy all tables into a new schema."""
        name = f"{self.name}_backup_{self._backups}"
        self._backups += 1
        self._look.execute(f"CREATE SCHEMA {name}")
        return self._copy(name)

    def close(self) -> None:
        self._drop_backups()
        self._look.close()


@contextmanager
def sqlite_world() -> Iterator[SqliteWorld]:
    """Make a SQLite world in memory if the machine has a folder for that, else in the folder for temporary files."""
    memory = "/dev/shm"
    place = TemporaryDirectory(prefix="kofn-", dir=memory if os.access(memory, os.W_OK) else None)
    with place as folder, contextlib.closing(SqliteWorld(Path(folder))) as world:
        yield world
