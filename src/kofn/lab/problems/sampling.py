"""Samplers: they draw the sums of n plays of a subset from their exact distribution.

`choose_sampler` returns the cheapest of three that fits:

- `CountSampler`: Bernoulli arms under a reward that depends only on how many pay. One multinomial per row over 0..K.
- `OutcomeSampler`: arms with few values each, and few outcomes of all K. One multinomial per row over the outcomes.
- `PlaySampler`: everything else. Every play is drawn, in blocks of bounded memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from kofn.core import FloatArray, IntArray
from kofn.lab.problems.arms import CELLS, Arms, Support, blocks
from kofn.lab.problems.distributions import Bernoulli, Correlated
from kofn.lab.rewards import Reward, mean

MOST_OUTCOMES = 4096
"""Limit on the outcomes of K arms that are enumerated. Above it, every play is drawn: less memory, more time."""

LARGE_K = 96
"""Above this K, counts are computed by halves with Fourier transforms, and rows of few plays are drawn one by one."""

SHORT_POLYNOMIAL = 16
"""Polynomials up to this degree are multiplied term by term, longer ones by Fourier transforms; it affects speed."""

Sums = tuple[FloatArray, FloatArray]


class Sampler(Protocol):
    """Draws what plays of subsets earn."""

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """Return the sum of the rewards of `times[i]` plays of each row, and of their squares; times are at least 1."""


def choose_sampler(arms: Arms, reward: Reward, k: int) -> CountSampler | OutcomeSampler | PlaySampler:
    """Return the cheapest exact sampler for this reward of K of these arms."""
    if isinstance(arms, Bernoulli) and (pays := pay_by_count(reward, k)) is not None:
        return CorrelatedCountSampler(arms, pays) if isinstance(arms, Correlated) else CountSampler(arms.p, pays)
    support = arms.support
    if support is not None and support[0].shape[1] ** k <= MOST_OUTCOMES:
        return OutcomeSampler(arms, reward, k, support)
    return PlaySampler(arms, reward)


def arm_totals(arms: Arms, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> FloatArray:
    """Return what each arm of each row pays in `times[i]` plays, drawn for each arm separately."""
    total, _ = choose_sampler(arms, mean, 1).play(subsets.reshape(-1, 1), np.repeat(times, subsets.shape[1]), rng)
    return total.reshape(subsets.shape)


def pay_by_count(reward: Reward, k: int) -> FloatArray | None:
    """Return the reward when 0..K arms pay 1 and the others 0; None if it depends on which arms pay.

    If there are few cases, all 2^K are tried, even if the reward is declared symmetric.
    """
    if 2**k > MOST_OUTCOMES:
        return reward(np.tri(k + 1, k, -1)) if reward.symmetric else None
    cases = outcomes(2, k).astype(np.float64)
    paid, count = reward(cases), cases.sum(axis=1).astype(int)
    pays = np.empty(k + 1)
    pays[count] = paid
    return pays if np.allclose(paid, pays[count], rtol=1e-12, atol=1e-15) else None


def outcomes(values: int, k: int) -> IntArray:
    """Return all ways in which K arms can each take one of `values` values, one per row."""
    return np.indices((values,) * k).reshape(k, -1).T


class CountSampler:
    """Samples rewards that depend only on how many of K Bernoulli arms pay: `pays[c]` if c of them do."""

    def __init__(self, p: FloatArray, pays: FloatArray) -> None:
        self.pays = pays
        self.values, group = np.unique(pays, return_inverse=True)
        self._p, self._q, self._k = p, 1 - p, len(pays) - 1
        self._order = np.argsort(pays)
        self._groups = np.eye(len(self.values))[group]  # pmf @ groups: the probability of each value
        self._agreed, self._otherwise, self._agree_probability = 0.0, 0.0, p
        self._by_agreement = len(self.values) == 2 and self._find_agreement()
        self._agreed_squared, self._otherwise_squared = self._agreed**2, self._otherwise**2

    def _find_agreement(self) -> bool:
        """Return whether one of two rewards needs all arms to agree: then its probability is a product."""
        for end, probability in ((0, self._q), (self._k, self._p)):
            rest = np.delete(self.pays, end)
            if (rest == rest[0]).all():
                self._agreed, self._otherwise = float(self.pays[end]), float(rest[0])
                self._agree_probability = probability
                return True
        return False

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """Make one binomial or multinomial draw per row."""
        play = self._play_by_agreement if self._by_agreement else self._play_values
        if subsets.size <= CELLS:
            return play(subsets, times, rng)
        parts = [play(subsets[part], times[part], rng) for part in blocks(len(subsets), self._k + 1)]
        return np.concatenate([total for total, _ in parts]), np.concatenate([squares for _, squares in parts])

    def _play_by_agreement(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        agreed = rng.binomial(times, self._all_agree(subsets))
        rest = times - agreed
        if self._otherwise == 1 and self._agreed == 0:  # a maximum: this branch takes half the time
            total = rest.astype(np.float64)
            return total, total.copy()
        total = agreed * self._agreed + rest * self._otherwise
        return total, agreed * self._agreed_squared + rest * self._otherwise_squared

    def _play_values(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        values = self.values
        if len(values) == 1:
            return times * values[0], times * values[0] ** 2
        few_plays = self._few_plays
        if not few_plays or not (few := times <= few_plays).any():
            counts = rng.multinomial(times, self._distribution(subsets)).astype(np.float64)
            return counts.dot(values), counts.dot(values * values)
        total, squares = np.empty(len(times)), np.empty(len(times))
        for rows, play in ((few, self._play_each), (~few, self._play_values)):
            if rows.any():
                total[rows], squares[rows] = play(subsets[rows], times[rows], rng)
        return total, squares

    @property
    def _few_plays(self) -> int:
        """The plays of a row up to which drawing each is faster than computing the distribution, which costs K^2."""
        return self._k // 8 if self._k > LARGE_K else 0

    def _play_each(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        rows = np.repeat(np.arange(len(subsets)), times)
        paid = np.empty(len(rows))
        for part in blocks(len(rows), self._k):
            p = self._p[subsets[rows[part]]]
            paid[part] = self.pays[np.count_nonzero(rng.random(p.shape) < p, axis=1)]
        total, squares = (np.bincount(rows, each).astype(np.float64) for each in (paid, paid * paid))
        return total, squares

    def _all_agree(self, subsets: IntArray) -> FloatArray:
        product: FloatArray = np.multiply.reduce(self._agree_probability[subsets], axis=1)
        return product

    def _distribution(self, subsets: IntArray) -> FloatArray:
        """Return the probability of each distinct reward, for each row."""
        pmf = self._pmf(subsets)
        shares = pmf @ self._groups if len(self.values) <= self._k else pmf[:, self._order]
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def _pmf(self, subsets: IntArray) -> FloatArray:
        """Return the probability that 0..K arms of a row pay."""
        return poisson_binomial(self._p[subsets])

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the exact expected reward of each row."""
        found = np.empty(len(subsets))
        for part in blocks(len(subsets), self._k + 1):
            if self._by_agreement:
                found[part] = self._otherwise + (self._agreed - self._otherwise) * self._all_agree(subsets[part])
            else:
                found[part] = self._pmf(subsets[part]) @ self.pays
        return found

    @property
    def increasing(self) -> bool:
        """Whether the reward never falls when one more arm pays."""
        return bool((np.diff(self.pays) >= 0).all())


