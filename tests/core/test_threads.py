"""kofn computes with one BLAS thread, whoever else computes, and leaves the number of threads as it was."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  # it loads SciPy's own BLAS
from threadpoolctl import ThreadpoolController, threadpool_limits

import kofn
from kofn.core.threads import ONE_THREAD, OneThread
from kofn.policies.thompson.posterior import Posterior


def threads() -> set[int]:
    """Return the numbers of threads of all libraries of linear algebra."""
    return {each["num_threads"] for each in ThreadpoolController().select(user_api="blas").info()}


@pytest.fixture(autouse=True)
def _three_threads() -> Iterator[None]:
    with threadpool_limits(3, user_api="blas"):
        yield
        assert threads() == {3}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """The number of threads at each update and check of a posterior."""
    found: list[set[int]] = []
    for name in ("learn", "_loaded"):
        original = getattr(Posterior, name)

        def noted(self: Posterior, *given: Any, original: Any = original, **named: Any) -> Any:
            found.append(threads())
            return original(self, *given, **named)

        monkeypatch.setattr(Posterior, name, noted)
    return found


def problem(n_arms: int) -> kofn.Problem:
    return kofn.Problem(kofn.Bernoulli(np.linspace(0.05, 0.95, n_arms)), "mean", 3)


@pytest.mark.parametrize("n_arms", [12, 40])
def test_a_simulation_and_a_policy_alone_have_one_thread(seen: list[set[int]], n_arms: int) -> None:
    policy = kofn.Thompson(n_arms, 3, seed=1)
    kofn.simulate(policy, problem(n_arms), 300, seed=1, progress=lambda *_: seen.append(threads()))
    kofn.restore(kofn.save(policy))
    alone = kofn.Thompson(n_arms, 3, seed=1)
    for _ in range(60):
        alone.tell(alone.ask(), 0.5)
    assert len(seen) > 10
    assert all(each == {1} for each in seen)


def test_choose_learns_in_one_thread_and_scores_with_all(seen: list[set[int]]) -> None:
    scored: list[set[int]] = []

    def score(subset: list[Any]) -> float:
        scored.append(threads())
        return float(sum(subset))

    kofn.choose(12, 3, score, budget=60, seed=1, policy="thompson")
    assert seen
    assert all(each == {1} for each in seen)
    assert all(each == {3} for each in scored)


def test_the_last_thread_that_leaves_removes_the_limit() -> None:
    """Two threads overlap. When the first one leaves, the second still has one BLAS thread."""
    inside, leave = threading.Event(), threading.Event()
    found: list[set[int]] = []

    def second() -> None:
        with ONE_THREAD:
            inside.set()
            leave.wait(10)
            found.append(threads())

    other = threading.Thread(target=second)
    with ONE_THREAD, ONE_THREAD:
        other.start()
        assert inside.wait(10)
    assert threads() == {1}
    leave.set()
    other.join()
    assert found == [{1}]
    assert threads() == {3}


def regret() -> float:
    return kofn.simulate(kofn.Thompson(150, 3, seed=1), problem(150), 2_000, seed=2).regret


def test_the_digits_do_not_depend_on_cores_or_other_threads() -> None:
    stop = threading.Event()

    def in_and_out() -> None:
        while not stop.wait(0.0005):
            with ONE_THREAD:
                pass

    with threadpool_limits(1, user_api="blas"):
        alone = regret()
    others = [threading.Thread(target=in_and_out) for _ in range(3)]
    for each in others:
        each.start()
    try:
        assert regret() == alone
    finally:
        stop.set()
        for each in others:
            each.join()


def test_who_enters_has_one_thread_even_if_a_user_has_set_another_number() -> None:
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with ONE_THREAD:
            inside.set()
            leave.wait(10)

    other = threading.Thread(target=stay)
    other.start()
    assert inside.wait(10)
    with threadpool_limits(2, user_api="blas"), ONE_THREAD:
        assert threads() == {1}
    leave.set()
    other.join()


def test_an_error_removes_the_limit() -> None:
    with pytest.raises(ArithmeticError), ONE_THREAD, ONE_THREAD:
        raise ArithmeticError
    assert threads() == {3}


def test_what_computes_after_its_call_is_refused() -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def coroutine() -> None: ...

    for each in (generator, coroutine):
        with pytest.raises(TypeError, match="computes after its call has returned: use `with` inside it"):
            OneThread()(each)


FORKS = """
import os, threading
from tests.core.test_threads import ONE_THREAD, threads
from threadpoolctl import threadpool_limits


threadpool_limits(3, user_api="blas")
inside, leave = threading.Event(), threading.Event()

def stay():
    with ONE_THREAD:
        inside.set()
        leave.wait(20)

other = threading.Thread(target=stay)
other.start()
inside.wait(20)
pids = []
if not (pid := os.fork()):  # another thread is inside, which does not exist in the child
    with ONE_THREAD:
        inner = threads()
    os._exit(not (inner == {1} and threads() == {3}))
pids.append(pid)
with ONE_THREAD:
    if not (pid := os.fork()):  # this thread is inside, and leaves in the child too
        inner = threads()
        ONE_THREAD.__exit__()
        os._exit(not (inner == {1} and threads() == {3}))
pids.append(pid)
assert threads() == {1}
leave.set()
other.join()
assert threads() == {3}
assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0]
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_child_of_a_fork_keeps_the_limit_of_its_own_thread_only() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
