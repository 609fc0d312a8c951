"""Campaigns: a policy with a store behind it, for real decisions by many workers.

`campaign` has the public class; each of its methods opens a `transaction` and calls one function of the files below.

- What happens: `create`, `decide`, `reward`, `learn`, `expiry`, `report`, `transfer` (export and import), `verify`.
- Who gets what: `groups` (the policy, the control, what was shipped), `segments` (contexts).
- Many campaigns at once: `listing` (pages, sums, what has changed), `backups` (of a whole store).
- What is stored: `schema` (tables), `migrations` (how they change), `store` (the database), `store_file` (the file of a
  SQLite store), `rows` (a campaign's row, arms and policy), `plan_rows` (the open plan), `names` (names and ids,
  checked where they enter).
"""

from kofn.core import MissingExtra

try:
    import sqlalchemy as _sqlalchemy  # noqa: F401
except ImportError as missing:
    raise MissingExtra("SQLAlchemy", "store") from missing

from kofn.campaigns.backups import Backup, backup, restore
from kofn.campaigns.campaign import Campaign, campaigns
from kofn.campaigns.store import Store, store_at
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
    "Backup",
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
