"""Make the tables of docs/guides/influence.md: `python -m benchmarks.influence speed`, and others (`--help`).

The real graph is the karate club (34 nodes). The generated one has 10,000 nodes, by preferential attachment.
`--quick` takes a graph of 300 nodes, and plays 200 times.
"""

import argparse
import random
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

import kofn
from benchmarks.tables import line, table
from kofn.core.pictures import save_figure
from kofn.lab.competitors import Policies
from kofn.lab.problems import Graph, Influence
from kofn.lab.problems.applications.cascade import BitCascades, CascadeSimulator, FrontierCascades

POLICIES: Policies = {
    "thompson": "thompson",
    "cmab-sm (printed)": "cmab-sm",
    "cmab-sm (figures)": ("cmab-sm", {"schedule": "figures"}),
    "dart": "dart",
    "etcg": "etcg",
}
"""With its printed constants, CMAB-SM needs longer horizons than these; the paper's figures used others."""
NODES, CANDIDATES = 10_000, 200
QUICK_NODES, QUICK_CANDIDATES = 300, 30


@cache
def karate(k: int = 5) -> Influence:
    return Influence(Graph.karate(), k, probability=0.1)


@cache
def large(nodes: int = NODES, k: int = 10) -> Influence:
    source_sets = 2**18 if nodes == NODES else 2**14
    return Influence(Graph.generated(nodes, 3, seed=1), k, probability=0.05, source_sets=source_sets)


@cache
def preselected(nodes: int = NODES, candidates: int = CANDIDATES, k: int = 10) -> Influence:
    """Return the same graph with only the nodes of highest degree as candidates; degrees are known in advance."""
    graph = large(nodes).graph
    best = np.argsort(-graph.in_degree, kind="stable")[:candidates]
    return Influence(graph, k, probability=0.05, candidates=best.tolist())


# speed


def plain(graph: Any, seeds: tuple[int, ...], p: float, rng: random.Random) -> int:
    """Simulate one independent cascade on a networkx graph, by a plain loop."""
    reached, last = set(seeds), list(seeds)
    while last:
        new = []
        for node in last:
            for other in graph[node]:
                if other not in reached and rng.random() < p:
                    reached.add(other)
                    new.append(other)
        last = new
    return len(reached)


