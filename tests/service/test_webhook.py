"""The webhook and the watcher: what is posted, when, by which process; alarms as events and as metrics."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from kofn.campaigns import Campaign, Store, backup, lease, restore, store_at
from kofn.campaigns.lease import Lease
from kofn.campaigns.reports.alarms import ADVICE, NOTE_AGAIN
from kofn.campaigns.store.schema import CAMPAIGNS
from kofn.core import StoreError
from kofn.core.responses import RaisedAlarm
from kofn.service.background import webhook
from kofn.service.background.watch import Watcher
from kofn.service.background.webhook import Webhook
from kofn.service.monitoring.metrics import Metrics
from tests.cases import postgres_is_slow
from tests.service.tools import Served, free_port, service
from tests.waiting import wait_until

HOUR = 3600.0
ARMS = list("abcdef")


class Receiver:
    """A server that keeps what is posted to it, and answers with the statuses that it is given, then with 200."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.raw: list[tuple[bytes, dict[str, str]]] = []
        self.statuses: list[int] = []
        self.location = ""
        self.pieces = 0  # of an answer that goes on and on, before the final one
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.raw.append((body, dict(self.headers)))
                status = receiver.statuses.pop(0) if receiver.statuses else 200
                for _ in range(receiver.pieces):
                    self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                    time.sleep(0.02)
                if status == 200:
                    receiver.bodies.append(json.loads(body))
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", receiver.location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook?key=secret"

    @property
    def kinds(self) -> list[str]:
        return [each["kind"] for each in self.bodies]

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.bodies) >= count, f"{count} events")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield made
    made.server.shutdown()
    made.server.server_close()


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(store_url: str) -> Clock:
    made = Clock()
    store_at(store_url).clock = made
    return made


@pytest.fixture
def store(store_url: str, clock: Clock) -> Store:
    return store_at(store_url)


def new(store: Store, name: str = "front", **options: Any) -> Campaign:
    return Campaign.create(name, ARMS, 2, seed=1, store=store, **options)


def hook(store: Store, receiver: Receiver, secret: str | None = None) -> Webhook:
    return Webhook(store, receiver.url, secret, Metrics(store))


def notified(store: Store, name: str = "front") -> int:
    with store.read() as connection:
        return int(connection.execute(select(CAMPAIGNS.c.notified).where(CAMPAIGNS.c.name == name)).scalar_one())


def earn(campaign: Campaign, clock: Clock, count: int = 100, *, delay: float = 1.0) -> None:
    decisions = campaign.decide(count)
    clock.now += delay
    campaign.rewards([(each.id, float("a" in each.arms)) for each in decisions])


def fall_silent(campaign: Campaign, clock: Clock) -> list[str]:
    """Play with rewards, then without. Return the ids of decisions whose rewards are missing."""
    for _ in range(20):
        earn(campaign, clock)
        clock.now += 60
    clock.now += HOUR
    ids = [each.id for each in campaign.decide(100)]
    clock.now += HOUR
    return ids


# What is posted.


def test_events_arrive_once_and_in_order(store: Store, receiver: Receiver) -> None:
    sender, campaign = hook(store, receiver), new(store, stop_when="loss<0.5")
    sender.step()
    assert receiver.bodies == []  # that it was created is no news
    campaign.pause()
    campaign.resume()
    campaign.ship(["a", "b"])
    sender.step()
    sender.step()
    assert receiver.kinds == ["paused", "resumed", "shipped"]
    shipped = receiver.bodies[-1]
    [event] = [each for each in campaign.events() if each.kind == "shipped"]
    assert re.fullmatch(rf"\d+-{event.number}-{int(event.at.timestamp())}", shipped["id"])
    assert shipped == {
        "id": shipped["id"],
        "campaign": "front",
        "number": event.number,
        "kind": "shipped",
        "at": event.at.isoformat(),
        "message": "a, b",
    }
    campaign.stop()
    sender.step()
    assert receiver.kinds[3:] == ["stopped"]
    assert len({each["id"] for each in receiver.bodies}) == 4
    assert notified(store) == campaign.events()[0].number


