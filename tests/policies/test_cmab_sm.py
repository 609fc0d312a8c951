"""CMAB-SM: one test for each place where the paper leaves a choice, and traces to learn from.

The letters are those in the margin of `cmab_sm.py` and in docs/reference/policies/cmab-sm.md.
"""

import itertools
import json
import math
import warnings
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import CMABSM, BadInput, Plan, ShortHorizonWarning, Tally
from kofn.core import Subset
from kofn.lab.theory import Schedule, shortest_useful_horizon
from kofn.policies import cmab_sm
from kofn.policies.cmab_sm import Merge, Sort
from tests.cases import for_each

Value = Callable[[Subset], float]
Trace = list[tuple[str, Subset, int]]


def earned(plan: Plan, value: Value) -> Tally:
    """What a plan earns without noise."""
    rewards = np.array([value(subset) for subset, _ in plan])
    return Tally(plan.times.copy(), rewards * plan.times, rewards**2 * plan.times)


def mean_of(worth: list[float]) -> Value:
    return lambda subset: float(np.mean([worth[arm] for arm in subset]))


def by(values: Mapping[Any, float]) -> Value:
    return lambda subset: values[subset]


def phase_of(policy: CMABSM) -> str:
    return str(policy.state()["phase"])


def explored(policy: CMABSM, value: Value) -> Trace:
    """Play until the policy has committed: phase, subset and plays of every row, in order."""
    trace: Trace = []
    while not policy.committed:
        plan = policy.plan()
        trace += [(phase_of(policy), subset, n) for subset, n in plan]
        policy.tell_plan(earned(plan, value))
    return trace


def run(phase: Sort | Merge, schedule: Schedule, value: Value) -> Counter[Subset]:
    """Play one phase to its end: how often each action was played."""
    played: Counter[Subset] = Counter()
    while plan := phase.advance(schedule):
        phase.take(earned(plan, value))
        for subset, n in plan:
            played[subset] += n
    return played


# Traces.


def test_the_trace_of_a_case_with_wide_gaps() -> None:
    """Four arms, one place. Read it beside Algorithms 1 to 3."""
    policy = CMABSM(n_arms=4, k=1, horizon=1000, resolution=0.1)
    n_1, n_2, n_3 = policy.schedule.plays[1 : 1 + policy.schedule.rounds]
    assert (n_1, n_2, n_3) == (67, 266, 1062)
    trace = explored(policy, mean_of([0.0, 1.0, 0.2, 0.6]))
    assert trace == [
        # SORT of (0, 1) and of (2, 3), together. Without arm 0, arm 1 is played, and so on.
        ("sort", (1,), n_1),
        ("sort", (0,), n_1),
        ("sort", (3,), n_1),
        ("sort", (2,), n_1),
        # No gap is above 2 * 0.5.
        ("sort", (1,), n_2 - n_1),
        ("sort", (0,), n_2 - n_1),
        ("sort", (3,), n_2 - n_1),
        ("sort", (2,), n_2 - n_1),
        # 1.0 - 0.0 is above 2 * 0.25: (0, 1) is sorted; 0.6 - 0.2 is not.
        ("sort", (3,), n_3 - n_2),
        ("sort", (2,), n_3 - n_2),
        # 0.6 - 0.2 is above 2 * 0.125. MERGE of the winners 1 and 3: the base, and 3 in its place.
        ("merge", (1,), n_1),
        ("merge", (3,), n_1),
        # 1.0 - 0.6 is not above 0.5 + 0.5, nor above 0.25 + 0.25.
        ("merge", (1,), n_2 - n_1),
        ("merge", (3,), n_2 - n_1),
        ("merge", (1,), n_3 - n_2),
        ("merge", (3,), n_3 - n_2),
    ]
    assert policy.best() == (1,)
    assert policy.committed
    assert list(policy.plan()) == [((1,), 1000)]


