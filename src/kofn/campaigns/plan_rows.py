"""The rows of the open plan: where observed plays are counted. Read on demand, written once at the end of a call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import bindparam, select

from kofn.campaigns.rows import subset_from, subset_key
from kofn.campaigns.schema import PLANS
from kofn.campaigns.transaction import Transaction

UNLEARNED = -1
"""The `times` of a row that the policy cannot learn from. As a row number: plays that are counted in no row."""

MAX_IN_LIST = 500
"""Values in one IN list. Both databases limit the parameters of a statement; more values need more statements."""

T = TypeVar("T")

_COLUMNS = [PLANS.c[name] for name in ("row", "subset", "times", "in_flight", "count", "total", "squares")]
_OURS = PLANS.c.campaign == bindparam("c")
_BY_NUMBER = select(*_COLUMNS).where(_OURS, PLANS.c.row.in_(bindparam("rows", expanding=True)))
_BY_SUBSET = select(*_COLUMNS).where(_OURS, PLANS.c.key.in_(bindparam("keys", expanding=True)))
_OBSERVED = select(*_COLUMNS).where(_OURS, PLANS.c.count > 0).order_by(PLANS.c.row)
_UPDATE = (
    PLANS.update()
    .where(_OURS, PLANS.c.row == bindparam("r"))
    .values(in_flight=bindparam("f"), count=bindparam("n"), total=bindparam("t"), squares=bindparam("q"))
)


def chunks(values: list[T]) -> Iterable[list[T]]:
    """Split values into lists that one statement can take."""
    return (values[start : start + MAX_IN_LIST] for start in range(0, len(values), MAX_IN_LIST))


@dataclass(eq=False)
class PlanRow:
    """One row of the plan: a subset, how often it is planned, and what its observed plays earned.

    `times` is 0 for an unplanned subset that the policy can learn from, and UNLEARNED if it cannot.
    """

    row: int
    subset: str
    times: int
    in_flight: int = 0
    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    new: bool = False

    def __post_init__(self) -> None:
        self.free_before = self.free

    @property
    def free(self) -> int:
        """Planned plays that are neither in flight nor observed."""
        return max(0, self.times - self.count - self.in_flight)

    def has_room(self, count: int) -> bool:
        """Return whether at least `count` planned plays remain."""
        return self.times - self.count >= count

    def values(self, campaign: int) -> dict[str, Any]:
        """Return the row as the table has it."""
        return {
            "campaign": campaign,
            "row": self.row,
            "key": subset_key(self.subset),
            "subset": self.subset,
            "times": self.times,
            "in_flight": self.in_flight,
            "count": self.count,
            "total": self.total,
            "squares": self.squares,
        }


def observed_rows(tx: Transaction) -> list[PlanRow]:
    """Return the rows with observed plays, planned ones first."""
    return [PlanRow(*row) for row in tx.execute(_OBSERVED, {"c": tx.id})]


def replace_plan(tx: Transaction, rows: Iterable[PlanRow]) -> None:
    """Delete the plan and insert another one."""
    tx.execute(PLANS.delete().where(PLANS.c.campaign == tx.id))
    tx.execute(PLANS.insert(), [row.values(tx.id) for row in rows])


class PlanRows:
    """The rows that one call changes. Several rows may have the same subset; plays go to the first with room."""

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx
        self._by_number: dict[int, PlanRow] = {}
        self._by_subset: dict[str, list[PlanRow]] = {}
        self._complete: set[str] = set()  # subsets of which all rows have been read

    def load(self, numbers: Iterable[int]) -> None:
        """Read rows by number."""
        for some in chunks(sorted(set(numbers))):
            self._keep(self.tx.execute(_BY_NUMBER, {"c": self.tx.id, "rows": some}))

    def load_subsets(self, subsets: Iterable[str]) -> None:
        """Read all rows of these subsets, planned or not."""
        missing = set(subsets) - self._complete
        for some in chunks(sorted(map(subset_key, missing))):
            self._keep(self.tx.execute(_BY_SUBSET, {"c": self.tx.id, "keys": some}))
        self._complete |= missing

    def _keep(self, rows: Iterable[Any]) -> None:
        for row in rows:
            if row.row not in self._by_number:
                self._add(PlanRow(*row))

    def _add(self, row: PlanRow) -> None:
        self._by_number[row.row] = row
        self._by_subset.setdefault(row.subset, []).append(row)

    def landed(self, number: int) -> None:
        """Count one play of this row as no longer in flight."""
        self._by_number[number].in_flight -= 1

    def with_room(self, subset: str, count: int, number: int | None = None) -> PlanRow | None:
        """Return a row of this subset with `count` plays remaining: that of this number if it has, or another."""
        if number is not None and self._by_number[number].has_room(count):
            return self._by_number[number]
        self.load_subsets([subset])
        return next((row for row in self._by_subset.get(subset, ()) if row.has_room(count)), None)

    def observe(self, subset: str, count: int, total: float, squares: float, number: int | None = None) -> int:
        """Count plays in a row with room, or else as unplanned; return the row's number, or UNLEARNED."""
        row = self.with_room(subset, count, number) or self._unplanned(subset)
        row.count += count
        row.total += total
        row.squares += squares
        if row.times == UNLEARNED:
            return UNLEARNED
        self.tx.row.observed += count
        return row.row

    def _unplanned(self, subset: str) -> PlanRow:
        """Return the row for unplanned plays of this subset; make it if there is none."""
        campaign, snapshot = self.tx.row, self.tx.snapshot
        learns = snapshot.policy.accepts_unplanned and snapshot.roster.to_indices(subset_from(subset)) is not None
        times = 0 if learns else UNLEARNED
        for row in self._by_subset.get(subset, ()):
            if row.times == times and row.row >= campaign.plan_rows:
                return row
        row = PlanRow(campaign.plan_rows + campaign.unplanned, subset, times, new=True)
        campaign.unplanned += 1
        self._add(row)
        return row

    def write(self) -> None:
        """Write all rows, and the number of free plays."""
        new, old = [], []
        for row in self._by_number.values():
            self.tx.row.free += row.free - row.free_before
            if row.new:
                new.append(row.values(self.tx.id))
            else:
                sums = {"n": row.count, "t": row.total, "q": row.squares}
                old.append({"c": self.tx.id, "r": row.row, "f": row.in_flight} | sums)
        if new:
            self.tx.execute(PLANS.insert(), new)
        if old:
            self.tx.execute(_UPDATE, old)
