"""One call of `choose`: its checked arguments, the search, its file, its time, and the calls of the open round."""

from __future__ import annotations

import inspect
import math
import os
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np

from kofn.backends import Progress
from kofn.choosing.calls import Outcome, ScoreCall
from kofn.choosing.choice import Choice, Evaluation, label, listed
from kofn.choosing.repeats import Repeats
from kofn.choosing.search import Search
from kofn.choosing.search_file import Record, Searched
from kofn.constraints import Constraints
from kofn.core import BadInput, BadReward, BadScore, Direction, Seed, check_range, seed_number, whole
from kofn.core.checks import reward_number, shown
from kofn.core.progress import progress_bar
from kofn.core.threads import ONE_THREAD

MOST_BY_DEFAULT, LEAST_BY_DEFAULT, PER_CANDIDATE = 3_000, 100, 20
"""Most evaluations if no budget is given: PER_CANDIDATE for each candidate, from LEAST_BY_DEFAULT to MOST_BY_DEFAULT.
"""

MOST_IN_TIME = 10**6
"""Most evaluations if only a time is given."""

SEARCH_TIME = 0.9
"""Part of the time after which a noisy score gets new scores of the pick."""

POLICY = "thompson"
"""The policy that searches if none is given."""

LARGEST = 1e100
"""Largest size of a score: sums of squares must be finite."""

Candidates = Sequence[Any] | int
OnEvaluation = Callable[[Evaluation], None]


class Session:
    """One call of `choose`. `next_calls` returns the calls of a round, `done` takes their outcomes, in any order."""

    def __init__(
        self,
        candidates: Candidates,
        k: int,
        score: Callable[..., Any],
        *,
        budget: int | None,
        direction: Direction,
        seconds: float | None,
        workers: int,
        file: str | os.PathLike[str] | None,
        seed: Seed,
        policy: str | None,
        constraints: Any,
        reward_range: tuple[float, float] | None,
        repeatable: bool | None,
        progress: bool | Progress,
        on_evaluation: OnEvaluation | None,
    ) -> None:
        if not callable(score):
            raise BadInput(f"score must be a function of a list of candidates, not {shown(score)}")
        if repeatable is not None and not isinstance(repeatable, bool):
            raise BadInput(f"repeatable must be True, False or None, not {repeatable!r}")
        self.candidates = _candidates(candidates)
        n_arms, k = len(self.candidates), _size(k, len(self.candidates))
        self.workers = whole("workers", workers)
        self.budget = None if budget is None else whole("budget", budget)
        self.seconds = _seconds(seconds)
        self.progress, self.on_evaluation = progress, on_evaluation
        most = self.budget or _default_budget(n_arms, self.seconds)
        number = None if seed is None else seed_number(seed)
        labels = [label(each) for each in self.candidates]
        rules = _numbered(constraints, labels, k)
        plain = None if rules is None else rules.to_list()
        searched = Searched(labels, k, direction, number, policy, plain)
        self.record = None if file is None else Record(Path(file), searched, POLICY)
        searched = self.record.searched if self.record else searched.complete(POLICY)
        self.recorded = self.record.done if self.record else {}
        self.search = Search(
            n_arms,
            k,
            direction,
            str(searched.policy),
            int(searched.seed or 0),
            max([most, *self.recorded]),
            budget is None and seconds is None,
            None if reward_range is None else check_range(reward_range),
            Repeats(repeatable),
            rules,
        )
        self.numbers: list[int] = []  # of the evaluations of this round
        self.ended: dict[int, Evaluation] = {}  # those that have ended
        self.failure: BadScore | None = None
        self.start = math.inf
        self._open = ExitStack()

    def __enter__(self) -> Self:
        if self.record:
            self._open.enter_context(self.record)
        if self.progress is True:
            self.progress = self._open.enter_context(progress_bar("kofn.choose"))
        self.start = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @ONE_THREAD
    def next_calls(self) -> list[ScoreCall]:
        """Include the round that has ended, and return the calls of the next; those in the file are not repeated."""
        while True:
            self.search.include([self.ended[number] for number in self.numbers if number in self.ended])
            self.numbers, self.ended = [], {}
            if self.failure:
                self.failure.history = tuple(self.search.history)
                raise self.failure
            if self._late():
                return []
            if self._late(SEARCH_TIME):
                self.search.end_early()
            subsets = self.search.next_round()
            first = len(self.search.history) + 1
            self.numbers = list(range(first, first + len(subsets)))
            self.ended = {number: self.recorded[number] for number in self.numbers if number in self.recorded}
            calls = [
                ScoreCall(number, arms, [self.candidates[arm] for arm in arms])
                for number, arms in zip(self.numbers, subsets, strict=True)
                if number not in self.ended
            ]
            if calls or not subsets:
                return calls

    def done(self, call: ScoreCall, outcome: Outcome) -> bool:
        """Record a call that has ended; return whether further calls may start."""
        try:
            value = self._value(call, outcome)
        except BadScore as failure:
            self.failure = self.failure or failure
            return False
        evaluation = Evaluation(call.number, call.arms, value, outcome.seconds)
        if self.record:
            self.record.append(evaluation)
        self.ended[call.number] = evaluation
        if callable(self.progress):
            self.progress(len(self.search.history) + len(self.ended), self.search.budget)
        if self.on_evaluation:
            self.on_evaluation(evaluation)
        return self.failure is None and not self._late()

    @ONE_THREAD
    def choice(self) -> Choice:
        """Return the choice by what is known."""
        found, search = self.search.estimate(), self.search
        return Choice(
            subset=tuple(self.candidates[arm] for arm in found.arms),
            arms=found.arms,
            value=found.value,
            low=found.low,
            high=found.high,
            expected_loss=found.expected_loss,
            reason=self._reason(),
            policy=search.policy_name,
            repeatable=search.repeats.known,
            direction=search.direction,
            seed=search.seed,
            history=tuple(search.history),
        )

    def _late(self, part: float = 1.0) -> bool:
        return self.seconds is not None and time.monotonic() >= self.start + part * self.seconds

    def _reason(self) -> str:
        if self.search.stopped:
            return self.search.stopped
        if self.budget is not None and len(self.search.history) >= self.budget:
            return f"the budget of {self.budget:,} evaluations is spent"
        if self.seconds is not None:
            return f"the time of {self.seconds:g} seconds is over"
        return f"the default budget of {self.search.budget:,} evaluations is spent"

    def _value(self, call: ScoreCall, outcome: Outcome) -> float:
        """Return the score as a number, or raise BadScore."""
        error, range_given = outcome.error, self.search.reward_range
        if error is not None:
            problem = f"raised {type(error).__name__}: {error}{_place(error)}"
        elif inspect.isawaitable(outcome.value):
            if inspect.iscoroutine(outcome.value):
                outcome.value.close()  # without this, Python warns that it was never awaited
            problem = "returned an awaitable: use `await kofn.choose_async(...)` and `async def score`"
        else:
            value = _number(outcome.value)
            if not abs(value) <= LARGEST:
                problem = f"returned {shown(outcome.value)}; a score must be one finite number"
            elif range_given and not range_given[0] <= value <= range_given[1]:
                problem = f"returned {value:g}, outside of reward_range={range_given}: give a wider one, or none"
            else:
                return value
        failure = BadScore(f"score({listed(call.subset)}) {problem}", call.arms, call.subset)
        failure.__cause__ = error
        raise failure


