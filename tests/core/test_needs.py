"""What policies may need beyond one reward per play: single arms, fewer arms."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from kofn import BadInput, BadReward, BadTally, Plan, Policy, Tally
from kofn.core import Direction, Subset
from kofn.lab.rivals import ETCG, Oracle
from tests.cases import for_each


class Seeing(Policy):
    """Sees single arms, plays two rows, and remembers what it learned."""

    name = "seeing"
    needs: ClassVar[frozenset[str]] = frozenset({"arms"})

    def __init__(
        self,
        n_arms: int = 4,
        k: int = 2,
        *,
        reward_range: tuple[float, float] = (0.0, 1.0),
        direction: Direction = "maximize",
    ) -> None:
        super().__init__(n_arms, k, reward_range=reward_range, direction=direction)
        self.learned: list[Any] = []

    def best(self) -> Subset:
        return (0, 1)

    def _next(self) -> Plan:
        return Plan(np.array([[0, 1], [1, 3]]), np.array([2, 1]))

    def _learn(self, plan: Plan, tally: Tally) -> None:
        assert tally.arms is not None
        self.learned.append(tally.arms.tolist())

    def _state(self) -> dict[str, Any]:
        return {"learned": len(self.learned)}

    def _load(self, state: Mapping[str, Any]) -> None:
        self.learned = [None] * state["learned"]


# Single arms, in the core.


def test_single_arms_add_up_and_are_kept() -> None:
    policy = Seeing()
    policy.tell((0, 1), 0.5, arms=[0.25, 0.5])
    state = policy.state()
    assert state["observed"] == {"rows": [0], "count": [1], "total": [0.5], "squares": [0.25], "arms": [[0.25, 0.5]]}
    again = Seeing()
    again.load(state)
    for each in (policy, again):
        each.tell_plan(Tally(np.array([1, 1]), np.ones(2), np.ones(2), np.array([[0.5, 0.25], [1.0, 0.0]])))
        assert each.learned == [[[0.75, 0.75], [1.0, 0.0]]]


def test_single_arms_have_the_range_and_direction_of_the_reward() -> None:
    policy = Seeing(reward_range=(10, 20), direction="minimize")
    policy.tell((0, 1), 15, arms=[10, 20])
    policy.tell_plan(
        Tally(np.array([1, 1]), np.array([15, 15]), np.array([225, 225]), np.array([[12.5, 20], [15, 10]]))
    )
    assert policy.learned == [[[1.75, 0.0], [0.5, 1.0]]]


@for_each(
    "arms, error",
    [
        (None, BadTally),
        (np.zeros(2), BadTally),
        (np.zeros((2, 3)), BadTally),
        (np.zeros((3, 2)), BadTally),
        ([["a", "b"], ["c", "d"]], BadTally),
        (np.array([[2.1, 0], [0, 0]]), BadReward),
        (np.array([[0, 0], [0, -0.1]]), BadReward),
        (np.array([[0, 0], [0, np.nan]]), BadReward),
    ],
)
def test_totals_of_arms_that_cannot_be_are_refused_and_change_nothing(arms: Any, error: type[Exception]) -> None:
    policy = Seeing()
    before = policy.state()
    with pytest.raises(error):
        policy.tell_plan(Tally(np.array([2, 1]), np.ones(2), np.ones(2), arms))
    assert policy.state() == before


def test_an_arm_that_earned_too_much_is_named() -> None:
    with pytest.raises(BadReward, match=r"got 1.5 for arm 3 in 1 plays of \(1, 3\)"):
        Seeing().tell_plan(
            Tally(np.array([0, 1]), np.ones(2) * [0, 1], np.ones(2) * [0, 1], np.array([[0, 0], [0, 1.5]]))
        )


@for_each("arms", [[], [[0.1]], [[0.1, 2.0]], [[0.1, math.nan]], None, [["a", "b"]]])
def test_a_state_with_arms_that_cannot_be_is_refused(arms: Any) -> None:
    policy = Seeing()
    policy.tell((0, 1), 0.5, arms=[0.25, 0.5])
    state = policy.state()
    with pytest.raises(BadInput, match="this state does not fit"):
        policy.load(state | {"observed": state["observed"] | {"arms": arms}})
    assert policy.state() == state


def test_a_policy_that_does_not_see_arms_is_not_shown_them() -> None:
    policy = Oracle(4, 2, best=(0, 1))
    policy.tell((0, 1), 0.5, arms=[0.5, 0.5])
    part = Tally(np.array([3]), np.array([1.0]), np.array([1.0]), np.array([[1.0, 1.0]]))
    policy.tell_plan(part)
    assert "arms" not in policy.state()["observed"]


# Fewer arms, in the core.


def test_a_plan_gives_subsets_without_their_empty_places() -> None:
    plan = Plan(np.array([[0, 2, -1], [0, 1, 2], [3, -1, -1]]), np.array([1, 2, 3]))
    assert list(plan) == [((0, 2), 1), ((0, 1, 2), 2), ((3,), 3)]
    assert list(plan.part(3)) == [((0, 2), 1), ((0, 1, 2), 1), ((3,), 1)]


def test_a_huge_plan_finds_a_shorter_subset_that_was_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kofn.core.open_plan.MOST_INDEXED", 0)
    policy = ETCG(5, 3, 10**4, m=2)
    policy.tell((4,), 0.5)
    assert policy.plan().times.tolist() == [2, 2, 2, 2, 1]
