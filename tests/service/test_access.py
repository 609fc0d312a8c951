"""Tokens, tenants, limits, and hostile names."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from httpx import Client
from sqlalchemy import select

from kofn import BadInput, NoSuchCampaign
from kofn.campaigns import Campaign, Store, store_at
from kofn.campaigns.store.schema import TOKENS
from kofn.core.responses import moment
from kofn.service.security import auth
from kofn.service.security.tokens import create_token, find_token, revoke_token, tokens, tokens_required
from kofn.service.server import session_token
from kofn.service.settings import ServiceSettings, prefix
from tests.campaigns.tools import create
from tests.cases import for_each
from tests.service.tools import NEW, TOKEN, bearer, error_detail, service
from tests.waiting import wait_until

JSON = {"Content-Type": "application/json"}
FRONT, BACK = "/api/campaigns/front", "/api/campaigns/back"


@pytest.fixture
def store(sqlite_store: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with two campaigns; tokens are not cached."""
    monkeypatch.setattr(auth, "TOKEN_CACHE_SECONDS", 0.0)
    create(sqlite_store, "front")
    create(sqlite_store, "back")
    return store_at(sqlite_store)


@pytest.fixture
def api(store: Store, sqlite_store: str) -> Iterator[Client]:
    with service(sqlite_store) as client:
        yield client


@pytest.fixture
def stranger(api: Client) -> Iterator[Client]:
    """A client of the same service that sends no token."""
    with Client(base_url=api.base_url) as client:
        yield client


def as_(store: Store, *given: Any) -> dict[str, str]:
    return bearer(create_token(store, "tests", *given)[0])


# Tokens.


def test_a_store_keeps_hashes_only(store: Store) -> None:
    token, known = create_token(store, "shop", "read", "front")
    assert token.startswith("kofn_")
    assert len(token) > 40
    with store.read() as connection:
        row = connection.execute(select(TOKENS)).one()
    assert token.removeprefix("kofn_") not in str(row)
    assert (known.name, known.scope, known.campaign, known.used) == ("shop", "read", "front", None)
    assert tokens(store) == [known] == [find_token(store, token)]
    assert revoke_token(store, known.id) == known
    assert find_token(store, token) is None
    with pytest.raises(BadInput, match="no token with the number"):
        revoke_token(store, known.id)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        *(({"name": name}, "name") for name in ("", "x" * 101, "a\nb", 3)),
        ({"campaign": "side"}, "no campaign 'side'"),
        ({"scope": "all"}, "read, decide or full"),
        ({"scope": "browser"}, "limited to one campaign"),
        *(({"expires_after": after}, "positive time") for after in (0, float("nan"), timedelta(days=40_000), "1d")),
    ],
)
def test_a_token_that_cannot_be_is_refused(store: Store, given: dict[str, Any], why: str) -> None:
    with pytest.raises((BadInput, NoSuchCampaign), match=why):
        create_token(store, **{"name": "shop"} | given)
    assert tokens(store) == []


def test_without_a_token_nothing_is_shown(api: Client, stranger: Client, store: Store) -> None:
    assert stranger.get(FRONT).headers["www-authenticate"] == "Bearer"
    for path in (FRONT, "/api/campaigns", "/metrics"):
        error_detail(stranger.get(path), 401, "unauthorized")
    error_detail(stranger.post(f"{FRONT}/pause"), 401, "unauthorized")
    assert stranger.get("/health").status_code == 200
    assert api.get("/api/session").json()["token"] == "session"
    assert stranger.get(FRONT, headers=as_(store)).status_code == 200


def test_a_store_that_had_a_token_is_never_open_again(store: Store, sqlite_store: str, stranger: Client) -> None:
    """The last token is for one campaign, and deletes it, and thereby itself."""
    assert not tokens_required(store)
    last = as_(store, "full", "back")
    assert stranger.delete(BACK, headers=last).status_code == 204
    assert tokens(store) == []
    error_detail(stranger.get(FRONT), 401, "unauthorized")
    error_detail(stranger.get(FRONT, headers=last), 401, "unauthorized")
    assert tokens_required(store)
    assert session_token("127.0.0.1", ServiceSettings(store=sqlite_store)) is None


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Basic a2VrOmtlaw==", "Bearer kofn_nonsense", "Bearer \xff\xfe", "' OR 1=1 --"]
)
def test_a_wrong_token_is_refused(api: Client, store: Store, given: str) -> None:
    create_token(store, "shop")
    answer = api.get(FRONT, headers={b"Authorization": given.encode("latin-1")})
    error_detail(answer, 401, "unauthorized")


