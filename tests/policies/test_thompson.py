"""Thompson sampling one swap at a time: right answers, linear memory, late rewards, drift, insight, other arms."""

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

import kofn
from kofn import BadInput, BadRecord, Bernoulli, Plan, Policy, Problem, Tally, Thompson, simulate
from kofn.core import Subset
from kofn.lab.rivals import DART
from kofn.lab.settings import Setting
from kofn.policies.thompson.noise import Noise, Range
from kofn.policies.thompson.policy import Goal
from kofn.policies.thompson.posterior import Posterior
from tests.cases import for_each

Values = Callable[[Any], Any]
"""The mean reward of each row of subsets."""


def earn(policy: Policy, values: Values, plays: int, rng: np.random.Generator | None = None) -> float:
    """Play on until so many plays are told, without noise or with that of a coin; what was earned on average."""
    start, earned = policy.plays, 0.0
    while policy.plays < plays:
        plan = policy.plan()
        value = values(plan.subsets)
        total = plan.times * value if rng is None else rng.binomial(plan.times, value).astype(float)
        policy.tell_plan(Tally(plan.times, total, total * value if rng is None else total))
        earned += float(plan.times @ value)
    return earned / max(1, policy.plays - start)


def always(reward: float, times: Any) -> Tally:
    return Tally(times, reward * times, reward**2 * times)


def mean_of(p: Any) -> Values:
    return lambda subsets: np.asarray(p)[subsets].mean(axis=1)


# Right answers.

REWARDS: dict[str, Callable[[Any], Any]] = {
    "mean": lambda worth: worth.mean(axis=1),
    "maximum": lambda worth: 1 - (1 - worth).prod(axis=1),
    "minimum": lambda worth: worth.prod(axis=1),
    "faint": lambda worth: 0.3 + 1e-4 * worth.sum(axis=1),
}


def left_to_gain(reward: str, n_arms: int, k: int, plays: int = 30_000, seed: int = 1) -> float:
    """How much less than the best K the policy's best has after so many plays, in parts of what a random K has less."""
    worth = np.random.default_rng([n_arms, k]).permutation(np.linspace(0.05, 0.95, n_arms))
    policy = Thompson(n_arms, k, seed=seed)
    earn(policy, lambda subsets: REWARDS[reward](worth[subsets]), plays)
    some = np.array([np.argsort(-worth)[:k], policy.best(), *(np.arange(k) + i for i in range(n_arms - k + 1))])
    best, ours, *others = REWARDS[reward](worth[some])
    return float((best - ours) / (best - np.mean(others)))


SIZES_OF = {  # each size with two of the three rewards
    "mean": [(2, 1), (9, 3), (32, 4), (100, 2)],
    "maximum": [(9, 3), (9, 8), (45, 4), (100, 2)],
    "minimum": [(2, 1), (9, 8), (32, 4)],
    "faint": [(2, 1), (9, 3), (9, 8), (32, 4)],
}
CASES = [(reward, n_arms, k) for reward, sizes in SIZES_OF.items() for n_arms, k in sizes]


def test_without_noise_it_ends_in_the_best() -> None:
    """Of 20 other seeds of each case, none ended beside it. Which ones would depends on the processor, as matrix
    products are rounded differently: one of 30 is allowed."""
    missed = {case: sum(left_to_gain(*case, seed=seed) > 0.001 for seed in (1, 2)) for case in CASES}
    assert sum(missed.values()) <= 1, missed


def test_without_noise_no_arm_falls_out_of_reach() -> None:
    """The incumbent always earns the most that was seen: in log odds, its arms gain on all others without limit."""
    policy = Thompson(100, 2, seed=1)
    earn(policy, mean_of(np.random.default_rng(1).permutation(np.linspace(0.05, 0.95, 100))), 30_000)
    found = policy._posterior
    ahead = found.mean[found.incumbent].min() - found.mean.mean()
    assert 1.5 < ahead <= policy.constants.reach * math.sqrt(found.prior_variance) * (1 + 1e-9)


@pytest.mark.parametrize(("n_arms", "k"), [(100, 2)])
def test_faint_effects_without_noise_are_found_among_many_arms(n_arms: int, k: int) -> None:
    """One step in the order of arms is 0.0102: of 4,950 pairs, it ends in one of the best four."""
    assert left_to_gain("faint", n_arms, k, 300_000) < 0.0206


@pytest.mark.parametrize(
    "family", ["mean", "max", *(pytest.param(family, marks=pytest.mark.slow) for family in ("min", "threshold"))]
)
def test_a_third_of_darts_regret_on_the_same_instances(family: str) -> None:
    """DART is told the horizon. The sketches had a tenth of its regret or less: a third leaves room for luck."""
    lost: dict[type[Policy], list[float]] = {DART: [], Thompson: []}
    for seed in range(3):
        problem = Setting(family, 12, 3).problem(2024 + seed)
        for policy in (DART(12, 3, 10**5), Thompson(12, 3, seed=seed)):
            lost[type(policy)].append(simulate(policy, problem, 10**5, seed=seed).regret)
    assert np.mean(lost[Thompson]) < np.mean(lost[DART]) / 3
    assert max(lost[Thompson]) < np.mean(lost[DART])  # and no run is lost


def test_first_rewards_that_are_close_by_chance_do_not_end_exploration() -> None:
    """Here the rewards of the first plan span a thirtieth of the range, and they set the prior: regret was 2,607."""
    problem = Setting("cross-selling", 24, 11).problem(91008)
    assert simulate(Thompson(24, 11, seed=77008), problem, 10**5, seed=5008).regret < 600


