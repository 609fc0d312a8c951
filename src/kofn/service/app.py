"""The FastAPI application: routes, error handlers, metrics, and the dashboard at /."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.staticfiles import StaticFiles
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from kofn import __version__
from kofn.campaigns import store_at
from kofn.campaigns.learner import Learner
from kofn.service.api.app_state import AppState
from kofn.service.api.entrance import Entrance
from kofn.service.api.fast_path import FastPath
from kofn.service.api.routes import api_router
from kofn.service.api.snippet import snippet_router
from kofn.service.background.watch import BackgroundLoop, Watcher
from kofn.service.background.webhook import POLL_SECONDS, SECRET, Webhook
from kofn.service.messages.errors import add_error_handlers
from kofn.service.messages.openapi import complete_openapi
from kofn.service.monitoring.health import Readiness, health_router
from kofn.service.monitoring.metrics_route import metrics_router
from kofn.service.security.auth import Authenticator
from kofn.service.security.cross_origin import CrossOrigin
from kofn.service.settings import ServiceSettings

COMPRESS_FROM = 16_384
"""Smallest response, in bytes, that is compressed. Lower values compress batches of decisions, which costs time."""

SWITCH_INTERVAL = 0.0005
"""Seconds that a thread may run Python code while another one waits. The event loop and the thread that commits take
turns after each statement; with Python's 0.005 they would wait for each other most of the time."""


GARBAGE_THRESHOLD = 10_000
"""New objects after which Python looks for cyclic garbage. Requests make hardly any: with Python's 700, looking for it
takes a tenth of the processor time. A higher value saves little more, and keeps garbage for longer."""


def app_from_environment() -> Service:
    """Return the application with the settings that `kofn serve` put into the environment."""
    app = make_app(ServiceSettings.from_environment())
    tune_interpreter()
    return app


def tune_interpreter() -> None:
    """Set up a process that does nothing but serve. What has been loaded stays, so it is never searched for garbage."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.set_threshold(GARBAGE_THRESHOLD)
    gc.collect()
    gc.freeze()


class Service(FastAPI):
    """The application: the most frequent requests take the fast path, all others the framework's."""

    entrance: Entrance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if root := self.state.settings.root_path:  # requests may have it or not: some proxies remove it
            scope["root_path"] = root
        await self.entrance(scope, receive, send)

    def stop_on_signals(self) -> None:
        """On SIGINT and SIGTERM, end live updates, and each connection after its next response.

        Otherwise the server would wait for live updates before it stops.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            previous = signal.getsignal(number)
            if not callable(previous):
                continue

            def stop(given: int, frame: Any, previous: Callable[..., Any] = previous) -> None:
                self.entrance.stopping = True
                self.state.shared.live.stop()
                previous(given, frame)

            signal.signal(number, stop)


def make_app(settings: ServiceSettings | None = None) -> Service:
    """Return the application that serves the campaigns of a store."""
    settings = settings or ServiceSettings()
    store = store_at(settings.store)
    shared = AppState(store, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        app.stop_on_signals()
        learner = Learner(store)
        loops = [BackgroundLoop("learner", learner.step, 0.0), *_background_loops(shared)]
        for each in loops:
            each.start()
        yield
        shared.live.stop()
        for each in loops:
            await run_in_threadpool(each.stop)
        learner.stop()
        await run_in_threadpool(store.close)

    app = Service(
        title="kofn",
        version=__version__,
        summary="Choose the best K of N arms from one reward per subset.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # FastAPI's pages load scripts from other hosts
        redoc_url=None,
        lifespan=lifespan,
    )
    authenticator = Authenticator(store, settings)
    fast_path = FastPath(super(Service, app).__call__, shared, authenticator)
    app.entrance = Entrance(CrossOrigin(fast_path, settings) if settings.allow_origins else fast_path, shared)
    app.state.settings, app.state.shared, app.state.authenticator = settings, shared, authenticator
    app.state.readiness = Readiness(store)
    add_error_handlers(app)
    complete_openapi(app)
    for router in (api_router, metrics_router, health_router, snippet_router):
        app.router.routes.extend(router.routes)  # include_router would analyse all of them again, which takes 0.1 s
    _add_dashboard(app)
    app.add_middleware(GZipMiddleware, minimum_size=COMPRESS_FROM, compresslevel=1)
    return app


def _background_loops(shared: AppState) -> list[BackgroundLoop]:
    """Return the work that one process of the service does besides requests."""
    store, settings = shared.store, shared.settings
    loops = [BackgroundLoop("watcher", Watcher(store, settings.watch_interval).step, settings.watch_interval)]
    if settings.webhook:
        webhook = Webhook(store, settings.webhook, os.environ.get(SECRET), shared.metrics)
        loops.append(BackgroundLoop("webhook", webhook.step, POLL_SECONDS))
    return loops


def _add_dashboard(app: FastAPI) -> None:
    folder = Path(str(files("kofn.service"))) / "static"
    if folder.is_dir():
        app.mount("/", StaticFiles(directory=folder, html=True), name="dashboard")
