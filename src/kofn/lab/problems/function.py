"""A problem from one function of a subset: `Problem.of(f, n_arms=40, k=5)`.

Every play is a call of the function. Expected rewards are means over numbered draws: draw i has the same random numbers
for every subset, so that differences have less noise. The best subset is searched on other draws than those that value
it, because the largest of many sampled values is too large.
"""

from __future__ import annotations

import inspect
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadInput, BadReward, Direction, FloatArray, IntArray, ProblemWarning, Subset, check_range, whole
from kofn.lab.problems.arm_order import check_arm_order
from kofn.lab.problems.assumptions import DOMINANCE, INCREASING, SYMMETRIC, Check, Finding
from kofn.lab.problems.base import AbstractProblem, RegretMeter
from kofn.lab.problems.duration import duration, warn_of_long_work
from kofn.lab.problems.rows import Subsets
from kofn.lab.problems.sampled_values import DrawMoments, DrawOne, SampledValues
from kofn.lab.problems.sampling import Sums
from kofn.lab.problems.search import SearchResult, search

DRAWS, DRAWS_IN_BATCHES = 1024, 16_384
"""Default draws behind a value. Four times as many halve its standard error, and take four times as long."""
EFFORT, EFFORT_IN_BATCHES = 300_000, 5_000_000
"""Default limit on the draws of the search for the best subset. More of them find it more often."""
_LOOKS, _LOOKS_IF_SLOW = (32, 8), (4, 4)
"""Subsets, and calls for each, with which a function is examined when the problem is made."""
_SLOW_CALL = 0.02
"""Seconds per call above which the second pair of these numbers is used."""
_TIMED_CALLS, _TIMING = 8, 0.2
"""Most calls whose time is measured, and the seconds after which no further one is."""
_FOR_BEST = 64
"""Factor on the number of draws for the value of the best subset, because its error is in all regret."""
_FOR_ONE_PLAY, _PER_PLAY = 64, 16
"""Draws behind the regret of a subset: the first number, or the second for each play if that is more, up to `draws`."""
_BETTER = 4.0
"""Standard errors by which a subset must beat the best one, twice on different draws, for a warning."""
_CONFIRM = 16
"""How many times the draws of a value are used to confirm that."""
_VALUES, _SEARCH, _FINAL, _RECHECK, _LOOK, _REGRET, _TIMES = range(7)  # streams of random numbers

RewardOfSubset = Callable[..., Any]


