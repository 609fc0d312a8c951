"""What web pages may do: tokens with scope browser, allowed origins, limits, and the script that they load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from kofn.campaigns import Campaign, Store, store_at
from kofn.core import BadInput
from kofn.service.security import pages
from kofn.service.security.tokens import create_token
from kofn.service.settings import MIB, web_origin, webhook_url
from tests.cases import for_each
from tests.service.tools import bearer, error_detail, service
from tests.waiting import wait_until

SHOP = "https://shop.example"
FRONT = "/api/campaigns/front"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}


@pytest.fixture
def store(sqlite_store: str) -> Store:
    for name in ("front", "back"):
        Campaign.create(name, list("abcd"), 2, seed=1, store=sqlite_store)
    return store_at(sqlite_store)


def page_token(store: Store, **more: Any) -> str:
    return create_token(store, "page", "browser", "front", **more)[0]


@pytest.fixture
def page(store: Store, sqlite_store: str) -> Iterator[httpx.Client]:
    """A client that sends what a page of an allowed origin sends."""
    with service(sqlite_store, allow_origins=(SHOP,)) as client:
        client.headers.update(bearer(page_token(store)) | {"Origin": SHOP})
        yield client


def test_a_browser_token_decides_and_rewards_and_reads_nothing(page: httpx.Client) -> None:
    for path, methods in page.get("/api/openapi.json").json()["paths"].items():
        path = path.replace("{name}", "front")
        for method in methods:
            if path.startswith("/api") and (method, path) not in {
                ("post", f"{FRONT}/{last}") for last in ("decisions", "rewards", "events", "records")
            }:
                error_detail(page.request(method, path), 403, "forbidden")
    error_detail(page.get("/metrics"), 403, "forbidden")
    assert page.head(f"{FRONT}/insight").status_code == 403
    decision = page.post(f"{FRONT}/decisions", json={"key": "v"}).json()["decisions"][0]
    told = page.post(f"{FRONT}/rewards", json={"rewards": [{"id": decision["id"], "reward": 1}]})
    assert told.json()["accepted"] == 1
    assert "group" not in decision  # who knows it can make the control look better
    metric = {"id": decision["id"], "name": "scrolled", "value": 0.5}
    assert page.post(f"{FRONT}/records", json={"records": [metric]}).json()["accepted"] == 1
    error_detail(page.post("/api/campaigns/back/decisions", json={}), 403, "forbidden")


def test_a_browser_token_has_small_batches(page: httpx.Client) -> None:
    many = page.post(f"{FRONT}/decisions", json={"count": 10}).json()["decisions"]
    assert len(many) == 10
    assert "at most 10" in error_detail(page.post(f"{FRONT}/decisions", json={"count": 11}), 422, "bad-input")
    rewards = [{"id": many[0]["id"], "reward": 1}] * 11
    assert "at most 10" in error_detail(page.post(f"{FRONT}/rewards", json={"rewards": rewards}), 422, "bad-input")
    spread = {"metadata": {"long": "x" * 100_000}, "count": 11}  # too large for the fast path
    assert page.post(f"{FRONT}/decisions", json=spread).status_code == 422


def test_a_browser_token_says_little(page: httpx.Client) -> None:
    decision = page.post(f"{FRONT}/decisions", json={"key": "k" * 100, "metadata": {"m": "x" * 490}})
    id = decision.json()["decisions"][0]["id"]
    for body, most in (({"key": "k" * 101}, "100"), ({"metadata": {"m": "x" * 500}}, "500")):
        assert f"at most {most}" in error_detail(page.post(f"{FRONT}/decisions", json=body), 422, "bad-input")
    metric = {"id": id, "name": "m" * 101, "value": 1}
    assert "at most 100" in error_detail(page.post(f"{FRONT}/records", json={"records": [metric]}), 422, "bad-input")
    for number in range(20):
        records = [{"id": id, "name": f"metric {number}", "value": 1}]
        assert page.post(f"{FRONT}/records", json={"records": records}).is_success
    records = [{"id": id, "name": "another", "value": 1}]
    assert "20 different" in error_detail(page.post(f"{FRONT}/records", json={"records": records}), 422, "bad-input")


def test_a_browser_token_stores_a_limited_number_of_bytes_a_day(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one address: half of them at once, the rest over the day. The others still decide."""
    Campaign.create("front", list("abcd"), 2, seed=1, store=store_url)
    token = page_token(store_at(store_url))
    with service(store_url, browser_rate=0, browser_storage=1, trusted_proxies=("127.0.0.1",)) as client:

        def ask(number: int, address: str = "203.0.113.9") -> httpx.Response:
            body = {"key": f"{number:0100}", "metadata": {"m": "x" * 490}}
            return client.post(f"{FRONT}/decisions", json=body, headers=bearer(token) | {"X-Forwarded-For": address})

        before, decided, reported = size_of(store_url), 0, 0
        while (answer := ask(decided)).is_success:
            id, decided = answer.json()["decisions"][0]["id"], decided + 1
            records = [{"id": id, "name": f"{number:050}", "value": 1} for number in range(3)]
            sent = {"records": records, "partial": True}
            headers = bearer(token) | {"X-Forwarded-For": "203.0.113.9"}
            reported += client.post(f"{FRONT}/records", json=sent, headers=headers).is_success
        assert "1 MiB a day from one address" in error_detail(answer, 429, "too-much-stored")
        assert 0 < int(answer.headers["retry-after"]) < 3600
        assert decided > 100
        assert reported in (decided, decided - 1)
        assert size_of(store_url) - before < MIB / 2
        assert ask(decided, "203.0.113.10").is_success


