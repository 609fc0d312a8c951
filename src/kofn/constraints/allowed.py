"""The allowed subsets of K of N arms: whether there are any, whether a subset is one, and the best by a score per arm.

What follows from the rules for single arms is worked out first: arms that are always in, and arms that are never in.
For the other arms there are three ways to find the best subset: quotas.py if the rules are quotas of disjoint groups
and a list of all allowed subsets if there are few, both exact, and else SciPy's HiGHS (solver.py), which is exact
within its limit of nodes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kofn.constraints.quotas import Quotas, quotas
from kofn.constraints.rules import ROUNDING, Rule, slack
from kofn.constraints.solver import MOST_SECONDS, MilpSolver
from kofn.core import BadInput, FloatArray, IntArray, Subset, check_sizes
from kofn.core.subsets import subset_blocks

MOST_ARMS = 10_000
"""Most arms of constraints. Higher: a first plan that covers all arms takes longer, in proportion to the square."""

MOST_TRIED, MOST_LISTED = 2**17, 2**12
"""Most subsets that are tried to list the allowed ones, and most that are listed. Higher: the best subset is found
without a solver in larger problems, with more memory and time per draw."""

EPSILON = 8 * np.finfo(float).eps
"""Largest relative difference between sums of some numbers in another order."""


class Inequalities(NamedTuple):
    """Inequalities: low <= matrix x <= high, where x has a 1 for each arm of a subset."""

    matrix: FloatArray
    low: FloatArray
    high: FloatArray

    def hold(self, sums: FloatArray) -> NDArray[np.bool_]:
        """Return whether the inequalities hold for these sums; the last axis has one sum per inequality."""
        return np.asarray(((sums >= self.low) & (sums <= self.high)).all(axis=-1))

    def hold_after(self, subset: IntArray, outs: IntArray, ins: IntArray) -> NDArray[np.bool_]:
        """Return whether the inequalities hold after two arms of a subset have left for two others.

        `outs` and `ins` have a pair of arms per row; the result has a row for each of `outs`, and a column for each of
        `ins`. An inequality is checked for those pairs that could break it: with thousands, that is a small part.
        """
        hold = np.ones((len(outs), len(ins)), bool)
        for row, low, high in zip(self.matrix, self.low, self.high, strict=True):
            left = row[subset].sum() - row[outs[:, 0]] - row[outs[:, 1]]
            first, second = row[ins[:, 0]], row[ins[:, 1]]
            added = first + second
            error = EPSILON * (np.abs(left).max() + np.abs(added).max())  # sums in another order differ by less
            could = np.flatnonzero((left.max() + added > high - error) | (left.min() + added < low + error))
            after = left[:, None] + first[could] + second[could]
            hold[:, could] &= (after >= low) & (after <= high)
        return hold


class Solver(Protocol):
    """A way to find the best subsets; arms are numbered among the free ones."""

    exact: bool  # whether finding the best subsets of many draws is cheap, and therefore done for all

    def best(self, scores: FloatArray) -> IntArray | None:
        """Return the subset with the highest sum of each row of scores; None if no subset is allowed."""


class Listed:
    """All allowed subsets, one by one."""

    exact = True

    def __init__(self, subsets: IntArray, arms: int) -> None:
        self.subsets = subsets
        self.indicator = np.zeros((arms, len(subsets)))
        self.indicator[subsets.T, np.arange(len(subsets))] = 1.0

    def best(self, scores: FloatArray) -> IntArray | None:
        """Return the subset with the highest sum of each row of scores."""
        return self.subsets[(scores @ self.indicator).argmax(axis=1)] if len(self.subsets) else None


class Exchanges:
    """The allowed exchanges of one arm of a subset for another.

    `may[i, j]` is whether the i-th arm may be exchanged for arm j. Among many arms, those that may come for the same
    arms are one class: only the strongest of a class matters.
    """

    def __init__(self, subset: IntArray, may: NDArray[np.bool_]) -> None:
        self.subset, self.may = subset, may
        self.barred = np.where(may, 0.0, -np.inf)
        arms = np.flatnonzero(may.any(axis=0))
        which = np.arange(len(arms))
        if self.barred.size > FEW_CELLS:
            which = np.unique(may[:, arms].T, axis=0, return_inverse=True)[1].reshape(-1)
        self._arms = arms[np.argsort(which, kind="stable")]
        sizes = np.bincount(which)
        self._starts = np.cumsum(sizes) - sizes
        self._classes = None if len(sizes) == len(arms) else np.split(self._arms, self._starts[1:])
        self._barred = self.barred[:, self._arms[self._starts]]

    def best(self, values: FloatArray) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
        """Return the rows of values in which an exchange is a gain; the largest gain, the place it empties, the arm."""
        if not len(self._arms):
            none = np.empty(0, np.int64)
            return none, np.empty(0), none, none
        come = values[:, self._arms]
        if self._classes is not None:
            come = np.maximum.reduceat(come, self._starts, axis=1)
        gains = (come[:, None, :] - values[:, self.subset, None] + self._barred).reshape(len(values), -1)
        best = gains.argmax(axis=1)
        gain = gains[np.arange(len(values)), best]
        rows = (gain > 0).nonzero()[0]
        place, kind = np.divmod(best[rows], self._barred.shape[1])
        return rows, gain[rows], place, self._strongest(values, rows, kind)

    def _strongest(self, values: FloatArray, rows: IntArray, kind: IntArray) -> IntArray:
        """Return the strongest arm of a class in each of these rows."""
        if self._classes is None:
            return self._arms[kind]
        arm = np.empty(len(rows), np.int64)
        for each in np.unique(kind).tolist():
            of, own = kind == each, self._classes[each]
            arm[of] = own[values[np.ix_(rows[of], own)].argmax(axis=1)]
        return arm


class Allowed:
    """The allowed subsets of K of N arms."""

    def __init__(self, n_arms: int, k: int, rows: Inequalities, status: NDArray[np.int64], way: Solver) -> None:
        self.n_arms, self.k, self.rows, self.way = n_arms, k, rows, way
        self.always, self.never = status == IN, status == OUT
        self.free = np.flatnonzero(status == FREE)
        self._in = np.flatnonzero(self.always)
        self._exchanges: dict[bytes, Exchanges] = {}

    @property
    def is_quotas(self) -> bool:
        """Whether a subset that no allowed exchange of two arms improves is the best: the subsets are a matroid."""
        return isinstance(self.way, Quotas)

    @property
    def is_fixed(self) -> bool:
        """Whether the rules only say which arms are always in and which never; all other choices are free."""
        return isinstance(self.way, Quotas) and self.way.trivial

    @property
    def groups(self) -> NDArray[np.int64]:
        """The group of each arm under quotas; arms without a quota are in group 0."""
        assert isinstance(self.way, Quotas)
        group = np.zeros(self.n_arms, np.int64)
        group[self.free] = self.way.group
        return group

    def allows(self, subsets: Any) -> NDArray[np.bool_]:
        """Return whether each subset obeys the rules."""
        rows = np.asarray(subsets)
        fits = self.rows.hold(self.rows.matrix.T[rows].sum(axis=-2))
        return np.asarray(fits & (self.always[rows].sum(axis=-1) == len(self._in)) & ~self.never[rows].any(axis=-1))

    def best(self, scores: FloatArray) -> IntArray:
        """Return the allowed subset with the highest sum of each row of scores, sorted."""
        found = self.way.best(scores[:, self.free])
        assert found is not None  # there is an allowed subset: checked when this object was made
        return self.lifted(found)

    @cached_property
    def seconds(self) -> float:
        """Processor time in which the solver finds the best subset of random scores; 0 where none is needed."""
        if self.way.exact:
            return 0.0
        began = time.thread_time()
        self.best(np.random.default_rng(0).random((1, self.n_arms)))
        return time.thread_time() - began

    def top(self, scores: FloatArray) -> IntArray:
        """Return the allowed subset with the highest sum of scores; of equal scores, preferably the lowest arms."""
        order = np.argsort(-scores, kind="stable")
        tie = np.empty(len(scores))
        tie[order] = -np.arange(len(scores))
        values = scores + tie * (1e-9 * (1 + np.abs(scores).max()) / len(scores))
        [found] = self.best(values[None, :])
        return np.asarray(found)

    def exchanges(self, subset: IntArray) -> Exchanges:
        """Return the allowed exchanges of one arm of an allowed subset for another."""
        key = np.asarray(subset, np.int64).tobytes()
        if key not in self._exchanges:
            if len(self._exchanges) >= MOST_REMEMBERED:
                self._exchanges.clear()
            self._exchanges[key] = Exchanges(np.asarray(subset), self._may(np.asarray(subset)))
        return self._exchanges[key]

    def _may(self, subset: IntArray) -> NDArray[np.bool_]:
        """Return whether the i-th arm of a subset may be exchanged for arm j."""
        outside = ~self.never
        outside[subset] = False
        may = ~self.always[subset][:, None] & outside
        matrix = self.rows.matrix
        sums = matrix[:, subset].sum(axis=1)
        for row, low, high, total in zip(matrix, self.rows.low, self.rows.high, sums, strict=True):
            after = (total - row[subset])[:, None] + row
            may &= (after >= low) & (after <= high)
        return np.asarray(may)

    def sweeps(self, rounds: int, rng: np.random.Generator) -> IntArray:
        """Return random allowed subsets that together have each arm that can be played, `rounds` times over."""
        found: list[IntArray] = []
        start = None
        for _ in range(rounds):
            missing = np.zeros(self.n_arms, bool)
            missing[self.free] = True
            if not missing.any():
                return self.lifted(np.empty((1, 0), np.int64))
            while missing.any():
                start = self._covering(missing, rng, start)
                if not missing[start].any():
                    break  # the rest is in no allowed subset
                found.append(start)
                missing[start] = False
        return np.array(found)

    def _covering(self, missing: NDArray[np.bool_], rng: np.random.Generator, near: IntArray | None) -> IntArray:
        """Return a random allowed subset with some of the missing arms; without any only if there is none."""
        if near is not None and not self.way.exact:
            walked = self._walk(near, missing, rng)
            if missing[walked].any():
                return walked
        [found] = self.best((missing * 2.0 * self.k + rng.random(self.n_arms))[None, :])
        return np.asarray(found)

    def _walk(self, subset: IntArray, missing: NDArray[np.bool_], rng: np.random.Generator) -> IntArray:
        """Return the subset after exchanges of random other arms for random missing ones, as long as there are any."""
        for _ in range(self.k):
            may = self._may(subset) & missing
            may[missing[subset]] = False
            out, into = np.nonzero(may)
            if not len(out):
                break
            chosen = rng.integers(len(out))
            subset = subset.copy()
            subset[out[chosen]] = into[chosen]
            subset.sort()
        return subset

    @property
    def number(self) -> int | None:
        """How many subsets are allowed, if `random` draws each of them with the same probability; else None."""
        if isinstance(self.way, Listed):
            return len(self.way.subsets)
        return self.way.number if isinstance(self.way, Quotas) else None

    def random(self, count: int, rng: np.random.Generator) -> IntArray:
        """Return random allowed subsets."""
        if isinstance(self.way, Listed):
            return self.lifted(self.way.subsets[rng.integers(len(self.way.subsets), size=count)])
        if isinstance(self.way, Quotas):
            return self.lifted(self.way.random(count, rng))
        chains, found = self.best(rng.random((min(count, CHAINS), self.n_arms))), []
        for number in range(count):
            place = number % len(chains)
            chains[place] = self._walk(chains[place], rng.random(self.n_arms) < 1 / 2, rng)
            found.append(chains[place].copy())
        return np.array(found)

    def only(self, subsets: IntArray) -> IntArray:
        """Return the subsets of this list that are allowed."""
        parts = [subsets[start : start + AT_ONCE] for start in range(0, len(subsets), AT_ONCE)]
        return np.concatenate([part[self.allows(part)] for part in parts])

    def lifted(self, subsets: IntArray) -> IntArray:
        """Return subsets of the free arms with the numbers of all arms, including the arms that are always in."""
        fixed = np.broadcast_to(self._in, (len(subsets), len(self._in)))
        return np.sort(np.hstack([fixed, self.free[subsets]]), axis=1)

    @property
    def first(self) -> Subset:
        """An allowed subset."""
        return tuple(self.top(np.zeros(self.n_arms)).tolist())


FEW_CELLS = 2**10
"""Places times arms up to which exchanges are looked at one by one. It affects speed only."""

AT_ONCE = 2**14
"""Subsets that are checked at once. Higher: more memory."""

CHAINS = 8
"""Random subsets that the solver finds for one call, from which random walks begin. Rules such as "only together" can
forbid all exchanges of one arm: a walk then stays where it is. Higher: slower, and more different subsets then."""

MOST_REMEMBERED = 64
"""Most subsets whose exchanges are kept; more are computed again. It affects speed only."""

FREE, IN, OUT = 0, 1, 2


def allowed(rules: Sequence[Rule], n_arms: int, k: int, names: Sequence[str] | None, fewest: int) -> Allowed:
    """Return the allowed subsets of `fewest` to K arms; BadInput with the rules that clash if there are none."""
    n_arms, k = check_sizes(n_arms, k)
    if n_arms > MOST_ARMS:
        raise BadInput(f"constraints are for at most {MOST_ARMS:,} arms; got {n_arms:,}")
    for rule in rules:
        for arm in rule.listed:
            if not isinstance(arm, int) or not 0 <= arm < n_arms:
                raise BadInput(f"an arm of a rule must be a number from 0 to {n_arms - 1}; got {arm!r} in: {rule}")
    places = n_arms + k - fewest
    found = _made(tuple(rules), places, k)
    if found is None:
        sizes = f"{k}" if fewest == k else f"{fewest} to {k}"
        clash = _clash(tuple(rules), places, k)
        if clash is None:
            raise BadInput(
                f"no {sizes} of {n_arms} arms obey all {len(rules):,} rules. Which of them clash was not found within "
                f"{MOST_SECONDS:g} seconds: leave out some to find out"
            )
        if names is not None:
            clash = tuple(rule.renamed(lambda arm: names[int(arm)]) for rule in clash)
        what = "these rules cannot hold together" if len(clash) > 1 else "this rule cannot hold"
        raise BadInput(f"{what} for {sizes} of {n_arms} arms: {'; '.join(map(str, clash))}. Change or leave out one")
    return found


def _clash(rules: tuple[Rule, ...], n_arms: int, k: int) -> tuple[Rule, ...] | None:
    """Return rules that cannot hold together, none of which can be left out; None if finding them takes too long.

    QuickXplain (Junker 2004): c of R rules are found with about 2 c log2(R / c) checks, in place of R.
    """
    until = time.monotonic() + MOST_SECONDS

    def needed(given: tuple[Rule, ...], others: tuple[Rule, ...], more: bool) -> tuple[Rule, ...]:
        """Return which of the others clash with those that are given; `more` if some were added to these."""
        if time.monotonic() > until:
            raise TimeoutError
        if more and _made(given, n_arms, k) is None:
            return ()
        if len(others) == 1:
            return others
        first, second = others[: len(others) // 2], others[len(others) // 2 :]
        of_second = needed(given + first, second, True)
        return needed(given + of_second, first, bool(of_second)) + of_second

    try:
        return needed((), rules, False)
    except (BadInput, TimeoutError):
        return None


@lru_cache(maxsize=64)
def _made(rules: tuple[Rule, ...], n_arms: int, k: int) -> Allowed | None:
    """Return the allowed subsets, or None if there are none."""
    rows = _rows(rules, n_arms)
    status = _implied(rows, n_arms, k)
    if status is None:
        return None
    free, fixed = np.flatnonzero(status == FREE), np.flatnonzero(status == IN)
    places = k - len(fixed)
    inside = rows.matrix[:, fixed].sum(axis=1)
    left = _binding(Inequalities(rows.matrix[:, free], rows.low - inside, rows.high - inside), places)
    if left is None:
        return None
    way: Solver | None = quotas(left.matrix, left.low, left.high, places)
    if way is None and math.comb(len(free), places) <= MOST_TRIED:
        subsets = _tried(rows, free, fixed, places)
        way = Listed(subsets, len(free)) if len(subsets) <= MOST_LISTED else None
    way = way or MilpSolver(left.matrix, left.low, left.high, places, left.hold)
    return None if way.best(np.zeros((1, len(free)))) is None else Allowed(n_arms, k, rows, status, way)


def _rows(rules: Sequence[Rule], n_arms: int) -> Inequalities:
    """Return all inequalities, with their slack for rounding."""
    rows = [row for rule in rules for row in rule.rows()]
    matrix = np.zeros((len(rows), n_arms))
    for number, row in enumerate(rows):
        arms = np.array(list(row.coefficients), np.int64)
        matrix[number, arms] = list(row.coefficients.values())
    low, high = (np.array([each[side] for each in rows], float) for side in (1, 2))
    slacks = np.array([slack(row.high) for row in rows])
    return Inequalities(matrix, low - slacks, high + slacks)


def _implied(rows: Inequalities, n_arms: int, k: int) -> NDArray[np.int64] | None:
    """Return which arms are in every allowed subset, or in none, by looking at one inequality at a time.

    None if an arm can be neither in nor out. The number of arms, K, is an inequality too.
    """
    matrix = np.vstack([np.ones((1, n_arms)), rows.matrix])
    low, high = np.append(k - ROUNDING, rows.low)[:, None], np.append(k + ROUNDING, rows.high)[:, None]
    less, more = np.minimum(matrix, 0.0), np.maximum(matrix, 0.0)
    status = np.zeros(n_arms, np.int64)
    while True:
        free, fixed = status == FREE, matrix[:, status == IN].sum(axis=1, keepdims=True)
        least = fixed + less[:, free].sum(axis=1, keepdims=True)
        most = fixed + more[:, free].sum(axis=1, keepdims=True)
        if ((least > high) | (most < low)).any():
            return None
        if_in = ((least - less + matrix > high) | (most - more + matrix < low)).any(axis=0) & free
        if_out = ((least - less > high) | (most - more < low)).any(axis=0) & free
        if (if_in & if_out).any():
            return None
        if not (if_in | if_out).any():
            return status
        status[if_in], status[if_out] = OUT, IN


def _binding(rows: Inequalities, places: int) -> Inequalities | None:
    """Return the inequalities that not all subsets of this size satisfy; None if no subset satisfies one."""
    ordered = np.sort(rows.matrix, axis=1)
    least, most = ordered[:, :places].sum(axis=1), ordered[:, ordered.shape[1] - places :].sum(axis=1)
    if ((least > rows.high) | (most < rows.low)).any():
        return None
    binds = (least < rows.low) | (most > rows.high)
    return Inequalities(rows.matrix[binds], rows.low[binds], rows.high[binds])


def _tried(rows: Inequalities, free: IntArray, fixed: IntArray, places: int) -> IntArray:
    """Return all allowed subsets, by trying every choice of the free arms; arms are numbered among the free ones."""
    if not places:
        return np.empty((1, 0), np.int64)
    inside, columns = rows.matrix[:, fixed].sum(axis=1), rows.matrix[:, free].T
    blocks = subset_blocks(len(free), places, 2**16)
    return np.concatenate([block[rows.hold(columns[block].sum(axis=1) + inside)] for block in blocks])
