"""Decisions and rewards without the framework's routing and dependencies, which take most of a short request's time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kofn.core import KofnError
from kofn.service import models, routes
from kofn.service.auth import check_scope
from kofn.service.bodies import THREAD_FROM, is_json
from kofn.service.context import Context
from kofn.service.errors import ApiError, response_to

Endpoint = Callable[[Context, str, Any], Awaitable[Response]]

ENDPOINTS: dict[str, tuple[Endpoint, type[BaseModel]]] = {
    "decisions": (routes.decide, models.DecisionRequest),
    "rewards": (routes.reward, models.Rewards),
}
"""The functions of the routes, and their bodies, by the last part of their path."""


class FastPath:
    """Middleware that calls the functions of two routes directly, with the same checks.

    What is not an ordinary request, such as a large or malformed body, is left to the routes.
    """

    def __init__(self, app: ASGIApp, api: FastAPI) -> None:
        self._app, self._api = app, api
        paths = {f"/api/campaigns/{{name}}/{last}": last for last in ENDPOINTS}
        posts = (route for route in routes.api_router.routes if "POST" in (getattr(route, "methods", None) or ()))
        self._routes: dict[str, Any] = {
            paths[path]: route for route in posts if (path := getattr(route, "path", "")) in paths
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        name, last = _match(scope)
        request = Request(scope, receive)
        if last is None or not _is_ordinary(request):
            await self._app(scope, receive, send)
            return
        route, (endpoint, model) = self._routes[last], ENDPOINTS[last]
        before = {key: scope.get(key) for key in ("route", "path_params")}
        scope["route"], scope["path_params"] = route, {"name": name}
        try:
            access = await self._api.state.authenticator.access(request)
            check_scope(access, request, route.path)
            request.state.access = access
            body = await request.body()
            try:
                parsed = model.__pydantic_validator__.validate_json(body)
            except ValidationError:  # the route explains it
                scope.update(before)
                await self._app(scope, _replay(body, receive), send)
                return
            response = await endpoint(self._api.state.context, name, parsed)
        except (KofnError, ApiError) as error:
            response = await response_to(request, error)
        await response(scope, receive, send)


def _match(scope: Scope) -> tuple[str, str | None]:
    """Return the name of the campaign and the last part of the path; None if the request is for another route."""
    if scope["type"] == "http" and scope["method"] == "POST":
        path, root = scope["path"], scope.get("root_path", "")
        parts = (path[len(root) :] if root and path.startswith(f"{root}/") else path).split("/")
        if len(parts) == 5 and parts[1:3] == ["api", "campaigns"] and parts[4] in ENDPOINTS and len(parts[3]) <= 200:
            return parts[3], parts[4]
    return "", None


def _is_ordinary(request: Request) -> bool:
    length = request.headers.get("content-length", "")
    return len(length) < 10 and length.isascii() and length.isdigit() and int(length) < THREAD_FROM and is_json(request)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives a body which has been read, and then what follows."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again
