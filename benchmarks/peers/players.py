"""The libraries that people would use instead, used as documented, behind one `ask` and `tell`.

Each library has a class. Libraries that do not support K of N choose from the list of all subsets. Libraries that need
rewards of 0 or 1 get a coin that is 1 with the reward as its probability, which preserves every mean.
"""

from __future__ import annotations

import importlib
import json
import pickle
import random
import re
import tempfile
from abc import ABC, abstractmethod
from contextlib import redirect_stdout
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import kofn
from benchmarks.peers.world import World
from kofn.core import Subset


class Player(ABC):
    """A player: returns a subset from `ask` and learns from its reward in `tell`."""

    label: ClassVar[str]
    needs: ClassVar[str]
    """The module that it imports."""
    package: ClassVar[str]
    disk: ClassVar[bool] = False
    """Whether every reward is written to disk before `tell` returns. Its time is then wall-clock time."""

    def __init__(self, world: World) -> None:
        self.subsets = world.subsets
        self.n_arms, self.k, self.seed = world.problem.n_arms, world.problem.k, world.seed
        self.rng = random.Random(self.seed)

    @abstractmethod
    def ask(self) -> Subset:
        """Return the next subset to play."""

    @abstractmethod
    def tell(self, subset: Subset, reward: float) -> None:
        """Learn from the reward of the last subset that `ask` returned."""

    @abstractmethod
    def size(self) -> int:
        """Return the number of bytes needed to restore the player."""

    def close(self) -> None:
        """Close files."""
        return

    def coin(self, reward: float) -> int:
        """Return 0 or 1, with the reward as the probability of 1."""
        return int(reward) if reward in (0.0, 1.0) else int(self.rng.random() < reward)


@cache
def missing(needs: str) -> str | None:
    """Return one line that says why the module cannot be imported, or None if it can."""
    try:
        with redirect_stdout(StringIO()):  # some print a greeting
            importlib.import_module(needs)
    except Exception as why:  # an old library may fail with any exception
        line = str(why).splitlines()[0] if str(why) else ""
        return f"{type(why).__name__}: {re.sub(r' [(][^)]*/[^)]*[)]', '', line)}"
    return None


def installed(package: str) -> str:
    """Return the installed version of a package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "?"


class Thompson(Player):
    label, needs, package = "kofn, thompson, ask and tell", "kofn", "kofn"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.policy = kofn.Thompson(self.n_arms, self.k, seed=self.seed)

    def ask(self) -> Subset:
        return self.policy.ask()

    def tell(self, subset: Subset, reward: float) -> None:
        self.policy.tell(subset, reward)

    def size(self) -> int:
        return len(json.dumps(kofn.save(self.policy)))


class OfList(Player):
    """A player that chooses from the list of all subsets, by index."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.numbers = list(range(len(self.subsets)))
        self.number = 0


class RiverThompson(OfList):
    label, needs, package = "river, ThompsonSampling", "river.bandit", "river"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        bandit, proba = importlib.import_module("river.bandit"), importlib.import_module("river.proba")
        self.policy = bandit.ThompsonSampling(reward_obj=proba.Beta(), seed=self.seed)

    def ask(self) -> Subset:
        self.number = self.policy.pull(self.numbers)
        return self.subsets[self.number]

    def tell(self, subset: Subset, reward: float) -> None:
        self.policy.update(self.number, self.coin(reward))

    def size(self) -> int:
        return len(pickle.dumps(self.policy))


class RiverUCB(RiverThompson):
    label = "river, UCB(delta=1)"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.policy = importlib.import_module("river.bandit").UCB(delta=1, seed=self.seed)

    def tell(self, subset: Subset, reward: float) -> None:
        self.policy.update(self.number, reward)


class MABWiser(OfList):
    label, needs, package = "MABWiser, ThompsonSampling", "mabwiser.mab", "mabwiser"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        mab = importlib.import_module("mabwiser.mab")
        self.mab = mab.MAB(self.numbers, mab.LearningPolicy.ThompsonSampling(), seed=self.seed)
        self.fitted = False

    def ask(self) -> Subset:
        self.number = self.mab.predict() if self.fitted else self.rng.choice(self.numbers)  # predict needs fit
        return self.subsets[self.number]

    def tell(self, subset: Subset, reward: float) -> None:
        learn = self.mab.partial_fit if self.fitted else self.mab.fit
        learn([self.number], [self.coin(reward)])
        self.fitted = True

    def size(self) -> int:
        return len(pickle.dumps(self.mab))


class Coba(OfList):
    label, needs, package = "coba, BanditUCBLearner", "coba.learners", "coba"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.learner = importlib.import_module("coba.learners").BanditUCBLearner(seed=self.seed)
        self.probability = 1.0

    def ask(self) -> Subset:
        self.number, self.probability = self.learner.predict(None, self.numbers)
        return self.subsets[self.number]

    def tell(self, subset: Subset, reward: float) -> None:
        self.learner.learn(None, self.number, reward, self.probability)

    def size(self) -> int:
        return len(pickle.dumps(self.learner))


