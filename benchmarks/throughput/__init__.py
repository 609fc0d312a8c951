"""Measure decisions and rewards per second beside servers that only store rows: `python -m benchmarks.throughput`.

Each connection sends one decision, then its reward, and waits for each answer (a pair). Measured are `kofn serve`, with
one and with eight campaigns of N = 24, and Starlette with a bare group commit (`plain_servers`), on SQLite
(synchronous=full) and on a PostgreSQL server started for the benchmark (with fsync); there, also with two processes.
`in process` compares `Campaign` with two durable inserts per pair. Every server has a new database. All run at the same
time, and get the load in turn, for a second each: the speed of a machine changes within seconds, so compare numbers of
the same round. Every second round is in reverse order.
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
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import kofn
from benchmarks.rows import Row
from benchmarks.throughput.plain_servers import STORE, create_table

N_ARMS, K = 24, 5
CONNECTIONS = (8, 32)
WARM_UP, SETTLE = 1.0, 0.1
"""Seconds of load before a server is first measured (caches, statements, the first plans), and before each round."""
GAP = 0.02
"""Seconds between two new connections. Of several at once, one of two server processes would accept nearly all."""

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

    async def send(self, head: bytes, body: bytes = b"") -> bytes:
        """Send a request and return the body of its response; the head lacks the content length only."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(b"%s%d\r\n\r\n%s" % (head, len(body), body))
        return await self._waiting

    def close(self) -> None:
        self._transport.close()


def head_of(path: str, port: int, method: str = "POST") -> bytes:
    token = os.environ.get("KOFN_TOKEN")
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Content-Type: application/json"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    return "\r\n".join([*lines, "Content-Length: "]).encode()


async def connected(port: int) -> Connection:
    """Return a new connection to a server of this machine."""
    return (await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port))[1]


async def play(port: int, name: str, until: float, taken: list[float]) -> None:
    """Play pairs on one connection until the deadline, and append the latency of each request."""
    connection = await connected(port)
    decide, reward = (head_of(f"/api/campaigns/{name}/{what}", port) for what in ("decisions", "rewards"))
    rng = random.Random(id(taken))
    while not taken or time.perf_counter() < until:
        begun = time.perf_counter()
        decision = json.loads(await connection.send(decide, b'{"count": 1}'))["decisions"][0]
        between = time.perf_counter()
        value = float(rng.random() < sum(map(int, decision["arms"])) / K / N_ARMS)
        body = json.dumps({"rewards": [{"id": decision["id"], "reward": value}]}).encode()
        done = json.loads(await connection.send(reward, body))
        assert done["accepted"] == 1, done
        taken += [between - begun, time.perf_counter() - between]
    connection.close()


async def load(port: int, names: Sequence[str], taken: Sequence[list[float]], seconds: float) -> Row:
    """Return the numbers of a load, with a connection for each list of latencies. Connections share the campaigns."""
    begin = time.perf_counter() + GAP * len(taken) + SETTLE
    players = []
    for name, each in zip(cycle(names), taken, strict=False):
        players.append(asyncio.create_task(play(port, name, begin + seconds, each)))
        await asyncio.sleep(GAP)
    await asyncio.sleep(begin - time.perf_counter())
    warm, begun = [len(each) for each in taken], time.perf_counter()
    await asyncio.gather(*players)
    latencies = [latency for before, each in zip(warm, taken, strict=True) for latency in each[before:]]
    return shown(latencies, time.perf_counter() - begun)


def measured(port: int, names: Sequence[str], connections: int, seconds: float, pids: Sequence[int]) -> Row:
    """Return pairs per second, latencies, and the memory of the server's processes."""
    import uvloop

    numbers = uvloop.run(load(port, names, [[] for _ in range(connections)], seconds))
    return numbers | {"memory_mb": sum(map(resident, pids)) / 1e6}


def shown(latencies: Sequence[float], seconds: float, requests_per_pair: int = 2) -> Row:
    """Return pairs per second, and the median, the 99 % quantile and the maximum of the latencies."""
    latencies = sorted(latencies)
    return {
        "pairs_per_second": len(latencies) / requests_per_pair / seconds,
        "median_ms": 1e3 * latencies[len(latencies) // 2],
        "p99_ms": 1e3 * latencies[math.ceil(0.99 * len(latencies)) - 1],
        "max_ms": 1e3 * latencies[-1],
    }


def family(pid: int) -> list[int]:
    """Return a process and all its descendants, without those that have just ended."""
    try:
        children = [each for of in Path(f"/proc/{pid}/task").glob("*/children") for each in of.read_text().split()]
    except OSError:
        return []
    return [pid, *(each for child in children for each in family(int(child)))]


def resident(pid: int) -> int:
    """Return the resident memory of a process and its descendants in bytes."""
    pages = sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in family(pid))
    return pages * os.sysconf("SC_PAGE_SIZE")


