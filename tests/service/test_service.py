"""Every route of the service does what the campaign does, and reports errors as problem details."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from httpx import Client

import kofn
from kofn import Campaign
from kofn.policies.registry import POLICIES
from kofn.service.api.app_state import AppState
from tests.campaigns.tools import checked, create
from tests.service.tools import NAMES, NEW, error_detail, service, wait_until_learned
from tests.waiting import wait_until

FRONT = "/api/campaigns/front"


@pytest.fixture
def api(sqlite_store: str) -> Iterator[Client]:
    with service(sqlite_store) as client:
        yield client


@pytest.fixture
def front(api: Client) -> Client:
    assert api.post("/api/campaigns", json=NEW).status_code == 201
    return api


def decide(api: Client, count: int) -> list[dict[str, Any]]:
    answer = api.post(f"{FRONT}/decisions", json={"count": count})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["decisions"])


def tell(api: Client, rewards: dict[str, float]) -> Any:
    return api.post(f"{FRONT}/rewards", json={"rewards": [{"id": i, "reward": r} for i, r in rewards.items()]})


# Campaigns.


def test_a_campaign_is_made_listed_shown_and_deleted(api: Client, sqlite_store: str) -> None:
    made = api.post("/api/campaigns", json=NEW)
    assert made.status_code == 201
    assert made.headers["location"] == FRONT
    assert made.json() == Campaign.open("front", sqlite_store).summary().to_dict()
    assert api.get("/api/campaigns").json() == {"campaigns": [made.json()], "count": 1, "states": {"running": 1}}
    assert api.get(FRONT).json() == made.json()
    assert "front" in error_detail(api.post("/api/campaigns", json=NEW), 409, "campaign-exists")
    assert api.delete(FRONT).status_code == 204
    assert error_detail(api.get(FRONT), 404, "no-such-campaign") == "there is no campaign 'front'"
    assert api.get("/api/campaigns").json() == {"campaigns": [], "count": 0, "states": {}}


def test_every_setting_reaches_the_campaign(api: Client, sqlite_store: str) -> None:
    settings: dict[str, Any] = {
        "policy": "cmab-sm",
        "params": {"horizon": 10_000, "resolution": 0.2},
        "direction": "minimize",
    }
    settings |= {"expire_after": 5.0, "keep_decisions": 10, "reward_range": [-1, 3]}
    summary = api.post("/api/campaigns", json=NEW | settings).json()
    assert (summary["policy"], summary["direction"], summary["reward_range"]) == ("cmab-sm", "minimize", [-1.0, 3.0])
    durations = {"window": "30m", "sticky": "2d", "metric_window": 3600}
    more = durations | {"silence": -1.0, "control": "uniform", "guardrails": ["returns<=+2%"]}
    assert api.post("/api/campaigns", json=NEW | settings | more | {"name": "back"}).status_code == 201
    found = Campaign.open("back", sqlite_store).settings()
    assert (found.expire_after, found.keep_decisions, found.window, found.sticky) == (5.0, 10, 1800.0, 172_800.0)
    assert (found.metric_window, found.silence, found.guardrails) == (3600.0, -1.0, ["returns<=+2%"])
    changed = api.patch("/api/campaigns/back/settings", json={"window": None, "guardrails": None}).json()
    assert (changed["window"], changed["guardrails"], changed["silence"]) == (None, [], -1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 8}, "8"),
        ({"window": "soon"}, "window"),
        ({"guardrails": ["returns<=+2%"]}, "control"),
        ({"arms": ["a", "a", "b", "c"]}, "twice"),
        ({"policy": "none"}, "no policy"),
        ({"policy": "cmab-sm"}, "horizon"),
        ({"params": {"speed": 3}}, "speed"),
        ({"reward_range": [3, 1]}, "reward_range"),
        ({"name": "../etc"}, "name"),
        ({"policy": "thompson-subsets", "arms": [f"a{i}" for i in range(100)], "k": 20}, "subsets"),
    ],
)
def test_a_campaign_that_cannot_work_is_refused(api: Client, change: dict[str, Any], message: str) -> None:
    answer = api.post("/api/campaigns", json=NEW | change)
    assert message in error_detail(answer, 422, answer.json()["type"].removeprefix("urn:kofn:"))
    assert api.get("/api/campaigns").json()["count"] == 0


def test_a_field_that_is_not_known_is_named(api: Client) -> None:
    answer = api.post("/api/campaigns", json=NEW | {"reward_rage": [0, 1]})
    assert "reward_rage" in error_detail(answer, 422, "malformed-request")
    assert answer.json()["errors"] == [{"where": "body.reward_rage", "message": "Extra inputs are not permitted"}]


def test_a_body_that_is_not_json_is_refused(front: Client) -> None:
    headers = {"content-type": "application/json"}
    error_detail(front.post(f"{FRONT}/rewards", content=b"{", headers=headers), 422, "malformed-request")
    error_detail(front.post(f"{FRONT}/rewards", content=b"\xff{}", headers=headers), 400, "malformed-request")
    error_detail(front.post(f"{FRONT}/decisions", content=b'{"count": 1}'), 422, "malformed-request")


def test_a_campaign_travels(front: Client, sqlite_store: str) -> None:
    tell(front, {each["id"]: 3.0 for each in decide(front, 40)})
    waiting = decide(front, 1)[0]["id"]
    exported = front.get(f"{FRONT}/export?with_secret=true").json()
    made = front.post("/api/import", json={"campaign": exported, "name": "copy"})
    assert (made.status_code, made.json()["rewards"], made.headers["location"]) == (201, 40, "/api/campaigns/copy")
    rewarded = front.post("/api/campaigns/copy/rewards", json={"rewards": [{"id": waiting, "reward": 1}]})
    assert rewarded.json() == {"accepted": 1, "repeated": 0, "forgotten": 0, "refused": [], "late": 0}
    checked(Campaign.open("copy", sqlite_store))
    error_detail(front.post("/api/import", json={"campaign": exported}), 409, "campaign-exists")
    error_detail(front.post("/api/import", json={"campaign": exported | {"format": 99}}), 422, "bad-record")


# Decisions and rewards.


def test_decisions_are_handed_out_and_rewarded_once(front: Client, sqlite_store: str) -> None:
    decisions = decide(front, 30)
    assert len({each["id"] for each in decisions}) == 30
    assert all(each["arms"] == [NAMES[arm] for arm in each["subset"]] for each in decisions)
    assert all(len(set(each["arms"]) & set(NAMES)) == 3 for each in decisions)
    rewards = {each["id"]: 2.5 for each in decisions}
    assert tell(front, rewards).json() == {"accepted": 30, "repeated": 0, "forgotten": 0, "refused": [], "late": 0}
    assert tell(front, rewards).json() == {"accepted": 0, "repeated": 30, "forgotten": 0, "refused": [], "late": 0}
    one = decisions[0]["id"]
    assert "2.5" in error_detail(tell(front, {one: 3.0}), 409, "conflict")
    assert front.get(FRONT).json()["rewards"] == 30
    checked(Campaign.open("front", sqlite_store))


def test_a_batch_is_taken_whole_or_not_at_all(front: Client) -> None:
    good = decide(front, 2)
    bad: dict[str, float] = {good[0]["id"]: 1.0, "1-0-00": 1.0}
    assert "1-0-00" in error_detail(tell(front, bad), 422, "unknown-decision")
    error_detail(tell(front, {good[0]["id"]: 1.0, good[1]["id"]: 13.0}), 422, "bad-reward")
    assert front.get(FRONT).json()["rewards"] == 0


def test_events_add_up_and_metrics_stand_beside(front: Client, sqlite_store: str) -> None:
    """Orders within a window, of which one comes back."""
    (decision,) = decide(front, 1)
    order = {"id": decision["id"], "value": 5.0, "event": "order-1"}
    assert "window" in error_detail(front.post(f"{FRONT}/events", json={"events": [order]}), 422, "bad-input")
    assert front.patch(f"{FRONT}/settings", json={"window": "1s"}).json()["window"] == 1.0
    one, _ = decide(front, 2)
    events = [{"id": one["id"], "value": 5.0, "event": "order-1"}, {"id": one["id"], "value": 2.0, "event": "order-2"}]
    assert front.post(f"{FRONT}/events", json={"events": events}).json()["accepted"] == 2
    assert front.post(f"{FRONT}/events", json={"events": events}).json()["repeated"] == 2
    error_detail(front.post(f"{FRONT}/events", json={"events": [events[0] | {"value": 6.0}]}), 409, "conflict")
    records = [{"id": one["id"], "name": "returns", "value": 1.0}, {"id": "1-0-00", "name": "returns", "value": 1.0}]
    error_detail(front.post(f"{FRONT}/records", json={"records": records}), 422, "unknown-decision")
    partial = front.post(f"{FRONT}/records", json={"records": records, "partial": True}).json()
    assert (partial["accepted"], [each["id"] for each in partial["refused"]]) == (1, ["1-0-00"])
    wait_until(lambda: front.get(FRONT).json()["rewards"] == 2, "the windows end")
    assert front.get(FRONT).json()["mean"] == 3.5  # of 7 and of silence
    late = front.post(f"{FRONT}/events", json={"events": [events[0] | {"event": "order-3"}]}).json()
    assert (late["accepted"], late["late"]) == (0, 1)
    assert front.get(FRONT).json()["mean"] == 3.5


def test_totals_count_once_under_a_key(front: Client, sqlite_store: str) -> None:
    total = {"arms": ["a", "b", "c"], "count": 10, "total": 33.0, "squares": 120.0, "key": "monday"}
    assert front.post(f"{FRONT}/totals", json=total).json()["accepted"] == 10
    assert front.post(f"{FRONT}/totals", json=total).json()["repeated"] == 10
    error_detail(front.post(f"{FRONT}/totals", json=total | {"total": 34.0}), 409, "conflict")
    error_detail(front.post(f"{FRONT}/totals", json=total | {"arms": ["a", "b"], "key": "x"}), 422, "bad-input")
    assert front.post(f"{FRONT}/totals", json=total | {"key": None}).json()["accepted"] == 10
    checked(Campaign.open("front", sqlite_store))


def test_a_campaign_made_anew_is_another(front: Client) -> None:
    old = decide(front, 1)[0]["id"]
    front.delete(FRONT)
    error_detail(front.post(f"{FRONT}/decisions", json={}), 404, "no-such-campaign")
    front.post("/api/campaigns", json=NEW)
    error_detail(tell(front, {old: 1.0}), 422, "unknown-decision")
    assert len(decide(front, 2)) == 2


@pytest.mark.parametrize("times", [1, 2])
def test_a_request_finds_a_campaign_that_is_replaced_after_it_was_opened(
    front: Client, sqlite_store: str, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """As when a request has opened the campaign, and then waits for the transactions that replace it."""
    open_campaign, left = AppState._open_campaign, 0

    def open_before_it_is_replaced(self: AppState, name: str) -> Campaign:
        nonlocal left
        opened = open_campaign(self, name)
        if left:
            left -= 1
            opened.delete()
            create(sqlite_store)
        return opened

    monkeypatch.setattr(AppState, "_open_campaign", open_before_it_is_replaced)
    for method, path in (("POST", f"{FRONT}/decisions"), ("GET", FRONT)):
        Campaign.open("front", sqlite_store).delete()
        create(sqlite_store)
        left = times
        assert front.request(method, path, json={"count": 1} if method == "POST" else None).status_code == 200
        assert left == 0
    assert front.get("/api/campaigns/missing").status_code == 404


# Reports.


def test_what_it_knows_is_what_the_campaign_knows(front: Client, sqlite_store: str) -> None:
    for _ in range(10):
        tell(front, {each["id"]: float(sum(map(NAMES.index, each["arms"])) / 2) for each in decide(front, 40)})
    campaign = Campaign.open("front", sqlite_store)
    wait_until_learned(campaign)
    insight = front.get(f"{FRONT}/insight").json()
    expected = campaign.insight().to_dict()
    assert sorted(insight["arms"], key=lambda each: str(each["name"])) == expected["arms"]
    assert insight | {"arms": []} == json.loads(json.dumps(expected | {"arms": []}))
    assert insight["best"] == ["f", "g", "h"]
    assert {each["name"] for each in insight["arms"][:3]} == set("fgh")
    assert front.get(f"{FRONT}/insight", params={"arms": 2}).json()["arms"] == insight["arms"][:2]
    assert front.get(f"{FRONT}/history").json()["points"] == [each.to_dict() for each in campaign.history()]
    assert len(front.get(f"{FRONT}/history", params={"points": 1}).json()["points"]) == 1
    known = front.get(f"{FRONT}/estimates", params={"points": 3, "arm": ["a", "h"]}).json()["estimates"]
    assert known == [each.to_dict() for each in campaign.estimates(3, arms=["a", "h"])]
    assert known[-1]["effects"].keys() == {"a", "h"}
    assert front.get(f"{FRONT}/estimates").json()["estimates"][-1]["effects"] == {}
    error_detail(front.get(f"{FRONT}/estimates", params={"arm": "z"}), 422, "bad-input")
    assert front.get(f"{FRONT}/events").json()["events"] == [each.to_dict() for each in campaign.events()]
    assert len(front.get(f"{FRONT}/events", params={"limit": 1}).json()["events"]) == 1


def test_open_decisions_are_listed(front: Client) -> None:
    decisions = decide(front, 3)
    tell(front, {decisions[0]["id"]: 1.0})
    found = front.get(f"{FRONT}/decisions", params={"open": True, "limit": 10}).json()["decisions"]
    assert {each["id"]: each["arms"] for each in found} == {each["id"]: each["arms"] for each in decisions[1:]}
    assert not any(each["expired"] for each in found)
    error_detail(front.get(f"{FRONT}/decisions", params={"open": False}), 422, "bad-input")


def test_a_campaign_that_is_not_there_is_said(front: Client) -> None:
    for what in ("", "/insight", "/history", "/events", "/decisions", "/verify", "/export", "/stream"):
        detail = error_detail(front.get(f"/api/campaigns/back{what}"), 404, "no-such-campaign")
        assert detail == "there is no campaign 'back'"  # and not which others there are


def test_policies_are_those_that_can_run_a_campaign(api: Client) -> None:
    found = {each["name"]: each for each in api.get("/api/policies").json()["policies"]}
    assert found.keys() == {name for name, policy in POLICIES.items() if not policy.needs}
    offered = ["thompson", "contextual-thompson", "uniform"]
    assert [name for name, each in found.items() if each["offered"]] == list(found)[:3] == offered
    assert all(each["description"].endswith(".") for each in found.values())
    settings = {name: each["settings"] for name, each in found.items() if each["settings"]}
    assert settings == {
        "thompson": ["half_life"],
        "contextual-thompson": ["half_life"],
        "thompson-sizes": ["half_life"],
    }


def test_the_session_says_who_you_are(api: Client) -> None:
    rest = {"campaign": None, "token": "session", "max_batch": 10_000}
    assert api.get("/api/session").json() == {"version": kofn.__version__, "scope": "full"} | rest


# Changes.


def test_arms_come_and_go(front: Client, sqlite_store: str) -> None:
    assert front.post(f"{FRONT}/arms", json={"name": "50 % off / new"}).json()["arms"] == 9
    error_detail(front.post(f"{FRONT}/arms", json={"name": "a"}), 422, "bad-input")
    assert front.post(f"{FRONT}/arms/retire", json={"name": "50 % off / new"}).json()["arms"] == 8
    error_detail(front.post(f"{FRONT}/arms/retire", json={"name": "zebra"}), 422, "bad-input")
    assert Campaign.open("front", sqlite_store).arms == NAMES


def test_it_pauses_resumes_and_finishes(front: Client) -> None:
    id = decide(front, 1)[0]["id"]
    assert front.post(f"{FRONT}/pause").json()["state"] == "paused"
    error_detail(front.post(f"{FRONT}/decisions", json={}), 409, "not-running")
    assert tell(front, {id: 1.0}).json()["accepted"] == 1
    assert front.post(f"{FRONT}/resume").json()["state"] == "running"
    assert len(decide(front, 1)) == 1
    assert front.post(f"{FRONT}/stop").json()["state"] == "stopped"
    error_detail(front.post(f"{FRONT}/resume"), 409, "not-running")


# Health, metrics and errors.


def test_metrics_count(front: Client) -> None:
    tell(front, {each["id"]: 1.0 for each in decide(front, 7)})
    front.get("/api/campaigns/back")
    front.get("/api/nonsense")
    rewards = 'kofn_campaign_rewards{campaign="front",state="running"} 7.0'
    wait_until(lambda: rewards in front.get("/metrics").text, "the rewards are counted")
    lines = front.get("/metrics").text.splitlines()
    assert "kofn_decisions_total 7.0" in lines
    assert 'kofn_rewards_total{result="accepted"} 7.0' in lines
    assert 'kofn_requests_total{method="POST",route="/api/campaigns/{name}/rewards",status="200"} 1.0' in lines
    assert 'kofn_requests_total{method="GET",route="/api/campaigns/{name}",status="404"} 1.0' in lines
    assert 'kofn_requests_total{method="GET",route="other",status="404"} 1.0' in lines
    assert 'kofn_campaign_failing{campaign="front",state="running"} 0.0' in lines
    assert 'kofn_campaign_mean{campaign="front",state="running"} 1.0' in lines
    assert any(line.startswith('kofn_request_seconds_bucket{le="0.1"') for line in lines)


def test_what_is_not_there_is_a_problem(api: Client) -> None:
    assert "/api/openapi.json" in error_detail(api.get("/api/nonsense"), 404, "not-found")
    assert "/api/openapi.json" in error_detail(api.put("/api/campaigns", json={}), 405, "method-not-allowed")


def test_the_document_has_examples_and_says_how_to_come_in(api: Client) -> None:
    document = api.get("/api/openapi.json").json()
    decision = document["components"]["schemas"]["Decision"]
    assert set(decision["properties"]) == {"id", "arms", "subset", "at", "group", "context"}
    assert decision["description"].startswith("One play handed out")
    assert decision["properties"]["arms"]["examples"] == [["mug", "tray"]]
    new = document["components"]["schemas"]["NewCampaign"]["properties"]
    assert new["name"]["examples"] == ["front-page"]
    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["description"], (method, path)
            if path.startswith("/api"):
                refused = operation["responses"]["422"]["content"]
                assert refused == {
                    "application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}
                }
