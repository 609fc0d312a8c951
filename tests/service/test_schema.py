"""Property tests from the OpenAPI document: no request causes a 500, and every response matches the document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from httpx import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from kofn.service.api.routes import api_router
from kofn.service.messages.openapi import complete_openapi
from kofn.service.monitoring.metrics_route import metrics_router
from tests.service.tools import NEW, TOKEN, bearer, service

CHECKS = [schemathesis.checks.not_a_server_error, content_type_conformance, response_schema_conformance]
CHECKS += [status_code_conformance]


def document() -> dict[str, Any]:
    """The OpenAPI document of the service."""
    app = FastAPI(routes=[*api_router.routes, *metrics_router.routes])
    complete_openapi(app)
    return app.openapi()


DOCUMENT = document()
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = [
    (path, method.upper())
    for path, methods in DOCUMENT["paths"].items()
    for method in methods
    if not path.endswith("/stream")  # they do not end
]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("schema")
    with service(f"sqlite:///{folder}/shop.db?synchronous=normal", max_body=100_000, max_import=100_000) as client:
        yield client


MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
each_case = pytest.mark.parametrize(
    ("path", "method", "mode"),
    [
        (path, method, mode)
        for path, method in OPERATIONS
        for mode in MODES
        if path != "/metrics" or mode is GenerationMode.POSITIVE  # it takes nothing that could be wrong
    ],
    ids=str,
)


@each_case
def test_whatever_is_sent(api: Client, path: str, method: str, mode: GenerationMode) -> None:
    send(api, path, method, mode, examples=4)


@pytest.mark.slow
@each_case
def test_whatever_is_sent_often(api: Client, path: str, method: str, mode: GenerationMode) -> None:
    send(api, path, method, mode, examples=300)


def send(api: Client, path: str, method: str, mode: GenerationMode, examples: int) -> None:
    """Send valid or invalid requests to an operation, half of them to an existing campaign."""
    operation = SCHEMA[path][method]

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode), there=st.booleans())
    def one(case: Any, there: bool) -> None:
        if there and "name" in (case.path_parameters or {}):
            case.path_parameters["name"] = "front"
            api.post("/api/campaigns", json=NEW)
            api.post("/api/campaigns/front/resume")
        answer = case.call(base_url=str(api.base_url).rstrip("/"), headers=bearer(TOKEN), timeout=60)
        assert answer.status_code < 500, answer.text
        case.validate_response(answer, checks=CHECKS)

    one()
