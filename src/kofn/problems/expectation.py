"""Expected rewards of subsets: exact wherever there is a way, else by Monte Carlo with its error.

| reward | arms | how |
| --- | --- | --- |
| mean, cross-selling | any | closed form, from the arms' first two moments |
| of the number that pay | Bernoulli | the exact distribution of that number |
| maximum, minimum | continuous | quadrature of the product of the arms' curves, to 1e-10 |
| maximum, minimum | Empirical | the same product, a step function: an exact sum |
| any | few outcomes | all outcomes |
| any | any | Monte Carlo, the same draws of an arm in every subset |
| any | Correlated | by the number that pay as above, a mean by the arms' means, or else Monte Carlo |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy as np

from kofn.core import FloatArray, IntArray
from kofn.problems.arms import CELLS, Arms, blocks
from kofn.problems.distributions import Empirical
from kofn.problems.sampling import CorrelatedCounts, Counts, Law, Outcomes
from kofn.rewards import Reward, cross_selling, maximum, mean, minimum

MONTE_CARLO_PLAYS = 2**16
_SEED = 20210316  # of all Monte Carlo values, so that they are the same everywhere and always
_TOLERANCE = 1e-11


class Expectation(Protocol):
    """Expected rewards of subsets, and their standard error (0 when exact)."""

    def value(self, subsets: IntArray) -> FloatArray:
        """The expected reward of each row."""


def expectation_of(arms: Arms, reward: Reward, k: int, law: Law) -> Expectation:
    """The first way of the table above that fits."""
    if isinstance(law, CorrelatedCounts):
        return law
    if reward == mean:
        return MeanValue(arms)
    if not arms.independent:
        return JointMonteCarlo(arms, reward)
    if reward == cross_selling:
        return CrossSellingValue(arms)
    if isinstance(law, Counts):
        return law
    if reward in (maximum, minimum):
        if arms.continuous:
            return CurveProduct(arms, k, largest=reward == maximum)
        if isinstance(arms, Empirical):
            return StepProduct(arms, largest=reward == maximum)
    if isinstance(law, Outcomes):
        return law
    return MonteCarlo(arms, reward)


class MeanValue:
    """The mean of the arms' means."""

    def __init__(self, arms: Arms) -> None:
        self._arms = arms

    def value(self, subsets: IntArray) -> FloatArray:
        """The expected mean of each row."""
        return in_blocks(lambda rows: self._arms.mean[rows].mean(axis=1), subsets)


class CrossSellingValue:
    """E sum of X_i X_j over i <= j: independent arms have E X_i X_j = E X_i E X_j."""

    def __init__(self, arms: Arms) -> None:
        self._arms = arms

    def value(self, subsets: IntArray) -> FloatArray:
        """The expected cross-selling reward of each row."""
        return in_blocks(self._rows, subsets)

    def _rows(self, subsets: IntArray) -> FloatArray:
        k = subsets.shape[1]
        first, second = self._arms.mean[subsets], self._arms.second_moment[subsets]
        total = first.sum(axis=1)
        pairs = (total * total - (first * first).sum(axis=1)) / 2
        return np.asarray(2 * (second.sum(axis=1) + pairs) / (k * (k + 1)))


def in_blocks(value: Callable[[IntArray], FloatArray], subsets: IntArray, width: int | None = None) -> FloatArray:
    """`value` of all rows, of about a million cells at a time (a row has `width`, or K)."""
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
        """The product of the curves at each x, a row per subset; `table` has the curves of all arms."""
        if table is None:
            used, places = np.unique(subsets, return_inverse=True)
            table, subsets = self.curve(x, used), places.reshape(subsets.shape)
        product = table[subsets[:, 0]]
        for place in range(1, subsets.shape[1]):
            product *= table[subsets[:, place]]
        return product


