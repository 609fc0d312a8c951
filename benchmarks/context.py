"""Make the tables of docs/background/context.md: `python -m benchmarks.context regret` (`--help`).

`regret` compares `contextual-thompson` with one campaign for all and one per segment, on the same instances: its regret
divided by theirs, with 95 % intervals over paired runs. `cost` measures the record and the time per plan as N and the
number of segments grow. `rivals` plays the same visitors, one by one, with the libraries that people would use instead.
`--quick` plays few plays.
"""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import kofn
from benchmarks import context_rivals
from benchmarks.tables import NORMAL_95, interval, line, parser_for, table
from kofn.backends import compute
from kofn.core import FloatArray
from kofn.lab.problems import ContextualProblem, contextual_problem
from kofn.lab.problems.contextual_kinds import KINDS

PROBLEMS = {"max/N12-K3": ("maximum", 12, 3), "mean/N24-K5": ("mean", 24, 5)}


@dataclass(frozen=True)
class Scale:
    """How much is played: the defaults are those of the page, and QUICK is for tests."""

    problems: tuple[str, ...] = tuple(PROBLEMS)
    kinds: tuple[str, ...] = tuple(KINDS)
    segments: tuple[int, ...] = (2, 6, 20, 50)
    ends: tuple[int, ...] = (10**3, 10**4, 10**5)
    sizes: tuple[tuple[int, int, int], ...] = (
        (12, 3, 2),
        (12, 3, 6),
        (12, 3, 20),
        (12, 3, 50),
        (24, 5, 6),
        (48, 5, 6),
    )
    visitors: int = 5_000


QUICK = Scale(("max/N12-K3",), ("alike", "part"), (2,), (100, 300), ((8, 2, 2),), 60)


def instance(name: str, kind: str, segments: int, seed: int, run: int) -> tuple[ContextualProblem, Any, Any]:
    """Return the problem of a run, and the seeds for its policies and its plays."""
    for_problem, for_policy, for_plays = kofn.run_seeds(seed, run)
    reward, n_arms, k = PROBLEMS[name]
    return contextual_problem(kind, segments, n_arms, k, reward, for_problem), for_policy, for_plays


def pooled(problem: ContextualProblem, ends: Sequence[int], for_policy: Any, for_plays: Any) -> FloatArray:
    """Return the regret of contextual-thompson after each number of plays."""
    policy = kofn.ContextualThompson(problem.n_arms, problem.k, seed=for_policy)
    return kofn.simulate(policy, problem, ends[-1], np.random.default_rng(for_plays)).curve.at(np.array(ends))


def one_for_all(problem: ContextualProblem, ends: Sequence[int], for_policy: Any, for_plays: Any) -> FloatArray:
    """Return the regret of thompson, which does not know the context."""
    policy = kofn.Thompson(problem.n_arms, problem.k, seed=for_policy)
    return kofn.simulate(policy, problem, ends[-1], np.random.default_rng(for_plays)).curve.at(np.array(ends))


def separate(problem: ContextualProblem, ends: Sequence[int], for_policy: Any, for_plays: Any) -> FloatArray:
    """Return the regret of one thompson per segment, each of which plays for the visitors of its segment."""
    rng = np.random.default_rng(for_plays)
    arrived = np.cumsum([rng.multinomial(plays, problem.shares) for plays in np.diff([0, *ends])], axis=0)
    lost = np.zeros(len(ends))
    for segment, plays, seed in zip(problem.segments, arrived.T, for_policy.spawn(len(arrived.T)), strict=True):
        if plays[-1]:
            policy = kofn.Thompson(problem.n_arms, problem.k, seed=seed)
            lost += kofn.simulate(policy, segment.problem, int(plays[-1]), rng).curve.at(plays)
    return lost


WAYS = {"contextual": pooled, "one for all": one_for_all, "separate": separate}


def played(name: str, kind: str, segments: int, ends: Sequence[int], seed: int, run: int) -> FloatArray:
    """Return the regret of each way after each number of plays, in one run."""
    problem, for_policy, for_plays = instance(name, kind, segments, seed, run)
    return np.array([way(problem, ends, for_policy, for_plays) for way in WAYS.values()])


def ratio(ours: FloatArray, theirs: FloatArray) -> str:
    """Return the ratio of the mean regrets with the half-width of its 95 % interval, from paired runs."""
    if not theirs.mean():
        return "-"
    found = ours.mean() / theirs.mean()
    deviation = ours - found * theirs
    return f"{found:.2f} ± {NORMAL_95 * deviation.std(ddof=1) / math.sqrt(len(ours)) / theirs.mean():.2f}"