def test_a_campaign_that_becomes_ready_and_ships_is_reported(store: Store, clock: Clock, receiver: Receiver) -> None:
    campaign = new(store, stop_when="loss<0.2", ship_when_ready=True)
    while campaign.state == "running":
        earn(campaign, clock)
    hook(store, receiver).step()
    assert receiver.kinds == ["ready", "shipped"]


def test_bodies_are_signed(store: Store, receiver: Receiver) -> None:
    new(store).pause()
    sender = hook(store, receiver, "a secret")
    sender.step()
    body, headers = receiver.raw[0]
    assert headers["Kofn-Signature"] == "sha256=" + hmac.new(b"a secret", body, hashlib.sha256).hexdigest()
    assert headers["Content-Type"] == "application/json"
    sender._secret = None
    new(store, "back").pause()
    sender.step()
    assert "Kofn-Signature" not in receiver.raw[1][1]


def test_failures_are_retried_with_growing_delays(store: Store, clock: Clock, receiver: Receiver) -> None:
    sender, campaign = hook(store, receiver), new(store)
    campaign.pause()
    receiver.statuses = [500, 404, 503]
    tried = []
    began = clock.now
    for _ in range(100):
        before = len(receiver.raw)
        sender.step()
        tried += [clock.now - began] * (len(receiver.raw) - before)
        clock.now += 1
    assert receiver.kinds == ["paused"]
    assert tried == [0, 2, 6, 14]  # after 2, 4 and 8 seconds
    assert len({body for body, _ in receiver.raw}) == 1  # the same id


