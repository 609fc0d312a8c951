"""Races between processes on PostgreSQL: two stores on one database stand for two processes, which wait where told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, select, text
from sqlalchemy.pool import NullPool

import kofn
from kofn import Campaign
from kofn.campaigns import Store
from kofn.campaigns.append import Group
from kofn.campaigns.change import Change
from kofn.campaigns.fold import fold, learn_now, publish, read_task
from kofn.campaigns.learning import learn
from kofn.campaigns.roster import subset_from
from kofn.campaigns.store.schema import DECISIONS, JOURNAL, METADATA
from kofn.constraints import AtMost
from tests.campaigns.tools import NAMES, checked, create, play, rewards_for
from tests.campaigns.workers import decide_until_told, decide_with_keys, run, started
from tests.waiting import wait_until


@pytest.fixture
def stores(postgres_store: str) -> Iterator[tuple[Store, Store]]:
    """Two processes, in which nothing is learned unless a test says so."""
    found = Store(postgres_store), Store(postgres_store)
    for store in found:
        store.learns_inline = False
    yield found
    for store in found:
        store.close()


def rows_of(store: Store) -> dict[str, list[Any]]:
    """All rows, as a backup has them."""
    with store.read() as connection:
        return {table.name: list(connection.execute(table.select()).mappings()) for table in METADATA.sorted_tables}


def put_back(store: Store, rows: dict[str, list[Any]]) -> None:
    """Restore these rows under processes that have the store open; numbers are given again."""
    with create_engine(store.url, poolclass=NullPool).begin() as connection:
        for table in METADATA.sorted_tables:
            connection.execute(table.delete())
            if rows[table.name]:
                connection.execute(table.insert(), [dict(row) for row in rows[table.name]])
        numbers = [row["number"] for name in ("kofn_decisions", "kofn_events") for row in rows[name]]
        connection.execute(text("SELECT setval('kofn_numbers', :last)"), {"last": max(numbers, default=1)})


def version_of(campaign: Campaign) -> int:
    """Return the version of the campaign's settings and plan."""
    return campaign.store.serving(campaign._id, again=True).version


@contextmanager
def writing_later(monkeypatch: pytest.MonkeyPatch, store: Store) -> Iterator[threading.Event]:
    """Let transactions of this process wait before they write: they have their locks, numbers and time."""
    go_on, reached = threading.Event(), threading.Event()
    write = Group.write

    def wait(group: Group, driver: Any) -> None:
        if group.store is store:
            reached.set()
            assert go_on.wait(60)
        write(group, driver)

    with monkeypatch.context() as patched:
        patched.setattr(Group, "write", wait)
        yield reached
        go_on.set()


def waits_for_lock(store: Store) -> bool:
    """Return whether someone waits for the log of a campaign."""
    with store.read() as connection:
        waiting = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        return bool(connection.execute(waiting).scalar())


# What commits late.


