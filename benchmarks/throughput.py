"""Measure decisions and rewards per second beside servers that only store rows. `python -m benchmarks.throughput`.

Each connection sends one decision, then its reward, and waits for each answer (a pair). Beside each other, N = 24:
`kofn serve`; FastAPI with a durable insert per request; Starlette with a group commit (benchmarks/yardsticks.py); on
SQLite (synchronous=full) and on a PostgreSQL server started for the benchmark (with fsync). `in process` compares
`Campaign` with two durable inserts per pair. `8 campaigns` spreads the connections over eight campaigns, whose rows are
locked one by one on PostgreSQL. Server and load share the machine. `--rounds` repeats everything and
reports the mean with its standard error; the ratios are of the same round. It prints the tables of
docs/guides/service.md.
Options: --seconds 4 --rounds 3 --no-postgres --json --quick.
"""

import argparse
import asyncio
import json
import math
import os
import random
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import cycle
from pathlib import Path
from typing import Any

import kofn

sys.path.insert(0, str(Path(__file__).parents[1]))

N_ARMS, K = 24, 5
CONNECTIONS = (8, 32)
ONE, EIGHT = ("front",), tuple(f"front-{number}" for number in range(8))
"""The names of one campaign, and of several whose transactions do not wait for each other."""

Numbers = dict[str, float]


# The load.