class CorrelatedCountSampler(CountSampler):
    """Samples the same rewards for arms that share one random number in some plays."""

    def __init__(self, arms: Correlated, pays: FloatArray) -> None:
        super().__init__(arms.p, pays)
        self._by_agreement = False  # a product holds for independent arms only
        self._together = arms.together

    @property
    def _few_plays(self) -> int:
        return 0  # plays cannot be drawn arm by arm

    def _pmf(self, subsets: IntArray) -> FloatArray:
        p = self._p[subsets]
        steps = np.zeros((len(p), p.shape[1] + 2))  # with one number for all, at least c pay if the c-th best does
        steps[:, 0], steps[:, 1:-1] = 1, -np.sort(-p, axis=1)
        return (1 - self._together) * poisson_binomial(p) - self._together * np.diff(steps, axis=1)


def poisson_binomial(p: FloatArray) -> FloatArray:
    """Return the probability that 0..K of the K independent arms of a row pay: (m, K) in, (m, K+1) out."""
    rows, k = p.shape
    if k > LARGE_K:
        return np.concatenate([_poisson_binomial_by_halves(p[part]) for part in blocks(rows, 4 * k)])
    pmf = np.zeros((k + 1, rows))  # counts first, so that every step works on contiguous slices
    p, q = p.T, 1 - p.T
    pmf[0], pmf[1] = q[0], p[0]
    for j in range(1, k):
        before, after = pmf[: j + 1], pmf[1 : j + 2]
        more = before * p[j]
        before *= q[j]
        after += more
    return pmf.T


