"""Records: what `save` writes, what `restore` refuses and why, and nothing half-done."""

import copy
import json
import math
from collections.abc import Callable, Iterator
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
def test_loading_in_place_is_restoring(make: Callable[[], Policy]) -> None:
    policy = make()
    state = policy.state()
    played(policy, 2)
    policy.load(state)
    assert policy.state() == state
    assert list(policy.plan()) == list(kofn.restore(kofn.save(policy)).plan())


# What is refused as a whole.


@for_each(
    "change, why",
    [
        *(
            (lambda record, name=name: record.pop(name), "must have the keys")
            for name in ("policy", "format", "params", "state")
        ),
        (lambda record: record.update(format=0), "format 0; this kofn reads format 1"),
        (lambda record: record.update(format="1"), "format '1'"),
        (lambda record: record.update(policy="magic"), "'magic', which this kofn does not have"),
        (lambda record: record.update(policy=[]), "which this kofn does not have"),
        (lambda record: record.update(policy="improved-ucb"), "improved-ucb"),
        (lambda record: record.update(state=None), "does not fit"),
        (lambda record: record.update(state={}), "is missing"),
        (lambda record: record.update(params=None), "params"),
        (lambda record: record["params"].pop("horizon"), "horizon"),
        (lambda record: record["params"].update(colour="red"), "colour"),
        (lambda record: record["params"].update(k=9), "k must be less"),
        (lambda record: record["params"].update(k=3), "does not fit"),
        (lambda record: record["params"].update(horizon=math.nan), "horizon"),
        (lambda record: record["params"].update(resolution="0.05"), "params do not make a cmab-sm"),
    ],
)
def test_a_record_that_is_none_is_refused(change: Any, why: str) -> None:
    record = kofn.save(sorting())
    change(record)
    with pytest.raises(BadRecord, match=why):
        kofn.restore(record)


@pytest.mark.parametrize("record", [None, [], "record"])
def test_what_is_no_record_is_refused(record: Any) -> None:
    with pytest.raises(BadRecord, match="must have the keys policy, format, params and state"):
        kofn.restore(record)


# What is refused inside the state.

Path = tuple[Any, ...]
WRONG: list[Any] = [math.nan, math.inf, None, "x", "1", {}]


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The place of every single value in a state; of a list, that of its first."""
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))[:1]
    for name, each in items:
        yield from paths(each, (*path, name)) if isinstance(each, dict | list) and each else iter([(*path, name)])


def spoiled(state: Any, path: Path, bad: Any) -> Any:
    state = copy.deepcopy(state)
    place = state
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = bad
    return state


@pytest.mark.parametrize("make", POLICIES)
def test_a_value_of_another_kind_is_refused_and_nothing_is_half_done(make: Callable[[], Policy]) -> None:
    policy = make()
    record = kofn.save(policy)
    before, plan, memory = json.dumps(record), list(policy.plan()), set(vars(policy))
    for path in paths(record["state"]):
        for bad in WRONG:
            state = spoiled(record["state"], path, bad)
            with pytest.raises(BadRecord):
                kofn.restore({**record, "state": state})
            with pytest.raises(BadRecord):
                policy.load(state)
            assert json.dumps(kofn.save(policy)) == before
            assert list(policy.plan()) == plan
            assert set(vars(policy)) == memory


@for_each(
    "make, path, values",
    [
        *((make, ("plays",), (-1, 1.5, True)) for make in POLICIES),
        *((make, ("observed", "count", 0), (-1, 1.5, 10**9)) for make in POLICIES),
        *((make, ("observed", "rows", 0), (-1, 0.5, 10**6, 10**30)) for make in POLICIES),
        *((make, ("observed", name, 0), (-1,)) for make in POLICIES for name in ("total", "squares")),
        (committed, ("observed", "rows"), ([0, 1],)),
        (committed, ("best",), ([], [1], [1, 1], [1, 8], [-1, 1], [1, 2, 3], [0.5, 1])),
        (sorting, ("count", 0), (-1, 10**30, 10**6 + 0.5)),
        (sorting, ("total", 0), (-1, 10**9)),
        (sorting, ("groups", 0), (-1, 8, 0.5, 1, 3)),
        (sorting, ("unsorted", 0), (7, -1, 0.5)),
        (sorting, ("r",), (-1, 0, 1.5, 99)),
        (sorting, ("phase",), ("merge", "play", "rest")),
        *((merging, (name, 0), (-1, 8, 1.5)) for name in ("g1", "g2")),
        (merging, ("waiting", 0), (7, [1, 2, 3], [9], [-1])),
        *((merging, (name,), (7, [7])) for name in ("g1", "g2", "waiting", "merged", "base", "swap")),
        *((merging, (name,), (-1, 1, 1.5)) for name in ("i", "j")),
        *((merging, (name,), (0, 1.5, 99)) for name in ("r1", "r2")),
        *((merging, (name, 1), (-1, 10**9)) for name in ("base", "swap")),
        (improved_ucb, ("m",), (-1, 1.5, 60)),
        (improved_ucb, ("total", 0), (-1, 10**9)),
        (improved_ucb, ("total",), ([1.0],)),
        (improved_ucb, ("alive",), ([[0, 1]], [0, 1])),
        (improved_ucb, ("alive", 0), ([1, 0], [1, 1], [0, 5], [0, 1.5], [0])),
        (improved_ucb, ("alive", 1), ([0, 1],)),
        (doubling, ("earlier",), ([1], [1, 8])),
        *((doubling, (name,), (-1, 1.5)) for name in ("stage", "spent")),
    ],
)
def test_a_value_that_cannot_be_is_refused(make: Callable[[], Policy], path: Path, values: tuple[Any, ...]) -> None:
    policy = make()
    for bad in values:
        with pytest.raises(BadRecord):
            policy.load(spoiled(policy.state(), path, bad))


def test_a_group_of_more_than_k_arms_is_refused() -> None:
    policy = merging()
    state = policy.state()
    others = sorted(set(range(8)) - {*state["g1"], *state["g2"]})
    policy.load({**state, "waiting": [others[:2]]})
    for changes in ({"waiting": [others[:3]]}, {"waiting": [], "g2": state["g2"] + others[:1]}):
        with pytest.raises(BadRecord, match="at most 2 arms"):
            policy.load({**state, **changes})


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
