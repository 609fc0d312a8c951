"""The rows of the plan that a call changes: read when they are needed, written at the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, select

from kofn.campaigns.head import Head, read_base, subset_from, subset_key
from kofn.campaigns.learning import UNLEARNED
from kofn.campaigns.schema import PLANS
from kofn.campaigns.store import Store

AT_ONCE = 500
"""Values in one IN list: SQLite and PostgreSQL both have their limits."""

T = TypeVar("T")

_COLUMNS = [PLANS.c[name] for name in ("row", "subset", "times", "out", "count", "total", "squares")]
_ROWS = select(*_COLUMNS).where(PLANS.c.campaign == bindparam("c"), PLANS.c.row.in_(bindparam("rows", expanding=True)))
_BY_KEY = select(*_COLUMNS).where(
    PLANS.c.campaign == bindparam("c"), PLANS.c.key.in_(bindparam("keys", expanding=True))
)
_WRITE = (
    PLANS.update()
    .where(PLANS.c.campaign == bindparam("c"), PLANS.c.row == bindparam("r"))
    .values(out=bindparam("o"), count=bindparam("n"), total=bindparam("t"), squares=bindparam("q"))
)


def chunks(values: list[T]) -> Iterable[list[T]]:
    """The values, as many at a time as a statement can take."""
    return (values[start : start + AT_ONCE] for start in range(0, len(values), AT_ONCE))


@dataclass(eq=False)
class Line:
    """A row of the plan as it will be."""

    row: int
    subset: str
    times: int
    out: int = 0
    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    new: bool = False

    def __post_init__(self) -> None:
        self.was_free = self.free

    @property
    def free(self) -> int:
        """Plays of it that are wanted, and that nobody has been given."""
        return max(0, self.times - self.count - self.out)

    def wants(self, count: int) -> bool:
        """Whether so many plays can be told of it."""
        return self.times - self.count >= count


class Ledger:
    """Where plays are counted. Several rows may be of one subset; the first that wants the plays gets them."""

    def __init__(self, store: Store, connection: Connection, head: Head) -> None:
        self.store, self.connection, self.head = store, connection, head
        self._lines: dict[int, Line] = {}
        self._of: dict[str, list[Line]] = {}
        self._complete: set[str] = set()  # subsets of which all rows have been read

    def load(self, rows: Iterable[int]) -> None:
        """Read rows by number."""
        for some in chunks(sorted(set(rows))):
            self._keep(self.connection.execute(_ROWS, {"c": self.head.id, "rows": some}))

    def find(self, subsets: Iterable[str]) -> None:
        """Read all rows of these subsets, those that were not planned too."""
        missing = set(subsets) - self._complete
        for some in chunks(sorted(map(subset_key, missing))):
            self._keep(self.connection.execute(_BY_KEY, {"c": self.head.id, "keys": some}))
        self._complete |= missing

    def _keep(self, rows: Iterable[Any]) -> None:
        for row in rows:
            if row.row not in self._lines:
                self._add(Line(*row))

    def _add(self, line: Line) -> None:
        self._lines[line.row] = line
        self._of.setdefault(line.subset, []).append(line)

    def back(self, row: int) -> None:
        """A play of this row is no longer out."""
        self._lines[row].out -= 1

    def wanting(self, subset: str, count: int, row: int | None = None) -> Line | None:
        """The row that wants so many plays of this subset: the one of this number, if it does, or another."""
        if row is not None and self._lines[row].wants(count):
            return self._lines[row]
        self.find([subset])
        return next((line for line in self._of.get(subset, ()) if line.wants(count)), None)

    def take(self, subset: str, count: int, total: float, squares: float, row: int | None = None) -> int:
        """Count plays where they are wanted, or beside the plan if the policy learns from any; the row, or -1."""
        line = self.wanting(subset, count, row) or self._other(subset)
        line.count += count
        line.total += total
        line.squares += squares
        if line.times == UNLEARNED:
            return UNLEARNED
        self.head.told += count
        return line.row

    def _other(self, subset: str) -> Line:
        """The row of plays that are not wanted."""
        base = read_base(self.store, self.connection, self.head)
        learns = base.policy.accepts_unplanned and base.roster.inside(subset_from(subset)) is not None
        times = 0 if learns else UNLEARNED
        for line in self._of.get(subset, ()):
            if line.times == times and line.row >= self.head.rows:
                return line
        line = Line(self.head.rows + self.head.others, subset, times, new=True)
        self.head.others += 1
        self._add(line)
        return line

    def write(self) -> None:
        """Write the rows, and what they have come to want."""
        campaign = self.head.id
        new, old = [], []
        for line in self._lines.values():
            self.head.unasked += line.free - line.was_free
            if line.new:
                new.append(
                    {"campaign": campaign, "row": line.row, "key": subset_key(line.subset), "subset": line.subset}
                    | {"times": line.times, "out": 0, "count": line.count, "total": line.total, "squares": line.squares}
                )
            else:
                told = {"n": line.count, "t": line.total, "q": line.squares}
                old.append({"c": campaign, "r": line.row, "o": line.out} | told)
        if new:
            self.connection.execute(PLANS.insert(), new)
        if old:
            self.connection.execute(_WRITE, old)
