"""Bodies: strict types, and large ones that are parsed away from the event loop."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from httpx import Client

from kofn import Campaign
from kofn.campaigns import learner, store_at
from kofn.campaigns.learner import new_process
from kofn.campaigns.names import arm_names
from kofn.core import BadInput
from kofn.service.messages import bodies
from tests.campaigns.tools import checked
from tests.service.tools import NEW, error_detail, service

FRONT = "/api/campaigns/front"
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def api(module_store: str) -> Iterator[Client]:
    with service(module_store) as client:
        client.post("/api/campaigns", json=NEW)
        yield client


# Strict types.


@pytest.mark.parametrize("value", ["true", '"0.5"', "null", "[1]"])
def test_a_reward_must_be_a_number(api: Client, value: str) -> None:
    id = api.post(f"{FRONT}/decisions", json={}).json()["decisions"][0]["id"]
    body = f'{{"rewards": [{{"id": "{id}", "reward": {value}}}]}}'
    answer = api.post(f"{FRONT}/rewards", content=body, headers=JSON)
    assert "body.rewards.0.reward" in error_detail(answer, 422, "malformed-request")
    for large in ("NaN", "-1e400"):
        answer = api.post(f"{FRONT}/rewards", content=body.replace(value, large), headers=JSON)
        error_detail(answer, 422, "bad-reward")
    assert api.post(f"{FRONT}/rewards", content=body.replace(value, "1"), headers=JSON).json()["accepted"] == 1


@pytest.mark.parametrize("value", ["true", '"7"', "1.0", "1.5", "null", "[]"])
def test_a_count_must_be_a_whole_number(api: Client, value: str) -> None:
    for path, more in (("decisions", ""), ("totals", ', "arms": ["a", "b", "c"], "total": 3')):
        answer = api.post(f"{FRONT}/{path}", content=f'{{"count": {value}{more}}}', headers=JSON)
        assert "body.count" in error_detail(answer, 422, "malformed-request")


@pytest.mark.parametrize(
    "change", [{"k": "3"}, {"k": True}, {"seed": 1.0}, {"expire_after": "60"}, {"reward_range": ["0", 1]}, {"name": 7}]
)
def test_settings_are_not_converted(api: Client, change: dict[str, Any]) -> None:
    error_detail(api.post("/api/campaigns", json=NEW | {"name": "strict"} | change), 422, "malformed-request")


# Large bodies.


@pytest.fixture
def parsers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads in which bodies are parsed."""
    found: list[str] = []
    loads = json.loads

    def noted(text: Any, **options: Any) -> Any:
        if isinstance(text, bytes) and len(text) > 10_000:
            found.append(threading.current_thread().name)
        return loads(text, **options)

    monkeypatch.setattr(json, "loads", noted)
    return found


def test_a_large_body_is_parsed_in_a_thread(api: Client, parsers: list[str]) -> None:
    arms = [f"arm {number}" for number in range(10_000)]
    body = json.dumps(NEW | {"name": "large", "arms": arms})
    assert len(body) > bodies.THREAD_FROM
    assert api.post("/api/campaigns", content=body, headers=JSON).json()["arms"] == 10_000
    assert len(parsers) == 1
    assert "AnyIO" in parsers[0]  # a worker thread, not that of the event loop
    api.delete("/api/campaigns/large")


@pytest.mark.parametrize(
    ("change", "status", "detail"),
    [
        (lambda body: body[:-1], 422, "JSON decode error"),
        (lambda body: body.replace('"front"', "7"), 422, "body.name: Input should be a valid string"),
        (lambda body: body.replace('"front"', '"front", "more": 1'), 422, "body.more: Extra inputs"),
        (lambda body: body.replace("front", "\\udc00"), 422, ""),
        (lambda body: "[" * 100_000, 400, "parsing"),
    ],
)
def test_a_large_body_is_refused_like_a_small_one(
    api: Client, monkeypatch: pytest.MonkeyPatch, change: Any, status: int, detail: str
) -> None:
    body = change(json.dumps(NEW)).encode()
    monkeypatch.setattr(bodies, "THREAD_FROM", 2**40)
    small = api.post("/api/campaigns", content=body, headers=JSON)
    monkeypatch.setattr(bodies, "THREAD_FROM", 0)
    large = api.post("/api/campaigns", content=body, headers=JSON)
    assert (large.status_code, large.json()) == (small.status_code, small.json())
    assert large.status_code == status
    assert detail in large.json()["detail"]