def test_a_revoked_token_is_refused(api: Client, store: Store) -> None:
    create_token(store, "other")
    token, known = create_token(store, "shop")
    assert api.get(FRONT, headers=bearer(token)).status_code == 200
    wait_until(
        lambda: next(each for each in tokens(store) if each.id == known.id).used, "the use of the token is noted"
    )
    revoke_token(store, known.id)
    error_detail(api.get(FRONT, headers=bearer(token)), 401, "unauthorized")


def test_tokens_are_remembered_for_seconds_only(
    store: Store, sqlite_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "TOKEN_CACHE_SECONDS", 1000.0)
    headers = as_(store)
    with service(sqlite_store) as client:
        assert client.get(FRONT, headers=headers).status_code == 200
        revoke_token(store, tokens(store)[0].id)
        assert client.get(FRONT, headers=headers).status_code == 200
        monkeypatch.setattr(auth, "TOKEN_CACHE_SECONDS", 0.0)
        error_detail(client.get(FRONT, headers=headers), 401, "unauthorized")
    assert auth.TOKEN_CACHE_SECONDS < 10


def routes(client: Client) -> Iterator[tuple[str, str]]:
    """Every operation of the API on the campaign `front`."""
    for path, methods in client.get("/api/openapi.json").json()["paths"].items():
        if path.startswith("/api"):
            for method in methods:
                yield method.upper(), path.replace("{name}", "front").replace("{arm}", "a")


def test_a_reading_token_changes_nothing(api: Client, store: Store) -> None:
    reader = as_(store, "read")
    before = Campaign.open("front", store).summary()
    seen = 0
    for method, path in routes(api):
        if method != "GET":
            error_detail(api.request(method, path, headers=reader), 403, "forbidden")
            seen += 1
        elif not path.endswith(("/stream", "/segments")):  # these campaigns have no segments
            assert api.get(path, headers=reader).status_code == 200, path
    assert seen == 16
    exported = api.get(f"{FRONT}/export", headers=reader).json()
    assert "secret" not in exported["campaign"]
    error_detail(api.get(f"{FRONT}/export?with_secret=true", headers=reader), 403, "forbidden")
    assert Campaign.open("front", store).summary() == before


def test_a_deciding_token_decides_and_rewards_only(api: Client, store: Store) -> None:
    decider = as_(store, "decide")
    allowed = {f"{FRONT}/{end}" for end in ("decisions", "rewards", "events", "records", "totals")}
    for method, path in routes(api):
        if method == "POST" and path in allowed:
            allowed.remove(path)
            error_detail(api.post(path, json={"no": "such field"}, headers=decider), 422, "malformed-request")
        elif method != "GET":
            error_detail(api.request(method, path, headers=decider), 403, "forbidden")
        elif not path.endswith(("/stream", "/segments")):  # these campaigns have no segments
            assert api.get(path, headers=decider).status_code == 200, path
    assert not allowed
    (decision,) = api.post(f"{FRONT}/decisions", json={}, headers=decider).json()["decisions"]
    body = {"rewards": [{"id": decision["id"], "reward": 1.0}]}
    assert api.post(f"{FRONT}/rewards", json=body, headers=decider).json()["accepted"] == 1
    theirs = as_(store, "decide", "back")
    error_detail(api.post(f"{FRONT}/decisions", json={}, headers=theirs), 403, "forbidden")
    assert api.post(f"{BACK}/decisions", json={}, headers=theirs).status_code == 200
    assert api.get("/api/session", headers=decider).json()["scope"] == "decide"


@pytest.mark.parametrize("cached", [0.0, 1000.0])
def test_a_token_expires(api: Client, store: Store, monkeypatch: pytest.MonkeyPatch, cached: float) -> None:
    monkeypatch.setattr(auth, "TOKEN_CACHE_SECONDS", cached)
    now = 1.8e9
    monkeypatch.setattr(store, "clock", lambda: now)
    token, known = create_token(store, "guest", expires_after=timedelta(days=30))
    assert known.expires == moment(now + 30 * 86400)
    now += 30 * 86400 - 1
    assert api.get(FRONT, headers=bearer(token)).status_code == 200
    now += 1
    assert "expired" in error_detail(api.get(FRONT, headers=bearer(token)), 401, "unauthorized")
    assert find_token(store, token) is None
    assert known.id in [each.id for each in tokens(store)]


