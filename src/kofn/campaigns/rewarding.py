"""How rewards are taken in: a batch is checked as a whole, written as a whole, and counted where it teaches most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, bindparam, select

from kofn.campaigns.head import Head
from kofn.campaigns.history import happened
from kofn.campaigns.ids import Place, read_id, shown
from kofn.campaigns.ledger import Ledger, chunks
from kofn.campaigns.schema import REWARDS, RUNS
from kofn.campaigns.store import Store
from kofn.core import BadInput, BadReward, Conflict, UnknownDecision
from kofn.core.plan import ROUNDING
from kofn.responses import Rewarded

Rewards = Mapping[str, float] | Iterable[tuple[str, float]]


def in_range(reward: Any, low: float, high: float) -> float:
    """The reward as a float in its range; what rounding pushed out comes back in."""
    try:
        value = float(reward if isinstance(reward, Decimal) else reward + 0.0)  # a sum: float() would parse text
    except (TypeError, ValueError, OverflowError):
        raise BadReward(f"a reward is one number, not {shown(reward)}") from None
    slack = ROUNDING * (high - low)
    if not low - slack <= value <= high + slack:
        raise BadReward(f"a reward lies from {low:g} to {high:g} (reward_range), but {shown(reward)} came")
    return min(max(value, low), high)


def read_batch(rewards: Rewards, secret: bytes, low: float, high: float) -> dict[Place, tuple[str, float]]:
    """The batch by place, each number checked; one that has a decision twice with two values is refused."""
    pairs = rewards.items() if isinstance(rewards, Mapping) else rewards
    batch: dict[Place, tuple[str, float]] = {}
    try:
        for id, reward in pairs:
            value = in_range(reward, low, high)
            place = read_id(secret, id)
            if batch.setdefault(place, (id, value))[1] != value:
                raise Conflict(f"the batch has two rewards for the decision {id}: {batch[place][1]:g} and {value:g}")
    except (TypeError, ValueError) as why:
        if isinstance(why, BadInput):
            raise
        raise BadInput("rewards are {id: reward, ...} or pairs (id, reward)") from None
    return batch


_RUNS = select(
    RUNS.c.first, RUNS.c.count, RUNS.c.open, RUNS.c.salt, RUNS.c.step, RUNS.c.row, RUNS.c.subset, RUNS.c.due
).where(RUNS.c.campaign == bindparam("c"), RUNS.c.first.in_(bindparam("firsts", expanding=True)))
_ANSWERS = select(REWARDS.c.first, REWARDS.c.place, REWARDS.c.value).where(
    REWARDS.c.campaign == bindparam("c"), REWARDS.c.first.in_(bindparam("firsts", expanding=True))
)
_WRITE_RUN = (
    RUNS.update()
    .where(RUNS.c.campaign == bindparam("c"), RUNS.c.first == bindparam("f"))
    .values(open=bindparam("o"), due=bindparam("d"))
)
_INSERT = REWARDS.insert()


@dataclass
class _Run:
    """A run as it will be."""

    first: int
    count: int
    open: int
    salt: int
    step: int
    row: int
    subset: str
    due: float | None


def take_in(
    store: Store, connection: Connection, head: Head, batch: Mapping[Place, tuple[str, float]], now: float
) -> Rewarded:
    """Count every reward of the batch that is new, or refuse all of it."""
    runs = _runs(connection, head, batch)
    fresh = _unanswered(connection, head, runs, batch)
    if fresh:
        _count(Ledger(store, connection, head), runs, fresh, now)
    return Rewarded(len(fresh), len(batch) - len(fresh))


def _runs(connection: Connection, head: Head, batch: Mapping[Place, tuple[str, float]]) -> dict[int, _Run]:
    """The runs of the batch. One that is gone was answered, else it would be there."""
    found: dict[int, _Run] = {}
    for some in chunks(sorted({place.first for place in batch})):
        rows = connection.execute(_RUNS, {"c": head.id, "firsts": some})
        found.update((row[0], _Run(*row)) for row in rows)
    for place, (id, _) in batch.items():
        run = found.get(place.first)
        known = place.first < head.decided if run is None else run.salt == place.salt and place.place < run.count
        if not known:
            raise UnknownDecision(f"{id} is not a decision of this campaign, or not since a backup was restored")
    return found


def _unanswered(
    connection: Connection, head: Head, runs: Mapping[int, _Run], batch: Mapping[Place, tuple[str, float]]
) -> list[tuple[Place, float]]:
    """What of the batch is new; a decision that has another reward is refused."""
    answers: dict[tuple[int, int], float] = {}
    for some in chunks(sorted(first for first, run in runs.items() if run.open < run.count)):
        rows = connection.execute(_ANSWERS, {"c": head.id, "firsts": some})
        answers.update(((row.first, row.place), row.value) for row in rows)
    fresh = []
    for place, (id, value) in batch.items():
        before = answers.get(place[:2])
        if before is not None and before != value:
            raise Conflict(f"the decision {id} has the reward {before:g} already, but {value:g} came")
        if before is None and place.first in runs:
            fresh.append((place, value))
    return fresh


def _count(ledger: Ledger, runs: Mapping[int, _Run], fresh: list[tuple[Place, float]], now: float) -> None:
    """Write the rewards, and what follows from them for the runs, the plan and the campaign."""
    head, connection = ledger.head, ledger.connection
    current = {first for first, run in runs.items() if run.step == head.step and run.row >= 0}
    ledger.load(runs[first].row for first in current)
    ledger.find(run.subset for first, run in runs.items() if first not in current)
    rows, touched = [], set()
    for place, value in fresh:
        run = runs[place.first]
        planned = run.row if place.first in current else None
        if planned is not None and run.due is not None:
            ledger.back(planned)
        row = ledger.take(run.subset, 1, value, value * value, planned)
        rows.append(
            {"campaign": head.id, "first": place.first, "place": place.place, "value": value}
            | {"at": now, "step": head.step, "row": row}
        )
        touched.add(place.first)
        _answered(head, run)
    ledger.write()
    connection.execute(_INSERT, rows)
    ended = [(runs[first], runs[first].open == 0) for first in sorted(touched)]
    connection.execute(
        _WRITE_RUN,
        [{"c": head.id, "f": run.first, "o": run.open, "d": None if done else run.due} for run, done in ended],
    )
    total = sum(value for _, value in fresh)
    head.rewarded += len(rows)
    head.kept += len(rows)
    head.total += total
    happened(connection, head, now, rewarded=len(rows), total=total)


def _answered(head: Head, run: _Run) -> None:
    run.open -= 1
    if run.due is None:
        head.expired -= 1
    else:
        head.in_flight -= 1
