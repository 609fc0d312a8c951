"""Thompson sampling with weights for arms and pairs of arms, one swap at a time: for few plays.

The class of BOCS (Baptista and Poloczek, ICML 2018), of Hill et al. (KDD 2017) and of Gaussian processes over subsets
(COMBO, GraphComBO); the model is in pairwise_model.py. Departures, with their reasons in
docs/reference/policies/pairwise-thompson.md: the scales are learned by empirical Bayes, a draw has half the width of
the posterior at first and differs from the incumbent by one swap at most; a plan covers a tenth of the plays so far.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from kofn.core import BadInput, BadRecord, FloatArray, IntArray, Plan, Subset, Tally
from kofn.core.fields import Fields, any_length, check_totals, integers, numbers, part
from kofn.core.plan import ROUNDING
from kofn.lab.rivals.linear_model import indicators
from kofn.lab.rivals.pairwise_model import Functions, PairPosterior, Scales, SubsetSums, climb
from kofn.policies.batching import plan_of, sweeps, tenth, top_k
from kofn.policies.randomised import Randomised, SeededOptions

MOST_ARMS = 200
"""Most arms: a draw has a weight for each pair of them."""

MOST_SUBSETS = 512
"""Most distinct subsets whose rewards are kept. Higher: slower, by the third power; less is forgotten."""

DRAWS = 64
"""Most draws in one plan; more plays are divided evenly among the draws."""

CELLS = 2**20
"""Most weights drawn for one plan, 8 bytes each. Many arms get fewer draws."""

NARROW, NARROW_UNTIL = 0.5, 500
"""Width of a draw, in standard deviations of the posterior, and the number of plays until which it stays so. Higher:
more exploration. Short runs have no time to explore all that is uncertain."""

SWAPS = 1
"""Most swaps between the incumbent and a draw. Higher: more exploration."""

TINY = 1e-12
"""Least information about a row that is not taken as none."""

MOST_CLIMBED = 1000
"""Most swaps of a climb; far fewer are usual."""

NEARLY = 0.02
"""Mean reward at which the log-odds start if the first rewards were all lower, or one minus it if all were higher."""


class PairwiseThompson(Randomised):
    """Draw weights for arms and pairs of arms from their posterior, play the incumbent after the best swap.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> policy = PairwiseThompson(n_arms=8, k=2, seed=1)
    >>> for _ in range(1_000):
    ...     subset = policy.ask()
    ...     policy.tell(subset, rng.random() < (0.9 if subset == (2, 5) else 0.4))
    >>> policy.best()
    (2, 5)

    For up to 200 arms and a few thousand plays. It keeps the sums of the 512 subsets that were played most.
    """

    name = "pairwise-thompson"
    linear_memory = False
    accepts_unplanned = True
    fields = Fields(
        seen=integers(),
        subsets=integers(any_length),
        count=integers(any_length),
        total=numbers(any_length),
        squares=numbers(any_length),
        expanded=numbers(any_length),
        scales=part(Scales),
    )

    def __init__(self, n_arms: int, k: int, **options: Unpack[SeededOptions]) -> None:
        super().__init__(n_arms, k, **options)
        if self.n_arms > MOST_ARMS:
            raise BadInput(
                f"pairwise-thompson draws a weight for each pair of arms: give at most {MOST_ARMS} arms, not "
                f"{self.n_arms:,}, or use a policy with linear memory, such as thompson"
            )
        self._seen: NDArray[np.int64] = np.zeros(self.n_arms, np.int64)  # plays of each arm
        self._subsets: IntArray = np.empty((0, self.k), np.int64)
        self._count: NDArray[np.int64] = np.zeros(0, np.int64)
        self._total = self._squares = self._expanded = np.zeros(0)
        self._scales = Scales()
        self._posterior: PairPosterior | None
        self._loaded()

    def best(self) -> Subset:
        """Return the incumbent: the subset with the highest posterior mean that swaps lead to, played or not."""
        return self._incumbent

    def _next(self) -> Plan:
        rng = self._rng()
        if self._posterior is None:
            return sweeps(self.n_arms, self.k, 1, rng)
        learned = int(self._seen.sum()) // self.k
        plays = tenth(learned)
        draws = max(1, min(plays, DRAWS, CELLS // self.n_arms**2))
        functions = self._posterior.draw(draws, width(learned), rng)
        drawn = plan_of(climb(functions, np.tile(self._incumbent, (draws, 1)), SWAPS), plays)
        return self._limited(self._posterior, drawn)

    def _limited(self, posterior: PairPosterior, drawn: Plan) -> Plan:
        """Limit each row to the plays that double the information about it; the incumbent gets the rest.

        A draw is frozen for the whole plan. Without the limit, a subset that is known to be bad after ten plays would
        get a hundred.
        """
        x, incumbent = indicators(drawn.subsets, self.n_arms), np.array(self._incumbent)
        p = expit(posterior.mean().of(x)[0])
        information = posterior.apart(x, indicators(incumbent[None, :], self.n_arms)[0]) * p * (1 - p)
        most = np.ceil(posterior.scales.dispersion / np.maximum(information, TINY))
        swapped = (drawn.subsets != incumbent).any(axis=1)
        times = np.minimum(drawn.times, most).astype(np.int64)[swapped]
        left = drawn.plays - int(times.sum())
        if not left:
            return drawn
        return Plan(np.concatenate([drawn.subsets[swapped], incumbent[None, :]]), np.append(times, left))

    def _learn(self, plan: Plan, tally: Tally) -> None:
        before = self._posterior
        self._add(plan, tally)
        start = np.append(self._expanded, self._predicted(before, self._subsets[len(self._expanded) :]))
        keep = np.sort(np.lexsort((np.arange(len(start)), self._count))[-MOST_SUBSETS:])  # of equals, the newest
        for name in ("subsets", "count", "total", "squares"):
            setattr(self, f"_{name}", getattr(self, f"_{name}")[keep])
        found = PairPosterior.near(self._rows(), self._scales, start[keep]).learned()
        found = PairPosterior.near(found.rows, found.scales, found.mode)
        self._scales, self._expanded = found.scales, found.expanded
        self._use(found)

    def _add(self, plan: Plan, tally: Tally) -> None:
        """Add the rewards to the sums of their subsets."""
        numbers_of = {tuple(subset): row for row, subset in enumerate(self._subsets.tolist())}
        rows = np.array([numbers_of.setdefault(subset, len(numbers_of)) for subset, _ in plan])
        self._subsets = np.array(list(numbers_of))
        for name in ("count", "total", "squares"):
            sums, more = getattr(self, f"_{name}"), getattr(tally, name)
            added = np.bincount(rows, more, len(numbers_of)).astype(more.dtype)
            added[: len(sums)] += sums
            setattr(self, f"_{name}", added)
        np.add.at(self._seen, plan.subsets, tally.count[:, None])

    def _predicted(self, before: PairPosterior | None, subsets: IntArray) -> FloatArray:
        """Return predicted log-odds of new subsets; before the first plan, the log-odds of the mean reward."""
        if before is None:
            mean = self._total.sum() / self._count.sum()
            return np.full(len(subsets), logit(np.clip(mean, NEARLY, 1 - NEARLY)))
        return np.asarray(before.mean().of(indicators(subsets, self.n_arms))[0])

    def _rows(self) -> SubsetSums:
        count, mean = self._count.astype(float), self._total / self._count
        within = np.maximum(self._squares - self._total * mean, 0.0)
        binary = bool(self._total.sum() - self._squares.sum() <= ROUNDING * self._count.sum())
        return SubsetSums(indicators(self._subsets, self.n_arms), count, mean, within, binary)

    def _use(self, posterior: PairPosterior) -> None:
        """Continue with this posterior: find its incumbent."""
        self._posterior, mean = posterior, posterior.mean()
        played = posterior.mode
        candidates = [self._subsets[played.argmax()], top_k(mean.u + (self.k - 1) * mean.W.mean(axis=2), self.k)[0]]
        climbed = [climb(mean, each[None, :].astype(np.int64), MOST_CLIMBED)[0] for each in candidates]
        values = [played.max(), *(self._value(mean, played, each) for each in climbed)]
        self._incumbent: Subset = tuple([candidates[0], *climbed][int(np.argmax(values))].tolist())

    def _value(self, mean: Functions, played: FloatArray, subset: IntArray) -> float:
        """Return the posterior mean of a subset's log-odds; only a played subset has a rest."""
        row = np.flatnonzero((self._subsets == subset).all(axis=1))
        return float(played[row[0]] if row.size else mean.of(indicators(subset[None, :], self.n_arms))[0, 0])

    def _loaded(self) -> None:
        rows = len(self._count)
        if self._subsets.size != rows * self.k or {len(self._total), len(self._squares), len(self._expanded)} != {rows}:
            raise BadRecord("subsets, count, total, squares and expanded must have the same number of rows")
        self._subsets = self._subsets.reshape(rows, self.k)
        self._posterior = None
        self._incumbent = tuple(range(self.k))
        if rows:
            self._check_rows()
            self._use(PairPosterior(self._rows(), self._scales, self._expanded))

    def _check_rows(self) -> None:
        subsets, count = self._subsets, self._count
        if subsets.max() >= self.n_arms or (np.diff(subsets, axis=1) <= 0).any():
            raise BadRecord(f"subsets must be rows of {self.k} different arms from 0 to {self.n_arms - 1}, sorted")
        if len(np.unique(subsets, axis=0)) != len(subsets) or len(subsets) > MOST_SUBSETS:
            raise BadRecord(f"subsets must be at most {MOST_SUBSETS} different ones")
        if count.min() < 1 or (np.bincount(subsets.ravel(), np.repeat(count, self.k), self.n_arms) > self._seen).any():
            raise BadRecord("count must be at least 1 for each subset, and at most what `seen` has for its arms")
        check_totals(count, self._total, slack=ROUNDING)
        check_totals(count, self._squares, slack=ROUNDING)


def width(learned: int) -> float:
    """Return the width of draws after this many plays, in standard deviations: it grows to 1 with the cube root.

    >>> [round(width(each), 2) for each in (100, 500, 1_000, 4_000, 10**6)]
    [0.5, 0.5, 0.63, 1.0, 1.0]
    """
    return min(1.0, float(NARROW * max(1.0, learned / NARROW_UNTIL) ** (1 / 3)))
