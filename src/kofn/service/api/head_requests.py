"""HEAD requests: every GET route answers them, with the headers of GET and without the body."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEAD = "kofn.head"
"""Key of the scope that marks a request as HEAD, for routes whose body does not end."""


def is_head(scope: MutableMapping[str, Any]) -> bool:
    """Return whether a request is a HEAD request, which the routes see as GET."""
    return bool(scope.get(HEAD))


class HeadRequests:
    """Middleware that handles HEAD as GET and leaves out the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, "method": "GET", HEAD: True}, receive, send_without_body)
