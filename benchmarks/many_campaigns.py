"""Measure a service with 100, 1,000 and 10,000 campaigns: `python -m benchmarks.many_campaigns [--json]`.

Real campaigns (N = 24, K = 5, `thompson`), created over HTTP in one store on SQLite. For each number of campaigns: the
time and the size of a page of the list, of a search, of /metrics and of the dashboard's first page in Chromium; the
time of a decision and its reward in a campaign that is drawn at random, so that most policies are not in memory; the
memory of the service and the size of its store. Times are medians. `--quick` creates few campaigns.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

import kofn
from benchmarks.tables import line, table
from benchmarks.throughput import resident

COUNTS = (100, 1_000, 10_000)
QUICK = (1, 2)
ARMS = [str(i) for i in range(24)]
REPEATS = 20
PAIRS = 300
QUICK_PAIRS = 3
PLAYS = 20
"""Decisions and rewards of each campaign before anything is measured: enough for its first updates."""

CARDS = "ul.cards:not([aria-busy]) > li"
"""The campaigns on the first page of the dashboard."""

Numbers = dict[str, float]

UNITS: dict[str, str] = {
    "create": "create one and play it [ms]",
    "list": "48 of the list [ms]",
    "list kB": "its size [kB]",
    "search": "search [ms]",
    "metrics": "/metrics [ms]",
    "metrics kB": "its size [kB]",
    "page": "first page of the dashboard [ms]",
    "page kB": "its size [kB]",
    "pair": "decision and reward [ms]",
    "MB": "memory of the service [MB]",
    "store MB": "store [MB]",
}


def milliseconds(call: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Return the median time of a call."""
    taken = []
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        taken.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(taken)


def name_of(number: int) -> str:
    """Return the name of a campaign."""
    return f"campaign {number:05}"


def create(client: kofn.Client, number: int) -> None:
    """Create a campaign, and play it a little."""
    campaign = client.create(name_of(number), ARMS, 5, seed=number)
    rng = random.Random(number)
    campaign.rewards([(each.id, float(rng.random() < 0.5)) for each in campaign.decide(PLAYS)])


def play_one(client: kofn.Client, rng: random.Random, count: int) -> None:
    """Decide and reward once, in a campaign that is drawn at random."""
    campaign = client.campaign(name_of(rng.randrange(count)))
    campaign.reward(campaign.decide().id, float(rng.random() < 0.5))


def kilobytes(http: httpx.Client, path: str) -> float:
    """Return the size of a response before compression."""
    return len(http.get(path).raise_for_status().content) / 1e3


def measure(running: Any, browser: Any, client: kofn.Client, count: int, pairs: int) -> Numbers:
    """Return what a service with this number of campaigns needs."""
    from tests.service.browser import measure_load

    http, rng = running.client, random.Random(count)
    listed, sought = "/api/campaigns?limit=48", f"/api/campaigns?limit=48&q={name_of(count - 1)[-3:]}"
    pages = [measure_load(browser.new_page(), running.url, CARDS) for _ in range(5)]
    return {
        "list": milliseconds(lambda: http.get(listed).raise_for_status()),
        "list kB": kilobytes(http, listed),
        "search": milliseconds(lambda: http.get(sought).raise_for_status()),
        "metrics": milliseconds(lambda: http.get("/metrics").raise_for_status()),
        "metrics kB": kilobytes(http, "/metrics"),
        "page": statistics.median(taken for taken, _ in pages),
        "page kB": max(size for _, size in pages) / 1e3,
        "pair": milliseconds(lambda: play_one(client, rng, count), pairs),
        "MB": resident(running.pid) / 1e6,
    }


def run(folder: str, counts: Sequence[int], pairs: int) -> dict[int, Numbers]:
    """Return the numbers of a service, to which campaigns are added."""
    from tests.service.browser import headless
    from tests.service.tools import Served

    file, found, there = Path(folder) / "shop.db", {}, 0
    with Served(f"sqlite:///{file}") as running, kofn.Client(running.url) as client, headless() as browser:
        for count in counts:
            begun = time.perf_counter()
            for number in range(there, count):
                create(client, number)
            each = 1e3 * (time.perf_counter() - begun) / (count - there)
            there = count
            numbers = {"create": each} | measure(running, browser, client, count, pairs)
            found[count] = numbers | {"store MB": file.stat().st_size / 1e6}
        running.stop()
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that the benchmark works")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        found = run(folder, *((QUICK, QUICK_PAIRS) if args.quick else (COUNTS, PAIRS)))
    if args.json:
        print(json.dumps(found, indent=2))
        return
    table("campaigns", *(f"{count:,}" for count in found))
    for name, unit in UNITS.items():
        line(unit, *(f"{numbers[name]:,.1f}" for numbers in found.values()))


if __name__ == "__main__":
    main()
