"""The best subset under any linear rules, by SciPy's HiGHS, an exact solver of integer programs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kofn.core import FloatArray, IntArray, KofnError

MOST_NODES = 1_000
"""Most nodes of the solver's search for one subset. A number, not a time, so that the same rewards lead to the same
plays. Most problems take one node; several budgets of hundreds of arms take thousands, and the best subset found is
then taken, without a proof that it is the best. Higher: slower on these."""

NO_LIMIT = 2**31 - 1
"""The solver's own largest number of nodes."""


class Solver:
    """One integer program per row of scores: some milliseconds each, so that callers limit their number."""

    exact = False

    def __init__(
        self, matrix: FloatArray, low: FloatArray, high: FloatArray, places: int, hold: Callable[[FloatArray], object]
    ) -> None:
        self.matrix, self.low, self.high, self.places, self.hold = matrix, low, high, places, hold

    def best(self, scores: FloatArray) -> IntArray | None:
        """Return the subset with the highest sum of each row of scores."""
        found = [self._solve(row) for row in scores]
        subsets = [subset for subset in found if subset is not None]
        return np.array(subsets) if len(subsets) == len(found) else None

    def _solve(self, score: FloatArray) -> IntArray | None:
        """Return one subset, checked; the solver's own tolerance is wider than ours, so what it allows may not do."""
        from scipy.optimize import Bounds, LinearConstraint, milp  # imported here: half the time of importing kofn

        arms = len(score)
        size = float(np.abs(score).max()) or 1.0
        matrix, low, high = np.vstack([np.ones(arms), self.matrix]), self.low, self.high
        low, high = np.append(self.places, low), np.append(self.places, high)
        limit = MOST_NODES if score.any() else NO_LIMIT  # without scores: is there a subset at all?
        while True:
            found = milp(
                -score / size,
                integrality=np.ones(arms, np.int64),
                bounds=Bounds(0, 1),
                constraints=LinearConstraint(matrix, low, high),
                options={"mip_rel_gap": 0.0, "node_limit": limit},
            )
            if found.status == 2:
                return None
            if found.x is None and limit < NO_LIMIT:
                limit = NO_LIMIT
                continue
            if found.x is None:
                raise KofnError(f"the solver of constraints failed: {found.message}")
            subset = np.flatnonzero(found.x > 1 / 2)
            if self.hold(self.matrix[:, subset].sum(axis=1)):
                return subset
            excluded = np.zeros(arms)
            excluded[subset] = 1.0
            matrix = np.vstack([matrix, excluded])
            low, high = np.append(low, 0), np.append(high, self.places - 1)
