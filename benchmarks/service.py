"""Measure the service: throughput, effect of delays on learning, page load. `python benchmarks/service.py [--json]`.

load: clients decide and reward in batches of 10 (or `--batch 100`), on SQLite (synchronous=full) and on a PostgreSQL
server started for the benchmark (with fsync), for N = 24 and N = 10,000, with one and two processes. Server and clients
share the machine. learning: 8 workers play a problem over HTTP with randomly delayed rewards; the exact regret, and
that of the same policy in one loop, with immediate rewards and with the same mean delay. page: the dashboard of a
campaign with a million decisions, in Chromium. Pass `load`, `learning` or `page` to run one of them.
`--no-postgres` leaves out PostgreSQL, `--quick` plays little.
"""

import argparse
import heapq
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

import kofn

sys.path.insert(0, str(Path(__file__).parents[1]))

CLIENTS = 4
WORKERS, DELAYS = 8, (0.1, 0.25)
"""Number of workers of `learning`, and mean delays of a reward in seconds."""
PARTS = ["load", "learning", "page"]
QUICK: dict[str, dict[str, Any]] = {
    "load": {"duration": 0.3, "processes": (1,), "sizes": (24,)},
    "learning": {"horizon": 200, "runs": 2},
    "page": {"plays": 2_000},
}


@contextmanager
def served(store: str, workers: int = 1) -> Iterator[str]:
    from tests.service.tools import Served

    with Served(store, "--workers", str(workers)) as running:
        yield running.url
        running.stop()


# Load.


def hammer(url: str, name: str, n_arms: int, batch: int, until: float, seconds: list[float]) -> None:
    """Decide and reward until the deadline, at least once, and append the latency of each request."""
    rng = random.Random(id(seconds))
    with kofn.Client(url) as client:
        campaign = client.campaign(name)
        while not seconds or time.perf_counter() < until:
            begun = time.perf_counter()
            decisions = campaign.decide(batch)
            between = time.perf_counter()
            campaign.rewards(
                [(each.id, float(rng.random() < sum(map(int, each.arms)) / 5 / n_arms)) for each in decisions]
            )
            seconds += [between - begun, time.perf_counter() - between]


def load(url: str, n_arms: int, batch: int, duration: float) -> dict[str, float]:
    """Return the pairs of decision and reward per second, and the median and 99th percentile of the latency."""
    name = f"n{n_arms}-{time.time_ns()}"
    with kofn.Client(url) as client:
        client.create(name, [str(i) for i in range(n_arms)], 5, seed=1)
        taken: list[list[float]] = [[] for _ in range(CLIENTS)]
        until = time.perf_counter() + duration
        threads = [threading.Thread(target=hammer, args=(url, name, n_arms, batch, until, each)) for each in taken]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rewarded = client.campaign(name).summary().rewards
        client.campaign(name).delete()
    assert rewarded == sum(map(len, taken)) // 2 * batch, "a client failed: the measured load is incomplete"
    requests = np.concatenate([np.array(each) for each in taken])
    pairs = len(requests) / 2 * batch / duration
    return {
        "pairs/s": pairs,
        "median ms": 1e3 * float(np.median(requests)),
        "p99 ms": 1e3 * float(np.quantile(requests, 0.99)),
    }


def loads(
    stores: dict[str, str],
    batch: int,
    duration: float = 5.0,
    processes: Sequence[int] = (1, 2),
    sizes: Sequence[int] = (24, 10_000),
) -> dict[str, dict[str, float]]:
    found = {}
    for kind, store in stores.items():
        for workers in processes:
            with served(store, workers) as url:
                for n_arms in sizes:
                    found[f"{kind}, N = {n_arms:,}, {workers} process(es)"] = load(url, n_arms, batch, duration)
    return found


# Learning.


def problem_of(seed: int) -> kofn.Problem:
    return kofn.Problem(kofn.Bernoulli(np.random.default_rng(seed).uniform(0.1, 0.9, 12)), "mean", 3)