def test_what_commits_after_a_fold_has_begun_is_counted_once(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has lower numbers than what is committed already, so a fold that did not wait would never count it."""
    slow, store = stores
    campaign = create(store)
    there = Campaign.open("front", slow)
    late, soon = campaign.decide(2)
    fold(store, campaign._id)
    with ThreadPoolExecutor(3) as threads, writing_later(monkeypatch, slow) as reached:
        calls: list[Future[Any]] = [threads.submit(there.reward, late, 6.0)]
        assert reached.wait(60)
        decision = campaign.decide()
        campaign.reward(soon, 3.0)
        folded = threads.submit(fold, store, campaign._id)
        wait_until(lambda: waits_for_lock(store), "the fold waits for the reward")
        assert not folded.done()
        after = threads.submit(campaign.reward, decision, 1.5)  # it waits behind the fold
    for call in (*calls, after):
        assert call.result().accepted == 1
    fold(store, campaign._id)
    summary = campaign.summary()
    assert (summary.plays, summary.rewards, summary.mean) == (3, 3, 3.5)
    checked(campaign)


def test_decisions_that_commit_after_a_change_began_are_drawn_again(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change waits for those that have their locks; those that come later follow it."""
    slow, store = stores
    campaign = create(store)
    there = Campaign.open("front", slow)
    there.decide()
    with ThreadPoolExecutor(3) as threads, writing_later(monkeypatch, slow) as reached:
        before = threads.submit(there.decide, 50)
        assert reached.wait(60)
        change = threads.submit(campaign.configure, constraints=[AtMost(0, ["a"])])
        wait_until(lambda: waits_for_lock(store), "the change waits for the decisions")
        after = threads.submit(campaign.decide, 50)
    change.result()
    assert any("a" in each.arms for each in before.result())
    assert not any("a" in each.arms for each in after.result())
    assert not any("a" in each.arms for each in there.decide(50))
    checked(campaign)


# Stale learners, stale plans.


def settled(campaign: Campaign, value: float | None = None) -> None:
    """Play until there is something to learn."""
    for _ in range(100):
        rewards = rewards_for(campaign.decide(20))
        campaign.rewards(rewards if value is None else dict.fromkeys(rewards, value))
        if fold(campaign.store, campaign._id):
            return
    raise AssertionError("the plan never settles")


def test_of_two_learners_one_publishes(stores: tuple[Store, Store]) -> None:
    store, other = stores
    campaign = create(store)
    settled(campaign)
    tasks = [read_task(each, campaign._id) for each in stores]
    one, two = (learn(task.job) for task in tasks if task is not None)
    assert publish(store, tasks[0], one)  # type: ignore[arg-type]
    version = version_of(campaign)
    assert not publish(other, tasks[1], two)  # type: ignore[arg-type]
    settled(campaign)
    assert not publish(other, tasks[1], two)  # type: ignore[arg-type]
    assert version_of(campaign) == version
    assert learn_now(other, campaign._id)
    assert campaign.insight().updates == 2
    checked(campaign)


CHANGES: list[Callable[[Campaign], Any]] = [
    lambda campaign: campaign.configure(constraints=[AtMost(0, ["a"])]),
    lambda campaign: campaign.configure(control=["b", "c", "d"]),
    lambda campaign: campaign.retire_arm("a"),
    lambda campaign: campaign.add_arm("i"),
    lambda campaign: campaign.ship(["b", "c", "d"]),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_plan_of_before_a_change_replaces_none_of_after(
    stores: tuple[Store, Store], change: Callable[[Campaign], Any]
) -> None:
    store, other = stores
    campaign = create(store)
    settled(campaign)
    task = read_task(other, campaign._id)
    assert task is not None
    learned = learn(task.job)
    change(campaign)
    after = [row for name in ("kofn_plans", "kofn_states") for row in rows_of(store)[name]]
    assert not publish(other, task, learned)
    assert [row for name in ("kofn_plans", "kofn_states") for row in rows_of(store)[name]] == after
    learn_now(other, campaign._id)
    checked(campaign)


def test_a_change_of_before_another_change_is_made_again(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both made a plan for what they had read: the second one has to see the first."""
    store, other = stores
    campaign, there = create(store), Campaign.open("front", other)
    write, once = Change.write, iter([None])

    def overtaken(change: Change, work: Any) -> None:
        for _ in once:
            there.retire_arm("a")
        write(change, work)

    monkeypatch.setattr(Change, "write", overtaken)
    campaign.configure(constraints=[AtMost(0, ["b"])])
    for each in (campaign, there):
        assert not any({"a", "b"} & set(decision.arms) for decision in each.decide(100))
    checked(campaign)


# What a restore repeats.


def test_a_learner_of_a_lost_timeline_publishes_nothing(stores: tuple[Store, Store]) -> None:
    """After the restore, the same step is reached with other rewards. Only what was learned from is different."""
    store, other = stores
    campaign = create(store)
    play(campaign, 1, batch=1)
    fold(store, campaign._id)
    backup = rows_of(store)
    settled(campaign, 12.0)
    task = read_task(other, campaign._id)
    assert task is not None
    put_back(store, backup)
    settled(campaign, 0.0)
    again = read_task(store, campaign._id)
    assert again is not None
    assert (again.step, again.stamp) == (task.step, task.stamp)
    assert not publish(other, task, learn(task.job))
    assert learn_now(other, campaign._id)
    checked(campaign)


@pytest.mark.parametrize("policy", ["thompson", "linear-thompson"])
def test_a_plan_of_a_lost_timeline_is_not_used(stores: tuple[Store, Store], policy: str) -> None:
    """A backup is restored under two processes. Both had learned more, and reach the same version in other ways."""
    here = create(stores[0], policy=policy)
    there = Campaign.open("front", stores[1])
    settled(here)
    learn_now(here.store, here._id)
    backup = rows_of(here.store)
    lost = []
    for campaign, worst in ((here, 12.0), (there, 0.0)):
        put_back(here.store, backup)
        settled(campaign, worst)
        assert learn_now(campaign.store, campaign._id)
        version = version_of(campaign)
        lost += [*campaign.decide(40)]
    put_back(here.store, backup)
    settled(here)
    learn_now(here.store, here._id)
    assert version_of(here) == version
    with here.store.read() as connection:
        shown = {here.store.serving(here._id, again=True).plan.to_text()}
        assert connection.execute(select(METADATA.tables["kofn_plans"].c.plan)).scalar() in shown
    before = {each.id for each in here.decisions()}
    there.decide(40)
    assert there.store.serving(there._id).plan.to_text() in shown
    for each in lost:
        if each.id not in before:
            with pytest.raises(kofn.UnknownDecision):
                here.reward(each, 6.0)
    for campaign in (here, there):
        play(campaign, 60, batch=10)
        checked(campaign)


def test_arms_of_a_lost_timeline_are_not_shown(stores: tuple[Store, Store]) -> None:
    """Both timelines have a ninth arm, each another one."""
    here, there = create(stores[0]), Campaign.open("front", stores[1])
    backup = rows_of(here.store)
    there.add_arm("lost")
    assert any("lost" in each.arms for each in there.decide(100))
    put_back(here.store, backup)
    here.add_arm("new")
    for campaign in (here, there):
        arms = {arm for each in campaign.decide(100) for arm in each.arms}
        assert "new" in arms
        assert "lost" not in arms
    checked(there)


def test_an_open_campaign_is_not_mistaken_for_another_with_its_id(stores: tuple[Store, Store]) -> None:
    store, _ = stores
    old = create(store)
    decision = old.decide()
    old.delete()
    create(store, "other")
    rows = rows_of(store)
    for table, found in rows.items():
        name = "id" if table == "kofn_campaigns" else "campaign"
        rows[table] = [{**row, name: old._id} if name in row else row for row in found]
    put_back(store, rows)
    for call in (
        old.decide,
        lambda: old.reward(decision, 1.0),
        old.summary,
        old.pause,
        old.learn,
        old.verify,
        old.delete,
    ):
        with pytest.raises(kofn.NoSuchCampaign, match="open it again"):
            call()
    assert Campaign.open("other", store=store).summary().plays == 0


# Real processes.


def test_processes_with_the_same_keys_in_another_order(postgres_store: str, tmp_path: Path) -> None:
    """Each sends groups of calls with keys that the others send at the same time. No two wait for each other."""
    campaign, keys = create(postgres_store), [f"request {number}" for number in range(200)]
    files = [str(tmp_path / f"{number}.json") for number in range(3)]
    orders = [keys, keys[::-1], keys[100:] + keys[:100]]
    run(decide_with_keys, [(postgres_store, order, file) for order, file in zip(orders, files, strict=True)])
    found = [json.loads(Path(file).read_text()) for file in files]
    assert found[0] == found[1] == found[2]
    assert sorted(found[0]) == sorted(keys)
    assert len({id for ids in found[0].values() for id in ids}) == campaign.summary().plays == 400
    with campaign.store.read() as connection:
        assert (
            connection.execute(text("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'")).scalar() == 0
        )
    checked(campaign)


def test_every_decision_after_a_change_obeys_it(postgres_store: str) -> None:
    """Processes decide at full speed. The journal has the time of a change, which has the log alone at that time."""
    campaign = create(postgres_store)
    play(campaign, 100, batch=20)
    with started(decide_until_told, [(postgres_store,)] * 2) as stop:
        for number in range(12):
            before = campaign.summary().plays
            wait_until(lambda: campaign.summary().plays > before + 20, "the processes decide")  # noqa: B023
            campaign.configure(constraints=[AtMost(0, [NAMES[number % 5]])])
        stop.set()
    checked(campaign)
    with campaign.store.read() as connection:
        noted = select(JOURNAL.c.at).where(JOURNAL.c.kind == "changed").order_by(JOURNAL.c.number)
        times = [*connection.execute(noted).scalars(), float("inf")]
        rows = connection.execute(select(DECISIONS.c.at, DECISIONS.c.subset)).all()
    for number, (since, until) in enumerate(pairwise(times)):
        shown = [row for row in rows if since < row.at < until]
        assert shown
        assert not any(number % 5 in subset_from(row.subset) for row in shown)
