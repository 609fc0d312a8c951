"""Slots against plain Python, play by play, and against the answer."""

import math
from collections.abc import Callable

import numpy as np
import pytest

import kofn
from kofn import BadRecord, Plan, ShortHorizonWarning, Tally
from kofn.core import Subset
from kofn.lab.rivals import Slots
from kofn.lab.theory import Schedule
from tests.cases import for_each

Draw = Callable[[Subset, int, int], float]


def told(plan: Plan, draw: Draw, place: int) -> Tally:
    """The tally of rewards that are 0 or 1: `draw` says how many of n plays earned 1."""
    ones = np.array([draw(subset, n, place) for subset, n in plan])
    return Tally(plan.times.copy(), ones, ones)


def reference(
    n_arms: int, k: int, s: Schedule, draw: Draw
) -> tuple[Subset, list[tuple[int, list[tuple[Subset, int]]]]]:
    """The design in plain Python: the subset found, and the plays of each round of each place."""
    chosen = list(range(k))
    log = []
    for place in range(k):
        fixed = chosen[:place] + chosen[place + 1 :]
        alive = [arm for arm in range(n_arms) if arm not in fixed]
        count, total = dict.fromkeys(alive, 0), dict.fromkeys(alive, 0.0)
        r = 1
        while len(alive) > 1 and 2.0**-r > s.resolution:
            rows = []
            for arm in alive:
                subset, more = tuple(sorted([*fixed, arm])), s.plays[r] - count[arm]
                rows.append((subset, more))
                total[arm] += draw(subset, more, place)
                count[arm] += more
            log.append((place, rows))
            top = max(total[arm] / count[arm] for arm in alive)
            alive = [arm for arm in alive if total[arm] / count[arm] >= top - 2 * 2.0**-r]
            r += 1
        chosen[place] = max(alive, key=lambda arm: total[arm] / max(count[arm], 1))
    return tuple(sorted(chosen)), log


@for_each("case", range(60))
def test_equal_to_plain_python_play_by_play(case: int) -> None:
    rng = np.random.default_rng(case)
    n_arms = int(rng.integers(2, 9))
    k = int(rng.integers(1, n_arms))
    resolution = float(2.0 ** -rng.uniform(1.2, 6))
    worth = rng.random(n_arms)

    def draw(subset: Subset, n: int, place: int) -> float:
        return float(np.random.default_rng([case, n, place, *subset]).binomial(n, worth[list(subset)].mean()))

    policy = Slots(n_arms, k, 10**6, resolution=resolution)
    best, rounds = reference(n_arms, k, policy.schedule, draw)
    for place, rows in rounds:
        assert not policy.committed
        assert list(policy.plan()) == rows
        policy.tell_plan(told(policy.plan(), draw, place))
    assert policy.committed
    assert policy.best() == best
    assert list(policy.plan()) == [(best, 10**6)]


def test_finds_the_true_best_without_noise() -> None:
    """Each arm taken is among the best K, for K-1 others cannot hold them all; so K places hold exactly those."""
    rng = np.random.default_rng(3)
    for n_arms in range(2, 11):
        for k in range(1, n_arms):
            worth = rng.permutation(n_arms) / n_arms
            policy = Slots(n_arms, k, 10**6, resolution=0.3)
            while not policy.committed:
                plan = policy.plan()
                reward = np.sqrt(worth[plan.subsets]).mean(axis=1)
                policy.tell_plan(Tally(plan.times.copy(), reward * plan.times, reward**2 * plan.times))
            assert policy.best() == tuple(sorted(np.argsort(-worth)[:k].tolist()))


def test_the_rounds_are_those_of_cmab_sm() -> None:
    slots = Slots(24, 5, 10**6, resolution=0.1)
    assert slots.schedule == kofn.CMABSM(24, 5, 10**6, resolution=0.1).schedule
    assert len(slots.plan()) == 24 - 5 + 1
    assert slots.plan().times.tolist() == [math.ceil(2 * math.log(10**6 * 24 * 5) * 4)] * 20
    assert Slots(24, 5, 10**6, schedule="figures").schedule.form == "figures"


def test_the_best_so_far_has_the_leader_in_the_open_place() -> None:
    policy = Slots(5, 2, 10**6, resolution=0.2)
    assert policy.best() == (0, 1)
    plan = policy.plan()  # arm 1 is fixed
    ones = np.where((plan.subsets == 4).any(axis=1), plan.times, 0).astype(float)
    policy.tell_plan(Tally(plan.times.copy(), ones, ones))
    assert policy.best() == (1, 4)


def test_a_seed_draws_the_first_subset() -> None:
    firsts = {Slots(9, 3, 10**7, seed=seed).best() for seed in range(12)}
    assert len(firsts) > 6
    assert Slots(9, 3, 10**7, seed=4).best() == Slots(9, 3, 10**7, seed=4).best()


def test_many_candidates_are_played_in_several_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kofn.lab.rivals.slots.MOST_PLAN_CELLS", 8)
    policy, worth = Slots(9, 2, 10**6, resolution=0.3), np.arange(9) / 9
    rows = []
    while not policy.committed:
        plan = policy.plan()
        rows.append(len(plan))
        reward = worth[plan.subsets].mean(axis=1)
        policy.tell_plan(Tally(plan.times.copy(), reward * plan.times, reward**2 * plan.times))
    assert rows == [4, 4, 4, 4]
    assert policy.best() == (7, 8)


def test_a_horizon_that_is_too_short_is_said() -> None:
    with pytest.warns(ShortHorizonWarning, match="a horizon of 1,000 plays is too short for slots to explore 9 arms"):
        policy = Slots(9, 3, 1_000)
    assert policy.committed
    assert policy.best() == (0, 1, 2)
    with pytest.warns(ShortHorizonWarning, match=r"a resolution of 0\.7 leaves no round"):
        Slots(9, 3, 1_000, resolution=0.7)


@for_each("wrong", [{"places": [0, 0]}, {"j": 3}, {"alive": [1] * 5}, {"alive": [0] * 5}, {"total": [0.0] * 4 + [5.0]}])
def test_a_state_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    policy = Slots(5, 2, 10**6, resolution=0.2)
    with pytest.raises(BadRecord):
        policy.load({**policy.state(), **wrong})
