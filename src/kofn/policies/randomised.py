"""Randomised policies: a new random generator for each plan, derived from the seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from kofn.core import IntArray, Policy, PolicyOptions, Seed, generator, seed_number


class SeededOptions(PolicyOptions, total=False):
    """The options of every randomised policy."""

    seed: Seed


class Randomised(Policy):
    """A policy that draws its plans. Draws depend on the seed and the number of completed plans only.

    So planning twice gives the same plan, and a record needs no state of a generator. Without a seed, one is drawn.
    """

    def __init__(self, n_arms: int, k: int, *, seed: Seed = None, **params: Any) -> None:
        super().__init__(n_arms, k, seed=seed_number(seed), **params)

    def _rng(self, *purpose: int) -> np.random.Generator:
        """Return the generator of the next plan, or of another purpose beside it."""
        return np.random.default_rng([self._params["seed"], self.updates, *purpose])


def optional_seed(seed: Seed) -> int | None:
    """Return the seed as a number; None if there is none, for policies that then draw nothing."""
    return None if seed is None else seed_number(seed)


def shuffled_arms(n_arms: int, seed: int | None) -> IntArray:
    """Return the arms in a random order; without a seed, in ascending order."""
    return np.arange(n_arms) if seed is None else generator(seed).permutation(n_arms)
