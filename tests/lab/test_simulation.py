"""The loop: exact curves, what a run says of itself, and the same runs on any number of workers."""

import json
import math
import random
import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import kofn
from kofn import CMABSM, BadInput, Bernoulli, Plan, Policy, Problem, Run, Tally
from kofn.cli import cli
from kofn.core import Direction, Subset
from kofn.lab.settings import Setting
from kofn.lab.simulation import simulate, simulate_many
from tests.cases import for_each

P = [0.9, 0.6, 0.5, 0.2]
Rows = list[tuple[Subset, int]]
A, B, BEST = (0, 2), (2, 3), (0, 1)
GAPS: dict[Subset, float] = {A: 0.05, B: 0.4, BEST: 0.0}  # of the mean: 0.75 - 0.7, 0.75 - 0.35
ROWS: Rows = [(A, 30), (B, 10)]


class Script(Policy):
    """Plays the same plan again and again, or, after `commits_after` of them, only `best`."""

    name = "script"

    def __init__(
        self,
        rows: Rows,
        *,
        best: Subset = BEST,
        commits_after: int | None = None,
        n_arms: int = 4,
        k: int = 2,
        direction: Direction = "maximize",
    ) -> None:
        super().__init__(n_arms, k, direction=direction)
        self.rows, self._best, self.commits_after, self.done = rows, best, commits_after, 0

    def best(self) -> Subset:
        return self._best

    @property
    def committed(self) -> bool:
        return self.commits_after is not None and self.done >= self.commits_after

    def _next(self) -> Plan:
        rows = [(self._best, 100)] if self.committed else self.rows
        return Plan(np.array([subset for subset, _ in rows]), np.array([times for _, times in rows]))

    def _learn(self, plan: Plan, tally: Tally) -> None:
        assert list(tally.count) == list(plan.times)
        self.done += 1

    def _state(self) -> dict[str, Any]:
        return {"done": self.done}

    def _load(self, state: Mapping[str, Any]) -> None:
        self.done = state["done"]


def mean_problem(p: list[float] = P, direction: Direction = "maximize") -> Problem:
    return Problem(Bernoulli(p), "mean", 2, direction=direction)


def told(runs: list[Run]) -> list[dict[str, Any]]:
    return [run.to_dict() | {"plays": run.curve.plays.tolist(), "at": run.curve.regret.tolist()} for run in runs]


def noisy(seed: np.random.SeedSequence) -> Policy:
    """A policy whose runs differ much: it learns from few plays."""
    return CMABSM(6, 2, 5_000, resolution=0.3, seed=seed)


SIX = Problem(Bernoulli([0.1, 0.25, 0.4, 0.5, 0.6, 0.7]), "maximum", 2)


# The curve.


def test_regret_is_gap_times_plays() -> None:
    run = simulate(Script(ROWS), mean_problem(), 120, seed=1)
    assert run.curve.plays.tolist() == [0, 40, 80, 120]
    per_plan = 30 * GAPS[A] + 10 * GAPS[B]
    assert run.curve.regret == pytest.approx([0, per_plan, 2 * per_plan, 3 * per_plan], abs=1e-12)
    assert run.regret == run.curve.final == run.regret_at(120)


def test_the_last_plan_is_cut_in_proportion() -> None:
    run = simulate(Script(ROWS), mean_problem(), 60, seed=1)  # 40 plays, then 20: 15 and 5
    assert run.curve.plays.tolist() == [0, 40, 60]
    assert run.regret == pytest.approx(45 * GAPS[A] + 15 * GAPS[B], abs=1e-12)
    assert run.plan_rows == 4


# What a run says of itself.


@for_each("commits_after, exploration", [(0, 0), (2, 80), (3, 120), (5, 120), (None, 120)])
def test_exploration_ends_when_the_policy_commits(commits_after: int | None, exploration: int) -> None:
    run = simulate(Script(ROWS, commits_after=commits_after), mean_problem(), 120, seed=1)
    assert run.exploration == exploration
    explored = (30 * GAPS[A] + 10 * GAPS[B]) * exploration / 40
    assert run.regret == pytest.approx(explored, abs=1e-12)  # the best subset costs nothing after it


