"""A client with a stock of decisions and a buffer of rewards: fast, and nothing that was acknowledged is lost."""

from __future__ import annotations

import inspect
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

import kofn
from kofn.campaigns import Campaign
from kofn.client import Client, RefusedReward, calls, stock
from kofn.client.stock import Buffer, Line, Refill, Stock
from kofn.core.responses import Buffered, Decision, Rewarded, moment
from tests.campaigns.tools import NAMES, checked, create
from tests.client.tools import CLIENTS, Fake, down, pairs, problem
from tests.service.tools import service
from tests.waiting import wait_until

# The stock, with a clock of its own.


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def decisions(count: int, start: int = 0) -> list[Decision]:
    return [Decision(f"{start + i:x}-0-00", ["a"], (0,), moment(0.0)) for i in range(count)]


def demanded(held: Stock, clock: Clock, rate: float, seconds: float) -> list[Refill]:
    """Take at a rate, with a service that answers at once. Return the refills."""
    found = []
    for _ in range(round(rate * seconds)):
        clock.now += 1 / rate
        _, refill = held.take()
        if refill is not None:
            found.append(refill)
            held.finish_refill(refill, decisions(refill.count))
    return found


@pytest.mark.parametrize(
    ("rate", "least", "most"), [(0.1, 0, 0), (1, 0, 0), (20, 9, 20), (90, 40, 90), (10_000, 45, 100)]
)
def test_a_stock_holds_about_a_second_of_demand(clock: Clock, rate: float, least: int, most: int) -> None:
    held = Stock(100, 10.0, clock)
    refills = demanded(held, clock, rate, 400 if rate < 10 else 5)
    assert least <= len(held) <= most
    assert bool(refills) == (most > 0)  # a program that decides rarely wastes nothing


def test_a_short_program_wastes_no_more_than_it_used(clock: Clock) -> None:
    for used in range(1, 50):
        held = Stock(100, 10.0, clock)
        demanded(held, clock, 1000, used / 1000)
        assert len(held) < used


def test_the_oldest_is_taken_first_and_stale_ones_are_dropped(clock: Clock) -> None:
    held = Stock(100, 10.0, clock)
    held.finish_refill(Refill(3, 0, clock.now), decisions(3))
    clock.now += 6
    held.finish_refill(Refill(3, 0, clock.now), decisions(3, start=10))
    first, _ = held.take()
    assert first == decisions(1)[0]
    clock.now += 5  # the first three are 11 seconds old
    second, _ = held.take()
    assert second == decisions(1, start=10)[0]
    assert len(held) == 2
    clock.now += 5
    assert held.take()[0] is None


def test_only_one_refill_is_under_way(clock: Clock) -> None:
    held = Stock(100, 10.0, clock)
    refills = [refill for _ in range(100) if (refill := held.take()[1])]
    assert [each.count for each in refills] == [1]
    held.finish_refill(refills[0], decisions(1))
    clock.now += 0.1
    decision, refill = held.take()
    assert decision is not None
    assert refill is not None
    assert 80 <= refill.count <= 100


def test_after_a_failed_refill_it_pauses(clock: Clock) -> None:
    held = Stock(100, 10.0, clock)
    (refill,) = [refill for _ in range(100) if (refill := held.take()[1])]
    held.finish_refill(refill, [])
    assert not any(held.take()[1] for _ in range(100))
    clock.now += stock.REFILL_PAUSE
    assert held.take()[1] is not None


def test_a_refill_from_before_it_was_emptied_is_dropped(clock: Clock) -> None:
    held = Stock(100, 10.0, clock)
    (old,) = [refill for _ in range(100) if (refill := held.take()[1])]
    held.clear()
    held.finish_refill(old, decisions(5))
    assert len(held) == 0
    clock.now += stock.REFILL_PAUSE
    (new,) = [refill for _ in range(100) if (refill := held.take()[1])]
    held.finish_refill(old, decisions(5))  # again: the new refill is still under way
    assert held.take() == (None, None)
    held.finish_refill(new, decisions(2))
    assert held.take()[0] is not None


def test_a_clock_that_goes_back_does_no_harm(clock: Clock) -> None:
    held = Stock(100, 10.0, clock)
    for _ in range(1000):
        clock.now -= 1e6
        held.take()
    assert math.isfinite(held._demand)


# The buffer, with a clock of its own.

