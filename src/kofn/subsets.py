"""All C(N, K) subsets as one array, for what has no better way."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np

from kofn.core import IntArray, TooManySubsets

MOST_BYTES = 2**31
"""Memory for all subsets, and what is kept of each, at the most."""

BYTES_BESIDE = 64
"""What a policy keeps of a subset beside its arms: totals, counts, and copies while it plans and learns."""


@lru_cache(maxsize=2)
def all_subsets(n_arms: int, k: int) -> IntArray:
    """Every subset, a row each, in lexicographic order; read-only, since it is shared.

    >>> all_subsets(4, 2).tolist()
    [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    """
    dtype = np.min_scalar_type(n_arms - 1)
    count = math.comb(n_arms, k)
    need = count * (k * dtype.itemsize + BYTES_BESIDE)
    if need > MOST_BYTES:
        raise TooManySubsets(
            f"{k} of {n_arms} arms make {count:,} subsets, some {need / 2**30:,.0f} GiB: too many to keep one by one. "
            f"Choose a policy with linear memory, such as cmab-sm"
        )
    flat = itertools.chain.from_iterable(itertools.combinations(range(n_arms), k))
    subsets = np.fromiter(flat, dtype, count * k).reshape(count, k)
    subsets.flags.writeable = False
    return subsets
