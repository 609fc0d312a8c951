"""CSAR against plain Python, play by play, against least squares, and against the answer."""

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest

import kofn
from kofn import BadRecord, Plan, ShortHorizonWarning, Tally
from kofn.core import FloatArray, Subset
from kofn.lab.rivals import CSAR
from kofn.lab.rivals.hadamard import hadamard, is_order
from tests.cases import for_each

Draw = Callable[[Subset, int, int], float]
Row = tuple[Subset, int]


def told(plan: Plan, draw: Draw, r: int) -> Tally:
    """The tally of rewards that are about 0 or 1: `draw` says what n plays earned."""
    ones = np.array([draw(subset, n, r) for subset, n in plan])
    return Tally(plan.times.copy(), ones, ones)


def noiseless(plan: Plan, worth: FloatArray) -> Tally:
    reward = worth[plan.subsets].mean(axis=1)
    return Tally(plan.times.copy(), reward * plan.times, reward**2 * plan.times)


def reference(n_arms: int, k: int, horizon: int, draw: Draw) -> tuple[Subset, list[list[Row]]]:
    """CSAR in plain Python, for orders 2K that exist and N >= 2K: the subset found, and the plays of each round."""
    active, theta = list(range(n_arms)), dict.fromkeys(range(n_arms), 0.0)
    accepted: list[int] = []
    h = hadamard(2 * k).tolist()
    log: list[list[Row]] = []
    r = 1
    while len(accepted) < k and len(active) + len(accepted) > k:
        delta = 2.0**-r
        n = math.ceil(2 * math.log(n_arms * horizon) / delta**2)
        if n >= horizon:
            break
        log.append([])
        fresh: dict[int, float] = {}
        for start in range(0, len(active), 2 * k):
            block = active[start : start + 2 * k]
            by_worth = sorted(range(n_arms), key=lambda arm: (arm not in accepted, -theta[arm]))
            block = (block + [arm for arm in by_worth if arm not in block])[: 2 * k]
            z = []
            for i, signs in enumerate(h):
                if i == 0:
                    signs = [1] * k + [-1] * k
                sides = [tuple(sorted(a for a, s in zip(block, signs, strict=True) if s == side)) for side in (1, -1)]
                log[-1] += [(subset, n) for subset in sides]
                plus, minus = (draw(subset, n, r) / n for subset in sides)
                z.append(plus + minus if i == 0 else plus - minus)
            for column, arm in enumerate(block):
                if arm in active and arm not in fresh:
                    fresh[arm] = sum(h[i][column] * z[i] for i in range(2 * k)) / 2
        theta |= fresh
        order = sorted((theta[arm] for arm in active), reverse=True)
        places = k - len(accepted)
        above, below = order[places], order[places - 1]
        accepted += [arm for arm in active if theta[arm] > above + 2 * delta]
        active = [arm for arm in active if arm not in accepted and theta[arm] >= below - 2 * delta]
        r += 1
    rest = sorted(active, key=lambda arm: -theta[arm])[: k - len(accepted)]
    return tuple(sorted(accepted + rest)), log


@for_each("case", range(40))
def test_equal_to_plain_python_play_by_play(case: int) -> None:
    rng = np.random.default_rng(case)
    k = int(rng.choice([1, 2, 4, 6]))
    n_arms = int(rng.integers(2 * k, 5 * k + 3))
    horizon = int(10 ** rng.uniform(3, 6))
    worth = rng.random(n_arms)

    def draw(subset: Subset, n: int, r: int) -> float:
        luck = np.random.default_rng([case, r, *subset])  # no ties: they would be broken by the order of additions
        return float(luck.binomial(n, worth[list(subset)].mean()) * luck.uniform(0.999, 1.0))

    best, rounds = reference(n_arms, k, horizon, draw)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        policy = CSAR(n_arms, k, horizon)
    assert len(notes) == (sum(n for _, n in rounds[0]) > horizon)
    for r, rows in enumerate(rounds, start=1):
        assert not policy.committed
        assert list(policy.plan()) == rows
        policy.tell_plan(told(policy.plan(), draw, r))
    assert policy.committed
    assert policy.best() == best
    assert list(policy.plan()) == [(best, horizon)]


@for_each("n_arms, k", [(8, 4), (16, 4), (12, 6), (40, 10)])
def test_estimates_are_those_of_least_squares(n_arms: int, k: int) -> None:
    """With whole blocks the rows have one solution, however noisy the rewards are."""
    policy, rng = CSAR(n_arms, k, 10**6), np.random.default_rng(1)
    plan = policy.plan()
    ones = rng.binomial(plan.times, 0.4 + 0.2 * rng.random(len(plan))).astype(float)
    policy.tell_plan(Tally(plan.times.copy(), ones, ones))
    design = np.zeros((len(plan), n_arms))
    np.put_along_axis(design, plan.subsets, 1 / k, axis=1)
    # The two sides of a row are as good as their sum and difference; CSAR uses the sum of row 0 only.
    sums, means = design.reshape(-1, 2, n_arms), (ones / plan.times).reshape(-1, 2)
    rows, z = sums[:, 0] - sums[:, 1], means[:, 0] - means[:, 1]
    first = np.arange(0, len(rows), 2 * k)
    rows[first], z[first] = sums[first].sum(axis=1), means[first].sum(axis=1)
    expected, *_ = np.linalg.lstsq(rows, z, rcond=None)
    assert policy.state()["theta"] == pytest.approx(expected.tolist(), abs=1e-9)


