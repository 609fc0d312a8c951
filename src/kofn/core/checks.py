"""Checks of arguments. Each error names what was received and what is accepted."""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Literal, SupportsIndex, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from kofn.core.errors import BadInput, BadReward

Subset: TypeAlias = tuple[int, ...]
Seed: TypeAlias = int | np.random.SeedSequence | np.random.Generator | None
Direction: TypeAlias = Literal["maximize", "minimize"]
IntArray: TypeAlias = NDArray[np.integer[Any]]
FloatArray: TypeAlias = NDArray[np.float64]

MAX_LENGTH = 200
"""Longest name of a campaign or an arm, in characters."""

LARGEST_REWARD = 1e140
"""Largest size of a bound of `reward_range`; its inverse is the smallest width. Sums of squared rewards, divided by the
squared width, must be finite. A higher value leaves less room for sums: 1e154 overflows with two plays."""

_CAMPAIGN = re.compile(r"\w(?:[\w .:@+-]*\w)?")


def whole(name: str, value: SupportsIndex, *, least: int = 1) -> int:
    """Return `value` as an int of at least `least`, or raise BadInput; 1e6 is accepted, 2.5 and True are not."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    try:
        if isinstance(value, np.bool_):  # NumPy 2.0 takes it for an index, with a warning
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise BadInput(f"{name} must be a whole number, not {value!r}") from None
    if isinstance(value, bool) or number < least:
        raise BadInput(f"{name} must be a whole number of at least {least}, not {value!r}")
    return number


def check_sizes(n_arms: SupportsIndex, k: SupportsIndex) -> tuple[int, int]:
    """Return N and K as ints with 1 <= K < N, or raise BadInput."""
    n_arms, k = whole("n_arms", n_arms), whole("k", k)
    if k >= n_arms:
        raise BadInput(f"k must be less than n_arms; got k={k} and n_arms={n_arms}")
    return n_arms, k


def subset_of(arms: Iterable[SupportsIndex], n_arms: int, k: int) -> Subset:
    """Return `arms` as a sorted tuple of k different arms, or raise BadInput."""
    try:
        subset = tuple(sorted(operator.index(arm) for arm in arms))
    except TypeError:
        raise BadInput(f"a subset must be {k} arms from 0 to {n_arms - 1}; got {arms!r}") from None
    if len(set(subset)) != k or len(subset) != k:
        raise BadInput(f"a subset must have {k} different arms; got {subset}")
    if subset[0] < 0 or subset[-1] >= n_arms:
        raise BadInput(f"an arm must be a number from 0 to {n_arms - 1}; got {subset}")
    return subset


def check_range(reward_range: Sequence[float]) -> tuple[float, float]:
    """Return (low, high) as floats, or raise BadInput."""
    try:
        low, high = (float(each) for each in reward_range)
    except (TypeError, ValueError):
        raise BadInput(f"reward_range is two numbers (low, high), not {reward_range!r}") from None
    if not (low < high and math.isfinite(low) and math.isfinite(high)):
        raise BadInput(f"reward_range needs two finite numbers with low < high, not ({low:g}, {high:g})")
    if max(abs(low), abs(high)) > LARGEST_REWARD or high - low < 1 / LARGEST_REWARD:
        raise BadInput(
            f"reward_range needs numbers from {-LARGEST_REWARD:g} to {LARGEST_REWARD:g} that differ by at least "
            f"{1 / LARGEST_REWARD:g}, not ({low:g}, {high:g}): use another unit"
        )
    return low, high


def reward_number(reward: Any) -> float:
    """Return a reward as a float, or raise BadReward; text is not parsed."""
    try:
        return float(reward if isinstance(reward, Decimal) else reward + 0.0)  # a sum: float() would parse text
    except (TypeError, ValueError, OverflowError):
        raise BadReward(f"a reward must be one number; got {shown(reward)}") from None


def outside_range(low: float, high: float, received: str) -> BadReward:
    """Return the error for a reward outside its range."""
    return BadReward(f"a reward must be between {low:g} and {high:g} (reward_range); got {received}")


def shown(value: object) -> str:
    """Return a received value for an error message, shortened to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def generator(seed: Seed) -> np.random.Generator:
    """Return the random generator of a seed: an int, a SeedSequence, a Generator or None."""
    if isinstance(seed, bool) or not (
        seed is None or isinstance(seed, int | np.integer | np.random.SeedSequence | np.random.Generator)
    ):
        raise BadInput(f"seed must be an int, a SeedSequence or a Generator, not {seed!r}")
    if isinstance(seed, int | np.integer) and seed < 0:
        raise BadInput(f"seed must be at least 0, not {seed}")
    return np.random.default_rng(cast(Any, seed))


def seed_number(seed: Seed) -> int:
    """Return the seed as a number that JSON in a browser can hold; a random one for None."""
    if isinstance(seed, int | np.integer) and not isinstance(seed, bool) and 0 <= seed < 2**53:
        return int(seed)
    return int(generator(seed).integers(2**53))


def whole_numbers(name: str, values: Any) -> NDArray[np.int64]:
    """Return a list of whole numbers as an array, or raise BadInput; nothing is rounded or parsed."""
    array = np.asarray(values)
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu" or array.min() < 0:
        raise BadInput(f"{name} must be whole numbers of at least 0")
    return array.astype(np.int64)


def finite_numbers(name: str, values: Any) -> FloatArray:
    """Return a list of finite numbers as an array, or raise BadInput; nothing is parsed."""
    array = np.asarray(values)
    if array.size == 0:
        return array.astype(float)
    if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        raise BadInput(f"{name} must be finite numbers")
    return array.astype(float)


MAX_HORIZON = 2**62
"""The longest run, in plays: counts of plays are 64-bit integers."""


def check_horizon(horizon: SupportsIndex, *, least: int = 1) -> int:
    """Return the horizon as an int from `least` to MAX_HORIZON, or raise BadInput."""
    if (number := whole("horizon", horizon, least=least)) > MAX_HORIZON:
        raise BadInput(f"horizon must be at most 2**62 plays, which is {MAX_HORIZON:.1e}; got more")
    return number


def unknown_name(what: str, name: object, known: Iterable[str]) -> str:
    """Return the message for a name that does not exist, with the most similar name if there is one."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1) if isinstance(name, str) else []
    hint = f": did you mean {close[0]!r}?" if close else "."
    return f"there is no {what} {name!r}{hint} Available: {', '.join(names)}"


def campaign_name(name: object) -> str:
    """Return the name, or raise BadInput. It becomes part of URLs and file names, so few characters are allowed.

    The clients check it too: a name such as `..` or `a/b` in a URL would reach another route.
    """
    if is_campaign_name(name):
        return str(name)
    raise BadInput(
        f"a campaign's name must be letters and digits, with .:@+-_ or spaces between them, at most {MAX_LENGTH} "
        f"characters; got {shown(name)}"
    )


def is_campaign_name(name: object) -> bool:
    """Return whether a campaign can have this name."""
    return isinstance(name, str) and len(name) <= MAX_LENGTH and _CAMPAIGN.fullmatch(name) is not None
