"""Errors as application/problem+json (RFC 9457): what came, what was expected, the way out."""

from __future__ import annotations

import logging
import re
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as AnyHTTPException

from kofn.core import (
    BadInput,
    CampaignExists,
    Conflict,
    KofnError,
    NoSuchCampaign,
    NotRunning,
    StoreError,
    TooManySubsets,
    UnknownDecision,
)

log = logging.getLogger("kofn.service")

URN = "urn:kofn:"
"""Before the name of a problem, in its `type`."""

MOST_ERRORS = 10
"""Fields of a request that an answer complains about; the others will be like them."""

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
"""The status of an error; the first class that fits counts."""


class Problem(HTTPException):
    """An answer that is a problem: raised anywhere below a route."""

    def __init__(self, status: int, name: str, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, detail, headers)
        self.name = name


def problem(status: int, name: str, detail: str, headers: dict[str, str] | None = None, **more: Any) -> JSONResponse:
    """The answer that says what is wrong."""
    body = {"type": URN + name, "title": name.replace("-", " ").capitalize(), "status": status, "detail": detail}
    return JSONResponse(body | more, status, headers, media_type="application/problem+json")


def dashed(name: str) -> str:
    """A class's name as part of an address.

    >>> dashed("NoSuchCampaign")
    'no-such-campaign'
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


def handle_problems(app: FastAPI) -> None:
    """Make every error of the app a problem."""
    app.add_exception_handler(KofnError, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(AnyHTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


async def _refused(request: Request, why: Exception) -> JSONResponse:
    status = next((status for kind, status in STATUS.items() if isinstance(why, kind)), 500)
    name, detail = dashed(type(why).__name__), str(why)
    if isinstance(why, NoSuchCampaign):  # the store's own words name other campaigns, which are not everybody's to know
        detail = f"there is no campaign {request.path_params.get('name', '')!r}"
    if status < 500:
        return problem(status, name, detail)
    log.error("%s %s: %s", request.method, request.url.path, why)
    says = "the store does not answer, or is busy: try again"
    return problem(status, name, says if status == 503 else "something is wrong here; the log says more", RETRY)


RETRY = {"Retry-After": "1"}


async def _malformed(_: Request, why: Exception) -> JSONResponse:
    assert isinstance(why, RequestValidationError)
    errors = [
        {"where": ".".join(str(part) for part in each["loc"])[:200], "says": str(each["msg"])[:500]}
        for each in why.errors()[:MOST_ERRORS]
    ]
    detail = "; ".join(f"{each['where']}: {each['says']}" for each in errors)
    return problem(422, "malformed-request", detail, errors=errors)


async def _http(_: Request, why: Exception) -> JSONResponse:
    assert isinstance(why, AnyHTTPException)
    name = why.name if isinstance(why, Problem) else _NAMES.get(why.status_code, "refused")
    return problem(why.status_code, name, str(why.detail), dict(why.headers or {}))


_NAMES = {400: "malformed-request", 404: "not-found", 405: "method-not-allowed"}


async def _unexpected(request: Request, why: Exception) -> JSONResponse:
    log.error("%s %s", request.method, request.url.path, exc_info=why)
    return problem(500, "internal-error", "something is wrong here; the log says more")