class CurveProduct(_Product):
    """The expected maximum or minimum of continuous arms, by Gauss-Kronrod quadrature on panels that fit the arms.

    The panels are chosen once, so that the value of a subset does not depend on what else was asked for; a row for
    which they turn out too coarse gets its own.
    """

    def __init__(self, arms: Arms, k: int, *, largest: bool) -> None:
        super().__init__(arms, largest=largest)
        self._k = k

    @cached_property
    def _panels(self) -> FloatArray:
        """Edges that resolve the curves of some arms, alone and to the power K."""
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
        """The expected extreme of each row, to 1e-10."""
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
    """The expected maximum or minimum of Empirical arms: the product of step functions, added up step by step."""

    arms: Empirical

    @cached_property
    def _points(self) -> FloatArray:
        return self.arms.points()

    @cached_property
    def _table(self) -> FloatArray:
        return self.curve(self._inner(self._points))

    def _inner(self, points: FloatArray) -> FloatArray:
        """Where the product is read off for each step: a cdf at its left end, a survival P(X >= x) at its right."""
        return points[:-1] if self.largest else points[1:]

    def value(self, subsets: IntArray) -> FloatArray:
        """The exact expected extreme of each row."""
        if self._points.size * self.arms.n_arms > 4 * CELLS:
            return np.array([self._alone(subsets[row : row + 1]) for row in range(len(subsets))])
        return in_blocks(self._rows, subsets, self._points.size)

    def _rows(self, subsets: IntArray) -> FloatArray:
        x = self._points
        return self.finish(self.product(subsets, self._inner(x), self._table) @ np.diff(x))

    def _alone(self, subset: IntArray) -> float:
        """One row with the samples of its own arms only; beyond these the product is constant, 0 or 1."""
        x = self.arms.points(subset[0])
        inside = float((self.product(subset, self._inner(x), None) @ np.diff(x))[0])
        return float(x[-1]) - inside if self.largest else float(x[0]) + inside


class Estimated(ABC):
    """Expected rewards that are only known by chance, with their errors."""

    @abstractmethod
    def value(self, subsets: IntArray) -> FloatArray:
        """The estimate of each row: the same whenever it is asked for."""

    @abstractmethod
    def errors(self, subsets: IntArray) -> FloatArray:
        """The standard error of each row's value."""


class MonteCarlo(Estimated):
    """The mean of many plays. Each arm has its own fixed draws, the same in every subset: less noise in differences."""

    def __init__(self, arms: Arms, reward: Reward) -> None:
        self._arms, self._reward = arms, reward

    def value(self, subsets: IntArray) -> FloatArray:
        """The average reward of each row."""
        return np.array([self._plays(row).mean() for row in subsets])

    def errors(self, subsets: IntArray) -> FloatArray:
        """The standard error of each row's value."""
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
        """All draws of all arms, if that is not too much to keep."""
        n_arms = self._arms.n_arms
        if n_arms * MONTE_CARLO_PLAYS > 16 * CELLS:
            return None
        return self._fresh(np.arange(n_arms), [_stream(arm) for arm in range(n_arms)], MONTE_CARLO_PLAYS).T

    def _fresh(self, subset: IntArray, streams: list[np.random.Generator], plays: int) -> FloatArray:
        draws = [self._arms.draw(np.full(plays, arm), rng) for arm, rng in zip(subset.tolist(), streams, strict=True)]
        return np.stack(draws, axis=-1)


class JointMonteCarlo(MonteCarlo):
    """The same for arms that cannot be drawn one by one: the same luck of each place in every subset."""

    def _plays(self, subset: IntArray) -> FloatArray:
        plays, rng = np.empty(MONTE_CARLO_PLAYS), np.random.default_rng(_SEED)
        for part in blocks(MONTE_CARLO_PLAYS, len(subset)):
            rows = np.broadcast_to(subset, (part.stop - part.start, len(subset)))
            plays[part] = self._reward(self._arms.draw(rows, rng))
        return plays


def _stream(arm: int) -> np.random.Generator:
    return np.random.default_rng([_SEED, arm])


# Gauss-Kronrod quadrature, 7 and 15 nodes (QUADPACK's table): two answers of different order from the same evaluations,
# so their difference tells where the panels are too coarse.

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
    """The points at which a function is needed, panel after panel."""
    middle, half = (panels[1:] + panels[:-1]) / 2, np.diff(panels) / 2
    return np.asarray(middle[:, None] + half[:, None] * KRONROD_NODES).ravel()


def integrals(at_nodes: FloatArray, panels: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The integral over each panel by 15 nodes and by 7, a row per function."""
    shaped = at_nodes.reshape(len(at_nodes), -1, KRONROD_NODES.size)
    half = np.diff(panels) / 2
    return (shaped @ KRONROD_FINE) * half, (shaped @ KRONROD_COARSE) * half


def refine(functions: Callable[[FloatArray], FloatArray], panels: FloatArray) -> FloatArray:
    """The panels, halved where the two answers of any function differ; 60 halvings are the end of double precision."""
    for _ in range(60):
        fine, coarse = integrals(functions(nodes(panels)), panels)
        bad = (np.abs(fine - coarse) > _TOLERANCE * 0.1).any(axis=0)
        middle = (panels[1:] + panels[:-1]) / 2
        bad &= (middle > panels[:-1]) & (middle < panels[1:])
        if not bad.any():
            break
        panels = np.sort(np.concatenate([panels, middle[bad]]))
    return panels
