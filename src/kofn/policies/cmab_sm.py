"""CMAB-SM: sort groups of K+1 arms, merge them, play the best K (Agarwal, Aggarwal, Quinn, Umrawal, ALT 2021).

Line numbers in the margin are those of Algorithm 1 (CMAB-SM), 2 (SORT) and 3 (MERGE) in the paper's main text. Where
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
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from kofn.core import (
    BadRecord,
    FloatArray,
    IntArray,
    Plan,
    Policy,
    PolicyOptions,
    Seed,
    ShortHorizonWarning,
    Subset,
    Tally,
    finite_numbers,
    subset_of,
    whole,
    whole_numbers,
)
from kofn.core.fields import check_totals
from kofn.policies.batching import MOST_PLAN_CELLS, averages
from kofn.policies.randomised import optional_seed, shuffled_arms
from kofn.policies.registry import register
from kofn.theory.schedule import Form, Schedule


@register
class CMABSM(Policy):
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
    worth resolving; the default is the printed (256 N log(2NT) / T)^(1/3). `schedule="figures"` explores as long as in
    the paper's figures, not as long as in its text (docs/background/paper.md).
    """

    name = "cmab-sm"
    needs_horizon = True

    def __init__(
        self,
        n_arms: int,
        k: int,
        horizon: int,
        *,
        resolution: float | None = None,
        schedule: Form = "printed",
        seed: Seed = None,
        **options: Unpack[PolicyOptions],
    ) -> None:
        self.schedule = Schedule(n_arms, k, horizon, resolution, schedule)
        resolution = None if resolution is None else self.schedule.resolution
        own = {"resolution": resolution, "schedule": schedule, "seed": optional_seed(seed)}
        super().__init__(n_arms, k, horizon=self.schedule.horizon, **own, **options)
        if not self.schedule.rounds or self.schedule.exploration_plays > self.horizon:
            warnings.warn(self._too_short(), ShortHorizonWarning, stacklevel=2)
        arms = shuffled_arms(self.n_arms, self._params["seed"])
        self._phase: Sort | Merge | Subset = Sort.of(_partition(arms, self.k))  # line 2
        self._advance()
        self._begin()

    def best(self) -> Subset:
        """Return the K arms found; until then, the arms that SORT and MERGE rank first so far."""
        return self._phase if isinstance(self._phase, tuple) else self._phase.best()

    @property
    def committed(self) -> bool:
        """Whether the K arms have been found."""
        return isinstance(self._phase, tuple)

    def _next(self) -> Plan:
        if isinstance(self._phase, tuple):  # exploration is over
            return Plan.one(self._phase, self.horizon)
        return self._actions

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if not isinstance(self._phase, tuple):
            self._phase.take(tally)
            self._advance()

    def _advance(self) -> None:
        """Continue to the next plays, from SORT through MERGE to the end."""
        while not isinstance(self._phase, tuple):
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

    def _state(self) -> dict[str, Any]:
        if isinstance(self._phase, tuple):
            return {"phase": "play", "best": list(self._phase)}
        return self._phase.state()

    def _load(self, state: Mapping[str, Any]) -> None:
        phase = state["phase"]
        if phase == "play":
            self._phase = subset_of(state["best"], self.n_arms, self.k)
        elif phase == "sort":
            self._phase = Sort.load(state, self.n_arms, self.k)
        elif phase == "merge":
            self._phase = Merge.load(state, self.n_arms, self.k)
        else:
            raise BadRecord(f"phase must be sort, merge or play; got {phase!r}")
        self._advance()


