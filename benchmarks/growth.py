"""Measure how time and memory grow with N, K and T: `python benchmarks/growth.py [thompson dart cmab-sm]`.

The policies are those with memory linear in N; the problem is a mean of Bernoulli arms. Each case runs in a separate
process, so that its peak memory is known. The exponent of growth compares the first and the last case of a group.
CMAB-SM has resolution 0.05 (the printed one explores nothing here). DART plays a different subset in every play until
it has decided, so its cost grows with T: growth with T is measured up to 10^7. `--only large` runs one group of cases,
`--quick` small cases.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import kofn

PARAMS: dict[str, dict[str, Any]] = {"thompson": {"seed": 1}, "dart": {"seed": 1}, "cmab-sm": {"resolution": 0.05}}

Case = tuple[int, int, int]
"""N, K and T."""

GROUPS: dict[str, list[Case]] = {
    "N": [(n, 10, 10**6) for n in (10**3, 10**4, 10**5, 10**6)],
    "K": [(10**4, k, 10**6) for k in (10, 100, 1000)],
    "T": [(10**3, 10, t) for t in (10**6, 10**7, 10**8, 10**10, 10**12)],
    "large": [(10**6, 100, 10**8)],
}
QUICK: dict[str, list[Case]] = {
    "N": [(n, 2, 10**4) for n in (10, 40)],
    "K": [(40, k, 10**4) for k in (2, 8)],
    "T": [(10, 2, t) for t in (10**3, 10**4)],
    "large": [(40, 8, 10**5)],
}
FARTHEST = {"dart": 10**7}
"""The longest horizon at which the growth of a policy with T is measured."""


def measure(policy: str, n_arms: int, k: int, horizon: int) -> dict[str, float]:
    """Return the processor time and peak memory of a run, and the size of the state at its end."""
    warnings.simplefilter("ignore", kofn.ShortHorizonWarning)
    problem = kofn.Problem(kofn.Bernoulli(np.random.default_rng(n_arms).random(n_arms)), "mean", k)
    player = kofn.make_policy(policy, n_arms=n_arms, k=k, horizon=horizon, **PARAMS[policy])
    start = time.process_time()
    run = kofn.simulate(player, problem, horizon, seed=1)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    state = len(json.dumps(kofn.save(player)))
    return {
        "seconds": seconds,
        "rows": run.plan_rows,
        "peak": peak / 1024,
        "per arm": state / n_arms,
        "regret": run.regret / horizon,
    }


def in_its_own_process(policy: str, case: Case) -> dict[str, float]:
    command = [sys.executable, __file__, policy, "--case", *map(str, case)]
    found: dict[str, float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


def slope(cases: list[Case], values: list[float]) -> float:
    """Return the exponent of growth between the first and the last case of a group."""
    grown = math.prod(after / before for before, after in zip(cases[0], cases[-1], strict=True))
    return math.log(values[-1] / values[0]) / math.log(grown)


def report(policy: str, groups: dict[str, list[Case]]) -> None:
    print(f"\n{policy}\n\n| N | K | T | seconds | rows played | peak [MiB] | state per arm [B] | regret per play |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    slopes = []
    for group, all_cases in groups.items():
        cases = [case for case in all_cases if group != "T" or case[2] <= FARTHEST.get(policy, case[2])]
        found = []
        for n_arms, k, horizon in cases:
            result = in_its_own_process(policy, (n_arms, k, horizon))
            found.append(result)
            print(
                f"| {n_arms:,} | {k:,} | 10^{math.log10(horizon):.0f} | {result['seconds']:,.1f} | {result['rows']:,} "
                f"| {result['peak']:,.0f} | {result['per arm']:.0f} | {result['regret']:.4f} |",
                flush=True,
            )
        if len(cases) > 1:
            seconds, rows, peak = (slope(cases, [each[what] for each in found]) for what in ("seconds", "rows", "peak"))
            slopes.append(f"{group}: time {seconds:.2f}, rows {rows:.2f}, peak memory {peak:.2f}")
    for each in slopes:
        print(f"\nexponent of growth with {each}")


def main(arguments: Sequence[str] | None = None) -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("policies", nargs="*", help=f"by default all of {', '.join(PARAMS)}")
    asked.add_argument("--only", choices=list(GROUPS), action="append")
    asked.add_argument("--quick", action="store_true", help="tiny sizes, to see that the benchmark works")
    asked.add_argument("--case", nargs=3, type=int, help=argparse.SUPPRESS)
    given = asked.parse_args(arguments)
    if unknown := set(given.policies) - set(PARAMS):  # argparse refuses no names, if it has choices
        asked.error(f"unknown: {', '.join(sorted(unknown))}; available: {', '.join(PARAMS)}")
    if given.case:
        print(json.dumps(measure(given.policies[0], *given.case)))
    else:
        groups = QUICK if given.quick else GROUPS
        for policy in given.policies or PARAMS:
            report(policy, {name: groups[name] for name in given.only or groups})


if __name__ == "__main__":
    main()
