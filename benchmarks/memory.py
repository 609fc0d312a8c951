"""Measure the state as JSON and the peak memory of a simulated run: `python benchmarks/memory.py [cmab-sm | thompson]`.

Each size runs in a separate process, so that its peak memory is known. `--quick` runs one small size.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import kofn

CASES = [(10**3, 10), (10**4, 10), (10**5, 10), (10**5, 100)]
QUICK_CASES = [(20, 3)]
HORIZONS = {"cmab-sm": 10**12, "thompson": 10**7}
PARAMS: dict[str, dict[str, Any]] = {"cmab-sm": {"resolution": 0.05}, "thompson": {"seed": 1}}


def made(policy: str, n_arms: int, k: int) -> kofn.Policy:
    return kofn.make_policy(policy, n_arms=n_arms, k=k, horizon=HORIZONS[policy], **PARAMS[policy])


def largest_state(policy: kofn.Policy, problem: kofn.Problem, plans: int = 200) -> int:
    """Return the largest size of the state as JSON over the first plans, each observed in two halves."""
    rng = np.random.default_rng(1)
    largest = 0
    for _ in range(plans):
        plan = policy.plan()
        half = plan.part(max(1, plan.plays // 2))
        policy.tell_plan(problem.play(half.subsets, half.times, rng))
        if len(plan) > 2 or largest == 0:
            largest = max(largest, len(json.dumps(kofn.save(policy))))
        rest = policy.plan()
        policy.tell_plan(problem.play(rest.subsets, rest.times, rng))
    return largest


def measure(policy: str, n_arms: int, k: int) -> dict[str, float]:
    """Return the size of the state, and the processor time and peak memory of a run."""
    problem = kofn.Problem(kofn.Bernoulli(np.random.default_rng(n_arms).random(n_arms)), "mean", k)
    start = time.process_time()
    run = kofn.simulate(made(policy, n_arms, k), problem, HORIZONS[policy], seed=1)
    taken = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    state = largest_state(made(policy, n_arms, k), problem, plans=200 if policy == "cmab-sm" else 20)
    return {
        "seconds": taken,
        "plan_rows": run.plan_rows,
        "peak_mib": peak,
        "state_bytes": state,
        "regret": run.regret / HORIZONS[policy],
    }


def report(policy: str, cases: Sequence[tuple[int, int]] = CASES) -> None:
    print(f"{policy}, a run of {HORIZONS[policy]:,} plays of a mean")
    heads = f"{'N':>8} {'K':>4} {'state [kB]':>11} {'per arm [B]':>12} {'run [s]':>8} {'plan rows':>10}"
    print(f"{heads} {'peak [MiB]':>11} {'regret per play':>16}")
    for n_arms, k in cases:
        command = [sys.executable, __file__, policy, "--case", str(n_arms), str(k)]
        result = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
        print(
            f"{n_arms:8,} {k:4} {result['state_bytes'] / 1e3:11,.0f} {result['state_bytes'] / n_arms:12.1f} "
            f"{result['seconds']:8.2f} {result['plan_rows']:10,} {result['peak_mib']:11,.0f} {result['regret']:16.4f}",
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="*", help=f"by default all of {', '.join(HORIZONS)}")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that the benchmark works")
    parser.add_argument("--case", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if unknown := set(args.policies) - set(HORIZONS):  # argparse refuses no names, if it has choices
        parser.error(f"unknown: {', '.join(sorted(unknown))}; available: {', '.join(HORIZONS)}")
    if args.case:
        print(json.dumps(measure(args.policies[0], *args.case)))
    else:
        for policy in args.policies or HORIZONS:
            report(policy, QUICK_CASES if args.quick else CASES)


if __name__ == "__main__":
    main()
