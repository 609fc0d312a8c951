"""The open plan: which of its plays are in flight, and which are observed."""

from __future__ import annotations

from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kofn.core.checks import FloatArray, IntArray, Subset
from kofn.core.plan import Key, Plan, Tally, subset_of_key

MOST_INDEXED = 2**18
"""Most rows of a plan that are indexed by subset. In larger plans, a subset that was not handed out is searched for
row by row. Higher: more memory, faster searches."""

MOST_UNPLANNED = 1024
"""Number of different unplanned subsets that ends a plan early. Higher: a larger record, fewer updates."""

NO_ROWS = np.empty(0, np.int64)

PHASES, PHASE_STEP = 65_521, 40_495
"""The phase of row r is PHASE_STEP r^2 modulo PHASES, which is prime; the step is its golden section. So phases are
spread evenly, and the phases of neighbouring rows are not related. Larger: finer phases."""


def turn(row: Any, handed_out: Any, times: Any) -> Any:
    """Return when the next play of a row is due: from 0 to 1, the end of the plan.

    In a plan with segments, the plays of each row are spread evenly over the plan. If fewer visitors of a segment come
    than expected, they play each row in proportion to its plays: plays that explore and plays that do not. The store of
    campaigns computes the same in SQL.

    >>> [turn(0, 0, 4), turn(0, 1, 4), round(turn(1, 0, 1), 3)]
    [0.0, 0.25, 0.618]
    """
    return (handed_out * PHASES + row * row * PHASE_STEP % PHASES) / (times * PHASES)


