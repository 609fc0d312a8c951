"""Social influence: K people are told, they tell others, and the reward is the share of all who hear of it.

Plays are cascades, one by one: a row of n plays is n drawn rewards. Values are estimated from **source sets** (Borgs,
Brautbar, Chayes and Lucier, 2014): take a random node and walk backwards along live edges; the share of such sets that
hold one of the seeds is the share of nodes that they reach, on average. The sets are bits, so that the value of a
subset is K rows of bits and a count, and all subsets are valued with the same luck.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadInput, FloatArray, IntArray, Subset, subset_of, whole
from kofn.problems.applications.cascade import Model, Walker, Words, walker_of
from kofn.problems.applications.graph import Graph, as_graph
from kofn.problems.assumptions import DOMINANCE, INCREASING, SYMMETRIC, Finding
from kofn.problems.expectation import Estimated, in_blocks
from kofn.problems.problem import MOST_SUBSETS_BY_MONTE_CARLO
from kofn.problems.sampling import Sums, in_turn
from kofn.problems.simulated import Simulated
from kofn.subsets import subset_blocks

MOST_SETS, MOST_BYTES = 2**18, 2**27
"""Source sets behind a value: as many as this, or as fit into this memory."""
_SEED = 20030824


class Influence(Simulated):
    """K seeds in a graph, and the share of its nodes that a cascade from them reaches.

    >>> problem = Influence(Graph.karate(), k=2, probability=0.1)
    >>> problem.best, problem.greedy()
    ((0, 33), (0, 33))
    >>> problem.play([(0, 33)], [1_000_000], rng=1).total.round(-4)
    array([190000.])

    `graph` is a Graph, a networkx graph or a list of edges. `model` is "cascade" (independent cascade) or "threshold"
    (linear threshold). `probability` is that of every edge, or "in-degree" for 1 / the number of edges that end where
    it ends, or None for the graph's own weights. `candidates` are the nodes that may be seeds: all of them if left
    out; arm i is `nodes[i]`. Where not all subsets can be tried, `best` is what greedy finds, improved by exchanges.
    """

    def __init__(
        self,
        graph: Any,
        k: int,
        *,
        model: Model = "cascade",
        probability: float | Literal["in-degree"] | None = None,
        candidates: Iterable[Hashable] | None = None,
        best: Iterable[int] | None = None,
        sets: int | None = None,
    ) -> None:
        self.graph: Graph = as_graph(graph)
        if model not in ("cascade", "threshold"):
            raise BadInput(f"model must be 'cascade' or 'threshold', not {model!r}")
        self.model, self.chances = model, self.graph.chances(probability)
        if model == "threshold":
            _check_weights(self.graph, self.chances)
        self._node = np.arange(self.graph.n_nodes) if candidates is None else self.graph.numbers(candidates)
        if len(np.unique(self._node)) != len(self._node):
            raise BadInput("candidates must be different nodes")
        super().__init__(len(self._node), k, best=best, fewer=True)
        most = MOST_BYTES * 8 // (self.n_arms + 1)
        self.sets = whole("sets", min(MOST_SETS, 2 ** int(math.log2(most))) if sets is None else sets, least=64)

    @property
    def nodes(self) -> tuple[Hashable, ...]:
        """The node that each arm is."""
        return tuple(self.graph.nodes[node] for node in self._node.tolist())

    def greedy(self) -> Subset:
        """The seeds that greedy finds, who adds the node that adds most, K times: at least 1 - 1/e of the best value,
        but for what chance does to the sets that it counts."""
        return self._chooser().greedy(self.k)

    @cached_property
    def best(self) -> Subset:
        """The best of all subsets where these are few, else what greedy and exchanges find: by sets of its own, since
        the best of many estimates is too good."""
        if self._given is not None:
            return self._given
        chooser = self._chooser()
        if math.comb(self.n_arms, self.k) <= MOST_SUBSETS_BY_MONTE_CARLO:
            return chooser.best(self.n_arms, self.k)
        return chooser.exchanged(chooser.greedy(self.k))

    def __repr__(self) -> str:
        return f"Influence({self.graph.n_nodes:,} nodes, {self.graph.n_edges:,} edges, k={self.k}, {self.model})"

    @cached_property
    def _walker(self) -> Walker:
        return walker_of(self.graph, self.chances, self.model, self.k)

    def _make_law(self) -> Cascades:
        return Cascades(self._walker, self._node)

    def _make_expectation(self) -> SourceSets:
        return SourceSets(self._walker, self._node, self.sets, np.random.default_rng([_SEED, 0]))

    def _chooser(self) -> SourceSets:
        return SourceSets(self._walker, self._node, self.sets, np.random.default_rng([_SEED, 1]))

    def _assumptions(self) -> tuple[Finding, ...]:
        return (
            Finding(SYMMETRIC, False, "who is reached depends on which nodes the seeds are, not on numbers they pay"),
            Finding(INCREASING, False, "weakly: a seed that others reach anyway adds nothing"),
            Finding(DOMINANCE, False, "a seed pays nothing by itself: what it adds depends on the others"),
        )


class Cascades:
    """The law: one cascade per play."""

    def __init__(self, walker: Walker, node: IntArray) -> None:
        self._walker, self._node = walker, np.append(node, -1)  # arm N is an empty place

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """The sums of n drawn rewards per row."""
        total, squares = np.zeros(len(subsets)), np.zeros(len(subsets))
        for row in in_turn(times, self._walker.lanes):
            share = self._walker.reached(self._node[subsets[row]], rng) / self._walker.graph.n_nodes
            total += np.bincount(row, share, len(subsets))
            squares += np.bincount(row, share * share, len(subsets))
        return total, squares


class SourceSets(Estimated):
    """Who would have reached a random node: a row of bits per arm, a bit per set. The last row is an empty place."""

    def __init__(self, walker: Walker, node: IntArray, sets: int, rng: np.random.Generator) -> None:
        self.sets = -(-sets // 64) * 64
        self._bits: Words = np.zeros((len(node) + 1, self.sets // 64), np.uint64)
        for start in range(0, self.sets, walker.lanes):
            stop = min(start + walker.lanes, self.sets)
            roots = rng.integers(walker.graph.n_nodes, size=stop - start)
            self._bits[:-1, start // 64 : stop // 64] = walker.sources(roots, rng)[node]

    def value(self, subsets: IntArray) -> FloatArray:
        """The share of the sets that hold an arm of the row."""
        return in_blocks(self._rows, subsets, subsets.shape[1] * self._bits.shape[1])

    def errors(self, subsets: IntArray) -> FloatArray:
        """The standard error of that share."""
        share = self.value(subsets)
        return np.sqrt(share * (1 - share) / self.sets)

    def _rows(self, subsets: IntArray) -> FloatArray:
        held = self._bits[subsets[:, 0]]
        for place in range(1, subsets.shape[1]):
            held |= self._bits[subsets[:, place]]
        return np.asarray(_count(held) / self.sets)

    def greedy(self, k: int) -> Subset:
        """K times the arm that is in most sets that are not covered yet; of equal ones, the lowest."""
        covered = np.zeros_like(self._bits[0])
        chosen: list[int] = []
        for _ in range(k):
            adds = self._adds(covered)
            adds[chosen] = -1
            chosen.append(int(np.argmax(adds)))
            covered |= self._bits[chosen[-1]]
        return subset_of(chosen, len(self._bits) - 1, k)

    def exchanged(self, subset: Subset) -> Subset:
        """The subset after exchanges of one arm for a better one, until there is none."""
        chosen, settled = list(subset), 0
        while settled < len(chosen):
            old = chosen.pop(0)
            covered = np.bitwise_or.reduce(self._bits[chosen], axis=0) if chosen else np.zeros_like(self._bits[0])
            adds = self._adds(covered)
            adds[chosen] = -1
            new = int(np.argmax(adds))
            new = new if adds[new] > adds[old] else old
            settled = settled + 1 if new == old else 1
            chosen.append(new)
        return subset_of(chosen, len(self._bits) - 1, len(subset))

    def best(self, n_arms: int, k: int) -> Subset:
        """The subset in most sets, of all."""
        found, top = (), -1.0
        for rows in subset_blocks(n_arms, k):
            values = self.value(rows)
            leader = int(np.argmax(values))
            if values[leader] > top:
                found, top = tuple(rows[leader].tolist()), float(values[leader])
        return found

    def _adds(self, covered: Words) -> NDArray[np.int64]:
        """How many sets that are not covered each arm is in."""
        parts = np.array_split(self._bits[:-1], max(1, self._bits.size // 2**20))
        return np.concatenate([_count(part & ~covered) for part in parts])


def _count(words: Words) -> NDArray[np.int64]:
    """The ones in each row."""
    return np.asarray(np.bitwise_count(words).sum(axis=1, dtype=np.int64))


def _check_weights(graph: Graph, chances: FloatArray) -> None:
    total = np.bincount(graph.target, chances, graph.n_nodes)
    if (total > 1 + 1e-9).any():
        node = int(np.argmax(total))
        raise BadInput(
            f"in the threshold model the weights of the edges that end at a node add up to at most 1, but those of "
            f"{graph.nodes[node]!r} add up to {total[node]:g}: take probability='in-degree'"
        )
