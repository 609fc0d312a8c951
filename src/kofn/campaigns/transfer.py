"""A campaign as plain values, and back. An import is checked before any of it is written."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from itertools import chain
from typing import Any, get_args

import numpy as np
from sqlalchemy import BigInteger, Column, Double, Integer, Table, select

from kofn.campaigns.allocation import GROUPS
from kofn.campaigns.create import check_free, decisions_to_keep, seconds
from kofn.campaigns.decide import MAX_METADATA
from kofn.campaigns.expiry import compact_at
from kofn.campaigns.learn import begin_plan, planned_rows
from kofn.campaigns.records.costs import most_cost, net_limits, policy_costs
from kofn.campaigns.records.names import arm_name, arm_names, campaign_name
from kofn.campaigns.records.options import options_from, with_options
from kofn.campaigns.records.plan_rows import UNLEARNED
from kofn.campaigns.records.rows import CampaignRow, PolicySnapshot, Roster, insert_row, subset_from, subset_text
from kofn.campaigns.records.rules import check_obeys, policy_rules
from kofn.campaigns.records.transaction import NARROWEST, Transaction
from kofn.campaigns.stopping import look_of
from kofn.campaigns.store.schema import OF_CAMPAIGN, ROSTERS, STATES
from kofn.core import BadInput, BadRecord, whole, whole_numbers
from kofn.core.campaign_settings import CampaignOptions
from kofn.core.checks import MAX_LENGTH, shown
from kofn.core.contexts import context_of
from kofn.core.responses import State
from kofn.policies.registry import restore

FORMAT = 1
"""The version of an export. Raise it when an older kofn cannot read a newer export."""

KIND = "exported campaign"
"""What an export is, as its key `kofn` says. In exports made before the first release, that is UNRELEASED."""

UNRELEASED = "campaign"

MAX_COUNTER = 2**59
"""Largest counter of an import, so that it can grow without overflow."""

MAX_REASON = 300
"""Longest reason why an import is refused, in characters. It may repeat a part of the import."""

MAX_TIME = 1e11
"""Latest time of an import, in seconds since 1970: a date that a calendar can show."""

Rows = dict[str, list[dict[str, Any]]]
"""The rows of each table, by the table's name."""

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
    "overtaken",
    "clipped",
    "notified",
    "learned_decided",
    "learned_rewarded",
    "control_decided",
    "control_rewarded",
)
_LOCAL = ("id", "stamp", "mark", "made_by")
"""Columns of a campaign that belong to its store, and are not exported."""

_SUBSET = re.compile(r"\d{1,9}(,\d{1,9})*")


# Export.


def export(tx: Transaction, *, with_secret: bool) -> dict[str, Any]:
    """Return the campaign's row, and the rows of each table as lists with their columns."""
    tables: dict[str, dict[str, list[Any]]] = {}
    for table in OF_CAMPAIGN:
        columns = _columns(table)
        chosen = select(*columns).where(table.c.campaign == tx.id)
        ordered = chosen.order_by(*(column for column in table.primary_key if column.name != "campaign"))
        names = [column.name for column in columns]
        tables[_short(table.name)] = {"columns": names, "rows": [list(row) for row in tx.execute(ordered)]}
    hidden = _LOCAL if with_secret else (*_LOCAL, "secret")
    settings = {name: value for name, value in asdict(tx.row).items() if name not in hidden}
    roster, state = (tables.pop(_short(table.name)) for table in (ROSTERS, STATES))
    names = roster["columns"] + state["columns"]
    plain = {name: json.loads(text) for name, text in zip(names, roster["rows"][0] + state["rows"][0], strict=True)}
    return {"kofn": KIND, "format": FORMAT, "name": tx.row.name, "campaign": settings, **plain, "tables": tables}


# Import.