def processor_seconds(pid: int) -> float:
    """Return the time of the processor that a process and its descendants have used."""
    ticks = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:13] for each in family(pid)]
    return sum(int(each) for both in ticks for each in both) / os.sysconf("SC_CLK_TCK")


# The servers.


@contextmanager
def kofn_served(store: str, workers: int, names: Sequence[str]) -> Iterator[tuple[int, list[int]]]:
    """Start `kofn serve` with a new campaign of each name; give its port and its processes."""
    from tests.service.tools import Served

    with Served(store, "--workers", str(workers)) as running:
        with kofn.Client(running.url) as client:
            for name in names:
                client.create(name, [str(i) for i in range(N_ARMS)], K, seed=1)
        yield running.port, [running.pid]
        running.stop()


@contextmanager
def plain_served(store: str, workers: int) -> Iterator[tuple[int, list[int]]]:
    """Start the bare group commit with the HTTP parser of `kofn serve`; give its port and its processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "uvicorn", "benchmarks.throughput.plain_servers:group_app", "--factory"]
    command += ["--port", str(port), "--workers", str(workers), "--http", "h11", "--loop", "uvloop"]
    command += ["--log-level", "error", "--no-access-log"]
    create_table(store)
    process = subprocess.Popen(command, env=os.environ | {STORE: store}, cwd=Path(__file__).parents[2])
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


@contextmanager
def new_store(kind: str, folder: str, postgres_url: str | None) -> Iterator[str]:
    """Create a database for one server, and remove it: its dead rows would slow down the next one."""
    if postgres_url is None or kind == "SQLite":
        with tempfile.TemporaryDirectory(dir=folder) as own:
            yield f"sqlite:///{own}/kofn.db"
        return
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        name = f"measured_{time.monotonic_ns()}"
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield postgres_url.removesuffix("postgres") + name
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


# In process.


def inserts_in_process(store: str) -> Callable[[], None]:
    """Return a function that makes two durable inserts."""
    connection = sqlite3.connect(store.removeprefix("sqlite:///"), isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE plain (id INTEGER PRIMARY KEY, kind TEXT, value REAL)")

    def pair() -> None:
        for kind in ("decision", "reward"):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO plain (kind, value) VALUES (?, ?)", (kind, 1.0))
            connection.execute("COMMIT")

    return pair


def campaign_in_process(store: str) -> Callable[[], None]:
    """Return a function that makes a decision and reports its reward."""
    campaign = kofn.Campaign.create("front", [str(i) for i in range(N_ARMS)], K, seed=1, store=store)
    rng = random.Random(1)

    def pair() -> None:
        decision = campaign.decide()
        campaign.reward(decision.id, float(rng.random() < sum(decision.subset) / K / N_ARMS))

    return pair


def timed(pair: Callable[[], None], seconds: float) -> Row:
    taken: list[float] = []
    begun = time.perf_counter()
    while not taken or time.perf_counter() - begun < seconds:
        before = time.perf_counter()
        pair()
        taken.append(time.perf_counter() - before)
    elapsed = time.perf_counter() - begun
    return shown(taken, elapsed, 1)


# All of it.

Place = tuple[str, str]
"""A setting, such as a store with a number of connections, and a server."""

Window = Callable[[int, float], Row]
"""Measures a server with a number of connections, for some seconds."""


class Server(NamedTuple):
    """What is measured with each number of connections."""

    store: str
    kind: str = "kofn"
    campaigns: int = 1
    processes: int = 1

    def place(self, connections: int) -> Place:
        """Return the setting and the name of this server in the rows."""
        campaigns = f", {self.campaigns} campaigns" if self.campaigns > 1 else ""
        processes = f", {self.processes} processes" if self.processes > 1 else ""
        return f"{self.store}{campaigns}, {connections} connections", f"{self.kind}{processes}"

    def start(self, stack: ExitStack, folder: str, postgres_url: str | None) -> Window:
        """Start the server until the stack is left, and return a function that measures it for some seconds."""
        names = [f"front-{number}" for number in range(self.campaigns)]
        store = stack.enter_context(new_store(self.store, folder, postgres_url))
        served = kofn_served(store, self.processes, names) if self.kind == "kofn" else None
        port, pids = stack.enter_context(served or plain_served(store, self.processes))
        if self.processes > 1:
            time.sleep(STARTING)
        return lambda connections, seconds: measured(port, names, connections, seconds, pids)


STARTING = 3.0
"""Seconds for all processes of a server to start. The first one takes all connections that are made before."""

BARE = "group commit"
SERVERS = (
    *(Server("SQLite", *each) for each in ((), (BARE,), ("kofn", 8))),
    *(Server("PostgreSQL", *each) for each in ((), (BARE,), ("kofn", 8), ("kofn", 1, 2), (BARE, 1, 2))),
)
BESIDE = (
    *((Server(store), Server(store, BARE)) for store in ("SQLite", "PostgreSQL")),
    *((Server(store, "kofn", 8), Server(store, *bare)) for store in ("SQLite", "PostgreSQL") for bare in ((BARE,), ())),
    *((Server("PostgreSQL", "kofn", 1, 2), Server("PostgreSQL", *each)) for each in ((BARE, 1, 2), ())),
)
"""The servers whose ratio is reported."""

IN_PROCESS = "SQLite, in process"


IN_PROCESS_WORK = {"kofn": campaign_in_process, "two inserts": inserts_in_process}


def rounds_of(
    rounds: int, folder: str, postgres_url: str | None, seconds: float, connections: Sequence[int]
) -> list[dict[Place, Row]]:
    """Measure everything in each round, in turn forwards and backwards."""
    chosen = [each for each in SERVERS if postgres_url is not None or each.store == "SQLite"]
    with ExitStack() as stack:
        tasks: list[tuple[Place, Callable[[float], Row]]] = []
        for server in chosen:
            window = server.start(stack, folder, postgres_url)
            tasks += [(server.place(each), partial(window, each)) for each in connections]
        for name, work in IN_PROCESS_WORK.items():
            pair = work(stack.enter_context(new_store("SQLite", folder, None)))
            tasks.append(((IN_PROCESS, name), partial(timed, pair)))
        for _, measure in tasks:
            measure(min(WARM_UP, seconds))
        found: list[dict[Place, Row]] = []
        for number in range(rounds):
            found.append({place: measure(seconds) for place, measure in (tasks if number % 2 == 0 else tasks[::-1])})
            for (setting, name), row in found[-1].items():
                said = f"{row['pairs_per_second']:.0f} pairs/s, p99 {row['p99_ms']:.2f} ms"
                print(f"round {number + 1} of {rounds}: {setting}, {name}: {said}", file=sys.stderr, flush=True)
        return found


def rows(seconds: float = 1.0, rounds: int = 12, no_postgres: bool = False, quick: bool = False) -> Iterator[Row]:
    """Yield a row for each store, number of connections and server; then the ratios of two servers.

    Numbers are means over the rounds; `max_ms` is the maximum. `..._error` is the standard error of the mean. Ratios
    are of the same round.
    """
    from tests import postgres

    connections: tuple[int, ...] = CONNECTIONS
    if quick:
        seconds, rounds, connections = 0.2, 1, (2,)
    started = nullcontext(None) if no_postgres else postgres.server(durable=True)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, started as url:
        found = rounds_of(rounds, folder, url, seconds, connections)
    for setting, server in found[0]:
        all_rounds = [each[setting, server] for each in found]
        numbers = with_standard_error("pairs_per_second", all_rounds)
        numbers |= {name: fmean(each[name] for each in all_rounds) for name in ("median_ms", "p99_ms")}
        numbers["max_ms"] = max(each["max_ms"] for each in all_rounds)
        memory = [each["memory_mb"] for each in all_rounds if "memory_mb" in each]
        numbers["memory_mb"] = fmean(memory) if memory else None
        yield {"setting": setting, "server": server, "runs": rounds, **numbers}
    pairs = [(above.place(each), below.place(each)) for above, below in BESIDE for each in connections]
    for (setting, server), other in [*pairs, ((IN_PROCESS, "kofn"), (IN_PROCESS, "two inserts"))]:
        if (setting, server) in found[0]:
            one_campaign = ", 1 campaign" if (server == other[1]) else ""
            name = f"{server} / {other[1]}{one_campaign}"
            ratios = [ratios_of(each[setting, server], each[other]) for each in found]
            errors = with_standard_error("ratio", ratios) | with_standard_error("p99_ratio", ratios)
            yield {"setting": setting, "server": name, "runs": rounds, **errors}


def ratios_of(row: Row, other: Row) -> Row:
    """Return the ratios of two servers in one round."""
    return {
        "ratio": row["pairs_per_second"] / other["pairs_per_second"],
        "p99_ratio": row["p99_ms"] / other["p99_ms"],
    }


def with_standard_error(name: str, all_rounds: Sequence[Row]) -> Row:
    """Return the columns of a mean over the rounds and of its standard error; None for a single round."""
    values = [each[name] for each in all_rounds]
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return {name: fmean(values), f"{name}_error": error}
