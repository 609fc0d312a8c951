"""Laws: how n plays of a subset are drawn at once, from the exact distribution of their sums.

Three of them, the cheapest that fits is taken (`law_of`):

- `Counts`: Bernoulli arms under a reward that depends only on how many pay. One multinomial per row over 0..K.
- `Outcomes`: arms with few values each, and few outcomes of all K. One multinomial per row over the outcomes.
- `Draws`: everything else. Every play is drawn, in blocks of bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from kofn.core import FloatArray, IntArray
from kofn.problems.arms import CELLS, Arms, Support, blocks
from kofn.problems.distributions import Bernoulli, Correlated
from kofn.rewards import Reward, mean

MOST_OUTCOMES = 4096

MANY = 96
"""For more places than this, the law of a sum is made by halves, and few plays of a row are drawn one by one."""

SHORT = 16
"""Polynomials up to this degree are multiplied term by term, longer ones by Fourier transforms."""

Sums = tuple[FloatArray, FloatArray]


class Law(Protocol):
    """The distribution of what rows of plays earn."""

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """Total and total of squares of `times[i]` plays of each row; times are at least 1."""


def law_of(arms: Arms, reward: Reward, k: int) -> Counts | Outcomes | Draws:
    """The cheapest exact law of this reward on K of these arms."""
    if isinstance(arms, Bernoulli) and (pays := pay_by_count(reward, k)) is not None:
        return CorrelatedCounts(arms, pays) if isinstance(arms, Correlated) else Counts(arms.p, pays)
    support = arms.support
    if support is not None and support[0].shape[1] ** k <= MOST_OUTCOMES:
        return Outcomes(arms, reward, k, support)
    return Draws(arms, reward)


def arm_totals(arms: Arms, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> FloatArray:
    """What each arm of each row pays in `times[i]` plays: the law of one arm alone, in every place."""
    total, _ = law_of(arms, mean, 1).play(subsets.reshape(-1, 1), np.repeat(times, subsets.shape[1]), rng)
    return total.reshape(subsets.shape)


def pay_by_count(reward: Reward, k: int) -> FloatArray | None:
    """What the reward pays when 0..K of the arms are one and the others zero; None if it matters which.

    All 2^K cases are tried when there are few, even if the reward says that it is symmetric.
    """
    if 2**k > MOST_OUTCOMES:
        return reward(np.tri(k + 1, k, -1)) if reward.symmetric else None
    cases = outcomes(2, k).astype(np.float64)
    paid, count = reward(cases), cases.sum(axis=1).astype(int)
    pays = np.empty(k + 1)
    pays[count] = paid
    return pays if np.allclose(paid, pays[count], rtol=1e-12, atol=1e-15) else None


def outcomes(values: int, k: int) -> IntArray:
    """All ways in which K arms can take one of so many values each."""
    return np.indices((values,) * k).reshape(k, -1).T


class Counts:
    """Rewards that depend only on how many of K Bernoulli arms pay; `pays[c]` when c do."""

    def __init__(self, p: FloatArray, pays: FloatArray) -> None:
        self.pays = pays
        self.values, group = np.unique(pays, return_inverse=True)
        self._p, self._q, self._k = p, 1 - p, len(pays) - 1
        self._order = np.argsort(pays)
        self._groups = np.eye(len(self.values))[group]  # pmf @ groups: the probability of each value
        self._odd, self._other, self._odd_probability = 0.0, 0.0, p
        self._one_odd = len(self.values) == 2 and self._find_odd()
        self._odd_squared, self._other_squared = self._odd**2, self._other**2

    def _find_odd(self) -> bool:
        """Whether all arms must agree for one value, and anything else gives the other: then a product is enough."""
        for end, probability in ((0, self._q), (self._k, self._p)):
            rest = np.delete(self.pays, end)
            if (rest == rest[0]).all():
                self._odd, self._other = float(self.pays[end]), float(rest[0])
                self._odd_probability = probability
                return True
        return False

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """One binomial or multinomial draw per row."""
        play = self._play_odd if self._one_odd else self._play_values
        if subsets.size <= CELLS:
            return play(subsets, times, rng)
        parts = [play(subsets[part], times[part], rng) for part in blocks(len(subsets), self._k + 1)]
        return np.concatenate([total for total, _ in parts]), np.concatenate([squares for _, squares in parts])

    def _play_odd(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        odd = rng.binomial(times, self._all_agree(subsets))
        rest = times - odd
        if self._other == 1 and self._odd == 0:  # a maximum, in half the time
            total = rest.astype(np.float64)
            return total, total.copy()
        return odd * self._odd + rest * self._other, odd * self._odd_squared + rest * self._other_squared

    def _play_values(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        values = self.values
        if len(values) == 1:
            return times * values[0], times * values[0] ** 2
        few = times <= self._cheap
        if not few.any():
            counts = rng.multinomial(times, self._distribution(subsets))
            return counts @ values, counts @ (values * values)
        total, squares = np.empty(len(times)), np.empty(len(times))
        for rows, play in ((few, self._play_each), (~few, self._play_values)):
            if rows.any():
                total[rows], squares[rows] = play(subsets[rows], times[rows], rng)
        return total, squares

    @property
    def _cheap(self) -> int:
        """So few plays of a row are drawn faster than the law of their sum is made, which costs K^2."""
        return self._k // 8 if self._k > MANY else 0

    def _play_each(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        rows = np.repeat(np.arange(len(subsets)), times)
        paid = np.empty(len(rows))
        for part in blocks(len(rows), self._k):
            p = self._p[subsets[rows[part]]]
            paid[part] = self.pays[np.count_nonzero(rng.random(p.shape) < p, axis=1)]
        total, squares = (np.bincount(rows, each).astype(np.float64) for each in (paid, paid * paid))
        return total, squares

    def _all_agree(self, subsets: IntArray) -> FloatArray:
        product: FloatArray = np.multiply.reduce(self._odd_probability[subsets], axis=1)
        return product

    def _distribution(self, subsets: IntArray) -> FloatArray:
        """The probability of each different value, for each row."""
        pmf = self._pmf(subsets)
        shares = pmf @ self._groups if len(self.values) <= self._k else pmf[:, self._order]
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def _pmf(self, subsets: IntArray) -> FloatArray:
        """The probability that 0..K arms of a row pay."""
        return poisson_binomial(self._p[subsets])

    def value(self, subsets: IntArray) -> FloatArray:
        """The exact expected reward of each row."""
        found = np.empty(len(subsets))
        for part in blocks(len(subsets), self._k + 1):
            if self._one_odd:
                found[part] = self._other + (self._odd - self._other) * self._all_agree(subsets[part])
            else:
                found[part] = self._pmf(subsets[part]) @ self.pays
        return found

    @property
    def increasing(self) -> bool:
        """Whether another arm that pays never lowers the reward."""
        return bool((np.diff(self.pays) >= 0).all())


class CorrelatedCounts(Counts):
    """The same for arms that share their luck in some plays."""

    def __init__(self, arms: Correlated, pays: FloatArray) -> None:
        super().__init__(arms.p, pays)
        self._one_odd = False  # a product is the law of independent arms only
        self._together = arms.together

    @property
    def _cheap(self) -> int:
        return 0  # nor are their plays drawn arm by arm

    def _pmf(self, subsets: IntArray) -> FloatArray:
        p = self._p[subsets]
        steps = np.zeros((len(p), p.shape[1] + 2))  # with one luck for all, at least c pay if the c-th best does
        steps[:, 0], steps[:, 1:-1] = 1, -np.sort(-p, axis=1)
        return (1 - self._together) * poisson_binomial(p) - self._together * np.diff(steps, axis=1)


def poisson_binomial(p: FloatArray) -> FloatArray:
    """The probability that 0..K of the K independent arms of a row pay: (m, K) in, (m, K+1) out."""
    rows, k = p.shape
    if k > MANY:
        return np.concatenate([_by_halves(p[part]) for part in blocks(rows, 4 * k)])
    pmf = np.zeros((k + 1, rows))  # counts first: every step works on whole, contiguous slices
    pmf[0] = 1
    p, q = p.T, 1 - p.T
    for j in range(k):
        more = pmf[: j + 1] * p[j]
        pmf[: j + 1] *= q[j]
        pmf[1 : j + 2] += more
    return pmf.T


def _by_halves(p: FloatArray) -> FloatArray:
    """The same for many arms, in K log(K)^2 steps and not K^2: the product of their polynomials, two by two."""
    rows, k = p.shape
    laws = np.stack([1 - p, p], axis=2)  # (m, arms, counts)
    while laws.shape[1] > 1:
        if laws.shape[1] % 2:
            nobody = np.zeros((rows, 1, laws.shape[2]))
            nobody[:, :, 0] = 1
            laws = np.concatenate([laws, nobody], axis=1)
        laws = _products(laws[:, ::2], laws[:, 1::2])
    return np.asarray(np.maximum(laws[:, 0, : k + 1], 0.0))  # rounding leaves some a little below zero


def _products(a: FloatArray, b: FloatArray) -> FloatArray:
    degree = a.shape[2] - 1
    if degree > SHORT:
        size = next_fast_len(2 * degree + 1, real=True)
        return np.asarray(irfft(rfft(a, size) * rfft(b, size), size)[:, :, : 2 * degree + 1])
    product = np.zeros((*a.shape[:2], 2 * degree + 1))
    for count in range(degree + 1):
        product[:, :, count : count + degree + 1] += a[:, :, count, None] * b
    return product


class Outcomes:
    """Rewards of arms with few values: all outcomes of the K arms of a row, with their probabilities."""

    def __init__(self, arms: Arms, reward: Reward, k: int, support: Support) -> None:
        self._reward, self._k = reward, k
        self._values, self._shares = support
        self._which = outcomes(self._values.shape[1], k)
        self._drawn = Draws(arms, reward)

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """A multinomial per row; rows of so few plays that drawing them is cheaper are drawn."""
        total, squares = np.empty(len(subsets)), np.empty(len(subsets))
        few = times * self._k < len(self._which)
        if few.any():
            total[few], squares[few] = self._drawn.play(subsets[few], times[few], rng)
        many = np.flatnonzero(~few)
        for part in blocks(len(many), self._which.size):
            rows = many[part]
            shares, paid = self._distribution(subsets[rows])
            counts = rng.multinomial(times[rows], shares / shares.sum(axis=1, keepdims=True))
            total[rows], squares[rows] = (counts * paid).sum(axis=1), (counts * paid * paid).sum(axis=1)
        return total, squares

    def value(self, subsets: IntArray) -> FloatArray:
        """The exact expected reward of each row."""
        found = np.empty(len(subsets))
        for part in blocks(len(subsets), self._which.size):
            shares, paid = self._distribution(subsets[part])
            found[part] = (shares * paid).sum(axis=1)
        return found

    def _distribution(self, subsets: IntArray) -> Sums:
        """The probability of each outcome of each row, and what it pays."""
        shares = np.ones((len(subsets), len(self._which)))
        for place in range(self._k):
            shares *= self._shares[subsets[:, place]][:, self._which[:, place]]
        return shares, self._pay(subsets)

    def _pay(self, subsets: IntArray) -> FloatArray:
        if self._same_values:
            return self._paid_by_all
        return self._reward(self._values[subsets[:, None, :], self._which[None]])

    @cached_property
    def _same_values(self) -> bool:
        return bool((self._values == self._values[0]).all())

    @cached_property
    def _paid_by_all(self) -> FloatArray:
        return self._reward(self._values[0][self._which])[None]


class Draws:
    """Rewards that are drawn one by one, in blocks over rows and plays."""

    def __init__(self, arms: Arms, reward: Reward) -> None:
        self._arms, self._reward = arms, reward

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """The sums of n drawn rewards per row, however the plays are spread over the rows."""
        total, squares = np.zeros(len(subsets)), np.zeros(len(subsets))
        ends = np.cumsum(times)
        plays = int(ends[-1]) if len(ends) else 0
        size = max(1, CELLS // subsets.shape[1])
        for start in range(0, plays, size):
            stop = min(start + size, plays)
            first, last = np.searchsorted(ends, [start, stop - 1], "right").tolist()
            until = np.clip(ends[first : last + 1], start, stop)
            here = until - np.concatenate([[start], until[:-1]])
            row = np.repeat(np.arange(last + 1 - first), here)
            rewards = self._reward(self._arms.draw(subsets[first : last + 1][row], rng))
            total[first : last + 1] += np.bincount(row, rewards, last + 1 - first)
            squares[first : last + 1] += np.bincount(row, rewards * rewards, last + 1 - first)
        return total, squares


def in_turn(times: NDArray[np.int64], size: int) -> Iterator[IntArray]:
    """The row of each play, `size` plays at a time."""
    ends = np.cumsum(times)
    plays = int(ends[-1]) if len(ends) else 0
    for start in range(0, plays, size):
        yield np.searchsorted(ends, np.arange(start, min(start + size, plays)), "right")
