"""Names never change which route a request reaches: a path has the name of a campaign at most, and that is checked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

import kofn
from kofn.campaigns import Campaign
from kofn.client import RemoteCampaign, calls
from kofn.core.checks import is_campaign_name
from kofn.service.api.routes import api_router
from tests.campaigns.tools import NAMES
from tests.cases import for_each
from tests.client.tools import CLIENTS
from tests.service.tools import service

ARMS = [".", "..", "../..", "../../front", "%2e%2e", "%2E%2E/", "a/../..", "a?b#c", "retire", "/", "\\..", ";", "é ü"]
"""Names of arms that a path would not carry."""

NO_CAMPAIGN = ["", ".", "..", "...", "/", "\\", "a/", "/a", "a/b", "a/../b", "../x", "..\\x", "%2e%2e", "%2e", "a%2Fb"]
NO_CAMPAIGN += ["a?b", "?", "a#b", "#", "a;b", " a", "a ", "a\n", "\0", "a\ud800", "front/export", "front/arms/retire"]
"""Names that no campaign can have."""

CAMPAIGNS = ["front", "a b", "a..b", "a:b@c+d-e_f", "é1", "学", "arms", "retire", "0", "x" * 200]
"""Unusual names of campaigns."""

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "decide": (),
    "reward": ("1-0-00", 0.5),
    "rewards": ([("1-0-00", 0.5)],),
    "add": ("1-0-00", 0.5),
    "adds": ([("1-0-00", 0.5, "../order")],),
    "record": ("1-0-00", "../metric", 0.5),
    "records": ([("1-0-00", "../metric", 0.5)],),
    "reward_total": (["a", "b"], 2, 1.0),
    "add_arm": ("..",),
    "retire_arm": ("..",),
}
"""Arguments of the methods of a remote campaign that need some."""

KEYWORDS: dict[str, dict[str, str]] = {"add": {"event": "../order"}}
METHODS = [name for name, each in vars(RemoteCampaign).items() if inspect.isfunction(each) and name[0] != "_"]


@pytest.fixture(scope="module")
def url(module_store: str) -> Iterator[str]:
    with service(module_store) as http:
        yield str(http.base_url)


@pytest.fixture
def campaign(url: str, module_store: str) -> Iterator[Campaign]:
    made = Campaign.create("front", NAMES + ARMS, 3, store=module_store)
    yield made
    made.delete()


@pytest.fixture(params=CLIENTS)
def opened(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Opens a client of either kind."""
    return CLIENTS[request.param]


def test_the_client_retires_an_arm_of_any_name(opened: Callable[..., Any], url: str, campaign: Campaign) -> None:
    with opened(url) as client:
        for arm in ARMS:
            client.campaign("front").retire_arm(arm)
            assert arm not in campaign.arms
    assert campaign.arms == NAMES


class Asked:
    """A service that notes the requests, and refuses them."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(404, json={"type": "urn:kofn:no-such-campaign", "detail": "not here"})


@for_each("method", METHODS)
def test_a_name_that_no_campaign_has_is_not_sent(opened: Callable[..., Any], method: str) -> None:
    asked = Asked()
    with opened("http://kofn.test/prefix", transport=httpx.MockTransport(asked)) as client:
        for name in NO_CAMPAIGN:
            with pytest.raises(kofn.NoSuchCampaign, match="a campaign's name must be"):
                call(client.campaign(name), method)
    assert asked.requests == []


def call(campaign: Any, method: str) -> Any:
    return getattr(campaign, method)(*ARGUMENTS.get(method, ()), **KEYWORDS.get(method, {}))


@for_each("method", METHODS)
def test_every_method_reaches_its_own_campaign(opened: Callable[..., Any], method: str) -> None:
    """The path, as it is sent, is the prefix, the name in one segment, and a word that is in the source."""
    asked = Asked()
    with opened("http://kofn.test/prefix", transport=httpx.MockTransport(asked)) as client:
        for name in CAMPAIGNS:
            with pytest.raises(kofn.NoSuchCampaign, match="not here"):
                next(call(client.campaign(name), method))  # a stream sends its request when it is read
    for name, request in zip(CAMPAIGNS, asked.requests, strict=True):
        path = request.url.raw_path.decode("ascii").partition("?")[0]
        head, sent, *rest = path.removeprefix("/prefix/api/").split("/")
        assert (head, unquote(sent)) == ("campaigns", name)
        assert all(re.fullmatch("[a-z]+", each) for each in rest)
        assert rest != [] or method in ("summary", "delete")
        assert request.method == ("DELETE" if method == "delete" else request.method)


def test_the_unusual_names_are_what_they_are_called() -> None:
    assert all(map(is_campaign_name, CAMPAIGNS))
    assert not any(map(is_campaign_name, NO_CAMPAIGN))
    with pytest.raises(kofn.NoSuchCampaign, match="got None"):
        calls.campaign_path(None)  # type: ignore[arg-type]


def test_no_route_has_another_name_in_its_path() -> None:
    parameters = {each for route in api_router.routes for each in re.findall(r"{(.*?)}", getattr(route, "path", ""))}
    assert parameters == {"name"}