def test_a_range_ten_times_too_wide_costs_little() -> None:
    """The noise is learned. Until as many plays as one over its variance (of rewards in [0, 0.1], 100 / 0.06) are told
    it is taken for more than twice what it is; what these plays cost if they are all random is the most to lose."""
    regret, gaps = {}, []
    for high in (1, 10):
        runs = []
        for seed in range(3):
            problem = Problem(Bernoulli(np.random.default_rng([7, seed]).random(12)), "mean", 3)
            gaps.append(float(problem.optimum - problem.arms.mean.mean()))
            policy = Thompson(12, 3, seed=seed, reward_range=(0, high))
            runs.append(simulate(policy, problem, 20_000, seed=seed).regret)
        regret[high] = np.mean(runs)
    assert regret[10] < regret[1] + 100 / 0.06 * np.mean(gaps)
    assert regret[10] < 3 * regret[1]


def scale_after(rewards: list[float], k: int = 2, spread: float = 9.0) -> tuple[float, float]:
    """The prior variance of an effect, and the floor of the dispersion in 1e-5, after a first plan of three plays."""
    policy = Thompson(3 * k, k, seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Posterior, "learn", lambda *_: None)  # leave the prior as it is
        patch.setattr(Thompson, "constants", replace(Thompson.constants, spread=spread))
        policy.tell_plan(Tally.of([[reward] for reward in rewards]))
    return policy._posterior.prior_variance, policy._noise.floor / 1e-5


@for_each(
    "rewards, prior, floor",
    [
        # The range is that of the rewards: they are 0, 1/2 and 1 in it. With half a play of 1 and half a play of 0,
        # the mean m is 1/2 and m (1 - m) is 1/4. The squared deviations are 1/2, and 1/4 of the added play: a variance
        # of 3/16 for 2 arms, on log odds 3/32 / (1/4)^2 = 3/2 for each.
        ([0.25, 0.5, 0.75], 3 / 2, 3 / 4),
        ([0.0, 0.5, 1.0], 3 / 2, 3 / 4),
        ([0.0, 1.0, 1.0], 464 / 225, 29 / 30),  # m = 5/8, m (1 - m) = 15/64, deviations 43/64 + 15/64
        ([0.2, 0.3, 0.3], 464 / 225, 29 / 30),
    ],
)
def test_the_first_rewards_give_the_scale(rewards: list[float], prior: float, floor: float) -> None:
    assert scale_after(rewards) == pytest.approx((prior, floor))


def test_the_variance_of_the_first_rewards_is_shared_by_k_arms() -> None:
    assert [scale_after([0.0, 0.5, 1.0], k)[0] for k in (1, 2, 4, 20)] == pytest.approx([3, 3 / 2, 3 / 4, 3 / 20])
    limited = [scale_after([0.0, 0.5, 1.0], k, spread=1.5)[0] for k in (1, 2, 4, 20)]
    assert limited == pytest.approx([2.25, 2.25 / 2, 2.25 / 4, 2.25 / 20])


def test_without_two_different_rewards_all_arms_are_played_alike() -> None:
    """Nothing is known of their scale, so there is no incumbent; the first other reward starts the model."""
    policy = Thompson(12, 3, seed=1)
    counts = np.zeros(12)
    while policy.plays < 2_000:
        plan = policy.plan()
        np.add.at(counts, plan.subsets, plan.times[:, None])
        policy.tell_plan(always(0.25, plan.times))
    assert policy.insight() is None
    assert policy.best() == (0, 1, 2)
    assert counts.max() < 1.3 * counts.min()
    kofn.restore(json.loads(json.dumps(kofn.save(policy))))
    plan = policy.plan()
    reward = np.where(plan.subsets[:, 0] == 0, 0.5, 0.25)
    policy.tell_plan(Tally(plan.times, reward * plan.times, reward**2 * plan.times))
    assert 0 in policy.best()


@for_each("wide", [(-1.0, 1.0), (0.0, 100.0), (-99.0, 1.0), (-50.0, 50.0), (0.0, 2.0**60)])
def test_a_range_that_is_too_wide_changes_no_plan(wide: tuple[float, float]) -> None:
    """Coins have the same range in every declared range, up to rounding: the plays are the same."""
    problem = Problem(Bernoulli(np.random.default_rng(3).random(12)), "minimum", 3)
    exact, other = Thompson(12, 3, seed=1), Thompson(12, 3, seed=1, reward_range=wide)
    rng = np.random.default_rng(1)
    for _ in range(60):
        plan = exact.plan()
        assert other.plan().subsets.tolist() == plan.subsets.tolist()
        assert other.plan().times.tolist() == plan.times.tolist()
        tally = problem.play(plan.subsets, plan.times, rng)
        exact.tell_plan(tally)
        other.tell_plan(tally)
    assert exact.plays > 500


# Any time.


def test_no_horizon_is_asked_for() -> None:
    policy = Thompson(12, 3, seed=1)
    assert not policy.needs_horizon
    assert policy.params.keys() == {"n_arms", "k", "seed", "half_life", "reward_range", "direction"}
    assert kofn.make_policy("thompson", n_arms=12, k=3, horizon=10**6, seed=1).state() == policy.state()
    assert not policy.committed