class Crowd:
    """Workers that play one campaign with delayed rewards."""

    def __init__(self, url: str, problem: kofn.Problem, name: str, horizon: int, seed: int, delay: float) -> None:
        self._url, self._problem, self._name, self._left = url, problem, name, horizon
        self._horizon, self._late, self._delay = horizon, 0, delay
        self._lock, self.regret = threading.Lock(), 0.0
        self._seeds = np.random.SeedSequence(seed).spawn(WORKERS)

    def run(self) -> float:
        threads = [threading.Thread(target=self._work, args=(seed,)) for seed in self._seeds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.regret

    @property
    def lateness(self) -> int:
        """Mean number of plays decided between a decision and its reward."""
        return round(self._late / self._horizon)

    def _take(self, most: int) -> int:
        with self._lock:
            count = min(most, self._left)
            self._left -= count
            return count

    def _work(self, seed: np.random.SeedSequence) -> None:
        rng = np.random.default_rng(seed)
        due: list[tuple[float, str, float, int]] = []
        with kofn.Client(self._url) as client:
            campaign = client.campaign(self._name)
            while (count := self._take(5)) or due:
                for each in campaign.decide(count) if count else []:
                    subset = tuple(sorted(map(int, each.arms)))
                    gap = self._problem.gap([subset]).item()
                    with self._lock:
                        self.regret += gap
                    reward = self._problem.play([subset], [1], rng).total.item()
                    heapq.heappush(due, (time.monotonic() + rng.exponential(self._delay), each.id, reward, self._left))
                now: dict[str, float] = {}
                while due and due[0][0] <= time.monotonic():
                    _, id, reward, left = heapq.heappop(due)
                    now[id] = reward
                    with self._lock:
                        self._late += left - self._left
                if now:
                    campaign.rewards(now)
                elif not count:
                    time.sleep(0.01)


def learning(url: str, delay: float, horizon: int = 20_000, runs: int = 10) -> dict[str, float]:
    """Return the mean regret over HTTP and in one loop on the same problems, and their ratio with its error."""
    remote, alone, late, lateness = np.zeros((4, runs))
    for seed in range(runs):
        problem = problem_of(seed)
        with kofn.Client(url) as client:
            campaign = client.create(
                f"learn-{seed}-{delay}", [str(i) for i in range(problem.n_arms)], problem.k, seed=seed
            )
            crowd = Crowd(url, problem, campaign.name, horizon, seed, delay)
            remote[seed] = crowd.run()
            summary = campaign.summary()
            assert summary.plays == summary.rewards == horizon, "a worker failed: the regret does not cover all plays"
        lateness[seed] = crowd.lateness
        alone[seed], late[seed] = (
            np.mean([in_one_loop(problem, horizon, 100 * seed + again, plays) for again in range(10)])
            for plays in (0, crowd.lateness)
        )
    ratio = remote.mean() / alone.mean()
    error = np.std(remote - ratio * alone, ddof=1) / np.sqrt(runs) / alone.mean()  # paired by problem
    return {
        "regret through HTTP": float(remote.mean()),
        "in one loop": float(alone.mean()),
        "in one loop, as late": float(late.mean()),
        "plays late": float(lateness.mean()),
        "ratio": float(ratio),
        "its standard error": float(error),
        "runs": runs,
    }


def in_one_loop(problem: kofn.Problem, horizon: int, seed: int, delay: int) -> float:
    policy = kofn.make_policy("thompson", problem.n_arms, problem.k, seed=seed)
    return kofn.simulate(policy, problem, horizon, np.random.default_rng(seed + 1), delay=delay).regret


# The page.


def page_of(store: str, plays: int = 1_000_000) -> dict[str, float]:
    """Return the best and worst load time of the dashboard of a large campaign out of five, and its size."""
    from tests.service.browser import fill, headless, measure_load

    fill(
        kofn.Campaign.create("large", [f"arm {i}" for i in range(24)], 5, seed=1, store=store, reward_range=(0, 12)),
        plays,
    )
    with served(store) as url, headless() as browser:
        seen = [measure_load(browser.new_page(), f"{url}/#/large") for _ in range(5)]
    times = [taken for taken, _ in seen]
    return {
        "decisions": plays,
        "ms, best": min(times),
        "ms, worst": max(times),
        "kB": max(size for _, size in seen) / 1e3,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    from tests import postgres

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"by default all of {', '.join(PARTS)}")
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--no-postgres", action="store_true")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that the benchmark works")
    args = parser.parse_args(arguments)
    if unknown := set(args.parts) - set(PARTS):  # argparse refuses no names, if it has choices
        parser.error(f"unknown: {', '.join(sorted(unknown))}; available: {', '.join(PARTS)}")
    parts = args.parts or PARTS
    few: dict[str, dict[str, Any]] = QUICK if args.quick else {}
    busy = os.getloadavg()[0]  # other processes on the machine influence the results
    result: dict[str, Any] = {"the machine, before": {"cores": os.cpu_count(), "load average": busy}}
    needed = "load" in parts and not args.no_postgres
    started = postgres.server(durable=True) if needed else nullcontext(None)
    with tempfile.TemporaryDirectory() as folder, started as server:
        if "load" in parts:
            stores = {"SQLite": f"sqlite:///{folder}/shop.db"} | ({"PostgreSQL": server} if server else {})
            result |= loads(stores, args.batch, **few.get("load", {}))
        if "learning" in parts:
            with served(f"sqlite:///{folder}/learn.db") as url:
                for delay in DELAYS[:1] if args.quick else DELAYS:
                    found = learning(url, delay, **few.get("learning", {}))
                    result[f"{WORKERS} workers, rewards {delay} s late on average"] = found
        if "page" in parts:
            store = f"sqlite:///{folder}/page.db?synchronous=normal"
            result["the dashboard"] = page_of(store, **few.get("page", {}))
    if args.json:
        print(json.dumps(result, indent=2))
    else:
        for name, numbers in result.items():
            print(f"{name:<45}", "   ".join(f"{key} {value:,.2f}" for key, value in numbers.items()))


if __name__ == "__main__":
    main()
