"""Linear Thompson sampling against the textbook on plays kept one by one, and on problems with answers."""

from typing import Any

import numpy as np
import pytest

import kofn
from kofn import BadInput, Tally
from kofn.lab.rivals import LinearThompson
from kofn.lab.rivals.linear_model import MOST_ARMS
from kofn.lab.settings import Setting
from tests.cases import for_each


class Reference:
    """The posterior from the list of all plays, by inverting matrices; nothing is added up on the way."""

    def __init__(self, n_arms: int, k: int, seed: int, draws: int) -> None:
        self.n_arms, self.k, self.seed, self.draws = n_arms, k, seed, draws
        self.plans: list[list[tuple[tuple[int, ...], list[float]]]] = []

    def noise(self) -> list[float]:
        """The variance of each plan: the dispersion so far, in units of r(1 - r), times that of the plan."""
        mean, variance = self.prior()
        squares, units = 0.5 * variance / (mean * (1 - mean)), 0.5
        found: list[float] = []
        for number, plan in enumerate(self.plans):
            rewards = [r for _, rs in plan for r in rs]
            level = (sum(rewards) + 0.5) / (len(rewards) + 1)
            unit = level * (1 - level)
            if number:
                noise = max(1e-4, squares / units * unit)
                weights, precision = self.posterior(found)
                for subset, rs in plan:
                    x, n = np.array([float(arm in subset) for arm in range(self.n_arms)]), len(rs)
                    share = noise / (noise + n * x @ np.linalg.inv(precision) @ x)
                    squares += sum((r - sum(rs) / n) ** 2 for r in rs) + share**2 * n * (sum(rs) / n - weights @ x) ** 2
                    units += (n - 1 + share) * unit
            found.append(max(1e-4, squares / units * unit))
        return found

    def prior(self) -> tuple[float, float]:
        rewards = [r for _, rs in self.plans[0] for r in rs]
        n, mean = len(rewards), sum(rewards) / len(rewards)
        return (sum(rewards) + 0.5) / (n + 1), (sum((r - mean) ** 2 for r in rewards) + 0.25) / (n + 1)

    def posterior(self, levels: list[float]) -> tuple[Any, Any]:
        """Mean and precision after the plans with these noises: every play is a row, with the weight of its plan."""
        mean, variance = self.prior()
        rows, rewards, weights = [], [], []
        for plan, noise in zip(self.plans, levels, strict=False):
            for subset, rs in plan:
                for r in rs:
                    rows.append([float(arm in subset) for arm in range(self.n_arms)])
                    rewards.append(r)
                    weights.append(1 / noise)
        x, w = np.array(rows), np.diag(weights)
        precision = x.T @ w @ x + self.k / variance * np.eye(self.n_arms)
        prior = np.full(self.n_arms, mean / self.k)
        return np.linalg.inv(precision) @ (x.T @ w @ np.array(rewards) + self.k / variance * prior), precision

    def plan(self) -> list[tuple[tuple[int, ...], int]]:
        """The winners of the draws; plays go round the draws one by one."""
        rng = np.random.default_rng([self.seed, len(self.plans)])
        plays = max(1, sum(len(rs) for plan in self.plans for _, rs in plan) // 10)
        mean, precision = self.posterior(self.noise())
        root = np.linalg.inv(np.linalg.cholesky(precision)).T
        winners = []
        for z in rng.standard_normal((min(self.draws, plays), self.n_arms)):
            theta = mean + root @ z
            winners.append(tuple(sorted(sorted(range(self.n_arms), key=lambda arm: -theta[arm])[: self.k])))
        played = [winners[play % len(winners)] for play in range(plays)]
        return [(subset, played.count(subset)) for subset in sorted(set(played))]


@for_each("case", range(12))
def test_equal_to_the_reference_play_by_play(case: int) -> None:
    rng = np.random.default_rng(case)
    n_arms = int(rng.integers(2, 9))
    k = int(rng.integers(1, n_arms))
    worth = rng.random(n_arms)
    policy = LinearThompson(n_arms, k, seed=case, draws=20)
    reference = Reference(n_arms, k, case, draws=20)
    while policy.plays < 300:
        plan = list(policy.plan())
        if reference.plans:
            assert plan == reference.plan()
        else:
            assert {arm for subset, _ in plan for arm in subset} == set(range(n_arms))
            assert sum(n for _, n in plan) == -(-n_arms // k)
        rewards = [rng.binomial(3, worth[list(subset)].mean(), n) / 3 for subset, n in plan]
        reference.plans.append([(subset, list(rs)) for (subset, _), rs in zip(plan, rewards, strict=True)])
        policy.tell_plan(Tally.of(rewards))
    mean, _ = reference.posterior(reference.noise())
    assert policy.best() == tuple(sorted(np.argsort(-mean)[:k].tolist()))


def dispersion_learned(rewards: Any, n_arms: int = 6, k: int = 2, plays: int = 20_000) -> float:
    rng = np.random.default_rng(3)
    policy = LinearThompson(n_arms, k, seed=3)
    while policy.plays < plays:
        policy.tell_plan(Tally.of([rewards(subset, n, rng) for subset, n in policy.plan()]))
    squares, units = policy.state()["noise"]
    return float(squares / units)


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.3])
def test_the_noise_is_learned(spread: float) -> None:
    """Rewards half a range up or down of a subset's value: variance spread^2, in units of r(1 - r), r = 0.66."""
    learned = dispersion_learned(lambda s, n, rng: 0.3 + 0.04 * sum(s) + spread * rng.choice([-1, 1], n))
    assert learned == pytest.approx(spread**2 / (0.66 * 0.34), rel=0.1)


