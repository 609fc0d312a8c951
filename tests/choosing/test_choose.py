"""`kofn.choose`: what it chooses, what it calls, what it says, and how it resumes."""

import asyncio
import itertools
import json
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import kofn
from kofn.choosing import Choice, Evaluation
from kofn.choosing.repeats import Repeats
from kofn.choosing.search import LEAST_BUDGET, Search, reserve
from kofn.constraints import Always, Budget, Never, NeverTogether, OnlyTogether
from tests.cases import for_each

WEIGHTS = np.array([3.0, 1.0, 4.0, 1.5, 9.0, 2.0, 6.0, 5.0, 3.5, 8.0, 7.0, 0.5])
TOGETHER = np.random.default_rng(3).normal(size=(12, 12))


def additive(subset: list[int]) -> float:
    return float(WEIGHTS[subset].sum())


def pairs(subset: list[int]) -> float:
    return float(WEIGHTS[subset].sum() / 3 + TOGETHER[np.ix_(subset, subset)].sum())


def noisy(seed: int, sd: float = 1.0, value: Callable[[list[int]], float] = additive) -> Callable[[list[int]], float]:
    """A score with noise that depends on its own calls only."""
    rng = np.random.default_rng(seed)
    return lambda subset: value(subset) + sd * float(rng.normal())


def watched(score: Callable[[list[int]], float], calls: list[list[int]]) -> Callable[[list[int]], float]:
    """The same score, with a list of its calls."""

    def call(subset: list[int]) -> float:
        calls.append(subset)
        return score(subset)

    return call


def times(factor: float, score: Callable[[list[int]], float]) -> Callable[[list[int]], float]:
    return lambda subset: factor * score(subset)


def numbered_noise(subset: list[int]) -> float:
    """A noisy score whose noise depends on the subset and on a counter of its calls: the same in any order of calls."""
    with LOCK:
        CALLS[tuple(subset)] += 1
        call = CALLS[tuple(subset)]
    return additive(subset) + float(np.random.default_rng([call, *subset]).normal())


LOCK, CALLS = threading.Lock(), Counter[tuple[int, ...]]()


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


def same(one: Choice, other: Choice) -> bool:
    """Whether two choices are equal, except for the seconds of their calls."""
    plain = [each.to_dict() for each in (one, other)]
    for each in plain:
        for evaluation in each["history"]:
            del evaluation["seconds"]
    return plain[0] == plain[1]


# What it chooses.


@for_each("score", [additive, pairs])
@for_each("direction", ["maximize", "minimize"])
def test_a_repeatable_score_ends_in_the_best_subset(score: Callable[[list[int]], float], direction: Any) -> None:
    """300 of 792 subsets are scored; the best of all is known by trying them all."""
    every = [score(list(arms)) for arms in itertools.combinations(range(12), 5)]
    choice = kofn.choose(12, 5, score, budget=300, direction=direction, seed=1)
    assert choice.repeatable is True
    assert choice.value == choice.low == choice.high == score(list(choice.arms))
    assert choice.value == (max(every) if direction == "maximize" else min(every))
    assert choice.evaluations == 300


def test_a_noisy_score_ends_in_the_best_subset() -> None:
    """The best subset is 1 better than the next, which is one standard deviation of a score."""
    choice = kofn.choose(12, 3, noisy(1), budget=400, seed=1)
    assert choice.arms == (4, 9, 10)
    assert choice.repeatable is False
    assert choice.low < 24 < choice.high


def test_the_score_gets_candidates_in_their_order() -> None:
    names = ["pen", "book", "lamp", "mug", "sofa"]
    seen: list[list[str]] = []

    def score(subset: list[str]) -> int:
        seen.append(subset)
        return len("".join(subset))

    choice = kofn.choose(names, 2, score, seed=1)
    assert all(type(each) is list and each == [name for name in names if name in each] for each in seen)
    assert choice.subset == tuple(names[arm] for arm in choice.arms)
    assert [tuple(names[arm] for arm in each.arms) for each in choice.history] == list(map(tuple, seen))


