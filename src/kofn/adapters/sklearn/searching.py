"""What both selectors share: one call of `choose` that raises the errors of the estimators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from joblib import effective_n_jobs
from sklearn.utils import check_random_state

from kofn.choosing import Choice, choose
from kofn.core import BadScore


def seed_of(random_state: Any) -> int:
    """Return a number drawn from a `random_state`: the same one for the same integer."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def search(
    n_candidates: int,
    k: int,
    score: Callable[[list[int]], float],
    *,
    budget: int | None,
    seed: int,
    n_jobs: int | None = 1,
    repeatable: bool = False,
) -> Choice:
    """Choose k of the numbers below n_candidates; an error of the score is raised as it was."""
    workers = effective_n_jobs(n_jobs)
    try:
        return choose(n_candidates, k, score, budget=budget, workers=workers, seed=seed, repeatable=repeatable)
    except BadScore as failure:
        if failure.__cause__ is None:
            raise
        raise failure.__cause__ from None


def finite(value: Any, scoring: Any, subset: list[Any]) -> float:
    """Return a score as a float; refuse NaN and infinity."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(
            f"scoring={scoring!r} returned {number} for {subset}; a finite number is needed. Use fewer folds in cv, so "
            f"that every fold has all classes, or another scoring"
        )
    return number
