"""Graphs: who may influence whom, as arrays. From networkx, from a list of edges, or generated."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import cached_property
from importlib.resources import files
from typing import Any, Literal

import numpy as np

from kofn.core import BadInput, FloatArray, IntArray, Seed, generator, whole


class Graph:
    """Directed edges, sorted by their target, with a weight each if the edges came with one.

    >>> graph = Graph([("ann", "bob"), ("bob", "cem")])
    >>> graph.nodes, graph.n_edges
    (('ann', 'bob', 'cem'), 4)
    >>> Graph([("ann", "bob", 0.5)], directed=True).weight
    array([0.5])

    An edge that is not directed stands for two. Anything with `nodes`, `edges` and `is_directed()` is read as a
    networkx graph; `weight` then names the attribute of its edges that holds their weights.
    """

    def __init__(self, edges: Any, *, directed: bool | None = None, weight: str | None = None) -> None:
        nodes: Iterable[Hashable] = ()
        if hasattr(edges, "is_directed"):
            nodes = edges.nodes
            directed = edges.is_directed() if directed is None else directed
            edges = edges.edges(data=weight) if weight else edges.edges()
        elif weight:
            raise BadInput("weight= names an attribute of a networkx graph: in a list, an edge is (from, to, weight)")
        listed = [_edge(each) for each in edges]
        number: dict[Hashable, int] = {node: at for at, node in enumerate(nodes)}
        for u, v, _ in listed:
            number.setdefault(u, len(number))
            number.setdefault(v, len(number))
        self.nodes = tuple(number)
        source = np.array([number[u] for u, _, _ in listed], np.int64)
        target = np.array([number[v] for _, v, _ in listed], np.int64)
        self._take(len(number), source, target, _weights([w for _, _, w in listed]), bool(directed))

    @classmethod
    def of_arrays(
        cls, n_nodes: int, source: IntArray, target: IntArray, weight: FloatArray | None = None, *, directed: bool
    ) -> Graph:
        """The graph of numbered nodes with these edges; fast for millions."""
        graph = cls.__new__(cls)
        graph.nodes = tuple(range(n_nodes))
        graph._take(n_nodes, np.asarray(source, np.int64), np.asarray(target, np.int64), weight, directed)
        return graph

    @classmethod
    def karate(cls) -> Graph:
        """The karate club of Zachary (1977): 34 people, 78 friendships.

        >>> Graph.karate().n_nodes, Graph.karate().n_edges
        (34, 156)
        """
        text = files("kofn.problems.applications").joinpath("karate.csv").read_text()
        pairs = np.array([line.split(",") for line in text.split()[1:]], np.int64)
        return cls.of_arrays(34, pairs[:, 0], pairs[:, 1], directed=False)

    @classmethod
    def generated(cls, n_nodes: int, links: int = 3, seed: Seed = None) -> Graph:
        """A graph by preferential attachment: each new node is linked to `links` others, the likelier the more links
        these have (Barabási and Albert, 1999).

        >>> Graph.generated(10_000, seed=1).n_edges
        59982
        """
        n_nodes, links = whole("n_nodes", n_nodes, least=2), whole("links", links)
        if links >= n_nodes:
            raise BadInput(f"a graph of {n_nodes} nodes has no room for {links} links of each: give fewer links")
        rng = generator(seed)
        ends = np.empty(2 * links * (n_nodes - links), np.int64)  # every node, once for each of its links
        for node, at in zip(range(links, n_nodes), range(0, len(ends), 2 * links), strict=True):
            chosen = range(links) if at == 0 else _different(ends[:at], links, rng)
            ends[at : at + links] = list(chosen)
            ends[at + links : at + 2 * links] = node
        pairs = ends.reshape(-1, 2, links)
        return cls.of_arrays(n_nodes, pairs[:, 0].ravel(), pairs[:, 1].ravel(), directed=False)

    def _take(
        self, n_nodes: int, source: IntArray, target: IntArray, weight: FloatArray | None, directed: bool
    ) -> None:
        if not len(source):
            raise BadInput("a graph needs at least one edge: without any, nobody influences anybody")
        if not directed:
            source, target = np.concatenate([source, target]), np.concatenate([target, source])
            weight = None if weight is None else np.tile(weight, 2)
        real = source != target  # nobody influences himself
        order = np.flatnonzero(real)[np.lexsort((source[real], target[real]))]
        self.n_nodes = n_nodes
        self.source, self.target = source[order], target[order]
        self.weight = None if weight is None else weight[order]

    @property
    def n_edges(self) -> int:
        """How many directed edges there are."""
        return len(self.source)

    @cached_property
    def in_degree(self) -> IntArray:
        """How many edges end at each node."""
        return np.bincount(self.target, minlength=self.n_nodes)

    def numbers(self, nodes: Iterable[Hashable]) -> IntArray:
        """The numbers of the given nodes."""
        number = {node: at for at, node in enumerate(self.nodes)}
        try:
            return np.array([number[node] for node in nodes], np.int64)
        except KeyError as missing:
            raise BadInput(f"the graph has no node {missing.args[0]!r}") from None

    def chances(self, probability: float | Literal["in-degree"] | None) -> FloatArray:
        """The weight of each edge: the graph's own, one number for all, or 1 / in-degree of where it ends."""
        if probability is None and self.weight is None:
            raise BadInput("the edges of this graph have no weights: give probability=0.1, or 'in-degree'")
        if probability is None:
            chances = np.asarray(self.weight)
        elif probability == "in-degree":
            chances = 1.0 / self.in_degree[self.target]
        elif isinstance(probability, int | float) and not isinstance(probability, bool):
            chances = np.full(self.n_edges, float(probability))
        else:
            raise BadInput(f"probability is a number from 0 to 1, 'in-degree', or None, not {probability!r}")
        if not ((chances >= 0) & (chances <= 1)).all():
            raise BadInput(
                f"an edge has a probability from 0 to 1, but {chances[~((chances >= 0) & (chances <= 1))][0]:g} came"
            )
        return chances

    def __repr__(self) -> str:
        return f"<graph of {self.n_nodes:,} nodes and {self.n_edges:,} directed edges>"


def as_graph(graph: Any) -> Graph:
    """`graph` itself, or the graph of these edges or of this networkx graph."""
    return graph if isinstance(graph, Graph) else Graph(graph)


def _edge(edge: Any) -> tuple[Hashable, Hashable, float | None]:
    if isinstance(edge, str) or not isinstance(edge, Iterable) or len(parts := tuple(edge)) not in (2, 3):
        raise BadInput(f"an edge is (from, to) or (from, to, weight), not {edge!r}")
    return parts[0], parts[1], parts[2] if len(parts) == 3 else None


def _weights(weights: list[float | None]) -> FloatArray | None:
    missing = [each is None for each in weights]
    if all(missing):
        return None
    if any(missing):
        raise BadInput(f"all edges have a weight or none, but {sum(missing)} of {len(weights)} have none")
    try:
        return np.array(weights, np.float64)
    except (TypeError, ValueError):
        raise BadInput("the weight of an edge is a number") from None


def _different(ends: IntArray, links: int, rng: np.random.Generator) -> set[int]:
    """So many different nodes, each as likely as it has links."""
    chosen: set[int] = set()
    while len(chosen) < links:
        chosen.add(int(ends[rng.integers(len(ends))]))
    return chosen
