"""Errors as problem details (RFC 9457, application/problem+json)."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import Scope

from kofn.core import (
    BadInput,
    CampaignExists,
    Conflict,
    KofnError,
    NoSuchCampaign,
    NotRunning,
    StateError,
    StoreError,
    TooManySubsets,
    UnknownDecision,
)

log = logging.getLogger("kofn.service")

URN = "urn:kofn:"
"""Prefix of the `type` of an error."""

MAX_FIELD_ERRORS = 10
"""Number of invalid fields that a response lists. Further invalid fields are left out."""

MAX_DETAIL = 2000
"""Longest `detail` of an error, in characters. The rest is left out: a message may repeat a part of the request."""

STATUS: dict[type[KofnError], int] = {
    NoSuchCampaign: 404,
    CampaignExists: 409,
    Conflict: 409,
    NotRunning: 409,
    UnknownDecision: 422,
    TooManySubsets: 422,
    BadInput: 422,
    StoreError: 503,
}
"""HTTP status of each error. The first matching class applies."""

HEAD = "kofn.head"
"""Key of the scope that marks a request as HEAD, for routes whose body does not end."""

RETRY_HEADERS = {"Retry-After": "1"}

HTTP_NAMES = {400: "malformed-request", 404: "not-found", 405: "method-not-allowed"}
"""Names of errors that the framework raises, by status."""

HTTP_DETAILS = {
    404: "there is no such route: /api/openapi.json lists all routes",
    405: "the route does not accept this method: /api/openapi.json lists all routes",
}
"""Messages of errors that the framework raises, where its own say too little."""

INTERNAL = "internal error: see the log of the service"
BUSY = "the store does not respond or is busy: try again"
BROKEN = "what the campaign has stored cannot be read or computed: see the log of the service"


class ApiError(HTTPException):
    """An error of the API itself, with the name that its `type` ends in."""

    def __init__(self, status: int, name: str, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, detail, headers)
        self.name = name


class ProblemResponse(JSONResponse):
    """Problem details. Text that UTF-8 cannot represent, such as a lone surrogate of the request, is escaped."""

    media_type = "application/problem+json"

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def error_response(
    status: int, name: str, detail: str, headers: dict[str, str] | None = None, **more: Any
) -> JSONResponse:
    """Return problem details as a response."""
    detail = detail if len(detail) <= MAX_DETAIL else f"{detail[:MAX_DETAIL]}..."
    body = {"type": URN + name, "title": name.replace("-", " ").capitalize(), "status": status, "detail": detail}
    return ProblemResponse(body | more, status, headers)


def route_path(scope: Scope) -> str:
    """Return the path of a request as a template, for the log and for metrics: names of campaigns may be private."""
    return str(getattr(scope.get("route"), "path", "other"))


def is_head(scope: Scope) -> bool:
    """Return whether a request is a HEAD request, which routes see as GET."""
    return HEAD in scope


def kebab_case(name: str) -> str:
    """Return the name of a class in kebab case.

    >>> kebab_case("NoSuchCampaign")
    'no-such-campaign'
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


def add_error_handlers(app: FastAPI) -> None:
    """Make the app return every error as problem details."""
    app.add_exception_handler(KofnError, _kofn_error)
    app.add_exception_handler(RequestValidationError, _malformed_request)
    app.add_exception_handler(StarletteHTTPException, _http_error)
    app.add_exception_handler(Exception, lambda request, error: internal_error(request.scope, error))


async def response_to(request: Request, error: KofnError | ApiError) -> JSONResponse:
    """Return an error as problem details."""
    return await (_kofn_error if isinstance(error, KofnError) else _http_error)(request, error)


async def _kofn_error(request: Request, error: Exception) -> JSONResponse:
    status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)
    name, detail = kebab_case(type(error).__name__), str(error)
    if isinstance(error, NoSuchCampaign):  # the original message lists other campaigns, which the client may not see
        detail = f"there is no campaign {request.path_params.get('name', '')!r}"
    if status < 500:
        return error_response(status, name, detail)
    broken = isinstance(error, StateError)
    log.error("%s %s: %s", request.method, route_path(request.scope), error, exc_info=error if broken else None)
    return error_response(status, name, BROKEN if broken else BUSY if status == 503 else INTERNAL, RETRY_HEADERS)


async def _malformed_request(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    errors = [
        {"where": ".".join(str(part) for part in each["loc"])[:200], "message": str(each["msg"])[:500]}
        for each in error.errors()[:MAX_FIELD_ERRORS]
    ]
    detail = "; ".join(f"{each['where']}: {each['message']}" for each in errors)
    return error_response(422, "malformed-request", detail, errors=errors)


async def _http_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StarletteHTTPException)
    status, detail = error.status_code, str(error.detail)
    if isinstance(error, ApiError):
        name = error.name
    else:
        name, detail = HTTP_NAMES.get(status, "refused"), HTTP_DETAILS.get(status, detail)
    return error_response(status, name, detail, dict(error.headers or {}))


def internal_error(scope: Scope, error: Exception) -> JSONResponse:
    """Log an unexpected error, and return problem details that do not reveal it."""
    log.error("%s %s", scope["method"], route_path(scope), exc_info=error)
    return error_response(500, "internal-error", INTERNAL)
