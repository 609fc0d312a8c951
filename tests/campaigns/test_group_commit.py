"""Group commit: who waits together is committed together, and nobody suffers from a neighbour."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

import kofn
from kofn import Campaign
from kofn.campaigns import Decision, Rewarded, Store, stopping
from kofn.campaigns.records import transaction
from kofn.campaigns.store import database as store_module
from kofn.campaigns.store import group_commit
from kofn.campaigns.store.group_commit import GroupCommit, Job, Outcome
from tests.campaigns.tools import checked, create, play, rewards_for


def decided(campaign: Campaign, count: int) -> Future[Any]:
    """The future of decisions that another thread makes."""
    done: Future[Any] = Future()
    campaign.submit_decide(done, count)
    return done


def rewarded(campaign: Campaign, rewards: dict[str, float]) -> Future[Any]:
    """The future of rewards that another thread records."""
    done: Future[Any] = Future()
    campaign.submit_rewards(done, rewards)
    return done


def submitted(groups: GroupCommit, execute: Any, *, heavy: bool = False) -> Future[Any]:
    """The future of a job that another thread executes."""
    done: Future[Any] = Future()
    groups.submit(0, Job(1, lambda tx: None, heavy, done), execute)
    return done


@contextmanager
def held(store: Store) -> Iterator[None]:
    """Keep all groups of the store waiting, until the block ends: then they are committed together."""
    begun, go_on = threading.Event(), threading.Event()
    original = transaction._attempt

    def wait(*arguments: Any) -> Any:
        begun.set()
        assert go_on.wait(30)
        return original(*arguments)

    transaction._attempt = wait  # type: ignore[assignment]
    try:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(Campaign.open("front", store=store).expire)
            assert begun.wait(30)
            transaction._attempt = original
            yield
            go_on.set()
    finally:
        go_on.set()
        transaction._attempt = original


def commits_of(store: Store) -> int:
    """How many transactions the campaign has seen: each raises its version by one."""
    return Campaign.open("front", store=store).summary().version


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    found = Store(store_url)
    create(found, name="front")
    yield found
    found.close()


def test_operations_that_wait_share_a_transaction(store: Store) -> None:
    campaign = Campaign.open("front", store=store)
    before = commits_of(store)
    with held(store):
        futures = [decided(campaign, 2) for _ in range(40)]
    decisions = [each for future in futures for each in future.result(30)]
    assert len({each.id for each in decisions}) == 80
    assert commits_of(store) == before + 2  # the one that was held, and all 40 together
    with held(store):
        rewards = [rewarded(campaign, rewards_for([each])) for each in decisions]
    assert [future.result(30) for future in rewards] == [Rewarded(1, 0)] * 80
    assert commits_of(store) == before + 4
    assert campaign.summary().rewards == 80
    checked(campaign)


def test_threads_that_call_get_their_own_results(store: Store) -> None:
    campaign = Campaign.open("front", store=store)

    def work(_: int) -> list[str]:
        found = []
        for _ in range(15):
            decision = campaign.decide()
            assert campaign.rewards(rewards_for([decision])).accepted == 1
            found.append(decision.id)
        return found

    with ThreadPoolExecutor(8) as pool:
        ids = [id for some in pool.map(work, range(8)) for id in some]
    assert len(set(ids)) == 120 == campaign.summary().rewards
    checked(campaign)


def test_a_refused_request_does_not_fail_its_neighbours(store: Store) -> None:
    campaign = Campaign.open("front", store=store)
    other = create(store, name="other")
    decisions = campaign.decide(6)
    foreign = other.decide()
    known = rewards_for(decisions)
    campaign.reward(decisions[0].id, known[decisions[0].id])
    gone = "ff-0" + decisions[0].id.removeprefix("0-0")
    with held(store):
        fine = [rewarded(campaign, {each.id: known[each.id]}) for each in decisions[1:]]
        conflict = rewarded(campaign, {decisions[0].id: known[decisions[0].id] / 2 + 0.125})
        late = decided(campaign, 1)
    assert [future.result(30) for future in fine] == [Rewarded(1, 0)] * 5
    with pytest.raises(kofn.Conflict):
        conflict.result(30)
    assert len(late.result(30)) == 1
    for wrong in (foreign.id, gone):
        with pytest.raises(kofn.UnknownDecision):
            campaign.reward(wrong, 1.0)
    checked(campaign)


def test_an_operation_that_fails_halfway_is_undone_alone(store: Store) -> None:
    campaign = Campaign.open("front", store=store)

    def half(tx: transaction.Transaction) -> None:
        tx.changing()
        tx.row.decided += 17
        tx.note("nonsense")
        raise RuntimeError("a defect")

    with held(store):
        before = decided(campaign, 3)
        broken: Future[Any] = Future()
        transaction.submit(store, Job(campaign._id, half, done=broken))
        after = decided(campaign, 4)
    with pytest.raises(RuntimeError, match="a defect"):
        broken.result(30)
    assert len({each.id for each in before.result(30) + after.result(30)}) == 7
    assert campaign.summary().plays == 7
    assert "nonsense" not in {event.kind for event in campaign.events()}
    checked(campaign)


def test_nothing_is_acknowledged_that_is_not_committed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = Campaign.open("front", store=store)
    play(campaign, 40, batch=10)
    waiting = campaign.decide(10)
    before = campaign.export()
    error = sqlite3.OperationalError("disk I/O error") if store.url.drivername == "sqlite" else None

    def fails(*_: Any) -> None:
        if error is not None:
            raise error
        import psycopg

        raise psycopg.OperationalError("the connection is lost")

    with held(store):
        monkeypatch.setattr(transaction, "update_row", fails)
        futures: list[Future[Any]] = [decided(campaign, 1) for _ in range(5)]
        futures += [rewarded(campaign, rewards_for(waiting))]
    for future in futures:
        with pytest.raises(kofn.StoreError):
            future.result(30)
    monkeypatch.undo()
    assert campaign.export() == before
    campaign.rewards(rewards_for(waiting))
    checked(campaign)


def test_a_shipment_that_is_not_committed_is_not_served(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions of the same group see it, and must not remember it."""
    campaign = Campaign.open("front", store=store)
    play(campaign, 40, batch=10)

    def fails(*_: Any) -> None:
        raise kofn.StoreError("the disk is full")

    def ship(tx: transaction.Transaction) -> None:
        stopping.ship(tx, (0, 1, 2), {}, store=False)

    monkeypatch.setattr(transaction, "update_row", fails)
    with pytest.raises(kofn.StoreError):
        transaction._execute(store, [Job(campaign._id, ship), campaign._decide(1, None, None, None)])
    monkeypatch.undo()
    ids = [each.id for each in campaign.decide(3)]
    assert campaign.state == "running"
    assert {each.id for each in campaign.decisions()} >= set(ids)
    campaign.ship(store=False)
    assert all(each.id.startswith("s") for each in campaign.decide(3))