class SMPyBandits(OfList):
    label, needs, package = "SMPyBandits, Thompson", "SMPyBandits.Policies", "SMPyBandits"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        np.random.seed(self.seed)  # noqa: NPY002, it uses the global generator and takes no seed
        self.policy = importlib.import_module("SMPyBandits.Policies").Thompson(len(self.subsets))
        self.policy.startGame()

    def ask(self) -> Subset:
        self.number = int(self.policy.choice())
        return self.subsets[self.number]

    def tell(self, subset: Subset, reward: float) -> None:
        self.policy.getReward(self.number, self.coin(reward))

    def size(self) -> int:
        return len(pickle.dumps(self.policy))


class Slates(Player):
    """Vowpal Wabbit's slates, which need a pool of arms for every place: each place gets all arms.

    An arm that has a place is left out of the later places. Their probabilities are rescaled, and the rescaled ones are
    passed to `learn`.
    """

    label, needs, package = "Vowpal Wabbit, --slates --squarecb", "vowpalwabbit", "vowpalwabbit"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        options = f"--slates --squarecb --quiet --random_seed {self.seed}"
        self.vw = importlib.import_module("vowpalwabbit").Workspace(options)
        self.actions = [f"slates action {place} | p{place}a{i}" for place in range(self.k) for i in range(self.n_arms)]
        self.question = ["slates shared |", *self.actions, *["slates slot |"] * self.k]
        self.drawn: list[tuple[int, float]] = []

    def ask(self) -> Subset:
        self.drawn = []
        for scores in self.vw.predict(self.question):
            taken = {arm for arm, _ in self.drawn}
            free = {arm: probability for arm, probability in scores if arm not in taken}
            (arm,) = self.rng.choices(list(free), list(free.values()))
            self.drawn.append((arm, free[arm] / sum(free.values())))
        return tuple(sorted(arm for arm, _ in self.drawn))

    def tell(self, subset: Subset, reward: float) -> None:
        slots = [f"slates slot {arm}:{probability} |" for arm, probability in self.drawn]
        self.vw.learn([f"slates shared {-reward} |", *self.actions, *slots])

    def size(self) -> int:
        with tempfile.TemporaryDirectory() as folder:
            self.vw.save(f"{folder}/model")
            return Path(f"{folder}/model").stat().st_size

    def close(self) -> None:
        self.vw.finish()


class Optuna(OfList):
    label, needs, package = "Optuna, in memory (TPE)", "optuna", "optuna"

    def __init__(self, world: World, storage: str | None = None) -> None:
        super().__init__(world)
        optuna = importlib.import_module("optuna")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler(seed=self.seed)
        self.study = optuna.create_study(direction="maximize", sampler=sampler, storage=storage)
        self.trial: Any = None

    def ask(self) -> Subset:
        self.trial = self.study.ask()
        number: int = self.trial.suggest_categorical("subset", self.numbers)
        return self.subsets[number]

    def tell(self, subset: Subset, reward: float) -> None:
        self.study.tell(self.trial, reward)

    def size(self) -> int:
        return len(pickle.dumps(self.study))


def on_disk(folder: str) -> int:
    """Return the total size of all files in a folder, in bytes."""
    return sum(path.stat().st_size for path in Path(folder).iterdir())


class OptunaSQLite(Optuna):
    label, disk = "Optuna, SQLite (TPE)", True

    def __init__(self, world: World) -> None:
        self.folder = tempfile.TemporaryDirectory()
        super().__init__(world, f"sqlite:///{self.folder.name}/optuna.db")

    def size(self) -> int:
        return on_disk(self.folder.name)

    def close(self) -> None:
        self.study._storage.remove_session()
        self.folder.cleanup()


class Campaign(Player):
    label, needs, package, disk = "kofn, Campaign, SQLite", "kofn.campaigns", "kofn", True

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.folder = tempfile.TemporaryDirectory()
        names, store = [f"arm {i}" for i in range(self.n_arms)], f"sqlite:///{self.folder.name}/kofn.db"
        self.campaign = kofn.Campaign.create("peers", names, self.k, seed=self.seed, store=store)
        self.decision: Any = None

    def ask(self) -> Subset:
        self.decision = self.campaign.decide()
        return tuple(self.decision.subset)

    def tell(self, subset: Subset, reward: float) -> None:
        self.campaign.reward(self.decision.id, reward)

    def size(self) -> int:
        self.campaign.store.close()  # merges the write-ahead log into the file
        return on_disk(self.folder.name)

    def close(self) -> None:
        self.campaign.store.close()
        self.folder.cleanup()


IN_MEMORY: list[type[Player]] = [Thompson, RiverThompson, RiverUCB, MABWiser, Coba, SMPyBandits, Slates, Optuna]
ON_DISK: list[type[Player]] = [Campaign, OptunaSQLite]
