"""Contenders: a policy on a problem, ready for any number of runs on any machine."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from kofn.core import BadInput, KofnError, Policy, ShortHorizonWarning
from kofn.experiments.settings import Setting
from kofn.policies import make_policy, policy_named, register, save
from kofn.problems import AbstractProblem
from kofn.simulation import Run, RunSeeds, run_seeds, simulate

Factory: TypeAlias = Callable[[np.random.SeedSequence], Policy]
Instances: TypeAlias = AbstractProblem | Setting | Callable[[np.random.SeedSequence], AbstractProblem]
Contenders: TypeAlias = Sequence[str] | Mapping[str, str | tuple[str, Mapping[str, Any]] | Factory]
Maker: TypeAlias = Callable[[AbstractProblem, int, np.random.SeedSequence], Policy]


@dataclass(frozen=True, eq=False)
class Trial:
    """One run, and what it took."""

    run: Run
    seconds: float
    state_bytes: int


@dataclass(frozen=True, eq=False)
class Contender:
    """One policy on one problem for one horizon with one seed, from which each run has its own."""

    label: str
    make: Maker
    problem: Instances
    horizon: int
    seed: int

    def seeds(self, run: int) -> RunSeeds:
        """Return the seeds of a run: the same for all contenders."""
        return run_seeds(self.seed, run)

    def play(self, run: int) -> Trial:
        """The run of that number. The state is measured at the end of the first."""
        for_problem, for_policy, for_plays = self.seeds(run)
        instance = instance_of(self.problem, for_problem)
        policy = self._policy(instance, for_policy)
        _ = instance.optimum  # worked out once for all policies, not on the first one's clock
        start = time.perf_counter()
        played = simulate(policy, instance, self.horizon, np.random.default_rng(for_plays))
        seconds = time.perf_counter() - start
        return Trial(played, seconds, len(json.dumps(policy.state())) if run == 0 else 0)

    def tried(self, first: AbstractProblem | None = None, *, kept: bool = False) -> Entry:
        """The contender after the first two plays of its first run: what cannot work is found out before anything runs.

        `first` is the problem of that run, where it has been made already; what is to be `kept` gets its digest.
        """
        for_problem, for_policy, _ = self.seeds(0)
        instance = instance_of(self.problem, for_problem) if first is None else first
        policy = self._policy(instance, for_policy)
        simulate(policy, instance, min(2, self.horizon), seed=0)
        digest = _digest([save(policy), instance.optimum, list(instance.best)]) if kept else ""
        return Entry(self, type(policy), digest)

    def _policy(self, instance: AbstractProblem, seed: np.random.SeedSequence) -> Policy:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShortHorizonWarning)
            return self.make(instance, self.horizon, seed)


@dataclass(frozen=True, eq=False)
class Entry:
    """A contender that can play. The digest differs where parameters, problem or first plays do: it tells apart what
    has the same name."""

    contender: Contender
    policy: type[Policy]
    digest: str = ""

    @property
    def key(self) -> dict[str, Any]:
        """What its runs are kept under, as plain values."""
        return {
            "problem": title(self.contender.problem),
            "label": self.contender.label,
            "policy": self.policy.name,
            "horizon": self.contender.horizon,
            "seed": self.contender.seed,
            "digest": self.digest,
        }


def _digest(facts: list[Any]) -> str:
    text = json.dumps(facts, sort_keys=True, default=lambda what: type(what).__name__)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def contenders_for(policies: Contenders, problem: Instances, horizon: int, seed: int) -> list[Contender]:
    """A contender for each policy, all on one problem."""
    return [Contender(label, make, problem, horizon, seed) for label, make in _makers(policies).items()]


def _makers(policies: Contenders) -> dict[str, Maker]:
    if isinstance(policies, Mapping):
        return {str(label): _maker(what) for label, what in policies.items()}
    if isinstance(policies, str) or not isinstance(policies, Iterable):
        raise BadInput(f"policies are a list of names, such as ['cmab-sm', 'dart'], not {policies!r}")
    return {name: partial(_by_name, policy_named(name), {}) for name in policies}


def _maker(what: Any) -> Maker:
    name, params = what if isinstance(what, tuple) and len(what) == 2 else (what, {})
    if isinstance(name, str) and isinstance(params, Mapping):
        return partial(_by_name, policy_named(name), dict(params))
    if callable(what) and not isinstance(what, type):
        return partial(_by_factory, what)
    raise BadInput(f"a policy is a name, (name, parameters), or a function that makes one from a seed, not {what!r}")


def _by_name(
    policy: type[Policy], params: dict[str, Any], problem: AbstractProblem, horizon: int, seed: np.random.SeedSequence
) -> Policy:
    register(policy)  # a worker does not know yet what a program has registered
    return policy_for(policy.name, params, problem, horizon, seed)


def policy_for(
    name: str, params: dict[str, Any], problem: AbstractProblem, horizon: int, seed: np.random.SeedSequence
) -> Policy:
    """The policy of that name for this problem, told what it needs to be told."""
    told: dict[str, Any] = {"n_arms": problem.n_arms, "k": problem.k, "direction": problem.direction}
    told |= {"horizon": horizon, "seed": seed}
    if problem.reward_range != (0.0, 1.0):
        told["reward_range"] = problem.reward_range
    if "best" in policy_named(name).needs:
        told["best"] = problem.best
    return make_policy(name, **told | params)


def _by_factory(factory: Factory, problem: AbstractProblem, horizon: int, seed: np.random.SeedSequence) -> Policy:
    del problem, horizon
    return factory(seed)


def instance_of(problem: Instances, seed: np.random.SeedSequence) -> AbstractProblem:
    """The problem itself, or the one that is made from the seed."""
    if isinstance(problem, AbstractProblem):
        return problem
    made: object = problem
    if isinstance(problem, Setting):
        made = problem.problem(seed)
    elif callable(problem):
        try:
            made = problem(seed)
        except KofnError:
            raise
        except Exception as why:
            raise BadInput(f"{title(problem)}(seed) makes no problem: {type(why).__name__}: {why}") from why
    if not isinstance(made, AbstractProblem):
        raise BadInput(f"a problem is a Problem, a Setting, or a function that makes one from a seed, not {made!r}")
    return made


def title(problem: Instances) -> str:
    """What a problem is called in tables and files."""
    if isinstance(problem, Setting):
        return problem.name
    return repr(problem) if isinstance(problem, AbstractProblem) else getattr(problem, "__name__", "problem")
