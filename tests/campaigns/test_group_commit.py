"""Group commit: who waits together is committed together, and nobody suffers from a neighbour."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest
from sqlalchemy import Connection, func, select, text

import kofn
from kofn import Campaign
from kofn.campaigns import Decision, Rewarded, Store, append, fold
from kofn.campaigns.names import write_id
from kofn.campaigns.store import database, group_commit
from kofn.campaigns.store.database import DATABASE_ERRORS
from kofn.campaigns.store.group_commit import Execute, GroupCommit, Job, Outcome
from kofn.campaigns.store.schema import DECISIONS
from kofn.campaigns.store.statements import Driver
from kofn.constraints import AtMost
from tests.campaigns.tools import checked, create, play, rewards_for


def decided(campaign: Campaign, count: int, key: str | None = None) -> Future[Any]:
    """The future of decisions that another thread makes."""
    done: Future[Any] = Future()
    campaign.submit_decide(done, count, key=key)
    return done


def reported(campaign: Campaign, items: Any, kind: str = "reward") -> Future[Any]:
    """The future of events that another thread records."""
    done: Future[Any] = Future()
    campaign.submit_events(done, kind, items)
    return done


def finish(jobs: Sequence[Job]) -> Sequence[Outcome]:
    """The outcomes of a group: its size."""
    return [(len(jobs), None)] * len(jobs)


class Gate:
    """Executes groups when it is open. Until then the first job waits, and others queue up behind it."""

    def __init__(self, work: Execute = finish) -> None:
        self.groups, self.sizes, self._work = GroupCommit(self._execute), list[int](), work
        self._begun, self._open = threading.Event(), threading.Event()

    def _execute(self, jobs: Sequence[Job]) -> Sequence[Outcome]:
        self._begun.set()
        assert self._open.wait(30)
        if type(jobs[0]) is Job and self._work is not finish:
            return finish(jobs)
        self.sizes.append(len(jobs))
        return self._work(jobs)

    def submit(self, *, heavy: bool = False) -> Future[Any]:
        """Submit a job. The first one is being executed when this returns."""
        done: Future[Any] = Future()
        self.groups.submit(Job(heavy=heavy, done=done))
        assert self._begun.wait(30)
        return done

    def open(self) -> None:
        """Let the groups go on."""
        self._open.set()


@contextmanager
def held(store: Store) -> Iterator[list[int]]:
    """Keep all calls of a store waiting until the block ends: then they are executed together.

    The list gets the number of calls of each transaction.
    """
    gate, groups = Gate(store.groups._execute), store.groups
    store.groups = gate.groups
    try:
        gate.submit(heavy=True)
        yield gate.sizes
    finally:
        gate.open()
        gate.groups.close()
        store.groups = groups


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    found = Store(store_url)
    create(found, name="front")
    yield found
    found.close()


def test_calls_of_all_campaigns_that_wait_share_a_transaction(store: Store) -> None:
    campaigns = [Campaign.open("front", store=store), *(create(store, f"other {number}") for number in range(3))]
    with held(store) as sizes:
        futures = [decided(campaign, 2) for _ in range(10) for campaign in campaigns]
    decisions = [each for future in futures for each in future.result(30)]
    assert len({each.id for each in decisions}) == 80
    with held(store) as more:
        rewards = [
            reported(campaigns[number % 4], rewards_for(future.result())) for number, future in enumerate(futures)
        ]
    assert [future.result(30) for future in rewards] == [Rewarded(2, 0)] * 40
    assert (sizes, more) == ([40], [40])
    for campaign in campaigns:
        assert campaign.summary().rewards == 20
        checked(campaign)


def test_calls_of_one_transaction_see_each_other(store: Store) -> None:
    """The same key, the same event and the same reward are the same thing, although nothing of it is committed yet."""
    campaign = create(store, "orders", window="1h")
    with held(store) as sizes:
        calls = [decided(campaign, 2, key="a") for _ in range(3)]
    first, *others = (future.result(30) for future in calls)
    assert others == [first] * 2
    with held(store):
        rewards = [reported(campaign, [(first[0].id, 3.0)]) for _ in range(3)]
        adds = [reported(campaign, [(first[1].id, 3.0, "order")], "add") for _ in range(3)]
        other = reported(campaign, {first[0].id: 4.0})
        total = [reported(campaign, [(first[1].id, 5.0, f"order {number}")], "add") for number in range(2)]
    assert sorted(future.result(30).accepted for future in rewards) == [0, 0, 1]
    assert sorted(future.result(30).accepted for future in adds) == [0, 0, 1]
    with pytest.raises(kofn.Conflict):
        other.result(30)
    assert total[0].result(30).accepted == 1
    with pytest.raises(kofn.BadReward, match=r"got 13.0"):  # the sum
        total[1].result(30)
    assert sizes[0] == 3
    assert (campaign.summary().plays, campaign.summary().in_flight) == (2, 2)


def test_a_call_that_is_refused_or_fails_changes_nothing_and_fails_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign, other = Campaign.open("front", store=store), create(store, "other")
    decisions = campaign.decide(8)
    known = rewards_for(decisions)
    campaign.reward(decisions[0].id, known[decisions[0].id])
    paused = create(store, "paused")
    paused.decide()
    paused.pause()
    lost = write_id(campaign._secret, 10**9, 7)  # as one of a lost timeline
    with held(store) as sizes:
        fine = [reported(campaign, {each.id: known[each.id]}) for each in decisions[1:6]]
        conflict = reported(campaign, {decisions[6].id: 3.0, decisions[0].id: known[decisions[0].id] / 2 + 0.125})
        foreign = reported(campaign, {lost: 3.0})
        stopped, late = decided(paused, 1), decided(other, 3)
    assert [future.result(30) for future in fine] == [Rewarded(1, 0)] * 5
    for refused, error in ((conflict, kofn.Conflict), (foreign, kofn.UnknownDecision), (stopped, kofn.NotRunning)):
        with pytest.raises(error):
            refused.result(30)
    assert len(late.result(30)) == 3
    assert sizes == [9]
    assert [each.summary().rewards for each in (campaign, other)] == [6, 0]
    for each in (campaign, other, paused):
        checked(each)


def test_a_call_whose_campaign_has_changed_is_done_again(store: Store) -> None:
    """By another process: this one still has the settings and the plan of before."""
    campaign, other = Campaign.open("front", store=store), create(store, "other")
    decisions = campaign.decide(3)
    there = Campaign.open("front", store=Store(str(store.url.render_as_string(hide_password=False))))
    with held(store):
        calls = [decided(campaign, 20), decided(other, 20), reported(campaign, rewards_for(decisions))]
        there.retire_arm("a")
        there.configure(constraints=[AtMost(0, ["b"])])
    assert [len(calls[number].result(30)) for number in range(2)] == [20, 20]
    assert not any({"a", "b"} & set(each.arms) for each in calls[0].result())
    assert any({"a", "b"} & set(each.arms) for each in calls[1].result())
    assert calls[2].result(30).accepted == 3
    there.store.close()
    checked(campaign)


def test_nothing_is_acknowledged_that_is_not_committed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = Campaign.open("front", store=store)
    play(campaign, 40, batch=10)
    waiting = campaign.decide(10, key="a")
    campaign.learn()
    before = campaign.export()
    error = sqlite3.OperationalError if store.url.drivername == "sqlite" else psycopg.OperationalError
    with held(store):
        monkeypatch.setattr(append.Group, "write", Mock(side_effect=error("disk I/O error")))
        futures: list[Future[Any]] = [decided(campaign, 1, key=f"b {number}") for number in range(5)]
        futures += [reported(campaign, rewards_for(waiting))]
    for future in futures:
        with pytest.raises(kofn.StoreError, match="disk I/O error"):
            future.result(30)
    monkeypatch.undo()
    assert campaign.export() == before
    campaign.rewards(rewards_for(waiting))
    checked(campaign)


def test_a_commit_whose_answer_is_lost_is_repeated(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller sees an error, although all of it is stored."""
    campaign, write, lost = create(store, "orders", window="1h"), append.Group.write, list[bool]()

    def write_and_lose(group: append.Group, driver: Driver) -> None:
        write(group, driver)
        if lost and lost.pop():
            if driver._batch is None:
                driver._raw.commit()
            else:
                driver._batch.send(commit=True)
            raise DATABASE_ERRORS[-1]("the answer is lost")

    def called(call: Callable[[], Any]) -> Any:
        lost.append(True)
        with pytest.raises(kofn.StoreError, match="the answer is lost"):
            call()
        return call()

    monkeypatch.setattr(append.Group, "write", write_and_lose)
    made = called(lambda: campaign.decide(3, key="a"))
    assert called(lambda: campaign.add(made[0], 3.0, event="order")) == Rewarded(0, 1)
    assert called(lambda: campaign.record(made[0], "returned", 1.0)) == Rewarded(0, 1)
    assert called(lambda: campaign.reward(made[1], 3.0)) == Rewarded(0, 1)
    assert (campaign.summary().plays, len(list(campaign.decisions()))) == (3, 3)
    checked(campaign)