class Connection(asyncio.Protocol):
    """One HTTP connection: sends a request, and waits for its response."""

    def __init__(self) -> None:
        self._buffer = b""
        self._waiting: asyncio.Future[bytes] | None = None
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        lower = head.lower()
        length = int(lower.partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(rest) >= length and self._waiting is not None:
            self._buffer = rest[length:]
            status = head[9:12]
            if status != b"200":
                self._waiting.set_exception(RuntimeError(f"status {status.decode()}: {rest[:200]!r}"))
            else:
                self._waiting.set_result(rest[:length])

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(RuntimeError(f"the connection was closed: {error}"))

    async def post(self, head: bytes, body: bytes) -> bytes:
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(b"%s%d\r\n\r\n%s" % (head, len(body), body))
        return await self._waiting


def head_of(path: str, port: int) -> bytes:
    token = os.environ.get("KOFN_TOKEN")
    lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Content-Type: application/json"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    return "\r\n".join([*lines, "Content-Length: "]).encode()


async def play(port: int, name: str, until: float, taken: list[float]) -> None:
    """Play pairs on one connection until the deadline, and append the latency of each request."""
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    decide, reward = (head_of(f"/api/campaigns/{name}/{what}", port) for what in ("decisions", "rewards"))
    rng = random.Random(id(taken))
    while not taken or time.perf_counter() < until:
        begun = time.perf_counter()
        decision = json.loads(await connection.post(decide, b'{"count": 1}'))["decisions"][0]
        between = time.perf_counter()
        value = float(rng.random() < sum(map(int, decision["arms"])) / K / N_ARMS)
        body = json.dumps({"rewards": [{"id": decision["id"], "reward": value}]}).encode()
        done = json.loads(await connection.post(reward, body))
        assert done["accepted"] == 1, done
        taken += [between - begun, time.perf_counter() - between]
    connection._transport.close()


async def load(port: int, names: Sequence[str], connections: int, seconds: float) -> list[float]:
    """Return the latencies of all requests. Connections take turns in choosing one of the campaigns."""
    taken: list[list[float]] = [[] for _ in range(connections)]
    until = time.perf_counter() + seconds
    await asyncio.gather(*(play(port, name, until, each) for name, each in zip(cycle(names), taken, strict=False)))
    return sorted(latency for each in taken for latency in each)


def measured(port: int, names: Sequence[str], connections: int, seconds: float, pids: Sequence[int]) -> Numbers:
    """Return pairs per second, latencies, and the memory of the server's processes."""
    import uvloop

    uvloop.run(load(port, names, connections, min(1.0, seconds)))  # warm up: caches, statements, the first plans
    begun = time.perf_counter()
    latencies = uvloop.run(load(port, names, connections, seconds))
    elapsed = time.perf_counter() - begun
    return {
        "pairs/s": len(latencies) / 2 / elapsed,
        "median ms": 1e3 * latencies[len(latencies) // 2],
        "p99 ms": 1e3 * latencies[math.ceil(0.99 * len(latencies)) - 1],
        "MB": sum(map(resident, pids)) / 1e6,
    }


def resident(pid: int) -> int:
    """Return the resident memory of a process and its children in bytes."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(resident(int(child)) for child in children)


# The servers.


@contextmanager
def kofn_served(store: str, workers: int = 1, names: Sequence[str] = ONE) -> Iterator[tuple[int, list[int]]]:
    from tests.service.tools import Served

    with Served(store, "--workers", str(workers)) as running:
        with kofn.Client(running.url) as client:
            for name in names:
                client.create(name, [str(i) for i in range(N_ARMS)], K, seed=1)
        yield running.port, [running.pid]
        with kofn.Client(running.url) as client:
            for name in names:
                client.campaign(name).delete()
        running.stop()


@contextmanager
def yardstick(kind: str, store: str, workers: int = 1) -> Iterator[tuple[int, list[int]]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "uvicorn", f"benchmarks.yardsticks:{kind}_app", "--factory", "--port", str(port)]
    command += ["--log-level", "error", "--no-access-log", "--workers", str(workers)]
    environment = os.environ | {"KOFN_YARDSTICK": store}
    process = subprocess.Popen(command, env=environment, cwd=Path(__file__).parents[1])
    try:
        wait_for(port)
        yield port, [process.pid]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def wait_for(port: int) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < until, "the server did not start"
            time.sleep(0.05)


# In process.


def inserts_in_process(file: str, seconds: float) -> Numbers:
    """Return pairs of durable inserts per second."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE plain (id INTEGER PRIMARY KEY, kind TEXT, value REAL)")

    def pair() -> None:
        for kind in ("decision", "reward"):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO plain (kind, value) VALUES (?, ?)", (kind, 1.0))
            connection.execute("COMMIT")

    return timed(pair, seconds)


def campaign_in_process(store: str, seconds: float) -> Numbers:
    campaign = kofn.Campaign.create("front", [str(i) for i in range(N_ARMS)], K, seed=1, store=store)
    rng = random.Random(1)

    def pair() -> None:
        decision = campaign.decide()
        campaign.reward(decision.id, float(rng.random() < sum(decision.subset) / K / N_ARMS))

    for _ in range(100):
        pair()
    return timed(pair, seconds)


def timed(pair: Callable[[], None], seconds: float) -> Numbers:
    taken: list[float] = []
    begun = time.perf_counter()
    while not taken or time.perf_counter() - begun < seconds:
        before = time.perf_counter()
        pair()
        taken.append(time.perf_counter() - before)
    taken.sort()
    return {
        "pairs/s": len(taken) / sum(taken),
        "median ms": 1e3 * taken[len(taken) // 2],
        "p99 ms": 1e3 * taken[math.ceil(0.99 * len(taken)) - 1],
    }


# All of it.

GOALS = {
    "SQLite, 8 connections": ("kofn", "group commit", 0.5),
    "SQLite, 32 connections": ("kofn", "group commit", 0.3),
    "PostgreSQL, 8 connections": ("kofn", "insert per request", 1.0),
    "PostgreSQL, 32 connections": ("kofn", "insert per request", 1.0),
    "SQLite, in process": ("kofn", "two inserts", 1 / 3),
    "PostgreSQL, 32 connections, 2 processes": ("kofn, 2 processes", "kofn", 1.0),
    "PostgreSQL, 8 campaigns, 8 connections, 2 processes": ("kofn, 2 processes", "kofn", 1.0),
    "PostgreSQL, 8 campaigns, 32 connections, 2 processes": ("kofn, 2 processes", "kofn", 1.0),
}
"""What is compared with what, and the ratio that is the goal."""


def round_of(folder: Path, server: str | None, seconds: float, connections: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Measure everything once."""
    found: dict[str, dict[str, Any]] = {}

    def measure(where: str, who: str, served: Any, names: Sequence[str] = ONE) -> None:
        with served as (port, pids):
            for each in connections:
                numbers = measured(port, names, each, seconds, pids)
                found.setdefault(f"{where}, {each} connections", {})[who] = numbers

    measure("SQLite", "kofn", kofn_served(f"sqlite:///{folder}/kofn.db"))
    measure("SQLite", "insert per request", yardstick("insert", f"{folder}/insert.db"))
    measure("SQLite", "group commit", yardstick("group", f"{folder}/group.db"))
    if server is not None:
        measure("PostgreSQL", "kofn", kofn_served(server))
        measure("PostgreSQL", "insert per request", yardstick("insert", server))
        measure("PostgreSQL", "group commit", yardstick("group", server))
        measure("PostgreSQL", "kofn, 2 processes", kofn_served(server, workers=2))
        measure("PostgreSQL", "insert per request, 2 processes", yardstick("insert", server, workers=2))
        for who, workers in (("kofn", 1), ("kofn, 2 processes", 2)):
            measure("PostgreSQL, 8 campaigns", who, kofn_served(server, workers, EIGHT), EIGHT)
    found["SQLite, in process"] = {
        "two inserts": inserts_in_process(f"{folder}/plain.db", seconds),
        "kofn": campaign_in_process(f"sqlite:///{folder}/campaign.db", seconds),
    }
    return found


def combined(rounds: Sequence[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the mean over the rounds; of pairs/s also the standard error."""
    result: dict[str, dict[str, Any]] = {}
    for where, all_of_it in rounds[0].items():
        result[where] = {}
        for who, numbers in all_of_it.items():
            means = {name: statistics.fmean(each[where][who][name] for each in rounds) for name in numbers}
            means["error"] = error([each[where][who]["pairs/s"] for each in rounds])
            result[where][who] = means
    return result


def error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def ratios(rounds: Sequence[dict[str, dict[str, Any]]]) -> dict[str, Numbers]:
    """Return each ratio of GOALS, the mean over the rounds and its standard error."""
    result = {}
    for goal, (one, other, wanted) in GOALS.items():
        where = goal.removesuffix(", 2 processes")
        if where in rounds[0]:
            each = [found[where][one]["pairs/s"] / found[where][other]["pairs/s"] for found in rounds]
            result[f"{goal}: {one} / {other}"] = {
                "ratio": statistics.fmean(each),
                "error": error(each),
                "goal": wanted,
            }
    return result


def tables(measurements: dict[str, dict[str, Any]], compared: dict[str, Numbers]) -> str:
    """Return the two tables of docs/guides/service.md."""
    lines = ["| store | server | pairs per second | median [ms] | p99 [ms] | memory [MB] |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: |"]
    for where, servers in measurements.items():
        for who, numbers in servers.items():
            pairs = f"{numbers['pairs/s']:,.0f} ± {numbers['error']:,.0f}"
            memory = f"{numbers['MB']:.0f}" if "MB" in numbers else ""
            times = f"{numbers['median ms']:.1f} | {numbers['p99 ms']:.1f}"
            lines.append(f"| {where} | {who} | {pairs} | {times} | {memory} |")
    lines += ["", "| ratio of the same round | |", "| --- | ---: |"]
    lines += [f"| {name} | {each['ratio']:.2f} ± {each['error']:.2f} |" for name, each in compared.items()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    from tests import postgres

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-postgres", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="little load, to see that the benchmark works")
    args = parser.parse_args(arguments)
    seconds, rounds, connections = (0.2, 1, (2,)) if args.quick else (args.seconds, args.rounds, CONNECTIONS)
    busy = os.getloadavg()[0]  # other processes on the machine influence the results
    found = []
    for number in range(rounds):
        started = nullcontext(None) if args.no_postgres else postgres.server(durable=True)
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, started as server:
            found.append(round_of(Path(folder), server, seconds, connections))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    result = {
        "machine": {"cores": os.cpu_count(), "load average before": busy},
        "rounds": rounds,
        "measured": combined(found),
        "ratios": ratios(found),
    }
    if args.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{os.cpu_count()} cores, load average before: {busy:.2f}", file=sys.stderr)
    print(tables(combined(found), ratios(found)))
    for name, each in ratios(found).items():
        if each["ratio"] < each["goal"]:
            print(f"{name} is below the goal of {each['goal']:.2f}", file=sys.stderr)


if __name__ == "__main__":
    main()
