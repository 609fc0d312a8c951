"""Records: what `save` writes, what `restore` refuses and why, and nothing half-done."""

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import BadInput, BadRecord, KofnError, Policy, Tally
from tests.cases import for_each


def played(policy: Policy, plans: int, part: bool = True) -> Policy:
    """The policy after some plans without noise, and half of another."""
    for step in range(plans + part):
        plan = policy.plan()
        times = plan.times if step < plans else plan.times // 2
        reward = np.floor(plan.subsets.sum(axis=1) % 13 * 4) / 64
        policy.tell_plan(Tally(times.copy(), reward * times, reward**2 * times))
    return policy


def sorting() -> Policy:
    return played(kofn.make_policy("cmab-sm", n_arms=8, k=2, horizon=1000, resolution=0.05), 1)


def merging() -> Policy:
    policy = kofn.make_policy("cmab-sm", n_arms=8, k=2, horizon=1000, resolution=0.05)
    while policy.state()["phase"] == "sort":
        played(policy, 1, part=False)
    return played(policy, 1)


def committed() -> Policy:
    policy = kofn.make_policy("cmab-sm", n_arms=8, k=2, horizon=1000, resolution=0.05)
    while not policy.committed:
        played(policy, 1, part=False)
    return played(policy, 0)


def improved_ucb() -> Policy:
    return played(kofn.make_policy("improved-ucb", n_arms=5, k=2, horizon=10**6), 2)


def doubling() -> Policy:
    return played(kofn.make_policy("doubling", n_arms=8, k=2, first=200, resolution=0.2), 4)


POLICIES = [sorting, merging, committed, improved_ucb, doubling]


