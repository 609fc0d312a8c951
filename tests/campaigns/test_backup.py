"""Backup and restore: of SQLite by kofn, of PostgreSQL by its own programs."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, select, text

import kofn
from kofn import Campaign
from kofn.campaigns import Store, backup, campaigns, restore, store_at
from kofn.campaigns.store import sqlite_backup
from kofn.campaigns.store.schema import METADATA
from kofn.service.security.tokens import create_token, find_token
from tests import postgres
from tests.campaigns.tools import checked, create, play, rewards_for
from tests.campaigns.workers import CONTEXT, start

GUIDE = (Path(__file__).parents[2] / "docs/guides/deployment.md").read_text()


@pytest.fixture
def sqlite_store(new_sqlite_store: str) -> str:
    """Here, stores are created by the code under test."""
    return new_sqlite_store


@pytest.fixture
def new_url(tmp_path: Path) -> str:
    """A store that does not exist."""
    return f"sqlite:///{tmp_path}/new.db?synchronous=normal"


def filled(url: str) -> tuple[Store, str]:
    """Fill a store with two campaigns, a deleted one, and a token; return the store and the token."""
    store = Store(url)
    create(url, "deleted").delete()
    play(create(url), 80, batch=20)
    Campaign.open("front", url).decide(7)
    Campaign.open("front", url).reward_total(["a", "b", "c"], count=10, total=21.5, key="monday")
    play(create(url, "news", policy="linear-thompson"), 40, batch=8)
    return store, create_token(store, "shop")[0]


def contents(store: Store) -> dict[str, Any]:
    """All rows."""
    with store.read() as connection:
        return {name: connection.execute(select(table)).all() for name, table in METADATA.tables.items()}


def test_a_restored_store_has_everything_and_goes_on(sqlite_store: str, new_url: str, tmp_path: Path) -> None:
    store, token = filled(sqlite_store)
    in_flight = Campaign.open("front", store).open_decisions(3)
    file = backup(tmp_path / "shop.backup", store)
    assert file.stat().st_mode & 0o777 == 0o600
    assert not [each for each in tmp_path.iterdir() if each.name.endswith("part")]
    restore(file, new_url)
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("shop.backup")] == ["shop.backup"]
    there = Store(new_url)
    assert contents(there) == contents(store)
    assert find_token(there, token) is not None
    assert Campaign.open("front", there).rewards(rewards_for(in_flight)).accepted == 3
    for name in ("front", "news"):
        play(Campaign.open(name, there), 60, batch=20)
        checked(Campaign.open(name, there))
    assert (tmp_path / "new.db").stat().st_mode & 0o777 == 0o600
    there.close()
    store.close()


def test_a_backup_under_writers_is_consistent_and_complete(sqlite_store: str, tmp_path: Path) -> None:
    create(sqlite_store)
    lock, acknowledged, stop = threading.Lock(), dict[str, float](), threading.Event()

    def play_until_stopped() -> None:
        campaign = Campaign.open("front", Store(sqlite_store))
        while not stop.is_set():
            rewards = rewards_for(campaign.decide(5))
            campaign.rewards(rewards)
            with lock:
                acknowledged.update(rewards)

    threads = [threading.Thread(target=play_until_stopped) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(2):
            while len(acknowledged) < 40 * (number + 1):
                time.sleep(0.005)
            with lock:
                before = dict(acknowledged)
            there = Store(f"sqlite:///{backup(tmp_path / f'{number}.backup', sqlite_store)}")  # it is a store itself
            checked(Campaign.open("front", there))
            assert Campaign.open("front", there).rewards(before).repeated == len(before)
            there.close()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    checked(Campaign.open("front", sqlite_store))


def decide_until_told(url: str, ready: Any, told: Any) -> None:
    Campaign.open("front", url).decide()
    ready.set()
    assert told.wait(60)


def test_a_store_that_another_process_uses_is_not_restored(sqlite_store: str, tmp_path: Path) -> None:
    campaign = create(sqlite_store)
    file = backup(tmp_path / "shop.backup", campaign.store)
    ready, told = CONTEXT.Event(), CONTEXT.Event()
    process = start(decide_until_told, sqlite_store, ready, told)
    assert ready.wait(60)
    with pytest.raises(kofn.StoreError, match=r"is unchanged: database is locked. Stop all processes that use it"):
        restore(file, campaign.store, replace=True)
    assert campaign.summary().plays == 1
    told.set()
    process.join(60)
    restore(file, campaign.store, replace=True)
    assert campaign.summary().plays == 0


def test_what_was_in_memory_before_a_restore_is_not_mixed_up_with_it(sqlite_store: str, tmp_path: Path) -> None:
    """The lost timeline: what was decided after the backup is unknown, and policies that learned more are not used."""
    campaign = create(sqlite_store)
    play(campaign, 100, batch=20)
    before = campaign.decide(5)
    file = backup(tmp_path / "shop.backup", campaign.store)
    best, later = campaign.best(), campaign.decide(40)
    lost = create(campaign.store, "lost")
    play(campaign, 120, batch=20)
    with pytest.raises(kofn.StoreError, match=r"is not empty: it has 2 campaigns and 0 tokens.*--replace"):
        restore(file, campaign.store)
    restore(file, campaign.store, replace=True)
    create(campaign.store, "other")  # it has the id of the lost one
    with pytest.raises(kofn.NoSuchCampaign):
        lost.decide()
    assert campaign.best() == best
    with pytest.raises(kofn.UnknownDecision):
        campaign.rewards(rewards_for(later))
    assert campaign.rewards(rewards_for(before)).accepted == 5
    campaign.decide(100)  # the numbers of lost decisions are given to new ones
    for each in later[::7]:
        with pytest.raises(kofn.UnknownDecision):
            campaign.reward(each.id, 5.0)
    assert campaign.summary().rewards == 105
    play(campaign, 60, batch=20)
    checked(campaign)


# What a crash left behind.


def fill_and_die(url: str) -> None:
    play(create(url, "lost"), 40, batch=20)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_restore_does_not_bring_back_what_a_killed_server_wrote(
    sqlite_store: str, new_url: str, tmp_path: Path
) -> None:
    file = backup(tmp_path / "shop.backup", filled(sqlite_store)[0])
    start(fill_and_die, new_url).join(60)
    assert (tmp_path / "new.db-wal").stat().st_size > 0
    restore(file, new_url, replace=True)
    assert sorted(each.name for each in campaigns(new_url)) == ["front", "news"]
    checked(Campaign.open("front", new_url))


def die_while_restoring(file: str, url: str) -> None:
    """Restore in small steps, and be killed when most of the store's pages have been replaced."""

    class Slow:
        def __init__(self, connection: Connection) -> None:
            self._from = of(connection)

        def backup(self, into: sqlite3.Connection) -> None:
            into.execute("PRAGMA cache_size = 10")  # changed pages are in the file, not only in memory
            self._from.backup(into, pages=5, progress=self._die)

        def _die(self, _: int, remaining: int, total: int) -> None:
            if remaining < total / 4:
                os.kill(os.getpid(), signal.SIGKILL)

    of, sqlite_backup._sqlite = sqlite_backup._sqlite, Slow  # type: ignore[assignment]
    restore(file, url, replace=True)


