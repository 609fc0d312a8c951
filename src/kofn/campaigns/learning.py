"""Learning: a pure function of a policy's record, the tallies since, and what changed. It needs no store.

The record of another version of kofn is not an error: its policy is made anew from the record's parameters, and learns
from all tallies since the campaign began.
"""

from __future__ import annotations

import json
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from kofn.campaigns.progress import Play
from kofn.campaigns.roster import Roster, subset_from, subset_text
from kofn.core import BadRecord, Insight, Policy, SettledPlays, ShortHorizonWarning, StateError, Subset
from kofn.core.contexts import MISSING, MOST_SEGMENTS, OTHER, context_of, key_of
from kofn.core.plan import key_of_play
from kofn.core.threads import ONE_THREAD
from kofn.policies import registry
from kofn.policies.registry import restore, save

FALLBACKS = 64
"""Draws of the policy that are played once the plan is handed out, for each segment. Higher: a longer plan to store."""

CONTROLS = 256
"""Random subsets that obey the rules, for a uniform control until the next plan. Higher: a longer plan to store."""

MOST_PREDICTED = 100
"""Most new combinations of known attributes for which a shipped campaign has a subset."""


@dataclass
class Step:
    """A learning step: what was settled, by subset (as arm numbers) and segment, then what changed in the policy."""

    step: int
    tallies: list[list[Any]]  # subset, segment, count, total, squares
    change: dict[str, Any] | None = None


@dataclass
class Job:
    """What a policy learns: a record with the active arms then, and the steps since; and plays whose reward is open."""

    record: dict[str, Any]
    active: list[int]
    steps: list[Step]
    in_flight: dict[Play, int] = field(default_factory=dict)
    uniform_control: bool = False


@dataclass
class Learned:
    """What a policy has learned, as plain values. Subsets are arm numbers."""

    record: dict[str, Any]
    active: list[int]
    plan: dict[str, Any]  # the fields of a `ServedPlan`
    best: str
    plays: int
    updates: int
    insight: dict[str, Any] | None
    of_segments: dict[str, Any] | None
    moved: bool  # whether the best subset has changed, or is the first one
    seconds: float


@ONE_THREAD
def learn(job: Job) -> Learned:
    """Return what the policy has learned after the steps, and what it plays next."""
    began = time.perf_counter()
    policy, roster = policy_of(job.record, job.active)
    best, updates = policy.best(), policy.updates
    before = roster.to_numbers(best)
    for step in job.steps:
        policy, roster = take(policy, roster, step)
    record = save(policy)
    after = roster.to_numbers(policy.best())
    moved = after != before or updates == 0 < policy.updates
    policy.expect(_expected(policy, roster, job.in_flight))
    segments = Counter[str]()
    for (_, segment), count in job.in_flight.items():
        segments.update({segment: count} if segment is not None else {})
    plan = served(policy, roster, [segment for segment, _ in segments.most_common()], job.uniform_control)
    known, of_segments = policy.insight(), _of_segments(policy, roster)
    return Learned(
        record=record,
        active=roster.active,
        plan=plan,
        best=subset_text(after),
        plays=policy.plays,
        updates=policy.updates,
        insight=None if known is None else known.to_dict(),
        of_segments=of_segments,
        moved=moved,
        seconds=time.perf_counter() - began,
    )


def readable(record: Mapping[str, Any]) -> bool:
    """Return whether this version of kofn reads a record."""
    return record.get("format") == registry.FORMAT


def policy_of(record: Mapping[str, Any], active: Sequence[int]) -> tuple[Policy, Roster]:
    """Return the policy of a record and the arms that it knows, or raise StateError.

    That of a record of another version has its parameters only: it must learn from all steps again.
    """
    try:
        if readable(record):
            return restore(record), roster_of(active)
    except BadRecord as why:
        raise StateError(f"the policy's record cannot be read: {why}") from why
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortHorizonWarning)  # given when the campaign was created
        return registry.POLICIES[record["policy"]].from_params(**record["params"]), roster_of(active)


def roster_of(active: Sequence[int]) -> Roster:
    """Return a roster of arms whose names do not matter."""
    return Roster([""] * (max(active) + 1), list(active))


def take(policy: Policy, roster: Roster, step: Step) -> tuple[Policy, Roster]:
    """Return the policy and its arms after a step."""
    plays = []
    for text, segment, count, total, squares in step.tallies:
        subset = roster.to_indices(subset_from(text))
        if subset is not None and (segment is not None) == policy.takes_context:
            plays.append(SettledPlays(subset, segment, count, total, squares))
    if plays:
        policy.tell_plays(plays)
    return (policy, roster) if step.change is None else changed(policy, roster, step.change)