def test_a_plan_does_not_more_than_double_what_is_known_of_a_swap() -> None:
    """K = 1: arm 0 is held, 1 is well known, 2 is hardly known, 3 not at all."""
    policy = Thompson(4, 1, seed=1)
    mean, variance, arms = np.array([0.0, -0.1, -1.0, 0.0]), np.array([1e-9, 0.01, 0.9, 9.0]), np.arange(4)
    policy._posterior = Posterior(arms[:1], 2.0, 9.0, 1.0, mean, variance, arms, np.diag([1e-9, *variance]))
    policy._noise = Noise(0.5, 1.0, 1e-9, Range(0.0, 1.0))
    few = math.ceil(0.5 / (0.9 * expit(1.0) * expit(-1.0)))
    planned = policy._limited(arms[1:, None], np.array([160, 100, 40]), 400)
    assert dict(planned) == {(1,): 160, (2,): few, (3,): 1, (0,): 400 - 160 - few - 1}
    without = policy._limited(arms[2:, None], np.array([100, 100]), 200)  # draws without the incumbent: it gets a row
    assert dict(without) == {(2,): few, (3,): 1, (0,): 200 - few - 1}
    assert dict(policy._limited(arms[2:, None], np.array([1, 1]), 2)) == {(2,): 1, (3,): 1}


