"""A random instance whose outcomes are drawn beforehand, so that all players see the same."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Self

import numpy as np

import kofn
from kofn.core import FloatArray, Subset
from kofn.lab.settings import Setting


@dataclass(frozen=True)
class World:
    """One instance of a setting, with the arms that pay in each play.

    `subsets` is the list that players without K of N choose from, in random order. Outcomes are bits: computing a
    reward takes a tenth of a microsecond, so the time measured is that of the player.
    """

    problem: kofn.Problem
    p: FloatArray
    subsets: list[Subset]
    masks: dict[Subset, int]
    outcomes: list[int]
    seed: int

    @classmethod
    def of(cls, setting: Setting, horizon: int, seed: int) -> Self:
        """Draw the instance of a seed, with outcomes for `horizon` plays."""
        for_problem, for_plays, for_order = np.random.SeedSequence(seed).spawn(3)
        problem = setting.problem(for_problem)
        if not isinstance(problem, kofn.Problem) or not isinstance(problem.arms, kofn.Bernoulli):
            raise kofn.BadInput(f"the peers play Bernoulli arms, such as those of 'max'; got {setting.name}")
        p = np.asarray(problem.arms.p, float)
        subsets = list(combinations(range(setting.n_arms), setting.k))
        order = np.random.default_rng(for_order).permutation(len(subsets))
        bits = 1 << np.arange(setting.n_arms)
        drawn = (np.random.default_rng(for_plays).random((horizon, setting.n_arms)) < p) @ bits
        masks = {subset: sum(1 << arm for arm in subset) for subset in subsets}
        return cls(problem, p, [subsets[i] for i in order], masks, drawn.tolist(), seed)

    @property
    def counts(self) -> bool:
        """Whether the reward is the share of arms that pay (mean) or whether any pays (maximum)."""
        return self.problem.reward.name == "mean"

    def reward(self, play: int, subset: Subset) -> float:
        """Return the reward of the subset in that play."""
        paying = self.outcomes[play] & self.masks[subset]
        return paying.bit_count() / len(subset) if self.counts else float(paying != 0)

    def regret(self, played: list[Subset]) -> FloatArray:
        """Return the expected regret after 1, 2, ... of these plays."""
        different = sorted(set(played))
        gaps = dict(zip(different, self.problem.gap(np.array(different)).tolist(), strict=True))
        return np.cumsum([gaps[subset] for subset in played])