class FunctionProblem(AbstractProblem):
    """A problem whose reward is `f(subset, rng)`, any function of a tuple of K arms and a generator. Also `Problem.of`.

    >>> from kofn.lab.problems import Problem
    >>> def clicks(subset, rng):
    ...     return rng.random() < 0.1 + 0.01 * sum(subset) + 0.1 * (subset == (2, 5))
    >>> problem = Problem.of(clicks, n_arms=8, k=2)
    >>> problem.best, problem.best_evidence[:21]
    ((2, 5), 'all 28 subsets tried:')

    Random numbers come from `rng`, a NumPy generator. `reward_range` contains all rewards. By default it is [0, 1] if
    256 draws are in it, else their range and half its width on both sides; a later reward outside of it is an error.
    With `batch=True`, f receives an array with a subset in each row, and returns an array of rewards. Expected rewards
    are means over `draws` draws (1,024; 16,384 with `batch`), with a standard error in `value_error`. `best` is
    searched with about `effort` draws (300,000; 5,000,000 with `batch`), unless it is given; `best_evidence` says how
    it was found. If f does not use rng for a subset, one call gives its value.
    """

    def __init__(
        self,
        f: RewardOfSubset,
        n_arms: int,
        k: int,
        *,
        direction: Direction = "maximize",
        reward_range: tuple[float, float] | None = None,
        best: Iterable[int] | None = None,
        batch: bool = False,
        draws: int | None = None,
        effort: int | None = None,
    ) -> None:
        super().__init__(n_arms, k, direction=direction, best=best)
        self._source = DrawOne(f, self.k, batch=batch)
        self.draws = whole("draws", (DRAWS_IN_BATCHES if batch else DRAWS) if draws is None else draws, least=2)
        self.effort = whole("effort", (EFFORT_IN_BATCHES if batch else EFFORT) if effort is None else effort, least=100)
        self._better: tuple[Subset, float] | None = None
        self._levels: dict[int, SampledValues] = {}
        if reward_range is not None:
            self.reward_range = check_range(reward_range)
        seen = self._look()
        if reward_range is None:
            self.reward_range = _range_of(*seen)

    @property
    def f(self) -> RewardOfSubset:
        """The function."""
        return self._source.f

    @property
    def seconds_per_play(self) -> float:
        """The time of one call, in seconds, as measured when the problem was made."""
        return self._seconds

    def _look(self) -> tuple[float, float]:
        """Call the function a few times; return the smallest and the largest reward."""
        source, rng = self._source, np.random.default_rng([0, _LOOK])
        first = tuple(range(self.k))
        _check_arguments(source.f, first, batch=source.batch)
        source.draw(first, 1, rng)  # the first call may load something, so its time is not measured
        self._seconds = self._time_of_call()
        slow = self._seconds > _SLOW_CALL
        if slow:
            self._warn_of_slow_calls()
        subsets, calls = _LOOKS_IF_SLOW if slow else _LOOKS
        rewards = []
        for _ in range(subsets):
            subset = self._random_subset(rng)
            rewards.append([source.reward_and_whether_fixed(subset, rng) for _ in range(calls)])
        if any(fixed and len({reward for reward, _ in each}) > 1 for each in rewards for _, fixed in each[:1]):
            source.repeatable = False
            warnings.warn(
                f"{source.name} returns different rewards for the same subset without using rng, so runs cannot be "
                "repeated: take every random number from rng",
                ProblemWarning,
                stacklevel=3,
            )
        self._all_fixed = source.repeatable and all(fixed for each in rewards for _, fixed in each)
        flat = [reward for each in rewards for reward, _ in each]
        return min(flat), max(flat)

    def _time_of_call(self) -> float:
        """Return the seconds of one draw: the shortest of a few, because a busy machine interrupts some calls."""
        rng, draws = np.random.default_rng([0, _TIMES]), 256 if self._source.batch else 1
        seconds: list[float] = []
        while len(seconds) < _TIMED_CALLS and sum(seconds) < _TIMING:
            subset = self._random_subset(rng)
            start = time.perf_counter()
            self._source.draw(subset, draws, rng)
            seconds.append(time.perf_counter() - start)
        return min(seconds) / draws

    def _random_subset(self, rng: np.random.Generator) -> Subset:
        return tuple(np.sort(rng.choice(self.n_arms, self.k, replace=False)).tolist())

    def _warn_of_slow_calls(self) -> None:
        warnings.warn(
            f"a call of {self._source.name} takes {duration(self._seconds)}. The expected reward of a subset takes "
            f"draws={self.draws:,} calls, unless it uses no random numbers; finding the best subset takes up to "
            f"effort={self.effort:,} calls, {duration(self.effort * self._seconds)}. Give best=, or smaller draws= "
            "and effort=",
            ProblemWarning,
            stacklevel=4,
        )

    # Plays and values.

    def make_sampler(self) -> _FunctionSampler:
        """Return the sampler, which calls the function once for each play."""
        return _FunctionSampler(self)

    def make_expectation(self) -> SampledValues:
        """Return sampled expected rewards, exact for subsets for which the function uses no random numbers."""
        return SampledValues(self._source, _VALUES, self.draws)

    def gap(self, subsets: Subsets) -> FloatArray:
        """Return how much worse than the best subset each row is, at least 0; warn if a row is clearly better.

        A row is clearly better if it is better by more than 4 standard errors, twice, on different draws.
        """
        gap = super().gap(subsets)
        self._notice_better(self._rows(subsets)[gap == 0])
        return gap

    def regret_meter(self) -> RegretMeter:
        """Return a meter of a run's regret, which uses more draws for subsets that the run has played more often."""
        return _Meter(self).add

    @cached_property
    def optimum(self) -> float:
        """The expected reward of the best subset, from 64 times as many draws as other values."""
        return self._known_best.mean

    @cached_property
    def _known_best(self) -> DrawMoments:
        draws = _FOR_BEST * self.draws
        return SampledValues(self._source, _VALUES, draws).upto(self.best, draws)

    @property
    def _best_value(self) -> float:
        return float(self.value([self.best])[0])  # on the same draws as other values

    def gap_after(self, subset: Subset, plays: int) -> float:
        """Return the gap of a subset, from a number of draws that grows with its plays; it may be below 0."""
        draws = _FOR_ONE_PLAY
        while draws < min(self.draws, _PER_PLAY * plays):
            draws *= 4
        draws = min(draws, self.draws)
        if draws not in self._levels:
            self._levels[draws] = SampledValues(self._source, _REGRET, draws, common=False)
        known = self._levels[draws].upto(subset, draws)
        gap = self._sign * (self.optimum - known.mean)
        if gap < -_BETTER * known.error:
            self._notice_better(np.array([subset]))
        return gap

    @property
    def _values(self) -> SampledValues:
        assert isinstance(self._expectation, SampledValues)
        return self._expectation

    @property
    def _sign(self) -> float:
        return 1.0 if self.direction == "maximize" else -1.0

    def _notice_better(self, rows: IntArray) -> None:
        if not len(rows):
            return
        values, best = self._values, np.array([self.best])
        ahead = self._sign * (values.value(rows) - values.value(best))
        doubt = np.hypot(values.errors(rows), values.errors(best))
        for at in np.argsort(-ahead).tolist():
            known = self._better[1] if self._better else 0.0  # only what is clearly better than that is confirmed
            if ahead[at] > known + _BETTER * doubt[at] + self._slack:
                self._confirm_better(tuple(sorted(rows[at].tolist())))

    def _confirm_better(self, subset: Subset) -> None:
        again = SampledValues(self._source, _RECHECK, _CONFIRM * self.draws)
        pair = np.array([subset, self.best])
        (new, old), doubt = again.value(pair), float(np.hypot(*again.errors(pair)))
        ahead = float(self._sign * (new - old))
        if ahead <= _BETTER * doubt + self._slack:
            return
        self._better = subset, ahead
        warnings.warn(
            f"{subset} is better than the best subset {self.best} ({self.best_evidence}) by {ahead:.3g} ± "
            f"{2 * doubt:.1g}: regret is measured from a subset that is too weak. Give best={subset}, or a larger "
            f"effort= than {self.effort:,}",
            ProblemWarning,
            stacklevel=5,
        )

    # The best subset.

    def _find_best(self) -> Subset:
        return self.search.best

    @cached_property
    def search(self) -> SearchResult:
        """How the best subset was searched."""
        if not self._all_fixed:
            warn_of_long_work("the search for the best subset", self, self.effort, "give best=, or a smaller effort=")
        return search(
            self._source,
            self.n_arms,
            self.effort,
            sign=self._sign,
            fixed=self._all_fixed,
            streams=(_SEARCH, _FINAL),
        )

    @property
    def best_evidence(self) -> str:
        """How the best subset was found, and the standard error of its value."""
        if self._given_best is not None:
            return "given"
        error = self._known_best.error
        return f"{self.search}; {f'error of its value {error:.2g}' if error else 'its value is exact'}"

    # The paper's assumptions.

    def assumptions(self) -> tuple[Finding, ...]:
        """Return why the paper's assumptions on arms do not apply."""
        return (
            Finding(SYMMETRIC, False, "the reward depends on which arms are played, not on numbers that they pay"),
            Finding(INCREASING, False, "an arm pays nothing by itself"),
            Finding(DOMINANCE, False, "an arm pays nothing by itself: what it adds depends on the others"),
        )

    def check(self) -> Check:
        """Return which of the paper's assumptions hold; the order of the arms is tried on 100 exchanges of two arms."""
        return Check((*self.assumptions(), check_arm_order(self, pairs=20, contexts=5)))

    def __repr__(self) -> str:
        direction = "" if self.direction == "maximize" else ", direction='minimize'"
        return f"Problem.of({self._source.name}, n_arms={self.n_arms}, k={self.k}{direction})"


