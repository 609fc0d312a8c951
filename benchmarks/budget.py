"""Make the table behind `kofn budget`: what `thompson` loses on random problems, and when it finds a good subset.

    python -m benchmarks.budget [--runs 20] [--out FILE] [--quick]

Each cell is a family of random problems at one N and K, played for a million plays. The seed, 83, was not used to tune
the policy. Twenty runs take about ten minutes on one core. `--quick` plays two small sizes for 100 plays, and
writes no table without `--out`.
"""

import argparse
import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import kofn
from kofn.backends import compute
from kofn.lab.curves import Curve, half_width
from kofn.lab.settings import Setting
from kofn.lab.simulation import run_seeds
from kofn.lab.theory.simulated import CLOSE, HORIZONS, TABLE

FAMILIES = ("mean", "max", "cross-selling")
SIZES = {4: (1, 2), 10: (1, 2, 5), 30: (1, 4, 15), 100: (1, 7, 50), 300: (1, 12, 150)}
SEED = 83
LEVEL = 0.95
"""Confidence level of `regret_error`, the half-width of the interval of the mean regret."""
QUICK_SIZES, QUICK_HORIZONS = {4: (1, 2)}, HORIZONS[:1]


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


def play(setting: Setting, run: int, horizons: Sequence[int] = HORIZONS) -> Played:
    """Play one run for the longest of the horizons."""
    for_problem, for_policy, for_plays = run_seeds(SEED, run)
    problem = setting.problem(for_problem)
    policy = kofn.Thompson(setting.n_arms, setting.k, reward_range=problem.reward_range, seed=for_policy)
    low, high = problem.reward_range
    plays, gaps = [0.0], [1.0]

    def look(done: int, _: int) -> None:
        plays.append(float(done))
        gaps.append(float(problem.gap(np.array([policy.best()]))[0]) / (high - low))

    result = kofn.simulate(policy, problem, max(horizons), np.random.default_rng(for_plays), progress=look)
    known = [gaps[int(np.searchsorted(plays, horizon, side="right")) - 1] for horizon in horizons]
    curve: Curve = result.curve
    return Played([float(curve.at(each)) / (high - low) for each in horizons], known, settled_after(plays, gaps))


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed."""
    return sorted(values)[math.ceil(share * len(values) - 1e-9) - 1]


def rows_of(setting: Setting, played: Sequence[Played], horizons: Sequence[int] = HORIZONS) -> list[list[str]]:
    """Return one row of the table for each horizon."""
    settled = [quantile([each.settled for each in played], share) for share in (0.5, 0.9)]
    shown = ["" if each == math.inf else f"{each:.0f}" for each in settled]
    regrets = np.array([each.regret for each in played])
    regret, error = regrets.mean(axis=0), half_width(regrets, LEVEL)
    rows = []
    for index, horizon in enumerate(horizons):
        gaps = np.array([each.gaps[index] for each in played])
        means = (regret[index], error[index], (gaps <= 1e-12).mean(), gaps.mean())
        numbers = [f"{float(each):.4g}" for each in means]
        size = [str(setting.n_arms), str(setting.k), str(horizon), str(len(played))]
        rows.append([setting.family, *size, *numbers, *shown])
    return rows


COLUMNS = [
    "family",
    "n_arms",
    "k",
    "horizon",
    "runs",
    "regret",
    "regret_error",
    "found_best",
    "final_gap",
    "settled_half",
    "settled_90",
]


def main(arguments: Sequence[str] | None = None) -> None:
    """Play all cells and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, help=f"by default {TABLE.name} in the package")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that the benchmark works")
    args = parser.parse_args(arguments)
    sizes, horizons = (QUICK_SIZES, QUICK_HORIZONS) if args.quick else (SIZES, HORIZONS)
    out = args.out or (None if args.quick else TABLE)
    settings = [Setting(family, n, k) for family in FAMILIES for n, ks in sizes.items() for k in ks]
    table = [COLUMNS]
    for setting in settings:
        tasks = [(setting, run, horizons) for run in range(args.runs)]
        table += rows_of(setting, compute(play, tasks, workers=args.workers), horizons)
        if out:
            with out.open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(table)
        print(setting.name, table[-1], flush=True)


if __name__ == "__main__":
    main()
