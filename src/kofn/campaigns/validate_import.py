"""Checks of an imported campaign: one that is inconsistent is refused before anything is written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from kofn.campaigns.create import decisions_to_keep, seconds
from kofn.campaigns.expiry import compact_at
from kofn.campaigns.learn import begin_plan
from kofn.campaigns.names import arm_names
from kofn.campaigns.plan_rows import UNLEARNED
from kofn.campaigns.rows import CampaignRow, PolicySnapshot, Roster, subset_from, subset_text
from kofn.campaigns.transaction import NARROWEST
from kofn.core import BadRecord, whole, whole_numbers
from kofn.policies.registry import restore

Rows = Mapping[str, list[dict[str, Any]]]
_COUNTERS = (
    "version",
    "roster_version",
    "step",
    "decided",
    "rewarded",
    "totalled",
    "totals",
    "compacted",
    "forgotten",
    "fillers",
)
_SUBSET = re.compile(r"\d{1,9}(,\d{1,9})*")
MAX_COUNTER = 2**59
"""Largest counter of an import, so that it can grow without overflow."""

MAX_TIME = 1e11
"""Latest time of an import, in seconds since 1970: a date that a calendar can show."""


def validate(campaign: CampaignRow, exported: Mapping[str, Any], rows: Rows) -> None:
    """Raise BadRecord if the import is inconsistent; recompute the counters that follow from its rows."""
    snapshot = _snapshot(campaign, exported)
    _check(campaign.state in ("running", "paused", "finished"), f"there is no state {campaign.state!r}")
    _check(campaign.created <= campaign.changed, "it was changed before it was created")
    _check_times(campaign, rows)
    seconds(campaign.expire_after)
    for name in _COUNTERS:
        _check(whole(name, getattr(campaign, name), least=0) <= MAX_COUNTER, f"{name} is too large")
    decisions_to_keep(campaign.keep_decisions)
    for table in ("plans", "batches", "totals"):
        for row in rows[table]:
            _check_subset(row["subset"], len(snapshot.roster.names))
    _check_batches(campaign, rows)
    _check_plan(campaign, snapshot, rows)
    _check_history(campaign, rows)


def _check(valid: bool, reason: str) -> None:
    if not valid:
        raise BadRecord(reason)


def _check_times(campaign: CampaignRow, rows: Rows) -> None:
    times = [campaign.created, campaign.changed]
    for table in ("batches", "rewards", "totals", "events"):
        times += [row["at"] for row in rows[table]]
    _check(min(times) >= 0 and max(times) < MAX_TIME, "a time is not between 1970 and the year 5138")


def _snapshot(campaign: CampaignRow, exported: Mapping[str, Any]) -> PolicySnapshot:
    """Return the policy and the arms, which must match each other and the campaign's settings."""
    policy, origin = restore(exported["record"]), restore(exported["origin"])
    names = arm_names(exported["names"])
    active = whole_numbers("active", exported["active"])
    played = whole_numbers("played", exported["played"])
    ascending = bool((np.diff(active) > 0).all())
    _check(ascending and active.max() < len(names), "active must be ascending numbers of its arms")
    _check(len(played) == len(names), "played must have one number per arm")
    settings = campaign.policy, campaign.k, (campaign.low, campaign.high), campaign.direction
    for each in (policy, origin):
        own = each.name, each.k, each.reward_range, each.direction
        _check(own == settings, "its policy does not match its settings")
        _check(not each.needs, f"{each.name} cannot run a campaign")
    _check(policy.n_arms == len(active), "its policy has another number of arms than active")
    campaign.n_arms = policy.n_arms
    return PolicySnapshot(campaign.step, Roster(campaign.roster_version, names, active.tolist()), policy, played)


def _check_subset(text: str, arms: int) -> None:
    _check(_SUBSET.fullmatch(text) is not None, f"{text!r:.60} is not a subset")
    subset = subset_from(text)
    _check(list(subset) == sorted(set(subset)) and subset[-1] < arms, f"{text!r:.60} is not a subset of its arms")
    _check(subset_text(subset) == text, f"{text!r:.60} is not written as a subset")


