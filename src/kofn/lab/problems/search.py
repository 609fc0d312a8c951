"""Search for the best subset of a sampled problem, with a limit on the draws.

If there are few subsets, all of them race. Else a local search starts from several subsets: it replaces one arm at a
time by the winner of a race among all arms, and stops when no replacement helps. What the starts found races once more,
on other draws.

A race is successive halving: every candidate gets a few draws, the better half gets twice as many, and so on. All
candidates have the same random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from kofn.core import Subset
from kofn.lab.problems.expectation import top_subset
from kofn.lab.problems.sampled_values import DrawOne, SampledValues

STARTS = 6
"""Starts of the local search. More of them find more local optima, with fewer draws for each."""
_FEW_DRAWS, _FEW_IN_BATCHES = 16, 256
"""Draws of a candidate in the first round of a race. They are multiplied by 4 when no replacement helps."""
_FOR_START, _FOR_FINAL = 0.1, 0.2
"""Fractions of the draws that are used for the first start and for the last race."""
_CLEAR = 6.0
"""Standard errors by which the leader of a race must be ahead of the second to win at once."""
_ENOUGH_DRAWS = 1024
"""Limit on the draws of a candidate in the first round, if all subsets are tried."""
_MOST_DRAWS = 2**16
"""Draws of a candidate at which a race ends."""


@dataclass(frozen=True)
class SearchResult:
    """The best subset that was found, and the effort: starts of the local search (0: all subsets), subsets, draws."""

    best: Subset
    starts: int
    subsets: int
    draws: int

    def __str__(self) -> str:
        draws = f"{self.draws:,} draws"
        if not self.starts:
            return f"all {self.subsets:,} subsets tried: {draws}"
        return f"searched: {self.starts} starts, {self.subsets:,} subsets, {draws}"


def search(
    source: DrawOne, n_arms: int, effort: int, *, sign: float, fixed: bool, streams: tuple[int, int]
) -> SearchResult:
    """Return the best subset found with about `effort` draws; sign is -1 to minimise.

    `fixed` says that the function seems to use no random numbers: then as many subsets are tried as there are draws.
    """
    seeker = _Seeker(source, n_arms, effort, sign, streams)
    few = 1 if fixed else _FEW_IN_BATCHES if source.batch else _FEW_DRAWS
    subsets = math.comb(n_arms, source.k)
    if subsets * (1 if fixed else _rounds(subsets)) * few <= effort:
        return seeker.try_all(1 if fixed else min(_ENOUGH_DRAWS, effort // (subsets * _rounds(subsets))))
    return seeker.climb_from_starts(few)


def _rounds(candidates: int) -> int:
    """Return the number of rounds of a race; all rounds together cost as much as this many first rounds."""
    return max(1, math.ceil(math.log2(candidates)))


class _Seeker:
    """The state of a search: its draws, and how many of them are left."""

    def __init__(self, source: DrawOne, n_arms: int, effort: int, sign: float, streams: tuple[int, int]) -> None:
        self._source, self._n_arms, self._k, self._effort, self._sign = source, n_arms, source.k, effort, sign
        self._values, self._final = (SampledValues(source, stream, _MOST_DRAWS) for stream in streams)
        self._rng = np.random.default_rng([n_arms, source.k])
        self._at_random = 0

    def try_all(self, draws: int) -> SearchResult:
        """Let all subsets race, with this number of draws in the first round."""
        every = list(combinations(range(self._n_arms), self._k))
        return self._report(self._race(self._values, every, draws, self._effort), starts=0)

    def climb_from_starts(self, few: int) -> SearchResult:
        """Climb from several starts, and let what they found race."""
        climbing = (1 - _FOR_FINAL) * self._effort
        starts = [self._start_by_effects(_FOR_START * self._effort)]
        starts += [self._random_subset() for _ in range(STARTS - 1)]
        found: list[Subset] = []
        for number, start in enumerate(starts):
            until = self._spent + (climbing - self._spent) / (len(starts) - number)
            found.append(self._climb(start, few, until))
        ends = sorted(set(found))
        draws = int((self._effort - self._spent) / (len(ends) * _rounds(len(ends))))
        best = self._race(self._final, ends, max(few, draws), self._effort) if len(ends) > 1 else ends[0]
        return self._report(best, starts=len(starts))

    @property
    def _spent(self) -> int:
        return self._at_random + self._values.made + self._final.made

    def _start_by_effects(self, draws: float) -> Subset:
        """Return the K arms with the best average reward over random subsets."""
        rows = np.argsort(self._rng.random((max(1, int(draws)), self._n_arms)), axis=1)[:, : self._k]
        rewards = self._sign * self._source.draw_rows(np.sort(rows, axis=1), self._rng)
        self._at_random += len(rows)
        places = rows.ravel()
        plays = np.bincount(places, minlength=self._n_arms)
        total = np.bincount(places, np.repeat(rewards, self._k), self._n_arms)
        effects = np.where(plays > 0, total / np.maximum(plays, 1), -np.inf)
        return top_subset(effects, self._k)

    def _random_subset(self) -> Subset:
        return tuple(sorted(self._rng.choice(self._n_arms, self._k, replace=False).tolist()))

    def _climb(self, subset: Subset, draws: int, until: float) -> Subset:
        """Replace one arm at a time until no replacement helps with the most draws, or `until` draws are spent."""
        while self._spent < until and draws <= _MOST_DRAWS:
            helped = False
            for arm in subset:
                if self._spent >= until:
                    break
                better = self._replace(subset, arm, draws, until)
                helped, subset = helped or better != subset, better
            if not helped:
                if self._values.upto(subset, 1).exact:
                    break
                draws *= 4
        return subset

    def _replace(self, subset: Subset, arm: int, draws: int, until: float) -> Subset:
        """Return the subset with the best arm in the place of `arm`."""
        others = [each for each in subset if each != arm]
        candidates = [tuple(sorted([*others, each])) for each in range(self._n_arms) if each not in others]
        winner = self._race(self._values, candidates, draws, until)
        level = min(self._values.upto(winner, 1).count, _MOST_DRAWS)
        score, now = self._score(self._values, winner, level), self._score(self._values, subset, level)
        return winner if score > now else subset

    def _race(self, values: SampledValues, subsets: Sequence[Subset], draws: int, until: float) -> Subset:
        """Return the winner of successive halving; of equal ones, the first."""
        left: Iterable[Subset] = subsets
        while True:
            ranked = sorted(left, key=lambda each: (-self._score(values, each, draws), each))
            decided = len(ranked) <= 2 or self._clear(values, *ranked[:2])
            if decided or self._spent >= until or draws >= _MOST_DRAWS:
                return ranked[0]
            left = ranked[: math.ceil(len(ranked) / 2)]
            draws *= 2

    def _clear(self, values: SampledValues, leader: Subset, second: Subset) -> bool:
        """Return whether the leader is ahead of the second by more than the draws can explain."""
        one, two = values.upto(leader, 1), values.upto(second, 1)
        return one.exact or abs(one.mean - two.mean) > _CLEAR * math.hypot(one.error, two.error)

    def _score(self, values: SampledValues, subset: Subset, draws: int) -> float:
        return self._sign * values.upto(subset, draws).mean

    def _report(self, best: Subset, *, starts: int) -> SearchResult:
        return SearchResult(best, starts, self._values.subsets, self._spent)
