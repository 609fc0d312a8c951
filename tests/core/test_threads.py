"""Policies compute in one thread of BLAS, and leave the number of threads as it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  # it loads SciPy's own BLAS
from threadpoolctl import ThreadpoolController, threadpool_limits

import kofn
from kofn.core.threads import OneThread
from kofn.policies.thompson.posterior import Posterior


def threads() -> set[int]:
    """Return the numbers of threads of all libraries of linear algebra."""
    return {each["num_threads"] for each in ThreadpoolController().select(user_api="blas").info()}


@pytest.fixture
def _three_threads() -> Iterator[None]:
    with threadpool_limits(3, user_api="blas"):
        yield


@pytest.mark.usefixtures("_three_threads")
@pytest.mark.parametrize(("n_arms", "number"), [(12, 3), (40, 1)])
def test_a_policy_with_many_arms_learns_in_one_thread(
    monkeypatch: pytest.MonkeyPatch, n_arms: int, number: int
) -> None:
    problem = kofn.Problem(kofn.Bernoulli(np.linspace(0.1, 0.9, n_arms)), "mean", 3)
    seen: list[set[int]] = []
    learn = Posterior.learn

    def noted(self: Posterior, *given: Any, **named: Any) -> None:
        seen.append(threads())
        learn(self, *given, **named)

    monkeypatch.setattr(Posterior, "learn", noted)
    kofn.simulate(kofn.Thompson(n_arms, 3, seed=1), problem, 300)
    assert seen
    assert all(each == {number} for each in seen)
    assert threads() == {3}


@pytest.mark.usefixtures("_three_threads")
def test_a_policy_is_restored_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its covariance is checked by a factorisation."""
    problem = kofn.Problem(kofn.Bernoulli(np.linspace(0.1, 0.9, 40)), "mean", 3)
    policy = kofn.Thompson(40, 3, seed=1)
    kofn.simulate(policy, problem, 300)
    record, seen, loaded = kofn.save(policy), list[set[int]](), Posterior._loaded

    def noted(self: Posterior, *given: Any) -> None:
        seen.append(threads())
        loaded(self, *given)

    monkeypatch.setattr(Posterior, "_loaded", noted)
    kofn.restore(record)
    assert seen == [{1}]
    assert threads() == {3}


@pytest.mark.usefixtures("_three_threads")
def test_threads_that_compute_at_the_same_time_restore_the_number_once() -> None:
    one_thread, inside, leave = OneThread(), threading.Event(), threading.Event()

    def stay() -> None:
        with one_thread:
            inside.set()
            leave.wait(10)

    other = threading.Thread(target=stay)
    with one_thread:
        other.start()
        assert inside.wait(10)
        with one_thread:
            assert threads() == {1}
        assert threads() == {1}
    assert threads() == {3}
    leave.set()
    other.join()
    assert threads() == {3}
    with one_thread:
        assert threads() == {1}
    assert threads() == {3}


@pytest.mark.usefixtures("_three_threads")
def test_an_error_restores_the_threads() -> None:
    with pytest.raises(ArithmeticError), OneThread():
        raise ArithmeticError
    assert threads() == {3}


def test_the_digits_do_not_depend_on_the_number_of_threads() -> None:
    problem = kofn.Problem(kofn.Bernoulli(np.linspace(0.05, 0.95, 150)), "mean", 5)

    def regret(number: int) -> float:
        with threadpool_limits(number, user_api="blas"):
            return kofn.simulate(kofn.Thompson(150, 5, seed=1), problem, 3000, seed=2).regret

    assert regret(1) == regret(2)
