"""When the stop rule is ready, and what is lost by then: `python -m benchmarks.stopping --groups suite`.

Each run plays a fresh random instance with the default policy and applies the stop rule after every plan, for several
thresholds at once, each a part of the best subset's reward. It ends when all of them are ready, or after 100,000 plays.
`suite` has the settings of the suite, `base` other families under the paper's assumptions (benchmarks.base_families),
`large` the settings with 1,000 arms, and up to 30,000 plays.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import kofn
from benchmarks.base_families import BASE
from benchmarks.rows import Row, run, seeds_of, with_error
from kofn.campaigns.evidence import Look, Stop
from kofn.lab.problems import AbstractProblem
from kofn.lab.suite import SUITE

Make = Callable[[Any], AbstractProblem]
LARGE = 1_000
GROUPS: dict[str, tuple[int, list[tuple[str, Make]]]] = {
    "suite": (100_000, [(setting.name, setting.problem) for setting in SUITE if setting.n_arms < LARGE]),
    "base": (100_000, [(family.name, family.problem) for family in BASE]),
    "large": (30_000, [(setting.name, setting.problem) for setting in SUITE if setting.n_arms == LARGE]),
}
"""The most plays of a run, and the problems."""
NAMES = tuple(name for _, problems in GROUPS.values() for name, _ in problems)


def stopped(make: Make, parts: Sequence[float], plays: int, seed: int, number: int) -> list[tuple[float, float]]:
    """Return for each threshold the true loss relative to it, and the number of plays; nan if it is not ready."""
    for_problem, for_policy, for_plays = seeds_of(seed, number)
    problem, rng = make(np.random.default_rng(for_problem)), np.random.default_rng(for_plays)
    policy = kofn.Thompson(problem.n_arms, problem.k, seed=for_policy)
    stops = [Stop(loss=part * problem.optimum) for part in parts]
    looks: list[Look | None] = [None] * len(stops)
    found = [(math.nan, math.nan)] * len(stops)
    while policy.plays < plays and any(math.isnan(each) for each, _ in found):
        plan = policy.plan()
        policy.tell_plan(problem.play(plan.subsets, plan.times, rng))
        insight = policy.insight()
        for i, stop in enumerate(stops):
            look = looks[i] = stop.look(insight, policy.plays, looks[i])
            if look.ready and math.isnan(found[i][0]):
                loss = float(problem.gap(np.array([policy.best()]))[0])
                found[i] = loss / stop.threshold, policy.plays
    return found


def rows(
    seed: int = 2028,
    runs: int = 40,
    groups: tuple[str, ...] = tuple(GROUPS),
    settings: tuple[str, ...] = (),
    parts: tuple[float, ...] = (0.05, 0.02, 0.01),
    quick: bool = False,
) -> Iterator[Row]:
    """Yield a row for each problem and threshold: the true loss relative to the threshold, and the plays until ready.

    `parts` are the thresholds, relative to the reward of the best subset.
    """
    for group in groups:
        plays, problems = GROUPS[group]
        if quick:
            plays, problems, parts, runs = 300, problems[:1], (0.2, 0.1), min(runs, 2)
        for name, make in problems:
            if settings and name not in settings:
                continue
            found = np.array([stopped(make, parts, plays, seed, number) for number in range(runs)])
            for part, (losses, taken) in zip(parts, found.transpose(1, 2, 0), strict=True):
                ready = ~np.isnan(losses)
                row = {"group": group, "setting": name, "threshold": part, "runs": runs, "ready": int(ready.sum())}
                if ready.any():
                    row |= with_error("loss_ratio", losses[ready]) | {"median_plays": float(np.median(taken[ready]))}
                else:
                    row |= {"loss_ratio": None, "loss_ratio_error": None, "median_plays": None}
                yield row


if __name__ == "__main__":
    run(rows, __doc__)
