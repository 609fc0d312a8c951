"""Regret of linear-thompson by its number of draws, up to 10^9 plays: `python -m benchmarks.draws`.

The mean of 3 of 12 arms with p from 0.1 to 0.9. The runs of all rows have the same seeds. `--quick` computes little.
"""

import argparse
import math
import time
from collections.abc import Sequence
from functools import partial

import numpy as np

import kofn
from benchmarks.tables import interval, line, table

DRAWS = (256, 4_096, 32_768)
POINTS = (10**6, 10**7, 10**8, 10**9)


def made(draws: int, seed: np.random.SeedSequence) -> kofn.Policy:
    return kofn.lab.rivals.LinearThompson(12, 3, draws=draws, seed=seed)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=2021)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that the benchmark works")
    args = parser.parse_args(arguments)
    rows, points, runs = (DRAWS[:1], (100, 1_000), 2) if args.quick else (DRAWS, POINTS, args.runs)
    problem = kofn.Problem(kofn.Bernoulli(np.linspace(0.1, 0.9, 12)), "mean", k=3)
    table("`draws`", *(f"10^{round(math.log10(point))} plays" for point in points), "processor seconds per run")
    for draws in rows:
        start = time.process_time()
        found = kofn.simulate_many(partial(made, draws), problem, points[-1], runs, args.seed, workers=1)
        seconds = (time.process_time() - start) / runs
        regrets = (interval([run.regret_at(point) for run in found]) for point in points)
        line(f"{draws:,}", *regrets, f"{seconds:.1f}")


if __name__ == "__main__":
    main()
