"""The best subset under any linear rules, by SciPy's HiGHS, an exact solver of integer programs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from kofn.core import BadInput, FloatArray, IntArray, KofnError

MOST_NODES, MOST_WORK = 1_000, 10**7
"""Most nodes of the solver's search for one subset, and most nodes times arms times inequalities. Numbers, not times,
so that the same rewards lead to the same plays. Most problems take one node; several budgets of hundreds of arms take
thousands, and the best subset found is then taken, without a proof that it is the best. Higher: slower on these."""

MOST_SECONDS = 10.0
"""Most seconds for the question whether any subset obeys the rules. It can refuse rules, and never changes a play."""


class MilpSolver:
    """One integer program per row of scores: some milliseconds each, so that callers limit their number."""

    exact = False

    def __init__(
        self, matrix: FloatArray, low: FloatArray, high: FloatArray, places: int, hold: Callable[[FloatArray], object]
    ) -> None:
        self.matrix, self.low, self.high, self.places, self.hold = matrix, low, high, places, hold
        self._known: IntArray | None = None  # an allowed subset

    def best(self, scores: FloatArray) -> IntArray | None:
        """Return the subset with the highest sum of each row of scores."""
        found = [self._solve(row) for row in scores]
        subsets = [subset for subset in found if subset is not None]
        return np.array(subsets) if len(subsets) == len(found) else None

    def _solve(self, score: FloatArray) -> IntArray | None:
        """Return one subset, checked; the solver's own tolerance is wider than ours, so what it allows may not do.

        Without scores, the question is whether there is a subset at all. It is answered first, and in bounded time.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp  # imported here: half the time of importing kofn

        arms = len(score)
        size = float(np.abs(score).max())
        matrix, low, high = np.vstack([np.ones(arms), self.matrix]), self.low, self.high
        low, high = np.append(self.places, low), np.append(self.places, high)
        nodes = max(1, min(MOST_NODES, MOST_WORK // matrix.size))
        until = time.monotonic() + MOST_SECONDS
        while True:
            seconds = max(until - time.monotonic(), 0.0)
            options: Any = {"mip_rel_gap": 0.0} | ({"node_limit": nodes} if size else {"time_limit": seconds})
            found = milp(
                -score / (size or 1.0),
                integrality=np.ones(arms, np.int64),
                bounds=Bounds(0, 1),
                constraints=LinearConstraint(matrix, low, high),
                options=options,
            )
            if found.status == 2:
                return None
            if found.x is None and found.status == 1:
                return self._without_solver()
            if found.x is None:
                raise KofnError(f"the solver of constraints failed: {found.message}")
            subset = np.flatnonzero(found.x > 1 / 2)
            if self.hold(self.matrix[:, subset].sum(axis=1)):
                if self._known is None:
                    self._known = subset
                return subset
            excluded = np.zeros(arms)
            excluded[subset] = 1.0
            matrix = np.vstack([matrix, excluded])
            low, high = np.append(low, 0), np.append(high, self.places - 1)

    def _without_solver(self) -> IntArray:
        """Return the subset that is known to obey the rules, where the solver finds none within its limit."""
        if self._known is None:
            raise BadInput(
                f"these rules are too hard: {MOST_SECONDS:g} seconds did not show whether any subset obeys them all. "
                "Use fewer rules, or one rule about many arms in place of many about two"
            )
        return self._known
