"""How late the alarms of a campaign are raised, and how often in error: simulated traffic, seen twice a day.

    python -m benchmarks.alarms arrivals --runs 40

Traffic has a daily cycle and differs from day to day. Rewards take exponential times. On day 30 of 60, rewards stop,
halve, or take three times as long; or nothing changes. With a heavy tail, nothing changes, and rewards take log-normal
times (sigma 1.5).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.tables import line, parser_for, table
from kofn.campaigns.reports.alarms import ArrivalHistory, Period

HOUR, DAY = 3600.0, 86400.0
CHANGES = ("none", "heavy tail", "silence", "missing", "delay")
TAIL = 1.5


@dataclass(frozen=True)
class Scale:
    """How much is simulated."""

    days: int
    per_day: int
    rates: tuple[float, ...]
    delays: tuple[float, ...]


FULL = Scale(60, 3000, (0.02, 0.3, 1.0), (10.0, HOUR, DAY))
QUICK = Scale(20, 1000, (0.3,), (60.0,))


def hourly(rng: np.random.Generator, scale: Scale, rate: float, delay: float, change: str) -> list[Period]:
    """Return a history in hours, with a change in the middle."""
    hours = np.arange(24 * scale.days)
    busy = (1 + 0.8 * np.sin(2 * np.pi * hours / 24)) * np.repeat(rng.lognormal(0, 0.3, scale.days), 24)
    decided = rng.poisson(busy * scale.per_day / 24)
    at = HOUR * (np.repeat(hours, decided) + rng.random(decided.sum()))
    after = at >= DAY * scale.days / 2
    rates = np.where(after & (change == "missing"), rate / 2, rate)
    takes = rng.exponential(np.where(after & (change == "delay"), 3 * delay, delay))
    if change == "heavy tail":
        takes = delay * rng.lognormal(-TAIL * TAIL / 2, TAIL, len(at))
    arrives = at + takes
    comes = (rng.random(len(at)) < rates) & (arrives < DAY * scale.days)
    if change == "silence":
        comes &= arrives < DAY * scale.days / 2
    slot = (arrives[comes] // HOUR).astype(int)
    rewarded = np.bincount(slot, minlength=len(hours))
    waited = np.bincount(slot, takes[comes], minlength=len(hours))
    return [
        Period(HOUR * hour, HOUR * (hour + 1), int(decided[hour]), int(rewarded[hour]), float(waited[hour]))
        for hour in hours.tolist()
    ]


def first_alarms(parts: list[Period]) -> dict[str, float]:
    """Return when each alarm was first seen, by kind."""
    found: dict[str, float] = {}
    for seen in range(12, len(parts) + 1, 12):
        for alarm in ArrivalHistory(parts[:seen], HOUR * seen).alarms():
            found.setdefault(alarm.kind, HOUR * seen)
    return found


def arrivals(seed: int, runs: int, scale: Scale) -> None:
    """Print how often each change raises its alarm and others, and after how many days."""
    table("rewards", "mean delay", "change", "runs", "raised", "median days", "longest", "before it", "other alarms")
    for rate in scale.rates:
        for delay in scale.delays:
            for change in CHANGES:
                print_change(seed, runs, scale, rate, delay, change)


def print_change(seed: int, runs: int, scale: Scale, rate: float, delay: float, change: str) -> None:
    """Print one row."""
    middle, days, early, others = DAY * scale.days / 2, [], 0, 0
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        found = first_alarms(hourly(rng, scale, rate, delay, change))
        early += any(at <= middle for at in found.values())
        others += bool(found.keys() - {change})
        if found.get(change, 0.0) > middle:
            days.append((found[change] - middle) / DAY)
    shown: list[Any] = [f"{np.median(days):.1f}", f"{max(days):.1f}"] if days else ["", ""]
    names = {10.0: "10 s", 60.0: "1 min", HOUR: "1 h", DAY: "1 d"}
    raised = "" if change in ("none", "heavy tail") else len(days)
    line(f"{rate:.0%}", names[delay], change, runs, raised, *shown, early, others)


TABLES: dict[str, Callable[[int, int, Scale], None]] = {"arrivals": arrivals}


def main(arguments: Sequence[str] | None = None) -> None:
    args = parser_for(__doc__, TABLES, seed=4000, runs=40).parse_args(arguments)
    TABLES[args.table](args.seed, args.runs, QUICK if args.quick else FULL)


if __name__ == "__main__":
    main()
