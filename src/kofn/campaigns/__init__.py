"""Campaigns: a policy with a store behind it, for real decisions by many workers."""

from kofn.core import MissingExtra

try:
    import sqlalchemy as _sqlalchemy  # noqa: F401
except ImportError as missing:
    raise MissingExtra("SQLAlchemy", "store") from missing

from kofn.campaigns.campaign import Campaign, campaigns
from kofn.campaigns.results import (
    ArmInsight,
    CampaignInsight,
    Decision,
    Event,
    OpenDecision,
    Point,
    Rewarded,
    Summary,
    Trying,
)
from kofn.campaigns.store import Store, store_at

__all__ = [
    "ArmInsight",
    "Campaign",
    "CampaignInsight",
    "Decision",
    "Event",
    "OpenDecision",
    "Point",
    "Rewarded",
    "Store",
    "Summary",
    "Trying",
    "campaigns",
    "store_at",
]
