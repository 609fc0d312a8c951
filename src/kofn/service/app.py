"""The application: routes, problems, metrics and, if it is installed, the dashboard at /."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kofn import __version__
from kofn.campaigns import store_at
from kofn.service import models
from kofn.service.auth import Doorman
from kofn.service.context import Desk
from kofn.service.errors import handle_problems
from kofn.service.metrics import Measured
from kofn.service.routes import around, router
from kofn.service.settings import Settings
from kofn.service.tokens import any_token

COMPRESS_FROM = 16_384
"""Bytes: what a page loads is worth compressing, a batch of decisions is not."""

SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; style-src 'self'; "
        "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
}
"""On every answer: a name with a script in it stays a name, whatever shows it."""


def from_environment() -> FastAPI:
    """The application as `kofn serve` set it up, in each of its processes."""
    return make_app(Settings.kept())


def make_app(settings: Settings | None = None) -> FastAPI:
    """The service over the campaigns of a store."""
    settings = settings or Settings()
    store = store_at(settings.store)
    desk = Desk(store, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        desk.live.stop_on_signals()
        yield
        desk.live.stop()
        await run_in_threadpool(store.close)

    app = FastAPI(
        title="kofn",
        version=__version__,
        summary="Pick the best K of N when all you ever see is one number.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.settings, app.state.desk, app.state.doorman = settings, desk, Doorman(store, settings)
    handle_problems(app)
    app.include_router(router)
    app.include_router(around)
    _add_health(app, desk)
    _add_dashboard(app)
    app.add_middleware(GZipMiddleware, minimum_size=COMPRESS_FROM, compresslevel=1)
    app.add_middleware(Measured, metrics=desk.metrics)
    app.add_middleware(Safe)
    return app


class Safe:
    """Middleware that puts `SAFE` on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SAFE)
            await send(message)

        await self._app(scope, receive, sent)


def _add_health(app: FastAPI, desk: Desk) -> None:
    @app.get("/health", response_model=models.Health, tags=["about"])
    def health() -> Response:
        """Whether the service and its store answer. It needs no token, and says nothing else."""
        any_token(desk.store)  # the cheapest question that a store of ours can answer
        return JSONResponse({"status": "ok", "version": __version__})


def _add_dashboard(app: FastAPI) -> None:
    folder = Path(str(files("kofn.service"))) / "static"
    if folder.is_dir():
        app.mount("/", StaticFiles(directory=folder, html=True), name="dashboard")
