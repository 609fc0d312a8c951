"""Partial pooling: one Gaussian model of the intercept and the effects of all segments.

Coordinate 0 of a segment is its intercept, the others are the effects of the arms. Each coordinate of a segment is a
sum of components: one that all segments share, one for each value of an attribute, and one of the segment's own.
Components are independent, with mean 0; their shares of the variance are learned (`log_evidence`). What the rewards
of a segment say is its evidence: exp(-b' precision b / 2 + b' vector) as a function of its coordinates b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from kofn.core import FloatArray, IntArray
from kofn.core.contexts import context_of

ALL, OWN = "all", "own"
"""The kinds of components beside attributes: shared by all segments, and a segment's own. No attribute's components
are called so: their kinds begin with a space."""


MOST_COMPONENTS = 24
"""Most components that segments share. Beyond that, values of an attribute are known by their segments only. Higher:
slower, with the third power."""

ARMS_AT_ONCE = 4096
"""Most arms without a dense covariance that are pooled at once. Higher: more memory, fewer steps."""


@dataclass(frozen=True)
class Design:
    """Which components the segments have: row s of `member` has the numbers of its components, one of each kind.

    `kinds` are the kinds of components, of which the last is OWN; `kind` has the kind of each numbered component.
    """

    kinds: tuple[str, ...]
    kind: IntArray
    member: IntArray

    @property
    def segments(self) -> int:
        """The number of segments."""
        return len(self.member)

    @cached_property
    def has(self) -> FloatArray:
        """A row for each segment and a column for each component: 1 if the segment has it, else 0."""
        has = np.zeros((len(self.member), len(self.kind)))
        np.put_along_axis(has, self.member, 1.0, axis=1)
        return has


def design_of(keys: Sequence[str]) -> Design:
    """Return the components of these segments.

    An attribute has components if it has several values, and at most half as many as there are segments: otherwise its
    values are nearly the segments themselves. Attributes with few values come first.
    """
    count = len(keys)
    if count == 1:
        return Design((OWN,), np.empty(0, np.int64), np.empty((1, 0), np.int64))
    contexts = [context_of(key) for key in keys]
    kinds, columns, kind = [ALL], [np.zeros(count, np.int64)], [0]
    values_of = {
        name: [context.get(name) for context in contexts]
        for name in sorted({name for context in contexts for name in context})
    }
    for name, values in sorted(values_of.items(), key=lambda each: len(set(each[1]))):
        number = {value: at for at, value in enumerate(dict.fromkeys(values))}
        if 1 < len(number) <= min(count // 2, MOST_COMPONENTS - len(kind)):
            columns.append(len(kind) + np.array([number[value] for value in values]))
            kind += [len(kinds)] * len(number)
            kinds.append(f" {name}")
    return Design((*kinds, OWN), np.array(kind), np.stack(columns, axis=1))


class Pool:
    """The posterior of all segments, given their evidence.

    `variance` has a row for each kind of components and a column for each coordinate.
    """

    def __init__(self, design: Design, variance: FloatArray, precision: FloatArray, vector: FloatArray) -> None:
        self.design, self.precision, self.vector = design, precision, vector
        self._variance, self._own = variance, 1 / variance[-1]

    def with_variance(self, variance: FloatArray) -> Pool:
        """Return the posterior with other variances of components; what they do not change is not computed again."""
        other = Pool(self.design, variance, self.precision, self.vector)
        if np.array_equal(other._own, self._own):
            for name in ("_given", "_pulled", "_said", "_said_vector", "_own_evidence"):
                vars(other)[name] = getattr(self, name)
        return other

    def with_vector(self, vector: FloatArray) -> Pool:
        """Return the posterior with another vector of the evidence; covariances are not computed again."""
        other = Pool(self.design, self._variance, self.precision, vector)
        for name in ("_given", "_said", "_factor", "_component_covariance", "covariances"):
            if name in vars(self):
                vars(other)[name] = vars(self)[name]
        return other

    @cached_property
    def _given(self) -> FloatArray:
        """Covariance of each segment's coordinates, given its components but its own."""
        precision = self.precision.copy()
        at = np.arange(precision.shape[1])
        precision[:, at, at] += self._own
        return np.asarray(np.linalg.inv(precision), float)

    @cached_property
    def _pulled(self) -> FloatArray:
        """Means of each segment's coordinates, if the components but its own are 0."""
        return _times(self._given, self.vector)

    @cached_property
    def _said(self) -> FloatArray:
        """Precision of the evidence about all components but own ones, its upper triangle of blocks."""
        has, count, size = self.design.has, len(self.design.kind), self.precision.shape[1]
        evidence = -self._own[:, None] * self._given * self._own
        at = np.arange(size)
        evidence[:, at, at] += self._own
        first, second = np.triu_indices(count)  # the Cholesky factor needs one triangle
        blocks = np.zeros((count, count, size, size))
        blocks[first, second] = np.tensordot((has[:, first] * has[:, second]).T, evidence, 1)
        return blocks.transpose(0, 2, 1, 3).reshape(count * size, count * size)

    @cached_property
    def _said_vector(self) -> FloatArray:
        """Vector of the evidence about all components but own ones."""
        return np.asarray((self.design.has.T @ (self._pulled * self._own)).ravel())

    @cached_property
    def _factor(self) -> FloatArray:
        """Cholesky factor of the precision of all components but own ones, lower triangular."""
        precision = self._said.copy()
        precision.flat[:: len(precision) + 1] += 1 / self._variance[self.design.kind].ravel()
        factor, failed = dpotrf(precision.T, lower=1, clean=1, overwrite_a=1)  # symmetric; .T is in LAPACK's order
        if failed:
            raise np.linalg.LinAlgError("the precision of the components is not positive definite")
        return np.asarray(factor, float)

    @cached_property
    def _component_means(self) -> FloatArray:
        """Means of all components but own ones, a row for each."""
        means = dpotrs(self._factor, self._said_vector, lower=1)[0]
        return np.asarray(means, float).reshape(len(self.design.kind), -1)

    @cached_property
    def _component_covariance(self) -> FloatArray:
        """Covariance of all components but own ones."""
        lower: FloatArray = dpotri(self._factor, lower=1)[0]
        covariance = lower + lower.T
        covariance.flat[:: len(covariance) + 1] /= 2
        return covariance

    @cached_property
    def _shared_means(self) -> FloatArray:
        """Means of the sum of each segment's components but its own."""
        if not len(self.design.kind):
            return np.zeros_like(self.vector)
        return self.design.has @ self._component_means

    @cached_property
    def means(self) -> FloatArray:
        """The posterior means of the coordinates, a row for each segment."""
        return self._pulled + _times(self._given, self._own * self._shared_means)

    @cached_property
    def covariances(self) -> FloatArray:
        """The posterior covariance of the coordinates of each segment."""
        size, shared = self.precision.shape[1], np.zeros_like(self.precision)
        if len(self.design.kind):
            blocks = self._component_covariance.reshape(len(self.design.kind), size, -1, size).swapaxes(1, 2)
            for first in self.design.member.T:
                for second in self.design.member.T:
                    shared += blocks[first, second]
        through = self._given * self._own
        return np.asarray(self._given + through @ shared @ through.transpose(0, 2, 1))

    def draws(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return draws of the coordinates of all segments together, of shape (draws, segments, coordinates)."""
        segments, size = self.vector.shape
        own = np.linalg.cholesky(self._given)
        drawn = self._pulled + np.einsum("sij,dsj->dsi", own, rng.standard_normal((count, segments, size)))
        if len(self.design.kind):
            root = np.linalg.cholesky(self._component_covariance)
            z = self._component_means.ravel() + rng.standard_normal((count, len(root))) @ root.T
            shared = np.einsum("sc,dci->dsi", self.design.has, z.reshape(count, -1, size))
            drawn += np.einsum("sij,dsj->dsi", self._given, self._own * shared)
        return np.asarray(drawn)

    @cached_property
    def _own_evidence(self) -> float:
        """Twice the part of `log_evidence` that depends on own components only."""
        total = float((self.vector * self._pulled).sum()) + float(np.linalg.slogdet(self._given)[1].sum())
        return total + self.design.segments * float(np.log(self._own).sum())

    @cached_property
    def log_evidence(self) -> float:
        """Logarithm of the probability of the rewards, up to a constant that does not depend on the variances."""
        total = self._own_evidence
        if len(self.design.kind):
            total += float(self._said_vector @ self._component_means.ravel())
            total -= 2 * float(np.log(self._factor.diagonal()).sum())
            total -= float(np.log(self._variance[self.design.kind]).sum())
        return total / 2


def prior_covariance(design: Design, variance: FloatArray) -> FloatArray:
    """Return the covariance of one coordinate among segments; `variance` has a number for each kind of components."""
    among = np.diag(np.full(design.segments, variance[-1]))
    for kind, each in enumerate(variance[:-1].tolist()):
        among += each * (design.member[:, None, kind] == design.member[None, :, kind])
    return among


def pooled_arms(
    design: Design, variance: FloatArray, precision: FloatArray, vector: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return means and variances of arms that are independent of each other, a row for each segment.

    `precision` and `vector` have the evidence about each arm by segment, `variance` a number for each kind.
    """
    prior = prior_covariance(design, variance)
    means, variances = np.zeros_like(vector), np.repeat(prior.diagonal()[:, None], vector.shape[1], axis=1)
    played = np.flatnonzero(precision.any(axis=0))
    inverse = np.linalg.inv(prior)
    for arms in np.array_split(played, -(-len(played) // ARMS_AT_ONCE) or 1):
        total = np.repeat(inverse[None], len(arms), axis=0)
        at = np.arange(design.segments)
        total[:, at, at] += precision[:, arms].T
        covariance = np.linalg.inv(total)
        means[:, arms] = _times(covariance, vector[:, arms].T).T
        variances[:, arms] = covariance[:, at, at].T
    return means, variances


def _times(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return the product of each matrix with its vector."""
    return np.asarray(np.einsum("sij,sj->si", matrices, vectors), float)
