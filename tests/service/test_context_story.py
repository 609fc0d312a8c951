"""One story over HTTP: a shop with phones and desks in three countries, from the first decision to its winners."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import httpx
import numpy as np
import pytest
from click.testing import Result

import kofn
from tests.cases import postgres_is_slow
from tests.cli.tools import invoke
from tests.service.tools import error_detail, service
from tests.waiting import wait_until

OFFERS = ["socks", "scarf", "cap", "desk lamp", "chair", "shelf", "espresso", "tea", "vase", "bowl"]
DEVICES, COUNTRIES = ("phone", "desktop"), ("de", "fr", "it")
WORTH = {"phone": {"socks": 0.3, "scarf": 0.3, "cap": 0.15}, "desktop": {"desk lamp": 0.3, "chair": 0.3, "shelf": 0.15}}
WINNERS = {
    ("phone", "de"): {"socks", "scarf", "cap"},
    ("phone", "fr"): {"socks", "scarf", "cap"},
    ("phone", "it"): {"socks", "scarf", "espresso"},
    ("desktop", "de"): {"desk lamp", "chair", "shelf"},
    ("desktop", "fr"): {"desk lamp", "chair", "shelf"},
    ("desktop", "it"): {"desk lamp", "chair", "espresso"},
}
NEW = {
    "name": "shop",
    "arms": OFFERS,
    "k": 3,
    "policy": "contextual-thompson",
    "params": {"attributes": {"device": list(DEVICES), "country": None}},
    "control": ["tea", "vase", "bowl"],
    "control_share": 0.1,
    "seed": 5,
}


class Visitors:
    """Who comes, and whether they buy: two of three have a phone, and each country has its share."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)

    def context(self) -> dict[str, str]:
        device = self.rng.choice(DEVICES, p=[2 / 3, 1 / 3])
        return {"device": str(device), "country": str(self.rng.choice(COUNTRIES, p=[0.5, 0.3, 0.2]))}

    def buys(self, arms: list[str], context: dict[str, str]) -> float:
        worth = sum(WORTH[context["device"]].get(arm, 0.0) for arm in arms)
        worth += 0.35 * (context["country"] == "it" and "espresso" in arms)
        return float(self.rng.random() < 0.05 + worth)


def visit(http: httpx.Client, visitors: Visitors, visits: int) -> None:
    """Let groups of visitors come and buy; the rewards of each group arrive when the next one has its decisions."""
    late: list[dict[str, Any]] = []
    for _ in range(visits):
        context = visitors.context()
        answer = http.post("/api/campaigns/shop/decisions", json={"count": 40, "context": context})
        decisions = answer.json()["decisions"]
        assert [each["context"] for each in decisions] == [dict(sorted(context.items()))] * 40
        http.post("/api/campaigns/shop/rewards", json={"rewards": late}).raise_for_status()
        late = [{"id": each["id"], "reward": visitors.buys(each["arms"], context)} for each in decisions]
    http.post("/api/campaigns/shop/rewards", json={"rewards": late}).raise_for_status()


def best_of(http: httpx.Client) -> dict[tuple[str, str], set[str]]:
    found = http.get("/api/campaigns/shop/segments").json()["segments"]
    return {(each["context"]["device"], each["context"]["country"]): set(each["best"]) for each in found}


