"""The rows of the open plan: where plays are handed out and observed plays are counted.

Rows are read on demand and written together at the end of a transaction. A process keeps them until another process
writes to the campaign.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from sqlalchemy import Double, bindparam, cast, select

from kofn.campaigns.records.rows import subset_from, subset_key
from kofn.campaigns.store.schema import PLANS
from kofn.campaigns.store.statements import Insert, ListStatement, Statement
from kofn.core.open_plan import PHASE_STEP, PHASES, turn

if TYPE_CHECKING:
    from kofn.campaigns.records.transaction import Transaction

UNLEARNED = -1
"""The `times` of a row that the policy cannot learn from. As a row number: plays that are counted in no row."""

SMALL_PLAN = 512
"""Rows of a plan that is read as a whole. A larger plan of which another process wrote a part is read row by row."""

Play = tuple[str, str | None]
"""What plays are counted under: a subset, and the key of a segment if the policy takes a context."""

_NAMES = ("row", "subset", "times", "in_flight", "count", "total", "squares", "context")
_COLUMNS = [PLANS.c[name] for name in _NAMES]
_OURS = PLANS.c.campaign == bindparam("c")
_ALL = Statement(select(*_COLUMNS).where(_OURS).order_by(PLANS.c.row))
_BY_NUMBER = ListStatement(lambda rows: select(*_COLUMNS).where(_OURS, PLANS.c.row.in_(rows)))
_BY_PLAY = ListStatement(lambda keys: select(*_COLUMNS).where(_OURS, PLANS.c.key.in_(keys)))
_FREE = Statement(
    select(*_COLUMNS)
    .where(_OURS, PLANS.c.row.between(bindparam("start"), bindparam("end")))
    .where(PLANS.c.times > PLANS.c.count + PLANS.c.in_flight)
    .order_by(PLANS.c.row)
    .limit(bindparam("most"))
)
_PHASE = PLANS.c.row * PLANS.c.row * PHASE_STEP % PHASES
_DUE = cast((PLANS.c.count + PLANS.c.in_flight) * PHASES + _PHASE, Double) / (PLANS.c.times * PHASES)  # see `turn`
_FREE_OF_SEGMENT = Statement(
    select(*_COLUMNS)
    .where(_OURS, PLANS.c.context == bindparam("segment"))
    .where(PLANS.c.times > PLANS.c.count + PLANS.c.in_flight)
    .order_by(_DUE, PLANS.c.row)
    .limit(bindparam("most"))
)
_OBSERVED = Statement(select(*_COLUMNS).where(_OURS, PLANS.c.count > 0).order_by(PLANS.c.row))
_UPDATE = Statement(
    PLANS.update()
    .where(_OURS, PLANS.c.row == bindparam("r"))
    .values(in_flight=bindparam("f"), count=bindparam("n"), total=bindparam("t"), squares=bindparam("q"))
)
_INSERT = Insert(PLANS)
_DELETE = Statement(PLANS.delete().where(_OURS))


@dataclass(eq=False)
class PlanRow:
    """One row of the plan: a subset, how often it is planned, and what its observed plays earned.

    `times` is 0 for an unplanned subset that the policy can learn from, and UNLEARNED if it cannot. `context` is the
    key of the segment that the row is for, if the policy takes a context.
    """

    row: int
    subset: str
    times: int
    in_flight: int = 0
    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    context: str | None = None
    new: bool = False

    @property
    def play(self) -> Play:
        """What the plays of this row are counted under."""
        return self.subset, self.context

    @property
    def handed_out(self) -> int:
        """Plays that are in flight or observed."""
        return self.count + self.in_flight

    @property
    def free(self) -> int:
        """Planned plays that are neither in flight nor observed."""
        free = self.times - self.count - self.in_flight
        return free if free > 0 else 0

    def due(self, after: int = 0) -> float:
        """Return when the next play of this row is due among the plays of its segment, or the one `after` it."""
        return float(turn(self.row, self.handed_out + after, self.times))

    def has_room(self, count: int) -> bool:
        """Return whether at least `count` planned plays remain."""
        return self.times - self.count >= count

    def values(self, campaign: int) -> dict[str, Any]:
        """Return the row as the table has it."""
        return {
            "campaign": campaign,
            "row": self.row,
            "key": subset_key(self.subset, self.context),
            "subset": self.subset,
            "times": self.times,
            "in_flight": self.in_flight,
            "count": self.count,
            "total": self.total,
            "squares": self.squares,
            "context": self.context,
        }


def observed_rows(tx: Transaction) -> list[PlanRow]:
    """Return the rows with observed plays, planned ones first."""
    known = tx.plan.observed()
    if known is not None:
        return known
    tx.flush()
    return [PlanRow(*row) for row in tx.driver.rows(_OBSERVED, {"c": tx.id})]


def replace_plan(tx: Transaction, rows: Iterable[PlanRow]) -> None:
    """Delete the plan, also what is not yet written of it, and insert another one."""
    rows = list(rows)
    tx.driver.run(_DELETE, {"c": tx.id})
    tx.driver.run_many(_INSERT, [row.values(tx.id) for row in rows])
    tx.plan = PlanRows(rows)


class PlanRows:
    """The rows of one plan that a process knows. Several may be of the same play; plays go to the first with room.

    Once it has all rows, given or read, it reads nothing more.
    """

    def __init__(self, rows: Iterable[PlanRow] | None = None) -> None:
        self._by_number: dict[int, PlanRow] = {}
        self._by_play: dict[Play, list[PlanRow]] = {}
        self._complete: set[Play] = set()  # plays of which all rows have been read
        self._changed: dict[int, PlanRow] = {}
        self._all = False
        # numbers of the rows with free plays, ascending, by segment, if all rows are known
        self._free: dict[str | None, list[int]] = {}
        if rows is not None:
            self._know_all(rows)

    def _know_all(self, rows: Iterable[PlanRow]) -> None:
        for row in rows:
            if row.row not in self._by_number:
                self._add(row)
        self._all = True
        self._free = {}
        for number, row in sorted(self._by_number.items()):
            if row.free:
                self._free.setdefault(row.context, []).append(number)

    def _add(self, row: PlanRow) -> None:
        self._by_number[row.row] = row
        self._by_play.setdefault(row.play, []).append(row)

    def _read_if_small(self, tx: Transaction) -> bool:
        """Return whether all rows are known; read them if they are few."""
        if not self._all and tx.row.plan_rows + tx.row.unplanned <= SMALL_PLAN:
            self._know_all(PlanRow(*row) for row in tx.driver.rows(_ALL, {"c": tx.id}))
        return self._all

    def observed(self) -> list[PlanRow] | None:
        """Return the rows with observed plays in order; None unless all rows are known."""
        return [row for _, row in sorted(self._by_number.items()) if row.count] if self._all else None

    def load(self, tx: Transaction, numbers: Iterable[int]) -> None:
        """Read rows by number."""
        missing = [number for number in numbers if number not in self._by_number]
        if missing and not self._read_if_small(tx):
            self._keep(tx.driver.rows_in(_BY_NUMBER, {"c": tx.id}, missing))

    def load_plays(self, tx: Transaction, plays: Iterable[Play]) -> None:
        """Read all rows of these plays, planned or not."""
        if self._all:
            return
        missing = set(plays) - self._complete
        if missing and not self._read_if_small(tx):
            self._keep(tx.driver.rows_in(_BY_PLAY, {"c": tx.id}, (subset_key(*play) for play in missing)))
            self._complete |= missing

    def _keep(self, rows: Iterable[Any]) -> None:
        for row in rows:
            if row[0] not in self._by_number:
                self._add(PlanRow(*row))

    def free_rows(self, tx: Transaction, start: int, end: int, most: int) -> list[PlanRow]:
        """Return at most `most` rows with free plays, numbered from `start` to `end`, in order."""
        if self._read_if_small(tx):
            free = self._free.get(None, [])
            first = bisect_left(free, start)
            last = min(first + most, bisect_left(free, end + 1))
            return [self._by_number[number] for number in free[first:last]]
        return self._read_free(tx, _FREE, {"start": start, "end": end, "most": most})

    def free_of_segment(self, tx: Transaction, segment: str, most: int) -> list[PlanRow]:
        """Return at most `most` rows of a segment with free plays, the one whose next play is due first."""
        if self._read_if_small(tx):
            free = (self._by_number[number] for number in self._free.get(segment, ()))
            return nsmallest(most, free, key=lambda row: (row.due(), row.row))
        return self._read_free(tx, _FREE_OF_SEGMENT, {"segment": segment, "most": most})

    def _read_free(self, tx: Transaction, statement: Statement, values: dict[str, Any]) -> list[PlanRow]:
        self.write(tx)
        found = tx.driver.rows(statement, {"c": tx.id, **values})
        self._keep(found)
        return [self._by_number[row[0]] for row in found]

    def times_of(self, tx: Transaction, play: Play) -> int:
        """Return how often the plan has this play."""
        self.load_plays(tx, [play])
        return sum(max(0, row.times) for row in self._by_play.get(play, ()))

    def hand_out(self, tx: Transaction, row: PlanRow, count: int) -> None:
        """Count plays of a row as in flight; a negative count takes them back."""
        before = row.free
        row.in_flight += count
        self._update_free(tx, row, before)

    def release(self, tx: Transaction, number: int, count: int = 1) -> None:
        """Count plays of this row as no longer in flight."""
        self.hand_out(tx, self._by_number[number], -count)

    def _update_free(self, tx: Transaction, row: PlanRow, before: int) -> None:
        self._changed[row.row] = row
        after = row.free
        tx.row.free += after - before
        if self._all and (before > 0) != (after > 0):
            free = self._free.setdefault(row.context, [])
            if after:
                insort(free, row.row)
            else:
                del free[bisect_left(free, row.row)]

    def with_room(self, tx: Transaction, play: Play, count: int, number: int | None = None) -> PlanRow | None:
        """Return a row of this play with `count` plays remaining: this number if it has room, or another one."""
        if number is not None and self._by_number[number].has_room(count):
            return self._by_number[number]
        self.load_plays(tx, [play])
        return next((row for row in self._by_play.get(play, ()) if row.has_room(count)), None)

    def observe(
        self, tx: Transaction, play: Play, count: int, total: float, squares: float, number: int | None = None
    ) -> int:
        """Count plays in a row with room, or else as unplanned; return the row's number, or UNLEARNED."""
        row = self.with_room(tx, play, count, number) or self._unplanned(tx, play)
        before = row.free
        row.count += count
        row.total += total
        row.squares += squares
        self._update_free(tx, row, before)
        if row.times == UNLEARNED:
            return UNLEARNED
        tx.row.observed += count
        return row.row

    def _unplanned(self, tx: Transaction, play: Play) -> PlanRow:
        """Return the row for unplanned plays of this subset; make it if there is none.

        The policy cannot learn from a play whose segment is no longer known.
        """
        campaign, snapshot = tx.row, tx.snapshot
        subset, context = play
        learns = snapshot.policy.accepts_unplanned and snapshot.roster.to_indices(subset_from(subset)) is not None
        times = 0 if learns and (context is not None) == campaign.takes_context else UNLEARNED
        for row in self._by_play.get(play, ()):
            if row.times == times and row.row >= campaign.plan_rows:
                return row
        row = PlanRow(campaign.plan_rows + campaign.unplanned, subset, times, context=context, new=True)
        campaign.unplanned += 1
        self._add(row)
        return row

    def write(self, tx: Transaction) -> None:
        """Write the rows that have changed."""
        new, old = [], []
        for row in self._changed.values():
            if row.new:
                new.append(row.values(tx.id))
                row.new = False
            else:
                sums = {"n": row.count, "t": row.total, "q": row.squares}
                old.append({"c": tx.id, "r": row.row, "f": row.in_flight, **sums})
        self._changed.clear()
        if new:
            tx.driver.run_many(_INSERT, new)
        if old:
            tx.driver.run_many(_UPDATE, old)