def test_the_dispersion_of_coins_is_1() -> None:
    assert dispersion_learned(lambda s, n, rng: rng.random(n) < 0.3 + 0.06 * sum(s)) == pytest.approx(1, rel=0.05)


def test_early_rewards_do_not_look_noisier_than_they_are() -> None:
    """Before a subset is played twice, the noise is learned from predictions: with 24 arms, after 60 plays.

    The first plan has five rewards, whose variance includes the differences between subsets.
    """
    found = []
    for seed in range(20):
        rng, policy = np.random.default_rng(seed), LinearThompson(24, 5, seed=seed)
        worth = rng.random(24)
        while policy.plays < 60:
            policy.tell_plan(
                Tally.of([rng.normal(worth[list(s)].mean(), 0.05, n).clip(0, 1) for s, n in policy.plan()])
            )
        squares, units = policy.state()["noise"]
        found.append(squares / units * 0.25)
    assert np.mean(found) < 4 * 0.05**2  # the prior, from five rewards and a half, is about 20 times as much


def test_without_noise_a_floor_is_left() -> None:
    policy = LinearThompson(6, 2, seed=3)
    while policy.plays < 20_000:
        policy.tell_plan(Tally.of([np.full(n, 0.05 * sum(subset)) for subset, n in policy.plan()]))
    before = policy.state()
    policy.tell_plan(Tally.of([np.full(n, 0.05 * sum(subset)) for subset, n in policy.plan()]))
    assert sum(policy.state()["V"]) - sum(before["V"]) == pytest.approx(3 * (policy.plays - before["plays"]) / 1e-4)


@pytest.mark.parametrize(("family", "n_arms", "k", "sketch"), [("mean", 12, 3, 285), ("max", 12, 2, 699)])
def test_regret_on_the_papers_grid(family: str, n_arms: int, k: int, sketch: float) -> None:
    """Within 1.3 times the sketch that knew the noise (mean of 16 instances there, of 6 here)."""
    setting = Setting(family, n_arms, k)
    runs = kofn.simulate_many(lambda s: LinearThompson(n_arms, k, seed=s), setting.problem, 10**6, 6, 7, workers=1)
    assert np.mean([run.regret for run in runs]) < 1.3 * sketch


@for_each("draws", [0, -1, 2.5, None, "many"])
def test_what_is_no_number_of_draws_is_refused(draws: Any) -> None:
    with pytest.raises(BadInput, match="draws must be a whole number"):
        LinearThompson(4, 2, draws=draws)


@pytest.mark.parametrize("name", ["linear-thompson", "oful", "glm-max"])
def test_too_many_arms_are_refused_before_memory_is(name: str) -> None:
    with pytest.raises(BadInput, match=r"8,193 arms does not fit in 2 GiB: give at most 8,192 arms, .*cmab-sm"):
        kofn.make_policy(name, n_arms=MOST_ARMS + 1, k=5)


@for_each("name", ["linear-thompson", "glm-max", "slate-glm"])
@for_each("V", [[1.0], [1.0, -1.0, 1.0, 1.0, 1.0, 1.0], [0.0, 1e9, 0.0, 0.0, 0.0, 0.0]])
def test_a_matrix_that_no_plays_make_is_refused(name: str, V: list[float]) -> None:  # noqa: N803
    policy = kofn.make_policy(name, n_arms=3, k=1, seed=1)
    with pytest.raises(kofn.BadRecord):
        policy.load({**policy.state(), "V": V})
