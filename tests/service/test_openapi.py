"""The OpenAPI document is valid, names its operations well, and a client that is generated from it works."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kofn.service import ServiceSettings, make_app
from kofn.service.security.tokens import create_token
from tests.service.tools import NEW, service
from tests.system import missing

OPERATIONS = {
    *("get_session", "list_policies", "get_metrics", "get_health", "get_ready"),
    *("list_campaigns", "create_campaign", "import_campaign", "get_campaign", "delete_campaign", "export_campaign"),
    *("decide", "reward", "reward_total", "list_open_decisions"),
    *(
        "get_insight",
        "get_segments",
        "get_history",
        "list_events",
        "add_events",
        "record_metrics",
        "verify_campaign",
        "stream_campaign",
        "stream_campaigns",
    ),
    *("add_arm", "retire_arm", "pause_campaign", "resume_campaign", "stop_campaign"),
    *("ship_campaign", "archive_campaign", "configure_campaign", "get_settings", "get_estimates", "export_decisions"),
}
"""The ids of all operations. Clients are generated from them: to rename one breaks programs."""


def need(library: str) -> None:
    if not find_spec(library):
        missing(f"{library} is not installed: it belongs to the extra dev")


@pytest.fixture(scope="module")
def document(module_store: str) -> dict[str, Any]:
    return make_app(ServiceSettings(store=module_store)).openapi()


def test_the_document_is_valid(document: dict[str, Any]) -> None:
    need("openapi_spec_validator")
    importlib.import_module("openapi_spec_validator").validate(document)
    references = re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(document))
    assert len(references) > 100
    assert set(references) <= set(document["components"]["schemas"])


def test_operations_have_the_ids_that_clients_know(document: dict[str, Any]) -> None:
    ids = [each["operationId"] for methods in document["paths"].values() for each in methods.values()]
    assert len(ids) == len(set(ids))
    assert set(ids) == OPERATIONS


@pytest.fixture(scope="module")
def generated(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a package that openapi-python-client generated from the document."""
    need("openapi_python_client")
    folder = tmp_path_factory.mktemp("generated")
    (folder / "document.json").write_text(json.dumps(document))
    (folder / "config.json").write_text('{"post_hooks": []}')
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none", "--fail-on-warning"]
    command += ["--path", "document.json", "--config", "config.json", "--output-path", "generated_kofn"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    sys.path.insert(0, str(folder))
    yield "generated_kofn"
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == "generated_kofn"]:
        del sys.modules[name]


def test_a_generated_client_works(generated: str, sqlite_store: str) -> None:
    from kofn.campaigns import store_at

    def call(operation: str, *args: Any, **body: Any) -> Any:
        path = next(Path(sys.path[0]).glob(f"{generated}/api/*/{operation}.py"))
        module = importlib.import_module(f"{generated}.api.{path.parent.name}.{operation}")
        return module.sync(*args, client=client, **body)

    models = importlib.import_module(f"{generated}.models")
    token, _ = create_token(store_at(sqlite_store), "generated")
    with service(sqlite_store) as api:
        package = importlib.import_module(generated)
        client = package.AuthenticatedClient(str(api.base_url), token)
        with client:
            made = call("create_campaign", body=models.NewCampaign.from_dict(NEW))
            assert (made.name, made.arms, made.created.year >= 2026) == ("front", 8, True)
            decisions = call("decide", "front", body=models.DecisionRequest(count=2)).decisions
            rewards = [models.RewardItem(id=each.id, reward=1.5) for each in decisions]
            assert call("reward", "front", body=models.Rewards(rewards=rewards)).accepted == 2
            assert call("get_campaign", "front").rewards == 2
            assert call("list_campaigns").campaigns[0].name == "front"
            assert len(call("get_insight", "front").best) == 3
            assert call("get_ready").status == "ready"
            refused = call("get_campaign", "back")
            assert isinstance(refused, models.ProblemDetails)
            assert refused.type_ == "urn:kofn:no-such-campaign"
