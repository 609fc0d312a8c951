"""The log of the service: its formats, the ids of requests, and what it leaves out."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from httpx import Client

import kofn
from kofn.campaigns import Campaign, store_at
from kofn.service.monitoring import logs
from kofn.service.security.tokens import create_token
from kofn.service.settings import ServiceSettings
from tests.campaigns.tools import create
from tests.service.tools import bearer, error_detail, service

FRONT = "/api/campaigns/front"


@pytest.fixture(scope="module")
def api(module_store: str) -> Iterator[Client]:
    create(module_store, "front")
    with service(module_store, access_log=True) as client:
        yield client


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Configure the log as a service does, and undo it."""
    loggers = [logging.getLogger(name) for name in ("", "kofn", "uvicorn")]
    before = [(each.handlers, each.propagate, each.level) for each in loggers]
    with warnings.catch_warnings():  # pytest shows them in its own way
        yield lambda form: logs.configure(ServiceSettings(log_format=form, access_log=True))
        logging.captureWarnings(False)
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def test_a_request_is_a_line_of_json(
    api: Client, module_store: str, configured: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    token, _ = create_token(store_at(module_store), "shop", "read")
    configured("json")
    answer = api.get(f"{FRONT}/insight?arms=3", headers=bearer(token) | {"X-Request-Id": "abc-1"})
    error_detail(api.get("/api/campaigns/nowhere"), 404, "no-such-campaign")
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert answer.headers["x-request-id"] == "abc-1"
    assert first.pop("time").endswith("Z")
    assert 0 < first.pop("seconds") < 60
    assert "shop" in first.pop("message")
    assert first == {
        "level": "info",
        "logger": "kofn.access",
        "request_id": "abc-1",
        "method": "GET",
        "path": "/api/campaigns/{name}/insight",
        "status": 200,
        "token": "shop",
        "address": "127.0.0.1",
    }
    assert (second["status"], second["token"], second["path"]) == (404, "session", "/api/campaigns/{name}")
    assert token not in str(first)


@pytest.mark.parametrize("given", ["", "a b", "x" * 101, "a\tb", "caf\xe9"])
def test_a_request_gets_an_id_if_it_has_no_sane_one(api: Client, given: str) -> None:
    ids = {api.get("/health", headers={b"X-Request-Id": given.encode("latin-1")}).headers["x-request-id"] for _ in "ab"}
    assert len(ids) == 2
    assert given not in ids


@pytest.mark.parametrize(
    ("kind", "status", "name"), [(RuntimeError, 500, "internal-error"), (kofn.StoreError, 503, "store-error")]
)
def test_an_error_has_the_id_of_its_request_and_does_not_name_the_campaign(
    api: Client,
    configured: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Exception],
    status: int,
    name: str,
) -> None:
    def broken(*_: object) -> None:
        raise kind("oops")

    monkeypatch.setattr(Campaign, "events", broken)
    configured("json")
    answer = api.get(f"{FRONT}/events", headers={"X-Request-Id": "broken-7"})
    assert "oops" not in error_detail(answer, status, name)
    assert answer.headers["x-request-id"] == "broken-7"
    assert answer.headers["x-content-type-options"] == "nosniff"
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {line["request_id"] for line in lines} == {"broken-7"}
    (error,) = (line for line in lines if line["level"] == "error")
    assert "oops" in error.get("exception", error["message"])
    assert error["message"].startswith("GET /api/campaigns/{name}/events")
    assert FRONT not in str(error)


def test_lines_of_text_cannot_be_forged(configured: Any, capsys: pytest.CaptureFixture[str]) -> None:
    configured("text")
    log = logging.getLogger("kofn.service")
    log.warning("a campaign %s", "x\n2026-01-01T00:00:00Z info kofn.access: forged\x1b[2J")
    (line,) = capsys.readouterr().err.splitlines()
    assert r"x\n2026" in line
    assert "\x1b" not in line
    assert line[:4].isdigit()
    try:
        raise RuntimeError("oops")
    except RuntimeError:
        log.error("failed", exc_info=sys.exc_info())
    assert "RuntimeError: oops" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["json", "text"])
def test_libraries_log_in_the_same_format(form: str, configured: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """As psycopg and SQLAlchemy do when a connection is lost."""
    configured(form)
    logging.getLogger("psycopg").warning("error ignored: %s", "server closed the connection\nbefore the request")
    logging.getLogger("psycopg").info("not worth a line")
    warnings.simplefilter("always")
    warnings.warn("overflow encountered in multiply", RuntimeWarning, stacklevel=1)  # as NumPy's
    lost, overflow = capsys.readouterr().err.splitlines()
    assert "warning" in lost
    assert "overflow encountered" in overflow
    if form == "json":
        assert [json.loads(line)["logger"] for line in (lost, overflow)] == ["psycopg", "py.warnings"]


def test_the_log_of_uvicorn_repeats_nothing(configured: Any, capsys: pytest.CaptureFixture[str]) -> None:
    configured("text")
    log = logging.getLogger("uvicorn.error")
    log.setLevel(logging.NOTSET)  # the service of these tests has silenced it
    for _ in range(100):
        log.warning("Invalid HTTP request received.")
    log.error("this is always said")
    log.error("this is always said")
    assert len(capsys.readouterr().err.splitlines()) == 3
