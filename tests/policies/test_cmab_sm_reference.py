"""The shipped CMAB-SM against the generator version: equal play by play, and right."""

import json
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import CMABSM, Plan, Policy, Tally
from kofn.policies.cmab_sm import Merge
from tests.policies.reference import cmab_sm

Played = tuple[tuple[int, ...], int, float]


class Rewards:
    """Rewards that depend on the case, the subset and how many plays of it are planned, and on nothing else.

    They are 64ths, so that their sums are exact however they are added up.
    """

    def __init__(self, case: int, n_arms: int) -> None:
        self.case = case
        rng = np.random.default_rng([case, 1])
        self.worth = rng.random(n_arms)
        self.noise = rng.choice([0.0, 0.1, 1.0])

    def of(self, subset: tuple[int, ...], n: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        rng = np.random.default_rng([self.case, n, *subset])
        mean = self.worth[list(subset)].mean()
        drawn = (1 - self.noise) * mean + self.noise * (rng.random(n) < mean)
        return np.asarray(np.round(drawn * 64) / 64)


def of_reference(rewards: Rewards, *args: Any) -> tuple[list[int], list[Played], list[Played]]:
    playing = cmab_sm(*args)
    log: dict[str, list[Played]] = {"sort": [], "merge": []}
    answer = None
    while True:
        try:
            phase, action, n = playing.send(answer) if answer is not None else next(playing)
        except StopIteration as end:
            return end.value, log["sort"], log["merge"]
        answer = float(rewards.of(action, n).sum())
        log[phase].append((action, n, answer))


def of_shipped(policy: Policy, rewards: Rewards, rng: np.random.Generator) -> tuple[Policy, list[Played], list[Played]]:
    log: dict[bool, list[Played]] = {False: [], True: []}
    while not policy.committed:
        plan = policy.plan()
        merging = isinstance(vars(policy)["_phase"], Merge)
        drawn = [rewards.of(subset, n) for subset, n in plan]
        log[merging] += [(subset, n, float(each.sum())) for (subset, n), each in zip(plan, drawn, strict=True)]
        policy = play_in_parts(policy, plan, drawn, rng)
    return policy, log[False], log[True]


def play_in_parts(policy: Policy, plan: Plan, drawn: list[Any], rng: np.random.Generator) -> Policy:
    """Tell the plan's rewards in random parts, through either door, with reloads from JSON in between."""
    told = np.zeros(len(plan), int)
    while (told < plan.times).any():
        if rng.random() < 0.2:
            policy = kofn.restore(json.loads(json.dumps(kofn.save(policy))))
        if rng.random() < 0.2 and plan.plays < 500:
            row = int(rng.choice(np.flatnonzero(told < plan.times)))
            twins = [r for r, (subset, _) in enumerate(plan) if subset == tuple(plan.subsets[row].tolist())]
            row = next(r for r in twins if told[r] < plan.times[r])
            policy.tell(tuple(plan.subsets[row].tolist()), drawn[row][told[row]])
            told[row] += 1
            continue
        part = rng.integers(0, plan.times - told, endpoint=True) if rng.random() < 0.5 else plan.times - told
        policy.tell_plan(Tally.of([each[a : a + n] for each, a, n in zip(drawn, told, part, strict=True)]))
        told += part
    return policy


def random_case(case: int) -> tuple[int, int, int, float | None]:
    rng = np.random.default_rng([case, 0])
    n_arms = int(rng.integers(2, 30))
    k = int(rng.integers(1, n_arms))
    horizon = int(10 ** rng.uniform(2, 7))
    resolution = None if rng.random() < 0.3 else float(rng.choice([0.05, 0.12, 0.2, 0.3, 0.45, 0.6]))
    return n_arms, k, horizon, resolution


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 9))])
def test_equal_to_the_reference_play_by_play(block: int) -> None:
    for case in range(60 * block, 60 * (block + 1)):
        n_arms, k, horizon, resolution = random_case(case)
        rng = np.random.default_rng([case, 2])
        seed = None if case % 2 else case
        arms = None if seed is None else np.random.default_rng(seed).permutation(n_arms).tolist()
        rewards = Rewards(case, n_arms)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", kofn.ShortHorizonWarning)
            policy: Policy = CMABSM(n_arms, k, horizon, resolution=resolution, seed=seed)
            best, sorting, merging = of_reference(rewards, n_arms, k, horizon, resolution, arms)
            policy, our_sorting, our_merging = of_shipped(policy, rewards, rng)
        assert policy.best() == tuple(sorted(best)), case
        assert Counter(our_sorting) == Counter(sorting), case
        assert our_merging == merging, case
        assert policy.plays == sum(n for _, n, _ in sorting + merging), case


@pytest.mark.parametrize(
    "n_arms",
    [
        *range(2, 17),
        24,
        32,
        *(pytest.param(n, marks=pytest.mark.slow) for n in (*range(17, 24), *range(25, 32), *range(33, 41))),
    ],
)
def test_finds_the_true_best_without_noise(n_arms: int) -> None:
    worth = np.random.default_rng(n_arms).permutation(n_arms) / n_arms
    for k in range(1, n_arms):
        policy = CMABSM(n_arms, k, horizon=10**15, resolution=0.1 / n_arms / k)
        while not policy.committed:
            plan = policy.plan()
            mean = worth[plan.subsets].mean(axis=1)
            policy.tell_plan(Tally(plan.times.copy(), mean * plan.times, mean**2 * plan.times))
        assert policy.best() == tuple(sorted(np.argsort(worth)[-k:].tolist())), (n_arms, k)