def test_a_restored_policy_makes_one_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under rules that need the solver, a plan takes seconds."""
    record = kofn.save(played(kofn.Thompson(8, 2, seed=1), 2))
    plans: list[Policy] = []
    make = kofn.Thompson._next

    def noted(self: kofn.Thompson) -> kofn.Plan:
        plans.append(self)
        return make(self)

    monkeypatch.setattr(kofn.Thompson, "_next", noted)
    kofn.restore(record).plan()
    assert len(plans) == 1


@pytest.mark.parametrize("make", POLICIES)
def test_a_record_explains_itself(make: Callable[[], Policy]) -> None:
    policy = make()
    record = kofn.save(policy)
    assert list(record) == ["policy", "format", "params", "state"]
    assert record["policy"] == policy.name
    assert record["format"] == 1
    assert record["params"] == policy.params
    assert record["state"] == policy.state()
    assert record["state"]["plays"] == policy.plays
    assert plain(record)
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def plain(value: Any) -> bool:
    """Whether JSON has a word for it, to the bottom."""
    if type(value) is dict:
        return all(type(name) is str and plain(each) for name, each in value.items())
    return all(map(plain, value)) if type(value) is list else value is None or type(value) in (int, float, str)


def test_the_records_shape() -> None:
    policy = kofn.make_policy("cmab-sm", n_arms=5, k=2, horizon=1000, resolution=0.3, seed=3, reward_range=(0, 40))
    policy.tell(policy.ask(), 10)
    assert kofn.save(policy) == {
        "policy": "cmab-sm",
        "format": 1,
        "params": {
            "n_arms": 5,
            "k": 2,
            "horizon": 1000,
            "resolution": 0.3,
            "schedule": "printed",
            "seed": 3,
            "reward_range": [0.0, 40.0],
            "direction": "maximize",
        },
        "state": {
            "plays": 1,
            "updates": 0,
            "observed": {"rows": [0], "count": [1], "total": [0.25], "squares": [0.0625]},
            "phase": "sort",
            "groups": policy.state()["groups"],
            "count": [0] * 6,
            "total": [0.0] * 6,
            "unsorted": [1] * 6,
            "r": 1,
        },
    }


@pytest.mark.parametrize("make", POLICIES)
def test_a_record_is_independent_of_its_policy(make: Callable[[], Policy]) -> None:
    policy = make()
    record = kofn.save(policy)
    text = json.dumps(record)
    restored = kofn.restore(record)
    played(policy, 1)
    played(restored, 1)
    assert json.dumps(record) == text
    assert restored.state() == policy.state()


@pytest.mark.parametrize("make", POLICIES)
def test_loading_in_place_is_restoring(make: Callable[[], Policy]) -> None:
    policy = make()
    state = policy.state()
    played(policy, 2)
    policy.load(state)
    assert policy.state() == state
    assert list(policy.plan()) == list(kofn.restore(kofn.save(policy)).plan())


def test_a_user_scale_comes_back() -> None:
    policy = kofn.make_policy(
        "cmab-sm", n_arms=5, k=2, horizon=1000, resolution=0.3, reward_range=(-3, 5), direction="minimize"
    )
    restored = kofn.restore(kofn.save(policy))
    assert (restored.reward_range, restored.direction) == ((-3.0, 5.0), "minimize")
    with pytest.raises(BadInput, match="between -3 and 5"):
        restored.tell(restored.ask(), 6)


# What is refused as a whole.


@for_each(
    "change, why",
    [
        *(
            (lambda record, name=name: record.pop(name), "must have the keys")
            for name in ("policy", "format", "params", "state")
        ),
        (lambda record: record.update(format=0), "format 0; this kofn reads format 1"),
        (lambda record: record.update(format=3), "format 3; this kofn reads format 1"),
        (lambda record: record.update(format="1"), "format '1'"),
        (lambda record: record.update(format=None), "format None"),
        (lambda record: record.update(policy="magic"), "'magic', which this kofn does not have"),
        (lambda record: record.update(policy=None), "None, which"),
        (lambda record: record.update(policy="improved-ucb"), "improved-ucb"),
        (lambda record: record.update(state=None), "does not fit"),
        (lambda record: record.update(state=[]), "does not fit"),
        (lambda record: record.update(state={}), "is missing"),
        (lambda record: record.update(params=None), "params"),
        (lambda record: record.update(params=[]), "params"),
        (lambda record: record["params"].pop("n_arms"), "n_arms"),
        (lambda record: record["params"].pop("horizon"), "horizon"),
        (lambda record: record["params"].update(colour="red"), "colour"),
        (lambda record: record["params"].update(k=9), "k must be less"),
        (lambda record: record["params"].update(k=3), "does not fit"),
        (lambda record: record["params"].update(horizon=math.nan), "horizon"),
        (lambda record: record["params"].update(reward_range=[1, 0]), "reward_range"),
        (lambda record: record["params"].update(direction="sideways"), "direction"),
    ],
)
@for_each("make", [sorting, merging])
def test_a_record_that_is_none_is_refused(make: Callable[[], Policy], change: Any, why: str) -> None:
    record = kofn.save(make())
    change(record)
    with pytest.raises(BadRecord, match=why):
        kofn.restore(record)


@pytest.mark.parametrize("record", [None, [], "record", 7, {}, json.dumps({"policy": "cmab-sm"})])
def test_what_is_no_record_is_refused(record: Any) -> None:
    with pytest.raises(BadRecord, match="must have the keys policy, format, params and state"):
        kofn.restore(record)


@for_each("make", POLICIES)
@for_each("other", POLICIES)
def test_another_policys_state_is_refused(make: Callable[[], Policy], other: Callable[[], Policy]) -> None:
    policy, state = make(), other().state()
    if other().name == policy.name:
        return
    before = policy.state()
    with pytest.raises(BadRecord):
        policy.load(state)
    assert policy.state() == before


# What is refused inside the state.

NAN, INF = math.nan, math.inf


def anything(*values: Any) -> tuple[Any, ...]:
    return values


NUMBERS: list[Any] = [NAN, INF, -INF, -1, None, "x", [], {}]
Case = tuple[Callable[[], Policy], tuple[Any, ...], Any]
CASES: list[Case] = [
    *((make, ("plays",), bad) for make in POLICIES for bad in anything(*NUMBERS, 1.5, True, "1")),
    *((make, ("observed", name, 0), bad) for make in POLICIES for name in ("total", "squares") for bad in NUMBERS),
    *((make, ("observed", "count", 0), bad) for make in POLICIES for bad in anything(-1, None, "x", [], {}, 10**9)),
    *((make, ("observed", "rows", 0), bad) for make in POLICIES for bad in anything(-1, 10**6, 10**30, None, "x", {})),
    *((sorting, ("count", 0), bad) for bad in anything(*NUMBERS, 10**30)),
    *((sorting, ("total", 0), bad) for bad in anything(*NUMBERS, 10**9)),
    *((sorting, ("groups", 0), bad) for bad in anything(*NUMBERS, 8, 10**30)),
    *((sorting, ("r",), bad) for bad in anything(*NUMBERS, 0, 1.5, 99)),
    *((sorting, ("phase",), bad) for bad in anything("merge", "play", "rest", None, 1, [])),
    *(
        (make, (name,), bad)
        for make in (sorting,)
        for name in ("groups", "count", "total", "unsorted")
        for bad in anything([], 0)
    ),
    *((merging, ("g1", 0), bad) for bad in anything(*NUMBERS, 8, 1.5, "1")),
    *((merging, ("g2", 0), bad) for bad in anything(*NUMBERS, 8, 1.5, "1")),
    *((merging, ("waiting", 0), bad) for bad in anything(None, 7, [1, 2, 3], [9], [-1], ["1"])),
    *(
        (merging, (name,), bad)
        for name in ("g1", "g2", "waiting", "merged", "base", "swap")
        for bad in anything(None, 7, [7])
    ),
    *((merging, (name,), bad) for name in ("i", "j") for bad in anything(*NUMBERS, 1, 2, 1.5)),
    *((merging, (name,), bad) for name in ("r1", "r2") for bad in anything(*NUMBERS, 0, 1.5, 99)),
    *((merging, (name, 0), bad) for name in ("base", "swap") for bad in anything(*NUMBERS, 1.5)),
    *((merging, (name, 1), bad) for name in ("base", "swap") for bad in anything(*NUMBERS, 10**9)),
    *(
        (committed, ("best",), bad)
        for bad in anything(None, [], [1], [1, 1], [1, 8], [-1, 1], [1, 2, 3], ["1", "2"], [0.5, 1])
    ),
    *((improved_ucb, ("m",), bad) for bad in anything(*NUMBERS, 1.5, 60)),
    *((improved_ucb, ("total", 0), bad) for bad in anything(*NUMBERS, 10**9)),
    *((improved_ucb, ("total",), bad) for bad in anything(None, [], [1.0], 7)),
    *((improved_ucb, ("alive",), bad) for bad in anything(None, [], [[0, 1]], 7, [0, 1])),
    *(
        (improved_ucb, ("alive", 0), bad)
        for bad in anything([1, 0], [1, 1], [0, 5], [-1, 1], [0, 1.5], ["0", "1"], [0], None)
    ),
    *((doubling, ("inner", "phase"), bad) for bad in anything("rest", None)),
    *((doubling, ("earlier",), bad) for bad in anything(None, [1], [1, 8], ["1", "2"])),
    *((doubling, (name,), bad) for name in ("stage", "spent") for bad in anything(NAN, INF, -1, None, "x", [], 1.5)),
]


# Numbers that NumPy would round, parse or repeat to make them fit; arms that are there, but twice in a group.
ALMOST: list[Case] = [
    *((make, ("observed", "count", 0), bad) for make in POLICIES for bad in anything(1.5, "1", INF, NAN)),
    *((make, ("observed", "rows", 0), bad) for make in POLICIES for bad in anything(0.5, "0")),
    *((make, ("observed", name, 0), "0.25") for make in POLICIES for name in ("total", "squares")),
    *((make, ("observed", "rows"), [0, 1]) for make in (committed,)),
    *((sorting, ("count", 0), bad) for bad in anything(10**6 + 0.5, "9999")),
    *(
        (sorting, ("total", 0), bad)
        for bad in anything(
            "0.25",
        )
    ),
    *((sorting, ("unsorted", 0), bad) for bad in anything(7, -1, 0.5, "0", "", NAN, None)),
    *((sorting, ("groups", 0), bad) for bad in anything(0.5, "0", 1, 3)),
    *((merging, (name, 1), "0.25") for name in ("base", "swap")),
    *(
        (improved_ucb, ("total", 0), bad)
        for bad in anything(
            "0.25",
        )
    ),
    *((improved_ucb, ("alive", 1), [0, 1]) for _ in range(1)),
    *(
        (doubling, ("inner", "total", 0), bad)
        for bad in anything(
            "0.25",
        )
    ),
]


@for_each("make, path, bad", [*CASES, *ALMOST])
def test_a_corrupted_number_is_refused_and_nothing_is_half_done(
    make: Callable[[], Policy], path: tuple[Any, ...], bad: Any
) -> None:
    policy = make()
    record = kofn.save(policy)
    before, plan, memory = json.dumps(record), list(policy.plan()), set(vars(policy))
    spoiled = copy.deepcopy(record)
    place = spoiled["state"]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = bad
    with pytest.raises(BadRecord):
        kofn.restore(spoiled)
    with pytest.raises(BadRecord):
        policy.load(spoiled["state"])
    assert json.dumps(kofn.save(policy)) == before
    assert list(policy.plan()) == plan
    assert set(vars(policy)) == memory


def test_a_group_of_more_than_k_arms_is_refused() -> None:
    policy = merging()
    state = policy.state()
    others = sorted(set(range(8)) - {*state["g1"], *state["g2"]})
    policy.load({**state, "waiting": [others[:2]]})
    for changes in ({"waiting": [others[:3]]}, {"waiting": [], "g2": state["g2"] + others[:1]}):
        with pytest.raises(BadRecord, match="at most 2 arms"):
            policy.load({**state, **changes})


@pytest.mark.parametrize("make", POLICIES)
def test_every_missing_key_is_named(make: Callable[[], Policy]) -> None:
    policy = make()
    for name in policy.state():
        state = policy.state()
        del state[name]
        with pytest.raises(BadRecord, match=f"'{name}' is missing"):
            policy.load(state)


@pytest.mark.parametrize("change", [{"policy": []}, {"policy": {}}])
def test_the_head_of_a_record_may_be_anything(change: Any) -> None:
    with pytest.raises(BadRecord):
        kofn.restore({**kofn.save(sorting()), **change})


@pytest.mark.parametrize("resolution", ["fine", "0.05", [0.05], {}])
def test_a_params_value_that_is_no_number_is_refused(resolution: Any) -> None:
    record = kofn.save(sorting())
    record["params"]["resolution"] = resolution
    with pytest.raises(BadRecord, match="params do not make a cmab-sm"):
        kofn.restore(record)


def test_restoring_does_not_warn_again() -> None:
    """Whoever made the policy has been warned; a service that restores it for every request must not repeat it."""
    with pytest.warns(kofn.ShortHorizonWarning):
        short = kofn.make_policy("cmab-sm", n_arms=8, k=2, horizon=100)
    for policy in (short, kofn.make_policy("doubling", n_arms=8, k=2)):
        assert kofn.restore(kofn.save(policy)).state() == policy.state()  # a warning is an error here


def test_a_policy_can_be_known_by_name() -> None:
    assert kofn.policy_named("cmab-sm") is kofn.CMABSM
    for name in ("CMABSM", "", None, ["cmab-sm"]):
        with pytest.raises(BadInput, match=r"there is no policy .* Available: .*cmab-sm"):
            kofn.policy_named(name)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="cmab-sm needs a horizon"):
        kofn.make_policy("cmab-sm", n_arms=5, k=2)
    with pytest.raises(BadInput, match=r"cmab-sm does not take colour; it takes: .*resolution"):
        kofn.make_policy("cmab-sm", n_arms=5, k=2, horizon=10, colour="red")
    assert kofn.make_policy("improved-ucb", n_arms=5, k=2, horizon=100, seed=3).params.keys() >= {"horizon"}
    assert issubclass(BadRecord, KofnError)