A: Line = "a", "reward"
B: Line = "b", "reward"


def test_a_batch_of_one_campaign_stays_until_it_is_recorded_or_refused(clock: Clock) -> None:
    buffer = Buffer(3, 1.0, clock)
    assert not buffer.add(A, [])
    assert buffer.add(A, pairs(4))  # the first to add starts to send
    assert not buffer.add(B, pairs(2))
    assert not buffer.add(A, pairs(1, start=4))
    assert buffer.first(skip={"a"}) == (B, pairs(2))
    assert buffer.first() == buffer.first() == (A, pairs(3))
    buffer.record(A, 3, Rewarded(3, 0))
    assert buffer.first() == (A, pairs(2, start=3))
    assert len(buffer) == 4
    assert [each.id for each in buffer.refuse(A, 5, kofn.BadReward("too high"))] == ["3-0-00", "4-0-00"]
    assert not buffer.stop_sending()
    buffer.record(B, 2, Rewarded(2, 0))
    assert buffer.first() is None
    assert buffer.stop_sending()
    assert buffer.add(A, pairs(1))


def test_rewards_are_due_by_number_or_by_time(clock: Clock) -> None:
    buffer = Buffer(3, 1.0, clock)
    buffer.add(A, pairs(1))
    clock.now += 0.25
    buffer.add(B, pairs(1))
    assert buffer.seconds_left() == 0.75
    buffer.pause(2.0)
    assert buffer.seconds_left() == 2.0
    buffer.add(B, pairs(1))
    assert buffer.seconds_left() == 2.0
    clock.now += 2
    assert buffer.seconds_left() == 0.0


def test_a_full_or_closed_buffer_takes_nothing(clock: Clock) -> None:
    buffer = Buffer(2, 1.0, clock)
    buffer.add(A, pairs(150))
    buffer.add(A, pairs(50))
    with pytest.raises(kofn.Unreachable, match="200 already wait"):
        buffer.add(A, pairs(1))
    buffer.record(A, 2, Rewarded(2, 0))
    buffer.add(A, pairs(2))
    buffer.close()
    with pytest.raises(kofn.Unreachable, match="closed"):
        buffer.add(A, [])
    assert len(buffer) == 200
    assert buffer.stop_sending()  # closing sends the rest


def test_refused_rewards_are_counted_and_some_are_kept(clock: Clock) -> None:
    buffer = Buffer(20, 1.0, clock)
    buffer.add(A, pairs(stock.MAX_REFUSED + 10))
    buffer.record(A, 4, Rewarded(3, 1))
    buffer.record(A, 1, Rewarded(1, 0))
    assert buffer.results() == Rewarded(4, 1)
    assert len(buffer.refuse(A, 2000, kofn.BadReward("too high"))) == stock.MAX_REFUSED + 5
    with pytest.raises(
        kofn.RewardsRefused, match=r"1,005 .* decision '5-0-00' of the campaign 'a': too high"
    ) as caught:
        buffer.results()
    assert len(caught.value.refused) == stock.MAX_REFUSED
    assert buffer.results() == Rewarded(0, 0)


# Both clients, against a service that is simulated.


@pytest.fixture
def fake() -> Fake:
    return Fake()


Opener = Callable[..., Any]


