"""Measure decisions and rewards per second beside servers that only store rows: `python -m benchmarks.throughput`.

Each connection sends one decision, then its reward, and waits for each answer (a pair). Beside each other, N = 24:
`kofn serve`; FastAPI with a durable insert per request; Starlette with a group commit (`plain_servers`); on SQLite
(synchronous=full) and on a PostgreSQL server started for the benchmark (with fsync). `in process` compares `Campaign`
with two durable inserts per pair. With eight campaigns, connections are spread over campaigns whose rows are locked one
by one on PostgreSQL. Server and load share the machine, so compare numbers of the same round.
"""

import asyncio
import json
import math
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import cycle
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import kofn
from benchmarks.rows import Row
from benchmarks.throughput.plain_servers import STORE

N_ARMS, K = 24, 5
CONNECTIONS = (8, 32)
ONE, EIGHT = ("front",), tuple(f"front-{number}" for number in range(8))
"""The names of one campaign, and of several whose transactions do not wait for each other."""

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


def measured(port: int, names: Sequence[str], connections: int, seconds: float, pids: Sequence[int]) -> Row:
    """Return pairs per second, latencies, and the memory of the server's processes."""
    import uvloop

    uvloop.run(load(port, names, connections, min(1.0, seconds)))  # warm up: caches, statements, the first plans
    begun = time.perf_counter()
    latencies = uvloop.run(load(port, names, connections, seconds))
    elapsed = time.perf_counter() - begun
    return {
        "pairs_per_second": len(latencies) / 2 / elapsed,
        "median_ms": 1e3 * latencies[len(latencies) // 2],
        "p99_ms": 1e3 * latencies[math.ceil(0.99 * len(latencies)) - 1],
        "memory_mb": sum(map(resident, pids)) / 1e6,
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
def plain_served(kind: str, store: str, workers: int = 1) -> Iterator[tuple[int, list[int]]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        f"benchmarks.throughput.plain_servers:{kind}_app",
        "--factory",
        "--port",
        str(port),
    ]
    command += ["--log-level", "error", "--no-access-log", "--workers", str(workers)]
    environment = os.environ | {STORE: store}
    process = subprocess.Popen(command, env=environment, cwd=Path(__file__).parents[2])
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


def inserts_in_process(file: str, seconds: float) -> Row:
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


def campaign_in_process(store: str, seconds: float) -> Row:
    campaign = kofn.Campaign.create("front", [str(i) for i in range(N_ARMS)], K, seed=1, store=store)
    rng = random.Random(1)

    def pair() -> None:
        decision = campaign.decide()
        campaign.reward(decision.id, float(rng.random() < sum(decision.subset) / K / N_ARMS))

    for _ in range(100):
        pair()
    return timed(pair, seconds)


def timed(pair: Callable[[], None], seconds: float) -> Row:
    taken: list[float] = []
    begun = time.perf_counter()
    while not taken or time.perf_counter() - begun < seconds:
        before = time.perf_counter()
        pair()
        taken.append(time.perf_counter() - before)
    taken.sort()
    return {
        "pairs_per_second": len(taken) / sum(taken),
        "median_ms": 1e3 * taken[len(taken) // 2],
        "p99_ms": 1e3 * taken[math.ceil(0.99 * len(taken)) - 1],
        "memory_mb": None,
    }


# All of it.

Place = tuple[str, str]
"""A store with a number of connections, and a server."""

Server = AbstractContextManager[tuple[int, list[int]]]
"""Runs a server; gives its port and its processes."""


def servers(folder: str, postgres_url: str | None) -> Iterator[tuple[str, str, Server, Sequence[str]]]:
    """Yield every server: its store, its name, how it is started, and the names of its campaigns."""
    yield "SQLite", "kofn", kofn_served(f"sqlite:///{folder}/kofn.db"), ONE
    yield "SQLite", "insert per request", plain_served("insert", f"{folder}/insert.db"), ONE
    yield "SQLite", "group commit", plain_served("group", f"{folder}/group.db"), ONE
    if postgres_url is not None:
        for processes, more in ((1, ""), (2, ", 2 processes")):
            yield "PostgreSQL", f"kofn{more}", kofn_served(postgres_url, processes), ONE
            plain = plain_served("insert", postgres_url, processes)
            yield "PostgreSQL", f"insert per request{more}", plain, ONE
            spread = kofn_served(postgres_url, processes, EIGHT)
            yield "PostgreSQL, 8 campaigns", f"kofn{more}", spread, EIGHT
        yield "PostgreSQL", "group commit", plain_served("group", postgres_url), ONE


def round_of(folder: str, postgres_url: str | None, seconds: float, connections: Sequence[int]) -> dict[Place, Row]:
    """Measure everything once."""
    found: dict[Place, Row] = {}
    for store, name, server, names in servers(folder, postgres_url):
        with server as (port, pids):
            for each in connections:
                found[f"{store}, {each} connections", name] = measured(port, names, each, seconds, pids)
    found["SQLite, in process", "two inserts"] = inserts_in_process(f"{folder}/plain.db", seconds)
    found["SQLite, in process", "kofn"] = campaign_in_process(f"sqlite:///{folder}/campaign.db", seconds)
    return found


def rows(seconds: float = 4.0, rounds: int = 3, no_postgres: bool = False, quick: bool = False) -> Iterator[Row]:
    """Yield a row for each store, number of connections and server; then the ratios of kofn to the others.

    Numbers are means over the rounds. `..._error` is their standard error; ratios are of the same round.
    """
    from tests import postgres

    connections: tuple[int, ...] = CONNECTIONS
    if quick:
        seconds, rounds, connections = 0.2, 1, (2,)
    found = []
    for _ in range(rounds):
        started = nullcontext(None) if no_postgres else postgres.server(durable=True)
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, started as url:
            found.append(round_of(folder, url, seconds, connections))
    for (setting, server), numbers in found[0].items():
        means = {
            key: fmean(each[setting, server][key] for each in found) for key in numbers if numbers[key] is not None
        }
        speeds = [each[setting, server]["pairs_per_second"] for each in found]
        error = {"pairs_per_second": means.pop("pairs_per_second"), "pairs_per_second_error": standard_error(speeds)}
        yield {"setting": setting, "server": server, "runs": rounds, **error, **means}
    for setting, server in found[0]:
        if server != "kofn" and (setting, "kofn") in found[0]:
            ratios = [
                each[setting, "kofn"]["pairs_per_second"] / each[setting, server]["pairs_per_second"] for each in found
            ]
            shown = {"ratio": fmean(ratios), "ratio_error": standard_error(ratios)}
            yield {"setting": setting, "server": f"kofn / {server}", "runs": rounds, **shown}


def standard_error(values: Sequence[float]) -> float | None:
    """Return the standard error of the mean; None for a single value."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
