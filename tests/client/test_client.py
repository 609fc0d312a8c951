"""The clients return what the campaign returns, and retry idempotent requests only."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import kofn
from kofn.campaigns import Campaign, store_at
from kofn.client import AsyncClient, AsyncRemoteCampaign, Client, RemoteCampaign, calls, sync_client
from kofn.core.campaign_settings import CampaignOptions, CreationSettings
from kofn.core.responses import CampaignInsight, Decision, Rewarded
from kofn.service.security import auth
from kofn.service.security.tokens import create_token
from tests.campaigns.tools import NAMES, checked, create
from tests.cases import for_each
from tests.client.tools import CLIENTS, Fake, down, problem
from tests.service.tools import service
from tests.waiting import wait_until
from tools import generate_sync_client


@pytest.fixture
def url(sqlite_store: str) -> Iterator[str]:
    with service(sqlite_store) as http:
        yield str(http.base_url)


Opener = Callable[..., Any]


@pytest.fixture(params=CLIENTS)
def opened(request: pytest.FixtureRequest) -> Opener:
    """Opens a client of either kind."""
    return CLIENTS[request.param]


@pytest.fixture
def client(opened: Opener, url: str) -> Iterator[Any]:
    with opened(url) as made:
        yield made


def by_name(insight: CampaignInsight) -> CampaignInsight:
    """The insight with its arms by name: the service sorts them by effect."""
    return replace(insight, arms=sorted(insight.arms, key=lambda arm: arm.name))


def test_a_campaign_from_afar(client: Any, sqlite_store: str) -> None:
    campaign = client.create(
        "front", NAMES, 3, reward_range=(0, 12), seed=7, direction="maximize", expire_after=timedelta(hours=1)
    )
    decision = campaign.decide()
    here = Campaign.open("front", sqlite_store)
    (waiting,) = here.open_decisions()
    assert decision == Decision(waiting.id, waiting.arms, waiting.subset, waiting.at)
    assert campaign.open_decisions() == [waiting]
    assert campaign.reward(decision.id, 2.5) == Rewarded(1, 0)
    assert campaign.reward(decision.id, 2.5) == Rewarded(0, 1)
    some = campaign.decide(4)
    assert campaign.rewards({each.id: 1.0 for each in some[:2]}) == Rewarded(2, 0)
    assert campaign.reward_total(["a", "b", "c"], 10, 30.0, 100.0, key="monday") == Rewarded(10, 0)
    assert campaign.reward_total(["a", "b", "c"], 10, 30.0, 100.0, key="monday") == Rewarded(0, 10)
    assert {each.id for each in campaign.open_decisions()} == {each.id for each in some[2:]}
    for report in ("summary", "best", "history", "events", "verify"):  # the service may learn in between
        wait_until(lambda: getattr(campaign, report)() == getattr(here, report)(), report)  # noqa: B023
    wait_until(lambda: by_name(campaign.insight()) == by_name(here.insight()), "insight")
    assert campaign.insight().summary.rewards == 13
    assert len(campaign.insight(arms=2).arms) == 2
    wait_until(lambda: campaign.estimates(2, arms=["a", "b"]) == here.estimates(2, arms=["a", "b"]), "estimates")
    assert campaign.verify().ok
    assert [each.name for each in client.campaigns()] == ["front"]
    checked(here)


def test_orders_and_returns_from_afar(client: Any, sqlite_store: str) -> None:
    campaign = client.create(
        "front", NAMES, 3, reward_range=(0, 12), control=NAMES[:3], window="1d", guardrails=["returns<=+2%"]
    )
    assert campaign.settings() == Campaign.open("front", sqlite_store).settings()
    assert campaign.settings().window == 86400.0
    one, other = campaign.decide(2)
    assert campaign.add(one, 2.5, event="order 1") == Rewarded(1, 0)
    assert campaign.adds([(one.id, 2.5, "order 1"), (one.id, 4.0, "order 2")]) == Rewarded(1, 1)
    with pytest.raises(kofn.Conflict):
        campaign.add(one, 3.0, event="order 1")
    assert campaign.record(one, "returns", 1.0) == Rewarded(1, 0)
    assert campaign.records([(one.id, "returns", 1.0), (other.id, "returns", 0.0)]) == Rewarded(1, 1)
    refused = campaign.records([(other.id, "returns", 1.0)], partial=True).refused
    assert [each.id for each in refused] == [other.id]
    logged = {each.id: each.metrics for each in campaign.decisions()}
    assert logged == {one.id: {"returns": 1.0}, other.id: {"returns": 0.0}}
    campaign.configure(window=None, metric_window=timedelta(days=3))
    assert campaign.settings().window is None
    assert campaign.settings().metric_window == 3 * 86400.0


def test_a_campaign_is_changed_from_afar(client: Any, sqlite_store: str) -> None:
    campaign = client.create("front", NAMES, 3)
    campaign.add_arm("a/b c")
    campaign.retire_arm("a/b c")
    campaign.pause()
    with pytest.raises(kofn.NotRunning, match="paused"):
        campaign.decide()
    campaign.resume()
    copy = client.import_(campaign.export(), name="copy")
    copy.stop()
    assert Campaign.open("copy", sqlite_store).state == "stopped"
    copy.delete()
    assert [each.name for each in client.campaigns()] == ["front"]
    assert client.health()


def test_errors_are_those_of_the_campaign(client: Any) -> None:
    campaign = client.create("front", NAMES, 3)
    id, other = (each.id for each in campaign.decide(2))
    campaign.reward(id, 0.5)
    wrong: dict[type[Exception], Callable[[], object]] = {
        kofn.Conflict: lambda: campaign.reward(id, 0.25),
        kofn.BadReward: lambda: campaign.reward(other, 3.0),
        kofn.UnknownDecision: lambda: campaign.reward("1-0-00", 0.5),
        kofn.NoSuchCampaign: lambda: client.campaign("back").decide(),
        kofn.CampaignExists: lambda: client.create("front", NAMES, 3),
        kofn.BadInput: lambda: campaign.add_arm("a"),
    }
    for error, call in wrong.items():
        with pytest.raises(error) as caught:
            call()
        assert type(caught.value) is error


@for_each("value", [float("nan"), float("inf"), "0.5", None, 10**400])
def test_a_reward_that_json_cannot_carry_is_refused_here(opened: Opener, value: Any) -> None:
    with opened("http://kofn.test") as client:
        campaign = client.campaign("front")
        reports: tuple[Callable[[], Any], ...] = (
            lambda: campaign.reward("1-0-00", value),
            lambda: campaign.add("1-0-00", value, event="order 1"),
            lambda: campaign.record("1-0-00", "returns", value),
        )
        for report in reports:
            with pytest.raises(kofn.BadReward, match="one finite number"):
                report()
        with pytest.raises(kofn.BadInput, match="events must be tuples of 3 values"):
            campaign.adds([("1-0-00", 1.0)])


@for_each("wrong", ["localhost:8000", "127.0.0.1:8000", "kofn.example.com", "http://", "ftp://kofn"])
def test_an_address_that_is_no_url_is_refused_at_once(
    opened: Opener, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(kofn.BadInput, match=r"must be one such as http://127\.0\.0\.1:8000; got '"):
        opened(wrong)
    monkeypatch.setenv("KOFN_URL", wrong)
    with pytest.raises(kofn.BadInput, match=r"\(url=, KOFN_URL\)"):
        opened()


def test_the_token_comes_from_the_environment(url: str, sqlite_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "TOKEN_CACHE_SECONDS", 0.0)
    create(sqlite_store)
    token, _ = create_token(store_at(sqlite_store), "shop", "read")
    monkeypatch.delenv("KOFN_TOKEN")
    with Client(url) as client, pytest.raises(kofn.NotAllowed, match="token is required"):
        client.campaigns()
    monkeypatch.setenv("KOFN_TOKEN", token)
    monkeypatch.setenv("KOFN_URL", url)
    with Client() as client:
        assert len(client.campaigns()) == 1
        with pytest.raises(kofn.NotAllowed, match="read only"):
            client.campaign("front").decide()


def test_all_campaigns_are_listed_page_by_page(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.campaigns() == []
    for name in "abcde":
        client.create(name, NAMES, 3)
    for page_size in (1, 2, 3, 1000):
        monkeypatch.setattr(calls, "PAGE_SIZE", page_size)
        assert [each.name for each in client.campaigns()] == list("abcde")


# The same methods as `kofn.Campaign`.


@pytest.mark.parametrize("source", generate_sync_client.FILES)
def test_the_synchronous_client_is_up_to_date(source: str) -> None:
    generated = (generate_sync_client.CLIENT / generate_sync_client.FILES[source]).read_text(encoding="utf-8")
    assert generated == generate_sync_client.generate(source), f"stale: run `{generate_sync_client.COMMAND}`"


LOCAL = {"open", "create", "import_", "learn", "submit_decide", "submit_events", "note_alarms", "to_frame"}
"""Methods of a campaign that a remote one lacks: three are methods of the client, the others are for a server."""


def methods(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(getattr(kind, name))
        for name, each in vars(kind).items()
        if inspect.isroutine(each) and not name.startswith("_")
    }


@pytest.mark.parametrize("remote", [RemoteCampaign, AsyncRemoteCampaign])
def test_a_remote_campaign_has_the_methods_of_a_campaign(remote: type) -> None:
    theirs = methods(remote)
    assert set(theirs) == set(methods(Campaign)) - LOCAL
    for name, here in methods(Campaign).items():
        if name not in LOCAL:
            shared = [theirs[name].parameters[each] for each in here.parameters]
            assert [(each.kind, each.default) for each in shared] == [
                (each.kind, each.default) for each in here.parameters.values()
            ], name
            more = [each for each in theirs[name].parameters.values() if each.name not in here.parameters]
            assert all(each.default is None for each in more), name
            returned = theirs[name].return_annotation.replace("AsyncIterator", "Iterator")
            assert returned == here.return_annotation, name


@for_each("client_class", [Client, AsyncClient])
@for_each("name", ["create", "import_"])
def test_a_client_creates_as_a_campaign_does(client_class: type, name: str) -> None:
    here, there = dict(methods(Campaign)[name].parameters), dict(methods(client_class)[name].parameters)
    del there["self"]
    if name == "create":  # what the client passes on has one declaration
        del there["settings"]
        given = set(CreationSettings.__annotations__)
        assert given == set(here) - {"name", "arms", "k", "store", "options"} | set(CampaignOptions.__annotations__)
        here = {each: here[each] for each in ("name", "arms", "k")}
    assert set(there) == set(here) - {"store"}
    assert all(each.kind == here[each.name].kind for each in there.values())


# Retries.

Answer = Callable[[httpx.Request], httpx.Response]


def fine(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={"accepted": 1, "repeated": 0, "forgotten": 0})


def busy(_: httpx.Request) -> httpx.Response:
    return problem(503, "store-error", "busy")


def lost(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("the connection was lost", request=request)


class InTurn:
    """A service that does these things in turn, then answers well; it counts what it was asked."""

    def __init__(self, *first: Answer) -> None:
        self.first, self.asked = list(first), 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        return (self.first.pop(0) if self.first else fine)(request)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "FIRST_DELAY", 0.001)


def test_rewards_are_told_until_they_are_taken(opened: Opener) -> None:
    fake = InTurn(down, lost, busy, lost)
    with opened("http://kofn.test", transport=httpx.MockTransport(fake)) as client:
        assert client.campaign("front").reward("1-0-00", 0.5).accepted == 1
    assert fake.asked == 5


def test_what_is_not_harmless_twice_is_sent_once(opened: Opener) -> None:
    for trouble, asked in {down: 2, lost: 1, busy: 1}.items():
        fake = InTurn(trouble)
        with opened("http://kofn.test", transport=httpx.MockTransport(fake)) as client:
            if trouble is down:  # nothing was sent
                client.campaign("front").add_arm("z")
            else:
                with pytest.raises(kofn.Unreachable):
                    client.campaign("front").add_arm("z")
        assert fake.asked == asked


@pytest.mark.parametrize("trouble", [down, lost, busy])
def test_retries_end(trouble: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that only sleep advances: on a busy machine, one request can take longer than any limit."""
    delays: list[float] = []
    monkeypatch.setattr(sync_client, "time", SimpleNamespace(monotonic=lambda: sum(delays), sleep=delays.append))
    fake = InTurn(*[trouble] * 10_000)
    with (
        Client("http://kofn.test", retry_for=20.0, transport=httpx.MockTransport(fake)) as client,
        pytest.raises(kofn.Unreachable),
    ):
        client.campaign("front").reward("1-0-00", 0.5)
    assert fake.asked == len(delays) + 1
    assert 20.0 - calls.MAX_DELAY <= sum(delays) <= 20.0 + calls.MAX_DELAY


