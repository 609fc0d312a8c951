"""Libraries with contexts that people would use instead, as documented, behind one `ask` and `tell`.

All players see the same visitors, and the arms that pay are drawn beforehand. Libraries without K of N choose from the
list of all subsets. Vowpal Wabbit's slates have a pool of arms for every place, and its CCB gives a loss to each place:
every place gets that of the whole subset.
"""

from __future__ import annotations

import importlib
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

import kofn
from benchmarks.peers_players import missing
from kofn.core import FloatArray, Subset
from kofn.core.contexts import key_of
from kofn.lab.problems import ContextualProblem

LIMIT = 10.0
"""Most seconds of processor time of a player in a run. Higher: slow players make more plays."""


class World:
    """Visitors of a contextual problem with Bernoulli arms, and the arms that pay for each."""

    def __init__(self, problem: ContextualProblem, visitors: int, seed: Any, for_players: int) -> None:
        rng = np.random.default_rng(seed)
        self.problem, self.seed = problem, for_players % 2**31
        self.who = rng.choice(len(problem.segments), visitors, p=problem.shares)
        p = np.array([segment.problem.arms.p for segment in problem.segments])  # type: ignore[attr-defined]
        self.outcomes = (rng.random((visitors, problem.n_arms)) < p[self.who]).astype(float)

    def context(self, visitor: int) -> Mapping[str, str]:
        """Return the context of a visitor."""
        return self.problem.contexts[int(self.who[visitor])]

    def reward(self, visitor: int, subset: Subset) -> float:
        """Return what the visitor pays for the subset."""
        reward = self.problem.segments[0].problem.reward  # type: ignore[attr-defined]
        return float(reward(self.outcomes[visitor, list(subset)]))

    def regret(self, subsets: list[Subset]) -> FloatArray:
        """Return the expected regret after 1, 2, ... of these plays for the first visitors."""
        rows, who, gaps = np.array(subsets), self.who[: len(subsets)], np.zeros(len(subsets))
        for number, segment in enumerate(self.problem.segments):
            gaps[who == number] = segment.problem.gap(rows[who == number])
        return np.cumsum(gaps)


class Player(ABC):
    """A player: returns a subset for a context from `ask`, and learns from its reward in `tell`."""

    label: ClassVar[str]
    needs: ClassVar[str] = "kofn"
    package: ClassVar[str] = "kofn"

    def __init__(self, world: World) -> None:
        self.n_arms, self.k, self.seed = world.problem.n_arms, world.problem.k, world.seed
        self.rng = random.Random(self.seed)
        self.start(world.problem)

    @abstractmethod
    def start(self, problem: ContextualProblem) -> None:
        """Make the library's object."""

    @abstractmethod
    def ask(self, context: Mapping[str, str]) -> Subset:
        """Return the subset to play."""

    @abstractmethod
    def tell(self, context: Mapping[str, str], subset: Subset, reward: float) -> None:
        """Learn from the reward of the last subset that `ask` returned."""


def play(kind: type[Player], world: World) -> tuple[FloatArray, float]:
    """Return the regret of a player after each play, and its seconds of processor time; it ends after LIMIT seconds."""
    player, subsets = kind(world), []
    begun = time.process_time()
    for visitor in range(len(world.who)):
        context = world.context(visitor)
        subset = player.ask(context)
        player.tell(context, subset, world.reward(visitor, subset))
        subsets.append(subset)
        if time.process_time() > begun + LIMIT:
            break
    return world.regret(subsets), time.process_time() - begun


class Contextual(Player):
    label = "kofn, `contextual-thompson`"

    def start(self, problem: ContextualProblem) -> None:
        self.policy = kofn.ContextualThompson(self.n_arms, self.k, seed=self.seed)

    def ask(self, context: Mapping[str, str]) -> Subset:
        return self.policy.ask(context)

    def tell(self, context: Mapping[str, str], subset: Subset, reward: float) -> None:
        self.policy.tell(subset, reward, context=context)


class OneForAll(Player):
    label = "kofn, one `thompson` for all"

    def start(self, problem: ContextualProblem) -> None:
        self.policy = kofn.Thompson(self.n_arms, self.k, seed=self.seed)

    def ask(self, context: Mapping[str, str]) -> Subset:
        return self.policy.ask()

    def tell(self, context: Mapping[str, str], subset: Subset, reward: float) -> None:
        self.policy.tell(subset, reward)


class Separate(Player):
    label = "kofn, one `thompson` per segment"

    def start(self, problem: ContextualProblem) -> None:
        self.policies = {
            key_of(context): kofn.Thompson(self.n_arms, self.k, seed=self.seed + number)
            for number, context in enumerate(problem.contexts)
        }

    def ask(self, context: Mapping[str, str]) -> Subset:
        return self.policies[key_of(context)].ask()

    def tell(self, context: Mapping[str, str], subset: Subset, reward: float) -> None:
        self.policies[key_of(context)].tell(subset, reward)


