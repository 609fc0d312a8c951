"""Estimates from logs: against formulas written out play by play, and over many logs against the truth.

Over M logs the mean of an unbiased estimate lies within 5.3 deviations / sqrt(M) of the truth, and the stated error is
the deviation, to within 5.3 / sqrt(2 M) of it (for terms that are not too far from normal; 15 % are allowed for that).
"""

from __future__ import annotations

import dataclasses
import json
import math
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import kofn
from kofn import BadInput, ThinLogWarning, Thompson
from kofn.lab.logs import DecisionLog, OffPolicyEstimate, ValueWithError, evaluate, evaluate_all
from kofn.lab.problems import Bernoulli, Problem

PROBLEM = Problem(Bernoulli([0.2, 0.5, 0.8, 0.1]), "mean", 2)
SUBSETS = np.array([[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]])
SKEWED = np.array([0.4, 0.2, 0.1, 0.05, 0.15, 0.1])
LOGS = 300


def skewed(plays: int, seed: int) -> DecisionLog:
    """A log that prefers some subsets, and says so."""
    rng = np.random.default_rng(seed)
    which = rng.choice(6, plays, p=SKEWED)
    rewards = PROBLEM.play(SUBSETS[which], np.ones(plays, int), rng).total
    return DecisionLog(SUBSETS[which], rewards, SKEWED[which], 4)


def ridge(subsets: Any, rewards: Any) -> Any:
    """The additive model, by an explicit design matrix; a function of a subset."""
    design = np.full((len(subsets), 4), -0.5)
    for row, arms in enumerate(subsets):
        design[row, arms] += 1
    beta = np.linalg.solve(design.T @ design + np.eye(4), design.T @ (rewards - rewards.mean()))
    return lambda arms: rewards.mean() + beta @ (np.isin(np.arange(4), arms) - 0.5)


def test_every_estimate_is_its_formula_play_by_play() -> None:
    log, subset = skewed(400, 7), (0, 2)
    assert log.propensity is not None
    match = (log.subsets == subset).all(axis=1)
    w, r, n = match / log.propensity, log.rewards, len(log)
    found = evaluate(log, subset)
    assert found.plays == match.sum()
    assert found.ips.value == pytest.approx((w * r).mean())
    assert found.ips.error == pytest.approx((w * r).std(ddof=1) / n**0.5)
    assert found.weight.value == pytest.approx(w.mean())
    assert found.weight.error == pytest.approx(w.std(ddof=1) / n**0.5)
    ratio = (w * r).sum() / w.sum()
    assert found.snips.value == pytest.approx(ratio)
    m = match.sum()
    assert found.snips.error == pytest.approx(math.sqrt((w**2 * (r - ratio) ** 2).sum() * m / (m - 1)) / w.sum())
    fold = np.arange(n) % 2
    q = [ridge(log.subsets[fold != each], r[fold != each])(subset) for each in (0, 1)]
    terms = np.choose(fold, q) + w * (r - np.choose(fold, q))
    assert found.dr.value == pytest.approx(terms.mean())
    within = sum((n / 2) ** 2 * terms[fold == each].var(ddof=1) / (n / 2) for each in (0, 1)) / n**2
    assert found.dr.error == pytest.approx(within**0.5)


@cache
def evaluations(subset: Any) -> list[OffPolicyEstimate]:
    """Return the evaluation of a subset on each of many logs."""
    return [evaluate(skewed(2_000, seed), subset) for seed in range(LOGS)]


@pytest.mark.parametrize("method", ["ips", "snips", "dr"])
@pytest.mark.parametrize("subset", [(1, 2), (0, 1), (2, 3)])
def test_over_many_logs_estimates_and_errors_are_right(method: str, subset: Any) -> None:
    truth = PROBLEM.value([subset])[0]
    found = [getattr(each, method) for each in evaluations(subset)]
    values = np.array([each.value for each in found])
    deviation = values.std(ddof=1)
    assert abs(values.mean() - truth) < 5.3 * deviation / LOGS**0.5
    assert np.mean([each.error for each in found]) == pytest.approx(deviation, rel=5.3 / (2 * LOGS) ** 0.5 + 0.15)
    inside = np.mean([low <= truth <= high for low, high in (each.interval() for each in found)])
    assert inside > 0.95 - 5.3 * (0.95 * 0.05 / LOGS) ** 0.5 - 0.02


