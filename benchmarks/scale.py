"""Measure how time and memory grow with N, K and T: `python -m benchmarks.scale --policies thompson`.

The policies are those with memory linear in N; the problem is a mean of Bernoulli arms. Each case runs in a separate
process, so that its peak memory is known. CMAB-SM has resolution 0.05 (the printed one explores nothing here). DART
plays a different subset in every play until it has decided, so its cost grows with T: growth with T is measured up to
10^7. `--groups large` runs one group of cases.
"""

import json
import multiprocessing
import resource
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

import kofn
from benchmarks.rows import Row, run

PARAMS: dict[str, dict[str, Any]] = {"thompson": {"seed": 1}, "dart": {"seed": 1}, "cmab-sm": {"resolution": 0.05}}

Case = tuple[int, int, int]
"""N, K and T."""

GROUPS: dict[str, list[Case]] = {
    "N": [(n, 10, 10**6) for n in (10**3, 10**4, 10**5, 10**6)],
    "K": [(10**4, k, 10**6) for k in (10, 100, 1000)],
    "T": [(10**3, 10, t) for t in (10**6, 10**7, 10**8, 10**10, 10**12)],
    "large": [(10**6, 100, 10**8)],
}
FARTHEST = {"dart": 10**7}
"""The longest horizon at which the growth of a policy with T is measured."""


def measure(policy: str, n_arms: int, k: int, horizon: int) -> Row:
    """Return the processor time and peak memory of a run, and the size of the state at its end."""
    warnings.simplefilter("ignore", kofn.ShortHorizonWarning)
    problem = kofn.Problem(kofn.Bernoulli(np.random.default_rng(n_arms).random(n_arms)), "mean", k)
    player = kofn.make_policy(policy, n_arms=n_arms, k=k, horizon=horizon, **PARAMS[policy])
    start = time.process_time()
    result = kofn.simulate(player, problem, horizon, seed=1)
    return {
        "seconds": time.process_time() - start,
        "plan_rows": result.plan_rows,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "state_bytes_per_arm": len(json.dumps(kofn.save(player))) / n_arms,
        "regret_per_play": result.regret / horizon,
    }


def rows(
    policies: tuple[str, ...] = tuple(PARAMS), groups: tuple[str, ...] = tuple(GROUPS), quick: bool = False
) -> Iterator[Row]:
    """Yield a row for each policy and case."""
    for policy in policies:
        for group in groups:
            cases = [(20, 3, 10**3)] if quick else GROUPS[group]
            for n_arms, k, horizon in cases:
                if group == "T" and horizon > FARTHEST.get(policy, horizon):
                    continue
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
                    found = alone.submit(measure, policy, n_arms, k, horizon).result()
                yield {"policy": policy, "group": group, "n_arms": n_arms, "k": k, "plays": horizon, **found}


if __name__ == "__main__":
    run(rows, __doc__)
