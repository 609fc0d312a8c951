"""Subsets of different sizes, where arms cost something: the policy, problems, simulations and campaigns."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import BadInput, Bernoulli, Problem, Tally, Thompson, ThompsonSizes
from kofn.constraints import AtLeast, NeverTogether
from kofn.problems import AbstractProblem
from tests.campaign_tools import Clock, checked, create
from tests.service_tools import NEW, error_detail, service

N, K, FEWEST = 8, 4, 2
P = np.array([0.9, 0.2, 0.7, 0.5, 0.1, 0.8, 0.3, 0.6])
COSTS = np.array([0.3, 0.35, 0.9, 0.2, 0.4, 0.25, 0.45, 0.7])


def problem(reward: str = "sum", direction: Any = "maximize", costs: Any = COSTS) -> AbstractProblem:
    return Problem(Bernoulli(P), reward, K, absent=0.0, direction=direction).with_costs(costs, fewest=FEWEST)


def policy_of(of: AbstractProblem, **params: Any) -> ThompsonSizes:
    own = {"reward_range": of.reward_range, "direction": of.direction, "constraints": of.constraints, "seed": 1}
    return ThompsonSizes(N, K, fewest=FEWEST, **own | params)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("reward", ["sum", "mean", "maximum"])
@pytest.mark.parametrize("rules", [[], [NeverTogether([0, 5]), AtLeast(1, [1, 4])]])
def test_the_best_of_a_problem_is_that_of_all_sizes(reward: str, direction: Any, rules: Any) -> None:
    of = problem(reward, direction, COSTS if reward == "sum" else COSTS / 4).under(rules)
    sizes = range(FEWEST, K + 1)
    subsets = [each for size in sizes for each in itertools.combinations(range(N), size)]
    allowed = [each for each in subsets if of.constraints is None or not of.constraints.broken(each)]
    values = of.value(allowed)
    assert of.optimum == pytest.approx(values.max() if direction == "maximize" else values.min())
    assert of.best in allowed
    played = of.play(allowed[:40], np.full(40, 100_000), 1)
    assert played.total / 100_000 == pytest.approx(values[:40], abs=0.02)
    low, high = of.reward_range
    assert low <= values.min() <= values.max() <= high


def test_what_costs_are_refused() -> None:
    plain = Problem(Bernoulli(P), "sum", K, absent=0.0)
    refused: list[tuple[Any, int, str]] = [
        ([0.1], 2, "costs must be 8 numbers of at least 0"),
        (-COSTS, 2, "costs must be 8 numbers of at least 0"),
        ("free", 2, "costs must be a list of numbers"),
        (COSTS, 5, "fewest must be at most k; got fewest=5 and k=4"),
        (COSTS, 0, "fewest must be a whole number of at least 1"),
    ]
    for costs, fewest, message in refused:
        with pytest.raises(BadInput, match=message):
            plain.with_costs(costs, fewest=fewest)
        with pytest.raises(BadInput, match=message):
            ThompsonSizes(N, K, fewest=fewest, costs=costs)
    with pytest.raises(BadInput, match=r"give what an empty place pays, for instance Problem\(..., absent=0.0\)"):
        Problem(Bernoulli(P), "sum", K).with_costs(COSTS, fewest=2)
    with pytest.raises(BadInput, match=r"a subset must have 2 to 4 arms; got \(3,\)"):
        plain.with_costs(COSTS, fewest=2).value([(3,)])
    with pytest.raises(BadInput, match=r"\(0, 5\) is not allowed: it breaks never together \(0, 5\)"):
        problem().under([NeverTogether([0, 5])]).play([(0, 5)], [1], 1)
    with pytest.raises(BadInput, match="plays fewer than K arms, and this problem does not define what they earn"):
        kofn.simulate(ThompsonSizes(N, K, fewest=2), Problem(Bernoulli(P), "mean", K), 100)


@pytest.mark.parametrize("rules", [[], [NeverTogether([0, 5]), AtLeast(1, [1, 4])]])
@pytest.mark.parametrize(("reward", "direction"), [("sum", "maximize"), ("sum", "minimize"), ("maximum", "maximize")])
def test_the_best_size_is_found(reward: str, direction: Any, rules: Any) -> None:
    """The best subsets have 2 or 3 arms, and are ahead by 0.01 at least: 30,000 plays suffice with these seeds."""
    of = problem(reward, direction, COSTS if reward == "sum" else COSTS / 4).under(rules)
    policy = policy_of(of)
    run = kofn.simulate(policy, of, 30_000, 1)
    assert run.optimal
    assert len(of.best) < K
    insight = policy.insight()
    assert insight is not None
    assert insight.low - 0.02 <= of.optimum <= insight.high + 0.02
    assert len(insight.effects) == N


def test_late_rewards_and_policies_by_name() -> None:
    of = problem()
    assert kofn.simulate(policy_of(of), of, 20_000, 1, delay=200).optimal
    table = kofn.compare(["thompson-sizes", "thompson"], of, horizon=10_000, runs=3, seed=1, workers=1)
    regret = {standing.policy: standing.finals.mean() for standing in table.standings}
    assert regret["thompson-sizes"] < 0.5 * regret["thompson"]  # which fills all places


def test_without_empty_places_and_costs_it_is_thompson() -> None:
    one, other = ThompsonSizes(N, K, seed=3), Thompson(N, K, seed=3)
    rng = np.random.default_rng(1)
    for _ in range(30):
        plan = other.plan()
        assert list(one.plan()) == list(plan)
        total = rng.binomial(plan.times, P[plan.subsets].mean(axis=1)).astype(float)
        for each in (one, other):
            each.tell_plan(Tally(plan.times, total, total))
    assert one.best() == other.best()


def told(policy: Any, plays: int, costs: Any = None) -> None:
    """Ask and tell sums of coins; net of `costs`."""
    rng = np.random.default_rng(5)
    for _ in range(plays):
        subset = policy.ask()
        assert FEWEST <= len(subset) <= K
        gross = float((rng.random(len(subset)) < P[: policy.n_arms][list(subset)]).sum())
        policy.tell(subset, gross if costs is None else gross - float(costs[list(subset)].sum()))


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_costs_are_subtracted_from_gross_rewards(direction: Any) -> None:
    sign = 1.0 if direction == "maximize" else -1.0
    most, least = np.sort(COSTS)[-K:].sum(), np.sort(COSTS)[:FEWEST].sum()
    net = (-most, K - least) if direction == "maximize" else (least, K + most)
    by_policy = ThompsonSizes(N, K, fewest=FEWEST, costs=COSTS, reward_range=(0, K), direction=direction, seed=2)
    by_caller = ThompsonSizes(N, K, fewest=FEWEST, reward_range=net, direction=direction, seed=2)
    told(by_policy, 600)
    told(by_caller, 600, sign * COSTS)
    assert by_policy.best() == by_caller.best()
    one, other = by_policy.insight(), by_caller.insight()
    assert one is not None
    assert other is not None
    assert one.value == pytest.approx(other.value)
    assert one.effects == pytest.approx(other.effects)


def test_records_unplanned_plays_and_changes() -> None:
    policy = ThompsonSizes(N, K, fewest=FEWEST, costs=COSTS, reward_range=(0, K), seed=2)
    told(policy, 403)
    policy.tell((0, 5), 2.0)
    policy.tell_total((3, 5, 0), 4, 8.0)
    again = kofn.restore(json.loads(json.dumps(kofn.save(policy))))
    assert list(again.plan()) == list(policy.plan())
    for wrong in [(0,), (0, 1, 2, 3, 4), (0, 0), (0, N)]:
        with pytest.raises(BadInput):
            policy.tell(wrong, 1.0)
    assert again.state() == policy.state()
    for each in (policy, again):
        told(each, 300)
    assert again.state() == policy.state()

    fewer = policy.with_arms([0, 1, 2, 3, 5, 6, 7], added=2)
    assert fewer.params["costs"] == [*np.delete(COSTS, 4), 0.0, 0.0]
    assert fewer.plays == policy.plays
    ruled = policy.with_params(constraints=[NeverTogether([0, 5])], reward_range=(0, 6))
    for _ in range(100):
        assert {0, 5} - set(ruled.ask())
    with pytest.raises(BadInput, match="costs cannot change while the policy runs"):
        policy.with_params(costs=[0.0] * N)


# Campaigns.

SIZES: dict[str, Any] = {"policy": "thompson-sizes", "params": {"fewest": 1, "costs": [0.1, 0.1, 0.1, 3, 3, 3, 2, 2]}}


def test_a_campaign_with_costs(tmp_path: Path) -> None:
    campaign = create(f"sqlite:///{tmp_path / 'c.db'}", **SIZES)
    clock = Clock(campaign)
    sizes = set()
    for _ in range(150):
        decisions = campaign.decide(8)
        sizes |= {len(each.arms) for each in decisions}
        campaign.rewards({each.id: 1.0 + 2.5 * ("h" in each.arms) + 2.5 * ("g" in each.arms) for each in decisions})
        clock.wait(1)
    assert sizes == {1, 2, 3}
    assert {"g", "h"} <= set(campaign.best())
    assert not set("def") & set(campaign.best())
    insight = campaign.insight()
    assert insight.value == pytest.approx(2.0, abs=0.15)  # 6 - 4, and what a, b or c costs
    checked(campaign)
    campaign.reward_total(["g", "h"], 5, 30.0)
    campaign.add_arm("new")
    campaign.retire_arm("d")
    for _ in range(5):
        campaign.rewards({each.id: 3.0 for each in campaign.decide(8)})
    checked(campaign)
    copied = kofn.Campaign.import_(campaign.export(), store=f"sqlite:///{tmp_path / 'd.db'}")
    assert copied.best() == campaign.best()
    campaign.ship(["g", "h"])
    assert campaign.decide().arms == ["g", "h"]
    with pytest.raises(BadInput, match="a subset must have 1 to 3 different arms; got 4"):
        campaign.ship(list("abce"))
    with pytest.raises(BadInput, match="a control cannot be compared: leave out control or costs"):
        campaign.configure(control=["a", "b", "c"])


def test_a_campaign_with_costs_over_http(tmp_path: Path) -> None:
    with service(f"sqlite:///{tmp_path / 'c.db'}") as http:
        assert http.post("/api/campaigns", json={**NEW, **SIZES}).status_code == 201
        refused = http.post("/api/campaigns", json={**NEW, **SIZES, "name": "other", "control": ["a", "b", "c"]})
        assert "leave out control or costs" in error_detail(refused, 422, "bad-input")
        with kofn.Client(str(http.base_url)) as client:
            campaign = client.campaign("front")
            for _ in range(40):
                decisions = campaign.decide(8)
                campaign.rewards({each.id: 1.0 + 5.0 * ("h" in each.arms) for each in decisions})
            assert "h" in campaign.best()
            assert not set("def") & set(campaign.best())
        listed = {each["name"]: each for each in http.get("/api/policies").json()["policies"]}
        assert "cost something" in listed["thompson-sizes"]["description"]
