"""A list of recommendations: the user reads it from the top and stops at the first useful item.

A subset has no order, but a list has one. `order` defines it: the page shows the most attractive item
first ("best"), or a fixed catalogue lists lower numbers first ("number").
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kofn.core import BadInput, FloatArray, IntArray, Subset
from kofn.lab.problems.arms import numbers, require
from kofn.lab.problems.assumptions import DOMINANCE, INCREASING, SYMMETRIC, Finding, dominance
from kofn.lab.problems.base import AbstractProblem
from kofn.lab.problems.distributions import Bernoulli
from kofn.lab.problems.expectation import in_blocks, top_subset
from kofn.lab.problems.sampling import Sums

Order: TypeAlias = Literal["best", "number"]


class Recommendations(AbstractProblem):
    """A list of K items; the reward is 1 if the user finds a useful one, else 0.

    >>> problem = Recommendations([0.1, 0.5, 0.3], k=2, patience=0.8)
    >>> problem.best, problem.value([(1, 2)])              # 0.5 + 0.5 * 0.8 * 0.3
    ((1, 2), array([0.62]))
    >>> Recommendations([0.1, 0.5, 0.3], k=2, examine=[1.0, 0.2], order="number").value([(0, 1)])
    array([0.19])

    Item i is useful with probability `attraction[i]`. After an item that is not, the user continues with probability
    `patience`. Alternatively, `examine[j]` is the probability that the user looks at place j if nothing before it was
    useful; it must not rise from place to place. Values and plays are exact.
    """

    def __init__(
        self,
        attraction: ArrayLike,
        k: int,
        *,
        patience: float | None = None,
        examine: ArrayLike | None = None,
        order: Order = "best",
        best: Iterable[int] | None = None,
    ) -> None:
        self.attraction = numbers("attraction", attraction)
        p = self.attraction
        require("attraction", p, (p >= 0) & (p <= 1), "probabilities from 0 to 1")
        super().__init__(p.size, k, best=best, fewer=True)
        if order not in ("best", "number"):
            raise BadInput(f"order must be 'best' or 'number', not {order!r}")
        self.order, self.examine = order, _examine(patience, examine, self.k)

    def _find_best(self) -> Subset:
        if self.order == "best":
            return top_subset(self.attraction, self.k)
        return best_in_order(self.attraction, self.examine)

    def _summary(self) -> str:
        return f"{self.n_arms} items, order={self.order!r}"

    def make_sampler(self) -> _Clicks:
        """Return the sampler of clicks, one binomial draw per row."""
        return _Clicks(self.attraction, self.examine, self.order)

    def make_expectation(self) -> _Clicks:
        """Return the exact probabilities of a click."""
        return self.make_sampler()

    def assumptions(self) -> tuple[Finding, ...]:
        """Return what follows from the order and the attractions for the paper's assumptions."""
        symmetric = self.order == "best" or bool((self.examine == self.examine[0]).all())
        if self.order == "best":
            why = "the page sorts the items"
        else:
            why = "all places are examined equally" if symmetric else "the order is fixed, and places are not equal"
        return (
            Finding(SYMMETRIC, symmetric, why),
            Finding(INCREASING, False, "weakly: next to a useful item, another one adds nothing"),
            Finding(DOMINANCE, *dominance(Bernoulli(self.attraction))),
        )


class _Clicks:
    """Whether the user finds a useful item: one coin per play, so a row is one binomial draw."""

    def __init__(self, attraction: FloatArray, examine: FloatArray, order: Order) -> None:
        self._p, self._examine, self._order = np.append(attraction, 0.0), examine, order

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """Make one binomial draw per row."""
        total = rng.binomial(times, np.clip(self.value(subsets), 0.0, 1.0)).astype(np.float64)
        return total, total.copy()

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the probability of a click: the sum over places of examined, useful, and nothing useful before."""
        return in_blocks(self._rows, subsets)

    def _rows(self, subsets: IntArray) -> FloatArray:
        p = -np.sort(-self._p[subsets], axis=1) if self._order == "best" else self._p[np.sort(subsets, axis=1)]
        useless = np.cumprod(1 - p, axis=1)
        before = np.hstack([np.ones((len(p), 1)), useless[:, :-1]])
        return np.asarray((self._examine * p * before).sum(axis=1))


def best_in_order(attraction: FloatArray, examine: FloatArray) -> Subset:
    """Return the best K items of a catalogue in fixed order, by dynamic programming from the last item and place.

    With m places left, taking an item has value e p + (1 - p) times the value of what follows; skipping it has the
    value of what follows.
    """
    n_arms, k = len(attraction), len(examine)
    value, places = np.zeros(k + 1), np.arange(1, k + 1)  # value[m]: of the items from i on, with m places left
    taken = np.zeros((n_arms, k + 1), np.bool_)
    for i in range(n_arms - 1, -1, -1):
        items, p = n_arms - i, attraction[i]
        take = np.where(places <= items, examine[::-1] * p + (1 - p) * value[:-1], -1.0)
        taken[i, 1:] = take >= value[1:]  # too few items have value 0, so that a full list wins
        value[1:] = np.maximum(take, value[1:])
    chosen, left = [], k
    for i in range(n_arms):
        if left and taken[i, left]:
            chosen.append(i)
            left -= 1
    return tuple(chosen)


def _examine(patience: float | None, examine: ArrayLike | None, k: int) -> FloatArray:
    if (patience is None) == (examine is None):
        raise BadInput("give either patience=0.8, or examine=[...] with a probability for each place")
    if examine is None:
        if not isinstance(patience, int | float) or isinstance(patience, bool) or not 0 <= patience <= 1:
            raise BadInput(f"patience must be a probability from 0 to 1, not {patience!r}")
        return np.asarray(float(patience) ** np.arange(k))
    places = numbers("examine", examine)
    require("examine", places, (places >= 0) & (places <= 1), "probabilities from 0 to 1")
    if len(places) != k or (np.diff(places) > 0).any():
        raise BadInput(f"examine must have {k} probabilities that do not rise, one per place, not {places.tolist()}")
    return places
