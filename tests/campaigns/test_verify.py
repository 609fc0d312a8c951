"""`Campaign.verify`, over HTTP, and `kofn campaign verify`: what agrees, what differs, and what cannot be compared."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url, select

from kofn import Campaign, Client
from kofn.campaigns import Store, fold
from kofn.campaigns.store.schema import CAMPAIGNS, DECISIONS, EVENTS, FOLDS, STATES, TOTALS
from kofn.core import StateError
from kofn.core.responses import Verification
from kofn.service.security.tokens import create_token
from tests.campaigns.tools import NAMES, checked, create, play
from tests.cases import for_each, postgres_is_slow
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
    campaign.learn()
    return campaign


def copy_of(campaign: Campaign, folder: Path) -> Campaign:
    """A copy, which a test may change."""
    file = folder / "copy.db"
    file.unlink(missing_ok=True)
    source = make_url(str(campaign.store)).database or ""
    with closing(sqlite3.connect(source)) as store, closing(sqlite3.connect(file)) as copy:
        store.backup(copy)
    return Campaign.open("front", store=Store(f"sqlite:///{file}"))


@pytest.fixture
def played(played_once: Campaign, tmp_path: Path) -> Campaign:
    return copy_of(played_once, tmp_path)


def change(campaign: Campaign, statement: Any) -> None:
    with campaign.store.write() as connection:
        assert connection.execute(statement).rowcount > 0


def counters(campaign: Campaign, **changes: Any) -> None:
    """Change what folds have counted."""
    with campaign.store.read() as connection:
        found = json.loads(connection.execute(select(CAMPAIGNS.c.progress)).scalar_one())
    change(campaign, CAMPAIGNS.update().values(progress=json.dumps(found | changes)))


def test_a_sound_campaign_is_verified_whole(played: Campaign) -> None:
    verified = played.verify()
    assert verified == Verification(
        ok=True,
        compared=["policy", "counters", "steps"],
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


FIRST = EVENTS.c.number == 1
STEP = FOLDS.c.step == 2
OPEN = FOLDS.c.step == select(CAMPAIGNS.c.step).scalar_subquery()


@for_each(
    "statement, what",
    [
        (EVENTS.update().where(FIRST).values(value=EVENTS.c.value + 0.5), "total: "),
        (EVENTS.update().where(FIRST).values(value=EVENTS.c.value + 0.5), "steps."),
        (EVENTS.update().where(FIRST).values(counts=0), "rewarded: the store has 400, the log gives 399"),
        (EVENTS.delete().where(FIRST), "rewarded: the store has 400, the log gives 399"),
        (EVENTS.delete().where(FIRST), "in_flight"),
        (DECISIONS.delete().where(DECISIONS.c.number == 1), "decided: the store has 410, the log gives 409"),
        (DECISIONS.update().where(DECISIONS.c.number == 1).values(subset="0,1,2"), "steps"),
        (DECISIONS.update().where(DECISIONS.c.number == 1).values(windowed=1), "rewarded: "),
        (TOTALS.update().values(total=21.0), "total: "),
        (TOTALS.delete(), "totalled: the store has 5, the log gives 0"),
        (lambda campaign: counters(campaign, decided=411), "decided: the store has 411, the log gives 410"),
        (lambda campaign: counters(campaign, rewarded=1), "rewarded: "),
        (lambda campaign: counters(campaign, in_flight=[]), "in_flight"),
        (FOLDS.update().where(STEP).values(tallies="[]"), "policy"),
        (FOLDS.update().where(OPEN).values(tallies="[]"), "steps"),
        (FOLDS.delete().where(STEP), "policy"),
        (
            FOLDS.update().where(STEP).values(tallies='[["5,6,7", null, 3, 1e9, 1.0]]'),
            "policy: it cannot be made again",
        ),
        (FOLDS.update().where(STEP).values(change='{"retired": 77}'), "policy"),
        (FOLDS.update().where(STEP).values(change='{"params": {"x": 1}}'), "policy: it cannot be made again"),
        (STATES.update().values(step=1), "policy"),
    ],
)
def test_a_difference_is_found_and_named(played_once: Campaign, tmp_path: Path, statement: Any, what: str) -> None:
    campaign = copy_of(played_once, tmp_path)
    if callable(statement):
        statement(campaign)
    else:
        change(campaign, statement)
    verified = campaign.verify()
    campaign.store.close()
    assert not verified.ok
    assert any(each.startswith(what) for each in verified.differences), verified.differences
    assert len(verified.differences) <= 21


def test_a_changed_record_is_found(played: Campaign) -> None:
    with played.store.read() as connection:
        found = json.loads(connection.execute(select(STATES.c.record)).scalar_one())
    found["record"]["state"]["plays"] += 1
    change(played, STATES.update().values(record=json.dumps(found)))
    assert [each.partition(":")[0] for each in played.verify().differences] == ["policy.state.plays"]
    for table, column in ((STATES, "record"), (FOLDS, "tallies")):
        change(played, table.update().values({column: "{"}))
        with pytest.raises(StateError, match="cannot be read"):
            played.verify()


def test_a_log_that_is_not_complete_is_verified_in_part(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old decisions are deleted, and old learning steps are one."""
    for name, value in (("CHECKPOINT", 2), ("MAX_STEPS", 4), ("LEAST_SLACK", 0), ("MOST_ROWS", 30)):
        monkeypatch.setattr(fold, name, value)
    campaign = create(store_url, keep_decisions=50)
    play(campaign, 600, batch=20)
    checked(campaign)
    verified = campaign.verify()
    assert (verified.ok, verified.compared) == (True, ["policy"])
    assert "decisions are no longer stored (keep_decisions is 50)" in str(verified.reason)
    with campaign.store.read() as connection:
        steps = connection.execute(select(FOLDS.c.step).order_by(FOLDS.c.step)).scalars().all()
    assert steps[0] > 0
    assert len(steps) <= 8
    assert len(list(campaign.decisions())) < 80
    change(campaign, FOLDS.update().where(FOLDS.c.step == steps[2]).values(tallies="[]"))
    assert not campaign.verify().ok


def test_verify_from_the_shell(played: Campaign, kofn_main: Callable[..., tuple[int, str, str]]) -> None:
    def kofn(*argv: str) -> tuple[int, str]:
        return kofn_main("campaign", "verify", "front", "--store", str(played.store), *argv)[:2]

    code, out = kofn()
    assert (code, out.splitlines()[0]) == (0, out.rstrip("\n"))
    assert out.startswith("front: ok; compared policy, counters, steps (405 rewards and ")
    code, out = kofn("--json")
    assert (code, json.loads(out)) == (0, played.verify().to_dict())
    counters(played, expired=11)
    code, out = kofn()
    assert code == 1
    assert out.startswith("front: differs; ")
    assert "  expired: the store has 11, the log gives 0\n" in out
    code, out = kofn("--json")
    assert (code, json.loads(out)["ok"]) == (1, False)


# Over HTTP.


def test_verify_over_http_and_by_the_client(store_url: str) -> None:
    campaign = create(store_url)
    play(campaign, 200, batch=20)
    campaign.learn()
    token, _ = create_token(campaign.store, "screen", "read", "front")
    with service(store_url) as http, Client(str(http.base_url), token) as client:
        assert client.campaign("front").verify() == campaign.verify()
        counters(campaign, expired=11)
        verified = campaign.verify()
        assert verified.differences == ["expired: the store has 11, the log gives 0"]
        assert client.campaign("front").verify() == verified
        answer = http.get("/api/campaigns/front/verify")
        assert (answer.status_code, answer.json()) == (200, verified.to_dict())


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
