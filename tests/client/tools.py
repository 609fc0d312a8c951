"""Both clients for one set of tests, and a simulated service. Programs that are tested import it: it loads little."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import httpx

from kofn.client import AsyncClient, AsyncRemoteCampaign, Client


@cache
def running_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


class Blocking:
    """An asyncio client or campaign, used as if it were the synchronous one: its loop runs in a thread."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **given: Any) -> Any:
            async def work() -> Any:
                result = found(*args, **given)
                if inspect.isasyncgen(result):
                    return iter([each async for each in result])
                return await result if inspect.isawaitable(result) else result

            result = asyncio.run_coroutine_threadsafe(work(), running_loop()).result(30)
            return Blocking(result) if isinstance(result, AsyncRemoteCampaign) else result

        return call

    def __enter__(self) -> Any:
        self.__getattr__("__aenter__")()
        return self

    def __exit__(self, *_: object) -> None:
        self.__getattr__("__aexit__")()


CLIENTS: dict[str, Callable[..., Any]] = {
    "threads": Client,
    "asyncio": lambda *args, **given: Blocking(AsyncClient(*args, **given)),
}
"""Each makes a client: the synchronous one, and the asyncio client as if it were synchronous."""


def pairs(count: int, start: int = 0) -> list[tuple[str, float]]:
    return [(f"{start + i:x}-0-00", 0.5) for i in range(count)]


class Fake:
    """A service in memory. It makes the decisions of a key once, and records rewards completely or not at all."""

    def __init__(self) -> None:
        self.made: dict[str, list[str]] = {}
        self.recorded: dict[Any, float] = {}  # by id, and the name of an event or metric if there is one
        self.batches: list[int] = []
        self.state = "running"
        self.lock = threading.Lock()
        self.fail: Callable[[httpx.Request], httpx.Response | None] = lambda _: None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        with self.lock:
            if failed := self.fail(request):
                return failed
            what, body = request.url.path.rpartition("/")[2], json.loads(request.content or "null")
            if what in ("rewards", "events", "records"):
                return self.reward(body[what])
            return (self.decide if what == "decisions" else self.pause)(body)

    def pause(self, _: None) -> httpx.Response:
        self.state = "paused"
        return httpx.Response(200, json={})

    def decide(self, body: dict[str, Any]) -> httpx.Response:
        if self.state != "running":
            return problem(409, "not-running", f"the campaign is {self.state}")
        count = sum(map(len, self.made.values()))
        ids = self.made.setdefault(body["key"], [f"{count + i:x}-0-00" for i in range(body["count"])])
        assert len(ids) == body["count"]
        made = [{"id": id, "arms": ["a"], "subset": [0], "at": "2026-11-16T01:00:00+00:00"} for id in ids]
        return httpx.Response(200, json={"decisions": made})

    def reward(self, reports: list[dict[str, Any]]) -> httpx.Response:
        given: dict[Any, float] = {}
        for each in reports:
            id, value, *name = each.values()
            given[(id, *name) if name else id] = value
        if any(value > 1 for value in given.values()):
            return problem(422, "bad-reward", "a reward must be between 0 and 1")
        if any(self.recorded.get(id, value) != value for id, value in given.items()):
            return problem(409, "conflict", "another reward is recorded")
        repeated = len(given.keys() & self.recorded.keys())
        self.recorded |= given
        self.batches.append(len(given))
        return httpx.Response(200, json={"accepted": len(given) - repeated, "repeated": repeated, "forgotten": 0})


def problem(status: int, name: str, detail: str) -> httpx.Response:
    return httpx.Response(status, json={"type": f"urn:kofn:{name}", "detail": detail})


def down(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("connection refused", request=request)
