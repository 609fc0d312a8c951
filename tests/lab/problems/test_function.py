"""Problems from one function: draws, values, the searched best, and what newcomers get wrong.

Statistical bounds are 5 standard errors: a false-alarm probability below 1e-6 per comparison, and the seeds are fixed.
"""

from __future__ import annotations

import itertools
import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import kofn
from kofn import BadInput, BadReward, Bernoulli, Problem, ProblemWarning
from kofn.lab.problems.function import FunctionProblem
from tests.cases import for_each
from tests.cli.tools import invoke

P = np.array([0.15, 0.5, 0.3, 0.8, 0.05, 0.6, 0.35, 0.1])
PAIRS = np.random.default_rng(3).random((14, 14))
SUBSETS = [(0, 1, 2), (1, 3, 5), (0, 4, 7)]


def share(subset: tuple[int, ...], rng: np.random.Generator) -> float:
    """The mean of Bernoulli arms."""
    return float((rng.random(len(subset)) < P[list(subset)]).mean())


def shares(rows: Any, rng: np.random.Generator) -> Any:
    return (rng.random(rows.shape) < P[rows]).mean(axis=1)


def fixed(subset: tuple[int, ...], rng: np.random.Generator) -> float:
    """A sum over pairs, without random numbers: no arm is good by itself."""
    del rng
    return float(PAIRS[np.ix_(subset, subset)].sum())


EXACT = Problem(Bernoulli(P), "mean", k=3)


@pytest.fixture(scope="module")
def noisy() -> FunctionProblem:
    return Problem.of(share, n_arms=8, k=3, effort=60_000)


# Values, plays and regret are those of the same problem made of arms.


@pytest.mark.parametrize("batch", [False, True])
def test_values_are_right_to_within_their_error(batch: bool) -> None:
    problem = Problem.of(shares if batch else share, 8, 3, batch=batch)
    errors = problem._values.errors(np.array(SUBSETS))
    assert (np.abs(problem.value(SUBSETS) - EXACT.value(SUBSETS)) < 5 * errors).all()
    deviation = np.sqrt((P * (1 - P))[np.array(SUBSETS)].sum(axis=1)) / 3
    np.testing.assert_allclose(errors, deviation / (16_384 if batch else 1_024) ** 0.5, rtol=0.15)
    assert errors.max() <= problem.value_error < 1.5 * errors.max()
    assert problem.value([(2, 1, 0)]) == problem.value([(0, 1, 2)])  # a subset has no order


@pytest.mark.parametrize("batch", [False, True])
def test_plays_are_calls(batch: bool) -> None:
    problem = Problem.of(shares if batch else share, 8, 3, batch=batch)
    tally = problem.play(SUBSETS, [4_000, 1, 0], rng=1)
    error = 0.5 / 4_000**0.5
    assert abs(tally.total[0] / 4_000 - EXACT.value(SUBSETS[:1])[0]) < 5 * error
    assert tally.squares[0] / 4_000 == pytest.approx(
        EXACT.play(SUBSETS[:1], [10**8], 2).squares[0] / 1e8, abs=5 * error
    )
    assert tally.total[1] in (0, 1 / 3, 2 / 3, 1)
    assert tally.squares[1] == pytest.approx(tally.total[1] ** 2)
    assert tally.total[2] == 0


@pytest.mark.slow
def test_regret_is_that_of_the_exact_problem(noisy: FunctionProblem) -> None:
    """Each subset has an error of at most 0.29 / 8; the optimum one of 0.29 / 256 in every play."""
    policy = kofn.Uniform(8, 3, seed=1)
    run = kofn.simulate(policy, noisy, 400, seed=1)
    exact = kofn.simulate(kofn.Uniform(8, 3, seed=1), EXACT, 400, seed=1)
    bound = 5 * (0.29 / 8 * (400 * 8) ** 0.5 + 400 * 0.29 / 256)  # a subset is played about 7 times
    assert abs(run.regret - exact.regret) < bound < exact.regret / 3
    assert noisy.regret_meter()(np.array([noisy.best]), np.array([10**9])) == 0.0


def test_values_do_not_depend_on_what_was_asked_before() -> None:
    one, other = (Problem.of(share, 8, 3, draws=64, effort=3_000) for _ in "ab")
    other.play([(1, 2, 3)], [7], rng=5)
    other.regret_meter()(np.array([(0, 1, 2)]), np.array([1]))
    other.value([(4, 5, 6)])
    assert one.value(SUBSETS).tolist() == other.value(SUBSETS).tolist()


