"""What every policy keeps to, whoever wrote it. A new policy is found by its name; nothing is to be added here.

Its golden results are stored by `python -m tests.policies.golden`.
"""

import copy
import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import Policy, Tally
from kofn.core import Subset
from kofn.policies.registry import POLICIES, make_policy
from tests.constraints.tools import KINDS
from tests.policies import golden

N, K, HORIZON = 9, 3, 3_000_000
WORTH = np.array([3, 14, 7, 9, 1, 12, 5, 16, 10]) / 16  # sums of 16ths are exact, however they are added up
BEST = (1, 5, 7)


@pytest.fixture(autouse=True)
def _short_horizons_are_fine() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kofn.ShortHorizonWarning)
        yield


def make(
    name: str, n_arms: int = N, k: int = K, best: Subset | None = BEST, horizon: int = HORIZON, **params: Any
) -> Policy:
    """A policy of that name, told what it needs to be told."""
    if "best" in POLICIES[name].needs:
        params["best"] = best or range(k)
    return make_policy(name, n_arms=n_arms, k=k, horizon=horizon, seed=5, **params)


@pytest.fixture(params=sorted(POLICIES))
def policy(request: pytest.FixtureRequest) -> Policy:
    return make(request.param)


def worth_of(subsets: Any) -> Any:
    """What each arm earns without noise; an empty place (-1) earns nothing."""
    subsets = np.asarray(subsets).astype(int)
    return np.where(subsets >= 0, WORTH[subsets], 0.0)


def mean_of(subsets: Any) -> Any:
    """The reward without noise: the mean worth, as 16ths (the mean of three is rounded down to one)."""
    return np.floor(worth_of(subsets).sum(axis=-1) * 16) / 64


def earned(policy: Policy, times: Any = None) -> Tally:
    """What the policy's plan earns: the remaining plays of each row, or `times`."""
    plan = policy.plan()
    times = np.array(plan.times if times is None else times)
    reward = mean_of(plan.subsets)
    arms = worth_of(plan.subsets) * times[:, None] if "arms" in policy.needs else None
    return Tally(times, reward * times, reward**2 * times, arms)


def tell(policy: Policy, subset: Subset) -> None:
    policy.tell(subset, mean_of(subset), **({"arms": worth_of(subset)} if "arms" in policy.needs else {}))


def advance(policy: Policy, plans: int) -> None:
    for _ in range(plans):
        policy.tell_plan(earned(policy))


def test_a_plan_is_of_k_different_arms_in_range(policy: Policy) -> None:
    """Or of fewer, with empty places at the end, if the policy says that it needs that."""
    for _ in range(20):
        plan = policy.plan()
        assert plan.subsets.shape == (len(plan), K)
        for row in plan.subsets.astype(int):
            arms = row[: np.count_nonzero(row >= 0)]
            assert len(arms) == K or ("fewer" in policy.needs and len(arms) > 0 and (row[len(arms) :] == -1).all())
            assert (np.diff(arms) > 0).all()
        assert plan.subsets.max() < N
        assert (plan.times > 0).all()
        assert len(policy.best()) == K
        advance(policy, 1)


def test_planning_twice_is_planning_once(policy: Policy) -> None:
    for _ in range(10):
        before = policy.state()
        first, second = policy.plan(), policy.plan()
        assert list(first) == list(second)
        assert policy.state() == before
        advance(policy, 1)


def test_halves_of_a_batch_equal_the_whole(policy: Policy) -> None:
    whole, halves = policy, copy.deepcopy(policy)
    for _ in range(10):
        plan = whole.plan()
        whole.tell_plan(earned(whole))
        half = plan.times // 2
        halves.tell_plan(earned(halves, half))
        assert list(halves.plan().times) == list(plan.times - half)
        halves.tell_plan(earned(halves))
        assert halves.state() == whole.state()


def test_asking_and_telling_one_by_one_equals_the_whole(policy: Policy) -> None:
    whole, single = policy, copy.deepcopy(policy)
    while whole.plays < 2000 and whole.plan().plays < 4000:
        plan = whole.plan()
        whole.tell_plan(earned(whole))
        asked = [single.ask() for _ in range(plan.plays)]
        assert sorted(asked) == sorted(subset for subset, n in plan for _ in range(n))
        for subset in reversed(asked):  # rewards may come in any order
            tell(single, subset)
        assert single.state() == whole.state()


def test_nobody_waits_when_all_of_a_plan_is_out(policy: Policy) -> None:
    if (plays := policy.plan().plays) > 10_000:
        pytest.skip("the first plan is the policy's last")
    asked = [policy.ask() for _ in range(plays + 5)]
    assert policy.accepts_unplanned or asked[plays:] == [policy.best()] * 5
    for subset in asked:
        tell(policy, subset)
    assert policy.plays == plays + 5


def test_what_was_lost_can_be_wanted_again(policy: Policy) -> None:
    plan = policy.plan()
    first = [policy.ask() for _ in range(min(50, plan.plays))]
    policy.release()
    assert [policy.ask() for _ in first] == first


