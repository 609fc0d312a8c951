"""Thompson sampling by segments that learn from each other: contextual-thompson, original to kofn.

Each segment has an incumbent and a posterior as thompson has them; draws, plans and insight are thompson's. The
posterior of a segment follows from the rewards of all segments (model.py, pooling.py). A plan has plays for each
segment, in proportion to its plays so far; whoever comes beyond that gets a filler, a further draw of the segment.
docs/background/context.md has the reasons and the measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, ClassVar, Self, Unpack

import numpy as np
from scipy.special import expit

from kofn.core import (
    AttributeInsight,
    BadInput,
    BadRecord,
    Insight,
    IntArray,
    Plan,
    SegmentInsight,
    Subset,
    Tally,
    whole,
)
from kofn.core.contexts import MOST_WITH_OTHER, Attributes, bounded, context_of
from kofn.core.fields import Fields, integer, listed
from kofn.core.insight import averaged
from kofn.core.threads import ONE_THREAD
from kofn.policies.batching import tenth
from kofn.policies.constrained import Constrained, changed_arms
from kofn.policies.contextual.insight import attribute_insights
from kofn.policies.contextual.model import Model, PlayRows
from kofn.policies.contextual.segment import SegmentEvidence
from kofn.policies.randomised import Randomised, SeededOptions
from kofn.policies.thompson.constants import Constants
from kofn.policies.thompson.noise import Noise, Range, first_rewards
from kofn.policies.thompson.policy import MOST_HALF_LIVES, Thompson

FOR_PLAN, FOR_FILLERS, FOR_ATTRIBUTES = 0, 1, 2
"""Purposes of random numbers."""


class ContextualThompson(Constrained, Randomised):
    """Draw the effects of all arms in the segment of the context, swap the incumbent's weakest arm for the strongest.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> p = {"phone": np.linspace(0.02, 0.98, 8), "desktop": np.linspace(0.98, 0.02, 8)}
    >>> policy = ContextualThompson(n_arms=8, k=2, seed=1)
    >>> for play in range(5_000):
    ...     context = {"device": "phone" if play % 3 else "desktop"}
    ...     subset = policy.ask(context)
    ...     policy.tell(subset, rng.random() < p[context["device"]][list(subset)].mean(), context=context)
    >>> policy.best({"device": "phone"}), policy.best({"device": "desktop"})
    ((6, 7), (0, 1))

    `attributes` declares the attributes of contexts: a dict of names and lists of values, or a list of names; without
    it, they are those that are seen. `half_life` and `constraints` are those of thompson.
    """

    name = "contextual-thompson"
    purpose = "Learns what is best for whom, such as phones and desktops."
    takes_context = True
    accepts_unplanned = True
    version = 3
    constants: ClassVar[Constants] = Constants(contenders=64)  # each segment has a matrix of their size
    fields = Fields(learned=integer(), noise=listed(Noise))

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        attributes: Mapping[str, Sequence[str] | None] | Sequence[str] | None = None,
        half_life: int | None = None,
        **options: Unpack[SeededOptions],
    ) -> None:
        half_life = None if half_life is None else whole("half_life", half_life)
        self._attributes = Attributes(attributes)
        super().__init__(n_arms, k, attributes=self._attributes.to_dict(), half_life=half_life, **options)
        self._learned = 0
        self._noise = Noise(1.0, 1.0, 1.0, Range())
        self._model = Model(self.n_arms, self.k, 0.0, 1.0, self.constants, self._allowed)
        self._viewer = Thompson(
            self.n_arms,
            self.k,
            seed=self._params["seed"],
            reward_range=self.reward_range,
            direction=self.direction,
            constraints=self.constraints,
        )
        self._draws: dict[str, IntArray] = {}  # fillers of this plan by segment

    # The record has the fields of the model too.

    @property
    def _segments(self) -> list[SegmentEvidence]:
        return self._model.segments

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), **Model.fields.dump(self._model)}

    def _load(self, state: Mapping[str, Any]) -> None:
        for name, value in Model.fields.load(state, self):
            setattr(self._model, name, value)
        super()._load(state)

    def _loaded(self) -> None:
        self._model.check()
        if len(set(self._model.keys)) < len(self._model.keys):
            raise BadRecord("a segment is listed twice")
        if bool(self._learned) != self._noise.range.seen or (self._noise.range.width > 0) != bool(self._segments):
            raise BadRecord("there must be segments exactly if two different rewards were seen")
        if self._allowed is not None and self._segments:
            incumbents = np.stack([segment.incumbent for segment in self._segments])
            if not self._allowed.allows(incumbents).all():
                raise BadRecord("the incumbent of each segment must obey the constraints")

    # What it has learned.

    def segment(self, context: Mapping[str, Any] | None) -> str:
        """Return the key of the segment that a context belongs to."""
        return self._attributes.key(context, self._model.keys)

    @property
    def segments(self) -> tuple[str, ...]:
        """The keys of the segments that it has learned from, the one with the most plays first."""
        return tuple(segment.key for segment in sorted(self._segments, key=lambda each: -each.plays))

    def best(self, context: Mapping[str, Any] | None = None) -> Subset:
        """Return the best subset for a context, by the posterior means; without one, the best for all together."""
        key = None if context is None else self.segment(context)
        if not self._segments:
            first = np.arange(self.k) if self._allowed is None else np.array(self._allowed.first)
            return tuple(first.tolist())
        if key is not None:
            return tuple(self._view(key)._posterior.incumbent.tolist())
        return self._model.best_for(range(len(self._segments)))

    @ONE_THREAD
    def insight(self, context: Mapping[str, Any] | None = None) -> Insight | None:
        """Return what is known about the best subset for a context; without one, the average over all segments."""
        key = None if context is None else self.segment(context)
        if not self._segments:
            return None
        if key is not None:
            return self._view(key).insight()
        known = [(float(segment.plays), self._view(segment.key).insight()) for segment in self._segments]
        return averaged([(weight, insight) for weight, insight in known if insight is not None])

    def by_segment(self) -> tuple[SegmentInsight, ...]:
        """Return what is known about each segment, the one with the most plays first."""
        plays = {segment.key: segment.plays for segment in self._segments}
        total = max(1, sum(plays.values()))
        found = []
        for key in self.segments:
            view = self._view(key)
            found.append(SegmentInsight(context_of(key), plays[key], plays[key] / total, view.best(), view.insight()))
        return tuple(found)

    def by_attribute(self) -> tuple[AttributeInsight, ...]:
        """Return how much each attribute matters for what is best, the one that gains the most first."""
        if not self._segments:
            return ()
        low, high = self.reward_range
        unit = (high - low) * self._noise.range.width
        return attribute_insights(self._model, unit, self._rng(FOR_ATTRIBUTES))

    def with_arms(self, keep: Sequence[int], added: int = 0, constraints: Any = None) -> Self:
        """Return a policy with these arms and `added` new ones; it keeps all that is known about the arms it keeps.

        `constraints` are the rules for all arms after the change, with their new numbers. Without them, the present
        rules stay: arms that leave also leave their groups, and new arms are in no group.
        """
        kept, added, rules = changed_arms(self, keep, added, constraints)
        fresh = type(self)(**{**self.params, "n_arms": len(kept) + added, "constraints": rules})
        informed = self._informed()
        informed._model.change_arms(np.array(kept), added, fresh._allowed)
        return self._continued(informed, fresh)

    def with_params(self, **changes: Any) -> Self:
        """Return a policy with other parameters that keeps what is known.

        These can change: `reward_range`, `half_life` and `constraints`. If new constraints forbid the incumbent of a
        segment, the best allowed subset by the posterior means takes its place.
        """
        if unknown := sorted(changes.keys() - {"reward_range", "half_life", "constraints"}):
            raise BadInput(
                f"{', '.join(unknown)} cannot change while the policy runs: reward_range, half_life and constraints can"
            )
        fresh, informed = type(self)(**{**self.params, **changes}), self._informed()
        informed._model.obey(fresh._allowed)
        shift, factor = self._unit_change(fresh)
        informed._noise.range = informed._noise.range.moved(shift, factor)
        for segment in informed._segments:
            segment.alarms.rescale(shift, factor)
        return self._continued(informed, fresh)

    def _continued(self, informed: Self, fresh: Self) -> Self:
        """Return the fresh policy with what another one knows."""
        fresh._model, fresh._learned, fresh._noise = informed._model, informed._learned, informed._noise
        fresh.plays, fresh.updates = self.plays, self.updates + 1
        return fresh

    # Plans.

    def _view(self, key: str) -> Thompson:
        """Return a new thompson with the posterior of this segment: threads may share the policy of a campaign."""
        model, keys = self._model, self._model.keys
        if key not in keys:
            model = model.with_segment(key)
        place = keys.index(key) if key in keys else len(keys)
        segment, view = model.segments[place], copy(self._viewer)
        view._bits = np.random.PCG64(0)  # `_rng` sets its state
        view._posterior, view._noise, view._alarms = model.posterior(place), self._noise, segment.alarms
        view._learned, view.updates = segment.plays, self.updates * (MOST_WITH_OTHER + 2) + place
        return view

    def _next(self) -> Plan:
        rng = self._rng(FOR_PLAN)
        self._draws = {}
        if not self._learned:
            first = self._viewer._next()
            return Plan(first.subsets, first.times, (self.segment(None),) * len(first))
        recent = min(self._learned, self._params["half_life"] or self._learned)
        plays = max(tenth(recent), self.constants.shortest)
        if not self._segments:
            plan = self._viewer._sweep(plays, rng)
            return Plan(plan.subsets, plan.times, (self.segment(None),) * len(plan))
        parts = []
        for place, count in enumerate(self._expected_plays(plays, rng).tolist()):
            if count:
                key = self._segments[place].key
                parts.append((key, self._view(key)._draw(count, self._rng(FOR_PLAN, place))))
        return Plan(
            np.concatenate([plan.subsets for _, plan in parts]),
            np.concatenate([plan.times for _, plan in parts]),
            tuple(key for key, plan in parts for _ in range(len(plan))),
        )

    def _expected_plays(self, plays: int, rng: np.random.Generator) -> IntArray:
        """Return how many of the next plays each segment is expected to have, by its plays so far.

        Remainders are rounded at random, so that small segments have plans too.
        """
        part = np.array([segment.plays for segment in self._segments], float)
        exact = plays * part / part.sum()
        count: IntArray = np.floor(exact).astype(np.int64)
        if left := plays - int(count.sum()):
            rest = exact - count
            chosen = rng.choice(len(part), left, replace=False, p=rest / rest.sum())
            count[chosen] += 1
        return count

    @ONE_THREAD
    def filler(self, index: int, segment: str | None = None) -> Subset:
        """Return another draw of the segment, so that plays made while rewards are late are learned from too."""
        key = self.segment(None) if segment is None else segment
        if key not in self._draws:
            if len(self._draws) > MOST_WITH_OTHER:  # invented contexts; if they come again, they get the same draws
                del self._draws[next(iter(self._draws))]
            self._draws[key] = self._drawn(key)
        drawn = self._draws[key]
        return tuple(drawn[index % len(drawn)].tolist())

    def _drawn(self, key: str) -> IntArray:
        if self._segments:
            view, rng = self._view(key), self._rng(FOR_FILLERS, *key.encode())
            return view._drawn(view._posterior, rng)
        rounds = -(-self.constants.draws * self.k // self.n_arms)  # the same for all segments: visitors share them
        return self._viewer._sweeps(rounds, self._rng(FOR_FILLERS)).subsets

    # Learning.

    def _learn(self, plan: Plan, tally: Tally) -> None:
        if self._params["half_life"] and self._segments:
            half_lives = min(plan.plays / self._params["half_life"], MOST_HALF_LIVES)
            self._model.forget(2.0**half_lives)
            self._noise.forget(0.5**half_lives)
        self._extend_range(tally)
        if self._noise.range.width > 0:
            self._update(plan, tally)
        self._learned += plan.plays

    def _update(self, plan: Plan, tally: Tally) -> None:
        """Compare the rewards of a plan with what was expected of them, then learn from them."""
        model, n, (low, width) = self._model, tally.count, (self._noise.range.low, self._noise.range.width)
        segment = self._numbers(plan)
        mean, within = self._noise.range.scaled(tally)
        odds, spread = model.predict(segment, plan.subsets)
        value = expit(odds)
        binomial = value * (1 - value)
        uncertainty = spread * binomial**2
        dispersion = self._noise.learn(n, mean, within, value, uncertainty, self.constants)
        expected, variances = low + width * value, (width**2 * uncertainty, width**2 * dispersion * binomial)
        for place in np.unique(segment).tolist():
            rows = np.flatnonzero(segment == place)
            known = model.segments[place]
            known.plays += int(n[rows].sum())
            told = Tally(n[rows], tally.total[rows], tally.squares[rows])
            of_rows = (each[rows] for each in (expected, *variances))
            known.alarms.learn(plan.keep(rows), told, *of_rows, known.plays, width)
        model.learn(PlayRows(segment, plan.subsets, mean, n / dispersion), odds, self.updates)
        model.bound_levels(sum(known.plays for known in model.segments) / self._noise.dispersion)
        for known in model.segments:
            known.alarms.follow(known.incumbent)

    def _numbers(self, plan: Plan) -> IntArray:
        """Return the number of the segment of each row; segments that are new are added."""
        assert plan.segments is not None
        numbers: dict[str, int] = {}
        for key in dict.fromkeys(plan.segments):
            numbers[key] = self._model.number_of(bounded(key, self._model.keys))
        return np.array([numbers[key] for key in plan.segments])

    def _extend_range(self, tally: Tally) -> None:
        """Extend the range to the rewards of these plays; set the prior as soon as two different rewards were seen."""
        before, after = self._noise.range, self._noise.range.extended(tally)
        self._noise.range = after
        if not after.width or after == before:
            return
        if not before.width:
            value, variance = first_rewards(after, tally, before.low, self._learned)
            binomial = value * (1 - value)
            start, scale = float(np.log(value / (1 - value))), variance / self.k / binomial**2
            self._model = Model(self.n_arms, self.k, start, scale, self.constants, self._allowed)
            self._noise = Noise.at_start(value, variance, after, self.constants)
            return
        largest = self._model.rescale((before.low, before.high), (after.low, after.high))
        self._noise.rescale((before.width / after.width) ** 2, largest)
