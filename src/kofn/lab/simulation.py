"""The simulation loop: a policy plays a problem. Its cost grows with the number of plan rows, not of plays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from kofn.backends import Backend, Progress, compute
from kofn.core import BadInput, IntArray, Policy, Seed, Subset, generator, whole
from kofn.core.checks import check_horizon
from kofn.core.contexts import key_of
from kofn.core.threads import ONE_THREAD
from kofn.lab.arrivals import Played, Visitors
from kofn.lab.curves import Curve
from kofn.lab.problems import AbstractProblem, ContextualProblem
from kofn.lab.problems.contextual import Segment, segments_of
from kofn.lab.problems.duration import warn_of_long_work

__all__ = ["Run", "run_seeds", "simulate", "simulate_many"]


@dataclass(frozen=True, eq=False)
class Run:
    """One policy on one problem for one horizon with one seed.

    `final` is the policy's best subset. With a policy that takes a context, it is the best subset for all, and
    `by_segment` has the best subset of each segment of the problem, by the segment's key.
    """

    policy: str
    horizon: int
    final: Subset
    optimal: bool
    plan_rows: int
    exploration: int
    curve: Curve
    realised: Curve | None = None
    by_segment: Mapping[str, Subset] = field(default_factory=dict)

    @property
    def regret(self) -> float:
        """The expected regret of the whole run: gaps times plays."""
        return self.curve.final

    def regret_at(self, plays: float) -> float:
        """Return the expected regret after the given number of plays."""
        return float(self.curve.at(plays))

    def final_gap(self, problem: AbstractProblem) -> float:
        """Return the expected reward that a play of what was found loses: of the final subset, or of each segment's."""
        if not self.by_segment:
            return float(problem.gap([self.final])[0])
        assert isinstance(problem, ContextualProblem)
        gaps = [
            float(segment.problem.gap([self.by_segment[key_of(segment.context)]])[0]) for segment in problem.segments
        ]
        return float(problem.shares @ gaps)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; of the curve, only its end."""
        found = {"by_segment": {key: list(best) for key, best in self.by_segment.items()}} if self.by_segment else {}
        return found | {
            "policy": self.policy,
            "horizon": self.horizon,
            "final": list(self.final),
            "optimal": self.optimal,
            "plan_rows": self.plan_rows,
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
    """Return the seeds of run number `run`: the same for every policy and for any number of runs.

    Comparisons, the suite, the paper's figures, `simulate_many` and `kofn run` all take their seeds from here, so any
    run can be repeated alone.
    """
    return RunSeeds(*np.random.SeedSequence(seed, spawn_key=(run,)).spawn(3))


@ONE_THREAD
def simulate(
    policy: Policy,
    problem: AbstractProblem,
    horizon: int,
    seed: Seed = None,
    *,
    realised: bool = False,
    delay: int = 0,
    progress: Progress | None = None,
) -> Run:
    """Let the policy play the problem for `horizon` plays.

    In the result, `plan_rows` counts the rows of all plans played, and `exploration` the plays until the policy
    committed. `realised=True` adds the paper's realised regret: what the best subset would have earned, both drawn,
    minus what was earned. With a `delay`, subsets are asked for one by one, and the policy observes each reward
    after `delay` more plays. A policy that takes a context is played by visitors of the problem's segments, who come at
    random by their shares; each takes a planned play of their segment, or a filler if none remains.

    >>> from kofn import Bernoulli, CMABSM, Problem
    >>> problem = Problem(Bernoulli([0.9, 0.8, 0.2, 0.1]), "maximum", k=2)
    >>> run = simulate(CMABSM(4, 2, horizon=10**6), problem, 10**6, seed=1)
    >>> run.final, run.optimal
    ((0, 1), True)
    """
    horizon = check_horizon(horizon)
    _check_fit(policy, problem)
    warn_of_long_work("this simulation", problem, horizon, "use a shorter horizon")
    rng = generator(seed)
    if delay := whole("delay", delay, least=0):
        if realised or policy.needs - {"fewer"}:
            raise BadInput("with a delay, realised must be False and the policy must need nothing but rewards")
        return _simulate_delayed(policy, problem, horizon, rng, delay, progress)
    for_best = rng.spawn(1)[0] if realised else rng  # a separate stream: plays are the same with and without it
    plays, regret, earned, plan_rows, exploration = [0], [0.0], [0.0], 0, None
    regret_of = problem.regret_meter()
    arrivals = Visitors(policy, problem) if policy.takes_context else None
    while (t := plays[-1]) < horizon:
        if policy.committed and exploration is None:
            exploration = t
        if policy.committed and not realised:  # nothing more is learned: the rest is arithmetic
            final = np.array([policy.best()])
            plan_rows += 1
            plays.append(horizon)
            regret.append(regret[-1] + regret_of(final, np.array([horizon - t])))
            if progress:
                progress(horizon, horizon)
            break
        if arrivals is not None:
            played = arrivals.play(horizon - t, rng)
        else:
            plan = policy.plan().part(horizon - t, rng)
            tally = problem.play(plan.subsets, plan.times, rng, arms="arms" in policy.needs)
            policy.tell_plan(tally)
            rows, lost = int(np.count_nonzero(plan.times)), regret_of(plan.subsets, plan.times)
            played = Played(plan.plays, rows, lost, float(tally.total.sum()))
        plan_rows += played.rows
        plays.append(t + played.plays)
        regret.append(regret[-1] + played.regret)
        if realised:
            earned.append(earned[-1] + _realised_loss(problem, played.plays, played.earned, for_best))
        if progress:
            progress(plays[-1], horizon)
    at = np.array(plays, float)
    paid = Curve(at, np.array(earned)) if realised else None
    return _finished_run(policy, problem, horizon, plan_rows, exploration, Curve(at, np.array(regret)), paid)


def _finished_run(
    policy: Policy,
    problem: AbstractProblem,
    horizon: int,
    plan_rows: int,
    exploration: int | None,
    curve: Curve,
    realised: Curve | None = None,
) -> Run:
    run = Run(
        policy=policy.name,
        horizon=horizon,
        final=policy.best(),
        optimal=False,
        plan_rows=plan_rows,
        exploration=horizon if exploration is None else exploration,
        curve=curve,
        realised=realised,
        by_segment=_best_by_segment(policy, problem),
    )
    return replace(run, optimal=run.final_gap(problem) <= 1e-12)


def _best_by_segment(policy: Policy, problem: AbstractProblem) -> dict[str, Subset]:
    if not (policy.takes_context and isinstance(problem, ContextualProblem)):
        return {}
    return {key_of(each): policy.best(each) for each in problem.contexts}  # type: ignore[call-arg]


def _simulate_delayed(
    policy: Policy,
    problem: AbstractProblem,
    horizon: int,
    rng: np.random.Generator,
    delay: int,
    progress: Progress | None,
) -> Run:
    """Simulate with delayed rewards: the policy observes each after `delay` more plays."""
    plays, regret, exploration = [0], [0.0], None
    in_flight: list[tuple[Subset, float, Mapping[str, str] | None]] = []
    segments = segments_of(problem) if policy.takes_context else (Segment({}, 1.0, problem),)
    contexts = [segment.context if policy.takes_context else None for segment in segments]
    gaps: list[dict[Subset, float]] = [{} for _ in segments]
    while (t := plays[-1]) < horizon:
        count = min(delay, horizon - t)
        who = _arrive(segments, count, rng)
        asked: list[Subset] = []
        for number, visitor in enumerate(who.tolist()):
            if policy.committed and exploration is None:
                exploration = t + number
            asked.append(policy.ask(contexts[visitor]))
            if number < len(in_flight):
                subset, reward, context = in_flight[number]
                policy.tell(subset, reward, context=context)
        earned = np.zeros(count)
        for visitor in np.unique(who).tolist():
            some, of = np.flatnonzero(who == visitor), segments[visitor].problem
            earned[some] = of.play([asked[number] for number in some.tolist()], np.ones(len(some), np.int64), rng).total
            new = sorted({asked[number] for number in some.tolist()} - gaps[visitor].keys())
            gaps[visitor].update(zip(new, of.gap(new).tolist() if new else [], strict=True))
        visitors = who.tolist()
        in_flight = list(zip(asked, earned.tolist(), map(contexts.__getitem__, visitors), strict=True))
        plays.append(t + count)
        regret.append(regret[-1] + sum(gaps[visitor][subset] for visitor, subset in zip(visitors, asked, strict=True)))
        if progress:
            progress(plays[-1], horizon)
    curve = Curve(np.array(plays, float), np.array(regret))
    return _finished_run(policy, problem, horizon, horizon, exploration, curve)


def _arrive(segments: Sequence[Segment], count: int, rng: np.random.Generator) -> IntArray:
    """Return the numbers of the segments of visitors who come one by one."""
    if len(segments) == 1:
        return np.zeros(count, np.int64)
    return rng.choice(len(segments), count, p=[segment.share for segment in segments])


def simulate_many(
    policy: Callable[[np.random.SeedSequence], Policy],
    problem: AbstractProblem | Callable[[np.random.SeedSequence], AbstractProblem],
    horizon: int,
    runs: int,
    seed: int = 0,
    *,
    realised: bool = False,
    backend: Backend = "local",
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Run]:
    """Simulate many runs in parallel. Each run has its own seeds, so results do not depend on the number of workers.

    `policy` is a function that makes the policy of a run from a seed. `problem` is one problem for all runs, or a
    function that makes one for each run. With `backend="dask:ADDRESS"` the workers of a cluster compute the runs.
    """
    runs = whole("runs", runs)
    if isinstance(policy, Policy) or not callable(policy):
        raise BadInput(f"policy must be a function of a seed, as lambda seed: CMABSM(24, 5, 10**6), not {policy!r}")
    seed = whole("seed", seed, least=0)
    tasks = [(policy, problem, horizon, run_seeds(seed, run), realised) for run in range(runs)]
    return compute(_simulate_one, tasks, backend=backend, workers=workers, progress=progress)


def _simulate_one(
    policy: Callable[[np.random.SeedSequence], Policy],
    problem: AbstractProblem | Callable[[np.random.SeedSequence], AbstractProblem],
    horizon: int,
    seeds: RunSeeds,
    realised: bool,
) -> Run:
    made = problem(seeds.problem) if callable(problem) else problem
    return simulate(policy(seeds.policy), made, horizon, np.random.default_rng(seeds.plays), realised=realised)


def _realised_loss(problem: AbstractProblem, plays: int, earned: float, rng: np.random.Generator) -> float:
    """Return what `plays` plays of the best subset earn, drawn, minus `earned`; negated to minimise."""
    lost = problem.play_best(plays, rng) - earned
    return lost if problem.direction == "maximize" else -lost


def _check_fit(policy: Policy, problem: AbstractProblem) -> None:
    if not isinstance(policy, Policy):
        raise BadInput(f"policy must be a Policy, for instance kofn.CMABSM(24, 5, horizon=10**6), not {policy!r}")
    if not isinstance(problem, AbstractProblem):
        raise BadInput(f"problem must be a problem, for instance Problem(Bernoulli(p), 'maximum', 5), not {problem!r}")
    for what in ("n_arms", "k", "direction"):
        ours, theirs = getattr(policy, what), getattr(problem, what)
        if ours != theirs:
            raise BadInput(f"the policy has {what}={ours!r}, but the problem has {what}={theirs!r}: make them equal")
    if "fewer" in policy.needs - problem.offers:
        raise BadInput(
            f"{policy.name} plays fewer than K arms, and this problem does not define what they earn: give what an "
            f"empty place pays, for instance Problem(..., absent=0.0)"
        )
    if missing := policy.needs - problem.offers:
        raise BadInput(f"{policy.name} needs {', '.join(sorted(missing))}, which this problem does not provide")
    if policy.plays:
        raise BadInput(f"the policy has already observed {policy.plays:,} plays: simulate a new one")
