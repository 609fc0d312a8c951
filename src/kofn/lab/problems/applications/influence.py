"""Social influence: K seeds inform others, who inform others; the reward is the fraction of all nodes reached.

Every play is a simulated cascade. Expected rewards are sampled with **source sets** (Borgs, Brautbar, Chayes and
Lucier, 2014; also called reverse reachable sets): take a random node and walk backwards along live edges. The fraction
of such sets that contain a seed is, on average, the fraction of nodes that the seeds reach. The sets are stored as
bits: the value of a subset is a bitwise or of K rows and a count. All subsets are valued on the same sets.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadInput, FloatArray, IntArray, Subset, subset_of, whole
from kofn.lab.problems.applications.cascade import CascadeSimulator, Model, Words, choose_simulator
from kofn.lab.problems.applications.graph import Graph, as_graph
from kofn.lab.problems.assumptions import DOMINANCE, INCREASING, SYMMETRIC, Finding
from kofn.lab.problems.base import MOST_SUBSETS_BY_MONTE_CARLO, AbstractProblem
from kofn.lab.problems.expectation import SampledExpectation, best_subset, in_blocks
from kofn.lab.problems.sampling import Sums, sum_drawn_plays

MOST_SOURCE_SETS, MOST_BYTES = 2**18, 2**27
"""Source sets behind a value: this number, or fewer if more would not fit into this many bytes."""
_SEED = 20030824


class Influence(AbstractProblem):
    """K seeds in a graph; the reward is the fraction of its nodes that a cascade from them reaches.

    >>> problem = Influence(Graph.karate(), k=2, probability=0.1)
    >>> problem.best, problem.greedy()
    ((0, 33), (0, 33))
    >>> problem.play([(0, 33)], [1_000_000], rng=1).total.round(-4)
    array([190000.])

    `graph` is a Graph, a networkx graph or a list of edges. `model` is "cascade" (independent cascade) or "threshold"
    (linear threshold). `probability` applies to every edge; or pass "in-degree" for 1 / the in-degree of the edge's
    target, or None for the graph's own weights. `candidates` are the nodes that may be seeds, all of them by default;
    arm i is `nodes[i]`. `source_sets` is the number of sets behind a value. If there are too many subsets to try,
    `best` is the greedy choice, improved by exchanges of one seed.
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
        source_sets: int | None = None,
    ) -> None:
        self.graph: Graph = as_graph(graph)
        if model not in ("cascade", "threshold"):
            raise BadInput(f"model must be 'cascade' or 'threshold', not {model!r}")
        self.model, self.probabilities = model, self.graph.edge_probabilities(probability)
        if model == "threshold":
            _check_weights(self.graph, self.probabilities)
        self._node = np.arange(self.graph.n_nodes) if candidates is None else self.graph.node_numbers(candidates)
        if len(np.unique(self._node)) != len(self._node):
            raise BadInput("candidates must be different nodes: one is listed twice")
        super().__init__(len(self._node), k, best=best, fewer=True)
        if source_sets is None:
            most = MOST_BYTES * 8 // (self.n_arms + 1)
            source_sets = min(MOST_SOURCE_SETS, 2 ** int(math.log2(most)))
        self.source_sets = whole("source_sets", source_sets, least=64)

    @property
    def nodes(self) -> tuple[Hashable, ...]:
        """The node of each arm."""
        return tuple(self.graph.nodes[node] for node in self._node.tolist())

    def greedy(self) -> Subset:
        """Return the greedy choice: K times, the node that adds most.

        Its value is at least 1 - 1/e of the best one, up to the sampling error of the source sets.
        """
        return self._chooser().greedy(self.k)

    def _find_best(self) -> Subset:
        """Choose on other sets than those that value it: the maximum of many sampled values is biased upwards."""
        chooser = self._chooser()
        if math.comb(self.n_arms, self.k) <= MOST_SUBSETS_BY_MONTE_CARLO:
            return best_subset(chooser.value, self.n_arms, self.k)
        return chooser.improve(chooser.greedy(self.k))

    def _summary(self) -> str:
        return f"{self.graph.n_nodes:,} nodes, {self.graph.n_edges:,} edges, {self.model}"

    @cached_property
    def _simulator(self) -> CascadeSimulator:
        return choose_simulator(self.graph, self.probabilities, self.model, self.k)

    def make_sampler(self) -> CascadeSampler:
        """Return the sampler, which simulates one cascade per play."""
        return CascadeSampler(self._simulator, self._node)

    def make_expectation(self) -> SourceSets:
        """Return the source sets, from which values are sampled."""
        return self._draw_source_sets(0)

    def _chooser(self) -> SourceSets:
        return self._draw_source_sets(1)

    def _draw_source_sets(self, stream: int) -> SourceSets:
        return SourceSets(self._simulator, self._node, self.source_sets, np.random.default_rng([_SEED, stream]))

    def assumptions(self) -> tuple[Finding, ...]:
        """Return why none of the paper's assumptions on arms holds."""
        return (
            Finding(SYMMETRIC, False, "the reward depends on which nodes are seeds, not on numbers that they pay"),
            Finding(INCREASING, False, "weakly: a seed that others reach anyway adds nothing"),
            Finding(DOMINANCE, False, "a seed pays nothing by itself: what it adds depends on the others"),
        )