def _poisson_binomial_by_halves(p: FloatArray) -> FloatArray:
    """Return the same for many arms, in K log(K)^2 steps instead of K^2: multiply their polynomials pair by pair."""
    rows, k = p.shape
    pmfs = np.stack([1 - p, p], axis=2)  # (m, arms, counts)
    while pmfs.shape[1] > 1:
        if pmfs.shape[1] % 2:
            one = np.zeros((rows, 1, pmfs.shape[2]))
            one[:, :, 0] = 1
            pmfs = np.concatenate([pmfs, one], axis=1)
        pmfs = _multiply_polynomials(pmfs[:, ::2], pmfs[:, 1::2])
    return np.asarray(np.maximum(pmfs[:, 0, : k + 1], 0.0))  # rounding may leave some slightly below zero


def _multiply_polynomials(a: FloatArray, b: FloatArray) -> FloatArray:
    degree = a.shape[2] - 1
    if degree > SHORT_POLYNOMIAL:
        size = next_fast_len(2 * degree + 1, real=True)
        return np.asarray(irfft(rfft(a, size) * rfft(b, size), size)[:, :, : 2 * degree + 1])
    product = np.zeros((*a.shape[:2], 2 * degree + 1))
    for count in range(degree + 1):
        product[:, :, count : count + degree + 1] += a[:, :, count, None] * b
    return product


class OutcomeSampler:
    """Samples rewards of arms with few values each, by enumerating all outcomes of the K arms of a row."""

    def __init__(self, arms: Arms, reward: Reward, k: int, support: Support) -> None:
        self._reward, self._k = reward, k
        self._values, self._probabilities = support
        self._outcomes = outcomes(self._values.shape[1], k)
        self._play_sampler = PlaySampler(arms, reward)

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """Make one multinomial draw per row; in rows of few plays, where that is cheaper, draw every play."""
        total, squares = np.empty(len(subsets)), np.empty(len(subsets))
        few = times * self._k < len(self._outcomes)
        if few.any():
            total[few], squares[few] = self._play_sampler.play(subsets[few], times[few], rng)
        many = np.flatnonzero(~few)
        for part in blocks(len(many), self._outcomes.size):
            rows = many[part]
            shares, paid = self._distribution(subsets[rows])
            counts = rng.multinomial(times[rows], shares / shares.sum(axis=1, keepdims=True))
            total[rows], squares[rows] = (counts * paid).sum(axis=1), (counts * paid * paid).sum(axis=1)
        return total, squares

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the exact expected reward of each row."""
        found = np.empty(len(subsets))
        for part in blocks(len(subsets), self._outcomes.size):
            shares, paid = self._distribution(subsets[part])
            found[part] = (shares * paid).sum(axis=1)
        return found

    def _distribution(self, subsets: IntArray) -> Sums:
        """Return the probability of each outcome of each row, and its reward."""
        shares = np.ones((len(subsets), len(self._outcomes)))
        for place in range(self._k):
            shares *= self._probabilities[subsets[:, place]][:, self._outcomes[:, place]]
        return shares, self._rewards_of(subsets)

    def _rewards_of(self, subsets: IntArray) -> FloatArray:
        if self._same_values:
            return self._shared_rewards
        return self._reward(self._values[subsets[:, None, :], self._outcomes[None]])

    @cached_property
    def _same_values(self) -> bool:
        return bool((self._values == self._values[0]).all())

    @cached_property
    def _shared_rewards(self) -> FloatArray:
        return self._reward(self._values[0][self._outcomes])[None]


class PlaySampler:
    """Draws every play."""

    def __init__(self, arms: Arms, reward: Reward) -> None:
        self._arms, self._reward = arms, reward

    def play(self, subsets: IntArray, times: NDArray[np.int64], rng: np.random.Generator) -> Sums:
        """Draw `times[i]` rewards per row and add them up."""
        size = max(1, CELLS // subsets.shape[1])
        return sum_drawn_plays(lambda rows: self._reward(self._arms.draw(rows, rng)), subsets, times, size)


def sum_drawn_plays(
    draw: Callable[[IntArray], FloatArray], subsets: IntArray, times: NDArray[np.int64], size: int
) -> Sums:
    """Draw every play, `size` plays at a time, and add up the rewards of each row and their squares."""
    total, squares = np.zeros(len(subsets)), np.zeros(len(subsets))
    ends = np.cumsum(times)
    plays = int(ends[-1]) if len(ends) else 0
    for start in range(0, plays, size):
        stop = min(start + size, plays)
        first, last = np.searchsorted(ends, [start, stop - 1], "right").tolist()
        until = np.clip(ends[first : last + 1], start, stop)
        row = np.repeat(np.arange(last + 1 - first), np.diff(until, prepend=start))
        rewards = draw(subsets[first : last + 1][row])
        total[first : last + 1] += np.bincount(row, rewards, last + 1 - first)
        squares[first : last + 1] += np.bincount(row, rewards * rewards, last + 1 - first)
    return total, squares
