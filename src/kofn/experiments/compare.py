"""Any policies on any problem, under one protocol: the same instances, the same seeds, one table."""

from __future__ import annotations

import csv
import io
import json
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from kofn.core import BadInput, KofnError, MissingExtra, Policy, ShortHorizonWarning, whole
from kofn.experiments.settings import Setting
from kofn.policies import make_policy, policy_named, register
from kofn.problems import Problem
from kofn.regret import Band
from kofn.simulation import Progress, Run, simulate, spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Comparison", "Standing", "compare"]

Factory: TypeAlias = Callable[[np.random.SeedSequence], Policy]
Instances: TypeAlias = Problem | Setting | Callable[[np.random.SeedSequence], Problem]
Contenders: TypeAlias = Sequence[str] | Mapping[str, str | tuple[str, Mapping[str, Any]] | Factory]


@dataclass(frozen=True, eq=False)
class Trial:
    """One run, and what it took."""

    run: Run
    seconds: float
    state_bytes: int


@dataclass(frozen=True, eq=False)
class Standing:
    """One policy's runs. A `reference` sees more than one number per play: it is shown, and never ranked."""

    name: str
    policy: str
    reference: bool
    trials: tuple[Trial, ...]

    @cached_property
    def band(self) -> Band:
        """The mean curve and its band."""
        return Band.over([trial.run.curve for trial in self.trials])

    @cached_property
    def finals(self) -> Any:
        """The regret of each run at the end."""
        return np.array([trial.run.regret for trial in self.trials])

    def to_dict(self) -> dict[str, Any]:
        """The row of the table, as plain values."""
        return {
            "name": self.name,
            "policy": self.policy,
            "reference": self.reference,
            "regret": float(self.finals.mean()),
            "low": max(0.0, float(self.band.low[-1])),
            "high": float(self.band.high[-1]),
            "worst": float(self.finals.max()),
            "found_best": float(np.mean([trial.run.optimal for trial in self.trials])),
            "decisions": float(np.mean([trial.run.decisions for trial in self.trials])),
            "seconds": float(np.mean([trial.seconds for trial in self.trials])),
            "state_bytes": max(trial.state_bytes for trial in self.trials),
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `compare` found: prints itself, plots itself, and is rows of plain values to everything else."""

    problem: str
    horizon: int
    runs: int
    seed: int
    standings: tuple[Standing, ...]
    skipped: dict[str, str]

    @property
    def ranked(self) -> list[Standing]:
        """The policies by mean regret, lowest first; references after them."""
        return sorted(self.standings, key=lambda each: (each.reference, float(each.finals.mean())))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row per policy, in that order."""
        return [standing.to_dict() for standing in self.ranked]

    def __str__(self) -> str:
        head = f"{self.problem}: regret after {self.horizon:,} plays, {self.runs} runs\n"
        names = ("policy", "regret", "95 % low", "high", "worst run", "found best", "decisions", "s per run", "state")
        lines = [names, *map(cells, self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
        body = "\n".join(
            "  ".join(
                cell.ljust(width) if column == 0 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )
        left_out = "".join(f"\nleft out: {name}: {why}" for name, why in self.skipped.items())
        return head + body + left_out

    def plot(self) -> Figure:
        """The mean curves with their bands."""
        from kofn.plots import draw_comparison

        return draw_comparison(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "problem": self.problem,
            "horizon": self.horizon,
            "runs": self.runs,
            "seed": self.seed,
            "rows": self.rows,
            "curves": {standing.name: standing.band.to_dict() for standing in self.ranked},
            "skipped": self.skipped,
        }

    def to_csv(self) -> str:
        """The table as comma-separated values."""
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(self.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame."""
        try:
            import pandas as pd  # type: ignore[import-untyped,unused-ignore]
        except ImportError as missing:
            raise MissingExtra("pandas", "pandas") from missing
        return pd.DataFrame(self.rows)


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A row as it is printed."""
    return (
        row["name"] + (" (sees arms)" if row["reference"] else ""),
        f"{row['regret']:,.0f}",
        f"{row['low']:,.0f}",
        f"{row['high']:,.0f}",
        f"{row['worst']:,.0f}",
        f"{row['found_best']:.0%}",
        f"{row['decisions']:,.0f}",
        f"{row['seconds']:.3f}",
        f"{row['state_bytes']:,} B",
    )


def compare(
    policies: Contenders,
    problem: Instances,
    horizon: int = 10**6,
    runs: int = 30,
    seed: int = 2021,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    skip: bool = False,
) -> Comparison:
    """Let every policy play the same runs.

    `policies` are names, or a mapping from a label to a name, to `(name, parameters)`, or to a function that makes a
    policy from a seed. `problem` is one problem, a `Setting`, or a function that makes a problem from a seed, for a
    fresh one in each run. A policy that cannot play the problem is an error, or with `skip=True` left out and said so.

    >>> from kofn import Bernoulli
    >>> problem = Problem(Bernoulli([0.9, 0.8, 0.3, 0.2]), "mean", k=2)
    >>> result = compare(["uniform", "dart"], problem, horizon=10_000, runs=2, workers=1)
    >>> [standing.name for standing in result.ranked]
    ['dart', 'uniform']
    """
    runs, horizon = whole("runs", runs), whole("horizon", horizon)
    seeds = np.random.SeedSequence(whole("seed", seed, least=0)).spawn(runs)
    makers = _contenders(policies)
    first, played, skipped = _instance(problem, _parts(seeds[0])[0]), {}, {}
    for name, make in makers.items():
        try:
            played[name] = type(_first(make, first, horizon, _parts(seeds[0])[1]))
        except KofnError as why:
            if not skip:
                raise
            skipped[name] = str(why)
    if not played:
        raise BadInput(f"no policy can play this problem: {skipped or 'none was named'}")
    tasks = [(makers[name], problem, horizon, each, run == 0) for name in played for run, each in enumerate(seeds)]
    trials = list(spread(_trial, tasks, workers=workers, progress=progress))
    standings = [
        Standing(name, policy.name, "arms" in policy.needs, tuple(trials[i * runs : (i + 1) * runs]))
        for i, (name, policy) in enumerate(played.items())
    ]
    return Comparison(_title(problem), horizon, runs, seed, tuple(standings), skipped)


Maker: TypeAlias = Callable[[Problem, int, np.random.SeedSequence], Policy]


def _contenders(policies: Contenders) -> dict[str, Maker]:
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
    policy: type[Policy], params: dict[str, Any], problem: Problem, horizon: int, seed: np.random.SeedSequence
) -> Policy:
    register(policy)  # a worker does not know yet what a program has registered
    return policy_for(policy.name, params, problem, horizon, seed)


def policy_for(
    name: str, params: dict[str, Any], problem: Problem, horizon: int, seed: np.random.SeedSequence
) -> Policy:
    """The policy of that name for this problem, told what it needs to be told."""
    told: dict[str, Any] = {"n_arms": problem.n_arms, "k": problem.k, "direction": problem.direction}
    told |= {"horizon": horizon, "seed": seed}
    if problem.reward_range != (0.0, 1.0):
        told["reward_range"] = problem.reward_range
    if "best" in policy_named(name).needs:
        told["best"] = problem.best
    return make_policy(name, **told | params)


def _by_factory(factory: Factory, problem: Problem, horizon: int, seed: np.random.SeedSequence) -> Policy:
    del problem, horizon
    return factory(seed)


def _instance(problem: Instances, seed: np.random.SeedSequence) -> Problem:
    if isinstance(problem, Problem):
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
            raise BadInput(f"{_title(problem)}(seed) makes no problem: {type(why).__name__}: {why}") from why
    if not isinstance(made, Problem):
        raise BadInput(f"a problem is a Problem, a Setting, or a function that makes one from a seed, not {made!r}")
    return made


def _parts(seed: np.random.SeedSequence) -> list[np.random.SeedSequence]:
    """The seeds of a run's problem, policy and plays: the same however often they are asked for."""
    return np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key).spawn(3)


def _first(make: Maker, instance: Problem, horizon: int, seed: np.random.SeedSequence) -> Policy:
    """Make the policy and let it play its first plan, in part: what cannot work is found out before anything runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortHorizonWarning)
        policy = make(instance, horizon, seed)
    simulate(policy, instance, min(2, horizon), seed=0)
    return policy


def _trial(make: Maker, problem: Instances, horizon: int, seed: np.random.SeedSequence, measured: bool) -> Trial:
    for_problem, for_policy, for_plays = _parts(seed)
    instance = _instance(problem, for_problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortHorizonWarning)
        policy = make(instance, horizon, for_policy)
    _ = instance.optimum  # worked out once for all policies, not on the first one's clock
    start = time.perf_counter()
    run = simulate(policy, instance, horizon, np.random.default_rng(for_plays))
    seconds = time.perf_counter() - start
    return Trial(run, seconds, len(json.dumps(policy.state())) if measured else 0)


def _title(problem: Instances) -> str:
    if isinstance(problem, Setting):
        return problem.name
    return repr(problem) if isinstance(problem, Problem) else getattr(problem, "__name__", "problem")