def test_a_token_of_one_campaign_opens_no_other(api: Client, store: Store) -> None:
    theirs = as_(store, "full", "back")
    for method, path in routes(api):
        if "front" in path or method != "GET":
            answer = api.request(method, path, headers=theirs)
            assert "'back' only" in error_detail(answer, 403, "forbidden")
    error_detail(api.get("/api/campaigns/nowhere", headers=theirs), 403, "forbidden")
    error_detail(api.get("/metrics", headers=theirs), 403, "forbidden")
    assert [each["name"] for each in api.get("/api/campaigns", headers=theirs).json()["campaigns"]] == ["back"]
    assert api.get("/api/session", headers=theirs).json()["campaign"] == "back"
    assert api.post(f"{BACK}/decisions", json={}, headers=theirs).status_code == 200


def test_a_decision_of_another_tenant_is_unknown(api: Client, store: Store) -> None:
    id = Campaign.open("front", store).decide().id
    body = {"rewards": [{"id": id, "reward": 1.0}]}
    theirs = as_(store, "full", "back")
    error_detail(api.post(f"{BACK}/rewards", json=body, headers=theirs), 422, "unknown-decision")
    error_detail(api.post(f"{FRONT}/rewards", json=body, headers=theirs), 403, "forbidden")
    assert Campaign.open("front", store).summary().rewards == 0


def test_a_stream_of_all_shows_a_tenant_their_own(api: Client, store: Store) -> None:
    with api.stream("GET", "/api/stream", headers=as_(store, "read", "back")) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "retry: 2000"
        data = next(line for line in lines if line.startswith("data:"))
    assert json.loads(data.removeprefix("data:"))["name"] == "back"


def test_a_deleted_campaign_takes_its_tokens_along(api: Client, store: Store) -> None:
    theirs, ours = as_(store, "full", "back"), as_(store)
    assert api.delete(BACK, headers=ours).status_code == 204
    api.post("/api/campaigns", json=NEW | {"name": "back"}, headers=ours)
    error_detail(api.get(BACK, headers=theirs), 401, "unauthorized")


# Without a token: local requests to a demo only, and none from pages of other origins.


@pytest.fixture(scope="module")
def demo(module_store: str) -> Iterator[Client]:
    create(module_store, "front")
    with service(module_store, open=True) as client:
        del client.headers["Authorization"]
        yield client


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "kofn.example.com"},
        {"Host": "attacker.example:8000"},
        {"Host": "["},
        {"Host": "[::1"},
        {"Origin": "https://attacker.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"X-Forwarded-For": "203.0.113.9"},
        {"Forwarded": "for=203.0.113.9"},
        {"Via": "1.1 proxy"},
        {"X-Real-IP": "203.0.113.9"},
        {"X-Forwarded-Host": "kofn.example.com"},
        {"X-Forwarded-Proto": "https"},
        {"CF-Connecting-IP": "203.0.113.9"},
        {"True-Client-IP": "203.0.113.9"},
        {"Host": "evil@127.0.0.1"},
        {"Host": "127.0.0.1/x"},
        {"Host": "127.0.0.1:80:80"},
        {"Host": ""},
    ],
)
def test_a_page_of_others_gets_nothing(demo: Client, headers: dict[str, str]) -> None:
    error_detail(demo.post(f"{FRONT}/pause", headers=headers), 401, "unauthorized")
    error_detail(demo.get(FRONT, headers=headers), 401, "unauthorized")
    assert demo.get(FRONT, headers=headers | bearer(TOKEN)).status_code == 200


