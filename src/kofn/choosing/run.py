"""`choose` and `choose_async`: check the arguments, run the rounds of a search, return the choice."""

from __future__ import annotations

import inspect
import math
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kofn.backends import Backend, Progress
from kofn.choosing.calls import Call, Outcome, call_round, call_round_async, check_choose_backend, open_executor
from kofn.choosing.choice import Choice, Evaluation, label, listed
from kofn.choosing.record import Record, Searched
from kofn.choosing.repeats import Repeats
from kofn.choosing.rule import policy_for
from kofn.choosing.search import Search
from kofn.core import BadInput, BadReward, BadScore, Direction, Seed, check_range, seed_number, whole
from kofn.core.checks import reward_number, shown

MOST_BY_DEFAULT, LEAST_BY_DEFAULT, PER_CANDIDATE = 3_000, 100, 20
"""Most evaluations if no budget is given: PER_CANDIDATE for each candidate, from LEAST_BY_DEFAULT to MOST_BY_DEFAULT.
"""

Candidates = Sequence[Any] | int
OnEvaluation = Callable[[Evaluation], None]


def choose(
    candidates: Candidates,
    k: int,
    score: Callable[[list[Any]], float],
    *,
    budget: int | None = None,
    direction: Direction = "maximize",
    seconds: float | None = None,
    workers: int = 1,
    backend: Backend | Literal["threads", "processes"] = "threads",
    file: str | os.PathLike[str] | None = None,
    seed: Seed = None,
    policy: str | None = None,
    reward_range: tuple[float, float] | None = None,
    repeatable: bool | None = None,
    progress: bool | Progress = False,
    on_evaluation: OnEvaluation | None = None,
) -> Choice:
    """Choose the k candidates with the best score, by calling `score(subset)` at most `budget` times.

    `score` gets a list of k candidates, in their order, and returns a number, noisy or not.

    >>> prices = {"pen": 2, "book": 15, "lamp": 30, "mug": 8, "desk": 120}
    >>> choice = choose(list(prices), 2, lambda subset: sum(prices[each] for each in subset), seed=1)
    >>> choice.subset, choice.value
    (('lamp', 'desk'), 150.0)
    """
    if inspect.iscoroutinefunction(score):
        raise BadInput("score is an async function: use `await kofn.choose_async(...)`")
    check_choose_backend(backend)
    session = _Session(
        candidates,
        k,
        score,
        budget=budget,
        direction=direction,
        seconds=seconds,
        workers=workers,
        file=file,
        seed=seed,
        policy=policy,
        reward_range=reward_range,
        repeatable=repeatable,
        progress=progress,
        on_evaluation=on_evaluation,
    )
    with session, open_executor(backend, session.workers) as submit:
        while calls := session.next_calls():
            call_round(submit, score, calls, session.workers, session.done)
    return session.choice()


async def choose_async(
    candidates: Candidates,
    k: int,
    score: Callable[[list[Any]], Awaitable[float]],
    *,
    budget: int | None = None,
    direction: Direction = "maximize",
    seconds: float | None = None,
    workers: int = 1,
    file: str | os.PathLike[str] | None = None,
    seed: Seed = None,
    policy: str | None = None,
    reward_range: tuple[float, float] | None = None,
    repeatable: bool | None = None,
    progress: bool | Progress = False,
    on_evaluation: OnEvaluation | None = None,
) -> Choice:
    """Choose as `choose` does, with an `async def score`; up to `workers` calls are awaited at the same time."""
    session = _Session(
        candidates,
        k,
        score,
        budget=budget,
        direction=direction,
        seconds=seconds,
        workers=workers,
        file=file,
        seed=seed,
        policy=policy,
        reward_range=reward_range,
        repeatable=repeatable,
        progress=progress,
        on_evaluation=on_evaluation,
    )
    with session:
        while calls := session.next_calls():
            await call_round_async(score, calls, session.workers, session.done)
    return session.choice()


