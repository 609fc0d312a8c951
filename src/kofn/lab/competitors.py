"""Competitors: what a sweep plays, one policy on one problem, ready for any number of runs on any machine.

Four words are apart. A competitor may play with any policy. A rival (`kofn.lab.rivals`) is a policy that kofn's own are
measured against. A baseline (`kofn.lab.baselines`) is a search that people use today. A peer (`benchmarks/peers`) is
another library.
"""

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

from kofn.core import BadInput, KofnError, Policy, ProblemWarning, ShortHorizonWarning
from kofn.core.threads import ONE_THREAD
from kofn.lab.problems import AbstractProblem, ContextualProblem
from kofn.lab.settings import Setting
from kofn.lab.simulation import Run, run_seeds, simulate
from kofn.policies.registry import make_policy, policy_named, register, save

Factory: TypeAlias = Callable[[np.random.SeedSequence], Policy]
Instances: TypeAlias = AbstractProblem | Setting | Callable[[np.random.SeedSequence], AbstractProblem]
Policies: TypeAlias = Sequence[str] | Mapping[str, str | tuple[str, Mapping[str, Any]] | Factory]
Maker: TypeAlias = Callable[[AbstractProblem, int, np.random.SeedSequence], Policy]


@dataclass(frozen=True, eq=False)
class Trial:
    """One run, its cost, and the gap of its final subset in units of the reward."""

    run: Run
    seconds: float
    state_bytes: int
    final_gap: float


@dataclass(frozen=True, eq=False)
class Competitor:
    """One policy on one problem for one horizon; the seeds of each run are derived from `seed`."""

    label: str
    make: Maker
    problem: Instances
    horizon: int
    seed: int

    @ONE_THREAD
    def play(self, run: int) -> Trial:
        """Play the run of that number. The size of the state is measured at the end of run 0."""
        for_problem, for_policy, for_plays = run_seeds(self.seed, run)
        instance = instance_of(self.problem, for_problem)
        policy = self._policy(instance, for_policy)
        _ = instance.optimum  # before the clock starts: policies share the instance, and the first must not pay for it
        start = time.perf_counter()
        with warnings.catch_warnings():  # `compare` warns once, in the process of the caller
            warnings.simplefilter("ignore", ProblemWarning)
            played = simulate(policy, instance, self.horizon, np.random.default_rng(for_plays))
        seconds = time.perf_counter() - start
        size = len(json.dumps(policy.state())) if run == 0 else 0
        return Trial(played, seconds, size, played.final_gap(instance))

    @ONE_THREAD
    def checked(self, first: AbstractProblem | None = None, *, archived: bool = False) -> Entry:
        """Play the first two plays of run 0, so that a competitor that cannot play is refused before the sweep.

        `first` is the problem of that run, if it exists already. An entry that will be `archived` gets its digest.
        """
        for_problem, for_policy, _ = run_seeds(self.seed, 0)
        instance = instance_of(self.problem, for_problem) if first is None else first
        policy = self._policy(instance, for_policy)
        simulate(policy, instance, min(2, self.horizon), seed=0)
        if policy.takes_context and not isinstance(instance, ContextualProblem):
            raise BadInput(
                f"{policy.name} is for problems with contexts, and this one has none: use thompson, or a problem such "
                "as context/part-6"
            )
        if policy.takes_fewest and policy.fewest == policy.k:
            raise BadInput(
                f"{policy.name} plays as thompson on this problem, where every subset has K arms: use thompson"
            )
        digest = _digest([save(policy), policy.version, instance.optimum, list(instance.best)]) if archived else ""
        return Entry(self, type(policy), digest)

    def _policy(self, instance: AbstractProblem, seed: np.random.SeedSequence) -> Policy:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShortHorizonWarning)
            return self.make(instance, self.horizon, seed)


