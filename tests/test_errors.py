"""An error names what came and the way out, in one line, and a refused call changes nothing: library, CLI and HTTP.

The tests check the facts that a message must contain, not its words. The tests of each part have more cases.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kofn
from kofn import BadInput, BadRecord, BadReward, BadScore, BadTally, KofnError, Tally, TooManySubsets
from kofn.lab import rivals, theory
from tests.cases import for_each
from tests.service.tools import NEW, service

ARMS = kofn.Bernoulli([0.1, 0.3, 0.5, 0.6, 0.8, 0.9])
PROBLEM = kofn.Problem(ARMS, "maximum", k=2)


def used(**options: Any) -> kofn.Policy:
    policy = kofn.CMABSM(6, 2, 1_000_000, **options)
    policy.tell(policy.ask(), 1)
    return policy


def halved(record: dict[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in list(record)[: len(record) // 2]}


MAKING: list[tuple[Callable[[], object], type[KofnError], list[str]]] = [
    (lambda: kofn.CMABSM(5, 5, horizon=1000), BadInput, ["k=5", "n_arms=5", "less than"]),
    (lambda: kofn.CMABSM(5, 2, "1e6"), BadInput, ["horizon", "'1e6'", "whole number"]),  # type: ignore[arg-type]
    (lambda: kofn.CMABSM(5, 2, 1000, resolution=1e-12), BadInput, ["1e-12", "use at least"]),
    (lambda: kofn.CMABSM(5, 2, 1000, direction="up"), BadInput, ["'up'", "'minimize'"]),  # type: ignore[arg-type]
    (lambda: kofn.CMABSM(5, 2, 1000, reward_range=(1, 0)), BadInput, ["(1, 0)", "low < high"]),
    (lambda: rivals.ImprovedUCB(100, 50, 1000), TooManySubsets, ["50 of 100"]),
    (lambda: kofn.make_policy("cmabsm", 5, 2), BadInput, ["'cmabsm'", "did you mean 'cmab-sm'"]),
    (lambda: kofn.make_policy("cmab-sm", 5, 2), BadInput, ["horizon=", "doubling"]),
    (lambda: kofn.make_policy("dart", 5, 2, horizon=9, epsilon=1), BadInput, ["epsilon", "it takes: "]),
    (lambda: kofn.restore(halved(kofn.save(used()))), BadRecord, ["record"]),
    (lambda: kofn.Bernoulli([0.1, 1.5]), BadInput, ["1.5", "from 0 to 1"]),
    (lambda: kofn.Problem(ARMS, "median", 2), BadInput, ["'median'", "maximum"]),
    (lambda: PROBLEM.value([(0, 1, 2)]), BadInput, ["2 arms", "3"]),
    (lambda: kofn.simulate("cmab-sm", PROBLEM, 10), BadInput, ["policy", "for instance"]),  # type: ignore[arg-type]
    (lambda: kofn.choose("abc", 2, len), BadInput, ["candidates", "list"]),
    (lambda: kofn.choose(6, 2, lambda _: float("nan"), budget=9), BadScore, ["nan"]),
    (lambda: kofn.compare(["dart-2"], PROBLEM), BadInput, ["'dart-2'", "did you mean 'dart'"]),
    (lambda: theory.time_to_try_all(30, 15, 0), BadInput, ["plays_per_second", "0"]),
]

TELLING: list[tuple[Callable[[kofn.Policy], object], type[KofnError], list[str]]] = [
    (lambda policy: policy.tell((1, 2), 250.5), BadReward, ["250.5", "reward_range"]),
    (lambda policy: policy.tell((1, 2), float("nan")), BadReward, ["nan"]),
    (lambda policy: policy.tell((1, 1), 1), BadInput, ["(1, 1)", "2 different arms"]),
    (lambda policy: policy.tell((1, 6), 1), BadInput, ["(1, 6)", "0 to 5"]),
    (lambda policy: policy.tell_plan([1, 0]), BadTally, ["list", "Tally.of("]),  # type: ignore[arg-type]
    (lambda policy: policy.tell_plan(Tally(*np.ones((3, 1)))), BadTally, ["1"]),
    (lambda policy: policy.load(rivals.DART(6, 2, 1_000_000).state()), BadRecord, ["does not fit", "CMABSM"]),
]


def check(error: KofnError, kind: type[KofnError], facts: list[str]) -> None:
    assert type(error) is kind
    assert "\n" not in str(error)
    assert [fact for fact in facts if fact not in str(error)] == [], str(error)


@for_each("call, kind, facts", MAKING)
def test_a_wrong_call(call: Callable[[], object], kind: type[KofnError], facts: list[str]) -> None:
    with pytest.raises(KofnError) as refused:
        call()
    check(refused.value, kind, facts)


@for_each("call, kind, facts", TELLING)
def test_a_refused_call_changes_nothing(
    call: Callable[[kofn.Policy], object], kind: type[KofnError], facts: list[str]
) -> None:
    policy, twin = used(), used()
    with pytest.raises(KofnError) as refused:
        call(policy)
    check(refused.value, kind, facts)
    for _ in range(20):
        assert policy.ask() == twin.ask()
        policy.tell(policy.ask(), 0.5)
        twin.tell(twin.ask(), 0.5)
    assert kofn.save(policy) == kofn.save(twin)


@for_each(
    "argv, facts",
    [
        (["figures"], ["No such command", "'figures'"]),
        (["run", "--steps", "5"], ["No such option", "--steps"]),
        (["budget", "--arms", "30"], ["'--k'"]),
        (["run", "--horizon", "2.5"], ["'--horizon'", "'2.5'", "whole number"]),
        (["run", "--set", "resolution"], ["NAME=VALUE", "resolution=0.05", "'resolution'"]),
        (["run", "--set", "k=3"], ["--k"]),
        (["run", "--set", "direction=minimize"], ["'minimize'", "problem"]),
        (["run", "--out", "."], ["'.'", "file name"]),
        (["replay", "nowhere.csv"], ["nowhere.csv", "No such file"]),
        (["paper", "max-45"], ["'max-45'", "max-12"]),
        (["paper", "max-12", "--out", "/dev/null"], ["/dev/null"]),
        (["completion", "tcsh"], ["'tcsh'", "bash"]),
        (["campaign", "decide", "front", "--context", "phone"], ["'phone'", "device=phone"]),
    ],
)
def test_a_wrong_command_is_one_line_on_stderr(
    kofn_main: Callable[..., tuple[int, str, str]], argv: list[str], facts: list[str]
) -> None:
    code, out, err = kofn_main(*argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("kofn: ")
    assert [fact for fact in facts if fact not in err] == [], err


def test_a_wrong_request_is_a_problem_that_names_the_field(sqlite_store: str) -> None:
    with service(sqlite_store) as api:
        assert api.post("/api/campaigns", json=NEW).status_code == 201
        front = "/api/campaigns/front"
        (made,) = api.post(f"{front}/decisions", json={"count": 1}).json()["decisions"]
        for path, body, status, facts in (
            ("/api/campaigns", NEW | {"name": "other", "k": 8}, 422, ["k=8", "n_arms=8"]),
            ("/api/campaigns", NEW | {"name": "other", "arms": ["a", "a"]}, 422, ["'a'", "twice"]),
            ("/api/campaigns", NEW, 409, ["'front'"]),
            ("/api/campaigns/back/decisions", {"count": 1}, 404, ["'back'"]),
            (f"{front}/decisions", {"count": 0}, 422, ["count", "1"]),
            (f"{front}/rewards", {"rewards": [{"id": made["id"], "reward": 13}]}, 422, ["13", "12"]),
        ):
            answer = api.post(path, json=body)
            assert answer.status_code == status, answer.text
            assert answer.headers["content-type"] == "application/problem+json"
            assert [fact for fact in facts if fact not in answer.text] == [], answer.text
        assert api.get(front).json()["rewards"] == 0
