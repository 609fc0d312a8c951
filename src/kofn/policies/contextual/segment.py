"""What is known about one segment alone: its evidence, its incumbent and its alarms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from kofn.core import FloatArray, IntArray, Policy, subset_of
from kofn.core.contexts import context_of
from kofn.core.fields import Fields, Part, any_length, integer, integers, numbers, part, symmetric, text
from kofn.policies.thompson.alarms import Alarms


@dataclass
class SegmentEvidence(Part):
    """One segment. Its evidence is exp(-b' precision b / 2 + b' vector), as a function of its coordinates b.

    Coordinate 0 is the intercept, the others are the effects of the contenders. Of the other arms, the evidence has a
    number for each (`arm_precision`, `arm_vector`); it is 0 for contenders, and empty if all arms are contenders.
    """

    fields = Fields(
        key=text(),
        plays=integer(),
        incumbent=integers(any_length),
        precision=symmetric(np.tril_indices),
        vector=numbers(any_length),
        arm_precision=numbers(any_length, least=0.0),
        arm_vector=numbers(any_length),
        alarms=part(Alarms),
    )

    key: str
    plays: int
    incumbent: IntArray  # empty until its first rewards are learned
    precision: FloatArray
    vector: FloatArray
    arm_precision: FloatArray
    arm_vector: FloatArray
    alarms: Alarms = field(default_factory=Alarms)

    @classmethod
    def new(cls, key: str, coordinates: int, arms: int) -> Self:
        """Return a segment without rewards, and without an incumbent."""
        square, none = np.zeros((coordinates, coordinates)), np.zeros(arms)
        return cls(key, 0, np.empty(0, np.int64), square, np.zeros(coordinates), none, none.copy())

    # What the rewards say counts less: the segment's means stay, as they would be if it were the only one. If the
    # pooled means stayed, the evidence would have to say more clearly how the segment differs from the others.

    def means(self, prior: FloatArray) -> FloatArray:
        """Return the means of the coordinates by the evidence of this segment alone; `prior` is their precision."""
        return np.asarray(np.linalg.solve(self.precision + np.diag(prior), self.vector))

    def keep(self, means: FloatArray, prior: FloatArray) -> None:
        """Set the evidence so that it has these means alone."""
        self.vector = self.precision @ means + prior * means

    def discount(self, factor: float, prior: FloatArray) -> None:
        """Divide what the rewards so far count by `factor`."""
        means, self.precision = self.means(prior), self.precision / factor
        self.arm_precision, self.arm_vector = self.arm_precision / factor, self.arm_vector / factor
        self.keep(means, prior)

    def rescale(self, factor: float) -> None:
        """Multiply all effects by `factor`."""
        self.precision, self.vector = self.precision / factor**2, self.vector / factor
        self.arm_precision, self.arm_vector = self.arm_precision / factor**2, self.arm_vector / factor

    def only(self, coordinates: IntArray, variance: float) -> tuple[FloatArray, FloatArray]:
        """Return precision and vector of the evidence about these coordinates; the others have this prior variance."""
        gone = np.setdiff1d(np.arange(len(self.vector)), coordinates)
        among = self.precision[np.ix_(gone, gone)] + np.eye(len(gone)) / variance
        both = np.column_stack([self.precision[np.ix_(gone, coordinates)], self.vector[gone]])
        through = self.precision[np.ix_(coordinates, gone)] @ np.linalg.solve(among, both)
        precision = self.precision[np.ix_(coordinates, coordinates)] - through[:, :-1]
        return (precision + precision.T) / 2, self.vector[coordinates] - through[:, -1]

    def renumber(self, columns: IntArray, arms: IntArray, chosen: IntArray, variance: float) -> None:
        """Change the numbers of arms, and which of them are contenders.

        `arms` has the number that each arm had before (-1 if it is new), `columns` the coordinate that each of the arms
        before had (0 if none), and `chosen` the contenders. `variance` is the prior's of an effect.
        """
        before = np.where(arms >= 0, columns[arms], 0)  # the coordinate of each arm before
        stay = chosen[before[chosen] > 0]
        precision, vector = np.zeros((len(chosen) + 1,) * 2), np.zeros(len(chosen) + 1)
        at = np.concatenate([[0], 1 + np.searchsorted(chosen, stay)])
        precision[np.ix_(at, at)], vector[at] = self.only(np.concatenate([[0], before[stay]]), variance)
        alone, of_arms = np.zeros(len(arms)), np.zeros(len(arms))
        if len(self.arm_precision):
            known = arms >= 0
            alone[known], of_arms[known] = self.arm_precision[arms[known]], self.arm_vector[arms[known]]
        if len(leave := np.setdiff1d(np.flatnonzero(before), chosen)):
            covariance = np.linalg.inv(self.precision + np.eye(len(self.vector)) / variance)
            of_each = covariance.diagonal()[before[leave]]
            alone[leave] = np.maximum(1 / of_each - 1 / variance, 0.0)
            of_arms[leave] = (covariance @ self.vector)[before[leave]] / of_each
        come = np.setdiff1d(chosen, stay)
        at = 1 + np.searchsorted(chosen, come)
        precision[at, at], vector[at] = alone[come], of_arms[come]
        alone[chosen], of_arms[chosen] = 0.0, 0.0
        self.precision, self.vector = precision, vector
        rest = len(arms) > len(chosen)
        self.arm_precision, self.arm_vector = (alone, of_arms) if rest else (np.empty(0), np.empty(0))

    def _loaded(self, policy: Policy) -> None:
        context_of(self.key)
        self.incumbent = np.array(subset_of(self.incumbent.tolist(), policy.n_arms, policy.k))
