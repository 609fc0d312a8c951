"""What the policies that draw have in common: a generator for each plan, made anew from the seed when it is needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from kofn.core import Policy, Seed, seed_number


class Randomised(Policy):
    """A policy whose plans are drawn. The draws depend on the seed and the number of plans so far, and on nothing else,
    so that planning twice is planning once and no generator has to be saved.
    """

    def __init__(self, n_arms: int, k: int, *, seed: Seed = None, **params: Any) -> None:
        super().__init__(n_arms, k, seed=seed_number(seed), **params)

    def _rng(self, *purpose: int) -> np.random.Generator:
        """The generator of the next plan; or, with a number for the purpose, of something else beside it."""
        return np.random.default_rng([self._params["seed"], self.turns, *purpose])
