"""Versions of stores and formats of exports: what is upgraded, by whom, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, inspect, select, text
from sqlalchemy.pool import NullPool

import kofn
from kofn import Campaign
from kofn.campaigns import Store, campaigns, fold
from kofn.campaigns.learner import Learner
from kofn.campaigns.learning import record_from
from kofn.campaigns.store import database, version
from kofn.campaigns.store.schema import CAMPAIGNS, FOLDS, STATES
from kofn.policies import registry
from kofn.service.security.tokens import create_token
from tests.campaigns.tools import checked, create, play
from tests.campaigns.workers import CONTEXT, run, start
from tests.cases import for_each

REFUSED = r"and this kofn reads version 1\.1: create a new store, or open this one with the kofn that made it"


@pytest.fixture
def sqlite_store(new_sqlite_store: str) -> str:
    """Here, stores are created by the code under test."""
    return new_sqlite_store


def engine_for(url: str) -> Engine:
    """A plain engine, without anything of the store."""
    plain = url.partition("?")[0] if url.startswith("sqlite") else url.replace("postgresql:", "postgresql+psycopg:")
    return create_engine(plain, poolclass=NullPool)


def version_in(url: str, change: str | None = None) -> str | None:
    """The version in the store, changed before to this one."""
    with engine_for(url).begin() as connection:
        if change is not None:
            connection.execute(text("UPDATE kofn_schema SET version = :version"), {"version": change})
        return version.version_of(connection)


def become_newer() -> None:
    """Let this process be of the next version, in which records of policies have another format."""
    vars(version)["FORMAT"] = registry.FORMAT = 2


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets this process be of the next version until the end of the test."""
    monkeypatch.setattr(version, "FORMAT", 1)
    monkeypatch.setattr(registry, "FORMAT", 1)
    return become_newer


# Upgrades.


def open_and_learn(url: str) -> None:
    """What a process of the next version does."""
    become_newer()
    store = Store(url)
    campaign = Campaign.open("front", store)
    play(campaign, 100, batch=20)
    campaign.learn()  # the other process plays, too: the test looks afterwards
    store.close()


def test_processes_of_the_next_version_upgrade_a_store_together(store_url: str) -> None:
    campaign = create(store_url)
    play(campaign, 200, batch=20)
    assert version_in(store_url) == "1.1"
    run(open_and_learn, [(store_url,)] * 2)
    assert version_in(store_url) == "1.2"
    with campaign.store.read() as connection:
        record, _ = record_from(connection.execute(select(STATES.c.record)).scalar_one())
        assert connection.execute(select(CAMPAIGNS.c.rewards)).scalar() == 400
    assert record["format"] == 2


def test_an_open_process_of_the_version_before_stops_writing(store_url: str) -> None:
    """It would write records that the newer one cannot read, or learn less than it, or keep it from learning."""
    campaign = create(store_url)
    decision = campaign.decide()
    learning = Learner(campaign.store)
    assert learning._lease.held()
    before = campaign.export()
    version_in(store_url, "1.2")
    learning._lease._until = 0.0  # it has to be renewed
    calls: list[Callable[[], Any]] = [
        *(campaign.decide, campaign.learn, campaign.insight, campaign.pause, campaign.ship, campaign.verify),
        *(lambda: campaign.reward(decision, 1.0), lambda: campaign.configure(unit="EUR"), campaign.delete),
        *(lambda: create(campaign.store, "new"), lambda: Campaign.import_(before, store=campaign.store, name="copy")),
        *(lambda: create_token(campaign.store, "shop"), learning._lease.held),
    ]
    for call in calls:
        with pytest.raises(kofn.StoreError, match=r"version 1\.2.*Restart this process"):
            call()
    version_in(store_url, "1.1")
    assert campaign.export() == before
    assert campaign.reward(decision, 1.0).accepted == 1


def upgrade_slowly(url: str, reached: Any) -> None:
    """Upgrade a store, and wait forever before it is committed."""
    become_newer()
    upgrade = version.upgrade

    def slow(connection: Connection, patience: float) -> str | None:
        found = upgrade(connection, patience)
        reached.set()
        time.sleep(600)
        return found

    version.upgrade = slow
    Store(url)


