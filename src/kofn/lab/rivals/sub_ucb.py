"""Sub-UCB: greedy for the first arms, then UCB over all completions (Tajdini, Jain and Jamieson, NeurIPS 2024).

For submodular rewards. `level` rounds choose an arm each, as in ETCG; then every subset of K arms that contains them is
an arm of UCB. Level 0 is UCB over all subsets, level K is greedy explore-then-commit; the default minimises the bound.
Departures are explained in docs/reference/policies/sub-ucb.md.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from kofn.core import (
    BadInput,
    BadRecord,
    FloatArray,
    IntArray,
    Plan,
    Policy,
    PolicyOptions,
    ShortHorizonWarning,
    Subset,
    Tally,
    whole,
)
from kofn.core.fields import Fields, Part, any_length, check_totals, integers, numbers, part
from kofn.core.plan import ROUNDING
from kofn.core.subsets import all_subsets
from kofn.lab.rivals.greedy import Greedy, candidates_of
from kofn.policies.batching import averages, tenth

UCB_FACTOR = 2.0
"""UCB1's mean + sqrt(2 log t / n) (Auer, Cesa-Bianchi and Fischer 2002), for rewards in [0, 1]."""

MOST_COMPLETIONS = 2**18
"""Most completions for which the default level is considered. Higher: lower levels at long horizons, more memory."""


@dataclass
class Completions(Part):
    """A count and a total for each subset that contains the chosen arms; empty while arms are chosen."""

    fields = Fields(count=integers(any_length), earned=numbers(any_length))

    count: NDArray[np.int64]
    earned: FloatArray

    @classmethod
    def zeros(cls, number: int) -> Completions:
        """Return the data before the first play."""
        return cls(np.zeros(number, np.int64), np.zeros(number))


class SubUCB(Policy):
    """Choose `level` arms one after another, each the arm that adds most; then play UCB over all their completions.

    >>> policy = SubUCB(n_arms=24, k=5, horizon=10**6)
    >>> policy.level, policy.m, policy.completions
    (2, 1202, 1540)

    `m` is the number of plays of each candidate.
    """

    name = "sub-ucb"
    needs_horizon = True
    linear_memory = False
    keeps_subsets = True
    needs = frozenset({"fewer"})
    fields = Fields(greedy=part(Greedy, flat=True), ucb=part(Completions, flat=True))

    def __init__(
        self,
        n_arms: int,
        k: int,
        horizon: int,
        *,
        level: int | None = None,
        m: int | None = None,
        **options: Unpack[PolicyOptions],
    ) -> None:
        level, m = (None if level is None else whole("level", level, least=0)), (None if m is None else whole("m", m))
        super().__init__(n_arms, k, horizon=horizon, level=level, m=m, **options)
        if level is not None and level > self.k:
            raise BadInput(f"level must be at most k = {self.k}: it is the number of arms that are chosen; got {level}")
        self.level = printed_level(self.n_arms, self.k, self.horizon) if level is None else level
        self.m = m or printed_m(self.n_arms, self.horizon)
        if self.exploration >= self.horizon:
            warnings.warn(self._too_short(), ShortHorizonWarning, stacklevel=2)
        self._open = all_subsets(self.n_arms - self.level, self.k - self.level) if self.level < self.k else None
        self._greedy = Greedy.at_start(self.n_arms)
        self._ucb = Completions.zeros(0 if self.level else self.completions)

    @property
    def completions(self) -> int:
        """The number of subsets that contain the chosen arms: C(N - level, K - level)."""
        return math.comb(self.n_arms - self.level, self.k - self.level)

    @property
    def exploration(self) -> int:
        """Plays until the arms are chosen: m for each of N + (N-1) + ... + (N-level+1) candidates."""
        return self.m * candidates_of(self.n_arms, self.level)

    @property
    def committed(self) -> bool:
        """Whether the chosen arms have one completion only."""
        return self._all_chosen() and self.completions == 1

    def _all_chosen(self) -> bool:
        return len(self._greedy.chosen) == self.level

    def best(self) -> Subset:
        """Return the completion with the highest mean; while arms are chosen, the best of the candidates."""
        if not self._ucb.count.any():
            return self._greedy.best(self.k)
        return tuple(self._subsets(np.array([np.argmax(averages(self._ucb.earned, self._ucb.count))]))[0].tolist())

    def _subsets(self, which: IntArray) -> IntArray:
        """Return these completions as sorted rows of K arms."""
        chosen = np.broadcast_to(np.array(self._greedy.chosen, np.int64), (len(which), self.level))
        if self._open is None:
            return np.sort(chosen, axis=1)
        return np.sort(np.hstack([chosen, self._greedy.free[self._open[which].astype(np.int64)]]), axis=1)

    def _next(self) -> Plan:
        if not self._all_chosen():
            return self._greedy.plan(self.k, self.m)
        if self.committed:
            return Plan.one(self.best(), self.horizon)
        times = self._times()
        which = np.flatnonzero(times)
        return Plan(self._subsets(which), times[which])

    def _times(self) -> NDArray[np.int64]:
        """Return the plays of each completion in the next plan: first each once, then UCB's."""
        n = self._ucb.count
        if not n.all():
            return np.asarray(n == 0, np.int64)
        t = int(n.sum())
        return ucb_plays(averages(self._ucb.earned, n), n, UCB_FACTOR * math.log(t), tenth(t))

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if self.committed:
            return
        if self._all_chosen():
            which = np.flatnonzero(self._times())
            self._ucb.count[which] += tally.count
            self._ucb.earned[which] += tally.total
            return
        self._greedy.learn(self.k, tally)
        if self._all_chosen():
            self._ucb = Completions.zeros(self.completions)

    def _too_short(self) -> str:
        return (
            f"sub-ucb chooses {self.level} arms in {self.exploration:,} plays, and the horizon is {self.horizon:,}: "
            f"UCB will not begin. Give a smaller level or m, or a longer horizon"
        )

    def _loaded(self) -> None:
        self._greedy.check(self.level, self.m)
        expected = self.completions if self._all_chosen() else 0
        if self._ucb.count.shape != (expected,) or self._ucb.earned.shape != (expected,):
            raise BadRecord(f"count and earned must have {expected:,} numbers, one for each completion")
        check_totals(self._ucb.count, self._ucb.earned, slack=ROUNDING)
        if self._ucb.count.any() and not self._ucb.count.all():
            raise BadRecord("count must be above 0 for all completions or for none: the first plan plays each once")