@dataclass
class Sort:
    """Algorithm 2 on all groups at once: rank the K+1 arms of each by the actions that leave one of them out.

    A row is a group. Cell (g, i) stands for the action a_-i: all arms of group g except its i-th.
    """

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

    def then(self) -> Merge | Subset:
        """Return MERGE, or the best K if there is only one group."""
        ranked = self._ranked()[:, :-1].tolist()  # line 16
        if len(ranked) == 1:
            return tuple(sorted(ranked[0]))
        repeated = set(self.groups[0].tolist())
        ranked[-1] = [arm for arm in ranked[-1] if arm not in repeated]  # (b) without padding
        return Merge(g1=ranked[0], g2=ranked[1], waiting=deque(ranked[2:]))

    def best(self) -> Subset:
        """Return the best K of the first group."""
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

    def state(self) -> dict[str, Any]:
        """Return the fields as lists of plain numbers, group after group."""
        return {
            "phase": "sort",
            "groups": self.groups.ravel().tolist(),
            "count": self.count.ravel().tolist(),
            "total": self.total.ravel().tolist(),
            "unsorted": self.unsorted.ravel().astype(int).tolist(),
            "r": self.r,
        }

    @classmethod
    def load(cls, state: Mapping[str, Any], n_arms: int, k: int) -> Sort:
        """Return the phase that `state` describes."""
        shape = -(-n_arms // (k + 1)), k + 1
        if any(len(state[name]) != shape[0] * shape[1] for name in ("groups", "count", "total", "unsorted")):
            raise BadRecord(f"groups, count, total and unsorted must have {shape[0]} * {shape[1]} numbers each")
        sort = cls(
            whole_numbers("groups", state["groups"]).reshape(shape).astype(np.int32),
            whole_numbers("count", state["count"]).reshape(shape),
            finite_numbers("total", state["total"]).reshape(shape),
            whole_numbers("unsorted", state["unsorted"]).reshape(shape) == 1,
            whole("r", state["r"]),
        )
        if not _is_partition(sort.groups, n_arms):
            raise BadRecord(f"groups must be a partition of the {n_arms} arms")
        if max(state["unsorted"]) > 1:
            raise BadRecord("unsorted must be 0 or 1")
        check_totals(sort.count, sort.total)
        return sort


@dataclass
class Sample:
    """The plays of an action: their count and their total reward."""

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
class Merge:
    """Algorithm 3: find the best K of two sorted groups, by exchanging one arm of the first for one of the second.

    G1 is always the best K so far, best first; the next MERGE relies on the order.
    """

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

    def then(self) -> Merge | Subset:
        """Return MERGE with the next group, or the best K if there is none."""
        if not self.waiting:
            return tuple(sorted(self.merged))
        return Merge(g1=self.merged, g2=self.waiting.popleft(), waiting=self.waiting)

    def best(self) -> Subset:
        """Return the merged arms, filled up with the best of G1."""
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

    def state(self) -> dict[str, Any]:
        """Return the fields as plain numbers."""
        return {
            "phase": "merge",
            **{name: list(getattr(self, name)) for name in ("g1", "g2", "waiting", "merged")},
            **{name: getattr(self, name) for name in ("i", "j", "r1", "r2")},
            **{name: [getattr(self, name).count, getattr(self, name).total] for name in ("base", "swap")},
        }

    @classmethod
    def load(cls, state: Mapping[str, Any], n_arms: int, k: int) -> Merge:
        """Return the phase that `state` describes."""
        i, j = whole("i", state["i"], least=0), whole("j", state["j"], least=0)
        g1, g2 = list(state["g1"]), list(state["g2"])
        waiting = deque(list(group) for group in state["waiting"])
        arms = [arm for group in (g1, g2, *waiting) for arm in group]
        if len(g1) != k or any(len(group) > k for group in (g2, *waiting)):
            raise BadRecord(f"a group must have at most {k} arms, and g1 exactly {k}")
        if not all(isinstance(arm, int) and 0 <= arm < n_arms for arm in arms) or len(set(arms)) != len(arms):
            raise BadRecord(f"groups must be different arms from 0 to {n_arms - 1}")
        if i + j != len(state["merged"]) or set(state["merged"]) != {*g1[:i], *g2[:j]} or i + j >= k or j >= len(g2):
            raise BadRecord("merged must be the first i arms of g1 and the first j arms of g2")
        r1, r2 = whole("r1", state["r1"]), whole("r2", state["r2"])
        base, swap = (
            Sample(whole("count", n, least=0), float(finite_numbers("total", total)))
            for n, total in (state["base"], state["swap"])
        )
        check_totals(np.array([base.count, swap.count]), np.array([base.total, swap.total]))
        return cls(g1, g2, waiting, list(state["merged"]), i, j, r1, r2, base, swap)


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