def _check_batches(campaign: CampaignRow, rows: Rows) -> None:
    """Check that batches do not overlap, and that each has as many rewards as it has decisions that are not open."""
    end = 0
    missing: Counter[int] = Counter()
    size = {}
    for batch in sorted(rows["batches"], key=lambda batch: int(batch["first"])):
        _check(batch["first"] >= end and 1 <= batch["count"] <= 2**40, "its batches overlap")
        _check(0 <= batch["open"] <= batch["count"] and 0 <= batch["salt"] < 2**32, "a batch has a wrong count")
        _check(batch["open"] > 0 or batch["due"] is None, "a batch has all its rewards and is still due")
        end = batch["first"] + batch["count"]
        size[batch["first"]] = batch["count"]
        missing[batch["first"]] = batch["count"] - batch["open"]
    _check(end <= campaign.decided <= MAX_COUNTER, "decided is less than its decisions")
    seen = set()
    for reward in rows["rewards"]:
        first, place = reward["first"], reward["place"]
        _check(0 <= place < size.get(first, 0), "a reward belongs to no decision")
        _check(campaign.low <= reward["value"] <= campaign.high, "a reward is outside reward_range")
        _check((first, place) not in seen, "a decision has two rewards")
        seen.add((first, place))
        missing[first] -= 1
    _check(not any(missing.values()), "its rewards do not match its batches")
    campaign.in_flight = sum(batch["open"] for batch in rows["batches"] if batch["due"] is not None)
    campaign.expired = sum(batch["open"] for batch in rows["batches"] if batch["due"] is None)
    campaign.kept = len(seen)
    campaign.compact_at = compact_at(campaign)
    campaign.rewarded = campaign.kept + campaign.compacted
    campaign.next_due = min((batch["due"] for batch in rows["batches"] if batch["due"] is not None), default=None)


def _check_plan(campaign: CampaignRow, snapshot: PolicySnapshot, rows: Rows) -> None:
    """Check that the plan is that of the policy; count what is in flight by the batches."""
    policy, roster = snapshot.policy, snapshot.roster
    plan = sorted(rows["plans"], key=lambda row: int(row["row"]))
    planned = [(subset_text(roster.to_numbers(subset)), times) for subset, times in policy.plan()]
    _check([row["row"] for row in plan] == list(range(len(plan))), "the rows of its plan are not numbered")
    _check([(row["subset"], row["times"]) for row in plan[: len(planned)]] == planned, "its plan is not its policy's")
    in_flight: Counter[int] = Counter()
    for batch in rows["batches"]:
        if batch["step"] == campaign.step and batch["row"] >= 0:
            matches = batch["row"] < len(planned) and planned[batch["row"]][0] == batch["subset"]
            _check(matches, "a batch belongs to no row of the plan")
            in_flight[batch["row"]] += batch["open"] if batch["due"] is not None else 0
    begin_plan(campaign, snapshot)
    for row in plan[len(planned) :]:
        learns = policy.accepts_unplanned and roster.to_indices(subset_from(row["subset"])) is not None
        _check(row["times"] in ((0, UNLEARNED) if learns else (UNLEARNED,)), "its plan is not its policy's")
    for row in plan:
        row["in_flight"] = in_flight[row["row"]]
        _check(
            0 <= row["count"] <= (row["times"] if row["times"] > 0 else 2**53), "a row of the plan has a wrong count"
        )
        _check_sums(campaign, row)
        campaign.observed += row["count"] if row["times"] >= 0 else 0
        campaign.free -= min(row["times"], row["count"] + row["in_flight"]) if row["times"] > 0 else 0
    campaign.unplanned = len(plan) - len(planned)
    campaign.cursor = min(max(campaign.cursor, -1), len(planned) - 1)


def _check_sums(campaign: CampaignRow, row: Mapping[str, Any]) -> None:
    low, high, n, total, squares = campaign.low, campaign.high, row["count"], row["total"], row["squares"]
    size = max(abs(low), abs(high))
    slack = 1e-9 * size * n
    _check(low * n - slack <= total <= high * n + slack, "a row of the plan has a wrong total")
    most = (low + high) * total - low * high * n
    slack *= size
    _check(squares <= most + slack and n * squares >= total**2 - n * slack, "a row of the plan has wrong squares")


def _check_history(campaign: CampaignRow, rows: Rows) -> None:
    _check(NARROWEST <= campaign.slot_width <= 1e9, "its history has a wrong slot_width")
    for bucket in rows["buckets"]:
        _check(bucket["decided"] >= 0 and bucket["rewarded"] >= 0, "its history has a negative count")
        _check(0 <= bucket["slot"] * campaign.slot_width < MAX_TIME, "its history has a wrong time")
    campaign.buckets = len(rows["buckets"])
    for table, name in (("buckets", "slot"), ("events", "number"), ("totals", "key")):
        found = [row[name] for row in rows[table] if row[name] is not None]
        _check(len(set(found)) == len(found), f"{table} has the same {name} twice")
    campaign.events = max((event["number"] for event in rows["events"]), default=0)
    _check(0 <= campaign.events <= MAX_COUNTER, "its events have wrong numbers")
    numbers = [total["number"] for total in rows["totals"]]
    unique = len(set(numbers)) == len(numbers)
    _check(unique and max(numbers, default=-1) < campaign.totals, "its totals have wrong numbers")
