"""Requests of web pages of other origins: decisions and reports, for the origins that the operator allows.

Nothing else of the service has CORS headers, so no page of another origin can read it, whatever token it holds.
"""

from __future__ import annotations

import re

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from kofn.service.settings import ServiceSettings

PATH = re.compile(r"/api/campaigns/[^/]+/(decisions|rewards|events|records)\Z")
"""End of the paths that web pages of allowed origins may post to."""

PREFLIGHT_SECONDS = 7200
"""Seconds for which a browser need not ask again, the most that Chromium accepts. Lower values make pages slower, and a
change of --allow-origin effective sooner."""


class CrossOrigin:
    """Middleware that applies Starlette's CORSMiddleware to the routes that web pages may use, and to no others."""

    def __init__(self, app: ASGIApp, settings: ServiceSettings) -> None:
        self._app = app
        self._for_pages = CORSMiddleware(
            app,
            allow_origins=settings.allow_origins,
            allow_methods=["POST"],
            allow_headers=["Authorization"],
            max_age=PREFLIGHT_SECONDS,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        is_for_pages = scope["type"] == "http" and scope["method"] in ("POST", "OPTIONS") and PATH.search(scope["path"])
        await (self._for_pages if is_for_pages else self._app)(scope, receive, send)
