"""GET /metrics. It answers also while the store does not respond, because that is when people look at it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from kofn.core import KofnError
from kofn.service.messages.errors import ApiError
from kofn.service.messages.openapi import operation_id
from kofn.service.monitoring.limited_call import LimitedCall
from kofn.service.monitoring.metrics import Metrics

STORE_LIMIT = 2.0
"""Seconds until the store counts as not responding. Higher values tolerate a slower store, and delay a scrape more."""


class MetricsRoute(APIRoute):
    """A route that checks the token as far as the store responds.

    While it does not, no token can be checked: the response then has only the numbers of the processes.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route, preceded by the check."""
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            checking = asyncio.ensure_future(request.app.state.authenticator.access(request))
            checking.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait([checking], timeout=STORE_LIMIT)
            try:
                access = checking.result() if checking.done() else None
            except KofnError:
                access = None
            if access is None:
                metrics: Metrics = request.app.state.shared.metrics
                return _text(metrics.text_without_store(requests=False))
            if access.campaign is not None:
                detail = "metrics cover all campaigns: use a token that is not limited to one campaign"
                raise ApiError(403, "forbidden", detail)
            return await inner(request)

        return handler


metrics_router = APIRouter(route_class=MetricsRoute, generate_unique_id_function=operation_id)


@metrics_router.get("/metrics", response_class=Response, tags=["service"])
async def get_metrics(request: Request) -> Response:
    """Return metrics for Prometheus. A token for one campaign is not accepted.

    While the store does not respond, `kofn_store_up` is 0 and metrics of campaigns are missing.
    """
    state, metrics = request.app.state, request.app.state.shared.metrics
    if not hasattr(state, "read_metrics"):
        state.read_metrics = LimitedCall(metrics.text, STORE_LIMIT)
    try:
        return _text(await state.read_metrics())
    except (KofnError, TimeoutError):
        return _text(metrics.text_without_store())


def _text(metrics: bytes) -> Response:
    return Response(metrics, media_type="text/plain; version=0.0.4")