def test_an_answer_that_is_no_answer_of_ours_is_said(opened: Opener) -> None:
    fake = InTurn(
        lambda _: httpx.Response(500, text="<html>oops"),
        lambda _: httpx.Response(404, text="nginx"),
        lambda _: httpx.Response(200, text="<html>Please log in"),
        lambda _: httpx.Response(413, text="nginx"),
    )
    with opened("http://kofn.test", transport=httpx.MockTransport(fake)) as client:
        with pytest.raises(kofn.Unreachable, match="500"):
            client.campaigns()
        with pytest.raises(kofn.Unreachable, match="404 Not Found is not one of kofn: check the URL"):
            client.campaigns()
        with pytest.raises(kofn.Unreachable, match="the response to GET /api/campaigns is not one of kofn"):
            client.campaigns()
        with pytest.raises(kofn.BadInput, match="413"):
            client.campaigns()


def test_totals_get_a_key_of_their_own(opened: Opener) -> None:
    keys = []

    def note(request: httpx.Request) -> httpx.Response:
        keys.append(json.loads(request.content)["key"])
        return lost(request) if len(keys) == 1 else fine(request)

    with opened("http://kofn.test", transport=httpx.MockTransport(note)) as client:
        client.campaign("front").reward_total(["a", "b", "c"], 2, 1.0)
        client.campaign("front").reward_total(["a", "b", "c"], 2, 1.0)
    assert keys[0] == keys[1] != keys[2]