def test_all_subsets_are_scored_and_then_it_stops() -> None:
    choice = kofn.choose(5, 2, additive, budget=1000, seed=1)
    assert choice.reason == "all subsets are scored"
    assert len({each.arms for each in choice.history}) == 10
    assert choice.expected_loss == 0


def test_a_repeatable_score_is_called_once_for_each_subset_if_that_is_given() -> None:
    choice = kofn.choose(12, 5, pairs, budget=200, seed=1, repeatable=True)
    assert len({each.arms for each in choice.history}) == 200
    found_out = kofn.choose(12, 5, pairs, budget=200, seed=1)
    assert len({each.arms for each in found_out.history}) >= 198


def test_the_policy_plays_as_with_ask_and_tell() -> None:
    """An independent loop: a noisy score, a range that is given, and the policy's own ask and tell."""
    budget = 150
    choice = kofn.choose(12, 3, noisy(5), budget=budget, seed=7, reward_range=(-50, 50), repeatable=False)
    policy, score = kofn.Thompson(12, 3, seed=7, reward_range=(-50, 50), goal="pick"), noisy(5)
    for each in choice.history[: budget - reserve(budget)]:
        subset = policy.ask()
        assert (each.arms, each.value) == (subset, score(list(subset)))
        policy.tell(subset, each.value)
    informed = policy.with_params()
    assert choice.arms == informed.best()
    assert {each.arms for each in choice.history[budget - reserve(budget) :]} == {choice.arms}


def test_the_unit_of_scores_does_not_matter() -> None:
    one, scale = kofn.choose(12, 3, noisy(2), budget=60, seed=2), 2.0**-20
    other = kofn.choose(12, 3, times(scale, noisy(2)), budget=60, seed=2)
    assert [each.arms for each in one.history] == [each.arms for each in other.history]
    assert other.low == pytest.approx(scale * one.low)


# Budgets.


RULES: dict[str, kofn.Constraints] = {
    "quotas": kofn.Constraints.by_group(np.arange(12) % 4, at_most=1),
    "conflicts": kofn.Constraints(NeverTogether([4, 9]), NeverTogether([9, 10]), Always([1])),
    "pairs": kofn.Constraints(*(OnlyTogether([arm, arm + 1]) for arm in range(0, 12, 2))),
    "budget": kofn.Constraints(Budget(20.0, dict(enumerate((WEIGHTS**1.5).tolist())))),
}


@for_each("noise", [0.0, 1.0])
@for_each("kind", RULES)
def test_what_is_scored_and_chosen_obeys_constraints(kind: str, noise: float) -> None:
    rules, k, calls = RULES[kind], 4 if kind == "pairs" else 3, list[list[int]]()
    choice = kofn.choose(12, k, watched(noisy(1, noise), calls), budget=150, constraints=rules, seed=1)
    assert rules.allows(calls, 12, k).all()
    everything = np.array(list(itertools.combinations(range(12), k)))
    allowed = everything[rules.allows(everything, 12, k)]
    assert additive(list(choice.arms)) == WEIGHTS[allowed].sum(axis=1).max()
    if len(allowed) < 100 and not noise:
        assert choice.reason == "all subsets are scored"
        assert choice.evaluations <= len(allowed) + 20


def test_a_search_under_rules_stops_where_no_allowed_swap_improves() -> None:
    pairs = [OnlyTogether([arm, arm + 1]) for arm in range(0, 12, 2)]  # no swap of one candidate is allowed
    choice = kofn.choose(12, 4, additive, constraints=pairs, seed=1)
    assert choice.value == 22.5
    choice = kofn.choose(12, 3, additive, constraints=RULES["quotas"], seed=1)
    assert choice.value == 24.0
    assert choice.reason == "no swap of one candidate improves the chosen subset"


