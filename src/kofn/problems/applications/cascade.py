"""Cascades: who is reached from some seeds, many times at once.

Both models have live edges (Kempe, Kleinberg and Tardos, 2003): a node is reached if a path of live edges leads to it
from a seed. In the independent cascade every edge is live with its own probability; in the linear threshold model a
node has at most one live edge among those that end at it, edge e with probability w_e.

There are two ways to walk, which give the same distribution:

- `Bits`: 64 cascades in a word. Every edge of the graph is drawn for every cascade, but a step of 64 cascades along an
  edge is one instruction. Best where cascades reach much of the graph.
- `Frontier`: lists of what was reached last. Only edges that leave a reached node are drawn. Best where cascades stay
  small in a large graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kofn.core import FloatArray, IntArray
from kofn.problems.applications.graph import Graph

Words: TypeAlias = NDArray[np.uint64]
Model: TypeAlias = Literal["cascade", "threshold"]

_ALL = ~np.uint64(0)
_TOUCHED = 0.1  # a drawn edge costs a frontier some ten times what it costs words
_PILOTS = 256
_TOSSES = 9  # of whole arrays; after them an eighth of the words have a coin that has not shown heads


class Walker(ABC):
    """Cascades on one graph. A place of -1 among the seeds is empty."""

    def __init__(self, graph: Graph, chances: FloatArray, model: Model) -> None:
        self.graph, self.chances, self.model = graph, chances, model

    @property
    @abstractmethod
    def lanes(self) -> int:
        """How many cascades are walked at once: a multiple of 64 that bounds the memory."""

    @abstractmethod
    def reached(self, seeds: IntArray, rng: np.random.Generator) -> NDArray[np.int64]:
        """How many nodes one cascade from each row of seeds reaches, the seeds among them."""

    @abstractmethod
    def sources(self, roots: IntArray, rng: np.random.Generator) -> Words:
        """Who would have reached each root, in a cascade of its own: a row of bits per node, a bit per root."""


class Bits(Walker):
    """64 cascades in a word."""

    @property
    def lanes(self) -> int:
        """Some ten thousand words of live edges at once: what fits into a cache."""
        return 64 * max(1, min(256, 10_000 // self.graph.n_edges))

    def reached(self, seeds: IntArray, rng: np.random.Generator) -> NDArray[np.int64]:
        """How many nodes are reached, by counting bits down the columns."""
        words = self._walk(self._seeded(seeds), self.graph.source, *self._by_target, self._live(len(seeds), rng))
        bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
        return np.asarray(bits.sum(axis=0, dtype=np.uint32)[: len(seeds)], np.int64)

    def sources(self, roots: IntArray, rng: np.random.Generator) -> Words:
        """The walk backwards along live edges."""
        live = self._live(len(roots), rng)[self._by_source]
        targets = self.graph.target[self._by_source]
        return self._walk(self._seeded(roots[:, None]), targets, *self._source_groups, live)

    def _seeded(self, seeds: IntArray) -> Words:
        """A row of bits per node: in which cascades it is a seed."""
        lanes = -(-len(seeds) // 64) * 64
        bits = np.zeros((self.graph.n_nodes + 1, lanes), np.uint8)  # the last row is for empty places
        bits[seeds, np.arange(len(seeds))[:, None]] = 1
        return np.packbits(bits[:-1], axis=1, bitorder="little").view(np.uint64)

    def _walk(self, words: Words, begins: IntArray, ends: IntArray, starts: IntArray, live: Words) -> Words:
        """Take steps from where edges begin to where they end, until nobody is reached any more."""
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
        """In which cascades each edge is live."""
        width = -(-lanes // 64)
        if self.model == "cascade":
            return bernoulli_words(self.chances, width, rng)
        # A node looks at its edges one after another and takes the first that says yes, each with the probability
        # that is left to it: so w_e is the probability of edge e.
        yes = bernoulli_words(self._conditional, width, rng)
        taken = yes.copy()  # by this edge or one before it
        shift, rank = 1, self._rank
        while shift <= rank.max(initial=0):
            later = np.flatnonzero(rank >= shift)
            taken[later] |= taken[later - shift]
            shift *= 2
        second = np.flatnonzero(rank > 0)
        yes[second] &= ~taken[second - 1]
        return yes

    @cached_property
    def _rank(self) -> IntArray:
        """The how-manieth edge of its target each edge is."""
        ends, starts = self._by_target
        return np.asarray(np.arange(self.graph.n_edges) - np.repeat(starts, self.graph.in_degree[ends]))

    @cached_property
    def _conditional(self) -> FloatArray:
        before = _before(self.chances, self.graph.target)
        left = np.maximum(1 - before, 1e-300)
        return np.minimum(self.chances / left, 1.0)

    @cached_property
    def _by_target(self) -> tuple[IntArray, IntArray]:
        """The nodes where edges end, and the first edge of each."""
        ends, starts = np.unique(self.graph.target, return_index=True)
        return ends, starts

    @cached_property
    def _by_source(self) -> IntArray:
        return np.argsort(self.graph.source, kind="stable")

    @cached_property
    def _source_groups(self) -> tuple[IntArray, IntArray]:
        begins, starts = np.unique(self.graph.source[self._by_source], return_index=True)
        return begins, starts


class Frontier(Walker):
    """Lists of what was reached last. A cell is a cascade and a node: cascade * N + node."""

    @property
    def lanes(self) -> int:
        """Cells of some 16 MB at once."""
        return 64 * max(1, min(256, 2**18 // self.graph.n_nodes))

    def reached(self, seeds: IntArray, rng: np.random.Generator) -> NDArray[np.int64]:
        """How many nodes are reached, counted as they come."""
        count = np.zeros(len(seeds), np.int64)
        for cells in self._waves(seeds, rng):
            count += np.bincount(cells // self.graph.n_nodes, minlength=len(seeds))
        return count

    def touched(self, seeds: IntArray, rng: np.random.Generator) -> float:
        """The share of all edges that leave a reached node, on average."""
        _, first, _ = self._forward
        leaving = np.diff(first)
        drawn = sum(int(leaving[cells % self.graph.n_nodes].sum()) for cells in self._waves(seeds, rng))
        return drawn / (len(seeds) * self.graph.n_edges)

    def sources(self, roots: IntArray, rng: np.random.Generator) -> Words:
        """The walk backwards; in the threshold model a node looks at one edge only."""
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
        """The seeds, then what they reach in one step, and so on."""
        cells = self._cells(seeds)
        visited = self._visited(len(seeds), cells)
        heard = np.zeros(visited.size) if self.model == "threshold" else None
        while cells.size:
            yield cells
            cells = self._next(cells, visited, heard, rng)

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
        heard: FloatArray | None,
        rng: np.random.Generator,
    ) -> NDArray[np.int64]:
        """The cells that are reached from these in one step, marked as visited."""
        order, first, chances = self._forward
        if heard is None:
            cell, edge = _hits(cells % self.graph.n_nodes, first, chances, rng)
            at = cells[cell]
            new = at - at % self.graph.n_nodes + self.graph.target[order[edge]]
            new = np.unique(new[~visited[new]])
        else:
            cell, edge = _edges(cells % self.graph.n_nodes, first)
            at = cells[cell]
            told = at - at % self.graph.n_nodes + self.graph.target[order[edge]]
            fresh = ~visited[told]
            new = _convinced(told[fresh], chances[edge[fresh]], heard, rng)
        visited[new] = True
        return new

    def _all_back(self, cells: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        cell, edge = _hits(cells % self.graph.n_nodes, self._in_first, self.chances, rng)
        at = cells[cell]
        return np.asarray(at - at % self.graph.n_nodes + self.graph.source[edge])

    def _one_back(self, cells: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        node = cells % self.graph.n_nodes
        edge = np.searchsorted(self._ladder, node + rng.random(len(cells)), "right")
        some = edge < self._in_first[node + 1]
        return np.asarray((cells - node)[some] + self.graph.source[edge[some]])

    @cached_property
    def _forward(self) -> tuple[IntArray, IntArray, FloatArray]:
        """The edges by source: their numbers, the first of each node, their chances."""
        order = np.argsort(self.graph.source, kind="stable")
        first = np.searchsorted(self.graph.source[order], np.arange(self.graph.n_nodes + 1))
        return order, first, self.chances[order]

    @cached_property
    def _in_first(self) -> IntArray:
        return np.searchsorted(self.graph.target, np.arange(self.graph.n_nodes + 1))

    @cached_property
    def _ladder(self) -> FloatArray:
        """Node + the weights of its edges up to each one: one search finds the edge that a node looks at."""
        return np.asarray(self.graph.target + _before(self.chances, self.graph.target) + self.chances)


def walker_of(graph: Graph, chances: FloatArray, model: Model, k: int) -> Walker:
    """The faster walker, by how many edges cascades from K random seeds touch; the same one everywhere."""
    frontier, rng = Frontier(graph, chances, model), np.random.default_rng(0)
    pilots = rng.integers(graph.n_nodes, size=(min(_PILOTS, frontier.lanes), k))
    return frontier if frontier.touched(pilots, rng) < _TOUCHED else Bits(graph, chances, model)


def bernoulli_words(chances: FloatArray, width: int, rng: np.random.Generator) -> Words:
    """A row of 64 * width bits per chance, each bit one with that probability.

    Write p in binary and toss a coin until it shows heads, at toss G: bit G of p is one with probability p. A word
    tosses 64 coins. Chances are exact to 2^-64.
    """
    digits = _digits(chances)
    live, tossing = np.zeros((len(chances), width), np.uint64), np.full((len(chances), width), _ALL)
    for toss in range(_TOSSES):
        tails = _coins(live.shape, rng)
        ones = -(digits >> np.uint64(63 - toss) & np.uint64(1))
        if ones.any():
            live |= (tossing & ~tails) & ones[:, None] if not ones.all() else tossing & ~tails
        tossing &= tails
    where = np.flatnonzero(tossing)  # some few words have coins that are still to show heads
    flat, left, p = live.reshape(-1), tossing.reshape(-1)[where], digits[where // width]
    for toss in range(_TOSSES, 64):
        if not where.size:
            break
        tails = _coins(where.shape, rng)
        flat[where] |= left & ~tails & -(p >> np.uint64(63 - toss) & np.uint64(1))
        left &= tails
        on = left != 0
        where, left, p = where[on], left[on], p[on]
    live[chances >= 1] = _ALL
    return live


def _digits(chances: FloatArray) -> Words:
    """The first 64 binary digits of each chance below 1."""
    high = np.floor(chances * 2.0**32)
    low = np.floor((chances * 2.0**32 - high) * 2.0**32)
    return np.where(chances < 1, (high.astype(np.uint64) << np.uint64(32)) + low.astype(np.uint64), np.uint64(0))


def _coins(shape: tuple[int, ...], rng: np.random.Generator) -> Words:
    return rng.integers(0, 2**64, size=shape, dtype=np.uint64)


def _before(chances: FloatArray, target: IntArray) -> FloatArray:
    """For each edge, the weights of the edges of the same target before it; edges come sorted by target."""
    total = np.cumsum(chances) - chances
    starts = np.unique(target, return_index=True)[1]
    return np.asarray(total - np.repeat(total[starts], np.diff([*starts, len(target)])))


def _edges(node: IntArray, first: IntArray) -> tuple[IntArray, IntArray]:
    """All edges of the given nodes: whose they are, by place in `node`, and their numbers."""
    degree = first[node + 1] - first[node]
    whose = np.repeat(np.arange(len(node)), degree)
    return whose, np.arange(len(whose)) + np.repeat(first[node] - (np.cumsum(degree) - degree), degree)


def _hits(node: IntArray, first: IntArray, chances: FloatArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """The edges of the given nodes that are live: whose they are, by place in `node`, and their numbers.

    Edges that are not live need not be looked at: with the largest chance p of all, the gaps between live ones are
    geometric; an edge of a smaller chance is then kept with probability chance / p.
    """
    ends = np.cumsum(first[node + 1] - first[node])
    p = float(chances.max())
    if p == 0 or not ends.size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    at = _successes(int(ends[-1]), p, rng)
    whose = np.searchsorted(ends, at, "right")
    edge = first[node[whose] + 1] - (ends[whose] - at)
    live = rng.random(len(edge)) * p < chances[edge]
    return whose[live], edge[live]


def _successes(trials: int, p: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Which of so many independent trials succeed, each with probability p."""
    found, last = [], -1
    while last < trials:
        expected = (trials - last) * p
        found.append(last + np.cumsum(rng.geometric(p, int(expected + 4 * expected**0.5) + 4)))
        last = int(found[-1][-1])
    at = np.concatenate(found) if found else np.zeros(0, np.int64)
    return at[: np.searchsorted(at, trials)]


def _convinced(
    told: NDArray[np.int64], weight: FloatArray, heard: FloatArray, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Of the cells that were told, those whose threshold is passed now, given that it was not before.

    A threshold is uniform: if it lies above what was heard before, it lies below that and the new weight with
    probability new / (1 - before).
    """
    cells, which = np.unique(told, return_inverse=True)
    more = np.bincount(which, weight, len(cells))
    before = heard[cells]
    heard[cells] = before + more
    return np.asarray(cells[rng.random(len(cells)) * (1 - before) < more])
