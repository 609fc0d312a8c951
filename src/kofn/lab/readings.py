"""Readings of the paper's cross-selling figure: what "exponential with parameter lambda" may have meant.

The paper draws X = (2/pi) arctan(Y), Y exponential with a parameter, and specifies neither how the parameters of the
figure were drawn nor, beyond doubt, what the parameter is. Each reading makes random problems; they are compared with
the published curves by `kofn paper cross-selling --reading NAME`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadInput, FloatArray, IntArray, Seed, generator
from kofn.core.checks import unknown_name
from kofn.lab.problems import AbstractProblem, ArctanExponential, Problem
from kofn.lab.problems.sampling import Sums

DEFAULT = "scale"
"""The reading of `kofn paper`, of the family cross-selling and of the suite."""


@dataclass(frozen=True)
class Reading:
    """How the scales of the arms follow from uniform numbers in (0, 1], and `factor`: the reward times `factor` / K."""

    name: str
    description: str
    scale: Callable[[FloatArray], FloatArray]
    factor: float | None = None

    def problem(self, n_arms: int, k: int, seed: Seed) -> AbstractProblem:
        """Make a random instance; the same seed has the same uniform numbers in every reading."""
        arms = ArctanExponential(self.scale(1 - generator(seed).random(n_arms)))
        problem = Problem(arms, "cross-selling", k, absent=0.0)
        return problem if self.factor is None else ScaledProblem(problem, self.factor / k)


READINGS = {
    reading.name: reading
    for reading in (
        Reading(DEFAULT, "the parameter is the scale, uniform in (0, 10]", lambda u: 10 * u),
        Reading("rate", "the parameter is the rate, uniform in (0, 10]", lambda u: 1 / (10 * u)),
        Reading("scale-1", "the parameter is the scale, uniform in (0, 1]", lambda u: u),
        Reading("rate-1", "the parameter is the rate, uniform in (0, 1]", lambda u: 1 / u),
        Reading("factor", "scale-1, with the reward multiplied by 3/K", lambda u: u, factor=3.0),
    )
}


def reading_named(name: str) -> Reading:
    """Return the reading of that name."""
    try:
        return READINGS[name]
    except (KeyError, TypeError):
        raise BadInput(unknown_name("reading", name, READINGS)) from None


@dataclass(frozen=True)
class ReadingInstances:
    """A fresh problem of a reading for each seed, with the name that archives use."""

    reading: str
    n_arms: int
    k: int

    @property
    def __name__(self) -> str:
        return f"cross-selling-{self.reading}/N{self.n_arms}-K{self.k}"

    def __call__(self, seed: np.random.SeedSequence) -> AbstractProblem:
        """Make the problem of a run."""
        return reading_named(self.reading).problem(self.n_arms, self.k, seed)


class ScaledProblem(AbstractProblem):
    """A problem with the rewards of another, times a factor. Policies do not know the factor: they expect [0, 1]."""

    def __init__(self, problem: Problem, factor: float) -> None:
        super().__init__(problem.n_arms, problem.k, best=problem.best, fewer=problem.fewer)
        self._problem, self._factor = problem, factor

    def make_sampler(self) -> _Scaled:
        """Return the scaled draws."""
        return _Scaled(self._problem, self._factor)

    def make_expectation(self) -> _Scaled:
        """Return the scaled expected rewards."""
        return _Scaled(self._problem, self._factor)


class _Scaled:
    """Draws and expected rewards of a problem, times a factor."""

    def __init__(self, problem: Problem, factor: float) -> None:
        self._sampler, self._expectation, self._factor = problem.make_sampler(), problem.make_expectation(), factor

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """Draw the sums of a row and scale them."""
        total, squares = self._sampler.play(subsets, times, rng)
        return self._factor * total, self._factor**2 * squares

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the scaled expected reward of each row."""
        return self._factor * self._expectation.value(subsets)
