"""Backup and restore: online, consistent, between both kinds of stores, all or nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

import kofn
from kofn import Campaign
from kofn.campaigns import Store, backup, campaigns, restore
from kofn.campaigns.store import backups, migrations, sqlite_file
from kofn.campaigns.store.schema import CAMPAIGNS, METADATA, SETTINGS
from kofn.service.api.app_state import AppState
from kofn.service.security.tokens import create_token, find_token, tokens, tokens_required
from tests.campaigns.tools import checked, create, play, rewards_for
from tests.campaigns.workers import CONTEXT, start
from tests.service.tools import service

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def sqlite_store(new_sqlite_store: str) -> str:
    """Here, stores are created by the code under test."""
    return new_sqlite_store


@pytest.fixture(params=["sqlite", "postgres"])
def target_url(request: Any, tmp_path: Path) -> Iterator[str]:
    """A second empty store, of each kind."""
    if request.param == "postgres":
        yield request.getfixturevalue("other_postgres_store")
    else:
        yield f"sqlite:///{tmp_path}/restored.db?synchronous=normal"


@pytest.fixture
def other_postgres_store(postgres_url: str) -> Iterator[str]:
    from tests.conftest import postgres_store

    yield from postgres_store.__wrapped__(postgres_url)  # type: ignore[attr-defined]


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
    """All rows but the ids and stamps of campaigns, which a restore changes."""
    with store.read() as connection:
        found = {}
        for table in METADATA.tables.values():
            hidden = ("id", "stamp") if table is CAMPAIGNS else ("campaign",) if table.name != "kofn_tokens" else ()
            columns = [column for column in table.columns if column.name not in hidden]
            found[table.name] = sorted(map(repr, connection.execute(select(*columns)).all()))
        return found


def ids_and_stamps(store: Store) -> dict[str, tuple[int, int]]:
    with store.read() as connection:
        rows = connection.execute(select(CAMPAIGNS.c.name, CAMPAIGNS.c.id, CAMPAIGNS.c.stamp)).all()
    return {name: (id, stamp) for name, id, stamp in rows}


def test_a_backup_of_either_kind_restores_into_either(store_url: str, target_url: str, tmp_path: Path) -> None:
    store, token = filled(store_url)
    in_flight = Campaign.open("front", store).open_decisions(3)
    made = backup(tmp_path / "shop.backup", store)
    assert (made.campaigns, made.tokens, made.store_version) == (2, 1, len(migrations.MIGRATIONS))
    assert made.size == (tmp_path / "shop.backup").stat().st_size
    assert restore(tmp_path / "shop.backup", target_url) == made
    there = Store(target_url)
    assert contents(there) == contents(store)
    before, after = ids_and_stamps(store), ids_and_stamps(there)
    assert all(after[name][1] not in {0, before[name][1]} for name in before)
    for name in ("front", "news"):
        campaign = Campaign.open(name, there)
        checked(campaign)
        assert campaign.best() == Campaign.open(name, store).best()
        play(campaign, 60, batch=20)
        checked(campaign)
    assert Campaign.open("front", there).rewards(rewards_for(in_flight)).accepted == 3
    assert find_token(there, token) is not None
    with there.read() as connection:
        assert connection.execute(select(SETTINGS.c.name)).all() == store_settings(store)
    create(target_url, "third")  # new rows get ids of their own
    create_token(there, "second")
    assert len(campaigns(there)) == 3
    assert [each.name for each in tokens(there)] == ["shop", "second"]
    for each in (store, there):
        each.close()


def store_settings(store: Store) -> Any:
    with store.read() as connection:
        return connection.execute(select(SETTINGS.c.name)).all()


def play_until(store: str, acknowledged: Callable[[dict[str, float]], None], stop: threading.Event) -> None:
    campaign = Campaign.open("front", Store(store))
    while not stop.is_set():
        rewards = rewards_for(campaign.decide(5))
        campaign.rewards(rewards)
        acknowledged(rewards)


def test_a_backup_under_writers_is_consistent_and_complete(store_url: str, tmp_path: Path) -> None:
    create(store_url)
    lock, acknowledged, stop = threading.Lock(), dict[str, float](), threading.Event()

    def note(rewards: dict[str, float]) -> None:
        with lock:
            acknowledged.update(rewards)

    threads = [threading.Thread(target=play_until, args=(store_url, note, stop)) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(2):
            while len(acknowledged) < 40 * (number + 1):
                time.sleep(0.005)
            with lock:
                before = dict(acknowledged)
            backup(tmp_path / f"{number}.backup", store_url)
            restore(tmp_path / f"{number}.backup", f"sqlite:///{tmp_path}/{number}.db?synchronous=normal")
            there = Store(f"sqlite:///{tmp_path}/{number}.db?synchronous=normal")
            restored = Campaign.open("front", there)
            checked(restored)
            assert restored.rewards(before).repeated == len(before)
            there.close()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    checked(Campaign.open("front", store_url))


def test_a_request_finds_a_campaign_that_is_restored_after_it_was_opened(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a request has opened the campaign, and then waits for the transaction of a restore, or of two."""
    backup(tmp_path / "shop.backup", create(store_url).store)
    open_campaign, left = AppState._open_campaign, 0

    def open_before_a_restore(self: AppState, name: str) -> Campaign:
        nonlocal left
        opened = open_campaign(self, name)
        if left:
            left -= 1
            restore(tmp_path / "shop.backup", self.store, replace=True)
        return opened

    monkeypatch.setattr(AppState, "_open_campaign", open_before_a_restore)
    for restores in (1, 2):
        with service(store_url) as http:
            left = restores
            assert http.post("/api/campaigns/front/decisions", json={"count": 1}).status_code == 200
        with service(store_url) as http:
            left = restores
            assert http.get("/api/campaigns/front").status_code == 200
            assert left == 0
            assert http.get("/api/campaigns/missing").status_code == 404


