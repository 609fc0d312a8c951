"""The loop: a policy plays a problem. Its cost grows with the number of plans, not of plays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kofn.backends import Backend, Progress, gathered
from kofn.core import BadInput, Policy, Seed, Subset, generator, whole
from kofn.core.checks import check_horizon
from kofn.curves import Curve
from kofn.problems import Problem

__all__ = ["Run", "simulate", "simulate_many"]


@dataclass(frozen=True, eq=False)
class Run:
    """One policy on one problem for one horizon with one seed."""

    policy: str
    horizon: int
    final: Subset
    optimal: bool
    decisions: int
    exploration: int
    curve: Curve
    realised: Curve | None = None

    @property
    def regret(self) -> float:
        """The expected regret of the whole run: gaps times plays."""
        return self.curve.final

    def regret_at(self, plays: float) -> float:
        """The expected regret after so many plays."""
        return float(self.curve.at(plays))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; the curve only by its end."""
        return {
            "policy": self.policy,
            "horizon": self.horizon,
            "final": list(self.final),
            "optimal": self.optimal,
            "decisions": self.decisions,
            "exploration": self.exploration,
            "regret": self.regret,
            "realised_regret": None if self.realised is None else self.realised.final,
        }


class RunSeeds(NamedTuple):
    """The seeds of one run, one for each source of randomness."""

    problem: np.random.SeedSequence
    policy: np.random.SeedSequence
    plays: np.random.SeedSequence


def run_seeds(seed: int, run: int) -> RunSeeds:
    """Return the seeds of run number `run`: the same for every policy, and independent of how many runs there are.

    Comparisons, the suite, the paper's figures, `simulate_many` and `kofn run` all take their seeds from here, so that
    any run can be repeated alone.
    """
    return RunSeeds(*np.random.SeedSequence(seed, spawn_key=(run,)).spawn(3))


def simulate(
    policy: Policy,
    problem: Problem,
    horizon: int,
    seed: Seed = None,
    *,
    realised: bool = False,
    delay: int = 0,
    progress: Progress | None = None,
) -> Run:
    """Let the policy play the problem for `horizon` plays.

    `decisions` counts the rows of all plans played, `exploration` the plays until the policy committed itself. The
    paper's realised regret (what the best subset would have earned, minus what was earned) needs more draws, and is
    there when `realised=True`. With a `delay`, plays are asked for one by one, and each reward is told only after so
    many more plays.

    >>> from kofn import Bernoulli, CMABSM
    >>> problem = Problem(Bernoulli([0.9, 0.8, 0.2, 0.1]), "maximum", k=2)
    >>> run = simulate(CMABSM(4, 2, horizon=10**6), problem, 10**6, seed=1)
    >>> run.final, run.optimal
    ((0, 1), True)
    """
    horizon = check_horizon(horizon)
    _check_fit(policy, problem)
    rng = generator(seed)
    if delay := whole("delay", delay, least=0):
        if realised or policy.needs:
            raise BadInput("with a delay there is no realised regret, and a policy may need nothing but rewards")
        return _late(policy, problem, horizon, rng, delay, progress)
    for_best = rng.spawn(1)[0] if realised else rng  # of its own, so that the plays are the same with and without
    plays, regret, earned, decisions, exploration = [0], [0.0], [0.0], 0, None
    while (t := plays[-1]) < horizon:
        if policy.committed and exploration is None:
            exploration = t
        if policy.committed and not realised:  # nothing more is learned: what remains is arithmetic
            final = np.array([policy.best()])
            decisions += 1
            plays.append(horizon)
            regret.append(regret[-1] + float(problem.gap(final)[0]) * (horizon - t))
            if progress:
                progress(horizon, horizon)
            break
        plan = policy.plan().part(horizon - t, rng)
        tally = problem.play(plan.subsets, plan.times, rng, arms="arms" in policy.needs)
        policy.tell_plan(tally)
        n = plan.plays
        decisions += int(np.count_nonzero(plan.times))
        plays.append(t + n)
        regret.append(regret[-1] + float(problem.gap(plan.subsets) @ plan.times))
        if realised:
            earned.append(earned[-1] + _lost(problem, n, float(tally.total.sum()), for_best))
        if progress:
            progress(plays[-1], horizon)
    at = np.array(plays, float)
    paid = Curve(at, np.array(earned)) if realised else None
    return _ended(policy, problem, horizon, decisions, exploration, Curve(at, np.array(regret)), paid)


