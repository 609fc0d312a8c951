"""Measure speed, as ratios within one process, because machines are noisy: `python benchmarks/speed.py`.

1. A CMAB-SM run of 10^6 plays against a plain loop that draws every play with NumPy.
2. The same run with 10^12 plays, at the same resolution.
3. One `ask` and one `tell`, at N = 24 and at N = 100,000.

`--json` prints JSON. `--quick` measures little, to see that the benchmark works.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

import kofn

N, K = 24, 5
P = np.random.default_rng(7).random(N)


def seconds(work: Callable[[], object], repeat: int) -> float:
    """Return the median time of `repeat` calls."""
    taken = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def plain_loop(horizon: int, resolution: float | None) -> float:
    """Run the same policy and draw every play separately, as a simple simulation does; return the regret."""
    rng = np.random.default_rng(1)
    policy = kofn.CMABSM(N, K, 10**6, resolution=resolution)
    best = 1 - np.prod(1 - np.sort(P)[-K:])
    regret = 0.0
    for _ in range(horizon):
        subset = policy.ask()
        p = P[list(subset)]
        reward = (rng.random(K) < p).max()
        policy.tell(subset, reward)
        regret += float(best - (1 - np.prod(1 - p)))
    return regret


def bare_loop(horizon: int) -> None:
    """Make only the draws of the plain loop, without a policy: the least that a loop over plays can cost."""
    rng = np.random.default_rng(1)
    p = P[:K]
    for _ in range(horizon):
        (rng.random(K) < p).max()


def simulated(horizon: int, resolution: float | None) -> kofn.Run:
    problem = kofn.Problem(kofn.Bernoulli(P), "maximum", K)
    return kofn.simulate(kofn.CMABSM(N, K, horizon, resolution=resolution), problem, horizon, seed=1)


def ask_tell(n_arms: int, k: int, pairs: int = 100_000) -> float:
    """Return the seconds of one `ask` and one `tell`, while exploring."""
    policy = kofn.CMABSM(n_arms, k, 10**12, resolution=0.01)

    def work() -> None:
        for _ in range(pairs):
            policy.tell(policy.ask(), 0.5)

    return seconds(work, 3) / pairs


def measure(part: int = 50_000, pairs: int = 100_000, repeat: int = 15) -> dict[str, float]:
    """Return all numbers. `part` is how many plays the plain loop makes: each costs the same."""
    simulated(10**6, None)  # warm up
    result: dict[str, float] = {}
    few = max(1, repeat // 5)
    for name, resolution in (("printed", None), ("resolution 0.05", 0.05)):
        run = seconds(lambda r=resolution: simulated(10**6, r), repeat)  # type: ignore[misc]
        loop = seconds(lambda r=resolution: plain_loop(part, r), few) * 10**6 / part  # type: ignore[misc]
        bare = seconds(lambda: bare_loop(part), few) * 10**6 / part
        result |= {
            f"run of 10^6 plays, {name} [ms]": run * 1e3,
            f"plain loop, {name} [s]": loop,
            f"plain loop / run, {name}": loop / run,
            f"draws alone / run, {name}": bare / run,
        }
    long = seconds(lambda: simulated(10**12, 0.05), repeat)
    short = seconds(lambda: simulated(10**6, 0.05), repeat)
    result["run of 10^12 plays / run of 10^6, resolution 0.05"] = long / short
    result["ask + tell, N = 24, K = 5 [µs]"] = ask_tell(24, 5, pairs) * 1e6
    result["ask + tell, N = 100,000, K = 10 [µs]"] = ask_tell(100_000, 10, pairs) * 1e6
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that the benchmark works")
    args = parser.parse_args(arguments)
    numbers = measure(part=500, pairs=50, repeat=1) if args.quick else measure()
    if args.json:
        print(json.dumps(numbers, indent=2))
    else:
        for name, value in numbers.items():
            print(f"{name:55} {value:12,.2f}")


if __name__ == "__main__":
    main()
