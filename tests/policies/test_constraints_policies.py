"""Policies under constraints: all policies obey them or refuse, and what Thompson hands out always obeys."""

import re
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import BadInput, Constraints, Policy, Tally, Thompson, ThompsonGuaranteed
from kofn.constraints import Always, AtMost, Never, NeverTogether, OnlyTogether
from kofn.constraints import allowed as module
from kofn.constraints.solver import MilpSolver
from kofn.core import BadRecord, FloatArray, IntArray
from kofn.policies.registry import POLICIES, make_policy
from kofn.policies.thompson import exchanges
from kofn.policies.thompson.constants import Constants
from tests.cases import for_each
from tests.constraints.tools import FIXED, KINDS, OTHER, QUOTAS, K, N

WORTH = np.linspace(0.1, 0.9, N)


@pytest.fixture(autouse=True)
def _short_horizons_are_fine() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kofn.ShortHorizonWarning)
        yield


@pytest.fixture
def solver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few subsets are too many to list: the solver finds the best."""
    monkeypatch.setattr(module, "MOST_TRIED", 0)
    module._made.cache_clear()
    yield
    module._made.cache_clear()


def advance(policy: Policy, plans: int, rng: np.random.Generator | None = None, worth: Any = WORTH) -> None:
    """Play whole plans, coins with `rng` and without noise else; all subsets must be allowed."""
    for _ in range(plans):
        plan = policy.plan()
        if policy.constraints is not None:
            assert policy.constraints.allows(plan.subsets, policy.n_arms, policy.k).all()
        mean = worth[plan.subsets].mean(axis=1)
        total = mean * plan.times if rng is None else rng.binomial(plan.times, mean).astype(float)
        policy.tell_plan(Tally(plan.times, total, total if rng is not None else mean * total))


def best_of(rules: Constraints, worth: Any = WORTH) -> tuple[int, ...]:
    return tuple(rules.allowed(len(worth), K).top(worth).tolist())


LEARN = {"fixed": ["cmab-sm", "dart", "doubling"], "all": ["improved-ucb", "thompson", "thompson-subsets"]}


@for_each(
    "name, kind",
    [*((name, "fixed") for name in LEARN["fixed"]), *((name, kind) for name in LEARN["all"] for kind in KINDS)],
)
def test_without_noise_the_best_allowed_subset_is_found(name: str, kind: str) -> None:
    policy = make_policy(name, N, K, horizon=3_000_000, seed=1, constraints=KINDS[kind])
    while policy.plays < (20_000 if name in LEARN["all"] else 1_000_000) and not policy.committed:
        advance(policy, 1)
    assert policy.best() == best_of(KINDS[kind])


def test_the_list_policies_keep_allowed_subsets_only() -> None:
    policy = kofn.lab.rivals.ThompsonSubsets(N, K, seed=1, constraints=QUOTAS)
    assert (
        len(policy.state()["count"])
        == len(policy._subsets)
        == np.count_nonzero(QUOTAS.allows(kofn.lab.rivals.ThompsonSubsets(N, K, seed=1)._subsets, N, K))
    )


def test_the_oracle_must_obey() -> None:
    with pytest.raises(BadInput, match=r"must obey the constraints; it breaks: always \(2\); never \(0, 7\)"):
        kofn.lab.rivals.Oracle(N, K, best=(0, 1, 3), constraints=FIXED)


def test_cmab_sm_chooses_among_the_other_arms() -> None:
    policy = kofn.CMABSM(N, K, horizon=10**6, constraints=FIXED)
    assert policy.schedule.rounds == kofn.CMABSM(6, 2, horizon=10**6).schedule.rounds
    assert (policy.plan().subsets == 2).any(axis=1).all()
    with pytest.raises(BadInput, match=r"leave one subset, \(0, 1, 8\)"):
        kofn.CMABSM(N, K, horizon=10**6, constraints=[Always([0, 1]), Never([2, 3, 4, 5, 6, 7])])


# Thompson.


@pytest.mark.parametrize("kind", KINDS)
def test_thompson_finds_the_best_allowed_subset_with_noise(kind: str) -> None:
    """Coins whose best allowed subset is ahead by 1/30 at least: 20,000 plays suffice with these seeds."""
    for seed in range(3):
        policy = Thompson(N, K, seed=seed, constraints=KINDS[kind])
        while policy.plays < 20_000:
            advance(policy, 1, np.random.default_rng([seed, policy.updates]))
        assert policy.best() == best_of(KINDS[kind])


@pytest.mark.usefixtures("solver")
@pytest.mark.slow
def test_thompson_with_the_solver() -> None:
    policy = Thompson(N, K, seed=1, constraints=OTHER)
    assert not OTHER.allowed(N, K).way.exact
    while policy.plays < 3_000:
        advance(policy, 1, np.random.default_rng(policy.updates))
    assert policy.best() == best_of(OTHER)
    insight = policy.insight()
    assert insight is not None
    assert insight.expected_loss is not None
    assert 0 <= insight.expected_loss < 0.01
    assert OTHER.allows([policy.filler(index) for index in range(20)], N, K).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_plan_has_every_arm_that_can_be_played(kind: str) -> None:
    rules = KINDS[kind]
    plan = Thompson(N, K, seed=1, constraints=rules).plan()
    every = kofn.lab.rivals.ThompsonSubsets(N, K, seed=1, constraints=rules)._subsets
    assert set(plan.subsets.ravel().tolist()) == set(every.ravel().tolist())


def test_more_arms_than_have_a_dense_covariance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Thompson, "constants", Constants(contenders=64))
    worth = np.linspace(0.1, 0.9, 100)
    for rules in (Constraints.by_group(np.arange(100) // 10, at_most=1), Constraints(Never([99]), Always([0]))):
        policy = Thompson(100, K, seed=1, constraints=rules)
        while policy.plays < 20_000:
            advance(policy, 1, np.random.default_rng(policy.updates), worth)
        best = worth[list(best_of(rules, worth))].mean()
        assert worth[list(policy.best())].mean() > best - 0.04
        assert policy.insight() is not None


def test_rules_can_change_while_it_runs() -> None:
    policy = Thompson(N, K, seed=1)
    while policy.plays < 5_000:
        advance(policy, 1, np.random.default_rng(policy.updates))
    assert policy.best() == (6, 7, 8)
    ruled = policy.with_params(constraints=QUOTAS)
    # What was learned before counts: arms that were given up are not in exact order, but chance loses 0.2.
    assert WORTH[list(ruled.best())].mean() > WORTH[list(best_of(QUOTAS))].mean() - 0.07
    assert ruled.plays == policy.plays
    advance(ruled, 5, np.random.default_rng(1))
    ruled.tell((6, 7, 8), 1.0)  # handed out before the change
    advance(ruled, 2, np.random.default_rng(2))
    assert ruled.best() == best_of(QUOTAS)
    assert ruled.with_params(constraints=None).constraints is None


def test_arms_that_come_and_go_obey() -> None:
    policy = Thompson(N, K, seed=1, constraints=Constraints(AtMost(1, [6, 7, 8]), Never([5])))
    while policy.plays < 10_000:
        advance(policy, 1, np.random.default_rng(policy.updates))
    assert policy.best() == (3, 4, 8)
    fewer = policy.with_arms([0, 1, 2, 3, 5, 6, 7], added=1)
    assert fewer.constraints == Constraints(AtMost(1, [5, 6]), Never([4]))
    assert {3, 6} <= set(fewer.best())  # and the new arm, or one that is known
    assert fewer.constraints.allows([fewer.best()], 8, K)[0]
    worth = np.append(np.delete(WORTH, [4, 8]), 0.95)
    advance(fewer, 5, np.random.default_rng(1), worth)
    grouped = policy.with_arms(range(N), added=1, constraints=[AtMost(1, [6, 7, 8, 9])])
    assert grouped.constraints == Constraints(AtMost(1, [6, 7, 8, 9]))
    advance(grouped, 5, np.random.default_rng(1), np.append(WORTH, 0.95))
    with pytest.raises(BadInput, match="arm 2 is always in"):
        Thompson(N, K, seed=1, constraints=FIXED).with_arms([0, 1, 3, 4])


def test_a_record_whose_incumbent_is_forbidden_is_refused() -> None:
    policy = Thompson(N, K, seed=1)
    while policy.plays < 5_000:
        advance(policy, 1, np.random.default_rng(policy.updates))
    record = kofn.save(policy)
    record["params"]["constraints"] = QUOTAS.to_list()
    with pytest.raises(BadRecord, match=r"the incumbent \[6, 7, 8\] must obey the constraints"):
        kofn.restore(record)


def test_a_guarantee_with_fixed_arms() -> None:
    policy = ThompsonGuaranteed(N, K, seed=1, constraints=FIXED)
    while policy.plays < 60_000:
        advance(policy, 1, np.random.default_rng(policy.updates))
    assert policy.best() == best_of(FIXED)
    status = policy._elimination
    assert {2} <= set(status.accepted.tolist()) <= set(best_of(FIXED))
    assert not {0, 7} & {*status.undecided.tolist(), *status.accepted.tolist()}
    with pytest.raises(BadInput, match="it compares arms by exchanges"):
        ThompsonGuaranteed(N, K, constraints=QUOTAS)


def test_insight_compares_with_allowed_subsets() -> None:
    """The two best arms exclude each other: once that is known, little can be gained."""
    rules = Constraints(NeverTogether([7, 8]))
    policy = Thompson(N, K, seed=1, constraints=rules)
    while policy.plays < 20_000:
        advance(policy, 1, np.random.default_rng(policy.updates))
    insight = policy.insight()
    assert insight is not None
    assert policy.best() == (5, 6, 8)
    assert insight.probability_best > 0.9
    assert insight.expected_loss is not None
    assert insight.expected_loss < 0.002


def test_pairs_of_arms_that_come_only_together_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best pair can only come together; the solver is off."""
    monkeypatch.setattr(exchanges, "SOLVED", 0)
    monkeypatch.setattr(module, "MOST_TRIED", 0)
    module._made.cache_clear()
    rules = Constraints(OnlyTogether([7, 8]), OnlyTogether([0, 1]), NeverTogether([6, 7]), NeverTogether([5, 7]))
    policy = Thompson(N, K, seed=3, constraints=rules)
    while policy.plays < 20_000:
        advance(policy, 1, np.random.default_rng(policy.updates))
    assert policy.best() == best_of(rules) == (4, 7, 8)
    module._made.cache_clear()