# The queue itself.


def finish(jobs: Any) -> list[Outcome]:
    """The outcomes of a group: its size."""
    return [(len(jobs), None)] * len(jobs)


class Gate:
    """Executes groups as soon as it is open; until then the first one waits, and others queue up behind it."""

    def __init__(self, groups: GroupCommit, work: Callable[[Any], list[Outcome]] = finish) -> None:
        self._groups, self._work = groups, work
        self._begun, self._open = threading.Event(), threading.Event()

    def _execute(self, jobs: Any) -> list[Outcome]:
        self._begun.set()
        assert self._open.wait(30)
        return self._work(jobs)

    def submit(self, *, heavy: bool = False) -> Future[Any]:
        """Submit a job that waits in the queue; the first one is being executed when this returns."""
        done = submitted(self._groups, self._execute, heavy=heavy)
        assert self._begun.wait(30)
        return done

    def open(self) -> None:
        """Let the groups go on."""
        self._open.set()


def test_what_waits_behind_a_store_that_fails_fails_with_it() -> None:
    groups = GroupCommit(1)

    def fail(jobs: Any) -> list[Outcome]:
        raise kofn.StoreError("the store does not respond")

    gate = Gate(groups, fail)
    first = gate.submit()
    others = [gate.submit() for _ in range(5)]
    assert groups.queued() == 5
    gate.open()
    for future in (first, *others):
        with pytest.raises(kofn.StoreError, match="does not respond"):
            future.result(30)
    assert groups.queued() == 0
    groups.close()


def test_a_full_queue_refuses_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "MAX_QUEUED", 3)
    groups = GroupCommit(1)
    gate = Gate(groups)
    futures = [gate.submit()]
    futures += [gate.submit() for _ in range(3)]
    with pytest.raises(kofn.StoreError, match="3 operations already wait"):
        gate.submit()
    gate.open()
    assert [future.result(30) for future in futures] == [1, 3, 3, 3]
    groups.close()