def test_the_trace_of_a_merge() -> None:
    """The base G1 is played on from comparison to comparison; each exchange starts anew at round 1."""
    schedule = Schedule(n_arms=6, k=2, horizon=1000, resolution=0.2)
    n_1, n_2 = schedule.plays[1 : 1 + schedule.rounds]
    merge = Merge(g1=[0, 1], g2=[3, 4], waiting=deque())
    value = mean_of([0.9, 0.1, 0.0, 0.8, 0.7, 0.0])
    trace: list[Any] = []
    while plan := merge.advance(schedule):
        trace.append((merge.i, merge.j, list(plan)))
        merge.take(earned(plan, value))
    assert trace == [
        (0, 0, [((0, 1), n_1), ((1, 3), n_1)]),  # 3 for 0: 0.5 against 0.45
        (0, 0, [((0, 1), n_2 - n_1), ((1, 3), n_2 - n_1)]),  # the last round: 0 stays
        (1, 0, [((0, 3), n_1)]),  # 3 for 1: 0.85 against 0.5, within 0.25 + 0.5
        (1, 0, [((0, 3), n_2 - n_1)]),  # 3 it is
    ]
    assert merge.merged == [0, 3]


# Lambda and n_r.


def test_n_r_is_that_of_the_algorithms_and_not_of_the_proofs() -> None:
    policy = CMABSM(n_arms=12, k=3, horizon=10**5, resolution=0.1)
    n = [math.ceil(2 * math.log(10**5 * 12 * 3) / (2.0**-r) ** 2) for r in (1, 2, 3)]
    trace = explored(policy, lambda _: 0.5)
    first_action = [times for phase, subset, times in trace if (phase, subset) == ("sort", (1, 2, 3))]
    assert list(itertools.accumulate(first_action)) == n
    assert n[0] != math.ceil(math.log(2 * 12 * 10**5) / 0.25)


# SORT.


def test_a_round_samples_and_then_tests() -> None:
    """(a) The main text would test round 2 on the plays of round 1: 67 and not 266 here."""
    schedule = Schedule(n_arms=4, k=1, horizon=1000, resolution=0.1)
    sort = Sort.of(np.array([[0, 1]]))
    played = run(sort, schedule, by({(0,): 0.1, (1,): 0.9}))
    assert played == {(0,): schedule.plays[2], (1,): schedule.plays[2]}


def test_arms_exactly_two_radii_apart_are_not_sorted_yet() -> None:
    """`More than 2 Delta_r`: a gap of 0.5 is not settled in round 2 but in round 3."""
    schedule = Schedule(n_arms=4, k=1, horizon=1000, resolution=0.1)
    sort = Sort.of(np.array([[0, 1]]))
    assert run(sort, schedule, by({(0,): 0.25, (1,): 0.75}))[(0,)] == schedule.plays[3]


def test_an_arm_is_sorted_when_it_is_apart_from_both_neighbours() -> None:
    """Arm 0 stands alone and stops; arms 1 and 2 are close and go on, each the other's neighbour."""
    schedule = Schedule(n_arms=3, k=2, horizon=1000, resolution=0.1)
    sort = Sort.of(np.array([[0, 1, 2]]))
    played = run(sort, schedule, by({(1, 2): 0.1, (0, 2): 0.9, (0, 1): 0.8}))
    assert played == {(1, 2): schedule.plays[2], (0, 2): schedule.plays[3], (0, 1): schedule.plays[3]}


def twice(rows: Any) -> Any:
    return np.vstack([rows, rows])


@for_each("order", list(itertools.permutations(range(4))))
def test_sort_ends_ordered_by_mean(order: tuple[int, ...]) -> None:
    """(c) Settled arms and those that never were, in one order: the printed places would collide."""
    means = [0.0, 0.07, 0.6, 0.63]  # of the actions: two pairs that are not told apart
    without = {tuple(arm for arm in range(4) if arm != order[rank]): means[rank] for rank in range(4)}
    policy = CMABSM(n_arms=4, k=3, horizon=1000, resolution=0.1)
    explored(policy, by(without))
    assert policy.best() == tuple(sorted(order[:3]))
    sort = Sort.of(np.array([[0, 1, 2, 3]]))
    run(sort, Schedule(4, 3, 1000, 0.1), by(without))
    count, total, unsorted = (twice(each) for each in (sort.count, sort.total, sort.unsorted))
    two_groups = Sort(np.vstack([sort.groups, sort.groups + 4]), count, total, unsorted)
    merge = two_groups.then()
    assert isinstance(merge, Merge)
    assert merge.g1 == list(order[:3])  # best first: the best arm is the one missed most
    assert merge.g2 == [4 + arm for arm in order[:3]]


