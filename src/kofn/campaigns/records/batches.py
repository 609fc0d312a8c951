"""Batches of decisions and their rewards, as one transaction sees them: read on demand, written together at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, select

from kofn.campaigns.records.plan_rows import Play
from kofn.campaigns.store.schema import BATCHES, REWARDS
from kofn.campaigns.store.statements import Driver, Insert, ListStatement, Statement

if TYPE_CHECKING:
    from kofn.campaigns.records.transaction import Transaction

_NAMES = (
    *("first", "count", "open", "salt", "step", "row", "subset"),
    *("at", "due", "request", "group", "propensity", "key", "metadata", "context"),
)
_COLUMNS = [BATCHES.c[name] for name in _NAMES]
_OURS = BATCHES.c.campaign == bindparam("c")
_BY_NUMBER = ListStatement(lambda firsts: select(*_COLUMNS).where(_OURS, BATCHES.c.first.in_(firsts)))
_BY_REQUEST = ListStatement(lambda requests: select(*_COLUMNS).where(_OURS, BATCHES.c.request.in_(requests)))
_DUE = Statement(select(*_COLUMNS).where(_OURS, BATCHES.c.due <= bindparam("now")))
_NEXT_DUE = Statement(select(BATCHES.c.due).where(_OURS, BATCHES.c.due.is_not(None)).order_by(BATCHES.c.due).limit(1))
_OF_PLAN = Statement(
    select(*_COLUMNS)
    .where(_OURS, BATCHES.c.due.is_not(None))
    .where(BATCHES.c.step == bindparam("s"), BATCHES.c.row >= 0, BATCHES.c.at <= bindparam("before"))
)
_INSERT = Insert(BATCHES)
_UPDATE = Statement(
    BATCHES.update()
    .where(_OURS, BATCHES.c.first == bindparam("f"))
    .values(open=bindparam("o"), due=bindparam("d"), request=bindparam("k"))
)
_REWARDS_OF = ListStatement(
    lambda firsts: select(REWARDS.c.first, REWARDS.c.place, REWARDS.c.value).where(
        REWARDS.c.campaign == bindparam("c"), REWARDS.c.first.in_(firsts)
    )
)
_INSERT_REWARD = Insert(REWARDS)


@dataclass(eq=False)
class Batch:
    """Decisions of one subset that were handed out together, of which `open` have no reward."""

    first: int
    count: int
    open: int
    salt: int
    step: int
    row: int
    subset: str
    at: float
    due: float | None
    request: int | None = None
    group: int = 0
    propensity: float | None = None
    key: str | None = None
    metadata: str | None = None
    context: str | None = None

    @property
    def play(self) -> Play:
        """What the plays of these decisions are counted under."""
        return self.subset, self.context


class Batches:
    """The batches that one transaction reads, makes and changes, and the rewards that it records."""

    def __init__(self) -> None:
        self._known: dict[int, Batch] = {}
        self._asked: set[int] = set()  # numbers that have been read, whether or not there is such a batch
        self._requests: dict[int, list[Batch]] = {}
        self._new: list[Batch] = []
        self._changed: dict[int, Batch] = {}
        self._rewards: dict[int, dict[int, float]] = {}  # by batch and place, of batches that have been read
        self._new_rewards: list[dict[str, float]] = []

    def ask(self, driver: Driver, campaign: int, firsts: Set[int], requests: Set[int]) -> Callable[[], None]:
        """Send the queries for batches, by number and by request; return a function that keeps them."""
        by_number = driver.ask_in(_BY_NUMBER, {"c": campaign}, firsts) if firsts else ()
        by_request = driver.ask_in(_BY_REQUEST, {"c": campaign}, requests) if requests else ()

        def keep() -> None:
            self._asked |= firsts
            self._requests.update((each, []) for each in requests)
            for answer in by_number:
                for row in answer():
                    self._keep(Batch(*row))
            for answer in by_request:
                for row in answer():
                    batch = self._keep(Batch(*row))
                    if batch.request is not None:
                        self._requests[batch.request].append(batch)

        return keep

    def load(self, tx: Transaction, firsts: Iterable[int]) -> dict[int, Batch]:
        """Return the batches with these numbers that are stored."""
        firsts = set(firsts)
        if missing := firsts - self._asked:
            self.ask(tx.driver, tx.id, missing, frozenset())()
        return {first: self._known[first] for first in firsts if first in self._known}

    def load_requests(self, tx: Transaction, requests: Iterable[int]) -> None:
        """Read the batches that were made by calls with these keys."""
        if missing := set(requests) - self._requests.keys():
            self.ask(tx.driver, tx.id, frozenset(), missing)()

    def of_request(self, tx: Transaction, request: int) -> list[Batch]:
        """Return the batches that were made by a call with this key, in order."""
        self.load_requests(tx, [request])
        return sorted(self._requests[request], key=lambda batch: batch.first)

    def release_request(self, batches: Iterable[Batch]) -> None:
        """Take the key from these batches: the next ones of this key replace them."""
        for batch in batches:
            assert batch.request is not None
            self._requests[batch.request] = []
            batch.request = None
            self.change(batch)

    def due(self, tx: Transaction) -> list[Batch]:
        """Return the batches that are overdue."""
        self.write(tx)
        return [self._keep(Batch(*row)) for row in tx.driver.rows(_DUE, {"c": tx.id, "now": tx.now})]

    def next_due(self, tx: Transaction) -> float | None:
        """Return when the next batch expires."""
        self.write(tx)
        found = tx.driver.rows(_NEXT_DUE, {"c": tx.id})
        return found[0][0] if found else None

    def of_plan(self, tx: Transaction, before: float) -> list[Batch]:
        """Return the batches of the present plan that are in flight since before this time."""
        self.write(tx)
        found = tx.driver.rows(_OF_PLAN, {"c": tx.id, "s": tx.row.step, "before": before})
        return [self._keep(Batch(*row)) for row in found]

    def _keep(self, batch: Batch) -> Batch:
        return self._known.setdefault(batch.first, batch)

    def add(self, batch: Batch) -> None:
        """Add a new batch."""
        self._known[batch.first] = batch
        self._asked.add(batch.first)
        self._new.append(batch)
        if batch.request is not None:
            self._requests.setdefault(batch.request, []).append(batch)

    def change(self, batch: Batch) -> None:
        """Write this batch, which has changed, at the end."""
        self._changed[batch.first] = batch

    def rewards_of(self, tx: Transaction, batches: Iterable[Batch]) -> dict[int, dict[int, float]]:
        """Return the known rewards of these batches, by batch and place."""
        missing = [batch.first for batch in batches if batch.open < batch.count and batch.first not in self._rewards]
        if missing:
            self._rewards.update((first, {}) for first in missing)
            for first, place, value in tx.driver.rows_in(_REWARDS_OF, {"c": tx.id}, missing):
                self._rewards[first][place] = value
        return self._rewards

    def reward(self, tx: Transaction, batch: Batch, place: int, value: float, row: int) -> None:
        """Record the reward of a decision that was counted in this row of the plan."""
        self._rewards.setdefault(batch.first, {})[place] = value
        batch.open -= 1
        if not batch.open:
            batch.due = None
        self.change(batch)
        self._new_rewards.append(
            {"campaign": tx.id, "first": batch.first, "place": place, "value": value}
            | {"at": tx.now, "step": tx.row.step, "row": row}
        )

    def write(self, tx: Transaction) -> None:
        """Write everything that is new or has changed."""
        if self._new:
            tx.driver.run_many(_INSERT, [{**vars(batch), "campaign": tx.id} for batch in self._new])
        new = {batch.first for batch in self._new}
        self._new.clear()
        changed = [batch for batch in self._changed.values() if batch.first not in new]
        self._changed.clear()
        if changed:
            rows = [{"c": tx.id, "f": each.first, "o": each.open, "d": each.due, "k": each.request} for each in changed]
            tx.driver.run_many(_UPDATE, rows)
        if self._new_rewards:
            tx.driver.run_many(_INSERT_REWARD, self._new_rewards)
            self._new_rewards = []
