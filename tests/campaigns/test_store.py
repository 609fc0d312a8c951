"""The store: its durability, its files, and its errors."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
from sqlalchemy import Connection, select

import kofn
from kofn.campaigns import Store, campaigns, store_at
from kofn.campaigns.append import Group
from kofn.campaigns.fold import Transaction
from kofn.campaigns.store import sqlite_file
from kofn.campaigns.store.schema import SETTINGS
from tests.campaigns.tools import checked, create, play
from tests.campaigns.workers import run


@pytest.fixture
def sqlite_store(new_sqlite_store: str) -> str:
    """Here, stores are created by the code under test."""
    return new_sqlite_store


def test_an_acknowledged_reward_is_on_the_disk(tmp_path: Path) -> None:
    for query, level in (("", 2), ("?synchronous=normal", 1)):
        with Store(f"sqlite:///{tmp_path}/shop.db{query}").read() as connection:
            for name, value in (("synchronous", level), ("journal_mode", "wal"), ("busy_timeout", 10_000)):
                assert connection.exec_driver_sql(f"PRAGMA {name}").scalar() == value


def test_a_failed_call_changes_nothing(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = create(store_url)
    play(campaign, 200, batch=20)
    decisions = campaign.decide(60)
    campaign.learn()
    before = campaign.export()
    with monkeypatch.context() as broken:
        for kind in (Group, Transaction):  # the very last steps
            broken.setattr(kind, "write", Mock(side_effect=RuntimeError("the power failed")))
        for call in (
            lambda: campaign.rewards({each.id: 6.0 for each in decisions}),
            lambda: campaign.decide(5),
            lambda: campaign.add_arm("i"),
            lambda: campaign.configure(control=list("abc")),
            campaign.pause,
        ):
            with pytest.raises(RuntimeError, match="the power failed"):
                call()
    assert campaign.export() == before
    campaign.rewards({each.id: 6.0 for each in decisions})
    checked(campaign)


def test_a_store_that_cannot_be_reached_says_so(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is not a database, whatever its name says" * 100)
    for url, message in (
        (f"sqlite:///{tmp_path}/nowhere/shop.db", "there is no folder"),
        (f"sqlite:///{tmp_path}/text.db", "not a database"),
        ("postgresql://kofn:secret@127.0.0.1:1/nothing", "failed: "),
    ):
        with pytest.raises(kofn.StoreError, match=message) as refused:
            store_at(url)
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize("pool", ["0", "x", "1001", "-1"])
def test_a_pool_must_be_a_number(pool: str) -> None:
    with pytest.raises(kofn.BadInput, match="pool must be a number of connections from 1 to 1,000"):
        Store(f"postgresql://kofn@127.0.0.1:1/nothing?pool={pool}")


def test_one_store_per_url_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = store_at("sqlite:///shop.db")
    assert store_at("sqlite:///shop.db") is first
    assert store_at(first) is first
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert store_at("sqlite:///shop.db") is not first
    create("sqlite:///shop.db", "second")
    assert campaigns(first) == []


def test_a_store_that_was_not_meant_is_not_created(tmp_path: Path) -> None:
    typo = f"sqlite:///{tmp_path}/typo.db"
    for call in (
        lambda: store_at(typo, create=False),
        lambda: Store(typo, create=False),
        lambda: kofn.Campaign.open("front", store=typo),
        lambda: campaigns(typo),
    ):
        with pytest.raises(kofn.StoreError, match=r"there is no store in the file .*/typo\.db: check the URL"):
            call()
    assert list(tmp_path.iterdir()) == []
    create(typo)
    assert len(campaigns(typo)) == 1


def test_a_database_without_tables_is_no_store(store_url: str, tmp_path: Path) -> None:
    if store_url.startswith("sqlite"):
        (tmp_path / "shop.db").touch()
    with pytest.raises(kofn.StoreError, match="there is no store in the database"):
        kofn.Campaign.open("front", store=store_url)
    store = Store(store_url)
    assert campaigns(store) == []
    store.close()


# The file of a SQLite store.


def test_only_its_owner_can_read_a_new_file(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        create(f"sqlite:///{tmp_path}/shop.db").decide()
        files = sorted(tmp_path.iterdir())
        assert [file.name for file in files] == ["shop.db", "shop.db-shm", "shop.db-wal"]
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    finally:
        os.umask(before)
    (tmp_path / "link.db").symlink_to(tmp_path / "new.db")  # to a file that does not exist
    create(f"sqlite:///{tmp_path}/link.db").store.close()
    assert (tmp_path / "new.db").stat().st_mode & 0o777 == 0o600
    (tmp_path / "shared.db").touch()
    (tmp_path / "shared.db").chmod(0o640)
    Store(f"sqlite:///{tmp_path}/shared.db").close()
    assert (tmp_path / "shared.db").stat().st_mode & 0o777 == 0o640  # an existing file keeps its permissions


@pytest.mark.parametrize("name", ["shop.db", "shop.db-wal"])
@pytest.mark.parametrize("how", ["moved", "replaced", "moved after long"])
def test_nothing_is_written_to_a_file_that_was_moved_or_replaced(tmp_path: Path, name: str, how: str) -> None:
    """SQLite would go on in the file that it has open, and after a kill nobody would find what was acknowledged."""
    campaign = create(f"sqlite:///{tmp_path}/shop.db")
    decision = campaign.decide()
    if how == "moved after long":  # then files are not looked at until a name in the folder changes
        os.utime(tmp_path, (1_000_000, 1_000_000))
        campaign.decide()
        with patch.object(sqlite_file, "identity", Mock()) as looked_at:
            campaign.decide()
        looked_at.assert_not_called()
    plays = campaign.summary().plays
    (tmp_path / name).rename(tmp_path / "moved")
    if how == "replaced":
        (tmp_path / name).touch()
    expected = "replaced by another file" if how == "replaced" else "deleted or moved"
    for _ in range(2):
        with pytest.raises(kofn.StoreError, match=rf"{name} of the store .* was {expected} while this process uses it"):
            campaign.decide()
    (tmp_path / "moved").rename(tmp_path / name)  # put back
    assert campaign.reward(decision.id, 1.0).accepted == 1
    assert campaign.summary().plays == plays
    campaign.store.close()  # the last connection deletes the log, and the next one has another
    assert len(campaign.decide(2)) == 2


def test_a_file_that_is_replaced_before_the_first_write_is_noticed(tmp_path: Path) -> None:
    """The writer takes a connection of the pool, which a read has opened before."""
    file = tmp_path / "shop.db"
    create(f"sqlite:///{file}").store.close()
    shutil.copy(file, tmp_path / "copy.db")
    campaign = kofn.Campaign.open("front", store=Store(f"sqlite:///{file}"))
    (tmp_path / "copy.db").replace(file)
    with pytest.raises(kofn.StoreError, match="was replaced by another file"):
        campaign.decide()
    campaign.store.close()  # it opens the present file from here on
    assert len(campaign.decide(2)) == 2


@pytest.mark.parametrize("waits", [True, False])
def test_a_file_that_is_moved_during_a_transaction_is_noticed(tmp_path: Path, waits: bool) -> None:
    """While it waits for another process, and before it commits."""
    file = tmp_path / "shop.db"
    store = create(f"sqlite:///{file}").store
    with closing(sqlite3.connect(file, isolation_level=None)) as other, ThreadPoolExecutor(1) as thread:
        other.execute("BEGIN IMMEDIATE" if waits else "SELECT 1")
        reached, moved = threading.Event(), threading.Event()

        def write(connection: Connection) -> None:
            reached.set()
            assert moved.wait(60)
            connection.execute(SETTINGS.insert(), {"name": "a", "value": "b"})

        written = thread.submit(store.transact, write)
        assert reached.wait(0.05 if waits else 60) != waits
        file.rename(tmp_path / "moved.db")
        moved.set()
        other.execute("COMMIT" if waits else "SELECT 1")
        with pytest.raises(kofn.StoreError, match="was deleted or moved"):
            written.result(60)
    (tmp_path / "moved.db").rename(file)
    with store.read() as connection:
        assert not connection.execute(select(SETTINGS)).all()
    store.close()


def test_a_second_store_of_the_same_file_ends_no_locks(tmp_path: Path) -> None:
    """On POSIX, a process that closes a file has no locks on it any more. Another one would take itself for alone."""
    campaign = create(f"sqlite:///{tmp_path}/shop.db")
    campaign.decide()
    Store(f"sqlite:///{tmp_path}/../{tmp_path.name}/shop.db").close()
    log = (tmp_path / "shop.db-wal").stat().st_ino
    other = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM kofn_schema'); c.close()"
    subprocess.run([sys.executable, "-c", other, str(tmp_path / "shop.db")], check=True)
    assert (tmp_path / "shop.db-wal").stat().st_ino == log  # who closes the store as the last one deletes it
    assert len(campaign.decide(2)) == 2


def test_a_file_that_was_deleted_is_not_created_again(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/shop.db")
    store.close()
    (tmp_path / "shop.db").unlink()
    for call in (lambda: campaigns(store), lambda: create(store)):
        with pytest.raises(kofn.StoreError, match="unable to open database file"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_a_file_beside_a_store_that_another_process_has_just_created_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store appears after `prepare` has found none."""
    file, found = str(tmp_path / "shop.db"), sqlite_file.check_nothing_beside

    def late(path: str) -> None:
        Path(file).touch()
        Path(f"{file}-wal").touch()
        found(path)

    monkeypatch.setattr(sqlite_file, "check_nothing_beside", late)
    sqlite_file.prepare(file, create=True)


