"""Which subset is scored next: rounds of a policy's plans, and swaps of the best subset once the score is repeatable.

A round depends on the seed and on the scores before it, never on the number of workers or on the order in which scores
arrive. So the result is the same for any number of workers, and a search that is resumed from a file continues as if
it had not been interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from kofn.choosing.choice import Evaluation
from kofn.choosing.repeats import Repeats
from kofn.choosing.space import Space
from kofn.constraints import Constraints
from kofn.core import BadInput, Direction, Policy, Subset
from kofn.policies.registry import make_policy, policy_named

MARGIN = 1.0
"""Width that is added to the range of scores seen, on both sides, relative to it. Higher: the policy is rebuilt for a
wider range less often; thompson learns the range itself, so that a range that is too wide costs it nothing."""

DRAWS = 64
"""Draws of the policy that are searched for a subset without a score, if its plan has none. Higher: more draws that the
policy thinks possible, fewer swaps of the best subset."""

SWAPS = 8
"""Swaps of the best subset in one round. Higher: more evaluations in parallel, fewer after an improvement."""


RESERVE, FEWEST_RESERVED, LEAST_BUDGET = 10, 3, 15
"""A noisy score gets one evaluation in RESERVE for new scores of the pick, at least FEWEST_RESERVED; budgets below
LEAST_BUDGET get none, and no interval. Lower RESERVE: a shorter interval, less search."""

SMALL = 0.02
"""Expected loss at which a search without a budget stops, relative to the gain over an average subset."""

PRIOR_DEGREES = 10
"""Most degrees of freedom that repeated scores of all subsets have in the variance of the pick's new scores. Higher:
shorter intervals if the noise is the same everywhere, wrong ones if it is not."""

STARTS = 50
"""Subsets whose swaps are tried, best first. After these, random subsets are scored."""


@dataclass
class Scores:
    """The scores of one subset."""

    count: int = 0
    mean: float = 0.0
    squared: float = 0.0  # sum of squared deviations from the mean

    def include(self, value: float) -> None:
        """Include a score."""
        self.count += 1
        before, self.mean = self.mean, self.mean + (value - self.mean) / self.count
        self.squared += (value - before) * (value - self.mean)


@dataclass
class Search:
    """The state of a search: all scores so far, and the policy that has learned from them."""

    n_arms: int
    k: int
    direction: Direction
    policy_name: str
    seed: int
    budget: int
    open_ended: bool  # stop before the budget if little is left to gain
    reward_range: tuple[float, float] | None
    repeats: Repeats
    constraints: Constraints | None = None
    history: list[Evaluation] = field(default_factory=list)
    scores: dict[Subset, Scores] = field(default_factory=dict)
    pick: Subset | None = None  # of a noisy score, once its new scores have begun
    fresh: Scores = field(default_factory=Scores)  # of the pick, since then
    stopped: str = ""  # why the search ended before its budget

    def __post_init__(self) -> None:
        self.range = self.reward_range or (0.0, 1.0)
        rules = self.constraints
        self.space = Space(self.n_arms, self.k, None if rules is None else rules.allowed(self.n_arms, self.k))
        self.policy = self._new_policy()
        if not self.policy.accepts_unplanned:
            raise BadInput(
                f"policy must be one that learns from plays of any subset, such as thompson, not {self.policy_name!r}"
            )
        self.rng = np.random.default_rng([self.seed, 1])

    def _new_policy(self) -> Policy:
        return make_policy(
            self.policy_name,
            self.n_arms,
            self.k,
            horizon=self.budget,
            seed=self.seed,
            reward_range=self.range,
            direction=self.direction,
            **({} if self.constraints is None else {"constraints": self.constraints}),
            **({"goal": self._goal} if "goal" in policy_named(self.policy_name).__signature__.parameters else {}),
        )

    @property
    def _goal(self) -> str:
        """What thompson plays for: the pick, or, once the score is repeatable, single swaps that are new."""
        return "regret" if self.repeats.known else "pick"

    # Rounds.

    def next_round(self) -> list[Subset]:
        """Return the subsets to score next, at most as many as the budget allows; none if nothing is left."""
        left = self.budget - len(self.history)
        if left <= 0:
            return []
        if self.repeats.known:
            return self._new_subsets()[:left]
        if self.pick is None and self.open_ended and self._settled():
            self.stopped = f"the expected loss is at most {SMALL:.0%} of the gain over an average subset"
            self.end_early()
            left = self.budget - len(self.history)
        reserved = reserve(self.budget)
        if left > reserved:
            return self._planned()[: left - reserved]
        if self.pick is None:
            self.pick = self.informed().best() if len(self.scores) > 1 else self.best_scored()
        return [self.pick] * (left if self.repeats.known is False else 1)

    def end_early(self) -> None:
        """Reduce the budget to the evaluations so far and the new scores of the pick."""
        so_far = len(self.history)
        self.budget = min(self.budget, so_far + (0 if self.repeats.known else reserve(so_far)))

    def _settled(self) -> bool:
        """Return whether the expected loss is small beside the gain over the subsets of the first plan."""
        first = -(-self.n_arms // self.k)
        if len(self.history) <= first or (insight := self.informed().insight()) is None:
            return False
        average = math.fsum(each.value for each in self.history[:first]) / first
        gain = insight.value - average if self.direction == "maximize" else average - insight.value
        return insight.expected_loss is not None and insight.expected_loss <= SMALL * gain

    def include(self, evaluations: Sequence[Evaluation]) -> None:
        """Include the evaluations of a round, in its order."""
        for each in evaluations:
            self.history.append(each)
            self.repeats.include(each.arms, each.value)
            self.scores.setdefault(each.arms, Scores()).include(each.value)
            if each.arms == self.pick:
                self.fresh.include(each.value)
            self._learn(each)
        if self.policy.params.get("goal") == "pick" != self._goal:
            self.policy = self.policy.with_params(goal=self._goal)

    def _planned(self) -> list[Subset]:
        """Return the remaining plays of the policy's plan; rows take turns, as in `Policy.ask`.

        The first plan under rules has some subsets twice. Of these, one is scored again at a time, until it is known
        whether scores repeat: if they do, the others need not be scored again.
        """
        plan = self.policy.plan()
        rows = [(plan.subset(row), int(times)) for row, times in enumerate(plan.times) if times]
        turns = range(max(times for _, times in rows))
        plays = [subset for turn in turns for subset, times in rows if times > turn]
        if self.repeats.known is None and not self.policy.updates:
            return self._without_score(plays) or plays[:1]
        return plays

    def _new_subsets(self) -> list[Subset]:
        """Return subsets without a score: of the plan, or else other draws of the policy, or else swaps of the best.

        Each new score counts as a play of the plan, so that the policy learns and plans again after a few of them.
        """
        if len(self.scores) == self.space.number:
            self.stopped = "all subsets are scored"
            return []
        drawn = (self.policy.filler(index) for index in range(DRAWS))
        found = self._without_score(self._planned()) or self._without_score(drawn)[:SWAPS]
        if self.open_ended and (self.space.swaps_suffice or not found) and not self._swaps_of(self.best_scored()):
            self.stopped = "no swap of one candidate improves the chosen subset"
            return []
        found = found or self._swaps() or self._random()
        if not found:
            self.stopped = "no further subset that is allowed was found"
        return found

    def _without_score(self, subsets: Iterable[Subset]) -> list[Subset]:
        return [each for each in dict.fromkeys(subsets) if each not in self.scores]

    def _swaps(self) -> list[Subset]:
        """Return swaps of one arm of the best subset that have no score; if it has none, of the next best, and so on.

        So all swaps of the best subset are scored before the search continues from the second best.
        """
        return next((new for subset in self._ranked()[:STARTS] if (new := self._swaps_of(subset))), [])

    def _swaps_of(self, subset: Subset) -> list[Subset]:
        """Return up to SWAPS swaps of one arm of this subset that have no score, in a random order."""
        return self.space.swaps(subset, self.rng, self.scores, SWAPS)

    def _random(self) -> list[Subset]:
        """Return a random subset without a score, if one is found."""
        found = self.space.random(self.rng, self.scores)
        return [] if found is None else [found]

    # What the policy learns.

    def _learn(self, evaluation: Evaluation) -> None:
        """Tell the policy a score; one outside of the range seen rebuilds the policy with a wider range."""
        low, high = self.range
        if self.reward_range or (low <= evaluation.value <= high and len(self.history) > 1):
            self.policy.tell(evaluation.arms, evaluation.value)
            return
        values = [each.value for each in self.history]
        low, high = min(values), max(values)
        width = MARGIN * (high - low) or max(abs(low), 1.0)
        self.range = low - width, high + width
        self.policy = self._new_policy()
        for each in self.history:
            self.policy.tell(each.arms, each.value)

    # What is known.

    def best_scored(self) -> Subset:
        """Return the subset with the best mean score; of equal ones, the first."""
        return self._ranked()[0]

    def _ranked(self) -> list[Subset]:
        sign = -1 if self.direction == "maximize" else 1
        return sorted(self.scores, key=lambda arms: sign * self.scores[arms].mean)

    def informed(self) -> Policy:
        """Return the policy with the scores of the unfinished plan learned, if it can."""
        try:
            return self.policy.with_params()
        except BadInput:
            return self.policy

    def estimate(self) -> ScoreEstimate:
        """Return the subset to choose, and what it is worth.

        A noisy score is estimated by the new scores of the pick alone: they were not part of the selection, so they
        are right on average, and whatever the policy's model is.
        """
        insight = self.informed().insight()
        loss = None if insight is None else insight.expected_loss
        arms = self.pick or self.best_scored()
        if self.repeats.known:
            arms = self.best_scored()
            value = self.scores[arms].mean
            all_scored = len(self.scores) == self.space.number
            return ScoreEstimate(arms, value, value, value, 0.0 if all_scored else loss)
        if not self.fresh.count:
            return ScoreEstimate(arms, self.scores[arms].mean, -math.inf, math.inf, loss)
        half = self._half_width()
        return ScoreEstimate(arms, self.fresh.mean, self.fresh.mean - half, self.fresh.mean + half, loss)

    def _half_width(self) -> float:
        """Return the half-width of the 95 % interval of the mean of the pick's new scores, by Student's t.

        The variance is estimated from the new scores and, with limited weight, from repeated scores of other subsets.
        If all new scores are equal, up to 3 / count of further scores may differ (rule of three), by the range seen.
        """
        others = [scores for arms, scores in self.scores.items() if arms != self.pick]
        degrees = sum(scores.count - 1 for scores in others)
        prior = min(degrees, PRIOR_DEGREES)
        squared = self.fresh.squared + (prior / degrees * sum(scores.squared for scores in others) if degrees else 0.0)
        own, count = self.fresh.count - 1 + prior, self.fresh.count
        if not own:
            return math.inf
        values = [each.value for each in self.history]
        unseen = 0.0 if self.fresh.squared else 3 / count * (max(values) - min(values))
        return max(float(stdtrit(own, 0.975)) * math.sqrt(squared / own / count), unseen)


def reserve(budget: int) -> int:
    """Return how many evaluations of a noisy score are kept for new scores of the pick."""
    return max(budget // RESERVE, FEWEST_RESERVED) if budget >= LEAST_BUDGET else 0


class ScoreEstimate(NamedTuple):
    """A subset and what it is worth, with a 95 % interval, and the expected loss of choosing it."""

    arms: Subset
    value: float
    low: float
    high: float
    expected_loss: float | None
