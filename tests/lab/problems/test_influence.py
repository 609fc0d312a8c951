"""Influence as a problem: plays, values, greedy, the best, and what of the paper's assumptions it breaks.

Bounds are set beforehand: a z below 5.3 has a false-alarm probability of about 1e-7.
"""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy import stats

from kofn import BadInput
from kofn.lab.problems import Graph, Influence
from kofn.lab.problems.applications.cascade import BitCascades, FrontierCascades
from kofn.lab.problems.expectation import best_subset
from tests.cases import for_each
from tests.lab.problems.test_cascade import TINY, each_model, exact

STARS = Graph(
    [(centre, 100 * centre + leaf) for centre, leaves in ((1, 9), (2, 7), (3, 5), (4, 3)) for leaf in range(leaves)]
)
"""Four stars that do not touch: the best seeds are their centres, the largest first."""


def share(model: Any, seeds: Any) -> float:
    return float(exact(model, seeds) @ np.arange(6)) / 5


@each_model
def test_values_are_those_of_all_live_graphs(model: Any) -> None:
    problem = Influence(TINY, 2, model=model)
    rows = np.array(list(itertools.combinations(range(5), 2)))
    expected = np.array([share(model, row) for row in rows.tolist()])
    errors = problem._expectation.errors(rows)  # type: ignore[attr-defined]
    assert (np.abs(problem.value(rows) - expected) <= 5.3 * errors).all()
    assert 0 < errors.max() <= 0.5 / problem.source_sets**0.5
    assert problem.value_error <= errors.max() * 1.001
    assert problem.best == max(map(tuple, rows.tolist()), key=lambda row: share(model, row))


@each_model
def test_plays_are_cascades(model: Any) -> None:
    """Counts of what single plays earn, and the sums of rows of many."""
    problem = Influence(TINY, 2, model=model)
    pmf = exact(model, (0, 3))
    single = problem.play(np.tile((0, 3), (50_000, 1)), np.ones(50_000, int), 3)
    nodes = single.total * 5
    np.testing.assert_allclose(nodes, nodes.round(), atol=1e-9)
    np.testing.assert_allclose(single.squares, single.total**2)
    seen, possible = np.bincount(nodes.round().astype(int), minlength=6), pmf > 1e-12
    assert stats.chisquare(seen[possible], 50_000 * pmf[possible]).pvalue > 1e-7
    mean, second = pmf @ np.arange(6) / 5, pmf @ np.arange(6) ** 2 / 25
    many = problem.play([(0, 3), (1, 2), (0, 3)], [30_000, 1, 50_001], 4)
    assert many.count.tolist() == [30_000, 1, 50_001]
    for row in (0, 2):
        n = many.count[row]
        assert abs(many.total[row] / n - mean) < 5.3 * ((second - mean**2) / n) ** 0.5
        assert abs(many.squares[row] / n - second) < 5.3 * (second / n) ** 0.5


def test_fewer_seeds_can_be_valued_and_played() -> None:
    problem = Influence(TINY, 2)
    assert problem.offers == {"best", "fewer"}
    assert problem.value([(0,)])[0] == pytest.approx(share("cascade", (0,)), abs=5.3 * problem.value_error)
    assert problem.value(np.array([[-1, -1]]))[0] == 0
    tally = problem.play(np.array([[0, -1], [-1, -1]]), [20_000, 5], 1)
    assert tally.total[0] / 20_000 == pytest.approx(share("cascade", (0,)), abs=0.02)
    assert tally.total[1] == 0


@pytest.mark.parametrize("k", [1, 2, 3])
def test_greedy_takes_the_centres_of_stars(k: int) -> None:
    problem = Influence(STARS, k, probability=0.5)
    centres = [STARS.nodes.index(centre) for centre in (1, 2, 3)][:k]
    assert problem.greedy() == tuple(sorted(centres))
    assert problem.best == problem.greedy()
    reached = sum(1 + leaves / 2 for leaves in (9, 7, 5)[:k]) / STARS.n_nodes
    assert problem.optimum == pytest.approx(reached, abs=5.3 * problem.value_error)


def test_greedy_is_greedy_by_brute_force() -> None:
    """Against values of all subsets by enumeration, where each step has a clear winner."""
    chosen: list[int] = []
    for _ in range(3):
        rest = [node for node in range(5) if node not in chosen]
        values = sorted((share("cascade", [*chosen, node]), node) for node in rest)
        assert values[-1][0] - values[-2][0] > 0.01  # of an error of 0.0007
        chosen.append(values[-1][1])
    assert Influence(TINY, 3).greedy() == tuple(sorted(chosen))


