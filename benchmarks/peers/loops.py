"""The least that a loop over plays can cost: UCB1 over all subsets, and draws alone, compiled by Numba."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers.world import World
from kofn.core import FloatArray, IntArray

Loop = Callable[[FloatArray, IntArray, int, bool, np.random.Generator], IntArray]


def ucb_loop(p: FloatArray, subsets: IntArray, plays: int, counts: bool, rng: np.random.Generator) -> IntArray:
    """Run UCB1 with drawn rewards; return the index of the subset of each play."""
    size, k = subsets.shape
    n, mean, chosen = np.zeros(size), np.zeros(size), np.empty(plays, np.int64)
    for t in range(plays):
        best = t
        if t >= size:  # every subset has been played once
            best, highest, wide = 0, -1.0, 2 * math.log(t)
            for i in range(size):
                bound = mean[i] + math.sqrt(wide / n[i])
                if bound > highest:
                    best, highest = i, bound
        paid = 0
        for j in range(k):
            if rng.random() < p[subsets[best, j]]:
                paid += 1
        reward = paid / k if counts else min(1.0, paid)
        n[best] += 1
        mean[best] += (reward - mean[best]) / n[best]
        chosen[t] = best
    return chosen


def draw_loop(p: FloatArray, subsets: IntArray, plays: int, counts: bool, rng: np.random.Generator) -> IntArray:
    """Draw plays of the first subset without choosing; return the number of arms that paid."""
    paid = np.zeros(1, np.int64)
    for _ in range(plays):
        for j in range(subsets.shape[1]):
            if rng.random() < p[subsets[0, j]]:
                paid[0] += 1
    return paid


def compiled(loop: Loop) -> Loop:
    """Compile the loop to machine code."""
    numba: Any = importlib.import_module("numba")
    made: Loop = numba.njit(loop)
    made(np.full(3, 0.5), np.array([[0, 1], [0, 2], [1, 2]]), 10, True, np.random.default_rng(1))
    return made


def timed(loop: Loop, world: World, plays: int) -> tuple[IntArray, float]:
    """Run the loop for a number of plays; return its result and the processor time in seconds."""
    rng = np.random.default_rng(np.random.SeedSequence(world.seed).spawn(4)[3])
    p, subsets = np.array(world.p), np.array(world.subsets)  # copies, because the code is compiled for writable arrays
    begun = time.process_time()
    result = loop(p, subsets, plays, world.counts, rng)
    return result, time.process_time() - begun


def speed(loop: Loop, world: World, plays: int) -> float:
    """Return plays per second after the first round, in which nothing is chosen."""
    first = len(world.subsets)
    longer, shorter = (min(timed(loop, world, first + more)[1] for _ in range(3)) for more in (plays, 0))
    return plays / (longer - shorter)
