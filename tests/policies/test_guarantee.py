"""The guarantee: comparisons that differ in one exchange, bounds that hold at all times, and no wrong decision."""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kofn
from kofn import BadInput, BadRecord, Bernoulli, Problem, Tally, ThompsonGuaranteed
from kofn.policies import guaranteed as module
from kofn.policies.elimination import ACCEPTED, REJECTED, UNDECIDED
from kofn.policies.guaranteed import FAILURE, SHARE, SLACK, WARM_UP, radius, regret_bound
from tests.cases import for_each

MAXIMUM = Problem(Bernoulli([0.1, 0.3, 0.5, 0.6, 0.8, 0.9]), "maximum", 2)

Values = Callable[[Any], Any]
"""The mean reward of each row of subsets."""

REWARDS: dict[str, Callable[[Any], Any]] = {
    "mean": lambda p: p.mean(axis=1),
    "maximum": lambda p: 1 - (1 - p / 3).prod(axis=1),
    "minimum": lambda p: p.prod(axis=1),
    "base": lambda p: 0.2 + 0.8 * p.prod(axis=1),
    "square": lambda p: p.mean(axis=1) ** 2,
}
"""Rewards that increase in every arm's p; all but the mean are far from additive."""


def play(policy: ThompsonGuaranteed, values: Values, plays: int, rng: np.random.Generator) -> ThompsonGuaranteed:
    """Play coins with these means."""
    while policy.plays < plays:
        plan = policy.plan()
        total = rng.binomial(plan.times, values(plan.subsets)).astype(float)
        policy.tell_plan(Tally(plan.times, total, total))
    return policy


def with_gains(gain: Any, pivot: int, k: int = 3, count: int = 10**6) -> ThompsonGuaranteed:
    """A guarantee with these average gains over the pivot."""
    found = ThompsonGuaranteed(len(gain), k, seed=1)
    found._pivot, found._pivots = pivot, 1
    found._count[:], found._gain = count, count * np.asarray(gain, float)
    found._variance[:] = count / 2
    return found


# Comparisons.


@settings(max_examples=60)
@given(st.data())
def test_every_comparison_exchanges_the_pivot_for_one_arm(data: st.DataObject) -> None:
    n_arms = data.draw(st.integers(2, 12))
    k = data.draw(st.integers(1, n_arms - 1))
    order = data.draw(st.permutations(range(n_arms)))
    found = ThompsonGuaranteed(n_arms, k, seed=1)
    found._pivot, found._pivots, found._since = data.draw(st.integers(0, n_arms - 1)), 1, 10**4
    subset = np.array(sorted(order[:k]))
    comparisons = found._comparisons(subset, np.argsort(order).astype(float), 1000)
    assert comparisons is not None
    subsets, times = comparisons.plan.subsets, comparisons.plan.times
    assert sorted(comparisons.arms.tolist()) == [arm for arm in range(n_arms) if arm != found._pivot]
    for arm, row, base, sign in zip(*comparisons[1:], strict=True):
        with_arm, with_pivot = set(subsets[row]), set(subsets[base])
        if sign < 0:
            with_arm, with_pivot = with_pivot, with_arm
        assert with_arm - with_pivot == {arm}
        assert with_pivot - with_arm == {found._pivot}
        assert times[row] <= times[base]
    assert all(len(set(row) - set(subset.tolist())) <= 1 for row in subsets.tolist())
    assert len({tuple(row) for row in subsets.tolist()}) == len(subsets)
    assert int(times[1:].sum()) <= SHARE * (10**4 + 1000)
    assert int(times.sum()) < 1000


def test_the_least_compared_arm_keeps_up_with_the_share() -> None:
    """All arms are equal, so none is ever distinguished: the slowest case of the bound."""
    for n_arms, k in ((12, 3), (7, 6)):
        policy = ThompsonGuaranteed(n_arms, k, seed=1)
        rng = np.random.default_rng(1)
        while policy.plays < 10_000:
            play(policy, lambda subsets: np.full(len(subsets), 0.5), policy.plays + 1, rng)
            found = policy
            others = found._count[np.arange(n_arms) != found._pivot]
            assert others.min() >= math.floor(SHARE * found._since / n_arms) - SLACK
        assert found._pivots == 1
        assert found._compared <= SHARE * found._since


