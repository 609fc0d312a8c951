"""Forecasts: how many days a campaign takes until it is ready, from simulations of the default policy.

The simulated problems come from `kofn.lab.forecast_world`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from kofn.backends import Backend, Progress, compute
from kofn.campaigns.evidence import Look, Stop
from kofn.core import FloatArray, check_sizes, whole
from kofn.lab.forecast_world import World, positive
from kofn.lab.simulation import RunSeeds, run_seeds
from kofn.policies.thompson import Thompson

__all__ = ["Forecast", "forecast"]

POINTS = 40
"""Points of the curve of losses over days. Higher: a finer picture."""

NORMAL_95 = 1.96


class CurvePoint(NamedTuple):
    """The mean over runs after this number of days: the true loss of shipping then, and its estimated limit.

    A run that is ready keeps the subset that it ships.
    """

    day: float
    true_loss: float
    loss_high: float


@dataclass(frozen=True)
class Forecast:
    """What to expect of a campaign: days until it is ready, the true loss then, and the lift on the way.

    `days_10`, `days_50` and `days_90` are the days after which 10, 50 and 90 % of the runs are ready, None if fewer are
    ready within `days`, and `ready` is the part that is. `true_loss` is the mean loss per play of what these runs ship,
    with the half-width of its 95 % interval. `lift_shipped` is the mean lift of the best subset over `base` when a run
    is ready, or else after `days`. `lift_on_the_way` is the mean lift of all plays until then. `curve` has the losses.
    """

    n_arms: int
    k: int
    base: float
    lift: float
    per_day: int
    loss: float
    sd: float | None
    days: int
    runs: int
    seed: int
    ready: float
    days_10: float | None
    days_50: float | None
    days_90: float | None
    true_loss: float | None
    true_loss_error: float | None
    lift_shipped: float
    lift_on_the_way: float
    curve: tuple[CurvePoint, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {**asdict(self), "curve": [point._asdict() for point in self.curve], "message": self.message}

    def quantiles(self) -> dict[str, float | None]:
        """Return the days after which parts of the runs are ready."""
        return {"10 %": self.days_10, "50 %": self.days_50, "90 %": self.days_90}

    @property
    def message(self) -> str:
        """What to expect, in one or two sentences."""
        then = (
            f"The best subset is then {self.lift_shipped:+.1%} against {self.base:g} on average, and the plays until "
            f"then are {self.lift_on_the_way:+.1%}."
        )
        if self.days_50 is None:
            share = f"only {self.ready:.0%} of the simulated campaigns are" if self.ready else "no campaign is"
            high = self.curve[-1].loss_high
            return (
                f"After {self.days:,} days, {share} ready: the limit of the loss per play is {high:.2g} on average, "
                f"not {self.loss:.2g}. {then} Allow a higher loss, use fewer arms, or get more plays per day."
            )
        last = f"{_days(self.days_90)}" if self.days_90 is not None else f"more than {self.days:,}"
        first = _days(self.days_10 if self.days_10 is not None else self.days_50)
        return (
            f"Ready after about {_days(self.days_50)} days (80 % of the simulated campaigns: {first} to {last}). {then}"
        )


def forecast(
    n_arms: int,
    k: int,
    *,
    base: float,
    lift: float,
    per_day: int,
    loss: float | None = None,
    sd: float | None = None,
    days: int = 365,
    runs: int = 40,
    seed: int = 2021,
    backend: Backend = "local",
    workers: int | None = None,
    progress: Progress | None = None,
) -> Forecast:
    """Return how many days a campaign takes until it is ready, from simulations with the default policy.

    `base` is the mean reward of the present subset, and `lift` how much better the best subset is, as a part of it. A
    reward is a click, 0 or 1; with `sd`, it is an amount with that standard deviation. The campaign is ready if the
    loss per play is below `loss`, by default 1 % of `base` (`kofn.campaigns.evidence.Stop`). Given a seed, the result
    is the same on any number of workers.

    >>> found = forecast(10, 2, base=0.2, lift=0.5, per_day=5_000, loss=0.02, runs=2, seed=1, workers=1)
    >>> found.ready
    1.0
    """
    world = World(*check_sizes(n_arms, k), base, lift, sd)
    per_day, days, runs = whole("per_day", per_day), whole("days", days), whole("runs", runs)
    loss = 0.01 * world.base if loss is None else positive("loss", loss)
    marks = np.geomspace(min(10 * n_arms, per_day), per_day * days, POINTS)
    seed = whole("seed", seed, least=0)
    tasks = [(world, Stop(loss=loss), marks, run_seeds(seed, run)) for run in range(runs)]
    found: list[_Run] = compute(_simulate, tasks, backend=backend, workers=workers, progress=progress)
    ended = [run for run in found if run.ready]
    losses = [world.most - run.shipped for run in ended]
    error = NORMAL_95 * float(np.std(losses, ddof=1)) / math.sqrt(len(losses)) if len(losses) > 1 else None
    true_loss, loss_high = (np.mean([getattr(run, name) for run in found], axis=0) for name in ("losses", "highs"))
    return Forecast(
        n_arms=world.n_arms,
        k=world.k,
        base=world.base,
        lift=world.lift,
        per_day=per_day,
        loss=loss,
        sd=sd,
        days=days,
        runs=runs,
        seed=seed,
        ready=len(ended) / runs,
        days_10=_quantile(found, 0.1, per_day),
        days_50=_quantile(found, 0.5, per_day),
        days_90=_quantile(found, 0.9, per_day),
        true_loss=float(np.mean(losses)) if losses else None,
        true_loss_error=error,
        lift_shipped=float(np.mean([run.shipped for run in found])) / world.base - 1,
        lift_on_the_way=float(np.mean([run.earned for run in found])) / world.base - 1,
        curve=tuple(CurvePoint(*each) for each in np.stack([marks / per_day, true_loss, loss_high], axis=1).tolist()),
    )


def _quantile(runs: Iterable[_Run], part: float, per_day: int) -> float | None:
    plays = sorted(run.plays if run.ready else math.inf for run in runs)
    value = plays[max(0, math.ceil(part * len(plays)) - 1)]
    return None if math.isinf(value) else value / per_day


def _days(days: float) -> str:
    return f"{days:,.0f}" if days >= 9.5 else f"{days:.2g}"


class _Run(NamedTuple):
    """One simulated campaign."""

    ready: bool
    plays: int  # until it was ready, or all
    shipped: float  # the mean reward of the best subset then
    earned: float  # the mean reward of all plays until then
    losses: FloatArray  # the true loss after the plan that ends at or after each mark
    highs: FloatArray  # its limit


def _simulate(world: World, stop: Stop, marks: FloatArray, seeds: RunSeeds) -> _Run:
    """Simulate one campaign until it is ready, or up to the last mark."""
    problem, rng = world.problem(seeds.problem), np.random.default_rng(seeds.plays)
    policy = Thompson(world.n_arms, world.k, reward_range=problem.reward_range, seed=seeds.policy)
    look = Look(0, None, None, False, "")
    most, earned, trace = int(marks[-1]), 0.0, []
    while policy.plays < most and not look.ready:
        plan = policy.plan().part(most - policy.plays, rng)
        policy.tell_plan(problem.play(plan.subsets, plan.times, rng))
        earned += float(problem.value(plan.subsets) @ plan.times)
        look = stop.look(policy.insight(), policy.plays, look)
        value = float(problem.value([policy.best()])[0])
        trace.append((policy.plays, problem.optimum - value, world.most if look.bound is None else look.bound))
    plays, losses, highs = np.array(trace).T
    at = np.minimum(np.searchsorted(plays, marks), len(plays) - 1)  # what is shipped stays
    return _Run(look.ready, policy.plays, value, earned / policy.plays, losses[at], highs[at])
