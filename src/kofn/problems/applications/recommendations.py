"""A list of recommendations: the user looks at one after another and stops at the first that is useful.

A subset has no order, but a list has. So it is said who makes the order: the page, which shows the most attractive
first ("best"), or a fixed catalogue, in which lower numbers come first ("number").
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kofn.core import BadInput, FloatArray, IntArray, Subset
from kofn.problems.arms import numbers, require
from kofn.problems.assumptions import DOMINANCE, INCREASING, SYMMETRIC, Finding, dominance
from kofn.problems.distributions import Bernoulli
from kofn.problems.expectation import in_blocks
from kofn.problems.sampling import Sums
from kofn.problems.simulated import Simulated

Order: TypeAlias = Literal["best", "number"]


class Recommendations(Simulated):
    """A list of K items; the reward is 1 if the user comes to a useful one, else 0.

    >>> problem = Recommendations([0.1, 0.5, 0.3], k=2, patience=0.8)
    >>> problem.best, problem.value([(1, 2)])              # 0.5 + 0.5 * 0.8 * 0.3
    ((1, 2), array([0.62]))
    >>> Recommendations([0.1, 0.5, 0.3], k=2, examine=[1.0, 0.2], order="number").value([(0, 1)])
    array([0.19])

    Item i is useful with probability `attraction[i]`. After an item that was not, the user goes on with probability
    `patience`; or `examine[j]` says with which probability she looks at place j at all if nothing before was useful: it
    falls from place to place. Values and plays are exact.
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

    @cached_property
    def best(self) -> Subset:
        """The most attractive items; in a fixed order, those that the recursion below chooses."""
        if self._given is not None:
            return self._given
        if self.order == "best":
            return tuple(sorted(np.argsort(-self.attraction, kind="stable")[: self.k].tolist()))
        return best_in_order(self.attraction, self.examine)

    def __repr__(self) -> str:
        return f"Recommendations({self.n_arms} items, k={self.k}, order={self.order!r})"

    def _make_law(self) -> _Clicks:
        return _Clicks(self.attraction, self.examine, self.order)

    def _make_expectation(self) -> _Clicks:
        return _Clicks(self.attraction, self.examine, self.order)

    def _assumptions(self) -> tuple[Finding, ...]:
        fair = self.order == "best" or bool((self.examine == self.examine[0]).all())
        why = "the page sorts what it shows" if self.order == "best" else "places are by number"
        return (
            Finding(SYMMETRIC, fair, why if not fair or self.order == "best" else "all places are looked at alike"),
            Finding(INCREASING, False, "weakly: beside a useful item, another adds nothing"),
            Finding(DOMINANCE, *dominance(Bernoulli(self.attraction))),
        )


class _Clicks:
    """Whether the user comes to a useful item: a coin for each play, so a row is one binomial draw."""

    def __init__(self, attraction: FloatArray, examine: FloatArray, order: Order) -> None:
        self._p, self._examine, self._order = np.append(attraction, 0.0), examine, order

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """One binomial draw per row."""
        total = rng.binomial(times, np.clip(self.value(subsets), 0.0, 1.0)).astype(np.float64)
        return total, total.copy()

    def value(self, subsets: IntArray) -> FloatArray:
        """Over the places: examined, useful there, and nothing useful before."""
        return in_blocks(self._rows, subsets)

    def _rows(self, subsets: IntArray) -> FloatArray:
        p = -np.sort(-self._p[subsets], axis=1) if self._order == "best" else self._p[np.sort(subsets, axis=1)]
        useless = np.cumprod(1 - p, axis=1)
        before = np.hstack([np.ones((len(p), 1)), useless[:, :-1]])
        return np.asarray((self._examine * p * before).sum(axis=1))


def best_in_order(attraction: FloatArray, examine: FloatArray) -> Subset:
    """The best K items of a catalogue in its order, by dynamic programming over items and places from the last on.

    With m places left, an item is worth e p + (1 - p) times what follows it, or what follows if it is left out.
    """
    n_arms, k = len(attraction), len(examine)
    worth, places = np.zeros(k + 1), np.arange(1, k + 1)  # of the items from i on, with m places to fill
    taken = np.zeros((n_arms, k + 1), np.bool_)
    for i in range(n_arms - 1, -1, -1):
        items, p = n_arms - i, attraction[i]
        take = np.where(places <= items, examine[::-1] * p + (1 - p) * worth[:-1], -1.0)
        taken[i, 1:] = take >= worth[1:]  # too few items are worth 0, so that a list which can be filled wins
        worth[1:] = np.maximum(take, worth[1:])
    chosen, left = [], k
    for i in range(n_arms):
        if left and taken[i, left]:
            chosen.append(i)
            left -= 1
    return tuple(chosen)


def _examine(patience: float | None, examine: ArrayLike | None, k: int) -> FloatArray:
    if (patience is None) == (examine is None):
        raise BadInput("say how the user looks: patience=0.8, or examine=[...] with a probability for each place")
    if examine is None:
        if not isinstance(patience, int | float) or isinstance(patience, bool) or not 0 <= patience <= 1:
            raise BadInput(f"patience is a probability from 0 to 1, not {patience!r}")
        return np.asarray(float(patience) ** np.arange(k))
    places = numbers("examine", examine)
    require("examine", places, (places >= 0) & (places <= 1), "probabilities from 0 to 1")
    if len(places) != k or (np.diff(places) > 0).any():
        raise BadInput(f"examine needs {k} probabilities that do not rise, one for each place, not {places.tolist()}")
    return places