def test_a_restore_that_is_killed_changes_nothing(sqlite_store: str, new_url: str, tmp_path: Path) -> None:
    campaign = create(sqlite_store)
    play(campaign, 80, batch=20)
    before = contents(campaign.store)
    campaign.store.close()
    play(create(new_url, "other"), 100, batch=20)
    file = backup(tmp_path / "other.backup", new_url)
    process = start(die_while_restoring, str(file), sqlite_store)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert (tmp_path / "shop.db-journal").stat().st_size > 0
    assert contents(campaign.store) == before
    play(campaign, 20, batch=20)
    checked(campaign)


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_files_of_an_earlier_store_are_not_applied_to_a_new_one(sqlite_store: str, tmp_path: Path, suffix: str) -> None:
    file, left, url = tmp_path / "shop.backup", tmp_path / f"new.db{suffix}", f"sqlite:///{tmp_path}/new.db"
    backup(file, create(sqlite_store).store)
    left.write_bytes(b"the last writes")
    os.symlink(tmp_path / "new.db", tmp_path / "link.db")
    for make in (
        lambda: restore(file, url),
        lambda: restore(file, url, replace=True),
        lambda: Store(url),
        lambda: Store(f"sqlite:///{tmp_path}/link.db"),
    ):
        with pytest.raises(kofn.StoreError, match=rf"cannot be created: {left} of an earlier store"):
            make()
    assert left.read_bytes() == b"the last writes"
    assert not (tmp_path / "new.db").exists()


# What is refused.


