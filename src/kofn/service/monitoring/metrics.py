"""Prometheus metrics: requests and resources of this service's processes, and the campaigns of its store."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from sqlalchemy import Connection, func, select
from sqlalchemy.pool import QueuePool
from starlette.types import Scope

from kofn.campaigns import Store
from kofn.campaigns.fold import Row, lift_of
from kofn.campaigns.reports.listing import recent_rows, totals
from kofn.campaigns.reports.view import summary
from kofn.campaigns.serving import SERVING
from kofn.campaigns.store.schema import ESTIMATES
from kofn.core.responses import Rewarded, Summary
from kofn.service.messages.errors import route_path

LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the latency histograms, in seconds."""

MULTIPROCESS_DIR = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable that names the folder in which processes share their metrics."""

MAX_CAMPAIGNS = 100
"""Campaigns that have their own metrics: those that changed last. The sums cover all campaigns. Higher values make a
scrape larger, and Prometheus keep more series."""

POOL_INTERVAL = 1.0
"""Seconds between two updates of the numbers of the connection pool, at least. They are updated by requests."""

CAMPAIGN_METRICS = {
    "plays": "Decisions, and plays reported as totals.",
    "rewards": "Plays with a known reward.",
    "in_flight": "Decisions without a reward that have not expired.",
    "expired": "Decisions without a reward that have expired.",
    "arms": "Active arms.",
    "mean": "Mean reward of all rewarded plays, net of costs.",
    "failing": "Whether the policy cannot learn (1): see the log. The campaign serves its last plan.",
}
"""Fields of a campaign's summary that are exported, and their help texts."""

TOTALS = {
    "campaigns": "Campaigns of the store.",
    "plays": "Decisions, and plays reported as totals, of all campaigns.",
    "rewards": "Plays with a known reward, of all campaigns.",
    "in_flight": "Decisions without a reward that have not expired, of all campaigns.",
    "expired": "Decisions without a reward that have expired, of all campaigns.",
}
"""Sums over all campaigns that are exported, and their help texts."""


class Metrics:
    """Counts requests, decisions and rewards. With several processes, each reports the sum over all."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._registry = CollectorRegistry()
        self._pool_updated = -POOL_INTERVAL
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
        rewards = Counter(
            "kofn_rewards",
            "Rewards, events and metrics received: new (accepted), already known (repeated), after the window (late).",
            ["result"],
            registry=self._registry,
        )
        results = "accepted", "repeated", "forgotten", "late", "refused"
        self._rewards = {result: rewards.labels(result) for result in results}
        self.webhook = Counter(
            "kofn_webhook_posts",
            "Events posted to the webhook: delivered, or failed and tried again.",
            ["result"],
            registry=self._registry,
        )
        self._lock_wait = Histogram(
            "kofn_store_wait_seconds",
            "Seconds that a writing transaction waited for the lock of the store.",
            buckets=LATENCY_BUCKETS,
            registry=self._registry,
        )
        self._connections = Gauge(
            "kofn_store_connections",
            "Connections to the database: in use, and idle in the pool.",
            ["state"],
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self._of_route: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}  # finding them takes long
        store.observe_wait = self._lock_wait.observe

    def count_request(self, scope: Scope, status: int, seconds: float) -> None:
        """Count and time one request by the template of its route."""
        route = route_path(scope)
        method = scope["method"] if scope["method"] in {"GET", "POST", "DELETE"} else "other"
        found = self._of_route.get((method, route, status))
        if found is None:
            counter, seconds_of = self.requests.labels(method, route, str(status)), self.seconds.labels(route)
            found = self._of_route[method, route, status] = counter, seconds_of
        found[0].inc()
        found[1].observe(seconds)
        self.update_pool()

    def count_rewards(self, done: Rewarded) -> None:
        """Count the rewards of one request."""
        numbers = done.accepted, done.repeated, done.forgotten, done.late, len(done.refused)
        for counter, number in zip(self._rewards.values(), numbers, strict=True):
            if number:
                counter.inc(number)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus; or raise a StoreError if the store does not respond."""
        stored = CollectorRegistry()
        stored.register(_Campaigns(self._store))
        return self.process_text() + generate_latest(stored) + _store_up(True)

    def process_text(self, *, requests: bool = True) -> bytes:
        """Return the metrics that do not need the store; without `requests`, only the metrics of processes."""
        self.update_pool()
        own = CollectorRegistry()
        own.register(_Processes())
        return (generate_latest(self._shared()) if requests else b"") + generate_latest(own)

    def text_without_store(self, *, requests: bool = True) -> bytes:
        """Return the metrics that are known while the store does not respond."""
        return self.process_text(requests=requests) + _store_up(False)

    def update_pool(self) -> None:
        """Update the numbers of the connection pool, unless that was done just now."""
        now = time.monotonic()
        if now - self._pool_updated >= POOL_INTERVAL:
            self._pool_updated = now
            pool = self._store.pool
            if isinstance(pool, QueuePool):
                self._connections.labels("in_use").set(pool.checkedout())
                self._connections.labels("idle").set(pool.checkedin())

    def _shared(self) -> CollectorRegistry:
        if MULTIPROCESS_DIR not in os.environ:
            return self._registry
        for pid in _worker_pids():
            if not _is_alive(pid):
                mark_process_dead(pid)  # type: ignore[no-untyped-call]
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return shared


