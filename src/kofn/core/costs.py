"""Costs of arms: checked, and the range of rewards net of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kofn.core.checks import Direction, FloatArray, finite_numbers, shown
from kofn.core.errors import BadInput


def check_costs(costs: Any, n_arms: int) -> FloatArray:
    """Return the cost of each arm, in units of the reward; or raise BadInput."""
    if isinstance(costs, str) or not isinstance(costs, Sequence | np.ndarray):
        raise BadInput(f"costs must be a list of numbers, one for each arm; got {shown(costs)}")
    found = finite_numbers("costs", costs)
    if found.shape != (n_arms,) or (found < 0).any():
        raise BadInput(f"costs must be {n_arms} numbers of at least 0, one for each arm; got {shown(costs)}")
    return found


def net_range(
    gross: tuple[float, float], direction: Direction, costs: FloatArray, fewest: int, k: int
) -> tuple[float, float]:
    """Return the range of rewards net of the costs of `fewest` to K arms.

    Costs are subtracted from rewards, or added to them if rewards are minimised.
    """
    ordered = np.sort(costs)
    least, most = float(ordered[:fewest].sum()), float(ordered[len(ordered) - k :].sum())
    low, high = gross
    return (low - most, high - least) if direction == "maximize" else (low + least, high + most)
