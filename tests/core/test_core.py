"""Plans, tallies and the engine of a policy, shown on a policy that follows a script."""

import copy
import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kofn import make_policy
from kofn.core import (
    BadInput,
    BadRecord,
    BadReward,
    BadTally,
    Direction,
    KofnError,
    MissingExtra,
    Plan,
    Policy,
    Subset,
    Tally,
    check_sizes,
    generator,
    subset_of,
    whole,
)
from tests.cases import for_each

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("steady")

Rows = list[tuple[Subset, int]]
A, B, C, D = (0, 1), (0, 2), (1, 2), (2, 3)


class Scripted(Policy):
    """Plans one plan of its script after another, then repeats the last one, and records what it learned."""

    name = "scripted"

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        script: list[Rows],
        best: Subset = D,
        reward_range: tuple[float, float] = (0.0, 1.0),
        direction: Direction = "maximize",
    ) -> None:
        super().__init__(n_arms, k, reward_range=reward_range, direction=direction, script=script, best=best)
        self.script = script
        self.learned: list[list[float]] = []  # of each plan: count, total and squares of each row

    def best(self) -> Subset:
        best: Subset = self._params["best"]
        return best

    def _next(self) -> Plan:
        rows = self.script[min(len(self.learned), len(self.script) - 1)]
        return Plan(np.array([subset for subset, _ in rows]), np.array([times for _, times in rows]))

    def _learn(self, plan: Plan, tally: Tally) -> None:
        assert list(tally.count) == list(plan.times)
        self.learned.append([*tally.count.tolist(), *tally.total.tolist(), *tally.squares.tolist()])

    def _state(self) -> dict[str, Any]:
        return {"learned": copy.deepcopy(self.learned)}

    def _load(self, state: Mapping[str, Any]) -> None:
        self.learned = [[float(number) for number in row] for row in state["learned"]]


def scripted(*script: Rows, best: Subset = D, **options: Any) -> Scripted:
    return Scripted(4, 2, script=list(script), best=best, **options)


def plan_of(*times: int) -> Plan:
    return Plan(np.arange(len(times))[:, None], np.array(times))


def told(policy: Policy) -> list[int]:
    """How often each row of the plan has been told, as its state says."""
    state = policy.state()["observed"]
    count = [0] * len(policy.plan())
    for row, n in zip(state["rows"], state["count"], strict=True):
        count[row] = n
    return count


# Plans.


def test_a_plan_cannot_be_written_to() -> None:
    plan = plan_of(1, 2)
    with pytest.raises(ValueError, match="read-only"):
        plan.times[0] = 5
    with pytest.raises(ValueError, match="read-only"):
        plan.subsets[0] = 5


@for_each(
    "times, plays, part",
    [
        ((30, 10), 20, [15, 5]),
        ((30, 10), 99, [30, 10]),
        ((3, 3, 3), 5, [2, 2, 1]),
        ((1, 0, 1, 0, 1), 2, [1, 0, 1, 0, 0]),
        ((10**15, 1), 10**15, [10**15, 0]),
    ],
)
def test_a_part_of_a_plan_is_in_proportion_and_the_rest_goes_to_the_first_rows(
    times: tuple[int, ...], plays: int, part: list[int]
) -> None:
    assert list(plan_of(*times).part(plays).times) == part


@given(
    st.lists(st.integers(0, 20) | st.integers(0, 10**15), min_size=1, max_size=30),
    st.floats(0, 1),
    st.none() | st.integers(0, 9),
)
def test_a_part_is_exact_whatever_the_sizes(times: list[int], share: float, seed: int | None) -> None:
    plan = plan_of(*times)
    plays = min(plan.plays, round(plan.plays * share))
    part = plan.part(plays, None if seed is None else np.random.default_rng(seed))
    assert part.plays == plays
    assert (part.times >= 0).all()
    assert (part.times <= plan.times).all()
    assert np.array_equal(part.subsets, plan.subsets)
    exact = plan.times * (plays / max(1, plan.plays))
    assert (abs(part.times - exact) <= 1 + 1e-9 * exact).all()


