"""Decide and reward, pairs per second in one process: `python benchmarks/campaign.py`.

For N = 24 and N = 10,000 and several batch sizes: SQLite with its default synchronous=full (acknowledged means on the
disk), SQLite with synchronous=normal, and a PostgreSQL server that this program starts (with fsync). Each case plays a
new campaign for some seconds, so at N = 10,000 the numbers include the frequent learning of the first plans.
`--no-postgres` leaves out the server, `--quick` plays little.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # with more, threads mostly wait for each other

from kofn import Campaign

SIZES = (24, 10_000)
BATCHES = (1, 10, 100, 1000)


def pairs_per_second(store: str, n_arms: int, batch: int, seconds: float) -> float:
    """Return how many decisions are made and rewarded per second, `batch` at a time."""
    name = f"n{n_arms}-b{batch}"
    campaign = Campaign.create(name, [f"arm {i}" for i in range(n_arms)], 5, seed=1, store=store)
    rng = random.Random(1)
    best = 5 * n_arms
    pairs, begun = 0, time.perf_counter()
    while (taken := time.perf_counter() - begun) < seconds:
        decisions = campaign.decide(batch)
        campaign.rewards([(each.id, float(rng.random() < sum(each.subset) / best)) for each in decisions])
        pairs += batch
    assert campaign.summary().rewards == pairs
    return pairs / taken


def disk_syncs_per_second(folder: Path, seconds: float) -> float:
    """Return how many writes per second this disk completes. A pair of single calls waits for two of them."""
    file = os.open(folder / "sync", os.O_WRONLY | os.O_CREAT)
    syncs, begun = 0, time.perf_counter()
    while (taken := time.perf_counter() - begun) < seconds:
        os.write(file, b"x" * 4096)
        os.fdatasync(file)
        syncs += 1
    os.close(file)
    return syncs / taken


def measure(
    stores: dict[str, str], sizes: tuple[int, ...] = SIZES, batches: tuple[int, ...] = BATCHES, seconds: float = 3.0
) -> dict[str, float]:
    return {
        f"{kind}, N = {n_arms:,}, batches of {batch:,} [pairs/s]": pairs_per_second(store, n_arms, batch, seconds)
        for kind, store in stores.items()
        for n_arms in sizes
        for batch in batches
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--no-postgres", action="store_true")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that the benchmark works")
    args = parser.parse_args(arguments)
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests import postgres

    started = nullcontext(None) if args.no_postgres else postgres.server(durable=True)
    with tempfile.TemporaryDirectory() as folder, started as server:
        result = {"disk syncs per second": disk_syncs_per_second(Path(folder), 0.05 if args.quick else 1.0)}
        stores = {
            "SQLite": f"sqlite:///{folder}/full.db",
            "SQLite, synchronous=normal": f"sqlite:///{folder}/normal.db?synchronous=normal",
        }
        if server:
            stores["PostgreSQL"] = server
        result |= measure(stores, sizes=(24,), batches=(1, 10), seconds=0.1) if args.quick else measure(stores)
        for store in stores.values():
            Campaign.open("n24-b1", store=store).store.close()
    if args.json:
        print(json.dumps(result, indent=2))
    else:
        for name, value in result.items():
            print(f"{name:<60} {value:>10,.0f}")


if __name__ == "__main__":
    main()