@pytest.mark.parametrize(
    "hosts", [["127.0.0.1", "kofn.example.com"], ["kofn.example.com", "127.0.0.1"], ["127.0.0.1"] * 2]
)
def test_a_request_to_two_hosts_is_refused(demo: Client, hosts: list[str]) -> None:
    """httpx would not send it."""
    lines = "".join(f"Host: {each}\r\n" for each in hosts)
    with socket.create_connection((demo.base_url.host, demo.base_url.port or 80), timeout=20) as connection:
        connection.sendall(f"GET {FRONT} HTTP/1.1\r\n{lines}\r\n".encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("target", ["http://kofn.example.com", "http://evil@127.0.0.1", "http://127.0.0.1"])
def test_an_absolute_target_is_refused(demo: Client, target: str) -> None:
    """It names the host a second time. Only clients of a forward proxy send it."""
    assert demo.get(FRONT, extensions={"target": f"{target}{FRONT}".encode()}).status_code == 404


def test_our_own_page_may_ask(demo: Client) -> None:
    origin = str(demo.base_url).rstrip("/")
    assert demo.post(f"{FRONT}/pause", headers={"Origin": origin}).status_code == 200


# The token of a session.


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "kofn.example.com"])
def test_no_public_address_without_a_token(store: Store, sqlite_store: str, host: str) -> None:
    settings = ServiceSettings(store=sqlite_store)
    with pytest.raises(BadInput, match="kofn token create"):
        session_token(host, settings)
    create_token(store, "shop")
    assert session_token(host, settings) is None