def test_sort_plays_large_problems_in_several_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    value = mean_of([((7 * arm) % 11) / 11 for arm in range(11)])
    whole = CMABSM(n_arms=11, k=2, horizon=1000, resolution=0.1)
    trace = explored(whole, value)
    monkeypatch.setattr(cmab_sm, "MOST_PLAN_CELLS", 10)
    parts: Any = CMABSM(n_arms=11, k=2, horizon=1000, resolution=0.1)
    again: Trace = []
    while not parts.committed:
        plan = parts.plan()
        assert len(plan) <= 5
        again += [(phase_of(parts), subset, n) for subset, n in plan]
        parts.tell_plan(earned(plan, value))
        parts = kofn.restore(json.loads(json.dumps(kofn.save(parts))))
    assert again == trace
    assert parts.best() == whole.best()


# MERGE.


def test_arms_are_apart_when_their_bounds_do_not_overlap() -> None:
    """(d) The base is known to 0.125, a new exchange to 0.5, then 0.25: 2 * 0.125 would stop too early."""
    schedule = Schedule(n_arms=6, k=2, horizon=1000, resolution=0.1)
    value = by({(0, 1): 0.5, (1, 2): 0.45, (0, 2): 0.0})
    merge = Merge(g1=[0, 1], g2=[2, 3], waiting=deque())
    played = run(merge, schedule, value)
    assert played[(0, 1)] == schedule.plays[3]
    assert played[(1, 2)] == schedule.plays[3]  # 0.05 is never apart
    assert played[(0, 2)] == schedule.plays[2]  # 0.5 is within 0.125 + 0.5, and above 0.125 + 0.25
    assert merge.merged == [0, 1]


def test_arms_exactly_as_far_apart_as_their_radii_are_not_apart_yet() -> None:
    schedule = Schedule(n_arms=4, k=1, horizon=1000, resolution=0.1)
    merge = Merge(g1=[0], g2=[1], waiting=deque())
    assert run(merge, schedule, by({(0,): 0.25, (1,): 0.75})) == {
        (0,): schedule.plays[3],
        (1,): schedule.plays[3],
    }


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_base_is_never_played_beyond_the_last_round(k: int) -> None:
    """(e) Line 15 as printed would play it n_(R+1) times from the second comparison on."""
    schedule = Schedule(n_arms=2 * k + 2, k=k, horizon=1000, resolution=0.2)
    g1, g2 = list(range(k)), list(range(k + 1, 2 * k + 1))
    played = run(Merge(g1=g1, g2=g2, waiting=deque()), schedule, lambda _: 0.5)
    assert schedule.rounds == 2
    assert played[tuple(g1)] == schedule.plays[2]
    assert set(played.values()) == {schedule.plays[2]}
    assert len(played) == k + 1


def test_the_base_follows_the_exchange_round_by_round() -> None:
    """r1 rises with r2, and does not fall back when the next exchange begins at round 1."""
    schedule = Schedule(n_arms=6, k=2, horizon=1000, resolution=0.05)
    merge = Merge(g1=[0, 1], g2=[2, 3], waiting=deque())
    seen = []
    while plan := merge.advance(schedule):
        seen.append((merge.i, merge.r1, merge.r2))
        merge.take(earned(plan, by({(0, 1): 0.9, (1, 2): 0.3, (0, 2): 0.1})))
    # 0.6 > 0.25 + 0.25 in round 2; then 0.8 > 0.25 + 0.5 at once.
    assert seen == [(0, 1, 1), (0, 2, 2), (1, 2, 1)]
    assert (merge.merged, merge.base.count) == ([0, 1], schedule.plays[2])