def test_servers_go_on_after_a_restore_and_mix_nothing_up(store_url: str, tmp_path: Path) -> None:
    """The lost timeline: what was decided after the backup is unknown, and what servers have in memory is not used."""
    campaign = create(store_url)
    play(campaign, 100, batch=20)
    before = campaign.decide(5)
    store = campaign.store
    backup(tmp_path / "shop.backup", store)
    best = campaign.best()
    with service(store_url) as http:
        later = http.post("/api/campaigns/front/decisions", json={"count": 40}).json()["decisions"]
        created = http.post("/api/campaigns", json={"name": "new", "arms": list("vwxyz"), "k": 2})
        assert created.status_code == 201
        assert http.post("/api/campaigns/new/decisions", json={"count": 1}).is_success
        play(campaign, 120, batch=20)
        known = ids_and_stamps(store)
        with pytest.raises(kofn.StoreError, match=r"is not empty: it has 2 campaigns and 0 tokens.*--replace"):
            restore(tmp_path / "shop.backup", store)
        other = Store(store_url)  # as in another process: it does not share the memory of the service
        restore(tmp_path / "shop.backup", other, replace=True)
        other.close()
        (restored,) = ids_and_stamps(store).values()
        assert restored[0] > max(id for id, _ in known.values())
        create(store_url, "other")  # it does not get the id of `new`
        assert ids_and_stamps(store)["other"][0] > restored[0]
        assert http.get("/api/campaigns/new").status_code == 404
        assert http.get("/api/campaigns/front/insight").json()["best"] == best
        sent = [{"id": each["id"], "reward": 5.0} for each in later]
        refused = http.post("/api/campaigns/front/rewards", json={"rewards": sent})
        assert refused.json()["type"] == "urn:kofn:unknown-decision"
        rewards = [{"id": id, "reward": value} for id, value in rewards_for(before).items()]
        assert http.post("/api/campaigns/front/rewards", json={"rewards": rewards}).json()["accepted"] == 5
        for _ in range(5):  # the numbers of lost decisions are given to new ones
            assert http.post("/api/campaigns/front/decisions", json={"count": 20}).is_success
        for one in sent[::7]:
            answer = http.post("/api/campaigns/front/rewards", json={"rewards": [one]})
            assert not answer.is_success or answer.json()["accepted"] == 0
        with pytest.raises(kofn.NoSuchCampaign):
            campaign.decide()  # an object of before the restore: open the campaign again
    again = Campaign.open("front", store)
    assert again.summary().rewards == 105
    play(again, 60, batch=20)
    checked(again)


# What is refused.


