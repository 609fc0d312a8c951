"""The path under which a proxy serves the service."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class RootPath:
    """Middleware that sets the path of the proxy. Requests may have it or not: some proxies remove it."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app, self._path = app, path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if self._path:
            scope["root_path"] = self._path
        await self._app(scope, receive, send)
