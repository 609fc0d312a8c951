"""Random problems from the applications that the paper names, for use in a `Setting`.

They are not part of the suite, whose problems stay the same from version to version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kofn.core import BadInput
from kofn.lab.problems import (
    AbstractProblem,
    Bernoulli,
    Graph,
    Influence,
    Interactions,
    Pareto,
    Recommendations,
    storage,
)


@dataclass(frozen=True)
class Application:
    """A family of random problems, made from N, K and a generator."""

    name: str
    description: str
    problem: Callable[[int, int, np.random.Generator], AbstractProblem]


def _karate(n_arms: int, k: int, rng: np.random.Generator) -> AbstractProblem:
    del rng  # there is one karate club
    if n_arms != 34:
        raise BadInput(f"the karate club has 34 people, so n_arms must be 34; got {n_arms}: use --arms 34")
    return Influence(Graph.karate(), k, probability=0.1)


def _influence(n_arms: int, k: int, rng: np.random.Generator) -> AbstractProblem:
    return Influence(Graph.generated(n_arms, min(3, n_arms - 1), rng), k, probability=0.1)


def _threshold(n_arms: int, k: int, rng: np.random.Generator) -> AbstractProblem:
    graph = Graph.generated(n_arms, min(3, n_arms - 1), rng)
    return Influence(graph, k, model="threshold", probability="in-degree")


def _storage(n_arms: int, k: int, rng: np.random.Generator) -> AbstractProblem:
    fastest, tail = rng.uniform(10, 60, n_arms), rng.uniform(1.2, 4.0, n_arms)
    return storage(Pareto(fastest, tail, timeout=1_000.0), k)


def _interactions(n_arms: int, k: int, rng: np.random.Generator) -> AbstractProblem:
    worth = np.triu(rng.uniform(-0.5, 1.0, (n_arms, n_arms)), 1)
    worth += worth.T
    np.fill_diagonal(worth, 1.0)
    return Interactions(Bernoulli(rng.random(n_arms)), worth, k)


def _recommendations(n_arms: int, k: int, rng: np.random.Generator) -> AbstractProblem:
    return Recommendations(rng.uniform(0, 0.5, n_arms), k, patience=0.8)


def _catalogue(n_arms: int, k: int, rng: np.random.Generator) -> AbstractProblem:
    return Recommendations(rng.uniform(0, 0.5, n_arms), k, patience=0.8, order="number")


APPLICATIONS = {
    each.name: each
    for each in (
        Application("karate", "independent cascades in the karate club, probability 0.1 per edge", _karate),
        Application("influence", "independent cascades in a generated graph, probability 0.1 per edge", _influence),
        Application("influence-threshold", "linear thresholds in a generated graph, weight 1 / in-degree", _threshold),
        Application("storage", "the slowest of K servers with Pareto latencies, in ms up to 1,000", _storage),
        Application("interactions", "cross-selling with a random matrix, -0.5 to 1 per pair", _interactions),
        Application("recommendations", "the first useful item of a sorted list, patience 0.8", _recommendations),
        Application("catalogue", "the first useful item of a list in a fixed order, patience 0.8", _catalogue),
    )
}
