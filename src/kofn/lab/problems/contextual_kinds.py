"""Kinds of random contextual problems: how what is best differs between segments.

Every kind has Bernoulli arms with p uniform in [0, 1] in each segment, segments of random shares, and two attributes,
whose values are crossed as evenly as the number of segments allows: 6 segments are 2 devices in 3 countries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy.special import ndtr

from kofn.core import BadInput, FloatArray, Seed, generator, whole
from kofn.core.checks import unknown_name
from kofn.lab.problems.contextual import ContextualProblem, Segment
from kofn.lab.problems.distributions import Bernoulli
from kofn.lab.problems.problem import Problem
from kofn.lab.rewards import by_name, minimum

SHARED = 0.75
"""The correlation of an arm's effects in two segments of the kind `part`. Higher: segments are more alike."""

DIFFER = 4
"""In the kind `some`, one arm in DIFFER has other effects in each segment."""

EVEN = 3.0
"""Shares are drawn from a Dirichlet distribution with this parameter. Higher: more even traffic."""

Effects: TypeAlias = Callable[[int, tuple[int, int], np.random.Generator], FloatArray]
"""Draws standard normal effects of shape (devices, countries, N)."""


def _alike(n_arms: int, sizes: tuple[int, int], rng: np.random.Generator) -> FloatArray:
    return np.broadcast_to(rng.normal(size=n_arms), (*sizes, n_arms))


def _different(n_arms: int, sizes: tuple[int, int], rng: np.random.Generator) -> FloatArray:
    return rng.normal(size=(*sizes, n_arms))


def _part(n_arms: int, sizes: tuple[int, int], rng: np.random.Generator) -> FloatArray:
    shared = _alike(n_arms, sizes, rng)
    return math.sqrt(SHARED) * shared + math.sqrt(1 - SHARED) * _different(n_arms, sizes, rng)


def _some(n_arms: int, sizes: tuple[int, int], rng: np.random.Generator) -> FloatArray:
    shared, own = _alike(n_arms, sizes, rng), _different(n_arms, sizes, rng)
    differs = rng.permutation(n_arms) < max(1, n_arms // DIFFER)
    return np.where(differs, own, shared)


def _attribute(n_arms: int, sizes: tuple[int, int], rng: np.random.Generator) -> FloatArray:
    return np.broadcast_to(rng.normal(size=(sizes[0], 1, n_arms)), (*sizes, n_arms))


KINDS: dict[str, Effects] = {
    "alike": _alike,
    "different": _different,
    "part": _part,
    "some": _some,
    "attribute": _attribute,
}


def contextual_problem(
    kind: str,
    segments: int,
    n_arms: int,
    k: int,
    reward: str = "maximum",
    seed: Seed = None,
) -> ContextualProblem:
    """Return a random problem with that many segments.

    `alike`: all segments are equal. `different`: they have nothing in common. `part`: what an arm pays is correlated by
    0.75 between segments. `some`: a quarter of the arms differ, the others are equal in all segments. `attribute`: the
    device matters, the country does not.

    >>> problem = contextual_problem("attribute", 6, n_arms=12, k=3, seed=1)
    >>> len(problem.segments), problem.contexts[1], len(set(problem.best_by_segment.values()))
    (6, {'country': 'c1', 'device': 'd0'}, 2)
    """
    if kind not in KINDS:
        raise BadInput(unknown_name("kind of contextual problem", kind, KINDS))
    rng, sizes = generator(seed), crossed(whole("segments", segments))
    shares = rng.dirichlet(np.full(segments, EVEN))
    absent = None if by_name(reward) == minimum else 0.0  # a minimum with an empty place is always 0
    p = ndtr(KINDS[kind](n_arms, sizes, rng)).reshape(segments, n_arms)
    contexts = [{"device": f"d{i}", "country": f"c{j}"} for i in range(sizes[0]) for j in range(sizes[1])]
    return ContextualProblem(
        Segment(context, float(share), Problem(Bernoulli(each), reward, k, absent=absent))
        for context, share, each in zip(contexts, shares, p, strict=True)
    )


def crossed(segments: int) -> tuple[int, int]:
    """Return the numbers of devices and countries: the most even factors, the smaller one first unless it is 1."""
    small = max(each for each in range(1, math.isqrt(segments) + 1) if segments % each == 0)
    return (segments, 1) if small == 1 else (small, segments // small)
