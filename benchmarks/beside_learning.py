"""What a campaign notices while another one of its store learns: `python -m benchmarks.beside_learning`.

Eight connections play pairs of a decision and its reward in one campaign of `kofn serve` on SQLite (synchronous=full).
Each round has two parts, in turns the first: in one, another campaign gets totals, so that it learns all the time with
contextual-thompson, 64 segments and 100 arms; in the other part it has nothing to do. `fold_late_s` is the longest time
from the answer to a reward until the summary of the campaign counts it.
"""

import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import kofn
from benchmarks.rows import Row, run
from benchmarks.throughput import (
    connected,
    head_of,
    kofn_served,
    load,
    processor_seconds,
    ratios_of,
    with_standard_error,
)

FRONT, OTHER = "front", "segments"
CONNECTIONS, N_ARMS, K = 8, 100, 5
HALF_LIFE = 20_000
"""In plays. It bounds the length of a plan, a tenth of it, so that updates neither become rare nor longer."""

PLAYS, EVERY = 50, 0.02
"""Plays of a total of the learning campaign, and seconds between two: a plan is complete in 0.8 s."""

LOOK = 0.02
"""Seconds between two looks at the summary. The delay of folds is known to that, and a request."""

PATIENCE = 60.0
"""Seconds after which a reward that the summary does not count is an error."""


def total(rng: random.Random, plays: int) -> dict[str, Any]:
    """Return the total of a random subset in one of 64 segments; arms with high numbers earn more."""
    arms = rng.sample(range(N_ARMS), K)
    earned = sum(rng.random() < 0.05 + 0.1 * sum(arms) / K / N_ARMS for _ in range(plays))
    context = {name: str(rng.randrange(8)) for name in ("country", "device")}
    return {"arms": [str(arm) for arm in arms], "count": plays, "total": float(earned), "context": context}


def feed(store: str, totals: int) -> None:
    """Create the campaign that learns, with rewards of each of its segments."""
    attributes = {name: [str(value) for value in range(8)] for name in ("country", "device")}
    params = {"half_life": HALF_LIFE, "attributes": attributes}
    names = [str(arm) for arm in range(N_ARMS)]
    other = kofn.Campaign.create(OTHER, names, K, policy="contextual-thompson", params=params, seed=1, store=store)
    rng = random.Random(1)
    for number in range(totals):
        given = total(rng, 80)
        given["context"] = {"country": str(number % 8), "device": str(number // 8 % 8)}
        other.reward_total(**given)


async def learn(port: int, loading: asyncio.Task[Row], rng: random.Random) -> None:
    """Report totals of the other campaign during a load."""
    connection, head = await connected(port), head_of(f"/api/campaigns/{OTHER}/totals", port)
    while not loading.done():
        await connection.send(head, json.dumps(total(rng, PLAYS)).encode())
        await asyncio.sleep(EVERY)
    connection.close()


async def lateness(port: int, loading: asyncio.Task[Row], before: int, taken: Sequence[list[float]]) -> float:
    """Return the longest time until the summary of the campaign counted the rewards that were answered."""
    connection, head = await connected(port), head_of(f"/api/campaigns/{FRONT}", port, "GET")
    longest = 0.0
    while not loading.done():
        begun, answered = time.perf_counter(), before + sum(map(len, taken)) // 2
        async with asyncio.timeout(PATIENCE):
            while json.loads(await connection.send(head))["rewards"] < answered:
                await asyncio.sleep(LOOK)
        longest = max(longest, time.perf_counter() - begun)
        await asyncio.sleep(LOOK)
    connection.close()
    return longest


async def part(port: int, before: int, seconds: float, rng: random.Random | None) -> tuple[Row, int]:
    """Return the numbers of the campaign, and how many pairs were played; with a generator, the other one learns."""
    taken: list[list[float]] = [[] for _ in range(CONNECTIONS)]
    async with asyncio.TaskGroup() as tasks:
        loading = tasks.create_task(load(port, [FRONT], taken, seconds))
        watching = tasks.create_task(lateness(port, loading, before, taken))
        if rng:
            tasks.create_task(learn(port, loading, rng))
    return loading.result() | {"fold_late_s": watching.result()}, sum(map(len, taken)) // 2


def wait_until_idle(pid: int) -> None:
    """Wait until a server has learned what it was told: until it uses less than a tenth of a processor."""
    used = -1.0
    while (now := processor_seconds(pid)) - used > 0.1:
        used = now
        time.sleep(1.0)


def rows(seconds: float = 10.0, rounds: int = 5, totals: int = 256, quick: bool = False) -> Iterator[Row]:
    """Yield a row for each part, then the ratios of the first to the second: means over the rounds, and maxima.

    `totals` is how many are reported before. `updates` counts how often the other campaign learned in a round, until
    the server was idle again. `..._error` is the standard error of the mean.
    """
    import uvloop

    if quick:
        seconds, rounds, totals = 1.0, 1, 8
    found: dict[str, list[Row]] = {"beside learning": [], "alone": []}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        store = f"sqlite:///{folder}/kofn.db"
        feed(store, totals)
        with kofn_served(store, 1, [FRONT]) as (port, [pid]), kofn.Client(f"http://127.0.0.1:{port}") as client:
            rng, pairs = random.Random(2), 0
            wait_until_idle(pid)
            for number in range(rounds):
                for name in sorted(found, reverse=number % 2 == 0):
                    updates = client.campaign(OTHER).insight().updates
                    numbers, played = uvloop.run(part(port, pairs, seconds, rng if name == "beside learning" else None))
                    pairs += played
                    wait_until_idle(pid)
                    numbers["updates"] = client.campaign(OTHER).insight().updates - updates
                    found[name].append(numbers)
                    said = f"p99 {numbers['p99_ms']:.2f} ms, folds {numbers['fold_late_s']:.2f} s late"
                    print(f"round {number + 1} of {rounds}, {name}: {said}", file=sys.stderr, flush=True)
    for name, all_rounds in found.items():
        means = {key: fmean(each[key] for each in all_rounds) for key in ("pairs_per_second", "median_ms", "p99_ms")}
        most = {key: max(each[key] for each in all_rounds) for key in ("max_ms", "fold_late_s")}
        yield {
            "setting": name,
            "runs": rounds,
            **means,
            **most,
            "updates": fmean(each["updates"] for each in all_rounds),
        }
    ratios = [ratios_of(*each) for each in zip(*found.values(), strict=True)]
    errors = with_standard_error("ratio", ratios) | with_standard_error("p99_ratio", ratios)
    yield {"setting": "beside learning / alone", "runs": rounds, **errors}


if __name__ == "__main__":
    run(rows, __doc__)
