"""What is known about a new arm because of its group: an empirical-Bayes prior from the existing arms.

The effect of an arm = mean of its group + its own part. Group means vary around the mean of all arms, with variance
`between`; arms vary around the mean of their group, with variance `within`. Both are estimated by maximum likelihood
from the policy's posterior, for all groups at once. If groups do not matter, `between` is about 0, and a new arm
starts as an average one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadInput, FloatArray, IntArray
from kofn.core.checks import shown

LEAST_KNOWN = 0.1
"""Part of an arm's prior variance that its plays must have explained before the arm counts. Higher: fewer arms count,
and those are known better."""

STEPS, SMALLEST = 24, 1e-3
"""Variances that are tried, in equal steps of their logarithm from SMALLEST to 1, relative to the prior's. Higher
STEPS: slower, more precise."""

FLOOR = 0.1
"""Least variance of a new arm, relative to the prior's. Higher: a new arm is tried longer, whatever its group is."""


class Start(NamedTuple):
    """The prior of new arms: mean and variance of the effect of each."""

    mean: FloatArray
    variance: FloatArray


def group_numbers(groups: object, n_arms: int) -> NDArray[np.int64]:
    """Return the group of each arm as a number from 0 on; -1 for no group."""
    if isinstance(groups, str) or not isinstance(groups, Sequence | np.ndarray) or len(groups) != n_arms:
        raise BadInput(
            f"groups must be a list of {n_arms} groups, one for each arm; None for no group: {shown(groups)}"
        )
    number: dict[Hashable, int] = {}
    return np.array([-1 if each is None else number.setdefault(each, len(number)) for each in groups], np.int64)


def start_of_new(
    mean: FloatArray, variance: FloatArray, prior_variance: float, group: IntArray, new_group: IntArray
) -> Start:
    """Return the prior of new arms in these groups, from the posterior of the arms that are there.

    A new arm without a group, or in one of which nothing is known, keeps the policy's own prior.
    """
    start = Start(np.zeros(len(new_group)), np.full(len(new_group), prior_variance))
    known = np.flatnonzero((group >= 0) & (variance < (1 - LEAST_KNOWN) * prior_variance))
    if len(known) < FEWEST or not np.isin(new_group, group[known]).any():
        return start
    # The posterior without the policy's own prior, N(0, prior_variance): what the plays say.
    part = 1 - variance[known] / prior_variance
    effects = _Effects(mean[known] / part, variance[known] / part, group[known])
    within, between, centre = effects.fitted(prior_variance)
    for which in np.unique(new_group[np.isin(new_group, group[known])]).tolist():
        of_group, left = effects.mean_of(which, within, between, centre)
        new = new_group == which
        start.mean[new] = of_group
        start.variance[new] = np.clip(left + within, FLOOR * prior_variance, prior_variance)
    return start


FEWEST = 4
"""Fewest arms of which something is known. With fewer, new arms keep the policy's own prior."""


class _Effects:
    """Measured effects with errors, and the groups of their arms."""

    def __init__(self, value: FloatArray, error: FloatArray, group: IntArray) -> None:
        self.value, self.error, self.group = value, error, group
        _, self.place = np.unique(group, return_inverse=True)

    def fitted(self, scale: float) -> tuple[float, float, float]:
        """Return the variances within and between groups, and the mean of all, of the highest likelihood."""
        sizes = scale * np.geomspace(SMALLEST, 1.0, STEPS)
        tried = [(within, between) for within in sizes.tolist() for between in [0.0, *sizes.tolist()]]
        found = [(self._likelihood(*each), *each) for each in tried]
        (_, centre), within, between = max(found)
        return within, between, centre

    def _likelihood(self, within: float, between: float) -> tuple[float, float]:
        """Return the log likelihood, with the best mean of all arms, and that mean."""
        precision = 1 / (within + self.error)
        total = np.bincount(self.place, precision)  # of each group
        average = np.bincount(self.place, precision * self.value) / total
        weight = 1 / (between + 1 / total)  # precision of each group's average, as a measurement of the mean of all
        centre = float((weight * average).sum() / weight.sum())
        apart = (precision * (self.value - average[self.place]) ** 2).sum() + (weight * (average - centre) ** 2).sum()
        determinant = -np.log(precision).sum() + np.log1p(between * total).sum() + np.log(weight.sum())
        return -0.5 * float(apart + determinant), centre

    def mean_of(self, group: int, within: float, between: float, centre: float) -> tuple[float, float]:
        """Return the mean of a group and its variance, after its arms are known."""
        own = self.group == group
        precision = 1 / (within + self.error[own])
        total = float(precision.sum())
        if not between:
            return centre, 0.0
        average = float((precision * self.value[own]).sum()) / total
        left = 1 / (total + 1 / between)
        return centre + left * total * (average - centre), left