def test_what_cannot_be_divided_goes_to_random_rows() -> None:
    plan, rng = plan_of(*[1] * 10), np.random.default_rng(3)
    seen = sum(plan.part(3, rng).times for _ in range(2000))
    assert (abs(seen - 600) < 5 * np.sqrt(2000 * 0.3 * 0.7)).all()


# Tallies.


# Numbers and subsets.


def test_whole_numbers() -> None:
    for value in (3, 3.0, np.int8(3), np.float64(3), np.uint64(3)):
        number = whole("x", value)  # type: ignore[arg-type]
        assert number == 3
        assert type(number) is int
    assert whole("x", 10**30 + 1) == 10**30 + 1


@for_each("value", [0, -1, 2.5, "3", None, True, np.True_, np.nan, np.inf, -np.inf, 3j, [3]])
def test_what_is_no_whole_number_is_named(value: Any) -> None:
    with pytest.raises(BadInput, match="rounds must be a whole number"):
        whole("rounds", value)


@for_each("n_arms, k", [(3, 3), (3, 4), (1, 1), (0, 0), (3, 0), (3, -1), (3, 1.5), (3, True)])
def test_sizes_that_leave_nothing_to_choose_are_refused(n_arms: Any, k: Any) -> None:
    with pytest.raises(BadInput, match=r"n_arms|k must be"):
        check_sizes(n_arms, k)


@for_each("arms", [(1, 3), [3, 1], {3, 1}, np.array([3, 1], np.uint8), iter([3, 1]), range(1, 4, 2)])
def test_a_subset_of_anything_that_holds_arms(arms: Any) -> None:
    subset = subset_of(arms, 4, 2)
    assert subset == (1, 3)
    assert {type(arm) for arm in subset} == {int}


@for_each(
    "arms", [(1,), (1, 2, 3), (1, 1), (1, 1, 2), (-1, 1), (1, 4), (0.5, 1), "12", 7, None, ("1", "2"), [[1, 2]], ()]
)
def test_what_is_no_subset_is_refused(arms: Any) -> None:
    with pytest.raises(BadInput, match=r"subset must|an arm must be a number"):
        subset_of(arms, 4, 2)


def test_errors_are_of_one_tree() -> None:
    assert issubclass(BadInput, KofnError)
    assert issubclass(BadInput, ValueError)
    assert {*BadInput.__subclasses__()} >= {BadReward, BadTally, BadRecord}
    error = MissingExtra("matplotlib", "plots")
    assert isinstance(error, ImportError)
    assert str(error) == "matplotlib is not installed: pip install 'kofn[plots]'"


@for_each("seed", [True, 1.5, "1", -1, [1]])
def test_what_is_no_seed_is_refused(seed: Any) -> None:
    with pytest.raises(BadInput, match="seed must be"):
        generator(seed)


# Asking.


def test_ask_goes_round_the_rows_that_still_want_plays() -> None:
    policy = scripted([(A, 3), (B, 1), (C, 2)])
    assert [policy.ask() for _ in range(6)] == [A, B, C, A, C, A]


def test_ask_leaves_out_what_has_been_told_meanwhile() -> None:
    policy = scripted([(A, 2), (B, 2), (C, 2)])
    assert policy.ask() == A
    policy.tell_plan(Tally(np.array([0, 2, 0]), np.zeros(3), np.zeros(3)))
    assert [policy.ask() for _ in range(3)] == [C, A, C]


def test_when_all_is_out_the_best_is_played() -> None:
    policy = scripted([(A, 1), (B, 1)], [(C, 2)])
    assert [policy.ask() for _ in range(4)] == [A, B, D, D]
    policy.tell(D, 0.5)
    assert (policy.plays, policy.learned, told(policy)) == (1, [], [0, 0])
    policy.tell(A, 1)
    policy.tell(B, 0)
    assert policy.learned == [[1, 1, 1.0, 0.0, 1.0, 0.0]]
    policy.tell(D, 0.5)  # it was handed out by the plan before
    assert policy.plays == 4
    with pytest.raises(BadTally, match=r"\(2, 3\) is not in the plan"):
        policy.tell(D, 0.5)
    assert policy.plays == 4


