"""What the service is measured against: a server that stores a row per request and does nothing else.

It is Starlette with a group commit: requests that arrive while the last commit runs are inserted together by a thread.
It answers as `kofn serve` does, without any decision. With several processes, each has its own group commit.
"""

import asyncio
import itertools
import json
import os
import queue
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

STORE = "KOFN_PLAIN_STORE"
"""Environment variable with the URL of the database."""

TABLE = "CREATE TABLE plain (id BIGINT PRIMARY KEY, kind TEXT, value DOUBLE PRECISION)"

PlainRow = tuple[int, str, float]


def connect(store: str) -> tuple[Any, str]:
    """Return a durable connection, SQLite with synchronous=full or PostgreSQL as it is configured, and its mark."""
    if store.startswith("postgresql"):
        import psycopg

        return psycopg.connect(store), "%s"
    connection = sqlite3.connect(store.removeprefix("sqlite:///"), timeout=60)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection, "?"


def create_table(store: str) -> None:
    """Create the table. Processes that do so at the same time may fail on PostgreSQL."""
    connection, _ = connect(store)
    connection.cursor().execute(TABLE)
    connection.commit()
    connection.close()


class Group:
    """Rows that wait for the next commit."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: queue.SimpleQueue[tuple[PlainRow, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    async def insert(self, row: PlainRow) -> None:
        done = self._loop.create_future()
        self._waiting.put((row, done))
        await done

    def _run(self) -> None:
        connection, mark = connect(os.environ[STORE])
        while True:
            group = [self._waiting.get()]
            while not self._waiting.empty():
                group.append(self._waiting.get())
            cursor = connection.cursor()
            cursor.executemany(f"INSERT INTO plain VALUES ({mark}, {mark}, {mark})", [row for row, _ in group])
            connection.commit()
            self._loop.call_soon_threadsafe(self._acknowledge, [done for _, done in group])

    @staticmethod
    def _acknowledge(group: list[asyncio.Future[None]]) -> None:
        for done in group:
            if not done.done():
                done.set_result(None)


def group_app() -> Starlette:
    """Return the server."""
    numbers = itertools.count(int.from_bytes(os.urandom(5), "big") * 1_000_000)  # other ones in each process
    groups: list[Group] = []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        groups.append(Group(asyncio.get_running_loop()))
        yield

    async def decide(request: Request) -> Response:
        json.loads(await request.body())
        number = next(numbers)
        await groups[0].insert((number, "decision", 0.0))
        return JSONResponse({"decisions": [{"id": f"{number:x}-0", "arms": ["0", "1", "2", "3", "4"]}]})

    async def reward(request: Request) -> Response:
        body = json.loads(await request.body())
        for each in body["rewards"]:
            await groups[0].insert((next(numbers), "reward", each["reward"]))
        return JSONResponse({"accepted": len(body["rewards"]), "repeated": 0})

    return Starlette(
        routes=[
            Route("/api/campaigns/{name}/decisions", decide, methods=["POST"]),
            Route("/api/campaigns/{name}/rewards", reward, methods=["POST"]),
        ],
        lifespan=lifespan,
    )