def test_more_arms_than_fit_a_plan_take_turns() -> None:
    found = ThompsonGuaranteed(1000, 2, seed=1)
    found._pivot, found._pivots, found._since = 1, 1, 10**5
    found._count[2:] = 7
    found._count[[500, 900]] = 3
    comparisons = found._comparisons(np.array([0, 1]), -np.arange(1000.0), 10**4)
    assert comparisons is not None
    assert len(comparisons.arms) == module.MOST_COMPARED
    assert set(comparisons.arms[:3].tolist()) == {0, 500, 900}


# Confidence bounds.


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.5), (0.02, 0.02), (0.97, 0.9)])
def test_the_bound_holds_at_all_times_at_once(p: float, q: float) -> None:
    """In all but 1 % of the runs: of 400, at most 10 (more than 10 have probability 0.3 %). Each arm is a run."""
    rng, runs = np.random.default_rng(3), 400
    found, failed = ThompsonGuaranteed(runs + 1, 1, seed=1), np.zeros(runs, bool)
    arms, rows = np.arange(runs), np.arange(2 * runs)
    for step in range(40):
        times = np.repeat([10, 20], runs) * (1 + step)
        plan = kofn.Plan(rows[:, None], times)
        total = rng.binomial(times, np.repeat([p, q], runs)).astype(float)
        found._compare(module.Comparisons(plan, arms, arms, rows[runs:], np.ones(runs)), Tally(times, total, total))
        bound = radius(found._count[:runs], found._variance[:runs], 2, 1)
        failed |= np.abs(found._gain - found._count * (p - q))[:runs] > bound
    assert failed.sum() <= 10
    assert (bound < 0.2 * found._count[:runs]).all()


def test_the_bound_is_near_what_one_look_at_a_known_variance_needs() -> None:
    count = np.array([100, 10**4, 10**6])
    for variance in (0.5, 0.05):
        once = np.sqrt(2 * variance * count * math.log(2 * 12 / FAILURE))
        ratio = radius(count, variance * count, 12, 1) / once
        assert (ratio > 1.2).all()
        assert (ratio[1:] < 1.65).all()
    hoeffding = radius(count, np.full(3, math.inf), 12, 1)
    assert hoeffding == pytest.approx(radius(count, 0.55 * count, 12, 1), rel=0.2)


def test_more_pivots_need_more() -> None:
    count = np.array([1000])
    bounds = [radius(count, count / 4, 12, pivots)[0] for pivots in (1, 2, 5, 12)]
    assert bounds == sorted(bounds)


# Decisions.


def test_proved_arms_are_in_or_out() -> None:
    found = with_gains([0.3, 0.2, 0.0, 0.0, -0.2, -0.3], pivot=2)
    better, worse = found._proved()
    assert (better.tolist(), worse.tolist()) == ([0, 1], [4, 5])
    ranking = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    allowed = found._corrected(np.array([[2, 4, 5], [0, 1, 2], [0, 2, 3]]), ranking)
    assert allowed.tolist() == [[0, 1, 2], [0, 1, 2], [0, 1, 3]]
    found._elimination.status[[4, 5]] = REJECTED
    assert found._corrected(np.array([[3, 4, 5]]), ranking).tolist() == [[0, 1, 3]]


def test_what_is_allowed_stays() -> None:
    subsets = np.array([[0, 1], [2, 3]])
    assert ThompsonGuaranteed(4, 2, seed=1)._corrected(subsets, np.arange(4.0)) is subsets


@pytest.mark.parametrize(
    ("gain", "accepted", "rejected"),
    [
        ([0.3, 0.2, 0.0, -0.1, -0.2, -0.3], [0, 1, 2], []),  # three arms are worse: the pivot is in, and what beats it
        ([0.3, 0.2, 0.0, 0.1, 0.0, -0.3], [], [2, 5]),  # three arms are better: the pivot is out, and what it beats
        ([0.3, 0.2, 0.0, 0.0, -0.2, -0.3], [], []),
    ],
)
def test_enough_arms_on_one_side_decide_the_other(gain: list[float], accepted: list[int], rejected: list[int]) -> None:
    found = with_gains(gain, pivot=2)
    found._decide()
    assert found._elimination.accepted.tolist() == accepted
    assert np.flatnonzero(found._elimination.status == REJECTED).tolist() == rejected
    assert found._pivot == (-1 if accepted or rejected else 2)


