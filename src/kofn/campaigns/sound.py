"""Whether an imported campaign fits together: an import that would not run is refused before it is written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from kofn.campaigns.creating import keeping, seconds
from kofn.campaigns.head import Base, Head, Roster, subset_from, subset_text
from kofn.campaigns.history import NARROWEST
from kofn.campaigns.learning import begin_plan
from kofn.campaigns.names import arm_names
from kofn.campaigns.upkeep import look_again_at
from kofn.core import BadRecord, whole, whole_numbers
from kofn.policies.registry import restore

Rows = Mapping[str, list[dict[str, Any]]]
_COUNTERS = (
    "version",
    "roster",
    "step",
    "decided",
    "rewarded",
    "totalled",
    "totals",
    "compacted",
    "forgotten",
    "spared",
)
_SUBSET = re.compile(r"\d{1,9}(,\d{1,9})*")


def check_sound(head: Head, exported: Mapping[str, Any], rows: Rows) -> None:
    """Refuse what does not fit together; counters that follow from the rows are counted anew."""
    base = _base(head, exported)
    _check(head.state in ("running", "paused", "finished"), f"there is no state {head.state!r}")
    _check(head.created <= head.changed, "it was changed before it was created")
    _check_times(head, rows)
    seconds(head.expire_after)
    for name in _COUNTERS:
        _check(whole(name, getattr(head, name), least=0) <= 2**59, f"{name} is too large")
    keeping(head.keep_decisions)
    for table in ("plans", "runs", "totals"):
        for row in rows[table]:
            _check_subset(row["subset"], len(base.roster.names))
    _check_runs(head, rows)
    _check_plan(head, base, rows)
    _check_history(head, rows)


def _check_times(head: Head, rows: Rows) -> None:
    """Moments that a calendar has."""
    times = [head.created, head.changed]
    for table in ("runs", "rewards", "totals", "events"):
        times += [row["at"] for row in rows[table]]
    _check(min(times) >= 0 and max(times) < 1e11, "it has a time that no calendar has")


def _check(sound: bool, reason: str) -> None:
    if not sound:
        raise BadRecord(reason)


def _base(head: Head, exported: Mapping[str, Any]) -> Base:
    """The policy and the arms, which fit each other and the campaign's settings."""
    policy, origin = restore(exported["record"]), restore(exported["origin"])
    names = arm_names(exported["names"])
    active = whole_numbers("active", exported["active"])
    played = whole_numbers("played", exported["played"])
    _check(bool((np.diff(active) > 0).all()) and active.max() < len(names), "its active arms are not its arms")
    _check(len(played) == len(names), "it does not say how often each arm was played")
    for each in (policy, origin):
        same = each.name, each.k, each.reward_range, each.direction
        _check(same == (head.policy, head.k, (head.low, head.high), head.direction), "its policy is another")
        _check(not each.needs, f"{each.name} cannot run a campaign")
    _check(policy.n_arms == len(active), "its policy is for another number of arms")
    head.n_arms = policy.n_arms
    return Base(head.step, Roster(head.roster, names, active.tolist()), policy, played)


def _check_subset(text: str, arms: int) -> None:
    _check(_SUBSET.fullmatch(text) is not None, f"{text!r:.60} is not a subset")
    subset = subset_from(text)
    _check(list(subset) == sorted(set(subset)) and subset[-1] < arms, f"{text!r:.60} is not a subset of its arms")
    _check(subset_text(subset) == text, f"{text!r:.60} is not written as a subset is")


