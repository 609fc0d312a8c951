"""A policy for simulations: quick, and every reward changes what it plays next. On demand, it fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import combinations
from typing import Any, Self, Unpack
from unittest.mock import patch

import numpy as np

from kofn.constraints import Constraints
from kofn.core import BadInput, Plan, Policy, PolicyOptions, Subset, Tally
from kofn.policies.registry import POLICIES

MODULUS = 2**61 - 1
"""Digests are whole numbers below this."""

SIZES = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (4, 3)]
"""Rows of a plan and plays of each row; a digest chooses. Long plans learn seldom, short ones after every reward."""


def mixed(*numbers: int) -> int:
    """Return a digest of numbers, the same in every process."""
    digest = 1
    for number in numbers:
        digest = (digest * 6364136223846793005 + number * 1442695040888963407 + 97) % MODULUS
        digest ^= digest >> 29
    return digest


@cache
def _allowed(n_arms: int, k: int, rules: str) -> list[Subset]:
    constraints: Any = Constraints.of(eval(rules))  # plain values, as `repr` wrote them
    return [each for each in combinations(range(n_arms), k) if not constraints.broken(each)]


class CheapPolicy(Policy):
    """Play subsets that a digest of all rewards chooses, and fail while `broken`."""

    name = "simulated"
    takes_constraints = "all"
    broken = False  # of the class: of all policies at once
    failures = 0

    def __init__(
        self, n_arms: int, k: int, *, unplanned: bool = True, seed: int = 0, **options: Unpack[PolicyOptions]
    ) -> None:
        if options.get("constraints") is not None:
            options["constraints"] = Constraints.of(options["constraints"])
        super().__init__(n_arms, k, unplanned=unplanned, seed=seed, **options)
        self.accepts_unplanned = unplanned
        self._digest = mixed(seed, n_arms, k)
        self._means = [0.0] * n_arms

    @property
    def _subsets(self) -> list[Subset]:
        return _allowed(self.n_arms, self.k, repr([] if self.constraints is None else self.constraints.to_list()))

    def best(self) -> Subset:
        """Return the arms with the highest sums of rewards."""
        return max(self._subsets, key=lambda subset: sum(self._means[arm] for arm in subset))

    def filler(self, index: int, segment: str | None = None) -> Subset:
        """Return another subset for each index."""
        del segment
        return self._subsets[mixed(self._digest, index) % len(self._subsets)] if self.accepts_unplanned else self.best()

    def with_arms(self, keep: Sequence[int], added: int = 0, constraints: Any = None) -> Self:
        """Return a policy with the sums of these arms, and with new arms."""
        if not self.accepts_unplanned:
            raise BadInput("a policy that learns from its plan only needs a fixed set of arms")
        means = [self._means[arm] for arm in keep] + [0.0] * added
        return self._continued(means, n_arms=len(means), constraints=constraints)

    def with_params(self, **changes: Any) -> Self:
        """Return a policy with other parameters that has learned the same."""
        return self._continued(self._means, **changes)

    def _continued(self, means: list[float], **changes: Any) -> Self:
        fresh = type(self)(**{**self.params, **changes})
        fresh._means, fresh._digest = list(means), mixed(self._informed()._digest, len(means))
        fresh.plays, fresh.updates = self.plays, self.updates + 1
        return fresh

    def _next(self) -> Plan:
        subsets = self._subsets
        rows, times = SIZES[self._digest % len(SIZES)]
        first = self._digest // len(SIZES)
        chosen = [subsets[(first + row) % len(subsets)] for row in range(min(rows, len(subsets)))]
        return Plan(np.array(chosen), np.full(len(chosen), times))

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if CheapPolicy.broken:
            CheapPolicy.failures += 1
            raise ZeroDivisionError("simulated")
        learned = 0  # a sum: the order of the rows has no meaning
        for (subset, _), count, total in zip(plan, tally.count.tolist(), tally.total.tolist(), strict=True):
            learned += mixed(*subset, count, round(total * 1024))
            for arm in subset:
                self._means[arm] += total
        self._digest = mixed(self._digest, learned % MODULUS)

    def _state(self) -> dict[str, Any]:
        return {"digest": str(self._digest), "means": list(self._means)}

    def _load(self, state: Mapping[str, Any]) -> None:
        self._digest, self._means = int(state["digest"]), list(state["means"])


@contextmanager
def registered() -> Iterator[None]:
    """Make the policy known by its name."""
    with patch.dict(POLICIES, {CheapPolicy.name: CheapPolicy}):
        yield
