"""What every request passes through: ids, headers, log and metrics. HEAD is GET without a body."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kofn.service.api.app_state import AppState
from kofn.service.messages.errors import HEAD
from kofn.service.monitoring import logs
from kofn.service.security.headers import protected


class Entrance:
    """Handles every request. Once the service is `stopping`, each response ends its connection."""

    def __init__(self, app: ASGIApp, shared: AppState) -> None:
        self._app, self._shared = app, shared
        self.stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if is_head := scope["method"] == "HEAD":
            scope = {**scope, "method": "GET", HEAD: True}
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        id = logs.id_of(given.decode("latin-1"))
        reset, begun, status, answered = logs.request_id.set(id), time.perf_counter(), 0, False

        async def send_on(message: Message) -> None:
            nonlocal status, answered
            if message["type"] == "http.response.start":
                status = message["status"]
                more = [(b"x-request-id", id.encode()), *([(b"connection", b"close")] if self.stopping else [])]
                message["headers"] = [*protected(message["headers"]), *more]
                self._shared.metrics.count_request(scope, status, time.perf_counter() - begun)
            elif message["type"] == "http.response.body":
                answered = not message.get("more_body")
                if is_head:
                    message = {**message, "body": b""}
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        except Exception:
            if not answered:  # else the framework raises the error again that it has answered
                raise
        finally:
            if self._shared.settings.access_log:
                logs.log_request(scope, status, time.perf_counter() - begun)
            logs.request_id.reset(reset)