def _check_runs(head: Head, rows: Rows) -> None:
    """Runs one after another, and as many rewards as are not open."""
    end = 0
    answers: Counter[int] = Counter()
    size = {}
    for run in sorted(rows["runs"], key=lambda run: int(run["first"])):
        _check(run["first"] >= end and 1 <= run["count"] <= 2**40, "its runs overlap")
        _check(0 <= run["open"] <= run["count"] and 0 <= run["salt"] < 2**32, "a run has a wrong count")
        _check(run["open"] > 0 or run["due"] is None, "a run is answered and still due")
        end = run["first"] + run["count"]
        size[run["first"]] = run["count"]
        answers[run["first"]] = run["count"] - run["open"]
    _check(end <= head.decided <= 2**59, "it has more decisions than it made")
    seen = set()
    for reward in rows["rewards"]:
        first, place = reward["first"], reward["place"]
        _check(0 <= place < size.get(first, 0), "a reward is of no decision")
        _check(head.low <= reward["value"] <= head.high, "a reward is out of its range")
        _check((first, place) not in seen, "a decision has two rewards")
        seen.add((first, place))
        answers[first] -= 1
    _check(not any(answers.values()), "its rewards are not those that its runs tell of")
    head.in_flight = sum(run["open"] for run in rows["runs"] if run["due"] is not None)
    head.expired = sum(run["open"] for run in rows["runs"] if run["due"] is None)
    head.kept = len(seen)
    head.compact_at = look_again_at(head)
    head.rewarded = head.kept + head.compacted
    due = [run["due"] for run in rows["runs"] if run["due"] is not None]
    head.next_due = min(due, default=None)


def _check_plan(head: Head, base: Base, rows: Rows) -> None:
    """The plan that the policy wants, with what is out of it as the runs say."""
    plan = sorted(rows["plans"], key=lambda row: int(row["row"]))
    wanted = [(subset_text(base.roster.outside(subset)), times) for subset, times in base.policy.plan()]
    _check([row["row"] for row in plan] == list(range(len(plan))), "the rows of its plan are not numbered")
    _check([(row["subset"], row["times"]) for row in plan[: len(wanted)]] == wanted, "its plan is not its policy's")
    out: Counter[int] = Counter()
    for run in rows["runs"]:
        if run["step"] == head.step and run["row"] >= 0:
            _check(run["row"] < len(wanted) and wanted[run["row"]][0] == run["subset"], "a run is of no row")
            out[run["row"]] += run["open"] if run["due"] is not None else 0
    begin_plan(head, base)
    for row in plan[len(wanted) :]:
        learns = base.policy.accepts_unplanned and base.roster.inside(subset_from(row["subset"])) is not None
        _check(row["times"] in ((0, -1) if learns else (-1,)), "its plan has rows that are not its policy's")
    for row in plan:
        row["out"] = out[row["row"]]
        _check(0 <= row["count"] <= (row["times"] if row["times"] > 0 else 2**53), "a row has a wrong count")
        _check_sums(head, row)
        head.told += row["count"] if row["times"] >= 0 else 0
        taken = min(row["times"], row["count"] + row["out"])
        head.unasked -= taken if row["times"] > 0 else 0
    head.others = len(plan) - len(wanted)
    head.cursor = min(max(head.cursor, -1), len(wanted) - 1)


def _check_sums(head: Head, row: Mapping[str, Any]) -> None:
    n, size = row["count"], max(abs(head.low), abs(head.high))
    slack = 1e-9 * size * n
    _check(head.low * n - slack <= row["total"] <= head.high * n + slack, "a row has a wrong total")
    most = (head.low + head.high) * row["total"] - head.low * head.high * n
    squares, slack = row["squares"], slack * size
    _check(squares <= most + slack and n * squares >= row["total"] ** 2 - n * slack, "a row has wrong squares")


def _check_history(head: Head, rows: Rows) -> None:
    _check(NARROWEST <= head.width <= 1e9, "its history has a wrong width")
    for bucket in rows["buckets"]:
        _check(bucket["decided"] >= 0 and bucket["rewarded"] >= 0, "its history counts backwards")
        _check(0 <= bucket["slot"] * head.width < 1e11, "its history is not of this time")
    head.buckets = len(rows["buckets"])
    for table, name in (("buckets", "slot"), ("events", "number"), ("totals", "key")):
        found = [row[name] for row in rows[table] if row[name] is not None]
        _check(len(set(found)) == len(found), f"its {table} are not told apart by {name}")
    head.events = max((event["number"] for event in rows["events"]), default=0)
    _check(0 <= head.events <= 2**59, "its events are not numbered")
    numbers = [total["number"] for total in rows["totals"]]
    _check(len(set(numbers)) == len(numbers) and max(numbers, default=-1) < head.totals, "its totals are not numbered")
