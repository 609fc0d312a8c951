"""How late alarms are raised, and how often in error: `python -m benchmarks.alarms --sources arrivals drift`.

`arrivals`: the traffic of a campaign, seen twice a day. It has a daily cycle and differs from day to day. Rewards take
exponential times. On day 30 of 60, rewards stop, halve, or take three times as long; or nothing changes. With a heavy
tail, nothing changes, and rewards take log-normal times (sigma 1.5).
`drift`: all arms change after 20,000 of 40,000 plays. `synergy`: a pair of arms pays only together, 0.7 instead of 0.2.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import kofn
from benchmarks.rows import Row, run
from kofn.campaigns.reports.alarms import ArrivalHistory, Period

HOUR, DAY = 3600.0, 86400.0
CHANGES = ("none", "heavy tail", "silence", "missing", "delay")
TAIL = 1.5


@dataclass(frozen=True)
class Scale:
    """How much is simulated."""

    days: int = 60
    per_day: int = 3000
    rates: tuple[float, ...] = (0.02, 0.3, 1.0)  # of decisions that get a reward
    delays: tuple[float, ...] = (10.0, HOUR, DAY)  # mean seconds until a reward comes
    change: int = 20_000  # the play at which `drift` changes all arms
    synergy: int = 10**5  # plays


FULL = Scale()
QUICK = Scale(20, 1000, (0.3,), (60.0,), 400, 400)


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


def delays_of(taken: Sequence[float]) -> Row:
    """Return the median and the longest of the delays until an alarm; nothing if there was none."""
    return {
        "median_delay": float(np.median(taken)) if taken else None,
        "longest_delay": float(max(taken)) if taken else None,
    }


def arrivals(seed: int, runs: int, scale: Scale) -> Iterator[Row]:
    """Yield how often each change raises its alarm and others, and after how many days."""
    middle = DAY * scale.days / 2
    for rate in scale.rates:
        for delay in scale.delays:
            for change in CHANGES:
                days, early, others = [], 0, 0
                for number in range(runs):
                    rng = np.random.default_rng([seed, number])
                    found = first_alarms(hourly(rng, scale, rate, delay, change))
                    early += any(at <= middle for at in found.values())
                    others += bool(found.keys() - {change})
                    if found.get(change, 0.0) > middle:
                        days.append((found[change] - middle) / DAY)
                yield {
                    "source": "arrivals",
                    "problem": f"{rate:.0%} rewarded, {delay:.0f} s later",
                    "change": change,
                    "runs": runs,
                    "raised": len(days),
                    **delays_of(days),
                    "unit": "days",
                    "raised_before": early,
                    "other_alarms": others,
                }


Values = Callable[[Any, int], Any]
"""The mean reward of each row of subsets, after this number of plays."""


def watched(policy: kofn.Thompson, values: Values, plays: int, rng: np.random.Generator) -> dict[str, int]:
    """Play coins; return when each alarm was raised."""
    while policy.plays < plays:
        plan = policy.plan()
        total = rng.binomial(plan.times, values(plan.subsets, policy.plays)).astype(float)
        policy.tell_plan(kofn.Tally(plan.times, total, total))
    return dict(policy._alarms.raised())


def drift(seed: int, runs: int, scale: Scale) -> Iterator[Row]:
    """Yield how long after a change of all arms an alarm is raised; before it, none may be."""
    for n_arms, k in ((10, 2), (24, 5)):
        early, taken = 0, []
        for number in range(runs):
            rng = np.random.default_rng([seed, number])
            old, new = rng.random(n_arms), rng.random(n_arms)

            def values(subsets: Any, plays: int, old: Any = old, new: Any = new) -> Any:
                return (old if plays < scale.change else new)[subsets].mean(axis=1)

            alarms = watched(kofn.Thompson(n_arms, k, seed=number), values, 2 * scale.change, rng)
            early += any(since <= scale.change for since in alarms.values())
            taken += [min(alarms.values()) - scale.change] if alarms else []
        yield {
            "source": "drift",
            "problem": f"mean, N = {n_arms}, K = {k}",
            "change": "all arms",
            "runs": runs,
            "raised": len(taken),
            **delays_of(taken),
            "unit": "plays",
            "raised_before": early,
            "other_alarms": None,
        }


def synergy(seed: int, runs: int, scale: Scale) -> Iterator[Row]:
    """Yield alarms on a pair of arms that pays only together, for the runs that find it and those that do not."""

    def values(subsets: Any, plays: int) -> Any:
        del plays
        return 0.2 + 0.5 * (np.isin(subsets, (0, 1)).sum(axis=1) == 2)

    for n_arms, k in ((10, 2), (20, 4), (30, 3)):
        taken: dict[bool, list[dict[str, int]]] = {False: [], True: []}
        for number in range(runs):
            policy = kofn.Thompson(n_arms, k, seed=number)
            alarms = watched(policy, values, scale.synergy, np.random.default_rng([seed, number]))
            taken[{0, 1} <= set(policy.best())].append(alarms)
        for in_best, found in taken.items():
            yield {
                "source": "synergy",
                "problem": f"a pair, N = {n_arms}, K = {k}",
                "change": "found" if in_best else "not found",
                "runs": len(found),
                "raised": sum(map(bool, found)),
                **delays_of([min(alarms.values()) for alarms in found if alarms]),
                "unit": "plays",
                "raised_before": None,
                "other_alarms": None,
            }


SOURCES: dict[str, Callable[[int, int, Scale], Iterator[Row]]] = {
    "arrivals": arrivals,
    "drift": drift,
    "synergy": synergy,
}


def rows(
    seed: int = 4000, runs: int = 40, sources: tuple[str, ...] = tuple(SOURCES), quick: bool = False
) -> Iterator[Row]:
    """Yield a row for each problem and change."""
    for source in sources:
        yield from SOURCES[source](seed, min(runs, 2) if quick else runs, QUICK if quick else FULL)


if __name__ == "__main__":
    run(rows, __doc__)
