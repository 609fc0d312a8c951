"""Doubling: stages, what each hands to the next, and the kinds of factories."""

import itertools
import json
import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import CMABSM, BadInput, Doubling, Plan, Policy, Tally
from kofn.lab.rivals import ImprovedUCB
from tests.cases import for_each

WORTH = np.array([0.2, 0.9, 0.4, 0.1, 0.8, 0.3])
BEST = (1, 4)

cmab_sm = partial(CMABSM, n_arms=6, k=2, resolution=0.1)
improved_ucb = partial(ImprovedUCB, n_arms=6, k=2)


def earned(plan: Plan) -> Tally:
    reward = np.round(64 * WORTH[plan.subsets].mean(axis=1)) / 64
    return Tally(plan.times.copy(), reward * plan.times, reward**2 * plan.times)


def inner_of(policy: Policy) -> Any:
    return vars(policy)["_inner"]


def stages(policy: Doubling, number: int) -> list[tuple[Any, int]]:
    """Play that many stages to their end: the inner policy of each, and its plays."""
    seen: list[tuple[Any, int]] = []
    while True:
        if not seen or seen[-1][0] is not inner_of(policy):
            if len(seen) == number:
                return seen
            seen.append((inner_of(policy), 0))
        plan = policy.plan()
        policy.tell_plan(earned(plan))
        seen[-1] = (seen[-1][0], seen[-1][1] + plan.plays)
        assert seen[-1][1] <= seen[-1][0].horizon


@pytest.mark.parametrize("factory", [cmab_sm, improved_ucb])
def test_stages_end_at_the_powers_of_two(factory: Callable[..., Policy]) -> None:
    """T_l = 2^l: stages of 2, 2, 4, 8 ... plays, each the horizon of a new policy."""
    seen = stages(Doubling(factory), 16)
    lengths = [2, *(2**stage for stage in range(1, 16))]
    assert [plays for _, plays in seen] == lengths
    assert [inner.horizon for inner, _ in seen] == lengths
    assert list(itertools.accumulate(lengths)) == [2**stage for stage in range(1, 17)]
    assert {type(inner) for inner, _ in seen} == {type(factory(horizon=8))}


def test_each_stage_has_the_papers_lambda_for_its_length() -> None:
    policy = Doubling(partial(CMABSM, n_arms=6, k=2))  # no warning of the first stages, which are too short
    for inner, plays in stages(policy, 20):
        lam = (256 * 6 * math.log(2 * 6 * plays) / plays) ** (1 / 3)
        assert inner.schedule.resolution == pytest.approx(lam)
        assert bool(inner.schedule.rounds) == (lam < 0.5)  # a round resolves 1/2
        assert inner.committed or lam < 0.5


def test_a_stage_is_cut_where_it_ends() -> None:
    """The last plan of a stage is the part of the inner policy's plan that still fits."""
    policy = Doubling(cmab_sm, first=100)
    inner = inner_of(policy)
    assert inner.plan().plays > 100
    assert list(policy.plan()) == list(inner.plan().part(100))
    assert policy.plan().plays == 100


def test_best_is_what_the_last_stage_found_until_this_one_has_found_its_own() -> None:
    policy = Doubling(cmab_sm, first=2**15)
    worth = WORTH.copy()
    seen: list[tuple[bool, Any]] = []
    while policy.plays < 2**16:
        plan = policy.plan()
        mean = worth[plan.subsets].mean(axis=1)
        policy.tell_plan(Tally(plan.times.copy(), mean * plan.times, mean**2 * plan.times))
        if policy.plays >= 2**15:
            worth = 1 - WORTH  # the world turns over with the second stage
            seen.append((inner_of(policy).committed, policy.best()))
    assert [found for found, _ in itertools.groupby(seen)][:2] == [(False, BEST), (True, (0, 3))]
    assert inner_of(policy).best() != policy.best() == (0, 3)  # the third stage has only begun


def test_a_stage_that_ends_before_it_has_found_anything_keeps_the_find() -> None:
    """Every second stage is far too fine to end; the find of the stage before it lives on."""
    fine = itertools.cycle([0.1, 1e-4])
    policy = Doubling(lambda horizon: CMABSM(6, 2, horizon, resolution=next(fine)), first=2**15)
    stages(policy, 1)
    assert policy.best() == BEST
    stages(policy, 1)
    assert policy.best() == BEST
    assert not policy.committed