def test_the_page_lists_the_policies_that_obey() -> None:
    page = (Path(__file__).parents[2] / "docs/guides/constraints.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (`[a-z].*`) \| (all|`Always` and `Never`) \|$", page, re.MULTILINE))
    listed = {name: rules for names, rules in rows.items() for name in re.findall(r"`([\w-]+)`", names)}
    words = {"all": "all", "fixed": "`Always` and `Never`"}
    assert listed == {
        name: words[of.takes_constraints] for name, of in POLICIES.items() if of.takes_constraints != "none"
    }


@pytest.mark.usefixtures("solver")
def test_plays_beside_the_first_plan_need_few_solutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The solver finds subsets with every arm once, not some hundred of them."""
    policy = kofn.Thompson(24, 5, seed=1, constraints=[NeverTogether([arm, arm + 1]) for arm in range(23)])
    solved, solve = [], MilpSolver._solve

    def counted(self: MilpSolver, score: FloatArray) -> IntArray | None:
        solved.append(score)
        return solve(self, score)

    monkeypatch.setattr(MilpSolver, "_solve", counted)
    beside = [policy.filler(number) for number in range(50)]
    assert policy.constraints is not None
    assert policy.constraints.allows(beside, 24, 5).all()
    assert set(range(24)) == {arm for subset in beside for arm in subset}
    assert len(solved) <= 24


def test_an_update_under_a_thousand_rules_needs_little_memory() -> None:
    """All exchanges of two arms times all rules would be a gigabyte."""
    rng = np.random.default_rng(1)
    pairs = {tuple(sorted(rng.choice(100, 2, replace=False).tolist())) for _ in range(1200)}
    policy = Thompson(100, 10, seed=1, constraints=Constraints(*map(NeverTogether, pairs)))
    plan = policy.plan()
    paid = (np.arange(len(plan)) % 2).astype(float)
    policy.tell_plan(Tally(plan.times, paid * plan.times, paid * plan.times))
    tracemalloc.start()
    policy.plan()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6