def test_rules_that_only_a_solver_knows_end_when_no_subset_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kofn.constraints.allowed.MOST_TRIED", 0)
    costs = {arm: 3.0 + (arm % 10) / 10 for arm in range(30)}
    rules = kofn.Constraints(Budget(9.1, costs))  # arms 0, 10 and 20, or two of them with 1, 11 or 21
    assert rules.allowed(30, 3).number is None
    choice = kofn.choose(30, 3, lambda subset: float(sum(subset)), constraints=rules, budget=50, seed=1)
    assert choice.arms == (10, 20, 21)
    assert choice.evaluations < 50
    assert choice.reason == "no further subset that is allowed was found"


def test_the_first_subsets_under_rules_are_scored_once() -> None:
    """60 / 3 = 20 subsets have each candidate. One that is scored again shows whether the others need to be."""

    def noise(seed: int) -> Callable[[list[int]], float]:
        rng = np.random.default_rng(seed)
        return lambda subset: sum(subset) + float(rng.normal())

    rules = [NeverTogether([0, 1])]
    for seed in range(3):
        exact = kofn.choose(60, 3, lambda subset: float(sum(subset)), constraints=rules, budget=30, seed=seed)
        assert len({each.arms for each in exact.history}) >= 28
        calls: list[list[int]] = []
        kofn.choose(60, 3, watched(noise(seed), calls), constraints=rules, budget=40, seed=seed)
        assert len({tuple(subset) for subset in calls[:20]}) == 20
        assert Counter(map(tuple, calls[:29])).total() - len(set(map(tuple, calls[:29]))) <= 9


def test_rules_by_text_and_in_the_file(tmp_path: Path) -> None:
    names, file = [f"candidate {number}" for number in range(12)], tmp_path / "search.jsonl"

    def score(subset: list[str]) -> float:
        return additive([names.index(each) for each in subset])

    by_text = [Never(["candidate 4"]), Always(["candidate 0"])]
    first = kofn.choose(names, 3, score, budget=20, constraints=by_text, file=file, seed=1)
    assert "candidate 0" in first.subset
    numbered = kofn.Constraints(Never([4]), Always([0]))
    more = kofn.choose(names, 3, score, budget=60, constraints=numbered, file=file)
    assert more.history[:20] == first.history
    assert more.arms == (0, 9, 10)
    for other in (None, [Never([4])]):
        with pytest.raises(kofn.BadInput, match=r"constraints are \(never \(4\); always \(0\)\) there and"):
            kofn.choose(names, 3, score, budget=60, constraints=other, file=file)


@for_each("budget", [1, 2, 3, 7, 14, 15, 40])
def test_the_budget_is_spent_exactly(budget: int) -> None:
    """A budget below N / K means that some candidates are in no scored subset: 12 / 3 = 4 calls see each once."""
    calls: list[list[int]] = []
    choice = kofn.choose(12, 3, watched(noisy(1), calls), budget=budget, seed=1)
    assert len(calls) == choice.evaluations == budget
    assert list(choice.arms) in calls
    assert choice.reason == f"the budget of {budget} evaluations is spent"
    assert math.isfinite(choice.high) == (budget >= LEAST_BUDGET)


def test_without_a_budget_it_stops_when_little_is_left_to_gain() -> None:
    easy = kofn.choose(12, 3, noisy(1, sd=0.2), seed=1)
    assert easy.reason == "the expected loss is at most 2% of the gain over an average subset"
    assert easy.evaluations < 200
    hard = kofn.choose(12, 3, noisy(1, sd=30), seed=1)
    assert hard.reason == "the default budget of 240 evaluations is spent"
    assert hard.evaluations == 240
    exact = kofn.choose(12, 3, additive, seed=1)
    assert exact.reason == "no swap of one candidate improves the chosen subset"
    assert (exact.arms, exact.evaluations < 100) == ((4, 9, 10), True)


def test_a_time_budget() -> None:
    def slow(subset: list[int]) -> float:
        time.sleep(0.005)
        return numbered_noise(subset)

    choice = kofn.choose(12, 3, slow, seconds=0.3, seed=1)
    assert choice.reason == "the time of 0.3 seconds is over"
    assert 1 <= choice.evaluations <= 60


# Noise.


