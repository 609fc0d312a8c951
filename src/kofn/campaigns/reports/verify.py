"""Verification: what folds have counted, and what the policy has learned, is computed again and compared.

The policy is made again from its learning steps; the tallies of the steps are compared with the decisions and events
where these are kept. If all agrees, no reward was lost and none was counted twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from kofn.campaigns.evidence import Sums
from kofn.campaigns.fold import Row, Transaction, read_steps
from kofn.campaigns.learning import Step, policy_of, readable, record_from, take
from kofn.campaigns.progress import MOST_IN_FLIGHT, Progress
from kofn.campaigns.store.schema import FOLDS, STATES
from kofn.campaigns.tally import Cut, Tally, merged, tally
from kofn.core import KofnError
from kofn.core.responses import Verification
from kofn.policies.registry import save

TOLERANCE = 1e-6
"""Largest relative deviation of a number that passes. Sums of the same rewards in another order differ in their last
digits. A higher value would hide small differences; a lower one reports rounding errors as differences."""

SMALL = 1e-3
"""Numbers below this size are compared by their absolute deviation, relative to this size."""

MAX_DIFFERENCES = 20
"""Differences that are listed; more are counted only."""


@dataclass
class Log:
    """What takes part in a verification."""

    row: Row
    learned: int  # the last step that the policy has learned
    record: tuple[dict[str, Any], list[int]]
    base: tuple[dict[str, Any], list[int]]  # the oldest record that is kept, and its step
    first: int
    steps: list[Step]
    again: Tally | None  # all of the log, if every decision is still stored


@dataclass
class Comparison:
    """Compares stored values with computed ones."""

    found: list[str] = field(default_factory=list)
    deviation: float = 0.0

    def same(self, what: str, stored: Any, computed: Any) -> None:
        """Compare two plain values, lists and dicts element by element."""
        if isinstance(stored, int | float) and isinstance(computed, int | float):
            self._close(what, stored, computed)
        elif isinstance(stored, dict) and isinstance(computed, dict) and stored.keys() == computed.keys():
            for name, value in stored.items():
                self.same(f"{what}.{name}", value, computed[name])
        elif isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
            for index, value in enumerate(stored):
                self.same(f"{what}[{index}]", value, computed[index])
        elif stored != computed:
            self.found.append(f"{what}: the store has {stored!r:.80}, the log gives {computed!r:.80}")

    def _close(self, what: str, stored: float, computed: float) -> None:
        if stored == computed:
            return
        deviation = abs(stored - computed) / max(abs(stored), abs(computed), SMALL)
        if deviation <= TOLERANCE:
            self.deviation = max(self.deviation, deviation)
        else:
            self.found.append(f"{what}: the store has {stored!r}, the log gives {computed!r}")

    def differences(self) -> list[str]:
        """Return the differences, shortened."""
        more = len(self.found) - MAX_DIFFERENCES
        return [*self.found[:MAX_DIFFERENCES], *([f"and {more:,} more differences"] if more > 0 else [])]


def read_log(tx: Transaction) -> Log:
    """Read all that takes part."""
    campaign, connection = tx.row.id, tx.connection
    state = connection.execute(select(STATES).where(STATES.c.campaign == campaign)).one()
    kept = select(FOLDS).where(FOLDS.c.campaign == campaign, FOLDS.c.record.is_not(None)).order_by(FOLDS.c.step)
    base = connection.execute(kept.limit(1)).one()
    again, progress = None, tx.row.progress
    if not progress.deleted:
        fresh = Progress(slot_width=progress.slot_width, matured=progress.matured)
        again = tally(connection, campaign, tx.row.settings, fresh, Cut(0, 0, 0, 0.0), tx.row.cut)
    record, first = record_from(state.record), record_from(base.record)
    return Log(tx.row, state.step, record, first, base.step, read_steps(connection, campaign, -1, tx.row.step), again)


def verify(log: Log) -> Verification:
    """Compare the policy with its learning steps, and the counters and steps with the log where it is complete."""
    comparison, compared, reason = Comparison(), list[str](), None
    if readable(log.record[0]):
        compared.append("policy")
        _compare_policy(comparison, log)
    else:
        reason = "the policy's record was written by another version of kofn: it is made again when it learns next"
    if log.again is not None:
        compared.append("counters")
        computed = Progress(matured=log.row.progress.matured)
        log.again.matured = None
        log.again.add_to(computed, log.row.settings.sign)
        _compare_counters(comparison, log.row.progress, computed)
        if log.row.progress.revalued:
            reason = "silence or the range has changed, so the sums of rewards were not compared with the log"
        else:
            compared.append("steps")
            _compare_sums(comparison, log, log.again, computed)
    else:
        reason = (
            f"{log.row.progress.deleted:,} decisions are no longer stored (keep_decisions is "
            f"{log.row.settings.keep_decisions:,}), so the policy was compared with its learning steps only"
        )
    return Verification(
        ok=not comparison.found,
        compared=compared,
        rewards=log.row.progress.rewards,
        steps=log.learned,
        deviation=comparison.deviation,
        differences=comparison.differences(),
        reason=reason,
    )


def _compare_policy(comparison: Comparison, log: Log) -> None:
    """Compare the policy's record with the one to which the learning steps lead."""
    try:
        policy, roster = policy_of(*log.base)
        first = log.first + readable(log.base[0])  # a record that is read has learned its own step
        for step in log.steps:
            if first <= step.step <= log.learned:
                policy, roster = take(policy, roster, step)
    except (KofnError, ValueError, LookupError, TypeError, AttributeError) as why:  # a damaged row
        comparison.found.append(f"policy: it cannot be made again from its learning steps: {why}")
        return
    record, active = log.record
    comparison.same("policy", record, json.loads(json.dumps(save(policy))))
    comparison.same("active arms", active, roster.active)


def _compare_counters(comparison: Comparison, stored: Progress, computed: Progress) -> None:
    """Compare the counters with the log."""
    counters = "decided", "rewarded", "totalled", "expired", "waited", "arrived", "learned_decided", "control_decided"
    for name in counters:
        comparison.same(name, getattr(stored, name), getattr(computed, name))
    if len(stored.in_flight) < MOST_IN_FLIGHT // 2:  # else the rarest may have been forgotten
        comparison.same("in_flight", *(_counts(each.in_flight) for each in (stored, computed)))


def _compare_sums(comparison: Comparison, log: Log, again: Tally, computed: Progress) -> None:
    """Compare the sums of rewards, and those of all learning steps, with the log."""
    stored = log.row.progress
    comparison.same("total", stored.total, computed.total)
    for name in ("learned", "control"):
        comparison.same(name, *(_plain(getattr(each, name)) for each in (stored, computed)))
    sums = merged((), {})
    for step in log.steps:
        sums = merged(
            [[*play, *values] for play, values in sums.items()],
            {(each[0], each[1]): (each[2], each[3], each[4]) for each in step.tallies},
        )
    comparison.same("steps", _listed(sums), _listed(again.plays()))


def _plain(sums: Sums) -> list[float]:
    return [sums.count, sums.total, sums.squares]


def _counts(in_flight: Any) -> dict[str, int]:
    return {f"{subset} {context or ''}": count for (subset, context), count in in_flight.items()}


def _listed(sums: Any) -> dict[str, list[float]]:
    return {f"{subset} {context or ''}": list(values) for (subset, context), values in sums.items()}
