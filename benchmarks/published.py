"""Do kofn's versions of published policies reach the published numbers? `python -m benchmarks.published`.

N = 10, K = 2, arms whose means are uniform in (0.1, 0.9), with little noise (Beta arms, standard deviation 0.05): the
regret of kofn's policies on random instances beside that in the authors' later figures, read off to about 5 %.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import kofn
from benchmarks.rows import Row, run

HORIZONS = (10**3, 10**4, 10**5, 10**6)
PUBLISHED = {
    ("mean", "cmab-sm"): (200, 1_077, 4_676, 13_600),
    ("mean", "dart"): (263, 665, 1_822, 2_677),
    ("mean", "etcg"): (558, 2_909, 13_600, 68_500),
    ("max", "dart"): (168, 346, 513, 726),
}
VERSIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "cmab-sm (follow-up)": ("mean", "cmab-sm", {"schedule": "follow-up"}),
    "cmab-sm (printed)": ("mean", "cmab-sm", {"schedule": "printed"}),
    "dart": ("mean", "dart", {}),
    "etcg (printed m)": ("mean", "etcg", {}),
    "etcg (m = T^(2/3))": ("mean", "etcg", {"m": round}),
    "dart (max)": ("max", "dart", {}),
}
NAMES = tuple(VERSIONS)


def problem(reward: str, seed: int, deviation: float = 0.05) -> kofn.Problem:
    mean = np.random.default_rng(seed).uniform(0.1, 0.9, 10)
    size = mean * (1 - mean) / deviation**2 - 1
    return kofn.Problem(kofn.Beta(mean * size, (1 - mean) * size), reward, 2, absent=0.0)


def rows(seed: int = 0, runs: int = 20, versions: Sequence[str] = NAMES, quick: bool = False) -> Iterator[Row]:
    horizons = HORIZONS[:1] if quick else HORIZONS
    for version in versions:
        reward, policy, params = VERSIONS[version]
        for horizon in horizons:
            given = {name: value(horizon ** (2 / 3)) if callable(value) else value for name, value in params.items()}
            regrets = []
            for number in range(seed, seed + runs):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", kofn.ShortHorizonWarning)
                    made = kofn.make_policy(policy, n_arms=10, k=2, horizon=horizon, seed=number, **given)
                regrets.append(kofn.simulate(made, problem(reward, number), horizon, seed=number).regret)
            published = PUBLISHED[reward, policy][HORIZONS.index(horizon)]
            cells = {"setting": f"{reward}/N10-K2", "policy": version, "plays": horizon, "runs": runs}
            regret = float(np.mean(regrets))
            yield cells | {"regret": regret, "published": published, "ratio": regret / published}


if __name__ == "__main__":
    run(rows, __doc__)