def regret(seed: int, runs: int, scale: Scale, workers: int) -> None:
    """Print the regret of contextual-thompson, and its ratio to that of the other two ways."""
    table("problem", "kind", "segments", "plays", "contextual", "/ one for all", "/ separate")
    for name in scale.problems:
        for kind in scale.kinds:
            for segments in scale.segments:
                tasks = [(name, kind, segments, scale.ends, seed, run) for run in range(runs)]
                found = np.array(compute(played, tasks, workers=workers))
                for number, plays in enumerate(scale.ends):
                    ours, others = found[:, 0, number], found[:, 1:, number].T
                    ratios = (ratio(ours, theirs) for theirs in others)
                    line(name, kind, segments, f"{plays:,}", interval(ours), *ratios)


def cost(seed: int, runs: int, scale: Scale, workers: int) -> None:
    """Print the size of the record and the CPU time of a plan with its update; the median of the runs."""
    del workers
    table(
        "K of N", "segments", "record, bytes", "per arm and segment", "thompson, bytes", "ms per plan", "thompson, ms"
    )
    for n_arms, k, segments in scale.sizes:
        found = np.array([_costs(n_arms, k, segments, scale.ends[-2], seed, run) for run in range(runs)])
        size, plain, took, plainly = np.median(found, axis=0)
        each = f"{size / n_arms / segments:,.0f}"
        line(f"{k} of {n_arms}", segments, f"{size:,.0f}", each, f"{plain:,.0f}", f"{took:.1f}", f"{plainly:.2f}")


def _costs(n_arms: int, k: int, segments: int, plays: int, seed: int, run: int) -> list[float]:
    for_problem, for_policy, for_plays = kofn.run_seeds(seed, run)
    problem = contextual_problem("part", segments, n_arms, k, "mean", for_problem)
    sizes, times = [], []
    for made in (kofn.ContextualThompson, kofn.Thompson):
        policy = made(n_arms, k, seed=for_policy)
        begun = time.process_time()
        kofn.simulate(policy, problem, plays, np.random.default_rng(for_plays))
        times.append(1000 * (time.process_time() - begun) / policy.updates)
        sizes.append(len(json.dumps(kofn.save(policy))))
    return [*sizes, *times]


def rivals(seed: int, runs: int, scale: Scale, workers: int) -> None:
    """Print the regret and the speed of each rival on the same visitors."""
    del workers
    warnings.simplefilter("ignore")  # warnings of the other libraries
    table("kind", "player", "plays", "regret", "contextual after as many", "plays per second")
    for kind in scale.kinds:
        worlds = [_world(kind, scale.visitors, seed, run) for run in range(runs)]
        ours: list[FloatArray] = []
        for player in context_rivals.available():
            lost, seconds = zip(*(context_rivals.play(player, world) for world in worlds), strict=True)
            ours = ours or list(lost)  # contextual-thompson is the first
            plays = min(map(len, lost))
            after = (interval([each[plays - 1] for each in which]) for which in (lost, ours))
            line(kind, player.label, f"{plays:,}", *after, f"{sum(map(len, lost)) / sum(seconds):,.0f}")
    for package, why in context_rivals.left_out().items():
        print(f"skipped: {package} ({why})")


def _world(kind: str, visitors: int, seed: int, run: int) -> context_rivals.World:
    problem, for_policy, for_plays = instance("max/N12-K3", kind, 6, seed, run)
    return context_rivals.World(problem, visitors, for_plays, int(for_policy.generate_state(1)[0]))


TABLES = {"regret": regret, "cost": cost, "rivals": rivals}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one of the tables."""
    parser = parser_for(__doc__, TABLES, seed=2026, runs=20)
    parser.add_argument("--problem", choices=list(PROBLEMS), help="only this problem")
    parser.add_argument("--kind", choices=list(KINDS), action="append", help="only this kind; repeatable")
    parser.add_argument("--segments", type=int, action="append", help="only this number of segments; repeatable")
    parser.add_argument("--horizon", type=float, help="the last number of plays, such as 1e6")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args(arguments)
    scale = QUICK if given.quick else Scale()
    ends = scale.ends
    if given.horizon:
        last = int(given.horizon)
        ends = (*(end for end in (10**3, 10**4, 10**5, 10**6) if end < last), last)
    scale = Scale(
        (given.problem,) if given.problem else scale.problems,
        tuple(given.kind or scale.kinds),
        tuple(given.segments or scale.segments),
        ends,
        scale.sizes,
        scale.visitors,
    )
    TABLES[given.table](given.seed, given.runs, scale, given.workers)


if __name__ == "__main__":
    main()