SIZES = [(n_arms, k) for n_arms in range(2, 15) for k in range(1, n_arms)]


@for_each("n_arms, k", [*SIZES, (45, 8), (30, 17), (99, 46), (100, 64), (70, 69)])
def test_one_round_without_noise_tells_every_difference(n_arms: int, k: int) -> None:
    worth = np.random.default_rng([n_arms, k]).random(n_arms)
    policy = CSAR(n_arms, k, 10**9)
    policy.tell_plan(noiseless(policy.plan(), worth))
    theta = np.array(policy.state()["theta"])
    assert theta - theta[0] == pytest.approx(worth - worth[0], abs=1e-9)
    if policy.exact:
        assert theta == pytest.approx(worth, abs=1e-9)


@for_each("n_arms, k", SIZES)
def test_without_noise_it_ends_in_the_best(n_arms: int, k: int) -> None:
    worth = np.random.default_rng([k, n_arms]).permutation(n_arms) / n_arms
    policy = CSAR(n_arms, k, 10**12)
    while not policy.committed:
        policy.tell_plan(noiseless(policy.plan(), worth))
    marks = policy.state()["status"]
    assert policy.best() == tuple(sorted(np.argsort(-worth)[:k].tolist()))
    assert marks.count(1) == k or marks.count(2) == n_arms - k


def test_the_order_is_2k_wherever_it_can_be() -> None:
    for k in range(1, 65):
        policy = CSAR(200, k, 10**8)
        assert policy.exact == is_order(2 * k) == (k == 1 or (k % 2 == 0 and k not in (46, 58)))
        assert policy.order <= 2 * k
        assert is_order(policy.order)
    assert CSAR(10, 8, 10**8).order == 4  # two arms are left out: blocks of four, six others beside
    assert CSAR(3000, 1000, 10**9).order == 512


def test_where_the_order_is_not_2k_rows_are_played_as_often_as_their_noise_asks() -> None:
    """The variance of a difference between arms of two blocks: at most that of the paper's design at n_r plays."""
    n_arms, k = 20, 3
    policy = CSAR(n_arms, k, 10**6)
    n = math.ceil(2 * math.log(n_arms * 10**6) * 4)
    assert policy.order == 4
    assert policy.plan().times[0] == pytest.approx(3 * n, abs=3)  # 4 K / order = 3
    rng, worth, found = np.random.default_rng(2), np.full(n_arms, 0.5), []
    for _ in range(400):
        policy = CSAR(n_arms, k, 10**6)
        plan = policy.plan()
        mean = worth[plan.subsets].mean(axis=1)
        noisy = np.clip(mean + rng.normal(0, 1 / np.sqrt(4 * k * plan.times)), 0, 1)  # as K Bernoulli arms have
        policy.tell_plan(Tally(plan.times.copy(), noisy * plan.times, noisy**2 * plan.times))
        theta = policy.state()["theta"]
        found.append(theta[1] - theta[-1])
    # A difference of two estimates of variance 1/(4n) each has 1/(2n); 400 draws know a variance to some 7 %.
    assert np.var(found) == pytest.approx(1 / (2 * n), rel=0.3)


@pytest.mark.parametrize(("n_arms", "k", "seed"), [(9, 4, 1), (9, 3, 2), (7, 5, 3)])
def test_finds_the_best_of_noisy_arms(n_arms: int, k: int, seed: int) -> None:
    """Whatever is accepted or rejected is so with an error of 1e-6; the border is 0.25 wide."""
    worth = np.where(np.arange(n_arms) < k, 0.75, 0.5)[np.random.default_rng(seed).permutation(n_arms)]
    problem = kofn.Problem(kofn.Bernoulli(worth), "mean", k)
    runs = [kofn.simulate(CSAR(n_arms, k, 10**7), problem, 10**7, seed=each) for each in range(10)]
    assert all(run.optimal and run.exploration < 10**7 for run in runs)


@pytest.mark.parametrize(("k", "plans"), [(4, 3), (3, 8)])
def test_many_blocks_are_played_in_several_plans(k: int, plans: int, monkeypatch: pytest.MonkeyPatch) -> None:
    worth = np.random.default_rng(4).random(23)
    monkeypatch.setattr("kofn.lab.rivals.csar.MOST_PLAN_CELLS", 40)  # less than two blocks
    policy = CSAR(23, k, 10**6)
    for plan in range(plans):
        assert (policy.state()["r"], policy.state()["block"]) == (1, plan)
        assert len(policy.plan()) == 2 * (policy.order if k == 4 else policy.order - 1)
        policy.load(policy.state())
        policy.tell_plan(noiseless(policy.plan(), worth))
    theta = np.array(policy.state()["theta"])
    assert (policy.state()["r"], policy.state()["block"]) == (2, 0)
    assert theta - theta[0] == pytest.approx(worth - worth[0], abs=1e-9)


def test_a_horizon_that_is_too_short_is_said() -> None:
    with pytest.warns(ShortHorizonWarning, match="too short for CSAR .* 45 arms: its first round takes 8,256"):
        CSAR(45, 4, 1_000)


@for_each("wrong", [{"status": [1, 1, 1, 0, 0]}, {"status": [2, 2, 2, 2, 0]}, {"block": 2}])
def test_a_state_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    policy = CSAR(5, 2, 10**6)
    with pytest.raises(BadRecord):
        policy.load({**policy.state(), **wrong})
