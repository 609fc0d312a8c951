"""Cascades, both walkers and both models: against enumeration, networkx, literal thresholds, and known answers.

Bounds are set beforehand: z below 5.3 and p-values above 1e-7 have a false-alarm probability of about 1e-7 each.
"""

from __future__ import annotations

import itertools
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy import stats

from kofn.lab.problems import Graph
from kofn.lab.problems.applications.cascade import (
    BitCascades,
    CascadeSimulator,
    FrontierCascades,
    Model,
    bernoulli_words,
    choose_simulator,
)
from tests.cases import for_each

EDGES = [(0, 1, 0.5), (1, 2, 0.3), (0, 2, 0.4), (2, 3, 0.6), (3, 0, 0.2), (4, 3, 0.35), (1, 4, 0.9)]
TINY = Graph(EDGES, directed=True)  # at most 0.95 of weight ends at any node, so it is a threshold graph, too
WALKERS = [BitCascades, FrontierCascades]
MODELS: list[Model] = ["cascade", "threshold"]

each_walker = pytest.mark.parametrize("walker", WALKERS)
each_model = pytest.mark.parametrize("model", MODELS)


def live_graphs(model: Model) -> list[tuple[float, list[tuple[int, int]]]]:
    """Every outcome of the live edges with its probability, by brute force."""
    if model == "cascade":
        cases = itertools.product((False, True), repeat=len(EDGES))
        return [
            (
                float(np.prod([p if on else 1 - p for on, (_, _, p) in zip(case, EDGES, strict=True)])),
                [(u, v) for on, (u, v, _) in zip(case, EDGES, strict=True) if on],
            )
            for case in cases
        ]
    choices = [[(u, v, p) for u, v, p in EDGES if v == node] for node in range(5)]
    options = [[*each, (-1, -1, 1 - sum(p for *_, p in each))] for each in choices]
    return [
        (float(np.prod([p for *_, p in case])), [(u, v) for u, v, _ in case if u >= 0])
        for case in itertools.product(*options)
    ]


def reach(edges: list[tuple[int, int]], seeds: Any) -> set[int]:
    graph = nx.DiGraph(edges)
    graph.add_nodes_from(range(5))
    return set(seeds).union(*(nx.descendants(graph, seed) for seed in seeds))


def exact(model: Model, seeds: Any) -> Any:
    """The probability that 0..5 nodes are reached."""
    pmf = np.zeros(6)
    for share, edges in live_graphs(model):
        pmf[len(reach(edges, seeds))] += share
    return pmf


@each_walker
@each_model
@pytest.mark.parametrize("seeds", [(0,), (3,), (1, 3), (2, 4)])
def test_cascades_have_the_distribution_of_all_live_graphs(
    walker: type[CascadeSimulator], model: Model, seeds: tuple[int, ...]
) -> None:
    pmf, plays = exact(model, seeds), 100_000
    assert pmf.sum() == pytest.approx(1)
    found = walker(TINY, TINY.edge_probabilities(None), model).reached(
        np.tile(seeds, (plays, 1)), np.random.default_rng(5)
    )
    seen, possible = np.bincount(found, minlength=6), pmf > 1e-12
    assert seen[~possible].sum() == 0
    if possible.sum() > 1:
        assert stats.chisquare(seen[possible], plays * pmf[possible]).pvalue > 1e-7


@each_walker
@each_model
def test_sources_have_the_distribution_of_all_live_graphs(walker: type[CascadeSimulator], model: Model) -> None:
    """Which of the five nodes would have reached node 3: all 32 sets of them."""
    pmf, plays = np.zeros(32), 64 * 1500
    for share, edges in live_graphs(model):
        pmf[sum(1 << node for node in range(5) if 3 in reach(edges, [node]))] += share
    words = walker(TINY, TINY.edge_probabilities(None), model).source_sets(np.full(plays, 3), np.random.default_rng(6))
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
    seen, possible = np.bincount((bits * (1 << np.arange(5))[:, None]).sum(axis=0), minlength=32), pmf > 1e-12
    assert seen[~possible].sum() == 0
    assert stats.chisquare(seen[possible], plays * pmf[possible]).pvalue > 1e-7


def literal_threshold(graph: Graph, chances: Any, seeds: Any, rng: np.random.Generator) -> int:
    """The linear threshold model as it is told: a node joins when the weights of its friends pass its threshold."""
    threshold, active = rng.random(graph.n_nodes), set(seeds)
    while True:
        heard = np.zeros(graph.n_nodes)
        for u, v, w in zip(graph.source.tolist(), graph.target.tolist(), chances.tolist(), strict=True):
            heard[v] += w * (u in active)
        more = {node for node in range(graph.n_nodes) if heard[node] > threshold[node]} - active
        if not more:
            return len(active)
        active |= more


@each_walker
def test_the_threshold_model_is_the_one_with_thresholds(walker: type[CascadeSimulator]) -> None:
    graph = Graph.generated(12, 2, seed=4)
    chances = graph.edge_probabilities("in-degree") * 0.8
    rng = np.random.default_rng(8)
    literal = np.bincount([literal_threshold(graph, chances, (0, 7), rng) for _ in range(4_000)], minlength=13)
    ours = np.bincount(walker(graph, chances, "threshold").reached(np.tile((0, 7), (40_000, 1)), rng), minlength=13)
    common = literal + ours >= 20
    table = np.array([literal[common], ours[common]])
    assert common.sum() > 5
    assert stats.chi2_contingency(table).pvalue > 1e-7


@each_walker
@each_model
def test_sure_edges_reach_all_that_can_be_reached(walker: type[CascadeSimulator], model: Model) -> None:
    path = Graph([(node, node + 1) for node in range(99)], directed=True)
    rng = np.random.default_rng(1)
    starts = rng.integers(100, size=(200, 1))
    sure, never = (walker(path, path.edge_probabilities(p), model).reached(starts, rng) for p in (1.0, 0.0))
    assert (sure == 100 - starts[:, 0]).all()
    assert (never == 1).all()


@each_walker
@each_model
def test_empty_places_seed_nobody(walker: type[CascadeSimulator], model: Model) -> None:
    found = walker(TINY, TINY.edge_probabilities(None), model).reached(
        np.array([[-1, -1], [2, -1]]), np.random.default_rng(1)
    )
    assert found[0] == 0
    assert found[1] >= 1


@for_each("chance", [0.0, 1e-3, 0.1, 1 / 3, 0.5, 0.75, 0.999, 1.0])
def test_bits_are_one_with_their_chance(chance: float) -> None:
    words = bernoulli_words(np.full(50, chance), 400, np.random.default_rng(3))
    bits = np.unpackbits(words.view(np.uint8)).astype(float)
    n = bits.size
    spread = max((chance * (1 - chance) / n) ** 0.5, 1e-300)
    assert abs(bits.mean() - chance) <= 5.3 * spread
    if 0 < chance < 1:  # neighbours are independent
        for lag in (1, 8, 64):
            both = (bits[:-lag] * bits[lag:]).mean()
            assert abs(both - chance**2) <= 5.3 * (chance**2 / n) ** 0.5 * 2


def test_the_walker_is_the_one_for_the_graph() -> None:
    karate, large = Graph.karate(), Graph.generated(3_000, 3, seed=1)
    assert isinstance(choose_simulator(karate, karate.edge_probabilities(0.1), "cascade", 5), BitCascades)
    assert isinstance(choose_simulator(large, large.edge_probabilities(0.03), "cascade", 5), FrontierCascades)
    assert isinstance(choose_simulator(large, large.edge_probabilities(0.9), "cascade", 5), BitCascades)