class CascadeSampler:
    """Simulates one cascade per play."""

    def __init__(self, simulator: CascadeSimulator, node: IntArray) -> None:
        self._simulator, self._node = simulator, np.append(node, -1)  # arm N is an empty place

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """Simulate `times[i]` cascades per row and add up the fractions of nodes reached."""
        return sum_drawn_plays(lambda seeds: self._reached(seeds, rng), subsets, times, self._simulator.lanes)

    def _reached(self, subsets: IntArray, rng: np.random.Generator) -> FloatArray:
        return np.asarray(self._simulator.reached(self._node[subsets], rng) / self._simulator.graph.n_nodes)


class SourceSets(SampledExpectation):
    """The nodes that would have reached a random node: a row of bits per arm, a bit per set; the last row is all zeros.

    The last row represents an empty place.
    """

    def __init__(self, simulator: CascadeSimulator, node: IntArray, sets: int, rng: np.random.Generator) -> None:
        self.sets = -(-sets // 64) * 64
        self._bits: Words = np.zeros((len(node) + 1, self.sets // 64), np.uint64)
        for start in range(0, self.sets, simulator.lanes):
            stop = min(start + simulator.lanes, self.sets)
            roots = rng.integers(simulator.graph.n_nodes, size=stop - start)
            self._bits[:-1, start // 64 : stop // 64] = simulator.source_sets(roots, rng)[node]

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the fraction of the sets that contain an arm of the row."""
        return in_blocks(self._rows, subsets, subsets.shape[1] * self._bits.shape[1])

    def errors(self, subsets: IntArray) -> FloatArray:
        """Return the standard error of that fraction."""
        share = self.value(subsets)
        return np.sqrt(share * (1 - share) / self.sets)

    def _rows(self, subsets: IntArray) -> FloatArray:
        held = self._bits[subsets[:, 0]]
        for place in range(1, subsets.shape[1]):
            held |= self._bits[subsets[:, place]]
        return np.asarray(_count(held) / self.sets)

    def greedy(self, k: int) -> Subset:
        """Add, K times, the arm that is in most sets not covered yet; of equal ones, the lowest."""
        covered = np.zeros_like(self._bits[0])
        chosen: list[int] = []
        for _ in range(k):
            adds = self._adds(covered)
            adds[chosen] = -1
            chosen.append(int(np.argmax(adds)))
            covered |= self._bits[chosen[-1]]
        return subset_of(chosen, len(self._bits) - 1, k)

    def improve(self, subset: Subset) -> Subset:
        """Exchange one arm for a better one until no exchange helps."""
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

    def _adds(self, covered: Words) -> NDArray[np.int64]:
        """Return how many of the sets not covered each arm is in."""
        parts = np.array_split(self._bits[:-1], max(1, self._bits.size // 2**20))
        return np.concatenate([_count(part & ~covered) for part in parts])


def _count(words: Words) -> NDArray[np.int64]:
    """Return the number of one bits in each row."""
    return np.asarray(np.bitwise_count(words).sum(axis=1, dtype=np.int64))


def _check_weights(graph: Graph, probabilities: FloatArray) -> None:
    total = np.bincount(graph.target, probabilities, graph.n_nodes)
    if (total > 1 + 1e-9).any():
        node = int(np.argmax(total))
        raise BadInput(
            f"in the threshold model, the weights of the edges into a node must add up to at most 1; those into "
            f"{graph.nodes[node]!r} add up to {total[node]:g}. Use probability='in-degree'"
        )
