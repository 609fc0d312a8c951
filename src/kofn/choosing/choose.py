"""`choose` and `choose_async`: check the arguments, run the rounds of a search, return the choice."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from kofn.backends import Backend, Progress
from kofn.choosing.calls import call_round, call_round_async, check_choose_backend, open_executor
from kofn.choosing.choice import Choice
from kofn.choosing.session import Candidates, OnEvaluation, Session
from kofn.core import BadInput, Direction, Seed


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
    constraints: Any = None,
    reward_range: tuple[float, float] | None = None,
    repeatable: bool | None = None,
    progress: bool | Progress = False,
    on_evaluation: OnEvaluation | None = None,
) -> Choice:
    """Choose the k candidates with the best score, by calling `score(subset)` at most `budget` times.

    >>> prices = {"pen": 2, "book": 15, "lamp": 30, "mug": 8, "sofa": 120}
    >>> choice = choose(list(prices), 2, lambda subset: sum(prices[each] for each in subset), seed=1)
    >>> choice.subset, choice.value
    (('lamp', 'sofa'), 150.0)

    - `candidates`: a list of anything, or a number N for 0 to N - 1.
    - `score`: a function that gets a list of k candidates, in the order of `candidates`, and returns a number, noisy
      or not. An exception stops the search with BadScore, which has the subset and the history.
    - `budget`: most calls of the score, including those in the file. Without it and without `seconds`, the search stops
      when the expected loss is at most 2 % of the gain over an average subset, when no swap of one candidate improves a
      repeatable score, or after 20 calls for each candidate (at least 100 and at most 3,000).
    - `seconds`: stop starting calls after this time; calls in flight are completed.
    - `workers`: calls at the same time, in `threads`, in `processes`, or with `backend="dask"` (or `dask:ADDRESS`, or a
      `distributed.Client`). For the same seed, the result does not depend on it.
    - `file`: keep each evaluation in this file, as JSON lines. The same call with the file resumes the search.
    - `policy`: the name of a policy that learns from plays of any subset; by default, the best one for the budget.
    - `constraints`: rules that each subset obeys (`kofn.Constraints`); an arm of a rule is the position of a candidate
      or its text.
    - `reward_range`: the range of scores, if it is known; otherwise it is learned.
    - `repeatable`: whether the same subset always has the same score; by default, this is found out.
    - `progress`: True for a progress bar at a terminal, or a function of the calls done and the budget.
    - `on_evaluation`: a function that is called with each Evaluation when its call has ended.
    """
    if inspect.iscoroutinefunction(score):
        raise BadInput("score is an async function: use `await kofn.choose_async(...)`")
    check_choose_backend(backend)
    session = Session(
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
        constraints=constraints,
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
    constraints: Any = None,
    reward_range: tuple[float, float] | None = None,
    repeatable: bool | None = None,
    progress: bool | Progress = False,
    on_evaluation: OnEvaluation | None = None,
) -> Choice:
    """Choose as `choose` does, with an `async def score`: up to `workers` calls are awaited at the same time."""
    session = Session(
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
        constraints=constraints,
        reward_range=reward_range,
        repeatable=repeatable,
        progress=progress,
        on_evaluation=on_evaluation,
    )
    with session:
        while calls := session.next_calls():
            await call_round_async(score, calls, session.workers, session.done)
    return session.choice()