class _Meter:
    """The regret of one run: a subset has 64 draws after its first play, up to `draws` after many.

    Every subset has its own random numbers, and its gap may be below 0, so that errors cancel in sums. (`gap` compares
    subsets on the same draws, and is at least 0.) The draws depend on the plays of this run only: it can be repeated.
    """

    def __init__(self, problem: FunctionProblem) -> None:
        self._problem = problem
        self._plays: Counter[Subset] = Counter()

    def add(self, subsets: IntArray, times: NDArray[np.int64]) -> float:
        """Return the regret of `times[i]` more plays of each row."""
        lost = 0.0
        for row, count in zip(subsets.tolist(), times.tolist(), strict=True):
            subset = tuple(sorted(row))
            if count and subset != self._problem.best:
                self._plays[subset] += count
                lost += count * self._problem.gap_after(subset, self._plays[subset])
        return lost


class _FunctionSampler:
    """Calls the function once for each play; of a subset without randomness, once."""

    def __init__(self, problem: FunctionProblem) -> None:
        self._source, (self._low, self._high) = problem._source, problem.reward_range

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """Return the sums of `times[i]` rewards of each row, and of their squares."""
        total, squares = np.empty(len(subsets)), np.empty(len(subsets))
        for at, (row, count) in enumerate(zip(subsets.tolist(), times.tolist(), strict=True)):
            subset = tuple(sorted(row))
            reward, fixed = self._source.reward_and_whether_fixed(subset, rng)
            if fixed:
                self._check(subset, np.array([reward]))
                total[at], squares[at] = count * reward, count * reward * reward
                continue
            total[at], squares[at] = reward, reward * reward
            for part in self._source.parts(count - 1):
                rewards = self._source.draw(subset, part, rng)
                self._check(subset, rewards)
                total[at] += rewards.sum()
                squares[at] += rewards @ rewards
            self._check(subset, np.array([reward]))
        return total, squares

    def _check(self, subset: Subset, rewards: FloatArray) -> None:
        least, most = rewards.min(), rewards.max()
        width = self._high - self._low
        if least < self._low - 1e-9 * width or most > self._high + 1e-9 * width:
            low = least - width / 2 if least < self._low else self._low
            high = most + width / 2 if most > self._high else self._high
            outlier = least if least < self._low else most
            raise BadReward(
                f"{self._source.name}({subset}, rng) returned {outlier:g}, outside of reward_range="
                f"({self._low:g}, {self._high:g}): give a range that contains all rewards, for instance "
                f"reward_range=({low:.3g}, {high:.3g})"
            )


def _range_of(low: float, high: float) -> tuple[float, float]:
    """Return [0, 1] if it contains the rewards seen, else their range and half its width on both sides."""
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    margin = (high - low) / 2 or max(abs(high), 1.0)
    return check_range((low - margin, high + margin))


def _check_arguments(f: RewardOfSubset, subset: Subset, *, batch: bool) -> None:
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):  # some builtins have none
        return
    try:
        signature.bind(subset, None)
    except TypeError:
        first = "rows" if batch else "subset"
        raise BadInput(
            f"f must take two arguments, ({first}, rng), also if it does not use rng; it takes {signature}"
        ) from None
