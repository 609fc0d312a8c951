"""Expected rewards of subsets: exact where possible, else by Monte Carlo with a standard error.

| reward | arms | how |
| --- | --- | --- |
| mean, sum, cross-selling | any | closed form, from the arms' first two moments |
| of the number that pay | Bernoulli | the exact distribution of that number |
| maximum, minimum | continuous | quadrature of the product of the arms' cdfs or survival functions, to 1e-10 |
| maximum, minimum | Empirical | the same product, a step function: an exact sum |
| any | few outcomes | all outcomes |
| any | any | Monte Carlo, with the same draws of an arm in every subset |
| any | Correlated | the number that pay as above, the arms' means for a mean or sum, else Monte Carlo |
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy as np

from kofn.core import FloatArray, IntArray, Subset
from kofn.core.subsets import subset_blocks
from kofn.lab.problems.arms import CELLS, Arms, blocks
from kofn.lab.problems.distributions import Empirical
from kofn.lab.problems.sampling import CorrelatedCountSampler, CountSampler, OutcomeSampler, Sampler
from kofn.lab.rewards import Reward, cross_selling, maximum, mean, minimum, total

MONTE_CARLO_PLAYS = 2**16
"""Plays behind a Monte Carlo value. Four times as many halve its standard error and take four times as long."""
_SEED = 20210316  # fixed, so that Monte Carlo values are the same in every process
_TOLERANCE = 1e-11
"""Error allowed per panel of a quadrature, absolute. A lower tolerance makes more panels."""


class Expectation(Protocol):
    """Computes expected rewards of subsets."""

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the expected reward of each row."""


def choose_expectation(arms: Arms, reward: Reward, k: int, sampler: Sampler) -> Expectation:
    """Return the first way of the table above that fits."""
    if isinstance(sampler, CorrelatedCountSampler):
        return sampler
    if reward in (mean, total):
        return MeanValue(arms, times=k if reward == total else 1)
    if not arms.independent:
        return JointMonteCarlo(arms, reward)
    if reward == cross_selling:
        return CrossSellingValue(arms)
    if isinstance(sampler, CountSampler):
        return sampler
    if reward in (maximum, minimum):
        if arms.continuous:
            return CurveProduct(arms, k, largest=reward == maximum)
        if isinstance(arms, Empirical):
            return StepProduct(arms, largest=reward == maximum)
    if isinstance(sampler, OutcomeSampler):
        return sampler
    return MonteCarlo(arms, reward)


class MeanValue:
    """The expected mean, or with `times=K` the expected sum: the mean of the arms' means, times that number."""

    def __init__(self, arms: Arms, times: int = 1) -> None:
        self._arms, self._times = arms, times

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the expected mean of each row, times `times`."""
        return in_blocks(lambda rows: self._times * self._arms.mean[rows].mean(axis=1), subsets)


class CrossSellingValue:
    """E sum of X_i X_j over i <= j: independent arms have E X_i X_j = E X_i E X_j."""

    def __init__(self, arms: Arms) -> None:
        self._arms = arms

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the expected cross-selling reward of each row."""
        return in_blocks(self._rows, subsets)

    def _rows(self, subsets: IntArray) -> FloatArray:
        k = subsets.shape[1]
        first, second = self._arms.mean[subsets], self._arms.second_moment[subsets]
        total = first.sum(axis=1)
        pairs = (total * total - (first * first).sum(axis=1)) / 2
        return np.asarray(2 * (second.sum(axis=1) + pairs) / (k * (k + 1)))


def best_subset(
    value: Callable[[IntArray], FloatArray], n_arms: int, k: int, only: Callable[[IntArray], IntArray] | None = None
) -> Subset:
    """Return the subset with the highest value, by trying all, or the rows that `only` keeps; of equals, the first."""
    best, top = (), -math.inf
    for block in subset_blocks(n_arms, k):
        rows = block if only is None else only(block)
        values = value(rows) if len(rows) else np.array([-math.inf])
        leader = int(np.argmax(values))
        if values[leader] > top:
            best, top = tuple(rows[leader].tolist()), float(values[leader])
    return best


def top_subset(scores: FloatArray | IntArray, k: int) -> Subset:
    """Return the K arms with the highest scores; of equal ones, the first."""
    return tuple(sorted(np.argsort(-scores, kind="stable")[:k].tolist()))


def in_blocks(value: Callable[[IntArray], FloatArray], subsets: IntArray, width: int | None = None) -> FloatArray:
    """Return `value` of all rows, computed for about a million cells at a time; a row has `width` cells, or K."""
    if subsets.size * (width or 1) <= CELLS:
        return value(subsets)
    return np.concatenate([value(subsets[part]) for part in blocks(len(subsets), width or subsets.shape[1])])


