"""Campaigns: a policy with a store behind it, for real decisions by many workers.

A campaign is a log: decisions and events are appended, and a fold counts what has settled. `campaign` has the public
class; its docstrings describe what users call.

- Append: `append` (all calls that wait, in one transaction), `serving` (what a process plays), `names` (ids, keys).
- Fold: `fold` (count, publish), `tally` (what the log has between two cuts), `progress` (all counters).
- Learn: `learning` (a pure function), `learner` (when, in a service), `lease` (one of several processes does it).
- Change: `change`, `settings`, `roster` (arms), `totals`, `transfer` and `import_checks` (export and import).
- `evidence`: the lift over a control, the sample ratio, the rule that says when to stop.
- `reports`: insight, alarms, decisions one by one, `verify`, and lists of many campaigns. `decision_files`: as files.
- `store`: the database, its tables and version, statements, group commits and `sqlite_backup`.
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