def size_of(store_url: str) -> int:
    """The bytes of the tables of a store, with their indexes."""
    with store_at(store_url).read() as connection:
        if store_url.startswith("sqlite"):
            pages = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
            return int(connection.exec_driver_sql(pages).scalar_one())
        tables = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relname LIKE 'kofn_%' AND relkind = 'r'"
        return int(connection.exec_driver_sql(tables.replace("%", "%%")).scalar_one())


def test_web_pages_get_no_decisions_while_too_many_are_open(
    store: Store, sqlite_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "OPEN_SECONDS", 0.0)
    token = page_token(store)
    with service(sqlite_store, browser_open=3) as client:

        def ask() -> httpx.Response:
            return client.post(f"{FRONT}/decisions", json={}, headers=bearer(token))

        assert [ask().status_code for _ in range(3)] == [200] * 3
        wait_until(lambda: ask().status_code == 429, "the open decisions are counted")
        assert "decisions of this campaign are open" in error_detail(ask(), 429, "too-many-open-decisions")
        assert client.post(f"{FRONT}/decisions", json={}).is_success  # with a token that strangers do not have
        campaign = Campaign.open("front", store)
        campaign.rewards([(each.id, 1.0) for each in campaign.open_decisions()])
        wait_until(lambda: ask().is_success, "the rewards are counted")


def test_web_pages_send_declared_contexts_only(sqlite_store: str) -> None:
    """Strangers could invent values: each one is a segment, of which a campaign has a limited number."""
    closed: dict[str, Any] = {"attributes": {"device": ["phone", "desktop"]}}
    for name, params in {"front": closed, "open": {}, "names": {"attributes": ["device"]}}.items():
        Campaign.create(name, list("abcd"), 2, policy="contextual-thompson", params=params, store=sqlite_store)
    with service(sqlite_store) as client:

        def ask(campaign: str, context: dict[str, str] | None) -> httpx.Response:
            token = create_token(store_at(sqlite_store), "page", "browser", campaign)[0]
            path = f"/api/campaigns/{campaign}/decisions"
            return client.post(path, json={"context": context}, headers=bearer(token))

        assert ask("front", {"device": "phone"}).json()["decisions"][0]["context"] == {"device": "phone"}
        assert ask("front", {"device": "fridge"}).json()["decisions"][0]["context"] == {"device": "(other)"}
        for name in ("open", "names"):
            detail = error_detail(ask(name, {"device": "fridge"}), 422, "bad-input")
            assert "declares its attributes and their values" in detail
            assert ask(name, None).is_success


@pytest.mark.parametrize("route", ["decisions", "rewards", "records"])
def test_an_allowed_origin_may_post(page: httpx.Client, route: str) -> None:
    asked = page.options(f"{FRONT}/{route}", headers=PREFLIGHT)
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == SHOP
    assert asked.headers["access-control-allow-methods"] == "POST"
    assert {"Authorization", "Content-Type"} <= set(asked.headers["access-control-allow-headers"].split(", "))
    assert asked.headers["access-control-max-age"] == "7200"
    assert "access-control-allow-credentials" not in asked.headers
    answers = [page.post(f"{FRONT}/{route}", json={} if route == "decisions" else {route: []})]
    answers += [page.post(f"{FRONT}/{route}", content=b"{"), page.post(f"{FRONT}/{route}", headers=bearer("wrong"))]
    assert len({each.status_code for each in answers}) == 3
    for each in answers:  # pages read errors, too
        assert each.headers["access-control-allow-origin"] == SHOP
        assert "access-control-allow-credentials" not in each.headers
        assert "Origin" in each.headers["vary"]


@for_each("origin", ["https://evil.example", "http://shop.example", "https://shop.example.evil", "null"])
def test_no_other_origin_is_allowed(page: httpx.Client, origin: str) -> None:
    refused = page.options(f"{FRONT}/decisions", headers=PREFLIGHT | {"Origin": origin})
    assert refused.status_code == 400
    posted = page.post(f"{FRONT}/decisions", json={}, headers={"Origin": origin})
    for each in (refused, posted):
        assert "access-control-allow-origin" not in each.headers