def test_decisions_are_the_rows_played() -> None:
    assert simulate(Script(ROWS), mean_problem(), 120, seed=1).plan_rows == 6
    assert simulate(Script(ROWS), mean_problem(), 81, seed=1).plan_rows == 5  # one row is left of the third plan
    assert simulate(Script(ROWS, commits_after=2), mean_problem(), 10**9, seed=1).plan_rows == 5  # and the commitment


@for_each("p, best, optimal", [(P, BEST, True), (P, A, False), ([0.9, 0.6, 0.6, 0.2], A, True)])
def test_optimal_says_whether_the_best_or_an_equal_one_was_found(p: list[float], best: Subset, optimal: bool) -> None:
    run = simulate(Script(ROWS, best=best), mean_problem(p), 40, seed=1)
    assert (run.final, run.optimal) == (best, optimal)


def test_a_run_says_what_was_run() -> None:
    run = simulate(Script(ROWS, commits_after=2), mean_problem(), 100, seed=1, realised=True)
    assert run.realised is not None
    assert run.to_dict() == {
        "policy": "script",
        "horizon": 100,
        "final": [0, 1],
        "optimal": True,
        "plan_rows": 5,
        "exploration": 80,
        "regret": run.curve.final,
        "realised_regret": run.realised.final,
    }
    assert simulate(Script(ROWS), mean_problem(), 100, seed=1).to_dict()["realised_regret"] is None


def test_a_problem_to_be_minimised() -> None:
    policy = Script(ROWS, best=B, direction="minimize")
    run = simulate(policy, mean_problem(direction="minimize"), 400, seed=1, realised=True)
    assert run.regret == pytest.approx(300 * 0.35, abs=1e-9)  # (2, 3) is the best now, and (0, 2) the worse
    assert run.optimal
    assert run.realised is not None
    assert run.realised.final == pytest.approx(run.regret, abs=60)  # 4.5 times the root of 400 plays of variance < 1/2


# The realised regret.


def realised_less_expected(run: Run) -> float:
    assert run.realised is not None
    assert run.realised.plays.tolist() == run.curve.plays.tolist()
    return run.realised.final - run.regret


def test_realised_regret_has_the_expected_one_as_its_mean() -> None:
    # The mean of two Bernoulli arms has the variance (p(1-p) + q(1-q)) / 4, a play of the best one and one of ours.
    def variance(subset: Subset) -> float:
        return sum(P[arm] * (1 - P[arm]) for arm in subset) / 4

    problem, runs, plans = mean_problem(), 400, 3
    total = plans * (30 * variance(A) + 10 * variance(B) + 40 * variance(BEST))
    differences = [
        realised_less_expected(simulate(Script(ROWS), problem, 40 * plans, seed=seed, realised=True))
        for seed in range(runs)
    ]
    assert abs(statistics.fmean(differences)) < 4.5 * math.sqrt(total / runs)
    # A sum of so many is as good as normal: its sample variance is off by sqrt(2 / runs) at one sigma.
    assert statistics.pvariance(differences, mu=0) == pytest.approx(total, rel=4.5 * math.sqrt(2 / runs))


@for_each("seed", range(4))
def test_the_shortcut_after_commitment_changes_no_curve(seed: int) -> None:
    short, long = (
        simulate(CMABSM(6, 2, 5_000, resolution=0.3, seed=seed), SIX, 50_000, seed=seed, realised=realised)
        for realised in (False, True)
    )
    assert short.exploration == long.exploration < 50_000
    assert short.final == long.final
    at = np.linspace(0, 50_000, 333)
    assert short.curve.at(at) == pytest.approx(long.curve.at(at), rel=1e-12)
    assert len(long.curve.plays) > len(short.curve.plays)  # it did play on


# Against a loop over plays that shares nothing with the simulator but the policy.


