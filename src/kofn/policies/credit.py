"""Credit: a count of plays and a total of rewards per arm, for the policies that keep nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadRecord, FloatArray, Plan, Policy, PolicyOptions, Subset, Tally
from kofn.core.fields import Fields, Part, check_totals, integers, numbers, part
from kofn.core.plan import ROUNDING
from kofn.policies.batching import averages, draws_for, plan_of, tenth, top_k, top_subset

BOUND_UPDATES = 32
"""Most updates of the confidence bounds within one plan. Higher: closer to an update per play, slower."""


@dataclass
class Credit(Part):
    """A count and a total per arm."""

    fields = Fields(count=integers(), total=numbers())

    count: NDArray[np.int64]
    total: FloatArray

    @classmethod
    def zeros(cls, n_arms: int) -> Credit:
        """Return the credit before the first play."""
        return cls(np.zeros(n_arms, np.int64), np.zeros(n_arms))

    def plays(self, k: int) -> int:
        """Return the plays of subsets so far: each counts for K arms."""
        return int(self.count.sum()) // k

    @property
    def means(self) -> FloatArray:
        """The average reward of each arm; 0 before its first play."""
        return averages(self.total, self.count)

    def best(self, k: int) -> Subset:
        """Return the K arms with the highest averages; of equal averages, the lowest arms."""
        return top_subset(self.means, k)

    def take(self, plan: Plan, earned: FloatArray, count: NDArray[np.int64]) -> None:
        """Count plays; `earned` is the credit of each place of each row."""
        arms, n = plan.subsets.ravel(), len(self.count)
        self.count = self.count + np.bincount(arms, np.repeat(count, plan.subsets.shape[1]), n).astype(np.int64)
        self.total = self.total + np.bincount(arms, np.broadcast_to(earned, plan.subsets.shape).ravel(), n)

    def _loaded(self, policy: Policy) -> None:
        if int(self.count.sum()) % policy.k or int(self.count.max()) * policy.k > int(self.count.sum()):
            raise BadRecord(f"plays of {policy.k} different arms cannot have these counts")
        check_totals(self.count, self.total, slack=ROUNDING)


class Credited(Policy):
    """A policy that keeps a count and a total per arm, and credits each arm of a subset with the whole reward."""

    fields = Fields(credit=part(Credit, flat=True))

    def __init__(self, n_arms: int, k: int, **options: Unpack[PolicyOptions]) -> None:
        super().__init__(n_arms, k, **options)
        self._credit = Credit.zeros(self.n_arms)

    def best(self) -> Subset:
        """Return the K arms with the highest average reward."""
        return self._credit.best(self.k)

    def _learn(self, plan: Plan, tally: Tally) -> None:
        self._credit.take(plan, tally.total[:, None], tally.count)


def beta_plan(credit: Credit, k: int, rng: np.random.Generator) -> Plan:
    """Return the plays of Thompson sampling in the next tenth of the time: the top K of draws from Beta posteriors.

    The prior is uniform. A reward of w adds w to the wins of its arm, and 1 - w to the losses.
    """
    plays, n_arms = tenth(credit.plays(k)), len(credit.count)
    draws = rng.beta(1 + credit.total, 1 + credit.count - credit.total, (draws_for(plays, n_arms), n_arms))
    return plan_of(top_k(draws, k), plays)


def optimistic_plan(credit: Credit, k: int, factor: float) -> Plan:
    """Return the plays of UCB in the next tenth of the time: the top K of mean + sqrt(factor log(t) / n).

    Counts n and the time t grow during the plan, the means stay. Arms that were never played come first, each once.
    """
    if not credit.count.all():
        return _first_plays(credit, k)
    t, means, n = credit.plays(k), credit.means, credit.count.astype(float)
    plays = tenth(t)
    share, rest = divmod(plays, min(plays, BOUND_UPDATES))
    found: dict[Subset, int] = {}
    for step in range(min(plays, BOUND_UPDATES)):
        times = share + (step < rest)
        subset = top_subset(means + np.sqrt(factor * math.log(t) / n), k)
        found[subset] = found.get(subset, 0) + times
        n[list(subset)] += times
        t += times
    return Plan(np.array(list(found)), np.array(list(found.values())))


def _first_plays(credit: Credit, k: int) -> Plan:
    """Return one play of every new arm, K at a time; the last row is filled up with other arms."""
    new = np.flatnonzero(credit.count == 0)
    others = np.flatnonzero(credit.count)
    filled = np.concatenate([new, others, new])[: -(-len(new) // k) * k].reshape(-1, k)
    return Plan(np.sort(filled, axis=1), np.ones(len(filled), np.int64))
