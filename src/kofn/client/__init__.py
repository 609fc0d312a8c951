"""The client of `kofn serve`: campaigns over HTTP, with retries that cannot count anything twice."""

from kofn.core import MissingExtra

try:
    import httpx as _httpx  # noqa: F401
except ImportError as missing:
    raise MissingExtra("httpx", "client") from missing

from kofn.client.answers import (
    ArmInsight,
    Decision,
    Event,
    Insight,
    OpenDecision,
    PlannedSubset,
    Point,
    Rewarded,
    Summary,
)
from kofn.client.asynchronous import AsyncClient, AsyncRemoteCampaign
from kofn.client.synchronous import Client, RemoteCampaign

__all__ = [
    "ArmInsight",
    "AsyncClient",
    "AsyncRemoteCampaign",
    "Client",
    "Decision",
    "Event",
    "Insight",
    "OpenDecision",
    "PlannedSubset",
    "Point",
    "RemoteCampaign",
    "Rewarded",
    "Summary",
]
