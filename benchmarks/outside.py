"""Compare policies with numbers measured by others: `python benchmarks/outside.py [--json]`.

N = 10, K = 2, arms whose means are uniform in (0.1, 0.9), with little noise (Beta arms, standard deviation 0.05): the
regret in the authors' figures at 10^3 to 10^6 plays (read off to about 5 %), and ours on 20 random instances.
`--quick` plays two instances for 10^3 plays.
"""

import argparse
import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import kofn

HORIZONS = (10**3, 10**4, 10**5, 10**6)
THEIRS = {
    ("mean", "cmab-sm"): (200, 1_077, 4_676, 13_600),
    ("mean", "dart"): (263, 665, 1_822, 2_677),
    ("mean", "etcg"): (558, 2_909, 13_600, 68_500),
    ("max", "dart"): (168, 346, 513, 726),
}
OURS = [
    ("mean", "cmab-sm", "follow-up schedule", {"schedule": "follow-up"}),
    ("mean", "cmab-sm", "printed schedule", {"schedule": "printed"}),
    ("mean", "dart", "", {}),
    ("mean", "etcg", "printed m", {}),
    ("mean", "etcg", "m = T^(2/3)", {"m": "T^(2/3)"}),
    ("max", "dart", "", {}),
]


def problem(reward: str, seed: int, deviation: float = 0.05) -> kofn.Problem:
    """Return a random instance: Beta arms with that standard deviation."""
    mean = np.random.default_rng(seed).uniform(0.1, 0.9, 10)
    size = mean * (1 - mean) / deviation**2 - 1
    return kofn.Problem(kofn.Beta(mean * size, (1 - mean) * size), reward, 2, absent=0.0)


def regret(reward: str, name: str, params: Mapping[str, object], horizon: int, instances: int) -> float:
    """Return the mean regret over the instances."""
    given: dict[str, Any] = dict(params)
    if given.get("m") == "T^(2/3)":
        given["m"] = round(horizon ** (2 / 3))
    runs = [
        kofn.simulate(
            kofn.make_policy(name, n_arms=10, k=2, horizon=horizon, seed=seed, **given),
            problem(reward, seed),
            horizon,
            seed=seed,
        )
        for seed in range(instances)
    ]
    return float(np.mean([run.regret for run in runs]))


def measure(instances: int = 20, horizons: tuple[int, ...] = HORIZONS) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kofn.ShortHorizonWarning)
        for reward, name, form, params in OURS:
            for horizon in horizons:
                theirs = THEIRS[reward, name][HORIZONS.index(horizon)]
                ours = regret(reward, name, params, horizon, instances)
                rows.append(
                    {"reward": reward, "policy": name, "form": form, "horizon": horizon, "theirs": theirs, "ours": ours}
                )
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that the benchmark works")
    args = parser.parse_args(arguments)
    found = measure(2, HORIZONS[:1]) if args.quick else measure()
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{'reward':7} {'policy':9} {'':20} {'plays':>9} {'theirs':>8} {'ours':>8} {'ratio':>6}")
        for row in found:
            ratio = float(str(row["ours"])) / float(str(row["theirs"]))
            print(
                f"{row['reward']:7} {row['policy']:9} {row['form']:20} {row['horizon']:9,} {row['theirs']:8,} "
                f"{row['ours']:8,.0f} {ratio:6.2f}"
            )


if __name__ == "__main__":
    main()
