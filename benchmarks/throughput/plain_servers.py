"""What the service is measured against: two servers that store a row per request and do nothing else.

`insert` is FastAPI with a durable insert per request. `group` is Starlette with a group commit: requests that arrive
while the last commit runs are inserted together by a thread. Both answer as `kofn serve` does, without any decision.
"""

import asyncio
import itertools
import json
import os
import sqlite3
import threading
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

STORE = "KOFN_PLAIN_STORE"
"""Environment variable with the file of the SQLite database, or the URL of the PostgreSQL database."""

TABLE = "CREATE TABLE IF NOT EXISTS plain (id BIGINT PRIMARY KEY, kind TEXT, value DOUBLE PRECISION)"
_numbers = itertools.count(int.from_bytes(os.urandom(5), "big") * 1_000_000)
_local = threading.local()


def connect() -> Any:
    """Return a durable connection of this thread: SQLite with synchronous=full, or PostgreSQL as it is configured."""
    if not hasattr(_local, "connection"):
        store = os.environ[STORE]
        if store.startswith("postgresql"):
            import psycopg

            _local.connection = psycopg.connect(store)
        else:
            _local.connection = sqlite3.connect(store, timeout=60)
            _local.connection.execute("PRAGMA journal_mode = WAL")
            _local.connection.execute("PRAGMA synchronous = FULL")
    return _local.connection


def insert(rows: list[tuple[int, str, float]]) -> None:
    """Insert rows and commit."""
    connection = connect()
    mark = "%s" if os.environ[STORE].startswith("postgresql") else "?"
    cursor = connection.cursor()
    cursor.executemany(f"INSERT INTO plain VALUES ({mark}, {mark}, {mark})", rows)
    connection.commit()


def prepare() -> None:
    """Create the table."""
    connection = connect()
    connection.cursor().execute(TABLE)
    connection.commit()


class DecisionRequest(BaseModel):
    count: int = 1


class Reward(BaseModel):
    id: str
    reward: float


class Rewards(BaseModel):
    rewards: list[Reward]


def answer(number: int) -> dict[str, Any]:
    return {"decisions": [{"id": f"{number:x}-0", "arms": ["0", "1", "2", "3", "4"]}]}


def insert_app() -> FastAPI:
    """Return FastAPI with a durable insert per request."""
    app = FastAPI()
    prepare()

    @app.post("/api/campaigns/{name}/decisions")
    def decide(name: str, body: DecisionRequest) -> Response:
        number = next(_numbers)
        insert([(number, "decision", 0.0)])
        return JSONResponse(answer(number))

    @app.post("/api/campaigns/{name}/rewards")
    def reward(name: str, body: Rewards) -> Response:
        insert([(next(_numbers), "reward", each.reward) for each in body.rewards])
        return JSONResponse({"accepted": len(body.rewards), "repeated": 0})

    return app


class Group:
    """Rows that wait for the next commit."""

    def __init__(self) -> None:
        self._waiting: list[tuple[tuple[int, str, float], asyncio.Future[None]]] = []
        self._wake = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        threading.Thread(target=self._run, daemon=True).start()

    async def insert(self, row: tuple[int, str, float]) -> None:
        self._loop = asyncio.get_running_loop()
        done = self._loop.create_future()
        self._waiting.append((row, done))
        self._wake.set()
        await done

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            group, self._waiting = self._waiting, []
            if group:
                insert([row for row, _ in group])
                assert self._loop is not None
                self._loop.call_soon_threadsafe(self._acknowledge, [done for _, done in group])

    @staticmethod
    def _acknowledge(group: list[asyncio.Future[None]]) -> None:
        for done in group:
            if not done.done():
                done.set_result(None)


def group_app() -> Starlette:
    """Return Starlette with a group commit."""
    prepare()
    group = Group()

    async def decide(request: Request) -> Response:
        json.loads(await request.body())
        number = next(_numbers)
        await group.insert((number, "decision", 0.0))
        return JSONResponse(answer(number))

    async def reward(request: Request) -> Response:
        body = json.loads(await request.body())
        for each in body["rewards"]:
            await group.insert((next(_numbers), "reward", each["reward"]))
        return JSONResponse({"accepted": len(body["rewards"]), "repeated": 0})

    return Starlette(
        routes=[
            Route("/api/campaigns/{name}/decisions", decide, methods=["POST"]),
            Route("/api/campaigns/{name}/rewards", reward, methods=["POST"]),
        ]
    )
