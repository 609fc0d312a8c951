"""Graphs as arrays: from networkx, from a list of edges, or generated."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import cached_property
from importlib.resources import files
from typing import Any, Literal

import numpy as np

from kofn.core import BadInput, FloatArray, IntArray, Seed, generator, whole


class Graph:
    """Directed edges, sorted by target, each with a weight if weights are given.

    >>> graph = Graph([("ann", "bob"), ("bob", "cem")])
    >>> graph.nodes, graph.n_edges
    (('ann', 'bob', 'cem'), 4)
    >>> Graph([("ann", "bob", 0.5)], directed=True).weight
    array([0.5])

    An undirected edge becomes two directed ones. An object with `nodes`, `edges` and `is_directed()` is read as a
    networkx graph; `weight` then names the edge attribute that holds the weights.
    """

    def __init__(self, edges: Any, *, directed: bool | None = None, weight: str | None = None) -> None:
        nodes: Iterable[Hashable] = ()
        if hasattr(edges, "is_directed"):
            nodes = edges.nodes
            directed = edges.is_directed() if directed is None else directed
            edges = edges.edges(data=weight) if weight else edges.edges()
        elif weight:
            raise BadInput("weight= names an edge attribute of a networkx graph; in a list, use (from, to, weight)")
        listed = [_edge(each) for each in edges]
        number: dict[Hashable, int] = {node: at for at, node in enumerate(nodes)}
        for u, v, _ in listed:
            number.setdefault(u, len(number))
            number.setdefault(v, len(number))
        self.nodes = tuple(number)
        source = np.array([number[u] for u, _, _ in listed], np.int64)
        target = np.array([number[v] for _, v, _ in listed], np.int64)
        self._set_edges(len(number), source, target, _weights([w for _, _, w in listed]), bool(directed))

    @classmethod
    def from_arrays(
        cls, n_nodes: int, source: IntArray, target: IntArray, weight: FloatArray | None = None, *, directed: bool
    ) -> Graph:
        """Return the graph with nodes 0..n_nodes-1 and these edges; fast for millions of edges."""
        graph = cls.__new__(cls)
        graph.nodes = tuple(range(n_nodes))
        graph._set_edges(n_nodes, np.asarray(source, np.int64), np.asarray(target, np.int64), weight, directed)
        return graph

    @classmethod
    def karate(cls) -> Graph:
        """Return the karate club of Zachary (1977): 34 people, 78 friendships.

        >>> Graph.karate().n_nodes, Graph.karate().n_edges
        (34, 156)
        """
        text = files("kofn.lab.problems.applications").joinpath("karate.csv").read_text()
        pairs = np.array([line.split(",") for line in text.split()[1:]], np.int64)
        return cls.from_arrays(34, pairs[:, 0], pairs[:, 1], directed=False)

    @classmethod
    def generated(cls, n_nodes: int, links: int = 3, seed: Seed = None) -> Graph:
        """Return a random graph by preferential attachment (Barabási and Albert, 1999).

        Each new node is linked to `links` others, chosen with probability proportional to their number of links.

        >>> Graph.generated(10_000, seed=1).n_edges
        59982
        """
        n_nodes, links = whole("n_nodes", n_nodes, least=2), whole("links", links)
        if links >= n_nodes:
            raise BadInput(f"links must be less than n_nodes; got links={links} and n_nodes={n_nodes}")
        rng = generator(seed)
        ends = np.empty(2 * links * (n_nodes - links), np.int64)  # every node appears once for each of its links
        for node, at in zip(range(links, n_nodes), range(0, len(ends), 2 * links), strict=True):
            chosen = range(links) if at == 0 else _different(ends[:at], links, rng)
            ends[at : at + links] = list(chosen)
            ends[at + links : at + 2 * links] = node
        pairs = ends.reshape(-1, 2, links)
        return cls.from_arrays(n_nodes, pairs[:, 0].ravel(), pairs[:, 1].ravel(), directed=False)

    def _set_edges(
        self, n_nodes: int, source: IntArray, target: IntArray, weight: FloatArray | None, directed: bool
    ) -> None:
        if not len(source):
            raise BadInput("a graph must have at least one edge; got none")
        if not directed:
            source, target = np.concatenate([source, target]), np.concatenate([target, source])
            weight = None if weight is None else np.tile(weight, 2)
        real = source != target  # drop loops
        order = np.flatnonzero(real)[np.lexsort((source[real], target[real]))]
        self.n_nodes = n_nodes
        self.source, self.target = source[order], target[order]
        self.weight = None if weight is None else weight[order]

    @property
    def n_edges(self) -> int:
        """The number of directed edges."""
        return len(self.source)

    @cached_property
    def in_degree(self) -> IntArray:
        """The number of edges into each node."""
        return np.bincount(self.target, minlength=self.n_nodes)

    def node_numbers(self, nodes: Iterable[Hashable]) -> IntArray:
        """Return the numbers of the given nodes."""
        number = {node: at for at, node in enumerate(self.nodes)}
        try:
            return np.array([number[node] for node in nodes], np.int64)
        except KeyError as missing:
            raise BadInput(f"the graph has no node {missing.args[0]!r}") from None

    def edge_probabilities(self, probability: float | Literal["in-degree"] | None) -> FloatArray:
        """Return the probability of each edge: its own weight, one number for all, or 1 / in-degree of its target."""
        if probability is None and self.weight is None:
            raise BadInput("the edges of this graph have no weights: give probability=0.1 or probability='in-degree'")
        if probability is None:
            probabilities = np.asarray(self.weight)
        elif probability == "in-degree":
            probabilities = 1.0 / self.in_degree[self.target]
        elif isinstance(probability, int | float) and not isinstance(probability, bool):
            probabilities = np.full(self.n_edges, float(probability))
        else:
            raise BadInput(f"probability must be a number from 0 to 1, 'in-degree' or None, not {probability!r}")
        if not (fine := (probabilities >= 0) & (probabilities <= 1)).all():
            raise BadInput(f"the probability of an edge must be from 0 to 1; got {probabilities[~fine][0]:g}")
        return probabilities

    def __repr__(self) -> str:
        return f"<graph of {self.n_nodes:,} nodes and {self.n_edges:,} directed edges>"


def as_graph(graph: Any) -> Graph:
    """Return `graph` itself, or the Graph of a list of edges or of a networkx graph."""
    return graph if isinstance(graph, Graph) else Graph(graph)


def _edge(edge: Any) -> tuple[Hashable, Hashable, float | None]:
    if isinstance(edge, str) or not isinstance(edge, Iterable) or len(parts := tuple(edge)) not in (2, 3):
        raise BadInput(f"an edge must be (from, to) or (from, to, weight), not {edge!r}")
    return parts[0], parts[1], parts[2] if len(parts) == 3 else None


def _weights(weights: list[float | None]) -> FloatArray | None:
    missing = [each is None for each in weights]
    if all(missing):
        return None
    if any(missing):
        raise BadInput(f"either all edges or none must have a weight; {sum(missing)} of {len(weights)} have none")
    try:
        return np.array(weights, np.float64)
    except (TypeError, ValueError):
        raise BadInput("the weight of an edge must be a number") from None


def _different(ends: IntArray, links: int, rng: np.random.Generator) -> set[int]:
    """Choose `links` different nodes, with probability proportional to their number of links."""
    chosen: set[int] = set()
    while len(chosen) < links:
        chosen.add(int(ends[rng.integers(len(ends))]))
    return chosen
