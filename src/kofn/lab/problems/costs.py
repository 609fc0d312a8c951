"""Problems in which arms cost something: rewards are net of costs, and subsets may have fewer than K arms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadInput, FloatArray, IntArray, Subset, check_costs, net_range, whole
from kofn.lab.problems.base import AbstractProblem
from kofn.lab.problems.constrained import best_allowed
from kofn.lab.problems.rows import Subsets
from kofn.lab.problems.sampling import Sums


class NetOfCosts(AbstractProblem):
    """A problem with the rewards of another one, minus the costs of the arms that were played.

    >>> from kofn.lab.problems import Bernoulli, Problem
    >>> problem = Problem(Bernoulli([0.9, 0.5, 0.2, 0.1]), "sum", k=3, absent=0.0)
    >>> net = problem.with_costs([0.1, 0.1, 0.3, 0.0], fewest=1)
    >>> net.best, net.optimum
    ((0, 1, 3), 1.3)
    >>> net.under([{"rule": "never", "arms": [3]}]).best
    (0, 1)

    `AbstractProblem.with_costs` makes it. When rewards are minimised, costs are added to them.
    """

    def __init__(
        self, problem: AbstractProblem, costs: Sequence[float] | FloatArray, fewest: int | None = None
    ) -> None:
        fewest = problem.k if fewest is None else whole("fewest", fewest)
        if fewest > problem.k:
            raise BadInput(f"fewest must be at most k; got fewest={fewest} and k={problem.k}")
        if fewest < problem.k and not problem.fewer:
            raise BadInput(
                "this problem does not define what fewer than K arms earn: give what an empty place pays, for instance "
                "Problem(..., absent=0.0)"
            )
        if problem.constraints is not None:
            raise BadInput("rules come last: problem.with_costs(costs).under(rules)")
        self.problem, self.costs = problem, check_costs(costs, problem.n_arms)
        span = net_range(problem.reward_range, problem.direction, self.costs, fewest, problem.k)
        super().__init__(
            problem.n_arms, problem.k, direction=problem.direction, fewer=fewest < problem.k, reward_range=span
        )
        self.empties = problem.k - fewest
        sign = -1.0 if self.direction == "maximize" else 1.0
        self._added = sign * np.append(self.costs, 0.0)  # an empty place, arm N, costs nothing

    def make_sampler(self) -> _Net:
        """Return an object that draws plays of the other problem and adds what its arms cost."""
        return _Net(self.problem, self._added)

    def make_expectation(self) -> _Net:
        """Return an object that adds costs to the expected rewards of the other problem."""
        return _Net(self.problem, self._added)

    @cached_property
    def value_error(self) -> float:
        """The standard error of the other problem's values."""
        return self.problem.value_error

    @property
    def _most_tried(self) -> int:
        return self.problem._most_tried

    def _rows(self, subsets: Subsets) -> IntArray:
        rows = super()._rows(subsets)
        if rows.size and (rows == self.n_arms).sum(axis=1).max() > self.empties:
            row = rows[int((rows == self.n_arms).sum(axis=1).argmax())]
            subset = tuple(row[row < self.n_arms].tolist())
            raise BadInput(f"a subset must have {self.k - self.empties} to {self.k} arms; got {subset}")
        return rows

    def _find_best(self) -> Subset:
        return best_allowed(self, *self._order(), self._most_tried)

    def _order(self) -> tuple[FloatArray | None, bool]:
        """Return what each arm and each empty place adds to the reward, if that is the same in all subsets."""
        adds = self.problem.additions()
        if adds is None:
            return None, False
        net = adds + self._added
        return np.append(net[:-1], np.full(self.empties, net[-1])), True

    def _summary(self) -> str:
        return f"{self.problem._summary()}, costs"


class _Net:
    """Plays and values of another problem, with what its arms cost."""

    def __init__(self, problem: AbstractProblem, added: FloatArray) -> None:
        self._problem, self._added = problem, added

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """Return the sums of the net rewards and of their squares."""
        total, squares = self._problem._sampler.play(subsets, times, rng)
        by = self._added[subsets].sum(axis=1)
        return total + times * by, squares + 2 * by * total + times * by * by

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the expected net reward of each row."""
        return np.asarray(self._problem._expectation.value(subsets) + self._added[subsets].sum(axis=1))