def test_a_wrong_tally_is_refused_and_changes_nothing(policy: Policy) -> None:
    advance(policy, 2)
    plan = policy.plan()
    before = policy.state()
    right = earned(policy)
    nan = np.full(len(plan), np.nan)
    wrong = [
        replace(right, count=right.count + 1),
        replace(right, count=-right.count),
        replace(right, total=right.total + 2.0 * right.count),
        replace(right, total=nan),
        replace(right, squares=nan),
        replace(right, squares=0 * right.squares),
        replace(
            right,
            count=np.append(right.count, 1),
            total=np.append(right.total, 0.5),
            squares=np.append(right.squares, 0.25),
        ),
        Tally.zeros(0),
    ]
    if right.arms is not None:
        wrong += [replace(right, arms=arms) for arms in (None, right.arms + right.count.max(), right.arms[:, 1:])]
        wrong += [replace(right, arms=right.arms + np.nan)]
    for tally in wrong:
        with pytest.raises(kofn.BadInput):
            policy.tell_plan(tally)
        assert policy.state() == before
    for subset, reward in [
        ((0, 1), 0.5),
        ((0, 1, 1), 0.5),
        ((0, 1, N), 0.5),
        (policy.ask(), 1.5),
        (policy.ask(), np.nan),
    ]:
        with pytest.raises(kofn.BadInput):
            policy.tell(subset, reward, arms=[0.5] * len(subset))
        assert policy.state() == before


def test_saved_as_json_and_restored_it_plays_the_same(policy: Policy) -> None:
    for step in range(12):
        plan = policy.plan()
        policy.tell_plan(earned(policy, plan.times // (2 + step % 3)))
        text = json.dumps(kofn.save(policy), allow_nan=False)
        restored = kofn.restore(json.loads(text))
        assert list(restored.plan()) == list(policy.plan())
        assert restored.best() == policy.best()
        assert json.dumps(kofn.save(restored), allow_nan=False) == text
        policy.tell_plan(earned(policy))
        restored.tell_plan(earned(restored))
        assert restored.state() == policy.state()
        policy = restored


def test_a_state_is_a_fresh_copy(policy: Policy) -> None:
    advance(policy, 1)
    before = json.dumps(policy.state())
    spoil(policy.state())
    assert json.dumps(policy.state()) == before


def spoil(value: Any) -> None:
    if isinstance(value, dict):
        for each in value.values():
            spoil(each)
        value.clear()
    elif isinstance(value, list):
        for each in value:
            spoil(each)
        value.clear()


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(policy: Policy) -> None:
    advance(policy, 1)
    before, state = json.dumps(policy.state()), policy.state()
    other = make(policy.name, n_arms=N + 4, k=K + 1, best=None)
    wrong: list[Any] = [{}, {**state, "observed": {}}, {**state, "plays": -1}, other.state(), [], None]
    wrong += [{**state, name: None} for name in state if state[name] is not None]
    for each in wrong:
        with pytest.raises(kofn.BadRecord):
            policy.load(each)
        assert json.dumps(policy.state()) == before


def numbers_in(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(numbers_in, value.values()))
    return sum(map(numbers_in, value)) if isinstance(value, list) else 1


@pytest.mark.parametrize("name", sorted(name for name, policy in POLICIES.items() if policy.linear_memory))
@pytest.mark.parametrize("k", [2, 40])
def test_the_state_is_linear_in_n(name: str, k: int) -> None:
    n_arms = 4000  # thompson has 33,000 numbers beside those that grow with N: the covariance of 256 contenders
    policy = make(name, n_arms=n_arms, k=k, best=None, horizon=10**9)
    rng = np.random.default_rng(7)
    for _ in range(30):
        plan = policy.plan()
        count = (plan.times + 1) // 2
        total = rng.binomial(count, 0.5).astype(float)
        arms = rng.binomial(count[:, None], np.full(k, 0.5)).astype(float) if "arms" in policy.needs else None
        policy.tell_plan(Tally(count, total, total, arms))
        assert numbers_in(policy.state()) <= 16 * n_arms + 100


def test_without_noise_it_ends_in_the_true_best(policy: Policy) -> None:
    if not policy.consistent:
        pytest.skip("it does not say that it does")
    while policy.plays < HORIZON:
        advance(policy, 1)
    assert policy.best() == BEST


def test_minimising_is_maximising_what_is_left(policy: Policy) -> None:
    mirrored = make(policy.name, reward_range=(0, 64), direction="minimize")
    for _ in range(20):
        plan = policy.plan()
        assert list(plan) == list(mirrored.plan())
        rewards = earned(policy)
        policy.tell_plan(rewards)
        flipped = 64 * (rewards.count - rewards.total)
        squares = 64**2 * (rewards.count - 2 * rewards.total + rewards.squares)
        arms = None if rewards.arms is None else 64 * (rewards.count[:, None] - rewards.arms)
        mirrored.tell_plan(Tally(rewards.count, flipped, squares, arms))
        assert mirrored.best() == policy.best()


def test_the_same_seed_gives_the_same_policy(policy: Policy) -> None:
    again = make(policy.name)
    for _ in range(10):
        assert list(again.plan()) == list(policy.plan())
        advance(policy, 1)
        advance(again, 1)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_it_plays_as_its_version_does(name: str) -> None:
    assert golden.complaint(name, golden.load()) == ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(POLICIES))
def test_it_obeys_rules_or_refuses_them(name: str, kind: str) -> None:
    rules, of = KINDS[kind], POLICIES[name]
    best = tuple(rules.allowed(N, K).top(WORTH).tolist())
    if of.takes_constraints == "none" or (of.takes_constraints == "fixed" and kind != "fixed"):
        with pytest.raises(
            kofn.BadInput, match=r"does not take constraints: |takes only rules that say which arms are"
        ):
            make(name, best=best, constraints=rules)
        return
    policy = make(name, best=best, constraints=rules)
    assert policy.constraints == rules
    for _ in range(12):
        assert rules.allows(policy.plan().subsets, N, K).all()
        assert rules.allows([policy.best(), *(policy.filler(index) for index in range(20))], N, K).all()
        advance(policy, 1)
        again = kofn.restore(json.loads(json.dumps(kofn.save(policy))))
        assert again.constraints == rules
        assert again.state() == policy.state()
        assert list(again.plan()) == list(policy.plan())
