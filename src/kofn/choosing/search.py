"""Which subset is scored next: rounds of a policy's plans, and swaps of the best subset once the score is repeatable.

A round depends on the seed and on the scores before it, never on the number of workers or on the order in which scores
arrive. So the result is the same for any number of workers, and a search that is resumed from a file continues as if
it had not been interrupted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kofn.choosing.choice import Evaluation
from kofn.choosing.repeats import Repeats
from kofn.core import BadInput, Direction, Policy, Subset
from kofn.policies import make_policy

MARGIN = 1.0
"""Width that is added to the range of scores seen, on both sides, relative to it. Higher: the policy is rebuilt for a
wider range less often; thompson learns the range itself, so that a range that is too wide costs it nothing."""

DRAWS = 64
"""Draws of the policy that are searched for a subset without a score, if its plan has none. Higher: more draws that the
policy thinks possible, fewer swaps of the best subset."""

SWAPS = 8
"""Swaps of the best subset in one round. Higher: more evaluations in parallel, fewer after an improvement."""


@dataclass
class Search:
    """The state of a search: all scores so far, and the policy that has learned from them."""

    n_arms: int
    k: int
    direction: Direction
    policy_name: str
    seed: int
    budget: int
    reward_range: tuple[float, float] | None
    repeats: Repeats
    history: list[Evaluation] = field(default_factory=list)
    exhausted: str = ""  # why nothing is left to score

    def __post_init__(self) -> None:
        self.range = self.reward_range or (0.0, 1.0)
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
        )

    # Rounds.

    def next_round(self) -> list[Subset]:
        """Return the subsets to score next, at most as many as the budget allows; none if nothing is left."""
        left = self.budget - len(self.history)
        if left <= 0:
            return []
        found = self._planned() if not self.repeats.known else self._new_subsets()
        return found[:left]

    def include(self, evaluations: Sequence[Evaluation]) -> None:
        """Include the evaluations of a round, in its order."""
        for each in evaluations:
            self.history.append(each)
            self.repeats.include(each.arms, each.value)
            self._learn(each)

    def _planned(self) -> list[Subset]:
        """Return the remaining plays of the policy's plan; rows take turns, as in `Policy.ask`."""
        plan = self.policy.plan()
        rows = [(plan.subset(row), int(times)) for row, times in enumerate(plan.times) if times]
        turns = range(max(times for _, times in rows))
        return [subset for turn in turns for subset, times in rows if times > turn]

    def _new_subsets(self) -> list[Subset]:
        """Return subsets without a score: of the plan, or else other draws of the policy, or else swaps of the best.

        Each new score counts as a play of the plan, so that the policy learns and plans anew after a few of them.
        """
        if len(self.repeats.first) == math.comb(self.n_arms, self.k):
            self.exhausted = "all subsets are scored"
            return []
        return (
            self._without_score(self._planned())
            or self._without_score([self.policy.filler(index) for index in range(DRAWS)])[:SWAPS]
            or self._swaps()
            or self._random()
        )

    def _without_score(self, subsets: Iterable[Subset]) -> list[Subset]:
        return [each for each in dict.fromkeys(subsets) if each not in self.repeats.first]

    def _swaps(self) -> list[Subset]:
        """Return swaps of one arm of the best subset that have no score, in a random order."""
        best = self.best_scored()
        others = [arm for arm in range(self.n_arms) if arm not in best]
        swaps = [tuple(sorted({*best, come} - {leave})) for leave, come in itertools.product(best, others)]
        new = self._without_score(swaps)
        return [new[index] for index in self.rng.permutation(len(new))[:SWAPS]]

    def _random(self) -> list[Subset]:
        """Return a random subset without a score."""
        while True:
            subset = tuple(sorted(self.rng.choice(self.n_arms, self.k, replace=False).tolist()))
            if subset not in self.repeats.first:
                return [subset]

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
        """Return the subset with the best mean score; of equal ones, that with the most scores, then the first."""
        sign = 1 if self.direction == "maximize" else -1
        totals: dict[Subset, list[float]] = {}
        for each in self.history:
            totals.setdefault(each.arms, []).append(each.value)
        return max(totals, key=lambda arms: (sign * math.fsum(totals[arms]) / len(totals[arms]), len(totals[arms])))

    def informed(self) -> Policy:
        """Return the policy with the scores of the unfinished plan learned, if it can."""
        try:
            return self.policy.with_params()
        except BadInput:
            return self.policy

    def estimate(self) -> Estimate:
        """Return the subset to choose, and what it is worth."""
        policy = self.informed()
        insight = policy.insight()
        loss = None if insight is None else insight.expected_loss
        if self.repeats.known:
            arms = self.best_scored()
            value = self.repeats.first[arms]
            return Estimate(arms, value, value, value, 0.0 if self.exhausted else loss)
        if insight is None:
            arms = self.best_scored()
            scores = [each.value for each in self.history if each.arms == arms]
            return Estimate(arms, math.fsum(scores) / len(scores), -math.inf, math.inf, None)
        return Estimate(policy.best(), insight.value, insight.low, insight.high, loss)


class Estimate(NamedTuple):
    """A subset and what it is worth, with a 95 % interval, and the expected loss of choosing it."""

    arms: Subset
    value: float
    low: float
    high: float
    expected_loss: float | None