# The queue itself.


def test_what_waits_behind_a_store_that_fails_fails_with_it() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def fail(_: Sequence[Job]) -> Sequence[Outcome]:
        begun.set()
        assert go_on.wait(30)
        raise kofn.StoreError("the store does not respond")

    groups, futures = GroupCommit(fail), [Future[Any]() for _ in range(6)]
    for future in futures:
        groups.submit(Job(done=future))
        assert begun.wait(30)
    assert groups.queued() == 5
    go_on.set()
    for future in futures:
        with pytest.raises(kofn.StoreError, match="does not respond"):
            future.result(30)
    assert groups.queued() == 0
    groups.close()


@pytest.mark.parametrize(
    ("heavy", "sizes"), [([False] * 4, [1, 3, 3, 3]), ([False, False, False, True, False], [1, 2, 2, 1, 1])]
)
def test_what_waits_is_a_group_and_a_heavy_operation_is_alone(
    monkeypatch: pytest.MonkeyPatch, heavy: list[bool], sizes: list[int]
) -> None:
    monkeypatch.setattr(group_commit, "MAX_LINGER", 0.01)  # for callers that do not return
    monkeypatch.setattr(group_commit, "MAX_QUEUED", len(heavy) - 1)
    gate = Gate()
    futures = [gate.submit(heavy=each) for each in heavy]
    with pytest.raises(kofn.StoreError, match="operations already wait"):
        gate.submit()
    gate.open()
    assert [future.result(30) for future in futures] == sizes
    gate.groups.close()