def _store_up(up: bool) -> bytes:
    registry = CollectorRegistry()
    Gauge("kofn_store_up", "Whether the store responds (1) or not (0).", registry=registry).set(up)
    return generate_latest(registry)


def _worker_pids() -> list[int]:
    """Return the process ids of all workers that have written metrics."""
    files = (re.fullmatch(r".*_(\d+)\.db", each.name) for each in Path(os.environ[MULTIPROCESS_DIR]).iterdir())
    return sorted({int(found[1]) for found in files if found})


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class _Processes:
    """Reads memory, processor time and open files of the processes; with several, by the label `pid`. Linux only."""

    def collect(self) -> Iterator[Metric]:
        """Yield the families of `ProcessCollector`, of all processes."""
        if MULTIPROCESS_DIR not in os.environ:
            yield from ProcessCollector(registry=None).collect()
            return
        families: dict[str, Metric] = {}
        for pid in _worker_pids():
            for family in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():  # type: ignore[misc]
                merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    merged.add_sample(sample.name, {**sample.labels, "pid": str(pid)}, sample.value)
        yield from families.values()


class _Campaigns:
    """Reads the campaigns of a store at each scrape: sums over all, and the campaigns that changed last."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        """Yield one metric family per entry of `TOTALS`, `CAMPAIGN_METRICS` and `EXPERIMENT_METRICS`."""
        with self._store.read() as connection:
            sums, rows = totals(connection), recent_rows(connection, MAX_CAMPAIGNS)
            losses = _latest_losses(connection, [row.id for row in rows])
        summaries = [summary(row) for row in rows]
        both = list(zip(summaries, rows, strict=True))
        for name, description in TOTALS.items():
            family = GaugeMetricFamily(f"kofn_store_{name}", description, labels=["state"])
            for state, values in sums.items():
                family.add_metric([state], values[name])
            yield family
        for name, description in CAMPAIGN_METRICS.items():
            yield _family(name, description, [(each, getattr(each, name)) for each in summaries])
        for name, (description, value_of) in EXPERIMENT_METRICS.items():
            yield _family(name, description, [(each, value_of(row)) for each, row in both])
        lossy = [(each, losses.get(row.id)) for each, row in both]
        yield _family("expected_loss", "Expected loss per play of shipping the best subset now.", lossy)


def _ready(row: Row) -> float | None:
    """Return 1 if the stop rule says that a campaign is ready, else 0; None without a stop rule."""
    look = row.progress.look
    return None if row.settings.stop_when is None else float(look is not None and look.ready)


def _alarms(row: Row) -> float | None:
    """Return the number of alarms that have been noted and are not over; None if it serves no decisions."""
    return float(len(row.progress.alarms)) if row.state in SERVING else None


def _difference(row: Row) -> float | None:
    found = lift_of(row.settings, row.progress)
    return None if found is None else found.difference


def _least_difference(row: Row) -> float | None:
    found = lift_of(row.settings, row.progress)
    return None if found is None else found.low


EXPERIMENT_METRICS: dict[str, tuple[str, Callable[[Row], float | None]]] = {
    "ready": ("Whether the stop rule says that the campaign is ready to ship (1) or not (0).", _ready),
    "lift": ("Improvement per play of learning over the control.", _difference),
    "lift_low": ("Lower limit of that improvement, valid at any time.", _least_difference),
    "alarms": ("Alarms that are raised, as of the last look, which is at most minutes ago.", _alarms),
}
"""Metrics that follow from a campaign's row, their help texts, and their values; None for no value."""


def _family(name: str, description: str, found: Iterable[tuple[Summary, float | None]]) -> Metric:
    family = GaugeMetricFamily(f"kofn_campaign_{name}", description, labels=["campaign", "state"])
    for each, value in found:
        if value is not None:
            family.add_metric([each.name, each.state], value)
    return family


def _latest_losses(connection: Connection, ids: Iterable[int]) -> dict[int, float]:
    """Return the expected loss of each campaign after its latest update, as far as its policy estimates it."""
    latest = select(ESTIMATES.c.campaign, func.max(ESTIMATES.c.step).label("step"))
    latest_steps = latest.where(ESTIMATES.c.campaign.in_(list(ids))).group_by(ESTIMATES.c.campaign).subquery()
    same = (ESTIMATES.c.campaign == latest_steps.c.campaign) & (ESTIMATES.c.step == latest_steps.c.step)
    found = select(ESTIMATES.c.campaign, ESTIMATES.c.loss).join(latest_steps, same)
    return {int(campaign): float(loss) for campaign, loss in connection.execute(found) if loss is not None}
