"""CMAB-SM: sort groups of K+1 arms, merge them, play the best K (Agarwal, Aggarwal, Quinn, Umrawal, ALT 2021).

Line numbers in the margin refer to Algorithm 1 (CMAB-SM), 2 (SORT) and 3 (MERGE) in the paper's main text. Where
the paper contradicts itself, the choice is marked (a) to (f) and explained in docs/reference/policies/cmab-sm.md.

Each phase is a dataclass whose fields are the variables of the pseudo-code. Its `advance` is the loop, except that it
returns the actions that the paper plays. Called again, it continues at the same point, because its guards ask "has this
been played n_r times?", which only the tallies answer.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from kofn.core import (
    BadInput,
    BadRecord,
    FloatArray,
    IntArray,
    Plan,
    Policy,
    ShortHorizonWarning,
    Subset,
    Tally,
)
from kofn.core.fields import (
    Fields,
    Part,
    arms,
    check_totals,
    each,
    flags,
    integer,
    integers,
    listed,
    number,
    numbers,
    one_of,
    subset,
)
from kofn.policies.batching import MOST_PLAN_CELLS, averages
from kofn.policies.constrained import Constrained
from kofn.policies.randomised import shuffled_arms
from kofn.policies.schedule import Schedule, Scheduled, ScheduledOptions, groups


class Sizes(NamedTuple):
    """N and K of the arms among which the algorithm chooses: without those that constraints fix."""

    n_arms: int
    k: int


def _cells(policy: Policy) -> tuple[int, int]:
    """Return the shape of the phase SORT: groups of K+1 arms."""
    return groups(policy.n_arms, policy.k), policy.k + 1


@dataclass
class Sort(Part):
    """Algorithm 2 on all groups at once: rank the K+1 arms of each by the actions that leave one of them out.

    A row is a group. Cell (g, i) stands for the action a_-i: all arms of group g except its i-th.
    """

    fields = Fields(
        groups=integers(_cells), count=integers(_cells), total=numbers(_cells), unsorted=flags(_cells), r=integer(1)
    )

    groups: IntArray
    count: NDArray[np.int64]
    total: FloatArray
    unsorted: NDArray[np.bool_]
    r: int = 1  # line 3
    asked: tuple[IntArray, IntArray] = field(init=False, repr=False)  # the cells of the last plan

    @classmethod
    def of(cls, groups: IntArray) -> Sort:
        """Return the phase before the first play."""
        return cls(
            groups, np.zeros(groups.shape, np.int64), np.zeros(groups.shape), np.ones(groups.shape, bool)
        )  # lines 1, 2

    def advance(self, s: Schedule) -> Plan | None:
        """Return the actions to play next; None when SORT has ended."""
        while self.r <= s.rounds and self.unsorted.any():  # line 4
            if actions := self._missing(s.plays[self.r]):
                return actions  # lines 5-7; (a) sample, then test
            self._settle(2 * s.radius[self.r])  # lines 6, 8, 9
            self.r += 1  # line 12
        return None

    def take(self, tally: Tally) -> None:
        """Count the rewards of the last actions."""
        self.count[self.asked] += tally.count
        self.total[self.asked] += tally.total

    def then(self) -> Merge | Play:
        """Return MERGE, or the best K if there is only one group."""
        ranked = self._ranked()[:, :-1].tolist()  # line 16
        if len(ranked) == 1:
            return Play(tuple(sorted(ranked[0])))
        repeated = set(self.groups[0].tolist())
        ranked[-1] = [arm for arm in ranked[-1] if arm not in repeated]  # (b) without padding
        return Merge(g1=ranked[0], g2=ranked[1], waiting=deque(ranked[2:]))

    @property
    def best(self) -> Subset:
        """The best K of the first group."""
        return tuple(sorted(self._ranked()[0, :-1].tolist()))

    def _missing(self, n_r: int) -> Plan | None:
        """Return the unsorted actions that have not been played n_r times, up to the size of a plan."""
        g, i = np.nonzero(self.unsorted & (self.count < n_r))
        k = self.groups.shape[1] - 1
        most = max(1, MOST_PLAN_CELLS // k)
        g, i = self.asked = g[:most], i[:most]
        if not g.size:
            return None
        others = np.arange(k) + (np.arange(k) >= i[:, None])  # all columns except the i-th
        return Plan(self.groups[g[:, None], others], n_r - self.count[g, i])

    def _settle(self, gap: float) -> None:
        """Remove from `unsorted` the actions whose mean differs from both neighbours' by more than `gap`."""
        means = self._means()
        order = np.argsort(means, axis=1, kind="stable")
        apart = np.diff(np.take_along_axis(means, order, axis=1), axis=1) > gap
        edge = np.ones((len(means), 1), bool)
        settled = np.hstack([edge, apart]) & np.hstack([apart, edge])
        np.put_along_axis(self.unsorted, order, np.take_along_axis(self.unsorted, order, axis=1) & ~settled, axis=1)

    def _ranked(self) -> IntArray:
        """Return each group's arms, best first: without the best arm, the action earns least."""
        return np.take_along_axis(self.groups, np.argsort(self._means(), axis=1, kind="stable"), axis=1)  # line 15, (c)

    def _means(self) -> FloatArray:
        return averages(self.total, self.count)

    def _loaded(self, policy: Policy) -> None:
        if not _is_partition(self.groups, policy.n_arms):
            raise BadRecord(f"groups must be a partition of the {policy.n_arms} arms")
        self.groups = self.groups.astype(np.int32)
        check_totals(self.count, self.total)


