"""Numbers for Prometheus: requests of this service's processes, and its campaigns as the store has them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kofn.campaigns import Store, campaigns

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the folder in which processes share their numbers."""


class Metrics:
    """Counts requests, decisions and rewards. With many processes, each answers for all of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "kofn_requests", "Requests answered.", ["method", "route", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "kofn_request_seconds", "Seconds to answer.", ["route"], buckets=SECONDS, registry=self._registry
        )
        self.decisions = Counter("kofn_decisions", "Decisions handed out.", registry=self._registry)
        self.rewards = Counter("kofn_rewards", "Rewards told.", ["result"], registry=self._registry)

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        shared = self._registry
        if FOLDER in os.environ:
            shared = CollectorRegistry()
            MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        stored = CollectorRegistry()
        stored.register(_Stored(self._store))
        return generate_latest(shared) + generate_latest(stored)


class _Stored:
    """The campaigns of a store, read when Prometheus asks."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        """One family for each number."""
        found = campaigns(self._store)
        for name, says in {
            "plays": "Decisions and plays told as totals.",
            "rewards": "Plays whose reward is known.",
            "in_flight": "Decisions that wait for their reward.",
            "expired": "Decisions that have waited too long.",
            "arms": "Arms.",
            "mean": "Mean reward.",
        }.items():
            family = GaugeMetricFamily(f"kofn_campaign_{name}", says, labels=["campaign", "state"])
            for each in found:
                if (value := getattr(each, name)) is not None:
                    family.add_metric([each.name, each.state], value)
            yield family


class Measured:
    """Middleware that counts and times every request, by its route's template."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 500

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._count(scope, status, time.perf_counter() - begun)
            await send(message)

        await self._app(scope, receive, sent)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in {"GET", "POST", "DELETE"} else "other"
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
