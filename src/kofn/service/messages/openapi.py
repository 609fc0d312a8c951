"""The OpenAPI document: what FastAPI generates, with the schema of errors, and tuples as plain arrays."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

from kofn.service.messages.models import ProblemDetails

SCHEMAS = "#/components/schemas/"

ERROR_CONTENT = {"application/problem+json": {"schema": {"$ref": SCHEMAS + ProblemDetails.__name__}}}
"""Content of an error response."""


def operation_id(route: APIRoute) -> str:
    """Return the id of an operation: the name of its function, from which generated clients name theirs."""
    return route.name


def complete_openapi(app: FastAPI) -> None:
    """Make the app serve the completed document."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        _, errors = models_json_schema([(ProblemDetails, "serialization")], ref_template=SCHEMAS + "{model}")
        document["components"]["schemas"] |= errors["$defs"]
        _tuples_to_arrays(document["components"]["schemas"])
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _tuples_to_arrays(schema: Any) -> None:
    """Replace prefixItems by items, in place. Our tuples have one type, and many tools do not support prefixItems."""
    if isinstance(schema, dict):
        if "prefixItems" in schema:
            schema["items"] = schema.pop("prefixItems")[0]
        schema = list(schema.values())
    if isinstance(schema, list):
        for each in schema:
            _tuples_to_arrays(each)
