"""The guarantee: intervals that cover, subsets that are mended, random plays as many as were promised."""

import itertools
import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kofn
from kofn import BadInput, BadRecord, Bernoulli, Problem, Tally, Thompson
from kofn.policies.thompson.guarantee import Guarantee, random_plays

MAXIMUM = Problem(Bernoulli([0.1, 0.3, 0.5, 0.6, 0.8, 0.9]), "maximum", 2)


def play(policy: Thompson, problem: Problem, plays: int, seed: int = 1) -> Thompson:
    rng = np.random.default_rng(seed)
    while policy.plays < plays:
        plan = policy.plan()
        policy.tell_plan(problem.play(plan.subsets, plan.times, rng))
    return policy


def certified(low: Any, high: Any) -> Guarantee:
    """A guarantee with these bounds, up to how they are made."""
    guarantee = Guarantee.blank(len(low))
    guarantee.bounds = lambda plays: (np.asarray(low, float), np.asarray(high, float))  # type: ignore[method-assign]
    return guarantee


def test_intervals_cover_the_averages_over_random_subsets() -> None:
    """At all times together, in all but one run of a hundred: of 400 runs, 10 may fail if it is one of a hundred."""
    pairs = list(itertools.combinations(range(6), 2))
    values = MAXIMUM.value(pairs)
    truth = np.array([np.mean([v for v, pair in zip(values, pairs, strict=True) if arm in pair]) for arm in range(6)])
    failures, rng, horizon = 0, np.random.default_rng(3), 100
    for _ in range(400):
        guarantee = Guarantee.blank(6)
        subsets = guarantee.subsets(horizon, 2, rng)
        rewards = MAXIMUM.play(subsets, np.ones(horizon, np.int64), rng)
        failed = False
        for start in range(0, horizon, 10):
            part = slice(start, start + 10)
            guarantee.learn(subsets[part], Tally(rewards.count[part], rewards.total[part], rewards.squares[part]))
            low, high = guarantee.bounds(horizon)
            failed |= bool(((truth < low) | (truth > high)).any())
        failures += failed
    assert failures <= 10
    assert guarantee.credit.means == pytest.approx(truth, abs=0.45)
    assert (high - low < 1.5).all()  # they say something


@pytest.mark.parametrize("plays", [2, 100, 10**6])
def test_hoeffding_over_all_arms_and_all_times_leaves_one_part_in_so_many_plays(plays: int) -> None:
    guarantee = Guarantee.blank(5)
    guarantee.credit.count[:] = [0, 1, 7, 100, 10**5]
    low, high = guarantee.bounds(plays)
    assert (low[0], high[0]) == (-math.inf, math.inf)
    for n, radius in zip(guarantee.credit.count[1:].tolist(), ((high - low) / 2)[1:].tolist(), strict=True):
        once = 2 * math.exp(-2 * n * radius**2)
        assert once * 5 * plays == pytest.approx(1 / plays)


def test_random_subsets_are_all_equally_likely() -> None:
    subsets = Guarantee.blank(6).subsets(15_000, 2, np.random.default_rng(1))
    seen = Counter(map(tuple, subsets.tolist()))
    assert set(seen) == set(itertools.combinations(range(6), 2))
    assert max(abs(n - 1000) for n in seen.values()) < 5 * math.sqrt(1000)


bounds = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted), min_size=3, max_size=9)


@settings(deadline=None, derandomize=True)
@given(bounds, st.data())
def test_a_mended_subset_has_no_arm_worse_than_one_outside(limits: list[list[int]], data: st.DataObject) -> None:
    low, high = map(list, zip(*limits, strict=True))
    arms = list(range(len(limits)))
    subset = sorted(data.draw(st.permutations(arms))[: data.draw(st.integers(1, len(arms) - 1))])
    [mended] = certified(low, high).corrected(np.array([subset]), 10).tolist()
    assert len(set(mended)) == len(subset)
    assert mended == sorted(mended)
    outside = [arm for arm in arms if arm not in mended]
    assert all(high[arm] >= low[other] for arm in mended for other in outside)
    gone = set(subset) - set(mended)
    assert all(any(high[arm] < low[other] for other in set(mended) - set(subset)) for arm in gone)  # none without cause


def test_nothing_certified_nothing_mended() -> None:
    subsets = np.array([[0, 1], [2, 3]])
    assert Guarantee.blank(4).corrected(subsets, 10) is subsets
    mended = certified([0.0, 0.0, 0.5, 0.7], [0.4, 0.4, 0.8, 0.9]).corrected(subsets, 10)
    assert mended.tolist() == [[2, 3], [2, 3]]


