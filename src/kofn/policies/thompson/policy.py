"""Our own: Thompson sampling, a swap at a time, in linear memory. The default.

A draw of all effects from the posterior (`beliefs.py`) swaps the incumbent's weakest arm for the strongest other, if
that is better in this draw; of 20 arms or more, up to one in ten. A plan is up to 256 such draws, played
for a tenth of the time elapsed, but at most for as long as doubles what is known of a swap. No horizon, no knob: the
noise and the scale of the effects are learned.
docs/reference/policies/thompson.md has the reasons, and what was measured.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from scipy.special import expit

from kofn.core import (
    BadInput,
    BadRecord,
    Direction,
    FloatArray,
    Insight,
    IntArray,
    Plan,
    Seed,
    Subset,
    Tally,
    finite_numbers,
    subset_of,
    whole,
)
from kofn.policies.batching import plan_of, tenth
from kofn.policies.linear_model import sweeps
from kofn.policies.randomised import Randomised
from kofn.policies.registry import register
from kofn.policies.thompson.guarantee import Certificate, random_plays
from kofn.policies.thompson.noise import LEAST, Noise
from kofn.policies.thompson.posterior import Beliefs, at_once

DRAWS = 256
"""Draws of one plan at the most."""

WELL = 4.0
"""An arm is known well when so many times as much has been learned of it as was known at first."""

SPARES = 1
"""The purpose of the generator that draws what is played while a plan is out."""

RANDOM, INSIGHT = 2, 3
"""And of those that draw random subsets, and draws to count."""

MOST_HALF_LIVES = 20.0
"""Forgotten at once at the most: a millionth is left, and numbers stay within what floats can hold."""

NORMAL_95 = 1.959963984540054
"""Standard deviations to either side that hold 95 % of a normal distribution."""


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

    `half_life` is for problems that drift: after so many plays, what was learned counts half. `guarantee` adds random
    plays, t^(2/3) / 20 of them, that certify what needs no model, and never plays against a certificate.
    """

    name = "thompson"

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        half_life: int | None = None,
        guarantee: bool = False,
        seed: Seed = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        direction: Direction = "maximize",
    ) -> None:
        half_life = None if half_life is None else whole("half_life", half_life)
        if not isinstance(guarantee, bool):
            raise BadInput(f"guarantee must be True or False, not {guarantee!r}")
        if guarantee and half_life is not None:
            raise BadInput("a guarantee is for problems that stay as they are: give guarantee=True or half_life=")
        own = {"half_life": half_life, "guarantee": guarantee}
        super().__init__(n_arms, k, seed=seed, **own, reward_range=reward_range, direction=direction)
        self.accepts_unplanned = not guarantee  # what was not drawn at random certifies nothing
        self._learned = 0
        self._beliefs = Beliefs.at_first(self.n_arms, self.k, 0.5, 1.0)
        self._noise = Noise(1.0, 1.0, 1.0)
        self._certificate = Certificate.blank(self.n_arms) if guarantee else None
        self._spares: tuple[int, IntArray] = -1, np.empty((0, self.k), np.int64)  # drawn in the turn of that number
        self._begin()

    def best(self) -> Subset:
        """The K highest mean effects."""
        best = self._beliefs.incumbent if self._learned else np.arange(self.k)
        return tuple(self._mended(best[None, :])[0].tolist())

    def insight(self) -> Insight | None:
        """What has been learned of the best subset and of each arm; None before the first plan has been told."""
        if not self._learned:
            return None
        beliefs, (low, high) = self._beliefs, self.reward_range
        spread = NORMAL_95 * np.sqrt(beliefs.variance)
        effects, lows, highs = (self._effects(beliefs.mean + by) for by in (0.0, -spread, spread))
        level = beliefs.level + NORMAL_95 * np.sqrt(beliefs.block[0, 0]) * np.array([0.0, -1.0, 1.0])
        value = expit(level)
        if self.direction == "minimize":
            value = 1 - value[[0, 2, 1]]
            effects, lows, highs = -effects, -highs, -lows
        value, span = low + (high - low) * value, high - low
        value, least, most = value.tolist()
        return Insight(value, least, most, span * effects, span * lows, span * highs, self._sure())

    def _effects(self, mean: FloatArray) -> FloatArray:
        """The change of the incumbent's reward by having each arm in place of one on the borderline."""
        gain, level = mean - self._beliefs.boundary, self._beliefs.level
        effects = expit(level + gain) - expit(level)
        inside = self._beliefs.incumbent
        effects[inside] = expit(level) - expit(level - gain[inside])
        return np.asarray(effects, float)

    def _sure(self) -> float:
        draws = min(1000, max(DRAWS, 2**22 // self.n_arms))
        swaps = self._beliefs.swaps(draws, self._rng(INSIGHT))
        return float((swaps == self._beliefs.incumbent).all(axis=1).mean())

    def with_arms(self, keep: Sequence[int], added: int = 0) -> Self:
        """The policy with these arms kept and others added; it loses nothing of what it knows about those it keeps."""
        if self._certificate is not None:
            raise BadInput("a guarantee is for a fixed set of arms: make a new policy, or do without guarantee=True")
        if not isinstance(keep, Sequence) or not keep:
            raise BadInput(f"keep is a list of the arms to keep, at least one, not {keep!r}")
        added, kept = whole("added", added, least=0), np.array(subset_of(keep, self.n_arms, len(keep)))
        fresh = type(self)(**{**self.params, "n_arms": len(kept) + added})
        informed = copy.deepcopy(self)
        plan, tally = informed._now.played()
        if len(plan):
            informed._learn(plan, tally)
        if informed._learned:
            informed._beliefs.change(kept, added)
            fresh._learned, fresh._beliefs, fresh._noise = informed._learned, informed._beliefs, informed._noise
        fresh.plays, fresh.turns = self.plays, self.turns + 1
        fresh._begin()
        return fresh

    def _next(self) -> Plan:
        rng = self._rng()
        if not self._learned:
            return sweeps(self.n_arms, self.k, 1, rng)
        plays = tenth(min(self._learned, self._params["half_life"] or self._learned))
        random = self._random(plays)
        rest = plays - len(random)
        draws = min(DRAWS, rest)
        swaps = self._beliefs.swaps(draws, rng, self._at_once(rest / draws))
        if at_once(self.k) > 1:
            swaps[0] = self._beliefs.incumbent  # its value is not learned from swaps of many arms at once
        plan = self._looks(plan_of(swaps, rest))
        subsets = np.concatenate([self._mended(plan.subsets), random])
        return Plan(subsets, np.append(plan.times, np.ones(len(random), np.int64)))

    def _at_once(self, plays: float) -> int:
        """How many arms to swap in a draw that is played so often: one, if that is enough to know it well."""
        needed = WELL * self._noise.dispersion * self._beliefs.unknown
        return min(at_once(self.k), math.ceil(needed / plays))

    def _looks(self, plan: Plan) -> Plan:
        """Draws are frozen for the whole plan: what would do more than double what is known of a swap is not played.

        One draw of 256 would give an arm with ten plays thousands, long after it had proved to be a bad one. The
        incumbent has them instead.
        """
        incumbent = self._beliefs.incumbent
        most = np.ceil(self._noise.dispersion * self._beliefs.known(plan.subsets))
        times = np.minimum(plan.times, np.maximum(1, most)).astype(np.int64)
        times[(plan.subsets == incumbent).all(axis=1)] = 0
        subsets, times = np.vstack([plan.subsets, incumbent]), np.append(times, plan.plays - times.sum())
        return Plan(subsets[times > 0], times[times > 0])

    def _random(self, plays: int) -> IntArray:
        """The random subsets of a plan of so many plays, the last rows of it."""
        if self._certificate is None:
            return np.empty((0, self.k), np.int64)
        due = random_plays(self._learned + plays) - random_plays(self._learned)
        return self._certificate.subsets(min(due, plays - 1), self.k, self._rng(RANDOM))

    def _mended(self, subsets: IntArray) -> IntArray:
        return subsets if self._certificate is None else self._certificate.mended(subsets, self._learned)

    def filler(self, index: int) -> Subset:
        """Another draw: while rewards are late, what is played in the meantime should teach something too."""
        if not self.accepts_unplanned:
            return self.best()
        if self._spares[0] != self.turns:
            rng = self._rng(SPARES)
            if self._learned:
                new = self._beliefs.swaps(DRAWS, rng)
            else:
                new = sweeps(self.n_arms, self.k, -(-DRAWS * self.k // self.n_arms), rng).subsets
            self._spares = self.turns, new
        spares = self._spares[1]
        return tuple(spares[index % len(spares)].tolist())

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if not self._learned:
            self._start(tally)
        elif self._certificate is not None and (random := len(self._random(plan.plays))):
            rows = slice(len(plan) - random, None)
            counted = Tally(tally.count[rows], tally.total[rows], tally.squares[rows])
            self._certificate.learn(plan.subsets[rows], counted)
        if self._params["half_life"]:
            self._forget(plan.plays / self._params["half_life"])
        value, doubt = self._beliefs.predict(plan.subsets)
        weights = tally.count / self._noise.learn(tally, value, doubt)
        self._beliefs.learn(plan.subsets, tally.total / tally.count, weights)
        self._learned += plan.plays

    def _forget(self, half_lives: float) -> None:
        half_lives = min(half_lives, MOST_HALF_LIVES)
        self._beliefs.widen(2.0**half_lives)
        self._noise.varied *= 0.5**half_lives
        self._noise.possible *= 0.5**half_lives

    def _start(self, tally: Tally) -> None:
        """The prior, from what the first plan's rewards are like, all together."""
        n, total = int(tally.count.sum()), float(tally.total.sum())
        value = (total + 0.5) / (n + 1)
        binomial = value * (1 - value)
        squared = float(tally.squares.sum()) - 2 * value * total + n * value * value
        variance = (squared + binomial / at_once(self.k)) / (n + 1)  # many arms together vary less
        self._beliefs = Beliefs.at_first(self.n_arms, self.k, value, variance / self.k / binomial**2)
        self._noise = Noise(1.0, 1.0, LEAST * min(1.0, variance / binomial))

    def _state(self) -> dict[str, Any]:
        noise = self._noise
        state = {
            "learned": self._learned,
            "noise": [noise.varied, noise.possible, noise.least],
            "beliefs": self._beliefs.state(),
        }
        return state if self._certificate is None else {**state, "certificate": self._certificate.state()}

    def _load(self, state: Mapping[str, Any]) -> None:
        self._learned = whole("learned", state["learned"], least=0)
        noise = finite_numbers("noise", state["noise"])
        if noise.shape != (3,) or (noise <= 0).any():
            raise BadRecord("noise is three numbers above 0")
        self._noise = Noise(*noise.tolist())
        self._beliefs = Beliefs.load(state["beliefs"], self.n_arms, self.k if self._learned else 0)
        if self._certificate is not None:
            self._certificate = Certificate.load(state["certificate"], self.n_arms, self.k)
