"""Headers that keep a browser from running a script that hides in the name of an arm."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

AS_DECLARED = (b"x-content-type-options", b"nosniff")
"""In every response: a browser takes it for what it says that it is."""

OF_DOCUMENTS = [(b"referrer-policy", b"no-referrer"), (b"content-security-policy", _POLICY.encode())]
"""In every response that a browser may show as a page, which JSON is not. Headers take a tenth of a short request."""


class SecurityHeaders:
    """Middleware that adds these headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = message["headers"]
                is_json = (b"content-type", b"application/json") in given
                message["headers"] = [*given, AS_DECLARED, *([] if is_json else OF_DOCUMENTS)]
            await send(message)

        await self._app(scope, receive, send_with_headers)
