"""Cascades: which nodes are reached from given seeds, for many cascades at once.

Both models have live edges (Kempe, Kleinberg and Tardos, 2003): a node is reached if a path of live edges leads to it
from a seed. In the independent cascade model every edge is live with its own probability. In the linear threshold model
at most one of the edges into a node is live, edge e with probability w_e.

Two implementations have the same distribution:

- `BitCascades` keeps 64 cascades in a word. It draws every edge for every cascade, but one instruction moves 64
  cascades along an edge. It is faster if cascades reach much of the graph.
- `FrontierCascades` keeps a list of the nodes that were reached last, and draws only the edges that leave them. It is
  faster if cascades stay small in a large graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kofn.core import FloatArray, IntArray
from kofn.lab.problems.applications.graph import Graph

Words: TypeAlias = NDArray[np.uint64]
Model: TypeAlias = Literal["cascade", "threshold"]

_ALL = ~np.uint64(0)
_FRONTIER_BELOW = 0.1
"""`FrontierCascades` is chosen if it draws less than this fraction of the edges: it takes ten times longer per edge."""
_PILOTS = 256
"""Cascades that are simulated to choose the implementation. More of them make the choice steadier and slower."""
_TOSSES = 9
"""Coin tosses for whole arrays; the few words with unfinished coins are then tossed alone. It affects only speed."""


class CascadeSimulator(ABC):
    """Simulates cascades on one graph. A seed of -1 is an empty place."""

    def __init__(self, graph: Graph, probabilities: FloatArray, model: Model) -> None:
        self.graph, self.probabilities, self.model = graph, probabilities, model

    @property
    @abstractmethod
    def lanes(self) -> int:
        """The number of cascades to simulate at once: a multiple of 64 that bounds the memory."""

    @abstractmethod
    def reached(self, seeds: IntArray, rng: np.random.Generator) -> NDArray[np.int64]:
        """Simulate one cascade per row of seeds, and return how many nodes it reaches, seeds included."""

    @abstractmethod
    def source_sets(self, roots: IntArray, rng: np.random.Generator) -> Words:
        """Return who would have reached each root, in one cascade each: a row of bits per node, a bit per root."""


class BitCascades(CascadeSimulator):
    """Simulates 64 cascades in a word."""

    @property
    def lanes(self) -> int:
        """As many as make about ten thousand words of live edges, which fit into a cache."""
        return 64 * max(1, min(256, 10_000 // self.graph.n_edges))

    def reached(self, seeds: IntArray, rng: np.random.Generator) -> NDArray[np.int64]:
        """Simulate one cascade per row of seeds; count the bits of each column."""
        words = self._walk(self._seeded(seeds), self.graph.source, *self._by_target, self._live(len(seeds), rng))
        bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
        return np.asarray(bits.sum(axis=0, dtype=np.uint32)[: len(seeds)], np.int64)

    def source_sets(self, roots: IntArray, rng: np.random.Generator) -> Words:
        """Walk backwards along live edges."""
        live = self._live(len(roots), rng)[self._by_source]
        targets = self.graph.target[self._by_source]
        return self._walk(self._seeded(roots[:, None]), targets, *self._source_groups, live)

    def _seeded(self, seeds: IntArray) -> Words:
        """Return a row of bits per node: in which cascades it is a seed."""
        lanes = -(-len(seeds) // 64) * 64
        bits = np.zeros((self.graph.n_nodes + 1, lanes), np.uint8)  # the last row is for empty places
        bits[seeds, np.arange(len(seeds))[:, None]] = 1
        return np.packbits(bits[:-1], axis=1, bitorder="little").view(np.uint64)

    def _walk(self, words: Words, begins: IntArray, ends: IntArray, starts: IntArray, live: Words) -> Words:
        """Follow the live edges until no more nodes are reached."""
        while True:
            carried = words[begins]
            carried &= live
            before = words[ends]
            after = np.bitwise_or.reduceat(carried, starts, axis=0)
            after |= before
            if (after == before).all():
                return words
            words[ends] = after

    def _live(self, lanes: int, rng: np.random.Generator) -> Words:
        """Return a row of bits per edge: in which cascades it is live."""
        width = -(-lanes // 64)
        if self.model == "cascade":
            return bernoulli_words(self.probabilities, width, rng)
        # The edges into a node are tried in turn, and the first success is the live one. Each succeeds with its
        # conditional probability given that none before it did, so that edge e is live with probability w_e.
        live = bernoulli_words(self._conditional, width, rng)
        taken = live.copy()  # whether this edge or one before it succeeded
        shift, rank = 1, self._rank_at_target
        while shift <= rank.max(initial=0):
            later = np.flatnonzero(rank >= shift)
            taken[later] |= taken[later - shift]
            shift *= 2
        second = np.flatnonzero(rank > 0)
        live[second] &= ~taken[second - 1]
        return live

    @cached_property
    def _rank_at_target(self) -> IntArray:
        """The position of each edge among the edges into the same node, from 0."""
        ends, starts = self._by_target
        return np.asarray(np.arange(self.graph.n_edges) - np.repeat(starts, self.graph.in_degree[ends]))

    @cached_property
    def _conditional(self) -> FloatArray:
        before = _weight_before(self.probabilities, self.graph.target)
        left = np.maximum(1 - before, 1e-300)
        return np.minimum(self.probabilities / left, 1.0)

    @cached_property
    def _by_target(self) -> tuple[IntArray, IntArray]:
        """The nodes that edges lead into, and the first such edge of each."""
        ends, starts = np.unique(self.graph.target, return_index=True)
        return ends, starts

    @cached_property
    def _by_source(self) -> IntArray:
        return np.argsort(self.graph.source, kind="stable")

    @cached_property
    def _source_groups(self) -> tuple[IntArray, IntArray]:
        begins, starts = np.unique(self.graph.source[self._by_source], return_index=True)
        return begins, starts


class FrontierCascades(CascadeSimulator):
    """Simulates cascades by lists of cells that were reached last. A cell is cascade * N + node."""

    @property
    def lanes(self) -> int:
        """As many as need about 16 MB for their cells."""
        return 64 * max(1, min(256, 2**18 // self.graph.n_nodes))

    def reached(self, seeds: IntArray, rng: np.random.Generator) -> NDArray[np.int64]:
        """Simulate one cascade per row of seeds; count the nodes of each wave."""
        count = np.zeros(len(seeds), np.int64)
        for cells in self._waves(seeds, rng):
            count += np.bincount(cells // self.graph.n_nodes, minlength=len(seeds))
        return count

    def edge_fraction(self, seeds: IntArray, rng: np.random.Generator) -> float:
        """Return the average fraction of edges that leave a reached node."""
        _, first, _ = self._forward
        leaving = np.diff(first)
        drawn = sum(int(leaving[cells % self.graph.n_nodes].sum()) for cells in self._waves(seeds, rng))
        return drawn / (len(seeds) * self.graph.n_edges)

    def source_sets(self, roots: IntArray, rng: np.random.Generator) -> Words:
        """Walk backwards along live edges; in the threshold model a node has at most one."""
        cells = self._cells(roots[:, None])
        lanes = -(-len(roots) // 64) * 64
        visited = self._visited(lanes, cells)
        while cells.size:
            new = self._one_back(cells, rng) if self.model == "threshold" else self._all_back(cells, rng)
            cells = np.unique(new[~visited[new]])
            visited[cells] = True
        bits = np.ascontiguousarray(visited.reshape(lanes, -1).T)
        return np.packbits(bits, axis=1, bitorder="little").view(np.uint64)

    def _waves(self, seeds: IntArray, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        """Yield the seeds, then the cells reached in one step, in two steps, and so on."""
        cells = self._cells(seeds)
        visited = self._visited(len(seeds), cells)
        received = np.zeros(visited.size) if self.model == "threshold" else None
        while cells.size:
            yield cells
            cells = self._next(cells, visited, received, rng)

    def _cells(self, seeds: IntArray) -> NDArray[np.int64]:
        cells = np.arange(len(seeds))[:, None] * self.graph.n_nodes + seeds
        return np.unique(cells[seeds >= 0])

    def _visited(self, lanes: int, cells: NDArray[np.int64]) -> NDArray[np.bool_]:
        visited = np.zeros(lanes * self.graph.n_nodes, np.bool_)
        visited[cells] = True
        return visited

    def _next(
        self,
        cells: NDArray[np.int64],
        visited: NDArray[np.bool_],
        received: FloatArray | None,
        rng: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Return the cells that are reached from these in one step, and mark them as visited."""
        order, first, probabilities = self._forward
        if received is None:
            cell, edge = _live_edges(cells % self.graph.n_nodes, first, probabilities, rng)
            at = cells[cell]
            new = at - at % self.graph.n_nodes + self.graph.target[order[edge]]
            new = np.unique(new[~visited[new]])
        else:
            cell, edge = _edges_of(cells % self.graph.n_nodes, first)
            at = cells[cell]
            informed = at - at % self.graph.n_nodes + self.graph.target[order[edge]]
            fresh = ~visited[informed]
            new = _pass_threshold(informed[fresh], probabilities[edge[fresh]], received, rng)
        visited[new] = True
        return new

    def _all_back(self, cells: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        cell, edge = _live_edges(cells % self.graph.n_nodes, self._in_first, self.probabilities, rng)
        at = cells[cell]
        return np.asarray(at - at % self.graph.n_nodes + self.graph.source[edge])

    def _one_back(self, cells: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        node = cells % self.graph.n_nodes
        edge = np.searchsorted(self._cumulative_weights, node + rng.random(len(cells)), "right")
        some = edge < self._in_first[node + 1]
        return np.asarray((cells - node)[some] + self.graph.source[edge[some]])

    @cached_property
    def _forward(self) -> tuple[IntArray, IntArray, FloatArray]:
        """The edges by source: their numbers, the first one of each node, their probabilities."""
        order = np.argsort(self.graph.source, kind="stable")
        first = np.searchsorted(self.graph.source[order], np.arange(self.graph.n_nodes + 1))
        return order, first, self.probabilities[order]

    @cached_property
    def _in_first(self) -> IntArray:
        return np.searchsorted(self.graph.target, np.arange(self.graph.n_nodes + 1))

    @cached_property
    def _cumulative_weights(self) -> FloatArray:
        """Node + the weights of its edges up to each one: one binary search finds the live edge of a node."""
        target = self.graph.target
        return np.asarray(target + _weight_before(self.probabilities, target) + self.probabilities)


def choose_simulator(graph: Graph, probabilities: FloatArray, model: Model, k: int) -> CascadeSimulator:
    """Return the faster implementation, by the edges that pilot cascades from K random seeds draw (fixed seed)."""
    frontier, rng = FrontierCascades(graph, probabilities, model), np.random.default_rng(0)
    pilots = rng.integers(graph.n_nodes, size=(min(_PILOTS, frontier.lanes), k))
    if frontier.edge_fraction(pilots, rng) < _FRONTIER_BELOW:
        return frontier
    return BitCascades(graph, probabilities, model)


def bernoulli_words(probabilities: FloatArray, width: int, rng: np.random.Generator) -> Words:
    """Return a row of 64 * width random bits per probability p; each bit is one with probability p, exact to 2^-64.

    Write p in binary and toss a coin until it shows heads, at toss G: bit G of p is one with probability p. A word
    tosses 64 coins at once.
    """
    digits = _digits(probabilities)
    live, tossing = np.zeros((len(probabilities), width), np.uint64), np.full((len(probabilities), width), _ALL)
    for toss in range(_TOSSES):
        tails = _coins(live.shape, rng)
        ones = -(digits >> np.uint64(63 - toss) & np.uint64(1))
        if ones.any():
            live |= (tossing & ~tails) & ones[:, None] if not ones.all() else tossing & ~tails
        tossing &= tails
    where = np.flatnonzero(tossing)  # the few words with coins that have not shown heads
    flat, left, p = live.reshape(-1), tossing.reshape(-1)[where], digits[where // width]
    for toss in range(_TOSSES, 64):
        if not where.size:
            break
        tails = _coins(where.shape, rng)
        flat[where] |= left & ~tails & -(p >> np.uint64(63 - toss) & np.uint64(1))
        left &= tails
        on = left != 0
        where, left, p = where[on], left[on], p[on]
    live[probabilities >= 1] = _ALL
    return live


def _digits(probabilities: FloatArray) -> Words:
    """Return the first 64 binary digits of each probability below 1."""
    high = np.floor(probabilities * 2.0**32)
    low = np.floor((probabilities * 2.0**32 - high) * 2.0**32)
    return np.where(probabilities < 1, (high.astype(np.uint64) << np.uint64(32)) + low.astype(np.uint64), np.uint64(0))


def _coins(shape: tuple[int, ...], rng: np.random.Generator) -> Words:
    return rng.integers(0, 2**64, size=shape, dtype=np.uint64)


def _weight_before(probabilities: FloatArray, target: IntArray) -> FloatArray:
    """Return the total weight of the edges before each edge that have the same target; edges are sorted by target."""
    total = np.cumsum(probabilities) - probabilities
    starts = np.unique(target, return_index=True)[1]
    return np.asarray(total - np.repeat(total[starts], np.diff([*starts, len(target)])))


def _edges_of(node: IntArray, first: IntArray) -> tuple[IntArray, IntArray]:
    """Return all edges of the given nodes: the index into `node` of each, and its edge number."""
    degree = first[node + 1] - first[node]
    owner = np.repeat(np.arange(len(node)), degree)
    return owner, np.arange(len(owner)) + np.repeat(first[node] - (np.cumsum(degree) - degree), degree)


def _live_edges(
    node: IntArray, first: IntArray, probabilities: FloatArray, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Return the live edges of the given nodes: the index into `node` of each, and its edge number.

    Edges that are not live are skipped: if all had the largest probability p, the gaps between live edges would be
    geometric. An edge with a smaller probability is then kept with probability (its own) / p.
    """
    ends = np.cumsum(first[node + 1] - first[node])
    p = float(probabilities.max())
    if p == 0 or not ends.size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    at = _successes(int(ends[-1]), p, rng)
    owner = np.searchsorted(ends, at, "right")
    edge = first[node[owner] + 1] - (ends[owner] - at)
    live = rng.random(len(edge)) * p < probabilities[edge]
    return owner[live], edge[live]


def _successes(trials: int, p: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return which of the independent trials succeed, each with probability p."""
    found, last = [], -1
    while last < trials:
        expected = (trials - last) * p
        found.append(last + np.cumsum(rng.geometric(p, int(expected + 4 * expected**0.5) + 4)))
        last = int(found[-1][-1])
    at = np.concatenate(found) if found else np.zeros(0, np.int64)
    return at[: np.searchsorted(at, trials)]


def _pass_threshold(
    informed: NDArray[np.int64], weight: FloatArray, received: FloatArray, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the informed cells that pass their threshold now, given that they had not passed it before.

    A threshold is uniform. If it is above the weight received before, it is below that plus the new weight with
    probability new / (1 - before).
    """
    cells, which = np.unique(informed, return_inverse=True)
    more = np.bincount(which, weight, len(cells))
    before = received[cells]
    received[cells] = before + more
    return np.asarray(cells[rng.random(len(cells)) * (1 - before) < more])