def test_a_heavy_operation_has_its_own_transaction() -> None:
    groups = GroupCommit(1)
    gate = Gate(groups)
    first = gate.submit()
    futures = [gate.submit(heavy=heavy) for heavy in (False, False, True, False)]
    gate.open()
    assert [future.result(30) for future in (first, *futures)] == [1, 2, 2, 1, 1]
    groups.close()


def test_callers_that_return_share_the_next_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two callers wait while one is served; it calls again at once, and all three are served together."""
    monkeypatch.setattr(group_commit, "MAX_LINGER", 30.0)
    groups = GroupCommit(1)
    again: list[Future[Any]] = []

    def work(jobs: Any) -> list[Outcome]:
        if not again:
            time.sleep(1.0)  # it waits for a caller as long as this took
        return finish(jobs)

    gate = Gate(groups, work)
    first = gate.submit()
    first.add_done_callback(lambda _: threading.Timer(0.01, lambda: again.append(gate.submit())).start())
    others = [gate.submit() for _ in range(2)]
    gate.open()
    assert [future.result(30) for future in (first, *others)] == [1, 3, 3]
    assert again[0].result(30) == 3
    groups.close()


def test_callers_that_do_not_return_are_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "MAX_LINGER", 0.01)
    groups = GroupCommit(1)
    gate = Gate(groups)
    first = gate.submit()
    others = [gate.submit() for _ in range(2)]
    gate.open()
    assert [future.result(30) for future in (first, *others)] == [1, 2, 2]
    groups.close()


def test_an_interrupted_caller_leaves_the_queue_to_others() -> None:
    groups = GroupCommit(1)

    def interrupted(jobs: Any) -> list[Outcome]:
        if futures:
            return finish(jobs)
        futures.append(submitted(groups, interrupted))
        raise KeyboardInterrupt

    futures: list[Future[Any]] = []
    with pytest.raises(KeyboardInterrupt):
        groups.run(0, Job(1, lambda tx: None), interrupted)
    assert futures[0].result(30) == 1
    groups.close()


# Timelines, keys, stuck plans.


def copy_of(url: str, tables: dict[str, list[Any]] | None = None) -> dict[str, list[Any]]:
    """All rows of a store; or put them back, as a backup that is restored under running processes."""
    plain = url.partition("?")[0] if url.startswith("sqlite") else url.replace("postgresql:", "postgresql+psycopg:")
    from kofn.campaigns.store.schema import METADATA

    with create_engine(plain, poolclass=NullPool).begin() as connection:
        if tables is None:
            return {table.name: list(connection.execute(table.select()).mappings()) for table in METADATA.sorted_tables}
        for table in METADATA.sorted_tables:
            connection.execute(table.delete())
            if tables[table.name]:
                connection.execute(table.insert(), [dict(row) for row in tables[table.name]])
    return tables


@pytest.mark.parametrize("policy", ["thompson", "linear-thompson"])
def test_a_policy_of_a_lost_timeline_is_not_used(store_url: str, policy: str) -> None:
    """A backup is restored under two running servers; both had learned more, and had handed out more."""
    one, two = Store(store_url), Store(store_url)
    here = create(one, policy=policy)
    there = Campaign.open("front", store=two)
    play(here, 60, batch=10)
    play(there, 60, batch=10)
    backup = copy_of(store_url)
    step = copy_of(store_url)["kofn_campaigns"][0]["step"]
    while copy_of(store_url)["kofn_campaigns"][0]["step"] == step:  # one learns beyond the backup
        here.rewards(dict.fromkeys(rewards_for(here.decide(10)), 12.0))
    copy_of(store_url, backup)
    while copy_of(store_url)["kofn_campaigns"][0]["step"] == step:  # the other reaches the same step otherwise
        there.rewards(dict.fromkeys(rewards_for(there.decide(10)), 0.0))
    play(here, 100, batch=10)
    play(there, 100, batch=10)
    for campaign in (here, there):
        checked(campaign)
    assert here.best() == there.best()
    one.close()
    two.close()


def test_an_open_campaign_is_not_mistaken_for_another_with_its_id(store_url: str) -> None:
    store = Store(store_url)
    old = create(store)
    decision = old.decide()
    empty = copy_of(store_url) | {}
    old.delete()
    create(store, "other")
    rows = copy_of(store_url)
    number = empty["kofn_campaigns"][0]["id"]
    for table, found in rows.items():
        for index, row in enumerate(found):
            if table == "kofn_campaigns":
                found[index] = {**row, "id": number}
            elif "campaign" in row and table != "kofn_tokens":
                found[index] = {**row, "campaign": number}
    copy_of(store_url, rows)
    for call in (old.decide, lambda: old.reward(decision.id, 1.0), old.summary, old.delete):
        with pytest.raises(kofn.NoSuchCampaign, match="open it again"):
            call()
    assert Campaign.open("other", store=store).summary().plays == 0
    store.close()


def test_the_same_key_gives_the_same_decisions(store_url: str) -> None:
    campaign = create(store_url)
    first = campaign.decide(7, key="request 1")
    assert len({each.id for each in first}) == 7
    assert campaign.decide(7, key="request 1") == first
    assert campaign.decide(7, key="request 2") != first
    one = campaign.decide(key="request 3")
    campaign.rewards(rewards_for(first))
    campaign.pause()
    for key in ("request 3", "request 4"):
        with pytest.raises(kofn.NotRunning):
            campaign.decide(key=key)
    campaign.resume()
    assert campaign.decide(7, key="request 1") == first  # known, and learned from
    assert campaign.decide(key="request 3") == one
    with pytest.raises(kofn.Conflict, match="was used for 7 decisions, and this call asks for 8"):
        campaign.decide(8, key="request 1")
    for wrong in ("", "x" * 201, "a\nb", 7):
        with pytest.raises(kofn.BadInput, match="a key must be text"):
            campaign.decide(key=wrong)  # type: ignore[arg-type]
    assert campaign.summary().plays == 15
    again = Store(store_url)
    assert Campaign.open("front", store=again).decide(7, key="request 1") == first
    again.close()
    moved = Campaign.import_(campaign.export(with_secret=True), store=store_url, name="moved")
    assert [each.id for each in moved.decide(7, key="request 1")] == [each.id for each in first]


@pytest.mark.parametrize("policy", ["cmab-sm", "dart", "linear-thompson", "shared-credit", "thompson"])
def test_one_lost_reward_does_not_stop_learning(sqlite_store: str, policy: str) -> None:
    params: dict[str, Any] = {"horizon": 4000} if policy in ("cmab-sm", "dart") else {}
    if policy == "cmab-sm":
        params["resolution"] = 0.35
    campaign = create(sqlite_store, policy=policy, params=params)
    campaign.decide()  # nobody ever answers
    updates = [0]
    for _ in range(8):
        play(campaign, 200, batch=5)
        updates.append(campaign.insight().updates)
    assert sum(later > earlier for earlier, later in pairwise(updates)) >= 2
    assert campaign.summary().expired + campaign.summary().in_flight <= 2
    checked(campaign)


def test_late_rewards_are_not_overtaken(sqlite_store: str) -> None:
    """Rewards that come in another order, a few decisions late, are no reason to play subsets twice."""
    campaign = create(sqlite_store, policy="linear-thompson")
    waiting: list[Any] = []
    for _ in range(400):
        waiting.append(campaign.decide())
        if len(waiting) > 10:
            campaign.rewards(rewards_for([waiting.pop(0)]))
    assert campaign.summary().expired == 0


def test_a_store_that_was_migrated_meanwhile_is_left_alone(store_url: str) -> None:
    campaign = create(store_url)
    decision = campaign.decide()
    copied = copy_of(store_url)
    copy_of(store_url, copied | {"kofn_schema": [{"version": 2}]})
    calls: list[Callable[[], Any]] = [campaign.decide, lambda: campaign.reward(decision.id, 1.0), campaign.insight]
    for call in calls:
        with pytest.raises(kofn.StoreError, match=r"version 2.*Restart this process"):
            call()
    copy_of(store_url, copied)
    campaign.reward(decision.id, 1.0)


def test_a_key_keeps_all_of_its_decisions_or_none(sqlite_store: str) -> None:
    """Old decisions are deleted, but not a part of those that were made together under a key."""
    campaign = create(sqlite_store, keep_decisions=50)
    first = campaign.decide(10, key="order")
    campaign.rewards(rewards_for(first[:4]))
    play(campaign, 400, batch=10)
    assert campaign.decide(10, key="order") == first
    campaign.rewards(rewards_for(first[4:]))
    play(campaign, 400, batch=10)
    assert campaign.rewards(rewards_for(first)) == Rewarded(0, 0, forgotten=10)
    checked(campaign)


def test_queues_take_turns_if_there_are_more_than_threads() -> None:
    """A campaign with callers that never stop does not keep the others waiting."""
    groups, order, more = GroupCommit(1), list[int](), iter(range(50))
    others = [Future[Any]() for _ in range(3)]

    def busy(jobs: Any) -> list[Outcome]:
        order.append(0)
        if next(more, None) is not None:
            groups.submit(0, Job(0, lambda tx: None, done=Future()), busy)
        if len(order) == 1:
            for lock, done in enumerate(others, start=1):
                groups.submit(lock, Job(lock, lambda tx: None, done=done), other)
        return [(None, None)] * len(jobs)

    def other(jobs: Any) -> list[Outcome]:
        order.append(jobs[0].campaign)
        return [(None, None)] * len(jobs)

    groups.submit(0, Job(0, lambda tx: None, done=Future()), busy)
    for done in others:
        done.result(30)
    assert order[:4] == [0, 1, 2, 3]
    groups.close()
    assert order.count(0) == 51


# Locks.


def test_a_stuck_campaign_on_postgresql_does_not_stop_the_others(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "LOCK_TIMEOUT", 0.3)
    store = Store(postgres_store)
    stuck, fine = create(store), create(store, "fine")
    engine = create_engine(postgres_store.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("SELECT id FROM kofn_campaigns WHERE name = 'front' FOR UPDATE"))
        waiting = [decided(stuck, 1) for _ in range(50)]
        play(fine, 50, batch=5)
        assert stuck.summary().plays == 0  # reading does not wait
        for future in waiting:
            with pytest.raises(kofn.StoreError, match="lock timeout"):
                future.result(30)
    assert len(stuck.decide(5)) == 5
    store.close()


def test_a_failed_commit_keeps_no_lock_on_postgresql(postgres_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a commit of SQLAlchemy's, the connection would go back to its pool with the transaction still open."""
    monkeypatch.setattr(store_module, "LOCK_TIMEOUT", 0.3)
    store, other = Store(postgres_store), Store(postgres_store)
    campaign = create(store)
    made = campaign.decide(key="a")
    with monkeypatch.context() as failing:
        failing.setattr(psycopg.Connection, "commit", Mock(side_effect=psycopg.OperationalError("not sent")))
        with pytest.raises(kofn.StoreError, match="not sent"):
            campaign.decide(key="a")  # writes nothing, and has the lock
    assert Campaign.open("front", store=other).decide(key="a").id == made.id
    for each in (store, other):
        each.close()


