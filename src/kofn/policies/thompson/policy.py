"""Thompson sampling by swaps, in linear memory: the default policy, original to kofn.

Each draw of all effects from the posterior (posterior.py, sampling.py) swaps the incumbent's weakest arm for the
strongest other arm, if it is stronger in that draw; it swaps several arms where that is free by the means. A plan
plays up to 256 draws for a tenth of the time elapsed. It plays each swap at most as often as doubles the
information about it. The policy needs no horizon and no tuning: it learns the range and the noise of rewards and the
scale of the effects.
docs/reference/policies/thompson.md has the reasons and the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, Self, TypeAlias, Unpack, get_args

import numpy as np
from numpy.typing import NDArray
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
    whole,
)
from kofn.core.fields import Fields, integer, listed, optional, part
from kofn.core.plan import Key
from kofn.core.threads import ONE_THREAD
from kofn.policies.batching import plan_of, shares, sweeps, tenth
from kofn.policies.constrained import Constrained, changed_arms
from kofn.policies.randomised import Randomised, SeededOptions
from kofn.policies.thompson.alarms import Alarms
from kofn.policies.thompson.constants import Constants
from kofn.policies.thompson.exchanges import allowed_draws
from kofn.policies.thompson.in_flight import InFlight
from kofn.policies.thompson.insight import FEW, losses
from kofn.policies.thompson.new_arms import group_numbers
from kofn.policies.thompson.noise import Noise, Range, first_rewards
from kofn.policies.thompson.posterior import TINY, Posterior, top
from kofn.policies.thompson.prior import NORMAL_95, Prior
from kofn.policies.thompson.sampling import draws_that_swap, most_draws

FOR_PLAN, FOR_FILLERS, FOR_INSIGHT, FOR_LOSS, PURPOSES = 0, 1, 3, 4, 8
"""Purposes of random numbers, and an upper limit of their number."""

STRIDE = 0x9E3779B97F4A7C15F39CC0605CEDC835
"""Steps of the random generator between two streams: 2^128 times the golden ratio, as in NumPy's `jumped`, so that
streams neither overlap nor resemble each other."""

REPEATED = 8
"""Most subsets that the first plan under constraints plays twice. Two plays of the same subset show the noise: a wrong
estimate of it is hard to correct where rules allow few exchanges. Higher: a longer first plan."""

PRIOR_PLAYS = 4
"""Plays of the best subset by a given prior in the first plan. Without them, a right prior expects it outside of the
range of rewards that were seen, and the range hides how good it is. Higher: a longer first plan."""

PREDICTED, FEWEST_PREDICTED = 0.05, 1.0
"""Plays of a coin that the model's prediction of the incumbent's reward counts as, relative to all plays so far, and at
least. Higher: narrower intervals, which hold less often where the model does not fit."""

Goal: TypeAlias = Literal["regret", "pick"]

MOST_HALF_LIVES = 20.0
"""Most half-lives forgotten at once, so that numbers stay in the range of floats: a millionth is left."""


class Thompson(Constrained, Randomised):
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

    `half_life` is for problems that drift: the number of plays after which a reward counts half. `constraints`
    are rules that every subset obeys (`kofn.Constraints`). `prior` is what is known about single arms (`kofn.Prior`).
    `goal="pick"` is for searches whose rewards do not count, only the subset that `best()` returns at the end: a draw
    swaps all arms that are better in it, which costs more while it plays, and compares more arms with each play. The
    model's draws and evidence are used without the guards that protect long runs.
    """

    name = "thompson"
    purpose = "Learns the effect of each arm. Right for nearly every campaign."
    version = 2
    accepts_unplanned = True
    constants = Constants()
    fields = Fields(
        learned=integer(),
        noise=listed(Noise),
        posterior=part(Posterior),
        alarms=part(Alarms),
        in_flight=optional("in_flight", InFlight),
    )

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        half_life: int | None = None,
        prior: Prior | Mapping[str, Any] | None = None,
        goal: Goal = "regret",
        **options: Unpack[SeededOptions],
    ) -> None:
        half_life = None if half_life is None else whole("half_life", half_life)
        super().__init__(n_arms, k, half_life=half_life, **options)
        if goal not in get_args(Goal):
            raise BadInput(f"goal must be 'regret' (all plays count) or 'pick' (only the final subset), not {goal!r}")
        self._picks = goal == "pick"
        if self._picks:
            self._params["goal"] = goal
            self.constants = self.constants.for_pick()
        self._prior = None if prior is None else Prior.of(prior)
        if self._prior is not None:
            if len(self._prior.scores) != self.n_arms:
                raise BadInput(f"prior must have all {self.n_arms} arms; it has {len(self._prior.scores)}")
            self._params["prior"] = self._prior.to_dict()
        self._bits = np.random.PCG64(self._params["seed"])
        self._bits_at_start = self._bits.state
        self._learned = 0
        self._posterior = Posterior.at_start(self.n_arms, self.k, 0.5, 1.0, self.constants)
        self._noise = Noise(1.0, 1.0, 1.0, Range())
        self._alarms = Alarms()
        self._in_flight = InFlight()
        self._fillers: tuple[int, IntArray] = -1, np.empty((0, self.k), np.int64)  # number of updates, subsets

    def best(self) -> Subset:
        """Return the incumbent: the best of the subsets that were played, by the posterior means.

        With `goal="pick"`, return the arms with the highest posterior means, played together or not.
        """
        return tuple((self._reported.incumbent if self._knows else self._first).tolist())

    @property
    def _first(self) -> IntArray:
        """The subset to report before anything is known."""
        if self._prior is not None:
            return top(self._prior.expected, self.k, self._allowed)
        return np.arange(self.k) if self._allowed is None else np.array(self._allowed.first)

    @property
    def _reported(self) -> Posterior:
        """The posterior, with the subset to report as its incumbent."""
        if not self._picks:
            return self._posterior
        return self._posterior.beside(top(self._posterior.mean, self.k, self._allowed))

    @ONE_THREAD
    def insight(self) -> Insight | None:
        """Return what is known about the best subset and each arm; None until two different rewards were seen."""
        if not self._knows:
            return None
        reported, posterior = copy(self), self._reported
        # The probability is estimated when it is first read, maybe after further rewards: they change these arrays.
        reported._posterior = replace(posterior, mean=posterior.mean.copy(), variance=posterior.variance.copy())
        return reported._of_incumbent()

    def _of_incumbent(self) -> Insight:
        """Return what is known about the incumbent and each arm."""
        posterior, (low, high) = self._posterior, self.reward_range
        spread = NORMAL_95 * np.sqrt(posterior.variance)
        effects, lows, highs = (self._effects(posterior.mean + by) for by in (0.0, -spread, spread))
        loss = losses(posterior, self._rng(FOR_LOSS), self._effective_plays(), self._allowed)
        value = self._own_value(loss.mean)
        if self.direction == "minimize":
            value = 1 - value[[0, 2, 1]]
            effects, lows, highs = -effects, -highs, -lows
        span = (high - low) * self._range.width
        value, least, most = (low + (high - low) * value).tolist()
        return Insight(
            value,
            least,
            most,
            span * effects,
            span * lows,
            span * highs,
            self._probability_best,
            span * loss.mean,
            self._alarms.raised(),
            span * loss.high if self._learned * self.k >= FEW * self.n_arms else None,
        )

    def _own_value(self, loss: float) -> FloatArray:
        """Return the mean reward of the incumbent and its 95 % interval (Wilson's), from its own plays.

        What made a subset the incumbent was in part luck, so plays before that do not count. The model's prediction
        counts as few plays, because it may be wrong. As far as it counts, the lower end allows for the expected `loss`:
        the best of many predictions was lucky.
        """
        known, seen, level = self._alarms, self._range, self._posterior.level
        count = known.count if np.array_equal(known.incumbent, self._posterior.incumbent) else 0
        own = min(count, 2 * (self._params["half_life"] or count)) / self._noise.dispersion
        mean = (known.total / known.count - seen.low) / seen.width if count else 0.0
        most = max(FEWEST_PREDICTED, PREDICTED * self._learned)
        model = min(most, 1 / float(self._posterior.covariance[0, 0] * expit(level) * expit(-level)))
        n, z2 = own + model, NORMAL_95**2
        value = (own * min(max(mean, 0.0), 1.0) + model * float(expit(level))) / n
        half = math.sqrt(z2 * (n * value * (1 - value) + z2 / 4)) / (n + z2)
        middle = (n * value + z2 / 2) / (n + z2)
        low = middle - half - loss * model / n
        return seen.low + seen.width * np.clip([value, low, middle + half], 0.0, 1.0)

    def _effects(self, mean: FloatArray) -> FloatArray:
        """Return the change of the incumbent's reward by having each arm in place of one on the boundary."""
        gain, level = mean - self._posterior.boundary(self._allowed), self._posterior.level
        effects = expit(level + gain) - expit(level)
        inside = self._posterior.incumbent
        effects[inside] = expit(level) - expit(level - gain[inside])
        return np.asarray(effects, float)

    def _effective_plays(self) -> float:
        """Return on how many plays the incumbent's reward rests: for coins, the rarer of successes and failures."""
        value = float(expit(self._posterior.level))
        rarer = max(min(value, 1 - value), TINY)
        return self._learned * rarer / (rarer + self._noise.dispersion * (1 - rarer))

    @ONE_THREAD
    def _probability_best(self) -> float:
        draws = most_draws(1000, self.n_arms)
        constants = replace(self.constants, narrow=1.0)
        number, _ = self._draws_that_swap(self._posterior, draws, self._rng(FOR_INSIGHT), constants)
        return 1 - len(number) / draws

    def with_arms(
        self, keep: Sequence[int], added: int = 0, constraints: Any = None, groups: Sequence[Hashable] | None = None
    ) -> Self:
        """Return a policy with these arms and `added` new ones; it keeps all that is known about the arms it keeps.

        `constraints` are the rules for all arms after the change, with their new numbers. Without them, the present
        rules stay: arms that leave also leave their groups, and new arms are in no group. `groups` has the group of
        every arm after the change, such as its brand; None for no group. By default, groups are taken from the rules
        `AtMost` and `AtLeast`. A new arm starts from what is known about the arms of its group.
        """
        arms, added, rules = changed_arms(self, keep, added, constraints)
        kept = np.array(arms)
        changes: dict[str, Any] = {"n_arms": len(kept) + added, "constraints": rules}
        if self._prior is not None:
            changes["prior"] = self._prior.with_arms(kept.tolist(), added)
        allowed = None if rules is None else rules.allowed(changes["n_arms"], self.k)
        informed = self._informed()
        if informed._knows:
            if groups is None and rules is not None:
                groups = rules.groups(len(kept) + added)
            numbers = None if groups is None else group_numbers(groups, len(kept) + added)
            start = informed._posterior.start(added, kept, numbers)
            informed._posterior.change_arms(kept, start, self.constants, allowed)
        return self._continued(informed, changes)

    def with_params(self, **changes: Any) -> Self:
        """Return a policy with other parameters that keeps what is known.

        These can change: `reward_range`, `half_life`, `constraints` and `goal`.

        Alarms begin again, except after a change of the range, the constraints or the goal. If
        new constraints forbid the incumbent, the best allowed subset by the posterior means takes its place.
        """
        if unknown := sorted(changes.keys() - {"reward_range", "half_life", "constraints", "goal"}):
            raise BadInput(
                f"{', '.join(unknown)} cannot change while the policy runs: reward_range, half_life, "
                "constraints and goal can"
            )
        informed = self._informed()
        fresh = self._continued(informed, changes)
        shift, factor = self._unit_change(fresh)
        fresh._noise.range = informed._range.moved(shift, factor)
        if changes.keys() <= {"reward_range", "constraints", "goal"}:
            fresh._alarms = informed._alarms
            fresh._alarms.rescale(shift, factor)
            if len(fresh._alarms.incumbent):
                fresh._alarms.follow(fresh._posterior.incumbent)
        return fresh

    def _continued(self, informed: Self, changes: Mapping[str, Any]) -> Self:
        """Return a policy with changed parameters that continues with what another one knows."""
        fresh = type(self)(**{**self.params, **changes})
        if informed._knows:
            fresh._posterior = informed._posterior
            if fresh._allowed is not None and not fresh._allowed.allows(fresh._posterior.incumbent[None, :])[0]:
                fresh._posterior.change_incumbent(fresh._allowed.top(fresh._posterior.mean))
        fresh._learned, fresh._noise = informed._learned, informed._noise
        fresh.plays, fresh.updates = self.plays, self.updates + 1
        return fresh

    def _rng(self, *purpose: int) -> np.random.Generator:
        """Return the generator of the next plan, or of another purpose beside it; it is valid until the next call.

        All use the same bits, moved to another place: that takes a fifth of the time of making a new generator.
        """
        number = self.updates * PURPOSES + (purpose[0] if purpose else FOR_PLAN)
        self._bits.state = self._bits_at_start
        self._bits.advance(number * STRIDE % 2**128)
        return np.random.Generator(self._bits)

    @property
    def _range(self) -> Range:
        return self._noise.range

    @property
    def _knows(self) -> bool:
        """Whether two different rewards were seen: before, there is no scale for effects, and no incumbent."""
        return self._range.width > 0

    def _next(self) -> Plan:
        rng = self._rng()
        if not self._learned:
            first = self._sweeps(1, rng)
            times = first.times.copy()
            if self._allowed is not None:
                times[:REPEATED] *= 2
            if self._prior is None:
                return Plan(first.subsets, times)
            return Plan(*_merged(np.vstack([first.subsets, self._first]), np.append(times, PRIOR_PLAYS)))
        plays = max(tenth(min(self._learned, self._params["half_life"] or self._learned)), self.constants.shortest)
        return (self._draw if self._knows else self._sweep)(plays, rng)

    def _sweeps(self, rounds: int, rng: np.random.Generator) -> Plan:
        """Return random blocks that together have each arm that may be played, several times over."""
        if self._allowed is None:
            return sweeps(self.n_arms, self.k, rounds, rng)
        return plan_of(blocks := self._allowed.sweeps(rounds, rng), len(blocks))

    def _sweep(self, plays: int, rng: np.random.Generator) -> Plan:
        """Return a plan of random blocks of all arms."""
        blocks = self._sweeps(-(-min(plays, self.constants.draws) * self.k // self.n_arms), rng).subsets
        rows = min(plays, len(blocks))
        return Plan(blocks[rng.permutation(len(blocks))[:rows]], shares(plays, rows).astype(np.int64))

    def _draw(self, plays: int, rng: np.random.Generator) -> Plan:
        """Return a plan of draws from the posterior."""
        incumbent, draws = self._posterior.incumbent, min(most_draws(self.constants.draws, self.n_arms), plays)
        number, swaps = self._draws_that_swap(self._expected(), draws, rng, self.constants)
        if len(self._posterior.contenders) < self.n_arms:  # rows with other arms than contenders hide the incumbent's
            number, swaps = number[number < draws - 1], swaps[number < draws - 1]  # value: the last draw plays it
        if not len(swaps):
            return Plan(incumbent[None, :], np.array([plays]))
        each, more = divmod(plays, draws)
        return self._limited(*_merged(swaps, each + (number < more)), plays)

    def _expected(self) -> Posterior:
        """Return the posterior if the plays in flight pay what is expected of them: the same means, less variance."""
        if not len(self._in_flight):
            return self._posterior
        return self._posterior.expecting(self._in_flight.subsets, self._in_flight.count / self._noise.dispersion)

    def expect(self, in_flight: Mapping[Key, float]) -> None:
        """Plan as if these numbers of plays were in flight, in place of its own account of them."""
        self._in_flight = InFlight.of(in_flight)
        self._opened, self._fillers = None, (-1, self._fillers[1])

    def _draws_that_swap(
        self, posterior: Posterior, draws: int, rng: np.random.Generator, constants: Constants
    ) -> tuple[IntArray, IntArray]:
        """Return the numbers of the draws that swap arms of the incumbent, and the subset of each."""
        if self._allowed is None:
            return draws_that_swap(posterior, draws, rng, constants, self._noise.dispersion)
        return allowed_draws(posterior, self._allowed, draws, rng, constants, self._noise.dispersion)

    def _drawn(self, posterior: Posterior, rng: np.random.Generator) -> IntArray:
        """Return the subsets of as many draws as a plan has at most."""
        draws = most_draws(self.constants.draws, self.n_arms)
        subsets = posterior.incumbent[None, :].repeat(draws, axis=0)
        number, swapped = self._draws_that_swap(posterior, draws, rng, self.constants)
        subsets[number] = swapped
        return subsets

    def _limited(self, swaps: IntArray, times: NDArray[np.int64], plays: int) -> Plan:
        """Limit each swap to the plays that double the information about it; the incumbent gets the rest of `plays`.

        A draw is frozen for the whole plan. Without the limit, one draw of 256 would give thousands of plays to an arm
        with ten, long after their rewards have shown that it is bad.
        """
        with_incumbent = int(times.sum()) < plays
        subsets = self._and_incumbent(swaps) if with_incumbent else swaps
        predicted = self._posterior.predict(subsets)  # of all rows: the update needs it too
        value = expit(predicted.odds)
        unknown = np.maximum(predicted.apart * value * (1 - value), TINY * TINY)
        most = np.ceil(self.constants.information * self._noise.dispersion / unknown)
        times = np.minimum(times, most[: len(times)]).astype(np.int64)
        if not (left := plays - int(times.sum())):
            return Plan(swaps, times)
        return Plan(subsets if with_incumbent else self._and_incumbent(swaps), np.concatenate([times, [left]]))

    def _and_incumbent(self, swaps: IntArray) -> IntArray:
        return np.concatenate([swaps, self._posterior.incumbent[None, :]])

    @ONE_THREAD
    def filler(self, index: int, segment: str | None = None) -> Subset:
        """Return another draw, so that plays made while rewards are late are learned from too."""
        del segment
        if self._fillers[0] != self.updates:
            rng = self._rng(FOR_FILLERS)
            if self._knows:
                subsets = self._drawn(self._expected(), rng)
            else:
                solver = self._allowed is not None and not self._allowed.way.exact  # milliseconds or more per subset
                rounds = 1 if solver else -(-self.constants.draws * self.k // self.n_arms)
                subsets = self._sweeps(rounds, rng).subsets
            self._fillers = self.updates, subsets
        subsets = self._fillers[1]
        return tuple(subsets[index % len(subsets)].tolist())

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if self._params["half_life"]:
            self._forget(plan.plays / self._params["half_life"])
        self._extend_range(tally)
        if self._knows:
            self._update(plan, tally)
        before, self._learned = self._learned, self._learned + plan.plays
        self._in_flight = self._in_flight.after(self._open_plan, (before / self._learned) ** self.constants.fade)

    def _update(self, plan: Plan, tally: Tally) -> None:
        """Compare the rewards of a plan with what was expected of them, then learn from them."""
        posterior, n, (low, width) = self._posterior, tally.count.astype(float), (self._range.low, self._range.width)
        mean, within = self._range.scaled(tally)
        predicted = posterior.predict(plan.subsets)
        value = expit(predicted.odds)
        binomial = value * (1 - value)
        uncertainty = predicted.spread * binomial**2
        dispersion = self._noise.learn(n, mean, within, value, uncertainty, self.constants)
        expected, variances = low + width * value, (width**2 * uncertainty, width**2 * dispersion * binomial)
        self._alarms.learn(plan, tally, expected, *variances, self._learned + plan.plays, width)
        now = self._open_plan
        coming = now.plan.subsets[now.rows_in_flight()]
        changes = bool(self._params["half_life"])
        posterior.learn(plan.subsets, predicted, mean, n / dispersion, self.constants, self._allowed, coming, changes)
        if self._prior is not None:
            residual = self._prior.residual
            posterior.relax(residual(self._learned), residual(self._learned + plan.plays))
        self._alarms.follow(posterior.incumbent)

    def _extend_range(self, tally: Tally) -> None:
        """Extend the range to the rewards of these plays; set the prior as soon as two different rewards were seen."""
        before, after = self._range, self._range.extended(tally)
        self._noise.range = after
        if not after.width or after == before:
            return
        if not before.width:
            self._start(before.low, tally)
            return
        ratio = (before.width / after.width) ** 2
        largest = self._posterior.rescale((before.low, before.high), (after.low, after.high))
        self._noise.rescale(ratio, largest)
        value = float(expit(self._posterior.level))
        noise = self._noise.dispersion / (value * (1 - value))
        self._posterior.raise_prior(min(noise, self.constants.spread**2) / self.k)

    def _forget(self, half_lives: float) -> None:
        half_lives = min(half_lives, MOST_HALF_LIVES)
        self._posterior.widen(2.0**half_lives)
        self._noise.forget(0.5**half_lives)
        self._in_flight.forget(0.5**half_lives)

    def _start(self, equal: float, tally: Tally) -> None:
        """Set the prior from the mean and the variance of all rewards: this plan's, and equal ones before it."""
        value, variance = first_rewards(self._range, tally, equal, self._learned)
        scale = variance / self.k / (value * (1 - value)) ** 2
        self._posterior = Posterior.at_start(self.n_arms, self.k, value, scale, self.constants)
        if self._prior is not None:
            self._posterior.expect(self._prior.expected, self._prior.residual(self._learned))
        self._noise = Noise.at_start(value, variance, self._range, self.constants)

    def _loaded(self) -> None:
        if self._knows != bool(len(self._posterior.incumbent)):
            raise BadRecord("posterior must have an incumbent exactly if two different rewards were seen")
        if self._knows and self._allowed is not None and not self._allowed.allows(self._posterior.incumbent[None])[0]:
            raise BadRecord(f"the incumbent {self._posterior.incumbent.tolist()} must obey the constraints")
        if bool(self._learned) != self._range.seen:
            raise BadRecord(f"range must include a reward exactly if learned is above 0; got learned = {self._learned}")


def _merged(subsets: IntArray, times: IntArray) -> tuple[IntArray, NDArray[np.int64]]:
    """Return the distinct rows, and the sum of the times of each; rows are compared by a 64-bit hash."""
    keys = subsets.dot(_multipliers(subsets.shape[1]))
    order = keys.argsort()
    keys = keys[order]
    new = np.empty(len(keys), bool)
    new[0] = True
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    first = new.nonzero()[0]
    return subsets[order[first]], np.add.reduceat(times[order], first)


@lru_cache
def _multipliers(k: int) -> IntArray:
    return np.random.default_rng(k).integers(2**62, size=k)
