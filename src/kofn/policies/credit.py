"""Credit: how often each arm was played and what it is thought to have earned, for the policies that keep no more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadRecord, FloatArray, Plan, Policy, Subset, Tally, finite_numbers, whole_numbers
from kofn.policies.batching import tenth, top_subset

STEPS = 32
"""Moves of the confidence bounds within one plan at the most."""


@dataclass
class Credit:
    """A count and a total per arm."""

    count: NDArray[np.int64]
    total: FloatArray

    @classmethod
    def zeros(cls, n_arms: int) -> Credit:
        """Nothing played."""
        return cls(np.zeros(n_arms, np.int64), np.zeros(n_arms))

    def plays(self, k: int) -> int:
        """Plays of subsets so far: each counts for K arms."""
        return int(self.count.sum()) // k

    @property
    def means(self) -> FloatArray:
        """The average of each arm; 0 before its first play."""
        return np.asarray(self.total / np.maximum(self.count, 1))

    def best(self, k: int) -> Subset:
        """The K arms with the highest averages; of equal ones, the lowest arms."""
        return top_subset(self.means, k)

    def take(self, plan: Plan, earned: FloatArray, count: NDArray[np.int64]) -> None:
        """Count plays: `earned` is what each place of each row gets."""
        arms, n = plan.subsets.ravel(), len(self.count)
        self.count = self.count + np.bincount(arms, np.repeat(count, plan.subsets.shape[1]), n).astype(np.int64)
        self.total = self.total + np.bincount(arms, np.broadcast_to(earned, plan.subsets.shape).ravel(), n)

    def state(self) -> dict[str, Any]:
        """The fields as lists of plain numbers."""
        return {"count": self.count.tolist(), "total": self.total.tolist()}

    @classmethod
    def load(cls, state: Mapping[str, Any], n_arms: int, k: int) -> Credit:
        """The credit that `state` describes."""
        credit = cls(whole_numbers("count", state["count"]), finite_numbers("total", state["total"]))
        if not credit.count.shape == credit.total.shape == (n_arms,):
            raise BadRecord(f"it does not have a count and a total for each of the {n_arms} arms")
        if int(credit.count.sum()) % k or int(credit.count.max()) * k > int(credit.count.sum()):
            raise BadRecord(f"no plays of {k} different arms have its counts")
        slack = 1e-9 * credit.count
        if not ((credit.total >= -slack) & (credit.total <= credit.count + slack)).all():
            raise BadRecord("its totals do not fit its counts")
        return credit


class Credited(Policy):
    """A policy that keeps a count and a total per arm, and gives the whole reward to each arm of the subset."""

    _credit: Credit

    def best(self) -> Subset:
        """The K arms that have earned most per play."""
        return self._credit.best(self.k)

    def _learn(self, plan: Plan, tally: Tally) -> None:
        self._credit.take(plan, tally.total[:, None], tally.count)

    def _state(self) -> dict[str, Any]:
        return self._credit.state()

    def _load(self, state: Mapping[str, Any]) -> None:
        self._credit = Credit.load(state, self.n_arms, self.k)


def optimistic_plan(credit: Credit, k: int, factor: float) -> Plan:
    """The plays that UCB makes in the next tenth of the time: the top K of mean + sqrt(factor log(t) / n), again and
    again, as n and t grow and the means stay as they are.

    Arms that were never played come first, each once. Within the tenth the bounds move at most 32 times.
    """
    if not credit.count.all():
        return _first_plays(credit, k)
    t, means, n = credit.plays(k), credit.means, credit.count.astype(float)
    plays = tenth(t)
    share, rest = divmod(plays, min(plays, STEPS))
    found: dict[Subset, int] = {}
    for step in range(min(plays, STEPS)):
        times = share + (step < rest)
        subset = top_subset(means + np.sqrt(factor * math.log(t) / n), k)
        found[subset] = found.get(subset, 0) + times
        n[list(subset)] += times
        t += times
    return Plan(np.array(list(found)), np.array(list(found.values())))


def _first_plays(credit: Credit, k: int) -> Plan:
    """Every arm without a play once, K at a time, the last ones with others that fill up the row."""
    new = np.flatnonzero(credit.count == 0)
    others = np.flatnonzero(credit.count)
    filled = np.concatenate([new, others, new])[: -(-len(new) // k) * k].reshape(-1, k)
    return Plan(np.sort(filled, axis=1), np.ones(len(filled), np.int64))