def changed(policy: Policy, roster: Roster, change: Mapping[str, Any]) -> tuple[Policy, Roster]:
    """Return the policy and its arms after one arm was added or retired, or its parameters were changed."""
    active = roster.active
    if "params" in change:
        return policy.with_params(**change["params"]), roster
    more = {name: change[name] for name in ("constraints", "costs") if name in change}
    if "added" in change:
        return policy.with_arms(list(range(len(active))), 1, **more), roster_of([*active, change["added"]])
    keep = [index for index, arm in enumerate(active) if arm != change["retired"]]
    return policy.with_arms(keep, 0, **more), roster_of([active[index] for index in keep])


def served(policy: Policy, roster: Roster, segments: Sequence[str], uniform_control: bool) -> dict[str, Any]:
    """Return what is played, as the fields of a `ServedPlan`: the plan's rows, and what is played when these are out.

    `segments` are further segments that need rows, the most frequent first; rare ones get those for everyone. With
    `uniform_control`, it has random subsets that obey the rules.
    """
    plan = policy.plan()
    of_rows = plan.segments or (None,) * len(plan)
    rows = [
        (subset_text(roster.to_numbers(subset)), times, segment)
        for (subset, times), segment in zip(plan, of_rows, strict=True)
    ]
    known = list(getattr(policy, "segments", ()))
    more = [each for each in segments if each not in known][: max(0, MOST_SEGMENTS - len(known))]
    keys: list[str | None] = [None, *(sorted([*known, *more]) if policy.takes_context else ())]
    count = FALLBACKS if policy.accepts_unplanned else 1
    fallback = [
        (subset_text(roster.to_numbers(policy.filler(index, segment))), segment)
        for segment in keys
        for index in range(count)
    ]
    control: dict[str, Any] = {}
    if uniform_control and policy.constraints is not None:
        allowed = policy.constraints.allowed(policy.n_arms, policy.k, fewest=policy.fewest)
        drawn = allowed.random(CONTROLS, np.random.default_rng(policy.plays)).tolist()
        shown = [tuple(arm for arm in each if arm < policy.n_arms) for each in drawn]  # higher ones are empty places
        control = {"control": [subset_text(roster.to_numbers(each)) for each in shown], "allowed": allowed.number}
    best = subset_text(roster.to_numbers(policy.best()))
    return {"rows": rows, "fallback": fallback, "best": best, "segments": known, **control}


def _expected(policy: Policy, roster: Roster, in_flight: Mapping[Play, int]) -> dict[Any, float]:
    found: dict[Any, float] = {}
    for (text, segment), count in in_flight.items():
        subset = roster.to_indices(subset_from(text))
        if subset is not None and (segment is not None) == policy.takes_context:
            found[key_of_play(subset, segment)] = float(count)
    return found


def _of_segments(policy: Any, roster: Roster) -> dict[str, Any] | None:
    """Return what the policy knows about each segment and each attribute, as plain values."""
    if not policy.takes_context:
        return None

    def plain(known: Insight | None) -> dict[str, Any] | None:
        if known is None:
            return None
        names = ("value", "low", "high", "probability_best", "expected_loss", "loss_high")
        return {name: getattr(known, name) for name in names}

    segments = [
        {
            "key": key_of(each.context),
            "plays": each.plays,
            "share": each.share,
            "best": subset_text(roster.to_numbers(each.best)),
            "insight": plain(each.insight),
        }
        for each in policy.by_segment()
    ]
    attributes = [[each.attribute, list(each.values), each.probability, each.gain] for each in policy.by_attribute()]
    return {"segments": segments, "attributes": attributes}


def best_of_segments(policy: Any, roster: Roster) -> dict[str, Subset]:
    """Return the best subset of each segment, as arm numbers, and predictions for new combinations of known values.

    OTHER stands for all values that are new.
    """
    if not policy.takes_context:
        return {}
    known = list(policy.segments)
    values: dict[str, dict[str, None]] = {}
    for key in known:
        for name, value in context_of(key).items():
            if value not in (MISSING, OTHER):
                values.setdefault(name, {})[value] = None
    names = sorted(values)
    with_new = [[*values[name], OTHER] for name in names]
    combined = (key_of(dict(zip(names, each, strict=True))) for each in product(*with_new))
    new = [key for key in _first(combined, MOST_PREDICTED + len(known)) if key not in known][:MOST_PREDICTED]
    return {key: roster.to_numbers(policy.best(context_of(key))) for key in (*known, *new)}


def _first(items: Any, count: int) -> list[Any]:
    return [each for each, _ in zip(items, range(count), strict=False)]


def record_text(record: Mapping[str, Any], active: Sequence[int]) -> str:
    """Return a policy's record and the arms that it knows as JSON."""
    return json.dumps({"record": record, "active": list(active)}, separators=(",", ":"), allow_nan=False)


def record_from(text: str) -> tuple[dict[str, Any], list[int]]:
    """Return the record and the arms that `record_text` wrote, or raise StateError."""
    try:
        found = json.loads(text)
        return found["record"], found["active"]
    except (ValueError, LookupError, TypeError) as why:
        raise StateError(f"the policy's record cannot be read: {why}") from why