class _Session:
    """One call of `choose`: the search, its file, its time limit, and the calls that have ended in this round."""

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
        reward_range: tuple[float, float] | None,
        repeatable: bool | None,
        progress: bool | Progress,
        on_evaluation: OnEvaluation | None,
    ) -> None:
        self.candidates = _candidates(candidates)
        n_arms, self.k = len(self.candidates), _size(k, len(self.candidates))
        if not callable(score):
            raise BadInput(f"score must be a function of a list of candidates, not {shown(score)}")
        if repeatable is not None and not isinstance(repeatable, bool):
            raise BadInput(f"repeatable must be True, False or None, not {repeatable!r}")
        self.workers = whole("workers", workers)
        self.budget = None if budget is None else whole("budget", budget)
        self.seconds = _seconds(seconds)
        self.on_evaluation = on_evaluation
        del progress
        searched = Searched(
            [label(each) for each in self.candidates],
            self.k,
            direction,
            None if seed is None else seed_number(seed),
            policy,
        )
        self.record = Record(Path(file), searched) if file is not None else None
        there = self.record.searched if self.record else searched
        most = self.budget or min(max(PER_CANDIDATE * n_arms, LEAST_BY_DEFAULT), MOST_BY_DEFAULT)
        rule = policy_for(most, n_arms)
        self.policy_reason = "given as policy=" if policy else rule.reason
        searched = searched._replace(
            seed=seed_number(None) if there.seed is None else there.seed, policy=there.policy or rule.policy
        )
        if self.record:
            self.record.searched = searched
        self.recorded = dict(self.record.done) if self.record else {}
        self.search = Search(
            n_arms,
            self.k,
            direction,
            searched.policy or rule.policy,
            searched.seed or 0,
            max(most, *self.recorded, 1),
            None if reward_range is None else check_range(reward_range),
            Repeats(repeatable),
        )
        self.ended: dict[int, Evaluation] = {}  # of this round
        self.places: list[int] = []  # the numbers of this round
        self.failure: BadScore | None = None
        self.deadline = math.inf

    def __enter__(self) -> _Session:
        if self.record:
            self.record.open()
        self.deadline = time.monotonic() + (self.seconds or math.inf)
        return self

    def __exit__(self, *_: object) -> None:
        if self.record:
            self.record.close()

    def next_calls(self) -> list[Call]:
        """Include the round that has ended, and return the calls of the next; those in the file are not repeated."""
        while True:
            self.search.include([self.ended[number] for number in self.places if number in self.ended])
            self.places, self.ended = [], {}
            if self.failure:
                self.failure.history = tuple(self.search.history)
                raise self.failure from self.failure.__cause__
            if self._late():
                return []
            subsets = self.search.next_round()
            if not subsets:
                return []
            first = len(self.search.history) + 1
            self.places = list(range(first, first + len(subsets)))
            self.ended = {number: self.recorded[number] for number in self.places if number in self.recorded}
            calls = [
                Call(number, arms, [self.candidates[arm] for arm in arms])
                for number, arms in zip(self.places, subsets, strict=True)
                if number not in self.ended
            ]
            if calls:
                return calls

    def done(self, call: Call, outcome: Outcome) -> bool:
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
        if self.on_evaluation:
            self.on_evaluation(evaluation)
        return self.failure is None and not self._late()

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
            policy_reason=self.policy_reason,
            repeatable=search.repeats.known,
            direction=search.direction,
            seed=search.seed,
            history=tuple(search.history),
        )

    def _late(self) -> bool:
        return time.monotonic() >= self.deadline

    def _reason(self) -> str:
        if self.search.exhausted:
            return self.search.exhausted
        if self._late() and len(self.search.history) < self.search.budget:
            return f"the time of {self.seconds:g} seconds is over"
        if self.budget is None:
            return f"the default budget of {self.search.budget:,} evaluations is spent"
        return f"the budget of {self.budget:,} evaluations is spent"

    def _value(self, call: Call, outcome: Outcome) -> float:
        what = f"score({listed(call.subset)})"
        if outcome.error is not None:
            failure = BadScore(f"{what} raised {type(outcome.error).__name__}: {outcome.error}", call.arms, call.subset)
            failure.__cause__ = outcome.error
            raise failure
        if inspect.isawaitable(outcome.value):
            raise BadScore(f"{what} returned an awaitable: use `await kofn.choose_async(...)`", call.arms, call.subset)
        try:
            value = reward_number(outcome.value)
        except BadReward:
            value = math.nan
        if not math.isfinite(value):
            raise BadScore(
                f"{what} returned {shown(outcome.value)}; a score must be one finite number", call.arms, call.subset
            )
        return value


def _candidates(candidates: Candidates) -> list[Any]:
    if isinstance(candidates, Sequence | np.ndarray) and not isinstance(candidates, str | bytes):
        return list(candidates)
    try:
        return list(range(whole("candidates", candidates)))  # type: ignore[arg-type]
    except BadInput:
        raise BadInput(
            f"candidates must be a list of things to choose from, or their number, not {shown(candidates)}"
        ) from None


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