def test_exchanges_improve_on_greedy() -> None:
    """The classical trap: a node that covers parts of two groups is taken first, though two others cover all."""
    edges = [(0, 10 + i) for i in range(8)] + [(1, 10 + i) for i in (0, 1, 2, 3, 20, 21, 22)]
    edges += [(2, 10 + i) for i in (4, 5, 6, 7, 23, 24, 25)]
    graph = Graph(edges, directed=True)
    chooser = Influence(graph, 2, probability=1.0)._chooser()
    assert chooser.greedy(2) != (1, 2)
    greedy_first = graph.nodes.index(0)
    assert greedy_first in chooser.greedy(2)
    best = tuple(sorted((graph.nodes.index(1), graph.nodes.index(2))))
    assert best_subset(chooser.value, graph.n_nodes, 2) == best
    start = tuple(sorted((greedy_first, graph.nodes.index(20 + 10))))
    improved = chooser.improve(start)
    assert chooser.value(np.array([improved]))[0] >= chooser.value(np.array([chooser.greedy(2)]))[0]


def test_where_subsets_are_many_the_best_is_what_greedy_and_exchanges_find() -> None:
    problem = Influence(Graph.karate(), 5, probability=0.1)
    assert problem.value([problem.best])[0] >= problem.value([problem.greedy()])[0] - 5.3 * problem.value_error
    rows = np.array([np.random.default_rng(seed).choice(34, 5, replace=False) for seed in range(3_000)])
    assert problem.value(rows).max() < problem.optimum
    assert (problem.gap(rows) > 0).all()


def test_candidates_are_the_arms() -> None:
    problem = Influence(STARS, 2, probability=0.5, candidates=[3, 4, 1, 100])
    assert problem.n_arms == 4
    assert problem.nodes == (3, 4, 1, 100)
    assert problem.best == (0, 2)
    assert problem.optimum == pytest.approx((1 + 9 / 2 + 1 + 5 / 2) / STARS.n_nodes, abs=5.3 * problem.value_error)


def test_a_problem_travels_to_other_processes() -> None:
    problem = Influence(TINY, 2)
    again = pickle.loads(pickle.dumps(problem))
    assert again.value([(0, 1)]) == problem.value([(0, 1)])
    assert again.play([(0, 1)], [50], 1).total == problem.play([(0, 1)], [50], 1).total


def test_the_check_names_two_arms_whose_order_depends_on_the_company() -> None:
    check = Influence(STARS, 2, probability=0.9).check()
    assert not check
    assert check.holds == {
        "symmetric": False,
        "strictly increasing": False,
        "increasing on average": False,
        "dominance": False,
    }
    assert "but worse by" in str(check)
    assert Influence(TINY, 1).check().holds["increasing on average"]  # an arm is played alone


def test_large_graphs_are_walked_by_lists_and_small_ones_by_words() -> None:
    assert isinstance(Influence(Graph.karate(), 3, probability=0.1)._simulator, BitCascades)
    large = Influence(Graph.generated(10_000, seed=1), 10, probability=0.02, source_sets=4096)
    assert isinstance(large._simulator, FrontierCascades)
    tally = large.play([tuple(range(10)), tuple(range(5_000, 5_010))], [2_000, 2_000], 1)
    errors = np.sqrt((tally.squares / 2_000 - (tally.total / 2_000) ** 2) / 2_000)
    values = large.value([tuple(range(10)), tuple(range(5_000, 5_010))])
    assert (np.abs(tally.total / 2_000 - values) < 5.3 * np.hypot(errors, large.value_error * 2)).all()


@for_each(
    "make, message",
    [
        (lambda: Influence(TINY, 5), "k must be less than n_arms"),
        (lambda: Influence(TINY, 2, model="linear"), "model must be 'cascade' or 'threshold', not 'linear'"),  # type: ignore[arg-type]
        (lambda: Influence(Graph.karate(), 2), "have no weights"),
        (lambda: Influence(Graph.karate(), 2, model="threshold", probability=0.5), "add up to at most 1; those into"),
        (lambda: Influence(TINY, 1, candidates=[0, 0, 1]), "candidates must be different"),
        (lambda: Influence(TINY, 1, candidates=[0, 77]), "the graph has no node 77"),
        (lambda: Influence(TINY, 2, source_sets=10), "sets must be a whole number of at least 64"),
        (lambda: Influence(TINY, 2).play([(0, 1)], [1], 1, arms=True), "leave out arms=True"),
        (lambda: Influence(TINY, 2).value([(0, 5)]), "arms are numbered from 0 to 4"),
    ],
)
def test_what_cannot_work_is_refused(make: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make()


def test_networkx_and_lists_make_the_same_problem() -> None:
    karate = nx.karate_club_graph()
    one, other = (Influence(each, 3, probability=0.1) for each in (karate, list(karate.edges())))
    assert [one.nodes[arm] for arm in one.best] == sorted(map(int, map(str, (other.nodes[arm] for arm in other.best))))
