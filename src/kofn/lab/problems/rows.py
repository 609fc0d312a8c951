"""Checks of the subsets and times that a problem is played with, turned into arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kofn.core import BadInput, IntArray

Subsets: TypeAlias = IntArray | Sequence[int] | Sequence[Sequence[int]] | Iterable[Iterable[int]]

_NATIVE = frozenset(np.dtype(kind + size) for kind in "iu" for size in "1248")
_UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def subset_rows(subsets: Subsets, n_arms: int, k: int, *, fewer: bool) -> IntArray:
    """Return the subsets as a checked (m, K) integer array; empty places, allowed if `fewer`, become arm N."""
    if isinstance(subsets, np.ndarray) and subsets.ndim == 2 and subsets.dtype in _NATIVE:
        rows = subsets
    else:
        rows = _array(subsets, k, fewer)
    if rows.shape[1] != k:
        raise BadInput(f"a subset has {k} arms; got rows of {rows.shape[1]}")
    # Read as unsigned, a negative arm is a huge one: a single pass finds both ends of the range.
    if rows.size and rows.view(_UNSIGNED[rows.dtype.itemsize]).max() >= n_arms:
        rows = _fill_empty_places(rows, n_arms, fewer)
    return rows


def _fill_empty_places(rows: IntArray, n_arms: int, fewer: bool) -> IntArray:
    """Replace -1 by arm N; refuse every other arm out of range, and -1 too unless `fewer`."""
    empty = rows == -1
    wrong = ((rows < 0) | (rows >= n_arms)) & ~(empty & fewer)
    if wrong.any():
        row = int(np.argmax(wrong.any(axis=1)))
        way_out = ". To play fewer arms, give what an empty place (-1) pays: Problem(..., absent=0.0)"
        raise BadInput(
            f"arms are numbered from 0 to {n_arms - 1}; got row {row}: {tuple(rows[row].tolist())}"
            f"{way_out if empty[row].any() and not fewer else ''}"
        )
    return np.where(empty, np.int64(n_arms), rows)


def _array(subsets: Any, k: int, fewer: bool) -> IntArray:
    """Turn lists, tuples or a single subset into an array; check that each row has K different arms."""
    expected = f"subsets must be an (m, {k}) array of arms, or a list of subsets"
    if not isinstance(subsets, np.ndarray):
        try:
            subsets = [tuple(each) if isinstance(each, Iterable) else each for each in subsets]
        except TypeError:
            raise BadInput(f"{expected}, not {subsets!r}") from None
        if fewer:
            subsets = [each + (-1,) * (k - len(each)) if isinstance(each, tuple) else each for each in subsets]
    try:
        rows = np.array(subsets, np.int64 if len(subsets) == 0 else None)
    except (ValueError, TypeError):
        raise BadInput(f"{expected}; got rows of different lengths") from None
    if rows.size == 0 and rows.ndim == 1:
        rows = rows.reshape(0, k)
    rows = rows[None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.dtype.kind not in "iu":
        raise BadInput(f"{expected}; got {rows.dtype} of shape {rows.shape}")
    rows = rows.astype(np.int64)
    ordered = np.sort(rows, axis=1)
    if (repeated := ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != -1)).any(axis=1)).any():
        first = tuple(rows[int(np.argmax(repeated))].tolist())
        raise BadInput(f"a subset has {k} different arms; got {first}")
    return rows


def play_counts(times: ArrayLike, rows: int) -> tuple[NDArray[np.int64], int]:
    """Return a fresh int64 copy of the times, and the smallest of them (0 if there are none)."""
    count = np.array(times)
    if count.size == 0 and rows == 0:
        return np.zeros(0, np.int64), 0
    if count.dtype.kind not in "iu":
        raise BadInput(f"times must be whole numbers of plays; got {count.dtype}")
    if count.shape != (rows,):
        raise BadInput(f"times must have one number per row, shape ({rows},); got {count.shape}")
    least = int(count.min())
    if least < 0:
        raise BadInput(f"times must be at least 0; row {int(np.argmin(count))} has {least}")
    return count.astype(np.int64, copy=False), least