@for_each(
    "method, path",
    [
        ("OPTIONS", "/api/campaigns"),
        ("OPTIONS", f"{FRONT}/totals"),
        ("OPTIONS", f"{FRONT}/insight"),
        ("GET", f"{FRONT}/decisions"),
        ("GET", f"{FRONT}/insight"),
        ("GET", "/"),
    ],
)
def test_only_decisions_and_reports_are_for_pages(page: httpx.Client, method: str, path: str) -> None:
    answer = page.request(method, path, headers=PREFLIGHT)
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_by_default_no_origin_is_allowed(store: Store, sqlite_store: str) -> None:
    with service(sqlite_store) as client:
        headers = {"Origin": SHOP}
        asked = client.options(f"{FRONT}/decisions", headers=headers | PREFLIGHT)
        posted = client.post(f"{FRONT}/decisions", json={}, headers=headers)
    assert (asked.status_code, posted.status_code) == (405, 200)
    for each in (asked, posted):
        assert not [name for name in each.headers if name.startswith("access-control")]


def test_pages_under_the_path_of_a_proxy(store: Store, sqlite_store: str) -> None:
    with service(sqlite_store, allow_origins=(SHOP,), root_path="/kofn") as client:
        for prefix in ("", "/kofn"):
            asked = client.options(f"{prefix}{FRONT}/decisions", headers=PREFLIGHT | {"Origin": SHOP})
            posted = client.post(f"{prefix}{FRONT}/decisions", json={}, headers={"Origin": SHOP})
            assert (asked.status_code, posted.status_code) == (200, 200)
            assert posted.headers["access-control-allow-origin"] == SHOP
            assert client.get(f"{prefix}/kofn.js").status_code == 200


def test_pages_of_one_address_are_limited(store: Store, sqlite_store: str) -> None:
    token, full = page_token(store), create_token(store, "shop")[0]
    with service(sqlite_store, browser_rate=3, trusted_proxies=("127.0.0.1",)) as client:

        def ask(address: str, given: str = token) -> httpx.Response:
            headers = bearer(given) | {"X-Forwarded-For": address}
            return client.post(f"{FRONT}/decisions", json={}, headers=headers)

        assert [ask("203.0.113.9").status_code for _ in range(5)] == [200, 200, 200, 429, 429]
        detail = error_detail(ask("203.0.113.9"), 429, "too-many-requests")
        assert "203.0.113.9" in detail
        assert 1 <= int(ask("203.0.113.9").headers["retry-after"]) <= 20
        assert ask("203.0.113.10").status_code == 200
        assert ask("203.0.113.9", full).status_code == 200
        assert [ask("127.0.0.1").status_code for _ in range(5)] == [200] * 5  # a proxy, which stands for many
    with service(sqlite_store, browser_rate=0, trusted_proxies=("127.0.0.1",)) as client:
        assert [ask("203.0.113.9").status_code for _ in range(5)] == [200] * 5  # no limit


def test_everyone_may_load_the_script(page: httpx.Client) -> None:
    stranger = httpx.get(f"{page.base_url}/kofn.js", headers={"Origin": "https://anywhere.example"})
    assert stranger.status_code == 200
    assert stranger.headers["content-type"] == "text/javascript; charset=utf-8"
    assert stranger.headers["cache-control"] == "public, max-age=3600"
    assert stranger.headers["cross-origin-resource-policy"] == "cross-origin"
    assert len(stranger.content) < 10_000
    again = httpx.get(f"{page.base_url}/kofn.js", headers={"If-None-Match": stranger.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert httpx.head(f"{page.base_url}/kofn.js").headers["etag"] == stranger.headers["etag"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://shop.example", "https://shop.example"),
        ("HTTPS://Shop.Example:443/", "https://shop.example"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_origins_are_written_as_browsers_send_them(given: str, expected: str) -> None:
    assert web_origin(given) == expected


@pytest.mark.parametrize(
    "given",
    ["*", "shop.example", "https://shop.example/a", "https://*.example", "null", "https://a:99999", "ftp://a", ""],
)
def test_an_origin_is_not_a_pattern(given: str) -> None:
    with pytest.raises(BadInput, match="--allow-origin must be an origin such as"):
        web_origin(given)


@pytest.mark.parametrize(
    "given", ["hooks.example", "file:///x", "https://", "https://u:secret@h/", "https://h:x/", "https://h /"]
)
def test_a_webhook_is_a_web_address(given: str) -> None:
    with pytest.raises(BadInput, match="KOFN_WEBHOOK must be") as error:
        webhook_url(given)
    assert "secret" not in str(error.value)
    assert webhook_url(None) is webhook_url("") is None