@postgres_is_slow
def test_a_shop_from_its_first_decision_to_its_winners(store_url: str) -> None:
    visitors = Visitors()
    with service(store_url) as http:
        policies = {each["name"]: each for each in http.get("/api/policies").json()["policies"]}
        assert [name for name, each in policies.items() if each["takes_context"]] == ["contextual-thompson"]
        assert http.post("/api/campaigns", json=NEW).status_code == 201
        nobody = http.get("/api/campaigns/shop/segments").json()
        assert nobody == {"segments": [], "attributes": []}
        wrong = {"context": {"devise": "phone"}}
        detail = error_detail(http.post("/api/campaigns/shop/decisions", json=wrong), 422, "bad-input")
        assert detail == "the context has devise, which is not declared; the attributes are: device, country"
        visit(http, visitors, 45)
    with service(store_url) as http:  # the service was restarted
        visit(http, visitors, 105)
        wait_until(lambda: best_of(http) == WINNERS, "the policy has learned")
        found = http.get("/api/campaigns/shop/segments").json()
        assert sum(each["share"] for each in found["segments"]) == pytest.approx(1.0)
        assert found["segments"][0]["words"] == "country de, device phone"
        matter = {each["attribute"]: each for each in found["attributes"]}
        assert matter["device"]["probability"] > 0.99
        assert matter["country"]["probability"] > 0.7
        assert matter["device"]["gain"] > matter["country"]["gain"] > 0
        insight = http.get("/api/campaigns/shop/insight").json()
        assert insight["lift"]["claimed"]
        assert insight["sample_ratio"]["rejected"] is False
        lines = http.get("/api/campaigns/shop/decisions/export", params={"format": "csv"}).text
        rows = list(csv.DictReader(io.StringIO(lines)))
        assert {json.loads(row["context"])["country"] for row in rows} == set(COUNTRIES)
        assert sum(bool(row["propensity"]) for row in rows) > len(rows) / 2

        assert http.post("/api/campaigns/shop/ship", json={}).json()["state"] == "shipped"
        for (device, country), winners in WINNERS.items():
            body = {"context": {"device": device, "country": country}}
            (decision,) = http.post("/api/campaigns/shop/decisions", json=body).json()["decisions"]
            assert (set(decision["arms"]), decision["group"]) == (winners, "shipped")
        for device, both in {"phone": {"socks", "scarf"}, "desktop": {"desk lamp", "chair"}}.items():
            new = {"context": {"device": device, "country": "pl"}}  # a country that nobody has come from yet
            (decision,) = http.post("/api/campaigns/shop/decisions", json=new).json()["decisions"]
            assert both < set(decision["arms"])
        total = {"arms": ["socks", "scarf", "cap"], "count": 100, "total": 80.0, "key": "monday"}
        total["context"] = {"device": "phone", "country": "de"}
        assert http.post("/api/campaigns/shop/totals", json=total).json()["accepted"] == 100
        assert http.get("/api/campaigns/shop/verify").json()["ok"]


def test_the_client_has_segments(sqlite_store: str) -> None:
    phone = {"device": "phone", "country": "de"}
    with service(sqlite_store) as http, kofn.Client(str(http.base_url), prefetch=20) as client:
        campaign = client.create(**NEW)  # type: ignore[arg-type]
        for _ in range(60):
            decision = campaign.decide(context=phone)
            assert decision.context == phone
            campaign.reward(decision.id, 1.0 if "socks" in decision.arms else 0.0)
        assert {context for _, context in client._stocks} == {'{"country": "de", "device": "phone"}'}
        campaign.reward_total(OFFERS[:3], 50, 40.0, context=phone)
        wait_until(lambda: campaign.segments().segments, "the policy has learned")
        assert campaign.segments().segments[0].context == phone
        campaign.ship()
        assert "socks" in campaign.decide(context=phone).arms


def run(*arguments: str, exit_code: int = 0) -> Result:
    """Run `kofn campaign ARGUMENTS`, which must end with this exit code."""
    result = invoke("campaign", *arguments)
    assert result.exit_code == exit_code, result.output
    return result


def test_the_command_line_has_segments(sqlite_store: str, tmp_path: Any) -> None:
    store = ["--store", sqlite_store]
    arms = [word for name in "abcdef" for word in ("--arm", name)]
    more = ["--policy", "contextual-thompson", "--set", 'attributes=["device", "country"]', "--seed", "1"]
    run("create", "front", *arms, "--k", "2", *more, *store)
    for number in range(40):
        context = ["--context", f"device={'phone' if number % 2 else 'desktop'}", "--context", "country=de"]
        decided = json.loads(run("decide", "front", "--count", "5", "--json", *context, *store).stdout)
        good = "ab" if number % 2 else "ef"
        lines = [f"{each['id']},{len(set(good) & set(each['arms'])) / 2}" for each in decided]
        file = tmp_path / "rewards.csv"
        file.write_text("\n".join(lines))
        run("reward", "front", "--from", str(file), *store)
    assert decided[0]["context"] == {"country": "de", "device": "phone"}
    shown = run("segments", "front", *store).stdout
    assert "country de, device phone" in shown
    assert "probability that it matters" in shown
    found = json.loads(run("segments", "front", "--json", *store).stdout)
    assert {each["words"]: each["best"] for each in found["segments"]} == {
        "country de, device phone": ["a", "b"],
        "country de, device desktop": ["e", "f"],
    }
    assert "; each segment gets its own best subset" in run("ship", "front", *store).stdout
    run("resume", "front", *store)
    total = ["10", "9", "--arm", "a", "--arm", "b", "--context", "device=phone", "--context", "country=fr"]
    assert "accepted 10" in run("reward-total", "front", *total, *store).stdout
    for wrong, message in (
        (["--context", "phone"], "--context takes NAME=VALUE, such as device=phone; got 'phone'"),
        (["--context", "device=a", "--context", "device=b"], "--context gives 'device' twice: 'a' and 'b'"),
    ):
        assert message in run("decide", "front", *wrong, *store, exit_code=2).stderr
    with pytest.raises(kofn.BadInput, match="the context has size, which is not declared"):
        run("decide", "front", "--context", "size=xl", *store)
