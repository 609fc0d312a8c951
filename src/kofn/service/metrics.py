"""Prometheus metrics: requests of this service's processes, and the campaigns of its store."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kofn.campaigns import Store, campaigns

LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the latency histogram, in seconds."""

MULTIPROCESS_DIR = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable that names the folder in which processes share their metrics."""

CAMPAIGN_METRICS = {
    "plays": "Decisions, and plays reported as totals.",
    "rewards": "Plays with a known reward.",
    "in_flight": "Decisions without a reward that have not expired.",
    "expired": "Decisions without a reward that have expired.",
    "arms": "Active arms.",
    "mean": "Mean reward of all rewarded plays.",
}
"""Fields of a campaign's summary that are exported, and their help texts."""


class Metrics:
    """Counts requests, decisions and rewards. With several processes, each reports the sum over all."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "kofn_requests", "HTTP requests.", ["method", "route", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "kofn_request_seconds",
            "Latency of HTTP requests in seconds.",
            ["route"],
            buckets=LATENCY_BUCKETS,
            registry=self._registry,
        )
        self.decisions = Counter("kofn_decisions", "Decisions handed out.", registry=self._registry)
        self.rewards = Counter(
            "kofn_rewards",
            "Rewards received, new (accepted) or already known (repeated).",
            ["result"],
            registry=self._registry,
        )

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        shared = self._registry
        if MULTIPROCESS_DIR in os.environ:
            shared = CollectorRegistry()
            MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        stored = CollectorRegistry()
        stored.register(_CampaignCollector(self._store))
        return generate_latest(shared) + generate_latest(stored)


class _CampaignCollector:
    """Reads the campaigns of a store whenever Prometheus scrapes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        """Yield one metric family per entry of `CAMPAIGN_METRICS`."""
        found = campaigns(self._store)
        for name, description in CAMPAIGN_METRICS.items():
            family = GaugeMetricFamily(f"kofn_campaign_{name}", description, labels=["campaign", "state"])
            for each in found:
                if (value := getattr(each, name)) is not None:
                    family.add_metric([each.name, each.state], value)
            yield family


class MetricsMiddleware:
    """Middleware that counts and times every request by the template of its route."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()

        async def send_and_count(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(scope, message["status"], time.perf_counter() - started)
            await send(message)

        await self._app(scope, receive, send_and_count)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in {"GET", "POST", "DELETE"} else "other"
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