def test_equal_scores_by_chance_do_not_count_as_repeatable() -> None:
    """Clicks with a probability of 0.1: the same score again has probability 0.82."""
    rng = np.random.default_rng(1)
    repeats = Repeats()
    for _ in range(20):
        for arms in itertools.combinations(range(5), 2):
            repeats.include(arms, float(rng.random() < 0.1))
        if repeats.known is not None:
            break
    assert repeats.known is False


def test_rounding_is_not_noise() -> None:
    repeats = Repeats()
    for arms in itertools.combinations(range(12), 2):
        repeats.include(arms, pairs(list(arms)))
    repeats.include((0, 1), pairs([0, 1]) + 1e-12)
    assert repeats.known is True
    repeats = Repeats()
    for value in (1.0, 1.5):
        repeats.include((0, 1), value)
    assert repeats.known is False


def test_the_interval_contains_the_true_value() -> None:
    """A 95 % interval: 68 of 80 or fewer would have probability 0.0006, and the seeds are fixed."""
    inside = 0
    for seed in range(80):
        value = pairs if seed % 2 else additive
        choice = kofn.choose(12, 5, noisy(seed, 2.0, value), budget=30, seed=seed)
        inside += choice.low <= value(list(choice.arms)) <= choice.high
    assert inside > 68


def test_the_interval_is_students_t_if_no_other_subset_was_repeated() -> None:
    search = Search(5, 2, "maximize", "thompson", 1, 30, False, None, Repeats(False))
    values = [1.0, 3.0, 2.5, 2.0]
    search.include([Evaluation(1, (0, 2), 5.0, 0.0), Evaluation(2, (1, 2), 2.0, 0.0)])
    search.pick = (1, 2)
    search.include([Evaluation(number, (1, 2), value, 0.0) for number, value in enumerate(values, 3)])
    found = search.estimate()
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (found.value, found.low, found.high) == pytest.approx((np.mean(values), low, high))


def test_equal_new_scores_do_not_have_an_interval_of_width_zero() -> None:
    search = Search(5, 2, "maximize", "thompson", 1, 30, False, None, Repeats(False))
    search.include([Evaluation(1, (0, 2), 1.0, 0.0), Evaluation(2, (1, 2), 0.0, 0.0)])
    search.pick = (1, 2)
    search.include([Evaluation(number, (1, 2), 0.0, 0.0) for number in range(3, 9)])
    assert search.estimate().high == pytest.approx(3 / 6)


# Workers.


@pytest.mark.parametrize("workers", [2, 5])
def test_the_result_does_not_depend_on_the_number_of_threads(workers: int) -> None:
    def jittered(subset: list[int]) -> float:
        time.sleep(sum(subset) % 3 / 2000)  # calls end in another order than they begin
        return pairs(subset)

    one = kofn.choose(12, 3, pairs, budget=60, seed=3)
    assert same(one, kofn.choose(12, 3, jittered, budget=60, seed=3, workers=workers))


def test_at_most_as_many_calls_as_workers_are_in_flight() -> None:
    flying, most, lock = 0, 0, threading.Lock()

    def score(subset: list[int]) -> float:
        nonlocal flying, most
        with lock:
            flying += 1
            most = max(most, flying)
        time.sleep(0.002)
        with lock:
            flying -= 1
        return additive(subset)

    kofn.choose(12, 3, score, budget=30, seed=3, workers=3)
    assert 2 <= most <= 3


def check_elsewhere(backend: Any) -> None:
    shift = 0.25
    here = kofn.choose(12, 3, lambda s: pairs(s) + shift, budget=30, seed=3)
    assert same(here, kofn.choose(12, 3, lambda s: pairs(s) + shift, budget=30, seed=3, workers=2, backend=backend))
    with pytest.raises(kofn.BadScore, match=r"score\(\[.*\]\) raised ZeroDivisionError: division by zero"):
        kofn.choose(12, 3, lambda s: 1 / 0, workers=2, backend=backend)