def test_it_is_simulated_compared_and_repeated() -> None:
    problem = Problem.of(lambda subset, rng: rng.random() < 0.1 * len({*subset} & {1, 4}), 6, 2, effort=20_000)
    found = [
        kofn.compare(["thompson", "uniform"], problem, horizon=150, runs=2, workers=1, skip=True).rows for _ in "ab"
    ]
    assert found[0][0]["regret"] == found[1][0]["regret"]
    assert found[0][0]["policy"] == "thompson"
    assert repr(problem) == "Problem.of(<lambda>, n_arms=6, k=2)"
    assert problem.offers == {"best"}


def test_a_lambda_travels_to_workers(noisy: FunctionProblem) -> None:
    there = cloudpickle.loads(cloudpickle.dumps(Problem.of(lambda s, rng: share(s, rng), 8, 3)))
    assert there.play(SUBSETS, [5, 5, 5], 1).total.tolist() == noisy.play(SUBSETS, [5, 5, 5], 1).total.tolist()


# Functions without random numbers.


def test_a_function_without_random_numbers_is_called_once_per_subset() -> None:
    calls: Counter[tuple[int, ...]] = Counter()

    def counted(subset: tuple[int, ...], rng: np.random.Generator) -> float:
        calls[subset] += 1
        return fixed(subset, rng)

    problem = Problem.of(counted, 14, 3)
    calls.clear()
    assert problem.value([(0, 1, 2), (0, 1, 2)]).tolist() == [fixed((0, 1, 2), np.random.default_rng())] * 2
    assert problem.value([(0, 1, 2)])[0] == fixed((0, 1, 2), np.random.default_rng())
    assert calls == {(0, 1, 2): 1}
    assert problem.play([(1, 2, 3)], [10**12], 1).total[0] == pytest.approx(10**12 * fixed((1, 2, 3), problem))  # type: ignore[arg-type]
    assert calls[1, 2, 3] == 1
    assert problem.value_error == 0.0


def test_some_subsets_may_be_random_and_others_not() -> None:
    problem = Problem.of(lambda s, rng: rng.random() if 0 in s else 0.75, 6, 2)
    errors = problem._values.errors(np.array([(0, 1), (1, 2)]))
    assert errors[0] > 0 == errors[1]
    assert problem.play([(1, 2)], [8], 1).total[0] == 6.0


def test_a_generator_that_only_spawns_is_used() -> None:
    problem = Problem.of(lambda s, rng: rng.spawn(1)[0].random(), 6, 2)
    assert problem._values.errors(np.array([(0, 1)]))[0] > 0


# The best subset.


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_the_best_of_few_exact_subsets_is_the_best(direction: Any) -> None:
    problem = Problem.of(fixed, 14, 3, direction=direction)
    every = list(itertools.combinations(range(14), 3))
    pick = max if direction == "maximize" else min
    assert problem.best == pick(every, key=lambda s: fixed(s, np.random.default_rng()))
    assert problem.best_evidence == "all 364 subsets tried: 364 draws; its value is exact"
    assert problem.gap(every).min() == 0


def test_a_local_search_finds_the_best_of_many() -> None:
    """2,002 subsets, with a limit of 1,500 draws: not all can be tried."""
    problem = Problem.of(fixed, 14, 5, effort=1_500)
    every = itertools.combinations(range(14), 5)
    assert problem.best == max(every, key=lambda s: fixed(s, np.random.default_rng()))
    assert problem.search.starts == 6
    assert problem.search.subsets < 1_000
    assert problem.search.draws <= 1_700


def test_a_noisy_search_finds_a_subset_that_is_as_good_as_its_draws_can_tell() -> None:
    """3 arms of 40 at p = 0.7 with the others at 0.3: the wrong arm costs 0.13, the last race has an error of 0.01."""
    p = np.full(40, 0.3)
    p[[7, 21, 33]] = 0.7
    problem = Problem.of(
        lambda rows, rng: (rng.random(rows.shape) < p[rows]).mean(axis=1), 40, 3, batch=True, effort=400_000
    )
    assert problem.best == (7, 21, 33)
    assert problem.best_evidence.startswith("searched: 6 starts, ")
    assert 300_000 < problem.search.draws < 450_000
    assert 0.0001 < problem._known_best.error < 0.0005
    assert f"{problem._known_best.error:.2g}" in problem.best_evidence


def test_a_given_best_is_not_searched() -> None:
    problem = Problem.of(share, 8, 3, best=(5, 3, 1))
    assert (problem.best, problem.best_evidence) == ((1, 3, 5), "given")
    assert Problem(Bernoulli(P), "mean", 3).best_evidence == "computed"