def test_a_reward_of_an_extra_that_is_in_the_plan_counts_for_the_plan() -> None:
    policy = scripted([(A, 1), (B, 1)], [(C, 2)], best=B)
    assert [policy.ask() for _ in range(3)] == [A, B, B]
    policy.tell(B, 1)
    policy.tell(B, 0)  # no play of it is remaining
    policy.tell(A, 1)
    assert policy.learned == [[1, 1, 1.0, 1.0, 1.0, 1.0]]
    assert policy.plays == 3


def test_an_extra_told_late_leaves_the_new_plan_alone() -> None:
    policy = scripted([(A, 1)], [(B, 1), (D, 1)])
    assert [policy.ask() for _ in range(2)] == [A, D]
    policy.tell(A, 1)
    policy.tell(D, 0.25)
    assert told(policy) == [0, 0]
    assert [policy.ask() for _ in range(2)] == [B, D]
    policy.tell(D, 0.75)
    assert told(policy) == [0, 1]


def test_release_wants_again_what_is_out_and_keeps_what_was_told() -> None:
    policy = scripted([(A, 2), (B, 1)])
    assert [policy.ask() for _ in range(3)] == [A, B, A]
    policy.tell(A, 1)
    policy.release()
    assert [policy.ask() for _ in range(3)] == [A, B, D]
    assert told(policy) == [1, 0]


def test_two_rows_of_one_subset_are_two_rows() -> None:
    """A worker that asks and tells in turn is never sent to play `best()` instead."""
    policy = scripted([(A, 2), (B, 2), (A, 2)], [(C, 1)])
    asked = []
    for _ in range(6):
        asked.append(policy.ask())
        policy.tell(asked[-1], 0.5)
    assert asked == [A, B, A, A, B, A]
    assert policy.learned == [[2, 2, 2, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5]]


@given(st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(1, 4)), min_size=1, max_size=6), st.data())
def test_any_order_of_asking_telling_and_releasing_ends_the_plan(rows: Rows, data: st.DataObject) -> None:
    """Nothing is asked for too often, nothing is forgotten: workers that ask and tell always reach the next plan."""
    policy = scripted(rows, [(D, 10**6)], best=(1, 3))
    remaining = Counter[Subset]()
    for subset, n in rows:
        remaining[subset] += n
    flying: list[Subset] = []
    for _ in range(data.draw(st.integers(0, 40))):
        what = data.draw(st.sampled_from(["ask", "ask", "tell", "tell", "release", "reload"]))
        if policy.learned:
            break
        if what == "ask":
            flying.append(policy.ask())
            assert flying.count(flying[-1]) <= remaining[flying[-1]] or flying[-1] == (1, 3)
        elif what == "tell" and flying:
            subset = flying.pop(data.draw(st.integers(0, len(flying) - 1)))
            policy.tell(subset, 0.5)
            remaining[subset] -= 1
        elif what == "release":
            policy.release()
            flying = []
        elif what == "reload":
            policy.load(json.loads(json.dumps(policy.state())))
            flying = []
    for _ in range(100):
        if policy.learned:
            break
        policy.tell(flying.pop() if flying else policy.ask(), 0.5)
    times = [n for _, n in rows]
    assert policy.learned == [[*times, *(n / 2 for n in times), *(n / 4 for n in times)]]


# Telling.


@for_each("subset", [(1, 2), (2, 1), [2, 1], np.array([2, 1]), {1, 2}, (np.int32(1), np.int32(2))])
@for_each("asked", [True, False])
def test_a_subset_may_be_told_in_any_shape(subset: Any, asked: bool) -> None:
    policy = scripted([(C, 2)])
    if asked:
        policy.ask()
    policy.tell(subset, 0.5)
    assert told(policy) == [1]


@for_each(
    "reward, value",
    [(1, 1), (True, 1), (np.True_, 1), (np.bool_(False), 0), (np.int64(1), 1), (np.float32(0.5), 0.5), (0.25, 0.25)],
)
def test_a_reward_may_be_any_number(reward: Any, value: float) -> None:
    policy = scripted([(A, 1)], [(B, 1)])
    policy.tell(A, reward)
    assert policy.learned == [[1, value, value**2]]