@dataclass(frozen=True, eq=False)
class Entry:
    """A competitor that has been checked. The digest distinguishes competitors of the same name: it differs when the
    parameters, the version of the policy, the problem or the first plays differ."""

    competitor: Competitor
    policy: type[Policy]
    digest: str = ""

    @property
    def key(self) -> dict[str, Any]:
        """The key of its runs in an archive, as plain values."""
        return {
            "problem": title(self.competitor.problem),
            "label": self.competitor.label,
            "policy": self.policy.name,
            "version": self.policy.version,
            "horizon": self.competitor.horizon,
            "seed": self.competitor.seed,
            "digest": self.digest,
        }


def _digest(facts: list[Any]) -> str:
    text = json.dumps(facts, sort_keys=True, default=lambda what: type(what).__name__)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def competitors_for(policies: Policies, problem: Instances, horizon: int, seed: int) -> list[Competitor]:
    """Return a competitor for each policy, all on one problem."""
    return [Competitor(label, make, problem, horizon, seed) for label, make in _makers(policies).items()]


def _makers(policies: Policies) -> dict[str, Maker]:
    if isinstance(policies, Mapping):
        return {str(label): _maker(what) for label, what in policies.items()}
    if isinstance(policies, str) or not isinstance(policies, Iterable):
        raise BadInput(f"policies must be a list of names, such as ['cmab-sm', 'dart']; got {policies!r}")
    return {name: partial(_by_name, policy_named(name), {}) for name in policies}


def _maker(what: Any) -> Maker:
    name, params = what if isinstance(what, tuple) and len(what) == 2 else (what, {})
    if isinstance(name, str) and isinstance(params, Mapping):
        return partial(_by_name, policy_named(name), dict(params))
    if callable(what) and not isinstance(what, type):
        return partial(_by_factory, what)
    raise BadInput(
        f"a policy must be a name, (name, parameters), or a function that makes a policy from a seed; got {what!r}"
    )


def _by_name(
    policy: type[Policy], params: dict[str, Any], problem: AbstractProblem, horizon: int, seed: np.random.SeedSequence
) -> Policy:
    register(policy)  # in a worker process, the policies that the program registered are not registered yet
    return policy_for(policy.name, params, problem, horizon, seed)


def policy_for(
    name: str, params: dict[str, Any], problem: AbstractProblem, horizon: int, seed: np.random.SeedSequence
) -> Policy:
    """Make the policy of that name for this problem, with all arguments that the problem determines."""
    given: dict[str, Any] = {"n_arms": problem.n_arms, "k": problem.k, "direction": problem.direction}
    given |= {"horizon": horizon, "seed": seed}
    if problem.reward_range != (0.0, 1.0):
        given["reward_range"] = problem.reward_range
    if problem.constraints is not None:
        given["constraints"] = problem.constraints
    if problem.empties and policy_named(name).takes_fewest:
        given["fewest"] = problem.k - problem.empties
    if "best" in policy_named(name).needs:
        given["best"] = problem.best
    return make_policy(name, **given | params)


def _by_factory(factory: Factory, problem: AbstractProblem, horizon: int, seed: np.random.SeedSequence) -> Policy:
    del problem, horizon
    return factory(seed)


def instance_of(problem: Instances, seed: np.random.SeedSequence) -> AbstractProblem:
    """Return the problem itself, or the instance made from the seed."""
    if isinstance(problem, AbstractProblem):
        return problem
    made: object = problem.problem(seed) if isinstance(problem, Setting) else problem
    if callable(problem):
        try:
            made = problem(seed)
        except KofnError:
            raise
        except Exception as why:
            raise BadInput(f"{title(problem)}(seed) failed: {type(why).__name__}: {why}") from why
    if not isinstance(made, AbstractProblem):
        raise BadInput(
            f"a problem must be a Problem, a Setting, or a function that makes one from a seed; got {made!r}"
        )
    return made


def title(problem: Instances) -> str:
    """Return the name of a problem in tables and files."""
    if isinstance(problem, Setting):
        return problem.name
    return repr(problem) if isinstance(problem, AbstractProblem) else getattr(problem, "__name__", "problem")
