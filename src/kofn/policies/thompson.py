"""Our own: Thompson sampling, one swap at a time, in linear memory. The default.

A draw of all effects from the posterior (`beliefs.py`) swaps the incumbent's weakest arm for the strongest other, if
that is better in this draw. A plan is a hundred such draws, played for a tenth of the time elapsed. No horizon, and no
knob: the noise and the scale of the effects are learned. docs/thompson.md has the reasons, and what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kofn.core import BadRecord, Direction, FloatArray, IntArray, Plan, Seed, Subset, Tally, finite_numbers, whole
from kofn.policies.beliefs import Beliefs
from kofn.policies.drawn import plan_of, tenth
from kofn.policies.linear_model import sweeps
from kofn.policies.randomised import Randomised
from kofn.policies.registry import register

DRAWS = 128
"""Draws of one plan at the most."""

SPARES = 1
"""The purpose of the generator that draws what is played while a plan is out."""

FIRM = 25.0
"""A row's own dispersion is trusted as much as all others' when its rewards vary like so many coin tosses times 4."""

LEAST = 1e-5
"""The dispersion never falls below this part of what the first plan's rewards had in all."""


@dataclass
class Noise:
    """The dispersion: the variance of a row's rewards in parts of r(1 - r), the most that rewards in [0, 1] can have.

    One Bernoulli reward has 1, the mean of K of them about 1/K. It is a ratio of sums: `varied` over `possible`.
    """

    varied: float
    possible: float
    least: float

    @property
    def dispersion(self) -> float:
        """The dispersion of all rows together."""
        return min(1.0, max(self.least, self.varied / self.possible))

    def learn(self, tally: Tally, value: FloatArray, doubt: FloatArray) -> FloatArray:
        """Take in rows that were expected to earn `value`, give or take `doubt`; return the dispersion of each."""
        n, mean = tally.count, tally.total / tally.count
        phi = self.dispersion
        within = np.maximum(tally.squares - tally.total * mean, 0.0)
        possible = np.where(n > 1, n * mean * (1 - mean) * (n - 1) / np.maximum(n - phi, 0.5), 0.0)
        self.varied += float(within.sum())
        self.possible += float(possible.sum())
        binomial = np.maximum(value * (1 - value), 1e-4)
        trust = (1 + n * doubt / (phi * binomial)) ** -2.0  # what was doubtful says little of the noise
        self.varied += float(trust @ np.minimum(n * (mean - value) ** 2, 4 * binomial))
        self.possible += float(trust @ binomial)
        return (within + FIRM * self.dispersion) / (possible + FIRM)


@register
class Thompson(Randomised):
    """Draw what each arm is worth, swap the incumbent's weakest for the strongest other, play that.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> p = np.linspace(0.02, 0.98, 8)
    >>> policy = Thompson(n_arms=8, k=2, seed=1)
    >>> for _ in range(5_000):
    ...     subset = policy.ask()
    ...     policy.tell(subset, rng.random() < p[list(subset)].mean())
    >>> policy.best()
    (6, 7)
    """

    name = "thompson"
    learns_any = True

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        seed: Seed = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        direction: Direction = "maximize",
    ) -> None:
        super().__init__(n_arms, k, seed=seed, reward_range=reward_range, direction=direction)
        self._learned = 0
        self._prior = 1.0
        self._beliefs = Beliefs.prior(self.n_arms, self.k, 0.5, self._prior)
        self._noise = Noise(1.0, 1.0, 1.0)
        self._spares: tuple[int, IntArray] = -1, np.empty((0, self.k), np.int64)  # drawn in the turn of that number
        self._begin()

    def best(self) -> Subset:
        """The K highest mean effects."""
        return tuple(self._beliefs.incumbent.tolist()) if self._learned else tuple(range(self.k))

    def _next(self) -> Plan:
        rng = self._rng()
        if not self._learned:
            return sweeps(self.n_arms, self.k, 1, rng)
        plays = tenth(self._learned)
        return plan_of(self._beliefs.swaps(min(DRAWS, plays), rng), plays)

    def _spare(self, spared: int) -> Subset:
        """Another draw: while rewards are late, what is played in the meantime should teach something too."""
        if self._spares[0] != self.turns:
            rng = self._rng(SPARES)
            rows = -(-DRAWS * self.k // self.n_arms)
            new = self._beliefs.swaps(DRAWS, rng) if self._learned else sweeps(self.n_arms, self.k, rows, rng).subsets
            self._spares = self.turns, new
        spares = self._spares[1]
        return tuple(spares[spared % len(spares)].tolist())

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if not self._learned:
            self._start(tally)
        value, doubt = self._beliefs.predict(plan.subsets)
        weights = tally.count / self._noise.learn(tally, value, doubt)
        self._beliefs.learn(plan.subsets, tally.total / tally.count, weights)
        self._learned += plan.plays

    def _start(self, tally: Tally) -> None:
        """The prior, from what the first plan's rewards are like, all together."""
        n, total = int(tally.count.sum()), float(tally.total.sum())
        value = (total + 0.5) / (n + 1)
        binomial = value * (1 - value)
        squared = float(tally.squares.sum()) - 2 * value * total + n * value * value
        variance = (squared + binomial) / (n + 1)
        self._prior = variance / self.k / binomial**2
        self._beliefs = Beliefs.prior(self.n_arms, self.k, value, self._prior)
        self._noise = Noise(1.0, 1.0, LEAST * min(1.0, variance / binomial))

    def _state(self) -> dict[str, Any]:
        noise = self._noise
        return {
            "learned": self._learned,
            "prior": self._prior,
            "noise": [noise.varied, noise.possible, noise.least],
            "beliefs": self._beliefs.state(),
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        self._learned = whole("learned", state["learned"], least=0)
        prior, noise = finite_numbers("prior", state["prior"]), finite_numbers("noise", state["noise"])
        if prior.shape != () or noise.shape != (3,) or prior <= 0 or (noise <= 0).any():
            raise BadRecord("prior is a number above 0, and noise three of them")
        self._prior, self._noise = float(prior), Noise(*noise.tolist())
        self._beliefs = Beliefs.load(state["beliefs"], self.n_arms, self.k if self._learned else 0)
