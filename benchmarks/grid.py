"""Compare a policy with two sketches on the paper's grid: `python benchmarks/grid.py linear-thompson`.

The sketches are Thompson sampling on a linear surrogate with known noise, with the full covariance and in linear
memory: their mean regret at 10^6 plays on 16 random instances. `--quick` plays N = 12 only, 200 plays.
"""

import argparse
from collections.abc import Sequence
from functools import partial

import numpy as np

import kofn
from kofn.lab.settings import Setting

SKETCHES = {  # family, N: K, full covariance, linear memory
    ("mean", 12): ((2, 3, 5), (286, 285, 274), (393, 381, 332)),
    ("mean", 24): ((2, 5, 11), (736, 568, 515), (801, 654, 589)),
    ("mean", 45): ((2, 4, 8), (1_398, 1_091, 959), (1_535, 1_283, 1_117)),
    ("max", 12): ((2, 3, 5), (699, 791, 633), (743, 767, 821)),
    ("max", 24): ((2, 5, 11), (1_298, 562, 102), (1_032, 995, 108)),
    ("max", 45): ((2, 4, 8), (1_759, 1_063, 450), (2_115, 1_401, 680)),
    ("cross-selling", 12): ((2, 3, 5), (288, 322, 429), (346, 486, 521)),
}


def made(name: str, setting: Setting, horizon: int, seed: np.random.SeedSequence) -> kofn.Policy:
    return kofn.make_policy(name, setting.n_arms, setting.k, horizon=horizon, seed=seed)


def regrets(name: str, setting: Setting, horizon: int, runs: int, seed: int) -> list[float]:
    """Return the regret of each run; each has a fresh instance."""
    found = kofn.simulate_many(partial(made, name, setting, horizon), setting.problem, horizon, runs, seed)
    return [run.regret for run in found]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=2021)
    parser.add_argument("--horizon", type=int, default=10**6)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that the benchmark works")
    args = parser.parse_args(arguments)
    horizon, runs = (200, 2) if args.quick else (args.horizon, args.runs)
    sketches_of = {key: value for key, value in SKETCHES.items() if not args.quick or key[1] == 12}
    print(f"{'family':14} {'N':>3} {'K':>3} {'mean':>8} {'worst':>8} {'/ full covariance':>18} {'/ linear memory':>16}")
    for (family, n_arms), (ks, full, linear) in sketches_of.items():
        for k, *sketches in zip(ks, full, linear, strict=True):
            each = regrets(args.policy, Setting(family, n_arms, k), horizon, runs, args.seed)
            ratios = [np.mean(each) / sketch for sketch in sketches]
            print(
                f"{family:14} {n_arms:3} {k:3} {np.mean(each):8,.0f} {max(each):8,.0f} "
                f"{ratios[0]:18.2f} {ratios[1]:16.2f}"
            )


if __name__ == "__main__":
    main()
