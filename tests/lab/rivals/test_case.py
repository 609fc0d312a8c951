"""CASE against plain Python on plays kept one by one, and on problems with known answers."""

import math
from typing import Any

import numpy as np
import pytest

from kofn import BadInput, BadRecord, Bernoulli, Problem, Tally, simulate
from kofn.core import Subset
from kofn.lab.rivals import CASE
from tests.cases import for_each


class Reference:
    """The algorithm with lists of plays: every matrix is inverted anew from the list, for each step of each plan."""

    def __init__(self, n_arms: int, k: int, seed: int) -> None:
        self.n, self.k, self.seed = n_arms, k, seed
        self.plans: list[list[tuple[Subset, float]]] = []  # plays and rewards
        self.challengers: list[Subset] = []

    def x(self, subset: Subset) -> Any:
        return np.array([float(arm in subset) for arm in range(self.n)])

    def inverse(self, plays: list[Subset]) -> Any:
        return np.linalg.inv(np.eye(self.n) + sum((np.outer(self.x(s), self.x(s)) for s in plays), np.zeros(())))

    def plan(self) -> list[tuple[Subset, int]]:
        """At most 32 steps; the number of plays is a tenth of the time."""
        played = [play for plan in self.plans for play in plan]
        theta = np.round(self.inverse([s for s, _ in played]) @ sum(r * self.x(s) for s, r in played), 9)
        best = tuple(sorted(sorted(range(self.n), key=lambda arm: -theta[arm])[: self.k]))
        others = [arm for arm in range(self.n) if arm not in best]
        rng = np.random.default_rng([self.seed, len(self.plans)])
        plays = max(1, len(played) // 10)
        steps = min(plays, 32)
        design = [s for s, _ in played]
        found: dict[Subset, int] = {}
        for step in range(steps):
            times = len(range(step, plays, steps))
            out, into = rng.integers(self.k, size=5), rng.integers(len(others), size=5)
            listed = list(self.challengers)
            for place, arm in zip(out, into, strict=True):
                new = tuple(sorted((set(best) - {best[place]}) | {others[arm]}))
                listed += [new] if new not in listed else []
            listed = [each for each in listed if each != best]
            inverse = self.inverse(design)
            beta = math.log((math.log(len(design)) + 1) / 0.05)
            index = {}
            for each in listed:
                apart = self.x(each) - self.x(best)
                index[each] = round(apart @ theta + 0.5 * math.sqrt(2 * beta * (apart @ inverse @ apart)), 9)
            top = sorted(listed, key=lambda each: -index[each])[:5]
            self.challengers = [each for each in listed if each in top]
            strongest = max(self.challengers, key=lambda each: index[each])
            chosen = best
            if index[strongest] > 0:
                apart = self.x(strongest) - self.x(best)
                now = apart @ inverse @ apart
                left = {s: apart @ self.inverse([*design, s]) @ apart for s in (best, *self.challengers)}
                chosen = max(left, key=lambda s: round(now - left[s], 9))
            design += [chosen] * times
            found[chosen] = found.get(chosen, 0) + times
        return list(found.items())


@pytest.mark.parametrize("case", range(4))
def test_equal_to_the_reference_play_by_play(case: int) -> None:
    rng = np.random.default_rng(case)
    n_arms = int(rng.integers(3, 8))
    k = int(rng.integers(1, n_arms))
    worth = rng.random(n_arms)
    policy, reference = CASE(n_arms, k, seed=case), Reference(n_arms, k, case)
    while policy.plays < 90:
        plan = list(policy.plan())
        if reference.plans:
            assert plan == reference.plan()
        else:
            assert {arm for subset, _ in plan for arm in subset} == set(range(n_arms))
        rewards = [rng.binomial(3, worth[list(subset)].mean(), n) / 3 for subset, n in plan]
        reference.plans.append([(s, float(r)) for (s, _), rs in zip(plan, rewards, strict=True) for r in rs])
        policy.tell_plan(Tally.of(rewards))
        assert policy.state()["challengers"] == [list(each) for each in reference.challengers]


@pytest.mark.parametrize("reward", ["mean", "maximum"])
def test_it_finds_the_best(reward: str) -> None:
    """In both runs: the second and the third arm are 0.2 apart, and each is seen in hundreds of plays."""
    problem = Problem(Bernoulli([0.1, 0.9, 0.3, 0.7, 0.2, 0.5, 0.4]), reward, 2)
    runs = [simulate(CASE(7, 2, seed=seed), problem, 3_000, seed) for seed in range(2)]
    assert {run.final for run in runs} == {(1, 3)}


@for_each("name, value", [("challengers", 0), ("challengers", 1.5), ("delta", 0), ("delta", 1), ("delta", "x")])
def test_what_is_no_parameter_is_refused(name: str, value: Any) -> None:
    with pytest.raises(BadInput, match=f"{name} must be"):
        CASE(6, 3, **{name: value})


@for_each(
    "change", [{"challengers": [[0, 1]] * 2}, {"challengers": [[0, arm] for arm in range(1, 7)]}, {"b": [9.0] * 7}]
)
def test_a_state_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    policy = CASE(7, 2, seed=1)
    with pytest.raises(BadRecord):
        policy.load(policy.state() | change)