@for_each("reward", [1.5, -0.1, np.nan, np.inf, -np.inf, None, "much", [1, 0], 1j, 10**400, object()])
def test_what_is_no_reward_is_refused_and_changes_nothing(reward: Any) -> None:
    policy = scripted([(A, 2)])
    before = policy.state()
    with pytest.raises(BadReward, match=r"a reward must be (one number|between 0 and 1)"):
        policy.tell(policy.ask(), reward)
    assert policy.state() == before
    assert [policy.ask() for _ in range(2)] == [A, D]  # the play is still out


@for_each("subset", [((0,), (1,)), ([0], 1), (0, None), ("0", "1"), (0.5, 1)])
def test_a_tuple_of_anything_but_arms_is_refused(subset: Any) -> None:
    with pytest.raises(BadInput, match="a subset must be 2 arms from 0 to 3"):
        scripted([(A, 2)]).tell(subset, 1)


def test_a_play_too_many_is_refused() -> None:
    policy = scripted([(A, 1), (B, 1)])
    policy.tell(A, 1)
    with pytest.raises(BadTally, match=r"no play of \(0, 1\) is remaining: all 1 planned"):
        policy.tell(A, 1)
    with pytest.raises(BadTally, match=r"\(1, 2\) is not in the plan"):
        policy.tell(C, 1)
    assert told(policy) == [1, 0]


def test_a_plan_keeps_its_rows_until_all_is_told() -> None:
    policy = scripted([(A, 2), (B, 1)], [(C, 5)])
    policy.tell(B, 1)
    assert list(policy.plan()) == [(A, 2), (B, 0)]
    policy.tell_plan(Tally.of([[1], []]))
    assert list(policy.plan()) == [(A, 1), (B, 0)]
    policy.tell_plan(Tally.zeros(2))
    assert list(policy.plan()) == [(A, 1), (B, 0)]
    policy.tell_plan(Tally.of([[0], []]))
    assert list(policy.plan()) == [(C, 5)]
    assert policy.learned == [[2, 1, 1.0, 1.0, 1.0, 1.0]]
    assert policy.plays == 3


def test_a_tally_larger_than_the_plan_names_the_row() -> None:
    policy = scripted([(A, 2), (B, 25)])
    policy.tell_plan(Tally.of([[], [1] * 5]))
    with pytest.raises(BadTally, match=r"only 20 plays of \(0, 2\) are remaining; got 21"):
        policy.tell_plan(Tally.of([[], [1] * 21]))
    with pytest.raises(BadTally, match="one row for each of the 2 rows of the plan; got shape"):
        policy.tell_plan(Tally.of([[1]]))
    with pytest.raises(BadTally, match="takes a Tally, not list"):
        policy.tell_plan([1, 2])  # type: ignore[arg-type]
    assert told(policy) == [0, 5]


def test_what_is_told_is_copied() -> None:
    policy, tally = scripted([(A, 2)]), Tally.of([[1]])
    policy.tell_plan(tally)
    tally.count[:], tally.total[:] = 7, 7.0
    assert (told(policy), policy.state()["observed"]["total"]) == ([1], [1.0])


# Plays that were not planned.


class Open(Scripted):
    """Learns from any play, and hands out something of its own while a plan is out."""

    accepts_unplanned = True

    def filler(self, index: int, segment: str | None = None) -> Subset:
        return [C, D, (1, 3)][index % 3]


def open_minded(*script: Rows, **options: Any) -> Open:
    return Open(4, 2, script=list(script), **options)


def test_a_play_that_was_not_planned_counts_in_place_of_one_that_was() -> None:
    policy = open_minded([(A, 2), (B, 2)], [(C, 1)])
    for subset, reward in ((D, 1.0), (B, 0.5), (C, 0.25)):
        policy.tell(subset, reward)
    assert list(policy.plan()) == [(A, 2), (B, 1)]  # what is best to play next is what it was
    policy.tell(D, 0.5)
    assert policy.learned == [[1, 2, 1, 0.5, 1.5, 0.25, 0.25, 1.25, 0.0625]]  # of B, of D, of C
    assert (policy.plays, policy.updates) == (4, 1)