def test_a_better_subset_is_reported_once_and_not_silently_worth_nothing() -> None:
    problem = Problem.of(share, 8, 3, best=(0, 4, 7), draws=128)
    with pytest.warns(ProblemWarning, match=r"\(1, 3, 5\) is better than the best subset \(0, 4, 7\) \(given\) by 0.5"):
        assert problem.gap([(1, 3, 5)]).tolist() == [0.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem.gap([(1, 3, 5), (0, 1, 2)])
    again = Problem.of(share, 8, 3, best=(0, 4, 7), draws=128)
    with pytest.warns(ProblemWarning, match="is better than"):
        assert again.regret_meter()(np.array([(1, 3, 5)]), np.array([100])) == pytest.approx(-53, abs=13)


def test_a_subset_that_is_as_good_is_not_reported(noisy: FunctionProblem) -> None:
    equal = Problem.of(lambda s, rng: rng.random() < 0.5, 8, 3, best=(0, 1, 2), draws=64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        noisy.gap(np.array(list(itertools.combinations(range(8), 3))))
        equal.gap(np.array(list(itertools.combinations(range(8), 3))))


def test_a_wrong_best_of_exact_rewards_is_an_error() -> None:
    with pytest.raises(BadInput, match=r"best=\(0, 1, 2\) was given, but .* is better by"):
        Problem.of(fixed, 14, 3, best=(0, 1, 2)).gap(list(itertools.combinations(range(14), 3)))


# Ranges.


def test_the_range_is_that_of_the_rewards() -> None:
    assert Problem.of(share, 8, 3).reward_range == (0.0, 1.0)
    percent = Problem.of(lambda s, rng: 100.0 * share(s, rng), 8, 3)
    assert percent.reward_range == (-50.0, 150.0)  # from 0 to 100, and half the width on both sides
    assert Problem.of(lambda s, rng: 7, 8, 3).reward_range == (0.0, 14.0)
    assert Problem.of(share, 8, 3, reward_range=(-1, 2)).reward_range == (-1.0, 2.0)


def test_a_reward_outside_the_range_is_an_error_that_names_a_wider_one() -> None:
    problem = Problem.of(lambda s, rng: 100.0 * share(s, rng), 8, 3, reward_range=(0, 50))
    with pytest.raises(
        BadReward, match=r"returned .*, outside of reward_range=\(0, 50\): give .* reward_range=\(0, \d+"
    ):
        problem.play([(1, 3, 5)], [100], 1)


# What newcomers get wrong.


async def awaited(subset: Any, rng: Any) -> float:
    return 1.0


@for_each(
    "f, message",
    [
        (
            lambda s, rng: None,
            r"<lambda>\(\(0, 1\), rng\) must return one finite number; it returned None: does it end",
        ),
        (lambda s, rng: rng.random(2), r"it returned ndarray of shape \(2,\): reduce it to one number"),
        (lambda s, rng: float("nan"), "it returned nan"),
        (lambda s, rng: {}[s], r"<lambda>\(\(0, 1\), rng\) raised KeyError: \(0, 1\)"),
        (lambda s: 1, r"f must take two arguments, \(subset, rng\), also if it does not use rng; it takes \(s\)"),
        (awaited, "it is an async function"),
        (0.5, r"f must be a function of \(subset, rng\) that returns a reward, not 0.5"),
    ],
)
def test_a_function_that_returns_no_reward(f: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Problem.of(f, 6, 2)


@for_each(
    "f, message",
    [
        (lambda rows, rng: 1.0, r"must return one number per row; for 1 rows it returned float64 of shape \(\)"),
        (lambda rows, rng: rows, r"it returned int64 of shape \(1, 2\)"),
        (lambda rows, rng: np.full(len(rows), np.inf), r"finite; it returned inf for \(0, 1\)"),
        (lambda rows, rng: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_a_batch_function_that_returns_no_rewards(f: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Problem.of(f, 6, 2, batch=True)


def test_a_function_that_ignores_rng_is_reported() -> None:
    with pytest.warns(ProblemWarning, match="without using rng, so runs cannot be repeated"):
        problem = Problem.of(lambda s, rng: float(random.random() < 0.5), 6, 2)
    assert 0 < problem.play([(0, 1)], [100], 1).total[0] < 100


@for_each("wrong", [{"draws": 1}, {"effort": 10}, {"batch": 1}, {"k": 6}, {"best": (0, 0)}])
def test_wrong_arguments(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Problem.of(share, **{"n_arms": 6, "k": 2, **wrong})


def test_a_slow_function_is_reported_with_the_time_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "kofn.lab.problems.function.time.perf_counter", itertools.count().__next__
    )  # every call takes a second
    with pytest.warns(
        ProblemWarning, match=r"a call of share takes 1 s\. .* effort=300,000 calls, 3.5 days\. Give best="
    ):
        problem = Problem.of(share, 8, 3, best=(1, 3, 5), draws=16)
    monkeypatch.undo()
    assert problem.seconds_per_play == 1
    with pytest.warns(ProblemWarning, match="this simulation takes up to 100 calls, about 100 s at 1 s per call"):
        kofn.simulate(kofn.Uniform(8, 3, seed=1), problem, 100, seed=1)
    with pytest.warns(ProblemWarning, match=r"each worker takes up to 80 calls, about 80 s .*: use fewer runs") as seen:
        kofn.compare(["uniform"], problem, horizon=40, runs=2, workers=1)
    assert len(seen) == 1
    searched = Problem.of(share, 8, 3, effort=500, draws=4)
    searched._seconds = 1.0
    with pytest.warns(ProblemWarning, match="the search for the best subset takes up to 500 calls, about 8.3 min"):
        _ = searched.best


def test_a_function_is_as_fast_as_the_fastest_of_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine interrupts calls: one that took 0.1 s says nothing about the function."""
    clock = itertools.accumulate(itertools.cycle([0.0, 0.1, 0.0, 0.001, 0.0, 0.03]))
    monkeypatch.setattr("kofn.lab.problems.function.time.perf_counter", clock.__next__)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem = Problem.of(share, 8, 3)
    assert problem.seconds_per_play == pytest.approx(0.001)


def test_check_says_what_it_tried() -> None:
    check = Problem.of(fixed, 14, 3).check()
    assert not check
    assert check.lipschitz is None
    assert "is better than" in str(check)


# The command line.

SCRIPT = """
import numpy as np
from shop_data import P
from dataclasses import dataclass

def clicks(subset, rng):
    return float((rng.random(len(subset)) < P[list(subset)]).mean())

def cost(subset, rng):
    return 10.0 * sum(subset)

def nothing(subset, rng):
    pass

def made(seed):
    import kofn
    return kofn.Problem(kofn.Bernoulli(P), "mean", 2)

problem = made(1)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "shop.py").write_text(SCRIPT)
    (tmp_path / "shop_data.py").write_text("import numpy as np\nP = np.array([0.1, 0.2, 0.9, 0.3, 0.8, 0.1])\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "nothing"))  # restores sys.path after the test
    yield tmp_path
    for module in ("shop_data", "shop"):
        sys.modules.pop(module, None)


@pytest.mark.usefixtures("folder")
def test_a_function_is_named_on_the_command_line() -> None:
    options = ["--arms", "6", "-k", "2", "--horizon", "60", "--out", "picture"]
    compared = invoke("compare", "uniform", "--problem", "shop.py:clicks", *options, "--runs", "2", "--workers", "1")
    assert "best subset: (2, 4) (all 15 subsets tried: " in " ".join(compared.stdout.split())
    ran = invoke("run", "uniform", "--problem", "shop:cost", *options)
    assert "all 15 subsets tried: 15 draws; its value is exact" in " ".join(ran.stdout.split())


@pytest.mark.usefixtures("folder")
def test_direction_and_range_of_a_function() -> None:
    options = ["--arms", "6", "-k", "2", "--horizon", "50", "--json"]
    ran = invoke("run", "thompson", "--problem", "shop.py:cost", *options, "--minimize", "--reward-range", "0", "90")
    assert '"optimum": 10.0' in ran.stdout


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["shop.py", "shop.py:problem", "shop.py:made"])
def test_a_problem_is_named_on_the_command_line(name: str) -> None:
    ran = invoke("run", "uniform", "--problem", name, "--horizon", "20", "--json")
    assert ran.exit_code == 0


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shop.py:nope", "shop.py defines no `nope`; it defines clicks, cost, made, nothing"),
        (
            "shop_data.py",
            "shop_data.py defines no `problem`; it defines no functions. To name another object, write shop_data.py:n",
        ),
        ("gone.py:f", "there is no file gone.py"),
        (
            "gone:f",
            "there is no module gone: give a module that Python finds from here, or a file, such as gone.py:name",
        ),
        ("shop.py:", "'shop.py:' must be script.py:name or package.module:name"),
        ("shop.py:nothing", "nothing((0, 1), rng) must return one finite number; it returned None"),
        ("shop.py:clicks --reward sum", "--reward is for a problem by name"),
        ("shop.py --minimize", "--minimize and --reward-range are for a function of (subset, rng)"),
        ("max --minimize", "--minimize and --reward-range are for a function, such as shop.py:clicks, not for max"),
    ],
)
def test_a_name_that_leads_nowhere(name: str, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        invoke("run", "thompson", "--arms", "6", "-k", "2", "--problem", *name.split())
    assert message in str(refused.value)