@dataclass
class Sample(Part):
    """The plays of an action: their count and their total reward."""

    fields = Fields(count=integer(), total=number())

    count: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float:
        """The sample mean; 0 before the first play."""
        return self.total / self.count if self.count else 0.0

    def take(self, count: int, total: float) -> None:
        """Count more plays."""
        self.count += count
        self.total += total


@dataclass
class Merge(Part):
    """Algorithm 3: find the best K of two sorted groups, by exchanging one arm of the first for one of the second.

    G1 is always the best K so far, best first; the next MERGE relies on the order.
    """

    fields = Fields(
        g1=arms(),
        g2=arms(),
        waiting=each(arms(), deque),
        merged=arms(),
        i=integer(),
        j=integer(),
        r1=integer(1),
        r2=integer(1),
        base=listed(Sample),
        swap=listed(Sample),
    )

    g1: list[int]
    g2: list[int]
    waiting: deque[list[int]]  # the groups to be merged after g2
    merged: list[int] = field(default_factory=list)  # line 1: G*
    i: int = 0  # line 3
    j: int = 0
    r1: int = 1  # line 4
    r2: int = 1
    base: Sample = field(default_factory=Sample)  # of the action G1
    swap: Sample = field(default_factory=Sample)  # of the action a_ij
    asked: list[Sample] = field(init=False, repr=False)  # the samples of the last plan's rows

    def advance(self, s: Schedule) -> Plan | None:
        """Return the actions to play next; None when G1 and G2 are merged."""
        while len(self.merged) < len(self.g1) and self.j < len(self.g2):  # line 5
            while self.r2 <= s.merge_rounds:  # line 8
                if actions := self._missing(s.plays[self.r1], s.plays[self.r2]):
                    return actions  # lines 9, 10
                if abs(self.base.mean - self.swap.mean) > s.radius[self.r1] + s.radius[self.r2]:  # line 11, (d)
                    break
                self.r2 += 1  # line 14
                self.r1 = min(max(self.r1, self.r2), s.merge_rounds)  # line 15, (e)
            self._place()  # lines 12, 18
        self.merged += self.g1[self.i : self.i + len(self.g1) - len(self.merged)]  # (b) G2 was short
        return None

    def take(self, tally: Tally) -> None:
        """Count the rewards of the last actions."""
        for sample, count, total in zip(self.asked, tally.count.tolist(), tally.total.tolist(), strict=True):
            sample.take(count, total)

    def then(self) -> Merge | Play:
        """Return MERGE with the next group, or the best K if there is none."""
        if not self.waiting:
            return Play(tuple(sorted(self.merged)))
        return Merge(g1=self.merged, g2=self.waiting.popleft(), waiting=self.waiting)

    @property
    def best(self) -> Subset:
        """The merged arms, filled up with the best of G1."""
        return tuple(sorted((self.merged + self.g1[self.i :])[: len(self.g1)]))

    def _missing(self, n_r1: int, n_r2: int) -> Plan | None:
        actions = [
            (sample, action, n - sample.count)
            for sample, action, n in ((self.base, self.g1, n_r1), (self.swap, self._exchanged(), n_r2))
            if sample.count < n
        ]
        if not actions:
            return None
        self.asked = [sample for sample, _, _ in actions]
        return Plan(
            np.array([sorted(action) for _, action, _ in actions]), np.array([times for _, _, times in actions])
        )

    def _exchanged(self) -> list[int]:
        return [*self.g1[: self.i], self.g2[self.j], *self.g1[self.i + 1 :]]  # line 6

    def _place(self) -> None:
        """Append the better of the two arms to G*, and continue with the next two."""
        if self.swap.mean > self.base.mean:
            self.merged.append(self.g2[self.j])
            self.j += 1
        else:  # (f) a tie keeps the arm of G1
            self.merged.append(self.g1[self.i])
            self.i += 1
        self.r2, self.swap = 1, Sample()  # line 7

    def _loaded(self, policy: Policy) -> None:
        listed = [arm for group in (self.g1, self.g2, *self.waiting) for arm in group]
        if len(self.g1) != policy.k or len(set(listed)) != len(listed):
            raise BadRecord(f"its groups must be different arms, {policy.k} of them in g1")
        i, j = self.i, self.j
        if i + j >= policy.k or j >= len(self.g2) or sorted(self.merged) != sorted(self.g1[:i] + self.g2[:j]):
            raise BadRecord("merged must be the first i arms of g1 and the first j arms of g2")
        base, swap = self.base, self.swap
        check_totals(np.array([base.count, swap.count]), np.array([base.total, swap.total]))


