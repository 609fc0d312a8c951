"""Clients of `kofn serve`: campaigns over HTTP, with safe retries. They return the classes of `kofn.core.responses`."""

from kofn.core import MissingExtra

try:
    import httpx as _httpx  # noqa: F401
except ImportError as missing:
    raise MissingExtra("httpx", "client") from missing

from kofn.client.async_client import AsyncClient, AsyncRemoteCampaign
from kofn.client.stock import RefusedReward
from kofn.client.sync_client import Client, RemoteCampaign

__all__ = ["AsyncClient", "AsyncRemoteCampaign", "Client", "RefusedReward", "RemoteCampaign"]