def test_a_play_more_than_was_planned_of_a_subset_counts_too() -> None:
    policy = open_minded([(A, 1), (B, 2)], [(C, 1)])
    for reward in (1.0, 0.5, 0.0):
        policy.tell(A, reward)
    assert policy.learned == [[1, 2, 1.0, 0.5, 1.0, 0.25]]


def test_a_plan_ends_early_when_too_many_subsets_were_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kofn.core.open_plan.MOST_UNPLANNED", 2)
    policy = open_minded([(A, 99)], [(B, 1)])
    policy.tell(C, 1.0)
    policy.tell(C, 0.0)
    assert policy.updates == 0
    policy.tell(D, 1.0)
    assert (policy.updates, policy.plays) == (1, 3)
    assert policy.learned == [[2, 1, 1.0, 1.0, 1.0, 1.0]]


def test_without_leave_what_was_not_planned_is_refused() -> None:
    policy = scripted([(A, 2)])
    before = policy.state()
    for subset, count in ((B, 1), (A, 3)):
        with pytest.raises(BadTally, match=r"not in the plan|all 2 planned plays"):
            policy.tell_total(subset, count, 0.5)
    assert policy.state() == before
    assert "unplanned" not in before


@pytest.mark.parametrize("kind", [Scripted, Open])
def test_a_total_of_planned_plays_is_a_tally(kind: type[Scripted]) -> None:
    policy = kind(4, 2, script=[[(A, 5), (B, 3)], [(C, 1)]])
    asked = [policy.ask() for _ in range(4)]
    assert asked == [A, B, A, B]
    policy.tell_total([1, 0], 4, 2.0, 1.5)
    assert told(policy) == [4, 0]
    assert Counter(policy.ask() for _ in range(2)) == Counter({A: 1, B: 1})
    policy.tell_total(A, 1, 0.5, 0.25)
    policy.tell_total(B, 3, 3.0)
    assert policy.learned == [[5, 3, 2.5, 3.0, 1.75, 3.0]]


@for_each("direction", ["maximize", "minimize"])
@for_each("reward_range", [(0.0, 1.0), (0.0, 40.0), (-3.0, 5.0)])
@for_each("subset", [A, D])
def test_squares_that_are_not_known_are_the_largest_there_can_be(
    subset: Subset, reward_range: tuple[float, float], direction: Direction
) -> None:
    """As if 3 of 8 rewards had been at the upper end, and the others at the lower one."""
    low, high = reward_range
    policy = open_minded([(A, 8)], [(B, 1)], reward_range=reward_range, direction=direction)
    policy.tell_total(subset, 8, 3 * high + 5 * low)
    ones = 3 if direction == "maximize" else 5
    assert policy.learned == [pytest.approx([8, ones, ones])]


@for_each(
    "subset, count, total, squares",
    [
        (D, 0, 0.0, None),
        (D, 1.5, 0.5, None),
        (D, 2, 2.5, None),
        (D, 2, np.nan, None),
        (D, 2, 1.0, 0.4),
        (D, 2, 1.0, 1.1),
        (A, 2, 2.5, None),
        ((0, 4), 1, 0.5, None),
    ],
)
def test_a_total_that_no_plays_have_is_refused(subset: Any, count: Any, total: float, squares: float | None) -> None:
    policy = open_minded([(A, 5)], [(B, 1)])
    before = policy.state()
    with pytest.raises(BadInput):
        policy.tell_total(subset, count, total, squares)
    assert policy.state() == before


def test_spare_plays_are_numbered_from_the_start_of_each_plan() -> None:
    policy = open_minded([(A, 1)], [(B, 4)])
    assert [policy.ask() for _ in range(6)] == [A, C, D, (1, 3), C, D]
    policy.tell(A, 1.0)
    assert [policy.ask() for _ in range(6)] == [B, B, B, B, C, D]


def test_a_spare_play_of_an_earlier_plan_counts_for_the_plan_that_is_out() -> None:
    policy = open_minded([(A, 1)], [(B, 2), (D, 1)], [(C, 9)])
    assert [policy.ask() for _ in range(4)] == [A, C, D, (1, 3)]
    policy.tell(A, 1.0)
    policy.tell(C, 0.5)
    policy.tell(D, 0.25)  # planned by now, but this play was not
    policy.tell((1, 3), 0.125)
    assert policy.learned[1:] == [[1, 1, 1, 0.5, 0.25, 0.125, 0.25, 0.0625, 0.015625]]
    assert policy.plays == 4


