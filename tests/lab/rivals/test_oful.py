"""OFUL against its formulas with all subsets in plain Python, and on problems with answers."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import BadInput, BadRecord, Bernoulli, Problem, Tally
from kofn.lab.rivals import OFUL, oful
from tests.cases import for_each


def reference(
    n_arms: int, k: int, log: list[tuple[tuple[int, ...], float]], *, regularisation: float, delta: float, all_: bool
) -> tuple[tuple[int, ...], Any, Any, float]:
    """The most promising subset after these plays, by NumPy's inverse and determinant; and V, theta, width."""
    v, b = regularisation * np.eye(n_arms), np.zeros(n_arms)
    for subset, reward in log:
        x = np.array([float(arm in subset) for arm in range(n_arms)])
        v += np.outer(x, x)
        b += reward * x
    inverse = np.linalg.inv(v)
    theta = inverse @ b
    root = math.sqrt(np.linalg.det(v)) / math.sqrt(regularisation**n_arms)
    width = 0.5 * math.sqrt(2 * math.log(root / delta)) + math.sqrt(regularisation) * math.sqrt(n_arms) / k

    def promise(subset: tuple[int, ...]) -> float:
        x = np.array([float(arm in subset) for arm in range(n_arms)])
        return float(x @ theta + width * math.sqrt(x @ inverse @ x))

    def climbed(scores: list[float]) -> tuple[int, ...]:
        at = tuple(sorted(sorted(range(n_arms), key=lambda arm: -scores[arm])[:k]))
        while True:
            others = [arm for arm in range(n_arms) if arm not in at]
            near = [tuple(sorted({*at, new} - {old})) for old in at for new in others]
            better = max(near, key=promise)
            if promise(better) <= promise(at) + 1e-12:
                return at
            at = better

    if all_:
        found = list(itertools.combinations(range(n_arms), k))
    else:
        found = [climbed([theta[i] + width * math.sqrt(inverse[i, i]) for i in range(n_arms)]), climbed(list(theta))]
    top = max(map(promise, found))
    return next(subset for subset in found if promise(subset) > top - 1e-9), v, theta, width


@pytest.mark.parametrize("all_", [True, False])
@pytest.mark.parametrize("case", range(8))
def test_equal_to_the_reference_play_by_play(case: int, all_: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not all_:
        monkeypatch.setattr(oful, "MOST_CELLS", 0)
    rng = np.random.default_rng(case)
    n_arms = int(rng.integers(2, 7))
    k = int(rng.integers(1, n_arms))
    growth = float(rng.uniform(1.2, 3))
    params: dict[str, Any] = {"regularisation": float(rng.uniform(0.2, 2)), "delta": 0.1}
    worth = rng.random(n_arms)
    policy = OFUL(n_arms, k, growth=growth, **params)
    log: list[tuple[tuple[int, ...], float]] = []
    while policy.plays < 1_000:
        subset, v, theta, width = reference(n_arms, k, log, **params, all_=all_)
        ((planned, times),) = policy.plan()
        assert policy.width == pytest.approx(width)
        if policy.plays >= 2 * n_arms:  # before, subsets are equal but for rounding
            assert planned == subset
            assert policy.best() == tuple(sorted(np.argsort(-theta, kind="stable")[:k].tolist()))
        x = np.array([float(arm in planned) for arm in range(n_arms)])
        grown = [np.linalg.det(v + n * np.outer(x, x)) / np.linalg.det(v) for n in (times - 1, times)]
        assert grown[0] < growth + 1e-9
        assert grown[1] > growth - 1e-9  # the plan ends with the play that crosses it
        rewards = (worth[list(planned)].mean() + rng.random(times)) / 2
        log += [(planned, reward) for reward in rewards.tolist()]
        policy.tell_plan(Tally.of([rewards]))


def test_the_local_search_is_near_the_exact_maximum() -> None:
    """On 200 states of a run, it finds the exact maximum in nine of ten and misses by at most 5 % of it."""
    policy, rng, hits = OFUL(8, 3, growth=1.1), np.random.default_rng(1), 0
    worth = np.linspace(0.1, 0.9, 8)
    x = np.array([[float(arm in s) for arm in range(8)] for s in itertools.combinations(range(8), 3)])
    for _ in range(200):
        exact = policy._upper_bound(x).max()
        policy._all = False
        found = policy._upper_bound(np.isin(np.arange(8), policy._most_optimistic()).astype(float)[None])[0]
        policy._all = True
        hits += found > exact - 1e-9
        assert found > 0.95 * exact
        policy.tell_plan(Tally.of([rng.binomial(1, worth[list(s)].mean(), n) for s, n in policy.plan()]))
    assert hits >= 180


def test_the_ellipsoid_holds() -> None:
    """|theta - theta*| in the norm of V is within the width all the time, in at least 95 of 100 runs."""
    worth = np.array([0.9, 0.2, 0.6, 0.4])
    held = 0
    for seed in range(100):
        policy, rng, inside = OFUL(4, 2), np.random.default_rng(seed), True
        while policy.plays < 2_000:
            plan = policy.plan()
            policy.tell_plan(Tally.of([rng.binomial(1, worth[list(s)].mean(), n) for s, n in plan]))
            off = policy._theta - worth / 2
            inside &= bool(off @ np.linalg.inv(policy._covariance) @ off <= policy.width**2)
        held += inside
    assert held >= 95


@pytest.mark.parametrize("all_", [True, False])
def test_finds_the_best(all_: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not all_:
        monkeypatch.setattr(oful, "MOST_CELLS", 0)
    problem = Problem(Bernoulli([0.1, 0.9, 0.3, 0.8, 0.2, 0.5]), "mean", 2)
    runs = kofn.simulate_many(lambda _: OFUL(6, 2), problem, 10**5, 5, 1, workers=1)
    assert all(run.optimal for run in runs)
    assert max(run.plan_rows for run in runs) < 150  # N log2(T) at the most, or so: it switches rarely
    assert max(run.regret for run in runs) < 10**5 * problem.gap([(0, 4)])[0] / 10


@pytest.mark.parametrize("all_", [True, False])
@pytest.mark.parametrize("reward", [0.0, 0.5, 1.0])
def test_very_many_plays_of_equal_subsets(all_: bool, reward: float, monkeypatch: pytest.MonkeyPatch) -> None:
    if not all_:
        monkeypatch.setattr(oful, "MOST_CELLS", 0)
    policy = OFUL(6, 3)
    while policy.plays < 10**14:
        ((_, n),) = policy.plan()
        policy.tell_plan(Tally(np.array([n]), np.array([reward * n]), np.array([reward**2 * n])))
    assert len(policy.best()) == 3


@for_each(
    "name, value", [("regularisation", 0), ("regularisation", "1"), ("delta", 1.0), ("growth", 1), ("growth", True)]
)
def test_wrong_parameters_are_refused(name: str, value: Any) -> None:
    with pytest.raises(BadInput, match=f"{name} must be"):
        OFUL(4, 2, **{name: value})


@pytest.mark.parametrize("b", [[2.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
def test_a_state_that_no_rewards_make_is_refused(b: list[float]) -> None:
    policy = OFUL(3, 1)
    policy.tell_plan(Tally.of([[1.0]]))
    with pytest.raises(BadRecord, match="b must be between 0"):
        policy.load({**policy.state(), "b": b})
