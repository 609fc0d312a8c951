"""Decisions and reports about them without the framework, which takes most of a short request's time.

Route functions, checks and errors are the same as for all requests; only the framework's routing and dependencies are
left out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kofn.core import KofnError
from kofn.service.api import routes
from kofn.service.api.app_state import AppState
from kofn.service.messages import models
from kofn.service.messages.bodies import THREAD_FROM, is_json
from kofn.service.messages.errors import ApiError, internal_error, response_to
from kofn.service.security.auth import Access, Authenticator, check_scope

Endpoint = Callable[[AppState, str, Any, Access], Awaitable[Response]]

ENDPOINTS: dict[str, tuple[Endpoint, type[BaseModel]]] = {
    "decisions": (routes.decide, models.DecisionRequest),
    "rewards": (routes.reward, models.Rewards),
    "events": (routes.add_events, models.AddedEvents),
    "records": (routes.record_metrics, models.Records),
}
"""The functions of the routes, and their bodies, by the last part of their path."""

PATHS = {f"/api/campaigns/{{name}}/{last}": last for last in ENDPOINTS}


class FastPath:
    """Handles ordinary requests for decisions, and reports about them.

    What is not ordinary, such as a large or malformed body, is left to the framework.
    """

    def __init__(self, framework: ASGIApp, shared: AppState, authenticator: Authenticator) -> None:
        self._framework, self._shared, self._authenticator = framework, shared, authenticator
        self._root = shared.settings.root_path
        posts = (route for route in routes.api_router.routes if "POST" in (getattr(route, "methods", None) or ()))
        self._routes: dict[str, Any] = {
            PATHS[path]: route for route in posts if (path := getattr(route, "path", "")) in PATHS
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        name, last = self._match(scope)
        headers = dict(reversed(scope["headers"])) if last is not None else {}  # the first of equal ones, as elsewhere
        if last is None or not _is_ordinary(headers):
            await self._framework(scope, receive, send)
            return
        scope["route"], scope["path_params"] = self._routes[last], {"name": name}
        try:
            response = await self._response(Request(scope, receive), name, last)
        except _NotOrdinary as unusual:
            del scope["route"], scope["path_params"]
            await self._framework(scope, _replay(unusual.message, receive), send)
            return
        start = {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
        await send(start)
        await send({"type": "http.response.body", "body": response.body})

    def _match(self, scope: Scope) -> tuple[str, str | None]:
        """Return the name of the campaign and the last part of the path; None if the request is for another route."""
        if scope["type"] == "http" and scope["method"] == "POST":
            path, root = scope["path"], self._root
            parts = (path[len(root) :] if root and path.startswith(f"{root}/") else path).split("/")
            if len(parts) == 5 and parts[4] in ENDPOINTS and parts[1:3] == ["api", "campaigns"]:
                return parts[3], parts[4] if 0 < len(parts[3]) <= models.MAX_NAME else None
        return "", None

    async def _response(self, request: Request, name: str, last: str) -> Response:
        """Return the response. The token is checked before the body is received."""
        endpoint, model = ENDPOINTS[last]
        try:
            access = await self._authenticator.access(request)
            check_scope(access, request, self._routes[last].path)
            request.scope.setdefault("state", {})["access"] = access
            message = await request.receive()
            if message["type"] != "http.request" or message.get("more_body"):  # it arrives in pieces, or not at all
                raise _NotOrdinary(message)
            try:
                parsed = model.__pydantic_validator__.validate_json(message["body"])
            except ValidationError:  # the framework explains it
                raise _NotOrdinary(message) from None
            return await endpoint(self._shared, name, parsed, access)
        except (KofnError, ApiError) as error:
            return await response_to(request, error)
        except _NotOrdinary:
            raise
        except Exception as error:
            return internal_error(request.scope, error)


class _NotOrdinary(Exception):
    """A request that the framework must handle, with the first message of its body, which has been received."""

    def __init__(self, message: Message) -> None:
        super().__init__()
        self.message = message


def _is_ordinary(headers: Mapping[bytes, bytes]) -> bool:
    length, kind = headers.get(b"content-length", b""), headers.get(b"content-type", b"")
    if not (len(length) < 10 and length.isdigit() and int(length) < THREAD_FROM):
        return False
    return kind == b"application/json" or is_json(kind.decode("latin-1"))


def _replay(first: Message, receive: Receive) -> Receive:
    """Return a function that receives a message which has been received, and then what follows."""
    messages = [first]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again