def test_what_was_not_planned_is_kept() -> None:
    policy = open_minded([(A, 3), (B, 3)], [(C, 1)])
    policy.tell(B, 0.5)
    policy.tell_total(D, 2, 1.0, 0.75)
    state = json.loads(json.dumps(policy.state()))
    assert state["unplanned"] == [[[2, 3], 2, 1.0, 0.75]]
    again = open_minded([(A, 3), (B, 3)], [(C, 1)])
    again.load(state)
    assert again.state() == policy.state()
    for each in (policy, again):
        each.tell_total(A, 3, 3.0)
        assert each.learned == [[3, 1, 2, 3.0, 0.5, 1.0, 3.0, 0.25, 0.75]]


@for_each(
    "unplanned",
    [
        None,
        7,
        [[[2, 3], 1, 0.5]],
        [[[2, 3], 0, 0.0, 0.0]],
        [[[2, 4], 1, 0.5, 0.25]],
        [[[2, 3], 1, 1.5, 2.25]],
        [[[2, 3], 1, 0.5, 0.5], [[1, 2], 1, 0.5, 0.1]],
        [[[2, 3], 1, 0.5, 0.25], [[3, 2], 1, 0.5, 0.25]],
        [[[2, 3], 6, 3.0, 3.0]],  # complete: it should have turned
    ],
)
def test_unplanned_plays_that_cannot_be_are_refused(unplanned: Any) -> None:
    policy = open_minded([(A, 3), (B, 3)])
    policy.tell(D, 0.5)
    before = policy.state()
    with pytest.raises(BadRecord):
        policy.load({**before, "unplanned": unplanned})
    assert policy.state() == before


# The edge: the user's scale.

RANGES = [(0.0, 1.0), (0.0, 40.0), (-3.0, 5.0), (-8.0, -4.0), (100.0, 101.0)]


@for_each(
    "reward_range", [(0, 5e-324), (0, 1e-154), (-1e308, 1e308), (0, 1e154), (1e160, math.nextafter(1e160, math.inf))]
)
def test_a_range_in_which_normalising_overflows_is_refused(reward_range: tuple[float, float]) -> None:
    with pytest.raises(BadInput, match=r"from -1e\+140 to 1e\+140 that differ by at least 1e-140, not .*another unit"):
        scripted([(A, 6)], reward_range=reward_range)


@pytest.mark.parametrize("reward_range", [(0, 1e-140), (-1e140, 1e140), (9e139, 1e140)])
def test_rewards_in_an_extreme_range_are_finite(reward_range: tuple[float, float]) -> None:
    policy = make_policy("thompson", 5, 2, seed=1, reward_range=reward_range)
    for _ in range(3):
        policy.tell_total((1, 2), 2_000_000, 1e6 * sum(reward_range))
        policy.tell(policy.ask(), reward_range[1])
    assert len(policy.best()) == 2


@for_each("reward_range", RANGES)
@for_each("direction", ["maximize", "minimize"])
def test_rewards_reach_the_policy_in_0_to_1(reward_range: tuple[float, float], direction: Direction) -> None:
    inside = np.array([0, 0.125, 0.25, 0.5, 0.75, 1.0])  # scaled without rounding in every range above
    low, high = reward_range
    outside = low + (high - low) * (inside if direction == "maximize" else 1 - inside)
    expected = [6, inside.sum(), (inside**2).sum()]
    by_plan, by_play = (scripted([(A, 6)], [(B, 1)], reward_range=reward_range, direction=direction) for _ in range(2))
    by_plan.tell_plan(Tally.of([outside]))
    for reward in outside:
        by_play.tell(A, reward)
    assert by_plan.learned == [expected]
    assert by_play.learned == [expected]


