"""A policy for simulations: it costs little, and its state shows every reward that was lost or counted twice.

It keeps the exact sums of every arm, and a digest of all that it has learned. Its plans depend on the digest, so a
policy that learned anything else plans otherwise. Plans have more rows and sizes than those of a real policy in its
first steps. It keeps its open plan in lists: arrays cost more than they save in plans of a few rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import combinations
from typing import Any, Self, SupportsIndex, Unpack
from unittest.mock import patch

import numpy as np

from kofn.core import BadInput, BadTally, Plan, Policy, PolicyOptions, Subset, Tally
from kofn.policies.registry import POLICIES

MODULUS = 2**61 - 1
"""Digests are whole numbers below this."""

SIZES = [(1, 1), (1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (5, 1), (4, 3)]
"""Rows of a plan and plays of each row; a digest chooses. Long plans learn seldom, short ones after every reward."""

Sums = list[float]
"""Count, total and total of the squares of rewards."""


def mixed(*numbers: int) -> int:
    """Return a digest of numbers, the same in every process."""
    digest = 1
    for number in numbers:
        digest = (digest * 6364136223846793005 + number * 1442695040888963407 + 97) % MODULUS
        digest ^= digest >> 29
    return digest


@cache
def subsets_of(n_arms: int, k: int) -> list[Subset]:
    """Return all subsets."""
    return list(combinations(range(n_arms), k))


@cache
def plan_of(n_arms: int, k: int, size: int, first: int, stride: int) -> Plan:
    """Return the plan with subsets from this one on, in these strides around the circle of all subsets."""
    subsets = subsets_of(n_arms, k)
    rows, times = SIZES[size]
    strides = [each for each in range(1, len(subsets) + 1) if math.gcd(each, len(subsets)) == 1]  # none comes twice
    stride = strides[stride % len(strides)]
    chosen = [subsets[(first + stride * row) % len(subsets)] for row in range(min(rows, len(subsets)))]
    return Plan(np.array(chosen), np.full(len(chosen), times))


class CheapPolicy(Policy):
    """Play subsets that a digest of all rewards chooses."""

    name = "simulated"

    def __init__(
        self, n_arms: int, k: int, *, unplanned: bool = True, seed: int = 0, **options: Unpack[PolicyOptions]
    ) -> None:
        super().__init__(n_arms, k, unplanned=unplanned, seed=seed, **options)
        self.accepts_unplanned = unplanned
        self._digest = mixed(seed, n_arms, k)
        self._sums: list[Sums] = [[0, 0.0, 0.0] for _ in range(n_arms)]
        self._begin()

    def _begin(self) -> None:
        self._planned = self._next()
        self._rows = {tuple(subset): row for row, subset in enumerate(self._planned.subsets.tolist())}
        self._times: list[int] = self._planned.times.tolist()
        self._observed: list[Sums] = [[0, 0.0, 0.0] for _ in self._times]
        self._unplanned: dict[Subset, Sums] = {}
        self._remaining = sum(self._times)

    def __deepcopy__(self, _: object) -> Self:
        copied = type(self).__new__(type(self))
        vars(copied).update(vars(self))
        copied._sums = [list(each) for each in self._sums]
        copied._observed = [list(each) for each in self._observed]
        copied._unplanned = {subset: list(each) for subset, each in self._unplanned.items()}
        return copied

    def best(self) -> Subset:
        """Return the arms with the highest mean of the rewards that they had a part in."""
        means = [total / max(1, count) for count, total, _ in self._sums]
        return tuple(sorted(sorted(range(self.n_arms), key=lambda arm: (-means[arm], arm))[: self.k]))

    def filler(self, index: int, segment: str | None = None) -> Subset:
        """Return another subset for each index."""
        del segment
        if not self.accepts_unplanned:
            return self.best()
        subsets = subsets_of(self.n_arms, self.k)
        return subsets[mixed(self._digest, index) % len(subsets)]

    def with_arms(self, keep: Sequence[int], added: int = 0) -> Self:
        """Return a policy with the sums of these arms, and with new arms."""
        if not self.accepts_unplanned:
            raise BadInput("a policy that learns from its plan only needs a fixed set of arms")
        informed = self.__deepcopy__({})
        informed._learn_observed()
        fresh = type(self)(**{**self.params, "n_arms": len(keep) + added})
        fresh._sums[: len(keep)] = [informed._sums[arm] for arm in keep]
        fresh._digest = mixed(informed._digest, added, *keep)
        fresh.plays, fresh.updates = self.plays, self.updates + 1
        fresh._begin()
        return fresh

    def _next(self) -> Plan:
        size, rest = self._digest % len(SIZES), self._digest // len(SIZES)
        n_subsets = len(subsets_of(self.n_arms, self.k))
        return plan_of(self.n_arms, self.k, size, rest % n_subsets, rest // n_subsets % 16)

    # The open plan.

    def plan(self) -> Plan:
        """Return the remaining plays."""
        left = [times - int(sums[0]) for times, sums in zip(self._times, self._observed, strict=True)]
        return self._planned if left == self._times else Plan(self._planned.subsets, np.array(left))

    def tell_plan(self, tallies: Tally) -> None:
        """Observe plays of the plan."""
        sums = zip(tallies.count.tolist(), tallies.total.tolist(), tallies.squares.tolist(), strict=True)
        for row, (count, total, squares) in enumerate(sums):
            if count:
                self._observe_row(row, self._normal(count, total, squares))
        self._finish_if_complete()

    def tell_total(
        self,
        subset: Iterable[SupportsIndex],
        count: int,
        total: float,
        squares: float | None = None,
        *,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        """Observe plays of one subset."""
        assert context is None
        assert squares is not None
        assert context is None
        played = tuple(int(arm) for arm in subset)
        row, sums = self._rows.get(played), self._normal(count, total, squares)
        if row is not None and count <= self._times[row] - self._observed[row][0]:
            self._observe_row(row, sums)
        elif not self.accepts_unplanned:
            raise BadTally(f"{count} plays of {played} are not in the plan")
        else:
            _add(self._unplanned.setdefault(played, [0, 0.0, 0.0]), sums)
            self._count(count)
        self._finish_if_complete()

    def _observe_row(self, row: int, sums: Sums) -> None:
        if sums[0] > self._times[row] - self._observed[row][0]:
            raise BadTally(f"{sums[0]} plays of row {row} are more than remain")
        _add(self._observed[row], sums)
        self._count(int(sums[0]))

    def _count(self, plays: int) -> None:
        self.plays += plays
        self._remaining -= plays

    def _normal(self, count: int, total: float, squares: float) -> Sums:
        low, high = self.reward_range
        span = high - low
        squares = (squares - 2 * low * total + count * low * low) / (span * span)
        total = (total - count * low) / span
        return [count, total, squares] if self.direction == "maximize" else [count, count - total, squares]

    def _finish_if_complete(self) -> None:
        if self._remaining <= 0:
            self._learn_observed()
            self.updates += 1
            self._begin()

    def _learn_observed(self) -> None:
        learned = 0  # a sum: the order of the rows has no meaning
        played = [*zip(self._rows, self._observed, strict=True), *self._unplanned.items()]
        for subset, sums in played:
            if sums[0]:
                learned += mixed(*subset, int(sums[0]), round(sums[1] * 1024))
            for arm in subset:
                _add(self._sums[arm], sums)
        self._digest = mixed(self._digest, self.updates, learned % MODULUS)

    def _learn(self, plan: Plan, tally: Tally) -> None:
        raise NotImplementedError  # it learns from its own lists

    # The record.

    def state(self) -> dict[str, Any]:
        """Return all that it has learned."""
        state = {"plays": self.plays, "updates": self.updates, "digest": str(self._digest)}
        state |= {"sums": [list(each) for each in self._sums], "observed": [list(each) for each in self._observed]}
        if self.accepts_unplanned:
            state["unplanned"] = [[list(subset), *sums] for subset, sums in self._unplanned.items()]
        return state

    def load(self, state: Mapping[str, Any]) -> None:
        """Replace all that it has learned."""
        self.plays, self.updates, self._digest = state["plays"], state["updates"], int(state["digest"])
        self._sums = [list(each) for each in state["sums"]]
        self._begin()
        self._observed = [list(each) for each in state["observed"]]
        self._unplanned = {tuple(subset): sums for subset, *sums in state.get("unplanned", ())}
        self._remaining -= int(sum(sums[0] for sums in (*self._observed, *self._unplanned.values())))


def _add(sums: Sums, more: Sums) -> None:
    for index, value in enumerate(more):
        sums[index] += value


@contextmanager
def registered() -> Iterator[None]:
    """Make the policy known by its name."""
    with patch.dict(POLICIES, {CheapPolicy.name: CheapPolicy}):
        yield
