"""The paper's own examples, tables worked out by hand, properties of the bounds, and what is refused."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kofn.core import BadInput
from kofn.lab import theory
from kofn.lab.theory import Schedule
from kofn.lab.theory.simulated import TABLE
from tests.cases import for_each

ARMS = st.integers(2, 10_000)
HORIZONS = st.integers(1, 10**12)
RESOLUTIONS = st.floats(1e-4, 0.999)


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int]:
    n_arms = draw(st.integers(2, 300))
    return n_arms, draw(st.integers(1, n_arms - 1))


# The paper's examples.


def test_trying_all_subsets_of_30_choose_15_takes_about_5_years() -> None:
    assert theory.time_to_try_all(30, 15) == 155_117_520
    assert theory.time_to_try_all(30, 15) / theory.YEAR == pytest.approx(4.9, abs=0.05)
    assert theory.time_to_try_all(30, 15, plays_per_second=1000) == 155_117.52


def test_ucb_wins_only_from_4e26_on_as_the_paper_counts() -> None:
    assert theory.ucb_wins_from(30, 15) == pytest.approx(4.05e26, rel=0.01)
    assert theory.ucb_wins_from(30, 15) / 1e12 / theory.YEAR == pytest.approx(1e7, rel=0.3)  # "10 million years"


def test_with_the_true_number_of_subsets_and_the_constants_the_bounds_cross_much_earlier() -> None:
    assert theory.bounds_cross_at(30, 15) == pytest.approx(2.17e13, rel=0.01)


# Tables.


@for_each(
    "schedule, rounds, radius, plays",
    [
        (Schedule(n_arms=24, k=2, horizon=10**6), 1, [1, 1 / 2, 1 / 4], [36, 142, 566]),
        (Schedule(n_arms=45, k=8, horizon=10**6), 0, [1, 1 / 2], [40, 158]),
        (Schedule(12, 3, 1e6, 0.125), 2, [1, 1 / 2, 1 / 4, 1 / 8], [35, 140, 557, 2228]),  # type: ignore[arg-type]
        (Schedule(12, 3, 10**6, 0.5), 0, [1, 1 / 2], [35, 140]),
        (Schedule(12, 3, 10**6, 0.4999), 1, [1, 1 / 2, 1 / 4], [35, 140, 557]),
        (Schedule(2, 1, 1), 0, [1, 1 / 2], [2, 6]),
    ],
)
def test_schedule_tables(schedule: Schedule, rounds: int, radius: list[float], plays: list[int]) -> None:
    assert (schedule.rounds, schedule.radius, schedule.plays) == (rounds, radius, plays)


@for_each(
    "n_arms, k, groups, actions",
    [(24, 2, 8, 45), (12, 5, 2, 18), (13, 5, 3, 30), (5, 4, 1, 5), (5, 3, 2, 12), (2, 1, 1, 2), (7, 1, 4, 14)],
)
def test_groups_and_actions(n_arms: int, k: int, groups: int, actions: int) -> None:
    assert theory.groups(n_arms, k) == groups
    assert theory.actions(n_arms, k) == actions
    schedule = Schedule(n_arms, k, 10**6, 0.3)
    assert schedule.sort_plays == groups * (k + 1) * schedule.plays[1]
    assert schedule.merge_plays == (groups - 1) * (k + 1) * schedule.plays[1]
    assert schedule.exploration_plays == schedule.sort_plays + schedule.merge_plays


@pytest.mark.parametrize(
    ("n_arms", "useful", "any_bound"), [(2, 49_996, 5_079), (12, 394_794, 42_503), (30, 1_106_606, 121_350)]
)
def test_shortest_horizons(n_arms: int, useful: int, any_bound: int) -> None:
    assert theory.shortest_useful_horizon(n_arms) == useful
    assert theory.horizon_for(n_arms, 1) == any_bound  # the paper's T > 256 N log(2NT)


@for_each(
    "arguments, loss",
    [
        ({}, 3.1508),
        ({"first": 10**6}, 2.7024),
        ({"delta": 0, "first": 1}, 2 ** (2 / 3) / (2 ** (2 / 3) - 1)),
        ({"gamma": 0.5, "delta": 0, "base": 4}, 12**0.5),
    ],
)
def test_doubling_loss(arguments: dict[str, float], loss: float) -> None:
    assert theory.doubling_loss(**arguments) == pytest.approx(loss, rel=1e-4)


def test_group_bound_counts_gaps_below_the_resolution_as_the_resolution() -> None:
    one = 64 * math.log(2 * 12 * 10**6)
    assert theory.group_bound([0.5, 0.5, 0.01], 12, 10**6, resolution=0.1) == pytest.approx(one * (4 + 4 + 100))


def test_what_the_paper_promises_for_two_arms_its_algorithm_does_not_keep() -> None:
    """At N=2, K=1 and 0.5 <= lambda < 2/3 there is no round, so an arbitrary arm is played and may lose 1 each time."""
    assert Schedule(2, 1, 30_000).rounds == 0
    assert theory.regret_bound(2, 1, 30_000) < 30_000


# Properties.


@given(sizes(), HORIZONS, RESOLUTIONS)
def test_schedule_agrees_with_its_resolution(size: tuple[int, int], horizon: int, resolution: float) -> None:
    s = Schedule(*size, horizon, resolution)
    assert s.rounds == sum(2.0**-r > resolution for r in range(1, 40))
    assert s.radius[s.rounds] > s.resolution >= s.radius[s.rounds + 1]
    assert len(s.plays) == len(s.radius) == s.rounds + 2
    for n, delta in zip(s.plays, s.radius, strict=True):
        assert n - 1 < 2 * math.log(size[0] * size[1] * horizon) / delta**2 <= n
    assert max(s.exploration_plays, s.plays[-1]) < 2**63


@given(sizes(), HORIZONS)
def test_at_the_printed_resolution_learning_stays_far_below_the_paper_s_bound(
    size: tuple[int, int], horizon: int
) -> None:
    s = Schedule(*size, horizon)
    assert s.exploration_plays <= theory.exploration_bound(size[0], horizon) / 4
    assert s.exploration_plays <= horizon / 4


@given(sizes(), HORIZONS, RESOLUTIONS)
def test_the_printed_plays_keep_the_proven_error_probability(
    size: tuple[int, int], horizon: int, resolution: float
) -> None:
    s = Schedule(*size, max(horizon, 100), resolution)
    assert s.estimate_error <= theory.error_probability(s.n_arms, s.horizon)


@given(ARMS, st.floats(1e-6, 1))
def test_the_horizon_for_a_resolution_is_minimal(n_arms: int, resolution: float) -> None:
    horizon = theory.horizon_for(n_arms, resolution)
    assert theory.resolution(n_arms, horizon) < resolution <= theory.resolution(n_arms, horizon - 1)


@given(st.integers(2, 300))
def test_the_shortest_useful_horizon_has_a_round_and_the_one_before_has_none(n_arms: int) -> None:
    horizon = theory.shortest_useful_horizon(n_arms)
    assert Schedule(n_arms, 1, horizon).rounds == 1
    assert Schedule(n_arms, 1, horizon - 1).rounds == 0


@given(sizes(), st.integers(10**3, 10**14), st.floats(1, 20))
def test_the_regret_bound_is_the_theorem_s(size: tuple[int, int], horizon: int, u: float) -> None:
    n, k = size
    main = (u**3 + 2 * u) * math.sqrt(k) * math.cbrt(32 * n * math.log(2 * n * horizon)) * horizon ** (2 / 3)
    linear = horizon * u * math.sqrt(k)
    expected = linear if theory.resolution(n, horizon) >= 1 else min(linear, main + u * math.sqrt(k) / (n * horizon))
    assert theory.regret_bound(n, k, horizon, u) == pytest.approx(expected, rel=1e-9)


@given(sizes(), HORIZONS, st.floats(1, 5))
def test_bounds_grow_with_the_horizon_and_with_u(size: tuple[int, int], horizon: int, u: float) -> None:
    slack = 1 + 1e-12
    assert theory.resolution(size[0], 2 * horizon) < theory.resolution(size[0], horizon)
    assert theory.error_probability(size[0], 2 * horizon) < theory.error_probability(size[0], horizon)
    assert theory.regret_bound(*size, horizon, u) <= theory.regret_bound(*size, 2 * horizon, u) * slack
    assert theory.regret_bound(*size, horizon) <= theory.regret_bound(*size, horizon, u) * slack
    assert theory.exploration_bound(size[0], horizon) <= theory.exploration_bound(size[0], horizon, u) * slack
    assert theory.ucb_regret_bound(*size, horizon) < theory.ucb_regret_bound(*size, 2 * horizon)


@given(sizes(), st.floats(1, 3))
def test_the_theorem_says_something_from_proven_from_on(size: tuple[int, int], u: float) -> None:
    horizon = theory.proven_from(*size, u)
    assert theory.regret_bound(*size, horizon, u) / horizon == pytest.approx(1, rel=1e-3)
    assert theory.regret_bound(*size, horizon + 2, u) < horizon + 2
    assert theory.regret_bound(*size, horizon - 2, u) >= horizon - 2


@given(st.integers(2, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1))))
def test_bounds_cross_where_they_are_equal(size: tuple[int, int]) -> None:
    horizon = theory.bounds_cross_at(*size)
    if horizon == 1:
        assert theory.ucb_regret_bound(*size, 10**9) < theory.regret_bound(*size, 10**9)
    elif 1e7 < horizon < 1e99:  # below, the linear bound is the smaller one
        ours, ucb = (
            f(*size, math.ceil(horizon) if horizon < 2**53 else int(horizon))
            for f in (theory.regret_bound, theory.ucb_regret_bound)
        )
        if ours < horizon:
            assert ucb == pytest.approx(ours, rel=1e-6)


@given(sizes(), HORIZONS, st.floats(0.001, 1))
def test_the_affordable_resolution_is_affordable_and_the_next_is_not(
    size: tuple[int, int], horizon: int, share: float
) -> None:
    finest = theory.affordable_resolution(*size, horizon, share)
    assert Schedule(*size, horizon, finest).exploration_plays <= share * horizon
    assert Schedule(*size, horizon, finest / 2).exploration_plays > share * horizon


@given(sizes())
@example((4000, 1500))
def test_log_subsets(size: tuple[int, int]) -> None:
    assert theory.log_subsets(*size) == pytest.approx(math.log(math.comb(*size)), rel=1e-9)


# The budget.


@given(sizes(), HORIZONS, st.none() | RESOLUTIONS, st.floats(1, 50))
def test_a_budget_is_json(size: tuple[int, int], horizon: int, resolution: float | None, u: float) -> None:
    budget = theory.learning_budget(*size, horizon, lipschitz=u, resolution=resolution)
    record = json.loads(json.dumps(budget.to_dict(), allow_nan=False))
    assert record["horizon"] == horizon
    assert record["verdict"] == budget.verdict
    assert record["exploration_plays"] == budget.sort_plays + budget.merge_plays


def test_what_overflows_is_none_in_json() -> None:
    record = theory.learning_budget(100_000, 50_000, 10**9).to_dict()
    assert record["ucb_regret_bound"] is record["seconds_to_try_all"] is record["ucb_wins_from"] is None
    assert record["log10_subsets"] == pytest.approx(30100, abs=5)
    assert "more than 1e300 years" in record["verdict"]


@for_each(
    "arguments, words",
    [
        (
            {"n_arms": 30, "k": 15, "horizon": 1e6},
            ["too short", "0.516", "arbitrary subset", "1,106,606 plays", "resolution=0.125", "4.92 years"],
        ),
        (
            {"n_arms": 24, "k": 2, "horizon": 10**6},
            ["barely long enough", "6,390 plays in 1 round, 0.64%", "142", "without a guaranteed difference"],
        ),
        (
            {"n_arms": 24, "k": 5, "horizon": 10**9},
            ["548,604 plays in 4 rounds", "0.125", "regret bound is 178,651,144"],
        ),
        (
            {"n_arms": 45, "k": 8, "horizon": 10**4, "resolution": 0.06},
            ["too short for a resolution of 0.06", "626,130"],
        ),
        ({"n_arms": 45, "k": 8, "horizon": 10**8, "resolution": 0.6}, ["too coarse"]),
        ({"n_arms": 2, "k": 1, "horizon": 1}, ["too short", "49,996", "2 seconds"]),
    ],
)
def test_verdicts(arguments: dict[str, Any], words: list[str]) -> None:
    verdict = theory.learning_budget(**arguments).verdict
    assert [word for word in words if word not in verdict] == []


# What is refused.

REFUSED: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = [
    (theory.resolution, (1, 100), {}, "n_arms must be a whole number of at least 2, not 1"),
    (theory.resolution, (10, math.inf), {}, "horizon must be a whole number, not inf"),
    (theory.resolution, (10, 10**400), {}, "at most 1e100"),
    (theory.resolution, (10**400, 10), {}, "at most 1e12"),
    (theory.horizon_for, (10, 1.5), {}, "from 1e-30 to 1; got 1.5"),
    (theory.horizon_for, (10**12, 1e-30), {}, "more than 1e100 plays"),
    (theory.groups, (5, 5), {}, "k must be less than n_arms"),
    (Schedule, (5, 0, 100), {}, "k must be a whole number of at least 1"),
    (Schedule, (24, 2, 10**6, 0), {}, "resolution must be at least"),
    (Schedule, (24, 2, 10**6, 1.0), {}, "Omit it to use the paper's"),
    (Schedule, (24, 2, 10**6, math.nan), {}, "resolution must be a finite number; got nan"),
    (Schedule, (24, 2, 10**6, 1e-12), {}, "takes 39 rounds, whose plays do not fit in 64 bits: use at least"),
    (theory.regret_bound, (24, 2, 10**6, 0.5), {}, "lipschitz must be from 1"),
    (theory.time_to_try_all, (30, 15, 0), {}, "plays_per_second must be above 0"),
    (theory.affordable_resolution, (30, 15, 100, 2), {}, "share must be above 0"),
    (theory.group_bound, ([0.1, None], 12, 100), {}, "a gap must be a finite number; got None"),
    (theory.doubling_loss, (), {"gamma": 1}, "0 < gamma < 1"),
    (theory.doubling_loss, (), {"first": 1}, "use a longer first stage"),
]


@for_each("function, args, kwargs, message", REFUSED)
def test_bad_input_says_what_would_work(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput) as refusal:
        function(*args, **kwargs)
    assert message in str(refusal.value)


def test_the_resolution_named_in_the_refusal_works() -> None:
    with pytest.raises(BadInput) as refusal:
        Schedule(24, 2, 10**6, 1e-12)
    least = float(str(refusal.value).rsplit(maxsplit=1)[-1])
    assert Schedule(24, 2, 10**6, least * (1 + 1e-5)).plays[-1] < 2**63


def test_the_follow_up_form_has_no_256_and_the_proofs_n_r() -> None:
    s = Schedule(10, 2, 10**5, form="follow-up")
    assert s.resolution == pytest.approx((10 * math.log(20 * 10**5) / 10**5) ** (1 / 3))
    assert s.plays == [math.ceil(math.log(20 * 10**5) * 4**r) for r in range(s.rounds + 2)]
    assert s.merge_rounds == s.rounds == 3


def test_the_figures_form_merges_one_round_deeper() -> None:
    for n_arms, k, rounds in [(12, 2, 6), (12, 3, 5), (12, 5, 5), (45, 2, 5), (45, 8, 5), (24, 2, 5), (24, 11, 5)]:
        s = Schedule(n_arms, k, 10**6, form="figures")
        assert (s.rounds, s.merge_rounds) == (rounds, rounds + 1)
        assert s.plays[rounds] == math.ceil(math.log(2 * n_arms * 10**6) * 4**rounds / 3)


# The forecast for thompson.


def test_a_simulated_size_is_that_of_the_table() -> None:
    rows = list(csv.DictReader(TABLE.read_text().splitlines()))
    assert min(int(row["runs"]) for row in rows) >= 20
    for row in rows:
        n_arms, k, horizon = int(row["n_arms"]), int(row["k"]), int(row["horizon"])
        forecast = theory.thompson_budget(n_arms, k, horizon)
        (found,) = (each for each in forecast.families if each.family == row["family"])
        assert not forecast.interpolated
        assert found.regret == pytest.approx(max(0.1, float(row["regret"])))
        assert found.regret_error == pytest.approx(float(row["regret_error"]))
        assert (found.found_best, found.final_gap) == (float(row["found_best"]), float(row["final_gap"]))
        assert found.settled_90 == (max(1, int(row["settled_90"])) if row["settled_90"] else None)


@for_each("n_arms, k, horizon", [(12, 3, 50_000), (5, 2, 150), (299, 149, 999_999), (30, 4, 2_000)])
def test_between_sizes_the_forecast_is_between_those_around_it(n_arms: int, k: int, horizon: int) -> None:
    rows = list(csv.DictReader(TABLE.read_text().splitlines()))
    sizes = sorted({int(row["n_arms"]) for row in rows})
    low, high = max(n for n in sizes if n <= n_arms), min(n for n in sizes if n >= n_arms)
    forecast = theory.thompson_budget(n_arms, k, horizon)
    assert forecast.interpolated
    for each in forecast.families:
        around = [
            float(row["regret"]) for row in rows if row["family"] == each.family and int(row["n_arms"]) in (low, high)
        ]
        assert max(0.1, min(around)) <= each.regret <= max(around)
        assert 0 < each.regret_error < each.regret


def test_between_two_horizons_the_error_is_in_proportion_to_the_regret() -> None:
    ends = [theory.thompson_budget(30, 4, horizon).families for horizon in (10**4, 10**5)]
    between = theory.thompson_budget(30, 4, round(10**4.5)).families
    for low, each, high in zip(ends[0], between, ends[1], strict=True):
        shares = [end.regret_error / end.regret for end in (low, high)]
        assert each.regret_error / each.regret == pytest.approx(sum(shares) / 2, rel=1e-4)


@for_each(
    "size, reason",
    [
        ((301, 3, 1_000), "the table has 4 to 300 arms, not 301"),
        ((3, 1, 1_000), "the table has 4 to 300 arms, not 3"),
        ((30, 16, 1_000), "the table has K up to N / 2, not K = 16 of N = 30"),
        ((30, 5, 99), "the table begins at 100 plays, and 99 are fewer"),
    ],
)
def test_outside_the_table_there_is_no_forecast(size: tuple[int, int, int], reason: str) -> None:
    forecast = theory.thompson_budget(*size)
    assert (forecast.families, forecast.outside) == ((), reason)
    assert forecast.verdict == f"Thompson, the default policy: no forecast, because {reason}."


def test_beyond_a_million_plays_the_forecast_is_that_of_the_first_million() -> None:
    longer, million = theory.thompson_budget(30, 4, 10**9), theory.thompson_budget(30, 4, 10**6)
    assert longer.families == million.families
    assert "in 1,000,000 plays (the table ends there; you have 1,000,000,000)" in longer.verdict