@given(
    st.sampled_from(RANGES),
    st.sampled_from(["maximize", "minimize"]),
    st.lists(st.floats(0, 1), min_size=1, max_size=50),
)
def test_both_doors_agree_and_what_was_told_can_be_kept(
    reward_range: tuple[float, float], direction: Direction, inside: list[float]
) -> None:
    low, high = reward_range
    outside = np.clip(low + (high - low) * np.array(inside), low, high)
    by_plan, by_play = (
        scripted([(A, len(inside) + 1)], reward_range=reward_range, direction=direction) for _ in range(2)
    )
    by_plan.tell_plan(Tally.of([outside]))
    for reward in outside:
        by_play.tell(A, reward)
    one, two = by_plan.state()["observed"], by_play.state()["observed"]
    for name in ("count", "total", "squares"):
        assert one[name] == pytest.approx(two[name], rel=1e-9, abs=1e-8)
    for policy in (by_plan, by_play):
        fresh = scripted([(A, len(inside) + 1)], reward_range=reward_range, direction=direction)
        fresh.load(json.loads(json.dumps(policy.state())))
        assert fresh.state() == policy.state()


@for_each("reward_range", RANGES)
def test_sums_a_little_outside_their_range_are_rounding(reward_range: tuple[float, float]) -> None:
    low, high = reward_range
    size = max(abs(low), abs(high))
    n = 10**6
    for edge in (low, high):
        for off in (-1e-10, 1e-10):
            policy = scripted([(A, n)], [(B, 1)], reward_range=reward_range)
            policy.tell_plan(Tally(np.array([n]), np.array([n * edge * (1 + off)]), np.array([n * edge**2])))
            [[_, total, squares]] = policy.learned
            assert 0 <= total <= n
            assert 0 <= squares <= n
        for off in (-1e-6, 1e-6):
            policy = scripted([(A, n)], [(B, 1)], reward_range=reward_range)
            beyond = edge + off * size
            if low <= beyond <= high:
                continue
            with pytest.raises(BadReward, match="a reward must be between"):
                policy.tell_plan(Tally(np.array([n]), np.array([n * beyond]), np.array([n * beyond**2])))
            assert policy.learned == []


@for_each(
    "rewards, squares",
    [
        ([0.5, 0.5], 0.4),  # below the mean's square
        ([1.0, 0.0], 1.1),  # above what 0s and 1s can have
        ([0.0, 0.0], 0.1),
        ([1.0, 1.0], 1.9),
        ([0.5], -0.25),
    ],
)
@for_each("reward_range", [(0.0, 1.0), (0.0, 40.0), (-3.0, 5.0)])
def test_squares_that_no_rewards_have_are_refused(
    rewards: list[float], squares: float, reward_range: tuple[float, float]
) -> None:
    low, high = reward_range
    span, n, total = high - low, len(rewards), sum(rewards)
    policy = scripted([(B, 1), (A, 9)], reward_range=reward_range)
    before = policy.state()
    outside = (
        np.array([0.0, n * low + span * total]),
        np.array([0.0, n * low**2 + 2 * low * span * total + span**2 * squares]),
    )
    with pytest.raises(BadReward, match=rf"{n} rewards .* cannot have squares that add up to .*\(0, 1\)"):
        policy.tell_plan(Tally(np.array([0, n]), *outside))
    assert policy.state() == before


@for_each(
    "count, total, squares, why",
    [
        ([-1], [0.0], [0.0], "got -1 plays"),
        ([1.0], [0.5], [0.25], "whole numbers"),
        ([True], [0.5], [0.25], "whole numbers"),
        ([1], [np.nan], [0.25], "finite"),
        ([1], [0.5], [np.inf], "finite"),
        ([0], [0.5], [0.0], "got 0.5 for 0 plays of"),
        ([0], [0.0], [0.5], "0 rewards .* cannot have squares"),
        ([[1]], [[0.5]], [[0.25]], "one row for each of the 1 rows"),
        ([1], [0.5, 0.5], [0.25], "one row for each of the 1 rows"),
    ],
)
def test_what_is_no_tally_is_refused(count: Any, total: Any, squares: Any, why: str) -> None:
    policy = scripted([(A, 9)])
    before = policy.state()
    with pytest.raises(BadInput, match=why):
        policy.tell_plan(Tally(np.array(count), np.array(total), np.array(squares)))
    assert policy.state() == before