def test_doubly_robust_is_right_with_a_wrong_model_and_better_than_weighting() -> None:
    """The maximum is not additive; still there is no bias, and less noise than by inverse propensity."""
    problem = Problem(Bernoulli([0.6, 0.7, 0.9, 0.5]), "maximum", 2)
    truth = problem.value([(0, 1)])[0]
    found = [evaluate(DecisionLog.simulate(problem, 1_000, seed), (0, 1)) for seed in range(LOGS)]
    dr, ips = (np.array([getattr(each, name).value for each in found]) for name in ("dr", "ips"))
    assert abs(dr.mean() - truth) < 5.3 * dr.std() / LOGS**0.5
    assert dr.std() < 0.7 * ips.std()


def test_wrong_propensities_are_noticed() -> None:
    log = skewed(5_000, 1)
    lying = DecisionLog(log.subsets, log.rewards, np.full(len(log), 1 / 6), 4)
    with pytest.warns(
        ThinLogWarning, match=r"the propensities of \(0, 1\) do not match the log: the mean weight should be 1"
    ):
        evaluate(lying, (0, 1))


def test_a_log_that_cannot_say_refuses() -> None:
    log = DecisionLog.simulate(PROBLEM, 2_000, seed=1)
    without = (log.subsets != (1, 2)).any(axis=1)
    assert log.propensity is not None
    less = DecisionLog(log.subsets[without], log.rewards[without], log.propensity[without], 4)
    with pytest.raises(BadInput, match=r"the log has no play of \(1, 2\); .* predicts 0\.\d+, which may be wrong"):
        evaluate(less, (1, 2))
    one = DecisionLog(SUBSETS[[0, 3, 3]], np.ones(3), np.full(3, 1 / 6), 4)
    with pytest.raises(BadInput, match=r"the log has one play of \(0, 1\)"):
        evaluate(one, (0, 1))
    with pytest.raises(BadInput, match="the log has no subset with two plays"):
        evaluate_all(DecisionLog(SUBSETS[:3], np.ones(3), np.full(3, 1 / 6), 4))
    unknown = DecisionLog(log.subsets, log.rewards, None, 4)
    for ask in (
        lambda: evaluate(unknown, (0, 1)),
        lambda: evaluate_all(unknown),
        lambda: kofn.replay(Thompson(4, 2), unknown),
    ):
        with pytest.raises(BadInput, match="propensities"):
            ask()


def test_thin_logs_warn() -> None:
    few = DecisionLog(SUBSETS[[0, 0, 0, 1, 2]], np.array([0.0, 1.0, 0.5, 1, 1]), np.full(5, 1 / 6), 4)
    with pytest.warns(ThinLogWarning, match="only 3 plays"):
        evaluate(few, (0, 1))
    same = DecisionLog(np.tile(SUBSETS, (20, 1)), np.zeros(120), np.full(120, 1 / 6), 4)
    with pytest.warns(ThinLogWarning, match="have the same reward"):
        evaluate(same, (0, 1))


def test_all_subsets_are_ranked_with_intervals_that_hold_at_once() -> None:
    every = evaluate_all(DecisionLog.simulate(PROBLEM, 6_000, seed=1))
    assert len(every) == 6
    assert every[0].subset == (1, 2)
    assert [each.dr.value for each in every] == sorted((each.dr.value for each in every), reverse=True)
    one, all_six = ValueWithError(0.5, 0.1).interval(), ValueWithError(0.5, 0.1).interval(of=6)
    assert one == pytest.approx((0.5 - 0.195996, 0.5 + 0.195996), abs=1e-5)
    assert all_six[1] - 0.5 == pytest.approx(0.1 * stats.norm.ppf(1 - 0.05 / 12))
    json.dumps([each.to_dict() for each in every], allow_nan=False)


# An export of a campaign: its policy learned meanwhile.

CAMPAIGNS = 24
"""Number of campaigns. If 95 % of the joint intervals hold, more than 4 of 24 fail with a probability of 0.006."""


@cache
def exported(control: str, late: int) -> list[tuple[Problem, DecisionLog]]:
    """Return the logs of simulated campaigns, as `kofn campaign decisions` writes them, and their problems.

    2,000 decisions each, 200 at a time; rewards arrive `late` calls later, so that many decisions are fillers.
    """
    pytest.importorskip("sqlalchemy")
    from kofn.campaigns.decision_files import encoded

    found = []
    for seed in range(CAMPAIGNS):
        rng = np.random.default_rng(seed)
        problem = Problem(Bernoulli(rng.uniform(0.05, 0.6, 5)), "maximum", 2)
        given: dict[str, Any] = {"control": list("ab") if control == "fixed" else control} if control else {}
        with tempfile.TemporaryDirectory() as folder:
            store = f"sqlite:///{folder}/shop.db?synchronous=normal"
            campaign = kofn.Campaign.create("front", list("abcde"), 2, seed=seed, store=store, **given)
            waiting: list[dict[str, float]] = []
            for _ in range(10):
                made = campaign.decide(200)
                earned = problem.play(np.array([each.subset for each in made]), np.ones(200, int), rng).total
                waiting.append(dict(zip((each.id for each in made), earned.tolist(), strict=True)))
                if len(waiting) > late:
                    campaign.rewards(waiting.pop(0))
            path = Path(folder) / "log.csv"
            path.write_bytes(b"".join(encoded(campaign.decisions(), "csv")))
            found.append((problem, DecisionLog.read(path)))
            campaign.store.close()
    return found


