"""`kofn token`, the demo, and the errors of the command line when the service cannot start."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from kofn import BadInput
from kofn.campaigns import Campaign, store_at
from kofn.service import demo
from kofn.service.server import listen
from kofn.service.settings import Settings
from kofn.service.tokens import find_token
from tests.campaign_tools import checked, create
from tests.cli_tools import invoke


def run(*arguments: str) -> Any:
    return invoke(*arguments)


def test_tokens_are_made_listed_and_revoked(sqlite_store: str) -> None:
    create(sqlite_store)
    made = run("token", "create", "shop", "--store", sqlite_store)
    known = find_token(store_at(sqlite_store), made.stdout.strip())
    assert known is not None
    assert (known.name, known.scope, known.campaign) == ("shop", "full", None)
    assert "not shown again" in made.stderr
    options = ("--scope", "read", "--campaign", "front", "--json", "--store", sqlite_store)
    second = json.loads(run("token", "create", "screen", *options).stdout)
    assert second["token"].startswith("kofn_")
    listed = json.loads(run("token", "list", "--json", "--store", sqlite_store).stdout)
    assert [(each["name"], each["scope"], each["campaign"]) for each in listed] == [
        ("shop", "full", None),
        ("screen", "read", "front"),
    ]
    table = run("token", "list", "--store", sqlite_store).stdout
    assert "screen" in table
    assert second["token"] not in table
    assert "revoked token 1 of shop" in run("token", "revoke", "1", "--store", sqlite_store).stdout
    with pytest.raises(BadInput, match="no token with the number 1"):
        run("token", "revoke", "1", "--store", sqlite_store)


def test_a_port_that_is_taken_is_said() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(BadInput, match=r"cannot listen on .*, port"):
            listen("127.0.0.1", other.getsockname()[1])


def test_settings_travel_to_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOFN_SERVICE", "{}")
    assert Settings.from_environment() == Settings()
    there = Settings(store="sqlite:///x.db", loopback=True, max_batch=3)
    there.to_environment()
    assert Settings.from_environment() == there


def test_help_imports_no_server() -> None:
    program = (
        "import sys; from kofn.cli import cli; print(*{'fastapi', 'uvicorn', 'httpx', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# The demo.


def test_what_the_demo_earns_lies_in_its_range() -> None:
    rng = np.random.default_rng(1)
    for each in demo.DEMO_CAMPAIGNS:
        earned = [each.reward(list(each.arms)[: each.k], rng) for _ in range(200)]
        assert each.reward_range[0] <= min(earned) < max(earned) <= each.reward_range[1]


def test_the_demo_learns_within_a_minute(sqlite_store: str) -> None:
    """A minute of visitors, without waiting for it."""
    played = demo.Demo(store_at(sqlite_store), seed=3)
    for tick in range(240):
        played.step(tick / 4, 0.25)
    campaign = Campaign.open("front-page", sqlite_store)
    insight = campaign.insight()
    likes = sorted(demo.GOODS.values())
    assert insight.summary.rewards > 2000
    assert insight.gain is not None
    assert insight.gain > 1.0
    assert sum(demo.GOODS[arm] for arm in insight.best) > 0.9 * sum(likes[-5:])
    checked(Campaign.open("newsletter", sqlite_store))  # of zeros and ones, so that sums are exact in any order


def test_the_demo_outlives_what_people_do_to_it(sqlite_store: str) -> None:
    played = demo.Demo(store_at(sqlite_store), seed=3)
    played.step(0.0, 1.0)
    Campaign.open("newsletter", sqlite_store).pause()
    Campaign.open("front-page", sqlite_store).retire_arm("Cookbook")
    Campaign.open("front-page", sqlite_store).add_arm("Teapot")
    Campaign.open("edge-servers", sqlite_store).delete()
    for second in range(1, 5):
        played.step(float(second), 1.0)
    again = demo.Demo(store_at(sqlite_store), seed=4)  # as after a restart with the same store
    again.step(10.0, 1.0)
    assert Campaign.open("front-page", sqlite_store).summary().plays > 100
