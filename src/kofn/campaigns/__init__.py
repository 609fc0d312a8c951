"""Campaigns: a policy with a store behind it, for real decisions by many workers."""

from kofn.core import MissingExtra

try:
    import sqlalchemy as _sqlalchemy  # noqa: F401
except ImportError as missing:
    raise MissingExtra("SQLAlchemy", "store") from missing

from kofn.campaigns.campaign import Campaign, campaigns
from kofn.campaigns.store import Store, store_at
from kofn.responses import (
    ArmInsight,
    CampaignInsight,
    Decision,
    Event,
    OpenDecision,
    PlannedSubset,
    Point,
    Rewarded,
    Summary,
    Verification,
)

__all__ = [
    "ArmInsight",
    "Campaign",
    "CampaignInsight",
    "Decision",
    "Event",
    "OpenDecision",
    "PlannedSubset",
    "Point",
    "Rewarded",
    "Store",
    "Summary",
    "Verification",
    "campaigns",
    "store_at",
]
