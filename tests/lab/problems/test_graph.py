"""Graphs: the same edges whatever they come from."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

from kofn import BadInput
from kofn.lab.problems import Graph
from tests.cases import for_each


def pairs(graph: Graph) -> set[tuple[Any, Any]]:
    return {(graph.nodes[u], graph.nodes[v]) for u, v in zip(graph.source.tolist(), graph.target.tolist(), strict=True)}


def test_the_karate_club_is_that_of_networkx() -> None:
    graph, theirs = Graph.karate(), nx.karate_club_graph()
    assert pairs(graph) == {pair for u, v in theirs.edges() for pair in ((u, v), (v, u))}
    assert graph.nodes == tuple(range(34))
    assert graph.in_degree.tolist() == [theirs.degree[node] for node in range(34)]


def test_a_networkx_graph_keeps_its_names_and_its_directions() -> None:
    theirs = nx.DiGraph([("a", "b"), ("c", "b")])
    theirs.add_node("alone")
    graph = Graph(theirs)
    assert graph.nodes == ("a", "b", "c", "alone")
    assert pairs(graph) == {("a", "b"), ("c", "b")}
    assert pairs(Graph(theirs, directed=False)) == {("a", "b"), ("b", "a"), ("c", "b"), ("b", "c")}


def test_weights_come_with_the_edges() -> None:
    theirs = nx.DiGraph()
    theirs.add_edge("a", "b", trust=0.3)
    theirs.add_edge("c", "a", trust=0.7)
    graph, listed = Graph(theirs, weight="trust"), Graph([("a", "b", 0.3), ("c", "a", 0.7)], directed=True)
    for each in (graph, listed):
        found = dict(zip(each.target.tolist(), each.edge_probabilities(None).tolist(), strict=True))
        assert found == {each.nodes.index("b"): 0.3, each.nodes.index("a"): 0.7}


def test_edges_are_sorted_by_target_and_lead_to_others() -> None:
    graph = Graph([(3, 1), (0, 1), (2, 2), (1, 0)], directed=True)
    assert (np.diff(graph.target) >= 0).all()
    assert pairs(graph) == {(3, 1), (0, 1), (1, 0)}
    assert graph.edge_probabilities("in-degree").tolist() == [1 / graph.in_degree[t] for t in graph.target.tolist()]


@for_each("nodes, links", [(2, 1), (50, 1), (500, 3), (2_000, 5)])
def test_a_generated_graph_has_its_links(nodes: int, links: int) -> None:
    graph = Graph.generated(nodes, links, seed=3)
    assert graph.n_edges == 2 * links * (nodes - links)
    assert len(pairs(graph)) == graph.n_edges  # no two nodes are linked twice
    assert nx.is_connected(nx.Graph(list(pairs(graph))))
    assert graph.in_degree[links:].min() >= links


def test_a_generated_graph_has_hubs() -> None:
    """The largest degree grows like sqrt(N): 300 among 10,000 nodes, where random links would give some 20."""
    graph = Graph.generated(10_000, 3, seed=1)
    assert 100 < graph.in_degree.max() < 1_000
    theirs = nx.barabasi_albert_graph(10_000, 3, seed=1)
    ours, them = np.sort(graph.in_degree), np.sort([degree for _, degree in theirs.degree])
    assert ours[5_000] == pytest.approx(them[5_000], abs=1)
    assert ours[9_900] == pytest.approx(them[9_900], rel=0.15)
    assert (Graph.generated(500, seed=1).source == Graph.generated(500, seed=1).source).all()
    assert (Graph.generated(500, seed=1).source != Graph.generated(500, seed=2).source).any()


@for_each(
    "edges, options, message",
    [
        ([], {}, "a graph must have at least one edge"),
        ([(1, 2, 3, 4)], {}, "an edge must be"),
        ([(0, 1, 0.5), (1, 2)], {}, "1 of 2 have none"),
        ([(0, 1, "x")], {}, "the weight of an edge must be a number"),
        ([(0, 1)], {"weight": "trust"}, "weight= names an edge attribute"),
    ],
)
def test_edges_that_are_none_are_refused(edges: Any, options: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Graph(edges, **options)


@for_each(
    "probability, message",
    [
        (None, "have no weights"),
        (1.5, "must be from 0 to 1; got 1.5"),
        ("degree", "not 'degree'"),
        (True, "not"),
    ],
)
def test_probabilities_that_are_none_are_refused(probability: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Graph.karate().edge_probabilities(probability)


def test_too_many_links_are_refused() -> None:
    with pytest.raises(BadInput, match="links must be less than n_nodes; got links=3"):
        Graph.generated(3, 3)
