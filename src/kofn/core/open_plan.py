"""One plan on its way: what has been handed out, what has been told."""

from __future__ import annotations

import numpy as np

from kofn.core.checks import FloatArray, IntArray, Subset
from kofn.core.plan import Plan, Tally

MOST_INDEXED = 2**18
"""Rows of a plan that are kept by their subset; beyond, a subset that was not asked for is looked up row by row."""

MOST_OTHERS = 1024
"""Subsets that were not planned; when so many have been told, the plan ends early."""


class Progress:
    """The plays of one plan that are out, and those that are back."""

    def __init__(self, plan: Plan, extras: dict[Subset, int], *, arms: bool = False) -> None:
        self.plan = plan
        self.size = plan.plays
        self.untold = self.size
        self.got = Tally.zeros(len(plan), plan.subsets.shape[1] if arms else None)
        self.rows: dict[Subset, list[int]] = {}  # of the subsets handed out, or of all once one is told unasked
        self.indexed = False  # whether all rows are in `rows`
        self.extras = extras  # plays handed out while the whole plan was out; they outlive it
        self.spared = 0  # how many of them while this plan was out
        self.others: dict[Subset, list[float]] = {}  # plays told that were not planned: count, total, squares
        self.release()

    def release(self) -> None:
        """Forget what is out: it is wanted again."""
        self.out = np.zeros(len(self.plan), np.int64)  # handed out and not told
        self.unasked = self.untold
        self.sweep: list[int] = []

    def hand_out(self) -> Subset | None:
        """A play of the plan that is not out yet: row after row, round and round, so that rows see the same weather."""
        while self.unasked:
            if not self.sweep:
                self.sweep = np.flatnonzero(self.plan.times > self.got.count + self.out)[::-1].tolist()
            row = self.sweep.pop()
            if self.plan.times[row] > self.got.count[row] + self.out[row]:
                self.out[row] += 1
                self.unasked -= 1
                return self._known(row)
        return None

    def _known(self, row: int) -> Subset:
        subset = self.plan.subset(row)
        rows = self.rows.setdefault(subset, [])
        if row not in rows:
            rows.append(row)
        return subset

    def extra(self, subset: Subset) -> Subset:
        """A play beyond the plan."""
        self.extras[subset] = self.extras.get(subset, 0) + 1
        self.spared += 1
        return subset

    def extra_back(self, subset: Subset) -> bool:
        """Whether a play of this subset was out beyond the plan; it is no longer."""
        if not self.extras.get(subset):
            return False
        self.extras[subset] -= 1
        if not self.extras[subset]:
            del self.extras[subset]
        return True

    def knows(self, subset: Subset) -> bool:
        """Whether this subset has been handed out; whatever is not a subset has not."""
        try:
            return subset in self.rows
        except TypeError:
            return False

    def row_of(self, subset: Subset) -> int | None:
        """A row of this subset that wants another play; of several, one that is out, or it would stay out for ever."""
        rows = self.rows.get(subset, ())
        for row in rows:
            if self.out[row]:
                return row
        for row in rows:
            if self.got.count[row] < self.plan.times[row]:
                return row
        if rows or self.indexed or self.extras.get(subset):
            return None
        self._index(subset)
        return self.row_of(subset) if subset in self.rows else None

    def _index(self, subset: Subset) -> None:
        """Get to know the rows that were not handed out: all at once, or, of a huge plan, those of one subset."""
        self.indexed = len(self.plan) <= MOST_INDEXED
        wanted = slice(None) if self.indexed else (self.plan.subsets == self._padded(subset)).all(axis=1)
        for row in np.arange(len(self.plan))[wanted].tolist():
            self._known(row)

    def _padded(self, subset: Subset) -> IntArray:
        return np.array(subset + (-1,) * (self.plan.subsets.shape[1] - len(subset)))

    def refusal(self, subset: Subset) -> str:
        """Why a play of this subset cannot be told."""
        if subset in self.rows:
            wanted = int(self.plan.times[self.rows[subset]].sum())
            return f"told of one more play of {subset}, but all {wanted} that were wanted have been told"
        return f"told of a play of {subset}, which is not in the plan: play what ask() or plan() gives"

    def take_one(self, row: int, value: float, arms: FloatArray | None = None) -> None:
        """Count one play of a row."""
        got = self.got
        got.count[row] += 1
        got.total[row] += value
        got.squares[row] += value * value
        if got.arms is not None:
            got.arms[row] += arms
        self.untold -= 1
        if self.out[row]:
            self.out[row] -= 1
        else:
            self.unasked -= 1

    def take_other(self, subset: Subset, count: int, total: float, squares: float) -> None:
        """Count plays that were not planned, in place of some that were."""
        sums = self.others.setdefault(subset, [0, 0.0, 0.0])
        for i, more in enumerate((count, total, squares)):
            sums[i] += more
        self.untold -= count

    @property
    def complete(self) -> bool:
        """Whether it is time to learn."""
        return self.untold <= 0 or len(self.others) >= MOST_OTHERS

    def played(self) -> tuple[Plan, Tally]:
        """The plays that were told, with those that were not planned after the others."""
        rows = np.flatnonzero(self.got.count)
        subsets, got = self.plan.subsets[rows], self.got
        arms = None if got.arms is None else got.arms[rows]
        told = Tally(got.count[rows], got.total[rows], got.squares[rows], arms)
        if not self.others:
            return Plan(subsets, told.count), told
        count, total, squares = np.array(list(self.others.values())).T
        more = Tally(
            np.append(told.count, count.astype(np.int64)),
            np.append(told.total, total),
            np.append(told.squares, squares),
        )
        return Plan(np.concatenate([subsets, np.array(list(self.others))]), more.count), more

    def take(self, tally: Tally) -> None:
        """Count many plays."""
        self.got.add(tally)
        n = int(tally.count.sum())
        self.untold -= n
        back = np.minimum(self.out, tally.count)
        self.out -= back
        self.unasked -= n - int(back.sum())