@pytest.fixture(scope="module")
def small_backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("backup")
    store, _ = filled(f"sqlite:///{folder}/shop.db?synchronous=normal")
    backup(folder / "shop.backup", store)
    store.close()
    return folder / "shop.backup"


def damage(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "UPDATE kofn_rewards SET value = value + 0.125 WHERE first = 0",
            "damaged: kofn_rewards is not as it was written",
        ),
        ("DELETE FROM kofn_tokens", "damaged: kofn_tokens is not as it was written"),
        ("DROP TABLE kofn_plans", "damaged: "),
        ("DROP TABLE kofn_backup", "damaged: no such table"),
        ("UPDATE kofn_states SET record = x'00'", "damaged: "),
        ("ALTER TABLE kofn_rewards RENAME COLUMN value TO walue", "damaged: its tables are not those of its version"),
        ("CREATE TABLE extra (name TEXT)", "damaged: its tables are not those of its version"),
        (
            "UPDATE kofn_backup SET value = replace(value, 'kofn_campaigns', 'kofn_Campaigns')",
            "damaged: its tables are not those of its version",
        ),
        ("UPDATE kofn_backup SET value = '1e300' WHERE name = 'made'", "damaged: "),
        ("UPDATE kofn_backup SET value = '[]' WHERE name = 'tables'", "damaged: "),
        ("UPDATE kofn_version SET version = 3", "damaged: its description does not match its tables"),
        ("UPDATE kofn_backup SET value = 'null' WHERE name = 'format'", "damaged: its description"),
        (
            "UPDATE kofn_backup SET value = '2' WHERE name = 'format'",
            r"made by kofn .* \(format 2.*install a newer kofn",
        ),
        ("PRAGMA application_id = 0", "is not a backup"),
    ],
)
def test_a_damaged_backup_is_refused(small_backup: Path, tmp_path: Path, statement: str, message: str) -> None:
    file = tmp_path / "shop.backup"
    shutil.copy(small_backup, file)
    damage(file, statement)
    with pytest.raises(kofn.BadRecord, match=message):
        restore(file, f"sqlite:///{tmp_path}/new.db?synchronous=normal")
    assert list(tmp_path.iterdir()) == [file]