def test_the_random_plays_are_those_that_were_promised() -> None:
    policy = Thompson(6, 2, guarantee=True, seed=1)
    play(policy, MAXIMUM, 3)
    first = random_plays(policy.state()["learned"])
    for plays in (1000, 10_000, 60_000):
        play(policy, MAXIMUM, plays)
        state = policy.state()
        done = sum(state["guarantee"]["count"]) // 2
        assert state["learned"] == policy.plays
        assert done == math.ceil(policy.plays ** (2 / 3) / 20) - first


def test_only_random_plays_certify() -> None:
    """If each random play earns 1/4 and all others 3/4, every arm's average is 1/4."""
    policy = Thompson(6, 2, guarantee=True, seed=1)
    random = 0
    while policy.plays < 3000:
        plan = policy.plan()
        new = random_plays(policy.plays + plan.plays) - random_plays(policy.plays) if policy.updates else 0
        assert plan.times[len(plan) - new :].tolist() == [1] * new
        reward = np.where(np.arange(len(plan)) >= len(plan) - new, 0.25, 0.75)
        policy.tell_plan(Tally(plan.times, reward * plan.times, reward**2 * plan.times))
        random += new
    credit = policy.state()["guarantee"]
    assert random > 5
    assert sum(credit["count"]) == 2 * random
    assert credit["total"] == pytest.approx(0.25 * np.array(credit["count"]))


def test_no_plan_contradicts_the_guarantee() -> None:
    """The posterior prefers arms 0 and 1; the guarantee proves that arm 5 beats arm 0, so 5 replaces 0 everywhere."""
    policy = Thompson(6, 2, guarantee=True, seed=1)
    play(policy, Problem(Bernoulli([0.9, 0.8, 0.1, 0.1, 0.1, 0.1]), "mean", 2), 4000)
    assert policy.best() == (0, 1)
    state = policy.state()
    state["observed"] = {name: [] for name in state["observed"]}
    state["guarantee"] = {"count": [4000] * 6, "total": [400.0, 2000.0, 2000.0, 2000.0, 2000.0, 3600.0]}
    policy.load(state)
    assert policy.best() == (1, 5)
    plan = policy.plan()
    random = random_plays(policy.plays + plan.plays) - random_plays(policy.plays)
    for subset, _ in list(plan)[: len(plan) - random]:
        assert 5 in subset
        assert 0 not in subset
    assert policy.ask() in dict(plan)


def test_it_still_finds_the_best() -> None:
    for seed in range(3):
        assert play(Thompson(6, 2, guarantee=True, seed=seed), MAXIMUM, 20_000, seed).best() == (4, 5)


def test_what_is_played_in_the_meantime_is_the_best() -> None:
    policy = play(Thompson(6, 2, guarantee=True, seed=1), MAXIMUM, 500)
    asked = [policy.ask() for _ in range(policy.plan().plays + 3)]
    assert asked[-3:] == [policy.best()] * 3
    with pytest.raises(BadInput, match="not in the plan"):
        policy.tell_total((0, 1), 1000, 1.0)


def test_what_has_no_guarantee_is_refused() -> None:
    with pytest.raises(BadInput, match=r"guarantee=True or half_life="):
        Thompson(6, 2, guarantee=True, half_life=100)
    with pytest.raises(BadInput, match="guarantee must be True or False, not 1"):
        Thompson(6, 2, guarantee=1)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="a guarantee needs a fixed set of arms"):
        Thompson(6, 2, guarantee=True).with_arms(range(5))


def test_a_guarantee_is_kept() -> None:
    problem = Problem(Bernoulli(np.linspace(0.1, 0.9, 40)), "mean", 3)
    policy = play(Thompson(40, 3, guarantee=True, seed=1), problem, 5000)
    again = kofn.restore(json.loads(json.dumps(kofn.save(policy))))
    assert list(again.plan()) == list(policy.plan())
    assert again.state() == policy.state()
    assert "guarantee" not in Thompson(40, 3).state()


@pytest.mark.parametrize(
    "guarantee",
    [None, {}, {"count": [1] * 6, "total": [9.0] * 6}, {"count": [1] * 5, "total": [0.5] * 5}],
)
def test_an_invalid_guarantee_is_refused(guarantee: Any) -> None:
    policy = play(Thompson(6, 2, guarantee=True, seed=1), MAXIMUM, 500)
    before = policy.state()
    with pytest.raises(BadRecord):
        policy.load({**before, "guarantee": guarantee})
    assert policy.state() == before