def test_others_wait_while_one_upgrades_and_a_killed_one_leaves_the_old_store(
    store_url: str, monkeypatch: pytest.MonkeyPatch, newer: Callable[[], None]
) -> None:
    create(store_url)
    reached = CONTEXT.Event()
    process = start(upgrade_slowly, store_url, reached)
    assert reached.wait(60)
    newer()
    monkeypatch.setattr(database, "LOCK_TIMEOUT", 0.5)
    monkeypatch.setattr(database, "PATIENCE", 0.5)
    begun = time.monotonic()
    with pytest.raises(kofn.StoreError, match=r"brought to version 1\.2; it is unchanged.*Stop the processes"):
        Store(store_url)
    assert 0.4 < time.monotonic() - begun < 20
    process.kill()
    process.join(30)
    assert version_in(store_url) == "1.1"
    store = Store(store_url)
    assert [each.name for each in campaigns(store)] == ["front"]
    assert version_in(store_url) == "1.2"
    store.close()


@for_each("checkpoint, most", [(512, 2048), (2, 4)])
def test_policies_are_made_again_from_exports_and_from_merged_steps(
    new_sqlite_store: str, checkpoint: int, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(version, "FORMAT", 1)
        patched.setattr(registry, "FORMAT", 1)
        patched.setattr(fold, "CHECKPOINT", checkpoint)
        patched.setattr(fold, "MAX_STEPS", most)
        store = Store(f"{new_sqlite_store.partition('?')[0]}{most}")
        campaign = create(store)
        for arm in "abc":
            play(campaign, 200, batch=10)
            campaign.retire_arm(arm)
            campaign.add_arm(arm)
        play(campaign, 200, batch=10)
        with store.read() as connection:
            steps = connection.execute(select(FOLDS.c.step).order_by(FOLDS.c.step)).scalars().all()
        assert (steps[0] == 0) == (most == 2048)
        store.close()
        exported, best = campaign.export(), campaign.best()
        store.close()
        become_newer()
        store = Store(str(store.url))
        for each in (Campaign.open("front", store), Campaign.import_(exported, store=store, name="copy")):
            assert each.verify().ok
            assert each.best() == best or most == 4  # merged steps are learned in another order
            play(each, 200, batch=10)
            with store.read() as connection:
                of = STATES.c.campaign == each._id
                record, _ = record_from(connection.execute(select(STATES.c.record).where(of)).scalar_one())
            assert record["format"] == 2
            assert record["state"]["plays"] >= 800
            checked(each)
        store.close()


# What is refused.


@pytest.mark.parametrize("found", ["1.2", "2.1", "10.0"])
def test_a_store_of_a_newer_kofn_is_refused(store_url: str, found: str) -> None:
    Store(store_url).close()
    version_in(store_url, found)
    for make in (Store, lambda url: Store(url, create=False)):
        with pytest.raises(kofn.StoreError, match=f"has version {found}, of a newer kofn, {REFUSED}"):
            make(store_url)
    assert version_in(store_url) == found


def test_a_store_that_a_newer_kofn_upgrades_meanwhile_is_refused(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the first look and the transaction."""
    versions = iter([None, "1.3"])
    monkeypatch.setattr(version, "version_of", lambda _: next(versions))
    with pytest.raises(kofn.StoreError, match=r"has version 1\.3, of a newer kofn, and this kofn reads version 1\.1: "):
        Store(store_url)


@pytest.mark.parametrize("table", ["kofn_version", "kofn_schema"])
def test_a_store_from_before_the_first_release_is_refused(store_url: str, table: str) -> None:
    with engine_for(store_url).begin() as connection:
        connection.execute(text(f"CREATE TABLE {table} (version INTEGER NOT NULL)"))
        connection.execute(text(f"INSERT INTO {table} VALUES (1)"))
    for make in (Store, lambda url: Store(url, create=False)):
        with pytest.raises(kofn.StoreError, match=rf"was made by a development version of kofn.*{REFUSED}"):
            make(store_url)
    with engine_for(store_url).begin() as connection:
        assert inspect(connection).get_table_names() == [table]


@for_each(
    "change, message",
    [
        ({"kofn": "campaign"}, "this is not an exported campaign"),
        ({"format": 2}, "this export has format 2, and this kofn reads format 1: import it with the kofn that made it"),
        ({"format": "1"}, "this export has format '1'"),
        ({"format": True}, "this export has format True"),
    ],
)
def test_an_export_of_another_format_is_refused(module_store: str, change: dict[str, Any], message: str) -> None:
    store = Store(module_store)
    exported = {**(Campaign.open("front", store) if campaigns(store) else create(store)).export(), **change}
    with pytest.raises(kofn.BadRecord, match=message):
        Campaign.import_(exported, store=store, name="copy")
    store.close()