def wrong_proofs(reward: str, seed: int, plays: int) -> tuple[int, int]:
    """The number of arms about which something wrong is proved, and of all arms about which something is proved."""
    rng = np.random.default_rng(seed)
    p = np.where(np.arange(10) < 4, rng.uniform(0.5, 1.0, 10), rng.uniform(0.0, 0.5, 10))
    policy = ThompsonGuaranteed(10, 3, seed=seed)
    play(policy, lambda subsets: REWARDS[reward](p[subsets]), plays, rng)
    found = policy
    status, (better, worse) = found._elimination.status, found._proved()
    best = np.zeros(10, bool)
    best[np.argsort(-p)[:3]] = True
    wrong = (best & (status == REJECTED)) | (~best & (status == ACCEPTED))
    wrong[better] |= p[better] < p[found._pivot]
    wrong[worse] |= p[worse] > p[found._pivot]
    return int(wrong.sum()), int(np.count_nonzero(status != UNDECIDED)) + len(better) + len(worse)


@pytest.mark.parametrize("reward", ["minimum", "base"])
def test_nothing_wrong_is_proved(reward: str) -> None:
    """It happens in 1 % of the runs at most: not in this one."""
    wrong, proofs = wrong_proofs(reward, 1, 12_000)
    assert wrong == 0
    assert proofs > 0


@pytest.mark.slow
@pytest.mark.parametrize("reward", REWARDS)
def test_something_wrong_is_proved_in_one_run_of_a_hundred_at_most(reward: str) -> None:
    """Of 200 runs, at most 7 (more have probability 0.1 % if it is 1 %)."""
    assert sum(wrong_proofs(reward, seed, 100_000)[0] > 0 for seed in range(1000, 1200)) <= 7


def test_arms_that_always_and_never_pay_are_distinguished_early() -> None:
    """Twelve arms, of which three always pay, in a mean of three."""
    p = np.repeat([1.0, 0.0], [3, 9])
    policy = ThompsonGuaranteed(12, 3, seed=1)
    while policy.plays < 15_000:
        plan = policy.plan()
        value = p[plan.subsets].mean(axis=1)
        policy.tell_plan(Tally(plan.times, value * plan.times, value**2 * plan.times))
        if policy.plays > 5000:
            assert policy._elimination.status.any()
    assert policy._elimination.accepted.tolist() == [0, 1, 2]
    assert policy.decided
    assert {subset for subset, _ in policy.plan()} == {(0, 1, 2)}


# The bound on regret.


def test_every_play_loses_at_most_what_the_theorem_says() -> None:
    """For a mean, gains beside all subsets are equal: comparability 1."""
    rng = np.random.default_rng(2)
    p = rng.random(12)
    policy = ThompsonGuaranteed(12, 3, seed=2)
    best, regret, checked = np.sort(p)[-3:].mean(), 0.0, 0
    while policy.plays < 30_000:
        found, plan = policy, policy.plan()
        loss = best - p[plan.subsets].mean(axis=1)
        regret += float(loss @ plan.times)
        if found._pivot >= 0 and len(unresolved := found._unresolved()):
            count = int(found._count[unresolved].min())
            if count:
                [spread] = radius(np.array([count]), np.array([math.inf]), 12, found._pivots)
                assert (loss <= 4 * 3 * spread / count + 1e-12).all()
                checked += 1
        play(policy, lambda subsets: p[subsets].mean(axis=1), policy.plays + 1, rng)
        assert regret <= regret_bound(12, 3, policy.plays, pivots=max(1, policy._pivots))
    assert checked > 10


def test_the_bound_is_below_all_plays_by_a_million_plays_and_grows_like_their_square_root() -> None:
    assert regret_bound(12, 3, 10**6) < 0.8 * 10**6
    assert regret_bound(12, 3, 10**7, pivots=12) < 0.9 * 10**7
    assert regret_bound(12, 3, 10**4) == 10**4
    growth = regret_bound(12, 3, 10**10) / regret_bound(12, 3, 10**8)
    assert 10 < growth < 11.5  # 10 for a square root, and a logarithm


# The policy.


def test_a_new_pivot_begins_with_short_plans() -> None:
    policy = ThompsonGuaranteed(12, 3, seed=1)
    p, rng, before = np.linspace(0.05, 0.95, 12), np.random.default_rng(1), 0
    while policy.plays < 10_000:
        play(policy, lambda subsets: p[subsets].mean(axis=1), policy.plays + 1, rng)
        found = policy
        if found._pivots > before:
            assert policy.plays >= WARM_UP * 12
            assert found._since == found._count.sum() == 0
        if found._pivot >= 0:
            assert policy.plan().plays <= max(found._since / 10, 12)
        before = found._pivots
    assert before >= 1


def test_it_still_finds_the_best() -> None:
    policy = ThompsonGuaranteed(6, 2, seed=1)
    assert play(policy, MAXIMUM.value, 3000, np.random.default_rng(1)).best() == (4, 5)