def printed_m(n_arms: int, horizon: int) -> int:
    """Return the plays of each candidate, (T / n)^(2/3): L rounds of n candidates then cost L n^(1/3) T^(2/3).

    >>> printed_m(24, 10**6)
    1202
    """
    exact: float = (horizon / n_arms) ** (2 / 3)
    return math.ceil(exact)


def printed_level(n_arms: int, k: int, horizon: int) -> int:
    """Return the L that minimises L n^(1/3) T^(2/3) + sqrt(C(n, k - L) T), among those with few completions.

    >>> [printed_level(24, 5, 10**power) for power in (3, 6, 9, 12)]
    [4, 2, 1, 0]
    """
    levels = [level for level in range(k + 1) if math.comb(n_arms - level, k - level) <= MOST_COMPLETIONS]
    greedy: float = n_arms ** (1 / 3) * horizon ** (2 / 3)
    return min(levels, key=lambda level: level * greedy + math.sqrt(math.comb(n_arms, k - level) * horizon))


def ucb_plays(means: FloatArray, count: NDArray[np.int64], bonus: float, plays: int) -> NDArray[np.int64]:
    """Return how often UCB plays each arm in the next `plays` plays, with frozen means and a frozen logarithm.

    An arm with n plays has the bound mean + sqrt(bonus / n), and the highest bound is played. So play n + 1 of an arm
    happens exactly if its bound after n plays is among the highest: bisection finds the bound that is left at the end.

    >>> ucb_plays(np.array([0.5, 0.5, 0.1]), np.array([10, 20, 30]), 1.0, 14).tolist()
    [12, 2, 0]
    """

    def until(bound: float) -> NDArray[np.int64]:
        """Return the plays of each arm until no bound is above `bound`, which is above all means."""
        times = np.maximum(np.ceil(bonus / (bound - means) ** 2).astype(np.int64) - count, 0)
        times -= (times > 0) & (means + np.sqrt(bonus / (count + times - (times > 0))) <= bound)  # rounding errors
        return np.asarray(times + (means + np.sqrt(bonus / (count + times)) > bound), np.int64)

    high = float((means + np.sqrt(bonus / count)).max())
    low = float(means.max()) + math.sqrt(bonus / (int(count.max()) + plays + 1))
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if int(until(middle).sum()) > plays else (low, middle)
    times = until(high)
    bounds = means + np.sqrt(bonus / (count + times))
    rest = plays - int(times.sum())
    times[np.argsort(-bounds, kind="stable")[:rest]] += 1
    return times