class _Product:
    """E max = high - integral of the product of the cdfs; E min = low + integral of the product of the survivals."""

    def __init__(self, arms: Arms, *, largest: bool) -> None:
        self.arms, self.largest = arms, largest
        self.curve = arms.cdf if largest else arms.survival

    def finish(self, integral: FloatArray) -> FloatArray:
        return self.arms.high - integral if self.largest else self.arms.low + integral

    def product(self, subsets: IntArray, x: FloatArray, table: FloatArray | None) -> FloatArray:
        """Return the product of the curves at each x, a row per subset; `table` holds the curves of all arms."""
        if table is None:
            used, places = np.unique(subsets, return_inverse=True)
            table, subsets = self.curve(x, used), places.reshape(subsets.shape)
        product = table[subsets[:, 0]]
        for place in range(1, subsets.shape[1]):
            product *= table[subsets[:, place]]
        return product


class CurveProduct(_Product):
    """The expected maximum or minimum of continuous arms, by Gauss-Kronrod quadrature on panels that fit the arms.

    The panels are chosen once, so that the value of a subset does not depend on which others are computed with it. A
    row for which they are too coarse gets its own panels.
    """

    def __init__(self, arms: Arms, k: int, *, largest: bool) -> None:
        super().__init__(arms, largest=largest)
        self._k = k

    @cached_property
    def _panels(self) -> FloatArray:
        """The edges of panels that resolve the curves of up to 128 arms, alone and to the power K."""
        some = np.unique(np.linspace(0, self.arms.n_arms - 1, 128).astype(int))

        def curves(x: FloatArray) -> FloatArray:
            one = self.curve(x, some)
            return np.concatenate([one, one**self._k])

        return refine(curves, np.linspace(self.arms.low, self.arms.high, 9))

    @cached_property
    def _nodes(self) -> FloatArray:
        return nodes(self._panels)

    @cached_property
    def _table(self) -> FloatArray | None:
        return self.curve(self._nodes) if self.arms.n_arms * self._nodes.size <= 4 * CELLS else None

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the expected extreme of each row, to 1e-10."""
        width = self._nodes.size * (1 if self._table is not None else self._k)
        return in_blocks(self._rows, subsets, width)

    def _rows(self, subsets: IntArray) -> FloatArray:
        if not len(subsets):
            return np.empty(0)
        fine, coarse = integrals(self.product(subsets, self._nodes, self._table), self._panels)
        found = fine.sum(axis=1)
        for row in np.flatnonzero((np.abs(fine - coarse) > _TOLERANCE).any(axis=1)).tolist():
            found[row] = self._alone(subsets[row : row + 1])
        return self.finish(found)

    def _alone(self, subset: IntArray) -> float:
        panels = refine(lambda x: self.product(subset, x, None), self._panels)
        fine, _ = integrals(self.product(subset, nodes(panels), None), panels)
        return float(fine.sum())


class StepProduct(_Product):
    """The expected maximum or minimum of Empirical arms: an exact sum over the steps of the product."""

    arms: Empirical

    @cached_property
    def _points(self) -> FloatArray:
        return self.arms.points()

    @cached_property
    def _table(self) -> FloatArray:
        return self.curve(self._inner(self._points))

    def _inner(self, points: FloatArray) -> FloatArray:
        """Return where each step is evaluated: a cdf at its left end, a survival P(X >= x) at its right end."""
        return points[:-1] if self.largest else points[1:]

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the exact expected extreme of each row."""
        if self._points.size * self.arms.n_arms > 4 * CELLS:
            return np.array([self._alone(subsets[row : row + 1]) for row in range(len(subsets))])
        return in_blocks(self._rows, subsets, self._points.size)

    def _rows(self, subsets: IntArray) -> FloatArray:
        x = self._points
        return self.finish(self.product(subsets, self._inner(x), self._table) @ np.diff(x))

    def _alone(self, subset: IntArray) -> float:
        """Return the value of one row from the samples of its own arms; outside them the product is 0 or 1."""
        x = self.arms.points(subset[0])
        inside = float((self.product(subset, self._inner(x), None) @ np.diff(x))[0])
        return float(x[-1]) - inside if self.largest else float(x[0]) + inside


class SampledExpectation(ABC):
    """Sampled expected rewards: means over random draws, with standard errors."""

    @abstractmethod
    def value(self, subsets: IntArray) -> FloatArray:
        """Return the sampled value of each row; it is the same in every call."""

    @abstractmethod
    def errors(self, subsets: IntArray) -> FloatArray:
        """Return the standard error of each row's value."""