def plain_run(seed: int, horizon: int, p: list[float]) -> float:
    luck = random.Random(seed)
    policy = CMABSM(len(p), 2, horizon, resolution=0.3)
    value = {(i, j): 1 - (1 - p[i]) * (1 - p[j]) for i in range(len(p)) for j in range(i + 1, len(p))}
    best, regret = max(value.values()), 0.0
    for _ in range(horizon):
        i, j = policy.ask()
        policy.tell((i, j), max(luck.random() < p[i], luck.random() < p[j]))
        regret += best - value[i, j]
    return regret


def test_a_plain_loop_over_plays_has_the_same_mean_regret() -> None:
    p, horizon, runs = [0.3, 0.45, 0.5, 0.6], 900, 150
    problem = Problem(Bernoulli(p), "maximum", 2)
    ours = [simulate(CMABSM(4, 2, horizon, resolution=0.3), problem, horizon, seed=seed).regret for seed in range(400)]
    theirs = [plain_run(seed, horizon, p) for seed in range(runs)]
    error = math.sqrt(statistics.variance(ours) / len(ours) + statistics.variance(theirs) / runs)
    assert abs(statistics.fmean(ours) - statistics.fmean(theirs)) < 4 * error
    assert error < 0.05 * statistics.fmean(ours)  # the comparison is worth something


# Long horizons.


def test_ten_to_the_twelve_plays_take_as_many_decisions_as_a_million() -> None:
    problem = Problem(Bernoulli(np.random.default_rng(7).random(24)), "maximum", 5)
    short, long = (
        simulate(CMABSM(24, 5, horizon, resolution=0.05), problem, horizon, seed=1) for horizon in (10**6, 10**12)
    )
    assert long.plan_rows < 1.5 * short.plan_rows
    assert short.plan_rows < 1_500
    assert long.curve.plays[-1] == 10**12
    assert long.exploration < 10**7


# Many runs.


def test_runs_are_the_same_on_any_number_of_workers() -> None:
    one, two = (simulate_many(noisy, SIX, 5_000, runs, seed=11, workers=workers) for runs, workers in ((9, 1), (7, 2)))
    assert told(one)[:7] == told(two)  # a run does not depend on how many follow
    assert len({run.regret for run in one}) > 3  # each run has seeds of its own


# Late rewards.


class Diary(Script):
    """A script that keeps a diary: what it was asked for, and what it was told and after how many questions."""

    def __init__(self, rows: Rows, **options: Any) -> None:
        super().__init__(rows, **options)
        self.asked: list[Subset] = []
        self.heard: list[tuple[int, Subset, float]] = []

    def ask(self, context: Any = None) -> Subset:
        self.asked.append(super().ask(context))
        return self.asked[-1]

    def tell(self, subset: Any, reward: float, arms: Any = None, *, context: Any = None) -> None:
        self.heard.append((len(self.asked), subset, reward))
        super().tell(subset, reward, arms, context=context)


@for_each("delay, horizon", [(1, 50), (7, 50), (25, 50), (49, 50), (50, 50), (80, 50)])
def test_a_reward_comes_when_so_many_more_plays_were_asked_for(delay: int, horizon: int) -> None:
    policy = Diary(ROWS)
    run = simulate(policy, mean_problem(), horizon, seed=1, delay=delay)
    told = max(0, horizon - delay)
    assert len(policy.asked) == horizon
    assert policy.plays == len(policy.heard) == told
    assert [after for after, _, _ in policy.heard] == list(range(delay + 1, horizon + 1))
    assert [subset for _, subset, _ in policy.heard] == policy.asked[:told]  # each reward with its own subset
    assert run.regret == pytest.approx(sum(GAPS[subset] for subset in policy.asked))
    assert run.curve.plays[-1] == run.horizon == run.plan_rows == run.exploration == horizon