def test_other_processes() -> None:
    check_elsewhere("processes")
    with pytest.raises(kofn.BadBackend, match="cannot be sent to other processes"):
        kofn.choose([threading.Lock() for _ in range(4)], 2, lambda s: 1.0, workers=2, backend="processes")
    with pytest.raises(kofn.BadBackend, match="a worker process was killed"):
        kofn.choose(12, 3, lambda s: os._exit(1), workers=2, backend="processes")


@pytest.mark.slow
def test_a_dask_cluster_calls_again_where_the_policy_does(cluster: Any) -> None:
    check_elsewhere(cluster)
    choice = kofn.choose(4, 2, lambda s: np.random.default_rng().random(), budget=40, workers=2, backend=cluster)
    assert choice.repeatable is False


def test_an_async_score() -> None:
    async def score(subset: list[int]) -> float:
        await asyncio.sleep(sum(subset) % 3 / 2000)
        return pairs(subset)

    one = kofn.choose(12, 3, pairs, budget=60, seed=3)
    assert same(one, asyncio.run(kofn.choose_async(12, 3, score, budget=60, seed=3, workers=4)))
    with pytest.raises(kofn.BadInput, match="choose_async"):
        kofn.choose(12, 3, score)  # type: ignore[arg-type]
    with pytest.raises(kofn.BadScore, match="choose_async"):
        kofn.choose(12, 3, lambda s: asyncio.sleep(0, 1.0))  # type: ignore[arg-type,return-value]


# The file.


class Stopped(Exception):
    """Raised by a score in place of its n-th call."""


def stopping(after: int, error: type[BaseException] = Stopped) -> Callable[[list[int]], float]:
    """A score that fails after a number of calls."""
    calls = itertools.count(1)

    def score(subset: list[int]) -> float:
        if next(calls) > after:
            raise error("enough")
        return numbered_noise(subset)

    return score


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("after", [0, 5, 57])
def test_a_resumed_search_equals_one_that_was_not_interrupted(after: int, workers: int, tmp_path: Path) -> None:
    """With three workers, the calls in flight end after the one that fails, so the file has a gap."""
    whole = kofn.choose(12, 3, numbered_noise, budget=60, seed=4)
    assert whole.repeatable is False
    CALLS.clear()
    file = tmp_path / "search.jsonl"
    with pytest.raises(kofn.BadScore, match="raised Stopped: enough"):
        kofn.choose(12, 3, stopping(after), budget=60, seed=4, file=file, workers=workers)
    assert sum(CALLS.values()) == after == len(file.read_text().splitlines()) - 1
    # The noise of a call depends on the number of calls of its subset, so a repeated or missing call would show.
    again = kofn.choose(12, 3, numbered_noise, budget=60, file=file)
    assert sum(CALLS.values()) == 60
    if workers == 1:  # with more, two calls of the same subset in one round may exchange their noise
        assert same(again, whole)
    assert len(file.read_text().splitlines()) == 61


def test_a_gap_in_the_file_is_filled(tmp_path: Path) -> None:
    file, other = tmp_path / "search.jsonl", tmp_path / "other.jsonl"
    whole = kofn.choose(12, 3, pairs, budget=40, seed=4, file=file)
    lines = file.read_text().splitlines(keepends=True)
    other.write_text("".join(lines[:20] + lines[21:24]))
    called: list[list[int]] = []
    again = kofn.choose(12, 3, watched(pairs, called), budget=40, file=other)
    assert same(again, whole)
    assert len(called) == 40 - 22


def test_a_larger_budget_continues(tmp_path: Path) -> None:
    file = tmp_path / "search.jsonl"
    first = kofn.choose(12, 3, noisy(1), budget=50, seed=4, file=file)
    called: list[list[int]] = []
    more = kofn.choose(12, 3, watched(noisy(2), called), budget=90, file=file)
    assert len(called) == 40
    assert more.history[:50] == first.history
    assert same(more, kofn.choose(12, 3, additive, budget=90, file=file))


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "search.jsonl"
    whole = kofn.choose(12, 3, pairs, budget=30, seed=4, file=file)
    data = file.read_bytes()
    for cut in (5, 40, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:cut])
        assert same(kofn.choose(12, 3, pairs, budget=30, seed=4, file=file), whole)


