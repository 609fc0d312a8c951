"""`Campaign.verify`, over HTTP, and `kofn campaign verify`: what agrees, what differs, and what cannot be compared."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import make_url

from kofn import AsyncClient, Campaign, Client
from kofn.campaigns.store.schema import BATCHES, CAMPAIGNS, PLANS, REWARDS, ROSTERS, STATES
from kofn.core.responses import Verification
from kofn.service.security.tokens import create_token
from tests.campaigns.tools import NAMES, create, play
from tests.cases import postgres_is_slow
from tests.service.tools import error_detail, service


@pytest.fixture(scope="module")
def played_once(module_store: str) -> Campaign:
    campaign = create(module_store)
    play(campaign, 300, batch=20)
    campaign.reward_total(NAMES[:3], 5, 20.0)
    campaign.retire_arm("a")
    campaign.add_arm("i")
    play(campaign, 100, batch=20)
    campaign.decide(10)
    return campaign


@pytest.fixture
def played(played_once: Campaign, sqlite_store: str) -> Campaign:
    """A copy of that campaign, which a test may change."""
    source, target = (make_url(url).database or "" for url in (str(played_once.store), sqlite_store))
    with closing(sqlite3.connect(source)) as store, closing(sqlite3.connect(target)) as copy:
        store.backup(copy)
    return Campaign.open("front", store=sqlite_store)


def change(campaign: Campaign, statement: Any) -> None:
    with campaign.store.write() as connection:
        assert connection.execute(statement).rowcount > 0


def test_a_sound_campaign_is_verified_whole(played: Campaign) -> None:
    verified = played.verify()
    assert verified == Verification(
        ok=True,
        compared=["counters", "policy", "plan"],
        rewards=405,
        steps=verified.steps,
        deviation=0.0,
        differences=[],
        reason=None,
    )
    assert verified.steps > 10
    assert Verification.from_dict(json.loads(json.dumps(verified.to_dict()))) == verified


@postgres_is_slow
def test_rewards_of_any_kind_are_verified_up_to_rounding(store_url: str) -> None:
    campaign = create(store_url)
    rng = random.Random(4)
    waiting: list[Any] = []
    for _ in range(30):
        waiting += campaign.decide(20)
        rng.shuffle(waiting)
        campaign.rewards({each.id: rng.uniform(0, 12) for each in [waiting.pop() for _ in range(18)]})
    verified = campaign.verify()
    assert verified.ok
    assert verified.steps > 10
    assert 0.0 <= verified.deviation < 1e-6


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        (REWARDS.update().where(REWARDS.c.first == 0).values(value=REWARDS.c.value + 0.5), "total: "),
        (REWARDS.update().where(REWARDS.c.first == 0).values(value=REWARDS.c.value + 0.5), "policy"),
        (REWARDS.delete().where(REWARDS.c.first == 0), "rewards of batch 0: the store has "),
        (REWARDS.delete().where(REWARDS.c.first == 0), "kept: the store has 400, the log gives 39"),
        (REWARDS.update().where(REWARDS.c.first == 0).values(row=10**6), "policy"),
        (CAMPAIGNS.update().values(in_flight=11), "in_flight: the store has 11, the log gives 10"),
        (CAMPAIGNS.update().values(observed=CAMPAIGNS.c.observed + 1), "observed: "),
        (CAMPAIGNS.update().values(totalled=6), "totalled: the store has 6, the log gives 5"),
        (BATCHES.update().where(BATCHES.c.open > 0).values(open=0), "in_flight: the store has 10, the log gives 0"),
        (PLANS.update().where(PLANS.c.row == 0).values(total=PLANS.c.total + 1.0, count=PLANS.c.count + 1), "observed"),
        (BATCHES.delete().where(BATCHES.c.open == 0), "rewards without a batch: the store has 0, the log gives 4"),
        (BATCHES.delete(), "policy: it cannot be rebuilt from the log: "),
        (STATES.delete(), "policy: the store has None"),
        (STATES.update().values(record="{"), "policy: the store has None"),
        (ROSTERS.delete(), "policy: it cannot be rebuilt from the log: "),
        (ROSTERS.update().values(origin="[1]"), "policy: it cannot be rebuilt from the log: "),
        (ROSTERS.update().values(changes='[{"step": 1}]'), "policy: it cannot be rebuilt from the log: "),
        (PLANS.update().where(PLANS.c.row == 0).values(subset="1,2,3"), "plan[0][0]: the store has '1,2,3'"),
    ],
)
def test_a_difference_is_found_and_named(played: Campaign, statement: Any, what: str) -> None:
    change(played, statement)
    verified = played.verify()
    assert not verified.ok
    assert any(each.startswith(what) for each in verified.differences), verified.differences
    assert len(verified.differences) <= 21


def test_a_changed_record_is_found(played: Campaign) -> None:
    with played.store.read() as connection:
        record = json.loads(connection.execute(STATES.select()).one().record)
    record["state"]["plays"] += 1
    change(played, STATES.update().values(record=json.dumps(record)))
    assert [each.partition(":")[0] for each in played.verify().differences] == ["policy.state.plays"]


def test_a_compacted_log_is_verified_in_part(sqlite_store: str) -> None:
    campaign = create(sqlite_store, keep_decisions=50)
    play(campaign, 600, batch=20)
    verified = campaign.verify()
    assert verified.ok
    assert (verified.compared, verified.steps) == (["counters"], 0)
    assert "stored as sums only (keep_decisions is 50)" in str(verified.reason)
    change(campaign, CAMPAIGNS.update().values(kept=0))
    assert not campaign.verify().ok


def test_verify_from_the_shell(played: Campaign, kofn_main: Callable[..., tuple[int, str, str]]) -> None:
    def kofn(*argv: str) -> tuple[int, str]:
        return kofn_main("campaign", "verify", "front", "--store", str(played.store), *argv)[:2]

    code, out = kofn()
    assert (code, out.splitlines()[0]) == (0, out.rstrip("\n"))
    assert out.startswith("front: ok; compared counters, policy, plan (405 rewards and ")
    code, out = kofn("--json")
    assert (code, json.loads(out)) == (0, played.verify().to_dict())
    change(played, CAMPAIGNS.update().values(in_flight=11))
    code, out = kofn()
    assert code == 1
    assert out.startswith("front: differs; ")
    assert "  in_flight: the store has 11, the log gives 10\n" in out
    code, out = kofn("--json")
    assert (code, json.loads(out)["ok"]) == (1, False)


# Over HTTP.


def test_verify_over_http_and_by_both_clients(store_url: str) -> None:
    campaign = create(store_url)
    play(campaign, 200, batch=20)
    campaign.decide(10)
    token, _ = create_token(campaign.store, "screen", "read", "front")
    with service(store_url) as http:
        url = str(http.base_url)

        async def remote() -> Verification:
            async with AsyncClient(url, token) as client:
                return await client.campaign("front").verify()

        def everywhere() -> Verification:
            answer = http.get("/api/campaigns/front/verify", headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == 200
            verified = campaign.verify()
            assert answer.json() == verified.to_dict()
            with Client(url, token) as client:
                assert client.campaign("front").verify() == verified == asyncio.run(remote())
            return verified

        version = campaign.summary().version
        verified = everywhere()
        assert (verified.ok, verified.compared, verified.rewards) == (True, ["counters", "policy", "plan"], 200)
        assert campaign.summary().version == version  # it only reads
        change(campaign, CAMPAIGNS.update().values(in_flight=11))
        assert everywhere().differences == ["in_flight: the store has 11, the log gives 10"]
        del http.headers["Authorization"]
        error_detail(http.get("/api/campaigns/front/verify"), 401, "unauthorized")
        elsewhere = http.get("/api/campaigns/back/verify", headers={"Authorization": f"Bearer {token}"})
        error_detail(elsewhere, 403, "forbidden")


def test_a_process_verifies_one_campaign_at_a_time(played: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go = threading.Event(), threading.Event()
    verify: Callable[[Campaign], Verification] = Campaign.verify

    def slow(campaign: Campaign) -> Verification:
        began.set()
        assert go.wait(30)
        return verify(campaign)

    monkeypatch.setattr(Campaign, "verify", slow)
    with service(str(played.store)) as http:
        path, first = "/api/campaigns/front/verify", []
        thread = threading.Thread(target=lambda: first.append(http.get(path)))
        thread.start()
        assert began.wait(30)
        answer = http.get(path)
        error_detail(answer, 503, "too-many-verifications")
        assert answer.headers["retry-after"] == "5"
        assert http.get("/api/campaigns/front").status_code == 200  # everything else is served
        go.set()
        thread.join(30)
        assert first[0].json()["ok"]
        assert http.get(path).json()["ok"]
