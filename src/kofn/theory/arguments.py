"""Arguments of the formulas, checked: within what floating point can square."""

from __future__ import annotations

import math

from kofn.core import BadInput, check_sizes, whole

MOST_ARMS, LONGEST, FINEST = 10**12, int(1e100), 1e-30
"""The largest N and T and the smallest resolution that the formulas take."""


def some_plays(horizon: int) -> int:
    """T, as an int."""
    if (number := whole("horizon", horizon)) > LONGEST:
        raise BadInput("horizon must be at most 1e100 plays, but more came")
    return number


def some_arms(n_arms: int) -> int:
    """N, as an int."""
    if (number := whole("n_arms", n_arms, least=2)) > MOST_ARMS:
        raise BadInput("n_arms must be at most 1e12, but more came")
    return number


def some_sizes(n_arms: int, k: int) -> tuple[int, int]:
    """N and K, as ints with 1 <= K < N."""
    n_arms, k = check_sizes(n_arms, k)
    return some_arms(n_arms), k


def a_number(name: str, value: float) -> float:
    """The value as a finite number."""
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise BadInput(f"{name} must be a finite number, not {value!r}")
    return number


def a_slope(value: float) -> float:
    """U: at least 1."""
    if not 1 <= (u := a_number("lipschitz", value)) <= 1e9:
        raise BadInput(f"lipschitz must lie from 1 to 1e9, not {value!r}: it bounds a slope and its inverse")
    return u


def a_resolution(given: float) -> float:
    """The resolution given: between 0 and 1."""
    if not FINEST <= (number := a_number("resolution", given)) < 1:
        raise BadInput(
            f"resolution must lie between 0 (or rather {FINEST:g}) and 1, not {given!r}; leave it out for the paper's"
        )
    return number