def test_a_very_large_import_is_read_by_another_process(
    api: Client, module_store: str, monkeypatch: pytest.MonkeyPatch, parsers: list[str], tmp_path: Path
) -> None:
    campaign = Campaign.open("front", module_store)
    campaign.rewards({each.id: 3.0 for each in campaign.decide(200)})
    campaign.learn()
    exported = api.get(f"{FRONT}/export").json()
    assert exported == campaign.export()
    monkeypatch.setattr(bodies, "PROCESS_FROM", 1000)
    monkeypatch.setattr(learner, "new_process", new_process)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # as `serve` does
    for name in ("random", "socket"):  # nothing of the working folder is executed
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this is executed')")
    monkeypatch.chdir(tmp_path)
    parsers.clear()
    made = api.post("/api/import", content=json.dumps({"campaign": exported, "name": "copy"}), headers=JSON)
    assert (made.status_code, made.headers["location"]) == (201, "/api/campaigns/copy")
    assert made.json()["rewards"] == campaign.summary().rewards
    assert parsers == []
    checked(Campaign.open("copy", module_store))


def test_a_very_large_import_is_refused_like_a_small_one(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    exported = api.get(f"{FRONT}/export").json()
    wrong: list[dict[str, Any] | bytes] = [{"campaign": exported}, {"campaign": exported | {"format": 99}}]
    wrong += [{"campaign": exported, "name": 7}, {"campaign": []}, b'{"' + b"x" * 2000, b"[" * 100_000]
    for each in wrong:
        body = each if isinstance(each, bytes) else json.dumps(each).encode()
        small = api.post("/api/import", content=body, headers=JSON)
        with monkeypatch.context() as patched:
            patched.setattr(bodies, "PROCESS_FROM", 10)
            large = api.post("/api/import", content=body, headers=JSON)
        assert large.status_code >= 400
        assert (large.status_code, large.json()) == (small.status_code, small.json())


def test_a_very_large_import_creates_no_store(api: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As when the SQLite file of a running service was moved."""
    moved = f"sqlite:///{tmp_path}/moved.db"
    monkeypatch.setattr(bodies, "store_at", lambda url, create: store_at(moved, create=create))
    body = json.dumps({"campaign": api.get(f"{FRONT}/export").json(), "name": "copy of front"}).encode()
    monkeypatch.setattr(bodies, "PROCESS_FROM", 10)
    error_detail(api.post("/api/import", content=body, headers=JSON), 503, "no-store")
    assert list(tmp_path.iterdir()) == []


def test_large_imports_are_done_one_at_a_time(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "PROCESS_FROM", 10)
    started, release = threading.Event(), threading.Event()

    def slow(*_: object) -> str:
        started.set()
        assert release.wait(30)
        return "front"

    monkeypatch.setattr(bodies, "import_file", slow)
    body: dict[str, Any] = {"campaign": {}, "name": "first"}
    answers: list[Any] = []
    first = threading.Thread(target=lambda: answers.append(api.post("/api/import", json=body)))
    first.start()
    assert started.wait(30)
    assert api.get("/health").status_code == 200
    error_detail(api.post("/api/import", json=body), 503, "too-many-imports")
    release.set()
    first.join(30)
    assert answers[0].status_code == 201


def test_json_in_pieces_is_json() -> None:
    rows = [[number, "ä", None] for number in range(2500)]
    value = {"a": {"rows": rows, "none": []}, "b": [], "c": "x", "d": {}}
    pieces = list(bodies.json_chunks(value))
    assert json.loads(b"".join(pieces)) == value
    assert max(map(len, pieces)) < len(b"".join(pieces)) / 2


def test_names_are_compared_in_linear_time() -> None:
    class Counted(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, str(other))

        __hash__ = str.__hash__

    names = [Counted(f"arm {number}") for number in range(3000)]
    assert arm_names(names) == names
    assert Counted.compared < 20 * len(names)
    with pytest.raises(BadInput, match="listed twice"):
        arm_names([*names, "arm 7"])