def test_callers_that_return_share_the_next_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two callers wait while one is served; it calls again at once, and all three are served together."""
    gate, again, linger = Gate(), list[Future[Any]](), GroupCommit._linger

    def longer(groups: GroupCommit, expected: int, _: float) -> None:
        linger(groups, expected, 30.0 if not gate.sizes[1:] else 0.0)  # as if the first group had taken long

    monkeypatch.setattr(GroupCommit, "_linger", longer)
    first = gate.submit()
    first.add_done_callback(lambda _: threading.Timer(0.01, lambda: again.append(gate.submit())).start())
    others = [gate.submit() for _ in range(2)]
    gate.open()
    assert [future.result(30) for future in (first, *others)] == [1, 3, 3]
    assert again[0].result(30) == 3
    gate.groups.close()


# Keys.


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


def test_a_key_keeps_all_of_its_decisions_or_none(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old decisions are deleted, some at a time, but not a part of those that were made together under a key."""
    monkeypatch.setattr(fold, "MOST_ROWS", 20)
    campaign = create(store_url, keep_decisions=50)
    first = campaign.decide(10, key="order")
    campaign.rewards(rewards_for(first[:4]))
    play(campaign, 400, batch=10)
    assert campaign.decide(10, key="order") == first
    campaign.rewards(rewards_for(first[4:]))
    play(campaign, 400, batch=10)
    assert campaign.rewards(rewards_for(first)) == Rewarded(0, 0, forgotten=10)
    for number in range(60):
        campaign.rewards(rewards_for([*campaign.decide(7, key=f"order {number}"), campaign.decide()]))
    campaign.learn()
    with campaign.store.read() as connection:
        stored = select(func.count()).where(DECISIONS.c.request.is_not(None)).group_by(DECISIONS.c.request)
        assert set(connection.execute(stored).scalars()) == {7}
    checked(campaign)


# Locks.


def test_a_stuck_campaign_is_reported_in_bounded_time(postgres_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LOCK_TIMEOUT", 0.3)
    store, other = Store(postgres_store), Store(postgres_store)
    campaign = create(store)

    def stuck(_: Connection) -> None:
        waiting = [decided(campaign, 1) for _ in range(50)]
        assert campaign.summary().plays == 0  # reading does not wait
        for future in waiting:
            with pytest.raises(kofn.StoreError, match="lock timeout"):
                future.result(30)

    other.locked(campaign._id, stuck)
    assert len(campaign.decide(5)) == 5
    for each in (store, other):
        each.close()


def test_a_failed_commit_keeps_no_lock_on_postgresql(postgres_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a commit of SQLAlchemy's, the connection would go back to its pool with the transaction still open."""
    monkeypatch.setattr(database, "LOCK_TIMEOUT", 0.3)
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
    other, made = Store(postgres_store), list[Decision]()
    campaign = create(other)
    with monkeypatch.context() as short:
        short.setattr(database, "IDLE_TIMEOUT", 0.5)
        stopped = Store(postgres_store)

    def stop(connection: Connection) -> None:
        made.extend(campaign.decide(3))  # waits until the server has ended the other transaction
        connection.execute(text("UPDATE kofn_campaigns SET name = 'never'"))

    with pytest.raises(kofn.StoreError):
        stopped.locked(campaign._id, stop)
    assert len(made) == 3  # it did not give up, which is a StoreError as well
    assert campaign.summary().name == "front"
    for store in (stopped, other):
        store.close()


def test_a_locked_file_is_reported_in_bounded_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LOCK_TIMEOUT", 0.2)
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
    monkeypatch.setattr(database, "LOCK_TIMEOUT", 0.2)
    store = Store(postgres_store)
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(store.read())
        with pytest.raises(kofn.StoreError, match="limit of size 10 overflow 0 reached"):
            stack.enter_context(store.read())
    store.close()