def test_ctrl_c_keeps_the_file(tmp_path: Path) -> None:
    file = tmp_path / "search.jsonl"
    whole = kofn.choose(12, 3, numbered_noise, budget=40, seed=4)
    CALLS.clear()
    with pytest.raises(KeyboardInterrupt):
        kofn.choose(12, 3, stopping(11, KeyboardInterrupt), budget=40, seed=4, file=file)
    assert len(file.read_text().splitlines()) == 12
    assert same(kofn.choose(12, 3, numbered_noise, budget=40, file=file), whole)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 4}, "k is 3 there and 4 here"),
        ({"direction": "minimize"}, "direction is 'maximize' there and 'minimize' here"),
        ({"seed": 5}, "seed is 4 there and 5 here"),
        ({"candidates": 13}, "it has 12 candidates, and here are 13"),
        ({"candidates": [*range(11), "x"]}, "candidate 11 is '11' there and 'x' here"),
    ],
)
def test_a_file_of_another_search_is_refused(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "search.jsonl"
    given: dict[str, Any] = {"candidates": 12, "k": 3, "score": additive, "budget": 20, "seed": 4, "file": file}
    kofn.choose(**given)
    before = file.read_bytes()
    with pytest.raises(kofn.BadInput, match=message):
        kofn.choose(**{**given, **arguments})
    assert file.read_bytes() == before


def test_a_file_that_is_no_search_is_refused_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    for text in ("my notes", "my notes\n", '{"a": 1}\n', "[]\n"):
        file.write_text(text)
        with pytest.raises(kofn.BadInput, match=r"notes.txt is not a file of kofn.choose"):
            kofn.choose(12, 3, additive, budget=20, file=file)
        assert file.read_text() == text
    kofn.choose(12, 3, additive, budget=20, file=tmp_path / "good")
    good = (tmp_path / "good").read_text()
    file.write_text(good + "{}\n")
    with pytest.raises(kofn.BadInput, match=r"notes.txt, line 22 is not an evaluation"):
        kofn.choose(12, 3, additive, budget=20, file=file)
    file.write_text(good + good.splitlines()[5] + "\n")
    with pytest.raises(kofn.BadInput, match="evaluation 5 is listed twice"):
        kofn.choose(12, 3, additive, budget=20, file=file)


class Model:
    """A candidate whose repr has an address."""


def test_candidates_of_any_kind_are_resumed(tmp_path: Path) -> None:
    file = tmp_path / "search.jsonl"
    for budget in (10, 20):
        models = [Model() for _ in range(6)]
        choice = kofn.choose(models, 2, lambda s: 1.0, budget=budget, file=file)
    assert choice.evaluations == 20
    assert json.loads(json.dumps(choice.to_dict()))["subset"] == ["<tests.choosing.test_choose.Model object>"] * 2


# Errors.


@for_each(
    "value, message",
    [
        (math.nan, "returned nan; a score must be one finite number"),
        (math.inf, "returned inf; a score must be one finite number"),
        ("0.5", "returned '0.5'; a score must be one finite number"),
        (None, "returned None; a score must be one finite number"),
        ([1, 2], r"returned \[1, 2\]; a score must be one finite number"),
    ],
)
def test_a_score_that_is_no_number_is_refused(value: object, message: str) -> None:
    calls = itertools.count(1)
    with pytest.raises(kofn.BadScore, match=rf"score\(\['a', 'b'\]\) {message}|score\(\['.', '.'\]\) {message}") as bad:
        kofn.choose(list("abcdef"), 2, lambda s: value if next(calls) == 3 else 1.0)  # type: ignore[arg-type,return-value]
    assert len(bad.value.history) == 2
    assert len(bad.value.subset) == 2


def test_an_exception_of_the_score_names_the_subset_and_keeps_the_history() -> None:
    with pytest.raises(kofn.BadScore, match=r"raised Stopped: enough \(test_choose.py, line \d+\)") as failed:
        kofn.choose(12, 3, stopping(7), seed=1)
    assert len(failed.value.history) == 7
    assert str(failed.value.subset) in str(failed.value)
    assert isinstance(failed.value.__cause__, Stopped)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 12}, "k must be less than the number of candidates; got k=12 and 12 candidates"),
        ({"k": 0}, "k must be a whole number of at least 1"),
        ({"candidates": "abcdef"}, "candidates must be a list of things to choose from, or their number, not 'abcdef'"),
        ({"candidates": 2.5}, "candidates must be a list of things"),
        ({"score": 3}, "score must be a function of a list of candidates, not 3"),
        ({"budget": 0}, "budget must be a whole number of at least 1"),
        ({"seconds": -1}, "seconds must be a number above 0, not -1"),
        ({"workers": 0}, "workers must be a whole number of at least 1"),
        ({"backend": "local"}, "backend must be 'threads', 'processes', 'dask'"),
        ({"direction": "up"}, "direction must be 'maximize' or 'minimize', not 'up'"),
        ({"policy": "thomson"}, "did you mean 'thompson'"),
        ({"policy": "dart"}, "one that learns from plays of any subset, such as thompson, not 'dart'"),
        ({"repeatable": "yes"}, "repeatable must be True, False or None, not 'yes'"),
        ({"seed": -1}, "seed must be at least 0"),
        (
            {"constraints": [Always([1]), Never([1])]},
            r"cannot hold together for 3 of 12 arms: always \(1\); never \(1\)",
        ),
        (
            {"constraints": [Always(["a"])]},
            r"a rule names 'a', but no candidate has that text. The candidates are \['0', '1',",
        ),
        ({"candidates": list("aab") + [1] * 9, "constraints": [Always(["a"])]}, "two candidates have that text"),
        ({"policy": "linear-thompson", "constraints": [Always([1])]}, "linear-thompson does not take constraints"),
    ],
)
def test_invalid_arguments_are_refused_before_any_call(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    def never(subset: list[int]) -> float:
        raise AssertionError("called")

    given = {"candidates": 12, "k": 3, "score": never, "file": tmp_path / "search.jsonl"}
    with pytest.raises(kofn.BadInput, match=message):
        kofn.choose(**{**given, **arguments})
    assert not (tmp_path / "search.jsonl").exists()


def test_a_score_outside_of_a_given_range_is_refused() -> None:
    with pytest.raises(kofn.BadScore, match=r"outside of reward_range=\(0.0, 1.0\)"):
        kofn.choose(12, 3, additive, reward_range=(0, 1))


# The result.


def test_the_result_in_words() -> None:
    choice = kofn.choose(["a", "b", "c", "d"], 2, lambda s: float("abcd".index(s[1])), budget=20, seed=1)
    assert str(choice).splitlines()[:2] == [
        f"chosen: {list(choice.subset)}",
        "value: 3 (exact: the score is repeatable)",
    ]
    assert "history" not in repr(choice)
    unsure = kofn.choose(12, 3, noisy(1), budget=3, seed=1)
    assert "too few evaluations for an interval" in str(unsure)
    assert unsure.to_dict()["low"] is None
    assert "95 % interval" in str(kofn.choose(12, 3, noisy(1), budget=30, seed=1))


def test_the_history_as_a_data_frame() -> None:
    pytest.importorskip("pandas")
    choice = kofn.choose(12, 3, additive, budget=9, seed=1)
    frame = choice.to_frame()
    assert list(frame.columns) == ["number", "arms", "value", "seconds"]
    assert frame["value"].tolist() == [each.value for each in choice.history]


def test_progress_and_evaluations_are_reported() -> None:
    seen: list[Evaluation] = []
    steps: list[tuple[int, int]] = []
    choice = kofn.choose(
        12, 3, noisy(1), budget=25, seed=1, on_evaluation=seen.append, progress=lambda n, of: steps.append((n, of))
    )
    assert tuple(seen) == choice.history
    assert steps == [(number, 25) for number in range(1, 26)]
    assert kofn.choose(12, 3, additive, budget=5, progress=True).evaluations == 5
