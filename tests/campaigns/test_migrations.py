"""Versions of the store and formats of exports: what is migrated, by whom, and what is refused."""

from __future__ import annotations

import time
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.pool import NullPool

import kofn
from kofn import Campaign
from kofn.campaigns import Store, campaigns
from kofn.campaigns.store import database, migrations
from tests.campaigns.tools import checked, create, play
from tests.campaigns.workers import CONTEXT, run, start

REFUSED = "and this kofn reads version 1: create a new store, or open this one with the kofn that made it"


@pytest.fixture
def sqlite_store(new_sqlite_store: str) -> str:
    """Here, stores are created by the code under test."""
    return new_sqlite_store


def engine_for(url: str) -> Engine:
    """A plain engine, without anything of the store."""
    plain = url.partition("?")[0] if url.startswith("sqlite") else url.replace("postgresql:", "postgresql+psycopg:")
    return create_engine(plain, poolclass=NullPool)


def found_in(url: str) -> tuple[int, bool]:
    """The version in the store, and whether `add_table` was applied."""
    with engine_for(url).begin() as connection:
        return migrations.version_of(connection), inspect(connection).has_table("kofn_new")


def add_table(connection: Connection) -> None:
    """A step that would fail the second time."""
    connection.execute(text("CREATE TABLE kofn_new (x INTEGER)"))


def open_with_a_step(url: str) -> None:
    """What a process of the next version does."""
    migrations.MIGRATIONS.append(add_table)
    store = Store(url)
    checked(Campaign.open("front", store))
    store.close()


def test_of_two_processes_one_applies_a_step(store_url: str) -> None:
    play(create(store_url), 40, batch=20)
    assert found_in(store_url) == (1, False)
    run(open_with_a_step, [(store_url,)] * 2)
    assert found_in(store_url) == (2, True)


def test_a_step_that_fails_leaves_the_store_as_it_was(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(connection: Connection) -> None:
        raise RuntimeError("the power failed")

    create(store_url)
    with monkeypatch.context() as newer:
        newer.setattr(migrations, "MIGRATIONS", [add_table, fails])
        with pytest.raises(RuntimeError, match="the power failed"):
            Store(store_url)
    assert found_in(store_url) == (1, False)
    assert [each.name for each in campaigns(Store(store_url))] == ["front"]


def migrate_slowly(url: str, reached: Any) -> None:
    """Apply a step, and wait forever before it is committed."""

    def slow(connection: Connection) -> None:
        add_table(connection)
        reached.set()
        time.sleep(600)

    migrations.MIGRATIONS.append(slow)
    Store(url)


def test_others_wait_while_one_migrates_and_a_killed_one_leaves_the_old_store(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(store_url)
    reached = CONTEXT.Event()
    process = start(migrate_slowly, store_url, reached)
    assert reached.wait(60)
    monkeypatch.setattr(migrations, "MIGRATIONS", [add_table])
    monkeypatch.setattr(database, "LOCK_TIMEOUT", 0.5)
    monkeypatch.setattr(database, "PATIENCE", 0.5)
    begun = time.monotonic()
    with pytest.raises(kofn.StoreError, match=r"migrated from version 1 to 2; it is unchanged.*Stop the processes"):
        Store(store_url)
    assert 0.4 < time.monotonic() - begun < 20
    process.kill()
    process.join(30)
    assert found_in(store_url) == (1, False)
    Store(store_url).close()
    assert found_in(store_url) == (2, True)


# What is refused.


def test_a_store_of_a_newer_kofn_is_refused(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(migrations, "MIGRATIONS", [add_table])
        Store(store_url).close()
    with pytest.raises(kofn.StoreError, match=f"has version 2, of a newer kofn, {REFUSED}"):
        Store(store_url)


def test_a_store_that_a_newer_kofn_migrates_meanwhile_is_refused(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the first look and the transaction."""
    versions = iter([1, 3])
    monkeypatch.setattr(migrations, "version_of", lambda _: next(versions))
    monkeypatch.setattr(migrations, "MIGRATIONS", [add_table])
    with pytest.raises(kofn.StoreError, match="has version 3, of a newer kofn, and this kofn reads versions 1 to 2: "):
        Store(store_url)


@pytest.mark.parametrize("version", [1, 7])
def test_a_store_from_before_the_first_release_is_refused(store_url: str, version: int) -> None:
    with engine_for(store_url).begin() as connection:
        connection.execute(text("CREATE TABLE kofn_version (version INTEGER NOT NULL)"))
        connection.execute(text("INSERT INTO kofn_version VALUES (:version)"), {"version": version})
    for make in (Store, lambda url: Store(url, create=False)):
        with pytest.raises(kofn.StoreError, match=rf"was made by a development version of kofn.*{REFUSED}"):
            make(store_url)
    with engine_for(store_url).begin() as connection:
        assert inspect(connection).get_table_names() == ["kofn_version"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kofn": "campaign", "format": 1}, "was made by a development version of kofn, before the first release"),
        ({"kofn": "campaign", "format": 6}, "was made by a development version of kofn, before the first release"),
        ({"format": 2}, "has format 2"),
        ({"format": "1"}, "has format '1'"),
        ({"format": True}, "has format True"),
    ],
)
def test_an_export_of_another_format_is_refused(sqlite_store: str, change: dict[str, Any], message: str) -> None:
    exported = create(sqlite_store).export() | change
    with pytest.raises(
        kofn.BadRecord, match=f"this export {message}, and this kofn reads format 1: import it with the kofn that made"
    ):
        Campaign.import_(exported, store=sqlite_store, name="copy")
