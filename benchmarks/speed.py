"""Measure speed, as ratios within one process, because machines are noisy: `python -m benchmarks.speed`.

1. A CMAB-SM run of 10^6 plays against a plain loop that draws every play with NumPy.
2. The same run with 10^12 plays, at the same resolution.
3. One `ask` and one `tell`, at N = 24 and at N = 100,000.
"""

import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np

import kofn
from benchmarks.rows import Row, run

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


def rows(part: int = 50_000, pairs: int = 100_000, repeat: int = 15, quick: bool = False) -> Iterator[Row]:
    """Yield all numbers. `part` is how many plays the plain loop makes: each costs the same."""
    if quick:
        part, pairs, repeat = 500, 50, 1
    simulated(10**6, None)  # warm up
    few = max(1, repeat // 5)
    for name, resolution in (("printed", None), ("resolution 0.05", 0.05)):
        short = seconds(lambda r=resolution: simulated(10**6, r), repeat)  # type: ignore[misc]
        loop = seconds(lambda r=resolution: plain_loop(part, r), few) * 10**6 / part  # type: ignore[misc]
        bare = seconds(lambda: bare_loop(part), few) * 10**6 / part
        yield {"what": f"run of 10^6 plays, {name}", "value": short * 1e3, "unit": "ms"}
        yield {"what": f"plain loop / run, {name}", "value": loop / short, "unit": ""}
        yield {"what": f"draws alone / run, {name}", "value": bare / short, "unit": ""}
    long = seconds(lambda: simulated(10**12, 0.05), repeat)
    yield {"what": "run of 10^12 plays / run of 10^6, resolution 0.05", "value": long / short, "unit": ""}
    for n_arms, k in ((24, 5), (100_000, 10)):
        each = ask_tell(n_arms, k, pairs) * 1e6
        yield {"what": f"ask and tell, N = {n_arms:,}, K = {k}", "value": each, "unit": "µs"}


if __name__ == "__main__":
    run(rows, __doc__)
