"""Requests of web pages of other origins: decisions and rewards, for the origins that the operator allows.

A browser asks before it sends a token to another origin (a preflight), and reads a response only if that allows it.
Nothing else of the service has these headers, so no page of another origin can read it, whatever token it holds.
"""

from __future__ import annotations

import re

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kofn.service.messages.errors import ApiError
from kofn.service.settings import Settings

PATH = re.compile(r"/api/campaigns/[^/]+/(decisions|rewards)\Z")
"""End of the paths that web pages of allowed origins may post to."""

PREFLIGHT_SECONDS = 7200
"""Seconds for which a browser need not ask again, the most that Chromium accepts. Lower values make pages slower, and a
change of --allow-origin effective sooner."""


class CrossOrigin:
    """Middleware that lets pages of allowed origins read the responses to decisions and rewards."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._origins = app, frozenset(settings.allow_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or not PATH.search(scope["path"]):
            await self._app(scope, receive, send)
            return
        origin = Headers(scope=scope).get("origin")
        more = [(b"vary", b"Origin")]  # caches must not give one origin the response to another
        if origin in self._origins and scope["method"] in ("POST", "OPTIONS"):
            more.append((b"access-control-allow-origin", origin.encode("latin-1")))

        async def send_with_origin(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *more]
            await send(message)

        await self._app({**scope, "extensions": {}}, receive, send_with_origin)  # all responses get these headers


preflight_router = APIRouter(include_in_schema=False)


@preflight_router.options("/api/campaigns/{name}/decisions")
@preflight_router.options("/api/campaigns/{name}/rewards")
async def answer_preflight(request: Request) -> Response:
    """Say what a page of an allowed origin may send. No token is required: a browser does not send it here."""
    origin, settings = request.headers.get("origin"), request.app.state.settings
    if origin not in settings.allow_origins:
        detail = (
            "pages of this origin may not use the service: start it with --allow-origin, such as https://shop.example"
        )
        raise ApiError(405, "method-not-allowed", detail, {"Allow": "GET, POST"})
    headers = {
        "Access-Control-Allow-Methods": "POST",
        "Access-Control-Allow-Headers": "Authorization, Content-Type",
        "Access-Control-Max-Age": str(PREFLIGHT_SECONDS),
    }
    return Response(status_code=204, headers=headers)