@pytest.mark.slow
def test_a_lock_in_is_left() -> None:
    """The reward has a base of 0.1 that hides the effects: without the guarantee this run stays on a wrong subset."""
    rng = np.random.default_rng(6001)
    p = rng.uniform(0, 0.2, 24)
    p[rng.choice(24, 6, replace=False)] = rng.uniform(0.5, 1, 6)
    policy = ThompsonGuaranteed(24, 4, seed=6001)
    play(policy, lambda subsets: 0.1 + 0.9 * p[subsets].prod(axis=1), 10**6, rng)
    assert policy.best() == tuple(sorted(np.argsort(-p)[:4].tolist()))


def test_what_is_played_in_the_meantime_is_the_best() -> None:
    policy = play(ThompsonGuaranteed(6, 2, seed=1), MAXIMUM.value, 500, np.random.default_rng(1))
    asked = [policy.ask() for _ in range(policy.plan().plays + 3)]
    assert asked[-3:] == [policy.best()] * 3
    with pytest.raises(BadInput, match="not in the plan"):
        policy.tell_total((0, 1), 1000, 1.0)


def test_what_has_no_guarantee_is_refused() -> None:
    with pytest.raises(BadInput, match="thompson-guaranteed does not take half_life"):
        kofn.make_policy("thompson-guaranteed", 6, 2, half_life=100)
    with pytest.raises(BadInput, match="thompson-guaranteed needs a fixed set of arms"):
        ThompsonGuaranteed(6, 2).with_arms(range(5))
    with pytest.raises(BadInput, match="thompson-guaranteed cannot change reward_range"):
        ThompsonGuaranteed(6, 2).with_params(reward_range=(0, 2))


def test_a_guarantee_is_kept() -> None:
    p = np.linspace(0.1, 0.9, 40)
    policy = ThompsonGuaranteed(40, 3, seed=1)
    play(policy, lambda subsets: p[subsets].mean(axis=1), 3000, np.random.default_rng(1))
    again = kofn.restore(json.loads(json.dumps(kofn.save(policy))))
    assert list(again.plan()) == list(policy.plan())
    assert again.state() == policy.state()


@for_each(
    "name, value",
    [
        ("pivot", 6),
        ("pivots", 0),
        ("compared", 10**9),
        ("gain", [-1e9] * 6),
        ("variance", [-1.0] * 6),
        ("count", [1] * 5),
        ("status", [1] * 6),
        ("level", 2.0),
    ],
)
def test_an_invalid_guarantee_is_refused(name: str, value: Any) -> None:
    policy = play(ThompsonGuaranteed(6, 2, seed=1), MAXIMUM.value, 1000, np.random.default_rng(1))
    before = policy.state()
    assert before["pivot"] >= 0
    with pytest.raises(BadRecord):
        policy.load({**before, name: value})
    assert policy.state() == before


@pytest.mark.parametrize("seed", range(2))
def test_the_order_in_which_rewards_arrive_proves_nothing(seed: int) -> None:
    """All arms are equal, and of each plan the rewards of 1 are told before those of 0.

    Comparison rows have subsets that other rows have too. If they were filled by the rewards that come last, arms would
    be proved different within 12,000 plays in most runs.
    """
    policy, rng = ThompsonGuaranteed(6, 2, seed=seed), np.random.default_rng(seed)
    while policy.plays < 15_000:
        asked = [policy.ask() for _ in range(policy.plan().plays)]
        rewards = (rng.random(len(asked)) < 0.5).astype(float)
        for index in np.argsort(-rewards, kind="stable"):
            policy.tell(asked[index], rewards[index])
            assert [len(arms) for arms in policy._proved()] == [0, 0]


def test_equal_rewards_are_compared_too() -> None:
    """Before two different rewards are seen there is no model, but comparisons need none."""
    policy = ThompsonGuaranteed(6, 2, seed=1)
    while policy.plays < 5_000:
        plan = policy.plan()
        policy.tell_plan(Tally(plan.times, np.zeros(len(plan)), np.zeros(len(plan))))
    assert policy._compared > 300


@pytest.mark.parametrize(("n_arms", "comparability"), [(257, 1.0), (12, 0.5), (12, math.nan)])
def test_a_bound_that_is_not_proved_is_refused(n_arms: int, comparability: float) -> None:
    with pytest.raises(BadInput, match=r"at most 256 arms|must be at least 1"):
        regret_bound(n_arms, 3, 10**6, comparability=comparability)
