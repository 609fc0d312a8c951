"""Migrations of the store: files of older versions, and what happens on the way.

`tests/data/store-version-N.db` was written by the last kofn of version N, and `store-version-N.json` holds what that
kofn knew about it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, MetaData, create_engine, inspect, text
from sqlalchemy.pool import NullPool

import kofn
from kofn import Campaign
from kofn.campaigns import Store
from kofn.campaigns.store import database as store_module
from kofn.campaigns.store import migrations, schema
from kofn.campaigns.store.migrations import MIGRATIONS
from kofn.service.security.tokens import find_token
from tests.campaigns.workers import CONTEXT, run, start
from tests.cases import for_each
from tests.service.tools import error_detail, service
from tools import make_store_fixture

DATA = Path(__file__).parents[1] / "data"
CAMPAIGNS = ("shop", "servers", "news")
each_campaign = for_each("name", CAMPAIGNS)
"""All in one store: to migrate it takes longer than what is checked of one campaign."""


@pytest.fixture
def sqlite_store(new_sqlite_store: str) -> str:
    """Here, stores are created by the code under test."""
    return new_sqlite_store


@dataclass(frozen=True)
class Old:
    """The store of an older version: its file, and what the kofn of that version knew about it."""

    version: int

    @property
    def file(self) -> Path:
        return DATA / f"store-version-{self.version}.db"

    @cached_property
    def known(self) -> dict[str, Any]:
        known = json.loads((DATA / f"store-version-{self.version}.json").read_text())
        for name in CAMPAIGNS:
            known[name].setdefault("probability_best", known[name].get("sure"))  # its name before version 3
        return dict(known)


OLD = {version: Old(version) for version in (2, 3, 4, 5, 6)}
FILE, KNOWN = OLD[2].file, OLD[2].known  # for tests of what happens on the way, most of it in step 3


def engine_for(url: str) -> Engine:
    """A plain engine, without anything of the store."""
    plain = url.partition("?")[0] if url.startswith("sqlite") else url.replace("postgresql:", "postgresql+psycopg:")
    return create_engine(plain, poolclass=NullPool)


def make_old(url: str, version: int = 2) -> None:
    """Fill an empty database with the store of a version: the file itself, or its rows in tables of that version."""
    file = OLD[version].file
    if url.startswith("sqlite"):
        shutil.copy(file, url.partition("?")[0].removeprefix("sqlite:///"))
        return
    source = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    with engine_for(url).begin() as connection:
        connection.execute(text("CREATE TABLE kofn_version (version INTEGER NOT NULL)"))
        for step in MIGRATIONS[:version]:
            step(connection)
        metadata = MetaData()
        metadata.reflect(connection)
        for table in metadata.tables.values():
            columns = [column.name for column in table.columns]
            names = ", ".join(f'"{name}"' for name in columns)
            rows = source.execute(f"SELECT {names} FROM {table.name}").fetchall()
            if rows:
                connection.execute(table.insert(), [dict(zip(columns, row, strict=True)) for row in rows])
        for name in ("kofn_campaigns", "kofn_tokens"):
            connection.execute(text(f"SELECT setval('{name}_id_seq', (SELECT max(id) FROM {name}))"))
    source.close()


@pytest.fixture
def old_store(store_url: str) -> str:
    """The URL of a store of version 2."""
    make_old(store_url)
    return store_url


VERSIONS = [pytest.param(each, marks=[pytest.mark.slow] if each == 3 else [], id=f"version {each}") for each in OLD]
"""Version 3 differs from 2 by names only, which step 3 changes."""


def versions_on(kind: str, often: tuple[int, ...]) -> list[Any]:
    return [
        pytest.param(kind, each, marks=[] if each in often else pytest.mark.slow, id=f"{kind}-version {each}")
        for each in OLD
    ]


each_version = pytest.mark.parametrize(
    ("store_url", "old"), [*versions_on("sqlite", (2, 4, 5, 6)), *versions_on("postgres", (2,))], indirect=True
)
"""Each older version in stores of each kind. From version 2, all steps are taken on PostgreSQL; others take a part."""


@pytest.fixture(params=VERSIONS)
def old(request: Any) -> Old:
    """Each older version."""
    return OLD[request.param]


@pytest.fixture
def migrated(store_url: str, old: Old) -> Iterator[Store]:
    """The store of each older version, opened, at the time at which its file was made."""
    make_old(store_url, old.version)
    store = Store(store_url)
    store.clock = lambda: float(old.known["clock"])
    yield store
    store.close()


def tables_of(connection: Connection) -> dict[str, Any]:
    """The schema, normalised: columns with type and nullability, keys, unique constraints and indexes."""
    found = inspect(connection)
    return {
        table: {
            "columns": [(each["name"], str(each["type"]), each["nullable"]) for each in found.get_columns(table)],
            "key": found.get_pk_constraint(table)["constrained_columns"],
            "key's name": found.get_pk_constraint(table)["name"],
            "unique": sorted(str(each["column_names"]) for each in found.get_unique_constraints(table)),
            "indexes": sorted(
                (str(each["name"]), str(each["column_names"]), _condition(each)) for each in found.get_indexes(table)
            ),
        }
        for table in found.get_table_names()
    }


def _condition(index: Any) -> str:
    """The condition of a partial index, without brackets."""
    options = index.get("dialect_options", {})
    return str(options.get("sqlite_where", options.get("postgresql_where", ""))).strip("()")


def sqlite_text(connection: sqlite3.Connection) -> dict[str, str]:
    """The statements that made an SQLite file, without the white space and quotes in which they may differ."""
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {name: "".join(sql.replace('"', "").replace("IF NOT EXISTS", "").split()) for name, sql in rows}


# What the old store knew.


@each_version
@each_campaign
def test_everything_is_as_it_was(migrated: Store, old: Old, name: str) -> None:
    known, campaign = old.known[name], Campaign.open(name, store=migrated)
    insight, summary = campaign.insight(), campaign.summary()
    assert insight.best == campaign.best() == known["best"]
    assert insight.value == known["value"]
    assert insight.probability_best == pytest.approx(known["probability_best"], abs=0.1)  # from other draws
    arms = [[arm.name, arm.effect, arm.plays, arm.retired] for arm in insight.arms]
    assert arms == known["arms"]
    counts = {each: getattr(summary, each) for each in ("plays", "rewards", "mean", "in_flight", "expired", "state")}
    state = {"finished": "stopped"}.get(known["state"], known["state"])  # its name before version 5
    assert counts == {each: known[each] for each in counts} | {"state": state}
    assert [[event.number, event.kind, event.message] for event in campaign.events()] == known["events"]
    assert len(campaign.history()) == known["points"]


@each_version
@each_campaign
def test_it_verifies_and_continues(migrated: Store, old: Old, name: str) -> None:
    campaign = Campaign.open(name, store=migrated)
    verified = campaign.verify()
    assert verified.differences == []
    assert verified.ok
    if name == "news":  # it keeps 20 decisions only
        assert verified.compared == ["counters"]
        assert "rewards are stored as sums only" in str(verified.reason)
    elif campaign.summary().policy == "thompson" and old.version < 7:  # it learns otherwise since
        assert verified.compared == ["counters"]
        assert "an older version of the policy made its first plans" in str(verified.reason)
    else:
        assert verified.reason is None
        assert verified.compared == ["counters", "policy", "plan"]
        assert verified.rewards == old.known[name]["rewards"]
    if campaign.state != "running":
        with pytest.raises(kofn.NotRunning):
            campaign.decide()
        return
    low, high = campaign.summary().reward_range
    for _ in range(10):
        campaign.rewards({each.id: (low + high) / 2 for each in campaign.decide(20)})
    assert campaign.summary().rewards == old.known[name]["rewards"] + 200
    assert campaign.verify().ok


@each_version
def test_an_open_decision_can_be_rewarded(migrated: Store, old: Old) -> None:
    owner = next(
        campaign
        for campaign in (Campaign.open(name, store=migrated) for name in CAMPAIGNS)
        if old.known["open_id"] in {each.id for each in campaign.open_decisions(10_000)}
    )
    assert owner.reward(old.known["open_id"], 1.0).accepted == 1
    assert owner.reward(old.known["open_id"], 1.0).repeated == 1
    assert owner.verify().ok


@each_version
def test_tokens_are_kept(migrated: Store, old: Old, store_url: str) -> None:
    known = find_token(migrated, old.known["token"])
    assert known is not None
    name = known.campaign or "shop"
    with service(store_url, session=None) as http:
        error_detail(http.get(f"/api/campaigns/{name}"), 401, "unauthorized")
        http.headers["Authorization"] = f"Bearer {old.known['token']}"
        assert http.get("/api/session").json()["scope"] == known.scope
        assert http.get(f"/api/campaigns/{name}/insight").json()["best"] == old.known[name]["best"]
        assert http.get(f"/api/campaigns/{name}/verify").json()["ok"]


@each_version
@each_campaign
def test_an_export_of_the_version_before_is_imported(store_url: str, old: Old, name: str) -> None:
    exported = old.known[name]["export"]
    assert exported["format"] == old.version - 1
    store = Store(store_url)
    store.clock = lambda: float(old.known["clock"])
    campaign = Campaign.import_(exported, store=store)
    assert campaign.best() == old.known[name]["best"]
    assert [[arm.name, arm.effect, arm.plays, arm.retired] for arm in campaign.insight().arms] == old.known[name][
        "arms"
    ]
    assert campaign.verify().ok
    one = campaign.export(with_secret=True)
    two = Campaign.import_(one, store=store, name=f"{name} again").export(with_secret=True)
    assert (one["format"], two["format"]) == (6, 6)
    assert two["name"] == two["campaign"]["name"] == f"{name} again"
    event = two["tables"]["events"]["rows"].pop()  # all else is equal
    assert event[:3] == [one["campaign"]["events"] + 1, old.known["clock"], "imported"]
    for each in ("name", "events", "version", "changed"):
        two["campaign"][each] = one["campaign"][each]
    assert two | {"name": name} == one
    store.close()


@each_version
def test_a_migrated_campaign_exports_what_its_old_export_imports_as(migrated: Store, old: Old, tmp_path: Path) -> None:
    other = Store(f"sqlite:///{tmp_path}/other.db?synchronous=normal")
    for name in CAMPAIGNS:
        one = Campaign.open(name, store=migrated).export()
        two = Campaign.import_(old.known[name]["export"], store=other, name=f"{name} again").export()
        for each in ("record", "origin", "names", "active", "changes", "played"):
            assert one[each] == two[each]
        for table in ("batches", "rewards", "totals", "plans", "buckets"):
            assert one["tables"][table] == two["tables"][table]
    other.close()


@each_version
def test_policies_have_stamps_of_their_own(migrated: Store) -> None:
    with migrated.read() as connection:
        stamps = connection.execute(text("SELECT stamp FROM kofn_campaigns")).scalars().all()
        marks = connection.execute(text("SELECT DISTINCT made_by, waited FROM kofn_campaigns")).all()
    assert len({*stamps, 0}) == len(CAMPAIGNS) + 1
    assert [tuple(row) for row in marks] == [("", 0.0)]


@pytest.mark.parametrize("old", [OLD[2], OLD[3]], ids=["version 2", "version 3"])  # later ones have stamps
def test_migrating_twice_gives_other_stamps(tmp_path: Path, old: Old) -> None:
    """Two servers that migrate copies of one backup must not share a policy in memory."""
    found = []
    for name in "ab":
        make_old(f"sqlite:///{tmp_path}/{name}.db", old.version)
        Store(f"sqlite:///{tmp_path}/{name}.db").close()
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as connection:
            found += connection.execute("SELECT stamp FROM kofn_campaigns").fetchall()
    assert len(set(found)) == 2 * len(CAMPAIGNS)


@each_version
@pytest.mark.parametrize("had_tokens", [True, False])
def test_a_store_with_tokens_requires_them_for_good(store_url: str, old: Old, had_tokens: bool) -> None:
    make_old(store_url, old.version)
    if not had_tokens:
        with engine_for(store_url).begin() as connection:
            connection.execute(text("DELETE FROM kofn_tokens"))
            if old.version >= 4:
                connection.execute(text("DELETE FROM kofn_settings"))
    Store(store_url).close()
    with engine_for(store_url).begin() as connection:
        settings = connection.execute(text("SELECT name, value FROM kofn_settings")).all()
        expires = connection.execute(text("SELECT expires FROM kofn_tokens")).scalars().all()
    assert [tuple(row) for row in settings] == ([("tokens", "required")] if had_tokens else [])
    assert set(expires) == ({None} if had_tokens else set())


# The schema.


def test_the_frozen_steps_make_the_tables_of_that_version(tmp_path: Path, old: Old) -> None:
    with create_engine(f"sqlite:///{tmp_path}/new.db", poolclass=NullPool).begin() as connection:
        connection.execute(text("CREATE TABLE kofn_version (version INTEGER NOT NULL)"))
        for step in MIGRATIONS[: old.version]:
            step(connection)
    before, new = sqlite3.connect(f"file:{old.file}?mode=ro", uri=True), sqlite3.connect(tmp_path / "new.db")
    assert sqlite_text(new) == sqlite_text(before)
    for each in (before, new):
        each.close()


def test_a_new_store_has_the_tables_of_a_migrated_one(sqlite_store: str, tmp_path: Path, old: Old) -> None:
    shutil.copy(old.file, tmp_path / "old.db")
    found = []
    for url, file in ((sqlite_store, "shop.db"), (f"sqlite:///{tmp_path}/old.db", "old.db")):
        Store(url).close()
        connection = sqlite3.connect(tmp_path / file)
        found.append(sqlite_text(connection))
        connection.close()
    assert found[0] == found[1]
    assert "kofn_batches" in found[0]
    assert "kofn_runs" not in found[0]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_steps_lead_to_the_tables_that_the_code_declares(kind: str, request: Any) -> None:
    url = request.getfixturevalue(f"{kind}_store")
    Store(url).close()
    with engine_for(url).begin() as connection:
        by_steps = tables_of(connection)
        for table in by_steps:
            connection.execute(text(f"DROP TABLE {table}"))
        schema.METADATA.create_all(connection)
        declared = tables_of(connection)
    assert by_steps == declared
    assert set(declared) == {table.name for table in schema.METADATA.tables.values()}


def test_a_migrated_store_has_the_tables_of_a_new_one_on_postgresql(postgres_store: str, old: Old) -> None:
    make_old(postgres_store, old.version)
    Store(postgres_store).close()
    with engine_for(postgres_store).begin() as connection:
        migrated = tables_of(connection)
        for table in migrated:
            connection.execute(text(f"DROP TABLE {table}"))
    Store(postgres_store).close()
    with engine_for(postgres_store).begin() as connection:
        assert tables_of(connection) == migrated


# On the way.


def version_at(url: str) -> int:
    with engine_for(url).begin() as connection:
        return migrations.version_of(connection)


def test_an_interrupted_migration_leaves_the_old_store(old_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine_for(old_store).begin() as connection:
        before = tables_of(connection)
        records = connection.execute(text("SELECT campaign, record FROM kofn_states ORDER BY campaign")).all()

    def fails(record: Any) -> Any:  # in the last part of step 3, after all tables are renamed
        raise RuntimeError("the power failed")

    with monkeypatch.context() as broken:
        broken.setattr(migrations, "upgraded_record", fails)
        with pytest.raises(RuntimeError, match="the power failed"):
            Store(old_store)
    assert version_at(old_store) == 2
    with engine_for(old_store).begin() as connection:
        assert tables_of(connection) == before
        assert connection.execute(text("SELECT campaign, record FROM kofn_states ORDER BY campaign")).all() == records
    store = Store(old_store)
    assert version_at(old_store) == len(MIGRATIONS)
    assert Campaign.open("shop", store=store).best() == KNOWN["shop"]["best"]
    store.close()


def open_store(url: str) -> None:
    """What a process does that opens the store."""
    store = Store(url)
    assert Campaign.open("shop", store=store).best() == KNOWN["shop"]["best"]
    store.close()


def test_processes_that_open_it_at_once_migrate_it_once(old_store: str) -> None:
    run(open_store, [(old_store,)] * 6)
    with engine_for(old_store).begin() as connection:
        assert connection.execute(text("SELECT version FROM kofn_version")).all() == [(len(MIGRATIONS),)]
    store = Store(old_store)
    assert Campaign.open("shop", store=store).verify().ok
    store.close()


def test_records_are_upgraded_where_they_are_stored(old_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "upgraded_record", lambda record: {**record, "upgraded": True})
    Store(old_store).close()
    with engine_for(old_store).begin() as connection:
        for column, table in (("record", "kofn_states"), ("origin", "kofn_rosters")):
            found = connection.execute(text(f"SELECT {column} FROM {table}")).scalars().all()
            assert len(found) == len(CAMPAIGNS)
            assert all(json.loads(record)["upgraded"] for record in found)


# What goes wrong on the way.


def everything_in(url: str) -> dict[str, Any]:
    """All tables and rows of a store."""
    with engine_for(url).begin() as connection:
        tables = tables_of(connection)
        rows = {each: sorted(map(str, connection.execute(text(f"SELECT * FROM {each}")))) for each in tables}
    return {"tables": tables, "rows": rows}


def migrate_slowly(url: str, reached: Any) -> None:
    """Migrate a store, and wait forever before its last record is upgraded, after all tables are renamed."""
    upgraded, left = migrations.upgraded_record, [2 * len(CAMPAIGNS)]

    def slow(record: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            reached.set()
            time.sleep(600)
        return upgraded(record)

    migrations.upgraded_record = slow
    Store(url)


def test_a_process_killed_while_it_migrates_leaves_the_old_store(old_store: str) -> None:
    before = everything_in(old_store)
    reached = CONTEXT.Event()
    process = start(migrate_slowly, old_store, reached)
    assert reached.wait(60)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)
    assert everything_in(old_store) == before
    store = Store(old_store)
    assert version_at(old_store) == len(MIGRATIONS)
    assert all(Campaign.open(name, store=store).verify().ok for name in CAMPAIGNS)
    store.close()


def test_processes_that_open_a_store_while_another_migrates_it_wait_for_it(
    old_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = CONTEXT.Event()
    process = start(migrate_slowly, old_store, reached)
    assert reached.wait(60)
    monkeypatch.setattr(store_module, "LOCK_TIMEOUT", 0.5)
    monkeypatch.setattr(store_module, "PATIENCE", 0.5)
    begun = time.monotonic()
    with pytest.raises(kofn.StoreError, match=r"migrated from version 2 to 7; it is unchanged.*Stop the processes"):
        Store(old_store)
    assert 0.4 < time.monotonic() - begun < 20
    process.kill()
    process.join(30)
    open_store(old_store)


def test_an_open_transaction_on_postgresql_delays_a_migration_for_a_bounded_time(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_old(postgres_store)
    monkeypatch.setattr(store_module, "PATIENCE", 0.5)
    with engine_for(postgres_store).begin() as old:
        old.execute(text("SELECT count(*) FROM kofn_campaigns"))  # a transaction that was never ended
        begun = time.monotonic()
        with pytest.raises(kofn.StoreError, match=r"lock timeout.*it is unchanged.*Stop the processes that use it"):
            Store(postgres_store)
        assert 0.4 < time.monotonic() - begun < 20
        assert old.execute(text("SELECT sum(told) FROM kofn_campaigns")).scalar() is not None
    assert version_at(postgres_store) == 2
    open_store(postgres_store)
    assert version_at(postgres_store) == len(MIGRATIONS)


@pytest.mark.parametrize(
    "by_hand",
    [
        "ALTER TABLE kofn_campaigns RENAME COLUMN told TO observed",
        "ALTER TABLE kofn_runs RENAME TO kofn_batches",
        "ALTER TABLE kofn_events RENAME COLUMN says TO message",
        "DROP INDEX kofn_runs_due",
        "UPDATE kofn_states SET record = '{'",
        "UPDATE kofn_rosters SET origin = '[1]'",
    ],
)
def test_a_store_that_was_changed_by_hand_is_refused_and_left_unchanged(old_store: str, by_hand: str) -> None:
    with engine_for(old_store).begin() as connection:
        connection.execute(text(by_hand))
    before = everything_in(old_store)
    with pytest.raises(kofn.StoreError, match="migrated from version 2 to 7; it is unchanged"):
        Store(old_store)
    assert everything_in(old_store) == before


def test_a_store_that_a_newer_kofn_migrates_meanwhile_is_refused(
    old_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_for(old_store).begin() as connection:
        connection.execute(text("UPDATE kofn_version SET version = 9"))
    versions = iter([2, 9])
    monkeypatch.setattr(migrations, "version_of", lambda _: next(versions))
    before = everything_in(old_store)
    with pytest.raises(kofn.StoreError, match="has version 9, and this kofn reads versions up to 7"):
        Store(old_store)
    assert everything_in(old_store) == before


def open_read_only(file: str) -> None:
    """Open a file that this process may not write."""
    if os.geteuid() == 0:
        os.setuid(65534)
    with pytest.raises(kofn.StoreError, match="readonly database"):
        Store(f"sqlite:///{file}")


def test_a_file_that_cannot_be_written_is_left_unchanged() -> None:
    with tempfile.TemporaryDirectory() as folder:  # that of pytest is closed to other users
        file = Path(folder) / "shop.db"
        shutil.copy(FILE, file)
        file.chmod(0o444)
        Path(folder).chmod(0o755)
        run(open_read_only, [(str(file),)])
        assert file.read_bytes() == FILE.read_bytes()


# The store for the next migration.


def test_a_store_of_the_present_version_can_be_kept_for_the_next_migration(tmp_path: Path) -> None:
    file, report = make_store_fixture.make(tmp_path)
    assert sorted(tmp_path.iterdir()) == [file, report]
    assert file.name == f"store-version-{len(MIGRATIONS)}.db"
    known = json.loads(report.read_text())
    store = Store(f"sqlite:///{file}")
    store.clock = lambda: float(known["clock"])
    for name, state in ("shop", "running"), ("servers", "paused"), ("news", "stopped"):
        campaign = Campaign.open(name, store=store)
        assert campaign.verify().ok
        assert (campaign.best(), campaign.summary().state) == (known[name]["best"], state)
        assert campaign.summary().in_flight == known[name]["in_flight"] > 0
    assert known["shop"]["expired"] > 0
    assert Campaign.open("shop", store=store).reward(known["open_id"], 1.0).accepted == 1
    assert find_token(store, known["token"])
    store.close()
    with pytest.raises(SystemExit, match="exists"):
        make_store_fixture.make(tmp_path)
