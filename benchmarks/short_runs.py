"""Measure the regret of a policy after few plays: `python benchmarks/short_runs.py linear-thompson`.

Nine settings with a fresh instance per run; the mean regret and its standard error after 300, 1,000, 3,000 ... plays.
`--quick` plays two settings, 300 plays.
"""

import argparse
from collections.abc import Sequence
from functools import partial

import numpy as np

import kofn
from kofn.lab.settings import Setting

SETTINGS = [
    Setting(family, n, k) for family in ("mean", "max", "cross-selling") for n, k in ((12, 3), (24, 5), (45, 4))
]
TIMES = (300, 1_000, 3_000, 10_000, 100_000, 1_000_000)


def made(name: str, setting: Setting, horizon: int, seed: np.random.SeedSequence) -> kofn.Policy:
    return kofn.make_policy(name, setting.n_arms, setting.k, horizon=horizon, seed=seed)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=90210)
    parser.add_argument("--horizon", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that the benchmark works")
    args = parser.parse_args(arguments)
    horizon, runs, settings = (300, 2, SETTINGS[:2]) if args.quick else (args.horizon, args.runs, SETTINGS)
    times = [each for each in TIMES if each <= horizon]
    print(f"| regret after | {' | '.join(f'{each:,}' for each in times)} |\n| --- |{' --- |' * len(times)}")
    for setting in settings:
        make = partial(made, args.policy, setting, horizon)
        found = kofn.simulate_many(make, setting.problem, horizon, runs, args.seed)
        at = np.array([np.interp(times, run.curve.plays, run.curve.regret) for run in found])
        error = at.std(axis=0, ddof=1) / np.sqrt(runs)
        shown = [f"{mean:,.1f} ± {by:,.1f}" for mean, by in zip(at.mean(axis=0), error, strict=True)]
        print(f"| {setting.name} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