def as_networkx(graph: Graph) -> Any:
    made = nx.Graph()
    made.add_nodes_from(range(graph.n_nodes))
    made.add_edges_from(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    return made


def plain_cascades(graph: Any, seeds: tuple[int, ...], p: float, rng: random.Random) -> int:
    return sum(plain(graph, seeds, p, rng) > 0 for _ in range(100))


def our_cascades(walker: CascadeSimulator, rows: Any, rng: np.random.Generator) -> int:
    return len(walker.reached(rows, rng))


def rate(work: Callable[[], int], seconds: float) -> float:
    """Return cascades per second; `work` returns how many it simulated."""
    start, done = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < seconds:
        done += work()
    return done / elapsed


def speed(seed: int, runs: int, seconds: float = 3.0, nodes: int = NODES) -> None:
    """Print cascades per second, of both implementations and of a plain loop."""
    del runs
    table("graph", "seeds", "reached", "networkx loop", "64 in a word", "lists", "chosen", "chosen / loop")
    for name, problem, p in (("karate", karate(), 0.1), (f"{nodes:,} nodes", large(nodes), 0.05)):
        theirs, rng = as_networkx(problem.graph), np.random.default_rng(seed)
        random_seeds = tuple(sorted(rng.choice(problem.n_arms, problem.k, replace=False).tolist()))
        for kind, seeds in (("greedy", problem.greedy()), ("random", random_seeds)):
            loop = rate(partial(plain_cascades, theirs, seeds, p, random.Random(seed)), seconds)
            rates: dict[type[CascadeSimulator], float] = {}
            for walker in (BitCascades, FrontierCascades):
                made = walker(problem.graph, problem.probabilities, "cascade")
                rates[walker] = rate(partial(our_cascades, made, np.tile(seeds, (made.lanes, 1)), rng), seconds)
            chosen = type(problem._simulator)
            line(
                name,
                kind,
                f"{float(problem.value([seeds])[0]):.2%}",
                f"{loop:,.0f}/s",
                f"{rates[BitCascades]:,.0f}/s",
                f"{rates[FrontierCascades]:,.0f}/s",
                "words" if chosen is BitCascades else "lists",
                f"{rates[chosen] / loop:,.0f}",
            )


# regret


def regret(problem: Influence, horizon: int, runs: int, seed: int) -> kofn.Comparison:
    """Compare the policies with the greedy choice, which knows the graph."""
    greedy, result = problem.greedy(), kofn.compare(POLICIES, problem, horizon, runs, seed, workers=1)
    offline = float(problem.value([greedy])[0])
    rng = np.random.default_rng(seed)
    some = np.array([rng.choice(problem.n_arms, problem.k, replace=False) for _ in range(500)])
    error = (offline * (1 - offline) / problem.source_sets) ** 0.5
    chance = float(problem.value(some).mean())
    print(f"greedy reaches {offline:.4f} ± {error:.4f} of the nodes, random seeds {chance:.4f}.")
    print(f"Against `best`, which reaches {problem.optimum:.4f}:\n")
    table(
        "policy", "regret", "of greedy's reward", "its seeds in the end reach", "of greedy's", "explored", "s per run"
    )
    for standing in result.ranked:
        finals = [trial.run.final for trial in standing.trials]
        reach = float(problem.value(finals).mean())
        line(
            standing.name,
            f"{standing.finals.mean():,.0f}",
            f"{1 - standing.finals.mean() / (horizon * offline):.1%}",
            f"{reach:.4f}",
            f"{reach / offline:.1%}",
            f"{np.mean([trial.run.exploration for trial in standing.trials]):,.0f}",
            f"{np.mean([trial.seconds for trial in standing.trials]):,.1f}",
        )
    return result


def on_karate(seed: int, runs: int, horizon: int = 10**6, picture: Path | None = None) -> None:
    """Compare the policies in the karate club: N = 34, K = 5."""
    result = regret(karate(), horizon, runs, seed)
    if picture is not None:
        save_figure(result.plot(), picture)


def on_candidates(seed: int, runs: int, horizon: int = 10**5, nodes: int = NODES, candidates: int = CANDIDATES) -> None:
    """Compare the policies with 200 of 10,000 nodes as candidates, K = 10."""
    few, every = preselected(nodes, candidates), large(nodes)
    everywhere = float(few.value([few.greedy()])[0]) / float(every.value([every.greedy()])[0])
    print(f"Of what greedy reaches with all nodes, it reaches {everywhere:.1%} with these {candidates}.")
    regret(few, horizon, runs, seed)


def on_large(seed: int, runs: int, horizon: int = 10**6, nodes: int = NODES) -> None:
    """Compare the policies with all 10,000 nodes as candidates, K = 10."""
    regret(large(nodes), horizon, runs, seed)


TABLES: dict[str, Callable[..., None]] = {
    "speed": speed,
    "karate": on_karate,
    "candidates": on_candidates,
    "large": on_large,
}

QUICK: dict[str, dict[str, Any]] = {
    "speed": {"seconds": 0.02, "nodes": QUICK_NODES},
    "karate": {"horizon": 200},
    "candidates": {"horizon": 200, "nodes": QUICK_NODES, "candidates": QUICK_CANDIDATES},
    "large": {"horizon": 200, "nodes": QUICK_NODES},
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--seed", type=int, default=77)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--picture", type=Path, help="file for the picture of `karate`")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that the benchmark works")
    args = parser.parse_args(arguments)
    more: dict[str, Any] = dict(QUICK[args.table]) if args.quick else {}
    if args.table == "karate":
        more["picture"] = args.picture
    TABLES[args.table](args.seed, args.runs, **more)


if __name__ == "__main__":
    main()
