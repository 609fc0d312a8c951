"""Real graphs: K nodes, and the fraction of all nodes that they inform or cover.

Influence follows the independent cascade model on an undirected graph: a node informs each neighbour with probability
p. Equivalently, every edge is live with probability p, and the nodes in the components of the K seeds are informed
(Kempe, Kleinberg and Tardos, 2003). A play draws one of a fixed number of live-edge samples, so that values are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kofn.core import FloatArray, IntArray, Subset
from kofn.lab.problems.applications.graph import Graph
from kofn.lab.problems.expectation import top_subset
from kofn.lab.problems.real.coverage import Coverage
from kofn.lab.problems.real.files import data_file, module
from kofn.lab.problems.real.table import TableProblem

SAMPLES = 500
"""Live-edge samples. More of them make the table closer to the model, and slower."""
_SEED = 2003


@dataclass(frozen=True)
class Edges:
    """An undirected graph without loops: the names of its nodes, and each edge once."""

    names: tuple[str, ...]
    source: IntArray
    target: IntArray

    @property
    def degree(self) -> IntArray:
        """The number of neighbours of each node."""
        return np.bincount(np.concatenate([self.source, self.target]), minlength=len(self.names))

    @classmethod
    def of(cls, names: Iterable[str], pairs: IntArray) -> Edges:
        """Return the graph of these pairs in either direction; repeated pairs count once."""
        pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
        return cls(tuple(names), pairs[:, 0], pairs[:, 1])


def karate() -> Edges:
    """Return Zachary's karate club, which kofn has itself."""
    graph = Graph.karate()
    return Edges.of(map(str, graph.nodes), np.stack([graph.source, graph.target], axis=1))


def miserables() -> Edges:
    """Return who meets whom in Les Misérables, from networkx."""
    graph = module("networkx", "networkx").les_miserables_graph()
    place = {name: at for at, name in enumerate(graph.nodes)}
    return Edges.of(place, np.array([(place[a], place[b]) for a, b in graph.edges]))


@lru_cache(maxsize=2)
def _from_ioh(name: str) -> Edges:
    """Return a graph that ioh ships: a line with the kind of the graph, then a line per edge."""
    pairs = np.loadtxt(data_file("ioh", "static", "example_graphs", name), dtype=np.int64, skiprows=1)
    nodes, numbers = np.unique(pairs, return_inverse=True)
    return Edges.of(map(str, nodes.tolist()), numbers.reshape(pairs.shape))


def email() -> Edges:
    """Return who wrote whom in a research institution, in either direction (email-Eu-core)."""
    return _from_ioh("email-Eu-core")


def facebook() -> Edges:
    """Return the friendships of ten people's friends (ego-Facebook)."""
    return _from_ioh("facebook_combined")


class LiveEdges(TableProblem):
    """K seeds in a graph; a play draws a live-edge sample and pays the fraction of nodes that the seeds reach.

    `label[i, s]` is the component of arm i in sample s, and `size[i, s]` the fraction of nodes in it.
    """

    def __init__(
        self, arms: Iterable[str], label: IntArray, size: FloatArray, k: int, domain: Mapping[str, Subset] | None = None
    ) -> None:
        super().__init__(arms, k, label.shape[1], binary=False, domain=domain)
        self._label = np.vstack([label, np.full_like(label[:1], -1)])
        self._size = np.vstack([size, np.zeros_like(size[:1])])  # the last row: an empty place

    def outcomes(self, subsets: IntArray) -> FloatArray:
        """Return the size of the union of the seeds' components: a component counts for its first seed only."""
        label, size = self._label[subsets], self._size[subsets]
        reached = size[:, 0].copy()
        for place in range(1, subsets.shape[1]):
            new = (label[:, :place] != label[:, place : place + 1]).all(axis=1)
            reached += new * size[:, place]
        return np.asarray(reached)


def candidates(graph: Edges, n_arms: int) -> IntArray:
    """Return the nodes with the most neighbours."""
    return np.sort(np.argsort(-graph.degree, kind="stable")[:n_arms])


def influence(graph: Edges, n_arms: int, k: int, probability: float) -> LiveEdges:
    """Return the problem of K seeds among the `n_arms` nodes with the most neighbours."""
    from scipy import sparse  # imported here, so that naming a problem is fast
    from scipy.sparse.csgraph import connected_components

    rng, nodes = np.random.default_rng(_SEED), len(graph.names)
    chosen = candidates(graph, n_arms)
    label, size = np.empty((n_arms, SAMPLES), np.int32), np.empty((n_arms, SAMPLES))
    for sample in range(SAMPLES):
        live = rng.random(len(graph.source)) < probability
        ones = np.ones(int(live.sum()), bool)
        matrix = sparse.coo_array((ones, (graph.source[live], graph.target[live])), shape=(nodes, nodes))
        component = connected_components(matrix, directed=False)[1]
        label[:, sample] = component[chosen]
        size[:, sample] = np.bincount(component)[label[:, sample]] / nodes
    domain = {"highest degree": top_subset(graph.degree[chosen], k)}
    return LiveEdges([graph.names[node] for node in chosen], label, size, k, domain)


def coverage(graph: Edges, n_arms: int, k: int) -> Coverage:
    """Return the problem of K nodes among those with the most neighbours: is a random node one, or a neighbour?"""
    chosen = candidates(graph, n_arms)
    near = np.eye(len(graph.names), dtype=bool)
    near[graph.source, graph.target] = near[graph.target, graph.source] = True
    domain = {"highest degree": top_subset(graph.degree[chosen], k)}
    return Coverage([graph.names[node] for node in chosen], near[chosen], k, domain)