def test_a_store_without_tokens_gets_one_for_the_session(
    store: Store, sqlite_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ServiceSettings(store=sqlite_store)
    monkeypatch.delenv("KOFN_TOKEN", raising=False)
    first, second = session_token("127.0.0.1", settings), session_token("::1", settings)
    assert first is not None
    assert first.startswith("kofn_")
    assert first != second
    assert tokens(store) == []
    monkeypatch.setenv("KOFN_TOKEN", "x" * 16)
    assert session_token("localhost", settings) == "x" * 16
    for weak in ("x" * 15, "x" * 20 + " y", "x" * 20 + "\u2603"):
        monkeypatch.setenv("KOFN_TOKEN", weak)
        with pytest.raises(BadInput, match="at least 16"):
            session_token("127.0.0.1", settings)
    create_token(store, "shop")
    assert session_token("127.0.0.1", settings) is None


# Limits.


def test_bodies_are_limited(store: Store, sqlite_store: str) -> None:
    with service(sqlite_store, max_body=1000, max_import=3000) as client:
        big = json.dumps({"name": "a" * 2000}).encode()
        headers = {"Content-Type": "application/json"}
        assert "1,000 bytes" in error_detail(
            client.post(f"{FRONT}/arms", content=big, headers=headers), 413, "body-too-large"
        )
        pieces = iter([big[:900], big[900:]])
        error_detail(client.post(f"{FRONT}/arms", content=pieces, headers=headers), 413, "body-too-large")
        error_detail(client.post("/api/import", content=big, headers=headers), 422, "malformed-request")
        error_detail(client.post("/api/import", content=big * 2, headers=headers), 413, "body-too-large")
        assert client.post(f"{FRONT}/arms", json={"name": "z"}).status_code == 201


def test_a_stranger_cannot_make_it_read_a_body(store: Store, sqlite_store: str) -> None:
    read = []

    def body() -> Iterator[bytes]:
        for _ in range(100):
            read.append(1)
            yield b" " * 65536

    with service(sqlite_store, session=None) as client:
        try:
            error_detail(client.post("/api/import", content=body()), 401, "unauthorized")
        except httpx.TransportError:  # it has closed the connection before all was sent
            assert len(read) < 100


def test_batches_are_limited(store: Store, sqlite_store: str) -> None:
    with service(sqlite_store, max_batch=5) as client:
        assert "5 decisions" in error_detail(client.post(f"{FRONT}/decisions", json={"count": 6}), 422, "bad-input")
        decisions = client.post(f"{FRONT}/decisions", json={"count": 5}).json()["decisions"]
        body = [{"id": each["id"], "reward": 1.0} for each in decisions]
        error_detail(client.post(f"{FRONT}/rewards", json={"rewards": [*body, body[0]]}), 422, "bad-input")
        assert client.post(f"{FRONT}/rewards", json={"rewards": body}).json()["accepted"] == 5


def test_live_views_are_limited(store: Store, sqlite_store: str) -> None:
    with service(sqlite_store, max_streams=1) as client:
        with client.stream("GET", f"{FRONT}/stream") as first:
            lines = first.iter_lines()
            assert next(lines) == "retry: 2000"
            with client.stream("GET", f"{FRONT}/stream") as second:
                assert second.status_code == 503
                second.read()
            error_detail(second, 503, "too-many-streams")
        for _ in range(100):
            with client.stream("GET", f"{FRONT}/stream") as again:
                if again.status_code == 200:
                    return
        pytest.fail("the place of the first viewer was not given back")


# Malformed requests.


LONE = [
    b'{"name": "a", "arms": ["a", "b"], "k": 1, "\\ud800": 1}',
    b'{"name": "\\udfff", "arms": ["a", "b"], "k": 1}',
    b'{"name": "a", "arms": ["a", "\xed\xa0\x80"], "k": 1}',
    b'{"name": "a", "arms": ["a", "b"], "k": 1, "params": {"x": "\\uD800"}}',
    '{"name": "a", "arms": ["a", "b"], "k": 1, "params": {"\ud800": 1}}'.encode("utf-16", "surrogatepass"),
]


@pytest.mark.parametrize("body", LONE)
def test_a_lone_surrogate_is_refused(demo: Client, body: bytes) -> None:
    for path in ("/api/campaigns", "/api/import", f"{FRONT}/rewards", f"{FRONT}/arms"):
        answer = demo.post(path, content=body, headers=JSON)
        assert "surrogate" in error_detail(answer, 422, "malformed-request")


def test_a_pair_of_surrogates_is_a_character(demo: Client, module_store: str) -> None:
    assert demo.post(f"{FRONT}/arms", content=b'{"name": "\\ud83d\\ude00"}', headers=JSON).status_code == 201
    assert "\U0001f600" in Campaign.open("front", module_store).arms


@pytest.mark.parametrize("given", ["/kofn/", "/a/b"])
def test_a_proxy_may_serve_it_under_a_path(store: Store, sqlite_store: str, given: str) -> None:
    path = prefix(given)
    with service(sqlite_store, root_path=path) as client:
        for under in ("", path):  # whether or not the proxy removes the path
            made = client.post(f"{under}/api/campaigns", json=NEW | {"name": f"under{under.replace('/', '-')}"})
            assert made.status_code == 201
            assert made.headers["location"] == f"{path}/api/campaigns/under{under.replace('/', '-')}"
            assert client.get(made.headers["location"]).status_code == 200
            assert client.get(f"{under}/").text.startswith("<!doctype html>")
            assert client.get(f"{under}/app.js").status_code == 200
            assert client.get(f"{under}/api/openapi.json").json()["servers"] == [{"url": path}]


@for_each("path", ["kofn", "/a b", "/a?b", "//evil.example", "/a\r\nX: y"])
def test_a_path_of_a_proxy_is_a_path(path: str) -> None:
    with pytest.raises(BadInput, match="--root-path"):
        prefix(path)


# Hostile names.

SQL = "x'); DROP TABLE kofn_campaigns; --"
SCRIPT = "<script>alert(1)</script>"


@pytest.mark.parametrize("name", [SQL, SCRIPT, "../../etc/passwd", "a/b", "a\x00b", "a\nb", "", " ", "%00", "\u202e"])
def test_campaigns_have_plain_names(api: Client, name: str) -> None:
    error_detail(api.post("/api/campaigns", json=NEW | {"name": name}), 422, "bad-input")
    assert api.get(f"/api/campaigns/{httpx.QueryParams({'n': name})}"[:200]).status_code in (404, 422)
    assert api.get("/api/campaigns").json()["count"] == 2


def test_an_arm_may_be_called_anything_and_stays_a_name(api: Client, store: Store) -> None:
    arms = [SQL, SCRIPT, "'", '"', "{{7*7}}", "%s", "../..", "\u2603 snow"]
    made = api.post("/api/campaigns", json=NEW | {"name": "odd", "arms": arms})
    assert made.status_code == 201, made.text
    answer = api.get("/api/campaigns/odd/insight")
    assert {each["name"] for each in answer.json()["arms"]} == set(arms)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    for arm in arms[:3]:
        assert api.post("/api/campaigns/odd/arms/retire", json={"name": arm}).status_code == 200
    assert Campaign.open("odd", store).arms == arms[3:]