def open_as_another_user(file: str) -> None:
    if os.geteuid() == 0:
        os.setuid(65534)
    with pytest.raises(kofn.StoreError, match=r"shop\.db failed: attempt to write a readonly database"):
        Store(f"sqlite:///{file}")


def test_a_file_that_cannot_be_written_is_named_and_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:  # that of pytest is closed to other users
        file = Path(folder) / "shop.db"
        create(f"sqlite:///{file}").store.close()
        file.chmod(0o444)
        Path(folder).chmod(0o755)
        before = file.read_bytes()
        run(open_as_another_user, [(str(file),)])
        assert file.read_bytes() == before
    monkeypatch.setattr(os, "open", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(kofn.StoreError, match=r"new\.db cannot be created: Permission denied"):
        Store(f"sqlite:///{tmp_path}/new.db")


# Libraries.


def test_a_policy_imports_nothing_slow() -> None:
    slow = "{'sqlalchemy', 'scipy.optimize', 'scipy.stats'}"
    program = f"import sys, kofn, kofn.cli; kofn.Thompson; assert not {slow} & set(sys.modules); kofn.Campaign"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(("library", "url"), [("sqlalchemy", "sqlite:///x.db"), ("psycopg", "postgresql://x/y")])
def test_a_missing_library_is_named(library: str, url: str, tmp_path: Path) -> None:
    program = f"""
import sys
sys.modules[{library!r}] = None
import kofn
assert ("Campaign" in kofn.__all__) == ({library!r} != "sqlalchemy")
try:
    kofn.Campaign.open("front", store={url!r})
except kofn.MissingExtra as missing:
    print(missing)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.strip().endswith(f"pip install 'kofn[{'store' if library == 'sqlalchemy' else 'postgres'}]'")
