"""Campaigns: a policy with a store behind it, for real decisions by many workers.

`campaign` has the public class; each of its methods opens a transaction and calls one function of the files here.

- What happens: `create`, `decide`, `reward`, `learn`, `expiry`, `configure`, `transfer` (export and import).
- Who gets what: `groups` (the policy, the control, what was shipped), `segments` (contexts).
- What the posterior and the rewards say now: `assess` (stop rule, circuit breaker).
- `reports`: insight, alarms, decisions one by one, `verify`, and lists of many campaigns.
- `records`: a campaign's row, plan, batches, names and options, and the `transaction` that reads and writes them.
- `store`: the database, its tables and `migrations`, statements, group commits and `sqlite_backup`.
"""

from kofn.core import MissingExtra

try:
    import sqlalchemy as _sqlalchemy  # noqa: F401
except ImportError as missing:
    raise MissingExtra("SQLAlchemy", "store") from missing

from kofn.campaigns.campaign import Campaign, campaigns
from kofn.campaigns.store.database import Store, store_at
from kofn.campaigns.store.sqlite_backup import backup, restore
from kofn.responses import (
    ArmInsight,
    AttributeReport,
    CampaignInsight,
    Decision,
    Event,
    OpenDecision,
    PlannedSubset,
    Point,
    RaisedAlarm,
    Rewarded,
    SegmentReport,
    Segments,
    Summary,
    Verification,
)

__all__ = [
    "ArmInsight",
    "AttributeReport",
    "Campaign",
    "CampaignInsight",
    "Decision",
    "Event",
    "OpenDecision",
    "PlannedSubset",
    "Point",
    "RaisedAlarm",
    "Rewarded",
    "SegmentReport",
    "Segments",
    "Store",
    "Summary",
    "Verification",
    "backup",
    "campaigns",
    "restore",
    "store_at",
]