def read_export(exported: Mapping[str, Any], name: str | None) -> tuple[CampaignRow, Callable[[Transaction], None]]:
    """Return the row of an exported campaign, and a function that writes it all; or raise BadRecord."""
    _check_format(exported)
    try:
        campaign = _campaign(exported["campaign"])
        campaign.name = campaign_name(campaign.name if name is None else name)
        tables = exported["tables"]
        rows = {_short(table.name): _rows(table, tables[_short(table.name)]) for table in OF_CAMPAIGN[2:]}
        for table in (ROSTERS, STATES):
            texts = {column.name: json.dumps(exported[column.name], allow_nan=False) for column in _columns(table)}
            rows[_short(table.name)] = [texts]
        if "secret" not in exported["campaign"]:
            _expire_all(rows)
        _validate(campaign, exported, rows)
    except KeyError as why:
        raise BadRecord(f"this export is not valid: {why.args[0]!r} is missing") from why
    except (BadInput, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as why:
        raise BadRecord(f"this export is not valid: {str(why)[:MAX_REASON]}") from why
    return campaign, lambda tx: _insert(tx, rows)


def _check_format(exported: Any) -> None:
    """Raise BadRecord unless this is an export of the present format."""
    kind = exported.get("kofn") if isinstance(exported, Mapping) else None
    if kind not in (KIND, UNRELEASED):
        raise BadRecord("this is not an exported campaign: pass what Campaign.export() returned")
    written = exported.get("format")
    if kind == UNRELEASED:
        made = "was made by a development version of kofn, before the first release"
    elif type(written) is not int or written != FORMAT:
        made = f"has format {shown(written)}"
    else:
        return
    raise BadRecord(
        f"this export {made}, and this kofn reads format {FORMAT}: import it with the kofn that made it, or create a "
        "new campaign"
    )


def _expire_all(rows: Rows) -> None:
    """Expire all decisions: without the secret, nobody can report their rewards."""
    for batch in rows["batches"]:
        batch["due"] = None


def _insert(tx: Transaction, rows: Rows) -> None:
    check_free(tx.connection, tx.row.name)
    insert_row(tx.connection, tx.row)
    for table in OF_CAMPAIGN:
        if theirs := rows[_short(table.name)]:
            tx.execute(table.insert(), [row | {"campaign": tx.id} for row in theirs])


def _columns(table: Table) -> list[Column[Any]]:
    return [column for column in table.columns if column.name != "campaign"]


def _short(table: str) -> str:
    return table.removeprefix("kofn_")


def _campaign(settings: Mapping[str, Any]) -> CampaignRow:
    """Return the row of an exported campaign. Without its secret it gets a new one."""
    settings = {"secret": secrets.token_hex(16), **settings}
    values: dict[str, Any] = {"id": 0, "stamp": 0, "mark": 0, "made_by": ""}
    for each in fields(CampaignRow):
        if each.name in _LOCAL:
            continue
        kind = {"int": int, "float": float, "str": str}.get(str(each.type).removesuffix(" | None"))
        assert kind is not None
        values[each.name] = _value(each.name, settings[each.name], kind, nullable="None" in str(each.type))
    bytes.fromhex(values["secret"])
    return CampaignRow(**values)


def _rows(table: Table, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    columns = _columns(table)
    names = [column.name for column in columns]
    if given["columns"] != names:
        raise BadRecord(f"{_short(table.name)} must have the columns {', '.join(names)}")
    kinds = [(column.name, _kind(column), bool(column.nullable)) for column in columns]
    return [
        {
            name: _value(name, value, kind, nullable=nullable)
            for (name, kind, nullable), value in zip(kinds, row, strict=True)
        }
        for row in given["rows"]
    ]


def _kind(column: Column[Any]) -> type[int] | type[float] | type[str]:
    if isinstance(column.type, Integer | BigInteger):
        return int
    return float if isinstance(column.type, Double) else str


def _value(name: str, value: Any, kind: type, *, nullable: bool) -> Any:
    """Return a value that the store can hold, or raise BadRecord."""
    if value is None and nullable:
        return None
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind is int and type(value) is int and -(2**63) <= value < 2**63:
        return value
    if kind is str and isinstance(value, str) and (value.isprintable() or not value):
        return value
    raise BadRecord(f"{name} is not valid" if name == "secret" else f"{name} cannot be {value!r:.60}")


# Checks of an import: one that is inconsistent is refused before anything is written.


def _validate(campaign: CampaignRow, exported: Mapping[str, Any], rows: Rows) -> None:
    """Raise BadRecord if the import is inconsistent; recompute the counters that follow from its rows."""
    snapshot = _snapshot(campaign, exported)
    _check(campaign.state in get_args(State), f"there is no state {shown(campaign.state)}")
    _check_options(campaign, snapshot)
    _check(campaign.created <= campaign.changed, "it was changed before it was created")
    _check_times(campaign, rows)
    _check(campaign.waited >= 0, "waited is negative")
    seconds(campaign.expire_after)
    for name in _COUNTERS:
        _check(whole(name, getattr(campaign, name), least=0) <= MAX_COUNTER, f"{name} is too large")
    decisions_to_keep(campaign.keep_decisions)
    for table, name in (("plans", "subset"), ("batches", "subset"), ("totals", "subset"), ("estimates", "best")):
        for row in rows[table]:
            _check_subset(row[name], len(snapshot.roster.names))
    for row in chain(rows["plans"], rows["batches"], rows["totals"]):
        _check_segment(row["context"], snapshot)
    _check_estimates(rows, len(snapshot.roster.names))
    _check_batches(campaign, rows)
    _check_plan(campaign, snapshot, rows)
    _check_history(campaign, rows)


def _check_options(campaign: CampaignRow, snapshot: PolicySnapshot) -> None:
    """Check the options, the latest look of the stop rule, and the sums that are compared with the control."""
    options, roster = options_from(campaign.options), snapshot.roster
    to_segments = (*options.shipped_to, *options.shipped_before)
    for segment, _ in to_segments:
        _check_segment(segment, snapshot)
    subsets = [*options.shipped, *(subset for _, subset in to_segments)]
    subsets += [options.control] if isinstance(options.control, tuple) else []
    for subset in subsets:
        _check(all(type(arm) is int for arm in subset), "a subset of its options has other things than numbers")
        _check_subset(subset_text(subset), len(roster.names))
        _check(
            snapshot.policy.fewest <= len(subset) <= campaign.k, "a subset of its options has another number of arms"
        )
    given = {each: getattr(options, each) for each in CampaignOptions.__annotations__}
    sizes = snapshot.policy.fewest, campaign.k
    _check(with_options(options, roster, sizes, given) == options, "its options are not valid")
    rules, costs = policy_rules(options.constraints, roster, sizes), policy_costs(options.costs, roster)
    _check(snapshot.policy.params.get("constraints") == rules, "its policy has other rules than its options")
    _check(snapshot.policy.params.get("costs") == costs, "its policy has other costs than its options")
    _check(type(options.costs_from) is int, "its options are not valid")
    most = options.costs_most
    _check(type(most) in (int, float) and math.isfinite(most), "its options have wrong numbers")
    _check(most_cost(options.costs, campaign.k) <= most, "its costs are above their limit")
    if campaign.state == "shipped":
        _check(bool(options.shipped), "it is shipped without a subset")
        for subset in options.served:
            shipped = roster.names_of(subset)
            check_obeys(options.constraints, shipped, "the subset that is shipped", "Ship another one")
            _check(roster.to_indices(subset) is not None, "the subset that is shipped has a retired arm")
    _check(type(options.seed) is int and 0 <= options.seed < 2**62, "its options have a wrong seed")
    _check(type(options.control_from) is int, "its options are not valid")
    _check(type(options.store_shipped) is type(options.by_segment) is bool, "its options are not valid")
    _check(type(options.unstored_after) in (int, float) and options.unstored_after < MAX_TIME, "its options are wrong")
    _check(all(len(each) == 2 for each in (*options.alarms_noted, *options.clipped_to)), "its options have no pairs")
    alarms = (*options.alarms, *(name for name, _ in options.alarms_noted))
    names = all(isinstance(each, str) and each.isprintable() and len(each) < 1000 for each in alarms)
    _check(names, "its alarms must be names")
    numbers = [*(at for _, at in options.alarms_noted), *chain.from_iterable(options.clipped_to)]
    _check(
        all(type(each) in (int, float) and math.isfinite(each) for each in numbers), "its options have wrong numbers"
    )
    look = look_of(campaign)
    if look is not None:
        numbers = [each for each in (look.plays, look.since) if each is not None]
        _check(all(type(each) is int for each in numbers), "its look has wrong numbers")
        _check(look.bound is None or type(look.bound) in (int, float), "its look has a wrong bound")
        _check(type(look.ready) is bool and isinstance(look.reason, str), "its look is not valid")
    for group in ("learned", "control"):
        sums = campaign.sums(group)
        row = {"count": sums.count, "total": sums.total, "squares": sums.squares}
        _check_sums(net_limits(campaign.low, campaign.high, campaign.direction, most), row)


def _check_estimates(rows: Rows, arms: int) -> None:
    """Check what the policy estimated over time."""
    steps = [row["step"] for row in rows["estimates"]]
    _check(len(set(steps)) == len(steps), "it has two estimates of one step")
    for row in rows["estimates"]:
        effects = _plain_json(row["effects"] or "{}")
        _check(isinstance(effects, dict), "effects must be a dict")
        for arm, effect in effects.items():
            _check(arm.isdecimal() and int(arm) < arms, "effects must be those of its arms")
            _check(type(effect) in (int, float), "effects must be numbers")


def _plain_json(text: str) -> Any:
    """Return what JSON describes; other than JSON, Python reads NaN and Infinity."""

    def refuse(name: str) -> None:
        raise BadRecord(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def _check(valid: bool, reason: str) -> None:
    if not valid:
        raise BadRecord(reason)


def _check_times(campaign: CampaignRow, rows: Rows) -> None:
    times = [campaign.created, campaign.changed]
    for table in ("batches", "rewards", "totals", "events", "estimates"):
        times += [row["at"] for row in rows[table]]
    _check(min(times) >= 0 and max(times) < MAX_TIME, "a time is not between 1970 and the year 5138")


def _snapshot(campaign: CampaignRow, exported: Mapping[str, Any]) -> PolicySnapshot:
    """Return the policy and the arms, which must match each other and the campaign's settings."""
    policy, origin = restore(exported["record"]), restore(exported["origin"])
    active = whole_numbers("active", exported["active"])
    _check(isinstance(exported["names"], list), "names must be a list")
    names = [arm_name(name) for name in exported["names"]]
    played = whole_numbers("played", exported["played"])
    ascending = bool((np.diff(active) > 0).all())
    _check(ascending and active.max() < len(names), "active must be ascending numbers of its arms")
    arm_names([names[arm] for arm in active])
    _check(len(played) == len(names), "played must have one number per arm")
    settings = campaign.policy, campaign.k, campaign.direction
    for each in (policy, origin):
        _check((each.name, each.k, each.direction) == settings, "its policy does not match its settings")
        _check(not type(each).needs, f"{each.name} cannot run a campaign")
    _check(policy.reward_range == (campaign.low, campaign.high), "its policy has another range of rewards")
    _check(policy.n_arms == len(active), "its policy has another number of arms than active")
    campaign.n_arms = policy.n_arms
    return PolicySnapshot(campaign.step, Roster(campaign.roster_version, names, active.tolist()), policy, played)


def _check_subset(text: str, arms: int) -> None:
    _check(_SUBSET.fullmatch(text) is not None, f"{text!r:.60} is not a subset")
    subset = subset_from(text)
    _check(list(subset) == sorted(set(subset)) and subset[-1] < arms, f"{text!r:.60} is not a subset of its arms")
    _check(subset_text(subset) == text, f"{text!r:.60} is not written as a subset")


def _check_segment(key: Any, snapshot: PolicySnapshot) -> None:
    """Check the key of a segment; NULL where there is none."""
    if key is not None:
        _check(snapshot.policy.takes_context, f"{snapshot.policy.name} does not take a context")
        context_of(key)


def _check_batches(campaign: CampaignRow, rows: Rows) -> None:
    """Check that batches do not overlap, and that each has as many rewards as it has decisions that are not open."""
    end = 0
    missing: Counter[int] = Counter()
    size = {}
    for batch in sorted(rows["batches"], key=lambda batch: int(batch["first"])):
        _check(batch["first"] >= end and 1 <= batch["count"] <= 2**40, "its batches overlap")
        _check(batch["group"] in range(len(GROUPS)), "a batch has a wrong group")
        _check(batch["propensity"] is None or 0 <= batch["propensity"] <= 1, "a batch has a wrong propensity")
        metadata, key = batch["metadata"], batch["key"]
        _check(metadata is None or isinstance(_plain_json(metadata), dict), "metadata must be a dict")
        _check(metadata is None or len(metadata) <= MAX_METADATA, "metadata is too long")
        _check(key is None or len(key) <= MAX_LENGTH, "a key is too long")
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
    _check([row["row"] for row in plan] == list(range(len(plan))), "the rows of its plan are not numbered")
    begin_plan(campaign, snapshot)
    given = [((row["subset"], row["context"]), row["times"]) for row in plan]
    planned = [(row.play, row.times) for row in planned_rows(policy, roster)]
    _check(given[: len(planned)] == planned, "its plan is not its policy's")
    in_flight: Counter[int] = Counter()
    for batch in rows["batches"]:
        if batch["step"] == campaign.step and batch["row"] >= 0:
            play = batch["subset"], batch["context"]
            matches = batch["row"] < len(planned) and planned[batch["row"]][0] == play
            _check(matches, "a batch belongs to no row of the plan")
            in_flight[batch["row"]] += batch["open"] if batch["due"] is not None else 0
    for row in plan[len(planned) :]:
        learns = policy.accepts_unplanned and roster.to_indices(subset_from(row["subset"])) is not None
        learns = learns and (row["context"] is not None) == policy.takes_context
        _check(row["times"] in ((0, UNLEARNED) if learns else (UNLEARNED,)), "its plan is not its policy's")
    for row in plan:
        row["in_flight"] = in_flight[row["row"]]
        _check(
            0 <= row["count"] <= (row["times"] if row["times"] > 0 else 2**53), "a row of the plan has a wrong count"
        )
        _check_sums((campaign.low, campaign.high), row)
        campaign.observed += row["count"] if row["times"] >= 0 else 0
        campaign.free -= min(row["times"], row["count"] + row["in_flight"]) if row["times"] > 0 else 0
    campaign.unplanned = len(plan) - len(planned)
    campaign.cursor = min(max(campaign.cursor, -1), len(planned) - 1)


def _check_sums(limits: tuple[float, float], row: Mapping[str, Any]) -> None:
    (low, high), n, total, squares = limits, row["count"], row["total"], row["squares"]
    size = max(abs(low), abs(high))
    slack = 1e-9 * size * n
    _check(low * n - slack <= total <= high * n + slack, "a row of the plan has a wrong total")
    most = (low + high) * total - low * high * n
    slack *= size
    _check(squares <= most + slack and n * squares >= total**2 - n * slack, "a row of the plan has wrong squares")


def _check_history(campaign: CampaignRow, rows: Rows) -> None:
    _check(NARROWEST <= campaign.slot_width <= 1e9, "its history has a wrong slot_width")
    for bucket in rows["buckets"]:
        _check(min(bucket["decided"], bucket["rewarded"], bucket["waited"]) >= 0, "its history has a negative count")
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