def hold(estimates: list[tuple[ValueWithError, float]]) -> bool:
    """Return whether the intervals that hold at once contain the true values."""
    intervals = [(*estimate.interval(of=len(estimates)), truth) for estimate, truth in estimates]
    return all(low <= truth <= high for low, high, truth in intervals)


@pytest.mark.slow
@pytest.mark.parametrize(("control", "late"), [("", 0), ("fixed", 0), ("", 2)])
def test_the_intervals_of_an_exported_campaign_hold(control: str, late: int) -> None:
    """The mean's mostly do. Estimates by propensity are not right: not every subset was possible in every play."""
    means, weighted = 0, 0
    for problem, log in exported(control, late):
        assert log.adaptive
        assert log.unrewarded == 200 * late
        every = evaluate_all(log)
        assert min(each.plays for each in every) >= 10
        assert all(each.estimate == each.mean for each in every)
        truth = [float(problem.value([each.subset])[0]) for each in every]
        means += hold([(each.mean, value) for each, value in zip(every, truth, strict=True)])
        known = [(each.dr, value) for each, value in zip(every, truth, strict=True) if not math.isnan(each.dr.value)]
        weighted += hold(known)
    assert means >= CAMPAIGNS - 9  # if 80 % hold at once, fewer do with a probability of 0.01
    assert weighted < CAMPAIGNS - 9


@pytest.mark.slow
def test_with_a_uniform_control_estimates_by_propensity_hold_too() -> None:
    """Then every subset is possible in every play, and the log can be read as one that is not adaptive."""
    estimates: dict[str, list[bool]] = {"mean": [], "snips": [], "dr": []}
    for problem, log in exported("uniform", 0):
        every = evaluate_all(dataclasses.replace(log, adaptive=False))
        truth = [float(problem.value([each.subset])[0]) for each in every]
        assert len(every) == 10
        for name, held in estimates.items():
            held.append(hold([(getattr(each, name), value) for each, value in zip(every, truth, strict=True)]))
    assert min(map(sum, estimates.values())) >= CAMPAIGNS - 4, {name: sum(held) for name, held in estimates.items()}


def test_the_mean_of_an_adaptive_log_is_its_formula() -> None:
    subsets = SUBSETS[[0] * 10 + [1] * 12 + [2]]
    rewards = np.concatenate([np.zeros(10), np.arange(12) / 12, [1.0]])
    log = DecisionLog(subsets, rewards, None, 4, adaptive=True)
    first, second = evaluate_all(log)[::-1]  # the third has one play
    assert (first.subset, second.subset) == ((0, 1), (0, 2))
    within = ((rewards[10:22] - rewards[10:22].mean()) ** 2).sum()
    pooled = within / (9 + 11 + 0)
    assert second.mean.value == pytest.approx(rewards[10:22].mean())
    assert second.mean.error == pytest.approx(math.sqrt((within + 20 * pooled) / (11 + 20) / 12))
    assert first.mean.value == 0.0
    assert first.mean.error == pytest.approx(math.sqrt(20 * pooled / (9 + 20) / 10))
    assert math.isnan(first.dr.value)
    assert json.loads(json.dumps(first.to_dict(), allow_nan=False))["dr"] == {"value": None, "error": None}


def test_plays_without_a_propensity_count_for_the_mean_only() -> None:
    log = skewed(400, 7)
    assert log.propensity is not None
    unknown = np.arange(400) % 5 == 0
    some = dataclasses.replace(log, propensity=np.where(unknown, np.nan, log.propensity))
    rest = DecisionLog(log.subsets[~unknown], log.rewards[~unknown], log.propensity[~unknown], 4)
    found, expected = evaluate(some, (0, 2)), evaluate(rest, (0, 2))
    for name in ("weight", "ips", "snips", "dr"):
        assert vars(getattr(found, name)) == pytest.approx(vars(getattr(expected, name)))
    assert found.mean.value == pytest.approx(log.rewards[(log.subsets == (0, 2)).all(axis=1)].mean())
    replayed, without = kofn.replay(_Always(4, 2), some, seed=1), kofn.replay(_Always(4, 2), rest, seed=1)
    assert replayed == without