def test_a_tie_keeps_the_arm_of_the_first_group() -> None:
    """(f) As printed, neither branch is taken and the place stays empty."""
    merge = Merge(g1=[0, 1, 2], g2=[4, 5, 6], waiting=deque())
    run(merge, Schedule(8, 3, 1000, 0.2), lambda _: 0.5)
    assert merge.merged == [0, 1, 2]
    policy = CMABSM(n_arms=8, k=3, horizon=1000, resolution=0.2)
    explored(policy, lambda _: 0.5)
    assert policy.best() == (0, 1, 2)


def test_merging_stays_best_first_over_several_merges() -> None:
    """With G* in any other order, for instance by number, the second MERGE would lose arm 3, the best of all."""
    worth = [0.5, 0.4, 0.1, 0.9, 0.3, 0.0, 0.7, 0.2, 0.15]
    policy = CMABSM(n_arms=9, k=2, horizon=1000, resolution=0.01)
    firsts = []
    while not policy.committed:
        if phase_of(policy) == "merge" and policy.state()["g1"] not in firsts:
            firsts.append(policy.state()["g1"])
        policy.tell_plan(earned(policy.plan(), mean_of(worth)))
    assert firsts == [[0, 1], [3, 0]]
    assert policy.best() == (3, 6)


# The last group, padded.


def test_the_last_group_is_padded_and_the_padding_dropped_before_merge() -> None:
    """(b) Arm 0 is in both groups and the best of all; in MERGE it must not meet itself."""
    policy = CMABSM(n_arms=5, k=2, horizon=1000, resolution=0.05)
    assert policy.state()["groups"] == [0, 1, 2, 0, 3, 4]
    trace = explored(policy, mean_of([0.9, 0.1, 0.2, 0.3, 0.4]))
    merged = {subset for phase, subset, _ in trace if phase == "merge"}
    assert merged == {(0, 2), (2, 4), (0, 4)}  # the base; 4 for 0; 4 for 2; and 0 for 0 never
    assert all(len(set(subset)) == 2 for _, subset, _ in trace)
    assert policy.best() == (0, 4)


def test_a_last_group_without_an_arm_of_its_own_left_is_not_merged() -> None:
    policy = CMABSM(n_arms=4, k=2, horizon=1000, resolution=0.05)
    assert policy.state()["groups"] == [0, 1, 2, 0, 1, 3]
    trace = explored(policy, mean_of([0.9, 0.8, 0.7, 0.0]))
    assert {phase for phase, _, _ in trace} == {"sort"}
    assert policy.best() == (0, 1)


# The partition.


def groups_of(policy: CMABSM) -> list[list[int]]:
    return np.array(policy.state()["groups"]).reshape(-1, policy.k + 1).tolist()


def test_the_partition_is_in_order_or_seeded() -> None:
    plain, five, again, six = (CMABSM(12, 3, 10**6, seed=seed) for seed in (None, 5, 5, 6))
    assert groups_of(plain) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert groups_of(five) == groups_of(again)
    assert len({str(groups_of(policy)) for policy in (plain, five, six)}) == 3
    shuffled = np.random.default_rng(5).permutation(12).reshape(3, 4)
    assert groups_of(five) == np.sort(shuffled, axis=1).tolist()


# Too short a horizon.


@pytest.mark.parametrize("n_arms", [6, 12, 45])
def test_too_short_a_horizon_is_said_with_the_shortest_that_is_not(n_arms: int) -> None:
    shortest = shortest_useful_horizon(n_arms)
    with pytest.warns(ShortHorizonWarning, match=f"The shortest useful horizon is {shortest:,};"):
        policy = CMABSM(n_arms, 4, horizon=shortest - 1)
    assert policy.committed
    assert policy.best() == (0, 1, 2, 3)
    assert list(policy.plan()) == [((0, 1, 2, 3), shortest - 1)]
    assert not CMABSM(n_arms, 4, horizon=shortest).committed  # and no warning, which would be an error here