def test_a_receiver_that_is_down_is_tried_again(
    store: Store, clock: Clock, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    sender, campaign = hook(store, receiver), new(store)
    campaign.pause()
    url, sender._url = sender._url, f"http://127.0.0.1:{free_port()}/hook?key=secret"
    sender.step()
    assert "did not accept 'paused' of 'front'" in caplog.text
    assert "key=secret" not in caplog.text
    sender._url = url
    clock.now += 2
    sender.step()
    assert receiver.kinds == ["paused"]


def test_a_failure_of_one_campaign_does_not_hold_up_others(store: Store, clock: Clock, receiver: Receiver) -> None:
    sender, front, back = hook(store, receiver), new(store), new(store, "back")
    front.pause()
    sender.step()
    receiver.statuses = [500]
    front.resume()
    sender.step()
    back.pause()
    sender.step()
    assert [(each["campaign"], each["kind"]) for each in receiver.bodies] == [("front", "paused"), ("back", "paused")]
    clock.now += 60
    sender.step()
    assert (receiver.bodies[-1]["campaign"], receiver.kinds[-1]) == ("front", "resumed")


def test_redirects_are_not_followed(store: Store, clock: Clock, receiver: Receiver) -> None:
    sender, campaign = hook(store, receiver), new(store)
    campaign.pause()
    receiver.statuses, receiver.location = [302, 307], receiver.url
    sender.step()
    assert (len(receiver.raw), notified(store)) == (1, 0)
    clock.now += 2
    sender.step()
    assert len(receiver.raw) == 2


def test_an_answer_that_goes_on_and_on_is_a_failure(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of its pieces arrives in time, the answer as a whole does not."""
    monkeypatch.setattr(webhook, "TIMEOUT", 0.2)
    monkeypatch.setattr(receiver.server, "handle_error", lambda *_: None)  # the connection ends while it writes
    sender, campaign = hook(store, receiver), new(store)
    campaign.pause()
    receiver.pieces = 200
    sender.step()
    assert notified(store) == 0
    assert "no answer within 0.2 seconds" in caplog.text or "timed out" in caplog.text


def test_what_a_receiver_answers_instead_of_http_is_logged_in_part(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(self: BaseHTTPRequestHandler, *_: Any) -> None:
        self.wfile.write(b"x" * 5000 + b"\r\n")

    monkeypatch.setattr(receiver.server.RequestHandlerClass, "send_response", answer)
    sender, campaign = hook(store, receiver), new(store)
    campaign.pause()
    sender.step()
    assert notified(store) == 0
    assert "x" * 100 in caplog.text
    assert "x" * 1000 not in caplog.text


def test_old_events_are_left_out(store: Store, clock: Clock, receiver: Receiver) -> None:
    campaign = new(store)
    campaign.pause()
    clock.now += 25 * HOUR
    campaign.resume()
    hook(store, receiver).step()
    assert receiver.kinds == ["resumed"]


@postgres_is_slow
def test_an_event_is_given_up_after_a_day(store: Store, clock: Clock, receiver: Receiver) -> None:
    sender, campaign = hook(store, receiver), new(store)
    campaign.pause()
    receiver.statuses = [500] * 10_000
    while notified(store) == 0:
        sender.step()
        clock.now += 3600
        assert len(receiver.raw) < 30
    campaign.resume()
    receiver.statuses = []
    sender.step()
    assert receiver.kinds == ["resumed"]


def test_an_event_that_was_posted_but_not_marked_is_posted_again(
    store: Store, clock: Clock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least once: the process dies between the two, or the store fails."""
    sender, campaign = hook(store, receiver), new(store)
    campaign.pause()
    with monkeypatch.context() as patch:
        patch.setattr(webhook, "update", lambda _: (_ for _ in ()).throw(StoreError("gone")))
        with pytest.raises(StoreError):
            sender.step()
    clock.now += 2 * lease.LEASE_SECONDS
    hook(store, receiver).step()
    assert len(receiver.bodies) == 2
    assert receiver.bodies[0] == receiver.bodies[1]


def test_marking_and_other_changes_do_not_overwrite_each_other(store: Store, clock: Clock, receiver: Receiver) -> None:
    """The campaign's row, which a process keeps in memory, has an older mark of the webhook."""
    sender, campaign = hook(store, receiver), new(store)
    campaign.pause()
    sender.step()
    marked = notified(store)
    assert marked == 2
    campaign.resume()
    earn(campaign, clock)
    assert notified(store) == marked
    assert campaign.verify().ok


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_events_after_a_restored_backup_arrive(store: Store, receiver: Receiver, tmp_path: Path) -> None:
    sender, campaign = hook(store, receiver), new(store)
    campaign.pause()
    sender.step()
    backup(tmp_path / "a.backup", store)
    for change in (campaign.resume, campaign.pause, campaign.resume):
        change()
        sender.step()
    restore(tmp_path / "a.backup", store, replace=True)
    Campaign.open("front", store).stop()  # its number is that of an event that was posted before
    sender.step()
    assert receiver.kinds == ["paused", "resumed", "paused", "resumed", "stopped"]


# Which process.


def test_one_process_posts_and_another_takes_over(store: Store, clock: Clock, receiver: Receiver) -> None:
    first, second, campaign = hook(store, receiver), hook(store, receiver), new(store)
    campaign.pause()
    for sender in (second, first, second, first):
        sender.step()
    assert receiver.kinds == ["paused"]
    campaign.resume()
    first.step()
    assert receiver.kinds == ["paused"]
    clock.now += lease.LEASE_SECONDS + 1  # the second one has died
    first.step()
    assert receiver.kinds == ["paused", "resumed"]
    second.step()
    clock.now += lease.LEASE_SECONDS + 1
    second.step()
    assert receiver.kinds == ["paused", "resumed"]


def test_a_clock_that_is_set_back_leaves_one_holder(store: Store, clock: Clock) -> None:
    one, other = Lease(store, "work"), Lease(store, "work")
    assert one.held()
    clock.now -= 24 * HOUR
    assert other.held()
    assert not one.held()


def test_a_clock_that_is_set_back_does_not_delay_a_retry(store: Store, clock: Clock, receiver: Receiver) -> None:
    sender, campaign = hook(store, receiver), new(store)
    campaign.pause()
    receiver.statuses = [500]
    sender.step()
    assert receiver.kinds == []
    clock.now -= 5 * HOUR
    sender.step()
    assert receiver.kinds == ["paused"]


def test_a_lease_has_one_holder(store: Store, clock: Clock) -> None:
    leases = [Lease(store, "work") for _ in range(8)]
    for _ in range(5):
        barrier = threading.Barrier(len(leases))
        held: list[Lease] = []

        def take(each: Lease, barrier: threading.Barrier = barrier, held: list[Lease] = held) -> None:
            barrier.wait()
            if each.held():
                held.append(each)

        threads = [threading.Thread(target=take, args=(each,)) for each in leases]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(held) == 1
        clock.now += lease.LEASE_SECONDS - 1
        assert held[0].held()  # it is renewed in time
        assert sum(each.held() for each in leases) == 1
        clock.now += lease.LEASE_SECONDS + 1


@pytest.mark.slow
def test_two_workers_post_each_event_once(
    sqlite_store: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KOFN_WEBHOOK", receiver.url)  # arguments are visible in `ps`
    campaigns = [Campaign.create(f"c{number}", ARMS, 2, store=sqlite_store) for number in range(5)]
    with Served(sqlite_store, "--workers", "2") as served:
        for campaign in campaigns:
            assert served.client.post(f"/api/campaigns/{campaign.name}/pause").is_success
        receiver.wait_for(5)
        for campaign in campaigns:
            assert served.client.post(f"/api/campaigns/{campaign.name}/resume").is_success
        receiver.wait_for(10)
        time.sleep(2 * webhook.POLL_SECONDS + 0.5)
        assert served.stop() == 0
        assert "secret" not in served.stderr()
    assert len(receiver.bodies) == len({each["id"] for each in receiver.bodies}) == 10


# Alarms.


@postgres_is_slow
def test_an_alarm_becomes_an_event_and_ends_with_one(store: Store, clock: Clock, receiver: Receiver) -> None:
    campaign = new(store)
    missing = fall_silent(campaign, clock)
    [alarm] = campaign.note_alarms()
    assert campaign.note_alarms() == [alarm]
    assert [each.kind for each in campaign.events()].count("alarm") == 1
    event = campaign.events()[0]
    assert (event.kind, event.message) == ("alarm", f"silence: {alarm.message}{ADVICE}{alarm.advice}")
    sender = hook(store, receiver)
    sender.step()
    [body] = receiver.bodies
    assert (body["kind"], body["message"], body["advice"]) == ("alarm", f"silence: {alarm.message}", alarm.advice)
    campaign.rewards([(id, 1.0) for id in missing])
    clock.now += NOTE_AGAIN
    assert "silence" not in [each.kind for each in campaign.note_alarms()]
    sender.step()
    assert (receiver.bodies[1]["kind"], receiver.bodies[1]["message"]) == ("alarm over", "silence")
    assert "advice" not in receiver.bodies[1]
    assert "alarms" not in campaign.settings().to_dict()


@postgres_is_slow
def test_an_alarm_that_comes_and_goes_makes_few_events(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = new(store)
    campaign.reward(campaign.decide().id, 1.0)
    silence = RaisedAlarm("silence", None, None, "no rewards", "look")
    minutes = 5 * 60
    for minute in range(minutes):
        raised = [silence] if minute % 2 else []
        monkeypatch.setattr("kofn.campaigns.reports.alarms.raised", lambda *_, found=raised: found)
        assert campaign.note_alarms() == raised
        clock.now += 60.0
    events = [each for each in campaign.events() if each.kind.startswith("alarm")]
    assert [each.kind for each in events] == ["alarm", "alarm over", "alarm", "alarm over", "alarm"]
    assert all((later.at - earlier.at).total_seconds() >= NOTE_AGAIN for later, earlier in pairwise(events))
    copy = Campaign.import_(campaign.export(), store=store, name="copy")
    assert copy.note_alarms() == raised
    assert copy.events()[0].kind == "imported"


@postgres_is_slow
def test_a_paused_campaign_notes_nothing(store: Store, clock: Clock) -> None:
    campaign = new(store)
    fall_silent(campaign, clock)
    campaign.pause()
    campaign.note_alarms()
    assert "alarm" not in [each.kind for each in campaign.events()]
    campaign.resume()
    campaign.note_alarms()
    assert campaign.events()[0].kind == "alarm"


@postgres_is_slow
def test_an_alarm_of_each_arm(store: Store, clock: Clock) -> None:
    campaign = new(store)
    for _ in range(20):
        decisions = campaign.decide(100)
        clock.now += 1
        campaign.rewards([(each.id, 0.5) for each in decisions if "c" not in each.arms])
    clock.now += HOUR
    assert "c" in [each.arm for each in campaign.note_alarms()]
    assert any(each.kind == "alarm" and each.message.startswith("arm c: ") for each in campaign.events())


@postgres_is_slow
def test_the_watcher_notes_alarms(store: Store, clock: Clock) -> None:
    quiet, idle = new(store), new(store, "idle")
    fall_silent(quiet, clock)
    watcher, other = Watcher(store, 60.0), Watcher(store, 60.0)
    assert idle.summary().rewards == 0
    assert watcher.step() == 60.0
    assert other.step() == 60.0
    assert quiet.events()[0].kind == "alarm"
    assert [each.kind for each in idle.events()] == ["created"]


def test_the_watcher_looks_at_recent_campaigns(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(Campaign, "note_alarms", lambda campaign: looked.append(campaign.name))
    names = [f"c{number}" for number in range(3)]
    campaigns = [new(store, name) for name in names]
    for campaign in campaigns:
        earn(campaign, clock)
    watcher = Watcher(store, 60.0)

    def minute() -> list[str]:
        looked.clear()
        clock.now += 60
        while watcher.step() < 60.0:
            pass
        return sorted(looked)

    assert minute() == minute() == names
    campaigns[0].pause()
    campaigns[1].delete()
    assert minute() == ["c2"]
    clock.now += 25 * HOUR
    assert minute() == []  # nothing was folded for a day


def test_a_service_watches_and_posts(sqlite_store: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kofn.service.app.POLL_SECONDS", 0.05)
    monkeypatch.setattr(webhook, "POLL_SECONDS", 0.05)
    monkeypatch.setenv("KOFN_WEBHOOK_SECRET", "of the tests")
    real, clock = time.time, Clock()
    clock.now = real() - 3 * HOUR
    store_at(sqlite_store).clock = clock
    campaign = new(store_at(sqlite_store))
    fall_silent(campaign, clock)
    store_at(sqlite_store).clock = real
    with service(sqlite_store, webhook=receiver.url, watch_interval=0.05) as client:
        receiver.wait_for(1)
        assert receiver.kinds == ["alarm"]
        assert receiver.raw[0][1]["Kofn-Signature"].startswith("sha256=")
        # The post is counted after its response, which may come after the next request.
        wait_until(lambda: 'kofn_webhook_posts_total{result="delivered"} 1.0' in client.get("/metrics").text, "a count")
        text = client.get("/metrics").text
    assert re.search(r'kofn_campaign_alarms\{campaign="front",state="running"\} 1\.0', text)


# Metrics.


def values(text: str, name: str) -> dict[str, float]:
    found = re.findall(rf'^kofn_campaign_{name}\{{campaign="([^"]*)",state="[a-z]*"\}} (\S+)$', text, re.MULTILINE)
    return {campaign: float(value) for campaign, value in found}


def test_metrics_have_what_an_experiment_is_run_for(store: Store, clock: Clock) -> None:
    plain, ruled = new(store), new(store, "ruled", stop_when="loss<0.2", control=["e", "f"], control_share=0.5)
    new(store, "new")
    for campaign in (plain, ruled):
        for _ in range(10):
            earn(campaign, clock)
    text = Metrics(store).text().decode()
    insight = ruled.insight()
    assert insight.lift is not None
    assert insight.stop is not None
    assert values(text, "expected_loss") == {
        "front": pytest.approx(plain.insight().expected_loss),
        "ruled": pytest.approx(insight.expected_loss),
    }
    assert values(text, "lift") == {"ruled": pytest.approx(insight.lift.difference)}
    assert values(text, "lift_low") == {"ruled": pytest.approx(insight.lift.low)}
    assert values(text, "ready") == {"ruled": float(insight.stop.ready)}
    assert values(text, "alarms") == {"front": 0.0, "ruled": 0.0, "new": 0.0}
    ruled.stop()
    assert "ruled" not in values(Metrics(store).text().decode(), "alarms")
