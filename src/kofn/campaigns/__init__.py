"""Campaigns: a policy with a store behind it, for real decisions by many workers.

`campaign` has the public class; each of its methods opens a transaction and calls one function of the files here.

- What happens: `create`, `decide`, `reward`, `learn`, `expiry`, `configure`, `transfer` (export and import).
- Who gets what: `allocation` (the policy, the control, what was shipped), `segments` (contexts).
- What the posterior and the rewards say now: `stopping` (stop rule, circuit breaker).
- What rewards prove: `evidence` (the lift over a control, the sample ratio, the rule that says when to stop).
- `reports`: insight, alarms, decisions one by one, `verify`, and lists of many campaigns.
- `decision_files`: decisions as CSV, JSON lines or Parquet.
- `records`: a campaign's row, plan, batches, names and options, and the `transaction` that reads and writes them.
- `store`: the database, its tables and `migrations`, statements, group commits and `sqlite_backup`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kofn.core import MissingExtra

if TYPE_CHECKING:
    from kofn.campaigns.campaign import Campaign as Campaign
    from kofn.campaigns.campaign import campaigns as campaigns
    from kofn.campaigns.store.database import Store as Store
    from kofn.campaigns.store.database import store_at as store_at
    from kofn.campaigns.store.sqlite_backup import backup as backup
    from kofn.campaigns.store.sqlite_backup import restore as restore
    from kofn.core.responses import (
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

_NAMES = {
    "campaigns.campaign": "Campaign campaigns",
    "campaigns.store.database": "Store store_at",
    "campaigns.store.sqlite_backup": "backup restore",
    "core.responses": """ArmInsight AttributeReport CampaignInsight Decision Event OpenDecision PlannedSubset Point
        RaisedAlarm Rewarded SegmentReport Segments Summary Verification""",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

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


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'kofn.campaigns' has no attribute {name!r}")
    try:
        return getattr(import_module(f"kofn.{_MODULE_OF[name]}"), name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "sqlalchemy":
            raise
        raise MissingExtra("SQLAlchemy", "store") from missing