def change(statement: str) -> Callable[[Path], None]:
    def changed(file: Path) -> None:
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(statement)

    return changed


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:20_000]), "is damaged: .*Use another backup"),
        (lambda file: file.write_bytes(b"subset,reward\n" * 99), "is damaged: file is not a database"),
        (lambda file: file.write_bytes(b""), "is not a backup: it has no tables of kofn"),
        (lambda file: file.unlink(), "there is no backup"),
        (change("DROP TABLE kofn_schema"), "is not a backup: it has no tables of kofn"),
        (change("ALTER TABLE kofn_schema RENAME TO kofn_version"), "was made by a development version of kofn"),
        (change("UPDATE kofn_schema SET version = '2.1'"), "has version 2.1, of a newer kofn"),
    ],
)
def test_what_is_no_sound_backup_is_refused(
    sqlite_store: str, new_url: str, tmp_path: Path, spoil: Callable[[Path], None], message: str
) -> None:
    file = backup(tmp_path / "shop.backup", create(sqlite_store).store)
    spoil(file)
    with pytest.raises((kofn.BadRecord, kofn.StoreError), match=message):
        restore(file, new_url)
    assert not (tmp_path / "new.db").exists()


def test_no_file_is_overwritten_by_mistake(sqlite_store: str, tmp_path: Path) -> None:
    store, file = create(sqlite_store).store, tmp_path / "shop.backup"
    file.write_text("something else")
    with pytest.raises(kofn.StoreError, match="the file exists; choose another name, or pass --replace"):
        backup(file, store)
    assert file.read_text() == "something else"
    backup(file, store, replace=True)
    os.symlink(tmp_path / "shop.db", tmp_path / "link.db")
    for target in ("shop.db", "link.db"):
        with pytest.raises(kofn.StoreError, match="a store of this name is in use"):
            backup(tmp_path / target, store, replace=True)
    with pytest.raises(kofn.BadInput, match="is the store itself"):
        restore(tmp_path / "shop.db", store, replace=True)
    with pytest.raises(kofn.StoreError, match="there is no folder"):
        backup(tmp_path / "nowhere" / "shop.backup", store)
    with pytest.raises(kofn.StoreError, match="there is no folder"):
        restore(file, f"sqlite:///{tmp_path}/nowhere/shop.db")
    with pytest.raises(kofn.StoreError, match="it is a folder; name a file in it"):
        backup(tmp_path, store, replace=True)
    with pytest.raises(kofn.BadInput, match=r"a store must be a URL such as .*; got 5"):
        restore(file, 5)  # type: ignore[arg-type]
    checked(Campaign.open("front", store))


@pytest.mark.skipif(sys.platform == "win32", reason="? is not allowed in names of files")
def test_a_backup_may_have_any_name(sqlite_store: str, new_url: str, tmp_path: Path) -> None:
    create(sqlite_store).decide(3)
    folder = tmp_path / "shop?day=1"
    folder.mkdir()
    target = folder / "50%41 #1?.backup"
    backup(target, sqlite_store)
    assert list(folder.iterdir()) == [target]
    restore(target, new_url)
    assert Campaign.open("front", store=new_url).summary().plays == 3