class OpenPlan:
    """The plays of one plan: remaining, in flight and observed."""

    def __init__(self, plan: Plan, fillers: dict[Key, int], *, arms: bool = False) -> None:
        self.plan = plan
        self.size = plan.plays
        self.remaining = self.size
        self._places = plan.subsets.shape[1] if arms else None
        self.rows: dict[Key, list[int]] = {}  # rows of the subsets handed out, or of all subsets if `indexed`
        self.indexed = False
        self.fillers = fillers  # fillers in flight; they may outlive the plan
        self.fillers_handed_out = 0  # during this plan
        self.unplanned: dict[Key, list[float]] = {}  # count, total, squares
        self.release()

    @cached_property
    def observed(self) -> Tally:
        """The rewards of each row so far."""
        return Tally.zeros(len(self.plan), self._places)

    @cached_property
    def in_flight(self) -> NDArray[np.int64]:
        """The plays of each row that are in flight."""
        return np.zeros(len(self.plan), np.int64)

    def rows_in_flight(self) -> IntArray:
        """Return the rows with plays in flight, if unplanned plays have completed the plan; else there are none."""
        return self.in_flight.nonzero()[0] if self.unplanned else NO_ROWS

    def release(self) -> None:
        """Forget which plays are in flight, so that they are handed out again."""
        vars(self).pop("in_flight", None)
        self.available = self.remaining  # neither in flight nor observed
        self._queue: list[int] = []  # rows of this round, last first
        self._turns: dict[str, list[tuple[float, int, int]]] = {}  # heaps: due, row and number of its next play

    def hand_out(self, segment: str | None = None) -> Subset | None:
        """Return the next available play of the segment, or of a plan without segments; None if there is none.

        Rows take turns, so that drift affects all rows alike: round-robin, or with segments, by `turn`.
        """
        while self.available:
            row = self._next_row() if segment is None else self._next_of(segment)
            if row is None:
                return None
            if self.plan.times[row] > self.observed.count[row] + self.in_flight[row]:
                self.in_flight[row] += 1
                self.available -= 1
                return subset_of_key(self._indexed(row))
        return None

    def _next_row(self) -> int | None:
        """Return the next row of a plan without segments that had available plays when this round began."""
        if not self._queue:
            self._queue = np.flatnonzero(self._open)[::-1].tolist()
        return self._queue.pop() if self._queue else None

    def _next_of(self, segment: str) -> int | None:
        """Return the row of the segment whose next play is due first."""
        times = self.plan.times
        if segment not in self._turns:
            rows = np.flatnonzero(self._open & (self._of_segments == segment))
            used = self.observed.count[rows] + self.in_flight[rows]
            due = turn(rows, used, times[rows])
            self._turns[segment] = list(zip(due.tolist(), rows.tolist(), used.tolist(), strict=True))
            heapify(self._turns[segment])
        if not (turns := self._turns[segment]):
            return None
        _, row, number = heappop(turns)
        if number + 1 < times[row]:
            heappush(turns, (turn(row, number + 1, int(times[row])), row, number + 1))
        return row

    @property
    def _open(self) -> NDArray[np.bool_]:
        """Which rows have available plays."""
        return np.asarray(self.plan.times > self.observed.count + self.in_flight)

    @cached_property
    def _of_segments(self) -> NDArray[np.str_]:
        """The segment of each row."""
        return np.array(self.plan.segments)

    def _indexed(self, row: int) -> Key:
        key = self.plan.key(row)
        rows = self.rows.setdefault(key, [])
        if row not in rows:
            rows.append(row)
        return key

    def hand_out_filler(self, key: Key) -> None:
        """Count a filler as in flight."""
        self.fillers[key] = self.fillers.get(key, 0) + 1
        self.fillers_handed_out += 1

    def return_filler(self, key: Key) -> bool:
        """Remove a filler of this subset from the fillers in flight; return whether there was one."""
        if not self.fillers.get(key):
            return False
        self.fillers[key] -= 1
        if not self.fillers[key]:
            del self.fillers[key]
        return True

    def knows(self, key: Key) -> bool:
        """Return whether this subset is indexed; False for anything that is not a subset."""
        try:
            return key in self.rows
        except TypeError:
            return False

    def row_of(self, key: Key) -> int | None:
        """Return a row of this subset with remaining plays, or None; rows with plays in flight come first."""
        rows = self.rows.get(key, ())
        for row in rows:
            if self.in_flight[row]:
                return row
        for row in rows:
            if self.observed.count[row] < self.plan.times[row]:
                return row
        if rows or self.indexed or self.fillers.get(key):
            return None
        self._index(subset_of_key(key))
        return self.row_of(key) if key in self.rows else None

    def _index(self, subset: Subset) -> None:
        self.indexed = len(self.plan) <= MOST_INDEXED
        chosen = slice(None) if self.indexed else (self.plan.subsets == self._padded(subset)).all(axis=1)
        for row in np.arange(len(self.plan))[chosen].tolist():
            self._indexed(row)

    def _padded(self, subset: Subset) -> IntArray:
        return np.array(subset + (-1,) * (self.plan.subsets.shape[1] - len(subset)))

    def refusal(self, key: Key) -> str:
        """Return the reason why a play of this subset is refused."""
        subset = subset_of_key(key)
        if key in self.rows:
            planned = int(self.plan.times[self.rows[key]].sum())
            return f"no play of {subset} is remaining: all {planned} planned plays of it are already observed"
        return f"{subset} is not in the plan: play the subsets that ask() or plan() returns"

    def observe_one(self, row: int, value: float, arms: FloatArray | None = None) -> None:
        """Count one play of a row."""
        observed = self.observed
        observed.count[row] += 1
        observed.total[row] += value
        observed.squares[row] += value * value
        if observed.arms is not None:
            observed.arms[row] += arms
        self.remaining -= 1
        if self.in_flight[row]:
            self.in_flight[row] -= 1
        else:
            self.available -= 1

    def observe_unplanned(self, key: Key, count: int, total: float, squares: float) -> None:
        """Count unplanned plays; each replaces a planned one."""
        sums = self.unplanned.setdefault(key, [0, 0.0, 0.0])
        for i, more in enumerate((count, total, squares)):
            sums[i] += more
        self.remaining -= count

    def observe(self, tally: Tally) -> None:
        """Count the plays of a tally of the plan."""
        self.observed.add(tally)
        n = int(tally.count.sum())
        self.remaining -= n
        back = np.minimum(self.in_flight, tally.count)
        self.in_flight -= back
        self.available -= n - int(back.sum())

    @property
    def complete(self) -> bool:
        """Whether the policy can learn from the plan."""
        return self.remaining <= 0 or len(self.unplanned) >= MOST_UNPLANNED

    def played(self) -> tuple[Plan, Tally]:
        """Return the observed plays as a plan and its tally: planned plays first, unplanned plays last."""
        rows = np.flatnonzero(self.observed.count)
        chosen, observed = self.plan.keep(rows), self.observed
        arms = None if observed.arms is None else observed.arms[rows]
        planned = Tally(observed.count[rows], observed.total[rows], observed.squares[rows], arms)
        if not self.unplanned:
            return Plan(chosen.subsets, planned.count, chosen.segments), planned
        count, total, squares = np.array(list(self.unplanned.values())).T
        both = Tally(
            np.append(planned.count, count.astype(np.int64)),
            np.append(planned.total, total),
            np.append(planned.squares, squares),
        )
        unplanned = np.array([self._padded(subset_of_key(key)) for key in self.unplanned])
        subsets = np.concatenate([chosen.subsets, unplanned])
        segments = chosen.segments
        if segments is not None:
            segments += tuple(str(key[0]) for key in self.unplanned)
        return Plan(subsets, both.count, segments), both
