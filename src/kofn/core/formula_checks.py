"""Checks of the formulas' arguments: they stay within what floating point can square."""

from __future__ import annotations

import math

from kofn.core.checks import check_sizes, whole
from kofn.core.errors import BadInput

MAX_ARMS, MAX_PLAYS, MIN_RESOLUTION = 10**12, int(1e100), 1e-30
"""The largest N and T and the smallest resolution that the formulas accept."""


def check_plays(horizon: int) -> int:
    """Return T as an int."""
    if (number := whole("horizon", horizon)) > MAX_PLAYS:
        raise BadInput("horizon must be at most 1e100 plays; got more")
    return number


def check_arms(n_arms: int) -> int:
    """Return N as an int of at least 2."""
    if (number := whole("n_arms", n_arms, least=2)) > MAX_ARMS:
        raise BadInput("n_arms must be at most 1e12; got more")
    return number


def check_arms_and_k(n_arms: int, k: int) -> tuple[int, int]:
    """Return N and K as ints with 1 <= K < N."""
    n_arms, k = check_sizes(n_arms, k)
    return check_arms(n_arms), k


def check_number(name: str, value: float) -> float:
    """Return the value as a finite float."""
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise BadInput(f"{name} must be a finite number; got {value!r}")
    return number


def check_lipschitz(value: float) -> float:
    """Return U as a float from 1 to 1e9."""
    if not 1 <= (u := check_number("lipschitz", value)) <= 1e9:
        raise BadInput(f"lipschitz must be from 1 to 1e9; got {value!r}: it bounds a slope and its inverse")
    return u


def check_resolution(given: float) -> float:
    """Return the resolution as a float from MIN_RESOLUTION to 1 (excluded)."""
    if not MIN_RESOLUTION <= (number := check_number("resolution", given)) < 1:
        raise BadInput(
            f"resolution must be at least {MIN_RESOLUTION:g} and below 1; got {given!r}. Omit it to use the paper's"
        )
    return number
