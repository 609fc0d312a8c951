"""Oracle: what it is told is the best, from the first play to the last."""

from typing import Any

import numpy as np
import pytest

import kofn
from kofn import BadInput, BadRecord, Bernoulli, Problem, simulate
from kofn.lab.rivals import Oracle
from tests.cases import for_each


def test_it_loses_nothing() -> None:
    problem = Problem(Bernoulli(np.linspace(0, 1, 12)), "mean", 3)
    run = simulate(Oracle(12, 3, best=problem.best), problem, 10**6, seed=1)
    assert (run.regret, run.optimal, run.exploration, run.plan_rows) == (0.0, True, 0, 1)
    realised = simulate(Oracle(12, 3, best=problem.best), problem, 10**6, seed=1, realised=True).realised
    assert realised
    assert abs(realised.final) < 5 * np.sqrt(2 * 10**6 * 0.25 / 3)  # noise only


@for_each("best", [None, (1,), (1, 6)])
def test_it_must_be_told(best: Any) -> None:
    with pytest.raises(BadInput, match=r"best=problem\.best|a subset|an arm must be a number"):
        Oracle(6, 2, best=best)


def test_the_state_of_another_oracle_is_refused() -> None:
    policy = Oracle(6, 2, best=(0, 1))
    with pytest.raises(BadRecord, match=r"best must be \(0, 1\), as in params; got \(0, 2\)"):
        policy.load(Oracle(6, 2, best=(0, 2)).state())
    assert kofn.restore(kofn.save(policy)).best() == (0, 1)