# Decisions and their keys.


def test_a_repeated_decide_has_the_same_key(opened: Opener) -> None:
    fake, keys = Fake(), []

    def lossy(request: httpx.Request) -> None:
        body = json.loads(request.content)
        keys.append(body["key"])
        if len(keys) % 2:
            fake.decide(body)  # decided, but the response does not arrive
            lost(request)

    fake.fail = lossy
    with opened("http://kofn.test", transport=httpx.MockTransport(fake)) as client:
        campaign = client.campaign("front")
        first, second = campaign.decide(3), campaign.decide()
        assert campaign.decide(3, key="order 7") == campaign.decide(3, key="order 7")
    assert [each.id for each in [*first, second]] == ["0-0-00", "1-0-00", "2-0-00", "3-0-00"]
    assert keys[0] == keys[1] != keys[2] == keys[3]
    assert keys[4:] == ["order 7"] * 4
    assert all(1 <= len(key) <= 200 and key.isprintable() for key in keys)


def test_a_key_names_the_same_decisions_at_the_service(client: Any) -> None:
    campaign = client.create("front", NAMES, 3)
    first = campaign.decide(3, key="order 7")
    assert campaign.decide(3, key="order 7") == first
    assert campaign.decide(3) != first
    with pytest.raises(kofn.Conflict):
        campaign.decide(2, key="order 7")
    assert campaign.decide(key="order 8") == campaign.decide(1, key="order 8")[0]
    assert campaign.summary().plays == 7


def test_a_lost_response_costs_no_decision(url: str) -> None:
    """The service decides, the response is lost, and the retry returns the decisions that were made."""
    inner = httpx.HTTPTransport()
    sent = []

    class Lossy(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            response = inner.handle_request(request)
            response.read()
            sent.append(request)
            if request.url.path.endswith("/decisions") and len(sent) % 2 == 0:
                raise httpx.ReadError("the connection was lost", request=request)
            return response

    with Client(url, transport=Lossy()) as client, inner:
        campaign = client.create("front", NAMES, 3)
        some = [campaign.decide() for _ in range(3)]
        assert campaign.summary().plays == 3
        assert campaign.rewards({each.id: 0.5 for each in some}).accepted == 3
        assert campaign.summary().in_flight == 0


def test_pauses_grow_and_obey_the_service() -> None:
    assert calls.retry_delay(0, None) <= calls.FIRST_DELAY
    assert calls.retry_delay(50, None) <= calls.MAX_DELAY
    assert calls.retry_delay(0, httpx.Response(503, headers={"Retry-After": "2"})) == 2.0
    assert calls.retry_delay(0, httpx.Response(503, headers={"Retry-After": "soon"})) < 1.0