class MonteCarlo(SampledExpectation):
    """The mean of many plays. Each arm has fixed draws, the same in every subset: differences have less noise."""

    def __init__(self, arms: Arms, reward: Reward) -> None:
        self._arms, self._reward = arms, reward

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the average reward of each row."""
        return np.array([self._plays(row).mean() for row in subsets])

    def errors(self, subsets: IntArray) -> FloatArray:
        """Return the standard error of each row's value."""
        return np.array([self._plays(row).std() / MONTE_CARLO_PLAYS**0.5 for row in subsets])

    def _plays(self, subset: IntArray) -> FloatArray:
        plays = np.empty(MONTE_CARLO_PLAYS)
        parts = list(blocks(MONTE_CARLO_PLAYS, len(subset)))
        streams = None if self._table is not None else [_stream(arm) for arm in subset.tolist()]
        for part in parts:
            if self._table is not None:
                x = self._table[subset, part].T
            else:
                x = self._fresh(subset, streams or [], part.stop - part.start)
            plays[part] = self._reward(np.ascontiguousarray(x))
        return plays

    @cached_property
    def _table(self) -> FloatArray | None:
        """All draws of all arms, if they fit into memory, else None."""
        n_arms = self._arms.n_arms
        if n_arms * MONTE_CARLO_PLAYS > 16 * CELLS:
            return None
        return self._fresh(np.arange(n_arms), [_stream(arm) for arm in range(n_arms)], MONTE_CARLO_PLAYS).T

    def _fresh(self, subset: IntArray, streams: list[np.random.Generator], plays: int) -> FloatArray:
        draws = [self._arms.draw(np.full(plays, arm), rng) for arm, rng in zip(subset.tolist(), streams, strict=True)]
        return np.stack(draws, axis=-1)


class JointMonteCarlo(MonteCarlo):
    """The same for arms that must be drawn together: the same random numbers for each place in every subset."""

    def _plays(self, subset: IntArray) -> FloatArray:
        plays, rng = np.empty(MONTE_CARLO_PLAYS), np.random.default_rng(_SEED)
        for part in blocks(MONTE_CARLO_PLAYS, len(subset)):
            rows = np.broadcast_to(subset, (part.stop - part.start, len(subset)))
            plays[part] = self._reward(self._arms.draw(rows, rng))
        return plays


def _stream(arm: int) -> np.random.Generator:
    return np.random.default_rng([_SEED, arm])


# Gauss-Kronrod quadrature, 7 and 15 nodes (QUADPACK's table): two results of different order from the same evaluations.
# Where they differ, a panel is too coarse.

_X = [0.991455371120812639206854697526329, 0.949107912342758524526189684047851, 0.864864423359769072789712788640926]
_X += [0.741531185599394439863864773280788, 0.586087235467691130294144691258150, 0.405845151377397166906606412076961]
_X += [0.207784955007898467600689403773245, 0.0]
_FINE = [0.022935322010529224963732008058970, 0.063092092629978553290700663189204, 0.104790010322250183839876322541518]
_FINE += [0.140653259715525918745189590510238, 0.169004726639267902826583426598550, 0.190350578064785409913256402421014]
_FINE += [0.204432940075298892414161999234649, 0.209482141084727828012999174891714]
_COARSE = [0.0, 0.129484966168869693270611432679082, 0.0, 0.279705391489276667901467779923780, 0.0]
_COARSE += [0.381830050505118944950369775488975, 0.0, 0.417959183673469387755102040816327]
KRONROD_NODES = np.array([-x for x in _X] + _X[-2::-1])
KRONROD_FINE = np.array(_FINE + _FINE[-2::-1])
KRONROD_COARSE = np.array(_COARSE + _COARSE[-2::-1])


def nodes(panels: FloatArray) -> FloatArray:
    """Return the points at which a function is evaluated, panel after panel."""
    middle, half = (panels[1:] + panels[:-1]) / 2, np.diff(panels) / 2
    return np.asarray(middle[:, None] + half[:, None] * KRONROD_NODES).ravel()


def integrals(at_nodes: FloatArray, panels: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the integral over each panel by 15 nodes and by 7, a row per function."""
    shaped = at_nodes.reshape(len(at_nodes), -1, KRONROD_NODES.size)
    half = np.diff(panels) / 2
    return (shaped @ KRONROD_FINE) * half, (shaped @ KRONROD_COARSE) * half


def refine(functions: Callable[[FloatArray], FloatArray], panels: FloatArray) -> FloatArray:
    """Halve the panels where the two results of any function differ; 60 halvings exhaust double precision."""
    for _ in range(60):
        fine, coarse = integrals(functions(nodes(panels)), panels)
        bad = (np.abs(fine - coarse) > _TOLERANCE * 0.1).any(axis=0)
        middle = (panels[1:] + panels[:-1]) / 2
        bad &= (middle > panels[:-1]) & (middle < panels[1:])
        if not bad.any():
            break
        panels = np.sort(np.concatenate([panels, middle[bad]]))
    return panels