@pytest.fixture
def full_disk() -> Iterator[Callable[[int], None]]:
    """From its call on, no file of this process can grow beyond that size."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the size of files")
def test_a_full_disk_is_named_and_leaves_nothing(
    sqlite_store: str, tmp_path: Path, full_disk: Callable[[int], None]
) -> None:
    campaign = create(sqlite_store)
    for _ in range(200):
        campaign.decide(metadata={"page": "x" * 1000})
    campaign.store.close()  # its log is empty, so that reading it writes nothing
    full_disk(100_000)
    target = tmp_path / "shop.backup"
    with pytest.raises(
        kofn.StoreError, match=rf"^the backup {target} cannot be written: .*(full|disk I/O error|large)"
    ):
        backup(target, sqlite_store)
    assert not [each for each in tmp_path.iterdir() if "backup" in each.name]


# The command line.


def test_backup_and_restore_from_the_shell(
    kofn_main: Callable[..., tuple[int, str, str]], sqlite_store: str, new_url: str, tmp_path: Path
) -> None:
    create(sqlite_store)
    file = str(tmp_path / "shop.backup")
    code, out, err = kofn_main("backup", file, "--store", sqlite_store)
    assert (code, out, err) == (0, f"wrote {file}: 0.1 MiB\n", "")
    assert kofn_main("backup", file, "--store", sqlite_store)[0] == 2
    assert kofn_main("backup", file, "--replace", "--store", sqlite_store)[0] == 0
    assert kofn_main("restore", file, "--store", new_url) == (0, f"restored {file}\n", "")
    code, out, err = kofn_main("restore", file, "--store", new_url)
    assert (code, out) == (2, "")
    assert "is not empty: it has 1 campaigns and 0 tokens" in err
    assert kofn_main("restore", file, "--replace", "--store", new_url)[0] == 0
    code, _, err = kofn_main("backup", str(tmp_path / "typo.backup"), "--store", f"sqlite:///{tmp_path}/typo.db")
    assert (code, err.count("\n")) == (2, 1)
    assert f"there is no store in the file {tmp_path}/typo.db" in err
    assert not (tmp_path / "typo.db").exists()


# PostgreSQL.


@pytest.mark.parametrize(("command", "program"), [("backup", "pg_dump"), ("restore", "pg_restore")])
def test_kofn_names_the_programs_of_postgresql(
    kofn_main: Callable[..., tuple[int, str, str]], tmp_path: Path, command: str, program: str
) -> None:
    code, out, err = kofn_main(command, str(tmp_path / "shop.backup"), "--store", "postgresql://kofn@db/kofn")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "this store is on PostgreSQL, and kofn copies SQLite stores only: " in err
    assert f" with {program}, as " in err


def use_a_newer_version(url: str) -> None:
    """What a newer version leaves: a column, and a table that refers to one of the tables before."""
    store = Store(url)
    with store.write() as connection:
        for each in (
            "ALTER TABLE kofn_campaigns ADD COLUMN colour TEXT",
            "CREATE TABLE kofn_new (campaign INTEGER REFERENCES kofn_campaigns (id))",
            "UPDATE kofn_schema SET version = '2.1'",
        ):
            connection.execute(text(each))
    store.close()
    store_at(url).close()
    with pytest.raises(kofn.StoreError, match=r"has version 2\.1, of a newer kofn"):
        Store(url)


def test_the_way_back_from_an_upgrade(sqlite_store: str, tmp_path: Path) -> None:
    store, _ = filled(sqlite_store)
    before = contents(store)
    page = GUIDE.partition("## Upgrades")[2]
    (command,) = re.findall(r"/opt/kofn/bin/kofn (restore .*)", page)
    named, replace, option, _ = shlex.split(command)[1:]
    backup(tmp_path / named, store)
    store.close()
    use_a_newer_version(sqlite_store)
    program = [sys.executable, "-m", "kofn", "restore", str(tmp_path / named), option, sqlite_store]
    assert b"has version 2.1, of a newer kofn" in subprocess.run(program, capture_output=True).stderr
    subprocess.run([*program, replace], check=True)
    there = Store(sqlite_store)
    assert contents(there) == before
    checked(Campaign.open("front", there))
    there.close()
    use_a_newer_version(sqlite_store)


@pytest.fixture
def postgres_database(postgres_url: str) -> Iterator[str]:
    """The URL of a database of its own."""
    with psycopg.connect(postgres_url, autocommit=True) as server:
        name = f"kofn_{secrets.token_hex(4)}"
        server.execute(f"CREATE DATABASE {name}")
        yield postgres_url.replace("/postgres", f"/{name}")


def shell(command: str, url: str, folder: Path) -> None:
    environment = {"PATH": f"{postgres.programs()}:{os.environ['PATH']}", "KOFN_STORE": url}
    subprocess.run(command, shell=True, cwd=folder, env=environment, check=True)


def test_the_way_back_from_an_upgrade_on_postgresql(postgres_database: str, tmp_path: Path) -> None:
    store, _ = filled(postgres_database)
    before = contents(store)
    dump, restored = re.findall(r"^pg_.*", GUIDE, re.MULTILINE)
    (drop,) = re.findall(r"^psql .*?^END$", GUIDE, re.MULTILINE | re.DOTALL)
    shell(dump, postgres_database, tmp_path)
    store.close()
    use_a_newer_version(postgres_database)
    shell(f"{drop}\n{restored}", postgres_database, tmp_path)
    there = Store(postgres_database)
    assert contents(there) == before
    checked(Campaign.open("front", there))
    there.close()
    use_a_newer_version(postgres_database)


def test_postgresql_is_restored_by_its_programs(postgres_database: str, tmp_path: Path) -> None:
    """By the commands of docs/guides/deployment.md, while this process has the store open."""
    dump, restored = re.findall(r"^pg_.*", GUIDE, re.MULTILINE)
    store, token = filled(postgres_database)
    campaign, before = Campaign.open("front", store), contents(store)
    shell(dump, postgres_database, tmp_path)
    later = campaign.decide(5)
    play(campaign, 60, batch=20)
    create(store, "new")
    shell(restored, postgres_database, tmp_path)
    assert contents(store) == before
    assert find_token(store, token) is not None
    with pytest.raises(kofn.UnknownDecision):
        campaign.rewards(rewards_for(later))
    play(campaign, 60, batch=20)
    checked(campaign)
    create(store, "new")
    store.close()