@for_each("low", [0.0, 1e3, 1e6, 1.7e9])
def test_what_was_told_in_a_range_far_from_zero_can_be_restored(low: float) -> None:
    """Squares of large numbers lose their digits; what is kept of them must still be what rewards can have."""
    for inside in (0.0, 0.3, 0.5, 1.0):
        policy = scripted([(A, 100)], reward_range=(low, low + 1))
        policy.tell_plan(Tally.of([np.full(47, low + inside)]))
        scripted([(A, 100)], reward_range=(low, low + 1)).load(policy.state())


@for_each("reward_range", [(1, 1), (2, 1), (0, np.inf), (np.nan, 1), (0,), (0, 1, 2), 5, None, ("a", 1)])
def test_what_is_no_range_is_refused(reward_range: Any) -> None:
    with pytest.raises(BadInput, match="reward_range"):
        scripted([(A, 1)], reward_range=reward_range)


@for_each("direction", ["max", "", None, 1, ["minimize"]])
def test_what_is_no_direction_is_refused(direction: Any) -> None:
    with pytest.raises(BadInput, match="direction must be 'maximize' or 'minimize'"):
        scripted([(A, 1)], direction=direction)


# Keeping.


def test_a_state_holds_what_was_told_and_not_what_is_out() -> None:
    policy = scripted([(A, 3), (B, 3)], [(C, 1)])
    policy.tell(B, 0.5)
    policy.ask()
    state = policy.state()
    assert state == {
        "plays": 1,
        "updates": 0,
        "observed": {"rows": [1], "count": [1], "total": [0.5], "squares": [0.25]},
        "learned": [],
    }
    fresh = scripted([(A, 3), (B, 3)], [(C, 1)])
    fresh.load(state)
    assert list(fresh.plan()) == [(A, 3), (B, 2)]
    assert Counter(fresh.ask() for _ in range(6)) == Counter({A: 3, B: 2, D: 1})
    assert fresh.plays == 1


def spoiled(**changes: Any) -> dict[str, Any]:
    state: dict[str, Any] = {"rows": [1], "count": [2], "total": [0.5], "squares": [0.25]}
    return {"plays": 2, "updates": 0, "observed": state | changes, "learned": []}


@for_each(
    "state",
    [
        spoiled(rows=[2]),
        spoiled(rows=[-1]),
        spoiled(rows=[10**30]),
        spoiled(rows=[0, 0], count=[1, 1], total=[0.5, 0.5], squares=[0.25, 0.25]),
        spoiled(count=[4]),
        spoiled(count=[-1]),
        spoiled(total=[2.5]),
        spoiled(total=[np.nan]),
        spoiled(squares=[np.inf]),
        spoiled(squares=[0.6]),
        spoiled(total=[None]),
        spoiled(rows=[0, 1], count=[3, 3], total=[0.0, 0.0], squares=[0.0, 0.0]),  # complete: it should have turned
        {**spoiled(), "plays": -1},
        {**spoiled(), "plays": "many"},
        {**spoiled(), "updates": -1},
        {**spoiled(), "learned": [["x"]]},
        {**spoiled(), "observed": []},
        {name: value for name, value in spoiled().items() if name != "observed"},
        {name: value for name, value in spoiled().items() if name != "learned"},
        [],
        None,
        7,
    ],
)
def test_loading_is_all_or_nothing(state: Any) -> None:
    policy = scripted([(A, 3), (B, 3)])
    policy.load(spoiled())
    policy.ask()
    before, out = policy.state(), policy._open_plan.in_flight.tolist()
    with pytest.raises(BadRecord, match="this state does not fit Scripted"):
        policy.load(state)
    assert policy.state() == before
    assert policy._open_plan.in_flight.tolist() == out


def test_a_policy_says_how_it_was_made() -> None:
    policy = scripted([(A, 1)], reward_range=(0, 40), direction="minimize")
    assert repr(policy) == (
        "Scripted(n_arms=4, k=2, script=[[((0, 1), 1)]], best=(2, 3), reward_range=[0.0, 40.0], direction='minimize')"
    )
    assert not policy.committed