def test_a_backup_with_flipped_bits_or_cut_short_is_refused(small_backup: Path, tmp_path: Path) -> None:
    file, whole = tmp_path / "shop.backup", small_backup.read_bytes()
    refused = 0
    for at in range(100, len(whole), len(whole) // 6):
        broken = bytearray(whole)
        broken[at] ^= 0x10
        for content in (bytes(broken), whole[:at]):
            file.write_bytes(content)
            try:
                restore(file, f"sqlite:///{tmp_path}/new-{at}-{len(content)}.db?synchronous=normal")
            except kofn.BadRecord:
                refused += 1
    for made in tmp_path.glob("new-*.db"):  # where unused bytes of a page were hit, everything is there
        store = Store(f"sqlite:///{made}")
        assert all(Campaign.open(each.name, store).verify().ok for each in campaigns(store))
        store.close()
    assert refused >= 7
    assert not [each for each in tmp_path.iterdir() if "part" in each.name]


def test_a_backup_with_damaged_indexes_restores_or_is_refused(small_backup: Path, tmp_path: Path) -> None:
    """No checksum covers an index: nothing of it is restored. Migrating an older backup may need it."""
    file = tmp_path / "shop.backup"
    damage_indexes(small_backup, file)
    restore(file, f"sqlite:///{tmp_path}/new.db?synchronous=normal")
    store = Store(f"sqlite:///{tmp_path}/new.db")
    assert campaigns(store)
    assert all(Campaign.open(each.name, store).verify().ok for each in campaigns(store))
    store.close()
    write_old_backup(tmp_path / "old.backup", 3)
    damage_indexes(tmp_path / "old.backup", file)
    with pytest.raises(kofn.BadRecord, match=r"shop.backup is damaged: .*Use another backup"):
        restore(file, f"sqlite:///{tmp_path}/old.db?synchronous=normal")


def damage_indexes(whole: Path, file: Path) -> None:
    """Copy a backup with a wrong first byte in the first page of every index."""
    with closing(sqlite3.connect(whole)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        pages = connection.execute("SELECT rootpage FROM sqlite_master WHERE type = 'index'").fetchall()
    content = bytearray(whole.read_bytes())
    for (page,) in pages:
        content[(page - 1) * size] = 0
    assert pages
    file.write_bytes(content)


def test_a_flipped_bit_in_the_name_of_a_column_is_refused(small_backup: Path, tmp_path: Path) -> None:
    """Else SQLite would take "value" for a text, and restore it as every reward."""
    file, whole = tmp_path / "shop.backup", small_backup.read_bytes()
    flipped = whole.replace(b"\tvalue DOUBLE NOT NULL", b"\twalue DOUBLE NOT NULL", 1)
    assert flipped != whole
    file.write_bytes(flipped)
    with pytest.raises(kofn.BadRecord, match="damaged: its tables are not those of its version"):
        restore(file, f"sqlite:///{tmp_path}/new.db?synchronous=normal")


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_files_of_an_earlier_store_are_not_applied_to_a_new_one(
    small_backup: Path, tmp_path: Path, suffix: str
) -> None:
    left, new, url = tmp_path / f"shop.db{suffix}", tmp_path / "shop.db", f"sqlite:///{tmp_path}/shop.db"
    left.write_bytes(b"the last writes")
    os.symlink(new, tmp_path / "link.db")
    for make in (
        lambda: restore(small_backup, url),
        lambda: restore(small_backup, url, replace=True),
        lambda: Store(url),
        lambda: Store(f"sqlite:///{tmp_path}/link.db"),
    ):
        with pytest.raises(kofn.StoreError, match=rf"cannot be created: {left} of an earlier store"):
            make()
    assert left.read_bytes() == b"the last writes"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.db", left.name]
    left.unlink()
    restore(small_backup, url)


def test_a_restore_does_not_bring_back_what_a_killed_server_wrote(small_backup: Path, tmp_path: Path) -> None:
    old, url = tmp_path / "shop.db", f"sqlite:///{tmp_path}/shop.db?synchronous=normal"
    process = start(fill_and_die, url)
    process.join(60)
    assert Path(f"{old}-wal").stat().st_size > 0
    old.rename(tmp_path / "old.db")  # and not the files beside it
    with pytest.raises(kofn.StoreError, match=r"shop\.db-wal and .*shop\.db-shm of an earlier store"):
        restore(small_backup, url)
    for suffix in ("-wal", "-shm"):
        Path(f"{old}{suffix}").rename(f"{tmp_path}/old.db{suffix}")
    restore(small_backup, url)
    there, before = Store(url), Store(f"sqlite:///{tmp_path}/old.db?synchronous=normal")
    assert sorted(each.name for each in campaigns(there)) == ["front", "news"]
    assert [each.name for each in campaigns(before)] == ["lost"]
    checked(Campaign.open("lost", before))
    there.close()
    before.close()


def fill_and_die(url: str) -> None:
    play(create(url, "lost"), 40, batch=20)
    os.kill(os.getpid(), signal.SIGKILL)


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


def test_a_store_that_had_a_token_requires_one_after_a_restore(store_url: str, tmp_path: Path) -> None:
    create(store_url)
    store = Store(store_url)
    backup(tmp_path / "before.backup", store)
    restore(tmp_path / "before.backup", store, replace=True)
    assert not tokens_required(store)
    create_token(store, "shop")
    restore(tmp_path / "before.backup", store, replace=True)
    assert tokens(store) == []
    assert tokens_required(store)
    restore(tmp_path / "before.backup", store, replace=True)  # now only the setting says so
    assert tokens_required(store)
    backup(tmp_path / "after.backup", store)
    restore(tmp_path / "after.backup", store, replace=True)
    assert tokens_required(store)
    store.close()


def test_a_newer_backup_is_refused(small_backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:-1])
    with pytest.raises(kofn.BadRecord, match=r"store version 7\), and this kofn reads format 1 and versions up to 6"):
        restore(small_backup, f"sqlite:///{tmp_path}/new.db?synchronous=normal")


def test_a_backup_is_not_served_and_no_store_is_overwritten(small_backup: Path, tmp_path: Path) -> None:
    before = small_backup.read_bytes()
    with pytest.raises(kofn.StoreError, match="is a backup of a store: restore it"):
        Store(f"sqlite:///{small_backup}")
    with pytest.raises(kofn.StoreError, match="is a backup of a store"):
        restore(small_backup, f"sqlite:///{small_backup}", replace=True)
    store = Store(f"sqlite:///{tmp_path}/shop.db")
    for replace, message in ((False, "the file exists; choose another name"), (True, "only a backup can be replaced")):
        with pytest.raises(kofn.StoreError, match=message):
            backup(tmp_path / "shop.db", store, replace=replace)
    with pytest.raises(kofn.StoreError, match="there is no folder"):
        backup(tmp_path / "nowhere" / "shop.backup", store)
    with pytest.raises(kofn.StoreError, match="there is no folder"):
        restore(small_backup, f"sqlite:///{tmp_path}/nowhere/shop.db")
    with pytest.raises(kofn.BadRecord, match="there is no backup"):
        restore(tmp_path / "missing.backup", store)
    with pytest.raises(kofn.StoreError, match="there is no store in the file"):
        backup(tmp_path / "typo.backup", f"sqlite:///{tmp_path}/typo.db")
    assert small_backup.read_bytes() == before
    store.close()


def test_only_its_owner_can_read_a_backup(small_backup: Path, tmp_path: Path) -> None:
    assert small_backup.stat().st_mode & 0o777 == 0o600
    assert not [each for each in small_backup.parent.iterdir() if each.name.endswith("part")]
    restore(small_backup, f"sqlite:///{tmp_path}/new.db?synchronous=normal")
    assert [(each.name, each.stat().st_mode & 0o777) for each in tmp_path.iterdir()] == [("new.db", 0o600)]


# Older versions, and interruptions.


def write_old_backup(file: Path, version: int) -> None:
    """Write a backup as a kofn of that version would have made it: its tables, and their checksums."""
    shutil.copy(DATA / f"store-version-{version}.db", file)
    with closing(sqlite3.connect(file)) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        sums = {}
        for table in sorted(set(names) - {"kofn_version", "sqlite_sequence"}):
            checksum = backups._Checksum()
            columns = sorted(row[1] for row in connection.execute(f"PRAGMA table_info({table})"))
            for rows in backups._chunks(connection, table, columns):
                checksum.add(rows)
            sums[table] = checksum.facts()
        facts = {"format": 1, "kofn": "0.1.0", "made": 1.8e9, "store_version": version, "tables": sums}
        connection.execute("CREATE TABLE kofn_backup (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
        connection.executemany("INSERT INTO kofn_backup VALUES (?, ?)", [(k, json.dumps(v)) for k, v in facts.items()])
        connection.execute(f"PRAGMA application_id = {sqlite_file.BACKUP_ID}")
        connection.commit()


@pytest.mark.parametrize("version", [2, 3])
def test_an_older_backup_is_migrated(store_url: str, version: int, tmp_path: Path) -> None:
    file = tmp_path / "old.backup"
    write_old_backup(file, version)
    known = json.loads((DATA / f"store-version-{version}.json").read_text())
    before = file.read_bytes()
    assert restore(file, store_url).store_version == version
    assert file.read_bytes() == before
    store = Store(store_url)
    store.clock = lambda: float(known["clock"])
    for name in ("shop", "servers", "news"):
        assert Campaign.open(name, store).best() == known[name]["best"]
        assert Campaign.open(name, store).verify().ok
    assert find_token(store, known["token"]) is not None
    store.close()


@pytest.mark.skipif(sys.platform == "win32", reason="? is not allowed in names of files")
def test_a_backup_may_have_any_name(sqlite_store: str, tmp_path: Path) -> None:
    create(sqlite_store).decide(3)
    folder = tmp_path / "shop?day=1"
    folder.mkdir()
    target = folder / "50%41 #1?.backup"
    backup(target, sqlite_store)
    assert not (tmp_path / "shop").exists()
    assert list(folder.iterdir()) == [target]
    restore(target, f"sqlite:///{tmp_path}/new.db")
    assert Campaign.open("front", store=f"sqlite:///{tmp_path}/new.db").summary().plays == 3


@pytest.fixture
def full_disk() -> Iterator[Callable[[int], None]]:
    """From its call on, no file of this process can grow beyond that size."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the size of files")
@pytest.mark.parametrize("size", [0, 8192, 300_000])
def test_a_backup_that_does_not_fit_on_its_disk_is_named(
    sqlite_store: str, tmp_path: Path, full_disk: Callable[[int], None], size: int
) -> None:
    """At its first byte, while its tables are made, and among its rows. The store is fine, and not mentioned."""
    campaign = create(sqlite_store)
    for _ in range(500):
        campaign.decide(metadata={"page": "x" * 1000})
    campaign.store.close()  # its log is empty, so that reading it writes nothing
    full_disk(size)
    target = tmp_path / "shop.backup"
    with pytest.raises(
        kofn.StoreError, match=rf"^the backup {target} cannot be written: .*(full|disk I/O error|large)"
    ):
        backup(target, sqlite_store)
    assert list(tmp_path.glob("*.part")) == list(tmp_path.glob(".*.part")) == []
    assert not target.exists()


def test_a_backup_in_a_folder_that_cannot_be_written_is_named(
    sqlite_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(sqlite_store)

    def refuses(*_: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("kofn.campaigns.store.sqlite_file.os.open", refuses)
    with pytest.raises(kofn.StoreError, match=r"^the backup .*shop\.backup cannot be written: Permission denied"):
        backup(tmp_path / "shop.backup", sqlite_store)


def restore_slowly(file: str, url: str, reached: Any) -> None:
    """Restore a backup, and stop before its last rows."""

    def stop(done: int, of: int) -> None:
        if done == of:
            reached.set()
            time.sleep(600)

    restore(file, url, replace=True, progress=stop)


@pytest.mark.parametrize("new", [False, True])
def test_a_restore_that_is_killed_changes_nothing(
    store_url: str, small_backup: Path, tmp_path: Path, new: bool
) -> None:
    if not new:
        play(create(store_url, "mine"), 40, batch=20)
        before = contents(Store(store_url))
    reached = CONTEXT.Event()
    process = start(restore_slowly, str(small_backup), store_url, reached)
    assert reached.wait(60)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)
    if new and store_url.startswith("sqlite"):
        assert not (tmp_path / "shop.db").exists()
    else:
        store = Store(store_url)
        assert campaigns(store) == [] if new else contents(store) == before
        store.close()
    restore(small_backup, store_url, replace=not new)
    store = Store(store_url)
    checked(Campaign.open("front", store))
    assert len(campaigns(store)) == 2
    store.close()


# The command line.


def test_backup_and_restore_from_the_shell(
    kofn_main: Callable[..., tuple[int, str, str]], sqlite_store: str, tmp_path: Path
) -> None:
    play(create(sqlite_store), 40, batch=20)
    file, new = str(tmp_path / "shop.backup"), f"sqlite:///{tmp_path}/new.db"
    code, out, err = kofn_main("backup", file, "--store", sqlite_store)
    assert (code, err) == (0, "")
    assert out.startswith(f"wrote {file}: 1 campaigns, 0 tokens, ")
    assert kofn_main("backup", file, "--store", sqlite_store)[0] == 2
    made = json.loads(kofn_main("backup", file, "--replace", "--store", sqlite_store, "--json")[1])
    assert (made["file"], made["campaigns"], made["size"]) == (file, 1, Path(file).stat().st_size)
    assert kofn_main("restore", file, "--store", new)[1].startswith("restored 1 campaigns, 0 tokens, ")
    code, out, err = kofn_main("restore", file, "--store", new)
    assert (code, out) == (2, "")
    assert "is not empty: it has 1 campaigns and 0 tokens" in err
    assert json.loads(kofn_main("restore", file, "--replace", "--store", new, "--json")[1]) == made
    typo = f"sqlite:///{tmp_path}/typo.db"
    code, _, err = kofn_main("backup", str(tmp_path / "typo.backup"), "--store", typo)
    assert (code, err.count("\n")) == (2, 1)
    assert f"there is no store in the file {tmp_path}/typo.db" in err
    assert not (tmp_path / "typo.db").exists()


def test_progress_counts_rows(small_backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backups, "CHUNK", 10)
    seen: list[tuple[int, int]] = []
    made = restore(
        small_backup, f"sqlite:///{tmp_path}/new.db?synchronous=normal", progress=lambda *each: seen.append(each)
    )
    assert seen[0] == (0, made.rows)
    assert seen[-1] == (made.rows, made.rows)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) > made.rows / 10