class MABWiser(Player):
    """Its contextual learners, with an indicator for each value of each attribute, over the list of all subsets."""

    needs, package = "mabwiser.mab", "mabwiser"

    def start(self, problem: ContextualProblem) -> None:
        self.subsets = list(combinations(range(self.n_arms), self.k))
        values = sorted({pair for context in problem.contexts for pair in context.items()})
        self.place = {pair: place for place, pair in enumerate(values)}
        self.mab = self.learner(importlib.import_module("mabwiser.mab"))
        self.fitted, self.number = False, 0

    @abstractmethod
    def learner(self, mab: Any) -> Any:
        """Return the learner."""

    def features(self, context: Mapping[str, str]) -> FloatArray:
        found = np.zeros((1, len(self.place) + 1))
        found[0, [self.place[pair] for pair in context.items()]] = 1.0
        found[0, -1] = 1.0
        return found

    def ask(self, context: Mapping[str, str]) -> Subset:
        if self.fitted:
            self.number = self.mab.predict(self.features(context))
        else:  # predict needs fit
            self.number = self.rng.randrange(len(self.subsets))
        return self.subsets[self.number]

    def tell(self, context: Mapping[str, str], subset: Subset, reward: float) -> None:
        learn = self.mab.partial_fit if self.fitted else self.mab.fit
        learn([self.number], [reward], self.features(context))
        self.fitted = True


class MABWiserUCB(MABWiser):
    label = "MABWiser, `LinUCB`, list of subsets"

    def learner(self, mab: Any) -> Any:
        return mab.MAB(list(range(len(self.subsets))), mab.LearningPolicy.LinUCB(alpha=1.0), seed=self.seed)


class MABWiserTS(MABWiser):
    label = "MABWiser, `LinTS`, list of subsets"

    def learner(self, mab: Any) -> Any:
        return mab.MAB(list(range(len(self.subsets))), mab.LearningPolicy.LinTS(alpha=0.5), seed=self.seed)


class VowpalWabbit(Player):
    """What Vowpal Wabbit's two ways to choose several arms share."""

    needs, package = "vowpalwabbit", "vowpalwabbit"
    options: ClassVar[str]

    def start(self, problem: ContextualProblem) -> None:
        self.vw = importlib.import_module("vowpalwabbit").Workspace(f"{self.options} --quiet --random_seed {self.seed}")
        self.drawn: list[tuple[int, float]] = []

    def draw(self, slots: list[list[tuple[int, float]]]) -> Subset:
        """Draw an arm for each place by its probability, without those that have a place."""
        self.drawn = []
        for scores in slots:
            taken = {arm for arm, _ in self.drawn}
            free = {arm: probability for arm, probability in scores if arm not in taken}
            (arm,) = self.rng.choices(list(free), list(free.values()))
            self.drawn.append((arm, free[arm] / sum(free.values())))
        return tuple(sorted(arm for arm, _ in self.drawn))


def _said(context: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in context.items())


class Slates(VowpalWabbit):
    label = "Vowpal Wabbit, `--slates --squarecb`"
    options = "--slates --squarecb --interactions sa"

    def start(self, problem: ContextualProblem) -> None:
        super().start(problem)
        self.actions = [f"slates action {place} |a p{place}a{i}" for place in range(self.k) for i in range(self.n_arms)]

    def ask(self, context: Mapping[str, str]) -> Subset:
        slots = self.vw.predict([f"slates shared |s {_said(context)}", *self.actions, *["slates slot |"] * self.k])
        return self.draw(slots)

    def tell(self, context: Mapping[str, str], subset: Subset, reward: float) -> None:
        slots = [f"slates slot {arm}:{probability} |" for arm, probability in self.drawn]
        self.vw.learn([f"slates shared {-reward} |s {_said(context)}", *self.actions, *slots])


class CCB(VowpalWabbit):
    label = "Vowpal Wabbit, `--ccb_explore_adf --squarecb`"
    options = "--ccb_explore_adf --squarecb --interactions sa"

    def start(self, problem: ContextualProblem) -> None:
        super().start(problem)
        self.actions = [f"ccb action |a a{i}" for i in range(self.n_arms)]

    def ask(self, context: Mapping[str, str]) -> Subset:
        slots = self.vw.predict([f"ccb shared |s {_said(context)}", *self.actions, *["ccb slot |"] * self.k])
        return self.draw(slots)

    def tell(self, context: Mapping[str, str], subset: Subset, reward: float) -> None:
        slots = [f"ccb slot {arm}:{-reward}:{probability} |" for arm, probability in self.drawn]
        self.vw.learn([f"ccb shared |s {_said(context)}", *self.actions, *slots])


PLAYERS: list[type[Player]] = [Contextual, OneForAll, Separate, Slates, CCB, MABWiserUCB, MABWiserTS]


def available() -> list[type[Player]]:
    """Return the players whose libraries are installed."""
    return [kind for kind in PLAYERS if missing(kind.needs) is None]


def left_out() -> dict[str, str]:
    """Return the packages that cannot be imported, and why."""
    return {kind.package: why for kind in PLAYERS if (why := missing(kind.needs))}