def _number(value: Any) -> float:
    """Return the number, or nan for anything else."""
    try:
        return reward_number(value)
    except BadReward:
        return math.nan


def _place(error: Exception) -> str:
    """Return the file and line where an exception was raised, if they are known."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _candidates(candidates: Candidates) -> list[Any]:
    if isinstance(candidates, Sequence | np.ndarray) and not isinstance(candidates, str | bytes):
        return list(candidates)
    try:
        return list(range(whole("candidates", candidates)))  # type: ignore[arg-type]
    except BadInput:
        raise BadInput(
            f"candidates must be a list of things to choose from, or their number, not {shown(candidates)}"
        ) from None


def _numbered(constraints: Any, labels: list[str], k: int) -> Constraints | None:
    """Return the rules with positions of candidates in place of their texts, checked; None if there are none."""
    if constraints is None:
        return None

    def number_of(arm: int | str) -> int:
        if isinstance(arm, int):
            return arm
        if labels.count(arm) != 1:
            if arm in labels:
                raise BadInput(f"a rule names {arm!r}, but two candidates have that text: use the position of one")
            raise BadInput(
                f"a rule names {arm!r}, but no candidate has that text. The candidates are {listed(labels)}; a rule "
                "takes their text or their position"
            )
        return labels.index(arm)

    rules = Constraints(*(rule.renamed(number_of) for rule in Constraints.of(constraints)))
    rules.allowed(len(labels), k, labels)
    return rules if len(rules) else None


def _default_budget(n_candidates: int, seconds: float | None) -> int:
    if seconds is not None:
        return MOST_IN_TIME
    return min(max(PER_CANDIDATE * n_candidates, LEAST_BY_DEFAULT), MOST_BY_DEFAULT)


def _size(k: int, n_candidates: int) -> int:
    k = whole("k", k)
    if k >= n_candidates:
        raise BadInput(f"k must be less than the number of candidates; got k={k} and {n_candidates} candidates")
    return k


def _seconds(seconds: float | None) -> float | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise BadInput(f"seconds must be a number above 0, not {seconds!r}")
    return float(seconds)
