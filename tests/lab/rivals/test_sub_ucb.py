"""Sub-UCB against plain Python, play by play: greedy rounds, then UCB with a heap; and problems with known answers."""

import heapq
import itertools
import math
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import BadInput, BadRecord, Plan, ShortHorizonWarning, Tally
from kofn.core import Subset
from kofn.lab.rivals import SubUCB
from kofn.lab.rivals.sub_ucb import printed_level, printed_m, ucb_plays
from tests.cases import for_each

pytestmark = pytest.mark.filterwarnings("ignore::kofn.ShortHorizonWarning")


def reward(subset: Subset, case: int) -> float:
    """A mean reward, always the same for a subset, in 64ths: sums are exact."""
    return int(np.random.default_rng([case, *subset]).integers(65)) / 64


def told(plan: Plan, case: int) -> Tally:
    total = np.array([n * reward(subset, case) for subset, n in plan])
    return Tally(plan.times.copy(), total, total**2 / plan.times)


def ucb_with_a_heap(means: list[float], count: list[int], bonus: float, plays: int) -> list[int]:
    """One play after another: the highest bound, of equal bounds the first."""
    heap = [(-(mean + math.sqrt(bonus / n)), arm, n) for arm, (mean, n) in enumerate(zip(means, count, strict=True))]
    heapq.heapify(heap)
    times = [0] * len(means)
    for _ in range(plays):
        _, arm, n = heap[0]
        times[arm] += 1
        heapq.heapreplace(heap, (-(means[arm] + math.sqrt(bonus / (n + 1))), arm, n + 1))
    return times


@for_each("case", range(60))
def test_bisection_equals_one_play_after_another(case: int) -> None:
    rng = np.random.default_rng(case)
    arms, plays = int(rng.integers(2, 40)), int(10 ** rng.uniform(0, 4))
    count = rng.integers(1, int(10 ** rng.uniform(0.5, 4)), arms)
    means = rng.integers(0, 9, arms) / 8 if case % 2 else rng.random(arms)
    bonus = 2 * math.log(int(count.sum()))
    assert ucb_plays(means, count, bonus, plays).tolist() == ucb_with_a_heap(
        means.tolist(), count.tolist(), bonus, plays
    )


@for_each("case", range(8))
def test_equal_to_plain_python_plan_by_plan(case: int) -> None:
    rng = np.random.default_rng(case)
    n = int(rng.integers(3, 8))
    k = int(rng.integers(1, n))
    level, m = int(rng.integers(0, k + 1)), int(rng.integers(1, 9))
    policy = SubUCB(n, k, 10**5, level=level, m=m)
    chosen: list[int] = []
    for _ in range(level):
        free = [arm for arm in range(n) if arm not in chosen]
        sets = [tuple(sorted([*chosen, arm])) for arm in free]
        assert list(policy.plan()) == [(each, m) for each in sets]
        policy.tell_plan(told(policy.plan(), case))
        values = [reward(each, case) for each in sets]
        chosen.append(free[values.index(max(values))])
    free = [arm for arm in range(n) if arm not in chosen]
    rows = [tuple(sorted([*chosen, *rest])) for rest in itertools.combinations(free, k - level)]
    assert policy.completions == len(rows)
    if len(rows) == 1:
        assert policy.committed
        assert list(policy.plan()) == [(rows[0], 10**5)]
        return
    count = [0] * len(rows)
    means = [reward(each, case) for each in rows]
    for turn in range(60):
        t = sum(count)
        times = ucb_with_a_heap(means, count, 2 * math.log(t), max(1, t // 10)) if turn else [1] * len(rows)
        assert list(policy.plan()) == [(row, n) for row, n in zip(rows, times, strict=True) if n]
        policy.tell_plan(told(policy.plan(), case))
        count = [n + more for n, more in zip(count, times, strict=True)]
    assert policy.best() == rows[means.index(max(means))]


def test_the_default_level_minimises_the_bound() -> None:
    """By hand, n = 24, k = 5, T = 10^6: a round costs 28,845; UCB 206,165, 103,083, 44,989, 16,613, 4,899, 1,000."""
    assert printed_level(24, 5, 10**6) == 2  # 57,690 + 44,989; level 3 has 86,535 + 16,613
    assert printed_m(24, 10**6) == 1_202
    assert SubUCB(24, 5, 10**6).exploration == 1_202 * (24 + 23)
    assert SubUCB(24, 5, 10**6).completions == math.comb(22, 3)


def test_completions_are_bounded() -> None:
    """With 1,000 arms, UCB over pairs would be 499,500 completions: the default chooses one arm more."""
    policy = SubUCB(1_000, 10, 10**18)
    assert (policy.level, policy.completions) == (9, 991)
    with pytest.raises(kofn.TooManySubsets):
        SubUCB(1_000, 10, 10**6, level=2)


def covered(subset: Subset) -> float:
    """Arms 0 and 1 are the largest but cover the same; greedy takes 0, and the best completion is (2, 3)."""
    cover = [{0, 1, 2, 3}, {0, 1, 2}, {4, 5}, {6}, {4}, set()]
    return len(set().union(*(cover[arm] for arm in subset))) / 8


@for_each("level", [0, 1, 2, 3])
def test_it_finds_the_best_cover(level: int) -> None:
    policy = SubUCB(6, 3, 10**5, level=level)
    while policy.plays < 50_000 and not policy.committed:
        plan = policy.plan()
        total = np.array([n * covered(subset) for subset, n in plan])
        policy.tell_plan(Tally(plan.times.copy(), total, total**2 / plan.times))
    assert policy.best() == (0, 2, 3)


@pytest.mark.filterwarnings("default::kofn.ShortHorizonWarning")
def test_a_horizon_too_short_for_ucb_is_said() -> None:
    with pytest.warns(ShortHorizonWarning, match=r"sub-ucb chooses 4 arms in 1,170 plays, and the horizon is 1,000"):
        SubUCB(24, 5, 1_000)


@for_each("name, value", [("level", -1), ("level", 4), ("level", 1.5), ("m", 0), ("m", "many")])
def test_what_is_no_parameter_is_refused(name: str, value: Any) -> None:
    with pytest.raises(BadInput, match=f"{name} must be"):
        SubUCB(6, 3, 1_000, **{name: value})


@for_each("change", [{"chosen": [0, 1]}, {"count": []}, {"count": [1, 0, 1]}, {"earned": [0.0, 0.0, 9.0]}])
def test_a_state_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    policy = SubUCB(4, 2, 1_000, level=1, m=1)
    for _ in range(2):
        policy.tell_plan(told(policy.plan(), 1))
    with pytest.raises(BadRecord):
        policy.load(policy.state() | change)
