"""contextual-thompson: its model against a direct computation, and on problems whose answer is known."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit

import kofn
from kofn.constraints import Always, AtMost, Constraints, NeverTogether
from kofn.core import FloatArray, Subset, Tally
from kofn.core.contexts import MOST_WITH_OTHER, OTHER, Attributes, bounded, context_of, key_of, words_of
from kofn.policies.contextual.model import PRIOR, Model, PlayRows, typical_share
from kofn.policies.contextual.pooling import OWN, Design, Pool, design_of, pooled_arms
from kofn.policies.thompson.constants import Constants
from kofn.policies.thompson.posterior import Posterior
from tests.cases import for_each

COUNTRIES, DEVICES = ("de", "fr", "uk"), ("phone", "desktop")
KEYS = [key_of({"country": country, "device": device}) for country in COUNTRIES for device in DEVICES]


# Contexts and segments.


def test_a_segment_has_one_key_in_whatever_order_attributes_come() -> None:
    attributes = Attributes()
    one, other = {"device": "phone", "country": "de", "new": True}, {"new": "true", "country": "de", "device": "phone"}
    assert attributes.key(one, ()) == attributes.key(other, ()) == '{"country":"de","device":"phone","new":"true"}'
    assert context_of(attributes.key(one, ())) == {"country": "de", "device": "phone", "new": "true"}
    assert words_of("{}") == "everyone"


@for_each(
    "context, why",
    [
        ("phone", "must be a dict"),
        ({"age": 31.5}, "give a class"),
        ({"device": ""}, "1 to 100 printable"),
        ({"device": "x" * 101}, "1 to 100 printable"),
        ({"device": "a\nb"}, "1 to 100 printable"),
        ({f"a{i}": "1" for i in range(9)}, "at most 8"),
        ({"colour": "red"}, "not declared"),
    ],
)
def test_a_bad_context_is_refused_with_a_reason(context: Any, why: str) -> None:
    policy = kofn.ContextualThompson(4, 2, attributes=["device", "age", *(f"a{i}" for i in range(6))], seed=1)
    before = json.dumps(policy.state())
    for call in (policy.ask, policy.best, policy.insight, policy.segment):
        with pytest.raises(kofn.BadInput, match=why):
            call(context)
    with pytest.raises(kofn.BadInput, match=why):
        policy.tell((0, 1), 1.0, context=context)
    assert json.dumps(policy.state()) == before


@for_each("attributes", ["device", 3, {"device": []}, {"device": "phone"}, ["a", "a"], {"a": ["x", "x"]}])
def test_bad_attributes_are_refused(attributes: Any) -> None:
    with pytest.raises(kofn.BadInput):
        kofn.ContextualThompson(4, 2, attributes=attributes)


def test_other_policies_refuse_a_context() -> None:
    policy = kofn.Thompson(4, 2, seed=1)
    with pytest.raises(kofn.BadInput, match="use contextual-thompson"):
        policy.ask({"device": "phone"})


def test_rare_values_share_segments() -> None:
    known: list[str] = []
    for number in range(1000):
        key = bounded(key_of({"country": "de", "city": str(number)}), known)
        if key not in known:
            known.append(key)
    assert len(known) == 65  # 64 of their own, and one for all other cities
    assert known[-1] == key_of({"country": "de", "city": OTHER})
    for number in range(1000):  # and if both attributes have many values
        key = bounded(key_of({"country": str(number), "city": str(number % 90)}), known)
        if key not in known:
            known.append(key)
    assert len(known) <= MOST_WITH_OTHER + 1


# The pool, against the posterior of one large Gaussian.


def pool_and_reference(rng: np.random.Generator, keys: list[str]) -> tuple[Pool, FloatArray, FloatArray]:
    """A pool, and the covariance and the means of all coordinates of all segments, computed directly."""
    design, size = design_of(keys), 4
    half = rng.standard_normal((len(keys), size, 3))  # evidence that says nothing about some directions
    precision, vector = half @ half.transpose(0, 2, 1), rng.standard_normal((len(keys), size))
    variance = np.exp(rng.standard_normal((len(design.kinds), size)))
    prior = direct_prior(keys, design, variance)
    total = np.linalg.inv(prior)
    for at in range(len(keys)):
        rows = slice(at * size, (at + 1) * size)
        total[rows, rows] += precision[at]
    covariance = np.linalg.inv(total)
    return Pool(design, variance, precision, vector), covariance, covariance @ vector.ravel()


def direct_prior(keys: list[str], design: Design, variance: FloatArray) -> FloatArray:
    """The covariance of all coordinates of all segments, from who shares what."""
    contexts, size = [context_of(key) for key in keys], variance.shape[1]
    prior = np.zeros((len(keys), size, len(keys), size))
    for (i, one), (j, other) in itertools.product(enumerate(contexts), repeat=2):
        for kind, of_kind in zip(design.kinds, variance, strict=True):
            shared = i == j if kind == OWN else kind == "all" or one.get(kind[1:]) == other.get(kind[1:])
            prior[i, :, j] += np.diag(of_kind * shared)
    return prior.reshape(len(keys) * size, -1)


@for_each("keys", [KEYS, KEYS[:1], KEYS[:2], [*KEYS, "{}"]])
def test_the_pool_is_the_posterior_of_one_gaussian(keys: list[str]) -> None:
    pool, covariance, means = pool_and_reference(np.random.default_rng(3), keys)
    np.testing.assert_allclose(pool.means.ravel(), means, rtol=1e-8, atol=1e-10)
    for at in range(len(keys)):
        rows = slice(4 * at, 4 * at + 4)
        np.testing.assert_allclose(pool.covariances[at], covariance[rows, rows], rtol=1e-8, atol=1e-10)


def test_draws_of_the_pool_have_its_joint_covariance() -> None:
    pool, covariance, means = pool_and_reference(np.random.default_rng(4), KEYS)
    drawn = pool.draws(50_000, np.random.default_rng(5)).reshape(50_000, -1)
    deviation = np.sqrt(covariance.diagonal())
    assert (abs(drawn.mean(axis=0) - means) < 5 * deviation / np.sqrt(50_000)).all()
    correlation = np.cov(drawn.T) / np.outer(deviation, deviation)
    assert abs(correlation - covariance / np.outer(deviation, deviation)).max() < 5 * 2 / np.sqrt(50_000)


def test_the_evidence_of_variances_is_that_of_one_gaussian() -> None:
    rng = np.random.default_rng(6)
    pool, _, _ = pool_and_reference(rng, KEYS)

    def direct(variance: FloatArray) -> float:
        prior, total = direct_prior(KEYS, pool.design, variance), np.zeros((24, 24))
        for at in range(len(KEYS)):
            total[4 * at : 4 * at + 4, 4 * at : 4 * at + 4] = pool.precision[at]
        vector = pool.vector.ravel()
        inside = np.eye(24) + prior @ total
        return float(vector @ np.linalg.solve(inside, prior @ vector) - np.linalg.slogdet(inside)[1]) / 2

    variances = [np.exp(rng.standard_normal((len(pool.design.kinds), 4))) for _ in range(4)]
    variances += [np.concatenate([variances[0][:-1] * 3, variances[0][-1:]])]  # another with the same own variance
    found = [pool.with_variance(each).log_evidence for each in variances]
    found[-1] = pool.with_variance(variances[0]).with_variance(variances[-1]).log_evidence
    expected = [direct(each) for each in variances]
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-7)


def test_single_arms_are_pooled_as_the_dense_ones() -> None:
    rng = np.random.default_rng(7)
    design = design_of(KEYS)
    variance = np.exp(rng.standard_normal(len(design.kinds)))
    precision, vector = rng.random((len(KEYS), 9)) * 5, rng.standard_normal((len(KEYS), 9))
    precision[:, 4], vector[:, 4] = 0.0, 0.0  # an arm that was never played
    dense = np.zeros((len(KEYS), 9, 9))
    dense[:, np.arange(9), np.arange(9)] = precision
    pool = Pool(design, np.repeat(variance[:, None], 9, axis=1), dense, vector)
    means, variances = pooled_arms(design, variance, precision, vector)
    np.testing.assert_allclose(means, pool.means, atol=1e-12)
    for at in range(len(KEYS)):
        np.testing.assert_allclose(variances[at], pool.covariances[at].diagonal(), atol=1e-12)


# The model.


def test_with_one_segment_the_rows_are_learned_as_by_thompson() -> None:
    rng, constants = np.random.default_rng(8), Constants()
    subsets = np.array([sorted(rng.choice(8, 3, replace=False)) for _ in range(12)])
    rewards, weights = rng.random(12), rng.integers(1, 9, 12).astype(float)
    thompson = Posterior.at_start(8, 3, 0.4, 0.6, constants)
    rows = thompson.relative(subsets)
    thompson._learn_contenders(rows.x, thompson.odds(rows), rewards, weights)
    model = Model(8, 3, float(logit(0.4)), 0.6, constants)
    place = np.full(12, model.number_of("{}"))
    model._learn_rows(PlayRows(place, subsets, rewards, weights), model.predict(place, subsets)[0])
    ours = model.posterior(0)
    np.testing.assert_allclose(ours.mean, thompson.mean, atol=1e-6)
    np.testing.assert_allclose(ours.covariance, thompson.covariance, atol=1e-5)
    assert ours.level == pytest.approx(thompson.level, abs=1e-6)


def test_less_trust_keeps_the_means_of_each_segment_alone() -> None:
    model = learned_model(np.random.default_rng(9))
    before, spread = alone_means(model), model.posterior(0).variance.copy()
    model.forget(2.0)
    np.testing.assert_allclose(alone_means(model), before, atol=1e-8)
    assert (model.posterior(0).variance > spread).all()
    levels = [model.level(place, means) for place, means in enumerate(alone_means(model))]
    model.rescale((0.0, 1.0), (-1.0, 1.0))
    after = [model.level(place, means) for place, means in enumerate(alone_means(model))]
    np.testing.assert_allclose(expit(after), (1 + expit(levels)) / 2, atol=1e-8)


def test_less_trust_does_not_say_that_segments_differ() -> None:
    model = learned_model(np.random.default_rng(9), KEYS[:6])
    for factor in (1.0, 4.0, 4.0):
        model.forget(factor)
        for turn in range(4):
            model._learn_share(turn)
        assert model.shares[OWN] < typical_share(PRIOR)


def alone_means(model: Model) -> FloatArray:
    """Return the means of each segment by its own evidence."""
    return np.stack([segment.means(model._prior) for segment in model.segments])


def learned_model(rng: np.random.Generator, keys: Sequence[str] = KEYS[:2], n_arms: int = 6, k: int = 2) -> Model:
    """Segments that have learned from 60 rows, and are alike."""
    model = Model(n_arms, k, 0.0, 0.5, Constants())
    subsets = np.array([sorted(rng.choice(n_arms, k, replace=False)) for _ in range(60)])
    place = np.array([model.number_of(keys[at % len(keys)]) for at in range(60)])
    rewards = 0.2 + 0.6 * subsets.mean(axis=1) / n_arms
    model.learn(PlayRows(place, subsets, rewards, np.full(60, 5.0)), model.predict(place, subsets)[0], 0)
    return model


def test_arms_that_leave_and_come_keep_what_is_known_about_the_others() -> None:
    model = learned_model(np.random.default_rng(10))
    before, pooled = [model._alone(place) for place in range(2)], [model.means(place) for place in range(2)]
    levels = [model.level(place, means) for place, means in enumerate(alone_means(model))]
    model.change_arms(np.array([0, 2, 3, 4, 5]), 2, None)
    for place in range(2):
        np.testing.assert_allclose(model._alone(place)[:5], before[place][[0, 2, 3, 4, 5]], atol=1e-8)
        np.testing.assert_allclose(model._alone(place)[5:], 0.0, atol=1e-12)
        np.testing.assert_allclose(model.means(place)[:5], pooled[place][[0, 2, 3, 4, 5]], atol=0.05)
    assert [segment.incumbent.tolist() for segment in model.segments] == [[3, 4], [3, 4]]
    after = [model.level(place, means) for place, means in enumerate(alone_means(model))]
    np.testing.assert_allclose(after, levels, atol=1e-8)


# The policy on problems whose answer is known.


def play(
    policy: kofn.ContextualThompson, p: dict[str, FloatArray], plays: int, rng: np.random.Generator
) -> dict[str, int]:
    """Play with visitors of all values of `device` in turn; return how many plays of each had the best subset."""
    right = dict.fromkeys(p, 0)
    for _ in range(plays):
        device = str(rng.choice(list(p)))
        context = {"device": device, "country": str(rng.choice(COUNTRIES))}
        subset = policy.ask(context)
        right[device] += subset == tuple(np.sort(np.argsort(-p[device])[: policy.k]).tolist())
        policy.tell(subset, float(rng.random() < p[device][list(subset)].mean()), context=context)
    return right


def test_each_segment_finds_its_best_and_the_attribute_that_matters_is_found() -> None:
    rng = np.random.default_rng(11)
    up = np.array([0.05, 0.1, 0.2, 0.25, 0.75, 0.9])
    policy = kofn.ContextualThompson(6, 2, seed=11)
    play(policy, {"phone": up, "desktop": up[::-1]}, 6_000, rng)
    for country in COUNTRIES:
        assert policy.best({"device": "phone", "country": country}) == (4, 5)
        assert policy.best({"device": "desktop", "country": country}) == (0, 1)
    assert policy.best({"device": "phone", "country": "never seen"}) == (4, 5)
    device, other = policy.by_attribute()
    assert (device.attribute, other.attribute) == ("device", "country")
    assert device.values == ("desktop", "phone")
    assert device.probability > 0.99
    one_for_all = max(
        np.mean([up[list(s)].mean(), up[::-1][list(s)].mean()]) for s in itertools.combinations(range(6), 2)
    )
    assert device.gain == pytest.approx(0.825 - one_for_all, abs=0.15)  # of subsets that are hardly played
    assert other.gain < 0.02
    segments = policy.by_segment()
    assert len(segments) == 6
    assert sum(segment.share for segment in segments) == pytest.approx(1)
    assert sum(segment.plays for segment in segments) == policy._learned
    for segment in segments:
        assert segment.insight is not None
        assert segment.insight.low < 0.825 < segment.insight.high
    overall = policy.insight()
    assert overall is not None
    assert overall.value == pytest.approx(0.825, abs=0.03)


def test_what_is_shared_is_learned_from_all() -> None:
    p = np.linspace(0.1, 0.9, 8)
    policy = kofn.ContextualThompson(8, 2, seed=12)
    play(policy, {"phone": p, "desktop": p, "tablet": p, "tv": p}, 2_000, np.random.default_rng(12))
    assert policy._model.shares[OWN] < 0.02 < policy._model.shares["all"]
    assert policy.best({"device": "fridge", "country": "es"}) == (6, 7)


def test_a_small_segment_profits_from_a_large_one() -> None:
    rng, p = np.random.default_rng(13), np.linspace(0.1, 0.9, 10)
    policy = kofn.ContextualThompson(10, 2, seed=13)
    for _ in range(3_000):
        subset = policy.ask({"device": "phone"})
        policy.tell(subset, float(rng.random() < p[list(subset)].mean()), context={"device": "phone"})
    right = 0
    for _ in range(60):
        subset = policy.ask({"device": "desktop"})
        right += len({8, 9} & set(subset))
        policy.tell(subset, float(rng.random() < p[list(subset)].mean()), context={"device": "desktop"})
    assert right > 60  # of 120; chance gives 24


def test_many_values_keep_the_record_bounded() -> None:
    policy, rng = kofn.ContextualThompson(6, 2, seed=14), np.random.default_rng(14)
    for visitor in range(700):
        context = {"city": str(int(rng.zipf(1.5)) % 500), "device": DEVICES[visitor % 2]}
        subset = policy.ask(context)
        policy.tell(subset, float(rng.random() < 0.2 + 0.1 * max(subset)), context=context)
    assert len(policy.segments) <= MOST_WITH_OTHER + 1
    assert len(json.dumps(policy.state())) < 400_000
    assert policy.best({"city": "1", "device": "phone"})[1] == 5


def test_invented_contexts_do_not_grow_memory() -> None:
    policy = kofn.ContextualThompson(6, 2, seed=23)
    play(policy, {"phone": np.linspace(0.1, 0.9, 6)}, 100, np.random.default_rng(23))
    before = json.dumps(policy.state()["segments"])
    first = [policy.filler(index, policy.segment({"device": "new 0"})) for index in range(20)]
    for number in range(200):
        policy.filler(0, policy.segment({"device": f"new {number}"}))
    assert len(policy._draws) <= MOST_WITH_OTHER + 1
    assert json.dumps(policy.state()["segments"]) == before
    assert [policy.filler(index, policy.segment({"device": "new 0"})) for index in range(20)] == first


def test_late_rewards_and_a_restart_in_between() -> None:
    rng, p = np.random.default_rng(15), np.linspace(0.9, 0.1, 6)
    policy: kofn.Policy = kofn.ContextualThompson(6, 2, seed=15)
    waiting: list[tuple[Subset, dict[str, str]]] = []
    for play_number in range(3_000):
        context = {"device": DEVICES[int(rng.integers(2))]}
        waiting.append((policy.ask(context), context))
        if len(waiting) > 40:
            subset, context = waiting.pop(int(rng.integers(len(waiting))))
            policy.tell(subset, float(rng.random() < p[list(subset)].mean()), context=context)
        if play_number % 500 == 250:
            again = kofn.restore(json.loads(json.dumps(kofn.save(policy))))
            assert again.state() == policy.state()
            assert list(again.plan()) == list(policy.plan())
            assert again.plan().segments == policy.plan().segments
            policy = again
    assert isinstance(policy, kofn.ContextualThompson)
    assert policy.best({"device": "phone"}) == policy.best({"device": "desktop"}) == (0, 1)


def test_all_that_is_handed_out_obeys_the_constraints() -> None:
    rules = Constraints(AtMost(1, [0, 1, 2]), NeverTogether([3, 4]))
    rng, policy = np.random.default_rng(16), kofn.ContextualThompson(7, 3, constraints=rules, seed=16)
    allowed = rules.allowed(7, 3)
    p = {
        "phone": np.array([0.95, 0.3, 0.2, 0.7, 0.2, 0.6, 0.1]),
        "desktop": np.array([0.1, 0.6, 0.2, 0.7, 0.2, 0.3, 0.95]),
    }
    waiting: list[tuple[Subset, dict[str, str]]] = []
    for _ in range(1_500):
        context = {"device": DEVICES[int(rng.integers(2))]}
        waiting.append((policy.ask(context), context))
        assert allowed.allows(np.array([waiting[-1][0]]))[0]
        if len(waiting) > 30:
            subset, context = waiting.pop(0)
            policy.tell(subset, float(rng.random() < p[context["device"]][list(subset)].mean()), context=context)
    assert policy.best({"device": "phone"}) == (0, 3, 5)
    assert policy.best({"device": "desktop"}) == (1, 3, 6)
    changed = policy.with_params(constraints=Constraints(Always([1])))
    for device in (*DEVICES, "fridge"):
        assert 1 in changed.best({"device": device})
        assert all(1 in changed.filler(index, changed.segment({"device": device})) for index in range(50))
    assert all(1 in subset for subset, _ in changed.plan())


def test_arms_come_and_go_for_all_segments() -> None:
    rng = np.random.default_rng(17)
    up = np.array([0.05, 0.1, 0.2, 0.2, 0.7, 0.8])
    p = {"phone": up, "desktop": up[::-1]}
    policy = kofn.ContextualThompson(6, 2, seed=17)
    play(policy, p, 1_000, rng)
    policy = policy.with_arms([0, 1, 2, 3, 4], added=1)
    assert policy.best({"device": "desktop", "country": "de"}) == (0, 1)
    p = {device: np.append(values[:5], 0.95) for device, values in p.items()}
    play(policy, p, 1_000, rng)
    for country in COUNTRIES:
        assert policy.best({"device": "phone", "country": country}) == (4, 5)
        assert policy.best({"device": "desktop", "country": country}) == (0, 5)


def test_a_half_life_follows_a_change() -> None:
    rng, p = np.random.default_rng(18), np.array([0.05, 0.1, 0.1, 0.1, 0.8, 0.9])
    policy = kofn.ContextualThompson(6, 2, half_life=500, seed=18)
    play(policy, {"phone": p, "desktop": p}, 600, rng)
    play(policy, {"phone": p[::-1], "desktop": p}, 1_500, rng)
    assert policy.best({"device": "phone", "country": "de"}) == (0, 1)
    assert policy.best({"device": "desktop", "country": "de"}) == (4, 5)


def test_more_arms_than_contenders() -> None:
    rng, n_arms = np.random.default_rng(19), 150
    p = {"phone": rng.random(n_arms) * 0.5, "desktop": rng.random(n_arms) * 0.5}
    p["phone"][[7, 90]], p["desktop"][[3, 140]] = 0.95, 0.95
    policy = kofn.ContextualThompson(n_arms, 2, seed=19)
    for _ in range(60):  # of three other seeds, both are found from 37 plans on
        plan = policy.plan()
        assert plan.segments is not None
        devices = [context_of(key).get("device") or DEVICES[at % 2] for at, key in enumerate(plan.segments)]
        for (subset, times), device in zip(plan, devices, strict=True):
            total = float(rng.binomial(times, p[device][list(subset)].mean()))
            policy.tell_total(subset, times, total, total, context={"device": device})
    assert policy.best({"device": "phone"}) == (7, 90)
    assert policy.best({"device": "desktop"}) == (3, 140)
    fewer = policy.with_arms([arm for arm in range(n_arms) if arm % 3 or arm in (3, 7, 90)])
    assert fewer.n_arms == 102
    few = fewer.with_arms(range(40))
    assert few._model.is_dense
    assert kofn.restore(kofn.save(few)).state() == few.state()


def test_rewards_of_any_range_and_direction() -> None:
    rng, p = np.random.default_rng(20), np.linspace(0.1, 0.9, 6)
    policy = kofn.ContextualThompson(6, 2, reward_range=(-50.0, 250.0), direction="minimize", seed=20)
    for _ in range(2_500):
        context = {"device": DEVICES[int(rng.integers(2))]}
        subset = policy.ask(context)
        policy.tell(subset, float(rng.normal(100 * p[list(subset)].mean(), 10)), context=context)
    insight = policy.insight({"device": "phone"})
    assert policy.best() == (0, 1)
    assert insight is not None
    assert insight.low < 18 < insight.high
    wider = policy.with_params(reward_range=(-100.0, 400.0))
    after = wider.insight({"device": "phone"})
    assert after is not None
    assert after.value == pytest.approx(insight.value, abs=1.0)  # it has also learned from the open plan


@for_each(
    "damage",
    [
        {"segments": []},
        {"contenders": [0, 1]},
        {"shares": {"own": -1.0}},
        {"shares": []},
    ],
)
def test_a_damaged_record_is_refused(damage: dict[str, Any]) -> None:
    policy = kofn.ContextualThompson(6, 2, seed=21)
    play(policy, {"phone": np.linspace(0, 1, 6)}, 100, np.random.default_rng(21))
    record = kofn.save(policy)
    for change in (damage, {"segments": [*record["state"]["segments"], record["state"]["segments"][0]]}):
        with pytest.raises(kofn.BadRecord):
            kofn.restore({**record, "state": {**record["state"], **change}})


def test_all_alike_rewards_are_waited_out() -> None:
    policy = kofn.ContextualThompson(5, 2, seed=22)
    for number in range(60):
        policy.tell(policy.ask({"a": str(number % 3)}), 0.0, context={"a": str(number % 3)})
    assert policy.insight() is None
    assert policy.segments == ()
    plan = policy.plan()
    policy.tell_plan(Tally(plan.times, np.ones(len(plan)), np.ones(len(plan))))
    assert policy.insight({"a": "1"}) is not None


def test_many_segments_do_not_add_up_to_a_level_that_no_play_has_shown() -> None:
    """All of 1,000 arms earn 30 %. After n plays, a rate is known to be at least 1 / 2(n + 1) away from 0 and 1."""
    policy, rng, plays = kofn.ContextualThompson(1000, 3, seed=1), np.random.default_rng(1), 400
    for _ in range(plays):
        context = {"shop": str(rng.integers(70))}
        policy.tell(policy.ask(context), float(rng.random() < 0.3), context=context)
    values = [segment.insight.value for segment in policy.by_segment() if segment.insight is not None]
    assert len(values) > 60
    assert 0.5 / (plays + 1) < min(values) <= max(values) < 0.95