@dataclass
class Play(Part):
    """The end: the K arms found, forever."""

    fields = Fields(best=subset())

    best: Subset


class CMABSM(Constrained, Scheduled):
    """The paper's algorithm: explore by SORT and MERGE, then play the K arms found.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> p = np.linspace(0.02, 0.98, 8)
    >>> policy = CMABSM(n_arms=8, k=2, horizon=20_000, resolution=0.2)
    >>> for _ in range(20_000):
    ...     subset = policy.ask()
    ...     policy.tell(subset, rng.random() < p[list(subset)].mean())
    >>> policy.best()
    (6, 7)

    The groups are the arms in order; `seed` shuffles them first. `resolution` is the paper's lambda, the smallest gap
    worth resolving; the default is the printed (256 N log(2NT) / T)^(1/3). `schedule="figures"` explores as long as the
    paper's figures show, not as long as its text says (docs/background/paper.md).

    It takes constraints that say which arms are always in or never in. The other arms are numbered from 0 inside, and
    the algorithm chooses the remaining places among them: the assumptions hold for them, too.
    """

    name = "cmab-sm"
    takes_constraints = "fixed"
    refuses_constraints = "SORT and MERGE exchange any arm for any other, and rules may forbid that"
    fields = Fields(phase=one_of("phase", sort=Sort, merge=Merge, play=Play))

    def __init__(self, n_arms: int, k: int, horizon: int, **options: Unpack[ScheduledOptions]) -> None:
        super().__init__(n_arms, k, horizon=horizon, **options)
        self._inner = Sizes(self.n_arms, self.k)
        if self._allowed is not None:
            self._inner = Sizes(len(self._allowed.free), self.k - int(self._allowed.always.sum()))
            if not 0 < self._inner.k < self._inner.n_arms:
                raise BadInput(f"the constraints leave one subset, {self._allowed.first}: there is nothing to choose")
            given = self._params["resolution"], self._params["schedule"]
            self.schedule = Schedule(*self._inner, self.horizon, *given)
        if not self.schedule.rounds or self.schedule.exploration_plays > self.horizon:
            warnings.warn(self._too_short(), ShortHorizonWarning, stacklevel=2)
        order = shuffled_arms(self._inner.n_arms, self._params["seed"])
        self._phase: Sort | Merge | Play = Sort.of(_partition(order, self._inner.k))  # line 2
        self._advance()

    def best(self) -> Subset:
        """Return the K arms found; until then, the arms that SORT and MERGE rank first so far."""
        return self._phase.best if self._allowed is None else _only(self._allowed.lifted(np.array([self._phase.best])))

    @property
    def committed(self) -> bool:
        """Whether the K arms have been found."""
        return isinstance(self._phase, Play)

    def _next(self) -> Plan:
        if self.committed:
            return Plan.one(self.best(), self.horizon)
        if self._allowed is None:
            return self._actions
        return Plan(self._allowed.lifted(self._actions.subsets), self._actions.times)

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if not isinstance(self._phase, Play):
            self._phase.take(tally)
            self._advance()

    def _advance(self) -> None:
        """Continue to the next plays, from SORT through MERGE to the end."""
        while not isinstance(self._phase, Play):
            if actions := self._phase.advance(self.schedule):
                self._actions = actions
                return
            self._phase = self._phase.then()

    def _too_short(self) -> str:
        if not self.schedule.rounds:
            return self.schedule.no_round("CMAB-SM")
        return (
            f"at a resolution of {self.schedule.resolution:.3g}, learning may take up to "
            f"{self.schedule.exploration_plays:,} plays, more than the horizon of {self.horizon:,}: "
            f"give a larger resolution or a longer horizon"
        )

    def _load(self, state: Mapping[str, Any]) -> None:
        [(_, self._phase)] = self.fields.load(state, self._inner)  # type: ignore[arg-type]
        self._advance()


def _only(rows: IntArray) -> Subset:
    """Return the subset of a single row."""
    return tuple(rows[0].tolist())


def _partition(arms: IntArray, k: int) -> IntArray:
    """Return groups of K+1 arms as sorted rows; the last one is padded with arms of the first."""
    padding = arms[: -len(arms) % (k + 1)]
    return np.sort(np.concatenate([arms, padding]).reshape(-1, k + 1).astype(np.int32), axis=1)


def _is_partition(groups: IntArray, n_arms: int) -> bool:
    """Return whether `_partition` could have made these groups: only the last repeats arms, and only of the first."""
    if (np.diff(groups, axis=1) <= 0).any() or not np.array_equal(np.unique(groups), np.arange(n_arms)):
        return False
    before = groups[:-1]
    return np.unique(before).size == before.size and not np.isin(groups[-1], before[1:]).any()
