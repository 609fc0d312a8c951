"""Measure the client of `kofn serve` with and without a stock and a buffer: `python -m benchmarks.client [--json]`.

Threads that share a client decide and report the reward, one at a time, against `kofn serve` with SQLite on this
machine (N = 24, K = 5). `full speed`: each thread starts the next pair at once. `200 per second`: one thread with
pauses. In each case with plain requests, and with a stock and a buffer of 100 and of 1,000. The time of a run ends when
the last reward is recorded. `unused` is the number of decisions that were left in the stock at the end.
`--quick` plays little.
"""

import argparse
import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import kofn
from benchmarks.service import served

N_ARMS = 24
THREADS = 4
SIZES = (0, 100, 1000)
"""Sizes of stock and buffer; 0 for plain requests."""

RATE = 200.0
"""Pairs per second of the thread with pauses."""


class Players:
    """Threads that share one client and play one campaign."""

    def __init__(self, campaign: Any, threads: int, rate: float | None, seconds: float) -> None:
        self._campaign, self._pause = campaign, 1 / rate if rate else 0.0
        self._until = time.perf_counter() + seconds
        self.decide: list[list[float]] = [[] for _ in range(threads)]
        self.reward: list[list[float]] = [[] for _ in range(threads)]

    def run(self) -> None:
        threads = [threading.Thread(target=self._play, args=(number,)) for number in range(len(self.decide))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _play(self, number: int) -> None:
        """Play until the deadline, at least once, and note the seconds of each call."""
        rng = random.Random(number)
        due = time.perf_counter()
        while not self.decide[number] or time.perf_counter() < self._until:
            begun = time.perf_counter()
            decision = self._campaign.decide()
            decided = time.perf_counter()
            self._campaign.reward(decision.id, float(rng.random() < sum(decision.subset) / 5 / N_ARMS))
            self.decide[number].append(decided - begun)
            self.reward[number].append(time.perf_counter() - decided)
            due += self._pause
            time.sleep(max(0.0, due - time.perf_counter()) if self._pause else 0.0)


def measure(url: str, size: int, threads: int, rate: float | None, seconds: float) -> dict[str, float]:
    """Return pairs per second, the latencies of decide and reward in microseconds, and the unused decisions."""
    name = f"stock-{size}-{time.time_ns()}"
    with kofn.Client(url, prefetch=size, buffer=size) as client:
        campaign = client.create(name, [str(i) for i in range(N_ARMS)], 5, seed=1)
        players = Players(campaign, threads, rate, seconds)
        begun = time.perf_counter()
        players.run()
        client.flush()
        taken = time.perf_counter() - begun
        summary = campaign.summary()
    decide, reward = np.concatenate(players.decide), np.concatenate(players.reward)
    assert summary.rewards == len(decide), "a thread failed: the measured load is incomplete"
    return {
        "pairs/s": len(decide) / taken,
        "decide: median us": 1e6 * float(np.median(decide)),
        "p99 us": 1e6 * float(np.quantile(decide, 0.99)),
        "reward: median us": 1e6 * float(np.median(reward)),
        "unused": summary.plays - len(decide),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each case")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that the benchmark works")
    args = parser.parse_args(arguments)
    seconds, sizes = (0.1, SIZES[:2]) if args.quick else (args.seconds, SIZES)
    busy = os.getloadavg()[0]  # other processes on the machine influence the results
    result: dict[str, dict[str, float]] = {"the machine, before": {"cores": os.cpu_count() or 0, "load average": busy}}
    with tempfile.TemporaryDirectory() as folder, served(f"sqlite:///{folder}/shop.db") as url:
        for size in sizes:
            how = f"stock and buffer of {size:,}" if size else "plain requests"
            result[f"full speed, 1 thread, {how}"] = measure(url, size, 1, None, seconds)
            result[f"full speed, {THREADS} threads, {how}"] = measure(url, size, THREADS, None, seconds)
            result[f"{RATE:.0f} per second, {how}"] = measure(url, size, 1, RATE, seconds)
    if args.json:
        print(json.dumps(result, indent=2))
    else:
        for name, numbers in result.items():
            print(f"{name:<52}", "   ".join(f"{key} {value:,.1f}" for key, value in numbers.items()))


if __name__ == "__main__":
    main()