def test_late_rewards_are_those_of_their_subsets() -> None:
    """Arms that always pay or never do: (0, 1) pays 1, (0, 2) pays 1/2, (2, 3) pays 0."""
    policy = Diary([(A, 3), (B, 2), (BEST, 4)])
    simulate(policy, mean_problem([1.0, 1.0, 0.0, 0.0]), 60, seed=1, delay=13)
    pays: dict[Subset, float] = {BEST: 1.0, A: 0.5, B: 0.0}
    assert {subset for _, subset, _ in policy.heard} == set(pays)
    assert all(reward == pays[subset] for _, subset, reward in policy.heard)


def test_a_commitment_is_seen_late_too() -> None:
    policy = Diary([(A, 10)], commits_after=2)
    run = simulate(policy, mean_problem(), 100, seed=1, delay=5)
    assert run.exploration == 30  # two plans of 10 plays, and 5 more plays after each until its last reward is there
    assert policy.asked == [A] * 10 + [BEST] * 5 + [A] * 10 + [BEST] * 75


def test_what_cannot_be_late_is_refused() -> None:
    with pytest.raises(BadInput, match="delay must be a whole number"):
        simulate(Script(ROWS), mean_problem(), 10, delay=-1)
    with pytest.raises(BadInput, match="with a delay, realised must be False"):
        simulate(Script(ROWS), mean_problem(), 10, delay=5, realised=True)
    with pytest.raises(BadInput, match="must need nothing but rewards"):
        simulate(kofn.lab.rivals.CUCB(4, 2), mean_problem(), 10, delay=5)


# Progress.


@for_each("commits_after, options", [(None, {}), (1, {}), (1, {"realised": True}), (None, {"delay": 40})])
def test_progress_reaches_the_end(commits_after: int | None, options: dict[str, Any]) -> None:
    seen: list[tuple[int, int]] = []
    policy = Script(ROWS, commits_after=commits_after)
    simulate(policy, mean_problem(), 150, seed=1, progress=lambda *at: seen.append(at), **options)
    assert (seen[0], seen[-1]) == ((40, 150), (150, 150))
    assert seen == sorted(set(seen))


# Refusals.


def test_a_policy_that_does_not_fit_or_was_used_is_refused() -> None:
    used = Script(ROWS)
    used.tell(A, 1)
    for policy, message in (
        (Script([((0, 1), 1)], n_arms=5), "n_arms=5, but the problem has n_arms=4"),
        (Script([((0, 1, 2), 1)], k=3), "k=3, but the problem has k=2"),
        (Script(ROWS, direction="minimize"), "direction='minimize', but the problem has direction='maximize'"),
        (used, "already observed 1 plays"),
    ):
        with pytest.raises(BadInput, match=message):
            simulate(policy, mean_problem(), 10)


def test_what_is_not_a_factory_is_refused() -> None:
    with pytest.raises(BadInput, match="policy must be a function of a seed"):
        simulate_many(Script(ROWS), mean_problem(), 10, 2)  # type: ignore[arg-type]


def test_any_run_of_a_comparison_is_repeated_by_kofn_run() -> None:
    """The seeds of a run are split in one place: `kofn run --run 7` is run 7 of `kofn.compare`, to the last digit."""
    compared = kofn.compare(["thompson", "uniform"], Setting("max", 6, 2), horizon=500, runs=8, seed=3, workers=1)
    options = ["--problem", "max", "--arms", "6", "--k", "2", "--horizon", "500", "--seed", "3", "--json"]
    for standing in compared.standings:
        for run in (0, 7):
            shown = CliRunner().invoke(cli, ["run", standing.name, *options, "--run", str(run)])
            assert shown.exit_code == 0, shown.output
            assert json.loads(shown.stdout)["regret"] == standing.finals[run]
    assert len(set(compared.standings[0].finals)) > 1


def test_simulate_many_takes_its_seeds_from_the_same_place() -> None:
    setting = Setting("max", 6, 2)
    compared = kofn.compare(["uniform"], setting, horizon=200, runs=3, seed=5, workers=1)
    runs = simulate_many(lambda seed: kofn.Uniform(6, 2, seed=seed), setting.problem, 200, 3, seed=5, workers=1)
    assert [run.regret for run in runs] == list(compared.standings[0].finals)
