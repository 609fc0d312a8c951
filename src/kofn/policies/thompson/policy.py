"""Thompson sampling by swaps, in linear memory: the default policy, original to kofn.

Each draw of all effects from the posterior (posterior.py, sampling.py) swaps the incumbent's weakest arm for the
strongest other arm, if it is stronger in that draw; with K of 20 or more, up to K / 10 arms. A plan plays up
to 256 draws for a tenth of the time elapsed. It plays each swap at most as often as doubles the information about it.
The policy needs no horizon and no tuning: it learns the noise and the scale of the effects.
docs/reference/policies/thompson.md has the reasons and the measurements.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Self, Unpack

import numpy as np
from scipy.special import expit

from kofn.core import (
    BadInput,
    BadRecord,
    FloatArray,
    Insight,
    IntArray,
    Plan,
    Subset,
    Tally,
    subset_of,
    whole,
)
from kofn.core.fields import Fields, added, integer, listed, part
from kofn.policies.batching import plan_of, tenth
from kofn.policies.linear_model import sweeps
from kofn.policies.randomised import Randomised, SeededOptions
from kofn.policies.registry import register
from kofn.policies.thompson.alarms import Alarms
from kofn.policies.thompson.guarantee import Comparisons, Guarantee
from kofn.policies.thompson.insight import expected_loss
from kofn.policies.thompson.noise import LEAST, Noise
from kofn.policies.thompson.posterior import Posterior, most_swaps
from kofn.policies.thompson.sampling import draw_swaps

DRAWS = 256
"""Most draws in one plan. Higher: more different subsets in a plan, and slower."""

WELL_KNOWN = 4.0
"""Information about a swap, relative to the prior's, from which on it is played alone. While a draw has fewer plays
than that takes, it swaps several arms. Higher: more arms in a draw, for longer."""

FOR_FILLERS, FOR_INSIGHT, FOR_LOSS = 1, 3, 4
"""Purposes of the random generators beside the one that draws the plan."""

MOST_HALF_LIVES = 20.0
"""Most half-lives forgotten at once, so that numbers stay in the range of floats: a millionth is left."""

NORMAL_95 = 1.959963984540054
"""Half-width of a 95 % interval of a normal distribution, in standard deviations."""


@register
class Thompson(Randomised):
    """Draw the effect of each arm, swap the incumbent's weakest arm for the strongest other, play that.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> p = np.linspace(0.02, 0.98, 8)
    >>> policy = Thompson(n_arms=8, k=2, seed=1)
    >>> for _ in range(5_000):
    ...     subset = policy.ask()
    ...     policy.tell(subset, rng.random() < p[list(subset)].mean())
    >>> policy.best()
    (6, 7)

    `half_life` is for problems that drift: the number of plays after which a reward counts half. `guarantee` compares
    arms directly, with a tenth of the plays, and accepts and rejects them on proofs that need no model.
    """

    name = "thompson"
    fields = Fields(
        learned=integer(),
        noise=listed(Noise),
        posterior=part(Posterior),
        alarms=added("alarms", Alarms),
        guarantee=part(Guarantee, given="guarantee"),
    )

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        half_life: int | None = None,
        guarantee: bool = False,
        **options: Unpack[SeededOptions],
    ) -> None:
        half_life = None if half_life is None else whole("half_life", half_life)
        if not isinstance(guarantee, bool):
            raise BadInput(f"guarantee must be True or False, not {guarantee!r}")
        if guarantee and half_life is not None:
            raise BadInput("a guarantee holds only if the problem does not change: give guarantee=True or half_life=")
        super().__init__(n_arms, k, half_life=half_life, guarantee=guarantee, **options)
        self._learned = 0
        self._posterior = Posterior.at_start(self.n_arms, self.k, 0.5, 1.0)
        self._noise = Noise(1.0, 1.0, 1.0)
        self._alarms = Alarms()
        self._guarantee = Guarantee.blank(self.n_arms, self.k) if guarantee else None
        self.accepts_unplanned = not guarantee  # only planned comparisons prove anything
        self._fillers: tuple[int, IntArray] = -1, np.empty((0, self.k), np.int64)  # number of updates, subsets
        self._begin()

    def best(self) -> Subset:
        """Return the K arms with the highest posterior mean effects."""
        best = self._posterior.incumbent if self._learned else np.arange(self.k)
        return tuple(self._corrected(best[None, :])[0].tolist())

    def insight(self) -> Insight | None:
        """Return what is known about the best subset and each arm; None before the first plan is complete."""
        if not self._learned:
            return None
        posterior, (low, high) = self._posterior, self.reward_range
        spread = NORMAL_95 * np.sqrt(posterior.variance)
        effects, lows, highs = (self._effects(posterior.mean + by) for by in (0.0, -spread, spread))
        level = posterior.level + NORMAL_95 * np.sqrt(posterior.covariance[0, 0]) * np.array([0.0, -1.0, 1.0])
        value = expit(level)
        if self.direction == "minimize":
            value = 1 - value[[0, 2, 1]]
            effects, lows, highs = -effects, -highs, -lows
        value, span = low + (high - low) * value, high - low
        value, least, most = value.tolist()
        return Insight(
            value,
            least,
            most,
            span * effects,
            span * lows,
            span * highs,
            self._probability_best(),
            span * expected_loss(posterior, self._rng(FOR_LOSS)),
            self._alarms.raised(),
        )

    def _effects(self, mean: FloatArray) -> FloatArray:
        """Return the change of the incumbent's reward by having each arm in place of one on the boundary."""
        gain, level = mean - self._posterior.boundary, self._posterior.level
        effects = expit(level + gain) - expit(level)
        inside = self._posterior.incumbent
        effects[inside] = expit(level) - expit(level - gain[inside])
        return np.asarray(effects, float)

    def _probability_best(self) -> float:
        draws = min(1000, max(DRAWS, 2**22 // self.n_arms))
        swaps = draw_swaps(self._posterior, draws, self._rng(FOR_INSIGHT))
        return float((swaps == self._posterior.incumbent).all(axis=1).mean())

    def with_arms(self, keep: Sequence[int], added: int = 0) -> Self:
        """Return a policy with these arms and `added` new ones; it keeps all that is known about the arms it keeps."""
        if self._guarantee is not None:
            raise BadInput("a guarantee needs a fixed set of arms: create a new policy, or leave out guarantee=True")
        if not isinstance(keep, Sequence) or not keep:
            raise BadInput(f"keep must be a list of at least one arm; got {keep!r}")
        added, kept = whole("added", added, least=0), np.array(subset_of(keep, self.n_arms, len(keep)))
        fresh = type(self)(**{**self.params, "n_arms": len(kept) + added})
        informed = copy.deepcopy(self)
        plan, tally = informed._open_plan.played()
        if len(plan):
            informed._learn(plan, tally)
        if informed._learned:
            informed._posterior.change_arms(kept, added)
            fresh._learned, fresh._posterior, fresh._noise = informed._learned, informed._posterior, informed._noise
        fresh.plays, fresh.updates = self.plays, self.updates + 1
        fresh._begin()
        return fresh

    def _next(self) -> Plan:
        rng = self._rng()
        if not self._learned:
            return sweeps(self.n_arms, self.k, 1, rng)
        plays = tenth(min(self._learned, self._params["half_life"] or self._learned))
        if self._guarantee is not None:
            plays = min(plays, self._guarantee.longest(plays))
        comparisons = self._comparisons(plays)
        rest = plays - (comparisons.plan.plays if comparisons else 0)
        draws = min(DRAWS, rest)
        swaps = draw_swaps(self._posterior, draws, rng, self._swaps_per_draw(rest / draws))
        if most_swaps(self.k) > 1:
            swaps[0] = self._posterior.incumbent  # its value is not learned from swaps of many arms
        plan = self._limited(plan_of(swaps, rest))
        if comparisons is None:
            return Plan(self._corrected(plan.subsets), plan.times)
        subsets = np.concatenate([self._corrected(plan.subsets), comparisons.plan.subsets])
        return Plan(subsets, np.append(plan.times, comparisons.plan.times))

    def _swaps_per_draw(self, plays: float) -> int:
        """Return how many arms a draw swaps if it is played `plays` times: one, if these plays measure it well."""
        needed = WELL_KNOWN * self._noise.dispersion * self._posterior.prior_plays
        return min(most_swaps(self.k), math.ceil(needed / plays))

    def _limited(self, plan: Plan) -> Plan:
        """Limit each swap to the plays that double the information about it; the incumbent gets the rest.

        A draw is frozen for the whole plan. Without the limit, one draw of 256 would give thousands of plays to an arm
        with ten, long after their rewards have shown that it is bad.
        """
        incumbent = self._posterior.incumbent
        most = np.ceil(self._noise.dispersion * self._posterior.known_plays(plan.subsets))
        times = np.minimum(plan.times, np.maximum(1, most)).astype(np.int64)
        times[(plan.subsets == incumbent).all(axis=1)] = 0
        subsets, times = np.vstack([plan.subsets, incumbent]), np.append(times, plan.plays - times.sum())
        return Plan(subsets[times > 0], times[times > 0])

    def _comparisons(self, plays: int) -> Comparisons | None:
        """Return the guarantee's part of a plan of `plays` plays; its rows are the last ones of the plan."""
        if self._guarantee is None or not self._learned:
            return None
        [incumbent] = self._corrected(self._posterior.incumbent[None, :])
        return self._guarantee.comparisons(incumbent, self._posterior.mean, plays)

    def _corrected(self, subsets: IntArray) -> IntArray:
        """Return the subsets that the guarantee allows instead of these."""
        return subsets if self._guarantee is None else self._guarantee.allowed(subsets, self._posterior.mean)

    def filler(self, index: int) -> Subset:
        """Return another draw, so that plays made while rewards are late are learned from too."""
        if not self.accepts_unplanned:
            return self.best()
        if self._fillers[0] != self.updates:
            rng = self._rng(FOR_FILLERS)
            if self._learned:
                subsets = draw_swaps(self._posterior, DRAWS, rng)
            else:
                subsets = sweeps(self.n_arms, self.k, -(-DRAWS * self.k // self.n_arms), rng).subsets
            self._fillers = self.updates, subsets
        subsets = self._fillers[1]
        return tuple(subsets[index % len(subsets)].tolist())

    def _learn(self, plan: Plan, tally: Tally) -> None:
        comparisons = self._comparisons(plan.plays)
        if not self._learned:
            self._start(tally)
        if self._params["half_life"]:
            self._forget(plan.plays / self._params["half_life"])
        value, uncertainty = self._posterior.predict(plan.subsets)
        dispersion = self._noise.learn(tally, value, uncertainty)
        self._learned += plan.plays
        self._alarms.learn(plan, tally, value, uncertainty, dispersion * value * (1 - value), self._learned)
        self._posterior.learn(plan.subsets, tally.total / tally.count, tally.count / dispersion)
        self._alarms.follow(self._posterior.incumbent)
        if self._guarantee is not None:
            self._guarantee.learn(comparisons, tally, self._learned, self._posterior.mean)

    def _forget(self, half_lives: float) -> None:
        half_lives = min(half_lives, MOST_HALF_LIVES)
        self._posterior.widen(2.0**half_lives)
        self._noise.forget(0.5**half_lives)

    def _start(self, tally: Tally) -> None:
        """Set the prior from the mean and the variance of all rewards of the first plan."""
        n, total = int(tally.count.sum()), float(tally.total.sum())
        value = (total + 0.5) / (n + 1)
        binomial = value * (1 - value)
        squared = float(tally.squares.sum()) - 2 * value * total + n * value * value
        variance = (squared + binomial / most_swaps(self.k)) / (n + 1)  # the reward of many arms varies less
        self._posterior = Posterior.at_start(self.n_arms, self.k, value, variance / self.k / binomial**2)
        self._noise = Noise(1.0, 1.0, LEAST * min(1.0, variance / binomial))

    def _loaded(self) -> None:
        if bool(self._learned) != bool(len(self._posterior.incumbent)):
            raise BadRecord(f"posterior must have an incumbent exactly if learned is above 0; it is {self._learned}")