def by_name(of: str, **params: Any) -> Policy:
    return kofn.make_policy("doubling", n_arms=6, k=2, of=of, **params)


@for_each(
    "policy, inner",
    [
        (lambda: Doubling(partial(CMABSM, n_arms=6, k=2)), "cmab-sm"),
        (lambda: Doubling(lambda horizon: CMABSM(6, 2, horizon, resolution=0.2)), "cmab-sm"),
        (lambda: Doubling(partial(kofn.make_policy, "improved-ucb", 6, 2)), "improved-ucb"),
        (lambda: by_name("cmab-sm", resolution=0.2, seed=4), "cmab-sm"),
        (lambda: kofn.make_policy("doubling", n_arms=6, k=2), "cmab-sm"),
    ],
)
def test_any_kind_of_factory_runs_and_is_saved(policy: Callable[[], Policy], inner: str) -> None:
    made = policy()
    assert inner_of(made).name == made.params["of"] == inner
    while made.plays < 3000:
        made.tell_plan(earned(made.plan()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kofn.ShortHorizonWarning)
        again = kofn.restore(json.loads(json.dumps(kofn.save(made))))
    while again.plays < 40_000:
        assert list(again.plan()) == list(made.plan())
        assert again.best() == made.best()
        for each in (made, again):
            each.tell_plan(earned(each.plan()))
    assert again.state() == made.state()


def test_the_inner_policys_scale_is_the_outer_ones() -> None:
    policy = Doubling(partial(CMABSM, 6, 2, reward_range=(0, 40), direction="minimize", resolution=0.1), first=2**15)
    assert (policy.reward_range, policy.direction) == ((0.0, 40.0), "minimize")
    while policy.plays < 2**15:
        plan = policy.plan()
        latency = 40 * (1 - WORTH[plan.subsets].mean(axis=1))
        policy.tell_plan(Tally(plan.times.copy(), latency * plan.times, latency**2 * plan.times))
    assert policy.best() == BEST


def test_a_factory_that_changes_its_mind_runs_but_cannot_be_saved() -> None:
    policy = Doubling(lambda horizon: CMABSM(6, 2, horizon, resolution=0.4 if horizon < 100 else 0.2))
    stages(policy, 9)
    assert policy.plays == 512
    with pytest.raises(BadInput, match="cannot be saved: its factory gives each stage other parameters"):
        kofn.save(policy)
    policy.tell_plan(earned(policy.plan()))


@for_each(
    "factory, made",
    [
        (lambda horizon: None, "None"),
        (lambda horizon: CMABSM, "class"),
        (lambda horizon: Doubling(cmab_sm), "Doubling"),
    ],
)
def test_a_factory_of_the_wrong_thing_is_refused(factory: Any, made: str) -> None:
    with pytest.raises(BadInput, match=f"must create a policy that needs a horizon; it created .*{made}"):
        Doubling(factory)


@for_each(
    "params, why",
    [
        ({"of": "doubling"}, "must create a policy that needs a horizon"),
        ({"of": "magic"}, "there is no policy 'magic'"),
        ({"of": "improved-ucb", "resolution": 0.1}, "improved-ucb does not take resolution"),
        ({"colour": "red"}, "cmab-sm does not take colour"),
    ],
)
def test_wrong_parameters_by_name_are_refused(params: dict[str, Any], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        kofn.make_policy("doubling", n_arms=6, k=2, **params)


def test_a_policy_that_draws_its_seed_can_be_saved_in_any_stage() -> None:
    policy = kofn.make_policy("doubling", 12, 3, of="dart", first=50)
    for _ in range(300):
        policy.tell(policy.ask(), 0.5)
    again = kofn.restore(json.loads(json.dumps(kofn.save(policy))))
    assert list(again.plan()) == list(policy.plan())


def test_it_needs_what_its_policy_needs() -> None:
    policy = kofn.make_policy("doubling", 6, 2, of="etcg", first=100)
    assert policy.needs == frozenset({"fewer"})
    subset = policy.ask()
    policy.tell(list(subset), 0.5)
    assert not kofn.make_policy("doubling", 6, 2, of="improved-ucb").linear_memory
