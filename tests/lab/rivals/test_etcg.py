"""ETCG against the paper's pseudo-code in plain Python, play by play; sets of fewer than K arms; what it finds."""

import math
from typing import Any

import numpy as np
import pytest

from kofn import BadInput, BadRecord, Plan, ShortHorizonWarning, Tally
from kofn.core import Subset
from kofn.lab.rivals import ETCG, greedy
from kofn.lab.rivals.etcg import printed_m, shortest_horizon
from tests.cases import for_each

pytestmark = pytest.mark.filterwarnings("ignore::kofn.ShortHorizonWarning")


def reward(subset: Subset, case: int) -> float:
    """A noisy mean reward of one row, always the same for a subset."""
    return float(np.random.default_rng([case, *subset]).random())


def reference(n: int, k: int, horizon: int, case: int) -> tuple[list[list[tuple[Subset, int]]], Subset]:
    """Nie et al., Algorithm 1: the plays of each phase, and the set that is played to the end."""
    root = math.sqrt(2 * math.log(horizon))
    m = max(1, math.ceil((horizon * root / (n + 2 * n * k * root)) ** (2 / 3)))
    chosen: list[int] = []
    phases = []
    for _ in range(k):
        candidates = [a for a in range(n) if a not in chosen]
        sets = [tuple(sorted([*chosen, a])) for a in candidates]
        phases.append([(each, m) for each in sets])
        means = [m * reward(each, case) / m for each in sets]
        chosen.append(candidates[means.index(max(means))])
    return phases, tuple(sorted(chosen))


def told(plan: Plan, case: int) -> Tally:
    total = np.array([n * reward(subset, case) for subset, n in plan])
    return Tally(plan.times.copy(), total, total**2 / plan.times)


@for_each("most_cells", [2**22, 7])
@for_each("case", range(40))
def test_equal_to_plain_python_play_by_play(case: int, most_cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds that are too large for one plan are played in several, and nothing else changes."""
    monkeypatch.setattr(greedy, "MOST_PLAN_CELLS", most_cells)
    rng = np.random.default_rng(case)
    n = int(rng.integers(2, 9))
    k = int(rng.integers(1, n))
    horizon = int(10 ** rng.uniform(0, 7))
    phases, best = reference(n, k, horizon, case)
    policy = ETCG(n, k, horizon)
    assert policy.exploration == sum(times for phase in phases for _, times in phase)
    for phase in phases:
        rest = list(phase)
        while rest:
            plan = policy.plan()
            assert not policy.committed
            assert plan.subsets.size <= max(most_cells, k)
            assert list(plan) == rest[: len(plan)]
            rest = rest[len(plan) :]
            policy.tell_plan(told(plan, case))
    assert policy.committed
    assert policy.best() == best
    for _ in range(2):
        assert list(policy.plan()) == [(best, horizon)]
        policy.tell_plan(told(policy.plan(), case))


def test_the_printed_m() -> None:
    """By hand: T = 10^6, n = 10, k = 2: sqrt(2 log T) = 5.2565; (5,256,500 / 220.26)^(2/3) = 828.9."""
    assert printed_m(10, 2, 10**6) == 829
    assert printed_m(10, 2, 1) == 1
    assert ETCG(10, 2, 10**6).exploration == 829 * 19
    assert ETCG(10, 2, 10**6, m=100).exploration == 1900


def test_sets_of_fewer_arms_end_in_empty_places() -> None:
    policy = ETCG(4, 3, 1000, m=2)
    assert policy.plan().subsets.tolist() == [[0, -1, -1], [1, -1, -1], [2, -1, -1], [3, -1, -1]]
    for subset in [(0,), (1,), (2,), (3,)] * 2:
        assert policy.ask() == subset
        policy.tell(subset, float(subset == (2,)))
    assert policy.plan().subsets.tolist() == [[0, 2, -1], [1, 2, -1], [2, 3, -1]]
    policy.tell([2, 1], 1.0)  # unplanned, unsorted
    policy.tell(iter((1, 2)), 1.0)
    assert policy.plan().times.tolist() == [2, 0, 2]
    wrong: Any
    for wrong in [(), (1,), (0, 1), (0, 0), (0, 2, 3), (0, 1, 2, 3), (-1, 2), 7]:
        with pytest.raises(BadInput):
            policy.tell(wrong, 0.5)
    assert policy.plan().times.tolist() == [2, 0, 2]
    with pytest.raises(BadInput, match=r"only 2 plays of \(0, 2\) are remaining; got 9"):
        policy.tell_plan(Tally(np.array([9, 0, 0]), np.zeros(3), np.zeros(3)))


def test_the_best_so_far_is_filled_up() -> None:
    policy = ETCG(5, 3, 1000, m=1)
    assert policy.best() == (0, 1, 2)
    policy.tell_plan(Tally.of([[0.1], [0.5], [0.3], [0.9], [0.2]]))
    assert policy.best() == (1, 2, 3)
    policy.tell_plan(Tally.of([[0.9], [0.3], [0.2], [0.8]]))  # with arm 3: 0, 1, 2, 4
    assert policy.best() == (0, 3, 4)


def test_it_finds_a_greedy_best_that_symmetry_would_miss() -> None:
    """Cover: arms 0 and 1 cover the same; arm 2 alone is worth less than either but adds more."""
    cover = [{0, 1, 2}, {0, 1}, {3}, set()]

    def covered(subset: Subset) -> float:
        return len(set().union(*(cover[arm] for arm in subset))) / 4

    policy = ETCG(4, 2, 10**4)
    while not policy.committed:
        plan = policy.plan()
        total = np.array([n * covered(subset) for subset, n in plan])
        policy.tell_plan(Tally(plan.times.copy(), total, total**2 / plan.times))
    assert policy.best() == (0, 2)


@pytest.mark.filterwarnings("default::kofn.ShortHorizonWarning")
def test_a_horizon_too_short_to_commit_is_said() -> None:
    shortest = shortest_horizon(9, 3)
    with pytest.warns(ShortHorizonWarning, match=f"The shortest useful horizon is {shortest}; or set m yourself"):
        short = ETCG(9, 3, shortest - 1)
    assert short.exploration >= shortest - 1
    with pytest.warns(ShortHorizonWarning, match="Give a smaller m"):
        ETCG(9, 3, 1000, m=500)


@for_each(
    "change", [{"chosen": [0, 1, 2]}, {"tried": 4}, {"chosen": [0, 1], "tried": 1}, {"total": [0.0, 0.0, 0.0, 99.0]}]
)
def test_a_state_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    policy = ETCG(4, 2, 1000, m=5)
    with pytest.raises(BadRecord):
        policy.load(policy.state() | change)
