"""All C(N, K) subsets as one array, for algorithms that need them all."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from kofn.core import IntArray, TooManySubsets

MOST_BYTES = 2**31
"""Most memory for all subsets and the data of each, in bytes."""

BYTES_BESIDE = 64
"""Memory per subset beside its arms, in bytes: totals, counts, and copies while planning and learning."""


@lru_cache(maxsize=2)
def all_subsets(n_arms: int, k: int) -> IntArray:
    """Return every subset as a row, in lexicographic order; read-only, since it is cached.

    >>> all_subsets(4, 2).tolist()
    [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    """
    dtype = np.min_scalar_type(n_arms - 1)
    count = math.comb(n_arms, k)
    need = count * (k * dtype.itemsize + BYTES_BESIDE)
    if need > MOST_BYTES:
        shown = f"{count:,}" if count < 10**15 else f"about 10^{math.log10(count):.0f}"
        raise TooManySubsets(
            f"{k} of {n_arms} arms make {shown} subsets, too many to keep one by one in {MOST_BYTES / 2**30:.0f} GiB. "
            f"Use a policy with linear memory, such as cmab-sm"
        )
    subsets = np.concatenate([block.astype(dtype) for block in subset_blocks(n_arms, k)])
    subsets.flags.writeable = False
    return subsets


def subset_blocks(n_arms: int, k: int, cells: int = 2**20) -> Iterator[IntArray]:
    """Yield every subset in lexicographic order, in blocks of about `cells` arms at most."""
    every = itertools.combinations(range(n_arms), k)
    rows = max(1, cells // k)
    while (block := np.fromiter(itertools.chain.from_iterable(itertools.islice(every, rows)), np.int64)).size:
        yield block.reshape(-1, k)
