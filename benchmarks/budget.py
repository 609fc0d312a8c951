"""Make the table behind `kofn budget`: what `thompson` loses on random problems, and when it finds a good subset.

    python -m benchmarks.budget > src/kofn/lab/theory/thompson_budget.csv

Each cell is a family of random problems at one N and K, played for a million plays. The seed, 83, was not used to tune
the policy. Twenty runs take about ten minutes on one core.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

import kofn
from benchmarks.rows import Row, run, with_error
from kofn.backends import compute
from kofn.lab.settings import Setting
from kofn.lab.simulation import run_seeds
from kofn.lab.theory.simulated import CLOSE, HORIZONS

FAMILIES = ("mean", "max", "cross-selling")
SIZES = {4: (1, 2), 10: (1, 2, 5), 30: (1, 4, 15), 100: (1, 7, 50), 300: (1, 12, 150)}
SEED = 83


class Played(NamedTuple):
    """One run: its regret, the gap of `best()` after each plan, and when that gap became small for good."""

    regret: list[float]  # at each of HORIZONS
    gaps: list[float]  # of `best()` at each of HORIZONS, as a share of the reward range
    settled: float  # plays after which the gap stays within CLOSE; infinite if it is larger at the end


def settled_after(plays: Sequence[float], gaps: Sequence[float]) -> float:
    """Return the plays after which the gap stays within CLOSE; infinite if the last gap is larger."""
    large = [index for index, gap in enumerate(gaps) if gap > CLOSE]
    last = large[-1] + 1 if large else 0
    return plays[last] if last < len(plays) else math.inf


def play(setting: Setting, number: int, horizons: Sequence[int] = HORIZONS) -> Played:
    """Play one run for the longest of the horizons."""
    for_problem, for_policy, for_plays = run_seeds(SEED, number)
    problem = setting.problem(for_problem)
    policy = kofn.Thompson(setting.n_arms, setting.k, reward_range=problem.reward_range, seed=for_policy)
    low, high = problem.reward_range
    plays, gaps = [0.0], [1.0]

    def look(done: int, _: int) -> None:
        plays.append(float(done))
        gaps.append(float(problem.gap(np.array([policy.best()]))[0]) / (high - low))

    result = kofn.simulate(policy, problem, max(horizons), np.random.default_rng(for_plays), progress=look)
    known = [gaps[int(np.searchsorted(plays, horizon, side="right")) - 1] for horizon in horizons]
    return Played([float(result.curve.at(each)) / (high - low) for each in horizons], known, settled_after(plays, gaps))


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed."""
    return sorted(values)[math.ceil(share * len(values) - 1e-9) - 1]


def rows_of(setting: Setting, played: Sequence[Played], horizons: Sequence[int]) -> Iterator[Row]:
    """Yield one row of the table for each horizon."""
    settled = [quantile([each.settled for each in played], share) for share in (0.5, 0.9)]
    half, most = (None if each == math.inf else round(each) for each in settled)
    for index, horizon in enumerate(horizons):
        gaps = np.array([each.gaps[index] for each in played])
        means = {
            **with_error("regret", [each.regret[index] for each in played]),
            "found_best": float((gaps <= 1e-12).mean()),
            "final_gap": float(gaps.mean()),
        }
        yield {
            "family": setting.family,
            "n_arms": setting.n_arms,
            "k": setting.k,
            "horizon": horizon,
            "runs": len(played),
            **{name: float(f"{mean:.4g}") for name, mean in means.items()},
            "settled_half": half,
            "settled_90": most,
        }


def rows(runs: int = 20, workers: int = 1, quick: bool = False) -> Iterator[Row]:
    """Yield the table, a row for each family, size and number of plays."""
    sizes, horizons = ({4: (1, 2)}, HORIZONS[:1]) if quick else (SIZES, HORIZONS)
    for setting in [Setting(family, n, k) for family in FAMILIES for n, ks in sizes.items() for k in ks]:
        tasks = [(setting, number, horizons) for number in range(min(runs, 2) if quick else runs)]
        yield from rows_of(setting, compute(play, tasks, workers=workers), horizons)


if __name__ == "__main__":
    run(rows, __doc__)