@pytest.fixture(params=CLIENTS)
def opened(request: Any, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Opener:
    """Opens a client of either kind to the simulated service."""
    monkeypatch.setattr(calls, "FIRST_DELAY", 0.001)
    monkeypatch.setattr(calls, "MAX_DELAY", 0.01)
    monkeypatch.setattr(stock, "REFILL_PAUSE", 0.01)
    return partial(CLIENTS[request.param], "http://kofn.test", transport=httpx.MockTransport(fake))


def decide_often(campaign: Any) -> None:
    for _ in range(1000):
        campaign.decide()


def test_decisions_come_from_the_stock(opened: Opener, fake: Fake) -> None:
    with opened(prefetch=50) as client:
        campaign = client.campaign("front")
        ids = []
        for _ in range(10):  # the thread that fills the stock may get no time while decisions are made
            ids += [campaign.decide().id for _ in range(50)]
            wait_until(lambda: not client._stocks["front", ""]._refilling, "the stock is refilled")
    assert len(set(ids)) == 500
    assert len(fake.made) < 500
    made = {id for each in fake.made.values() for id in each}
    assert set(ids) <= made
    assert len(made) <= 500 + 50
    assert max(map(len, fake.made.values())) > 10


def test_a_number_of_decisions_or_a_key_asks_the_service(opened: Opener, fake: Fake) -> None:
    with opened(prefetch=50) as client:
        campaign = client.campaign("front")
        for _ in range(20):
            campaign.decide(2)
            campaign.decide(key="order 7")
        assert client._stocks == {}
        assert client.flush() == Rewarded(0, 0)  # without a buffer
    assert len(fake.made) == 21


def test_a_campaign_that_this_client_pauses_is_paused_at_once(opened: Opener, fake: Fake) -> None:
    with opened(prefetch=50) as client:
        campaign = client.campaign("front")
        for _ in range(100):
            campaign.decide()
        campaign.pause()
        for _ in range(3):
            with pytest.raises(kofn.NotRunning):
                campaign.decide()


def test_a_campaign_that_others_pause_stops_when_the_stock_is_stale(opened: Opener, fake: Fake) -> None:
    with opened(prefetch=50, stale_after=0.05) as client:
        campaign = client.campaign("front")
        for _ in range(100):
            campaign.decide()
        fake.state = "paused"
        time.sleep(0.05)
        with pytest.raises(kofn.NotRunning):
            campaign.decide()


def test_a_refill_that_is_refused_empties_the_stock(opened: Opener, fake: Fake) -> None:
    with opened(prefetch=50, stale_after=1000.0) as client:
        campaign = client.campaign("front")
        for _ in range(100):
            campaign.decide()
        fake.state = "stopped"
        with pytest.raises(kofn.NotRunning):  # at the latest when the stock is empty; a refill comes first
            decide_often(campaign)


def test_the_stock_bridges_an_outage(opened: Opener, fake: Fake) -> None:
    with opened(prefetch=50, retry_for=0.0) as client:
        campaign = client.campaign("front")
        wait_until(lambda: campaign.decide() and len(client._stocks["front", ""]) > 20, "the stock has grown")
        fake.fail = down
        for _ in range(20):
            campaign.decide()
        with pytest.raises(kofn.Unreachable):
            decide_often(campaign)
        fake.fail = lambda _: None
        campaign.decide()


def test_a_lost_response_of_a_refill_loses_no_decision(opened: Opener, fake: Fake) -> None:
    lost = iter(range(10**6))

    def lossy(request: httpx.Request) -> httpx.Response | None:
        if next(lost) % 3 == 0:
            fake.decide(json.loads(request.content))  # decided, but the response does not arrive
            raise httpx.ReadError("the connection was lost", request=request)
        return None

    fake.fail = lossy
    with opened(prefetch=50) as client:
        campaign = client.campaign("front")
        ids = [campaign.decide().id for _ in range(300)]
        wait_until(lambda: not client._stocks["front", ""]._refilling, "the stock is refilled")
        held = len(client._stocks["front", ""])
    assert len(set(ids)) == 300
    assert sum(map(len, fake.made.values())) == 300 + held


def test_rewards_are_sent_in_batches(opened: Opener, fake: Fake) -> None:
    with opened(buffer=10, flush_after=60.0) as client:
        campaign = client.campaign("front")
        for id, value in pairs(9):
            answer = campaign.reward(id, value)
            assert answer == Buffered(0, 0, buffered=1)
            assert answer.accepted == 0  # it is not recorded yet, and does not say so
        assert fake.recorded == {}
        assert client.waiting_rewards == 9
        campaign.reward("9-0-00", 0.5)
        wait_until(lambda: len(fake.recorded) == 10, "10 rewards")
        assert fake.batches == [10]
        assert campaign.rewards(pairs(25, start=16)).buffered == 25
        assert client.flush() == Rewarded(35, 0)
        assert client.flush() == Rewarded(0, 0)
        assert client.waiting_rewards == 0
    assert fake.batches == [10, 10, 10, 5]


def test_rewards_are_sent_after_some_time(opened: Opener, fake: Fake) -> None:
    with opened(buffer=10, flush_after=0.01) as client:
        for id, value in pairs(3):
            client.campaign("front").reward(id, value)
            wait_until(partial(fake.recorded.get, id), "the reward is recorded")


def test_closing_sends_the_rest(opened: Opener, fake: Fake) -> None:
    client = opened(buffer=100, flush_after=60.0)
    client.campaign("front").rewards(dict(pairs(7)))
    client.campaign("back").rewards(pairs(3, start=16))
    client.close()
    client.close()
    assert sorted(fake.batches) == [3, 7]
    with pytest.raises(kofn.Unreachable, match="closed"):
        client.campaign("front").reward("ff-0-00", 0.5)
    with pytest.raises(kofn.Unreachable, match="closed"):
        client.campaign("front").decide()


@pytest.mark.parametrize("bad", [[0], [31], [5, 6, 20], list(range(32))])
def test_a_refused_reward_does_not_lose_the_others(opened: Opener, fake: Fake, bad: list[int]) -> None:
    told: list[RefusedReward] = []
    given = [(id, 7.5 if i in bad else value) for i, (id, value) in enumerate(pairs(32))]
    with opened(buffer=32, flush_after=60.0, on_error=told.append) as client:
        client.campaign("front").rewards(given)
        with pytest.raises(kofn.RewardsRefused, match=f"^{len(bad)} buffered") as caught:
            client.flush()
        assert client.flush() == Rewarded(0, 0)  # it is raised once
    assert fake.recorded == {id: value for id, value in given if value < 1}
    assert [each.id for each in told] == [given[i][0] for i in bad]
    assert caught.value.refused == told
    assert all(isinstance(each.error, kofn.BadReward) and each.campaign == "front" for each in told)


def test_additions_and_metrics_are_buffered_too(opened: Opener, fake: Fake) -> None:
    """Each kind is sent on its own, in its order, and what is refused says what it was."""
    told: list[RefusedReward] = []
    with opened(buffer=10, flush_after=60.0, on_error=told.append) as client:
        campaign = client.campaign("front")
        assert campaign.add("1-0-00", 0.5, event="order 1") == Buffered(0, 0, buffered=1)
        assert campaign.reward("2-0-00", 0.5) == campaign.record("1-0-00", "returned", 1.0)
        campaign.adds([("1-0-00", 0.25, "order 2"), ("1-0-00", 7.5, "order 3")])
        campaign.record("1-0-00", "basket", 7.5)
        with pytest.raises(kofn.RewardsRefused, match="2 buffered"):
            client.flush()
    assert fake.recorded == {
        ("1-0-00", "order 1"): 0.5,
        ("1-0-00", "order 2"): 0.25,
        "2-0-00": 0.5,
        ("1-0-00", "returned"): 1.0,
    }
    assert [(each.kind, each.name, each.value) for each in told] == [
        ("add", "order 3", 7.5),
        ("record", "basket", 7.5),
    ]


def test_what_cannot_be_sent_at_all_is_refused_too(opened: Opener, fake: Fake) -> None:
    with opened(buffer=10, flush_after=60.0) as client:
        client.campaign("front").rewards([*pairs(3), ("\ud800", 0.5)])
        with pytest.raises(kofn.RewardsRefused, match="1 buffered"):
            client.flush()
        with pytest.raises(kofn.BadReward, match="one finite number"):
            client.campaign("front").reward("1-0-00", math.nan)
        with pytest.raises(kofn.NoSuchCampaign):
            client.campaign("..").reward("1-0-00", 0.5)
        assert client.waiting_rewards == 0
    assert len(fake.recorded) == 3


def test_a_token_that_is_refused_refuses_the_batch_in_one_request(opened: Opener, fake: Fake) -> None:
    asked = []

    def forbidden(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return problem(403, "forbidden", "this token is read only")

    fake.fail = forbidden
    client = opened(buffer=100, flush_after=60.0)
    client.campaign("front").rewards(pairs(50))
    with pytest.raises(kofn.RewardsRefused, match=r"50 buffered .* read only"):
        client.close()
    assert len(asked) == 1


def test_rewards_wait_until_the_service_is_back(opened: Opener, fake: Fake) -> None:
    fake.fail = down
    with opened(buffer=5, flush_after=0.001, retry_for=0.005) as client:
        for id, value in pairs(20):
            client.campaign("front").reward(id, value)
        with pytest.raises(kofn.Unreachable):
            client.flush()
        assert client.waiting_rewards == 20
        fake.fail = lambda _: httpx.Response(200, text="<html>Please log in")  # of a proxy: no reward is recorded
        with pytest.raises(kofn.Unreachable, match="not one of kofn"):
            client.flush()
        fake.fail = lambda _: problem(429, "too-many-requests", "slow down")
        with pytest.raises(kofn.Unreachable, match="slow down"):
            client.flush()
        fake.fail = lambda _: None
        wait_until(lambda: len(fake.recorded) == 20, "20 rewards")
    assert sum(fake.batches) == 20


def test_closing_says_what_is_lost(opened: Opener, fake: Fake) -> None:
    lost: list[RefusedReward] = []
    fake.fail = down
    client = opened(buffer=100, flush_after=60.0, retry_for=0.005, on_error=lost.append)
    client.campaign("front").rewards(pairs(7))
    with pytest.raises(kofn.Unreachable, match="7 rewards in the buffer could not be sent and are lost"):
        client.close()
    assert [(each.id, each.value) for each in lost] == pairs(7)


def test_closing_ends_in_time(opened: Opener, fake: Fake) -> None:
    fake.fail = down
    client = opened(buffer=5, flush_after=0.0)
    client.campaign("front").rewards(pairs(7))
    begun = time.monotonic()
    with pytest.raises(kofn.Unreachable, match="7 rewards in the buffer could not be sent and are lost"):
        client.close(0.1)
    assert time.monotonic() - begun < 30  # of the 60 seconds of retry_for


def test_closing_does_not_wait_for_a_request_without_a_response(fake: Fake) -> None:
    lost: list[RefusedReward] = []
    asked, released = threading.Event(), threading.Event()

    def silent(request: httpx.Request) -> None:
        asked.set()
        released.wait(60)

    fake.fail = silent
    transport = httpx.MockTransport(fake)
    client = Client("http://kofn.test", transport=transport, buffer=5, flush_after=0.0, on_error=lost.append)
    client.campaign("front").rewards(pairs(7))
    asked.wait(60)
    with pytest.raises(kofn.Unreachable, match=r"7 rewards .* lost: the service did not respond within 0.05 seconds"):
        client.close(0.05)
    client.close(0.05)  # nothing is left that could be lost, as at the end of a `with` block
    released.set()
    wait_until(lambda: fake.recorded, "the response comes too late")
    assert [(each.id, each.value) for each in lost] == pairs(7)


def test_while_the_service_is_gone_only_one_campaign_is_retried(opened: Opener, fake: Fake) -> None:
    asked: list[str] = []

    def note(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path.split("/")[3])
        return down(request)

    fake.fail = note
    client = opened(buffer=100, flush_after=60.0, retry_for=0.1)
    for name in "abc":
        client.campaign(name).rewards(pairs(1))
    with pytest.raises(kofn.Unreachable, match="3 rewards"):
        client.close()
    assert asked.count("a") > 1
    assert asked.count("b") == asked.count("c") == 1


def test_an_on_error_that_fails_does_no_harm(opened: Opener, fake: Fake) -> None:
    def fails(_: RefusedReward) -> None:
        raise ZeroDivisionError

    with opened(buffer=10, flush_after=60.0, on_error=fails) as client:
        client.campaign("front").rewards([("f-0-00", 7.5), *pairs(3)])
        with pytest.raises(kofn.RewardsRefused):
            client.flush()
    assert len(fake.recorded) == 3


@pytest.mark.parametrize("settings", [{"prefetch": -1}, {"buffer": -1}, {"prefetch": 1.5}, {"buffer": "many"}])
def test_bad_sizes_are_refused(opened: Opener, settings: dict[str, Any]) -> None:
    with pytest.raises(kofn.BadInput, match="must be a whole number"):
        opened(**settings)


def test_many_threads_or_tasks_share_a_stock_and_a_buffer(opened: Opener, fake: Fake) -> None:
    ids: list[str] = []

    def work() -> None:
        for _ in range(100):
            decision = campaign.decide()
            ids.append(decision.id)
            campaign.reward(decision.id, 0.5)

    with opened(prefetch=50, buffer=20) as client:
        campaign = client.campaign("front")
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(ids) == len(set(ids)) == 800
    assert fake.recorded == dict.fromkeys(ids, 0.5)


# Forks and exits.


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_after_a_fork_nothing_is_shared() -> None:
    """The child has no decision, no reward and no connection of its parent, and sends its own rewards."""
    program = """
        import os, httpx
        from tests.client.tools import Fake, pairs
        from kofn import Client
        transport = httpx.MockTransport(Fake())
        client = Client("http://kofn.test", transport=transport, prefetch=50, buffer=20, flush_after=60)
        campaign, connections = client.campaign("front"), client._http
        for _ in range(100):
            campaign.decide()
        campaign.rewards(pairs(3))
        child = os.fork()
        if child == 0:
            shared = client.waiting_rewards + len(client._stocks) + (client._http is connections)
            campaign.rewards(pairs(5, start=16))
            os._exit(10 * shared + client.flush().accepted)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), client.waiting_rewards)
        """
    assert run(program) == "5 3"


def run(program: str, *arguments: str, code: int = 0) -> str:
    """Run a program, and return what it prints."""
    lines = inspect.cleandoc(program)
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", lines, *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return (done.stdout + done.stderr).strip()


def test_a_program_that_ends_without_closing_sends_its_rewards() -> None:
    program = """
        import atexit, httpx
        from tests.client.tools import Fake, pairs
        from kofn import Client
        fake = Fake()
        atexit.register(lambda: print(len(fake.recorded)))  # runs after what was registered later
        import kofn.client.background as background
        atexit.unregister(background._exited); atexit.register(background._exited)
        client = Client("http://kofn.test", transport=httpx.MockTransport(fake), buffer=20, flush_after=60)
        client.campaign("front").rewards(pairs(3))
        """
    assert run(program) == "3"


def test_where_no_thread_can_start_closing_sends_the_rest(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a program ends, from Python 3.12 on."""
    client = Client("http://kofn.test", transport=httpx.MockTransport(fake), buffer=20, flush_after=60)
    client.campaign("front").rewards(pairs(3))
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError))
    client.close()
    assert fake.recorded == dict(pairs(3))


@pytest.mark.parametrize("kind", ["Client", "AsyncClient"])
def test_a_program_that_ends_says_what_it_could_not_send(kind: str) -> None:
    program = f"""
        import asyncio, httpx
        from tests.client.tools import down, pairs
        from kofn import {kind}
        import kofn.client.background as background
        background.EXIT_SECONDS = 0.01
        client = {kind}("http://kofn.test", transport=httpx.MockTransport(down), buffer=20, flush_after=60)
        async def work():
            await client.campaign("front").rewards(pairs(3))
        asyncio.run(work()) if "{kind}" == "AsyncClient" else client.campaign("front").rewards(pairs(3))
        """
    assert "3 rewards in the buffer" in run(program)


# With a real service.


@pytest.fixture(scope="module")
def url(module_store: str) -> Iterator[str]:
    with service(module_store) as http:
        yield str(http.base_url)


def test_a_campaign_is_played_through_stock_and_buffer(url: str, module_store: str) -> None:
    here = create(module_store, "played")
    with Client(url, prefetch=20, buffer=20) as client:
        campaign = client.campaign("played")
        for _ in range(100):
            decision = campaign.decide()
            campaign.reward(decision.id, float(sum(decision.subset) % 2))
        assert client.flush().accepted == 100
    summary = here.summary()
    assert summary.rewards == 100
    assert summary.in_flight == summary.plays - 100 <= 20  # what is left in the stock
    wait_until(lambda: here.insight().updates > 0, "the policy has learned")
    checked(here)


def test_what_dies_with_a_client_expires_and_what_was_acknowledged_stays(url: str, module_store: str) -> None:
    """A process holds decisions and rewards, and is killed after it has printed what the service acknowledged."""
    here = Campaign.create("killed", NAMES, 3, store=module_store, expire_after=0.5)
    program = """
        import os, signal, sys
        from kofn import Client
        client = Client(sys.argv[1], prefetch=20, buffer=50, flush_after=60)
        campaign = client.campaign("killed")
        taken = [campaign.decide() for _ in range(60)]
        for each in taken[:40]:
            campaign.reward(each.id, 0.5)
        print(client.flush().accepted)
        for each in taken[40:]:
            campaign.reward(each.id, 0.5)
        print(client.waiting_rewards, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    assert run(program, url, code=-signal.SIGKILL).split() == ["40", "20"]
    summary = here.summary()
    assert summary.rewards == 40
    assert summary.plays >= 60
    assert summary.in_flight + summary.expired == summary.plays - 40
    wait_until(lambda: here.summary().in_flight == 0, "nothing is in flight")
    with Client(url) as client:
        (again,) = client.campaign("killed").decide(1)
        assert client.campaign("killed").reward(again.id, 0.5).accepted == 1
    checked(here)