def test_a_transaction_of_a_stopped_process_ends_on_postgresql(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Store(postgres_store)
    campaign = create(other)
    with monkeypatch.context() as short:
        short.setattr(store_module, "IDLE_TIMEOUT", 0.5)
        stopped = Store(postgres_store)
    made: list[Decision] = []
    with pytest.raises(kofn.StoreError), stopped.write() as connection:  # noqa: PT012
        connection.execute(text("SELECT id FROM kofn_campaigns WHERE name = 'front' FOR UPDATE"))
        made += campaign.decide(3)  # waits until the server has ended the other transaction
        connection.execute(text("UPDATE kofn_campaigns SET name = 'never'"))
    assert len(made) == 3  # it did not give up, which is a StoreError as well
    assert campaign.summary().name == "front"
    for store in (stopped, other):
        store.close()


def test_a_locked_file_is_reported_in_bounded_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "LOCK_TIMEOUT", 0.2)
    store = Store(f"sqlite:///{tmp_path}/shop.db")
    campaign = create(store)
    other = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = [decided(campaign, 1) for _ in range(20)]
    assert campaign.summary().plays == 0
    for future in waiting:
        with pytest.raises(kofn.StoreError, match="locked"):
            future.result(30)
    other.execute("COMMIT")
    other.close()
    assert len(campaign.decide(2)) == 2
    store.close()


def test_four_processes_leave_connections_to_others(postgres_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new PostgreSQL server accepts 100 connections; backups, reports and its administrator need some, too."""
    monkeypatch.setattr(store_module, "LOCK_TIMEOUT", 0.2)
    store = Store(postgres_store)
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(store.read())
        with pytest.raises(kofn.StoreError, match="limit of size 10 overflow 0 reached"):
            stack.enter_context(store.read())
    store.close()


@pytest.mark.parametrize("pool", ["0", "x", "1001", "-1"])
def test_a_pool_must_be_a_number(pool: str) -> None:
    with pytest.raises(kofn.BadInput, match="pool must be a number of connections from 1 to 1,000"):
        Store(f"postgresql://kofn@127.0.0.1:1/nothing?pool={pool}")