def _ended(
    policy: Policy,
    problem: Problem,
    horizon: int,
    decisions: int,
    exploration: int | None,
    curve: Curve,
    realised: Curve | None = None,
) -> Run:
    best = policy.best()
    return Run(
        policy=policy.name,
        horizon=horizon,
        final=best,
        optimal=bool(problem.gap(np.array([best]))[0] <= 1e-12),
        decisions=decisions,
        exploration=horizon if exploration is None else exploration,
        curve=curve,
        realised=realised,
    )


def _late(
    policy: Policy, problem: Problem, horizon: int, rng: np.random.Generator, delay: int, progress: Progress | None
) -> Run:
    """The run in which the reward of each play comes when `delay` more have been asked for."""
    plays, regret, exploration = [0], [0.0], None
    flying: list[tuple[Subset, float]] = []
    gaps: dict[Subset, float] = {}
    while (t := plays[-1]) < horizon:
        asked: list[Subset] = []
        for number in range(min(delay, horizon - t)):
            if policy.committed and exploration is None:
                exploration = t + number
            asked.append(policy.ask())
            if number < len(flying):
                policy.tell(*flying[number])
        rows = np.array(asked)
        earned = problem.play(rows, np.ones(len(rows), np.int64), rng).total.tolist()
        flying = list(zip(asked, earned, strict=True))
        new = sorted({*asked} - gaps.keys())
        gaps.update(zip(new, problem.gap(np.array(new)).tolist() if new else [], strict=True))
        plays.append(t + len(asked))
        regret.append(regret[-1] + sum(map(gaps.__getitem__, asked)))
        if progress:
            progress(plays[-1], horizon)
    return _ended(policy, problem, horizon, horizon, exploration, Curve(np.array(plays, float), np.array(regret)))


def simulate_many(
    policy: Callable[[np.random.SeedSequence], Policy],
    problem: Problem | Callable[[np.random.SeedSequence], Problem],
    horizon: int,
    runs: int,
    seed: int = 0,
    *,
    realised: bool = False,
    backend: Backend = "local",
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Run]:
    """Many runs over all cores; each has its own seeds, so that the result is the same on any number of workers.

    `policy` makes the policy of a run from a seed; `problem` is one problem for all runs, or makes one for each. With
    `backend="dask:ADDRESS"` the runs are done by the workers of a cluster.
    """
    runs = whole("runs", runs)
    if isinstance(policy, Policy) or not callable(policy):
        raise BadInput(f"policy must make a policy from a seed, as lambda seed: CMABSM(24, 5, 10**6), not {policy!r}")
    seed = whole("seed", seed, least=0)
    tasks = [(policy, problem, horizon, run_seeds(seed, run), realised) for run in range(runs)]
    return gathered(_one, tasks, backend=backend, workers=workers, progress=progress)


def _one(
    policy: Callable[[np.random.SeedSequence], Policy],
    problem: Problem | Callable[[np.random.SeedSequence], Problem],
    horizon: int,
    seeds: RunSeeds,
    realised: bool,
) -> Run:
    made = problem(seeds.problem) if callable(problem) else problem
    return simulate(policy(seeds.policy), made, horizon, np.random.default_rng(seeds.plays), realised=realised)


def _lost(problem: Problem, plays: int, earned: float, rng: np.random.Generator) -> float:
    """What `plays` plays of the best subset would have earned, minus `earned`; the other way round to minimise."""
    best = problem.play(np.array([problem.best]), np.array([plays]), rng)
    lost = float(best.total[0]) - earned
    return lost if problem.direction == "maximize" else -lost


def _check_fit(policy: Policy, problem: Problem) -> None:
    if not isinstance(policy, Policy):
        raise BadInput(f"policy must be a Policy, for instance kofn.CMABSM(24, 5, horizon=10**6), not {policy!r}")
    if not isinstance(problem, Problem):
        raise BadInput(f"problem must be a Problem, for instance Problem(Bernoulli(p), 'maximum', 5), not {problem!r}")
    for what in ("n_arms", "k", "direction"):
        ours, theirs = getattr(policy, what), getattr(problem, what)
        if ours != theirs:
            raise BadInput(f"the policy has {what}={ours!r}, but the problem has {what}={theirs!r}: make them equal")
    if "fewer" in policy.needs - problem.offers:
        raise BadInput(
            f"{policy.name} plays fewer than K arms, and this problem does not say what these earn: say what an empty "
            f"place pays, for instance Problem(..., absent=0.0)"
        )
    if missing := policy.needs - problem.offers:
        raise BadInput(f"{policy.name} needs {', '.join(sorted(missing))}, which this problem does not offer")
    if policy.plays:
        raise BadInput(f"the policy has been told of plays before ({policy.plays:,}): simulate a new one")
