"""CMAB-SM against improved UCB on the same random problems: who loses less, and what did it find?"""

from collections.abc import Callable
from typing import Any

import numpy as np

import kofn

N, K, HORIZON, RUNS = 12, 5, 300_000, 10


def maker(name: str, **params: Any) -> Callable[[np.random.SeedSequence], kofn.Policy]:
    """What makes a new policy of that name for each run."""
    return lambda seed: kofn.make_policy(name, N, K, horizon=HORIZON, seed=seed, **params)


POLICIES = {
    "cmab-sm, resolution 0.2": maker("cmab-sm", resolution=0.2),
    "cmab-sm, resolution 0.1": maker("cmab-sm", resolution=0.1),
    "improved-ucb": maker("improved-ucb"),
}


def new_problem(seed: np.random.SeedSequence) -> kofn.Problem:
    """Random arms; a subset earns its mean."""
    return kofn.Problem(kofn.Bernoulli(np.random.default_rng(seed).random(N)), "mean", k=K)


def main() -> None:
    """Run each policy on the same problems, and print a line for each."""
    print(f"{RUNS} runs of {HORIZON:,} plays, {K} of {N} arms\n")
    print(f"{'policy':26}{'regret':>10}{'± 95 %':>10}{'explored':>12}{'found best':>12}")
    for name, policy in POLICIES.items():
        runs = kofn.simulate_many(policy, new_problem, HORIZON, RUNS, seed=1, workers=1)
        band = kofn.Band.over([run.curve for run in runs])
        explored = np.mean([run.exploration for run in runs])
        found = np.mean([run.optimal for run in runs])
        print(f"{name:26}{band.mean[-1]:10,.0f}{band.high[-1] - band.mean[-1]:10,.0f}{explored:12,.0f}{found:12.0%}")


if __name__ == "__main__":
    main()
