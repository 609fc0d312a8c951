"""What the default policy, `thompson`, is expected to lose and to find, from stored simulations.

`python -m benchmarks.budget` makes the table: for each family of random problems, N and K, runs of a million plays.
Sizes between the simulated ones are interpolated linearly in log N, in log K / log(N / 2) and in log T; regret and
numbers of plays are interpolated by their logarithms, the error of the regret in proportion to the regret. Nothing is
extrapolated.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kofn.core import FloatArray
from kofn.core.formula_checks import check_arms_and_k, check_plays

TABLE = Path(__file__).with_name("thompson_budget.csv")
HORIZONS = (10**2, 10**3, 10**4, 10**5, 10**6)
"""The numbers of plays at which the table has the regret."""
CLOSE = 0.01
"""The gap, as a share of the reward range, within which a subset counts as found. A smaller gap takes more plays."""
LEAST_REGRET = 0.1
"""Regret below this is interpolated as this: the logarithm of 0 does not exist."""


@dataclass(frozen=True, kw_only=True)
class FamilyBudget:
    """What `thompson` does on random problems of one family, in the mean over the runs.

    `regret` and `final_gap` are in units of the reward range. `regret_error` is the half-width of the 95 % confidence
    interval of `regret` (Student's t). Between simulated sizes it is an upper limit on the error that comes from the
    runs of the sizes around; it does not contain the error of interpolating.

    `settled_half` and `settled_90` are the plays after which the policy's best subset stays within `CLOSE` of the
    optimum in half and in 90 % of the runs; None if that takes more than a million plays.
    """

    family: str
    runs: int
    regret: float
    regret_error: float
    found_best: float
    final_gap: float
    settled_half: int | None
    settled_90: int | None


@dataclass(frozen=True, kw_only=True)
class ThompsonBudget:
    """What `thompson` is expected to lose and to find on problems of one size.

    The numbers are for `horizon` plays: `asked`, the requested horizon, or the longest simulated one if that is less.
    `families` is empty if the size is outside the table; `outside` then has the reason.
    """

    n_arms: int
    k: int
    horizon: int
    asked: int
    interpolated: bool
    families: tuple[FamilyBudget, ...]
    outside: str = ""
    close: float = CLOSE

    @property
    def verdict(self) -> str:
        """The forecast in a few sentences."""
        if not self.families:
            return f"Thompson, the default policy: no forecast, because {self.outside}."
        regrets = [each.regret for each in self.families]
        least, most = f"{min(regrets):,.0f}", f"{max(regrets):,.0f}"
        lost = least if least == most else f"{least} to {most}"
        settled = [each.settled_90 for each in self.families]
        latest = None if None in settled else max(each for each in settled if each is not None)
        found = (
            f"after at most {latest:,} plays" if latest is not None else f"only after more than {HORIZONS[-1]:,} plays"
        )
        source = "interpolated between simulated sizes" if self.interpolated else "simulated at this size"
        shorter = "" if self.asked == self.horizon else f" (the table ends there; you have {self.asked:,})"
        return (
            f"Thompson, the default policy: expected regret of {lost} in {self.horizon:,} plays{shorter}, with rewards "
            f"in [0, 1]. In 9 of 10 runs it has found a subset within {self.close:g} of the best {found}. These "
            f"numbers are {source}, {self.families[0].runs} runs for each kind of random problem: "
            f"{', '.join(each.family for each in self.families)}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything and the verdict as plain values, ready for JSON."""
        return asdict(self) | {"families": [asdict(each) for each in self.families], "verdict": self.verdict}


def thompson_budget(n_arms: int, k: int, horizon: int) -> ThompsonBudget:
    """Return what `thompson` is expected to lose and to find, from stored simulations of random problems.

    >>> forecast = thompson_budget(n_arms=30, k=15, horizon=10**6)
    >>> [each.family for each in forecast.families], forecast.interpolated
    (['mean', 'max', 'cross-selling'], False)
    >>> thompson_budget(n_arms=10**6, k=5, horizon=10**6).outside
    'the table has 4 to 300 arms, not 1,000,000'
    """
    n_arms, k = check_arms_and_k(n_arms, k)
    asked = check_plays(horizon)
    horizon = min(asked, HORIZONS[-1])
    size: dict[str, Any] = {"n_arms": n_arms, "k": k, "horizon": horizon, "asked": asked}
    if outside := _outside(n_arms, k, horizon):
        return ThompsonBudget(**size, interpolated=False, families=(), outside=outside)
    sizes = {(n, each) for _, n, each in _table()}
    families = tuple(_family(family, n_arms, k, horizon) for family in dict.fromkeys(key[0] for key in _table()))
    return ThompsonBudget(**size, interpolated=(n_arms, k) not in sizes or horizon not in HORIZONS, families=families)


def _outside(n_arms: int, k: int, horizon: int) -> str:
    """Return why a size is outside the table; an empty text if it is inside."""
    least, most = min(n for _, n, _ in _table()), max(n for _, n, _ in _table())
    if not least <= n_arms <= most:
        return f"the table has {least} to {most} arms, not {n_arms:,}"
    if 2 * k > n_arms:
        return f"the table has K up to N / 2, not K = {k:,} of N = {n_arms:,}"
    if horizon < HORIZONS[0]:
        return f"the table begins at {HORIZONS[0]} plays, and {horizon} are fewer"
    return ""


@cache
def _table() -> dict[tuple[str, int, int], FloatArray]:
    """Return the table: for each family, N and K, a row of numbers for each of HORIZONS.

    The numbers of a row are the runs, the logarithm of the regret, its error as a share of the regret, `found_best`,
    `final_gap`, and the logarithms of `settled_half` and `settled_90`, NaN where there is none. The share is to first
    order the half-width of the logarithm of the regret: linear interpolation never understates it, whatever the
    correlation of the cells.
    """
    table: dict[tuple[str, int, int], list[list[float]]] = {}
    with TABLE.open(newline="") as file:
        for row in csv.DictReader(file):
            regret = max(LEAST_REGRET, float(row["regret"]))
            texts = (row["settled_half"], row["settled_90"])
            settled = [math.log(max(1.0, float(text))) if text else math.nan for text in texts]
            found = (float(row["found_best"]), float(row["final_gap"]))
            numbers = [float(row["runs"]), math.log(regret), float(row["regret_error"]) / regret, *found, *settled]
            table.setdefault((row["family"], int(row["n_arms"]), int(row["k"])), []).append(numbers)
    return {size: np.array(rows) for size, rows in table.items()}


def _family(family: str, n_arms: int, k: int, horizon: int) -> FamilyBudget:
    """Interpolate in T, then in K, then in N."""
    by_n = []
    sizes = sorted({n for name, n, _ in _table() if name == family})
    for n in sizes:
        ks = sorted(each for name, size, each in _table() if (name, size) == (family, n))
        by_k = [_between(math.log(horizon), map(math.log, HORIZONS), _table()[family, n, each]) for each in ks]
        by_n.append(_between(_position(n_arms, k), (_position(n, each) for each in ks), by_k))
    numbers = _between(math.log(n_arms), map(math.log, sizes), by_n).tolist()
    runs, log_regret, log_error, found_best, final_gap, *settled = numbers
    half, most = (None if math.isnan(each) else round(math.exp(each)) for each in settled)
    return FamilyBudget(
        family=family,
        runs=round(runs),
        regret=math.exp(log_regret),
        regret_error=math.exp(log_regret) * log_error,
        found_best=found_best,
        final_gap=final_gap,
        settled_half=half,
        settled_90=most,
    )


def _position(n_arms: int, k: int) -> float:
    """Return where K is between 1 (0.0) and N / 2 (1.0), on a logarithmic scale."""
    return math.log(k) / math.log(n_arms / 2)


def _between(at: float, nodes: Iterable[float], rows: Sequence[FloatArray] | FloatArray) -> FloatArray:
    """Interpolate each column of the rows, which are at these nodes; `np.interp` needs no neighbour at a node."""
    x = list(nodes)
    return np.array([np.interp(at, x, column) for column in np.array(rows).T])