def test_a_plan_is_a_tenth_of_the_plays_so_far_and_in_the_end_one_swap_from_the_incumbent() -> None:
    policy, p = Thompson(12, 3, seed=1), np.linspace(0.1, 0.9, 12)
    first = policy.plan()
    assert sorted(arm for subset, _ in first for arm in subset) == list(range(12))
    rng, told = np.random.default_rng(1), 0
    for turn in range(75):
        plan = policy.plan()
        assert plan.plays == max(4, told // 10)
        assert len(plan) <= 257
        if turn > 60:
            assert all(len(set(subset) - set(policy.best())) <= 1 for subset, _ in plan)
        told += plan.plays
        earn(policy, mean_of(p), told, rng)


# Linear memory.


@pytest.mark.parametrize("n_arms", [1000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_the_state_has_64_bytes_an_arm(n_arms: int) -> None:
    policy, rng = Thompson(n_arms, 10, seed=1), np.random.default_rng(1)
    for turn in range(6):
        plan = policy.plan()
        half = np.where(np.arange(len(plan)) % 2, plan.times, plan.times // 2)
        for part in (half, plan.times - half):
            if turn in (0, 1, 5) or n_arms < 20_000:
                assert len(json.dumps(policy.state())) <= 64 * n_arms + 210_000
            total = rng.binomial(part, 0.5).astype(float)
            if part.any():
                policy.tell_plan(Tally(part, total, total))
    assert policy.updates == 6


# Late rewards.


def test_late_rewards_cost_what_the_delay_must_cost_and_little_more() -> None:
    """Until the first reward comes, plays are random: delay times the mean gap. Then at most 1.3 times the regret."""
    delay, late, prompt, must = 2000, [], [], []
    for family, seed in itertools.product(("mean", "max"), range(2)):
        problem, rng = Setting(family, 12, 3).problem(500 + seed), np.random.default_rng(seed)
        gap = problem.gap(np.array([rng.permutation(12)[:3] for _ in range(2000)])).mean()
        must.append(delay * float(gap))
        late.append(simulate(Thompson(12, 3, seed=seed), problem, 20_000, seed=seed, delay=delay).regret)
        prompt.append(simulate(Thompson(12, 3, seed=seed), problem, 20_000, seed=seed).regret)
    assert np.mean(late) <= np.mean(must) + 1.3 * np.mean(prompt)


def test_what_is_played_while_a_plan_is_out_is_drawn_too() -> None:
    policy = Thompson(12, 3, seed=2)
    for learned in (0, 2000):  # the same policy: each plan has draws of its own
        earn(policy, mean_of(np.linspace(0.45, 0.55, 12)), learned, np.random.default_rng(1))
        plan = policy.plan()
        asked = [policy.ask() for _ in range(plan.plays + 300)][plan.plays :]
        counts = np.bincount(np.ravel(asked), minlength=12)
        if learned:
            assert len(set(asked)) > 10
        else:  # 256 random subsets of 220, each once, then again; every arm as often as every other
            different = len(set(asked))
            assert abs(different - 220 * (1 - math.exp(-256 / 220))) < 25
            assert asked[different:] == asked[: 300 - different]
            assert counts.max() - counts.min() <= 300 * 3 / 12 / 4
        again = kofn.restore(kofn.save(policy))
        assert [again.ask() for _ in range(plan.plays + 300)][plan.plays :] == asked
    policy.tell(asked[0], 1.0)
    assert policy.plays == policy.state()["learned"] + 1


def late_plays(policy: Thompson, plays: int, delay: int, *, lost: float = 0.0) -> Counter[Subset]:
    """Play with rewards that are late, or never arrive; return the planned plays whose rewards have not arrived.

    Only plays of plans that have ended count.
    """
    rng, p = np.random.default_rng(7), np.linspace(0.1, 0.9, policy.n_arms)
    waiting: list[tuple[Subset, bool]] = []
    ended: Counter[Subset] = Counter()
    for _ in range(plays):
        now = policy._open_plan
        handed_out = now.fillers_handed_out
        subset = policy.ask()
        waiting.append((subset, now.fillers_handed_out == handed_out))
        if len(waiting) > delay:
            told, _ = waiting.pop(0)
            if rng.random() >= lost:
                policy.tell(told, float(rng.random() < p[list(told)].mean()))
        if policy._open_plan is not now:
            ended = Counter(subset for subset, planned in waiting if planned)
    return ended


def test_planned_plays_whose_rewards_are_late_are_counted_as_in_flight() -> None:
    policy = Thompson(8, 2, seed=3)
    ended = late_plays(policy, 2000, 300)
    known = policy._in_flight
    assert ended.total() > 200
    assert known.count.sum() == pytest.approx(ended.total(), rel=0.25)  # fillers of the same subsets are not told apart
    found = dict(zip(map(tuple, known.subsets.tolist()), known.count.tolist(), strict=True))
    (most, _), *_ = ended.most_common()
    assert found[most] == pytest.approx(ended[most], rel=0.25)


def test_plays_in_flight_narrow_the_draws_of_the_next_plan_and_move_no_mean() -> None:
    policy = Thompson(8, 2, seed=3)
    late_plays(policy, 2000, 300)
    before, expected = policy._posterior, policy._expected()
    assert expected.mean == pytest.approx(before.mean)
    assert expected.level == pytest.approx(before.level)
    assert (expected.variance < before.variance).all()
    assert (policy._posterior.variance == before.variance).all()


def test_without_delay_nothing_is_in_flight() -> None:
    policy = Thompson(8, 2, seed=3)
    late_plays(policy, 500, 0)
    policy.tell_total((0, 1), 200, 100.0)  # plays that nobody asked for
    assert len(policy._in_flight) == 0
    assert "in_flight" not in policy.state()


@pytest.mark.parametrize("lost", [0.5, 0.9])
def test_rewards_that_never_arrive_block_nothing(lost: float) -> None:
    """What is in flight counts at most as much as what was learned; the policy finds the best subset all the same."""
    policy = Thompson(8, 2, seed=3)
    late_plays(policy, int(3000 / (1 - lost)), 100, lost=lost)
    assert policy._in_flight.count.sum() <= policy.state()["learned"]
    assert policy.best() == (6, 7)


def test_what_is_in_flight_is_kept_and_fades_with_the_half_life() -> None:
    for half_life in (None, 500):
        policy = Thompson(8, 2, half_life=half_life, seed=3)
        late_plays(policy, 2000, 300)
        again = kofn.restore(kofn.save(policy))
        assert isinstance(again, Thompson)
        assert again.state() == policy.state()
        assert again._in_flight.count.tolist() == policy._in_flight.count.tolist()
        assert again.plan().subsets.tolist() == policy.plan().subsets.tolist()
        before = policy._in_flight.count.copy()
        policy._forget(1.0)
        assert policy._in_flight.count == pytest.approx(before / 2)


@contextmanager
def overheard(policies: type[Thompson] = Thompson) -> Iterator[list[tuple[int, float, float]]]:
    """What reaches `_learn`: of each plan, the plays, the rewards and the squares that were told."""
    heard: list[tuple[int, float, float]] = []
    learn = policies._learn

    def listening(self: Thompson, plan: Plan, tally: Tally) -> None:
        assert tally.count.tolist() == plan.times.tolist()
        heard.append((int(tally.count.sum()), float(tally.total.sum()), float(tally.squares.sum())))
        learn(self, plan, tally)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policies, "_learn", listening)
        yield heard


WHAT = ["ask", "ask", "tell", "tell", "plan", "total", "other", "reload", "lose"]


@settings(max_examples=25)
@given(st.data())
def test_every_play_that_is_told_is_learned_once(data: st.DataObject) -> None:
    """Many workers, rewards out of order, parts of plans, totals and unplanned plays; with reloads in between."""
    n_arms, k = data.draw(st.sampled_from([(4, 2), (40, 3)]))
    policy: Policy = Thompson(n_arms, k, seed=data.draw(st.integers(0, 5)))
    subsets = st.permutations(range(n_arms)).map(lambda arms: tuple(sorted(arms[:k])))
    flying: list[Subset] = []
    told = np.zeros(3)
    with overheard() as heard:
        for _ in range(data.draw(st.integers(1, 30))):
            what = data.draw(st.sampled_from(WHAT))
            reward = data.draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))
            if what == "ask":
                flying += [policy.ask() for _ in range(data.draw(st.integers(1, 20)))]
            elif what == "tell":
                for _ in range(data.draw(st.integers(0, len(flying)))):
                    policy.tell(flying.pop(data.draw(st.integers(0, len(flying) - 1))), reward)
                    told += 1, reward, reward**2
            elif what == "plan":
                times = policy.plan().times // data.draw(st.integers(1, 3))
                policy.tell_plan(always(reward, times))
                told += times.sum() * np.array([1, reward, reward**2])
            elif what == "total":
                n = data.draw(st.integers(1, 50))
                policy.tell_total(data.draw(subsets), n, n * reward, n * reward**2)
                told += n * np.array([1, reward, reward**2])
            elif what == "other":
                policy.tell(data.draw(subsets), reward)
                told += 1, reward, reward**2
            elif what == "reload":
                policy = kofn.restore(json.loads(json.dumps(kofn.save(policy))))
            else:
                policy.release()
            state = policy.state()
            pending = np.array([[sum(state["observed"][name]) for name in ("count", "total", "squares")]])
            others = np.array([sums for _, *sums in state["unplanned"]]).reshape(-1, 3)
            known = np.array(heard).reshape(-1, 3).sum(axis=0) + pending[0] + others.sum(axis=0)
            assert known == pytest.approx(told)
            assert policy.plays == told[0] == state["learned"] + pending[0, 0] + others[:, 0].sum()
            assert state["updates"] == len(heard)


def test_plays_of_others_teach_as_much_as_its_own() -> None:
    """A log of random subsets, told as totals before anything was asked for."""
    p, rng = np.linspace(0.1, 0.9, 10), np.random.default_rng(1)
    policy = Thompson(10, 2, seed=1)
    for _ in range(400):
        subset = tuple(sorted(rng.permutation(10)[:2].tolist()))
        policy.tell_total(subset, 20, float(rng.binomial(20, p[list(subset)].mean())))
    assert policy.plays == 8000
    assert policy.best() == (8, 9)


# Drift.


def turning(half_life: int | None, seed: int) -> tuple[float, Subset]:
    """What is earned in the 20,000 plays after a problem has turned round, and the best subset then."""
    p, rng = np.linspace(0.1, 0.9, 10), np.random.default_rng(seed)
    policy = Thompson(10, 2, seed=seed, half_life=half_life)
    earn(policy, mean_of(p), 20_000, rng)
    assert set(policy.best()) <= {7, 8, 9}
    return earn(policy, mean_of(p[::-1]), 40_000, rng), policy.best()


def test_a_half_life_finds_what_is_best_after_a_change() -> None:
    """The best two earn 0.86, the old ones 0.14. Ten half-lives later it has found them, and has lost less on the way
    than without one."""
    forgetful, best = turning(2000, 0)
    assert best == (0, 1)
    assert forgetful > 0.75
    assert turning(None, 0)[0] < forgetful


def test_plans_are_not_longer_than_a_tenth_of_the_half_life() -> None:
    policy = Thompson(10, 2, seed=1, half_life=500)
    sizes = []
    for _ in range(80):
        sizes.append(policy.plan().plays)
        earn(policy, mean_of(np.linspace(0.1, 0.9, 10)), policy.plays + 1, np.random.default_rng(1))
    assert max(sizes) == sizes[-1] == 50


def test_a_half_life_forgets_half() -> None:
    """After a half-life, variances have doubled, up to the prior's, and the noise counts half."""
    policy = Thompson(10, 2, seed=1, half_life=1000)
    earn(policy, mean_of(np.linspace(0.1, 0.9, 10)), 3000, np.random.default_rng(1))
    posterior, noise = policy._posterior, policy._noise
    posterior.prior_variance = 1.0
    posterior.variance = np.array([0.01, 0.1, 0.4, 0.5, 0.6, 1.0, 1.2, 0.01, 0.01, 0.01])
    varied, possible, level = noise.variation, noise.largest_variation, posterior.covariance[0, 0]
    policy._forget(1.0)
    assert posterior.variance.tolist() == pytest.approx([0.02, 0.2, 0.8, 1.0, 1.0, 1.0, 1.2, 0.02, 0.02, 0.02])
    assert posterior.covariance[0, 0] == pytest.approx(2 * level)
    assert (noise.variation, noise.largest_variation) == pytest.approx((varied / 2, possible / 2))


def test_a_log_much_longer_than_the_half_life_can_be_told() -> None:
    policy = Thompson(10, 2, seed=1, half_life=100)
    policy.tell_total((0, 1), 300_000, 100_000.0)
    earn(policy, mean_of(np.linspace(0.1, 0.9, 10)), 303_000, np.random.default_rng(1))
    assert set(policy.best()) <= {7, 8, 9}


@for_each("half_life", [0, -1, 1.5, "long", True])
def test_what_is_no_half_life_is_refused(half_life: Any) -> None:
    with pytest.raises(BadInput, match="half_life must be a whole number"):
        Thompson(4, 2, half_life=half_life)


# Insight.


def test_insight_says_what_has_been_learned() -> None:
    p = np.linspace(0.1, 0.9, 9)
    policy = Thompson(9, 3, seed=1)
    assert policy.insight() is None
    earn(policy, mean_of(p), 300, np.random.default_rng(1))
    early = policy.insight()
    earn(policy, mean_of(p), 200_000, np.random.default_rng(1))
    late = policy.insight()
    assert early is not None
    assert late is not None
    assert early.probability_best < late.probability_best
    assert 0.99 < late.probability_best <= 1.0
    assert late.value == pytest.approx(0.8, abs=0.01)
    assert late.low < late.value < late.high
    assert late.high - late.low < 0.02 < early.high - early.low
    assert ((late.lows <= late.effects) & (late.effects <= late.highs)).all()
    assert set(np.argsort(late.effects)[-3:].tolist()) == {6, 7, 8}
    assert (late.effects[6:] > 0).all()
    assert (late.effects[:6] < 0).all()
    assert late.effects[:3].mean() < late.effects[3:6].mean()
    # In place of one on the borderline of 0.65: a third of the difference. More than two misses of nine have a
    # probability of 0.8 %.
    truth = (p - 0.65) / 3
    assert np.count_nonzero((late.lows <= truth) & (truth <= late.highs)) >= 7
    again = kofn.restore(kofn.save(policy)).insight()
    assert again is not None
    assert again.to_dict() == late.to_dict()
    assert [each["effect"] for each in json.loads(json.dumps(late.to_dict()))["arms"]] == late.effects.tolist()


@pytest.mark.parametrize(("n_arms", "plays"), [(9, 300), (80, 10_000)])
def test_the_probability_is_that_of_its_time_whenever_it_is_read(n_arms: int, plays: int) -> None:
    """It is computed when it is first read; rewards that came after the insight do not matter."""
    p, rng = np.linspace(0.1, 0.9, n_arms), np.random.default_rng(1)
    policy = Thompson(n_arms, 3, seed=1)
    earn(policy, mean_of(p), plays, rng)
    at_once, later = policy.insight(), policy.insight()
    assert at_once is not None
    assert later is not None
    expected = at_once.probability_best
    assert 0.0 < expected < 1.0
    earn(policy, mean_of(p), 10 * plays, rng)
    now = policy.insight()
    assert now is not None
    assert now.probability_best != expected
    assert later.probability_best == expected


def test_insight_in_the_users_units() -> None:
    """To minimise, in a range from -10 to 30: an arm that lowers the reward has an effect below 0."""
    p, rng = np.linspace(0.1, 0.9, 9), np.random.default_rng(1)
    up, down = Thompson(9, 3, seed=1), Thompson(9, 3, seed=1, reward_range=(-10, 30), direction="minimize")
    while up.plays < 20_000:
        plan = up.plan()
        total = rng.binomial(plan.times, mean_of(p)(plan.subsets)).astype(float)
        up.tell_plan(Tally(plan.times, total, total))
        ones, zeros = total, plan.times - total
        down.tell_plan(Tally(plan.times, 30 * zeros - 10 * ones, 900 * zeros + 100 * ones))
    one, two = up.insight(), down.insight()
    assert one is not None
    assert two is not None
    assert down.best() == up.best() == (6, 7, 8)
    assert (two.value, two.low, two.high) == pytest.approx((30 - 40 * one.value, 30 - 40 * one.high, 30 - 40 * one.low))
    assert two.effects == pytest.approx(-40 * one.effects)
    assert two.lows == pytest.approx(-40 * one.highs)
    assert two.highs == pytest.approx(-40 * one.lows)
    assert two.low < two.value < two.high
    assert two.probability_best == one.probability_best


def test_an_effect_is_what_the_best_subset_gains_by_the_arm_or_loses_without_it() -> None:
    """Log odds of 1 with arm 0, which is worth 0.8; arms 1 and 2 are worth 0 and -1, so the borderline is at 0.4."""
    policy = Thompson(3, 1, seed=1)
    policy.tell_plan(Tally.of([[1.0], [0.0], [0.0]]))
    posterior = policy._posterior
    posterior.incumbent, posterior.level, posterior.mean = np.array([0]), 1.0, np.array([0.8, 0.0, -1.0])
    posterior.variance = np.array([0.04, 0.01, 0.0225])
    insight = policy.insight()
    assert insight is not None

    def chance(odds: float) -> float:
        return 1 / (1 + math.exp(-odds))

    assert insight.effects == pytest.approx(
        [chance(1) - chance(0.6), chance(0.6) - chance(1), chance(-0.4) - chance(1)]
    )
    off = 1.96 * np.array([0.2, 0.1, 0.15])
    for sign, ends in ((-1, insight.lows), (1, insight.highs)):
        gains = np.array([0.4, -0.4, -1.4]) + sign * off
        expected = [chance(1) - chance(1 - gains[0]), *(chance(1 + gain) - chance(1) for gain in gains[1:])]
        assert ends == pytest.approx(expected, abs=1e-4)


def test_sure_is_how_often_a_draw_keeps_the_incumbent() -> None:
    """Two arms that differ by one standard deviation of their difference: 84 % of the draws say so."""
    policy = Thompson(2, 1, seed=1)
    policy.tell_plan(Tally.of([[1.0], [0.0]]))
    posterior = policy._posterior
    posterior.covariance = np.diag([1.0, 0.5, 0.5])
    posterior.mean[:] = 0.0
    posterior.mean[posterior.incumbent] = 1.0
    insight = policy.insight()
    assert insight is not None
    assert insight.probability_best == pytest.approx(0.8413, abs=0.05)


# Arms that come and go.


def test_arms_that_stay_keep_what_is_known_of_them() -> None:
    p = np.linspace(0.1, 0.9, 9)
    policy = Thompson(9, 3, seed=1)
    earn(policy, mean_of(p), 5000, np.random.default_rng(1))
    before = policy.state()["posterior"]
    changed = policy.with_arms([0, 2, 3, 4, 6, 7, 8], added=2)
    after = changed.state()["posterior"]
    kept = np.array(before["mean"])[[0, 2, 3, 4, 6, 7, 8]]
    assert np.array(after["mean"])[:7] == pytest.approx(kept)
    assert (changed.n_arms, changed.k, changed.plays) == (9, 3, policy.plays)
    assert changed.best() == (4, 5, 6)
    assert policy.state()["posterior"] == before  # the old one is as it was
    assert policy.best() == (6, 7, 8)
    kofn.restore(json.loads(json.dumps(kofn.save(changed))))


@pytest.mark.parametrize("n_arms", [9, 40])
def test_a_new_arm_that_is_the_best_is_found(n_arms: int) -> None:
    p, rng = np.linspace(0.1, 0.7, n_arms), np.random.default_rng(1)
    policy = Thompson(n_arms, 3, seed=1)
    earn(policy, mean_of(p), 20_000, rng)
    changed = policy.with_arms(range(1, n_arms), added=1)
    earn(changed, mean_of([*p[1:], 0.95]), 40_000, rng)
    assert n_arms - 1 in changed.best()


def test_when_an_incumbents_arm_is_retired_the_next_takes_its_place() -> None:
    policy = Thompson(9, 3, seed=1)
    earn(policy, mean_of(np.linspace(0.1, 0.9, 9)), 50_000, np.random.default_rng(1))
    assert policy.best() == (6, 7, 8)
    assert policy.with_arms([0, 1, 2, 3, 4, 5, 6, 8]).best() == (5, 6, 7)
    value = policy.insight().value  # type: ignore[union-attr]
    assert policy.with_arms([0, 1, 2, 3, 4, 5, 6, 8]).insight().value == pytest.approx(value - 0.2 / 3, abs=0.05)  # type: ignore[union-attr]


def test_a_change_in_the_middle_of_a_plan_loses_nothing() -> None:
    rng = np.random.default_rng(1)
    policy = Thompson(9, 3, seed=1)
    earn(policy, mean_of(np.linspace(0.1, 0.9, 9)), 1000, rng)
    times = policy.plan().times // 2
    policy.tell_plan(always(0.5, times))
    policy.tell((0, 1, 2), 0.0)
    with overheard() as heard:
        changed = policy.with_arms(range(9), added=1)
    assert [n for n, _, _ in heard] == [times.sum() + 1]
    assert [total for _, total, _ in heard] == [times.sum() / 2]
    assert changed.plays == policy.plays == changed.state()["learned"]
    assert changed.updates == policy.updates + 1
    assert policy.state()["observed"]["count"] == times[times > 0].tolist()  # the old one still waits for the rest


def test_a_change_before_anything_is_told() -> None:
    policy = Thompson(9, 3, seed=1).with_arms(range(4), added=2)
    assert policy.n_arms == 6
    assert sorted(arm for subset, _ in policy.plan() for arm in subset) == list(range(6))
    earn(policy, mean_of(np.linspace(0.1, 0.9, 6)), 3000, np.random.default_rng(1))
    assert policy.best() == (3, 4, 5)


@for_each("keep, new", [([0, 1, 2], 0), ([0, 0, 1, 2], 1), ([9, 1, 2, 3], 0), (range(9), -1)])
def test_a_change_that_leaves_no_choice_is_refused(keep: Any, new: int) -> None:
    with pytest.raises(BadInput):
        Thompson(9, 3, seed=1).with_arms(keep, new)


# To keep.


@for_each(
    "name, value",
    [
        ("learned", 1.5),
        ("learned", 0),
        ("noise", [1.0, 1.0]),
        ("noise", [1.0, 0.0, 1.0, {"low": 0.0, "high": 1.0}]),
        ("noise", [1.0, 1.0, math.nan, {"low": 0.0, "high": 1.0}]),
        ("noise", [1.0, 1.0, 1.0, {"low": 0.5, "high": 0.5}]),
        ("noise", [1.0, 1.0, 1.0, {"low": 1.0, "high": 0.0}]),
        ("posterior", None),
        ("posterior", {}),
        ("unplanned", None),
        ("unplanned", [[[0, 1, 2], 1, 2.0, 4.0]]),
        ("unplanned", [[[0, 1, 2], 1, 0.5, 0.25]] * 2),
        ("unplanned", [[[0, 1, 2], 10**6, 0.5, 0.25]]),
        ("in_flight", None),
        ("in_flight", {"subsets": [[0, 1, 2]], "count": [0.0]}),
        ("in_flight", {"subsets": [[0, 1, 2]], "count": [1.0, 1.0]}),
        ("in_flight", {"subsets": [[0, 1, 9]], "count": [1.0]}),
    ],
)
def test_a_state_that_no_plays_make_is_refused(name: str, value: Any) -> None:
    policy = Thompson(9, 3, seed=1)
    earn(policy, mean_of(np.linspace(0.1, 0.9, 9)), 500)
    before = policy.state()
    with pytest.raises(BadRecord):
        policy.load({**before, name: value})
    assert policy.state() == before


def test_a_policy_has_an_incumbent_exactly_if_it_has_learned() -> None:
    fresh, learned = Thompson(9, 3, seed=1), Thompson(9, 3, seed=1)
    earn(learned, mean_of(np.linspace(0.1, 0.9, 9)), 500)
    for policy, incumbent in ((fresh, [0, 1, 2]), (learned, [])):
        before = policy.state()
        with pytest.raises(BadRecord, match="incumbent"):
            policy.load({**before, "posterior": {**before["posterior"], "incumbent": incumbent}})
        assert policy.state() == before


# Large subsets.


@pytest.mark.slow
def test_many_arms_of_which_many_are_chosen() -> None:
    """50 of 500: after 10^5 plays, less than a sixth of what random subsets lose.

    An arm costs 4 K plays or so to learn: it changes a mean by 1 / K, beside a noise of 1 / (2 sqrt K) per play.
    That is 10^5 for all if each play told of one arm alone, and a fifth of the time if it tells of some.
    """
    p = np.random.default_rng(5).random(500)
    problem = Problem(Bernoulli(p), "mean", 50)
    run = simulate(Thompson(500, 50, seed=5), problem, 10**5, seed=5)
    random = problem.optimum - p.mean()
    assert run.regret < random * 10**5 / 6


# Other parameters while it runs.


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_a_wider_range_keeps_what_is_known(direction: Any) -> None:
    """The copy knows the same in the new scale, and what it learns next is what a policy with that range learns."""
    rng, p = np.random.default_rng(3), np.linspace(0.1, 0.9, 10)
    policy = kofn.Thompson(10, 3, seed=4, reward_range=(0, 40), direction=direction)
    while policy.plays < 3_000:
        plan = policy.plan()
        total = 40.0 * rng.binomial(plan.times, p[plan.subsets].mean(axis=1)).astype(float)
        policy.tell_plan(Tally(plan.times, total, 40 * total))
    wider = policy.with_params(reward_range=(-40, 120))
    assert (wider.reward_range, wider.direction, wider.plays) == ((-40.0, 120.0), direction, policy.plays)
    one, two = policy.insight(), wider.insight()
    assert one is not None
    assert two is not None
    assert wider.best() == policy.best()
    assert (two.value, two.low, two.high) == pytest.approx((one.value, one.low, one.high), abs=0.1)  # loss: other draws
    assert two.value == pytest.approx(one.value)
    assert two.effects == pytest.approx(one.effects)
    assert two.alarms == one.alarms
    assert list(kofn.restore(kofn.save(wider)).plan()) == list(wider.plan())
    again = wider.with_params(reward_range=(0, 40))  # back in the same scale
    assert again.insight().value == pytest.approx(one.value)  # type: ignore[union-attr]


def test_other_parameters_can_change_while_it_runs() -> None:
    policy = kofn.Thompson(8, 2, seed=1)
    for _ in range(300):
        subset = policy.ask()
        policy.tell(subset, float(7 in subset))
    forgetting = policy.with_params(half_life=100)
    assert forgetting.params["half_life"] == 100
    assert 7 in forgetting.best()
    assert 7 in forgetting.with_params(half_life=None).best()
    with pytest.raises(kofn.BadInput, match="k cannot change while the policy runs"):
        policy.with_params(k=3)


def played(plays: int, seed: int = 1, **options: Any) -> kofn.Thompson:
    """Return a policy after plays of coins that all arms of a subset share."""
    policy, rng, p = kofn.Thompson(20, 5, seed=seed, **options), np.random.default_rng(2), np.linspace(0.3, 0.7, 20)
    for _ in range(plays):
        subset = policy.ask()
        policy.tell(subset, float(rng.random() < p[list(subset)].mean()))
    return policy


GOALS: tuple[Goal, ...] = ("regret", "pick")


def arms_swapped(policy: Thompson) -> float:
    """Return how many arms a row of the plan swaps on average."""
    incumbent = policy._posterior.incumbent
    return float(np.mean([len(np.setdiff1d(subset, incumbent)) for subset, _ in policy.plan()]))


def test_the_goal_pick_swaps_several_arms_and_reports_the_highest_means() -> None:
    """Of 20 seeds, it swaps 1.6 times as many on average; single seeds have factors between 1.0 and 2.5."""
    regret, pick = played(600), played(600, goal="pick")
    assert "goal" not in regret.params
    assert regret.params == played(1, goal="regret").params
    swapped = {goal: np.mean([arms_swapped(played(600, seed, goal=goal)) for seed in range(4)]) for goal in GOALS}
    assert swapped["pick"] > 1.25 * swapped["regret"]
    mean = pick._posterior.mean
    assert set(pick.best()) == set(np.argsort(mean)[-5:].tolist())
    again = kofn.restore(json.loads(json.dumps(kofn.save(pick))))
    assert again.params["goal"] == "pick"
    assert list(again.plan()) == list(pick.plan())


def test_the_goal_pick_never_gives_less_weight_to_what_was_seen() -> None:
    """For regret, a climb of the level or a surprise raises variances."""

    def most_growth(goal: Any) -> float:
        policy, rng, p = kofn.Thompson(20, 5, seed=3, goal=goal), np.random.default_rng(2), np.linspace(0.1, 0.9, 20)
        growth, before = [], None
        while policy.plays < 600:
            plan = policy.plan()
            totals = [float(rng.binomial(times, p[list(subset)].mean())) for subset, times in plan]
            policy.tell_plan(Tally(plan.times, np.array(totals), np.array(totals)))
            if before is not None:
                growth.append(float((policy._posterior.variance / before).max()))
            before = policy._posterior.variance.copy()
        return max(growth)

    assert most_growth("pick") < 1
    assert most_growth("regret") > 1.05


def test_the_insight_of_the_goal_pick_is_about_its_best_subset() -> None:
    pick = next(each for each in (played(plays, goal="pick") for plays in range(80, 300, 20))
                if set(each.best()) != {*each._posterior.incumbent.tolist()})  # fmt: skip
    insight, posterior = pick.insight(), pick._posterior
    assert insight is not None
    predicted = float(expit(posterior.predict(np.array([pick.best()])).odds[0]))
    assert insight.value == pytest.approx(predicted)
    inside = np.zeros(20, bool)
    inside[list(pick.best())] = True
    assert insight.effects[inside].min() >= insight.effects[~inside].max()


def test_the_goal_can_change_while_it_runs() -> None:
    pick = played(300, goal="pick")
    other = pick.with_params(goal="regret")
    assert "goal" not in other.params
    assert other.with_params(goal="pick").best() == pick.with_params().best()
    with pytest.raises(kofn.BadInput, match="goal must be 'regret'"):
        kofn.Thompson(8, 2, goal="win")  # type: ignore[arg-type]


def test_other_policies_keep_their_parameters() -> None:
    with pytest.raises(kofn.BadInput, match="linear-thompson cannot change reward_range while it runs; use thompson"):
        kofn.make_policy("linear-thompson", 6, 2).with_params(reward_range=(0, 2))