@pytest.mark.parametrize("resolution", [0.5, 0.75, 0.999])
def test_a_resolution_without_a_round_is_said(resolution: float) -> None:
    with pytest.warns(ShortHorizonWarning, match=f"a resolution of {resolution:g} leaves no round"):
        assert CMABSM(12, 4, horizon=10**9, resolution=resolution).committed


@for_each("horizon", [0, -5, 1.5, None, "long"])
def test_what_is_no_horizon_is_refused(horizon: Any) -> None:
    with pytest.raises(BadInput, match="horizon must be a whole number"):
        CMABSM(12, 4, horizon=horizon)


# At every moment.


@for_each("n_arms, k", [(6, 2), (12, 3), (4, 1), (5, 4)])
def test_the_bound_is_reached_when_all_arms_are_alike(n_arms: int, k: int) -> None:
    policy = CMABSM(n_arms, k, horizon=1000, resolution=0.1)
    played = Counter[str]()
    for phase, _, n in explored(policy, lambda _: 0.5):
        played[phase] += n
    assert played["sort"] == policy.schedule.sort_plays
    assert played["merge"] == policy.schedule.merge_plays
    assert policy.plays == policy.schedule.exploration_plays


def test_a_resolution_too_fine_for_the_horizon_is_warned_of() -> None:
    plays = Schedule(12, 3, 100_000, 0.06).exploration_plays
    with pytest.warns(kofn.ShortHorizonWarning, match=f"may take up to {plays:,} plays, more than .* 100,000"):
        CMABSM(12, 3, horizon=100_000, resolution=0.06)


# Plays, sizes and lambda.


@pytest.mark.parametrize("k", [1, 2, 3])
def test_an_action_is_played_n_r_times_and_not_once_more(k: int) -> None:
    """UPDATE_MEAN prints `while t <= n`."""
    policy = CMABSM(n_arms=12, k=k, horizon=10**4, resolution=0.3)
    assert policy.schedule.rounds == 1
    trace = explored(policy, lambda _: 0.5)
    assert {n for _, _, n in trace} == {policy.schedule.plays[1]}


@pytest.mark.parametrize("n_arms", [2, 3, 7])
def test_k_one_below_n_is_one_group(n_arms: int) -> None:
    worth = [((5 * arm + 1) % n_arms) / n_arms for arm in range(n_arms)]
    policy = CMABSM(n_arms, n_arms - 1, horizon=1000, resolution=0.01)
    trace = explored(policy, mean_of(worth))
    assert {phase for phase, _, _ in trace} == {"sort"}
    assert len({subset for _, subset, _ in trace}) == n_arms
    assert policy.best() == tuple(arm for arm in range(n_arms) if worth[arm] > min(worth))


@for_each("n_arms, k", [(3, 3), (3, 4), (1, 1), (3, 0)])
def test_nothing_to_choose_is_refused(n_arms: int, k: int) -> None:
    with pytest.raises(BadInput, match=r"k must be|n_arms must be"):
        CMABSM(n_arms, k, horizon=1000)


@pytest.mark.parametrize(("n_arms", "lam", "rounds"), [(12, 0.374, 1), (24, 0.477, 1), (45, 0.595, 0)])
def test_lambda_is_the_printed_one(n_arms: int, lam: float, rounds: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortHorizonWarning)
        schedule = CMABSM(n_arms, 2, horizon=10**6).schedule
    assert schedule.resolution == pytest.approx((256 * n_arms * math.log(2 * n_arms * 10**6) / 10**6) ** (1 / 3))
    assert (round(schedule.resolution, 3), schedule.rounds) == (lam, rounds)


def test_the_arbitrary_subset_is_of_the_first_group() -> None:
    with pytest.warns(ShortHorizonWarning, match="arbitrary"):
        policy = CMABSM(12, 4, horizon=100, seed=5)
    assert set(policy.best()) < set(np.random.default_rng(5).permutation(12)[:5].tolist())
    policy.tell_plan(Tally(np.array([100]), np.array([0.0]), np.array([0.0])))
    assert policy.ask() == policy.best()  # it goes on, whatever it is told