def test_a_replay_on_an_adaptive_log_warns() -> None:
    log = dataclasses.replace(DecisionLog.simulate(PROBLEM, 500, seed=3), adaptive=True)
    with pytest.warns(ThinLogWarning, match="the replay may end early"):
        kofn.replay(_Always(4, 2), log)


# A policy in the log.


def test_a_policy_that_always_plays_one_subset_takes_all_of_its_plays() -> None:
    log = DecisionLog.simulate(PROBLEM, 5_000, seed=3)
    match = (log.subsets == (0, 2)).all(axis=1)
    found = kofn.replay(_Always(4, 2), log)
    assert found.plays == match.sum()
    assert found.mean == pytest.approx(log.rewards[match].mean())
    assert found.error == pytest.approx(log.rewards[match].std(ddof=1) / match.sum() ** 0.5)
    assert found.unmatched == (0, 2)


class _Always(kofn.Policy):
    """Plays (0, 2) whatever it is told."""

    name = "always"

    def __init__(self, n_arms: int, k: int, **options: Any) -> None:
        super().__init__(n_arms, k, **options)

    def best(self) -> Any:
        return (0, 2)

    def _next(self) -> kofn.Plan:
        return kofn.Plan.one((0, 2), 10)

    def _learn(self, plan: Any, tally: Any) -> None:
        pass

    def _state(self) -> dict[str, Any]:
        return {}

    def _load(self, state: Any) -> None:
        pass


@pytest.mark.parametrize("logged", ["uniform", "skewed"])
def test_a_replayed_policy_earns_what_it_earns_live(logged: str) -> None:
    """The mean of the first 40 rewards, over 30 logs and 60 live runs: a z below 5.3."""
    live, replayed = earned_live(), []
    for seed in range(30):
        log = DecisionLog.simulate(PROBLEM, 420, seed) if logged == "uniform" else skewed(1_600, seed)
        cut = _Remembering(4, 2, seed=seed)
        with pytest.raises(_Enough):  # every log has at least 40 plays that the policy asks for
            kofn.replay(cut, log, seed)
        assert len(cut.seen) == 40
        replayed.append(np.mean(cut.seen))
    difference = np.mean(live) - np.mean(replayed)
    assert abs(difference) < 5.3 * np.hypot(np.std(live) / 60**0.5, np.std(replayed) / 30**0.5)


@cache
def earned_live() -> list[Any]:
    """Return the mean of the first 40 rewards of each of 60 live runs."""
    live = []
    for seed in range(60):
        policy, rng = Thompson(4, 2, seed=seed + 1_000), np.random.default_rng(seed)
        earned = []
        for _ in range(40):
            subset = policy.ask()
            earned.append(PROBLEM.play([subset], [1], rng).total[0])
            policy.tell(subset, earned[-1])
        live.append(np.mean(earned))
    return live


class _Enough(Exception):
    """Ends a replay."""


class _Remembering(Thompson):
    """Remembers its first 40 rewards, and then ends the replay."""

    name = "thompson"

    def __init__(self, n_arms: int, k: int, **options: Any) -> None:
        super().__init__(n_arms, k, **options)
        self.seen: list[float] = []

    def tell(self, subset: Any, reward: float, arms: Any = None, *, context: Any = None) -> None:
        self.seen.append(reward)
        if len(self.seen) == 40:
            raise _Enough
        super().tell(subset, reward, arms)


def test_a_policy_that_does_not_fit_is_refused() -> None:
    log, used = DecisionLog.simulate(PROBLEM, 100, seed=1), Thompson(4, 2)
    used.tell((0, 1), 0.5)
    only = DecisionLog(SUBSETS[[0, 0]], np.ones(2), np.full(2, 1 / 6), 4)
    for policy, of, message in (
        (Thompson(5, 2), log, "the policy has n_arms=5, but the log has n_arms=4"),
        (Thompson(4, 3), log, "the policy has k=3, but the log has k=2"),
        (kofn.lab.rivals.ETCG(4, 2, 1000), log, "etcg needs fewer, which a log does not have"),
        (used, log, "has already observed"),
        (_Always(4, 2), only, r"the log has no play of \(0, 2\), which always asks for first"),
    ):
        with pytest.raises(BadInput, match=message):
            kofn.replay(policy, of)
